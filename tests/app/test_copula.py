"""Columns of any kind on the command line, in the report, the explorer and the comparison."""

import csv
import io
import json
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

import dualpca as dp
from dualpca.app import report
from dualpca.app.cli import _compare, _fit
from dualpca.app.cli._running import Choice, UsageError
from dualpca.app.explorer.lenses import MixedLens
from dualpca.app.explorer.session import open_session
from dualpca.app.report import mixed
from dualpca.app.report.subject import subject_of
from dualpca.app.tables import columns, profiles
from dualpca.app.tables.columns import Preparation, of_table
from dualpca.app.tables.reading import read
from dualpca.app.tables.text import TableError
from tests.app.explorer_cases import Client

N = 120
ORDER = ("mild", "moderate", "severe")
HEAD = ("patient", "age", "weight", "ward", "grade", "smoker", "crp", "note")


def clinic(n=N, seed=0):
    """Return a table as a clinic writes it: ids, codes, bounds, grades, yes and no, remarks."""
    rng = np.random.default_rng(seed)
    t = rng.normal(size=(n, 2))
    noise = rng.normal(size=(n, 6))
    age = np.round(55 + 14 * t[:, 1] + 5 * noise[:, 0]).astype(int)
    weight = 75 + 9 * t[:, 1] + 5 * noise[:, 1]
    score = np.stack([0.7 * noise[:, 2], t[:, 0] + 0.5 * noise[:, 3], t[:, 1]], axis=1)
    ward = np.array(["surgery", "ICU", "geriatrics"])[score.argmax(axis=1)]
    grade = np.array(ORDER)[np.digitize(t[:, 0] + 0.4 * noise[:, 4], [-0.5, 0.6])]
    crp = np.exp(2.5 + 1.2 * t[:, 0] + 0.5 * noise[:, 5])
    smoker = np.where(t[:, 0] + noise[:, 2] > 0, "yes", "no")
    rows = [
        [
            *(f"P{k:03d}", str(age[i]), f"{weight[i]:.1f}", ward[i], grade[i], smoker[i]),
            *("<5" if crp[i] < 5 else f"{crp[i]:.1f}", f'seen {k} times, "ok"'),
        ]
        for i, k in enumerate(rng.permutation(n))
    ]
    for i, row in enumerate(rows):
        for j in range(1, 7):
            if rng.random() < 0.1:
                row[j] = "-999" if j == 1 else ("", "NA")[i % 2]
    return rows


def written(path, rows, separator=","):
    out = io.StringIO()
    table = csv.writer(out, delimiter=separator, lineterminator="\n")
    table.writerows([HEAD, *rows])
    path.write_text(out.getvalue())
    return path


OPTIONS = ("--na=-999,NA", "-q", 2)
GRADES = ("--kind", f"grade=ordinal:{','.join(ORDER)}")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The clinic's table, and a model of it."""
    folder = tmp_path_factory.mktemp("copula")
    written(folder / "clinic.csv", clinic())
    words = ("fit", "clinic.csv", "-m", "copula", *OPTIONS, *GRADES, "--json")
    command = [sys.executable, "-m", "dualpca", *map(str, words)]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    (folder / "fit.json").write_text(found.stdout)
    return folder


def done(inside, *arguments, cwd):
    status, printed, said = inside(*arguments, "--json", cwd=cwd)
    assert status == 0, said
    return json.loads(printed), said


# --- kinds that are given, and columns for a model of any kind ---------------------------------


@pytest.mark.parametrize(
    "words, kind, more",
    [
        ("a=nominal", "nominal", ((), None, None)),
        ("a=b=count", "count", ((), None, None)),
        ("g=ordinal:low,high", "ordinal", (("low", "high"), None, None)),
        ("c=censored:below=5,above=1e3", "censored", ((), 5.0, 1000.0)),
    ],
)
def test_kinds_are_read(words, kind, more):
    (found,) = Choice(kinds=[words]).asked().items()
    assert found[0] == words.rpartition(f"={kind}")[0]
    assert found[1] == (kind, *more)


@pytest.mark.parametrize(
    "words",
    ["a", "a=", "a=thing", "a=count:1", "g=ordinal:low", "g=ordinal:a,a", "c=censored:below=x"],
)
def test_kinds_that_are_none_are_refused(words):
    with pytest.raises(UsageError, match=r"expected COLUMN=KIND|after a colon"):
        Choice(kinds=[words]).asked()
    with pytest.raises(UsageError, match="has a kind already"):
        Choice(kinds=["a=count", "a=nominal"]).asked()


