"""What `dualpca reproduce` is built on: data sets, registry, files, gallery, command."""

import json
import re
import urllib.error
import warnings
from html.parser import HTMLParser

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("typer")

import matplotlib
from typer.testing import CliRunner

from dualpca import datasets
from dualpca.app.cli import build
from dualpca.app.datasets import MissingDataError
from dualpca.app.experiments import EXPERIMENTS
from dualpca.app.experiments import running as registry
from dualpca.app.experiments.canvas import Canvas
from dualpca.app.experiments.running import (
    Outcome,
    UnknownExperimentError,
    experiment,
    render,
    reproduce,
)
from dualpca.errors import InterruptWarning


@pytest.fixture
def only(monkeypatch):
    """Replace all experiments by those that a test registers."""
    monkeypatch.setattr(registry, "REGISTRY", {})
    monkeypatch.setattr("dualpca.app.experiments.EXPERIMENTS", registry.REGISTRY)

    def register(name, work=None, source="S9 Fig. 1", **options):
        def run(draw):
            if work is not None:
                work(draw)
            figure, [[ax]] = draw.panels(height=2)
            ax.plot(draw.rng.normal(size=5))
            return Outcome({"x": figure}, {"seed": draw.seed}, "A <b>.", "D & e.")

        words = {"title": f"Title of {name}", "caption": "Caption."}
        experiment(name=name, source=source, **words, **options)(run)

    return register


def fail(error):
    def work(draw):
        raise error

    return work


# --- data sets ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "load, shape",
    [
        (datasets.iris, (150, 4)),
        (datasets.digits, (1797, 64)),
        (datasets.oil_flow, (1000, 12)),
        (lambda: datasets.oil_flow("test"), (1000, 12)),
        (datasets.faithful, (272, 2)),
        (datasets.airquality, (153, 6)),
        (datasets.mnist, (10000, 784)),
        (datasets.japanese_vowels, (9961, 12)),
        (datasets.basic_motions, (8000, 6)),
    ],
)
def test_data_sets_have_their_shapes(load, shape):
    try:
        data = load()
    except MissingDataError as error:
        pytest.skip(str(error))
    assert data.X.shape == shape and data.X.dtype == np.float64
    if hasattr(data, "columns"):
        assert len(data.columns) == shape[1]
    if hasattr(data, "classes"):
        assert set(np.unique(data.y)) == set(range(len(data.classes)))
    if hasattr(data, "lengths"):
        assert data.lengths.sum() == len(data.X) and len(data.y) == len(data.lengths)


def test_missing_entries_are_nan():
    try:
        table = datasets.airquality()
    except MissingDataError as error:
        pytest.skip(str(error))
    assert np.isnan(table.X).sum(axis=0).tolist() == [37, 7, 0, 0, 0, 0]


def test_the_environment_names_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DUALPCA_DATA", str(tmp_path))
    (tmp_path / "faithful.csv").write_text("eruptions_min,waiting_min\n1.5,60\n,70\n")
    table = datasets.faithful()
    np.testing.assert_array_equal(table.X, [[1.5, 60], [np.nan, 70]])
    assert table.columns == ("eruption", "waiting")


def test_the_folder_of_the_environment_comes_first(tmp_path, monkeypatch):
    monkeypatch.setenv("DUALPCA_DATA", str(tmp_path))
    assert datasets.folders()[0] == tmp_path
    monkeypatch.delenv("DUALPCA_DATA")
    assert tmp_path not in datasets.folders()


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "folders", lambda: [tmp_path])
    return tmp_path


@pytest.mark.parametrize("load", [datasets.oil_flow, datasets.faithful, datasets.airquality])
def test_a_missing_file_says_where_it_was_looked_for(load, nowhere):
    with pytest.raises(
        MissingDataError, match=r"is not in .* Set DUALPCA_DATA to a folder"
    ) as error:
        load()
    assert str(nowhere) in str(error.value)


def test_without_network_mnist_says_what_was_tried(nowhere, monkeypatch):
    def offline(*args, **kwargs):
        raise urllib.error.URLError("no route to host")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", offline)
    with pytest.raises(MissingDataError, match=r"mnist10k.npz is not in .*mnist_784.*no route"):
        datasets.mnist()


def test_without_the_file_mnist_comes_from_openml(nowhere, monkeypatch):
    answer = np.arange(8.0).reshape(2, 4), np.array(["3", "7"], dtype=object)
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda *args, **kwargs: answer)
    data = datasets.mnist()
    assert data.y.tolist() == [3, 7] and data.X.shape == (2, 4)


def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match="split must be one of"):
        datasets.oil_flow("all")


