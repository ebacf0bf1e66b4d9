"""CanonicalPPCA: the generalised eigenproblem and dense Gaussians are the judges."""

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import chi2, multivariate_normal
from sklearn import cross_decomposition
from sklearn.datasets import load_linnerud
from sklearn.exceptions import ConvergenceWarning

from dualpca import CCA
from dualpca.errors import CanonicalWarning, DegenerateError
from tests.models.canonical_cases import SINGULAR
from tests.oracles import canonical as oracle
from tests.oracles.canonical import DX, DY, joint, two_views, with_holes
from tests.tolerances import assert_close

# --- the closed form -------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("q", [1, 2, 4])  # 4 is min(d_x, d_y)
def test_fit_is_the_generalised_eigenproblem(q, weighted):
    X, Y = two_views()
    w = np.random.default_rng(1).uniform(0, 3, len(X)) if weighted else None
    mean, C = oracle.moments(X, Y, w)
    model = CCA(q).fit(X, Y, sample_weight=w)
    assert_close(model.correlations_, oracle.correlations(C, DX)[:q], "em")
    expected = oracle.truncated(C, DX, q)
    assert_close(model.get_covariance(), expected, "em")
    assert_close(joint(model)[1], expected, "em")
    assert_close(joint(model)[0], mean, "em")
    for noise in (model.x_noise_covariance_, model.y_noise_covariance_):
        assert np.linalg.eigvalsh(noise).min() > 0


def test_cross_covariance_is_the_samples_where_all_components_are_kept():
    X, Y = two_views()
    assert_close(CCA(DY).fit(X, Y).get_covariance(), oracle.moments(X, Y)[1], "em")


@pytest.mark.parametrize("seed", range(3))
def test_correlations_are_scikit_learns(seed):
    X, Y = two_views(n=500, seed=seed)
    model = CCA(2).fit(X, Y)
    peer = cross_decomposition.CCA(2, tol=1e-12, max_iter=20_000).fit(X, Y)
    u, v = peer.transform(X, Y)
    theirs = [np.corrcoef(u[:, k], v[:, k])[0, 1] for k in range(2)]
    np.testing.assert_allclose(model.correlations_, theirs, rtol=1e-6)
    ours = model.transform(X)
    for k in range(2):
        assert abs(np.corrcoef(ours[:, k], u[:, k])[0, 1]) == pytest.approx(1, abs=1e-6)


def test_no_optimiser_finds_a_higher_likelihood():
    X, Y = two_views(n=80, dx=3, dy=2)
    Z = np.hstack([X, Y])
    model = CCA(1).fit(X, Y)
    mean, S = oracle.moments(X, Y)

    def unpack(theta):
        A, B = theta[:9].reshape(3, 3), theta[9:13].reshape(2, 2)
        a, b = theta[13:16], theta[16:]
        cross = np.outer(a, b)
        top = np.hstack([A @ A.T + np.outer(a, a), cross])
        return np.vstack([top, np.hstack([cross.T, B @ B.T + np.outer(b, b)])])

    def minus(theta):
        C = unpack(theta)
        return 40 * (np.linalg.slogdet(C)[1] + np.trace(np.linalg.solve(C, S)))

    ends = [np.linalg.cholesky(S[:3, :3]).ravel(), np.linalg.cholesky(S[3:, 3:]).ravel()]
    rng = np.random.default_rng(0)
    starts = [np.concatenate([*ends, 0.3 * rng.standard_normal(5)]) for _ in range(5)]
    best = min(minimize(minus, s, method="BFGS").fun for s in starts)
    ours = -model.loglikelihood_ - 80 * 2.5 * np.log(2 * np.pi)
    assert ours == pytest.approx(best, rel=1e-7)
    assert model.loglikelihood_ == pytest.approx(
        multivariate_normal(mean, model.get_covariance()).logpdf(Z).sum(), rel=1e-10
    )


def test_variates_have_variance_one_and_the_correlations():
    X, Y = two_views()
    model = CCA(3).fit(X, Y)
    u, v = model.fit_transform(X, Y)
    np.testing.assert_array_equal(model.transform(X), u)
    assert_close(u.T @ u / len(X), np.eye(3), "em")
    assert_close(v.T @ v / len(X), np.eye(3), "em")
    assert_close(u.T @ v / len(X), np.diag(model.correlations_), "em")


