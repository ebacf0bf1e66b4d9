"""A table with missing values, for tests of imputation."""

import numpy as np


def table(n=60, d=5, q=2, missing=0.2, seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, q)) @ rng.normal(size=(q, d)) + 0.5 * rng.normal(size=(n, d)) + shift
    X[rng.random(X.shape) < missing] = np.nan
    return X
