"""Incomplete rows: posterior and density of what was observed, and the E step over them (MATH 4).

Everything is written for x = Wz + μ + ε with ε ~ N(0, diag ψ): PPCA has ψ_j = σ² for all j,
factor analysis one ψ_j a feature. Rows come in blocks; within a block, rows that miss the same
features share one q×q factorisation.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dualpca import _array
from dualpca._algebra import outer, pack, unpack
from dualpca._typing import Array
from dualpca.errors import DegenerateError
from dualpca.gaussian import LOG_2PI
from dualpca.holes import column_starts, patterns, refuse_infinite

SHARES = 8
"""Blocks that even a small table is cut into, so that threads can share them."""


@dataclass(frozen=True)
class Factors:
    """The density x = Wz + μ + ε, z ~ N(0, I_q), ε ~ N(0, diag ψ)."""

    W: Array  # (d, q)
    mu: Array  # (d,)
    psi: Array  # (d,)


class Block(NamedTuple):
    """Some rows, centred, with zeros where nothing was observed."""

    rows: slice
    R: Array  # (b, d)
    mask: Array  # (b, d), 1 where observed
    first: Array | None  # (p,), one row of each pattern; None where every row has its own
    pattern: Array | None  # (b,), the pattern of each row


class Latents(NamedTuple):
    """The posterior of z given what each row of a block observed."""

    mean: Array  # (b, q)
    covariance: Array  # (b, q, q)
    log_density: Array  # (b,)


class Sums(NamedTuple):
    """What the M step needs of the rows; sums of two sets of rows add."""

    zz: Array  # (d, q, q), Σ over the rows that observe a feature of E[zzᵀ]
    z: Array  # (d, q), likewise of E[z]
    n: Array  # (d,), number of them
    xz: Array  # (d, q), Σ (x − μ) E[z]ᵀ
    x: Array  # (d,), Σ (x − μ)
    xx: Array  # (d,), Σ (x − μ)²
    all_zz: Array  # (q, q), Σ over all rows of E[zzᵀ]
    all_z: Array  # (q,)
    all_n: Array  # ()
    loglikelihood: Array  # ()

    def plus(self, other: Sums) -> Sums:
        """Return the sums of both sets of rows."""
        return Sums(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, factor: float) -> Sums:
        """Return the sums of rows that weigh `factor` times as much."""
        return Sums(*(factor * a for a in self))


class Incomplete:
    """Rows with NaN, read block by block; the patterns of each block are found once.

    Parameters
    ----------
    X : array of shape (n, d)
        NaN where nothing was observed.
    weights : array of shape (n,), optional
    q : int
        Number of latents, for the size of the blocks.
    """

    def __init__(self, X: Array, weights: Array | None, q: int) -> None:
        self.X, self.weights = X, weights
        width = max(int(X.shape[1]), q * q)
        n = int(X.shape[0])
        shares = 1 if _array.on_cuda(X) else SHARES
        step = max(64, min(_array.block_rows(width, X), -(-n // shares)))
        self.cut = list(_array.slices(n, step))
        self.patterns = {rows.start: _shared_patterns(X[rows, :]) for rows in self.cut}

    @property
    def n(self) -> float:
        """Effective number of rows, the sum of the weights."""
        if self.weights is None:
            return float(self.X.shape[0])
        return float(_array.namespace(self.X).sum(self.weights))

    def blocks(self, mu: Array, cut: list[slice] | None = None) -> Iterator[Block]:
        """Yield the rows around μ."""
        xp = _array.namespace(self.X)
        for rows in self.cut if cut is None else cut:
            C = _array.row_block(self.X, rows)
            observed = ~xp.isnan(C)
            mask = xp.astype(observed, xp.float64)
            R = xp.where(observed, C - mu, xp.zeros_like(C))
            yield Block(rows, R, mask, *self.patterns[rows.start])

    def weighing(self, weights: Array | None) -> Incomplete:
        """Return the same rows under other weights; patterns are shared, not found again."""
        other = copy(self)
        other.weights = weights
        return other

    def weight(self, block: Block) -> Array:
        """Return the weights of a block, (b,)."""
        if self.weights is not None:
            return self.weights[block.rows]
        return _array.namespace(block.R).ones_like(block.R[:, 0])

    def columns(self) -> tuple[Array, Array, Array]:
        """Return each feature's observed weight, mean and variance."""
        return column_starts(self.X, self.weights)

    def filled_product(self, mu: Array, V: Array) -> Array:
        """Return RᵀR V for the rows around μ, filled with it where nothing was observed."""
        S = 0.0 * V
        for block in self.blocks(mu):
            S = S + block.R.T @ (self.weight(block)[:, None] * (block.R @ V))
        return S

    def sums(self, factors: Factors, unsure: Array | None = None) -> Sums:
        """Take the E step over all rows."""

        def part(cut: list[slice]) -> Sums | None:
            total: Sums | None = None
            for block in self.blocks(factors.mu, cut):
                found = latents(factors, block, unsure)
                one = block_sums(block, found, self.weight(block))
                total = one if total is None else total.plus(one)
            return total

        parts = [p for p in _array.spread(part, iter(self.cut), self.X) if p is not None]
        total = parts[0]
        for p in parts[1:]:
            total = total.plus(p)
        return total


