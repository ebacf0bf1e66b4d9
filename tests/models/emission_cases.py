"""Groups of rows and who belongs where, for tests of several Gaussians."""

import numpy as np


def groups(n=120, d=5, K=3, apart=4.0, seed=0):
    """Return rows of K random Gaussians with two strong directions each."""
    rng = np.random.default_rng(seed)
    parts = [
        rng.standard_normal((n // K, 2)) @ (2 * rng.standard_normal((2, d)))
        + apart * rng.standard_normal(d)
        + 0.4 * rng.standard_normal((n // K, d))
        for _ in range(K)
    ]
    return np.concatenate(parts)


def holes(X, share=0.25, seed=1):
    return np.where(np.random.default_rng(seed).random(X.shape) < share, np.nan, X)


def shares(n, K, seed=2):
    return np.random.default_rng(seed).dirichlet(np.ones(K), size=n)


def covariances(model):
    eye = np.eye(model.dim)
    parts = zip(model.loadings, model.noises, strict=True)
    return np.stack([np.asarray(W) @ np.asarray(W).T + float(s) * eye for W, s in parts])
