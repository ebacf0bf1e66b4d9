"""Rows as a table: an array is one chunk; a file, a list of arrays or an iterator are many.

Chunks read by this process are read one ahead of the computation. `chunked_table` is where a Dask
array, a path or an array on disk becomes a table of many chunks.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, cycle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dualpca.arrays import backend, cached_property, memory, task
from dualpca.data import frames
from dualpca.data.atomic import replacing
from dualpca.data.base import (
    Chunk,
    ChunkedTable,
    Gathered,
    Look,
    Plus,
    Prepared,
    Ready,
    Statistic,
    Table,
    apply,
    as_rows,
    called,
    join,
    read_ahead,
    with_row_weights,
)
from dualpca.data.columns import (
    COLUMNS,
    Transposed,
    chunks_of,
    projections,
    refuse_long_rows,
    splits_columns,
)
from dualpca.data.frames import Host
from dualpca.data.moments import NARROW, Moments
from dualpca.errors import NonFiniteError, ScaleError, expected

TALL = 10
"""Rows per feature from which every fit of a narrow table forms the scatter."""


class InMemoryTable(Table):
    """Rows in memory, of any array library, dense or sparse: a table of one chunk.

    Parameters
    ----------
    rows : array or sparse matrix of shape (n, d), or items of any kind (n,)
    weights : array of shape (n,), optional
    names : list of str, optional

    Examples
    --------
    >>> InMemoryTable(np.ones((3, 2))).reduce(np.sum, lambda a, b: a + b)
    np.float64(6.0)
    """

    route = "rows in memory"
    n: int

    def __init__(self, rows: Any, weights: Any = None, names: list[str] | None = None) -> None:
        self.rows, self.weights, self.names = rows, weights, names
        self.n, self.d = int(rows.shape[0]), int(rows.shape[1]) if rows.ndim > 1 else 1
        self.dtype = rows.dtype

    @property
    def like(self) -> Any:
        """No rows, of the library, device and dtype that results are given in."""
        return backend.no_rows(self.rows)

    @cached_property
    def moments(self) -> Moments | None:
        """Size, mean and scatter, if rows are complete, narrow, tall, dense and without weights.

        A fit needs them anyway, and they tell whether values are missing and which columns vary.
        """
        if self.weights is not None or not backend.is_plain(self.rows):
            return None
        if self.d > NARROW or int(self.rows.shape[0]) < TALL * self.d:
            return None
        try:
            return Moments.of(self.rows)
        except (NonFiniteError, ScaleError):
            return None

    def taking(self, index: Host) -> InMemoryTable:
        """Return the rows with these numbers; the table itself if there are as many."""
        if len(index) == self.n:
            return self
        weights = None if self.weights is None else backend.take(self.weights, index)
        return InMemoryTable(backend.take(self.rows, index), weights, self.names)

    def prepared(self, prepare: Callable[..., Ready]) -> Prepared[Ready]:
        """Return the rows as `prepare(rows, weights)` makes them, once."""
        return Prepared(self, prepare, prepare(self.rows, self.weights))

    def reduce(self, of: Callable[..., Any], plus: Plus[Statistic]) -> Statistic:
        """Return the statistic of the only chunk."""
        return called(of, self.rows, 0, self.weights)  # type: ignore[no-any-return]


def in_memory(table: Table, remedy: str) -> InMemoryTable:
    """Return a table of rows in memory as it is; refuse others, with what to do."""
    if not isinstance(table, InMemoryTable):
        raise ValueError(expected("X", "rows in memory here", type(table).__name__, remedy))
    return table


class LocalTable(ChunkedTable):
    """Chunks that this process reads itself, one ahead of the one it works on."""

    _once = False  # True for what can be read a single time

    @abstractmethod
    def parts(self, *, reuse: bool = False) -> Iterator[Chunk]:
        """Read all chunks, from the first; with `reuse`, later ones may overwrite earlier ones."""

    def picked(self, cuts: Mapping[int, slice]) -> list[Host]:
        """Return some rows of some chunks; reading ends with the last of them.

        Parameters
        ----------
        cuts : mapping of int to slice
            Rows of each chunk, under its number.

        Returns
        -------
        rows : list of arrays
            In the order of the chunks.

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import Batches
        >>> table = Batches([np.zeros((2, 3)), np.ones((4, 3)), np.ones((1, 3))])
        >>> [rows.shape for rows in table.picked({0: slice(None), 1: slice(0, 4, 2)})]
        [(2, 3), (2, 3)]
        """
        found = []
        for part in self.parts():
            if part.number in cuts:
                found.append(np.array(part.rows[cuts[part.number]]))
            if part.number >= max(cuts):
                break
        return found

    def first(self, look: Look | None = None) -> Chunk | None:
        """Return the first chunk with rows in it; the next pass gets it back.

        Parameters
        ----------
        look : callable, default=None
            Function of the chunk that returns what to keep of it.

        Returns
        -------
        chunk : Chunk or None
            None for a table without rows.

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import Batches
        >>> table = Batches([np.zeros((2, 3)), np.ones((1, 3))])
        >>> table.first().rows.shape
        (2, 3)
        """
        part = self._first()
        return part if part is None or look is None else look(part)

    def _first(self) -> Chunk | None:
        return next((part for part in self.parts() if len(part.rows)), None)

    def reduce(self, of: Callable[..., Any], plus: Plus[Statistic]) -> Statistic:
        """Return the sum of `of(rows)` over all chunks; `of` may keep no rows but copies.

        Parameters
        ----------
        of : callable
            Function of the rows of a chunk.
        plus : callable
            Sum of two results.

        Returns
        -------
        total : object
            Result of `of` for all chunks together.

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import Batches
        >>> table = Batches([np.zeros((2, 3)), np.ones((1, 3))])
        >>> float(table.reduce(lambda rows: rows.sum(), lambda a, b: a + b))
        3.0
        """
        total: Statistic | None = None
        n = 0
        for part in self._read():
            total = join(plus, total, apply(of, part))
            n += len(part.rows)
        if self.n is not None and n != self.n:
            what = f"a table of the same rows in every pass, {self.n}"
            remedy = "A callable must return a fresh iterator; for other rows make other Batches."
            raise ValueError(expected("X", what, n, remedy))
        self.n = n
        if total is None:
            raise ValueError(f"Found array with 0 sample(s): {self.route} holds no rows.")
        return total

    def each(self, of: Callable[[Host], Statistic]) -> Iterator[Statistic]:
        """Yield the result of every chunk that has rows, in their order.

        Parameters
        ----------
        of : callable
            Function of the rows of a chunk.

        Yields
        ------
        result : object

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import Batches
        >>> table = Batches([np.zeros((2, 3)), np.ones((1, 3))])
        >>> list(table.each(len))
        [2, 1]
        """
        for part in self._read():
            found = apply(of, part)
            if found is not None:
                yield found

    def projected(
        self,
        origin: tuple[Host, Host | None],
        axes: Host,
        of: Callable[[Host], Host],
        width: int | None,
        dtype: Any,
        *,
        off: bool = True,
    ) -> Any:
        """Return what is made of the projections of the columns, as `dualpca.Batches` of one batch.

        Parameters
        ----------
        origin : tuple of two arrays of shape (n,)
            Mean and scale; the latter may be None.
        axes : array of shape (q, n)
        of : callable
            Function of the projections, (d, q + 1).
        width : int or None
            Number of columns of the result; None for one-dimensional results.
        dtype : dtype
            Of the result.
        off : bool, default=True
            Measure the squared distances off the axes, in a second pass.

        Returns
        -------
        results : Batches

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import Batches
        >>> table = Batches([np.ones((2, 4)), np.zeros((1, 4))])
        >>> origin, axes = (np.zeros(3), None), np.array([[1.0, 0.0, 0.0]])
        >>> next(iter(table.projected(origin, axes, lambda found: found, 2, float)))[0]
        array([1., 1.])
        """
        file = npy_file(axes.T)  # read, not mapped: maps count as memory of this process

        def there(columns: slice) -> Host:
            return axes[:, columns].T if file is None else file.read(columns, None)

        def results() -> Iterator[Host]:
            yield of(projections(self._read, self.d, origin, there, len(axes), off=off))

        return Batches(results)

    def _read(self) -> Iterator[Chunk]:
        """Read all chunks ahead, each of which may be overwritten by later ones; show progress."""
        chunks = read_ahead(self.parts(reuse=True))
        if self.label is None:
            yield from chunks
            return
        with task(self.label, self._count()) as tick:
            for part in chunks:
                yield part
                tick()

    def _count(self) -> int:
        """Return the number of chunks, where that is known."""
        raise TypeError(f"the chunks of {type(self).__name__} are not counted")

    def with_weights(self, weights: Host) -> ChunkedTable:
        """Return the same rows with weights.

        Parameters
        ----------
        weights : array of shape (n,)

        Returns
        -------
        table : ChunkedTable

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import Batches
        >>> table = Batches([np.zeros((2, 3)), np.ones((1, 3))])
        >>> table.with_weights(np.ones(3)).sizes()
        {0: 2, 1: 1}
        """
        view = ChunkView(self, partial(_weighed, weights))
        view.weights, view.by_columns = weights, with_row_weights(self, weights)
        return view

    def seen(self, of: Callable[[Host], Host]) -> ChunkedTable:
        """Return the same table with `of(rows)` in place of rows.

        Parameters
        ----------
        of : callable
            Function of the rows of a chunk that returns rows.

        Returns
        -------
        table : ChunkedTable

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import Batches
        >>> table = Batches([np.zeros((2, 3)), np.ones((1, 3))])
        >>> next(table.seen(lambda rows: rows[:, :2]).parts()).rows.shape
        (2, 2)
        """
        return ChunkView(self, lambda parts: (part._replace(rows=of(part.rows)) for part in parts))

    def map(self, of: Callable[[Host], Host], width: int | None, dtype: Any) -> Any:
        """Return the results as `dualpca.Batches`, computed when they are read.

        Parameters
        ----------
        of : callable
            Function of the rows of a chunk.
        width : int or None
            Number of columns of the result; None for one-dimensional results.
        dtype : dtype
            Of the result.

        Returns
        -------
        results : Batches

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import Batches
        >>> table = Batches([np.zeros((2, 3)), np.ones((1, 3))])
        >>> table.map(lambda rows: 2 * rows, 3, float).first().rows.shape
        (2, 3)
        """

        def results() -> Iterator[Host]:
            found = (apply(of, part) for part in read_ahead(self.parts()))
            return (rows for rows in found if rows is not None)

        return Batches(results)

    def beside(self, other: Table) -> ChunkedTable:
        """Return one table with the columns of both; the other one may be in memory.

        Parameters
        ----------
        other : Table
            Table with the same rows.

        Returns
        -------
        table : ChunkedTable

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import Batches
        >>> table = Batches([np.zeros((2, 3)), np.ones((1, 3))])
        >>> table.beside(table).like.shape[1]
        6
        """
        second = SlicedTable(other.rows) if isinstance(other, InMemoryTable) else other
        if not isinstance(second, LocalTable):
            raise ValueError(expected("y", "read by this process, as X is", type(other).__name__))
        once = self._once or second._once
        return Batches(_pairs(self, second) if once else lambda: _pairs(self, second))


class ChunkView(LocalTable):
    """The chunks of another table, changed as they are read: with weights, or through a function.

    Examples
    --------
    >>> from dualpca.data.table import SlicedTable
    >>> weighted = SlicedTable(np.ones((3, 1)), part_rows=2).with_weights(np.array([1.0, 2.0, 3.0]))
    >>> weighted.reduce(lambda rows, weights: float(weights @ rows[:, 0]), float.__add__)
    6.0
    >>> seen = SlicedTable(np.ones((3, 1)), part_rows=2).seen(lambda rows: 2 * rows)
    >>> float(seen.reduce(np.sum, lambda a, b: a + b))
    6.0
    """

    weights: Host | None = None

    def __init__(
        self, table: LocalTable, change: Callable[[Iterator[Chunk]], Iterator[Chunk]]
    ) -> None:
        super().__init__(table.d, table.dtype, table.n, table.names)
        self.table, self.change = table, change
        self.route, self._once = table.route, table._once

    def _first(self) -> Chunk | None:
        part = self.table._first()
        return None if part is None else next(self.change(iter([part])))

    def parts(self, *, reuse: bool = False) -> Iterator[Chunk]:
        """Read all chunks, from the first."""
        return self.change(self.table.parts(reuse=reuse))


def _weighed(weights: Host, parts: Iterator[Chunk]) -> Iterator[Chunk]:
    """Yield chunks with their weights; there must be as many as rows."""
    row, shape = 0, weights.shape
    for part in parts:
        row = part.first + len(part.rows)
        if row > len(weights):
            raise ValueError(expected("sample_weight", f"one per row, {row} or more", shape))
        yield part._replace(weights=weights[part.first : row])
    if row != len(weights):
        raise ValueError(expected("sample_weight", f"one per row, {row}", shape))


# --- Arrays on disk or in memory as chunked tables: blocks of their rows, read one ahead ----------

BLOCK_BYTES_READ = 2**24
"""Bytes of a block that is read at once: a few of them are all that is ever held."""

BUFFERS = 3
"""Blocks alive at once: one worked on, one being read, one to spare."""


class SlicedTable(LocalTable):
    """Rows of something that can be sliced: an array on disk (NumPy, Zarr, HDF5) or in memory.

    Parameters
    ----------
    table : array-like with `shape`, `dtype` and slicing, or the path of a .npy file
        Files and memory maps are read with file reads, not through the map, so that what has been
        read does not count as memory of this process.
    part_rows : int, optional
        Rows of a block; by default as many as 16 MB hold, in whole chunks of a chunked array.

    Examples
    --------
    >>> X = np.arange(12.0).reshape(6, 2)
    >>> float(SlicedTable(X, part_rows=4).reduce(np.sum, lambda a, b: a + b))
    66.0
    """

    def __init__(self, table: Any, part_rows: int | None = None) -> None:
        self.file = npy_file(table)
        shape, dtype = (table.shape, table.dtype) if self.file is None else self.file[:2]
        frames.check_table("X", shape, dtype)
        super().__init__(int(shape[1]), dtype, int(shape[0]))
        self.table, self.stored = table, np.dtype(dtype)
        self.step = part_rows or self._default_rows()
        self.route = "blocks of a file" if self.file is not None else "blocks of a table"
        if part_rows is None and splits_columns(int(shape[0]), self.d, chunks_of(table)):
            transposed = self._mapped().T if self.file is not None else Transposed(table)
            self.by_columns = SlicedTable(transposed)
            self.by_columns.route, self.by_columns.label = f"columns, in {self.route}", COLUMNS

    def _count(self) -> int:
        return -(-int(self.n or 0) // self.step)

    def _mapped(self) -> Host:
        return mapped(self.table) if isinstance(self.table, str | os.PathLike) else self.table

    def _default_rows(self) -> int:
        """Return how many rows fit into a block, rounded to whole chunks."""
        rows = max(1, BLOCK_BYTES_READ // max(self.stored.itemsize * self.d, 1))
        chunks = chunks_of(self.table)
        return rows if chunks is None else max(1, rows // chunks[0]) * chunks[0]

    def parts(self, *, reuse: bool = False) -> Iterator[Chunk]:
        """Read all blocks, into the same few buffers where fresh memory would cost as much."""
        n, file, buffers = int(self.n or 0), self.file, None
        if self.by_columns is not None:
            refuse_long_rows(min(self.step, n), self.d, self.stored)
        if reuse and file is not None and not file.by_column:
            size = (min(self.step, n), self.d)
            buffers = cycle([np.empty(size, dtype=self.stored) for _ in range(BUFFERS)])
        for number, rows in enumerate(backend.slices(n, self.step)):
            if file is None:
                memory.check_map(self.table)
                block = self.table[rows]
            else:
                block = file.read(rows, None if buffers is None else next(buffers))
            yield Chunk(as_rows(block, self.d, number), number, rows.start)


class NpyFile(NamedTuple):
    """Where a .npy file or a memory map has its numbers."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    offset: int  # of the first entry
    path: str
    by_column: bool  # columns are contiguous

    def read(self, rows: slice, buffer: Host | None) -> Host:
        """Read rows into a buffer, or into fresh memory; by column, one column at a time."""
        (n, d), count = self.shape, rows.stop - rows.start
        if self.by_column:
            columns = np.empty((d, count), dtype=self.dtype)
            for j in range(d):
                self._fill(columns[j], j * n + rows.start)
            return columns.T
        block = np.empty((count, d), dtype=self.dtype) if buffer is None else buffer[:count]
        self._fill(block, rows.start * d)
        return block

    def _fill(self, block: Host, entry: int) -> None:
        """Fill a contiguous array, from this entry of the file on."""
        view = memoryview(block.view(np.uint8).reshape(-1))  # type: ignore[arg-type]
        with open(self.path, "rb") as file:
            file.seek(self.offset + entry * self.dtype.itemsize)
            if file.readinto(view) < len(view):
                raise ValueError(f"{self.path} became shorter while it was read. Write it again.")


