"""Text that spreadsheets would run: written as it came, or with an apostrophe before it."""

import csv
import io
from contextlib import closing

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dualpca as dp
from dualpca.app.explorer.session import exported
from dualpca.app.live.window import Window
from dualpca.app.tables import writing
from tests.app import explorer_cases, live_cases

ATTACKS = ["=cmd|' /C calc'!A0", "+A1*2", "-A1", "@SUM(A1:A9)", "\t=1+1", ' =HYPERLINK("a")', "＝1"]
HARMLESS = ["", "a=b", "-", "-5", "+3.5e-2", "-1,234.5", "- 5 %", "+49 176 555", "R&D", "'=1+1"]


@pytest.mark.parametrize("cell", ATTACKS)
def test_text_that_begins_like_a_formula_gets_an_apostrophe(cell):
    assert writing.is_formula(cell) and writing.defused(cell) == f"'{cell}"
    field = writing.quoted(f"{cell},", ",")
    assert writing.defused_field(field) == writing.quoted(f"'{cell},", ",")


@pytest.mark.parametrize("cell", HARMLESS)
def test_numbers_and_other_text_stay_as_they_are(cell):
    assert not writing.is_formula(cell) and writing.defused(cell) == cell


@given(cell=st.text(st.sampled_from("=+-@ \t\"',;0a\n"), max_size=6))
def test_no_cell_is_a_formula_afterwards_whichever_way_it_is_written(cell):
    raw = '"' + cell.replace('"', '""') + '"'
    [[read]] = csv.reader(io.StringIO(writing.defused_field(raw), newline=""))
    assert not writing.is_formula(read) and read in (cell, f"'{cell}")
    frame = writing.without_formulas(
        pl.DataFrame({"a": [cell, None], "number": [-1.5, 2]}).rename({"a": cell})
    )
    assert frame.columns[0] == read and frame.to_series(0).to_list() == [read, None]
    assert frame["number"].to_list() == [-1.5, 2]


def test_columns_of_levels_are_text_and_other_columns_keep_their_types():
    when = pl.datetime_range(pl.datetime(2020, 1, 1), pl.datetime(2020, 1, 2), eager=True)
    frame = pl.DataFrame(
        {
            "level": pl.Series(["=a", "b"], dtype=pl.Categorical),
            "fixed": pl.Series(["=a", "b"], dtype=pl.Enum(["=a", "b"])),
            "plain": pl.Series(["a", "b"], dtype=pl.Categorical),
            "when": when,
        }
    )
    found = writing.without_formulas(frame)
    assert found["level"].to_list() == found["fixed"].to_list() == ["'=a", "b"]
    assert found["plain"].dtype == pl.Categorical and found["when"].equals(frame["when"])


# --- commands ------------------------------------------------------------------------------------

EVIL = "=cmd|' /C calc'!A0"
ROWS = 40


