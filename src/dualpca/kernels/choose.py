"""From what a user gives (a name, a function, a matrix, a scikit-learn kernel) to a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from math import isinf
from operator import add
from typing import Annotated, Any, ClassVar, Protocol, TypeAlias, TypeGuard

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.data import Host
from dualpca.errors import expected
from dualpca.kernels.base import KERNELS, Kernel, is_finite_number, parameter_names
from dualpca.kernels.dot import Constant, Polynomial
from dualpca.kernels.stationary import RBF, Matern, Periodic, RationalQuadratic

# --- Kernels known only through their values: gradients by central differences -------------------

Items: TypeAlias = Array
"""The rows of a table, or a list of other objects."""

DIFFERENCE_STEP = 6e-6
"""Step of central differences for entries of 1: the cube root of float64's rounding error."""


def central_differences(function: Callable[[Array], Array], Z: Array) -> Array:
    """Return ∂f(z_i)/∂z_i, (n, d), of a function of each row, (n, d) ↦ (n,).

    Two evaluations of the function for each of the d columns, in float64; about ten digits.

    Examples
    --------
    >>> import numpy as np
    >>> central_differences(lambda Z: Z[:, 0] ** 2, np.array([[3.0, 1.0]])).round(6)
    array([[6., 0.]])
    """
    xp, W, eye = backend.namespace(Z), backend.working(Z), backend.identity(int(Z.shape[1]), Z)
    size, columns = xp.abs(W), []
    steps = DIFFERENCE_STEP * xp.where(size > 1, size, xp.ones_like(size))
    for c in range(W.shape[1]):
        step = steps * backend.working(eye[c : c + 1, :])
        above, below = W + step, W - step
        # the step after rounding
        width = above[:, c] - below[:, c]
        columns.append(backend.working(function(above) - function(below)) / width)
    return xp.astype(xp.stack(columns, axis=1), Z.dtype)


class Opaque(Kernel):
    """A kernel known only through its values. Subclasses define `_against` and `_diag`."""

    _quick = False

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        _require_gradients(Z, Y)
        xp, C, values = backend.namespace(Z), backend.working(C), self._against(backend.working(Y))
        return central_differences(lambda X: xp.sum(C * backend.working(values(X)), axis=1), Z)

    def _diag_gradient(self, Z: Array) -> Array:
        _require_gradients(Z)
        return central_differences(self._diag, Z)


def _require_gradients(*tables: Items) -> None:
    """Raise for items that have no derivative."""
    for Z in tables:
        kind = getattr(getattr(Z, "dtype", None), "kind", "f")
        if getattr(Z, "ndim", 1) != 2 or kind != "f":
            what = "rows of real numbers, to have a gradient"
            remedy = "Items such as strings or graphs have none: use what needs kernel values only."
            raise TypeError(expected("items", what, type(Z).__name__, remedy))


# --- Kernels of anything: a function of two items, or a matrix of values -------------------------
#
# Neither is in `KERNELS`: one needs a function, the other's rows are not points.

TRIED = 2, 3
"""Rows on which a function is tried, to see whether it is one of rows or of tables."""

DIAGONAL_ROWS = 32
"""Rows whose squares of values are computed at once for the diagonal."""


