"""From what a user gives (a name, an object, a function, a scikit-learn kernel) to a kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import reduce
from math import isinf
from operator import mul
from typing import Any

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.errors import expected
from dualpca.kernels.base import KERNELS, Kernel, Scaled
from dualpca.kernels.dot import Constant, Polynomial
from dualpca.kernels.objects import Function, Precomputed, central_diag_gradient, central_pull
from dualpca.kernels.stationary import RBF, Matern, Periodic, RationalQuadratic

# --- scikit-learn's Gaussian-process kernels: translated where known, wrapped where not ----------

HOME = "sklearn.gaussian_process.kernels"
MOST_FACTORS = 8
"""Whole powers up to this one are written out as products."""


@dataclass(frozen=True)
class FromSklearn(Kernel):
    """A Gaussian-process kernel of scikit-learn, as it is; gradients by central differences.

    White noise is not a function of two points: scikit-learn adds it where both are the same
    row of one table. Here it is left out, in the values and in the diagonal; the models have a
    noise variance of their own. NumPy only.

    Parameters
    ----------
    kernel : object
        Has `diag(X)` and is called as kernel(X, Y).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import Matern
    >>> FromSklearn(Matern(nu=1.0))(np.array([[0.0]]), np.array([[0.0], [1.0]])).round(4)
    array([[1.    , 0.4443]])
    """

    kernel: Any

    def _check(self) -> None:
        if not is_gaussian_process_kernel(self.kernel):
            raise TypeError(expected("kernel", "a Gaussian-process kernel", self.kernel))
        if _kind(self.kernel) == "CompoundKernel":
            raise ValueError(
                expected("kernel", "one kernel, not several side by side", self.kernel)
            )

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

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        return central_pull(self._against(Y), Z, C)

    def _diag_gradient(self, Z: Array) -> Array:
        return central_diag_gradient(self._diag, Z)


def translate(kernel: Any) -> Kernel:
    """Return our kernel for scikit-learn's: with exact gradients where all its parts are known.

    Known are RBF, Matern (ν = 1/2, 3/2, 5/2, ∞), RationalQuadratic, ExpSineSquared, DotProduct,
    ConstantKernel, their sums, products and whole powers; white noise beside them is left out
    (see `FromSklearn`, which holds all others).

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF, WhiteKernel
    >>> translate(2.0 * RBF(0.5) + WhiteKernel())
    Scaled(on=None, factor=2.0, kernel=RBF(on=None, gamma=None, length_scale=0.5))
    """
    if not is_gaussian_process_kernel(kernel):
        raise TypeError(expected("kernel", "a Gaussian-process kernel of scikit-learn", kernel))
    return _known(kernel) or FromSklearn(kernel)


def is_gaussian_process_kernel(kernel: Any) -> bool:
    """Tell whether an object looks like a kernel of sklearn.gaussian_process."""
    wanted = ("diag", "is_stationary", "__call__")
    return not isinstance(kernel, type) and all(hasattr(kernel, name) for name in wanted)


def _kind(kernel: Any) -> str:
    """Return the name of one of scikit-learn's own classes; nothing for classes made from them."""
    return type(kernel).__name__ if type(kernel).__module__ == HOME else ""


def _known(kernel: Any) -> Kernel | None:
    """Return the translation, or None where some part has none."""
    rule = _RULES.get(_kind(kernel))
    return rule(kernel) if rule else None


def _lengths(kernel: Any) -> Any:
    """Return the length scale: a list of one is one for all columns."""
    return np.squeeze(kernel.length_scale)


def _matern(kernel: Any) -> Kernel | None:
    if isinf(kernel.nu):
        return RBF(length_scale=_lengths(kernel))
    if kernel.nu not in (0.5, 1.5, 2.5):
        return None
    return Matern(nu=kernel.nu, length_scale=_lengths(kernel))


def _constant(kernel: Any) -> Kernel | None:
    return Constant(kernel.constant_value) if kernel.constant_value > 0 else None


