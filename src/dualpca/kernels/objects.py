"""Gradients by central differences, for kernels known only through their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.errors import expected
from dualpca.kernels.base import Kernel, is_number

# --- Gradients by central differences, for kernels known only through their values ---------------

STEP = 6e-6
"""Cube root of the rounding error of float64: the step that errs least, beside entries of 1."""


def central_pull(of: Callable[[Array], Array], Z: Array, C: Array) -> Array:
    """Return Σ_j C_ij ∂k(z_i, y_j)/∂z_i, (n, d), where of(Z) = k(z_i, y_j).

    Two evaluations of the kernel for each of the d columns, in float64; about ten digits.
    """
    xp = backend.namespace(Z)
    C = backend.working(C)
    return central_diag_gradient(lambda X: xp.sum(C * backend.working(of(X)), axis=1), Z)


def central_diag_gradient(of: Callable[[Array], Array], Z: Array) -> Array:
    """Return ∂f(z_i)/∂z_i, (n, d), of a function of each row, (n, d) ↦ (n,).

    Examples
    --------
    >>> import numpy as np
    >>> central_diag_gradient(lambda Z: Z[:, 0] ** 2, np.array([[3.0, 1.0]])).round(6)
    array([[6., 0.]])
    """
    xp = backend.namespace(Z)
    W = backend.working(Z)
    columns = []
    for c in range(W.shape[1]):
        unit = backend.identity(int(W.shape[1]), W)[c, :][None, :]
        size = xp.abs(W[:, c])
        h = STEP * xp.where(size > 1, size, xp.ones_like(size))
        above, below = W + h[:, None] * unit, W - h[:, None] * unit
        # what was added after rounding, not what was asked for
        width = above[:, c] - below[:, c]
        columns.append(backend.working(of(above) - of(below)) / width)
    return xp.astype(xp.stack(columns, axis=1), Z.dtype)


# --- Kernels of anything: a function of two items, or a matrix of values already there -----------
#
# Neither is in `KERNELS`: one needs a function, the other's rows are no points.


@dataclass(frozen=True)
class Function(Kernel):
    """`k(x, y) = f(x, y, **params)` for any function of two items: rows, strings, graphs.

    Items come as the rows of a two-dimensional array, or as a list, tuple or one-dimensional
    array of objects. f must be symmetric; where both sides are the same object, only one half is
    evaluated. Models look whether the kernel is positive semi-definite.
    Gradients are central differences, for rows of numbers only. O(nm) calls of f.

    Parameters
    ----------
    function : callable
        f(x, y) -> float.
    params : mapping, optional
        Keyword arguments for f, as scikit-learn's kernel_params.

    Examples
    --------
    >>> def shared_letters(a, b):
    ...     return len(set(a) & set(b))
    >>> Function(shared_letters)(["abc", "cd"], ["ab", "d", "cab"])
    array([[2., 0., 3.], [0., 1., 1.]])
    """

    definite: ClassVar[bool] = False  # not known to be
    function: Callable[..., Any]
    params: Any = ()

    def __post_init__(self) -> None:
        """Keep the keyword arguments as pairs, so that kernels can be hashed."""
        if not callable(self.function):
            raise TypeError(expected("function", "callable", self.function))
        given: Any = {} if self.params is None else self.params
        pairs = given.items() if isinstance(given, Mapping) else given
        object.__setattr__(self, "params", tuple(sorted(dict(pairs).items())))
        super().__post_init__()

    def _seen(self, X: Any) -> Any:
        if self.on is not None and getattr(X, "ndim", 1) != 2:
            what = "rows of a table where `on` names columns"
            raise ValueError(expected("items", what, type(X).__name__, "Leave `on` out."))
        return super()._seen(X)

    def _value(self, x: Any, y: Any) -> float:
        value = self.function(x, y, **dict(self.params))
        one = value.item() if getattr(value, "shape", None) in ((), (1,), (1, 1)) else value
        if not is_number(one) and not isinstance(one, bool):
            raise ValueError(expected("the kernel's function", "returning a finite number", value))
        return float(one)

    def _against(self, Y: Any) -> Callable[[Any], Array]:
        right = items(Y)

        def of(X: Any) -> Array:
            if X is Y:
                return _result(self._symmetric(right), X)
            K = [[self._value(x, y) for y in right] for x in items(X)]
            return _result(np.reshape(np.asarray(K, dtype=float), (len(K), len(right))), X)

        return of

    def _symmetric(self, X: list[Any]) -> np.ndarray[Any, Any]:
        """Return k(x_i, x_j) from its lower triangle."""
        K = np.empty((len(X), len(X)))
        for i, x in enumerate(X):
            for j, y in enumerate(X[: i + 1]):
                K[i, j] = K[j, i] = self._value(x, y)
        return K

    def _diag(self, X: Any) -> Array:
        return _result(np.asarray([self._value(x, x) for x in items(X)], dtype=float), X)

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        _require_vectors(Z)
        _require_vectors(Y)
        return central_pull(self._against(backend.working(Y)), Z, C)

    def _diag_gradient(self, Z: Array) -> Array:
        _require_vectors(Z)
        return central_diag_gradient(self._diag, Z)


@dataclass(frozen=True)
class Precomputed(Kernel):
    """Values that are already there: X holds k(x_i, training item j), and k(X, Y) is X.

    Fit on the square, symmetric matrix of the training items; afterwards give the rows of new
    items against them. The diagonal k(x_i, x_i) is that of a symmetric matrix; for new items it
    is not in X, so `diag` then needs `diagonal`, the value that all items share.

    Parameters
    ----------
    diagonal : float, optional
        k(x, x), where it is the same for all items: 1 for normalised kernels.

    Examples
    --------
    >>> import numpy as np
    >>> K = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> Precomputed()(K, K) is K, Precomputed().diag(K)
    (False, array([2., 3.]))
    """

    definite: ClassVar[bool] = False  # not known to be
    diagonal: float | None = None

    def _check(self) -> None:
        if self.on is not None:
            raise ValueError(expected("on", "None: the columns are training items", self.on))
        if self.diagonal is not None and not (is_number(self.diagonal) and self.diagonal >= 0):
            raise ValueError(expected("diagonal", "a number from 0, or None", self.diagonal))

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        m = int(Y.shape[0])

        def of(X: Array) -> Array:
            if X.shape[1] != m:
                what = f"rows of kernel values against the {m} training items"
                raise ValueError(expected("X", what, tuple(X.shape)))
            return backend.namespace(X).asarray(X, copy=True)

        return of

    def _diag(self, X: Array) -> Array:
        xp = backend.namespace(X)
        if self.diagonal is not None:
            return float(self.diagonal) * backend.ones((int(X.shape[0]),), X)
        if X.shape[0] != X.shape[1] or not _is_symmetric(X):
            what = "the symmetric kernel matrix of the training items, to have their k(x, x)"
            remedy = "Give Precomputed(diagonal=...) if it is the same for all items."
            raise ValueError(expected("X", what, tuple(X.shape), remedy))
        return xp.asarray(xp.linalg.diagonal(X), copy=True)

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        raise TypeError(
            expected("kernel", "a function of points to have a gradient", self, "Give the points.")
        )

    def _diag_gradient(self, Z: Array) -> Array:
        return self._pull(Z, Z, Z)


def items(X: Any) -> list[Any]:
    """Return the rows of a table, or the items of a list or one-dimensional array."""
    if isinstance(X, str) or not (isinstance(X, Iterable) or hasattr(X, "shape")):
        raise TypeError(expected("items", "a list, or an array with one item a row", X))
    if getattr(X, "ndim", 1) not in (1, 2):
        raise ValueError(expected("items", "a list, or an array of rows", tuple(X.shape)))
    if backend.is_foreign(X):
        return [X[i, ...] for i in range(X.shape[0])]
    return list(X)


def _result(K: np.ndarray[Any, Any], X: Any) -> Array:
    """Return values in the library and floating dtype of X; float64 where X has none."""
    numeric = backend.is_foreign(X) or (isinstance(X, np.ndarray) and X.dtype.kind == "f")
    return backend.constants(K, X) if numeric else K


def _require_vectors(Z: Any) -> None:
    """Refuse items that have no derivative."""
    kind = getattr(getattr(Z, "dtype", None), "kind", "f")
    if getattr(Z, "ndim", 1) != 2 or kind != "f":
        what = "rows of real numbers, to have a gradient"
        remedy = "Items such as strings or graphs have none: use what needs kernel values only."
        raise TypeError(expected("items", what, type(Z).__name__, remedy))


def _is_symmetric(K: Array) -> bool:
    xp = backend.namespace(K)
    gap = float(xp.max(xp.abs(K - K.T))) if K.shape[0] else 0.0
    size = float(xp.max(xp.abs(K))) if K.shape[0] else 0.0
    return gap <= 1e3 * float(xp.finfo(K.dtype).eps) * size
