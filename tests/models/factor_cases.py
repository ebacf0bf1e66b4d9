"""Tables for tests of factor analysis."""

import numpy as np


def table(n=400, d=8, q=2, seed=0, missing=0.0):
    """Draw rows from a factor model with noise of very different sizes."""
    rng = np.random.default_rng(seed)
    W, psi = rng.standard_normal((d, q)), rng.uniform(0.2, 2.0, d)
    X = rng.standard_normal((n, q)) @ W.T + np.sqrt(psi) * rng.standard_normal((n, d)) + 3.0
    X[rng.random(X.shape) < missing] = np.nan
    return X
