"""Primal and dual are one model: the same numbers from features and from the linear kernel.

Also the identities of the spiked Gaussian (one spectrum, one Gaussian) against dense algebra.
"""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dualpca.gaussian.rules import maximum_likelihood
from dualpca.kernels import RBF, Linear
from dualpca.operators.dual import Dual
from dualpca.operators.primal import Primal
from dualpca.solvers import solve
from tests import oracles
from tests.representations import lifted, projected
from tests.spectra import BENIGN, KINDS, cases, flat, harmonic, make_case
from tests.tolerances import assert_close, assert_log_density, tolerance

WEIGHTS = ("none", "random", "with zeros")


NEAR = (0.0, 1.0)  # means, in standard deviations: a kernel matrix keeps the digits of ||x||^2 only


def draw_weights(kind, n, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "none":
        return None
    w = rng.uniform(0.2, 3.0, n)
    if kind == "with zeros":
        w[rng.choice(n, n // 4, replace=False)] = 0.0
    return w


def both(X, weights, center, q):
    """Return (representation, spectrum, model) of the primal and of the dual."""
    out = []
    for rep in (
        Primal(X, weights, center=center),
        Dual(X, Linear(), weights, center=center, dim=X.shape[1]),
    ):
        spectrum = solve(rep, q)
        out.append((rep, spectrum, maximum_likelihood(spectrum, rep.n, q)))
    return out


def new_points(case, seed=1):
    """Return points that are not in the training set, some of them far away."""
    rng = np.random.default_rng(seed)
    sd = np.sqrt(np.sum(case.ell) / case.d)
    return (
        case.X.mean(axis=0)
        + sd * rng.standard_normal((7, case.d)) * np.geomspace(0.1, 10, 7)[:, None]
    )


# --- one spectrum ---------------------------------------------------------------------


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("weights", WEIGHTS)
@given(case=cases(kinds=KINDS))
@example(case=make_case("tall", flat, 1, 30.0, 1e-6))  # rounding puts the noise above ell_q
@example(case=make_case("square", harmonic, 9, 30.0, 1e-6))  # as it does beyond the rank
def test_primal_and_dual_spectra_are_equal(case, weights, center):
    w = draw_weights(weights, case.n)
    (_, primal, _), (_, dual, _) = both(case.X, w, center, case.q)
    n = case.n if w is None else w.sum()
    expected = n * oracles.eigh_descending(oracles.covariance(case.X, w, center))[0]
    # centring a kernel matrix subtracts numbers of its own size: squared norms, not variances
    size = max(expected[0], n * np.max(np.sum(case.X**2, axis=1)))
    assert_close(primal.values, expected[: case.q], "eigenvalue", scale=expected[0])
    assert_close(dual.values, expected[: case.q], "eigenvalue", scale=size)
    assert_close(primal.trace, expected.sum(), "eigenvalue")
    assert_close(dual.trace, expected.sum(), "eigenvalue", scale=size)
    assert primal.dim == dual.dim == case.d


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("shape", ["tall", "wide", "square"])
def test_operators_are_their_dense_matrices(shape, weights, center):
    X = make_case(shape, BENIGN[1], mean=2.0).X
    n, d = X.shape
    w = draw_weights(weights, n)
    total, root = (n, np.ones(n)) if w is None else (w.sum(), np.sqrt(w))
    Kc = oracles.centred_kernel(X @ X.T, w) if center else X @ X.T
    expected = {
        "primal": total * oracles.covariance(X, w, center),
        "dual": root[:, None] * Kc * root[None, :],
    }
    reps = {
        "primal": Primal(X, w, center=center),
        "dual": Dual(X, Linear(), w, center=center),
    }
    rng = np.random.default_rng(0)
    for name, rep in reps.items():
        A = expected[name]
        V = rng.standard_normal((len(A), 3))
        assert tuple(rep.shape) == A.shape
        assert rep.n == pytest.approx(total)
        assert rep.dim == (d if name == "primal" else n)
        assert_close(rep.dense(), A, "eigenvalue")
        assert_close(rep @ V, A @ V, "eigenvalue")
        assert_close(rep.diag(), np.diag(A), "eigenvalue")
        assert_close(rep.trace, np.trace(A), "eigenvalue")


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("center", [True, False])
def test_rbf_dual_spectrum_is_that_of_the_centred_kernel(center, weights):
    X = make_case("tall", BENIGN[0]).X
    w = draw_weights(weights, len(X))
    gamma = 0.7
    K = np.exp(-gamma * ((X[:, None, :] - X[None, :, :]) ** 2).sum(-1))
    spectrum = solve(Dual(X, RBF(gamma=gamma), w, center=center), 5)
    expected = oracles.weighted_kernel_spectrum(K, w, center)
    assert_close(spectrum.values, expected[:5], "eigenvalue")
    assert_close(spectrum.trace, expected.sum(), "eigenvalue")


# --- one model ------------------------------------------------------------------------


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("weights", WEIGHTS)
@given(case=cases(means=NEAR))
def test_primal_and_dual_likelihoods_are_the_dense_one(case, weights, center):
    w = draw_weights(weights, case.n)
    S = oracles.covariance(case.X, w, center)
    ell = oracles.eigh_descending(S)[0]
    q = min(case.q, max(np.count_nonzero(ell > 1e-9 * ell[0]) - 1, 1))
    if ell[q:].sum() < 1e-7 * ell[0]:
        return  # the drawn weights left no noise: the density is singular
    model = oracles.ppca(case.X, q, w, center)
    expected = oracles.loglikelihood(case.X, model.mean, model.covariance, w)
    for rep, spectrum, gaussian in both(case.X, w, center, q):
        scale = rep.n * case.d
        assert_close(gaussian.noise, model.sigma2, "eigenvalue", scale=ell[0])
        value = gaussian.loglikelihood(rep.n, spectrum.trace)
        assert_close(value, expected, "density", scale=abs(expected) + scale)


@pytest.mark.parametrize("center", [True, False])
@given(case=cases(gapped=True, means=NEAR), data=st.data())
def test_primal_and_dual_agree_on_new_points(case, center, data):
    w = draw_weights(data.draw(st.sampled_from(WEIGHTS)), case.n)
    ell = oracles.eigh_descending(oracles.covariance(case.X, w, center))[0]
    q = case.q
    if ell[q:].sum() < 1e-7 * ell[0] or ell[q - 1] - ell[q] < 1e-3 * ell[q - 1]:
        return  # after weighting, no noise or no gap: nothing to compare point by point
    model, new = oracles.ppca(case.X, q, w, center), new_points(case)
    mean_norm = np.linalg.norm(oracles.posterior(new, model)[0], axis=1)
    density = oracles.log_density(new, model.mean, model.covariance)
    fill = oracles.reconstruction(new, model)
    for rep, spectrum, gaussian in both(case.X, w, center, q):
        y, residual = projected(rep, spectrum, new)
        assert np.all(np.asarray(residual) >= 0)
        assert_log_density(gaussian.log_density(y, residual), density, case.d)
        # the latent axes have no sign and, among equal eigenvalues, no direction: compare lengths
        assert_close(np.linalg.norm(gaussian.posterior_mean(y), axis=1), mean_norm, "vector")
        assert_close(lifted(rep, spectrum, gaussian.shrink(y)), fill, "vector")


@pytest.mark.parametrize("shape", ["tall", "wide"])
def test_dual_coordinates_are_primal_coordinates_up_to_sign(shape):
    case = make_case(shape, BENIGN[1])
    (primal, primal_spectrum, _), (dual, dual_spectrum, _) = both(case.X, None, True, 3)
    y = np.asarray(projected(primal, primal_spectrum, new_points(case)).coordinates)
    y_dual = np.asarray(projected(dual, dual_spectrum, new_points(case)).coordinates)
    assert_close(np.abs(y_dual), np.abs(y), "vector")
    assert_close(np.abs(y_dual.T @ y), np.abs(y.T @ y), "vector")  # one sign for a whole column


def test_training_points_project_onto_the_dual_eigenvectors():
    X = make_case("tall", BENIGN[1]).X
    dual = Dual(X, Linear())
    spectrum = solve(dual, 3)
    y = projected(dual, spectrum, X).coordinates
    assert_close(y, np.asarray(spectrum.vectors) * np.sqrt(spectrum.values), "vector")


@given(case=cases())
def test_noise_is_the_mean_of_the_discarded_eigenvalues(case):
    # n and the trace are enough: the discarded eigenvalues are never computed
    spectrum = solve(Primal(case.X), case.q)
    gaussian = maximum_likelihood(spectrum, case.n, case.q)
    assert_close(gaussian.noise, case.ell[case.q :].mean(), "eigenvalue", scale=case.ell[0])
    assert_close(gaussian.values, case.ell[: case.q], "eigenvalue", scale=case.ell[0])
    slack = tolerance("eigenvalue") * case.ell[0]
    assert np.all(np.asarray(gaussian.values) >= gaussian.noise - slack)


def test_residual_does_not_cancel_far_along_a_component():
    # s - sum y^2 as a difference of squares would lose everything here
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 4)) * [1e6, 1.0, 1.0, 1.0]
    rep = Primal(X)
    spectrum = solve(rep, 1)
    v, mu = np.asarray(spectrum.vectors)[:, 0], X.mean(axis=0)
    xc = X - mu
    expected = ((xc - np.outer(xc @ v, v)) ** 2).sum(axis=1)
    assert_close(projected(rep, spectrum, X).residual, expected, "vector")
