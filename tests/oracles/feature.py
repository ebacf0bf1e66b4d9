"""Dense references for models whose observations are feature dimensions: O(n^3), NumPy only.

Symbols: F (n, rho) features, one column an observation; Fc with the mean of every
column taken out; Kc = Fc Fc^T; B (n, q), psi (n,), C = B B^T + diag(psi).
"""

import numpy as np
from scipy.stats import multivariate_normal


def centred(K):
    H = np.eye(len(K)) - 1 / len(K)
    return H @ K @ H


def ml(K, q):
    """Return B, sigma2 and all eigenvalues of Kc / n (S3, section 3)."""
    n = len(K)
    ell, U = np.linalg.eigh(centred(K) / n)
    ell, U = ell[::-1], U[:, ::-1]
    sigma2 = ell[q:].sum() / (n - q)
    return U[:, :q] * np.sqrt(ell[:q] - sigma2), sigma2, ell


def loglikelihood(K, B, psi, rho=None):
    """Return -1/2 {ln|C| + tr(C^-1 Kc)/n}, with the constant where rho is given."""
    n = len(K)
    C = B @ B.T + np.diag(np.broadcast_to(psi, n))
    value = -0.5 * (np.linalg.slogdet(C)[1] + np.trace(np.linalg.solve(C, centred(K))) / n)
    return value if rho is None else value - n / 2 * np.log(2 * np.pi * n / rho)


def loglikelihood_of_features(F, B, psi):
    """Return the log-density of all columns of F under N(u_j 1, n/rho C), u_j their means."""
    n, rho = F.shape
    C = n / rho * (B @ B.T + np.diag(np.broadcast_to(psi, n)))
    return sum(multivariate_normal(np.full(n, g.mean()), C).logpdf(g) for g in F.T)


def posterior_of_latents(F, B, psi):
    """Return <W> (q, rho) and <W W^T> (q, q), one feature dimension at a time."""
    (n, rho), q = F.shape, B.shape[1]
    V = n / rho * np.diag(np.broadcast_to(psi, n))
    precision = np.eye(q) * rho / n + B.T @ np.linalg.inv(V) @ B
    cov = np.linalg.inv(precision)
    W = np.stack([cov @ B.T @ np.linalg.solve(V, g - g.mean()) for g in F.T], axis=1)
    return W, rho * cov + W @ W.T


def em_step(F, B, sigma2):
    """Return (B', sigma2') by S3's Eqs. 16 and 17, from the features themselves."""
    n = len(F)
    Fc = F - F.mean(axis=0)
    W, WW = posterior_of_latents(F, B, sigma2)
    B_new = Fc @ W.T @ np.linalg.inv(WW)
    cross = np.trace(B_new @ W @ Fc.T)
    return B_new, (np.sum(Fc**2) + np.trace(WW @ B_new.T @ B_new) - 2 * cross) / n**2


def place(F, f, B, psi, rho=None):
    """Return b, its covariance on the map, and the point's own noise, by regression of f.

    E_W ln p(f | W, b, psi_x) is quadratic in b: its maximum; psi_x maximises it in turn. The
    covariance is that of a regression on the posterior means of the latents, without what is not
    known of them, and the square of what b then lacks.
    """
    n, rho = F.shape[0], F.shape[1] if rho is None else rho
    W, WW = posterior_of_latents(F, B, psi)
    fc = f - F.mean(axis=0)
    b = np.linalg.solve(WW, W @ fc)
    own = (fc @ fc - 2 * b @ W @ fc + b @ WW @ b) / n
    regression = np.linalg.inv(W @ W.T)
    lacking = regression @ WW @ b - b
    return b, n * own / (rho - len(b)) * regression + np.outer(lacking, lacking), own


def aligned(A, B):
    """Return A turned onto B by the best orthogonal matrix (Procrustes)."""
    U, _, Vt = np.linalg.svd(A.T @ B)
    return A @ U @ Vt


def angle(A, B):
    """Return the largest angle between two column spaces, in degrees."""
    Qa, Qb = np.linalg.qr(A)[0], np.linalg.qr(B)[0]
    sine = np.linalg.norm(Qb - Qa @ (Qa.T @ Qb), 2)
    return np.degrees(np.arcsin(min(sine, 1.0)))
