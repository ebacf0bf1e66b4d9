"""Probabilistic kernel PCA: the published numbers, the dense model, its limits, and bad input."""

import pickle

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.spatial.distance import cdist, pdist, squareform
from scipy.stats import wishart
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from dualpca import PPCA, KernelPCA, ProbabilisticKernelPCA
from dualpca.errors import DegenerateError, HeywoodWarning, NonFiniteError, SpectrumWarning
from dualpca.kernels import RBF, Linear
from dualpca.models.probabilistic_kernel import Placement, principal
from dualpca.operators.dual import Dual
from tests.oracles import feature as oracles
from tests.tolerances import assert_close

LIMITED = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
HEYWOOD = pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")


def table(n=25, d=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * np.linspace(2, 1, d) + 1.0


def rbf(X, gamma=0.3):
    return np.exp(-gamma * cdist(X, X, "sqeuclidean"))


def features(n=20, rho=30, q=2, seed=0):
    """Draw feature dimensions from a model with clear coordinates."""
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((n, q)) * 1.5
    return B @ rng.standard_normal((q, rho)) + rng.standard_normal((n, rho)) + rng.normal(size=rho)


# --- published numbers ----------------------------------------------------------------


@pytest.fixture(scope="module")
def iris(shared_data):
    rows = np.genfromtxt(shared_data("iris.csv"), delimiter=",", skip_header=1)
    return rows[:, :4]


@pytest.fixture(scope="module")
def oil(shared_data):
    with np.load(shared_data("oil_flow.npz")) as data:
        return data["X"].astype(np.float64)[:200]


@pytest.mark.parametrize("solver", ["auto", "dense", "krylov"])
def test_iris_by_maximum_likelihood(iris, solver):
    model = ProbabilisticKernelPCA(2, gamma=0.5, eigen_solver=solver).fit(iris)
    assert model.noise_variance_ == pytest.approx(0.00201762, rel=1e-6)
    assert model.loglikelihood_ == pytest.approx(385.865091, rel=1e-8)
    np.testing.assert_allclose(model.eigenvalues_, [0.28011, 0.13618], atol=5e-6)
    assert model.explained_variance_ratio_.sum() == pytest.approx(0.5823, abs=5e-5)


def plain(X, gamma, steps):
    model = ProbabilisticKernelPCA(
        2, gamma=gamma, method="em", init="pca", accelerate=False, tol=0.0, max_iter=steps
    )
    return model.fit(X)


@LIMITED
def test_iris_by_fifty_steps_of_plain_em(iris):
    best, model = ProbabilisticKernelPCA(2, gamma=0.5).fit(iris), plain(iris, 0.5, 50)
    assert model.n_iter_ == 50
    assert model.loglikelihood_ == pytest.approx(381.7190, abs=5e-5)
    assert oracles.angle(model.coordinates_, best.coordinates_) < 0.01
    assert np.diff(model.loglikelihoods_).min() >= 0


@LIMITED
def test_iris_by_two_thousand_steps_of_plain_em(iris):
    best, model = ProbabilisticKernelPCA(2, gamma=0.5).fit(iris), plain(iris, 0.5, 2000)
    B = model.coordinates_
    assert np.linalg.norm(oracles.aligned(B, best.coordinates_) - best.coordinates_) < 1e-8
    np.testing.assert_allclose(B, best.coordinates_, atol=1e-8)


def test_iris_by_accelerated_em(iris):
    best = ProbabilisticKernelPCA(2, gamma=0.5).fit(iris)
    model = ProbabilisticKernelPCA(2, gamma=0.5, method="em", tol=1e-10).fit(iris)
    assert model.converged_ and model.n_iter_ < 100
    np.testing.assert_allclose(model.coordinates_, best.coordinates_, atol=1e-8)
    assert model.noise_variance_ == pytest.approx(best.noise_variance_, rel=1e-8)


def test_oil_by_maximum_likelihood(oil):
    model = ProbabilisticKernelPCA(2, gamma=5.0).fit(oil)
    assert model.noise_variance_ == pytest.approx(0.00448638, rel=1e-6)
    assert model.loglikelihood_ == pytest.approx(438.436424, rel=1e-8)
    assert model.explained_variance_ratio_.sum() == pytest.approx(0.0871, abs=5e-5)


@LIMITED
def test_oil_by_fifty_steps_of_plain_em(oil):
    best, model = ProbabilisticKernelPCA(2, gamma=5.0).fit(oil), plain(oil, 5.0, 50)
    assert oracles.angle(model.coordinates_, best.coordinates_) < 0.05


# --- the dense model ------------------------------------------------------------------


@pytest.mark.parametrize("rho", [None, 30, 7.5])
@pytest.mark.parametrize("q", [1, 2, 5])
def test_maximum_likelihood_is_the_dense_one(q, rho):
    X = table()
    model = ProbabilisticKernelPCA(q, gamma=0.3, feature_dim=rho).fit(X)
    B, sigma2, ell = oracles.ml(rbf(X), q)
    np.testing.assert_allclose(model.coordinates_, B * np.sign(np.sum(B * model.coordinates_, 0)))
    assert model.noise_variance_ == pytest.approx(sigma2, rel=1e-10)
    np.testing.assert_allclose(model.eigenvalues_, ell[:q], rtol=1e-10)
    value = oracles.loglikelihood(rbf(X), B, sigma2, rho)
    assert model.loglikelihood_ == pytest.approx(value, rel=1e-10)


@pytest.mark.parametrize("noise", ["isotropic", "diagonal"])
@HEYWOOD
def test_likelihood_with_a_feature_dimension_is_that_of_the_features(noise):
    F = features()
    model = ProbabilisticKernelPCA(2, kernel="linear", feature_dim=30, noise=noise).fit(F)
    value = oracles.loglikelihood_of_features(F, model.coordinates_, model.noise_variance_)
    assert 30 * model.loglikelihood_ == pytest.approx(value, rel=1e-10)


def test_no_optimiser_finds_a_higher_likelihood():
    X, n = table(n=8), 8
    K, best = rbf(X), ProbabilisticKernelPCA(1, gamma=0.3).fit(X)

    def minus(theta):
        return -oracles.loglikelihood(K, theta[:n, None], np.exp(theta[n]))

    start = np.r_[best.coordinates_[:, 0], np.log(best.noise_variance_)]
    rng = np.random.default_rng(0)
    starts = [start, *(start + 0.3 * rng.standard_normal(n + 1) for _ in range(5))]
    found = min(minimize(minus, s, method="L-BFGS-B").fun for s in starts)
    assert -best.loglikelihood_ <= found + 1e-8


@LIMITED
def test_one_em_step_is_the_papers_from_the_features():
    F = features()
    start = np.random.default_rng(1).standard_normal((20, 2))
    model = ProbabilisticKernelPCA(
        2, kernel="linear", method="em", accelerate=False, init=start, tol=0.0, max_iter=1
    ).fit(F)
    sigma2 = np.trace(oracles.centred(F @ F.T)) / 20**2  # the average variance of Kc/n
    B, noise = oracles.em_step(F, start, sigma2)
    np.testing.assert_allclose(model.coordinates_ @ model.coordinates_.T, B @ B.T, atol=1e-10)
    assert model.noise_variance_ == pytest.approx(noise, rel=1e-10)


@LIMITED
def test_inputs_without_noise_of_their_own_start_from_the_average_variance():
    X = table()[:, :2]
    options = {"gamma": 0.3, "method": "em", "accelerate": False, "tol": 0.0, "max_iter": 1}
    model = ProbabilisticKernelPCA(2, init="pca", **options).fit(X)
    ell, V = np.linalg.eigh(rbf(X))
    B, noise = oracles.em_step(
        V * np.sqrt(np.maximum(ell, 0)),
        X - X.mean(axis=0),
        np.trace(oracles.centred(rbf(X))) / 25**2,
    )
    np.testing.assert_allclose(model.coordinates_ @ model.coordinates_.T, B @ B.T, atol=1e-10)
    assert model.noise_variance_ == pytest.approx(noise, rel=1e-8)


@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("init", ["pca", "random"])
@LIMITED
def test_em_never_falls_and_reaches_the_maximum(accelerate, init):
    X = table()
    options = {"gamma": 0.3, "method": "em", "init": init, "tol": 1e-11, "max_iter": 20_000}
    model = ProbabilisticKernelPCA(2, accelerate=accelerate, **options).fit(X)
    best = ProbabilisticKernelPCA(2, gamma=0.3).fit(X)
    steps = np.diff(model.loglikelihoods_)
    assert steps.min() >= -1e-12 * abs(model.loglikelihood_)
    assert model.loglikelihood_ == pytest.approx(best.loglikelihood_, rel=1e-10)
    np.testing.assert_allclose(model.coordinates_, best.coordinates_, atol=1e-7)
    assert model.noise_variance_ == pytest.approx(best.noise_variance_, rel=1e-8)


def test_em_without_a_stored_kernel_is_the_same():
    X = table(n=60)
    stored = ProbabilisticKernelPCA(2, gamma=0.3, method="em").fit(X)
    evaluated = ProbabilisticKernelPCA(2, gamma=0.3, method="em", memory_limit=0).fit(X)
    np.testing.assert_allclose(evaluated.coordinates_, stored.coordinates_, atol=1e-9)


# --- where new points go --------------------------------------------------------------

EVERY_FIT = pytest.mark.parametrize(
    "options",
    [{}, {"method": "em", "tol": 1e-12}, {"noise": "diagonal", "tol": 1e-10}],
    ids=["ml", "em", "diagonal"],
)


@EVERY_FIT
@HEYWOOD
@LIMITED
def test_training_points_are_placed_at_their_coordinates(options):
    X = features()
    model = ProbabilisticKernelPCA(2, kernel="linear", max_iter=5000, **options).fit(X)
    np.testing.assert_allclose(model.transform(X), model.coordinates_, atol=1e-6)
    np.testing.assert_allclose(model.fit_transform(X), model.coordinates_, atol=1e-6)


@EVERY_FIT
@HEYWOOD
@LIMITED
def test_placement_is_the_regression_on_the_latents(options):
    F, new = features(), features(seed=5)[:4]
    model = ProbabilisticKernelPCA(
        2, kernel="linear", feature_dim=30, max_iter=5000, **options
    ).fit(F)
    mean, covariance = model.posterior(new, parameters="fixed")
    np.testing.assert_array_equal(mean, model.transform(new))
    own = model.point_noise(new)
    for i, f in enumerate(new):
        b, cov, psi = oracles.place(F, f, model.coordinates_, model.noise_variance_)
        np.testing.assert_allclose(mean[i], b, atol=1e-8)
        np.testing.assert_allclose(covariance[i], cov, atol=1e-10)
        assert own[i] == pytest.approx(psi, rel=1e-8)


@LIMITED
def test_after_one_step_placement_is_the_next_step():
    F = features()
    options = {"kernel": "linear", "method": "em", "accelerate": False, "tol": 0.0}
    one = ProbabilisticKernelPCA(2, max_iter=1, **options).fit(F)
    B, _ = oracles.em_step(F, one.coordinates_, one.noise_variance_)
    np.testing.assert_allclose(one.transform(F), B, atol=1e-10)
    moment = one._fitted.placement.moment
    assert np.abs(moment - np.eye(2)).max() > 0.1  # far from the maximum, where it is I
    _, cov, psi = oracles.place(F, F[3], one.coordinates_, one.noise_variance_, rho=20)
    said = one.posterior(F[3:4], parameters="fixed")[1][0]
    np.testing.assert_allclose(said, cov, atol=1e-10)
    assert one.point_noise(F[3:4])[0] == pytest.approx(psi, rel=1e-8)


def test_noises_of_the_training_points_have_the_mean_of_the_model():
    X = table()
    model = ProbabilisticKernelPCA(2, gamma=0.3).fit(X)
    assert model.point_noise(X).mean() == pytest.approx(model.noise_variance_, rel=1e-10)


@HEYWOOD
def test_noises_of_the_training_points_are_their_own():
    F = features()
    model = ProbabilisticKernelPCA(1, kernel="linear", noise="diagonal", tol=1e-10).fit(F)
    free = np.setdiff1d(np.arange(20), model.heywood_)
    np.testing.assert_allclose(model.point_noise(F)[free], model.noise_variance_[free], rtol=1e-6)


def test_covariance_of_placement_is_the_spread_of_placements():
    # features of one point drawn again and again from the model: placements scatter as it says
    rng, n, rho = np.random.default_rng(2), 40, 400
    B = rng.standard_normal((n, 2))
    W = rng.standard_normal((2, rho)) * np.sqrt(n / rho)
    F = B @ W + np.sqrt(0.1 * n / rho) * rng.standard_normal((n, rho))
    model = ProbabilisticKernelPCA(2, kernel="linear", feature_dim=rho).fit(F)
    b = np.array([1.0, -0.5])
    noise = np.sqrt(0.1 * n / rho) * rng.standard_normal((2000, rho))
    mean, covariance = model.posterior(b @ W + noise, parameters="fixed")
    seen, said = np.cov(mean.T), covariance.mean(axis=0)
    # the latents are known to about 1 − σ²/ℓ only, which shrinks what is seen a little
    np.testing.assert_allclose(seen, said, atol=0.12 * np.trace(said) / 2)


def test_more_feature_dimensions_make_placement_more_certain():
    X = table()
    one, ten = (ProbabilisticKernelPCA(2, feature_dim=r).fit(X) for r in (10, 100))
    for parameters in ("auto", "fixed"):
        few, many = (m.posterior(X, parameters=parameters)[1] for m in (one, ten))
        assert np.all(np.linalg.eigvalsh(few - many) > 0)
    default, known = (ProbabilisticKernelPCA(2, feature_dim=r).fit(X) for r in (None, 25))
    np.testing.assert_array_equal(default.posterior(X)[1], known.posterior(X)[1])


def placements(n, rho, signal, tables, parameters, q=2, m=40):
    """Return errors of coordinates over their standard deviations: of the fit, and of others."""
    trained, new = [], []
    for seed in range(tables):
        rng = np.random.default_rng(seed)
        lengths, noise = signal * np.array([1.2, 0.8]), np.sqrt(n / rho)
        B = rng.standard_normal((n, q))
        B = np.linalg.qr(B - B.mean(axis=0))[0] * np.sqrt(n) * lengths
        b = rng.standard_normal((m, q)) * lengths
        W = rng.standard_normal((q, rho)) * np.sqrt(n / rho)
        F, f = (at @ W + noise * rng.standard_normal((len(at), rho)) for at in (B, b))
        model = ProbabilisticKernelPCA(q, kernel="linear", feature_dim=rho).fit(F)
        found = model.coordinates_
        map_of = np.diag(np.sign(np.sum(found * B, axis=0)))
        if parameters == "fixed":  # where points lie on this map: b times what it makes of W
            u = np.sum(found**2, axis=0)
            map_of = W @ (F - F.mean(axis=0)).T @ found / u / n
        for at, X, z in ((B, F, trained), (b, f, new)):
            mean, covariance = model.posterior(X, parameters=parameters)
            z.append((mean - at @ map_of) / np.sqrt(np.diagonal(covariance, axis1=1, axis2=2)))
    return np.array(trained), np.array(new)


def test_errors_of_placement_are_as_large_as_it_says():
    # 1.6 to 4.8 standard deviations, were noise the only error: the map's scale and axes err too
    for signal in (1.0, 3.0):
        for z in placements(60, 200, signal, 40, "auto"):
            assert 0.85 <= np.sqrt(np.mean(z**2)) <= 1.15
    for z in placements(60, 200, 3.0, 10, "fixed"):
        assert 0.93 <= np.sqrt(np.mean(z**2)) <= 1.07
    fitted, new = placements(60, 600, 0.3, 10, "fixed")  # weak: b of a new point is shrunk
    assert 0.85 <= np.sqrt(np.mean(new**2)) <= 1.07
    assert 0.65 <= np.sqrt(np.mean(fitted**2)) <= 1  # where that is a margin, as said


def test_a_point_unlike_the_others_is_placed_with_less_certainty():
    X = table()
    model = ProbabilisticKernelPCA(2, gamma=0.3).fit(X)
    near, far = (model.posterior(X[:1] + c, parameters="fixed")[1] for c in (0.01, 50))
    assert np.trace(far[0]) > np.trace(near[0])


# --- kernels, distances ---------------------------------------------------------------

SHARED = ("coordinates_", "explained_variance_", "noise_variance_", "loglikelihood_")


def assert_same_model(one, other, atol=1e-10):
    for name in SHARED:
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=atol)


