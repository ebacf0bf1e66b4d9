"""Which kernels have a fused pass, and in which words the programs know them."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from math import log2, sqrt
from typing import Any, NamedTuple

from dualpca.arrays import Array, backend
from dualpca.kernels.base import Kernel, number
from dualpca.kernels.columnwise import Laplacian
from dualpca.kernels.dot import Polynomial
from dualpca.kernels.stationary import RBF, Matern, RationalQuadratic, Stationary

LOG2_E = log2(2.718281828459045)
MOST_DEGREE = 8
MOST_ALPHA = 16.0
"""Beyond, the rounding of 1 + u/α in float32, α times as large in the kernel, would show."""
MATERN = {0.5: "matern1", 1.5: "matern3", 2.5: "matern5"}


class Form(NamedTuple):
    """A kernel as a program sees it: a function of rows that were multiplied by a factor."""

    shape: str  # the function, by the name that `passes.profile` knows
    factor: Any  # a number, or one for every column, (d,)
    constant: float = 0.0
    degree: int = 1

    @property
    def bounded(self) -> bool:
        """Whether no value is above 1, so that 16 bits hold them."""
        return self.shape != "inner"


@cache
def installed() -> bool:
    """Tell whether Triton is there."""
    return find_spec("triton") is not None


def available(X: Array, kernel: Kernel) -> bool:
    """Tell whether a pass over these points can be fused: dense rows on an NVIDIA card."""
    return backend.on_cuda(X) and X.ndim == 2 and installed() and form_of(kernel, X) is not None


def form_of(kernel: Kernel, like: Array) -> Form | None:
    """Return the form of a kernel, or None where it has no fused pass.

    Examples
    --------
    >>> import numpy as np
    >>> form_of(Matern(nu=1.5), np.zeros((1, 2))).shape
    'matern3'
    """
    if kernel.on is not None:
        return None
    if isinstance(kernel, Laplacian):
        return Form("taxicab", LOG2_E * kernel.rate_of(int(like.shape[1])))
    if isinstance(kernel, Polynomial):
        return _polynomial(kernel, like)
    if isinstance(kernel, RBF):  # 2^(−u log₂e)
        return Form("exp", _root(kernel, like, 2 * LOG2_E))
    if isinstance(kernel, Matern):
        return Form(MATERN[kernel.nu], LOG2_E * _root(kernel, like, 2.0))
    if isinstance(kernel, RationalQuadratic) and kernel.alpha <= MOST_ALPHA:
        return Form("rational", _root(kernel, like, 2.0), float(kernel.alpha))
    return None


def _root(kernel: Stationary, like: Array, times: float) -> Any:
    """Return the factor of rows a with ½‖a − b‖² = times/2 · u."""
    rates = kernel.rates(like)
    if isinstance(rates, float):
        return sqrt(times * rates)
    return backend.namespace(like).sqrt(times * backend.working(rates))


def _polynomial(kernel: Polynomial, like: Array) -> Form | None:
    degree = number(kernel, kernel.degree)
    if degree > MOST_DEGREE:
        return None
    return Form("inner", sqrt(kernel.rate_for(like)), float(kernel.coef0), int(degree))
