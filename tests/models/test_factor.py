"""Factor analysis: the dense likelihood is the judge."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.datasets import load_wine

from dualpca import FactorAnalysis
from dualpca.data import InMemoryTable
from dualpca.gaussian import all_latents
from dualpca.models import factor as factors
from dualpca.models.factor import factor_step
from dualpca.models.incomplete import Fit
from dualpca.operators.primal import Primal
from tests.models.factor_cases import table
from tests.tolerances import assert_close


def test_one_step_is_the_loop_over_points():
    X = table(n=30, d=4)
    Xc = X - X.mean(axis=0)
    rng = np.random.default_rng(1)
    W, psi = rng.standard_normal((4, 2)), rng.uniform(0.5, 1.5, 4)
    P = np.linalg.inv(np.eye(2) + W.T @ np.diag(1 / psi) @ W)
    z = [P @ W.T @ (x / psi) for x in Xc]
    zz = sum(P + np.outer(a, a) for a in z)
    expected = sum(np.outer(x, a) for x, a in zip(Xc, z, strict=True)) @ np.linalg.inv(zz)
    cross = sum(np.outer(a, x) for x, a in zip(Xc, z, strict=True))
    noise = np.diag(Xc.T @ Xc - expected @ cross) / 30
    W_new, psi_new, value = factor_step(Primal(X), W, psi, 30.0)
    np.testing.assert_allclose(W_new, expected @ np.linalg.cholesky(zz / 30), rtol=1e-10)
    np.testing.assert_allclose(psi_new, noise, rtol=1e-10)
    dense = multivariate_normal(np.zeros(4), W @ W.T + np.diag(psi)).logpdf(Xc).sum()
    assert value == pytest.approx(dense, rel=1e-12)


def test_gradient_of_the_observed_likelihood_is_the_finite_difference():
    rows = InMemoryTable(table(n=40, d=5, missing=0.3))
    fit = Fit(rows, 2, diagonal=True)
    theta = fit.begin(np.random.default_rng(0))
    steps = 1e-6 * np.eye(theta.size)
    central = [(fit.slope(theta + h)[0] - fit.slope(theta - h)[0]) / 2e-6 for h in steps]
    np.testing.assert_allclose(fit.slope(theta)[1], central, rtol=1e-5, atol=1e-5)


# --- complete rows: one product, and Newton's method ----------------------------------


def test_complete_rows_are_answered_as_those_with_missing_values():
    X = table()
    model = FactorAnalysis(2).fit(X)
    found = all_latents(model._model.factors, X)
    assert_close(model.transform(X), found.mean, "vector")
    assert_close(model.score_samples(X), found.log_density, "density")
    holes = X.copy()
    holes[3, 2] = np.nan
    assert_close(model.transform(holes)[4:], found.mean[4:], "vector")
    assert_close(model.score_samples(holes)[4:], found.log_density[4:], "density")
    assert not np.isnan(model.transform(holes)).any()


def test_newton_ends_where_quasi_newton_does(monkeypatch):
    X = load_wine().data
    newton = FactorAnalysis(3, tol=1e-8).fit(X)
    assert np.all(np.diff(newton.loglikelihoods_) >= 0)
    monkeypatch.setattr(factors, "SMALL", 0)
    other = FactorAnalysis(3, tol=1e-8).fit(X)
    assert newton.converged_ and other.converged_
    assert_close(newton.loglikelihood_, other.loglikelihood_, "em")
    assert np.allclose(newton.noise_variance_, other.noise_variance_, rtol=1e-5)


def test_newton_ends_no_lower_than_quasi_newton(monkeypatch):
    rng = np.random.default_rng(14)
    W = rng.standard_normal((10, 2)) * [3.0, 2.0]
    X = rng.standard_normal((200, 2)) @ W.T + np.sqrt(0.5) * rng.standard_normal((200, 10))
    newton = FactorAnalysis(3, tol=1e-5).fit(X)  # a factor too many: also Heywood cases are maxima
    monkeypatch.setattr(factors.Profile, "is_identified", False)
    quasi = FactorAnalysis(3, tol=1e-5).fit(X)
    assert newton.score(X) > quasi.score(X) - 1e-7


@pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")  # both maxima are
def test_a_heywood_case_is_compared_with_where_quasi_newton_ends(monkeypatch):
    rng = np.random.default_rng(11)
    X = rng.standard_normal((60, 2)) @ rng.standard_normal((10, 2)).T
    X += np.sqrt(0.5) * rng.standard_normal(X.shape)
    both = FactorAnalysis(3, tol=1e-6).fit(X)
    monkeypatch.setattr(factors, "TIE", np.inf)
    newton = FactorAnalysis(3, tol=1e-6).fit(X)
    monkeypatch.setattr(factors.Profile, "is_identified", False)
    quasi = FactorAnalysis(3, tol=1e-6).fit(X)
    assert quasi.loglikelihood_ > newton.loglikelihood_ + 0.5
    assert_close(both.loglikelihood_, quasi.loglikelihood_, "em")
    assert both.heywood_ == quasi.heywood_ != newton.heywood_


def test_profile_of_many_features_is_the_dense_likelihood(monkeypatch):
    monkeypatch.setattr(factors, "SMALL", 0)
    profile, logs = factors.Profile(Primal(table()), 5), np.log(np.linspace(0.4, 1.0, 8))
    theta = profile.loadings(np.exp(logs))[1]
    assert theta[0] > 2 > theta[2] > 1 > theta[-1]  # large, small and none

    def dense(logs):
        W = profile.loadings(np.exp(logs))[0]
        C = W @ W.T + np.diag(np.exp(logs))
        return np.linalg.slogdet(C)[1] + np.trace(np.linalg.solve(C, profile.R))

    value, slope = profile(logs)
    assert_close(value, dense(logs), "density")
    for j, e in enumerate(1e-5 * np.eye(8)):
        assert slope[j] == pytest.approx((dense(logs + e) - dense(logs - e)) / 2e-5, abs=1e-7)


@pytest.mark.parametrize("d", range(2, 14))
def test_own_noise_is_looked_for_where_factors_can_be_told_from_it(d, monkeypatch):
    """Where (d − q)² ≥ d + q (Ledermann 1937): more factors explain whatever noise there is."""

    class Looked(Exception):
        pass

    def look(*arguments, **options):
        raise Looked

    monkeypatch.setattr(factors, "Fit", look)
    rows = InMemoryTable(np.random.default_rng(0).normal(size=(50, d)))
    for q in range(1, d):
        model = SimpleNamespace(n_components=q)
        if (d - q) ** 2 < d + q:
            assert factors.own_noise(rows, model) is None
        else:
            with pytest.raises(Looked):
                factors.own_noise(rows, model)
