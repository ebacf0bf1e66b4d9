"""Canonical correlation the slow way: generalised eigenproblems and dense Gaussians."""

import numpy as np
from scipy import linalg
from scipy.stats import multivariate_normal


def moments(X, Y, w=None):
    """Return mean and covariance of both views side by side, divisor n."""
    w = np.ones(len(X)) if w is None else w
    Z = np.hstack([X, Y])
    mean = w @ Z / w.sum()
    return mean, (w[:, None] * (Z - mean)).T @ (Z - mean) / w.sum()


def correlations(C, dx):
    """Return all canonical correlations of a joint covariance, from Σxy Σyy⁻¹ Σyx a = ρ² Σxx a."""
    Cxx, Cxy, Cyy = C[:dx, :dx], C[:dx, dx:], C[dx:, dx:]
    values = linalg.eigh(Cxy @ np.linalg.solve(Cyy, Cxy.T), Cxx, eigvals_only=True)
    most = min(dx, len(C) - dx)
    return np.sqrt(np.clip(values[::-1][:most], 0, None))


def truncated(C, dx, q):
    """Return the maximum-likelihood joint covariance whose cross-covariance has rank q."""
    Cxx, Cxy, Cyy = C[:dx, :dx], C[:dx, dx:], C[dx:, dx:]
    _, A = linalg.eigh(Cxy @ np.linalg.solve(Cyy, Cxy.T), Cxx)
    A = A[:, ::-1][:, :q]  # AᵀΣxxA = I
    out = C.copy()
    out[:dx, dx:] = Cxx @ A @ A.T @ Cxy
    out[dx:, :dx] = out[:dx, dx:].T
    return out


def densities(mean, C, Z):
    """Return the log-density of what each row observed."""
    out = np.zeros(len(Z))
    for i, z in enumerate(Z):
        o = ~np.isnan(z)
        if o.any():
            out[i] = multivariate_normal(mean[o], C[np.ix_(o, o)]).logpdf(z[o])
    return out


def conditional(mean, C, B, T, z):
    """Return mean and covariance of t (of mean 0) given what a row observed."""
    o = ~np.isnan(z)
    gain = np.linalg.solve(C[np.ix_(o, o)], B[o]).T if o.any() else np.zeros((len(T), 0))
    return gain @ (z[o] - mean[o]), T - gain @ B[o]
