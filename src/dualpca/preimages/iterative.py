"""Pre-images by descent (Mika's fixed point, L-BFGS), and the best of all methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Protocol

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.errors import expected
from dualpca.kernels import Kernel
from dualpca.preimages.base import Method, PreImage, Span, Target, better
from dualpca.preimages.closed import Distance, Learned, Smoother

# --- Descent over many points at once: one backtracking loop, directions from elsewhere ----------

ENOUGH = 1e-4
"""Share of the promised decrease that a step must achieve (Armijo)."""

HALVINGS = 40

ROUNDING = 4 * float(np.finfo(np.float64).eps)


class Steps(Protocol):
    """Where to go next; keeps what it needs of the rows' past."""

    def direction(self, target: Target, Z: Array) -> tuple[Array, Array]:
        """Return steps (b, d) and the slope of the objective along each, (b,), at most 0."""

    def take(self, rows: np.ndarray) -> None:
        """Forget all rows but these."""


def descend(
    target: Target, Z: Array, steps: Steps, max_iter: int, tol: float
) -> tuple[Array, np.ndarray]:
    """Return points at which no step lowers J, and the iterations of each row; J never rises.

    A row stops where it moves by less than `tol` times the spread of the data, or where J falls
    by no more than its rounding errors.
    """
    found, counts = Z, np.zeros(int(Z.shape[0]), dtype=np.int64)
    rows, value = np.arange(counts.size), target.value(Z)
    small = tol * target.span.spread
    for _ in range(max_iter):
        if rows.size == 0:
            break
        D, slope = steps.direction(target, Z)
        new, lower = _backtrack(target, Z, value, _capped(D, Z, target), slope)
        moved = np.linalg.norm(backend.to_numpy(new - Z), axis=1)
        fallen = backend.to_numpy(value - lower)
        noise = ROUNDING * backend.to_numpy(backend.namespace(Z).abs(value) + target.sqnorm)
        found, Z, value = backend.replaced(found, rows, new), new, lower
        counts[rows] += 1
        keep = np.flatnonzero((moved > small) & (fallen > noise))
        if keep.size < rows.size:
            rows, target = rows[keep], target.take(keep)
            Z, value = backend.take(Z, keep), backend.take(value, keep)
            steps.take(keep)
    return found, counts


def _backtrack(
    target: Target, Z: Array, value: Array, D: Array, slope: Array
) -> tuple[Array, Array]:
    """Halve each row's step until J falls enough; rows for which it never does stay."""
    new, lower = Z, value
    pending, t = np.arange(int(Z.shape[0])), 1.0
    for _ in range(HALVINGS):
        trial = target.span.inside(backend.take(Z, pending) + t * backend.take(D, pending))
        J = target.take(pending).value(trial)
        bound = backend.take(value, pending) + ENOUGH * t * backend.take(slope, pending)
        good = backend.to_numpy(J <= bound)
        here = np.flatnonzero(good)
        new = backend.replaced(new, pending[here], backend.take(trial, here))
        lower = backend.replaced(lower, pending[here], backend.take(J, here))
        pending, t = pending[~good], t / 2
        if pending.size == 0:
            break
    return new, lower


def _capped(D: Array, Z: Array, target: Target) -> Array:
    """Return steps no longer than the way to the middle of the data and across it."""
    xp = backend.namespace(Z)
    away = Z - target.span.centre
    longest = target.span.spread + xp.sqrt(xp.sum(away * away, axis=1))
    length = xp.sqrt(xp.sum(D * D, axis=1))
    ratio = longest / xp.where(length > 0, length, length + 1)
    return D * xp.where(ratio < 1, ratio, xp.ones_like(ratio))[:, None]


# --- Limited-memory BFGS directions for many independent rows (Nocedal & Wright 2006, Alg. 7.4) --

FIRST = 0.1
"""Length of the first step as a share of the spread of the data; curvature takes over then."""