FITS = pytest.mark.parametrize(
    "options", [{}, {"method": "em", "init": "random"}], ids=["ml", "em"]
)


@FITS
def test_a_given_kernel_is_the_kernel(options):
    X, new = table(), table(n=4, seed=9)
    K = rbf(X)
    points = ProbabilisticKernelPCA(2, gamma=0.3, **options).fit(X)
    given = ProbabilisticKernelPCA(2, kernel="precomputed", **options).fit(K)
    assert_same_model(given, points)
    values = np.exp(-0.3 * cdist(new, X, "sqeuclidean"))
    np.testing.assert_allclose(given.transform(values), points.transform(new), atol=1e-10)
    said = given.posterior(values, diagonal=np.ones(4))[1]
    np.testing.assert_allclose(said, points.posterior(new)[1], atol=1e-12)
    np.testing.assert_allclose(given.point_noise(K), points.point_noise(X), atol=1e-12)


@FITS
def test_euclidean_distances_are_their_kernel(options):
    X, new = table(), table(n=4, seed=9)
    kernel = ProbabilisticKernelPCA(2, kernel="linear", **options).fit(X)
    given = ProbabilisticKernelPCA(2, metric="precomputed", **options).fit(cdist(X, X))
    named = ProbabilisticKernelPCA(2, metric="euclidean", **options).fit(X)
    for model in (given, named):
        assert_same_model(model, kernel)
    D = cdist(new, X)
    np.testing.assert_allclose(given.transform(D), kernel.transform(new), atol=1e-10)
    np.testing.assert_allclose(named.transform(new), kernel.transform(new), atol=1e-10)
    np.testing.assert_allclose(given.posterior(D)[1], kernel.posterior(new)[1], atol=1e-12)


