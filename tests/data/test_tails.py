"""Which columns are visibly skewed, and which only seem to be."""

import warnings

import numpy as np
import pytest
from scipy.stats import skew

from dualpca import PPCA
from dualpca.data import InMemoryTable, skewed_columns
from dualpca.errors import SkewWarning

LAWS = {
    "normal": (lambda rng, n: rng.normal(size=n), False),
    "uniform": (lambda rng, n: rng.uniform(size=n), False),
    "two groups": (lambda rng, n: rng.normal(size=n) + 6 * (rng.random(n) < 0.3), False),
    "heavy tails": (lambda rng, n: rng.standard_t(2, size=n), False),
    "grades": (lambda rng, n: rng.integers(1, 6, n).astype(float), False),
    "mostly zero": (lambda rng, n: (rng.random(n) < 0.1) * rng.exponential(size=n), False),
    "a wrong value": (lambda rng, n: np.append(rng.normal(size=n - 1), 1e3), False),
    "constant": (lambda rng, n: np.full(n, 3.0), False),
    "log-normal": (lambda rng, n: np.exp(rng.normal(size=n)), True),
    "low values": (lambda rng, n: -np.exp(rng.normal(size=n)), True),
    "exponential": (lambda rng, n: rng.exponential(size=n), True),
}


@pytest.mark.parametrize("law", LAWS)
def test_long_tails_are_seen_and_nothing_else(law):
    draw, wanted = LAWS[law]
    found = [
        skewed_columns(InMemoryTable(draw(np.random.default_rng(seed), 1500)[:, None])).columns.size
        for seed in range(20)
    ]
    assert np.mean(found) == wanted


def test_the_skewness_is_that_of_what_was_observed_in_any_unit():
    rng = np.random.default_rng(0)
    X = np.exp(rng.normal(size=(300, 2)))
    X[rng.random(X.shape) < 0.2] = np.nan
    found = skewed_columns(InMemoryTable(X))
    np.testing.assert_allclose(found.skewness, [skew(x[~np.isnan(x)]) for x in X.T])
    other = skewed_columns(InMemoryTable(7 - 1e3 * X))
    np.testing.assert_allclose(other.skewness, -found.skewness)


def test_few_values_of_no_weight_and_chunks_say_nothing():
    X = np.exp(2 * np.random.default_rng(0).normal(size=(60, 1)))
    assert skewed_columns(InMemoryTable(X[:15])).columns.size == 0
    assert skewed_columns(InMemoryTable(X, np.repeat([1.0, 0.0], [15, 45]))).columns.size == 0
    sparse = np.full_like(X, np.nan)
    sparse[:15] = X[:15]
    assert skewed_columns(InMemoryTable(sparse)).columns.size == 0
    assert skewed_columns(InMemoryTable(np.full((60, 1), np.nan))).columns.size == 0


def table(names=None):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 1)) + 0.5 * rng.normal(size=(200, 4))
    X = np.column_stack([z[:, :2], np.exp(2 * z[:, 2:])])
    if names is None:
        return X
    return pytest.importorskip("pandas", reason="pandas is not installed").DataFrame(
        X, columns=names
    )


def test_ppca_names_strongly_skewed_columns_once():
    with pytest.warns(SkewWarning, match=r"columns 2, 3: .* logarithms .* CopulaPPCA") as found:
        PPCA(1, standardize=True).fit(table())
    assert len(found) == 1
    with pytest.warns(SkewWarning, match="columns 'price', 'size'"):
        PPCA(1, standardize=True).fit(table(["a", "b", "price", "size"]))
    X = table()
    X[:, 2:] = np.log(X[:, 2:])
    PPCA(1, standardize=True).fit(X)  # as the warning advises


def test_columns_that_hardly_count_are_not_named():
    X = table()
    X[:, 2:] *= 0.1 * X[:, 0].std() / X[:, 2:].std(axis=0)
    PPCA(1).fit(X)
    with pytest.warns(SkewWarning):
        PPCA(1, standardize=True).fit(X)


def test_no_public_table_of_a_first_lesson_is_warned_of():
    from sklearn import datasets

    with warnings.catch_warnings():
        warnings.simplefilter("error", SkewWarning)
        for name in ("iris", "wine", "digits", "diabetes"):
            PPCA(2, standardize=True).fit(getattr(datasets, f"load_{name}")().data)