@pytest.fixture(scope="module")
def table():
    """A table whose identifiers, levels and one name are formulas."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=ROWS)
    numbers = np.round(z[:, None] + 0.3 * rng.normal(size=(ROWS, 3)), 3)
    words = ["=low", "@high"]
    lines = ['who,@a,b,c,"level"']
    for i, row in enumerate(numbers):
        cells = [f"{x:.3f}" for x in row]
        cells[i % 3] = "" if i % 5 == 0 else cells[i % 3]
        level = "" if i % 7 == 0 else words[int(z[i] > 0)]
        lines.append(",".join([f'"{EVIL} {i}"', *cells, level]))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def place(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("formulas")
    (folder / "t.csv").write_text(table)
    frame = pl.read_csv(folder / "t.csv")
    frame.write_parquet(folder / "t.parquet")
    model = dp.PPCA(1, random_state=0).fit(frame.select("@a", "b", "c"))
    entry = {"columns": ["@a", "b", "c"], "identifier": "who"}
    dp.save(model, folder / "m.dpca", metadata={"table": entry})
    return folder


def cells_of(text):
    return [cell for line in csv.reader(io.StringIO(text)) for cell in line]


@pytest.mark.parametrize("source", ["t.csv", "t.parquet"])
@pytest.mark.parametrize("command", ["transform", "score", "denoise", "impute"])
def test_tables_of_commands_are_as_they_came_or_defused(command, source, place, inside, tmp_path):
    def written(*more):
        out = tmp_path / "out.csv"
        status, _, said = inside(command, "m.dpca", source, "-o", out, *more, cwd=place)
        assert status == 0, said
        return out.read_text()

    plain, safe = written(), written("--defuse")
    assert any(cell.startswith(EVIL) for cell in cells_of(plain))
    assert [c for c in cells_of(safe) if writing.is_formula(c)] == []
    assert [writing.defused(c) for c in cells_of(plain)] == cells_of(safe)


def test_impute_changes_nothing_else_and_without_the_option_not_a_byte(
    place, table, inside, tmp_path
):
    complete = "\n".join(line for line in table.split("\n") if ",," not in line)
    (tmp_path / "c.csv").write_text(complete)
    for more, wanted in (((), complete), (("--defuse",), None)):
        done = inside("impute", place / "m.dpca", "c.csv", "-o", "f.csv", *more, cwd=tmp_path)
        assert done[0] == 0, done
        found = (tmp_path / "f.csv").read_text()
        if wanted is not None:
            assert found == wanted
    safe = complete.replace(f'"{EVIL}', f"\"'{EVIL}").replace("@a", "'@a")
    assert found == safe.replace(",=low", ",'=low").replace(",@high", ",'@high")


def test_levels_that_are_filled_in_and_drawn_are_defused_too(place, inside, tmp_path):
    more = ("-m", "copula", "-q", 1, "--kind", "level=nominal", "--exclude", "who", "--defuse")
    beside = ("--probabilities", "p.csv", "--intervals", "i.csv")
    done = inside("impute", place / "t.csv", "-o", "f.csv", *beside, *more, cwd=tmp_path)
    assert done[0] == 0, done
    for name in ("f.csv", "p.csv", "i.csv"):
        cells = cells_of((tmp_path / name).read_text())
        assert not any(map(writing.is_formula, cells)), name
    assert {"'=low", "'@high"} <= set(cells_of((tmp_path / "p.csv").read_text()))
    fit = ("fit", place / "t.csv", "-o", "c.dpca", *more[:-1])
    assert inside(*fit, cwd=tmp_path)[0] == 0
    done = inside("sample", "c.dpca", "-o", "s.csv", "-n", 20, "--defuse", cwd=tmp_path)
    assert done[0] == 0, done
    cells = cells_of((tmp_path / "s.csv").read_text())
    assert "'=low" in cells and not any(map(writing.is_formula, cells))


def test_the_explorers_export_is_defused_if_asked():
    frame = explorer_cases.iris().with_columns(who=pl.format("=cmd {}", pl.col("who")))
    found = []
    for defuse in (False, True):
        session = explorer_cases.open_session(
            explorer_cases.fitted(dp.PPCA(2)), frame, id_column="who", defuse=defuse
        )
        client = explorer_cases.Client(session)
        answer = client.post("/api/export", {"rows": [0, 3], "component": 0})
        assert answer.text == exported(session, [0, 3], 0).write_csv()
        found.append(cells_of(answer.text))
    assert "=cmd iris-3" in found[0] and "'=cmd iris-3" in found[1]
    assert [writing.defused(cell) for cell in found[0]] == found[1]


def test_the_log_and_the_table_of_a_watch_are_defused_if_asked(tmp_path):
    """Times are text that comes with the rows."""
    fitted = live_cases.monitor()
    for defuse in (False, True):
        path, log = tmp_path / f"{defuse}.csv", tmp_path / f"{defuse}.log.csv"
        lines = live_cases.lines_of(live_cases.rows_of(5, 3), time=False)
        text = [f'"{EVIL}",{line}' for line in lines]
        path.write_text(live_cases.header() + "".join(text))
        heard = live_cases.Heard(fitted, path, log=log)
        heard.watch.defuse = defuse
        with closing(heard.watch):
            window = Window(heard.watch, "m.dpca", "a.csv")
            heard.go_on()
        start = "'" if defuse else ""
        for table in (log.read_text(), window.table(10)):
            assert f"\n5,{start}{EVIL}," in table
            assert any(map(writing.is_formula, cells_of(table))) is not defuse
