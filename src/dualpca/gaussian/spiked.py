"""The Gaussian with a few stretched directions and the same noise everywhere else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.errors import DegenerateError

# --- The Gaussian with a few stretched directions and the same noise everywhere else -------------

LOG_2PI = math.log(2 * math.pi)


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
    noise: float
    dim: int

    @property
    def rank(self) -> int:
        """q, the number of stretched directions."""
        return int(self.values.shape[0])

    @property
    def spread(self) -> Array:
        """√(ℓ − σ²), the lengths of the columns of W, (q,)."""
        xp = backend.namespace(self.values)
        excess = self.values - self.noise
        return xp.sqrt(xp.where(excess < 0, xp.zeros_like(excess), excess))

    @property
    def _safe_values(self) -> Array:
        """ℓ with ∞ in place of 0: a direction without variance has coordinate 0 and divides it."""
        xp = backend.namespace(self.values)
        return xp.where(self.values > 0, self.values, xp.full_like(self.values, math.inf))

    def require_density(self) -> None:
        """Raise unless every direction has positive variance."""
        if (self.noise > 0 or self.rank == self.dim) and bool(
            backend.namespace(self.values).all(self.values > 0)
        ):
            return
        raise DegenerateError(
            f"the model has no density: {self.rank} components leave no variance for the other "
            f"{self.dim - self.rank} directions, or some component has variance 0. "
            "Use fewer components (below the rank of the data), or give noise_variance > 0."
        )

    def log_determinant(self) -> float:
        """Return ln|C|."""
        self.require_density()
        head = float(backend.namespace(self.values).sum(_log(self.values)))
        rest = self.dim - self.rank
        return head + (rest * math.log(self.noise) if rest else 0.0)

    def log_density(self, coordinates: Array, residual: Array) -> Array:
        """Return ln p of coordinates (n, q) and squared distances off the span (n,), theory 2.4."""
        xp = backend.namespace(coordinates)
        constant = self.dim * LOG_2PI + self.log_determinant()
        inside = xp.sum(coordinates * coordinates / self.values, axis=1)
        outside = residual / self.noise if self.dim > self.rank else xp.zeros_like(residual)
        return -0.5 * (constant + inside + outside)

    def loglikelihood(self, n: float, trace: float) -> float:
        """Return Σ ln p of n points of scatter eigenvalues nℓ and trace `trace` (theory 2.3)."""
        constant = self.dim * LOG_2PI + self.log_determinant()
        left = trace / n - float(backend.namespace(self.values).sum(self.values))
        outside = left / self.noise if self.dim > self.rank else 0.0
        return -0.5 * n * (constant + self.rank + outside)

    def posterior_mean(self, coordinates: Array) -> Array:
        """Return E[z | x] = √(ℓ − σ²)/ℓ · y, (n, q); theory 2.5."""
        return coordinates * (self.spread / self._safe_values)

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

    def n_parameters(self, mean: bool = True) -> int:
        """Return the number of free parameters, r q + 1 − q(q−1)/2, plus r for the mean."""
        return free_parameters(self.rank, self.dim) + (self.dim if mean else 0)


def free_parameters(q: int, r: int) -> int:
    """Return the number of free parameters of C: r q + 1 − q(q−1)/2, less the noise if q = r."""
    return r * q - q * (q - 1) // 2 + (1 if q < r else 0)


def _log(values: Array) -> Array:
    return backend.namespace(values).log(values)


# --- Log-densities of complete rows under many spiked Gaussians, in one pass over the rows -------

TRUSTED = 1e5
"""Largest ‖x − c‖²/σ² for which a difference of squared norms keeps ten digits of the exponent."""


class Stack(NamedTuple):
    """All components side by side, around a common centre c."""

    centre: Array  # (d,)
    means: Array  # (K, d), μ_k − c
    B: Array  # (d, Q), W_k L_k^{-T} with L_kL_kᵀ = M_k, one beside the other
    offset: Array  # (Q,), (μ_k − c)ᵀB_k
    member: Array  # (Q, K), 1 where a column of B belongs to k
    constant: Array  # (K,), d ln 2π + ln|C_k|
    noises: Array  # (K,)


def log_densities(means: Array, loadings: Sequence[Array], noises: Array, X: Array) -> Array:
    """Return ln N(x_i; μ_k, W_kW_kᵀ + σ_k²I), (n, K).

    With M = WᵀW + σ²I and B = W chol(M)^{-T} the exponent is (‖r‖² − ‖rᵀB‖²)/σ², r = x − μ: one
    product of the rows with all B_k. Where that difference would lose digits, ‖r − Wz‖²/σ² + ‖z‖²
    at the posterior mean z takes its place, which loses none.

    Cost O(nd Σq_k); one block of rows in memory beyond the result.

    Examples
    --------
    >>> import numpy as np
    >>> log_densities(np.zeros((1, 2)), [np.ones((2, 1))], np.ones(1), np.zeros((1, 2))).round(4)
    array([[-2.3872]])
    """
    xp, stack = backend.namespace(means), _stacked(means, loadings, noises)

    def part(cut: list[slice]) -> list[Array]:
        return [_block(stack, loadings, backend.row_block(X, rows) - stack.centre) for rows in cut]

    width = max(int(X.shape[1]), int(stack.B.shape[1]))
    cut = backend.slices(int(X.shape[0]), backend.block_rows(4 * width, X))  # four arrays at a time
    return xp.concat([block for run in backend.spread(part, cut, X) for block in run], axis=0)


def _stacked(means: Array, loadings: Sequence[Array], noises: Array) -> Stack:
    xp = backend.namespace(means)
    d, centre = int(means.shape[1]), xp.mean(means, axis=0)
    shifted, sides, constant = means - centre, [], []
    for k, W in enumerate(loadings):
        q, sigma2 = int(W.shape[1]), float(noises[k])
        L = xp.linalg.cholesky(W.T @ W + sigma2 * backend.asarray(np.eye(q), W))
        sides.append(xp.linalg.solve(L, W.T).T)
        logdet = 2 * float(xp.sum(xp.log(xp.linalg.diagonal(L)))) + (d - q) * np.log(sigma2)
        constant.append(d * LOG_2PI + logdet)
    owner = np.repeat(np.arange(len(sides)), [int(B.shape[1]) for B in sides])
    offset = xp.concat([shifted[k, :] @ B for k, B in enumerate(sides)])
    member = np.equal.outer(owner, np.arange(len(sides))).astype(float)
    B = xp.concat(sides, axis=1)
    beside = backend.asarray(member, means), backend.asarray(np.array(constant), means)
    return Stack(centre, shifted, B, offset, *beside, noises)


@np.errstate(over="ignore", invalid="ignore")  # in the thread that works; whoever asks checks
def _block(stack: Stack, loadings: Sequence[Array], C: Array) -> Array:
    """Return the log-densities of a block of rows around the centre."""
    xp = backend.namespace(C)
    far = xp.sum(C * C, axis=1)
    lengths = xp.sum(stack.means * stack.means, axis=1)
    P = C @ stack.B - stack.offset
    distance = far[:, None] - 2 * (C @ stack.means.T) + lengths
    exponent = (distance - (P * P) @ stack.member) / stack.noises
    reach = backend.to_numpy((xp.max(far) + lengths) / stack.noises)
    careful = [
        _exponent(C - stack.means[k, :], W, float(stack.noises[k]))
        if reach[k] > TRUSTED
        else exponent[:, k]
        for k, W in enumerate(loadings)
    ]
    if np.any(reach > TRUSTED):
        exponent = xp.stack(careful, axis=1)
    return -0.5 * (stack.constant + exponent)


def _exponent(R: Array, W: Array, sigma2: float) -> Array:
    """Return xᵀC⁻¹x of centred rows without cancellation, (b,)."""
    xp = backend.namespace(R)
    M = W.T @ W + sigma2 * backend.asarray(np.eye(W.shape[1]), W)
    z = xp.linalg.solve(M, (R @ W).T).T
    off = R - z @ W.T
    return xp.sum(off * off, axis=1) / sigma2 + xp.sum(z * z, axis=1)
