"""The kernel over points on a graphics card: products fused, nothing of size n × n anywhere."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import Any

from dualpca import _array, fused
from dualpca._typing import Array
from dualpca.kernels import Kernel
from dualpca.representations.gram import Gram


def make_gram(X: Array, kernel: Kernel, *, single: bool = False, stored: bool = False) -> Gram:
    """Return the kernel over the points: fused where float32 will do and the card can.

    Points many widths of the kernel apart have distances that float32 cannot tell: float64 then.
    """
    if single and fused.available(X, kernel):
        gram = Fused(X, kernel)
        if not gram.too_wide():
            return gram
        single = False
    return Gram(X, kernel, single=single, stored=stored)


class Fused(Gram):
    """K with products in one pass: 11 bits while vectors are sought, float32 for the last.

    A product costs O(n² (d + b)) and keeps O(n (d + b)); sums run in float64. `times_in_double` is
    of float32 accuracy, 1e-6 or better: rounding errors of that size in K leave eigenvalues alone.
    """

    def __init__(self, X: Array, kernel: Kernel) -> None:
        super().__init__(X, kernel, single=True)
        form = fused.form_of(kernel, X)
        if form is None:
            raise TypeError(f"{kernel!r} has no fused pass")
        self.form, self.coarse = form, True

    def sharper(self) -> Fused:
        """Return the same kernel with all products of float32 accuracy, at twice the cost."""
        other = copy(self)
        other.coarse = False
        return other

    @cached_property
    def _middle(self) -> Array:
        """Where points are measured from: their mean, unless the kernel minds."""
        if self.origin is None:
            return _array.asarray(0.0, self.like)
        return self.origin

    @cached_property
    def _modes(self) -> tuple[str, str]:
        from dualpca.fused import product

        return product.modes(self.form)

    def too_wide(self) -> bool:
        """Tell whether float32 has no digits left for the distances."""
        from dualpca.fused import product

        return product.too_wide(self.points, self.form, self._middle)

    @cached_property
    def _coarse(self) -> Any:
        return self._operand(self.points, self._modes[0])

    @cached_property
    def _accurate(self) -> Any:
        return self._operand(self.points, self._modes[1])

    def _operand(self, X: Array, mode: str) -> Any:
        from dualpca.fused import product

        return product.prepare(X, self.form, mode, self._middle)

    def _multiply(self, rows: Any, columns: Any, V: Array) -> Array:
        from dualpca.fused import product

        return product.multiply(self.form, rows, columns, V)

    def times(self, V: Array) -> Array:
        """Return K V, (n, b), with the kernel and V rounded to 11 bits while that is enough."""
        if not self.coarse:
            return self.times_in_double(V)
        return self._multiply(self._coarse, self._coarse, V)

    def times_in_double(self, V: Array) -> Array:
        """Return K V, (n, b), with float32 accuracy."""
        return self._multiply(self._accurate, self._accurate, V)

    def led(self, step: int, V: Array) -> Array:
        """Return K[:, ::step] V, (n, b)."""
        few = self._operand(self.points[::step, :], self._modes[0])
        return self._multiply(self._coarse, few, V)
