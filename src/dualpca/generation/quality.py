"""How good new points are: nearest known point, precision, recall, the kernel two-sample test."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.errors import expected
from dualpca.generation.densities import squared_distances
from dualpca.kernels import RBF, Kernel

# --- How good new points are: the nearest known point, precision and recall ----------------------


class Nearest(NamedTuple):
    """The nearest known point of every row, and its distance.

    Parameters
    ----------
    index : array of int, shape (m,)
        Index of the nearest known point of every row.
    distance : array of shape (m,)

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.generation import nearest
    >>> nearest(np.array([[0.2], [4.0]]), np.array([[1.0], [0.0]])).index
    array([1, 0])
    """

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

    Returns
    -------
    found : Nearest

    Examples
    --------
    >>> import numpy as np
    >>> nearest(np.array([[0.2], [4.0]]), np.array([[1.0], [0.0]]))
    Nearest(index=array([1, 0]), distance=array([0.2, 3. ]))
    """
    check_together(X, known, 1)
    xp, (X, known) = backend.namespace(X), _centred(X, known)
    index, distance = [], []
    for rows in backend.slices(int(X.shape[0]), backend.block_rows(int(known.shape[0]), X)):
        block = X[rows, :]
        found = xp.argmin(squared_distances(block, known), axis=1)
        # anew: products lose the digits of small distances
        gap = block - backend.take(known, found)
        index.append(found)
        distance.append(xp.sqrt(algebra.squared_norms(gap)))
    return Nearest(xp.concat(index, axis=0), xp.concat(distance, axis=0))


FEW = 200
"""Points, on either side, by which it is judged whether points are new."""


def newness(X: Array, known: Array) -> float:
    """Return how far points are from known ones, in units of how far these are from each other.

    The median distance to the nearest known point, over the median distance of known points, at
    most 200 of either; about 1 for points of the same kind, near 0 for copies.

    Parameters
    ----------
    X : array of shape (m, d)
    known : array of shape (n, d)
        Two or more.

    Examples
    --------
    >>> import numpy as np
    >>> round(newness(np.array([[0.1], [2.1]]), np.arange(5.0)[:, None]), 3)
    0.1
    """
    check_together(X, known, 1)
    few = X[: min(FEW, int(X.shape[0])), :]
    xp, (X, known) = backend.namespace(known), _centred(few, known)
    some = known[:: -(-int(known.shape[0]) // FEW), :]
    # column 0 of the sorted distances is the row itself
    apart = xp.sqrt(xp.sort(squared_distances(some, known), axis=1)[:, 1])
    unit = float(np.median(backend.to_numpy(apart)))
    found = float(np.median(backend.to_numpy(nearest(X, known).distance)))
    return found / unit if unit > 0 else np.inf


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
    B = backend.working(B)
    mean = backend.namespace(B).mean(B, axis=0)
    return backend.working(A) - mean, B - mean


def _reached(A: Array, B: Array, k: int) -> float:
    """Return the share of rows of A within the reach of some row of B."""
    xp, m, n = backend.namespace(B), int(A.shape[0]), int(B.shape[0])
    step = backend.block_rows(n, B)
    # column 0 of the sorted distances is the row itself
    reaches = [
        xp.sort(squared_distances(B[rows, :], B), axis=1)[:, k] for rows in backend.slices(n, step)
    ]
    reach, hits = xp.concat(reaches, axis=0), 0
    for rows in backend.slices(m, step):
        inside = squared_distances(A[rows, :], B) <= reach
        hits += int(xp.sum(xp.astype(xp.any(inside, axis=1), xp.int64)))
    return hits / m


# --- Whether two sets of points come from one distribution: the kernel two-sample test -----------


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
        By default an RBF with the median distance of all rows.

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
    xp, m, n = backend.namespace(A), int(A.shape[0]), int(B.shape[0])
    rows = xp.concat([backend.working(A), backend.working(B)], axis=0)
    kernel = (RBF(gamma="median") if kernel is None else kernel).resolve(rows)
    K, diagonal = kernel(rows, rows), kernel.diag(rows)[:, None]
    members = np.zeros((m + n, 1 + n_permutations))  # 1 for rows of the first sample
    members[:m, 0] = 1  # as given, then at random
    for j in range(n_permutations):
        members[rng.permutation(m + n)[:m], 1 + j] = 1
    first = backend.asarray(members, rows)
    second = 1 - first
    KA, KB = K @ first, K @ second
    aa = xp.sum(first * (KA - diagonal * first), axis=0) / (m * (m - 1))
    bb = xp.sum(second * (KB - diagonal * second), axis=0) / (n * (n - 1))
    values = backend.to_numpy(aa + bb - 2 * xp.sum(first * KB, axis=0) / (m * n))
    reached = int(np.sum(values[1:] >= values[0]))
    return TwoSample(float(values[0]), (1 + reached) / (1 + n_permutations))


# --- All of it at once ---------------------------------------------------------------------------


class Quality(NamedTuple):
    """How samples compare with rows that were not used to fit.

    Parameters
    ----------
    precision : float
        Share of samples that are among the rows.
    recall : float
        Share of rows that are among the samples.
    mmd : float
        Squared maximum mean discrepancy, unbiased; about 0 where both are alike.
    p_value : float
        Of the hypothesis that both have the same distribution.
    novelty : float
        Median distance to the nearest training point, relative to that of the rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import PPCA, Generator
    >>> X = load_iris().data
    >>> maker = Generator(PPCA(2).fit(X[::2])).fit(X[::2])
    >>> 0 <= maker.quality(X[1::2], random_state=0).recall <= 1
    True
    """

    precision: float  # share of samples that are among the rows
    recall: float  # share of rows that are among the samples
    mmd: float  # squared maximum mean discrepancy, unbiased: about 0 if they are alike
    p_value: float  # of the hypothesis that they are
    novelty: float  # median distance to the nearest training point, in units of that of the rows


def sample_quality(
    samples: Array,
    rows: Array,
    known: Array,
    rng: np.random.Generator,
    k: int = 3,
    n_permutations: int = 200,
) -> Quality:
    """Compare samples with rows that were not used to fit, and both with those that were (known).

    Parameters
    ----------
    samples : array of shape (m, d)
    rows, known : arrays of shape (n, d) and (N, d)
    rng : Generator
    k : int, default=3
        Number of neighbours that make a row's neighbourhood.
    n_permutations : int, default=200
        Number of permutations of the test.

    Returns
    -------
    quality : Quality

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.generation import sample_quality
    >>> rng = np.random.default_rng(0)
    >>> samples, rows, known = rng.normal(size=(3, 50, 2))
    >>> sample_quality(samples, rows, known, rng).precision > 0.5
    True
    """
    new, scale = (
        float(np.median(backend.to_numpy(nearest(points, known).distance)))
        for points in (samples, rows)
    )
    if scale == 0:
        raise ValueError(expected("X", "rows that were not used to fit", "mostly training rows"))
    test = mmd_test(samples, rows, rng, n_permutations)
    return Quality(*coverage(rows, samples, k), *test, new / scale)
