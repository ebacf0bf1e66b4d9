"""The first hour with a table: commands without options, and files written back as they came."""

import json
import os
import re

import numpy as np
import polars as pl
import pytest

import dualpca as dp
from dualpca.app.cli import _fit
from dualpca.app.tables import reading, writing
from dualpca.app.tables.columns import of_table

COLUMNS = ("age", "weight", "crp", "platelets", "chol", "bmi")


def cells(n=80, missing=0.1, seed=1):
    """Return columns as people write them: other digits in each, and cells without a value."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) @ rng.normal(size=(2, 6)) + 0.3 * rng.normal(size=(n, 6))
    X = X * [12, 10, 1, 60000, 1, 3] + [50, 70, 5, 250000, 5, 24]
    words = [[f"{v:.{k}f}" for v in X[:, j]] for j, k in enumerate((0, 1, 2, 0, 3, 1))]
    for column in words:
        for i in rng.choice(n, round(missing * n), replace=False):
            column[i] = ("", "NA")[i % 2]
    return words


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A clinical table, complete and with missing values, and one as Excel writes it."""
    folder = tmp_path_factory.mktemp("defaults")
    for name, missing in (("full", 0.0), ("holes", 0.1)):
        rows = zip(*cells(missing=missing), strict=True)
        lines = [",".join(COLUMNS), *(",".join(row) for row in rows)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    rows = [[one.replace(".", ",") for one in row] for row in zip(*cells(), strict=True)]
    lines = ['id;"Größe; cm";' + ";".join(COLUMNS) + ";note"]
    lines += [
        f'P{i:03d};"1{i:02d},50";' + ";".join(row) + f';"said ""hi"";\r\n{i}"'
        for i, row in enumerate(rows)
    ]
    (folder / "excel.csv").write_bytes("\r\n".join(lines).encode("latin-1"))  # no last line end
    return folder


EXCEL = ("excel.csv", "--encoding", "latin-1", "--id", "id", "--numbers-only")


def done(inside, *arguments, cwd):
    """Run a command that must do well; return its JSON and what it said."""
    status, printed, said = inside(*arguments, "--json", cwd=cwd)
    assert status == 0, said
    return json.loads(printed), said


# --- commands with a table and nothing else ----------------------------------------------------


@pytest.mark.parametrize("name", ["full", "holes"])
def test_fit_needs_only_a_table(name, place, inside, monkeypatch):
    status, printed, said = inside("fit", f"{name}.csv", cwd=place)
    assert status == 0
    assert said.startswith("note: 'NA' is read as missing: 3 in 'age', 4 in") == (name == "holes")
    assert said.count("\n") == (name == "holes")
    fitted, metadata = dp.load(place / f"{name}.dpca", return_metadata=True)
    q = fitted.n_components_
    words = f"{q} component{'' if q == 1 else 's'}, chosen by parallel analysis"
    assert words in printed and "-q NUMBER" in printed and "dualpca select" in printed
    assert "Columns standardised (--no-standardize to keep their units)." in printed
    assert metadata["command"] == f"dualpca fit {name}.csv"
    X = reading.read(place / f"{name}.csv").to_numpy().astype(float)
    Z = (X - np.nanmean(X, axis=0)) / np.nanstd(X, axis=0)
    wanted = dp.PPCA(random_state=0).fit(Z)
    assert fitted.n_components_ == wanted.n_components_
    np.testing.assert_allclose(fitted.noise_variance_, wanted.noise_variance_, rtol=1e-5)


def test_what_was_given_is_not_explained(place, inside, tmp_path):
    given = ("-q", 2, "--no-standardize", "-o", tmp_path / "m.dpca")
    printed = inside("fit", "full.csv", *given, cwd=place)[1]
    assert "chosen" not in printed and "standard" not in printed
    printed = inside("fit", "full.csv", "-q", "bic", "-o", tmp_path / "m.dpca", cwd=place)[1]
    assert "chosen by BIC" in printed and "-q NUMBER" not in printed


@pytest.mark.parametrize("name", ["ppca", "pca"])
def test_models_standardise_themselves_where_they_can(name, place, inside, tmp_path):
    given = ("fit", "full.csv", "-m", name, "-q", 2, "-o", "m.dpca")
    done(inside, *given[:1], place / given[1], *given[2:], cwd=tmp_path)
    fitted, metadata = dp.load(tmp_path / "m.dpca", return_metadata=True)
    own = "standardize" in fitted.get_params()
    assert ("scales" in metadata["table"]) != own
    assert not own or fitted.standardize
    done(inside, "denoise", "m.dpca", place / "full.csv", "-o", "d.csv", cwd=tmp_path)
    found = reading.read(tmp_path / "d.csv")
    means = reading.read(place / "full.csv").mean()
    np.testing.assert_allclose(found.mean().row(0), means.row(0), rtol=1e-6)  # the table's units


def test_matrices_and_images_keep_their_units(place, inside, tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 4)) * [1, 2, 3, 4]
    np.save(tmp_path / "t.npy", X)
    found, _ = done(inside, "fit", "t.npy", "-q", 1, cwd=tmp_path)
    assert (found["output"], found["standardized"]) == ("t.dpca", False)
    found, _ = done(inside, "fit", "t.npy", "-q", 1, "--standardize", cwd=tmp_path)
    assert found["standardized"]
    found, _ = done(inside, "fit", place / "full.csv", "-q", 1, cwd=tmp_path)
    assert found["standardized"]


