"""Blocks of rows less a shift, in float64: what every sum over deviations begins with."""

from __future__ import annotations

from threading import local
from typing import Any

import numpy as np

from dualpca import _array
from dualpca._typing import Array

TILE = 2**14
"""Numbers of the repeated shift."""


class Centring:
    """Rows less a shift, dense and float64, a block at a time; O(bd) a block.

    NumPy subtracts a few numbers from every row slower than as many from many rows: so the shift
    is repeated. Its blocks lie in one place a thread, which the next block takes: fresh memory
    costs as much again. Other libraries give every block its own.

    Parameters
    ----------
    X : array of shape (n, d)
    shift : array of shape (d,)
        float64.
    rows : int
        The most that a block may have.

    Examples
    --------
    >>> X = np.arange(6, dtype=np.float32).reshape(3, 2)
    >>> Centring(X, np.array([2.0, 3.0]), rows=2)(slice(1, 3))
    array([[0., 0.],
           [2., 2.]])
    """

    def __init__(self, X: Array, shift: Array, rows: int) -> None:
        self.X, self.shift, self.rows = X, shift, rows
        self.own = local()
        if not _array.is_foreign(X):
            times = min(rows, max(1, TILE // max(X.shape[1], 1)))
            self.shifts = np.tile(shift, (times, 1))  # (k, d)

    def _room(self, rows: int) -> np.ndarray[Any, Any]:
        """Return this thread's place for so many rows."""
        if not hasattr(self.own, "room"):
            self.own.room = np.empty((self.rows, self.X.shape[1]))
        room: np.ndarray[Any, Any] = self.own.room[:rows]
        return room

    def __call__(self, rows: slice) -> Array:
        """Return a block."""
        if _array.is_foreign(self.X):
            return _array.row_block(self.X, rows) - self.shift
        given, C = self.X[rows, :], self._room(rows.stop - rows.start)
        if given.dtype != np.float64 or not given.flags.c_contiguous:
            np.copyto(C, given)
            given = C
        k, d = self.shifts.shape
        whole = len(C) - len(C) % k
        many = C[:whole].reshape(-1, k, d)
        np.subtract(given[:whole].reshape(-1, k, d), self.shifts, out=many)
        np.subtract(given[whole:], self.shifts[: len(C) - whole], out=C[whole:])
        return C
