"""Solvers: an operator goes in, its leading eigenpairs come out.

A solver is one class that declares its `cost`; `auto` is the smallest, with no ladder of ifs.
Below a millisecond cost no longer matters and the most accurate one is taken.
"""

from __future__ import annotations

import numpy as np

from dualpca.arrays import backend, heard, note
from dualpca.errors import expected
from dualpca.operators import Operator, Spectrum
from dualpca.solvers.base import SOLVERS, Solver
from dualpca.solvers.dense import QR, Dense, Gram
from dualpca.solvers.krylov import Krylov
from dualpca.solvers.lanczos import root_times as root_times

__all__ = ["QR", "SOLVERS", "Dense", "Gram", "Krylov", "Solver", "choose", "solve", "tell"]

NEGLIGIBLE = 2e7
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
    return min(SOLVERS, key=lambda name: max(SOLVERS[name].cost(operator, rank), NEGLIGIBLE))


def tell(name: str, operator: Operator, rank: int) -> None:
    """Say which solver is at work, at what cost and where, if somebody is to be told."""
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
    rng = np.random.default_rng(0 if random_state is None else random_state)
    tell(name, operator, rank)
    return SOLVERS[name](tol=tol).solve(operator, rank, rng)