def test_select_says_what_fit_does(place, inside):
    rule = "parallel"
    for name in ("full", "holes"):
        printed = inside("select", f"{name}.csv", cwd=place)[1]
        assert f"dualpca fit uses {rule} unless -q says otherwise." in printed
        assert "--no-standardize" in printed
        chosen = re.search(rf"{rule} +(\d+)", printed)
        fitted = inside("fit", f"{name}.csv", cwd=place)[1]
        assert chosen and re.search(rf"\n{chosen[1]} components?, chosen by", fitted)


def test_impute_and_report_need_only_a_table(place, inside, tmp_path):
    table = place / "holes.csv"
    found, said = done(inside, "impute", table, cwd=tmp_path)
    assert (found["output"], found["filled"]) == ("holes-filled.csv", 48)
    assert "2 components, chosen by cross-validation" in said
    assert "columns standardised (--no-standardize to keep their units)" in said
    assert reading.read(tmp_path / "holes-filled.csv").null_count().sum_horizontal().item() == 0
    done(inside, "fit", table, "-q", "cv", "-o", "m.dpca", cwd=tmp_path)
    done(inside, "impute", "m.dpca", table, "-o", "same.csv", cwd=tmp_path)
    same = (tmp_path / "same.csv").read_bytes()
    assert same == (tmp_path / "holes-filled.csv").read_bytes()
    found, said = done(inside, "report", table, "-o", "r.html", cwd=tmp_path)
    assert (found["rows"], "chosen by parallel analysis" in said) == (80, True)
    page = (tmp_path / "r.html").read_text()
    assert f"dualpca report {table} -o r.html" in page


def test_a_model_file_alone_or_options_too_late_are_explained(place, inside, tmp_path):
    done(inside, "fit", "holes.csv", "-o", tmp_path / "m.dpca", cwd=place)
    for command in ("impute", "report"):
        status, _, said = inside(command, "m.dpca", cwd=tmp_path)
        assert status == 2 and "m.dpca is a model file: give the table as well" in said
        out = {"impute": "x.csv", "report": "x.html"}[command]
        given = (command, "m.dpca", place / "holes.csv", "-o", out, "--exclude", "age")
        status, _, said = inside(*given, cwd=tmp_path)
        assert status == 2 and "--exclude says how to fit a model, but m.dpca is fitted" in said


