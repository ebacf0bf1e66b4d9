"""Tables in files: CSV, TSV, Parquet, Arrow, NPY, NPZ, standard input and output.

Nothing is mended silently: rows of other lengths, repeated names and other encodings are errors.
"""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl

from dualpca.atomic import replacing
from dualpca.errors import DualPCAError

Source = str | os.PathLike[str]

MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"]
"""What stands for a missing entry in text."""

KINDS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".npy": "npy",
    ".npz": "npz",
}
SEPARATORS = {"csv": ",", "tsv": "\t"}


class TableError(DualPCAError, ValueError):
    """A table cannot be read, or does not hold what a model needs."""


def kind_of(path: Source, kind: str | None = None) -> str:
    """Return the kind of a table: as given, or by the ending of its name; CSV for '-'."""
    if kind is not None:
        if kind not in KINDS.values():
            raise TableError(f"{kind!r} is no kind of table: use {sorted(set(KINDS.values()))}.")
        return kind
    if str(path) == "-":
        return "csv"
    ending = Path(path).suffix.lower()
    if ending not in KINDS:
        raise TableError(
            f"{path}: the ending {ending!r} says nothing of the format. Use one of "
            f"{sorted(KINDS)}, or --format."
        )
    return KINDS[ending]


def read(path: Source, kind: str | None = None, encoding: str = "utf-8") -> pl.DataFrame:
    """Return a table as a polars frame.

    Parameters
    ----------
    path : path
        '-' is standard input.
    kind : {'csv', 'tsv', 'parquet', 'arrow', 'npy', 'npz'}, optional
        By the ending of the name unless given. NPY and NPZ hold matrices of numbers (of NPZ the
        only array, or `X`); their columns are called x0, x1, …. Pickles in them are refused.
    encoding : str
        Of text.

    Raises
    ------
    TableError
        If the file is empty, broken or of another kind.
    """
    kind = kind_of(path, kind)
    data = _bytes(path)
    if not data:
        raise TableError(f"{path} is empty: a table with one row at least was expected.")
    frame = READERS[kind](data, str(path), encoding)
    if frame.width == 0 or frame.height == 0:
        raise TableError(
            f"{path} has {frame.height} rows and {frame.width} columns: give one of each at least."
        )
    return frame


def _bytes(path: Source) -> bytes:
    if str(path) == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or error}.") from error


def _read_text(separator: str) -> Callable[[bytes, str, str], pl.DataFrame]:
    def reader(data: bytes, path: str, encoding: str) -> pl.DataFrame:
        text = _decoded(data, path, encoding)
        _check_rows(text, path, separator)
        try:
            return pl.read_csv(
                io.BytesIO(text.encode()),
                separator=separator,
                null_values=MISSING,
                infer_schema_length=None,
                try_parse_dates=True,
            )
        except pl.exceptions.PolarsError as error:
            raise TableError(f"{path} cannot be read: {_first_line(error)}.") from error

    return reader


def _decoded(data: bytes, path: str, encoding: str) -> str:
    try:
        return data.decode("utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding)
    except UnicodeError as error:
        at = f", first at byte {error.start}" if isinstance(error, UnicodeDecodeError) else ""
        raise TableError(
            f"{path} is not {encoding} text{at}. Say how it is encoded, such as "
            "--encoding latin-1 or --encoding utf-16."
        ) from None
    except LookupError:
        raise TableError(f"{encoding!r} is no encoding: utf-8, latin-1 and utf-16 are.") from None


def _check_rows(text: str, path: str, separator: str) -> None:
    """Refuse repeated or empty names, and rows that are longer or shorter than the header."""
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        names = next(rows, [])
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated or "" in names:
            what = f"repeats {repeated}" if repeated else "has an empty name"
            raise TableError(f"the header of {path} {what}: every column needs its own name.")
        for row in rows:
            if len(row) != len(names) and (row or len(names) > 1):
                raise TableError(
                    f"line {rows.line_num} of {path} has {len(row)} fields, the header "
                    f"{len(names)}. Mend the line (quote text that holds {separator!r})."
                )
    except csv.Error as error:
        raise TableError(f"line {rows.line_num} of {path} cannot be read: {error}.") from None


def _read_with(read_one: Any, name: str) -> Callable[[bytes, str, str], pl.DataFrame]:
    def reader(data: bytes, path: str, encoding: str) -> pl.DataFrame:
        try:
            frame: pl.DataFrame = read_one(io.BytesIO(data))
        except (pl.exceptions.PolarsError, OSError, ValueError) as error:
            raise TableError(f"{path} is no {name} file: {_first_line(error)}.") from error
        return frame

    return reader


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _read_numpy(data: bytes, path: str, encoding: str) -> pl.DataFrame:
    try:
        found = np.load(io.BytesIO(data), allow_pickle=False)
        matrix = found if isinstance(found, np.ndarray) else _only(found, path)
    except TableError:
        raise
    except Exception as error:  # zipfile and NumPy raise many kinds
        raise TableError(f"{path} is no NumPy file: {_first_line(error)}.") from error
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiub":
        raise TableError(
            f"{path} holds {matrix.dtype} of shape {matrix.shape}: a matrix of numbers was "
            "expected."
        )
    names = [f"x{j}" for j in range(matrix.shape[1])]
    return pl.DataFrame(np.ascontiguousarray(matrix), schema=names, orient="row")


def _only(archive: Any, path: str) -> Any:
    names = list(archive.files)
    if names != names[:1] and "X" not in names:
        raise TableError(f"{path} holds {names}: one array, or one called X, was expected.")
    return archive["X" if "X" in names else names[0]]


READERS: dict[str, Callable[[bytes, str, str], pl.DataFrame]] = {
    "csv": _read_text(","),
    "tsv": _read_text("\t"),
    "parquet": _read_with(pl.read_parquet, "Parquet"),
    "arrow": _read_with(pl.read_ipc, "Arrow"),
    "npy": _read_numpy,
    "npz": _read_numpy,
}


def write(frame: pl.DataFrame, path: Source, kind: str | None = None) -> None:
    """Write a table, whole or not at all; '-' is standard output."""
    kind = kind_of(path, kind)
    if str(path) == "-":
        _write_to(sys.stdout.buffer, frame, kind)
        sys.stdout.buffer.flush()
        return
    with replacing(path) as file:
        _write_to(file, frame, kind)


def _write_to(file: BinaryIO, frame: pl.DataFrame, kind: str) -> None:
    if kind in SEPARATORS:
        file.write(frame.write_csv(separator=SEPARATORS[kind]).encode())
    elif kind == "parquet":
        frame.write_parquet(file)
    elif kind == "arrow":
        frame.write_ipc(file)
    elif kind == "npy":
        np.save(file, _matrix(frame), allow_pickle=False)
    else:
        np.savez(file, X=_matrix(frame))


def _matrix(frame: pl.DataFrame) -> np.ndarray[Any, Any]:
    """Return the table as an array of numbers, which is all that NPY and NPZ can hold."""
    found = frame.to_numpy()
    if found.dtype.kind not in "fiub":
        text = [name for name, kind in frame.schema.items() if not kind.is_numeric()]
        raise TableError(f"NumPy files hold numbers, and {text} are none: write a CSV or Parquet.")
    return found
