"""Twin kernel PCA is the Gaussian process latent variable model: values, gradients, maxima."""

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import multivariate_normal, wishart
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as gp

from dualpca import ProbabilisticKernelPCA, TwinKernelPCA
from dualpca.errors import DegenerateError, SpectrumWarning
from dualpca.kernels import RBF, Linear, Matern, Periodic
from dualpca.models.twin import (
    LEAST_TWIN_NOISE,
    Twin,
    TwinPlacement,
    maximize_twin,
    start_coordinates,
)
from dualpca.operators.dual import Dual
from dualpca.solvers import solve

KERNELS = pytest.mark.parametrize(
    "kernel",
    [RBF(gamma=0.5), Linear(), Matern(nu=2.5), RBF() + Linear(), Periodic(on=[0])],
    ids=repr,
)


def small(n=7, rho=9, q=2, seed=0):
    """Return coordinates, outputs of a Gaussian process over them, and their scatter."""
    rng = np.random.default_rng(seed)
    Z, Y = rng.standard_normal((n, q)), rng.standard_normal((n, rho))
    Y = np.linalg.cholesky(RBF(gamma=0.5)(Z, Z) + 0.1 * np.eye(n)) @ Y
    return Z, Y, Y @ Y.T / rho


def curve(n=40, d=6, seed=0):
    """Return points along a bent curve, with a little noise."""
    rng = np.random.default_rng(seed)
    t = np.linspace(-2, 2, n)
    W = rng.standard_normal((3, d))
    bent = np.stack([t, 0.4 * np.sin(2 * t), 0.4 * np.cos(t)], axis=1)
    return bent @ W + 0.05 * rng.standard_normal((n, d))


# --- the objective --------------------------------------------------------------------


@KERNELS
def test_value_is_the_density_of_the_outputs(kernel):
    Z, Y, S = small()
    model = Twin(Z, kernel, 1.3, 0.4)
    Sigma = 1.3 * kernel(Z, Z) + 0.4 * np.eye(7)
    dense = sum(multivariate_normal(np.zeros(7), Sigma).logpdf(y) for y in Y.T)
    ours = 9 * (model.loglikelihood(S) - 3.5 * np.log(2 * np.pi))
    assert ours == pytest.approx(dense, rel=1e-10)


def test_value_is_the_marginal_likelihood_of_a_gaussian_process():
    # scikit-learn's, an implementation of its own
    Z, Y, S = small()
    kernel = gp.ConstantKernel(1.3) * gp.RBF(1.0) + gp.WhiteKernel(0.4)
    peer = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(Z, Y)
    ours = 9 * (Twin(Z, RBF(gamma=0.5), 1.3, 0.4).loglikelihood(S) - 3.5 * np.log(2 * np.pi))
    assert ours == pytest.approx(peer.log_marginal_likelihood_value_, rel=1e-10)


def test_value_is_gpys_formula():
    # GPy, exact_gaussian_inference: ½(−nD ln 2π − D ln|Ky| − Σ α∘Y), Ky = K + (variance + 1e-8)I
    Z, Y, S = small()
    Ky = 1.3 * RBF(gamma=0.5)(Z, Z) + (0.4 + 1e-8) * np.eye(7)
    factor = cho_factor(Ky, lower=True)
    logdet = 2 * np.log(np.diag(factor[0])).sum()
    alpha = cho_solve(factor, Y)
    gpy = 0.5 * (-Y.size * np.log(2 * np.pi) - 9 * logdet - np.sum(alpha * Y))
    ours = Twin(Z, RBF(gamma=0.5), 1.3, 0.4 + 1e-8).loglikelihood(S)
    assert 9 * (ours - 3.5 * np.log(2 * np.pi)) == pytest.approx(gpy, rel=1e-10)


def test_value_is_what_gpy_gave():
    # GPy's ExactGaussianInference (commit aed071e), run on these numbers
    rng = np.random.default_rng(0)
    Z, Y = rng.standard_normal((30, 2)), rng.standard_normal((30, 5))
    value = Twin(Z, RBF(length_scale=0.8), 1.3, 0.4 + 1e-8).loglikelihood(Y @ Y.T / 5)
    assert 5 * (value - 15 * np.log(2 * np.pi)) == pytest.approx(-229.3080719014942, rel=1e-12)


