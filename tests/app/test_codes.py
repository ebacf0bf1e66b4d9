"""Codes of missing entries that can be values: nothing that was measured is lost."""

import csv
import io
import json
import warnings

import numpy as np
import polars as pl
import pytest

import dualpca as dp
from dualpca.app.cli._running import Choice
from dualpca.app.cli._session import open_table, prepared
from dualpca.app.tables import profiles, reading, text
from dualpca.app.tables.columns import of_table
from dualpca.app.tables.heads import Given
from dualpca.app.tables.opening import open_text
from dualpca.app.tables.reading import Reading
from dualpca.app.tables.text import CODES, Codes, TableError

WORDS = ["None", "NA", "N/A", "null", "-", "?", "no", "nan"]
OTHERS = ["Freq", "Some", "yes", "Köln", "a, b", "x y", 'say "u"', "III"]


def drawn(seed, n=40):
    """Return a table with levels that look missing, and which of its cells were not measured."""
    rng = np.random.default_rng(seed)
    t = rng.normal(size=n)
    cells, empty = {"who": [f"P{i}" for i in range(n)]}, {}
    for j in range(3):
        levels = [*rng.choice(WORDS, rng.integers(1, 3), replace=False)]
        levels += [*rng.choice(OTHERS, rng.integers(1, 3), replace=False)]
        at = np.digitize(t + rng.normal(size=n), np.linspace(-1, 1, len(levels) - 1))
        cells[f"k{j}"] = [str(levels[i]) for i in at]
    for j in range(2):
        cells[f"x{j}"] = [f"{v:.2f}" for v in t + 0.5 * rng.normal(size=n)]
    for name in [*cells][1:]:
        empty[name] = rng.random(n) < 0.1
        code = "" if name[0] == "k" else rng.choice(["", "NA", "-", "n/a", "#DIV/0!"])
        cells[name] = [code if e else c for c, e in zip(cells[name], empty[name], strict=True)]
    return cells, empty


def as_csv(cells):
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([[*cells], *zip(*cells.values(), strict=True)])
    return out.getvalue()


@pytest.mark.filterwarnings("ignore::dualpca.app.cli._running.NoteWarning")
@pytest.mark.grid
@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("any_kind", [None, False])
def test_no_measured_cell_is_missing_in_thirty_tables(ending, any_kind, tmp_path):
    path = str(tmp_path / f"t.{ending}")
    for seed in range(30):
        cells, empty = drawn(seed)
        if ending == "csv":
            (tmp_path / "t.csv").write_text(as_csv(cells), "utf-8")
        else:
            pl.DataFrame(cells).write_parquet(path)
        table = open_table(path, Reading())
        prep = prepared(table, Choice(), any_kind=any_kind)
        rows = prep.rows(table.frame())
        for name in prep.names:
            own = [name] if name in rows.columns else [f for f in rows.columns if f[:2] == name]
            found = rows.select(pl.col(own).is_null() | pl.col(own).cast(pl.String).eq("NaN"))
            assert found.to_series(0).to_list() == empty[name].tolist(), (seed, name)


def imputed(inside, seed, folder):
    """Fill a table, and return the cells before and after."""
    cells, empty = drawn(seed)
    (folder / "t.csv").write_text(as_csv(cells), "utf-8")
    status, _, said = inside("impute", "t.csv", "-q", 1, cwd=folder)
    assert status == 0, said
    found = list(csv.reader(io.StringIO((folder / "t-filled.csv").read_text("utf-8"))))
    return cells, empty, dict(zip(found[0], zip(*found[1:], strict=True), strict=True)), said


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(1, 30))]
)
def test_no_measured_cell_is_changed_in_thirty_tables(seed, inside, tmp_path):
    cells, empty, filled, said = imputed(inside, seed, tmp_path)
    for name, before in cells.items():
        kept = ~empty.get(name, np.zeros(len(before), dtype=bool))
        assert np.array_equal(np.array(before)[kept], np.array(filled[name])[kept])
        if any(~kept) and f"'{name}'" not in said.split("left out")[-1].split("\n")[0]:
            assert "" not in filled[name]


