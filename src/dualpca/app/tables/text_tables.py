"""Tables in text (CSV, TSV), whole or in pieces that end where a record ends.

Nothing is mended silently: rows of other lengths, repeated names and other encodings are errors.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import polars as pl

from dualpca.app.tables.decoding import TextFile
from dualpca.app.tables.dialects import Dialect, TableError, detect

MISSING = ["", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None"]
MISSING += ["#N/A", "#NV", "#DIV/0!", "#VALUE!", "#REF!", "#NUM!"]
"""What stands for a missing entry in text: R's, Python's and Excel's words."""

HEAD = 1 << 16
"""Bytes that say how a file is written."""


@dataclass(frozen=True)
class TextTable:
    """A text file with a table: how it is written and what its columns are called."""

    file: TextFile
    dialect: Dialect
    names: list[str]
    start: int  # characters before the first record
    first_line: int
    verbatim: tuple[str, ...] = ()  # columns that stay text

    @property
    def path(self) -> str:
        """Return what the file is called."""
        return self.file.path

    def pieces(self, size: int) -> Iterator[str]:
        """Yield the records, `size` bytes at a time (-1: all), each piece ending with one."""
        skip, rest = self.start, ""
        for text in self.file.pieces(size):
            rest += text
            if skip > 0:
                cut = min(skip, len(rest))
                skip, rest = skip - cut, rest[cut:]
            end = _last_record(rest)
            if end:
                yield rest[:end]
                rest = rest[end:]
            elif size > 0 and len(rest) > 64 * size:
                raise TableError(f"{self.path} has a quote that is never closed, or no lines.")
        if rest:
            yield rest

    def checked(self, size: int) -> Iterator[str]:
        """Yield pieces whose rows all have as many fields as the header; no blank lines at the end.

        A blank line is a missing entry where there is one column, an error between rows elsewhere.
        """
        line, waiting = self.first_line, ""
        for piece in self.pieces(size):
            kept, waiting = self._without_blank_end(waiting + piece)
            if kept:
                self._check(kept, line)
                yield kept
            line += kept.count("\n")

    def _without_blank_end(self, piece: str) -> tuple[str, str]:
        """Return a piece up to its last row, and the blank lines after it."""
        if len(self.names) == 1:
            return piece, ""
        rows = len(piece.rstrip("\r\n"))
        end = (piece.find("\n", rows) + 1 or len(piece)) if rows else 0
        return piece[:end], piece[end:]

    def _check(self, piece: str, line: int) -> None:
        """Refuse rows that are longer or shorter than the header; quick where nothing is quoted."""
        separator, wanted = self.dialect.separator, len(self.names)
        if '"' not in piece and "\r" not in piece.replace("\r\n", ""):
            counts = {row.count(separator) for row in piece.removesuffix("\n").split("\n")}
            if counts == {wanted - 1}:
                return
        rows = csv.reader(io.StringIO(piece, newline=""), delimiter=separator)
        try:
            for row in rows:
                if len(row) != wanted and (row or wanted > 1):
                    raise _ragged(self, line + rows.line_num, len(row))
        except csv.Error as error:
            where = f"line {line + rows.line_num} of {self.path}"
            raise TableError(f"{where} cannot be read: {error}.") from None

    def parsed(self, piece: str, schema: Mapping[str, Any] | None = None) -> pl.DataFrame:
        """Return a piece as a table, of the types given or its own; dates stay text.

        A column is of numbers too if some have spaces around them, or are nothing but spaces.
        """
        try:
            if schema is not None:
                return self._read(piece, schema)
            found = self._read(piece)
        except pl.exceptions.PolarsError as error:
            if schema is None:
                raise TableError(f"{self.path} cannot be read: {first_line(error)}.") from error
            found = self._read(piece, dict.fromkeys(self.names, pl.String))
        text = [c for c in found.iter_columns() if c.dtype == pl.String]
        text = [c for c in text if c.name not in self.verbatim]
        wanted = {} if schema is None else schema
        numbers = (self._number(c) for c in text if wanted.get(c.name) != pl.String)
        found = found.with_columns([c for c in numbers if c is not None])
        if any(
            found.schema[name].is_numeric() != kind.is_numeric() for name, kind in wanted.items()
        ):
            raise TableError(f"{self.path} has columns of numbers with something else in them.")
        return found.cast({n: t for n, t in wanted.items() if t != found.schema[n]})

    def _read(self, piece: str, schema: Mapping[str, Any] | None = None) -> pl.DataFrame:
        return pl.read_csv(
            io.BytesIO((self._header() + piece).encode()),
            separator=self.dialect.separator,
            decimal_comma=self.dialect.decimal == ",",
            null_values=MISSING,
            infer_schema_length=None if schema is None else 0,
            schema_overrides=dict(schema or {}) | dict.fromkeys(self.verbatim, pl.String),
        )

    def _number(self, text: pl.Series) -> pl.Series | None:
        """Return text as numbers if all of it is that, but for spaces."""
        first = text.drop_nulls().head(1)
        if not len(first):
            return None
        text = text.str.strip_chars()
        text = text.set(text.is_in(MISSING), None)
        if self.dialect.decimal == ",":
            text = text.str.replace(",", ".", literal=True)
        found = text.cast(pl.Float64, strict=False)
        return found if found.null_count() == text.null_count() < len(text) else None

    def _header(self) -> str:
        out = io.StringIO()
        quoted = csv.writer(out, delimiter=self.dialect.separator, quoting=csv.QUOTE_ALL)
        quoted.writerow(self.names)
        return out.getvalue().replace("\r\n", "\n")

    def whole(self) -> pl.DataFrame:
        """Return the whole table."""
        text = "".join(self.checked(-1))  # a last line without an end is a piece of its own
        return self.parsed(text) if text else pl.DataFrame(schema=self.names)

    def _guessed(self, piece: str, types: Mapping[str, Any]) -> pl.DataFrame:
        """Return a piece with the types of those before it, or its own if these do not fit."""
        if types and None not in types.values():
            with suppress(TableError):
                return self.parsed(piece, types)
        return self.parsed(piece)

    def scanned(self, size: int, tick: Callable[[], None] = lambda: None) -> Scan:
        """Return the rows and the types that all pieces agree on; `tick` is called after each."""
        types: dict[str, Any] = {}
        height = n_pieces = 0
        for piece in self.checked(size):
            part = self._guessed(piece, types)
            height, n_pieces = height + part.height, n_pieces + 1
            for column in part.iter_columns():
                types[column.name] = _common(types.get(column.name), column)
            tick()
        schema = {n: pl.String if t is None else t for n, t in types.items()}
        return Scan(height, n_pieces, schema)


