"""Subspaces of feature space, as expansions over points that are known exactly or only in part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.errors import expected
from dualpca.kernels import (
    Kernel,
    Uncertain,
    expected_between,
    expected_diag,
    expected_kernel,
    projected_covariance,
)
from dualpca.operators.rows import Projection

# --- A subspace of feature space, as expansions over points --------------------------------------

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

    points: Annotated[Array, "points n d"]
    kernel: Kernel
    coefficients: Annotated[Array, "n q"]
    base: Annotated[Array, "n"]
    tilt: Annotated[Array, "q"]
    offset: float

    def kernel_times(self, X: Array, V: Array) -> Array:
        """Return k(X, points) V, (m, b), a block of new points at a time; O(block · n) memory."""
        xp, of = backend.namespace(V), self.kernel.against(backend.points(self.points))

        def work(cut: list[slice]) -> list[Array]:
            with np.errstate(over="ignore", invalid="ignore"):  # callers test what is finite
                return [of(backend.points(backend.some_rows(X, rows))) @ V for rows in cut]

        found = backend.spread(work, list(backend.slices(X.shape[0], BLOCK)), V)
        parts = [part for run in found for part in run]
        return xp.concat(parts, axis=0) if parts else backend.empty((0, V.shape[1]), V)

    def coordinates(self, X: Array) -> Array:
        """Return y_p = v_pᵀ(φ(x) − φ̄), (m, q)."""
        return self.kernel_times(X, self.coefficients) - self.tilt

    @np.errstate(over="ignore", invalid="ignore")
    def project(self, X: Array) -> Projection:
        """Return coordinates and the squared distance off the span (never negative)."""
        xp = backend.namespace(self.base)
        both = self.kernel_times(X, xp.concat([self.coefficients, self.base[:, None]], axis=1))
        Y = both[:, :-1] - self.tilt
        squares = backend.working(self.kernel.diag(backend.points(X)))
        squares = squares - 2 * both[:, -1] + self.offset
        residual = squares - xp.sum(Y * Y, axis=1)
        return Projection(Y, xp.where(residual < 0, xp.zeros_like(residual), residual))

    def expected_coordinates(self, rows: Uncertain) -> Array:
        """Return the expected coordinates of uncertain rows, (m, q)."""
        if backend.is_sparse(self.points):
            raise no_expectations(self)
        K = expected_kernel(self.kernel, rows, backend.working(self.points))
        return K @ self.coefficients - self.tilt

    def coordinate_covariance(self, rows: Uncertain) -> Array:
        """Return the covariance of the coordinates of uncertain rows, (m, q, q)."""
        if backend.is_sparse(self.points):
            raise no_expectations(self)
        points = backend.working(self.points)
        return projected_covariance(self.kernel, rows, points, self.coefficients)


def no_expectations(subspace: object) -> ValueError:
    """Return the error for uncertain rows where there is no expansion over dense points."""
    what = "a model over dense points: random features and sparse rows have no expectations"
    return ValueError(expected("rows with NaN", what, type(subspace).__name__))


# --- Kernel components of rows that are known only in part ---------------------------------------


@dataclass(frozen=True)
class UncertainSubspace:
    """Directions v_p = Σ_i A_ip E φ(x_i) through the mean Σ_i b_i E φ(x_i), x_i ~ N(m_i, S_i).

    The expectation takes the place of the feature of a row: inner products between different
    rows are then E k(x_i, x_j), in closed form. See `Subspace` for the other fields.
    """

    rows: Uncertain
    kernel: Kernel
    coefficients: Annotated[Array, "n q"]
    base: Annotated[Array, "n"]
    tilt: Annotated[Array, "q"]
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
        xp = backend.namespace(self.base)
        both = self._against(X, xp.concat([self.coefficients, self.base[:, None]], axis=1))
        Y = both[:, :-1] - self.tilt
        own = expected_diag(self.kernel, X) if isinstance(X, Uncertain) else self.kernel.diag(X)
        residual = backend.working(own) - 2 * both[:, -1] + self.offset - xp.sum(Y * Y, axis=1)
        return Projection(Y, xp.where(residual < 0, xp.zeros_like(residual), residual))

    def _against(self, X: Array | Uncertain, V: Array) -> Array:
        if isinstance(X, Uncertain):
            return expected_between(self.kernel, X.working, self.rows) @ V
        return expected_kernel(self.kernel, self.rows, backend.working(X)).T @ V

    def expected_coordinates(self, rows: Uncertain) -> Array:
        """Return the expected coordinates of uncertain rows, (m, q)."""
        return self.coordinates(rows)

    def coordinate_covariance(self, rows: Uncertain) -> Array:
        """Return the covariance of the coordinates of uncertain rows, (m, q, q).

        Exact where the training rows are known; those that are not count with their expectation.
        """
        return projected_covariance(self.kernel, rows.working, self.rows.mean, self.coefficients)
