"""Sparse rows, by narrow blocks: as exact as their precision, whatever repeats."""

import numpy as np
import pytest
import scipy.sparse as sp

from dualpca import PCA
from dualpca.operators import Primal
from dualpca.operators.rows import SPARSE_ENTRIES
from dualpca.solvers import solve
from dualpca.solvers.base import attainable
from dualpca.solvers.exact import block_size

LOW, HIGH = (1200, 120), (120, 1200)


def sparse_rows(shape, dtype=np.float64, fill=0.5, seed=0):
    """Return rows whose features differ in size, enough of them for several blocks."""
    rng = np.random.default_rng(seed)
    n, d = shape
    latent = rng.normal(size=(n, 6)) @ rng.normal(size=(6, d))
    dense = (np.exp(0.4 * latent) * (1.5 ** -(np.arange(d) % 7) + 0.2)) * (rng.random(shape) < fill)
    reps = SPARSE_ENTRIES // np.count_nonzero(dense) + 1
    dense = np.tile(dense, (reps, 1)) if n >= d else np.tile(dense, (1, reps))
    return sp.csr_array((dense + 0.02 * (dense > 0) * rng.random(dense.shape)).astype(dtype))


def oracle(X, q, weights=None, standardize=False):
    """Return q variances (divisor Σw − 1) and axes, from the scatter of dense float64 rows."""
    dense = X.toarray().astype(np.float64)
    w = np.ones(len(dense)) if weights is None else weights
    C = dense - np.average(dense, axis=0, weights=w)
    if standardize:
        C /= np.sqrt(np.average(C * C, axis=0, weights=w))
    F = C * np.sqrt(w)[:, None]
    wide = F.shape[0] < F.shape[1]
    values, vectors = np.linalg.eigh(F @ F.T if wide else F.T @ F)
    values, vectors = values[::-1][:q], vectors[:, ::-1][:, :q]
    axes = F.T @ vectors / np.sqrt(values) if wide else vectors
    return values / (w.sum() - 1), axes.T


@pytest.mark.parametrize("shape", [LOW, HIGH], ids=["tall", "wide"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["plain", "weights", "standardize", "csc"])
def test_sparse_rows_have_the_eigenpairs_of_dense_ones(shape, dtype, kind):
    X = sparse_rows(shape, dtype)
    weights = np.linspace(0.2, 2.0, X.shape[0]) if kind == "weights" else None
    pca = PCA(5, svd_solver="krylov", standardize=kind == "standardize")
    pca.fit(X.tocsc() if kind == "csc" else X, sample_weight=weights)
    values, axes = oracle(X, 5, weights, kind == "standardize")
    rtol, angle = (1e-6, 1e-4) if dtype == np.float32 else (1e-12, 1e-9)
    np.testing.assert_allclose(pca.explained_variance_, values, rtol=rtol)
    np.testing.assert_allclose(np.abs(np.sum(pca.components_ * axes, axis=1)), 1.0, atol=angle)
    assert pca.components_.dtype == dtype


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_eigenvector_of_a_repeated_eigenvalue_is_missed(dtype):
    X = sparse_rows(LOW, dtype)
    twice = sp.csr_array(sp.block_diag([X, X], format="csr"))
    values = oracle(twice, 6)[0]
    found = PCA(6, svd_solver="krylov").fit(twice).explained_variance_
    np.testing.assert_allclose(found, values, rtol=1e-6 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("levels", [30, 90])
def test_as_many_copies_are_found_as_there_are(dtype, levels):
    """Indicators of equally frequent levels have one eigenvalue, levels − 1 times."""
    X = sp.csr_array(sp.vstack([sp.eye_array(levels)] * 40), dtype=dtype)
    pca = PCA(levels - 2, svd_solver="krylov").fit(X)
    n = X.shape[0]
    np.testing.assert_allclose(pca.explained_variance_, n / levels / (n - 1), rtol=1e-6)
    inner = pca.components_ @ pca.components_.T
    np.testing.assert_allclose(inner, np.eye(levels - 2), atol=1e-6)
    noise = (1 - 1 / levels) * n / (n - 1) - (levels - 2) * n / levels / (n - 1)
    np.testing.assert_allclose(pca.noise_variance_, noise / 2, rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("q", [1, 30, 100])
def test_a_residual_is_as_small_as_the_rows_allow(dtype, q):
    X = sparse_rows((1500, 300), dtype)
    A = Primal(X)
    assert A.widest_block == block_size(100, 300, widest=A.widest_block) < 100
    found = solve(A, q, "krylov")
    exact = Primal(X.astype(np.float64))
    R = exact @ found.vectors - found.vectors * found.values
    share = np.linalg.norm(R, axis=0) / found.values
    assert share.max() < attainable(A).angle  # residual / gap, and the gap is below the value


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("form", ["csr", "csc"])
@pytest.mark.parametrize("scaled", [False, True])
def test_products_are_those_of_dense_rows(weighted, form, scaled):
    X = sparse_rows(HIGH).asformat(form)
    weights = np.linspace(0.2, 2.0, X.shape[0]) if weighted else None
    A, B = (Primal(rows, weights, standardize=scaled) for rows in (X, X.toarray()))
    rng = np.random.default_rng(1)
    V, U = rng.normal(size=(X.shape[1], 3)), rng.normal(size=(X.shape[0], 3))
    np.testing.assert_allclose(A @ V, B @ V, rtol=1e-9, atol=1e-9 * A.trace)
    np.testing.assert_allclose(A.mirror @ U, B.mirror @ U, rtol=1e-9, atol=1e-9 * A.trace)


def test_float32_rows_far_from_zero_are_multiplied_in_float64():
    X = sparse_rows(LOW, np.float32)
    full = sp.csr_array(
        np.full((3000, 5), 1000.0) + np.random.default_rng(0).normal(size=(3000, 5))
    )
    assert Primal(X).single
    far = Primal(full.astype(np.float32))
    assert not far.single and not far.mirror.single


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(20_000, 300), (300, 20_000)], ids=["tall", "wide"])
def test_rows_of_noise_alone_are_formed_where_lanczos_would_go_on_and_on(shape, dtype):
    rng = np.random.default_rng(0)
    X = sp.random_array(shape, density=0.2, format="csr", rng=rng).astype(dtype)
    pca = PCA(5, svd_solver="krylov").fit(X)
    values, _ = oracle(X, 5)
    rtol = 1e-6 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(pca.explained_variance_, values, rtol=rtol)
