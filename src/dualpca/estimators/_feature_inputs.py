"""What probabilistic kernel PCA takes: points, a kernel matrix, or distances of any metric."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.utils.validation import check_is_fitted

from dualpca.arrays import Array, backend
from dualpca.data import refuse_nonfinite
from dualpca.errors import expected
from dualpca.estimators._base import check_number, check_rows
from dualpca.estimators._kernel_inputs import check_kernel_matrix, check_points, kernel_of
from dualpca.kernels import Kernel, Precomputed
from dualpca.models.probabilistic_kernel import (
    CORRECTIONS,
    Correction,
    check_distances,
    check_new_distances,
)


def check_metric(model: Any) -> None:
    """Refuse parameters of distances that contradict one another."""
    if model.correction is not None and model.correction not in CORRECTIONS:
        what = f"None or one of {list(CORRECTIONS)}"
        raise ValueError(expected("correction", what, model.correction))
    if model.metric is None:
        if model.correction is not None:
            what = "None without a metric: it is distances that it corrects"
            raise ValueError(expected("correction", what, model.correction))
        return
    if not (isinstance(model.metric, str) or callable(model.metric)):
        what = "None, 'precomputed', or a name or function that scipy's cdist takes"
        raise ValueError(expected("metric", what, model.metric))
    plain = isinstance(model.kernel, str) and model.kernel == "rbf"
    if not plain or model.gamma is not None or model.kernel_params:
        what = "left at its default, and gamma too, beside a metric: distances have their own"
        raise ValueError(expected("kernel", what, model.kernel))


def check_training(model: Any, X: Any) -> Array:
    """Return the training items; a copy where they are points."""
    points = _checked(model, X, reset=True)
    return points if model._pairwise else backend.copied(points)


def _checked(model: Any, X: Any, *, reset: bool) -> Array:
    """Return items as they are; matrices of kernel values or distances are dense."""
    least = 3 if reset else 1
    if model.metric is None and not model._pairwise:
        return check_points(model, X, reset=reset, min_rows=least)
    rows = check_rows(model, X, reset=reset, min_rows=least, finite=model._pairwise)
    refuse_nonfinite(rows)
    return rows


def kernel_values(
    model: Any, points: Array, kernel: Kernel | None = None
) -> tuple[Correction, Array, Kernel]:
    """Return what was done to distances, what the kernel is evaluated on, and the kernel.

    Distances become the kernel −½d² and k(x, x) = 0; centring does the rest.
    """
    if model.metric is not None:
        D = check_distances(distances(model, points, points))
        correction = Correction.of(D, model.correction)
        return correction, correction.training_kernel(D), Precomputed(diagonal=0.0)
    kernel = kernel_of(model, points) if kernel is None else kernel
    if isinstance(kernel, Precomputed):
        points = check_kernel_matrix(points, center=False)
    return Correction(), points, kernel


def new_items(model: Any, X: Any, method: str) -> Array:
    """Check items that a fitted model is asked about."""
    check_is_fitted(model)
    X = _checked(model, X, reset=False)
    backend.require_same_home(X, model.coordinates_, f"{type(model).__name__}.{method}")
    return X


def kernel_rows(model: Any, rows: Array) -> Array:
    """Return what the fitted kernel is evaluated on: rows, or kernel values of distances."""
    if model.metric is None:
        return rows
    D = distances(model, rows, model.X_fit_)
    check_new_distances(D)
    return model.correction_.kernel(D)


def distances(model: Any, X: Array, Y: Array) -> Array:
    """Return distances of rows from rows, (m, n), found on the host; X where they are there."""
    if model._pairwise:
        return X
    try:
        D = cdist(backend.to_numpy(X), backend.to_numpy(Y), model.metric)
    except ValueError as error:
        if "nknown" not in str(error):
            raise
        what = "None, 'precomputed', or a name that scipy's cdist takes"
        raise ValueError(expected("metric", what, model.metric)) from error
    if X is Y:
        np.fill_diagonal(D, 0.0)
    return backend.asarray(D, X)


def check_rho(rho: Any) -> None:
    """Refuse what is no number of feature dimensions, ρ."""
    check_number("feature_dim", rho, 1)
    if not np.isfinite(rho):
        raise ValueError(expected("feature_dim", "finite, or None where it is not known", rho))


def needed_rho(model: Any, rho: Any) -> float:
    """Return ρ, given to a method or to the constructor."""
    rho = model.feature_dim if rho is None else rho
    if rho is None:
        what = "given, here or to the constructor: kernels of no dimension have no distribution"
        raise ValueError(expected("feature_dim", what, None))
    check_rho(rho)
    return float(rho)


def check_diagonal(diagonal: Any, rows: Array) -> Array:
    """Return k(x, x) of every new item, (m,)."""
    values = np.asarray(backend.to_numpy(diagonal), dtype=np.float64)
    if values.shape != (rows.shape[0],) or not np.isfinite(values).all():
        what = f"{rows.shape[0]} finite numbers, k(x, x) of every row"
        raise ValueError(expected("diagonal", what, values))
    return backend.asarray(values, backend.vector_like(rows))
