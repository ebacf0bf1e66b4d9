"""Points on a GPU whose kernel is evaluated and multiplied in one program: nothing is stored."""

from __future__ import annotations

from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

from dualpca.arrays import Array, backend, cached_property
from dualpca.kernels import Kernel, fused_form
from dualpca.kernels.base import Form

if TYPE_CHECKING:  # needs torch and Triton
    from dualpca.kernels.fused_product import Operand


def can_fuse(X: Array, kernel: Kernel) -> bool:
    """Return True if a pass over these points can be fused: dense rows on an NVIDIA GPU."""
    if not backend.on_cuda(X) or X.ndim != 2 or find_spec("triton") is None:
        return False
    return fused_form(kernel, X) is not None


class FusedPoints:
    """The points of a kernel, and its products with their values in one program.

    Parameters
    ----------
    X : array of shape (n, d)
    kernel : Kernel
        One that has a fused form.
    like : FusedPoints, optional
        More points than these, whose origin and form are taken.
    """

    def __init__(self, X: Array, kernel: Kernel, like: FusedPoints | None = None) -> None:
        form: Form | None = fused_form(kernel, X) if like is None else like.form
        if form is None:
            raise TypeError(f"{kernel!r} has no fused pass")
        self.points, self.kernel = X, kernel
        self.form: Form = form
        if like is not None:
            self.origin = like.origin

    @classmethod
    def where_able(cls, X: Array, kernel: Kernel) -> FusedPoints | None:
        """Return these points; None where the GPU cannot, or float32 has too few digits."""
        found = cls(X, kernel) if can_fuse(X, kernel) else None
        return found if found is not None and found.reaches(X) else None

    @cached_property
    def origin(self) -> Array:
        """Where points are measured from: their mean, unless the kernel minds."""
        X = backend.working(self.points)
        xp = backend.namespace(X)
        return xp.mean(X, axis=0) if self.kernel.invariant else xp.zeros_like(X[0, :])

    @property
    def _product(self) -> ModuleType:
        """The module of fused products, which needs torch and Triton."""
        from dualpca.kernels import fused_product

        return fused_product

    def reaches(self, X: Array) -> bool:
        """Return True if float32 has digits left for the distances of X, (m, d), and the points."""
        return not self._product.too_wide(X, self.form, self.origin)

    def operand(self, X: Array, *, rough: bool = False) -> Operand:
        """Return X, (m, d), prepared for products of float32 accuracy, or rough ones of 11 bits."""
        mode = self._product.modes(self.form)[0 if rough else 1]
        found: Operand = self._product.prepare(X, self.form, mode, self.origin)
        return found

    @cached_property
    def rough(self) -> Operand:
        """The points prepared for products of 11 bits."""
        return self.operand(self.points, rough=True)

    @cached_property
    def accurate(self) -> Operand:
        """The points prepared for products of float32 accuracy: made when first needed."""
        return self.operand(self.points)

    def multiply(self, rows: Operand, columns: Operand, V: Array) -> Array:
        """Return k(rows, columns) V, (m, b); sums are of float64."""
        return self._product.multiply(self.form, rows, columns, V)

    def against(self, X: Array, V: Array) -> Array:
        """Return k(X, points) V, (m, b), with float32 accuracy."""
        return self.multiply(self.operand(X), self.accurate, V)
