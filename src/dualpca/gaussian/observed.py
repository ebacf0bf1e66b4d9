"""Gaussians given observed entries: posteriors, densities, the E step over missing values."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy import special

from dualpca.arrays import (
    Array,
    algebra,
    backend,
    inverse_factors,
    lower_pairs,
    lower_squares,
    outer,
    pack,
    quadratic,
    triangle_rows,
    unpack,
)
from dualpca.data import Host, Moments, block_weights, patterns, refuse_infinite
from dualpca.errors import DegenerateError
from dualpca.gaussian.spiked import LOG_2PI

# --- Incomplete rows: posterior and density of observed entries, and the E step over them --------

BLOCKS, SMALLEST_BLOCK = 8, 2**16
"""Blocks that even a small table is cut into, so that threads can share them, if it has as many
numbers."""

FACTORED_TOGETHER = 2**18
"""Numbers of the matrices of latents that are factored together: beyond the cache it is slower."""

ROWS_PER_PATTERN = 16
"""Rows that must share a pattern of missing values, on average, for one matrix to serve them."""


@dataclass(frozen=True)
class Factors:
    """The density x = Wz + μ + ε, z ~ N(0, I_q), ε ~ N(0, diag ψ).

    With `dof` ν < ∞ its multivariate t: x = μ + (Wz + ε)/√u, u ~ Gamma(ν/2, ν/2) for every row.
    """

    W: Annotated[Array, "d q"]
    mu: Annotated[Array, "d"]
    psi: Annotated[Array, "d", ">= 0"]
    dof: Annotated[float, "> 0, or inf"] = math.inf


NO_SECOND_MOMENT = (
    "with 2 degrees of freedom or fewer a t distribution has no variance. Give degrees_of_freedom "
    "above 2."
)


class Block(NamedTuple):
    """Some rows, centred, with zeros where nothing was observed."""

    rows: slice
    R: Array  # (b, d)
    mask: Array  # (b, d), 1 where observed
    first: Array | None  # (p,), one row of each pattern; None where every row has its own
    pattern: Array | None  # (b,), the pattern of each row


class Latents(NamedTuple):
    """The posterior of z given the observed entries of each row of a block.

    Under a t the covariance is that at u = 1; `expected_stretch` is what it is to be multiplied by.
    """

    mean: Array  # (b, q)
    covariance: Array  # (b, q, q)
    log_density: Array  # (b,)
    distance: Array  # (b,), δ = (x_o − μ_o)ᵀ C_oo⁻¹ (x_o − μ_o)
    log_volume: Array  # (b,), ln |2π C_oo|

    def stacked(self) -> StackedLatents:
        """Return the same with rows along the last axis, as one table."""
        covariance = pack(self.covariance).T
        mean, covariance = (A[None, ...] for A in (self.mean.T, covariance))
        return StackedLatents(
            mean, covariance, 0 * mean, self.distance[None, :], self.log_volume[None, :]
        )


class StackedLatents(NamedTuple):
    """The posterior of z given the observed entries of the rows of K tables of one shape.

    Rows are along the last axis: on a host, loops over q take as many calls as for one row.
    """

    mean: Array  # (K, q, n), z̄
    covariance: Array  # (K, q(q + 1)/2, n), lower triangles
    off: Array  # (K, d, n), x − μ − Wz̄, 0 where nothing was observed
    distance: Array  # (K, n)
    log_volume: Array  # (K, n)


class Sums(NamedTuple):
    """What the M step needs of the rows; sums of two sets of rows add."""

    zz: Annotated[Array, "d q q"]  # (d, q, q), Σ over the rows that observe a feature of E[zzᵀ]
    z: Annotated[Array, "d q"]  # (d, q), likewise of E[z]
    n: Annotated[Array, "d", ">= 0"]  # (d,), number of them
    xz: Annotated[Array, "d q"]  # (d, q), Σ (x − μ) E[z]ᵀ
    x: Annotated[Array, "d"]  # (d,), Σ (x − μ)
    xx: Annotated[Array, "d"]  # (d,), Σ (x − μ)²
    all_zz: Annotated[Array, "q q"]  # (q, q), Σ over all rows of E[zzᵀ]
    all_z: Annotated[Array, "q"]
    all_n: Annotated[Array, "", ">= 0"]  # ()
    loglikelihood: Annotated[Array, "", "or nan, or inf"]  # ()

    @classmethod
    def of(
        cls,
        found: StackedLatents,
        R: Array,
        mask: Array,
        w: Array | None = None,
        u: Array | None = None,
    ) -> Sums:
        """Return the sums of K tables side by side: each has a first axis of length K.

        `R` and `mask`, (K, d, n), are those of `found`; `w` (K, n) are weights of rows, which `u`
        multiplies in all but the covariances: E[u zzᵀ] = u z̄z̄ᵀ + Cov[z] of a t.
        """
        xp, (K, q), d = backend.namespace(R), found.mean.shape[:2], R.shape[1]
        i, j = lower_pairs(q)
        z, second, wR, counted = found.mean, found.covariance, R, mask
        density = -0.5 * (found.log_volume + found.distance)
        both = w if u is None else u if w is None else w * u
        weights = xp.ones_like(density) if both is None else both
        if w is not None:
            second = second * w[:, None, :]
        if both is not None:
            z, wR, counted = (A * both[:, None, :] for A in (z, R, mask))
            density = both * xp.where(both > 0, density, xp.zeros_like(density))
        second = second + backend.take(z, i, axis=1) * backend.take(found.mean, j, axis=1)
        columns = xp.matrix_transpose(mask)
        zz = xp.reshape(xp.matrix_transpose(second @ columns), (K * d, -1))
        return cls(
            zz=xp.reshape(unpack(zz, q), (K, d, q, q)),
            z=xp.matrix_transpose(z @ columns),
            n=xp.sum(counted, axis=2),
            xz=R @ xp.matrix_transpose(z),
            x=xp.sum(wR, axis=2),
            xx=xp.sum(wR * R, axis=2),
            all_zz=unpack(xp.sum(second, axis=2), q),
            all_z=xp.sum(z, axis=2),
            all_n=xp.sum(weights, axis=1),
            loglikelihood=xp.sum(density, axis=1),
        )

    def off(self, W: Array) -> Array:
        """Return Σ E[(x − μ − wᵀz)²] of one table, (d,): what loadings leave of each feature."""
        fitted = (self.zz @ W[:, :, None])[:, :, 0]
        return self.xx - backend.namespace(W).sum(W * (2 * self.xz - fitted), axis=1)

    def plus(self, other: Sums) -> Sums:
        """Return the sums of both sets of rows."""
        return Sums(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, factor: float) -> Sums:
        """Return the sums of rows that weigh `factor` times as much."""
        return Sums(*(factor * a for a in self))


class Expectations(NamedTuple):
    """An E step of one table."""

    sums: Sums
    products: Array  # (d, d), Σ eeᵀ of residuals e = x − μ − Wz̄, 0 if missing; (0, 0) if not wanted

    def plus(self, other: Expectations) -> Expectations:
        """Return those of both sets of rows."""
        return Expectations(self.sums.plus(other.sums), self.products + other.products)


class Incomplete:
    """Rows with missing values, read block by block; the patterns of each block are found once.

    Parameters
    ----------
    X : array of shape (n, d)
        NaN where nothing was observed.
    weights : array of shape (n,), optional
    q : int
        Number of latents, for the size of the blocks.
    """

    def __init__(self, X: Array, weights: Array | None, q: int) -> None:
        self.X, self.weights, (n, d) = X, weights, map(int, X.shape)
        width = max(d, q * q)
        step = backend.block_rows(width, X)
        if not backend.on_cuda(X):
            step = min(step, max(-(-n // BLOCKS), SMALLEST_BLOCK // width, 64))
        self.cut = list(backend.slices(n, step))
        self.patterns: dict[int, tuple[Array | None, Array | None]] = {}

    @property
    def n(self) -> float:
        """Effective number of rows, the sum of the weights."""
        if self.weights is None:
            return float(self.X.shape[0])
        return float(backend.namespace(self.X).sum(self.weights))

    def blocks(self, mu: Array, cut: list[slice] | None = None) -> Iterator[Block]:
        """Yield the rows around μ."""
        for rows in self.cut if cut is None else cut:
            R, mask = _centred(backend.row_block(self.X, rows), mu)
            yield Block(rows, R, mask, *self.shared(rows))

    def shared(self, rows: slice) -> tuple[Array | None, Array | None]:
        """Return the patterns of a block, as `_shared_patterns` does."""
        if rows.start not in self.patterns:
            self.patterns[rows.start] = _shared_patterns(self.X[rows, :])
        return self.patterns[rows.start]

    def with_weights(self, weights: Array | None) -> Incomplete:
        """Return the same rows under other weights; patterns are shared, not found again."""
        other = copy(self)
        other.weights = weights
        return other

    def weight(self, block: Block) -> Array:
        """Return the weights of a block, (b,)."""
        if self.weights is not None:
            return self.weights[block.rows]
        return backend.namespace(block.R).ones_like(block.R[:, 0])

    def filled_product(self, mu: Array, V: Array) -> Array:
        """Return RᵀR V for the rows around μ, filled with it where nothing was observed."""
        total = 0.0 * V
        for rows in self.cut:
            R, _ = _centred(backend.row_block(self.X, rows), mu)
            RV = R @ V
            total = total + R.T @ (RV if self.weights is None else self.weights[rows, None] * RV)
        return total

    def sums(self, factors: Factors, unsure: Array | None = None, u: Array | None = None) -> Sums:
        """Take the E step over all rows; `unsure` and `u` as in `stacked_latents` and `Sums.of`."""
        return self.expectations(factors, unsure, u).sums

    def expectations(
        self,
        factors: Factors,
        unsure: Array | None = None,
        u: Array | None = None,
        *,
        residuals: bool = False,
    ) -> Expectations:
        """Take the E step as `sums` does; with products of residuals if they are wanted."""
        xp = backend.namespace(self.X)
        W, mu, psi = factors.W[None, ...], factors.mu[:, None], factors.psi[None, :]
        unsure = None if unsure is None else unsure[None, ...]

        def one(rows: slice) -> Expectations:
            columns = backend.contiguous(backend.row_block(self.X, rows).T)[None, ...]
            R, mask = _centred(columns, mu)
            if _is_noiseless(factors):
                block = Block(rows, R[0, ...].T, mask[0, ...].T, None, None)
                found = _noiseless_latents(factors, block).stacked()
            else:
                found = stacked_latents(W, psi, R, mask, unsure, self.shared(rows))
            w, v = (None if a is None else a[None, rows] for a in (self.weights, u))
            off = found.off[0, ...] if residuals else found.off[0, :0, :]
            products = (off if w is None else off * w) @ off.T
            return Expectations(Sums.of(found, R, mask, w, v), products)

        def part(cut: list[slice]) -> Expectations:
            return reduce(Expectations.plus, map(one, cut))

        total, products = reduce(Expectations.plus, backend.spread(part, self.cut, self.X))
        return Expectations(Sums(*(xp.reshape(a, a.shape[1:]) for a in total)), products)

    def pair_counts(self) -> Array:
        """Return the weight of the rows that observe both of two features, (d, d)."""
        xp = backend.namespace(self.X)

        def one(rows: slice) -> Array:
            mask = xp.astype(~xp.isnan(backend.row_block(self.X, rows)), xp.float64)
            return (mask if self.weights is None else mask * self.weights[rows, None]).T @ mask

        def part(cut: list[slice]) -> Array:
            return reduce(operator.add, map(one, cut))

        return reduce(operator.add, backend.spread(part, self.cut, self.X))


def _centred(C: Array, mu: Array) -> tuple[Array, Array]:
    """Return rows around μ, zero where nothing was observed, and 1 where something was."""
    xp = backend.namespace(C)
    observed = ~xp.isnan(C)
    return xp.where(observed, C - mu, xp.zeros_like(C)), xp.astype(observed, xp.float64)


def _shared_patterns(X: Array) -> tuple[Array | None, Array | None]:
    """Return one row of every pattern and the pattern of every row; None where few are shared.

    None on a GPU too: it factors a matrix for every row sooner than the host sorts them.
    """
    if backend.on_cuda(X):
        return None, None
    first, index = patterns(np.isnan(backend.to_numpy(X)))
    return (None, None) if 2 * first.size > index.size else (first, index)


def latents(factors: Factors, block: Block) -> Latents:
    """Return the posterior of the latents given the observed entries, by Woodbury in q.

    Theory 4.1. Rows with the same pattern of missing values share a covariance, found once.
    """
    if _is_noiseless(factors):
        return _noiseless_latents(factors, block)
    W, psi, q = factors.W[None, ...], factors.psi[None, :], int(factors.W.shape[1])
    R, mask = (backend.contiguous(A.T)[None, ...] for A in (block.R, block.mask))
    found = stacked_latents(W, psi, R, mask, shared=(block.first, block.pattern))
    distance, volume = found.distance[0, :], found.log_volume[0, :]
    sizes = backend.namespace(R).sum(block.mask, axis=1)
    density = t_density(factors.dof, sizes, distance, volume)
    covariance = unpack(found.covariance[0, ...].T, q)
    return Latents(found.mean[0, ...].T, covariance, density, distance, volume)


def stacked_latents(
    W: Array,
    psi: Array,
    R: Array,
    mask: Array,
    unsure: Array | None = None,
    shared: tuple[Array | None, Array | None] = (None, None),
) -> StackedLatents:
    """Take the E step of K tables side by side: the posterior of the latents of every row.

    Precision P = I + Σ_{j observed} w_j w_jᵀ/ψ_j for all rows at once: one product of the mask
    with d packed matrices.

    Parameters
    ----------
    W, psi : arrays of shape (K, d, q) and (K, d)
    R, mask : arrays of shape (K, d, n)
        Rows around μ, 0 where nothing was observed, and 1 where something was.
    unsure : array of shape (K, d, q, q), optional
        Covariances of the loadings, added to w_j w_jᵀ; the density is then exp E_W[ln p(x, z)],
        integrated over z.
    shared : pair of arrays, optional
        One row of each pattern of missing values, (p,), and the pattern of each row, (n,).
    """
    xp, (K, d, q) = backend.namespace(R), W.shape
    i, j = lower_pairs(q)
    Wt = backend.contiguous(xp.matrix_transpose(W))
    scaled = Wt / psi[:, None, :]
    pairs = backend.take(scaled, i, axis=1) * backend.take(Wt, j, axis=1)
    if unsure is not None:
        lower = backend.take(xp.reshape(unsure, (K, d, q * q)), i * q + j, axis=2)
        spread = xp.matrix_transpose(lower) / psi[:, None, :]
        pairs = pairs + spread
    (first, pattern), rhs = shared, scaled @ R
    if backend.is_foreign(R):
        mean, covariance, logdet = _factored_on_device(pairs, mask, rhs)
    elif first is None or pattern is None or ROWS_PER_PATTERN * len(first) > len(pattern):
        mean, covariance, logdet = _factored_on_host(pairs, mask, rhs)
    else:
        mean, covariance, logdet = _factored_once(pairs, mask, rhs, first, pattern)
    # (x − Wz)ᵀΨ⁻¹(x − Wz) + zᵀz at the posterior mean is xᵀC⁻¹x without its cancellation
    off = -W @ mean
    off *= mask  # in place: fresh memory of this size takes longer than the product
    off += R
    with np.errstate(over="ignore"):  # a row too far has density 0, but a posterior
        distance = ((1 / psi)[:, None, :] @ (off * off))[:, 0, :] + xp.sum(mean * mean, axis=1)
    if unsure is not None:
        products = backend.take(mean, i, axis=1) * backend.take(mean, j, axis=1)
        times = backend.asarray(np.where(i == j, 1.0, 2.0)[:, None], R)
        distance = distance + xp.sum((spread @ mask) * products * times, axis=1)
    volume = ((LOG_2PI + xp.log(psi))[:, None, :] @ mask)[:, 0, :] + logdet
    return StackedLatents(mean, covariance, off, distance, volume)


def _factored_on_device(pairs: Array, mask: Array, rhs: Array) -> tuple[Array, Array, Array]:
    """Return P⁻¹rhs, the lower triangles of P⁻¹ and ln|P|, P = I + the matrices of the mask."""
    xp, (K, q, n) = backend.namespace(rhs), rhs.shape
    lower = xp.reshape(xp.matrix_transpose(pairs @ mask), (K * n, -1))
    P = unpack(lower, q) + backend.identity(q, rhs)
    covariance = xp.linalg.inv(P)
    logdet = 2 * xp.sum(xp.log(xp.linalg.diagonal(xp.linalg.cholesky(P))), axis=1)
    mean = covariance @ xp.reshape(xp.matrix_transpose(rhs), (K * n, q, 1))
    parts = (mean[:, :, 0], pack(covariance))
    mean, covariance = (xp.matrix_transpose(xp.reshape(A, (K, n, -1))) for A in parts)
    return mean, covariance, xp.reshape(logdet, (K, n))


def _factored_on_host(
    pairs: Array, mask: Array, rhs: Array, entries: int = FACTORED_TOGETHER
) -> tuple[Array, Array, Array]:
    """Return what `_factored_on_device` does, 2 to 9 times as fast as LAPACK matrix by matrix."""
    K, q, n = rhs.shape
    i, j = lower_pairs(q)
    covariance, mean, logdet = np.empty((K, i.size, n)), np.empty((K, q, n)), np.empty((K, n))
    together = entries // max(q * q, 1)
    for tables in backend.slices(K, max(1, together // n)):
        for rows in backend.slices(n, max(64, together)):
            cut = (tables, slice(None), rows)
            lower = pairs[tables] @ mask[cut]
            lower[:, i == j] += 1.0
            g, _, m = lower.shape
            P = np.empty((q, q, g, m))  # matrices of several tables count as of one: longer loops
            for k, row in enumerate(triangle_rows(lower, q)):
                P[k, : k + 1] = row.swapaxes(0, 1)
            J, logs = inverse_factors(P.reshape(1, q, q, g * m))
            logdet[tables, rows] = logs.reshape(g, m)
            h = np.ascontiguousarray(rhs[cut].swapaxes(0, 1)).reshape(1, q, g * m)
            z = np.einsum("ajin,ajn->ain", J, np.einsum("aijn,ajn->ain", J, h))
            mean[cut] = z.reshape(q, g, m).swapaxes(0, 1)
            into = triangle_rows(covariance[cut], q)
            for k, (row, place) in enumerate(zip(lower_squares(J), into, strict=True)):
                place[:] = row.reshape(k + 1, g, m).swapaxes(0, 1)
    return mean, covariance, logdet


def _factored_once(
    pairs: Array, mask: Array, rhs: Array, first: Host, pattern: Host
) -> tuple[Array, Array, Array]:
    """Return what `_factored_on_host` does, with one matrix for all rows of a pattern.

    PPCA of 20,000×60 with four patterns and 20 components takes a third of the time.
    """
    _, covariance, logdet = _factored_on_host(pairs, mask[:, :, first], rhs[:, :, first])
    mean, q = np.empty(rhs.shape), rhs.shape[1]
    rows = np.split(np.argsort(pattern, kind="stable"), np.cumsum(np.bincount(pattern))[:-1])
    for k, own in enumerate(rows):
        mean[:, :, own] = unpack(covariance[:, :, k], q) @ rhs[:, :, own]
    return mean, covariance[:, :, pattern], logdet[:, pattern]


def t_density(dof: float, sizes: Array, distance: Array, log_volume: Array) -> Array:
    """Return the log-density of rows of a multivariate t with ν degrees of freedom, (n,).

    Parameters
    ----------
    dof : float
        ν; infinite for the Gaussian.
    sizes : array of shape (n,)
        Number of entries that each row observed.
    distance : array of shape (n,)
        δ, its squared Mahalanobis distance with the scale matrix C.
    log_volume : array of shape (n,)
        ln |2πC_oo|.

    Examples
    --------
    >>> one = np.ones(1)
    >>> t_density(3.0, one, 4 * one, np.log(2 * np.pi) * one).round(4)  # scipy.stats.t(3).logpdf(2)
    array([-2.6955])
    """
    return t_terms(dof, sizes, distance) - 0.5 * log_volume


def t_terms(dof: float, sizes: Array, distance: Array) -> Array:
    """Return the part of `t_density` that depends on ν, (n,)."""
    xp = backend.namespace(distance)
    if math.isinf(dof):
        return -0.5 * distance
    counts, place = np.unique(backend.to_numpy(sizes), return_inverse=True)
    heads = np.asarray([t_constant(dof, k) for k in counts])[place.reshape(-1)]
    return backend.asarray(heads, distance) - 0.5 * (dof + sizes) * xp.log1p(distance / dof)


def t_constant(dof: float, size: float) -> float:
    """Return ln Γ((ν + k)/2) − ln Γ(ν/2) − k/2 ln(ν/2), which vanishes as ν grows."""
    a, m = dof / 2, size / 2
    if a < 1e5 * max(m, 1.0):
        return float(special.gammaln(a + m) - special.gammaln(a)) - m * math.log(a)
    return m * (m - 1) / (2 * a) * (1 - (2 * m - 1) / (6 * a))


def expected_stretch(dof: float, sizes: Array, distance: Array) -> Array:
    """Return E[1/u | x_o], (n,): what the covariances given a row are multiplied by; 1 if ν = ∞.

    u ~ Gamma((ν + k)/2, (ν + δ)/2) given the k entries that a row observed; so (ν + δ)/(ν + k − 2).
    """
    xp = backend.namespace(distance)
    if math.isinf(dof):
        return xp.ones_like(distance)
    left = dof + sizes - 2
    if not bool(xp.all(left > 0)):
        raise DegenerateError(NO_SECOND_MOMENT)
    return (dof + distance) / left


def _is_noiseless(factors: Factors) -> bool:
    """Return True if all ψ are 0."""
    some = int(factors.W.shape[1]) > 0
    return some and not bool(backend.namespace(factors.psi).any(factors.psi > 0))


NO_INFORMATION = 1e-11
"""Share of tr W_oᵀW_o below which what was observed of a direction of z is rounding error."""


def _noiseless_latents(factors: Factors, block: Block) -> Latents:
    """Return the limit of the posterior as all ψ → 0 alike: N(W_o⁺(x_o − μ_o), I − W_o⁺W_o).

    The mean is the least-squares solution of smallest norm; the covariance is the prior's on what
    the observed entries do not tell. The density exists where they are no more than W_o has rank:
    elsewhere it is that of a row off the span, −∞.
    """
    xp, W = backend.namespace(block.R), factors.W
    masks = block.mask if block.first is None else backend.take(block.mask, block.first)
    lam, U = xp.linalg.eigh(unpack(masks @ pack(outer(W)), int(W.shape[1])))
    known = lam > NO_INFORMATION * xp.sum(xp.abs(lam), axis=1)[:, None]
    safe = xp.where(known, lam, xp.ones_like(lam))
    # by roots of the inverse, so that what is not known is 0 to the last digit
    root = U * xp.where(known, 1 / xp.sqrt(safe), 0 * lam)[:, None, :]
    free = U * xp.where(known, 0 * lam, xp.ones_like(lam))[:, None, :]
    covariance, logdet = free @ xp.matrix_transpose(free), xp.sum(xp.log(safe), axis=1)
    rank = xp.sum(xp.astype(known, xp.float64), axis=1)
    if block.pattern is not None:
        shared = (root, covariance, logdet, rank)
        root, covariance, logdet, rank = (backend.take(A, block.pattern) for A in shared)
    rhs = (block.R @ W)[:, :, None]
    mean = (root @ (xp.matrix_transpose(root) @ rhs))[:, :, 0]
    distance, volume = xp.sum(mean * mean, axis=1), LOG_2PI * rank + logdet
    exists = rank == xp.sum(block.mask, axis=1)
    density = xp.where(exists, -0.5 * (volume + distance), xp.full_like(distance, -np.inf))
    return Latents(mean, covariance, density, distance, volume)


def moment_sums(moments: Moments, factors: Factors) -> Sums:
    """Return the sums of complete rows from their moments alone, O(d²q): exact at any parameters.

    With A = Σ w(x − μ)(x − μ)ᵀ and E[z] = B(x − μ), B = P⁻¹WᵀΨ⁻¹: Σ (x − μ)E[z]ᵀ = ABᵀ and
    Σ E[zzᵀ] = nP⁻¹ + BABᵀ.
    """
    xp, W, psi = backend.namespace(factors.W), factors.W, factors.psi
    n, delta = moments.n, moments.mean - factors.mu
    A = moments.scatter + n * delta[:, None] * delta[None, :]
    scaled = W / psi[:, None]
    P = backend.identity(W.shape[1], W) + W.T @ scaled
    covariance = xp.linalg.inv(P)
    B = covariance @ scaled.T
    xz, z = A @ B.T, n * (B @ delta)
    zz, xx = n * covariance + B @ xz, xp.linalg.diagonal(A)
    ones = xp.ones_like(psi)
    distance = xp.sum(xx / psi) - xp.sum(xz * scaled)
    logdet = xp.linalg.slogdet(P).logabsdet + xp.sum(xp.log(psi) + LOG_2PI)
    return Sums(
        zz=ones[:, None, None] * zz,
        z=ones[:, None] * z,
        n=n * ones,
        xz=xz,
        x=n * delta,
        xx=xx,
        all_zz=zz,
        all_z=z,
        all_n=n * ones[0],
        loglikelihood=-0.5 * (n * logdet + distance),
    )


# --- The M step ----------------------------------------------------------------------------------

ROUNDING_RIDGE = 1e-14
"""Share of a matrix's trace that is added to its diagonal before it is factored."""