def test_columns_that_say_nothing_do_no_harm(inside, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 1)) + 0.5 * rng.normal(size=(40, 4))
    frame = pl.DataFrame(X, schema=["a", "b", "c", "d"], orient="row")
    frame = frame.with_columns(pl.lit(7).alias("same"), pl.Series("d", [None, *X[1:, 3]]))
    frame.write_csv(tmp_path / "t.csv")
    found, _ = done(inside, "fit", "t.csv", cwd=tmp_path)
    assert found["n_components"] >= 1
    done(inside, "impute", "t.csv", cwd=tmp_path)
    after = reading.read(tmp_path / "t-filled.csv")
    assert after["same"].to_list() == [7] * 40


def test_columns_that_repeat_others_are_named(inside, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 1)) + 0.5 * rng.normal(size=(40, 3))
    frame = pl.DataFrame(X, schema=["kg", "b", "c"], orient="row")
    frame = frame.with_columns((pl.col("kg") * 2.2).alias("lb"))
    frame = frame.with_columns(pl.when(pl.int_range(40) == 3).then(None).otherwise("b").alias("b"))
    frame.write_csv(tmp_path / "t.csv")
    assert inside("fit", "t.csv", cwd=tmp_path)[0] == 0
    for command in (("fit", "t.csv", "-q", "cv"), ("impute", "t.csv")):
        status, _, said = inside(*command, cwd=tmp_path)
        assert status == 0 and "'kg' and 'lb' are the same but for their units" in said
    status, _, said = inside("fit", "t.csv", "-q", 3, cwd=tmp_path)
    assert status == 1 and "fewer components" in said


def test_small_tables_are_fitted_or_refused_in_words(inside, tmp_path):
    rows = [["1", "2.5", "3"], ["2", "", "5"], ["4", "3", "6"], ["3", "9", "8"], ["7", "8", "1"]]
    text = "\n".join(["a,b,c", *map(",".join, rows), ""])
    (tmp_path / "small.csv").write_text(text)
    found, said = done(inside, "impute", "small.csv", cwd=tmp_path)
    assert found["filled"] == 1 and "too few values for cross-validation" in said
    (tmp_path / "one.csv").write_text("a\n1.5\n2\n4\n3.25\n")
    printed = inside("impute", "one.csv", "-q", 1, cwd=tmp_path)[1]
    assert "nothing was missing" in printed
    assert (tmp_path / "one-filled.csv").read_text() == "a\n1.5\n2\n4\n3.25\n"
    (tmp_path / "same.csv").write_text("a,b\n" + "1,2\n" * 9)
    for command in ("fit", "impute", "report"):
        status, _, said = inside(command, "same.csv", cwd=tmp_path)
        assert status == 3 and "two different values" in said
    status, printed, said = inside("select", "same.csv", cwd=tmp_path)
    assert (status, printed) == (1, "") and said


# --- what is written ---------------------------------------------------------------------------


def raw(path):
    return path.read_bytes().decode("latin-1")


def test_measured_cells_are_written_back_as_they_came(place, inside, tmp_path):
    out = tmp_path / "o.csv"
    done(inside, "impute", *EXCEL, "-o", out, cwd=place)
    before, after = (raw(p).split("\r\nP") for p in (place / "excel.csv", out))
    assert before[0] == after[0] and len(before) == len(after) == 81
    for old, new in zip(before[1:], after[1:], strict=True):
        old_cells, new_cells = (writing.fields_of(one, ";") for one in (old, new))
        for one, other in zip(old_cells, new_cells, strict=True):
            assert one == other or (one in ("", "NA") and re.fullmatch(r"-?\d+(,\d+)?", other))
        assert not {"", "NA"} & set(new_cells)


def test_batches_keep_the_text_too(place, inside, tmp_path, monkeypatch):
    model = tmp_path / "m.dpca"
    done(inside, "fit", *EXCEL, "-q", 2, "-o", model, cwd=place)
    found = []
    for piece in (None, 500):
        if piece:
            monkeypatch.setattr(reading, "room_for", lambda limit: 1000)
            monkeypatch.setattr(reading, "piece_of", lambda kind, room: 500)
        out = tmp_path / f"{piece}.csv"
        given = ("impute", model, "excel.csv", "--encoding", "latin-1", "-o", out)
        done(inside, *given, cwd=place)
        found.append(out.read_bytes())
    assert found[0] == found[1]


