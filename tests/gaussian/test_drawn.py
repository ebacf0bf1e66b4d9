"""Draws of the parameters of factor analysis, beside dense conditioning and a dense posterior."""

import numpy as np
import pytest
from scipy.stats import ks_2samp

from dualpca import FactorAnalysis
from dualpca.errors import HeywoodWarning
from dualpca.gaussian import Factors, ParameterDraws, Reference
from dualpca.gaussian.drawn import LEAST_SIGNAL, PRIOR_ROWS, least_noise, posterior_draws

# --- Answers, given the draws --------------------------------------------------------------------


def some_draws(d, q, gaps, seed=0):
    rng = np.random.default_rng(seed)
    W, mu, psi = rng.normal(size=(d, q)) * 1.5, rng.normal(size=d), rng.uniform(0.5, 1.5, d)
    scarce = rng.uniform(1, 1.5, d) if gaps else None
    draws = ParameterDraws.of(Factors(W, mu, psi), Reference(30.0, 30.0, scarce=scarce))
    X = rng.normal(size=(7, q)) @ W.T + mu + np.sqrt(psi) * rng.normal(size=(7, d))
    if gaps:
        X[rng.random(X.shape) < 0.4] = np.nan
        X[3] = np.nan
    return draws, X


def conditioned(W, mu, psi, x):
    """Return mean and covariance of z, and of x given what was observed, by dense matrices."""
    o = ~np.isnan(x)
    S = W @ W.T + np.diag(psi)
    gain = W[o].T @ np.linalg.inv(S[np.ix_(o, o)])
    across = S[:, o] @ np.linalg.inv(S[np.ix_(o, o)])
    off = x[o] - mu[o]
    z = gain @ off, np.eye(W.shape[1]) - gain @ W[o]
    return z, (mu + across @ off, S - across @ S[o])


