"""Blocks of rows less a shift, in float64: what every sum over deviations begins with."""

from __future__ import annotations

from dataclasses import dataclass
from threading import local
from typing import Annotated, Any

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.errors import NonFiniteError, ScaleError

# --- Blocks of rows less a shift, in float64: what every sum over deviations begins with ---------

TILE = 2**14
"""Numbers of the repeated shift."""


class Centring:
    """Rows less a shift, dense and float64, a block at a time; O(bd) a block.

    NumPy subtracts a few numbers from every row slower than as many from many rows: so the shift
    is repeated. Its blocks lie in one place a thread, which the next block takes: fresh memory
    costs as much again. Other libraries give every block its own.

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
            times = min(rows, max(1, TILE // max(X.shape[1], 1)))
            self.shifts = np.tile(shift, (times, 1))  # (k, d)

    def _room(self, rows: int) -> np.ndarray[Any, Any]:
        """Return this thread's place for so many rows."""
        if not hasattr(self.own, "room"):
            self.own.room = np.empty((self.rows, self.X.shape[1]))
        room: np.ndarray[Any, Any] = self.own.room[:rows]
        return room

    def __call__(self, rows: slice) -> Array:
        """Return a block."""
        if backend.is_foreign(self.X):
            return backend.row_block(self.X, rows) - self.shift
        given, C = self.X[rows, :], self._room(rows.stop - rows.start)
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
        shift = provisional_mean(X) if center else backend.asarray(np.zeros(X.shape[1]), X)
        with np.errstate(over="ignore", invalid="ignore"):
            n, total, scatter = _sums(X, weights, shift)
            if center:
                scatter -= total[:, None] * (total / n)[None, :]
        mean = shift + total / n if center else shift
        check_trace(X, float(namespace_sum(_diagonal(scatter))), mean)
        return cls(n, mean, scatter)

    def __sizeof__(self) -> int:
        """Return the bytes that it takes, arrays included: Dask asks before it moves one."""
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
    unit = xp.sqrt(_diagonal(moments.scatter) / moments.n)
    unit = xp.where(unit > 0, unit, xp.ones_like(unit))
    values, vectors = xp.linalg.eigh(moments.scatter / unit[:, None] / unit[None, :])
    least = d * float(xp.finfo(values.dtype).eps) * xp.max(values)
    root = xp.sqrt(xp.where(values > least, values, xp.zeros_like(values)) * (d / moments.n))
    off = (vectors * root).T * unit
    rows = moments.mean + xp.concat([off, -off], axis=0)
    return rows, backend.asarray(np.full(2 * d, moments.n / (2 * d)), rows)


def _sums(X: Array, weights: Array | None, shift: Array) -> tuple[float, Array, Array]:
    """Return Σw, Σw(x − shift) and Σw(x − shift)(x − shift)ᵀ."""
    n = float(X.shape[0] if weights is None else namespace_sum(weights))
    if backend.is_sparse(X):
        root = X if weights is None else X.multiply(np.sqrt(weights)[:, None])
        ones = np.ones(X.shape[0]) if weights is None else np.asarray(weights)
        return n, algebra.product(X.T, ones), algebra.gram(root)
    centred, ones = _blocks(X, shift)

    def block(rows: slice) -> tuple[Array, Array]:
        C = centred(rows)
        w = ones[: C.shape[0]] if weights is None else weights[rows]
        total = algebra.dot(w, C)
        if weights is not None:
            C *= backend.namespace(C).sqrt(w)[:, None]
        return total, algebra.gram(C)

    return n, *backend.summed(block, _added, X)


def _blocks(X: Array, shift: Array) -> tuple[Centring, Array]:
    """Return what makes blocks of rows less the shift, and ones, as many as a block has rows."""
    rows = min(X.shape[0], backend.block_rows(X.shape[1], X))
    return Centring(X, shift, rows), backend.asarray(np.ones(rows), X)