# --- the rule ------------------------------------------------------------------------------------


SPORT = ["None", "Some", "Freq", "", "Some", "None", "Freq", "Some"] * 5


def survey(**columns):
    """Return a table with a level None, numbers with NA, and some more columns."""
    n = len(SPORT)
    rng = np.random.default_rng(0)
    values = [f"{v:.2f}" for v in rng.normal(size=n)]
    pulse = ["NA" if i % 7 == 0 else str(60 + i) for i in range(n)]
    return {"sport": SPORT, "x": values, "pulse": pulse, **columns}


def seen(cells, *, how=None, kinds=(), folder):
    """Return the preparation of a table for the copula model, its rows, and the notes."""
    (folder / "t.csv").write_text(as_csv(cells), "utf-8")
    choice = Choice(kinds=list(kinds))
    known = {"levels": choice.levels()}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        table = open_table(str(folder / "t.csv"), how or Reading(), known=known)
        prep = prepared(table, choice, any_kind=True)
    return prep, prep.rows(table.frame()), [str(one.message) for one in told]


def test_a_level_is_kept_and_a_code_among_numbers_is_missing_and_both_are_said(tmp_path):
    prep, rows, notes = seen(survey(), folder=tmp_path)
    assert prep.levels == {"sport": ["Freq", "None", "Some"]}
    assert (rows["sport"].null_count(), rows["pulse"].null_count()) == (5, 6)
    assert "'NA' is read as missing: 6 in 'pulse'." in notes
    assert "'None' is kept as a value: 10 in 'sport'. If it means missing, say --na None." in notes


def test_one_note_per_code_names_every_column(tmp_path):
    other = {"arm": ["NA", "left", "right", "left"] * 10, "leg": ["NA", "u", "v", "v"] * 10}
    _, _, notes = seen(survey(age=["NA", "5.5", "7", "8"] * 10, **other), folder=tmp_path)
    (note,) = (one for one in notes if one.startswith("'NA'"))
    assert note == (
        "'NA' is read as missing: 6 in 'pulse', 10 in 'age'; it is kept as a value of text: 10 in "
        "'arm', 10 in 'leg'. If it means missing there too, say --na NA (--na arm=NA for one "
        "column)."
    )


@pytest.mark.parametrize(
    "codes, missing, wanted",
    [
        (Codes(("None",)), 15, ["Freq", "Some"]),
        (Codes(("sport=None",)), 15, ["Freq", "Some"]),
        (Codes(("pulse=None",)), 5, ["Freq", "None", "Some"]),
        (Codes(("None",), ("sport=None",)), 5, ["Freq", "None", "Some"]),
        (Codes(("sport=None",), ("None",)), 15, ["Freq", "Some"]),
        (Codes((), ("None",)), 5, ["Freq", "None", "Some"]),
    ],
)
def test_codes_are_switched_on_and_off_by_column(codes, missing, wanted, tmp_path):
    how = Reading(missing=codes.missing, kept=codes.kept)
    prep, rows, _ = seen(survey(), how=how, folder=tmp_path)
    assert (rows["sport"].null_count(), prep.levels["sport"]) == (missing, wanted)


def test_levels_that_are_listed_are_all_levels(tmp_path):
    cells = survey(grade=["NA", "low", "None", "high"] * 10)
    kinds = ["sport=ordinal:None,Some,Freq", "grade=ordinal:None,low,high"]
    prep, rows, notes = seen(cells, kinds=kinds, folder=tmp_path)
    assert prep.levels == {"sport": ["None", "Some", "Freq"], "grade": ["None", "low", "high"]}
    assert rows["grade"].null_count() == 10
    assert "'NA' is read as missing: 6 in 'pulse', 10 in 'grade'." in notes


