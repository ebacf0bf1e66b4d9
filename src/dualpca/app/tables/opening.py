"""A text file opened: what its first lines tell of separators, names, units and rows."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import BinaryIO

from dualpca.app.tables.heads import (
    Given,
    Head,
    has_corner,
    head_notes,
    header_of,
    is_ordinary,
    named,
    placed,
    top_row,
    units_in,
)
from dualpca.app.tables.text import (
    CANDIDATES,
    MISSING,
    USUAL,
    Codes,
    Dialect,
    TableError,
    TextFile,
    TextTable,
    body_of,
    decimals_in,
    detect,
    fields_of,
    first_line,
    is_entry,
    last_record,
    records_of,
)
from dualpca.app.tables.thousands import ALONE

HEAD = 1 << 16
"""Bytes in which a dialect is detected, and titles and units are looked for."""
NOTHING_GIVEN = Given()


def open_text(
    path: str,
    open_: Callable[[], BinaryIO],
    kind: str = "csv",
    encoding: str = "utf-8",
    separator: str | None = None,
    decimal: str | None = None,
    verbatim: Sequence[str] = (),
    given: Given = NOTHING_GIVEN,
    codes: Codes | None = None,
    thousands: str | None = None,
) -> TextTable:
    """Return the table of a text file, with what its first lines tell.

    Unless `given` says where the header is, a first line of nothing but numbers and missing entries
    is a row; columns are then called x1, x2, ….
    """
    file = TextFile(path, open_, encoding)
    marked, text, codes = file.is_marked(), _head(file), codes or USUAL
    if "\r" in text and "\n" not in text:
        file, text = file._replace(mac=True), text.replace("\r", "\n")
    sign = re.match(r"(?i)[^\S\n]*sep=(.)[^\S\n]*\n", text)  # written by Excel
    separator = separator or (sign[1] if sign else "\t" if kind == "tsv" else None)
    lines = _Lines(text, sign.end() if sign else 0)
    separator, head = _placed(lines, given, separator, codes.missing)
    top = lines.offsets[head.first if head.header is None else head.header]
    names, start = _record(text, top, separator, path)
    below = max(start, lines.offsets[head.first])
    body = text[top:start] + text[below : text.rfind("\n") + 1 or None]
    dialect = detect(body, separator, decimal)
    rows = lines.rows(dialect.separator)
    notes = head_notes(path, rows, lines.numbers, head, given, above=int(sign is not None))
    is_row = given.header is None and head.units is None
    is_row = is_row and not has_corner(rows[head.header or 0 :])
    if is_row and _is_row(names, text[top:start], dialect, codes.missing):
        where = "the first line" if not notes else f"line {lines.numbers[head.header or 0]}"
        told = f"{where} of {path} holds numbers, so it is read as a row, and columns are called "
        notes = (told + "x1, x2, … (--header 1 if it has the names of columns).",)
        head = Head(None, None, head.header or 0)
    if head.header is None:
        names, start = [f"x{j}" for j in range(1, len(names) + 1)], lines.offsets[head.first]
    elif head.first > head.header + 1:
        start = lines.offsets[head.first]
    if file.mac:  # line ends inside of names are those of the file
        names = [name.replace("\n", "\r") for name in names]
    names, more = named(names, path)
    sure = decimals_in(body, separator) if decimal is None else {decimal}
    if not sure and dialect.separator != ",":
        more += _either(rows, path, dialect.decimal)
    return TextTable(
        file,
        dialect._replace(mark=marked),
        names,
        start,
        text.count("\n", 0, start),
        tuple(name for name in verbatim if name in names),
        codes,
        (*notes, *more),
        units_in(names, rows, head),
        None if head.header is None else top,
        thousands,
        sure == {dialect.decimal} or (not sure and separator == ","),
    )


def _either(rows: Sequence[Sequence[str]], path: str, decimal: str) -> tuple[str, ...]:
    """Return a note on a sign that may mark decimals or thousands, and is taken to be the first."""
    cells = (cell for row in rows for cell in row)
    first = next((cell for cell in cells if decimal in cell and ALONE.fullmatch(cell)), None)
    if first is None:
        return ()
    value, other = first.replace(",", "."), first.replace(decimal, "")
    name, instead = ("comma", ".") if decimal == "," else ("point", ",")
    told = f"{path}: {first!r} is read as {value}, with a decimal {name}"
    return (f"{told} (with --decimal {instead} it is {other}).",)


class _Lines:
    """The records at the beginning of a text, from a place on, and where each begins."""

    def __init__(self, text: str, start: int) -> None:
        self.records = records_of(text[start:])
        self.offsets = list(accumulate(map(len, self.records), initial=start))
        self.offsets += self.offsets[-1:]  # where a text is empty
        self.numbers = [1 + text.count("\n", 0, start)]
        for record in self.records[:-1]:
            self.numbers.append(self.numbers[-1] + record.count("\n"))

    def rows(self, separator: str) -> list[list[str]]:
        """Return the cells of the records, without quotes and spaces around them.

        A last record without a line end may be incomplete: it does not count if its number of
        fields is not that of the one before it.
        """
        parts = (fields_of(body_of(record), separator) for record in self.records)
        found = [[unquoted(cell) for cell in fields] for fields in parts]
        cut = len(found) > 2 and not self.records[-1].endswith("\n")
        return found[:-1] if cut and len(found[-1]) != len(found[-2]) else found

    def from_row(self, at: int) -> str:
        """Return the text from a record on."""
        return "".join(self.records[at:])


def unquoted(cell: str) -> str:
    """Return what is in a cell, without quotes and spaces around it.

    Examples
    --------
    >>> unquoted(" 1.5 "), unquoted('"a ""b"" c"')
    ('1.5', 'a "b" c')
    """
    cell = cell.strip()
    inside = len(cell) > 1 and cell[0] == cell[-1] == '"'
    return cell[1:-1].replace('""', '"').strip() if inside else cell


def _placed(
    lines: _Lines, given: Given, separator: str | None, codes: Sequence[str]
) -> tuple[str, Head]:
    """Return the separator, and which records are what.

    Where titles stand above the header, every usual separator is tried, and the one taken that
    gives the header the most names.
    """
    top = top_row(given, lines.rows(separator or ","), lines.numbers)
    sign = detect(lines.from_row(top), separator).separator
    if separator is None and given.skip is None and given.header is None:
        first = lines.rows(sign)
        if first and (not is_ordinary(first) or len(first[0]) == 1):
            missing = (*MISSING, *codes)
            found = {one: header_of(lines.rows(one), missing) for one in CANDIDATES}
            width = {one: len(lines.rows(one)[k]) for one, k in found.items() if k is not None}
            sign = max(width, key=lambda one: width[one], default=sign)
    return sign, placed(lines.rows(sign), lines.numbers, given, codes)


def _record(text: str, start: int, separator: str, path: str) -> tuple[list[str], int]:
    """Return the cells of the record at a place, and where it ends."""
    lines = io.StringIO(text, newline="")
    lines.seek(start)
    try:
        names = next(csv.reader(lines, delimiter=separator, strict=True), [])
    except csv.Error as error:
        raise TableError(f"the header of {path} cannot be read: {first_line(error)}.") from None
    return names, lines.tell()


def _is_row(fields: list[str], line: str, dialect: Dialect, codes: Sequence[str]) -> bool:
    """Return True if the first line is a row: numbers (at least one) and missing entries only."""
    found = [field for field in fields if field.strip() not in (*MISSING, *codes)]
    numbers = all(is_entry(field, dialect.decimal) for field in found)
    return bool(found) and numbers and '"' not in line  # numbers in quotes are names


def _head(file: TextFile) -> str:
    """Return the first lines, with the complete header."""
    head = ""
    for text in file.pieces(HEAD):
        head += text
        if head.count("\n") > 1 and last_record(head):
            break
        if "\n" not in head and "\r" in head[:-1] and len(head) >= HEAD:
            break
    return head
