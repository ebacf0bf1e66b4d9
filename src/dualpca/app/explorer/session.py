"""One model with one table, as the explorer shows them: everything is in memory from the start."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from dualpca.app.explorer.lenses import Lens, Matrix, MixedLens, lens_of
from dualpca.app.tables import columns
from dualpca.app.tables.columns import Preparation, level_words, of_table
from dualpca.app.tables.reading import parse_shape
from dualpca.app.tables.text import TableError, without
from dualpca.app.tables.times import TimeAxis
from dualpca.app.tables.writing import without_formulas

# --- neighbours: how a point lies among rows ---------------------------------------------------


class Closest(NamedTuple):
    """Rows prepared to find the closest one to another row, missing entries or not.

    Columns are in units of their spread. What counts is the expected squared distance
    ‖x_i − r‖² + v_i: a missing entry of x_i is filled, and v_i is the variance of what was filled.
    The mean over the entries that were measured would favour rows with few of them: close in two
    columns is easier than close in thirteen. A query costs one product of a matrix and a vector, so
    that dragging stays fast among 100,000 rows.
    """

    rows: Matrix  # (n, d), in units of the spread, from the middle; filled where missing
    squares: Matrix  # (n,)
    unsure: Matrix  # (n,), sum of the variances of filled entries; inf where nothing is known
    known: Any  # (n, d), what was measured; None if everything was
    middle: Matrix  # (d,)
    spread: Matrix  # (d,)
    ids: Sequence[str] | None

    @classmethod
    def of(
        cls,
        X: Matrix,
        spread: Matrix,
        filled: tuple[Matrix, Matrix] | None = None,
        ids: Sequence[str] | None = None,
    ) -> Closest:
        """Prepare rows.

        Parameters
        ----------
        X : array of shape (n, d)
            NaN where an entry is missing.
        spread : array of shape (d,)
        filled : pair of arrays of shape (n, d), optional
            X with missing entries filled, and their standard deviations; by default averages of
            the columns, with the columns' spread.
        ids : sequence of str, optional
            Names of rows: of rows at the same distance, the first by name is closest.
        """
        known = np.isfinite(X)
        counts = known.sum(axis=0)
        middle = np.where(known, X, 0.0).sum(axis=0) / np.maximum(counts, 1)
        values, std = (X, np.broadcast_to(spread, X.shape)) if filled is None else filled
        rows = (np.where(known, X, middle if filled is None else values) - middle) / spread
        squares = np.einsum("ij,ij->i", rows, rows)
        if known.all():
            return cls(rows, squares, np.zeros(len(X)), None, middle, spread, ids)
        unsure = np.sum(np.where(known, 0.0, std / spread) ** 2, axis=1)
        unsure = np.where(known.any(axis=1), unsure, np.inf)
        return cls(rows, squares, unsure, known, middle, spread, ids)

    def to(self, row: Matrix) -> tuple[int, float]:
        """Return the closest row, and its root mean squared difference in what it measured.

        Examples
        --------
        >>> X = np.array([[0.0, 0.0], [3.0, 8.0], [3.0, np.nan]])
        >>> Closest.of(X, np.ones(2)).to(np.array([3.0, 8.0]))
        (1, 0.0)
        """
        r = (row - self.middle) / self.spread
        gap = self.squares - 2 * (self.rows @ r) + self.unsure
        i = int(np.argmin(gap))
        # the sum above loses digits: rows that are as close are compared again
        slack = 1e-12 * (float(r @ r) + self.squares[i]) * len(r)
        near = np.flatnonzero(gap <= gap[i] + slack)
        exact = np.sum((self.rows[near] - r) ** 2, axis=1) + self.unsure[near]
        ties = near[exact <= exact.min() * (1 + 1e-12)]
        i = int(min(ties, key=self._order))
        apart = self.rows[i] - r
        known = apart if self.known is None else apart[self.known[i]]
        return i, float(np.sqrt(np.mean(known**2))) if known.size else 0.0

    def _order(self, i: int) -> tuple[int, int, str]:
        """Return what rows are ordered by: their names, numbers by their value."""
        name = str(i) if self.ids is None else self.ids[i]
        return (0, int(name), "") if name.isdecimal() else (1, 0, name)


class Places(NamedTuple):
    """Latents as distances from their centre, each in units of its standard deviation."""

    centre: Matrix  # (q,)
    unit: Matrix  # (q,)
    distances: Matrix  # (n,), squared and sorted

    @classmethod
    def of(cls, Z: Matrix) -> Places | None:
        """Prepare latents; None for a single row."""
        if len(Z) < 2:
            return None
        deviation = Z.std(axis=0)
        unit, centre = np.where(deviation > 0, deviation, 1.0), Z.mean(axis=0)
        return cls(centre, unit, np.sort(np.sum(((Z - centre) / unit) ** 2, axis=1)))

    def farther(self, z: Matrix) -> float:
        """Return the share of rows that are farther out than z.

        Examples
        --------
        >>> Places.of(np.array([[-1.0], [0.0], [1.0], [4.0]])).farther(np.array([0.5]))
        0.75
        """
        own = float(np.sum(((z - self.centre) / self.unit) ** 2))
        return 1 - float(np.searchsorted(self.distances, own, side="right")) / len(self.distances)


# --- the session -------------------------------------------------------------------------------

FAR = 1000.0
"""Multiple of the furthest row's distance up to which latents may be asked for."""

