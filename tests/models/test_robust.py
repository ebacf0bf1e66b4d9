"""The multivariate t: its density, its EM, which rows it sets aside."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize, special, stats

from dualpca.data import InMemoryTable
from dualpca.gaussian import Factors, all_latents, imputed
from dualpca.models.robust import (
    CompleteFit,
    RobustFit,
    RobustRequest,
    best_dof,
    column_medians,
    core_tails,
    fit_robust,
    least_dof,
    limits_of,
    outlyingness,
    robust_units,
)
from dualpca.models.spiked import PPCARequest, fit_ppca


def t_rows(n=120, d=5, q=2, dof=4.0, seed=0, missing=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, q)) @ rng.normal(size=(q, d)) * 2 + rng.normal(size=(n, d))
    X = X / np.sqrt(rng.chisquare(dof, n) / dof)[:, None] + rng.normal(size=d)
    X[rng.random(X.shape) < missing] = np.nan
    return X


def fitted(X, q=2, weights=None, **request):
    return fit_robust(InMemoryTable(X, weights), RobustRequest(n_components=q, **request))


def dense_density(model, rows):
    """Return the log-density of every row from the dense scale matrix of what it observed."""
    W, mu, sigma2 = model.factors.W, model.factors.mu, model.noise
    C = W @ W.T + sigma2 * np.eye(len(mu))
    found = []
    for x in rows:
        o = ~np.isnan(x)
        if not o.any():
            found.append(0.0)
        elif math.isinf(model.dof):
            found.append(stats.multivariate_normal(mu[o], C[np.ix_(o, o)]).logpdf(x[o]))
        else:
            found.append(stats.multivariate_t(mu[o], C[np.ix_(o, o)], model.dof).logpdf(x[o]))
    return np.array(found)


def brute_force(X, q, dof, W, mu, sigma2, steps):
    """Take plain EM steps row by row, as the theory writes them; return all and the likelihoods."""
    values = []
    for _ in range(steps):
        G = np.zeros((X.shape[1], q + 1, q + 1))
        rhs = np.zeros((X.shape[1], q + 1))
        kept, value = [], 0.0
        for x in X:
            o = np.flatnonzero(~np.isnan(x))
            Wo, r = W[o], x[o] - mu[o]
            C = Wo @ Wo.T + sigma2 * np.eye(len(o))
            delta = r @ np.linalg.solve(C, r)
            value += special.gammaln((dof + len(o)) / 2) - special.gammaln(dof / 2)
            value -= len(o) / 2 * math.log(dof * math.pi) + np.linalg.slogdet(C)[1] / 2
            value -= (dof + len(o)) / 2 * math.log1p(delta / dof)
            u = (dof + len(o)) / (dof + delta)
            M = np.linalg.inv(Wo.T @ Wo + sigma2 * np.eye(q))
            z = M @ Wo.T @ r
            second = np.block(
                [[u * np.outer(z, z) + sigma2 * M, u * z[:, None]], [u * z[None], np.array([[u]])]]
            )
            G[o] += second
            rhs[o] += u * x[o, None] * np.append(z, 1.0)
            kept.append((o, u, z, sigma2 * M, x[o]))
        both = np.linalg.solve(G, rhs[:, :, None])[:, :, 0]
        W, mu = both[:, :q], both[:, q]
        total = sum(
            u * np.sum((x - W[o] @ z - mu[o]) ** 2) + np.sum((W[o] @ S) * W[o])
            for o, u, z, S, x in kept
        )
        sigma2 = total / sum(len(o) for o, *_ in kept)
        values.append(value)
    return W, mu, sigma2, values


# --- the density -------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("q", [1, 2, 4])
@pytest.mark.parametrize("dof", [2.5, 30.0, math.inf])
def test_the_density_is_that_of_scipy(missing, q, dof):
    X = t_rows(missing=missing)
    X[3] = np.where(missing, np.nan, X[3])
    model = fitted(X, q, dof=dof)
    np.testing.assert_allclose(
        model.log_density(X, missing=True), dense_density(model, X), rtol=1e-9, atol=1e-9
    )
    counted = np.asarray(model.row_weights) > 0
    value = dense_density(model, X)[counted].sum()
    assert model.history.loglikelihood == pytest.approx(value, rel=1e-9)


def test_the_density_tends_to_the_gaussian():
    X = t_rows(dof=50)
    model = fitted(X, dof=math.inf, trim=False)
    for dof, error in [(1e6, 1e-2), (1e9, 1e-5), (1e13, 1e-8)]:
        near = replace(model, dof=dof).log_density(X, missing=True)
        np.testing.assert_allclose(near, model.log_density(X, missing=True), atol=error)


def test_conditional_moments_are_those_of_the_t():
    # x_m | x_o of a bivariate t: variance (ν + δ)/(ν + 1 − 2) · C_mm·o
    factors = Factors(np.array([[1.0], [2.0]]), np.zeros(2), np.full(2, 0.5), 5.0)
    C = factors.W @ factors.W.T + 0.5 * np.eye(2)
    filled, std = imputed(factors, np.array([[3.0, np.nan]]), True)
    delta = 9 / C[0, 0]
    scale = C[1, 1] - C[0, 1] ** 2 / C[0, 0]
    assert filled[0, 1] == pytest.approx(C[0, 1] / C[0, 0] * 3)
    assert std[0, 1] ** 2 == pytest.approx((5 + delta) / (5 + 1 - 2) * scale)


# --- EM ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.slow
def test_em_ends_where_brute_force_does(missing):
    X = t_rows(60, 4, 1, dof=3.0, missing=missing)
    X = X[~np.isnan(X).all(axis=1)]
    model = fitted(X, 1, dof=3.0, trim=False, tol=1e-10, max_iter=5000)
    W, mu, sigma2 = model.factors.W, model.factors.mu, model.noise
    rng = np.random.default_rng(1)
    begin = (W + 0.1 * rng.normal(size=W.shape), mu + 0.1, 1.3 * sigma2)
    W2, mu2, sigma2_2, values = brute_force(X, 1, 3.0, *begin, 250)
    assert np.all(np.diff(values) > -1e-8)
    np.testing.assert_allclose(np.abs(W2), np.abs(W), rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(mu2, mu, atol=1e-5)
    assert sigma2_2 == pytest.approx(sigma2, rel=1e-5)
    assert model.history.loglikelihood == pytest.approx(values[-1], abs=1e-6)


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("dof", [None, 3.0])
def test_the_likelihood_never_falls(missing, dof):
    X = t_rows(200, 8, 2, dof=3.0, missing=missing)
    values = np.array(fitted(X, 3, dof=dof, trim=False, tol=1e-9).history.loglikelihoods)
    assert len(values) > 3
    assert np.all(np.diff(values) >= -1e-9 * np.abs(values[:-1]))


def test_a_gradient_is_zero_at_the_maximum():
    X = t_rows(80, 4, 1, dof=3.0)
    model = fitted(X, 1, trim=False, tol=1e-12, max_iter=5000)
    W, mu = model.factors.W[:, 0], model.factors.mu

    def value(theta):
        C = np.outer(theta[:4], theta[:4]) + math.exp(theta[8]) * np.eye(4)
        return stats.multivariate_t(theta[4:8], C, math.exp(theta[9])).logpdf(X).sum()

    theta = np.concatenate([W, mu, [math.log(model.noise), math.log(model.dof)]])
    slope = optimize.approx_fprime(theta, value, 1e-6)
    assert np.max(np.abs(slope)) < 2e-2


def test_missing_values_and_none_meet():
    # EM for rows with missing values, of a table without any, is the closed form's
    X = t_rows(100, 5, 2, dof=4.0)
    table = InMemoryTable(X)
    a, a_dof, a_record = CompleteFit(table, 2, None).run(np.ones(100), 1e-10, 2000)
    fit = RobustFit(table, 2)
    start = fit.unpack(fit.begin(np.random.default_rng(0)))
    b, b_dof, b_record = fit.run(start, 1e-10, 2000)
    np.testing.assert_allclose(a.gaussian.values, b.gaussian.values, rtol=1e-5)
    assert a.gaussian.noise == pytest.approx(b.gaussian.noise, rel=1e-5)
    assert a_dof == pytest.approx(b_dof, rel=1e-4)
    assert a_record.loglikelihoods[-1] == pytest.approx(b_record.loglikelihoods[-1], rel=1e-9)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_infinite_degrees_of_freedom_are_ppca(missing):
    X = t_rows(150, 6, 2, dof=1e9, missing=missing)
    ours = fitted(X, 2, dof=math.inf, trim=False, tol=1e-10)
    theirs = fit_ppca(InMemoryTable(X), PPCARequest(2, tol=1e-10))
    np.testing.assert_allclose(ours.variances, theirs.variances, rtol=1e-8)
    assert ours.noise == pytest.approx(theirs.noise, rel=1e-8)
    assert ours.history.loglikelihood == pytest.approx(theirs.history.loglikelihood, rel=1e-10)
    near = fitted(X, 2, dof=1e12, trim=False, tol=1e-10)
    np.testing.assert_allclose(near.variances, theirs.variances, rtol=1e-8)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_weights_are_repeated_rows(missing):
    X = t_rows(60, 5, 1, dof=3.0, missing=missing)
    w = np.random.default_rng(0).integers(0, 4, 60)
    a = fitted(X, 1, weights=w.astype(float), tol=1e-9)
    b = fitted(np.repeat(X, w, axis=0), 1, tol=1e-9)
    np.testing.assert_allclose(a.mean, b.mean, atol=1e-6)
    np.testing.assert_allclose(a.variances, b.variances, rtol=1e-6)
    assert a.dof == pytest.approx(b.dof, rel=1e-4)
    assert a.history.loglikelihood == pytest.approx(b.history.loglikelihood, rel=1e-9)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_shares_of_variance_are_of_the_trace(missing):
    model = fitted(t_rows(missing=missing))
    trace = np.sum(model.factors.W**2) + 5 * model.noise
    np.testing.assert_allclose(model.ratios, model.variances / trace, rtol=1e-8)


def test_rows_with_nothing_observed_count_nothing():
    X = t_rows(80, 4, 1, missing=0.1)
    more = np.vstack([X, np.full((5, 4), np.nan)])
    a, b = fitted(X, 1), fitted(more, 1)
    np.testing.assert_allclose(a.variances, b.variances, rtol=1e-6)
    np.testing.assert_allclose(b.row_weights[-5:], 1.0)
    np.testing.assert_allclose(b.log_density(more, missing=True)[-5:], 0.0)


# --- degrees of freedom ------------------------------------------------------------------------


@pytest.mark.parametrize("dof", [3.0, 8.0])
def test_degrees_of_freedom_are_found(dof):
    X = t_rows(4000, 6, 2, dof=dof)
    assert fitted(X).dof == pytest.approx(dof, rel=0.15)


def test_the_search_finds_the_best():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 8, 500).astype(float)
    far = rng.chisquare(sizes) / (rng.chisquare(5, 500) / 5)
    w = rng.random(500)

    def cost(log_dof):
        nu = math.exp(log_dof)
        return -(w @ (stats.f.logpdf(far / sizes, sizes, nu)))

    best = optimize.minimize_scalar(cost, bounds=(0.8, 6.0), method="bounded").x
    assert math.log(best_dof(sizes, far, w)) == pytest.approx(best, abs=1e-3)


def test_the_smallest_dof_is_beyond_the_bound_of_kent_and_tyler():
    """A share s of the weight on q axes is bounded for ν > (ds − q)/(1 − s); twice that is kept."""
    X = t_rows(8, 30)
    s = 3 / 8  # any q + 1 rows
    assert least_dof(X, np.ones(8), 2) == pytest.approx(2 * (30 * s - 2) / (1 - s))
    w = np.array([1.0, 4.0, 1.0, 2.0, 1.0, 3.0, 1.0, 1.0])
    s = 9 / 14
    for rows, weights in ((X, w), (np.repeat(X, w.astype(int), axis=0), np.ones(14))):
        assert least_dof(rows, weights, 2) == pytest.approx(2 * (30 * s - 2) / (1 - s))
    assert least_dof(X[:3], np.ones(3), 2) == math.inf


def test_limits_are_quantiles_of_f():
    sizes = np.array([0.0, 1.0, 5.0])
    found = limits_of(4.0, sizes, 100)
    np.testing.assert_allclose(found[1:], sizes[1:] * stats.f.isf(1e-4, sizes[1:], 4.0))
    assert found[0] == math.inf
    np.testing.assert_allclose(limits_of(math.inf, sizes, 100)[1:], stats.chi2.isf(1e-4, [1, 5]))


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_the_core_tells_the_tails_whatever_lies_beyond(share):
    rng = np.random.default_rng(0)
    n, d = 4000, 8
    sizes = np.full(n, float(d))
    far = 2.0 * rng.chisquare(d, n) / (rng.chisquare(4, n) / 4)
    far[: int(share * n)] = 1e6
    dof, scale = core_tails(sizes, far, np.ones(n))
    assert 3 <= dof <= 6
    assert scale == pytest.approx(2.0, rel=0.2)
    light = 2.0 * rng.chisquare(d, n)
    light[: int(share * n)] = 1e6
    dof, scale = core_tails(sizes, light, np.ones(n))
    assert dof >= 40
    assert scale == pytest.approx(2.0, rel=0.1)


# --- which rows are set aside ------------------------------------------------------------------


def ordinary(n, d, q, seed, signal=10.0):
    rng = np.random.default_rng(seed)
    B = np.linalg.qr(rng.normal(size=(d, q)))[0] * np.sqrt(signal * np.linspace(2, 1, q))
    return rng.normal(size=(n, q)) @ B.T + rng.normal(size=(n, d)), B


def spoiled(X, share, kind, seed):
    rng = np.random.default_rng(1000 + seed)
    n, d = X.shape
    bad = rng.permutation(n)[: round(share * n)]
    X = X.copy()
    if kind == "scattered":
        X[bad] = 30 * rng.normal(size=(len(bad), d))
    else:
        v = rng.normal(size=d)
        X[bad] = 15 * math.sqrt(d) * v / np.linalg.norm(v) + rng.normal(size=(len(bad), d))
    return X, bad


def angle(V, B):
    s = np.linalg.svd(np.linalg.qr(B)[0].T @ V, compute_uv=False)
    return np.degrees(np.arccos(min(1.0, s.min())))


@pytest.mark.grid(2)
@pytest.mark.parametrize("kind", ["scattered", "clustered"])
@pytest.mark.parametrize("share", [0.05, 0.2])
@pytest.mark.parametrize("missing", [0.0, 0.1])
@pytest.mark.parametrize(("n", "d", "q"), [(300, 10, 2), (60, 100, 2)])
def test_outliers_do_not_turn_the_axes(kind, share, missing, n, d, q):
    clean, ours, theirs = [], [], []
    for seed in range(3):
        X, B = ordinary(n, d, q, seed, signal=10 + d / 3)
        Y, bad = spoiled(X, share, kind, seed)
        holes = np.random.default_rng(seed).random(X.shape) < missing
        X[holes], Y[holes] = np.nan, np.nan
        model = fitted(Y, q)
        assert np.all(np.asarray(model.row_weights)[bad] < 0.05)
        rest = np.delete(X, bad, axis=0)
        clean.append(angle(fit_ppca(InMemoryTable(rest), PPCARequest(q)).axes, B))
        ours.append(angle(model.axes, B))
        theirs.append(angle(fit_ppca(InMemoryTable(Y), PPCARequest(q)).axes, B))
    assert np.median(ours) < 1.5 * np.median(clean)
    assert np.median(theirs) > 3 * np.median(clean)


def test_the_likelihood_alone_is_turned_by_outliers_at_one_place():
    X, B = ordinary(300, 10, 2, 0)
    Y, _ = spoiled(X, 0.2, "clustered", 0)
    assert angle(fitted(Y, trim=False).axes, B) > 5 * angle(fitted(Y).axes, B)


def test_clean_rows_are_fitted_as_ppca_does():
    for seed in range(5):
        X, _ = ordinary(300, 8, 2, seed)
        ours, theirs = fitted(X), fit_ppca(InMemoryTable(X), PPCARequest(2))
        assert np.all(np.asarray(ours.row_weights) > 0)
        assert angle(ours.axes, theirs.axes) < 0.5
        np.testing.assert_allclose(ours.variances * ours.inflation, theirs.variances, rtol=0.03)
        assert ours.noise * ours.inflation == pytest.approx(theirs.noise, rel=0.03)


def test_heavy_tails_are_no_reason_to_set_rows_aside():
    for seed in range(3):
        model = fitted(t_rows(1000, 10, 2, dof=3.0, seed=seed))
        assert np.mean(np.asarray(model.row_weights) == 0) <= 0.01
        assert model.dof == pytest.approx(3.0, abs=0.7)


def test_enormous_outliers_take_no_digits():
    X, _ = ordinary(200, 5, 1, 0)
    Y = np.vstack([X, np.full((10, 5), 1e150)])
    a, b = fitted(X, 1), fitted(Y, 1)
    np.testing.assert_allclose(b.mean, a.mean, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(b.variances, a.variances, rtol=1e-4)


def test_the_rule_for_components_does_not_see_outliers():
    X, _ = ordinary(300, 8, 2, 0)
    Y, _ = spoiled(X, 0.1, "clustered", 0)
    assert fitted(X, None).n_components == 2
    assert fitted(Y, None).n_components == 2
    assert fitted(Y, "cv").selection.chosen == 2
    assert fitted(Y, "evidence").n_components == 2
    assert fitted(Y, "bic").n_components == 2


# --- pieces ------------------------------------------------------------------------------------


def test_weighted_medians_are_those_of_repeated_values():
    rng = np.random.default_rng(0)
    for n in (4, 5, 9):
        X, w = rng.normal(size=(n, 3)), rng.integers(1, 4, n)
        X[0, 1] = np.nan
        expected = np.nanmedian(np.repeat(X, w, axis=0), axis=0)
        np.testing.assert_allclose(column_medians(X, w.astype(float)), expected)


def test_units_are_standard_deviations_of_what_is_no_outlier():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20000, 2)) * [1.0, 100.0] + [5.0, -3.0]
    X[:2000, 0] = 1e9
    X[5, 1] = np.nan
    units = robust_units(InMemoryTable(X))
    np.testing.assert_allclose(units.scale, [1.0, 100.0], rtol=0.03)
    np.testing.assert_allclose(units.mean / units.scale, [5.0, -0.03], atol=0.15)


def test_units_know_what_they_change_the_likelihood_by():
    X, w = t_rows(40, 3, 1, missing=0.1), np.random.default_rng(0).integers(1, 4, 40)
    one = robust_units(InMemoryTable(X, w.astype(float)))
    other = robust_units(InMemoryTable(np.repeat(X, w, axis=0)))
    volume = w @ (~np.isnan(X)) @ np.log(one.scale)
    for units in (one, other):
        assert units.log_volume == pytest.approx(volume)
        assert units.weight == w.sum()
        assert units.loglikelihood_per_row(2.0) == pytest.approx(2.0 - volume / w.sum())


def test_units_of_columns_that_hardly_vary():
    X = np.zeros((100, 3))
    X[:10, 1] = np.arange(10.0)
    units = robust_units(InMemoryTable(X))
    assert units.scale[0] == 1.0 and units.scale[2] == 1.0
    assert 0 < units.scale[1] < 10


def test_latents_of_a_t_have_its_distance():
    X = t_rows(20, 4, 1, missing=0.2)
    model = fitted(t_rows(200, 4, 1), 1)
    found = all_latents(model.factors, X)
    W, mu = model.factors.W, model.factors.mu
    C = W @ W.T + model.noise * np.eye(4)
    for i, x in enumerate(X):
        o = ~np.isnan(x)
        r = (x - mu)[o]
        assert found.distance[i] == pytest.approx(r @ np.linalg.solve(C[np.ix_(o, o)], r))


def test_distances_over_what_was_observed_know_how_much_it_was():
    X = t_rows(60, missing=0.2)
    model = fitted(X)
    found, sizes = model.distance(X)
    assert np.array_equal(sizes, np.sum(~np.isnan(X), axis=1))
    C = model.factors.W @ model.factors.W.T + model.noise * np.eye(5)
    for x, one in zip(X, found, strict=True):
        o = ~np.isnan(x)
        off = x[o] - model.factors.mu[o]
        assert one == pytest.approx(off @ np.linalg.solve(C[np.ix_(o, o)], off), rel=1e-9)


def test_outlyingness_is_its_definition_and_does_not_see_the_origin():
    X, w = t_rows(40), np.ones(40)
    found = outlyingness(X, w, np.random.default_rng(0))
    again = outlyingness(X + 100.0, w, np.random.default_rng(0))
    np.testing.assert_allclose(again, found, rtol=1e-9)
    # no direction shows a row farther out than all of them do
    V = np.random.default_rng(1).normal(size=(5, 4000))
    P = X @ V
    off = np.abs(P - np.median(P, axis=0))
    most = np.max(off / np.median(off, axis=0), axis=1)
    assert np.all(found < 1.5 * most) and np.corrcoef(found, most)[0, 1] > 0.8
