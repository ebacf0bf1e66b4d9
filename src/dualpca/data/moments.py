"""Weighted first and second moments of rows, in float64, and the checks that come with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import reduce
from operator import iadd
from threading import local
from typing import Annotated, Any, NamedTuple

import numpy as np

from dualpca.arrays import Array, algebra, backend, memory
from dualpca.data.frames import Host
from dualpca.errors import NonFiniteError, ScaleError

# --- Blocks of rows less a shift, in float64: what every sum over deviations begins with ---------

SHIFT_ENTRIES = 2**14
"""Numbers of the repeated shift."""


class Centring:
    """Rows less a shift, dense, a block at a time; O(bd) a block.

    NumPy subtracts a few numbers from every row slower than as many from many rows: so the shift
    is repeated. Every thread has one place for its blocks, which the next block overwrites: fresh
    memory costs as much again. Blocks of other libraries have memory of their own.

    Parameters
    ----------
    X : array of shape (n, d)
    shift : array of shape (d,)
        float64.
    rows : int
        The most that a block may have.
    dtype : type
        float64, unless `single_will_do`.

    Examples
    --------
    >>> X = np.arange(6, dtype=np.float32).reshape(3, 2)
    >>> Centring(X, np.array([2.0, 3.0]), rows=2)(slice(1, 3))
    array([[0., 0.],
           [2., 2.]])
    """

    def __init__(self, X: Array, shift: Array, rows: int, dtype: Any = np.float64) -> None:
        self.X, self.shift, self.rows, self.dtype = X, shift, rows, dtype
        self.own = local()
        if not backend.is_foreign(X):
            times = min(rows, max(1, SHIFT_ENTRIES // max(X.shape[1], 1)))
            self.shifts = np.tile(shift.astype(dtype), (times, 1))  # (k, d)

    def __call__(self, rows: slice) -> Array:
        """Return a block."""
        if backend.is_foreign(self.X):
            return backend.row_block(self.X, rows) - self.shift
        if not hasattr(self.own, "room"):
            self.own.room = np.empty((self.rows, self.X.shape[1]), dtype=self.dtype)
        given, C = self.X[rows, :], self.own.room[: rows.stop - rows.start]
        if given.dtype != self.dtype or not given.flags.c_contiguous:
            np.copyto(C, given)
            given = C
        k, d = self.shifts.shape
        whole = len(C) - len(C) % k
        many = C[:whole].reshape(-1, k, d)
        np.subtract(given[:whole].reshape(-1, k, d), self.shifts, out=many)
        np.subtract(given[whole:], self.shifts[: len(C) - whole], out=C[whole:])
        return C


# --- Weighted first and second moments, gathered block by block and merged exactly ---------------

HEAD = 1024
"""Rows whose mean is the provisional one."""
AT_ONCE = 2**19
"""Entries of a table up to which Python's calls take as long as the sums."""
NARROW, NARROW_AT_ONCE = 100, 2**22
"""Features of a narrow table, and entries of one up to which a thread is as fast as several."""
AT_A_TIME = 2**16
"""Entries of a block of a small table: half a megabyte, which stays near the processor."""
CONSTANT_SHARE = (64 * backend.EPS) ** 2
"""Variance of a column beside its squared mean that may be rounding error of the mean."""
SMALLEST_TRACE = 1e-290
"""Total variance below which squares of the deviations have underflowed."""
SINGLE_WIDTH, SINGLE_RATIO = 64, 32
"""Of float32 rows: columns, and rows a column, from which products in float32 are considered."""
SAMPLE_SHARE, SAMPLE_PER_PAIR, SAMPLE_RATIO = 0.5, 4, 4
"""Rows a column in the sample that decides; rows for every pair asked for, and rows a column where
so few are not enough."""
SINGLE_TIMES, SINGLE_BLOCKS = 4, 16
"""How many times larger blocks are in float32, if so many of them are left."""
SINGLE_LEAST, SINGLE_RANGE = 1e-2, 1e16
"""Share of the largest eigenvalue that the last one must have, and largest mean square of a column
(the smallest is one over it), for them to be used."""
GPU_AT_ONCE, GPU_DOUBLE = 2.0**26, 1e10
"""Entries, and multiply-adds, up to which a GPU copies rows in float64 and multiplies them."""
FAR_MEAN = 1e3
"""Squared mean of a column beside its variance from which deviations are formed before they are
squared: squares of the entries themselves would lose three digits of sixteen."""
DENSE_ENTRIES = 2**27
"""Entries of a block of sparse rows on a GPU that is made dense: half a gigabyte."""
SAFE_SHARE = 0.2
"""Share of Σ‖x‖² that deviations must hold for their sum to be a difference without loss."""


