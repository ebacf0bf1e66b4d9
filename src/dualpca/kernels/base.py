"""What a kernel is: values, diagonal, gradient in x, on all columns or on some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import expected

KERNELS: dict[str, type[Kernel]] = {}

Rule = Callable[[Array], float]
"""A parameter found from the rows, (n, d)."""


@dataclass(frozen=True)
class Kernel:
    """A positive semi-definite function k(x, y).

    Subclasses define `_against`, `_diag` and `_pull`; a class attribute `name` registers them.

    Parameters
    ----------
    on : sequence of int, optional
        The columns that this kernel sees; all of them unless given.
    """

    name: ClassVar[str] = ""
    definite: ClassVar[bool] = True
    """Whether every Gram matrix is positive semi-definite."""
    sparse: ClassVar[bool] = False
    """Whether rows may be SciPy sparse matrices."""
    invariant: ClassVar[bool] = False
    """Whether k(x + c, y + c) = k(x, y)."""
    nonnegative: ClassVar[bool] = False
    """Whether entries below 0 are refused, as for histograms."""
    rules: ClassVar[dict[str, dict[str, Rule]]] = {}
    """Parameter name to the words it takes in place of a number, and what they mean."""
    on: Sequence[int] | None = field(default=None, kw_only=True)

    def __init_subclass__(cls) -> None:
        """Register the kernel under its name."""
        if cls.name:
            KERNELS[cls.name] = cls

    def __post_init__(self) -> None:
        """Check the parameters once, and keep `on` as a tuple so that kernels can be hashed."""
        if self.on is not None:
            object.__setattr__(self, "on", _columns(self.on))
        for name, words in self.rules.items():
            value = getattr(self, name)
            if isinstance(value, str) and value not in words:
                raise ValueError(expected(name, f"a number or one of {sorted(words)}", value))
        self._check()

    def _check(self) -> None:
        """Refuse parameters that define no kernel. Words such as 'median' come through here too."""

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        """Return x ↦ k(x, Y), with what depends on Y alone done once. The result is fresh."""
        raise TypeError(expected("kernel", "a subclass that defines _against", type(self).__name__))

    def _diag(self, X: Array) -> Array:
        raise TypeError(expected("kernel", "a subclass that defines _diag", type(self).__name__))

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        raise TypeError(expected("kernel", "a subclass that defines _pull", type(self).__name__))

    def _diag_gradient(self, Z: Array) -> Array:
        """Return ∂k(z, z)/∂z; by symmetry twice the gradient in the first argument at y = z."""
        xp = _array.namespace(Z)
        one = _array.ones((1, 1), Z)
        rows = [2 * self._pull(Z[i : i + 1, :], Z[i : i + 1, :], one) for i in range(Z.shape[0])]
        return xp.concat(rows, axis=0) if rows else xp.zeros_like(Z)

    def __call__(self, X: Array, Y: Array) -> Array:
        """Return k(x_i, y_j), (n, m)."""
        return self.against(Y)(X)

    def against(self, Y: Array) -> Callable[[Array], Array]:
        """Return the function x ↦ k(x, y_j), (n, d) ↦ (n, m), to be evaluated block by block."""
        if self.on is None:
            return self._against(Y)
        of = self._against(seen := self._seen(Y))
        return lambda X: of(seen if X is Y else self._seen(X))

    def diag(self, X: Array) -> Array:
        """Return k(x_i, x_i), (n,)."""
        return self._diag(self._seen(X))

    def gradient(self, x: Array, Y: Array) -> Array:
        """Return ∂k(x, y_j)/∂x, (m, d), for one point x of shape (d,)."""
        xp = _array.namespace(x)
        m = int(Y.shape[0])
        Z = xp.broadcast_to(x[None, :], (m, x.shape[0]))
        return self.pull(Z, Y, _array.identity(m, x))

    def pull(self, Z: Array, Y: Array, C: Array) -> Array:
        """Return Σ_j C_ij ∂k(z_i, y_j)/∂z_i, (n, d): what gradient descent over points needs.

        Parameters
        ----------
        Z : array of shape (n, d)
        Y : array of shape (m, d)
        C : array of shape (n, m)
        """
        return self._full(self._pull(self._seen(Z), self._seen(Y), C), Z)

    def diag_gradient(self, Z: Array) -> Array:
        """Return ∂k(z_i, z_i)/∂z_i, (n, d)."""
        return self._full(self._diag_gradient(self._seen(Z)), Z)

    def resolve(self, X: Array) -> Kernel:
        """Return this kernel with numbers in place of words such as 'scale' or 'median'."""
        X = self._seen(X)
        words = {f.name: getattr(self, f.name) for f in fields(self) if f.name in self.rules}
        found: dict[str, Any] = {
            k: self.rules[k][v](X) for k, v in words.items() if isinstance(v, str)
        }
        return replace(self, **found) if found else self

    def _seen(self, X: Array) -> Array:
        """Return the columns that this kernel sees."""
        if self.on is None:
            return X
        if max(self.on) >= X.shape[1]:
            raise ValueError(expected("on", f"columns below {X.shape[1]}", self.on))
        return _array.take(X, list(self.on), axis=1)

    def _full(self, G: Array, Z: Array) -> Array:
        """Return gradients with zeros in the columns that this kernel does not see."""
        if self.on is None:
            return G
        xp, columns = _array.namespace(Z), {c: i for i, c in enumerate(self.on)}
        zero = xp.zeros_like(Z[:, 0])
        parts = [G[:, columns[c]] if c in columns else zero for c in range(Z.shape[1])]
        return xp.stack(parts, axis=1)

    def __add__(self, other: Kernel) -> Kernel:
        """Return k + l."""
        from dualpca.kernels.algebra import Sum

        return Sum(self, other)

    def __mul__(self, other: Kernel | float) -> Kernel:
        """Return k · l, or a scaled kernel."""
        from dualpca.kernels.algebra import Product, Scaled

        return Product(self, other) if isinstance(other, Kernel) else Scaled(float(other), self)

    def __rmul__(self, other: float) -> Kernel:
        """Return a scaled kernel."""
        return self * other


def _columns(on: Any) -> tuple[int, ...]:
    """Return column numbers as a tuple."""
    columns = np.asarray(on)
    good = columns.ndim == 1 and columns.size > 0 and columns.dtype.kind in "iu"
    if not good or columns.min() < 0 or np.unique(columns).size < columns.size:
        raise ValueError(expected("on", "different column numbers, from 0", on))
    return tuple(int(c) for c in columns)
