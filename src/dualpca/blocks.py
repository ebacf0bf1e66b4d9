"""Arrays on disk or in memory as tables in parts: blocks of their rows, read one ahead."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dualpca.errors import expected
from dualpca.parts import Host, LocalParts, Part, as_rows

PART_BYTES = 2**24
"""Bytes of a block that is read at once: a few of them are all that is ever held."""


PLACES = 4
"""Blocks alive at once: one worked on, one waiting, one being read, one to spare."""


class Blocks(LocalParts):
    """Rows of something that can be sliced: an array on disk (NumPy, Zarr, HDF5) or in memory.

    Parameters
    ----------
    table : array-like with `shape`, `dtype` and slicing, or the path of a .npy file
        Files and memory maps are read with file reads, not through the map, so that what has been
        read does not count as memory of this process.
    part_rows : int, optional
        Rows of a block; as many as 16 MB hold unless given, whole chunks of a chunked array.

    Examples
    --------
    >>> X = np.arange(12.0).reshape(6, 2)
    >>> float(Blocks(X, part_rows=4).reduce(np.sum, lambda a, b: a + b))
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

    def parts(self) -> Iterator[Part]:
        """Read all blocks."""
        return self._blocks([])

    def passing(self) -> Iterator[Part]:
        """Read all blocks into the same few places: fresh memory would cost as much as reading."""
        if self.file is None or self.file[4]:
            return self.parts()
        size = (min(self.step, int(self.n or 0)), self.d)
        return self._blocks([np.empty(size, dtype=self.stored) for _ in range(PLACES)])

    def _blocks(self, places: list[Host]) -> Iterator[Part]:
        n = int(self.n or 0)
        for number, first in enumerate(range(0, n, self.step)):
            rows = slice(first, min(first + self.step, n))
            place = places[number % len(places)][: rows.stop - first] if places else None
            yield Part(as_rows(self._read(rows, place), self.d, number), number, first)

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
