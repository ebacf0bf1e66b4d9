"""PPCA of incomplete rows, judged by dense conditioning, plain EM and the likelihood itself."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import KNNImputer, SimpleImputer

from dualpca import PPCA
from dualpca.data import InMemoryTable
from dualpca.data.moments import column_starts
from dualpca.gaussian.observed import Factors, Incomplete, drawn_imputations, imputed, m_step
from dualpca.models.completing import RefitRequest, free_numbers, imputed_unsurely
from dualpca.models.incomplete import Fit, fit_incomplete
from tests import oracles
from tests.models.incomplete_cases import (
    PATTERNS,
    RIDGES,
    covariance,
    draw,
    fitted,
    parameters,
    remove,
)
from tests.oracles import missing as dense
from tests.tolerances import assert_close, assert_log_density, tolerance

EVERY_PATTERN = pytest.mark.parametrize("name", PATTERNS)


# --- the oracles agree with each other ------------------------------------------------


@pytest.mark.parametrize("name", ["30 %", "empty rows"])
def test_dense_oracles_agree(name):
    X, q = PATTERNS[name]()
    d, rng = X.shape[1], np.random.default_rng(0)
    W, mu, psi = rng.standard_normal((d, q)), rng.standard_normal(d), rng.uniform(0.5, 2, d)
    C = W @ W.T + np.diag(psi)
    assert dense.loglikelihood(X, mu, C) == pytest.approx(dense.log_density(X, mu, C).sum(), 1e-12)
    z, cov = dense.posterior(X, W, mu, psi)
    for i in range(8):
        mean, own = dense.posterior_by_joint(X[i], W, mu, psi)
        np.testing.assert_allclose(z[i], mean, atol=1e-12)
        np.testing.assert_allclose(cov[i], own, atol=1e-12)


def test_dense_gradient_is_the_slope():
    X, q = PATTERNS["30 %"]()
    d, rng, h = X.shape[1], np.random.default_rng(0), 1e-5
    W, mu, psi = rng.standard_normal((d, q)), rng.standard_normal(d), rng.uniform(0.5, 2, d)
    w = rng.uniform(0, 2, len(X))
    dW, dmu, dpsi = rng.standard_normal((d, q)), rng.standard_normal(d), rng.standard_normal(d)

    def along(t):
        V = W + t * dW
        return dense.loglikelihood(X, mu + t * dmu, V @ V.T + np.diag(psi + t * dpsi), w)

    by_W, by_mu, by_psi = dense.gradient(X, W, mu, psi, w)
    slope = np.sum(by_W * dW) + by_mu @ dmu + by_psi @ dpsi
    assert slope == pytest.approx((along(h) - along(-h)) / (2 * h), rel=1e-6)


def test_stacked_em_oracle_is_the_loop_oracle():
    X, q = PATTERNS["30 %"]()
    stacked, looped = dense.em(X, q, 3), dense.em(X, q, 0)
    for _ in range(3):
        looped, _, _ = dense.em_step(X, looped)
    np.testing.assert_allclose(stacked.W, looped.W, atol=1e-10)
    np.testing.assert_allclose(stacked.mean, looped.mean, atol=1e-10)
    assert stacked.sigma2 == pytest.approx(looped.sigma2, rel=1e-12)


# --- densities, posteriors, fills: dense conditioning -----------------------------------


@EVERY_PATTERN
def test_log_density_is_that_of_the_observed_block(name):
    X, _, model = fitted(name)
    expected = dense.log_density(X, model.mean_, covariance(model))
    assert_log_density(model.score_samples(X), expected, X.shape[1])
    assert model.loglikelihood_ == pytest.approx(expected.sum(), rel=1e-8)
    assert model.score(X) == pytest.approx(expected.mean(), rel=1e-8)


@EVERY_PATTERN
def test_posterior_is_the_dense_one(name):
    X, _, model = fitted(name)
    W, mu, sigma2 = parameters(model)
    z, C = dense.posterior(X, W, mu, np.full(len(mu), sigma2))
    mean, cov = model.posterior(X, parameters="fixed")
    assert_close(mean, z, "vector")
    assert_close(cov, C, "vector")
    assert_close(model.transform(X), z, "vector")
    signal, std = model.reconstruct(X, return_std=True, parameters="fixed")
    assert_close(signal, z @ W.T + mu, "vector")
    assert_close(std**2, np.einsum("jk,ikl,jl->ij", W, C, W), "vector")
    assert_close(model.reconstruct(X), signal, "exact")


@EVERY_PATTERN
def test_fills_are_the_dense_conditional(name):
    X, _, model = fitted(name)
    mean, cov = dense.conditionals(X, model.mean_, covariance(model))
    filled, std = model.impute(X, return_std=True, parameters="fixed")
    assert_close(filled, mean, "vector")
    assert_close(std**2, np.einsum("ijj->ij", cov), "vector")
    got = model.conditional(X, parameters="fixed")
    assert_close(got[0], mean, "vector")
    assert_close(got[1], cov, "vector")


@EVERY_PATTERN
def test_observed_entries_come_back_bit_for_bit(name):
    X, _, model = fitted(name)
    seen = ~np.isnan(X)
    filled, std = model.impute(X, return_std=True)
    mean, cov = model.conditional(X)
    drawn = model.sample_imputations(X, 3, random_state=0, parameters="fixed")
    for table in (filled, mean, *drawn, model.impute(X)):
        assert table[seen].tobytes() == X[seen].tobytes()
        assert np.all(np.isfinite(table))
    assert np.all(std[seen] == 0) and np.all(std[~seen] > 0)
    assert np.all(cov[seen[:, :, None] | seen[:, None, :]] == 0)


def test_empty_row_has_the_prior():
    X, q, model = fitted("30 %")
    empty = np.full((1, X.shape[1]), np.nan)
    assert model.score_samples(empty) == [0.0]
    mean, cov = model.posterior(empty, parameters="fixed")
    assert np.all(mean == 0) and np.allclose(cov, np.eye(q), atol=1e-14)
    filled, std = model.impute(empty, return_std=True, parameters="fixed")
    assert_close(filled[0], model.mean_, "exact")
    assert_close(std[0] ** 2, np.diag(covariance(model)), "vector")
    assert_close(model.conditional(empty, parameters="fixed")[1][0], covariance(model), "vector")


def test_complete_rows_are_treated_as_before():
    X, _, model = fitted("30 %")
    complete = draw(60, 6, 2)
    mixed = np.vstack([complete, X])
    n = len(complete)
    for name in ("transform", "score_samples", "reconstruct", "impute"):
        outcome = getattr(model, name)
        assert_close(outcome(mixed)[:n], outcome(complete), "vector")
    for a, b in zip(model.posterior(mixed), model.posterior(complete), strict=True):
        assert_close(a[:n], b, "vector")
    assert np.array_equal(model.impute(complete), complete)
    assert not np.shares_memory(model.impute(complete), complete)


@pytest.mark.parametrize("features", [[0], [3, 1], [5, 4, 3, 2, 1, 0], np.array([2, 2])])
def test_conditional_of_some_features_is_a_part_of_all(features):
    X, _, model = fitted("30 %")
    mean, cov = model.conditional(X)
    some_mean, some_cov = model.conditional(X, features=features)
    assert_close(some_mean, mean[:, features], "exact")
    assert_close(some_cov, cov[:, features][:, :, features], "exact")


@pytest.mark.parametrize("features", [[], [6], [-1], [0.5], 3, ["a"]])
def test_nonsense_features_are_named(features):
    X, _, model = fitted("30 %")
    with pytest.raises(ValueError, match="features"):
        model.conditional(X, features=features)


# --- the fit is a maximum of the observed-data likelihood -------------------------------


@EVERY_PATTERN
def test_likelihood_never_falls(name):
    X, _, model = fitted(name)
    steps = np.asarray(model.loglikelihoods_)
    assert steps[-1] == model.loglikelihood_
    allowed = tolerance("monotone") * (np.abs(steps[:-1]) + X.size)
    assert np.all(np.diff(steps) >= -allowed)


@pytest.mark.parametrize("seed", range(16))
def test_likelihood_never_falls_whatever_the_table(seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(30, 80)), int(rng.integers(3, 9))
    q = int(rng.integers(1, max(2, d // 2)))
    X = remove(draw(n, d, q, noise=10 ** rng.uniform(-2, 0.5), seed=seed), rng.uniform(0.05, 0.5))
    fit = Fit(InMemoryTable(X), q)
    theta = rng.standard_normal(d * q + d + 1)  # plain steps from anywhere, no safeguard
    values = []
    for _ in range(40):
        theta, value = fit.step(theta)
        values.append(value)
    assert np.all(np.diff(values) >= -tolerance("monotone") * (np.abs(values[:-1]) + X.size))


@EVERY_PATTERN
def test_slope_vanishes_at_the_fit(name):
    X, _, model = fitted(name)
    W, mu, sigma2 = parameters(model)
    by_W, by_mu, by_psi = dense.gradient(X, W, mu, np.full(len(mu), sigma2))
    # per observed entry, for changes of one standard deviation of the noise
    count, sd = np.count_nonzero(~np.isnan(X)), np.sqrt(sigma2)
    assert np.max(np.abs(by_W)) * sd / count < 1e-5
    assert np.max(np.abs(by_mu)) * sd / count < 1e-5
    assert abs(by_psi.sum()) * sigma2 / count < 1e-5
    assert model.converged_


@EVERY_PATTERN
def test_no_perturbation_is_more_likely(name):
    X, _, model = fitted(name)
    W, mu, sigma2 = parameters(model)
    best = dense.loglikelihood(X, mu, covariance(model))
    rng, sd = np.random.default_rng(3), np.sqrt(np.mean(np.diag(covariance(model))))
    for size in (1e-3, 1e-2, 0.1):
        for _ in range(12):
            V = W + size * sd * rng.standard_normal(W.shape)
            m = mu + size * sd * rng.standard_normal(mu.shape)
            s = sigma2 * np.exp(size * rng.standard_normal())
            value = dense.loglikelihood(X, m, V @ V.T + s * np.eye(len(mu)))
            assert value <= best + 1e-9 * abs(best)


@EVERY_PATTERN
def test_no_feature_gains_from_other_loadings(name):
    # where loadings are zero the slope vanishes too: a saddle shows one feature at a time
    X, q, model = fitted(name)
    W, mu, sigma2 = parameters(model)
    best = dense.loglikelihood(X, mu, covariance(model))
    rng, sd = np.random.default_rng(3), np.sqrt(np.diag(covariance(model)))
    for j in range(len(mu)):
        for size in (0.03, 0.3):
            V = W.copy()
            V[j] += size * sd[j] * rng.standard_normal(q)
            value = dense.loglikelihood(X, mu, V @ V.T + sigma2 * np.eye(len(mu)))
            assert value <= best + 1e-9 * abs(best)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["10 %", "30 %", "60 %", "blocks", "monotone", "lonely value"])
def test_plain_em_run_long_ends_at_the_same_likelihood(name):
    X, q, model = fitted(name)
    slow = dense.em(X, q, 3000)
    value = dense.loglikelihood(X, slow.mean, slow.covariance)
    assert model.loglikelihood_ == pytest.approx(value, rel=1e-6)
    C = slow.covariance
    np.testing.assert_allclose(covariance(model), C, atol=1e-3 * np.max(C))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["30 %", "monotone", "q = d - 1", "q = 1", "much noise", *RIDGES])
def test_no_other_start_climbs_higher(name):
    X, q, model = fitted(name)
    for seed in range(4):
        found = dense.climb(X, q, seed)
        value = dense.loglikelihood(X, found.mean, found.covariance)
        assert value <= model.loglikelihood_ + 1e-6 * abs(value)


def test_one_entry_a_row_has_the_likelihood_of_its_columns():
    # each column is a Gaussian of its own: its variance is known, how it splits is not
    X, _, model = fitted("one entry a row")
    mean, var = np.nanmean(X, axis=0), np.nanvar(X, axis=0)
    n = np.count_nonzero(~np.isnan(X), axis=0)
    assert model.loglikelihood_ == pytest.approx(
        -0.5 * np.sum(n * (np.log(2 * np.pi * var) + 1)), rel=1e-8
    )
    assert_close(np.diag(covariance(model)), var, "em", scale=1e2 * np.max(var))
    assert_close(model.mean_, mean, "em", scale=1e2 * np.max(np.abs(mean)))


def test_lonely_value_is_its_columns_mean_and_has_only_noise():
    _, _, model = fitted("lonely value")
    assert model.mean_[4] == pytest.approx(3.0, abs=1e-6)
    assert np.max(np.abs(model.loadings_[4])) < 1e-6


@pytest.mark.parametrize("weighted", [False, True])
def test_one_step_is_the_dense_step_with_its_expansion(weighted):
    X, q = PATTERNS["30 %"]()
    d, rng = X.shape[1], np.random.default_rng(4)
    start = oracles.Model(rng.standard_normal(d), rng.standard_normal((d, q)), 0.7)
    w = rng.uniform(0.1, 3, len(X)) if weighted else None
    expected = dense.expand(*dense.em_step(X, start, w))
    factors = Factors(start.W, start.mean, np.full(d, start.sigma2))
    sums = Incomplete(X, w, q).sums(factors)
    W, mu, left = m_step(sums, factors)
    assert_close(W @ W.T, expected.W @ expected.W.T, "covariance")
    assert_close(mu, expected.mean, "covariance")
    assert left.sum() / sums.n.sum() == pytest.approx(expected.sigma2, rel=1e-10)
    before = dense.loglikelihood(X, start.mean, start.covariance, w)
    assert float(sums.loglikelihood) == pytest.approx(before, rel=1e-10)
    assert dense.loglikelihood(X, expected.mean, expected.covariance, w) > before


def test_noise_of_each_feature_is_a_maximum_too():
    X, q = PATTERNS["30 %"]()
    fit, rng = Fit(InMemoryTable(X), q, diagonal=True), np.random.default_rng(0)
    factors, record = fit_incomplete(fit, rng, tol=1e-9, max_iter=20_000)
    by_W, by_mu, by_psi = dense.gradient(X, factors.W, factors.mu, factors.psi)
    slopes = [np.abs(by_W).max(), np.abs(by_mu).max(), np.abs(by_psi * factors.psi).max()]
    assert record.converged and max(slopes) / X.size < 1e-5
    assert record.loglikelihoods[-1] > fitted("30 %")[2].loglikelihood_


# --- the limit of nothing missing -------------------------------------------------------


@pytest.mark.parametrize("n, d, q", [(60, 6, 2), (200, 4, 1), (12, 40, 2), (80, 5, 4)])
@pytest.mark.parametrize("weighted", [False, True])
def test_without_missing_values_em_is_the_closed_form(n, d, q, weighted):
    X = draw(n, d, q)
    w = np.random.default_rng(0).uniform(0, 2, n) if weighted else None
    fit, rng = Fit(InMemoryTable(X, w), q), np.random.default_rng(0)
    factors, record = fit_incomplete(fit, rng, tol=1e-11, max_iter=20_000)
    closed = PPCA(q).fit(X, sample_weight=w)
    C = factors.W @ factors.W.T + np.diag(factors.psi)
    assert_close(C, covariance(closed), "em")
    assert_close(factors.mu, closed.mean_, "em")
    assert record.loglikelihoods[-1] == pytest.approx(closed.loglikelihood_, rel=1e-10)
    assert_close(C, oracles.ppca(X, q, w).covariance, "em")


@pytest.mark.parametrize("weight", [0.0, 1e-14])
def test_an_outlier_of_no_weight_takes_no_digits(weight):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4)) @ rng.normal(size=(4, 4))
    X[rng.random(X.shape) < 0.2] = np.nan
    X[0] = 1e9
    w = np.append(weight, np.ones(59))
    found = column_starts(X, w)
    for j, x in enumerate(X.T.astype(np.longdouble)):
        seen, v = ~np.isnan(x), w[~np.isnan(x)].astype(np.longdouble)
        mean = v @ x[seen] / v.sum()
        wanted = v.sum(), mean, v @ (x[seen] - mean) ** 2 / v.sum()
        np.testing.assert_allclose([part[j] for part in found], np.float64(wanted), atol=1e-6)


def test_shared_patterns_are_the_rows_themselves():
    # few patterns: rows share one factorisation; many: each has its own
    X, _, model = fitted("blocks")
    mixed = np.vstack([X, remove(draw(90, 6, 2, seed=3), 0.5)])
    assert_close(model.score_samples(mixed)[:60], model.score_samples(X), "vector")
    assert_close(model.impute(mixed)[:60], model.impute(X), "vector")


# --- what the model says of itself ------------------------------------------------------


@EVERY_PATTERN
def test_attributes_describe_one_gaussian(name):
    X, q, model = fitted(name)
    V, W = model.components_, model.loadings_
    assert V.shape == (q, X.shape[1]) and W.shape == (X.shape[1], q)
    assert_close(V @ V.T, np.eye(q), "orthonormal")
    assert_close(model.get_covariance(), covariance(model), "covariance")
    ell = np.linalg.eigvalsh(covariance(model))[::-1]
    assert_close(model.explained_variance_, ell[:q], "vector")
    assert_close(model.explained_variance_ratio_, ell[:q] / ell.sum(), "vector")
    assert np.all(np.diff(model.explained_variance_) <= 0)
    assert model.n_components_ == q and model.n_features_in_ == X.shape[1]


@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize(
    "method",
    [
        "transform",
        "posterior",
        "score_samples",
        "reconstruct",
        "impute",
        "conditional",
        "sample_imputations",
    ],
)
def test_infinity_beside_nan_is_an_error_after_fit(method, value):
    X, _, model = fitted("30 %")
    new = X[:5].copy()
    new[1] = [np.nan, value, 0.0, 1.0, np.nan, 2.0]
    with pytest.raises(ValueError, match="inf"):
        getattr(model, method)(new)


def test_posterior_predictive_refuses_nan():
    X, _, model = fitted("30 %")
    with pytest.raises(ValueError, match="NaN"):
        model.posterior_predictive(X)


def test_more_freedom_than_entries_is_an_error_or_finite():
    # three latents explain two entries a row without any noise: the likelihood has no maximum
    X = draw(20, 6, 2)
    X = np.where(np.argsort(np.random.default_rng(0).random(X.shape), axis=1) < 2, X, np.nan)
    assert_error_or_finite(X, 3)


@pytest.mark.parametrize("seed", range(3))
def test_exact_low_rank_is_an_error_or_finite(seed):
    assert_error_or_finite(remove(draw(60, 6, 2, noise=0.0, seed=seed), 0.3, seed=seed + 1), 2)


def assert_error_or_finite(X, q):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            model = PPCA(q).fit(X)
        except ValueError as error:
            assert any(word in str(error) for word in ("component", "noise", "density"))
        else:
            assert np.all(np.isfinite(model.impute(X))) and np.isfinite(model.loglikelihood_)


def test_result_does_not_share_memory_with_input_or_model():
    X, _, model = fitted("30 %")
    for outcome in (model.impute(X), model.conditional(X)[0], model.sample_imputations(X, 1)):
        assert not np.shares_memory(outcome, X)
    before = np.array(model.mean_)
    filled = model.impute(np.full((1, X.shape[1]), np.nan))
    filled[:] = -1.0
    assert np.array_equal(model.mean_, before)


# --- draws and calibration --------------------------------------------------------------


def test_draws_have_the_moments_of_the_conditional():
    X, _, model = fitted("60 %")
    rows, draws = X[:12], 20_000
    tables = model.sample_imputations(rows, draws, random_state=0, parameters="fixed")
    assert tables.shape == (draws, *rows.shape)
    mean, cov = dense.conditionals(rows, model.mean_, covariance(model))
    for i in range(len(rows)):
        sd = np.sqrt(np.diag(cov[i]))
        error = np.abs(tables[:, i].mean(axis=0) - mean[i])
        assert np.all(error <= 5 * sd / np.sqrt(draws) + 1e-12)
        got = np.cov(tables[:, i], rowvar=False)
        bound = np.sqrt((np.outer(sd, sd) ** 2 + cov[i] ** 2) / draws)  # of a covariance, s.e.
        assert np.all(np.abs(got - cov[i]) <= 5 * bound + 1e-12)


def test_rows_are_drawn_independently():
    X, _, model = fitted("60 %")
    rows = np.repeat(X[:1], 2, axis=0)
    hole = int(np.flatnonzero(np.isnan(X[0]))[0])
    tables = model.sample_imputations(rows, 4000, random_state=1, parameters="fixed")
    a, b = tables[:, :, hole].T
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(4000)
    assert abs(np.corrcoef(a[1:], a[:-1])[0, 1]) < 5 / np.sqrt(4000)


def test_rows_of_more_weight_leave_the_parameters_surer():
    X = remove(draw(60, 5, 2), 0.2)
    factors = PPCA(2).fit(X)._model.factors
    between = []
    for weight in (1.0, 100.0):
        share = free_numbers(factors, False) / (weight * np.sum(~np.isnan(X)))
        known = imputed(factors, X, True)[1] ** 2 / (1 - share)
        given = (X, np.random.default_rng(0), RefitRequest(), np.full(60, weight))
        std = imputed_unsurely(factors, *given)[1]
        between.append(np.sum((std**2 - known)[np.isnan(X)]))
    assert 0 < between[1] < 0.1 * between[0]


def test_same_seed_same_draws():
    X, _, model = fitted("30 %")
    first = model.sample_imputations(X, 3, random_state=7)
    assert np.array_equal(first, model.sample_imputations(X, 3, random_state=7))
    again = model.sample_imputations(X, 3, random_state=np.random.default_rng(7))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, model.sample_imputations(X, 3, random_state=8))


@pytest.mark.parametrize("n_draws", [0, -1, 2.5, "many"])
def test_impossible_numbers_of_draws_are_named(n_draws):
    X, _, model = fitted("30 %")
    with pytest.raises(ValueError, match="n_draws"):
        model.sample_imputations(X, n_draws)


def coverage(tables, n=300, d=8, q=2):
    """Return the share of removed entries inside their 90 % intervals, 10 to 60 % removed."""
    inside = []
    for seed, share in enumerate(np.linspace(0.1, 0.6, tables)):
        truth = draw(n, d, q, seed=1000 + seed)
        X = remove(truth, share, seed=2000 + seed)
        mean, std = PPCA(q).fit(X).impute(X, return_std=True)
        hole = np.isnan(X)
        inside.append((np.abs(truth - mean) <= 1.645 * std)[hole])
    return float(np.mean(np.concatenate(inside)))


def test_ninety_per_cent_intervals_cover_ninety_per_cent():
    assert 0.88 <= coverage(10) <= 0.92


@pytest.mark.slow
def test_ninety_per_cent_intervals_cover_ninety_per_cent_in_fifty_tables():
    assert 0.88 <= coverage(50) <= 0.92


def folds(X, k, seed=0):
    """Yield X with one k-th of its observed entries removed, and which."""
    fold = np.random.default_rng(seed).permutation(np.count_nonzero(~np.isnan(X))) % k
    for part in range(k):
        hole = np.zeros(X.shape, dtype=bool)
        hole[~np.isnan(X)] = fold == part
        yield np.where(hole, np.nan, X), hole


def masked_error(X, fill, k=5, seed=0):
    """Return the RMSE of `fill` over all observed entries, each removed once."""
    squares = []
    for holed, hole in folds(X, k, seed):
        squares.append((fill(holed) - X)[hole] ** 2)
    return float(np.sqrt(np.mean(np.concatenate(squares))))


def fill_by_cross_validated_ppca(X):
    """Fill with the q below d of least masked error inside X: no held-out value is used."""
    errors = {
        q: masked_error(X, lambda X, q=q: PPCA(q).fit(X).impute(X), seed=1)
        for q in range(1, X.shape[1])
    }
    return PPCA(min(errors, key=errors.get)).fit(X).impute(X)


def iterative(X):
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return IterativeImputer(max_iter=30, random_state=0).fit_transform(X)


@pytest.fixture(scope="module")
def air(shared_data):
    """Ozone, Solar.R, Wind, Temp, Month, Day, each with mean 0 and variance 1."""
    X = np.genfromtxt(shared_data("airquality.csv"), delimiter=",", skip_header=1)
    assert X.shape == (153, 6) and np.isnan(X).sum() == 44
    return (X - np.nanmean(X, axis=0)) / np.nanstd(X, axis=0)


def assert_fills_as_well_as_scikit_learn(X, splits):
    """Assert a masked error, averaged over splits into folds, no larger than every imputer's."""

    def error(fill):
        return np.mean([masked_error(X, fill, seed=seed) for seed in splits])

    ours = error(fill_by_cross_validated_ppca)
    for fill in (iterative, KNNImputer().fit_transform, SimpleImputer().fit_transform):
        assert ours <= error(fill)


@pytest.mark.slow
def test_air_quality_is_filled_as_well_as_by_scikit_learn_with_q_by_cross_validation(air):
    assert_fills_as_well_as_scikit_learn(air, range(3))


@pytest.mark.slow
def test_air_quality_is_filled_as_well_as_by_scikit_learn_over_ten_splits(air):
    assert_fills_as_well_as_scikit_learn(air, range(10))


def test_draws_where_hardly_any_noise_is_left():
    """The posterior of the latents is singular up to rounding: Cholesky alone would fail."""
    rng = np.random.default_rng(0)
    W = rng.normal(size=(6, 5)) * [1e3, 1.0, 1.0, 1.0, 1e-3]
    X = rng.normal(size=(40, 5)) @ W.T
    X[rng.random(X.shape) < 0.2] = np.nan
    factors = Factors(W, np.zeros(6), np.full(6, 1e-12))
    draws = drawn_imputations(factors, X, 3, np.random.default_rng(0))
    assert np.all(np.isfinite(draws))
    assert np.array_equal(draws[0][~np.isnan(X)], X[~np.isnan(X)])
