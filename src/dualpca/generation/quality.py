"""How good new points are: the nearest known point, precision and recall."""

from __future__ import annotations

from typing import NamedTuple

from dualpca import _algebra, _array
from dualpca._typing import Array
from dualpca.errors import expected
from dualpca.generation.densities import squared_distances


class Nearest(NamedTuple):
    """For every row the nearest known point."""

    index: Array  # (m,)
    distance: Array  # (m,)


class Coverage(NamedTuple):
    """How much of the samples looks real, and how much of what is real the samples reach."""

    precision: float
    recall: float


def nearest(X: Array, known: Array) -> Nearest:
    """Return the nearest known point of every row, and its distance. O(mnd), in blocks.

    Parameters
    ----------
    X : array of shape (m, d)
    known : array of shape (n, d)

    Examples
    --------
    >>> import numpy as np
    >>> nearest(np.array([[0.2], [4.0]]), np.array([[1.0], [0.0]]))
    Nearest(index=array([1, 0]), distance=array([0.2, 3. ]))
    """
    check_together(X, known, 1)
    xp, (X, known) = _array.namespace(X), _centred(X, known)
    index, distance = [], []
    for rows in _array.slices(int(X.shape[0]), _array.block_rows(int(known.shape[0]), X)):
        block = X[rows, :]
        found = xp.argmin(squared_distances(block, known), axis=1)
        gap = block - _array.take(known, found)  # anew: products lose the digits of small distances
        index.append(found)
        distance.append(xp.sqrt(_algebra.squared_norms(gap)))
    return Nearest(xp.concat(index, axis=0), xp.concat(distance, axis=0))


def coverage(real: Array, samples: Array, k: int = 3) -> Coverage:
    """Return precision and recall of samples against real points they were not made from.

    Precision is the share of samples within reach of a real point, recall the share of real points
    within reach of a sample; the reach of a point is the distance to its k-th neighbour of its own
    kind. O((m + n)² d), in blocks.

    Parameters
    ----------
    real : array of shape (n, d)
    samples : array of shape (m, d)
    k : int

    Notes
    -----
    Kynkäänniemi et al., "Improved precision and recall metric for assessing generative models"
    (2019).

    Examples
    --------
    >>> import numpy as np
    >>> real = np.arange(10.0)[:, None]
    >>> coverage(real, real[:5] + 0.1, k=1)
    Coverage(precision=1.0, recall=0.6)
    """
    check_together(samples, real, k + 1)
    samples, real = _centred(samples, real)
    return Coverage(_reached(samples, real, k), _reached(real, samples, k))


def check_together(A: Array, B: Array, rows: int) -> None:
    """Refuse tables of different width, or with too few rows."""
    if A.ndim != 2 or B.ndim != 2 or A.shape[1] != B.shape[1]:
        what = f"a matrix of {B.shape[-1]} columns, as the points it is compared with"
        raise ValueError(expected("X", what, tuple(A.shape)))
    least = min(int(A.shape[0]), int(B.shape[0]))
    if least < rows:
        raise ValueError(expected("X", f"{rows} rows or more", least))


def _centred(A: Array, B: Array) -> tuple[Array, Array]:
    """Return both less the mean of B: near the origin, products keep the digits of distances."""
    B = _array.working(B)
    mean = _array.namespace(B).mean(B, axis=0)
    return _array.working(A) - mean, B - mean


def _reached(A: Array, B: Array, k: int) -> float:
    """Return the share of rows of A within the reach of some row of B."""
    reach, hits = _reaches(B, k), 0
    xp = _array.namespace(B)
    for rows in _array.slices(int(A.shape[0]), _array.block_rows(int(B.shape[0]), A)):
        inside = squared_distances(A[rows, :], B) <= reach
        hits += int(xp.sum(xp.astype(xp.any(inside, axis=1), xp.int64)))
    return hits / int(A.shape[0])


def _reaches(B: Array, k: int) -> Array:
    """Return the squared distance of every row to its k-th neighbour, (n,)."""
    xp = _array.namespace(B)
    found = []
    for rows in _array.slices(int(B.shape[0]), _array.block_rows(int(B.shape[0]), B)):
        D = xp.sort(squared_distances(B[rows, :], B), axis=1)
        found.append(D[:, k])  # column 0 is the row itself
    return xp.concat(found, axis=0)
