"""What a solver is, the registries that make one known by its definition, and how one is chosen.

For kernels there are two kinds. An exact solver works on `Dual`, the centred kernel over all
points. An approximate one, a `FeatureSolver`, first makes a finite feature map, and works on the
scatter of the mapped points (`MappedScatter`), whose moments add over chunks. Both kinds are
entries of `KERNEL_SOLVERS`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dualpca.arrays import EPS, Array, backend, note, shown, shows_progress
from dualpca.data import InMemoryTable, Table, namespace_sum, refuse_nonfinite
from dualpca.errors import ScaleError, expected
from dualpca.kernels import Kernel, Precomputed
from dualpca.operators import (
    MOST_FORMED,
    Crew,
    Dual,
    Factored,
    FeatureMap,
    Fused,
    Given,
    Gram,
    Mapped,
    MappedScatter,
    Operator,
    Spectrum,
    Spread,
    make_gram,
    map_rows,
    stored_bytes,
)

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
        Relative eigenvalue error that may remain; 0 asks for what the rows allow: see `attainable`.
    """

    name: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Names that kernel models accept beside the first one."""
    svd_names: ClassVar[tuple[str, ...]] = ()
    """What scikit-learn's PCA calls it."""
    on_kernels: ClassVar[bool] = False
    """Whether kernel models offer it."""
    approximate: ClassVar[bool] = False
    """Whether it solves for another operator, close to the one that was asked for."""
    draws: ClassVar[bool] = False
    """Whether it draws random numbers."""
    on_chunks: ClassVar[bool] = False
    """Whether products with an operator, or its matrix, are all it needs: rows may be chunked."""
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

    @classmethod
    def of(cls, how: KernelOptions) -> Solver:
        """Return the solver with the options for kernels that concern it."""
        return cls(how.tol)

    @classmethod
    def gains(cls, operator: Operator, rank: int) -> bool:
        """Return False if another solver is to take its place, though it was asked for."""
        return True

    @abstractmethod
    def solve(self, operator: Any, rank: int, rng: np.random.Generator) -> Spectrum:
        """Return the `rank` leading eigenpairs."""


NOTHING_DRAWN = np.random.default_rng(0)
"""For solvers that draw no random numbers: a generator takes longer to make than a small fit."""


class Accuracy(NamedTuple):
    """How exact eigenpairs are where `tol` is 0."""

    value: float  # relative error of eigenvalues
    angle: float  # of eigenvectors, in radians, once their values have settled
    residual: float  # of an eigenpair relative to its value


OF_DOUBLE = Accuracy(EPS, 5e-10, 1e-11)
"""Of float64 rows."""
OF_SINGLE = Accuracy(float(np.finfo(np.float32).eps), 1e-5, 2e-7)
"""Of float32 rows: their own rounding errors turn eigenvectors as far."""


def attainable(operator: Operator) -> Accuracy:
    """Return the accuracy at which an iteration with `tol=0` stops: what the rows allow.

    Of float32 rows nothing is known beyond seven digits, and results are float32 again: steps
    that would change the eighth are not made.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.operators import Primal
    >>> X = np.ones((3, 2), dtype=np.float32)
    >>> attainable(Primal(X)).angle, attainable(Primal(X.astype(np.float64))).angle
    (1e-05, 5e-10)
    """
    return OF_SINGLE if operator.given_eps > EPS else OF_DOUBLE


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


def note_solver(name: str, operator: Operator, rank: int) -> None:
    """Report which solver is used, at what cost and where, if progress is shown."""
    if not shows_progress():
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
        Relative error of the eigenvalues that an iterative solver may leave; 0 asks for the
        precision of the rows (`attainable`). Direct solvers always reach it.
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
    note_solver(name, operator, rank)
    return kind(tol=tol).solve(operator, rank, rng)


ACCURATE = "qr"
"""The solver that never squares the condition number."""

WELL_CONDITIONED = 1e-5
"""Share of the largest eigenvalue from which others keep ten digits though rows are squared."""


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
    note_solver(name, operator, rank)
    return found


