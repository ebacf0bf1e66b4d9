"""Tables larger than memory: read in batches as often as one likes, written batch by batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from dualpca.app.tables import images, tables, text_tables
from dualpca.app.tables.dialects import Dialect, TableError
from dualpca.app.tables.sources import COPIES, Opener, bytes_of, piece_of, room_for
from dualpca.app.tables.tables import IMAGES, TEXT
from dualpca.arrays import task


class Reading(NamedTuple):
    """How a table is to be read."""

    kind: str | None = None
    encoding: str = "utf-8"
    separator: str | None = None
    decimal: str | None = None
    limit: int | None = None  # bytes of memory


@dataclass(frozen=True)
class Table:
    """A table that can be gone through as often as one likes, whole or in batches."""

    path: str
    columns: list[str]
    height: int
    n_batches: int
    open: Callable[[], Iterator[pl.DataFrame]]
    dialect: Dialect | None = None  # of text
    image_shape: tuple[int, ...] | None = None

    @property
    def whole(self) -> bool:
        """Tell whether the table is in memory."""
        return self.n_batches == 1

    def frames(self, label: str = "batch") -> Iterator[pl.DataFrame]:
        """Yield the batches, and tell how far it is."""
        if self.whole:
            yield from self.open()
            return
        with task(label, self.n_batches) as tick:
            for frame in self.open():
                yield frame
                tick()

    def frame(self) -> pl.DataFrame:
        """Return the table of one batch."""
        return next(self.open())

    def sampled(self, n: int, seed: int) -> Table:
        """Return a table of `n` rows drawn without replacement, in their order."""
        if n >= self.height:
            return self
        chosen = np.sort(np.random.default_rng(seed).choice(self.height, n, replace=False))
        parts, start = [], 0
        for frame in self.frames("drawing rows, batch"):
            inside = chosen[(chosen >= start) & (chosen < start + frame.height)] - start
            parts.append(frame[inside.tolist()])
            start += frame.height
        return of_frame(self, pl.concat(parts))


def of_frame(like: Table, frame: pl.DataFrame) -> Table:
    """Return a table in memory."""
    size = (like.path, frame.columns, frame.height, 1, lambda: iter([frame]))
    return Table(*size, like.dialect, like.image_shape)


def opened(path: str, how: Reading | None = None, verbatim: tuple[str, ...] = ()) -> Table:
    """Return a table: in memory if that has room for it, to be read in batches otherwise.

    Parameters
    ----------
    path : str
        '-' is standard input; more of it than memory takes goes to a temporary file.
    how : Reading, optional
    verbatim : tuple of str
        Columns of text files that stay text.
    """
    how = how or Reading()
    kind = tables.kind_of(path, how.kind)
    room = room_for(how.limit)
    source, size = bytes_of(path, kind, room)
    piece = None if COPIES[kind] * size <= room else piece_of(kind, room)
    if kind in TEXT:
        return _text(path, source, kind, how, verbatim, piece, size)
    if kind == IMAGES:
        return _images(path, piece)
    if piece is None or kind == "npz":
        with source() as file:
            frame = tables.not_empty(tables.READERS[kind](file.read(), path), path)
        return Table(path, frame.columns, frame.height, 1, lambda: iter([frame]))
    return _numpy(path, piece) if kind == "npy" else _lazy(path, kind, piece)


def _text(
    path: str,
    source: Opener,
    kind: str,
    how: Reading,
    verbatim: tuple[str, ...],
    piece: int | None,
    size: int,
) -> Table:
    given = (kind, how.encoding, how.separator, how.decimal, verbatim)
    text = text_tables.opened(path, source, *given)
    if piece is None:
        frame = tables.not_empty(text.whole(), path)
        return Table(path, text.names, frame.height, 1, lambda: iter([frame]), text.dialect)
    with task("reading, batch", math.ceil(size / piece)) as tick:
        scan = text.scanned(piece, tick)
    if scan.height == 0:
        raise TableError(f"{path} has 0 rows and {len(text.names)} columns: give one at least.")

    def frames() -> Iterator[pl.DataFrame]:
        for part in text.checked(piece):
            yield text.parsed(part, scan.schema)

    return Table(path, text.names, scan.height, scan.n_pieces, frames, text.dialect)


def _images(path: str, piece: int | None) -> Table:
    pictures = images.found(path)
    count = len(pictures.files)
    rows = count if piece is None else max(piece // (8 * math.prod(pictures.shape)), 1)
    batches = math.ceil(count / rows)
    shape = {"image_shape": pictures.shape}
    if batches == 1:
        frame = next(pictures.frames(count))
        return Table(path, pictures.names, count, 1, lambda: iter([frame]), None, **shape)
    return Table(path, pictures.names, count, batches, lambda: pictures.frames(rows), None, **shape)


def _numpy(path: str, piece: int) -> Table:
    """Return the rows of an NPY file, read where they lie."""
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise TableError(f"{path} is no NumPy file: {text_tables.first_line(error)}.") from error
    tables.check_matrix(matrix, path)
    n, d = matrix.shape
    rows = max(piece // max(8 * d, 1), 1)
    names = [f"x{j}" for j in range(d)]

    def frames() -> Iterator[pl.DataFrame]:
        for k in range(0, n, rows):
            # opened anew each time: pages that were read would count as memory in use
            part = np.array(np.load(path, mmap_mode="r", allow_pickle=False)[k : k + rows])
            yield pl.DataFrame(part, schema=names, orient="row")

    del matrix
    return Table(path, names, n, math.ceil(n / rows), frames)


def _lazy(path: str, kind: str, piece: int) -> Table:
    """Return the rows of a Parquet or Arrow file, slice by slice."""
    scan, name = (pl.scan_parquet, "Parquet") if kind == "parquet" else (pl.scan_ipc, "Arrow")
    try:
        lazy = scan(path)
        names = lazy.collect_schema().names()
        n = int(lazy.select(pl.len()).collect().item())
    except (pl.exceptions.PolarsError, OSError) as error:
        raise TableError(f"{path} is no {name} file: {text_tables.first_line(error)}.") from error
    if n == 0 or not names:
        raise TableError(f"{path} has {n} rows and {len(names)} columns: give one of each.")
    rows = max(piece // (8 * len(names)), 1)

    def frames() -> Iterator[pl.DataFrame]:
        for k in range(0, n, rows):
            yield lazy.slice(k, rows).collect()

    return Table(path, names, n, math.ceil(n / rows), frames)