def test_the_package_ships_what_its_folder_has():
    """Without a folder the same rows as with one, motions and vowels to three digits."""
    names = ("oil_flow", "basic_motions", "japanese_vowels", "faithful", "airquality")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "folders", lambda: [datasets.SHIPPED])
        shipped = {name: getattr(datasets, name)() for name in names}
        patch.setattr(datasets, "folders", lambda: [beside])
        beside = datasets.Path(datasets.__file__).resolve().parents[4] / "shared" / "data"
        for name, mine in shipped.items():
            try:
                theirs = getattr(datasets, name)()
            except MissingDataError as error:
                pytest.skip(str(error))
            tolerance = 6e-4 if isinstance(mine, datasets.Sequences) else 0
            np.testing.assert_allclose(mine.X, theirs.X, atol=tolerance, rtol=0)
            for key in set(mine._fields) - {"X"}:
                np.testing.assert_array_equal(getattr(mine, key), getattr(theirs, key))


def test_shipped_files_are_small_and_named_in_the_docs():
    files = sorted(datasets.SHIPPED.iterdir())
    page = datasets.Path(__file__).resolve().parents[2] / "docs" / "data.md"
    words = page.read_text(encoding="utf-8")
    assert sum(file.stat().st_size for file in files) < 450_000
    beside = (datasets.SHIPPED / "README.md").read_text(encoding="utf-8")
    named = [file.name for file in files if f"`{file.name}`" in words and file.name in beside]
    assert named == [file.name for file in files if file.suffix != ".md"]


def test_digits_stand_in_for_mnist(nowhere):
    found = datasets.handwriting()
    assert (found.side, found.X.shape, found.X.max(), found.is_mnist) == (8, (1797, 64), 1, False)
    assert "not MNIST" in found.source


def test_mnist_is_downloaded_only_if_asked_for(nowhere, monkeypatch):
    rng = np.random.default_rng(0)
    answer = rng.integers(0, 256, (12_000, 16)), np.array(["3", "7"] * 6000, dtype=object)
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda *args, **kwargs: answer)
    datasets._mnist_images.cache_clear()
    with datasets.using("openml"):
        found = datasets.handwriting()
    datasets._mnist_images.cache_clear()
    assert found.is_mnist and len(found.X) == 10_000 and found.X.max() <= 1
    assert not datasets.handwriting().is_mnist


def test_data_that_are_no_folder_are_refused(tmp_path):
    with pytest.raises(MissingDataError, match="is not a folder"), datasets.using(tmp_path / "x"):
        pass


# --- registry -------------------------------------------------------------------------


