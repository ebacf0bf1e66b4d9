"""Kernel values of points of feature space: what the dual model is a distribution of (MATH 8).

A point φ of feature space shows itself through kc_i = ⟨φ(x_i) − φ̄, φ − φ̄⟩ for anchors x_i, the
training points. A space knows the anchors' coordinates on the model's directions and draws noise
ε ~ N(0, I) as its kernel values; `draw` and `draw_given` make samples of the model of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.gaussian import SpikedGaussian
from dualpca.kernels import Kernel, Precomputed
from dualpca.operators import Dual, Given, Gram, Spectrum, make_gram, stored_bytes
from dualpca.solvers import root_times

DENSE_ORDER, DENSE_MOST = 512, 4096
"""Up to these orders the whole spectrum is cheap: always, and for as many draws as points."""

SINGLE_TOL = 1e-3
"""The smallest error of the noise at which kernel values in float32 do."""


class AnchorSpace(Protocol):
    """Feature space as the anchors see it: all that `draw` needs to know of it."""

    @property
    def anchors(self) -> Array:
        """v_pᵀ(φ(x_i) − φ̄), (n, q)."""

    @property
    def means(self) -> Array:
        """⟨φ(x_i), φ̄⟩, (n,); zeros where features are not centred."""

    @property
    def tilt(self) -> Array:
        """v_pᵀφ̄, (q,)."""

    def noise(self, rng: np.random.Generator, m: int, tol: float, *, inside: bool) -> Array:
        """Draw ε ~ N(0, I), off the directions or also along them; return its kc, (m, n)."""


def signal(space: AnchorSpace, Y: Array, *, centered: bool = True) -> Array:
    """Return kernel values of φ̄ + Σ y_p v_p, (m, n).

    Centred, kc_i = ⟨φ(x_i) − φ̄, Σ y_p v_p⟩ (k̂c = Kc A h of S0, Eq. 17); otherwise
    k_i = ⟨φ(x_i), φ̄ + Σ y_p v_p⟩, the values that a kernel smoother takes.
    """
    kc = Y @ space.anchors.T
    return kc if centered else kc + space.means + (Y @ space.tilt)[:, None]


def draw(
    space: AnchorSpace, gaussian: SpikedGaussian, m: int, rng: np.random.Generator, tol: float
) -> Array:
    """Draw m times from kc ~ N(0, Kc A Aᵀ Kc + σ²Kc), (m, n); MATH 8.2.

    kc = Σ_{p≤q} λ_p n^{-1/2} e_p a_p + σ (I − EEᵀ) Kc^{1/2} ξ with a, ξ standard normal: the
    spectrum beyond q is never computed.
    """
    xp = backend.namespace(gaussian.values)
    a = backend.normal(rng, (m, gaussian.rank), gaussian.values)
    found = signal(space, a * xp.sqrt(gaussian.values))
    if gaussian.noise > 0:
        found = found + gaussian.noise**0.5 * space.noise(rng, m, tol, inside=False)
    return found


def draw_given(
    space: AnchorSpace, gaussian: SpikedGaussian, Z: Array, rng: np.random.Generator, tol: float
) -> Array:
    """Draw from kc | h ~ N(Kc A h, σ²Kc) for every row h of Z, (m, n)."""
    found = signal(space, Z * gaussian.spread)
    if gaussian.noise > 0:
        found = found + gaussian.noise**0.5 * space.noise(rng, int(Z.shape[0]), tol, inside=True)
    return found


@dataclass(frozen=True, eq=False)
class PointSpace:
    """The span of the training points' features, exactly.

    ε on that span has kc ~ N(0, Kc): kc = Kc^{1/2} ξ, by Lanczos on the operator. With weights w
    the eigenpairs are those of D^{1/2} Kc D^{1/2}, D = diag w, and all w are positive.
    """

    points: Array  # (n, d), or the kernel matrix
    kernel: Kernel
    weights: Array  # (n,)
    centered: bool
    spectrum: Spectrum
    means: Array  # (n,)
    tilt: Array  # (q,)
    memory_limit: float

    def __getstate__(self) -> dict[str, Any]:
        """Leave the anchors to be computed again: they repeat the spectrum."""
        return {k: v for k, v in self.__dict__.items() if k != "anchors"}

    @cached_property
    def anchors(self) -> Array:
        """D^{-1/2} E Λ^{1/2}, (n, q)."""
        root = backend.namespace(self.weights).sqrt(self.spectrum.values)
        return self.spectrum.vectors * root / self._root[:, None]

    @property
    def _root(self) -> Array:
        return backend.namespace(self.weights).sqrt(self.weights)

    def operator(self, *, single: bool) -> Dual:
        """Return Kc as an operator, stored where the memory limit allows it."""
        if isinstance(self.kernel, Precomputed):
            gram: Gram = Given(self.points, self.kernel)
        else:
            n = int(self.points.shape[0])
            stored = stored_bytes(n, single=single) <= self.memory_limit
            gram = make_gram(self.points, self.kernel, single=single, stored=stored)
        return Dual(gram, weights=self.weights, center=self.centered)

    def noise(self, rng: np.random.Generator, m: int, tol: float, *, inside: bool) -> Array:
        """Draw kernel values of ε ~ N(0, I) on the span, (m, n)."""
        n, E = int(self.weights.shape[0]), self.spectrum.vectors
        xi = backend.normal(rng, (m, n), E).T
        along = E.T @ xi
        off = self._off(self._root_times(xi - E @ along, tol))
        if inside:
            root = backend.namespace(E).sqrt(self.spectrum.values)
            off = off + E @ (root[:, None] * along)
        return (off / self._root[:, None]).T

    def _off(self, V: Array) -> Array:
        """Return (I − EEᵀ) V."""
        E = self.spectrum.vectors
        return V - E @ (E.T @ V)

    def _root_times(self, V: Array, tol: float) -> Array:
        """Return Kc^{1/2} V: from all eigenpairs where that is cheap, else by Lanczos."""
        n, m = int(V.shape[0]), int(V.shape[1])
        if n <= DENSE_ORDER or (n <= DENSE_MOST and n <= m):
            values, vectors = algebra.top_eigh(self.operator(single=False).dense(), n)
            xp = backend.namespace(values)
            root = xp.sqrt(xp.where(values < 0, xp.zeros_like(values), values))
            return vectors @ (root[:, None] * (vectors.T @ V))
        return root_times(self.operator(single=tol >= SINGLE_TOL), V, tol=tol).product


@dataclass(frozen=True, eq=False)
class MapSpace:
    """The space of a finite feature map f, in which everything is explicit."""

    features: Array  # (n, r), f(x_i) − mean of the anchors
    axes: Array  # (r, q)
    mean: Array  # (r,)

    @cached_property
    def anchors(self) -> Array:
        """(f(x_i) − mean)ᵀV, (n, q)."""
        return self.features @ self.axes

    @cached_property
    def means(self) -> Array:
        """f(x_i)ᵀ mean, (n,)."""
        return self.features @ self.mean + self.mean @ self.mean

    @cached_property
    def tilt(self) -> Array:
        """Vᵀ mean, (q,)."""
        return self.axes.T @ self.mean

    def noise(self, rng: np.random.Generator, m: int, tol: float, *, inside: bool) -> Array:
        """Draw kernel values of ε ~ N(0, I_r), (m, n); exact."""
        xi = backend.normal(rng, (m, int(self.axes.shape[0])), self.axes)
        if not inside:
            xi = xi - (xi @ self.axes) @ self.axes.T
        return xi @ self.features.T
