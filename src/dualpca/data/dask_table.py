"""Dask arrays and frames as tables in parts: statistics are made where the rows are.

Only this module imports Dask. The scheduler is the user's: an open `distributed.Client`, or
Dask's threads. A sum over all rows is a tree: every partition gives its statistic, eight of them
are added where they are, and so on; the last one is all that comes to this process.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import dask.array
import numpy as np
from dask.base import compute
from dask.delayed import delayed

from dualpca.data.frames import is_number
from dualpca.data.table import Chunk, ChunkedTable, Host, Statistic, apply, as_rows, join
from dualpca.errors import NonFiniteError, expected

FAN_IN = 8
"""Statistics that are added at once: deep enough for thousands of partitions in four levels."""


class DaskTable(ChunkedTable):
    """A Dask array, (n, d), in parts: its chunks of rows.

    Parameters
    ----------
    array : dask.array.Array of shape (n, d)
        Chunks of rows; n and the sizes of chunks may be unknown.
    names : list of str, optional

    Notes
    -----
    Every pass computes the array anew, from wherever it comes: `persist()` it on a cluster whose
    memory holds it, where a fit takes many passes (EM).
    """

    weights: Any = None  # a Dask array, one block a partition, where the workers are

    def __init__(self, array: Any, names: list[str] | None = None) -> None:
        if array.ndim != 2:
            raise ValueError(expected("X", "a 2-dimensional Dask array", array.shape))
        if np.dtype(array.dtype).kind not in "fiub":
            raise ValueError(expected("the dtype of X", "a real number's", array.dtype))
        across = array.numblocks[1]
        if across > 1:
            array = array.rechunk({1: -1})
        if np.isnan(array.shape[1]):
            remedy = "Call compute_chunk_sizes() first."
            raise ValueError(expected("X", "of a known number of columns", array.shape, remedy))
        n = None if np.isnan(array.shape[0]) else int(array.shape[0])
        super().__init__(int(array.shape[1]), array.dtype, n, names)
        self.array = array
        self.route = f"Dask, {array.numblocks[0]} partitions"
        if across > 1:
            self.route += f" ({across} chunks along the columns are joined, which moves all rows)"

    @classmethod
    def of(cls, X: Any) -> DaskTable:
        """Return a Dask array or frame as a table in parts.

        Examples
        --------
        >>> DaskTable.of(dask.array.ones((10, 3), chunks=(4, 3))).route
        'Dask, 3 partitions'
        """
        if isinstance(X, dask.array.Array):
            return cls(X)
        if not hasattr(X, "to_dask_array") or getattr(X, "ndim", 0) != 2:
            raise ValueError(expected("X", "a Dask array or frame of two dimensions", type(X)))
        bad = [str(c) for c, t in zip(X.columns, X.dtypes, strict=True) if not is_number(t)]
        if bad:
            remedy = "Choose the numeric ones: X[columns]."
            raise ValueError(expected("columns of X", "numeric", bad[:10], remedy))
        names = list(X.columns)
        array = X.to_dask_array()
        if array.dtype == object:  # truths beside numbers, or pandas' own dtypes, with gaps or not
            array = X.astype(np.float64).to_dask_array()
        return cls(array, names if all(isinstance(name, str) for name in names) else None)

    def reduce(
        self, of: Callable[..., Any], plus: Callable[[Statistic, Statistic], Statistic]
    ) -> Statistic:
        """Return the sum of `of(rows)` over all partitions, added up in a tree."""
        shared = delayed(_Work(of, plus), pure=False)
        first = _starts(self.array.chunks[0])
        blocks = self.array.to_delayed().ravel()
        weights = [None] * len(blocks) if self.weights is None else self.weights.to_delayed()
        level = [
            delayed(_leaf)(shared, block, k, first[k], self.d, weights[k])
            for k, block in enumerate(blocks)
        ]
        while len(level) > 1:
            groups = [level[i : i + FAN_IN] for i in range(0, len(level), FAN_IN)]
            level = [delayed(_branch)(shared, group) for group in groups]
        total: Statistic | None = compute(level[0])[0]  # type: ignore[no-untyped-call]
        if total is None:
            raise ValueError(f"Found array with 0 sample(s): {self.route} hold no rows.")
        return total

    def weighing(self, weights: Host) -> ChunkedTable:
        """Return the same rows with weights, (n,); every partition is sent its own, once."""
        other = copy(self)
        sizes = self.array.chunks[0]
        if any(np.isnan(size) for size in sizes):
            found = self.sizes()
            sizes = tuple(found.get(k, 0) for k in range(len(sizes)))
        if sum(sizes) != len(weights):
            raise ValueError(expected("sample_weight", f"one a row, {sum(sizes)}", weights.shape))
        lazy: Any = dask.array.from_array(weights, chunks=(sizes,))  # type: ignore[no-untyped-call]
        other.weights = lazy.persist()
        return other

    def head(self, rows: int) -> list[Chunk]:
        """Return the leading partitions, as many as hold `rows` rows, or all."""
        found: list[Chunk] = []
        first = _starts(self.array.chunks[0])
        for k, block in enumerate(self.array.to_delayed().ravel()):
            table = as_rows(compute(block)[0], self.d, k)  # type: ignore[no-untyped-call]
            found.append(Chunk(table, k, first[k]))
            if sum(len(one.rows) for one in found) >= rows:
                break
        return [part for part in found if len(part.rows)]

    def map(self, of: Callable[[Host], Host], width: int | None, dtype: Any) -> Any:
        """Return a Dask array of the results, not computed yet."""
        rows = self.array.chunks[0]
        meta = np.empty((0,) if width is None else (0, 0), dtype=dtype)
        work = _OnBlock(of, self.d, _starts(rows))
        if width is None:
            return self.array.map_blocks(work, dtype=dtype, meta=meta, drop_axis=1, chunks=(rows,))
        chunks = (rows, (width,))
        return self.array.map_blocks(work, dtype=dtype, meta=meta, chunks=chunks)


def beside_dask(X: Any, Y: Any) -> DaskTable:
    """Return a Dask table with another one, or rows of this process, beside it."""
    rows = X.array.chunks[0]
    if isinstance(Y, DaskTable):
        known = not np.isnan(sum(rows)) and not np.isnan(sum(Y.array.chunks[0]))
        if known and X.array.shape[0] != Y.array.shape[0]:
            raise ValueError(expected("y", f"{X.array.shape[0]} rows, as X", Y.array.shape[0]))
        second = Y.array.rechunk({0: rows}) if known else Y.array
    elif isinstance(Y, np.ndarray) and len(Y) == sum(rows):
        second = dask.array.from_array(Y, chunks=(rows, -1))  # type: ignore[no-untyped-call]
    else:
        what = "a Dask table, or an array of as many rows as X"
        raise ValueError(expected("y", what, f"{type(Y).__name__} of shape {np.shape(Y)}"))
    joined: Any = dask.array.concatenate
    return DaskTable(joined([X.array, second], axis=1, allow_unknown_chunksizes=True))


class _Work:
    """What is done with every partition, sent once for all of them."""

    def __init__(self, of: Callable[..., Any], plus: Callable[[Any, Any], Any]) -> None:
        self.of, self.plus = of, plus


class _OnBlock:
    """A function of checked rows as one of blocks; `first` are the rows that they begin at."""

    def __init__(self, of: Callable[[Host], Host], d: int, first: list[int]) -> None:
        self.of, self.d, self.first = of, d, first
        self.__name__ = str(getattr(of, "__name__", "rows"))  # what Dask calls the results

    def __call__(self, block: Any, block_id: tuple[int, ...] = (0,)) -> Host:
        """Return what is made of a block; `block_id` is given by Dask."""
        number = block_id[0]
        try:
            return self.of(as_rows(block, self.d, number))
        except NonFiniteError as error:
            raise error.moved(self.first[number], number) from None


def _leaf(work: _Work, block: Any, number: int, first: int, d: int, weights: Host | None) -> Any:
    """Return the statistic of one partition."""
    return apply(work.of, Chunk(as_rows(block, d, number), number, first, weights))


def _branch(work: _Work, statistics: list[Any]) -> Any:
    """Add statistics, in their order: the result does not depend on who is done first."""
    total = None
    for one in statistics:
        total = join(work.plus, total, one)
    return total


def _starts(sizes: tuple[Any, ...]) -> list[int]:
    """Return the row that every chunk begins at, −1 where that is not known."""
    if any(np.isnan(size) for size in sizes):
        return [-1] * len(sizes)
    return [0, *(int(end) for end in np.cumsum(sizes)[:-1])]