def _shared_patterns(X: Array) -> tuple[Array | None, Array | None]:
    """Return one row of every pattern and the pattern of every row; None where few are shared.

    None on a graphics card too: it factors a matrix for every row sooner than the host sorts them.
    """
    if _array.on_cuda(X):
        return None, None
    first, index = patterns(np.isnan(_array.to_numpy(X)))
    return (None, None) if 2 * first.size > index.size else (first, index)


def latents(factors: Factors, block: Block, unsure: Array | None = None) -> Latents:
    """Return the posterior of the latents given the observed entries, by Woodbury in q (MATH 4.1).

    Precision P = I + Σ_{j observed} w_j w_jᵀ/ψ_j for all rows at once: one product of the mask
    with d packed matrices. Loadings that are themselves `unsure`, with covariances (d, q, q), add
    those to w_j w_jᵀ; the density is then exp E_W[ln p(x, z)], integrated over z.
    """
    xp = _array.namespace(block.R)
    W, psi = factors.W, factors.psi
    q = int(W.shape[1])
    masks = block.mask if block.first is None else _array.take(block.mask, block.first)
    second = outer(W) if unsure is None else outer(W) + unsure
    P = unpack(masks @ pack(second / psi[:, None, None]), q) + _array.asarray(np.eye(q), W)
    covariance = xp.linalg.inv(P)
    logdet = 2 * xp.sum(xp.log(xp.linalg.diagonal(xp.linalg.cholesky(P))), axis=1)
    if block.pattern is not None:
        covariance, logdet = (_array.take(A, block.pattern) for A in (covariance, logdet))
    rhs = block.R @ (W / psi[:, None])
    mean = (covariance @ rhs[:, :, None])[:, :, 0]
    # (x − Wz)ᵀΨ⁻¹(x − Wz) + zᵀz at the posterior mean is xᵀC⁻¹x without its cancellation
    off = block.R - block.mask * (mean @ W.T)
    with np.errstate(over="ignore"):  # the density of a row too far is 0; it has a posterior still
        quadratic = (off * off) @ (1 / psi) + xp.sum(mean * mean, axis=1)
    if unsure is not None:
        spread = unpack(block.mask @ pack(unsure / psi[:, None, None]), q)
        quadratic = quadratic + xp.sum((spread @ mean[:, :, None])[:, :, 0] * mean, axis=1)
    constant = block.mask @ (LOG_2PI + xp.log(psi))
    return Latents(mean, covariance, -0.5 * (constant + logdet + quadratic))


def block_sums(block: Block, found: Latents, w: Array) -> Sums:
    """Return a block's share of what the M step needs."""
    xp = _array.namespace(block.R)
    q = int(found.mean.shape[1])
    second = pack(found.covariance + outer(found.mean)) * w[:, None]
    mask, R, z = block.mask, block.R, found.mean * w[:, None]
    wR = R * w[:, None]
    return Sums(
        zz=unpack(mask.T @ second, q),
        z=mask.T @ z,
        n=mask.T @ w,
        xz=R.T @ z,
        x=xp.sum(wR, axis=0),
        xx=xp.sum(wR * R, axis=0),
        all_zz=unpack(xp.sum(second, axis=0)[None, :], q)[0, :, :],
        all_z=xp.sum(z, axis=0),
        all_n=xp.sum(w),
        loglikelihood=xp.sum(w * found.log_density),
    )


def each(factors: Factors, X: Array) -> Iterator[tuple[Block, Latents]]:
    """Yield blocks of rows with the posterior of their latents."""
    for block in readable(factors, X).blocks(factors.mu):
        yield block, latents(factors, block)


def readable(factors: Factors, X: Array) -> Incomplete:
    """Return rows in blocks, once it is sure that the model has a posterior for them."""
    if not bool(_array.namespace(X).all(factors.psi > 0)):
        raise DegenerateError(
            "the model has no noise, so rows with missing values have no posterior under it. "
            "Fit with fewer components."
        )
    refuse_infinite(X)
    return Incomplete(X, None, int(factors.W.shape[1]))
