"""Supplementary columns and rows on the command line, in reports and in figures."""

import json
import re
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest

pytest.importorskip("typer", reason="the app extra is not installed: no command line to test")
pytest.importorskip("plotly", reason="the app extra is not installed: no script to put in")

from sklearn.datasets import load_iris

import dualpca as dp
from dualpca import plots, report
from dualpca.app.cli._beside import Apart, apart_in, apart_of
from dualpca.app.cli._fit import fit_table
from dualpca.app.cli._running import Beside, Choice
from dualpca.app.report import beside, directions, mixed, places
from dualpca.app.report.subject import LeftOut
from dualpca.app.tables.columns import Preparation
from dualpca.app.tables.reading import TableFile
from dualpca.app.tables.text import TableError
from dualpca.errors import ModelFileError

X, Y = load_iris(return_X_y=True)
KIND = np.array(["setosa", "versicolor", "virginica"])[Y]
NAMES = ["sepal length", "sepal width", "petal length"]
TEST = np.arange(150) % 12 == 5


def table():
    return pl.DataFrame(X, schema=[*NAMES, "petal width"], orient="row").with_columns(
        pl.Series("kind", KIND),
        pl.Series("set", np.where(TEST, "test", "train")),
        pl.Series("month", 1 + np.arange(150) % 4),
    )


@pytest.fixture
def run(inside, tmp_path):
    table().write_csv(tmp_path / "iris.csv")

    def call(*words):
        return Ended(*inside(*words, cwd=tmp_path))

    return call


class Ended(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


APART = ["--supplementary", "kind", "--supplementary", "petal w*", "--supplementary", "month"]
APART += ["--one-hot", "month", "--supplementary-rows", "set=test"]


def test_the_model_does_not_see_what_is_apart(run, tmp_path):
    found = run("fit", "iris.csv", "-q", "2", *APART)
    assert found.returncode == 0, found.stderr
    assert "columns kind, petal width, month and rows with set=test" in found.stdout
    assert "13 of 150 rows are supplementary" in found.stderr
    model, metadata = dp.load(tmp_path / "iris.dpca", return_metadata=True)
    assert list(model.feature_names_in_) == NAMES
    assert metadata["supplementary"] == {
        "columns": ["kind", "petal width", "month"],
        "categories": ["month"],
        "rows": [["set", "test"]],
    }
    plain = dp.PPCA(2, standardize=True).fit(X[~TEST, :3])
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-9)


def test_the_report_shows_what_the_model_file_sets_apart(run, tmp_path):
    run("fit", "iris.csv", "-q", "2", *APART)
    made = run("report", "iris.dpca", "iris.csv", "--json")
    assert made.returncode == 0, made.stderr
    told = json.loads(made.stdout)
    assert told["rows"] == 137
    assert "Supplementary columns and rows" in told["sections"]
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    model = dp.PPCA(2, standardize=True).fit(X[~TEST, :3])
    columns = {"kind": KIND[~TEST], "petal width": X[~TEST, 3]}
    right = dp.supplementary(model, X[~TEST, :3], columns)
    cells = re.findall(r'<th scope="row">petal width</th>((?:<td>[^<]*</td>)+)', html)
    r = f"{right.numbers.correlation[0, 0]:.2f}"
    assert any(f"<td>137</td><td>{r}</td>" in row for row in cells)
    v = f"{right.levels.v_test[0, 0]:.1f}".replace("-", "−")
    assert f"<td>{v}</td>" in html
    assert '<th scope="row">month=4</th>' in html
    assert '<th scope="row">6</th>' in html  # the first supplementary row, as the table counts


def test_a_table_alone_and_columns_for_a_model_without(run, tmp_path):
    asked = ["--supplementary", "kind", "--exclude", "set", "--exclude", "month"]
    made = run("report", "iris.csv", "-q", "2", *asked, "--json")
    assert made.returncode == 0, made.stderr
    assert "Supplementary columns and rows" in json.loads(made.stdout)["sections"]
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "--supplementary kind" in html  # the command that makes the page again
    dp.PPCA(2).fit(table().select(NAMES)).save(tmp_path / "plain.dpca")
    made = run("report", "plain.dpca", "iris.csv", "--supplementary", "kind", "--json")
    assert "Supplementary columns and rows" in json.loads(made.stdout)["sections"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--supplementary", "colour"], "--supplementary colour: no such column; there are"),
        (["--supplementary-rows", "set"], "expected COLUMN=VALUE, as in set=test"),
        (["--supplementary-rows", "part=1"], "no such column; there are"),
        (["--supplementary-rows", "set=valid"], "no row has that value"),
    ],
)
def test_refusals(run, options, words):
    found = run("fit", "iris.csv", *options)
    assert found.returncode != 0
    assert words in " ".join(found.stderr.replace("│", " ").split())


