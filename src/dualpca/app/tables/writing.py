"""Tables written batch by batch, whole or not at all."""

from __future__ import annotations

import os
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

from dualpca.app.tables import tables
from dualpca.app.tables.dialects import Dialect, TableError
from dualpca.app.tables.tables import TEXT
from dualpca.data import replacing


class Written(NamedTuple):
    """What was written."""

    rows: int
    columns: list[str]


def write(
    frames: Iterable[pl.DataFrame], path: str, dialect: Dialect | None = None, height: int = -1
) -> Written:
    """Write tables one after another into one file, whole or not at all; '-' is standard output.

    Parameters
    ----------
    frames : iterable of polars.DataFrame
        One at least, all with the same columns.
    path : str
    dialect : Dialect, optional
        Of text.
    height : int
        Rows in all, which NumPy's files begin with.
    """
    with target(path) as file:
        return into(file, frames, tables.kind_of(path), dialect, height)


@contextmanager
def target(path: str) -> Iterator[BinaryIO]:
    """Open what is to be written: a file that appears when the block ends well, or '-'."""
    if path == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with replacing(path) as file:
        yield file


def into(
    file: BinaryIO,
    frames: Iterable[pl.DataFrame],
    kind: str,
    dialect: Dialect | None = None,
    height: int = -1,
) -> Written:
    """Write tables one after another into an open file."""
    counted = _Counted(iter(frames))
    _write(file, counted, kind, dialect, height)
    return Written(counted.rows, counted.columns)


class _Counted:
    """Tables, counted as they pass."""

    def __init__(self, frames: Iterator[pl.DataFrame]) -> None:
        self.first = next(frames)
        self.frames = chain([self.first], frames)
        self.columns = self.first.columns
        self.rows = 0

    def __iter__(self) -> Iterator[pl.DataFrame]:
        for frame in self.frames:
            self.rows += frame.height
            yield frame


def _write(
    file: BinaryIO, frames: _Counted, kind: str, dialect: Dialect | None, height: int
) -> None:
    if kind in TEXT:
        for k, frame in enumerate(frames):
            tables.write_to(file, frame, kind, dialect, header=k == 0)
    elif kind in ("parquet", "arrow"):
        lazy = register_io_source(lambda *_: iter(frames), schema=frames.first.schema)
        _sink(lazy, kind, file)
    elif kind == "npy":
        _write_matrix(file, frames, height)
    elif kind == "npz":
        with (
            zipfile.ZipFile(file, "w") as archive,
            archive.open("X.npy", "w", force_zip64=True) as f,
        ):
            _write_matrix(f, frames, height)
    else:
        raise TableError("a table cannot be written to a folder: give the name of a file.")


def _sink(lazy: pl.LazyFrame, kind: str, file: BinaryIO) -> None:
    try:
        if kind == "parquet":
            lazy.sink_parquet(file)
        else:
            lazy.sink_ipc(file)
    except pl.exceptions.PolarsError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from error


def _write_matrix(file: Any, frames: _Counted, height: int) -> None:
    """Write an NPY file whose height is known beforehand."""
    first = tables.matrix(frames.first)
    header = {"descr": np.lib.format.dtype_to_descr(first.dtype), "fortran_order": False}
    rows = height if height >= 0 else frames.first.height
    np.lib.format.write_array_header_1_0(file, header | {"shape": (rows, first.shape[1])})
    for frame in frames:
        file.write(np.ascontiguousarray(tables.matrix(frame), dtype=first.dtype).tobytes())
    if frames.rows != rows:
        raise TableError(f"{rows} rows were to be written, {frames.rows} came.")
