"""Laws and rows of a latent copula, and integrals on grids, for tests."""

import numpy as np

from dualpca.models.copula import (
    LatentRows,
)
from dualpca.models.copula.fitting import CopulaFit

INF = np.inf


def law(q=2, s=5, sizes=(3,), seed=0, size=0.6):
    """Return a law with shifts that give the levels their frequencies."""
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(s + sum(sizes), q))
    W[:s] *= (np.sqrt(size) / np.linalg.norm(W[:s], axis=1))[:, None] if q else 1.0
    frequencies = tuple(rng.dirichlet(np.full(K, 5.0)) for K in sizes)
    psi = np.ones(s + sum(sizes))
    psi[:s] = 1 - (W[:s] ** 2).sum(axis=1)
    rows = nothing(1, s, sizes)
    fit = CopulaFit(rows, frequencies, q)
    return fit.unpack(fit.pack(W, psi))


def nothing(n, s, sizes=()):
    """Return rows that know nothing."""
    low = np.full((n, s), -INF)
    return LatentRows(low, -low, np.full((n, len(sizes)), -1), tuple(sizes))


def rows_of(factors, n, seed=0, missing=0.3, known=(0,), cuts=(-0.7, 0.2, 1.1)):
    """Draw rows; the scalars that are not `known` show between which cuts they are."""
    rng = np.random.default_rng(seed)
    z, levels = factors.sample(n, rng)
    edges = np.array([-INF, *cuts, INF])
    k = np.searchsorted(cuts, z)
    low, high = edges[k], edges[k + 1]
    for j in known:
        low[:, j] = high[:, j] = z[:, j]
    full = LatentRows(low, high, levels, factors.sizes)
    return full.hiding(rng.random(z.shape) < missing, rng.random(levels.shape) < missing), full, z
