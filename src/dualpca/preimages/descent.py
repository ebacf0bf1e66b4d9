"""Descent over many points at once: one backtracking loop, directions from elsewhere.

Every row has its own step length and stops on its own; rows that are done drop out.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.preimages.span import Target

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
        moved, fallen = _host_norms(new - Z), _array.to_numpy(value - lower)
        noise = ROUNDING * _array.to_numpy(_array.namespace(Z).abs(value) + target.sqnorm)
        found, Z, value = _array.replaced(found, rows, new), new, lower
        counts[rows] += 1
        keep = np.flatnonzero((moved > small) & (fallen > noise))
        if keep.size < rows.size:
            rows, target = rows[keep], target.take(keep)
            Z, value = _array.take(Z, keep), _array.take(value, keep)
            steps.take(keep)
    return found, counts


def _backtrack(
    target: Target, Z: Array, value: Array, D: Array, slope: Array
) -> tuple[Array, Array]:
    """Halve each row's step until J falls enough; rows for which it never does stay."""
    new, lower = Z, value
    pending, t = np.arange(int(Z.shape[0])), 1.0
    for _ in range(HALVINGS):
        trial = target.span.inside(_array.take(Z, pending) + t * _array.take(D, pending))
        J = target.take(pending).value(trial)
        bound = _array.take(value, pending) + ENOUGH * t * _array.take(slope, pending)
        good = _array.to_numpy(J <= bound)
        here = np.flatnonzero(good)
        new = _array.replaced(new, pending[here], _array.take(trial, here))
        lower = _array.replaced(lower, pending[here], _array.take(J, here))
        pending, t = pending[~good], t / 2
        if pending.size == 0:
            break
    return new, lower


def _capped(D: Array, Z: Array, target: Target) -> Array:
    """Return steps no longer than the way to the middle of the data and across it."""
    xp = _array.namespace(Z)
    away = Z - target.span.centre
    longest = target.span.spread + xp.sqrt(xp.sum(away * away, axis=1))
    length = xp.sqrt(xp.sum(D * D, axis=1))
    ratio = longest / xp.where(length > 0, length, length + 1)
    return D * xp.where(ratio < 1, ratio, xp.ones_like(ratio))[:, None]


def _host_norms(A: Array) -> np.ndarray:
    return np.asarray(np.linalg.norm(_array.to_numpy(A), axis=1))
