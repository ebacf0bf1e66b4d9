"""The Krylov space that eigenpairs and square roots of an operator are looked for in."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualpca import _algebra, _array
from dualpca._typing import Array, Operator

EPS = float(np.finfo(np.float64).eps)


def norms(A: Any, axis: int) -> Any:
    """Return lengths along an axis; no square leaves the range of float64 on the way."""
    scale = float(np.abs(A).max(initial=0.0))
    return (
        scale * np.linalg.norm(A / scale, axis=axis) if scale > 0 else np.zeros(A.shape[1 - axis])
    )


class Basis:
    """An orthonormal basis Q of a Krylov space, kept as rows Qᵀ, and T = QᵀAQ."""

    def __init__(self, start: Array, capacity: int) -> None:
        m, self.size = start.shape
        self.fresh = self.size  # vectors whose product with A is not known yet
        self.capacity = max(capacity, self.size)
        self.Qt = _array.asarray(np.zeros((self.capacity, m)), start)
        self.T = _array.asarray(np.zeros((self.capacity, self.capacity)), start)
        self.Qt[: self.size, :] = start.T

    def combine(self, weights: Array) -> Array:
        """Return Q times `weights`, (m, k)."""
        return (weights.T @ self.Qt[: self.size, :]).T

    def expand(self, A: Operator) -> Array:
        """Multiply the fresh vectors by A; keep QᵀAQ, return R of the part outside of Q.

        The orthonormal factor of that part, the next block, is orthogonalised again once it has
        unit length: directions of little more than rounding size would spoil the basis.
        """
        old = self.size - self.fresh
        Qt = self.Qt[: self.size, :]
        Zt = (A @ Qt[old:, :].T).T
        Ht = Zt @ Qt.T
        self.T[old : self.size, : self.size] = Ht
        self.T[: self.size, old : self.size] = Ht.T
        U, s, Vt = _algebra.svd((Zt - Ht @ Qt).T)
        self.next = _algebra.orthonormal(U - (U.T @ Qt.T @ Qt).T)
        return s[:, None] * Vt

    def ritz(self) -> tuple[Array, Array]:
        """Return the eigenpairs of T, largest first."""
        T = self.T[: self.size, : self.size]
        xp = _array.namespace(T)
        values, weights = xp.linalg.eigh((T + T.T) / 2)
        return xp.flip(values, axis=0), xp.flip(weights, axis=1)

    def advance(self, rest: Array, values: Array, weights: Array, keep: int) -> bool:
        """Append the next block, restarting from `keep` Ritz vectors if there is no room."""
        lengths = norms(_array.to_numpy(rest), axis=1)
        kept = int(np.sum(lengths > 50 * EPS * max(float(values[0]), 0.0)))
        kept = min(kept, self.Qt.shape[1] - self.size)
        if kept == 0:
            return False
        if self.size + kept > self.capacity:
            self._restart(values, weights, min(keep, self.capacity - kept))
        self.Qt[self.size : self.size + kept, :] = self.next[:, :kept].T
        self.size, self.fresh = self.size + kept, kept
        return True

    def _restart(self, values: Array, weights: Array, keep: int) -> None:
        self.Qt[:keep, :] = self.combine(weights[:, :keep]).T
        self.T *= 0.0
        for p in range(keep):
            self.T[p, p] = values[p]
        self.size = keep
