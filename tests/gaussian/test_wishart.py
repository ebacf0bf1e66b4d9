"""Wishart densities: SciPy's, integrals that must be one, and ratios under sampling."""

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import multigammaln

from dualpca.errors import DegenerateError
from dualpca.gaussian.wishart import log_wishart


def scale_of(n, seed=0):
    A = np.random.default_rng(seed).standard_normal((n, 2 * n))
    return A @ A.T / n


def draw(n, rho, scale, seed=1):
    F = np.linalg.cholesky(scale) @ np.random.default_rng(seed).standard_normal((n, rho))
    return F @ F.T


@pytest.mark.parametrize("n, rho", [(1, 1), (1, 2.5), (2, 2), (3, 7), (5, 4.5), (8, 30)])
def test_full_rank_density_is_scipys(n, rho):
    scale = scale_of(n)
    K = draw(n, n + 3, scale)
    expected = stats.wishart(rho, scale).logpdf(K)
    assert log_wishart(K, scale, rho) == pytest.approx(expected, rel=1e-12)


def stiefel_volume(n, rank):
    """Return the volume of the orthonormal n x rank frames (Muirhead 1982, Theorem 2.1.15)."""
    return 2**rank * np.pi ** (n * rank / 2) / np.exp(multigammaln(n / 2, rank))


@pytest.mark.parametrize("n", [2, 3, 5])
def test_density_of_rank_one_integrates_to_one(n):
    # Σ = s I: the density depends on the eigenvalue alone, the frames integrate to their volume
    def radial(ell):
        K = np.zeros((n, n))
        K[0, 0] = ell
        return np.exp(log_wishart(K, 1.7 * np.eye(n), 1)) * ell ** (n - 1) / 2

    total = integrate.quad(radial, 0, np.inf, epsabs=1e-12)[0] * stiefel_volume(n, 1)
    assert total == pytest.approx(1, rel=1e-8)


@pytest.mark.parametrize("n", [3, 4])
def test_density_of_rank_two_integrates_to_one(n):
    def radial(b, a):
        K = np.zeros((n, n))
        K[0, 0], K[1, 1] = a, b
        return np.exp(log_wishart(K, np.eye(n), 2)) * (a * b) ** (n - 2) * (a - b) / 4

    # from √a and √b: the density has a root at 0
    def rooted(v, u):
        return radial(v * v, u * u) * 4 * u * v

    total = integrate.dblquad(rooted, 0, 12, 1e-4, lambda u: u, epsabs=1e-9)[0]
    assert total * stiefel_volume(n, 2) == pytest.approx(1, rel=1e-5)


@pytest.mark.slow
def test_density_on_the_circle_of_directions_integrates_to_one():
    # rank 1 in the plane, Σ no multiple of I: angle and eigenvalue, both by quadrature
    scale = np.array([[2.0, 0.6], [0.6, 0.5]])

    def density(t, angle):
        h = np.array([np.cos(angle), np.sin(angle)])
        K = t**2 * np.outer(h, h)
        return np.exp(log_wishart(K, scale, 1)) * t**2 / 2 * 2 * t

    total = integrate.dblquad(density, 0, 2 * np.pi, 1e-6, 25, epsabs=1e-9)[0]
    assert total == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("n, rho", [(4, 2), (6, 5), (3, 9)])
def test_ratio_of_densities_has_mean_one(n, rho):
    # E_p[q/p] = 1; q has the larger precision, so that the ratio is bounded
    p, rng = scale_of(n), np.random.default_rng(3)
    q = 0.8 * p
    root = np.linalg.cholesky(p)
    ratios = []
    for _ in range(3000):
        F = root @ rng.standard_normal((n, rho))
        ratios.append(np.exp(log_wishart(F @ F.T, q, rho) - log_wishart(F @ F.T, p, rho)))
    error = np.std(ratios) / np.sqrt(len(ratios))
    assert abs(np.mean(ratios) - 1) < 4 * error
    assert error < 0.1


def test_rank_one_is_the_normal_density_of_its_root():
    # x ↦ xxᵀ: ½ l^{n−1} dl dh against ½ l^{n/2−1} dl dh leaves l^{−n/2}
    scale, x = scale_of(3), np.array([0.3, -1.0, 0.8])
    expected = stats.multivariate_normal(np.zeros(3), scale).logpdf(x) - 1.5 * np.log(x @ x)
    assert log_wishart(np.outer(x, x), scale, 1) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("rho", [2, 6])
def test_density_does_not_depend_on_the_basis(rho):
    scale = scale_of(4)
    K, Q = draw(4, rho, scale), np.linalg.qr(np.random.default_rng(5).standard_normal((4, 4)))[0]
    turned = log_wishart(Q @ K @ Q.T, Q @ scale @ Q.T, rho)
    assert turned == pytest.approx(log_wishart(K, scale, rho), rel=1e-10)


@pytest.mark.parametrize("rho", [2, 6])
def test_density_is_the_same_in_every_library(backend, rho):
    scale = scale_of(4)
    K = draw(4, rho, scale)
    found = log_wishart(backend.asarray(K), backend.asarray(scale), rho)
    assert found == pytest.approx(log_wishart(K, scale, rho), rel=1e-12)


def test_the_wrong_rank_has_no_density():
    scale = scale_of(4)
    with pytest.raises(DegenerateError, match=r"rank 4.*rho=2"):
        log_wishart(draw(4, 2, scale), scale, 5)
    with pytest.raises(DegenerateError, match="rank 2"):
        log_wishart(draw(4, 6, scale), scale, 2)
    with pytest.raises(DegenerateError, match="semi-definite"):
        log_wishart(np.diag([1.0, 1.0, 1.0, -1.0]), scale, 3)


@pytest.mark.parametrize("rho", [0, -1, 1.5, 0.5, np.nan, np.inf, "many", True])
def test_degrees_of_freedom_without_a_density_are_refused(rho):
    with pytest.raises(ValueError, match="rho"):
        log_wishart(np.eye(4), np.eye(4), rho)


@pytest.mark.parametrize(
    "K, scale, name",
    [
        (np.ones((2, 3)), np.eye(2), "K"),
        (np.eye(2), np.eye(3), "scale"),
        (np.eye(2), np.diag([1.0, -1.0]), "scale"),
    ],
)
def test_matrices_that_do_not_fit_are_refused(K, scale, name):
    with pytest.raises(ValueError, match=name):
        log_wishart(K, scale, 3)
