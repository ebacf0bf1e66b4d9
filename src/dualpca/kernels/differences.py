"""Gradients by central differences, for kernels known only through their values."""

from __future__ import annotations

from collections.abc import Callable

from dualpca import _array
from dualpca._typing import Array

STEP = 6e-6
"""Cube root of the rounding error of float64: the step that errs least, beside entries of 1."""


def central_pull(of: Callable[[Array], Array], Z: Array, C: Array) -> Array:
    """Return Σ_j C_ij ∂k(z_i, y_j)/∂z_i, (n, d), where of(Z) = k(z_i, y_j).

    Two evaluations of the kernel for each of the d columns, in float64; about ten digits.
    """
    xp = _array.namespace(Z)
    C = _array.working(C)
    return central_diag_gradient(lambda X: xp.sum(C * _array.working(of(X)), axis=1), Z)


def central_diag_gradient(of: Callable[[Array], Array], Z: Array) -> Array:
    """Return ∂f(z_i)/∂z_i, (n, d), of a function of each row, (n, d) ↦ (n,).

    Examples
    --------
    >>> import numpy as np
    >>> central_diag_gradient(lambda Z: Z[:, 0] ** 2, np.array([[3.0, 1.0]])).round(6)
    array([[6., 0.]])
    """
    xp = _array.namespace(Z)
    W = _array.working(Z)
    columns = []
    for c in range(W.shape[1]):
        unit = _array.identity(int(W.shape[1]), W)[c, :][None, :]
        size = xp.abs(W[:, c])
        h = STEP * xp.where(size > 1, size, xp.ones_like(size))
        above, below = W + h[:, None] * unit, W - h[:, None] * unit
        # what was added after rounding, not what was asked for
        width = above[:, c] - below[:, c]
        columns.append(_array.working(of(above) - of(below)) / width)
    return xp.astype(xp.stack(columns, axis=1), Z.dtype)
