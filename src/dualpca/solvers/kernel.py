"""From points and a kernel to an operator: exactly over the points, or through a feature map.

An exact solver works on `Dual`, the centred kernel over all points. An approximate one first makes
a finite feature map, and works on the scatter of the mapped points (`MappedScatter`), whose
moments add over chunks. Both kinds are entries of `KERNEL_SOLVERS`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dualpca.arrays import Array, backend, heard, note, shown
from dualpca.data import InMemoryTable, Table, refuse_nonfinite
from dualpca.errors import ScaleError, SolverWarning, SpectrumWarning, expected, warn
from dualpca.kernels import Kernel, Precomputed
from dualpca.operators import (
    Dual,
    FeatureMap,
    Fourier,
    Fused,
    Given,
    Gram,
    Landmarks,
    Mapped,
    MappedScatter,
    Spectrum,
    leave_out_negatives,
    leverage,
    make_gram,
    map_rows,
    pivoted_cholesky,
    stored_bytes,
    uniform,
)
from dualpca.solvers.base import KERNEL_SOLVERS, NOTHING_DRAWN, SOLVERS, Solver, choose, tell
from dualpca.solvers.dense import Dense
from dualpca.solvers.krylov import Krylov

LOOSE = 1e-2
"""The smallest `tol` at which 'auto' may leave a part of the trace out."""

SINGLE_EIGENVALUE_TOL = 1e-6
"""The smallest `tol` at which float32 kernel values are used without being asked for."""

Weights = Array | None  # (n,)

LANDMARKS = ("leverage", "kmeans", "uniform")
"""How 'nystrom' chooses landmarks."""


@dataclass(frozen=True)
class KernelOptions:
    """How the eigenpairs of a kernel are to be found, checked."""

    solver: str = "auto"  # or a name in `KERNEL_SOLVERS`
    tol: float = 0.0
    max_passes: int | None = None  # of block Krylov
    seed: Any = 0  # a number, or a generator
    center: bool = True
    dtype: str | None = None  # of kernel values; None is float32 where `tol` is loose enough
    memory_limit: float = 4 * 2**30  # bytes of a stored kernel
    n_landmarks: int = 500  # or random features
    landmarks: str = "leverage"
    cluster: Callable[[Array, int, int], Array] | None = None  # rows, count, seed to centres

    @property
    def entry(self) -> type[Solver] | None:
        """The solver that was asked for; None for 'auto'."""
        return KERNEL_SOLVERS.get(self.solver)

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
            raise ValueError(expected("eigen_solver", what, self.solver))


# --- Exact: the centred kernel over all points ---------------------------------------------------


def dual_operator(
    X: Array, kernel: Kernel, w: Weights, how: KernelOptions, *, double: bool = False
) -> Dual:
    """Return the centred kernel over the points; refuse one that float64 cannot hold."""
    operator = Dual(gram_of(X, kernel, how, double=double), None, w, center=how.center)
    refuse_kernel_overflow(operator.total)
    return operator


def gram_of(X: Array, kernel: Kernel, how: KernelOptions, *, double: bool = False) -> Gram:
    """Return the kernel over the points, stored where the memory limit allows it.

    Only kernels of the distance are evaluated in float32 unasked: centring subtracts what an offset
    adds to others, such as xᵀy, and with it the digits.
    """
    if isinstance(kernel, Precomputed):
        return Given(X, kernel)
    n = int(X.shape[0])
    loose = how.dtype is None and how.tol >= SINGLE_EIGENVALUE_TOL and kernel.invariant
    single = not double and (how.dtype == "float32" or loose)
    size = stored_bytes(n, single=single)
    gram = make_gram(X, kernel, single=single, stored=size <= how.memory_limit)
    if heard():
        text = f"stored, {shown(size)}" if size <= how.memory_limit else "computed in every pass"
        text = "fused with its products" if isinstance(gram, Fused) else text
        note(f"kernel of {n}x{n}: {text}, {'single' if single else 'double'} precision")
    return gram


def refuse_kernel_overflow(total: float) -> None:
    """Refuse a kernel whose trace float64 cannot hold: no value is larger than on the diagonal."""
    if not np.isfinite(total):
        raise ScaleError("kernel values overflow: X is too large. Divide it by a constant first.")


@contextmanager
def without_negatives(operator: Dual, kernel: Kernel, how: KernelOptions) -> Iterator[None]:
    """Leave negative eigenvalues out of the trace; say so once, with how much they are."""
    with warnings.catch_warnings():
        if not kernel.definite:
            leave_out_negatives(operator, how.rng)
        warnings.simplefilter("ignore", SpectrumWarning)  # reported already, or rounding error
        yield


def solve_without_negatives(
    operator: Dual, kernel: Kernel, rank: int, how: KernelOptions
) -> tuple[Spectrum, str]:
    """Return the leading eigenpairs and the solver's name; the trace is of positive eigenvalues.

    A solver that sees the other end of the spectrum on its way needs no search for it before.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpectrumWarning)  # reported below, or rounding error
        spectrum, name = solve_kernel(operator, rank, how)
    if kernel.definite:
        return spectrum, name
    leave_out_negatives(operator, NOTHING_DRAWN if operator.negative else how.rng)
    return replace(spectrum, trace=operator.trace), name


