"""Squared distances from one product of matrices, with the digits that this could lose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dualpca import _algebra, _array
from dualpca._typing import Array

NEIGHBOURS = 1e-6
"""Share of their squared norms below which a squared distance has lost too many digits."""


def _rounded(E: Array, size: Array) -> Array:
    """Return −u with 0 for what is within rounding errors of it; `size` is −½(‖a‖² + ‖b‖²)."""
    xp = _array.namespace(E)
    close = xp.astype(8 * float(xp.finfo(E.dtype).eps) * size, E.dtype)
    return xp.where(E > close, xp.zeros_like(E), E)


def lifted(A: Array, dtype: Any, *, flip: bool) -> tuple[Array, Array]:
    """Return rows [a, −½‖a‖², 1], or [a, 1, −½‖a‖²], and −½‖a‖² in float64, (n, 1).

    A comes in float64 whatever the dtype: a factor that float32 rounds would scale all distances
    alike, and show in eigenvalues.
    """
    xp = _array.namespace(A)
    A = A if dtype == xp.float64 else xp.astype(A, dtype)
    double = _array.working(A)
    half = -0.5 * xp.sum(double * double, axis=1)[:, None]
    high = xp.astype(half, dtype)
    last = [xp.ones_like(high), high] if flip else [high, xp.ones_like(high)]
    return xp.concat([A, *last], axis=1), half


def near_zero(E: Array, A: Array, B: Array, size: Array) -> Array:
    """Return −u where rounding errors beside its own size would be felt: for pairs of neighbours.

    NumPy takes their differences anew; other libraries count what is within rounding of 0 as 0.
    """
    if _array.is_foreign(E):
        return _rounded(E, size)
    i, j = np.nonzero(E > NEIGHBOURS * size)
    for part in _array.slices(len(i), 4096):
        gap = A[i[part]] - B[j[part]]
        E[i[part], j[part]] = -0.5 * np.sum(gap * gap, axis=1)
    return _algebra.at_most_zero(E)


def sparse_minus_u(Y: Array, factor: Any, *, rough: bool) -> Callable[[Array], Array]:
    """Return x ↦ −u(x, y_j) for sparse rows, which cannot be measured from a mean.

    Where the kernel is `rough` at 0, what is within rounding of 0 counts as 0.
    """
    B = Y.multiply(factor).tocsr()
    b = 0.5 * _algebra.squared_norms(B)

    def of(X: Array) -> Array:
        A = X.multiply(factor).tocsr() if _array.is_sparse(X) else X * factor
        a = 0.5 * _algebra.squared_norms(A)[:, None]
        E = _algebra.inner(A, B) - a - b
        return _rounded(E, -a - b) if rough else _algebra.at_most_zero(E)

    return of