# --- Kernels: what was asked for, and the operator of an exact solver ---------------------------

SINGLE_EIGENVALUE_TOL = 1e-6
"""The smallest `tol` at which float32 kernel values are used without being asked for, and what
they must reach where rows are float32."""

Weights = Array | None  # (n,)


@dataclass(frozen=True)
class KernelOptions:
    """How the eigenpairs of a kernel are to be found, checked."""

    eigen_solver: str = "auto"  # or a name in `KERNEL_SOLVERS`
    tol: float = 0.0
    max_passes: int | None = None  # of block Krylov
    seed: Any = 0  # a number, or a generator
    center: bool = True
    dtype: str | None = None  # of kernel values; None is float32 where that will do
    memory_limit: float = 4 * 2**30  # bytes of a stored kernel
    n_landmarks: int = 500  # or random features
    landmarks: str = "leverage"
    cluster: Callable[[Array, int, int], Array] | None = None  # rows, count, seed to centres
    as_rows: bool = False  # `tol` of 0 asks for no more than float32 rows can tell
    device: Any = None  # a name, or several; workers of a cluster work on the one named
    crew: Crew | None = None  # who shares products, where more than one device does

    def single(self, X: Array, kernel: Kernel) -> bool:
        """Return True if kernel values in float32 will do.

        They are used unasked for kernels of the distance alone: centring subtracts what an offset
        adds to others, such as xᵀy, and with it the digits. Of few points on the host the kernel
        is formed in float64 whatever the rows, which is faster.
        """
        if self.dtype is not None or not kernel.invariant:
            return self.dtype == "float32"
        follows = self.as_rows and self.tol == 0 and is_single(X)
        small = not backend.on_cuda(X) and int(X.shape[0]) <= MOST_FORMED
        return self.tol >= SINGLE_EIGENVALUE_TOL or (follows and not small)

    @property
    def entry(self) -> type[Solver] | None:
        """The solver that was asked for; None for 'auto'."""
        return KERNEL_SOLVERS.get(self.eigen_solver)

    @property
    def features(self) -> type[FeatureSolver] | None:
        """The approximate solver that was asked for, if it is one."""
        entry = self.entry
        return entry if entry is not None and issubclass(entry, FeatureSolver) else None

    @property
    def rng(self) -> np.random.Generator:
        """A generator of the seed."""
        return np.random.default_rng(self.seed)

    def require_exact(self, given: str) -> None:
        """Refuse an approximate solver where all points are needed."""
        if self.features is not None:
            names = [name for name, entry in KERNEL_SOLVERS.items() if not entry.approximate]
            what = f"an exact solver ('auto', {str(names)[1:-1]}) {given}"
            raise ValueError(expected("eigen_solver", what, self.eigen_solver))


def is_single(X: Array) -> bool:
    """Return True for dense rows of float32."""
    return not backend.is_sparse(X) and X.ndim == 2 and X.dtype == backend.namespace(X).float32


def dual_operator(
    X: Array, kernel: Kernel, w: Weights, how: KernelOptions, *, double: bool = False
) -> Dual:
    """Return the centred kernel over the points; refuse one that float64 cannot hold."""
    operator = Dual(gram_of(X, kernel, how, double=double), None, w, center=how.center)
    refuse_kernel_overflow(operator.total)
    return operator


def gram_of(X: Array, kernel: Kernel, how: KernelOptions, *, double: bool = False) -> Gram:
    """Return the kernel over the points, stored where the memory limit allows it."""
    if isinstance(kernel, Precomputed):
        return Given(X, kernel)
    n = int(X.shape[0])
    single = not double and how.single(X, kernel)
    size, crew = stored_bytes(n, single=single), how.crew
    stored = size <= how.memory_limit * (1 if crew is None else crew.places)
    gram: Gram
    if crew is None:
        gram = make_gram(X, kernel, single=single, stored=stored)
    else:
        device, limit = (how.device, how.memory_limit) if crew.elsewhere else (None, math.inf)
        gram = Spread(X, kernel, crew, device, limit, single=single, stored=stored)
    if shows_progress():
        text = f"stored, {shown(size)}" if stored else "computed in every pass"
        text = "fused with its products" if isinstance(gram, Fused) or gram.coarse else text
        text += "" if crew is None else f" in {crew.places} places"
        note(f"kernel of {n}x{n}: {text}, {'single' if single else 'double'} precision")
    return gram