def m_step(
    sums: Sums, factors: Factors, prior: Array | None = None, *, expand: bool = True
) -> tuple[Array, Array, Array]:
    """Return new loadings and mean, and each feature's left-over sum of squares (theory 4.2).

    w̃_j = (Σ E[z̃z̃ᵀ])⁻¹ Σ x E[z̃] with z̃ = (z, 1), for all features in one batch; then the latents'
    own mean ν and covariance Γ are folded back, μ ← μ + Wν, W ← WΓ^{1/2} (parameter expansion),
    unless not to `expand`: the steps of plain EM.

    A `prior` (q,) is added to the diagonal of Σ E[zzᵀ]: σ²α, where column i of W has the prior
    N(0, α_i⁻¹I). With α_i = d/w_iᵀw_i re-estimated the prior sees Γ as −(d/2) ln|Γ|, so the best
    Γ is n/(n + d) times as large. Sums of several tables have an axis of them in front, and so have
    the results; a prior is that of one table.
    """
    xp = backend.namespace(sums.x)
    last = xp.concat([sums.z, sums.n[..., None]], axis=-1)[..., None, :]
    G = xp.concat([xp.concat([sums.zz, sums.z[..., None]], axis=-1), last], axis=-2)
    rhs = xp.concat([sums.xz, sums.x[..., None]], axis=-1)
    share, pulled = 1.0, rhs
    if prior is not None:
        share = sums.all_n / (sums.all_n + sums.x.shape[0])
        pull = xp.concat([prior, 0 * prior[:1]])
        G = G + pull[:, None] * backend.identity(G.shape[-1], G)
    both = xp.linalg.solve(_ridged(G), rhs[..., None])[..., 0]
    if prior is not None:
        pulled = rhs + pull * both
    left = sums.xx - xp.sum(pulled * both, axis=-1)
    W, mu, left = both[..., :-1], factors.mu + both[..., -1], xp.maximum(left, 0.0)
    if not expand:
        return W, mu, left
    nu, root = latent_frame(sums)
    shift = (W @ nu[..., None])[..., 0]
    return share**0.5 * (W @ root), mu + shift, left


