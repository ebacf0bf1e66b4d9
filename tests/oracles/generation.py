"""Dense, slow, obvious references for generation: one row, one pair, one step at a time."""

import numpy as np
from scipy.stats import multivariate_normal


def gaussian_value(mean, factor, z):
    return multivariate_normal(mean, factor @ factor.T).logpdf(z)


def mixture_value(weights, means, factors, z):
    """ln Σ_k π_k N(z; μ_k, F_kF_kᵀ)."""
    parts = [
        np.log(w) + gaussian_value(m, f, z) for w, m, f in zip(weights, means, factors, strict=True)
    ]
    return np.logaddexp.reduce(parts)


def slope(function, z, step=1e-6):
    """Gradient by central differences."""
    return np.array(
        [(function(z + step * e) - function(z - step * e)) / (2 * step) for e in np.eye(len(z))]
    )


def leave_one_out(U, h, shrink):
    """Mean of ln π₋ᵢ(u_i), one row and one centre at a time."""
    n, q = U.shape
    c = 1 / np.sqrt(1 + h * h) if shrink else 1.0
    total = 0.0
    for i in range(n):
        bumps = [
            multivariate_normal(c * U[j], (c * h) ** 2 * np.eye(q)).logpdf(U[i])
            for j in range(n)
            if j != i
        ]
        total += np.logaddexp.reduce(bumps) - np.log(n - 1)
    return total / n


def langevin(value, gradient, Z, tau, steps, rng, adjusted, factor):
    """Chains by the textbook: proposal densities q(z'|z) are evaluated, not simplified."""
    Z, draws, A = Z.copy(), [], factor @ factor.T

    def proposal(z_new, z):
        return multivariate_normal(z + tau * A @ gradient(z), 2 * tau * A).logpdf(z_new)

    for _ in range(steps):
        xi = rng.standard_normal(Z.shape)
        new = np.array(
            [
                z + tau * A @ gradient(z) + np.sqrt(2 * tau) * factor @ e
                for z, e in zip(Z, xi, strict=True)
            ]
        )
        if adjusted:
            u = rng.random(len(Z))
            for i, (z, y) in enumerate(zip(Z, new, strict=True)):
                odds = value(y) + proposal(z, y) - value(z) - proposal(y, z)
                Z[i] = y if np.log(u[i]) < odds else z
        else:
            Z = new
        draws.append(Z.copy())
    return np.array(draws)


def autocovariance(x, lag):
    """Divisor n, one chain."""
    n, c = len(x), x - x.mean()
    return sum(c[t] * c[t + lag] for t in range(n - lag)) / n


def r_hat(halves):
    """Gelman & Rubin from a list of half chains of equal length."""
    n, means = len(halves[0]), [np.mean(x) for x in halves]
    within = np.mean([np.var(x, ddof=1) for x in halves])
    between = n * np.var(means, ddof=1)
    return np.sqrt(((n - 1) / n * within + between / n) / within)


def mmd(A, B, gamma):
    """Unbiased MMD² by loops over pairs."""

    def k(x, y):
        return np.exp(-gamma * np.sum((x - y) ** 2))

    m, n = len(A), len(B)
    aa = sum(k(A[i], A[j]) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    bb = sum(k(B[i], B[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    return aa + bb - 2 * sum(k(a, b) for a in A for b in B) / (m * n)


def share_reached(A, B, k):
    """Share of rows of A within the k-th neighbour distance of some row of B."""
    reach = [np.sort([np.linalg.norm(b - c) for c in B])[k] for b in B]
    hit = [any(np.linalg.norm(a - b) <= r for b, r in zip(B, reach, strict=True)) for a in A]
    return np.mean(hit)


def effective_sample_size(halves):
    """Stan's recipe by loops: pairs of autocorrelations while positive, made to fall."""
    m, n = len(halves), len(halves[0])
    within = np.mean([np.var(x, ddof=1) for x in halves])
    pooled = (n - 1) / n * within + np.var([np.mean(x) for x in halves], ddof=1)
    total, before, t = 0.0, np.inf, 0
    while t + 1 < n:
        rho = []
        for lag in (t, t + 1):
            covariance = np.mean([autocovariance(x, lag) * n / (n - 1) for x in halves])
            rho.append(1.0 if lag == 0 else 1 - (within - covariance) / pooled)
        if sum(rho) <= 0:
            break
        before = min(before, sum(rho))
        total, t = total + before, t + 2
    return m * n / (2 * total - 1)


def energy(value, path, factor, weight):
    """Length against density along a path."""
    U = [np.linalg.solve(factor, z) for z in path]
    steps = len(path) - 1
    length = sum(np.sum((U[k + 1] - U[k]) ** 2) for k in range(steps))
    return steps / 2 * length - weight / steps * sum(value(z) for z in path[1:-1])