def test_filled_cells_have_two_digits_more_than_the_column(place, inside, tmp_path):
    out = tmp_path / "o.csv"
    done(inside, "impute", "holes.csv", "-o", out, cwd=place)
    before, after = (path.read_text().splitlines()[1:] for path in (place / "holes.csv", out))
    most = dict.fromkeys(COLUMNS, 0)
    filled = dict.fromkeys(COLUMNS, 0)
    for old, new in zip(before, after, strict=True):
        for name, one, other in zip(COLUMNS, old.split(","), new.split(","), strict=True):
            which = filled if one in ("", "NA") else most
            which[name] = max(which[name], writing.digits_in([other]))
    for name in COLUMNS:
        assert most[name] < filled[name] <= most[name] + 2


def test_draws_and_tabs_keep_the_text(place, inside, tmp_path):
    done(inside, "impute", *EXCEL, "--draws", 2, "-o", tmp_path / "d.csv", cwd=place)
    rows = raw(tmp_path / "d.csv").split("\r\n")
    assert rows[0] == 'draw;id;"Größe; cm";' + ";".join(COLUMNS) + ";note"
    table = reading.read(tmp_path / "d.csv", encoding="latin-1", verbatim=("id",))
    assert table.height == 160 and table["draw"].to_list() == [1] * 80 + [2] * 80
    assert table["id"].to_list() == [f"P{i:03d}" for i in range(80)] * 2
    done(inside, "impute", "holes.csv", "-o", tmp_path / "t.tsv", cwd=place)
    done(inside, "impute", "holes.csv", "-o", tmp_path / "t.csv", cwd=place)
    tabs, commas = ((tmp_path / name).read_text() for name in ("t.tsv", "t.csv"))
    assert tabs == commas.replace(",", "\t")


def test_marks_and_first_lines_of_excel_stay(inside, tmp_path):
    text = "\ufeffsep=;\r\na;b\r\n1,5;2\r\n;3\r\n2,5;4\r\n4,5;9\r\n"
    (tmp_path / "t.csv").write_bytes(text.encode())
    done(inside, "impute", "t.csv", "-q", 1, "-o", "o.csv", cwd=tmp_path)
    after = (tmp_path / "o.csv").read_bytes().decode()
    assert re.fullmatch(text.replace("\n;3", "\n[0-9,]+;3"), after)


def test_whole_numbers_of_other_formats_stay_whole(inside, tmp_path):
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"n": range(40), "x": rng.normal(size=40), "y": rng.normal(size=40)})
    frame = frame.with_columns(pl.when(pl.col("n") == 3).then(None).otherwise("x").alias("x"))
    frame.write_parquet(tmp_path / "t.parquet")
    done(inside, "impute", "t.parquet", "-c", "*", "-q", 1, cwd=tmp_path)
    after = pl.read_parquet(tmp_path / "t-filled.parquet")
    assert after["n"].dtype.is_integer() and after["x"].null_count() == 0
    assert after.drop("x").equals(frame.drop("x"))


REPLACED = {
    "fit": ("fit", "t.csv", "-o", "t.csv"),
    "impute": ("impute", "m.dpca", "t.csv", "-o", "./t.csv"),
    "impute alone": ("impute", "t.csv", "-o", "t.csv"),
    "deviations": ("impute", "m.dpca", "t.csv", "-o", "x.csv", "--std", "t.csv"),
    "transform": ("transform", "m.dpca", "t.csv", "-o", "t.csv"),
    "denoise": ("denoise", "m.dpca", "t.csv", "-o", "link.csv"),
    "score": ("score", "m.dpca", "t.csv", "-o", "t.csv"),
    "report": ("report", "m.dpca", "t.csv", "-o", "t.csv"),
    "report over a model": ("report", "m.dpca", "t.csv", "-o", "m.dpca"),
    "export": ("export", "m.dpca", "-o", "m.dpca"),
    "hard link": ("impute", "m.dpca", "hard.csv", "-o", "x.csv", "--std", "t.csv"),
    "sample": ("sample", "m.dpca", "-o", "m.csv"),
}


