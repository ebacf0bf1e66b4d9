"""A table and its kernels, for tests of searching."""

import numpy as np


def table(n=40, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)) * np.linspace(2, 0.5, d)
