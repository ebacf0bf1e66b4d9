"""Tables in text files: encodings, separators, decimal signs, and records read in batches.

Nothing is repaired silently: ragged rows, repeated names and wrong encodings are errors.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import polars as pl

from dualpca.errors import DualPCAError

# --- dialects: what separates fields, what marks decimals --------------------------------------
#
# Excel writes what the country expects: semicolons and decimal commas in much of Europe, a byte
# order mark, sometimes a first line `sep=;`. All of it can be seen in the first lines.

CANDIDATES = (",", ";", "\t", "|")
WITH_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+),\d+([eE][+-]?\d+)?")
WITH_POINT = re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d+)\.\d+([eE][+-]?\d+)?")


class TableError(DualPCAError, ValueError):
    """A table cannot be read, or does not hold what a model needs."""


class Dialect(NamedTuple):
    """How a file writes a table."""

    separator: str = ","
    decimal: str = "."
    mark: bool = False  # a byte order mark comes first

    def described(self) -> str:
        """Return what is unusual about the dialect in words; nothing if nothing is."""
        names = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
        words = [f"fields separated by {names.get(self.separator, repr(self.separator))}"]
        words += ["decimal commas"] if self.decimal == "," else []
        return " and ".join(words) if self.separator != "," else ""


def detect(head: str, separator: str | None = None, decimal: str | None = None) -> Dialect:
    r"""Return the dialect of a text from its first lines, as far as it is not given.

    The separator is the candidate that occurs most often in the header, outside of quotes; the
    decimal sign is a comma if some field is a number only with it, and none with a point.

    Examples
    --------
    >>> detect("size;weight\n1,5;2\n")
    Dialect(separator=';', decimal=',', mark=False)
    """
    header = head.split("\n", 1)[0]
    if separator is None:
        outside = re.sub(r'"[^"]*"', "", header)
        separator = max(CANDIDATES, key=outside.count)  # the first of equals: a comma
        split = [sign for sign in ";\t|" if sign in outside and _all_numbers(outside, sign)]
        separator = split[0] if separator == "," and split else separator  # 1,5;2,5;3,5
    _check(separator, decimal)
    if decimal is None:
        decimal = "." if separator == "," else _decimal(head, separator)
    return Dialect(separator, decimal)


def _all_numbers(line: str, separator: str) -> bool:
    fields = [field.strip() for field in line.split(separator)]
    commas = any(WITH_COMMA.fullmatch(field) for field in fields)
    return commas and all(is_entry(field, ",") for field in fields)


def is_entry(field: str, decimal: str = ".") -> bool:
    """Return True if a field is a number, a bound such as <50, or a code of a missing entry.

    Examples
    --------
    >>> [is_entry(field) for field in ("1.5", "NA", "<50", "age")]
    [True, True, True, False]
    """
    field = field.strip()
    plain = field.lstrip("<>=≤≥").strip()
    return field in MISSING or _is_number(plain.replace(",", ".") if decimal == "," else plain)


def _is_number(field: str) -> bool:
    try:
        return float(field) == float(field)  # nan is missing anyway
    except ValueError:
        return False


def _check(separator: str, decimal: str | None) -> None:
    if len(separator.encode()) != 1 or separator in '"\r\n':
        raise TableError(f"--separator must be one character such as ';', got {separator!r}.")
    if decimal not in (None, ".", ","):
        raise TableError(f"--decimal must be '.' or ',', got {decimal!r}.")
    if decimal == "," == separator:
        raise TableError("--decimal , needs another --separator, such as ';'.")


def _decimal(head: str, separator: str) -> str:
    fields: list[str] = []
    try:
        for row in csv.reader(io.StringIO(head, newline=""), delimiter=separator):
            fields += (field.strip() for field in row)
    except csv.Error:  # reading the whole file says where
        pass
    commas = any(WITH_COMMA.fullmatch(field) for field in fields)
    return "," if commas and not any(WITH_POINT.fullmatch(field) for field in fields) else "."


# --- decoding: bytes as text, piece by piece ---------------------------------------------------

MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


class TextFile(NamedTuple):
    """A file of text: what it is called, how it is opened and encoded.

    Examples
    --------
    >>> import io
    >>> list(TextFile("t.csv", lambda: io.BytesIO("a,σ".encode()), "utf-8").pieces(3))
    ['a,', 'σ']
    """

    path: str
    open: Callable[[], BinaryIO]
    encoding: str

    @property
    def codec(self) -> str:
        """Return the codec; for UTF-8 the one that accepts a byte order mark."""
        return "utf-8-sig" if self.encoding.lower() in ("utf-8", "utf8") else self.encoding

    def is_marked(self) -> bool:
        """Return True if the file begins with UTF-8's byte order mark, as Excel's do."""
        with self.open() as file:
            return self.codec == "utf-8-sig" and file.read(3) == codecs.BOM_UTF8

    def pieces(self, size: int) -> Iterator[str]:
        """Yield the text, `size` bytes at a time (-1: all)."""
        try:
            yield from self._decoded(size)
        except UnicodeError:  # UTF-16 without a byte order mark, for example
            raise self._undecodable(0) from None
        except LookupError:
            raise TableError(
                f"{self.encoding!r} is not an encoding: use utf-8, latin-1 or utf-16, for example."
            ) from None
        except OSError as error:
            raise TableError(f"{self.path} cannot be read: {error.strerror or error}.") from error

    def _decoded(self, size: int) -> Iterator[str]:
        decoder, done = codecs.getincrementaldecoder(self.codec)(), 0
        with self.open() as file:
            while True:
                data = file.read(size)
                waiting = len(decoder.getstate()[0])
                try:
                    text = decoder.decode(data, final=not data)
                except UnicodeDecodeError as error:
                    raise self._undecodable(done - waiting + error.start) from None
                if text:
                    yield text
                if not data:
                    return
                done += len(data)

    def _undecodable(self, at: int) -> TableError:
        with self.open() as file:
            mark = MARKS.get(file.read(2))
        say = f"It looks like utf-16: use --encoding {mark}."
        if mark is None or self.encoding == mark:
            say = "Give its encoding, such as --encoding latin-1, cp1252 (Excel) or utf-16."
        return TableError(f"{self.path} is not {self.encoding} text, first at byte {at}. {say}")


# --- records: a table whole, or in pieces that end where a record ends -------------------------

MISSING = ["", "NA", "N/A", "n/a", "na", "N.A.", "n.a.", "<NA>", "NaN", "nan", "NAN", "NaT"]
MISSING += ["null", "NULL", "Null", "None", ".", "-", "--", "?"]
MISSING += ["#N/A", "#NA", "#NV", "#DIV/0!", "#VALUE!", "#REF!", "#NUM!", "#NAME?", "#NULL!"]
MISSING += ["#WERT!", "#BEZUG!", "#ZAHL!"]
"""What marks a missing entry in text, in R, Python, SAS and Excel."""
TEXTUAL: tuple[Any, ...] = (pl.String, pl.Categorical, pl.Enum)
"""Types of text."""
COMMA = r"^((?:<=|>=|<|>|≤|≥)?\s*[+-]?\d*),(\d+(?:[eE][+-]?\d+)?)$"
"""A number with a decimal comma, or a bound."""

HEAD = 1 << 16
"""Bytes in which a dialect is detected."""


def without(frame: pl.DataFrame, codes: Sequence[str], keep: Sequence[str] = ()) -> pl.DataFrame:
    """Return a table in which cells with certain codes are missing.

    Parameters
    ----------
    frame : polars.DataFrame
    codes : sequence of str
        Text; one that is a number also stands for that number, however it is written. age=-999 is
        a code of the column age alone, if there is one.
    keep : sequence of str
        Columns that stay as they are.

    Examples
    --------
    >>> frame = pl.DataFrame({"a": [1.5, -999.0], "b": ["unknown", "-999.0"]})
    >>> without(frame, ["-999", "unknown"]).rows()
    [(1.5, None), (None, None)]
    >>> without(frame, ["a=-999"]).rows()
    [(1.5, 'unknown'), (None, '-999.0')]
    """
    if not codes:
        return frame
    changed = []
    own = {code: _column_of(code, frame.columns) for code in codes}
    for column in frame.iter_columns():
        kind, bad, name = column.dtype, None, column.name
        if name in keep:
            continue
        here = [code for code, one in own.items() if one is None]
        here += [code[len(name) + 1 :] for code, one in own.items() if one == name]
        values = [float(code) for code in here if _is_number(code)]
        if kind.is_numeric():
            bad = column.cast(pl.Float64).is_in(values)
        elif kind in TEXTUAL:
            text = column.cast(pl.String).str.strip_chars()
            bad = text.is_in(here) | text.cast(pl.Float64, strict=False).is_in(values)
        if bad is not None and bad.any():
            changed.append(column.set(bad.fill_null(False), None))
    return frame.with_columns(changed)


def _column_of(code: str, names: Sequence[str]) -> str | None:
    """Return the column that a code such as age=-999 is of; None for a code of all columns."""
    found = [name for name in names if code.startswith(f"{name}=")]
    return max(found, key=len, default=None)


@dataclass(frozen=True)
class TextTable:
    """A text file with a table: how it is written and what its columns are called."""

    file: TextFile
    dialect: Dialect
    names: list[str]
    start: int  # characters before the first record
    first_line: int
    verbatim: tuple[str, ...] = ()  # columns that stay text
    codes: tuple[str, ...] = ()  # of missing entries, beside the usual
    notes: tuple[str, ...] = ()  # what the user should know

    @property
    def path(self) -> str:
        """Return the name of the file."""
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
        """Yield pieces whose rows all have as many fields as the header, without blank last lines.

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
        """Refuse rows with more or fewer fields than the header; fast where nothing is quoted."""
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
        """Return a piece as a table, with the given types or its own; dates stay text.

        Numbers may have spaces around them, and a field of spaces is missing.
        """
        try:
            found = self._read(piece, schema)
            if schema is not None:
                return without(self._points(found), self.codes, self.verbatim)
        except pl.exceptions.PolarsError as error:
            if schema is None:
                raise TableError(f"{self.path} cannot be read: {first_line(error)}.") from error
            found = self._read(piece, dict.fromkeys(self.names, pl.String))
        wanted = {} if schema is None else schema
        found = without(self._points(found), self.codes, self.verbatim)
        text = [c for c in found.iter_columns() if c.dtype == pl.String]
        text = [c for c in text if c.name not in self.verbatim]
        numbers = (self._number(c) for c in text if wanted.get(c.name) != pl.String)
        found = found.with_columns([c for c in numbers if c is not None])
        numeric = {n: found.schema[n].is_numeric() == t.is_numeric() for n, t in wanted.items()}
        if not all(good or found[n].null_count() == found.height for n, good in numeric.items()):
            raise TableError(f"{self.path} has columns of numbers with other entries among them.")
        return found.cast({n: t for n, t in wanted.items() if t != found.schema[n]})

    def _read(self, piece: str, schema: Mapping[str, Any] | None = None) -> pl.DataFrame:
        data = (self._header() + piece).encode()

        def read(types: Mapping[str, Any], some: list[str] | None = None) -> pl.DataFrame:
            return pl.read_csv(
                io.BytesIO(data),
                columns=some,
                separator=self.dialect.separator,
                decimal_comma=self.dialect.decimal == ",",
                null_values=MISSING,
                infer_schema_length=None if schema is None else 0,
                schema_overrides=types,
            )

        found = read(dict(schema or {}) | dict.fromkeys(self.verbatim, pl.String))
        logical = [c.name for c in found.iter_columns() if c.dtype == pl.Boolean]
        if not logical:
            return found
        text = read(dict.fromkeys(logical, pl.String), logical)
        other = [c for c in text.iter_columns() if not c.is_in(["true", "false", None]).all()]
        return found.with_columns(other)  # TRUE and True are to be written as they were

    def _points(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return a table with points in numbers that are text (among bounds, <2,5, or words)."""
        if self.dialect.decimal != ",":
            return frame
        text = [c for c in frame.iter_columns() if c.dtype == pl.String]
        text = [c for c in text if c.name not in self.verbatim]
        return frame.with_columns(
            [c.str.strip_chars().str.replace(COMMA, "${1}.${2}") for c in text]
        )

    def _number(self, text: pl.Series) -> pl.Series | None:
        """Return text as numbers if every entry is one, apart from spaces."""
        first = text.drop_nulls().head(1)
        if not len(first):
            return None
        text = text.str.strip_chars()
        text = text.set(text.is_in(MISSING), None)
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
        """Return the number of rows and the types that fit all pieces; call `tick` after each."""
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
    """What a first pass over a file finds."""

    height: int
    n_pieces: int
    schema: dict[str, Any]


def _common(known: Any, column: pl.Series) -> Any:
    """Return a type for the entries so far and a column's; None while all are missing."""
    kind = None if column.null_count() == len(column) else column.dtype
    if known is None or kind is None or known == kind:
        return kind if known is None else known
    return pl.Float64 if known.is_numeric() and kind.is_numeric() else pl.String


def open_text(
    path: str,
    open_: Callable[[], BinaryIO],
    kind: str = "csv",
    encoding: str = "utf-8",
    separator: str | None = None,
    decimal: str | None = None,
    verbatim: Sequence[str] = (),
    header: bool | None = None,
    codes: Sequence[str] = (),
) -> TextTable:
    """Return the table of a text file, with what its first lines tell.

    Without `header`, a first line of nothing but numbers and missing entries is a row; columns are
    then called x1, x2, ….
    """
    file = TextFile(path, open_, encoding)
    marked, head = file.is_marked(), _head(file)
    lines = io.StringIO(head, newline="")
    first = lines.readline().strip()
    if first.lower().startswith("sep=") and len(first) == 5:
        separator = separator or first[4]  # written by Excel
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
    at, line = lines.tell(), rows.line_num + (start > 0)
    notes: tuple[str, ...] = ()
    if header is False or (header is None and _is_row(names, head[start:at], dialect, codes)):
        told = f"the first line of {path} holds numbers, so it is read as a row, and columns are "
        told += "called x1, x2, … (--header if it has the names of columns)."
        notes = () if header is False else (told,)
        names = [f"x{j}" for j in range(1, len(names) + 1)]
        at, line = start, int(start > 0)
    names, more = named(names, path)
    stay = tuple(name for name in verbatim if name in names)
    dialect = dialect._replace(mark=marked)
    return TextTable(file, dialect, names, at, line, stay, tuple(codes), (*notes, *more))


def _is_row(fields: list[str], line: str, dialect: Dialect, codes: Sequence[str]) -> bool:
    """Return True if the first line is a row: numbers (at least one) and missing entries only."""
    found = [field for field in fields if field.strip() not in (*MISSING, *codes)]
    numbers = all(is_entry(field, dialect.decimal) for field in found)
    return bool(found) and numbers and '"' not in line  # numbers in quotes are names


ROW = "row"
"""Name of a first column without one: Python and R write row names so."""


def named(names: list[str], path: str) -> tuple[list[str], tuple[str, ...]]:
    """Return the names of columns and notes on them; refuse repeated and empty ones."""
    first_only = len(names) > 1 and not names[0].strip() and all(map(str.strip, names[1:]))
    if first_only and ROW not in names:
        names = [ROW, *names[1:]]
        notes: tuple[str, ...] = (f"the first column of {path} has no name and is called 'row'.",)
    else:
        notes = ()
    _check_names(names, path)
    return names, notes


def _head(file: TextFile) -> str:
    """Return the first lines, with the complete header."""
    head = ""
    for text in file.pieces(HEAD):
        head += text
        if head.count("\n") > 1 and _last_record(head):
            break
    return head


def _check_names(names: list[str], path: str) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1 and name.strip()})
    nameless = [j for j, name in enumerate(names) if not name.strip()]
    if repeated:
        raise TableError(
            f"the header of {path} repeats {repeated}: every column needs its own name."
        )
    if nameless:
        before = names[nameless[0] - 1] if nameless[0] else None
        where = "at its beginning" if before is None else f"after {before!r}"
        raise TableError(
            f"the header of {path} has an empty name {where}: every column needs its own name. "
            "Delete empty columns."
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
        f"Correct the line (quote text that contains {table.dialect.separator!r})."
    )


def first_line(error: BaseException) -> str:
    """Return the first line of an error, without a full stop."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
