"""Tables in files: CSV, TSV, Parquet, Arrow, NPY, NPZ, standard input and output.

Nothing is mended silently: rows of other lengths, repeated names and other encodings are errors.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl

from dualpca.app.tables import images, text_tables
from dualpca.app.tables.dialects import Dialect, TableError
from dualpca.app.tables.text_tables import MISSING, first_line
from dualpca.data import replacing

__all__ = ["KINDS", "MISSING", "Source", "TableError", "kind_of", "read", "write", "write_to"]

Source = str | os.PathLike[str]

KINDS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".npy": "npy",
    ".npz": "npz",
}
TEXT = ("csv", "tsv")
IMAGES = "images"
PIECE = 1 << 15


def kind_of(path: Source, kind: str | None = None) -> str:
    """Return the kind of a table: as given, or by the ending of its name; CSV for '-'."""
    if os.path.isdir(path):
        return IMAGES
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


def read(
    path: Source,
    kind: str | None = None,
    encoding: str = "utf-8",
    *,
    separator: str | None = None,
    decimal: str | None = None,
    verbatim: tuple[str, ...] = (),
) -> pl.DataFrame:
    """Return a table as a polars frame.

    Parameters
    ----------
    path : path
        '-' is standard input; a folder is one of images.
    kind : {'csv', 'tsv', 'parquet', 'arrow', 'npy', 'npz'}, optional
        By the ending of the name unless given. NPY and NPZ hold matrices of numbers (of NPZ the
        only array, or `X`); their columns are called x0, x1, …. Pickles in them are refused.
    encoding : str
        Of text.
    separator, decimal : str, optional
        Of text; seen in its first lines unless given.
    verbatim : tuple of str
        Columns of text files that are not read as numbers: identifiers may begin with zeros.

    Raises
    ------
    TableError
        If the file is empty, broken or of another kind.
    """
    kind = kind_of(path, kind)
    if kind == IMAGES:
        pictures = images.found(path)
        return next(pictures.frames(len(pictures.files)))
    data = _bytes(path)
    if not data:
        raise TableError(f"{path} is empty: a table with one row at least was expected.")
    if kind in TEXT:
        given = (kind, encoding, separator, decimal, verbatim)
        frame = text_tables.opened(str(path), lambda: io.BytesIO(data), *given).whole()
    else:
        frame = READERS[kind](data, str(path))
    return not_empty(frame, path)


def not_empty(frame: pl.DataFrame, path: Source) -> pl.DataFrame:
    """Refuse a table without rows or columns."""
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


def _read_with(read_one: Any, name: str) -> Callable[[bytes, str], pl.DataFrame]:
    def reader(data: bytes, path: str) -> pl.DataFrame:
        try:
            frame: pl.DataFrame = read_one(io.BytesIO(data))
        except (pl.exceptions.PolarsError, OSError, ValueError) as error:
            raise TableError(f"{path} is no {name} file: {first_line(error)}.") from error
        return frame

    return reader


def _read_numpy(data: bytes, path: str) -> pl.DataFrame:
    try:
        found = np.load(io.BytesIO(data), allow_pickle=False)
        matrix = found if isinstance(found, np.ndarray) else _only(found, path)
    except TableError:
        raise
    except Exception as error:  # zipfile and NumPy raise many kinds
        raise TableError(f"{path} is no NumPy file: {first_line(error)}.") from error
    check_matrix(matrix, path)
    names = [f"x{j}" for j in range(matrix.shape[1])]
    return pl.DataFrame(np.ascontiguousarray(matrix), schema=names, orient="row")


def check_matrix(matrix: np.ndarray[Any, Any], path: str) -> None:
    """Refuse an array that is no matrix of numbers."""
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiub":
        raise TableError(
            f"{path} holds {matrix.dtype} of shape {matrix.shape}: a matrix of numbers was "
            "expected."
        )


def _only(archive: Any, path: str) -> Any:
    names = list(archive.files)
    if names != names[:1] and "X" not in names:
        raise TableError(f"{path} holds {names}: one array, or one called X, was expected.")
    return archive["X" if "X" in names else names[0]]


READERS: dict[str, Callable[[bytes, str], pl.DataFrame]] = {
    "parquet": _read_with(pl.read_parquet, "Parquet"),
    "arrow": _read_with(pl.read_ipc, "Arrow"),
    "npy": _read_numpy,
    "npz": _read_numpy,
}


def write(
    frame: pl.DataFrame, path: Source, kind: str | None = None, dialect: Dialect | None = None
) -> None:
    """Write a table, whole or not at all; '-' is standard output."""
    kind = kind_of(path, kind)
    if str(path) == "-":
        write_to(sys.stdout.buffer, frame, kind, dialect)
        sys.stdout.buffer.flush()
        return
    with replacing(path) as file:
        write_to(file, frame, kind, dialect)


def write_to(
    file: BinaryIO,
    frame: pl.DataFrame,
    kind: str,
    dialect: Dialect | None = None,
    header: bool = True,
) -> None:
    """Write a table to an open file; text as the dialect says."""
    if kind in TEXT:
        as_said = dialect or Dialect()
        as_said = as_said._replace(separator="\t") if kind == "tsv" else as_said
        _write_text(file, frame, as_said, header)
    elif kind == "parquet":
        frame.write_parquet(file)
    elif kind == "arrow":
        frame.write_ipc(file)
    elif kind == "npy":
        np.save(file, matrix(frame), allow_pickle=False)
    elif kind == "npz":
        np.savez(file, X=matrix(frame))
    else:
        raise TableError("a table cannot be written to a folder: give the name of a file.")


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


def matrix(frame: pl.DataFrame) -> np.ndarray[Any, Any]:
    """Return the table as an array of numbers, which is all that NPY and NPZ can hold."""
    found = frame.to_numpy()
    if found.dtype.kind not in "fiub":
        text = [name for name, kind in frame.schema.items() if not kind.is_numeric()]
        raise TableError(f"NumPy files hold numbers, and {text} are none: write a CSV or Parquet.")
    return found