# --- Approximate: the scatter of a finite feature map --------------------------------------------


class FeatureSolver(Solver):
    """Make a finite feature map and decompose the scatter of the mapped points, O(nm(d + m))."""

    on_kernels: ClassVar[bool] = True
    approximate: ClassVar[bool] = True
    on_streams: ClassVar[bool] = False
    """Whether its map may be made of the first rows of a stream."""

    @staticmethod
    def feature_map(X: Array, kernel: Kernel, w: Weights, how: KernelOptions) -> FeatureMap:
        """Return the feature map that some of the rows, or all of them, give."""
        raise TypeError("a FeatureSolver must define feature_map")

    @staticmethod
    def suits(X: Array, kernel: Kernel, how: KernelOptions) -> bool:
        """Return True if 'auto' may try it first."""
        return False

    @staticmethod
    def warn_if_far(left_out: float, how: KernelOptions) -> None:
        """Warn where the map leaves more out than was asked for."""


class Nystrom(FeatureSolver):
    """Landmarks, chosen by the method `landmarks`."""

    name: ClassVar[str] = "nystrom"

    @staticmethod
    def feature_map(X: Array, kernel: Kernel, w: Weights, how: KernelOptions) -> FeatureMap:
        """Return the map of the landmarks."""
        rng, m, n = how.rng, how.n_landmarks, int(X.shape[0])
        if X.ndim == 1 and how.landmarks == "kmeans":
            what = "'leverage' or 'uniform': X holds items, which have no mean"
            raise ValueError(expected("landmarks", what, how.landmarks))
        if m >= n:
            return Landmarks.of(X, kernel)
        if how.landmarks == "kmeans" and how.cluster is not None:
            return Landmarks.of(how.cluster(X, m, int(rng.integers(2**31 - 1))), kernel)
        even = how.landmarks == "uniform"
        index = uniform(n, m, rng) if even else leverage(X, kernel, m, rng)
        return Landmarks.of(backend.take(X, index), kernel)


