"""Conformal intervals and p-values: they hold for heavy tails, and no row is used twice."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import dualpca as dp
from dualpca.estimators.conformal import least_for, ranked, unusualness


def heavy(rng, n, d=4, nu=2.0):
    """Return rows of one cause and noise, all of Student's t: far from Gaussian."""
    return rng.standard_t(nu, (n, 1)) + 0.7 * rng.standard_t(nu, (n, d))


def gaps(rng, X, share=0.2):
    hidden = rng.random(X.shape) < share
    hidden[:, 0] = False  # no row is empty
    return np.where(hidden, np.nan, X), hidden


def mean_and_error(shares):
    return np.mean(shares), np.std(shares, ddof=1) / np.sqrt(len(shares))


# --- what is promised -----------------------------------------------------------------


@pytest.mark.parametrize("method", ["cv+", "split"])
def test_intervals_of_new_rows_hold_under_heavy_tails(method):
    rng, held = np.random.default_rng(5), {"impute": [], "reconstruct": [], "p_values": []}
    for _ in range(80):
        X, new = heavy(rng, 60), heavy(rng, 100)
        fitted, (asked, hidden) = gaps(rng, X)[0], gaps(rng, new)
        found = dp.conformal(dp.PPCA(1), fitted, level=0.8, method=method, random_state=rng)
        _, low, high = found.impute(asked)
        held["impute"].append(np.mean((low <= new)[hidden] & (new <= high)[hidden]))
        _, low, high = found.reconstruct(new)
        held["reconstruct"].append(np.mean((low <= new) & (new <= high)))
        held["p_values"].append(np.mean(found.p_values(asked) > 0.2))
    for what, shares in held.items():
        mean, error = mean_and_error(shares)
        assert 0.8 - 3 * error <= mean <= 0.86, what


@pytest.mark.filterwarnings("ignore::dualpca.errors.SkewWarning")
def test_gaussian_intervals_do_not_hold_where_conformal_ones_do():
    """So that the test above can fail: the same tables, intervals that trust the model."""
    rng, held = np.random.default_rng(6), []
    for _ in range(60):
        X, new = heavy(rng, 60), heavy(rng, 100)
        asked, hidden = gaps(rng, new)
        mean, std = dp.PPCA(1).fit(X).impute(asked, return_std=True)
        held.append(np.mean(np.abs(new - mean)[hidden] <= 1.2816 * std[hidden]))
    mean, error = mean_and_error(held)
    assert abs(mean - 0.8) > 5 * error


def test_the_table_itself_is_judged_without_each_row():
    rng, ordinary, held = np.random.default_rng(7), [], []
    for _ in range(80):
        X = heavy(rng, 50)
        table, hidden = gaps(rng, X)
        found = dp.conformal(dp.PPCA(1), table, level=0.8, random_state=rng)
        p = found.p_values()
        # among 50 rows the p-values are 1/50 to 1, each once: no more than α in a share α
        assert all(np.mean(p <= a) <= a + 1e-12 for a in (0.1, 0.5, 0.9))
        np.testing.assert_allclose(np.sort(p), np.arange(1, 51) / 50)
        ordinary.append(p[0] > 0.1)
        _, low, high = found.impute()
        held.append(np.mean((low <= X)[hidden] & (X <= high)[hidden]))
    assert 0.8 <= np.mean(ordinary) <= 0.99
    mean, error = mean_and_error(held)
    assert 0.8 - 3 * error <= mean <= 0.86


@pytest.mark.parametrize(
    ("method", "folds", "least"),
    [("split", 10, 0.9), ("jackknife+", 10, 0.8), ("cv+", 10, 1 - 0.2 - 0.9 / 11)],
)
def test_the_guarantee_is_that_of_the_papers(method, folds, least):
    X = np.random.default_rng(0).normal(size=(100, 3))
    found = dp.conformal(dp.PPCA(1), X, method=method, folds=folds)
    assert found.guarantee == pytest.approx(least)
    assert f"covers {100 * least:.3g} % or more" in repr(found)
    n = {"split": 1, "jackknife+": 100, "cv+": 10}[method]
    assert len(found.models) == n and found.n_calibrating == (50 if method == "split" else 100)