def chosen(frame, *kinds):
    found = profiles.profile([frame], frame.columns)
    return profiles.choose(found, kinds=Choice(kinds=list(kinds)).asked())


def test_text_keeps_its_levels_and_bounds_are_used():
    frame = pl.DataFrame(
        {"k": ["b", "a", "b", None], "c": ["<5", "7", "8.5", "NA"], "x": [1.5, 2.0, 3.0, 4.0]}
    )
    found = chosen(frame)
    assert (found.names, found.levels) == (["k", "c", "x"], {"k": ["a", "b"]})
    assert (found.dropped, found.bounded) == ({}, ["c"])
    assert "used as bounds: 1 in 'c'" in found.notes[0]
    prep = Preparation(tuple(found.names), found.levels, kinds={})
    assert prep.features == ["k", "c", "x"]
    rows = prep.rows(frame)
    assert rows.rows() == [("b", "<5", 1.5), ("a", "7", 2.0), ("b", "8.5", 3.0), (None, None, 4.0)]
    assert prep.rows(frame.with_columns(x=pl.Series([1.0, 2, 3, 4])))["x"].dtype == pl.Int64
    again = of_table(prep.table(), prep.features)
    assert again == prep


@pytest.mark.parametrize(
    "kind, words",
    [
        ("k=ordinal", "no order by itself.*--kind k=ordinal:a,b,c"),
        ("k=ordinal:a,b", "lacks 'c'"),
        ("k=binary", "has 3 values.*It may be nominal"),
        ("k=continuous", "holds text, such as 'a'"),
        ("c=count", "has bounds such as <50 in 1 cells"),
        ("x=censored", "has no bounds.*censored:below=50"),
    ],
)
def test_kinds_that_do_not_fit_are_explained(kind, words):
    frame = pl.DataFrame(
        {"k": ["a", "b", "c", "a"], "c": ["<5", "7", "8", "9"], "x": [1.5, 2.5, 3.5, 2.5]}
    )
    with pytest.raises(TableError, match=words):
        chosen(frame, kind)


def test_an_order_that_is_given_is_kept():
    frame = pl.DataFrame({"g": ["low", "high", "low"], "x": [1.5, 2.5, 3.5]})
    assert chosen(frame, "g=ordinal:low,middle,high").levels == {"g": ["low", "high"]}


def test_words_that_mean_nothing_are_pointed_out():
    found = chosen(pl.DataFrame({"k": ["a", "Unknown", "b", "a", "Unknown", "b"]}))
    assert found.notes == [
        "'Unknown' is kept as a value: 2 in 'k'. If it means missing, say --na Unknown."
    ]


def test_numbers_with_units_among_numbers_are_told():
    with pytest.raises(
        TableError, match="3 numbers and 1 other entry with units: write all in one"
    ):
        chosen(pl.DataFrame({"w": ["70", "72.5 kg", "65", "81"]}))


def test_levels_that_the_fit_has_not_seen_are_named_with_their_row():
    prep = Preparation(("k",), {"k": ("a", "b")}, kinds={"k": "binary"}, identifier="who")
    frame = pl.DataFrame({"k": ["a", "z"], "who": ["P1", "P2"]})
    with pytest.raises(TableError, match=r"'k'.*'z' \(the first in row 'P2'\).*--na z"):
        prep.rows(frame)
    with pytest.raises(TableError, match=r"the first in row 12\)"):
        prep.rows(frame.drop("who"), 10)


def test_codes_of_one_column_leave_the_others_alone(inside, tmp_path):
    lines = ["age,score,who=x", "50,-9,-9", "-9,3.5,2", "60,4.5,3", "-8,-9,4.5", "71,2.5,1"]
    (tmp_path / "t.csv").write_text("\n".join([*lines, ""]))
    arguments = ("fit", "t.csv", "-q", 1, "--na", "age=-9,-8", "--na", "who=x=-9")
    done(inside, *arguments, cwd=tmp_path)
    model, metadata = dp.load(tmp_path / "t.dpca", return_metadata=True)
    assert metadata["table"]["missing"] == ["age=-9", "age=-8", "who=x=-9"]
    assert model.mean_ == pytest.approx([181 / 3, -7.5 / 5, 10.5 / 4], rel=0.3)
    found, _ = done(inside, "impute", "t.dpca", "t.csv", cwd=tmp_path)
    assert found["filled"] == 3


# --- the commands ------------------------------------------------------------------------------


