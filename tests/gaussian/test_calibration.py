"""Counts of hidden entries against laws that are known: coverage, its error, and the factor."""

import numpy as np
import pytest
from scipy import stats

from dualpca.gaussian.calibration import (
    LEVELS,
    Calibration,
    StatedLevels,
    combined,
    deal,
    gaussian_entries,
    hide,
    share_error,
)


def rows(n=600, d=8, q=2, seed=0):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((d, q))
    return rng.standard_normal((n, q)) @ W.T + 0.5 * rng.standard_normal((n, d)) + 1


def found_of(distance, row=None, levels=LEVELS, column=None, categories=None, names=("a",)):
    """Return the calibration of entries that are so far off, in standard deviations of 1."""
    distance = np.asarray(distance, dtype=float)
    nothing = np.zeros(distance.size)
    row = np.arange(distance.size) if row is None else row
    column = np.zeros(distance.size, dtype=int) if column is None else column
    mask = np.ones((distance.size, 1), dtype=bool)
    entries = gaussian_entries(distance[:, None], nothing[:, None], nothing[:, None] + 1, mask)
    entries = entries._replace(row=row, column=column)
    return Calibration(np.array(levels), entries, categories, tuple(names), len(set(row)), 10)


def normal(n, seed=0, scale=1.0):
    return np.abs(scale * np.random.default_rng(seed).standard_normal(n))


# --- what is hidden -------------------------------------------------------------------


def test_only_observed_entries_are_hidden_and_no_feature_is_emptied():
    X = rows(40, 5)
    X[:, 1] = np.nan
    X[7, 1] = 1.0
    X[3, 3] = np.nan
    for seed in range(20):
        hidden = hide(X, 0.9, np.random.default_rng(seed))
        assert not hidden[np.isnan(X)].any() and not hidden[7, 1]
        assert (~np.isnan(X) & ~hidden).any(axis=0).all()
    share = hide(rows(2000), 0.25, np.random.default_rng(0)).mean()
    assert share == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("share", [0, 1, -0.1, 2, float("nan")])
def test_nonsense_shares_are_refused(share):
    with pytest.raises(ValueError, match="share must be"):
        hide(rows(10), share, np.random.default_rng(0))


def test_nothing_hidden_is_refused():
    with pytest.raises(ValueError, match="large enough"):
        hide(rows(3), 1e-9, np.random.default_rng(0))


@pytest.mark.parametrize("folds", [1, 0, 2.5, True])
def test_nonsense_folds_are_refused(folds):
    with pytest.raises(ValueError, match="folds must be"):
        deal(rows(10), folds, np.random.default_rng(0))


def test_every_entry_is_dealt_to_one_fold():
    X = rows(30, 7)
    X[np.random.default_rng(1).random(X.shape) < 0.2] = np.nan
    parts = deal(X, 4, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sum(parts, axis=0), ~np.isnan(X))
    sizes = np.sum(parts, axis=2)  # of a row: as equal as can be
    assert np.all(sizes.max(axis=0) - sizes.min(axis=0) <= 1)


# --- what is counted ------------------------------------------------------------------


def test_coverage_and_band_are_counted_as_they_say():
    distance = np.arange(10) / 5
    found = found_of(distance, levels=[0.5, 0.9])
    inside = [(distance <= stats.norm.ppf((1 + p) / 2)).mean() for p in (0.5, 0.9)]
    np.testing.assert_allclose(found.coverage, inside)
    np.testing.assert_allclose(found.low[0], stats.binom.ppf(0.025, 10, 0.5) / 10)
    np.testing.assert_allclose(found.high[0], stats.binom.ppf(0.975, 10, 0.5) / 10)
    np.testing.assert_allclose(found.entries.distance, distance)
    np.testing.assert_allclose(found.entries.high, stats.norm.ppf(0.95))


def test_the_factor_gives_nominal_coverage_of_the_same_entries():
    distance = np.random.default_rng(0).standard_t(4, 500)
    found = found_of(np.abs(distance), levels=[0.3, 0.8, 0.9, 0.99])
    for p, factor in zip(found.levels, found.factor, strict=True):
        reach = factor * stats.norm.ppf((1 + p) / 2)
        assert np.mean(np.abs(distance) <= reach) == pytest.approx(p, abs=1.5 / 500)
    asked = stats.norm.ppf((1 + found.levels_to_ask) / 2) / stats.norm.ppf((1 + found.levels) / 2)
    np.testing.assert_allclose(asked, found.factor)