def test_a_code_that_is_kept_among_numbers_is_a_level_or_refused(tmp_path):
    cells = survey(kids=["0", "1", "None", "2"] * 10)
    how = Reading(kept=("kids=None",))
    prep, _, _ = seen(cells, how=how, kinds=["kids=nominal"], folder=tmp_path)
    assert prep.levels["kids"] == ["0", "1", "2", "None"]
    prep, _, _ = seen(cells, kinds=["kids=ordinal:None,0,1,2"], folder=tmp_path)
    assert prep.levels["kids"] == ["None", "0", "1", "2"]
    with pytest.raises(TableError, match=r"30 numbers and 10 other entries .* 'None'"):
        seen(cells, how=how, folder=tmp_path)


COLUMNS = {
    "TRUE": (["TRUE", "FALSE", "NA", "TRUE"], ["FALSE", "TRUE"], True),
    "true": (["true", "false", "-", "true"], ["false", "true"], True),
    "bounds": (["<5", "7", "NA", "8.5"], None, True),
    "spaces": ([" 5", "7 ", " NA ", "8.5"], None, True),
    "strand": (["+", "-", ".", "+"], ["+", "-", "."], False),
    "codes only": (["-", "?", "-", "?"], ["-", "?"], False),
    "case": (["none", "None", "u", "v"], ["None", "none", "u", "v"], False),
    "numbers among words": (["1", "NA", "x", "y"], ["1", "NA", "x", "y"], False),
}


@pytest.mark.parametrize("values, levels, gone", COLUMNS.values(), ids=COLUMNS)
def test_what_counts_as_numbers(values, levels, gone, tmp_path):
    prep, rows, _ = seen(survey(v=values * 10), folder=tmp_path)
    assert rows["v"].null_count() == (10 if gone else 0)
    assert prep.levels.get("v") == levels


def test_a_column_of_one_code_is_empty(tmp_path):
    prep, _, notes = seen(survey(v=["NA"] * 40), folder=tmp_path)
    assert "v" not in prep.names and "left out because they have no entries: 'v'." in notes


def test_empty_cells_and_errors_of_excel_are_never_levels(tmp_path):
    _, rows, notes = seen(survey(k=["u", "v", " ", "#N/A"] * 10), folder=tmp_path)
    assert rows["k"].null_count() == 20 and "'#N/A' is read as missing: 10 in 'k'." in notes


@pytest.mark.parametrize("piece", [None, 200])
def test_quotes_tell_a_missing_text_from_the_text_NA(piece, tmp_path, monkeypatch):
    """As R's write.csv does it."""
    n = 40
    lines = ['"","sport","country","pulse"']
    for i in range(n):
        sport = ['"None"', '"Some"', "NA", '"Freq"'][i % 4]
        country = ['"NA"', '"DE"', '"FR"', "NA"][i % 4] if i else '"DE"'
        lines.append(f'"{i + 1}",{sport},{country},{"NA" if i % 5 == 0 else 60 + i}')
    if piece:
        monkeypatch.setattr(reading, "room_for", lambda limit: 1)
        monkeypatch.setattr(reading, "piece_of", lambda kind, room: piece)
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    table = reading.opened(str(tmp_path / "t.csv"))
    frame = pl.concat(list(table.frames()))
    assert table.missing == ("sport=NA",)  # of countries it was in quotes: Namibia
    assert frame["sport"].null_count() == 10 and (frame["country"] == "NA").sum() == 19
    assert table.gone == {"pulse": {"NA": 8}, "sport": {"NA": 10}}
    kept = reading.opened(str(tmp_path / "t.csv"), Reading(kept=("sport=NA",)))
    assert pl.concat(list(kept.frames()))["sport"].null_count() == 0


# --- every command -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("codes")
    (folder / "t.csv").write_text(as_csv(survey()))
    return folder


TOLD = ("'NA' is read as missing: 6 in 'pulse'.", "'None' is kept as a value: 10 in 'sport'.")


def done(inside, *arguments, cwd):
    status, printed, said = inside(*arguments, "--json", cwd=cwd)
    assert status == 0, said
    return json.loads(printed), said


