"""The Gaussian with a few stretched directions and the same noise everywhere else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from dualpca.arrays import EPS, Array, algebra, backend
from dualpca.errors import DegenerateError

# --- The Gaussian with a few stretched directions and the same noise everywhere else -------------

LOG_2PI = math.log(2 * math.pi)

VARIANCE_ROUNDING = 64 * EPS
"""Share of the trace below which left-over variance is rounding error, not noise."""


@dataclass(frozen=True)
class SpikedGaussian:
    """N(0, C) with C = Σ_{p≤q} (ℓ_p − σ²) v_p v_pᵀ + σ² I_r, in the coordinates of the v_p.

    A point enters through its coordinates y_p = v_pᵀx and its squared distance off their span,
    so every method costs O(q) a point and nothing r×r exists (theory 2.1).

    Parameters
    ----------
    values : array of shape (q,)
        ℓ, the variances along the stretched directions, largest first.
    noise : float
        σ², the variance along every other direction.
    dim : int
        r, the dimension of the space.

    Examples
    --------
    >>> import numpy as np
    >>> g = SpikedGaussian(np.array([4.0]), noise=1.0, dim=2)
    >>> g.posterior_mean(np.array([[2.0]])).round(4), g.posterior_variance
    (array([[0.866]]), array([0.25]))
    """

    values: Annotated[Array, "q"]
    noise: Annotated[float, ">= 0"]
    dim: Annotated[int, ">= q"]

    @property
    def rank(self) -> int:
        """q, the number of stretched directions."""
        return int(self.values.shape[0])

    @property
    def spread(self) -> Array:
        """√(ℓ − σ²), the lengths of the columns of W, (q,)."""
        excess = self.values - self.noise
        if not backend.is_foreign(excess):
            return np.sqrt(np.where(excess < 0, 0.0, excess))
        xp = backend.namespace(self.values)
        return xp.sqrt(xp.where(excess < 0, xp.zeros_like(excess), excess))

    @property
    def _safe_values(self) -> Array:
        """ℓ with ∞ in place of 0: a direction without variance has coordinate 0 and divides it."""
        if not backend.is_foreign(self.values):
            return np.where(self.values > 0, self.values, math.inf)
        xp = backend.namespace(self.values)
        return xp.where(self.values > 0, self.values, xp.full_like(self.values, math.inf))

    def require_density(self) -> None:
        """Raise unless every direction has positive variance."""
        varies = bool(backend.namespace(self.values).all(self.values > 0))
        if not varies or (self.rank < self.dim and not self.noise > 0):
            raise DegenerateError(
                f"the model has no density: {self.rank} components leave no variance for the other "
                f"{self.dim - self.rank} directions, or some component has variance 0. "
                "Use fewer components (below the rank of the data), or give noise_variance > 0."
            )

    def log_determinant(self) -> float:
        """Return ln|C|."""
        self.require_density()
        xp, rest = backend.namespace(self.values), self.dim - self.rank
        head = float(xp.sum(xp.log(self.values)))
        return head + (rest * math.log(self.noise) if rest else 0.0)

    def log_density(self, coordinates: Array, residual: Array, *, units: bool = False) -> Array:
        """Return ln p of coordinates (n, q) and squared distances off the span (n,), theory 2.4.

        `units` where coordinates have been divided by their standard deviations.
        """
        xp = backend.namespace(coordinates)
        constant = self.dim * LOG_2PI + self.log_determinant()
        inside = algebra.squared_norms(coordinates if units else coordinates / xp.sqrt(self.values))
        outside = residual / self.noise if self.dim > self.rank else xp.zeros_like(residual)
        return -0.5 * (constant + inside + outside)

    def loglikelihood(self, n: float, trace: float) -> float:
        """Return Σ ln p of n points of scatter eigenvalues nℓ and trace `trace` (theory 2.3)."""
        constant = self.dim * LOG_2PI + self.log_determinant()
        left = trace / n - float(backend.namespace(self.values).sum(self.values))
        outside = left / self.noise if self.dim > self.rank else 0.0
        return -0.5 * n * (constant + self.rank + outside)

    def limit_loglikelihood(self, n: float, trace: float) -> float:
        """Return `loglikelihood`, or where the noise is 0 its limit as σ² → 0.

        −∞ where some variance is left off the span, ∞ where none is.
        """
        if self.noise > 0 or self.rank == self.dim:
            return self.loglikelihood(n, trace)
        left = trace / n - float(backend.namespace(self.values).sum(self.values))
        return -math.inf if left > VARIANCE_ROUNDING * trace / n else math.inf

    def posterior_mean(self, coordinates: Array) -> Array:
        """Return E[z | x] = √(ℓ − σ²)/ℓ · y, (n, q); theory 2.5."""
        return coordinates * self.shrinkage

    @property
    def shrinkage(self) -> Array:
        """√(ℓ − σ²)/ℓ, what coordinates are multiplied by to be expected latents, (q,)."""
        return self.spread / self._safe_values

    @property
    def posterior_variance(self) -> Array:
        """var[z_p | x] = σ²/ℓ_p, (q,); 1, the prior's, for a direction without variance."""
        xp = backend.namespace(self.values)
        return xp.where(self.values > 0, self.noise / self._safe_values, xp.ones_like(self.values))

    def shrink(self, coordinates: Array) -> Array:
        """Return the coordinates of the signal's posterior mean, (1 − σ²/ℓ) y, (n, q).

        Theory 2.6.
        """
        return coordinates * (self.spread * self.spread / self._safe_values)

    @property
    def signal_variance(self) -> Array:
        """Posterior variance of the noise-free signal along each direction, (ℓ − σ²)σ²/ℓ, (q,)."""
        return self.spread * self.spread * self.posterior_variance


