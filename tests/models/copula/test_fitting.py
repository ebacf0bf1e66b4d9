"""Fits of the latent copula: slopes against differences, climbs that end where others do."""

from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from dualpca.arrays import backend
from dualpca.models.copula import (
    CopulaRequest,
    LatentRows,
    fit_copula,
    fitting,
)
from dualpca.models.copula.fitting import CopulaFit
from dualpca.models.driver import History, Keeper
from tests.models.copula.cases import INF, law, nothing, rows_of


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
@pytest.mark.parametrize("q", [1, 2, 3])
def test_turns_are_the_directions_in_which_the_latents_are_rotated(q, noise):
    """Orthonormal, as many as rotations have angles; the evidence does not change along them."""
    truth = law(q, 6, (3,))
    rows, _, _ = rows_of(truth, 40)
    fit = CopulaFit(rows, (truth.frequencies,), q, noise, tol=1e-10)
    theta = fit.begin(np.random.default_rng(1))
    turns = fit._turns(theta)
    np.testing.assert_allclose(turns.T @ turns, np.eye(q * (q - 1) // 2), atol=1e-12)
    W, h = theta[: fit.D * q].reshape(fit.D, q), 1e-6
    for i, j in zip(*np.triu_indices(q, 1), strict=True):
        R = np.eye(q)
        R[[i, j], [i, j]], R[i, j], R[j, i] = np.cos(h), np.sin(h), -np.sin(h)
        moved = np.r_[(W @ R - W).ravel() / h, np.zeros(theta.size - W.size)]
        np.testing.assert_allclose(
            turns @ (turns.T @ moved), moved, atol=1e-5 * np.abs(moved).max()
        )
    slope = fit.slope(theta)[1]
    assert np.all(np.abs(turns.T @ slope) < 1e-3 * np.linalg.norm(slope))


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


@pytest.mark.parametrize("s", [5, 0])
def test_an_isotropic_law_is_what_it_was_packed_from(s):
    fit = CopulaFit(nothing(1, s, (3,)), (np.full(3, 1 / 3),), 2, "isotropic")
    W = np.random.default_rng(0).normal(size=(s + 3, 2))
    W[:s] *= (np.sqrt(0.7) / np.linalg.norm(W[:s], axis=1))[:, None]
    psi = np.repeat([0.3, 1.0], [s, 3])
    for found, expected in zip(fit.loadings(fit.pack(W, psi)), (W, psi), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_path_goes_back_half_the_way_or_to_the_last_image():
    points, images = np.array([[0.0, 2.0], [1.0, 4.0]]), np.array([[1.0, 1.0], [2.0, 5.0]])
    path = fitting._Path(np.array([3.0, 8.0]), 0.0, points, images)
    np.testing.assert_array_equal(path.back().theta, [2.0, 6.0])
    again = path._replace(leaps=True).back()
    np.testing.assert_array_equal(again.theta, [2.0, 5.0])
    assert not again.leaps and len(again.points) == len(again.images) == 1


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
def test_long_steps_end_where_quasi_newton_does(sizes):
    truth = law(2, 6, sizes)
    rows, _, _ = rows_of(truth, 300)
    frequencies = tuple(truth.frequencies[part] for part in truth.parts)
    request = CopulaRequest(n_components=2, tol=1e-5)
    fit, found = CopulaFit(rows, frequencies, 2, request.noise, None, request.tol), []
    for most in (fitting.MOST_MOMENTS, -1):
        theta, record = fitting._climbed(fit, request, Keeper(), most)
        found.append(replace(fit.unpack(theta), history=History.of(record)))
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


@pytest.mark.parametrize("noise", ["diagonal", "isotropic"])
def test_a_fit_with_more_latents_begins_with_those_it_is_told(noise):
    narrow = law(1, 6, (3,))
    if noise == "isotropic":
        narrow = replace(narrow, psi=np.r_[np.full(6, 0.4), np.ones(3)])
    rows, _, _ = rows_of(law(3, 6, (3,), seed=2), 80)
    fit = CopulaFit(rows, (narrow.frequencies,), 3, noise)
    same = CopulaFit(rows, (narrow.frequencies,), 1, noise)
    W, _ = fit.loadings(fit.widened(narrow, np.random.default_rng(0)))
    alone, _ = same.loadings(same.widened(narrow, np.random.default_rng(0)))
    pull = (W[:, 0] * alone[:, 0]).sum() / (alone[:, 0] ** 2).sum()
    np.testing.assert_allclose(W[6:, 0], alone[6:, 0])  # scalars are scaled to unit variances
    assert 0.5 < pull <= 1 and np.linalg.matrix_rank(W) == 3
    assert np.abs(W[:, 1:]).max() > 0.05


def test_shifts_do_not_depend_on_where_they_were():
    fit = CopulaFit(nothing(1, 2, (4,)), (np.array([0.1, 0.2, 0.3, 0.4]),), 2)
    rng = np.random.default_rng(0)
    thetas = rng.normal(size=(6, 12))
    walked = [fit.unpack(theta).shifts for theta in thetas]
    fit.solved.clear()
    np.testing.assert_allclose(fit.unpack(thetas[-1]).shifts, walked[-1], atol=1e-7)
    assert np.abs(walked[-1] - walked[-2]).max() > 0.01


def test_levels_alone_have_the_slope_of_their_evidence():
    fit = CopulaFit(nothing(1, 2, (4,)), (np.array([0.1, 0.2, 0.3, 0.4]),), 2)
    fit.counts = [np.array([3.0, 1.0, 0.0, 2.0])]
    factors = fit.unpack(np.random.default_rng(0).normal(size=12))

    def value(change, shift):
        W = factors.W.copy()
        W[2:] += change
        moved = replace(factors, W=W, shifts=factors.shifts + shift)
        return float(fit.counts[0] @ moved.level_evidence[0])

    by_loadings, by_shifts = fit._alone(factors, 0)
    for k in range(4):
        for r in range(3):
            change, shift = np.zeros((4, 2)), np.zeros(4)
            (shift if r == 2 else change[:, r])[k] = 1e-4
            numeric = (value(change, shift) - value(-change, -shift)) / 2e-4
            found = by_shifts[k] if r == 2 else by_loadings[k, r]
            assert found == pytest.approx(numeric, abs=1e-3)


def test_many_rows_by_a_sample_are_as_good_as_all(monkeypatch):
    truth = law(2, 6, (3,))
    rows, _, _ = rows_of(truth, 3000)
    request = CopulaRequest(n_components=2)
    whole = fit_copula(rows, (truth.frequencies,), request)
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
    sampled = fit_copula(rows, (truth.frequencies,), request, sampled=1000)
    assert sampled.history.converged
    assert len(steps) > 1 and min(steps) > 0 and sampled.history.n_iter == sum(steps)
    assert sampled.history.loglikelihood == pytest.approx(whole.history.loglikelihood, abs=0.5)
    np.testing.assert_allclose(sampled.correlation, whole.correlation, atol=0.01)


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
