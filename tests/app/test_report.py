"""The report: one file, nothing from outside, its numbers right, every model."""

import json
import re
import warnings
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import polars as pl
import pytest

pytest.importorskip("typer", reason="the app extra is not installed: no command line to test")
pytest.importorskip("plotly", reason="the app extra is not installed: no script to put in")

import zlib

from sklearn.datasets import load_digits, load_iris

import dualpca as dp
from dualpca import report
from dualpca.app.cli._pages import Asked, _subject
from dualpca.app.report import data, directions, figures, places, rebuilt, through_time, trust
from dualpca.app.report.subject import colour_of
from dualpca.app.report.writing import SECTIONS
from dualpca.app.tables.columns import Preparation

# of pixels, and no matter here
pytestmark = pytest.mark.filterwarnings("ignore:the variance of column")
CHROMIUM = Path("/usr/bin/chromium")
X, Y = load_iris(return_X_y=True)
NAMES = ["sepal length", "sepal width", "petal length", "petal width"]
HOLES = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
NASTY = ["<script>alert(1)</script>", "</script><b>", "a&b\"'%{x}", "\u2028 <!-- <a href=x>"]


def subject(model, rows=X, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.errors.HeywoodWarning)  # of flowers, and no matter here
        model.fit(rows)
    return report.subject_of(model, rows, **options)


