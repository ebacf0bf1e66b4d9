"""EM on incomplete rows, but for the E step: where it starts, and the M step (MATH 4)."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from dualpca import _algebra, _array
from dualpca._typing import Array
from dualpca.missing import Factors, Sums
from dualpca.spectrum import deterministic_signs

RIDGE = 1e-14
"""Share of a matrix's trace that is added to its diagonal before it is factored."""


class Observed(Protocol):
    """Rows with NaN as EM sees them: `Incomplete` in memory, or a table in parts."""

    @property
    def n(self) -> float:
        """Effective number of rows, the sum of the weights."""

    def columns(self) -> tuple[Array, Array, Array]:
        """Return each feature's observed weight, mean and variance."""

    def filled_product(self, mu: Array, V: Array) -> Array:
        """Return RᵀR V for the rows around μ, filled with it where nothing was observed."""

    def sums(self, factors: Factors, unsure: Array | None = None) -> Sums:
        """Take the E step over all rows."""


def start(
    data: Observed,
    q: int,
    mu: Array,
    variance: Array,
    rng: np.random.Generator,
    units: Array | None = None,
) -> Array:
    """Return loadings to start from: the span of the rows filled with the mean.

    With `units` (d,) that span is found among features measured in them.
    """
    xp = _array.namespace(mu)
    d = int(mu.shape[0])
    V, ell = filled_axes(data, q, mu, rng, units)
    unit = float(xp.mean(variance if units is None else variance / units / units))
    spread = xp.sqrt(xp.where(ell > 0.05 * unit, ell, 0 * ell + 0.05 * unit))
    # features with no loading at all would keep none: zero is a saddle of the likelihood
    W = V * spread + 0.1 * unit**0.5 * _array.normal(rng, (d, q), mu)
    return W if units is None else W * units[:, None]


def filled_axes(
    data: Observed, q: int, mu: Array, rng: np.random.Generator, units: Array | None = None
) -> tuple[Array, Array]:
    """Return axes (d, q) and variances (q,) of the rows filled with the mean, in `units`.

    A few subspace iterations. Missing entries count as the mean, which shrinks the variances but
    leads to the right span.
    """
    d, n = int(mu.shape[0]), float(data.n)

    def product(V: Array) -> Array:
        if units is None:
            return data.filled_product(mu, V)
        return data.filled_product(mu, V / units[:, None]) / units[:, None]

    V = _algebra.orthonormal(_array.normal(rng, (d, min(d, q + 4)), mu))
    for _ in range(3):
        V, s, _ = _algebra.svd(product(V))
    # rounding decides the signs that a singular value decomposition gives
    return deterministic_signs(V[:, :q]), s[:q] / n


def m_step(sums: Sums, factors: Factors, prior: Array | None = None) -> tuple[Array, Array, Array]:
    """Return new loadings and mean, and each feature's left-over sum of squares (MATH 4.2).

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