def test_fit_says_which_kinds_it_used(place, inside, tmp_path):
    found = json.loads((place / "fit.json").read_text())
    assert (found["model"], found["n_components"]) == ("CopulaPPCA", 2)
    assert found["kinds"] == {
        "age": "count",
        "weight": "continuous",
        "ward": "nominal",
        "grade": "ordinal",
        "smoker": "binary",
        "crp": "censored",
    }
    model, metadata = dp.load(place / "clinic.dpca", return_metadata=True)
    assert model.levels_["grade"] == list(ORDER)
    assert metadata["table"]["kinds"] == found["kinds"]
    assert metadata["table"]["identifier"] == "patient"
    _, printed, _ = inside("inspect", "clinic.dpca", cwd=place)
    assert "kinds: count age; continuous weight; nominal ward; ordinal grade" in printed
    assert "levels of grade: mild, moderate, severe" in printed


@pytest.mark.parametrize(
    "arguments, status, words",
    [
        (
            ("fit", "clinic.csv", "-m", "fa", "--kind", "ward=nominal"),
            2,
            "--kind is for the model copula",
        ),
        (("select", "clinic.csv", "--kind", "ward=nominal"), 2, "--kind is for the model copula"),
        (("fit", "clinic.csv", "-m", "copula", "--one-hot", "ward"), 2, "--kind ward=nominal"),
        (("fit", "clinic.csv", "-m", "copula", "--standardize"), 2, "no units to scale"),
        (("fit", "clinic.csv", "-m", "copula", "--kind", "wart=count"), 3, "no such column"),
        (("impute", "clinic.dpca", "clinic.csv", "-m", "copula"), 2, "is fitted"),
        (("impute", "clinic.dpca", "clinic.csv", "--kind", "ward=nominal"), 2, "is fitted"),
        (("impute", "clinic.csv", "-m", "kpca"), 2, "one of ppca, copula"),
        (
            ("impute", "clinic.dpca", "clinic.csv", "--std", "s.csv", "-o", "o.csv"),
            2,
            "Use --intervals for ranges, and --probabilities for categories",
        ),
        (
            ("impute", "clinic.csv", "--draws", 2, "--intervals", "s.csv", "-o", "o.csv"),
            2,
            "--intervals and --draws exclude each other",
        ),
        (("impute", "clinic.csv", "--level", 2, "-o", "o.csv"), 2, "--level 2"),
        (("denoise", "clinic.dpca", "clinic.csv", "-o", "o.csv"), 1, "cannot denoise"),
    ],
)
def test_options_that_do_not_apply_are_refused_in_words(arguments, status, words, place, inside):
    found, _, said = inside(*arguments, cwd=place)
    assert found == status and words in said, said
    assert not (place / "o.csv").exists() and not (place / "s.csv").exists()


def table_of(path):
    return list(csv.reader(path.read_text().splitlines()))


def test_impute_chooses_the_copula_and_keeps_what_was_measured(place, inside, tmp_path):
    arguments = ("impute", place / "clinic.csv", *OPTIONS, *GRADES, "-o", "o.csv")
    found, said = done(inside, *arguments, cwd=tmp_path)
    assert (
        "so CopulaPPCA was fitted" in said and "because the table has categories or bounds" in said
    )
    assert "-m ppca" in said and "kinds of the columns: count age" in said
    before, after = table_of(place / "clinic.csv"), table_of(tmp_path / "o.csv")
    gone = 0
    for old, new in zip(before[1:], after[1:], strict=True):
        for name, a, b in zip(HEAD, old, new, strict=True):
            if a in ("", "NA", "-999"):
                gone += 1
                assert b not in ("", "NA", "-999")
                if name in ("ward", "grade", "smoker"):
                    assert b in {row[HEAD.index(name)] for row in before[1:]}
                if name == "age":
                    assert b == str(int(b))
            else:
                assert a == b, name
    assert found["filled"] == gone > 20


def test_impute_without_options_fills_sums_by_regressions(inside, tmp_path):
    """A copula by its name, or of so many components, is without their help, as in `Imputer`."""
    rng = np.random.default_rng(3)
    a, b = rng.gamma(1.0, 5.0, size=(2, 80)).round(2)
    lines = [
        f"{x},{y},{'' if i % 8 == 0 else round(x + y, 2)},{'big' if x > y else 'small'}"
        for i, (x, y) in enumerate(zip(a, b, strict=True))
    ]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,sum,size", *lines, ""]))
    errors = []
    for how in ((), ("-m", "copula"), ("-q", 2)):
        done(inside, "impute", "t.csv", *how, "-o", "o.csv", "--force", cwd=tmp_path)
        filled = np.array([float(row[2]) for row in table_of(tmp_path / "o.csv")[1:]])
        errors.append(np.abs(filled - a - b)[::8].mean())
    assert errors[0] < 0.5 * min(errors[1:])


