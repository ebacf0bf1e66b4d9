"""The centred, weighted, scaled rows as an operator that is never formed."""

from __future__ import annotations

from collections.abc import Iterator
from operator import iadd
from typing import NamedTuple

import numpy as np

from dualpca.arrays import Array, algebra, backend, cached_property

SAFE_OFFSET = 1e6
"""Largest n‖μ‖² / trace for which centring after the product loses no more than three digits."""

SPARSE_ENTRIES = 2**19
"""Entries of a block of sparse rows: they stay near the processor between F v and Fᵀ (F v), and
sums of float32 products are short enough to keep seven digits."""

FEW_PRODUCTS = 5e6
"""Multiply-adds that one thread does as fast as two, rows being multiplied where they are."""


class Projection(NamedTuple):
    """Where points are relative to a subspace: coordinates in it, squared distance from it."""

    coordinates: Array  # (n, q)
    residual: Array  # (n,)


class ProjectedRows(NamedTuple):
    """Rows that are known by their projection on the axes of a model, and not held."""

    projection: Projection
    shape: tuple[int, int]  # of the rows


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

    def columns(self, which: slice) -> Frame:
        """Return the frame of some of the features."""
        return Frame(self.mean[which], None if self.scale is None else self.scale[which])

    def coordinates(self, V: Array, X: Array, *, near: bool = False) -> Array:
        """Return (x − mean)/scale · V for every row, (n, q); O(ndq) in blocks of rows.

        `near` where the mean is not far from zero beside the spread of the rows: X is then used as
        it is, and the product corrected.
        """
        if backend.is_sparse(X):
            V = V if self.scale is None else V / self.scale[:, None]
            return algebra.product(X, V) - self.mean @ V
        q = int(V.shape[1])
        plain = near and self.scale is None and backend.is_plain(X) and X.dtype == np.float64
        if plain and 4 * X.shape[0] > q:  # the mean costs less to project than to subtract
            few = X.shape[0] * V.size <= FEW_PRODUCTS
            found = algebra.in_small_products(X, V) if few else None
            return algebra.subtract_row(X @ V if found is None else found, self.mean @ V)

        def part(rows: slice, out: Array | None = None) -> Array:
            C = self.center(backend.row_block(X, rows))
            return C @ V if out is None else np.matmul(C, V, out=out)

        return backend.stacked_rows(part, q, X)

    def project(self, V: Array, X: Array) -> Projection:
        """Return coordinates along the columns of V and the squared distance off their span.

        The distance is taken from the difference itself, not from two large norms.
        """
        if isinstance(X, ProjectedRows):
            return X.projection
        xp, X = backend.namespace(X), backend.rowwise(X)

        def part(rows: slice) -> Array:
            Y, off = self.projected(V, backend.row_block(X, rows))
            return xp.concat([Y, off[:, None]], axis=1)

        both = backend.stacked(part, backend.row_slices(X), X)
        return Projection(both[:, :-1], both[:, -1])

    def projected(self, V: Array, C: Array, *, off: bool = True) -> Projection:
        """Return the same for a dense block of float64 rows; distances are zeros unless `off`."""
        C = self.center(C)
        found = algebra.in_small_products(C, V)
        Y = C @ V if found is None else found
        if not off:
            return Projection(Y, 0 * C[:, 0])
        C -= Y @ V.T
        return Projection(Y, algebra.squared_norms(C))

    def lift(self, V: Array, Y: Array) -> Array:
        """Return the rows on the span whose coordinates are Y, (n, d)."""
        return self.restore(Y @ V.T)

    def restore(self, C: Array) -> Array:
        """Return centred rows to the units and origin of the data."""
        return (C if self.scale is None else C * self.scale) + self.mean


