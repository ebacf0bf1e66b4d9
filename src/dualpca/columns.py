"""Columns of a table as numbers for models: chosen by name or pattern, never guessed.

Text, dates and categories are refused until one says what they are; a missing entry is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import polars as pl

from dualpca.tables import TableError


def select(frame: pl.DataFrame, include: Sequence[str], exclude: Sequence[str]) -> list[str]:
    """Return the columns that some pattern includes (all, without one) and none excludes.

    Examples
    --------
    >>> frame = pl.DataFrame({"width": [1.0], "height": [2.0], "id": [3]})
    >>> select(frame, ["*"], ["id"]), select(frame, ["w*"], [])
    (['width', 'height'], ['width'])
    """
    for pattern in (*include, *exclude):
        if not any(fnmatchcase(name, pattern) for name in frame.columns):
            raise TableError(f"no column is called {pattern!r}; there are {_some(frame.columns)}.")
    wanted = [c for c in frame.columns if not include or any(fnmatchcase(c, p) for p in include)]
    kept = [c for c in wanted if not any(fnmatchcase(c, p) for p in exclude)]
    if not kept:
        raise TableError("no column is left: --columns and --exclude leave nothing.")
    return kept


def _some(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names[:10]) + (", …" if len(names) > 10 else "")


def numbers(frame: pl.DataFrame, names: Sequence[str], one_hot: Sequence[str] = ()) -> pl.DataFrame:
    """Return columns as float64, NaN where an entry is missing; true is 1 and false 0.

    Parameters
    ----------
    frame : polars.DataFrame
    names : sequence of str
    one_hot : sequence of str
        Columns of text or whole numbers that become one column of zeros and ones for each of
        their values, called name=value.

    Examples
    --------
    >>> frame = pl.DataFrame({"a": [1, None], "kind": ["x", "y"]})
    >>> numbers(frame, ["a", "kind"], ["kind"]).rows()
    [(1.0, 1.0, 0.0), (nan, 0.0, 1.0)]
    """
    absent = sorted(set(one_hot) - set(names))
    if absent:
        raise TableError(f"--one-hot {absent[0]}: no such column; there are {_some(list(names))}.")
    columns: list[pl.Series] = []
    for name in names:
        if name in one_hot:
            levels = frame[name].drop_nulls().unique().sort()
            columns += [_indicator(frame[name], str(level)) for level in levels]
        else:
            columns.append(_number(frame[name]))
    return pl.DataFrame(columns)


def _indicator(column: pl.Series, level: str) -> pl.Series:
    """Return 1 where a column has a value, 0 where it has another, NaN where it has none."""
    same = (column.cast(pl.String) == level).cast(pl.Float64)
    return same.fill_null(float("nan")).alias(f"{column.name}={level}")


def _number(column: pl.Series) -> pl.Series:
    kind = column.dtype
    if kind.is_numeric() or kind in (pl.Boolean, pl.Null):
        return column.cast(pl.Float64).fill_null(float("nan"))
    what = "dates or times" if kind.is_temporal() else "text"
    value = column.drop_nulls()
    if what == "text" and kind == pl.String:
        odd = column.filter(column.cast(pl.Float64, strict=False).is_null() & column.is_not_null())
        value = odd if len(odd) else value
    example = repr(str(value[0])) if len(value) else str(kind)
    one_hot = "" if kind.is_temporal() else f", or --one-hot {column.name} for a column a value"
    raise TableError(
        f"column {column.name!r} holds {what} (such as {example}), and models need numbers. Leave "
        f"it out with --exclude {column.name}{one_hot}."
    )


def matching(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Return the columns that a model was fitted on, in its order, as float64.

    A name such as kind=x that is no column itself is 1 where the column kind is x.

    Examples
    --------
    >>> frame = pl.DataFrame({"kind": ["x", "y"], "a": [1, 2]})
    >>> matching(frame, ["a", "kind=x", "kind=y"]).rows()
    [(1.0, 1.0, 0.0), (2.0, 0.0, 1.0)]
    """
    columns, absent = [], []
    levels: dict[str, list[str]] = {}
    for name in names:
        stem, _, level = name.partition("=")
        if name in frame.columns:
            columns.append(_number(frame[name]))
        elif level and stem in frame.columns:
            columns.append(_indicator(frame[stem], level))
            levels.setdefault(stem, []).append(level)
        else:
            absent.append(name)
    if absent:
        raise TableError(
            f"columns {_some(absent)} of the model are not in the table, which has "
            f"{_some(frame.columns)}. Rename its columns, or fit a model to this table."
        )
    for stem, known in levels.items():
        _check_levels(frame[stem], known)
    return pl.DataFrame(columns)


def _check_levels(column: pl.Series, known: Sequence[str]) -> None:
    """Refuse values that a one-hot column did not have in the fit."""
    new = sorted(set(column.drop_nulls().cast(pl.String)) - set(known))
    if new:
        raise TableError(
            f"column {column.name!r} has values that the model has not seen: {_some(new)}; it "
            f"knows {_some(known)}. Drop these rows, or fit a model to rows that have them."
        )