def test_impute_chooses_probabilistic_pca_for_numbers(inside, tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{a:.2f},{a + b:.2f}" for a, b in rng.normal(size=(40, 2))]
    rows[3] = "NA,0.5"
    (tmp_path / "t.csv").write_text("\n".join(["a,b", *rows, ""]))
    _, said = done(inside, "impute", "t.csv", cwd=tmp_path)
    assert "PPCA was fitted" in said and "Copula" not in said
    rows[5] = "<0.1,0.3"
    (tmp_path / "t.csv").write_text("\n".join(["a,b", *rows, ""]))
    _, said = done(inside, "impute", "t.csv", "-q", 1, cwd=tmp_path)
    assert "CopulaPPCA was fitted" in said
    assert (tmp_path / "t-filled.csv").read_text().splitlines()[6] == "<0.1,0.3"
    _, said = done(inside, "impute", "t.csv", "-m", "ppca", "-q", 1, cwd=tmp_path)
    assert "no model file was given, so PPCA was fitted" in said
    assert float((tmp_path / "t-filled.csv").read_text().splitlines()[6].split(",")[0]) <= 0.1


def test_ranges_and_probabilities_have_a_line_per_filled_cell(place, inside, tmp_path):
    files = (place / "clinic.dpca", place / "clinic.csv")
    extra = ("--intervals", "ends.csv", "--probabilities", "odds.csv", "--level", 0.8)
    found, _ = done(inside, "impute", *files, *extra, "-o", "o.csv", cwd=tmp_path)
    ends, odds = (pl.read_csv(tmp_path / name) for name in ("ends.csv", "odds.csv"))
    assert ends.columns == ["row", "column", "value", "low", "high"]
    assert ends.height == found["filled"]
    names = table_of(place / "clinic.csv")
    filled = {row[0]: row for row in table_of(tmp_path / "o.csv")}
    for row, column, value, low, high in ends.iter_rows():
        assert filled[row][HEAD.index(column)] == value
        if column in ("age", "weight"):
            assert float(low) <= float(value) <= float(high)
        if column == "ward":
            assert low is None and high is None
    assert {row[0] for row in names[1:]} >= set(ends["row"])
    assert set(odds["column"]) == {"ward", "grade", "smoker"}
    sums = odds.group_by("row", "column").agg(pl.col("probability").sum())
    assert np.allclose(sums["probability"].to_numpy(), 1)
    best = odds.sort("probability").group_by("row", "column").last()
    nominal = best.filter(pl.col("column") == "ward")
    assert all(filled[row][3] == level for row, level in nominal.select("row", "level").rows())


def test_ranges_of_probabilistic_pca(inside, tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{a:.2f},{a + 0.1 * b:.2f}" for a, b in rng.normal(size=(40, 2))]
    rows[3] = "NA,0.5"
    (tmp_path / "t.csv").write_text("\n".join(["a,b", *rows, ""]))
    done(inside, "impute", "t.csv", "--intervals", "e.csv", "--std", "s.csv", cwd=tmp_path)
    row, column, value, low, high = pl.read_csv(tmp_path / "e.csv").row(0)
    std = pl.read_csv(tmp_path / "s.csv")["a"][3]
    assert (row, column) == (4, "a")
    assert high - value == pytest.approx(1.645 * std, rel=0.01)
    assert value - low == pytest.approx(1.645 * std, rel=0.01)


def test_draws_differ_and_stack(place, inside, tmp_path):
    files = (place / "clinic.dpca", place / "clinic.csv")
    done(inside, "impute", *files, "--draws", 2, "-o", "o.csv", cwd=tmp_path)
    rows = table_of(tmp_path / "o.csv")
    assert rows[0] == ["draw", *HEAD] and len(rows) == 2 * N + 1
    assert [row[0] for row in rows[1:]] == ["1"] * N + ["2"] * N
    assert [row[1:] for row in rows[1 : N + 1]] != [row[1:] for row in rows[N + 1 :]]


def test_decimal_commas_stay(inside, tmp_path):
    rows = clinic()
    for row in rows:
        row[2], row[6] = row[2].replace(".", ","), row[6].replace(".", ",")
    rows[0][6], rows[1][2] = "", ""
    written(tmp_path / "t.csv", rows, ";")
    done(inside, "impute", "t.csv", "--na=-999,NA", "-q", 1, cwd=tmp_path)
    lines = (tmp_path / "t-filled.csv").read_text().splitlines()
    found = list(csv.reader(lines, delimiter=";"))
    assert "." not in found[1][6] + found[2][2]


def test_types_of_other_formats_stay(inside, tmp_path):
    frame = read(written(tmp_path / "t.csv", clinic()))
    frame = frame.with_columns(
        pl.col("ward").cast(pl.Categorical),
        smoker=pl.when(pl.col("smoker") == "yes")
        .then(True)
        .when(pl.col("smoker") == "no")
        .then(False),
        age=pl.col("age").replace(-999, None),
    )
    frame.write_parquet(tmp_path / "t.parquet")
    done(inside, "impute", "t.parquet", "-q", 1, cwd=tmp_path)
    found = pl.read_parquet(tmp_path / "t-filled.parquet")
    assert found.schema == frame.schema
    assert found.drop("note", "patient").null_count().sum_horizontal()[0] == 0
    done(inside, "impute", "t.parquet", "-q", 1, "-m", "ppca", "-o", "o.csv", cwd=tmp_path)
    ages = pl.read_csv(tmp_path / "o.csv", schema_overrides={"age": pl.String})["age"]
    known = frame["age"].is_not_null()
    assert ages.filter(known).to_list() == [str(age) for age in frame["age"].drop_nulls()]


def test_other_commands_work_with_the_model(place, inside, tmp_path):
    files = (place / "clinic.dpca", place / "clinic.csv")
    found, _ = done(inside, "transform", *files, "-o", "t.csv", cwd=tmp_path)
    assert found["columns"] == ["patient", "copulappca0", "copulappca1"]
    found, _ = done(inside, "score", *files, "-o", "s.csv", cwd=tmp_path)
    assert "mean_log_likelihood_ratio" in found and found["n_outliers"] < N / 5
    assert "log_likelihood_ratio" in pl.read_csv(tmp_path / "s.csv").columns
    _, printed, _ = inside("score", *files, cwd=tmp_path)
    assert "mean log-likelihood relative to independent columns" in printed
    found, _ = done(inside, "sample", files[0], "-n", 7, "-o", "n.csv", cwd=tmp_path)
    new = pl.read_csv(tmp_path / "n.csv")
    assert new.height == 7 and set(new["grade"]) <= set(ORDER)
    strange = clinic()
    strange[4][3] = "Surgery"
    written(tmp_path / "new.csv", strange)
    status, _, said = inside("score", files[0], "new.csv", cwd=tmp_path)
    assert status == 3 and f"'Surgery' (the first in row '{strange[4][0]}')" in said
    done(inside, "score", files[0], "new.csv", "--na", "Surgery", cwd=tmp_path)


def test_the_copula_is_mentioned_where_categories_become_numbers(place, inside, tmp_path):
    arguments = ("fit", place / "clinic.csv", "-m", "ppca", *OPTIONS, "-o", "m.dpca")
    assert "-m copula keeps categories as they are" in done(inside, *arguments, cwd=tmp_path)[1]
    _, said = done(inside, *arguments, "--numbers-only", "--na", "<5", cwd=tmp_path)
    assert "copula" not in said


def test_few_rows_have_one_component(inside, tmp_path):
    rows = clinic()[:4]
    written(tmp_path / "t.csv", rows)
    found, said = done(inside, "fit", "t.csv", "-m", "copula", "--na=-999,NA", cwd=tmp_path)
    assert found["n_components"] == 1 and "too few values for cross-validation" in said


@pytest.mark.slow
def test_components_are_chosen_by_hidden_entries(place, inside, tmp_path):
    arguments = ("fit", place / "clinic.csv", "-m", "copula", "--na=-999,NA", "-o", "m.dpca")
    _, printed, said = inside(*arguments, cwd=tmp_path)
    assert "chosen by cross-validation (the probability of hidden entries)" in printed, said
    done(inside, "report", "m.dpca", place / "clinic.csv", cwd=tmp_path)
    assert "How many directions matter" in (tmp_path / "report.html").read_text()


# --- one choice of family for all commands -------------------------------------------------------


def test_numbers_choose_by_their_shape_and_the_reason_is_told(inside, tmp_path):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(60, 1)) + 0.3 * rng.normal(size=(60, 3))
    z[:, 2] = np.exp(2 * z[:, 2])
    for name, table in (("plain.csv", z[:, :2]), ("long.csv", z)):
        rows = [",".join(f"{x:.3f}" for x in row) for row in table]
        (tmp_path / name).write_text("\n".join([",".join("abc"[: table.shape[1]]), *rows, ""]))
    found, said = done(inside, "fit", "plain.csv", "-q", 1, cwd=tmp_path)
    assert found["model"] == "PPCA" and "copula" not in said.lower()
    found, said = done(inside, "fit", "long.csv", "-q", 1, cwd=tmp_path)
    assert found["model"] == "CopulaPPCA"
    assert "because 'c' is skewed. -m ppca fits probabilistic PCA instead" in said
    _, said = done(inside, "impute", "long.csv", "-q", 1, "-o", "f.csv", cwd=tmp_path)
    assert "CopulaPPCA was fitted to long.csv, because 'c' is skewed" in said
    for own in (("-q", "bic"), ("-q", 1, "--standardize"), ("-q", 1, "--set", "n_init=2")):
        found, said = done(inside, "fit", "long.csv", *own, cwd=tmp_path)
        assert found["model"] == "PPCA" and "warning: column 'c': strongly skewed" in said


@pytest.mark.parametrize("command", ["fit", "impute", "report", "compare"])
def test_one_function_chooses_for_all_commands(command, place, inside, tmp_path, monkeypatch):
    def asked(*_, **__):
        raise ValueError("the family was asked for")

    monkeypatch.setattr(_fit, "family_of", asked)
    status, _, said = inside(command, place / "clinic.csv", "--na=-999", cwd=tmp_path)
    assert status == 1 and "the family was asked for" in said


# --- compare -----------------------------------------------------------------------------------


def test_compare_judges_numbers_and_categories_apart(place, inside):
    arguments = ("compare", "clinic.csv", *OPTIONS, "-m", "ppca", "-m", "copula", "-m", "kpca")
    found, _ = done(inside, *arguments, "--hide", 0.3, cwd=place)
    base, ppca, copula, *_ = found["models"]
    assert (base["model"], base["number_error"]) == ("baseline", 1)
    assert copula["number_error"] < 1 and copula["category_error"] <= base["category_error"]
    assert 0 < ppca["number_error"] and 0 <= ppca["category_error"] <= 1
    assert copula["log_likelihood"] is None and "missing values" in found["left_out"]["kpca"]
    printed = _compare._words(found)
    assert "numbers  categories" in printed and "imputation" not in printed.split("\n")[0]


def test_the_copula_is_compared_only_where_there_are_categories(inside, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    rows = [f"{a:.2f},{a + b:.2f}" for a, b in rng.normal(size=(40, 2))]
    (tmp_path / "t.csv").write_text("\n".join(["a,b", *rows, ""]))
    monkeypatch.setattr(_compare, "COMPARED", ["ppca", "copula"])
    found, _ = done(inside, "compare", "t.csv", "-q", 1, cwd=tmp_path)
    assert [one["model"] for one in found["models"]] == ["means", "ppca"]
    found, _ = done(inside, "compare", "t.csv", "-q", 1, "-m", "copula", cwd=tmp_path)
    assert [one["model"] for one in found["models"]] == ["baseline", "copula"]
    assert found["models"][1]["category_error"] is None


def test_hidden_cells_are_judged_by_hand():
    frame = pl.DataFrame({"x": [1.0, 2.0, 3.0, 10.0], "k": ["a", "a", "b", "b"]})
    prep = Preparation(("x", "k"), {"k": ("a", "b")}, dropped={"k": "a"})
    hidden = {"x": np.array([True, True]), "k": np.array([True, False])}
    cells = _compare.Cells(prep, prep, frame[:3], frame[2:], hidden)
    # medians: x is 2, off by 1 and 8; the most frequent level is a, and b is true
    assert cells.judged(None) == {"number_error": 1.0, "category_error": 1.0}
    filled = pl.DataFrame({"x": [3.0, 7.0], "k": ["b", "a"]})
    assert cells.judged(filled) == {"number_error": pytest.approx(3 / 9), "category_error": 0.0}
    bound = filled.with_columns(x=pl.Series(["<3", "7"]))  # of a censored column
    assert cells.judged(bound)["number_error"] == pytest.approx(3 / 9)


def test_levels_that_no_row_to_fit_has_are_missing():
    frame = pl.DataFrame({"x": [1.0, 2.0, 3.0, 4.0, 5.0], "k": ["a", "b", "a", "c", None]})
    prep = Preparation(("x", "k"), {"k": ("a", "b", "c")}, kinds={})
    cells = _compare.Cells(prep, prep, frame[:2], frame[2:], {"x": np.array([True, False, False])})
    assert cells.partial.rows() == [(None, "a"), (4, None), (5, None)]


def test_features_of_a_category_are_hidden_together():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 5))
    parts = _compare.splits(X, False, 0.5, 0.5, 0, [0, 1, 1, 1, 2])[0]
    gone = np.isnan(parts.hidden)
    assert (gone[:, 1] == gone[:, 2]).all() and (gone[:, 1] == gone[:, 3]).all()
    assert gone[:, 1].any() and not gone.all(axis=1).any()