def _plus(a: tuple[Array, ...], b: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(map(iadd, a, b))


class SparseBlocks:
    """Rows stored by rows, cut into blocks that share their memory.

    Parameters
    ----------
    X : sparse matrix of shape (n, d)
        CSR.
    """

    def __init__(self, X: Array) -> None:
        n, d = X.shape
        self.X, self.found, self.step = X, [], max(1, SPARSE_ENTRIES * n // max(int(X.nnz), 1))
        for rows in backend.slices(n, self.step):
            start, stop = int(X.indptr[rows.start]), int(X.indptr[rows.stop])
            kept, indptr = slice(start, stop), X.indptr[rows.start : rows.stop + 1] - start
            parts = (X.data[kept], X.indices[kept], indptr)
            C = type(X)(parts, shape=(rows.stop - rows.start, d), copy=False)
            self.found.append((C, C.T))

    def __getitem__(self, rows: slice) -> tuple[Array, Array]:
        """Return a block and its transpose."""
        found: tuple[Array, Array] = self.found[rows.start // self.step]
        return found

    @property
    def cut(self) -> tuple[Array, int]:
        """What `backend.summed` cuts into these blocks."""
        return self.X, self.step


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
        self.X, self.frame, self.shape = X, frame, (int(X.shape[0]), int(X.shape[1]))
        self.root = None if weights is None else xp.sqrt(weights)
        as_is = backend.is_sparse(X) or X.dtype == xp.float64
        self.explicit = explicit or not as_is or backend.is_sparse_tensor(X)
        self.in_blocks = not (backend.is_sparse(X) or backend.is_foreign(X))
        self.sparse = backend.is_sparse(X)

    @cached_property
    def _rowwise(self) -> Array:
        return backend.rowwise(self.X)

    @cached_property
    def _by_rows(self) -> SparseBlocks:
        """Sparse rows, cut."""
        return SparseBlocks(self._rowwise)

    @cached_property
    def _by_columns(self) -> SparseBlocks:
        """Columns of sparse rows, as rows, cut; a copy unless X is stored by columns."""
        return SparseBlocks(backend.rowwise(self.X.T))

    def block(self, rows: slice) -> Array:
        """Return some rows of F, dense, fresh and centred."""
        C = self.frame.center(backend.row_block(self._rowwise, rows))
        if self.root is not None:
            C *= self.root[rows][:, None]
        return C

    def blocks(self, at_least: int = 0) -> Iterator[tuple[slice, Array]]:
        """Yield blocks of rows of F, dense, fresh and centred."""
        n, d = self.shape
        for rows in backend.slices(n, max(backend.block_rows(d, self.X), at_least)):
            yield rows, self.block(rows)

    def column_blocks(self, at_least: int = 0) -> Iterator[Array]:
        """Yield blocks of columns of F, dense, fresh and centred."""
        n, d = self.shape
        for columns in backend.slices(d, max(backend.block_rows(n, self.X), at_least)):
            C = self.frame.columns(columns).center(backend.column_block(self.X, columns))
            if self.root is not None:
                C *= self.root[:, None]
            yield C

    def times(self, V: Array) -> Array:
        """Return F V, (n, b)."""
        if self.explicit:
            return backend.namespace(V).concat([C @ V for _, C in self.blocks()], axis=0)
        V = V if self.frame.scale is None else V / self.frame.scale[:, None]
        if self.sparse:
            cut = backend.slices(self.shape[0], self._by_rows.step)
            Y = backend.stacked(lambda rows: self._by_rows[rows][0] @ V, cut, self.X)
        else:
            Y = algebra.thin_product(self.X, V)
        Y -= self.frame.mean @ V
        return Y if self.root is None else Y * self.root[:, None]

    def adjoint(self, U: Array) -> Array:
        """Return Fᵀ U, (d, b)."""
        if self.explicit:
            return sum(C.T @ U[rows, :] for rows, C in self.blocks())
        xp = backend.namespace(U)
        U = U if self.root is None else U * self.root[:, None]
        if self.sparse:

            def part(rows: slice) -> Array:
                return backend.working(self._by_rows[rows][1] @ U[rows, :])

            out = backend.summed(part, iadd, *self._by_rows.cut)
        else:
            out = algebra.thin_product(self.X.T, U)
        out -= self.frame.mean[:, None] * xp.sum(U, axis=0)[None, :]
        return out if self.frame.scale is None else out / self.frame.scale[:, None]

    def normal(self, V: Array) -> Array:
        """Return FᵀF V, (d, b); where rows are dense, in one read of them."""
        if self.explicit:

            def centred(rows: slice) -> Array:
                C = self.block(rows)
                return C.T @ algebra.rows_times(C, V)

            return backend.summed(centred, iadd, self._rowwise)
        if not self.in_blocks and not self.sparse:
            return self.adjoint(self.times(V))
        mean, scale = self.frame
        given = V.dtype
        V = backend.contiguous(V if scale is None else V / scale[:, None])
        shift = mean @ V

        def part(rows: slice) -> tuple[Array, Array]:
            C, Ct = self._by_rows[rows] if self.sparse else (self.X[rows, :], None)
            Y = algebra.rows_times(C, V) if Ct is None else C @ V.astype(given, copy=False)
            Y -= shift
            if self.root is not None:
                Y *= self.root[rows][:, None] ** 2
            product = Y.T @ C if Ct is None else backend.working(Ct @ Y).T
            return product, Y.sum(axis=0, dtype=np.float64)

        out, total = backend.summed(part, _plus, *(self._by_rows.cut if self.sparse else (self.X,)))
        out -= total[:, None] * mean
        return (out if scale is None else out / scale).T

    def mirrored(self, U: Array) -> Array:
        """Return FFᵀ U, (n, b), in one read of the columns.

        Two reads take PCA of 800×20,000 rows from 2.2 to 2.5 s.
        """
        if self.explicit:
            return sum(C @ (C.T @ U) for C in self.column_blocks())
        if not self.in_blocks and not self.sparse:
            return self.times(self.adjoint(U))
        mean, scale = self.frame
        given = U.dtype
        U = U if self.root is None else U * self.root[:, None]
        Ut = backend.contiguous(U.T)
        sums = Ut.sum(axis=1, dtype=np.float64)[:, None]
        if self.sparse:
            return self._sparse_mirrored(backend.contiguous(U.astype(given, copy=False)), sums.T)

        def part(columns: slice) -> tuple[Array, Array]:
            C = self.X[:, columns]
            Z = Ut @ C
            Z -= sums * mean[columns]
            if scale is not None:
                Z /= scale[columns] ** 2
            return algebra.rows_times(C, Z.T), Z @ mean[columns]

        out, total = backend.summed(part, _plus, self.X.T)
        out -= total
        return out if self.root is None else out * self.root[:, None]

    def _sparse_mirrored(self, U: Array, sums: Array) -> Array:
        """Return the same of sparse rows; U has their weights, and these sums of its columns."""
        mean, scale = self.frame

        def part(columns: slice) -> tuple[Array, Array]:
            C, Ct = self._by_columns[columns]
            Z, mu = C @ U, mean[columns, None]
            Z -= mu * sums
            if scale is not None:
                Z /= scale[columns, None] ** 2
            return backend.working(Ct @ Z), (mu * Z).sum(axis=0)

        out, total = backend.summed(part, _plus, *self._by_columns.cut)
        out -= total
        return out if self.root is None else out * self.root[:, None]

    def row_gram(self) -> Array:
        """Return FFᵀ, (n, n)."""
        out = backend.asarray(np.zeros((self.shape[0],) * 2), self.frame.mean)
        for C in self.column_blocks():
            out += algebra.gram(C.T)
        return out

    def triangle(self, transpose: bool = False) -> Array:
        """Return R with RᵀR = FᵀF (or FFᵀ), by QR of one block after another."""
        xp, (n, d) = backend.namespace(self.X), self.shape
        rows = (C for _, C in self.blocks(2 * d))
        R = None
        for C in (C.T for C in self.column_blocks(2 * n)) if transpose else rows:
            R = algebra.triangular_factor(C if R is None else xp.concat([R, C], axis=0))
        return R
