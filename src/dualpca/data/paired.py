"""Two tables in parts, side by side: the rows of one beside those of the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dualpca.data.table import Batches, ChunkedTable, Host, LocalTable, SlicedTable
from dualpca.errors import expected


def beside(X: ChunkedTable, Y: ChunkedTable | Host) -> ChunkedTable:
    """Return both tables as one of d_x + d_y columns; parts need not be cut alike.

    Examples
    --------
    >>> X, Y = np.arange(8.0).reshape(4, 2), np.arange(4.0)[:, None]
    >>> both = beside(SlicedTable(X, part_rows=3), SlicedTable(Y, part_rows=2))
    >>> float(both.reduce(np.sum, lambda a, b: a + b)), both.d
    (34.0, 3)
    """
    if not isinstance(X, LocalTable):
        from dualpca.data.dask_table import beside_dask

        return beside_dask(X, Y)
    second = Y if isinstance(Y, ChunkedTable) else SlicedTable(Y)
    if not isinstance(second, LocalTable):
        raise ValueError(expected("y", "read by this process, as X is", type(Y).__name__))
    if getattr(X, "once", False) or getattr(second, "once", False):
        return Batches(_pairs(X, second))
    return Batches(lambda: _pairs(X, second))


def _pairs(X: LocalTable, Y: LocalTable) -> Iterator[Host]:
    """Yield the parts of X with as many rows of Y beside them."""
    rows = _Reader(Y)
    for part in X.parts():
        yield np.concatenate([part.rows, rows.take(len(part.rows))], axis=1)
    if rows.left():
        raise ValueError(expected("y", "as many rows as X", "more"))


class _Reader:
    """Rows of a table, as many at a time as they are asked for."""

    def __init__(self, table: LocalTable) -> None:
        self.parts = table.parts()
        self.waiting: Host = np.empty((0, table.d), dtype=table.dtype)

    def take(self, count: int) -> Host:
        """Return the next rows."""
        while len(self.waiting) < count:
            part = next(self.parts, None)
            if part is None:
                raise ValueError(expected("y", "as many rows as X", "fewer"))
            self.waiting = np.concatenate([self.waiting, part.rows])
        found, self.waiting = self.waiting[:count], self.waiting[count:]
        return found

    def left(self) -> bool:
        """Tell whether rows are left."""
        return len(self.waiting) > 0 or any(len(part.rows) for part in self.parts)
