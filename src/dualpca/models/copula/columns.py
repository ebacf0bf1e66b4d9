"""Columns of any kind: their margins, and the factors behind them (theory 15.1).

A column x is a monotone function of z ~ N(0, 1), read off its empirical distribution F: a value
with mass p = F(x) − F(x⁻) is z in (Φ⁻¹(F(x⁻)), Φ⁻¹(F(x))], or, for values of a continuous column,
the point Φ⁻¹((F(x⁻) + F(x))/2), ties shared. Only the order of the values counts, so any increasing
change of a column's units changes nothing. With censored values F is Turnbull's estimate.

`fit_mixed` reads a table, gives every column its margin and fits the latent factors. `MixedModel`
translates: entries become what is known of latent coordinates, laws of coordinates become values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from scipy import special

from dualpca.arrays import Array, cached_property, note
from dualpca.data import Host
from dualpca.data.kinds import Entries, Level, TableKinds, asked_kinds, labels_of, table_names
from dualpca.errors import EmptyColumnError, expected
from dualpca.gaussian import Factors, Outliers, Reference, Selection, judge
from dualpca.gaussian.control_limits import FactorJudge
from dualpca.models.copula.blending import Blend, fit_blend
from dualpca.models.copula.choosing import (
    ChosenLatents,
    choose_latents,
    hidden_folds,
    is_out_of_order,
)
from dualpca.models.copula.fitting import CopulaRequest, fit_copula
from dualpca.models.copula.law import CopulaConditional, CopulaFactors
from dualpca.models.copula.propagation import LatentRows
from dualpca.models.driver import History

# --- Margins of columns --------------------------------------------------------------------------

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
    >>> margin.coordinates(np.array([2.0]))[0]
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

    def coordinates(self, low: Host, high: Host | None = None) -> tuple[Host, Host]:
        """Return the interval (low, high] of z of every entry; (−∞, ∞) where it is missing.

        It is a point where both are equal. A value that the fit has not seen lies between its
        neighbours; one beyond all values counts as the nearest.

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
        return z_low, z_high

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

    def values(self, z: Host, outward: int = 0) -> tuple[Host, Host]:
        """Return the values at coordinates z, lowest and highest; NaN where z is NaN.

        They are values of the column: the quantile of F at Φ(z), which no value lies between. As
        ends of an interval, `outward` −1 or 1, the next value below or above where z is between two
        points: an entry whose value is none of those that were seen lies between two of them.
        """
        share = np.maximum(special.ndtr(z) * (1 - ROUNDING), np.nextafter(0, 1))
        found = np.searchsorted(self.cumulative, share)
        i = np.minimum(found, len(self.cumulative) - 1)
        if outward:
            middle = (self.cumulative + self.before)[i] / 2
            beyond = (self.held[i] == 0) & (outward * (share - middle) > 0)
            i = np.clip(i + outward * beyond, 0, len(self.cumulative) - 1)
        gone = np.isnan(z)
        return tuple(np.where(gone, np.nan, ends[i]) for ends in (self.low, self.high))  # type: ignore[return-value]

    def holding(self, x: Host) -> tuple[Host, Host]:
        """Return from which share on upper ends hold numbers, and up to which share lower ones do.

        Of intervals with ends by `values`, outward; NaN where x is NaN.
        """
        last, gone = len(self.cumulative) - 1, np.isnan(x)
        below, above = (np.searchsorted(self.low, x, side) for side in ("left", "right"))
        middle = (self.cumulative + self.before) / 2
        upper, lower = (
            np.where(self.held > 0, end, middle) for end in (self.cumulative, self.before)
        )
        first = np.where(below > 0, upper[np.maximum(below - 1, 0)], 0.0)
        first = np.where(below > last, 1.0, first)  # beyond all values: no end reaches it
        until = np.where(above <= last, lower[np.minimum(above, last)], 1.0)
        until = np.where(above == 0, 0.0, until)
        return np.where(gone, np.nan, first), np.where(gone, np.nan, until)

    def positions(self, x: Host) -> Host:
        """Return the coordinates of any numbers, between those of the values in the middle of each.

        Beyond all values they go on as steep as the values are from end to end.
        """
        some = self.masses > 0
        at = np.asarray(self.low)[some]
        z = special.ndtri((self.cumulative[some] + self.before[some]) / 2)
        steep = (z[-1] - z[0]) / (at[-1] - at[0])
        beyond = np.maximum(x - at[-1], 0.0) - np.maximum(at[0] - x, 0.0)
        return np.asarray(np.interp(x, at, z) + steep * beyond)

    def coordinates_in(self, other: Margin, z: Host) -> Host:
        """Return where the values at coordinates z are in another margin of the same values.

        A place within the step of a value is as far along the step of that value there. Margins of
        other values leave z as it is.
        """
        if not np.array_equal(self.low, other.low):
            return z
        here, there = (np.concatenate([[0.0], one.cumulative]) for one in (self, other))
        return np.asarray(special.ndtri(np.interp(special.ndtr(z), here, there)))

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


