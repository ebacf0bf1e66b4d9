"""Columns in units of their own spread: what `standardize=True` fits, and the way back.

A model that is fitted in these units answers in the user's: rows go inward before it sees them,
what it says of rows comes outward.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.data.frames import Host
from dualpca.data.missing import Columns, column_starts
from dualpca.data.moments import CONSTANT_SHARE, SMALLEST_TRACE
from dualpca.data.table import Chunk, ChunkedTable, InMemoryTable, Table
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
    if some is None:
        return None
    rows, weights = some
    values = backend.to_numpy(rows)
    if weights is None and len(values) >= LEAST_OBSERVED:
        variance, known = _complete_variances(values)
        if known is not None:
            return farthest_apart(variance, known)
    missing = np.isnan(values)
    with np.errstate(over="ignore", invalid="ignore"):
        if weights is None and not missing.any():
            variance = values.var(axis=0, dtype=np.float64)
        else:
            variance = backend.to_numpy(column_starts(rows, weights)[2])
    enough = len(values) - missing.sum(axis=0) >= LEAST_OBSERVED
    known = np.isfinite(variance) & (variance > 0) & enough
    return farthest_apart(variance, known)


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
    values = backend.to_numpy(some[0])
    with np.errstate(over="ignore", invalid="ignore"):
        _, mean, variance = map(backend.to_numpy, column_starts(*some))
    count = len(values) - np.isnan(values).sum(axis=0)
    known = np.isfinite(variance) & (variance > CONSTANT_SHARE * mean * mean)
    known &= count >= LEAST_OBSERVED
    if not _unlike(variance[known]):
        return False
    values, count = values[:, known], count[known]
    middle = np.sort(values, axis=0)[(count - 1) // 2, np.arange(count.size)]  # NaN is last
    rare = np.sum(values == middle, axis=0) > MOSTLY * count
    return _unlike(variance[known][~rare])


def _unlike(variance: Host) -> bool:
    return variance.size > 1 and bool(variance.max() > UNLIKE * variance.min())


def _some_rows(table: Table) -> tuple[Array, Array | None] | None:
    """Return rows to compare columns by, with their weights; None if none can be looked at."""
    if isinstance(table, InMemoryTable):
        return compared(table.rows, table.weights)
    first = table.first(_thinned) if isinstance(table, ChunkedTable) else None
    return None if first is None else compared(first.rows, first.weights)


def _complete_variances(values: Host) -> tuple[Host, Host | None]:
    """Return variances and which columns vary, or None for the latter if numbers are not finite."""
    n = len(values)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.dot(np.full(n, 1 / n), values)
        C = values - mean
        variance = np.einsum("ij,ij->j", C, C) / n
        if not np.isfinite(variance.sum()):
            return variance, None
        return variance, variance > CONSTANT_SHARE * mean * mean


def _thinned(chunk: Chunk) -> Chunk:
    """Return a chunk with the rows that are compared."""
    rows, weights = compared(chunk.rows, chunk.weights)
    return chunk._replace(rows=rows, weights=weights)


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