def test_every_command_reads_a_table_by_the_same_rule(place, inside):
    given = ("-m", "copula", "-q", 1, "-o", "m.dpca")
    _, said = done(inside, "fit", "t.csv", *given, cwd=place)
    assert all(words in said for words in TOLD)
    model, metadata = dp.load(place / "m.dpca", return_metadata=True)
    assert metadata["table"]["levels"] == {"sport": ["Freq", "None", "Some"]}
    for command in (
        ("score", "m.dpca", "t.csv"),
        ("transform", "m.dpca", "t.csv", "-o", "z.csv"),
        ("impute", "m.dpca", "t.csv", "-o", "f.csv"),
        ("impute", "t.csv", "-q", 1, "-o", "f.csv"),
        ("select", "t.csv"),
        ("compare", "t.csv", "-m", "ppca", "-q", 1),
    ):
        found, said = done(inside, *command, cwd=place)
        assert all(words in said for words in TOLD), command
        assert command[0] != "impute" or found["filled"] == 11
    session = pytest.importorskip("dualpca.app.explorer.session")
    frame = reading.read(place / "t.csv")
    opened = session.open_session(model, frame, metadata)
    assert np.isnan(opened.X).sum(axis=0).tolist() == [5, 0, 6]


@pytest.mark.slow
def test_a_report_reads_a_table_by_the_same_rule(place, inside):
    done(inside, "fit", "t.csv", "-m", "copula", "-q", 1, "-o", "r.dpca", cwd=place)
    for command in (("report", "r.dpca", "t.csv"), ("report", "t.csv", "-m", "copula", "-q", 1)):
        _, said = done(inside, *command, cwd=place)
        assert all(words in said for words in TOLD), command


def test_what_is_filled_is_told_before(place, inside, monkeypatch):
    from dualpca.app.tables import writing

    def refuse(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing, "target", refuse)
    status, _, said = inside("impute", "t.csv", "-q", 1, cwd=place)
    lines = said.splitlines()
    assert status == 5 and "No space left" in lines[-1]
    assert all(any(words in line for line in lines[:-1]) for words in TOLD)


@pytest.mark.parametrize("option", ["--na", "--not-na"])
def test_codes_of_columns_that_are_not_there_are_refused(option, place, inside):
    for command in (
        ("fit", "t.csv", "-q", 1, "-o", "n.dpca"),
        ("impute", "t.csv"),
        ("select", "t.csv"),
    ):
        status, _, said = inside(*command, option, "nosuch=5", cwd=place)
        assert status == 3 and f"{option} nosuch=5: no column 'nosuch'; there are 'sport'" in said
    assert not (place / "n.dpca").exists()


def test_a_model_remembers_and_a_new_table_cannot_lose_a_level(inside, tmp_path):
    cells = survey(flag=["TRUE", "FALSE", "NA", "TRUE"] * 10)
    (tmp_path / "t.csv").write_text(as_csv(cells))
    given = ("-m", "copula", "-q", 1, "--na", "sport=None", "-o", "m.dpca")
    done(inside, "fit", "t.csv", *given, cwd=tmp_path)
    table = dp.load(tmp_path / "m.dpca", return_metadata=True)[1]["table"]
    assert table["missing"] == ["sport=None", "flag=NA"]
    few = {name: values[:1] for name, values in cells.items()} | {"pulse": ["NA"], "flag": ["NA"]}
    (tmp_path / "one.csv").write_text(as_csv(few))
    found, said = done(inside, "impute", "m.dpca", "one.csv", cwd=tmp_path)
    assert found["filled"] == 3 and "'NA' is read as missing: 1 in 'flag', 1 in 'pulse'." in said
    (tmp_path / "new.csv").write_text(as_csv(survey(flag=["null", "FALSE", "NA", "TRUE"] * 10)))
    status, _, said = inside("impute", "m.dpca", "new.csv", cwd=tmp_path)
    assert status == 3 and "has not seen: 'null'" in said and "--na null" in said
    done(inside, "impute", "m.dpca", "new.csv", "--na", "flag=null", cwd=tmp_path)
    status, _, said = inside("score", "m.dpca", "t.csv", "--not-na", "sport=None", cwd=tmp_path)
    assert status == 3 and "has not seen: 'None'" in said
    status, _, said = inside("score", "m.dpca", "one.csv", "--not-na", "pulse=NA", cwd=tmp_path)
    assert status == 3 and "holds numbers" in said


