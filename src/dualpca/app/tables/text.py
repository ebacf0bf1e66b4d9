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
from dataclasses import dataclass, field
from functools import cache
from typing import Any, BinaryIO, NamedTuple

import polars as pl

from dualpca.app.tables.thousands import Grouping, ungrouped, votes
from dualpca.errors import DualPCAError
from dualpca.files.fields import escaped

# --- dialects: what separates fields, what marks decimals --------------------------------------
#
# Excel writes what the country expects: semicolons and decimal commas in much of Europe, a byte
# order mark, sometimes a first line `sep=;`. All of it can be seen in the first lines.

CANDIDATES = (",", ";", "\t", "|")
WITH_COMMA = re.compile(r"[+-]?([0-9]{1,3}(\.[0-9]{3})+|[0-9]+),[0-9]+([eE][+-]?[0-9]+)?")
WITH_POINT = re.compile(r"[+-]?([0-9]{1,3}(,[0-9]{3})+|[0-9]+)\.[0-9]+([eE][+-]?[0-9]+)?")


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
        return "_" not in field and float(field) == float(field)  # nan is missing anyway
    except ValueError:
        return False


def _check(separator: str, decimal: str | None) -> None:
    if len(separator.encode()) != 1 or separator in '"\r\n':
        raise TableError(f"--separator must be one character such as ';', got {separator!r}.")
    if decimal not in (None, ".", ","):
        raise TableError(f"--decimal must be '.' or ',', got {decimal!r}.")


def _decimal(head: str, separator: str) -> str:
    """Return what marks decimals: as some column shows for certain, or a comma without points."""
    found = decimals_in(head, separator)
    if len(found) == 1:
        return found.pop()
    fields = [field for row in _fields(head, separator) for field in row]
    commas = any(WITH_COMMA.fullmatch(field) for field in fields)
    return "," if commas and not any(WITH_POINT.fullmatch(field) for field in fields) else "."


def decimals_in(head: str, separator: str) -> set[str]:
    """Return which signs mark decimals for certain in the first lines of a table."""
    rows = _fields(head, separator)
    width = len(rows[0]) if rows else 0
    body = [row for row in rows[1:] if len(row) == width]
    columns = ([row[j] for row in body if row[j] not in MISSING] for j in range(width))
    return votes((cells for cells in columns if cells), separator)


def _fields(head: str, separator: str) -> list[list[str]]:
    """Return the cells of the first lines; reading the whole file says where one is broken."""
    rows: list[list[str]] = []
    with suppress(csv.Error):
        for row in csv.reader(io.StringIO(head, newline=""), delimiter=separator):
            rows.append([field.strip() for field in row])
    return rows


# --- decoding: bytes as text, piece by piece ---------------------------------------------------

MARK = "\ufeff"
"""At the beginning of a piece it is a letter like others, but polars takes the first one away."""
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
    mac: bool = False  # lines end with a carriage return alone

    @property
    def codec(self) -> str:
        """Return the codec; for UTF-8 the one that accepts a byte order mark."""
        return "utf-8-sig" if self.encoding.lower() in ("utf-8", "utf8") else self.encoding

    def is_marked(self) -> bool:
        """Return True if the file begins with UTF-8's byte order mark, as Excel's do."""
        with self.open() as file:
            return self.codec == "utf-8-sig" and file.read(3) == codecs.BOM_UTF8

    def pieces(self, size: int) -> Iterator[str]:
        """Yield the text, `size` bytes at a time (-1: all); every line ends with a line feed."""
        try:
            for text in self._decoded(size):
                yield text.replace("\r", "\n") if self.mac else text
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

NEVER = ["", "<NA>", "#N/A", "#NA", "#NV", "#DIV/0!", "#VALUE!", "#REF!", "#NUM!", "#NAME?"]
NEVER += ["#NULL!", "#WERT!", "#BEZUG!", "#ZAHL!"]
"""What is never measured: empty cells, and Excel's errors."""
CODES = ["NA", "N/A", "n/a", "na", "N.A.", "n.a.", "NaN", "nan", "NAN", "NaT"]
CODES += ["null", "NULL", "Null", "None", ".", "-", "--", "?"]
"""What marks a missing entry in R, Python and SAS, but can also be a value: no exercise, Namibia,
the minus strand. It is missing where the other values of the column are numbers."""
MISSING = [*NEVER, *CODES]
TEXTUAL: tuple[Any, ...] = (pl.String, pl.Categorical, pl.Enum)
"""Types of text."""
COMMA = r"^((?:<=|>=|<|>|≤|≥)?\s*[+-]?[0-9]*),([0-9]+(?:[eE][+-]?[0-9]+)?)$"
"""A number with a decimal comma, or a bound."""

