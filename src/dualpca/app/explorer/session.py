"""One model with one table, as the explorer shows them: everything is in memory from the start."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from dualpca.app.explorer.lenses import Lens, Matrix, lens_of
from dualpca.app.tables import columns
from dualpca.app.tables.columns import Preparation
from dualpca.app.tables.reading import parse_shape
from dualpca.app.tables.text import TableError

# --- neighbours: how a point lies among rows ---------------------------------------------------


class Closest(NamedTuple):
    """Rows with missing entries, prepared to find the closest one to another row.

    The mean squared difference to the observed entries of row i is
    (a_i − 2 x_i·r + m_i·r²) / |m_i| with x_i zero where an entry is missing, m_i its mask and
    a_i = x_i·x_i. A query costs one product of a matrix and a vector, so that dragging stays fast
    among 100,000 rows.
    """

    rows: Matrix  # (n, d), 0 where missing
    squares: Matrix  # (n,)
    mask: Matrix | None  # (n, d), if entries are missing
    counts: Matrix  # (n,)
    middle: Matrix  # (d,), subtracted from all rows so that squares stay small

    @classmethod
    def of(cls, X: Matrix) -> Closest:
        """Prepare rows."""
        known = np.isfinite(X)
        counts = known.sum(axis=0)
        middle = np.where(known, X, 0.0).sum(axis=0) / np.maximum(counts, 1)
        rows = np.where(known, X - middle, 0.0)
        mask = None if known.all() else known.astype(float)
        squares = np.einsum("ij,ij->i", rows, rows)
        return cls(rows, squares, mask, known.sum(axis=1).astype(float), middle)

    def to(self, row: Matrix) -> tuple[int, float]:
        """Return the closest row and its root mean squared difference.

        Examples
        --------
        >>> Closest.of(np.array([[0.0, 0.0], [3.0, np.nan]])).to(np.array([3.0, 9.0]))
        (1, 0.0)
        """
        r = row - self.middle
        other = r @ r if self.mask is None else self.mask @ (r * r)
        gap = (self.squares - 2 * (self.rows @ r) + other) / np.maximum(self.counts, 1)
        i = int(np.argmin(np.where(self.counts > 0, gap, np.inf)))
        known = slice(None) if self.mask is None else self.mask[i] > 0
        exact = (self.rows[i] - r)[known]  # the sum above loses digits where rows are equal
        return i, float(np.sqrt(np.mean(exact**2))) if exact.size else 0.0


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
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Compute the latents of the rows, and prepare what would be slow later."""
        rows = range(len(self.lens.sizes))
        self.Z = [self._place(k) for k in rows]
        self.lens.prepare(self.Z[0])
        self._own = self._shares()
        self._reach = [self._furthest(k) for k in rows]
        self._places = [Places.of(Z) for Z in self.Z]
        self._table = None if self.X is None else Closest.of(self.X)

    def _place(self, component: int) -> Matrix:
        if self.X is None:
            return np.zeros((0, self.lens.sizes[component]))
        Z = self.lens.latents(self.X, component)
        if not np.isfinite(Z).all():
            raise TableError(
                "some rows have latents that are not finite: check the table for huge values."
            )
        return Z

    def _shares(self) -> list[Any]:
        """Return the rows of each component of a mixture; all rows for other models."""
        groups = None if self.X is None else self.lens.groups(self.X)
        if groups is None:
            return [slice(None) for _ in self.Z]
        own = [groups == k for k in range(len(self.Z))]
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
                found["log_density"] = float(self.lens.density(rows, Z)[0])
        return found | {"farther": self._farther(Z[0], component), **self.nearest(rows)[0]}

    def _farther(self, z: Matrix, component: int) -> float | None:
        """Return the share of rows that are farther from the centre of the latents."""
        places = self._places[component]
        return None if places is None else places.farther(z)

    def nearest(self, rows: Matrix) -> list[dict[str, Any]]:
        """Return the closest row of the table to each row, by its observed entries."""
        if self._table is None:
            return [{"nearest": None, "distance": None} for _ in rows]
        found = [self._table.to(row) for row in rows]
        return [{"nearest": i, "distance": distance} for i, distance in found]

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
        """Return the root mean squared difference of rows and reconstructions, (m,)."""
        X = self.rows(index)
        parts = []
        for start in range(0, len(X), BLOCK):
            block = X[start : start + BLOCK]
            with self.lock:
                gap = (self.lens.reconstruct(block) - block) * self.units.scale
            known = np.isfinite(gap)
            total = np.sum(np.where(known, gap, 0.0) ** 2, axis=1)
            parts.append(np.sqrt(total / np.maximum(known.sum(axis=1), 1)))
        return np.concatenate(parts) if parts else np.zeros(0)

    def rows(self, index: Sequence[int]) -> Matrix:
        """Return some rows, as the model expects them."""
        if self.X is None:
            raise TableError("no table was given: start with `dualpca explore MODEL TABLE`.")
        return np.asarray(self.X[np.asarray(index, dtype=int)])

    def identifier(self, i: int) -> str:
        """Return the name of a row: its identifier, or its number from 1."""
        return str(i + 1) if self.ids is None else str(self.ids[i])

    def impute(self, row: int, hidden: Sequence[int]) -> dict[str, Any]:
        """Return a row with entries hidden and imputed, with standard deviations."""
        truth = self.rows([row])
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
    """A column: its kind ('category', 'number' or, with the reason, 'none') and origin."""

    name: str
    kind: str
    levels: list[str]
    origin: str  # 'table', 'feature' or 'model'
    reason: str = ""


