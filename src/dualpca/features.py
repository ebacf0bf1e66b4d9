"""Finite feature maps that stand for a kernel: landmarks (Nyström) and random Fourier features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from math import pi, sqrt
from typing import Any, NamedTuple, Protocol

import numpy as np

from dualpca import _algebra, _array
from dualpca._typing import Array
from dualpca.errors import expected
from dualpca.kernels import RBF, Kernel, Laplacian, Matern
from dualpca.moments import Moments, block_weights
from dualpca.rows import Frame, Projection
from dualpca.spectrum import signs
from dualpca.subspace import Subspace

CUT = 1e-12
"""Eigenvalues of the landmarks' kernel below this share of the largest are left out."""

BLOCK = 2048
"""Rows mapped at once."""

TAME = 1e-6
"""Smallest ratio of the landmarks' eigenvalues at which whitening may wait until the end."""

SAMPLE = 500
"""Rows on which the error of random features is seen."""


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
    landmarks', so never more than k in the sense of quadratic forms.
    """

    kernel: Kernel
    points: Array  # (m, d)
    whitening: Array  # (m, r)

    @classmethod
    def of(cls, points: Array, kernel: Kernel) -> Landmarks:
        """Decompose the landmarks' kernel, O(m³)."""
        Z = _array.points(points)
        xp = _array.namespace(Z)
        K = kernel(Z, Z)
        values, vectors = xp.linalg.eigh((K + K.T) / 2)
        held = int(_array.to_numpy(values > CUT * float(xp.max(values))).sum())
        m = int(values.shape[0])
        return cls(kernel, Z, vectors[:, m - held :] / xp.sqrt(values[m - held :]))

    @property
    def is_tame(self) -> bool:
        """Whether moments of k(Z, x) can be whitened afterwards without losing digits."""
        lengths = _array.to_numpy(_algebra.squared_norms(self.whitening.T))
        low, high = lengths.min(initial=1.0), lengths.max(initial=1.0)
        return bool(low > max(TAME * high, 1e-100) and high < 1e100)  # squares must not overflow

    def raw(self, X: Array) -> Array:
        """Return k(x, Z) of every row, (n, m): f(x) before it is whitened."""
        return self.kernel.against(self.points)(_array.points(X))

    def __call__(self, X: Array) -> Array:
        """Return f(x) of every row, (n, r)."""
        return self.kernel.against(self.points)(_array.points(X)) @ self.whitening


@dataclass(frozen=True)
class Fourier:
    """f(x) = √(2/m) cos(Ωᵀx + b), with Ω drawn from the kernel's spectrum (Rahimi & Recht 2007).

    f(x)ᵀf(y) is k(x, y) on average, with an error of order 1/√m.
    """

    kernel: Kernel
    frequencies: Array  # (d, m)
    phases: Array  # (m,)
    gap: float = 0.0

    @classmethod
    def of(cls, kernel: Kernel, X: Array, m: int, rng: np.random.Generator) -> Fourier:
        """Draw m frequencies on the host, and see on some of the rows how far they are off."""
        frequencies = draw_frequencies(kernel, int(X.shape[1]), m, rng)
        phases = rng.uniform(0, 2 * pi, size=m)
        drawn = cls(kernel, _array.asarray(frequencies, X), _array.asarray(phases, X))
        return replace(drawn, gap=kernel_gap(drawn, X))

    def __call__(self, X: Array) -> Array:
        """Return f(x) of every row, (n, m)."""
        xp = _array.namespace(self.phases)
        factor = sqrt(2 / self.phases.shape[0])
        return factor * xp.cos(_array.working(X) @ self.frequencies + self.phases)


