"""Dense, slow, obvious references for pre-images, and kernels that only the tests know."""

from dataclasses import dataclass

import numpy as np

from dualpca.kernels import Kernel, Polynomial, Stationary
from dualpca.preimages import PREIMAGES, Span


@dataclass(frozen=True)
class Cauchy(Stationary):
    """1 / (1 + ‖x − y‖²): stationary, not exponential."""

    rate = 1.0

    def _profile(self, E):
        return 1 / (1 - E)

    def _slope(self, E):
        return -1 / (1 - E) ** 2


@dataclass(frozen=True)
class Power(Kernel):
    """(γ xᵀy + c)^p."""

    degree: int = 3
    gamma: float = 0.5
    coef0: float = 1.0

    def _against(self, Y):
        return lambda X: (self.gamma * X @ Y.T + self.coef0) ** self.degree

    def _diag(self, X):
        return (self.gamma * (X * X).sum(axis=1) + self.coef0) ** self.degree

    def _pull(self, Z, Y, C):
        inner = (self.gamma * Z @ Y.T + self.coef0) ** (self.degree - 1)
        return self.degree * self.gamma * (C * inner) @ Y

    _distances = Polynomial._distances


@dataclass(frozen=True)
class Exponential(Stationary):
    """exp(−‖x − y‖): not smooth at 0."""

    rate = 1.0
    rough = True

    def _profile(self, E):
        return np.exp(-np.sqrt(-E))

    def _slope(self, E):
        t = np.sqrt(-E)
        return np.where(t > 0, -np.exp(-t) / np.where(t > 0, 2 * t, 1), 0)


@dataclass(frozen=True)
class Counts(Power):
    """A polynomial of rows that must not be negative."""

    nonnegative = True

    def _against(self, Y):
        inner = super()._against(Y)

        def of(X):
            assert np.all(X >= 0), "an entry below 0 reached the kernel"
            return inner(X)

        return of


@dataclass(frozen=True)
class Overlap(Kernel):
    """Σ_j min(x_j, y_j) + 10: a kernel without a gradient."""

    def _against(self, Y):
        return lambda X: np.minimum(X[:, None, :], Y[None, :, :]).sum(axis=2) + 10

    def _diag(self, X):
        return X.sum(axis=1) + 10


def kernel_pca(X, kernel, q, centred=True, weights=None):
    """Return the span of the first q principal directions in feature space, from dense matrices."""
    n = len(X)
    w = np.ones(n) if weights is None else np.asarray(weights, dtype=float)
    base = w / w.sum() if centred else np.zeros(n)
    H = np.eye(n) - np.outer(np.ones(n), base)  # rows: φ(x_i) − mean
    root = np.sqrt(w)
    A = root[:, None] * (H @ kernel(X, X) @ H.T) * root
    lam, E = np.linalg.eigh(A)
    lam, E = lam[::-1][:q], E[:, ::-1][:, :q]
    C = H.T @ (root[:, None] * E) / np.sqrt(lam)
    return Span(X, kernel, C, base)


def coordinates(span, X):
    """Return ⟨φ(x) − mean, v_p⟩ of rows, from the definition."""
    K = span.kernel(span.points, span.points)
    return (span.kernel(X, span.points) - span.base @ K) @ span.coefficients


def dense_distance(span, Z, Y):
    """Return ‖φ(z) − P(y)‖ from the Gram matrix of z and all points, row by row."""
    out = []
    for z, y in zip(Z, Y, strict=True):
        points = np.vstack([z, span.points])
        gamma = np.concatenate([[1.0], -(span.coefficients @ y + span.base)])
        out.append(gamma @ span.kernel(points, points) @ gamma)
    return np.sqrt(np.maximum(out, 0))


def circle(seed, n=200, noise=0.1):
    """Return points on the unit circle with noise."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(0, 2 * np.pi, n)
    return np.column_stack([np.cos(t), np.sin(t)]) + noise * rng.standard_normal((n, 2))


def radial_rms(Z):
    """Return the root mean squared distance from the unit circle."""
    return np.sqrt(np.mean((np.hypot(Z[:, 0], Z[:, 1]) - 1) ** 2))


def linear_pca(X, rows, q):
    """Return the rows projected on the first q principal directions of X."""
    mean = X.mean(axis=0)
    V = np.linalg.svd(X - mean, full_matrices=False)[2][:q]
    return mean + (rows - mean) @ V.T @ V


def rows(n=40, d=3, seed=0):
    """Return normal rows around 0.5."""
    return np.random.default_rng(seed).standard_normal((n, d)) + 0.5


def suited(kernels):
    """Return every pair of a method's name and a kernel that it takes."""
    return [(name, k) for name in sorted(PREIMAGES) for k in kernels if PREIMAGES[name]().suits(k)]
