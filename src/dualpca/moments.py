"""Weighted first and second moments, gathered block by block and merged exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import NonFiniteError, ScaleError

HEAD = 1024
SMALLEST_TRACE = 1e-290


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
    mean: Array  # (d,)
    scatter: Array  # (d, d)

    @classmethod
    def of(cls, X: Array, weights: Array | None = None, *, center: bool = True) -> Moments:
        """Gather the moments of X in one pass, O(nd²), one block of rows in memory at a time.

        Sums run in float64 around a provisional mean, so neither float32 rows nor a mean far from
        zero costs accuracy; one rank-one correction at the end makes the centring exact.
        """
        shift = provisional_mean(X) if center else _array.asarray(np.zeros(X.shape[1]), X)
        with np.errstate(over="ignore", invalid="ignore"):
            n, total, scatter = _sums(X, weights, shift)
            if center:
                scatter -= total[:, None] * (total / n)[None, :]
        mean = shift + total / n if center else shift
        check_trace(X, float(namespace_sum(_diagonal(scatter))), mean)
        return cls(n, mean, scatter)

    def merge(self, other: Moments) -> Moments:
        """Join the moments of two disjoint sets of rows (Chan, Golub & LeVeque 1983)."""
        n = self.n + other.n
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.n / n)
        between = (delta * (self.n * other.n / n))[:, None] * delta[None, :]
        return Moments(n, mean, self.scatter + other.scatter + between)


def _sums(X: Array, weights: Array | None, shift: Array) -> tuple[float, Array, Array]:
    """Return Σw, Σw(x − shift) and Σw(x − shift)(x − shift)ᵀ."""
    n = float(X.shape[0] if weights is None else namespace_sum(weights))
    if _array.is_sparse(X):
        root = X if weights is None else X.multiply(np.sqrt(weights)[:, None])
        ones = np.ones(X.shape[0]) if weights is None else np.asarray(weights)
        return n, _array.product(X.T, ones), _array.gram(root)
    xp = _array.namespace(X)
    d = X.shape[1]
    total, scatter = xp.zeros_like(shift), _array.asarray(np.zeros((d, d)), X)
    for rows in _array.slices(X.shape[0], _array.block_rows(d)):
        C = _array.row_block(X, rows) - shift
        if weights is None:
            total += xp.sum(C, axis=0)
        else:
            total += weights[rows] @ C
            C *= xp.sqrt(weights[rows])[:, None]
        scatter += _array.gram(C)
    return n, total, scatter


def column_moments(
    X: Array, weights: Array | None = None, *, center: bool = True
) -> tuple[float, Array, Array]:
    """Return Σw, the mean and Σw(x − mean)² of every column in one pass, O(nd)."""
    shift = provisional_mean(X) if center else _array.asarray(np.zeros(X.shape[1]), X)
    with np.errstate(over="ignore", invalid="ignore"):
        n, total, squares = _column_sums(X, weights, shift)
        mean = shift + total / n if center else shift
        if center:
            squares = squares - total * (total / n)  # total² can underflow
    xp = _array.namespace(X)
    squares = xp.where(squares < 0, xp.zeros_like(squares), squares)
    check_trace(X, float(xp.sum(squares)), mean)
    return n, mean, squares


def _column_sums(X: Array, weights: Array | None, shift: Array) -> tuple[float, Array, Array]:
    n = float(X.shape[0] if weights is None else namespace_sum(weights))
    xp = _array.namespace(X)
    w = _array.asarray(np.ones(X.shape[0]), X) if weights is None else weights
    if _array.is_sparse(X):
        squared = X.astype(np.float64).power(2)
        return n, _array.product(X.T, w), _array.product(squared.T, w)
    total, squares = xp.zeros_like(shift), xp.zeros_like(shift)
    for rows in _array.slices(X.shape[0], _array.block_rows(X.shape[1])):
        C = _array.row_block(X, rows) - shift
        total += w[rows] @ C
        C *= C
        squares += w[rows] @ C
    return n, total, squares


def provisional_mean(X: Array) -> Array:
    """Return the mean of the first rows; the value itself where a column is constant there.

    The exception keeps constant columns exactly constant: their deviations are exact zeros.
    """
    if _array.is_sparse(X):
        return np.zeros(X.shape[1])
    xp = _array.namespace(X)
    head = _array.row_block(X, slice(0, min(HEAD, X.shape[0])))
    constant = xp.max(head, axis=0) == xp.min(head, axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        return xp.where(constant, head[0, :], xp.mean(head, axis=0))


def namespace_sum(x: Array) -> Any:
    """Return the sum of all entries of x."""
    return _array.namespace(x).sum(x)


def _diagonal(A: Array) -> Array:
    return _array.namespace(A).linalg.diagonal(A)


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
    xp = _array.namespace(X)
    rows = _array.slices(X.shape[0], _array.block_rows(X.shape[1]))
    X = _array.rowwise(X)
    return max(float(xp.max(xp.abs(_array.row_block(X, r) - mean))) for r in rows)


def refuse_nonfinite(X: Array, name: str = "X") -> None:
    """Raise if X holds NaN or infinity, naming the first place; O(nd), in blocks."""
    xp = _array.namespace(X)
    X = _array.rowwise(X)
    for rows in _array.slices(X.shape[0], _array.block_rows(X.shape[1])):
        bad = _array.to_numpy(~xp.isfinite(_array.row_block(X, rows)))
        if bad.any():
            i, j = (int(k[0]) for k in np.nonzero(bad))
            value = float(_array.row_block(X, rows)[i, j])
            what = "NaN" if np.isnan(value) else "infinity (inf)"
            raise NonFiniteError(
                f"Input {name} contains {what}, first at row {rows.start + i}, column {j}. "
                "Every entry must be a finite number: drop or fill the others first."
            )
