"""What every table can do: add up a statistic over its rows, draw a sample, count its chunks.

Models that need only sums over rows need not hold all rows at once. `table` has the tables of this
process, `dask_table` those of a cluster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from operator import or_
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from dualpca.data.frames import Host, check_table, refuse_masked, refuse_sparse
from dualpca.data.moments import observed_weights
from dualpca.errors import NonFiniteError, expected

if TYPE_CHECKING:
    from dualpca.data.units import Units

Statistic = TypeVar("Statistic")
Ready = TypeVar("Ready")
Item = TypeVar("Item")
Function = TypeVar("Function", bound=Callable[..., Any])

Plus = Callable[[Statistic, Statistic], Statistic]
"""The sum of two statistics."""


def numbered(of: Function) -> Function:
    """Mark a statistic that `Table.reduce` is to call with the number of the chunk too."""
    of.numbered = True  # type: ignore[attr-defined]
    return of


def called(of: Callable[..., Any], rows: Any, number: int, weights: Any) -> Any:
    """Call a statistic: with the number of the chunk if marked, with weights if there are any."""
    place = (number,) if getattr(of, "numbered", False) else ()
    return of(rows, *place) if weights is None else of(rows, *place, weights=weights)


class Gathered(NamedTuple):
    """All rows of a table in this process, and the workers that hold them too."""

    rows: Host
    weights: Host | None
    workers: Any = None  # None where there is no cluster


class Chunk(NamedTuple):
    """Some rows, the number of the chunk, and the row it begins at (−1: not known)."""

    rows: Host  # (b, d)
    number: int
    first: int
    weights: Host | None = None  # (b,)


Look = Callable[[Chunk], Chunk]
"""What is kept of a chunk that is looked at."""


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

    units: Units | None = None
    """Those of the columns, if the rows are standardised."""

    by_columns: ChunkedTable | None = None
    """A wide table with columns for rows, (d, n), where that is how it had better be read."""

    row_weights: Host | None = None
    """Of `by_columns`, which has no rows to hand them out with: the weights of the rows, (n,)."""

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
    def reduce(self, of: Callable[..., Any], plus: Plus[Statistic]) -> Statistic:
        """Return the sum of `of(rows)` over all chunks; `of` may be sent to other machines.

        A statistic marked as `numbered` is called with the number of the chunk too; where rows
        have weights, with `weights=` (b,). None means that a chunk has nothing to add.
        """

    def prepared(self, prepare: Callable[..., Ready]) -> Prepared[Ready]:
        """Return the chunks as `prepare(rows, weights)` makes them, for many statistics.

        Rows in memory are prepared once, chunks in every pass.

        Parameters
        ----------
        prepare : callable
            Function of rows and weights.

        Returns
        -------
        prepared : Prepared
            Its `reduce` sums a statistic over the prepared chunks.

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca import Batches
        >>> table = Batches([np.zeros((2, 3)), np.ones((1, 3))])
        >>> prepared = table.prepared(lambda rows, weights: rows.mean(axis=1))
        >>> float(prepared.reduce(lambda means: means.sum(), lambda a, b: a + b))
        1.0
        """
        return Prepared(self, prepare)

    def sizes(self) -> dict[int, int]:
        """Return the number of rows of every chunk, under its number; one pass.

        Returns
        -------
        sizes : dict of int to int

        Examples
        --------
        >>> from dualpca.data.table import SlicedTable
        >>> SlicedTable(np.zeros((5, 2)), part_rows=3).sizes()
        {0: 3, 1: 2}
        """

        @numbered
        def size(rows: Host, number: int, weights: Host | None = None) -> dict[int, int]:
            return {number: int(rows.shape[0])}

        return dict(sorted(self.reduce(size, or_).items()))

    def sample(self, rows: int, seed: int) -> Host:
        """Return `rows` rows drawn without replacement, in their order; all if there are fewer.

        One pass. Every row draws a number; those with the smallest are kept, so that the sample
        of all rows is made of the samples of the chunks.

        Parameters
        ----------
        rows : int
        seed : int

        Returns
        -------
        rows : array of shape (m, d)
            m is at most `rows`.

        Examples
        --------
        >>> from dualpca.data.table import SlicedTable
        >>> SlicedTable(np.arange(20.0).reshape(10, 2)).sample(3, seed=0).shape
        (3, 2)
        """

        @numbered
        def draw(table: Host, number: int, weights: Host | None = None) -> tuple[Host, ...]:
            """Return rows, the numbers they drew, their chunk and their place in it."""
            lot = np.random.default_rng([seed, number]).random(len(table))
            kept = np.sort(np.argsort(lot, kind="stable")[:rows])
            return np.array(table[kept]), lot[kept], np.full(len(kept), number), kept

        def merge(a: tuple[Host, ...], b: tuple[Host, ...]) -> tuple[Host, ...]:
            both = [np.concatenate(pair) for pair in zip(a, b, strict=True)]
            kept = np.argsort(both[1], kind="stable")[:rows]
            return tuple(column[kept] for column in both)

        drawn, _, part, place = self.reduce(draw, merge)
        return drawn[np.lexsort((place, part))]


class Prepared(Generic[Ready]):
    """A table whose chunks are prepared before a statistic of them is computed."""

    def __init__(
        self, table: Table, prepare: Callable[..., Ready], ready: Ready | None = None
    ) -> None:
        self.table, self.prepare, self.ready = table, prepare, ready

    def reduce(self, of: Callable[[Ready], Statistic], plus: Plus[Statistic]) -> Statistic:
        """Return the sum of `of(chunk)` over all chunks, each as `prepare` made it."""
        if self.ready is not None:
            return of(self.ready)
        prepare = self.prepare  # the table itself is not sent to other machines
        return self.table.reduce(lambda rows, weights=None: of(prepare(rows, weights)), plus)


class ChunkedTable(Table):
    """A table of many chunks, as files, iterators and clusters hold one."""

    label: str | None = None
    """What a chunk is called where progress is shown; None where passes are not."""

    @abstractmethod
    def with_weights(self, weights: Host) -> ChunkedTable:
        """Return the same rows with weights, (n,), which are passed to every statistic."""

    @abstractmethod
    def seen(self, of: Callable[[Host], Host]) -> ChunkedTable:
        """Return the same table with `of(rows)`, of the same shape and dtype, in place of rows."""

    @abstractmethod
    def map(self, of: Callable[[Host], Host], width: int | None, dtype: Any) -> Any:
        """Return `of(rows)` chunk by chunk, computed when it is read.

        `width` is the number of columns of the result, None for one number per row.
        """

    @abstractmethod
    def beside(self, other: Table) -> ChunkedTable:
        """Return one table with the columns of both; chunks need not be cut alike."""

    @abstractmethod
    def each(self, of: Callable[[Host], Statistic]) -> Iterator[Statistic]:
        """Yield `of(rows)` of every chunk, in their order, a few of them at a time."""

    @abstractmethod
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
        """Return `of(projections)` of the columns of this table, computed when it is read.

        Projections are the coordinates of (x − mean)/scale along the axes, (q, n), and the squared
        distance off them: (d, q + 1). `origin` is mean and scale. Two passes, since the distance is
        that of the difference, not of two large numbers; one where it is not asked for (`off`), and
        0. `width` is as in `map`.
        """

    @abstractmethod
    def picked(self, cuts: Mapping[int, slice]) -> list[Host]:
        """Return some rows of some chunks, under their numbers; no others leave their place."""

    @abstractmethod
    def first(self, look: Look | None = None) -> Chunk | None:
        """Return the first chunk with rows in it, or what `look` keeps of it where it is.

        The next pass begins there too.
        """


def with_row_weights(table: ChunkedTable, weights: Host) -> ChunkedTable | None:
    """Return what is read of a table by columns, if it is, with the weights of its rows."""
    if table.by_columns is None:
        return None
    if table.by_columns.d != len(weights):
        what = f"one per row, {table.by_columns.d}"
        raise ValueError(expected("sample_weight", what, weights.shape))
    other = copy(table.by_columns)
    other.row_weights = weights
    return other


def apply(of: Callable[..., Statistic], part: Chunk) -> Statistic | None:
    """Return the statistic of one chunk, None if it is empty; errors name the row of the table.

    Examples
    --------
    >>> apply(len, Chunk(np.zeros((3, 2)), 0, 0))
    3
    """
    if len(part.rows) == 0:
        return None
    weights = None if part.weights is None else observed_weights(part.rows, part.weights)
    try:
        return called(of, part.rows, part.number, weights)  # type: ignore[no-any-return]
    except NonFiniteError as error:
        raise error.moved(part.first, part.number) from None


def join(plus: Plus[Statistic], a: Statistic | None, b: Statistic | None) -> Statistic | None:
    """Add two statistics, of which one may be of no rows."""
    if a is None or b is None:
        return b if a is None else a
    return plus(a, b)


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
    check_table(f"part {number}", table.shape, table.dtype)
    if d is not None and table.shape[1] != d:
        what = f"a table of {d} columns, as the first part"
        raise ValueError(expected(f"part {number}", what, table.shape))
    wanted = table.dtype if table.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    return table if table.dtype.isnative and table.dtype == wanted else table.astype(wanted)


# --- Reading ahead: the next item is on its way while this one is used ---------------------------


def read_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """Yield items that a thread reads one ahead; its errors are raised here, in their place.

    Examples
    --------
    >>> list(read_ahead(range(3)))
    [0, 1, 2]
    """
    source, end = iter(items), object()
    with ThreadPoolExecutor(1, "dualpca-reader") as reader:
        coming: Future[Any] = reader.submit(next, source, end)
        while (item := coming.result()) is not end:
            coming = reader.submit(next, source, end)
            yield item
