"""Lines as rows of a model: CSV by the names of its header, or JSON lines.

Columns come in any order. What cannot be read is named with its line: a line that is no row is
skipped, a cell that is no number is a missing sensor of its row.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dualpca.app.live.following import Piece, Tell
from dualpca.app.tables.columns import BOUND, Preparation, shown
from dualpca.app.tables.text import COMMA, MARKS, MISSING, TableError, detect, is_entry
from dualpca.app.tables.times import is_time_name

MOST_TOLD = 50
"""Lines that are named one by one; further ones are counted."""
MOST_NAMES = 1000
"""Keys of JSON lines that are remembered as told of."""


class Rows(NamedTuple):
    """Rows that came, and what they are called."""

    values: np.ndarray[Any, Any]  # (n, d), NaN where missing
    times: list[str]  # "" where there is none
    labels: list[str]  # identifiers, "" where there are none

    def cut(self, start: int, end: int | None) -> Rows:
        """Return some of the rows."""
        return Rows(self.values[start:end], self.times[start:end], self.labels[start:end])


@dataclass(frozen=True)
class Layout:
    """What the lines of a model hold.

    Parameters
    ----------
    prep : Preparation
        How columns become features.
    time, identifier : str, optional
        Columns beside the model. By default a column that is called like time; '' is none.
    columns : tuple of str
        All columns of the table that the model was fitted to, for lines without a header.
    separator, decimal : str, optional
        Of CSV; detected in the first lines by default.
    encoding : str
    """

    prep: Preparation
    time: str | None = None
    identifier: str | None = None
    columns: tuple[str, ...] = ()
    separator: str | None = None
    decimal: str | None = None
    encoding: str = "utf-8"


@dataclass
class Header:
    """What the lines of a file look like, once the first one has been seen."""

    names: list[str] | None  # None: JSON lines
    separator: str = ","
    decimal: str = "."
    at: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = self.names or []
        self.at = {name: k for k, name in enumerate(names) if name}

    def entry(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {"names": self.names, "separator": self.separator, "decimal": self.decimal}


class Records:
    """Reads rows from lines, and tells what is odd about them.

    Parameters
    ----------
    layout : Layout
    source : str
        What the input is called in messages.
    tell : callable
    header : mapping, optional
        As an earlier reader's `entry()`.
    """

    def __init__(
        self, layout: Layout, source: str, tell: Tell, header: Mapping[str, Any] | None = None
    ) -> None:
        self.layout, self.source, self.tell = layout, source, tell
        self.names = layout.prep.names
        self.header = None if header is None else Header(**header)
        self.bad = 0  # lines that were skipped
        self.told: set[str] = set()
        self.time = layout.time or None
        if self.header is not None and self.header.names is not None:
            self._find_time(self.header.names)
        self._features = _features(layout.prep)
        self._codes = _codes_of(layout.prep)

    def entry(self) -> dict[str, Any] | None:
        """Return what a reader needs to go on in the middle of a file."""
        return None if self.header is None else self.header.entry()

    def rows(self, piece: Piece) -> Rows:
        """Return the rows of some lines."""
        values, times, labels = [], [], []
        for number, line in enumerate(piece.lines, piece.first):
            text = self._text(line, number)
            fresh = piece.fresh and number == piece.first
            if text is None or not (text := text.strip("\r\n \t" if self._json else "\r\n")):
                continue
            if self.header is None or fresh:
                if self._begun(text, number, fresh):
                    continue
            cells = self._cells(text, number)
            if cells is None:
                continue
            values.append(self._values(cells, number))
            times.append(_label(cells, self.time))
            labels.append(_label(cells, self.layout.identifier))
        found = np.array(values, dtype=np.float64).reshape(len(values), len(self._features))
        return Rows(found, times, labels)

    @property
    def _json(self) -> bool:
        return self.header is not None and self.header.names is None

    def _text(self, line: bytes, number: int) -> str | None:
        """Return a line as text; None, and a word about it, if it is none."""
        if number == 1 and line[:2] in MARKS:
            raise TableError(
                f"{self.source} is {MARKS[line[:2]]}, which is not watched: use utf-8."
            )
        try:
            text = line.decode(self.layout.encoding)
        except UnicodeDecodeError:
            self.skip(number, f"is not {self.layout.encoding} text")
            return None
        return text.removeprefix("\ufeff") if number == 1 else text

    def skip(self, number: int, why: str) -> None:
        """Say that a line is skipped."""
        self.bad += 1
        if self.bad <= MOST_TOLD:
            self.tell(f"line {number} of {self.source} {why}: it is skipped.")
        elif self.bad == MOST_TOLD + 1 or self.bad % 1000 == 0:
            self.tell(f"{self.bad} lines of {self.source} were skipped by line {number}.")

    def _once(self, what: str, words: str) -> None:
        if what not in self.told and len(self.told) < MOST_NAMES:
            self.told.add(what)
            self.tell(words)

    # --- headers -------------------------------------------------------------------------------

    def _begun(self, text: str, number: int, fresh: bool) -> bool:
        """Learn from a first line what follows; return whether it was no row."""
        if text.lstrip().startswith("{"):
            self.header = Header(None)
            return False
        dialect = detect(text, self.layout.separator, self.layout.decimal)
        cells = _split(text, dialect.separator) or []
        names = [cell.strip() for cell in cells]
        if set(names) & set(self.names):
            self._learn(names, dialect.separator)
            return True
        if fresh and self.header is not None and self.header.names is not None:
            if len(cells) == len(self.header.names):  # the same logger, without a header
                return False
        if not any(is_entry(cell, ",") for cell in cells if cell.strip()):
            some = ", ".join(map(shown, names[:10])) + (", …" if names[10:] else "")
            raise TableError(
                f"line {number} of {self.source} names none of the model's sensors, which are "
                f"{', '.join(map(shown, self.names[:10]))}{', …' if self.names[10:] else ''}; "
                f"it has {some}."
            )
        for known in (self.layout.columns, self.names):
            if len(known) == len(cells):
                self._once("names", f"{self.source} has no header: columns are as in the model.")
                self._learn(list(known), dialect.separator)
                return False
        raise TableError(
            f"{self.source} has no header, and {len(cells)} columns where the model has "
            f"{len(self.names)} sensors: write the names of the columns as its first line."
        )

    def _learn(self, names: list[str], separator: str) -> None:
        """Take a header, and tell what it has too much and too little."""
        twice = sorted(name for name, n in Counter(names).items() if n > 1 and name)
        if twice:
            raise TableError(f"{self.source} has two columns {twice[0]!r}: rename one of them.")
        self.header = Header(names, separator, self.layout.decimal or ".")
        self._tell_names(names)

    def _find_time(self, names: Sequence[str]) -> None:
        """Take a column that is called like time, where the model knows of none."""
        if self.layout.time is None:
            beside = (name for name in names if name not in self.names)
            self.time = next(filter(is_time_name, beside), None)

    def _tell_names(self, names: Sequence[str]) -> None:
        self._find_time(names)
        beside = {*self.names, self.time, self.layout.identifier, ""}
        extra = [name for name in names if name not in beside]
        absent = [name for name in self.names if name not in names]
        if extra:
            self._once(f"extra {extra}", f"not in the model, and ignored: {_some(extra)}.")
        if absent:
            words = f"not in {self.source}, and missing in every row: {_some(absent)}."
            self._once(f"absent {absent}", words)

    def _is_header(self, cells: list[str]) -> bool:
        """Return True for a line of names amid rows."""
        names = [cell.strip() for cell in cells]
        known = sum(name in self.names for name in names)
        return 2 * known >= len(self.names) and not any(map(is_entry, filter(None, names)))

    # --- cells ---------------------------------------------------------------------------------

    def _cells(self, text: str, number: int) -> dict[str, Any] | None:
        """Return the cells of a line by name; None if it is no row."""
        header = self.header
        assert header is not None
        if header.names is None:
            return self._object(text, number)
        cells = _split(text, header.separator)
        if cells is None:
            self.skip(number, "has a quote that is never closed")
            return None
        wanted = len(header.names)
        if cells[0].strip() in header.at and self._is_header(cells):
            if [cell.strip() for cell in cells] == header.names:
                self._once("again", f"line {number} of {self.source} is the header again.")
            else:
                self._once(f"new {cells}", f"line {number} of {self.source} is another header.")
                self._learn([cell.strip() for cell in cells], header.separator)
            return None
        if len(cells) > wanted and not any(cells[wanted:]):
            del cells[wanted:]  # separators at the end
        if len(cells) != wanted:
            self.skip(number, f"has {len(cells)} fields, where {wanted} are expected")
            return None
        return {name: cells[k] for name, k in header.at.items()}

    def _object(self, text: str, number: int) -> dict[str, Any] | None:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self.skip(number, "is not an object of JSON")
            return None
        if not any(name in found for name in self.names):
            self.skip(number, "has none of the model's sensors")
            return None
        if found.keys() - self.told:
            self._tell_keys(found)
        return found

    def _tell_keys(self, found: dict[str, Any]) -> None:
        """Tell of keys that are new, and of sensors that the first row lacks."""
        if "first" not in self.told:
            self.told.add("first")
            self._tell_names(list(found))
        else:
            beside = {*self.names, self.time, self.layout.identifier, ""}
            extra = [name for name in found if name not in beside and name not in self.told]
            if extra:
                self._once(f"extra {extra}", f"ignored from here on: {_some(extra)}.")
        if len(self.told) < MOST_NAMES:
            self.told |= found.keys()

    def _values(self, cells: Mapping[str, Any], number: int) -> list[float]:
        """Return the features of a row, NaN where they are missing."""
        found = []
        for name, level in self._features:
            cell = cells.get(name)
            if level is None:
                try:
                    value = float(cell)  # type: ignore[arg-type]
                    if not math.isfinite(value) or name in self._codes or cell is True:
                        value = self._odd(name, cell, number)
                except (TypeError, ValueError):
                    value = self._odd(name, cell, number)
            else:
                word = "" if cell is None else str(cell).strip()
                value = math.nan if word in MISSING else float(word == level)
            found.append(value)
        return found

    def _odd(self, name: str, cell: Any, number: int) -> float:
        """Return what a cell is worth that is no plain number; NaN if it is none."""
        text = "" if cell is None else str(cell).strip()
        codes = self._codes.get(name, ())
        if text in MISSING or text in codes:
            return math.nan
        comma = self.header is not None and self.header.separator != ","
        if comma or self._json:
            text = re.sub(COMMA, r"\1.\2", text)
        try:
            value = {"true": 1.0, "false": 0.0}.get(text.lower())
            value = float(text) if value is None else value
        except ValueError:
            value = math.inf
        if math.isnan(value) or value in {float(code) for code in codes if is_entry(code)}:
            return math.nan
        if math.isfinite(value):
            return value
        if not BOUND.fullmatch(text):
            self._once(
                f"cell {name}",
                f"line {number} of {self.source}: {name!r} holds {shown(text)}, which is no "
                "number. Such cells are missing sensors; they are told of once per column.",
            )
        return math.nan


def _split(text: str, separator: str) -> list[str] | None:
    """Return the cells of a line; None if a quote is never closed."""
    if '"' not in text:
        return text.split(separator)
    try:
        return next(csv.reader([text], delimiter=separator, strict=True))
    except (csv.Error, StopIteration):
        return None


def _label(cells: Mapping[str, Any], name: str | None) -> str:
    cell = None if name is None else cells.get(name)
    return "" if cell is None else str(cell).strip()


def _some(names: Sequence[str], most: int = 10) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(shown, names[:most])) + more


def _features(prep: Preparation) -> list[tuple[str, str | None]]:
    """Return the column of every feature, and its level if it is one of zeros and ones."""
    found: list[tuple[str, str | None]] = []
    for name in prep.names:
        levels = prep.levels.get(name)
        left = prep.dropped.get(name)
        found += [(name, k) for k in levels if k != left] if levels else [(name, None)]
    return found


def _codes_of(prep: Preparation) -> dict[str, tuple[str, ...]]:
    """Return the codes of missing entries by column."""
    found: dict[str, tuple[str, ...]] = {}
    for name in prep.names:
        head = f"{name}="
        own = [code.removeprefix(head) for code in prep.missing if code.startswith(head)]
        every = [code for code in prep.missing if "=" not in code[1:]]
        if own or every:
            found[name] = (*own, *every)
    return found
