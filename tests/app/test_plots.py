"""Figures of diagnostics and loadings: what is drawn is what the model says, and can be read."""

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="the app extra is not installed: no figures to test")

from matplotlib.colors import to_rgb
from matplotlib.patches import FancyArrowPatch
from matplotlib.text import Text
from sklearn.datasets import load_iris, load_wine

from dualpca import PCA, PPCA, FactorAnalysis, RobustPPCA, plots
from dualpca.app.plots._canvas import BLUE, VERMILION, find_places

IRIS = load_iris(as_frame=True)
WINE = load_wine(as_frame=True)
MODELS = {
    "PCA": PCA(3, standardize=True),
    "whitened": PCA(3, whiten=True),
    "PPCA": PPCA(3),
    "FactorAnalysis": FactorAnalysis(3),
    "RobustPPCA": RobustPPCA(3),
}
pytestmark = pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")


@pytest.fixture(params=MODELS, name="model", scope="module")
def fitted(request):
    scaled = (WINE.data - WINE.data.mean()) / WINE.data.std()
    return MODELS[request.param].fit(scaled), scaled


def boxes(figure, labels):
    figure.draw_without_rendering()
    return np.array([Text.get_window_extent(label).get_points() for label in labels])


def overlapping(extents):
    """Return the pairs of boxes that overlap."""
    low, high = extents[:, 0], extents[:, 1]
    both = np.minimum(high[:, None], high) - np.maximum(low[:, None], low)
    return np.argwhere(np.triu((both > 0.5).all(axis=2), 1))


# --- biplot ---------------------------------------------------------------------------


def test_biplot_has_scores_and_arrows_with_names(model):
    model, X = model
    figure = plots.biplot(model, X, WINE.target, axes=(0, 2))
    ax = figure.axes[0]
    np.testing.assert_allclose(ax.collections[0].get_offsets(), model.transform(X)[:, [0, 2]])
    assert [text.get_text() for text in ax.texts] == list(X.columns)
    arrows = [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch)]
    assert len(arrows) == 13
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["0", "1", "2"]


def test_arrows_times_scores_are_the_features(model):
    """Up to one factor, with as many components as the plane has."""
    model, X = model
    model = type(model)(**model.get_params() | {"n_components": 2}).fit(X)
    ax = plots.biplot(model, X).axes[0]
    tips = np.array([text.xy for text in ax.texts])
    signal = model.inverse_transform(model.transform(X)) - model.mean_
    if model.scale_ is not None:
        signal = signal / model.scale_
    product = model.transform(X) @ tips.T
    factor = np.sum(product * signal) / np.sum(signal**2)
    np.testing.assert_allclose(product, factor * signal, atol=1e-8 * np.abs(product).max())


@pytest.mark.parametrize("data", [IRIS, WINE], ids=["iris", "wine"])
def test_biplot_labels_do_not_overlap_and_stay_inside(data):
    X = (data.data - data.data.mean()) / data.data.std()
    for model in (PCA(2).fit(X), PPCA(2).fit(X)):
        figure = plots.biplot(model, X, data.target)
        ax = figure.axes[0]
        extents = boxes(figure, ax.texts)
        assert not len(overlapping(extents))
        frame = ax.get_window_extent().get_points()
        assert np.all(extents[:, 0] >= frame[0] - 1) and np.all(extents[:, 1] <= frame[1] + 1)
        tips = ax.transData.transform([text.xy for text in ax.texts])
        covered = (tips[:, None] > extents[:, 0]) & (tips[:, None] < extents[:, 1])
        assert not covered.all(axis=2).any()


def test_biplot_names_only_the_longest_arrows():
    X = np.random.default_rng(0).standard_normal((50, 40)) * np.linspace(1, 3, 40)
    figure = plots.biplot(PPCA(2).fit(X), X, n_features=5)
    assert len(figure.axes[0].texts) == 5
    assert all(text.get_text().startswith("x") for text in figure.axes[0].texts)


def test_biplot_needs_two_components():
    model = PCA(1).fit(IRIS.data)
    with pytest.raises(ValueError, match="axes must be two of the model's 1 components"):
        plots.biplot(model, IRIS.data)


