"""Whatever comes to DualPPCA: a clear error or the right answer, no NaN, no changed input."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import rbf_kernel

from dualpca import DualPPCA
from dualpca.errors import DegenerateError, ScaleError, SpectrumWarning
from dualpca.kernels import Linear
from dualpca.models.kernel import check_variance
from dualpca.operators import Dual
from tests.models.test_dual import GAMMA, rows
from tests.test_bad_input import WRONG
from tests.tolerances import assert_close

# --- not a table of finite numbers ------------------------------------------------------


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("kernel", ["rbf", "linear", "laplacian"])
def test_not_a_table_is_a_clear_error(name, kernel):
    X, message = WRONG[name]
    with pytest.raises((ValueError, TypeError), match=message):
        DualPPCA(1, kernel=kernel).fit(X)


@pytest.mark.parametrize(
    "name", ["text", "infinity", "complex", "one dimension", "three dimensions"]
)
@pytest.mark.parametrize(
    "method", ["transform", "posterior", "score_samples", "reconstruct", "reconstruct_kernel"]
)
def test_not_a_table_is_a_clear_error_after_fit_too(method, name):
    X, message = WRONG[name]
    with pytest.raises((ValueError, TypeError), match=message):
        getattr(DualPPCA(1).fit(rows()), method)(X)


def test_nan_is_refused_where_there_is_no_expectation():
    X = rows()
    X[3, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        DualPPCA(1, kernel="laplacian").fit(X)
    with pytest.raises(ValueError, match="exact solver"):
        DualPPCA(1, eigen_solver="nystrom").fit(X)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # of the rule for gamma
@pytest.mark.parametrize("scale", [1e-200, 1e-100, 1e100, 1e200])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_extreme_scale_is_an_error_or_right(scale, kernel):
    X = rows()
    try:
        model = DualPPCA(2, kernel=kernel, gamma="scale").fit(scale * X)
    except ValueError as error:
        assert any(
            word in str(error) for word in ("overflow", "variance", "large", "scale", "gamma")
        )
        return
    expected = DualPPCA(2, kernel=kernel, gamma="scale").fit(X)
    assert_close(model.transform(scale * X), expected.transform(X), "vector")


@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly", "laplacian"])
@pytest.mark.parametrize("solver", ["auto", "krylov", "nystrom"])
@pytest.mark.parametrize("value", [0.0, 7.3, 1e-3])
def test_constant_rows_are_an_error(kernel, solver, value):
    with pytest.raises(DegenerateError, match="no variance"):
        DualPPCA(1, kernel=kernel, eigen_solver=solver).fit(np.full((40, 3), value))


def test_one_row_is_an_error():
    with pytest.raises(ValueError, match="sample"):
        DualPPCA(1).fit(rows(1))


def test_sparse_rows_are_the_dense_ones():
    X = np.where(rows() > 0.5, rows(), 0.0)
    dense, thin = DualPPCA(2, gamma=GAMMA).fit(X), DualPPCA(2, gamma=GAMMA).fit(sparse.csr_array(X))
    for name in ("transform", "score_samples", "reconstruct_kernel"):
        expected = getattr(dense, name)(X)
        for new in (sparse.csr_array(X), sparse.csc_array(X), X):
            assert_close(getattr(thin, name)(new), expected, "vector")
    draws = [m.sample_kernel(3, random_state=0) for m in (dense, thin)]
    assert_close(draws[1], draws[0], "residual")


def test_items_of_any_kind():
    words = ["abc", "abd", "bcd", "xyz", "xyw", "yzw"]

    def shared(a, b):
        return float(len(set(a) & set(b)))

    model = DualPPCA(1, kernel=shared).fit(words)
    h = model.transform(words)[:, 0]
    assert np.all(h[:3] * h[0] > 0) and np.all(h[3:] * h[0] < 0)
    assert np.all(np.isfinite(model.score_samples(words)))
    assert model.sample_kernel(2, random_state=0).shape == (2, 6)


# --- what is refused --------------------------------------------------------------------

WRONG_KERNELS = {
    "not square": (np.ones((5, 4)), "square"),
    "asymmetric": (np.triu(np.ones((5, 5))), "symmetric"),
    "NaN": (np.where(np.eye(5) > 0, np.nan, 1.0), "NaN"),
    "infinite": (np.where(np.eye(5) > 0, np.inf, 1.0), "[Ii]nf"),
    "constant": (np.ones((5, 5)), "no variance"),
}


@pytest.mark.parametrize("name", WRONG_KERNELS)
@pytest.mark.parametrize("method", ["closed", "em"])
def test_wrong_kernel_matrices_are_clear_errors(name, method):
    K, message = WRONG_KERNELS[name]
    with pytest.raises(ValueError, match=message):
        DualPPCA(1, kernel="precomputed", method=method).fit(K)


@pytest.mark.parametrize("q", [2, 0.5, None])
def test_indefinite_kernels_are_a_warning_and_finite(q):
    K = np.random.default_rng(0).standard_normal((20, 20))
    K = K + K.T
    with pytest.warns(SpectrumWarning, match="indefinite"):
        model = DualPPCA(q, kernel="precomputed").fit(K)
    assert model.noise_variance_ >= 0 and np.all(model.explained_variance_ > 0)
    assert model.explained_variance_ratio_.sum() <= 1 + 1e-12
    assert np.all(np.isfinite(model.transform(K)))


def test_kernel_values_of_the_wrong_width_state_both():
    K = rbf_kernel(rows(), rows(), GAMMA)
    model = DualPPCA(2, kernel="precomputed").fit(K)
    for call in (model.transform, model.posterior, model.reconstruct_kernel):
        with pytest.raises(ValueError, match=r"24.*25|25.*24"):
            call(K[:, :24])
    with pytest.raises(ValueError, match="25"):
        model.posterior_kernel(K[:, :24])
    with pytest.raises(ValueError, match="2 columns"):
        model.sample_kernel_given(np.ones((3, 4)))
    with pytest.raises(ValueError, match="2 columns"):
        DualPPCA(2).fit(rows()).inverse_transform(np.ones((3, 4)))


NONSENSE = {
    "n_components": [0, -1, 1.5, "many", True],
    "noise_variance": [-1.0, np.nan, np.inf, "small"],
    "noise_dim": [0, 2.5, "n"],
    "method": ["variational"],
    "eigen_solver": ["lapack"],
    "landmarks": ["best"],
    "tol": [-1.0],
    "max_iter": [0],
    "center": ["yes"],
    "dtype": ["int"],
    "memory_limit": [-1],
    "n_landmarks": [0],
    "preimage": [],
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_options_are_named(name):
    for value in NONSENSE[name]:
        with pytest.raises(ValueError, match=name):
            DualPPCA(**{name: value}).fit(rows())


def test_impossible_requests_are_errors():
    X = rows(10)
    with pytest.raises(ValueError, match="at most 9"):
        DualPPCA(11, gamma=1.0).fit(X)
    with pytest.raises(ValueError, match="noise_variance"):
        DualPPCA(gamma=1.0, noise_variance=50.0).fit(X)
    with pytest.raises(ValueError, match="dim"):
        DualPPCA(1, gamma=1.0, noise_dim=2).fit(X)
    with pytest.raises(ValueError, match="two rows"):
        DualPPCA(1).fit(X, sample_weight=np.eye(10)[0])
    with pytest.raises(ValueError, match="kernel matrix"):
        DualPPCA(1, kernel="precomputed").fit(X @ X.T, sample_weight=np.arange(10))
    with pytest.raises(ValueError, match="exact solver"):
        DualPPCA(1, kernel="precomputed", eigen_solver="nystrom").fit(X @ X.T)
    model = DualPPCA(1).fit(X)
    for bad in (0, 1.5, True):
        with pytest.raises(ValueError, match="n_samples"):
            model.sample_kernel(bad)
    for bad in (0.0, 1.0, -1):
        with pytest.raises(ValueError, match="tol"):
            model.sample_kernel(2, tol=bad)
    with pytest.raises(ValueError, match="NaN"):
        model.inverse_transform(np.array([[np.nan]]))


@pytest.mark.parametrize("name", ["transform", "posterior", "score_samples", "reconstruct_kernel"])
def test_before_fit_is_not_fitted(name):
    with pytest.raises(NotFittedError):
        getattr(DualPPCA(), name)(rows())
    for method in ("sample", "sample_kernel", "to_primal"):
        with pytest.raises(NotFittedError):
            getattr(DualPPCA(), method)()


def test_input_is_never_changed_or_shared():
    X = rows()
    before = X.copy()
    model = DualPPCA(2, gamma=GAMMA).fit(X)
    expected = model.transform(before)
    for call in (model.transform, model.score_samples, model.reconstruct, model.reconstruct_kernel):
        call(X)
    assert np.array_equal(X, before)
    X[:] = 0
    assert np.array_equal(model.transform(before), expected)
    assert model.sample_kernel(1, random_state=0).shape == (1, 25)


def test_a_constant_column_changes_nothing():
    X = rows()
    wide = np.column_stack([X, np.full(25, 7.0)])
    one, other = DualPPCA(2, gamma=GAMMA).fit(X), DualPPCA(2, gamma=GAMMA).fit(wide)
    assert_close(other.transform(wide), one.transform(X), "vector")


@pytest.mark.parametrize("center", [True, False])
def test_more_variance_than_numbers_can_hold_is_refused(center):
    with np.errstate(over="ignore", invalid="ignore"):
        operator = Dual(rows() * 1e200, Linear(), center=center)
    with pytest.raises(ScaleError, match="overflows"):
        check_variance(operator)
