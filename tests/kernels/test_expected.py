"""Expected kernels of uncertain rows, judged by quadrature, by draws, and by what they tend to."""

import numpy as np
import pytest

from dualpca import PPCA
from dualpca.arrays import backend as backends
from dualpca.kernels import RBF, Constant, Linear, Matern, Polynomial, Product, Scaled
from dualpca.kernels.expected import (
    Uncertain,
    expected_between,
    expected_diag,
    expected_gram,
    expected_kernel,
    projected_covariance,
)
from tests.tolerances import assert_close


def covariance(kernel, x, Y):
    """Return Cov[k(x_i, y_j), k(x_i, y_l)], (n, m, m)."""
    return projected_covariance(kernel, x, Y, backends.identity(int(Y.shape[0]), Y))


KERNELS = {
    "linear": Linear(),
    "constant": Constant(0.7),
    "rbf": RBF(gamma=0.3),
    "rbf widths": RBF(length_scale=[1.0, 2.0, 1.5]),
    "polynomial 1": Polynomial(1, 0.5, 0.3),
    "polynomial 2": Polynomial(2, coef0=-0.4),
    "polynomial 3": Polynomial(3, 0.4, 0.8),
    "scaled": 2.5 * RBF(gamma=0.2),
    "columns": RBF(gamma=0.3, on=[2, 0]),
    "polynomial columns": Polynomial(3, on=[1, 2]),
    "sum": Linear() + 0.5 * RBF(gamma=0.3) + Polynomial(2, 0.3, on=[0, 1]) + Constant(2.0),
    "two widths": RBF(gamma=0.1) + 2.0 * RBF(gamma=0.4, on=[0, 2]),
    "two powers": Polynomial(2, 0.3, 1.0) + 0.2 * Polynomial(3, 0.2, 0.5) + Linear(on=[1]),
    "product of rbfs": RBF(gamma=0.1, on=[0, 1]) * RBF(gamma=0.2, on=[1, 2]),
    "nested columns": Scaled(0.5, RBF(gamma=0.3, on=[1]) + Linear(), on=[2, 0]),
}
HIDDEN = [[], [1], [0, 2], [1, 2], [0, 1]]


@pytest.fixture(params=KERNELS, name="kernel")
def every_kernel(request):
    return KERNELS[request.param]


def uncertain(hidden=HIDDEN, d=3, seed=0, size=0.7):
    """Return rows of which some entries are unknown, and square roots of their covariances."""
    rng = np.random.default_rng(seed)
    roots = np.zeros((len(hidden), d, d))
    for root, missing in zip(roots, hidden, strict=True):
        k = len(missing)
        root[missing, :k] = size * (rng.standard_normal((k, k)) + np.eye(k))
    return Uncertain(rng.standard_normal((len(hidden), d)), roots @ roots.mT), roots


def grid(rank, nodes):
    """Return points and weights of a Gauss–Hermite rule for rank independent standard normals."""
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    mesh = np.meshgrid(*[points] * rank, indexing="ij")
    products = np.meshgrid(*[weights / weights.sum()] * rank, indexing="ij")
    return np.stack([m.ravel() for m in mesh], axis=1), np.prod(products, axis=0).ravel()


def spread_out(mean, root, nodes=40):
    """Return points and weights of the distribution of one row, whose rank is at most 2."""
    points, weights = grid(2, nodes)
    return mean + points @ root[:, :2].T, weights


def cloud(x, roots, nodes=40):
    return [spread_out(m, root, nodes) for m, root in zip(x.mean, roots, strict=True)]


Y = np.random.default_rng(3).standard_normal((6, 3))


# --- quadrature -----------------------------------------------------------------------


def test_expected_kernel_is_the_integral(kernel):
    x, roots = uncertain()
    slow = [w @ kernel(P, Y) for P, w in cloud(x, roots)]
    assert_close(expected_kernel(kernel, x, Y), slow, "covariance")


def test_expected_diagonal_is_the_integral(kernel):
    x, roots = uncertain()
    slow = [w @ kernel.diag(P) for P, w in cloud(x, roots)]
    assert_close(expected_diag(kernel, x), slow, "covariance")