def test_filled_levels_are_read_back_as_levels(inside, tmp_path):
    """Also where all other text is in quotes, and what is not means missing."""
    lines = ['"sport","x"', *(f'"{s}",{i}' if s else f",{i}" for i, s in enumerate(SPORT))]
    lines = [line.replace('"Freq"', '"None"').replace('"Some"', '"None"') for line in lines[:-1]]
    (tmp_path / "t.csv").write_text("\n".join([*lines, '"Freq",4', '"Freq",9', ""]))
    found, _ = done(inside, "impute", "t.csv", "-q", 1, "-c", "*", cwd=tmp_path)
    assert found["filled"] == 5
    again = reading.opened(str(tmp_path / "t-filled.csv"))
    assert again.gone == {} and again.frame()["sport"].null_count() == 0


# --- dates and long numbers ----------------------------------------------------------------------


def made(data, **options):
    frame = pl.DataFrame(data)
    found = profiles.choose(profiles.profile([frame], frame.columns), **options)
    return found.names, " ".join(found.notes)


DAYS = [int(f"2020{m:02d}{d:02d}") for m in range(1, 5) for d in range(1, 11)]
X = np.random.default_rng(0).normal(size=40)


@pytest.mark.parametrize("size", [7, 40])
@pytest.mark.parametrize(
    "days",
    [
        DAYS,
        DAYS[::-1],
        [*DAYS[5:], *DAYS[:5]],
        [None, *DAYS[1:]],
        [float(v) for v in DAYS],
        [-999, -999, *DAYS[2:]],
    ],
)
def test_whole_numbers_that_are_dates_are_left_out_and_named(days, size):
    frame = pl.DataFrame({"x": X, "visit": days})
    found = profiles.profile(frame.iter_slices(size), frame.columns)
    chosen = profiles.choose(found)
    assert chosen.names == ["x"] and "are dates, such as 20200113" in chosen.notes[0]
    assert "'visit'" in chosen.notes[0] and "--columns" in chosen.notes[0]
    assert profiles.choose(found, asked=True).names == ["x", "visit"]
    kinds = {"visit": profiles.KindAsked("continuous")}
    assert profiles.choose(found, kinds=kinds).names == ["x", "visit"]


@pytest.mark.parametrize(
    "values",
    [
        [20200113] * 40,
        [v + 0.5 for v in DAYS],
        [*DAYS[:-1], 20201399],
        [*DAYS[:-1], 20230229],
        list(np.arange(20200101, 20200141)),
        [v % 10**6 for v in DAYS],
    ],
    ids=["constant", "not whole", "no month", "no day", "counting", "short"],
)
def test_other_whole_numbers_are_no_dates(values):
    names, notes = made({"x": X, "v": values})
    told = "the same number in every row: 'v' (20200113)" if len(set(values)) == 1 else ""
    assert names == ["x", "v"] and notes.partition(";")[0] == told


def test_numbers_that_lose_digits_are_named_and_tell_rows_apart():
    big = [2**53 + 2 * i + 1 for i in range(40)]
    names, notes = made({"x": X, "v": big})
    assert names == ["x", "v"] and "2^53 lose their last digits" in notes
    assert f"'v' ({2**53 + 1})" in notes
    names, notes = made({"x": X, "id": [2**53 + i for i in range(40)]})  # equal as float64
    assert names == ["x"] and "'id' identifies rows" in notes
    assert made({"x": X, "v": [2**53 + 2 * i for i in range(40)]}) == (["x", "v"], "")


def test_digits_beyond_int64_stay_in_the_table(tmp_path, inside):
    numbers = [str(10**20 + 7 * i) for i in range(40)]
    (tmp_path / "t.csv").write_text(as_csv(survey(v=numbers, id=numbers)))
    frame = reading.read(tmp_path / "t.csv")
    assert frame["v"].to_list() == frame["id"].to_list() == numbers
    _, said = done(inside, "impute", "t.csv", "-q", 1, cwd=tmp_path)
    assert (
        "'id' identifies rows" in said
        and f"2^53 lose their last digits in a model: 'v' ({10**20 + 7}" in said
    )
    found = list(csv.DictReader(io.StringIO((tmp_path / "t-filled.csv").read_text())))
    assert [row["v"] for row in found] == numbers


