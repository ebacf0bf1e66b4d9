"""Dense, slow, obvious references for rows with NaN: sub-blocks of a d x d covariance, row by row.

Nothing here imports dualpca. The model is x = W z + mu + noise, z ~ N(0, I_q), noise ~
N(0, diag(psi)); where a function takes ``sigma2``, psi_j = sigma2 for every feature. A row observes
the set o of entries that are not NaN.
"""

from math import log, pi

import numpy as np
from scipy import linalg, optimize
from scipy.stats import multivariate_normal

from tests.oracles import Model, ones_like_rows

# --- density and conditioning ---------------------------------------------------------


def log_density(X, mu, C):
    """Return ln N(x_o; mu_o, C_oo) of every row, by SciPy; 0 for a row with nothing observed."""
    out = np.zeros(len(X))
    for i, x in enumerate(X):
        o = np.flatnonzero(~np.isnan(x))
        if o.size:
            out[i] = multivariate_normal(mu[o], C[np.ix_(o, o)]).logpdf(x[o])
    return out


def loglikelihood(X, mu, C, weights=None):
    """Return sum_i w_i ln N(x_o; mu_o, C_oo), by determinants and linear solves."""
    total = 0.0
    for x, w in zip(X, ones_like_rows(X, weights), strict=True):
        o = np.flatnonzero(~np.isnan(x))
        r, block = x[o] - mu[o], C[np.ix_(o, o)]
        logdet = np.linalg.slogdet(block)[1] if o.size else 0.0
        total -= w * 0.5 * (o.size * log(2 * pi) + logdet + r @ np.linalg.solve(block, r))
    return total


def log_density_by_least_squares(X, W, mu, sigma2):
    """Return the same without any C: accurate however small the noise.

    The exponent is the least of |z|^2 + |x_o - mu_o - W_o z|^2 / sigma2 over z, a least-squares
    problem with the matrix A = [I; W_o / sigma], and |C_oo| = sigma2^|o| |A^T A|.
    """
    q, sigma, out = W.shape[1], np.sqrt(sigma2), np.zeros(len(X))
    for i, x in enumerate(X):
        o = np.flatnonzero(~np.isnan(x))
        A = np.vstack([np.eye(q), W[o] / sigma])
        b = np.concatenate([np.zeros(q), (x[o] - mu[o]) / sigma])
        Q, R = np.linalg.qr(A)
        rest = b - Q @ (Q.T @ b)
        logdet = o.size * log(sigma2) + 2 * np.sum(np.log(np.abs(np.diag(R))))
        out[i] = -0.5 * (o.size * log(2 * pi) + logdet + rest @ rest)
    return out


def conditional(x, mu, C):
    """Return mean (d,) and covariance (d, d) of a row given what it observed, by Schur complement.

    E = mu_m + C_mo C_oo^-1 (x_o - mu_o), Cov = C_mm - C_mo C_oo^-1 C_om; an observed entry has
    itself as its mean and zeros as its covariances.
    """
    o, m = np.flatnonzero(~np.isnan(x)), np.flatnonzero(np.isnan(x))
    mean, covariance = np.array(x), np.zeros((len(mu), len(mu)))
    gain = np.linalg.solve(C[np.ix_(o, o)], C[np.ix_(o, m)]).T
    mean[m] = mu[m] + gain @ (x[o] - mu[o])
    covariance[np.ix_(m, m)] = C[np.ix_(m, m)] - gain @ C[np.ix_(o, m)]
    return mean, covariance


def conditionals(X, mu, C):
    """Return means (n, d) and covariances (n, d, d) of every row."""
    parts = [conditional(x, mu, C) for x in X]
    return np.stack([p[0] for p in parts]), np.stack([p[1] for p in parts])


def posterior(X, W, mu, psi):
    """Return means (n, q) and covariances (n, q, q) of z given x_o, by its precision.

    With psi_j = sigma2 these are M_n^-1 W_o^T (x_o - mu_o) and sigma2 M_n^-1, where
    M_n = W_o^T W_o + sigma2 I.
    """
    means, covariances = [], []
    for x in X:
        o = np.flatnonzero(~np.isnan(x))
        weighted = W[o] / psi[o][:, None]
        covariance = np.linalg.inv(np.eye(W.shape[1]) + W[o].T @ weighted)
        means.append(covariance @ (weighted.T @ (x[o] - mu[o])))
        covariances.append(covariance)
    return np.stack(means), np.stack(covariances)


def posterior_by_joint(x, W, mu, psi):
    """Return the same for one row by conditioning the joint Gaussian of (z, x): no M_n anywhere."""
    q, d = W.shape[1], len(mu)
    joint = np.block([[np.eye(q), W.T], [W, W @ W.T + np.diag(psi)]])
    given = np.concatenate([np.full(q, np.nan), x])
    mean, covariance = conditional(given, np.concatenate([np.zeros(q), mu]), joint)
    assert covariance.shape == (q + d, q + d)
    return mean[:q], covariance[:q, :q]


# --- the likelihood as a function of the parameters -----------------------------------


