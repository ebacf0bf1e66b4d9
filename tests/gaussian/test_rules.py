"""gaussian/rules.py: σ² and q from a spectrum, against dense likelihoods and EM by hand."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from dualpca.errors import DegenerateError
from dualpca.gaussian.rules import (
    SquaredLengths,
    check_noise,
    fit_relevance,
    given_noise,
    has_vanished,
    left_over,
    loglikelihood,
    maximum_likelihood,
    penalty,
    spiked_gaussian,
    threshold,
)
from dualpca.operators import Spectrum

N, D = 60, 5


def rows():
    rng = np.random.default_rng(1)
    return rng.normal(size=(N, D)) * [4.0, 3.0, 1.5, 1.2, 1.0] + rng.normal(size=D)


def spectrum(q):
    """The leading q eigenpairs of the scatter, as eigh gives them."""
    F = rows() - rows().mean(axis=0)
    values, vectors = np.linalg.eigh(F.T @ F)
    return Spectrum(values[::-1][:q], vectors[:, ::-1][:, :q], float((F**2).sum()), D)


def dense(gaussian, vectors):
    """The covariance of a spiked Gaussian, written out."""
    V = vectors[:, : gaussian.rank]
    return V @ np.diag(gaussian.values - gaussian.noise) @ V.T + gaussian.noise * np.eye(D)


def density(C):
    return multivariate_normal(rows().mean(axis=0), C).logpdf(rows()).sum()


@pytest.mark.parametrize("q", range(D))
def test_the_noise_is_that_of_largest_likelihood(q):
    found = maximum_likelihood(spectrum(D), N, q)
    vectors = spectrum(D).vectors
    best = density(dense(found, vectors))
    for factor in (0.9, 0.99, 1.01, 1.1):
        other = given_noise(spectrum(D), N, found.noise * factor, q) if q else None
        C = dense(other, vectors) if q else found.noise * factor * np.eye(D)
        assert density(C) < best


def test_the_discarded_spectrum_is_not_needed():
    for q in range(1, D):
        few, all_of_it = (maximum_likelihood(spectrum(k), N, q) for k in (q, D))
        assert few.noise == pytest.approx(all_of_it.noise, rel=1e-12)


def test_all_directions_leave_no_noise():
    assert maximum_likelihood(spectrum(D), N, D).noise == 0


def test_given_noise_keeps_the_directions_above_it():
    variances = spectrum(D).values / N
    for q in range(1, D):
        noise = (variances[q - 1] + variances[q]) / 2
        assert spiked_gaussian(spectrum(D), N, noise=noise).rank == q
    with pytest.raises(ValueError, match="below the largest variance"):
        given_noise(spectrum(D), N, 2 * variances[0])
    with pytest.raises(ValueError, match="only 1 directions"):
        given_noise(spectrum(D), N, (variances[0] + variances[1]) / 2, q=2)


def test_noise_zero_keeps_every_direction_with_variance():
    flat = Spectrum(np.array([4.0, 1.0, 1e-20]), np.eye(3), 5.0, 3)
    assert given_noise(flat, 1, 0.0).rank == 2


def test_an_operator_of_larger_rank_than_its_space_is_refused():
    with pytest.raises(ValueError, match="Raise dim"):
        maximum_likelihood(Spectrum(np.array([2.0]), np.eye(3)[:, :1], 100.0, 3), 1, 1)


@pytest.mark.parametrize("noise", [-1.0, np.nan, np.inf, "a", True, None])
def test_what_is_no_noise_is_refused(noise):
    with pytest.raises(ValueError, match="noise_variance"):
        check_noise(noise)


def test_zero_noise_is_a_model_only_where_it_is_said():
    check_noise(0.0, zero=True)
    with pytest.raises(ValueError, match="a positive number or None"):
        check_noise(0.0)


def test_rounding_is_no_variance():
    assert left_over(1.0, 1.0 - 1e-16) == 0
    assert left_over(1.0, 0.5) == 0.5
    assert has_vanished(1e-13, 1.0)
    assert not has_vanished(1e-3, 1.0)


def by_hand(noise=None, steps=20_000):
    """EM with α re-estimated on the eigenvectors, the slow and obvious way: Bishop (1999)."""
    ell, total = spectrum(D - 1).values / N, spectrum(D - 1).trace / N
    sigma2 = (total - ell.sum()) / (D - ell.size) if noise is None else noise
    u = np.maximum(ell - sigma2, 0)
    for _ in range(steps):
        alpha = np.divide(D, u, out=np.full_like(u, np.inf), where=u > 1e-12)
        on = np.isfinite(alpha)
        w, m = np.sqrt(np.where(on, u, 0)), np.where(on, u, 0) + sigma2
        xz = ell * w / m  # E-step along an eigenvector
        zz = sigma2 / m + w**2 * ell / m**2
        alpha = np.where(on, alpha, 0)
        w = np.where(on, xz / (zz + sigma2 * alpha / N), 0)
        if noise is None:
            sigma2 = (total - ell.sum() + (ell - 2 * w * xz + w**2 * zz).sum()) / D
        u = w**2
    return u, sigma2


def test_relevance_is_the_limit_of_em():
    found = fit_relevance(spectrum(D - 1), N)
    u, sigma2 = by_hand()
    np.testing.assert_allclose(found.u, np.where(u > 1e-9, u, 0), rtol=1e-6, atol=1e-9)
    assert found.sigma2 == pytest.approx(sigma2, rel=1e-6)
    assert 0 < found.kept.sum() < D - 1


def test_relevance_with_given_noise_is_the_limit_of_em():
    found = fit_relevance(spectrum(D - 1), N, noise=1.0)
    u, _ = by_hand(noise=1.0)
    np.testing.assert_allclose(found.u, np.where(u > 1e-9, u, 0), rtol=1e-6, atol=1e-9)


def test_a_direction_is_switched_off_at_the_threshold():
    rho = D / N
    for factor, kept in ((0.999, 0), (1.001, 1)):
        value = factor * threshold(rho) * N
        one = Spectrum(np.array([value]), np.eye(D)[:, :1], value + (D - 1) * N, D)
        assert fit_relevance(one, N, noise=1.0).kept.sum() == kept


def test_relevance_without_noise_is_refused():
    with pytest.raises(DegenerateError, match="no variance for noise"):
        fit_relevance(spectrum(D), N)


def test_likelihood_from_the_spectrum_is_the_dense_one():
    found = fit_relevance(spectrum(D - 1), N)
    V = spectrum(D - 1).vectors
    C = V @ np.diag(found.u) @ V.T + found.sigma2 * np.eye(D)
    assert loglikelihood(spectrum(D - 1), N, found) == pytest.approx(density(C), rel=1e-10)


def test_the_penalty_is_that_of_the_prior():
    u = np.array([2.0, 0.5, 0.0])
    alpha = D / u[:2]
    expected = -0.5 * (alpha * u[:2]).sum() + D / 2 * np.log(alpha).sum()
    assert penalty(u, D) == pytest.approx(expected)
    assert SquaredLengths(u, 1.0).gaussian(D, u).values.tolist() == [3.0, 1.5]
