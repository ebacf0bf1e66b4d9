"""Factor analysis: the dense likelihood is the judge."""

import numpy as np
import pytest
from scipy.linalg import polar
from scipy.optimize import minimize
from scipy.stats import multivariate_normal
from sklearn.datasets import load_wine

from dualpca import PPCA, FactorAnalysis
from dualpca.data import InMemoryTable
from dualpca.errors import DegenerateError, HeywoodWarning
from dualpca.gaussian import all_latents
from dualpca.gaussian.loadings import rotate
from dualpca.models import factor as factors
from dualpca.models.factor import factor_step
from dualpca.models.incomplete import Fit
from dualpca.operators.primal import Primal
from tests.tolerances import assert_close


def table(n=400, d=8, q=2, seed=0, missing=0.0):
    """Draw rows from a factor model with noise of very different sizes."""
    rng = np.random.default_rng(seed)
    W, psi = rng.standard_normal((d, q)), rng.uniform(0.2, 2.0, d)
    X = rng.standard_normal((n, q)) @ W.T + np.sqrt(psi) * rng.standard_normal((n, d)) + 3.0
    X[rng.random(X.shape) < missing] = np.nan
    return X


def dense_densities(model, X):
    """Return the log-density of what each row observed, from the dense covariance."""
    C = model.get_covariance()
    seen = ~np.isnan(X)
    return np.array(
        [
            multivariate_normal(model.mean_[o], C[np.ix_(o, o)]).logpdf(x[o]) if o.any() else 0.0
            for x, o in zip(X, seen, strict=True)
        ]
    )


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")  # they have a density too
def test_density_is_the_dense_one(missing):
    X = table(missing=missing)
    model = FactorAnalysis(2).fit(X)
    expected = dense_densities(model, X)
    np.testing.assert_allclose(model.score_samples(X), expected, rtol=1e-10, atol=1e-10)
    assert model.loglikelihood_ == pytest.approx(expected.sum(), rel=1e-10)


@pytest.mark.grid
@pytest.mark.parametrize("missing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")  # the hardest to climb
def test_likelihood_never_falls(missing, seed):
    model = FactorAnalysis(2).fit(table(seed=seed, missing=missing))
    assert model.converged_
    assert np.diff(model.loglikelihoods_).min() >= -1e-9 * abs(model.loglikelihood_)


def test_no_optimiser_finds_a_higher_likelihood():
    X = table(n=150, d=5, q=1, seed=3)
    model = FactorAnalysis(1, tol=1e-8).fit(X)
    S = np.cov(X.T, bias=True)

    def minus(theta):
        C = np.outer(theta[:5], theta[:5]) + np.diag(np.exp(theta[5:]))
        return 75 * (np.linalg.slogdet(C)[1] + np.trace(np.linalg.solve(C, S)))

    start = np.concatenate([model.components_[0], np.log(model.noise_variance_)])
    rng = np.random.default_rng(0)
    starts = [start, *(start + rng.standard_normal(10) for _ in range(5))]
    best = min(minimize(minus, s, method="L-BFGS-B").fun for s in starts)
    assert minus(start) <= best + 1e-7 * abs(best)


def test_one_step_is_the_loop_over_points():
    X = table(n=30, d=4)
    Xc = X - X.mean(axis=0)
    rng = np.random.default_rng(1)
    W, psi = rng.standard_normal((4, 2)), rng.uniform(0.5, 1.5, 4)
    P = np.linalg.inv(np.eye(2) + W.T @ np.diag(1 / psi) @ W)
    z = [P @ W.T @ (x / psi) for x in Xc]
    zz = sum(P + np.outer(a, a) for a in z)
    expected = sum(np.outer(x, a) for x, a in zip(Xc, z, strict=True)) @ np.linalg.inv(zz)
    cross = sum(np.outer(a, x) for x, a in zip(Xc, z, strict=True))
    noise = np.diag(Xc.T @ Xc - expected @ cross) / 30
    W_new, psi_new, value = factor_step(Primal(X), W, psi, 30.0)
    np.testing.assert_allclose(W_new, expected @ np.linalg.cholesky(zz / 30), rtol=1e-10)
    np.testing.assert_allclose(psi_new, noise, rtol=1e-10)
    dense = multivariate_normal(np.zeros(4), W @ W.T + np.diag(psi)).logpdf(Xc).sum()
    assert value == pytest.approx(dense, rel=1e-12)


