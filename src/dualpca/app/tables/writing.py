"""Tables written batch by batch, completely or not at all."""

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

from dualpca.app.tables.reading import TEXT, TablePath, kind_of
from dualpca.app.tables.text import Dialect, TableError
from dualpca.data import replacing

PIECE = 1 << 15
"""Bytes of text that are written at once."""


class Written(NamedTuple):
    """What was written."""

    rows: int
    columns: list[str]


def write(
    frames: pl.DataFrame | Iterable[pl.DataFrame],
    path: TablePath,
    dialect: Dialect | None = None,
    height: int = -1,
) -> Written:
    """Write tables one after another into one file, or nothing at all; '-' is standard output.

    Parameters
    ----------
    frames : polars.DataFrame or iterable of them
        At least one, all with the same columns.
    path : path
    dialect : Dialect, optional
        Of text.
    height : int
        Rows in all, which NumPy's files begin with.
    """
    if isinstance(frames, pl.DataFrame):
        height, frames = frames.height, [frames]
    with target(path) as file:
        return into(file, frames, kind_of(path), dialect, height)


@contextmanager
def target(path: TablePath) -> Iterator[BinaryIO]:
    """Open what is to be written: a file that appears when the block ends well, or '-'."""
    if str(path) == "-":
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
    if kind in TEXT:
        said = dialect or Dialect()
        said = said._replace(separator="\t") if kind == "tsv" else said
        for k, frame in enumerate(counted):
            _write_text(file, frame, said, header=k == 0)
    elif kind in ("parquet", "arrow"):
        _sink(register_io_source(lambda *_: iter(counted), schema=counted.first.schema), kind, file)
    elif kind == "npy":
        _write_matrix(file, counted, height)
    elif kind == "npz":
        with (
            zipfile.ZipFile(file, "w") as archive,
            archive.open("X.npy", "w", force_zip64=True) as member,
        ):
            _write_matrix(member, counted, height)
    else:
        raise TableError("a table cannot be written to a folder: give the name of a file.")
    return Written(counted.rows, counted.first.columns)


class _Counted:
    """Tables, counted as they pass."""

    def __init__(self, frames: Iterator[pl.DataFrame]) -> None:
        self.first = next(frames)
        self.frames = chain([self.first], frames)
        self.rows = 0

    def __iter__(self) -> Iterator[pl.DataFrame]:
        for frame in self.frames:
            self.rows += frame.height
            yield frame


def _write_text(file: BinaryIO, frame: pl.DataFrame, dialect: Dialect, header: bool) -> None:
    text = frame.write_csv(
        separator=dialect.separator,
        decimal_comma=dialect.decimal == ",",
        include_header=header,
        include_bom=dialect.mark and header,
    )
    data = memoryview(text.encode())
    for k in range(0, len(data), PIECE):  # a reader that has left is noticed between pieces
        file.write(data[k : k + PIECE])


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
    first = _matrix(frames.first)
    header = {"descr": np.lib.format.dtype_to_descr(first.dtype), "fortran_order": False}
    rows = height if height >= 0 else frames.first.height
    np.lib.format.write_array_header_1_0(file, header | {"shape": (rows, first.shape[1])})
    for frame in frames:
        file.write(np.ascontiguousarray(_matrix(frame), dtype=first.dtype).tobytes())
    if frames.rows != rows:
        raise TableError(f"{rows} rows were to be written, but {frames.rows} came.")


def _matrix(frame: pl.DataFrame) -> np.ndarray[Any, Any]:
    """Return the table as an array of numbers, which is all that NPY and NPZ can hold."""
    found = frame.to_numpy()
    if found.dtype.kind not in "fiub":
        text = [name for name, kind in frame.schema.items() if not kind.is_numeric()]
        raise TableError(
            f"NumPy files hold numbers, and {text} are not: write a CSV or Parquet file."
        )
    return found