@dataclass(frozen=True)
class Function(Opaque):
    """A kernel from any function of two items: rows, strings, graphs.

    Items are the rows of a two-dimensional array, or a list, tuple or one-dimensional
    array of objects. f must be symmetric. Models check whether the kernel is positive
    semi-definite. Gradients are central differences, for rows of numbers only.

    Parameters
    ----------
    function : callable
        f(x, y) -> float, or f(X, Y) -> array of shape (n, m) for all pairs of rows at once.
    params : mapping, default=()
        Keyword arguments for f, as scikit-learn's kernel_params.
    vectorized : bool, default=None
        True for f(X, Y) -> array: one call for each block of rows. False for f(x, y) -> float:
        O(nm) calls, half of them where both sides are the same object. None tries the former
        on a few rows, and keeps it where the result is an array of that shape whose entries
        agree with calls of f for single rows, or where f accepts no single rows.
    on : sequence of int, default=None
        Columns that the kernel sees; None for all.

    Examples
    --------
    >>> def shared_letters(a, b):
    ...     return len(set(a) & set(b))
    >>> Function(shared_letters)(["abc", "cd"], ["ab", "d", "cab"])
    array([[2., 0., 3.], [0., 1., 1.]])
    >>> from sklearn.metrics.pairwise import rbf_kernel
    >>> Function(rbf_kernel, {"gamma": 1.0})(np.array([[0.0]]), np.array([[0.0], [1.0]])).round(4)
    array([[1.    , 0.3679]])
    """

    definite: ClassVar[bool] = False  # not known to be
    function: Callable[..., Any]
    params: Mapping[str, object] | tuple[tuple[str, object], ...] = ()
    vectorized: bool | None = None

    def __post_init__(self) -> None:
        """Keep the keyword arguments as pairs, so that kernels can be hashed."""
        if not callable(self.function):
            raise TypeError(expected("function", "callable", self.function))
        if self.vectorized not in (None, True, False):
            raise ValueError(expected("vectorized", "True, False or None", self.vectorized))
        object.__setattr__(self, "params", tuple(sorted(dict(self.params or ()).items())))
        super().__post_init__()

    def _seen(self, X: Items) -> Items:
        if self.on is not None and getattr(X, "ndim", 1) != 2:
            what = "rows of a table where `on` names columns"
            raise ValueError(expected("items", what, type(X).__name__, "Leave `on` out."))
        return super()._seen(X)

    def _value(self, x: object, y: object) -> float:
        value = self.function(x, y, **dict(self.params))
        one = value.item() if getattr(value, "shape", None) in ((), (1,), (1, 1)) else value
        if not is_finite_number(one) and not isinstance(one, bool):
            raise ValueError(expected("the kernel's function", "returning a finite number", value))
        return float(one)

    def _takes_rows(self, Y: Items) -> bool:
        """Return True if the function is one of all pairs of rows at once."""
        if self.vectorized is not None or getattr(Y, "ndim", 1) != 2:
            return bool(self.vectorized)
        X, Y, params = Y[: TRIED[0], :], Y[-TRIED[1] :, :], dict(self.params)
        try:
            block = np.asarray(backend.to_numpy(self.function(X, Y, **params)), dtype=float)
        except Exception:  # whatever a function of two rows makes of two tables
            return False
        if block.shape != (X.shape[0], Y.shape[0]) or not block.size:
            return False
        try:
            pairs = [[self._value(x, y) for y in items(Y)] for x in items(X)]
        except Exception:  # it accepts tables only
            return True
        return bool(np.allclose(block, pairs, rtol=1e-6, atol=1e-9))

    def _block(self, X: Array, Y: Array) -> Array:
        """Return f(X, Y), checked."""
        found = self.function(X, Y, **dict(self.params))
        K = np.asarray(backend.to_numpy(found), dtype=float)
        shape = int(X.shape[0]), int(Y.shape[0])
        if K.shape != shape or not np.isfinite(K).all():
            what = f"returning finite numbers of shape {shape}"
            remedy = "Give Function(f, vectorized=False) for a function of two rows."
            raise ValueError(expected("the kernel's function", what, K.shape, remedy))
        return _result(K, X)

    def _against(self, Y: Items) -> Callable[[Items], Array]:
        if self._takes_rows(Y):
            return lambda X: self._block(X, Y)
        right = items(Y)

        def values(X: Items) -> Array:
            left, same = right if X is Y else items(X), X is Y
            K = np.zeros((len(left), len(right)))
            for i, x in enumerate(left):
                row = [self._value(x, y) for y in (right[: i + 1] if same else right)]
                K[i, : len(row)] = row
            return _result(K + np.tril(K, -1).T if same else K, X)

        return values

    def _diag(self, X: Items) -> Array:
        if not self._takes_rows(X):
            return _result(np.asarray([self._value(x, x) for x in items(X)], dtype=float), X)
        xp, parts = backend.namespace(X), []
        for rows in backend.slices(int(X.shape[0]), DIAGONAL_ROWS):
            parts.append(xp.linalg.diagonal(self._block(X[rows, :], X[rows, :])))
        return xp.concat(parts)


