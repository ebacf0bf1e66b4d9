"""What errors of parameters add to posteriors, beside derivatives of dense posteriors."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from dualpca import PPCA, BayesianPCA, FactorAnalysis, RobustPPCA
from dualpca.errors import HeywoodWarning, SelectionWarning
from dualpca.gaussian import Factors, ParameterErrors, Reference

RNG = np.random.default_rng(0)


def posterior(W, mu, psi, x):
    """Return the posterior mean of z and of Wz + μ, by dense conditioning."""
    o = ~np.isnan(x)
    C = W[o] @ W[o].T + np.diag(psi[o])
    z = W[o].T @ np.linalg.solve(C, x[o] - mu[o])
    return z, W @ z + mu


def slopes(W, mu, psi, x, step=1e-6):
    """Return derivatives of E[z] and E[Wz + μ] by each (w_j, μ_j), (q or d, d, q + 1)."""
    d, q = W.shape
    found = [], []
    for j in range(d):
        for p in range(q + 1):
            ends = []
            for sign in (1, -1):
                V, m = W.copy(), mu.copy()
                if p < q:
                    V[j, p] += sign * step
                else:
                    m[j] += sign * step
                ends.append(posterior(V, m, psi, x))
            for k in range(2):
                found[k].append((ends[0][k] - ends[1][k]) / (2 * step))
    return (np.stack(part, axis=1).reshape(-1, d, q + 1) for part in found)


def drawn(d, q, n, diagonal, gaps):
    W, mu = RNG.normal(size=(d, q)) * 1.5, RNG.normal(size=d)
    psi = RNG.uniform(0.5, 1.5, d) if diagonal else np.full(d, 0.8)
    second = np.eye(q + 1) + 0.1 * np.cov(RNG.normal(size=(q + 1, 50)))
    scarce = RNG.uniform(1, 2, d) if gaps else None
    told = second if gaps else None
    reference = Reference(float(n), float(n), told=told, scarce=scarce)
    X = RNG.normal(size=(6, q)) @ W.T + mu + np.sqrt(psi) * RNG.normal(size=(6, d))
    if gaps:
        X[RNG.random(X.shape) < 0.3] = np.nan
        X[:, 0] = mu[0]
    return ParameterErrors.of(Factors(W, mu, psi), reference), X


@pytest.mark.parametrize("d, q", [(5, 1), (6, 3), (4, 4)])
@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("gaps", [False, True])
def test_signals_and_latents_are_off_as_derivatives_by_every_parameter_say(d, q, diagonal, gaps):
    errors, X = drawn(d, q, 50, diagonal, gaps)
    W, mu, psi = errors.factors.W, errors.factors.mu, errors.factors.psi
    c = np.ones(d) if errors.scarce is None else errors.scarce
    found = errors.signal_variance(X), errors.latent_covariance(X)
    for i, x in enumerate(X):
        o = ~np.isnan(x)
        C = np.linalg.inv(np.eye(q) + W[o].T @ (W[o] / psi[o, None]))
        of_z, of_s = slopes(W, mu, psi, x)
        B = (psi * c)[:, None, None] * errors.P
        latents = C + np.einsum("ajp,jpr,bjr->ab", of_z, B, of_z)
        # the signal of a feature moves with its own loading, too
        signal = np.diag(W @ C @ W.T) + np.einsum("ijp,jpr,ijr->i", of_s, B, of_s)
        z = posterior(W, mu, psi, x)[0][None, :]
        turned = errors.turned(z)[0]
        np.testing.assert_allclose(found[1][i] - turned, latents, rtol=1e-6)
        np.testing.assert_allclose(found[0][i], errors.inflation * signal, rtol=1e-6)


def test_unseen_entries_given_the_others_are_off_as_their_signals_and_their_noise():
    errors, X = drawn(6, 2, 40, False, True)
    covariance, signal = errors.of_unseen(X, np.arange(6)), errors.signal_variance(X)
    unseen = np.isnan(X)
    own = np.diagonal(covariance, axis1=1, axis2=2)
    expected = signal + errors.inflation * errors.factors.psi
    np.testing.assert_allclose(own[unseen], expected[unseen], rtol=1e-12)
    assert np.all(own[~unseen] == 0)
    one = errors.of_unseen(X, np.array([3, 1]))
    np.testing.assert_allclose(one, covariance[:, [3, 1]][:, :, [3, 1]], rtol=1e-12)
    np.testing.assert_allclose(errors.unseen_variance(X), own, rtol=1e-12)


@pytest.mark.parametrize(
    "model", [PPCA(2), BayesianPCA(2), RobustPPCA(2), FactorAnalysis(2)], ids=str
)
@pytest.mark.parametrize("gaps", [False, True])
def test_new_rows_are_filled_as_surely_as_their_conditional_says(model, gaps):
    rng = np.random.default_rng(3)
    W = rng.normal(size=(2, 6)) * 2
    X, new = (rng.normal(size=(n, 2)) @ W + rng.normal(size=(n, 6)) for n in (40, 12))
    X[rng.random(X.shape) < 0.15 * gaps] = np.nan
    new[rng.random(new.shape) < 0.3] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeywoodWarning)
        fitted, unseen = model.fit(X), np.isnan(new)
    std = fitted.impute(new, return_std=True)[1]
    own = np.diagonal(fitted.conditional(new)[1], axis1=1, axis2=2)
    np.testing.assert_allclose(std**2, own, rtol=1e-10)
    known = fitted.impute(new, return_std=True, parameters="fixed")[1]
    assert np.mean(std[unseen]) > np.mean(known[unseen]) and np.all(std[~unseen] == 0)
    estimated = fitted.impute(new, return_std=True, parameters="estimated")[1]
    np.testing.assert_array_equal(estimated, std)


def principal(W):
    """Return WR with orthogonal columns, the R next to the identity, longest first."""
    values, R = np.linalg.eigh(W.T @ W)
    R = R[:, np.argsort(-values)]
    return W @ (R * np.sign(np.diag(R)))


def test_axes_turn_as_the_eigenvectors_of_sample_covariances_do():
    """Latents of a signal that is nearly free of noise, in the axes of samples of n rows."""
    n, W = 400, np.diag([4.0, 2.0, 1.0])
    errors = ParameterErrors.of(Factors(W, np.zeros(3), np.full(3, 1e-8)), Reference(n, n))
    z = np.array([[1.0, -2.0, 0.5]])
    rng, found = np.random.default_rng(1), []
    for _ in range(4000):
        Z = rng.normal(size=(n, 3))
        root = np.linalg.cholesky(np.cov(Z.T, bias=True))
        V = principal(W @ root)  # loadings of these rows, up to a rotation that principal removes
        found.append(np.linalg.solve(V, W @ (z[0] - Z.mean(axis=0))))
    spread = np.cov(np.array(found).T)
    turned = errors.turned(z)[0]
    np.testing.assert_allclose(np.diag(turned), np.diag(spread), rtol=0.15)
    scale = np.sqrt(np.outer(np.diag(spread), np.diag(spread)))
    np.testing.assert_allclose(turned / scale, spread / scale, atol=0.1)


def test_equal_axes_are_not_known_but_bounded():
    W = np.vstack([2 * np.eye(2), np.zeros((2, 2))])
    errors = ParameterErrors.of(Factors(W, np.zeros(4), np.ones(4)), Reference(50.0, 50.0))
    turned = errors.turned(np.array([[3.0, 0.0]]))[0]
    assert turned[1, 1] == pytest.approx(9 / 2 + 1 / 50, rel=0.05)


# --- The way of complete rows, across its borders ------------------------------------------------


@pytest.mark.parametrize("n, d, q", [(30, 6, 1), (40, 6, 3), (40, 6, 5), (9, 7, 2), (200, 3, 2)])
@pytest.mark.parametrize("kind", [PPCA, BayesianPCA, RobustPPCA])
def test_complete_rows_and_rows_with_a_gap_are_judged_alike(kind, n, d, q):
    X = RNG.normal(size=(n, d)) * np.linspace(3, 1, d) + 5
    model = kind(q).fit(X)._model
    errors = model.errors
    mean = model.posterior(X)[0]
    shift = X - model.mean
    np.testing.assert_allclose(
        errors.complete.latent_covariance(mean, shift), errors.latent_covariance(X), rtol=1e-8
    )
    np.testing.assert_allclose(
        errors.complete.signal_variance(mean, shift), errors.signal_variance(X), rtol=1e-8
    )


@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("kind", [PPCA, BayesianPCA])
def test_a_typical_row_is_that_of_many_rows(kind, missing):
    """E of the variances over rows drawn from the model, beside `predictive`."""
    rng = np.random.default_rng(5)
    W = np.linalg.qr(rng.normal(size=(6, 2)))[0] * [3.0, 1.5]
    X = rng.normal(size=(50, 2)) @ W.T + rng.normal(size=(50, 6))
    X[:, 2:5] = np.where(rng.random((50, 3)) < missing, np.nan, X[:, 2:5])  # P is not diagonal
    model = kind(2).fit(X)
    rows = model.sample(50_000, random_state=0)
    std = model.reconstruct(rows, return_std=True, parameters="estimated")[1]
    errors = model._model.errors
    assert (errors.scarce is None) == (missing == 0)
    noise = errors.factors.psi[0] * errors.inflation
    covariance, fixed = (
        model.posterior_predictive(rows[:1], parameters=how)[1] for how in ("estimated", "fixed")
    )
    wanted = np.mean(std**2, axis=0) + noise
    np.testing.assert_allclose(np.diag(covariance), wanted, rtol=0.01)
    assert np.all(wanted > 1.02 * np.diag(fixed))


# --- Limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [PPCA, FactorAnalysis, RobustPPCA])
def test_with_more_and_more_rows_parameters_are_known(kind):
    rng = np.random.default_rng(3)
    W = np.array([[2.0, 1, 2, 1, 2, 1], [1.0, -1, 1, -1, -1, 1]]).T
    X = rng.normal(size=(200, 2)) @ W.T + rng.normal(size=(200, 6))
    model = kind(2).fit(X)
    fixed = model.posterior(X, parameters="fixed")[1]
    inner = model._model
    many = replace(inner.reference, n=1e12, divisor=1e12, alike=(0.0, 0.0))
    model._model = replace(inner, reference=many)
    found = model.posterior(X, parameters="estimated")[1]
    np.testing.assert_allclose(found, fixed, rtol=1e-5, atol=1e-9)
    assert np.array_equal(model.posterior(X)[1], fixed)  # 'auto' does not count them


def test_what_auto_does_and_words_that_are_refused():
    X = RNG.normal(size=(40, 2)) @ RNG.normal(size=(2, 8)) * 3 + RNG.normal(size=(40, 8))
    model = PPCA(2).fit(X)
    wide, narrow = (model.posterior(X, parameters=p)[1] for p in ("estimated", "fixed"))
    assert np.array_equal(model.posterior(X)[1], wide)
    assert np.all(np.diagonal(wide, axis1=1, axis2=2) > np.diagonal(narrow, axis1=1, axis2=2))
    assert np.shares_memory(narrow[0], narrow[1])
    for method in ("posterior", "conditional", "posterior_predictive"):
        with pytest.raises(ValueError, match="parameters must be one of"):
            getattr(model, method)(X, parameters="bootstrap")


def test_without_noise_and_without_directions_nothing_is_added():
    X = RNG.normal(size=(30, 4))
    model = PPCA(2, noise_variance=0).fit(X)
    assert np.all(model.posterior(X, parameters="estimated")[1] == 0)
    with pytest.warns(SelectionWarning, match="no direction is relevant"):
        none = BayesianPCA().fit(np.random.default_rng(1).normal(size=(500, 4)))
    assert np.all(np.isfinite(none.posterior(X)[1]))


def test_noise_that_was_given_is_not_made_larger():
    X = RNG.normal(size=(30, 2)) @ RNG.normal(size=(2, 6)) * 3 + RNG.normal(size=(30, 6))
    given = PPCA(2, noise_variance=1.0).fit(X)
    assert np.all(given._errors("auto").factors.psi == 1.0)
    assert np.all(PPCA(2).fit(X)._errors("auto").factors.psi > PPCA(2).fit(X).noise_variance_)


def test_units_follow():
    X = RNG.normal(size=(50, 2)) @ RNG.normal(size=(2, 6)) * 3 + RNG.normal(size=(50, 6))
    units = np.array([1.0, 10.0, 0.1, 1e3, 1.0, 2.0])
    one, other = (PPCA(2, standardize=True).fit(A) for A in (X, X * units))
    a, b = (m.reconstruct(A, return_std=True)[1] for m, A in ((one, X), (other, X * units)))
    np.testing.assert_allclose(a * units, b, rtol=1e-8)


def test_a_column_that_few_rows_observe_is_less_sure():
    W = np.ones((6, 1)) * 2
    X = RNG.normal(size=(80, 1)) @ W.T + RNG.normal(size=(80, 6))
    X[10:, 0] = np.nan
    model = PPCA(1).fit(X)
    std = model.reconstruct(RNG.normal(size=(5, 1)) @ W.T, return_std=True)[1]
    assert np.all(std[:, 0] > 1.1 * std[:, 1])


# --- Coverage ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_signals_latents_and_hidden_entries_of_new_rows_are_covered_at_thirty_rows(missing):
    rng, right = np.random.default_rng(7), [[], [], []]
    for _ in range(60):
        W = np.linalg.qr(rng.normal(size=(10, 2)))[0] * np.sqrt([8.0, 3.0])
        X = rng.normal(size=(30, 2)) @ W.T + rng.normal(size=(30, 10))
        z = rng.normal(size=(100, 2))
        signal = z @ W.T
        rows = signal + rng.normal(size=signal.shape)
        gaps = rows.copy()
        gaps[:, :2] = np.nan
        for A in (X, rows):
            hidden = rng.random(A.shape) < missing
            hidden[:, 5] = False
            A[hidden] = np.nan
        model = PPCA(2).fit(X)
        mean, covariance = model.posterior(rows)
        truth = z * np.where(np.sum(mean * z, axis=0) < 0, -1, 1)
        found, std = model.reconstruct(rows, return_std=True)
        held, own = model.conditional(gaps, [0, 1])
        for place, off, spread in (
            (0, mean - truth, np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))),
            (1, found - signal, std),
            (2, held - (signal[:, :2] + rng.normal(size=(100, 2))), None),
        ):
            s = np.sqrt(np.diagonal(own, axis1=1, axis2=2)) if spread is None else spread
            right[place].append(np.mean(np.abs(off) < 1.645 * s))
    assert all(0.87 <= np.mean(part) <= 0.935 for part in right)
