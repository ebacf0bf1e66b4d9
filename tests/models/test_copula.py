"""The latent copula: integrals on grids are the judge of EP, and limits that are known exactly."""

import io
from dataclasses import replace

import numpy as np
import pytest
from scipy import special
from threadpoolctl import threadpool_limits

from dualpca.arrays import backend
from dualpca.arrays.progress import showing
from dualpca.errors import DegenerateError
from dualpca.gaussian import Factors, Score, all_latents
from dualpca.models.copula import (
    CopulaFactors,
    CopulaRequest,
    LatentRows,
    choose_latents,
    choosing,
    fit_copula,
    fitting,
    propagation,
)
from dualpca.models.copula.fitting import CopulaFit

INF = np.inf


def law(q=2, s=5, sizes=(3,), seed=0, size=0.6):
    """Return a law with shifts that give the levels their frequencies."""
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(s + sum(sizes), q))
    W[:s] *= (np.sqrt(size) / np.linalg.norm(W[:s], axis=1))[:, None] if q else 1.0
    frequencies = tuple(rng.dirichlet(np.full(K, 5.0)) for K in sizes)
    psi = np.ones(s + sum(sizes))
    psi[:s] = 1 - (W[:s] ** 2).sum(axis=1)
    rows = nothing(1, s, sizes)
    fit = CopulaFit(rows, frequencies, q)
    return fit.unpack(fit.pack(W, psi))


def nothing(n, s, sizes=()):
    """Return rows that know nothing."""
    low = np.full((n, s), -INF)
    return LatentRows(low, -low, np.full((n, len(sizes)), -1), tuple(sizes))


def rows_of(factors, n, seed=0, missing=0.3, known=(0,), cuts=(-0.7, 0.2, 1.1)):
    """Draw rows; the scalars that are not `known` show between which cuts they are."""
    rng = np.random.default_rng(seed)
    z, levels = factors.sample(n, rng)
    edges = np.array([-INF, *cuts, INF])
    k = np.searchsorted(cuts, z)
    low, high = edges[k], edges[k + 1]
    for j in known:
        low[:, j] = high[:, j] = z[:, j]
    full = LatentRows(low, high, levels, factors.sizes)
    return full.hiding(rng.random(z.shape) < missing, rng.random(levels.shape) < missing), full, z


class Grid:
    """Everything by sums over a grid of t (q = 1 or 2)."""

    def __init__(self, factors, rows):
        axis = np.linspace(-6, 6, 301 if factors.q == 1 else 61)
        t = np.stack([x.ravel() for x in np.meshgrid(*[axis] * factors.q)], axis=1)
        self.t, self.factors = t, factors
        s = factors.s
        prior = np.exp(-0.5 * (t**2).sum(axis=1))
        self.prior = prior / prior.sum()
        mean, sd = t @ factors.W[:s].T, np.sqrt(factors.psi[:s])
        self.levels = [self.level_probabilities(c) for c in range(len(factors.sizes))]
        self.likelihoods = np.ones((rows.n, s + len(factors.sizes), t.shape[0]))
        for i in range(rows.n):
            for j in range(s):
                a, b = rows.low[i, j], rows.high[i, j]
                if a == b:
                    e = (a - mean[:, j]) / sd[j]
                    f = np.exp(-0.5 * (e**2 - a**2)) / sd[j]
                elif a > -INF or b < INF:
                    f = special.ndtr((b - mean[:, j]) / sd[j])
                    f -= special.ndtr((a - mean[:, j]) / sd[j])
                    f /= special.ndtr(b) - special.ndtr(a)
                else:
                    continue
                self.likelihoods[i, j] = f
            for c in range(len(factors.sizes)):
                k = rows.levels[i, c]
                if k >= 0:
                    p = self.levels[c][:, k]
                    self.likelihoods[i, s + c] = p / (p @ self.prior)
        joint = self.likelihoods.prod(axis=1) * self.prior
        self.evidence = np.log(joint.sum(axis=1))
        self.weights = joint / joint.sum(axis=1, keepdims=True)
        self.mean = self.weights @ t
        self.covariance = np.einsum("ip,pa,pb->iab", self.weights, t, t)
        self.covariance -= self.mean[:, :, None] * self.mean[:, None, :]

    def level_probabilities(self, c):
        part = self.factors.parts[c]
        eta = self.t @ self.factors.loadings_of(c).T + self.factors.shifts[part]
        y = np.linspace(-10, 12, 89)
        x = y[None, :, None] - eta[:, None, :]
        below, density = special.ndtr(x), np.exp(-0.5 * x**2) / np.sqrt(2 * np.pi)
        found = []
        for k in range(eta.shape[1]):
            others = np.delete(below, k, axis=2).prod(axis=2)
            found.append((density[:, :, k] * others).sum(axis=1) * (y[1] - y[0]))
        return np.stack(found, axis=1)

    def without(self, j):
        """Return the weights of t given all but column j."""
        joint = np.delete(self.likelihoods, j, axis=1).prod(axis=1) * self.prior
        return joint / joint.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("q", [1, 2])
