"""Without a number: as many components as were planted, and as parallel analysis finds."""

import re
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine

from dualpca import PPCA, FactorAnalysis, RobustPPCA
from dualpca.app import datasets
from dualpca.errors import NoiseWarning
from dualpca.gaussian import RULES

pytestmark = pytest.mark.filterwarnings("ignore::dualpca.errors.NoiseWarning")


def made(n, d, q, *, unequal, missing=0.0, seed=0):
    """Return rows of q causes, with noise of one or of several sizes, and gaps."""
    rng = np.random.default_rng(seed)
    noise = np.exp(rng.uniform(-1.2, 0.6, d)) if unequal else np.full(d, 0.8)
    X = rng.normal(size=(n, q)) @ rng.normal(size=(q, d)) + noise * rng.normal(size=(n, d))
    X[rng.random(X.shape) < missing] = np.nan
    return X


MADE = {
    "500 x 16": ((500, 16, 4), {"unequal": False}),
    "500 x 16, unequal noise": ((500, 16, 4), {"unequal": True}),
    "500 x 16, unequal noise, gaps": ((500, 16, 4), {"unequal": True, "missing": 0.1}),
    "100 x 40, unequal noise": ((100, 40, 3), {"unequal": True}),
    "100 x 40, gaps": ((100, 40, 3), {"unequal": False, "missing": 0.3}),
    "50 x 200": ((50, 200, 3), {"unequal": False}),
    "50 x 200, unequal noise": ((50, 200, 3), {"unequal": True}),
    "50 x 200, unequal noise, gaps": ((50, 200, 3), {"unequal": True, "missing": 0.1}),
    "2,000 x 30, unequal noise": ((2000, 30, 8), {"unequal": True}),
    "1,000 x 12, gaps": ((1000, 12, 2), {"unequal": False, "missing": 0.2}),
}


@pytest.mark.parametrize("name", MADE)
def test_as_many_as_were_planted(name):
    size, how = MADE[name]
    X = made(*size, **how)
    assert abs(PPCA().fit(X).n_components_ - size[2]) <= 1