class LBFGSSteps:
    """−Hg for every row, H from the row's last steps; a pair without curvature counts for nothing.

    A pair (s, y) with sᵀy ≤ 0 gets ρ = 0, which makes its part of the two-loop recursion vanish:
    rows can then share one memory although each skips pairs of its own.
    """

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.pairs: list[tuple[Array, Array, Array]] = []  # s (b, d), y (b, d), ρ (b,)
        self.last: tuple[Array, Array] | None = None  # z, g
        self.scale: Array | None = None  # (b,), H₀ = scale · I
        self.gain: Array | None = None  # (b,), brings J to a size whose squares are numbers

    def direction(self, target: Target, Z: Array) -> tuple[Array, Array]:
        """Return −Hg, and its slope gᵀ(−Hg) ≤ 0."""
        xp, g = backend.namespace(Z), target.gradient(Z)
        if self.gain is None:
            self.gain = _gain(g)
        g = self.gain[:, None] * g
        if self.last is None or self.scale is None:
            size = _dot(g, g) ** 0.5
            unit = target.span.spread if target.span.spread > 0 else 1.0
            self.scale = FIRST * unit / xp.where(size > 0, size, xp.ones_like(size))
        else:
            self.scale = self._learn(Z - self.last[0], g - self.last[1], self.scale)
        self.last = (Z, g)
        D = -self._two_loops(g, self.scale)
        return D, _dot(g, D) / self.gain

    def take(self, rows: np.ndarray) -> None:
        """Forget all rows but these."""
        some = partial(backend.take, index=rows)
        self.pairs = [(some(s), some(y), some(r)) for s, y, r in self.pairs]
        if self.gain is not None and self.last is not None and self.scale is not None:
            z, g = self.last
            self.last, self.gain, self.scale = (some(z), some(g)), some(self.gain), some(self.scale)

    def _learn(self, s: Array, y: Array, scale: Array) -> Array:
        """Remember a step and the change of the gradient along it; return the new scale."""
        xp = backend.namespace(s)
        sy, yy, ss = _dot(s, y), _dot(y, y), _dot(s, s)
        curved = sy > 1e-10 * (ss * yy) ** 0.5
        one = xp.ones_like(sy)
        rho = xp.where(curved, one / xp.where(curved, sy, one), 0 * one)
        self.pairs = [*self.pairs, (s, y, rho)][-self.memory :]
        # where J curves downwards, longer steps are worth trying
        return xp.where(curved, sy / xp.where(curved, yy, one), 2 * scale)

    def _two_loops(self, g: Array, scale: Array) -> Array:
        r, alphas = g, []
        for s, y, rho in reversed(self.pairs):
            alphas.append(rho * _dot(s, r))
            r = r - alphas[-1][:, None] * y
        r = scale[:, None] * r
        for (s, y, rho), alpha in zip(self.pairs, reversed(alphas), strict=True):
            r = r + (alpha - rho * _dot(y, r))[:, None] * s
        return r


def _dot(A: Array, B: Array) -> Array:
    """Return the inner product of every row of A with that of B, (b,)."""
    return backend.namespace(A).sum(A * B, axis=1)


def _gain(g: Array) -> Array:
    """Return the power of two that brings the largest entry of every row near 1, (b,)."""
    xp = backend.namespace(g)
    top = xp.max(xp.abs(g), axis=1)
    usual = (top > 0) & xp.isfinite(top)
    return 2.0 ** -xp.floor(xp.log2(xp.where(usual, top, xp.ones_like(top))))


# --- Pre-images by descent: Mika's fixed point and L-BFGS, from several starts -------------------


@dataclass(frozen=True)
class Iterative(Method):
    """Minimise ‖φ(z) − P‖² from several starts; the best end of each row is kept.

    Starts: the smoother's answer, the nearest training point, and `start` where given (the noisy
    point itself). Distances never rise on the way. `iterations` are those of the run kept.

    Parameters
    ----------
    max_iter : int
    tol : float
        A row stops where it moves by less than this share of the spread of the data.
    """

    max_iter: int = 200
    tol: float = 1e-7

    def __post_init__(self) -> None:
        """Refuse limits that stop nothing."""
        if self.max_iter < 1:
            raise ValueError(expected("max_iter", "at least 1", self.max_iter))
        if not self.tol >= 0:
            raise ValueError(expected("tol", "non-negative", self.tol))

    def _steps(self, target: Target) -> Steps:
        raise TypeError(expected("method", "a subclass that defines _steps", type(self).__name__))

    def run(self, target: Target, Z: Array) -> PreImage:
        """Descend from one start per row."""
        end, counts = descend(target, Z, self._steps(target), self.max_iter, self.tol)
        xp, device = backend.namespace(Z), backend.device_of(Z)
        return PreImage(end, target.distance(end), xp.asarray(counts, device=device))

    def _find(self, target: Target, start: Array | None) -> tuple[Array, np.ndarray | None]:
        span = target.span
        closest = backend.namespace(target.Y).argmin(span.gaps(target.Y), axis=1)
        starts = [Smoother()._find(target, None)[0], backend.take(span.points, closest)]
        best = self.run(target, starts[0])
        for Z in starts[1:] if start is None else [*starts[1:], start]:
            best = better(best, self.run(target, Z))
        return best.points, backend.to_numpy(best.iterations)


