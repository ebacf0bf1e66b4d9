"""operators/primal.py: FᵀF, FFᵀ and their products, against the matrices written out."""

import numpy as np
import pytest
from scipy import sparse

from dualpca.data import InMemoryTable
from dualpca.data.table import SlicedTable
from dualpca.operators import Primal, Scatter, linear


def rows(n=30, d=6):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, d)) * np.arange(1, d + 1) + 100 * rng.normal(size=d)


def weights(n=30):
    return np.random.default_rng(1).uniform(0.2, 3.0, n)


def dense(X, w=None, standardize=False):
    """Centred, weighted rows F, so that FᵀF is the scatter."""
    w = np.ones(len(X)) if w is None else w
    centred = X - np.average(X, axis=0, weights=w)
    if standardize:
        centred = centred / np.sqrt(np.average(centred**2, axis=0, weights=w))
    return np.sqrt(w)[:, None] * centred


@pytest.mark.parametrize("w", [None, weights()], ids=["plain", "weighted"])
@pytest.mark.parametrize("standardize", [False, True])
def test_products_trace_and_diagonal_are_those_of_the_matrix(w, standardize):
    X, V = rows(), np.random.default_rng(2).normal(size=(6, 3))
    A, F = Primal(X, w, standardize=standardize), dense(X, w, standardize)
    np.testing.assert_allclose(A @ V, F.T @ F @ V, rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(A.half(V), F @ V, rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(A.dense(), F.T @ F, rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(A.diag(), np.sum(F**2, axis=0), rtol=1e-10)
    assert A.trace == pytest.approx((F**2).sum(), rel=1e-12)
    assert A.n == pytest.approx(len(X) if w is None else w.sum())


@pytest.mark.parametrize("w", [None, weights()], ids=["plain", "weighted"])
def test_the_mirror_has_the_same_trace_and_leads_back(w):
    X = rows()
    A, F = Primal(X, w), dense(X, w)
    mirror, U = A.mirror, np.random.default_rng(3).normal(size=(30, 2))
    np.testing.assert_allclose(mirror @ U, F @ (F.T @ U), rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(mirror.dense(), F @ F.T, rtol=1e-9, atol=1e-8)
    assert mirror.trace == pytest.approx(A.trace, rel=1e-12)


@pytest.mark.parametrize("w", [None, weights()], ids=["plain", "weighted"])
def test_sparse_rows_are_centred_without_being_filled(w):
    X = rows()
    X[np.random.default_rng(4).random(X.shape) < 0.7] = 0.0
    F, V = dense(X, w), np.eye(6)
    np.testing.assert_allclose(Primal(sparse.csr_array(X), w) @ V, F.T @ F, rtol=1e-9, atol=1e-8)


def test_moments_give_the_same_operator_as_the_rows():
    X, V = rows(), np.eye(6)
    A = Primal(X)
    np.testing.assert_allclose(Scatter(A.moments) @ V, A @ V, rtol=1e-10)


def test_chunks_give_the_same_operator_as_the_rows():
    X, V = rows(), np.eye(6)
    whole = linear(InMemoryTable(X), missing=False).operator
    parts = linear(SlicedTable(X, 7), missing=False).operator
    np.testing.assert_allclose(parts @ V, whole @ V, rtol=1e-10)
    assert parts.trace == pytest.approx(whole.trace, rel=1e-12)
