"""Tables with patterns of missing values, and their models, for tests."""

from functools import cache

import numpy as np

from dualpca import PPCA

TIGHT = {"tol": 1e-9, "max_iter": 20_000}


# --- tables with holes ----------------------------------------------------------------


def draw(n, d, q, noise=0.5, mean=1.0, seed=0):
    """Return n rows of a random PPCA model."""
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((d, q)) * np.linspace(1.5, 0.8, q)
    signal = rng.standard_normal((n, q)) @ W.T + mean * rng.standard_normal(d)
    return signal + noise * rng.standard_normal((n, d))


def remove(X, share, seed=1):
    """Return X with that share of its entries missing completely at random."""
    return np.where(np.random.default_rng(seed).random(X.shape) < share, np.nan, X)


def blocks():
    X = draw(60, 6, 2)
    X[:20, :3], X[20:40, 3:] = np.nan, np.nan
    return X, 2


def monotone():
    """Dropout: row i observes its first few columns."""
    X = draw(60, 6, 2)
    last = np.random.default_rng(2).integers(1, 7, size=60)
    return np.where(np.arange(6) < last[:, None], X, np.nan), 2


def empty_rows():
    X = remove(draw(60, 6, 2), 0.2)
    X[[0, 7, 31, 58, 59]] = np.nan
    return X, 2


def lonely_value():
    X = remove(draw(60, 5, 2), 0.2)
    X[:, 4] = np.nan
    X[11, 4] = 3.0
    return X, 2


def never_together():
    """Two questionnaires: no row observes features of both halves."""
    X = draw(80, 6, 2, seed=3)
    X[:40, 3:], X[40:, :3] = np.nan, np.nan
    return X, 2


def one_entry_a_row():
    X = draw(80, 4, 1)
    return np.where(np.arange(4) == np.arange(80)[:, None] % 4, X, np.nan), 1


PATTERNS = {
    "10 %": lambda: (remove(draw(60, 6, 2), 0.1), 2),
    "30 %": lambda: (remove(draw(60, 6, 2), 0.3), 2),
    "60 %": lambda: (remove(draw(120, 8, 2), 0.6), 2),
    "90 %": lambda: (remove(draw(400, 12, 1), 0.9), 1),
    "blocks": blocks,
    "monotone": monotone,
    "empty rows": empty_rows,
    "lonely value": lonely_value,
    "never together": never_together,
    "one entry a row": one_entry_a_row,
    "wide": lambda: (remove(draw(12, 60, 1), 0.2), 1),
    "q = d - 1": lambda: (remove(draw(80, 5, 4), 0.15), 4),
    "q = 1": lambda: (remove(draw(40, 5, 1), 0.3), 1),
    "little noise": lambda: (remove(draw(60, 6, 2, noise=0.01), 0.3), 2),
    "much noise": lambda: (remove(draw(60, 6, 1, noise=2.0), 0.3), 1),
}


RIDGES = ("never together", "one entry a row")
"""Patterns whose maximum is a ridge: some covariances are never observed."""


@cache
def fitted(name):
    """Return table, number of components and the model fitted to the maximum, once a pattern."""
    X, q = PATTERNS[name]()
    X.setflags(write=False)
    return X, q, PPCA(q, **TIGHT).fit(X)


def parameters(model):
    """Return W, mu and sigma2 as NumPy arrays."""
    W, mu = np.asarray(model.loadings_), np.asarray(model.mean_)
    return W, mu, float(model.noise_variance_)


def covariance(model):
    W, _, sigma2 = parameters(model)
    return W @ W.T + sigma2 * np.eye(len(W))