# --- report ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def subject(place):
    model, metadata = dp.load(place / "clinic.dpca", return_metadata=True)
    frame = read(place / "clinic.csv", verbatim=("patient",))
    frame = columns.without(frame, ["-999"])
    prepared = of_table(metadata["table"], model.feature_names_in_)
    return subject_of(model, frame, ids="patient", color="ward", prepared=prepared)


def test_the_report_has_the_sections_of_mixed_columns(place, inside, tmp_path):
    files = (place / "clinic.dpca", place / "clinic.csv")
    found, _ = done(inside, "report", *files, "--color", "ward", cwd=tmp_path)
    assert set(found["left_out"]) == {
        "How many directions matter",  # -q was given
        "What the model keeps of each row",
    }
    assert "could not be made" not in str(found["left_out"])
    html = (tmp_path / "report.html").read_text()
    for words in ("ward = ICU", "grade: mild &lt; moderate &lt; severe", "&lt;5 (", "Unusual rows"):
        assert words in html
    assert "--kind grade=ordinal:mild,moderate,severe" in html
    assert "not needed: only the order" in html


def test_kinds_and_bounds_are_told(subject):
    table = next(part for part in mixed.overview(subject).parts if hasattr(part, "rows"))
    rows = {row[0]: row for row in table.rows}
    assert rows["crp"][1] == "censored" and "bounds: <5 (" in rows["crp"][-1]
    assert rows["ward"][1] == "nominal" and "%" in rows["ward"][-1]
    words = mixed.missing(subject).text[-1]
    assert "count as known" in words and "crp" in words