def npy_file(table: Any) -> NpyFile | None:
    """Return where a .npy file or a memory map has its numbers; None for anything else.

    A map that was sliced with steps, or that keeps changes to itself, is read as an array.
    """
    if isinstance(table, str | os.PathLike):
        table = np.load(Path(table), mmap_mode="r")  # raises for pickles, says what is wrong
    if not isinstance(table, np.memmap) or table.filename is None or table.mode == "c":
        return None
    flags, whole = table.flags, table
    if table.ndim != 2 or not (flags.c_contiguous or flags.f_contiguous):
        return None
    while isinstance(whole.base, np.memmap):
        whole = whole.base
    begin = table.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    shape, offset = (int(table.shape[0]), int(table.shape[1])), int(whole.offset) + begin
    return NpyFile(
        shape, table.dtype, offset, os.fspath(table.filename), by_column=not flags.c_contiguous
    )


# --- Tables that come in batches: Parquet, lists, iterators --------------------------------------

BATCH_ROWS = 65_536

MANY_PASSES = (
    "Give something that can be read again: a callable that returns a fresh iterator, a list, a "
    "folder of Parquet files; or a fit that needs one pass only (PCA or closed-form PPCA of "
    "complete rows)."
)


class Batches(LocalTable):
    """A table too large for memory, read in batches; every estimator's `fit` accepts it.

    Parameters
    ----------
    source : path, list, callable or iterable
        A .npy file; a Parquet file or a folder of them (with `pyarrow`); a Zarr array or another
        thing that can be sliced; a frame; a list of arrays, frames or paths; a callable that
        returns a fresh iterator over arrays or frames of rows; an iterable. A generator can be
        read once only: enough for PCA and closed-form PPCA of complete rows, refused by what
        reads the rows several times.
    columns : list of str, default=None
        The columns of frames and Parquet files to read, in this order; all by default.
    batch_rows : int, default=None
        Rows read at once, where the source leaves a choice.

    Notes
    -----
    A few batches are in memory at a time: one that is worked on and one that is read ahead.
    Methods such as `transform` return Batches again, computed when they are read: iterate over
    them, give them to the `fit` of another model, or write them with `save`.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import PCA, Batches
    >>> rng = np.random.default_rng(0)
    >>> chunks = [rng.normal(size=(100, 3)) * [3.0, 2.0, 1.0] for _ in range(5)]
    >>> model = PCA(2).fit(Batches(chunks))
    >>> model.n_samples_, [Z.shape for Z in model.transform(Batches(chunks))][:2]
    (500, [(100, 2), (100, 2)])
    """

    route = "batches"

    def __init__(
        self, source: Any, columns: list[str] | None = None, batch_rows: int | None = None
    ) -> None:
        if batch_rows is not None and (
            not isinstance(batch_rows, int | np.integer) or batch_rows is True or batch_rows < 1
        ):
            raise ValueError(expected("batch_rows", "a positive integer", batch_rows))
        if isinstance(columns, str):
            raise ValueError(expected("columns", "a list of names", columns))
        self.columns, self.batch_rows = None if columns is None else list(columns), batch_rows
        self._once = isinstance(source, Iterator)
        self._fresh = _reader(source, self.columns, batch_rows)
        self._started: Iterator[Any] | None = None
        self._spent = False

    def _open(self) -> Iterator[Any]:
        """Return all batches from the first, also where that one has been looked at."""
        started, self._started = self._started, None
        if started is not None:
            return started
        if self._once and self._spent:
            what, got = "readable more than once for this fit", "an iterator that has been read"
            raise ValueError(expected("the source of Batches", what, got, MANY_PASSES))
        self._spent = True
        return iter(self._fresh())

    def _first(self) -> Chunk:
        """Read the first batch, for width, dtype and names; the first pass gets it back.

        So nothing is lost where a callable returns the same iterator again and again.
        """
        items, found = self._open(), []
        for item in items:
            found.append(item)
            if len(frames.array_of(item, self.columns)):
                break
        if not found:
            raise ValueError("Found array with 0 sample(s): the batches hold no rows.")
        rows = as_rows(frames.array_of(found[-1], self.columns), None, len(found) - 1)
        n, names = vars(self).get("n"), frames.names_of(found[-1], self.columns)
        super().__init__(rows.shape[1], rows.dtype, n, names)
        self._started = chain(found, items)
        return Chunk(rows, 0, 0)

    def __getattr__(self, name: str) -> Any:
        """Look at the first batch when its width, dtype or names are first asked for.

        Not in the constructor: what is wrong with a file is said by the fit that reads it.
        """
        if name in ("d", "dtype", "n", "names") and "_fresh" in self.__dict__:
            self._first()
            return self.__dict__[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def parts(self, *, reuse: bool = False) -> Iterator[Chunk]:
        """Read all batches.

        Parameters
        ----------
        reuse : bool, default=False
            Allow the memory of a chunk to be used again for the next one.

        Returns
        -------
        chunks : iterator of Chunk

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import Batches
        >>> table = Batches([np.zeros((2, 3)), np.ones((1, 3))])
        >>> [chunk.rows.shape for chunk in table.parts()]
        [(2, 3), (1, 3)]
        """
        d, dtype, first = self.d, self.dtype, 0  # known from the first batch on
        for number, item in enumerate(self._open()):
            table = frames.array_of(item, self.columns)
            if table.ndim == 2 and len(table) == 0:
                continue
            rows, names = as_rows(table, d, number), frames.names_of(item, self.columns)
            if names is not None and self.names is not None and names != self.names:
                what = f"{self.names[:10]}, as in the first part"
                remedy = "Order them alike, or name them: Batches(source, columns=[...])."
                got = names[:10]
                raise ValueError(expected(f"the columns of part {number}", what, got, remedy))
            _check_dtype(number, rows.dtype, dtype)
            yield Chunk(rows.astype(dtype, copy=False), number, first)
            first += len(rows)

    def __iter__(self) -> Iterator[Host]:
        """Yield the batches as arrays, of one dimension where they have one."""
        return (frames.array_of(item, self.columns) for item in self._open())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all batches to one .npy file, whole or not at all.

        Parameters
        ----------
        path : path
            File to write; an existing one is replaced once the new one is complete.

        Returns
        -------
        None

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Batches([np.zeros((2, 3)), np.ones((1, 3))]).save(f"{folder}/a.npy")
        ...     np.load(f"{folder}/a.npy").shape
        (3, 3)
        """
        with replacing(path) as file:
            shape: tuple[int, ...] | None = None
            n, dtype = 0, np.dtype(np.float64)

            def write_header(whole: tuple[int, ...]) -> None:
                """Write the header of a .npy file; NumPy leaves room for n to grow."""
                entries = {"descr": dtype.str, "fortran_order": False, "shape": whole}
                np.lib.format.write_array_header_2_0(file, entries)

            for number, rows in enumerate(self):
                if shape is None:
                    shape, dtype = rows.shape[1:], rows.dtype
                    write_header((0, *shape))
                if rows.shape[1:] != shape:
                    what = f"rows of shape {shape}, as the first part"
                    raise ValueError(expected(f"part {number}", what, rows.shape[1:]))
                _check_dtype(number, rows.dtype, dtype)
                n += len(rows)
                file.write(np.ascontiguousarray(rows, dtype=dtype).data)
            if shape is None:
                raise ValueError("Found array with 0 sample(s): there is nothing to save.")
            file.seek(0)
            write_header((n, *shape))


def _check_dtype(number: int, dtype: np.dtype[Any], first: np.dtype[Any]) -> None:
    """Refuse numbers that would lose digits in the dtype of the first part."""
    if not np.can_cast(dtype, first):
        what, remedy = f"{first}, as of the first part", "Convert all parts to one dtype."
        raise ValueError(expected(f"the dtype of part {number}", what, str(dtype), remedy))


def _reader(
    source: Any, columns: list[str] | None, batch_rows: int | None
) -> Callable[[], Iterable[Any]]:
    """Return a function that opens the source from its beginning."""
    if isinstance(source, str | os.PathLike):
        source = [source]
    if frames.is_dask(source):
        what, remedy = "no Dask collection", "Pass that to fit as it is."
        raise ValueError(expected("the source of Batches", what, type(source).__name__, remedy))
    if frames.is_frame(source):
        return lambda: (source,)
    if callable(source):
        return source  # type: ignore[no-any-return]
    if isinstance(source, list | tuple):
        return lambda: chain.from_iterable(
            _file_batches(Path(item), columns, batch_rows)
            if isinstance(item, str | os.PathLike)
            else (item,)
            for item in source
        )
    if hasattr(source, "shape") and hasattr(source, "dtype"):
        blocks = SlicedTable(source, batch_rows)
        return lambda: (part.rows for part in blocks.parts())
    if isinstance(source, Iterable):
        return lambda: source
    what = "a path, a list, a callable that returns an iterator, or an iterable of arrays"
    raise ValueError(expected("the source of Batches", what, source))


def _file_batches(path: Path, columns: list[str] | None, batch_rows: int | None) -> Iterator[Any]:
    """Return the batches of a file or folder."""
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}: check the path.")
    if path.suffix == ".npy":
        return (part.rows for part in SlicedTable(mapped(path), batch_rows).parts())
    try:
        import pyarrow.dataset as datasets
    except ImportError as error:
        raise ImportError(f"reading {path} needs pyarrow: pip install pyarrow.") from error
    try:
        table = datasets.dataset(path, format="parquet")
    except (ValueError, OSError) as error:
        remedy = (
            "Open a Zarr array with zarr.open_array(path), read CSV with Batches(callable) or with "
            "the command dualpca."
        )
        what = "a .npy file, a Parquet file or a folder of Parquet files"
        raise ValueError(expected(str(path), what, str(error), remedy)) from error
    if columns is not None:
        frames.check_columns(columns, table.schema.names)
    _check_files(table, columns)
    return _arrow_batches(table, columns, batch_rows or BATCH_ROWS)


BUFFER_BYTES = 2**16
"""Bytes of a column of a Parquet file that are read at once."""


def _arrow_batches(table: Any, columns: list[str] | None, rows: int) -> Iterator[Any]:
    """Yield the batches of an Arrow dataset, file after file, decoded as they are asked for.

    A scan of the dataset would hold several row groups whole, as they are stored and decoded.
    """
    from pyarrow import schema
    from pyarrow.parquet import ParquetFile

    wanted = table.schema
    if columns is not None:
        wanted = schema([table.schema.field(name) for name in columns])
    for file in table.get_fragments():
        with ParquetFile(file.path, buffer_size=BUFFER_BYTES, pre_buffer=False) as source:
            for batch in source.iter_batches(rows, columns=columns):
                ordered = batch.select(wanted.names)
                same = ordered.schema.equals(wanted)
                yield ordered if same else ordered.cast(wanted)  # as the first file has them


def _check_files(table: Any, columns: list[str] | None) -> None:
    """Refuse files without the columns of the first: Arrow would fill or drop them silently."""
    wanted = set(columns or table.schema.names)
    for file in table.get_fragments():
        names = set(file.physical_schema.names)
        if not (wanted <= names if columns else wanted == names):
            odd = ", ".join(sorted(map(str, wanted - names or names - wanted)))
            what = f"it {'lacks' if wanted - names else 'alone has'} {odd}"
            remedy = "Give all files the same columns, or choose some with Batches(..., columns=)."
            raise ValueError(f"{file.path} differs from the other files: {what}. {remedy}")


def mapped(path: str | os.PathLike[str]) -> Host:
    """Map a .npy file into memory, unread."""
    try:
        return np.load(path, mmap_mode="r")  # type: ignore[no-any-return]
    except (ValueError, EOFError) as error:
        what = "a .npy file of numbers, whole"
        raise ValueError(expected(os.fspath(path), what, str(error), "Write it again.")) from error


# --- Two tables of the same rows, side by side ---------------------------------------------------


def beside(X: Table, Y: Table) -> Table:
    """Return both tables as one of d_x + d_y columns.

    Rows in memory are joined in float64, with the weights of the first table. A chunked table may
    have one in memory beside it.

    Examples
    --------
    >>> X, Y = np.arange(8.0).reshape(4, 2), np.arange(4.0)[:, None]
    >>> both = beside(SlicedTable(X, part_rows=3), SlicedTable(Y, part_rows=2))
    >>> float(both.reduce(np.sum, lambda a, b: a + b)), both.d
    (34.0, 3)
    """
    if isinstance(X, ChunkedTable):
        return X.beside(Y)
    if not (isinstance(X, InMemoryTable) and isinstance(Y, InMemoryTable)):
        raise ValueError(expected("y", "in memory, as X is", type(Y).__name__))
    rows = [backend.working(table.rows) for table in (X, Y)]
    return InMemoryTable(backend.namespace(rows[0]).concat(rows, axis=1), X.weights)


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


# --- What people have as a table ------------------------------------------------------------------

SHARE_OF_MEMORY = 0.25
"""Memory maps larger than this share of the free memory are read in chunks."""


def is_stored(X: Any) -> bool:
    """Return True if X is an array outside of memory that can be sliced, such as one of Zarr."""
    if isinstance(X, np.ndarray) or backend.is_foreign(X) or backend.is_sparse(X):
        return False
    return all(hasattr(X, name) for name in ("shape", "dtype", "chunks", "__getitem__"))


def is_path(X: Any) -> bool:
    """Return True if X is a path, or text that can only be meant as one.

    Examples
    --------
    >>> is_path("x.npy"), is_path("a word")
    (True, False)
    """
    if isinstance(X, str):
        return os.path.exists(X) or os.sep in X or bool(os.path.splitext(X)[1])
    return isinstance(X, os.PathLike)


def is_elsewhere(X: Any) -> bool:
    """Return True if X is a chunked table: batches, Dask, a stored array, or a path."""
    return isinstance(X, ChunkedTable) or is_path(X) or frames.is_dask(X) or is_stored(X)


def is_on_workers(table: Table) -> bool:
    """Return True for a Dask table: workers of a cluster, or threads in their place, hold it."""
    return frames.is_dask(getattr(table, "array", None))


def gathered(table: Any, device: str | None = None) -> Gathered | None:
    """Return all rows of a Dask table at once, with its workers, each on `device`; None of others.

    For fits that compare every row with every other.
    """
    found: Gathered | None = table.gathered(device) if is_on_workers(table) else None
    return found


def refuse_missing_path(X: Any) -> None:
    """Refuse a path that leads nowhere."""
    if is_path(X) and not os.path.exists(X):
        raise FileNotFoundError(
            f"there is no {os.fspath(X)!r}: X must be rows, or the path of a table. Check the path."
        )


def require_in_memory(X: Any, name: str = "X") -> None:
    """Refuse what is not in memory, masks, which NumPy would overlook, and dates.

    Examples
    --------
    >>> require_in_memory(np.zeros((2, 2)))
    """
    if type(X) is np.ndarray and X.dtype.kind in frames.NUMBERS:
        return
    frames.refuse_masked(X)
    refuse_missing_path(X)
    if type(X).__name__ == "LazyFrame":
        raise TypeError(f"{name} is a LazyFrame, a query that has not run: pass {name}.collect().")
    frames.refuse_dates(X, name)
    if is_elsewhere(X):
        raise ValueError(
            f"{name} must be rows in memory here, got {type(X).__name__}. Load them, or, where "
            "rows do not depend on each other, go through the table part by part."
        )


def chunked_table(X: Any, *, fitting: bool = True) -> ChunkedTable | None:
    """Return X as a chunked table, or None for data that are fitted in memory.

    Chunked: `Batches`, Dask arrays and frames, paths of files, things on disk that can be sliced
    (Zarr, HDF5), and, for `fit`, memory maps that are large beside the free memory.
    """
    if type(X) is np.ndarray:
        return None
    if isinstance(X, ChunkedTable):
        return X
    if frames.is_dask(X):
        from dualpca.data.dask_table import DaskTable

        return DaskTable.of(X)
    if isinstance(X, np.memmap):
        memory.check_map(X)
        large = fitting and X.nbytes > SHARE_OF_MEMORY * memory.free()
        return SlicedTable(X) if large else None
    if is_path(X):
        refuse_missing_path(X)
        return SlicedTable(mapped(X)) if Path(X).suffix == ".npy" else Batches(X)
    if is_stored(X):
        return SlicedTable(X)
    return None
