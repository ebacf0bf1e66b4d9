"""Every case: its data, its contestants and its goal."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks import contestants as who
from benchmarks.contestants import Contestant
from benchmarks.data import Size
from benchmarks.kernel_tasks import KernelFit, KernelInverse, KernelTransform
from benchmarks.tasks import Fit, Import, Score, Stream, Task


@dataclass(frozen=True)
class Goal:
    """Limits on our contestants; None where there is none."""

    ratio: float | None = None  # to the time of the best peer
    error: float | None = None
    megabytes: float | None = None

    def __str__(self) -> str:
        parts = [
            self.ratio is not None and f"≤ {self.ratio:g}×",
            self.error is not None and f"error ≤ {self.error:.0e}",
            self.megabytes is not None and f"< {self.megabytes:g} MB",
        ]
        return ", ".join(part for part in parts if part)

    def missed(self, **measured: float | None) -> list[str]:
        """Names of the limits that were passed, or could not be checked."""
        limits = {name: getattr(self, name) for name in measured}
        return [
            name
            for name, limit in limits.items()
            # Negated so that a NaN misses its limit too.
            if limit is not None and ((value := measured[name]) is None or not value <= limit)
        ]


@dataclass(frozen=True)
class Case:
    """A task on data of one size; peers count as best only if they reach `accuracy`."""

    name: str
    task: type[Task]
    contestants: tuple[Contestant, ...]
    goal: Goal
    size: Size | None = None
    accuracy: float | None = field(default=None, kw_only=True)

    @property
    def title(self) -> str:
        return f"{self.name}: {self.size}" if self.size else self.name


def fit_case(name: str, size: Size, goal: Goal, peers: tuple[Contestant, ...]) -> Case:
    return Case(name, Fit, (*who.OURS, *peers), goal, size, accuracy=goal.error)


TRANSFORM = Goal(0.3, megabytes=100)


def cases(quick: bool = False) -> dict[str, Case]:
    """All cases by name; `quick` shrinks the data, and then the goals mean nothing."""

    def size(n: int, d: int, small: tuple[int, int], dtype: str = "float64") -> Size:
        return Size(*(small if quick else (n, d)), who.Q, dtype)

    tall = size(100_000, 500, (4_000, 100))
    tall32 = size(100_000, 500, (4_000, 100), "float32")
    every = [
        fit_case(
            "tall-50", size(1_000_000, 50, (20_000, 50)), Goal(0.6, 1e-8, 50), who.ALL_SOLVERS
        ),
        fit_case("tall-500", tall, Goal(1.0, 1e-8, 50), who.ALL_SOLVERS),
        fit_case("tall-500-float32", tall32, Goal(error=1e-6), who.ALL_SOLVERS),
        # Not covariance_eigh here: its 20,000×20,000 covariance takes minutes and 10 GB.
        fit_case(
            "wide-20000",
            size(2_000, 20_000, (200, 2_000)),
            Goal(0.4, 1e-8, 100),
            who.MATRIX_FREE_SOLVERS,
        ),
        fit_case(
            "tall-2000",
            size(20_000, 2_000, (2_000, 200)),
            Goal(0.4, 1e-8, 100),
            who.ALL_SOLVERS,
        ),
        Case("streaming", Stream, who.STREAMS, Goal(0.1), tall),
        Case("score", Score, who.SCORERS, Goal(0.1), size(5_000, 2_000, (500, 200))),
        Case("import", Import, who.IMPORTS, Goal(1.2)),
        # The package imports a name when it is asked for, scikit-learn all at once: compare use.
        Case("import-pca", Import, who.FIRST_MODELS, Goal(1.2)),
    ]
    return {case.name: case for case in every} | kernel_cases(quick)


def kernel_cases(quick: bool = False) -> dict[str, Case]:
    """Kernel PCA: RBF, d = 50, q = 10."""

    def size(n: int, kind: str = "surface") -> Size:
        return Size(min(n, 2_000) if quick else n, 50, who.KERNEL_Q, kind=kind)

    def fit(n: int, kind: str, goal: float, ours: Contestant, suffix: str = "") -> Case:
        peers = who.KERNEL_SOLVERS if n <= 3_000 else who.KERNEL_ARPACK
        peers = peers if n <= 10_000 and not suffix else who.KERNEL_FASTEST
        name, contestants = f"kernel-{n}-{kind}{suffix}", (ours, *peers)
        return Case(name, KernelFit, contestants, Goal(goal, 1e-8), size(n, kind), accuracy=1e-8)

    double, single = who.KERNEL_OURS
    every = []
    for kind in ("surface", "sphere"):
        every += [fit(1_000, kind, 0.5, double), fit(3_000, kind, 0.3, double)]
        for n in (10_000, 20_000):
            every += [fit(n, kind, 0.25, double), fit(n, kind, 0.15, single, "-float32")]
    free, large = Goal(error=1e-4, megabytes=1000), size(100_000)
    every += [
        Case("kernel-100000", KernelFit, who.KERNEL_FREE, free, large),
        Case("kernel-nystrom", KernelFit, who.NYSTROM, Goal(0.7), large),
        Case("kernel-transform", KernelTransform, who.KERNEL_MAPS, TRANSFORM, size(10_000)),
        Case("kernel-inverse", KernelInverse, who.KERNEL_INVERSES, Goal(0.3), size(10_000)),
    ]
    return {case.name: case for case in every}
