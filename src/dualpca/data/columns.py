"""Wide tables in chunks of columns: when to read them so, and a source with columns for rows.

A table of few rows and many columns (voxels, SNPs, spectra) is stored in chunks of columns, or in
rows too long for memory. With its columns for rows it is a chunked table like any other, whose
chunks are all rows of a few columns: `Table.by_columns`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np

from dualpca.arrays import backend, memory, shown
from dualpca.data.atomic import replacing
from dualpca.data.base import Chunk
from dualpca.data.frames import Host

COLUMNS = "chunk of columns"
"""What a chunk is called where progress is shown."""

MOST_ROWS = 4000
"""Number of rows up to which a table is read by columns: their (n, n) products are stored."""

MUCH_WIDER = 10
"""Columns per row from which a file without chunks, which can be read either way, is."""


def splits_columns(n: int, d: int, chunks: tuple[int, int] | None) -> bool:
    """Return True if a table of few rows is better read by columns than by rows.

    Parameters
    ----------
    n, d : int
    chunks : tuple of two ints or None
        Rows and columns of a chunk; None for a file without chunks.

    Examples
    --------
    >>> splits_columns(120, 9000, (120, 500)), splits_columns(120, 9000, (1, 9000))
    (True, False)
    >>> splits_columns(120, 9000, None), splits_columns(120, 200, None)
    (True, False)
    """
    if not 0 < n < d or n > MOST_ROWS:
        return False
    if chunks is None:
        return d >= MUCH_WIDER * n
    return chunks[1] < d or chunks[0] >= n


def refuse_long_rows(rows: int, d: int, dtype: np.dtype[Any]) -> None:
    """Refuse to read rows of a wide table that memory cannot hold as many of as a chunk has."""
    size, free = rows * d * dtype.itemsize, memory.free()
    if size > free:
        raise ValueError(
            f"X is in chunks of columns, and this reads whole rows: {rows} of {d} columns at once "
            f"are {shown(size)}, and {shown(free)} of memory are free. PCA and PPCA of complete "
            "rows read columns. For others store X in chunks of rows, or fit the coordinates that "
            "PCA gives."
        )


class Transposed:
    """A stored array with columns for rows; what is sliced is read, as a view of what was read."""

    def __init__(self, source: Any) -> None:
        n, d = source.shape
        self.source, self.shape, self.dtype = source, (int(d), int(n)), source.dtype
        self.chunks = chunks_of(source)
        if self.chunks is not None:
            self.chunks = self.chunks[::-1]

    def __getitem__(self, columns: slice) -> Host:
        """Return all rows of some columns, transposed, (b, n)."""
        block: Host = self.source[:, columns]
        return block.T


def chunks_of(source: Any) -> tuple[int, int] | None:
    """Return rows and columns of the chunks of a stored array, if it has any."""
    chunks = getattr(source, "chunks", None)
    if not isinstance(chunks, tuple) or len(chunks) != 2:
        return None
    return chunks if all(isinstance(size, int) for size in chunks) else None


# --- Where rows that are read by columns lie beside axes ------------------------------------------


def projections(
    read: Callable[[], Iterable[Chunk]],
    n: int,
    origin: tuple[Host, Host | None],
    axes: Callable[[slice], Host],
    q: int,
    *,
    off: bool,
) -> Host:
    """Return coordinates along the axes and squared distances off them, (n, q + 1).

    Parameters
    ----------
    read : callable
        Returns the chunks of columns, (b, n) each, from the first.
    n : int
    origin : tuple of two arrays of shape (d,)
        Mean and scale; the latter may be None.
    axes : callable
        Axes at some columns, (b, q).
    q : int
    off : bool
        Measure the distances, in a second pass; they are 0 otherwise.
    """
    Y, squares = np.zeros((n, q)), np.zeros(n)
    for C, V in _centred(read(), origin, axes):
        Y += C @ V
    for C, V in _centred(read(), origin, axes) if off else ():
        C -= Y @ V.T
        squares += np.einsum("ij,ij->i", C, C)
    return np.column_stack([Y, squares])


@np.errstate(over="ignore", invalid="ignore")
def _centred(
    chunks: Iterable[Chunk], origin: tuple[Host, Host | None], axes: Callable[[slice], Host]
) -> Iterator[tuple[Host, Host]]:
    """Yield blocks of centred columns, fresh, (n, b), and the axes there, (b, q)."""
    mean, scale = origin
    for part in chunks:
        V = axes(slice(part.first, part.first + len(part.rows)))
        for block in backend.slices(len(part.rows), backend.block_rows(part.rows.shape[1])):
            here = slice(part.first + block.start, part.first + block.stop)
            C = np.subtract(part.rows[block].T, mean[here], dtype=np.float64, order="C")
            if scale is not None:
                C /= scale[here]
            yield C, np.asarray(V[block], dtype=np.float64)


# --- Something as wide as the table, written by columns ------------------------------------------

WRITTEN_BYTES = 2**24
"""Of a block of columns that is changed at once."""


class WideRows:
    """A few rows of many columns, (q, d), written block by block of columns.

    Parameters
    ----------
    shape : tuple of two ints
    dtype : NumPy dtype
    file : binary file, optional
        Becomes a .npy file. Where there is none, the numbers are kept in memory.

    Examples
    --------
    >>> rows = WideRows((2, 3), np.float64)
    >>> rows.put(0, np.ones((2, 3)))
    >>> rows.change(lambda block: 2 * block)
    >>> rows.array[0]
    array([2., 2., 2.])
    """

    def __init__(self, shape: tuple[int, int], dtype: Any, file: BinaryIO | None = None) -> None:
        self.shape, self.dtype, self.file = shape, np.dtype(dtype), file
        self.array = np.empty(shape if file is None else (0, 0), dtype=self.dtype)
        if file is not None:
            header = {"descr": self.dtype.str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            self.begin = file.tell()
            file.truncate(self.begin + shape[0] * shape[1] * self.dtype.itemsize)

    def put(self, first: int, block: Host) -> None:
        """Write a block of columns, (q, b), from this column on."""
        if self.file is None:
            self.array[:, first : first + block.shape[1]] = block
            return
        for row, values in enumerate(np.ascontiguousarray(block, dtype=self.dtype)):
            self._seek(row, first)
            self.file.write(values.data)

    def get(self, columns: slice) -> Host:
        """Return a block of columns, (q, b)."""
        if self.file is None:
            return self.array[:, columns]
        block = np.empty((self.shape[0], columns.stop - columns.start), dtype=self.dtype)
        for row, values in enumerate(block):
            self._seek(row, columns.start)
            self.file.readinto(values.data)  # type: ignore[attr-defined]
        return block

    def _seek(self, row: int, column: int) -> None:
        assert self.file is not None
        self.file.seek(self.begin + (row * self.shape[1] + column) * self.dtype.itemsize)

    def change(self, of: Any) -> None:
        """Replace every block of columns by what a function makes of it."""
        step = max(1, WRITTEN_BYTES // (8 * max(self.shape[0], 1)))
        for columns in backend.slices(self.shape[1], step):
            self.put(columns.start, of(self.get(columns)))


@contextmanager
def wide_rows(
    path: str | os.PathLike[str] | None, shape: tuple[int, int], dtype: Any
) -> Iterator[WideRows]:
    """Open rows to be written by columns: in memory, or as a .npy file, whole or not at all.

    After the block, `array` has them; a file is mapped, read-only.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with wide_rows(f"{folder}/axes.npy", (2, 3), np.float32) as rows:
    ...         rows.put(1, np.ones((2, 2)))
    ...     rows.array[1]
    memmap([0., 1., 1.], dtype=float32)
    """
    if path is None:
        yield WideRows(shape, dtype)
        return
    with replacing(path) as file:
        rows = WideRows(shape, dtype, file)
        yield rows
    rows.file, rows.array = None, np.load(path, mmap_mode="r")
