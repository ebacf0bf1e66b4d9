"""Products, distances and factorisations, for dense and sparse rows and in every library.

`backend` knows which library an array is of; this file is for operations whose fastest or safest
implementation differs between them.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dsyevd, dsyevr
from scipy.spatial.distance import cdist

from dualpca.arrays import backend
from dualpca.arrays.backend import is_foreign, is_sparse, namespace, one_thread
from dualpca.arrays.threads import has_small_products
from dualpca.arrays.types import Array
from dualpca.errors import expected

TALL_RATIO = 32
"""Rows a column from which a matrix is tall."""


SMALL_QR = 2**20
"""Entries of a matrix up to which NumPy's QR, which copies it, is used: SciPy's BLAS has threads
of its own."""

ALL_PAIRS = 64
"""Order up to which all eigenpairs take little more time than a few."""

COPIED_ORDER = 1024
"""Order up to which a copy does not matter, which NumPy makes and SciPy need not."""


def inner(X: Array, Y: Array) -> Array:
    """Return X Yᵀ, dense, for dense or sparse rows."""
    product = X @ Y.T
    if not is_sparse(X) and not is_sparse(Y):
        return product
    return np.asarray(product.toarray() if is_sparse(product) else product)


def squared_norms(X: Array) -> Array:
    """Return ‖x‖² of every row, (n,), for dense or sparse rows."""
    if is_sparse(X):
        return np.asarray(X.multiply(X).sum(axis=1)).reshape(-1)
    if not is_foreign(X) and X.dtype == np.float64:
        return np.einsum("ij,ij->i", X, X)
    return namespace(X).sum(X * X, axis=1)


def product(X: Array, V: Array) -> Array:
    """Return X @ V, dense, for dense or sparse X."""
    return np.asarray(X @ V) if is_sparse(X) else X @ V


def thin_product(X: Array, V: Array) -> Array:
    """Return X @ V for a V of few columns, as (VᵀXᵀ)ᵀ: OpenBLAS is up to twice as fast that way."""
    return product(X, V) if is_sparse(X) else (backend.contiguous(V.T) @ X.T).T


def subtract_row(Y: Array, row: Array) -> Array:
    """Return Y less a row, in place; NumPy is slow with many short rows, so several go at once."""
    n, q = Y.shape
    if n < MANY_ROWS or not 0 < q <= SHORT_ROW or is_foreign(Y) or not Y.flags.c_contiguous:
        Y -= row
        return Y
    times = SUBTRACTED // q
    whole = n - n % times
    many = Y[:whole].reshape(-1, times * q)
    many -= np.tile(row, times)
    Y[whole:] -= row
    return Y


MANY_ROWS, SHORT_ROW, SUBTRACTED = 4096, 64, 2048
"""Rows, and entries of each, for which `subtract_row` repeats the row to so many entries."""

SMALL_PRODUCT = 1e6
"""Multiply-adds of the largest product for which OpenBLAS has kernels that copy nothing."""

WORTH_A_COPY = 32
"""Rows from which the other factor is worth a copy in row order."""


def in_small_products(C: Array, V: Array) -> Array | None:
    """Return C @ V on one thread, (n, k), some rows at a time; None where that is not faster.

    Before a product OpenBLAS copies its factors to where its kernels want them, which for few
    columns takes as long as the product itself. Where it has kernels for small products, rows are
    multiplied where they are: up to 1.9 times as fast.
    """
    (n, d), k = C.shape, int(V.shape[1])
    if n < WORTH_A_COPY or k * d == 0 or is_foreign(C) or C.dtype != np.float64:
        return None
    most = int(SMALL_PRODUCT) // (k * d)
    step = most - most % 12 if most >= 12 else 8  # what the kernels take at once
    if most < 8 or C.strides[1] != C.itemsize or not has_small_products():
        return None
    V, found, whole = np.ascontiguousarray(V), np.empty((n, k)), n - n % step
    if whole:
        np.matmul(C[:whole].reshape(-1, step, d), V, out=found[:whole].reshape(-1, step, k))
    if whole < n:
        np.matmul(C[whole:], V, out=found[whole:])
    return found


def rows_times(C: Array, V: Array) -> Array:
    """Return C @ V of a block of rows, (n, k), for a V of few columns, on one thread."""
    found = in_small_products(C, V)
    return thin_product(C, V) if found is None else found


def dot(A: Array, B: Array) -> Array:
    """Return A @ B, dense; other threads run meanwhile.

    NumPy's `@` keeps the interpreter to itself where the result holds 500 numbers or fewer, however
    long its sums are; its `dot` never does.
    """
    return A @ B if is_foreign(A) else np.dot(A, B)


def gram(C: Array) -> Array:
    """Return CᵀC, dense and float64. NumPy and torch use the symmetric product."""
    if is_sparse(C):
        C = C.astype(np.float64)
        return np.asarray((C.T @ C).toarray())
    return dot(C.T, C)


def can_fuse_scatter(X: Array) -> bool:
    """Return True for float32 rows whose second moments a Triton program can gather."""
    single = X.ndim == 2 and X.dtype == namespace(X).float32 and X.stride(1) == 1
    return single and X.shape[1] <= MOST_FUSED and find_spec("triton") is not None


def fused_scatter(
    X: Array, shift: Array, weights: Array | None, sample: Array
) -> tuple[Array, Array] | None:
    """Return Σw(x − shift) and Σw(x − shift)(x − shift)ᵀ of float32 rows: see `fused_scatter`."""
    from dualpca.arrays.fused_scatter import second_moments

    return second_moments(X, shift, weights, sample)


MOST_FUSED = 2**13
"""Columns up to which tiles of sums over rows are gathered: 256 MB each."""


def taxicab(X: Array, Y: Array) -> Array:
    """Return Σ_c |x_ic − y_jc|, (n, m); no third axis is ever formed."""
    xp = namespace(X)
    if not is_foreign(X):
        return np.asarray(cdist(X, Y, "cityblock"), dtype=X.dtype)
    total = xp.zeros((X.shape[0], Y.shape[0]), dtype=X.dtype, device=backend.device_of(X))
    for c in range(X.shape[1]):
        total = total + xp.abs(X[:, c][:, None] - Y[:, c][None, :])
    return total


def require_shape(name: str, A: Array, *shape: int | str) -> None:
    """Raise unless an array has this shape; letters stand for any size."""
    pairs = zip(shape, A.shape, strict=False)
    if len(A.shape) != len(shape) or any(a != b for a, b in pairs if not isinstance(a, str)):
        what = f"of shape {shape}".replace("'", "")
        raise ValueError(expected(name, what, tuple(A.shape)))


def safe_divisor(A: Array) -> Array:
    """Return A with 1 in place of entries that are not positive."""
    xp = namespace(A)
    return xp.where(A > 0, A, xp.ones_like(A))


def row_magnitudes(X: Array) -> Array:
    """Return the power of two at or below the largest entry of every row, (n,); 1 for zeros.

    Divided by it, entries have squares that can be held, and no digit is lost.
    """
    xp = namespace(X)
    largest = xp.max(xp.abs(X), axis=1)
    largest = xp.where(xp.isfinite(largest), largest, xp.zeros_like(largest))
    return 2.0 ** xp.floor(xp.log2(safe_divisor(largest)))


def at_most_zero(A: Array) -> Array:
    """Return min(A, 0), in place where the library can."""
    if not is_foreign(A):
        return np.minimum(A, 0.0, out=A)
    xp = namespace(A)
    return xp.where(A > 0, xp.zeros_like(A), A)


def exp(A: Array) -> Array:
    """Return exp(A), in place where the library can."""
    return namespace(A).exp(A) if is_foreign(A) else np.exp(A, out=A)


def log_sum_exp(A: Array) -> tuple[Array, Array]:
    """Return ln Σ_k exp(a_ik), (n,), and the shares exp(a_ik) / Σ_k exp(a_ik), (n, K)."""
    xp = namespace(A)
    top = xp.max(A, axis=1, keepdims=True)
    P = exp(A - top)
    total = xp.sum(P, axis=1, keepdims=True)
    return (top + xp.log(total))[:, 0], P / total


DIRECT_ORDER = 200
"""Largest matrix for which LAPACK is called without SciPy's checks, which last as long."""


