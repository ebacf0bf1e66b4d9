"""Pre-images by descent (Mika's fixed point, L-BFGS), and the best of all methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.errors import expected
from dualpca.kernels import Kernel
from dualpca.preimages.base import Method, PreImage, Span, Target, better
from dualpca.preimages.closed import Distance, Learned, Smoother

# --- Descent over many points at once: one backtracking loop, directions from elsewhere ----------

SUFFICIENT_DECREASE = 1e-4
"""Share of the promised decrease that a step must achieve (Armijo)."""

HALVINGS = 40

VALUE_ROUNDING = 4 * float(np.finfo(np.float64).eps)
"""Rounding error of the objective, as a share of its size."""

Direction = Callable[[Target, Array, np.ndarray | None], tuple[Array, Array]]
"""From points Z to steps (b, d) and the slope of the objective along each, (b,), at most 0.

The last argument says which rows of the call before are left; None where all are.
"""


def descend_rows(
    target: Target, Z: Array, direction: Direction, max_iter: int, tol: float
) -> tuple[Array, np.ndarray]:
    """Return points at which no step lowers J, and the iterations of each row; J never rises.

    A row stops where it moves by less than `tol` times the spread of the data, or where J falls
    by no more than its rounding errors.
    """
    xp, span = backend.namespace(Z), target.span
    found, counts = Z, np.zeros(int(Z.shape[0]), dtype=np.int64)
    rows, value, left = np.arange(counts.size), target.value(Z), None
    while rows.size and counts[rows[0]] < max_iter:
        D, slope = direction(target, Z, left)
        away = Z - span.centre  # no step is longer than the way to the centre and across the data
        ratio = (span.spread + _dot(away, away) ** 0.5) / algebra.safe_divisor(_dot(D, D) ** 0.5)
        D = D * xp.where(ratio < 1, ratio, xp.ones_like(ratio))[:, None]
        new, lower = _backtrack(target, Z, value, D, slope)
        moved = np.linalg.norm(backend.to_numpy(new - Z), axis=1)
        fallen = backend.to_numpy(value - lower)
        size = backend.to_numpy(xp.abs(value) + target.sqnorm)
        found, Z, value = backend.replaced(found, rows, new), new, lower
        counts[rows] += 1
        going = (moved > tol * span.spread) & (fallen > VALUE_ROUNDING * size)
        left = None if going.all() else np.flatnonzero(going)
        if left is not None:
            rows, target = rows[left], target.take(left)
            Z, value = backend.take(Z, left), backend.take(value, left)
    return found, counts


def _backtrack(
    target: Target, Z: Array, value: Array, D: Array, slope: Array
) -> tuple[Array, Array]:
    """Halve each row's step until J falls enough; rows for which it never does stay."""
    new, lower = Z, value
    pending, t = np.arange(int(Z.shape[0])), 1.0
    while pending.size and t > 0.5**HALVINGS:
        z, step, J, fall = (backend.take(A, pending) for A in (Z, D, value, slope))
        trial = target.span.inside(z + t * step)
        found = target.take(pending).value(trial)
        good = backend.to_numpy(found <= J + SUFFICIENT_DECREASE * t * fall)
        here = np.flatnonzero(good)
        new = backend.replaced(new, pending[here], backend.take(trial, here))
        lower = backend.replaced(lower, pending[here], backend.take(found, here))
        pending, t = pending[~good], t / 2
    return new, lower


# --- Limited-memory BFGS directions for many independent rows (Nocedal & Wright 2006, Alg. 7.4) --

FIRST_STEP = 0.1
"""Length of the first step, as a share of the spread of the data."""


