"""Tables in parts with some rows or entries held out: the folds that they have in memory.

Rows and entries are assigned to folds by the same draws, so whoever chooses by them chooses alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dualpca.arrays import backend
from dualpca.data.table import Host, Statistic, Table, counting

Change = Callable[[Host, int, Host], tuple[Host, Host]]
"""(rows, number of the part, weights) ↦ (rows, weights)."""

FOLDS = 5
"""Of every cross-validation."""

DRAWN = 2**20
"""Numbers drawn at once, to find where the draws of a part begin."""


def row_folds(parts: Table, seed: int = 0) -> dict[int, Host]:
    """Return the fold of every row, a vector a part; one pass.

    About ten bytes a row are held here while folds are drawn, one after that.

    Examples
    --------
    >>> from dualpca.data.table import SlicedTable
    >>> folds = row_folds(SlicedTable(np.zeros((10, 2)), part_rows=6))
    >>> [len(one) for one in folds.values()], np.bincount(np.concatenate([*folds.values()]))
    ([6, 4], array([2, 2, 2, 2, 2]))
    """
    sizes = parts.sizes()
    n = sum(sizes.values())
    order, fold = np.random.default_rng(seed).permutation(n), np.empty(n, dtype=np.int8)
    for k, held in enumerate(np.array_split(order, min(FOLDS, n))):
        fold[held] = k
    ends = np.cumsum(list(sizes.values()))[:-1]
    return dict(zip(sizes, np.split(fold, ends), strict=True))


class Changed(Table):
    """A table in parts seen through a function: with some entries hidden, or some rows left out.

    Every row has a weight then: that of the row before it was changed.
    """

    def __init__(self, parts: Table, change: Change, d: int | None = None) -> None:
        super().__init__(parts.d if d is None else d, parts.dtype)
        self.parts, self.change = parts, change

    def reduce(
        self, of: Callable[..., Any], plus: Callable[[Statistic, Statistic], Statistic]
    ) -> Statistic:
        """Return the sum of `of(rows, weights=weights)` over the parts that still have rows."""
        return self.parts.reduce(_Through(self.change, of), plus)


class _Through:
    """A statistic of changed rows."""

    numbered = True

    def __init__(self, change: Change, of: Callable[..., Any]) -> None:
        self.change, self.of = change, of

    def __call__(self, rows: Host, number: int, weights: Host | None = None) -> Any:
        w = counting(rows, np.ones(len(rows))) if weights is None else weights
        rows, w = self.change(rows, number, w)
        if len(rows) == 0:
            return None
        if getattr(self.of, "numbered", False):
            return self.of(rows, number, weights=w)
        return self.of(rows, weights=w)


class EntryFolds:
    """Which entries every fold hides: drawn where they are needed, from the stream of all rows.

    Parameters
    ----------
    parts : Table
    seed : int
    """

    def __init__(self, parts: Table, seed: int = 0) -> None:
        sizes, seen = parts.reduce(_count_seen, _add_counts)
        self.d, self.often, self.begin = parts.d, seen >= 2 * FOLDS, {}
        rng = np.random.default_rng([seed, FOLDS, parts.d])
        for number, size in sorted(sizes.items()):
            self.begin[number] = rng.bit_generator.state
            for cut in backend.slices(size, max(1, DRAWN // parts.d)):
                rng.integers(FOLDS, size=(cut.stop - cut.start, parts.d))

    def __call__(self, rows: Host, number: int) -> Host:
        """Return the fold that hides each entry of a part, −1 for none."""
        rng = np.random.default_rng()
        rng.bit_generator.state = self.begin[number]
        drawn = rng.integers(FOLDS, size=rows.shape)
        return np.where(~np.isnan(rows) & self.often, drawn, -1)


class _CountSeen:
    """Size of a part, and how many of its rows observe every feature."""

    numbered = True

    def __call__(
        self, rows: Host, number: int, weights: Host | None = None
    ) -> tuple[dict[int, int], Host]:
        return {number: len(rows)}, (~np.isnan(rows)).sum(axis=0)


_count_seen = _CountSeen()


def _add_counts(a: tuple[dict[int, int], Host], b: tuple[dict[int, int], Host]) -> Any:
    return a[0] | b[0], a[1] + b[1]
