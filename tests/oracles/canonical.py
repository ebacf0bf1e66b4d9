"""Canonical correlation the slow way: generalised eigenproblems and dense Gaussians."""

import numpy as np
from scipy import linalg
from scipy.stats import multivariate_normal

DX, DY = 5, 4


def two_views(n=300, dx=DX, dy=DY, q=2, seed=0):
    """Draw two views of one latent, with noise of any covariance in each."""
    rng = np.random.default_rng(seed)
    z = 1.5 * rng.standard_normal((n, q))

    def view(d):
        own = rng.standard_normal((n, d)) @ rng.standard_normal((d, d))
        return z @ rng.standard_normal((q, d)) + own

    return 3.0 + view(dx), view(dy) - 1.0


def with_holes(X, Y, share=0.2, unpaired=0.0, seed=0):
    """Remove entries at random, and one whole view from a share of the rows."""
    rng, n = np.random.default_rng(seed), len(X)
    X, Y = X.copy(), Y.copy()
    X[rng.random(X.shape) < share] = np.nan
    Y[rng.random(Y.shape) < share] = np.nan
    which = rng.permutation(n)[: int(unpaired * n)]
    X[which[::2]] = np.nan
    Y[which[1::2]] = np.nan
    return X, Y


def joint(model):
    """Return mean and covariance of both views, put together from the public attributes."""
    Wx, Wy = model.x_loadings_, model.y_loadings_
    top = np.hstack([Wx @ Wx.T + model.x_noise_covariance_, Wx @ Wy.T])
    low = np.hstack([Wy @ Wx.T, Wy @ Wy.T + model.y_noise_covariance_])
    return np.concatenate([model.x_mean_, model.y_mean_]), np.vstack([top, low])


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