def test_distances_in_feature_space_are_the_rbf_kernel():
    X = table()
    K = rbf(X)
    D = np.sqrt(np.maximum(2 - 2 * K, 0))
    assert_same_model(
        ProbabilisticKernelPCA(2, metric="precomputed").fit(D),
        ProbabilisticKernelPCA(2, gamma=0.3).fit(X),
    )


def steep(X):
    return squareform(pdist(X, "cityblock")) ** 1.4


def test_city_block_distances_warn_and_lose_their_negative_part():
    X = table()
    with pytest.warns(SpectrumWarning, match="not Euclidean.*correction='lingoes'"):
        model = ProbabilisticKernelPCA(2, metric="cityblock").fit(X)
    D = squareform(pdist(X, "cityblock"))
    values, vectors = np.linalg.eigh(oracles.centred(-0.5 * D**2))
    positive = (vectors * np.maximum(values, 0)) @ vectors.T
    assert_same_model(model, ProbabilisticKernelPCA(2, kernel="precomputed").fit(positive))
    np.testing.assert_allclose(model.transform(X), model.coordinates_, atol=1e-10)


@pytest.mark.parametrize("kind", ["lingoes", "cailliez"])
def test_corrected_distances_do_not_warn_and_place_training_points(kind):
    X = table()
    D = steep(X)
    model = ProbabilisticKernelPCA(2, metric="precomputed", correction=kind).fit(D)
    c, off = model.correction_.constant, 1 - np.eye(25)
    moved = np.sqrt(D**2 + 2 * c) if kind == "lingoes" else D + c
    assert c > 0
    assert_same_model(model, ProbabilisticKernelPCA(2, metric="precomputed").fit(moved * off))
    np.testing.assert_allclose(model.transform(D), model.coordinates_, atol=1e-8)
    np.testing.assert_allclose(model.transform(D[3:5]), model.coordinates_[3:5], atol=1e-8)