@pytest.mark.parametrize("sizes", [(), (3,), (2, 4)])
def test_posterior_and_evidence_are_those_of_a_grid(q, sizes):
    factors = law(q, 5, sizes)
    rows, _, _ = rows_of(factors, 40)
    exact = Grid(factors, rows)
    mean, covariance = factors.posterior(rows)
    sd = np.sqrt(np.diagonal(exact.covariance, axis1=1, axis2=2))
    print(
        np.abs((mean - exact.mean) / sd).max(),
        np.abs(covariance - exact.covariance).max(),
        np.abs(factors.log_evidence(rows) - exact.evidence).max(),
    )
    assert np.abs((mean - exact.mean) / sd).max() < 0.03
    assert np.abs(covariance - exact.covariance).max() < 0.02
    assert np.abs(factors.log_evidence(rows) - exact.evidence).max() < 0.02


@pytest.mark.parametrize("sizes", [(3,), (2, 4)])
def test_entries_given_the_others_are_those_of_a_grid(sizes):
    factors = law(2, 5, sizes)
    rows, _, _ = rows_of(factors, 40)
    exact, found = Grid(factors, rows), factors.conditional(rows)
    for j in range(5):
        weights, s = exact.without(j), exact.t @ factors.W[j]
        mean = weights @ s
        variance = weights @ s**2 - mean**2 + factors.psi[j]
        off = np.abs(found.mean[:, j] - mean)
        known = rows.known()[0][:, j]
        assert off[~known].max() < 0.01
        assert off.max() < 0.1  # EP's cavities are a little less sure than EP itself
        assert np.median(off) < 0.01
        assert np.abs(found.variance[:, j] - variance)[~known].max() < 0.02
    for c in range(len(sizes)):
        p = exact.without(5 + c) @ exact.levels[c]
        assert np.abs(found.probabilities[c] - p).max() < 0.02
        np.testing.assert_allclose(found.probabilities[c].sum(axis=1), 1.0, rtol=1e-12)


# --- Limits that are known exactly ---------------------------------------------------------------


def test_known_values_are_the_gaussian_with_missing_values():
    factors = law(3, 7, ())
    rows, _, z = rows_of(factors, 50, known=range(7))
    X = np.where(rows.low == rows.high, z, np.nan)
    plain = all_latents(Factors(factors.W, np.zeros(7), factors.psi), X)
    mean, covariance = factors.posterior(rows)
    np.testing.assert_allclose(mean, plain.mean, atol=1e-12)
    np.testing.assert_allclose(covariance, plain.covariance, atol=1e-12)
    alone = np.nansum(-0.5 * (X**2 + np.log(2 * np.pi)), axis=1)
    np.testing.assert_allclose(factors.log_evidence(rows), plain.log_density - alone, atol=1e-10)


def test_no_latents_is_independence():
    factors = law(0, 3, (3, 1, 5))
    rows, _, _ = rows_of(factors, 30)
    np.testing.assert_allclose(factors.log_evidence(rows), 0.0, atol=1e-7)
    found = factors.conditional(rows)
    np.testing.assert_allclose(found.mean, 0.0)
    np.testing.assert_allclose(found.variance, 1.0)
    for p, part in zip(found.probabilities, factors.parts, strict=True):
        np.testing.assert_allclose(p, np.tile(factors.frequencies[part], (30, 1)), atol=1e-7)
    fitted = fit_copula(
        rows, tuple(factors.frequencies[p] for p in factors.parts), CopulaRequest(n_components=0)
    )
    assert (fitted.history.loglikelihood, fitted.history.converged) == (0.0, True)
    np.testing.assert_allclose(fitted.shifts, factors.shifts, atol=1e-8)


def test_a_row_that_knows_one_entry_has_the_evidence_of_its_column():
    factors = law(2, 2, (4,))
    low = np.array([[0.3, -INF], [-INF, -1.0], [-INF, -INF], [-INF, -INF]])
    high = np.array([[0.3, INF], [INF, 0.5], [INF, INF], [INF, INF]])
    rows = LatentRows(low, high, np.array([[-1], [-1], [2], [-1]]), (4,))
    np.testing.assert_allclose(factors.log_evidence(rows), 0.0, atol=1e-6)