@pytest.fixture
def run(inside, tmp_path):
    """Call the entry point, in a folder of its own."""
    return partial(inside, cwd=tmp_path)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with tables, models and three reports: flowers, holes with nasty names, digits."""
    folder = tmp_path_factory.mktemp("report")
    flowers = pl.DataFrame(X, schema=NAMES, orient="row").with_columns(
        pl.Series("kind", np.array(["setosa", "versicolor", "virginica"])[Y]),
        pl.Series("who", [f"flower {i}" for i in range(150)]),
    )
    flowers.write_csv(folder / "iris.csv")
    dp.PPCA(2).fit(flowers.select(NAMES)).save(folder / "iris.dpca")
    nasty = pl.DataFrame(HOLES, schema=NASTY, orient="row")
    rows = [f"<img src=x onerror=alert({i})>" for i in range(150)]
    table = nasty.with_columns(pl.Series("<i>who</i>", rows), pl.Series("</b>", rows[:3] * 50))
    model = dp.PPCA(2).fit(nasty)
    options = {"color": "</b>", "ids": "<i>who</i>", "title": "</title><script>1</script>"}
    report.write(model, table, folder / "nasty.html", **options)
    images, digits = load_digits(return_X_y=True)
    model = dp.PPCA(5).fit(images)
    report.write(model, images[:300], folder / "digits.html", color=digits[:300], image=(8, 8))
    return folder


class Document(HTMLParser):
    """Elements with their attributes, and the JSON of the figures."""

    def __init__(self, html):
        super().__init__()
        self.found, self.json, self.script, self.words = [], {}, None, []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self.script = dict(attrs) if tag == "script" else None

    def handle_endtag(self, tag):
        self.script = None

    def handle_data(self, text):
        if self.script is None:
            self.words.append(text)
        elif "id" in self.script:
            self.json[self.script["id"]] = json.loads(text)

    def __call__(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def document(path):
    return Document(path.read_text(encoding="utf-8"))


# --- the command ----------------------------------------------------------------------


def test_command_writes_a_page_and_says_so(place, run, tmp_path):
    files = (place / "iris.dpca", place / "iris.csv")
    code, out, err = run("report", *files, "--color", "kind", "--id", "who", "-o", "r.html")
    assert (code, err) == (0, "")
    assert re.match(r"Wrote r\.html \(\d\.\d MB\): 150 rows, 10 sections", out)
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]
    page = document(tmp_path / "r.html")
    text = " ".join(page.words)
    assert "iris.csv, seen by PPCA" in text and "dualpca report" in text and "--id who" in text
    assert "flower 100" in text  # the most unusual row, by its name
    headings = [attributes["aria-labelledby"] for attributes in page("section")]
    links = {attributes["href"] for attributes in page("a")}
    assert links == {"#" + name.removesuffix("-title") for name in headings}


def test_json_lists_sections_and_what_was_left_out(place, run):
    code, out, _ = run("report", place / "iris.dpca", place / "iris.csv", "--json")
    found = json.loads(out)
    assert code == 0 and found["output"] == "report.html" and found["rows"] == 150
    assert found["bytes"] < 10e6
    assert set(found["left_out"]) == {"What is missing", "Groups or states", "What is filled in"}
    # neither supplementary columns nor a time; but how it was made
    assert len(found["sections"]) + len(found["left_out"]) == len(SECTIONS) - 2 + 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--color", "colour"), "no such column"),
        (("--id", "nobody"), "no such column"),
        (("--image", "3x3"), "height × width = 4"),
        (("--image", "wide"), "such as 8x8"),
        (("--level", "1.5"), "between 0 and 1"),
        (("-o", "nowhere/r.html"), "does not exist"),
    ],
)
def test_what_cannot_be_is_refused_in_words(place, run, tmp_path, options, words):
    code, out, err = run("report", place / "iris.dpca", place / "iris.csv", *options)
    assert code in (1, 2, 3, 5)  # docs/guide/command-line.md says which
    assert words in err and out == ""
    assert list(tmp_path.iterdir()) == []


def test_interrupt_leaves_nothing(place, run, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setitem(SECTIONS, "Unusual rows", interrupted)
    code, _, err = run("report", place / "iris.dpca", place / "iris.csv")
    assert code == 130 and "nothing was written" in err
    assert list(tmp_path.iterdir()) == []


def test_model_file_says_how_rows_were_standardised_and_what_images_they_are(run, tmp_path):
    frame = pl.DataFrame(X, schema=NAMES, orient="row")
    mean, scale = X.mean(axis=0), X.std(axis=0)
    scaled = pl.DataFrame((X - mean) / scale, schema=NAMES, orient="row")
    table = {"means": mean.tolist(), "scales": scale.tolist(), "image_shape": [2, 2]}
    dp.save(dp.PPCA(2).fit(scaled), tmp_path / "m.dpca", metadata={"table": table})
    frame.write_csv(tmp_path / "t.csv")
    assert run("report", "m.dpca", "t.csv")[0] == 0
    text = " ".join(document(tmp_path / "report.html").words)
    assert "150 images of 2 × 2 pixels, from 0.1 (white) to 7.9 (black)" in text
    about = _subject(Asked("m.dpca", "t.csv", Path("r.html")))
    np.testing.assert_allclose(about.X, X)
    np.testing.assert_allclose(about.rows(about.X).to_numpy(), scaled.to_numpy(), atol=1e-12)


# --- the page -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nasty", "digits"])
def test_page_loads_nothing(place, name):
    html = (place / f"{name}.html").read_text(encoding="utf-8")
    assert len(html.encode()) < 10e6
    page = Document(html)
    for _, attributes in page.found:
        for key in ("src", "srcset", "action", "data"):
            assert attributes.get(key, "data:").startswith("data:")
        assert attributes.get("href", "#").startswith(("#", "data:"))
        assert not any(key.startswith("on") for key in attributes)
    own = re.sub(r"<script>.*?</script>", "", html, flags=re.S)
    assert not re.search(r"https?://|@import|url\(", own)
    assert html.count("plotly.js v") == 1  # the script is there once
    policy = next(a["content"] for a in page("meta") if "http-equiv" in a)
    assert "default-src 'none'" in policy and policy.count("sha256-") == 2
    assert "unsafe-inline" not in policy.split("script-src")[1]


def test_names_are_words_and_never_markup(place):
    page = document(place / "nasty.html")
    scripts = [attributes for attributes in page("script") if "id" not in attributes]
    assert len(scripts) == 2 and not page("br") and not page("i")
    assert all(attributes["src"].startswith("data:") for attributes in page("img"))
    text = " ".join(page.words)
    for name in NASTY:
        assert name.split("\u2028")[-1].strip() in text
    ticks = [figure["layout"]["yaxis"].get("ticktext", []) for figure in page.json.values()]
    assert figures.shown(NASTY[0]) in {name for some in ticks for name in some}
    assert not re.search(r"<(?!/?(extra|br)>)", json.dumps(list(page.json.values())))


def test_json_in_the_page_cannot_end_its_element():
    words = "</script><script>alert(1)</script><!--\u2028&"
    plot = figures.plot([{"name": words}], {}, {}, "label", "finding")
    page = Document(report.render(report.Page("t", [], [report.Section("s", "", "", [plot])])))
    assert page.json["figure-1-data"]["data"] == [{"name": words}]
    assert len(page("script")) == 3  # the data, plotly and the page's own


@pytest.mark.parametrize("name", ["nasty", "digits"])
def test_figures_are_what_plotly_knows_and_are_told_in_words(place, name):
    from plotly.graph_objects import Figure

    page = document(place / f"{name}.html")
    plots = [attributes for attributes in page("div") if attributes.get("class") == "plot"]
    assert len(plots) == len(page.json) >= 4
    for figure in page.json.values():
        Figure(figure)  # refuses properties that plotly does not have
    assert all(attributes["role"] == "img" for attributes in plots)
    assert all(len(attributes["aria-label"]) > 20 for attributes in plots)
    described = {attributes["aria-describedby"] for attributes in plots}
    assert described <= {attributes.get("id") for attributes in page("figcaption")}
    assert all(attributes["alt"] for attributes in page("img"))
    assert not re.search(r"\b(nan|inf|None)\b", " ".join(page.words).split("Every parameter of")[0])


# --- every model ----------------------------------------------------------------------

ALL = set(SECTIONS) - {"Supplementary columns and rows", "Rows over time"}
COMPLETE = {"What is missing", "What is filled in"}
SPARSE = COMPLETE | {"What the directions are made of", "Rows and columns together"}
ALWAYS = COMPLETE | {"Groups or states"}
TRUST = "Can its intervals be trusted?"
MODELS = {
    "pca": (dp.PCA(2), ALWAYS | {TRUST}),
    "whitened": (dp.PCA(2, whiten=True, standardize=True), ALWAYS | {TRUST}),
    "ppca": (dp.PPCA(2), ALWAYS),
    "one": (dp.PPCA(1), ALWAYS | {"Rows and columns together"}),
    "factors": (dp.FactorAnalysis(1), ALWAYS | {"Rows and columns together"}),
    "bayesian": (dp.BayesianPCA(), ALWAYS),
    "robust": (dp.RobustPPCA(2), ALWAYS),
    "kernel": (
        dp.KernelPCA(2, kernel="rbf"),
        ALWAYS | SPARSE | {TRUST},
    ),
    "dual": (dp.DualPPCA(2), ALWAYS | SPARSE | {TRUST}),
    "coordinates": (
        dp.ProbabilisticKernelPCA(2),
        ALL - {"What the data is", "How many directions matter", "Where the rows lie"},
    ),
    "mixture": (dp.MixturePPCA(2, 1, random_state=0), SPARSE),
    "tree": (
        dp.HierarchicalPPCA([2, 2]),
        SPARSE | {TRUST, "How many directions matter", "What the model keeps of each row"},
    ),
    "kernel mixture": (dp.MixturePPCA(2, 1, kernel="rbf", random_state=0), SPARSE | {TRUST}),
    "chain": (
        dp.HiddenMarkovPCA(2, 1, random_state=0),
        SPARSE
        | {TRUST, "How many directions matter", "What the model keeps of each row", "Unusual rows"},
    ),
    "imputer": (dp.Imputer(2), ALWAYS),
    "generator": (dp.Generator(dp.PPCA(2)), ALWAYS),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_shows_what_it_has_and_says_what_it_has_not(name):
    model, without = MODELS[name]
    page = report.build(subject(model, X[::2], color=Y[::2]))
    assert {title for title, _ in page.left_out} == without
    assert not any("could not be made" in why for _, why in page.left_out)
    assert all(why.endswith(".") for _, why in page.left_out)
    html = report.render(page)
    for title, why in page.left_out:
        assert title in html and "<details" in html and len(why) > 20


@pytest.mark.parametrize(
    "model", [dp.PPCA(2), dp.FactorAnalysis(1), dp.BayesianPCA(), dp.MixturePPCA(2, 1)], ids=repr
)
@pytest.mark.slow
def test_holes_are_taken_by_models_that_take_them(model):
    page = report.build(subject(model, HOLES))
    assert "What is missing" in [section.title for section in page.sections]
    assert not any("could not be made" in why for _, why in page.left_out)
    assert "9 % of the entries are missing" in page.lead[1]


def test_model_without_holes_says_so():
    page = report.build(report.subject_of(dp.PCA(2).fit(X), HOLES))
    reasons = dict(page.left_out)
    assert "needs complete rows" in reasons["Where the rows lie"]


def test_models_of_two_tables_are_refused():
    model = dp.CCA(1).fit(X[:, :2], X[:, 2:])
    with pytest.raises(report.ReportError, match="more than one table"):
        report.subject_of(model, X)


# --- the numbers ----------------------------------------------------------------------


def test_rules_are_those_of_the_models():
    found = {one.rule: one.q for one in directions.choices(subject(dp.PPCA(2)))}
    for rule in directions.RULES:
        assert found[rule] == dp.PPCA(rule, random_state=0).fit(X).n_components_
    assert found["95 % of variance"] == dp.PPCA(0.95).fit(X).n_components_


def test_spectrum_has_all_variances_of_the_table():
    kept, rest = directions.variances(subject(dp.PCA(2)))
    want = np.sort(np.linalg.eigvalsh(np.cov(X.T)))[::-1]
    np.testing.assert_allclose(np.concatenate([kept, rest]), want, rtol=1e-10)


def test_share_that_comes_back_is_the_model_s():
    model = dp.PCA(2).fit(X)
    again = np.asarray(model.reconstruct(X))
    share = rebuilt.rebuilt_shares(X, again)
    total = np.sum(X.var(axis=0) * share) / np.sum(X.var(axis=0))
    assert total == pytest.approx(np.sum(model.explained_variance_ratio_))
    assert np.isnan(rebuilt.rebuilt_shares(np.ones((3, 1)), np.ones((3, 1)))).all()


def test_loadings_have_the_error_bars_of_refits():
    rng = np.random.default_rng(0)
    W = np.array([[3.0], [2.0], [0.0], [1.0]])
    many = [rng.normal(size=(400, 1)) @ W.T + 0.5 * rng.normal(size=(400, 4)) for _ in range(60)]
    true = np.std([np.abs(directions.matrix(subject(dp.PPCA(1), one))) for one in many[1:]], axis=0)
    found = directions.loadings(subject(dp.PPCA(1), many[0]))
    big = [0, 1, 3]
    np.testing.assert_allclose(found.error[big], true[big], rtol=0.45)
    assert abs(found.W[2, 0]) < 3 * found.error[2, 0]


def test_error_bars_of_few_rows_of_many_are_those_of_all(monkeypatch):
    rows = np.random.default_rng(1).normal(size=(4000, 3)) * [3.0, 1.0, 0.5]
    whole = directions.loadings(subject(dp.PCA(1), rows)).error[0, 0]
    monkeypatch.setattr(directions, "REFITTED", 400)
    part = directions.loadings(subject(dp.PCA(1), rows)).error[0, 0]
    assert part == pytest.approx(whole, rel=0.5)


def test_directions_are_turned_to_the_same_side_before_they_are_compared():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 1)) * [1.0, -1.0] + 0.1 * rng.normal(size=(300, 2))
    assert directions.loadings(subject(dp.PPCA(1), rows)).error.max() < 0.1


def test_bayesian_loadings_have_their_own_error_bars():
    about = subject(dp.BayesianPCA())
    np.testing.assert_allclose(directions.loadings(about).error, about.model.loadings_std_)


def test_rings_hold_what_they_promise():
    rng = np.random.default_rng(0)
    C = np.array([[2.0, 0.8], [0.8, 1.0]])
    path = places.ring(np.array([1.0, -1.0]), C, 0.9) - [1.0, -1.0]
    distance = np.einsum("ij,jk,ik->i", path, np.linalg.inv(C), path)
    np.testing.assert_allclose(distance, distance[0])
    Z = rng.multivariate_normal([0, 0], C, 20000)
    inside = np.einsum("ij,jk,ik->i", Z, np.linalg.inv(C), Z) <= distance[0]
    assert inside.mean() == pytest.approx(0.9, abs=0.01)


def test_unusual_rows_are_named_with_their_columns():
    rows = X.copy()
    rows[17, 1] = 30.0
    about = report.subject_of(dp.PPCA(2).fit(X), rows, ids=[f"r{i}" for i in range(150)])
    section = trust.unusual(about)
    first = section.parts[1].rows[0]
    assert first[0] == "r17" and first[3].startswith("x1 higher (30")
    found = trust.judged(about)
    outliers = about.model.outliers(rows)
    assert np.array_equal(np.maximum(*found) > 1, outliers.flagged)
    assert "row r17" in section.parts[0].finding


def test_ordinary_rows_of_a_small_table_are_beyond_the_limit_of_a_density_as_often_as_it_says():
    rng, beyond, fewer = np.random.default_rng(0), [], []
    for _ in range(25):
        places = np.repeat([[0.0], [7.0]], 25, axis=0)
        rows = places + rng.normal(size=(50, 1)) + rng.normal(size=(50, 6))
        about = subject(dp.MixturePPCA(2, 1, random_state=0), rows)
        found, limit = trust.left_out_densities(about, np.arange(50))
        beyond.append(np.mean(found > limit))
        fewer.append(np.mean(-np.asarray(about.model.score_samples(about.rows(about.X))) > limit))
    assert abs(np.mean(beyond) - 0.05) < 3 * np.std(beyond) / 5 < 0.03
    assert np.mean(fewer) < 0.02  # rows that the model has seen


def test_calibration_of_the_right_model_is_right():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(900, 2)) @ rng.normal(size=(2, 6)) + 0.5 * rng.normal(size=(900, 6))
    measured = trust.measured(subject(dp.PPCA(2), rows))
    found, error, plain = measured.calibration, measured.error, measured.plain
    assert np.abs(found.coverage - found.levels).max() < 0.08
    assert error < 0.9 * plain
    assert trust.verdict(found) == "as confident as it should be"
    for scale, word in ((1.6, "overconfident"), (0.6, "cautious")):
        further = found.entries._replace(distance=scale * found.entries.distance)
        assert word in trust.verdict(replace(found, entries=further))


def test_samples_of_the_data_s_own_law_cannot_be_told_apart():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 400, 3))
    assert rebuilt.alike(a, b) == pytest.approx(0.5, abs=0.06)
    assert rebuilt.alike(a, b + 20) == 1.0


def test_holes_are_counted():
    section = data.missing(subject(dp.PPCA(2), HOLES))
    cells = np.array(section.parts[0].data[0]["z"], dtype=float)
    assert cells.shape == HOLES.shape and np.array_equal(cells, np.isnan(HOLES))
    count = int(np.isnan(HOLES).sum())
    assert section.parts[0].finding.startswith(f"{count} of 600 entries")
    first = data.overview(subject(dp.PPCA(2), HOLES)).parts[1].rows[0]
    holes = np.isnan(HOLES[:, 0])
    assert first[2] == f"{holes.sum()} ({data.percent(holes.mean())})"
    assert first[3:] == ["4.3", figures.said(np.nanmedian(HOLES[:, 0]), 4), "7.9"]


def test_colours_are_classes_or_numbers():
    few = colour_of("a", np.array([3.0, 1.0, np.nan, 3.0]), 4)
    assert few.labels == ("1", "3") and few.values[:2].tolist() == [1.0, 0.0]
    assert few.label(2) == "missing"
    assert colour_of("a", np.linspace(0, 1, 50), 50).labels == ()
    many = colour_of("a", [f"k{i % 14:02}" for i in range(100)], 100)
    assert len(many.labels) == 10 and many.labels[-1] == "others"
    with pytest.raises(report.ReportError, match="each of the 3 rows"):
        colour_of("a", [1, 2], 3)


def test_png_is_the_picture():
    pixels = figures.grey(np.array([[0.0, 1.0, np.nan]]), 0.0, 1.0)
    assert pixels.tolist() == [[[255] * 3, [0] * 3, list(figures.MISSING)]]
    code = figures.encode(pixels)
    start = code.index(b"IDAT") + 4
    assert zlib.decompress(code[start : code.index(b"IEND") - 8]) == b"\x00" + pixels.tobytes()
    low, middle, high = figures.signed(np.array([[-2.0, 0.0, 2.0]]), 2.0)[0].astype(int)
    assert low[2] > low[0] and high[0] > high[2] and min(middle) > 230


# --- the table's units ----------------------------------------------------------------

MIXED = np.where(np.isnan(HOLES), np.nan, HOLES * [1.0, 100.0, 0.01, 1.0] + [0.0, 0.0, 5.0, -40.0])
WHOLE = X * [1.0, 100.0, 0.01, 1.0] + [0.0, 0.0, 5.0, -40.0]


def prepared_subject(model, rows, **options):
    """A report's subject, as from a file that says how rows were standardised before the fit."""
    frame = pl.DataFrame(rows, schema=NAMES, orient="row")
    prep = Preparation(tuple(NAMES)).standardized([frame])
    model.fit(prep.rows(frame))
    table = frame.with_columns(pl.Series("who", [f"flower {i}" for i in range(len(rows))]))
    return report.subject_of(model, table, prepared=prep, **{"ids": "who", **options})


