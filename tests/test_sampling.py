"""What the models generate has the distribution they claim, and posteriors are calibrated on it.

Statistical tolerances: 5 standard errors, fixed seeds.
"""

import numpy as np
import pytest
from scipy.stats import chi2, kstest

from dualpca import PCA, PPCA
from tests import oracles
from tests.spectra import geometric, make_case
from tests.tolerances import assert_close

N = 20_000
SE = 5.0

MODELS = {
    "PCA": lambda q: PCA(n_components=q),
    "PCA whitened": lambda q: PCA(n_components=q, whiten=True),
    "PPCA": lambda q: PPCA(n_components=q),
    "PPCA by EM": lambda q: PPCA(n_components=q, method="em", random_state=0),
}


def assert_moments(samples, mu, C):
    """Assert mean and covariance entry by entry, within SE standard errors of a Gaussian sample."""
    n = len(samples)
    variance = np.diag(C)
    assert np.all(np.abs(samples.mean(axis=0) - mu) <= SE * np.sqrt(variance / n))
    error = np.abs(np.cov(samples.T, bias=True) - C)
    assert np.all(error <= SE * np.sqrt((np.outer(variance, variance) + C**2) / n))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape, q", [("tall", 2), ("tall", 6), ("wide", 3), ("square", 1)])
def test_samples_have_the_models_moments(name, shape, q):
    case = make_case(shape, geometric, mean=2.0)
    model = MODELS[name](q).fit(case.X)
    samples = np.asarray(model.sample(N, random_state=0))
    assert samples.shape == (N, case.d)
    assert_moments(samples, np.asarray(model.mean_), np.asarray(model.get_covariance()))


@pytest.mark.parametrize("name", MODELS)
def test_samples_are_gaussian_in_every_direction(name):
    case = make_case("tall", geometric, mean=2.0)
    model = MODELS[name](2).fit(case.X)
    xc = np.asarray(model.sample(N, random_state=1)) - model.mean_
    distance = np.einsum("ij,jk,ik->i", xc, np.linalg.inv(model.get_covariance()), xc)
    assert kstest(distance, chi2(case.d).cdf).pvalue > 1e-4


@pytest.mark.parametrize("name", MODELS)
def test_mean_density_of_samples_is_the_negative_entropy(name):
    case = make_case("tall", geometric, mean=2.0)
    model = MODELS[name](2).fit(case.X)
    scores = np.asarray(model.score_samples(model.sample(N, random_state=2)))
    _, logdet = np.linalg.slogdet(2 * np.pi * np.e * model.get_covariance())
    assert abs(scores.mean() + logdet / 2) <= SE * np.sqrt(case.d / 2 / N)


@pytest.mark.parametrize("name", MODELS)
def test_fitting_samples_recovers_the_model(name):
    case = make_case("tall", geometric, mean=2.0)
    truth = MODELS[name](2).fit(case.X)
    again = MODELS[name](2).fit(truth.sample(N, random_state=3))
    variance = np.asarray(truth.explained_variance_)
    error = np.abs(np.asarray(again.explained_variance_) - variance)
    assert np.all(error <= SE * variance * np.sqrt(2 / N))
    noise = float(truth.noise_variance_)
    assert abs(float(again.noise_variance_) - noise) <= SE * noise * np.sqrt(2 / (4 * N))


@pytest.mark.parametrize("name", ["PCA", "PPCA"])
def test_same_seed_same_samples_in_every_library(backend, name):
    X = make_case("tall", geometric, mean=2.0).X
    expected = MODELS[name](2).fit(X).sample(5, random_state=11)
    ours = MODELS[name](2).fit(backend.asarray(X)).sample(5, random_state=11)
    assert backend.owns(ours)
    assert_close(backend.numpy(ours), expected, "vector")


@pytest.mark.parametrize("name", ["PCA", "PPCA"])
def test_seeds_matter_and_repeat(name):
    model = MODELS[name](2).fit(make_case("tall", geometric).X)
    a, b, c = (np.asarray(model.sample(4, random_state=s)) for s in (0, 0, 1))
    assert np.array_equal(a, b) and not np.array_equal(a, c)
    assert np.shape(model.sample()) == (1, 6)


@pytest.mark.parametrize("name", ["PCA", "PPCA"])
def test_a_generator_is_used_up_as_it_goes(name):
    model = MODELS[name](2).fit(make_case("tall", geometric).X)
    rng = np.random.RandomState(0)  # scikit-learn's kind of generator
    a, b = model.sample(4, random_state=rng), model.sample(4, random_state=rng)
    assert not np.array_equal(a, b)


@pytest.mark.parametrize("shape, q", [("tall", 1), ("tall", 3), ("wide", 4)])
def test_posterior_ellipsoids_cover_as_often_as_they_say(shape, q):
    case = make_case(shape, geometric, mean=2.0)
    model = PPCA(n_components=q).fit(case.X)
    rng, level = np.random.default_rng(4), 0.9
    z = rng.standard_normal((N, q))
    noise = np.sqrt(float(model.noise_variance_)) * rng.standard_normal((N, case.d))
    mean, cov = model.posterior(
        z @ np.asarray(model.loadings_).T + model.mean_ + noise, parameters="fixed"
    )
    error = z - np.asarray(mean)
    distance = np.einsum("ij,ijk,ik->i", error, np.linalg.inv(cov), error)
    coverage = np.mean(distance <= chi2(q).ppf(level))
    assert abs(coverage - level) <= SE * np.sqrt(level * (1 - level) / N)
    assert kstest(distance, chi2(q).cdf).pvalue > 1e-4


@pytest.mark.parametrize("shape, q", [("tall", 2), ("wide", 3)])
def test_predictive_covariance_covers_a_second_reading(shape, q):
    case = make_case(shape, geometric, mean=2.0)
    model = PPCA(n_components=q).fit(case.X)
    rng, sigma = np.random.default_rng(5), np.sqrt(float(model.noise_variance_))
    signal = rng.standard_normal((N, q)) @ np.asarray(model.loadings_).T + model.mean_
    first, second = (signal + sigma * rng.standard_normal(signal.shape) for _ in range(2))
    mean, cov = model.posterior_predictive(first, parameters="fixed")
    assert np.shape(cov) == (case.d, case.d)
    assert_moments(second - np.asarray(mean), np.zeros(case.d), np.asarray(cov))
    fill, std = model.reconstruct(first, return_std=True, parameters="fixed")
    inside = np.mean(np.abs(signal - fill) <= 1.6448536 * np.asarray(std), axis=0)
    assert np.all(np.abs(inside - 0.9) <= SE * np.sqrt(0.09 / N))


def test_latent_means_shrink_towards_the_prior():
    # E[mean mean^T] + E[cov] = I: the law of total variance in the latent space
    case = make_case("tall", geometric, mean=2.0)
    model = PPCA(n_components=3).fit(case.X)
    mean, cov = model.posterior(case.X, parameters="fixed")
    total = np.asarray(mean).T @ np.asarray(mean) / case.n + np.mean(cov, axis=0)
    assert_close(total, np.eye(3), "vector")
    own = oracles.ppca(case.X, 3)
    assert_close(np.trace(cov[0]), np.trace(oracles.posterior(case.X, own)[1]), "vector")