def test_signs_are_deterministic():
    X, Y = two_views()
    model, other = CCA(2).fit(X, Y), CCA(2).fit(X[::-1], Y[::-1])
    assert_close(other.x_weights_, model.x_weights_, "vector")
    scaled = model.x_weights_ * X.std(axis=0)[:, None]
    assert np.all(scaled[np.abs(scaled).argmax(axis=0), [0, 1]] > 0)


def test_weights_are_repetitions():
    X, Y = two_views(n=60)
    w = np.random.default_rng(0).integers(0, 4, 60)
    a = CCA(2).fit(X, Y, sample_weight=w)
    b = CCA(2).fit(X.repeat(w, axis=0), Y.repeat(w, axis=0))
    assert_close(a.get_covariance(), b.get_covariance(), "em")
    assert a.loglikelihood_ == pytest.approx(b.loglikelihood_, rel=1e-10)
    np.testing.assert_allclose(a.p_values_, b.p_values_, rtol=1e-8)


# --- invariance ------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [False, True])
def test_views_can_be_swapped(missing):
    X, Y = two_views()
    X, Y = with_holes(X, Y) if missing else (X, Y)
    a, b = CCA(2, tol=1e-9).fit(X, Y), CCA(2, tol=1e-9).fit(Y, X)
    assert_close(a.correlations_, b.correlations_, "em")
    C, order = b.get_covariance(), np.r_[DY : DX + DY, :DY]
    assert_close(a.get_covariance(), C[np.ix_(order, order)], "em")


def test_invertible_maps_of_either_view_change_nothing():
    X, Y = two_views()
    rng = np.random.default_rng(1)
    A, B = rng.standard_normal((DX, DX)), rng.standard_normal((DY, DY))
    a, b = CCA(2).fit(X, Y), CCA(2).fit(X @ A + 100, Y @ B - 7)
    assert_close(b.correlations_, a.correlations_, "em")
    u, v = a.transform(X), b.transform(X @ A + 100)
    assert_close(np.abs(np.diag(u.T @ v)) / len(X), np.ones(2), "em")
    change = len(X) * (np.linalg.slogdet(A)[1] + np.linalg.slogdet(B)[1])
    assert b.loglikelihood_ == pytest.approx(a.loglikelihood_ - change, rel=1e-9)


@pytest.mark.parametrize("size", [1e-4, 1e-7])
def test_nearly_equal_features_lose_no_correlation(size):
    X, Y = two_views()
    own = X[:, 4].copy()  # what only this feature tells; squared, 1e-7 is lost in a covariance
    X[:, 4] = X[:, 3] + size * own
    apart = np.column_stack([X[:, :4], own])
    model, plain = CCA(2).fit(X, Y), CCA(2).fit(apart, Y)
    np.testing.assert_allclose(model.correlations_, plain.correlations_, atol=1e-14 / size)
    np.testing.assert_allclose(model.predict(X), plain.predict(apart), atol=1e-12 / size)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_units_of_one_feature_do_not_matter(scale):
    X, Y = with_holes(*two_views())
    stretched = X * np.array([scale, 1, 1, 1, 1])
    for ridge in (0.0, 0.1):
        a = CCA(2, regularization=ridge).fit(X, Y)
        b = CCA(2, regularization=ridge).fit(stretched, Y)
        assert_close(b.correlations_, a.correlations_, "em")
        assert_close(b.predict(stretched), a.predict(X), "em")


@pytest.mark.grid
@pytest.mark.parametrize("ridge", [0.0, 0.1])
@pytest.mark.parametrize("share", [0.1, 0.4])
@pytest.mark.parametrize("seed", range(3))
def test_likelihood_never_falls(seed, share, ridge):
    X, Y = with_holes(*two_views(seed=seed), share=share, unpaired=0.3, seed=seed)
    model = CCA(2, regularization=ridge).fit(X, Y)
    assert model.converged_
    assert np.diff(model.loglikelihoods_).min() >= -1e-10 * abs(model.loglikelihood_)


def test_correlations_survive_holes():
    X, Y = two_views(n=5000, seed=3)
    truth = CCA(2).fit(X, Y).correlations_
    found = CCA(2).fit(*with_holes(X, Y, share=0.2)).correlations_
    np.testing.assert_allclose(found, truth, atol=0.03)


def test_stopping_early_is_said():
    with pytest.warns(ConvergenceWarning, match="max_iter=3"):
        model = CCA(2, max_iter=3).fit(*with_holes(*two_views()))
    assert not model.converged_
    assert np.all(np.isfinite(model.correlations_))


