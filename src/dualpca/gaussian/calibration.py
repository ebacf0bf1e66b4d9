"""Are intervals as wide as they should be? Hide known entries, and count how many they contain.

What is hidden, what is counted, and the ranks of order statistics that conformal intervals stand
on. Who refits which model to the rest is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from dualpca.errors import expected

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
BAND = 0.95
"""Probability of the band of what chance explains, and of the interval of a factor."""
TOLD = 0.9
"""Level that is told column by column, and in words."""
LISTED = 20
"""Columns that are listed."""


class Overimputed(NamedTuple):
    """Measured entries as they are predicted without them, one element each."""

    row: NDArray[np.intp]
    column: NDArray[np.intp]
    truth: Floats
    guess: Floats
    low: Floats  # ends of an interval of one level
    high: Floats
    distance: Floats  # |truth − guess| in standard deviations, of normal scores for a copula


class StatedLevels(NamedTuple):
    """Hidden entries of categories, one element each.

    Parameters
    ----------
    row, column : arrays of int, shape (m,)
    stated : array of shape (m,)
        Probability of the level that the model finds most probable.
    right : array of bool, shape (m,)
        Whether the entry had that level.
    """

    row: NDArray[np.intp]
    column: NDArray[np.intp]
    stated: Floats
    right: Bools


# --- What is hidden ------------------------------------------------------------------------------


def hide(X: Floats, share: float, rng: np.random.Generator) -> Bools:
    """Choose entries to hide: a share of the observed ones, never all of a feature.

    Parameters
    ----------
    X : array of shape (n, d)
        NaN where nothing was observed.
    share : float
        Between 0 and 1.
    rng : Generator

    Returns
    -------
    array of bool, shape (n, d)
        True where an entry is to be hidden.
    """
    if not 0 < share < 1:
        raise ValueError(expected("share", "a number between 0 and 1, both excluded", share))
    seen = ~np.isnan(X)
    hidden = seen & (rng.random(X.shape) < share)
    _keep_one(seen, hidden)
    if not hidden.any():
        raise ValueError(expected("share", "large enough to hide an entry", share))
    return hidden


def deal(X: Floats, folds: int, rng: np.random.Generator) -> list[Bools]:
    """Deal the observed entries to folds, those of a row to as many folds as can be.

    Parameters
    ----------
    X : array of shape (n, d)
        NaN where nothing was observed.
    folds : int
        2 or more.
    rng : Generator

    Returns
    -------
    list of arrays of bool, shape (n, d)
        Entries to hide in turn: each at most once, never all of a feature.

    Examples
    --------
    >>> parts = deal(np.ones((30, 4)), 2, np.random.default_rng(0))
    >>> [set(part.sum(axis=1).tolist()) for part in parts]
    [{2}, {2}]
    """
    if isinstance(folds, bool) or not folds >= 2 or int(folds) != folds:
        raise ValueError(expected("folds", "a whole number of 2 or more", folds))
    seen = ~np.isnan(X)
    order = np.argsort(np.where(seen, rng.random(X.shape), np.inf), axis=1)
    place = np.argsort(order, axis=1) + rng.integers(folds, size=(len(X), 1))
    found = [seen & (place % folds == fold) for fold in range(int(folds))]
    for hidden in found:
        _keep_one(seen, hidden)
    return [hidden for hidden in found if hidden.any()]


def _keep_one(seen: Bools, hidden: Bools) -> None:
    """Leave the first observed entry of every feature of which all would be hidden."""
    for j in np.flatnonzero(~(seen & ~hidden).any(axis=0)):
        hidden[np.flatnonzero(seen[:, j])[:1], j] = False


# --- What is counted -----------------------------------------------------------------------------


def gaussian_entries(
    X: Floats, mean: Floats, std: Floats, mask: Bools, level: float = TOLD
) -> Overimputed:
    """Return the entries of a mask beside their means and standard deviations, (n, d) each."""
    row, column = np.nonzero(mask)
    truth, guess, scale = X[mask], np.asarray(mean)[mask], np.asarray(std)[mask]
    off, reach = np.abs(truth - guess), normal_quantile(level) * scale
    with np.errstate(divide="ignore", invalid="ignore"):  # a known entry: 0/0 is inside
        distance = np.where(off == 0, 0.0, off / scale)
    return Overimputed(row, column, truth, guess, guess - reach, guess + reach, distance)


def combined(parts: Sequence[Any]) -> Any:
    """Return one record of arrays for several of the same class."""
    return type(parts[0])(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def normal_quantile(level: Any) -> Any:
    """Return how many standard deviations a Gaussian interval of some level reaches."""
    return special.ndtri((1 + np.asarray(level, dtype=np.float64)) / 2)


def binomial_band(n: int, p: Floats) -> tuple[Floats, Floats]:
    """Return the shares of n entries between which chance alone keeps coverages of level p.

    Examples
    --------
    >>> low, high = binomial_band(100, np.array([0.9]))
    >>> low, high
    (array([0.84]), array([0.95]))
    """
    low, high = stats.binom.interval(BAND, n, p)
    return np.asarray(low) / n, np.asarray(high) / n


def share_error(right: Bools, row: NDArray[np.intp]) -> float:
    """Return the standard error of a share of entries, those of a row counting as alike.

    It is that of sums over rows, and at least that of independent entries, with one more of either
    kind: a share of 0 or 1 is not certain.

    Examples
    --------
    >>> right = np.arange(100) % 10 > 0
    >>> round(share_error(right, np.arange(100)), 3)
    0.031
    >>> round(share_error(np.repeat(right, 4), np.repeat(np.arange(100), 4)), 3)
    0.03
    """
    n = right.size
    if n == 0:
        return math.nan
    share = (right.sum() + 1) / (n + 2)
    least = float(np.sqrt(share * (1 - share) / n))
    _, which = np.unique(row, return_inverse=True)
    sums = np.bincount(which, weights=right - right.mean())
    rows = sums.size
    if rows < 2:
        return least
    return max(least, float(np.sqrt(rows / (rows - 1) * np.sum(sums**2))) / n)


@dataclass(frozen=True, eq=False, repr=False)
class Calibration:
    """How often intervals contain values that were hidden, level by level.

    What `calibration` of an estimator returns. Printed, it is a table with a sentence on it;
    `plots.calibration` draws it.

    Parameters
    ----------
    levels : array of shape (k,)
        Nominal levels.
    entries : Overimputed
        The hidden entries of columns of numbers, one element each: `row`, `column`, `truth`,
        `guess`, the ends `low` and `high` of a 90 % interval, and `distance`: how far off the guess
        is, in standard deviations.
    categories : StatedLevels or None
        The hidden entries of columns of categories: `row`, `column`, the probability `stated` for
        the most probable level, and whether it was `right`.
    names : tuple of str
        Names of the d columns.
    n_rows : int
        Rows of the table.
    n_folds : int
        How many times entries were hidden, and the model refitted.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import PPCA
    >>> X = load_iris().data
    >>> found = PPCA(2).fit(X).calibration(X, levels=[0.5, 0.9])
    >>> found.coverage.round(2), found.error.round(2), found.n_hidden
    (array([0.54, 0.91]), array([0.02, 0.01]), 600)
    >>> found.factor.round(1)
    array([0.8, 1. ])
    """

    levels: Floats  # (k,)
    entries: Overimputed
    categories: StatedLevels | None
    names: tuple[str, ...]  # (d,)
    n_rows: int
    n_folds: int

    @property
    def n_hidden(self) -> int:
        """Number of hidden entries of columns of numbers."""
        return int(self.entries.distance.size)

    @property
    def coverage(self) -> Floats:
        """Share of hidden entries inside intervals of every level, (k,)."""
        return np.asarray(self._inside().mean(axis=0))

    @property
    def error(self) -> Floats:
        """Standard error of every coverage, (k,); entries of a row are alike."""
        return np.array([share_error(one, self.entries.row) for one in self._inside().T])

    @property
    def low(self) -> Floats:
        """Lower end of the band in which chance keeps the coverage of right intervals, (k,)."""
        return binomial_band(self.n_hidden, self.levels)[0]

    @property
    def high(self) -> Floats:
        """Upper end of that band, (k,)."""
        return binomial_band(self.n_hidden, self.levels)[1]

    @property
    def factor(self) -> Floats:
        """What standard deviations are to be multiplied by, so that intervals cover, (k,).

        Intervals mean ± factor · z · std of a level would have contained that share of the hidden
        entries. It may be infinite: of `CopulaPPCA`, whose intervals never leave the values of a
        column.
        """
        return np.asarray(self._quantiles(self.levels) / normal_quantile(self.levels))

    @property
    def factor_interval(self) -> tuple[Floats, Floats]:
        """The ends of a 95 % interval of every factor, (k,) each.

        They are the factors of the levels that lie two standard errors of the coverage below and
        above (Woodruff 1952); infinite where there are too few entries to tell.
        """
        reach = self._quantiles(self.levels)
        inside = self.entries.distance[:, None] <= reach
        error = [share_error(one, self.entries.row) for one in inside.T]
        off = normal_quantile(BAND) * np.array(error)
        ends = (self._quantiles(p) for p in (self.levels - off, self.levels + off))
        low, high = (end / normal_quantile(self.levels) for end in ends)
        return low, high

    @property
    def levels_to_ask(self) -> Floats:
        """Levels of intervals that would have covered as `levels` say, (k,).

        The factor in other words, for models whose intervals have a level and no standard
        deviation: `CopulaPPCA.impute(X, return_interval=True, level=...)`.
        """
        return np.asarray(2 * special.ndtr(self._quantiles(self.levels)) - 1)

    @property
    def hidden_by_column(self) -> NDArray[np.intp]:
        """Number of hidden entries of every column, (d,)."""
        return np.bincount(self.entries.column, minlength=len(self.names))

    @property
    def coverage_by_column(self) -> Floats:
        """Share of hidden entries of every column inside intervals of every level, (d, k).

        NaN where none was hidden.
        """
        counts, inside = self.hidden_by_column, self._inside()
        sums = np.zeros((len(self.names), inside.shape[1]))
        np.add.at(sums, self.entries.column, inside)
        return np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], np.nan)

    def at(self, levels: Any) -> Calibration:
        """Return the same for other levels; nothing is fitted again.

        Parameters
        ----------
        levels : float or sequence of float

        Returns
        -------
        Calibration

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from dualpca import PPCA
        >>> X = load_iris().data
        >>> PPCA(2).fit(X).calibration(X).at(0.8).coverage.round(2)
        array([0.82])
        """
        return replace(self, levels=checked_levels(np.atleast_1d(levels)))

    def _inside(self) -> Bools:
        found: Bools = self.entries.distance[:, None] <= normal_quantile(self.levels)
        return found

    def _quantiles(self, p: Floats) -> Floats:
        """Return the distances that shares p of the entries do not exceed; inf beyond all."""
        ordered = np.append(np.sort(self.entries.distance), np.inf)
        rank = np.ceil(np.maximum(p, 0.0) * self.n_hidden - 1e-9).astype(np.intp)
        found: Floats = np.where(p <= 0, 0.0, ordered[np.clip(rank - 1, 0, self.n_hidden)])
        return found

    def __repr__(self) -> str:
        """Return the tables in words."""
        parts = [*self._words_of_numbers(), *self._words_of_categories()]
        return "\n".join(parts)

    def _words_of_numbers(self) -> list[str]:
        if not self.n_hidden:
            return []
        times = "once" if self.n_folds == 1 else f"in {self.n_folds} folds"
        lines = [
            f"{self.n_hidden:,} entries of {self.n_rows:,} rows were hidden {times}; intervals of",
            "level    contained          factor, 95 % interval",
        ]
        low, high = self.factor_interval
        rows = zip(self.levels, self.coverage, self.error, self.factor, low, high, strict=True)
        for p, share, error, factor, a, b in rows:
            held = f"{100 * share:5.1f} ± {100 * error:.1f} %"
            lines.append(f"{100 * p:4.4g} %   {held:<16} {factor:6.2f}   {a:.2f} to {b:.2f}")
        return [*lines, self._verdict(), *self._words_of_columns()]

    def _verdict(self) -> str:
        """Return a sentence on 90 % intervals."""
        found = self.at(TOLD)
        factor, (low, high) = found.factor[0], found.factor_interval
        what = f"{100 * TOLD:g} % intervals"
        if not np.isfinite(high[0]) and not low[0] > 1:
            return f"{what}: {self.n_hidden} hidden entries are too few to tell."
        if low[0] <= 1 <= high[0]:
            return f"{what} are as wide as they should be, as far as these entries can tell."
        side = "narrow" if low[0] > 1 else "wide"
        if not np.isfinite(factor):
            return f"{what} are too {side}: no factor widens them to the values that they miss."
        ask = 100 * float(found.levels_to_ask[0])
        return (
            f"{what} are too {side}: multiply standard deviations by {factor:.2f}, or ask for a "
            f"level of {ask:.1f} %."
        )

    def _words_of_columns(self) -> list[str]:
        """Return the coverage of 90 % intervals column by column, the lowest first."""
        count, told = self.hidden_by_column, self.at(TOLD)
        share = told.coverage_by_column[:, 0]
        order = [int(j) for j in np.argsort(share, kind="stable") if count[j]]
        wide = max([len("column"), *(len(self.names[j]) for j in order[:LISTED])])
        lines = [f"{'column':<{wide}}  hidden  inside {100 * TOLD:g} %"]
        for j in order[:LISTED]:
            inside = told._inside()[self.entries.column == j, 0]
            error = share_error(inside, self.entries.row[self.entries.column == j])
            held = f"{100 * share[j]:5.1f} ± {100 * error:.1f} %"
            lines.append(f"{self.names[j]:<{wide}}  {count[j]:>6,}  {held}")
        more = len(order) - LISTED
        return lines + ([f"and {more:,} more columns, with higher shares"] if more > 0 else [])

    def _words_of_categories(self) -> list[str]:
        """Return how often the most probable level was right, beside how often it was said to."""
        found = self.categories
        if found is None or not found.stated.size:
            return []
        error = 100 * share_error(found.right, found.row)
        return [
            f"{found.stated.size:,} entries of categories were hidden: the most probable level has "
            f"{100 * found.stated.mean():.1f} %",
            f"on average, and was right in {100 * found.right.mean():.1f} ± {error:.1f} %.",
        ]


def checked_levels(levels: Any) -> Floats:
    """Return nominal levels as an array, or refuse what is none."""
    p = np.asarray(levels, dtype=np.float64)
    if p.ndim != 1 or not p.size or not np.all((p > 0) & (p < 1)):
        raise ValueError(expected("levels", "numbers between 0 and 1, both excluded", levels))
    return p