def test_file_that_standardises_and_model_that_standardises_tell_the_same():
    outside = prepared_subject(dp.PCA(2), WHOLE)
    inside = subject(dp.PCA(2, standardize=True), pl.DataFrame(WHOLE, schema=NAMES, orient="row"))
    assert not outside.own_scale and inside.own_scale
    for about in (outside, inside):
        np.testing.assert_array_equal(about.X, WHOLE)
        np.testing.assert_allclose(about.scale, WHOLE.std(axis=0))
        np.testing.assert_allclose(about.scaled(WHOLE).mean(axis=0), 0, atol=1e-10)
    for make in (
        lambda about: about.asked("reconstruct", about.X[:5]),
        lambda about: np.abs(directions.matrix(about)),
        lambda about: np.concatenate(directions.variances(about)),
        lambda about: np.concatenate(trust.judged(about)),
        lambda about: np.abs(directions._arrows_of(about)),
        lambda about: np.sort(about.sampled(2000), axis=0).mean(axis=0),
    ):
        np.testing.assert_allclose(make(outside), make(inside), rtol=1e-7)
    told = [[one.q for one in directions.choices(about)] for about in (outside, inside)]
    assert told[0] == told[1]


def test_ranges_unusual_rows_and_loadings_are_in_the_table_s_units():
    rows = MIXED.copy()
    rows[17] = [5.0, 900.0, 5.03, -38.0]
    about = prepared_subject(dp.PPCA(2), rows)
    ranges = data.overview(about).parts[1].rows
    seen = np.sort(rows[~np.isnan(rows[:, 1]), 1])
    assert ranges[1][3:] == [figures.said(v, 4) for v in np.quantile(seen, [0, 0.5, 1])]
    section = trust.unusual(about)
    first = section.parts[1].rows[0]
    assert first[0] == "flower 17" and "sepal width" in first[3] and "900" in first[3]
    expected = about.asked("reconstruct", rows[[17]])[0, 1]
    assert 200 < expected < 900
    words = directions.directions(about).parts[0].finding
    W = directions.matrix(about) * about.scale[:, None]
    j = int(np.argmax(np.abs(directions.matrix(about)[:, 0])))
    assert f"{NAMES[j]} ({directions._signed(W[j, 0])})" in words
    made = about.sampled(4000)
    np.testing.assert_allclose(made.mean(axis=0), about.centre, atol=0.1 * about.spread.max())
    assert "the columns were standardised" in data.overview(about).parts[0].finding


