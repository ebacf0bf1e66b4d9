"""From distances to kernels: principal coordinates, and what to do if they are not Euclidean.

Squared distances D² between points of a Euclidean space have the centred kernel Kc = −½ H D² H
(S3, section 5.1). Other distances leave it with negative eigenvalues; a constant added to the
distances takes them away (Lingoes 1971; Cailliez 1983).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import NonFiniteError, expected

ASYMMETRY = 1e-8
"""Largest |D − Dᵀ|, and diagonal, that counts as rounding, relative to the largest entry."""

SAME = 1e-12
"""Share of the largest distance of an item below which another is the same item."""

CORRECTIONS = ("lingoes", "cailliez")


@dataclass(frozen=True)
class Correction:
    """A constant that makes distances Euclidean.

    Parameters
    ----------
    kind : {None, 'lingoes', 'cailliez'}
        d' = √(d² + 2c) or d' = d + c for different items; None leaves them as they are.
    constant : float
        c ≥ 0; 0 where the distances are Euclidean already.

    Examples
    --------
    >>> import numpy as np
    >>> D = np.array([[0.0, 1.0, 3.0], [1.0, 0.0, 1.0], [3.0, 1.0, 0.0]])  # 3 > 1 + 1
    >>> Correction.of(D, "cailliez").constant
    1.0
    """

    kind: str | None = None
    constant: float = 0.0

    @classmethod
    def of(cls, D: Array, kind: str | None) -> Correction:
        """Return the smallest constant of this kind that makes D Euclidean; O(n³)."""
        if kind is None:
            return cls()
        if kind not in CORRECTIONS:
            raise ValueError(expected("correction", f"None or one of {list(CORRECTIONS)}", kind))
        host = _array.to_numpy(_array.working(D))
        found = lingoes_constant(host) if kind == "lingoes" else cailliez_constant(host)
        return cls(kind, found)

    def kernel(self, D: Array) -> Array:
        """Return −½d'² with d' the corrected distances, (m, n): a kernel, once it is centred.

        Parameters
        ----------
        D : array of shape (m, n)
            Distances of m items from the n training items. An item at distance 0 is that training
            item, which keeps it; of k such training items it is each with probability 1/k.
            Zero is what is below 1e-12 of the largest.
        """
        D = _array.working(D)
        if self.constant == 0:
            return -0.5 * D * D
        xp = _array.namespace(D)
        same = xp.astype(D <= SAME * xp.max(D, axis=1)[:, None], xp.float64)
        ties = xp.sum(same, axis=1)[:, None]
        share = same / xp.where(ties > 0, ties, xp.ones_like(ties))
        return -0.5 * self._squares(D) * (1 - share)

    def training_kernel(self, D: Array) -> Array:
        """Return −½d'² between the training items, (n, n): all but the diagonal is corrected."""
        D = _array.working(D)
        if self.constant == 0:
            return -0.5 * D * D
        return -0.5 * self._squares(D) * (1 - _array.identity(int(D.shape[0]), D))

    def _squares(self, D: Array) -> Array:
        """Return d'² of different items."""
        return D * D + 2 * self.constant if self.kind == "lingoes" else (D + self.constant) ** 2


def lingoes_constant(D: np.ndarray[Any, Any]) -> float:
    """Return c = −λ_min(−½ H D² H), at least 0: with √(d² + 2c) every eigenvalue rises by c.

    Lingoes (1971), Some boundary conditions for a monotone analysis of symmetric matrices.
    """
    return _beyond_rounding(-np.linalg.eigvalsh(_centred(-0.5 * D * D))[0], D * D)


def cailliez_constant(D: np.ndarray[Any, Any]) -> float:
    """Return the smallest c ≥ 0 for which d + c is Euclidean.

    The largest real eigenvalue of [[0, 2A], [−I, −4B]] with A = −½ H D² H and B = −½ H D H
    (Cailliez 1983, The analytical solution of the additive constant problem). O((2n)³).
    """
    A, B = _centred(-0.5 * D * D), _centred(-0.5 * D)
    if _beyond_rounding(-np.linalg.eigvalsh(A)[0], D * D) == 0:
        return 0.0
    zero, one = np.zeros_like(A), np.eye(len(A))
    values = np.linalg.eigvals(np.block([[zero, 2 * A], [-one, -4 * B]]))
    real = values.real[np.abs(values.imag) <= 1e-8 * np.abs(values).max()]
    return max(float(real.max()), 0.0)


def _centred(A: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    means = A.mean(axis=0)
    return np.asarray(A - means[None, :] - means[:, None] + means.mean())


def _beyond_rounding(excess: float, squares: np.ndarray[Any, Any]) -> float:
    """Return a negative eigenvalue's size, 0 where it is a rounding error."""
    n = len(squares)
    rounding = 10 * n * float(np.finfo(np.float64).eps) * float(squares.max(initial=0.0))
    return float(excess) if excess > rounding else 0.0


def check_distances(D: Array) -> Array:
    """Return a matrix of distances between the training items: square, symmetric, from 0."""
    xp, n = _array.namespace(D), int(D.shape[0])
    if D.shape[1] != n:
        what = "a square matrix of distances, (n, n), with metric='precomputed'"
        raise ValueError(expected("X", what, tuple(D.shape)))
    check_new_distances(D)
    slack = ASYMMETRY * float(xp.max(D))
    i, j = _largest(xp.abs(D - D.T))
    if abs(float(D[i, j]) - float(D[j, i])) > slack:
        raise ValueError(
            f"X must be a symmetric matrix of distances, got X[{i}, {j}] = {float(D[i, j]):g} and "
            f"X[{j}, {i}] = {float(D[j, i]):g}. If they should be equal, give (X + X.T) / 2."
        )
    i = int(xp.argmax(xp.linalg.diagonal(D)))
    if float(D[i, i]) > slack:
        raise ValueError(
            f"X must have zeros on its diagonal, got X[{i}, {i}] = {float(D[i, i]):g}. "
            "Similarities are no distances: give them with kernel='precomputed'."
        )
    return D


def check_new_distances(D: Array) -> None:
    """Refuse distances that are negative or not finite."""
    xp = _array.namespace(D)
    if not bool(xp.all(xp.isfinite(D))):
        raise NonFiniteError("X must hold finite distances, got NaN or infinity. Drop those items.")
    if D.shape[0] and float(xp.min(D)) < 0:
        i, j = _largest(-D)
        raise ValueError(
            "Negative values in data passed to a model of distances: "
            + expected("X", "from 0", float(D[i, j]), "For kernels, kernel='precomputed'.")
        )


def _largest(A: Array) -> tuple[int, int]:
    """Return row and column of the largest entry."""
    return divmod(int(_array.namespace(A).argmax(A)), int(A.shape[1]))