def _added(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
    """Add b to a, in place."""
    for mine, other in zip(a, b, strict=True):
        mine += other
    return a


def _zeros(*shape: int, like: Array) -> Array:
    return backend.asarray(np.zeros(shape), like)


def block_weights(weights: Array | None, rows: slice, C: Array) -> Array:
    """Return the weights of a block of rows, ones where there are none."""
    return backend.asarray(np.ones(C.shape[0]), C) if weights is None else weights[rows]


def total_moments(
    X: Array, weights: Array | None = None, *, center: bool = True
) -> tuple[float, Array, float]:
    """Return Σw, the mean and Σw‖x − mean‖², from two reads of X and no copy where that is safe.

    Where the mean is large beside the deviations, or rows are not float64, `column_moments` is
    asked instead.
    """
    if backend.is_sparse(X) or X.dtype != backend.namespace(X).float64:
        return _from_columns(X, weights, center)
    n = float(X.shape[0] if weights is None else namespace_sum(weights))
    w = block_weights(weights, slice(None), X)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = w @ X / n if center else _zeros(X.shape[1], like=X)
        raw = _squared_norm(X, weights)
        trace = raw - n * float(mean @ mean)
    if not trace > SAFE_SHARE * raw or trace < SMALLEST_TRACE or not np.isfinite(trace):
        return _from_columns(X, weights, center)
    return n, mean, trace


def _from_columns(X: Array, weights: Array | None, center: bool) -> tuple[float, Array, float]:
    n, mean, squares = column_moments(X, weights, center=center)
    return n, mean, float(namespace_sum(squares))


def _squared_norm(X: Array, weights: Array | None) -> float:
    """Return Σw‖x‖²; one read of X."""
    xp, total = backend.namespace(X), 0.0
    for rows in backend.slices(X.shape[0], backend.block_rows(X.shape[1], X)):
        C = X[rows, :]
        if weights is not None:
            C = C * xp.sqrt(weights[rows])[:, None]
        flat = xp.reshape(C, (-1,))
        total += float(flat @ flat)
    return total


def column_moments(
    X: Array, weights: Array | None = None, *, center: bool = True
) -> tuple[float, Array, Array]:
    """Return Σw, the mean and Σw(x − mean)² of every column in one pass, O(nd)."""
    shift = provisional_mean(X) if center else backend.asarray(np.zeros(X.shape[1]), X)
    with np.errstate(over="ignore", invalid="ignore"):
        n, total, squares = _column_sums(X, weights, shift)
        mean = shift + total / n if center else shift
        if center:
            squares = squares - total * (total / n)  # total² can underflow
    xp = backend.namespace(X)
    squares = xp.where(squares < 0, xp.zeros_like(squares), squares)
    check_trace(X, float(xp.sum(squares)), mean)
    return n, mean, squares


def _column_sums(X: Array, weights: Array | None, shift: Array) -> tuple[float, Array, Array]:
    n = float(X.shape[0] if weights is None else namespace_sum(weights))
    if backend.is_sparse(X):
        w = np.ones(X.shape[0]) if weights is None else weights
        squared = X.astype(np.float64).power(2)
        return n, algebra.product(X.T, w), algebra.product(squared.T, w)

    centred, ones = _blocks(X, shift)

    def block(rows: slice) -> tuple[Array, Array]:
        C = centred(rows)
        w = ones[: C.shape[0]] if weights is None else weights[rows]
        total = algebra.dot(w, C)
        C *= C
        return total, algebra.dot(w, C)

    return n, *backend.summed(block, _added, X)


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


def _diagonal(A: Array) -> Array:
    return backend.namespace(A).linalg.diagonal(A)


def check_trace(X: Array, trace: float, mean: Array) -> None:
    """Raise where the total variance is not a usable number, saying why."""
    if not np.isfinite(trace):
        refuse_nonfinite(X)
        raise ScaleError(
            "X is too large: its variance overflows float64. Divide X by a constant first "
            f"(the largest entry is {_largest(X, 0.0):.3g})."
        )
    if trace < SMALLEST_TRACE and _largest(X, mean) > 0:
        raise ScaleError(
            "X varies too little: its variance underflows float64. Multiply X by a constant "
            f"first (the largest deviation from the mean is {_largest(X, mean):.3g})."
        )


def _largest(X: Array, mean: Array | float) -> float:
    """Return the largest |x − mean|, block by block."""
    xp = backend.namespace(X)
    rows = backend.slices(X.shape[0], backend.block_rows(X.shape[1], X))
    X = backend.rowwise(X)
    return max(float(xp.max(xp.abs(backend.row_block(X, r) - mean))) for r in rows)


def refuse_nonfinite(X: Array, name: str = "X") -> None:
    """Raise if X holds NaN or infinity, naming the first place; O(nd), in blocks."""
    xp = backend.namespace(X)
    X = backend.rowwise(X)
    for rows in backend.slices(X.shape[0], backend.block_rows(X.shape[1], X)):
        bad = backend.to_numpy(~xp.isfinite(backend.row_block(X, rows)))
        if bad.any():
            i, j = (int(k[0]) for k in np.nonzero(bad))
            value = float(backend.row_block(X, rows)[i, j])
            what = "NaN" if np.isnan(value) else "infinity (inf)"
            raise NonFiniteError.at(name, what, rows.start + i, j)
