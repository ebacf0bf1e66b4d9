"""Dask arrays and frames as chunked tables: statistics are computed where the rows are.

Only this module imports Dask. The scheduler is the user's: an open `distributed.Client`, or
Dask's threads. A sum over all rows is a tree: every partition gives its statistic, eight of them
are added where they are, and so on; the last one is all that comes to this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import nullcontext
from copy import copy
from functools import partial, reduce
from itertools import count, repeat
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any

import dask.array
import numpy as np
from dask import config
from dask.base import compute, get_scheduler
from dask.delayed import delayed
from dask.utils import parse_timedelta

from dualpca.arrays import backend, task
from dualpca.data.base import (
    Chunk,
    ChunkedTable,
    Gathered,
    Look,
    Plus,
    Statistic,
    Table,
    apply,
    as_rows,
    join,
    with_row_weights,
)
from dualpca.data.columns import COLUMNS, refuse_long_rows, splits_columns
from dualpca.data.frames import Host, check_table, refuse_other_columns
from dualpca.errors import NonFiniteError, expected

FAN_IN = 8
"""Statistics that are added at once: deep enough for thousands of partitions in four levels."""


class DaskTable(ChunkedTable):
    """A Dask array, (n, d), as a table: its chunks of rows.

    Parameters
    ----------
    array : dask.array.Array of shape (n, d)
        Chunks of rows; n and the sizes of chunks may be unknown.
    names : list of str, optional

    Notes
    -----
    Every pass computes the array anew, from wherever it comes: `persist()` it on a cluster whose
    memory holds it, if a fit needs many passes (EM).
    """

    weights: Any = None  # a Dask array, one block a partition, where the workers are

    def __init__(self, array: Any, names: list[str] | None = None) -> None:
        check_table("X", array.shape, array.dtype)
        (down, across), given = array.numblocks, array
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
        chunks = tuple(max(sizes) for sizes in given.chunks)
        if self.n is not None and self.n < self.d and splits_columns(self.n, self.d, chunks):
            self.by_columns = DaskTable(given.T)
            self.by_columns.label = COLUMNS
            self.by_columns.route = f"columns, in {across} chunks of Dask"
            if down > 1:
                self.by_columns.route += f" ({down} chunks along the rows are joined)"

    @classmethod
    def of(cls, X: Any) -> DaskTable:
        """Return a Dask array or frame as a chunked table.

        Examples
        --------
        >>> DaskTable.of(dask.array.ones((10, 3), chunks=(4, 3))).route
        'Dask, 3 partitions'
        """
        if isinstance(X, dask.array.Array):
            return cls(X)
        if not hasattr(X, "to_dask_array") or getattr(X, "ndim", 0) != 2:
            raise ValueError(expected("X", "a Dask array or frame of two dimensions", type(X)))
        refuse_other_columns(X)
        names = list(X.columns)
        array = X.to_dask_array()
        if array.dtype == object:  # booleans beside numbers, or pandas' own dtypes
            array = X.astype(np.float64).to_dask_array()
        return cls(array, names if all(isinstance(name, str) for name in names) else None)

    def reduce(self, of: Callable[..., Any], plus: Plus[Statistic]) -> Statistic:
        """Return the sum of `of(rows)` over all partitions, added up in a tree."""
        # one object, so that it is sent once for all partitions
        work = delayed(SimpleNamespace(of=of, plus=plus, d=self.d), pure=False)
        level = [delayed(_leaf)(work, *part) for part in self._blocks()]
        while len(level) > 1:
            groups = [level[i : i + FAN_IN] for i in range(0, len(level), FAN_IN)]
            level = [delayed(_branch)(work, group) for group in groups]
        total: Statistic | None = fetched(level)[0]
        if total is None:
            raise ValueError(f"Found array with 0 sample(s): {self.route} hold no rows.")
        return total

    def each(self, of: Callable[[Host], Statistic]) -> Iterator[Statistic]:
        """Yield the result of every partition, in their order, as many at once as are added."""
        work = delayed(SimpleNamespace(of=of, d=self.d), pure=False)
        parts = [delayed(_leaf)(work, *part) for part in self._blocks()]
        with nullcontext() if self.label is None else task(self.label, len(parts)) as tick:
            for k in range(0, len(parts), FAN_IN):
                for found in fetched(parts[k : k + FAN_IN]):
                    if found is not None:
                        yield found
                    if tick is not None:
                        tick()

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
        """Return a Dask array of what is made of the projections, not computed yet."""
        cut: Any = partial(dask.array.from_array, chunks=(self.array.chunks[0],))
        mean, scale = origin
        C = self.array.astype(np.float64) - cut(mean)[:, None]
        if scale is not None:
            C = C / cut(scale)[:, None]
        V = dask.array.from_array(axes, chunks=(-1, self.array.chunks[0]))  # type: ignore[no-untyped-call]
        V = V.astype(np.float64)
        Y = V @ C
        squares = ((C - V.T @ Y) ** 2).sum(axis=0) if off else 0 * Y[:1].sum(axis=0)
        found = dask.array.concatenate([Y.T, squares[:, None]], axis=1).rechunk({1: -1})  # type: ignore[no-untyped-call]
        meta = np.empty((0,) if width is None else (0, 0), dtype=dtype)
        rows = found.chunks[0]
        how = {"drop_axis": 1, "chunks": (rows,)} if width is None else {"chunks": (rows, (width,))}
        return found.map_blocks(of, dtype=dtype, meta=meta, **how)

    def _blocks(self) -> Iterable[tuple[Any, int, int, Any]]:
        """Return every partition with its number, the row it begins at, and its weights."""
        if self.by_columns is not None and _client() is None:
            refuse_long_rows(max(self.array.chunks[0]), self.d, self.array.dtype)
        blocks, first = self.array.to_delayed().ravel(), _starts(self.array.chunks[0])
        weights = repeat(None) if self.weights is None else self.weights.to_delayed()
        return zip(blocks, count(), first, weights, strict=False)

    def with_weights(self, weights: Host) -> ChunkedTable:
        """Return the same rows with weights, (n,); every partition is sent its own, once."""
        other = copy(self)
        sizes = self.array.chunks[0]
        if any(np.isnan(size) for size in sizes):
            found = self.sizes()
            sizes = tuple(found.get(k, 0) for k in range(len(sizes)))
        if sum(sizes) != len(weights):
            raise ValueError(expected("sample_weight", f"one per row, {sum(sizes)}", weights.shape))
        lazy: Any = dask.array.from_array(weights, chunks=(sizes,))  # type: ignore[no-untyped-call]
        other.weights, other.by_columns = lazy.persist(), with_row_weights(self, weights)
        return other

    def gathered(self, device: str | None = None) -> Gathered:
        """Return all rows in this process, and the workers, each with all rows from then on."""
        blocks, client = list(self.array.to_delayed().ravel()), _client()
        whole = delayed(_stacked)(blocks, self.d)
        weights = None
        if self.weights is not None:
            weights = fetched([delayed(np.concatenate)(list(self.weights.to_delayed()))])[0]
        if client is None:
            return Gathered(fetched([whole])[0], weights)
        points = client.compute(whole)
        rows: Host = _results(client, [points])[0]
        return Gathered(rows, weights, Workers(client, points, device))

    def picked(self, cuts: Mapping[int, slice]) -> list[Host]:
        """Return some rows of some partitions: only those leave the workers."""
        blocks = self.array.to_delayed().ravel()
        return fetched([delayed(_cut)(blocks[k], self.d, k, cuts[k]) for k in sorted(cuts)])

    def first(self, look: Look | None = None) -> Chunk | None:
        """Return what `look` keeps of the first partition with rows in it, cut where that is."""
        for part in self._blocks():
            kept: Chunk = fetched([delayed(_seen)(look, self.d, *part)])[0]
            if len(kept.rows):
                return kept
        return None

    def seen(self, of: Callable[[Host], Host]) -> ChunkedTable:
        """Return the same table with `of(rows)` in place of rows, computed in every pass."""
        other = copy(self)
        other.array, other.by_columns = self.map(of, self.d, self.dtype), None
        return other

    def map(self, of: Callable[[Host], Host], width: int | None, dtype: Any) -> Any:
        """Return a Dask array of the results, not computed yet."""
        rows, meta = self.array.chunks[0], np.empty((0,) if width is None else (0, 0), dtype=dtype)
        work = _OnBlock(of, self.d, _starts(rows))
        how = {"drop_axis": 1, "chunks": (rows,)} if width is None else {"chunks": (rows, (width,))}
        return self.array.map_blocks(work, dtype=dtype, meta=meta, **how)

    def beside(self, other: Table) -> ChunkedTable:
        """Return one Dask table with the columns of both; the other may be rows of this process."""
        rows = self.array.chunks[0]
        if isinstance(other, DaskTable):
            known = not np.isnan(sum(rows)) and not np.isnan(sum(other.array.chunks[0]))
            if known and self.n != other.n:
                raise ValueError(expected("y", f"{self.n} rows, as X", other.n))
            second = other.array.rechunk({0: rows}) if known else other.array
        elif hasattr(other, "rows") and other.n == sum(rows):
            second = dask.array.from_array(other.rows, chunks=(rows, -1))  # type: ignore[no-untyped-call]
        else:
            what = "a Dask table, or an array of as many rows as X"
            got = f"{type(getattr(other, 'rows', other)).__name__} of {other.n} rows"
            raise ValueError(expected("y", what, got))
        joined: Any = dask.array.concatenate
        return DaskTable(joined([self.array, second], axis=1, allow_unknown_chunksizes=True))


# --- Computing, and clusters whose workers are gone ----------------------------------------------

LONGEST_WITHOUT_WORKERS = "5 minutes"
"""How long a cluster may be without workers, unless Dask's configuration has another time."""

