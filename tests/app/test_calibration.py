"""Coverage of imputation intervals: right models are calibrated, overconfident ones are found."""

import numpy as np
import pytest
from scipy import stats

from dualpca import PPCA, FactorAnalysis
from dualpca.app.calibration import LEVELS, calibrate, hide


def rows(n=600, d=8, q=2, seed=0):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((d, q))
    return rng.standard_normal((n, q)) @ W.T + 0.5 * rng.standard_normal((n, d)) + 1


def imputed(model, factor=1.0):
    def impute(X):
        mean, std = model.impute(X, return_std=True)
        return mean, factor * std

    return impute


@pytest.mark.parametrize("model", [PPCA(2), FactorAnalysis(2)], ids=["PPCA", "FactorAnalysis"])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_a_right_model_is_calibrated(model, missing):
    X = rows()
    X[np.random.default_rng(1).random(X.shape) < missing] = np.nan
    hidden = hide(X, 0.1, np.random.default_rng(2))
    model.fit(np.where(hidden, np.nan, X))
    found = calibrate(imputed(model), X, hidden)
    assert found.n_hidden == hidden.sum() and found.levels.tolist() == list(LEVELS)
    np.testing.assert_allclose(found.coverage, LEVELS, atol=0.06)


@pytest.mark.parametrize("factor, side", [(0.5, "low"), (2.0, "high")])
def test_intervals_too_narrow_or_too_wide_leave_the_band(factor, side):
    X = rows()
    hidden = hide(X, 0.1, np.random.default_rng(2))
    model = PPCA(2).fit(np.where(hidden, np.nan, X))
    found = calibrate(imputed(model, factor), X, hidden, [0.5, 0.8])
    assert np.all(found.coverage < found.low if side == "low" else found.coverage > found.high)


def test_coverage_and_band_are_counted_as_they_say():
    X = np.arange(20.0).reshape(10, 2) / 10
    hidden = np.zeros((10, 2), dtype=bool)
    hidden[:, 0] = True
    seen = []

    def impute(table):
        seen.append(table)
        return np.zeros_like(table), np.ones_like(table)

    found = calibrate(impute, X, hidden, [0.5, 0.9])
    assert np.isnan(seen[0][:, 0]).all() and not np.isnan(seen[0][:, 1]).any()
    inside = [(np.abs(X[:, 0]) <= stats.norm.ppf((1 + p) / 2)).mean() for p in (0.5, 0.9)]
    np.testing.assert_allclose(found.coverage, inside)
    np.testing.assert_allclose(found.low[0], stats.binom.ppf(0.025, 10, 0.5) / 10)
    np.testing.assert_allclose(found.high[0], stats.binom.ppf(0.975, 10, 0.5) / 10)


def test_only_observed_entries_are_hidden_and_no_feature_is_emptied():
    X = rows(40, 5)
    X[:, 1] = np.nan
    X[7, 1] = 1.0
    X[3, 3] = np.nan
    for seed in range(20):
        hidden = hide(X, 0.9, np.random.default_rng(seed))
        assert not hidden[np.isnan(X)].any() and not hidden[7, 1]
        assert (~np.isnan(X) & ~hidden).any(axis=0).all()
    share = hide(rows(2000), 0.25, np.random.default_rng(0)).mean()
    assert share == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("share", [0, 1, -0.1, 2, float("nan")])
def test_nonsense_shares_are_refused(share):
    with pytest.raises(ValueError, match="share must be"):
        hide(rows(10), share, np.random.default_rng(0))


def test_nothing_hidden_and_nonsense_levels_are_refused():
    with pytest.raises(ValueError, match="large enough"):
        hide(rows(3), 1e-9, np.random.default_rng(0))
    for levels in ([0.5, 1.0], [[0.5]], [-0.1]):
        with pytest.raises(ValueError, match="levels must be"):
            calibrate(lambda X: (X, X), rows(3), np.ones((3, 8), dtype=bool), levels)