@dataclass(frozen=True)
class Precomputed(Kernel):
    """Kernel values that are already known.

    Fit on the square, symmetric matrix of the training items; afterwards give the rows of new
    items against them. The diagonal k(x_i, x_i) is that of a symmetric matrix; for new items it
    is not in X, so `diag` then needs `diagonal`, the value that all items share.

    X holds k(x_i, training item j), and k(X, Y) is X.

    Parameters
    ----------
    diagonal : float, default=None
        k(x, x), where it is the same for all items: 1 for normalised kernels.
    on : sequence of int, default=None
        Columns that the kernel sees; None for all.

    Examples
    --------
    >>> import numpy as np
    >>> K = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> Precomputed()(K, K) is K, Precomputed().diag(K)
    (False, array([2., 3.]))
    """

    definite: ClassVar[bool] = False  # not known to be
    diagonal: Annotated[float, ">= 0, <= 1e305"] | None = None

    def _check(self) -> None:
        if self.on is not None:
            raise ValueError(expected("on", "None: the columns are training items", self.on))
        own = self.diagonal
        if own is not None and not (is_finite_number(own) and own >= 0):
            raise ValueError(expected("diagonal", "a number from 0, or None", own))

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        m = int(Y.shape[0])

        def values(X: Array) -> Array:
            if X.shape[1] != m:
                what = f"rows of kernel values against the {m} training items"
                raise ValueError(expected("X", what, tuple(X.shape)))
            return backend.namespace(X).asarray(X, copy=True)

        return values

    def _diag(self, X: Array) -> Array:
        xp, n = backend.namespace(X), int(X.shape[0])
        if self.diagonal is not None:
            return float(self.diagonal) * backend.ones((n,), X)
        limit = 1e3 * float(xp.finfo(X.dtype).eps) * float(xp.max(xp.abs(X))) if n else 0.0
        if n != X.shape[1] or not bool(xp.all(xp.abs(X - X.T) <= limit)):
            what = "the symmetric kernel matrix of the training items, to have their k(x, x)"
            remedy = (
                "Give Precomputed(diagonal=...) if it is the same for all items, or the method's "
            )
            remedy += "diagonal=... where it has one."
            raise ValueError(expected("X", what, tuple(X.shape), remedy))
        return xp.asarray(xp.linalg.diagonal(X), copy=True)


def items(X: Items) -> list[Any]:
    """Return the rows of a table, or the items of a list or one-dimensional array."""
    if isinstance(X, str) or not (isinstance(X, Iterable) or hasattr(X, "shape")):
        raise TypeError(expected("items", "a list, or an array with one item per row", X))
    if getattr(X, "ndim", 1) not in (1, 2):
        raise ValueError(expected("items", "a list, or an array of rows", tuple(X.shape)))
    return [X[i, ...] for i in range(X.shape[0])] if backend.is_foreign(X) else list(X)


def _result(K: Host, X: Items) -> Array:
    """Return values in the library and floating dtype of X; float64 where X has none."""
    numeric = backend.is_foreign(X) or (isinstance(X, np.ndarray) and X.dtype.kind == "f")
    return backend.constants(K, X) if numeric else K


# --- scikit-learn's Gaussian-process kernels: translated where known, wrapped where not ----------

SKLEARN_MODULE = "sklearn.gaussian_process.kernels"


class GaussianProcessKernel(Protocol):
    """A kernel of scikit-learn, with parameters of its own beside."""

    def __call__(self, X: Host, Y: Host) -> Host:
        """Return k(x_i, y_j)."""

    def diag(self, X: Host) -> Host:
        """Return k(x_i, x_i)."""

    def __getattr__(self, name: str) -> Any:
        """Return a parameter."""