POLL = 1.0
"""Seconds between two looks at the workers."""

FORGOTTEN = ("scheduler-connection-lost", "scheduler-restart")
"""Reasons that Dask gives for futures that no scheduler knows any more."""


def fetched(items: list[Any]) -> list[Any]:
    """Return what delayed things are, computed where the user's Dask computes.

    A cluster without a worker for longer than the setting `dualpca.no-workers-timeout` of Dask's
    configuration is an error; Dask itself would wait for one without end.
    """
    client = _client()
    if client is None:
        return list(compute(*items))  # type: ignore[no-untyped-call]
    return _results(client, client.compute(items))


def _results(client: Any, futures: list[Any]) -> list[Any]:
    """Return what futures are, once they are done; cancel them if nobody waits any more."""
    try:
        _wait(client, partial(_are_done, futures))
        found: list[Any] = client.gather(futures)
    except BaseException as error:  # also Ctrl-C: nobody waits for the rest
        client.cancel(futures)
        if isinstance(error, CancelledError) and any(word in str(error) for word in FORGOTTEN):
            raise ConnectionError(
                "Dask's scheduler was restarted, or the connection to it was lost, and it has "
                "forgotten this fit: fit again once it answers. A model with a checkpoint resumes."
            ) from error
        raise
    return found