def test_a_row_that_knows_nothing_has_the_prior():
    factors = law(3, 4, (3,))
    rows = nothing(2, 4, (3,))
    mean, covariance = factors.posterior(rows)
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_allclose(covariance, np.tile(np.eye(3), (2, 1, 1)))
    found = factors.conditional(rows)
    np.testing.assert_allclose(found.variance, 1.0, rtol=1e-12)
    np.testing.assert_allclose(found.probabilities[0][0], factors.frequencies, atol=1e-6)


def test_two_levels_are_a_binary_column():
    factors = law(2, 4, (2,))
    rows, _, _ = rows_of(factors, 60)
    # ζ₁ − ζ₀ has noise 2; in units of its deviation it is a scalar coordinate
    w = factors.loadings_of(0)[1] - factors.loadings_of(0)[0]
    unit = np.sqrt(2 + w @ w)
    cut = (factors.shifts[0] - factors.shifts[1]) / unit
    level = rows.levels[:, 0]
    low = np.where(level == 1, cut, -INF)[:, None]
    high = np.where(level == 0, cut, INF)[:, None]
    W = np.concatenate([factors.W[:4], (w / unit)[None]])
    psi = np.append(factors.psi[:4], 2 / unit**2)
    binary = CopulaFactors(W, psi, np.zeros(0), np.zeros(0))
    other = LatentRows(
        np.concatenate([rows.low, low], axis=1),
        np.concatenate([rows.high, high], axis=1),
        np.zeros((60, 0), dtype=int),
    )
    for one, two in zip(factors.posterior(rows), binary.posterior(other), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)
    np.testing.assert_allclose(factors.log_evidence(rows), binary.log_evidence(other), atol=1e-5)
    law_of = binary.conditional(other)
    p = special.ndtr((law_of.mean[:, 4] - cut) / np.sqrt(law_of.variance[:, 4]))
    np.testing.assert_allclose(factors.conditional(rows).probabilities[0][:, 1], p, atol=1e-5)


def test_a_narrow_interval_is_a_known_value():
    factors = law(2, 5, ())
    rows, _, z = rows_of(factors, 30, known=range(5), missing=0.2)
    known = rows.low == rows.high
    narrow = LatentRows(
        np.where(known, z - 1e-7, -INF), np.where(known, z + 1e-7, INF), rows.levels
    )
    for one, two in zip(factors.posterior(rows), factors.posterior(narrow), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)
    np.testing.assert_allclose(factors.log_evidence(rows), factors.log_evidence(narrow), atol=1e-5)


@pytest.mark.parametrize("size", [0.9, 0.99, 0.9999])
def test_little_noise_is_stable(size):
    factors = law(2, 8, (3,), size=size)
    rows, _, _ = rows_of(factors, 200, known=(0, 1))
    exact = Grid(factors, rows) if size == 0.9 else None
    mean, covariance = factors.posterior(rows)
    assert np.isfinite(mean).all()
    assert (np.linalg.eigvalsh(covariance) > 0).all()
    assert np.isfinite(factors.log_evidence(rows)).all()
    if exact is not None:
        sd = np.sqrt(np.diagonal(exact.covariance, axis1=1, axis2=2))
        assert np.abs((mean - exact.mean) / sd).max() < 0.15


def test_rows_far_from_the_law_have_posteriors():
    factors = law(1, 3, (3,), size=0.95)
    low = np.array([[9.0, -INF, -INF], [8.0, 7.9, -INF]])
    high = np.array([[9.0, -9.0, INF], [INF, 8.0, -8.0]])
    rows = LatentRows(low, high, np.array([[0], [1]]), (3,))
    assert np.isfinite(factors.posterior(rows)[0]).all()
    assert np.isfinite(factors.log_evidence(rows)).all()


# --- Draws ---------------------------------------------------------------------------------------


def test_draws_have_the_law_of_the_grid():
    factors = law(1, 4, (3,))
    rows, _, _ = rows_of(factors, 4, missing=0.4, seed=3)
    exact, times = Grid(factors, rows), 4000
    z, levels = factors.draw(rows.take(np.repeat(np.arange(4), times)), np.random.default_rng(0))
    z, levels = z.reshape(4, times, 4), levels.reshape(4, times)
    for i in range(4):
        for j in range(4):
            if not rows.known()[0][i, j]:
                s = exact.t @ factors.W[j]
                mean = exact.weights[i] @ s
                variance = exact.weights[i] @ s**2 - mean**2 + factors.psi[j]
                assert z[i, :, j].mean() == pytest.approx(mean, abs=4 * (variance / times) ** 0.5)
                assert z[i, :, j].var() == pytest.approx(variance, rel=0.1)
        if rows.levels[i, 0] < 0:
            p = exact.weights[i] @ exact.levels[0]
            np.testing.assert_allclose(np.bincount(levels[i]) / times, p, atol=0.03)