MOST_FILLED = 50_000
"""Most rows with missing entries that the model fills to find the closest row."""

BLOCK = 2000
"""Rows that are reconstructed at a time."""


class Units(NamedTuple):
    """How columns of the table become features of the model: (x − shift) / scale."""

    shift: Any = 0.0  # (d,) or 0
    scale: Any = 1.0  # (d,) or 1

    def into(self, X: Matrix) -> Matrix:
        """Return rows of the table as the model expects them."""
        return np.asarray((X - self.shift) / self.scale)

    def out(self, X: Matrix) -> Matrix:
        """Return the model's rows in the units of the table."""
        return np.asarray(X * self.scale + self.shift)


class Shape(NamedTuple):
    """What a row is: bars, a curve, or an image of height × width × channels."""

    kind: str = "bars"
    size: tuple[int, ...] = ()


AS_IT_IS = Units()
BARS = Shape()


def _deviations(X: Matrix) -> Matrix:
    """Return the standard deviations of columns with missing entries, (d,)."""
    known = np.isfinite(X)
    count = np.maximum(known.sum(axis=0), 1)
    middle = np.where(known, X, 0.0).sum(axis=0) / count
    squares = np.where(known, X - middle, 0.0) ** 2
    return np.asarray(np.sqrt(squares.sum(axis=0) / count))


def _or_one(deviations: Matrix) -> Matrix:
    """Return deviations to divide by: 1 where a column is constant."""
    return np.where(deviations > 0, deviations, 1.0)


def shape_of(d: int, image: str | None, curve: bool) -> Shape:
    """Return how rows of d features are drawn.

    Examples
    --------
    >>> shape_of(64, "8x8", False), shape_of(5, None, True)
    (Shape(kind='image', size=(8, 8)), Shape(kind='curve', size=()))
    """
    if image is not None and curve:
        raise TableError("--image and --curve exclude each other.")
    if image is None:
        return Shape("curve" if curve else "bars")
    size = parse_shape(image)
    if math.prod(size) != d or size[2:] not in ((), (1,), (3,)):
        raise TableError(f"--image {image} has {math.prod(size)} values, but rows have {d}.")
    return Shape("image", size[:2] if size[2:] == (1,) else size)


MOST_JUDGED = 200_000
"""Most rows whose T² and SPE are computed at the start."""

TOLD = 0.95
"""Level at which T² and SPE together have their limits."""


class Distance(NamedTuple):
    """T² or SPE of every row: as it is, or in multiples of each row's own limit."""

    name: str
    values: Matrix  # (n,), NaN where a row is not judged
    limit: float

    @classmethod
    def of(cls, name: str, values: Matrix, limits: Matrix) -> Distance | None:
        """Return the distance as it is if the limit is the same for all rows; None without one.

        Examples
        --------
        >>> Distance.of("SPE", np.array([1.0, 3.0]), np.array([2.0, 2.0])).limit
        2.0
        >>> Distance.of("SPE", np.array([1.0, 3.0]), np.array([2.0, 4.0])).values.tolist()
        [0.5, 0.75]
        """
        usable = np.isfinite(limits) & (limits > 0) & np.isfinite(values)
        if not usable.any():
            return None
        kept = limits[usable]
        if np.ptp(kept) <= 1e-9 * kept.max():
            return cls(name, np.where(usable, values, np.nan), float(kept[0]))
        share = np.where(usable, values / np.where(usable, limits, 1.0), np.nan)
        return cls(f"{name} / limit", share, 1.0)