@dataclass(frozen=True)
class Moments:
    """Size, mean and scatter of weighted rows: scatter = Σ w (x − mean)(x − mean)ᵀ.

    Parameters
    ----------
    n : float
        Sum of the weights, the effective number of rows.
    mean : array of shape (d,)
    scatter : array of shape (d, d)

    Examples
    --------
    >>> import numpy as np
    >>> a = Moments.of(np.array([[0.0, 1.0], [2.0, 1.0]]))
    >>> b = Moments.of(np.array([[4.0, 4.0]]))
    >>> a.merge(b).mean
    array([2., 2.])
    """

    n: Annotated[float, ">= 0"]
    mean: Annotated[Array, "p"]
    scatter: Annotated[Array, "p p", "diagonal >= 0"]

    @classmethod
    def of(
        cls,
        X: Array,
        weights: Array | None = None,
        *,
        center: bool = True,
        single: bool = False,
    ) -> Moments:
        """Gather the moments of X in one pass, O(nd²), one block of rows in memory at a time.

        Sums run in float64 around a provisional mean, so neither float32 rows nor a mean far from
        zero costs accuracy; one rank-one correction at the end makes the centring exact. With
        `single`, blocks of float32 rows are multiplied in float32: see `single_will_do`.
        """
        return cls(*_second_moments(X, weights, center, full=True, single=single))

    def __sizeof__(self) -> int:
        """Return its bytes, arrays included: Dask asks before it moves one."""
        return sum(int(getattr(part, "nbytes", 32)) for part in vars(self).values())

    def merge(self, other: Moments) -> Moments:
        """Join the moments of two disjoint sets of rows (Chan, Golub & LeVeque 1983)."""
        xp, n = backend.namespace(self.scatter), self.n + other.n
        with np.errstate(over="ignore", invalid="ignore"):
            delta = other.mean - self.mean
            mean = self.mean + delta * (other.n / n)
            between = (delta * (self.n * other.n / n))[:, None] * delta[None, :]
            scatter = self.scatter + other.scatter + between
            trace = float(xp.sum(xp.linalg.diagonal(scatter)))
        if not np.isfinite(trace):
            raise ScaleError(
                "chunks of X lie too far apart: their variance together overflows float64. "
                "Divide X by a constant first."
            )
        return Moments(n, mean, scatter)


def condensed(moments: Moments) -> tuple[Array, Array]:
    """Return 2d rows and their weights with the moments given: models of moments see no difference.

    Rows μ ± √(d/n) √λ_k u_k for the eigenpairs of the scatter, of weight n/2d each; features are
    brought to one unit first, so that none is lost beside a larger one.

    Examples
    --------
    >>> import numpy as np
    >>> given = Moments.of(np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 4.0], [1.0, 7.0]]))
    >>> found = Moments.of(*condensed(given))
    >>> bool(np.allclose(found.scatter, given.scatter)), found.n, found.mean
    (True, 4.0, array([1.75, 3.25]))
    """
    xp, d = backend.namespace(moments.mean), int(moments.mean.shape[0])
    unit = xp.sqrt(xp.linalg.diagonal(moments.scatter) / moments.n)
    unit = xp.where(unit > 0, unit, xp.ones_like(unit))
    values, vectors = xp.linalg.eigh(moments.scatter / unit[:, None] / unit[None, :])
    least = d * float(xp.finfo(values.dtype).eps) * xp.max(values)
    root = xp.sqrt(xp.where(values > least, values, xp.zeros_like(values)) * (d / moments.n))
    off = (vectors * root).T * unit
    rows = moments.mean + xp.concat([off, -off], axis=0)
    return rows, backend.asarray(np.full(2 * d, moments.n / (2 * d)), rows)


