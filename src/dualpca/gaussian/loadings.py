"""Uncertainty of loadings, and rotations that make them easier to read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, NamedTuple

import numpy as np

from dualpca.arrays import Array, algebra, backend, outer, pack, unpack
from dualpca.data import Table, observed_weights
from dualpca.gaussian.observed import Block, Factors, latents, readable
from dualpca.gaussian.spiked import SpikedGaussian

# --- Orthogonal rotations that make loadings easier to read --------------------------------------

SHARES = {"varimax": 1.0, "quartimax": 0.0}
"""γ of the orthomax family (Harman 1976)."""


def rotate(W: Array, method: str, tol: float = 1e-8, max_iter: int = 1000) -> Array:
    """Return loadings rotated to the largest orthomax criterion.

    Parameters
    ----------
    W : array of shape (d, q)
    method : {'varimax', 'quartimax'}
    tol : float
        Relative increase of the criterion at which to stop.
    max_iter : int

    Returns
    -------
    array of shape (d, q)

    Examples
    --------
    >>> import numpy as np
    >>> W = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, -1.0], [1.0, -1.0]]) / np.sqrt(2)
    >>> np.abs(rotate(W, "varimax")).round(6)
    array([[1., 0.],
           [1., 0.],
           [0., 1.],
           [0., 1.]])
    """
    d, q = W.shape
    if q < 2:
        return W
    R, criterion = backend.asarray(np.eye(q), W), 0.0
    for _ in range(max_iter):
        L = W @ R
        gradient = L**3 - SHARES[method] / d * L * backend.namespace(W).sum(L**2, axis=0)
        U, s, Vt = algebra.svd(W.T @ gradient)
        R, before, criterion = U @ Vt, criterion, float(backend.namespace(W).sum(s))
        if criterion <= before * (1 + tol):
            break
    return W @ R


# --- Uncertainty of loadings: standard deviations and draws of W ---------------------------------

LARGEST_ANGLE = math.pi / math.sqrt(12)
"""Standard deviation of an angle that is uniform within ±π/2."""


@dataclass(frozen=True)
class LoadingPosterior:
    """A Gaussian approximation of the posterior of W around loadings on principal axes.

    W moves in three independent ways: every row by independent noise, off the span of W; columns
    turn into each other by angles; columns grow or shrink.
    """

    W: Annotated[Array, "d q"]
    rows: Annotated[Array, "* q q"]  # (d, q, q) or (1, q, q), covariance of each row
    angle: Annotated[Array, "q q"]  # standard deviation of the angle between two columns
    growth: Annotated[Array, "q"]  # (q,), standard deviation of the logarithm of a column's length
    tangent: bool  # rows move off the span only (always, except in earlier files)

    @property
    def _axes(self) -> tuple[Array, Array]:
        """Unit columns (d, q) and lengths (q,); a column of length 0 stays 0."""
        xp = backend.namespace(self.W)
        length = xp.sqrt(xp.sum(self.W * self.W, axis=0))
        return self.W / xp.where(length > 0, length, xp.ones_like(length)), length

    def std(self) -> Array:
        """Return the standard deviation of every loading, (d, q); O(dq²)."""
        xp = backend.namespace(self.W)
        V, length = self._axes
        own = xp.linalg.diagonal(self.rows)
        if self.tangent:
            own = own * (1 - xp.sum(V * V, axis=1))[:, None]
        turned = (V * V) @ (self.angle**2) * length**2
        return xp.sqrt(own + turned + (self.W * self.growth) ** 2)

    def draw(self, rng: np.random.Generator, n_draws: int) -> Array:
        """Return draws of W, (n_draws, d, q); angles are turned exactly, by Cayley's transform."""
        xp = backend.namespace(self.W)
        V, length = self._axes
        d, q = self.W.shape
        values, vectors = xp.linalg.eigh(self.rows)  # a square root of (semi-definite) covariances
        values = xp.where(values > 0, values, 0 * values)
        root = (vectors * xp.sqrt(values)[:, None, :]) @ xp.matrix_transpose(vectors)
        noise = (root @ backend.normal(rng, (n_draws, d, q, 1), V))[..., 0]
        if self.tangent:
            noise = noise - V @ (V.T @ noise)
        upper = backend.asarray(np.triu(np.ones((q, q)), 1), V)
        half = 0.5 * upper * self.angle * backend.normal(rng, (n_draws, q, q), V)
        skew = half - xp.matrix_transpose(half)
        eye = backend.asarray(np.eye(q), V)
        turn = xp.linalg.solve(eye - skew, eye + skew)
        grown = length * xp.exp(self.growth * backend.normal(rng, (n_draws, q), V))
        return (V @ turn) * grown[:, None, :] + noise