@dataclass
class Session:
    """What the server knows: a lens on the model, rows, and their names.

    Parameters
    ----------
    lens : Lens
    X : array of shape (n, d), optional
        Rows as the model expects them.
    frame : polars.DataFrame, optional
        The table that the rows came from, with all of its columns.
    features : sequence of str
    ids : sequence of str, optional
    shape : Shape
    units : Units
    """

    lens: Lens
    X: Matrix | None
    frame: pl.DataFrame | None
    features: Sequence[str]
    ids: Sequence[str] | None = None
    shape: Shape = BARS
    units: Units = AS_IT_IS
    source: str = "no table"
    time: TimeAxis | None = None
    color: str | None = None  # the column to colour rows by at first
    defuse: bool = False  # formulas become text in what is exported
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Compute the latents of the rows, and prepare what would be slow later."""
        rows = range(len(self.lens.sizes))
        self.Z = [self._place(k) for k in rows]
        self.lens.prepare(self.Z[0])
        self._own = self._shares()
        self._reach = [self._furthest(k) for k in rows]
        self._places = [Places.of(Z) for Z in self.Z]
        self.distances = self._distances()
        self.spread = self._spread()
        self._table = None
        if self.X is not None:
            near = self.lens.comparable(self.X)
            same = near is self.X
            spread = self.spread if same else _or_one(_deviations(near))
            self._table = Closest.of(near, spread, self._filled(self.X) if same else None, self.ids)

    def _distances(self) -> dict[str, Distance]:
        """Return T² and SPE of every row, of models that have them; none of very many rows."""
        if self.X is None or "limits" in self.lens.reasons or self.n > MOST_JUDGED:
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of training rows that resemble each other
            try:
                found = self.lens.outliers(self.X, TOLD)
            except ValueError as error:
                self.lens.reasons["limits"] = str(error)
                return {}
        parts = (("T²", found.t2, found.t2_limit), ("SPE", found.spe, found.spe_limit))
        made = {name: Distance.of(name, *map(np.asarray, both)) for name, *both in parts}
        return {name: one for name, one in made.items() if one is not None}

    def _spread(self) -> Matrix:
        """Return the standard deviation of every column, (d,), in the units of the model.

        It is 1 where a column does not vary. Pixels and points of a curve are measured in the same
        units, and so have one spread together.
        """
        if self.X is None:
            return np.ones(len(self.features))
        found = _deviations(self.X)
        if self.shape.kind != "bars":
            found = np.full(len(found), np.sqrt(np.mean((found * self.units.scale) ** 2)))
            found = found / self.units.scale
        return _or_one(found)

    def _filled(self, X: Matrix) -> tuple[Matrix, Matrix] | None:
        """Return rows with missing entries filled by the model, and standard deviations."""
        partial = np.isnan(X).any(axis=1)
        if "impute" in self.lens.reasons or not 0 < partial.sum() <= MOST_FILLED:
            return None
        values, std = X.copy(), np.zeros(X.shape)
        values[partial], std[partial] = self.lens.impute(X[partial], fixed=True)
        return values, std

    def _place(self, component: int) -> Matrix:
        if self.X is None:
            return np.zeros((0, self.lens.sizes[component]))
        Z = self.lens.latents(self.X, component)
        odd = np.flatnonzero(~np.isfinite(Z).all(axis=1))
        if odd.size:
            raise TableError(
                f"the latents of {self._named(odd)} are not finite: check the table for huge "
                "values there."
            )
        return Z

    def _shares(self) -> list[Any]:
        """Return the rows of each component of a mixture; all rows for other models."""
        groups = None if self.X is None else self.lens.groups(self.X)
        if groups is None:
            return [slice(None) for _ in self.Z]
        own = [self.lens.members(groups, k) for k in range(len(self.Z))]
        return [rows if rows.sum() > 1 else slice(None) for rows in own]

    def _furthest(self, component: int) -> Matrix:
        Z, prior = self.Z[component], self.lens.prior(component)
        return np.maximum(3 * prior, np.abs(Z).max(axis=0) if len(Z) else 0.0)

    @property
    def n(self) -> int:
        """Number of rows."""
        return 0 if self.X is None else len(self.X)

    @property
    def limit(self) -> float:
        """Largest absolute latent that may be asked for."""
        return FAR * max(float(np.max(reach, initial=1e-300)) for reach in self._reach)

    def ranges(self, component: int) -> tuple[list[float], list[float]]:
        """Return the range of latents: of the rows, or three standard deviations."""
        Z = self.Z[component][self._own[component]]
        if len(Z):
            return Z.min(axis=0).tolist(), Z.max(axis=0).tolist()
        reach = self._reach[component]
        return (-reach).tolist(), reach.tolist()

    # --- answers ---------------------------------------------------------------------------

    def latent(self, z: Sequence[float], component: int) -> Matrix:
        """Return one latent point as a matrix of one row, checked."""
        q = self.lens.sizes[component]
        if len(z) != q:
            raise TableError(f"component {component + 1} has {q} latents, got {len(z)}.")
        return np.asarray([z], dtype=float)

    def decode(self, z: Sequence[float], component: int, way: str | None) -> dict[str, Any]:
        """Return the row that a latent point represents, its uncertainty, and how usual it is."""
        Z = self.latent(z, component)
        with self.lock:
            rows = self.lens.decode(Z, component, way)
            std = None
            if "spread" not in self.lens.reasons:
                std = self.units.scale * self.lens.spread(Z[0], component, way)
            found = {"values": self.units.out(rows)[0], "std": std}
            if "density" not in self.lens.reasons:
                density = float(self.lens.density(rows, Z)[0])
                found["log_density"] = density - self._log_scale()
        return found | {"farther": self._farther(Z[0], component), **self.nearest(rows)[0]}

    def _log_scale(self) -> float:
        """Return what a log-density of rows loses in the units of the table: Σ log scale."""
        if self.lens.density_of != "rows":
            return 0.0
        return float(np.sum(np.log(np.broadcast_to(self.units.scale, (len(self.features),)))))

    def _farther(self, z: Matrix, component: int) -> float | None:
        """Return the share of rows that are farther from the centre of the latents."""
        places = self._places[component]
        return None if places is None else places.farther(z)

    def nearest(self, rows: Matrix) -> list[dict[str, Any]]:
        """Return the closest row of the table to each row, its name and its difference.

        Differences are in standard deviations of the columns.
        """
        if self._table is None:
            return [{"nearest": None, "nearest_id": None, "distance": None} for _ in rows]
        found = [self._table.to(row) for row in self.lens.comparable(rows)]
        return [
            {"nearest": i, "nearest_id": self.identifier(i), "distance": distance}
            for i, distance in found
        ]

    def path(
        self, start: Sequence[float], end: Sequence[float], steps: int, component: int, way: Any
    ) -> dict[str, Any]:
        """Return rows along the straight line between two latent points."""
        a, b = self.latent(start, component), self.latent(end, component)
        Z = a + np.linspace(0, 1, steps)[:, None] * (b - a)
        with self.lock:
            rows = self.lens.decode(Z, component, way)
        return {"latents": Z, "values": self.units.out(rows)}

    def errors(self, index: Sequence[int]) -> Matrix:
        """Return the root mean squared difference of rows and reconstructions, (m,).

        Each column is measured in its own standard deviation, so that none counts more because of
        its unit.
        """
        parts = [self._mean(gap, 1) for gap in self._gaps(index)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def column_errors(self, index: Sequence[int]) -> Matrix:
        """Return the root mean squared difference in every column, in its own deviations, (d,)."""
        parts = list(self._gaps(index))
        return self._mean(np.concatenate(parts), 0) if parts else np.zeros(len(self.features))

    @staticmethod
    def _mean(gap: Matrix, axis: int) -> Matrix:
        known = np.isfinite(gap)
        total = np.sum(np.where(known, gap, 0.0) ** 2, axis=axis)
        return np.asarray(np.sqrt(total / np.maximum(known.sum(axis=axis), 1)))

    def _gaps(self, index: Sequence[int]) -> Iterator[Matrix]:
        """Yield differences of rows and reconstructions in standard deviations, by blocks."""
        X = self.rows(index)
        for start in range(0, len(X), BLOCK):
            block = X[start : start + BLOCK]
            with self.lock:
                again = self.lens.reconstruct(block)
            yield (again - block) / self.spread

    def rows(self, index: Sequence[int]) -> Matrix:
        """Return some rows, as the model expects them."""
        if self.X is None:
            raise TableError("no table was given: start with `dualpca explore MODEL TABLE`.")
        return np.asarray(self.X[np.asarray(index, dtype=int)])

    def identifier(self, i: int) -> str:
        """Return the name of a row: its identifier, or its number from 1."""
        return str(i + 1) if self.ids is None else str(self.ids[i]) or f"(no name, {i + 1})"

    def _named(self, index: Any) -> str:
        """Return some rows by their names, for messages."""
        return named_rows_of(self.ids, index)

    def impute(self, row: int, hidden: Sequence[int]) -> dict[str, Any]:
        """Return a row with entries hidden and imputed, with standard deviations."""
        truth = self.rows([row])
        if isinstance(self.lens, MixedLens):
            with self.lock:
                values, low, high = self.lens.ranges(row, hidden)
            found = {"values": values[0], "std": None, "low": low[0], "high": high[0]}
            return {"id": self.identifier(row), "truth": truth[0], **found}
        partial = truth.copy()
        partial[0, np.asarray(hidden, dtype=int)] = np.nan
        with self.lock:
            filled, std = self.lens.impute(partial)
        return {
            "id": self.identifier(row),
            "truth": self.units.out(truth)[0],
            "values": self.units.out(filled)[0],
            "std": (std * self.units.scale)[0],
        }

    def sample(self, count: int, seed: int, component: int) -> dict[str, Any]:
        """Return draws from the model beside the closest rows of the table."""
        with self.lock:
            rows = self.lens.sample(count, seed)
            Z = self.lens.latents(rows, component)
        close = self.nearest(rows)
        beside = [None if c["nearest"] is None else self.rows([c["nearest"]])[0] for c in close]
        return {
            "values": self.units.out(rows),
            "latents": Z,
            "nearest": [c["nearest"] for c in close],
            "nearest_ids": [c["nearest_id"] for c in close],
            "distance": [c["distance"] for c in close],
            "beside": [None if x is None else self.units.out(x) for x in beside],
        }

    def scale(self) -> Matrix:
        """Return minimum, mean and maximum of every feature, (3, d), for fixed axes."""
        if self.X is not None:
            rows = self.units.out(self.X)
        elif "decode" not in self.lens.reasons:
            ends = np.diag(2 * self.lens.prior())
            rows = self.units.out(self.lens.decode(np.vstack([ends, -ends])))
        else:
            rows = np.zeros((1, len(self.features)))
        known = np.isfinite(rows)
        count = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, rows, 0.0).sum(axis=0) / count
        low = np.where(known, rows, np.inf).min(axis=0)
        high = np.where(known, rows, -np.inf).max(axis=0)
        seen = known.any(axis=0)
        return np.stack([np.where(seen, low, 0.0), mean, np.where(seen, high, 0.0)])


# --- columns to colour by ----------------------------------------------------------------------

LEVELS = 24
"""Most categories that colours and shapes together can distinguish."""

WHOLE = 12
"""Most values of a column of whole numbers that is treated as categories."""

SLOW = 20_000
"""Largest number of rows for which reconstruction errors are offered as colours."""


class Column(NamedTuple):
    """A column: its kind ('category', 'number', 'time' or, with the reason, 'none') and origin.

    Beyond `limit` a row is unusual.
    """

    name: str
    kind: str
    levels: list[str]
    origin: str  # 'table', 'feature' or 'model'
    reason: str = ""
    limit: float | None = None


def columns_of(session: Session) -> list[Column]:
    """Return the columns that points can be coloured by: those of the model, then the table."""
    found = []
    if session.n and len(session.lens.sizes) > 1:
        tree = session.lens.parents[1:] != [None] * (len(session.lens.sizes) - 1)
        name = "leaf" if tree else "component"
        found.append(Column(name, "category", session.lens.group_names, "model"))
    if session.n and "error" not in session.lens.reasons and session.n <= SLOW:
        found.append(Column("reconstruction error", "number", [], "model"))
    for one in session.distances.values():
        found.append(Column(one.name, "number", [], "model", "", one.limit))
    if session.frame is None:
        return found
    features = set(session.features)
    if session.time is not None and session.time.name in session.frame.columns:
        found.append(Column(session.time.name, "time", [], "table"))
    timed = {one.name for one in found if one.kind == "time"}
    names = [name for name in session.frame.columns if name not in timed]
    rest = [_describe(session.frame[name], features) for name in names]
    return found + sorted(rest, key=lambda column: column.origin == "feature")


def _describe(column: pl.Series, features: set[str]) -> Column:
    origin = "feature" if column.name in features else "table"
    kind = column.dtype
    whole = kind.is_integer() and column.n_unique() <= WHOLE and origin == "table"
    if kind.is_numeric() and not whole:
        return Column(column.name, "number", [], origin)
    if kind.is_temporal() or kind.is_nested():
        return Column(
            column.name,
            "none",
            [],
            origin,
            f"{column.name} holds {kind}, which cannot be coloured by.",
        )
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
    if column.kind == "time" and session.time is not None:
        return (session.time.values - np.nanmin(session.time.values)).astype(np.float32)
    if column.origin == "model":
        if column.limit is not None:
            one = next(one for one in session.distances.values() if one.name == column.name)
            return one.values.astype(np.float32)
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


# --- rows as tables ----------------------------------------------------------------------------

WIDE = 12
"""Most columns of a table on the page; columns that are not features come first."""


WORST = 5
"""Columns whose errors are listed."""

MANY = 5000
"""Most rows that a summary of errors uses."""


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
    """Return mean and largest reconstruction error of rows, or of some if there are many.

    And the columns with the largest errors; all in standard deviations of the columns.
    """
    some = index[:: -(-len(index) // MANY)]
    errors, by_column = session.errors(some), session.column_errors(some)
    worst = np.argsort(-by_column, kind="stable")[:WORST]
    return {
        "count": len(some),
        "mean": float(errors.mean()),
        "largest": float(errors.max()),
        "columns": [session.features[j] for j in worst],
        "by_column": by_column[worst],
    }


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
    """Return rows with all their columns, latents and errors, as a table."""
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
    found = pl.concat([first, pl.DataFrame(named), rest], how="horizontal")
    return without_formulas(found) if session.defuse else found


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


# --- from a model and a table to a session -----------------------------------------------------

MOST_POINTS = 1_000_000


def open_session(
    model: Any,
    frame: pl.DataFrame | None,
    metadata: Mapping[str, Any] | None = None,
    *,
    image: str | None = None,
    curve: bool = False,
    id_column: str | None = None,
    source: str = "no table",
    time: TimeAxis | None = None,
    color: str | None = None,
    defuse: bool = False,
) -> Session:
    """Return a session for a model and a table; kernel models have training points without one.

    Parameters
    ----------
    model : estimator
    frame : polars.DataFrame, optional
    metadata : mapping, optional
        Metadata of the model file; its `table` has units, names and image shape.
    image : str, optional
        Height x width (x 3), if rows are images.
    curve : bool
        Whether rows are curves.
    id_column : str, optional
    source : str
        Name of the table.
    time : TimeAxis, optional
        When the rows were measured.
    color : str, optional
        The column to colour rows by at first.
    defuse : bool
        Whether formulas become text for spreadsheets too, in what is exported.
    """
    lens, table = lens_of(model), (metadata or {}).get("table", {})
    features = _features(lens, table)
    units = Units(np.asarray(table.get("means", 0.0)), np.asarray(table.get("scales", 1.0)))
    if id_column is None and frame is not None and table.get("identifier") in frame.columns:
        id_column = table["identifier"]
    if frame is not None:
        keep = () if id_column is None else (id_column,)
        frame = without(frame, table.get("missing", ()), keep)
    ids = None if frame is None or id_column is None else _identifiers(frame, id_column)
    if isinstance(lens, MixedLens) and frame is not None:
        prep = Preparation(tuple(features), level_words(lens.model), kinds={}, identifier=id_column)
        X: Matrix | None = lens.read(prep.rows(frame, 0))
    else:
        X, source = _rows(lens, frame, features, id_column, source, table.get("dropped", {}))
    _check(lens, X)
    if X is not None and frame is not None:
        X = units.into(X)
    if image is None and not curve and "image_shape" in table:
        image = "x".join(str(side) for side in table["image_shape"])
    _check_entries(lens, X, features, ids)
    shape = shape_of(len(features), image, curve)
    rest = None if frame is None or id_column is None else frame.drop(id_column)
    others = frame if rest is None else rest
    given = (lens, X, others, features, ids, shape, units, source, time, color)
    return Session(*given, defuse=defuse)


def _features(lens: Lens, table: Mapping[str, Any]) -> Sequence[str]:
    """Return the names of features: as fitted, as in the file, or x0, x1, …."""
    names = getattr(lens.model, "feature_names_in_", None)
    if names is not None:
        return [str(name) for name in names]
    if "columns" not in table:
        return [f"x{j}" for j in range(int(lens.model.n_features_in_))]
    return of_table(table, ()).features


def _identifiers(frame: pl.DataFrame, name: str) -> list[str]:
    if name not in frame.columns:
        raise TableError(f"--id {name}: no such column; there are {frame.columns[:10]}.")
    return ["" if value is None else str(value) for value in frame[name]]


def _rows(
    lens: Lens,
    frame: Any,
    features: Sequence[str],
    id_column: str | None,
    source: str,
    dropped: Mapping[str, str],
) -> tuple[Matrix | None, str]:
    if frame is None:
        kept = getattr(lens.model, "X_fit_", None)
        if kept is None or getattr(kept, "ndim", 0) != 2 or not hasattr(kept, "dtype"):
            return None, source
        return np.asarray(kept, dtype=float), "the model's training points"
    if hasattr(lens.model, "feature_names_in_") or set(features) <= set(frame.columns):
        return columns.matching(frame, features, dropped).to_numpy(), source
    rest = frame if id_column is None else frame.drop(id_column)
    return columns.numbers(rest, rest.columns).to_numpy(), source


FEW = 3
"""Rows and columns that a message names."""


def named_rows_of(ids: Sequence[str] | None, index: Any) -> str:
    """Return some rows by their names, for messages.

    Examples
    --------
    >>> named_rows_of(["a", "b"], [1]), named_rows_of(None, range(9))
    ('row b', 'rows 1, 2, 3 and 6 more')
    """
    names = [str(i + 1) if ids is None else str(ids[i]) for i in index[:FEW]]
    more = f" and {len(index) - FEW} more" if len(index) > FEW else ""
    return f"row{'s' if len(index) > 1 else ''} {', '.join(names)}{more}"


def _check(lens: Lens, X: Matrix | None) -> None:
    """Refuse rows that the model cannot handle, before a browser opens."""
    if X is None:
        return
    if len(X) > MOST_POINTS:
        raise TableError(f"{len(X)} rows are more than the limit of {MOST_POINTS}: use fewer.")
    d = int(lens.model.n_features_in_)
    if X.shape[1] != d:
        raise TableError(f"the model has {d} features, the table {X.shape[1]} columns.")


def _check_entries(
    lens: Lens, X: Matrix | None, features: Sequence[str], ids: Sequence[str] | None
) -> None:
    """Refuse infinite entries, and missing ones if the model does not accept them."""
    if X is None:
        return
    infinite = np.isinf(X)
    if infinite.any():
        columns = [repr(features[j]) for j in np.flatnonzero(infinite.any(axis=0))[:FEW]]
        rows = named_rows_of(ids, np.flatnonzero(infinite.any(axis=1)))
        raise TableError(
            f"the table contains infinite values ({', '.join(columns)}, {rows}): models need "
            "finite numbers."
        )
    missing = np.isnan(X)
    partial = np.flatnonzero(missing.any(axis=1))
    if partial.size:
        try:
            lens.latents(X[partial[:1]])
        except ValueError:
            columns = [repr(features[j]) for j in np.flatnonzero(missing.any(axis=0))[:FEW]]
            count = "1 row has" if partial.size == 1 else f"{partial.size} rows have"
            raise TableError(
                f"{count} missing entries, which {lens.name} does not accept "
                f"({named_rows_of(ids, partial)}; first in {', '.join(columns)}). Drop them, or "
                "explore a model that does (ppca, bpca, fa, mixture)."
            ) from None