def test_loadings_have_a_line_per_level(subject):
    drawn = mixed.directions(subject).parts[0]
    names = drawn.layout["yaxis"]["ticktext"]
    assert {"ward = ICU", "ward = surgery", "smoker = yes", "age", "crp"} <= set(names)
    assert np.abs(drawn.data[0]["x"]).max() <= 1


def test_correlations_are_those_of_the_model(subject):
    drawn = mixed.correlations(subject).parts[0]
    names = drawn.layout["yaxis"]["ticktext"]
    values = np.array(drawn.data[0]["z"])
    i, j = names.index("age"), names.index("weight")
    own = [name for name in subject.names if name != "ward"]
    expected = subject.model.correlation_[own.index("age"), own.index("weight")]
    assert values[i, j] == pytest.approx(expected, abs=0.01) and "ward" not in names


def test_hidden_entries_are_compared_with_typical_values(subject, monkeypatch):
    monkeypatch.setattr(mixed, "ROUNDS", 1)
    found = mixed.hidden_entries(subject)
    assert (subject.X[found.row, found.column] == found.truth).all()
    monkeypatch.setattr(mixed, "hidden_entries", lambda _: found)
    section = mixed.filled(subject)
    table = next(part for part in section.parts if hasattr(part, "rows"))
    rows = {row[0]: row for row in table.rows}
    assert "wrong" in rows["ward"][3] and "off by" in rows["weight"][3]
    assert rows["weight"][5].endswith("%") and rows["grade"][5] == "–"


