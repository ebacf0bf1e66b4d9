"""Columns that points can be coloured by, as numbers: categories by their place, others as is."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from dualpca.app.explorer.session import Session

LEVELS = 24
"""Most categories that can be told apart, by colour and form together."""

WHOLE = 12
"""A column of whole numbers with no more values than this is one of categories."""

SLOW = 20_000
"""Rows up to which reconstruction errors are offered as colours."""


class Column(NamedTuple):
    """A name, what it is ('category', 'number' or, with the reason, 'none'), and where from."""

    name: str
    kind: str
    levels: list[str]
    origin: str  # 'table', 'feature' or 'model'
    reason: str = ""


def columns_of(session: Session) -> list[Column]:
    """Return what points can be coloured by: what the model finds first, then the table."""
    found = []
    if session.n and len(session.lens.sizes) > 1:
        levels = [str(k + 1) for k in range(len(session.lens.sizes))]
        found.append(Column("component", "category", levels, "model"))
    if session.n and "error" not in session.lens.reasons and session.n <= SLOW:
        found.append(Column("reconstruction error", "number", [], "model"))
    if session.frame is None:
        return found
    features = set(session.features)
    rest = [_describe(session.frame[name], features) for name in session.frame.columns]
    return found + sorted(rest, key=lambda column: column.origin == "feature")


def _describe(column: pl.Series, features: set[str]) -> Column:
    origin = "feature" if column.name in features else "table"
    kind = column.dtype
    whole = kind.is_integer() and column.n_unique() <= WHOLE and origin == "table"
    if kind.is_numeric() and not whole:
        return Column(column.name, "number", [], origin)
    if kind.is_temporal() or kind.is_nested():
        return Column(column.name, "none", [], origin, f"{column.name} holds {kind}, no colours.")
    levels = levels_of(column)
    if len(levels) > LEVELS:
        why = f"{column.name} has {len(levels)} values, too many to tell apart."
        return Column(column.name, "none", [], origin, why)
    return Column(column.name, "category", levels, origin)


def levels_of(column: pl.Series) -> list[str]:
    """Return the values of a column, sorted, as text."""
    return [str(value) for value in column.drop_nulls().unique().sort()]


def codes_of(session: Session, column: Column) -> Any:
    """Return a number for every row, (n,) float32; NaN where there is none."""
    if column.origin == "model":
        if column.kind == "number":
            return session.errors(range(session.n)).astype(np.float32)
        with session.lock:
            groups = session.lens.groups(session.rows(range(session.n)))
        return np.asarray(groups, dtype=np.float32)
    assert session.frame is not None
    values = session.frame[column.name]
    if column.kind == "number":
        return values.cast(pl.Float64).fill_null(float("nan")).to_numpy().astype(np.float32)
    place = {level: float(i) for i, level in enumerate(column.levels)}
    found = [place.get(str(v), np.nan) if v is not None else np.nan for v in values]
    return np.asarray(found, dtype=np.float32)
