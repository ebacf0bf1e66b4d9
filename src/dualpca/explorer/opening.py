"""From what the command line names to a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from dualpca import columns
from dualpca.explorer.lenses import Lens, Matrix, lens_of
from dualpca.explorer.session import Session, Units, shape_of
from dualpca.tables import TableError

MOST_POINTS = 1_000_000


def open_session(
    model: Any,
    frame: pl.DataFrame | None,
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
    image : str, optional
        Height x width (x 3) of the image that a row is.
    curve : bool
        Whether a row is a curve.
    id_column : str, optional
    source : str
        What the table is called.
    """
    lens = lens_of(model)
    features = _features(lens)
    ids = None if frame is None or id_column is None else _identifiers(frame, id_column)
    X, source = _rows(lens, frame, features, id_column, source)
    _check(lens, X)
    shape = shape_of(len(features), image, curve)
    return Session(lens, X, frame, features, ids, shape, Units(), source)


def _features(lens: Lens) -> Sequence[str]:
    names = getattr(lens.model, "feature_names_in_", None)
    count = int(lens.model.n_features_in_)
    return [f"x{j}" for j in range(count)] if names is None else [str(name) for name in names]


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
    if hasattr(lens.model, "feature_names_in_"):
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
    holes = int(np.isnan(X).any(axis=1).sum())
    if holes:
        try:
            lens.latents(X[np.isnan(X).any(axis=1)][:1])
        except ValueError:
            raise TableError(
                f"{holes} rows have missing entries, which {lens.name} does not take. Drop them, "
                "or explore a model that does (ppca, bpca, fa, mixture)."
            ) from None
