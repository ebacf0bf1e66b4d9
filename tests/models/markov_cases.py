"""Chains and sequences for tests of hidden Markov models."""

import numpy as np

from dualpca.models.chain import Chain
from dualpca.models.emissions import Emissions
from dualpca.models.hidden_markov import (
    HiddenMarkov,
)


def truth(d=4, gap=3.0, stay=0.95, seed=0):
    """Three states that stay, each with a direction of its own."""
    rng = np.random.default_rng(seed)
    A = np.full((3, 3), (1 - stay) / 2) + np.eye(3) * (stay - (1 - stay) / 2)
    means = gap * rng.standard_normal((3, d))
    W = tuple(rng.standard_normal((d, 1)) for _ in range(3))
    emissions = Emissions(means, W, np.array([0.3, 0.5, 0.4]))
    return HiddenMarkov(Chain(np.full(3, 1 / 3), A), np.ones((3, 1)), emissions)


def draw(T=300, seed=1, missing=0.0, **options):
    rng = np.random.default_rng(seed)
    X, states = truth(**options).sample(T, rng)
    X[rng.random(X.shape) < missing] = np.nan
    return X, states
