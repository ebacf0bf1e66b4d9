"""Batches as rows: trajectories on one grid, by linear interpolation, side by side or below."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualpca.data.frames import Host

Floats = NDArray[np.float64]

REACHED = 1e-9
"""Share of the grid's length within which a point of it counts as reached."""


class Grid(NamedTuple):
    """Where trajectories are read: at `n_points` places from `start` to `end`."""

    start: float
    end: float
    n_points: int

    @property
    def points(self) -> Floats:
        """The places, (n_points,)."""
        return np.linspace(self.start, self.end, self.n_points)


def resampled(values: Floats, place: Floats, grid: Grid) -> Floats:
    """Return a trajectory at the points of a grid, (n_points, d), linear between its rows.

    NaN before the first row and after the last, and between two rows of which one is NaN. A point
    at a row has that row's values to the last bit.

    Parameters
    ----------
    values : array of shape (t, d)
    place : array of shape (t,)
        Where the rows lie, increasing.
    grid : Grid

    Examples
    --------
    >>> resampled(np.array([[0.0], [4.0]]), np.array([0.0, 2.0]), Grid(0, 3, 4))[:, 0]
    array([ 0.,  2.,  4., nan])
    """
    points, last = grid.points, len(place) - 1
    slack = REACHED * max(abs(grid.end - grid.start), 1e-300)
    inside = (points >= place[0] - slack) & (points <= place[last] + slack)
    points = np.clip(points, place[0], place[last])
    after = np.clip(np.searchsorted(place, points, side="left"), 0, last)
    before = np.maximum(after - 1, 0)
    step = place[after] - place[before]
    share = np.where(step > 0, (points - place[before]) / np.where(step > 0, step, 1.0), 1.0)
    # rows that a point is at, but for rounding
    share = np.where(np.abs(points - place[after]) <= slack, 1.0, share)
    share = np.where(np.abs(points - place[before]) <= slack, 0.0, share)[:, None]
    low, high = values[before], values[after]
    found = np.where(share == 1, high, np.where(share == 0, low, low + share * (high - low)))
    return np.where(inside[:, None], found, np.nan)


def check_increasing(place: Floats, name: str, batch: str) -> None:
    """Refuse an indicator variable that does not increase from row to row of a batch.

    Examples
    --------
    >>> check_increasing(np.array([0.0, 1.0, 1.5]), "volume", "batch 0")
    """
    remedy = (
        "Take a variable that only grows as a batch proceeds, smooth it, drop the rows where it "
        "stands still, or align by time (align_to=None)."
    )
    bad = np.flatnonzero(~np.isfinite(place))
    if bad.size:
        got = f"got {place[bad[0]]} in row {bad[0]}"
        raise ValueError(f"{name} must be a number in every row of {batch}, {got}. {remedy}")
    bad = np.flatnonzero(np.diff(place) <= 0)
    if bad.size:
        t = int(bad[0])
        got = f"got {place[t]:g} in row {t} and {place[t + 1]:g} in row {t + 1}"
        raise ValueError(f"{name} must increase from row to row of {batch}, {got}. {remedy}")


def grouped(names: Host) -> dict[Hashable, NDArray[np.intp]]:
    """Return the rows of each batch of a long table, in the order in which batches first appear.

    Examples
    --------
    >>> grouped(np.array(["b", "a", "b"]))
    {'b': array([0, 2]), 'a': array([1])}
    """
    found, first, place = np.unique(names, return_index=True, return_inverse=True)
    place = place.reshape(-1)
    names = found.tolist()
    return {names[k]: np.flatnonzero(place == k) for k in np.argsort(first)}


def unfolded(trajectories: Floats) -> Floats:
    """Return one row per batch, point by point, (n, n_points·d).

    Examples
    --------
    >>> unfolded(np.array([[[1.0, 2.0], [3.0, 4.0]]]))
    array([[1., 2., 3., 4.]])
    """
    return trajectories.reshape(len(trajectories), -1)


def folded(rows: Floats, d: int) -> Floats:
    """Return the trajectories of rows, (n, n_points, d): `unfolded` backwards.

    Examples
    --------
    >>> folded(np.array([[1.0, 2.0, 3.0, 4.0]]), 2)
    array([[[1., 2.],
            [3., 4.]]])
    """
    return rows.reshape(len(rows), -1, d)


def so_far(trajectory: Floats) -> Floats:
    """Return what was known of a batch at each point it has reached, (k, n_points·d).

    Row p has the values up to point p, and NaN for the rest.

    Examples
    --------
    >>> so_far(np.array([[1.0], [2.0], [np.nan]]))
    array([[ 1., nan, nan],
           [ 1.,  2., nan]])
    """
    n_points, d = trajectory.shape
    seen = np.flatnonzero(~np.isnan(trajectory).all(axis=1))
    reached = int(seen[-1]) + 1 if seen.size else 0
    known = np.arange(n_points)[None, :] <= np.arange(reached)[:, None]
    found = np.where(known[:, :, None], trajectory[None, :, :], np.nan)
    return found.reshape(reached, n_points * d)


def mean_trajectory(trajectories: Floats) -> Floats:
    """Return the mean over the batches that have a value, (n_points, d); 0 where none has.

    Examples
    --------
    >>> mean_trajectory(np.array([[[1.0], [np.nan]], [[3.0], [np.nan]]]))
    array([[2.],
           [0.]])
    """
    seen = ~np.isnan(trajectories)
    total = np.where(seen, trajectories, 0.0).sum(axis=0)
    return np.asarray(total / np.maximum(seen.sum(axis=0), 1))