def test_rows_that_differ_in_units_only_have_the_same_report():
    plain, other = (prepared_subject(dp.PPCA(2), rows) for rows in (HOLES, MIXED))
    for make in (
        lambda about: np.concatenate(trust.judged(about)),
        lambda about: np.concatenate(directions.variances(about)),
        lambda about: trust.measured(about).inside,
    ):
        np.testing.assert_allclose(make(plain), make(other), rtol=1e-4)
    a, b = (trust.measured(about).off for about in (plain, other))
    np.testing.assert_allclose(a * [1.0, 100.0, 0.01, 1.0], b, rtol=1e-4)


# --- missing values -------------------------------------------------------------------


def test_patterns_of_missing_entries_are_counted_and_rows_named():
    rows = X[:40].copy()
    rows[3:9, [1, 2]] = np.nan
    rows[[20, 30], 0] = np.nan
    rows[39] = np.nan
    found = data.patterns(np.isnan(rows))
    assert [one.columns.tolist() for one in found] == [[], [1, 2], [0], [0, 1, 2, 3]]
    assert [len(one.rows) for one in found] == [31, 6, 2, 1]
    about = report.subject_of(dp.PPCA(2).fit(rows[:39]), rows, ids=[f"r{i}" for i in range(40)])
    _, table, shares = data.missing(about).parts
    assert table.rows[1] == ["x1, x2", "6", "15 %", "r3, r4, r5, r6, r7, …"]
    assert table.rows[2] == ["x0", "2", "5 %", "r20, r30"]
    assert table.rows[3][0] == "every column" and not table.folded
    assert [row[0] for row in shares.rows] == ["x1", "x2", "x0", "x3"]
    assert shares.rows[0] == ["x1", "7", "18 %"]


