"""PCA of tensors from their scatter, gathered on the device: as that of NumPy's rows."""

import numpy as np
import pytest

from dualpca import PCA
from dualpca.arrays import algebra, backend
from dualpca.data import InMemoryTable, moments
from dualpca.errors import NonFiniteError
from dualpca.operators import device_scatter
from dualpca.solvers import exact

torch = pytest.importorskip("torch", reason="rows of another library")


@pytest.fixture(params=["host", "gpu", "gpu, large"])
def place(request, monkeypatch):
    """Tensors on the CPU as they are, and as if they were on a GPU, small and large ones."""
    if request.param != "host":
        monkeypatch.setattr(backend, "on_cuda", backend.is_foreign)
    if request.param == "gpu, large":
        monkeypatch.setattr(moments, "GPU_AT_ONCE", 0)
    return request.param


def rows(n, d, rank=4, seed=0):
    rng = np.random.default_rng(seed)
    signal = rng.normal(size=(n, rank)) * np.linspace(6, 3, rank) @ rng.normal(size=(rank, d))
    return signal + rng.normal(size=(n, d)) + 5


@pytest.mark.parametrize("dtype,close", [("float32", 2e-6), ("float64", 1e-10)])
@pytest.mark.parametrize("n,d", [(60, 1), (500, 7), (900, 127), (900, 130), (128, 128)])
@pytest.mark.parametrize("standardize", [False, True])
def test_as_of_numpy(n, d, dtype, close, standardize, place):
    X = rows(n, d, rank=min(4, d)).astype(dtype)
    q = min(3, d)
    wanted = PCA(q, standardize=standardize).fit(X.astype(np.float64))
    found = PCA(q, standardize=standardize).fit(torch.asarray(X))
    assert found.components_.dtype == getattr(torch, dtype)
    np.testing.assert_allclose(found.explained_variance_, wanted.explained_variance_, rtol=close)
    angle = np.abs(np.asarray(found.components_) @ wanted.components_.T)
    np.testing.assert_allclose(angle, np.eye(q), atol=20 * close)
    np.testing.assert_allclose(found.mean_, wanted.mean_, rtol=close)
    assert float(found.noise_variance_) == pytest.approx(wanted.noise_variance_, rel=50 * close)


@pytest.mark.parametrize("count", [None, 0.9, "mle"])
def test_counts_that_are_chosen(count, place):
    X = rows(300, 9)
    wanted, found = PCA(count).fit(X), PCA(count).fit(torch.asarray(X))
    assert found.n_components_ == wanted.n_components_
    np.testing.assert_allclose(
        found.explained_variance_, wanted.explained_variance_, rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_variances_that_squares_would_lose(dtype, place):
    """Below 1e-5 of the largest a square has lost digits: rows are then decomposed themselves."""
    rng = np.random.default_rng(1)
    X = (rng.normal(size=(200, 5)) * [1, 1e-1, 1e-2, 1e-4, 1e-5]).astype(dtype)
    wanted = PCA(5).fit(X.astype(np.float64)).explained_variance_
    found = np.asarray(PCA(5).fit(torch.asarray(X)).explained_variance_)
    np.testing.assert_allclose(found, wanted, rtol=1e-4 if dtype == "float32" else 1e-9)


def test_a_mean_a_million_deviations_away(place):
    X = rows(400, 6) + 1e6
    wanted, found = PCA(2).fit(X), PCA(2).fit(torch.asarray(X))
    np.testing.assert_allclose(found.explained_variance_, wanted.explained_variance_, rtol=1e-8)


def test_rows_that_have_no_scatter_of_their_own():
    table = InMemoryTable(rows(20, 4))
    assert device_scatter(table) is None  # NumPy's
    assert device_scatter(InMemoryTable(torch.asarray(rows(20, 30)))) is None  # wider than tall


def test_missing_values_are_refused_or_left_to_others(place):
    X = torch.asarray(rows(30, 4))
    X[3, 2] = float("nan")
    assert device_scatter(InMemoryTable(X), missing=True) is None
    with pytest.raises(NonFiniteError):
        PCA(2).fit(X)


@pytest.mark.parametrize("place", ["host", "gpu"], indirect=True)
@pytest.mark.parametrize("rank", [1, 5, 20])
@pytest.mark.parametrize("spectrum", ["falling", "flat", "tied", "low rank"])
def test_few_eigenpairs_by_blocks(rank, spectrum, place):
    """Right to rounding, or None where all eigenpairs would be faster."""
    m, rng = 600, np.random.default_rng(0)
    values = {
        "falling": 0.9 ** np.arange(m),
        "flat": np.linspace(1.1, 1.0, m),
        "tied": np.r_[np.full(8, 5.0), np.full(m - 8, 0.5)],
        "low rank": np.r_[np.linspace(2, 1, 25), np.zeros(m - 25)],
    }[spectrum]
    Q = np.linalg.qr(rng.normal(size=(m, m)))[0]
    A = torch.asarray(Q * values @ Q.T)
    found = exact.block_pairs(A.clone(), rank, exact.OF_DOUBLE)
    if found is None:
        assert spectrum != "falling"
        return
    top, vectors = found
    np.testing.assert_allclose(top, np.sort(values)[-rank:], rtol=1e-10)
    np.testing.assert_allclose(A @ vectors, vectors * top, atol=1e-7)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(rank), atol=1e-10)


def test_orthonormal_columns_of_a_gpu():
    """As by reflections, up to signs; None where columns are too alike for Gram matrices."""
    A = torch.asarray(np.random.default_rng(0).normal(size=(300, 8)) * np.geomspace(1, 1e9, 8))
    Q, R = algebra._queued_cholesky_qr(A)
    np.testing.assert_allclose(Q.T @ Q, np.eye(8), atol=1e-14)
    np.testing.assert_allclose(Q @ R, A, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(torch.tril(R, -1), torch.zeros(8, 8))
    A[:, 3] = A[:, 2] * (1 + 1e-12)
    assert algebra._queued_cholesky_qr(A) is None
    A[:, 3] = 0
    assert algebra._queued_cholesky_qr(A) is None
