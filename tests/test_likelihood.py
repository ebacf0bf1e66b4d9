"""Densities are the dense ones, the fit is a maximum, and EM only climbs."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from dualpca import PCA, PPCA
from dualpca.gaussian.rules import maximum_likelihood
from dualpca.operators.primal import Primal
from dualpca.solvers import solve
from dualpca.solvers.base import SOLVERS
from tests import oracles
from tests.likelihood_cases import NEAR, assert_never_falls, rounding_of_likelihood
from tests.spectra import (
    BENIGN,
    cases,
    close,
    geometric,
    harmonic,
    make_case,
    spiked,
    with_spectrum,
)
from tests.tolerances import assert_close, assert_log_density, tolerance

# Cases are drawn by their spectrum: a column may happen to have hardly a share in it.
pytestmark = pytest.mark.filterwarnings("ignore::dualpca.errors.ScaleWarning")


def fit_em(X, q, max_iter=200, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return PPCA(n_components=q, method="em", max_iter=max_iter, **options).fit(X)


def own_model(model):
    """Return a fitted PPCA as the oracles' Model."""
    return oracles.Model(
        np.asarray(model.mean_, dtype=float),
        np.asarray(model.loadings_, dtype=float),
        float(model.noise_variance_),
    )


# --- densities ------------------------------------------------------------------------


@given(case=cases())
def test_score_samples_is_the_dense_density(case):
    model = PPCA(n_components=case.q).fit(case.X)
    own = own_model(model)
    sd = np.sqrt(case.ell[0])
    new = case.X[:5] + sd * np.random.default_rng(0).standard_normal((5, case.d)) * 0.1
    assert_log_density(
        model.score_samples(new), oracles.log_density(new, own.mean, own.covariance), case.d
    )


@given(case=cases())
def test_pca_score_samples_is_the_density_of_its_covariance(case):
    model = PCA(n_components=case.q).fit(case.X)
    expected = oracles.log_density(case.X, model.mean_, model.get_covariance())
    assert_log_density(model.score_samples(case.X), expected, case.d)


@pytest.mark.parametrize("method", ["closed", "em"])
@given(case=cases(means=NEAR))
def test_loglikelihood_is_the_sum_over_the_training_points(case, method):
    model = PPCA(n_components=case.q)
    if method == "em":
        model = fit_em(case.X, case.q, max_iter=20, random_state=0)
    else:
        model.fit(case.X)
    total = np.sum(model.score_samples(case.X))
    scale = abs(total) + case.X.size
    scale += rounding_of_likelihood(case.ell, case.n, case.q) / tolerance("density")
    assert_close(model.loglikelihood_, total, "density", scale=scale)
    assert_close(model.loglikelihoods_[-1], total, "density", scale=scale)
    assert model.score(case.X) == pytest.approx(total / case.n)


def test_weighted_loglikelihood_is_the_weighted_sum():
    case = make_case("tall", geometric, q=2)
    w = np.random.default_rng(0).uniform(0, 3, case.n)
    model = PPCA(n_components=2).fit(case.X, sample_weight=w)
    assert_close(model.loglikelihood_, w @ np.asarray(model.score_samples(case.X)), "density")


# --- the fit is a maximum -------------------------------------------------------------


@given(case=cases(), seed=st.integers(0, 1000))
def test_no_perturbation_is_more_likely(case, seed):
    own = own_model(PPCA(n_components=case.q).fit(case.X))
    best = oracles.loglikelihood(case.X, own.mean, own.covariance)
    rng = np.random.default_rng(seed)
    slack = tolerance("density") * (abs(best) + case.X.size)
    for size in (1e-4, 1e-2, 1.0):
        W = own.W + size * np.sqrt(case.ell[0]) * rng.standard_normal(own.W.shape) / np.sqrt(case.d)
        mu = own.mean + size * np.sqrt(own.sigma2) * rng.standard_normal(case.d)
        for sigma2 in (own.sigma2, own.sigma2 * (1 + size), own.sigma2 / (1 + size)):
            for w, m in ((W, own.mean), (own.W, mu), (own.W, own.mean)):
                C = w @ w.T + sigma2 * np.eye(case.d)
                assert oracles.loglikelihood(case.X, m, C) <= best + slack


@pytest.mark.parametrize("shape", ["tall", "wide", "square"])
def test_gradient_vanishes_at_the_fit(shape):
    # C^-1 S C^-1 W = C^-1 W, and the trace of C^-1 - C^-1 S C^-1 is zero
    case = make_case(shape, geometric, mean=1.0)
    own = own_model(PPCA(n_components=2).fit(case.X))
    S, P = oracles.covariance(case.X), np.linalg.inv(own.covariance)
    assert_close(P @ S @ P @ own.W, P @ own.W, "vector")
    assert_close(np.trace(P @ S @ P), np.trace(P), "vector")


