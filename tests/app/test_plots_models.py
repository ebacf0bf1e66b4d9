"""Every figure with every model: drawn, or refused in words."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

pytest.importorskip("matplotlib", reason="the app extra is not installed: no figures to test")

from matplotlib.figure import Figure
from sklearn.base import clone

import dualpca as dp
from dualpca import plots

N = 40
RNG = np.random.default_rng(0)
A = RNG.normal(size=(N, 2)) @ RNG.normal(size=(2, 5)) + 0.4 * RNG.normal(size=(N, 5))
FULL = pd.DataFrame(A, columns=list("abcde"))
GAPS = FULL.mask(RNG.random(FULL.shape) < 0.08)
MIXED = FULL.assign(grade=pd.Categorical(np.where(A[:, 0] > 0, "high", "low")))
CLASSES = np.array(["p", "q", None, np.nan], dtype=object)[np.arange(N) % 4]

MODELS = {
    "PCA": dp.PCA(2),
    "PPCA": dp.PPCA(2),
    "standardised": dp.PPCA(2, standardize=True),
    "FactorAnalysis": dp.FactorAnalysis(2),
    "BayesianPCA": dp.BayesianPCA(3),
    "RobustPPCA": dp.RobustPPCA(2),
    "CopulaPPCA": dp.CopulaPPCA(2),
    "MixturePPCA": dp.MixturePPCA(2, 2, random_state=0),
    "HierarchicalPPCA": dp.HierarchicalPPCA([2, 2]),
    "HiddenMarkovPCA": dp.HiddenMarkovPCA(2, 2, random_state=0),
    "KernelPCA": dp.KernelPCA(2, kernel="rbf"),
    "DualPPCA": dp.DualPPCA(2, kernel="rbf"),
    "ProbabilisticKernelPCA": dp.ProbabilisticKernelPCA(2, kernel="rbf"),
    "TwinKernelPCA": dp.TwinKernelPCA(2),
    "CCA": dp.CCA(2),
    "Imputer": dp.Imputer(n_components=2),
    "Generator": dp.Generator(dp.PPCA(2)),
}
TABLES = {"full": FULL, "gaps": GAPS, "mixed": MIXED}
ACCEPT_GAPS = {"PPCA", "standardised", "FactorAnalysis", "BayesianPCA", "RobustPPCA", "CopulaPPCA"}
ACCEPT_GAPS |= {"MixturePPCA", "HierarchicalPPCA", "HiddenMarkovPCA", "CCA", "Imputer"}
QUICK = {"PPCA", "CopulaPPCA"}
CASES = [(name, "full") for name in MODELS if name != "TwinKernelPCA"]
CASES += [(name, "gaps") for name in sorted(QUICK)] + [("CopulaPPCA", "mixed")]
RARE = [("TwinKernelPCA", "full"), *((name, "gaps") for name in sorted(ACCEPT_GAPS - QUICK))]
CASES += [pytest.param(case, marks=pytest.mark.slow) for case in RARE]

PLOTS = {
    "scree": lambda m, X: plots.scree(m),
    "scree, discarded": lambda m, X: plots.scree(m, X),
    "biplot": lambda m, X: plots.biplot(m, X, CLASSES),
    "hinton": lambda m, X: plots.hinton(m),
    "latent_scatter": lambda m, X: plots.latent_scatter(m, X, CLASSES),
    "outlier_map": lambda m, X: plots.outlier_map(m, X),
    "contribution_plot": lambda m, X: plots.contribution_plot(m, X.iloc[[3]]),
    "contribution_plot, T²": lambda m, X: plots.contribution_plot(m, X.iloc[[3]], to="t2"),
    "control_chart": lambda m, X: plots.control_chart(m, X),
    "contributions_over_time": lambda m, X: plots.contributions_over_time(m, X),
    "calibration": lambda m, X: plots.calibration(m, X, levels=(0.5, 0.9)),
    "selection_curve": lambda m, X: plots.selection_curve(m),
    "eigenfunctions": lambda m, X: plots.eigenfunctions(m, X),
    "reconstructions": lambda m, X: plots.reconstructions(m, X),
    "sampling_overview": lambda m, X: plots.sampling_overview(m, 20),
    "correlation_circle": lambda m, X: plots.correlation_circle(m, X),
    "quality_bars": lambda m, X: plots.quality_bars(m, X),
    "quality_bars, contributions": lambda m, X: plots.quality_bars(m, X, show="contribution"),
    "quality_bars, rows": lambda m, X: plots.quality_bars(m, X, of="rows"),
    "loading_plot": lambda m, X: plots.loading_plot(m),
    "loading_plot, refitted": lambda m, X: plots.loading_plot(m, X, n_draws=2),
    "scree, parallel": lambda m, X: plots.scree(m, X, parallel=True),
    "imputed_values": lambda m, X: plots.imputed_values(m, X, n_draws=2),
    "imputed_values, scatter": lambda m, X: plots.imputed_values(m, X, kind="scatter"),
    "overimpute": lambda m, X: plots.overimpute(m, X, folds=5),
    "convergence": lambda m, X: plots.convergence(m),
    "latent_scatter, groups": lambda m, X: plots.latent_scatter(
        m, X, CLASSES, groups="both", labels=True
    ),
    "biplot, groups": lambda m, X: plots.biplot(m, X, CLASSES, groups="rows", labels=True),
    "search_history": lambda m, X: plots.search_history(m),
    "search_importance": lambda m, X: plots.search_importance(m),
    "tree": lambda m, X: plots.tree(m, X, CLASSES),
}
ROWS = {"PCA", "PPCA", "standardised", "BayesianPCA", "RobustPPCA"}
LINEAR = ROWS | {"FactorAnalysis"}
KERNEL = {"KernelPCA", "DualPPCA", "ProbabilisticKernelPCA"}
DRAWN = {
    "scree": ROWS | KERNEL | {"CopulaPPCA"},
    "scree, discarded": ROWS,
    "biplot": LINEAR | {"CopulaPPCA"},
    "hinton": LINEAR | {"CopulaPPCA"},
    "latent_scatter": LINEAR | KERNEL | {"CopulaPPCA", "TwinKernelPCA", "CCA", "HierarchicalPPCA"},
    "outlier_map": LINEAR | {"CopulaPPCA"},
    "contribution_plot": LINEAR,
    "control_chart": LINEAR | {"CopulaPPCA"},
    "contributions_over_time": LINEAR,
    "contribution_plot, T²": LINEAR,
    "calibration": LINEAR - {"PCA"} | {"CopulaPPCA", "MixturePPCA"},
    "sampling_overview": {"DualPPCA"},
    "correlation_circle": LINEAR | {"CopulaPPCA"},
    "quality_bars": LINEAR | {"CopulaPPCA"},
    "quality_bars, contributions": LINEAR | {"CopulaPPCA"},
    "quality_bars, rows": ROWS,
    "loading_plot": LINEAR | {"CopulaPPCA"},
    "loading_plot, refitted": LINEAR | {"CopulaPPCA"},
    "scree, parallel": ROWS,
    "overimpute": LINEAR - {"PCA"} | {"CopulaPPCA", "MixturePPCA"},
    "tree": {"HierarchicalPPCA"},
}
LATENTS = DRAWN["latent_scatter"]
DRAWN |= {"latent_scatter, groups": LATENTS, "biplot, groups": DRAWN["biplot"]}
FILLING = LINEAR - {"PCA"} | {"CopulaPPCA", "Imputer"}
"""Which models have what a figure draws; of the others there is none."""

pytestmark = [
    pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning"),
]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def fitted(request):
    name, table = request.param
    y = {"CCA": A[:, :2] + RNG.normal(size=(N, 2))}.get(name)
    return name, clone(MODELS[name]).fit(TABLES[table], y), TABLES[table]


def test_every_figure_is_tried():
    words = {name.partition(",")[0] for name in PLOTS}
    assert words == {name for name in plots.__all__ if name.islower()} - {
        "image_grid",
        "missing_map",
    }


@pytest.mark.filterwarnings("ignore::dualpca.errors.CollapseWarning")  # of a refit to fewer rows
@pytest.mark.parametrize("plot", PLOTS)
def test_a_figure_is_drawn_or_refused_in_words(plot, fitted):
    name, model, X = fitted
    known = DRAWN.get(plot, ())
    if plot.startswith("imputed_values"):  # of what is missing
        known = FILLING if X.isna().any(axis=None) else ()
    if plot == "convergence":  # of fits in steps
        record = getattr(model, "loglikelihoods_", None)
        known = {name} if record is not None and len(record) > 1 + (name == "CopulaPPCA") else ()
    if name in known:
        figure = PLOTS[plot](model, X)
        assert isinstance(figure, Figure)
        figure.draw_without_rendering()
        return
    with pytest.raises((TypeError, ValueError)) as caught:
        PLOTS[plot](model, X)
    words = str(caught.value)
    assert words.startswith(
        (f"plots.{plot.partition(',')[0]} draws", "X must have two", "X must be", "the model")
    )
    assert words.endswith(".") or "got" in words
    assert "attribute" not in words


def ticks(figure):
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


def test_a_missing_sensor_is_named_in_the_contributions():
    row = FULL.iloc[[3]].assign(b=np.nan)
    shown = ticks(plots.contribution_plot(dp.PPCA(2).fit(FULL), row))
    assert sorted(shown[:4]) == ["a", "c", "d", "e"] and shown[4] == "b (missing)"
    wide = pd.DataFrame(RNG.normal(size=(50, 12)))
    row = wide.iloc[[0]].where(np.arange(12)[None, :] < 4)
    shown = ticks(plots.contribution_plot(dp.PPCA(2).fit(wide.to_numpy()), row.to_numpy()))
    assert shown[4:] == [f"x{j} (missing)" for j in range(4, 9)] + ["3 more missing"]
    with pytest.raises(ValueError, match="x must be one row"):
        plots.contribution_plot(dp.PPCA(2).fit(FULL), FULL.iloc[:2])


@pytest.mark.parametrize("model", [dp.PPCA, dp.PCA, dp.FactorAnalysis])
def test_no_unit_makes_a_square_of_the_loadings_large(model):
    areas = []
    for unit in (1.0, 1000.0):
        figure = plots.hinton(model(2, standardize=True).fit(FULL.assign(a=unit * FULL["a"])))
        squares = [p for c in figure.axes[0].collections for p in c.get_paths()]
        areas.append(sorted(np.ptp(p.vertices, axis=0).prod() for p in squares))
        assert "standard deviations" in figure.legends[0].get_texts()[0].get_text()
    np.testing.assert_allclose(areas[0], areas[1], rtol=1e-5)


def test_discarded_directions_of_a_table_with_gaps_are_about_those_of_the_whole():
    X = RNG.normal(size=(400, 2)) @ RNG.normal(size=(2, 6)) * 2 + RNG.normal(size=(400, 6))
    gaps = np.where(RNG.random(X.shape) < 0.1, np.nan, X)
    whole, some = (plots.scree(dp.PPCA(2).fit(T), T).axes[0].lines[1] for T in (X, gaps))
    assert len(some.get_ydata()) == 4
    np.testing.assert_allclose(some.get_ydata(), whole.get_ydata(), rtol=0.15)


@pytest.mark.parametrize("kind", [np.asarray, pd.Series, lambda v: pl.Series(v.tolist())])
def test_rows_without_a_class_are_grey(kind):
    model = dp.PPCA(2).fit(FULL)
    text = np.where(CLASSES == CLASSES, CLASSES, None)  # polars has no NaN beside text
    figure = plots.biplot(model, FULL, kind(text))
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["p", "q", "missing"]
    colours = figure.axes[0].collections[0].get_facecolors()
    assert len(np.unique(colours, axis=0)) == 3


def test_intervals_of_columns_of_any_kind_are_counted_where_they_are_numbers():
    X = pd.concat([MIXED] * 3, ignore_index=True)
    X[list("abcde")] += 0.3 * RNG.normal(size=(len(X), 5))
    X["a"] = np.exp(X["a"])
    ax = plots.calibration(dp.CopulaPPCA(2).fit(X), X, levels=(0.5, 0.9)).axes[0]
    shares = ax.lines[1].get_ydata()
    assert abs(shares[0] - 0.5) < 0.2 and abs(shares[1] - 0.9) < 0.1
    assert int(ax.get_title(loc="left").split()[0]) < 0.15 * 5 * len(X)