@pytest.mark.parametrize("arguments", REPLACED.values(), ids=REPLACED)
def test_an_input_is_never_replaced_but_by_impute_with_force(arguments, place, inside, tmp_path):
    text = (place / "holes.csv").read_bytes()
    (tmp_path / "t.csv").write_bytes(text)
    (tmp_path / "link.csv").symlink_to("t.csv")
    os.link(tmp_path / "t.csv", tmp_path / "hard.csv")
    done(inside, "fit", "t.csv", "-q", 2, "-o", "m.dpca", cwd=tmp_path)
    (tmp_path / "m.csv").symlink_to("m.dpca")
    status, _, said = inside(*arguments, cwd=tmp_path)
    assert (status, (tmp_path / "t.csv").read_bytes() == text) == (2, True)
    assert "is read by this command" in said
    filled = arguments[0] == "impute" and "--std" not in arguments
    assert ("--force" in said) == filled
    status, _, said = inside(*arguments, "--force", cwd=tmp_path)
    assert status == (0 if filled else 2)
    assert ((tmp_path / "t.csv").read_bytes() != text) == filled
    assert dp.load(tmp_path / "m.dpca").n_components == 2


@pytest.mark.parametrize("second", ["a.csv", "./a.csv", "link.csv", "../{}/a.csv"])
@pytest.mark.parametrize("there", [False, True])
def test_two_tables_are_not_written_to_one_file(second, there, place, inside, tmp_path):
    (tmp_path / "link.csv").symlink_to("a.csv")
    if there:
        (tmp_path / "a.csv").write_text("old")
    second = second.format(tmp_path.name)
    arguments = ("impute", place / "holes.csv", "-o", "a.csv", "--std", second)
    status, _, said = inside(*arguments, cwd=tmp_path)
    assert status == 2 and "two tables" in said
    assert (tmp_path / "a.csv").exists() == there


def test_other_files_are_replaced(place, inside, tmp_path):
    (tmp_path / "o.csv").write_text("old")
    done(inside, "impute", "holes.csv", "-o", tmp_path / "o.csv", cwd=place)
    assert (tmp_path / "o.csv").read_text() != "old"


def test_score_says_how_many_rows_to_expect(place, inside, tmp_path):
    done(inside, "fit", "full.csv", "-q", 2, "-o", tmp_path / "m.dpca", cwd=place)
    found, _ = done(inside, "score", tmp_path / "m.dpca", "full.csv", "--level", 0.9, cwd=place)
    assert found["expected_outliers"] == pytest.approx(8)
    printed = inside("score", tmp_path / "m.dpca", "full.csv", "--level", 0.9, cwd=place)[1]
    assert "beyond the 0.9 limits, where 8 of 80 ordinary rows are expected" in printed


# --- columns of categories ---------------------------------------------------------------------


