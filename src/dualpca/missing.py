"""Incomplete rows: posterior and density of what was observed, and the EM that fits them (MATH 4).

Everything is written for x = Wz + μ + ε with ε ~ N(0, diag ψ): PPCA has ψ_j = σ² for all j,
factor analysis one ψ_j a feature. Rows come in blocks; within a block, rows that miss the same
features share one q×q factorisation.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import DegenerateError
from dualpca.gaussian import LOG_2PI
from dualpca.moments import refuse_nonfinite
from dualpca.spectrum import deterministic_signs

RIDGE = 1e-14
"""Share of a matrix's trace that is added to its diagonal before it is factored."""

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
        self.patterns = {rows.start: _patterns(X[rows, :]) for rows in self.cut}

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    def blocks(self, mu: Array, cut: list[slice] | None = None) -> Iterator[Block]:
        """Yield the rows around μ."""
        xp = _array.namespace(self.X)
        for rows in self.cut if cut is None else cut:
            C = _array.row_block(self.X, rows)
            observed = ~xp.isnan(C)
            mask = xp.astype(observed, xp.float64)
            R = xp.where(observed, C - mu, xp.zeros_like(C))
            yield Block(rows, R, mask, *self.patterns[rows.start])

    def weighing(self, weights: Array) -> Incomplete:
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


def _patterns(X: Array) -> tuple[Array | None, Array | None]:
    """Return one row of every pattern and the pattern of every row; None where few are shared.

    None on a graphics card too: it factors a matrix for every row sooner than the host sorts them.
    """
    if _array.on_cuda(X):
        return None, None
    bits = np.ascontiguousarray(np.packbits(np.isnan(_array.to_numpy(X)), axis=1))
    codes = bits.view(np.dtype((np.void, bits.shape[1])))[:, 0]
    _, first, index = np.unique(codes, return_index=True, return_inverse=True)
    return (None, None) if 2 * first.size > index.size else (first, index)


def pack(A: Array) -> Array:
    """Return the lower triangles of symmetric matrices as rows, (…, q(q+1)/2)."""
    q = A.shape[-1]
    i, j = np.tril_indices(q)
    flat = _array.namespace(A).reshape(A, (A.shape[0], q * q))
    return _take(flat, i * q + j, axis=1)


def unpack(rows: Array, q: int) -> Array:
    """Return the symmetric matrices of packed rows, (n, q, q)."""
    i, j = np.tril_indices(q)
    where = np.zeros((q, q), dtype=np.int64)
    where[i, j] = where[j, i] = np.arange(i.size)
    flat = _take(rows, where.ravel(), axis=1)
    return _array.namespace(rows).reshape(flat, (rows.shape[0], q, q))


def _take(A: Array, index: Array, axis: int) -> Array:
    xp = _array.namespace(A)
    return xp.take(A, xp.asarray(index, device=_array.device_of(A)), axis=axis)


def outer(W: Array) -> Array:
    """Return wwᵀ of every row w, (n, q, q)."""
    return W[:, :, None] * W[:, None, :]


def latents(factors: Factors, block: Block, unsure: Array | None = None) -> Latents:
    """Return the posterior of the latents given the observed entries, by Woodbury in q.

    Precision P = I + Σ_{j observed} w_j w_jᵀ/ψ_j for all rows at once: one product of the mask
    with d packed matrices. Loadings that are themselves `unsure`, with covariances (d, q, q), add
    those to w_j w_jᵀ; the density is then exp E_W[ln p(x, z)], integrated over z.
    """
    xp = _array.namespace(block.R)
    W, psi = factors.W, factors.psi
    q = int(W.shape[1])
    masks = block.mask if block.first is None else _take(block.mask, block.first, axis=0)
    second = outer(W) if unsure is None else outer(W) + unsure
    P = unpack(masks @ pack(second / psi[:, None, None]), q) + _array.asarray(np.eye(q), W)
    covariance = xp.linalg.inv(P)
    logdet = 2 * xp.sum(xp.log(xp.linalg.diagonal(xp.linalg.cholesky(P))), axis=1)
    if block.pattern is not None:
        covariance, logdet = _take(covariance, block.pattern, 0), _take(logdet, block.pattern, 0)
    rhs = block.R @ (W / psi[:, None])
    mean = (covariance @ rhs[:, :, None])[:, :, 0]
    # (x − Wz)ᵀΨ⁻¹(x − Wz) + zᵀz at the posterior mean is xᵀC⁻¹x without its cancellation
    off = block.R - block.mask * (mean @ W.T)
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


