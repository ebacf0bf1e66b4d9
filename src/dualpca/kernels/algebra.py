"""Kernels made of kernels: sums, products and positive multiples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dualpca._typing import Array
from dualpca.errors import expected
from dualpca.kernels.base import Kernel


@dataclass(frozen=True)
class Pair(Kernel):
    """Two kernels, joined."""

    left: Kernel
    right: Kernel

    def _check(self) -> None:
        for part in (self.left, self.right):
            if not isinstance(part, Kernel):
                raise TypeError(expected("a part of a kernel", "a Kernel", part))

    @property
    def definite(self) -> bool:  # type: ignore[override]
        """Whether both parts are."""
        return self.left.definite and self.right.definite

    @property
    def invariant(self) -> bool:  # type: ignore[override]
        """Whether both parts are."""
        return self.left.invariant and self.right.invariant

    @property
    def sparse(self) -> bool:  # type: ignore[override]
        """Whether both parts take sparse rows."""
        return self.left.sparse and self.right.sparse

    def resolve(self, X: Array) -> Kernel:
        """Resolve both parts."""
        X = self._seen(X)
        return type(self)(self.left.resolve(X), self.right.resolve(X), on=self.on)


@dataclass(frozen=True)
class Sum(Pair):
    """k + l."""

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        k, m = self.left.against(Y), self.right.against(Y)
        return lambda X: k(X) + m(X)

    def _diag(self, X: Array) -> Array:
        return self.left.diag(X) + self.right.diag(X)

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        return self.left.pull(Z, Y, C) + self.right.pull(Z, Y, C)

    def _diag_gradient(self, Z: Array) -> Array:
        return self.left.diag_gradient(Z) + self.right.diag_gradient(Z)


@dataclass(frozen=True)
class Product(Pair):
    """k · l."""

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        k, m = self.left.against(Y), self.right.against(Y)
        return lambda X: k(X) * m(X)

    def _diag(self, X: Array) -> Array:
        return self.left.diag(X) * self.right.diag(X)

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        """Return k'l + kl'."""
        k, m = self.left(Z, Y), self.right(Z, Y)
        return self.left.pull(Z, Y, C * m) + self.right.pull(Z, Y, C * k)

    def _diag_gradient(self, Z: Array) -> Array:
        k, m = self.left.diag(Z)[:, None], self.right.diag(Z)[:, None]
        return self.left.diag_gradient(Z) * m + self.right.diag_gradient(Z) * k


@dataclass(frozen=True)
class Scaled(Kernel):
    """c · k for c > 0."""

    factor: float
    kernel: Kernel

    def _check(self) -> None:
        if not self.factor > 0:
            raise ValueError(expected("the factor of a kernel", "positive", self.factor))

    @property
    def definite(self) -> bool:  # type: ignore[override]
        """Whether the kernel is."""
        return self.kernel.definite

    @property
    def invariant(self) -> bool:  # type: ignore[override]
        """Whether the kernel is."""
        return self.kernel.invariant

    @property
    def sparse(self) -> bool:  # type: ignore[override]
        """Whether the kernel takes sparse rows."""
        return self.kernel.sparse

    def resolve(self, X: Array) -> Kernel:
        """Resolve the kernel."""
        return Scaled(self.factor, self.kernel.resolve(self._seen(X)), on=self.on)

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        of = self.kernel.against(Y)
        return lambda X: self.factor * of(X)

    def _diag(self, X: Array) -> Array:
        return self.factor * self.kernel.diag(X)

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        return self.factor * self.kernel.pull(Z, Y, C)

    def _diag_gradient(self, Z: Array) -> Array:
        return self.factor * self.kernel.diag_gradient(Z)
