"""Slow, obvious versions of what a kernel search is judged by."""

import numpy as np
from scipy.linalg import subspace_angles


def share_that_came_back(X, back, mean):
    left = sum(float(np.dot(x - b, x - b)) for x, b in zip(X, back, strict=True))
    return 1 - left / sum(float(np.dot(x - mean, x - mean)) for x in X)


def agreement(Y, Z):
    """Return the mean squared cosine of the principal angles, less what chance gives."""
    m, q = Y.shape
    angles = subspace_angles(Y - Y.mean(axis=0), Z - Z.mean(axis=0))
    chance = q / (m - 1)
    return (np.mean(np.cos(angles) ** 2) - chance) / (1 - chance)


def likelihood(K, q):
    """Return −½{ln|C| + tr(C⁻¹Kc)/n}/n of probabilistic kernel PCA with tr Kc = n, densely."""
    n = len(K)
    H = np.eye(n) - 1 / n
    Kc = H @ K @ H
    Kc *= n / np.trace(Kc)
    values, U = np.linalg.eigh(Kc / n)
    values, U = values[::-1][:q], U[:, ::-1][:, :q]
    noise = (np.trace(Kc) / n - values.sum()) / (n - q)
    C = U @ np.diag(values - noise) @ U.T + noise * np.eye(n)
    return -0.5 * (np.linalg.slogdet(C)[1] + np.trace(np.linalg.solve(C, Kc)) / n) / n


def omega_squared(groups, y):
    """Return the share of variance between groups, corrected for chance (Hays 1963)."""
    y, labels = np.asarray(y, dtype=float), sorted(set(groups))
    parts = [np.array([v for g, v in zip(groups, y, strict=True) if g == name]) for name in labels]
    between = sum(len(p) * (p.mean() - y.mean()) ** 2 for p in parts)
    within = sum(((p - p.mean()) ** 2).sum() for p in parts) / (len(y) - len(parts))
    total = ((y - y.mean()) ** 2).sum()
    return max(0.0, (between - (len(parts) - 1) * within) / (total + within))
