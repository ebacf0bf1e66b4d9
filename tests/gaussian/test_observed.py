"""gaussian/observed.py: what the observed entries of a row say, against dense conditioning."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, multivariate_t

from dualpca.gaussian import Factors, Incomplete, all_latents
from dualpca.gaussian.observed import conditional, drawn_imputations, imputed, predicted

D, Q = 5, 2


def factors(dof=np.inf):
    rng = np.random.default_rng(2)
    return Factors(rng.normal(size=(D, Q)), rng.normal(size=D), rng.uniform(0.2, 1.0, D), dof)


def rows(n=40):
    """Rows with every kind of gap: none, some, all but one, all."""
    rng = np.random.default_rng(3)
    at = factors()
    X = at.mu + rng.normal(size=(n, Q)) @ at.W.T + rng.normal(size=(n, D)) * np.sqrt(at.psi)
    X[rng.random(X.shape) < 0.3] = np.nan
    X[0], X[1], X[2, 1:] = at.mu + 0.5, np.nan, np.nan
    X[2, 0] = 1.0
    return X


def dense(at, x):
    """Posterior of z, and mean and covariance of x, given the entries that are there."""
    seen = ~np.isnan(x)
    C = at.W @ at.W.T + np.diag(at.psi)
    inverse = np.linalg.inv(C[np.ix_(seen, seen)])
    off = x[seen] - at.mu[seen]
    z = at.W[seen].T @ inverse @ off
    Z = np.eye(Q) - at.W[seen].T @ inverse @ at.W[seen]
    mean = at.mu + C[:, seen] @ inverse @ off
    return z, Z, mean, C - C[:, seen] @ inverse @ C[seen], float(off @ inverse @ off)


def test_posteriors_and_densities_are_the_dense_ones():
    at, X = factors(), rows()
    found = all_latents(at, X)
    C = at.W @ at.W.T + np.diag(at.psi)
    for k, x in enumerate(X):
        z, Z, _, _, far = dense(at, x)
        np.testing.assert_allclose(found.mean[k], z, atol=1e-10)
        np.testing.assert_allclose(found.covariance[k], Z, atol=1e-10)
        assert found.distance[k] == pytest.approx(far, abs=1e-10)
        seen = ~np.isnan(x)
        value = 0.0
        if seen.any():
            value = multivariate_normal(at.mu[seen], C[np.ix_(seen, seen)]).logpdf(x[seen])
        assert found.log_density[k] == pytest.approx(value, abs=1e-9)


def test_density_of_the_t_is_scipys():
    at, X = factors(dof=4.0), rows()
    found, C = all_latents(at, X).log_density, at.W @ at.W.T + np.diag(at.psi)
    for k, x in enumerate(X):
        seen = ~np.isnan(x)
        if seen.any():
            law = multivariate_t(at.mu[seen], C[np.ix_(seen, seen)], df=4.0)
            assert found[k] == pytest.approx(law.logpdf(x[seen]), abs=1e-9)


def test_filled_entries_are_conditional_means_and_others_stay():
    at, X = factors(), rows()
    filled, spread = imputed(at, X, spread=True)
    seen = ~np.isnan(X)
    np.testing.assert_array_equal(filled[seen], X[seen])
    np.testing.assert_array_equal(spread[seen], 0.0)
    for k, x in enumerate(X):
        _, _, mean, covariance, _ = dense(at, x)
        np.testing.assert_allclose(filled[k, ~seen[k]], mean[~seen[k]], atol=1e-10)
        variances = np.diag(covariance)[~seen[k]]
        np.testing.assert_allclose(spread[k, ~seen[k]] ** 2, variances, atol=1e-10)


def test_predictions_leave_out_the_entry_they_predict():
    at, X = factors(), rows(12)
    found = predicted(at, X)
    for k, x in enumerate(X):
        for j in np.flatnonzero(~np.isnan(x)):
            hidden = x.copy()
            hidden[j] = np.nan
            assert found[k, j] == pytest.approx(dense(at, hidden)[2][j], abs=1e-9)


def test_features_given_what_was_observed_are_the_dense_ones():
    """An observed feature is itself, without spread: the dense formula says so too."""
    at, X, wanted = factors(), rows(), [1, 3]
    mean, covariance = conditional(at, X, wanted)
    for k, x in enumerate(X):
        _, _, expected, spread, _ = dense(at, x)
        np.testing.assert_allclose(mean[k], expected[wanted], atol=1e-9)
        np.testing.assert_allclose(covariance[k], spread[np.ix_(wanted, wanted)], atol=1e-9)


def test_sums_of_the_e_step_are_those_over_rows():
    at, X = factors(), rows()
    weights = np.random.default_rng(4).uniform(0.5, 2.0, len(X))
    sums = Incomplete(X, weights, Q).sums(at)
    zz, xz, value = np.zeros((D, Q, Q)), np.zeros((D, Q)), 0.0
    for x, w in zip(X, weights, strict=True):
        z, Z, _, _, _ = dense(at, x)
        for j in np.flatnonzero(~np.isnan(x)):
            zz[j] += w * (Z + np.outer(z, z))
            xz[j] += w * (x[j] - at.mu[j]) * z
    np.testing.assert_allclose(sums.zz, zz, atol=1e-9)
    np.testing.assert_allclose(sums.xz, xz, atol=1e-9)
    value = weights @ all_latents(at, X).log_density
    assert float(sums.loglikelihood) == pytest.approx(value, rel=1e-12)


def test_draws_have_the_conditional_mean_and_spread():
    at, X = factors(), rows(4)
    draws = drawn_imputations(at, X, 20_000, np.random.default_rng(5))
    filled, spread = imputed(at, X, spread=True)
    error = 6 * spread / np.sqrt(20_000) + 1e-12
    assert np.all(np.abs(draws.mean(axis=0) - filled) < error)
    np.testing.assert_allclose(draws.std(axis=0), spread, rtol=0.05, atol=1e-12)


def test_without_latents_every_feature_is_on_its_own():
    X = rows()
    at = Factors(np.zeros((D, 0)), factors().mu, factors().psi)
    off = (X - at.mu) ** 2 / at.psi + np.log(2 * np.pi * at.psi)
    found = Incomplete(X, None, 0).sums(at)
    assert float(found.loglikelihood) == pytest.approx(-0.5 * np.nansum(off), rel=1e-12)
