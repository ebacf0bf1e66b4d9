"""operators/dual.py: the centred kernel and its products, against the matrix written out."""

import numpy as np
import pytest

from dualpca.kernels import RBF, Linear, Polynomial
from dualpca.operators.dual import Dual, Given, Gram
from dualpca.solvers import solve

KERNELS = {"linear": Linear(), "rbf": RBF(0.3), "polynomial": Polynomial(2)}


def rows(n=25, d=4):
    return np.random.default_rng(0).normal(size=(n, d))


def weights(n=25):
    return np.random.default_rng(1).uniform(0.2, 3.0, n)


def dense(K, w=None, center=True):
    """D^{1/2} H K Hᵀ D^{1/2}."""
    w = np.ones(len(K)) if w is None else w
    H = np.eye(len(K)) - (np.outer(np.ones(len(K)), w) / w.sum() if center else 0)
    return np.sqrt(np.outer(w, w)) * (H @ K @ H.T)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("w", [None, weights()], ids=["plain", "weighted"])
@pytest.mark.parametrize("center", [True, False])
def test_products_trace_and_diagonal_are_those_of_the_matrix(kernel, w, center):
    X, V = rows(), np.random.default_rng(2).normal(size=(25, 3))
    A, K = Dual(X, kernel, w, center=center), dense(kernel(X, X), w, center)
    close = {"rtol": 1e-9, "atol": 1e-9 * np.abs(K).max()}
    np.testing.assert_allclose(A @ V, K @ V, **close)
    np.testing.assert_allclose(A.dense(), K, **close)
    np.testing.assert_allclose(A.diag(), np.diag(K), **close)
    np.testing.assert_allclose(A.times_in_double(V), K @ V, **close)
    assert A.trace == pytest.approx(np.trace(K), rel=1e-10)
    assert A.squared_norm() == pytest.approx((K**2).sum(), rel=1e-9)


@pytest.mark.parametrize("w", [None, weights()], ids=["plain", "weighted"])
def test_a_given_matrix_is_the_kernel_of_its_points(w):
    X, V = rows(), np.eye(25)
    K = RBF(0.3)(X, X)
    np.testing.assert_allclose(Dual(Given(K, RBF(0.3)), None, w) @ V, dense(K, w), atol=1e-12)
    np.testing.assert_allclose(Gram(X, RBF(0.3)).whole(), K, atol=1e-14)


@pytest.mark.parametrize("w", [None, weights()], ids=["plain", "weighted"])
def test_distances_off_the_span_are_those_of_the_projection(w):
    X = rows()
    A = Dual(X, RBF(0.3), w)
    spectrum = solve(A, 4)
    projected = A.subspace(spectrum).project(X)
    np.testing.assert_allclose(A.off_span(spectrum), projected.residual, atol=1e-9)
