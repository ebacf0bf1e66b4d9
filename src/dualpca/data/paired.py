"""Two tables of the same rows, side by side."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dualpca.arrays import backend
from dualpca.data.table import Batches, Host, InMemoryTable, LocalTable, SlicedTable, Table
from dualpca.errors import expected


def beside(X: Table, Y: Table) -> Table:
    """Return both tables as one of d_x + d_y columns; chunks need not be cut alike.

    Rows in memory are joined in float64, with the weights of the first table. A chunked table may
    have one in memory beside it.

    Examples
    --------
    >>> X, Y = np.arange(8.0).reshape(4, 2), np.arange(4.0)[:, None]
    >>> both = beside(SlicedTable(X, part_rows=3), SlicedTable(Y, part_rows=2))
    >>> float(both.reduce(np.sum, lambda a, b: a + b)), both.d
    (34.0, 3)
    """
    if isinstance(X, InMemoryTable) and isinstance(Y, InMemoryTable):
        rows = [backend.working(table.rows) for table in (X, Y)]
        return InMemoryTable(backend.namespace(rows[0]).concat(rows, axis=1), X.weights)
    if not isinstance(X, LocalTable):
        from dualpca.data.dask_table import beside_dask

        return beside_dask(X, Y.rows if isinstance(Y, InMemoryTable) else Y)
    second = SlicedTable(Y.rows) if isinstance(Y, InMemoryTable) else Y
    if not isinstance(second, LocalTable):
        raise ValueError(expected("y", "read by this process, as X is", type(Y).__name__))
    if getattr(X, "once", False) or getattr(second, "once", False):
        return Batches(_pairs(X, second))
    return Batches(lambda: _pairs(X, second))


def _pairs(X: LocalTable, Y: LocalTable) -> Iterator[Host]:
    """Yield the chunks of X with as many rows of Y beside them."""
    parts = Y.parts()
    waiting: Host = np.empty((0, Y.d), dtype=Y.dtype)
    for part in X.parts():
        count = len(part.rows)
        while len(waiting) < count:
            more = next(parts, None)
            if more is None:
                raise ValueError(expected("y", "as many rows as X", "fewer"))
            waiting = np.concatenate([waiting, more.rows])
        yield np.concatenate([part.rows, waiting[:count]], axis=1)
        waiting = waiting[count:]
    if len(waiting) or any(len(part.rows) for part in parts):
        raise ValueError(expected("y", "as many rows as X", "more"))
