"""Rows with NaN for kernel models: a PPCA of the inputs says what they may have been."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.data import has_missing
from dualpca.errors import expected
from dualpca.estimators.ppca import PPCA
from dualpca.kernels import (
    Kernel,
    Precomputed,
    Uncertain,
    accepts_nan,
    expected_gram,
    expected_kernel,
    projected_covariance,
)
from dualpca.operators import Dual, Given, Spectrum, Subspace, UncertainSubspace


def takes_nan(kernel: Any) -> bool:
    """Return True if a kernel may have an expectation in closed form."""
    return accepts_nan(kernel)


def is_incomplete(X: Array) -> bool:
    """Tell whether rows have NaN."""
    return X.ndim == 2 and not backend.is_sparse(X) and has_missing(X)


def input_model(X: Array, weights: Array | None = None) -> Any:
    """Fit a PPCA of the inputs; how many components, by predicting entries that it hid."""
    d = int(X.shape[1])
    if d < 2:
        what = "complete, or of two columns at least, so that one can tell of the other"
        raise ValueError(expected("X with NaN", what, tuple(X.shape), "Drop the rows with NaN."))
    if not has_missing(X):
        return PPCA("evidence").fit(X, sample_weight=weights)
    return PPCA("cv" if d > 2 else 1).fit(X, sample_weight=weights)


def as_uncertain(model: PPCA, X: Array) -> Uncertain:
    """Return rows as Gaussians: certain in what they observed."""
    return Uncertain(*model.conditional(X)).working


def uncertain_dual(rows: Uncertain, kernel: Kernel, weights: Array | None, center: bool) -> Dual:
    """Return the centred kernel of expectations over uncertain rows, (n, n)."""
    return Dual(Given(expected_gram(kernel, rows), Precomputed()), None, weights, center=center)


def uncertain_subspace(
    operator: Dual, spectrum: Spectrum, rows: Uncertain, kernel: Kernel
) -> UncertainSubspace:
    """Return the directions over uncertain rows."""
    s = operator.subspace(spectrum)
    return UncertainSubspace(rows, kernel, s.coefficients, s.base, s.tilt, s.offset)


def expected_coordinates(subspace: Any, rows: Uncertain) -> Array:
    """Return the expected coordinates of uncertain rows, (m, q)."""
    if isinstance(subspace, UncertainSubspace):
        return subspace.coordinates(rows)
    require_points(subspace)
    K = expected_kernel(subspace.kernel, rows, backend.working(subspace.points))
    return K @ subspace.coefficients - subspace.tilt


def coordinate_covariance(subspace: Any, rows: Uncertain) -> Array:
    """Return the covariance of the coordinates of uncertain rows, (m, q, q)."""
    if isinstance(subspace, UncertainSubspace):
        return subspace.covariance(rows)
    require_points(subspace)
    points = backend.working(subspace.points)
    return projected_covariance(subspace.kernel, rows, points, subspace.coefficients)


def require_points(subspace: Any) -> None:
    """Refuse what is no expansion over dense points."""
    if not isinstance(subspace, Subspace) or backend.is_sparse(subspace.points):
        what = "a model over dense points: random features and sparse rows have no expectations"
        raise ValueError(expected("rows with NaN", what, type(subspace).__name__))


def with_holes(X: Array) -> Any:
    """Return the numbers of the rows that have NaN, on the host."""
    xp = backend.namespace(X)
    return np.flatnonzero(backend.to_numpy(xp.any(xp.isnan(X), axis=1)))