def columns_of(session: Session) -> list[Column]:
    """Return the columns that points can be coloured by: those of the model, then the table."""
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


# --- rows as tables ----------------------------------------------------------------------------

WIDE = 12
"""Most columns of a table on the page; columns that are not features come first."""


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
    """Return mean and largest reconstruction error of rows, or of some if there are many."""
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
    return pl.concat([first, pl.DataFrame(named), rest], how="horizontal")


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
    """
    lens, table = lens_of(model), (metadata or {}).get("table", {})
    features = _features(lens, table)
    units = Units(np.asarray(table.get("means", 0.0)), np.asarray(table.get("scales", 1.0)))
    if id_column is None and frame is not None and table.get("identifier") in frame.columns:
        id_column = table["identifier"]
    ids = None if frame is None or id_column is None else _identifiers(frame, id_column)
    X, source = _rows(lens, frame, features, id_column, source)
    _check(lens, X)
    if X is not None and frame is not None:
        X = units.into(X)
    if image is None and not curve and "image_shape" in table:
        image = "x".join(str(side) for side in table["image_shape"])
    _check_missing(lens, X)
    shape = shape_of(len(features), image, curve)
    rest = None if frame is None or id_column is None else frame.drop(id_column)
    return Session(lens, X, frame if rest is None else rest, features, ids, shape, units, source)


def _features(lens: Lens, table: Mapping[str, Any]) -> Sequence[str]:
    """Return the names of features: as fitted, as in the file, or x0, x1, …."""
    names = getattr(lens.model, "feature_names_in_", None)
    if names is not None:
        return [str(name) for name in names]
    if "columns" not in table:
        return [f"x{j}" for j in range(int(lens.model.n_features_in_))]
    return Preparation(tuple(table["columns"]), table.get("levels", {})).features


def _identifiers(frame: pl.DataFrame, name: str) -> list[str]:
    if name not in frame.columns:
        raise TableError(f"--id {name}: no such column; there are {frame.columns[:10]}.")
    return ["" if value is None else str(value) for value in frame[name]]


def _rows(
    lens: Lens, frame: Any, features: Sequence[str], id_column: str | None, source: str
) -> tuple[Matrix | None, str]:
    if frame is None:
        kept = getattr(lens.model, "X_fit_", None)
        if kept is None or getattr(kept, "ndim", 0) != 2 or not hasattr(kept, "dtype"):
            return None, source
        return np.asarray(kept, dtype=float), "the model's training points"
    if hasattr(lens.model, "feature_names_in_") or set(features) <= set(frame.columns):
        return columns.matching(frame, features).to_numpy(), source
    rest = frame if id_column is None else frame.drop(id_column)
    return columns.numbers(rest, rest.columns).to_numpy(), source


def _check(lens: Lens, X: Matrix | None) -> None:
    """Refuse rows that the model cannot handle, before a browser opens."""
    if X is None:
        return
    if len(X) > MOST_POINTS:
        raise TableError(f"{len(X)} rows are more than the limit of {MOST_POINTS}: use fewer.")
    d = int(lens.model.n_features_in_)
    if X.shape[1] != d:
        raise TableError(f"the model has {d} features, the table {X.shape[1]} columns.")
    if np.isinf(X).any():
        raise TableError("the table contains infinite values: models need finite numbers.")


def _check_missing(lens: Lens, X: Matrix | None) -> None:
    """Refuse missing entries if the model does not accept them."""
    if X is None:
        return
    count = int(np.isnan(X).any(axis=1).sum())
    if count:
        try:
            lens.latents(X[np.isnan(X).any(axis=1)][:1])
        except ValueError:
            raise TableError(
                f"{count} rows have missing entries, which {lens.name} does not accept. Drop them, "
                "or explore a model that does (ppca, bpca, fa, mixture)."
            ) from None