def test_a_correction_that_is_not_needed_changes_nothing():
    D = cdist(table(), table())
    plainly = ProbabilisticKernelPCA(2, metric="precomputed").fit(D)
    asked = ProbabilisticKernelPCA(2, metric="precomputed", correction="cailliez").fit(D)
    assert asked.correction_.constant == 0
    assert_same_model(asked, plainly, atol=0)


def test_an_indefinite_kernel_warns():
    with pytest.warns(SpectrumWarning, match="indefinite"):
        model = ProbabilisticKernelPCA(2, kernel="sigmoid", gamma=0.5).fit(table())
    assert np.isfinite(model.loglikelihood_) and model.noise_variance_ > 0


def test_a_metric_may_be_a_function():
    X = table()
    model = ProbabilisticKernelPCA(2, metric=lambda x, y: np.linalg.norm(x - y)).fit(X)
    assert_same_model(model, ProbabilisticKernelPCA(2, metric="euclidean").fit(X))


# --- diagonal noise -------------------------------------------------------------------


@HEYWOOD
@LIMITED
def test_kernel_factor_analysis_by_em_and_quasi_newton_agree():
    F = features(n=12, rho=60, q=1)
    options = {"kernel": "linear", "noise": "diagonal", "max_iter": 20_000}
    direct = ProbabilisticKernelPCA(1, tol=1e-9, **options).fit(F)
    em = ProbabilisticKernelPCA(1, method="em", tol=1e-10, **options).fit(F)
    assert em.loglikelihood_ == pytest.approx(direct.loglikelihood_, rel=1e-8)
    np.testing.assert_allclose(em.coordinates_, direct.coordinates_, atol=1e-4)
    assert np.diff(em.loglikelihoods_).min() >= -1e-10
    value = oracles.loglikelihood(F @ F.T, direct.coordinates_, direct.noise_variance_)
    assert direct.loglikelihood_ == pytest.approx(value, rel=1e-10)


@HEYWOOD
def test_no_optimiser_finds_a_better_kernel_factor_analysis():
    F = features(n=7, rho=50, q=1)
    K, model = F @ F.T, ProbabilisticKernelPCA(1, kernel="linear", noise="diagonal", tol=1e-9)
    model.fit(F)

    def minus(theta):
        return -oracles.loglikelihood(K, theta[:7, None], np.exp(theta[7:]))

    start = np.r_[model.coordinates_[:, 0], np.log(model.noise_variance_)]
    low = np.log(1e-4 * np.diag(oracles.centred(K)) / 7)
    bounds = [(None, None)] * 7 + [(a, None) for a in low]
    rng = np.random.default_rng(0)
    starts = [start, *(start + 0.3 * rng.standard_normal(14) for _ in range(5))]
    found = min(minimize(minus, s, method="L-BFGS-B", bounds=bounds).fun for s in starts)
    assert -model.loglikelihood_ <= found + 1e-6


@HEYWOOD
def test_diagonal_noise_fits_no_worse_than_isotropic():
    X = table(n=12)
    one = ProbabilisticKernelPCA(1, gamma=0.3).fit(X)
    each = ProbabilisticKernelPCA(1, gamma=0.3, noise="diagonal").fit(X)
    assert each.loglikelihood_ > one.loglikelihood_
    assert each.noise_variance_.shape == (12,)
    assert not hasattr(each, "eigenvalues_")


def test_points_that_are_explained_wholly_are_named():
    X = np.concatenate([table(n=10), table(n=10)[:2]])  # two twins
    with pytest.warns(HeywoodWarning, match="explain"):
        model = ProbabilisticKernelPCA(3, gamma=2.0, noise="diagonal").fit(X)
    assert model.heywood_


# --- Wishart --------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [9, 12.5, 40])
def test_wishart_density_is_scipys_off_the_mean(rho):
    X = table(n=10)
    model = ProbabilisticKernelPCA(2, gamma=0.3, feature_dim=rho).fit(X)
    Q = np.linalg.svd(np.ones((1, 10)))[2][1:]  # another basis than Helmert's
    C = Q @ model.get_covariance() @ Q.T * 10 / rho
    expected = wishart(rho, C).logpdf(Q @ rbf(X) @ Q.T)
    assert model.log_wishart() == pytest.approx(expected, rel=1e-10)
    assert model.log_wishart(rbf(X)) == pytest.approx(expected, rel=1e-10)


