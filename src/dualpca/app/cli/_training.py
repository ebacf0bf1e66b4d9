"""From a table to what a model is fitted to: which columns, in which units."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from dualpca.app.cli._models import streams
from dualpca.app.cli._options import Choice
from dualpca.app.cli._running import UsageError, note
from dualpca.app.tables import columns, images, reading
from dualpca.app.tables.dialects import TableError
from dualpca.app.tables.preparation import Preparation
from dualpca.app.tables.reading import Reading, Table


def open_table(data: str, how: Reading, id_column: str | None = None, must: bool = True) -> Table:
    """Return a table, and say how it is read if that is unusual.

    The column of identifiers stays text; it must be there, or may.
    """
    table = reading.opened(data, how, () if id_column is None else (id_column,))
    if table.dialect is not None and how.separator is None and how.kind != "tsv":
        told = "" if data.endswith((".tsv", ".tab")) else table.dialect.told()
        if told:
            note(f"{data} is read with {told} (--separator and --decimal change it).")
    if must and id_column is not None and id_column not in table.columns:
        raise TableError(f"--id {id_column}: no such column; there are {table.columns[:10]}.")
    return table


def prepared(
    table: Table,
    choice: Choice,
    id_column: str | None = None,
    sequence: str | None = None,
    standardize: bool = False,
) -> Preparation:
    """Return how the rows of a table are to be made, after one look at all of them."""
    if id_column is None and table.image_shape is not None:
        id_column = images.NAME
    apart = [name for name in (id_column, sequence) if name is not None]
    heads = pl.DataFrame(schema=[name for name in table.columns if name not in apart])
    names = columns.select(heads, choice.include or [], choice.exclude or [])
    one_hot = choice.one_hot or []
    if choice.numbers_only:
        names = _numeric(table, names, one_hot)
    levels = _levels(table, names, one_hot)
    shape = table.image_shape if len(names) == len(table.columns) - len(apart) else None
    found = Preparation(tuple(names), levels, image_shape=shape, identifier=id_column)
    if not standardize:
        return found
    return found.standardized(table.frames("means and deviations, batch"))


def _numeric(table: Table, names: list[str], one_hot: list[str]) -> list[str]:
    """Return the columns of numbers, and say which others there are."""
    kept = names
    for frame in table.frames("looking for numbers, batch"):
        good = columns.numeric(frame, [name for name in kept if name not in one_hot])
        kept = [name for name in kept if name in good or name in one_hot]
    left = [repr(name) for name in names if name not in kept]
    if not kept:
        raise TableError("no column is left: none holds numbers.")
    if left:
        note(f"left out, as they hold no numbers: {', '.join(left)}.")
    return kept


def _levels(table: Table, names: list[str], one_hot: list[str]) -> dict[str, list[str]]:
    if not one_hot:
        return {}
    absent = [name for name in one_hot if name not in names]
    if absent:
        raise TableError(f"--one-hot {absent[0]}: no such column; there are {names[:10]}.")
    parts = [frame.select(one_hot).unique() for frame in table.frames("values, batch")]
    return columns.levels_of(pl.concat(parts), names, one_hot)


def fitted(model: Any, name: str, table: Table, prep: Preparation, extra: dict[str, Any]) -> Any:
    """Fit a model to a table: at once, or batch by batch."""
    if table.whole:
        return model.fit(prep.rows(table.frame()), **extra)
    if not hasattr(type(model), "partial_fit"):
        raise TableError(
            f"{table.path} has {table.height} rows, more than memory is to take, and {name} needs "
            f"all of them at once. Fit one of {', '.join(streams())}, or fit to some rows with "
            "--sample-rows 10000, or raise --memory-limit."
        )
    for frame in table.frames("fitting, batch"):
        model.partial_fit(prep.rows(frame))
    note(f"{table.path} was read in {table.n_batches} batches.")
    return model


def lengths_of(frame: pl.DataFrame, column: str | None, lengths: str | None) -> list[int] | None:
    """Return the rows of every sequence: as given, or by a column that names them."""
    if lengths is not None:
        try:
            return [int(part) for part in lengths.split(",")]
        except ValueError:
            raise UsageError(f"--lengths {lengths}: expected whole numbers with commas.") from None
    if column is None:
        return None
    if column not in frame.columns:
        raise TableError(f"--sequence-column {column}: no such column in the table.")
    runs = frame[column].rle_id()
    if runs[-1] + 1 > frame[column].n_unique():
        raise TableError(
            f"--sequence-column {column}: rows of one sequence must stand together. Sort the "
            "table by it first."
        )
    return [int(count) for count in np.bincount(runs.to_numpy())]


def at_once(table: Table, sample_rows: int | None, seed: int) -> Table:
    """Return a table in memory, of some of its rows if asked; refuse one that is too large."""
    if sample_rows is not None and sample_rows < table.height:
        note(f"{sample_rows} of {table.height} rows are used, drawn at random (--sample-rows).")
        return table.sampled(sample_rows, seed)
    if not table.whole:
        raise TableError(
            f"{table.path} has {table.height} rows, more than memory is to take: use some of them "
            "with --sample-rows 10000, or raise --memory-limit."
        )
    return table