def test_a_column_of_the_model_is_not_beside_it(run):
    run("fit", "iris.csv", "-q", "2", *APART)
    found = run("report", "iris.dpca", "iris.csv", "--supplementary", "sepal*")
    assert found.returncode != 0
    assert "the model uses this column" in found.stderr


def test_a_model_file_with_other_things_there_is_refused(run, tmp_path):
    model = dp.PPCA(2).fit(table().select(NAMES))
    model.save(tmp_path / "odd.dpca", metadata={"supplementary": {"columns": [3]}})
    found = run("report", "odd.dpca", "iris.csv")
    assert found.returncode != 0
    assert "metadata's supplementary must be text" in found.stderr
    with pytest.raises(ModelFileError, match="lists"):
        apart_in({"supplementary": {"rows": "set=test"}})


@pytest.mark.filterwarnings("ignore::dualpca.app.cli._running.NoteWarning")
def test_large_tables_leave_rows_out_batch_by_batch():
    frame = table()
    batches = TableFile("t", frame.columns, 150, 15, lambda: frame.iter_slices(10))
    apart = Apart(rows=(("kind", "setosa"), ("set", "test")))
    kept = apart.fitted(batches)
    assert pl.concat(kept.open()).equals(frame.filter((pl.col("kind") != "setosa") & ~TEST))
    model = dp.PPCA(2)
    fit_table(model, "ppca", kept, Preparation(tuple(NAMES)))
    plain = dp.PPCA(2).fit(X[~TEST & (Y > 0), :3])
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-8)
    with pytest.raises(TableError, match="every row has that value"):
        Apart(rows=(("set", "test"), ("set", "train"))).fitted(batches)


# --- sections and figures ----------------------------------------------------------------------


def subject(model, rows=X[:, :3], **options):
    columns = {"kind": KIND, "petal width": X[:, 3]}
    return report.subject_of(model.fit(rows), rows, supplementary=columns, **options)


def test_barycentres_and_dashed_arrows_are_where_they_belong():
    about = subject(dp.PPCA(2, standardize=True), supplementary_rows=X[:5, :3])
    found = about.supplementary
    drawn = places.places(about).parts[0]
    marks = next(trace for trace in drawn.data if trace.get("name") == "kind")
    np.testing.assert_allclose(marks["x"], found.levels.coordinates[:, 0], rtol=1e-3)
    crosses = next(trace for trace in drawn.data if trace.get("name") == "supplementary row")
    np.testing.assert_allclose(crosses["y"], found.rows.coordinates[:, 1], rtol=1e-3)
    assert {one["text"].strip() for one in drawn.layout["annotations"]} == set(KIND)
    both = directions.biplot(about).parts[0]
    arrow = next(trace for trace in both.data if trace.get("name") == "not in the model")
    assert arrow["line"]["dash"] == "dash"
    solid = [one for one in both.layout["annotations"] if one.get("showarrow")]
    # arrows per standard deviation, all with the same factor: those of the model are loadings
    loading = np.asarray(about.model.loadings_ / about.model.scale_[:, None])
    factor = np.hypot(solid[0]["x"], solid[0]["y"]) / np.linalg.norm(loading[0])
    tip = [arrow["x"][1], arrow["y"][1]]
    np.testing.assert_allclose(tip, factor * found.numbers.latent_correlation[0], rtol=2e-3)


@pytest.mark.parametrize("model", [dp.PCA(2, standardize=True), dp.FactorAnalysis(1), dp.PPCA(1)])
@pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")
def test_every_linear_model_has_the_section(model):
    about = subject(model)
    section = beside.beside(about)
    assert len(section.parts) == 3
    assert "petal width rises along latent 1" in section.text[0]
    assert places.places(about).parts[0].finding