def test_nearly_equal_features_with_holes_reach_the_same_correlations():
    X, Y = two_views()
    X[:, 4] = X[:, 3] + 1e-3 * X[:, 4]
    X, Y = with_holes(X, Y)
    a, b = CCA(2).fit(X, Y), CCA(2, tol=1e-9).fit(X, Y)
    assert a.converged_
    np.testing.assert_allclose(a.correlations_, b.correlations_, atol=1e-5)


@pytest.mark.parametrize("ridge", [0.0, 0.2])
def test_rows_with_nothing_observed_say_nothing(ridge):
    X, Y = with_holes(*two_views(), share=0.1)
    empty = np.full((50, DX), np.nan), np.full((50, DY), np.nan)
    a = CCA(2, regularization=ridge).fit(X, Y)
    b = CCA(2, regularization=ridge).fit(np.vstack([X, empty[0]]), np.vstack([Y, empty[1]]))
    assert_close(b.get_covariance(), a.get_covariance(), "em")
    assert b.loglikelihood_ == pytest.approx(a.loglikelihood_, rel=1e-9)


# --- limits ----------------------------------------------------------------------------


def test_duplicate_column_has_correlation_one():
    X, Y = two_views()
    Y[:, 1] = 2 * X[:, 3] + 1
    model = CCA(2).fit(X, Y)
    assert model.correlations_[0] == pytest.approx(1, abs=1e-12)
    assert model.correlations_[1] < 0.99
    assert model.loglikelihood_ == np.inf
    assert model.p_values_[0] < 1e-200
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean[:, 1], Y[:, 1], atol=1e-9)
    assert np.all(std[:, 1] < 1e-6 * std[:, 0])
    _, spread = model.posterior(X, Y)
    assert np.all(spread[:, 0, 0] < 1e-12)
    drawn_x, drawn_y = model.sample(100, random_state=0)
    np.testing.assert_allclose(drawn_y[:, 1], 2 * drawn_x[:, 3] + 1, atol=1e-6)
    with pytest.raises(DegenerateError, match=r"correlation is 1.*regularization"):
        model.score_samples(X, Y)
    assert np.all(np.isfinite(model.score_samples(X)))
    assert np.isfinite(CCA(2, regularization=0.01).fit(X, Y).loglikelihood_)


def test_duplicate_column_with_holes_has_no_density():
    X, Y = two_views()
    Y[:, 1] = 2 * X[:, 3] + 1
    X, Y = with_holes(X, Y, share=0.1)
    with pytest.raises(DegenerateError, match=r"correlation is 1.*regularization"):
        CCA(2).fit(X, Y)
    assert CCA(2, regularization=0.01).fit(X, Y).converged_


def test_constant_column_has_no_weight():
    X, Y = two_views()
    spoilt = np.hstack([X, np.full((len(X), 1), 0.1)])
    with pytest.warns(CanonicalWarning, match="X varies in 5 of 6.*constant.*regularization"):
        model = CCA(2).fit(spoilt, Y)
    plain = CCA(2).fit(X, Y)
    assert_close(model.correlations_, plain.correlations_, "em")
    assert_close(model.x_weights_[:DX], plain.x_weights_, "em")
    np.testing.assert_allclose(model.x_weights_[DX], 0, atol=1e-15)
    assert_close(model.predict(spoilt), plain.predict(X), "em")
    with pytest.raises(DegenerateError, match="vary in 5 directions"):
        model.score_samples(spoilt, Y)
    with pytest.raises(DegenerateError, match="vary in 5 directions"):
        model.posterior(np.where(np.eye(len(X), 6) > 0, np.nan, spoilt))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(CCA(2, regularization=0.1).fit(spoilt, Y).loglikelihood_)


def test_constant_or_empty_column_with_holes_is_named():
    X, Y = with_holes(*two_views())
    for name, value, why in (("y", 7.0, "constant"), ("y", np.nan, "never observed")):
        spoilt = Y.copy()
        spoilt[:, 2] = np.where(np.isnan(Y[:, 2]), np.nan, value)
        with pytest.raises(DegenerateError, match=f"column 2 of {name}.*{why}"):
            CCA(2).fit(X, spoilt)
    spoilt = X.copy()
    spoilt[:, 1] = np.nan
    with pytest.raises(DegenerateError, match=r"column 1 of X.*never observed"):
        CCA(2, regularization=1.0).fit(spoilt, Y)


def test_constant_view_is_refused():
    X, Y = two_views()
    with pytest.raises(DegenerateError, match="every feature of y is constant"):
        CCA(1).fit(X, np.ones_like(Y))


