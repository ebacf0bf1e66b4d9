"""Margins of the copula: values of a column as intervals of a latent coordinate (theory 15.1).

A column x is a monotone function of z ~ N(0, 1), read off its empirical distribution F: a value
with mass p = F(x) − F(x⁻) is z in (Φ⁻¹(F(x⁻)), Φ⁻¹(F(x))], or, for values of a continuous column,
the point Φ⁻¹((F(x⁻) + F(x))/2), ties shared. Only the order of the values counts, so any increasing
change of a column's units changes nothing. With censored values F is Turnbull's estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from scipy import special

from dualpca.arrays import Array
from dualpca.data import Host

HELD_SHARE = {"continuous": 0.05, "censored": 0.05, "count": 0.01}
"""Share of a column's entries above which a value is an interval of z; always, for other kinds.

A floor or an excess of zeros then says what it says: the coordinate lies somewhere below.
"""

STANDS_OUT = 2.0
"""Times the usual share of a value, above which one entry counts as several (with weights)."""

TURNBULL_STEPS, TURNBULL_TOLERANCE = 5000, 1e-10

ROUNDING = 1e-12
"""Of sums of shares: the median of an even number of values is the lower one, always."""

LEAST_COUNT = 0.5
"""Entries that a level without any counts as, so that its frequency is not zero."""


class Coordinates(NamedTuple):
    """The interval (low, high] of each entry's coordinate; a point where they are equal."""

    low: Host  # (n,)
    high: Host  # (n,)


