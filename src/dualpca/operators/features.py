"""Finite feature maps that stand for a kernel: explicit, landmarks (Nyström), random features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from math import pi, sqrt
from operator import add
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np
import scipy.linalg

from dualpca.arrays import Array, algebra, backend
from dualpca.data import Host, Moments, block_weights
from dualpca.kernels import Kernel, Uncertain, feature_map, frequencies
from dualpca.operators.base import Spectrum
from dualpca.operators.primal import Scatter
from dualpca.operators.rows import Frame, Projection
from dualpca.operators.subspace import Subspace, no_expectations

# --- Which points stand for all: uniform, by leverage, or by pivoted Cholesky --------------------

PIVOTS = 32
"""Pivots tried at once."""

FIRST_DRAW_RIDGE = 1e-10
"""Share of its norm added to the kernel of a first draw, which may be singular."""

NEGLIGIBLE_TRACE = 1e-13
"""Share of the trace below which nothing but rounding error is left."""


class Pivots(NamedTuple):
    """Points chosen by a pivoted Cholesky factorisation of their kernel."""

    chosen: Host  # numbers of the points, (m,)
    trace: float  # what of Σwk(x, x) they leave out


def uniform(n: int, m: int, rng: np.random.Generator) -> Host:
    """Draw m of n points, in increasing order."""
    return np.sort(rng.choice(n, size=min(m, n), replace=False))


def leverage(X: Array, kernel: Kernel, m: int, rng: np.random.Generator) -> Host:
    """Draw half of m points evenly, and the others by how badly the first half explains them.

    l_i = k_ii − k_iS (K_SS + λI)⁻¹ k_Si with a λ of rounding size: what an even draw misses is
    drawn next (adaptive sampling, Kumar, Mohri & Talwalkar 2012; ridge leverage, Musco & Musco
    2017). The first half stays: without it, what it explains would be left out. O(nm²) time, one
    block of rows of memory.
    """
    n = int(X.shape[0])
    if m >= n:
        return np.arange(n)
    first = uniform(n, max(m // 2, 1), rng)
    left = _unexplained(X, kernel, first)
    left = left + 0.01 * left.mean() + np.finfo(float).tiny  # a little for every point
    left[first] = 0.0
    p = left / left.sum()
    return np.sort(np.append(first, rng.choice(n, size=m - first.size, replace=False, p=p)))


def _unexplained(X: Array, kernel: Kernel, index: Host) -> Host:
    """Return k_ii − k_iS (K_SS + λI)⁻¹ k_Si of every point (never negative), on the host."""
    chosen = backend.points(backend.take(X, index))
    values, vectors = np.linalg.eigh(backend.to_numpy(kernel(chosen, chosen)))
    ridge = FIRST_DRAW_RIDGE * np.abs(values).max() + np.finfo(float).tiny
    root = vectors / np.sqrt(np.clip(values, 0, None) + ridge)
    values_with, root = kernel.against(chosen), backend.asarray(root, backend.vector_like(X))

    def left(rows: slice) -> Host:
        block = backend.points(backend.some_rows(X, rows))
        explained = algebra.squared_norms(values_with(block) @ root)
        found: Host = backend.to_numpy(kernel.diag(block) - explained)
        return found

    cut = backend.slices(X.shape[0], backend.BLOCK_ROWS)
    found: Host = np.concatenate([left(rows) for rows in cut])
    return np.maximum(found, 0)


def pivoted_cholesky(
    X: Array,
    kernel: Kernel,
    m: int,
    tol: float,
    rng: np.random.Generator,
    weights: Array | None = None,
) -> Pivots:
    """Choose points one after another, each drawn by how badly the others explain it.

    Stops when what is left out of the trace is at most tol·Σwk(x, x), or at m points. Draws keep
    close to the best choice on average, where the greedy one runs after outliers (Chen, Epperly,
    Tropp & Webber 2023); candidates are evaluated a block at a time and thinned by rejection,
    which leaves their distribution as it is. Memory n×m, time O(nm²).
    """
    n = int(X.shape[0])
    left = backend.to_numpy(kernel.diag(backend.points(X))).astype(np.float64)
    w = np.ones(n) if weights is None else backend.to_numpy(weights)
    total, most, count = float(w @ left), min(m, n), 0
    L, index = np.empty((most, n)), np.empty(most, dtype=np.int64)
    while count < most and w @ left > max(tol, NEGLIGIBLE_TRACE) * total:
        draws = rng.choice(n, size=min(PIVOTS, most - count), p=w * left / (w @ left))
        chosen, rows = _block_of_pivots(X, kernel, L[:count], left, draws, rng)
        if not len(chosen):
            break
        new = slice(count, count + len(chosen))
        L[new], index[new], count = rows, chosen, count + len(chosen)
        left -= np.sum(rows * rows, axis=0)
        np.clip(left, 0, None, out=left)
        left[index[:count]] = 0.0
    if count == 0:  # a kernel that is zero everywhere: one point stands for all
        return Pivots(np.zeros(1, dtype=np.int64), 0.0)
    return Pivots(index[:count], float(w @ left))


def _block_of_pivots(
    X: Array, kernel: Kernel, L: Host, left: Host, draws: Host, rng: np.random.Generator
) -> tuple[Host, Host]:
    """Return the next pivots and their rows of the factor, (b, n)."""
    # in the order of the draws: sorted or shuffled, likely points would come first too seldom
    candidates = draws[np.sort(np.unique(draws, return_index=True)[1])]
    points = backend.points(backend.take(X, candidates))
    C = backend.to_numpy(kernel(points, backend.points(X))) - L[:, candidates].T @ L
    kept = _accepted(C[:, candidates], left[candidates], rng)
    chosen = candidates[kept]
    factor = np.linalg.cholesky(C[kept][:, chosen])
    return chosen, scipy.linalg.solve_triangular(factor, C[kept], lower=True)


def _accepted(S: Host, left: Host, rng: np.random.Generator) -> list[int]:
    """Return the candidates kept, each with the share of variance the earlier ones leave it."""
    kept: list[int] = []
    factor = np.zeros((0, 0))
    for j in range(len(left)):
        row = scipy.linalg.solve_triangular(factor, S[kept, j], lower=True) if kept else np.zeros(0)
        rest = S[j, j] - row @ row
        share = max(rng.random(), 1e-6) if kept else 1e-6  # less is rounding error
        if rest > share * left[j]:
            factor = np.block([[factor, np.zeros((len(kept), 1))], [row, np.sqrt(rest)]])
            kept.append(j)
    return kept


# --- Finite feature maps that stand for a kernel: landmarks (Nyström) and random Fourier features

SMALLEST_EIGENVALUE = 1e-12
"""Share of the largest below which eigenvalues of the landmarks' kernel are left out."""