@pytest.mark.parametrize("name", [name for name in MADE if "gaps" not in name] + ["100 x 40, gaps"])
def test_outliers_do_not_change_the_number(name):
    size, how = MADE[name]
    X = made(*size, **how)
    X[: len(X) // 10] += 9 * np.random.default_rng(2).normal(size=X[: len(X) // 10].shape)
    assert abs(RobustPPCA().fit(X).n_components_ - size[2]) <= 1


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_columns_that_follow_from_others_leave_a_robust_model_its_noise(missing):
    X = made(300, 52, 6, unequal=True, missing=missing)
    X[:, 50], X[:, 51] = -2 * X[:, 0], X[:, 1] + X[:, 2]
    model = RobustPPCA(standardize=True).fit(X)
    assert abs(model.n_components_ - 6) <= 1 and np.isfinite(model.score(X))


@pytest.mark.parametrize("name", MADE)
def test_the_number_does_not_depend_on_units(name):
    size, how = MADE[name]
    X = made(*size, **how)
    units = 10 ** np.random.default_rng(1).uniform(-0.9, 0.9, size[1])
    q = PPCA().fit(X).n_components_
    assert PPCA(standardize=True).fit(X * units).n_components_ == q


# --- public tables --------------------------------------------------------------------


def by_permutation(X, draws=100, seed=0):
    """Return Horn's count of the pairwise correlations, as `psych::fa.parallel` does it."""
    rng, seen = np.random.default_rng(seed), ~np.isnan(X)

    def values(Y):
        Z = np.where(seen, Y - np.nanmean(Y, axis=0), 0.0)
        Z = Z / np.sqrt((Z * Z).sum(axis=0) / seen.sum(axis=0))
        return np.linalg.eigvalsh(Z.T @ Z / (1.0 * seen.T @ seen))[::-1]

    def shuffled():
        Y = X.copy()
        for j in range(X.shape[1]):
            Y[seen[:, j], j] = rng.permutation(X[seen[:, j], j])
        return Y

    limits = np.quantile([values(shuffled()) for _ in range(draws)], 0.95, axis=0)
    return int(np.argmin(np.append(values(X) > limits, False)))


def holed(X, share=0.1):
    X = np.array(X, dtype=float)
    X[np.random.default_rng(0).random(X.shape) < share] = np.nan
    return X


PUBLIC = {
    "iris": lambda: load_iris().data,
    "wine": lambda: load_wine().data,
    "wine, gaps": lambda: holed(load_wine().data),
    "breast cancer": lambda: load_breast_cancer().data,
    "diabetes": lambda: load_diabetes().data,
    "diabetes, gaps": lambda: holed(load_diabetes().data),
    "digits": lambda: load_digits().data[:600, [*range(2, 6), *range(10, 14), *range(18, 22)]],
    "oil flow": lambda: datasets.oil_flow().X,
    "airquality": lambda: datasets.airquality().X,
    "vowels": lambda: datasets.japanese_vowels().X[:1500],
}


@pytest.mark.filterwarnings("ignore::dualpca.errors.SkewWarning")
@pytest.mark.parametrize("name", PUBLIC)
def test_as_many_as_parallel_analysis_of_public_tables(name):
    X = np.asarray(PUBLIC[name](), dtype=float)
    assert abs(PPCA(standardize=True).fit(X).n_components_ - max(by_permutation(X), 1)) <= 1


# --- noise of different sizes -----------------------------------------------------------


def named(X):
    import pandas as pd

    return pd.DataFrame(X, columns=[f"sensor {j}" for j in range(X.shape[1])])


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_noise_of_different_sizes_is_told_with_what_factor_analysis_gains(missing):
    X = made(500, 16, 4, unequal=True, missing=missing)
    with pytest.warns(NoiseWarning, match="Use FactorAnalysis") as told:
        model = PPCA().fit(named(X))
    assert len(told) == 1
    words = str(told[0].message)
    times, gain = map(float, re.findall(r"at least ([\d.]*\d)", words))
    other = FactorAnalysis(model.n_components_).fit(X)
    whole = (other.loglikelihood_ - model.loglikelihood_) / 500
    assert 0.8 * whole <= gain <= 1.05 * whole
    noise = np.sqrt(other.noise_variance_)
    assert 3 <= times <= 1.05 * noise.max() / noise.min()
    assert f"column 'sensor {noise.argmax()}'" in words


def test_who_gives_a_number_is_told_nothing():
    X = made(500, 16, 4, unequal=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PPCA(4).fit(X)
        PPCA("parallel").fit(X)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(100, 8, 2), (60, 40, 3), (30, 100, 2), (1000, 20, 5)])
@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_equal_noise_is_hardly_ever_called_different(size, missing):
    told = 0
    for seed in range(50):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            PPCA().fit(made(*size, unequal=False, missing=missing, seed=seed))
        told += any(w.category is NoiseWarning for w in caught)
    assert told <= 1


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_contributions_name_the_faulty_sensor(missing):
    rows = made(580, 16, 4, unequal=True)
    X, new = holed(rows[:500], missing), rows[500:]
    sensor = np.arange(80) % 16
    new[np.arange(80), sensor] += 4 * np.nanstd(X, axis=0)[sensor]
    model = PPCA(standardize=True).fit(X)
    named = np.argmax(np.abs(model.contributions(new)), axis=1)
    assert np.mean(named == sensor) >= 0.9
    many = PPCA(15, standardize=True).fit(X)
    assert np.mean(np.argmax(np.abs(many.contributions(new)), axis=1) == sensor) < 0.5


@pytest.mark.parametrize("name", ["mle", *sorted(RULES)])
def test_every_rule_works_with_missing_values(name):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)) @ rng.normal(size=(3, 10)) + 0.5 * rng.normal(size=(300, 10))
    assert PPCA(name).fit(X).n_components_ == 3
    X[rng.random(X.shape) < 0.2] = np.nan
    model = PPCA(name).fit(X)
    assert model.n_components_ == 3
    rows = np.concatenate([X, 1e3 * X[:1]])  # a weight of 0 is a row that is not there
    weights = np.append(np.ones(300), 0.0)
    assert PPCA(name).fit(rows, sample_weight=weights).n_components_ == 3


def test_a_rule_added_in_one_place_works_with_missing_values(monkeypatch):
    monkeypatch.setitem(RULES, "two", lambda lam, trace, dim, n, rng: 2)
    X = np.random.default_rng(0).normal(size=(60, 5))
    X[3, 2] = np.nan
    assert PPCA("two").fit(X).n_components_ == 2
