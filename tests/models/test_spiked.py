"""A step of EM is the loop over points, weighted, in the dual, and it climbs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualpca.kernels import Linear
from dualpca.models.spiked import ppca_step
from dualpca.operators.dual import Dual
from dualpca.operators.primal import Primal
from tests import oracles
from tests.likelihood_cases import NEAR, assert_never_falls, rounding_of_likelihood
from tests.spectra import (
    cases,
    geometric,
    make_case,
)
from tests.tolerances import assert_close

# Cases are drawn by their spectrum: a column may happen to have hardly a share in it.
pytestmark = pytest.mark.filterwarnings("ignore::dualpca.errors.ScaleWarning")


@given(case=cases(), seed=st.integers(0, 1000))
def test_em_step_is_the_loop_over_points(case, seed):
    rng = np.random.default_rng(seed)
    W = np.sqrt(case.ell[0]) * rng.standard_normal((case.d, case.q))
    sigma2 = float(case.ell[0] * rng.uniform(0.05, 2))
    W_new, sigma2_new, value = ppca_step(Primal(case.X), W, sigma2, case.n)
    expected_W, expected_sigma2 = oracles.em_step(case.X, W, sigma2)
    assert_close(W_new, expected_W, "vector")
    assert_close(sigma2_new, expected_sigma2, "vector")
    C = W @ W.T + sigma2 * np.eye(case.d)
    expected = oracles.loglikelihood(case.X, oracles.mean(case.X), C)
    assert_close(value, expected, "density", scale=abs(expected) + case.X.size)


def test_weighted_em_step_is_the_weighted_loop():
    case, rng = make_case("tall", geometric), np.random.default_rng(0)
    w, W, sigma2 = rng.uniform(0, 3, case.n), rng.standard_normal((case.d, 2)), 0.4
    W_new, sigma2_new, value = ppca_step(Primal(case.X, w), W, sigma2, w.sum())
    expected_W, expected_sigma2 = oracles.em_step(case.X, W, sigma2, w)
    assert_close(W_new, expected_W, "covariance")
    assert_close(sigma2_new, expected_sigma2, "covariance")
    C = W @ W.T + sigma2 * np.eye(case.d)
    expected = oracles.loglikelihood(case.X, oracles.mean(case.X, w), C, w)
    assert_close(value, expected, "density")


def test_em_step_in_the_dual_is_the_step_in_the_primal():
    # W = Xc^T A: one step on coefficients A with Kc is one step on W with the scatter
    case, rng = make_case("wide", geometric), np.random.default_rng(0)
    Xc = case.X - case.X.mean(axis=0)
    _, E = oracles.eigh_descending(Xc @ Xc.T)
    V = Xc.T @ E[:, : case.n - 1]
    V /= np.linalg.norm(V, axis=0)
    coordinates = rng.standard_normal((case.n - 1, 2))
    W, B = V @ coordinates, E[:, : case.n - 1] @ coordinates  # the same model in two bases
    W_new, sigma2_new, value = ppca_step(Primal(case.X), W, 0.3, case.n)
    dual = Dual(case.X, Linear(), dim=case.d)
    B_new, sigma2_dual, value_dual = ppca_step(dual, B, 0.3, case.n)
    assert_close(V.T @ np.asarray(W_new), E[:, : case.n - 1].T @ np.asarray(B_new), "vector")
    assert_close(sigma2_dual, sigma2_new, "vector")
    assert_close(value_dual, value, "density")


@given(case=cases(means=NEAR), seed=st.integers(0, 1000))
def test_every_em_step_climbs(case, seed):
    rng = np.random.default_rng(seed)
    W = np.sqrt(case.ell[0] / case.d) * rng.standard_normal((case.d, case.q))
    sigma2, values, rep = float(case.ell.sum() / case.d), [], Primal(case.X)
    for _ in range(25):
        W, sigma2, value = ppca_step(rep, W, sigma2, case.n)
        values.append(float(value))
        assert sigma2 > 0
    assert_never_falls(values, case.X.size, rounding_of_likelihood(case.ell, case.n, case.q))
