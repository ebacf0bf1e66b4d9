"""`calibration` of every estimator that imputes: right models are, overconfident ones are found."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

import dualpca as dp
from dualpca.estimators import calibrating
from dualpca.gaussian.calibration import LEVELS, normal_quantile

NAMES = list("abcdefgh")


def rows(n=300, d=8, q=2, seed=0, noise=0.5):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((d, q))
    return rng.standard_normal((n, q)) @ W.T + noise * rng.standard_normal((n, d)) + 1


def gaps(X, share=0.1, seed=1):
    return np.where(np.random.default_rng(seed).random(X.shape) < share, np.nan, X)


MODELS = {
    "PPCA": dp.PPCA(2),
    "standardised": dp.PPCA(2, standardize=True),
    "FactorAnalysis": dp.FactorAnalysis(2),
    "BayesianPCA": dp.BayesianPCA(),
    "RobustPPCA": dp.RobustPPCA(2),
    "MixturePPCA": dp.MixturePPCA(1, 2),
    "CopulaPPCA": dp.CopulaPPCA(2),
    "Imputer": dp.Imputer(2),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_right_model_is_calibrated(name):
    X = gaps(rows(seed=1))
    found = clone(MODELS[name]).fit(X).calibration(X, folds=4)
    assert found.n_hidden == np.sum(~np.isnan(X)) and found.n_rows == 300 and found.n_folds == 4
    np.testing.assert_allclose(found.coverage, LEVELS, atol=0.05)
    low, high = found.factor_interval
    assert np.all(low <= 1.02) and np.all(high >= 0.98)


def test_an_overconfident_model_is_found_and_its_factor_corrects_it():
    X, new = rows(400), rows(4000)  # the same W
    model = dp.PPCA(2, noise_variance=0.05).fit(X)
    found = model.calibration(X).at(0.9)
    assert found.coverage[0] < 0.8 and "too narrow" in str(found)
    hidden = np.random.default_rng(5).random(new.shape) < 0.1
    mean, std = model.impute(np.where(hidden, np.nan, new), return_std=True)
    inside = np.abs(new - mean)[hidden] <= 1.645 * found.factor[0] * std[hidden]
    assert inside.mean() == pytest.approx(0.9, abs=0.025)


def test_no_entry_is_filled_by_a_model_that_has_seen_it(monkeypatch):
    X = gaps(rows(40, 5))
    seen = []

    class Spy(dp.PPCA):
        def fit(self, X, y=None, sample_weight=None):
            seen.append(np.isnan(X))
            return super().fit(X)

        def impute(self, X, return_std=False, *, parameters="auto"):
            np.testing.assert_array_equal(np.isnan(X), seen[-1])
            return super().impute(X, return_std, parameters=parameters)

    model = Spy(1).fit(X)
    model.calibration(X, folds=5)
    assert len(seen) == 6
    hidden = [one & ~seen[0] for one in seen[1:]]
    np.testing.assert_array_equal(np.sum(hidden, axis=0), ~np.isnan(X))


@pytest.mark.parametrize("frame", ["pandas", "polars", "list"])
def test_tables_of_any_kind_give_the_same_and_stay_as_they_are(frame):
    X = gaps(rows(40, 5))
    table = {
        "pandas": lambda: pd.DataFrame(X, columns=NAMES[:5]),
        "polars": lambda: pl.DataFrame(X, schema=NAMES[:5], orient="row").fill_nan(None),
        "list": lambda: X.tolist(),
    }[frame]()
    before = repr(table)
    plain = dp.PPCA(2).fit(X).calibration(X)
    found = dp.PPCA(2).fit(table).calibration(table)
    np.testing.assert_allclose(found.entries.distance, plain.entries.distance)
    assert repr(table) == before
    assert found.names == (tuple(NAMES[:5]) if frame != "list" else plain.names)


def test_torch_tables_stay_in_torch():
    torch = pytest.importorskip("torch")
    X = gaps(rows(40, 5))
    plain = dp.PPCA(2).fit(X).calibration(X)
    found = dp.PPCA(2).fit(torch.as_tensor(X)).calibration(torch.as_tensor(X))
    np.testing.assert_allclose(found.entries.distance, plain.entries.distance, rtol=1e-4)


def test_the_fitted_model_and_the_number_of_components_are_kept():
    X = rows(60, 6)
    model = dp.PPCA("bic").fit(X)  # a rule that reads a spectrum, which gaps do not leave
    before = model.components_.copy()
    calls = calibrating.refittable(model)
    assert calls.n_components == model.n_components_ and model.n_components == "bic"
    model.calibration(X, folds=3)
    np.testing.assert_array_equal(model.components_, before)


def test_the_same_seed_gives_the_same_answer():
    X = rows(30, 4)
    model = dp.PPCA(1).fit(X)
    one, two = (model.calibration(X, random_state=3).entries for _ in range(2))
    np.testing.assert_array_equal(one.distance, two.distance)
    other = model.calibration(X, random_state=4).entries
    assert not np.array_equal(one.row, other.row)


@pytest.mark.parametrize("standardize", [False, True])
def test_both_views_are_hidden_and_filled_from_each_other(standardize):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(400, 2))
    X, Y = (z @ rng.normal(size=(2, d)) + 0.7 * rng.normal(size=(400, d)) for d in (5, 4))
    X = pd.DataFrame(gaps(X) * 10.0, columns=NAMES[:5])
    found = dp.CCA(2, standardize=standardize).fit(X, Y).calibration(X, Y, folds=5)
    assert found.names == (*NAMES[:5], "y0", "y1", "y2", "y3")
    assert found.n_hidden == X.notna().to_numpy().sum() + Y.size
    np.testing.assert_allclose(found.coverage, LEVELS, atol=0.05)
    np.testing.assert_array_equal(
        np.sort(found.entries.truth)[:3],
        np.sort(np.concatenate([X.to_numpy()[X.notna()], Y.ravel()]))[:3],
    )
    with pytest.raises(ValueError, match="y to be passed"):
        dp.CCA(2).fit(X, Y).calibration(X, None)


def mixed(n=300, seed=0):
    rng = np.random.default_rng(seed)
    t = rng.standard_normal((n, 1))
    X = pd.DataFrame(np.exp(t + 0.5 * rng.standard_normal((n, 3))), columns=list("abc"))
    X["grade"] = pd.cut(t[:, 0] + 0.3 * rng.standard_normal(n), 4, labels=list("wxyz")).astype(str)
    X["kind"] = np.where(t[:, 0] + rng.standard_normal(n) > 0, "yes", "no")
    X["visits"] = rng.poisson(np.exp(0.5 * t[:, 0] + 2)) + 20
    return X


def test_columns_of_categories_are_judged_by_their_probabilities():
    X = mixed()
    X.loc[::9, "kind"] = None
    model = dp.CopulaPPCA(1, column_kinds={"grade": list("wxyz"), "visits": "count"}).fit(X)
    found = model.calibration(X, folds=4)
    assert found.hidden_by_column.tolist() == [300, 300, 300, 0, 0, 300]
    stated = found.categories
    assert np.bincount(stated.column, minlength=6).tolist() == [0, 0, 0, 300, 266, 0]
    assert abs(stated.stated.mean() - stated.right.mean()) < 0.08
    assert "entries of categories" in str(found)
    np.testing.assert_allclose(found.coverage, LEVELS, atol=0.08)


def test_coverage_of_a_copula_is_that_of_its_intervals():
    """The distance of an entry says which intervals hold it: the ones that `impute` gives."""
    X = mixed()[["a", "b", "c", "visits"]]
    model = dp.CopulaPPCA(1, column_kinds={"visits": "count"}).fit(X)
    hidden = [np.random.default_rng(0).random(X.shape) < 0.2]
    found = calibrating.predicted(model, X, hidden, refit=False)[0]
    partial = X.mask(hidden[0])
    for level in (0.3, 0.8, 0.9):
        _, low, high = model.impute(partial, return_interval=True, level=level)
        held = (low <= X) & (high >= X)
        inside = found.distance <= normal_quantile(level)
        np.testing.assert_array_equal(inside, held.to_numpy()[hidden[0]])
    np.testing.assert_array_equal(found.high, high.to_numpy()[hidden[0]])


def test_bounds_are_not_hidden():
    X = rows(80, 4)
    X = pd.DataFrame(np.round(X, 2), columns=list("abcd"))
    low = X["a"] < 0.5
    model = dp.CopulaPPCA(1, column_kinds={"a": dp.Censored(below=0.5)}).fit(X)
    found = model.calibration(X, folds=3)
    assert found.hidden_by_column.tolist() == [80 - low.sum() - (X["a"] == 0.5).sum(), 80, 80, 80]


@pytest.mark.parametrize("name", ["ppca", "bayesian", "copula", "auto"])
def test_imputers_are_refitted_with_the_model_that_they_chose(name):
    X = rows(60, 4)
    X = np.exp(X) if name == "auto" else X
    imputer = dp.Imputer(None if name == "auto" else 2, model=name).fit(gaps(X))
    again = calibrating.refittable(imputer).fit(gaps(X, 0.2))
    assert type(again.model_) is type(imputer.model_)
    blends = [getattr(one.model_._fitted, "blend", None) is None for one in (imputer, again)]
    assert blends[0] == blends[1] and (name != "auto" or not blends[0])


def test_what_cannot_be_calibrated_is_refused():
    X = rows(30, 4)
    model = dp.PPCA(1).fit(X)
    with pytest.raises(ValueError, match="folds must be"):
        model.calibration(X, folds=1)
    with pytest.raises(ValueError, match="levels must be"):
        model.calibration(X, levels=1.5)
    with pytest.raises(Exception, match="not fitted"):
        dp.PPCA(1).calibration(X)
    with pytest.raises(ValueError, match="observed entries to hide"):
        model.calibration(np.full((3, 4), np.nan))
    assert not hasattr(dp.MixturePPCA(2, 1, kernel="rbf"), "calibration")
    assert not hasattr(dp.PCA(1), "calibration")