def test_draws_keep_what_is_known():
    factors = law(2, 5, (3, 4))
    rows, _, _ = rows_of(factors, 300)
    z, levels = factors.draw(rows, np.random.default_rng(0))
    assert ((z >= rows.low) & (z <= rows.high)).all()
    seen = rows.levels >= 0
    np.testing.assert_array_equal(levels[seen], rows.levels[seen])
    assert (levels >= 0).all()
    again = factors.draw(rows, np.random.default_rng(0))
    np.testing.assert_array_equal(z, again[0])


def test_an_entry_known_to_be_large_is_drawn_as_a_truncated_normal():
    factors, n = law(1, 2, ()), 4000
    low = np.tile([0.5, -INF], (n, 1))
    rows = LatentRows(low, np.full((n, 2), INF), np.empty((n, 0), dtype=int), ())
    z = factors.draw(rows, np.random.default_rng(0))[0]
    mean = np.exp(-0.125) / np.sqrt(2 * np.pi) / special.ndtr(-0.5)
    variance = 1 + 0.5 * mean - mean**2
    assert z[:, 0].mean() == pytest.approx(mean, abs=4 * np.sqrt(variance / n))
    assert z[:, 0].var() == pytest.approx(variance, rel=0.15)
    pull = factors.correlation[0, 1]
    assert z[:, 1].mean() == pytest.approx(pull * mean, abs=4 / np.sqrt(n))


def test_samples_have_the_correlations_and_frequencies():
    factors = law(2, 5, (3, 4))
    z, levels = factors.sample(40000, np.random.default_rng(0))
    np.testing.assert_allclose(np.corrcoef(z.T), factors.correlation, atol=0.03)
    for c, part in enumerate(factors.parts):
        np.testing.assert_allclose(
            np.bincount(levels[:, c]) / 40000, factors.frequencies[part], atol=0.012
        )


