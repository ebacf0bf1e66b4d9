"""Where figures are drawn: pyplot's figures, axes that were given; and read in any style."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("matplotlib", reason="the app extra is not installed: no figures to test")

from matplotlib import pyplot as plt
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.text import Text

import dualpca as dp
from dualpca import plots
from dualpca.app.plots._canvas import MANY, PALETTE, Ink, canvas, contrast, mixed, unmanaged

N = 60
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    2 * RNG.normal(size=(N, 2)) @ RNG.normal(size=(2, 5)) + 0.3 * RNG.normal(size=(N, 5)),
    columns=["feed", "heat", "flow", "level", "power"],
)
ODD = TABLE.copy()
ODD.iloc[40, 2] += 6
PLANE = TABLE.to_numpy()[:, :2]
CLASSES = np.array(["low", "high", None], dtype=object)[np.arange(N) % 3]
GAPS = TABLE.mask((RNG.random(TABLE.shape) < 0.1) & np.array([False, True, True, False, False]))
MODELS = {
    "linear": (dp.PPCA(2), TABLE),
    "gaps": (dp.PPCA(2), GAPS),
    "compared": (dp.PPCA("cv"), TABLE.to_numpy()),
    "kernel": (dp.KernelPCA(3, kernel="rbf"), PLANE),
    "dual": (dp.DualPPCA(2, kernel="rbf", preimage="smoother"), PLANE),
    "searched": (dp.KernelSearch(n_components=1, n_trials=9, cv=2), PLANE),
    "tree": (dp.HierarchicalPPCA([[], []], 2), TABLE),
    "monitor": (dp.Monitor(dp.PPCA(2), statistics=("t2", "spe"), dynamics="none"), TABLE),
}
IMAGES = {"images": RNG.normal(size=(3, 4)), "signed": RNG.normal(size=(3, 4))}

DRAWN = {
    "biplot": (1, lambda m, **k: plots.biplot(m["linear"], TABLE, CLASSES, **k)),
    "calibration": (
        1,
        lambda m, **k: plots.calibration(m["linear"], TABLE, levels=(0.5, 0.9), refit=False, **k),
    ),
    "contribution_plot": (
        1,
        lambda m, **k: plots.contribution_plot(m["linear"], TABLE.iloc[[3]].assign(heat=None), **k),
    ),
    "contributions_over_time": (
        1,
        lambda m, **k: plots.contributions_over_time(m["linear"], ODD, **k),
    ),
    "control_chart": (3, lambda m, **k: plots.control_chart(m["monitor"], ODD, **k)),
    "convergence": (1, lambda m, **k: plots.convergence(m["gaps"], **k)),
    "correlation_circle": (1, lambda m, **k: plots.correlation_circle(m["linear"], TABLE, **k)),
    "imputed_values": (2, lambda m, **k: plots.imputed_values(m["gaps"], GAPS, **k)),
    "loading_plot": (2, lambda m, **k: plots.loading_plot(m["linear"], TABLE, n_draws=3, **k)),
    "missing_map": (1, lambda m, **k: plots.missing_map(GAPS, **k)),
    "overimpute": (2, lambda m, **k: plots.overimpute(m["gaps"], GAPS, **k)),
    "quality_bars": (1, lambda m, **k: plots.quality_bars(m["linear"], TABLE, **k)),
    "eigenfunctions": (3, lambda m, **k: plots.eigenfunctions(m["kernel"], PLANE, **k)),
    "hinton": (1, lambda m, **k: plots.hinton(m["linear"], **k)),
    "image_grid": (
        2,
        lambda m, **k: plots.image_grid(
            IMAGES, (2, 2), signed=["signed"], labels={"images": "abc"}, **k
        ),
    ),
    "latent_scatter": (1, lambda m, **k: plots.latent_scatter(m["linear"], TABLE, CLASSES, **k)),
    "outlier_map": (1, lambda m, **k: plots.outlier_map(m["linear"], ODD, **k)),
    "reconstructions": (1, lambda m, **k: plots.reconstructions(m["dual"], PLANE, 20, **k)),
    "sampling_overview": (1, lambda m, **k: plots.sampling_overview(m["dual"], 20, **k)),
    "scree": (1, lambda m, **k: plots.scree(m["linear"], TABLE, **k)),
    "search_history": (1, lambda m, **k: plots.search_history(m["searched"], **k)),
    "tree": (3, lambda m, **k: plots.tree(m["tree"], TABLE, **k)),
    "search_importance": (1, lambda m, **k: plots.search_importance(m["searched"], **k)),
    "selection_curve": (2, lambda m, **k: plots.selection_curve(m["compared"], **k)),
}
"""Of each figure the number of panels, and how it is drawn."""

each = pytest.mark.parametrize("name", DRAWN)


class Fitted(dict):
    """Models by name, each fitted when first asked for."""

    def __missing__(self, name):
        model, X = MODELS[name]
        self[name] = model.fit(X)
        return self[name]


FITTED = Fitted()


def draw(name, **options):
    return DRAWN[name][1](FITTED, **options)


def test_every_figure_is_tried():
    assert set(DRAWN) == {name for name in plots.__all__ if name.islower()}


# --- where ----------------------------------------------------------------------------


@each
def test_a_new_figure_is_pyplots(name):
    figure = draw(name)
    assert isinstance(figure, Figure) and plt.get_fignums() == [figure.number]
    assert plt.gcf() is figure and len(figure.axes) >= DRAWN[name][0]
    plt.close(figure)
    assert plt.get_fignums() == []


@each
def test_programs_draw_without_pyplot(name):
    with unmanaged():
        figure = draw(name)
    assert isinstance(figure, Figure) and plt.get_fignums() == []


@each
def test_axes_that_are_given_are_drawn_into_and_no_others(name):
    count = DRAWN[name][0]
    figure, axes = plt.subplots(count + 1, squeeze=False)
    some = axes[:count] if count > 1 else axes[0, 0]
    assert draw(name, ax=some) is figure
    assert plt.get_fignums() == [figure.number] and figure.legends == []
    assert all(ax.has_data() for ax in axes[:count, 0])
    other = axes[count, 0]
    assert not other.has_data() and other.get_title() == other.get_xlabel() == ""


@each
def test_a_part_of_a_figure_is_enough(name):
    figure = plt.figure(layout="constrained")
    left, right = figure.subfigures(1, 2)
    assert draw(name, ax=right) is figure
    assert left.axes == left.legends == [] and len(right.axes) >= DRAWN[name][0]
    whole = plt.figure()
    assert draw(name, ax=whole) is whole and len(whole.axes) >= DRAWN[name][0]
    assert len(plt.get_fignums()) == 2


@each
def test_axes_of_another_number_or_kind_are_refused(name):
    count = DRAWN[name][0]
    figure, axes = plt.subplots(1, count + 2, squeeze=False)
    with pytest.raises(ValueError, match=rf"ax must be .*got '{count + 2} Axes'"):
        draw(name, ax=axes)
    with pytest.raises(TypeError, match=r"ax must be .*, or a Figure or SubFigure to add them to"):
        draw(name, ax=[1] * count)
    assert not any(ax.has_data() for ax in figure.axes) and len(plt.get_fignums()) == 1


def test_what_is_refused_leaves_no_empty_figure():
    model = FITTED["linear"]
    for call in (
        lambda: plots.biplot(model, TABLE, axes=(0, 7)),
        lambda: plots.latent_scatter(model, TABLE, CLASSES[:3]),
        lambda: plots.biplot(model, TABLE, CLASSES[:3]),
        lambda: plots.control_chart(model, TABLE, time=[1, 2, 3]),
        lambda: plots.contributions_over_time(model, TABLE, to="T2"),
        lambda: plots.contribution_plot(model, TABLE.iloc[[1]], level=3.0),
        lambda: plots.outlier_map(model, TABLE, level=3.0),
    ):
        with pytest.raises(ValueError, match="must be"):
            call()
    assert plt.get_fignums() == []


def test_axes_that_share_both_scales_can_show_equal_units():
    figure, axes = plt.subplots(1, 2, sharex=True, sharey=True)
    plots.biplot(FITTED["linear"], TABLE, ax=axes[0])
    figure.draw_without_rendering()
    assert axes[0].get_aspect() == 1


def test_a_legend_in_axes_of_many_points_is_placed_at_once():
    X = RNG.normal(size=(MANY, 3))
    _, ax = plt.subplots()
    plots.outlier_map(dp.PPCA(1).fit(X), X, n_labels=0, ax=ax)
    assert ax.get_legend()._loc_real == 1  # upper right


def test_a_legend_covers_no_loadings():
    figure, axes = plt.subplots(1, 2, layout="constrained", figsize=(9, 4))
    draw("hinton", ax=axes[0])
    figure.draw_without_rendering()
    legend = axes[0].get_legend().get_window_extent()
    assert legend.x0 > axes[0].get_window_extent().x1 and legend.x1 < axes[1].get_window_extent().x0


# --- in which style -------------------------------------------------------------------


def unreadable(figure, least=3.0):
    """Return the words of a figure with little contrast to what they stand on."""
    figure.draw_without_rendering()
    found = []
    for text in figure.findobj(Text):
        if not (text.get_visible() and text.get_text().strip()):
            continue
        ground = behind(text, figure)
        if contrast(text.get_color(), ground) < least:
            found.append((text.get_text(), text.get_color(), ground))
    return found


def behind(text, figure):
    """Return the colour that words stand on."""
    layers = [figure.get_facecolor()]
    box = text.get_window_extent()
    for ax in figure.axes:
        inside = ax.get_window_extent().contains(box.x0 + box.width / 2, box.y0 + box.height / 2)
        layers += [ax.get_facecolor()] if inside and ax.patch.get_visible() else []
    plate = text.get_bbox_patch()
    layers += [plate.get_facecolor()] if plate is not None else []
    colour = "white"
    for layer in layers:
        colour = mixed(colour, layer, to_rgba(layer)[3])
    return colour


@pytest.mark.grid
@each
@pytest.mark.parametrize("style", ["default", "dark_background", "ggplot", "Solarize_Light2"])
def test_words_can_be_read_in_any_style(name, style):
    with plt.style.context(style):
        assert unreadable(draw(name)) == []


@each
def test_words_can_be_read_on_axes_of_another_style(name):
    with plt.style.context("dark_background"):
        _, axes = plt.subplots(DRAWN[name][0])
    assert unreadable(draw(name, ax=axes)) == []


def test_the_test_finds_what_cannot_be_read():
    figure, ax = plt.subplots()
    ax.set_facecolor("black")
    ax.text(0.5, 0.5, "dark on dark", color="#222222", ha="center")
    assert [words for words, *_ in unreadable(figure)] == ["dark on dark"]


def test_fonts_resolution_and_faces_are_those_of_the_style():
    style = {"font.size": 17, "figure.dpi": 50, "figure.facecolor": "#ffeedd"}
    with plt.rc_context(style | {"axes.facecolor": "#ddeeff"}):
        figure = draw("outlier_map")
    ax = figure.axes[0]
    assert figure.dpi == 50 and to_rgba(figure.get_facecolor()) == to_rgba("#ffeedd")
    assert to_rgba(ax.get_facecolor()) == to_rgba("#ddeeff")
    sizes = {text.get_fontsize() for text in figure.findobj(Text) if text.get_text()}
    assert sizes == {17.0}


def test_classes_have_the_colours_of_the_style():
    def colours():
        figure = draw("biplot")
        found = figure.axes[0].collections[0].get_facecolors()[:2, :3]
        return [tuple(np.round(c, 3)) for c in found]

    def expected(names):
        return [tuple(np.round(to_rgba(c)[:3], 3)) for c in names]

    assert colours() == expected([PALETTE[1], PALETTE[0]])  # low, high: in their order
    with plt.rc_context({"axes.prop_cycle": plt.cycler(color=["red", "lime"])}):
        assert colours() == expected(["lime", "red"])


def test_ink_stands_out_from_any_face():
    for face in ("white", "black", "#777777", "#fdf6e3", "#002b36"):
        _, ax = plt.subplots(facecolor=face)
        ax.patch.set_alpha(0.0)
        ink = Ink.of(ax)
        assert contrast(ink.text, face) >= 3
        assert contrast(ink.text, face) > contrast(ink.muted, face) > contrast(ink.grid, face) > 1


def test_a_grid_of_the_style_is_left_alone():
    with plt.rc_context({"axes.grid": True, "grid.color": "#123456"}):
        line = canvas(None, 3.0).ax.get_xgridlines()[0]
        assert line.get_color() == "#123456"
    assert canvas(None, 3.0).ax.get_xgridlines()[0].get_color() == Ink.of(plt.gca()).grid