@pytest.mark.parametrize("d, q", [(5, 1), (6, 2), (7, 3)])
@pytest.mark.parametrize("gaps", [False, True])
def test_covariances_are_those_of_all_draws_around_the_answer_of_the_fit(d, q, gaps):
    draws, X = some_draws(d, q, gaps)
    fit, features = draws.factors, np.array([d - 1, 0, 2])
    latents, unseen = draws.latent_covariance(X), draws.of_unseen(X, features)
    for i, x in enumerate(X):
        (z, _), (full, _) = conditioned(fit.W, fit.mu, fit.psi, x)
        of_z, of_x = np.zeros((q, q)), np.zeros((d, d))
        for theta in zip(draws.W, draws.mu, draws.psi, strict=True):
            (m, C), (f, S) = conditioned(*theta, x)
            of_z += C + np.outer(m - z, m - z)
            of_x += S + np.outer(f - full, f - full)
        known = ~np.isnan(x)
        of_x[known] = of_x[:, known] = 0
        np.testing.assert_allclose(latents[i], of_z / len(draws.W), rtol=1e-8)
        of_x = of_x[np.ix_(features, features)] / len(draws.W)
        np.testing.assert_allclose(unseen[i], of_x, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("gaps", [False, True])
def test_blocks_of_rows_change_nothing(gaps, monkeypatch):
    draws, X = some_draws(6, 2, gaps)
    whole = draws.latent_covariance(X), draws.of_unseen(X, np.array([1, 4]))
    K, d, _ = draws.W.shape
    monkeypatch.setattr("dualpca.gaussian.drawn.TOGETHER", 3 * K * d)
    np.testing.assert_allclose(draws.latent_covariance(X), whole[0], rtol=1e-12)
    np.testing.assert_allclose(draws.of_unseen(X, np.array([1, 4])), whole[1], atol=1e-12)


def test_draws_lie_along_axes_of_their_own_named_as_those_of_the_fit():
    draws, _ = some_draws(6, 2, False)
    W, psi = draws.factors.W, draws.factors.psi
    _, U = np.linalg.eigh(W.T @ (W / psi[:, None]))
    V = draws.W @ U[:, ::-1]
    G = V.swapaxes(1, 2) @ (V / draws.psi[:, :, None])
    np.testing.assert_allclose(G[:, 0, 1], 0, atol=1e-9)
    assert np.all(G[:, 0, 0] > G[:, 1, 1])
    agree = np.sum(draws.W * W / draws.psi[:, :, None], axis=1)
    assert np.mean(agree > 0) > 0.95


# --- The draws -----------------------------------------------------------------------------------


def log_posterior(V, noise, S, N, prior, nu):
    """Return the log-density of loadings (c, d, q) and noises (c, d), from dense matrices."""
    q = V.shape[2]
    C = V @ V.swapaxes(1, 2) + noise[:, :, None] * np.eye(len(S))
    fit = np.linalg.slogdet(C)[1] + np.trace(np.linalg.solve(C, S), axis1=1, axis2=2)
    G = V.swapaxes(1, 2) @ (V / noise[:, :, None]) + LEAST_SIGNAL * np.eye(q)
    value = -0.5 * N * fit - 0.5 * nu * np.linalg.slogdet(G)[1]
    value -= 0.5 * q * np.sum(np.log(noise), axis=1)
    a = PRIOR_ROWS / 2
    return value - np.sum((a + 1) * np.log(noise) + a * prior / noise, axis=1)


@pytest.mark.parametrize("d, q", [(4, 1), pytest.param(6, 2, marks=pytest.mark.slow)])
def test_draws_are_from_the_dense_posterior(d, q):
    """Random-walk Metropolis on the logarithms of noises and on loadings, many chains at once."""
    rng, n = np.random.default_rng(3), 25
    W, psi = np.linspace(0.5, 1.5, d * q).reshape(q, d).T, np.linspace(0.4, 1.2, d)
    if q == 2:
        W[: d // 2, 1] *= -1
    psi[1] = 1e-3  # a Heywood case
    S, nu, prior = W @ W.T + np.diag(psi), max(d - q - 1, q), least_noise(W, psi)
    chains, steps = (400, 1500) if q == 1 else (400, 5000)
    V, logs = (
        np.repeat(W[None], chains, 0),
        np.repeat(np.log(np.maximum(psi, 0.1))[None], chains, 0),
    )

    def density(V, logs):  # by the logarithms of the noises
        return log_posterior(V, np.exp(logs), S, n - 1, prior, nu) + np.sum(logs, axis=1)

    value, size = density(V, logs), 0.12 if q == 1 else 0.07
    for _ in range(steps):
        other = V + size * rng.normal(size=V.shape), logs + 2 * size * rng.normal(size=logs.shape)
        proposed = density(*other)
        taken = np.log(rng.random(chains)) < proposed - value
        V, logs = (
            np.where(taken[:, None, None], other[0], V),
            np.where(taken[:, None], other[1], logs),
        )
        value = np.where(taken, proposed, value)
    A, noise = posterior_draws(W, psi, n, rng, draws=4000)
    for found, wanted in ((noise, np.exp(logs)), (np.sum(A**2, axis=2), np.sum(V**2, axis=2))):
        for j in range(d):
            assert ks_2samp(found[:, j], wanted[:, j]).pvalue > 1e-4


@pytest.mark.parametrize("n, d, q", [(6, 12, 2), (4, 3, 1), (5, 6, 5)])
def test_few_rows_and_many_features_have_draws(n, d, q):
    rng = np.random.default_rng(0)
    W = rng.normal(size=(d, q))
    V, noise = posterior_draws(W, np.full(d, 0.1), n, rng, draws=20)
    assert np.all(np.isfinite(V)) and np.all(noise > 0)


def test_rotated_factors_have_the_covariances_of_those_that_are_not():
    rng = np.random.default_rng(1)
    W = rng.normal(size=(6, 2)) * 2
    X = rng.normal(size=(60, 2)) @ W.T + rng.normal(size=(60, 6))
    plain, turned = FactorAnalysis(2).fit(X), FactorAnalysis(2, rotation="varimax").fit(X)
    R = np.linalg.lstsq(plain.loadings_, turned.loadings_, rcond=None)[0]
    a, b = plain.posterior(X)[1], turned.posterior(X)[1]
    np.testing.assert_allclose(R.T @ a @ R, b, rtol=1e-6)
    gaps = np.where(np.arange(6) == 0, np.nan, X)
    a, b = (model.conditional(gaps)[1] for model in (plain, turned))
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-12)


# --- Coverage ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")
def test_factors_and_hidden_entries_are_covered_where_noise_is_fitted_as_none():
    rng, right, heywood = np.random.default_rng(2), [[], []], 0
    for _ in range(60):
        W = np.linalg.qr(rng.normal(size=(10, 2)))[0] * np.sqrt([8.0, 3.0])
        X = rng.normal(size=(30, 2)) @ W.T + rng.normal(size=(30, 10))
        z = rng.normal(size=(100, 2))
        new = z @ W.T + rng.normal(size=(100, 10))
        model = FactorAnalysis(2).fit(X)
        heywood += bool(model.heywood_)
        mean, covariance = model.posterior(new)
        truth = z * np.where(np.sum(mean * z, axis=0) < 0, -1, 1)
        gaps = new.copy()
        gaps[:, :2] = np.nan
        found, own = model.conditional(gaps, [0, 1])
        for k, (off, C) in enumerate(((mean - truth, covariance), (found - new[:, :2], own))):
            std = np.sqrt(np.diagonal(C, axis1=1, axis2=2))
            right[k].append(np.mean(np.abs(off) < 1.645 * std))
    assert heywood > 10
    assert all(0.87 <= np.mean(part) <= 0.935 for part in right)


def test_a_heywood_case_is_less_sure_than_its_noise_says():
    rng = np.random.default_rng(6)
    W = np.ones((5, 1)) * 0.7
    X = rng.normal(size=(20, 1)) @ W.T + rng.normal(size=(20, 5))
    with pytest.warns(HeywoodWarning):
        model = FactorAnalysis(2).fit(X)
    own, fixed = (model.posterior(X, parameters=p)[1] for p in ("auto", "fixed"))
    first = np.argmin(fixed[0].diagonal())
    assert np.all(own[:, first, first] > 50 * fixed[:, first, first])
