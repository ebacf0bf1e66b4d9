"""Mixtures of PPCA: p(x) = Σ_k π_k N(x; μ_k, W_kW_kᵀ + σ_k²I) (MATH 6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.emissions import Emissions, Table
from dualpca.holes import column_starts
from dualpca.missing import Latents
from dualpca.sticks import proportions


@dataclass(frozen=True)
class Mixture:
    """Weights π_k and components; what a fitted mixture is.

    Examples
    --------
    >>> import numpy as np
    >>> one = Emissions(np.zeros((1, 2)), (np.ones((2, 1)),), np.ones(1))
    >>> Mixture(np.ones(1), one).log_density(np.zeros((1, 2))).round(4)
    array([-2.3872])
    """

    weights: Array  # (K,)
    emissions: Emissions

    def joint(self, X: Table) -> Array:
        """Return ln π_k + ln p(x_i | k), (n, K)."""
        return self.emissions.log_density(X) + proportions(self.weights).log_weights

    def log_density(self, X: Table) -> Array:
        """Return ln p(x_i), (n,)."""
        return log_sum_exp(self.joint(X))

    def responsibilities(self, X: Table) -> Array:
        """Return p(k | x_i), (n, K)."""
        joint = self.joint(X)
        return _array.namespace(joint).exp(joint - log_sum_exp(joint)[:, None])

    def n_parameters(self) -> int:
        """Return the number of free parameters."""
        return sum(self.emissions.n_parameters()) + self.emissions.K - 1

    def latents(self, X: Array) -> list[Latents]:
        """Return the posterior of z under every component."""
        table = self.emissions.table(X)
        return [self.emissions.posterior(table, k) for k in range(self.emissions.K)]

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw n rows, in random order, and the components they come from."""
        pi = np.asarray(_array.to_numpy(self.weights), dtype=np.float64)
        labels = rng.choice(self.emissions.K, size=n, p=pi / np.sum(pi))
        return self.emissions.sample(labels, rng), labels


def log_sum_exp(A: Array) -> Array:
    """Return ln Σ_k exp(A_ik) without overflow, (n,)."""
    xp = _array.namespace(A)
    top = xp.max(A, axis=1)
    return top + xp.log(xp.sum(xp.exp(A - top[:, None]), axis=1))


def average_variance(X: Array, weights: Array | None) -> float:
    """Return the mean variance of the features, over what was observed."""
    return float(_array.namespace(X).mean(column_starts(X, weights)[2]))
