"""Rows in chunks, for tests of streams."""

import numpy as np

from dualpca import PPCA

SAME_MAXIMUM = 1e-6


TIGHT = {"tol": 1e-9, "max_iter": 20_000}


class Source:
    """Rows of one random PPCA model with holes, as many as are asked for."""

    def __init__(self, seed=0, d=20, q=3, share=0.3, noise=0.5, offset=3.0):
        self.rng = np.random.default_rng(seed)
        self.W = self.rng.standard_normal((d, q)) * np.linspace(1.5, 0.8, q)
        self.mu = offset * self.rng.standard_normal(d)
        self.share, self.noise = share, noise

    def complete(self, n):
        d, q = self.W.shape
        signal = self.rng.standard_normal((n, q)) @ self.W.T + self.mu
        return signal + self.noise * self.rng.standard_normal((n, d))

    def rows(self, n):
        X = self.complete(n)
        return np.where(self.rng.random(X.shape) < self.share, np.nan, X)


def streamed(chunks, q, weights=None, **options):
    model = PPCA(q, **options)
    for k, chunk in enumerate(chunks):
        model.partial_fit(chunk, sample_weight=None if weights is None else weights[k])
    return model


def assert_same_model(a, b, tol=SAME_MAXIMUM):
    C = b.get_covariance()
    np.testing.assert_allclose(a.get_covariance(), C, rtol=0, atol=tol * np.max(np.abs(C)))
    np.testing.assert_allclose(a.mean_, b.mean_, rtol=0, atol=tol * np.sqrt(np.max(np.diag(C))))


# --- features that come late ----------------------------------------------------------


def late(source, chunks=6, size=150, until=3, column=4):
    out = [source.rows(size) for _ in range(chunks)]
    for chunk in out[:until]:
        chunk[:, column] = np.nan
    return out