def test_many_patterns_are_folded_but_for_the_first():
    rng = np.random.default_rng(0)
    rows = np.where(rng.random((200, 8)) < 0.3, np.nan, rng.normal(size=(200, 8)))
    _, first, rest, _ = data.missing(subject(dp.PPCA(1), rows)).parts
    assert len(first.rows) == data.FIRST and not first.folded and rest.folded
    assert len(rest.rows) == data.PATTERNS - data.FIRST
    counts = [int(row[1]) for row in (*first.rows, *rest.rows)]
    assert counts == sorted(counts, reverse=True)


def test_map_of_missing_entries_names_rows():
    about = prepared_subject(dp.PPCA(2), MIXED)
    figure = data.missing(about).parts[0]
    assert (
        figure.data[0]["text"][7][0] == "flower 7" and "%{text}" in figure.data[0]["hovertemplate"]
    )
    assert figure.layout["yaxis"]["ticktext"][0] == "flower 0"


def test_spectrum_of_rows_with_missing_entries_has_every_direction():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2000, 6)) * np.sqrt([9.0, 4.0, 1.0, 0.6, 0.4, 0.2])
    partial = np.where(rng.random(rows.shape) < 0.15, np.nan, rows)
    kept, rest = directions.variances(subject(dp.PPCA(2), partial))
    want = np.sort(np.linalg.eigvalsh(np.cov(rows.T)))[::-1]
    np.testing.assert_allclose(np.concatenate([kept, rest]), want, rtol=0.35)
    section = directions.spectrum(subject(dp.PPCA(2), partial))
    assert [trace["name"] for trace in section.parts[0].data] == ["kept", "left to the noise"]
    assert "filled 5 times" in " ".join(section.text)


