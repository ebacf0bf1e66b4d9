"""Every case of the sections `pca` and `kernels`: its data and its contestants."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks import contestants as who
from benchmarks.contestants import Contestant
from benchmarks.data import Size
from benchmarks.kernel_tasks import KernelFit, KernelInverse, KernelTransform
from benchmarks.tasks import Fit, Import, Score, Stream, Task


@dataclass(frozen=True)
class Case:
    """A task on data of one size; peers count as best only if they reach `accuracy`."""

    name: str
    title: str
    task: type[Task]
    contestants: tuple[Contestant, ...]
    size: Size | None = None
    accuracy: float | None = field(default=None, kw_only=True)
    limit: float = field(default=60.0, kw_only=True)  # seconds of a first run, of all later ones


def cases(quick: bool = False) -> dict[str, Case]:
    """All cases by name; `quick` shrinks the data."""

    def size(n: int, d: int, small: tuple[int, int], dtype: str = "float64") -> Size:
        return Size(*(small if quick else (n, d)), who.Q, dtype)

    def fit(name: str, size: Size, peers: tuple[Contestant, ...], accuracy: float = 1e-8) -> Case:
        return Case(name, f"PCA, {size}", Fit, (*who.OURS, *peers), size, accuracy=accuracy)

    tall = size(100_000, 500, (4_000, 100))
    wide = size(2_000, 20_000, (200, 2_000))
    scored = size(5_000, 2_000, (500, 200))
    every = [
        fit("tall-50", size(1_000_000, 50, (20_000, 50)), who.ALL_SOLVERS),
        fit("tall-500", tall, who.ALL_SOLVERS),
        # In single precision nobody has eight digits: who has five takes part.
        fit(
            "tall-500-float32",
            size(100_000, 500, (4_000, 100), "float32"),
            who.ALL_SOLVERS,
            accuracy=1e-5,
        ),
        # Not covariance_eigh here: its 20,000×20,000 covariance takes minutes and 10 GB.
        fit("wide-20000", wide, who.MATRIX_FREE_SOLVERS),
        fit("tall-2000", size(20_000, 2_000, (2_000, 200)), who.ALL_SOLVERS),
        Case("streaming", f"partial_fit, {tall}", Stream, who.STREAMS, tall),
        Case("score", f"densities, {scored}", Score, who.SCORERS, scored),
        # The package imports a name when it is asked for, scikit-learn all at once: compare use.
        Case("import", "import of PCA", Import, who.IMPORTS),
    ]
    return {case.name: case for case in every} | kernel_cases(quick)


def kernel_cases(quick: bool = False) -> dict[str, Case]:
    """Kernel PCA: RBF, d = 50, q = 10."""

    def size(n: int, kind: str = "surface") -> Size:
        return Size(min(n, 2_000) if quick else n, 50, who.KERNEL_Q, kind=kind)

    def fit(n: int, kind: str) -> Case:
        peers = who.KERNEL_SOLVERS if n <= 3_000 else who.KERNEL_ARPACK
        ours = who.KERNEL_OURS if n > 3_000 else who.KERNEL_OURS[:2]
        title = f"kernel PCA, {n:,} points, {kind}"
        contestants = (*ours, *peers)
        return Case(f"{n}-{kind}", title, KernelFit, contestants, size(n, kind), accuracy=1e-8)

    every = [fit(n, kind) for n in (1_000, 3_000, 10_000) for kind in ("surface", "sphere")]
    large, some = size(100_000), size(10_000)
    every += [
        Case("landmarks", "landmarks, 100,000 points", KernelFit, who.NYSTROM, large),
        Case("transform", "transform, 10,000 points", KernelTransform, who.KERNEL_MAPS, some),
        Case("inverse", "learned inverse, 10,000 points", KernelInverse, who.KERNEL_INVERSES, some),
        Case(
            "100000-surface",
            "kernel PCA, 100,000 points, surface",
            KernelFit,
            who.KERNEL_FREE,
            large,
            limit=300.0,
        ),
    ]
    return {case.name: case for case in every}
