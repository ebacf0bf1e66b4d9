"""A subspace of feature space, as expansions over points (MATH 7)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.kernels import Kernel
from dualpca.rows import Projection

BLOCK = 256
"""New points whose kernel values are held at once, a thread."""


@dataclass(frozen=True)
class Subspace:
    """Directions v_p = Σ_i A_ip φ(x_i), orthonormal, through the mean φ̄ = Σ_i b_i φ(x_i).

    Parameters
    ----------
    points : array of shape (n, d)
    kernel : Kernel
    coefficients : array of shape (n, q)
        A.
    base : array of shape (n,)
        b: weights of the mean, or zeros where features are not centred.
    tilt : array of shape (q,)
        v_pᵀφ̄.
    offset : float
        ‖φ̄‖².
    """

    points: Array  # (n, d)
    kernel: Kernel
    coefficients: Array  # (n, q)
    base: Array  # (n,)
    tilt: Array  # (q,)
    offset: float

    def kernel_times(self, X: Array, V: Array) -> Array:
        """Return k(X, points) V, (m, b), a block of new points at a time; O(block · n) memory."""
        xp, of = _array.namespace(V), self.kernel.against(_array.points(self.points))

        def work(cut: list[slice]) -> list[Array]:
            with np.errstate(over="ignore", invalid="ignore"):  # callers test what is finite
                return [of(_array.points(_array.some_rows(X, rows))) @ V for rows in cut]

        found = _array.spread(work, list(_array.slices(X.shape[0], BLOCK)), V)
        parts = [part for run in found for part in run]
        return xp.concat(parts, axis=0) if parts else _array.empty((0, V.shape[1]), V)

    def coordinates(self, X: Array) -> Array:
        """Return y_p = v_pᵀ(φ(x) − φ̄), (m, q)."""
        return self.kernel_times(X, self.coefficients) - self.tilt

    @np.errstate(over="ignore", invalid="ignore")
    def project(self, X: Array) -> Projection:
        """Return coordinates and the squared distance off the span (never negative)."""
        xp = _array.namespace(self.base)
        both = self.kernel_times(X, xp.concat([self.coefficients, self.base[:, None]], axis=1))
        Y = both[:, :-1] - self.tilt
        squares = _array.working(self.kernel.diag(_array.points(X)))
        squares = squares - 2 * both[:, -1] + self.offset
        residual = squares - xp.sum(Y * Y, axis=1)
        return Projection(Y, xp.where(residual < 0, xp.zeros_like(residual), residual))