def test_factors_with_missing_entries_have_a_spectrum():
    kept, rest = directions.variances(subject(dp.FactorAnalysis(1), HOLES))
    assert kept.size == 1 and rest.size == 3 and np.all(np.diff(np.append(kept, rest)) < 0)


@pytest.mark.parametrize("rows", [X, HOLES], ids=["complete", "missing"])
def test_third_latent_is_drawn(rows):
    about = subject(dp.PPCA(3), rows)
    _, third = places.places(about).parts
    Z = about.asked("transform", rows)
    np.testing.assert_allclose(third.data[0]["x"], Z[:, 0], rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(third.data[0]["y"], Z[:, 2], rtol=1e-3, atol=1e-6)
    assert "latent 3" in third.layout["yaxis"]["title"]["text"] and "latent 3" in third.finding
    assert len(places.places(subject(dp.PPCA(2), rows)).parts) == 1


def test_coverage_is_counted_for_every_column():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(600, 2)) @ rng.normal(size=(2, 6)) + 0.5 * rng.normal(size=(600, 6))
    rows *= [1.0, 10.0, 100.0, 1.0, 1.0, 1.0]
    rows[:, 5] = rng.standard_t(2, size=600) ** 3  # no Gaussian
    about = subject(dp.PPCA(2, noise_variance=None), rows / rows.std(axis=0))
    found = trust.measured(about)
    assert found.hidden.sum() == found.calibration.n_hidden and found.rounds == trust.ROUNDS
    at = int(np.argmin(np.abs(found.calibration.levels - trust.TOLD)))
    assert found.inside.sum() / found.hidden.sum() == pytest.approx(found.calibration.coverage[at])
    table = trust.calibrated(about).parts[-1]
    assert table.header[2] == "inside 90 %" and len(table.rows) == 6
    shares = [float(row[2].removesuffix(" %")) for row in table.rows]
    assert shares == sorted(shares)
    assert dict((row[0], row[4]) for row in table.rows)["x5"] == "too wide"
    assert (found.inside[:5] / found.hidden[:5]).min() > 0.8


# --- found beside expected ------------------------------------------------------------


@pytest.mark.parametrize("level", [0.95, 0.99])
def test_expected_number_is_told_beside_the_found_one(level):
    about = subject(dp.PPCA(2), X, level=level)
    found = int(np.sum(np.maximum(*trust.judged(about)) > 1))
    want = figures.said((1 - level) * 150, 2)
    section = trust.unusual(about)
    assert section.parts[0].finding.startswith(f"{found} of 150 rows")
    assert f"about {want} are expected" in section.parts[0].finding
    assert f"({want} rows) would lie beyond" in section.text[0]


@pytest.mark.parametrize("model", [dp.KernelPCA(2, kernel="rbf"), dp.MixturePPCA(2, 1)], ids=repr)
def test_expected_number_is_told_of_other_distances_too(model):
    words = trust.unusual(subject(model.set_params(random_state=0))).parts[0].finding
    assert "of 150 rows" in words and "about 7.5 are expected" in words


# --- how it was made ------------------------------------------------------------------


def facts(about):
    made = report.build(about).sections[-1]
    assert made.title == "How it was made"
    return dict(made.parts[0].rows) | dict(made.parts[1].rows)


def test_fit_command_of_the_file_is_shown(run, tmp_path):
    frame = pl.DataFrame(X[::5], schema=NAMES, orient="row")
    told = "dualpca fit 'my table.csv' -q 2"
    dp.save(dp.PPCA(2).fit(frame), tmp_path / "m.dpca", metadata={"command": told})
    frame.write_csv(tmp_path / "t.csv")
    assert run("report", "m.dpca", "t.csv")[0] == 0
    assert told in " ".join(document(tmp_path / "report.html").words)


def test_fit_command_is_pieced_together_where_the_file_has_none():
    found = facts(prepared_subject(dp.PPCA(2, max_iter=321), X[::5], color="who"))
    assert found["fit command"].startswith(
        "dualpca fit TABLE -o MODEL --model ppca -q 2 --standard"
    )
    assert "--exclude who" in found["fit command"] and "max_iter=321" in found["fit command"]
    plain = facts(subject(dp.PPCA(2), X[::5]))
    assert "fit command" not in plain and plain["standardised"].startswith("no:")


