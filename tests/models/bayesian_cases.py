"""Tables and methods for tests of Bayesian PCA."""

import numpy as np


def draw(n, d, strong=(), noise=1.0, seed=0, mean=3.0):
    """Return rows with variances `strong` along the first random axes and `noise` elsewhere."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    variances = np.full(d, noise, dtype=float)
    variances[: len(strong)] = strong
    return (rng.standard_normal((n, d)) * np.sqrt(variances)) @ Q.T + mean * rng.standard_normal(d)


def remove(X, share, seed=1):
    return np.where(np.random.default_rng(seed).random(X.shape) < share, np.nan, X)