def test_expectation_between_rows_is_the_integral_over_both(kernel):
    # narrow enough for 24 nodes: 24⁴ of them are the integral over a pair
    (x, roots), (other, others) = uncertain(size=0.4), uncertain(HIDDEN[::-1], seed=4, size=0.4)
    left, right = cloud(x, roots, 24), cloud(other, others, 24)
    slow = [[w @ kernel(P, Q) @ v for Q, v in right] for P, w in left]
    assert_close(expected_between(kernel, x, other), slow, "vector")


def test_covariance_of_values_is_the_integral(kernel):
    x, roots = uncertain()
    slow = [np.cov(kernel(P, Y).T, aweights=w, ddof=0) for P, w in cloud(x, roots)]
    assert_close(covariance(kernel, x, Y), slow, "vector", scale=1.0)


# --- draws ----------------------------------------------------------------------------


def assert_mean(value, draws):
    """Assert that a value is within four standard errors of the mean of draws."""
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert np.all(
        np.abs(value - draws.mean(axis=0)) <= 4 * error + 1e-11
    )  # a constant has no spread


def draw(x, i, n, seed):
    rng = np.random.default_rng(seed)
    return rng.multivariate_normal(x.mean[i], x.covariance[i], n, method="eigh")


DRAWS = 200_000
"""The products of an RBF have long tails: their mean is normal only over many."""


