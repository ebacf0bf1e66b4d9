"""Tall float32 tables: products in float32 where nothing is lost by them, in float64 elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from dualpca import PCA
from dualpca.data import Moments, single_will_do
from dualpca.errors import NonFiniteError

N, D = 4000, 70


def table(spread: float = 1e-2, offset: float = 3.0) -> np.ndarray:
    """Return float32 rows whose variances fall from 1 to `spread`, turned."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(D, D)))[0]
    rows = rng.normal(size=(N, D)) * np.sqrt(np.geomspace(1.0, spread, D))
    return (rows @ turn + offset).astype(np.float32)


def exact(X: np.ndarray, weights: np.ndarray | None = None) -> Moments:
    return Moments.of(X.astype(np.float64), weights)


@pytest.mark.parametrize("weighted", [False, True])
def test_eigenvalues_keep_the_accuracy_of_float32_input(weighted: bool) -> None:
    X = table()
    weights = np.random.default_rng(1).uniform(0.5, 2.0, size=N) if weighted else None
    found, expected = Moments.of(X, weights, single=True), exact(X, weights)
    assert found.scatter.dtype == found.mean.dtype == np.float64
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-8)
    values, true = (np.linalg.eigvalsh(m.scatter)[::-1] for m in (found, expected))
    np.testing.assert_allclose(values[:35], true[:35], rtol=1e-6)
    np.testing.assert_allclose(values.sum(), true.sum(), rtol=1e-7)


def test_a_fit_takes_them_where_the_eigenvalues_asked_for_are_large() -> None:
    X = table()
    assert single_will_do(X, 30)
    few = PCA(30, svd_solver="covariance_eigh").fit(X)
    true = PCA(30, svd_solver="covariance_eigh").fit(X.astype(np.float64))
    np.testing.assert_allclose(few.explained_variance_, true.explained_variance_, rtol=1e-6)
    np.testing.assert_allclose(few.noise_variance_, true.noise_variance_, rtol=1e-6)


@pytest.mark.parametrize(
    ("X", "rank"),
    [
        (table(spread=1e-7), 30),  # small eigenvalues would drown
        (table(), D),
        (table() * np.float32(1e12), 2),  # squares near the end of float32's range
        (table() * np.float32(1e-12), 2),
        (table()[: 31 * D], 2),  # too few rows to pay
        (table()[:, :60], 2),
        (table().astype(np.float64), 2),
    ],
)
def test_other_tables_are_summed_in_float64(X: np.ndarray, rank: int) -> None:
    assert not single_will_do(X, rank)


def test_a_row_that_overflows_float32_is_summed_in_float64() -> None:
    X = table()
    X[-1, 3] = 1e25  # not among the rows of the sample
    assert single_will_do(X, 2)
    np.testing.assert_allclose(Moments.of(X, single=True).scatter, exact(X).scatter, rtol=1e-12)


def test_a_value_that_is_not_finite_is_named() -> None:
    X = table()
    X[-1, 3] = np.nan
    with pytest.raises(NonFiniteError, match="row 3999"):
        PCA(2).fit(X)
