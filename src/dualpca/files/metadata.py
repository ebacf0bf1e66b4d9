"""What a model file may say beside its model: plain JSON, and how a table became rows.

Metadata is a dictionary of text, numbers, true, false, None, lists and dictionaries. One entry has
a meaning that is checked, `table`, all of whose parts are optional:

    columns      names of the table's columns that the model uses, in order
    levels       {column: [text, …]}: one-hot columns, a feature a level, in place of the column
    means        of the features, subtracted first
    scales       of the features, divided by after
    image_shape  [height, width] or [height, width, channels] of a row
    identifier   name of the column that identifies rows

Features are what the model sees: columns, with those in `levels` replaced by their indicators.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from dualpca.errors import ModelFileError, expected

LONGEST = 8 * 2**20
"""Characters that metadata may take as JSON."""

DEEPEST = 20
"""Lists in lists."""

LARGEST = 2**63
"""Whole numbers are smaller."""


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
    if length > LONGEST:
        raise ModelFileError(expected("metadata", f"at most {LONGEST} characters of JSON", length))
    if "table" in metadata:
        _check_table(metadata["table"], n_features)
    return metadata


def _check_plain(value: Any, where: str, depth: int) -> None:
    """Refuse what JSON would not give back as it was."""
    if depth > DEEPEST:
        raise ModelFileError(
            f"{where[:80]} nests values more than {DEEPEST} deep: make it flatter."
        )
    if type(value) is dict:
        for key, part in value.items():
            if type(key) is not str:
                raise ModelFileError(expected(f"keys of {where}", "text", key))
            _check_plain(part, f"{where}.{key}", depth + 1)
    elif type(value) is list:
        for i, part in enumerate(value):
            _check_plain(part, f"{where}.{i}", depth + 1)
    elif not _is_plain(value):
        what = "text, a finite number, true, false, None, a list or a dictionary"
        remedy = "Arrays have .tolist(), tuples become list(…)."
        got = f"{value.bit_length()} bits" if type(value) is int else value  # no endless digits
        raise ModelFileError(expected(where[:80], what, got, remedy))


def _is_plain(value: Any) -> bool:
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is int:
        return abs(value) < LARGEST
    if type(value) is str:
        return not any("\ud800" <= letter <= "\udfff" for letter in value)  # halves of letters
    return value is None or type(value) is bool


def _check_table(table: Any, n_features: int | None) -> None:
    if type(table) is not dict or not set(table) <= set(PARTS):
        found = sorted(table) if type(table) is dict else table
        remedy = "Other things may stand beside it."
        raise ModelFileError(expected("metadata's table", f"of {list(PARTS)}", found, remedy))
    for name, value in table.items():
        test, what = PARTS[name]
        if not test(value):
            raise _wrong(name, what, value)
    levels = table.get("levels", {})
    if "columns" in table:
        _check_columns(table["columns"], levels, n_features)
    for name in ("means", "scales"):
        if n_features is not None and len(table.get(name, range(n_features))) != n_features:
            raise _wrong(name, f"a list of {n_features}", table[name])
    shape = table.get("image_shape")
    if shape and n_features is not None and math.prod(shape) != n_features:
        raise _wrong("image_shape", f"{n_features} numbers in all", shape)


def _check_columns(columns: list[str], levels: Mapping[str, Any], n_features: int | None) -> None:
    """Compare the columns with the features they become."""
    strange = sorted(set(levels) - set(columns))
    if strange:
        raise _wrong("levels", "of the columns", strange)
    count = sum(len(levels[name]) if name in levels else 1 for name in columns)
    if n_features is not None and count != n_features:
        raise _wrong("columns", f"{n_features} features with their levels", count)


def _wrong(name: str, what: str, got: Any) -> ModelFileError:
    return ModelFileError(expected(f"{name} of metadata's table", what, got))


def _names(value: Any) -> bool:
    good = type(value) is list and all(type(name) is str for name in value)
    return good and len(set(value)) == len(value)


def _levels(value: Any) -> bool:
    return type(value) is dict and all(_names(part) for part in value.values())


def _numbers(value: Any) -> bool:
    return type(value) is list and all(type(v) in (float, int) for v in value)


def _shape(value: Any) -> bool:
    good = type(value) is list and len(value) in (2, 3)
    return good and all(type(v) is int and v > 0 for v in value)


PARTS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "columns": (_names, "a list of different names"),
    "levels": (_levels, "a dictionary of lists of different names"),
    "means": (_numbers, "a list of numbers"),
    "scales": (
        lambda value: _numbers(value) and all(v > 0 for v in value),
        "a list of positive numbers",
    ),
    "image_shape": (_shape, "[height, width] or [height, width, channels]"),
    "identifier": (lambda value: type(value) is str, "a name"),
}
