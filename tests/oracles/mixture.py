"""Dense, slow, obvious references for mixtures of PPCA: d x d covariances, one row at a time.

Nothing here imports dualpca. A mixture is (pi, mu, C): weights (K,), means (K, d), dense
covariances (K, d, d). A row observes the entries that are not NaN.
"""

import numpy as np
from scipy.special import logsumexp

from tests import oracles
from tests.oracles import missing as missing_oracles


def log_densities(X, mu, C):
    """Return ln N(x_o; mu_k, C_k) for every row and component, by SciPy."""
    return np.stack([missing_oracles.log_density(X, m, c) for m, c in zip(mu, C, strict=True)], 1)


def score_samples(X, pi, mu, C):
    """Return ln sum_k pi_k N(x_o; mu_k, C_k)."""
    return logsumexp(log_densities(X, mu, C) + np.log(pi), axis=1)


def responsibilities(X, pi, mu, C):
    """Return rho_nk = pi_k N(x_n; k) / sum_j."""
    joint = log_densities(X, mu, C) + np.log(pi)
    return np.exp(joint - logsumexp(joint, axis=1, keepdims=True))


def spectrum(X, w):
    """Return mean, variances and axes of weighted rows, from the dense covariance."""
    mu = w @ X / w.sum()
    S = (X - mu).T @ np.diag(w) @ (X - mu) / w.sum()
    ell, V = np.linalg.eigh(S)
    return mu, ell[::-1], V[:, ::-1]


def m_step(X, rho, q, tied=False):
    """Return means and covariances of the weighted maximum (theory 6), complete rows."""
    parts = [spectrum(X, w) for w in rho.T]
    n, d = rho.sum(axis=0), X.shape[1]
    noises = [ell[q:].mean() for _, ell, _ in parts]
    if tied:
        noises = [sum(n[k] * p[1][q:].sum() for k, p in enumerate(parts)) / (n.sum() * (d - q))]
        noises *= len(parts)
    C = [
        (V[:, :q] * np.maximum(ell[:q] - s, 0)) @ V[:, :q].T + s * np.eye(d)
        for (_, ell, V), s in zip(parts, noises, strict=True)
    ]
    return np.stack([p[0] for p in parts]), np.stack(C)


def em_step(X, pi, mu, C, q):
    """Return the mixture after one EM step on complete rows."""
    rho = responsibilities(X, pi, mu, C)
    return rho.mean(axis=0), *m_step(X, rho, q)


def incomplete_em_step(X, pi, models, weights=None):
    """Return the mixture after one parameter-expanded EM step a component on rows with NaN.

    ``models`` are `oracles.Model` (mean, W, sigma2).
    """
    d = X.shape[1]
    mu = np.stack([m.mean for m in models])
    C = np.stack([m.W @ m.W.T + m.sigma2 * np.eye(d) for m in models])
    rho = responsibilities(X, pi, mu, C)
    new = []
    for k, model in enumerate(models):
        step, nu, gamma = missing_oracles.em_step(X, model, rho[:, k])
        new.append(missing_oracles.expand(step, nu, gamma))
    return rho.mean(axis=0), new


def impute(X, pi, mu, C):
    """Return mean and standard deviation of every entry given what its row observed."""
    rho = responsibilities(X, pi, mu, C)
    parts = [missing_oracles.conditionals(X, m, c) for m, c in zip(mu, C, strict=True)]
    means = np.stack([p[0] for p in parts])
    variances = np.stack([np.diagonal(p[1], axis1=1, axis2=2) for p in parts])
    mean = np.einsum("nk,knj->nj", rho, means)
    between = np.where(np.isnan(X), means - mean, 0.0) ** 2
    return mean, np.sqrt(np.einsum("nk,knj->nj", rho, variances + between))


def model_of(W, mean, sigma2):
    """Return an `oracles.Model`."""
    return oracles.Model(np.asarray(mean), np.asarray(W), float(sigma2))
