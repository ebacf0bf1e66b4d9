"""Kernel components of rows that are known only in part."""

from __future__ import annotations

from dataclasses import dataclass

from dualpca import _array
from dualpca._typing import Array
from dualpca.expected_kernels import (
    Uncertain,
    expected_between,
    expected_diag,
    expected_kernel,
    projected_covariance,
)
from dualpca.kernels import Kernel
from dualpca.rows import Projection


@dataclass(frozen=True)
class UncertainSubspace:
    """Directions v_p = Σ_i A_ip E φ(x_i) through the mean Σ_i b_i E φ(x_i), x_i ~ N(m_i, S_i).

    The expectation takes the place of the feature of a row: inner products between different
    rows are then E k(x_i, x_j), in closed form. See `Subspace` for the other fields.
    """

    rows: Uncertain
    kernel: Kernel
    coefficients: Array  # (n, q)
    base: Array  # (n,)
    tilt: Array  # (q,)
    offset: float

    @property
    def points(self) -> Array:
        """The expectations of the rows, (n, d)."""
        return self.rows.mean

    def coordinates(self, X: Array | Uncertain) -> Array:
        """Return the expected coordinates E v_pᵀ(φ(x) − φ̄), (m, q)."""
        return self._against(X, self.coefficients) - self.tilt

    def project(self, X: Array | Uncertain) -> Projection:
        """Return expected coordinates, and the squared distance off the span (never negative)."""
        xp = _array.namespace(self.base)
        both = self._against(X, xp.concat([self.coefficients, self.base[:, None]], axis=1))
        Y = both[:, :-1] - self.tilt
        own = expected_diag(self.kernel, X) if isinstance(X, Uncertain) else self.kernel.diag(X)
        residual = _array.working(own) - 2 * both[:, -1] + self.offset - xp.sum(Y * Y, axis=1)
        return Projection(Y, xp.where(residual < 0, xp.zeros_like(residual), residual))

    def _against(self, X: Array | Uncertain, V: Array) -> Array:
        if isinstance(X, Uncertain):
            return expected_between(self.kernel, X.working, self.rows) @ V
        return expected_kernel(self.kernel, self.rows, _array.working(X)).T @ V

    def covariance(self, X: Uncertain) -> Array:
        """Return the covariance of the coordinates of uncertain rows, (m, q, q).

        Exact where the training rows are known; those that are not count with their expectation.
        """
        return projected_covariance(self.kernel, X.working, self.rows.mean, self.coefficients)
