"""Solvers: an operator goes in, its leading eigenpairs come out.

A solver is one class that declares its `cost`; `auto` is the smallest, with no ladder of ifs.
Below a millisecond the most accurate one is meant, QR, and products take its place where they keep
ten digits of every eigenvalue asked for.

Read `base` (what a solver is, the registries, `solve`; kernels and what may be asked of their
solvers), `exact` (of a stored matrix, or of an operator known by its products; square roots) and
`landmarks` (approximate ones: landmarks, random features). A file imported here is registered: of
two solvers with the same cost the first is taken.
"""

from dualpca.solvers.base import (
    KERNEL_SOLVERS,
    SINGLE_EIGENVALUE_TOL,
    SOLVERS,
    FeatureSolver,
    KernelOptions,
    Solver,
    affordable_operator,
    choose,
    dual_operator,
    gram_of,
    mapped_operator,
    solve,
    solve_kernel,
)
from dualpca.solvers.exact import ONE_THREAD_ORDER, root_times
from dualpca.solvers.landmarks import LANDMARKS
