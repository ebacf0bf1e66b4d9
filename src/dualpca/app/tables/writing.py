"""Tables written batch by batch, completely or not at all; text as it came, but for some cells."""

from __future__ import annotations

import codecs
import os
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

from dualpca.app.tables.reading import TEXT, TablePath, kind_of
from dualpca.app.tables.text import (
    CODES,
    Dialect,
    TableError,
    TextTable,
    body_of,
    fields_of,
    records_of,
)
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
    *,
    defuse: bool = False,
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
    defuse : bool
        Whether formulas in text become text for spreadsheets too.
    """
    if isinstance(frames, pl.DataFrame):
        height, frames = frames.height, [frames]
    with target(path) as file:
        return into(file, frames, kind_of(path), dialect, height, defuse=defuse)


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
    *,
    defuse: bool = False,
) -> Written:
    """Write tables one after another into an open file."""
    if defuse and kind in TEXT:
        frames = map(without_formulas, frames)
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


# --- text as it came, but for some cells -------------------------------------------------------

Changes = Mapping[int, tuple[np.ndarray[Any, Any], Sequence[str]]]
"""By position of the column: which rows of a batch change, (n,), and their new cells in order."""

LOOKED_AT = 1000
"""Rows in which the digits of a column are counted."""
FULL = 17
"""Significant digits that tell all float64 apart."""
NUMBER = re.compile(r"[+-]?([\d.,\s'’]*)(?:[eE][+-]?\d+)?")
"""A number, perhaps with thousands separated."""


class Rewritten:
    """Writes the records of a text file again with some cells changed, all others byte for byte.

    Parameters
    ----------
    file : binary file
    text : TextTable
    size : int
        Bytes of a batch, as for `TextTable.checked`.
    separator : str
        Of the new file; if it is that of the old one, rows without changes are copied as they are.
    defuse : bool
        Whether formulas become text for spreadsheets too.
    """

    def __init__(
        self,
        file: BinaryIO,
        text: TextTable,
        size: int,
        separator: str,
        *,
        defuse: bool = False,
    ) -> None:
        self.file, self.text, self.size, self.separator = file, text, size, separator
        self.defuse = defuse
        codec = text.file.codec
        if codec == "utf-8-sig" and not text.dialect.mark:
            codec = "utf-8"
        self.encoder = codecs.getincrementalencoder(codec)()

    def batches(self) -> Iterator[list[str]]:
        """Yield the records of every batch, with their line ends."""
        if self.size < 0:
            yield records_of("".join(self.text.checked(-1)))
            return
        yield from map(records_of, self.text.checked(self.size))

    def header(self, first: str | None = None) -> None:
        """Write what comes before the first record, with one more column at the front.

        Titles stay as they are; lines with as many cells as the header get an empty one more.
        """
        head = ""
        for piece in self.text.file.pieces(1 << 16):
            head += piece
            if len(head) >= self.text.start:
                break
        title = self.text.title
        for lines, name in (
            (head[: self.text.start if title is None else title], ""),
            (head[self.text.start if title is None else title : self.text.start], first or ""),
        ):
            for line in records_of(lines):
                self._say(self._told(line, None if first is None else name))
                name = ""

    def _told(self, line: str, front: str | None) -> str:
        """Return a line above the first record in the new dialect, with a cell at the front."""
        old, new = self.text.dialect.separator, self.separator
        body = body_of(line)
        if re.fullmatch("sep=.", body.strip(), re.IGNORECASE):
            return line.replace(old, new)
        fields = fields_of(body, old)
        same = len(fields) == len(self.text.names)
        if front and not same:
            raise TableError(f"{self.text.path} has quotes inside of cells: remove them.")
        fields = [front, *fields] if front is not None and same else fields
        fields = [defused_field(one) for one in fields] if self.defuse else fields
        fields = fields if old == new else [quoted(one, new) for one in fields]
        return new.join(fields) + line[len(body) :]

    def write(self, records: list[str], changes: Changes, first: str | None = None) -> None:
        """Write the records of a batch, with changes, and one more cell at the front of each."""
        old, new = self.text.dialect.separator, self.separator
        if any(len(where) != len(records) for where, _ in changes.values()):
            raise TableError(f"{self.text.path} has quotes inside of cells: remove them.")
        found, before = list(records), "" if first is None else first + new
        rows = range(len(found)) if old != new or self.defuse else _changed(changes)
        cells = {j: iter(words) for j, (_, words) in changes.items()}
        for i in rows:
            body = body_of(found[i])
            fields, end = fields_of(body, old), found[i][len(body) :]
            if len(fields) != len(self.text.names):
                raise TableError(f"{self.text.path} has quotes inside of cells: remove them.")
            for j, (where, _) in changes.items():
                if where[i]:
                    word = next(cells[j])  # NA in quotes is a value, also among text in quotes
                    fields[j] = f'"{word}"' if word in CODES else quoted(word, new)
            if self.defuse:
                fields = [defused_field(one) for one in fields]
            if old != new:
                fields = [quoted(one, new) for one in fields]
            found[i] = new.join(fields) + end
        if first is not None:
            found = [before + (one if one.endswith("\n") else one + "\n") for one in found]
        self._say("".join(found))

    def _say(self, words: str) -> None:
        words = words.replace("\n", "\r") if self.text.file.mac else words
        data = memoryview(self.encoder.encode(words))
        for k in range(0, len(data), PIECE):  # a reader that has left is noticed between pieces
            self.file.write(data[k : k + PIECE])


def _changed(changes: Changes) -> list[int]:
    """Return the rows with changes, in order."""
    if not changes:
        return []
    return [int(i) for i in np.flatnonzero(np.any([w for w, _ in changes.values()], axis=0))]


def quoted(cell: str, separator: str) -> str:
    """Return a cell with quotes if it needs them."""
    if cell[:1] == '"' or not any(sign in cell for sign in (separator, '"', "\n", "\r")):
        return cell
    return '"' + cell.replace('"', '""') + '"'


# --- formulas ----------------------------------------------------------------------------------

FORMULA = r"^\s*[=+\-@＝＋－＠]"
"""How text begins that spreadsheets take for a formula."""


def is_formula(cell: str) -> bool:
    """Return True for text that a spreadsheet would run; numbers with a sign are none.

    Examples
    --------
    >>> [is_formula(cell) for cell in ("=1+1", "@SUM(A1)", "-1,234.5", "+49 176 5", "-5 %", "a=b")]
    [True, True, False, False, False, False]
    """
    if re.match(FORMULA, cell) is None:
        return False
    return NUMBER.fullmatch(cell.strip().removesuffix("%")) is None


def defused(cell: str) -> str:
    """Return text with an apostrophe before a formula.

    Examples
    --------
    >>> print(defused("=1+1"), defused("-3"), defused("R&D"))
    '=1+1 -3 R&D
    """
    return f"'{cell}" if is_formula(cell) else cell


def defused_field(field: str) -> str:
    """Return a cell as a file has it, perhaps in quotes, with an apostrophe before a formula.

    Examples
    --------
    >>> print(defused_field("=1+1"), defused_field('"=A1,B1"'))
    '=1+1 "'=A1,B1"
    """
    if field[:1] != '"':
        return defused(field)
    return f"\"'{field[1:]}" if is_formula(field[1:-1]) else field


def without_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table with an apostrophe before formulas, in names and in text.

    Examples
    --------
    >>> without_formulas(pl.DataFrame({"=a": ["=1+1", "b"], "c": [-1, 2]})).rows(named=True)[0]
    {"'=a": "'=1+1", 'c': -1}
    """
    changed = []
    for column in frame.iter_columns():
        if column.dtype in (pl.String, pl.Categorical, pl.Enum):
            text = column.cast(pl.String)
            some = text.filter(text.str.contains(FORMULA)).unique().to_list()
            if some:
                changed.append(text.replace({cell: defused(cell) for cell in some}))
    names = {name: defused(name) for name in frame.columns}
    return frame.with_columns(changed).rename(names)