Counts = Mapping[str, Mapping[str, int]]
"""How often which code occurs, by column."""


class Codes(NamedTuple):
    """Codes that the user gave; age=-999 is a code of the column age alone.

    What is said of one column counts more than what is said of all.

    Examples
    --------
    >>> codes = Codes(missing=("NA", "a=-9"), kept=("b=NA", "-"))
    >>> codes.missing_in(["a", "b"]), sorted(codes.kept_in("b", ["a", "b"]))
    (('a=NA', 'a=-9'), ['-', 'NA'])
    """

    missing: tuple[str, ...] = ()  # beside the usual
    kept: tuple[str, ...] = ()  # not missing, though usual

    def missing_in(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the codes of a table with these columns, without those that are kept."""
        kept, found = {_parted(code, names) for code in self.kept}, []
        for code in self.missing:
            name, word = _parted(code, names)
            if name is None and any((one, word) in kept for one in names):
                found += [f"{one}={word}" for one in names if (one, word) not in kept]
            elif (name, word) not in kept:
                found.append(code)
        return tuple(dict.fromkeys(found))

    def kept_in(self, name: str, names: Sequence[str]) -> set[str]:
        """Return the codes that are values in a column."""
        kept = [_parted(code, names) for code in self.kept]
        own = {word for one, word in kept if one == name}
        return own | {w for one, w in kept if one is None and f"{name}={w}" not in self.missing}

    def check(self, names: Sequence[str]) -> None:
        """Refuse codes of columns that are not there."""
        for option, codes in (("--na", self.missing), ("--not-na", self.kept)):
            for code in codes:
                if "=" in code[1:] and _parted(code, names)[0] is None:
                    some = ", ".join(map(repr, names[:10])) + (", …" if names[10:] else "")
                    name = code[: code.index("=", 1)]
                    raise TableError(f"{option} {code}: no column {name!r}; there are {some}.")


USUAL = Codes()
"""No codes beside the usual."""


def _parted(code: str, names: Sequence[str]) -> tuple[str | None, str]:
    """Return the column that a code such as age=-999 is of, if it is of one, and the code."""
    found = [name for name in names if code.startswith(f"{name}=")] if "=" in code else []
    name = max(found, key=len, default=None)
    return name, code if name is None else code[len(name) + 1 :]


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
    return emptied(frame, codes, keep)[0] if codes else frame


def as_numbers(text: pl.Series) -> pl.Series:
    """Return text as float64, null where it is none."""
    return text.cast(pl.Float64, strict=False)


def emptied(
    frame: pl.DataFrame,
    codes: Sequence[str],
    keep: Sequence[str] = (),
    numbers: Callable[[pl.Series], pl.Series] = as_numbers,
) -> tuple[pl.DataFrame, dict[str, dict[str, int]]]:
    """Return a table as `without` does, and how many cells were emptied, by column and code."""
    changed, counts = [], {}
    own = [_parted(code, frame.columns) for code in codes]
    for column in frame.iter_columns():
        here = [] if column.name in keep else [w for one, w in own if one in (None, column.name)]
        values = [float(code) for code in here if _is_number(code)]
        if column.dtype.is_numeric():
            bad = column.cast(pl.Float64).is_in(values)
        elif column.dtype in TEXTUAL:
            text = column.cast(pl.String).str.strip_chars()
            bad = text.is_in(here) | numbers(text).is_in(values)
        else:
            continue
        bad = bad.fill_null(False)
        if bad.any():
            counts[column.name] = tally(column.filter(bad).cast(pl.String))
            changed.append(column.set(bad, None))
    return frame.with_columns(changed), counts


def tally(text: pl.Series) -> dict[str, int]:
    """Return how often which text occurs, without spaces around it and empty cells.

    Examples
    --------
    >>> tally(pl.Series(["NA", " NA", "", None, "-"]))
    {'NA': 2, '-': 1}
    """
    found = text.drop_nulls().str.strip_chars().alias("text").value_counts(sort=True)
    return {word: n for word, n in sorted(found.iter_rows(), key=lambda one: -one[1]) if word}


def added(first: Counts, second: Counts) -> dict[str, dict[str, int]]:
    """Return the sum of two counts of codes by column.

    Examples
    --------
    >>> added({"a": {"NA": 1}}, {"a": {"NA": 2, "-": 1}, "b": {"-": 1}})
    {'a': {'NA': 3, '-': 1}, 'b': {'-': 1}}
    """
    found = {name: dict(codes) for name, codes in first.items()}
    for name, codes in second.items():
        for code, n in codes.items():
            found.setdefault(name, {})[code] = found.get(name, {}).get(code, 0) + n
    return found


@dataclass(frozen=True)
class TextTable:
    """A text file with a table: how it is written and what its columns are called."""

    file: TextFile
    dialect: Dialect
    names: list[str]
    start: int  # characters before the first record
    first_line: int
    verbatim: tuple[str, ...] = ()  # columns that stay text
    codes: Codes = USUAL
    notes: tuple[str, ...] = ()  # what the user should know
    units: Mapping[str, str] = field(default_factory=dict)  # by column
    title: int | None = None  # characters before the header, if there is one
    thousands: str | None = None  # as given: a sign, or none
    decided: bool = True  # what marks decimals is known

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
            end = last_record(rest)
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
        rows = csv.reader(io.StringIO(piece, newline=""), delimiter=separator, strict=True)
        try:
            for row in rows:
                if len(row) != wanted and (row or wanted > 1):
                    raise _ragged(self, line + rows.line_num, len(row))
        except csv.Error as error:
            where = f"line {line + rows.line_num} of {self.path}"
            raise TableError(f"{where} cannot be read: {first_line(error)}.") from None

    # --- cells as text ---------------------------------------------------------------------------

    def cells(self, piece: str) -> pl.DataFrame:
        """Return a piece as a table of text, null where a cell is empty.

        Where quotes stand inside of cells, or a line ends like those of old Macs among others, the
        rows are those of Python's csv module.
        """
        separator = self.dialect.separator
        outside = piece if '"' not in piece else _quoted_fields(separator).sub("", piece)
        schema = dict.fromkeys(self.names, pl.String)
        if '"' in outside or "\r" in outside.replace("\r\n", ""):
            rows = csv.reader(io.StringIO(piece, newline=""), delimiter=separator, strict=True)
            whole = pl.DataFrame([row or [""] for row in rows], schema=schema, orient="row")
            return whole.select(pl.all().replace("", None))
        try:
            found = pl.read_csv(
                io.BytesIO((MARK if piece[:1] == MARK else "").encode() + piece.encode()),
                has_header=False,
                schema=schema,
                separator=separator,
                null_values=[""],
            )
        except pl.exceptions.PolarsError as error:
            raise TableError(f"{self.path} cannot be read: {first_line(error)}.") from error
        if self.file.mac and '"' in piece:
            found = found.select(pl.all().str.replace_all("\n", "\r", literal=True))
        return found

    # --- cells as numbers, where they are --------------------------------------------------------

    def parsed(self, piece: str, scan: Scan) -> pl.DataFrame:
        """Return a piece as a table with the types that fit the whole file; dates stay text."""
        cells = ungrouped(self.cells(piece), scan.signs, self.dialect.decimal)
        found, _ = emptied(cells, scan.missing, self.verbatim, self._numbers)
        columns = (self._typed(c, scan.schema[c.name]) for c in found.iter_columns())
        return pl.DataFrame([one.column for one in columns])

    def _typed(self, column: pl.Series, kind: Any = None) -> _Typed:
        """Return a column as numbers, true and false, or text: of a type, or that of its cells.

        Numbers may have spaces around them. A code of missing entries is missing among numbers
        and among true and false.
        """
        if column.name in self.verbatim:
            return _Typed(column, column.dtype, {}, {}, column, column)
        kept = self.codes.kept_in(column.name, self.names)
        values = self._numbers(column)
        text, gone, seen = column, {}, {}
        odd = column.is_not_null() & (values.is_null() | values.is_nan())
        if odd.any():
            text = column.str.strip_chars()
            never = text.is_in([code for code in NEVER if code not in kept])
            code = text.is_in([code for code in CODES if code not in kept])
            gone, seen = tally(text.filter(never)), tally(text.filter(code))
            column, text = column.set(never, None), text.set(never | code, None)
            values = self._numbers(text)
        known = len(text) - text.null_count()
        fits = values.len() - values.null_count() == known and not values.is_nan().any()
        logical = text.is_in(["true", "false"]).fill_null(True).all() if not fits else False
        found = kind or _kind(text, values if fits else None, logical)
        if found is None or found == pl.String:
            return _Typed(self._points(column), found, gone, seen, text, values)
        if not (logical if found == pl.Boolean else fits) and known:
            raise TableError(f"{self.path} has columns of numbers with other entries among them.")
        if found == pl.Boolean:
            return _Typed(text == "true", found, gone, seen, text, values)
        made = text.cast(found, strict=False) if found.is_integer() else values
        return _Typed(made, found, gone, seen, text, values)

    def _numbers(self, text: pl.Series) -> pl.Series:
        """Return text as float64, null where it is none."""
        if self.dialect.decimal != ",":
            return as_numbers(text)
        found = as_numbers(text.str.replace(COMMA, "${1}.${2}"))
        return found.set(text.str.contains(".", literal=True).fill_null(False), None)

    def _points(self, text: pl.Series) -> pl.Series:
        """Return text with points in numbers (among bounds, <2,5, or words), if none has one."""
        if self.dialect.decimal != "," or text.str.contains(WITH_POINT.pattern).any():
            return text
        return text.str.strip_chars().str.replace(COMMA, "${1}.${2}")

    # --- what is in the file ---------------------------------------------------------------------

    def scanned(self, size: int, tick: Callable[[], None] = lambda: None) -> Scan:
        """Return the number of rows, types that fit all pieces and codes; `tick` after each."""

        def pieces() -> Iterator[str]:
            for piece in self.checked(size):
                yield piece
                tick()

        return self._scan(pieces)

    def whole(self) -> tuple[pl.DataFrame, Scan]:
        """Return the whole table, and what was found in it."""
        text = "".join(self.checked(-1))  # a last line without an end is a piece of its own
        scan = self._scan(lambda: iter([text] if text else []))
        return self.parsed(text, scan) if text else pl.DataFrame(schema=self.names), scan

    def _scan(self, pieces: Callable[[], Iterator[str]]) -> Scan:
        """Return what is in the file; in a second pass without the separators of thousands."""
        names = [name for name in self.names if name not in self.verbatim]
        if self.thousands == NO_SIGN:
            return self._seen(pieces, {}, {})
        groups = {name: Grouping(self.dialect.decimal) for name in names}
        found = self._seen(pieces, {}, groups)
        signs = {name: one.sign(self.thousands, self.decided) for name, one in groups.items()}
        kept = {name: sign for name, sign in signs.items() if sign and found.is_text(name)}
        first = {name: groups[name].first[sign] for name, sign in kept.items()}
        return self._seen(pieces, kept, {})._replace(first=first) if kept else found

    def _seen(
        self,
        pieces: Callable[[], Iterator[str]],
        signs: Mapping[str, str],
        groups: Mapping[str, Grouping],
    ) -> Scan:
        """Return what a pass over the file finds; `groups` take the entries of their columns."""
        given = self.codes.missing_in(self.names)
        types: dict[str, Any] = {}
        gone: Counts = {}
        seen: Counts = {}
        height = n_pieces = 0
        for piece in pieces():
            cells = ungrouped(self.cells(piece), signs, self.dialect.decimal)
            cells, counts = emptied(cells, given, self.verbatim, self._numbers)
            typed = [self._typed(column) for column in cells.iter_columns()]
            for one in typed:
                if one.name in groups:
                    groups[one.name].add(one.text, one.values)
            height, n_pieces = height + cells.height, n_pieces + 1
            types = {one.name: _common(types.get(one.name), one.kind) for one in typed}
            gone = added(added(gone, counts), {one.name: one.gone for one in typed})
            seen = added(seen, {one.name: one.seen for one in typed})
        schema = {n: pl.String if t is None else t for n, t in types.items()}
        words = {n: codes for n, codes in seen.items() if schema[n] == pl.String}
        bare = _unquoted(self, words, pieces) if words else {}
        gone = added(gone, {n: codes for n, codes in seen.items() if n not in words})
        extra = tuple(f"{name}={code}" for name, codes in bare.items() for code in codes)
        return Scan(height, n_pieces, schema, (*given, *extra), added(gone, bare), signs)


NO_SIGN = "none"
"""The value of --thousands where nothing separates thousands."""


class Scan(NamedTuple):
    """What the passes over a file find."""

    height: int
    n_pieces: int
    schema: dict[str, Any]
    missing: tuple[str, ...]  # codes of missing entries, beside the usual
    gone: Counts  # codes that were read as missing
    signs: Mapping[str, str]  # what separates thousands, by column
    first: Mapping[str, str] = {}  # a cell of each of these columns

    def is_text(self, name: str) -> bool:
        """Return True if not all entries of a column are numbers, true or false."""
        return bool(self.schema.get(name) == pl.String)


class _Typed(NamedTuple):
    """A column with its type, None where all entries are missing, and the codes in it."""

    column: pl.Series
    kind: Any
    gone: dict[str, int]  # never measured
    seen: dict[str, int]  # missing among numbers
    text: pl.Series  # as it is written, null where it is missing among numbers
    values: pl.Series  # as numbers, null where it is none

    @property
    def name(self) -> str:
        """Return the name of the column."""
        return self.column.name


def _unquoted(
    table: TextTable, codes: Counts, pieces: Callable[[], Iterator[str]]
) -> dict[str, dict[str, int]]:
    """Return the codes in columns of text that are never in quotes, where all other text is.

    So R writes what is missing: NA, and "NA" for text. Quotes count only around text that needs
    none, because every program writes those that are needed.
    """
    needed = (table.dialect.separator, '"', "\n", "\r")
    places = {table.names.index(name): name for name in codes}
    words: set[tuple[str, str]] = set()  # in quotes
    quoted, bare = set(), set()
    for piece in pieces():
        if '"' not in piece:
            return {}
        for record in records_of(piece):
            fields = fields_of(body_of(record), table.dialect.separator)
            for j, name in places.items():
                cell = fields[j].strip() if j < len(fields) else ""
                if cell[:1] == '"':
                    word = cell[1:-1]
                    words.add((name, word.strip()))
                    if not any(sign in word for sign in needed):
                        quoted.add(name)
                elif cell and cell not in codes[name]:
                    bare.add(name)
    return {
        name: {code: n for code, n in codes[name].items() if (name, code) not in words}
        for name in codes
        if name in quoted - bare
    }


def _kind(text: pl.Series, values: pl.Series | None, logical: bool) -> Any:
    """Return the type of cells; None where all are missing.

    Whole numbers that Int64 cannot hold stay text, so that no digit is lost.
    """
    if text.null_count() == len(text):
        return None
    if values is None:
        return pl.Boolean if logical else pl.String
    if not (values == values.round()).fill_null(True).all():
        return pl.Float64
    whole = text.cast(pl.Int64, strict=False)
    lost = text.filter(whole.is_null() & text.is_not_null())
    if not len(lost):
        return pl.Int64
    return pl.String if lost.str.contains(r"^[+-]?\d+$").all() else pl.Float64


def _common(known: Any, kind: Any) -> Any:
    """Return a type for the entries so far and some more; None while all are missing."""
    if known is None or kind is None or known == kind:
        return kind if known is None else known
    return pl.Float64 if known.is_numeric() and kind.is_numeric() else pl.String


@cache
def _quoted_fields(separator: str) -> re.Pattern[str]:
    """Return a pattern of fields that are in quotes from their beginning to their end."""
    sign = re.escape(separator)
    return re.compile(rf'(?:^|{sign})"(?:[^"]|"")*"(?={sign}|\r?$)', re.MULTILINE)


def last_record(text: str) -> int:
    """Return where the last complete record ends: after a line that ends outside of quotes."""
    quotes, end = text.count('"'), len(text)
    while (at := text.rfind("\n", 0, end)) >= 0:
        quotes -= text.count('"', at, end)
        if quotes % 2 == 0:
            return at + 1
        end = at
    return 0


def records_of(piece: str) -> list[str]:
    r"""Return the records of a text with their line ends; quoted cells may have several lines.

    Examples
    --------
    >>> records_of('1,2\r\n"a\nb",3\n4,5')
    ['1,2\r\n', '"a\nb",3\n', '4,5']
    """
    lines = [line + "\n" for line in piece.split("\n")]
    last = lines.pop()[:-1]
    lines += [last] if last else []
    return lines if '"' not in piece else _rejoined(lines, "")


def fields_of(record: str, separator: str) -> list[str]:
    """Return the cells of a record as they are written, with their quotes.

    Examples
    --------
    >>> fields_of('1,"a, ""b"" c", 2', ",")
    ['1', '"a, ""b"" c"', ' 2']
    """
    fields = record.split(separator)
    return fields if '"' not in record else _rejoined(fields, separator)


def _rejoined(parts: list[str], separator: str) -> list[str]:
    """Return parts with those put together again that were cut inside of quotes."""
    found: list[str] = []
    is_open = False
    for part in parts:
        if is_open:
            found[-1] += separator + part
        else:
            found.append(part)
        is_open ^= part.count('"') % 2 == 1
    return found


def body_of(record: str) -> str:
    """Return a record without its line end."""
    return record.removesuffix("\n").removesuffix("\r")


def _ragged(table: TextTable, line: int, fields: int) -> TableError:
    return TableError(
        f"line {line} of {table.path} has {fields} fields, the header {len(table.names)}. "
        f"Correct the line (quote text that contains {table.dialect.separator!r})."
    )


def first_line(error: BaseException) -> str:
    """Return the first line of an error as people can read it, without a full stop."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return escaped(line, 300)