def test_wishart_density_is_highest_where_noise_is_shared_by_the_centred_directions():
    # off the mean there are n − 1 directions: (n − q)/(n − 1 − q) times the noise of the paper
    F = features(n=10, rho=20)
    model = ProbabilisticKernelPCA(2, kernel="linear", feature_dim=20).fit(F)
    best = model.noise_variance_ * 8 / 7
    values = [
        clone(model).set_params(noise_variance=best * factor).fit(F).log_wishart()
        for factor in (0.97, 1.0, 1.03)
    ]
    assert values[1] > max(values[0], values[2])


def test_singular_wishart_density_of_few_features():
    F = features(n=10, rho=4)
    model = ProbabilisticKernelPCA(2, kernel="linear", feature_dim=4).fit(F)
    assert np.isfinite(model.log_wishart())
    with pytest.raises(DegenerateError, match="rank 5"):
        model.log_wishart(feature_dim=5)


def test_kernels_are_drawn_with_the_mean_of_the_model():
    model = ProbabilisticKernelPCA(2, gamma=0.3).fit(table(n=8))
    rng = np.random.default_rng(0)
    draws = [model.sample_kernel(5, random_state=rng) for _ in range(4000)]
    wanted = oracles.centred(8 * model.get_covariance())
    error = np.std(draws, axis=0) / np.sqrt(4000)
    assert np.all(np.abs(np.mean(draws, axis=0) - wanted) < 5 * error + 1e-12)
    same = [model.sample_kernel(5, random_state=3) for _ in range(2)]
    np.testing.assert_array_equal(*same)


@pytest.mark.parametrize("method", ["log_wishart", "sample_kernel"])
def test_degrees_of_freedom_have_to_be_known(method):
    model = ProbabilisticKernelPCA(2).fit(table())
    with pytest.raises(ValueError, match="feature_dim"):
        getattr(model, method)()
    with pytest.raises(ValueError, match="feature_dim"):
        getattr(model, method)(feature_dim=0)


# --- limits ---------------------------------------------------------------------------


def test_linear_kernel_has_the_spectrum_of_ppca():
    X = table(n=30, d=6)
    dual, primal = ProbabilisticKernelPCA(2, kernel="linear").fit(X), PPCA(2).fit(X)
    np.testing.assert_allclose(dual.eigenvalues_, primal.explained_variance_, rtol=1e-10)
    ratio = dual.explained_variance_ratio_
    np.testing.assert_allclose(ratio, primal.explained_variance_ratio_, rtol=1e-10)
    # the same left-over variance, shared by n − q directions in place of d − q
    rest = primal.noise_variance_ * (6 - 2) / (30 - 2)
    assert dual.noise_variance_ == pytest.approx(rest, rel=1e-10)


def test_as_the_noise_goes_coordinates_are_those_of_kernel_pca():
    X = table()
    Y = KernelPCA(2, kernel="rbf", gamma=0.3).fit_transform(X) / np.sqrt(25)
    gaps = []
    for sigma2 in (1e-4, 1e-8, 1e-12):
        model = ProbabilisticKernelPCA(2, gamma=0.3, noise_variance=sigma2).fit(X)
        gaps.append(np.abs(np.abs(model.coordinates_) - np.abs(Y)).max())
        np.testing.assert_allclose(model.transform(X), model.coordinates_, atol=1e-10)
    assert gaps[0] > gaps[1] > gaps[2] and gaps[2] < 1e-10


@pytest.mark.parametrize("method", ["ml", "em"])
def test_as_many_components_as_can_leave_noise(method):
    X = table(n=9)
    options = {"gamma": 0.3, "tol": 1e-9, "max_iter": 10_000}
    model = ProbabilisticKernelPCA(7, method=method, **options).fit(X)
    ell = oracles.ml(rbf(X), 7)[2]
    assert model.noise_variance_ == pytest.approx(ell[7] / 2, rel=1e-4)
    np.testing.assert_allclose(model.transform(X), model.coordinates_, atol=1e-6)


def test_three_points():
    X = table(n=3)
    model = ProbabilisticKernelPCA(1, gamma=0.3).fit(X)
    assert model.loglikelihood_ == pytest.approx(
        oracles.loglikelihood(rbf(X), *oracles.ml(rbf(X), 1)[:2]), rel=1e-10
    )
    with pytest.raises(ValueError, match=r"n_components.*from 1 to 1"):
        ProbabilisticKernelPCA(2).fit(X)
    with pytest.raises(ValueError, match="minimum of 3"):
        ProbabilisticKernelPCA(1).fit(X[:2])


def test_twins_have_the_same_coordinates():
    X = table()
    X[4] = X[7]
    model = ProbabilisticKernelPCA(3).fit(X)
    np.testing.assert_allclose(model.coordinates_[4], model.coordinates_[7], atol=1e-12)


def test_a_share_of_the_variance_counts_components():
    X = table()
    model = ProbabilisticKernelPCA(0.6, gamma=0.3).fit(X)
    full = oracles.ml(rbf(X), 1)[2]
    shares = np.cumsum(full) / full.sum()
    assert model.n_components_ == np.searchsorted(shares, 0.6) + 1
    em = ProbabilisticKernelPCA(0.6, gamma=0.3, method="em").fit(X)
    assert em.n_components_ == model.n_components_


def test_given_noise_counts_components():
    X = table()
    ell = oracles.ml(rbf(X), 1)[2]
    noise = float(ell[2] + ell[3]) / 2
    for method in ("ml", "em"):
        model = ProbabilisticKernelPCA(None, gamma=0.3, noise_variance=noise, method=method).fit(X)
        assert model.n_components_ == 3 and model.noise_variance_ == pytest.approx(noise)
    best = ProbabilisticKernelPCA(3, gamma=0.3).fit(X)
    assert model.loglikelihood_ < best.loglikelihood_


@pytest.mark.parametrize("method", ["ml", "em"])
@pytest.mark.parametrize("q", [2, 3])
def test_components_that_explain_everything_leave_no_density(method, q):
    X = table(n=40, d=2)
    with pytest.raises(DegenerateError, match="fewer components"):
        ProbabilisticKernelPCA(q, kernel="linear", method=method).fit(X)


