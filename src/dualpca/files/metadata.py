"""What a model file may say beside its model: plain JSON, and how a table became rows.

Metadata is a dictionary of text, numbers, true, false, None, lists and dictionaries. One entry has
a meaning that is checked, `table`, all of whose parts are optional:

    columns      names of the table's columns that the model uses, in order
    levels       {column: [text, …]}: one-hot columns, a feature a level, in place of the column
    dropped      {column: text}: the level of a one-hot column that has no feature
    missing      [text, …]: codes of missing entries, beside the usual
    kinds        {column: kind}: of a model of columns of any kind, which sees one feature a column
    means        of the features, subtracted first
    scales       of the features, divided by after
    image_shape  [height, width] or [height, width, channels] of a row
    identifier   name of the column that identifies rows
    time         name of the column that tells the time of rows

Features are what the model sees: columns, with those in `levels` replaced by their indicators
unless there are `kinds`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from dualpca.errors import ModelFileError, expected
from dualpca.files.fields import fits

MOST_CHARACTERS = 8 * 2**20
"""Of JSON that metadata may take."""

MOST_NESTED_LISTS = 20

INTEGER_BOUND = 2**63
"""Integers are smaller."""


def check(metadata: Any, n_features: int | None = None) -> dict[str, Any]:
    """Return metadata if it can be put into a file, and read back the same.

    Parameters
    ----------
    metadata : dict
    n_features : int, optional
        Of the model.

    Raises
    ------
    ModelFileError
        If it is anything else, or a `table` that does not fit the model.

    Examples
    --------
    >>> check({"table": {"columns": ["a", "b"], "means": [0.5, 2.0]}}, n_features=2)
    {'table': {'columns': ['a', 'b'], 'means': [0.5, 2.0]}}
    >>> check({"table": {"means": [0.5, 2.0]}}, n_features=3)
    Traceback (most recent call last):
    ...
    dualpca.errors.ModelFileError: means of metadata's table must be a list of 3, got [0.5, 2.0].
    """
    if type(metadata) is not dict:
        raise ModelFileError(expected("metadata", "a dictionary", metadata))
    _check_plain(metadata, "metadata", 0)
    length = len(json.dumps(metadata))
    if length > MOST_CHARACTERS:
        what = f"at most {MOST_CHARACTERS} characters of JSON"
        raise ModelFileError(expected("metadata", what, length))
    if "table" in metadata:
        _check_table(metadata["table"], n_features)
    return metadata


def _check_plain(value: Any, where: str, depth: int) -> None:
    """Refuse what JSON would not give back as it was."""
    if depth > MOST_NESTED_LISTS:
        what = f"{where[:80]} nests values more than {MOST_NESTED_LISTS} deep"
        raise ModelFileError(f"{what}: make it flatter.")
    if type(value) in (dict, list):
        for key, part in value.items() if type(value) is dict else enumerate(value):
            if type(value) is dict and type(key) is not str:
                raise ModelFileError(expected(f"keys of {where}", "text", key))
            _check_plain(part, f"{where}.{key}", depth + 1)
    elif not _is_plain(value):
        what = "text, a finite number, true, false, None, a list or a dictionary"
        remedy = "Arrays have .tolist(), tuples become list(…)."
        got = f"{value.bit_length()} bits" if type(value) is int else value  # no endless digits
        raise ModelFileError(expected(where[:80], what, got, remedy))


def _is_plain(value: Any) -> bool:
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is int:
        return abs(value) < INTEGER_BOUND
    if type(value) is str:
        return not any("\ud800" <= letter <= "\udfff" for letter in value)  # halves of letters
    return value is None or type(value) is bool


def _distinct(names: list[str]) -> bool:
    return len(set(names)) == len(names)


def _positive(numbers: list[float]) -> bool:
    return all(number > 0 for number in numbers)


TABLE: dict[str, tuple[Any, Callable[[Any], bool], str]] = {
    "columns": (list[str], _distinct, "a list of different names"),
    "levels": (
        dict[str, list[str]],
        lambda levels: all(map(_distinct, levels.values())),
        "a dictionary of lists of different names",
    ),
    "dropped": (dict[str, str], lambda _: True, "a dictionary of names"),
    "missing": (list[str], _distinct, "a list of different codes"),
    "kinds": (dict[str, str], lambda _: True, "a dictionary of names"),
    "means": (list[float], lambda _: True, "a list of numbers"),
    "scales": (list[float], _positive, "a list of positive numbers"),
    "image_shape": (
        list[int],
        lambda shape: len(shape) in (2, 3) and _positive(shape),
        "[height, width] or [height, width, channels]",
    ),
    "identifier": (str, lambda _: True, "a name"),
    "time": (str, lambda _: True, "a name"),
}
"""Parts of `table`: annotation, further condition, and both in words."""


def _require(good: bool, name: str, what: str, got: Any) -> None:
    if not good:
        raise ModelFileError(expected(f"{name} of metadata's table", what, got))


def _check_table(table: Any, n_features: int | None) -> None:
    if type(table) is not dict or not set(table) <= set(TABLE):
        found = sorted(table) if type(table) is dict else table
        remedy = "Other things may stand beside it."
        raise ModelFileError(expected("metadata's table", f"of {list(TABLE)}", found, remedy))
    for name, value in table.items():
        hint, condition, what = TABLE[name]
        _require(fits(value, hint, {}) and condition(value), name, what, value)
    levels, dropped = table.get("levels", {}), table.get("dropped", {})
    columns = table["columns"] if "columns" in table else levels
    strange = sorted(set(levels) - set(columns))
    _require(not strange, "levels", "of the columns", strange)
    strange = sorted(name for name, level in dropped.items() if level not in levels.get(name, []))
    _require(not strange, "dropped", "of the levels", strange)
    if n_features is not None:
        _check_width(table, n_features)


def _check_width(table: dict[str, Any], n_features: int) -> None:
    """Refuse parts that are not of as many features as the model."""
    columns, levels = table.get("columns"), table.get("levels", {})
    if columns is not None:
        count = sum(len(levels.get(name, [name])) for name in columns)
        count -= len(table.get("dropped", {}))
        count = len(columns) if "kinds" in table else count
        what = f"{n_features} features with their levels"
        _require(count == n_features, "columns", what, count)
    for name in ("means", "scales"):
        given = table.get(name, range(n_features))
        _require(len(given) == n_features, name, f"a list of {n_features}", given)
    shape = table.get("image_shape", [n_features])
    _require(math.prod(shape) == n_features, "image_shape", f"{n_features} numbers in all", shape)