@dataclass(frozen=True)
class FixedPoint(Iterative):
    """z ← Σ_i γ_i s_i x_i / Σ_i γ_i s_i with s_i = −f'(u_i), for kernels f(rate · ‖z − x‖²).

    Where the gradient of ‖φ(z) − P‖² vanishes, z is this mean. For the RBF kernel s is the kernel
    itself and this is theory 11.1, of Mika et al. (1999, Eq. 10), here with the centred γ. Steps
    are halved towards the last z until the distance does not rise; where Σ γ s is negative the
    step is turned round, for it would climb.

    Cost O(n(d + q)) per row and iteration.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import RBF
    >>> from dualpca.preimages import Span
    >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
    >>> FixedPoint().find(span, np.array([[1.0]])).distance
    array([0.])
    """

    name: ClassVar[str] = "fixed-point"
    needs: ClassVar[str] = "a function of the distance (RBF, Matérn, …), or a multiple of one"

    def suits(self, kernel: Kernel) -> bool:
        """Return True if the kernel is stationary up to a factor."""
        return kernel._radial_slopes() is not None

    def _steps(self, target: Target) -> Steps:
        slopes = target.span.kernel._radial_slopes()
        assert slopes is not None  # find() has asked suits()
        return FixedPointSteps(slopes)


class FixedPointSteps:
    """From z to the weighted mean; no memory."""

    def __init__(self, slopes: Callable[[Array, Array], Array]) -> None:
        self.slopes = slopes

    def direction(self, target: Target, Z: Array) -> tuple[Array, Array]:
        """Return Σ γ s (x − z) / |Σ γ s|; the loop only asks that J does not rise."""
        xp = backend.namespace(Z)
        S = -target.weights * self.slopes(Z, target.span.points)
        S = xp.where(xp.isfinite(S), S, 0 * target.weights)
        total = xp.sum(S, axis=1)[:, None]
        size = xp.abs(total)
        D = (S @ target.span.points - total * Z) / xp.where(size > 0, size, xp.ones_like(size))
        return D, xp.zeros_like(total[:, 0])

    def take(self, rows: np.ndarray) -> None:
        """Nothing to forget."""


@dataclass(frozen=True)
class Gradient(Iterative):
    """L-BFGS on ‖φ(z) − P‖², for any kernel with a gradient, many rows at once.

    Cost O(n(d + q)) per row and iteration.

    Parameters
    ----------
    max_iter, tol :
        As above.
    memory : int
        Pairs of steps and gradients kept.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import RBF
    >>> from dualpca.preimages import Span
    >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
    >>> Gradient().find(span, np.array([[1.0]])).distance
    array([0.])
    """

    name: ClassVar[str] = "gradient"
    needs: ClassVar[str] = "a kernel with a gradient in x"
    memory: int = 8

    def suits(self, kernel: Kernel) -> bool:
        """Return True if all parts of the kernel have a gradient."""
        return kernel._differentiable

    def _steps(self, target: Target) -> Steps:
        return LBFGSSteps(self.memory)


# --- All methods that suit the kernel; each row keeps its best -----------------------------------


@dataclass(frozen=True)
class Auto(Method):
    """Run every method that suits the kernel, refine the best, keep the best point of each row.

    No part is ever closer. It costs as much as all of them. Close in feature space is not always
    close to the clean input: where P itself has shrunk to the mean under heavy noise, the smoother
    and the distances, which answer with neighbours, may denoise better.

    Parameters
    ----------
    parts : tuple of Method

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.kernels import RBF
    >>> from dualpca.preimages import Span
    >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
    >>> Auto().find(span, np.array([[1.0]])).distance
    array([0.])
    """

    name: ClassVar[str] = "auto"
    parts: tuple[Method, ...] = (Smoother(), Distance(), Learned(), FixedPoint(), Gradient())

    def prepare(self, span: Span) -> Method:
        """Prepare the methods that suit the kernel."""
        return Auto(tuple(p.prepare(span) for p in self.parts if p.suits(span.kernel)))

    def suits(self, kernel: Kernel) -> bool:
        """Return True if any part suits the kernel."""
        return any(p.suits(kernel) for p in self.parts)

    def _find(self, target: Target, start: Array | None) -> tuple[Array, np.ndarray | None]:
        best: PreImage | None = None
        for part in self.parts:
            found = part.block(target, start)
            best = found if best is None else better(best, found)
        assert best is not None  # find() has asked suits()
        if Gradient().suits(target.span.kernel):
            best = better(best, Gradient().run(target, best.points))
        return best.points, backend.to_numpy(best.iterations)