def m_step(sums: Sums, factors: Factors, prior: Array | None = None) -> tuple[Array, Array, Array]:
    """Return new loadings and mean, and each feature's left-over sum of squares.

    w̃_j = (Σ E[z̃z̃ᵀ])⁻¹ Σ x E[z̃] with z̃ = (z, 1), for all features in one batch; then the latents'
    own mean ν and covariance Γ are folded back, μ ← μ + Wν, W ← WΓ^{1/2} (parameter expansion).

    A `prior` (q,) is added to the diagonal of Σ E[zzᵀ]: σ²α, where column i of W has the prior
    N(0, α_i⁻¹I). With α_i = d/w_iᵀw_i re-estimated the prior sees Γ as −(d/2) ln|Γ|, so the best
    Γ is n/(n + d) times as large.
    """
    xp = _array.namespace(sums.x)
    last = xp.concat([sums.z, sums.n[:, None]], axis=1)[:, None, :]
    G = xp.concat([xp.concat([sums.zz, sums.z[:, :, None]], axis=2), last], axis=1)
    rhs = xp.concat([sums.xz, sums.x[:, None]], axis=1)
    n, d, share, pull = sums.all_n, sums.x.shape[0], 1.0, 0 * rhs[:1, :]
    if prior is not None:
        share = n / (n + d)
        pull = xp.concat([prior, 0 * prior[:1]])[None, :]
    G = G + pull[:, :, None] * _array.asarray(np.eye(G.shape[-1]), G)
    both = xp.linalg.solve(_ridged(G), rhs[:, :, None])[:, :, 0]
    left = sums.xx - xp.sum((rhs + pull * both) * both, axis=1)
    W, mu = both[:, :-1], factors.mu + both[:, -1]
    nu, root = latent_frame(sums)
    return share**0.5 * (W @ root), mu + W @ nu, xp.where(left > 0, left, 0 * left)


def latent_frame(sums: Sums) -> tuple[Array, Array]:
    """Return the latents' own mean ν (q,) and a root of their covariance Γ^{1/2} (q, q)."""
    xp = _array.namespace(sums.x)
    nu = sums.all_z / sums.all_n
    gamma = sums.all_zz / sums.all_n - nu[:, None] * nu[None, :]
    return nu, xp.linalg.cholesky(_ridged(gamma[None, :, :]))[0, :, :]


def _ridged(A: Array) -> Array:
    """Return positive semi-definite matrices (n, k, k) lifted off singularity by rounding size."""
    xp = _array.namespace(A)
    size = xp.sum(xp.linalg.diagonal(A), axis=1)[:, None, None]
    return A + RIDGE * size * _array.asarray(np.eye(A.shape[-1]), A)


@np.errstate(over="ignore", invalid="ignore")  # whoever asks checks the variance
def column_starts(X: Array, weights: Array | None) -> tuple[Array, Array, Array]:
    """Return each feature's observed weight, mean and variance, in blocks."""
    xp = _array.namespace(X)
    d = int(X.shape[1])
    n, total, squares = (_array.asarray(np.zeros(d), X) for _ in range(3))
    origin = _first_observed(X)
    for rows in _array.slices(int(X.shape[0]), _array.block_rows(d, X)):
        C = _array.row_block(X, rows)
        seen = ~xp.isnan(C)
        R = xp.where(seen, C - origin, xp.zeros_like(C))
        w = _array.asarray(np.ones(R.shape[0]), X) if weights is None else weights[rows]
        n += w @ xp.astype(seen, xp.float64)
        total += w @ R
        squares += w @ (R * R)
    shift = total / xp.where(n > 0, n, xp.ones_like(n))
    variance = squares / xp.where(n > 0, n, xp.ones_like(n)) - shift * shift
    return n, origin + shift, xp.where(variance > 0, variance, 0 * variance)


