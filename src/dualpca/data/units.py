"""Columns in units of their own spread: what `standardize=True` fits, and the way back.

A model that is fitted in these units answers in the user's: rows go inward before it sees them,
what it says of rows comes outward. PCA scales its operator instead (`operators.Frame`): sparse rows
stay sparse, and the moments of chunks merge before anybody knows the units.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.data.base import Chunk, ChunkedTable, Table
from dualpca.data.frames import Host
from dualpca.data.moments import CONSTANT_SHARE, SMALLEST_TRACE, Columns
from dualpca.data.table import InMemoryTable
from dualpca.errors import ScaleError

CONSTANT = 8.0
"""A column whose deviation is below this many machine epsilons of its mean counts as constant."""

LARGEST_RATIO = 1e4
"""Of the variances of two columns, beyond which one of them decides a model alone."""

UNLIKE = 100.0
"""Of the variances of two columns, from which they count as of different units."""

MOSTLY = 0.5
"""Share of one value in a column above which its variance says how rare the others are."""

ENTRIES_COMPARED = 2**13
"""Numbers of a table that are read to compare its columns: some ten microseconds."""

LEAST_ROWS_COMPARED = 64

LEAST_OBSERVED = 5
"""Values of a column that make its variance one to be compared: that of three may be anything."""


@dataclass(frozen=True)
class Units:
    """Origin and unit of every column: x = mean + scale · (standardised x).

    Parameters
    ----------
    mean : array of shape (d,)
        Of the observed entries, in float64.
    scale : array of shape (d,)
        Their standard deviation (divisor n), 1 for a constant column.
    log_volume : float
        Σ ln scale over the observed entries of the training rows: what their log-likelihood
        changes by.
    weight : float
        Of the training rows.

    Examples
    --------
    >>> units = Units.of(InMemoryTable(np.array([[1.0, 10.0], [3.0, np.nan], [2.0, 30.0]])))
    >>> units.mean, units.scale.round(3)
    (array([ 2., 20.]), array([ 0.816, 10.   ]))
    >>> units.outward(units.inward(np.array([[3.0, 40.0]])))
    array([[ 3., 40.]])
    """

    mean: Annotated[Array, "d"]
    scale: Annotated[Array, "d", "> 0"]
    log_volume: float = 0.0
    weight: Annotated[float, ">= 0"] = 0.0

    @classmethod
    def of(cls, table: Table) -> Units:
        """Return the units of a table, from its observed entries and weights; one pass."""
        columns: Columns = table.reduce(Columns.of, Columns.merge)
        xp, variance = backend.namespace(columns.variance), columns.variance
        if not backend.all_finite(variance):
            raise ScaleError(
                "X is too large: the variance of a column overflows float64. Divide X by a "
                "constant first."
            )
        if bool(xp.any((variance > 0) & (variance < SMALLEST_TRACE))):
            raise ScaleError(
                "X varies too little: the variance of a column underflows float64. Multiply X by "
                "a constant first."
            )
        deviation = xp.sqrt(variance)
        eps = float(xp.finfo(table.like.dtype).eps)
        varies = deviation > CONSTANT * eps * xp.abs(columns.mean)
        scale = xp.where(varies, deviation, xp.ones_like(deviation))
        log_volume = float(xp.sum(columns.n * xp.log(scale)))
        return cls(columns.mean, scale, log_volume, float(columns.weight))

    def of_columns(self, index: Host) -> Units:
        """Return the units of the columns with these numbers."""
        return replace(
            self, mean=backend.take(self.mean, index), scale=backend.take(self.scale, index)
        )

    def reopened(self) -> Units:
        """Return the same units, of no training rows yet."""
        return replace(self, log_volume=0.0, weight=0.0)

    def seeing(self, rows: Array, weights: Array | None) -> Units:
        """Return the same units after more training rows."""
        columns = Columns.of(rows, weights)
        scale = self._beside(rows)[1]
        more = float(backend.namespace(scale).sum(columns.n * backend.namespace(scale).log(scale)))
        total = self.weight + float(columns.weight)
        return replace(self, log_volume=self.log_volume + more, weight=total)

    def _beside(self, like: Array) -> tuple[Array, Array]:
        """Return mean and scale in the library and on the device of an array, in float64."""
        if backend.describe(self.mean) == backend.describe(like):
            return self.mean, self.scale
        mean, scale = (backend.to_numpy(values) for values in (self.mean, self.scale))
        return backend.asarray(mean, like), backend.asarray(scale, like)

    # --- rows --------------------------------------------------------------------------------

    def inward(self, rows: Array) -> Array:
        """Return rows in these units, (n, d), in their own dtype; NaN stays NaN."""
        mean, scale = self._beside(rows)
        return backend.cast_like((backend.working(rows) - mean) / scale, rows)

    def table(self, table: Table) -> Table:
        """Return a table in these units: rows in memory once, chunks in every pass."""
        found: Table
        if isinstance(table, InMemoryTable):
            found = InMemoryTable(self.inward(table.rows), table.weights, table.names)
        elif isinstance(table, ChunkedTable):
            mean, scale = backend.to_numpy(self.mean), backend.to_numpy(self.scale)
            found = table.seen(replace(self, mean=mean, scale=scale).inward)
        else:
            raise TypeError(f"a table in memory or in chunks is needed, got {type(table)}")
        found.units = self
        return found

    def log_densities(self, rows: Array) -> Array:
        """Return Σ ln scale over what every row observed, (n,): less that is its log-density."""
        xp, scale = backend.namespace(rows), self._beside(rows)[1]
        return xp.astype(~xp.isnan(rows), xp.float64) @ xp.log(scale)

    # --- what a model says of rows -----------------------------------------------------------

    def outward(self, rows: Array) -> Array:
        """Return rows, or means of rows, (…, d), in the units of the user."""
        mean, scale = self._beside(rows)
        return backend.cast_like(mean + scale * backend.working(rows), rows)

    def filled(self, rows: Array, given: Array) -> Array:
        """Return completed rows (…, n, d) outward; what was given stays, to the last bit."""
        xp, found = backend.namespace(rows), self.outward(rows)
        return xp.where(xp.isnan(given), found, xp.astype(given, found.dtype))

    def spread(self, deviations: Array) -> Array:
        """Return standard deviations, (…, d), in the units of the user."""
        scale = self._beside(deviations)[1]
        return backend.cast_like(scale * backend.working(deviations), deviations)

    def variances(self, values: Array) -> Array:
        """Return variances, (…, d), in the units of the user."""
        return self.spread(self.spread(values))

    def loadings(self, W: Array) -> Array:
        """Return loadings, (…, d, q), in the units of the user."""
        scale = self._beside(W)[1][:, None]
        return backend.cast_like(scale * backend.working(W), W)

    def covariance(self, C: Array) -> Array:
        """Return covariances, (…, d, d), in the units of the user."""
        scale = self._beside(C)[1]
        return backend.cast_like(backend.working(C) * scale[:, None] * scale, C)

    def precision(self, P: Array) -> Array:
        """Return inverse covariances, (…, d, d), in the units of the user."""
        scale = self._beside(P)[1]
        return backend.cast_like(backend.working(P) / scale[:, None] / scale, P)

    def loglikelihood(self, value: float) -> float:
        """Return the log-likelihood of the training rows in the units of the user."""
        return value - self.log_volume

    def loglikelihood_per_row(self, value: float) -> float:
        """Return the log-likelihood of the training rows, per row, in the units of the user."""
        return value - self.log_volume / self.weight if self.weight else value


def most_unequal(table: Table) -> tuple[int, int, float] | None:
    """Return the columns of largest and smallest positive variance, and the ratio, if it is large.

    Some thousand entries are compared, of rows at equal distances, or of the first chunk. A column
    that does not vary among them, as a pixel that is dark in all images but one, is left out: its
    variance is small because its events are rare, not because of its units.

    Examples
    --------
    >>> most_unequal(InMemoryTable(np.arange(5.0)[:, None] * [1.0, 0.0, 2000.0]))
    (2, 0, 4000000.0)
    """
    if isinstance(table, InMemoryTable):
        if int(table.rows.shape[0]) >= LEAST_OBSERVED and table.moments is not None:
            n, mean, scatter = vars(table.moments).values()
            variance = scatter.diagonal() / n
            found = farthest_apart(variance, variance > CONSTANT_SHARE * mean * mean)
            if found is None or step_of(table.rows) == 1:  # all rows would be compared
                return found
    some = _some_rows(table)
    if some is None or len(some[0]) < LEAST_OBSERVED:
        return None
    moments = _Observed.of(*some)
    return farthest_apart(moments.variance, moments.varies & (moments.n >= LEAST_OBSERVED))


def constant_columns(table: Table) -> list[int]:
    """Return the columns that have one value in every row that observes them; O(nd), one pass.

    None of sparse rows, of items other than numbers, and of columns that no row observes.

    Examples
    --------
    >>> constant_columns(InMemoryTable(np.array([[1.0, 2.0, np.nan], [1.0, 3.0, 5.0]])))
    [0, 2]
    """
    ends: Host | None = table.reduce(_ends, _wider)
    return [] if ends is None else np.flatnonzero(ends[0] == ends[1]).tolist()


def _ends(rows: Array, weights: Array | None = None) -> Host | None:
    """Return the least and the largest entry of each column of numbers, (2, d)."""
    if backend.is_sparse(rows) or backend.is_sparse_tensor(rows):
        return None
    values: Host = backend.to_numpy(rows)
    if values.ndim != 2 or values.dtype.kind not in "fiu" or not len(values):
        return None
    return np.stack([np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)])


def _wider(one: Host, other: Host) -> Host:
    """Return the ends of two chunks together."""
    return np.stack([np.fmin(one[0], other[0]), np.fmax(one[1], other[1])])


def have_unlike_units(table: Table) -> bool:
    """Return True if the variances of two columns differ as those of different units do.

    The entries are those of `most_unequal`. Columns that mostly hold one value, as pixels at the
    edge of an image, are left out: how much they vary is a matter of events, not of units.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> have_unlike_units(InMemoryTable(X)), have_unlike_units(InMemoryTable(X * [1, 1, 20]))
    (False, True)
    """
    some = _some_rows(table)
    if some is None:
        return False
    values, moments = some[0], _Observed.of(*some)
    variance, known = moments.variance, moments.varies & (moments.n >= LEAST_OBSERVED)
    if not _unlike(variance[known]):
        return False
    values, count = values[:, known], moments.n[known]
    middle = np.sort(values, axis=0)[(count - 1) // 2, np.arange(count.size)]  # NaN is last
    rare = np.sum(values == middle, axis=0) > MOSTLY * count
    return _unlike(variance[known][~rare])


def _unlike(variance: Host) -> bool:
    return variance.size > 1 and bool(variance.max() > UNLIKE * variance.min())


def _some_rows(table: Table) -> tuple[Host, Host | None] | None:
    """Return rows to compare columns by, with their weights; None if none can be looked at."""
    if isinstance(table, InMemoryTable):
        rows, weights = compared(table.rows, table.weights)
        return backend.to_numpy(rows), None if weights is None else backend.to_numpy(weights)
    if not isinstance(table, ChunkedTable):
        return None
    if table.by_columns is not None:  # the first of them
        first = table.by_columns.first(_thinned_columns)
        weights = table.by_columns.row_weights
        return None if first is None else compared(first.rows.T, weights)
    first = table.first(_thinned)
    return None if first is None else (first.rows, first.weights)


def _thinned(chunk: Chunk) -> Chunk:
    """Return a chunk with the rows that are compared."""
    rows, weights = compared(chunk.rows, chunk.weights)
    return chunk._replace(rows=rows, weights=weights)


def _thinned_columns(chunk: Chunk) -> Chunk:
    """Return a chunk of columns with some of them."""
    return chunk._replace(rows=chunk.rows[: ENTRIES_COMPARED // LEAST_ROWS_COMPARED])


class _Observed(NamedTuple):
    """What some rows say of every column, (d,) each."""

    n: Host  # values that are there
    variance: Host  # 0 where it is none to be compared
    varies: Host  # True if that is more than rounding
    skewness: Host  # the third standardised moment, 0 for columns that do not vary

    @classmethod
    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def of(cls, X: Host, weights: Host | None = None) -> _Observed:
        """Return the moments of what was observed, of finite numbers and rows that count."""
        w = np.ones(len(X)) if weights is None else weights
        count, total = np.full(X.shape[1], len(X)), w.sum()
        mean = np.dot(w, X) / total
        C = X - mean
        if not np.isfinite(mean).all():
            seen = np.isfinite(X)
            count, total = seen.sum(axis=0), np.dot(w, seen)
            mean = np.dot(w, np.where(seen, X, 0.0)) / total
            C = np.where(seen, X - mean, 0.0)
        squares = C * C
        variance = np.dot(w, squares) / total
        skewness = np.dot(w, squares * C) / total / variance**1.5
        varies = np.isfinite(variance) & (variance > CONSTANT_SHARE * mean * mean)
        known = varies & np.isfinite(skewness)
        return cls(count, np.where(varies, variance, 0.0), varies, np.where(known, skewness, 0.0))


def compared(rows: Array, weights: Array | None) -> tuple[Array, Array | None]:
    """Return rows at equal distances, some thousand entries, and their weights."""
    step = step_of(rows)
    return rows[::step, :], None if weights is None else weights[::step]


def step_of(rows: Array) -> int:
    """Return the distance of rows that are compared, for some thousand entries."""
    most = max(LEAST_ROWS_COMPARED, ENTRIES_COMPARED // max(1, int(rows.shape[1])))
    return max(1, -(-int(rows.shape[0]) // most))


def farthest_apart(variance: Host, known: Host) -> tuple[int, int, float] | None:
    """Return the columns of largest and smallest known variance, and the ratio, if it is large."""
    every = known.all()
    if every and variance.max() <= LARGEST_RATIO * variance.min():
        return None
    if not every and not known.any():
        return None
    large = int(np.argmax(np.where(known, variance, -np.inf)))
    small = int(np.argmin(np.where(known, variance, np.inf)))
    ratio = float(variance[large]) / float(variance[small])
    return (large, small, ratio) if ratio > LARGEST_RATIO else None


# --- Skewed columns: values that pile up at one end, as prices, counts and sizes do ---------------

HIGHLY_SKEWED, SKEWED, LONG_TAILED = 1.0, 1.5, 3.0
"""Skewness from which ranks fill gaps better, a normal law visibly fails, and a few values decide.