def test_points_that_are_alike_are_refused():
    for kernel in ("rbf", "linear"):
        with pytest.raises(DegenerateError, match="no variance"):
            ProbabilisticKernelPCA(1, kernel=kernel).fit(np.full((8, 3), 7.0))
    with pytest.raises(DegenerateError, match="no variance"):
        ProbabilisticKernelPCA(1, metric="precomputed").fit(np.zeros((5, 5)))
    with pytest.raises(DegenerateError, match="negative"):
        ProbabilisticKernelPCA(1, kernel="precomputed").fit(-np.eye(5))


# --- libraries, types, persistence ----------------------------------------------------

OPTIONS = [
    {"gamma": 0.3},
    {"gamma": 0.3, "method": "em"},
    {"metric": "cityblock", "correction": "lingoes"},
    {"kernel": "linear", "noise": "diagonal"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(map(str, o.values())))
@HEYWOOD
def test_every_library_gives_the_same_model(backend, options):
    X = features(n=15, rho=25) / 5
    expected = ProbabilisticKernelPCA(2, **options).fit(X)
    A = backend.asarray(X)
    model = ProbabilisticKernelPCA(2, **options).fit(A)
    assert backend.owns(model.coordinates_)
    np.testing.assert_allclose(backend.numpy(model.coordinates_), expected.coordinates_, atol=1e-5)
    mean, covariance = model.posterior(A[:3, :])
    np.testing.assert_allclose(backend.numpy(mean), expected.transform(X[:3]), atol=1e-5)
    np.testing.assert_allclose(backend.numpy(covariance), expected.posterior(X[:3])[1], atol=1e-5)
    if "correction" not in options:  # which leaves one eigenvalue 0
        found = model.log_wishart(feature_dim=30)
        assert found == pytest.approx(expected.log_wishart(feature_dim=30), rel=1e-4)


def test_float32_in_float32_out():
    X = table().astype(np.float32)
    model = ProbabilisticKernelPCA(2).fit(X)
    assert model.coordinates_.dtype == model.transform(X).dtype == np.float32
    double = ProbabilisticKernelPCA(2).fit(X.astype(np.float64))
    np.testing.assert_allclose(model.coordinates_, double.coordinates_, atol=1e-6)


def test_float32_kernels_and_distances_are_not_called_indefinite():
    X = table(n=200)
    double = ProbabilisticKernelPCA(2, gamma=0.3).fit(X)
    K = ProbabilisticKernelPCA(2, kernel="precomputed").fit(rbf(X).astype(np.float32))
    np.testing.assert_allclose(K.coordinates_, double.coordinates_, atol=1e-5)
    D = cdist(X, X).astype(np.float32)
    given = ProbabilisticKernelPCA(2, metric="precomputed").fit(D)
    exact = ProbabilisticKernelPCA(2, kernel="linear").fit(X)
    np.testing.assert_allclose(given.coordinates_, exact.coordinates_, atol=1e-4)


def test_items_of_any_kind():
    words = ["banana", "bandana", "cabana", "apple", "apply", "maple"]

    def alike(a, b):
        return float(len(set(a) & set(b))) / np.sqrt(len(set(a)) * len(set(b)))

    model = ProbabilisticKernelPCA(2, kernel=alike).fit(words)
    np.testing.assert_allclose(model.transform(words), model.coordinates_, atol=1e-10)


def test_a_fitted_model_can_be_stored():
    D = cdist(table(), table())
    model = ProbabilisticKernelPCA(2, metric="precomputed").fit(D)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.transform(D), model.transform(D))
    assert len(pickle.dumps(model)) < 1.5 * D.nbytes + 10_000


def test_input_is_never_modified_and_later_changes_do_not_matter():
    X = table()
    before = X.copy()
    model = ProbabilisticKernelPCA(2).fit(X)
    np.testing.assert_array_equal(X, before)
    X += 1
    np.testing.assert_allclose(model.transform(before), model.coordinates_, atol=1e-10)


def test_signs_are_deterministic():
    X = table()
    for options in ({}, {"method": "em", "init": "random"}):
        B = ProbabilisticKernelPCA(2, **options).fit(X).coordinates_
        assert np.all(B[np.abs(B).argmax(axis=0), [0, 1]] > 0)


def test_principal_axes_of_given_noise():
    rng = np.random.default_rng(0)
    B, psi = rng.standard_normal((9, 3)), rng.uniform(0.5, 2, 9)
    turned, squares = principal(B, psi)
    np.testing.assert_allclose(turned @ turned.T, B @ B.T, atol=1e-12)
    np.testing.assert_allclose(turned.T @ (turned / psi[:, None]), np.diag(squares), atol=1e-12)


def test_both_placements_agree_at_the_maximum():
    X = table()
    model = ProbabilisticKernelPCA(2, gamma=0.3).fit(X)
    found = Placement.of_factors(Dual(X, RBF(gamma=0.3)), model.coordinates_, model._fitted.psi)
    np.testing.assert_allclose(found.weights, model._fitted.placement.weights, atol=1e-10)
    np.testing.assert_allclose(found.moment, np.eye(2), atol=1e-10)


# --- bad input ------------------------------------------------------------------------


def changed(A, i, j, value):
    A = A.copy()
    A[i, j] = value
    return A


K = rbf(table())

NO_KERNEL = {
    "non-square": (K[:20], "square"),
    "asymmetric": (changed(K, 0, 1, 3.0), "symmetric"),
    "NaN": (changed(K, 0, 1, np.nan), "NaN"),
    "infinite": (changed(K, 0, 0, np.inf), "inf"),
}


@pytest.mark.parametrize("name", NO_KERNEL)
def test_what_is_no_kernel_is_refused(name):
    X, message = NO_KERNEL[name]
    with pytest.raises((ValueError, NonFiniteError), match=message):
        ProbabilisticKernelPCA(2, kernel="precomputed").fit(X)


def test_an_indefinite_kernel_matrix_warns():
    with pytest.warns(SpectrumWarning, match="indefinite"):
        ProbabilisticKernelPCA(2, kernel="precomputed").fit(K - 0.5 * np.eye(25))


@pytest.mark.parametrize("method", ["transform", "posterior", "point_noise"])
@pytest.mark.parametrize("given", [{"kernel": "precomputed"}, {"metric": "precomputed"}])
def test_test_kernels_of_the_wrong_width_are_refused(method, given):
    A = K if "kernel" in given else cdist(table(), table())
    model = ProbabilisticKernelPCA(2, **given).fit(A)
    with pytest.raises(ValueError, match=r"7.*25"):
        getattr(model, method)(A[:4, :7])