@pytest.fixture
def yes_no(inside, tmp_path):
    """A table with a yes/no column."""
    words = cells(missing=0.0)
    smoker = ["yes" if float(age) > 50 else "no" for age in words[0]]
    smoker[3] = ""
    lines = [",".join(row) for row in zip(*words, smoker, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join([",".join((*COLUMNS, "smoker")), *lines, ""]))
    return tmp_path / "t.csv"


def test_select_is_not_misled_by_a_yes_no_column(yes_no, inside, tmp_path):
    plain, _ = done(inside, "select", yes_no, "-x", "smoker", cwd=tmp_path)
    found, _ = done(inside, "select", yes_no, "--one-hot", "smoker", cwd=tmp_path)
    assert found["features"] == plain["features"] + 1
    before = {one["rule"]: one["n_components"] for one in plain["rules"]}
    for one in found["rules"]:
        assert one["n_components"] <= before.get(one["rule"], 5) + 1
        assert one["noise_variance"] > 0.01  # collinear columns leave none


def test_categories_come_back_as_categories(yes_no, inside, tmp_path):
    done(inside, "impute", yes_no, "--one-hot", "smoker", "-o", "o.csv", cwd=tmp_path)
    before, after = (path.read_text().splitlines() for path in (yes_no, tmp_path / "o.csv"))
    assert [i for i in range(81) if before[i] != after[i]] == [4]
    assert after[4].startswith(before[4]) and after[4].split(",")[-1] in ("yes", "no")
    done(inside, "impute", yes_no, "--one-hot", "smoker", "-o", "o.parquet", cwd=tmp_path)
    assert set(reading.read(tmp_path / "o.parquet")["smoker"]) == {"yes", "no"}


def test_a_filled_cell_keeps_to_its_bound(inside, tmp_path):
    words = cells(missing=0.0)
    words[2][5] = "<0.5"
    lines = [",".join(row) for row in zip(*words, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join([",".join(COLUMNS), *lines, ""]))
    done(inside, "impute", "t.csv", "-m", "ppca", "-o", "o.csv", cwd=tmp_path)
    assert reading.read(tmp_path / "o.csv")["crp"][5] <= 0.5


# --- small parts -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value, digits, text",
    [
        (56.290221, 4, "56.29"),
        (400.0, 5, "400"),
        (-0.00012345, 3, "-0.000123"),
        (0.0, 3, "0"),
        (2.5e-9, 4, "2.5e-09"),
        (123456.7, 3, "123457"),
        (0.1 + 0.2, 17, "0.30000000000000004"),
    ],
)
def test_numbers_have_a_sensible_number_of_digits(value, digits, text):
    assert writing.number_text(value, digits) == text


def test_rules_of_every_model_have_words(place):
    X = reading.read(place / "full.csv").to_numpy().astype(float)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    for rule in ("evidence", "bic", "cv", "cv-rows", "cv-entries", "gavish-donoho"):
        assert _fit.rule_of(dp.PPCA(rule).fit(X)) in _fit.RULES
    assert _fit.rule_of(dp.PPCA(2).fit(X)) is None
    assert _fit.rule_of(dp.BayesianPCA().fit(X)) == "relevance"
    assert _fit.rule_of(dp.PCA().fit(X)) is None
    assert of_table({}, ["a"]).features == ["a"]


def test_draws_from_few_rows_share_their_parameters_and_say_so(place, inside, tmp_path):
    lines = (place / "holes.csv").read_text().splitlines()[:13]
    (tmp_path / "few.csv").write_text("\n".join(lines) + "\n")
    _, said = done(inside, "impute", "few.csv", "--draws", 3, "-o", "d.csv", cwd=tmp_path)
    assert "few.csv has fewer than 20 rows" in said and "too narrow" in said
    assert reading.read(tmp_path / "d.csv").height == 36
    _, said = done(inside, "impute", place / "holes.csv", "--draws", 3, "-o", "e.csv", cwd=tmp_path)
    assert "too narrow" not in said


def test_columns_in_unequal_units_are_named_with_the_option_that_helps(place, inside, tmp_path):
    arguments = ("fit", place / "full.csv", "--no-standardize", "-q", 1, "-o", "m.dpca")
    _, said = done(inside, *arguments, cwd=tmp_path)
    assert "platelets" in said and "--standardize" in said and "standardize=True" not in said


def test_two_rows_are_enough(inside, tmp_path):
    (tmp_path / "two.csv").write_text("x,y\n1,2\n3,5\n")
    found, said = done(inside, "fit", "two.csv", cwd=tmp_path)
    assert found["n_components"] == 1 and "noise_variance is held" in said