def latent_frame(sums: Sums) -> tuple[Array, Array]:
    """Return the latents' own mean ν (q,) and a root of their covariance Γ^{1/2} (q, q)."""
    xp = backend.namespace(sums.x)
    nu = sums.all_z / sums.all_n[..., None]
    gamma = sums.all_zz / sums.all_n[..., None, None] - nu[..., None] * nu[..., None, :]
    return nu, xp.linalg.cholesky(_ridged(gamma))


LEAST_PAIRS, SHORTEST_AXIS, FASTEST_FALL = 0.02, 1e-6, 0.1
"""Share of the rows that must observe two features for their covariance to be believed; length of
an axis, in standard deviations of the noise, that has a direction; largest fall of a noise."""


def residual_covariance(products: Host, pair_counts: Host, n: float) -> Host:
    """Return the covariance of residuals: of any two features over the rows that observe both."""
    return products / np.maximum(pair_counts, LEAST_PAIRS * n)


def turned_step(
    before: tuple[Host, float],
    after: tuple[Host, float],
    residual: Host,
    noise: float | None = None,
) -> tuple[Host, float] | None:
    """Return loadings and noise of an EM step of PPCA whose turn is taken to its end (theory 4.6).

    EM turns axis a of the principal axes V, of variance ℓ_a, towards V⊥ by P⊥W'/‖w_a‖, and would
    turn it (I − B/ℓ_a)⁻¹ times as far before it comes to rest, B the covariance of residuals within
    V⊥. So the axes are the first ones of VΛVᵀ + VHᵀ + HVᵀ + B, where VΛVᵀ is the covariance after
    the step within V, and column a of H its covariance with V⊥. Where EM is at rest, so is this.

    Parameters
    ----------
    before, after : pairs of an array of shape (d, q) and a float
        W and σ² before and after an EM step.
    residual : array of shape (d, d)
        Covariance of x − μ − Wz̄ before the step; how precise it is decides only on the speed.
    noise : float, optional
        Fixed σ².

    Returns
    -------
    W, sigma2 : pair of an array of shape (d, q) and a float
        W as close to that after the step as rotations allow. None where an axis has no direction.

    Notes
    -----
    O(d³), for rows that cost O(nd²) more. The likelihood may fall: compare.
    """
    (W, sigma2), (new, left), (d, q) = before, after, before[0].shape
    V, s, R = np.linalg.svd(W, full_matrices=False)
    if not s[-1] > SHORTEST_AXIS * sigma2**0.5:
        return None
    ell = sigma2 + s * s
    within = V.T @ new
    H = (new - V @ within) @ R.T * (ell / s)
    B = residual - V @ (V.T @ residual)
    B = B - (B @ V) @ V.T
    HV = H @ V.T
    lam, axes = np.linalg.eigh(
        V @ (within @ within.T + left * np.eye(q)) @ V.T + HV + HV.T + (B + B.T) / 2
    )
    lam, axes = lam[d - q :], axes[:, d - q :]
    if noise is None:  # what the axes gain is lost to the noise
        total = float(np.sum(new * new)) + d * left
        noise = max((total - float(lam.sum())) / (d - q), FASTEST_FALL * left)
    found = axes * np.sqrt(np.maximum(lam - noise, 0.0))
    P, _, Q = np.linalg.svd(found.T @ new)
    return found @ (P @ Q), noise


