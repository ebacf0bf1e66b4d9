"""Figures of components: what is drawn is FactoMineR's, and what dense formulas say."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("matplotlib", reason="the app extra is not installed: no figures to test")

from matplotlib.patches import Ellipse, FancyArrowPatch
from scipy import stats
from sklearn.datasets import load_iris, load_wine

from dualpca import PCA, PPCA, BayesianPCA, CopulaPPCA, FactorAnalysis, plots
from dualpca.app.plots._canvas import columns_of, find_places, group_ellipses
from dualpca.app.plots.components import column_correlations, loading_errors
from dualpca.gaussian.selection import independent_streams
from dualpca.models import incomplete

IRIS = load_iris(as_frame=True)
WINE = load_wine(as_frame=True)
SPECIES = IRIS.target_names[IRIS.target]
# decathlon of FactoMineR 2.7: the first six athletes of both meetings, four events
EVENTS = pd.DataFrame(
    {
        "100m": [11.04, 10.76, 11.02, 11.02, 11.34, 11.11, 10.85, 10.44, 10.5, 10.89],
        "jump": [7.58, 7.4, 7.3, 7.23, 7.09, 7.6, 7.84, 7.96, 7.81, 7.47],
        "shot": [14.83, 14.26, 14.77, 14.25, 15.19, 14.31, 16.36, 15.23, 15.93, 15.73],
        "400m": [49.81, 49.37, 48.37, 48.93, 50.42, 48.68, 48.36, 49.19, 46.81, 48.97],
    }
)


def dense(X, q):
    """Return scores, axes and variances (divisor n) of standardised columns, by numpy alone."""
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    values, vectors = np.linalg.eigh(Z.T @ Z / len(Z))
    return Z, Z @ vectors[:, ::-1][:, :q], vectors[:, ::-1][:, :q], values[::-1][:q]


def bars(figure):
    """Return names and the length of each part, (bars, parts)."""
    ax = figure.axes[0]
    names = [label.get_text() for label in ax.get_yticklabels()]
    widths = [patch.get_width() for patch in ax.patches]
    return names, np.reshape(widths, (-1, len(names))).T


# --- cos² and contributions ---------------------------------------------------------------------


@pytest.mark.parametrize("model", [PCA, PPCA])
def test_cos2_and_contributions_are_those_of_dense_formulas(model):
    X, chosen = WINE.data, [0, 2]
    fitted = model(4, standardize=True).fit(X)
    Z, F, V, lam = dense(X.to_numpy(), 4)
    weight = lam[chosen] / lam[chosen].sum()
    expected = {
        ("cos2", "columns"): (V**2 * lam)[:, chosen],
        ("contribution", "columns"): (V**2)[:, chosen] * weight,
        ("cos2", "rows"): (F**2 / (Z**2).sum(axis=1, keepdims=True))[:, chosen],
        ("contribution", "rows"): (F**2 / (len(Z) * lam))[:, chosen] * weight,
    }
    for (show, of), parts in expected.items():
        figure = plots.quality_bars(fitted, X, show=show, of=of, axes=chosen, n_bars=200)
        order = np.argsort(-parts.sum(axis=1), kind="stable")
        np.testing.assert_allclose(bars(figure)[1], parts[order], rtol=1e-6, atol=1e-9)
        names = list(X.columns) if of == "columns" else [str(i) for i in range(len(X))]
        assert bars(figure)[0] == [names[i] for i in order]


def test_the_line_of_contributions_is_where_all_contribute_alike():
    model = PCA(2, standardize=True).fit(EVENTS)
    ax = plots.quality_bars(model, EVENTS, show="contribution").axes[0]
    assert ax.lines[0].get_xdata()[0] == 0.25
    assert np.isclose(bars(ax.figure)[1].sum(), 1)


def test_numbers_are_factominers():
    """PCA(EVENTS, graph = FALSE) of FactoMineR 2.7."""
    model = PCA(2, standardize=True).fit(EVENTS)
    found = column_correlations(model, EVENTS)
    np.testing.assert_allclose(np.abs(found), np.abs(COR), rtol=1e-7)
    contributions = plots.quality_bars(model, EVENTS, show="contribution", axes=[0], n_bars=4)
    np.testing.assert_allclose(np.sort(bars(contributions)[1][:, 0]) * 100, np.sort(CONTRIB))
    rows = plots.quality_bars(model, EVENTS, of="rows", axes=[1], n_bars=10)
    np.testing.assert_allclose(np.sort(bars(rows)[1][:, 0]), np.sort(COS2_ROWS), rtol=1e-6)


COR = [
    [0.864180892, 0.348997753],
    [-0.887209744, -0.069744310],
    [-0.676017554, 0.730424487],
    [0.759032377, 0.171672195],
]
CONTRIB = [29.091758845, 30.662902737, 17.802320144, 22.443018274]
COS2_ROWS = [
    *(0.006848643, 0.568547978, 0.040520885, 0.194572645, 0.210797011),
    *(0.242482823, 0.339408134, 0.067103171, 0.001934358, 0.771439752),
]


def test_bars_of_rows_may_have_no_names():
    X = load_iris().data
    ax = plots.quality_bars(PCA(2).fit(X), X, of="rows", labels=False).axes[0]
    assert {label.get_text() for label in ax.get_yticklabels()} == {""}


def test_bars_of_unknown_things_are_refused():
    model = PCA(2).fit(EVENTS)
    with pytest.raises(ValueError, match="show must be one of"):
        plots.quality_bars(model, EVENTS, show="cos")
    with pytest.raises(ValueError, match="axes must be some of the model's 2 components"):
        plots.quality_bars(model, EVENTS, axes=(0, 5))
    with pytest.raises(TypeError, match="of='columns'"):
        plots.quality_bars(FactorAnalysis(1).fit(EVENTS), EVENTS, of="rows", axes=[0])


# --- the correlation circle ---------------------------------------------------------------------


@pytest.mark.parametrize("model", [PCA(3), PPCA(3), PCA(3, standardize=True), BayesianPCA(2)])
def test_arrows_are_correlations_with_the_scores(model):
    X = IRIS.data
    model = model.fit(X)
    ax = plots.correlation_circle(model, X).axes[0]
    tips = np.array([text.xy for text in ax.texts])
    both = np.corrcoef(X.T, model.transform(X)[:, :2].T)[:4, 4:]
    np.testing.assert_allclose(tips, both, atol=1e-9)
    assert sum(isinstance(patch, FancyArrowPatch) for patch in ax.patches) == 4
    assert np.all(np.linalg.norm(tips, axis=1) <= 1)


def test_columns_of_any_kind_lie_within_the_circle():
    X = IRIS.data.assign(species=SPECIES, large=IRIS.data.iloc[:, 2] > 3)
    model = CopulaPPCA(2).fit(X)
    found = column_correlations(model, None)
    assert np.all(np.linalg.norm(found, axis=1) <= 1 + 1e-9)
    names = [str(name) for name in model.loading_names_]
    W = np.asarray(model.loadings_)
    level = names.index("species=setosa")
    np.testing.assert_allclose(found[level], W[level] / np.sqrt(1 + W[level] @ W[level]))
    np.testing.assert_allclose(found[0], W[0])
    assert str(model.column_kinds_["large"]) == "binary"
    np.testing.assert_allclose(found[-1], W[-1])  # one scale, of variance 1
    C = np.asarray(model.correlation_)
    np.testing.assert_allclose((W[0] @ W[-1]), C[0, -1], atol=1e-9)


# --- loadings with errors -----------------------------------------------------------------------


def test_errors_of_loadings_are_those_of_repeated_samples():
    """√(l/n) for a loading that is 0 beside one strong direction would do: here by simulation."""
    rng, n = np.random.default_rng(0), 150

    def sample():
        return rng.normal(size=(n, 1)) * [2.0, 1.0, 0.5, 0.0] + rng.normal(size=(n, 4))

    def loadings(X):
        W = np.asarray(PPCA(1).fit(X).loadings_)
        return W * np.sign(W[0])

    truth = np.std([loadings(sample()) for _ in range(300)], axis=0)
    X = sample()
    found = loading_errors(PPCA(1).fit(X), X, 200, 0)
    np.testing.assert_allclose(found, truth, rtol=0.3)


def test_intervals_are_drawn_around_loadings():
    X = EVENTS
    model = PCA(2, standardize=True).fit(X)
    figure = plots.loading_plot(model, X, n_draws=20, level=0.9)
    W = model.components_.T * np.sqrt(model.explained_variance_)
    error = loading_errors(model, X, 20, 0)
    for p, ax in enumerate(figure.axes):
        dots = {round(y): x for c in ax.containers for x, y in c.lines[0].get_xydata()}
        np.testing.assert_allclose([dots[j] for j in range(4)], W[:, p])
        ends = [s for c in ax.containers for s in c.lines[2][0].get_segments() if len(s)]
        widths = {round(s[0, 1]): s[1, 0] - s[0, 0] for s in ends}
        expected = 2 * stats.norm.ppf(0.95) * error[:, p]
        np.testing.assert_allclose([widths[j] for j in range(4)], expected)
    again = plots.loading_plot(model, X, n_draws=20, level=0.9)
    assert [len(ax.containers) for ax in again.axes] == [2, 2]


def test_a_posterior_has_errors_of_its_own_and_others_have_none_without_rows():
    model = BayesianPCA(2).fit(WINE.data.iloc[:, :5])
    if hasattr(model, "loadings_std_"):
        assert plots.loading_plot(model).legends
    assert not plots.loading_plot(PCA(2).fit(EVENTS)).legends


# --- parallel analysis --------------------------------------------------------------------------


def test_parallel_analysis_is_that_of_the_rule():
    X = WINE.data.to_numpy()
    model = PPCA("parallel", standardize=True).fit(X)
    ax = plots.scree(model, X, parallel=True).axes[0]
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    draws = []
    for rng in independent_streams(Z.size, incomplete.SEED):
        own = rng.permuted(Z, axis=0)
        draws.append(np.linalg.eigvalsh(own.T @ own / len(Z))[::-1])
    limits = np.quantile(draws, 0.95, axis=0)
    line = next(line for line in ax.lines if len(line.get_ydata()) == 13)
    np.testing.assert_allclose(line.get_ydata(), limits)
    dots = np.concatenate([line.get_ydata() for line in ax.lines if line.get_marker() == "o"])
    np.testing.assert_allclose(dots, np.linalg.eigvalsh(np.corrcoef(X.T))[::-1])
    above = int(np.argmin(dots > limits))
    assert above == model.n_components_ == 3
    assert ax.get_title(loc="left") == "3 directions are above permuted columns"


def test_parallel_analysis_with_gaps_counts_as_the_rule_does():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2)) @ rng.normal(size=(2, 8)) + 0.7 * rng.normal(size=(120, 8))
    X[rng.random(X.shape) < 0.15] = np.nan
    model = PPCA("parallel").fit(X)
    words = plots.scree(model, X, parallel=True).axes[0].get_title(loc="left")
    assert words.startswith(f"{model.n_components_} directions are")


def test_parallel_analysis_needs_a_table():
    with pytest.raises(TypeError, match="give the X"):
        plots.scree(PPCA(2).fit(EVENTS), parallel=True)


# --- groups and names of rows -------------------------------------------------------------------


def test_radii_of_ellipses_are_by_quantiles_of_f_and_cover():
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(12, 2))
    centre, covariance, rows, mean = group_ellipses(Z, 0.9)
    quantile = stats.f.ppf(0.9, 2, 10)
    assert np.isclose(rows**2, 2 * (12**2 - 1) / (12 * 10) * quantile)
    assert np.isclose(mean**2, 2 * 11 / (12 * 10) * quantile)
    np.testing.assert_allclose(covariance, np.cov(Z.T, ddof=1))
    large = group_ellipses(rng.normal(size=(100_000, 2)), 0.9)[2:]
    np.testing.assert_allclose(large[0] ** 2, stats.chi2.ppf(0.9, 2), rtol=1e-3)
    np.testing.assert_allclose(large[1] ** 2 * 100_000, stats.chi2.ppf(0.9, 2), rtol=1e-3)
    inside = np.zeros(2)
    for _ in range(2000):
        Z, new = rng.normal(size=(8, 2)), rng.normal(size=2)
        centre, covariance, *radii = group_ellipses(Z, 0.9)
        for k, point in enumerate((new, np.zeros(2))):
            away = point - centre
            inside[k] += away @ np.linalg.solve(covariance, away) <= radii[k] ** 2
    np.testing.assert_allclose(inside / 2000, 0.9, atol=0.025)


@pytest.mark.parametrize("plot", [plots.latent_scatter, plots.biplot])
def test_ellipses_of_groups_are_drawn(plot):
    model = PCA(2, standardize=True).fit(IRIS.data)
    Z = model.transform(IRIS.data)
    for groups, each in (("mean", 1), ("rows", 1), ("both", 2)):
        figure = plot(model, IRIS.data, SPECIES, groups=groups, level=0.95)
        drawn = [patch for patch in figure.axes[0].patches if isinstance(patch, Ellipse)]
        assert len(drawn) == 3 * each
    centre, covariance, *radii = group_ellipses(Z[:50], 0.95)
    for one, radius in zip(drawn[:2], radii, strict=True):
        np.testing.assert_allclose(one.center, centre)
        sides = 2 * radius * np.sqrt(np.linalg.eigvalsh(covariance))
        np.testing.assert_allclose([one.width, one.height], sides)
        for end in (*one.get_vertices(), *one.get_co_vertices()):  # on the ellipse, as it is turned
            away = np.asarray(end) - centre
            np.testing.assert_allclose(away @ np.linalg.solve(covariance, away), radius**2)


def test_small_groups_and_rows_without_one_have_no_ellipse():
    y = np.array(["a", "a", None, "b", "b", "b", "b", "b", "b", "b"], dtype=object)
    model = PCA(2).fit(EVENTS)
    figure = plots.latent_scatter(model, EVENTS, y, groups="rows")
    assert sum(isinstance(patch, Ellipse) for patch in figure.axes[0].patches) == 1
    for options, words in (
        ({"groups": "rows"}, "y must be"),
        ({"y": y, "groups": y}, "groups must be one of"),
        ({"y": y, "groups": "rows", "level": 1.0}, "level must be"),
        ({"labels": ["a"]}, "labels must be True, or a name for each of the 10 rows, got 1"),
    ):
        with pytest.raises(ValueError, match=words):
            plots.latent_scatter(model, EVENTS, **options)


def boxes(ax):
    ax.figure.draw_without_rendering()
    from matplotlib.text import Text

    return np.array([Text.get_window_extent(text).get_points() for text in ax.texts])


def test_150_names_of_rows_avoid_each_other_and_stay_inside():
    model = PCA(2, standardize=True).fit(IRIS.data)
    names = [f"flower {i}" for i in range(150)]
    ax = plots.latent_scatter(model, IRIS.data, SPECIES, labels=names).axes[0]
    shown = [text.get_text() for text in ax.texts]
    left = [word for word in shown if "no room" in word]
    assert len(shown) - len(left) > 45
    assert int(left[0].split()[0]) == 150 - (len(shown) - 1)
    extents = boxes(ax)
    rows = ax.transData.transform(model.transform(IRIS.data))[:, None]
    assert not ((rows > extents[:, 0]) & (rows < extents[:, 1])).all(axis=2)[:, :-1].any()
    low, high = extents[:, 0], extents[:, 1]
    both = np.minimum(high[:, None], high) - np.maximum(low[:, None], low)
    assert not np.triu((both > 0.5).all(axis=2), 1).any()
    frame = ax.get_window_extent().get_points()
    assert np.all(low >= frame[0] - 1) and np.all(high <= frame[1] + 1)
    again = plots.latent_scatter(model, IRIS.data, SPECIES, labels=names).axes[0]
    assert [t.get_position() for t in ax.texts] == [t.get_position() for t in again.texts]


def test_names_of_rows_keep_off_those_of_columns():
    X = EVENTS.set_axis([f"athlete {i}" for i in range(10)])
    ax = plots.biplot(PCA(2, standardize=True).fit(X), X, labels=True).axes[0]
    assert [t.get_text() for t in ax.texts][:4] == list(X.columns)
    assert sum(t.get_text().startswith("athlete") for t in ax.texts) >= 6
    extents = boxes(ax)
    low, high = extents[:, 0], extents[:, 1]
    both = np.minimum(high[:, None], high) - np.maximum(low[:, None], low)
    assert not np.triu((both > 0.5).all(axis=2), 1).any()


def test_places_improve_until_none_moves():
    """A label that came first gives way where that is cheaper."""
    rng = np.random.default_rng(3)
    origin, half = rng.uniform(20, 80, (12, 2)), np.full((12, 2), [9.0, 4.0])
    frame = np.array([[0.0, 0.0], [100.0, 100.0]])
    found = find_places(origin, half, origin - 50, frame, np.zeros((0, 2)))
    near = (np.abs(found[:, None] - found) < 2 * half).all(axis=2)
    assert not np.triu(near, 1).any()
    box = np.array([[[0.0, 0.0], [100.0, 48.0]]])
    free = find_places(origin[:1], half[:1], origin[:1], frame, np.zeros((0, 2)), box)
    assert free[0, 1] - 4 >= 48 or origin[0, 1] < 10


def test_legends_have_as_many_columns_as_fit():
    assert columns_of(["short"] * 9, 6.0) == 5
    assert columns_of(["x" * 60, "y"], 6.0) == 1
