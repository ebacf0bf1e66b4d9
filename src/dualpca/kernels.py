"""Kernels: the equation, nothing about how it is evaluated at scale.

A new kernel is one class: its definition registers it under `name`, and it closes under `+`, `*`
and scaling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import expected

KERNELS: dict[str, type[Kernel]] = {}


class Kernel:
    """A positive semi-definite function k(x, y).

    Subclasses define `__call__`, `diag` and `gradient`; a class attribute `name` registers them.
    """

    name: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        """Register the kernel under its name."""
        if cls.name:
            KERNELS[cls.name] = cls

    def __call__(self, X: Array, Y: Array) -> Array:
        """Return k(x_i, y_j), (n, m)."""
        raise TypeError(expected("kernel", "a subclass that defines __call__", type(self).__name__))

    def diag(self, X: Array) -> Array:
        """Return k(x_i, x_i), (n,)."""
        raise TypeError(expected("kernel", "a subclass that defines diag", type(self).__name__))

    def gradient(self, x: Array, Y: Array) -> Array:
        """Return ∂k(x, y_j)/∂x, (m, d), for one point x of shape (d,)."""
        raise TypeError(expected("kernel", "a subclass that defines gradient", type(self).__name__))

    def __add__(self, other: Kernel) -> Kernel:
        """Return k + l."""
        return Sum(self, other)

    def __mul__(self, other: Kernel | float) -> Kernel:
        """Return k · l, or a scaled kernel."""
        return Product(self, other) if isinstance(other, Kernel) else Scaled(float(other), self)

    def __rmul__(self, other: float) -> Kernel:
        """Return a scaled kernel."""
        return Scaled(float(other), self)


@dataclass(frozen=True)
class Linear(Kernel):
    """k(x, y) = xᵀy.

    Examples
    --------
    >>> import numpy as np
    >>> Linear()(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
    array([[11.]])
    """

    name: ClassVar[str] = "linear"

    def __call__(self, X: Array, Y: Array) -> Array:
        """Return XYᵀ."""
        return X @ Y.T

    def diag(self, X: Array) -> Array:
        """Return the squared norms."""
        return _array.namespace(X).sum(X * X, axis=1)

    def gradient(self, x: Array, Y: Array) -> Array:
        """Return Y itself."""
        return _array.namespace(Y).asarray(Y, copy=True)


@dataclass(frozen=True)
class RBF(Kernel):
    """k(x, y) = exp(−γ‖x − y‖²).

    Parameters
    ----------
    gamma : float, optional
        γ > 0; 1 where neither parameter is given.
    length_scale : float, optional
        γ = 1 / (2·length_scale²). Give one of the two, never both.

    Examples
    --------
    >>> import numpy as np
    >>> RBF(gamma=1.0)(np.array([[0.0]]), np.array([[0.0], [1.0]])).round(4)
    array([[1.    , 0.3679]])
    """

    name: ClassVar[str] = "rbf"
    gamma: float | None = None
    length_scale: float | None = None

    def __post_init__(self) -> None:
        """Check the parameters once."""
        if self.gamma is not None and self.length_scale is not None:
            raise ValueError(expected("RBF", "given gamma or length_scale, not both", self))
        if not self.rate > 0:
            raise ValueError(expected("RBF", "given a positive gamma or length_scale", self))

    @property
    def rate(self) -> float:
        """γ."""
        if self.length_scale is not None:
            return 0.5 / self.length_scale**2 if self.length_scale > 0 else -1.0
        return 1.0 if self.gamma is None else self.gamma

    def __call__(self, X: Array, Y: Array) -> Array:
        """Return exp(−γ‖x − y‖²) from one product; distances that round below 0 count as 0."""
        xp = _array.namespace(X)
        D = X @ Y.T
        D *= -2.0
        D += xp.sum(X * X, axis=1)[:, None]
        D += xp.sum(Y * Y, axis=1)[None, :]
        D = xp.where(D < 0, xp.zeros_like(D), D)
        D *= -self.rate
        return xp.exp(D)

    def diag(self, X: Array) -> Array:
        """Return ones."""
        return _array.namespace(X).ones_like(X[:, 0])

    def gradient(self, x: Array, Y: Array) -> Array:
        """Return −2γ(x − y) k(x, y)."""
        return -2 * self.rate * (x[None, :] - Y) * self(x[None, :], Y)[0, :][:, None]


@dataclass(frozen=True)
class Sum(Kernel):
    """k + l."""

    left: Kernel
    right: Kernel

    def __call__(self, X: Array, Y: Array) -> Array:
        """Return the sum."""
        return self.left(X, Y) + self.right(X, Y)

    def diag(self, X: Array) -> Array:
        """Return the sum."""
        return self.left.diag(X) + self.right.diag(X)

    def gradient(self, x: Array, Y: Array) -> Array:
        """Return the sum of the gradients."""
        return self.left.gradient(x, Y) + self.right.gradient(x, Y)


@dataclass(frozen=True)
class Product(Kernel):
    """k · l."""

    left: Kernel
    right: Kernel

    def __call__(self, X: Array, Y: Array) -> Array:
        """Return the product."""
        return self.left(X, Y) * self.right(X, Y)

    def diag(self, X: Array) -> Array:
        """Return the product."""
        return self.left.diag(X) * self.right.diag(X)

    def gradient(self, x: Array, Y: Array) -> Array:
        """Return k'l + kl'."""
        k, m = self.left(x[None, :], Y)[0, :], self.right(x[None, :], Y)[0, :]
        return self.left.gradient(x, Y) * m[:, None] + self.right.gradient(x, Y) * k[:, None]


@dataclass(frozen=True)
class Scaled(Kernel):
    """c · k for c > 0."""

    factor: float
    kernel: Kernel

    def __post_init__(self) -> None:
        """Check the factor once."""
        if not self.factor > 0:
            raise ValueError(expected("the factor of a kernel", "positive", self.factor))

    def __call__(self, X: Array, Y: Array) -> Array:
        """Return c k."""
        return self.factor * self.kernel(X, Y)

    def diag(self, X: Array) -> Array:
        """Return c k."""
        return self.factor * self.kernel.diag(X)

    def gradient(self, x: Array, Y: Array) -> Array:
        """Return c k'."""
        return self.factor * self.kernel.gradient(x, Y)
