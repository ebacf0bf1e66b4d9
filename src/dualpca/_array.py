"""The only file that can tell NumPy from torch, CuPy or a SciPy sparse matrix.

Everything above works in float64 on whatever library and device the rows came from; results go
back to the dtype of the rows at the very end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import array_api_compat as compat
import numpy as np
import scipy.linalg
import scipy.sparse
from scipy.spatial.distance import cdist

from dualpca import _threads
from dualpca._typing import Array, Namespace
from dualpca.errors import BackendError, ScaleError

Item = TypeVar("Item")
Result = TypeVar("Result")

BLOCK_BYTES = 2**22
"""Target size of one block of rows in float64: large enough for BLAS, small beside any data."""

BLOCK_ROWS = 4096
CARD = 64
"""How much more a graphics card takes at once."""

TALL = 32
"""Rows a column from which a matrix is tall."""


def is_sparse(X: Any) -> bool:
    """Tell whether X is a SciPy sparse matrix or array."""
    return bool(scipy.sparse.issparse(X))


def is_foreign(X: Any) -> bool:
    """Tell whether X is an array of a library other than NumPy (torch, CuPy, ...)."""
    return bool(compat.is_array_api_obj(X)) and not isinstance(X, np.ndarray | np.generic)


def on_cuda(X: Any) -> bool:
    """Tell whether X is a torch tensor on an NVIDIA card."""
    return bool(compat.is_torch_array(X)) and bool(X.is_cuda)


def namespace(X: Array) -> Namespace:
    """Return the array-API namespace that owns X; NumPy's for sparse matrices."""
    return compat.array_namespace(X) if is_foreign(X) else compat.array_namespace(np.empty(0))


def device_of(X: Array) -> Any:
    """Return the device that holds X."""
    return compat.device(X) if is_foreign(X) else "cpu"


def describe(X: Array) -> str:
    """Name the library and device of X, for messages."""
    library = namespace(X).__name__.replace("array_api_compat.", "")
    return f"{library} on {device_of(X)}"


def require_same_home(X: Array, fitted: Array, method: str) -> None:
    """Refuse X when the model was fitted with another library or on another device."""
    if describe(X) != describe(fitted):
        raise BackendError(
            f"Inputs passed to {method}() must use the same namespace and the same device as those "
            f"passed to fit(): the model was fitted on {describe(fitted)}, X is {describe(X)}. "
            "Convert X, or fit again on arrays of this kind."
        )


def asarray(values: Any, like: Array) -> Array:
    """Bring host values to the library and device of `like`, as float64."""
    xp = namespace(like)
    if not is_foreign(like):
        return np.asarray(values, dtype=np.float64)
    return xp.asarray(values, dtype=xp.float64, device=device_of(like))


def working(X: Array) -> Array:
    """Return X as float64 without a copy where it already is."""
    xp = namespace(X)
    return X if X.dtype == xp.float64 else xp.astype(X, xp.float64)


def in_single(X: Array) -> Array:
    """Return X as float32."""
    xp = namespace(X)
    return X if X.dtype == xp.float32 else xp.astype(X, xp.float32)


def empty(shape: tuple[int, ...], like: Array, *, single: bool = False) -> Array:
    """Return an array of undefined numbers, float64 or float32, beside `like`."""
    xp = namespace(like)
    return xp.empty(shape, dtype=xp.float32 if single else xp.float64, device=device_of(like))


def cast_like(Y: Array, X: Array) -> Array:
    """Return Y in the floating dtype of X, unless Y is beyond its range."""
    xp = namespace(Y)
    if Y.dtype == X.dtype:
        return Y
    limit = float(xp.finfo(X.dtype).max)
    if bool(xp.any(xp.abs(Y) > limit)):
        raise ScaleError(
            f"a result is beyond the range of {X.dtype}, the dtype of X. Divide X by a constant, "
            "or pass it as float64."
        )
    return xp.astype(Y, X.dtype)


