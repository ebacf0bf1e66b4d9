"""Parameters found from the rows: 'scale' as in scikit-learn, 'median' of the distances."""

from __future__ import annotations

from math import sqrt

import numpy as np
from scipy.spatial.distance import pdist

from dualpca import _array
from dualpca._typing import Array

ENOUGH = 1000
"""Rows, evenly spaced over the table, whose distances stand for all."""


def scale_rate(X: Array) -> float:
    """Return 1 / (d · variance of all entries), scikit-learn's gamma='scale'; 1 if constant."""
    xp = _array.namespace(X)
    variance = float(xp.var(_array.working(X)))
    return 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0


def median_squared_distance(X: Array) -> float:
    """Return the median of ‖x_i − x_j‖² over pairs i < j; 1 where it would be 0.

    Examples
    --------
    >>> import numpy as np
    >>> median_squared_distance(np.array([[0.0], [1.0], [3.0]]))
    4.0
    """
    step = -(-int(X.shape[0]) // ENOUGH)
    rows = _array.to_numpy(X[::step, :]).astype(np.float64)
    distances = pdist(rows, "sqeuclidean")
    found = float(np.median(distances)) if distances.size else 0.0
    return found if found > 0 else 1.0


def median_rate(X: Array) -> float:
    """Return 1 / (median of the squared distances)."""
    return 1.0 / median_squared_distance(X)


def median_length(X: Array) -> float:
    """Return the median distance."""
    return sqrt(median_squared_distance(X))