def free_parameters(q: int, r: int) -> int:
    """Return the number of free parameters of C: r q + 1 − q(q−1)/2, less the noise if q = r."""
    return r * q - q * (q - 1) // 2 + (1 if q < r else 0)


def free_factors(q: int, r: int) -> int:
    """Return the number of free parameters of WWᵀ + Ψ: those of W up to rotation, and r noises."""
    return r * q - q * (q - 1) // 2 + r


# --- Log-densities of complete rows under many spiked Gaussians, in one pass over the rows -------

TRUSTED = 1e5
"""Largest ‖x − c‖²/σ² for which a difference of squared norms keeps ten digits of the exponent."""


class SpikedDensities:
    """What log-densities under many spiked Gaussians need of them, found once for many rows.

    With M = WᵀW + σ²I and B = W chol(M)^{-T} the exponent is (‖r‖² − ‖rᵀB‖²)/σ², r = x − μ: one
    product of the rows with all B_k. Where that difference would lose digits, ‖r − Wz‖²/σ² + ‖z‖²
    at the posterior mean z takes its place, which loses none.

    Cost O(nd Σq_k); one block of rows in memory beyond the result.

    Parameters
    ----------
    means : array of shape (K, d)
    loadings : sequence of K arrays of shape (d, q_k)
    noises : array of shape (K,)

    Examples
    --------
    >>> import numpy as np
    >>> one = SpikedDensities(np.zeros((1, 2)), [np.ones((2, 1))], np.ones(1))
    >>> one(np.zeros((1, 2))).round(4)
    array([[-2.3872]])
    """

    def __init__(self, means: Array, loadings: Sequence[Array], noises: Array) -> None:
        xp, d = backend.namespace(means), int(means.shape[1])
        self.loadings, self.noises = loadings, noises
        self._axes: dict[int, tuple[Array, Array]] = {}
        self.centre = xp.mean(means, axis=0)
        self.shifted, sides, logdets = means - self.centre, [], []
        for k, W in enumerate(loadings):
            M = W.T @ W + float(noises[k]) * backend.identity(W.shape[1], W)
            L = xp.linalg.cholesky(M)
            sides.append(xp.linalg.solve(L, W.T).T)
            logdet = 2 * float(xp.sum(xp.log(xp.linalg.diagonal(L))))
            logdets.append(logdet + (d - int(W.shape[1])) * np.log(float(noises[k])))
        self.constant = backend.asarray(d * LOG_2PI + np.array(logdets), means)
        owner = np.repeat(np.arange(len(sides)), [int(B.shape[1]) for B in sides])
        self.member = backend.asarray(np.equal.outer(owner, np.arange(len(sides))), means)  # (Q, K)
        parts = [self.shifted[k, :] @ B for k, B in enumerate(sides)]
        self.offset = xp.concat(parts)  # (Q,), (μ_k − c)ᵀB_k
        self.stacked = xp.concat(sides, axis=1)
        self.lengths = xp.sum(self.shifted * self.shifted, axis=1)

    def __call__(self, X: Array) -> Array:
        """Return ln N(x_i; μ_k, W_kW_kᵀ + σ_k²I), (n, K)."""
        width = max(int(side) for side in self.stacked.shape)
        # four arrays at a time
        cut = list(backend.slices(int(X.shape[0]), backend.block_rows(4 * width, X)))
        block = self._block if backend.is_foreign(X) else self._host_block
        with np.errstate(over="ignore", invalid="ignore"):  # callers check
            if len(cut) == 1:
                return block(backend.row_block(X, cut[0]))
            runs = backend.spread(
                lambda run: [block(backend.row_block(X, rows)) for rows in run], cut, X
            )
        return backend.namespace(X).concat([found for run in runs for found in run], axis=0)

    def _host_block(self, rows: Array) -> Array:
        """Return the log-densities of a block of NumPy's rows; few components, many rows."""
        C = rows - self.centre
        far = np.einsum("ij,ij->i", C, C)
        P = np.dot(self.stacked.T, C.T)
        P -= self.offset[:, None]
        np.multiply(P, P, out=P)
        exponent = np.dot(-2.0 * self.shifted, C.T)
        exponent += self.lengths[:, None]
        exponent += far
        exponent -= np.dot(self.member.T, P)
        exponent /= self.noises[:, None]
        for k, reach in enumerate(((far.max() + self.lengths) / self.noises).tolist()):
            if reach > TRUSTED:
                exponent[k] = self._careful(C - self.shifted[k], k)
        exponent += self.constant[:, None]
        exponent *= -0.5
        return exponent.T

    def _block(self, rows: Array) -> Array:
        """Return the log-densities of a block of rows of any library."""
        xp, noises = backend.namespace(rows), self.noises
        C = rows - self.centre
        far, P = xp.sum(C * C, axis=1), C @ self.stacked - self.offset
        distance = far[:, None] - 2 * (C @ self.shifted.T) + self.lengths
        exponent = (distance - (P * P) @ self.member) / noises
        reach = backend.to_numpy((xp.max(far) + self.lengths) / noises)
        if np.any(reach > TRUSTED):
            careful = [
                self._careful(C - self.shifted[k, :], k) if reach[k] > TRUSTED else exponent[:, k]
                for k in range(len(self.loadings))
            ]
            exponent = xp.stack(careful, axis=1)
        return -0.5 * (self.constant + exponent)

    def _careful(self, R: Array, k: int) -> Array:
        """Return xᵀC⁻¹x of rows around mean k without cancellation, (b,).

        Along the axes u_i of W and off them: Σ (u_iᵀx)²/(s_i² + σ²) + ‖x − UUᵀx‖²/σ².
        """
        xp, sigma2 = backend.namespace(R), float(self.noises[k])
        if k not in self._axes:
            U, s, _ = algebra.svd(self.loadings[k])
            self._axes[k] = U, 1 / (s * s + sigma2)
        U, shares = self._axes[k]
        z = R @ U
        off = R - z @ U.T
        if isinstance(R, np.ndarray):
            return np.asarray(np.einsum("ij,ij->i", off, off) / sigma2 + (z * z) @ shares)
        return xp.sum(off * off, axis=1) / sigma2 + (z * z) @ shares