def _ridged(A: Array) -> Array:
    """Return positive semi-definite matrices (…, k, k) lifted off singularity by rounding size."""
    size = backend.namespace(A).linalg.trace(A)[..., None, None]
    return A + ROUNDING_RIDGE * size * backend.identity(A.shape[-1], A)


# --- What each row observed tells of it ----------------------------------------------------------


def each(factors: Factors, X: Array) -> Iterator[tuple[Block, Latents]]:
    """Yield blocks of rows with the posterior of their latents."""
    for block in readable(factors, X).blocks(factors.mu):
        yield block, latents(factors, block)


def readable(factors: Factors, X: Array) -> Incomplete:
    """Return rows in blocks; raise if the model has no posterior for them."""
    if not _is_noiseless(factors) and not bool(backend.namespace(X).all(factors.psi > 0)):
        raise DegenerateError(
            "some feature has no noise, so rows with missing values have no posterior. Fit with "
            "fewer components."
        )
    refuse_infinite(X)
    return Incomplete(X, None, int(factors.W.shape[1]))


def joined(blocks: Sequence[Sequence[Array]]) -> list[Array]:
    """Return the arrays that every block has, each joined over the blocks."""
    xp = backend.namespace(blocks[0][0])
    return [xp.concat(list(parts), axis=0) for parts in zip(*blocks, strict=True)]


