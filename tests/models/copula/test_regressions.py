"""Gaussian processes of one column on the others, beside dense formulas."""

import numpy as np
import pytest
from scipy import stats

from dualpca.models.copula import regressions
from dualpca.models.copula.regressions import Features, Rates, found_rates, regressed

RATES = Rates(0.3, 0.4, 0.8, 0.5, np.array([0.7, 0.2, 0.0]), np.array([0.6, 0.3, 0.0]))


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
    Y, variances = rng.normal(size=(9, 2)), rng.uniform(0.5, 2.0, 9)
    C = dense_kernel(RATES, A, A) + np.diag(variances)
    across = dense_kernel(RATES, B, A)
    mean, variance = regressed(RATES, A, Y, variances, B)
    np.testing.assert_allclose(mean, across @ np.linalg.solve(C, Y), atol=1e-10)
    own = dense_kernel(RATES, B, B) - across @ np.linalg.solve(C, across.T)
    np.testing.assert_allclose(variance, np.diag(own) + RATES.noise**2, atol=1e-10)


def test_half_the_noise_is_the_row_twice():
    A, B, Y = features(6), features(3, seed=1), np.random.default_rng(2).normal(size=(6, 1))
    noises, twice = np.ones(6), np.append(np.arange(6), 0)
    noises[0], filled = 0.5, np.random.default_rng(5).random((6, 3)) < 0.5
    one = regressed(RATES, A, Y, RATES.variances(noises, filled), B)
    variances = RATES.variances(np.ones(7), filled[twice])
    other = regressed(RATES, A.take(twice), Y[twice], variances, B)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


def test_completed_entries_are_noise_of_their_row():
    noises, filled = np.array([1.0, 2.0, 0.5]), np.array([[0, 0, 1], [1, 0, 0], [1, 1, 0]], bool)
    found = RATES.variances(noises, filled)
    np.testing.assert_allclose(found, [0.25, 2 * (0.25 + 0.36), 0.5 * (0.25 + 0.36 + 0.09)])


def log_posterior(rates, A, Y, noises, filled, start):
    """Return ln p(Y) of a dense normal law plus that of the logarithms of the rates."""
    noise2 = rates.noise**2 * noises + noises * (filled * rates.extra**2).sum(axis=1)
    law = stats.multivariate_normal(np.zeros(len(Y)), dense_kernel(rates, A, A) + np.diag(noise2))
    free = rates.noise**2 - regressions.LEAST_LEFT**2
    seen = np.unique(A.coordinates_of)
    logs = np.log([rates.raw, rates.linear, rates.radial, np.sqrt(free), *rates.by_column[seen]])
    logs = np.append(logs, np.log(rates.extra[seen]))
    prior = stats.norm.logpdf(logs, start, regressions.SPREAD_OF_LOGS).sum()
    return sum(law.logpdf(y) for y in Y.T) + prior


def test_rates_are_those_of_largest_posterior_density(monkeypatch):
    monkeypatch.setattr(regressions, "TUNING_STEPS", 500)
    A, rng = features(40), np.random.default_rng(3)
    Y = np.sin(2 * A.coordinates[:, :1]) + A.raw[:, 1:] + 0.2 * rng.normal(size=(40, 1))
    Y, noises = np.hstack([Y, Y[::-1]]), rng.uniform(0.5, 2.0, 40)
    filled = rng.random((40, 3)) < 0.3
    filled[:, 2] = False
    Y[filled[:, 0]] += rng.normal(size=(filled[:, 0].sum(), 2))
    best = found_rates(A, Y, noises, filled)
    start = [np.sqrt(0.25 / 2), np.sqrt(0.25 / 3), 0.5, 0.6, *[0.5 / np.sqrt(2)] * 2]
    start = np.log([*start, *[regressions.EXPECTED_EXTRA] * 2])
    top = log_posterior(best, A, Y, noises, filled, start)
    others = []
    for change in (0.9, 1.1):
        for name in ("raw", "linear", "radial", "noise"):
            others.append(Rates(**{**vars(best), name: change * getattr(best, name)}))
        for g in (0, 1):
            for name in ("by_column", "extra"):
                one = getattr(best, name) * np.where(np.arange(3) == g, change, 1.0)
                others.append(Rates(**{**vars(best), name: one}))
    assert best.by_column[2] == best.extra[2] == 0
    assert best.extra[0] > 0.5
    assert all(log_posterior(one, A, Y, noises, filled, start) < top for one in others)


def test_a_column_without_gaps_keeps_what_is_expected_of_it():
    A, Y = features(30), np.random.default_rng(3).normal(size=(30, 1))
    filled = np.zeros((30, 3), dtype=bool)
    filled[:10, 0] = filled[:, 2] = True  # the last one is not seen
    extra = found_rates(A, Y, np.ones(30), filled).extra
    assert extra[0] != regressions.EXPECTED_EXTRA == extra[1] and extra[2] == 0


def test_an_exact_sum_is_found_among_completed_rows():
    """A third of the rows has a wrong number in the first column, as completed rows do."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(180, 2))
    Y = (x[:, [0]] - x[:, [1]]) / np.sqrt(2)
    filled = np.zeros((180, 2), dtype=bool)
    filled[:40, 0] = True
    x[:40, 0] = rng.normal(size=40)
    whole = Features(x, x, np.array([0, 1]), np.array([0, 1]))
    A, B, noises = whole.take(np.arange(120)), whole.take(np.arange(120, 180)), np.ones(120)
    error, deviation = [], []
    for seen in (filled[:120], np.zeros((120, 2), dtype=bool)):
        rates = found_rates(A, Y[:120], noises, seen)
        mean, variance = regressed(rates, A, Y[:120], rates.variances(noises, seen), B)
        error.append(np.abs(mean - Y[120:]).mean())
        deviation.append(np.sqrt(variance).mean())
    assert error[0] < 0.02 and deviation[0] < 0.03
    assert error[1] > 0.05 and deviation[1] > 0.3


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
    nothing = np.zeros((200, 3), dtype=bool)
    rates = found_rates(A, Y / scale, np.ones(200), nothing)
    mean, variance = regressed(rates, A, Y / scale, rates.variances(np.ones(200), nothing), B)
    error = scale * mean - truth
    assert np.median(np.abs(error)) < 0.08
    assert 0.7 < np.mean(np.abs(error[:, 0]) < 1.645 * scale * np.sqrt(variance)) < 1
