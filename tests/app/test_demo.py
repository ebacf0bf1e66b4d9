"""The demonstration: one command, one file that needs nothing else, whole or absent."""

import json
import os
import re
from html.parser import HTMLParser

import numpy as np
import pytest

pytest.importorskip("typer", reason="the app extra is not installed: no command line to test")
pytest.importorskip("matplotlib", reason="the app extra is not installed: no figures to test")

from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from sklearn.datasets import load_iris
from typer.testing import CliRunner

import dualpca
from dualpca import PCA, PPCA, plots, report
from dualpca.app import cli, demo
from dualpca.app.tables import reading

X, Y = load_iris(return_X_y=True)


def call(*arguments):
    return CliRunner().invoke(cli.build(), [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """One run of the demonstration: what it printed, and the page."""
    output = tmp_path_factory.mktemp("demo") / "page.html"
    result = call("demo", "--output", output)
    assert result.exit_code == 0, result.output
    return output, result.stdout, output.read_text(encoding="utf-8")


class Elements(HTMLParser):
    """Every element with its attributes."""

    def __init__(self, html):
        super().__init__()
        self.found = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def __call__(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


# --- the command ----------------------------------------------------------------------


def test_demo_compares_the_models_and_says_where_the_page_is(ran):
    output, printed, _ = ran
    for name in ("PCA, 95 % variance", *(f"PPCA, {rule}" for rule in demo.RULES), "PPCA, EM"):
        assert name in printed
    assert "The report shows" in printed
    assert re.search(rf"Wrote {re.escape(str(output))} \([\d.]+ MB\) in [\d.]+ s", printed)
    model, rows = output.with_suffix(".dpca"), output.with_suffix(".csv")
    assert printed.rstrip().endswith(f"dualpca explore {model} {rows}")
    assert set(output.parent.iterdir()) == {output, model, rows}


def test_demo_saves_the_model_and_the_rows_of_its_page(ran):
    output, _, html = ran
    model, metadata = dualpca.load(output.with_suffix(".dpca"), return_metadata=True)
    assert metadata["table"]["image_shape"] == list(demo.SHAPE)
    rows = reading.read(output.with_suffix(".csv"))
    assert rows.columns == [*demo.NAMES, demo.LABEL] and rows.height == 898
    held_out = demo.split(0)[1]
    np.testing.assert_allclose(rows.select(demo.NAMES).to_numpy(), held_out.X, atol=0.0051)
    assert f"{model.n_components_} numbers per image" in html


@pytest.mark.slow
def test_quiet_prints_nothing(tmp_path):
    result = call("demo", "--output", tmp_path / "page.html", "--seed", 1, "--quiet")
    assert (result.exit_code, result.output) == (0, "")
    assert (tmp_path / "page.html").stat().st_size > 10_000


def test_version():
    result = call("--version")
    assert (result.exit_code, result.stdout) == (0, f"dualpca {dualpca.__version__}\n")


def test_no_command_is_help():
    assert "demo" in call().output


@pytest.mark.parametrize("name", ["missing/page.html", "."])
def test_output_that_cannot_be_written_is_said_at_once(tmp_path, name, monkeypatch):
    monkeypatch.setattr(demo, "compare", None)  # nothing may be fitted before
    result = call("demo", "--output", tmp_path / name)
    assert result.exit_code == 5
    assert "dualpca demo: " in result.output and "Traceback" not in result.output


def test_the_demo_says_what_it_wrote_as_json(tmp_path, monkeypatch):
    page = tmp_path / "page.html"
    monkeypatch.setattr(demo, "run", lambda *_: demo.Files.beside(page)._replace(size=5))
    found = json.loads(call("demo", "--json", "--output", tmp_path / "page.html").stdout)
    assert (found["output"], found["bytes"]) == (str(tmp_path / "page.html"), 5)


def test_missing_extra_is_named(monkeypatch):
    monkeypatch.setattr(cli, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"pip install '\.\[app\]' in your clone"):
        cli.main()


def test_interrupt_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "compare", interrupted)
    result = call("demo", "--output", tmp_path / "page.html")
    assert result.exit_code == 130
    assert "nothing was written" in result.output
    assert list(tmp_path.iterdir()) == []


# --- the models -----------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_reported_rule_is_the_smallest_summary_and_em_agrees(seed):
    fits = {fit.name: fit for fit in demo.compare(*demo.split(seed), seed)}
    sizes = {rule: fits[f"PPCA, {rule}"].model.n_components_ for rule in demo.RULES}
    assert min(sizes, key=sizes.get) == demo.REPORTED
    closed, em = fits[f"PPCA, {demo.REPORTED}"], fits["PPCA, EM, same q"]
    assert em.training == pytest.approx(closed.training, abs=1e-8)  # flat at the maximum
    assert em.held_out == pytest.approx(closed.held_out, abs=1e-4)
    # The rules that look for structure find the noise that was added to the pixels, 1/12.
    assert float(fits["PPCA, evidence"].model.noise_variance_) == pytest.approx(1 / 12, rel=0.1)


def test_halves_are_disjoint_and_together_everything():
    first, second = demo.split(0)
    assert len(first.y) + len(second.y) == 1797
    assert np.abs(first.X - first.images).max() <= 0.5
    assert not {row.tobytes() for row in first.X} & {row.tobytes() for row in second.X}


# --- the page -------------------------------------------------------------------------


def test_page_needs_nothing_from_outside(ran):
    html = re.sub(r"<script>.*?</script>", "", ran[2], flags=re.S)
    elements = Elements(html)
    assert not re.search(r"https?:", html)
    assert not re.search(r"@import|url\(", html)
    assert not elements("iframe") and not elements("object")
    for _, attributes in elements.found:
        for name in ("src", "srcset"):
            assert attributes.get(name, "data:").startswith("data:")
        assert attributes.get("href", "#").startswith(("#", "data:"))


def test_page_has_pictures_with_alternative_text(ran):
    html = ran[2]
    assert all(image["alt"] for image in Elements(html)("img"))
    headings = re.findall(r"<h2 id=.*?>(.*?)</h2>", html)
    assert headings == [
        "Which model",
        "What the data is",
        "How many directions matter",
        "Where the rows lie",
        "What the directions are made of",
        "What the model keeps of each row",
        "What the model considers typical",
        "Unusual rows",
        "Can its intervals be trusted?",
        "How it was made",
    ]


def test_page_says_how_it_was_made(ran):
    html = re.sub(r"<script.*?</script>", "", ran[2], flags=re.S)
    for words in (f"dualpca {dualpca.__version__}", f"numpy {np.__version__}", "seed", "gavish"):
        assert words in html
    assert "prefers-color-scheme: dark" in html and "@media print" in html
    assert "nan" not in re.sub(r"base64,[^\"]*", "", html).lower()


def test_page_escapes_what_it_is_given():
    table = report.Table((), [["<", ">"]], "<u>")
    section = report.Section("<b>", "<i>", "<i>", [table], ['a "quote" & <i>'])
    html = report.render(report.Page("<script>", ["<p>"], [section]))
    assert not Elements(html)("script") and not Elements(html)("i") and not Elements(html)("u")


# --- writing --------------------------------------------------------------------------


@pytest.mark.parametrize("old", [None, "old"])
def test_interrupted_write_leaves_what_was_there(tmp_path, monkeypatch, old):
    def interrupted(*_):
        raise KeyboardInterrupt

    path = tmp_path / "page.html"
    if old:
        path.write_text(old)
    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        report.write_text(path, "new")
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == (
        {"page.html": old} if old else {}
    )


def test_write_follows_links_and_spares_devices(tmp_path):
    target, link = tmp_path / "target.html", tmp_path / "link.html"
    link.symlink_to(target)
    assert report.write_text(link, "σ") == 2
    assert link.is_symlink() and target.read_text(encoding="utf-8") == "σ"
    with pytest.raises(FileExistsError, match="not a file"):
        report.write_text(tmp_path, "text")
    with pytest.raises(FileExistsError, match="not a file"):
        report.check_target(type(tmp_path)(os.devnull))


# --- the figures ----------------------------------------------------------------------


@pytest.mark.parametrize("model", [PCA(2), PPCA(n_components=2)], ids=["PCA", "PPCA"])
def test_scree_shows_kept_discarded_and_noise(model):
    model.fit(X)
    figure = plots.scree(model, X)
    ax = figure.axes[0]
    assert isinstance(figure, Figure)
    assert ax.get_xlabel() and ax.get_ylabel() == "variance" and ax.get_yscale() == "log"
    kept, rest = (line.get_ydata() for line in ax.lines[:2])
    np.testing.assert_allclose(kept, model.explained_variance_)
    # The noise is the average of the discarded variances, whatever the model's divisor.
    assert np.mean(rest) == pytest.approx(float(model.noise_variance_))
    words = " ".join(text.get_text() for text in ax.texts)
    assert "2 of 4" in words and f"noise variance {float(model.noise_variance_):.3g}" in words


def test_scree_without_data_or_noise():
    figure = plots.scree(PCA().fit(X))
    assert len(figure.axes[0].lines[1].get_ydata()) == 0
    figure.canvas.draw()


def test_latent_scatter_has_ellipses_of_the_posterior():
    model = PPCA(n_components=3).fit(X)
    figure = plots.latent_scatter(model, X, Y, axes=(0, 2), n_ellipses=6, level=0.9)
    ax = figure.axes[0]
    assert ax.get_xlabel().startswith("latent 1") and ax.get_ylabel().startswith("latent 3")
    assert sorted(text.get_text() for text in ax.texts) == ["0", "1", "2"]
    mean, covariance = model.posterior(X, parameters="fixed")  # on this map
    assert len(ax.patches) == 6
    for ellipse in ax.patches:
        off = np.abs(mean[:, [0, 2]] - ellipse.center).sum(axis=1)
        assert off.min() < 1e-12
        radius = np.sqrt(-2 * np.log(0.1) * np.diag(covariance[off.argmin()])[[0, 2]])
        box = ellipse.get_patch_transform().transform(ellipse.get_path().vertices)
        np.testing.assert_allclose(np.ptp(box, axis=0) / 2, radius, rtol=5e-3)
    colours = {to_rgb(ellipse.get_facecolor()) for ellipse in ax.patches}
    assert colours == {to_rgb(colour) for colour in plots.PALETTE[:3]}


def test_latent_scatter_of_pca_has_no_ellipses_and_no_third_axis():
    model = PCA(2).fit(X)
    assert len(plots.latent_scatter(model, X).axes[0].patches) == 0
    with pytest.raises(ValueError, match="2 latents"):
        plots.latent_scatter(model, X, axes=(0, 2))


def test_image_grid_names_its_rows():
    images = np.arange(24.0).reshape(2, 12)
    rows = {"given": images, "signed": images - 3, "nothing": np.zeros((2, 3, 4))}
    signed = {"signed", "nothing"}
    figure = plots.image_grid(rows, (3, 4), labels={"given": "ab"}, signed=signed)
    assert [ax.get_title("left") for ax in figure.axes] == list(rows)
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["a", "b"]
    limits = [ax.images[0].get_clim() for ax in figure.axes]
    assert limits == [(0, 23), (-20, 20), (-1, 1)]
    with pytest.raises(ValueError, match="'given' must hold images"):
        plots.image_grid({"given": images}, (5, 5))