def test_long_numbers_keep_their_digits_where_others_are_filled(tmp_path, inside):
    values = [None if i == 3 else 2**60 + i for i in range(40)]
    pl.DataFrame({"x": X, "y": X[::-1] + X, "v": values}).write_parquet(tmp_path / "t.parquet")
    done(inside, "impute", "t.parquet", "-q", 1, "-m", "ppca", cwd=tmp_path)
    found = pl.read_parquet(tmp_path / "t-filled.parquet")["v"]
    assert found.dtype == pl.Int64
    assert [v for i, v in enumerate(found) if i != 3] == [v for v in values if v is not None]


# --- the reader and Python's csv module ----------------------------------------------------------

CELLS = ["", " ", "1", "-1.5", "1e3", "NA", "None", 'a"b', '"', '""', '"q"', "x,y", "x;y", "l\nm"]
CELLS += ["l\r\nm", " pad ", "é", "'q'", "\t", "#c", "true", "TRUE", "<5", "2020-01-31", "#N/A"]
NAMES = ["a", "b c", 'q"r', '"q"', "x,y", "x;y", "l\nm", "größe", " pad", "'q'", "1", "a|b", '""']


def written(rng):
    """Return the bytes of a table, how they are written, and its rows by Python's csv module."""
    width, height = rng.integers(1, 5), rng.integers(1, 6)
    end = str(rng.choice(["\n", "\r\n", "\r"]))
    separator = str(rng.choice([",", ";", "\t", "|"]))
    decimal = "," if separator == ";" and rng.random() < 0.7 else "."
    cells = [cell for cell in CELLS if end != "\r" or "\n" not in cell]
    rows = [list(rng.choice([n for n in NAMES if "\n" not in n or end != "\r"], width, False))]
    for _ in range(height):
        rows.append(list(rng.choice(cells, width)))
    for j in range(width):
        if rng.random() < 0.4:
            for row in rows[1:]:
                row[j] = str(rng.choice(["1.5", "-2.25", "7", "", "NA"])).replace(".", decimal)
    quoting = rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    out = io.StringIO()
    csv.writer(out, delimiter=separator, lineterminator=end, quoting=int(quoting)).writerows(rows)
    words = out.getvalue()
    if width > 1:  # where there is one column a blank line is a row
        words = words.removesuffix(end) if rng.random() < 0.3 else words + end * rng.integers(0, 3)
    encoding = str(rng.choice(["utf-8", "utf-8-sig", "utf-16", "latin-1", "cp1252"]))
    how = {"encoding": encoding.removesuffix("-sig"), "separator": separator, "decimal": decimal}
    by_csv = list(csv.reader(io.StringIO(words, newline=""), delimiter=separator))
    by_csv = [row or [""] for row in by_csv if row or width == 1]
    return words.encode(encoding), how, by_csv


def value_of(cell, decimal):
    """Return the number that a cell is, or None."""
    if decimal == "," and "." in cell:
        return None
    try:
        return float(cell.strip().replace(decimal, "."))
    except ValueError:
        return None


def compare(seed, piece):
    rng = np.random.default_rng(seed)
    data, how, (names, *rows) = written(rng)
    size = -1 if piece is None else piece

    def opened(verbatim=()):
        table = open_text(
            "t", lambda: io.BytesIO(data), verbatim=verbatim, given=Given(header=1), **how
        )
        scan = table.scanned(size)
        parts = [table.parsed(part, scan) for part in table.checked(size)]
        return table, pl.concat(parts)

    table, frame = opened(names)
    assert table.names == names, seed
    assert [[cell or "" for cell in row] for row in frame.rows()] == rows, seed
    _, typed = opened()
    for j, column in enumerate(typed.iter_columns()):
        cells = [row[j] for row in rows]
        codes = [cell.strip() in text.MISSING for cell in cells]
        if column.dtype.is_numeric():
            wanted = [
                None if c else value_of(x, how["decimal"])
                for x, c in zip(cells, codes, strict=True)
            ]
            assert column.to_list() == wanted, seed
            assert any(v is not None for v in wanted)
        elif column.dtype == pl.String:
            rest = [x for x, c in zip(cells, codes, strict=True) if not c]
            assert not rest or any(value_of(x, how["decimal"]) is None for x in rest), seed


