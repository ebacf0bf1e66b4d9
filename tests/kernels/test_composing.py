"""Kernels as expressions: + a number, powers, functions of tables, `kernel__gamma`."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dualpca import DualPPCA, KernelPCA, MixturePPCA, load
from dualpca.errors import ModelFileError
from dualpca.kernels import RBF, Constant, Function, Linear, Matern, Polynomial, Power, Scaled, Sum

X = np.random.default_rng(0).normal(size=(9, 3))
Y = np.random.default_rng(1).normal(size=(4, 3))

# --- k + c and k ** p ----------------------------------------------------------------------------


def test_number_is_added_as_a_constant_kernel():
    assert RBF() + 0.5 == 0.5 + RBF() == Sum(RBF(), Constant(0.5))
    assert np.array_equal((RBF(gamma=0.3) + 0.5)(X, Y), RBF(gamma=0.3)(X, Y) + 0.5)


def test_sum_of_a_list_of_kernels():
    assert sum([RBF(), Linear()]) == RBF() + Linear()


@pytest.mark.parametrize("other", ["rbf", None, np.nan, [1.0]])
def test_what_is_no_kernel_and_no_number_is_refused(other):
    for combine in (lambda: RBF() + other, lambda: RBF() * other):
        with pytest.raises(TypeError):
            combine()


def test_negative_constant_is_refused():
    with pytest.raises(ValueError, match="value of Constant must be positive, got -1"):
        RBF() + (-1)


@pytest.mark.parametrize("kernel", [Linear(), RBF(gamma=0.3), Matern(nu=1.5), Linear() + 1.0])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_power_is_the_repeated_product(kernel, p):
    power, product = kernel**p, kernel
    for _ in range(p - 1):
        product = product * kernel
    C = np.random.default_rng(2).normal(size=(9, 4))
    np.testing.assert_allclose(power(X, Y), product(X, Y), rtol=1e-13)
    np.testing.assert_allclose(power.diag(X), product.diag(X), rtol=1e-13)
    np.testing.assert_allclose(power.pull(X, Y, C), product.pull(X, Y, C), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(power.diag_gradient(X), product.diag_gradient(X), atol=1e-12)


def test_power_of_linear_is_polynomial():
    np.testing.assert_allclose(
        ((Linear() + 1.0) ** 3)(X, Y), Polynomial(degree=3, gamma=1.0)(X, Y), rtol=1e-13
    )


def test_first_power_is_the_kernel_itself():
    kernel = RBF()
    assert kernel**1 is kernel


@pytest.mark.parametrize("p", [0, -1, 1.5, np.inf])
def test_other_powers_are_refused(p):
    with pytest.raises(ValueError, match="whole number from 1"):
        RBF() ** p


def test_expectations_of_a_power():
    """A row with a missing value: the power of RBF has the expectation of the product."""
    rows = X.copy()
    rows[2, 1] = np.nan
    a, b = (KernelPCA(2, kernel=k).fit(rows) for k in (RBF(gamma=0.2) ** 2, RBF(gamma=0.4)))
    np.testing.assert_allclose(a.eigenvalues_, b.eigenvalues_, rtol=1e-10)


def test_random_features_of_a_power_have_the_spectrum_of_the_product():
    big = np.random.default_rng(3).normal(size=(400, 2))
    options = {"eigen_solver": "fourier", "n_landmarks": 2000}
    features = KernelPCA(3, kernel=RBF(gamma=0.1) ** 2, **options).fit(big)
    exact = KernelPCA(3, kernel=RBF(gamma=0.2)).fit(big)
    np.testing.assert_allclose(features.eigenvalues_, exact.eigenvalues_, rtol=0.1)


def test_model_of_a_power_survives_a_file(tmp_path):
    model = KernelPCA(2, kernel=(RBF(gamma=0.3) + 0.5) ** 2).fit(X)
    model.save(tmp_path / "power.dpca")
    again = load(tmp_path / "power.dpca")
    assert isinstance(again.kernel, Power)
    assert np.array_equal(again.transform(Y), model.transform(Y))


# --- functions of two rows, or of two tables -----------------------------------------------------


def rows_only(x, y):
    assert x.ndim == y.ndim == 1
    return float(np.exp(-np.sum((x - y) ** 2)))


def tables_only(A, B):
    assert A.ndim == B.ndim == 2
    return np.exp(-np.sum((A[:, None] - B[None]) ** 2, axis=-1))


@pytest.mark.parametrize(
    ("function", "tables"),
    [
        (rows_only, False),
        (tables_only, True),
        (rbf_kernel, True),
        (np.dot, False),  # of tables of three columns it would be a product of matrices
        (lambda x, y: x @ y.T, True),
        (lambda x, y: np.minimum(x, y).sum(), False),
    ],
)
def test_function_of_tables_is_told_from_one_of_rows(function, tables):
    kernel = Function(function)
    assert kernel._takes_rows(X) is tables
    slow = [[Function(function, vectorized=tables)(x[None], y[None])[0, 0] for y in Y] for x in X]
    np.testing.assert_allclose(kernel(X, Y), slow, rtol=1e-13)
    np.testing.assert_allclose(kernel.diag(X), np.diag(kernel(X, X)), rtol=1e-13)


def test_function_of_tables_is_called_once_for_a_block():
    calls = []

    def counted(A, B):
        calls.append(A.shape)
        return rbf_kernel(A, B, gamma=0.5)

    Function(counted, vectorized=True)(X, Y)
    assert calls == [(9, 3)]


def test_kernel_pca_of_a_function_of_tables_is_that_of_the_kernel():
    own = KernelPCA(2, kernel="laplacian", gamma=0.3).fit(X)
    given = KernelPCA(2, kernel=laplacian_kernel, kernel_params={"gamma": 0.3}).fit(X)
    np.testing.assert_allclose(given.transform(Y), own.transform(Y), atol=1e-10)


def test_function_with_a_result_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"finite numbers of shape \(9, 4\).*vectorized=False"):
        Function(lambda A, B: np.zeros(3), vectorized=True)(X, Y)


def test_function_is_saved_by_name_and_given_again(tmp_path):
    model = KernelPCA(2, kernel=laplacian_kernel, kernel_params={"gamma": 0.3}).fit(X)
    with pytest.raises(ModelFileError, match="functions=True"):
        model.save(tmp_path / "model.dpca")
    model.save(tmp_path / "model.dpca", functions=True)
    with pytest.raises(ModelFileError, match=r"pairwise:laplacian_kernel.*functions=\[it\]"):
        load(tmp_path / "model.dpca")
    with pytest.raises(ModelFileError, match="laplacian_kernel"):
        load(tmp_path / "model.dpca", functions=[rbf_kernel])
    again = load(tmp_path / "model.dpca", functions=[rbf_kernel, laplacian_kernel])
    assert again.kernel is laplacian_kernel
    assert np.array_equal(again.transform(Y), model.transform(Y))


def test_function_without_a_name_cannot_be_saved(tmp_path):
    model = KernelPCA(2, kernel=lambda x, y: float(x @ y)).fit(X)
    with pytest.raises(ModelFileError, match="defined in a module"):
        model.save(tmp_path / "model.dpca", functions=True)
    with pytest.raises(TypeError, match="defined in modules"):
        load(tmp_path / "model.dpca", functions=[model.kernel])


# --- kernel__gamma -------------------------------------------------------------------------------


def test_parameters_of_kernels_have_names():
    model = KernelPCA(2, kernel=2.0 * RBF(gamma=0.5) + Matern(length_scale=3.0))
    assert model.get_params()["kernel__left__kernel__gamma"] == 0.5
    model.set_params(kernel__left__kernel__gamma=0.1, kernel__right__length_scale=1.0)
    assert model.kernel == 2.0 * RBF(gamma=0.1) + Matern(length_scale=1.0)


def test_setting_a_parameter_leaves_the_kernel_that_was_given():
    kernel = RBF(gamma=0.5)
    model = DualPPCA(2, kernel=kernel).set_params(kernel__gamma=0.1, n_components=3)
    assert (kernel.gamma, model.kernel.gamma, model.n_components) == (0.5, 0.1, 3)


def test_kernel_and_its_parameter_at_once():
    model = KernelPCA(2, kernel="rbf").set_params(
        kernel=Scaled(2.0, RBF()), kernel__kernel__gamma=7.0
    )
    assert model.kernel == Scaled(2.0, RBF(gamma=7.0))


def test_unknown_parameter_of_a_kernel_is_named():
    with pytest.raises(ValueError, match="degree"):
        KernelPCA(2, kernel=RBF()).set_params(kernel__degree=2)
    with pytest.raises(ValueError, match="gamma"):
        KernelPCA(2, kernel="rbf").set_params(kernel__gamma=2.0)


@pytest.mark.parametrize("model", [KernelPCA(2), DualPPCA(2), MixturePPCA(1, 1)])
def test_clone_keeps_the_kernel(model):
    model.set_params(kernel=RBF(gamma=0.5, on=[0, 2]))
    assert clone(model).kernel == model.kernel


def test_grid_search_over_a_kernel_in_a_pipeline():
    pipeline = make_pipeline(StandardScaler(), DualPPCA(2, kernel=RBF(gamma=0.5)))
    grid = {"dualppca__kernel__gamma": [0.01, 0.1, 1.0]}
    rows = np.random.default_rng(5).normal(size=(40, 3))

    def score(found, rows, y=None):
        return -float(np.mean((found[-1].transform(rows)) ** 2))

    search = GridSearchCV(pipeline, grid, scoring=score, cv=2).fit(rows)
    assert search.best_estimator_[-1].kernel.gamma == search.best_params_["dualppca__kernel__gamma"]
    assert pipeline[-1].kernel.gamma == 0.5