def kernel_gap(f: FeatureMap, X: Array) -> float:
    """Return ‖H(K − FFᵀ)H‖₂ a point, from some of the rows: n times it bounds |λ − λ̃| (Weyl)."""
    rows = _array.points(X[:: max(1, int(X.shape[0]) // SAMPLE), ...])
    F = _array.to_numpy(f(rows))
    E = _array.to_numpy(f.kernel(rows, rows)) - F @ F.T
    E = E - E.mean(axis=0) - E.mean(axis=1)[:, None] + E.mean()
    return float(np.linalg.norm(E, 2)) / len(E)


def draw_frequencies(kernel: Kernel, d: int, m: int, rng: np.random.Generator) -> Any:
    """Draw from the spectral density of a kernel, (d, m)."""
    if isinstance(kernel, RBF) and kernel.on is None:
        return np.sqrt(2 * _column_rates(kernel, d)) * rng.standard_normal((d, m))
    if isinstance(kernel, Matern) and kernel.on is None:  # Student's t with 2ν degrees of freedom
        spread = 1 / np.sqrt(rng.chisquare(2 * kernel.nu, size=m))
        return np.sqrt(_column_rates(kernel, d)) * rng.standard_normal((d, m)) * spread
    if isinstance(kernel, Laplacian) and kernel.on is None:
        return kernel.rate_of(d) * rng.standard_cauchy((d, m))
    what = "RBF, Matern or Laplacian for random Fourier features"
    raise ValueError(expected("kernel", what, kernel, "Use eigen_solver='nystrom'."))


def _column_rates(kernel: RBF | Matern, d: int) -> Any:
    """Return the factor of (x_c − y_c)² in the kernel's u, (d, 1), or (1, 1) for all columns."""
    return np.reshape(kernel.rates(np.empty((0, d))), (-1, 1))


class Mapped(NamedTuple):
    """Moments of mapped rows, and how much of the kernel the map holds."""

    moments: Moments
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
    if isinstance(f, Landmarks) and f.is_tame:
        return _whitened(f, _map_all(f.raw, f.kernel, X, weights, center))
    return _map_all(f, f.kernel, X, weights, center)


def _whitened(f: Landmarks, raw: Mapped) -> Mapped:
    """Return the moments of f(x) from those of k(x, Z): half the work of whitening every row."""
    N, moments = f.whitening, raw.moments
    mean, scatter = moments.mean @ N, N.T @ moments.scatter @ N
    held = float(_array.namespace(N).linalg.trace(scatter)) + moments.n * float(mean @ mean)
    return Mapped(Moments(moments.n, mean, scatter), raw.total, held)


def _map_all(
    f: Callable[[Array], Array], kernel: Kernel, X: Array, weights: Array | None, center: bool
) -> Mapped:
    n = int(X.shape[0])
    first = f(_array.some_rows(X, slice(0, min(BLOCK, n))))
    shift = _array.namespace(first).mean(first, axis=0)

    def part(cut: list[slice]) -> Mapped:
        origin = shift if center else 0 * shift
        return reduce(_plus, (_map_block(f, kernel, X, weights, rows, origin) for rows in cut))

    total = reduce(_plus, _array.spread(part, list(_array.slices(n, BLOCK)), X))
    return _centred(total, shift) if center else total._replace(moments=_at_zero(total.moments))


def _map_block(
    f: Callable[[Array], Array],
    kernel: Kernel,
    X: Array,
    weights: Array | None,
    rows: slice,
    shift: Array,
) -> Mapped:
    """Return sums around `shift`: `mean` and `scatter` are not yet divided or centred."""
    xp, block = _array.namespace(shift), _array.points(_array.some_rows(X, rows))
    F = f(block)
    w = block_weights(weights, rows, F)
    held = float(w @ xp.sum(F * F, axis=1))
    total = float(w @ _array.working(kernel.diag(block)))
    F = F - shift
    sums = w @ F
    if weights is not None:
        F = F * xp.sqrt(w)[:, None]
    return Mapped(Moments(float(xp.sum(w)), sums, _algebra.gram(F)), total, held)


def _plus(a: Mapped, b: Mapped) -> Mapped:
    """Add the sums of two sets of rows."""
    one, two = a.moments, b.moments
    sums = Moments(one.n + two.n, one.mean + two.mean, one.scatter + two.scatter)
    return Mapped(sums, a.total + b.total, a.held + b.held)


def _centred(sums: Mapped, shift: Array) -> Mapped:
    """Make moments of sums around `shift`."""
    n, total, scatter = sums.moments.n, sums.moments.mean, sums.moments.scatter
    scatter = scatter - total[:, None] * (total / n)[None, :]
    return sums._replace(moments=Moments(n, shift + total / n, scatter))


def _at_zero(sums: Moments) -> Moments:
    """Make moments around zero of sums around zero."""
    return Moments(sums.n, 0 * sums.mean, sums.scatter)


@dataclass(frozen=True)
class MappedSubspace:
    """A subspace of a finite feature space: axes V through a mean."""

    map: FeatureMap
    axes: Array  # (m, q)
    mean: Array  # (m,)

    def coordinates(self, X: Array) -> Array:
        """Return y = Vᵀ(f(x) − mean), (n, q)."""
        return self.project(X).coordinates

    def project(self, X: Array) -> Projection:
        """Return coordinates and the squared distance off the span, in the space of the map."""
        xp, frame = _array.namespace(self.mean), Frame(self.mean)
        cut = _array.slices(X.shape[0], BLOCK)
        parts = [frame.project(self.axes, self.map(_array.some_rows(X, rows))) for rows in cut]
        return Projection(*(xp.concat(list(part), axis=0) for part in zip(*parts, strict=True)))


def landmark_subspace(f: Landmarks, axes: Array, mean: Array) -> Subspace:
    """Return axes and mean of mapped features as expansions over the landmarks.

    Each axis points to the landmark furthest along it, as with the exact solvers: signs that do
    not hang on how k(Z, Z) was decomposed.
    """
    N = f.whitening
    if 0 not in axes.shape:
        axes = axes * signs((f(f.points) - mean) @ axes)
    return Subspace(f.points, f.kernel, N @ axes, N @ mean, axes.T @ mean, float(mean @ mean))