# --- EM ------------------------------------------------------------------------------


@given(case=cases(means=NEAR), seed=st.integers(0, 1000))
def test_likelihood_never_falls_during_em(case, seed):
    model = fit_em(case.X, case.q, max_iter=100, random_state=seed, tol=0.0)
    assert len(model.loglikelihoods_) >= 1
    rounding = rounding_of_likelihood(case.ell, case.n, case.q)
    assert_never_falls(model.loglikelihoods_, case.X.size, rounding)


SLOW = {
    "one per cent": [3.0, 2.0, 1.01, 1.0, 0.99, 0.9],
    "a millionth": [3.0, 2.0, 1.000001, 1.0, 0.999999, 0.9],
    "equal at q": [3.0, 2.0, 1.0, 1.0, 1.0, 0.5],
    "almost flat": [1.001, 1.0005, 1.0001, 1.0, 0.9999, 0.999],
    "noise-free": [3.0, 2.0, 1.0, 1e-8, 1e-8, 1e-8],
    "far above the noise": [1e4, 1e3, 1e2, 1e-2, 1e-2, 1e-2],
}


@pytest.mark.grid
@pytest.mark.parametrize("name", SLOW)
@pytest.mark.parametrize("seed", range(3))
def test_likelihood_never_falls_where_em_is_slow(name, seed):
    X = with_spectrum(50, 6, SLOW[name], mean=1.0, seed=seed)
    model = fit_em(X, 3, max_iter=300, random_state=seed, tol=0.0)
    rounding = rounding_of_likelihood(np.array(SLOW[name]), len(X), 3)
    assert_never_falls(model.loglikelihoods_, X.size, rounding)
    closed = PPCA(n_components=3).fit(X)
    assert model.loglikelihood_ <= closed.loglikelihood_ + 1e-8 * abs(closed.loglikelihood_)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one per cent", "almost flat", "far above the noise"])
def test_em_reaches_the_maximum_where_it_is_slow(name):
    X = with_spectrum(50, 6, SLOW[name], mean=1.0)
    model = fit_em(X, 3, max_iter=5000, random_state=0, tol=0.0)
    closed = PPCA(n_components=3).fit(X)
    assert_close(model.loglikelihood_, closed.loglikelihood_, "em")


@pytest.mark.parametrize("kind", [geometric, harmonic, close, spiked], ids=lambda k: k.__name__)
@pytest.mark.parametrize("shape", ["tall", "wide"])
def test_em_with_its_defaults_converges_and_says_so(shape, kind):
    case = make_case(shape, kind, q=2, mean=1.0)
    model = PPCA(n_components=2, method="em", random_state=0).fit(case.X)  # no ConvergenceWarning
    assert model.converged_
    assert model.n_iter_ >= 1
    rounding = rounding_of_likelihood(case.ell, case.n, 2)
    assert_never_falls(model.loglikelihoods_, case.X.size, rounding)


def test_em_that_stops_early_warns_and_says_so():
    X = with_spectrum(50, 6, SLOW["one per cent"], mean=1.0)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model = PPCA(n_components=3, method="em", max_iter=2, tol=0.0, random_state=0).fit(X)
    assert not model.converged_
    assert model.n_iter_ == 2


def test_closed_form_is_done_at_once():
    model = PPCA(n_components=2).fit(make_case("tall", BENIGN[0]).X)
    assert model.converged_
    assert_close(model.loglikelihoods_[-1], model.loglikelihood_, "exact")


# --- nested models --------------------------------------------------------------------


@given(case=cases())
def test_more_components_are_never_less_likely(case):
    rank = np.count_nonzero(case.ell > 1e-6 * case.ell[0])
    sizes = range(1, min(rank, 6))
    values = [PPCA(n_components=q).fit(case.X).loglikelihood_ for q in sizes]
    rounding = max((rounding_of_likelihood(case.ell, case.n, q) for q in sizes), default=0.0)
    assert_never_falls(values, case.X.size, rounding)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("shape", [(30, 5), (5, 30)])
def test_no_direction_at_all_is_a_model_of_noise(solver, shape):
    X = np.random.default_rng(0).normal(size=shape)
    spectrum = solve(Primal(X), 0, solver)
    assert spectrum.values.shape == (0,) and spectrum.vectors.shape == (shape[1], 0)
    assert maximum_likelihood(spectrum, shape[0], 0).noise == pytest.approx(X.var(axis=0).mean())