class LBFGSSteps:
    """−Hg for every row, H from the row's last steps; a pair without curvature counts for nothing.

    A pair (s, y) with sᵀy ≤ 0 gets ρ = 0, which makes its part of the two-loop recursion vanish:
    rows can then share one memory although each skips pairs of its own.
    """

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.pairs: list[list[Array]] = []  # s (b, d), y (b, d), ρ (b,)
        self.state: list[Array] = []
        """z, g, the scale of H₀ = scale · I, and what brings J to a size whose squares are held."""

    def direction(
        self, target: Target, Z: Array, left: np.ndarray | None = None
    ) -> tuple[Array, Array]:
        """Return −Hg, and its slope gᵀ(−Hg) ≤ 0."""
        if left is not None:
            self.pairs = [[backend.take(A, left) for A in pair] for pair in self.pairs]
            self.state = [backend.take(A, left) for A in self.state]
        g = target.gradient(Z)
        gain = self.state[3] if self.state else 1 / algebra.row_magnitudes(g)
        g = gain[:, None] * g
        if self.state:
            scale = self._learn(Z - self.state[0], g - self.state[1], self.state[2])
        else:
            unit = target.span.spread if target.span.spread > 0 else 1.0
            scale = FIRST_STEP * unit / algebra.safe_divisor(_dot(g, g) ** 0.5)
        self.state = [Z, g, scale, gain]
        D = -self._two_loops(g, scale)
        return D, _dot(g, D) / gain

    def _learn(self, s: Array, y: Array, scale: Array) -> Array:
        """Remember a step and the change of the gradient along it; return the new scale."""
        xp = backend.namespace(s)
        sy, yy, ss = _dot(s, y), _dot(y, y), _dot(s, s)
        curved = sy > 1e-10 * (ss * yy) ** 0.5
        one = xp.ones_like(sy)
        rho = xp.where(curved, one / xp.where(curved, sy, one), 0 * one)
        self.pairs = [*self.pairs, [s, y, rho]][-self.memory :]
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


# --- Pre-images by descent: Mika's fixed point and L-BFGS, from several starts -------------------


@dataclass(frozen=True)
class Iterative(Method, ABC):
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
        """Check the parameters."""
        if self.max_iter < 1:
            raise ValueError(expected("max_iter", "at least 1", self.max_iter))
        if not self.tol >= 0:
            raise ValueError(expected("tol", "non-negative", self.tol))

    @abstractmethod
    def _direction(self) -> Direction:
        """Return the direction of every step, of one run."""

    def run(self, target: Target, Z: Array) -> PreImage:
        """Descend from one start per row.

        Parameters
        ----------
        target : Target
            Rows of latents and the span they belong to.
        Z : array of shape (m, d)
            One start per row.

        Returns
        -------
        found : PreImage

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import RBF
        >>> from dualpca.preimages import Span
        >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
        >>> from dualpca.preimages import Gradient
        >>> Gradient().find(span, np.array([[1.0]]), start=np.array([[0.5]])).points.round(4)
        array([[0.]])
        """
        end, counts = descend_rows(target, Z, self._direction(), self.max_iter, self.tol)
        iterations = backend.namespace(Z).asarray(counts, device=backend.device_of(Z))
        return PreImage(end, target.distance(end), iterations)

    def _find(self, target: Target, start: Array | None) -> tuple[Array, Array | None]:
        span = target.span
        closest = backend.namespace(target.Y).argmin(target.gaps, axis=1)
        starts = [Smoother()._find(target, None)[0], backend.take(span.points, closest), start]
        best = reduce(better, (self.run(target, Z) for Z in starts if Z is not None))
        return best.points, best.iterations