def to_numpy(X: Array) -> np.ndarray[Any, Any]:
    """Copy X to the host."""
    if is_sparse(X):
        return np.asarray(X.toarray())
    if not is_foreign(X):
        return np.asarray(X)
    if compat.is_torch_array(X):
        return np.asarray(X.detach().cpu().numpy())
    if compat.is_cupy_array(X):
        return np.asarray(X.get())
    host = namespace(X).__array_namespace_info__().default_device()
    return np.asarray(compat.to_device(X, host))


def normal(rng: np.random.Generator, shape: tuple[int, ...], like: Array) -> Array:
    """Draw standard normals on the host, then move them, so that every library agrees."""
    return asarray(rng.standard_normal(shape), like)


def ones(shape: tuple[int, ...], like: Array) -> Array:
    """Return ones of the dtype, library and device of `like`."""
    if is_sparse(like):
        return np.ones(shape, dtype=like.dtype)
    return namespace(like).ones(shape, dtype=like.dtype, device=device_of(like))


def constants(values: Any, like: Array) -> Array:
    """Bring host values to the dtype, library and device of `like`."""
    return namespace(like).astype(asarray(values, like), like.dtype)


def identity(order: int, like: Array) -> Array:
    """Return the identity matrix, of the dtype, library and device of `like`."""
    return namespace(like).eye(order, dtype=like.dtype, device=device_of(like))


def at_most_zero(A: Array) -> Array:
    """Return min(A, 0), in place where the library can."""
    if not is_foreign(A):
        return np.minimum(A, 0.0, out=A)
    xp = namespace(A)
    return xp.where(A > 0, xp.zeros_like(A), A)


def exp(A: Array) -> Array:
    """Return exp(A), in place where the library can."""
    return namespace(A).exp(A) if is_foreign(A) else np.exp(A, out=A)


def taxicab(X: Array, Y: Array) -> Array:
    """Return Σ_c |x_ic − y_jc|, (n, m); no third axis is ever formed."""
    xp = namespace(X)
    if not is_foreign(X):
        return np.asarray(cdist(X, Y, "cityblock"), dtype=X.dtype)
    total = xp.zeros((X.shape[0], Y.shape[0]), dtype=X.dtype, device=device_of(X))
    for c in range(X.shape[1]):
        total = total + xp.abs(X[:, c][:, None] - Y[:, c][None, :])
    return total


