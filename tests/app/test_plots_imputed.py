"""Figures of missing entries: draws are where the model says, entries are predicted unseen."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

pytest.importorskip("matplotlib", reason="the app extra is not installed: no figures to test")

from scipy import stats
from sklearn.datasets import load_iris

from dualpca import PCA, PPCA, CopulaPPCA, FactorAnalysis, Imputer, plots
from dualpca.app.plots._canvas import BLUE, VERMILION
from dualpca.app.plots.imputed import overimputed
from dualpca.gaussian.calibration import deal

RNG = np.random.default_rng(0)
FULL = load_iris().data
GAPS = np.where((RNG.random(FULL.shape) < 0.15) & [True, False, True, True], np.nan, FULL)
FRAME = pd.DataFrame(GAPS, columns=list("abcd"))
KIND = pd.Series(load_iris().target_names[load_iris().target]).mask(RNG.random(150) < 0.2)
MIXED = FRAME.assign(kind=pd.Categorical(KIND))


# --- where entries are missing ------------------------------------------------------------------


def test_frames_may_have_the_dtypes_of_pandas():
    X = FRAME.convert_dtypes().assign(k=pd.array([1, None, 2] * 50, dtype="Int64"))
    words = plots.missing_map(X).axes[0].get_xticklabels()
    assert [word.get_text().split()[0] for word in words] == list("kadcb")
    model, plain = PPCA(2).fit(X), X.astype(float)
    for plot in (plots.imputed_values, plots.overimpute, plots.correlation_circle):
        drawn = [plot(model, table).axes[0] for table in (X, plain)]
        assert drawn[0].get_title(loc="left") == drawn[1].get_title(loc="left")
        (ours, same) = ([text.get_position() for text in ax.texts] for ax in drawn)
        np.testing.assert_allclose(ours, same)
    assert plots.scree(model, X, parallel=True) and plots.scree(model, X)
    mixed = MIXED.assign(kind=KIND.astype("string"), k=X.k)
    model = CopulaPPCA(1).fit(mixed)
    assert len(plots.imputed_values(model, mixed).axes) == 5
    assert len(plots.overimpute(model, mixed, refit=False).axes) == 3  # k is ordinal


@pytest.mark.parametrize("kind", ["density", "strip"])
def test_a_column_without_gaps_has_no_filled_values(kind):
    with pytest.raises(ValueError, match=r"columns with missing entries, got \['b'\]"):
        plots.imputed_values(PPCA(2).fit(FRAME), FRAME, kind=kind, columns=["a", "b"])


@pytest.mark.parametrize("kind", [lambda X: X, pl.from_pandas, lambda X: X.to_numpy(object)])
def test_patterns_are_counted(kind):
    X = pd.DataFrame(
        {
            "none": [1.0, 2.0, 3.0, 4.0, 5.0],
            "word": ["u", None, None, "v", None],
            "gap": [np.nan, np.nan, 1.0, 2.0, 3.0],
        }
    )
    ax = plots.missing_map(kind(X)).axes[0]
    named = ["word", "gap", "none"] if hasattr(kind(X), "columns") else ["x1", "x2", "x0"]
    words = [label.get_text().split() for label in ax.get_xticklabels()]
    assert [one[0] for one in words] == named
    assert [one[1] for one in words] == ["60", "40", "0"]
    cells = ax.collections[0].get_array().reshape(-1, 3)
    assert cells.tolist()[0] == [1, 0, 0]  # two rows
    assert sorted(map(tuple, cells.tolist())) == [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0)]
    counts = [label.get_text() for label in ax.get_yticklabels()]
    assert counts[0] == "2 rows (40 %)" and counts[1:] == ["1 (20 %)"] * 3


def test_rare_patterns_are_counted_together():
    X = np.where(np.arange(6) < np.arange(40)[:, None] % 6, np.nan, 1.0)
    ax = plots.missing_map(X, n_patterns=4).axes[0]
    assert ax.get_xlabel() == "2 more patterns, of 12 rows"
    assert len(ax.get_yticklabels()) == 4
    with pytest.raises(ValueError, match="X must be a table"):
        plots.missing_map(np.zeros((0, 3)))


# --- what is filled in --------------------------------------------------------------------------


def test_draws_and_measured_values_are_drawn():
    model = PPCA(2).fit(GAPS)
    figure = plots.imputed_values(model, GAPS, kind="strip", n_draws=3, columns=[2])
    tables = model.sample_imputations(GAPS, 3, random_state=0)
    gap = np.isnan(GAPS[:, 2])
    parts = [part.get_offsets()[:, 1] for part in figure.axes[0].collections]
    np.testing.assert_allclose(parts[0], GAPS[~gap, 2])
    for part, table in zip(parts[1:], tables, strict=True):
        np.testing.assert_allclose(part, table[gap, 2])


def test_densities_are_those_of_the_values():
    model = PPCA(2).fit(GAPS)
    ax = plots.imputed_values(model, GAPS, n_draws=2, columns=[0]).axes[0]
    gap = np.isnan(GAPS[:, 0])
    tables = model.sample_imputations(GAPS, 2, random_state=0)
    curves = [line for line in ax.lines if len(line.get_xdata()) == 200]
    values = [*(table[gap, 0] for table in tables), GAPS[~gap, 0]]
    for line, own in zip(curves, values, strict=True):
        x, y = line.get_data()
        np.testing.assert_allclose(y, stats.gaussian_kde(own)(x))


def test_filled_cells_are_marked_in_a_scatter_plot():
    model = PPCA(2).fit(FRAME)
    figure = plots.imputed_values(model, FRAME, kind="scatter", columns=["a", "c"])
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words == ["both measured", "a filled in", "c filled in", "both"]
    sizes = [len(part.get_offsets()) for part in figure.axes[0].collections]
    a, c = np.isnan(GAPS[:, 0]), np.isnan(GAPS[:, 2])
    assert sizes == [np.sum(~a & ~c), np.sum(a & ~c), np.sum(c & ~a), np.sum(a & c)]
    known = figure.axes[0].collections[0].get_offsets()
    np.testing.assert_allclose(known, GAPS[~a & ~c][:, [0, 2]])


@pytest.mark.parametrize("frame", [lambda X: X, pl.from_pandas])
def test_shares_of_levels_are_drawn(frame):
    X = frame(MIXED)
    model = CopulaPPCA(2).fit(X)
    figure = plots.imputed_values(model, X, n_draws=2, columns=["kind", "a"])
    ax = figure.axes[0]
    levels = [label.get_text() for label in ax.get_yticklabels()]
    assert levels == ["setosa", "versicolor", "virginica"]
    known = KIND.dropna().value_counts(normalize=True)
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], known[levels])
    assert len(ax.lines) == 2
    np.testing.assert_allclose([line.get_xdata().sum() for line in ax.lines], 1)


def test_what_cannot_be_drawn_is_refused():
    model = PPCA(2).fit(FULL)
    for options, words in (
        ({}, "X must be a table with missing entries"),
        ({"kind": "bars"}, "kind must be one of"),
    ):
        with pytest.raises(ValueError, match=words):
            plots.imputed_values(model, FULL, **options)
    model = CopulaPPCA(2).fit(MIXED)
    with pytest.raises(ValueError, match="two columns of numbers"):
        plots.imputed_values(model, MIXED, kind="scatter", columns=["kind", "a"])
    with pytest.raises(ValueError, match="columns must be a list of some of"):
        plots.imputed_values(model, MIXED, columns=["other"])
    with pytest.raises(TypeError, match="completed tables"):
        plots.imputed_values(PCA(2).fit(FULL), GAPS)
    assert plots.imputed_values(Imputer(2).fit(GAPS), GAPS, n_draws=1).axes


# --- over-imputation ----------------------------------------------------------------------------


def test_every_entry_is_dealt_once():
    parts = deal(GAPS, 4, np.random.default_rng(0))
    assert np.array_equal(np.sum(parts, axis=0) == 1, ~np.isnan(GAPS))
    per_row = np.array([part.sum(axis=1) for part in parts])
    assert per_row.max() == 1  # at most one of four entries of a row at a time
    with pytest.raises(ValueError, match="folds must be"):
        deal(GAPS, 1, np.random.default_rng(0))
    lone = np.full((4, 2), np.nan)
    lone[0, 0], lone[:, 1] = 1.0, 2.0
    assert not any(part[0, 0] for part in deal(lone, 2, np.random.default_rng(0)))


def test_entries_are_predicted_as_dense_conditioning_says():
    """Without refits: the Gaussian of the model, given what is left of the row."""
    model = PPCA(2).fit(np.tile(FULL, (40, 1)))  # so many rows that parameters count as known
    found = overimputed(model, GAPS, 0.9, folds=4, refit=False)
    C, mean = model.get_covariance(), model.mean_
    for row, column, truth, guess, low, high, away in list(zip(*found, strict=True))[::37]:
        assert truth == GAPS[row, column]
        rest = np.flatnonzero(~np.isnan(GAPS[row]) & (np.arange(4) != column))
        weights = np.linalg.solve(C[np.ix_(rest, rest)], C[rest, column])
        expected = mean[column] + weights @ (GAPS[row, rest] - mean[rest])
        spread = np.sqrt(C[column, column] - weights @ C[rest, column])
        reach = stats.norm.ppf(0.95) * spread
        np.testing.assert_allclose([guess, low, high], expected + np.array([0, -reach, reach]))
        assert away == pytest.approx(abs(truth - expected) / spread)
    assert len(found.truth) == np.sum(~np.isnan(GAPS))


@pytest.mark.parametrize("model", [PPCA(2), FactorAnalysis(1), CopulaPPCA(2)])
def test_intervals_cover_what_they_promise(model):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(250, 2)) @ rng.normal(size=(2, 6)) + 0.6 * rng.normal(size=(250, 6))
    found = overimputed(model.fit(X), X, 0.8)
    inside = np.mean((found.low <= found.truth) & (found.truth <= found.high))
    assert abs(inside - 0.8) < 0.05


def test_entries_outside_of_their_intervals_are_red():
    model = PPCA(2).fit(FULL)
    figure = plots.overimpute(model, FULL, columns=[1], refit=False, level=0.5)
    ax = figure.axes[0]
    found = overimputed(model, FULL, 0.5, refit=False)
    mine = found.column == 1
    inside = (found.low <= found.truth)[mine] & (found.truth <= found.high)[mine]
    assert ax.get_title(loc="left") == f"x1: {100 * inside.mean():.0f} % inside"
    from matplotlib.colors import to_hex

    dots = {to_hex(c.get_facecolor()[0]): c for c in ax.collections if hasattr(c, "get_sizes")}
    sizes = {colour: len(dots[colour].get_offsets()) for colour in (BLUE, VERMILION)}
    assert sizes == {BLUE: inside.sum(), VERMILION: (~inside).sum()}


def test_columns_with_gaps_are_drawn_first_and_categories_never():
    model = CopulaPPCA(2).fit(MIXED)
    figure = plots.overimpute(model, MIXED, folds=2, refit=False)
    names = [ax.get_title(loc="left").partition(":")[0] for ax in figure.axes]
    assert names == ["a", "c", "d"]
    with pytest.raises(ValueError, match="categories have no intervals"):
        plots.overimpute(model, MIXED, columns=["kind"])


# --- convergence --------------------------------------------------------------------------------


def test_the_record_of_a_fit_is_drawn():
    model = PPCA(2).fit(GAPS)
    ax = plots.convergence(model).axes[0]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), model.loglikelihoods_)
    assert ax.get_title(loc="left").startswith("converged after")
    model = CopulaPPCA(2).fit(MIXED)
    ax = plots.convergence(model).axes[0]
    assert np.all(np.diff(ax.lines[0].get_ydata()) > -1e-6 * abs(model.loglikelihood_))
    assert ax.get_ylabel() == "log-likelihood with the prior"
    with pytest.raises(ValueError, match="closed form"):
        plots.convergence(PPCA(2).fit(FULL))