def all_latents(factors: Factors, X: Array) -> Latents:
    """Return posterior and observed-data density of every row."""
    return Latents(*joined([found for _, found in each(factors, X)]))


def imputed(factors: Factors, X: Array, spread: bool = False) -> tuple[Array, Array | None]:
    """Replace every NaN by its expectation given the observed entries of its row.

    E[x_m | x_o] = μ_m + W_m z̄, with the standard deviation √(wᵀCw + ψ) if `spread`: 0 for observed
    entries, which are kept to the last bit.
    """
    xp, parts = backend.namespace(X), []
    for block, found in each(factors, X):
        missing, mean = block.mask == 0, found.mean @ factors.W.T + factors.mu
        parts.append([xp.where(missing, mean, backend.row_block(X, block.rows))])
        if spread:
            variance = quadratic(found.covariance, factors.W) + factors.psi
            sizes = xp.sum(block.mask, axis=1)
            variance = variance * expected_stretch(factors.dof, sizes, found.distance)[:, None]
            parts[-1].append(xp.where(missing, xp.sqrt(variance), xp.zeros_like(variance)))
    filled, *deviation = joined(parts)
    return filled, deviation[0] if spread else None


def predicted(factors: Factors, X: Array) -> Array:
    """Return the expectation of every entry given the other observed entries of its row, (n, d).

    Of observed entries x_j − (x_j − μ_j − w_jᵀz̄)/(1 − w_jᵀCw_j/ψ_j): the posterior z̄, C without one
    entry is a rank-one change of that with it (theory 4.4). O(q²) per entry.
    """
    xp, parts = backend.namespace(X), []
    if _is_noiseless(factors):
        raise DegenerateError(
            "the model has no noise: the other entries of a row need not agree on one that is left "
            "out. Fit with fewer components, or give noise_variance > 0."
        )
    for block, found in each(factors, X):
        off = block.R - found.mean @ factors.W.T
        kept = 1 - quadratic(found.covariance, factors.W) / factors.psi
        own = block.R - off / xp.where(block.mask == 0, xp.ones_like(kept), kept)
        parts.append([factors.mu + xp.where(block.mask == 0, block.R - off, own)])
    return joined(parts)[0]