# --- The fit -------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["diagonal", "isotropic"])
def test_slope_is_that_of_the_evidence(noise):
    truth = law(2, 5, (2, 4))
    rows, _, _ = rows_of(truth, 60)
    frequencies = tuple(truth.frequencies[part] for part in truth.parts)
    rng = np.random.default_rng(1)
    fit = CopulaFit(rows, frequencies, 2, noise, rng.uniform(0.5, 2, 60), tol=1e-10)
    theta = fit.begin(rng)
    _, slope = fit.slope(theta)
    for _ in range(3):
        v = rng.normal(size=theta.size)
        up, down = (fit.slope(theta + h * v)[0] for h in (1e-4, -1e-4))
        assert (up - down) / 2e-4 == pytest.approx(slope @ v, rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("noise", ["diagonal", "isotropic"])
def test_a_step_tells_the_same_value_as_the_slope(noise):
    truth = law(2, 5, (3,))
    rows, _, _ = rows_of(truth, 60)
    fit = CopulaFit(rows, (truth.frequencies,), 2, noise, tol=1e-10)
    theta = 3 * fit.begin(np.random.default_rng(1))
    value = fit.slope(theta)[0]
    assert fit.penalty(theta) > 0.01
    for _ in range(5):  # sites settle
        told = fit.image(theta).value
    assert told == pytest.approx(value, abs=1e-4)


def test_a_fit_begins_with_scores_of_levels_that_have_unit_variance():
    levels = np.repeat([0, 1, 2, -1], [50, 30, 20, 10])[:, None]
    rows = replace(nothing(110, 1, (3,)), levels=levels)
    Z = CopulaFit(rows, (np.array([0.5, 0.3, 0.2]),), 1)._filled()
    np.testing.assert_allclose(Z[:100, 1:].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose((Z[:100, 1:] ** 2).mean(axis=0), 1)
    assert not Z[100:].any() and not Z[:, 0].any()


def test_one_level_is_certain():
    found = propagation.log_level_probabilities(np.full((1, 4), 3.0), np.ones((1, 1, 4)))
    np.testing.assert_array_equal(found, np.zeros((1, 4)))


@pytest.mark.parametrize("s", [5, 0])
def test_an_isotropic_law_is_what_it_was_packed_from(s):
    fit = CopulaFit(nothing(1, s, (3,)), (np.full(3, 1 / 3),), 2, "isotropic")
    W = np.random.default_rng(0).normal(size=(s + 3, 2))
    W[:s] *= (np.sqrt(0.7) / np.linalg.norm(W[:s], axis=1))[:, None]
    psi = np.repeat([0.3, 1.0], [s, 3])
    for found, expected in zip(fit.loadings(fit.pack(W, psi)), (W, psi), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_what_a_changed_site_moves_is_that_of_its_marginal():
    mean, variance = np.array([2.0, -1.0, 0.5]), np.array([0.5, 2.0, 1.0])
    tau, nu = 1e-6 * np.array([1.0, -2.0, 3.0]), 1e-6 * np.array([0.3, 2.0, 1.5])
    after = 1 / (1 / variance + tau)
    shift = np.abs(after * (mean / variance + nu) - mean) / np.sqrt(variance)
    expected = np.maximum(shift, np.abs(after / variance - 1))
    found = propagation._moved(tau.copy(), nu.copy(), mean, variance)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert shift[0] > tau[0] * variance[0]  # each of the two decides somewhere
    assert shift[2] < tau[2] * variance[2]


def test_a_path_goes_back_half_the_way_or_to_the_last_image():
    points, images = np.array([[0.0, 2.0], [1.0, 4.0]]), np.array([[1.0, 1.0], [2.0, 5.0]])
    path = fitting._Path(np.array([3.0, 8.0]), 0.0, points, images)
    np.testing.assert_array_equal(path.back().theta, [2.0, 6.0])
    again = path._replace(leaps=True).back()
    np.testing.assert_array_equal(again.theta, [2.0, 5.0])
    assert not again.leaps and len(again.points) == len(again.images) == 1


def test_hidden_entries_are_worth_nothing_where_nothing_is_shared():
    factors = law(0, 3, (3,))
    _, full, _ = rows_of(factors, 50, missing=0.0)
    hidden = np.random.default_rng(0).random((50, 3)) < 0.3, np.arange(50)[:, None] % 3 == 0
    w = np.random.default_rng(1).uniform(0, 2, 50)
    score = choosing._hidden_score(factors, full, full.hiding(*hidden), hidden, w)
    assert score.loglikelihood == pytest.approx(0, abs=1e-9)
    assert score.press == pytest.approx(score.squares) and score.squares > 0
    assert score.size == pytest.approx(w @ hidden[0].sum(axis=1) + w @ hidden[1][:, 0])


def test_second_moments_and_sites_give_the_same_slope():
    """E[zzᵀ] is right: its factor analysis rises as the evidence does."""
    truth = law(2, 6, ())
    rows, _, _ = rows_of(truth, 80)
    w = np.random.default_rng(0).uniform(0.5, 2, 80)
    fit = CopulaFit(rows, (), 2, "diagonal", w, tol=1e-10)
    theta = fit.begin(np.random.default_rng(1))
    factors = fit.unpack(theta)
    sums = fit.sums(factors, moments=True)
    _, to_W, to_psi = fitting._factor_analysis(factors.W, factors.psi, sums.moments / w.sum())
    slope = fit._by_theta(theta, factors.W, factors.psi, w.sum() * to_W, w.sum() * to_psi)
    expected = fit.slope(theta)[1] + fitting.PRIOR * theta
    np.testing.assert_allclose(slope, expected, atol=1e-6)


def test_slope_of_factor_analysis():
    rng = np.random.default_rng(0)
    W, psi, S = rng.normal(size=(6, 2)), rng.uniform(0.3, 1, 6), np.cov(rng.normal(size=(6, 30)))
    value, to_W, to_psi = fitting._factor_analysis(W, psi, S)
    Sigma = W @ W.T + np.diag(psi)
    dense = -0.5 * (np.linalg.slogdet(Sigma)[1] + np.trace(np.linalg.solve(Sigma, S)))
    assert value == pytest.approx(dense, rel=1e-12)
    dW, dpsi, h = rng.normal(size=(6, 2)), rng.normal(size=6), 1e-6
    up, down = (fitting._factor_analysis(W + x * dW, psi + x * dpsi, S)[0] for x in (h, -h))
    assert (up - down) / (2 * h) == pytest.approx((to_W * dW).sum() + to_psi @ dpsi, rel=1e-6)


@pytest.mark.parametrize("sizes", [(), (3,)])
def test_long_steps_end_where_quasi_newton_does(sizes, monkeypatch):
    truth = law(2, 6, sizes)
    rows, _, _ = rows_of(truth, 300)
    frequencies = tuple(truth.frequencies[part] for part in truth.parts)
    request = CopulaRequest(n_components=2, tol=1e-5)
    found = [fit_copula(rows, frequencies, request)]
    monkeypatch.setattr(fitting, "MOST_MOMENTS", -1)
    found.append(fit_copula(rows, frequencies, request))
    for one in found:
        assert one.history.converged
    np.testing.assert_allclose(found[0].correlation, found[1].correlation, atol=2e-3)
    assert found[0].history.loglikelihood == pytest.approx(found[1].history.loglikelihood, abs=0.02)


def test_a_fit_that_begins_with_a_sample_ends_where_others_do(monkeypatch):
    truth = law(2, 6, (3,))
    rows, _, _ = rows_of(truth, 800)
    request = CopulaRequest(n_components=2, tol=1e-4)
    whole = fit_copula(rows, (truth.frequencies,), request)
    monkeypatch.setattr(fitting, "FEWEST_ROWS", 200)
    sampled = fit_copula(rows, (truth.frequencies,), request)
    assert sampled.history.converged
    assert sampled.history.loglikelihoods != whole.history.loglikelihoods
    assert sampled.history.loglikelihood == pytest.approx(whole.history.loglikelihood, abs=0.2)


def test_a_fit_climbs_and_gives_unit_variances():
    truth = law(2, 6, (3,))
    rows, _, _ = rows_of(truth, 400)
    found = fit_copula(rows, (truth.frequencies,), CopulaRequest(n_components=2))
    assert found.history.converged
    assert np.diff(found.history.loglikelihoods).min() > -0.1  # EM does not know the prior
    np.testing.assert_allclose(np.diagonal(found.correlation), 1.0, rtol=1e-12)
    np.testing.assert_allclose(found.loadings_of(0).sum(axis=0), 0.0, atol=1e-12)
    assert found.history.loglikelihood == pytest.approx(found.log_evidence(rows).sum(), abs=1e-2)
    assert found.history.loglikelihood > truth.log_evidence(rows).sum() - 1.0
    inner = found.W.T @ (found.W / found.psi[:, None])
    np.testing.assert_allclose(inner, np.diag(np.diagonal(inner)), atol=1e-8)


def test_isotropic_noise_is_the_same_everywhere():
    truth = law(2, 6, (3,))
    rows, _, _ = rows_of(truth, 400)
    request = CopulaRequest(n_components=2, noise="isotropic")
    found = fit_copula(rows, (truth.frequencies,), request)
    assert np.ptp(found.psi[:6]) < 1e-12
    np.testing.assert_allclose(np.diagonal(found.correlation), 1.0, rtol=1e-12)
    assert found.psi[0] == pytest.approx(truth.psi[0], abs=0.05)
    diagonal = fit_copula(rows, (truth.frequencies,), replace(request, noise="diagonal"))
    assert diagonal.history.loglikelihood >= found.history.loglikelihood - 0.05


def test_a_weight_of_two_is_a_row_that_is_there_twice():
    truth = law(1, 5, (3,))
    rows, _, _ = rows_of(truth, 150)
    w = np.where(np.arange(150) < 50, 2.0, 1.0)
    twice = rows.take(np.repeat(np.arange(150), w.astype(int)))
    request = CopulaRequest(n_components=1, tol=1e-5)
    one = fit_copula(rows, (truth.frequencies,), request, w)
    two = fit_copula(twice, (truth.frequencies,), request)
    assert one.history.loglikelihood == pytest.approx(two.history.loglikelihood, abs=1e-3)
    np.testing.assert_allclose(one.correlation, two.correlation, atol=2e-3)


def test_a_fit_starts_where_it_is_told():
    truth = law(2, 6, (3,))
    rows, _, _ = rows_of(truth, 300)
    first = fit_copula(rows, (truth.frequencies,), CopulaRequest(n_components=2, tol=1e-4))
    request = CopulaRequest(n_components=2, tol=1e-3, begin=first)
    again = fit_copula(rows, (truth.frequencies,), request)
    assert again.history.n_iter < first.history.n_iter
    np.testing.assert_allclose(again.correlation, first.correlation, atol=5e-3)


def test_many_rows_by_a_sample_are_as_good_as_all(monkeypatch):
    truth = law(2, 6, (3,))
    rows, _, _ = rows_of(truth, 3000)
    request = CopulaRequest(n_components=2)
    whole = fit_copula(rows, (truth.frequencies,), request)
    monkeypatch.setattr(fitting, "SAMPLED_ROWS", 1000)
    monkeypatch.setattr(fitting, "ROWS_PER_PARAMETER", 1)
    steps, climbed, polish = [], fitting._climbed, CopulaFit.polish

    def counted_climb(*arguments):
        theta, record = climbed(*arguments)
        steps.append(record.n_iter)
        return theta, record

    def counted_polish(self, theta, record, *arguments, **options):
        theta = polish(self, theta, record, *arguments, **options)
        steps.append(record.n_iter)
        return theta

    monkeypatch.setattr(fitting, "_climbed", counted_climb)
    monkeypatch.setattr(CopulaFit, "polish", counted_polish)
    sampled = fit_copula(rows, (truth.frequencies,), request)
    assert sampled.history.converged
    assert len(steps) > 1 and min(steps) > 0 and sampled.history.n_iter == sum(steps)
    assert sampled.history.loglikelihood == pytest.approx(whole.history.loglikelihood, abs=0.5)
    np.testing.assert_allclose(sampled.correlation, whole.correlation, atol=0.01)


def test_rows_do_not_depend_on_their_blocks(monkeypatch):
    factors = law(2, 5, (3,))
    rows, _, _ = rows_of(factors, 200)
    whole = factors.posterior(rows)[0], factors.log_evidence(rows)
    monkeypatch.setattr(backend, "BLOCK_ROWS", 64)
    cut = factors.posterior(rows)[0], factors.log_evidence(rows)
    for one, two in zip(whole, cut, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)


def test_noise_does_not_vanish_in_small_tables():
    truth = law(1, 6, (3,))
    rows, _, _ = rows_of(truth, 40, known=range(6))
    found = fit_copula(rows, (truth.frequencies,), CopulaRequest(n_components=3))
    assert found.psi.min() > 0.02
    assert np.abs(found.W).max() < 5


def test_the_number_of_threads_does_not_matter(monkeypatch):
    monkeypatch.setattr(backend, "BLOCK_ROWS", 64)
    truth = law(2, 5, (3,))
    rows, _, _ = rows_of(truth, 600)
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            one = fit_copula(rows, (truth.frequencies,), CopulaRequest(n_components=2, max_iter=6))
            found.append((one.W, one.draw(rows, np.random.default_rng(0))[0]))
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_level_that_never_occurs_has_probability_zero():
    frequencies = np.array([0.6, 0.4, 0.0])
    rows = nothing(50, 3, (3,))
    rows = LatentRows(rows.low, rows.high, np.arange(50)[:, None] % 2, (3,))
    found = fit_copula(rows, (frequencies,), CopulaRequest(n_components=1, max_iter=5))
    np.testing.assert_allclose(found.conditional(rows).probabilities[0][:, 2], 0.0)


def test_levels_that_a_column_decides_do_not_diverge():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(300, 3))
    z[:, 1] = z[:, 0]
    levels = np.searchsorted([-0.5, 0.6], z[:, 0])[:, None]
    frequencies = np.bincount(levels[:, 0]) / 300
    rows = LatentRows(z, z, levels, (3,))
    found = fit_copula(rows, (frequencies,), CopulaRequest(n_components=2))
    assert np.isfinite(found.W).all()
    assert np.isfinite(found.history.loglikelihood)
    p = found.conditional(rows).probabilities[0]
    assert (p.argmax(axis=1) == levels[:, 0]).mean() > 0.85


def test_wrong_shapes_and_numbers_are_refused():
    with pytest.raises(ValueError, match="the shapes of LatentRows"):
        LatentRows(np.zeros((2, 1)), np.zeros((2, 1)), np.zeros((2, 1), dtype=int))
    with pytest.raises(ValueError, match="n_components"):
        fit_copula(nothing(3, 2), (), CopulaRequest(n_components=2))
    with pytest.raises(ValueError, match="2 scalar coordinates"):
        law(1, 2, ()).posterior(nothing(3, 3))
    with pytest.raises(DegenerateError, match="Give n_components"):
        choose_latents(nothing(30, 3), (), CopulaRequest())


@pytest.mark.parametrize("q", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_hidden_entries_choose_the_number_of_latents(q):
    truth = law(q, 8, (3,), seed=4)
    rows, _, _ = rows_of(truth, 400, missing=0.1, known=range(4))
    curve = choose_latents(rows, (truth.frequencies,), CopulaRequest(), most=3)
    assert curve.chosen == q
    assert curve.loglikelihood[q - 1] > 0
    assert curve.q2[q - 1] > 0.1


def test_a_choice_goes_on_past_a_dip():
    def tried(*values):
        return [[Score(v + e, 1.0, 1.0, 1.0) for e in (0.0, 0.1)] for v in values]

    assert not choosing._is_enough(tried(0.0, -1.0, -1.0))
    assert not choosing._is_enough(tried(0.0, -1.0, -1.0, 2.0))
    assert choosing._is_enough(tried(0.0, -1.0, -1.0, -0.5))
    assert choosing._is_enough(tried(0.0, 1.0, 1.0, 0.5, 1.0))


def test_a_fit_with_levels_ends_at_the_maximum():
    truth = law(2, 4, (3,), seed=0)
    rows, _, _ = rows_of(truth, 200, missing=0.1, known=range(4))
    shares = (truth.frequencies,)
    found = fit_copula(rows, shares, CopulaRequest(n_components=2, tol=1e-4))
    fit = CopulaFit(rows, shares, 2, tol=1e-5)
    slope = fit.slope(fit.pack(found.W, found.psi))[1]
    assert found.history.converged
    assert np.abs(slope).max() < 2e-3 * rows.n


# --- Simulated tables ----------------------------------------------------------------------------


@pytest.mark.slow
def test_recovery_from_five_kinds_with_two_fifths_missing():
    rng = np.random.default_rng(0)
    s, q, n, sizes = 12, 2, 2000, (3, 4, 5)
    truth = law(q, s, sizes, seed=7, size=0.6)
    z, levels = truth.sample(n, rng)
    low, high = z.copy(), z.copy()
    grids = [[0.2], [-0.5, 0.4], [-1, -0.3, 0.3, 1.2], np.linspace(-2, 2.5, 12)]
    for j in range(4, s):  # known, binary, ordinal, counts; then nominal
        cuts = np.asarray(grids[(j - 4) % 4])
        edges = np.concatenate([[-INF], cuts, [INF]])
        k = np.searchsorted(cuts, z[:, j])
        low[:, j], high[:, j] = edges[k], edges[k + 1]
    full = LatentRows(low, high, levels, sizes)
    hidden = rng.random(z.shape) < 0.4, rng.random(levels.shape) < 0.4
    rows = full.hiding(*hidden)
    frequencies = tuple(
        np.bincount(rows.levels[rows.levels[:, c] >= 0, c], minlength=K) / (~hidden[1][:, c]).sum()
        for c, K in enumerate(sizes)
    )
    found = fit_copula(rows, frequencies, CopulaRequest(n_components=q))
    off = (found.correlation - truth.correlation)[np.triu_indices(s, 1)]
    # pairs of rows that know both: 0.36 n; thresholds lose up to half of the information
    assert np.sqrt(np.mean(off**2)) < 1.5 / np.sqrt(0.36 * n)
    law_of = found.conditional(rows)
    inside = np.abs(z - law_of.mean) < 1.6449 * np.sqrt(law_of.variance)
    assert inside[hidden[0]].mean() == pytest.approx(0.9, abs=0.015)
    # levels: stated probabilities against what happened, in ten bins
    p = np.concatenate([law_of.probabilities[c][hidden[1][:, c]].ravel() for c in range(3)])
    y = np.concatenate([np.eye(K)[levels[hidden[1][:, c], c]].ravel() for c, K in enumerate(sizes)])
    bins = np.minimum((p * 10).astype(int), 9)
    error = [
        abs(y[bins == k].mean() - p[bins == k].mean()) for k in range(10) if (bins == k).sum() > 150
    ]
    weight = [(bins == k).sum() for k in range(10) if (bins == k).sum() > 150]
    assert np.average(error, weights=weight) < 0.03
    draws = found.draw(rows, rng)[0]
    both = np.corrcoef(draws.T)[np.triu_indices(s, 1)]
    assert np.sqrt(np.mean((both - found.correlation[np.triu_indices(s, 1)]) ** 2)) < 0.04


def test_a_choice_tells_how_many_fits_there_are():
    rows, _, _ = rows_of(law(1, 4, ()), 40, missing=0.0)
    out = io.StringIO()
    with showing(True, out):
        choose_latents(rows, (), CopulaRequest(), most=1)
    assert "fit 1 of 5" in out.getvalue() and "fit 5 of 5" in out.getvalue()


def test_rows_of_no_weight_do_not_choose():
    rows, _, _ = rows_of(law(1, 4, ()), 40, missing=0.0)
    rng = np.random.default_rng(0)
    other = 3 * rng.normal(size=rows.low.shape)
    both = replace(
        rows,
        low=np.vstack([rows.low, other]),
        high=np.vstack([rows.high, other]),
        levels=np.vstack([rows.levels, rows.levels]),
    )
    found, alone = (
        choose_latents(one, (), CopulaRequest(), weights, most=1)
        for one, weights in ((both, np.repeat([1.0, 0.0], 40)), (rows, None))
    )
    np.testing.assert_allclose(found.loglikelihood, alone.loglikelihood, atol=1e-4)
