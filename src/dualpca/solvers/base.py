"""What a solver is, and the registry that makes one known by its definition."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dualpca.arrays import backend, heard, note
from dualpca.data import namespace_sum
from dualpca.errors import expected
from dualpca.operators import Factored, Operator, Spectrum

SOLVERS: dict[str, type[Solver]] = {}
"""Solvers of any operator: name to class, most accurate first."""

KERNEL_SOLVERS: dict[str, type[Solver]] = {}
"""Solvers that kernel models offer, exact and approximate, under all their names."""


@dataclass(frozen=True)
class Solver(ABC):
    """Find the leading eigenpairs of an operator.

    Parameters
    ----------
    tol : float
        Relative eigenvalue error that may remain; 0 asks for machine precision.
    """

    name: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Names that kernel models accept beside the first one."""
    on_kernels: ClassVar[bool] = False
    """Whether kernel models offer it."""
    approximate: ClassVar[bool] = False
    """Whether it solves for another operator, close to the one that was asked for."""
    draws: ClassVar[bool] = False
    """Whether it draws random numbers."""
    tol: float = 0.0

    def __init_subclass__(cls) -> None:
        """Register the solver under its name."""
        if cls.name and not cls.approximate:
            SOLVERS[cls.name] = cls
        if cls.name and cls.on_kernels:
            KERNEL_SOLVERS.update(dict.fromkeys((cls.name, *cls.aliases), cls))

    @staticmethod
    def cost(operator: Operator, rank: int) -> float:
        """Return the cost in multiply-adds of a large matrix product; infinite if unsuitable."""
        return float("inf")

    @abstractmethod
    def solve(self, operator: Any, rank: int, rng: np.random.Generator) -> Spectrum:
        """Return the `rank` leading eigenpairs."""


def threads_for(operator: Operator) -> AbstractContextManager[None]:
    """Return a context for work that alternates products with `operator` and small algebra.

    Where products distribute work to threads, BLAS should use one: see `arrays.threads.outside`.
    """
    return backend.threads_outside(operator.like) if operator.threads_outside else nullcontext()


# --- The cheapest solver, or the one asked for ----------------------------------------------------

NEGLIGIBLE_WORK = 2e7
"""Multiply-adds that take about a millisecond."""


def choose(operator: Operator, rank: int) -> str:
    """Return the name of the cheapest solver; the first, most accurate one on ties.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.operators import Primal
    >>> choose(Primal(np.zeros((100, 5))), 2), choose(Primal(np.zeros((100_000, 5))), 2)
    ('qr', 'dense')
    """
    best, least = "", float("inf")
    for name, kind in SOLVERS.items():
        cost = kind.cost(operator, rank)
        if cost <= NEGLIGIBLE_WORK:
            return name
        if not best or cost < least:
            best, least = name, cost
    return best


def tell(name: str, operator: Operator, rank: int) -> None:
    """Report which solver is used, at what cost and where, if progress is shown."""
    if not heard():
        return
    where, cost = backend.describe(operator.like), SOLVERS[name].cost(operator, rank)
    price = f", about {cost:.1g} multiplications" if np.isfinite(cost) else ""
    note(f"solver {name!r}: {rank} of {operator.shape[0]} eigenpairs{price}, {where}")


def solve(
    operator: Operator,
    rank: int,
    solver: str = "auto",
    tol: float = 0.0,
    random_state: int | np.random.Generator | None = None,
) -> Spectrum:
    """Return the `rank` leading eigenpairs of `operator`.

    Parameters
    ----------
    operator : Operator
    rank : int
    solver : {'auto', 'qr', 'dense', 'gram', 'krylov'}
    tol : float
        Relative error of the eigenvalues that an iterative solver may leave; 0 asks for
        machine precision. Direct solvers always reach it.
    random_state : int, Generator or None
        Start of an iterative solver. None means seed 0: the answer does not depend on it beyond
        `tol`, and the same call gives the same digits.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.operators import Primal
    >>> X = np.random.default_rng(0).normal(size=(50, 4)) * [4.0, 3.0, 2.0, 1.0]
    >>> a, b = (solve(Primal(X), 2, solver=s).values for s in ("qr", "krylov"))
    >>> bool(np.allclose(a, b))
    True
    """
    name = choose(operator, rank) if solver == "auto" else solver
    if name not in SOLVERS:
        raise ValueError(expected("solver", f"'auto' or one of {sorted(SOLVERS)}", solver))
    found = _by_products(operator, rank) if solver == "auto" and name == ACCURATE else None
    if found is not None:
        return found
    kind = SOLVERS[name]
    seed = 0 if random_state is None else random_state
    rng = np.random.default_rng(seed) if kind.draws else NOTHING_DRAWN
    tell(name, operator, rank)
    return kind(tol=tol).solve(operator, rank, rng)


ACCURATE = "qr"
"""The solver that never squares the condition number."""

WELL_CONDITIONED = 1e-5
"""Share of the largest eigenvalue from which others keep ten digits though rows are squared."""

NOTHING_DRAWN = np.random.default_rng(0)
"""For solvers that draw no random numbers: a generator takes longer to make than a small fit."""


def _by_products(operator: Operator, rank: int) -> Spectrum | None:
    """Return the eigenpairs of FᵀF or FFᵀ, which are cheaper than a QR of F, if that is as good.

    It is where no eigenvalue asked for is small beside the largest, nor the sum of the others,
    which is the noise.
    """
    if not isinstance(operator, Factored):
        return None
    rows, columns = operator.mirror.shape[0], operator.shape[0]
    if not 0 < rank < rows:  # of centred rows the last one is 0
        return None
    name = "dense" if columns <= rows else "gram"
    if rank == columns and not operator.alike(WELL_CONDITIONED):
        return None
    found = SOLVERS[name]().solve(operator, rank, NOTHING_DRAWN)
    low, high = float(found.values[-1]), float(found.values[0])
    if not low > WELL_CONDITIONED * high:
        return None
    rest = found.trace - float(namespace_sum(found.values))
    if rank < min(rows - 1, columns) and not rest > WELL_CONDITIONED * found.trace:
        return None
    tell(name, operator, rank)
    return found
