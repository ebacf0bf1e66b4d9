"""What KernelPCA takes and refuses: items, kernel matrices, parameters, extreme scales."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

from dualpca import KernelPCA
from dualpca.data import InMemoryTable
from dualpca.data.table import SlicedTable
from dualpca.errors import NonFiniteError, ScaleError
from dualpca.kernels import RBF, Precomputed
from dualpca.models import kernel as kernel_models
from dualpca.models.kernel import KernelChoice, kernel_operator
from dualpca.solvers import KernelOptions
from tests.oracles.kernel_pca import gaussian, kernel_pca
from tests.tolerances import assert_close

WORDS = ["kernel", "colonel", "component", "compound", "variance", "covariance", "span"]


def rows(n=40, d=3, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)) * np.linspace(2, 1, d) + 1


def letters(a, b):
    """Return how many letters two words share, plus how many pairs of neighbours."""
    pairs = {*pairwise(a)} & {*pairwise(b)}
    return float(len(set(a) & set(b)) + len(pairs))


def letters_matrix(A, B):
    return np.array([[letters(a, b) for b in B] for a in A])


# --- items ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"eigen_solver": "krylov"},
        {"memory_limit": 0},
        {"eigen_solver": "nystrom"},
        {"eigen_solver": "cholesky"},
    ],
    ids=str,
)
def test_strings_are_items(options, weighted):
    w = np.arange(7.0) if weighted else None
    oracle = kernel_pca(letters_matrix(WORDS, WORDS), w)
    if options.get("eigen_solver") == "nystrom":
        options = {**options, "landmarks": "leverage"}
    model = KernelPCA(3, kernel=letters, **options).fit(WORDS, sample_weight=w)
    new = ["spectrum", "kern"]
    k, own = letters_matrix(new, WORDS), np.array([letters(a, a) for a in new])
    assert_close(model.eigenvalues_, oracle.lam[:3], "covariance")
    assert_close(np.abs(model.transform(new)), np.abs(oracle.transform(k, 3)), "vector")
    assert_close(model.novelty(new), oracle.novelty(k, own, 3), "vector")
    assert_close(model.preimage_weights(np.zeros((1, 3))).sum(), 1.0, "vector")
    with pytest.raises(NotFittedError, match="preimage_weights"):
        model.inverse_transform(np.zeros((1, 3)))


def test_items_come_in_every_container():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    expected = KernelPCA(3, kernel=letters).fit_transform(WORDS)
    for kind in (tuple, np.array, lambda w: np.array(w, dtype=object), pandas.Series,
                 polars.Series):  # fmt: skip
        np.testing.assert_array_equal(KernelPCA(3, kernel=letters).fit_transform(kind(WORDS)),
                                      expected)  # fmt: skip


@pytest.mark.parametrize("X", ["word", None, 3.0, {"a": [1.0, 2.0]}, [], {"a"}], ids=repr)
def test_no_items_are_a_clear_error(X):
    with pytest.raises((ValueError, TypeError), match=r"array|convert|number|dict|set|items"):
        KernelPCA(2, kernel=letters).fit(X)


def test_items_and_rows_are_not_mixed():
    model = KernelPCA(2, kernel=letters).fit(WORDS)
    with pytest.raises(ValueError, match="list of items"):
        model.transform(rows())
    table = KernelPCA(2, kernel=lambda x, y: float(x @ y)).fit(rows())
    with pytest.raises(ValueError, match="rows of numbers"):
        table.transform(WORDS)
    table.set_params(kernel=letters).fit(WORDS)
    assert not hasattr(table, "n_features_in_")


@pytest.mark.parametrize("options, match", [
    ({"eigen_solver": "fourier"}, "eigen_solver.*cholesky"),
    ({"eigen_solver": "nystrom", "landmarks": "kmeans", "n_landmarks": 3}, "landmarks.*leverage"),
], ids=str)  # fmt: skip
def test_items_have_no_coordinates(options, match):
    with pytest.raises(ValueError, match=match):
        KernelPCA(2, kernel=letters, **options).fit(WORDS)


def test_a_function_that_returns_nonsense_is_named():
    for value in (None, "1", np.nan, 1j):
        with pytest.raises(ValueError, match="function"):
            KernelPCA(2, kernel=lambda a, b, v=value: v).fit(WORDS)


# --- kernel matrices -----------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["auto", "dense", "krylov"])
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
def test_precomputed_is_computed(solver, center, weighted):
    X, new = rows(), rows(9, seed=1)
    w = np.random.default_rng(0).integers(0, 3, 40) if weighted else None
    options = {"eigen_solver": solver, "center": center}
    a = KernelPCA(3, kernel="rbf", gamma=0.2, **options).fit(X, sample_weight=w)
    K, k = gaussian(X, X, 0.2), gaussian(new, X, 0.2)
    b = KernelPCA(3, kernel="precomputed", **options).fit(K, sample_weight=w)
    assert_close(b.eigenvalues_, a.eigenvalues_, "eigenvalue")
    assert_close(b.transform(k), a.transform(new), "vector")
    assert_close(b.novelty(K), a.novelty(X), "vector")
    assert_close(b.novelty_threshold(), a.novelty_threshold(), "vector")
    same = KernelPCA(3, kernel=Precomputed(diagonal=1.0), **options).fit(K, sample_weight=w)
    assert_close(same.novelty(k), a.novelty(new), "vector")


def test_a_float32_kernel_matrix_is_neither_indefinite_nor_of_full_rank():
    X = rows(60)
    for K, rank in ((X @ X.T, 3), ((X @ X.T + 1) ** 2, 9)):
        model = KernelPCA(kernel="precomputed").fit(K.astype(np.float32))  # and no warning
        assert model.n_components_ == rank
        expected = kernel_pca(K).lam[:rank]
        np.testing.assert_allclose(model.eigenvalues_, expected, rtol=1e-4)


BROKEN = {
    "not square": (lambda K: K[:, :5], "square"),
    "asymmetric": (lambda K: K + np.eye(40, k=1), "symmetric"),
    "NaN": (lambda K: np.where(np.eye(40, k=1) > 0, np.nan, K), "NaN"),
    "infinite": (lambda K: np.where(np.eye(40) > 0, np.inf, K), "inf"),
    "one item": (lambda K: K[:1, :1], "minimum of 2"),
    "sparse": (sparse.csr_matrix, "dense kernel matrix.*toarray"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("center", [True, False])
def test_broken_kernel_matrices_are_clear_errors(name, center):
    change, match = BROKEN[name]
    K = gaussian(rows(), rows(), 0.2)
    with pytest.raises(ValueError, match=match):
        KernelPCA(2, kernel="precomputed", center=center).fit(change(K))


def test_new_kernel_values_of_the_wrong_kind_are_clear_errors():
    K = gaussian(rows(), rows(), 0.2)
    model = KernelPCA(2, kernel="precomputed").fit(K)
    with pytest.raises(ValueError, match=r"5.*40"):
        model.transform(K[:3, :5])
    with pytest.raises(NonFiniteError, match="NaN"):
        model.transform(np.where(np.eye(40) > 0, np.nan, K))
    with pytest.raises(ValueError, match="diagonal"):
        model.novelty(K[:3])
    for method in (model.inverse_transform, model.reconstruct, model.denoise):
        with pytest.raises(NotFittedError, match="preimage_weights"):
            method(np.zeros((1, 2)) if method == model.inverse_transform else K)
    for options in ({"eigen_solver": "nystrom"}, {"fit_inverse_transform": True}):
        with pytest.raises(ValueError, match=r"kernel matrix|precomputed"):
            KernelPCA(2, kernel="precomputed", **options).fit(K)


def test_constants_of_rows_are_centred_away():
    # scikit-learn takes such a matrix; uncentred it is not a kernel
    X, new = rows(), rows(9, seed=1)
    K, k = gaussian(X, X, 0.2), gaussian(new, X, 0.2)
    shift = np.arange(40.0)
    expected = KernelPCA(3, kernel="precomputed").fit(K)
    for moved, rows_moved in ((K + shift[:, None], k + 5), (K + shift, k + shift)):
        model = KernelPCA(3, kernel="precomputed").fit(moved)
        assert_close(model.eigenvalues_, expected.eigenvalues_, "covariance")
        assert_close(model.transform(rows_moved), expected.transform(k), "vector")
        with pytest.raises(ValueError, match="symmetric"):
            KernelPCA(3, kernel="precomputed", center=False).fit(moved)


# --- parameters ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "q", [0, -1, "abc", 1.5, 1.0, 0.0, True, np.True_, [2], float("nan"), float("inf"), 2j]
)
def test_nonsense_n_components_is_named(q):
    with pytest.raises(ValueError, match="n_components"):
        KernelPCA(q, kernel="rbf").fit(rows())


@pytest.mark.parametrize("gamma", [0, -1.0, float("nan"), float("inf"), "wide", True, [1.0]])
@pytest.mark.parametrize("kernel", ["rbf", "poly", "laplacian"])
def test_nonsense_gamma_is_named(gamma, kernel):
    with pytest.raises(ValueError, match="gamma"):
        KernelPCA(2, kernel=kernel, gamma=gamma).fit(rows())


@pytest.mark.parametrize(
    "option",
    [
        {"kernel": "nonsense"},
        {"kernel": None},
        {"kernel": RBF},
        {"kernel_params": "abc"},
        {"kernel_params": [1]},
        {"degree": 0, "kernel": "poly"},
        {"degree": "a", "kernel": "poly"},
        {"coef0": "a", "kernel": "poly"},
        {"eigen_solver": "nonsense"},
        {"landmarks": "nonsense"},
        {"preimage": "nonsense"},
        {"n_landmarks": 0},
        {"n_landmarks": 2.5},
        {"tol": -1.0},
        {"tol": float("nan")},
        {"alpha": -1.0},
        {"memory_limit": -1},
        {"max_iter": 0},
        {"dtype": "float16"},
        {"center": "yes"},
        {"remove_zero_eig": 1},
        {"fit_inverse_transform": None},
        {"random_state": "seed"},
    ],
    ids=str,
)
def test_nonsense_parameters_are_named(option):
    name = next(iter(option))
    with pytest.raises(ValueError, match=name):
        KernelPCA(2, **option).fit(rows())


def test_unknown_kernel_params_are_named():
    with pytest.raises(ValueError, match="width"):
        KernelPCA(2, kernel="rbf", kernel_params={"width": 1.0}).fit(rows())


@pytest.mark.parametrize("kernel", ["laplacian", "cosine", "chi2"])
def test_kernels_without_sparse_rows_say_so(kernel):
    with pytest.raises(ValueError, match="toarray"):
        KernelPCA(2, kernel=kernel).fit(sparse.csr_matrix(np.abs(rows())))


@pytest.mark.parametrize("method", [
    "transform", "novelty", "is_novel", "inverse_transform", "denoise", "reconstruct", "preimages",
    "preimage_weights",
])  # fmt: skip
def test_before_fit_is_not_fitted(method):
    with pytest.raises(NotFittedError):
        getattr(KernelPCA(2), method)(rows())


@pytest.mark.parametrize("method", ["novelty_threshold", "get_feature_names_out"])
def test_before_fit_without_data_is_not_fitted(method):
    with pytest.raises(NotFittedError):
        getattr(KernelPCA(2), method)()


# --- scales --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["linear", "poly"])
@pytest.mark.parametrize("solver", ["dense", "krylov", "nystrom", "cholesky"])
def test_overflow_is_an_error(kernel, solver):
    with pytest.raises(ScaleError, match="Divide"):
        KernelPCA(2, kernel=kernel, eigen_solver=solver, n_landmarks=20).fit(rows() * 1e200)


@pytest.mark.parametrize("solver", ["nystrom", "cholesky"])
def test_overflow_beyond_the_sample_is_an_error(solver, monkeypatch):
    X = rows()
    monkeypatch.setattr(kernel_models, "SAMPLE_ROWS", 4)
    model = KernelPCA(2, eigen_solver=solver, n_landmarks=2, tol=0.9)
    seen = SlicedTable(X, part_rows=10).sample(8, seed=0)
    unseen = ~np.isin(X[:, 0], seen[:, 0])
    with pytest.raises(ScaleError, match="Divide"):
        model.fit(SlicedTable(np.where(unseen[:, None], 1e160 * X, X), part_rows=10))
    with pytest.raises(ScaleError, match="Divide"):  # of rows that count so often
        KernelPCA(2, eigen_solver=solver).fit(X * 1e150, sample_weight=np.full(40, 1e9))


@pytest.mark.parametrize("scale", [1e-100, 1e100])
@pytest.mark.parametrize("solver", ["dense", "krylov", "nystrom", "cholesky"])
def test_extreme_scales_are_right(scale, solver):
    X = rows()
    plain = KernelPCA(2, eigen_solver=solver).fit(X)
    model = KernelPCA(2, eigen_solver=solver).fit(X * scale)
    assert_close(model.explained_variance_ratio_, plain.explained_variance_ratio_, "covariance")
    assert_close(model.transform(X * scale) / scale, plain.transform(X), "vector")


def test_float32_beyond_its_range_is_an_error():
    with pytest.raises(ScaleError, match="float32"):
        KernelPCA(2).fit((rows() * 1e25).astype(np.float32))


def test_incomplete_rows_are_completed_by_weight():
    X, first = rows(), np.arange(40) < 20
    X[np.random.default_rng(1).random(X.shape) < 0.15] = np.nan
    X[~first] += 10.0
    table = InMemoryTable(X, np.where(first, 1.0, 1e-6))
    inputs = kernel_operator(table, KernelChoice("rbf", 0.2), KernelOptions())[1]
    np.testing.assert_allclose(inputs.mean, np.nanmean(X[first], axis=0), atol=0.5)


def test_weights_count_where_single_precision_is_not_enough():
    X, w = rows(80), np.random.default_rng(1).uniform(0, 3, 80)
    options = {"kernel": "rbf", "gamma": 0.02, "eigen_solver": "dense"}
    exact, loose = (KernelPCA(30, **options, tol=tol).fit(X, sample_weight=w) for tol in (0, 1e-4))
    np.testing.assert_allclose(loose.eigenvalues_, exact.eigenvalues_, rtol=1e-4)


def test_squared_shares_of_incomplete_rows_are_of_the_kernel_that_was_fitted():
    X = rows()
    X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    model = KernelPCA(kernel="rbf", gamma=0.2).fit(X)
    np.testing.assert_allclose(model.squared_eigenvalue_ratio().sum(), 1.0)
