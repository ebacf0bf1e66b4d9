"""Spiked Gaussians: SciPy's densities, parameters counted by rank, digits far from the centre."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from dualpca.gaussian.spiked import SpikedDensities, SpikedGaussian, free_parameters
from tests import oracles
from tests.tolerances import assert_close, assert_log_density


def test_densities_far_from_a_component_of_little_noise_do_not_cancel():
    rng = np.random.default_rng(0)
    loadings = [rng.normal(size=(6, q)) for q in (3, 0, 1)]
    means, noises, X = rng.normal(size=(3, 6)), np.array([1e-4, 1e-5, 0.5]), rng.normal(size=(9, 6))
    found = SpikedDensities(means, loadings, noises)(3 * X)
    for k, W in enumerate(loadings):
        C, R = W @ W.T + noises[k] * np.eye(6), 3 * X - means[k]
        distance = np.sum(R * np.linalg.solve(C, R.T).T, axis=1)
        wanted = -0.5 * (distance + np.linalg.slogdet(2 * np.pi * C)[1])
        np.testing.assert_allclose(found[:, k], wanted, rtol=1e-9)


def dense_gaussian(values, noise, d, seed=0):
    """Return V, W and C of C = V diag(values - noise) V^T + noise I."""
    V = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, len(values))))[0]
    W = V * np.sqrt(values - noise)
    return V, W, W @ W.T + noise * np.eye(d)


@pytest.mark.parametrize("q", [0, 1, 3, 4, 5])
def test_spiked_gaussian_is_the_dense_gaussian(q):
    d, noise = 5, 0.4
    values = np.array([3.0, 2.0, 2.0, 0.9, 0.5])[:q]
    V, W, C = dense_gaussian(values, noise, d)
    gaussian = SpikedGaussian(values, noise, d)
    x = np.random.default_rng(1).standard_normal((20, d)) * 2
    y = x @ V
    residual = np.maximum((x**2).sum(1) - (y**2).sum(1), 0.0)
    zero = np.zeros(d)
    assert_log_density(gaussian.log_density(y, residual), oracles.log_density(x, zero, C), d)
    if q:
        model = oracles.Model(zero, W, noise)
        mean, cov = oracles.posterior(x, model)
        assert_close(gaussian.posterior_mean(y), mean, "covariance")
        assert_close(np.diag(gaussian.posterior_variance), cov, "covariance")
        assert_close(gaussian.shrink(y) @ V.T, oracles.reconstruction(x, model), "covariance")


@pytest.mark.parametrize("d", [2, 3, 5])
def test_free_parameters_are_the_rank_of_the_jacobian(d):
    for q in range(1, d + 1):
        assert free_parameters(q, d) == oracles.n_parameters_by_rank(d, q)


def test_rows_far_from_every_component_have_the_same_density_in_every_library(backend):
    rng = np.random.default_rng(0)
    means, W = 50 * rng.normal(size=(2, 4)), [rng.normal(size=(4, 2)) for _ in range(2)]
    noises, X = np.array([1e-3, 2.0]), 100 * rng.normal(size=(6, 4))
    there = [backend.asarray(one) for one in (X, means, *W, noises)]
    found = backend.numpy(SpikedDensities(there[1], there[2:4], there[4])(there[0]))
    for k in range(2):
        C = W[k] @ W[k].T + noises[k] * np.eye(4)
        expected = multivariate_normal(means[k], C).logpdf(X)
        np.testing.assert_allclose(found[:, k], expected, rtol=1e-9)
