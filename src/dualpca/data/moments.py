"""Weighted first and second moments of rows, in float64, and the checks that come with them."""

from __future__ import annotations

from dataclasses import dataclass
from operator import iadd
from threading import local
from typing import Annotated, Any

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.errors import NonFiniteError, ScaleError

# --- Blocks of rows less a shift, in float64: what every sum over deviations begins with ---------

SHIFT_ENTRIES = 2**14
"""Numbers of the repeated shift."""


class Centring:
    """Rows less a shift, dense and float64, a block at a time; O(bd) a block.

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

    Examples
    --------
    >>> X = np.arange(6, dtype=np.float32).reshape(3, 2)
    >>> Centring(X, np.array([2.0, 3.0]), rows=2)(slice(1, 3))
    array([[0., 0.],
           [2., 2.]])
    """

    def __init__(self, X: Array, shift: Array, rows: int) -> None:
        self.X, self.shift, self.rows = X, shift, rows
        self.own = local()
        if not backend.is_foreign(X):
            times = min(rows, max(1, SHIFT_ENTRIES // max(X.shape[1], 1)))
            self.shifts = np.tile(shift, (times, 1))  # (k, d)

    def __call__(self, rows: slice) -> Array:
        """Return a block."""
        if backend.is_foreign(self.X):
            return backend.row_block(self.X, rows) - self.shift
        if not hasattr(self.own, "room"):
            self.own.room = np.empty((self.rows, self.X.shape[1]))
        given, C = self.X[rows, :], self.own.room[: rows.stop - rows.start]
        if given.dtype != np.float64 or not given.flags.c_contiguous:
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
SMALLEST_TRACE = 1e-290
"""Total variance below which squares of the deviations have underflowed."""
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

    n: float
    mean: Annotated[Array, "d"]
    scatter: Annotated[Array, "d d"]

    @classmethod
    def of(cls, X: Array, weights: Array | None = None, *, center: bool = True) -> Moments:
        """Gather the moments of X in one pass, O(nd²), one block of rows in memory at a time.

        Sums run in float64 around a provisional mean, so neither float32 rows nor a mean far from
        zero costs accuracy; one rank-one correction at the end makes the centring exact.
        """
        return cls(*_second_moments(X, weights, center, full=True))

    def __sizeof__(self) -> int:
        """Return its bytes, arrays included: Dask asks before it moves one."""
        return sum(int(getattr(part, "nbytes", 32)) for part in vars(self).values())

    def merge(self, other: Moments) -> Moments:
        """Join the moments of two disjoint sets of rows (Chan, Golub & LeVeque 1983)."""
        n = self.n + other.n
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.n / n)
        between = (delta * (self.n * other.n / n))[:, None] * delta[None, :]
        return Moments(n, mean, self.scatter + other.scatter + between)


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
    X: Array, weights: Array | None, center: bool, *, full: bool
) -> tuple[float, Array, Array]:
    """Return Σw, the mean and Σw(x − mean)(x − mean)ᵀ, or its diagonal alone; one pass."""
    shift = provisional_mean(X) if center else backend.asarray(np.zeros(X.shape[1]), X)
    mean, xp = shift, backend.namespace(X)
    with np.errstate(over="ignore", invalid="ignore"):
        n, total, second = _sums(X, weights, shift, full)
        if center:
            step = total / n  # total² can underflow
            mean = shift + step
            second -= total[:, None] * step[None, :] if full else total * step
    if full:
        squares = xp.linalg.diagonal(second)
    else:
        squares = second = xp.where(second < 0, xp.zeros_like(second), second)
    check_trace(X, float(xp.sum(squares)), mean)
    return n, mean, second


