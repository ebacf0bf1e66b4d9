"""The Gram matrix of columns, and its axes, beside dense ones."""

import numpy as np
import pytest

from dualpca.data.table import SlicedTable
from dualpca.errors import NonFiniteError, ScaleError
from dualpca.operators import ColumnGram, Spectrum
from dualpca.operators.columns import column_sums


def operator_of(X, weights=None, standardize=False, columns=7):
    table = SlicedTable(np.ascontiguousarray(X.T), part_rows=columns)
    table.row_weights = weights
    return ColumnGram(table, column_sums(table, standardize=standardize), standardize=standardize)


def factor_of(X, weights, standardize):
    w = np.ones(len(X)) if weights is None else weights
    C = X - w @ X / w.sum()
    if standardize:
        variance = w @ (C * C) / w.sum()
        C = C / np.sqrt(np.where(variance > 0, variance, 1.0))
    return C * np.sqrt(w)[:, None]


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("columns", [1, 7, 40])
def test_gram_and_axes_are_the_dense_ones(weighted, standardize, columns):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(9, 40)) + 10 * rng.normal(size=40)
    X[:, 5] = 0.1  # constant
    weights = rng.integers(0, 3, 9).astype(float) if weighted else None
    F = factor_of(X, weights, standardize)
    A = operator_of(X, weights, standardize, columns)
    np.testing.assert_allclose(A.dense(), F @ F.T, atol=1e-10)
    np.testing.assert_allclose(A @ np.eye(9), F @ F.T, atol=1e-10)
    assert A.trace == pytest.approx(np.sum(F * F)) and A.dim == 40
    np.testing.assert_allclose(A.diag(), np.sum(F * F, axis=0), atol=1e-10)
    assert A.diag()[5] == 0
    U, s, Vt = np.linalg.svd(F, full_matrices=False)
    V = A.axes(Spectrum(s[:5] ** 2, U[:, :5], A.trace, 40))
    peaks = Vt[np.arange(5), np.abs(Vt[:5]).argmax(axis=1)]  # the largest entry is positive
    np.testing.assert_allclose(V, Vt[:5] * np.sign(peaks)[:, None], atol=1e-12)


def test_float32_products_are_those_of_float64():
    X = (np.random.default_rng(0).normal(size=(9, 40)) + 1000).astype(np.float32)
    F = factor_of(X.astype(float), None, False)
    np.testing.assert_allclose(operator_of(X).dense(), F @ F.T, rtol=1e-12, atol=1e-10)


def test_numbers_out_of_range_are_refused():
    X = np.random.default_rng(0).normal(size=(5, 20))
    for scale, words in ((1e200, "too large"), (1e-158, "too little")):
        with pytest.raises(ScaleError, match=words):
            operator_of(X * scale)
    X[1, 13] = np.nan
    with pytest.raises(NonFiniteError, match="row 1, column 13"):
        operator_of(X)
