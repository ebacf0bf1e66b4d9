"""KernelPCA against dense references: solvers, weights, backends, novelty, published numbers."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris, make_moons
from sklearn.decomposition import KernelPCA as SklearnKernelPCA
from sklearn.gaussian_process import kernels as gaussian_process
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from dualpca import PCA, DualPPCA, KernelPCA, ProbabilisticKernelPCA
from dualpca.arrays import algebra as _algebra
from dualpca.errors import BackendError, SolverWarning
from dualpca.kernels import RBF, Laplacian, Linear, Polynomial
from dualpca.models import kernel as kernel_models
from tests.oracles import repeat
from tests.oracles.kernel_pca import gaussian, kernel_pca
from tests.oracles.preimage import circle, radial_rms
from tests.tolerances import assert_close

GAMMA = 0.2
SHAPES = {"small": (45, 4), "tall": (1100, 3), "wide": (40, 90)}
SOLVERS = {
    "auto": {},
    "dense": {"eigen_solver": "dense"},
    "krylov": {"eigen_solver": "krylov"},
    "krylov, not stored": {"eigen_solver": "krylov", "memory_limit": 0},
    "dense, not stored": {"eigen_solver": "dense", "memory_limit": 0},
    "loose": {"eigen_solver": "krylov", "tol": 1e-6},
    "float32": {"eigen_solver": "krylov", "dtype": "float32"},
    "float32, not stored": {"eigen_solver": "krylov", "dtype": "float32", "memory_limit": 0},
    "float32, dense": {"eigen_solver": "dense", "dtype": "float32"},
}
EXACT = [name for name in SOLVERS if "float32" not in name and name != "loose"]
FITTED = ["eigenvalues_", "explained_variance_", "explained_variance_ratio_", "eigenvectors_"]


def rows(n=45, d=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * np.linspace(2, 0.5, d) * min(1, 3 / np.sqrt(d)) + 1


def rbf(q=3, **options):
    return KernelPCA(q, kernel="rbf", **{"gamma": GAMMA, **options})


def assert_is(model, oracle, q, k, new, dtype=np.float64):
    """Assert that a model (fitted on rows whose dense solution is `oracle`) is the same."""
    total = oracle.w.sum()
    assert_close(model.eigenvalues_, oracle.lam[:q], "eigenvalue", dtype)
    assert_close(model.explained_variance_, oracle.lam[:q] / total, "eigenvalue", dtype)
    assert_close(
        model.explained_variance_ratio_, oracle.lam[:q] / oracle.trace, "eigenvalue", dtype
    )
    assert_close(model.transform(new), oracle.transform(k, q), "vector", dtype)


# --- solvers -------------------------------------------------------------------------------------


@pytest.mark.grid(2)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_is_the_dense_one(solver, shape, center, weighted):
    if shape == "tall" and (weighted or not center) and solver in ("auto", "dense, not stored"):
        pytest.skip("as slow as the others and the same code")
    X, new = rows(*SHAPES[shape]), rows(20, SHAPES[shape][1], seed=1)
    w = np.random.default_rng(2).integers(0, 4, len(X)).astype(float) if weighted else None
    model = rbf(center=center, **SOLVERS[solver]).fit(X, sample_weight=w)
    oracle = kernel_pca(gaussian(X, X, GAMMA), w, center)
    dtype = np.float64 if solver in EXACT else np.float32
    k = gaussian(new, X, GAMMA)
    assert_is(model, oracle, 3, k, new, dtype)
    novelty = oracle.novelty(k, np.ones(20), 3)
    assert_close(model.novelty(new), novelty, "vector", dtype)
    assert model.approximation_error_.trace == 0
    assert "float32" in solver or model.approximation_error_.residual <= model.tol + 1e-12


@pytest.mark.parametrize("stored", [True, False])
def test_tol_is_reached_where_float32_cannot(stored):
    X = rows(300, 2)
    limit = {} if stored else {"memory_limit": 0}
    model = rbf(15, gamma=0.02, eigen_solver="krylov", tol=1e-6, **limit).fit(X)
    lam = kernel_pca(gaussian(X, X, 0.02)).lam[:15]
    assert lam[-1] < 1e-5 * lam[0]  # lost in float32
    np.testing.assert_allclose(model.eigenvalues_, lam, rtol=1e-6)


@pytest.mark.parametrize("tol", [0.0, 1e-6, 1e-2])
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e5])
def test_an_offset_leaves_the_linear_kernel_its_digits(offset, tol):
    X = rows() + offset
    model = KernelPCA(tol=tol).fit(X)
    assert model.n_components_ == 4  # what is left of the offset's rounding is no component
    expected = np.linalg.eigvalsh(np.cov(X.T, bias=True))[::-1]
    np.testing.assert_allclose(model.explained_variance_, expected, rtol=1e-15 * offset**2 + 1e-10)


def test_max_iter_is_kept_and_warned_of():
    with pytest.warns(SolverWarning, match="1 passes"):
        rbf(eigen_solver="krylov", max_iter=1).fit(rows())


def test_equal_eigenvalues_all_come_back():
    # LAPACK's evr returned none of the leading 2 of this matrix
    values, vectors = _algebra.top_eigh(np.eye(60) - 1 / 60, 2)
    assert_close(values, np.ones(2), "eigenvalue")
    assert_close(vectors.T @ vectors, np.eye(2), "orthonormal")
    for order in "CF":
        A = np.array(np.eye(60) - 1 / 60, order=order)
        for rank in range(1, 20):
            values, vectors = _algebra.top_eigh(A.copy(order=order), rank)
            assert_close(A @ vectors, vectors, "orthonormal")


# --- weights -------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", [*SOLVERS, "nystrom", "cholesky", "fourier"])
def test_a_weight_counts_rows(solver):
    X, new = rows(), rows(9, seed=1)
    counts = np.random.default_rng(0).integers(0, 4, len(X))
    options = SOLVERS.get(solver, {"eigen_solver": solver})
    a = rbf(**options).fit(X, sample_weight=counts)
    b = rbf(**options).fit(repeat(X, counts))
    dtype = np.float32 if "float32" in solver or solver == "loose" else np.float64
    for name in FITTED[:3]:
        assert_close(getattr(a, name), getattr(b, name), "eigenvalue", dtype)
    assert_close(a.transform(new), b.transform(new), "vector", dtype)
    assert_close(a.novelty(new), b.novelty(new), "vector", dtype)
    for level in (0.3, 0.7, 0.95):
        assert_close(a.novelty_threshold(level), b.novelty_threshold(level), "vector", dtype)
    assert a.n_samples_ == np.count_nonzero(counts)


@pytest.mark.parametrize("order", [0, 100])
def test_weights_count_where_float32_is_not_enough(order, monkeypatch):
    monkeypatch.setattr(kernel_models, "ONE_THREAD_ORDER", order)  # the same on any threads
    X, w = rows(80, 2), np.random.default_rng(0).integers(0, 4, 80)
    model = rbf(12, gamma=0.02, eigen_solver="krylov", tol=1e-6).fit(X, sample_weight=w)
    lam = kernel_pca(gaussian(X, X, 0.02), w.astype(float)).lam[:12]
    assert lam[-1] < 1e-5 * lam[0]  # lost in float32
    np.testing.assert_allclose(model.eigenvalues_, lam, rtol=1e-6)
    assert model.n_samples_ == np.count_nonzero(w)


def test_the_scale_of_weights_scales_eigenvalues_alone():
    X, w = rows(), np.random.default_rng(0).random(45)
    a, b = rbf().fit(X, sample_weight=w), rbf().fit(X, sample_weight=1e-3 * w)
    assert_close(1e-3 * a.eigenvalues_, b.eigenvalues_, "eigenvalue")
    assert_close(a.transform(X), b.transform(X), "vector")
    assert a.n_samples_ == b.n_samples_ == 45


# --- the linear kernel is PCA --------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", ["small", "wide"])
def test_linear_kernel_is_pca(shape, weighted):
    X, new = rows(*SHAPES[shape]), rows(9, SHAPES[shape][1], seed=1)
    w = np.random.default_rng(0).random(len(X)) if weighted else None
    n = len(X) if w is None else w.sum()
    model, pca = KernelPCA(3).fit(X, sample_weight=w), PCA(3).fit(X, sample_weight=w)
    scatter = model.eigenvalues_ / n
    assert_close(model.explained_variance_, scatter, "exact")
    if not weighted:
        assert_close(scatter * n / (n - 1), pca.explained_variance_, "eigenvalue")
    assert_close(model.explained_variance_ratio_, pca.explained_variance_ratio_, "eigenvalue")
    Y, Z = model.transform(new), pca.transform(new)
    assert_close(np.abs(Y), np.abs(Z), "vector")
    assert_close(model.inverse_transform(Y), pca.inverse_transform(Z), "vector")
    assert_close(model.denoise(new), pca.reconstruct(new), "vector")


def test_uncentred_linear_kernel_is_the_second_moment():
    X = rows()
    model = KernelPCA(2, center=False).fit(X)
    ell, V = np.linalg.eigh(X.T @ X)
    assert_close(model.eigenvalues_, ell[::-1][:2], "eigenvalue")
    assert_close(np.abs(model.transform(X)), np.abs(X @ V[:, ::-1][:, :2]), "vector")
    assert_close(model.reconstruct(X), X @ V[:, 2:] @ V[:, 2:].T, "vector")


# --- backends, dtypes, containers ----------------------------------------------------------------

APPROXIMATE = {
    "nystrom": {"eigen_solver": "nystrom", "n_landmarks": 20, "landmarks": "leverage"},
    "kmeans": {"eigen_solver": "nystrom", "n_landmarks": 20, "landmarks": "kmeans"},
    "cholesky": {"eigen_solver": "cholesky", "n_landmarks": 20},
    "fourier": {"eigen_solver": "fourier", "n_landmarks": 60},
}
ALL = {**SOLVERS, **APPROXIMATE}


@pytest.mark.filterwarnings("ignore::dualpca.errors.SolverWarning")  # few pivots leave some out
@pytest.mark.parametrize("solver", ALL)
def test_backends_agree(backend, solver):
    X, new, w = rows(), rows(9, seed=1), np.random.default_rng(0).random(45)
    expected = rbf(**ALL[solver]).fit(X, sample_weight=w)
    model = rbf(**ALL[solver]).fit(backend.asarray(X), sample_weight=backend.asarray(w))
    dtype = np.float32 if "float32" in solver or solver == "loose" else np.float64
    Y = model.transform(backend.asarray(new))
    assert backend.owns(Y) and backend.owns(model.eigenvalues_)
    assert_close(backend.numpy(model.eigenvalues_), expected.eigenvalues_, "eigenvalue", dtype)
    assert_close(backend.numpy(Y), expected.transform(new), "vector", dtype)
    novelty = model.novelty(backend.asarray(new))
    assert_close(backend.numpy(novelty), expected.novelty(new), "vector", dtype)
    assert_close(model.novelty_threshold(), expected.novelty_threshold(), "vector", dtype)


def test_latents_of_another_library_are_refused():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    model = rbf().fit(torch.asarray(rows()))
    for method in (model.inverse_transform, model.preimage_weights):
        with pytest.raises(BackendError, match="same namespace"):
            method(np.zeros((1, 3)))


@pytest.mark.parametrize("solver", ALL)
@pytest.mark.filterwarnings("ignore::dualpca.errors.SolverWarning")
def test_float32_rows_give_float32(solver):
    X = rows().astype(np.float32)
    model = rbf(**ALL[solver]).fit(X)
    expected = rbf(**ALL[solver]).fit(X.astype(np.float64))
    assert model.eigenvalues_.dtype == model.transform(X).dtype == np.float32
    assert_close(model.eigenvalues_, expected.eigenvalues_, "eigenvalue", np.float32)
    assert_close(model.transform(X), expected.transform(X), "vector", np.float32)


SPARSE_KERNELS = [
    "linear",
    "rbf",
    "poly",
    "matern",
    RBF(gamma=0.3, on=[0, 5, 7]),
    RBF(gamma="scale"),
    RBF(gamma="median"),
]


@pytest.mark.grid(2)
@pytest.mark.parametrize("kernel", SPARSE_KERNELS, ids=str)
@pytest.mark.parametrize("solver", ["dense", "krylov", *APPROXIMATE])
@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array])
@pytest.mark.filterwarnings("ignore::dualpca.errors.SolverWarning")
def test_sparse_rows_are_dense_rows(kernel, solver, kind):
    if solver == "fourier" and not (isinstance(kernel, RBF) and kernel.on is None):
        pytest.skip("random features of RBF")
    X = sparse.random(60, 30, 0.3, random_state=0).toarray()
    a = KernelPCA(3, kernel=kernel, **ALL[solver]).fit(X)
    b = KernelPCA(3, kernel=kernel, **ALL[solver]).fit(kind(X))
    # zeros make equal landmarks, and their kernel nearly singular
    assert_close(b.eigenvalues_, a.eigenvalues_, "covariance")
    assert_close(b.transform(kind(X)), a.transform(X), "vector")
    assert_close(b.novelty(kind(X)), a.novelty(X), "vector", scale=1.0)
    assert a.gamma_ == pytest.approx(b.gamma_) or a.gamma_ is None


def test_sparse_and_dense_rows_may_follow_each_other():
    X = sparse.random(40, 20, 0.3, random_state=0, format="csr")
    for solver in ("dense", "nystrom", "fourier"):
        a = rbf(eigen_solver=solver).fit(X)
        b = rbf(eigen_solver=solver).fit(X.toarray())
        assert_close(a.transform(X.toarray()), b.transform(X.toarray()), "vector")
        assert_close(b.transform(X), b.transform(X.toarray()), "exact")
        assert_close(a.novelty(X.toarray()), b.novelty(X), "vector")


def test_tables_are_arrays():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    X, function = rows(), lambda x, y: float(x @ y)
    for kernel in ("rbf", gaussian_process.RBF(2.0), function):
        expected = KernelPCA(2, kernel=kernel).fit_transform(X)
        for table in (pandas.DataFrame(X), polars.DataFrame(X), X.tolist()):
            if hasattr(table, "columns"):
                table.columns = list("abcd")
            assert_close(KernelPCA(2, kernel=kernel).fit_transform(table), expected, "exact")
    model = KernelPCA(2).set_output(transform="pandas").fit(pandas.DataFrame(X, columns=[*"abcd"]))
    assert list(model.feature_names_in_) == [*"abcd"]
    assert list(model.transform(pandas.DataFrame(X, columns=[*"abcd"])).columns) == [
        "kernelpca0",
        "kernelpca1",
    ]


# --- novelty -------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", EXACT)
def test_training_novelty_follows_from_the_eigenpairs(solver):
    X = rows()
    model = rbf(**SOLVERS[solver]).fit(X)
    novelty = model.novelty(X)
    K = gaussian(X, X, GAMMA)
    assert_close(novelty, kernel_pca(K).novelty(K, np.ones(45), 3), "covariance")
    assert_close(model._model.residual, novelty, "covariance")
    assert model.is_novel(np.full((2, 4), 50.0)).all()
    assert not model.is_novel(X[np.argmin(novelty)][None, :]).any()


def test_a_stream_waits_for_enough_rows_to_choose_landmarks_from():
    X = rows(80)
    whole, parts = (rbf(5, n_landmarks=20) for _ in range(2))
    whole.partial_fit(X)
    for chunk in np.array_split(X, 10):
        parts.partial_fit(chunk)
    assert_close(parts.eigenvalues_, whole.eigenvalues_, "exact")
    assert_close(parts.transform(X), whole.transform(X), "exact")


@pytest.mark.parametrize("level", [0, 1, -1, 1.5, float("nan")])
def test_impossible_levels_are_errors(level):
    with pytest.raises(ValueError, match="level"):
        rbf().fit(rows()).novelty_threshold(level)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly", "laplacian"])
def test_all_components_explain_everything(kernel, center):
    model = KernelPCA(kernel=kernel, center=center).fit(rows())
    assert model.explained_variance_ratio_.sum() == pytest.approx(1, abs=1e-10)
    assert np.all(model.novelty(rows()) < 1e-10 * model.eigenvalues_[0])


# --- kernels -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, function",
    [
        ({"kernel": "rbf", "gamma": "scale"}, lambda X, Y: gaussian(X, Y, 1 / (4 * rows().var()))),
        ({"kernel": "rbf"}, lambda X, Y: gaussian(X, Y, 0.25)),
        ({"kernel": "rbf", "kernel_params": {"length_scale": 2.0}},
         lambda X, Y: gaussian(X, Y, 1 / 8)),
        ({"kernel": "rbf", "kernel_params": {"gamma": 0.7}}, lambda X, Y: gaussian(X, Y, 0.7)),
        ({"kernel": "poly", "degree": 2, "coef0": 3.0, "gamma": 0.5},
         lambda X, Y: (0.5 * X @ Y.T + 3) ** 2),
        ({"kernel": RBF(gamma=0.5, on=[1, 3])},
         lambda X, Y: gaussian(X[:, [1, 3]], Y[:, [1, 3]], 0.5)),
        ({"kernel": RBF(gamma=0.5) + 2.0 * Linear()},
         lambda X, Y: gaussian(X, Y, 0.5) + 2 * X @ Y.T),
        ({"kernel": RBF(gamma=0.5, on=[0]) * Polynomial(degree=2, gamma=1.0, on=[2])},
         lambda X, Y: gaussian(X[:, :1], Y[:, :1], 0.5) * (np.outer(X[:, 2], Y[:, 2]) + 1) ** 2),
        ({"kernel": 3.0 * gaussian_process.RBF(2.0) + gaussian_process.DotProduct(1.0)},
         lambda X, Y: 3 * gaussian(X, Y, 1 / 8) + X @ Y.T + 1),
        ({"kernel": lambda x, y, power: float(x @ y) ** power, "kernel_params": {"power": 3}},
         lambda X, Y: (X @ Y.T) ** 3),
        ({"kernel": Laplacian(gamma=0.3)},
         lambda X, Y: np.exp(-0.3 * np.abs(X[:, None] - Y[None]).sum(axis=2))),
    ],
)  # fmt: skip
def test_kernels_of_every_kind(options, function):
    X, new = rows(), rows(7, seed=1)
    model = KernelPCA(4, **options).fit(X)
    assert_is(model, kernel_pca(function(X, X)), 4, function(new, X), new)


def test_median_gamma_is_that_of_the_distances():
    X = rows()
    distances = [np.sum((a - b) ** 2) for i, a in enumerate(X) for b in X[:i]]
    assert rbf(gamma="median").fit(X).gamma_ == pytest.approx(1 / np.median(distances), rel=1e-12)


# --- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly", "laplacian", "cosine"])
@pytest.mark.parametrize("value", [0.0, 7.0, 7.1, 9.59])
@pytest.mark.parametrize("solver", ["dense", "krylov", "nystrom", "cholesky"])
@pytest.mark.parametrize("q", [None, 1])
def test_constant_rows_have_no_components(kernel, value, solver, q):
    X = np.full((10, 3), value)
    model = KernelPCA(q, kernel=kernel, eigen_solver=solver).fit(X)
    assert model.n_components_ <= (0 if q is None else 1)
    for name in FITTED[:3]:
        assert np.all(getattr(model, name) == 0)
    Y = model.transform(X)
    assert Y.shape == (10, model.n_components_)
    assert np.all(np.abs(Y) <= 1e-14 * (1 + value))
    assert np.all(np.abs(model.novelty(X)) <= 1e-10 * max(1.0, value**6))
    if q == 1 and value > 0:
        assert_close(model.inverse_transform(np.zeros((1, 1))), X[:1], "covariance")


def test_two_rows_are_one_direction():
    X = rows(2)
    model = KernelPCA(kernel="rbf", gamma=0.1).fit(X)
    distance = 2 - 2 * gaussian(X[:1], X[1:], 0.1).item()
    assert_close(model.eigenvalues_, [distance / 2], "eigenvalue")
    assert_close(np.abs(model.transform(X)), np.full((2, 1), np.sqrt(distance) / 2), "vector")
    assert_close(model.reconstruct(X), X, "vector")


@pytest.mark.parametrize("kernel", ["rbf", "linear", lambda a, b: float(a == b)])
def test_one_row_is_an_error(kernel):
    X = ["a"] if callable(kernel) else rows(1)
    with pytest.raises(ValueError, match=r"minimum of 2|at least 2"):
        KernelPCA(kernel=kernel).fit(X)


@pytest.mark.parametrize("solver", ["dense", "krylov", "nystrom", "cholesky"])
@pytest.mark.parametrize("q", [None, 1, 2, 4, 15])
def test_a_narrow_kernel_is_the_identity(solver, q):
    X = np.random.default_rng(0).standard_normal((60, 3))
    model = KernelPCA(q, kernel="rbf", gamma=1e6, eigen_solver=solver, tol=1e-7, dtype="float64")
    model.fit(X)
    assert model.n_components_ == (59 if q is None else q)
    np.testing.assert_allclose(model.eigenvalues_, 1.0, atol=1e-7)
    np.testing.assert_allclose(model.explained_variance_ratio_, 1 / 59, atol=1e-8)


@pytest.mark.parametrize("solver", ["dense", "krylov", "nystrom", "cholesky"])
def test_duplicates_add_no_components(solver):
    X = np.repeat(rows(10), 4, axis=0)
    model = rbf(None, eigen_solver=solver).fit(X)
    assert model.n_components_ == 9
    assert_close(model.eigenvalues_, 4 * rbf(None).fit(rows(10)).eigenvalues_, "eigenvalue")
    Y = model.transform(X)
    assert_close(Y[::4], Y[3::4], "covariance")


def test_more_components_than_rows_are_zeros():
    X = rows(8)
    model = rbf(20).fit(X)
    assert model.eigenvalues_.shape == (8,) and model.eigenvalues_[-1] == 0
    assert np.all(model.transform(X)[:, -1] == 0) and np.isfinite(model.transform(X)).all()
    assert rbf(20, remove_zero_eig=True).fit(X).n_components_ == 7
    assert rbf(None).fit(X).n_components_ == 7
    assert KernelPCA(20, remove_zero_eig=True).fit(X).n_components_ == 4


@pytest.mark.parametrize("share", [0.5, 0.9, 0.999])
@pytest.mark.parametrize("solver", ["auto", "krylov", "nystrom"])
def test_a_share_of_the_variance_is_the_fewest_that_reach_it(share, solver):
    X = rows()
    model = rbf(share, eigen_solver=solver).fit(X)
    lam = kernel_pca(gaussian(X, X, GAMMA)).lam
    assert model.n_components_ == np.searchsorted(np.cumsum(lam) / lam.sum(), share) + 1


# --- invariance ----------------------------------------------------------------------------------


def test_order_rotation_and_scale_do_not_matter():
    X, new, rng = rows(), rows(9, seed=1), np.random.default_rng(0)
    Y = rbf().fit(X).transform(new)
    order = rng.permutation(45)
    assert_close(rbf().fit(X[order]).transform(new), Y, "vector")
    Q = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    assert_close(rbf().fit(X @ Q + 3).transform(new @ Q + 3), Y, "vector")
    assert_close(rbf(gamma=GAMMA / 100).fit(10 * X).transform(10 * new), Y, "vector")
    scaled = KernelPCA(3, kernel=4.0 * RBF(gamma=GAMMA)).fit(X)
    assert_close(scaled.transform(new), 2 * Y, "vector")


@pytest.mark.parametrize("solver", ALL)
@pytest.mark.filterwarnings("ignore::dualpca.errors.SolverWarning")
def test_the_same_call_gives_the_same_digits(solver):
    X = rows()
    first, second = (rbf(**ALL[solver]).fit(X).transform(X) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("solver", ALL)
@pytest.mark.filterwarnings("ignore::dualpca.errors.SolverWarning")
def test_rows_are_neither_changed_nor_remembered(solver):
    X, new = rows(), rows(9, seed=1)
    before = X.copy()
    model = rbf(**ALL[solver]).fit(X)
    Y, threshold = model.transform(new), model.novelty_threshold()
    np.testing.assert_array_equal(X, before)
    X[:] = 0
    np.testing.assert_array_equal(model.transform(new), Y)
    assert model.novelty_threshold() == threshold
    if solver != "fourier":
        assert_close(model.denoise(new), rbf(**ALL[solver]).fit(before).denoise(new), "exact")


def test_a_kernel_matrix_is_not_changed():
    K = gaussian(rows(), rows(), GAMMA)
    before = K.copy()
    model = KernelPCA(3, kernel="precomputed").fit(K)
    model.transform(K), model.novelty(K)
    np.testing.assert_array_equal(K, before)


# --- scikit-learn's world ------------------------------------------------------------------------


def test_like_scikit_learn_to_the_digit():
    X, new = rows(), rows(9, seed=1)
    for kernel in ("linear", "poly", "rbf", "cosine"):
        ours, theirs = (C(3, kernel=kernel).fit(X) for C in (KernelPCA, SklearnKernelPCA))
        assert_close(ours.eigenvalues_, theirs.eigenvalues_, "eigenvalue")
        assert_close(np.abs(ours.transform(new)), np.abs(theirs.transform(new)), "vector")


@pytest.mark.parametrize("solver", ["dense", "krylov", "nystrom", "cholesky", "fourier"])
@pytest.mark.filterwarnings("ignore::dualpca.errors.SolverWarning")
def test_pickle_and_clone(solver):
    X = rows()
    model = rbf(**ALL[solver], fit_inverse_transform=solver == "dense").fit(X)
    if solver != "fourier":
        model.inverse_transform(model.transform(X))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    assert again.novelty_threshold() == model.novelty_threshold()
    if solver != "fourier":
        latents = model.transform(X)
        found, expected = again.inverse_transform(latents), model.inverse_transform(latents)
        np.testing.assert_array_equal(found, expected)
    fresh = clone(model)
    assert fresh.get_params() == model.get_params() and not hasattr(fresh, "eigenvalues_")


def test_refitting_leaves_nothing_behind():
    X = rows()
    model = rbf(fit_inverse_transform=True).fit(X)
    model.inverse_transform(model.transform(X))
    model.set_params(kernel="poly", fit_inverse_transform=False).fit(2 * X)
    fresh = KernelPCA(3, kernel="poly", gamma=GAMMA).fit(2 * X)
    assert sorted(vars(model)) == sorted(vars(fresh))
    assert_close(model.reconstruct(X), fresh.reconstruct(X), "exact")


def test_learned_inverse_uses_all_points_whatever_the_memory():
    X = rows()
    assert rbf(fit_inverse_transform=True, memory_limit=0).fit(X).dual_coef_.shape == (45, 4)


def test_grid_search_and_pipelines():
    X, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(KernelPCA(5, kernel="rbf"), LogisticRegression())
    grid = {"kernelpca__gamma": [1e-6, 0.1, "median"]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(X, y)
    assert search.best_score_ > 0.9
    assert search.best_params_["kernelpca__gamma"] != 1e-6
    precomputed = make_pipeline(KernelPCA(5, kernel="precomputed"), LogisticRegression())
    scores = GridSearchCV(precomputed, {"kernelpca__n_components": [2, 5]}, cv=3)
    assert scores.fit(gaussian(X, X, 0.1), y).best_score_ > 0.9


# --- published numbers ---------------------------------------------------------------------------


def best_split(z, y):
    """Return the largest share of labels that a threshold on z gets right."""
    y = y[np.argsort(z)]
    right = [np.mean(np.r_[1 - y[:i], y[i:]]) for i in range(len(y) + 1)]
    return max(*right, *(1 - r for r in right))


def test_moons_come_apart():
    X, y = make_moons(200, noise=None, random_state=0)
    assert best_split(KernelPCA(1, kernel="rbf", gamma=20).fit_transform(X)[:, 0], y) == 1
    assert best_split(KernelPCA(1).fit_transform(X)[:, 0], y) == pytest.approx(0.775)


def test_denoising_a_circle():
    """REFERENCE 'S2 denoising' through the estimator; one draw alone varies by a third."""
    draws = [circle(seed) for seed in range(10)]
    clean = [KernelPCA(6, kernel="rbf", gamma=1.0).fit(X).denoise(X) for X in draws]
    assert np.mean([radial_rms(Z) for Z in clean]) < 0.03
    assert np.max([radial_rms(Z) for Z in clean]) < 0.04
    linear = [radial_rms(KernelPCA(1).fit(X).denoise(X)) for X in draws]
    assert np.mean(linear) == pytest.approx(0.441, abs=0.01)


def test_explained_variance_of_digits(shared_data):
    with np.load(shared_data("mnist10k.npz")) as data:
        images = data["images"]
    index = np.random.default_rng(0).permutation(len(images))[:600]
    X = images[index].astype(np.float64) / 255
    model = KernelPCA(15, kernel="rbf", gamma="median").fit(X)
    assert model.explained_variance_ratio_.sum() == pytest.approx(0.39, abs=0.01)
    assert model.squared_eigenvalue_ratio().sum() == pytest.approx(0.88, abs=0.02)


@pytest.mark.parametrize("weighted", [False, True])
def test_squares_of_eigenvalues_are_the_frobenius_norm(weighted):
    X, w = rows(), np.arange(45.0) if weighted else None
    lam = kernel_pca(gaussian(X, X, GAMMA), w).lam
    expected = lam[:3] ** 2 / np.sum(lam**2)
    model = rbf().fit(X, sample_weight=w)
    assert_close(model.squared_eigenvalue_ratio(), expected, "eigenvalue")


def test_three_clusters_on_average():
    expected = [22.66, 21.54, 4.26, 3.78, 3.38, 2.92, 2.57, 2.21]
    centres = np.repeat([[-0.5, -0.2], [0.0, 0.6], [0.5, 0.0]], 30, axis=0)
    draws = np.random.default_rng(0).standard_normal((500, 90, 2))
    values = np.array(
        [KernelPCA(8, kernel="rbf", gamma=10.0).fit(centres + 0.1 * z).eigenvalues_ for z in draws]
    )
    error = values.std(axis=0, ddof=1) / np.sqrt(500)
    assert np.all(np.abs(values.mean(axis=0) - expected) < 3 * error)


@pytest.mark.parametrize("solver", ["dense", "krylov", "nystrom", "cholesky"])
@pytest.mark.parametrize("offset", [1e6, 1e8])
def test_an_offset_that_takes_the_digits_is_told(solver, offset):
    # the linear kernel of rows at 1e8 has none left: components came out as zeros, silently
    X = rows()
    with pytest.warns(SolverWarning, match="Subtract the mean of X"):
        KernelPCA(2, eigen_solver=solver).fit(X + offset)
    KernelPCA(2, eigen_solver=solver).fit(X + offset - (X + offset).mean(axis=0))


@pytest.mark.parametrize("model", [DualPPCA(1), ProbabilisticKernelPCA(1)])
def test_a_kernel_far_wider_than_the_data_is_told(model):
    with pytest.warns(SolverWarning, match="larger gamma"):
        model.set_params(gamma=1e-12).fit(rows())


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_rows_that_are_the_same_have_no_digits_to_lose(kernel):
    X = np.full((10, 3), 0.1)
    for rows_ in (X, sparse.csr_matrix(X)):
        model = KernelPCA(2, kernel=kernel).fit(rows_)  # no warning
        assert np.all(model.eigenvalues_ == 0)
    with pytest.warns(SolverWarning, match="0 of its 16 digits"):
        KernelPCA(2).fit(sparse.csr_matrix(X + 1e8 + np.arange(10)[:, None] * 1e-3))