class Cholesky(FeatureSolver):
    """Landmarks by pivoted Cholesky, until `tol` of the trace is left out."""

    name: ClassVar[str] = "cholesky"
    on_streams: ClassVar[bool] = True

    @staticmethod
    def feature_map(X: Array, kernel: Kernel, w: Weights, how: KernelOptions) -> FeatureMap:
        """Return the map of the pivots."""
        found = pivoted_cholesky(X, kernel, how.n_landmarks, how.tol, how.rng, w)
        return Landmarks.of(backend.take(X, found.index), kernel)

    @staticmethod
    def suits(X: Array, kernel: Kernel, how: KernelOptions) -> bool:
        """Return True where `tol` is loose and the kernel too large to store."""
        fits = stored_bytes(int(X.shape[0]), single=True) <= how.memory_limit
        return not (how.tol < LOOSE or fits or X.ndim == 1 or isinstance(kernel, Precomputed))

    @staticmethod
    def warn_if_far(left_out: float, how: KernelOptions) -> None:
        """Warn where there were not landmarks enough for `tol`."""
        if left_out > max(how.tol, 1e-10):
            warn(
                f"{how.n_landmarks} landmarks leave {left_out:.2%} of the variance out; "
                f"tol={how.tol:g} was asked for. Raise n_landmarks, or use eigen_solver='krylov'.",
                SolverWarning,
            )


class RandomFeatures(FeatureSolver):
    """Random Fourier features."""

    name: ClassVar[str] = "fourier"
    on_streams: ClassVar[bool] = True

    @staticmethod
    def feature_map(X: Array, kernel: Kernel, w: Weights, how: KernelOptions) -> FeatureMap:
        """Return the map of random frequencies."""
        if X.ndim == 1:
            what = "one that needs no coordinates ('nystrom', 'cholesky'): X holds items"
            raise ValueError(expected("eigen_solver", what, how.solver))
        return Fourier.of(kernel, X, how.n_landmarks, how.rng)


def mapped_operator(
    table: Table, rows: Array, kernel: Kernel, entry: type[FeatureSolver], how: KernelOptions
) -> MappedScatter:
    """Return the scatter of all rows of a table under the map that `rows`, some or all, give."""
    chunked, center = not isinstance(table, InMemoryTable), how.center

    def of(chunk: Array, weights: Weights = None) -> Mapped:
        if chunked:
            refuse_nonfinite(chunk)
        return map_rows(feature_map, chunk, weights, center=center)

    with np.errstate(over="ignore", invalid="ignore"):
        refuse_kernel_overflow(float(backend.to_numpy(kernel.diag(backend.points(rows))).sum()))
        feature_map = entry.feature_map(rows, kernel, getattr(table, "weights", None), how)
        mapped = table.reduce(of, Mapped.merge)
        refuse_kernel_overflow(mapped.total)
    return MappedScatter(feature_map, mapped)


def affordable_operator(
    table: InMemoryTable, kernel: Kernel, how: KernelOptions
) -> tuple[MappedScatter, str] | None:
    """Return what 'auto' may use in place of the exact kernel, with its name; None if nothing.

    It is used if what it leaves out of the trace is within `tol`, which bounds the error of every
    eigenvalue.
    """
    if how.tol <= 0:
        return None
    for name, entry in KERNEL_SOLVERS.items():
        if issubclass(entry, FeatureSolver) and entry.suits(table.rows, kernel, how):
            operator = mapped_operator(table, table.rows, kernel, entry, how)
            if operator.left_out <= how.tol:
                return operator, name
    return None


# --- Solving -------------------------------------------------------------------------------------


def solve_kernel(
    operator: Dual | MappedScatter, rank: int, how: KernelOptions
) -> tuple[Spectrum, str]:
    """Return the leading eigenpairs of either kind of operator, and the solver that found them."""
    entry = how.entry
    if isinstance(operator, MappedScatter):
        name = Dense.name
    elif entry is None or (entry is Krylov and np.isinf(Krylov.cost(operator, rank))):
        name = choose(operator, rank)  # a block that fills the space gains nothing on 'dense'
    else:
        name = entry.name
    tell(name, operator, rank)
    solver = SOLVERS[name](tol=how.tol)
    if isinstance(solver, Krylov) and how.max_passes is not None:
        solver = replace(solver, max_passes=how.max_passes)
    if isinstance(solver, Krylov) and entry is None:
        solver = replace(solver, thin=True)
    rng = how.rng if solver.draws else NOTHING_DRAWN
    return solver.solve(operator, rank, rng), name
