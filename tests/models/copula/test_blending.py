"""Laws of missing entries blended from the copula and regressions, beside sums over grids."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import special, stats

from dualpca.data.kinds import Entries
from dualpca.errors import EmptyColumnError
from dualpca.models.copula import CopulaRequest, blending, fit_mixed
from dualpca.models.copula.blending import (
    HiddenCoordinates,
    HiddenLevels,
    blend_weights,
    blended_levels,
    blended_normal,
)
from dualpca.models.copula.columns import coupled, fit_margin

RNG = np.random.default_rng(0)


def fitted(table, kinds=None, weights=None):
    return fit_mixed(table, kinds, CopulaRequest(), None, weights, filling=True)


def curved(n=150, missing=0.1, seed=0):
    """Return rows with a sum of two columns and a curve, and the same with gaps."""
    rng = np.random.default_rng(seed)
    a, b = rng.exponential(size=n), rng.normal(size=n)
    full = np.column_stack([a, b, a - b, b**2 + 0.1 * rng.normal(size=n)])
    return full, np.where(rng.random(full.shape) < missing, np.nan, full)


# --- what is blended -----------------------------------------------------------------------------


def test_normal_laws_are_multiplied():
    w, means, variances = np.array([0.7, 0.5]), np.array([[0.3], [1.4]]), np.array([[0.5], [0.2]])
    z = np.linspace(-8, 8, 20001)
    p = np.prod(
        [
            stats.norm.pdf(z, m, np.sqrt(v)) ** k
            for m, v, k in zip(means, variances, w, strict=True)
        ],
        axis=0,
    )
    p /= p.sum()
    mean, variance = blended_normal(w, means, variances)
    assert mean[0] == pytest.approx(p @ z)
    assert variance[0] == pytest.approx(p @ (z - p @ z) ** 2)


def test_probabilities_of_levels_are_multiplied():
    p, w = RNG.dirichlet(np.ones(4), size=(2, 5)), np.array([0.4, 1.3])
    product = p[0] ** w[0] * p[1] ** w[1]
    expected = product / product.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.exp(blended_levels(w, np.log(p))), expected)


# --- weights -------------------------------------------------------------------------------------


def coordinates(n=60, intervals=False, seed=0):
    """Return hidden coordinates that the first law tells well, and the second does not."""
    rng = np.random.default_rng(seed)
    z, noise = rng.normal(size=n), rng.normal(size=n)
    means = np.array([z + 0.3 * noise, rng.normal(size=n)])
    variances = np.repeat([[0.09], [0.3]], n, axis=1)
    ends = (z - 0.2, z + 0.3) if intervals else (z, z)
    return HiddenCoordinates(means, variances, *ends)


def levels(n=60, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, n)
    good = rng.dirichlet(np.ones(3), size=n)
    good[np.arange(n), truth] += 1
    logs = np.log([good / 2, rng.dirichlet(np.ones(3), size=n)])
    return HiddenLevels(logs, truth)


def log_probability(hidden, w):
    """Return ln of the probability of hidden entries, where a few follow their column alone."""
    if isinstance(hidden, HiddenLevels):
        product = np.exp(np.einsum("k,kml->ml", w, hidden.logs))
        p = product[np.arange(len(product)), hidden.levels] / product.sum(axis=1)
        alone = 1 / product.shape[1]
    else:
        precision = (w[:, None] / hidden.variances).sum(axis=0)
        mean = (w[:, None] * hidden.means / hidden.variances).sum(axis=0) / precision
        law, own = stats.norm(mean, precision**-0.5), stats.norm
        point = np.array_equal(hidden.low, hidden.high)
        p, alone = (
            one.pdf(hidden.low) if point else one.cdf(hidden.high) - one.cdf(hidden.low)
            for one in (law, own)
        )
    return np.log((1 - blending.BY_CHANCE) * p + blending.BY_CHANCE * alone).sum()


@pytest.mark.parametrize("hidden", [coordinates(), coordinates(intervals=True), levels()])
def test_weights_are_best_of_a_grid(hidden):
    def value(w):
        draw = 0.5 * blending.EQUAL_ENTRIES * ((w - 0.5) ** 2).sum()
        return log_probability(hidden, w) - draw

    found = blend_weights(hidden)
    best = max(value(np.array([a, b])) for a in np.arange(0.05, 2, 0.1) for b in (0, 0.1, 0.2, 0.5))
    assert value(found) >= best - 1e-6
    assert found[0] > 2 * found[1] >= 0


def test_weights_of_entries_count_them():
    for hidden in (coordinates(20), levels(20)):
        w = np.arange(20) % 3
        index = np.repeat(np.arange(20), w)
        axes = (1, 1, 0, 0) if len(hidden) == 4 else (1, 0)
        again = type(hidden)(*(np.take(x, index, a) for x, a in zip(hidden, axes, strict=True)))
        np.testing.assert_allclose(blend_weights(hidden, w), blend_weights(again), atol=1e-4)


def test_few_entries_hardly_change_equal_weights():
    one, many = coordinates(1), coordinates(400)
    assert np.abs(blend_weights(one) - 0.5).max() < 0.2
    assert blend_weights(many)[0] > 3 * blend_weights(many)[1]


def test_one_entry_far_off_decides_nothing():
    hidden = coordinates(100)
    means = hidden.means.copy()
    means[0, 0] += 50.0  # by a hundred and more standard deviations
    off = blend_weights(hidden._replace(means=means))
    np.testing.assert_allclose(off, blend_weights(hidden), atol=0.1)


# --- draws ---------------------------------------------------------------------------------------


def test_coupled_levels_have_the_new_probabilities_and_change_as_seldom_as_can_be():
    rng, n = np.random.default_rng(1), 40_000
    p, new = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    levels = rng.choice(3, size=n, p=p)
    moved = coupled(levels, np.tile(p, (n, 1)), np.tile(new, (n, 1)), rng)
    np.testing.assert_allclose(np.bincount(moved) / n, new, atol=0.01)
    assert np.mean(moved != levels) == pytest.approx(np.abs(new - p).sum() / 2, abs=0.01)


@pytest.fixture(scope="module")
def mixed():
    """A model of a sum, a curve and three groups, with its entries and the truth."""
    full, gaps = curved(120, seed=2)
    group = np.digitize(full[:, 1], [-0.5, 0.5]).astype(float)
    group[np.random.default_rng(5).random(120) < 0.1] = np.nan
    table = np.column_stack([gaps, group])
    model = fitted(table, ["continuous"] * 4 + ["nominal"])
    return model, model.kinds.entries(table), full


def test_draws_are_of_the_blended_laws(mixed):
    model, entries, _ = mixed
    alone, blended = model.laws(entries)
    draws = list(model.drawn(entries, np.random.default_rng(0), [model] * 60))
    gaps = entries.missing
    assert np.abs(alone.mean - blended.mean)[gaps[:, :4]].max() > 0.3
    z = np.array([model.latent(one).low for one in draws])
    off = (z.mean(axis=0) - blended.mean) / np.sqrt(blended.variance)
    assert np.abs(np.median(off[gaps[:, :4]])) < 0.05  # values of the column are steps
    told = blended.probabilities[0][gaps[:, 4]]
    shares = (np.array([one.low[gaps[:, 4], 4] for one in draws])[:, :, None] == range(3)).mean(
        axis=0
    )
    np.testing.assert_allclose(shares, told, atol=0.3)
    for one in draws[:3]:
        np.testing.assert_array_equal(one.low[~gaps], entries.low[~gaps])


def test_draws_by_other_margins_keep_to_exact_sums(mixed):
    """Bootstraps move margins, but hardly what is told exactly; known entries stay."""
    model, entries, full = mixed
    gaps = entries.missing
    rng = np.random.default_rng(1)
    others = list(model.refits(entries, None, 6, rng, CopulaRequest()))
    alone = model.margins[2].coordinates_in(others[0].margins[2], np.linspace(-2, 2, 41))
    assert 0.02 < np.abs(alone - np.linspace(-2, 2, 41)).max() < 0.6
    draws = list(model.drawn(entries, rng, others))
    for one in draws:
        np.testing.assert_array_equal(one.low[~gaps], entries.low[~gaps])
    only = gaps[:, 2] & (gaps[:, :4].sum(axis=1) == 1)  # c = a − b, and both are known
    error = np.array([np.abs(one.low - entries.low[:, :1] + entries.low[:, 1:2]) for one in draws])
    step = np.median(np.diff(np.sort(full[:, 2])))
    assert np.median(error[:, only, 2]) < 2 * step


def test_what_is_said_of_a_row_does_not_depend_on_others(mixed):
    model, entries, _ = mixed
    whole, part = (model.laws(entries.rows(cut))[1] for cut in (slice(None), slice(40, 60)))
    np.testing.assert_allclose(part.mean, whole.mean[40:60], atol=1e-5)
    np.testing.assert_allclose(part.variance, whole.variance[40:60], atol=1e-5)
    np.testing.assert_allclose(part.probabilities[0], whole.probabilities[0][40:60], atol=1e-5)


def test_known_entries_keep_the_law_of_the_copula(mixed):
    model, entries, _ = mixed
    alone, blended = model.laws(entries)
    known = ~entries.missing[:, :4]
    assert np.array_equal(alone.mean[known], blended.mean[known])
    assert np.array_equal(alone.variance[known], blended.variance[known])


def test_rows_are_told_in_any_number_at_once(mixed, monkeypatch):
    model, entries, _ = mixed
    whole = model.laws(entries)[1]
    monkeypatch.setattr(blending, "ROWS_AT_ONCE", 50)
    np.testing.assert_allclose(model.laws(entries)[1].mean, whole.mean, atol=1e-5)


def test_sums_and_curves_are_filled_and_intervals_cover(mixed):
    model, entries, full = mixed
    gaps = entries.missing[:, :4]
    shares, copula = (0.5, 0.05, 0.95), replace(model, blend=None)
    middle, low, high = (one.low[:, :4] for one in model.quantiles(entries, shares))
    alone, first, last = (one.low[:, :4] for one in copula.quantiles(entries, shares))
    scale = np.abs(full - np.median(full, axis=0)).mean(axis=0)
    error, before = (np.abs((x - full) / scale)[gaps].mean() for x in (middle, alone))
    assert error < 0.75 * before
    inside = ((low <= full) & (full <= high))[gaps].mean()
    assert inside >= 0.8
    assert (high - low)[gaps].mean() < 0.6 * (last - first)[gaps].mean()


# --- limits --------------------------------------------------------------------------------------


def test_nothing_missing_stays():
    full, _ = curved(40)
    model = fitted(full, ["continuous"] * 4)
    entries = model.kinds.entries(full)
    assert model.blend is not None
    np.testing.assert_array_equal(model.latent(entries).low.shape, (40, 4))
    alone, blended = model.laws(entries)
    assert np.array_equal(alone.mean, blended.mean)


def test_a_single_column_and_many_columns_are_the_copula_alone(monkeypatch):
    _, gaps = curved(40)
    assert fitted(gaps[:, :1]).blend is None
    monkeypatch.setattr(blending, "MOST_COLUMNS", 3)
    assert fitted(gaps).blend is None


def test_a_given_number_of_latents_is_the_copula_alone():
    _, gaps = curved(40)
    assert fit_mixed(gaps, None, CopulaRequest(), 1, None, filling=True).blend is None


def test_constant_and_rarely_known_columns_have_no_regression():
    _, gaps = curved(60)
    rare = np.where(np.arange(60) < 9, np.arange(60.0) + 0.5, np.nan)
    table = np.column_stack([gaps, np.ones(60), rare])
    model = fitted(table)
    assert [one.column for one in model.blend.columns] == [0, 1, 2, 3]
    filled = model.quantiles(model.kinds.entries(table), (0.5,))[0].low
    assert np.isfinite(filled).all() and np.all(filled[:, 4] == 1)


def test_a_column_without_values_is_refused():
    _, gaps = curved(40)
    gaps[:, 2] = np.nan
    with pytest.raises(EmptyColumnError):
        fitted(gaps)


def test_categories_alone_are_blended():
    """Exclusive or: two columns say everything of the third together, and nothing alone."""
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 2, (2, 200))
    words = np.array([["no", "yes"], ["left", "right"], ["odd", "even"]], dtype=object)
    table = np.column_stack([words[0][a], words[1][b], words[2][a ^ b]])
    table[:40, 2] = None
    model = fitted(table)
    entries = model.kinds.entries(table)
    filled = model.kinds.completed(table, model.quantiles(entries, (0.5,))[0])
    assert np.mean(filled[:40, 2] == words[2][(a ^ b)[:40]]) > 0.9


def test_rows_of_no_weight_are_not_learned_from():
    gaps = curved(80)[1]
    other = np.random.default_rng(9).normal(size=(80, 4)) * 20
    w = np.repeat([1.0, 0.0], 80)
    model = fitted(np.vstack([gaps, other]), ["continuous"] * 4, w)
    for one in model.blend.columns:
        assert all(np.all(part.rows < 80) for part in one.regressions)


def test_positions_are_between_the_middles_of_values():
    margin = fit_margin(np.array([1.0, 2.0, 2.0, 4.0]), kind="count")
    middle = special.ndtri([1 / 8, 1 / 2, 7 / 8])
    np.testing.assert_allclose(margin.positions(np.array([1.0, 2.0, 4.0])), middle)
    assert margin.positions(np.array([3.0]))[0] == pytest.approx(middle[1:].mean())
    steep = (middle[2] - middle[0]) / 3
    np.testing.assert_allclose(
        margin.positions(np.array([0.0, 6.0])), middle[[0, 2]] + steep * np.array([-1, 2])
    )


def test_censored_entries_are_completed_by_bounds():
    rng = np.random.default_rng(6)
    x = rng.lognormal(size=120)
    table = np.column_stack([np.where(x < 0.6, "<0.6", x.astype(str)), x * 2]).astype(object)
    table[:, 1] = table[:, 1].astype(float)
    table[:20, 0] = None
    model = fitted(table)
    entries = model.kinds.entries(table)
    assert isinstance(entries, Entries) and model.blend is not None
    filled = model.quantiles(entries, (0.5,))[0]
    inside = (filled.low <= x[:, None]) & (x[:, None] <= filled.high)
    near = np.abs(filled.low[:20, 0] - x[:20]) < 0.5 * x[:20]
    assert np.mean(inside[:20, 0] | near) > 0.8
