"""New rows with NaN for the dual model: expected coordinates, and how uncertain they are."""

from __future__ import annotations

from typing import Any

from dualpca.arrays import Array, backend
from dualpca.estimators._base import check_finite_result
from dualpca.estimators._uncertain import (
    as_uncertain,
    coordinate_covariance,
    expected_coordinates,
    input_model,
    is_incomplete,
    with_holes,
)
from dualpca.kernels import Uncertain


def coordinates(model: Any, rows: Array) -> Array:
    """Return y_p = v_pᵀ(φ(x) − φ̄), (m, q); its expectation for rows with NaN."""
    if not is_incomplete(rows):
        return check_finite_result(model._projector.coordinates(rows), rows)
    xp, holes = backend.namespace(rows), with_holes(rows)
    filled = xp.where(xp.isnan(rows), xp.zeros_like(rows), rows)  # replaced in a moment
    whole = check_finite_result(model._projector.coordinates(filled), filled)
    return backend.replaced(
        whole, holes, expected_coordinates(model._projector, _some(model, rows))
    )


def more_uncertain(model: Any, rows: Array, covariance: Array) -> Array:
    """Return covariances of the latents with what NaN adds, D Cov[y] D, D = √(ℓ − σ²)/ℓ."""
    if not is_incomplete(rows):
        return covariance
    g, holes = model._gaussian, with_holes(rows)
    D = g.spread / g.values
    more = coordinate_covariance(model._projector, _some(model, rows)) * D * D[:, None]
    both = backend.working(backend.take(covariance, holes)) + more
    return backend.replaced(covariance, holes, backend.cast_like(both, covariance))


def _some(model: Any, rows: Array) -> Uncertain:
    """Return the rows with NaN as Gaussians, by a PPCA of the training rows."""
    if "input_model_" not in vars(model):
        model.input_model_ = input_model(model.X_fit_)
    return as_uncertain(model.input_model_, backend.take(rows, with_holes(rows)))
