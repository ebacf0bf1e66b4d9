"""Tables with some rows left out, or some entries hidden: what cross-validation fits and scores.

Rows and entries are assigned to folds by the same draws however a table is chunked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.data.base import Plus, Statistic, Table, called, numbered
from dualpca.data.frames import Host
from dualpca.data.table import InMemoryTable

Change = Callable[[Any, int, Any], tuple[Any, Any]]
"""(rows, number of the chunk, weights or None) ↦ (rows, weights or None)."""

FOLDS = 5
"""Of every cross-validation."""

DRAWS_AT_ONCE = 2**20
"""Numbers drawn at once, to find where the draws of a chunk begin."""


def changed(table: Table, change: Change, d: int | None = None) -> Table:
    """Return a table with its rows changed: rows in memory once, chunks in every pass.

    Parameters
    ----------
    table : Table
    change : callable
        (rows, number of the chunk, weights) ↦ (rows, weights).
    d : int, optional
        Number of features, if it changes.

    Examples
    --------
    >>> table = InMemoryTable(np.arange(6.0).reshape(3, 2))
    >>> changed(table, lambda rows, number, weights: (rows[1:], weights)).n
    2
    """
    if isinstance(table, InMemoryTable):
        return InMemoryTable(*change(table.rows, 0, table.weights))
    return ChangedTable(table, change, d)


class ChangedTable(Table):
    """A chunked table seen through a function."""

    def __init__(self, table: Table, change: Change, d: int | None = None) -> None:
        super().__init__(table.d if d is None else d, table.dtype)
        self.table, self.change, self.route = table, change, table.route

    def reduce(self, of: Callable[..., Any], plus: Plus[Statistic]) -> Statistic:
        """Return the sum of a statistic over the chunks that still have rows."""
        change = self.change

        @numbered
        def through(rows: Host, number: int, weights: Host | None = None) -> Any:
            rows, weights = change(rows, number, weights)
            return called(of, rows, number, weights) if len(rows) else None

        return self.table.reduce(through, plus)


# --- Rows ----------------------------------------------------------------------------------------


def row_folds(table: Table, seed: int = 0) -> dict[int, Host]:
    """Return the fold of every row, a vector per chunk; one pass.

    About ten bytes per row are held here while folds are drawn, one after that.

    Examples
    --------
    >>> from dualpca.data.table import SlicedTable
    >>> folds = row_folds(SlicedTable(np.zeros((10, 2)), part_rows=6))
    >>> [len(one) for one in folds.values()], np.bincount(np.concatenate([*folds.values()]))
    ([6, 4], array([2, 2, 2, 2, 2]))
    """
    sizes = table.sizes()
    n = sum(sizes.values())
    order, fold = np.random.default_rng(seed).permutation(n), np.empty(n, dtype=np.int8)
    for k, held in enumerate(np.array_split(order, min(FOLDS, n))):
        fold[held] = k
    ends = np.cumsum(list(sizes.values()))[:-1]
    return dict(zip(sizes, np.split(fold, ends), strict=True))


def fold_rows(table: Table, folds: dict[int, Host], k: int, *, held: bool) -> Table:
    """Return a table of the rows that fold k holds out, or of all others."""

    def choose(rows: Array, number: int, weights: Array | None) -> tuple[Array, Array | None]:
        index = np.flatnonzero((folds[number] == k) == held)
        return backend.take(rows, index), None if weights is None else backend.take(weights, index)

    return changed(table, choose)


def subset_columns(table: Table, index: Host) -> Table:
    """Return a table of the features with these numbers; the same table if those are all."""
    if len(index) == table.d:
        return table
    return changed(table, lambda rows, _, w: (backend.take(rows, index, axis=1), w), len(index))


# --- Entries -------------------------------------------------------------------------------------


class EntryFolds:
    """Which entries every fold hides: each observed one once, a fifth of them at a time.

    A feature that is observed fewer than ten times is never hidden from. Draws are made where
    they are needed, from the stream of all rows; those of a single chunk are kept.

    Parameters
    ----------
    table : Table
    seed : int
    at_once : int
        Draws that are held at once.
    """

    def __init__(self, table: Table, seed: int = 0, at_once: int = DRAWS_AT_ONCE) -> None:
        sizes, seen = table.reduce(_observations, lambda a, b: (a[0] | b[0], a[1] + b[1]))
        self.often: Host = seen >= 2 * FOLDS
        self.begin: dict[int, Any] = {}
        # a stream of its own: not the numbers that removed entries with the same seed
        rng = np.random.default_rng([seed, FOLDS, table.d])
        for number, size in sorted(sizes.items()):
            self.begin[number] = rng.bit_generator.state
            for cut in backend.slices(size, max(1, at_once // table.d)):
                rng.integers(FOLDS, size=(cut.stop - cut.start, table.d))
        self.kept: Host | None = None
        if len(sizes) == 1:
            self.kept = self._drawn(number, (size, table.d)).astype(np.int8)

    def _drawn(self, number: int, shape: tuple[int, ...]) -> Host:
        rng = np.random.default_rng()
        rng.bit_generator.state = self.begin[number]
        return rng.integers(FOLDS, size=shape)

    def hidden(self, rows: Array, number: int, k: int) -> Array:
        """Return a mask of the entries of a chunk that fold k hides."""
        xp, drawn = backend.namespace(rows), self.kept
        drawn = self._drawn(number, rows.shape) if drawn is None else drawn
        mine = xp.asarray((drawn == k) & self.often, device=backend.device_of(rows))
        return mine & ~xp.isnan(rows)

    def hide(self, table: Table, k: int) -> Table:
        """Return the table without the entries that fold k hides."""

        def shown(rows: Array, number: int, weights: Array | None) -> tuple[Array, Array | None]:
            xp = backend.namespace(rows)
            return xp.where(self.hidden(rows, number, k), xp.full_like(rows, np.nan), rows), weights

        return changed(table, shown)


@numbered
def _observations(
    rows: Array, number: int, weights: Array | None = None
) -> tuple[dict[int, int], Host]:
    """Return the size of a chunk, and how many of its rows observe every feature."""
    xp = backend.namespace(rows)
    seen = xp.sum(xp.astype(~xp.isnan(rows), xp.int64), axis=0)
    return {number: int(rows.shape[0])}, backend.to_numpy(seen)
