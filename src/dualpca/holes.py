"""Tables with NaN before any model: what is missing, and what every feature observed.

X is read in blocks of rows and never copied whole, but by `observed_part`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.moments import block_weights, refuse_nonfinite

Host = np.ndarray[Any, Any]


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
    """Tell whether some entry is NaN; reads X once, in blocks."""
    xp = _array.namespace(X)
    cut = _array.slices(int(X.shape[0]), _array.block_rows(int(X.shape[1]), X))
    return any(bool(xp.any(xp.isnan(X[rows, :]))) for rows in cut)


def observed_part(X: Array) -> Array:
    """Return X with 0 for NaN: a copy in which only infinity is left to find."""
    xp = _array.namespace(X)
    return xp.where(xp.isnan(X), xp.zeros_like(X), X)


def observed_weights(X: Array, weights: Array | None) -> Array | None:
    """Return the weights, with 0 for rows that observe nothing: they say nothing."""
    xp = _array.namespace(X)
    cut = _array.slices(int(X.shape[0]), _array.block_rows(int(X.shape[1]), X))
    empty = xp.concat([xp.all(xp.isnan(X[rows, :]), axis=1) for rows in cut], axis=0)
    if not bool(xp.any(empty)):
        return weights
    w = block_weights(weights, slice(None), X)
    return xp.where(empty, xp.zeros_like(w), w)


def refuse_infinite(X: Array) -> None:
    """Raise if an entry is infinite; NaN may pass."""
    xp = _array.namespace(X)
    cut = _array.slices(int(X.shape[0]), _array.block_rows(int(X.shape[1]), X))
    if any(bool(xp.any(xp.isinf(X[rows, :]))) for rows in cut):
        refuse_nonfinite(observed_part(X))


@np.errstate(over="ignore", invalid="ignore")  # whoever asks checks the variance
def column_starts(X: Array, weights: Array | None) -> tuple[Array, Array, Array]:
    """Return each feature's observed weight, mean and variance, in blocks."""
    xp = _array.namespace(X)
    d = int(X.shape[1])
    n, total, squares = (_array.asarray(np.zeros(d), X) for _ in range(3))
    origin = _first_observed(X)
    for rows in _array.slices(int(X.shape[0]), _array.block_rows(d, X)):
        C = _array.row_block(X, rows)
        seen = ~xp.isnan(C)
        R = xp.where(seen, C - origin, xp.zeros_like(C))
        w = block_weights(weights, rows, R)
        n += w @ xp.astype(seen, xp.float64)
        total += w @ R
        squares += w @ (R * R)
    shift = total / xp.where(n > 0, n, xp.ones_like(n))
    variance = squares / xp.where(n > 0, n, xp.ones_like(n)) - shift * shift
    return n, origin + shift, xp.where(variance > 0, variance, 0 * variance)


def _first_observed(X: Array) -> Array:
    """Return the first observed value of every feature, 0 where there is none."""
    found = np.full(X.shape[1], np.nan)
    for rows in _array.slices(int(X.shape[0]), _array.block_rows(int(X.shape[1]))):
        if not np.isnan(found).any():
            break
        C = _array.to_numpy(_array.row_block(X, rows))
        seen = ~np.isnan(C)
        here = C[np.argmax(seen, axis=0), np.arange(C.shape[1])]
        found = np.where(np.isnan(found), here, found)
    return _array.asarray(np.nan_to_num(found), X)


def effective_rows(X: Array, weights: Array | None) -> float:
    """Return the weight of all observed entries over the number of features: n without holes."""
    return float(_array.namespace(X).mean(column_starts(X, weights)[0]))