def _sum(kernel: Any) -> Kernel | None:
    """Add the parts that are not white noise."""
    parts = [k for k in (kernel.k1, kernel.k2) if _kind(k) != "WhiteKernel"]
    known = [_known(k) for k in parts]
    if not known or any(k is None for k in known):
        return None
    left, *right = known
    return left + right[0] if left and right and right[0] else left


def _product(kernel: Any) -> Kernel | None:
    """Multiply; a constant factor scales."""
    k, m = _known(kernel.k1), _known(kernel.k2)
    if k is None or m is None:
        return None
    if isinstance(k, Constant):
        return Scaled(k.value, m)
    return Scaled(m.value, k) if isinstance(m, Constant) else k * m


def _power(kernel: Any) -> Kernel | None:
    """Multiply a kernel by itself, where the power is whole."""
    k, p = _known(kernel.kernel), kernel.exponent
    if k is None or p not in range(1, MOST_FACTORS + 1):
        return None
    return reduce(mul, [k] * int(p))


_RULES: dict[str, Callable[[Any], Kernel | None]] = {
    "RBF": lambda k: RBF(length_scale=_lengths(k)),
    "Matern": _matern,
    "RationalQuadratic": lambda k: RationalQuadratic(alpha=k.alpha, length_scale=k.length_scale),
    "ExpSineSquared": lambda k: Periodic(periodicity=k.periodicity, length_scale=k.length_scale),
    "DotProduct": lambda k: Polynomial(degree=1, gamma=1.0, coef0=float(k.sigma_0) ** 2),
    "ConstantKernel": _constant,
    "Sum": _sum,
    "Product": _product,
    "Exponentiation": _power,
}


def _has_white(kernel: Any) -> bool:
    """Tell whether white noise is a part, anywhere."""
    names = ("k1", "k2", "kernel")
    parts = [getattr(kernel, name) for name in names if hasattr(kernel, name)]
    return _kind(kernel) == "WhiteKernel" or any(_has_white(part) for part in parts)


def _require_numpy(X: Any) -> None:
    if backend.is_foreign(X):
        remedy = "Move them to NumPy, or use a kernel of dualpca."
        raise TypeError(
            expected("rows", "NumPy's for scikit-learn's kernels", backend.describe(X), remedy)
        )


# --- From what a user gives (a name, an object, a function) to a kernel --------------------------

ALIASES: dict[str, type[Kernel]] = {"poly": KERNELS["polynomial"], "precomputed": Precomputed}
"""Names beside those that kernels register themselves."""

SHARED = frozenset({"gamma", "degree", "coef0"})
"""Parameters that scikit-learn gives to every named kernel, which ignores those not its own."""


def make_kernel(kernel: Any, **params: Any) -> Kernel:
    """Return the kernel that is meant.

    Parameters
    ----------
    kernel : str, Kernel, Gaussian-process kernel of scikit-learn, or callable
        A name is one of `KERNELS`, 'poly' or 'precomputed'; a callable is a function of two
        items.
    **params : object
        Of a named kernel: its parameters, where gamma, degree and coef0 are ignored by those
        that have none, as in scikit-learn, and None means the kernel's own default. Of a
        callable: its keyword arguments. Objects have their own.

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
        what = f"one of {names()}, a Kernel, a Gaussian-process kernel or a function of two items"
        raise ValueError(expected("kernel", what, kernel))
    return Function(kernel, params)


def names() -> list[str]:
    """Return every name that `make_kernel` takes."""
    return sorted({*KERNELS, *ALIASES})


def _named(name: str, params: dict[str, Any]) -> Kernel:
    """Return a kernel by name, with those of the parameters that it takes."""
    cls = ALIASES.get(name) or KERNELS.get(name)
    if cls is None:
        raise ValueError(expected("kernel", f"one of {names()}", name))
    accepted = {f.name for f in fields(cls)}
    unknown = sorted(set(params) - accepted - SHARED)
    if unknown:
        what = f"among {sorted(accepted)} for the kernel {name!r}"
        raise ValueError(expected("parameters", what, unknown))
    given = {k: v for k, v in params.items() if k in accepted and v is not None}
    return cls(**given)
