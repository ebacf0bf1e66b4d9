"""The only file that can tell NumPy from torch, CuPy or a SciPy sparse matrix.

Everything above works in float64 on whatever library and device the rows came from; results go
back to the dtype of the rows at the very end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cache, reduce
from math import isfinite
from typing import Any, TypeVar

import array_api_compat as compat
import numpy as np
import scipy.sparse

from dualpca.arrays import threads as _threads
from dualpca.arrays.types import Array, Namespace
from dualpca.errors import BackendError, ScaleError

EPS = float(np.finfo(np.float64).eps)
"""The relative rounding error of float64, in which all sums run."""

Item = TypeVar("Item")
Result = TypeVar("Result")

BLOCK_BYTES = 2**22
"""Target size of one block of rows in float64: large enough for BLAS, small beside any data."""

BLOCK_ROWS = 4096
GPU_BLOCKS = 64
"""How many times larger blocks are on a GPU."""


@cache
def _numpy() -> Namespace:
    return compat.array_namespace(np.empty(0))


_HOST = (np.ndarray, np.generic)
"""What NumPy owns, asked for so often that the tuple is made once."""


def is_sparse(X: Any) -> bool:
    """Return True if X is a SciPy sparse matrix or array."""
    return not isinstance(X, np.ndarray) and bool(scipy.sparse.issparse(X))


def is_sparse_tensor(X: Any) -> bool:
    """Return True if X is a sparse tensor of torch, of any layout."""
    return not isinstance(X, _HOST) and bool(compat.is_torch_array(X)) and _layout(X) != "strided"


def _layout(X: Array) -> str:
    return str(X.layout).removeprefix("torch.")


def by_rows(X: Array) -> Array:
    """Return a sparse tensor stored by rows (CSR); itself if it is."""
    return X if _layout(X) == "sparse_csr" else X.to_sparse_csr()


def sparse_on_host(X: Array) -> Array:
    """Return a CSR tensor as SciPy's matrix; without a copy of the entries where it is there."""
    parts = (X.values(), X.col_indices(), X.crow_indices())
    n, d = map(int, X.shape)
    return scipy.sparse.csr_array(tuple(part.cpu().numpy() for part in parts), shape=(n, d))


def dense_rows(X: Array, rows: slice) -> Array:
    """Return some rows of a CSR tensor, dense, in its dtype; entries stored twice add up."""
    xp, d = namespace(X), int(X.shape[1])
    ends = X.crow_indices()[rows.start : rows.stop + 1]
    n, kept = int(ends.shape[0]) - 1, slice(int(ends[0]), int(ends[-1]))
    of = xp.arange(n, device=X.device).repeat_interleave(ends[1:] - ends[:-1])
    out = xp.zeros(n * d, dtype=X.dtype, device=X.device)
    out.index_add_(0, of * d + X.col_indices()[kept], X.values()[kept])
    return xp.reshape(out, (n, d))


def dense_columns(X: Array, columns: slice) -> Array:
    """Return some columns of a CSR tensor, dense, in its dtype; O(entries of X)."""
    xp, (n, width) = namespace(X), (int(X.shape[0]), columns.stop - columns.start)
    which, ends = X.col_indices(), X.crow_indices()
    inside = (which >= columns.start) & (which < columns.stop)
    of = xp.arange(n, device=X.device).repeat_interleave(ends[1:] - ends[:-1])[inside]
    out = xp.zeros(n * width, dtype=X.dtype, device=X.device)
    out.index_add_(0, of * width + which[inside] - columns.start, X.values()[inside])
    return xp.reshape(out, (n, width))


def no_rows(X: Array) -> Array:
    """Return no rows of X, of its library, device and dtype; dense for a sparse tensor."""
    return dense_rows(X, slice(0, 0)) if is_sparse_tensor(X) else X[:0, :]


