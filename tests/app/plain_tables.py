"""A plain, slow reader of text tables that is told everything: the reference of the other one.

It splits with Python's csv module and converts cell by cell; it looks for nothing by itself.
"""

import csv
import gzip
import io

import numpy as np
import polars as pl

from tests.workbook import book

MISSING = {"", "NA", "N/A", "NaN", "null", "None", ".", "-", "?"}
"""Codes that are missing in columns of numbers; an empty cell is missing in all."""


def plain_read(text, separator, decimal=".", thousands="", header=1, units=None, first=None):
    """Return names, units and columns of a table of which everything is known.

    Parameters
    ----------
    text : str
    separator, decimal : str
    thousands : str
        Signs that separate thousands, none by default.
    header : int
        Number of the record that has the names, from 1; 0: there is none.
    units : int, optional
        Number of the record that has units.
    first : int, optional
        Number of the first record of the table; by default that after the header and the units.
    """
    records = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
    records = [[cell.strip() for cell in record] for record in records]
    first = max(header, units or 0) + 1 if first is None else first
    body = [record for record in records[first - 1 :] if record]
    names = records[header - 1] if header else [f"x{j + 1}" for j in range(len(body[0]))]
    if not names[0]:
        names = ["row", *names[1:]]
    found = {}
    for j, name in enumerate(names):
        cells = [record[j] for record in body]
        try:
            found[name] = [plain_number(cell, decimal, thousands) for cell in cells]
        except ValueError:
            found[name] = [cell or None for cell in cells]
        if not any(value is not None for value in found[name]):  # codes of nothing are text
            found[name] = [cell or None for cell in cells]
    signs = dict(zip(names, records[units - 1], strict=True)) if units else {}
    return names, {name: unit for name, unit in signs.items() if unit}, found


def plain_number(cell, decimal, thousands):
    """Return the number in a cell, None where it is missing; refuse everything else."""
    if cell in MISSING:
        return None
    if decimal != "." and "." in cell and "." not in thousands:
        raise ValueError(cell)
    for sign in thousands:
        cell = cell.replace(sign, "")
    return float(cell.replace(decimal, "."))


def same(found, wanted):
    """Return True if two columns hold the same numbers, or the same text."""
    if all(isinstance(value, float | None) for value in wanted):
        return [None if v is None else float(v) for v in found] == wanted
    points = [None if v is None else v.replace(",", ".") for v in wanted]  # decimal commas
    return [None if v is None else str(v).strip().replace(",", ".") for v in found] == points


def packed(kind):
    """Return the bytes of a good table in a format that is not text."""
    out = io.BytesIO()
    rows = pl.DataFrame({"a": [1.5, 2.0, None], "k": ["x", "y", "x"]})
    if kind == "npy":
        np.save(out, np.arange(6.0).reshape(3, 2))
    elif kind == "npz":
        np.savez(out, X=np.arange(6.0).reshape(3, 2), y=np.arange(3))
    elif kind in ("parquet", "arrow"):
        (rows.write_parquet if kind == "parquet" else rows.write_ipc)(out)
    elif kind == "xlsx":
        book(out, Data=[["a", "k"], [1, "x"], [2.5, "y"], [None, "<5"]])
    else:
        return gzip.compress(b"a,b\n1,2\n3,4\n", mtime=0)
    return out.getvalue()
