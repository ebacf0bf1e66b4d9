"""Kernel PCA from dense matrices: K, H K Hᵀ, a full eigh. NumPy only, nothing of dualpca."""

from dataclasses import dataclass

import numpy as np


def gaussian(X, Y, gamma):
    """Return exp(−γ‖x − y‖²) from the differences themselves."""
    return np.exp(-gamma * np.sum((X[:, None, :] - Y[None, :, :]) ** 2, axis=2))


@dataclass(frozen=True)
class DenseKernelPCA:
    """All eigenpairs of D^{1/2} H K Hᵀ D^{1/2} with H = I − 1bᵀ."""

    K: np.ndarray  # (n, n)
    w: np.ndarray  # (n,)
    b: np.ndarray  # (n,) weights of the mean
    lam: np.ndarray  # (n,) descending
    E: np.ndarray  # (n, n)

    def transform(self, k, q):
        """Return the coordinates of items with the kernel values k (m, n)."""
        H = np.eye(len(self.b)) - np.outer(np.ones(len(self.b)), self.b)
        kc = (k - self.b @ self.K) @ H.T
        return kc @ (np.sqrt(self.w)[:, None] * self.E[:, :q]) / np.sqrt(self.lam[:q])

    def novelty(self, k, diagonal, q):
        """Return s(x) − Σy²."""
        s = diagonal - 2 * k @ self.b + self.b @ self.K @ self.b
        return s - np.sum(self.transform(k, q) ** 2, axis=1)

    @property
    def trace(self):
        return self.lam.sum()


def kernel_pca(K, weights=None, center=True):
    """Decompose a dense kernel matrix; the largest entry of every eigenvector is positive."""
    n = len(K)
    w = np.ones(n) if weights is None else np.asarray(weights, dtype=float)
    b = w / w.sum() if center else np.zeros(n)
    H = np.eye(n) - np.outer(np.ones(n), b)
    root = np.sqrt(w)
    lam, E = np.linalg.eigh(root[:, None] * (H @ K @ H.T) * root)
    lam, E = lam[::-1], E[:, ::-1]
    E = E * np.sign(E[np.abs(E).argmax(axis=0), np.arange(n)])
    return DenseKernelPCA(K, w, b, lam, E)


def novelty_when_left_out(K, q, weights=None, center=True):
    """Return the novelty of every item to a fit without it (without 1 of a weight of more)."""
    n = len(K)
    w = np.ones(n) if weights is None else np.asarray(weights, dtype=float)
    found = np.zeros(n)
    for i in np.flatnonzero(w > 0):
        others = w.copy()
        others[i] -= min(w[i], 1)
        kept = np.flatnonzero(others > 0)
        oracle = kernel_pca(K[np.ix_(kept, kept)], others[kept], center)
        rank = min(q, int((oracle.lam > 1e-12 * oracle.lam[0]).sum()))
        found[i] = oracle.novelty(K[[i]][:, kept], K[i, i], rank)[0]
    return found


def left_out(K, index):
    """Return the trace of K − K_Z K_ZZ⁺ K_Zᵀ over the trace of K, for landmarks Z."""
    C = K[:, index]
    approximate = C @ np.linalg.pinv(K[np.ix_(index, index)], rcond=1e-13, hermitian=True) @ C.T
    return np.trace(K - approximate) / np.trace(K)