def _second_moments(
    X: Array, weights: Array | None, center: bool, *, full: bool, single: bool = False
) -> tuple[float, Array, Array]:
    """Return Σw, the mean and Σw(x − mean)(x − mean)ᵀ, or its diagonal alone; one pass."""
    if full and center and weights is None and backend.is_plain(X):
        found = _small_moments(X)
        if found is not None:
            return found
    return _any_moments(X, weights, center, full=full, single=single)


def _any_moments(
    X: Array, weights: Array | None, center: bool, *, full: bool, single: bool = False
) -> tuple[float, Array, Array]:
    """Return the same, of tables of any size and library."""
    shift = provisional_mean(X) if center else backend.asarray(np.zeros(X.shape[1]), X)
    xp, found = backend.namespace(X), None
    with np.errstate(over="ignore", invalid="ignore"):
        if single:
            shift = backend.working(backend.in_single(shift))
        if full and backend.on_cuda(X):
            found = _gpu_sums(X, weights, shift, single and center)
        elif single:
            found = _sums(X, weights, shift, full, np.float32)
            found = found if np.isfinite(found[2]).all() else None
        n, total, second = _sums(X, weights, shift, full) if found is None else found
        mean = shift
        if center:
            step = total / n  # total² can underflow
            mean = shift + step
            second -= total[:, None] * step[None, :] if full else total * step
    if full:
        squares = xp.linalg.diagonal(second)
    else:
        squares = second = xp.where(second < 0, xp.zeros_like(second), second)
    check_trace(X, float(xp.sum(squares)), mean, weights)
    return n, mean, second


def _small_moments(X: Array) -> tuple[float, Array, Array] | None:
    """Return size, mean and scatter of a small table; None for others, and where care is needed.

    With `_sums` alone, `PCA.fit` takes 1.8 times as long for 150 × 4 and 1.25 times for 5000 × 50.
    """
    narrow = X.shape[1] <= NARROW
    if X.size > (NARROW_AT_ONCE if narrow else AT_ONCE):
        return None
    apart = narrow and X.size > backend.BLAS_ALONE_VECTOR
    with backend.threads_outside(X) if apart else nullcontext():
        return _moments_at_once(X)