def _sums(X: Array, weights: Array | None, shift: Array, full: bool) -> tuple[float, Array, Array]:
    """Return Σw, Σw(x − shift) and Σw(x − shift)(x − shift)ᵀ, or its diagonal alone."""
    n, rows = int(X.shape[0]), min(X.shape[0], backend.block_rows(X.shape[1], X))
    size = float(n if weights is None else namespace_sum(weights))
    if backend.is_sparse(X):  # the shift is 0
        w = np.ones(n) if weights is None else np.asarray(weights)
        if full:
            second = algebra.gram(X if weights is None else X.multiply(np.sqrt(w)[:, None]))
        else:
            second = algebra.product(X.astype(np.float64).power(2).T, w)
        return size, algebra.product(X.T, w), second
    centred, ones = Centring(X, shift, rows), backend.asarray(np.ones(rows), X)

    def block(rows: slice) -> tuple[Array, ...]:
        C = centred(rows)
        w = ones[: C.shape[0]] if weights is None else weights[rows]
        total = algebra.dot(w, C)
        if not full:
            C *= C
            return total, algebra.dot(w, C)
        if weights is not None:
            C *= backend.namespace(C).sqrt(w)[:, None]
        return total, algebra.gram(C)

    def plus(a: tuple[Array, ...], b: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(map(iadd, a, b))

    total, second = backend.summed(block, plus, X)
    return size, total, second


def block_weights(weights: Array | None, rows: slice, C: Array) -> Array:
    """Return the weights of a block of rows, ones where there are none."""
    return backend.asarray(np.ones(C.shape[0]), C) if weights is None else weights[rows]


def total_moments(
    X: Array, weights: Array | None = None, *, center: bool = True
) -> tuple[float, Array, float]:
    """Return Σw, the mean and Σw‖x − mean‖², from two reads of X and no copy where that is safe.

    Where the mean is large beside the deviations, or rows are not float64, `column_moments` is
    used instead.
    """
    xp, n = backend.namespace(X), float(X.shape[0] if weights is None else namespace_sum(weights))
    if not backend.is_sparse(X) and X.dtype == xp.float64:
        raw, w = 0.0, block_weights(weights, slice(None), X)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = w @ X / n if center else backend.asarray(np.zeros(X.shape[1]), X)
            for rows in backend.row_slices(X):
                C = X[rows, :] if weights is None else X[rows, :] * xp.sqrt(w[rows])[:, None]
                flat = xp.reshape(C, (-1,))
                raw += float(flat @ flat)
            trace = raw - n * float(mean @ mean)
        if trace > SAFE_SHARE * raw and SMALLEST_TRACE <= trace < np.inf:
            return n, mean, trace
    n, mean, squares = column_moments(X, weights, center=center)
    return n, mean, float(namespace_sum(squares))


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


def check_trace(X: Array, trace: float, mean: Array) -> None:
    """Raise where the total variance is not a usable number, saying why."""
    if not np.isfinite(trace):
        refuse_nonfinite(X)
        raise ScaleError(
            "X is too large: its variance overflows float64. Divide X by a constant first "
            f"(the largest entry is {_largest_deviation(X, 0.0):.3g})."
        )
    if trace < SMALLEST_TRACE and _largest_deviation(X, mean) > 0:
        raise ScaleError(
            "X varies too little: its variance underflows float64. Multiply X by a constant "
            f"first (the largest deviation from the mean is {_largest_deviation(X, mean):.3g})."
        )


def _largest_deviation(X: Array, mean: Array | float) -> float:
    """Return the largest |x − mean|, block by block."""
    xp = backend.namespace(X)
    X = backend.rowwise(X)
    blocks = (backend.row_block(X, rows) for rows in backend.row_slices(X))
    return max(float(xp.max(xp.abs(block - mean))) for block in blocks)


def refuse_nonfinite(X: Array, name: str = "X") -> None:
    """Raise if X holds NaN or infinity, naming the first place; O(nd), in blocks."""
    xp = backend.namespace(X)
    X = backend.rowwise(X)
    for rows in backend.row_slices(X):
        block = backend.row_block(X, rows)
        bad = backend.to_numpy(~xp.isfinite(block))
        if bad.any():
            i, j = (int(k[0]) for k in np.nonzero(bad))
            value = float(block[i, j])
            what = "NaN" if np.isnan(value) else "infinity (inf)"
            raise NonFiniteError.at(name, what, rows.start + i, j)