def drawn_imputations(factors: Factors, X: Array, n_draws: int, rng: np.random.Generator) -> Array:
    """Draw completed tables, (n_draws, n, d): the missing entries of a row are drawn together."""
    xp, tables = backend.namespace(X), []
    for block, found in each(factors, X):
        root = algebra.covariance_root(found.covariance)
        shape = (n_draws, *found.mean.shape)
        z = found.mean + (root @ backend.normal(rng, shape, X)[..., None])[..., 0]
        noise = backend.normal(rng, (n_draws, *block.R.shape), X)
        if not math.isinf(factors.dof):
            wide = _drawn_stretch(factors, block, found, n_draws, rng)
            z, noise = found.mean + wide * (z - found.mean), wide * noise
        x = z @ factors.W.T + factors.mu + xp.sqrt(factors.psi) * noise
        tables.append(xp.where(block.mask == 0, x, backend.row_block(X, block.rows)))
    return xp.concat(tables, axis=1)


def _drawn_stretch(
    factors: Factors, block: Block, found: Latents, n_draws: int, rng: np.random.Generator
) -> Array:
    """Draw u^{-1/2} given the observed entries of every row, (n_draws, b, 1)."""
    k = backend.to_numpy(block.mask).sum(axis=1)
    shape, rate = (factors.dof + k) / 2, (factors.dof + backend.to_numpy(found.distance)) / 2
    u = rng.gamma(shape, size=(n_draws, k.size)) / rate
    return backend.asarray(1 / np.sqrt(u), block.R)[:, :, None]