@pytest.mark.slow
def test_expectations_are_the_means_of_draws(kernel):
    x, other = uncertain([[0, 1, 2]])[0], uncertain([[0, 2]], seed=5)[0]
    A, B = draw(x, 0, DRAWS, 1), draw(other, 0, DRAWS, 2)
    K = kernel(A, Y[:3])
    assert_mean(expected_kernel(kernel, x, Y[:3])[0], K)
    assert_mean(expected_diag(kernel, x)[0], kernel.diag(A))
    cut = np.split(np.arange(DRAWS), DRAWS // 50)
    pairs = np.concatenate([np.diag(kernel(A[rows], B[rows])) for rows in cut])
    assert_mean(expected_between(kernel, x, other)[0, 0], pairs)
    centred = K - expected_kernel(kernel, x, Y[:3])
    assert_mean(covariance(kernel, x, Y[:3])[0], centred[:, :, None] * centred[:, None, :])


# --- limits ---------------------------------------------------------------------------


def test_known_rows_have_their_kernel(kernel):
    X = uncertain()[0].mean
    x = Uncertain(X, np.zeros((5, 3, 3)))
    assert_close(expected_kernel(kernel, x, Y), kernel(X, Y), "eigenvalue")
    assert_close(expected_between(kernel, x, x), kernel(X, X), "eigenvalue")
    assert_close(expected_diag(kernel, x), kernel.diag(X), "eigenvalue")
    assert not covariance(kernel, x, Y).any()


@pytest.mark.parametrize("size", [1e-2, 1e-4, 1e-6])
def test_uncertainty_vanishes_with_its_size(kernel, size):
    """All errors are of second order in the standard deviations."""
    x = uncertain(size=size)[0]
    bound = 1000 * size**2
    assert np.abs(expected_kernel(kernel, x, Y) - kernel(x.mean, Y)).max() < bound
    assert np.abs(expected_between(kernel, x, x) - kernel(x.mean, x.mean)).max() < bound
    assert np.abs(expected_diag(kernel, x) - kernel.diag(x.mean)).max() < bound
    assert np.abs(covariance(kernel, x, Y)).max() < bound


def test_small_covariances_are_those_of_the_gradient(kernel):
    """Cov k(x, ·) → G S Gᵀ, G the gradients of k at the mean."""
    x = uncertain(size=1e-4)[0]
    for i in range(len(x)):
        G = kernel.gradient(x.mean[i], Y)
        slow = G @ x.covariance[i] @ G.T
        scale = 1e-8 * max(1.0, np.abs(G).max() ** 2)
        np.testing.assert_allclose(covariance(kernel, x, Y)[i], slow, atol=1e-2 * scale)


def test_nothing_known_of_a_row_leaves_the_rbf_little():
    wide = Uncertain(np.zeros((1, 3)), 1e8 * np.eye(3)[None])
    assert expected_kernel(RBF(), wide, Y).max() < 1e-10
    assert expected_diag(RBF(), wide) == 1.0


# --- rows with holes ------------------------------------------------------------------


# a linear part is left small, because there the imputed row is the best guess already
CURVED = [RBF(gamma=0.1), Polynomial(2), 0.01 * Linear() + RBF(gamma=0.1)]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", CURVED)
def test_rows_with_holes_have_the_best_guess_of_their_kernel_and_know_its_error(kernel):
    """E k given what PPCA observed is nearer the truth than k at the imputed row."""
    rng = np.random.default_rng(9)
    X = rng.standard_normal((4000, 2)) @ rng.standard_normal((2, 5))
    X += 0.3 * rng.standard_normal(X.shape)
    holes = np.where(rng.random(X.shape) < 0.4, np.nan, X)
    x = Uncertain(*PPCA(2).fit(X).conditional(holes))
    points = X[:4]
    truth, best = kernel(X, points), expected_kernel(kernel, x, points)
    guess = kernel(x.mean, points)
    assert np.mean((truth - best) ** 2) < 0.98 * np.mean((truth - guess) ** 2)
    C = covariance(kernel, x, points)
    miss = (truth - best)[:, :, None] * (truth - best)[:, None, :]
    spread = np.sqrt(np.mean((miss - C) ** 2, axis=0) / len(X))
    assert np.all(np.abs(np.mean(miss - C, axis=0)) < 4 * spread)


# --- shapes, symmetry, definiteness ---------------------------------------------------


def test_expected_gram_is_symmetric_definite_and_has_its_own_diagonal(kernel):
    x = uncertain(HIDDEN * 3)[0]
    K = expected_gram(kernel, x)
    assert_close(K, K.T, "exact")
    assert_close(np.diag(K), expected_diag(kernel, x), "exact")
    off = ~np.eye(15, dtype=bool)
    assert_close(K[off], expected_between(kernel, x, x)[off], "exact")
    if kernel.definite:
        assert np.linalg.eigvalsh(K).min() > -1e-12 * np.abs(K).max()


def test_covariances_are_definite_and_project(kernel):
    x = uncertain()[0]
    C = covariance(kernel, x, Y)
    A = np.random.default_rng(8).standard_normal((6, 2))
    assert np.linalg.eigvalsh(C).min() > -1e-12 * max(np.abs(C).max(), 1.0)
    assert_close(projected_covariance(kernel, x, Y, A), A.T @ C @ A, "covariance", scale=100.0)


def test_order_of_known_and_unknown_rows_does_not_matter(kernel):
    x = uncertain()[0]
    order = [3, 0, 4, 1, 2]
    mixed = Uncertain(x.mean[order], x.covariance[order])
    K = expected_between(kernel, x, x)
    assert_close(expected_between(kernel, mixed, x), K[order], "exact")
    assert_close(expected_between(kernel, x, mixed), K[:, order], "exact")


def test_blocks_of_rows_change_nothing(kernel, monkeypatch):
    x = uncertain()[0]
    whole = expected_kernel(kernel, x, Y), expected_between(kernel, x, x)
    monkeypatch.setattr("dualpca.arrays.backend.BLOCK_BYTES", 8)
    assert_close(expected_kernel(kernel, x, Y), whole[0], "eigenvalue")
    assert_close(expected_between(kernel, x, x), whole[1], "eigenvalue")


def test_no_rows(kernel):
    x = uncertain()[0]
    none = x.block(slice(0, 0))
    assert expected_kernel(kernel, none, Y).shape == (0, 6)
    assert expected_kernel(kernel, x, Y[:0]).shape == (5, 0)
    assert expected_between(kernel, none, x).shape == (0, 5)
    assert expected_between(kernel, x, none).shape == (5, 0)
    assert expected_diag(kernel, none).shape == (0,)
    assert covariance(kernel, none, Y).shape == (0, 6, 6)


@pytest.mark.grid(2)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_expectations_are_the_same_in_every_library(kernel, backend, dtype):
    x = uncertain()[0]
    here = Uncertain(x.mean.astype(dtype), x.covariance.astype(dtype))
    there = Uncertain(backend.asarray(here.mean), backend.asarray(here.covariance))
    V = Y.astype(dtype)
    W = backend.asarray(V)
    results = [
        (expected_kernel(kernel, there, W), expected_kernel(kernel, here, V)),
        (expected_gram(kernel, there), expected_gram(kernel, here)),
        (covariance(kernel, there, W), covariance(kernel, here, V)),
    ]
    for found, numpy in results:
        assert backend.owns(found)
        assert backend.numpy(found).dtype == dtype
        assert_close(backend.numpy(found), numpy, "vector", dtype, scale=10.0)


def test_rows_are_left_alone(kernel):
    x = uncertain()[0]
    before = x.mean.tobytes(), x.covariance.tobytes(), Y.tobytes()
    expected_gram(kernel, x), expected_kernel(kernel, x, Y), covariance(kernel, x, Y)
    assert before == (x.mean.tobytes(), x.covariance.tobytes(), Y.tobytes())


# --- products, and what is refused ----------------------------------------------------

APART = RBF(gamma=0.3, on=[0]) * Polynomial(2, on=[1, 2])


def test_products_over_independent_columns_are_products():
    x, roots = uncertain([[0], [1, 2], [2], []], size=0.4)
    slow = [w @ APART(P, Y) for P, w in cloud(x, roots)]
    assert_close(expected_kernel(APART, x, Y), slow, "covariance")
    slow = [w @ APART.diag(P) for P, w in cloud(x, roots)]
    assert_close(expected_diag(APART, x), slow, "covariance")
    points = cloud(x, roots, 24)
    slow = [[w @ APART(P, Q) @ v for Q, v in points] for P, w in points]
    assert_close(expected_between(APART, x, x), slow, "vector")


def test_products_over_correlated_columns_are_refused():
    x = uncertain([[0, 2]])[0]
    for compute in (expected_diag, expected_gram, lambda k, x: expected_kernel(k, x, Y)):
        with pytest.raises(ValueError, match="correlated"):
            compute(APART, x)


def test_products_that_share_columns_are_refused():
    x = uncertain([[0]])[0]
    for kernel in (RBF() * Linear(), Linear() * Linear(), Product(Linear(), RBF(), on=[1, 2])):
        with pytest.raises(ValueError, match="share columns"):
            expected_kernel(kernel, x, Y)


def test_covariance_of_other_products_is_refused():
    with pytest.raises(ValueError, match="products other than of RBFs"):
        covariance(APART, uncertain([[0]])[0], Y)


@pytest.mark.parametrize("compute", [expected_diag, expected_gram])
def test_unknown_expectations_are_refused(compute):
    x = uncertain()[0]
    with pytest.raises(TypeError, match="impute the rows first"):
        compute(Linear() + Matern(), x)
    with pytest.raises(ValueError, match="1, 2 or 3"):
        compute(Polynomial(4), x)
    with pytest.raises(ValueError, match="resolve"):
        compute(RBF("median"), x)
    with pytest.raises(ValueError, match="columns below 3"):
        compute(RBF(on=[3]), x)


def test_nonsense_shapes_are_refused():
    with pytest.raises(ValueError, match=r"\(n, d\)"):
        Uncertain(np.zeros(3), np.zeros((3, 3)))
    with pytest.raises(ValueError, match=r"\(2, 3, 3\)"):
        Uncertain(np.zeros((2, 3)), np.zeros((3, 3)))
    x = uncertain()[0]
    for compute in (expected_kernel, covariance):
        with pytest.raises(ValueError, match=r"of shape \(m, 3\)"):
            compute(RBF(), x, Y[:, :2])
