"""Margins: values to intervals of a latent coordinate, and back."""

import numpy as np
import pytest
from scipy import stats

from dualpca.models.copula.columns import fit_frequencies, fit_margin, turnbull

RNG = np.random.default_rng(0)
COLUMNS = {
    "distinct": ("continuous", RNG.normal(size=40)),
    "tied": ("continuous", RNG.normal(size=60).round(1)),
    "zeros": ("continuous", np.where(RNG.random(50) < 0.4, 0.0, RNG.gamma(2.0, size=50))),
    "grades": ("ordinal", RNG.integers(1, 6, 40).astype(float)),
    "counts": ("count", RNG.poisson(4.0, 40).astype(float)),
    "two": ("binary", RNG.integers(0, 2, 40).astype(float)),
    "constant": ("continuous", np.full(10, 3.0)),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_values_come_back(name):
    kind, x = COLUMNS[name]
    margin = fit_margin(x, kind=kind)
    below, above = (stats.norm.cdf(end) for end in margin.coordinates(x))
    for share in (0.001, 0.5, 0.999):  # anywhere in its interval
        low, high = margin.values(stats.norm.ppf(below + share * (above - below)))
        assert np.array_equal(low, x) and np.array_equal(high, x)


@pytest.mark.parametrize("name", COLUMNS)
def test_ends_of_intervals_hold_numbers_between_two_values(name):
    """Of points z_k the largest at or below z, and the smallest at or above it."""
    kind, x = COLUMNS[name]
    margin = fit_margin(x, kind=kind)
    z = np.linspace(-3, 3, 301)
    low, usual, high = (margin.values(z, outward)[0] for outward in (-1, 0, 1))
    assert np.all(low <= usual) and np.all(usual <= high)
    places, values = (
        np.array([np.array(margin.coordinates(v[None])) for v in margin.low]),
        margin.low,
    )
    points = np.flatnonzero(places[:, 0, 0] == places[:, 1, 0])
    for i, at in enumerate(z):
        k = int(np.searchsorted(values, usual[i]))
        if k not in points:
            assert low[i] == usual[i] == high[i]
            continue
        at_or_below = [p for p in range(len(values)) if places[p, 1, 0] <= at] or [0]
        at_or_above = [p for p in range(len(values)) if places[p, 0, 0] >= at] or [len(values) - 1]
        assert low[i] == values[at_or_below[-1]] and high[i] == values[at_or_above[0]]


@pytest.mark.parametrize("name", COLUMNS)
def test_places_in_another_margin_are_those_of_the_same_values(name):
    kind, x = COLUMNS[name]
    one = fit_margin(x, kind=kind)
    other = fit_margin(x, kind=kind, weights=np.random.default_rng(1).gamma(1.0, size=x.size))
    z = np.linspace(-2.5, 2.5, 101)
    moved = one.coordinates_in(other, z)
    assert np.array_equal(other.values(moved)[0], one.values(z)[0])
    assert np.all(np.diff(moved) >= 0)
    np.testing.assert_allclose(other.coordinates_in(one, moved), z, atol=1e-6)
    different = fit_margin(x + 1, kind=kind)
    assert np.array_equal(one.coordinates_in(different, z), z)


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("change", [np.exp, np.arctan, lambda x: x**3 + x, lambda x: 9 * x - 4])
def test_increasing_changes_of_units_change_nothing(name, change):
    kind, x = COLUMNS[name]
    one, other = fit_margin(x, kind=kind), fit_margin(change(x), kind=kind)
    for a, b in zip(one.coordinates(x), other.coordinates(change(x)), strict=True):
        assert np.array_equal(a, b)
    z = np.linspace(-3, 3, 101)
    assert np.array_equal(change(one.values(z)[0]), other.values(z)[0])


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_its_own_empirical_distribution(name):
    kind, x = COLUMNS[name]
    margin, values = fit_margin(x, kind=kind), np.unique(x)
    assert np.array_equal(margin.low, values)
    assert np.allclose(margin.masses, [np.mean(x == v) for v in values])
    found = margin.probabilities(np.zeros(1), np.ones(1))[0]
    assert np.allclose(found, margin.masses, atol=1e-15)
    u = (np.arange(10_000) + 0.5) / 10_000
    drawn = margin.values(stats.norm.ppf(u))[0]
    assert np.allclose([np.mean(drawn == v) for v in values], margin.masses, atol=1e-4)


def test_ties_are_shared_and_scores_symmetric():
    x = np.array([1.0, 2.0, 2.0, 3.0] * 10 + [0.5, 3.5])
    up, down = fit_margin(x, kind="ordinal"), fit_margin(-x, kind="ordinal")
    for a, b in zip(up.coordinates(x), down.coordinates(-x)[::-1], strict=True):
        assert np.allclose(a, -b)
    distinct = RNG.permutation(20.0 ** np.arange(9))
    z = fit_margin(distinct, kind="continuous").coordinates(distinct)[0]
    ranks = stats.rankdata(distinct)
    assert np.allclose(z, stats.norm.ppf((ranks - 0.5) / 9))


def test_which_values_are_intervals():
    x = np.concatenate([np.zeros(30), np.arange(1, 71)])
    low, high = fit_margin(x, kind="continuous").coordinates(x)
    assert np.all(low[:30] == -np.inf) and np.allclose(high[:30], stats.norm.ppf(0.3))
    assert np.array_equal(low[30:], high[30:])
    for kind in ("ordinal", "binary"):
        low, high = fit_margin(x, kind=kind).coordinates(x)
        assert np.all(low < high)
    few = np.arange(8.0)  # each has more than a twentieth of them, but none is a tie
    low, high = fit_margin(few, kind="continuous").coordinates(few)
    assert np.array_equal(low, high)


@pytest.mark.parametrize("kind", ["continuous", "ordinal", "count"])
def test_weights_count_entries(kind):
    x, w = RNG.poisson(3.0, 30).astype(float), RNG.integers(0, 4, 30)
    repeated = fit_margin(np.repeat(x, w), kind=kind)
    weighted = fit_margin(x, kind=kind, weights=w.astype(float))
    for name in ("low", "high", "held"):
        assert np.array_equal(getattr(repeated, name), getattr(weighted, name))
    assert np.allclose(repeated.cumulative, weighted.cumulative, rtol=1e-14)


def test_weights_that_sum_to_one():
    x = COLUMNS["zeros"][1]
    one, other = (
        fit_margin(x, kind="continuous"),
        fit_margin(x, kind="continuous", weights=x * 0 + 0.02),
    )
    assert np.allclose(one.cumulative, other.cumulative)
    assert np.array_equal(one.held, other.held)


def test_missing_entries_say_nothing():
    margin = fit_margin(np.array([1.0, np.nan, 2.0, 3.0]), kind="continuous")
    low, high = margin.coordinates(np.array([np.nan]))
    assert low[0] == -np.inf and high[0] == np.inf
    assert np.isnan(margin.values(np.array([np.nan]))[0][0])


def test_values_that_the_fit_has_not_seen():
    margin = fit_margin(np.array([1.0, 2.0, 3.0, 4.0]), kind="continuous")
    z = margin.coordinates(np.array([-9.0, 1.0, 1.5, 2.5, 4.0, 99.0]))[0]
    assert z[0] == z[1] and z[4] == z[5]
    assert np.allclose(z[2:4], stats.norm.ppf([0.25, 0.5]))
    levels = fit_margin(np.array([0.0, 2.0, 2.0]), kind="ordinal", n_levels=5)
    low, high = levels.coordinates(np.arange(5.0))
    assert low[1] == high[1] == pytest.approx(stats.norm.ppf(1 / 3))  # between its neighbours
    assert (low[3], high[3]) == (low[4], high[4]) == (low[2], high[2])  # beyond all: the nearest
    assert set(levels.values(np.linspace(-4, 4, 50))[0]) == {0.0, 2.0}


def test_constant_columns_say_nothing():
    margin = fit_margin(np.full(5, 2.0), kind="continuous")
    low, high = margin.coordinates(np.array([2.0, 7.0]))
    assert not margin.varies and np.all(low == -np.inf) and np.all(high == np.inf)
    assert margin.values(np.array([0.3]))[0] == [2.0]


# --- Censored values -----------------------------------------------------------------------------


def test_kaplan_meier_on_either_side():
    x = RNG.gamma(2.0, size=60).round(1)
    limit = RNG.gamma(2.0, size=60).round(1) + 0.05
    seen, over = np.minimum(x, limit), x > limit
    data = stats.CensoredData.right_censored(seen, over)
    wanted = stats.ecdf(data).cdf
    (low, high), masses = turnbull(seen, np.where(over, np.inf, seen), np.ones(60))
    cdf = np.cumsum(masses) / 60
    exact = low == high
    assert np.allclose(cdf[exact], wanted.evaluate(low[exact]), atol=1e-7)
    # the mirror image: below a detection limit
    (_, above), mirrored = turnbull(np.where(over, -np.inf, -seen), -seen, np.ones(60))
    assert np.allclose(mirrored[::-1], masses, atol=1e-6)
    assert np.array_equal(-above[::-1], low)


def test_turnbull_is_a_maximum():
    n = 40
    x, gap = RNG.normal(size=n), RNG.random(n)
    low = np.where(RNG.random(n) < 0.3, -np.inf, x)
    high = np.where(np.isinf(low), x + gap, np.where(RNG.random(n) < 0.3, np.inf, x))
    ends, masses = turnbull(low, high, np.ones(n))
    inside = (ends[0] >= low[:, None]) & (ends[1] <= high[:, None])

    def likelihood(p):
        return np.log(inside @ p).sum()

    best = likelihood(masses / n)
    for _ in range(200):
        other = masses / n * np.exp(0.1 * RNG.normal(size=masses.size))
        assert likelihood(other / other.sum()) <= best + 1e-6
        other = 0.99 * masses / n + 0.01 * RNG.dirichlet(np.ones(masses.size))
        assert likelihood(other) <= best + 1e-6


def test_a_value_below_a_limit_is_an_interval():
    x = np.concatenate([np.full(30, 5.0), 5 + RNG.random(70)])
    low = np.where(x <= 5, -np.inf, x)
    margin = fit_margin(low, x, kind="censored")
    z_low, z_high = margin.coordinates(low, x)
    assert np.all(z_low[:30] == -np.inf) and np.allclose(z_high[:30], stats.norm.ppf(0.3))
    assert margin.values(np.array([-2.0])) == (-np.inf, 5.0)
    # a bound among the values: all below it
    low, high = margin.coordinates(np.array([-np.inf, 5.5]), np.array([5.5, np.inf]))
    share = np.mean(x <= 5.5)
    assert np.allclose([high[0], low[1]], stats.norm.ppf(share)) and high[1] == np.inf
    # bounds beyond all values
    low, high = margin.coordinates(np.array([-np.inf, 99.0]), np.array([1.0, np.inf]))
    assert low[0] == -np.inf and high[1] == np.inf
    assert np.allclose([high[0], low[1]], stats.norm.ppf([0.3, 0.99]))


def test_levels_without_entries_have_a_frequency():
    found = fit_frequencies(np.array([0.0, 0.0, 2.0, np.nan]), 3)
    assert np.all(found.shares > 0) and found.shares.sum() == pytest.approx(1)
    one = fit_frequencies(np.array([0.0, 1.0]), 2, weights=np.array([3.0, 1.0]))
    assert one.shares.tolist() == [0.75, 0.25]
