"""How a text file writes a table: what separates fields, what marks decimals.

Excel writes what the country expects: semicolons and decimal commas in much of Europe, a mark at
the beginning, sometimes a line `sep=;`. All of it can be seen in the first lines.
"""

from __future__ import annotations

import csv
import io
import re
from typing import NamedTuple

from dualpca.errors import DualPCAError

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

    def told(self) -> str:
        """Return what is unusual about it in words, nothing if nothing is."""
        names = {";": "semicolons", "\t": "tabs", "|": "bars"}
        words = [f"fields separated by {names.get(self.separator, repr(self.separator))}"]
        words += ["decimal commas"] if self.decimal == "," else []
        return " and ".join(words) if self.separator != "," else ""


def detect(head: str, separator: str | None = None, decimal: str | None = None) -> Dialect:
    r"""Return the dialect of a text from its first lines, as far as it is not given.

    The separator is the candidate that the header has most of, outside of quotes; decimals are
    commas if some field is a number only so, and none is one with a point.

    Examples
    --------
    >>> detect("size;weight\n1,5;2\n")
    Dialect(separator=';', decimal=',', mark=False)
    """
    header = head.split("\n", 1)[0]
    if separator is None:
        outside = re.sub(r'"[^"]*"', "", header)
        separator = max(CANDIDATES, key=outside.count)  # the first of equals: a comma
    _check(separator, decimal)
    if decimal is None:
        decimal = "." if separator == "," else _decimal(head, separator)
    return Dialect(separator, decimal)


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
    except csv.Error:  # whoever reads the whole file says where
        pass
    commas = any(WITH_COMMA.fullmatch(field) for field in fields)
    return "," if commas and not any(WITH_POINT.fullmatch(field) for field in fields) else "."