def refuse_kernel_overflow(total: float) -> None:
    """Refuse a kernel whose trace float64 cannot hold: no value is larger than on the diagonal."""
    if not np.isfinite(total):
        raise ScaleError("kernel values overflow: X is too large. Divide it by a constant first.")


def solve_kernel(
    operator: Dual | MappedScatter, rank: int, how: KernelOptions
) -> tuple[Spectrum, str]:
    """Return the leading eigenpairs of either kind of operator, and the solver that found them."""
    if isinstance(operator, MappedScatter):
        name = "dense"
    elif how.entry is not None and how.entry.gains(operator, rank):
        name = how.entry.name
    else:
        name = choose(operator, rank)
    note_solver(name, operator, rank)
    solver = SOLVERS[name].of(how)
    return solver.solve(operator, rank, how.rng if solver.draws else NOTHING_DRAWN), name


# --- Approximate: the scatter of a finite feature map --------------------------------------------


class FeatureSolver(Solver):
    """Make a finite feature map and decompose the scatter of the mapped points, O(nm(d + m))."""

    on_kernels: ClassVar[bool] = True
    approximate: ClassVar[bool] = True
    on_streams: ClassVar[bool] = False
    """Whether its map may be made of the first rows of a stream."""

    @staticmethod
    @abstractmethod
    def feature_map(X: Array, kernel: Kernel, w: Weights, how: KernelOptions) -> FeatureMap:
        """Return the feature map that some of the rows, or all of them, give."""

    @staticmethod
    def suits(X: Array, kernel: Kernel, how: KernelOptions) -> bool:
        """Return True if 'auto' may try it first."""
        return False

    @staticmethod
    def warn_if_far(left_out: float, how: KernelOptions) -> None:
        """Warn where the map leaves more out than was asked for."""

    def solve(self, operator: Operator, rank: int, rng: np.random.Generator) -> Spectrum:
        """Return the leading eigenpairs of the scatter of the mapped points."""
        return SOLVERS["dense"]().solve(operator, rank, rng)


def mapped_operator(
    table: Table, rows: Array, kernel: Kernel, entry: type[FeatureSolver], how: KernelOptions
) -> MappedScatter:
    """Return the scatter of all rows of a table under the map that `rows`, some or all, give."""
    chunked, center = not isinstance(table, InMemoryTable), how.center

    def part(chunk: Array, weights: Weights = None) -> Mapped:
        if chunked:
            refuse_nonfinite(chunk)
        return map_rows(feature_map, chunk, weights, center=center)

    with np.errstate(over="ignore", invalid="ignore"):
        refuse_kernel_overflow(float(backend.to_numpy(kernel.diag(backend.points(rows))).sum()))
        feature_map = entry.feature_map(rows, kernel, getattr(table, "weights", None), how)
        mapped = table.reduce(part, Mapped.merge)
        refuse_kernel_overflow(mapped.total)
    return MappedScatter(feature_map, mapped)


def affordable_operator(
    table: InMemoryTable, kernel: Kernel, how: KernelOptions
) -> tuple[MappedScatter, str] | None:
    """Return what 'auto' may use in place of the exact kernel, with its name; None if nothing.

    It is used if what it leaves out of the trace is within `tol`, which bounds the error of every
    eigenvalue.
    """
    for name, entry in KERNEL_SOLVERS.items() if how.tol > 0 else ():
        if issubclass(entry, FeatureSolver) and entry.suits(table.rows, kernel, how):
            operator = mapped_operator(table, table.rows, kernel, entry, how)
            if operator.left_out <= how.tol:
                return operator, name
    return None