def _moments_at_once(X: Array) -> tuple[float, Array, Array] | None:
    """Return size, mean and scatter of a small table with few calls, or None where care is needed.

    That is where a column is constant but for its last digits, or a number is not finite or leaves
    the range of squares. A column that is constant has deviations of exactly 0, as in `_sums`.
    """
    n, d = X.shape
    rows = min(n, max(AT_A_TIME // d, 4 * d))
    ones, room = np.ones(rows), np.empty((rows, d))
    with np.errstate(over="ignore", invalid="ignore"):
        shift = np.dot(ones, backend.working(X[:rows])) / rows
        # a whole block of shifts: NumPy subtracts a few numbers from every row far slower
        shifts = shift if n < 2 * rows else np.tile(shift, (rows, 1))
        C = np.subtract(X[:rows], shifts, out=room)
        total, scatter = np.dot(ones, C), np.dot(C.T, C)
        for k in range(rows, n, rows):
            part = X[k : k + rows]
            if len(part) < rows:
                ones, room = ones[: len(part)], room[: len(part)]
                shifts = shifts[: len(part)] if shifts.ndim == 2 else shift
            C = np.subtract(part, shifts, out=room)
            total += np.dot(ones, C)
            scatter += np.dot(C.T, C)
        step = total / n
        mean = shift + step
        scatter -= np.multiply.outer(total, step)
        squares = scatter.diagonal()
        still = np.flatnonzero(~(squares > (n * CONSTANT_SHARE) * mean * mean))
        if still.size:
            first = X[0, still]
            if not (X[:, still] == first).all():
                return None
            mean[still], scatter[still], scatter[:, still] = first, 0.0, 0.0
        trace = float(squares.sum())
    if not SMALLEST_TRACE <= trace < np.inf:
        return None
    return float(n), mean, scatter


def single_will_do(X: Array, rank: int) -> bool:
    """Return whether the `rank` leading eigenpairs may come from products of blocks in float32.

    Blocks of float32 rows are then multiplied as they are, and the products added in float64. What
    that rounds off is some 1e-8 of the largest eigenvalue: nothing, unless those asked for, or the
    sum of the others, are far smaller. A sample of the rows tells; O(d³).
    """
    n, d = X.shape
    if backend.is_foreign(X) or backend.is_sparse(X) or X.dtype != np.float32:
        return False
    if d < SINGLE_WIDTH or n < SINGLE_RATIO * d:
        return False
    rows = int(SAMPLE_SHARE * d)
    if rows < SAMPLE_PER_PAIR * rank:
        rows = SAMPLE_RATIO * d
    sample = X[:: n // rows]
    with np.errstate(over="ignore", invalid="ignore"):
        C = sample - sample.mean(axis=0)
        squares = np.square(C).mean(axis=0)
    if not (squares.min() > 1 / SINGLE_RANGE and squares.max() < SINGLE_RANGE):
        return False  # NaN too
    with backend.threads_outside(X):  # BLAS' own would wait for each other on busy cores
        values = np.linalg.eigvalsh(algebra.gram(C.T if len(C) < d else C))[::-1]
    # of few rows every eigenvalue has a share of those that follow: at most d/rows more
    least = SINGLE_LEAST * (1 + d / len(C))
    enough = values[min(rank, d) - 1] > least * values[0]
    return bool(enough and values[rank:].sum() > SINGLE_LEAST * values.sum())


def _sums(
    X: Array, weights: Array | None, shift: Array, full: bool, dtype: Any = np.float64
) -> tuple[float, Array, Array]:
    """Return Σw, Σw(x − shift) and Σw(x − shift)(x − shift)ᵀ, or its diagonal alone."""
    n, rows = int(X.shape[0]), min(X.shape[0], backend.block_rows(X.shape[1], X))
    if dtype is np.float32 and n >= SINGLE_BLOCKS * SINGLE_TIMES * rows:
        rows *= SINGLE_TIMES  # fewer products to add in float64
    size = float(n if weights is None else namespace_sum(weights))
    if backend.is_sparse(X):  # the shift is 0
        w = np.ones(n) if weights is None else np.asarray(weights)
        if full:
            second = algebra.gram(X if weights is None else X.multiply(np.sqrt(w)[:, None]))
        else:
            second = algebra.product(X.astype(np.float64).power(2).T, w)
        return size, algebra.product(X.T, w), second
    centred = Centring(X, shift, rows, dtype)
    ones = backend.asarray(np.ones(rows), X) if dtype is np.float64 else np.ones(rows, dtype)
    release = memory.releasing(X)

    def block(rows: slice) -> tuple[Array, ...]:
        memory.check_map(X)
        C = centred(rows)
        release(rows)
        w = ones[: C.shape[0]] if weights is None else weights[rows]
        total = backend.working(algebra.dot(w, C))
        if not full:
            C *= C
            return total, algebra.dot(w, C)
        if weights is not None:
            C *= backend.namespace(C).sqrt(w)[:, None]
        return total, backend.working(algebra.gram(C))

    def plus(a: tuple[Array, ...], b: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(map(iadd, a, b))

    total, second = backend.summed(block, plus, X, rows)
    return size, total, second


def _gpu_sums(
    X: Array, weights: Array | None, shift: Array, single: bool
) -> tuple[float, Array, Array] | None:
    """Return the same from one pass over rows on a GPU; None where that would lose digits.

    Small tables are centred first. Of large ones float32 rows are split and multiplied by a program
    of their own, float64 rows as they are, where their means are not large beside their deviations:
    1,000,000×500 take 5 and 10 ms, in blocks 17.
    """
    size, d = float(X.shape[0] if weights is None else namespace_sum(weights)), int(X.shape[1])
    if backend.is_sparse_tensor(X):
        found = _fused_blocks(X, weights, shift) if single else None
    elif weights is None and size * d <= GPU_AT_ONCE and size * d * d <= GPU_DOUBLE:
        C = backend.working(X) - shift
        found = backend.namespace(C).sum(C, axis=0), algebra.gram(C)
    elif single and algebra.can_fuse_scatter(X):
        sample = X[:: -(-int(X.shape[0]) // HEAD), :]
        found = algebra.fused_scatter(X, shift, weights, sample)
    else:
        found = _raw_sums(X, size, shift) if weights is None else None
    return None if found is None else (size, *found)


def _raw_sums(X: Array, size: float, shift: Array) -> tuple[Array, ...] | None:
    """Return the same of float64 rows that are multiplied as they are, if no mean is large."""
    xp = backend.namespace(X)
    if X.dtype != xp.float64:
        return None
    head = X[: min(HEAD, X.shape[0]), :] - shift
    if not bool(xp.all(shift * shift < FAR_MEAN * xp.mean(head * head, axis=0))):
        return None
    total, second = xp.sum(X, axis=0), algebra.gram(X)
    step = total - size * shift  # about the shift, as the others are
    second -= total[:, None] * shift[None, :] + shift[:, None] * step[None, :]
    raw = xp.linalg.diagonal(second) + size * shift * shift
    safe = xp.all(xp.linalg.diagonal(second) - step * step / size > raw / FAR_MEAN)
    return (step, second) if bool(safe) else None


def _fused_blocks(X: Array, weights: Array | None, shift: Array) -> tuple[Array, ...] | None:
    """Return Σw(x − shift) and Σw(x − shift)(x − shift)ᵀ of sparse rows on a GPU, or None.

    Blocks of rows are made dense and multiplied as dense rows are.
    """
    found: tuple[Array, ...] | None = None
    for rows in backend.slices(int(X.shape[0]), max(1, DENSE_ENTRIES // int(X.shape[1]))):
        C, w = backend.dense_rows(X, rows), None if weights is None else weights[rows]
        if not algebra.can_fuse_scatter(C):
            return None
        part = algebra.fused_scatter(C, shift, w, C[:: -(-int(C.shape[0]) // HEAD), :])
        if part is None:
            return None
        found = part if found is None else tuple(map(iadd, found, part))
    return found


def block_weights(weights: Array | None, rows: slice, C: Array) -> Array:
    """Return the weights of a block of rows, ones where there are none."""
    return backend.asarray(np.ones(C.shape[0]), C) if weights is None else weights[rows]


def total_moments(X: Array, weights: Array | None = None, *, center: bool = True) -> Totals:
    """Return Σw, the mean and Σw‖x − mean‖², from one read of X and no copy where that is safe.

    Where the mean is large beside the deviations, or rows are not float64, `column_moments` is
    used instead.
    """
    found = None
    if center and weights is None and backend.is_plain(X) and X.size <= AT_ONCE:
        found = _totals_at_once(X)
    elif weights is None and backend.is_sparse(X) and X.has_canonical_format:
        found = _sparse_totals(X, center)
    elif not _is_sparse(X) and X.dtype == backend.namespace(X).float64:
        found = _dense_totals(X, weights, center)
    if found is not None:
        return found
    n, mean, squares = column_moments(X, weights, center=center)
    return n, mean, float(namespace_sum(squares))


def _is_sparse(X: Array) -> bool:
    return backend.is_sparse(X) or backend.is_sparse_tensor(X)


Totals = tuple[float, Array, float]
"""Σw, the mean and Σw‖x − mean‖²."""


def _difference(n: float, mean: Array, raw: float) -> Totals | None:
    """Return the totals by subtraction from Σw‖x‖², None where that loses digits."""
    trace = raw - n * float(mean @ mean)
    safe = trace > SAFE_SHARE * raw and SMALLEST_TRACE <= trace < np.inf
    return (n, mean, trace) if safe else None


@np.errstate(over="ignore", invalid="ignore")
def _sparse_totals(X: Array, center: bool) -> Totals | None:
    n = float(X.shape[0])
    mean = algebra.product(X.T, np.ones(X.shape[0])) / n if center else np.zeros(X.shape[1])
    return _difference(n, mean, sum(float(np.vdot(part, part)) for part in _stored(X)))


@np.errstate(over="ignore", invalid="ignore")
def _dense_totals(X: Array, weights: Array | None, center: bool) -> Totals | None:
    xp, w = backend.namespace(X), block_weights(weights, slice(None), X)
    n = float(X.shape[0] if weights is None else namespace_sum(weights))

    def part(rows: slice) -> tuple[Array, Array]:
        C = X[rows, :]
        total = algebra.dot(w[rows], C)
        if weights is not None:
            C = C * xp.sqrt(w[rows])[:, None]
        flat = xp.reshape(C, (-1,))
        return total, algebra.dot(flat, flat)

    total, squares = backend.summed(part, lambda a, b: (a[0] + b[0], a[1] + b[1]), X)
    mean = total / n if center else backend.asarray(np.zeros(X.shape[1]), X)
    return _difference(n, mean, float(squares))


def _stored(X: Array) -> Iterator[Array]:
    """Yield the stored entries of sparse rows, float64, some at a time."""
    for part in backend.slices(X.data.size, AT_A_TIME):
        yield backend.working(X.data[part])


@np.errstate(over="ignore", invalid="ignore")
def _totals_at_once(X: Array) -> Totals | None:
    """Return the totals of a small table, or None where care is needed.

    With `column_moments`, `PCA.fit` takes 1.15 to 1.3 times as long for wide tables off the origin.
    """
    n, X = int(X.shape[0]), backend.working(X)
    ones = np.ones(n)
    mean = np.dot(ones, X) / n
    C = X - mean
    step = np.dot(ones, C) / n
    mean += step
    trace = float(np.vdot(C, C)) - n * float(step @ step)
    least = max(SMALLEST_TRACE, n * CONSTANT_SHARE * float(mean @ mean))
    return (float(n), mean, trace) if least < trace < np.inf else None


def column_moments(
    X: Array, weights: Array | None = None, *, center: bool = True
) -> tuple[float, Array, Array]:
    """Return Σw, the mean and Σw(x − mean)² of every column in one pass, O(nd)."""
    return _second_moments(X, weights, center, full=False)


def provisional_mean(X: Array) -> Array:
    """Return the mean of the first rows; the value itself where a column is constant there.

    The exception keeps constant columns exactly constant: their deviations are exact zeros.
    """
    if backend.is_sparse(X):
        return np.zeros(X.shape[1])
    xp = backend.namespace(X)
    head = backend.row_block(X, slice(0, min(HEAD, X.shape[0])))
    constant = xp.max(head, axis=0) == xp.min(head, axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        return xp.where(constant, head[0, :], xp.mean(head, axis=0))


def namespace_sum(x: Array) -> Any:
    """Return the sum of all entries of x."""
    return backend.namespace(x).sum(x)


def used_rows(X: Array, weights: Array | None) -> int:
    """Return the number of rows that count: those of positive weight."""
    return int(X.shape[0] if weights is None else (backend.to_numpy(weights) > 0).sum())


def check_trace(X: Array, trace: float, mean: Array, weights: Array | None = None) -> None:
    """Raise where the total variance is not a usable number, saying why.

    It may be none where rows differ, but only one of them has a weight.
    """
    if not np.isfinite(trace):
        refuse_nonfinite(X)
        raise ScaleError(
            "X is too large: its variance overflows float64. Divide X by a constant first "
            f"(the largest entry is {_largest_deviation(X, 0.0):.3g})."
        )
    if trace < SMALLEST_TRACE:
        largest = _largest_deviation(X, mean, weights)
        if largest > 4 * backend.EPS * float(np.max(np.abs(backend.to_numpy(mean)), initial=0.0)):
            raise ScaleError(
                "X varies too little: its variance underflows float64. Multiply X by a constant "
                f"first (the largest deviation from the mean is {largest:.3g})."
            )


def _largest_deviation(X: Array, mean: Array | float, weights: Array | None = None) -> float:
    """Return the largest |x − mean| of rows with a weight, block by block."""
    xp, X = backend.namespace(X), backend.rowwise(X)
    found = 0.0
    for rows in backend.row_slices(X):
        off = xp.max(xp.abs(backend.row_block(X, rows) - mean), axis=1)
        if weights is not None:
            off = xp.where(weights[rows] > 0, off, xp.zeros_like(off))
        found = max(found, float(xp.max(off)))
    return found


def refuse_nonfinite(X: Array, name: str = "X") -> None:
    """Raise if X holds NaN or infinity, naming the first place; O(nd), in blocks."""
    if backend.is_plain(X) and backend.sum_is_finite(X):
        return
    xp = backend.namespace(X)
    stored = X.values() if backend.is_sparse_tensor(X) else X
    if backend.is_foreign(X) and bool(xp.isfinite(xp.sum(stored))):  # then all entries are
        return
    X = backend.rowwise(X)
    for rows in backend.row_slices(X):
        block = backend.row_block(X, rows)
        bad = backend.to_numpy(~xp.isfinite(block))
        if bad.any():
            i, j = (int(k[0]) for k in np.nonzero(bad))
            value = float(block[i, j])
            what = "NaN" if np.isnan(value) else "infinity (inf)"
            raise NonFiniteError.at(name, what, rows.start + i, j)


# --- Rows with NaN: what is missing, and what every feature observed ------------------------------


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
    """Return X with 0 for NaN, a copy."""
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


def refuse_infinite(X: Array, name: str = "X") -> None:
    """Raise if an entry is infinite; NaN may pass."""
    xp = backend.namespace(X)
    if any(bool(xp.any(xp.isinf(X[rows, :]))) for rows in backend.row_slices(X)):
        refuse_nonfinite(observed_part(X), name)


@np.errstate(over="ignore", invalid="ignore")  # callers check the variance
def column_starts(X: Array, weights: Array | None) -> tuple[Array, Array, Array]:
    """Return each feature's observed weight, mean and variance, (d,) each, in one pass.

    Blocks are merged by their own means (Chan, Golub & LeVeque 1983): neither a mean far from zero
    nor an outlier that hardly counts takes digits from the variance.
    """
    xp = backend.namespace(X)

    def block(rows: slice) -> tuple[Array, ...]:
        C = backend.row_block(X, rows)
        w = block_weights(weights, rows, C)
        seen = ~xp.isnan(C) & (w > 0)[:, None]
        F = xp.astype(seen, xp.float64)
        n = w @ F
        # a value of the column itself: deviations of a constant one are exactly 0
        origin = xp.take_along_axis(C, xp.argmax(F, axis=0)[None, :], axis=0)
        R = xp.where(seen, C - origin, xp.zeros_like(C))
        mean = (w @ R) / _zero_as_one(n)
        R = xp.where(seen, R - mean, R)
        return n, origin[0, :] + mean, (w @ (R * R)) / _zero_as_one(n)

    n, mean, variance = reduce(_merged, map(block, backend.row_slices(X)))
    return n, xp.where(n > 0, mean, xp.zeros_like(n)), variance


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
