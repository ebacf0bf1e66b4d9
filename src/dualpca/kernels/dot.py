"""Kernels of the inner product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from dualpca import _array
from dualpca._typing import Array
from dualpca.kernels.base import Kernel


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

    def _against(self, Y: Array) -> Callable[[Array], Array]:
        return lambda X: X @ Y.T

    def _diag(self, X: Array) -> Array:
        return _array.namespace(X).sum(X * X, axis=1)

    def _pull(self, Z: Array, Y: Array, C: Array) -> Array:
        return C @ Y

    def _diag_gradient(self, Z: Array) -> Array:
        return 2 * Z
