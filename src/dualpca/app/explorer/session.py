"""One model with one table, as the explorer shows them: everything is in memory from the start.

Nothing here reads a file: what the command line named was read before.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from dualpca.app.explorer.lens import Lens, Matrix
from dualpca.app.explorer.neighbours import Closest, Places
from dualpca.app.tables.dialects import TableError

FAR = 1000.0
"""How many times farther out than any row a latent may be asked for."""

BLOCK = 2000
"""Rows that are reconstructed at a time."""


class Units(NamedTuple):
    """How the table's columns became the model's features: (x − shift) / scale."""

    shift: Any = 0.0  # (d,) or 0
    scale: Any = 1.0  # (d,) or 1

    def into(self, X: Matrix) -> Matrix:
        """Return rows of the table as the model takes them."""
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
    """Return what rows of d features are to be drawn as.

    Examples
    --------
    >>> shape_of(64, "8x8", False), shape_of(5, None, True)
    (Shape(kind='image', size=(8, 8)), Shape(kind='curve', size=()))
    """
    if image is not None and curve:
        raise TableError("--image and --curve exclude each other: a row is one or the other.")
    if image is None:
        return Shape("curve" if curve else "bars")
    words = image.lower().replace("×", "x").split("x")
    if not all(word.isascii() and word.isdigit() for word in words) or len(words) not in (2, 3):
        raise TableError(f"--image {image}: expected height x width, such as 8x8 or 32x32x3.")
    size = tuple(int(word) for word in words)
    if math.prod(size) != d or size[2:] not in ((), (1,), (3,)):
        raise TableError(f"--image {image} has {math.prod(size)} values, but rows have {d}.")
    return Shape("image", size[:2] if size[2:] == (1,) else size)


@dataclass
class Session:
    """What the server knows: a lens on the model, rows, and what they are called.

    Parameters
    ----------
    lens : Lens
    X : array of shape (n, d), optional
        Rows as the model takes them.
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
        """Place the rows, and prepare what would be slow later."""
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
            raise TableError("some rows have latents that are not finite: look for huge values.")
        return Z

    def _shares(self) -> list[Any]:
        """Return which rows belong to each component of a mixture; all, elsewhere."""
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
        """Return where latents begin and end: those of its rows, or three deviations."""
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
        """Return the row that a latent point stands for, and how sure and how usual it is."""
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
        """Return the closest row of the table to each of some rows, over what it observed."""
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
        """Return some rows, as the model takes them."""
        if self.X is None:
            raise TableError("no table was given: start with `dualpca explore MODEL TABLE`.")
        return np.asarray(self.X[np.asarray(index, dtype=int)])

    def identifier(self, i: int) -> str:
        """Return what a row is called: its identifier, or its number from 1."""
        return str(i + 1) if self.ids is None else str(self.ids[i])

    def impute(self, row: int, hidden: Sequence[int]) -> dict[str, Any]:
        """Return a row with entries hidden and filled again, and how sure each is."""
        truth = self.rows([row])
        holes = truth.copy()
        holes[0, np.asarray(hidden, dtype=int)] = np.nan
        with self.lock:
            filled, std = self.lens.impute(holes)
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
        """Return smallest, mean and largest value of every feature, (3, d), for axes that stay."""
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