def _client() -> Any:
    """Return the cluster that Dask would compute on; None for threads, and inside of a worker."""
    client = getattr(get_scheduler(), "__self__", None)  # type: ignore[no-untyped-call]
    if not hasattr(client, "scheduler_info"):
        return None
    from distributed.worker import thread_state

    return None if hasattr(thread_state, "key") else client


def _are_done(futures: list[Any], seconds: float) -> bool:
    """Return True if all are done, after so many seconds at most."""
    from distributed import wait

    try:
        wait(futures, timeout=seconds)  # type: ignore[no-untyped-call]
    except TimeoutError:
        return False
    return True


def _some_work(client: Any, seconds: float) -> bool:
    """Return True if there is a worker, after so many seconds at most."""
    try:
        client.wait_for_workers(1, timeout=seconds)
    except TimeoutError:
        return False
    return True


def _wait(client: Any, ready: Callable[[float], bool]) -> None:
    """Wait until `ready(seconds)`, or until there has been no worker for too long."""
    given = config.get("dualpca.no-workers-timeout", LONGEST_WITHOUT_WORKERS)
    limit = float("inf") if given is None else float(parse_timedelta(given))
    since: float | None = None
    while not ready(min(POLL, limit)):
        now = monotonic()
        if _has_workers(client):
            since = None
            continue
        since = now if since is None else since
        if now - since >= limit:
            raise TimeoutError(
                f"the Dask cluster has had no workers for {now - since:.3g} s, and the fit needs "
                "one. Start workers and fit again (cluster.scale(2)); where they take longer to "
                "start, give a longer time: dask.config.set({'dualpca.no-workers-timeout': '30 "
                "minutes'})."
            )


def _has_workers(client: Any) -> bool:
    try:
        return bool(client.scheduler_info()["workers"])
    except (OSError, TimeoutError):  # no scheduler either
        return False


# --- Objects that live on workers and are asked again and again ----------------------------------

MOST_LOST = 5
"""How often the vectors of one product may be lost with all workers that had them."""


