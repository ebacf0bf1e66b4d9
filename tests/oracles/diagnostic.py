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


def t2_limit(level, q, n):
    """Return the limit for a new row, for variances with divisor n − 1."""
    return q * (n**2 - 1) / (n * (n - q)) * stats.f.ppf(level, q, n - q)


def spe_limit(level, X, q):
    """Return Box's limit from the whole spectrum of the rows, corrected for the size of the table.

    The discarded variances have divisor ν = n − 1 − q here; Σℓ² is the unbiased estimate.
    """
    n, d = X.shape
    nu = n - 1 - q
    ell = np.linalg.eigvalsh(np.cov(X.T) * (n - 1))[::-1][q:] / nu
    first = ell.sum()
    second = nu**2 / ((nu - 1) * (nu + 2)) * (np.sum(ell**2) - first**2 / nu)
    h = np.clip(first**2 / second, 1, d - q)
    return first * (1 + 1 / n) * (1 + q / n) * stats.f.ppf(level, h, h * nu)
