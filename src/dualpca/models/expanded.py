"""Complete rows of few features with the products of any two of them, for EM in small matrices.

ln N(x; μ, C) is linear in (xxᵀ, x, 1), and so are the moments of weighted rows: with those numbers
of every row at hand, an E step of all components is one matrix product, and an M step another.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.data import Host
from dualpca.gaussian import LOG_2PI, TRUSTED

MOST_FEATURES = 32
"""Features up to which products are formed: d(d + 1)/2 numbers per row."""

MOST_PRODUCT_BYTES = 2**26
"""Memory for products."""

WELL_SPREAD = 1e-6
"""Smallest variance, as a share of Σw‖x‖²/n, that second moments hold to nine digits."""


class ComponentMoments(NamedTuple):
    """Weighted moments of every component, with the spectra of their covariances."""

    mass: Host  # (K,)
    means: Host  # (K, d)
    values: Host  # (K, d), eigenvalues, largest first
    vectors: Host  # (K, d, d), one a column
    reach: Host  # (K,), largest variance that was subtracted to find them: it bounds the rounding


@lru_cache(maxsize=64)
def _pairs(d: int) -> tuple[Any, Any, Any]:
    """Return i and j of every pair i ≤ j, and how often the pair stands in a symmetric matrix."""
    i, j = np.triu_indices(d)
    return i, j, np.where(i == j, 1.0, 2.0)


class Expanded:
    """Rows x − c, c their mean, with the products of their features.

    Parameters
    ----------
    rows : array of shape (n, d)
        Complete and of NumPy.

    Notes
    -----
    Memory O(nd²). A step for K components costs O(nKd²) for densities and for moments, in two
    matrix products; nothing is done component by component.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> found = Expanded(X).moments(np.ones((50, 1)))
    >>> np.allclose(found.values[0, ::-1], np.linalg.eigvalsh(np.cov(X.T, bias=True)))
    True
    """

    def __init__(self, rows: Host) -> None:
        self.rows, (n, d) = rows, rows.shape
        self.centre = np.add.reduce(rows, axis=0, dtype=np.float64) / n
        self.pairs = d * (d + 1) // 2
        G = np.empty((self.pairs + d + 1, n))
        C = G[self.pairs : -1]
        np.subtract(rows.T, self.centre[:, None], out=C)
        at = 0
        for k in range(d):
            np.multiply(C[k], C[k:], out=G[at : at + d - k])
            at += d - k
        G[-1] = 1.0
        self.table = G  # (p, n)
        self.far = float(np.max(np.sum(C * C, axis=0)))

    @staticmethod
    def suits(rows: Array) -> bool:
        """Return True if complete rows are of NumPy, and of few features."""
        if backend.is_foreign(rows) or backend.is_sparse(rows):
            return False
        n, d = rows.shape
        small = 4 * n * (d + 1) * (d + 2) <= MOST_PRODUCT_BYTES
        return bool(1 <= d <= MOST_FEATURES and d < n and small)

    @property
    def shape(self) -> tuple[int, int]:
        """N and d."""
        return int(self.rows.shape[0]), int(self.rows.shape[1])

    def log_density(self, means: Host, loadings: Sequence[Host], noises: Host) -> Host | None:
        """Return ln N(x_i; μ_k, W_kW_kᵀ + σ_k²I), (n, K); None where digits would be lost."""
        K, d = means.shape
        i, j, times = _pairs(d)
        C = np.empty((K, d, d))
        for k, W in enumerate(loadings):
            np.matmul(W, W.T, out=C[k])
        C.reshape(K, d * d)[:, :: d + 1] += noises[:, None]
        try:
            L = np.linalg.cholesky(C)
        except np.linalg.LinAlgError:
            return None
        P = np.linalg.inv(C)
        s = means - self.centre
        largest = np.add.reduce(P.reshape(K, d * d)[:, :: d + 1], axis=1)
        reach = (self.far + np.add.reduce(s * s, axis=1)) * largest
        if not reach.max() <= TRUSTED:
            return None
        Ps = np.matmul(P, s[:, :, None])[:, :, 0]
        logs = np.log(L.reshape(K, d * d)[:, :: d + 1])
        theta = np.empty((K, len(self.table)))
        theta[:, : self.pairs] = P[:, i, j] * (-0.5 * times)
        theta[:, self.pairs : -1] = Ps
        theta[:, -1] = -0.5 * (np.add.reduce(Ps * s, axis=1) + d * LOG_2PI)
        theta[:, -1] -= np.add.reduce(logs, axis=1)
        return np.asarray(np.dot(theta, self.table).T)

    def moments(self, resp: Host) -> ComponentMoments:
        """Return the moments of rows with shares `resp` (n, K); zeros for a share of nothing."""
        K, d = resp.shape[1], len(self.centre)
        i, j, _ = _pairs(d)
        sums = np.dot(resp.T, self.table.T)
        mass = sums[:, -1]
        sums = sums / np.where(mass > 0, mass, 1.0)[:, None]
        shift = sums[:, self.pairs : -1]
        second = np.empty((K, d, d))
        second[:, i, j] = second[:, j, i] = sums[:, : self.pairs]
        reach = np.add.reduce(second.reshape(K, d * d)[:, :: d + 1], axis=1)
        second -= shift[:, :, None] * shift[:, None, :]
        values, vectors = np.linalg.eigh(second)
        return ComponentMoments(
            mass, self.centre + shift, values[:, ::-1], vectors[:, :, ::-1], reach
        )