def test_places_are_cheap_ones():
    """Labels start out as asked, and give way to labels, points and the frame."""
    frame, half = np.array([[0.0, 0.0], [100.0, 100.0]]), np.full((2, 2), [8.0, 4.0])
    east, none = np.tile([1.0, 0.0], (2, 1)), np.zeros((0, 2))
    far = np.array([[30.0, 30.0], [70.0, 70.0]])
    np.testing.assert_allclose(find_places(far, half, east, frame, none), far + 11 * east)
    near = np.array([[30.0, 30.0], [31.0, 30.0]])
    delta = np.abs(np.diff(find_places(near, half, east, frame, none), axis=0))[0]
    assert delta[0] >= 16 or delta[1] >= 8
    edge = np.array([[99.0, 50.0], [50.0, 99.0]])
    found = find_places(edge, half, east, frame, none)
    assert np.all(found + half <= 100) and np.all(found - half >= 0)


# --- Hinton ---------------------------------------------------------------------------


def test_hinton_squares_have_the_loadings_as_areas_and_colours(model):
    model, X = model
    figure = plots.hinton(model)
    ax = figure.axes[0]
    if isinstance(model, PCA):
        W = model.components_.T * np.sqrt(model.explained_variance_)
    else:
        W = getattr(model, "loadings_", model.components_.T)
    for squares, sign, colour in zip(ax.collections, (1, -1), (BLUE, VERMILION), strict=True):
        assert to_rgb(squares.get_facecolor()[0]) == to_rgb(colour)
        i, p = np.nonzero(sign * W > 0)
        spans = [np.ptp(path.vertices, axis=0) for path in squares.get_paths()]
        middles = [path.vertices[:4].mean(axis=0) for path in squares.get_paths()]
        areas = np.prod(spans, axis=1)
        np.testing.assert_allclose(areas / areas.max(), sign * W[i, p] / (sign * W[i, p]).max())
        np.testing.assert_allclose(middles, np.stack([p, i], axis=1), atol=1e-9)
    assert [label.get_text() for label in ax.get_yticklabels()] == list(X.columns)
    assert f"±{np.abs(W).max():.2g}" in figure.legends[0].get_texts()[0].get_text()


def test_hinton_keeps_the_largest_features_of_many():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 60)) * np.where(np.arange(60) % 6 == 0, 9.0, 1.0)
    figure = plots.hinton(PCA(10).fit(X), n_features=10)
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == [f"x{j}" for j in range(0, 60, 6)]
    plots.hinton(PPCA(0).fit(X)).draw_without_rendering()  # no component, no square


# --- outliers -------------------------------------------------------------------------


def test_outlier_map_shows_statistics_and_limits(model):
    model, X = model
    figure = plots.outlier_map(model, X, level=0.9, n_labels=5)
    ax, found = figure.axes[0], model.outliers(X, 0.9)
    np.testing.assert_allclose(
        ax.collections[0].get_offsets(), np.stack([found.t2, found.spe], axis=1), rtol=1e-9
    )
    x, y = ax.lines[0].get_xdata()[0], ax.lines[1].get_ydata()[0]
    assert (x, y) == (found.t2_limit[0], found.spe_limit[0])
    if not isinstance(model, RobustPPCA):
        each = 0.9**0.5  # both limits together hold at 0.9
        assert (x, y) == (model.t2_limit(each), model.spe_limit(each))
    colours = ax.collections[0].get_facecolors()[:, :3]
    flagged = np.isclose(colours, to_rgb(VERMILION)).all(axis=1)
    assert np.array_equal(flagged, found.flagged)
    assert len(ax.texts) == 5
    assert all(found.flagged[int(text.get_text())] for text in ax.texts)
    assert not len(overlapping(boxes(figure, ax.texts)))


def test_outlier_map_draws_rows_with_holes_as_they_stand_to_their_own_limits():
    X = IRIS.data.to_numpy().copy()
    X[np.random.default_rng(0).random(X.shape) < 0.3] = np.nan
    X[5] = np.nan
    model = PPCA(2).fit(X)
    found = model.outliers(X)
    ax = plots.outlier_map(model, X).axes[0]
    points = np.asarray(ax.collections[0].get_offsets())
    each = 0.95**0.5
    outside = (points[:, 0] > model.t2_limit(each)) | (points[:, 1] > model.spe_limit(each))
    assert np.array_equal(outside, found.flagged) and found.flagged.any()
    assert points[5].tolist() == [0, 0]