def laplace(factors: Factors, gaussian: SpikedGaussian, n: float) -> LoadingPosterior:
    """Approximate the posterior of W from n complete rows (W on its principal axes).

    The curvature of the likelihood at principal axes (Anderson 1963): rows move off the span with
    variance σ²ℓ/(nu), u = ℓ − σ²; axes i and k turn into each other with variance
    ℓ_iℓ_k/(n(ℓ_i − ℓ_k)²); ln w_iᵀw_i/2 has variance ℓ²/(2nu²). The noise σ² counts as known and
    the prior as flat, errors of order 1/n. O(q²).
    """
    xp, u = backend.namespace(factors.W), gaussian.spread**2
    seen = xp.where(u > 0, u / gaussian.values, xp.ones_like(u))
    rows = (gaussian.noise / n / seen)[None, :, None] * backend.asarray(np.eye(u.shape[0]), u)
    return _assembled(factors, rows, seen, gaussian.values, n)


class Information(NamedTuple):
    """Information of rows with missing values on the loadings, packed; it adds over rows."""

    products: Array  # (d, q(q+1)/2), Σ w z̄z̄ᵀ over the rows that observe a feature
    total: Array  # (1, q(q+1)/2), over all rows
    n: Array  # (), Σ w

    def plus(self, other: Information) -> Information:
        """Return the information of both sets of rows."""
        return Information(*(a + b for a, b in zip(self, other, strict=True)))


def information(factors: Factors, table: Table) -> Information:
    """Return the information of rows with missing values on the loadings, in one pass."""

    def of(X: Array, weights: Array | None = None) -> Information:
        xp, data = (
            backend.namespace(X),
            readable(factors, X).with_weights(observed_weights(X, weights)),
        )

        def part(block: Block) -> Information:
            w = data.weight(block)
            second = pack(outer(latents(factors, block).mean)) * w[:, None]
            total = xp.sum(second, axis=0)[None, :]
            return Information(block.mask.T @ second, total, xp.sum(w))

        return reduce(Information.plus, map(part, data.blocks(factors.mu)))

    return table.reduce(of, Information.plus)


def incomplete_laplace(
    factors: Factors, gaussian: SpikedGaussian, known: Information
) -> LoadingPosterior:
    """Approximate the posterior of W from rows with missing values.

    As `laplace`, with the observed entries in place of n: row j moves with covariance
    σ²(Σ z̄z̄ᵀ)⁻¹ over the rows that observe feature j (the information that is left once the
    latents are unknown), and u/ℓ becomes the average of z̄².
    """
    xp, n = backend.namespace(factors.W), float(known.n)
    q, spread = gaussian.rank, gaussian.spread
    # a column of length 0 has z̄ = 0, and its variance is set to 0 below
    idle = xp.astype(spread == 0, xp.float64) * backend.asarray(np.eye(q), spread)
    rows = gaussian.noise * xp.linalg.inv(unpack(known.products, q) + idle)
    seen = xp.linalg.diagonal(unpack(known.total, q)[0, :, :]) / n
    seen = xp.where(seen > 0, seen, xp.ones_like(seen))
    values = xp.where(spread > 0, spread**2 / seen, gaussian.values)
    return _assembled(factors, rows, seen, values, n)


def angles(values: Array, n: float) -> Array:
    """Return the standard deviation of the angle between two axes of variances ℓ, (q, q).

    √(ℓ_iℓ_k/n)/|ℓ_i − ℓ_k| (Anderson 1963), at most that of an angle of which nothing is known.
    """
    xp = backend.namespace(values)
    gap, root = xp.abs(values[:, None] - values[None, :]), xp.sqrt(values)
    product = root[:, None] * root[None, :] / math.sqrt(n)
    wide, one = gap * LARGEST_ANGLE <= product, xp.ones_like(gap)
    angle = xp.where(wide, LARGEST_ANGLE * one, product / xp.where(wide, one, gap))
    return angle * (1 - backend.asarray(np.eye(int(values.shape[0])), values))


def _assembled(
    factors: Factors, rows: Array, seen: Array, values: Array, n: float
) -> LoadingPosterior:
    """Return the three kinds of movement, from the share of each latent that the rows reveal."""
    xp, angle = backend.namespace(values), angles(values, n)
    alive = xp.astype(xp.sum(factors.W * factors.W, axis=0) > 0, xp.float64)
    rows = rows * alive[None, :, None] * alive[None, None, :]
    return LoadingPosterior(factors.W, rows, angle, alive / (seen * math.sqrt(2 * n)), True)
