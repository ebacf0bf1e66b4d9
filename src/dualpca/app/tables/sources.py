"""Where the bytes of a table come from, how many there are, and how many memory has room for."""

from __future__ import annotations

import io
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from typing import Any, BinaryIO

import polars as pl

from dualpca.app.tables import images
from dualpca.app.tables.dialects import TableError
from dualpca.app.tables.tables import IMAGES, TEXT
from dualpca.arrays import memory

Opener = Callable[[], BinaryIO]

COPIES = {"csv": 12, "tsv": 12, "parquet": 10, "arrow": 10, "npy": 8, "npz": 8, IMAGES: 8}
"""How many times the bytes of a table may be in memory while it is read and used."""
STILL = 40_000_000
"""Bytes that the program takes once it reads: threads, their buffers, modules loaded late."""
SHARE = 0.5
"""Of free memory, unless a limit is given."""
SMALLEST, LARGEST = 1 << 14, 1 << 26
"""Bytes of a batch."""


def room_for(limit: int | None) -> int:
    """Return the bytes that tables may take: what the limit leaves beside the program itself."""
    if limit is None:
        return int(SHARE * memory.free())
    used = memory.resident() + STILL
    if limit <= used:
        raise TableError(
            f"--memory-limit {memory.shown(limit)} is less than the program takes by itself, "
            f"{memory.shown(used)}: give it more."
        )
    return limit - used


def piece_of(kind: str, room: int) -> int:
    """Return the bytes of a batch."""
    return min(max(room // (4 * COPIES[kind]), SMALLEST), LARGEST)


def bytes_of(path: str, kind: str, room: int) -> tuple[Opener, int]:
    """Return how to open a table's bytes again and again, and how many there are, unpacked."""
    if path == "-":
        return _spooled(sys.stdin.buffer, kind, room // COPIES[kind])
    try:
        if kind == IMAGES:
            pictures = images.found(path)
            return io.BytesIO, 8 * math.prod(pictures.shape) * len(pictures.files)
        size = os.path.getsize(path)
        if size == 0:
            raise TableError(f"{path} is empty: a table with one row at least was expected.")
        if kind == "parquet":  # compressed: what counts is what comes out
            size = max(size, 8 * _cells(path))
        with open(path, "rb"):  # it may be read
            return lambda: open(path, "rb"), size
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or error}.") from error


def _cells(path: str) -> int:
    try:
        lazy = pl.scan_parquet(path)
        return int(lazy.select(pl.len()).collect().item()) * len(lazy.collect_schema())
    except pl.exceptions.PolarsError:  # whoever reads it says why
        return 0


def _spooled(stream: BinaryIO, kind: str, most: int) -> tuple[Opener, int]:
    """Return a stream's bytes: in memory up to a size, in a temporary file beyond."""
    data = stream.read(most + 1)
    if not data:
        raise TableError("- is empty: a table with one row at least was expected.")
    if len(data) <= most:
        return lambda: io.BytesIO(data), len(data)
    if kind not in TEXT:
        what = f"more than {memory.shown(most)} of {kind} on standard input"
        raise TableError(f"{what} cannot be read in batches: write it to a file, and name that.")
    # it has no name, so it is gone with the process, however that ends
    file = tempfile.TemporaryFile()
    file.write(data)
    shutil.copyfileobj(stream, file)
    return _Spool(file), file.tell()


class _Spool:
    """Opens a temporary file again and again, and closes it when nobody can any more."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def __call__(self) -> BinaryIO:
        return io.BufferedReader(_Again(self.file))

    def __del__(self) -> None:
        self.file.close()


class _Again(io.RawIOBase):
    """An open file from its beginning; closing this leaves the file open for the next time."""

    def __init__(self, file: Any) -> None:
        self.file = file
        file.seek(0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return int(self.file.readinto(buffer))
