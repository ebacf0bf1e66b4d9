"""What every kernel must be, run over the registry and its algebra."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from sklearn.gaussian_process import kernels as gp

from dualpca import kernels
from dualpca.kernels import (
    KERNELS,
    RBF,
    ArcCosine,
    FromSklearn,
    Function,
    Laplacian,
    Linear,
    Matern,
    Periodic,
    Product,
    Scaled,
)
from dualpca.operators.dual import Dual
from dualpca.solvers import solve
from tests.tolerances import assert_close

COMPOSED = {
    "sum": Linear() + RBF(gamma=0.3),
    "product": Linear() * RBF(length_scale=2.0),
    "scaled": 2.5 * RBF(),
    "nested": (Linear() + 0.5 * RBF()) * RBF(gamma=0.1),
    "widths": RBF(length_scale=[0.5, 1.0, 2.0]),
    "rough": Matern(nu=0.5, length_scale=[0.5, 1.0, 2.0]),
    "smooth": Matern(nu=2.5, length_scale=0.7),
    "steps": ArcCosine(order=0),
    "parabolas": ArcCosine(order=2),
    "clock": Periodic(periodicity=1.3, length_scale=0.8, on=[1]),
    "columns": RBF(gamma=0.4, on=[2, 0]) * Laplacian(gamma=0.5, on=[1]),
    "inner columns": Product(Matern(on=[1]), Linear(), on=[0, 2]),
    "function": Function(lambda x, y, power: float(x @ y) ** power, {"power": 2}),
    "wrapped": FromSklearn(gp.Matern(nu=1.0) + gp.WhiteKernel()),
}
EVERY = {name: kernel() for name, kernel in KERNELS.items()} | COMPOSED


@pytest.fixture(params=EVERY, name="kernel")
def every_kernel(request):
    return EVERY[request.param]


@pytest.fixture
def points(kernel):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((12, 3)), rng.standard_normal((7, 3))
    return (np.abs(X), np.abs(Y)) if kernel.nonnegative else (X, Y)


def test_kernel_is_symmetric_and_positive_semi_definite(kernel, points):
    X, _ = points
    K = kernel(X, X)
    assert_close(K, K.T, "exact")
    if kernel.definite:
        assert np.linalg.eigvalsh(K).min() >= -1e-12 * np.abs(K).max()


def test_kernel_has_its_own_diagonal(kernel, points):
    X, _ = points
    assert_close(kernel.diag(X), np.diag(kernel(X, X)), "exact")


def test_kernel_matrix_is_its_function_of_pairs(kernel, points):
    X, Y = points
    one_by_one = [[float(kernel(x[None, :], y[None, :])[0, 0]) for y in Y] for x in X]
    assert_close(kernel(X, Y), one_by_one, "vector")


def central(f, x, h=1e-5):
    """Return the derivatives of f at x by central differences, last axis last."""
    return np.stack([(f(x + s) - f(x - s)) / (2 * h) for s in h * np.eye(x.size)], axis=-1)


def test_kernel_gradient_is_the_finite_difference(kernel, points):
    X, Y = points
    found = central(lambda x: kernel(x[None], Y)[0], X[0])
    np.testing.assert_allclose(kernel.gradient(X[0], Y), found, rtol=1e-7, atol=1e-8)


def test_kernel_pull_is_the_weighted_sum_of_gradients(kernel, points):
    X, Y = points
    C = np.random.default_rng(1).standard_normal((12, 7))
    slow = [c @ kernel.gradient(x, Y) for x, c in zip(X, C, strict=True)]
    assert_close(kernel.pull(X, Y, C), slow, "vector")


def test_kernel_gradient_of_the_diagonal_is_the_finite_difference(kernel, points):
    X, _ = points
    found = [central(lambda x: kernel.diag(x[None])[0], x) for x in X]
    np.testing.assert_allclose(kernel.diag_gradient(X), found, rtol=1e-7, atol=1e-8)


def test_kernel_gradient_at_a_training_point_is_finite(kernel, points):
    X, _ = points
    assert np.isfinite(kernel.gradient(X[0], X)).all()


def test_kernel_on_some_columns_sees_and_moves_only_them(kernel, points):
    X, Y = points
    columns = [4, 1, 3]
    part = Scaled(1.0, kernel, on=columns) if kernel.on else replace(kernel, on=columns)
    wide, other = np.full((12, 5), 9.0), np.full((7, 5), 9.0)
    wide[:, columns], other[:, columns] = X, Y
    assert_close(part(wide, other), kernel(X, Y), "exact")
    assert_close(part.diag(wide), kernel.diag(X), "exact")
    C = np.ones((12, 7))
    G = part.pull(wide, other, C)
    assert_close(G[:, columns], kernel.pull(X, Y, C), "vector")
    assert not G[:, [0, 2]].any()
    with pytest.raises(ValueError, match="columns below 3"):
        part(X, Y)


def test_kernel_adds_multiplies_and_scales(kernel, points):
    X, Y = points
    K, L = kernel(X, Y), RBF(gamma=0.2)(X, Y)
    assert_close((kernel + RBF(gamma=0.2))(X, Y), K + L, "exact")
    assert_close((kernel * RBF(gamma=0.2))(X, Y), K * L, "exact")
    assert_close((3 * kernel)(X, Y), 3 * K, "exact")
    assert (kernel + RBF()).definite == kernel.definite


def test_kernel_keeps_single_precision(kernel, points):
    X, Y = (A.astype(np.float32) for A in points)
    C = np.ones((12, 7), dtype=np.float32)
    results = kernel(X, Y), kernel.diag(X), kernel.pull(X, Y, C), kernel.diag_gradient(X)
    assert {A.dtype for A in results} == {np.dtype(np.float32)}
    assert_close(results[0], kernel(*points), "vector", np.float32)


def test_kernel_of_one_row_and_one_column(kernel, points):
    X, Y = points
    K = kernel(X[:1], Y[:1])
    assert K.shape == (1, 1)
    assert_close(K, kernel(X, Y)[:1, :1], "vector")


def test_kernel_can_be_told_apart_hashed_printed_and_stored(kernel):
    assert kernel == replace(kernel)
    assert hash(kernel) == hash(replace(kernel))
    assert kernel != 2 * kernel
    if not isinstance(kernel, Function):  # a lambda cannot be stored
        assert pickle.loads(pickle.dumps(kernel)) == kernel
    if not isinstance(kernel, Function | FromSklearn):  # scikit-learn prints three digits
        assert eval(repr(kernel), vars(kernels)) == kernel


def test_kernel_leaves_its_arguments_alone(kernel, points):
    X, Y = points
    before = X.tobytes(), Y.tobytes()
    kernel(X, Y), kernel.diag(X), kernel.gradient(X[0], Y)
    assert before == (X.tobytes(), Y.tobytes())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_kernel_is_the_same_in_every_library(kernel, points, backend, dtype):
    X, Y = (A.astype(dtype) for A in points)
    C = np.random.default_rng(1).standard_normal((12, 7)).astype(dtype)
    there = [backend.asarray(A) for A in (X, Y, C)]
    if isinstance(kernel, FromSklearn) and backend.name != "numpy":
        with pytest.raises(TypeError, match="NumPy"):
            kernel(*there[:2])
        return
    results = {
        "values": (kernel(*there[:2]), kernel(X, Y)),
        "diagonal": (kernel.diag(there[0]), kernel.diag(X)),
        "pull": (kernel.pull(*there), kernel.pull(X, Y, C)),
        "own": (kernel.diag_gradient(there[0]), kernel.diag_gradient(X)),
    }
    for found, here in results.values():
        assert backend.owns(found)
        assert backend.numpy(found).dtype == dtype
        assert_close(backend.numpy(found), here, "vector", dtype)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_dual_operator_is_the_centred_kernel_matrix(kernel, points, center, weighted):
    X, _ = points
    w = np.random.default_rng(1).uniform(0.5, 2, 12) if weighted else np.ones(12)
    H = np.eye(12) - np.outer(np.ones(12), w) / w.sum() if center else np.eye(12)
    root = np.diag(np.sqrt(w))
    A = root @ H @ kernel(X, X) @ H.T @ root
    dual = Dual(X, kernel, w if weighted else None, center=center)
    size = np.abs(kernel(X, X)).max()  # a constant kernel is centred to nothing
    assert_close(dual.dense(), A, "vector", scale=size)
    assert_close(dual @ np.eye(12), A, "vector", scale=size)
    assert_close(dual.trace, np.trace(A), "vector", scale=size)
    assert_close(dual.diag(), np.diag(A), "vector", scale=size)
    assert dual.shape == (12, 12)
    assert dual.dim == 12


def test_dual_projection_of_the_training_points_is_their_eigenvectors(kernel, points):
    X, _ = points
    dual = Dual(X, kernel)
    spectrum = solve(dual, 3, "dense")
    Y, residual = dual.subspace(spectrum).project(X)
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