def test_missing_entries_add_corrected_correlations():
    rows = np.where(np.random.default_rng(0).random((150, 3)) < 0.3, np.nan, X[:, :3])
    section = beside.beside(subject(dp.PPCA(1, standardize=True), rows))
    assert section.parts[0].header == ["column", "rows", "correlation 1", "corrected 1"]
    _, _, plain, corrected = section.parts[0].rows[0]
    assert float(plain) < float(corrected)
    assert "Corrected correlations" in section.text[-1]


def test_what_cannot_be_shown_is_left_out_with_a_reason():
    assert beside.beside(report.subject_of(dp.PPCA(2).fit(X), X)) is None
    with pytest.raises(LeftOut, match="no single set of latents"):
        beside.beside(subject(dp.MixturePPCA(2, 1, random_state=0)))


def test_beside_a_model_of_columns_of_any_kind():
    frame = table().with_columns(pl.Series("wide", np.where(X[:, 1] > 3, "yes", "no")))
    model = dp.CopulaPPCA(2, random_state=0).fit(frame.select([*NAMES, "wide"]))
    beyond = {"supplementary": ["kind", "petal width"], "supplementary_rows": frame[:4]}
    about = report.subject_of(model, frame, **beyond)
    assert len(beside.beside(about).parts) == 4
    drawn = places.places(about).parts[0]
    names = [trace.get("name") for trace in drawn.data]
    assert "supplementary row" in names and "kind" in names
    both = mixed.biplot(about).parts[0]
    assert any(trace.get("name") == "not in the model" for trace in both.data)


def test_codes_beside_a_model_of_columns_of_any_kind():
    choice = Choice(kinds=["month=nominal", "kind=nominal"])
    apart = apart_of(Beside(["month"]), choice, table().columns)
    assert apart.categories == ("month",)
    assert apart.choice(choice).kinds == ["kind=nominal"]


def test_report_from_python_by_names_of_columns(tmp_path):
    frame = table().to_pandas()
    model = dp.PPCA(2).fit(frame[NAMES])
    report.write(model, frame, tmp_path / "r.html", supplementary=["kind", "petal width"])
    assert "kind=setosa" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_many_levels_stay_readable():
    many = {"code": [f"code {i % 60}" for i in range(150)]}
    about = report.subject_of(dp.PPCA(2).fit(X), X, supplementary=many)
    drawn = places.places(about).parts[0]
    assert len(next(t for t in drawn.data if t.get("name") == "code")["x"]) == beside.LEVELS
    assert beside.beside(about).parts[0].folded


def test_figures_of_matplotlib():
    pytest.importorskip("matplotlib")
    model = dp.PPCA(2, standardize=True).fit(X[:, :3])
    columns = {"petal width": X[:, 3], "kind": KIND}
    found = dp.supplementary(model, X[:, :3], columns, rows=X[:3, :3])
    for figure in (
        plots.biplot(model, X[:, :3], supplementary=found),
        plots.latent_scatter(model, X[:, :3], supplementary=found),
    ):
        words = [text.get_text() for text in figure.axes[0].texts]
        assert {"kind=setosa", "kind=versicolor", "kind=virginica"} <= set(words)
    axes = plots.biplot(model, X[:, :3], supplementary=found).axes[0]
    assert len(axes.lines) == 1
    tips = {text.get_text(): np.array(text.xy) for text in axes.texts}
    loading = np.asarray(model.loadings_)[0] / model.scale_[0]
    same = found.numbers.latent_correlation[0] * np.linalg.norm(tips["x0"])
    np.testing.assert_allclose(tips["petal width"], same / np.linalg.norm(loading), rtol=1e-6)
    plain = dp.PCA(2).fit(X[:, :3])
    found = dp.supplementary(plain, X[:, :3], columns)
    axes = plots.biplot(plain, X[:, :3], supplementary=found).axes[0]
    tips = {text.get_text(): np.linalg.norm(text.xy) for text in axes.texts}
    longest = max(tips[name] for name in ("x0", "x1", "x2"))
    size = np.linalg.norm(found.numbers.correlation)
    np.testing.assert_allclose(tips["petal width"], longest * size, rtol=1e-6)
