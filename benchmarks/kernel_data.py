"""Rows near a curved surface of few dimensions, and the leading eigenvalues of their kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

LATENT, NOISE, BLOCK = 8, 0.3, 2048
EXACT = 20_000
"""Up to here the reference is ARPACK on the stored matrix; beyond, on products in blocks."""


@dataclass(frozen=True)
class KernelProblem:
    """Training rows, as many new ones, the width, and the truth."""

    X: np.ndarray  # (n, d)
    new: np.ndarray  # (10,000, d)
    gamma: float
    values: np.ndarray  # (q,) eigenvalues of the centred kernel


def generate(n: int, d: int, q: int, seed: int) -> KernelProblem:
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((LATENT, d)) / np.sqrt(LATENT)
    scale = np.linspace(2.0, 0.6, LATENT)

    def rows(m: int) -> np.ndarray:
        Z = rng.standard_normal((m, LATENT)) * scale
        return Z @ W + NOISE * rng.standard_normal((m, d))

    X, new = rows(n), rows(10_000)
    gamma = 1.0 / (d * X.var())
    return KernelProblem(X, new, gamma, reference(X, gamma, q))


def reference(X: np.ndarray, gamma: float, q: int) -> np.ndarray:
    """Leading eigenvalues by ARPACK, from a plain evaluation of the kernel."""
    n = len(X)
    s = np.einsum("ij,ij->i", X, X)

    def block(rows: slice) -> np.ndarray:
        K = X[rows] @ X.T
        K *= 2.0
        K -= s[rows, None]
        K -= s
        K *= gamma
        return np.exp(K, out=K)

    cut = [slice(i, min(i + BLOCK, n)) for i in range(0, n, BLOCK)]
    stored = np.concatenate([block(rows) for rows in cut]) if n <= EXACT else None

    def product(v: np.ndarray) -> np.ndarray:
        v = v.reshape(n) - v.mean()
        y = stored @ v if stored is not None else np.concatenate([block(r) @ v for r in cut])
        return y - y.mean()

    operator = LinearOperator((n, n), matvec=product, dtype=float)
    tol = 0.0 if n <= EXACT else 1e-3  # of the residual: its square is the error
    start = np.random.default_rng(0).standard_normal(n)
    values = eigsh(operator, q, which="LA", tol=tol, v0=start, return_eigenvectors=False)
    return np.sort(values)[::-1]