@pytest.mark.parametrize(
    "seeds, piece",
    [
        (range(40), None),
        (range(15), 16),
        pytest.param(range(40, 2000), None, marks=pytest.mark.slow),
        pytest.param(range(15, 500), 16, marks=pytest.mark.slow),
    ],
)
def test_the_reader_agrees_with_pythons_csv_module(seeds, piece):
    for seed in seeds:
        compare(seed, piece)


ODD = {
    "inches": 'a,b\n5" pipe,2\n6" pipe,3\n',
    "one inch": 'a,b\n5" pipe,2\n6 pipe,3\n',
    "after quotes": 'a,b\n"5" pipe,2\n6,3\n',
    "open": 'a,b\n"5 pipe,2\n6,3\n',
    "lines of old Macs among others": "a,b\n1,2\r3,4\n5,6\n",
    "twice": "a,b\r\r\n1,2\r\r\n",
    "points in a table with commas": "a;b\n1,5;1.24\n2,5;2.35\n",
}


@pytest.mark.parametrize("words", ODD.values(), ids=ODD)
def test_odd_files_are_read_as_by_csv_or_refused(words):
    separator = ";" if ";" in words else ","
    decimal = "," if separator == ";" else None
    wanted = list(csv.reader(io.StringIO(words, newline=""), delimiter=separator))
    try:
        frame, _ = open_text(
            "t", lambda: io.BytesIO(words.encode()), "csv", "utf-8", separator, decimal
        ).whole()
    except TableError as error:
        assert "t" in str(error)
    else:
        found = [[str(cell) for cell in row] for row in frame.rows()]
        assert found == [[cell.replace(",", ".") for cell in row] for row in wanted[1:]]
        assert decimal is None or frame.schema["b"] == pl.String


def test_tables_with_quotes_inside_of_cells_are_not_filled(inside, tmp_path):
    lines = ["a,b,c", *(f'{i}" pipe,{i % 7},{(3 * i) % 11}' for i in range(40)), '9" pipe,,4', ""]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    status, _, said = inside("impute", "t.csv", "-q", 1, "-x", "a", cwd=tmp_path)
    assert status == 3 and "has quotes inside of cells" in said
    assert not (tmp_path / "t-filled.csv").exists()


def test_headers_with_quotes_are_the_same_in_every_output(inside, tmp_path):
    rng = np.random.default_rng(0)
    cells = {f'q"{j}': [f"{v:.2f}" for v in rng.normal(size=30)] for j in range(3)}
    cells['q"0'][4] = ""
    (tmp_path / "t.csv").write_text(as_csv(cells))
    given = ("impute", "t.csv", "-q", 1, "-m", "ppca", "--std", "s.csv", "-o", "f.csv")
    done(inside, *given, cwd=tmp_path)
    for name in ("s.csv", "f.csv"):
        assert next(csv.reader(io.StringIO((tmp_path / name).read_text()))) == [*cells]


def test_line_ends_of_old_macs_come_back(inside, tmp_path):
    data = as_csv(survey()).replace("\n", "\r").encode()
    (tmp_path / "t.csv").write_bytes(data)
    found, _ = done(inside, "impute", "t.csv", "-q", 1, cwd=tmp_path)
    filled = (tmp_path / "t-filled.csv").read_bytes()
    assert found["filled"] == 11 and b"\n" not in filled
    assert filled.count(b"\r") == data.count(b"\r")


def test_the_preparation_comes_back_from_a_file(tmp_path):
    prep, _, _ = seen(survey(flag=["TRUE", "FALSE", "NA", "TRUE"] * 10), folder=tmp_path)
    assert prep.missing == ("flag=NA",) and of_table(prep.table(), []) == prep
    assert all(code not in CODES for code in text.NEVER)
