"""Columns and rows that a table has beside the model: left out of the fit, shown in reports."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import polars as pl

from dualpca.app.cli._running import Beside, Choice, UsageError, note
from dualpca.app.tables import columns
from dualpca.app.tables.columns import Refused
from dualpca.app.tables.reading import TableFile
from dualpca.app.tables.text import TableError, without
from dualpca.errors import ModelFileError, expected

LEVELLED = ("nominal", "ordinal", "binary")
"""Kinds of columns whose numbers are codes."""


class Apart(NamedTuple):
    """Names of supplementary columns, and how supplementary rows are known."""

    columns: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()  # those whose numbers are codes
    rows: tuple[tuple[str, str], ...] = ()  # rows with one of these values in this column

    def entry(self) -> dict[str, Any]:
        """Return the entry of a model file's metadata; none where nothing is apart."""
        if self == Apart():
            return {}
        rows = [list(pair) for pair in self.rows]
        return {
            "supplementary": {
                "columns": list(self.columns),
                "categories": list(self.categories),
                "rows": rows,
            }
        }

    def words(self) -> str:
        """Return what is apart, in words."""
        parts = [f"columns {', '.join(self.columns)}"] if self.columns else []
        if self.rows:
            parts.append("rows with " + " or ".join("=".join(pair) for pair in self.rows))
        return " and ".join(parts)

    def choice(self, choice: Choice) -> Choice:
        """Return the columns to fit without those that are apart."""
        left_out = [*self.columns, *(name for name, _ in self.rows)]
        if not left_out:
            return choice
        one_hot = [name for name in choice.one_hot or [] if name not in self.columns]
        kinds = [one for one in choice.kinds or [] if not one.startswith(self._heads())]
        exact = [_literal(name) for name in left_out]
        return choice._replace(
            exclude=[*(choice.exclude or []), *exact], one_hot=one_hot or None, kinds=kinds or None
        )

    def _heads(self) -> tuple[str, ...]:
        """Return what the kind of a column that is apart begins with: COLUMN=."""
        return tuple(f"{name}=" for name in self.columns)

    def chosen(self, frame: pl.DataFrame) -> pl.Series:
        """Return which rows of a table are supplementary."""
        found = pl.repeat(False, frame.height, eager=True)
        for name, value in self.rows:
            found = found | (columns.texts(frame[name]) == value).fill_null(False)
        return found

    def fitted(self, table: TableFile) -> TableFile:
        """Return the rows of a table that are to be fitted."""
        if not self.rows:
            return table
        found = table.filtered(lambda frame: ~self.chosen(frame))
        if found.height in (0, table.height):
            which = "no row" if found.height else "every row"
            words = " or ".join("=".join(pair) for pair in self.rows)
            raise TableError(f"--supplementary-rows {words}: {which} has that value.")
        note(f"{table.height - found.height} of {table.height} rows are supplementary.")
        return found

    def shown(self, frame: pl.DataFrame, missing: tuple[str, ...] = ()) -> pl.DataFrame:
        """Return the supplementary columns of a table as numbers, or as text for categories."""
        there = [name for name in self.columns if name in frame.columns]
        found = []
        for column in without(frame.select(there), missing).iter_columns():
            coded = column.name in self.categories or column.dtype == pl.Boolean
            number = None if coded else columns.number(column)
            if isinstance(number, Refused) and number.what == columns.DATES:
                note(f"column {column.name!r} holds dates, which are not shown.")
            elif number is None or isinstance(number, Refused):
                found.append(columns.texts(column))
            else:
                found.append(number)
        return pl.DataFrame(found)


def uncoloured(choice: Choice, color: str, there: list[str]) -> Choice:
    """Return the columns to fit without the one that rows are coloured by, and say so.

    Groups that were part of a model would lie apart in its figures, whatever the others say.
    """
    if color not in there:
        raise TableError(f"--color {color}: no such column; there are {there[:10]}.")
    note(f"column {color!r} colours the rows, so it is not part of the model.")
    return Apart((color,)).choice(choice)


def _literal(name: str) -> str:
    """Return a pattern that matches a name and nothing else."""
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in name)


def apart_of(beside: Beside, choice: Choice, there: list[str]) -> Apart:
    """Return what the options set apart in a table with these columns."""
    names: list[str] = []
    for pattern in beside.supplementary or []:
        found = [name for name in there if fnmatchcase(name, pattern)]
        if not found:
            raise TableError(f"--supplementary {pattern}: no such column; there are {there[:10]}.")
        names += [name for name in found if name not in names]
    rows = []
    for words in beside.supplementary_rows or []:
        name, equals, value = words.partition("=")
        if not equals:
            raise UsageError(
                f"--supplementary-rows {words}: expected COLUMN=VALUE, as in set=test."
            )
        if name not in there:
            raise TableError(
                f"--supplementary-rows {words}: no such column; there are {there[:10]}."
            )
        rows.append((name, value))
    coded = [name for name, one in choice.asked().items() if one.kind in LEVELLED]
    coded = [name for name in [*(choice.one_hot or []), *coded] if name in names]
    return Apart(tuple(names), tuple(coded), tuple(rows))


def apart_in(metadata: Mapping[str, Any]) -> Apart:
    """Return what a model file sets apart."""
    entry = metadata.get("supplementary", {})
    parts = ("columns", "categories", "rows")
    if type(entry) is not dict or not all(type(entry.get(k, [])) is list for k in parts):
        raise ModelFileError(expected("metadata's supplementary", f"lists {parts}", entry))
    names, coded, rows = (entry.get(k, []) for k in parts)
    pairs = [pair for pair in rows if type(pair) is list and len(pair) == 2]
    every = [*names, *coded, *(word for pair in pairs for word in pair)]
    if len(pairs) < len(rows) or not all(type(word) is str for word in every):
        raise ModelFileError(expected("metadata's supplementary", "text", entry))
    return Apart(tuple(names), tuple(coded), tuple((one, other) for one, other in pairs))
