"""Orthogonal rotations that make loadings easier to read."""

from __future__ import annotations

import numpy as np

from dualpca import _algebra, _array
from dualpca._typing import Array

SHARES = {"varimax": 1.0, "quartimax": 0.0}
"""γ of the orthomax family (Harman 1976)."""


def rotate(W: Array, method: str, tol: float = 1e-8, max_iter: int = 1000) -> Array:
    """Return loadings rotated to the largest orthomax criterion.

    Parameters
    ----------
    W : array of shape (d, q)
    method : {'varimax', 'quartimax'}
    tol : float
        Relative increase of the criterion at which to stop.
    max_iter : int

    Returns
    -------
    array of shape (d, q)

    Examples
    --------
    >>> import numpy as np
    >>> W = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, -1.0], [1.0, -1.0]]) / np.sqrt(2)
    >>> np.abs(rotate(W, "varimax")).round(6)
    array([[1., 0.],
           [1., 0.],
           [0., 1.],
           [0., 1.]])
    """
    d, q = W.shape
    if q < 2:
        return W
    R, criterion = _array.asarray(np.eye(q), W), 0.0
    for _ in range(max_iter):
        L = W @ R
        gradient = L**3 - SHARES[method] / d * L * _array.namespace(W).sum(L**2, axis=0)
        U, s, Vt = _algebra.svd(W.T @ gradient)
        R, before, criterion = U @ Vt, criterion, float(_array.namespace(W).sum(s))
        if criterion <= before * (1 + tol):
            break
    return W @ R