def few_per_pair(m: int) -> int:
    """Return how many eigenpairs can be left out for each one wanted before a subset is cheaper."""
    return 9 if m <= ALL_PAIRS else 7 if m <= 300 else 3


def top_eigh(A: Array, rank: int) -> tuple[Array, Array]:
    """Return the `rank` largest eigenvalues of A, ascending, with eigenvectors. Overwrites A."""
    m = A.shape[0]
    if rank == 0:
        return backend.empty((0,), A), A[:, :0]
    options: dict[str, Any] = {"overwrite_a": True, "check_finite": False}
    if is_foreign(A):
        values, vectors = namespace(A).linalg.eigh(A)
    elif m <= ALL_PAIRS and few_per_pair(m) * rank > m:
        values, vectors = _small_eigh(A)
    elif m > ALL_PAIRS and m <= COPIED_ORDER and 3 * rank > m:
        with _waiting(m, A):
            values, vectors = np.linalg.eigh(A)
    elif few_per_pair(m) * rank > m:
        values, vectors = scipy.linalg.eigh(A, driver="evd", **options)
    else:
        diagonal, wanted = A.diagonal().copy(), [m - rank, m - 1]
        with _waiting(m, A):
            if m <= DIRECT_ORDER and A.flags.c_contiguous and A.dtype == np.float64:
                found = dsyevr(A.T, range="I", il=m - rank + 1, iu=m, lower=0, overwrite_a=1)
                values, vectors = found[0][: found[2]], found[1][:, : found[2]]
            else:
                found = scipy.linalg.eigh(A, subset_by_index=wanted, driver="evr", **options)
                values, vectors = found
        if values.shape[0] < rank:
            # LAPACK's evr drops some of many equal ones, and has overwritten the diagonal and the
            # lower triangle; the upper one still holds A
            np.fill_diagonal(A, diagonal)
            values, vectors = scipy.linalg.eigh(A, lower=False, driver="evd", **options)
    return values[-rank:], vectors[:, -rank:]


