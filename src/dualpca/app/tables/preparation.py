"""How a table becomes the rows of a model, and how rows become a table again.

What a model file keeps of it is the entry `table` of its metadata (docs/model-files.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from dualpca.app.tables import columns

Values = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Preparation:
    """The columns that a model takes from a table, and their units.

    A row of the model is (feature − mean) / scale; features are the columns, those with levels
    replaced by one column of zeros and ones a level.

    Examples
    --------
    >>> frame = pl.DataFrame({"kind": ["u", "v"], "a": [1.0, 3.0]})
    >>> prepared = Preparation(("a", "kind"), {"kind": ("u", "v")}).standardized([frame])
    >>> prepared.rows(frame).rows()
    [(-1.0, 1.0, -1.0), (1.0, -1.0, 1.0)]
    >>> prepared.undone(np.zeros((1, 3))).tolist()
    [[2.0, 0.5, 0.5]]
    """

    names: tuple[str, ...]
    levels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    means: Values | None = None  # (d,)
    scales: Values | None = None  # (d,)
    image_shape: tuple[int, ...] | None = None
    identifier: str | None = None

    @property
    def features(self) -> list[str]:
        """Return what the model's features are called."""
        found: list[str] = []
        for name in self.names:
            known = self.levels.get(name)
            found += [name] if known is None else [f"{name}={level}" for level in known]
        return found

    def rows(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return a table's rows as the model takes them, float64, NaN where nothing is known."""
        found = columns.numbers(frame, self.names, levels=self.levels)
        if self.means is None or self.scales is None:
            return found
        values = (found.to_numpy() - self.means) / self.scales
        return pl.DataFrame(values, schema=self.features, orient="row")

    def undone(self, values: Any) -> Values:
        """Return rows of the model (n, d) in the table's units."""
        found = np.asarray(values)
        if self.means is None or self.scales is None:
            return found
        return found * self.scales + self.means

    def undone_spread(self, spread: Any) -> Values:
        """Return standard deviations (n, d) in the table's units."""
        return np.asarray(spread) * (1.0 if self.scales is None else self.scales)

    def undone_density(self, log_density: Any, rows: Any) -> Values:
        """Return log-densities of the model's rows in the table's units: minus Σ log scale.

        Only entries that were observed count.
        """
        found = np.asarray(log_density)
        if self.scales is None:
            return found
        return np.asarray(found - ~np.isnan(np.asarray(rows)) @ np.log(self.scales))

    def standardized(self, frames: Iterable[pl.DataFrame]) -> Preparation:
        """Return this with the means and standard deviations of tables; of constants, scale 1.

        Batches are merged pairwise (Chan, Golub and LeVeque, 1979), so one pass is exact.
        """
        plain = replace(self, means=None, scales=None)
        n, mean, squares = np.zeros(1), np.zeros(1), np.zeros(1)
        for frame in frames:
            X = plain.rows(frame).to_numpy()
            seen = ~np.isnan(X)
            count = seen.sum(axis=0)
            new = np.where(seen, X, 0).sum(axis=0) / np.maximum(count, 1)
            delta, total = new - mean, n + count
            share = count / np.maximum(total, 1)
            squares = squares + (np.where(seen, X - new, 0) ** 2).sum(axis=0)
            squares = squares + delta**2 * n * share
            n, mean = total, mean + delta * share
        scale = np.sqrt(squares / np.maximum(n, 1))
        constant = scale <= 1e-14 * np.abs(mean)
        return replace(self, means=mean, scales=np.where(constant, 1.0, scale))

    def table(self) -> dict[str, Any]:
        """Return it as a model file keeps it."""
        found: dict[str, Any] = {"columns": list(self.names)}
        if self.levels:
            found["levels"] = {name: list(known) for name, known in self.levels.items()}
        if self.means is not None and self.scales is not None:
            found |= {"means": self.means.tolist(), "scales": self.scales.tolist()}
        if self.image_shape is not None:
            found["image_shape"] = list(self.image_shape)
        if self.identifier is not None:
            found["identifier"] = self.identifier
        return found


def of_table(table: Mapping[str, Any], names: Sequence[str]) -> Preparation:
    """Return what a model file says of its table.

    Parameters
    ----------
    table : mapping
        Checked by `dualpca.files.metadata`.
    names : sequence of str
        Of the model's features; taken for columns where the file names none.
    """
    d = len(names)
    means, scales = table.get("means"), table.get("scales")
    scaled = means is not None or scales is not None
    shape = table.get("image_shape")
    return Preparation(
        tuple(table.get("columns", names)),
        table.get("levels", {}),
        np.array(means if means is not None else np.zeros(d), dtype=float) if scaled else None,
        np.array(scales if scales is not None else np.ones(d), dtype=float) if scaled else None,
        None if shape is None else tuple(shape),
        table.get("identifier"),
    )


def guessed(names: Sequence[str], table_columns: Sequence[str]) -> Preparation:
    """Return how a table becomes rows of a model whose file says nothing of it."""
    found, levels = columns.origins(names, table_columns)
    return Preparation(tuple(found), levels)
