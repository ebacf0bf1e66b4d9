"""The kernel over the points as an operator: evaluated tile by tile, or stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.kernels import Kernel

TILE = 1024
"""Points on either side of a tile: its kernel values fit into the cache."""

TRANSCENDENTAL, BLOCK = 60.0, 28.0
"""Multiply-adds that take the time of one exponential; columns of a usual block, twice."""

Tile = tuple[slice, slice]


class Gram:
    """K with K_ij = k(x_i, x_j), (n, n), known through its products.

    Parameters
    ----------
    X : array of shape (n, d), or (n,) for kernels of other objects
    kernel : Kernel
    single : bool
        Evaluate (and store) in float32: half the memory and the time. Sums run in float64.
    stored : bool
        Keep K once it was evaluated. Otherwise every product evaluates it anew, and memory stays
        O(n) a column.

    Notes
    -----
    Only the tiles on and above the diagonal are evaluated; each serves twice.
    """

    def __init__(
        self, X: Array, kernel: Kernel, *, single: bool = False, stored: bool = False
    ) -> None:
        self.kernel, self.keep = kernel, stored
        self.single = single and X.ndim == 2 and not _array.is_sparse(X)
        self.points = X
        self.n = int(X.shape[0])
        self.like = _array.asarray(np.zeros(1), _array.vector_like(X))

    @cached_property
    def origin(self) -> Array | None:
        """Where float32 points are measured from, if the kernel does not mind."""
        if not (self.single and self.kernel.invariant) or _array.is_sparse(self.points):
            return None
        return _array.namespace(self.points).mean(_array.working(self.points), axis=0)

    def _placed(self, X: Array) -> Array:
        """Return points as the kernel is to see them: shifted, in the dtype of the evaluation."""
        if X.ndim == 1 or _array.is_sparse(X):
            return _array.points(X)
        X = X if self.origin is None else _array.working(X) - self.origin
        return _array.in_single(X) if self.single else _array.working(X)

    @cached_property
    def _seen(self) -> Array:
        return self._placed(self.points)

    @cached_property
    def _prepared(self) -> list[Callable[[Array], Array]]:
        """Return x ↦ k(x, y) for the points y of every column of tiles."""
        cut = _array.slices(self.n, TILE)
        return [self.kernel.against(_array.some_rows(self._seen, columns)) for columns in cut]

    def _tiles(self) -> list[Tile]:
        cut = list(_array.slices(self.n, TILE))
        return [(rows, columns) for k, columns in enumerate(cut) for rows in cut[: k + 1]]

    def _tile(self, tile: Tile) -> Array:
        rows, columns = tile
        return self._prepared[columns.start // TILE](_array.some_rows(self._seen, rows))

    def each_tile(self) -> Iterator[tuple[slice, slice, Array]]:
        """Yield the tiles on and above the diagonal, with their rows and columns."""
        for rows, columns in self._tiles():
            yield rows, columns, self._tile((rows, columns))

    @cached_property
    def matrix(self) -> Array:
        """K itself, (n, n)."""
        K = _array.empty((self.n, self.n), self.like, single=self.single)
        self.fill(K)
        return K

    def fill(self, K: Array) -> None:
        """Write K into an array."""
        _ = self._prepared

        def work(tiles: list[Tile]) -> None:
            for rows, columns in tiles:
                part = self._tile((rows, columns))
                K[rows, columns] = part
                if rows != columns:
                    K[columns, rows] = part.T

        _array.spread(work, self._tiles(), self.like)

    def times(self, V: Array) -> Array:
        """Return K V, (n, b); in the precision of the kernel values, summed in float64."""
        return self._stored_times(V) if self.keep else self._evaluated_times(V)

    def _evaluated_times(self, V: Array) -> Array:
        _ = self._prepared
        small = _array.in_single(V) if self.single else V

        def work(tiles: list[Tile]) -> Array:
            Y = _array.asarray(np.zeros(V.shape), V)
            for rows, columns in tiles:
                part = self._tile((rows, columns))
                Y[rows, :] += part @ small[columns, :]
                if rows != columns:
                    Y[columns, :] += part.T @ small[rows, :]
            return Y

        found = _array.spread(work, self._tiles(), self.like)
        for other in found[1:]:
            found[0] += other
        return found[0]

    def _stored_times(self, V: Array) -> Array:
        small = _array.in_single(V) if self.single else V
        return _array.working((_array.contiguous(small.T) @ self.matrix).T)

    def times_in_double(self, V: Array) -> Array:
        """Return K V with float32 values of K, but products in float64."""
        if not self.single or not self.keep:
            return self._double().times(V) if self.single else self.times(V)
        K, xp = self.matrix, _array.namespace(V)

        def work(cut: list[slice]) -> list[Array]:
            return [_array.working(K[rows, :]) @ V for rows in cut]

        cut = list(_array.slices(self.n, _array.block_rows(self.n)))
        found = _array.spread(work, cut, self.like)
        return xp.concat([part for run in found for part in run], axis=0)

    def _double(self) -> Gram:
        return Gram(self.points, self.kernel)

    def diag(self) -> Array:
        """Return the diagonal, (n,), in float64."""
        return _array.working(self.kernel.diag(_array.points(self.points)))

    def columns(self, index: Any) -> Array:
        """Return the columns of K at the points `index`, (n, m), in float64."""
        few = self._prepared_for(index)
        xp = _array.namespace(self.like)

        def work(cut: list[slice]) -> list[Array]:
            return [_array.working(few(_array.some_rows(self._seen, rows))) for rows in cut]

        cut = list(_array.slices(self.n, TILE))
        found = _array.spread(work, cut, self.like)
        return xp.concat([part for run in found for part in run], axis=0)

    def _prepared_for(self, index: Any) -> Callable[[Array], Array]:
        return self.kernel.against(_array.take(self._seen, index))

    @property
    def fill_cost(self) -> float:
        """Multiply-adds of evaluating K once."""
        width = 1 if self.points.ndim == 1 else self.points.shape[1]
        return 0.5 * self.n**2 * (width + TRANSCENDENTAL)

    @property
    def pass_cost(self) -> float:
        """Multiply-adds of a product with one vector, a share of one with a block."""
        return float(self.n**2) + (0.0 if self.keep else self.fill_cost / BLOCK)


class Given(Gram):
    """A kernel matrix that is there already, (n, n). Never modified."""

    def __init__(self, K: Array, kernel: Kernel) -> None:
        super().__init__(K, kernel, stored=True)
        self.matrix = K

    def fill(self, K: Array) -> None:
        """Copy the matrix."""
        K[:, :] = self.matrix

    def diag(self) -> Array:
        """Return the diagonal, (n,), in float64."""
        return _array.working(_array.namespace(self.like).linalg.diagonal(self.matrix))

    def _stored_times(self, V: Array) -> Array:
        return _array.working(self.matrix) @ V

    def _tile(self, tile: Tile) -> Array:
        return self.matrix[tile[0], tile[1]]

    def columns(self, index: Any) -> Array:
        """Return the columns at `index`, (n, m)."""
        xp = _array.namespace(self.like)
        where = xp.asarray(index, device=_array.device_of(self.like))
        return _array.working(xp.take(self.matrix, where, axis=1))

    fill_cost = 0.0