@pytest.mark.parametrize("scale", [0.5, 1.0, 1.6])
def test_the_factor_of_a_known_error_is_that_error(scale):
    found = found_of(normal(20_000, scale=scale), levels=[0.5, 0.9])
    np.testing.assert_allclose(found.factor, scale, rtol=0.03)
    words = {0.5: "too wide", 1.0: "as wide as they should be", 1.6: "too narrow: multiply"}
    assert words[scale] in str(found)
    if scale > 1:
        assert f"level of {100 * found.levels_to_ask[1]:.1f} %" in str(found)


@pytest.mark.parametrize("alike", [1, 5])
def test_the_interval_of_the_factor_covers_also_where_entries_of_a_row_are_alike(alike):
    """Rows of entries that share one scale: counted as independent, they would be too sure."""
    held, rng = 0, np.random.default_rng(3)
    for _ in range(300):
        far = np.abs(rng.standard_normal(60))
        found = found_of(np.repeat(far, alike), np.repeat(np.arange(60), alike), levels=[0.8])
        low, high = found.factor_interval
        held += low[0] <= 1 <= high[0]
    assert 0.92 <= held / 300 <= 0.995


def test_the_error_is_that_of_rows():
    rng = np.random.default_rng(0)
    drawn = np.repeat(rng.random((400, 50)) < 0.8, 4, axis=1)
    error = np.mean([share_error(right, np.repeat(np.arange(50), 4)) for right in drawn])
    assert error == pytest.approx(np.std(drawn.mean(axis=1)), rel=0.1)
    assert np.mean([share_error(right, np.arange(200)) for right in drawn]) < 0.6 * error
    # a share of 0 or 1 is not certain, and neither is one row
    assert share_error(np.ones(20, dtype=bool), np.arange(20)) > 0.03
    assert share_error(np.array([True, False]), np.zeros(2)) > 0.3
    assert np.isnan(share_error(np.empty(0, dtype=bool), np.empty(0)))


def test_few_entries_are_too_few_to_tell():
    found = found_of(normal(8), levels=[0.9])
    assert found.factor_interval[1][0] == np.inf
    assert "too few to tell" in str(found)


def test_values_beyond_every_interval_have_no_factor():
    distance = np.where(np.arange(400) % 4 == 0, np.inf, 0.5)
    found = found_of(distance, levels=[0.5, 0.9])
    assert np.isfinite(found.factor[0]) and np.isinf(found.factor[1])
    assert found.levels_to_ask[1] == 1 and "no factor widens them" in str(found)


def test_columns_are_counted_and_told_the_lowest_first():
    column = np.arange(3000) % 3
    distance = normal(3000) * np.array([1.0, 2.0, 1.0])[column]
    found = found_of(distance, column=column, names=("a", "b", "c", "none"), levels=[0.5, 0.9])
    assert found.hidden_by_column.tolist() == [1000, 1000, 1000, 0]
    shares = found.coverage_by_column
    assert shares.shape == (4, 2) and np.isnan(shares[3]).all()
    np.testing.assert_allclose(shares[:3].mean(axis=0), found.coverage)
    lines = str(found).splitlines()
    assert lines[-3].startswith("b") and "none" not in str(found)
    many = found_of(normal(50), column=np.arange(50) % 25, names=[f"v{j}" for j in range(25)])
    assert str(many).endswith("and 5 more columns, with higher shares")


def test_categories_are_told_beside_what_was_said():
    n = 200
    stated = StatedLevels(
        np.arange(n), np.zeros(n, dtype=int), np.full(n, 0.79), np.arange(n) < 146
    )
    found = found_of(normal(50), categories=stated)
    assert "79.0 %" in str(found) and "right in 73.0 ± 3." in str(found)
    assert "hidden in 10 folds" in str(found)
    alone = found_of([], categories=stated)
    assert str(alone).startswith("200 entries of categories")


def test_other_levels_need_no_other_fit():
    found = found_of(normal(300))
    other = found.at(0.9)
    assert other.levels.tolist() == [0.9] and other.entries is found.entries
    assert other.coverage[0] == found.coverage[LEVELS.index(0.9)]
    for levels in ([0.5, 1.0], [[0.5]], [-0.1], []):
        with pytest.raises(ValueError, match="levels must be"):
            found.at(levels)


def test_a_known_entry_that_is_filled_exactly_is_inside():
    X = np.array([[1.0, 2.0]])
    entries = gaussian_entries(X, X + np.arange(2.0), 0 * X, np.ones((1, 2), dtype=bool))
    assert entries.distance.tolist() == [0.0, np.inf]
    both = combined([entries, entries])
    assert type(both) is type(entries) and both.truth.tolist() == [1.0, 2.0, 1.0, 2.0]