# --- no row is used twice -------------------------------------------------------------


class Recorder(dp.PPCA):
    """PPCA that keeps the rows it was fitted to."""

    def fit(self, X, y=None, sample_weight=None):
        self.rows_ = np.array(X)[:, 0]
        return super().fit(X)


@pytest.mark.parametrize("method", ["cv+", "jackknife+", "split"])
def test_no_row_fits_the_model_that_it_calibrates(method):
    X = np.random.default_rng(0).normal(size=(40, 3))
    found = dp.conformal(Recorder(1), X, method=method, folds=7)
    for k, model in enumerate(found.models):
        held = X[found.fold == k, 0]
        assert not set(held) & set(model.rows_)
        assert sorted([*held, *model.rows_]) == sorted(X[:, 0])
    sizes = np.bincount(found.fold[found.fold >= 0])
    assert sizes.max() - sizes.min() <= 1


def test_entries_are_hidden_one_by_one_and_asked_of_the_fit_that_left_the_row_out():
    rng = np.random.default_rng(1)
    X = gaps(rng, rng.normal(size=(30, 3)) + rng.normal(size=(30, 1)))[0]
    found = dp.conformal(dp.PPCA(1), X, folds=5)
    scores = found._scores("impute", 2)
    for i in range(30):
        if np.isnan(X[i, 2]):
            assert np.isnan(scores[i])
            continue
        row = X[[i]].copy()
        row[0, 2] = np.nan
        model = found.models[found.fold[i]]
        mean, std = model.impute(row, return_std=True, parameters="fixed")
        assert scores[i] == pytest.approx(abs(X[i, 2] - mean[0, 2]) / std[0, 2])