def gradient(X, W, mu, psi, weights=None):
    """Return the derivatives of the log-likelihood by W (d, q), mu (d,) and psi (d,).

    With a = C_oo^-1 (x_o - mu_o): d/dmu_o = a, d/dC_oo = (a a^T - C_oo^-1) / 2 = G, and through
    C = W W^T + diag(psi) d/dW_o = 2 G W_o, d/dpsi_o = diag G.
    """
    C = W @ W.T + np.diag(psi)
    by_W, by_mu, by_psi = np.zeros_like(W), np.zeros_like(mu), np.zeros_like(mu)
    for x, w in zip(X, ones_like_rows(X, weights), strict=True):
        o = np.flatnonzero(~np.isnan(x))
        inverse = np.linalg.inv(C[np.ix_(o, o)])
        a = inverse @ (x[o] - mu[o])
        G = 0.5 * (np.outer(a, a) - inverse)
        by_W[o] += w * 2 * G @ W[o]
        by_mu[o] += w * a
        by_psi[o] += w * np.diag(G)
    return by_W, by_mu, by_psi


def climb(X, q, seed=0):
    """Return the Model at a maximum that L-BFGS finds from a random start."""
    d, rng = X.shape[1], np.random.default_rng(seed)
    spread = float(np.mean(np.nanstd(X, axis=0)))

    def unpack(t):
        return t[: d * q].reshape(d, q) * spread, t[d * q : -1], np.exp(t[-1]) * spread**2

    def cost(t):
        W, mu, sigma2 = unpack(t)
        by_W, by_mu, by_psi = gradient(X, W, mu, np.full(d, sigma2))
        value = loglikelihood(X, mu, W @ W.T + sigma2 * np.eye(d))
        return -value, -np.concatenate([by_W.ravel() * spread, by_mu, [by_psi.sum() * sigma2]])

    start = np.concatenate([rng.standard_normal(d * q), np.nanmean(X, axis=0), [0.0]])
    found = optimize.minimize(
        cost, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-7}
    )
    W, mu, sigma2 = unpack(found.x)
    return Model(mu, W, float(sigma2))


# --- EM, one row and one feature at a time --------------------------------------------


def em_step(X, model, weights=None):
    """Return the Model after one plain EM step (theory 4), and the mean and covariance of z.

    The latter are over all rows, posterior covariances included: what parameter expansion folds in.
    """
    w, (d, q) = ones_like_rows(X, weights), model.W.shape
    z, C = posterior(X, model.W, model.mean, np.full(d, model.sigma2))
    zz = [C[i] + np.outer(z[i], z[i]) for i in range(len(X))]
    W, mu, total, count = np.zeros((d, q)), np.zeros(d), 0.0, 0.0
    for j in range(d):
        rows = np.flatnonzero(~np.isnan(X[:, j]))
        left, right = np.zeros((q + 1, q + 1)), np.zeros(q + 1)
        for i in rows:
            left += w[i] * np.block([[zz[i], z[i][:, None]], [z[i][None, :], np.ones((1, 1))]])
            right += w[i] * X[i, j] * np.append(z[i], 1.0)
        both = np.linalg.solve(left, right)
        W[j], mu[j] = both[:-1], both[-1]
        for i in rows:
            total += w[i] * ((X[i, j] - W[j] @ z[i] - mu[j]) ** 2 + W[j] @ C[i] @ W[j])
            count += w[i]
    nu = w @ z / w.sum()
    gamma = sum(w[i] * zz[i] for i in range(len(X))) / w.sum() - np.outer(nu, nu)
    return Model(mu, W, total / count), nu, gamma


def expand(model, nu, gamma):
    """Return the Model with z ~ N(nu, gamma) folded back: mu + W nu, W gamma^(1/2)."""
    return Model(model.mean + model.W @ nu, model.W @ linalg.sqrtm(gamma).real, model.sigma2)


def em(X, q, steps, seed=0):
    """Return the Model after that many plain EM steps from a random start, in stacked loops.

    The same step as `em_step` (a test says so), with the sums over rows written as einsum.
    """
    d, rng = X.shape[1], np.random.default_rng(seed)
    seen, filled = (~np.isnan(X)).astype(float), np.nan_to_num(X)
    W, mu, sigma2 = rng.standard_normal((d, q)), np.nanmean(X, axis=0), float(np.nanvar(X))
    for _ in range(steps):
        W, mu, sigma2 = _stacked_step(filled, seen, W, mu, sigma2)
    return Model(mu, W, sigma2)


def _stacked_step(X, seen, W, mu, sigma2):
    n, q = len(X), W.shape[1]
    M = np.einsum("ij,jk,jl->ikl", seen, W, W) + sigma2 * np.eye(q)
    C = sigma2 * np.linalg.inv(M)
    z = np.linalg.solve(M, ((seen * (X - mu)) @ W)[:, :, None])[:, :, 0]
    t = np.concatenate([z, np.ones((n, 1))], axis=1)
    tt = t[:, :, None] * t[:, None, :]
    tt[:, :q, :q] += C
    left, right = np.einsum("ij,ikl->jkl", seen, tt), np.einsum("ij,ij,ik->jk", seen, X, t)
    both = np.linalg.solve(left, right[:, :, None])[:, :, 0]
    spread = np.einsum("ij,jk,ikl,jl->", seen, both[:, :q], C, both[:, :q], optimize=True)
    total = np.sum(seen * (X - t @ both.T) ** 2) + spread
    return both[:, :q], both[:, q], float(total / seen.sum())
