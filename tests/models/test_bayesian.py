"""Bayesian PCA, judged by dense EM, a dense bound and simulation."""

from dataclasses import replace

import numpy as np
import pytest

from dualpca import PPCA, BayesianPCA
from dualpca.data import InMemoryTable
from dualpca.gaussian.rules import SquaredLengths, fit_relevance, loglikelihood, penalty, threshold
from dualpca.kernels import Linear
from dualpca.models.bayesian import (
    Beliefs,
    CompleteRows,
    IncompleteRows,
    RelevanceFit,
    Updates,
    fit_incomplete_relevance,
)
from dualpca.operators.dual import Dual
from dualpca.operators.primal import Primal
from dualpca.solvers import solve
from tests.conftest import rest_slow
from tests.models.bayesian_cases import draw, remove
from tests.oracles import bayesian as dense
from tests.tolerances import assert_close, tolerance


def spectrum_of(X, q):
    operator = Primal(X, None)
    return solve(operator, q, "dense"), operator.n


CASES = {
    "tall": (draw(200, 6, (9.0, 4.0)), 5),
    "q = 1": (draw(60, 4, (5.0,)), 1),
    "all relevant": (draw(500, 5, (90.0, 60.0, 40.0, 20.0)), 4),
    "pure noise": (draw(100, 5), 4),
    "wide": (draw(20, 40, (60.0,)), 10),
    "little noise": (draw(60, 6, (4.0, 1.0), 0.03), 5),
    "weak": (draw(80, 6, (2.2, 1.9)), 5),
}


EVERY = pytest.mark.parametrize("name", CASES)


def scalar_step(spectrum, n, at):
    """Return lengths and noise after one EM step with re-estimated priors."""
    ell = spectrum.values / n
    return SquaredLengths(
        *dense.ard_scalar_step(ell, spectrum.trace / n, spectrum.dim, n, at.u, at.sigma2)
    )


# --- relevance from the spectrum --------------------------------------------------------


@EVERY
def test_newton_reaches_the_fixed_point_of_dense_em(name):
    X, q = CASES[name]
    W, sigma2 = dense.ard(X, q, 3000)
    found = fit_relevance(*spectrum_of(X, q))
    assert found.sigma2 == pytest.approx(sigma2, rel=1e-8)
    assert_close(found.u, np.sum(W**2, axis=0), "em", scale=np.max(W**2, initial=sigma2))


