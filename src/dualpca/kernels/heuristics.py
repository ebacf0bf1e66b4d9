"""Parameters found from the rows: 'scale' as in scikit-learn, 'median' of the distances."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist

from dualpca import _algebra, _array
from dualpca._typing import Array

Distances = Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]
"""From rows to the distances of pairs i < j, in one vector."""

ENOUGH = 1000
"""Rows, evenly spaced over the table, whose distances stand for all."""


def scale_rate(X: Array) -> float:
    """Return 1 / (d · variance of all entries), scikit-learn's gamma='scale'; 1 if constant."""
    if _array.is_sparse(X):
        size = int(X.shape[0]) * int(X.shape[1])
        variance = float(_algebra.squared_norms(X).sum()) / size - float(X.sum() / size) ** 2
    else:
        variance = float(_array.namespace(X).var(_array.working(X)))
    return 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0


def median_squared_distance(X: Array) -> float:
    """Return the median of ‖x_i − x_j‖² over pairs i < j; 1 where it would be 0.

    Examples
    --------
    >>> import numpy as np
    >>> median_squared_distance(np.array([[0.0], [1.0], [3.0]]))
    4.0
    """
    return median_over_pairs(X, lambda rows: pdist(rows, "sqeuclidean"))


def median_over_pairs(X: Array, distances: Distances) -> float:
    """Return the median of a distance over pairs of at most `ENOUGH` rows; 1 for 0."""
    step = max(1, -(-int(X.shape[0]) // ENOUGH))
    rows = _array.to_numpy(X[::step, :]).astype(np.float64)
    values = distances(rows) if rows.shape[0] > 1 else np.zeros(1)
    found = float(np.median(values))
    return found if found > 0 else 1.0


def median_rate(X: Array) -> float:
    """Return 1 / (median of the squared distances)."""
    return 1.0 / median_squared_distance(X)


def median_length(X: Array) -> float:
    """Return the median distance."""
    return sqrt(median_squared_distance(X))


def column_rate(X: Array) -> float:
    """Return 1 / d, scikit-learn's gamma='auto'."""
    return 1.0 / int(X.shape[1])


def median_taxicab_rate(X: Array) -> float:
    """Return 1 / (median of Σ|x_j − y_j| over pairs of rows); 1 where it would be 0."""
    return 1.0 / median_over_pairs(X, lambda rows: pdist(rows, "cityblock"))


def median_chi2_rate(X: Array) -> float:
    """Return 1 / (median of Σ(x_j − y_j)²/(x_j + y_j) over pairs of rows); 1 where it would be 0.

    Examples
    --------
    >>> import numpy as np
    >>> median_chi2_rate(np.array([[0.0, 1.0], [4.0, 1.0]]))
    0.25
    """
    return 1.0 / median_over_pairs(X, _chi2_pairs)


def _chi2_pairs(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the χ² distances of pairs i < j, one column at a time."""
    i, j = np.triu_indices(rows.shape[0], 1)
    found = np.zeros(i.size)
    for x in rows.T:
        total = x[i] + x[j]
        found += (x[i] - x[j]) ** 2 / np.where(total > 0, total, 1.0)
    return found
