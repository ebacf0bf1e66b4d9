"""The kernel over the points as an operator: tiles that are evaluated at every product, or kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.kernels import Kernel

TILE, SMALL_TILE, CARD_TILE = 1024, 256, 4096
"""Points on either side of a tile: its kernel values fit into the cache. Small kernels have small
tiles, so that all threads have some; graphics cards like large ones."""

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
    Only the tiles on and above the diagonal are evaluated (and kept, n²/2 numbers); each serves
    twice.
    """

    eps = float(np.finfo(np.float64).eps)
    """Relative rounding error of the values that come in."""
    coarse = False
    """Whether products are rounded so much that an iteration may not get below it."""

    def __init__(
        self, X: Array, kernel: Kernel, *, single: bool = False, stored: bool = False
    ) -> None:
        self.kernel, self.keep = kernel, stored
        self.single = single and X.ndim == 2 and not _array.is_sparse(X)
        self.points = X
        self.n = int(X.shape[0])
        self.tile = max(SMALL_TILE, min(CARD_TILE if _array.on_cuda(X) else TILE, self.n // 3))
        self.like = _array.asarray(np.zeros(1), _array.vector_like(X))

    @cached_property
    def origin(self) -> Array | None:
        """Where float32 points are measured from, if the kernel does not mind."""
        if not (self.single and self.kernel.invariant) or _array.is_sparse(self.points):
            return None
        return _array.namespace(self.points).mean(_array.working(self.points), axis=0)

    @cached_property
    def _seen(self) -> Array:
        """The points as the kernel is to see them: shifted, in the dtype of the evaluation."""
        X = self.points
        if X.ndim == 1 or _array.is_sparse(X):
            return _array.points(X)
        X = X if self.origin is None else _array.working(X) - self.origin
        return _array.in_single(X) if self.single else _array.working(X)

    @cached_property
    def _prepared(self) -> list[Callable[[Array], Array]]:
        """Return x ↦ k(x, y) for the points y of every column of tiles."""
        cut = _array.slices(self.n, self.tile)
        return [self.kernel.against(_array.some_rows(self._seen, columns)) for columns in cut]

    @cached_property
    def _tiles(self) -> list[Tile]:
        cut = list(_array.slices(self.n, self.tile))
        return [(rows, columns) for k, columns in enumerate(cut) for rows in cut[: k + 1]]

    def _evaluated(self, tile: Tile) -> Array:
        rows, columns = tile
        return self._prepared[columns.start // self.tile](_array.some_rows(self._seen, rows))

    @cached_property
    def _kept(self) -> dict[tuple[int, int], Array]:
        """The tiles, evaluated."""
        _ = self._prepared

        def work(tiles: list[Tile]) -> dict[tuple[int, int], Array]:
            return {(t[0].start, t[1].start): self._evaluated(t) for t in tiles}

        found: dict[tuple[int, int], Array] = {}
        for part in _array.spread(work, self._tiles, self.like):
            found |= part
        return found

    def _source(self) -> Callable[[Tile], Array]:
        """Return the way to a tile, with what all tiles need done."""
        if not self.keep:
            _ = self._prepared
            return self._evaluated
        kept = self._kept
        return lambda tile: kept[tile[0].start, tile[1].start]

    def each_tile(self) -> Iterator[tuple[slice, slice, Array]]:
        """Yield the tiles on and above the diagonal, with their rows and columns."""
        tile = self._source()
        for rows, columns in self._tiles:
            yield rows, columns, tile((rows, columns))

    def fill(self, K: Array) -> None:
        """Write K into an array."""
        tile = self._source()

        def work(tiles: list[Tile]) -> None:
            for rows, columns in tiles:
                part = tile((rows, columns))
                K[rows, columns] = part
                if rows != columns:
                    K[columns, rows] = part.T

        _array.spread(work, self._tiles, self.like)

    def times(self, V: Array) -> Array:
        """Return K V, (n, b); in the precision of the kernel values, summed in float64."""
        if self.single:
            return self._half_times(self._source(), _array.in_single(V))
        return self._half_times_transposed(self._source(), V)

    def _half_times(self, tile: Callable[[Tile], Array], V: Array) -> Array:
        def work(tiles: list[Tile]) -> Array:
            Y = _array.asarray(np.zeros(V.shape), self.like)
            for rows, columns in tiles:
                part = tile((rows, columns))
                Y[rows, :] += part @ V[columns, :]
                if rows != columns:
                    Y[columns, :] += part.T @ V[rows, :]
            return Y

        return _total(_array.spread(work, self._tiles, self.like))

    def _half_times_transposed(self, tile: Callable[[Tile], Array], V: Array) -> Array:
        """Return the same from Vᵀ: in float64 OpenBLAS is a third faster that way."""
        Vt = _array.contiguous(V.T)

        def work(tiles: list[Tile]) -> Array:
            Y = _array.asarray(np.zeros(Vt.shape), self.like)
            for rows, columns in tiles:
                part = tile((rows, columns))
                Y[:, columns] += Vt[:, rows] @ part
                if rows != columns:
                    Y[:, rows] += Vt[:, columns] @ part.T
            return Y

        return _total(_array.spread(work, self._tiles, self.like)).T

    def times_in_double(self, V: Array) -> Array:
        """Return K V with float32 values of K where those are kept, but products in float64."""
        if not self.single:
            return self.times(V)
        if not self.keep:
            return self.in_double().times(V)
        tile = self._source()
        return self._half_times_transposed(lambda which: _array.working(tile(which)), V)

    def in_double(self) -> Gram:
        """Return the kernel with values in float64."""
        return Gram(self.points, self.kernel) if self.single else self

    def diag(self) -> Array:
        """Return the diagonal, (n,), in float64."""
        return _array.working(self.kernel.diag(_array.points(self.points)))

    def corner(self, step: int) -> Array:
        """Return K among every `step`-th point, (m, m), in float64."""
        few = _array.some_rows(self._seen, slice(None, None, step))
        return _array.working(self.kernel(few, few))

    def led(self, step: int, V: Array) -> Array:
        """Return K[:, ::step] V, (n, b), in float64: from a few points to all of them."""
        few = self.kernel.against(_array.some_rows(self._seen, slice(None, None, step)))
        small, xp = _array.in_single(V) if self.single else V, _array.namespace(self.like)

        def work(cut: list[slice]) -> list[Array]:
            parts = [few(_array.some_rows(self._seen, rows)) @ small for rows in cut]
            return [_array.working(part) for part in parts]

        found = _array.spread(work, list(_array.slices(self.n, self.tile // 2)), self.like)
        return xp.concat([part for run in found for part in run], axis=0)

    @property
    def fill_cost(self) -> float:
        """Multiply-adds of evaluating K once."""
        width = 1 if self.points.ndim == 1 else self.points.shape[1]
        return 0.5 * self.n**2 * (width + TRANSCENDENTAL)

    @property
    def pass_cost(self) -> float:
        """Multiply-adds of a product with one vector, a share of one with a block."""
        return float(self.n**2) + (0.0 if self.keep else self.fill_cost / BLOCK)


def stored_bytes(n: int, *, single: bool = False) -> float:
    """Return what the kept tiles of n points take: half a matrix, and the diagonal's other half."""
    return 0.5 * n * (n + min(n, TILE)) * (4 if single else 8)


def _total(parts: list[Array]) -> Array:
    """Return the sum, in the first of the parts."""
    for other in parts[1:]:
        parts[0] += other
    return parts[0]


class Given(Gram):
    """A kernel matrix that is there already, (n, n): its upper triangle. Never modified."""

    def __init__(self, K: Array, kernel: Kernel) -> None:
        super().__init__(K, kernel, stored=True)
        self.matrix = K
        self.eps = float(_array.namespace(K).finfo(K.dtype).eps)

    def _source(self) -> Callable[[Tile], Array]:
        return lambda tile: _array.working(self.matrix[tile[0], tile[1]])

    def diag(self) -> Array:
        """Return the diagonal, (n,), in float64."""
        return _array.working(_array.namespace(self.like).linalg.diagonal(self.matrix))

    def corner(self, step: int) -> Array:
        """Return K among every `step`-th point, (m, m)."""
        return _array.working(self.matrix[::step, ::step])

    def led(self, step: int, V: Array) -> Array:
        """Return K[:, ::step] V, (n, b)."""
        return _array.working(self.matrix[::step, :]).T @ V

    fill_cost = 0.0