@dataclass(frozen=True)
class FixedPoint(Iterative):
    """Mika's fixed-point iteration, for kernels that are a function of the distance.

    Where the gradient of ‖φ(z) − P‖² vanishes, z is this mean. For the RBF kernel s is the kernel
    itself and this is theory 11.1, of Mika et al. (1999, Eq. 10), here with the centred γ. Steps
    are halved towards the last z until the distance does not rise; where Σ γ s is negative the
    step is reversed, because it would increase the distance.

    Cost O(n(d + q)) per row and iteration.

    z ← Σ_i γ_i s_i x_i / Σ_i γ_i s_i with s_i = −f'(u_i), for kernels f(rate · ‖z − x‖²).

    Parameters
    ----------
    max_iter : int, default=200
        Largest number of iterations per row.
    tol : float, default=1e-07
        A row stops where it moves by less than `tol` times the spread of the data.

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
        """Return True if the kernel is stationary up to a factor.

        Parameters
        ----------
        kernel : Kernel

        Returns
        -------
        suits : bool

        Examples
        --------
        >>> from dualpca.kernels import RBF, Linear
        >>> from dualpca.preimages import FixedPoint
        >>> FixedPoint().suits(RBF()), FixedPoint().suits(Linear())
        (True, False)
        """
        return kernel._radial_slopes() is not None

    def _direction(self) -> Direction:
        return fixed_point_direction


def fixed_point_direction(target: Target, Z: Array, left: np.ndarray | None) -> tuple[Array, Array]:
    """Return Σ γ s (x − z) / |Σ γ s|, and slopes of 0: the loop only asks that J does not rise."""
    xp, slopes = backend.namespace(Z), target.span.kernel._radial_slopes()
    assert slopes is not None  # find() has asked suits()
    S = -target.weights * slopes(Z, target.span.points)
    S = xp.where(xp.isfinite(S), S, 0 * target.weights)
    total = xp.sum(S, axis=1)[:, None]
    D = (S @ target.span.points - total * Z) / algebra.safe_divisor(xp.abs(total))
    return D, xp.zeros_like(total[:, 0])


@dataclass(frozen=True)
class Gradient(Iterative):
    """L-BFGS on the distance in feature space, for any kernel with a gradient.

    Cost O(n(d + q)) per row and iteration.

    Parameters
    ----------
    max_iter : int, default=200
        Largest number of iterations per row.
    tol : float, default=1e-07
        A row stops where it moves by less than `tol` times the spread of the data.
    memory : int, default=8
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
        """Return True if all parts of the kernel have a gradient.

        Parameters
        ----------
        kernel : Kernel

        Returns
        -------
        suits : bool

        Examples
        --------
        >>> from dualpca.kernels import RBF
        >>> from dualpca.preimages import Gradient
        >>> Gradient().suits(RBF())
        True
        """
        return kernel._differentiable

    def _direction(self) -> Direction:
        return LBFGSSteps(self.memory).direction


# --- All methods that suit the kernel; each row keeps its best -----------------------------------


@dataclass(frozen=True)
class Auto(Method):
    """Run every method that suits the kernel, refine the best, keep the best point of each row.

    No part is ever closer. It costs as much as all of them. Close in feature space is not always
    close to the clean input: where P itself has shrunk to the mean under heavy noise, the smoother
    and the distances, which answer with neighbours, may denoise better.

    Parameters
    ----------
    parts : tuple of Method, default=(Smoother(), Distance(), Learned(), FixedPoint(), Gradient())
        Methods to try, each with its own parameters.

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
        """Prepare the methods that suit the kernel.

        Parameters
        ----------
        span : Span

        Returns
        -------
        method : Method

        Examples
        --------
        >>> import numpy as np
        >>> from dualpca.kernels import RBF
        >>> from dualpca.preimages import Span
        >>> span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2)[:, :1], np.zeros(2))
        >>> from dualpca.preimages import Auto
        >>> type(Auto().prepare(span)).__name__
        'Auto'
        """
        return Auto(tuple(p.prepare(span) for p in self.parts if p.suits(span.kernel)))

    def suits(self, kernel: Kernel) -> bool:
        """Return True if any part suits the kernel.

        Parameters
        ----------
        kernel : Kernel

        Returns
        -------
        suits : bool

        Examples
        --------
        >>> from dualpca.kernels import RBF
        >>> from dualpca.preimages import Auto
        >>> Auto().suits(RBF())
        True
        """
        return any(p.suits(kernel) for p in self.parts)

    def _find(self, target: Target, start: Array | None) -> tuple[Array, Array | None]:
        best = reduce(better, (part.block(target, start) for part in self.parts))
        if Gradient().suits(target.span.kernel):
            best = better(best, Gradient().run(target, best.points))
        return best.points, best.iterations