MAPPED_ROWS = 2048
"""Rows mapped at once."""

WHITEN_LAST = 1e-6
"""Smallest ratio of the landmarks' eigenvalues at which whitening may wait until the end."""

GAP_ROWS = 500
"""Rows on which the error of random features is measured."""


class FeatureMap(Protocol):
    """A map f with f(x)ᵀf(y) near k(x, y)."""

    @property
    def kernel(self) -> Kernel:
        """What it stands for."""

    def __call__(self, X: Array) -> Array:
        """Return f(x) of every row, (n, m)."""


@dataclass(frozen=True)
class Landmarks:
    """f(x) = Nᵀ k(Z, x) with N Nᵀ the (pseudo-)inverse of k(Z, Z) (Williams & Seeger 2001).

    f(x)ᵀf(y) = k(x, Z) k(Z, Z)⁻¹ k(Z, y): the kernel of features projected on the span of the
    landmarks', so never more than k in the sense of quadratic forms (theory 18.1).
    """

    kernel: Kernel
    points: Annotated[Array, "points m d"]
    whitening: Annotated[Array, "m r"]

    @classmethod
    def of(cls, points: Array, kernel: Kernel) -> Landmarks:
        """Decompose the landmarks' kernel, O(m³)."""
        Z = backend.points(points)
        xp = backend.namespace(Z)
        K = kernel(Z, Z)
        values, vectors = xp.linalg.eigh((K + K.T) / 2)
        held = int(backend.to_numpy(values > SMALLEST_EIGENVALUE * float(xp.max(values))).sum())
        m = int(values.shape[0])
        return cls(kernel, Z, vectors[:, m - held :] / xp.sqrt(values[m - held :]))

    @property
    def is_tame(self) -> bool:
        """Whether moments of k(Z, x) can be whitened afterwards without losing digits."""
        lengths = backend.to_numpy(algebra.squared_norms(self.whitening.T))
        low, high = lengths.min(initial=1.0), lengths.max(initial=1.0)
        # squares must not overflow
        return bool(low > max(WHITEN_LAST * high, 1e-100) and high < 1e100)

    def raw(self, X: Array) -> Array:
        """Return k(x, Z) of every row, (n, m): f(x) before it is whitened."""
        return self.kernel.against(self.points)(backend.points(X))

    def __call__(self, X: Array) -> Array:
        """Return f(x) of every row, (n, r)."""
        return self.raw(X) @ self.whitening


