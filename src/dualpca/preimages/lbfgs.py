"""Limited-memory BFGS directions for many independent rows (Nocedal & Wright 2006, Alg. 7.4)."""

from __future__ import annotations

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.preimages.span import Target

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
        xp, g = _array.namespace(Z), target.gradient(Z)
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
        self.pairs = [
            (_array.take(s, rows), _array.take(y, rows), _array.take(r, rows))
            for s, y, r in self.pairs
        ]
        if self.gain is not None:
            self.gain = _array.take(self.gain, rows)
        if self.last is not None and self.scale is not None:
            self.last = (_array.take(self.last[0], rows), _array.take(self.last[1], rows))
            self.scale = _array.take(self.scale, rows)

    def _learn(self, s: Array, y: Array, scale: Array) -> Array:
        """Remember a step and the change of the gradient along it; return the new scale."""
        xp = _array.namespace(s)
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
    return _array.namespace(A).sum(A * B, axis=1)


def _gain(g: Array) -> Array:
    """Return the power of two that brings the largest entry of every row near 1, (b,)."""
    xp = _array.namespace(g)
    top = xp.max(xp.abs(g), axis=1)
    usual = (top > 0) & xp.isfinite(top)
    return 2.0 ** -xp.floor(xp.log2(xp.where(usual, top, xp.ones_like(top))))
