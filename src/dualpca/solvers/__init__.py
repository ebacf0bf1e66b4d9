"""Solvers: an operator goes in, its leading eigenpairs come out.

A solver is one class that declares its `cost`; `auto` is the smallest, with no ladder of ifs.
Below a millisecond the most accurate one is meant, QR, and products take its place where they keep
ten digits of every eigenvalue asked for.

Read `base` (what a solver is, the registries, `solve`), `dense`, `lanczos` and `krylov` (exact
solvers; square roots) and `kernel` (operators of a kernel: exact, landmarks, random features).
"""

from dualpca.solvers.base import KERNEL_SOLVERS, SOLVERS, Solver, choose, solve
from dualpca.solvers.dense import ONE_THREAD_ORDER
from dualpca.solvers.kernel import (
    LANDMARKS,
    FeatureSolver,
    KernelOptions,
    affordable_operator,
    dual_operator,
    gram_of,
    mapped_operator,
    solve_kernel,
    solve_without_negatives,
    without_negatives,
)
from dualpca.solvers.krylov import root_times