def test_value_is_the_wishart_density_up_to_what_does_not_move():
    # K ~ W_n(ρ, Σ/ρ): differences over Z are those of the Wishart log-density
    _, Y, _ = small()
    K, rho = Y @ Y.T / 9, 12
    models = [Twin(small(seed=s)[0], RBF(), 1.0, 0.3) for s in (1, 2)]
    densities = [wishart(rho, m.covariance() / rho).logpdf(K) for m in models]
    ours = [rho * m.loglikelihood(K) for m in models]
    assert ours[0] - ours[1] == pytest.approx(densities[0] - densities[1], rel=1e-8)


@KERNELS
def test_derivatives_are_the_finite_differences(kernel):
    Z, _, S = small()
    h = 1e-6

    def value(Z=Z, a=0.0, s=0.0):
        return Twin(Z, kernel, 1.3 * np.exp(a), 0.4 * np.exp(s)).loglikelihood(S)

    _, by_Z, by_gain, by_noise = Twin(Z, kernel, 1.3, 0.4).derivatives(S)
    for i, j in np.ndindex(*Z.shape):
        step = np.zeros_like(Z)
        step[i, j] = h
        assert by_Z[i, j] == pytest.approx((value(Z + step) - value(Z - step)) / (2 * h), abs=1e-7)
    assert by_gain == pytest.approx((value(a=h) - value(a=-h)) / (2 * h), abs=1e-7)
    assert by_noise == pytest.approx((value(s=h) - value(s=-h)) / (2 * h), abs=1e-7)


def test_every_library_agrees(backend):
    Z, _, S = small()
    expected = Twin(Z, RBF(), 1.3, 0.4).derivatives(S)
    found = Twin(backend.asarray(Z), RBF(), 1.3, 0.4).derivatives(backend.asarray(S))
    np.testing.assert_allclose(backend.numpy(found[1]), expected[1], atol=1e-12)
    np.testing.assert_allclose([found[0], *found[2:]], [expected[0], *expected[2:]], atol=1e-12)
    X = curve(n=15)
    one = TwinKernelPCA(1, max_iter=500).fit(X)
    other = TwinKernelPCA(1, max_iter=500).fit(backend.asarray(X))
    assert backend.owns(other.coordinates_)
    assert other.loglikelihood_ == pytest.approx(one.loglikelihood_, rel=1e-6)
    new = backend.numpy(other.transform(backend.asarray(X[:2])))
    np.testing.assert_allclose(new, one.transform(X[:2]), atol=1e-3)


# --- the fit --------------------------------------------------------------------------


def test_a_linear_latent_kernel_is_probabilistic_kernel_pca():
    X = curve()
    closed = ProbabilisticKernelPCA(2, gamma=0.2).fit(X)
    twin = TwinKernelPCA(2, kernel="rbf", gamma=0.2, latent_kernel="linear", tol=1e-8).fit(X)
    # Σ = nC: ln|Σ| is larger by n ln n
    assert twin.loglikelihood_ + 20 * np.log(40) == pytest.approx(closed.loglikelihood_, rel=1e-9)
    assert twin.noise_variance_ == pytest.approx(40 * closed.noise_variance_, rel=1e-4)
    Z = twin.coordinates_
    signal, expected = twin.gain_ * Z @ Z.T, 40 * closed.coordinates_ @ closed.coordinates_.T
    np.testing.assert_allclose(signal, expected, atol=1e-3 * np.abs(expected).max())


def test_likelihood_of_the_model_is_that_of_the_centred_outputs():
    X = curve()
    model = TwinKernelPCA(2, feature_dim=6).fit(X)
    Sigma = model.gain_ * RBF(gamma=0.5)(model.coordinates_, model.coordinates_)
    Sigma += model.noise_variance_ * np.eye(40)
    Xc = X - X.mean(axis=0)
    dense = sum(multivariate_normal(np.zeros(40), Sigma).logpdf(y) for y in Xc.T)
    assert 6 * model.loglikelihood_ == pytest.approx(dense, rel=1e-8)


def test_likelihood_never_falls_and_the_gradient_vanishes():
    _, _, S = small(n=20, rho=30)
    Z = np.random.default_rng(3).standard_normal((20, 2))
    model, record = maximize_twin(S, RBF(), Z, tol=1e-7, max_iter=5000)
    assert record.converged
    assert np.diff(record.loglikelihoods).min() >= 0
    value, by_Z, by_gain, by_noise = model.derivatives(S)
    assert value == pytest.approx(record.loglikelihoods[-1], rel=1e-12)
    assert max(np.abs(by_Z).max(), abs(by_gain), abs(by_noise)) <= 20 * 1e-7