@pytest.mark.parametrize("far", [1.0, 1e4])
def test_outlier_map_of_gross_errors_is_logarithmic_and_in_view(far):
    X = IRIS.data.to_numpy().copy()
    model = PCA(2).fit(X)
    X[7] *= far
    ax = plots.outlier_map(model, X).axes[0]
    assert ax.get_xscale() == ax.get_yscale() == ("log" if far > 1 else "linear")
    assert np.all(
        ax.collections[0].get_offsets().max(axis=0) < (ax.get_xlim()[1], ax.get_ylim()[1])
    )


@pytest.mark.parametrize("q", [0, 4])
def test_outlier_map_without_one_of_the_statistics(q):
    X = IRIS.data
    plots.outlier_map(PCA(q).fit(X), X).draw_without_rendering()


def test_outlier_map_without_a_limit_draws_none():
    X = np.random.default_rng(0).standard_normal((6, 20))
    ax = plots.outlier_map(PCA(5).fit(X), X).axes[0]
    assert len(ax.lines) == 1


def test_labels_are_the_frames_own():
    X = IRIS.data.copy()
    X.index = [f"flower {i}" for i in range(150)]
    ax = plots.outlier_map(PCA(2).fit(X), X, n_labels=2).axes[0]
    assert all(text.get_text().startswith("flower ") for text in ax.texts)


@pytest.mark.parametrize("to, name", [("spe", "SPE"), ("t2", "T²")])
def test_contribution_plot_shows_the_largest_first(model, to, name):
    model, X = model
    row = X.iloc[[121]]
    ax = plots.contribution_plot(model, row, to=to, n_features=6).axes[0]
    parts = model.contributions(row, to=to).to_numpy()[0]
    order = np.argsort(-parts)[:6]
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], parts[order])
    assert [label.get_text() for label in ax.get_yticklabels()] == list(X.columns[order])
    signed = model.contributions(row, to=to, signed=True).to_numpy()[0][order]
    for bar, value in zip(ax.patches, signed, strict=True):
        assert to_rgb(bar.get_facecolor()) == to_rgb(VERMILION if value >= 0 else BLUE)
    assert ax.get_title("left").startswith(f"{name} {parts.sum():.3g}")


# --- calibration ----------------------------------------------------------------------


@pytest.mark.parametrize("refit", [True, False])
@pytest.mark.parametrize("frame", [True, False])
def test_calibration_draws_coverage_and_leaves_the_model_alone(refit, frame):
    X = IRIS.data if frame else IRIS.data.to_numpy()
    model = PPCA(2).fit(X)
    before = model.components_.copy(), np.array(X, copy=True)
    figure = plots.calibration(model, X, share=0.2, levels=[0.3, 0.6, 0.9], refit=refit)
    ax = figure.axes[0]
    line = ax.lines[1]
    assert line.get_xdata().tolist() == [0.3, 0.6, 0.9]
    assert np.all(np.diff(line.get_ydata()) >= 0)
    assert np.array_equal(before[0], model.components_) and np.array_equal(before[1], X)
    assert "hidden entries" in ax.get_title("left")


def test_what_calibration_found_is_drawn_as_it_is():
    found = PPCA(2).fit(IRIS.data).calibration(IRIS.data, levels=[0.3, 0.9], folds=4)
    ax = plots.calibration(found).axes[0]
    assert ax.lines[1].get_xdata().tolist() == [0.3, 0.9]
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), found.coverage)
    assert ax.get_title("left") == "600 hidden entries"
    with pytest.raises(ValueError, match="X must be a table"):
        plots.calibration(PPCA(2).fit(IRIS.data))


def test_calibration_of_a_rule_keeps_its_number_of_components():
    model = PPCA("bic").fit(IRIS.data)  # rules that read a spectrum cannot be asked again
    plots.calibration(model, IRIS.data).draw_without_rendering()


def test_calibration_of_a_model_that_imputes_nothing_is_refused():
    with pytest.raises(TypeError, match="PPCA, FactorAnalysis, MixturePPCA"):
        plots.calibration(PCA(2).fit(IRIS.data), IRIS.data)


def test_arrows_of_a_standardised_model_do_not_depend_on_units():
    X = load_iris().data
    tips = []
    for rows in (X, X * [1.0, 1000.0, 1.0, 0.01]):
        figure = plots.biplot(PPCA(2, standardize=True).fit(rows), rows)
        tips.append([label.xy for label in figure.axes[0].texts])
    np.testing.assert_allclose(*tips, rtol=1e-6)
