"""The Gaussian with a few stretched directions and the same noise everywhere else (MATH 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import DegenerateError

LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class SpikedGaussian:
    """N(0, C) with C = Σ_{p≤q} (ℓ_p − σ²) v_p v_pᵀ + σ² I_r, in the coordinates of the v_p.

    A point enters through its coordinates y_p = v_pᵀx and its squared distance off their span,
    so every method costs O(q) a point and nothing r×r exists (MATH 2.1).

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

    values: Array  # (q,)
    noise: float
    dim: int

    @property
    def rank(self) -> int:
        """q, the number of stretched directions."""
        return int(self.values.shape[0])

    @property
    def spread(self) -> Array:
        """√(ℓ − σ²), the lengths of the columns of W, (q,)."""
        xp = _array.namespace(self.values)
        excess = self.values - self.noise
        return xp.sqrt(xp.where(excess < 0, xp.zeros_like(excess), excess))

    @property
    def _safe_values(self) -> Array:
        """ℓ with ∞ in place of 0: a direction without variance has coordinate 0 and divides it."""
        xp = _array.namespace(self.values)
        return xp.where(self.values > 0, self.values, xp.full_like(self.values, math.inf))

    def require_density(self) -> None:
        """Raise unless every direction has positive variance."""
        if (self.noise > 0 or self.rank == self.dim) and bool(
            _array.namespace(self.values).all(self.values > 0)
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
        head = float(_array.namespace(self.values).sum(_log(self.values)))
        rest = self.dim - self.rank
        return head + (rest * math.log(self.noise) if rest else 0.0)

    def log_density(self, coordinates: Array, residual: Array) -> Array:
        """Return ln p of coordinates (n, q) and squared distances off the span (n,), MATH 2.4."""
        xp = _array.namespace(coordinates)
        constant = self.dim * LOG_2PI + self.log_determinant()
        inside = xp.sum(coordinates * coordinates / self.values, axis=1)
        outside = residual / self.noise if self.dim > self.rank else xp.zeros_like(residual)
        return -0.5 * (constant + inside + outside)

    def loglikelihood(self, n: float, trace: float) -> float:
        """Return Σ ln p of n points of scatter eigenvalues nℓ and trace `trace` (MATH 2.3)."""
        constant = self.dim * LOG_2PI + self.log_determinant()
        left = trace / n - float(_array.namespace(self.values).sum(self.values))
        outside = left / self.noise if self.dim > self.rank else 0.0
        return -0.5 * n * (constant + self.rank + outside)

    def posterior_mean(self, coordinates: Array) -> Array:
        """Return E[z | x] = √(ℓ − σ²)/ℓ · y, (n, q); MATH 2.5."""
        return coordinates * (self.spread / self._safe_values)

    @property
    def posterior_variance(self) -> Array:
        """var[z_p | x] = σ²/ℓ_p, (q,); 1, the prior's, for a direction without variance."""
        xp = _array.namespace(self.values)
        return xp.where(self.values > 0, self.noise / self._safe_values, xp.ones_like(self.values))

    def shrink(self, coordinates: Array) -> Array:
        """Return the coordinates of the signal's posterior mean, (1 − σ²/ℓ) y, (n, q); MATH 2.6."""
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
    return _array.namespace(values).log(values)