# --- The model of a table -----------------------------------------------------------------------

MIXED_REFIT_STEPS = 10
"""Steps that refit the factors to a bootstrap, from the maximum."""

JUDGING_SEED = 0
"""Of the draws within intervals by which `outliers` judges a row."""


@dataclass(frozen=True)
class MixedModel:
    """Columns of any kind: x_j = f_j(z_j), z = Wt + ε."""

    kinds: TableKinds
    margins: tuple[Margin | Frequencies, ...]  # of every column
    factors: CopulaFactors  # of columns that vary: those with an order, then nominal ones
    n_rows: Annotated[float, "> 0"]  # sum of the weights
    selection: Selection | None = None
    blend: Blend | None = None  # regressions that fill entries together with the factors

    def __post_init__(self) -> None:
        """Refuse parts that do not go together."""
        sizes = tuple(len(margin.shares) for _, margin in self._nominal)
        if len(self.margins) != len(self.kinds.columns) or sizes != self.factors.sizes:
            raise ValueError("a margin for every column is needed")
        if self.factors.s != len(self._ordered):
            raise ValueError("a latent coordinate for every column that varies is needed")

    @cached_property
    def _ordered(self) -> list[tuple[int, Margin]]:
        """Columns with an order that vary, and their margins."""
        pairs = enumerate(self.margins)
        return [(j, one) for j, one in pairs if isinstance(one, Margin) and one.varies]

    @cached_property
    def _nominal(self) -> list[tuple[int, Frequencies]]:
        """Nominal columns that vary, and their margins."""
        pairs = enumerate(self.margins)
        return [(j, one) for j, one in pairs if isinstance(one, Frequencies) and one.varies]

    @cached_property
    def varying(self) -> list[int]:
        """Numbers of the columns that vary."""
        return sorted(j for j, _ in (*self._ordered, *self._nominal))

    def place_of(self, column: int) -> tuple[int, Margin | None]:
        """Return the place of a column among those with an order, and its margin.

        Among nominal columns, and None, if it is one.
        """
        margin = self.margins[column]
        own = self._ordered if isinstance(margin, Margin) else self._nominal
        at = [j for j, _ in own].index(column)
        return at, margin if isinstance(margin, Margin) else None

    # --- what attributes show ----------------------------------------------------------------

    @property
    def n_components(self) -> int:
        """The number of latents."""
        return self.factors.q

    @property
    def history(self) -> History | None:
        """How the fit went."""
        return self.factors.history

    @property
    def coordinates(self) -> list[tuple[int, int | None]]:
        """Column and level of every latent coordinate, in the order of the columns.

        The level is None where a column has one coordinate.
        """
        found: list[tuple[int, int | None]] = []
        for j, margin in enumerate(self.margins):
            many = isinstance(margin, Frequencies)
            found += [(j, k) for k in range(len(margin.shares))] if many else [(j, None)]  # type: ignore[union-attr]
        return found

    def _spread(self, values: Host) -> Host:
        """Return what the factors say of coordinates in the order of columns; 0 if constant."""
        own: list[tuple[int, int | None]] = [(j, None) for j, _ in self._ordered]
        own += [(j, k) for j, margin in self._nominal for k in range(len(margin.shares))]
        place = {one: i for i, one in enumerate(own)}
        at = np.array([place.get(one, -1) for one in self.coordinates])
        return np.where((at >= 0).reshape(-1, *[1] * (values.ndim - 1)), values[at], 0.0)

    @property
    def loadings(self) -> Host:
        """W in the order of the columns, (D, q); 0 for a constant column."""
        return self._spread(np.asarray(self.factors.W))

    @property
    def noise(self) -> Host:
        """ψ in the order of the columns, (D,); 1 for a constant column."""
        constant = self._spread(np.ones(len(self.factors.psi))) == 0
        return np.where(constant, 1.0, self._spread(np.asarray(self.factors.psi)))

    @property
    def correlation(self) -> Host:
        """Of the coordinates of columns with an order, (s, s), in their order."""
        ordered = [j for j, margin in enumerate(self.margins) if isinstance(margin, Margin)]
        found, known = np.eye(len(ordered)), [ordered.index(j) for j, _ in self._ordered]
        found[np.ix_(known, known)] = self.factors.correlation
        return found

    def levels(self, column: int) -> list[Level] | None:
        """Return the levels of a column in order; None for numbers without levels."""
        kind, margin = self.kinds.columns[column], self.margins[column]
        if kind.levels is not None:
            return list(kind.levels)
        if kind.kind not in ("ordinal", "count") or isinstance(margin, Frequencies):
            return None
        return [int(v) if kind.whole else float(v) for v in margin.low]

    # --- entries and latent rows -------------------------------------------------------------

    def latent(self, entries: Entries) -> LatentRows:
        """Return what rows know of the latent coordinates."""
        n = int(entries.low.shape[0])
        low, high = np.empty((n, len(self._ordered))), np.empty((n, len(self._ordered)))
        for i, (j, margin) in enumerate(self._ordered):
            low[:, i], high[:, i] = margin.coordinates(entries.low[:, j], entries.high[:, j])
        levels = np.full((n, len(self._nominal)), -1, dtype=np.int64)
        for c, (j, _) in enumerate(self._nominal):
            levels[:, c] = _codes(entries, j)
        return LatentRows(low, high, levels, self.factors.sizes)

    def hiding(self, entries: Entries, scalars: Host, levels: Host) -> Entries:
        """Return entries without those under masks of coordinates, (n, s), and levels, (n, c)."""
        gone = np.zeros(entries.low.shape, dtype=bool)
        gone[:, [j for j, _ in self._ordered]] = scalars
        gone[:, [j for j, _ in self._nominal]] = levels
        return Entries(*(np.where(gone, np.nan, end) for end in entries))

    @property
    def coordinates_of(self) -> Host:
        """The column of every coordinate of columns that vary, as the factors have them, (D,)."""
        own = [j for j, _ in self._ordered]
        own += [j for j, margin in self._nominal for _ in margin.shares]
        return np.array(own, dtype=np.int64)

    def values(self, z: Host, levels: Host, outward: int = 0) -> Entries:
        """Return the entries at coordinates z, (n, s), and levels, (n, c); NaN and −1 give NaN.

        `outward` −1 or 1 gives ends of intervals, as in `Margin.values`.
        """
        n = int(z.shape[0])
        low = np.empty((n, len(self.margins)))
        for j, margin in enumerate(self.margins):  # the one value of constant columns
            low[:, j] = margin.low[np.argmax(margin.masses)] if isinstance(margin, Margin) else 0.0
        high = low.copy()
        for i, (j, margin) in enumerate(self._ordered):
            low[:, j], high[:, j] = margin.values(z[:, i], outward)
        for c, (j, _) in enumerate(self._nominal):
            low[:, j] = high[:, j] = np.where(levels[:, c] < 0, np.nan, levels[:, c])
        return Entries(low, high)

    def at_latents(self, t: Host) -> Entries:
        """Return the median, or the most probable level, of every column at latents t, (n, q)."""
        means, s = t @ np.asarray(self.factors.W).T, self.factors.s
        return self.values(means[:, :s], self.factors.largest_levels(means[:, s:]))

    # --- what is said of missing entries -----------------------------------------------------

    def laws(self, entries: Entries) -> tuple[CopulaConditional, CopulaConditional]:
        """Return the law of every entry given the others of its row: the copula's, and blended."""
        alone = self.factors.conditional(self.latent(entries))
        return alone, alone if self.blend is None else self.blend.blended(self, entries, alone)

    def quantiles(self, entries: Entries, shares: tuple[float, ...]) -> list[Entries]:
        """Return quantiles of every entry given the others of its row, one table per share.

        Levels in words have their most probable one at 0.5; nominal columns NaN elsewhere.
        """
        found = self.laws(entries)[1]
        deviation = np.sqrt(found.variance)
        modes = [np.argmax(p, axis=1) for p in found.probabilities]
        best = np.stack(modes, axis=1) if modes else np.empty((len(deviation), 0), dtype=np.int64)
        tables = [
            self.values(
                found.mean + special.ndtri(share) * deviation,
                best if share == 0.5 else np.full_like(best, -1),
                int(np.sign(share - 0.5)),
            )
            for share in shares
        ]
        for table in (tables[k] for k, share in enumerate(shares) if share == 0.5):
            for i, (j, margin) in enumerate(self._ordered):
                if self.kinds.columns[j].in_words:
                    p = margin.probabilities(found.mean[:, i], found.variance[:, i])
                    table.low[:, j] = table.high[:, j] = margin.low[np.argmax(p, axis=1)]
        return tables

    def distances(self, entries: Entries, values: Host) -> Host:
        """Return how far intervals must reach to hold values, in deviations of z, (n, d).

        Intervals by `quantiles` with tails Φ(−r) hold a value from r = distance on; infinite where
        it lies beyond all values of the column, and NaN in nominal columns.
        """
        law = self.laws(entries)[1]
        deviation, found = np.sqrt(law.variance), np.full(values.shape, np.nan)
        for i, (j, margin) in enumerate(self._ordered):
            first, until = (special.ndtri(end) for end in margin.holding(values[:, j]))
            away = np.maximum(law.mean[:, i] - until, first - law.mean[:, i])
            found[:, j] = np.maximum(away, 0.0) / deviation[:, i]
        return found

    def probabilities(self, entries: Entries, column: int) -> Host:
        """Return the probability of every level of a column given the rest of each row, (n, K).

        The column itself is hidden from EP, which would not quite forget it otherwise.
        """
        n, margin = int(entries.low.shape[0]), self.margins[column]
        if not margin.varies:
            share = margin.masses if isinstance(margin, Margin) else margin.shares
            return np.tile(share, (n, 1))
        low = entries.low.copy()
        low[:, column] = np.nan
        found = self.laws(Entries(low, entries.high))[1]
        if isinstance(margin, Frequencies):
            return found.probabilities[[j for j, _ in self._nominal].index(column)]
        i = [j for j, _ in self._ordered].index(column)
        return margin.probabilities(found.mean[:, i], found.variance[:, i])

    def drawn(
        self, entries: Entries, rng: np.random.Generator, models: Iterable[MixedModel]
    ) -> Iterator[Entries]:
        """Yield entries drawn jointly given what each row knows, at the parameters of each model.

        What goes together in a row is the copula's. Where laws are blended, a coordinate is moved
        and stretched from the copula's law to the blended one, and a level is drawn again as
        seldom as that allows (a maximal coupling). How the margins of a model differ from these is
        stretched as well: what other columns tell exactly is the same by any margin.
        """
        laws = None if self.blend is None else self.laws(entries)
        gaps = entries.missing
        for one in models:
            z, levels = one.factors.draw(one.latent(entries), rng)
            if laws is None:
                yield one.values(z, levels)
                continue
            pairs = zip(one._ordered, self._ordered, strict=True)
            for i, ((_, theirs), (_, own)) in enumerate(pairs):
                z[:, i] = theirs.coordinates_in(own, z[:, i])
            yield self.values(*self._moved(z, levels, gaps, *laws, rng))

    def _moved(
        self,
        z: Host,
        levels: Host,
        gaps: Host,
        alone: CopulaConditional,
        blended: CopulaConditional,
        rng: np.random.Generator,
    ) -> tuple[Host, Host]:
        """Return draws by the blended laws, from those by the copula."""
        stretch = np.sqrt(blended.variance / alone.variance)
        moved = blended.mean + stretch * (z - alone.mean)
        z, levels = np.where(gaps[:, [j for j, _ in self._ordered]], moved, z), levels.copy()
        for c, (j, _) in enumerate(self._nominal):
            rows = np.flatnonzero(gaps[:, j])
            p, new = alone.probabilities[c][rows], blended.probabilities[c][rows]
            levels[rows, c] = coupled(levels[rows, c], p, new, rng)
        return z, levels

    def sample(self, n: int, rng: np.random.Generator) -> Entries:
        """Return new rows."""
        return self.values(*self.factors.sample(n, rng))

    # --- unusual rows ------------------------------------------------------------------------

    def outliers(self, entries: Entries, level: float) -> Outliers:
        """Return T² and SPE of the latent coordinates of columns with an order, and their limits.

        Where an entry is known by an interval, its coordinate is drawn in it given the row
        (randomised residuals; Dunn & Smyth 1996): the law of ordinary rows is then exactly normal,
        whatever the kinds of the columns.
        """
        rows, s = self.latent(entries), self.factors.s
        z, _ = self.factors.draw(rows, np.random.default_rng(JUDGING_SEED))
        z = np.where(rows.known()[0], z, np.nan)
        W, psi = np.asarray(self.factors.W)[:s], np.asarray(self.factors.psi)[:s]
        if s == 0:  # nominal columns only: nothing to measure
            W, psi, z = np.zeros((1, self.n_components)), np.ones(1), np.full((rows.n, 1), np.nan)
        reference = Reference(self.n_rows, self.n_rows)
        by = FactorJudge(Factors(W, np.zeros(len(psi)), psi), reference)
        return judge(reference, by.statistics(z), level)

    # --- parameters of their own for every draw ----------------------------------------------

    def refits(
        self,
        entries: Entries,
        weights: Host | None,
        n_draws: int,
        rng: np.random.Generator,
        request: CopulaRequest,
    ) -> Iterator[MixedModel]:
        """Yield models refitted to Bayesian bootstraps of rows: margins, then factors (theory 4).

        Rows are weighted at random, by a Dirichlet law in proportion to their weights (Rubin 1981),
        so that no level of a column is lost.
        """
        n = int(entries.low.shape[0])
        w = np.ones(n) if weights is None else weights
        asked = replace(request, n_components=self.n_components, begin=self.factors, watch=None)
        asked = replace(asked, max_iter=MIXED_REFIT_STEPS)
        for _ in range(n_draws):
            drawn = rng.standard_gamma(w)
            drawn *= w.sum() / drawn.sum()
            margins = fit_margins(self.kinds, entries, drawn)
            pairs = zip(margins, self.margins, strict=True)
            kept = tuple(new if new.varies == old.varies else old for new, old in pairs)
            model = replace(
                self, margins=tuple(_held_as(*p) for p in zip(kept, self.margins, strict=True))
            )
            factors = fit_copula(model.latent(entries), frequencies_of(model.margins), asked, drawn)
            yield replace(model, factors=factors)


