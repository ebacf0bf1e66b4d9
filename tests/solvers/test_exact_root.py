"""The square root of an operator times vectors, against the dense one."""

import numpy as np
import pytest
from scipy.linalg import sqrtm

from dualpca.data import Moments
from dualpca.errors import SolverWarning
from dualpca.kernels import RBF, Linear
from dualpca.operators.dual import Dual
from dualpca.operators.primal import Scatter
from dualpca.solvers.exact import root_times
from tests.tolerances import assert_close


class Matrix(Scatter):
    """A matrix as an operator that counts its products."""

    def __init__(self, A):
        super().__init__(Moments(1.0, np.zeros(len(A)), A))
        self.A, self.products = A, 0

    def __matmul__(self, V):
        self.products += 1
        return self.A @ V


def with_eigenvalues(lam, seed=0):
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(lam), len(lam))))[0]
    return (Q * lam) @ Q.T


SPECTRA = {
    "flat": np.linspace(1, 2, 60),
    "decaying": 2.0 ** -np.arange(60.0),
    "slow": 1 / np.arange(1, 61.0),
    "three values": np.repeat([9.0, 4.0, 0.0], 20),
    "identity": np.ones(60),
    "rank one": np.eye(60)[0],
    "zero": np.zeros(60),
}


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("b", [1, 4, 16, 40])
def test_it_is_the_dense_square_root(name, b):
    A = with_eigenvalues(SPECTRA[name])
    V = np.random.default_rng(1).standard_normal((60, b))
    lam, E = np.linalg.eigh(A)
    expected = (E * np.sqrt(np.clip(lam, 0, None))) @ (E.T @ V)
    found = root_times(Matrix(A), V, tol=1e-10)
    # eigenvalues near 0 are known to eps * lam_1, so their roots to 1.5e-8 * sqrt(lam_1), on
    # either side; times the length of a vector
    assert_close(found.product, expected, "residual", scale=max(np.sqrt(lam[-1]) * 8, 1e-30))
    assert found.error <= 1e-10


def test_it_is_scipys_sqrtm():
    A = with_eigenvalues(np.linspace(0.1, 3, 30))
    V = np.random.default_rng(0).standard_normal((30, 3))
    assert_close(root_times(Matrix(A), V).product, sqrtm(A) @ V, "vector")


@pytest.mark.parametrize("kernel", [RBF(gamma=0.3), RBF(gamma=10.0), Linear()])
@pytest.mark.parametrize("center", [True, False])
def test_on_kernels(kernel, center):
    X = np.random.default_rng(0).standard_normal((100, 3))
    A = Dual(X, kernel, center=center)
    V = np.random.default_rng(1).standard_normal((100, 5))
    twice = root_times(A, root_times(A, V, tol=1e-10).product, tol=1e-10).product
    assert_close(twice, A @ V, "residual")


@pytest.mark.parametrize("tol", [1e-1, 1e-3, 1e-6])
def test_the_error_is_near_what_was_asked_for(tol):
    X = np.random.default_rng(0).standard_normal((400, 4))
    A = Dual(X, RBF(gamma=0.5))
    V = np.random.default_rng(1).standard_normal((400, 8))
    lam, E = np.linalg.eigh(A.dense())
    expected = (E * np.sqrt(np.clip(lam, 0, None))) @ (E.T @ V)
    found = root_times(A, V, tol=tol)
    assert np.linalg.norm(found.product - expected) <= 4 * tol * np.linalg.norm(expected)


def test_few_distinct_eigenvalues_take_few_products():
    A = Matrix(with_eigenvalues(SPECTRA["three values"]))
    found = root_times(A, np.random.default_rng(0).standard_normal((60, 4)), tol=1e-12)
    assert found.passes == A.products <= 4


@pytest.mark.parametrize("tol, most", [(1e-3, 7), (1e-8, 14)])
def test_a_narrow_spectrum_takes_few_products(tol, most):
    # the error falls by (√2 − 1)/(√2 + 1), about 1/6, in every pass
    lam, V = np.linspace(1, 2, 300), np.random.default_rng(0).standard_normal((300, 2))
    A = Matrix(np.diag(lam))
    found = root_times(A, V, tol=tol)
    assert found.passes == A.products <= most
    expected = np.sqrt(lam)[:, None] * V
    assert np.linalg.norm(found.product - expected) <= tol * np.linalg.norm(expected)


@pytest.mark.parametrize("V", [np.zeros((60, 3)), np.ones((60, 3)), np.eye(60)[:, :0]])
def test_degenerate_blocks(V):
    A = with_eigenvalues(SPECTRA["slow"])
    found = root_times(Matrix(A), V, tol=1e-10).product
    assert found.shape == V.shape
    assert_close(found, sqrtm(A) @ V, "residual", scale=1.0)


def test_stopping_early_is_a_warning():
    A = Matrix(with_eigenvalues(SPECTRA["slow"]))
    with pytest.warns(SolverWarning, match="2 passes"):
        root_times(A, np.ones((60, 1)), tol=1e-10, max_passes=2)
    assert A.products == 2


def test_every_library_gives_the_same(backend):
    X = np.random.default_rng(0).standard_normal((80, 3))
    V = np.random.default_rng(1).standard_normal((80, 20))
    expected = root_times(Dual(X, RBF(gamma=0.5)), V).product
    found = root_times(Dual(backend.asarray(X), RBF(gamma=0.5)), backend.asarray(V)).product
    assert backend.owns(found)
    assert_close(backend.numpy(found), expected, "residual")