def test_incomplete_route_reaches_the_same_model_on_complete_rows():
    X = table()
    holes = X.copy()
    holes[0, 0] = np.nan
    a, b = FactorAnalysis(2, tol=1e-7).fit(X), FactorAnalysis(2, tol=1e-7).fit(holes)
    np.testing.assert_allclose(a.get_covariance(), b.get_covariance(), atol=0.02)
    dropped = FactorAnalysis(2, tol=1e-7).fit(X[1:])
    assert b.score(X) >= dropped.score(X) - 0.01


@pytest.mark.parametrize("q", [0, 1, 2])
def test_em_for_many_features_reaches_the_same_maximum(monkeypatch, q):
    X = table(seed=1)
    profile = FactorAnalysis(q, tol=1e-7).fit(X)
    monkeypatch.setattr(factors, "DENSE_LIMIT", 0)
    em = FactorAnalysis(q, tol=1e-6).fit(X)
    assert em.loglikelihood_ == pytest.approx(profile.loglikelihood_, rel=1e-8)
    np.testing.assert_allclose(em.get_covariance(), profile.get_covariance(), atol=1e-3)
    assert np.diff(em.loglikelihoods_).min() >= -1e-9 * abs(em.loglikelihood_)


def test_gradient_of_the_observed_likelihood_is_the_finite_difference():
    rows = InMemoryTable(table(n=40, d=5, missing=0.3))
    fit = Fit(rows, 2, diagonal=True)
    theta = fit.begin(np.random.default_rng(0))
    steps = 1e-6 * np.eye(theta.size)
    central = [(fit.slope(theta + h)[0] - fit.slope(theta - h)[0]) / 2e-6 for h in steps]
    np.testing.assert_allclose(fit.slope(theta)[1], central, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")  # with holes it is one
def test_real_table_of_very_different_units_converges(missing):
    X = load_wine().data
    X[np.random.default_rng(0).random(X.shape) < missing] = np.nan
    model = FactorAnalysis(3).fit(X)  # no ConvergenceWarning
    assert model.n_iter_ < 400
    np.testing.assert_allclose(model.score_samples(X), dense_densities(model, X), rtol=1e-8)


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("largest", [1e3, 1e8])
def test_units_of_the_features_do_not_matter(missing, largest):
    # a bound on the noise, or a start, measured by the average variance drowns the small features
    X, units = table(missing=missing), np.geomspace(1 / largest, largest, 8)
    a, b = FactorAnalysis(2, tol=1e-7).fit(X), FactorAnalysis(2, tol=1e-7).fit(X * units)
    np.testing.assert_allclose(b.noise_variance_, a.noise_variance_ * units**2, rtol=1e-4)
    shift = (~np.isnan(X) * np.log(units)).sum(axis=1)
    assert b.loglikelihood_ + shift.sum() == pytest.approx(a.loglikelihood_, rel=1e-9)
    np.testing.assert_allclose(b.score_samples(X * units) + shift, a.score_samples(X), rtol=1e-4)


def test_units_of_the_features_do_not_change_the_path():
    # powers of two scale without rounding: a start in other units would show
    X, units = table(missing=0.2), 2.0 ** np.arange(-40, 40, 10)
    a, b = FactorAnalysis(2).fit(X), FactorAnalysis(2).fit(X * units)
    assert b.n_iter_ == a.n_iter_
    np.testing.assert_allclose(b.noise_variance_, a.noise_variance_ * units**2, rtol=1e-8)


@pytest.mark.parametrize("hole", [False, True])
@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e4])
def test_constant_feature_has_a_noise_in_the_units_of_the_others(hole, unit):
    # 1e-4 in whatever unit was larger than all other variances, or nothing beside them
    X = np.c_[table(), np.full(400, 3.0)]
    X[0, 0] = np.nan if hole else X[0, 0]
    model = FactorAnalysis(2).fit(X * unit)
    average = np.nanvar(X, axis=0).mean()
    assert model.noise_variance_[8] == pytest.approx(1e-4 * average * unit**2, rel=1e-6)
    np.testing.assert_allclose(model.components_[:, 8], 0, atol=1e-6 * unit)


@pytest.mark.parametrize("hole", [False, True])
def test_constant_rows_are_refused(hole):
    X = np.full((10, 4), 0.1)
    X[0, 0] = np.nan if hole else X[0, 0]
    with pytest.raises(DegenerateError, match="every feature is constant"):
        FactorAnalysis(1).fit(X)


def test_equal_noise_is_ppca():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 2)) @ rng.standard_normal((2, 6)) * 2
    X += 0.5 * rng.standard_normal(X.shape)
    factor, plain = FactorAnalysis(2).fit(X), PPCA(2).fit(X)
    np.testing.assert_allclose(factor.get_covariance(), plain.get_covariance(), atol=0.05)
    assert factor.loglikelihood_ >= plain.loglikelihood_  # the model with more freedom


