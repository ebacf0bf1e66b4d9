"""What several experiments measure or need."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import orthogonal_procrustes, subspace_angles
from sklearn.exceptions import ConvergenceWarning


@contextmanager
def stopped_early() -> Iterator[None]:
    """Let iterations end where a document ends them, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def angle(A: ArrayLike, B: ArrayLike) -> float:
    """Return the largest angle between the columns' spaces, in degrees.

    Examples
    --------
    >>> angle([[1.0], [0.0]], [[1.0], [1.0]])
    45.0
    """
    return float(np.degrees(subspace_angles(np.asarray(A), np.asarray(B))[0]))


def turned(A: ArrayLike, B: ArrayLike) -> NDArray[np.float64]:
    """Return A turned (and mirrored) so that it lies as close to B as it can."""
    start = np.asarray(A, dtype=np.float64)
    return np.asarray(start @ orthogonal_procrustes(start, np.asarray(B))[0])


def distance(A: ArrayLike, B: ArrayLike) -> float:
    """Return what is left between A, turned, and B, as a share of the size of B.

    Examples
    --------
    >>> distance([[0.0], [2.0]], [[0.0], [-1.0]])
    1.0
    """
    return float(np.linalg.norm(turned(A, B) - np.asarray(B)) / np.linalg.norm(np.asarray(B)))


def wave(n: int = 20) -> NDArray[np.float64]:
    """Return n points (t, sin t) with t from −7 to 7, our stand-in for S0's unpublished ones."""
    t = np.linspace(-7, 7, n)
    return np.column_stack([t, np.sin(t)])