def test_new_kernel_values_without_their_diagonal_are_refused():
    model = ProbabilisticKernelPCA(2, kernel="precomputed").fit(K)
    with pytest.raises(ValueError, match=r"k\(x, x\)"):
        model.posterior(K[:4])
    with pytest.raises(ValueError, match=r"diagonal.*4 finite"):
        model.posterior(K[:4], diagonal=np.ones(3))


@pytest.mark.parametrize(
    "D, message",
    [
        (cdist(table(), table())[:20], "square"),
        (changed(cdist(table(), table()), 0, 1, 99.0), "symmetric"),
        (changed(cdist(table(), table()), 0, 0, 1.0), "diagonal"),
        (changed(changed(cdist(table(), table()), 0, 1, -1.0), 1, 0, -1.0), "from 0"),
        (changed(cdist(table(), table()), 0, 1, np.nan), "NaN"),
    ],
)
def test_what_are_no_distances_is_refused(D, message):
    with pytest.raises((ValueError, NonFiniteError), match=message):
        ProbabilisticKernelPCA(2, metric="precomputed").fit(D)


def test_negative_new_distances_are_refused():
    D = cdist(table(), table())
    model = ProbabilisticKernelPCA(2, metric="precomputed").fit(D)
    with pytest.raises(ValueError, match="from 0"):
        model.transform(-D[:3])


@pytest.mark.parametrize(
    "options, message",
    [
        ({"n_components": 0}, "n_components"),
        ({"n_components": 24}, "n_components.*from 1 to 23"),
        ({"n_components": 1.5}, "n_components"),
        ({"n_components": None}, "n_components.*noise_variance"),
        ({"n_components": "many"}, "n_components"),
        ({"n_components": True}, "n_components"),
        ({"kernel": "nonsense"}, "kernel"),
        ({"metric": "nonsense"}, "metric"),
        ({"metric": 3}, "metric"),
        ({"metric": "euclidean", "kernel": "linear"}, "kernel"),
        ({"metric": "euclidean", "gamma": 1.0}, "gamma"),
        ({"correction": "lingoes"}, "correction"),
        ({"metric": "euclidean", "correction": "nonsense"}, "correction"),
        ({"noise": "nonsense"}, "noise"),
        ({"noise_variance": -1.0}, "noise_variance"),
        ({"noise_variance": 1.0, "noise": "diagonal"}, "noise_variance"),
        ({"noise_variance": 100.0}, "noise_variance"),
        ({"method": "closed"}, "method"),
        ({"feature_dim": 0}, "feature_dim"),
        ({"feature_dim": np.inf}, "feature_dim"),
        ({"init": "nonsense"}, "init"),
        ({"init": np.ones((3, 2)), "method": "em"}, r"init.*\(25, 2\)"),
        ({"init": "pca", "method": "em", "n_components": 5}, "init"),
        ({"accelerate": "yes"}, "accelerate"),
        ({"tol": -1.0}, "tol"),
        ({"max_iter": 0}, "max_iter"),
        ({"eigen_solver": "qr"}, "eigen_solver"),
        ({"memory_limit": -1}, "memory_limit"),
    ],
    ids=str,
)
def test_nonsense_parameters_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        ProbabilisticKernelPCA(**options).fit(table())


