"""What every kernel must be, run over the registry and its algebra."""

import numpy as np
import pytest

from dualpca.kernels import KERNELS, RBF, Linear
from dualpca.representations import Dual
from dualpca.solvers import solve
from tests.tolerances import assert_close

COMPOSED = {
    "sum": Linear() + RBF(gamma=0.3),
    "product": Linear() * RBF(length_scale=2.0),
    "scaled": 2.5 * RBF(),
    "nested": (Linear() + 0.5 * RBF()) * RBF(gamma=0.1),
}
EVERY = {name: kernel() for name, kernel in KERNELS.items()} | COMPOSED


@pytest.fixture(params=EVERY, name="kernel")
def every_kernel(request):
    return EVERY[request.param]


@pytest.fixture
def points():
    rng = np.random.default_rng(0)
    return rng.standard_normal((12, 3)), rng.standard_normal((7, 3))


def test_kernel_is_symmetric_and_positive_semi_definite(kernel, points):
    X, _ = points
    K = kernel(X, X)
    assert_close(K, K.T, "exact")
    assert np.linalg.eigvalsh(K).min() >= -1e-12 * np.abs(K).max()


def test_kernel_has_its_own_diagonal(kernel, points):
    X, _ = points
    assert_close(kernel.diag(X), np.diag(kernel(X, X)), "exact")


def test_kernel_matrix_is_its_function_of_pairs(kernel, points):
    X, Y = points
    one_by_one = [[float(kernel(x[None, :], y[None, :])[0, 0]) for y in Y] for x in X]
    assert_close(kernel(X, Y), one_by_one, "vector")


def test_kernel_gradient_is_the_finite_difference(kernel, points):
    X, Y = points
    x, h = X[0], 1e-5
    steps = h * np.eye(3)
    central = [(kernel((x + s)[None], Y) - kernel((x - s)[None], Y))[0] / (2 * h) for s in steps]
    np.testing.assert_allclose(kernel.gradient(x, Y), np.transpose(central), rtol=1e-7, atol=1e-8)


def test_kernel_leaves_its_arguments_alone(kernel, points):
    X, Y = points
    before = X.tobytes(), Y.tobytes()
    kernel(X, Y), kernel.diag(X), kernel.gradient(X[0], Y)
    assert before == (X.tobytes(), Y.tobytes())


def test_kernel_is_the_same_in_every_library(kernel, points, backend):
    X, Y = points
    there = kernel(backend.asarray(X), backend.asarray(Y))
    assert backend.owns(there)
    assert_close(backend.numpy(there), kernel(X, Y), "vector")


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_dual_operator_is_the_centred_kernel_matrix(kernel, points, center, weighted):
    X, _ = points
    w = np.random.default_rng(1).uniform(0.5, 2, 12) if weighted else np.ones(12)
    H = np.eye(12) - np.outer(np.ones(12), w) / w.sum() if center else np.eye(12)
    root = np.diag(np.sqrt(w))
    A = root @ H @ kernel(X, X) @ H.T @ root
    dual = Dual(X, kernel, w if weighted else None, center=center)
    assert_close(dual.dense(), A, "vector")
    assert_close(dual @ np.eye(12), A, "vector")
    assert_close(dual.trace, np.trace(A), "vector")
    assert_close(dual.diag(), np.diag(A), "vector")
    assert dual.shape == (12, 12)
    assert dual.dim == 12


def test_dual_projection_of_the_training_points_is_their_eigenvectors(kernel, points):
    X, _ = points
    dual = Dual(X, kernel)
    spectrum = solve(dual, 3, "dense")
    Y, residual = dual.project(spectrum, X)
    assert_close(Y, spectrum.vectors * np.sqrt(spectrum.values), "residual")
    assert np.all(residual >= 0)


@pytest.mark.parametrize("arguments", [{"gamma": -1.0}, {"length_scale": 0.0}, {"gamma": 0.0}])
def test_nonsense_widths_are_refused(arguments):
    with pytest.raises(ValueError, match="positive"):
        RBF(**arguments)


def test_two_widths_are_refused():
    with pytest.raises(ValueError, match="not both"):
        RBF(gamma=1.0, length_scale=1.0)


def test_negative_factor_is_refused():
    with pytest.raises(ValueError, match="positive"):
        -1.0 * RBF()


def test_a_kernel_is_known_by_its_definition():
    assert {"linear", "rbf"} <= set(KERNELS)