def coupled(levels: Host, p: Host, new: Host, rng: np.random.Generator) -> Host:
    """Return levels of probabilities `new`, (m, K), from levels, (m,), of probabilities p.

    As many as possible stay as they are.

    Examples
    --------
    >>> rng, half = np.random.default_rng(0), np.full((3, 2), 0.5)
    >>> coupled(np.array([0, 1, 1]), half, half, rng)
    array([0, 1, 1])
    """
    own = np.arange(levels.size), levels
    leave = rng.random(levels.size) * p[own] > new[own]
    short = np.cumsum(np.maximum(new - p, 0.0), axis=1)
    other = (rng.random((levels.size, 1)) * short[:, -1:] >= short).sum(axis=1)
    return np.where(leave, np.minimum(other, p.shape[1] - 1), levels)


def _codes(entries: Entries, column: int) -> Host:
    """Return the levels of a column as numbers, −1 where they are missing."""
    codes = entries.low[:, column]
    return np.where(np.isnan(codes), -1, codes).astype(np.int64)


def _held_as(new: Margin | Frequencies, old: Margin | Frequencies) -> Margin | Frequencies:
    """Return a margin of the same values whose points and intervals are those of another."""
    if isinstance(new, Margin) and isinstance(old, Margin) and np.array_equal(new.low, old.low):
        return replace(new, held=old.held)
    return new