def _small_eigh(A: Array) -> tuple[Array, Array]:
    """Return all eigenpairs of a small matrix; LAPACK is called without NumPy's checks."""
    with _waiting(int(A.shape[0]), A):
        if A.dtype == np.float64 and A.flags.c_contiguous:
            values, vectors, failed = dsyevd(A.T, lower=0)
            if not failed:
                return values, vectors
        values, vectors = np.linalg.eigh(A)  # says what is wrong
        return values, vectors


SMALL_ORDER = 512
"""Order up to which threads of BLAS wait for each other more than they work on eigenpairs."""


def _waiting(m: int, A: Array) -> AbstractContextManager[None]:
    """Return a context for the eigenpairs of a matrix of order m."""
    return one_thread(min(10.0 * m**3, backend.THREADS_WAIT) if m <= SMALL_ORDER else math.inf, A)


def triangular_factor(A: Array) -> Array:
    """Return R of the QR decomposition of A."""
    if is_foreign(A):
        return namespace(A).linalg.qr(A, mode="reduced").R
    m, k = A.shape
    if m * k <= SMALL_QR:
        with one_thread(2.0 * m * k * k, A):
            return np.linalg.qr(A, mode="r")
    return scipy.linalg.qr(A, mode="r", check_finite=False)[0][: A.shape[1], :]


def cholesky_qr(A: Array) -> tuple[Array, Array] | None:
    """Return Q and R of a tall A by two Cholesky factorisations of Gram matrices, or None.

    Many times faster than reflections, and as orthogonal where the condition number of A, its
    columns brought to one length, is below 1e7 (Yamamoto et al. 2015); None where it is not, or
    where A is not tall.
    """
    quick = not is_foreign(A) or backend.on_cuda(A)
    if not quick or A.ndim != 2 or A.shape[0] < TALL_RATIO * max(A.shape[1], 1):
        return None
    if backend.on_cuda(A):
        return _queued_cholesky_qr(A)
    xp, Q, R = namespace(A), A, backend.identity(A.shape[1], A)
    for _ in range(2):
        G = Q.T @ Q
        lengths = xp.sqrt(xp.linalg.diagonal(G))
        if not bool(xp.min(lengths) > 0):
            return None
        try:
            factor = xp.linalg.cholesky(G / lengths[:, None] / lengths)
        except Exception as error:
            if not backend.is_linalg_error(error):
                raise
            return None
        pivots = xp.linalg.diagonal(factor)
        if not bool(xp.min(pivots) > 1e-6 * xp.max(pivots)):
            return None
        factor = factor * lengths[:, None]
        Q = Q @ xp.linalg.inv(factor).T  # NumPy alone: SciPy's BLAS has threads of its own
        R = factor.T @ R
    return Q, R


def _queued_cholesky_qr(A: Array) -> tuple[Array, Array] | None:
    """Return the same on a GPU, which is asked once whether all went well: at the end."""
    xp, Q, R, fine = namespace(A), A, None, None
    for _ in range(2):
        G = Q.T @ Q
        lengths = xp.sqrt(xp.linalg.diagonal(G))
        factor, failed = backend.tried_cholesky(G / lengths[:, None] / lengths)
        pivots = xp.linalg.diagonal(factor)
        good = (failed == 0) & (xp.min(pivots) > 1e-6 * xp.max(pivots)) & (xp.min(lengths) > 0)
        factor = factor * lengths[:, None]
        Q = backend.divided_by_triangle(Q, factor)
        R, fine = (factor.T, good) if R is None else (factor.T @ R, good & fine)
    return (Q, R) if bool(fine) else None


def orthonormal(A: Array) -> Array:
    """Return Q of the QR decomposition of A, signed so that R has a non-negative diagonal."""
    fast = cholesky_qr(A)
    if fast is not None:
        return fast[0]
    xp = namespace(A)
    entries = float(A.shape[0] * A.shape[1]) if A.ndim == 2 else math.inf
    work = min(4 * entries * A.shape[-1], backend.THREADS_WAIT) if entries <= SMALL_QR else math.inf
    with one_thread(work, A, entries):
        Q, R = xp.linalg.qr(A, mode="reduced")
    one = xp.ones_like(xp.linalg.diagonal(R))
    return Q * xp.where(xp.linalg.diagonal(R) < 0, -one, one)