WRONG = {
    "text": ([["a", "b"], ["c", "d"], ["e", "f"]], "convert|numeric|string|dtype"),
    "empty": (np.empty((0, 3)), r"0 sample|minimum|at least|empty"),
    "no columns": (np.empty((5, 0)), r"0 feature|minimum|at least|empty"),
    "one dimension": (np.arange(5.0), "2D|1D|dimension"),
    "three dimensions": (np.ones((3, 4, 5)), "dim"),
    "NaN": (changed(table(), 2, 1, np.nan), "NaN"),
    "infinity": (changed(table(), 2, 1, np.inf), "[Ii]nf"),
    "complex": (table() * 1j, "[Cc]omplex"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("options", [{}, {"metric": "euclidean"}, {"metric": "precomputed"}])
def test_not_a_table_is_a_clear_error(name, options):
    X, message = WRONG[name]
    with pytest.raises((ValueError, TypeError), match=message):
        ProbabilisticKernelPCA(1, **options).fit(X)


@pytest.mark.parametrize("name", ["text", "one dimension", "NaN", "infinity", "complex"])
@pytest.mark.parametrize("method", ["transform", "posterior"])
@pytest.mark.parametrize("options", [{}, {"metric": "euclidean"}])
def test_not_a_table_is_a_clear_error_after_fit_too(name, method, options):
    X, message = WRONG[name]
    model = ProbabilisticKernelPCA(1, **options).fit(table(d=2) if name == "text" else table())
    with pytest.raises((ValueError, TypeError), match=message):
        getattr(model, method)(X)


@pytest.mark.parametrize("method", ["transform", "posterior", "point_noise"])
def test_wrong_width_states_both_widths(method):
    model = ProbabilisticKernelPCA(2).fit(table())
    with pytest.raises(ValueError, match=r"7.*3"):
        getattr(model, method)(table(d=7))


@pytest.mark.parametrize(
    "method, given",
    [("transform", [table()]), ("posterior", [table()]), ("point_noise", [table()])]
    + [(name, []) for name in ("get_covariance", "log_wishart", "sample_kernel")],
)
def test_before_fit_is_not_fitted(method, given):
    with pytest.raises(NotFittedError):
        getattr(ProbabilisticKernelPCA(2), method)(*given)


def test_a_kernel_of_other_points_is_refused():
    model = ProbabilisticKernelPCA(2, feature_dim=30).fit(table())
    with pytest.raises(ValueError, match=r"K.*25"):
        model.log_wishart(K[:20, :20])


def test_em_that_stops_early_says_so():
    with pytest.warns(ConvergenceWarning, match="max_iter=3"):
        ProbabilisticKernelPCA(2, method="em", max_iter=3).fit(table())


def test_extreme_scales_are_an_error_or_right():
    X = table(d=5)
    plain_model = ProbabilisticKernelPCA(2, kernel="linear").fit(X)
    for scale in (1e100, 1e-100):
        model = ProbabilisticKernelPCA(2, kernel=Linear()).fit(X * scale)
        np.testing.assert_allclose(model.coordinates_ / scale, plain_model.coordinates_, atol=1e-8)


def test_a_place_is_never_known_exactly_where_distances_are_not_euclidean():
    """Triangles that cannot close leave less than nothing beside the coordinates."""
    rng = np.random.default_rng(0)
    P = rng.normal(size=(40, 2))
    D = np.linalg.norm(P[:, None] - P[None], axis=2)
    noise = 1 + 0.3 * rng.normal(size=D.shape)
    D = np.abs(D * (noise + noise.T) / 2)
    with pytest.warns(SpectrumWarning):
        model = ProbabilisticKernelPCA(2, metric="precomputed", feature_dim=2).fit(D[:30, :30])
    psi = model.point_noise(D[30:, :30])
    _, covariance = model.posterior(D[30:, :30])
    assert np.all(psi > 0) and np.all(np.diagonal(covariance, axis1=1, axis2=2) > 0)
    assert np.any(np.isclose(psi, model.noise_variance_))  # of those that had less than none
    exact = ProbabilisticKernelPCA(2, kernel="linear").fit(P := rng.normal(size=(40, 3)))
    centre = P.mean(axis=0) + np.zeros((3, 3))  # rounding makes no noise of none
    assert exact.point_noise(centre).max() < 1e-12 < exact.noise_variance_


# --- the posterior of the latents (Zhang et al. 2004, Eqs. 13 to 15) ---------------------


def latents_by_conditioning(B, psi, F, rho):
    """Return E[W | F] and the covariance of a column by conditioning the joint Gaussian, dense.

    A column is (w, g) with w ~ N(0, n/rho I) and g = B w + u 1 + e, e ~ N(0, n/rho diag psi).
    """
    n, q = B.shape
    unit = n / rho
    joint = np.block([[np.eye(q), B.T], [B, B @ B.T + np.diag(psi)]]) * unit
    gain = joint[:q, q:] @ np.linalg.inv(joint[q:, q:])
    return gain @ (F - F.mean(axis=0)), joint[:q, :q] - gain @ joint[q:, :q]


@pytest.mark.parametrize("noise", ["isotropic", "diagonal"])
@pytest.mark.parametrize("method", ["ml", "em"])
def test_posterior_of_the_latents_given_the_features(noise, method):
    rng = np.random.default_rng(0)
    F = rng.standard_normal((12, 2)) @ rng.standard_normal((2, 30)) + rng.standard_normal((12, 30))
    options = {"kernel": "linear", "noise": noise, "method": method, "tol": 1e-7}
    model = ProbabilisticKernelPCA(2, max_iter=5000, **options).fit(F)
    B = model.coordinates_
    psi = model.noise_variance_ * np.ones(12)
    mean, covariance = latents_by_conditioning(B, psi, F, rho=30)
    found = model.latent_posterior(F)
    assert_close(found.mean, mean, "vector")
    assert_close(found.covariance, covariance, "vector")
    assert_close(found.weights @ (F - F.mean(axis=0)), mean, "vector")
    # Eq. 15: the sum over all thirty columns
    assert_close(found.second_moment, 30 * covariance + mean @ mean.T, "em", scale=12)
    assert np.abs(found.second_moment - 12 * np.eye(2)).max() < 1e-3  # at the maximum
    if noise == "isotropic":  # S1, 3.2.2, with the scaling of S3
        M = B.T @ B + model.noise_variance_ * np.eye(2)
        expected = np.linalg.solve(M, B.T @ (F[:, :1] - F[:, :1].mean()))
        assert_close(model.latent_posterior(F[:, :1], feature_dim=30).mean, expected, "vector")


def test_the_scale_of_the_latents_is_that_of_the_feature_dimension():
    X = np.random.default_rng(0).standard_normal((15, 3))
    model = ProbabilisticKernelPCA(2, gamma=0.3).fit(X)
    alone = model.latent_posterior()
    assert alone.mean is None and alone.weights.shape == (2, 15)
    assert_close(model.latent_posterior(feature_dim=30).covariance, alone.covariance / 2, "exact")
    known = ProbabilisticKernelPCA(2, gamma=0.3, feature_dim=5).fit(X)
    assert_close(known.latent_posterior().covariance, 3 * alone.covariance, "vector")
    # one EM step is a regression on them: B = (F - 1u') <W'> <WW'>^-1 (Eq. 16)
    K = model.kernel_(X, X)
    H = np.eye(15) - 1 / 15
    again = H @ K @ H @ alone.weights.T @ np.linalg.inv(alone.second_moment)
    assert_close(again, model.coordinates_, "vector")


def test_features_of_other_points_are_refused():
    model = ProbabilisticKernelPCA(1, gamma=0.3).fit(np.random.default_rng(0).normal(size=(9, 2)))
    with pytest.raises(ValueError, match="a row for every training point"):
        model.latent_posterior(np.ones((8, 3)))
    with pytest.raises(ValueError, match="NaN"):
        model.latent_posterior(np.full((9, 3), np.nan))
    with pytest.raises(ValueError, match="feature_dim"):
        model.latent_posterior(feature_dim=0)


def test_the_warning_counts_the_steps_that_were_taken(monkeypatch):
    def stopped(*arguments, **options):  # at tol=1e-12 rounding decides if L-BFGS calls it success
        found = minimize(*arguments, **options)
        found.success = False
        return found

    X = load_iris().data
    model = ProbabilisticKernelPCA(2, noise="diagonal", tol=1e-12)
    with pytest.warns(ConvergenceWarning) as found, monkeypatch.context() as patch:
        patch.setattr("dualpca.models.driver.optimize.minimize", stopped)
        model.fit(X)
    text = next(str(one.message) for one in found if "stopped" in str(one.message))
    assert f"stopped after {model.n_iter_} steps" in text and model.n_iter_ < 1000
    assert "rounding" in text and "max_iter" not in text
    with pytest.warns(ConvergenceWarning, match="max_iter=2 steps"):
        model.set_params(max_iter=2, tol=1e-6).fit(X)