def frequencies_of(margins: tuple[Margin | Frequencies, ...]) -> tuple[Host, ...]:
    """Return the shares of levels of the nominal columns that vary."""
    return tuple(one.shares for one in margins if isinstance(one, Frequencies) and one.varies)


def fit_margins(
    kinds: TableKinds, entries: Entries, weights: Host | None
) -> tuple[Margin | Frequencies, ...]:
    """Return the margin of every column; one that no weighted row observes is refused."""
    known = ~entries.missing if weights is None else ~entries.missing & (weights > 0)[:, None]
    empty = [int(j) for j in np.flatnonzero(~known.any(axis=0))]
    if empty:
        raise EmptyColumnError(empty)
    found: list[Margin | Frequencies] = []
    for j, column in enumerate(kinds.columns):
        low, high = entries.low[:, j], entries.high[:, j]
        levels = len(column.levels or ())
        if column.is_unordered:
            found.append(fit_frequencies(low, levels, weights))
        else:
            found.append(fit_margin(low, high, kind=column.kind, weights=weights, n_levels=levels))
    return tuple(found)


def fit_mixed(
    table: Array,
    column_kinds: object,
    request: CopulaRequest,
    wanted: int | str | None,
    weights: Host | None,
    first: int = 1,
    *,
    filling: bool = False,
) -> MixedModel:
    """Fit a model to a table of columns of any kind.

    Parameters
    ----------
    table : frame of pandas or polars, or array (n, d)
    column_kinds : None, mapping or sequence
        As in `data.kinds.asked_kinds`.
    request : CopulaRequest
    wanted : int, 'cv' or None
        Number of latents; None is 'cv'.
    weights : array of shape (n,), optional
    first : int
        The smallest number that is tried.
    filling : bool
        Missing entries are to be told as well as can be: by the number of latents that is best at
        it, and together with regressions, if that number is chosen.
    """
    kinds, entries = TableKinds.read(table, column_kinds)
    model = _without_factors(kinds, entries, weights)
    rows, shares = model.latent(entries), frequencies_of(model.margins)
    most = max(model.factors.s + sum(len(one) - 1 for one in shares) - 1, 0)
    choice: ChosenLatents | None = None
    if wanted is None or wanted == "cv":
        wanted = 0
        if most > 0:
            choice = choose_latents(rows, shares, request, weights, first, filling=filling)
            wanted = choice.selection.chosen
            note(f"{wanted} components by cross-validation")
    elif not 0 <= int(wanted) <= most:
        what = f"at most {most} for these columns (n_features = {len(model.margins)}), "
        raise ValueError(expected("n_components", what + "'cv' or None", int(wanted)))
    request = replace(request, n_components=int(wanted))
    model = replace(model, factors=fit_copula(rows, shares, request, weights))
    if choice is None:
        return model
    model = replace(model, selection=choice.selection)
    asked = asked_kinds(column_kinds, len(model.margins), table_names(table))
    bent = _out_of_order(model, rows, asked, choice, request, weights)
    if bent:
        note("nominal by cross-validation: " + ", ".join(labels_of(table)[j] for j in bent))
        asked = ["nominal" if j in bent else kind for j, kind in enumerate(asked)]
        first = choice.selection.chosen  # and hardly fewer
        return fit_mixed(table, asked, request, None, weights, first, filling=filling)
    if not filling:
        return model
    held = hidden_folds(rows, weights)
    return replace(model, blend=fit_blend(model, entries.rows(held.kept), held, choice.laws))


def _out_of_order(
    model: MixedModel,
    rows: LatentRows,
    asked: Sequence[object],
    choice: ChosenLatents,
    request: CopulaRequest,
    weights: Host | None,
) -> list[int]:
    """Return the columns of words, of no kind asked for, that are better told without order."""
    return [
        j
        for i, (j, margin) in enumerate(model._ordered)
        if asked[j] is None
        and model.kinds.columns[j].in_words
        and is_out_of_order(model.factors, rows, i, margin.cuts, choice.scores, request, weights)
    ]


def _without_factors(kinds: TableKinds, entries: Entries, weights: Host | None) -> MixedModel:
    """Return the model of independent columns."""
    margins = fit_margins(kinds, entries, weights)
    shares = frequencies_of(margins)
    sizes = tuple(len(one) for one in shares)
    levels = sum(sizes)
    D = levels + sum(isinstance(one, Margin) and one.varies for one in margins)
    frequencies = np.concatenate([*shares, np.zeros(0)])
    factors = CopulaFactors(np.zeros((D, 0)), np.ones(D), np.zeros(levels), frequencies, sizes)
    n_rows = float(len(entries.low) if weights is None else weights.sum())
    return MixedModel(kinds, margins, factors, n_rows)
