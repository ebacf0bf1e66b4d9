"""Dense, slow, obvious references for T², SPE and their limits: full spectra, SVDs row by row.

Nothing here imports dualpca.
"""

import numpy as np
from scipy import stats


def statistics(X, W, mu, psi):
    """Return T², ΣΨ⁻¹e², k and |o| − k of every row of x = Wz + mu + noise, by definition.

    T² = z̄ᵀ Var(z̄)⁺ z̄ with z̄ = W_oᵀ C_oo⁻¹ (x_o − mu_o) and Var(z̄) = W_oᵀ C_oo⁻¹ W_o; the residual
    is that of generalised least squares on W_o. Pseudo-inverses by SVD.
    """
    out = []
    for x in X:
        o = np.flatnonzero(~np.isnan(x))
        r, B = x[o] - mu[o], W[o]
        C = B @ B.T + np.diag(psi[o])
        z, spread = B.T @ np.linalg.solve(C, r), B.T @ np.linalg.solve(C, B)
        k = np.linalg.matrix_rank(B) if o.size and B.size else 0
        t2 = z @ np.linalg.pinv(spread, rcond=1e-9, hermitian=True) @ z
        root = np.sqrt(psi[o])
        e = (r - B @ np.linalg.lstsq(B / root[:, None], r / root, rcond=None)[0]) / root
        out.append((t2, e @ e if o.size > k else 0.0, k, o.size - k))
    return tuple(np.array(column, dtype=float) for column in zip(*out, strict=True))


def mahalanobis(X, mu, C):
    """Return (x_o − mu_o)ᵀ C_oo⁻¹ (x_o − mu_o) of every row."""
    out = np.zeros(len(X))
    for i, x in enumerate(X):
        o = np.flatnonzero(~np.isnan(x))
        r = x[o] - mu[o]
        out[i] = r @ np.linalg.solve(C[np.ix_(o, o)], r)
    return out


def new_rows(X, axes):
    """Return what new rows have beside axes fitted to X, from dense matrices of theory 16.

    Variances along the axes, and sums of λ, λ², λ³ off them; all with divisor n − 1.
    """
    n, d = X.shape
    q = axes.shape[1]
    nu, S = n - 1 - q, np.cov(X.T)
    ell = np.diag(axes.T @ S @ axes)
    A = np.eye(d) - axes @ axes.T
    lam = np.sort(np.linalg.eigvalsh(A @ S @ A))[q:] * (n - 1) / nu  # unbiased scale
    p1, p2, p3 = (np.sum(lam**k) for k in (1, 2, 3))
    t2 = (p2 - p1**2 / nu) * nu**2 / ((nu - 1) * (nu + 2))
    t3 = (p3 - 3 * p1 * p2 / nu + 2 * p1**3 / nu**2) * nu**4
    t3 /= (nu - 1) * (nu - 2) * (nu + 2) * (nu + 4)
    t2 = np.clip(t2, p1**2 / (d - q), p1**2)
    t3 = np.clip(t3, t2**2 / p1, t2**1.5)
    rest = p1 * nu / (n - 1)
    sizes = (rest / (d - q), d - q, rest / (d - q), 0)  # equal ones
    if t2 > p1**2 / (d - q) * (1 + 1e-6):
        sizes = two_sizes(rest, t2 / p1**2 * rest**2, t3 / p1**3 * rest**3, d - q)
        m = np.clip(sizes[1], 1, d - q - 1)  # one direction at least of either size
        spread = np.sqrt(t2 / p1**2 * rest**2 / (d - q) - (rest / (d - q)) ** 2)
        low = rest / (d - q) - spread * np.sqrt(m / (d - q - m))
        sizes = ((rest - (d - q - m) * low) / m, m, low, d - q - m)
    sets = [(sizes[0], sizes[1]), (sizes[2], sizes[3])]
    g, leak, grown = np.empty(q), np.empty(q), [1.0, 1.0]
    parts = np.empty((q, 2))
    for p in range(q):
        for s, (lam, count) in enumerate(sets):
            gap = max(ell[p] - lam - (lam + rest) / nu, 0.2 * ell[p])
            parts[p, s] = count * lam / nu / gap
            grown[s] += ell[p] / nu / gap
        g[p] = max(1 / (1 + parts[p].sum()), 0.5)
        signal = ell[p] - sum(c * lam * (lam + (lam + rest) / nu) for lam, c in sets) / rest
        leak[p] = ell[p] * parts[p].sum()
        leak[p] *= max(signal, 0) / (max(signal, 0) + leak[p])
    mean = (1 + 1 / n) * (np.trace(S) - np.sum(ell * g**2))
    whole = np.array([lam for lam, _ in sets]) * grown
    counts = np.array([count for _, count in sets])
    whole *= (mean - leak.sum()) / (counts @ whole)
    second, third = counts @ whole**2, counts @ whole**3
    for p in range(q):
        share = parts[p] / parts[p].sum()
        second += leak[p] * (2 * share @ whole + leak[p])
        third += leak[p] * (3 * share @ whole**2 + 3 * leak[p] * share @ whole + leak[p] ** 2)
    second = np.clip(second, mean**2 / (d - q), mean**2)
    return ell * g**2, mean, second, np.clip(third, second**2 / mean, second**1.5)


def t2_limit(level, X, axes):
    """Return the limit for a new row, for variances with divisor n − 1."""
    (n, _), q = X.shape, axes.shape[1]
    share = np.mean(new_rows(X, axes)[0] / np.diag(axes.T @ np.cov(X.T) @ axes))
    return share * q * (n**2 - 1) / (n * (n - q)) * stats.f.ppf(level, q, n - q)


def two_sizes(mean, second, third, r):
    """Return α, m, β, r − m with the three sums: a two-point law of λ with those moments."""
    lam1, lam2, lam3 = mean / r, second / r, third / r
    # the two points are roots of x² + bx + c with E x^k (x² + bx + c) = 0, k = 0, 1
    b, c = np.linalg.solve([[lam1, 1.0], [lam2, lam1]], [-lam2, -lam3])
    low, high = np.sort(np.roots([1.0, b, c]).real)
    share = (lam1 - low) / (high - low)
    return high, share * r, low, (1 - share) * r


def spe_law(draws, X, axes, rng):
    """Return draws of SPE of new rows, from two sizes of residuals as if they were known."""
    _, mean, second, third = new_rows(X, axes)
    high, m, low, k = two_sizes(mean, second, third, X.shape[1] - axes.shape[1])
    return high * rng.chisquare(m, draws) + low * rng.chisquare(k, draws)
