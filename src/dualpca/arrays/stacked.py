"""Many small positive definite matrices at once, along the last axis of NumPy arrays.

A call of LAPACK for each of them takes longer than its arithmetic: loops over their rows and
columns, each a NumPy call for all matrices, are two to nine times as fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

Host = np.ndarray[Any, np.dtype[np.float64]]


@np.errstate(divide="ignore", invalid="ignore")  # a pivot that is not positive shows at the end
def inverse_factors(A: Host) -> tuple[Host, Host]:
    """Return L⁻¹, LLᵀ = A, and ln |A|, in place; the last axis counts matrices.

    Parameters
    ----------
    A : array of shape (K, k, k, n)
        Only the lower triangles are read.

    Returns
    -------
    inverse : array of shape (K, k, k, n)
    logdet : array of shape (K, n)

    Examples
    --------
    >>> inverse, logdet = inverse_factors(np.full((1, 1, 1, 1), 4.0))
    >>> inverse[0, 0, 0], logdet.round(4)
    (array([0.5]), array([[1.3863]]))
    """
    logdet = np.zeros((A.shape[0], A.shape[3]))
    for j in range(A.shape[1]):
        if j:
            A[:, j:, j] -= np.einsum("aimn,amn->ain", A[:, j:, :j], A[:, j, :j])
        pivot = A[:, j, j]
        logdet += np.log(pivot)
        root = 1 / np.sqrt(pivot)
        A[:, j + 1 :, j] *= root[:, None]
        if j:  # row j of L is not needed any more
            row = np.einsum("amn,amjn->ajn", A[:, j, :j], A[:, :j, :j])
            np.multiply(row, -root[:, None], out=A[:, j, :j])
            A[:, :j, j] = 0.0
        A[:, j, j] = root
    if not np.isfinite(logdet).all():
        raise np.linalg.LinAlgError("a matrix is not positive definite")
    return A, logdet


def lower_squares(J: Host) -> Iterator[Host]:
    """Yield the rows of the lower triangles of JᵀJ, (K, i + 1, n), for lower triangular J."""
    for i in range(J.shape[1]):
        yield np.einsum("amn,amjn->ajn", J[:, i:, i], J[:, i:, : i + 1])


@lru_cache(maxsize=64)
def lower_pairs(k: int) -> tuple[Any, Any]:
    """Return the row and the column of each entry of a lower triangle, row by row."""
    return np.tril_indices(k)


def triangle_rows(lower: Host, k: int) -> Iterator[Host]:
    """Yield views of the rows of lower triangles of order k, (K, k(k + 1)/2, n)."""
    at = 0
    for i in range(k):
        yield lower[:, at : at + i + 1]
        at += i + 1
