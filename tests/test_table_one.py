"""S0's Table 1: its eight distributions, primal and dual, by Monte Carlo against the closed form.

The primal ones are simulated from the definition phi = W h + mu + noise with explicit features of
a polynomial kernel, their dual ones as kc = Phi_c (phi - mu); nothing is drawn from what is tested.
Misprints of the table are corrected: phi given h has mean W h + mu; h given kc has covariance
sigma2 Sigma; kc has covariance Kc A A^T Kc + sigma2 Kc.
"""

from typing import NamedTuple

import numpy as np
import pytest

from dualpca import DualPPCA
from dualpca.kernels import Polynomial
from dualpca.operators.features import Explicit

KERNEL, R, Q, N = Polynomial(degree=2, gamma=0.5), 6, 2, 200_000
ERRORS = 5.0


class World(NamedTuple):
    model: DualPPCA
    W: np.ndarray  # (r, q)
    mu: np.ndarray  # (r,)
    Phi: np.ndarray  # (n, r), centred
    h: np.ndarray  # (N, q)
    phi: np.ndarray  # (N, r)
    kc: np.ndarray  # (N, n)


@pytest.fixture(scope="module")
def world():
    X = np.random.default_rng(0).standard_normal((12, 2)) * [1.5, 1.0]
    model = DualPPCA(Q, kernel=KERNEL, noise_dim=R).fit(X)
    F = Explicit(model.kernel_)(X)
    assert np.allclose(F @ F.T, model.kernel_(X, X))
    mu, Phi = F.mean(axis=0), F - F.mean(axis=0)
    W = Phi.T @ model.coefficients_
    rng = np.random.default_rng(1)
    h = rng.standard_normal((N, Q))
    phi = h @ W.T + mu + np.sqrt(model.noise_variance_) * rng.standard_normal((N, R))
    return World(model, W, mu, Phi, h, phi, (phi - mu) @ Phi.T)


def assert_gaussian(samples, mean, covariance):
    """Assert first and second moments entry by entry, and the fourth of every column."""
    n, variance = len(samples), np.diag(covariance)
    centred = samples - mean
    tiny = 1e-9 * np.sqrt(variance.max())
    assert np.all(np.abs(centred.mean(axis=0)) <= ERRORS * np.sqrt(variance / n) + tiny)
    gap = np.abs(centred.T @ centred / n - covariance)
    assert np.all(
        gap <= ERRORS * np.sqrt((np.outer(variance, variance) + covariance**2) / n) + tiny
    )
    kurtosis = np.mean(centred**4, axis=0) / np.mean(centred**2, axis=0) ** 2
    assert np.all(np.abs(kurtosis - 3) <= ERRORS * np.sqrt(24 / n))


def assert_regression(outcome, given, mean_map, covariance):
    """Assert that outcome | given ~ N(mean_map given, covariance): residuals, and independence."""
    error = outcome - given @ mean_map.T
    assert_gaussian(error, 0.0, covariance)
    scale = np.sqrt(np.outer(np.var(error, axis=0), np.mean(given**2, axis=0)) / len(error))
    assert np.all(np.abs(error.T @ given / len(error)) <= ERRORS * scale + 1e-9)


def inner(world):
    """Sigma = (W^T W + sigma2 I)^-1."""
    return np.linalg.inv(world.W.T @ world.W + world.model.noise_variance_ * np.eye(Q))


def test_primal_latents_given_features(world):
    S = inner(world)
    covariance = world.model.noise_variance_ * S
    assert_regression(world.h, world.phi - world.mu, S @ world.W.T, covariance)


def test_primal_features_given_latents(world):
    noise = world.model.noise_variance_ * np.eye(R)
    assert_regression(world.phi - world.mu, world.h, world.W, noise)


def test_primal_latents(world):
    assert_gaussian(world.h, 0.0, np.eye(Q))


def test_primal_features(world):
    C = world.W @ world.W.T + world.model.noise_variance_ * np.eye(R)
    assert_gaussian(world.phi, world.mu, C)


def test_dual_latents_given_kernels(world):
    mean, cov = world.model.posterior_kernel(world.kc, centered=True, parameters="fixed")
    assert_gaussian(world.h - mean, 0.0, np.asarray(cov[0]))
    n, lam = len(world.Phi), world.model.eigenvalues_
    assert np.allclose(mean, world.kc @ world.model.coefficients_ * n / lam)
    assert np.allclose(cov[0], world.model.noise_variance_ * n * np.diag(1 / lam))
    # as printed, without sigma2, the covariance would be far off
    assert not np.allclose(cov[0], inner(world), rtol=0.1)


def test_dual_kernels_given_latents(world):
    Kc, A = world.Phi @ world.Phi.T, world.model.coefficients_
    sigma2 = world.model.noise_variance_
    assert_regression(world.kc, world.h, Kc @ A, sigma2 * Kc)
    own = world.model.sample_kernel_given(world.h, random_state=2)
    assert_regression(own, world.h, Kc @ A, sigma2 * Kc)


def test_dual_latents(world):
    # the law of total variance: latents of the dual have the prior's covariance
    mean, cov = world.model.posterior_kernel(world.kc, centered=True, parameters="fixed")
    total = mean.T @ mean / N + np.asarray(cov[0])
    assert np.all(np.abs(total - np.eye(Q)) <= ERRORS * np.sqrt(2 / N))


def test_dual_kernels(world):
    Kc, A = world.Phi @ world.Phi.T, world.model.coefficients_
    C = Kc @ A @ A.T @ Kc + world.model.noise_variance_ * Kc
    assert_gaussian(world.kc, 0.0, C)
    assert_gaussian(world.model.sample_kernel(N, random_state=3), 0.0, C)
    lam, E = np.linalg.eigh(Kc)
    lam, E = lam[::-1], E[:, ::-1]
    B = np.sqrt(np.where(np.arange(12) < Q, lam**2 / 12, world.model.noise_variance_ * lam.clip(0)))
    assert np.allclose((E * B**2) @ E.T, C)