@pytest.mark.parametrize("seed", rest_slow(range(30), range(10)))
def test_newton_reaches_the_limit_of_em_whatever_the_spectrum(seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(10, 200)), int(rng.integers(3, 25))
    strong = rng.uniform(0.5, 6.0, int(rng.integers(0, d)))
    spectrum, n = spectrum_of(draw(n, d, strong, seed=seed), max(1, min(d - 1, n // 2)))
    found, ell = fit_relevance(spectrum, n), spectrum.values / n
    sigma2 = (spectrum.trace / n - ell.sum()) / (d - ell.size)
    at = SquaredLengths(ell - sigma2, sigma2)
    for _ in range(4000):
        at = scalar_step(spectrum, n, at)
        at = at._replace(u=np.where(at.u < 1e-13 * at.sigma2, 0.0, at.u))
    assert found.sigma2 == pytest.approx(at.sigma2, rel=1e-7)
    assert np.array_equal(found.kept, at.kept)


@EVERY
def test_scalar_step_is_the_dense_step(name):
    X, q = CASES[name]
    spectrum, n = spectrum_of(X, q)
    W, sigma2 = dense.ard_start(X, q)
    at = SquaredLengths(np.sum(W**2, axis=0), sigma2)
    for _ in range(5):
        W, sigma2 = dense.ard_step(X, W, sigma2)
        at = scalar_step(spectrum, n, at)
        assert_close(at.u, np.sum(W**2, axis=0), "vector")
        assert at.sigma2 == pytest.approx(sigma2, rel=1e-9)


@EVERY
def test_penalised_likelihood_never_falls(name):
    X, q = CASES[name]
    spectrum, n = spectrum_of(X, q)
    W, sigma2 = dense.ard_start(X, q)
    at = SquaredLengths(np.sum(W**2, axis=0), sigma2)
    values = []
    for _ in range(60):
        if np.any(at.u < 1e-8 * at.sigma2):
            break
        values.append(loglikelihood(spectrum, n, at) + penalty(at.u, spectrum.dim))
        at = scalar_step(spectrum, n, at)
    assert values[0] == pytest.approx(dense.penalised(X, W, sigma2), rel=1e-8)
    assert len(values) > 1
    assert np.all(np.diff(values) >= -tolerance("monotone") * (np.abs(values[:-1]) + X.size))


def test_threshold_is_where_a_direction_is_lost():
    X = draw(200, 6, (9.0, 4.0))
    spectrum, n = spectrum_of(X, 5)
    edge = float(spectrum.values[1]) / n / threshold(6 / n)
    assert fit_relevance(spectrum, n, 0.999 * edge).kept[1]
    assert not fit_relevance(spectrum, n, 1.001 * edge).kept[1]


def test_little_noise_is_maximum_likelihood_shrunk_by_the_prior():
    X, q = draw(60, 6, (4.0, 1.0), 1e-10), 2
    spectrum, n = spectrum_of(X, q)
    u = fit_relevance(spectrum, n).u
    np.testing.assert_allclose(u, spectrum.values / n / (1 + 6 / n), rtol=1e-6)


def test_dual_and_primal_are_the_same_model():
    X = draw(40, 6, (9.0, 4.0))
    spectrum, n = spectrum_of(X, 5)
    dual = solve(Dual(X, Linear(), dim=6), 5, "dense")
    assert_close(fit_relevance(dual, n).u, fit_relevance(spectrum, n).u, "vector")


# --- relevance from incomplete rows -----------------------------------------------------


@pytest.mark.parametrize("name", ["tall", "all relevant", "pure noise", "q = 1"])
def test_incomplete_em_on_complete_rows_is_the_spectral_answer(name):
    X, q = CASES[name]
    expected = fit_relevance(*spectrum_of(X, q))
    rng = np.random.default_rng(0)
    fit = RelevanceFit(InMemoryTable(X), q)
    factors, _, value = fit_incomplete_relevance(fit, rng, tol=1e-10, max_iter=5000)
    assert_close(factors.psi[0], expected.sigma2, "em")
    u = np.sum(factors.W**2, axis=0)
    assert_close(
        u[u > 0], expected.u[expected.kept], "em", scale=np.max(expected.u) + expected.sigma2
    )
    assert_close(factors.mu, X.mean(axis=0), "em")
    assert value == pytest.approx(loglikelihood(*spectrum_of(X, q), expected), 1e-8)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
@pytest.mark.parametrize("noise", [1.0, 0.01])
def test_incomplete_objective_never_falls_at_any_step(share, noise):
    X = remove(draw(150, 6, (9.0, 4.0), noise), share)
    fit = RelevanceFit(InMemoryTable(X), 2)
    theta = fit.begin(np.random.default_rng(0))
    values = []
    for _ in range(40):
        theta, value = fit.step(theta)
        values.append(value)
    assert np.all(np.diff(values) >= -tolerance("monotone") * (np.abs(values[:-1]) + X.size))


# --- the variational bound --------------------------------------------------------------


def rows_of(X):
    if not np.isnan(X).any():
        return CompleteRows(Primal(X, None))
    return IncompleteRows(RelevanceFit(InMemoryTable(X), 2))


def random_beliefs(updates, q, seed=0):
    rng, d, unit = np.random.default_rng(seed), updates.d, updates.rows.unit
    k = updates.rows.covariances
    A = rng.standard_normal((k, q, q + 2))
    S = 0.05 * unit * A @ A.transpose(0, 2, 1)
    W, mu = rng.standard_normal((d, q)), updates.rows.origin + 0.0
    if k > 1:
        mu = mu + 0.1 * rng.standard_normal(d)
    v, rate = rng.uniform(0.01, 0.1, d), rng.uniform(0.5, 2, q) * updates.a
    return Beliefs(W, S, mu, v, rate, updates.c * rng.uniform(0.5, 2.0))


def dense_bound(X, updates, at, **latents):
    S = np.broadcast_to(at.S, (updates.d, *at.S.shape[1:]))
    priors = (1e-3, updates.b0, 1e-3, updates.d0, updates.beta, updates.rows.origin)
    shapes = (updates.a, at.rate, updates.c, at.tau_rate)
    return dense.bound(X, at.W, S, at.mu, at.v, *shapes, priors, **latents)


TABLES = {
    "complete": draw(30, 5, (9.0, 4.0)),
    "holes": remove(draw(30, 5, (9.0, 4.0)), 0.3),
    "mostly holes": remove(draw(60, 5, (9.0, 4.0)), 0.6),
}


EVERY_TABLE = pytest.mark.parametrize("name", TABLES)


@EVERY_TABLE
@pytest.mark.parametrize("seed", range(3))
def test_bound_is_the_dense_one_term_by_term(name, seed):
    X = TABLES[name]
    X = X[~np.isnan(X).all(axis=1)]
    updates = Updates(rows_of(X))
    at = random_beliefs(updates, 2, seed)
    value = updates.bound(at, updates.rows.sums(at, updates.tau(at)))
    assert value == pytest.approx(dense_bound(X, updates, at), rel=1e-9)


def test_bound_is_the_expectation_that_it_claims_to_be():
    X = remove(draw(8, 3, (9.0,)), 0.2)
    updates = Updates(rows_of(X))
    at = random_beliefs(updates, 2)
    value = updates.bound(at, updates.rows.sums(at, updates.tau(at)))
    priors = (1e-3, updates.b0, 1e-3, updates.d0, updates.beta, updates.rows.origin)
    shapes = (updates.a, at.rate, updates.c, at.tau_rate)
    mean, error = dense.sampled_bound(X, at.W, at.S, at.mu, at.v, *shapes, priors, draws=400)
    assert error < 0.5
    assert abs(value - mean) < 4 * error


@EVERY_TABLE
def test_every_update_is_the_best_of_its_factor(name):
    X = TABLES[name]
    X = X[~np.isnan(X).all(axis=1)]
    updates, rng = Updates(rows_of(X)), np.random.default_rng(0)
    at = random_beliefs(updates, 2)
    tau = updates.tau(at)
    sums = updates.rows.sums(at, tau)
    S = np.broadcast_to(at.S, (updates.d, *at.S.shape[1:]))
    z, C = dense.latent_posterior(X, at.W, S, at.mu, tau)

    def value(at):
        return dense_bound(X, updates, at, z=z, C=C)

    noise = Beliefs(**{**vars(at), "tau_rate": updates.d0 + 0.5 * updates.misfit(at, sums, at.mu)})
    for best in (
        updates.update_loadings(at, sums, tau),
        updates.update_alpha(at),
        updates.update_mean(at, sums, tau, at.mu),
        noise,
    ):
        top = value(best)
        assert top > value(at)
        changed = [k for k in vars(at) if vars(best)[k] is not vars(at)[k]]
        for key in changed:
            for size in (-1e-2, 1e-2):
                now = vars(best)[key]
                other = now * (1 + size * (1 if key in ("S", "v", "tau_rate") else rng.random()))
                assert value(Beliefs(**{**vars(best), key: other})) < top + 1e-9 * abs(top)


@pytest.mark.parametrize("beta,moves", [(1e-3, True), (1.0, True), (1e2, False), (1e4, False)])
def test_latent_means_move_into_the_mean_where_the_bound_does_not_fall(beta, moves):
    X = TABLES["holes"]
    X = X[~np.isnan(X).all(axis=1)]
    updates = Updates(rows_of(X))
    updates.beta = beta  # from a vague prior of the mean to one that holds it
    at = random_beliefs(updates, 2)
    around, tau = at.mu - 2 * at.W[:, 0], updates.tau(at)
    sums = updates.rows.sums(replace(at, mu=around), tau)
    z, C = dense.latent_posterior(X, at.W, at.S, around, tau)
    nu = z.mean(axis=0)
    moved = replace(at, mu=at.mu + at.W @ nu)
    gain = dense_bound(X, updates, moved, z=z - nu, C=C) - dense_bound(X, updates, at, z=z, C=C)
    assert bool(gain > 0) is moves
    found, sums = updates.shift(at, sums, tau, around)
    np.testing.assert_allclose(found.mu, moved.mu if moves else at.mu, rtol=1e-9)
    np.testing.assert_allclose(sums.all_z, len(X) * (0 * nu if moves else nu), atol=1e-9)


@EVERY_TABLE
def test_bound_never_falls_from_anywhere(name):
    X = TABLES[name]
    updates = Updates(rows_of(X))
    at, values = random_beliefs(updates, 4), []
    for _ in range(60):
        at, value = updates.step(at)
        values.append(value)
    assert np.all(np.diff(values) >= -tolerance("monotone") * (np.abs(values[:-1]) + X.size))


def test_bound_lies_below_the_best_likelihood():
    X = draw(40, 3, (9.0,))
    updates = Updates(rows_of(X))
    low = updates.step(random_beliefs(updates, 1))[1]
    model = BayesianPCA(1, method="variational").fit(X)
    assert low < model.bound_ < PPCA(1).fit(X).loglikelihood_
