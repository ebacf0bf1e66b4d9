"""What a solver is, and the registry that makes one known by its definition."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dualpca.arrays import backend
from dualpca.operators import Operator, Spectrum

SOLVERS: dict[str, type[Solver]] = {}
"""Name to class, most accurate first."""


@dataclass(frozen=True)
class Solver:
    """Find the leading eigenpairs of an operator.

    Parameters
    ----------
    tol : float
        Relative eigenvalue error that may remain; 0 asks for machine precision.
    """

    name: ClassVar[str] = ""
    tol: float = 0.0

    def __init_subclass__(cls) -> None:
        """Register the solver under its name."""
        SOLVERS[cls.name] = cls

    @staticmethod
    def cost(operator: Any, rank: int) -> float:
        """Return the cost in multiply-adds of a large matrix product; infinite if unsuitable."""
        return float("inf")

    def solve(self, operator: Any, rank: int, rng: np.random.Generator) -> Spectrum:
        """Return the `rank` leading eigenpairs."""
        raise TypeError(f"{type(self).__name__} must define solve")


def threads_for(operator: Any) -> AbstractContextManager[None]:
    """Return a context for work that alternates products with `operator` and small algebra.

    Where products share themselves out to threads, BLAS is to use one: see `_threads.outside`.
    """
    if getattr(operator, "threads_outside", False):
        return backend.threads_outside(operator.like)
    return nullcontext()


def is_factored(operator: Operator) -> bool:
    """Tell whether the operator is FᵀF with a mirror image FFᵀ."""
    return hasattr(operator, "mirror")