def svd(A: Array) -> tuple[Array, Array, Array]:
    """Return the thin singular value decomposition U, s, Vᵀ."""
    fast = cholesky_qr(A)
    if fast is not None:
        U, s, Vt = namespace(A).linalg.svd(fast[1])
        return fast[0] @ U, s, Vt
    if is_foreign(A):
        if backend.on_cuda(A) and A.shape[0] >= TALL_RATIO * A.shape[1]:
            # minutes for a million rows, unless reflections come first
            Q, R = namespace(A).linalg.qr(A, mode="reduced")
            U, s, Vt = namespace(A).linalg.svd(R)
            return Q @ U, s, Vt
        return tuple(namespace(A).linalg.svd(A, full_matrices=False))
    small = A.ndim == 2 and A.shape[0] * A.shape[1] <= SMALL_QR
    work = 20.0 * max(A.shape[0], A.shape[1]) * min(A.shape[0], A.shape[1]) ** 2 if small else 0.0
    with one_thread(min(work, backend.THREADS_WAIT), A):
        U, s, Vt = np.linalg.svd(A, full_matrices=False)
        return U, s, Vt


def covariance_root(C: Array) -> Array:
    """Return F with FFᵀ = C, (..., q, q): Cholesky, or by eigenvectors where C is singular.

    Posterior covariances of latents are, up to rounding, where there is hardly any noise.
    """
    xp = namespace(C)
    try:
        return xp.linalg.cholesky(C)
    except Exception as error:
        if not backend.is_linalg_error(error):
            raise
    values, vectors = xp.linalg.eigh(C)
    return vectors * xp.sqrt(xp.where(values > 0, values, 0 * values))[..., None, :]


def solve_positive(A: Array, B: Array) -> Array:
    """Solve AX = B for a positive definite A. NumPy reads A's lower triangle and overwrites it."""
    if is_foreign(A):
        return namespace(A).linalg.solve(A, B)
    factor = scipy.linalg.cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
    return scipy.linalg.cho_solve(factor, B, check_finite=False)


def outer(W: Array) -> Array:
    """Return wwᵀ of every row w, (n, q, q)."""
    return W[:, :, None] * W[:, None, :]


class Triangle(NamedTuple):
    """How the lower triangle of a symmetric matrix is packed, row after row."""

    i: np.ndarray[tuple[int], np.dtype[np.int64]]  # (q(q+1)/2,), row of every packed entry
    j: np.ndarray[tuple[int], np.dtype[np.int64]]  # its column
    place: np.ndarray[tuple[int, int], np.dtype[np.int64]]  # (q, q), where entry (i, j) is packed


@lru_cache(maxsize=64)
def triangle(q: int) -> Triangle:
    """Return how symmetric (q, q) matrices are packed."""
    i, j = np.tril_indices(q)
    place = np.zeros((q, q), dtype=np.int64)
    place[i, j] = place[j, i] = np.arange(i.size)
    return Triangle(i, j, place)


def pack(A: Array) -> Array:
    """Return the lower triangles of symmetric matrices as rows, (…, q(q+1)/2)."""
    q = int(A.shape[-1])
    i, j, _ = triangle(q)
    return backend.take(namespace(A).reshape(A, (A.shape[0], q * q)), i * q + j, axis=1)


def unpack(rows: Array, q: int) -> Array:
    """Return the symmetric matrices of packed rows, (n, q, q)."""
    flat = backend.take(rows, triangle(q).place.ravel(), axis=1)
    return namespace(rows).reshape(flat, (rows.shape[0], q, q))


def quadratic(C: Array, W: Array) -> Array:
    """Return wᵀCw for every matrix C (n, q, q) and every row w of W (d, q), (n, d)."""
    xp = namespace(C)
    q = int(W.shape[1])
    return xp.reshape(C, (C.shape[0], q * q)) @ xp.reshape(outer(W), (W.shape[0], q * q)).T


def deterministic_signs(vectors: Array) -> Array:
    """Flip each column so that its entry of largest magnitude is positive."""
    return vectors * signs(vectors) if 0 not in vectors.shape else vectors


def signs(vectors: Array) -> Array:
    """Return the sign of the entry of largest magnitude of each column, (1, q); 1 for 0."""
    xp = namespace(vectors)
    largest = xp.argmax(xp.abs(vectors), axis=0)
    if not is_foreign(vectors):
        peaks = vectors[largest, np.arange(vectors.shape[1])][None, :]
        return np.where(peaks < 0, -1.0, 1.0)
    peaks = xp.take_along_axis(vectors, largest[None, :], axis=0)
    one = xp.ones_like(peaks)
    return xp.where(peaks < 0, -one, one)