def is_plain(X: Any) -> bool:
    """Return True if X is a dense matrix of NumPy in float64 or float32, and no subclass of one.

    Nothing in it is masked, named, on disk or elsewhere: most checks can be left out.
    """
    return type(X) is np.ndarray and X.ndim == 2 and X.dtype.char in "df" and X.dtype.isnative


def is_foreign(X: Any) -> bool:
    """Return True if X is an array of a library other than NumPy (torch, CuPy, ...)."""
    return not isinstance(X, _HOST) and bool(compat.is_array_api_obj(X))


def on_cuda(X: Any) -> bool:
    """Return True if X is a torch tensor on an NVIDIA GPU."""
    return not isinstance(X, _HOST) and bool(compat.is_torch_array(X)) and bool(X.is_cuda)


def detached(X: Array) -> Array:
    """Return X without its history: torch would keep every step of a fit for its gradients."""
    return X.detach() if compat.is_torch_array(X) and X.requires_grad else X


def has_gradient(X: Array) -> bool:
    """Return True for a tensor of torch that requires gradients."""
    return bool(compat.is_torch_array(X)) and bool(X.requires_grad)


def namespace(X: Array) -> Namespace:
    """Return the array-API namespace that owns X; NumPy's for sparse matrices."""
    if isinstance(X, _HOST):
        return _numpy()
    return compat.array_namespace(X) if is_foreign(X) else _numpy()


def device_of(X: Array) -> Any:
    """Return the device that holds X."""
    return compat.device(X) if is_foreign(X) else "cpu"


def describe(X: Array) -> str:
    """Name the library and device of X, for messages."""
    library = namespace(X).__name__.replace("array_api_compat.", "")
    return f"{library} on {device_of(X)}"


def require_same_home(X: Array, fitted: Array, method: str) -> None:
    """Refuse X when the model was fitted with another library or on another device."""
    if isinstance(X, _HOST) and isinstance(fitted, _HOST):
        return
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


def beside(values: np.ndarray[Any, Any], like: Array) -> Array:
    """Bring a host array to the library and device of `like`, in its own dtype; text stays."""
    if values.dtype.kind not in "biuf":
        return values
    return namespace(like).asarray(np.ascontiguousarray(values), device=device_of(like))


def alongside(A: Array, like: Array) -> Array:
    """Return A on the host where `like` is there, and as it is otherwise."""
    return to_numpy(A) if isinstance(like, _HOST) else A


def working(X: Array) -> Array:
    """Return X as float64 without a copy where it already is."""
    if isinstance(X, _HOST):
        return X if X.dtype == np.float64 else X.astype(np.float64)
    xp = namespace(X)
    return X if X.dtype == xp.float64 else xp.astype(X, xp.float64)


def eps_of(X: Array) -> float:
    """Return the relative rounding error of the entries of X; float64's where they are integers."""
    xp = namespace(X)
    return float(xp.finfo(X.dtype).eps) if xp.isdtype(X.dtype, "real floating") else EPS


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
    if Y.dtype == X.dtype:
        return Y
    xp = namespace(Y)
    limit = float(xp.finfo(X.dtype).max)
    if bool(xp.any(xp.abs(Y) > limit)):
        raise ScaleError(
            f"a result is beyond the range of {X.dtype}, the dtype of X. Divide X by a constant, "
            "or pass it as float64."
        )
    return xp.astype(Y, X.dtype)


def sum_is_finite(X: np.ndarray[Any, Any]) -> bool:
    """Return True if the sum of all entries is finite: then all of them are.

    One read, without a mask. It may overflow, which says nothing.
    """
    if X.dtype.kind != "f":
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return isfinite(np.add.reduce(X, axis=None))


def all_finite(X: Array) -> bool:
    """Return True if no entry is NaN or infinite."""
    if isinstance(X, np.ndarray) and sum_is_finite(X):
        return True
    xp = namespace(X)
    return bool(xp.all(xp.isfinite(X)))