2 is that of an exponential law, 1.8 and 6.2 those of log-normal ones with σ = 1/2 and 1. The first
was settled by filling gaps in thirteen public tables, on twelve of which the copula was better.
"""

DEVIATIONS, FEWEST = 3.0, 20
"""A skewness counts beyond so many standard errors, √(6/n), and from so many values on."""

ENDS, LEAST_TILT = (0.05, 0.95), 0.25
"""How far the middle is from halfway between these quantiles, in halves of their distance.

So a few wrong values make no column skewed: they change its moments, not its quantiles.
"""

ENTRIES_LOOKED_AT = 2**16
"""Numbers of a table that are looked at: of rows at equal distances."""

LEAST_VARIANCE = 0.1
"""Of the average variance, below which a column hardly counts in a model."""


MOST_RANKED = 256
"""Columns of numbers up to which skewed ones choose the copula: its cost rises fast with them."""


class Skewed(NamedTuple):
    """Columns that are visibly skewed."""

    columns: Host  # numbers of columns, in order
    skewness: Host  # the third standardised moment of each


NOT_SKEWED = Skewed(np.zeros(0, dtype=np.int64), np.zeros(0))


def skewed_columns(table: Table, least: float = SKEWED, *, least_variance: float = 0.0) -> Skewed:
    """Return the columns that are visibly skewed, by their moments and by their quantiles.

    Columns that mostly hold one value, as zeros and ones or pixels at the edge of an image, are
    left out. Nothing is said of chunked or sparse tables. One pass over at most 65,536 entries, and
    a sort of columns whose moments are those of skewed ones.

    Parameters
    ----------
    table : Table
    least : float
        Of the absolute skewness.
    least_variance : float
        Share of the average variance below which a column is left out.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(200, 3))
    >>> found = skewed_columns(InMemoryTable(np.column_stack([z, np.exp(z[:, 0])])))
    >>> found.columns, found.skewness.round(1)
    (array([3]), array([5.4]))
    """
    if not isinstance(table, InMemoryTable) or backend.is_sparse(table.rows):
        return NOT_SKEWED
    n, d = (int(size) for size in table.rows.shape)
    step = max(1, n // max(LEAST_ROWS_COMPARED, ENTRIES_LOOKED_AT // max(d, 1)))
    X = np.asarray(backend.to_numpy(table.rows[::step, :]), dtype=np.float64)
    if table.weights is not None:
        X = X[backend.to_numpy(table.weights[::step]) > 0]
    if len(X) < FEWEST:
        return NOT_SKEWED
    count, variance, _, skewness = _Observed.of(X)
    limits = np.maximum(least, DEVIATIONS * np.sqrt(6 / np.maximum(count, 1)))
    found = (np.abs(skewness) > limits) & (count >= FEWEST)
    found &= variance >= least_variance * variance.mean()
    which = [j for j in np.flatnonzero(found) if _is_tilted(X[:, j], float(skewness[j]))]
    return Skewed(np.array(which, dtype=np.int64), skewness[which])


def _is_tilted(x: Host, skewness: float) -> bool:
    """Return True if quantiles say the same as a skewness, and no value is most of them."""
    x = np.sort(x[np.isfinite(x)])
    low, middle, high = x[(np.array([ENDS[0], 0.5, ENDS[1]]) * (x.size - 1)).round().astype(int)]
    tilt = (low + high - 2 * middle) * np.sign(skewness)
    return bool(tilt > LEAST_TILT * (high - low) and np.mean(x == middle) <= MOSTLY)
