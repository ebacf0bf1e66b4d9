"""The oracles against each other and against published code: a wrong reference proves nothing."""

import numpy as np
import pytest
from hypothesis import given

from tests import oracles
from tests.spectra import KINDS, SHAPES, cases, make_case
from tests.tolerances import assert_close, assert_log_density


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("shape", SHAPES)
def test_cases_have_the_spectrum_they_claim(shape, kind):
    case = make_case(shape, kind, mean=3.0)
    ell, _ = oracles.eigh_descending(oracles.covariance(case.X))
    assert_close(ell, case.ell, "eigenvalue")


@given(case=cases())
def test_two_dense_densities_agree(case):
    model = oracles.ppca(case.X, case.q)
    C = model.covariance
    expected = oracles.log_density(case.X, model.mean, C)
    assert_log_density(oracles.log_density_solve(case.X, model.mean, C), expected, case.d)


@given(case=cases())
def test_profile_likelihood_is_the_likelihood_of_the_fitted_model(case):
    model = oracles.ppca(case.X, case.q)
    direct = oracles.loglikelihood(case.X, model.mean, model.covariance)
    profile = oracles.profile_loglikelihood(case.ell, case.n, case.q)
    assert_log_density(profile, direct, case.n * case.d)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_parameters_by_formula_are_the_rank_of_the_jacobian(d):
    for q in range(1, d + 1):
        assert oracles.n_parameters(d, q, mean=False) == oracles.n_parameters_by_rank(d, q)


def test_em_loop_is_the_combined_formula():
    X = make_case("tall", KINDS[0]).X
    S = oracles.covariance(X)
    W, sigma2 = np.random.default_rng(0).standard_normal((6, 2)), 0.3
    M_inv = np.linalg.inv(W.T @ W + sigma2 * np.eye(2))
    W_new = S @ W @ np.linalg.inv(sigma2 * np.eye(2) + M_inv @ W.T @ S @ W)
    sigma2_new = np.trace(S - S @ W @ M_inv @ W_new.T) / 6
    loop_W, loop_sigma2 = oracles.em_step(X, W, sigma2)
    assert_close(loop_W, W_new, "covariance")
    assert_close(loop_sigma2, sigma2_new, "covariance")


def test_evidence_with_the_exact_tail_is_scikit_learns():
    from sklearn.decomposition._pca import _assess_dimension

    ell = np.array([5.0, 3.0, 1.1, 0.9, 0.6, 0.5])
    ours = [oracles.minka_evidence(ell, 50, k, tail="exact") for k in range(1, 6)]
    theirs = [_assess_dimension(ell, k, 50) for k in range(1, 6)]
    assert_close(ours, theirs, "covariance")


def test_weighted_kernel_spectrum_is_the_spectrum_of_repeated_rows():
    X, counts = make_case("square", KINDS[0]).X, np.arange(12) % 4
    repeated = oracles.repeat(X, counts)
    expected = oracles.eigh_descending(oracles.centred_kernel(repeated @ repeated.T))[0][:8]
    assert_close(oracles.weighted_kernel_spectrum(X @ X.T, counts)[:8], expected, "eigenvalue")
    S = oracles.covariance(X, counts) * counts.sum()
    assert_close(oracles.eigh_descending(S)[0][:8], expected, "eigenvalue")