def test_views_never_seen_together_are_refused():
    X, Y = two_views()
    X[::2], Y[1::2] = np.nan, np.nan
    with pytest.raises(DegenerateError, match="no row observes something of both views"):
        CCA(1).fit(X, Y)


@pytest.mark.parametrize("n", [6, 9, 10])
def test_few_rows_have_correlations_one_and_say_so(n):
    X, Y = two_views(n=n, dx=12, dy=9)
    with pytest.warns(CanonicalWarning, match=f"there are {n} rows.*correlations are 1"):
        model = CCA(2).fit(X, Y)
    np.testing.assert_allclose(model.correlations_, 1, atol=1e-10)
    assert model.loglikelihood_ == np.inf
    np.testing.assert_allclose(model.predict(X)[:, 0].shape, (n,))
    u, v = model.transform(X, Y)
    np.testing.assert_allclose(u, v, atol=1e-8)
    assert np.all(np.isfinite(model.x_noise_covariance_))
    ridge = CCA(2, regularization=0.5).fit(X, Y)
    assert ridge.correlations_[0] < 0.99
    assert np.isfinite(ridge.score(X, Y))


def test_correlations_of_few_rows_are_one_only_as_often_as_counting_says():
    X, Y = two_views(n=10, dx=5, dy=5)  # 5 + 5 directions in 9 dimensions: one is shared
    with pytest.warns(CanonicalWarning, match="correlations are 1"):
        model = CCA(5).fit(X, Y)
    assert model.correlations_[0] == pytest.approx(1, abs=1e-12)
    assert model.correlations_[1] < 0.999


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_dependent_features_are_found_at_the_precision_of_the_data(dtype, offset):
    X, Y = two_views(n=2000)
    X = (X + offset).astype(dtype)
    X[:, 4] = X[:, 0] - X[:, 1] + X[:, 2] / 3
    with pytest.warns(CanonicalWarning, match="X varies in 4 of 5"):
        model = CCA(2).fit(X, Y)
    plain = CCA(2).fit(X[:, :4], Y)
    np.testing.assert_allclose(model.correlations_, plain.correlations_, atol=1e-5)


@SINGULAR
def test_more_components_than_the_rank_are_refused():
    X, Y = two_views()
    X = X[:, :1] @ np.ones((1, 3))
    with pytest.raises(ValueError, match="at most 1, the rank"):
        CCA(2).fit(X, Y)


def test_ridge_is_the_oracles():
    X, Y = two_views()
    mean, C = oracle.moments(X, Y)
    ridged = C + 0.3 * np.diag(np.diag(C))
    model = CCA(2, regularization=0.3).fit(X, Y)
    assert_close(model.get_covariance(), oracle.truncated(ridged, DX, 2), "em")
    assert_close(model.correlations_, oracle.correlations(ridged, DX)[:2], "em")
    assert_close(joint(model)[0], mean, "em")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_far_from_the_origin_and_in_single_precision(dtype, offset):
    X, Y = two_views()
    plain = CCA(2).fit(X, Y)
    moved = (X + offset).astype(dtype), (Y - offset).astype(dtype)
    model = CCA(2).fit(*moved)
    assert model.x_weights_.dtype == model.transform(moved[0]).dtype == dtype
    atol = 1e-2 if dtype == np.float32 else 1e-9
    np.testing.assert_allclose(model.correlations_, plain.correlations_, atol=atol)


# --- the tests of correlations ---------------------------------------------------------


def test_p_values_are_bartletts_by_hand():
    X, Y = load_linnerud(return_X_y=True)
    model = CCA(3).fit(X, Y)
    rho = oracle.correlations(oracle.moments(X, Y)[1], 3)
    statistic = [-15.5 * np.log(np.prod(1 - rho[k:] ** 2)) for k in range(3)]
    expected = [chi2.sf(s, (3 - k) ** 2) for k, s in enumerate(statistic)]
    np.testing.assert_allclose(model.p_values_, expected, rtol=1e-8)
    np.testing.assert_allclose(CCA(1).fit(X, Y).p_values_, expected[:1], rtol=1e-8)


@pytest.mark.slow
def test_p_values_are_uniform_where_nothing_is_shared():
    rng = np.random.default_rng(0)
    first = [
        CCA(1).fit(rng.standard_normal((60, 3)), rng.standard_normal((60, 2))).p_values_[0]
        for _ in range(1000)
    ]
    for level in (0.05, 0.5):
        error = 4 * np.sqrt(level * (1 - level) / 1000)
        assert np.mean(np.array(first) < level) == pytest.approx(level, abs=error)


