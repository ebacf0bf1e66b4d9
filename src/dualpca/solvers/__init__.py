"""Solvers: an operator goes in, its leading eigenpairs come out.

A solver is one class that declares its `cost`; `auto` is the smallest, with no ladder of ifs.
Below a millisecond cost no longer matters and the most accurate one is used.

Read `base` (what a solver is, the registries, `solve`), `dense` and `krylov` (exact solvers;
square roots) and `kernel` (operators of a kernel: exact, landmarks, random features).
"""

from dualpca.solvers.base import KERNEL_SOLVERS, SOLVERS, Solver, choose, solve
from dualpca.solvers.kernel import (
    LANDMARKS,
    FeatureSolver,
    KernelOptions,
    affordable_operator,
    dual_operator,
    gram_of,
    mapped_operator,
    solve_kernel,
    without_negatives,
)
from dualpca.solvers.krylov import root_times
