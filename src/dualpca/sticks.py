"""How much of the data each component of a mixture gets: maximum likelihood or broken sticks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import betaln, digamma

from dualpca import _array
from dualpca._typing import Array

LEAST_WEIGHT = 1e-30
"""Smallest weight of a component: its logarithm must exist."""


class Shares(NamedTuple):
    """Weights of the components, as an E step needs them."""

    weights: Array  # (K,), sum 1
    log_weights: Array  # (K,), added to ln p(x | k)
    constant: float = 0.0  # added to Σ_n ln Σ_k exp(…): 0 for a likelihood


def proportions(mass: Array) -> Shares:
    """Return the weights of maximum likelihood, n_k/n."""
    xp = _array.namespace(mass)
    weights = mass / xp.sum(mass)
    return Shares(
        weights, xp.log(xp.where(weights > LEAST_WEIGHT, weights, 0 * weights + LEAST_WEIGHT))
    )


def broken_sticks(mass: Array, alpha: float, free: Sequence[int]) -> Shares:
    """Return the weights under a Dirichlet process, with a price for every parameter.

    Weights are v_k Π_{j<k}(1 − v_j) with v_k ~ Beta(1, α) and posterior Beta(1 + n_k, α + Σ_{j>k}
    n_j), largest component first, which is the best order (Blei & Jordan 2006; Kurihara, Welling &
    Teh 2007). The parameters of component k have a posterior by Laplace's approximation, which
    costs (p_k/2) ln(1 + n_k). That is convex in n_k, so its tangent bounds it from below: every
    row pays p_k/2(1 + n_k), which a component of few rows cannot afford, and it empties.

    Parameters
    ----------
    mass : array of shape (K,)
        n_k.
    alpha : float
        Concentration: small for few components.
    free : sequence of K ints
        p_k, the number of parameters of every component.

    Returns
    -------
    Shares
        With the rest of the bound as its constant: the bound never falls.

    Examples
    --------
    >>> import numpy as np
    >>> broken_sticks(np.array([90.0, 9.0, 1e-9]), 1.0, [10, 10, 10]).weights.round(2)
    array([0.91, 0.09, 0.  ])
    """
    n, p = np.asarray(_array.to_numpy(mass)), np.asarray(free, dtype=float)
    order = np.argsort(-n, kind="stable")
    after = np.sum(n) - np.cumsum(n[order])
    a, b = 1 + n[order], alpha + np.maximum(after, 0)
    total = digamma(a + b)
    rest = np.cumsum(digamma(b) - total)
    logs = np.empty_like(n)
    logs[order] = digamma(a) - total + np.concatenate([[0.0], rest[:-1]])
    divergence = betaln(1, alpha) - betaln(a, b) + n[order] * digamma(a)
    divergence += (b - alpha) * digamma(b) - (n[order] + b - alpha) * total
    toll = p / (2 * (1 + n))
    constant = -np.sum(divergence) - np.sum(p / 2 * np.log1p(n)) + np.sum(toll * n)
    mean = _array.asarray(n / np.sum(n), mass)
    return Shares(mean, _array.asarray(logs - toll, mass), float(constant))
