"""The centred, weighted, scaled rows as an operator that is never formed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dualpca.arrays import Array, algebra, backend

SAFE_OFFSET = 1e6
"""Largest n‖μ‖² / trace for which centring after the product loses no more than three digits."""


class Projection(NamedTuple):
    """Where points sit relative to a subspace: coordinates in it, squared distance from it."""

    coordinates: Array  # (n, q)
    residual: Array  # (n,)


class Frame(NamedTuple):
    """Origin and unit of every feature: x ↦ (x − mean) / scale."""

    mean: Array  # (d,)
    scale: Array | None = None  # (d,)

    def center(self, C: Array) -> Array:
        """Return a dense block of rows in this frame, as a fresh array."""
        C = C - self.mean
        if self.scale is not None:
            C /= self.scale
        return C

    def coordinates(self, V: Array, X: Array) -> Array:
        """Return (x − mean)/scale · V for every row, (n, q); O(ndq) in blocks of rows."""
        if backend.is_sparse(X):
            V = V if self.scale is None else V / self.scale[:, None]
            return algebra.product(X, V) - self.mean @ V

        def part(cut: list[slice]) -> list[Array]:
            return [self.center(backend.row_block(X, rows)) @ V for rows in cut]

        return _joined(part, X)

    def project(self, V: Array, X: Array) -> Projection:
        """Return coordinates along the columns of V and the squared distance off their span.

        The distance is taken from the difference itself, not from two large norms.
        """
        xp, X = backend.namespace(X), backend.rowwise(X)

        def part(cut: list[slice]) -> list[Array]:
            found = []
            for rows in cut:
                C = self.center(backend.row_block(X, rows))
                Y = C @ V
                C -= Y @ V.T
                C *= C
                found.append(xp.concat([Y, xp.sum(C, axis=1)[:, None]], axis=1))
            return found

        both = _joined(part, X)
        return Projection(both[:, :-1], both[:, -1])

    def lift(self, V: Array, Y: Array) -> Array:
        """Return the rows whose coordinates are Y and that lie on the span, (n, d)."""
        C = Y @ V.T
        return self.restore(C)

    def restore(self, C: Array) -> Array:
        """Return centred rows to the units and origin of the data."""
        return (C if self.scale is None else C * self.scale) + self.mean


def _joined(part: Callable[[list[slice]], list[Array]], X: Array) -> Array:
    """Return what `part` makes of blocks of rows, one below the other."""
    cut = backend.slices(X.shape[0], backend.block_rows(X.shape[1], X))
    found = [block for run in backend.spread(part, cut, X) for block in run]
    return backend.namespace(X).concat(found, axis=0)


class Rows:
    """F = D^{1/2} (X − 1μᵀ) S⁻¹, (n, d), known through its products.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, d)
    weights : array of shape (n,) or None
        D is their diagonal matrix.
    frame : Frame
        μ and the diagonal of S.
    explicit : bool
        Centre every block before the product: exact however far μ is from zero. Otherwise the
        product is corrected afterwards, which reads X once and copies nothing.
    """

    def __init__(self, X: Array, weights: Array | None, frame: Frame, explicit: bool) -> None:
        xp = backend.namespace(X)
        self.X, self.weights, self.frame = X, weights, frame
        self.root = None if weights is None else xp.sqrt(weights)
        small = backend.is_sparse(X) or X.dtype == xp.float64
        self.explicit = explicit or not small

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return (self.X.shape[0], self.X.shape[1])

    @cached_property
    def _rowwise(self) -> Array:
        return backend.rowwise(self.X)

    def _rows(self, rows: slice) -> Array:
        """Return a block of rows of F; of X where centring is left for later."""
        C = backend.row_block(self._rowwise, rows)
        if not self.explicit:
            return C
        C = self.frame.center(C)
        if self.root is not None:
            C *= self.root[rows][:, None]
        return C

    def _columns(self, columns: slice) -> Array:
        """Return a block of columns of F; of X where centring is left for later."""
        C = backend.column_block(self.X, columns)
        if not self.explicit:
            return C
        mean, scale = self.frame
        C = Frame(mean[columns], None if scale is None else scale[columns]).center(C)
        if self.root is not None:
            C *= self.root[:, None]
        return C

    def centred(self) -> Rows:
        """Return the same rows, with every block centred before it is used."""
        return self if self.explicit else Rows(self.X, self.weights, self.frame, explicit=True)

    def blocks(self, at_least: int = 0) -> Iterator[tuple[slice, Array]]:
        """Yield blocks of rows of F, dense and fresh."""
        (n, d), whole = self.shape, self.centred()
        for rows in backend.slices(n, max(backend.block_rows(d, self.X), at_least)):
            yield rows, whole._rows(rows)

    def column_blocks(self, at_least: int = 0) -> Iterator[tuple[slice, Array]]:
        """Yield blocks of columns of F, dense and fresh."""
        (n, d), whole = self.shape, self.centred()
        for columns in backend.slices(d, max(backend.block_rows(n, self.X), at_least)):
            yield columns, whole._columns(columns)

    def times(self, V: Array) -> Array:
        """Return F V, (n, b)."""
        if self.explicit:
            xp = backend.namespace(V)
            return xp.concat([C @ V for _, C in self.blocks()], axis=0)
        V = V if self.frame.scale is None else V / self.frame.scale[:, None]
        Y = algebra.thin_product(self.X, V)
        Y -= self.frame.mean @ V
        return Y if self.root is None else Y * self.root[:, None]

    def adjoint(self, U: Array) -> Array:
        """Return Fᵀ U, (d, b)."""
        if self.explicit:
            out = 0.0
            for rows, C in self.blocks():
                out = C.T @ U[rows, :] + out
            return out
        xp = backend.namespace(U)
        U = U if self.root is None else U * self.root[:, None]
        out = algebra.thin_product(self.X.T, U)
        out -= self.frame.mean[:, None] * xp.sum(U, axis=0)[None, :]
        return out if self.frame.scale is None else out / self.frame.scale[:, None]

    def normal(self, V: Array) -> Array:
        """Return FᵀF V, (d, b); where blocks are centred, in one read of the rows."""
        if not self.explicit:
            return self.adjoint(self.times(V))
        out = 0.0
        for _, C in self.blocks():
            out = C.T @ (C @ V) + out
        return out

    def mirrored(self, U: Array) -> Array:
        """Return FFᵀ U, (n, b); where blocks are centred, in one read of the columns."""
        if not self.explicit:
            return self.times(self.adjoint(U))
        out = 0.0
        for _, C in self.column_blocks():
            out = C @ (C.T @ U) + out
        return out

    def row_gram(self) -> Array:
        """Return FFᵀ, (n, n)."""
        n = self.shape[0]
        out = backend.asarray(np.zeros((n, n)), self.frame.mean)
        for _, C in self.column_blocks():
            out += algebra.gram(C.T)
        return out

    def squared_norms(self) -> Array:
        """Return the squared norm of every row of F, (n,)."""
        xp = backend.namespace(self.X)
        return xp.concat([xp.sum(C * C, axis=1) for _, C in self.blocks()], axis=0)

    def triangle(self, transpose: bool = False) -> Array:
        """Return R with RᵀR = FᵀF (or FFᵀ), by QR of one block after another."""
        xp = backend.namespace(self.X)
        width = self.shape[0] if transpose else self.shape[1]
        R = None
        for _, C in self.column_blocks(2 * width) if transpose else self.blocks(2 * width):
            C = C.T if transpose else C
            R = algebra.triangular_factor(C if R is None else xp.concat([R, C], axis=0))
        return R