def test_preparation_is_told():
    table = pl.DataFrame(X[::5], schema=NAMES, orient="row").with_columns(
        pl.Series("kind", ["u", "v", "w"] * 10), pl.Series("who", [f"f{i}" for i in range(30)])
    )
    prep = Preparation((*NAMES, "kind"), {"kind": ("u", "v", "w")}, identifier="who")
    prep = prep.standardized([table])
    model = dp.PPCA(2).fit(prep.rows(table))
    table = table.with_columns(pl.Series("note", ["x"] * 30))
    found = facts(report.subject_of(model, table, ids="who", prepared=prep))
    assert found["columns"] == f"5: {', '.join(NAMES)}, kind"
    assert found["levels of kind"] == "u, v, w" and found["names of rows"] == "who"
    assert found["standardised"].startswith("yes, before the fit")
    assert found["left out"] == "note (text, always the same)"
    inside = facts(subject(dp.PCA(2, standardize=True), X[::5]))
    assert inside["standardised"].startswith("yes, by the model itself")


# --- much data ------------------------------------------------------------------------


def test_many_rows_and_columns_are_thinned_and_the_page_says_so(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20_000, 3)) @ rng.normal(size=(3, 60)) + rng.normal(size=(20_000, 60))
    size = report.write(dp.PPCA(3).fit(rows), rows, tmp_path / "r.html")
    assert size < 6e6
    text = " ".join(document(tmp_path / "r.html").words)
    assert "3,000 of the 20,000 rows were drawn at random" in text
    assert "cv-rows 2,000" in text and "the first 40 of 60" in text


@pytest.mark.slow
def test_a_hundred_thousand_rows_of_two_hundred_columns(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(100_000, 8)) @ rng.normal(size=(8, 200))
    rows += rng.normal(size=rows.shape)
    model = dp.PPCA(8).fit(rows)
    rows[rng.random(rows.shape) < 0.02] = np.nan
    assert report.write(model, rows, tmp_path / "r.html") < 10e6


def test_rows_are_not_modified_and_warnings_are_none():
    rows = HOLES.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report.build(subject(dp.PPCA(2), rows))
    np.testing.assert_array_equal(rows, HOLES)


@pytest.mark.parametrize(
    "rows",
    [X[:4], X[:, :1], X[:, :2], np.c_[X, np.ones(150)], X[:5, :].repeat(3, axis=1)],
    ids=["few rows", "one column", "two columns", "constant column", "wide"],
)
def test_small_and_odd_tables(rows):
    page = report.build(subject(dp.PPCA(1) if rows.shape[1] > 1 else dp.PCA(1), rows))
    assert not [why for _, why in page.left_out if "could not be made" in why]


def test_curves_are_drawn_as_curves():
    about = subject(dp.PPCA(2), X, curve=True)
    labels = [directions.directions(about).parts[0].label, rebuilt.invented(about).parts[0].label]
    labels += [plot.label for plot in rebuilt.rebuilt(about).parts[0].plots]
    labels += [rebuilt.rebuilt(about).parts[1].label, data.overview(about).parts[0].label]
    assert all("urve" in label or "Lines" in label for label in labels)


# --- in a browser ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip("chromium is not installed at /usr/bin/chromium: apt-get install chromium")
    with sync.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(browser, path, **options):
    """Open a page with the network off; return it with what it complained of and asked for."""
    context = browser.new_context(offline=True, **options)
    page, complaints, requests = context.new_page(), [], []
    page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_function("document.documentElement.dataset.drawn !== undefined", timeout=60_000)
    asked = [url for url in requests if not url.startswith(("data:", "blob:"))]
    return page, complaints, asked


PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


@pytest.mark.grid
@pytest.mark.parametrize("name", ["nasty", "digits"])
@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
def test_browser_draws_everything_without_network(place, browser, name, options):
    path = place / f"{name}.html"
    page, complaints, requests = opened(browser, path, **options)
    assert complaints == [] and requests == [path.as_uri()]
    plots = page.locator(".plot")
    assert plots.count() == int(page.evaluate("document.documentElement.dataset.drawn")) >= 4
    for i in range(plots.count()):
        assert plots.nth(i).locator("svg.main-svg").first.bounding_box()["height"] > 100
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= page.evaluate("window.innerWidth")
    page.context.close()


@pytest.mark.slow
def test_browser_shows_text_of_figures_in_the_page_s_colours(place, browser):
    colours = {}
    for scheme in ("light", "dark"):
        page, _, _ = opened(browser, place / "nasty.html", color_scheme=scheme)
        colour = "e => getComputedStyle(e).fill"
        colours[scheme] = page.locator(".plot .xtick text").first.evaluate(colour)
        page.emulate_media(media="print")
        printed = page.locator(".plot .xtick text").first.evaluate(colour)
        assert printed == "rgb(31, 36, 48)"
        page.context.close()
    assert colours == {"light": "rgb(31, 36, 48)", "dark": "rgb(230, 232, 238)"}


# --- rows over time -------------------------------------------------------------------


def plant(n=240, shuffled=False):
    """A table with a time, of which 12 rows in a row have a fault in column s3."""
    rng = np.random.default_rng(3)
    values = rng.normal(size=(n, 2)) @ rng.normal(size=(2, 6)) + 0.3 * rng.normal(size=(n, 6))
    values[100:112, 3] += 6
    times = [f"2024-03-{1 + i // 24:02d} {i % 24:02d}:00" for i in range(n)]
    frame = pl.DataFrame(values, schema=[f"s{j}" for j in range(6)], orient="row")
    frame = frame.insert_column(0, pl.Series("when", times))
    return frame[rng.permutation(n).tolist()] if shuffled else frame


