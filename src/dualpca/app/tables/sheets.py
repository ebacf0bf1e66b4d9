"""Spreadsheets: a sheet, and of its tables the largest, or the one in a range such as A5:F20."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import polars as pl

from dualpca.app.tables.heads import (
    Given,
    Head,
    begins,
    has_corner,
    head_notes,
    header_of,
    named,
    placed,
    units_in,
)
from dualpca.app.tables.text import MISSING, Codes, TableError, first_line, is_entry
from dualpca.app.tables.thousands import Grouping, notes, ungrouped
from dualpca.errors import install

FIRST_ROWS = 200
"""Rows of a table in which titles, names and units are looked for."""
MOST_NAMED = 6
"""Other tables of a sheet that a note names."""


class Sheet(NamedTuple):
    """A table of a spreadsheet, and what the user should know of it."""

    frame: pl.DataFrame
    notes: tuple[str, ...]
    units: dict[str, str]


class Block(NamedTuple):
    """A rectangle of cells; rows and columns are counted from 0, ends included."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def height(self) -> int:
        """Return the number of rows."""
        return self.bottom - self.top + 1

    @property
    def width(self) -> int:
        """Return the number of columns."""
        return self.right - self.left + 1

    def shown(self) -> str:
        """Return the range as spreadsheets write it.

        Examples
        --------
        >>> Block(4, 19, 0, 27).shown(), Block(1, 1, 2, 2).shown()
        ('A5:AB20', 'C2')
        """
        ends = [f"{letters(j)}{i + 1}" for i, j in (self[::2], self[1::2])]
        return ":".join(dict.fromkeys(ends))


def letters(column: int) -> str:
    """Return what a spreadsheet calls a column."""
    name = ""
    while column >= 0:
        column, last = divmod(column, 26)
        name, column = chr(65 + last) + name, column - 1
    return name


RANGE = re.compile(r"\$?([A-Z]{1,3})\$?([1-9]\d{0,6})(?::\$?([A-Z]{1,3})\$?([1-9]\d{0,6}))?", re.I)


def block_of(words: str) -> Block:
    """Return the rectangle of a range.

    Examples
    --------
    >>> block_of("A5:AB20")
    Block(top=4, bottom=19, left=0, right=27)
    """
    found = RANGE.fullmatch(words.strip())
    if found is None:
        raise TableError(f"--range {words}: expected a range of cells such as A5:F20.")
    left, top, right, bottom = found.groups()
    places = [_number(left), _number(right or left)]
    rows = [int(top) - 1, int(bottom or top) - 1]
    return Block(min(rows), max(rows), min(places), max(places))


def _number(name: str) -> int:
    number = 0
    for letter in name.upper():
        number = 26 * number + ord(letter) - 64
    return number - 1


def read_sheet(
    path: str,
    file: BinaryIO,
    sheet: str | None = None,
    cells: str | None = None,
    given: Given = Given(),  # noqa: B008
    codes: Codes = Codes(),  # noqa: B008
    thousands: str | None = None,
) -> Sheet:
    """Return a table of a spreadsheet.

    Parameters
    ----------
    path : str
        What the file is called.
    file : binary file
    sheet : str, optional
        Name of a sheet, perhaps with a range: Sheet2!A5:F20. By default the first.
    cells : str, optional
        Range of cells. By default the largest table of the sheet.
    given : Given
        Which rows are what; rows are counted as in the sheet.
    codes : Codes
    thousands : str, optional
        What separates thousands in numbers that are text.
    """
    if find_spec("fastexcel") is None:
        raise TableError(
            f"{path} is a spreadsheet, and reading it needs fastexcel: {install('xlsx')}, "
            "or save the sheet as CSV."
        )
    try:
        book = import_module("fastexcel").read_excel(file.read())
    except Exception as error:  # fastexcel raises its own kinds
        raise TableError(f"{path} is not a valid spreadsheet: {first_line(error)}.") from error
    names = list(book.sheet_names)
    if not names:
        raise TableError(f"{path} has no sheets.")
    if sheet is not None and sheet not in names and "!" in sheet:
        sheet, _, cells = sheet.rpartition("!")
    sheet = sheet or None
    if sheet is not None and sheet not in names:
        raise TableError(f"--sheet {sheet}: no such sheet in {path}; there are {', '.join(names)}.")
    told: tuple[str, ...] = ()
    if sheet is None and names[1:]:
        others = ", ".join(map(repr, names[1:10])) + (", …" if names[10:] else "")
        told = (f"sheet {names[0]!r} of {path} is read; --sheet reads another: {others}.",)
    try:
        found = _Cells(book, sheet or names[0], path).table(cells, given, codes, thousands)
    except TableError:
        raise
    except Exception as error:
        raise TableError(f"{path} cannot be read: {first_line(error)}.") from error
    return found._replace(notes=(*told, *found.notes))