@dataclass(frozen=True)
class FromSklearn(Opaque):
    """A Gaussian-process kernel of scikit-learn, as it is; gradients by central differences.

    White noise is not a function of two points: scikit-learn adds it where both are the same
    row of one table. Here it is left out, in the values and in the diagonal; the models have a
    noise variance of their own. NumPy only.

    Parameters
    ----------
    kernel : object
        Has `diag(X)` and is called as kernel(X, Y).
    on : sequence of int, default=None
        Columns that the kernel sees; None for all.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import Matern
    >>> FromSklearn(Matern(nu=1.0))(np.array([[0.0]]), np.array([[0.0], [1.0]])).round(4)
    array([[1.    , 0.4443]])
    """

    kernel: GaussianProcessKernel

    def _check(self) -> None:
        if not is_gaussian_process_kernel(self.kernel):
            raise TypeError(expected("kernel", "a Gaussian-process kernel", self.kernel))
        if sklearn_class(self.kernel) == "CompoundKernel":
            what = "one kernel, not several side by side"
            raise ValueError(expected("kernel", what, self.kernel))

    def __hash__(self) -> int:
        """Hash what it says: scikit-learn's kernels can be compared, not hashed."""
        return hash((type(self), repr(self.kernel), self.on))

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        _require_numpy(Y)
        return lambda X: np.asarray(self.kernel(X, Y), dtype=X.dtype)

    def _diag(self, X: Array) -> Array:
        """Return the diagonal without white noise, pair by pair if there is some."""
        _require_numpy(X)
        if not _has_white(self.kernel):
            return np.asarray(self.kernel.diag(X), dtype=X.dtype)
        rows = (X[i : i + 1] for i in range(X.shape[0]))
        return np.asarray([self.kernel(x, x)[0, 0] for x in rows], dtype=X.dtype)


def translate(kernel: GaussianProcessKernel) -> Kernel:
    """Return the kernel of this library that equals one of scikit-learn's.

    Known are RBF, Matern (ν = 1/2, 3/2, 5/2, ∞), RationalQuadratic, ExpSineSquared, DotProduct,
    ConstantKernel, their sums, products and whole powers; white noise beside them is left out
    (see `FromSklearn`, which holds all others).

    Parameters
    ----------
    kernel : Gaussian-process kernel of scikit-learn

    Returns
    -------
    kernel : Kernel

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF, WhiteKernel
    >>> translate(2.0 * RBF(0.5) + WhiteKernel())
    Scaled(on=None, factor=2.0, kernel=RBF(on=None, gamma=None, length_scale=0.5))
    """
    if not is_gaussian_process_kernel(kernel):
        raise TypeError(expected("kernel", "a Gaussian-process kernel of scikit-learn", kernel))
    return _known(kernel) or FromSklearn(kernel)


def is_gaussian_process_kernel(kernel: object) -> TypeGuard[GaussianProcessKernel]:
    """Return True if an object looks like a kernel of sklearn.gaussian_process."""
    wanted = ("diag", "is_stationary", "__call__")
    return not isinstance(kernel, type) and all(hasattr(kernel, name) for name in wanted)


def sklearn_class(kernel: object) -> str:
    """Return the name of one of scikit-learn's own classes; empty for classes derived from them."""
    return type(kernel).__name__ if type(kernel).__module__ == SKLEARN_MODULE else ""


def _known(kernel: GaussianProcessKernel) -> Kernel | None:
    """Return the translation, or None where some part has none."""
    found = TRANSLATIONS.get(sklearn_class(kernel))
    return None if found is None else found(kernel)


def _matern(kernel: GaussianProcessKernel) -> Kernel | None:
    if kernel.nu in (0.5, 1.5, 2.5):
        return Matern(kernel.nu, np.squeeze(kernel.length_scale))
    return _rbf(kernel) if isinf(kernel.nu) else None


def _rbf(kernel: GaussianProcessKernel) -> Kernel:
    return RBF(length_scale=np.squeeze(kernel.length_scale))  # a list of one is a number


def _sum(kernel: GaussianProcessKernel) -> Kernel | None:
    both = (k for k in (kernel.k1, kernel.k2) if sklearn_class(k) != "WhiteKernel")
    parts = [_known(k) for k in both]
    return reduce(add, parts) if parts and None not in parts else None


def _product(kernel: GaussianProcessKernel) -> Kernel | None:
    left, right = _known(kernel.k1), _known(kernel.k2)
    if left is None or right is None:
        return None
    if isinstance(left, Constant):
        return right * left.value
    return left * (right.value if isinstance(right, Constant) else right)


def _power(kernel: GaussianProcessKernel) -> Kernel | None:
    part, p = _known(kernel.kernel), kernel.exponent
    return part ** int(p) if part is not None and p >= 1 and p == int(p) else None


