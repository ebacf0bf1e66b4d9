"""The ends of every range: no noise, one component, all of them, flat and constant data."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from sklearn.exceptions import ConvergenceWarning

from dualpca import PCA, PPCA
from dualpca.errors import DegenerateError
from dualpca.gaussian.rules import given_noise, maximum_likelihood
from dualpca.gaussian.spiked import SpikedGaussian
from dualpca.operators.primal import Primal
from dualpca.solvers import solve
from tests import oracles
from tests.representations import projected
from tests.spectra import cases, flat, geometric, harmonic, make_case, spiked, with_spectrum
from tests.tolerances import assert_close, assert_log_density

# --- no noise is PCA ------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["tall", "wide", "square"])
def test_vanishing_noise_is_pca(shape):
    case = make_case(shape, geometric, q=3, mean=2.0)
    tiny = 1e-13 * case.ell[2]
    model = PPCA(n_components=3, noise_variance=tiny).fit(case.X)
    ell, V = oracles.eigh_descending(oracles.covariance(case.X))
    xc = case.X - case.X.mean(axis=0)
    whitened = xc @ V[:, :3] / np.sqrt(ell[:3])
    Z = np.asarray(model.transform(case.X))
    signs = np.sign(np.sum(Z * whitened, axis=0))
    assert_close(Z * signs, whitened, "vector")
    assert_close(model.reconstruct(case.X), xc @ V[:, :3] @ V[:, :3].T + case.X.mean(0), "vector")
    pca = PCA(n_components=3).fit(case.X)
    assert_close(model.reconstruct(case.X), pca.reconstruct(case.X), "vector")


def test_posterior_shrinks_to_the_whitened_coordinates():
    values, y = np.array([4.0, 1.0]), np.array([[2.0, -3.0]])
    for noise in (1e-2, 1e-6, 1e-12):
        gaussian = SpikedGaussian(values, noise, 5)
        assert np.max(np.abs(gaussian.posterior_mean(y) - y / np.sqrt(values))) <= 3 * noise
        assert np.max(np.abs(gaussian.shrink(y) - y)) <= 4 * noise
        np.testing.assert_allclose(gaussian.posterior_variance, noise / values)


@pytest.mark.parametrize("shape", ["tall", "wide", "square"])
def test_pca_reconstruction_is_the_orthogonal_projection(shape):
    case = make_case(shape, geometric, mean=2.0)
    model = PCA(n_components=2).fit(case.X)
    _, V = oracles.eigh_descending(oracles.covariance(case.X))
    P, mu = V[:, :2] @ V[:, :2].T, case.X.mean(axis=0)
    fill = np.asarray(model.reconstruct(case.X))
    assert_close(fill, (case.X - mu) @ P + mu, "vector")
    assert_close(model.reconstruct(fill), fill, "vector")  # a projection, applied twice


# --- how many components --------------------------------------------------------------


@pytest.mark.parametrize("shape", ["tall", "wide", "square"])
def test_one_component(shape):
    case = make_case(shape, geometric, mean=2.0)
    model, expected = PPCA(n_components=1).fit(case.X), oracles.ppca(case.X, 1)
    assert np.shape(model.transform(case.X)) == (case.n, 1)
    assert_close(model.get_covariance(), expected.covariance, "covariance")
    assert_log_density(
        model.score_samples(case.X),
        oracles.log_density(case.X, expected.mean, expected.covariance),
        case.d,
    )


@pytest.mark.parametrize("q", [5, 6], ids=["q = d - 1", "q = d"])
def test_with_all_directions_the_model_is_the_full_gaussian(q):
    # q = d - 1 and q = d describe the same covariances: no noise direction is left to average over
    case = make_case("tall", geometric, mean=2.0)
    S = oracles.covariance(case.X)
    model = PPCA(n_components=q).fit(case.X)
    assert model.n_components_ == q
    assert_close(model.get_covariance(), S, "covariance")
    assert_close(model.get_precision() @ S, np.eye(6), "vector")
    expected = oracles.log_density(case.X, case.X.mean(0), S)
    assert_log_density(model.score_samples(case.X), expected, 6)
    assert_close(model.loglikelihood_, expected.sum(), "density")
    mean, cov = model.posterior(case.X[:3])
    assert np.all(np.isfinite(mean)) and np.all(np.isfinite(cov))


def test_maximum_likelihood_with_all_directions_has_finite_density():
    case = make_case("tall", geometric)
    rep = Primal(case.X)
    spectrum = solve(rep, case.d)
    gaussian = maximum_likelihood(spectrum, case.n, case.d)
    value = gaussian.loglikelihood(case.n, spectrum.trace)
    S = oracles.covariance(case.X)
    assert_close(value, oracles.loglikelihood(case.X, case.X.mean(0), S), "density")
    density = gaussian.log_density(*projected(rep, spectrum, case.X))
    assert_log_density(density, oracles.log_density(case.X, case.X.mean(0), S), case.d)


@pytest.mark.parametrize("shape", ["tall", "wide", "square"])
def test_at_full_rank_the_data_come_back(shape):
    case = make_case(shape, geometric, mean=2.0, deficient=True)
    rank = np.count_nonzero(case.ell)
    model = PCA(n_components=rank).fit(case.X)
    assert_close(model.reconstruct(case.X), case.X, "vector")
    assert_close(model.explained_variance_ratio_.sum(), 1.0, "covariance")
    assert_close(model.noise_variance_, 0.0, "eigenvalue", scale=case.ell[0])
    assert float(model.noise_variance_) >= 0


@pytest.mark.parametrize("shape", ["tall", "wide"])
def test_one_less_than_the_rank_is_the_dense_model(shape):
    case = make_case(shape, geometric, mean=2.0, deficient=True)
    q = np.count_nonzero(case.ell) - 1
    model, expected = PPCA(n_components=q).fit(case.X), oracles.ppca(case.X, q)
    assert_close(model.get_covariance(), expected.covariance, "covariance")
    dense = oracles.log_density(case.X, expected.mean, expected.covariance)
    assert_log_density(model.score_samples(case.X), dense, case.d)


# --- particular data ------------------------------------------------------------------


def test_flat_spectrum_is_isotropic_noise():
    # ell_p - sigma2 is zero up to the sign of its rounding error: its root must not be NaN
    case = make_case("tall", flat, mean=2.0)
    model = PPCA(n_components=2).fit(case.X)
    assert_close(model.noise_variance_, 1.0, "covariance")
    assert_close(model.get_covariance(), np.eye(6), "covariance")
    assert np.max(np.abs(model.transform(case.X))) < 1e-6
    assert_close(model.reconstruct(case.X), np.tile(case.X.mean(0), (case.n, 1)), "vector")


def test_em_on_a_flat_spectrum_finds_no_signal():
    # W goes to zero as 1/sqrt(steps) there, so the likelihood is all that can be asked for
    case = make_case("tall", flat, mean=2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = PPCA(n_components=2, method="em", random_state=0).fit(case.X)
    best = PPCA(n_components=2).fit(case.X).loglikelihood_
    assert model.loglikelihood_ == pytest.approx(best, rel=1e-6)
    assert np.max(np.abs(model.get_covariance() - np.eye(6))) < 1e-2


@pytest.mark.parametrize("estimator", [PCA, PPCA])
def test_constant_column_has_no_loading(estimator):
    case = make_case("tall", geometric, mean=2.0)
    X = np.insert(case.X, 3, 1e3, axis=1)
    model = estimator(n_components=2).fit(X)
    plain = estimator(n_components=2).fit(case.X)
    assert_close(np.asarray(model.components_)[:, 3], np.zeros(2), "covariance", scale=1.0)
    assert_close(np.delete(np.asarray(model.components_), 3, axis=1), plain.components_, "vector")
    assert_close(np.asarray(model.reconstruct(X))[:, 3], np.full(case.n, 1e3), "covariance")


def test_constant_column_is_left_alone_by_standardising():
    case = make_case("tall", geometric, mean=2.0)
    X = np.insert(case.X, 3, 5.0, axis=1)
    model = PCA(n_components=2, standardize=True).fit(X)
    assert np.all(np.isfinite(model.transform(X)))
    plain = PCA(n_components=2, standardize=True).fit(case.X)
    assert_close(model.explained_variance_, plain.explained_variance_, "vector")


def test_fewer_points_than_features():
    case = make_case("very wide", geometric, q=2, mean=1.0)  # 6 x 80
    model, expected = PPCA(n_components=2).fit(case.X), oracles.ppca(case.X, 2)
    assert_close(model.noise_variance_, case.ell[2:].sum() / 78, "covariance")
    dense = oracles.log_density_solve(case.X, expected.mean, expected.covariance)
    assert_log_density(model.score_samples(case.X), dense, 80)
    assert_close(model.loglikelihood_, dense.sum(), "density")


def test_one_dominant_direction_leaves_the_rest_accurate():
    # 1e6 between the first variance and the others: trace - lambda_1 still has ten digits
    X = with_spectrum(60, 5, [1e6, 1.0, 1.0, 1.0, 1.0])
    model = PPCA(n_components=1).fit(X)
    assert float(model.noise_variance_) == pytest.approx(1.0, rel=1e-8)
    case = make_case("tall", spiked)
    assert float(PPCA(n_components=1).fit(case.X).noise_variance_) == pytest.approx(1e-3, rel=1e-8)


def test_two_points_are_one_direction():
    X = np.array([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    model = PCA(n_components=1).fit(X)
    assert_close(model.components_, [[1.0, 0.0, 0.0]], "exact")
    assert_close(model.explained_variance_, [2.0], "exact")
    assert_close(model.explained_variance_ratio_, [1.0], "exact")


# --- noise given, q follows -----------------------------------------------------------


@given(case=cases())
def test_given_noise_keeps_exactly_the_directions_above_it(case):
    rank = np.count_nonzero(case.ell > 1e-9 * case.ell[0])
    spectrum = solve(Primal(case.X), min(case.n - 1, case.d))
    for p in range(1, rank):
        if case.ell[p - 1] - case.ell[p] < 1e-6 * case.ell[0]:
            continue  # equal eigenvalues: nothing lies between them
        noise = float(np.sqrt(case.ell[p - 1] * max(case.ell[p], 1e-3 * case.ell[p - 1])))
        gaussian = given_noise(spectrum, case.n, noise)
        assert len(gaussian.values) == p
        assert gaussian.noise == noise
        assert gaussian.dim == case.d


@pytest.mark.parametrize("shape", ["tall", "wide", "square"])
@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_likelihood_with_given_noise_is_the_dense_one(shape, factor):
    case = make_case(shape, harmonic, mean=2.0)
    noise = factor * case.ell[3:].sum() / (case.d - 3)
    spectrum = solve(Primal(case.X), min(case.n - 1, case.d))
    gaussian = given_noise(spectrum, case.n, noise)
    q = len(gaussian.values)
    assert q == np.count_nonzero(case.ell > noise)
    dense = oracles.ppca(case.X, q, sigma2=noise)
    expected = oracles.loglikelihood(case.X, dense.mean, dense.covariance)
    assert_close(gaussian.loglikelihood(case.n, spectrum.trace), expected, "density")
    model = PPCA(noise_variance=noise).fit(case.X)
    assert model.n_components_ == q
    assert float(model.noise_variance_) == noise
    assert_close(model.loglikelihood_, expected, "density")
    assert_close(model.get_covariance(), dense.covariance, "covariance")


def test_given_noise_with_fewer_components_than_it_allows():
    case = make_case("tall", harmonic)
    spectrum = solve(Primal(case.X), case.d)
    gaussian = given_noise(spectrum, case.n, 0.18, q=2)
    assert len(gaussian.values) == 2 and gaussian.noise == 0.18
    dense = oracles.ppca(case.X, 2, sigma2=0.18)
    expected = oracles.loglikelihood(case.X, dense.mean, dense.covariance)
    assert_close(gaussian.loglikelihood(case.n, spectrum.trace), expected, "density")


@pytest.mark.parametrize("method", ["closed", "em"])
def test_more_components_than_directions_leave_no_density(method):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 2)) @ rng.standard_normal((2, 5))
    with pytest.raises(DegenerateError, match="fewer components"):
        PPCA(3, method=method).fit(X)
