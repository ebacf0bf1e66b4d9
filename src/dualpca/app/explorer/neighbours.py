"""How a point lies among rows: the closest of them, and how many are farther out.

What does not depend on the point is computed once: a point costs one product of a matrix and a
vector, so that dragging stays quick among 100,000 rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualpca.app.explorer.lens import Matrix


class Closest(NamedTuple):
    """Rows with holes, ready to be compared with others.

    The mean squared difference over what row i observed is (a_i − 2 x_i·r + m_i·r²) / |m_i| with
    x_i zero in its holes, m_i its mask and a_i = x_i·x_i.
    """

    rows: Matrix  # (n, d), 0 in holes
    squares: Matrix  # (n,)
    mask: Matrix | None  # (n, d), where there are holes
    counts: Matrix  # (n,)
    middle: Matrix  # (d,), taken from all rows so that squares stay small

    @classmethod
    def of(cls, X: Matrix) -> Closest:
        """Prepare rows."""
        known = np.isfinite(X)
        counts = known.sum(axis=0)
        middle = np.where(known, X, 0.0).sum(axis=0) / np.maximum(counts, 1)
        rows = np.where(known, X - middle, 0.0)
        mask = None if known.all() else known.astype(float)
        squares = np.einsum("ij,ij->i", rows, rows)
        return cls(rows, squares, mask, known.sum(axis=1).astype(float), middle)

    def to(self, row: Matrix) -> tuple[int, float]:
        """Return the closest row and its root mean squared difference.

        Examples
        --------
        >>> Closest.of(np.array([[0.0, 0.0], [3.0, np.nan]])).to(np.array([3.0, 9.0]))
        (1, 0.0)
        """
        r = row - self.middle
        other = r @ r if self.mask is None else self.mask @ (r * r)
        gap = (self.squares - 2 * (self.rows @ r) + other) / np.maximum(self.counts, 1)
        i = int(np.argmin(np.where(self.counts > 0, gap, np.inf)))
        known = slice(None) if self.mask is None else self.mask[i] > 0
        exact = (self.rows[i] - r)[known]  # the sum above loses digits where rows are equal
        return i, float(np.sqrt(np.mean(exact**2))) if exact.size else 0.0


class Places(NamedTuple):
    """Latents as distances from their centre, each in units of its standard deviation."""

    centre: Matrix  # (q,)
    unit: Matrix  # (q,)
    distances: Matrix  # (n,), squared and sorted

    @classmethod
    def of(cls, Z: Matrix) -> Places | None:
        """Prepare latents; None of a single row says nothing."""
        if len(Z) < 2:
            return None
        deviation = Z.std(axis=0)
        unit, centre = np.where(deviation > 0, deviation, 1.0), Z.mean(axis=0)
        return cls(centre, unit, np.sort(np.sum(((Z - centre) / unit) ** 2, axis=1)))

    def farther(self, z: Matrix) -> float:
        """Return the share of rows that are farther out than z.

        Examples
        --------
        >>> Places.of(np.array([[-1.0], [0.0], [1.0], [4.0]])).farther(np.array([0.5]))
        0.75
        """
        own = float(np.sum(((z - self.centre) / self.unit) ** 2))
        return 1 - float(np.searchsorted(self.distances, own, side="right")) / len(self.distances)