def conditional(factors: Factors, X: Array, features: Any) -> tuple[Array, Array]:
    """Return mean (n, k) and covariance (n, k, k) of k features given observed entries."""
    xp, parts = backend.namespace(X), []
    W, mu, psi = (backend.take(A, features) for A in (factors.W, factors.mu, factors.psi))
    noise = psi * backend.asarray(np.equal.outer(features, features), X)
    for block, found in each(factors, X):
        unknown = 1 - backend.take(block.mask, features, axis=1)
        known = backend.take(backend.row_block(X, block.rows), features, axis=1)
        covariance = (W @ found.covariance @ W.T + noise) * outer(unknown)
        stretch = expected_stretch(factors.dof, xp.sum(block.mask, axis=1), found.distance)
        covariance = covariance * stretch[:, None, None]
        parts.append([xp.where(unknown == 0, known, found.mean @ W.T + mu), covariance])
    mean, covariance = joined(parts)
    return mean, covariance


# --- Any Gaussian given observed entries: no structure, so O(d³) per pattern ----------------------

NO_DENSITY = (
    "the observed features have no density: some combination of them has variance zero, or a "
    "canonical correlation is 1. Give regularization > 0, use more rows, or drop features that "
    "others determine."
)


class Group(NamedTuple):
    """Rows that are handled together: c patterns of k rows each, zeros where nothing is known."""

    rows: np.ndarray[Any, Any]  # (c, k), numbers of the rows, on the host
    X: Array  # (c, k, d)
    mask: Array  # (c, d), 1 where observed
    w: Array  # (c, k)

    def centred(self, mu: Array) -> Array:
        """Return the rows around μ, zero where nothing was observed, (c, k, d)."""
        return (self.X - mu) * self.mask[:, None, :]


class Conditional(NamedTuple):
    """A quantity t given the observed entries of each row, and their log-density."""

    mean: Array  # (n, k), E[t | x_o]
    log_density: Array  # (n,)
    variance: Array | None = None  # (n, k)
    covariance: Array | None = None  # (n, k, k)


