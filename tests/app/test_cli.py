"""The command line, through its entry point, on real files."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from rich.progress import Progress

import dualpca as dp
from dualpca.app.cli._running import Followed, Lines
from dualpca.app.tables import reading
from dualpca.arrays.progress import showing, task

ENTRY = [sys.executable, "-c", "from dualpca.app.cli import main; main()"]
NAMES = list("abcde")


def call(*arguments, cwd, stdin=None):
    return subprocess.run(
        [*ENTRY, *map(str, arguments)], capture_output=True, cwd=cwd, input=stdin, timeout=120
    )


def good(*arguments, cwd, stdin=None):
    """Run a command that must do well, and return its JSON."""
    done = call(*arguments, "--json", cwd=cwd, stdin=stdin)
    assert (done.returncode, done.stderr.decode()) == (0, "")
    return json.loads(done.stdout)


@pytest.fixture
def quick(inside):
    """Do as `good` does, in this process."""

    def command(*arguments, cwd):
        status, printed, said = inside(*arguments, "--json", cwd=cwd)
        assert (status, said) == (0, "")
        return json.loads(printed)

    return command


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 2)) @ rng.normal(size=(2, 5)) + 0.1 * rng.normal(size=(60, 5))


@pytest.fixture(scope="module")
def place(rows, tmp_path_factory):
    """A folder with tables and two fitted models."""
    folder = tmp_path_factory.mktemp("cli")
    frame = pl.DataFrame(rows, schema=NAMES, orient="row").with_columns(
        pl.Series("who", [f"r{i}" for i in range(60)]), pl.Series("kind", ["u", "v", "w"] * 20)
    )
    frame.write_csv(folder / "t.csv")
    hole = pl.int_range(60) % 7 == 0
    holes = frame.with_columns(pl.when(hole).then(None).otherwise(pl.col("a")).alias("a"))
    holes.write_csv(folder / "holes.csv")
    found = good(
        *("fit", "t.csv", "-q", 2, "-o", "m.dpca", "--id", "who", "--exclude", "kind"),
        "--no-standardize",
        cwd=folder,
    )
    assert found["model"] == "PPCA"
    assert found["columns"] == NAMES
    kernel = ("-m", "kpca", "--kernel", "rbf", "--gamma", "median", "-q", 3, "--no-standardize")
    good("fit", "t.csv", *kernel, "-c", "[a-e]", "-o", "k.dpca", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def model(rows):
    return dp.PPCA(2, random_state=0).fit(pl.DataFrame(rows, schema=NAMES, orient="row"))


def test_fit_is_the_models_own_fit(place, rows, model):
    again = dp.load(place / "m.dpca")
    assert again.noise_variance_ == model.noise_variance_
    assert list(again.feature_names_in_) == NAMES
    kernel = dp.KernelPCA(3, kernel="rbf", gamma="median", random_state=0).fit(rows)
    np.testing.assert_array_equal(dp.load(place / "k.dpca").eigenvalues_, kernel.eigenvalues_)


def test_transform_keeps_identifiers(place, rows, model, tmp_path):
    out = tmp_path / "z.csv"
    found = good("transform", "m.dpca", "t.csv", "--id", "who", "-o", out, cwd=place)
    assert found["columns"] == ["who", "ppca0", "ppca1"]
    table = reading.read(out)
    assert table["who"].to_list() == [f"r{i}" for i in range(60)]
    np.testing.assert_array_equal(table.drop("who").to_numpy(), model.transform(_named(rows)))


def _named(rows):
    return pl.DataFrame(rows, schema=NAMES, orient="row")


def test_memory_that_runs_out_is_told_with_its_size_and_the_options_that_help(place, inside):
    def greedy(*_, **__):
        return np.empty((10**8, 10**7))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dualpca.PPCA._units_of", greedy)
        told = inside("fit", "t.csv", "-m", "ppca", "-q", 1, "-o", "never.dpca", cwd=place)
    assert told[0] == 1 and "100000000 × 10000000" in told[2]
    assert "8e+06 GB" in told[2] and "--memory-limit" in told[2]


def test_standard_input_and_output(place, rows, model):
    table = (place / "t.csv").read_bytes()
    done = call("transform", "m.dpca", "-", "-o", "-", cwd=place, stdin=table)
    assert (done.returncode, done.stderr) == (0, b"")
    found = pl.read_csv(done.stdout)
    assert found["who"].to_list() == [f"r{i}" for i in range(60)]  # as in the fit
    np.testing.assert_array_equal(found.drop("who").to_numpy(), model.transform(_named(rows)))


def test_impute_fills_holes_and_nothing_else(place, model, tmp_path):
    out, std = tmp_path / "f.csv", tmp_path / "s.csv"
    found = good("impute", "m.dpca", "holes.csv", "-o", out, "--std", std, cwd=place)
    before, after, spread = reading.read(place / "holes.csv"), reading.read(out), reading.read(std)
    assert found["filled"] == 9
    assert after.columns == before.columns
    assert after.drop("a").equals(before.drop("a"))
    wanted = model.impute(before.select(NAMES).fill_null(float("nan")))
    np.testing.assert_array_equal(after["a"].to_numpy(), wanted["a"].to_numpy())
    missing = before["a"].is_null().to_numpy()
    assert ((spread["a"].to_numpy() > 0) == missing).all()
    assert (spread.drop("a", "who").to_numpy() == 0).all()


def test_impute_draws_tables(place, tmp_path, quick):
    out = tmp_path / "f.parquet"
    found = quick("impute", "m.dpca", "holes.csv", "-o", out, "--draws", 4, cwd=place)
    table = reading.read(out)
    assert (found["draws"], table.height) == (4, 240)
    assert table["draw"].unique().sort().to_list() == [1, 2, 3, 4]
    first = table.filter(pl.col("who") == "r0")["a"]
    assert first.n_unique() == 4 and first.null_count() == 0
    assert table.filter(pl.col("who") == "r1")["a"].n_unique() == 1


def test_denoise_and_sample(place, rows, model, tmp_path):
    good("denoise", "m.dpca", "t.csv", "-o", tmp_path / "d.npy", cwd=place)
    np.testing.assert_array_equal(np.load(tmp_path / "d.npy"), model.reconstruct(_named(rows)))
    good("sample", "m.dpca", "-n", 7, "--seed", 3, "-o", tmp_path / "s.tsv", cwd=place)
    drawn = reading.read(tmp_path / "s.tsv")
    assert drawn.columns == NAMES
    np.testing.assert_array_equal(drawn.to_numpy(), model.sample(7, random_state=3))


def test_score_flags_rows_by_the_limits(place, model, rows, tmp_path):
    odd = rows.copy()
    odd[5] += [0, 0, 9, 0, 0]
    _named(odd).write_parquet(tmp_path / "odd.parquet")
    out = tmp_path / "s.csv"
    found = good("score", "m.dpca", tmp_path / "odd.parquet", "-o", out, cwd=place)
    wanted = model.outliers(_named(odd))
    assert 6 in found["outliers"]
    assert found["n_outliers"] == int(wanted.flagged.sum())
    table = reading.read(out)
    np.testing.assert_array_equal(table["outlier"].to_numpy(), wanted.flagged)
    np.testing.assert_array_equal(table["spe_limit"].to_numpy(), wanted.spe_limit)
    np.testing.assert_array_equal(table["log_density"], model.score_samples(_named(odd)))


def test_score_by_novelty(place, rows, quick):
    found = quick("score", "k.dpca", "t.csv", "--level", 0.9, cwd=place)
    kernel = dp.load(place / "k.dpca")
    assert found["n_outliers"] == int(kernel.is_novel(_named(rows), 0.9).sum())


@pytest.mark.parametrize("name", ["t.csv", "holes.csv"])
def test_select_shows_every_rule(name, place, inside, quick):
    run = good if name == "t.csv" else quick
    found = run("select", name, "-c", "[a-e]", "--no-standardize", cwd=place)
    rules = {one["rule"]: one["n_components"] for one in found["rules"]}
    assert rules["bic"] == rules["cv-entries"] == 2
    assert ("evidence" in rules) == (name == "t.csv")
    words = inside("select", name, "-c", "[a-e]", cwd=place)[1]
    assert all(rule in words for rule in rules)


def test_calibrate_counts_as_the_model_does(place, model, rows, inside, quick, tmp_path):
    found = quick("calibrate", "m.dpca", "t.csv", "--folds", 5, "--seed", 3, cwd=place)
    wanted = model.calibration(_named(rows), folds=5, random_state=3)
    assert (found["hidden"], found["folds"], found["rows"]) == (300, 5, 60)
    for key, values in (("coverage", wanted.coverage), ("factor", wanted.factor)):
        np.testing.assert_allclose([one[key] for one in found["levels"]], values)
    assert [one["column"] for one in found["columns"]] == NAMES
    chart = tmp_path / "c.svg"
    words = inside("calibrate", "m.dpca", "t.csv", "--chart", chart, cwd=place)[1]
    assert words.startswith("300 entries of 60 rows were hidden in 10 folds")
    assert words.rstrip().endswith(f"Wrote {chart}.") and "<svg" in chart.read_text("utf-8")


def test_calibrate_fits_a_model_to_a_table_alone(place, inside, quick):
    status, printed, said = inside("calibrate", "holes.csv", "-q", 2, "--json", cwd=place)
    found = json.loads(printed)
    assert status == 0 and found["model"] == "CopulaPPCA" and "no model file was given" in said
    assert found["categories"]["hidden"] == 60  # of the column kind
    assert found["hidden"] == 300 - 9


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("m.dpca",), "model file: give the table as well"),
        (("k.dpca", "t.csv"), "KernelPCA has no intervals for missing entries: ppca"),
        (("m.dpca", "t.csv", "--chart", "c.txt"), "expected one of .png"),
    ],
)
def test_calibrate_refuses_what_it_cannot_do(words, why, place, inside):
    status, _, said = inside("calibrate", *words, cwd=place)
    assert status != 0 and why in " ".join(said.split())


def test_inspect_says_what_is_there(place, inside):
    found = good("inspect", "m.dpca", cwd=place)
    assert (found["model"], found["version"], found["n_components"]) == ("PPCA", dp.__version__, 2)
    assert found["columns"] == NAMES
    assert found["arrays"]["components_"] == [2, 5]
    assert found["parameters"]["method"] == "closed"
    words = inside("inspect", "m.dpca", cwd=place)[1]
    assert "PPCA, written by dualpca" in words and "components_ (2, 5)" in words


@pytest.mark.parametrize("name", ["pca", "fa", "bpca", "robust", "dual", "pkpca", "twin"])
def test_every_model_can_be_fitted_and_used(name, place, tmp_path, inside):
    given = [] if name == "bpca" else ["-q", 2]
    given += ["--set", "max_iter=20"] if name == "twin" else []
    given += ["-c", "[a-e]", "-o", tmp_path / "m.dpca"]
    status, printed, said = inside("fit", "t.csv", "-m", name, *given, cwd=place)
    assert (status, printed[:5]) == (0, "Wrote"), said
    out = tmp_path / "z.csv"
    assert inside("transform", tmp_path / "m.dpca", "t.csv", "-o", out, cwd=place)[0] == 0
    assert reading.read(out).height == 60


def test_one_hot_columns_and_standardisation(place, tmp_path, quick):
    given = ("--id", "who", "--one-hot", "kind", "-m", "kpca", "--standardize", "-q", 2)
    found = quick("fit", "t.csv", *given, "-o", tmp_path / "m.dpca", cwd=place)
    assert found["columns"] == [*NAMES, "kind=v", "kind=w"]
    table = dp.load(tmp_path / "m.dpca", return_metadata=True)[1]["table"]
    assert table["levels"] == {"kind": ["u", "v", "w"]}
    assert table["dropped"] == {"kind": "u"}
    assert len(table["scales"]) == 7
    quick("transform", tmp_path / "m.dpca", "t.csv", "-o", tmp_path / "z.csv", cwd=place)


FAILURES = {
    "text": (("fit", "t.csv", "-c", "who", "-o", "x"), 3, "'who' holds text (such as 'r0')"),
    "no file": (("fit", "none.csv", "-o", "x.dpca"), 3, "No such file"),
    "no folder": (("fit", "t.csv", "-o", "no/x.dpca"), 5, "create it first"),
    "no model": (("fit", "t.csv", "-m", "umap", "-o", "x.dpca"), 2, "no such model"),
    "no column": (("fit", "t.csv", "-c", "zz*", "-o", "x.dpca"), 3, "no column matches"),
    "parameter": (("fit", "t.csv", "--set", "depth=3", "-o", "x.dpca"), 2, "no parameter 'depth'"),
    "setting": (("fit", "t.csv", "--set", "depth", "-o", "x.dpca"), 2, "expected name=value"),
    "too many": (("fit", "t.csv", "-c", "[a-e]", "-q", "9", "-o", "x.dpca"), 1, "n_components"),
    "holes": (("fit", "holes.csv", "-c", "[a-e]", "-m", "pca", "-o", "x.dpca"), 1, "PPCA"),
    "not a model": (("inspect", "t.csv"), 4, "not a valid dualpca model file"),
    "not a valid dualpca model file": (
        ("score", "none.dpca", "t.csv"),
        4,
        "none.dpca cannot be read",
    ),
    "broken": (("transform", "m.dpca", "broken.csv", "-o", "x.csv"), 3, "line 3"),
    "empty": (("score", "m.dpca", "empty.csv"), 3, "is empty"),
    "header only": (("score", "m.dpca", "header.csv"), 3, "0 rows"),
    "latin-1": (("score", "m.dpca", "latin.csv"), 3, "--encoding"),
    "ending": (("transform", "m.dpca", "t.csv", "-o", "x.doc"), 3, "format"),
    "cannot": (("impute", "k.dpca", "t.csv", "-o", "x.csv"), 1, "KernelPCA cannot impute"),
    "identifier": (("transform", "m.dpca", "t.csv", "--id", "no", "-o", "x.csv"), 3, "--id no"),
    "limit": (("score", "m.dpca", "t.csv", "--memory-limit", "much"), 2, "500MB"),
    "small limit": (("score", "m.dpca", "t.csv", "--memory-limit", "1MB"), 3, "raise the limit"),
    "folder": (("transform", "m.dpca", "t.csv", "-o", "."), 2, "is a folder"),
    "lengths": (("fit", "t.csv", "--lengths", "3,4", "-o", "x.dpca"), 2, "--model hmm"),
    "std of draws": (
        ("impute", "m.dpca", "t.csv", "-o", "x.csv", "--std", "s.csv", "--draws", 2),
        2,
        "exclude each other",
    ),
    "one place": (
        ("impute", "m.dpca", "t.csv", "-o", "x.csv", "--std", "x.csv"),
        2,
        "the same file",
    ),
}


@pytest.fixture(scope="module")
def broken(place):
    (place / "broken.csv").write_text("a,b\n1,2\n3\n")
    (place / "empty.csv").write_text("")
    (place / "header.csv").write_text("a,b,c,d,e\n")
    (place / "latin.csv").write_bytes("é\n1\n".encode("latin-1"))
    return place


@pytest.mark.parametrize("arguments, code, words", FAILURES.values(), ids=FAILURES)
def test_failures_say_why_and_leave_nothing(arguments, code, words, broken, inside):
    before = sorted(os.listdir(broken))
    status, printed, said = inside(*arguments, cwd=broken)
    assert (status, printed) == (code, "")
    assert words in said
    assert said.startswith(f"dualpca {arguments[0]}: ")
    assert said.count("\n") == 1
    assert sorted(os.listdir(broken)) == before


@pytest.mark.parametrize("name", ["broken", "not a model"])
def test_failures_in_another_process(name, broken):
    arguments, code, words = FAILURES[name]
    done = call(*arguments, "--json", cwd=broken)
    assert done.returncode == json.loads(done.stdout)["status"] == code
    assert words in json.loads(done.stdout)["error"]
    assert words in done.stderr.decode() and b"Traceback" not in done.stderr


USAGE = {
    "no output": ("transform", "m.dpca", "t.csv"),
    "two on one": ("transform", "m.dpca", "t.csv", "-o", "-", "--json"),
    "seed": ("sample", "m.dpca", "-o", "x.csv", "--seed", -1),
}


@pytest.mark.parametrize("arguments", USAGE.values(), ids=USAGE)
def test_wrong_usage_is_status_2(arguments, place, inside):
    status, printed, said = inside(*arguments, cwd=place)
    assert (status, said != "") == (2, True)
    assert printed == "" or json.loads(printed)["status"] == 2
    assert not (place / "x.csv").exists()


def test_an_interrupt_leaves_nothing(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 60))
    X[rng.random(X.shape) < 0.4] = np.nan
    np.save(tmp_path / "t.npy", X)
    slow = ("-q", "20", "--set", "tol=0", "--set", "max_iter=100000", "--set", "verbose=true")
    work = subprocess.Popen(
        [*ENTRY, "fit", "t.npy", *slow, "-o", "x.dpca"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert b" of 100000" in work.stderr.readline()  # EM is at work
    work.send_signal(signal.SIGINT)
    printed, said = work.communicate(timeout=60)
    assert (work.returncode, printed) == (130, b"")
    assert said.endswith(b"dualpca fit: interrupted; nothing was written.\n")
    assert os.listdir(tmp_path) == ["t.npy"]


def test_long_work_tells_how_far_it_is_where_there_is_no_terminal(capsys):
    lines = Lines("report", between=0)
    with showing(True, lines), task("section", 3) as tick:
        for name in ("data", "spectrum", "trust"):
            tick(name)
            lines.write("solver 'dense'\n")  # a note is no progress
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "dualpca report: section 1 of 3, data (0 s)"
    assert told[-1] == "dualpca report: section 3 of 3, trust (0 s)"


def test_short_work_prints_nothing_but_its_result(capsys):
    with showing(True, Lines("report")), task("section", 3) as tick:
        tick("data")
    assert capsys.readouterr().err == ""


def test_reports_of_a_fit_move_the_bar(rows):
    bar = Progress(disable=True)
    at = bar.add_task("fit", total=None)
    holes = rows.copy()
    holes[0, 0] = np.nan
    with showing(True, Followed(bar, at)):
        dp.PPCA(2).fit(holes)
    assert bar.tasks[0].total == 1000
    assert 0 < bar.tasks[0].completed < 1000
    assert "of 1000" in bar.tasks[0].description


def test_score_gives_reasons_and_contributions(place, model, rows, tmp_path, quick, inside):
    odd = rows.copy()
    odd[5] += [0, 0, 9, 0, 0]
    odd[7, 1] = np.nan
    _named(odd).write_parquet(tmp_path / "odd.parquet")
    out = tmp_path / "s.csv"
    found = quick("score", "m.dpca", tmp_path / "odd.parquet", "-o", out, cwd=place)
    table = reading.read(out)
    wanted = model.contributions(_named(odd), signed=True)
    for j, name in enumerate(NAMES):
        np.testing.assert_array_equal(table[f"contribution of {name}"], np.asarray(wanted)[:, j])
    flagged = table["outlier"].to_numpy()
    assert [bool(words) for words in table["reason"].fill_null("")] == flagged.tolist()
    at = found["outliers"].index(6)
    times = table["spe"][5] / table["spe_limit"][5]
    assert found["reasons"][at].startswith(f"SPE {times:.3g} × its limit: c ")
    assert table["reason"][5] == found["reasons"][at]


def test_score_by_a_monitor_takes_rows_as_they_follow_one_another(rows, tmp_path, quick, inside):
    table = _named(np.tile(rows, (4, 1)) + 0.05 * np.random.default_rng(1).normal(size=(240, 5)))
    fitted = dp.Monitor(random_state=0).fit(table)
    fitted.save(tmp_path / "p.dpca")
    later = table.with_columns(
        pl.col("b") + pl.when(pl.int_range(240) >= 200).then(2.0).otherwise(0)
    )
    later.write_parquet(tmp_path / "t.parquet")
    found = quick("score", "p.dpca", "t.parquet", "-o", "s.parquet", cwd=tmp_path)
    chart = fitted.chart(later)
    judged = pl.read_parquet(tmp_path / "s.parquet")
    assert found["n_outliers"] == int(chart.alarms.sum()) and found["arl"] == 370
    for name, values in chart.statistics.items():
        np.testing.assert_array_equal(judged[name], values)
    assert judged["reason"][230].split(":")[1].startswith(" b ")
    words = inside("score", "p.dpca", "t.parquet", cwd=tmp_path)[1]
    assert "in alarm, and one false alarm in 370 ordinary rows is expected" in words
