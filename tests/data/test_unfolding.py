"""Trajectories on a grid: interpolation against a plain loop, unfolding against its inverse."""

import numpy as np
import pytest

from dualpca.data.unfolding import (
    Grid,
    check_increasing,
    folded,
    grouped,
    mean_trajectory,
    resampled,
    so_far,
    unfolded,
)


def oracle(values, place, grid):
    """Return the trajectory on the grid, entry by entry."""
    found = np.full((grid.n_points, values.shape[1]), np.nan)
    for p, x in enumerate(np.linspace(grid.start, grid.end, grid.n_points)):
        for t in range(len(place)):
            if abs(place[t] - x) < 1e-9 * (grid.end - grid.start):
                found[p] = values[t]
                break
            if t + 1 < len(place) and place[t] < x < place[t + 1]:
                share = (x - place[t]) / (place[t + 1] - place[t])
                found[p] = values[t] + share * (values[t + 1] - values[t])
    return found


@pytest.mark.parametrize("seed", range(8))
def test_linear_interpolation_is_that_of_a_loop(seed):
    rng = np.random.default_rng(seed)
    t = int(rng.integers(1, 30))
    place = np.cumsum(rng.uniform(0.1, 2, t))
    values = rng.normal(size=(t, 3))
    values[rng.random(values.shape) < 0.1] = np.nan
    grid = Grid(place[0] - 0.5, place[-1] + rng.uniform(-1, 1) + 0.6, int(rng.integers(2, 40)))
    np.testing.assert_allclose(
        resampled(values, place, grid), oracle(values, place, grid), rtol=1e-12, atol=1e-12
    )


def test_points_at_rows_have_their_values_to_the_last_bit():
    values = np.random.default_rng(0).normal(size=(7, 2))
    np.testing.assert_array_equal(resampled(values, np.arange(7.0), Grid(0.0, 6.0, 7)), values)
    place = np.linspace(0, 1, 7)
    np.testing.assert_array_equal(resampled(values, place, Grid(0.0, 1.0, 7)), values)


def test_a_missing_reading_is_missing_between_its_neighbours_only():
    values = np.array([[0.0], [np.nan], [2.0], [3.0]])
    found = resampled(values, np.arange(4.0), Grid(0.0, 3.0, 7))[:, 0]
    np.testing.assert_array_equal(np.isnan(found), [0, 1, 1, 1, 0, 0, 0])


def test_one_row_is_its_point():
    found = resampled(np.array([[5.0]]), np.array([0.0]), Grid(0.0, 1.0, 3))[:, 0]
    np.testing.assert_array_equal(found, [5.0, np.nan, np.nan])


def test_folding_is_unfolding_backwards():
    trajectories = np.random.default_rng(0).normal(size=(4, 5, 3))
    rows = unfolded(trajectories)
    np.testing.assert_array_equal(folded(rows, 3), trajectories)
    np.testing.assert_array_equal(rows[1, 3:6], trajectories[1, 1])


def test_what_was_known_at_each_point():
    trajectory = np.random.default_rng(0).normal(size=(5, 2))
    trajectory[3:] = np.nan
    found = so_far(trajectory)
    assert found.shape == (3, 10)
    for p, row in enumerate(found):
        np.testing.assert_array_equal(row[: 2 * p + 2], trajectory[: p + 1].ravel())
        assert np.isnan(row[2 * p + 2 :]).all()
    assert so_far(np.full((4, 2), np.nan)).shape == (0, 8)


def test_means_are_over_what_was_observed():
    one = np.array([[1.0, np.nan], [3.0, np.nan]])
    two = np.array([[3.0, 5.0], [np.nan, np.nan]])
    np.testing.assert_array_equal(mean_trajectory(np.stack([one, two])), [[2.0, 5.0], [3.0, 0.0]])


def test_batches_keep_their_first_order_and_that_of_their_rows():
    found = grouped(np.array(["b", "a", "b", "c", "a"], dtype=object))
    assert list(found) == ["b", "a", "c"]
    assert [rows.tolist() for rows in found.values()] == [[0, 2], [1, 4], [3]]


@pytest.mark.parametrize(
    "place, message",
    [
        ([0.0, 2.0, 1.0], "increase from row to row of batch 3, got 2 in row 1 and 1 in row 2"),
        ([0.0, 0.0], "got 0 in row 0 and 0 in row 1"),
        ([0.0, np.nan], "a number in every row of batch 3, got nan in row 1"),
    ],
)
def test_an_indicator_that_does_not_increase_is_refused_in_words(place, message):
    with pytest.raises(ValueError, match=f"volume.*{message}.*align_to=None"):
        check_increasing(np.array(place), "volume", "batch 3")
