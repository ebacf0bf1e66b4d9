"""Rows that are Gaussian: what is known of them, and what is not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import expected


@dataclass(frozen=True)
class Uncertain:
    """Independent rows x_i ~ N(m_i, S_i).

    Parameters
    ----------
    mean : array of shape (n, d)
    covariance : array of shape (n, d, d)
        Symmetric positive semi-definite; zero in the rows and columns of observed entries. For
        many rows, make these in blocks: this is the largest array here.

    Examples
    --------
    >>> import numpy as np
    >>> x = Uncertain(np.zeros((2, 3)), np.stack([np.zeros((3, 3)), np.eye(3)]))
    >>> x.certain
    array([ True, False])
    """

    mean: Array
    covariance: Array

    def __post_init__(self) -> None:
        """Check the shapes."""
        if len(self.mean.shape) != 2:
            raise ValueError(expected("mean", "of shape (n, d)", tuple(self.mean.shape)))
        n, d = self.mean.shape
        if tuple(self.covariance.shape) != (n, d, d):
            shape = tuple(self.covariance.shape)
            raise ValueError(expected("covariance", f"of shape {(n, d, d)}", shape))

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.mean.shape[0])

    @property
    def working(self) -> Uncertain:
        """These rows in float64."""
        return Uncertain(_array.working(self.mean), _array.working(self.covariance))

    @property
    def certain(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Whether nothing is unknown of a row, (n,), on the host."""
        xp = _array.namespace(self.mean)
        known: np.ndarray[tuple[int], np.dtype[np.bool_]] = _array.to_numpy(
            ~xp.any(self.covariance != 0, axis=(1, 2))
        )
        return known

    def block(self, rows: slice) -> Uncertain:
        """Return consecutive rows."""
        return Uncertain(self.mean[rows, :], self.covariance[rows, :, :])

    def take(self, rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Uncertain:
        """Return the rows of these numbers."""
        return Uncertain(_array.take(self.mean, rows), _array.take(self.covariance, rows))