@pytest.mark.parametrize("standardize", [False, True])
def test_weights_of_both_views_give_the_canonical_variables(standardize):
    X, Y = two_views()
    model = CCA(2, standardize=standardize).fit(X, Y)
    u, v = (A - A.mean(axis=0) for A in (X, Y))
    if standardize:
        u, v = u / X.std(axis=0), v / Y.std(axis=0)
    u, v = u @ model.x_weights_, v @ model.y_weights_
    for k, rho in enumerate(model.correlations_):
        assert np.corrcoef(u[:, k], v[:, k])[0, 1] == pytest.approx(rho, abs=1e-6)
        assert (np.mean(u[:, k] ** 2), np.mean(v[:, k] ** 2)) == pytest.approx((1, 1), abs=1e-6)


# --- The regression is an estimate ---------------------------------------------------------------


def test_predictions_of_one_column_from_all_variates_are_those_of_least_squares():
    """With one column of Y the regression has all of X: the textbook's prediction variance."""
    rng, n, d = np.random.default_rng(3), 40, 4
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 3
    y = X @ rng.normal(size=d) + rng.normal(size=n)
    new = rng.normal(size=(5, d)) + 3
    model = CCA(1).fit(X, y)
    fixed = model.predict(new, return_std=True, parameters="fixed")[1]
    found = model.predict(new, return_std=True)[1]
    A, B = (np.column_stack([np.ones(len(M)), M]) for M in (X, new))
    beta = np.linalg.lstsq(A, y, rcond=None)[0]
    s2 = np.sum((y - A @ beta) ** 2) / n
    leverage = np.sum(B * np.linalg.solve(A.T @ A, B.T).T, axis=1)
    nu = n - 1 - d
    np.testing.assert_allclose(fixed**2, s2, rtol=1e-8)
    np.testing.assert_allclose(found**2, s2 * n / (nu - 2) * (1 + leverage), rtol=1e-8)


def test_variances_of_predictions_are_the_diagonal_of_their_covariances():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(30, 4))
    Y = X[:, :3] + rng.normal(size=(30, 3))
    model = CCA(2).fit(X, Y)
    for given in (X, np.where(rng.random(X.shape) < 0.2, np.nan, X)):
        std = model.predict(given, return_std=True)[1]
        covariance = model.predict(given, return_cov=True)[1]
        np.testing.assert_allclose(std**2, np.diagonal(covariance, axis1=1, axis2=2), rtol=1e-10)
        fixed = model.predict(given, return_std=True, parameters="fixed")[1]
        assert np.all(std > fixed)
    with pytest.raises(ValueError, match="parameters must be one of"):
        model.predict(X, return_std=True, parameters="known")


def pairs_and_single_views():
    """Return 15 rows with both views, and 200 with one of them."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(215, 3))
    Y = X[:, :2] + rng.normal(size=(215, 2))
    X[15:115], Y[115:] = np.nan, np.nan
    return X, Y, rng.normal(size=(9, 3))


def test_rows_with_one_view_do_not_count_as_pairs():
    X, Y, new = pairs_and_single_views()
    model, few = CCA(1).fit(X, Y), CCA(1).fit(X[:15], Y[:15])

    def ratios(model):
        found, fixed = (
            model.predict(new, return_std=True, parameters=how)[1] for how in ("auto", "fixed")
        )
        return found / fixed

    assert model.n_samples_ == 215
    assert ratios(model).min() > 1.05
    np.testing.assert_allclose(ratios(model).min(), ratios(few).min(), rtol=0.05)


@pytest.mark.parametrize("complete", [True, False])
def test_weights_count_in_predictions(complete):
    X, Y, new = pairs_and_single_views()
    X, Y = (A[:15] if complete else A for A in (X, Y))

    def std(X, Y, w=None):
        fit = CCA(1, tol=1e-10).fit(X, Y, sample_weight=w)
        return fit.predict(new, return_std=True, parameters="estimated")[1]

    whole = np.arange(len(X)) % 3 + 1
    repeated = (np.repeat(A, whole, axis=0) for A in (X, Y))
    np.testing.assert_allclose(std(X, Y, whole), std(*repeated), rtol=1e-6)
    faint = np.where(np.arange(len(X)) % 15 < 12, 1.0, 0.0)
    wanted = std(X, Y, faint)
    np.testing.assert_allclose(std(X, Y, np.maximum(faint, 1e-6)), wanted, rtol=1e-4)
