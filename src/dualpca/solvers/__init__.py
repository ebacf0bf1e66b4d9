"""Solvers: an operator goes in, its leading eigenpairs come out.

A solver is one class that declares its `cost`; `auto` is the smallest, with no ladder of ifs.
Below a millisecond cost no longer matters and the most accurate one is used.

Read `base` (what a solver is, the registries, `solve`), `dense` and `krylov` (exact solvers),
`kernel` (operators of a kernel: exact, landmarks, random features) and `lanczos` (square roots).
"""

from dualpca.solvers.base import KERNEL_SOLVERS, SOLVERS, Solver, choose, solve, tell
from dualpca.solvers.dense import QR, Dense, Gram
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
from dualpca.solvers.krylov import Krylov
from dualpca.solvers.lanczos import root_times

__all__ = [
    "KERNEL_SOLVERS",
    "LANDMARKS",
    "QR",
    "SOLVERS",
    "Dense",
    "FeatureSolver",
    "Gram",
    "KernelOptions",
    "Krylov",
    "Solver",
    "affordable_operator",
    "choose",
    "dual_operator",
    "gram_of",
    "mapped_operator",
    "root_times",
    "solve",
    "solve_kernel",
    "tell",
    "without_negatives",
]