@pytest.mark.parametrize("shuffled", [False, True])
def test_rows_are_drawn_over_time_and_stretches_are_named(shuffled):
    frame = plant(shuffled=shuffled).rename({"when": "Time"})
    model = dp.PPCA(2).fit(frame.drop("Time"))
    page = report.build(report.subject_of(model, frame))
    found = next(one for one in page.sections if one.title == "Rows over time")
    table = found.parts[-1]
    first, last, count, most, why = table.rows[0]
    assert (first, last, count) == ("2024-03-05 04:00", "2024-03-05 15:00", "12")
    assert float(most) > 2 and why.startswith("s3 (")
    plots = found.parts[:-1]
    assert [one.layout["yaxis"]["title"]["text"] for one in plots] == [
        *("direction 1", "direction 2"),
        *("T² / limit", "SPE / limit"),
    ]
    for one in plots:
        x = [time for trace in one.data for time in trace["x"]]
        assert one.layout["xaxis"]["type"] == "date" and min(x) == "2024-03-01 00:00:00"
    spe = {one["name"]: one for one in plots[-1].data}
    assert all(value > 1 for value in spe["beyond the limit"]["y"])
    assert len(spe["beyond the limit"]["y"]) + len(spe["ordinary"]["y"]) == 240


def test_the_verdict_stands_at_the_top():
    frame = plant()
    page = report.build(report.subject_of(dp.PPCA(2).fit(frame.drop("when")), frame))
    first, last = page.lead
    assert first.startswith("PPCA with 2 components was fitted to 240 rows of 6 columns and keeps ")
    assert re.search(r"\d+ of 240 (rows )?lie beyond a limit, where about 12 are expected", first)
    assert "s3" in first and "from 2024-03-05 04:00 to 2024-03-05 15:00" in first
    assert last == "Nothing is missing."
    html = report.render(page)
    assert html.index('class="verdict"') < html.index("<nav")
    gaps = frame.with_columns(pl.when(pl.col("s0") > -1).then(pl.col("s0")))
    page = report.build(report.subject_of(dp.PPCA(2).fit(gaps.drop("when")), gaps))
    assert re.match(r"[\d.]+ % of the entries are missing\. Known entries that were", page.lead[1])
    assert re.search(r"90 % intervals contain [\d.]+ % of them\.$", page.lead[1])


def test_ordinary_rows_are_said_to_be_ordinary():
    values = np.random.default_rng(0).normal(size=(400, 5))
    page = report.build(report.subject_of(dp.PPCA(1).fit(values), values, time=np.arange(400)))
    assert "Row by row nothing is unusual: " in page.lead[0] and "Over time" not in page.lead[0]
    found = next(one for one in page.sections if one.title == "Rows over time")
    assert found.parts[-1].rows == [["none", "", "", "", "no such stretch"]]


def test_time_is_as_the_user_says_as_the_model_file_says_or_found(run, tmp_path):
    plant().write_csv(tmp_path / "t.csv")
    assert run("fit", "t.csv")[0] == 0
    assert _subject(Asked("t.dpca", "t.csv", Path("r.html"))).time.name == "when"
    assert _subject(Asked("t.dpca", "t.csv", Path("r.html"), time="none")).time is None
    assert _subject(Asked("t.dpca", "t.csv", Path("r.html"), time="s1")).time.name == "s1"
    code, out, said = run("report", "t.csv", "--time", "when", "--json")
    assert code == 0 and "Rows over time" in json.loads(out)["sections"], said
    assert "--time when" in " ".join(document(tmp_path / "report.html").words)
    code, _, said = run("report", "t.dpca", "t.csv", "--time", "clock")
    assert code == 3 and "--time clock: no such column" in said
    with pytest.raises(report.ReportError, match="a date or a number for each of the 150 rows"):
        report.subject_of(dp.PPCA(2).fit(X), X, time=["soon"] * 150)


def test_runs_of_rows_beyond_a_limit_are_as_rare_as_said():
    rng, n, rate = np.random.default_rng(0), 300, 0.05
    least = through_time.shortest(n, rate)
    tables = rng.random((2000, n)) < rate
    seen = np.mean([bool(through_time.stretches(2.0 * one, least)) for one in tables])
    assert seen < through_time.CHANCE + 3 * np.sqrt(0.05 * 0.95 / 2000)
    shorter = np.mean([bool(through_time.stretches(2.0 * one, least - 1)) for one in tables])
    assert shorter > through_time.CHANCE


def test_a_report_shows_the_map_of_every_cluster_that_has_others_inside():
    model = dp.HierarchicalPPCA([2, 2])
    (section,) = [
        one for one in report.build(subject(model, X)).sections if one.title == "Where the rows lie"
    ]
    leads = [part.finding.partition(":")[0] for part in section.parts]
    assert leads == ["Map 0, all rows", "Map 1, inside map 0", "Map 2, inside map 0"]
    assert [len(part.data) for part in section.parts] == [2, 2, 2]
    drawn = sum(len(trace["x"]) for trace in section.parts[0].data)
    assert drawn == len(X)
    names = [trace["name"] for trace in section.parts[2].data]
    assert names == [str(i) for i in model.nodes_[2].children]
