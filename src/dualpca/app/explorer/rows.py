"""Rows of the table for people: cells as text, latents, reconstruction errors; and as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from dualpca.app.explorer.session import Session

WIDE = 12
"""Columns that a table on the page has at most; those that are no features first."""


MANY = 5000
"""Rows that a summary of errors looks at."""


def shown(session: Session, index: Sequence[int], component: int) -> dict[str, Any]:
    """Return rows as the page shows them."""
    X = session.units.out(session.rows(index))
    able = "error" not in session.lens.reasons
    names = _names(session)
    cells = [[_text(value) for value in row] for row in _frame(session, index, names).rows()]
    return {
        "columns": names,
        "cells": cells,
        "ids": [session.identifier(i) for i in index],
        "latents": session.Z[component][list(index)],
        "values": X,
        "errors": session.errors(index) if able else None,
    }


def summarized(session: Session, index: Sequence[int]) -> dict[str, Any]:
    """Return mean and largest reconstruction error of rows, of some of them if they are many."""
    some = index[:: -(-len(index) // MANY)]
    errors = session.errors(some)
    return {"count": len(some), "mean": float(errors.mean()), "largest": float(errors.max())}


def _names(session: Session) -> list[str]:
    if session.frame is None:
        return []
    features = set(session.features)
    names = sorted(session.frame.columns, key=lambda name: name in features)
    return names[:WIDE]


def _frame(session: Session, index: Sequence[int], names: list[str]) -> pl.DataFrame:
    if session.frame is None:
        return pl.DataFrame()
    return session.frame.select(names)[np.asarray(index, dtype=np.int64)]


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.5g}" if isinstance(value, float) else str(value)[:80]


def exported(session: Session, index: Sequence[int], component: int) -> pl.DataFrame:
    """Return rows with all of their columns, latents and errors, as a table."""
    index = list(index)
    X = session.units.out(session.rows(index))
    first = pl.DataFrame({"row": [session.identifier(i) for i in index]})
    Z = session.Z[component][index]
    extra = {f"latent {j + 1}": Z[:, j] for j in range(Z.shape[1])}
    if "error" not in session.lens.reasons:
        extra["reconstruction error"] = session.errors(index)
    if session.frame is None:
        rest = pl.DataFrame(X, schema=list(session.features), orient="row")
    else:
        rest = _frame(session, index, session.frame.columns)
    taken = set(rest.columns)
    named = {_free(name, taken): values for name, values in extra.items()}
    first = first.rename({"row": _free("row", taken)})
    return pl.concat([first, pl.DataFrame(named), rest], how="horizontal")


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