def test_reasons_name_an_entry_that_does_not_fit(subject):
    odd = int(np.flatnonzero(~subject.missing[:, 1])[0])
    table = subject.table.clone()
    weights = table["weight"].to_list()
    weights[odd] = 500.0
    strange = subject_of(
        subject.model, table.with_columns(weight=pl.Series(weights)), prepared=None
    )
    (words,) = mixed._reasons(mixed._surprising(strange, np.array([odd])))
    assert "weight 500 (" in words


def test_a_report_from_python_needs_no_command_line(tmp_path):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    t = rng.normal(size=80)
    X = pandas.DataFrame({"a": t + 0.3 * rng.normal(size=80), "b": np.exp(t)})
    X["k"] = np.where(t + 0.5 * rng.normal(size=80) > 0, "high", "low")
    X.loc[3, "k"] = None
    model = dp.CopulaPPCA(1).fit(X)
    assert report.write(model, X, tmp_path / "r.html", color="k") > 1_000_000
    assert "could not be made" not in (tmp_path / "r.html").read_text()


# --- explorer ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def session(place):
    model, metadata = dp.load(place / "clinic.dpca", return_metadata=True)
    frame = read(place / "clinic.csv", verbatim=("patient",))
    return open_session(model, frame, metadata, source="clinic.csv")