class Workers:
    """The workers that a cluster has now, each with all rows of a table.

    Parameters
    ----------
    client : distributed.Client
    points : distributed.Future
        All rows, (n, d), on a worker; the others fetch them from there.
    device : str, optional
        Where each worker works: one share for each then, otherwise one for each of its threads.
    """

    elsewhere = True

    def __init__(self, client: Any, points: Any, device: str | None = None) -> None:
        self.client, self.points = client, points
        threads = sorted(client.nthreads().items())
        self.places = max(len(threads), 1)
        alone = device is not None and device != "cpu"
        self.addresses = [at for at, count in threads for _ in range(1 if alone else count)]

    def shares(self, X: Any, make: Callable[[Any, int, int], Any]) -> WorkerShares:
        """Return what `make(points, k, count)` gives for every share, each on its worker.

        Another worker makes a share again if its own is gone.
        """
        at, count = self.addresses or [None], max(len(self.addresses), 1)
        made = [self.submit(at[k], make, self.points, k, count) for k in range(count)]
        return WorkerShares(self, made, at)

    def submit(self, at: str | None, of: Callable[..., Any], *given: Any) -> Any:
        """Return a future of `of(*given)`, on the worker at this address while it is there."""
        where = {} if at is None else {"workers": [at], "allow_other_workers": True}
        return self.client.submit(of, *given, pure=False, **where)


class WorkerShares:
    """Futures of shares, and the addresses of their workers."""

    def __init__(self, workers: Workers, made: list[Any], at: list[Any]) -> None:
        self.workers, self.made, self.at = workers, made, at

    def each(self, name: str) -> list[Any]:
        """Return an attribute of every share."""
        pairs = zip(self.at, self.made, strict=True)
        asked = [self.workers.submit(at, getattr, share, name) for at, share in pairs]
        return _results(self.workers.client, asked)

    def summed(self, ask: str, V: Host, add: Callable[[Sequence[Any]], Any]) -> Host:
        """Return the sum of `share.piece(ask, V)` over all shares, added in a tree.

        V is sent to every worker once. If all that had it are gone, it is sent again.
        """
        client, lost = self.workers.client, 0
        while True:
            _wait(client, partial(_some_work, client))
            try:
                sent = client.scatter(V, broadcast=True, hash=False)
            except OSError:  # a worker went meanwhile
                sent = None
            found = None if sent is None else self._tree(ask, sent, add)
            if found is not None:
                return found
            lost += 1
            if lost == MOST_LOST:
                raise RuntimeError(
                    f"workers of the Dask cluster were lost {lost} times in one product: see their "
                    "logs, and give them more memory, or fewer rows."
                )
            sleep(POLL)

    def _tree(self, ask: str, sent: Any, add: Callable[[Sequence[Any]], Any]) -> Host | None:
        """Return the sum, once V is there; None if it was lost."""
        workers, pairs = self.workers, zip(self.at, self.made, strict=True)
        level = [workers.submit(at, _piece, share, ask, sent) for at, share in pairs]
        while True:
            groups = [level[i : i + FAN_IN] for i in range(0, len(level), FAN_IN)]
            level = [workers.submit(None, add, group) for group in groups]
            if len(level) == 1:
                break
        try:
            found: Host = _results(workers.client, level)[0][1]
        except CancelledError:
            return None
        return found


def _piece(share: Any, ask: str, V: Host) -> tuple[slice, Host]:
    """Return what a share adds to a product, on the host."""
    rows, part = share.piece(ask, V)
    return rows, backend.to_numpy(part)


def _stacked(blocks: list[Any], d: int) -> Host:
    """Return all rows as one array."""
    return np.concatenate([as_rows(block, d, number) for number, block in enumerate(blocks)])


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


def _cut(block: Any, d: int, number: int, rows: slice) -> Host:
    """Return some rows of a partition: a copy, which does not hold the others."""
    return np.array(as_rows(block, d, number)[rows])


def _seen(look: Look | None, d: int, block: Any, number: int, first: int, w: Any) -> Chunk:
    """Return what `look` keeps of a partition: a copy, which does not hold the rest."""
    part = Chunk(as_rows(block, d, number), number, first, w)
    kept = part if look is None else look(part)
    return kept._replace(rows=np.array(kept.rows))


def _leaf(work: Any, block: Any, number: int, first: int, weights: Host | None) -> Any:
    """Return the statistic of one partition."""
    return apply(work.of, Chunk(as_rows(block, work.d, number), number, first, weights))


def _branch(work: Any, statistics: list[Any]) -> Any:
    """Add statistics, in their order: the result does not depend on who is done first."""
    return reduce(partial(join, work.plus), statistics)


def _starts(sizes: tuple[Any, ...]) -> list[int]:
    """Return the row that every chunk begins at, −1 where that is not known."""
    if any(np.isnan(size) for size in sizes):
        return [-1] * len(sizes)
    return [0, *(int(end) for end in np.cumsum(sizes)[:-1])]
