"""A model file and a table opened together: the rows the model takes, the tables they become."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

import dualpca
from dualpca.app.cli._running import UsageError
from dualpca.app.cli._training import lengths_of, open_table
from dualpca.app.tables import tables, writing
from dualpca.app.tables.dialects import TableError
from dualpca.app.tables.preparation import Preparation, guessed, of_table
from dualpca.app.tables.reading import Reading, Table
from dualpca.data import target_of
from dualpca.errors import ModelFileError


def load_model(path: str) -> tuple[Any, dict[str, Any]]:
    """Return a model and what its file says beside it."""
    try:
        model, metadata = dualpca.load(path, return_metadata=True)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}.") from error
    return model, metadata


def names_of(model: Any) -> list[str] | None:
    """Return the names of the columns that a model was fitted on, if it had them."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def features_of(model: Any) -> list[str]:
    """Return the names of a model's features, x0, x1, … if it has none."""
    return names_of(model) or [f"x{j}" for j in range(model.n_features_in_)]


def preparation_of(
    model: Any, metadata: dict[str, Any], table_columns: list[str], id_column: str | None
) -> Preparation:
    """Return how a table becomes rows of a model: as its file says, else by names or places."""
    table, names = metadata.get("table", {}), names_of(model)
    if "columns" in table:
        return of_table(table, features_of(model))
    others = tuple(name for name in table_columns if name != id_column)
    found = Preparation(others) if names is None else guessed(names, table_columns)
    units = of_table(table, features_of(model))
    return replace(units, names=found.names, levels=found.levels)


@dataclass(frozen=True)
class Session:
    """A model and a table for it."""

    model: Any
    prep: Preparation
    table: Table
    id_column: str | None
    sequence: str | None

    def rows(self, frame: pl.DataFrame) -> Any:
        """Return rows of the table as the model takes them."""
        found = self.prep.rows(frame)
        return found.to_numpy() if names_of(self.model) is None else found

    def framed(self, values: Any, names: list[str], frame: pl.DataFrame) -> pl.DataFrame:
        """Return a matrix as a table, with the row identifiers in front."""
        found = pl.DataFrame(np.asarray(values), schema=names, orient="row")
        return self.identified(found, frame)

    def identified(self, found: pl.DataFrame, frame: pl.DataFrame) -> pl.DataFrame:
        """Return a table with the row identifiers in front."""
        if self.id_column is None:
            return found
        return found.insert_column(0, frame[self.id_column])

    def lengths(self, frame: pl.DataFrame, lengths: str | None) -> list[int] | None:
        """Return the rows of every sequence; a hidden Markov model needs all rows at once."""
        if not self.table.whole:
            raise TableError(
                f"{type(self.model).__name__} needs whole sequences, and {self.table.path} is "
                "larger than memory is to take: raise --memory-limit."
            )
        return lengths_of(frame, self.sequence, lengths)

    def write(
        self, output: str, step: Callable[[pl.DataFrame], pl.DataFrame], each: int = 1
    ) -> dict[str, Any]:
        """Write what becomes of every batch (`each` rows of a row); all of it or nothing."""
        made: Iterator[pl.DataFrame] = (step(frame) for frame in self.table.frames())
        done = writing.write(made, output, self.table.dialect, each * self.table.height)
        return {"output": output, "rows": done.rows, "columns": done.columns}


def start(
    path: str,
    data: str,
    id_column: str | None,
    how: Reading,
    sequence: str | None = None,
    output: str | None = None,
) -> Session:
    """Open a model file and a table; the identifiers are those of the fit unless others are named.

    Identifiers of the fit are done without where the table does not have them, or the output
    cannot: NumPy's files hold numbers only.
    """
    model, metadata = load_model(path)
    known = metadata.get("table", {}).get("identifier")
    if output is not None and tables.kind_of(output) in ("npy", "npz"):
        known = None
    table = open_table(data, how, id_column or known, must=id_column is not None)
    if id_column is None and known in table.columns:
        id_column = known
    prep = preparation_of(model, metadata, table.columns, id_column)
    if sequence is None and metadata.get("sequence_column") in table.columns:
        sequence = metadata["sequence_column"]
    return Session(model, prep, table, id_column, sequence)


def method_of(model: Any, *names: str) -> Any:
    """Return the first of these methods that a model has."""
    for name in names:
        if hasattr(model, name):
            return getattr(model, name)
    raise TypeError(f"{type(model).__name__} cannot {names[0]}: fit another --model.")


def check_output(*outputs: str | None) -> None:
    """Refuse outputs that cannot be written, before any work."""
    for output in outputs:
        if output is not None and output != "-":
            if tables.kind_of(output) == tables.IMAGES:
                raise UsageError(f"{output} is a folder: give the name of a file.")
            target_of(output)
    named = [output for output in outputs if output is not None]
    if len(set(named)) < len(named):
        raise UsageError("two tables cannot go to one place: give different names.")