def to_numpy(X: Array) -> np.ndarray[Any, Any]:
    """Copy X to the host."""
    if is_sparse(X):
        return np.asarray(X.toarray())
    if not is_foreign(X):
        return np.asarray(X)
    if is_sparse_tensor(X):
        return np.asarray(sparse_on_host(X).toarray())
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


def block_rows(width: int, like: Array | None = None) -> int:
    """Return how many rows of `width` float64 numbers make one block.

    Blocks on a GPU are 64 times as large: small ones would leave it idle.
    """
    times = GPU_BLOCKS if on_cuda(like) else 1
    return max(64, min(times * BLOCK_ROWS, times * BLOCK_BYTES // (8 * max(width, 1))))


def slices(length: int, step: int) -> Iterator[slice]:
    """Cut range(length) into consecutive slices."""
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


def row_slices(X: Array) -> Iterator[slice]:
    """Cut the rows of X into blocks."""
    return slices(int(X.shape[0]), block_rows(int(X.shape[1]), X))


def spread(work: Callable[[list[Item]], Result], cut: Iterable[Item], like: Array) -> list[Result]:
    """Distribute slices (or tiles) to threads in consecutive runs; return `work(run)` of each.

    Small products run faster on one BLAS thread each, side by side, than one after another on
    all of them. Only NumPy needs this: other libraries have threads of their own.
    """
    items = list(cut)
    if is_foreign(like) or len(items) < 2 * _threads.available():
        return [work(items)]
    return _threads.side_by_side(work, items)


def stacked(of: Callable[[slice], Array], cut: Iterable[slice], like: Array) -> Array:
    """Return of(slice) of every slice, one below the other; NumPy's are computed by threads."""
    cut = list(cut)
    if len(cut) == 1:
        return of(cut[0])
    found = spread(lambda run: [of(part) for part in run], cut, like)
    return namespace(like).concat([part for run in found for part in run], axis=0)


def stacked_rows(of: Callable[..., Array], width: int, X: Array) -> Array:
    """Return of(rows), (b, width), of every block of rows of X, one below the other.

    NumPy's are written where they belong: `of(rows, out)` is given the place.
    """
    n, step = int(X.shape[0]), block_rows(int(X.shape[1]), X)
    if n <= step:
        return of(slice(0, n))
    if is_foreign(X):
        return stacked(of, slices(n, step), X)
    found = np.empty((n, width))

    def work(run: list[slice]) -> None:
        for rows in run:
            of(rows, found[rows])

    spread(work, slices(n, step), X)
    return found


def summed(
    of: Callable[[slice], Result],
    plus: Callable[[Result, Result], Result],
    X: Array,
    step: int | None = None,
) -> Result:
    """Return the sum of `of(rows)` over all blocks of rows of X; threads share NumPy's.

    Blocks, runs of them and the order of the sum depend on the shape of X alone, so that every
    number of threads finds the same. Where blocks are few, BLAS keeps its threads, whose last bits
    may be others, unless `threads_outside` has taken them. `plus` may change its first argument.
    `step` is the number of rows of a block, that of `block_rows` by default.
    """
    step = block_rows(X.shape[1], X) if step is None else step
    cut = list(slices(X.shape[0], step))
    size = max(1, BLOCK_BYTES // (8 * step * max(X.shape[1], 1)))
    runs = [cut[k : k + size] for k in range(0, len(cut), size)]

    def work(run: list[slice]) -> Result:
        return reduce(plus, map(of, run))

    few = len(cut) < 2 * _threads.available() and not _threads.is_outside()
    if is_foreign(X) or few:
        return reduce(plus, map(work, runs))
    return _threads.folded(work, plus, runs)


def threads_outside(like: Array) -> AbstractContextManager[None]:
    """Return a context in which BLAS has one thread and `spread` all that were allowed."""
    return nullcontext() if is_foreign(like) else _threads.outside()


BLAS_ALONE, BLAS_ALONE_VECTOR = 2**18, 9000
"""Multiply-adds up to which BLAS uses one thread by itself: of a product of matrices, and of one
with a vector."""

THREADS_WAIT = 2e7
"""Multiply-adds, some milliseconds, up to which threads gain less than they lose on busy cores."""


def one_thread(work: float, like: Array, vectors: float = 0.0) -> AbstractContextManager[None]:
    """Return a context in which BLAS has one thread if `work`, in multiply-adds, is little.

    `vectors` are the multiply-adds of the largest product with a vector in it.
    """
    if work > THREADS_WAIT or (work <= BLAS_ALONE and vectors <= BLAS_ALONE_VECTOR):
        return nullcontext()
    if is_foreign(like):
        return nullcontext()
    return _threads.alone()


def row_block(X: Array, rows: slice) -> Array:
    """Return a dense float64 block of rows; a view where X is dense float64."""
    if is_sparse(X):
        return np.asarray(X[rows].toarray(), dtype=np.float64)
    return working(dense_rows(X, rows) if is_sparse_tensor(X) else X[rows, :])


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
    if is_sparse_tensor(X):
        zeros = namespace(X).zeros((1, 1), dtype=X.dtype, device=device_of(X))
        return zeros.expand(int(X.shape[0]), 1)
    return X


def column_block(X: Array, columns: slice) -> Array:
    """Return a dense float64 block of columns; a view where X is dense float64."""
    if is_sparse(X):
        return np.asarray(X[:, columns].toarray(), dtype=np.float64)
    return working(dense_columns(X, columns) if is_sparse_tensor(X) else X[:, columns])


def rowwise(X: Array) -> Array:
    """Return X in a layout whose rows can be sliced: CSC and the like become CSR."""
    return X.tocsr() if is_sparse(X) else X


def contiguous(A: Array) -> Array:
    """Return A laid out row by row, which is what makes products with a thin block fast."""
    return A if is_foreign(A) else np.ascontiguousarray(A)


def take(A: Array, index: Any, axis: int = 0) -> Array:
    """Return the rows (entries, columns) of A with these numbers, which may be on the host."""
    if isinstance(A, np.ndarray):
        return A.take(index, axis=axis)
    if is_sparse(A):
        return A[index] if axis == 0 else A[:, index]
    xp = namespace(A)
    return xp.take(A, xp.asarray(index, device=device_of(A)), axis=axis)


def descending(values: Array) -> Array:
    """Return the order that sorts a vector, largest first; equal ones stay in their order."""
    if isinstance(values, np.ndarray):
        return np.argsort(-values, kind="stable")
    return namespace(values).argsort(values, descending=True, stable=True)


def replaced(A: Array, rows: np.ndarray[Any, Any], B: Array) -> Array:
    """Return a copy of A in which B stands for the rows with these numbers."""
    n = int(A.shape[0])
    source = np.arange(n)
    source[rows] = n + np.arange(len(rows))
    return take(namespace(A).concat([A, B], axis=0), source)


def tried_cholesky(A: Array) -> tuple[Array, Array]:
    """Return the lower factor of a tensor, and a number that is 0 if there is one; no waiting."""
    found: tuple[Array, Array] = namespace(A).linalg.cholesky_ex(A)
    return found


def divided_by_triangle(A: Array, L: Array) -> Array:
    """Return A L⁻ᵀ of tensors, L a small lower triangle.

    By its inverse: solving takes a GPU minutes for a million rows, and an inverse of torch four
    times as long as that of a triangle.
    """
    xp = namespace(L)
    return A @ xp.linalg.solve_triangular(L, identity(int(L.shape[0]), L), upper=False).T


def is_linalg_error(error: Exception) -> bool:
    """Return True if a factorisation failed, in any library."""
    return type(error).__name__.lstrip("_") == "LinAlgError"
