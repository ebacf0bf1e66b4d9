"""PCA of sparse tensors: as that of the same rows, dense, in float64."""

import numpy as np
import pytest
import scipy.sparse as sp

from dualpca import PCA, PPCA, KernelPCA
from dualpca.arrays import algebra, backend
from dualpca.data import Moments, moments
from dualpca.errors import BackendError, NonFiniteError

torch = pytest.importorskip("torch", reason="rows of another library")
pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")


@pytest.fixture(params=["host", "gpu"])
def place(request, monkeypatch):
    """Tensors on the CPU as they are, and as if they were on a GPU."""
    if request.param == "gpu":
        monkeypatch.setattr(backend, "on_cuda", backend.is_foreign)
    return request.param


def counts(n, d, seed=0, offset=0.0):
    """Return dense counts, most of them 0; one row and one column are empty, two are constant."""
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(n, 3)) @ rng.normal(size=(3, d))
    X = np.log1p(rng.poisson(np.exp(0.8 * latent - 1.5))).astype(float)
    X[n // 2] = 0
    if d > 8:
        X[:, 1], X[:, 2] = 0, 2.5
    return X + offset


def tensor(X, dtype="float32"):
    """Return rows as a CSR tensor."""
    C = sp.csr_array(X.astype(dtype))
    parts = (C.indptr, C.indices, C.data)
    return torch.sparse_csr_tensor(*map(torch.asarray, parts), size=C.shape)


def alike(found, wanted, close):
    q = wanted.n_components_
    np.testing.assert_allclose(found.explained_variance_, wanted.explained_variance_, rtol=close)
    inner = np.abs(np.asarray(found.components_) @ wanted.components_.T)
    np.testing.assert_allclose(inner, np.eye(q), atol=50 * close)
    np.testing.assert_allclose(found.mean_, wanted.mean_, rtol=close, atol=close)
    assert float(found.noise_variance_) == pytest.approx(wanted.noise_variance_, rel=50 * close)


@pytest.mark.parametrize("dtype,close", [("float32", 3e-6), ("float64", 1e-9)])
@pytest.mark.parametrize("n,d,q", [(60, 1, 1), (400, 12, 1), (900, 140, 3), (30, 300, 2)])
@pytest.mark.parametrize("kind", ["plain", "weights", "standardize", "far"])
def test_as_of_dense_rows(n, d, q, dtype, close, kind, place):
    X = counts(n, d, offset=40.0 if kind == "far" else 0.0).astype(dtype)
    weights = np.linspace(0.0, 2.0, n) if kind == "weights" else None
    T, model = tensor(X, dtype), PCA(q, standardize=kind == "standardize")
    before = T.values().clone()
    wanted = PCA(**model.get_params()).fit(X.astype(float), sample_weight=weights)
    model.fit(T, sample_weight=weights)
    assert model.components_.dtype == T.dtype and model.components_.device == T.device
    alike(model, wanted, close * (10 if kind == "far" else 1))
    Y = model.transform(T)
    assert Y.shape == (n, q) and Y.dtype == T.dtype and Y.layout is torch.strided
    signs = np.sign(np.sum(np.asarray(model.components_) * wanted.components_, axis=1))
    size = np.abs(wanted.transform(X)).max()
    np.testing.assert_allclose(Y, wanted.transform(X) * signs, atol=100 * close * size)
    assert torch.equal(T.values(), before)


@pytest.mark.parametrize("solver", ["krylov", "dense", "qr", "gram"])
@pytest.mark.parametrize("shape", [(300, 40), (40, 300)])
@pytest.mark.parametrize("dtype,close", [("float32", 3e-6), ("float64", 1e-9)])
def test_every_solver(solver, shape, dtype, close, place):
    X = counts(*shape)
    wanted = PCA(3, svd_solver="qr").fit(X.astype(dtype).astype(float))
    alike(PCA(3, svd_solver=solver).fit(tensor(X, dtype)), wanted, close)


@pytest.mark.parametrize("count", [0.9, "mle", "evidence", "parallel"])
def test_counts_that_are_chosen(count, place):
    X = counts(300, 9)
    found = PCA(count).fit(tensor(X, "float64"))
    assert found.n_components_ == PCA(count).fit(X).n_components_


@pytest.mark.parametrize("layout", ["coo", "csc"])
def test_other_layouts_are_brought_to_rows(layout, place):
    X = counts(200, 12)
    T = tensor(X, "float64")
    T = T.to_sparse_coo() if layout == "coo" else T.to_sparse_csc()
    alike(PCA(2).fit(T), PCA(2).fit(X), 1e-9)


def test_entries_stored_twice_add_up(place):
    X = counts(50, 12)
    C = sp.csr_array(X)
    parts = (2 * C.indptr, np.repeat(C.indices, 2), np.repeat(C.data, 2) / 2)
    T = torch.sparse_csr_tensor(
        *map(torch.asarray, parts), size=C.shape, check_invariants=False, dtype=torch.float64
    )
    alike(PCA(2).fit(T), PCA(2).fit(X), 1e-9)


def test_integers_and_nothing_stored(place):
    X = np.random.default_rng(0).poisson(0.3, size=(80, 6))
    alike(PCA(2).fit(tensor(X, "int32")), PCA(2).fit(X), 1e-9)
    empty = PCA(2).fit(tensor(np.zeros((20, 5))))
    np.testing.assert_array_equal(empty.explained_variance_, 0.0)


def test_a_missing_value_is_named(place):
    X = counts(60, 12)
    X[17, 5] = np.nan
    with pytest.raises(NonFiniteError, match=r"17.*5"):
        PCA(2).fit(tensor(X))


def test_models_of_dense_rows_refuse_them_in_words():
    T = tensor(counts(40, 12))
    for model in (PPCA(2), KernelPCA(2, kernel="rbf")):
        with pytest.raises(TypeError, match=r"X\.to_dense\(\)"):
            model.fit(T)
    with pytest.raises(TypeError, match="derivatives are the same for all"):
        PCA(2).fit(T).jacobian(T)
    with pytest.raises(BackendError, match="dense rows in memory"):
        PCA(2, device="cuda").fit(T)


def test_a_model_of_scipy_rows_answers_a_tensor():
    X = counts(80, 12).astype(np.float32)
    model = PCA(2).fit(sp.csr_array(X))
    found = model.transform(tensor(X))
    assert isinstance(found, torch.Tensor)
    np.testing.assert_allclose(found, model.transform(X), atol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_blocks_made_dense_are_gathered_by_the_fused_program(weighted, monkeypatch):
    """As if on a GPU, and in several blocks: the sums of all rows."""
    monkeypatch.setattr(backend, "on_cuda", backend.is_foreign)
    monkeypatch.setattr(moments, "DENSE_ENTRIES", 20 * 700)
    blocks = []

    def plain(C, shift, w, sample):
        C = C.double() - shift
        blocks.append(len(C))
        w = torch.ones(len(C), dtype=torch.float64) if w is None else w
        return w @ C, (C * w[:, None]).T @ C

    monkeypatch.setattr(algebra, "fused_scatter", plain)
    monkeypatch.setattr(algebra, "can_fuse_scatter", lambda C: True)
    X = counts(1500, 20).astype(np.float32)
    w = np.linspace(0.5, 2.0, 1500) if weighted else None
    found = Moments.of(tensor(X), None if w is None else torch.asarray(w), single=True)
    exact = Moments.of(X.astype(float), w)
    assert blocks == [700, 700, 100]
    np.testing.assert_allclose(found.mean, exact.mean, atol=1e-12)
    np.testing.assert_allclose(found.scatter, exact.scatter, atol=1e-9)


def test_the_benchmark_runs_small_and_finds_the_reference():
    from benchmarks import gpu_sparse

    rows = {row["name"]: row for row in gpu_sparse.compared(400, 60, 3, repeats=1)}
    assert set(rows) == set(gpu_sparse.JOBS)
    assert rows["dualpca, default"]["error"] < 1e-6 and rows["dualpca, default"]["seconds"] > 0
    X = gpu_sparse.cells(400, 60, "cpu")
    C = X.to_dense().double().numpy()
    values = np.linalg.svd(C - C.mean(0), compute_uv=False)[:3] ** 2 / 399
    np.testing.assert_allclose(gpu_sparse.reference(X, 3), values, rtol=1e-10)