def test_an_unknown_name_says_which_there_are(tmp_path):
    with pytest.raises(UnknownExperimentError, match=r"'s9-figure-9'. The names are s0-figure-1, "):
        reproduce(["s3-figure-1", "s9-figure-9"], tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_two_modules_cannot_share_a_name(only):
    only("a")
    with pytest.raises(ValueError, match="two experiments have the name 'a'"):

        def run(draw):
            return None

        run.__module__ = "elsewhere"
        experiment(name="a", source="S9", title="b")(run)


def test_experiments_come_in_the_order_of_the_documents(only):
    for name, source in (("c", "S9 Fig. 10"), ("b", "S9 Fig. 2"), ("a", "S10 Fig. 1")):
        only(name, source=source)
    assert list(registry.ordered()) == ["b", "c", "a"]
    assert [one.name for one in registry.chosen(["a", "b", "a"])] == ["a", "b"]


def test_every_document_and_every_name_is_as_on_the_command_line():
    assert all(re.fullmatch(r"(s\d|readme)-[a-z0-9-]+", name) for name in EXPERIMENTS)
    assert {name[:2] for name in EXPERIMENTS} == {"s0", "s1", "s2", "s3", "s4", "re"}
    assert list(EXPERIMENTS)[-1] == "readme-picture"


ROOT = datasets.Path(__file__).resolve().parents[2]


def test_every_experiment_names_a_test_that_exists():
    for one in EXPERIMENTS.values():
        file, _, name = one.test.partition("::")
        text = (ROOT / "tests" / "app" / file).read_text(encoding="utf-8")
        body = text.partition(f"def {name}(")[2].partition("\ndef ")[0]
        assert f'"{one.name}"' in body, one.name


def test_the_table_of_the_docs_is_that_of_the_registry():
    """`python -m tests.app.test_reproduce` writes it."""
    assert written(PAGE.read_text(encoding="utf-8")) == PAGE.read_text(encoding="utf-8")
    rows = registry.table().splitlines()[2:]
    assert len(rows) == len(EXPERIMENTS) >= 32
    assert all(cell.strip() for row in rows for cell in row.split("|")[1:-1])


PAGE = ROOT / "docs" / "data.md"


def written(page):
    """Return the page with the table as the registry has it."""
    head, _, rest = page.partition(registry.TABLE)
    return head + registry.table() + rest[re.search(r"\n(?!\|)", rest).end() :]


def test_numbers_are_what_json_can_hold():
    kept = registry.plain({1: (np.int64(2), np.inf), "b": np.array([True]), "c": None})
    assert kept == {"1": [2, None], "b": [True], "c": None}
    assert json.loads(json.dumps(kept)) == kept
    with pytest.raises(TypeError, match="must be numbers or text, got <object"):
        registry.plain({"a": [object()]})


# --- running --------------------------------------------------------------------------


def test_what_is_finished_stays_when_the_keyboard_interrupts(only, tmp_path):
    only("a")
    only("b", fail(KeyboardInterrupt()))
    only("c")
    with pytest.raises(KeyboardInterrupt):
        reproduce([], tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "a.png", "a.svg", "index.html"]
    assert "Title of a" in (tmp_path / "index.html").read_text()


def test_a_fit_that_was_interrupted_is_not_a_result(only, tmp_path):
    def work(draw):
        warnings.warn("stopped", InterruptWarning, stacklevel=1)

    only("a", work)
    with warnings.catch_warnings(), pytest.raises(KeyboardInterrupt):
        warnings.simplefilter("ignore")  # as with a user, where warnings are no errors
        reproduce([], tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["index.html"]


@pytest.mark.parametrize(
    "error", [MissingDataError("no such file"), ModuleNotFoundError("no such file", name="optuna")]
)
def test_without_data_or_an_extra_the_others_go_on(only, tmp_path, error):
    only("a", fail(error))
    only("b")
    told = []
    first, second = reproduce([], tmp_path, progress=told.append)
    assert (first.problem, first.files, second.problem) == ("no such file", [], "")
    assert told == [first, second]
    assert not (tmp_path / "a.json").exists() and (tmp_path / "b.json").exists()


def test_a_mistake_of_ours_is_not_hidden(only, tmp_path):
    only("a", fail(ModuleNotFoundError("dualpca.nothing", name="dualpca.nothing")))
    with pytest.raises(ModuleNotFoundError):
        reproduce([], tmp_path)


def test_a_later_run_keeps_earlier_figures_on_the_page(only, tmp_path):
    only("a")
    only("b", source="S9 Fig. 2")
    reproduce(["b"], tmp_path)
    reproduce(["a"], tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert page.index("Title of a") < page.index("Title of b")


def test_the_seed_reaches_experiments_and_changes_pictures(only, tmp_path):
    only("a")
    pictures = []
    for seed in (0, 0, 1):
        reproduce([], tmp_path, seed=seed)
        record = json.loads((tmp_path / "a.json").read_text())
        assert record["seed"] == record["numbers"]["seed"] == seed
        pictures.append([(tmp_path / f"a.{kind}").read_bytes() for kind in ("png", "svg")])
    assert pictures[0] == pictures[1]
    assert all(one != other for one, other in zip(pictures[0], pictures[2], strict=True))


def test_several_figures_have_names_of_their_own(only, monkeypatch, tmp_path):
    def run(draw):
        figures = {key: draw.panels(height=1)[0] for key in ("a", "b")}
        return Outcome(figures, {}, "A.", "B.")

    experiment(name="two", source="S9", title="Two")(run)
    [record] = reproduce(["two"], tmp_path)
    kinds = [f"two-{key}.{kind}" for key in ("a", "b") for kind in ("png", "svg")]
    assert record.files == [*kinds, "two.json"]


def test_pictures_have_no_date_and_matplotlib_keeps_its_settings(only, tmp_path):
    only("a")
    with matplotlib.rc_context({"axes.grid": False, "font.size": 7}):
        before = dict(matplotlib.rcParams)
        reproduce([], tmp_path)
        assert dict(matplotlib.rcParams) == before
    drawing = (tmp_path / "a.svg").read_text()
    assert "<dc:date>" not in drawing and "matplotlib.org" not in drawing
    assert b"Software" not in (tmp_path / "a.png").read_bytes()


def test_style_does_not_depend_on_the_users(only, tmp_path):
    only("a")
    pictures = []
    for dpi, ticks in ((30, "in"), (60, "out")):
        with matplotlib.rc_context({"savefig.dpi": dpi, "xtick.direction": ticks}):
            reproduce([], tmp_path)
        pictures.append((tmp_path / "a.png").read_bytes())
    assert pictures[0] == pictures[1]


def test_images_are_tiles_with_a_margin():
    draw = Canvas()
    _, [[ax]] = draw.panels()
    draw.images(ax, np.ones((3, 4)), columns=2, side=2)
    tiles = np.asarray(ax.images[0].get_array())
    assert tiles.shape == (8, 8)
    assert tiles[1:3, 1:3].all() and tiles[1:3, 5:7].all() and tiles[5:7, 1:3].all()
    assert tiles.sum() == 12  # the fourth tile is empty, and so are margins


# --- the page -------------------------------------------------------------------------


class Links(HTMLParser):
    """Collect what a page links to, and its texts."""

    def __init__(self, page):
        super().__init__()
        self.links, self.ids, self.images = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.links += [attrs[key] for key in ("href", "src") if key in attrs]
        self.ids += [attrs["id"]] if "id" in attrs else []
        self.images += [attrs] if tag == "img" else []


def test_the_page_links_to_files_that_are_there(only, tmp_path):
    only("a")
    only("b")
    reproduce([], tmp_path)
    page = Links((tmp_path / "index.html").read_text())
    files = [link for link in page.links if link[0] != "#" and not link.startswith("data:")]
    assert sorted(files) == sorted(f"{n}.{kind}" for n in "ab" for kind in ("png", "svg", "json"))
    assert all((tmp_path / file).is_file() for file in files)
    assert [link[1:] for link in page.links if link[0] == "#"] == page.ids == ["a", "b"]
    assert all(image["alt"] and image["width"] == "720" for image in page.images)


def test_the_page_escapes_and_shows_both_sentences(only, tmp_path):
    only("a")
    reproduce([], tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert "A &lt;b&gt;." in page and "D &amp; e." in page and "<b>." not in page
    assert "prefers-color-scheme: dark" in page and 'name="viewport"' in page
    assert "http://" not in page and "https://" not in page


def test_the_page_says_when_settings_were_small_and_times_vary():
    record = {"name": "a", "source": "S3", "title": "T", "caption": "", "agrees": "", "differs": ""}
    record |= {
        "data": "iris <3>",
        "numbers": {"x": -1.5, "many": [1]},
        "figures": [],
        "seconds": 1.0,
        "seed": 3,
    }
    page = render([record | {"quick": True, "timed": True}])
    assert "A quick run" in page and "times differ" in page
    assert "<dt>Data</dt><dd>iris &lt;3&gt;</dd>" in page
    assert "\N{MINUS SIGN}1.5" in page and "--seed 3" in page and "many" not in page
    assert "A quick run" not in render([record | {"quick": False, "timed": False}])


# --- the command ----------------------------------------------------------------------


def command(*words):
    return CliRunner().invoke(build(), ["reproduce", *map(str, words)])


def test_the_command_lists_what_there_is():
    found = command("--list")
    assert found.exit_code == 0
    assert [line.split()[0] for line in found.stdout.splitlines()] == list(EXPERIMENTS)
    listed = json.loads(command("--list", "--json").stdout)["experiments"]
    assert [one["name"] for one in listed] == list(EXPERIMENTS)


def test_the_command_makes_figures(only, tmp_path):
    only("a")
    only("b")
    found = command("a", "-o", tmp_path / "new", "--seed", 4)
    assert found.exit_code == 0 and "1 of 1 made" in found.stdout
    assert json.loads((tmp_path / "new" / "a.json").read_text())["seed"] == 4
    told = json.loads(command("-o", tmp_path, "--json").stdout)
    assert [one["name"] for one in told["made"]] == ["a", "b"] and not told["interrupted"]


def test_the_command_takes_a_folder_of_data(only, tmp_path):
    only("a", lambda draw: asked.append(datasets.folders()[0]))
    asked = []
    assert command("a", "-o", tmp_path / "out", "--data", tmp_path).exit_code == 0
    assert asked == [tmp_path]
    assert datasets.folders()[0] != tmp_path
    found = command("a", "-o", tmp_path / "out", "--data", tmp_path / "no")
    assert found.exit_code != 0 and "is not a folder" in found.stderr


def test_the_command_refuses_an_unknown_name(tmp_path):
    found = command("s9-figure-9", "-o", tmp_path)
    assert found.exit_code == 1 and "The names are s0-figure-1" in found.stderr
    assert not list(tmp_path.iterdir())


def test_the_command_keeps_what_is_finished(only, tmp_path):
    only("a")
    only("b", fail(KeyboardInterrupt()))
    found = command("-o", tmp_path)
    assert found.exit_code == 130 and "Interrupted: 1 of 2 made" in found.stdout
    assert (tmp_path / "a.json").exists() and (tmp_path / "index.html").exists()


def test_the_command_says_what_could_not_be_made(only, tmp_path):
    only("a", fail(MissingDataError("no file. Set DUALPCA_DATA.")))
    found = command("-o", tmp_path)
    assert found.exit_code == 1 and "a  not made: no file. Set DUALPCA_DATA." in found.stdout


def test_the_command_says_why_a_folder_cannot_be_used(only, tmp_path):
    only("a")
    (tmp_path / "file").write_text("")
    found = command("-o", tmp_path / "file")
    assert found.exit_code == 5 and "file" in found.stderr


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