def test_the_explorer_speaks_in_levels(session):
    client = Client(session)
    about = client.ask("GET", "/api/model").json()
    levels = dict(zip(about["features"], about["levels"], strict=True))
    assert levels["grade"] == list(ORDER) and levels["weight"] == []
    assert about["density"] == "relative" and set(about["reasons"]) == {"spread", "error"}
    point = client.ask("POST", "/api/decode", json={"latent": [0.5, -0.5]}).json()
    values = dict(zip(about["features"], point["values"], strict=True))
    assert values["ward"] in (0, 1, 2) and values["grade"] in (0, 1, 2)
    assert point["std"] is None and point["nearest_id"].startswith("P")


def test_a_hidden_row_is_filled_with_ranges(session):
    client = Client(session)
    names = list(session.features)
    row = int(np.flatnonzero(np.isfinite(session.X).all(axis=1))[0])
    hidden = [names.index("weight"), names.index("ward")]
    found = client.ask("POST", "/api/impute", json={"row": row, "hidden": hidden}).json()
    weight, ward = hidden
    assert found["std"] is None and found["low"][ward] is None
    assert found["low"][weight] <= found["values"][weight] <= found["high"][weight]
    assert found["values"][names.index("age")] == found["truth"][names.index("age")]


def test_samples_have_the_closest_row(session):
    found = Client(session).ask("POST", "/api/sample", json={"count": 3, "seed": 1}).json()
    assert len(found["values"]) == 3 and all(one.startswith("P") for one in found["nearest_ids"])


def test_rows_of_the_session_keep_their_bounds(session):
    lens = session.lens
    assert isinstance(lens, MixedLens)
    own = lens.latents(session.X)
    assert np.array_equal(own, session.Z[0])
    assert "<5" in lens.table["crp"].to_list()
    again = lens.codes(lens._named(session.X.copy()))
    assert np.array_equal(again, session.X, equal_nan=True)


def test_latents_stand_for_medians_and_modes(place):
    model = dp.load(place / "clinic.dpca")
    rows = model.inverse_transform([[0.0, 0.0], [2.0, 0.0]])
    assert rows.columns == list(model.feature_names_in_) and rows.height == 2
    t = np.array([[0.3, -0.2]])
    value = model.inverse_transform(t)["weight"][0]
    known = np.sort([float(row[2]) for row in clinic() if row[2] not in ("", "NA")])
    place_ = (known <= value).mean()
    z = t @ model.loadings_[model.loading_names_.index("weight")]
    assert abs(place_ - 0.5 * (1 + np.sign(z[0]) * np.abs(2 * _normal(z[0]) - 1))) < 0.03
    with pytest.raises(ValueError, match="one for each latent"):
        model.inverse_transform([[0.0]])


def _normal(z):
    from scipy.special import ndtr

    return ndtr(z)


def test_frames_of_pandas_are_read_without_pyarrow():
    """Which the extras do not bring: polars alone converts columns of numbers only."""
    program = """
import sys

sys.modules["pyarrow"] = None
import pandas as pd
from dualpca.app.tables.columns import plain

frame = pd.DataFrame(
    {
        "size": [1.5, float("nan"), 2.5],
        "site": ["A", None, "B"],
        "kind": pd.Categorical(["u", None, "v"]),
        "yes": pd.array([True, None, False], dtype="boolean"),
        "count": pd.array([1, None, 3], dtype="Int64"),
    }
)
print(plain(frame).to_dict(as_series=False))
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == (
        "{'size': [1.5, None, 2.5], 'site': ['A', None, 'B'], 'kind': ['u', None, 'v'], "
        "'yes': [True, None, False], 'count': [1, None, 3]}"
    )
