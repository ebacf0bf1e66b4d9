"""Whether two sets of points come from one distribution: the kernel two-sample test."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import expected
from dualpca.generation.quality import check_together
from dualpca.kernels import RBF, Kernel


class TwoSample(NamedTuple):
    """Squared maximum mean discrepancy, unbiased, and the share of permutations that reach it."""

    mmd: float  # may be a little below 0 where the samples agree
    p_value: float


def mmd_test(
    A: Array,
    B: Array,
    rng: np.random.Generator,
    n_permutations: int = 200,
    kernel: Kernel | None = None,
) -> TwoSample:
    """Compare two samples by MMD² = mean k(a, a') + mean k(b, b') − 2 mean k(a, b), a ≠ a'.

    Under permutation of the m + n rows its distribution is that of one common source, so the
    p-value is exact for any size. One (m + n)² Gram matrix; every permutation is a product with it.

    Parameters
    ----------
    A : array of shape (m, d)
    B : array of shape (n, d)
    rng : Generator
    n_permutations : int
    kernel : Kernel, optional
        RBF with the median distance of all rows unless given.

    Notes
    -----
    Gretton et al., "A kernel two-sample test" (2012), Eq. 3.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> A, B = rng.normal(size=(50, 2)), rng.normal(size=(60, 2))
    >>> mmd_test(A, B, rng).p_value > 0.05, mmd_test(A, B + 1, rng).p_value < 0.01
    (True, True)
    """
    check_together(A, B, 2)
    if n_permutations < 1:
        raise ValueError(expected("n_permutations", "1 or more", n_permutations))
    xp, m = _array.namespace(A), int(A.shape[0])
    rows = xp.concat([_array.working(A), _array.working(B)], axis=0)
    kernel = (RBF(gamma="median") if kernel is None else kernel).resolve(rows)
    K, diagonal = kernel(rows, rows), kernel.diag(rows)
    first = _splits(rng, int(rows.shape[0]), m, n_permutations)
    values = _discrepancies(K, diagonal, _array.asarray(first, rows))
    reached = int(np.sum(values[1:] >= values[0]))
    return TwoSample(float(values[0]), (1 + reached) / (1 + n_permutations))


def _splits(rng: np.random.Generator, size: int, m: int, count: int) -> np.ndarray:
    """Return indicators of the first sample, (m + n, 1 + count): as given, then at random."""
    first = np.zeros((size, 1 + count))
    first[:m, 0] = 1
    for j in range(count):
        first[rng.permutation(size)[:m], 1 + j] = 1
    return first


def _discrepancies(K: Array, diagonal: Array, first: Array) -> np.ndarray:
    """Return MMD² of every split, from wᵀKw with indicators w and 1 − w."""
    xp = _array.namespace(K)
    m = float(xp.sum(first[:, 0]))
    n = float(K.shape[0]) - m
    second = 1 - first
    KA, KB = K @ first, K @ second
    aa = xp.sum(first * (KA - diagonal[:, None] * first), axis=0) / (m * (m - 1))
    bb = xp.sum(second * (KB - diagonal[:, None] * second), axis=0) / (n * (n - 1))
    ab = xp.sum(first * KB, axis=0) / (m * n)
    return _array.to_numpy(aa + bb - 2 * ab)