class Scan(NamedTuple):
    """What a first reading of a file finds."""

    height: int
    n_pieces: int
    schema: dict[str, Any]


def _common(known: Any, column: pl.Series) -> Any:
    """Return a type for what was seen so far and for a column; None while all is missing."""
    kind = None if column.null_count() == len(column) else column.dtype
    if known is None or kind is None or known == kind:
        return kind if known is None else known
    return pl.Float64 if known.is_numeric() and kind.is_numeric() else pl.String


def opened(
    path: str,
    open_: Callable[[], BinaryIO],
    kind: str = "csv",
    encoding: str = "utf-8",
    separator: str | None = None,
    decimal: str | None = None,
    verbatim: Sequence[str] = (),
) -> TextTable:
    """Return a text file's table after a look at its first lines."""
    file = TextFile(path, open_, encoding)
    marked, head = file.is_marked(), _head(file)
    lines = io.StringIO(head, newline="")
    first = lines.readline().strip()
    if first.lower().startswith("sep=") and len(first) == 5:
        separator = separator or first[4]  # Excel's own word for it
    else:
        lines.seek(0)
    start = lines.tell()
    if kind == "tsv" and separator is None:
        separator = "\t"
    dialect = detect(head[start : head.rfind("\n") + 1 or None], separator, decimal)
    rows = csv.reader(lines, delimiter=dialect.separator)
    try:
        names = next(rows, [])
    except csv.Error as error:
        raise TableError(f"the header of {path} cannot be read: {error}.") from None
    _check_names(names, path)
    stay = tuple(name for name in verbatim if name in names)
    dialect = dialect._replace(mark=marked)
    return TextTable(file, dialect, names, lines.tell(), rows.line_num + (start > 0), stay)


def _head(file: TextFile) -> str:
    """Return the first lines, the whole of the header among them."""
    head = ""
    for text in file.pieces(HEAD):
        head += text
        if head.count("\n") > 1 and _last_record(head):
            break
    return head


def _check_names(names: list[str], path: str) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1 and name.strip()})
    nameless = [j for j, name in enumerate(names, start=1) if not name.strip()]
    if repeated:
        raise TableError(
            f"the header of {path} repeats {repeated}: every column needs its own name."
        )
    if nameless:
        which = ", ".join(map(str, nameless[:5]))
        raise TableError(
            f"the header of {path} has an empty name (column {which}): every column needs its own "
            "name. Delete empty columns."
        )


def _last_record(text: str) -> int:
    """Return where the last complete record ends: after a line that ends outside of quotes."""
    quotes, end = text.count('"'), len(text)
    while (at := text.rfind("\n", 0, end)) >= 0:
        quotes -= text.count('"', at, end)
        if quotes % 2 == 0:
            return at + 1
        end = at
    return 0


def _ragged(table: TextTable, line: int, fields: int) -> TableError:
    return TableError(
        f"line {line} of {table.path} has {fields} fields, the header {len(table.names)}. "
        f"Mend the line (quote text that holds {table.dialect.separator!r})."
    )


def first_line(error: BaseException) -> str:
    """Return the first line of an error, without a full stop."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