@dataclass(frozen=True)
class Fourier:
    """f(x) = √(2/m) cos(Ωᵀx + b), with Ω drawn from the kernel's spectrum (Rahimi & Recht 2007).

    f(x)ᵀf(y) is k(x, y) on average, with an error of order 1/√m (theory 18.2).
    """

    kernel: Kernel
    frequencies: Annotated[Array, "d r"]
    phases: Annotated[Array, "r", "some"]
    gap: float = 0.0

    @classmethod
    def of(cls, kernel: Kernel, X: Array, m: int, rng: np.random.Generator) -> Fourier:
        """Draw m frequencies on the host, and see on some of the rows how far they are off."""
        drawn = frequencies(kernel, int(X.shape[1]), m, rng)
        phases = rng.uniform(0, 2 * pi, size=m)
        found = cls(kernel, backend.asarray(drawn, X), backend.asarray(phases, X))
        return replace(found, gap=kernel_gap(found, X))

    def __call__(self, X: Array) -> Array:
        """Return f(x) of every row, (n, m)."""
        xp = backend.namespace(self.phases)
        factor = sqrt(2 / self.phases.shape[0])
        return factor * xp.cos(backend.working(X) @ self.frequencies + self.phases)


def kernel_gap(f: FeatureMap, X: Array) -> float:
    """Return ‖H(K − FFᵀ)H‖₂ a point, from some of the rows: n times it bounds |λ − λ̃| (Weyl)."""
    rows = backend.points(X[:: max(1, int(X.shape[0]) // GAP_ROWS), ...])
    F = backend.to_numpy(f(rows))
    E = backend.to_numpy(f.kernel(rows, rows)) - F @ F.T
    E = E - E.mean(axis=0) - E.mean(axis=1)[:, None] + E.mean()
    return float(np.linalg.norm(E, 2)) / len(E)


class Mapped(NamedTuple):
    """Moments of mapped rows, and how much of the kernel the map holds."""

    moments: Annotated[Moments, "r=p"]
    total: float  # Σ w k(x, x)
    held: float  # Σ w ‖f(x)‖²

    def merge(self, other: Mapped) -> Mapped:
        """Join two disjoint sets of rows."""
        total, held = self.total + other.total, self.held + other.held
        return Mapped(self.moments.merge(other.moments), total, held)

    @property
    def left_out(self) -> float:
        """Share of Σ w k(x, x) outside of the map; Fourier features may hold too much."""
        return abs(self.total - self.held) / self.total if self.total > 0 else 0.0


def map_rows(f: FeatureMap, X: Array, weights: Array | None, *, center: bool = True) -> Mapped:
    """Gather the moments of f(x), a block of rows at a time: f(X) is never held, O(nm²)."""
    raw = f if isinstance(f, Landmarks) and f.is_tame else None
    moments, total = _gathered(f if raw is None else raw.raw, f.kernel, X, weights, center)
    if raw is not None:  # of 20,000 rows whitening each takes a fit from 0.73 to 0.80 s
        N = raw.whitening
        moments = Moments(moments.n, moments.mean @ N, N.T @ moments.scatter @ N)
    trace = float(backend.namespace(moments.mean).linalg.trace(moments.scatter))
    return Mapped(moments, total, trace + moments.n * float(moments.mean @ moments.mean))


def _gathered(
    f: Callable[[Array], Array], kernel: Kernel, X: Array, weights: Array | None, center: bool
) -> tuple[Moments, float]:
    """Return the moments of f(x), from sums around the mean of the first rows, and Σwk(x, x)."""
    first = f(backend.some_rows(X, slice(0, min(MAPPED_ROWS, int(X.shape[0])))))
    xp = backend.namespace(first)
    shift = xp.mean(first, axis=0) if center else xp.zeros_like(first[0, :])

    def sums(rows: slice) -> tuple[Any, ...]:
        """Return Σw, Σw(f − shift), Σw(f − shift)(f − shift)ᵀ and Σwk(x, x)."""
        block = backend.points(backend.some_rows(X, rows))
        F = f(block) - shift
        w = block_weights(weights, rows, F)
        around, total = w @ F, float(w @ backend.working(kernel.diag(block)))
        if weights is not None:
            F = F * xp.sqrt(w)[:, None]
        return float(xp.sum(w)), around, algebra.gram(F), total

    def plus(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(map(add, a, b))

    cut = backend.slices(int(X.shape[0]), MAPPED_ROWS)
    runs = backend.spread(lambda run: reduce(plus, map(sums, run)), cut, X)
    n, around, scatter, total = reduce(plus, runs)
    if not center:
        return Moments(n, shift, scatter), total
    scatter = scatter - around[:, None] * (around / n)[None, :]
    return Moments(n, shift + around / n, scatter), total


@dataclass(frozen=True)
class MappedSubspace:
    """A subspace of a finite feature space: axes V through a mean."""

    map: Annotated[FeatureMap, Landmarks | Fourier | Explicit, "d? r?"]
    axes: Annotated[Array, "r q"]
    mean: Annotated[Array, "r"]

    def coordinates(self, X: Array) -> Array:
        """Return y = Vᵀ(f(x) − mean), (n, q)."""
        return self.project(X).coordinates

    def project(self, X: Array) -> Projection:
        """Return coordinates and the squared distance off the span, in the space of the map."""
        xp, frame = backend.namespace(self.mean), Frame(self.mean)
        cut = backend.slices(X.shape[0], MAPPED_ROWS)
        parts = [frame.project(self.axes, self.map(backend.some_rows(X, rows))) for rows in cut]
        return Projection(*(xp.concat(list(part), axis=0) for part in zip(*parts, strict=True)))

    def expected_coordinates(self, rows: Uncertain) -> Array:
        """Refuse uncertain rows: random features have no expectations."""
        raise no_expectations(self)

    coordinate_covariance = expected_coordinates


class MappedScatter(Scatter):
    """The scatter of mapped points.

    Parameters
    ----------
    feature_map : FeatureMap
    mapped : Mapped
        Moments of all points.
    """

    def __init__(self, feature_map: FeatureMap, mapped: Mapped) -> None:
        super().__init__(mapped.moments)
        self.map, self.mapped = feature_map, mapped

    @property
    def left_out(self) -> float:
        """Share of Σwk(x, x) outside of the map."""
        return self.mapped.left_out

    @property
    def kernel_trace(self) -> float:
        """Variance of the points under the kernel itself; no less than under the map."""
        moments = self.mapped.moments
        total = self.mapped.total - moments.n * float(moments.mean @ moments.mean)
        return max(total, float(self.trace))

    @property
    def points(self) -> Array | None:
        """The landmarks; None for random features."""
        return self.map.points if isinstance(self.map, Landmarks) else None

    def subspace(self, spectrum: Spectrum) -> MappedSubspace:
        """Return the eigenvectors as axes of the map's space."""
        return MappedSubspace(self.map, spectrum.vectors, self.moments.mean)

    def gap(self, spectrum: Spectrum) -> float:
        """Return the relative error of the smallest eigenvalue that random features may cause."""
        if not isinstance(self.map, Fourier) or spectrum.rank == 0:
            return 0.0
        smallest = float(spectrum.values[-1])
        return self.map.gap * self.n / smallest if smallest > 0 else float("inf")

    def oriented(self, spectrum: Spectrum) -> Spectrum:
        """Return eigenpairs of which each axis points to the landmark furthest along it.

        As with the exact solvers: signs that do not hang on how k(Z, Z) was decomposed.
        """
        f, axes = self.map, spectrum.vectors
        if not isinstance(f, Landmarks) or 0 in axes.shape:
            return spectrum
        signs = algebra.signs((f(f.points) - self.moments.mean) @ axes)
        return replace(spectrum, vectors=axes * signs)

    def expansion(self, spectrum: Spectrum) -> Subspace | None:
        """Return the eigenvectors as expansions over the landmarks; None for random features."""
        f, axes, mean = self.map, self.oriented(spectrum).vectors, self.moments.mean
        if not isinstance(f, Landmarks):
            return None
        about = (f.whitening @ axes, f.whitening @ mean, axes.T @ mean, float(mean @ mean))
        return Subspace(f.points, f.kernel, *about)


# --- Feature maps that can be written down: those of kernels that declare one --------------------


@dataclass(frozen=True)
class Explicit:
    """f with f(x)ᵀf(y) = k(x, y), exactly, for kernels that declare such a map.

    Parameters
    ----------
    kernel : Kernel
        Linear, Polynomial with c ≥ 0, or sums and multiples of these; numbers for parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import Polynomial
    >>> x, y = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])
    >>> f = Explicit(Polynomial(degree=2, gamma=1.0))
    >>> f(x).shape, (f(x) @ f(y).T).round(8)
    ((1, 6), array([[144.]]))
    """

    kernel: Kernel

    def __call__(self, X: Array) -> Array:
        """Return f(x) of every row, (n, r)."""
        return feature_map(self.kernel, backend.points(X))