class _Cells:
    """The cells of a sheet, as text; its first column may be any."""

    def __init__(self, book: Any, sheet: str, path: str) -> None:
        self.book, self.sheet, self.path = book, sheet, path
        found = self._load(0, None, dtypes="string")
        self.left = 0
        self.text = pl.DataFrame(found.to_polars())
        if self.text.is_empty():
            raise TableError(f"sheet {sheet!r} of {path} is empty: expected at least one row.")
        first = found.selected_columns[0]
        self.left = getattr(first, "absolute_index", first.index)
        stripped = self.text.select(pl.all().str.strip_chars().fill_null("") != "")
        self.filled = stripped.to_numpy()

    def _load(self, skip: int, rows: int | None, **more: Any) -> Any:
        options = {"header_row": None, "schema_sample_rows": None, "skip_rows": skip, **more}
        return self.book.load_sheet(self.sheet, n_rows=rows, **options)

    def table(self, cells: str | None, given: Given, codes: Codes, thousands: str | None) -> Sheet:
        """Return the rows of a table, without the empty ones after it."""
        block, others = self._chosen(cells, given)
        filled = self.filled[block.top : block.bottom + 1, block.left : block.right + 1]
        keep = block.left + np.flatnonzero(filled.any(axis=0))
        rows = self.rows(block, FIRST_ROWS, keep.tolist())
        numbers = [block.top + 1 + k for k in range(len(rows))]
        first = next(k for k, row in enumerate(rows) if any(row))
        rows, numbers = rows[first:], numbers[first:]
        head = placed(rows, numbers, given, codes.missing)
        told: tuple[str, ...] = others
        at = head.header or 0
        is_row = given.header is None and head.units is None
        is_row = is_row and not has_corner(rows[at:])
        if is_row and all(map(is_entry, filter(None, rows[at]))):
            words = "the first row" if at == 0 else f"row {numbers[at]}"
            words = f"{words} of {self.path} holds numbers, so it is read as a row, and columns"
            told += (f"{words} are called x1, x2, … (--header 1 if it has the names of columns).",)
            head = Head(None, None, at)
        told += head_notes(self.path, rows, numbers, head, given, what="row", above=numbers[0] - 1)
        fields = rows[at] if head.header is not None else [f"x{j + 1}" for j in range(len(keep))]
        names, more = named(list(fields), self.path)
        top = block.top + first + head.first
        body = self._body(top, block.bottom, keep.tolist(), names)
        body, grouped = self._ungrouped(body, codes, thousands)
        return Sheet(body, (*told, *more, *grouped), units_in(names, rows, head))

    def rows(self, block: Block, most: int, columns: list[int] | None = None) -> list[list[str]]:
        """Return the first rows of a block as text."""
        inside = range(block.left, block.right + 1) if columns is None else columns
        some = self.text[block.top : min(block.bottom + 1, block.top + most), list(inside)]
        return [["" if c is None else str(c).strip() for c in row] for row in some.iter_rows()]

    def _body(self, top: int, bottom: int, columns: list[int], names: list[str]) -> pl.DataFrame:
        """Return rows with the types of their cells, without the empty ones after them."""
        rows = bottom + 1 - top
        if rows < 1:
            return pl.DataFrame(schema=dict.fromkeys(names, pl.String))
        found = pl.DataFrame(self._load(top, rows).to_polars())
        body = found[:, columns]
        body.columns = names
        body = body.with_columns([c.cast(pl.Int64) for c in body.iter_columns() if _is_whole(c)])
        used = body.select(~pl.all_horizontal(pl.all().is_null())).to_series().arg_true()
        return body[: int(used[-1]) + 1 if len(used) else 0]

    def _ungrouped(
        self, body: pl.DataFrame, codes: Codes, thousands: str | None
    ) -> tuple[pl.DataFrame, tuple[str, ...]]:
        """Return columns of text without the separators of thousands, and what is said of them."""
        signs: dict[str, str] = {}
        first: dict[str, str] = {}
        for column in body.iter_columns():
            if column.dtype != pl.String or thousands == "none":
                continue
            text = column.str.strip_chars()
            kept = codes.kept_in(column.name, body.columns)
            text = text.set(text.is_in([code for code in MISSING if code not in kept]), None)
            group = Grouping(".")
            group.add(text, text.cast(pl.Float64, strict=False))
            sign = group.sign(thousands, known=True)  # cells of numbers have a point
            if sign is not None:
                signs[column.name], first[column.name] = sign, group.first[sign]
        told = notes(self.path, signs, first) if thousands is None else ()
        return ungrouped(body, signs, "."), told

    # --- the tables of a sheet -------------------------------------------------------------------

    def _chosen(self, cells: str | None, given: Given) -> tuple[Block, tuple[str, ...]]:
        """Return the range of a table, and a note on the others of the sheet."""
        last, right = self.filled.shape[0] - 1, self.filled.shape[1] - 1
        if cells is not None:
            asked = block_of(cells)
            block = Block(
                asked.top,
                min(asked.bottom, last),
                max(asked.left - self.left, 0),
                min(asked.right - self.left, right),
            )
            if block.left > block.right or not self._filled(block).any():
                raise TableError(f"--range {cells}: sheet {self.sheet!r} has no cells there.")
            return block, ()
        blocks = self.blocks()
        if given.header:
            blocks = [one for one in blocks if one.top < given.header <= one.bottom + 1]
        blocks = blocks or [Block(0, last, 0, right)]
        block = max(blocks, key=lambda one: one.height * one.width)
        titles = [one for one in blocks if one.bottom < block.top and self._is_title(one)]
        others = [one for one in blocks if one != block and one not in titles]
        told = self._joined(block)
        near = [one for one in titles if not any(one.top < o.top < block.top for o in others)]
        if near:  # titles are rows above the header
            block = block._replace(top=min(one.top for one in near))
        return block, (*self._others(block, others), *told)

    def _joined(self, block: Block) -> tuple[str, ...]:
        """Return notes on columns and rows that are read though an empty one is before them."""
        where, told = f"sheet {self.sheet!r} of {self.path}", []
        parts = self._parts(block)
        if parts[1:]:
            ranges = [self._moved(part).shown() for part in parts]
            some = ", ".join(ranges[:MOST_NAMED]) + (", …" if ranges[MOST_NAMED:] else "")
            told.append(
                f"{where}: {some} are read as one table, though an empty column is between them "
                f"(--range {ranges[0]} reads one alone)."
            )
        runs = [(block.top + a, block.top + b) for a, b in _runs(self._filled(block).any(axis=1))]
        first = block._replace(bottom=runs[0][1])
        if runs[1:] and any(map(self._begins, self._parts(first))):
            rest = self._moved(block._replace(top=runs[1][0])).shown()
            told.append(
                f"{where}: {rest}, after an empty row, is read as rows of the table above "
                f"(--range {self._moved(first).shown()} leaves it out)."
            )
        return tuple(told)

    def _others(self, block: Block, others: list[Block]) -> tuple[str, ...]:
        """Return a note on what is left out: other tables, or lines and columns of notes."""
        if not others:
            return ()
        where, own = f"sheet {self.sheet!r} of {self.path}", self._moved(block).shown()
        tables = [one for one in others if min(one.height, one.width) > 1]
        tables.sort(key=lambda one: -one.height * one.width)
        ranges = [self._moved(one).shown() for one in tables or others]
        some = ", ".join(ranges[:MOST_NAMED]) + (", …" if ranges[MOST_NAMED:] else "")
        if tables:
            return (
                f"{where} holds more than one table: the largest, {own}, is read, and not {some} "
                f"(--range {ranges[0]} reads another).",
            )
        return (f"{where}: {own} is read, without the notes in {some} (--range changes this).",)

    def _filled(self, block: Block) -> Any:
        return self.filled[block.top : block.bottom + 1, block.left : block.right + 1]

    def _moved(self, block: Block) -> Block:
        """Return a block as the sheet counts its columns."""
        return block._replace(left=block.left + self.left, right=block.right + self.left)

    def _is_title(self, block: Block) -> bool:
        """Return True for lines of one cell each."""
        return bool((self._filled(block).sum(axis=1) <= 1).all())

    def blocks(self) -> list[Block]:
        """Return the tables of the sheet, from top to bottom.

        Rows after an empty one belong to the table above, unless they have a header of their own or
        are notes; columns after an empty one to the table at the left, unless they repeat its
        names, or begin or end in another row.
        """
        groups: list[list[int]] = []
        for top, bottom in _runs(self.filled.any(axis=1)):
            band = Block(top, bottom, 0, self.filled.shape[1] - 1)
            above = Block(groups[-1][0], groups[-1][1], 0, band.right) if groups else None
            if above and not self._is_apart(above, band):
                groups[-1][1] = bottom
            else:
                groups.append([top, bottom])
        found: list[Block] = []
        for top, bottom in groups:
            beside: list[Block] = []
            for part in self._parts(Block(top, bottom, 0, self.filled.shape[1] - 1)):
                if beside and self._continues(beside[-1], part):
                    left = beside.pop()
                    part = Block(top, max(left.bottom, part.bottom), left.left, part.right)
                beside.append(part)
            found += beside
        return found

    def _parts(self, block: Block) -> list[Block]:
        """Return what stands side by side in rows, without empty rows around it."""
        found = []
        for left, right in _runs(self._filled(block).any(axis=0)):
            part = block._replace(left=left, right=right)
            rows = block.top + np.flatnonzero(self._filled(part).any(axis=1))
            found.append(part._replace(top=int(rows[0]), bottom=int(rows[-1])))
        return found

    def _is_apart(self, above: Block, band: Block) -> bool:
        """Return True if rows after an empty one do not belong to the table above.

        They have a header, or are notes: with text in a third of the columns at most.
        """
        if any(map(self._begins, self._parts(band))):
            return True
        widths = [self._filled(one).any(axis=0).sum() for one in (above, band)]
        begun = any(map(self._begins, self._parts(above)))
        return bool(begun and widths[0] > 2 and 3 * widths[1] <= widths[0])

    def _begins(self, block: Block) -> bool:
        """Return True if a block has a header, perhaps below titles, and numbers below it."""
        rows = self.rows(block, FIRST_ROWS)
        return begins(rows[0], rows[1:]) or header_of(rows, MISSING) is not None

    def _continues(self, left: Block, right: Block) -> bool:
        """Return True if two blocks side by side are one table with an empty column.

        They end in the same row, but for one column alone, of which the last cells may be missing.
        """
        names = [name for one in (left, right) for name in self.rows(one, 1)[0] if name]
        same = left.top == right.top and len(set(names)) == len(names)
        same &= left.bottom == right.bottom or min(left.width, right.width) == 1
        return same and 2 * min(left.height, right.height) > max(left.height, right.height)


def _runs(filled: Any) -> list[tuple[int, int]]:
    """Return the first and the last place of every run of true values.

    Examples
    --------
    >>> _runs(np.array([True, True, False, True]))
    [(0, 1), (3, 3)]
    """
    ends = np.flatnonzero(np.diff(np.concatenate([[False], filled, [False]]).astype(int)))
    return [(int(a), int(b) - 1) for a, b in zip(ends[::2], ends[1::2], strict=True)]


def _is_whole(column: pl.Series) -> bool:
    """Return True for floats that are whole numbers: spreadsheets know no others."""
    if not column.dtype.is_float():
        return False
    return bool(((column == column.round()) & (column.abs() < 2**53)).all())