def test_a_curve_is_laid_out_in_its_order():
    model = TwinKernelPCA(1).fit(curve())
    order = np.argsort(model.coordinates_[:, 0])
    assert np.abs(np.corrcoef(order, np.arange(40))[0, 1]) > 0.999
    linear = TwinKernelPCA(1, latent_kernel="linear").fit(curve())
    assert model.loglikelihood_ > linear.loglikelihood_


def test_the_feature_dimension_cancels():
    X = curve()
    one = TwinKernelPCA(1, tol=1e-6).fit(X)
    six = TwinKernelPCA(1, tol=1e-6, feature_dim=6).fit(X)
    np.testing.assert_allclose(six.coordinates_, one.coordinates_, atol=1e-2)
    assert six.gain_ * 6 == pytest.approx(one.gain_, rel=1e-2)
    shift = 20 * np.log(6) - 20 * np.log(2 * np.pi)  # Σ/ρ, and the constant
    assert six.loglikelihood_ - shift == pytest.approx(one.loglikelihood_, rel=1e-8)


def test_a_given_kernel_is_the_kernel():
    X = curve()
    points = TwinKernelPCA(1).fit(X)
    given = TwinKernelPCA(1, kernel="precomputed").fit(X @ X.T)
    assert given.loglikelihood_ == pytest.approx(points.loglikelihood_, rel=1e-6)
    np.testing.assert_allclose(given.transform(X @ X.T), points.transform(X), atol=1e-3)


def test_a_start_can_be_given_or_drawn():
    X = curve()
    best = TwinKernelPCA(1).fit(X)
    again = TwinKernelPCA(1, init=best.coordinates_).fit(X)
    assert again.loglikelihood_ >= best.loglikelihood_ - 1e-6
    drawn = [TwinKernelPCA(1, init="random", random_state=s).fit(X) for s in (0, 0, 1)]
    np.testing.assert_array_equal(drawn[0].coordinates_, drawn[1].coordinates_)
    assert not np.array_equal(drawn[0].coordinates_, drawn[2].coordinates_)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.slow
def test_more_coordinates_than_directions_still_move():
    X = curve(d=1)
    start = start_coordinates(solve(Dual(X), 2), np.random.default_rng(0))
    assert start[:, 0].std() == pytest.approx(1) and 0 < start[:, 1].std() < 0.02
    model = TwinKernelPCA(2).fit(X)
    assert np.isfinite(model.loglikelihood_)
    assert np.all(model.coordinates_.std(axis=0) > 0)
    assert model.noise_variance_ >= LEAST_TWIN_NOISE * X.var() * 0.99


# --- new points -----------------------------------------------------------------------


def test_cost_of_a_place_is_the_density_of_the_new_features():
    Z, Y, S = small()
    model, rng = Twin(Z, RBF(), 1.3, 0.4), np.random.default_rng(1)
    z, y = rng.standard_normal(2), rng.standard_normal(9)
    both = np.vstack([Z, z])
    joint = 1.3 * RBF()(both, both) + 0.4 * np.eye(8)
    every = sum(
        multivariate_normal(np.zeros(8), joint).logpdf(np.append(Y[:, j], y[j])) for j in range(9)
    )
    given = sum(multivariate_normal(np.zeros(7), joint[:7, :7]).logpdf(Y[:, j]) for j in range(9))
    cost, _ = TwinPlacement(model, S).cost(z, Y @ y / 9, float(y @ y) / 9)
    assert -9 * (cost + 0.5 * np.log(2 * np.pi)) == pytest.approx(every - given, rel=1e-10)


@KERNELS
def test_gradient_of_a_place_is_the_finite_difference(kernel):
    Z, Y, S = small()
    rng, h = np.random.default_rng(1), 1e-6
    z, k = rng.standard_normal(2), Y @ rng.standard_normal(9) / 9
    place = TwinPlacement(Twin(Z, kernel, 1.3, 0.4), S)
    found = [
        (place.cost(z + h * e, k, 2.0)[0] - place.cost(z - h * e, k, 2.0)[0]) / (2 * h)
        for e in np.eye(2)
    ]
    np.testing.assert_allclose(place.cost(z, k, 2.0)[1], found, atol=1e-7)