TRANSLATIONS: dict[str, Callable[[GaussianProcessKernel], Kernel | None]] = {
    "RBF": _rbf,
    "Matern": _matern,
    "RationalQuadratic": lambda k: RationalQuadratic(k.alpha, k.length_scale),
    "ExpSineSquared": lambda k: Periodic(k.periodicity, k.length_scale),
    "DotProduct": lambda k: Polynomial(degree=1, gamma=1.0, coef0=float(k.sigma_0) ** 2),
    "ConstantKernel": lambda k: Constant(k.constant_value) if k.constant_value > 0 else None,
    "Sum": _sum,
    "Product": _product,
    "Exponentiation": _power,
}
"""From scikit-learn's classes to ours."""


def _has_white(kernel: object) -> bool:
    """Return True if white noise is a part, anywhere."""
    parts = [getattr(kernel, n) for n in ("k1", "k2", "kernel") if hasattr(kernel, n)]
    return sklearn_class(kernel) == "WhiteKernel" or any(_has_white(part) for part in parts)


def _require_numpy(X: Array) -> None:
    if backend.is_foreign(X):
        remedy = "Move them to NumPy, or use a kernel of dualpca."
        what = "NumPy's for scikit-learn's kernels"
        raise TypeError(expected("rows", what, backend.describe(X), remedy))


# --- From what a user gives (a name, an object, a function) to a kernel --------------------------

ALIASES: dict[str, type[Kernel]] = {"poly": KERNELS["polynomial"], "precomputed": Precomputed}
"""Names beside those that kernels register themselves."""

SKLEARN_PARAMETERS = frozenset({"gamma", "degree", "coef0"})
"""Parameters that scikit-learn gives to every named kernel, which ignores those not its own."""


def make_kernel(kernel: object, **params: object) -> Kernel:
    """Return the kernel for a name, kernel object or function.

    Parameters
    ----------
    kernel : str, Kernel, Gaussian-process kernel of scikit-learn, or callable
        A name is one of `KERNELS`, 'poly' or 'precomputed'; a callable is a function of two
        items, or of two tables for all pairs of rows at once (see `Function`).
    **params : object
        Of a named kernel: its parameters, where gamma, degree and coef0 are ignored by those
        that have none, as in scikit-learn, and None means the kernel's own default. Of a
        callable: its keyword arguments. Objects have their own.

    Returns
    -------
    kernel : Kernel

    Examples
    --------
    >>> make_kernel("poly", gamma=None, degree=2, coef0=1.0)
    Polynomial(on=None, degree=2, gamma=None, coef0=1.0)
    """
    if isinstance(kernel, str):
        return _named(kernel, params)
    if isinstance(kernel, Kernel) or is_gaussian_process_kernel(kernel):
        if params:
            remedy = f"Set them on the kernel itself: {kernel!r}."
            raise ValueError(expected("parameters", "absent beside a kernel", params, remedy))
        return kernel if isinstance(kernel, Kernel) else translate(kernel)
    if isinstance(kernel, type) or not callable(kernel):
        others = "a Kernel, a Gaussian-process kernel or a function of two items"
        raise ValueError(expected("kernel", f"one of {sorted(by_name())}, {others}", kernel))
    return Function(kernel, params)


def _named(name: str, params: Mapping[str, Any]) -> Kernel:
    """Return the kernel of a name; refuse parameters that no kernel of that name has."""
    cls = by_name().get(name)
    if cls is None:
        raise ValueError(expected("kernel", f"one of {sorted(by_name())}", name))
    accepted = parameter_names(cls)
    unknown = sorted(set(params).difference(accepted, SKLEARN_PARAMETERS))
    if unknown:
        what = f"among {sorted(accepted)} for the kernel {name!r}"
        raise ValueError(expected("parameters", what, unknown))
    return cls(**{k: v for k, v in params.items() if k in accepted and v is not None})


def by_name() -> dict[str, type[Kernel]]:
    """Return the classes of all kernels that `make_kernel` knows by name."""
    return KERNELS | ALIASES


def accepts_nan(kernel: object) -> bool:
    """Return True if a kernel, or the one of that name, may have an expectation."""
    cls = by_name().get(kernel) if isinstance(kernel, str) else type(kernel)
    return cls is not None and issubclass(cls, Kernel) and cls._terms is not Kernel._terms
