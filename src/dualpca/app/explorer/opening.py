"""From what the command line names to a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from dualpca.app.explorer.lens import Lens, Matrix
from dualpca.app.explorer.lenses import lens_of
from dualpca.app.explorer.session import Session, Units, shape_of
from dualpca.app.tables import columns
from dualpca.app.tables.dialects import TableError
from dualpca.app.tables.preparation import Preparation

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
    """Return the session of a model and a table; of a kernel model its training points, if none.

    Parameters
    ----------
    model : estimator
    frame : polars.DataFrame, optional
    metadata : mapping, optional
        What the model file says beside the model; its `table` has units, names and image shape.
    image : str, optional
        Height x width (x 3) of the image that a row is.
    curve : bool
        Whether a row is a curve.
    id_column : str, optional
    source : str
        What the table is called.
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
    _check_holes(lens, X)
    shape = shape_of(len(features), image, curve)
    rest = None if frame is None or id_column is None else frame.drop(id_column)
    return Session(lens, X, frame if rest is None else rest, features, ids, shape, units, source)


def _features(lens: Lens, table: Mapping[str, Any]) -> Sequence[str]:
    """Return the names of features: as fitted, as the file has them, or x0, x1, …."""
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
        return np.asarray(kept, dtype=float), "the model's own points"
    if hasattr(lens.model, "feature_names_in_") or set(features) <= set(frame.columns):
        return columns.matching(frame, features).to_numpy(), source
    rest = frame if id_column is None else frame.drop(id_column)
    return columns.numbers(rest, rest.columns).to_numpy(), source


def _check(lens: Lens, X: Matrix | None) -> None:
    """Refuse rows that the model cannot place, before a browser opens."""
    if X is None:
        return
    if len(X) > MOST_POINTS:
        raise TableError(f"{len(X)} rows are more than {MOST_POINTS}: give fewer of them.")
    d = int(lens.model.n_features_in_)
    if X.shape[1] != d:
        raise TableError(f"the model has {d} features, the table {X.shape[1]} columns.")
    if np.isinf(X).any():
        raise TableError("the table holds infinity: models need finite numbers.")


def _check_holes(lens: Lens, X: Matrix | None) -> None:
    """Refuse missing entries where the model does not take them."""
    if X is None:
        return
    holes = int(np.isnan(X).any(axis=1).sum())
    if holes:
        try:
            lens.latents(X[np.isnan(X).any(axis=1)][:1])
        except ValueError:
            raise TableError(
                f"{holes} rows have missing entries, which {lens.name} does not take. Drop them, "
                "or explore a model that does (ppca, bpca, fa, mixture)."
            ) from None
