"""Rows, and work with a number of threads, for tests of sums."""

import numpy as np


def rows(n, d, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (1 + np.arange(d) % 4) + 3 * np.arange(d) % 11
    return X.astype(dtype)
