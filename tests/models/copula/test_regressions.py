"""Gaussian processes of one column on the others, beside dense formulas."""

import numpy as np
import pytest
from scipy import stats

from dualpca.models.copula import regressions
from dualpca.models.copula.regressions import Features, Rates, found_rates, regressed

RATES = Rates(0.3, 0.4, 0.8, 0.5, np.array([0.7, 0.2, 0.0]))


def features(n=12, seed=0):
    rng = np.random.default_rng(seed)
    raw, coordinates = rng.normal(size=(n, 2)), rng.normal(size=(n, 3))
    return Features(raw, coordinates, np.array([0, 1]), np.array([0, 1, 1]))


def dense_kernel(rates, A, B):
    """Return the kernel, entry by entry."""
    K = np.empty((len(A.raw), len(B.raw)))
    for i in range(len(A.raw)):
        for j in range(len(B.raw)):
            u, v = A.coordinates[i], B.coordinates[j]
            apart = sum(
                rates.by_column[g] ** 2 * (u[k] - v[k]) ** 2 for k, g in enumerate(A.coordinates_of)
            )
            K[i, j] = rates.raw**2 * A.raw[i] @ B.raw[j] + rates.linear**2 * u @ v
            K[i, j] += rates.radial**2 * np.exp(-apart / 2)
    return K


def test_the_kernel_is_what_it_says():
    A, B = features(5), features(4, seed=1)
    np.testing.assert_allclose(RATES.kernel(A, B), dense_kernel(RATES, A, B), atol=1e-12)
    np.testing.assert_allclose(RATES.diagonal(A), np.diag(dense_kernel(RATES, A, A)), atol=1e-12)


def test_a_regression_is_the_conditional_law_of_one_normal_law():
    A, B, rng = features(9), features(4, seed=1), np.random.default_rng(2)
    Y, noises = rng.normal(size=(9, 2)), rng.uniform(0.5, 2.0, 9)
    C = dense_kernel(RATES, A, A) + RATES.noise**2 * np.diag(noises)
    across = dense_kernel(RATES, B, A)
    mean, variance = regressed(RATES, A, Y, noises, B)
    np.testing.assert_allclose(mean, across @ np.linalg.solve(C, Y), atol=1e-10)
    own = dense_kernel(RATES, B, B) - across @ np.linalg.solve(C, across.T)
    np.testing.assert_allclose(variance, np.diag(own) + RATES.noise**2, atol=1e-10)


def test_half_the_noise_is_the_row_twice():
    A, B, Y = features(6), features(3, seed=1), np.random.default_rng(2).normal(size=(6, 1))
    noises, twice = np.ones(6), np.append(np.arange(6), 0)
    noises[0] = 0.5
    one = regressed(RATES, A, Y, noises, B)
    other = regressed(RATES, A.take(twice), Y[twice], np.ones(7), B)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


def log_posterior(rates, A, Y, noises, start):
    """Return ln p(Y) of a dense normal law plus that of the logarithms of the rates."""
    noise2 = rates.noise**2 * noises
    law = stats.multivariate_normal(np.zeros(len(Y)), dense_kernel(rates, A, A) + np.diag(noise2))
    free = rates.noise**2 - regressions.LEAST_LEFT**2
    seen = np.unique(A.coordinates_of)
    logs = np.log([rates.raw, rates.linear, rates.radial, np.sqrt(free), *rates.by_column[seen]])
    prior = stats.norm.logpdf(logs, start, regressions.SPREAD_OF_LOGS).sum()
    return sum(law.logpdf(y) for y in Y.T) + prior


def test_rates_are_those_of_largest_posterior_density(monkeypatch):
    monkeypatch.setattr(regressions, "TUNING_STEPS", 500)
    A, rng = features(40), np.random.default_rng(3)
    Y = np.sin(2 * A.coordinates[:, :1]) + A.raw[:, 1:] + 0.2 * rng.normal(size=(40, 1))
    Y, noises = np.hstack([Y, Y[::-1]]), rng.uniform(0.5, 2.0, 40)
    best = found_rates(A, Y, noises, 3)
    start = np.log([np.sqrt(0.25 / 2), np.sqrt(0.25 / 3), 0.5, 0.6, *[0.5 / np.sqrt(2)] * 2])
    top = log_posterior(best, A, Y, noises, start)
    others = []
    for change in (0.9, 1.1):
        for name in ("raw", "linear", "radial", "noise"):
            others.append(Rates(**{**vars(best), name: change * getattr(best, name)}))
        for g in (0, 1):
            by = best.by_column * np.where(np.arange(3) == g, change, 1.0)
            others.append(Rates(**{**vars(best), "by_column": by}))
    assert best.by_column[2] == 0
    assert all(log_posterior(one, A, Y, noises, start) < top for one in others)


@pytest.mark.parametrize("kind", ["sum", "curve", "groups"])
def test_what_a_gaussian_cannot_follow_is_found(kind):
    """The error of new rows is near that of the noise, 0.05; a straight line's is 0.5 and more."""
    rng = np.random.default_rng(4)

    def rows(n):
        x = rng.exponential(size=(n, 2))
        z = stats.norm.ppf(1 - np.exp(-x))  # coordinates: a sum of x is not one of z
        group = rng.integers(0, 3, n)
        ones = (group[:, None] == np.arange(3)) - 1 / 3
        y = {
            "sum": x[:, 0] - x[:, 1],
            "curve": z[:, 0] ** 2 - 1,
            "groups": np.array([-1.0, 1.0, 0.0])[group] * z[:, 0],
        }[kind]
        found = Features(x, np.hstack([z, ones]), np.array([0, 1]), np.array([0, 1, 2, 2, 2]))
        return found, (y + 0.05 * rng.normal(size=n))[:, None]

    (A, Y), (B, truth) = rows(200), rows(100)
    scale = Y.std()
    rates = found_rates(A, Y / scale, np.ones(200), 3)
    mean, variance = regressed(rates, A, Y / scale, np.ones(200), B)
    error = scale * mean - truth
    assert np.median(np.abs(error)) < 0.08
    assert 0.7 < np.mean(np.abs(error[:, 0]) < 1.645 * scale * np.sqrt(variance)) < 1
