"""Which points stand for all: uniform, by leverage, or by pivoted Cholesky."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from dualpca import _array
from dualpca._typing import Array
from dualpca.kernels import Kernel

BLOCK = 32
"""Pivots tried at once."""

RIDGE = 1e-10
"""Share of its norm added to the kernel of a first draw, which may be singular."""

ROUNDING = 1e-13
"""Share of the trace below which nothing but rounding error is left."""


class Pivots(NamedTuple):
    """Points chosen by a pivoted Cholesky factorisation of their kernel."""

    index: Any  # (m,)
    trace: float  # what of Σwk(x, x) they leave out


def uniform(n: int, m: int, rng: np.random.Generator) -> Any:
    """Draw m of n points, in increasing order."""
    return np.sort(rng.choice(n, size=min(m, n), replace=False))


def leverage(X: Array, kernel: Kernel, m: int, rng: np.random.Generator) -> Any:
    """Draw half of m points evenly, and the others by how badly the first half explains them.

    l_i = k_ii − k_iS (K_SS + λI)⁻¹ k_Si with a λ of rounding size: what an even draw misses is
    drawn next (adaptive sampling, Kumar, Mohri & Talwalkar 2012; ridge leverage, Musco & Musco
    2017). The first half stays: without it, what it explains would be left out. O(nm²) time, one
    block of rows of memory.
    """
    n = int(X.shape[0])
    if m >= n:
        return np.arange(n)
    first = uniform(n, max(m // 2, 1), rng)
    left = _left_out(X, kernel, _ridge_features(X, kernel, first))
    p = _probabilities(left, first)
    return np.sort(np.append(first, rng.choice(n, size=m - first.size, replace=False, p=p)))


def _ridge_features(X: Array, kernel: Kernel, index: Any) -> Callable[[Array], Array]:
    """Return x ↦ k(x, S) (K_SS + λI)^{-1/2}, for the points S."""
    sketch = _array.points(_array.take(X, index))
    values, vectors = np.linalg.eigh(_array.to_numpy(kernel(sketch, sketch)))
    values = np.clip(values, 0, None) + RIDGE * np.abs(values).max() + np.finfo(float).tiny
    root = _array.asarray(vectors / np.sqrt(values), _array.vector_like(X))
    of = kernel.against(sketch)
    return lambda rows: of(rows) @ root


def _probabilities(left: Any, taken: Any) -> Any:
    """Return draws in proportion to what is left out, with a little for every point not taken."""
    left = np.clip(left, 0, None)
    left = left + 0.01 * left.mean() + np.finfo(float).tiny
    left[taken] = 0.0
    return left / left.sum()


def _left_out(X: Array, kernel: Kernel, features: Callable[[Array], Array]) -> Any:
    """Return k(x, x) − ‖f(x)‖² of every point, on the host."""
    xp, found = _array.namespace(X), []
    for rows in _array.slices(X.shape[0], _array.BLOCK_ROWS):
        block = _array.points(_array.some_rows(X, rows))
        F = features(block)
        found.append(_array.to_numpy(kernel.diag(block) - xp.sum(F * F, axis=1)))
    return np.concatenate(found)


def pivoted_cholesky(
    X: Array,
    kernel: Kernel,
    m: int,
    tol: float,
    rng: np.random.Generator,
    weights: Array | None = None,
) -> Pivots:
    """Choose points one after another, each drawn by how badly the others explain it.

    Stops when what is left out of the trace is at most tol·Σwk(x, x), or at m points. Draws keep
    close to the best choice on average, where the greedy one runs after outliers (Chen, Epperly,
    Tropp & Webber 2023); candidates are evaluated a block at a time and thinned by rejection,
    which leaves their distribution as it is. Memory n×m, time O(nm²).
    """
    n = int(X.shape[0])
    left = _array.to_numpy(kernel.diag(_array.points(X))).astype(np.float64)
    w = np.ones(n) if weights is None else _array.to_numpy(weights)
    total, most, count = float(w @ left), min(m, n), 0
    L, index = np.empty((most, n)), np.empty(most, dtype=np.int64)
    while count < most and w @ left > max(tol, ROUNDING) * total:
        draws = rng.choice(n, size=min(BLOCK, most - count), p=w * left / (w @ left))
        chosen, rows = _block_of_pivots(X, kernel, L[:count], left, draws, rng)
        if not len(chosen):
            break
        new = slice(count, count + len(chosen))
        L[new], index[new], count = rows, chosen, count + len(chosen)
        left -= np.sum(rows * rows, axis=0)
        np.clip(left, 0, None, out=left)
        left[index[:count]] = 0.0
    if count == 0:  # a kernel that is zero everywhere: one point stands for all
        return Pivots(np.zeros(1, dtype=np.int64), 0.0)
    return Pivots(index[:count], float(w @ left))


def _block_of_pivots(
    X: Array, kernel: Kernel, L: Any, left: Any, draws: Any, rng: np.random.Generator
) -> tuple[Any, Any]:
    """Return the next pivots and their rows of the factor, (b, n)."""
    candidates = np.unique(draws)
    rng.shuffle(candidates)
    points = _array.points(_array.take(X, candidates))
    C = _array.to_numpy(kernel(points, _array.points(X))) - L[:, candidates].T @ L
    kept = _accepted(C[:, candidates], left[candidates], rng)
    chosen = candidates[kept]
    factor = np.linalg.cholesky(C[kept][:, chosen])
    return chosen, scipy.linalg.solve_triangular(factor, C[kept], lower=True)


def _accepted(S: Any, left: Any, rng: np.random.Generator) -> list[int]:
    """Return the candidates kept, each with the share of variance the earlier ones leave it."""
    kept: list[int] = []
    factor = np.zeros((0, 0))
    for j in range(len(left)):
        row = scipy.linalg.solve_triangular(factor, S[kept, j], lower=True) if kept else np.zeros(0)
        rest = S[j, j] - row @ row
        share = max(rng.random(), 1e-6) if kept else 1e-6  # less is rounding error
        if rest > share * left[j]:
            factor = np.block([[factor, np.zeros((len(kept), 1))], [row, np.sqrt(rest)]])
            kept.append(j)
    return kept
