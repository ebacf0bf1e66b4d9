"""Tables with NaN before any model: what is missing, and what every feature observed.

X is read in blocks of rows; only `observed_part` copies it whole.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.data.frames import Host
from dualpca.data.moments import Moments, block_weights, refuse_nonfinite


def patterns(missing: Host) -> tuple[Host, Host]:
    """Return one row of every pattern of NaN, (p,), and the pattern of every row, (n,).

    Examples
    --------
    >>> patterns(np.array([[True, False], [False, False], [True, False]]))
    (array([1, 0]), array([1, 0, 1]))
    """
    bits = np.ascontiguousarray(np.packbits(missing, axis=1))
    codes = bits.view(np.dtype((np.void, bits.shape[1])))[:, 0]
    _, first, pattern = np.unique(codes, return_index=True, return_inverse=True)
    return first, pattern


def has_missing(X: Array) -> bool:
    """Return True if some entry is NaN; reads X once, in blocks."""
    if isinstance(X, np.ndarray) and backend.sum_is_finite(X):
        return False
    xp = backend.namespace(X)
    return any(bool(xp.any(xp.isnan(X[rows, :]))) for rows in backend.row_slices(X))


def observed_part(X: Array) -> Array:
    """Return X with 0 for NaN: a copy in which only infinity is left to find."""
    xp = backend.namespace(X)
    return xp.where(xp.isnan(X), xp.zeros_like(X), X)


def observed_weights(X: Array, weights: Array | None) -> Array | None:
    """Return the weights, with 0 for rows without observed entries: they carry no information.

    Examples
    --------
    >>> observed_weights(np.array([[np.nan, np.nan], [np.nan, 1.0]]), np.array([2.0, 3.0]))
    array([0., 3.])
    """
    xp = backend.namespace(X)
    if not bool(xp.any(xp.isnan(X[:, 0]))):  # no row can be empty
        return weights
    blank = [xp.all(xp.isnan(X[rows, :]), axis=1) for rows in backend.row_slices(X)]
    empty, w = xp.concat(blank, axis=0), block_weights(weights, slice(None), X)
    return xp.where(empty, xp.zeros_like(w), w) if bool(xp.any(empty)) else weights


def refuse_infinite(X: Array) -> None:
    """Raise if an entry is infinite; NaN may pass."""
    xp = backend.namespace(X)
    if any(bool(xp.any(xp.isinf(X[rows, :]))) for rows in backend.row_slices(X)):
        refuse_nonfinite(observed_part(X))


@np.errstate(over="ignore", invalid="ignore")  # callers check the variance
def column_starts(X: Array, weights: Array | None) -> tuple[Array, Array, Array]:
    """Return each feature's observed weight, mean and variance, (d,) each, in one pass.

    Blocks are merged by their own means (Chan, Golub & LeVeque 1983): neither a mean far from zero
    nor an outlier that hardly counts takes digits from the variance.
    """
    xp, origin = backend.namespace(X), _first_observed(X, weights)

    def block(rows: slice) -> tuple[Array, ...]:
        C = backend.row_block(X, rows)
        w = block_weights(weights, rows, C)
        seen = ~xp.isnan(C) & (w > 0)[:, None]
        n = w @ xp.astype(seen, xp.float64)
        R = xp.where(seen, C - origin, xp.zeros_like(C))
        mean = (w @ R) / _zero_as_one(n)
        R = xp.where(seen, R - mean, R)
        return n, mean, (w @ (R * R)) / _zero_as_one(n)

    n, mean, variance = reduce(_merged, map(block, backend.row_slices(X)))
    return n, origin + mean, variance


def _merged(a: tuple[Array, ...], b: tuple[Array, ...]) -> tuple[Array, ...]:
    """Return weights, means and variances of two disjoint sets of rows together."""
    (n, mean, variance), (other, theirs, spread) = a, b
    xp, total = backend.namespace(n), n + other
    p, q = n / _zero_as_one(total), other / _zero_as_one(total)
    delta = theirs - mean
    # a feature not observed on one side has no mean there: the other's is used as it is
    between = xp.where((n > 0) & (other > 0), p * q * delta * delta, xp.zeros_like(n))
    mean = xp.where(n > 0, xp.where(other > 0, mean + delta * q, mean), theirs)
    return total, mean, p * variance + q * spread + between


def _zero_as_one(n: Array) -> Array:
    """Return weights, with 1 in place of 0: what is divided by them is 0 there."""
    xp = backend.namespace(n)
    return xp.where(n > 0, n, xp.ones_like(n))


def _first_observed(X: Array, weights: Array | None) -> Array:
    """Return the first observed value of every feature in a row that counts, 0 without one."""
    found = np.full(X.shape[1], np.nan)
    for rows in backend.slices(int(X.shape[0]), backend.block_rows(int(X.shape[1]))):
        if not np.isnan(found).any():
            break
        C = backend.to_numpy(backend.row_block(X, rows))
        seen = ~np.isnan(C)
        if weights is not None:
            seen &= (backend.to_numpy(weights[rows]) > 0)[:, None]
        here = np.where(seen.any(axis=0), C[np.argmax(seen, axis=0), np.arange(C.shape[1])], np.nan)
        found = np.where(np.isnan(found), here, found)
    return backend.asarray(np.nan_to_num(found), X)


class Columns(NamedTuple):
    """What is known of every feature before EM: sums over the rows that observe it."""

    n: Array  # (d,), number (weight) of them
    mean: Array  # (d,)
    variance: Array  # (d,)
    rows: int
    used: int  # rows that observe something, and weigh something
    weight: float  # theirs

    @classmethod
    def of(cls, rows: Array, weights: Array | None = None) -> Columns:
        """Read one chunk, of any array library; infinity is refused."""
        refuse_infinite(rows)
        w = block_weights(observed_weights(rows, weights), slice(None), rows)
        starts = column_starts(rows, weights)
        xp, count = backend.namespace(rows), int(rows.shape[0])
        return cls(*starts, count, int(xp.sum(xp.astype(w > 0, xp.int64))), float(xp.sum(w)))

    @classmethod
    def of_moments(cls, moments: Moments, rows: int, used: int) -> Columns:
        """Return what moments of complete rows, `used` of which have a weight, say of features."""
        xp, n, mean = backend.namespace(moments.mean), moments.n, moments.mean
        variance = xp.linalg.diagonal(moments.scatter) / n
        return cls(xp.full_like(mean, n), mean, variance, rows, used, n)

    @property
    def effective_rows(self) -> float:
        """The weight of all observed entries over the number of features."""
        return float(backend.namespace(self.n).mean(self.n))

    def merge(self, other: Columns) -> Columns:
        """Join two disjoint sets of rows (Chan, Golub & LeVeque 1983), feature by feature.

        Examples
        --------
        >>> a = Columns.of(np.array([[1.0, np.nan], [3.0, np.nan]]))
        >>> b = Columns.of(np.array([[5.0, 7.0]]))
        >>> a.merge(b).mean, a.merge(b).n
        (array([3., 7.]), array([2., 1.]))
        """
        counts = (a + b for a, b in zip(self[3:], other[3:], strict=True))
        return Columns(*_merged(self[:3], other[:3]), *counts)