def groups(X: Array, weights: Array | None = None) -> list[Group]:
    """Return the rows by pattern of NaN; patterns shared by equally many rows form one batch.

    Parameters
    ----------
    X : array of shape (n, d)
        NaN where nothing was observed.
    weights : array of shape (n,), optional

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, np.nan], [2.0, 3.0], [4.0, np.nan]])
    >>> [g.rows.tolist() for g in groups(X)]
    [[[1]], [[0, 2]]]
    """
    xp, found = backend.namespace(X), []
    w = block_weights(weights, slice(None), X)
    for index in _batches(backend.to_numpy(xp.isnan(X))):
        flat = index.ravel()
        rows = backend.working(backend.take(X, flat))
        seen = xp.reshape(~xp.isnan(rows), (*index.shape, -1))
        rows = xp.reshape(xp.where(xp.isnan(rows), xp.zeros_like(rows), rows), seen.shape)
        mask = xp.astype(seen[:, 0, :], xp.float64)
        found.append(Group(index, rows, mask, xp.reshape(backend.take(w, flat), index.shape)))
    return found


def _batches(missing: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """Yield row numbers (c, k) of c patterns (or pieces of long ones) with k rows each."""
    (_, pattern), d = patterns(missing), missing.shape[1]
    order = np.argsort(pattern, kind="stable")
    place = np.arange(order.size) - np.searchsorted(pattern[order], pattern[order])
    starts = np.flatnonzero(place % backend.BLOCK_ROWS == 0)
    counts = np.diff(starts, append=order.size)
    for k in np.unique(counts):
        same = starts[counts == k]
        for cut in backend.slices(same.size, max(1, backend.BLOCK_BYTES // (8 * d * (d + int(k))))):
            yield order[same[cut][:, None] + np.arange(k)]


def whiteners(C: Array, mask: Array) -> tuple[Array, Array]:
    """Return J with JᵀJ = C_oo⁻¹ among zeros, (c, d, d), and ln|C_oo|, (c,), for every pattern.

    J is the inverse of the Cholesky factor: squares of Jr lose less than products with C_oo⁻¹.
    Unobserved features get variance 1 and no correlations, so that all patterns have one size.
    """
    xp, eye = backend.namespace(C), backend.asarray(np.eye(C.shape[0]), C)
    A = C * mask[:, :, None] * mask[:, None, :] + (1 - mask)[:, :, None] * eye
    try:
        L = xp.linalg.cholesky(A)
    except Exception as error:
        if not backend.is_linalg_error(error):
            raise
        raise DegenerateError(NO_DENSITY) from error
    J = xp.linalg.solve(L, eye * mask[:, :, None])
    return J, 2 * xp.sum(xp.log(xp.linalg.diagonal(L)), axis=1)


def densities(white: Array, mask: Array, logdet: Array) -> Array:
    """Return ln p of rows with whitened coordinates Jr, (c, k, d), as (c, k)."""
    xp = backend.namespace(white)
    constant = LOG_2PI * xp.sum(mask, axis=1) + logdet
    return -0.5 * (constant[:, None] + xp.sum(white * white, axis=2))


def condition(
    mu: Array, C: Array, B: Array, T: Array, X: Array, spread: str | None = None
) -> Conditional:
    """Return t given the observed entries of each row of X, for (x, t) jointly Gaussian.

    E[t | x_o] = B_oᵀ C_oo⁻¹ (x_o − μ_o) and cov[t | x_o] = T − B_oᵀ C_oo⁻¹ B_o, for t of mean 0.

    Parameters
    ----------
    mu, C : arrays of shape (d,) and (d, d)
        Mean and covariance of x.
    B, T : arrays of shape (d, k) and (k, k)
        cov(x, t) and cov(t).
    X : array of shape (n, d)
        NaN where nothing was observed.
    spread : {None, 'variance', 'covariance'}
        Which uncertainty to return.

    Notes
    -----
    O(d³) per pattern and O(d²) per row. Works in units of standard deviations, so features may
    differ in scale.

    Examples
    --------
    >>> import numpy as np
    >>> C = np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> t = condition(np.zeros(2), C, C, C, np.array([[2.0, np.nan]]), "variance")
    >>> t.mean, t.variance
    (array([[2., 1.]]), array([[0.  , 0.75]]))
    """
    xp = backend.namespace(C)
    unit = xp.sqrt(xp.linalg.diagonal(C))
    if not bool(xp.all(unit > 0)):
        raise DegenerateError(NO_DENSITY)
    C, B = C / unit[:, None] / unit[None, :], B / unit[:, None]
    parts, index = [], []
    for group in groups(X):
        J, logdet = whiteners(C, group.mask)
        white, K = (group.centred(mu) / unit) @ xp.matrix_transpose(J), J @ B
        logdet = logdet + 2 * xp.sum(group.mask * xp.log(unit), axis=1)
        found = [white @ K, densities(white, group.mask, logdet)]
        if spread == "variance":
            one = xp.linalg.diagonal(T) - xp.sum(K * K, axis=1)
            one = xp.where(one > 0, one, xp.zeros_like(one))
        elif spread == "covariance":
            one = T - xp.matrix_transpose(K) @ K
        if spread is not None:
            found.append(xp.broadcast_to(one[:, None, ...], (*group.rows.shape, *one.shape[1:])))
        parts.append([xp.reshape(A, (group.rows.size, *A.shape[2:])) for A in found])
        index.append(group.rows.ravel())
    order = np.argsort(np.concatenate(index))
    mean, density, *rest = (backend.take(A, order) for A in joined(parts))
    return Conditional(mean, density, **({spread: rest[0]} if spread else {}))
