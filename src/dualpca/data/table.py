"""Rows as a table: an array is one block, a file, a list of chunks or an iterator are many.

Models that need only sums over rows need not see all rows at once. A table can be asked for its
first rows, for a sample, and for the sum of a statistic over all of them. What this process reads
itself it reads one block ahead of the computing; Dask collections are in `dask_table`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from queue import Full, Queue
from threading import Event, Thread
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from dualpca.data.atomic import replacing
from dualpca.data.frames import (
    array_of,
    check_columns,
    is_dask,
    is_frame,
    names_of,
    refuse_masked,
    refuse_sparse,
)
from dualpca.errors import NonFiniteError, expected

# --- Reading ahead: the next item is on its way while this one is used ---------------------------

Item = TypeVar("Item")

PATIENCE = 0.1
"""Seconds after which a reader that waits looks whether anybody still wants its item."""


def ahead(items: Iterable[Item], room: int = 1) -> Iterator[Item]:
    """Yield items that a thread reads ahead; its errors come out here, in their place.

    Examples
    --------
    >>> list(ahead(range(3)))
    [0, 1, 2]
    """
    reader = _Reader(items, room)
    reader.start()
    try:
        while True:
            more, item = reader.queue.get()
            if more:
                yield item
            elif item is None:
                return
            else:
                raise item
    finally:
        reader.closed.set()
        reader.join()


class _Reader(Thread):
    """Puts items into a queue until they end, or nobody wants them any more."""

    def __init__(self, items: Iterable[Any], room: int) -> None:
        super().__init__(daemon=True, name="dualpca-reader")
        self.items, self.closed = items, Event()
        self.queue: Queue[tuple[bool, Any]] = Queue(room)

    def run(self) -> None:
        """Read all items; last comes None, or the error that ended them."""
        try:
            for item in self.items:
                if not self._put((True, item)):
                    return
            self._put((False, None))
        except BaseException as error:
            self._put((False, error))

    def _put(self, entry: tuple[bool, Any]) -> bool:
        while not self.closed.is_set():
            try:
                self.queue.put(entry, timeout=PATIENCE)
                return True
            except Full:
                continue
        return False


# --- Tables: rows over which statistics add ------------------------------------------------------

Host = np.ndarray[Any, Any]
Statistic = TypeVar("Statistic")
Ready = TypeVar("Ready")


class Chunk(NamedTuple):
    """Some rows, their number among the parts, and the row they begin at (−1: not known)."""

    rows: Host  # (b, d)
    number: int
    first: int
    weights: Host | None = None  # (b,)


class Table(ABC):
    """Rows over which statistics can be added up, and nothing else: d features, `n` if counted.

    Parameters
    ----------
    d : int
    dtype : NumPy dtype
        float32 or float64: what results are given in.
    n : int, optional
    names : list of str, optional
    """

    route = "rows"
    """How it is read, in words, for `verbose`."""

    def __init__(
        self, d: int, dtype: Any, n: int | None = None, names: list[str] | None = None
    ) -> None:
        self.d, self.n, self.names = d, n, names
        self.dtype = np.dtype(np.float32 if np.dtype(dtype) == np.float32 else np.float64)

    @property
    def like(self) -> Host:
        """An empty table of the dtype that results are given in."""
        return np.empty((0, self.d), dtype=self.dtype)

    @abstractmethod
    def reduce(
        self, of: Callable[..., Any], plus: Callable[[Statistic, Statistic], Statistic]
    ) -> Statistic:
        """Return the sum of `of(rows)` over all parts; `of` may be sent to other machines.

        Where `of` has an attribute `numbered`, it is called with the part's number too; where
        rows have weights, with `weights=` (b,). None says that a part has nothing to add.
        """

    def prepared(self, prepare: Callable[..., Ready]) -> Prepared[Ready]:
        """Return the chunks as `prepare(rows, weights)` makes them, for many statistics.

        Rows in memory are prepared once, chunks in every pass.
        """
        return Prepared(self, prepare)

    def sizes(self) -> dict[int, int]:
        """Return the number of rows of every part, under its number; one pass.

        Examples
        --------
        >>> from dualpca.data.table import SlicedTable
        >>> SlicedTable(np.zeros((5, 2)), part_rows=3).sizes()
        {0: 3, 1: 2}
        """
        return dict(sorted(self.reduce(_Size(), lambda a, b: a | b).items()))


class _Size:
    """The number of rows of a part, under its number."""

    numbered = True

    def __call__(self, rows: Host, number: int, weights: Host | None = None) -> dict[int, int]:
        return {number: int(rows.shape[0])}


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

    def __init__(self, rows: Any, weights: Any = None, names: list[str] | None = None) -> None:
        self.rows, self.weights, self.names = rows, weights, names
        self.n, self.d = int(rows.shape[0]), int(rows.shape[1]) if rows.ndim > 1 else 1
        self.dtype = rows.dtype

    @property
    def like(self) -> Any:
        """No rows, of the library, device and dtype that results are given in."""
        return self.rows[:0, :]

    def reduce(
        self, of: Callable[..., Any], plus: Callable[[Statistic, Statistic], Statistic]
    ) -> Statistic:
        """Return the statistic of the only chunk."""
        number = (0,) if getattr(of, "numbered", False) else ()
        weights = {} if self.weights is None else {"weights": self.weights}
        return of(self.rows, *number, **weights)  # type: ignore[no-any-return]

    def prepared(self, prepare: Callable[..., Ready]) -> Prepared[Ready]:
        """Return the rows as `prepare` makes them, once."""
        return Prepared(self, prepare, prepare(self.rows, self.weights))


class Prepared(Generic[Ready]):
    """A table whose chunks are made ready before a statistic is asked of them."""

    def __init__(
        self, table: Table, prepare: Callable[..., Ready], ready: Ready | None = None
    ) -> None:
        self.table, self.prepare, self.ready = table, prepare, ready

    def reduce(
        self,
        of: Callable[[Ready], Statistic],
        plus: Callable[[Statistic, Statistic], Statistic],
    ) -> Statistic:
        """Return the sum of `of(chunk)` over all chunks, each as `prepare` made it."""
        if self.ready is not None:
            return of(self.ready)
        prepare = self.prepare

        def both(rows: Host, weights: Host | None = None) -> Statistic:
            return of(prepare(rows, weights))

        return self.table.reduce(both, plus)


class ChunkedTable(Table):
    """A table in parts, as files, iterators and clusters hold one."""

    @abstractmethod
    def weighing(self, weights: Host) -> ChunkedTable:
        """Return the same rows with weights, (n,), which every statistic is then given."""

    @abstractmethod
    def map(self, of: Callable[[Host], Host], width: int | None, dtype: Any) -> Any:
        """Return the rows that `of` makes of rows, part by part, when they are asked for.

        `width` is their number of columns, None for one number a row.
        """

    @abstractmethod
    def head(self, rows: int) -> list[Chunk]:
        """Return the leading parts, as many as hold `rows` rows, or all."""

    def sample(self, rows: int, seed: int) -> Host:
        """Return `rows` rows drawn without replacement, in their order; all if there are fewer.

        One pass. Every row draws a number; those with the smallest are kept, so that the sample
        of all rows is made of the samples of the parts.

        Examples
        --------
        >>> from dualpca.data.table import SlicedTable
        >>> SlicedTable(np.arange(20.0).reshape(10, 2)).sample(3, seed=0).shape
        (3, 2)
        """
        drawn = self.reduce(_Draw(rows, seed), _merge_draws(rows))
        order = np.lexsort((drawn.row, drawn.part))
        return drawn.rows[order]


class Drawn(NamedTuple):
    """Rows of a sample with the numbers they drew."""

    rows: Host  # (m, d)
    lot: Host  # (m,)
    part: Host  # (m,)
    row: Host  # (m,)


class _Draw:
    """Draw a sample from one part."""

    numbered = True

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed = size, seed

    def __call__(self, rows: Host, number: int, weights: Host | None = None) -> Drawn:
        lot = np.random.default_rng([self.seed, number]).random(len(rows))
        kept = np.sort(np.argsort(lot, kind="stable")[: self.size])
        return Drawn(np.array(rows[kept]), lot[kept], np.full(len(kept), number), kept)


def _merge_draws(size: int) -> Callable[[Drawn, Drawn], Drawn]:
    def merge(a: Drawn, b: Drawn) -> Drawn:
        both = Drawn(*(np.concatenate(pair) for pair in zip(a, b, strict=True)))
        kept = np.argsort(both.lot, kind="stable")[:size]
        return Drawn(*(column[kept] for column in both))

    return merge


def apply(of: Callable[..., Statistic], part: Chunk) -> Statistic | None:
    """Return the statistic of one part, None if it has no rows; errors name the row of the table.

    Examples
    --------
    >>> apply(len, Chunk(np.zeros((3, 2)), 0, 0))
    3
    """
    if len(part.rows) == 0:
        return None
    number = (part.number,) if getattr(of, "numbered", False) else ()
    weights = {} if part.weights is None else {"weights": counting(part.rows, part.weights)}
    try:
        return of(part.rows, *number, **weights)
    except NonFiniteError as error:
        raise error.moved(part.first, part.number) from None


def counting(rows: Host, weights: Host) -> Host:
    """Return the weights, with 0 for rows that observe nothing: they say nothing.

    Examples
    --------
    >>> counting(np.array([[np.nan, np.nan], [np.nan, 1.0]]), np.array([2.0, 3.0]))
    array([0., 3.])
    """
    blank = np.isnan(rows[:, 0])
    if blank.any():
        blank[blank] = np.isnan(rows[blank]).all(axis=1)
    return np.where(blank, 0.0, weights) if blank.any() else weights


def join(
    plus: Callable[[Statistic, Statistic], Statistic], a: Statistic | None, b: Statistic | None
) -> Statistic | None:
    """Add two statistics, of which one may be of no rows."""
    if a is None or b is None:
        return b if a is None else a
    return plus(a, b)


class LocalTable(ChunkedTable):
    """Chunks that this process reads itself, one ahead of the one it works on."""

    @abstractmethod
    def parts(self) -> Iterator[Chunk]:
        """Read all parts, from the first."""

    def passing(self) -> Iterator[Chunk]:
        """Read all parts for one who keeps none of them: their memory may be used again."""
        return self.parts()

    def reduce(
        self, of: Callable[..., Any], plus: Callable[[Statistic, Statistic], Statistic]
    ) -> Statistic:
        """Return the sum of `of(rows)` over all parts; `of` may keep no rows but copies."""
        total: Statistic | None = None
        count = 0
        for part in ahead(self.passing()):
            total = join(plus, total, apply(of, part))
            count += len(part.rows)
        self._counted(count)
        if total is None:
            raise ValueError(f"Found array with 0 sample(s): {self.route} holds no rows.")
        return total

    def _counted(self, n: int) -> None:
        """Keep the number of rows of a pass; refuse another one than that of the pass before."""
        if self.n is not None and n != self.n:
            what = f"a table of the same rows in every pass, {self.n}"
            remedy = "A callable must return a fresh iterator; for other rows make other Batches."
            raise ValueError(expected("X", what, n, remedy))
        self.n = n

    def weighing(self, weights: Host) -> ChunkedTable:
        """Return the same rows with weights, (n,)."""
        return Weighted(self, weights)

    def head(self, rows: int) -> list[Chunk]:
        """Return the leading parts, as many as hold `rows` rows, or all."""
        found: list[Chunk] = []
        for part in self.parts():
            found.append(part)
            if sum(len(one.rows) for one in found) >= rows:
                break
        return [part for part in found if len(part.rows)]

    def map(self, of: Callable[[Host], Host], width: int | None, dtype: Any) -> Any:
        """Return the results as a table in parts, `dualpca.Batches`, computed when it is read."""

        def results() -> Iterator[Host]:
            for part in ahead(self.parts()):
                found = apply(of, part)
                if found is not None:
                    yield found

        return Batches(results)


class Weighted(LocalTable):
    """The rows of another table, each with a weight.

    Examples
    --------
    >>> from dualpca.data.table import SlicedTable
    >>> weighted = SlicedTable(np.ones((3, 1)), part_rows=2).weighing(np.array([1.0, 2.0, 3.0]))
    >>> weighted.reduce(lambda rows, weights: float(weights @ rows[:, 0]), float.__add__)
    6.0
    """

    def __init__(self, table: LocalTable, weights: Host) -> None:
        super().__init__(table.d, table.dtype, table.n, table.names)
        self.table, self.weights, self.route = table, weights, table.route

    def parts(self) -> Iterator[Chunk]:
        """Read all parts, from the first."""
        return self._beside(self.table.parts())

    def passing(self) -> Iterator[Chunk]:
        """Read all parts for one who keeps none of them."""
        return self._beside(self.table.passing())

    def _beside(self, parts: Iterator[Chunk]) -> Iterator[Chunk]:
        w, row = self.weights, 0
        for part in parts:
            row = part.first + len(part.rows)
            if row > len(w):
                raise ValueError(expected("sample_weight", f"one a row, {row} or more", w.shape))
            yield part._replace(weights=w[part.first : row])
        if row != len(w):
            raise ValueError(expected("sample_weight", f"one a row, {row}", w.shape))


def as_rows(rows: Any, d: int | None, number: int) -> Host:
    """Return rows as a two-dimensional float array of d columns, or say what is wrong with them.

    Examples
    --------
    >>> as_rows(np.array([[1, 2]]), 2, 0)
    array([[1., 2.]])
    """
    refuse_masked(rows)
    refuse_sparse(rows)
    table = np.asarray(rows)
    if table.ndim != 2:
        raise ValueError(expected(f"part {number}", "a 2-dimensional table", table.shape))
    if d is not None and table.shape[1] != d:
        what = f"a table of {d} columns, as the first part"
        raise ValueError(expected(f"part {number}", what, table.shape))
    if table.dtype.kind not in "fiub":
        raise ValueError(expected(f"the dtype of part {number}", "a real number's", table.dtype))
    wanted = table.dtype if table.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    return table if table.dtype.isnative and table.dtype == wanted else table.astype(wanted)


# --- Arrays on disk or in memory as tables in parts: blocks of their rows, read one ahead --------

PART_BYTES = 2**24
"""Bytes of a block that is read at once: a few of them are all that is ever held."""


PLACES = 4
"""Blocks alive at once: one worked on, one waiting, one being read, one to spare."""


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
        if len(shape) != 2:
            raise ValueError(expected("X", "a 2-dimensional table", tuple(shape)))
        if np.dtype(dtype).kind not in "fiub":
            raise ValueError(expected("the dtype of X", "a real number's", dtype))
        super().__init__(int(shape[1]), dtype, int(shape[0]))
        self.table, self.stored = table, np.dtype(dtype)
        self.step = part_rows or self._rows_of_a_part()
        self.route = "blocks of a file" if self.file is not None else "blocks of a table"

    def _rows_of_a_part(self) -> int:
        """Return how many rows fit, rounded to whole chunks."""
        rows = max(1, PART_BYTES // max(self.stored.itemsize * self.d, 1))
        chunks = getattr(self.table, "chunks", None)
        if isinstance(chunks, tuple) and chunks and isinstance(chunks[0], int):
            return max(1, rows // chunks[0]) * chunks[0]
        return rows

    def parts(self) -> Iterator[Chunk]:
        """Read all blocks."""
        return self._blocks([])

    def passing(self) -> Iterator[Chunk]:
        """Read all blocks into the same few places: fresh memory would cost as much as reading."""
        if self.file is None or self.file[4]:
            return self.parts()
        size = (min(self.step, int(self.n or 0)), self.d)
        return self._blocks([np.empty(size, dtype=self.stored) for _ in range(PLACES)])

    def _blocks(self, places: list[Host]) -> Iterator[Chunk]:
        n = int(self.n or 0)
        for number, first in enumerate(range(0, n, self.step)):
            rows = slice(first, min(first + self.step, n))
            place = places[number % len(places)][: rows.stop - first] if places else None
            yield Chunk(as_rows(self._read(rows, place), self.d, number), number, first)

    def _read(self, rows: slice, place: Host | None) -> Host:
        if self.file is None:
            return np.asarray(self.table[rows])
        shape, dtype, offset, path, by_column = self.file
        if by_column:
            return _read_columns(path, shape, dtype, offset, rows)
        block = place
        if block is None:
            block = np.empty((rows.stop - rows.start, shape[1]), dtype=dtype)
        return _filled(path, block, offset + rows.start * block.strides[0])


NpyFile = tuple[tuple[int, int], "np.dtype[Any]", int, str, bool]
"""Shape, dtype, place of the first entry, path, and whether columns lie together."""


def npy_file(table: Any) -> NpyFile | None:
    """Return where a .npy file or a memory map has its numbers; None for anything else.

    A map that was sliced with steps, or that keeps changes to itself, is read as an array.
    """
    if isinstance(table, str | os.PathLike):
        table = np.load(Path(table), mmap_mode="r")  # raises for pickles, says what is wrong
    if not isinstance(table, np.memmap) or table.filename is None or table.mode == "c":
        return None
    whole: Any = table
    while isinstance(whole.base, np.memmap):
        whole = whole.base
    flags = table.flags
    if table.ndim != 2 or not (flags.c_contiguous or flags.f_contiguous):
        return None
    begin = table.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    shape = (int(table.shape[0]), int(table.shape[1]))
    by_column = not flags.c_contiguous
    return shape, table.dtype, int(whole.offset) + begin, os.fspath(table.filename), by_column


def _filled(path: str, block: Host, offset: int) -> Host:
    """Fill a contiguous array from a file."""
    view = memoryview(block.view(np.uint8).reshape(-1))  # type: ignore[arg-type]
    with open(path, "rb", buffering=0) as file:
        file.seek(offset)
        done = 0
        while done < len(view):
            step = file.readinto(view[done:])
            if not step:
                raise ValueError(f"{path} became shorter while it was read. Write it again.")
            done += step
    return block


def _read_columns(
    path: str, shape: tuple[int, int], dtype: np.dtype[Any], offset: int, rows: slice
) -> Host:
    """Read rows of a table whose columns lie together, a column at a time."""
    block = np.empty((shape[1], rows.stop - rows.start), dtype=dtype)
    for j in range(shape[1]):
        _filled(path, block[j], offset + (j * shape[0] + rows.start) * dtype.itemsize)
    return np.ascontiguousarray(block.T)


# --- Tables that come in batches: Parquet, lists, iterators --------------------------------------

BATCH_ROWS = 65_536

MANY_PASSES = (
    "Give something that can be read again: a callable that returns a fresh iterator, a list, a "
    "folder of Parquet files; or a fit that needs one pass only (PCA or closed-form PPCA of "
    "complete rows)."
)


class Batches(LocalTable):
    """A table too large for memory, read in batches; every estimator's `fit` takes it.

    Parameters
    ----------
    source : path, list, callable or iterable
        A .npy file; a Parquet file or a folder of them (with `pyarrow`); a Zarr array or another
        thing that can be sliced; a frame; a list of arrays, frames or paths; a callable that
        returns a fresh iterator over arrays or frames of rows; an iterable. A generator can be
        read once only: enough for PCA and closed-form PPCA of complete rows, refused by what
        reads the rows several times.
    columns : list of str, optional
        The columns of frames and Parquet files to read, in this order; all by default.
    batch_rows : int, optional
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
        if batch_rows is not None and not _is_count(batch_rows):
            raise ValueError(expected("batch_rows", "a positive integer", batch_rows))
        if isinstance(columns, str):
            raise ValueError(expected("columns", "a list of names", columns))
        self.columns, self.batch_rows = None if columns is None else list(columns), batch_rows
        self.once = isinstance(source, Iterator)
        self._fresh = _reader(source, self.columns, batch_rows)
        self._started: Iterator[Any] | None = None
        self._known = self._spent = False

    def _open(self) -> Iterator[Any]:
        """Return all batches from the first, also where that one has been looked at."""
        started, self._started = self._started, None
        if started is not None:
            return started
        if self.once and self._spent:
            what = "readable more than once for this fit"
            got = "an iterator that has been read"
            raise ValueError(expected("the source of Batches", what, got, MANY_PASSES))
        self._spent = True
        return iter(self._fresh())

    def _look(self) -> None:
        """Read the first batch, for width, dtype and names; the first pass gets it back.

        So nothing is lost where a callable returns the same iterator again and again.
        """
        if self._known:
            return
        items = self._open()
        found = []
        for item in items:
            found.append(item)
            if len(array_of(item, self.columns)):
                break
        if not found:
            raise ValueError("Found array with 0 sample(s): the batches hold no rows.")
        rows = as_rows(array_of(found[-1], self.columns), None, len(found) - 1)
        self._known = True
        super().__init__(rows.shape[1], rows.dtype, None, names_of(found[-1], self.columns))
        self._started = chain(found, items)

    def __getattr__(self, name: str) -> Any:
        """Look at the first batch when its width, dtype or names are first asked for."""
        if name in ("d", "dtype", "n", "names") and "_fresh" in self.__dict__:
            self._look()
            return self.__dict__[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def parts(self) -> Iterator[Chunk]:
        """Read all batches."""
        self._look()
        first = 0
        for number, item in enumerate(self._open()):
            table = array_of(item, self.columns)
            if table.ndim == 2 and len(table) == 0:
                continue
            rows = as_rows(table, self.d, number)
            self._check(number, names_of(item, self.columns), rows.dtype)
            yield Chunk(rows.astype(self.dtype, copy=False), number, first)
            first += len(rows)

    def _check(self, number: int, names: list[str] | None, dtype: np.dtype[Any]) -> None:
        """Refuse a batch with columns in other places, or whose numbers would lose digits."""
        if names is not None and self.names is not None and names != self.names:
            what = f"{self.names[:10]}, as in the first part"
            remedy = "Order them alike, or name them: Batches(source, columns=[...])."
            raise ValueError(expected(f"the columns of part {number}", what, names[:10], remedy))
        _check_dtype(number, dtype, self.dtype)

    def __iter__(self) -> Iterator[Host]:
        """Yield the batches as arrays, of one dimension where they have one."""
        for item in self._open():
            yield array_of(item, self.columns)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all batches to one .npy file, whole or not at all.

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
            for number, rows in enumerate(self):
                if shape is None:
                    shape, dtype = rows.shape[1:], rows.dtype
                    _header(file, (0, *shape), dtype)
                _check_saved(number, rows, shape, dtype)
                n += len(rows)
                file.write(np.ascontiguousarray(rows, dtype=dtype).data)
            if shape is None:
                raise ValueError("Found array with 0 sample(s): there is nothing to save.")
            file.seek(0)
            _header(file, (n, *shape), dtype)


def _check_saved(number: int, rows: Host, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse what does not go into one array with the batches before."""
    if rows.shape[1:] != shape:
        what = f"rows of shape {shape}, as the first part"
        raise ValueError(expected(f"part {number}", what, rows.shape[1:]))
    _check_dtype(number, rows.dtype, dtype)


def _check_dtype(number: int, dtype: np.dtype[Any], first: np.dtype[Any]) -> None:
    """Refuse numbers that would lose digits in the dtype of the first part."""
    if not np.can_cast(dtype, first):
        what, remedy = f"{first}, as of the first part", "Convert all parts to one dtype."
        raise ValueError(expected(f"the dtype of part {number}", what, str(dtype), remedy))


def _header(file: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Write the header of a .npy file; NumPy leaves room for the number of rows to grow."""
    entries = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_2_0(file, entries)


def _reader(
    source: Any, columns: list[str] | None, batch_rows: int | None
) -> Callable[[], Iterable[Any]]:
    """Return what opens the source from its beginning."""
    if isinstance(source, str | os.PathLike):
        return lambda: _opened(Path(source), columns, batch_rows)
    if is_dask(source):
        what, remedy = "no table of Dask", "Give that to fit as it is."
        raise ValueError(expected("the source of Batches", what, type(source).__name__, remedy))
    if is_frame(source):
        return lambda: (source,)
    if callable(source):
        return source  # type: ignore[no-any-return]
    if isinstance(source, list | tuple):
        return lambda: chain.from_iterable(_each(item, columns, batch_rows) for item in source)
    if hasattr(source, "shape") and hasattr(source, "dtype"):
        blocks = SlicedTable(source, batch_rows)
        return lambda: (part.rows for part in blocks.parts())
    if isinstance(source, Iterator):
        return lambda: source
    if isinstance(source, Iterable):
        return lambda: source
    what = "a path, a list, a callable that returns an iterator, or an iterable of arrays"
    raise ValueError(expected("the source of Batches", what, source))


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and value is not True and bool(value >= 1)


def _each(item: Any, columns: list[str] | None, batch_rows: int | None) -> Iterable[Any]:
    if isinstance(item, str | os.PathLike):
        return _opened(Path(item), columns, batch_rows)
    return (item,)


def _opened(path: Path, columns: list[str] | None, batch_rows: int | None) -> Iterator[Any]:
    """Yield the batches of a file or folder."""
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}: check the path.")
    if path.suffix == ".npy":
        yield from (part.rows for part in SlicedTable(mapped(path), batch_rows).parts())
        return
    try:
        import pyarrow.dataset as datasets
    except ImportError as error:
        raise ImportError(f"reading {path} needs pyarrow: pip install pyarrow.") from error
    table = _dataset(datasets.dataset, path)
    if columns is not None:
        check_columns(columns, table.schema.names)
    _check_files(table, columns)
    rows = batch_rows or BATCH_ROWS
    options: dict[str, Any] = {"batch_readahead": 1, "fragment_readahead": 1}
    yield from table.to_batches(columns=columns, batch_size=rows, **options)


def _dataset(opened: Callable[..., Any], path: Path) -> Any:
    """Open Parquet with Arrow, or say what else can be read."""
    try:
        return opened(path, format="parquet")
    except (ValueError, OSError) as error:
        remedy = (
            "Open a Zarr array with zarr.open_array(path), read CSV with Batches(callable) or with "
            "the command dualpca."
        )
        what = "a .npy file, a Parquet file or a folder of Parquet files"
        raise ValueError(expected(str(path), what, str(error), remedy)) from error


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