@dataclass(frozen=True)
class Margin:
    """The empirical distribution of a column with an order.

    Parameters
    ----------
    low, high : arrays of shape (k,)
        The values, in order: low = high, or the ends of an interval in which censored values lie.
    cumulative : array of shape (k,)
        F at each of them; 1 at the last.
    held : array of int, shape (k,)
        1 for values that are intervals of z, 0 for those that are points.

    Examples
    --------
    >>> margin = fit_margin(np.array([3.0, 1.0, 2.0]), kind="continuous")
    >>> margin.coordinates(np.array([2.0])).low
    array([0.])
    >>> margin.values(np.array([-5.0, 0.1, np.nan]))[0]
    array([ 1.,  2., nan])
    """

    low: Annotated[Array, "k", "or inf"]
    high: Annotated[Array, "k", "or inf"]
    cumulative: Annotated[Array, "k", ">= 0, <= 1"]
    held: Annotated[Array, "whole k"]

    def __post_init__(self) -> None:
        """Refuse what is no distribution."""
        rising = all(np.all(np.diff(part) >= 0) for part in (self.low, self.high, self.cumulative))
        if not rising or not self.cumulative.size or self.cumulative[-1] != 1:
            raise ValueError("values must be in order, and their shares sum to 1")

    @property
    def before(self) -> Host:
        """F just below each value, (k,)."""
        return np.concatenate([[0.0], self.cumulative[:-1]])

    @property
    def masses(self) -> Host:
        """Share of each value, (k,)."""
        return np.asarray(self.cumulative - self.before)

    @property
    def varies(self) -> bool:
        """True if the column has two values or more."""
        return int(np.count_nonzero(self.masses > 0)) > 1

    @property
    def cuts(self) -> Host:
        """Ends of the values' intervals of z, (k + 1,), from −∞ to ∞."""
        return np.asarray(special.ndtri(np.concatenate([[0.0], self.cumulative])))

    def coordinates(self, low: Host, high: Host | None = None) -> Coordinates:
        """Return the interval of z of every entry; (−∞, ∞) where it is missing.

        A value that the fit has not seen lies between its neighbours; one beyond all values counts
        as the nearest.

        Parameters
        ----------
        low, high : arrays of shape (n,)
            Lowest and highest value of each entry; `high` is `low` by default.
        """
        high = low if high is None else high
        z_low, z_high = np.full(low.shape, -np.inf), np.full(low.shape, np.inf)
        known = ~np.isnan(low)
        point = known & (low == high)
        z_low[point], z_high[point] = self._of_values(low[point])
        bound = known & (low != high)
        if bound.any():
            z_low[bound], z_high[bound] = self._of_bounds(low[bound], high[bound])
        return Coordinates(z_low, z_high)

    def _of_values(self, x: Host) -> tuple[Host, Host]:
        """Return the intervals of known values."""
        filled = np.flatnonzero(self.masses > 0)
        low, high = self.low[filled], self.high[filled]
        upper = self.cumulative[filled]
        lower = np.concatenate([[0.0], upper[:-1]])
        held, last = self.held[filled] > 0, len(filled) - 1
        i = np.searchsorted(high, x)  # the first value that is not below x
        inside = (i <= last) & (low[np.minimum(i, last)] <= x)
        i = np.where(x < low[0], 0, np.minimum(i, last))
        inside |= (x < low[0]) | (x > high[last])  # beyond all: the nearest
        a, b = lower[i], np.where(inside, upper[i], lower[i])  # between two: F of the one below
        middle = np.where(inside & ~held[i], (a + b) / 2, np.nan)
        a, b = (np.where(np.isnan(middle), end, middle) for end in (a, b))
        return special.ndtri(a), special.ndtri(b)

    def _of_bounds(self, low: Host, high: Host) -> tuple[Host, Host]:
        """Return the intervals of values that are known to lie between bounds."""
        filled = np.flatnonzero(self.masses > 0)
        ends = np.concatenate([[0.0], self.cumulative[filled]])
        first = np.searchsorted(self.high[filled], low)  # values before it are all below
        after = np.searchsorted(self.low[filled], high, side="right")
        # a limit beyond all values: those at the end are the nearest there are
        first = np.minimum(first, len(filled) - 1)
        after = np.maximum(after, 1)
        return special.ndtri(ends[first]), special.ndtri(ends[np.maximum(after, first)])

    def values(self, z: Host) -> tuple[Host, Host]:
        """Return the values at coordinates z, lowest and highest; NaN where z is NaN.

        They are values of the column: the quantile of F at Φ(z), which no value lies between.
        """
        share = np.maximum(special.ndtr(z) * (1 - ROUNDING), np.nextafter(0, 1))
        found = np.searchsorted(self.cumulative, share)
        i = np.minimum(found, len(self.cumulative) - 1)
        gone = np.isnan(z)
        return tuple(np.where(gone, np.nan, ends[i]) for ends in (self.low, self.high))  # type: ignore[return-value]

    def probabilities(self, mean: Host, variance: Host) -> Host:
        """Return the probability of every value, (n, k), where z ~ N(mean, variance)."""
        ends = (self.cuts[None, :] - mean[:, None]) / np.sqrt(variance)[:, None]
        # from the side where it is small, so that no digits are lost
        flip = ends[:, :-1] > 0
        below, above = special.ndtr(ends), special.ndtr(-ends)
        found = np.where(flip, above[:, :-1] - above[:, 1:], below[:, 1:] - below[:, :-1])
        return np.asarray(found / found.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class Frequencies:
    """How often each level of a nominal column occurs; none is zero."""

    shares: Annotated[Array, "k", ">= 0"]

    @property
    def varies(self) -> bool:
        """True if the column has two levels or more."""
        return len(self.shares) > 1


def fit_margin(
    low: Host,
    high: Host | None = None,
    *,
    kind: str,
    weights: Host | None = None,
    n_levels: int = 0,
) -> Margin:
    """Return the empirical distribution of a column; NaN is left out.

    Parameters
    ----------
    low, high : arrays of shape (n,)
        Lowest and highest value of each entry; `high` is `low` by default.
    kind : str
        Of the column: which values are points.
    weights : array of shape (n,), optional
        A weight of 2 counts as the entry twice.
    n_levels : int
        For a column of levels: their number, whether all occur or not.

    Notes
    -----
    O(n log n); with censored values O(k) more per step of EM (Turnbull 1976), k different values.

    Examples
    --------
    >>> zeros = np.array([0.0] * 50 + list(range(1, 51)))
    >>> margin = fit_margin(zeros, kind="continuous")
    >>> [float(end[0]) for end in margin.coordinates(np.array([0.0]))]  # half of them: below 0
    [-inf, 0.0]
    """
    high = low if high is None else high
    w = np.ones(low.shape) if weights is None else np.asarray(weights, dtype=np.float64)
    known = ~np.isnan(low) & (w > 0)
    low, high, w = low[known], high[known], w[known]
    if np.array_equal(low, high):
        values, where = np.unique(low, return_inverse=True)
        ends = (values, values)
        masses: Host = np.bincount(where, weights=w)
    else:
        ends, masses = turnbull(low, high, w)
    if n_levels:
        everything = np.zeros(n_levels)
        everything[ends[0].astype(np.int64)] = masses
        masses, ends = everything, (np.arange(float(n_levels)),) * 2
    share = masses / masses.sum()
    cumulative = np.minimum(np.cumsum(share), 1.0)
    cumulative[np.flatnonzero(share)[-1] :] = 1.0  # exactly, whatever the rounding
    return Margin(*ends, cumulative, _held(ends, masses, kind).astype(np.int64))


def _held(ends: tuple[Host, Host], masses: Host, kind: str) -> Host:
    """Return which values are intervals of z, (k,)."""
    if kind not in HELD_SHARE:
        return np.ones(masses.shape, dtype=bool)
    share = masses / masses.sum()
    several = (masses > 1) | (share > STANDS_OUT * np.median(share)) | (kind == "count")
    return np.asarray(((share > HELD_SHARE[kind]) & several) | (ends[0] != ends[1]))


def turnbull(low: Host, high: Host, weights: Host) -> tuple[tuple[Host, Host], Host]:
    """Return where the values of interval-censored entries lie, and the mass there.

    Parameters
    ----------
    low, high, weights : arrays of shape (n,)
        Closed intervals; low = high for values that are known.

    Returns
    -------
    ends : pair of arrays of shape (k,)
        The innermost intervals, in order: single values, and what lies between a left end and the
        next right end.
    masses : array of shape (k,)
        The maximum likelihood estimate (Turnbull 1976), in sum that of the weights.

    Examples
    --------
    >>> low, high = np.array([-np.inf, 1.0, 2.0, 3.0]), np.array([1.5, 1.0, 2.0, 3.0])
    >>> ends, masses = turnbull(low, high, np.ones(4))  # the first is at most 1.5: it is 1
    >>> ends[0], masses
    (array([1., 2., 3.]), array([2., 1., 1.]))
    """
    left, right = np.unique(low), np.unique(high)
    at = np.concatenate([left, right])
    is_right = np.concatenate([np.zeros(left.size, dtype=bool), np.ones(right.size, dtype=bool)])
    order = np.lexsort((is_right, at))  # a left end before a right one at the same place
    at, is_right = at[order], is_right[order]
    inner = np.flatnonzero(~is_right[:-1] & is_right[1:])
    ends = at[inner], at[inner + 1]
    first = np.searchsorted(ends[0], low)
    after = np.searchsorted(ends[1], high, side="right")
    spans, which = np.unique(np.stack([first, after]), axis=1, return_inverse=True)
    counts = np.bincount(which.ravel(), weights=weights)
    wide = spans[1] - spans[0] > 1
    certain = np.bincount(spans[0, ~wide], weights=counts[~wide], minlength=inner.size)
    a, b, shared = spans[0, wide], spans[1, wide], counts[wide]
    masses, total = certain + shared.sum() / inner.size, float(weights.sum())
    for _ in range(TURNBULL_STEPS if shared.size else 0):
        sums = np.concatenate([[0.0], np.cumsum(masses)])
        per_mass = shared / np.maximum(sums[b] - sums[a], 1e-300)
        change = np.zeros(inner.size + 1)
        np.add.at(change, a, per_mass)
        np.add.at(change, b, -per_mass)
        new = certain + masses * np.cumsum(change)[:-1]
        moved = float(np.abs(new - masses).max())
        masses = np.maximum(new, 0.0)
        if moved <= TURNBULL_TOLERANCE * total:
            break
    return ends, masses


def fit_frequencies(codes: Host, n_levels: int, weights: Host | None = None) -> Frequencies:
    """Return the shares of the levels of a nominal column.

    Parameters
    ----------
    codes : array of shape (n,)
        Numbers of levels, NaN where missing.
    n_levels : int
    weights : array of shape (n,), optional

    Examples
    --------
    >>> fit_frequencies(np.array([0.0, 1.0, 1.0, np.nan, 2.0]), 3).shares
    array([0.25, 0.5 , 0.25])
    """
    known = ~np.isnan(codes)
    w = None if weights is None else np.asarray(weights, dtype=np.float64)[known]
    counts = np.bincount(codes[known].astype(np.int64), weights=w, minlength=n_levels).astype(float)
    usual = 1.0 if w is None or not w.any() else float(w.sum() / np.count_nonzero(w))
    counts = np.where(counts > 0, counts, LEAST_COUNT * usual)
    return Frequencies(counts / counts.sum())