def block_rows(width: int, like: Array | None = None) -> int:
    """Return how many rows of `width` float64 numbers make one block.

    A graphics card takes blocks 64 times as large: small ones would leave it waiting for orders.
    """
    times = CARD if on_cuda(like) else 1
    return max(64, min(times * BLOCK_ROWS, times * BLOCK_BYTES // (8 * max(width, 1))))


def slices(length: int, step: int) -> Iterator[slice]:
    """Cut range(length) into consecutive slices."""
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


def spread(work: Callable[[list[Item]], Result], cut: Iterable[Item], like: Array) -> list[Result]:
    """Share slices (or tiles) out to threads in consecutive runs; return what `work` makes of each.

    Small products run faster on one BLAS thread each, side by side, than one after another on
    all of them. Only NumPy needs this: other libraries have threads of their own.
    """
    runs = [list(cut)]
    if is_foreign(like) or len(runs[0]) < 2 * _threads.available():
        return [work(run) for run in runs]
    return _threads.side_by_side(work, runs[0])


def threads_outside(like: Array) -> AbstractContextManager[None]:
    """Return a context in which BLAS has one thread and `spread` all that were allowed."""
    return nullcontext() if is_foreign(like) else _threads.outside()


def row_block(X: Array, rows: slice) -> Array:
    """Return a dense float64 block of rows; a view where X is dense float64."""
    if is_sparse(X):
        return np.asarray(X[rows].toarray(), dtype=np.float64)
    return working(X[rows, :])


def room(rows: int, width: int, like: Array) -> Array:
    """Return space for a block of rows in float64, to be used again and again."""
    return empty((rows, width), like)


def centred_block(X: Array, rows: slice, shift: Array, room: Array) -> Array:
    """Return a dense block of rows less `shift`, float64, in the space given where that helps.

    NumPy then widens and subtracts in one read, and asks for no memory.
    """
    if is_foreign(X):
        return row_block(X, rows) - shift
    return np.subtract(X[rows, :], shift, out=room[: rows.stop - rows.start, :])


def some_rows(X: Array, rows: slice) -> Array:
    """Return a slice of rows (or items) as it is: dense, sparse or one-dimensional."""
    return X[rows] if is_sparse(X) else X[rows, ...]


def points(X: Array) -> Array:
    """Return rows in float64, sparse or dense; items of other kinds as they are."""
    if is_sparse(X):
        return X if X.dtype == np.float64 else X.astype(np.float64)
    return X if X.ndim == 1 else working(X)


def copied(X: Array) -> Array:
    """Return a copy of rows or items."""
    return X.copy() if is_sparse(X) or not is_foreign(X) else namespace(X).asarray(X, copy=True)


def vector_like(X: Array) -> Array:
    """Return a dense array of as many rows, of the library and floating dtype of the points."""
    if is_sparse(X) or (not is_foreign(X) and X.dtype.kind not in "f"):
        dtype = X.dtype if X.dtype.kind == "f" else np.float64
        return np.broadcast_to(np.zeros((), dtype=dtype), (X.shape[0], 1))
    return X


def inner(X: Array, Y: Array) -> Array:
    """Return X Yᵀ, dense, for dense or sparse rows."""
    if not is_sparse(X) and not is_sparse(Y):
        return X @ Y.T
    product = X @ Y.T
    return np.asarray(product.toarray() if is_sparse(product) else product)


def squared_norms(X: Array) -> Array:
    """Return ‖x‖² of every row, (n,), for dense or sparse rows."""
    if is_sparse(X):
        return np.asarray(X.multiply(X).sum(axis=1)).reshape(-1)
    return namespace(X).sum(X * X, axis=1)


def column_block(X: Array, columns: slice) -> Array:
    """Return a dense float64 block of columns; a view where X is dense float64."""
    if is_sparse(X):
        return np.asarray(X[:, columns].toarray(), dtype=np.float64)
    return working(X[:, columns])


def rowwise(X: Array) -> Array:
    """Return X in a layout whose rows can be sliced: CSC and the like become CSR."""
    return X.tocsr() if is_sparse(X) else X


def product(X: Array, V: Array) -> Array:
    """Return X @ V, dense, for dense or sparse X."""
    return np.asarray(X @ V) if is_sparse(X) else X @ V


def thin_product(X: Array, V: Array) -> Array:
    """Return X @ V for a V of few columns, as (VᵀXᵀ)ᵀ: OpenBLAS is up to twice as fast that way."""
    return product(X, V) if is_sparse(X) else (contiguous(V.T) @ X.T).T


def contiguous(A: Array) -> Array:
    """Return A laid out row by row, which is what makes products with a thin block fast."""
    return A if is_foreign(A) else np.ascontiguousarray(A)


def take(A: Array, rows: Array) -> Array:
    """Return the rows (or entries) of A with these numbers, which may lie on the host."""
    if is_sparse(A):
        return A[rows]
    xp = namespace(A)
    return xp.take(A, xp.asarray(rows, device=device_of(A)), axis=0)


def replaced(A: Array, rows: np.ndarray[Any, Any], B: Array) -> Array:
    """Return a copy of A in which B stands for the rows with these numbers."""
    n = int(A.shape[0])
    source = np.arange(n)
    source[rows] = n + np.arange(len(rows))
    return take(namespace(A).concat([A, B], axis=0), source)


def gram(C: Array) -> Array:
    """Return CᵀC, dense and float64. NumPy and torch use the symmetric product."""
    if is_sparse(C):
        C = C.astype(np.float64)
        return np.asarray((C.T @ C).toarray())
    return C.T @ C


def top_eigh(A: Array, rank: int) -> tuple[Array, Array]:
    """Return the `rank` largest eigenvalues of A, ascending, with eigenvectors. Overwrites A."""
    m = A.shape[0]
    if is_foreign(A):
        values, vectors = namespace(A).linalg.eigh(A)
        return values[m - rank :], vectors[:, m - rank :]
    if 3 * rank > m:
        values, vectors = scipy.linalg.eigh(A, driver="evd", overwrite_a=True, check_finite=False)
        return values[m - rank :], vectors[:, m - rank :]
    diagonal = A.diagonal().copy()
    values, vectors = scipy.linalg.eigh(
        A, subset_by_index=[m - rank, m - 1], driver="evr", overwrite_a=True, check_finite=False
    )
    if values.shape[0] == rank:
        return values, vectors
    return _all_eigh(A, diagonal, rank)


def _all_eigh(
    A: np.ndarray[Any, Any], diagonal: np.ndarray[Any, Any], rank: int
) -> tuple[Array, Array]:
    """Return the last `rank` of all eigenpairs: LAPACK's evr drops some of many equal ones.

    It has overwritten the diagonal and the lower triangle; the upper one still holds A.
    """
    np.fill_diagonal(A, diagonal)
    values, vectors = scipy.linalg.eigh(
        A, lower=False, driver="evd", overwrite_a=True, check_finite=False
    )
    return values[A.shape[0] - rank :], vectors[:, A.shape[0] - rank :]


def triangular_factor(A: Array) -> Array:
    """Return R of the QR decomposition of A."""
    if is_foreign(A):
        return namespace(A).linalg.qr(A, mode="reduced").R
    return scipy.linalg.qr(A, mode="r", check_finite=False)[0][: A.shape[1], :]


def cholesky_qr(A: Array) -> tuple[Array, Array] | None:
    """Return Q and R of a tall A by two Cholesky factorisations of Gram matrices, or None.

    Many times faster than reflections, and as orthogonal where the condition number of A is
    below 1e7 (Yamamoto et al. 2015); None where it is not, or where A is not tall.
    """
    quick = not is_foreign(A) or on_cuda(A)
    if not quick or A.ndim != 2 or A.shape[0] < TALL * max(A.shape[1], 1):
        return None
    xp, Q, R = namespace(A), A, identity(A.shape[1], A)
    for _ in range(2):
        try:
            factor = xp.linalg.cholesky(Q.T @ Q)
        except Exception as error:
            if not is_linalg_error(error):
                raise
            return None
        pivots = xp.linalg.diagonal(factor)
        if not bool(xp.min(pivots) > 1e-6 * xp.max(pivots)):
            return None
        Q = Q @ xp.linalg.inv(factor).T  # NumPy alone: SciPy's BLAS has threads of its own
        R = factor.T @ R
    return Q, R


def orthonormal(A: Array) -> Array:
    """Return Q of the QR decomposition of A, signed so that R has a non-negative diagonal."""
    fast = cholesky_qr(A)
    if fast is not None:
        return fast[0]
    xp = namespace(A)
    Q, R = xp.linalg.qr(A, mode="reduced")
    one = xp.ones_like(xp.linalg.diagonal(R))
    return Q * xp.where(xp.linalg.diagonal(R) < 0, -one, one)


def solve_positive(A: Array, B: Array) -> Array:
    """Solve AX = B for a positive definite A. NumPy reads A's lower triangle and overwrites it."""
    if is_foreign(A):
        return namespace(A).linalg.solve(A, B)
    factor = scipy.linalg.cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
    return scipy.linalg.cho_solve(factor, B, check_finite=False)


def is_linalg_error(error: Exception) -> bool:
    """Tell whether a factorisation failed, in any library."""
    return type(error).__name__.lstrip("_") == "LinAlgError"


def svd(A: Array) -> tuple[Array, Array, Array]:
    """Return the thin singular value decomposition U, s, Vᵀ."""
    fast = cholesky_qr(A)
    if fast is not None:
        U, s, Vt = namespace(A).linalg.svd(fast[1])
        return fast[0] @ U, s, Vt
    U, s, Vt = namespace(A).linalg.svd(A, full_matrices=False)
    return U, s, Vt