def test_new_points_of_a_curve_go_between_their_neighbours():
    X = curve()
    model = TwinKernelPCA(1).fit(X[::2])
    Z, new = model.coordinates_[:, 0], model.transform(X[1::2])[:, 0]
    low, high = np.minimum(Z[:-1], Z[1:]), np.maximum(Z[:-1], Z[1:])
    slack = 0.5 * (high - low)
    assert np.mean((low - slack <= new[:-1]) & (new[:-1] <= high + slack)) > 0.9


def test_training_points_come_near_their_coordinates():
    X = curve()
    model = TwinKernelPCA(1).fit(X)
    gap = np.abs(model.transform(X) - model.coordinates_)
    assert gap.max() < 0.1 * model.coordinates_.std()


def test_new_points_are_placed_wherever_the_origin_is():
    X = curve()
    one, other = (TwinKernelPCA(1, kernel="linear").fit(X[::2] + shift) for shift in (0.0, 5.0))
    np.testing.assert_allclose(other.coordinates_, one.coordinates_, atol=1e-4)
    here, there = one.transform(X[1::2]), other.transform(X[1::2] + 5.0)
    np.testing.assert_allclose(there, here, atol=1e-3)


# --- bad input ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, message",
    [
        ({"n_components": 0}, "n_components"),
        ({"n_components": 40}, "n_components.*39"),
        ({"n_components": 0.5}, "n_components"),
        ({"n_components": True}, "n_components"),
        ({"kernel": "nonsense"}, "kernel"),
        ({"latent_kernel": "nonsense"}, "kernel"),
        ({"latent_kernel": "precomputed"}, "latent_kernel"),
        ({"feature_dim": -1}, "feature_dim"),
        ({"init": "pca"}, "init"),
        ({"init": np.ones((3, 3))}, "init"),
        ({"tol": -1}, "tol"),
        ({"max_iter": 0}, "max_iter"),
    ],
    ids=str,
)
def test_nonsense_parameters_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        TwinKernelPCA(**options).fit(curve())


def test_bad_data_are_refused():
    X = curve()
    X[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        TwinKernelPCA().fit(X)
    with pytest.raises(DegenerateError, match="no variance"):
        TwinKernelPCA().fit(np.ones((5, 2)))
    with pytest.raises(ValueError, match="square"):
        TwinKernelPCA(kernel="precomputed").fit(curve())
    with pytest.raises(NotFittedError):
        TwinKernelPCA().transform(curve())
    with pytest.warns(SpectrumWarning, match="indefinite"):
        TwinKernelPCA(1, kernel="precomputed").fit(curve() @ curve().T - np.eye(40))


def test_a_fit_that_stops_early_says_so():
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        TwinKernelPCA(1, max_iter=2).fit(curve())


# --- restarts ---------------------------------------------------------------------------


def test_of_several_starts_the_most_likely_end_is_kept():
    X = np.random.default_rng(0).normal(size=(20, 4))
    one = TwinKernelPCA(1, n_init=1).fit(X)
    many = TwinKernelPCA(1, n_init=4).fit(X)
    ends = [TwinKernelPCA(1, n_init=k).fit(X).loglikelihood_ for k in (1, 2, 3, 4)]
    assert np.all(np.diff(ends) >= 0) and ends[-1] == many.loglikelihood_
    assert many.loglikelihood_ > one.loglikelihood_ + 1e-3
    given = TwinKernelPCA(1, init=many.coordinates_, n_init=4).fit(X)
    assert given.loglikelihood_ >= many.loglikelihood_ - 1e-4
    with pytest.raises(ValueError, match="n_init"):
        TwinKernelPCA(1, n_init=0).fit(X)


@pytest.mark.grid
@pytest.mark.parametrize("q", [1, 2])
@pytest.mark.slow
def test_rounding_does_not_decide_the_model(backend, q):
    """Every library, and every order of the points, ends at the same maximum."""
    X = np.random.default_rng(0).standard_normal((40, 5))
    here = TwinKernelPCA(q).fit(X)
    there = TwinKernelPCA(q).fit(backend.asarray(X))
    assert here.converged_
    assert there.loglikelihood_ == pytest.approx(here.loglikelihood_, abs=1e-4)
    # not the coordinates: a point too far to have any kernel values may be anywhere
    kernels = [RBF(length_scale=1.0)(Z, Z) for Z in (here.coordinates_, there.coordinates_)]
    assert np.abs(kernels[0] - backend.numpy(kernels[1])).max() < 1e-3