@pytest.mark.parametrize("method", ["varimax", "quartimax"])
def test_rotation_changes_loadings_only(method):
    X = table(q=3)
    plain, rotated = FactorAnalysis(3).fit(X), FactorAnalysis(3, rotation=method).fit(X)
    np.testing.assert_allclose(plain.get_covariance(), rotated.get_covariance(), atol=1e-10)
    assert not np.allclose(plain.components_, rotated.components_)
    np.testing.assert_allclose(plain.score_samples(X), rotated.score_samples(X), atol=1e-8)


def test_varimax_is_a_maximum_over_rotations():
    W = np.random.default_rng(0).standard_normal((10, 2))

    def criterion(A):
        return np.sum(np.var(A**2, axis=0))

    best = criterion(rotate(W, "varimax"))
    for angle in np.linspace(0, np.pi / 2, 91):
        R = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        assert criterion(W @ R) <= best + 1e-9


@pytest.mark.parametrize("method, share", [("varimax", 1.0), ("quartimax", 0.0)])
def test_a_step_of_a_rotation_is_the_polar_factor_of_the_gradient(method, share):
    W = np.random.default_rng(0).standard_normal((10, 3))
    first = W @ polar(W.T @ (W**3 - share * W * (W**2).mean(axis=0)))[0]
    np.testing.assert_allclose(rotate(W, method, max_iter=1), first, atol=1e-12)
    second = W @ polar(W.T @ (first**3 - share * first * (first**2).mean(axis=0)))[0]
    np.testing.assert_allclose(rotate(W, method, max_iter=2), second, atol=1e-12)


def test_canonical_loadings_are_orthogonal_in_the_metric_of_the_noise():
    model = FactorAnalysis(3).fit(table(q=3))
    G = model.components_ / model.noise_variance_ @ model.components_.T
    np.testing.assert_allclose(G, np.diag(np.diag(G)), atol=1e-9 * G.max())
    assert np.all(np.diff(np.diag(G)) <= 0)


@pytest.mark.parametrize("hole", [False, True])
def test_heywood_case_is_held_off_and_reported(hole):
    rng = np.random.default_rng(0)
    z = rng.standard_normal((100, 1))
    X = np.hstack([z, z @ [[1.0, 0.5, 0.7]] + rng.standard_normal((100, 3))])
    if hole:
        X[3, 2] = np.nan
    with pytest.warns(HeywoodWarning, match="0"):
        model = FactorAnalysis(1, max_iter=3000, tol=1e-3).fit(X)
    assert 0 in model.heywood_
    assert np.all(model.noise_variance_ > 0)
    assert np.isfinite(model.score(X))


def test_posterior_imputation_and_samples_have_the_models_moments():
    X = table(n=2000, missing=0.2)
    model = FactorAnalysis(2).fit(X)
    C = model.get_covariance()
    x = X[~np.isnan(X).any(axis=1)][0]
    given = x.copy()
    given[[1, 4]] = np.nan
    mean, covariance = model.conditional([given], features=[1, 4])
    o, m = [0, 2, 3, 5, 6, 7], [1, 4]
    gain = C[np.ix_(m, o)] @ np.linalg.inv(C[np.ix_(o, o)])
    np.testing.assert_allclose(mean[0], model.mean_[m] + gain @ (x[o] - model.mean_[o]), rtol=1e-9)
    left = C[np.ix_(m, m)] - gain @ C[np.ix_(o, m)]
    np.testing.assert_allclose(covariance[0], left, rtol=1e-8, atol=1e-10)
    draws = model.sample(100_000, random_state=0)
    np.testing.assert_allclose(np.cov(draws.T, bias=True), C, atol=0.1)


def test_precision_is_the_inverse():
    model = FactorAnalysis(2).fit(table())
    np.testing.assert_allclose(
        model.get_precision() @ model.get_covariance(), np.eye(8), atol=1e-10
    )


def test_integer_weights_are_repeated_rows():
    X = table(n=60)
    w = np.random.default_rng(0).integers(0, 4, 60)
    a = FactorAnalysis(2, tol=1e-8).fit(X, sample_weight=w)
    b = FactorAnalysis(2, tol=1e-8).fit(np.repeat(X, w, axis=0))
    assert a.loglikelihood_ == pytest.approx(b.loglikelihood_, rel=1e-8)
    np.testing.assert_allclose(a.get_covariance(), b.get_covariance(), atol=1e-4)


@pytest.mark.parametrize(
    ("name", "value"), [("rotation", "oblimin"), ("n_components", 9), ("n_components", 0.5)]
)
def test_nonsense_parameters_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        FactorAnalysis(**{name: value}).fit(table())


@pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")  # with 30 % missing
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_noise_to_start_from_changes_the_path_and_not_the_maximum(missing):
    X = table(missing=missing)
    psi = np.full(X.shape[1], 0.9) * np.nanvar(X, axis=0)
    plain = FactorAnalysis(2, tol=1e-6).fit(X)
    started = FactorAnalysis(2, tol=1e-6, noise_variance_init=psi).fit(X)
    assert started.loglikelihoods_[0] != plain.loglikelihoods_[0]
    assert started.loglikelihood_ == pytest.approx(plain.loglikelihood_, rel=1e-8)


def test_column_without_a_value_is_named_as_the_frame_names_it():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X = table(n=50, d=4, missing=0.2)
    X[:, 2] = np.nan
    with pytest.raises(ValueError, match="column 'wind'"):
        FactorAnalysis(1).fit(pandas.DataFrame(X, columns=["a", "b", "wind", "c"]))


# --- complete rows: one product, and Newton's method ----------------------------------


def test_complete_rows_are_answered_as_those_with_missing_values():
    X = table()
    model = FactorAnalysis(2).fit(X)
    found = all_latents(model._model.factors, X)
    assert_close(model.transform(X), found.mean, "vector")
    assert_close(model.score_samples(X), found.log_density, "density")
    holes = X.copy()
    holes[3, 2] = np.nan
    assert_close(model.transform(holes)[4:], found.mean[4:], "vector")
    assert_close(model.score_samples(holes)[4:], found.log_density[4:], "density")
    assert not np.isnan(model.transform(holes)).any()


def test_newton_ends_where_quasi_newton_does(monkeypatch):
    X = load_wine().data
    newton = FactorAnalysis(3, tol=1e-8).fit(X)
    assert np.all(np.diff(newton.loglikelihoods_) >= 0)
    monkeypatch.setattr(factors, "SMALL", 0)
    other = FactorAnalysis(3, tol=1e-8).fit(X)
    assert newton.converged_ and other.converged_
    assert_close(newton.loglikelihood_, other.loglikelihood_, "em")
    assert np.allclose(newton.noise_variance_, other.noise_variance_, rtol=1e-5)


def test_newton_ends_no_lower_than_quasi_newton(monkeypatch):
    rng = np.random.default_rng(14)
    W = rng.standard_normal((10, 2)) * [3.0, 2.0]
    X = rng.standard_normal((200, 2)) @ W.T + np.sqrt(0.5) * rng.standard_normal((200, 10))
    newton = FactorAnalysis(3, tol=1e-5).fit(X)  # a factor too many: also Heywood cases are maxima
    monkeypatch.setattr(factors.Profile, "is_identified", False)
    quasi = FactorAnalysis(3, tol=1e-5).fit(X)
    assert newton.score(X) > quasi.score(X) - 1e-7


@pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")  # both maxima are
def test_a_heywood_case_is_compared_with_where_quasi_newton_ends(monkeypatch):
    rng = np.random.default_rng(11)
    X = rng.standard_normal((60, 2)) @ rng.standard_normal((10, 2)).T
    X += np.sqrt(0.5) * rng.standard_normal(X.shape)
    both = FactorAnalysis(3, tol=1e-6).fit(X)
    monkeypatch.setattr(factors, "TIE", np.inf)
    newton = FactorAnalysis(3, tol=1e-6).fit(X)
    monkeypatch.setattr(factors.Profile, "is_identified", False)
    quasi = FactorAnalysis(3, tol=1e-6).fit(X)
    assert quasi.loglikelihood_ > newton.loglikelihood_ + 0.5
    assert_close(both.loglikelihood_, quasi.loglikelihood_, "em")
    assert both.heywood_ == quasi.heywood_ != newton.heywood_


def test_profile_of_many_features_is_the_dense_likelihood(monkeypatch):
    monkeypatch.setattr(factors, "SMALL", 0)
    profile, logs = factors.Profile(Primal(table()), 5), np.log(np.linspace(0.4, 1.0, 8))
    theta = profile.loadings(np.exp(logs))[1]
    assert theta[0] > 2 > theta[2] > 1 > theta[-1]  # large, small and none

    def dense(logs):
        W = profile.loadings(np.exp(logs))[0]
        C = W @ W.T + np.diag(np.exp(logs))
        return np.linalg.slogdet(C)[1] + np.trace(np.linalg.solve(C, profile.R))

    value, slope = profile(logs)
    assert_close(value, dense(logs), "density")
    for j, e in enumerate(1e-5 * np.eye(8)):
        assert slope[j] == pytest.approx((dense(logs + e) - dense(logs - e)) / 2e-5, abs=1e-7)