def _first_observed(X: Array) -> Array:
    """Return the first observed value of every feature, 0 where there is none."""
    found = np.full(X.shape[1], np.nan)
    for rows in _array.slices(int(X.shape[0]), _array.block_rows(int(X.shape[1]))):
        if not np.isnan(found).any():
            break
        C = _array.to_numpy(_array.row_block(X, rows))
        seen = ~np.isnan(C)
        here = C[np.argmax(seen, axis=0), np.arange(C.shape[1])]
        found = np.where(np.isnan(found), here, found)
    return _array.asarray(np.nan_to_num(found), X)


class Observed(Protocol):
    """Rows with NaN as EM sees them: `Incomplete` in memory, or a table in parts."""

    @property
    def n(self) -> int:
        """Number of rows."""

    def columns(self) -> tuple[Array, Array, Array]:
        """Return each feature's observed weight, mean and variance."""

    def filled_product(self, mu: Array, V: Array) -> Array:
        """Return RᵀR V for the rows around μ, filled with it where nothing was observed."""

    def sums(self, factors: Factors, unsure: Array | None = None) -> Sums:
        """Take the E step over all rows."""


def start(data: Observed, q: int, mu: Array, variance: Array, rng: np.random.Generator) -> Array:
    """Return loadings to start from: the span of the rows filled with the mean."""
    xp = _array.namespace(mu)
    d = int(mu.shape[0])
    V, ell = filled_axes(data, q, mu, rng)
    unit = float(xp.mean(variance))
    spread = xp.sqrt(xp.where(ell > 0.05 * unit, ell, 0 * ell + 0.05 * unit))
    # features with no loading at all would keep none: zero is a saddle of the likelihood
    return V * spread + 0.1 * unit**0.5 * _array.normal(rng, (d, q), mu)


def filled_axes(data: Observed, q: int, mu: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return axes (d, q) and variances (q,) of the rows filled with the mean.

    A few subspace iterations. Missing entries count as the mean, which shrinks the variances but
    leads to the right span.
    """
    d, n = int(mu.shape[0]), float(data.n)
    V = _array.orthonormal(_array.normal(rng, (d, min(d, q + 4)), mu))
    for _ in range(3):
        V, s, _ = _array.svd(data.filled_product(mu, V))
    # rounding decides the signs that a singular value decomposition gives
    return deterministic_signs(V[:, :q]), s[:q] / n


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


def refuse_infinite(X: Array) -> None:
    """Raise if an entry is infinite; NaN may pass."""
    xp = _array.namespace(X)
    cut = _array.slices(int(X.shape[0]), _array.block_rows(int(X.shape[1]), X))
    if any(bool(xp.any(xp.isinf(X[rows, :]))) for rows in cut):
        refuse_nonfinite(observed_part(X))


def effective_rows(X: Array, weights: Array | None) -> float:
    """Return the weight of all observed entries over the number of features: n without holes."""
    return float(_array.namespace(X).mean(column_starts(X, weights)[0]))


def has_missing(X: Array) -> bool:
    """Tell whether some entry is NaN; reads X once, in blocks."""
    xp = _array.namespace(X)
    cut = _array.slices(int(X.shape[0]), _array.block_rows(int(X.shape[1]), X))
    return any(bool(xp.any(xp.isnan(X[rows, :]))) for rows in cut)


def quadratic(C: Array, W: Array) -> Array:
    """Return wᵀCw for every matrix C (n, q, q) and every row w of W (d, q), (n, d)."""
    xp = _array.namespace(C)
    q = int(W.shape[1])
    return xp.reshape(C, (C.shape[0], q * q)) @ xp.reshape(outer(W), (W.shape[0], q * q)).T


def observed_weights(X: Array, weights: Array | None) -> Array | None:
    """Return the weights, with 0 for rows that observe nothing: they say nothing."""
    xp = _array.namespace(X)
    cut = _array.slices(int(X.shape[0]), _array.block_rows(int(X.shape[1]), X))
    empty = xp.concat([xp.all(xp.isnan(X[rows, :]), axis=1) for rows in cut], axis=0)
    if not bool(xp.any(empty)):
        return weights
    w = _array.asarray(np.ones(X.shape[0]), X) if weights is None else weights
    return xp.where(empty, xp.zeros_like(w), w)


def observed_part(X: Array) -> Array:
    """Return X with 0 for NaN: a copy in which only infinity is left to find."""
    xp = _array.namespace(X)
    return xp.where(xp.isnan(X), xp.zeros_like(X), X)