def test_intervals_and_p_values_are_those_of_their_definition():
    """Barber et al. (2021), equation 11, and Vovk (2015), one row after another."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(30, 3)) + rng.normal(size=(30, 1))
    new = np.array([[0.5, np.nan, 1.0], [np.nan, -1.0, 0.0]])
    found = dp.conformal(dp.PPCA(1), X, folds=6, level=0.8)
    filled, low, high = found.impute(new)
    for row, j in ((0, 1), (1, 0)):
        R, ends = found._scores("impute", j), []
        for i in range(30):
            model = found.models[found.fold[i]]
            mean, std = model.impute(new, return_std=True, parameters="fixed")
            ends.append((mean[row, j] - R[i] * std[row, j], mean[row, j] + R[i] * std[row, j]))
        below, above = np.sort(np.array(ends), axis=0).T
        assert low[row, j] == pytest.approx(below[5])  # the 6th smallest: 0.2 · 31 rounded down
        assert high[row, j] == pytest.approx(above[24])  # the 25th: 0.8 · 31 rounded up
    np.testing.assert_array_equal(filled[~np.isnan(new)], new[~np.isnan(new)])
    np.testing.assert_array_equal(low[~np.isnan(new)], new[~np.isnan(new)])
    p = found.p_values(new)
    for i in (0, 17):
        model = found.models[found.fold[i]]
        assert found.scores[i] == pytest.approx(-model.score_samples(X[[i]])[0])
    for row in range(2):
        count = 0
        for i in range(30):
            model = found.models[found.fold[i]]
            count += model.score_samples(X[[i]])[0] <= model.score_samples(new[[row]])[0]
        assert p[row] == pytest.approx((1 + count) / 31)


def test_rows_are_answered_one_by_one():
    rng = np.random.default_rng(3)
    X, new = heavy(rng, 40), gaps(rng, heavy(rng, 60))[0]
    found = dp.conformal(dp.PPCA(1), X)
    for method in ("impute", "reconstruct"):
        whole = getattr(found, method)(new)
        parts = [getattr(found, method)(new[cut]) for cut in (slice(0, 7), slice(7, 60))]
        for one, two in zip(whole, zip(*parts, strict=True), strict=True):
            np.testing.assert_allclose(one, np.concatenate(two))
    np.testing.assert_allclose(
        found.p_values(new), [found.p_values(new[[i]])[0] for i in range(60)]
    )


# --- ranks ----------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95, 0.99])
def test_the_fewest_scores_are_the_fewest(level):
    m = least_for(level)
    assert np.isfinite(ranked(np.arange(float(m)), level))
    assert ranked(np.arange(float(m - 1)), level) == np.inf


def test_a_new_score_is_below_the_rank_as_often_as_it_says():
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((20_001, 15))
    held = np.mean(scores[:, 0] <= ranked(scores[:, 1:].T, 0.8))
    assert held == pytest.approx(12 / 15, abs=0.01)


def test_too_few_rows_are_refused_and_too_few_entries_are_infinite():
    rng = np.random.default_rng(0)
    X = heavy(rng, 18)
    with pytest.raises(ValueError, match="19 rows that calibrate"):
        dp.conformal(dp.PPCA(1), X, level=0.95)
    with pytest.raises(ValueError, match="X with 38 rows or more with method='split'"):
        dp.conformal(dp.PPCA(1), heavy(rng, 37), level=0.95, method="split")
    X = heavy(rng, 30)
    X[:22, 1] = np.nan
    filled, low, high = dp.conformal(dp.PPCA(1), X).impute()
    assert np.all(low[:22, 1] == -np.inf) and np.all(high[:22, 1] == np.inf)
    assert np.isfinite(filled).all() and np.isfinite(low[:, 0]).all()
    new = np.array([[1.0, np.nan, np.nan, 1.0]])
    _, low, high = dp.conformal(dp.PPCA(1), X).impute(new)
    assert high[0, 1] == np.inf and np.isfinite([low[0, 2], high[0, 2]]).all()


# --- models and tables ----------------------------------------------------------------

TABLE = np.random.default_rng(9).normal(size=(60, 1)) + 0.5 * np.random.default_rng(8).normal(
    size=(60, 4)
)
FILLING = [
    dp.PPCA(1),
    dp.FactorAnalysis(1),
    dp.BayesianPCA(1),
    dp.RobustPPCA(1),
    dp.MixturePPCA(1, 1),
    dp.Imputer(1),
]
JUDGING = [
    dp.PCA(1),
    dp.KernelPCA(2, kernel="rbf"),
    dp.DualPPCA(2, kernel="rbf"),
    dp.HierarchicalPPCA([2, 1], 1, random_state=0),
    dp.CopulaPPCA(1),
]


@pytest.mark.parametrize("model", FILLING, ids=lambda one: type(one).__name__)
def test_every_model_with_standard_deviations_fills_with_intervals(model):
    X = gaps(np.random.default_rng(0), TABLE)[0]
    found = dp.conformal(model, X, folds=3)
    filled, low, high = found.impute()
    gone = np.isnan(X)
    assert np.all(low[gone] < filled[gone]) and np.all(filled[gone] < high[gone])
    np.testing.assert_array_equal(filled[~gone], X[~gone])
    if hasattr(model, "score_samples"):
        assert found.p_values([[9.0, -9.0, 9.0, -9.0]])[0] == pytest.approx(1 / 61)


@pytest.mark.parametrize("model", JUDGING, ids=lambda one: type(one).__name__)
def test_every_model_with_a_density_or_a_novelty_judges_rows(model):
    found = dp.conformal(model, TABLE, folds=3)
    p = found.p_values(np.array([[9.0, -9.0, 9.0, -9.0], [0.0, 0.0, 0.0, 0.0]]))
    if not isinstance(model, dp.CopulaPPCA):  # which knows no distances, only ranks
        assert p[0] == pytest.approx(1 / 61)
    assert p[1] > 0.1
    if isinstance(model, dp.PCA | dp.KernelPCA):
        signal, low, high = found.reconstruct()
        inside = (low <= TABLE) & (TABLE <= high)
        assert signal.shape == TABLE.shape and 0.88 <= inside.mean() <= 0.96


def test_sequences_of_a_chain_are_judged_whole():
    rng = np.random.default_rng(0)

    def sequence(jumps):
        states = np.repeat([0.0, 3.0, 0.0], 6) if not jumps else np.tile([0.0, 3.0], 9)
        return states[:, None] + rng.normal(size=(18, 3))

    found = dp.conformal(
        dp.HiddenMarkovPCA(2, 1, random_state=0), [sequence(False) for _ in range(20)], folds=4
    )
    p = found.p_values([sequence(False), sequence(True)])
    assert p[0] > 0.1 and p[1] == pytest.approx(1 / 21)
    assert len(found.p_values()) == 20
    with pytest.raises(ValueError, match="list of sequences"):
        dp.conformal(dp.HiddenMarkovPCA(2, 1), np.zeros((40, 3)))


@pytest.mark.parametrize("library", [pd, pl])
def test_frames_come_back_as_frames(library):
    X = gaps(np.random.default_rng(0), TABLE)[0]
    names = list("abcd")
    if library is pd:
        table = pd.DataFrame(X, columns=names, index=np.arange(60) + 100)
    else:
        table = pl.DataFrame(X, schema=names, orient="row").fill_nan(None)
    before = repr(table)
    plain, found = dp.conformal(dp.PPCA(1), X).impute(), dp.conformal(dp.PPCA(1), table).impute()
    for one, two in zip(plain, found, strict=True):
        assert type(two) is type(table) and list(two.columns) == names
        np.testing.assert_allclose(two.to_numpy(), one)
    assert repr(table) == before


def test_another_novelty_is_used():
    X = TABLE
    found = dp.conformal(dp.PPCA(1), X, novelty=lambda m, rows: m.hotelling_t2(rows))
    far = X.mean(axis=0) + 20  # along the component: T² sees it, SPE does not
    assert found.p_values(far[None])[0] == pytest.approx(1 / 61)
    other = dp.conformal(dp.PPCA(1), X, novelty=lambda m, rows: rows[:, 0])
    np.testing.assert_allclose(np.argsort(other.p_values()), np.argsort(-X[:, 0]))
    with pytest.raises(ValueError, match="a function that returns one number per row"):
        dp.conformal(dp.PPCA(1), X, novelty=lambda m, rows: rows, folds=60).p_values(X)
    assert unusualness(dp.KernelPCA(2, kernel="rbf").fit(X), X).shape == (60,)


def test_the_same_seed_gives_the_same_answer_and_the_model_is_left_alone():
    model = dp.PPCA(1)
    one, two = (dp.conformal(model, TABLE, random_state=4).p_values() for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert not hasattr(model, "components_")
    other = dp.conformal(model, TABLE, random_state=5)
    assert not np.array_equal(other.fold, dp.conformal(model, TABLE, random_state=4).fold)


def test_what_has_no_intervals_is_refused():
    found = dp.conformal(dp.CopulaPPCA(1), TABLE, folds=2)
    with pytest.raises(TypeError, match="calibration"):
        found.impute()
    with pytest.raises(TypeError, match="needs a model with impute"):
        dp.conformal(dp.PCA(1), TABLE, folds=2).impute()
    with pytest.raises(ValueError, match="new rows with method='split'"):
        dp.conformal(dp.PPCA(1), TABLE, method="split").p_values()
    with pytest.raises(TypeError, match="novelty or score_samples"):
        dp.conformal(dp.Imputer(1), TABLE, folds=2).p_values()
    for options in ({"level": 1.0}, {"method": "jackknife"}, {"folds": 1}):
        with pytest.raises(ValueError, match=next(iter(options))):
            dp.conformal(dp.PPCA(1), TABLE, **options)
    with pytest.raises(ValueError, match="precomputed"):
        dp.conformal(dp.KernelPCA(1, kernel="precomputed"), TABLE @ TABLE.T)