# --- numbers -----------------------------------------------------------------------------------


def digits_in(cells: Iterable[str]) -> int:
    """Return the largest number of significant digits of cells that are numbers; 0 without any.

    Examples
    --------
    >>> digits_in(["7394.8", "400", "", "0.012", '"1,50"', "1e-5", "NA"]), digits_in(["1 234.5"])
    (5, 5)
    """
    most = 0
    for cell in cells:
        found = NUMBER.fullmatch(cell.strip().strip('"').strip())
        digits = "" if found is None else re.sub(r"\D", "", found[1])
        most = max(most, len(digits.lstrip("0")) or len(digits[:1]))
    return most


def number_text(value: float, digits: int, decimal: str = ".") -> str:
    """Return a number with so many significant digits, without zeros at its end.

    Examples
    --------
    >>> number_text(7394.79999, 7), number_text(0.5, 3, ","), number_text(1234567.8, 3)
    ('7394.8', '0,5', '1234568')
    """
    if digits >= FULL or not 1e-5 <= abs(value) < 1e15:
        text = repr(float(value)) if digits >= FULL else f"{value:.{digits}g}"
    else:
        places = max(digits - 1 - int(np.floor(np.log10(abs(value)))), 0)
        text = f"{value:.{places}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace(".", decimal)
