"""Dense, slow, obvious references: O(d^3), explicit loops, textbook formulas, NumPy and SciPy only.

Nothing here imports dualpca. Divisor n (the sum of the weights) throughout. Symbols: X (n, d),
mean (d,), S (d, d), ell (d,) descending, W (d, q), sigma2, C = W W^T + sigma2 I.
"""

from dataclasses import dataclass
from math import lgamma, log, pi

import numpy as np
from scipy import linalg
from scipy.stats import multivariate_normal

# --- moments --------------------------------------------------------------------------


def ones_like_rows(X, weights):
    return np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float)


def mean(X, weights=None, center=True):
    """Return the weighted mean of the rows, or zero for the uncentred model."""
    X, w = np.asarray(X, dtype=float), ones_like_rows(X, weights)
    return (w @ X) / w.sum() if center else np.zeros(X.shape[1])


def covariance(X, weights=None, center=True):
    """Return S = sum_i w_i (x_i - mu)(x_i - mu)^T / sum_i w_i, one outer product at a time."""
    X, w = np.asarray(X, dtype=float), ones_like_rows(X, weights)
    mu = mean(X, w, center)
    S = np.zeros((X.shape[1], X.shape[1]))
    for x, weight in zip(X, w, strict=True):
        S += weight * np.outer(x - mu, x - mu)
    return S / w.sum()


def eigh_descending(A):
    """Return all eigenvalues, largest first, and their eigenvectors as columns."""
    values, vectors = linalg.eigh((A + A.T) / 2)
    return values[::-1], vectors[:, ::-1]


def repeat(X, counts):
    """Return X with row i repeated counts[i] times: what integer weights mean."""
    return np.concatenate(
        [np.repeat(np.asarray(X)[i : i + 1], c, axis=0) for i, c in enumerate(counts)]
    )


# --- the model ------------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """x = W z + mu + noise, z ~ N(0, I_q), noise ~ N(0, sigma2 I_d)."""

    mean: np.ndarray  # (d,)
    W: np.ndarray  # (d, q)
    sigma2: float

    @property
    def covariance(self):
        return self.W @ self.W.T + self.sigma2 * np.eye(len(self.mean))


def ppca(X, q, weights=None, center=True, sigma2=None):
    """Return the maximum-likelihood PPCA (Tipping & Bishop 1999, eqs. 7-8) by a full eigh.

    With q = d there is no noise direction left to average over: sigma2 = 0 and C = S.
    """
    S = covariance(X, weights, center)
    ell, V = eigh_descending(S)
    d = len(ell)
    if sigma2 is None:
        sigma2 = float(np.mean(ell[q:])) if q < d else 0.0
    W = V[:, :q] @ np.diag(np.sqrt(np.maximum(ell[:q] - sigma2, 0.0)))
    return Model(mean(X, weights, center), W, max(sigma2, 0.0))


def log_density(X, mu, C):
    """Return ln N(x; mu, C) for every row, by SciPy."""
    return np.atleast_1d(multivariate_normal(mu, C).logpdf(np.asarray(X, dtype=float)))


def log_density_solve(X, mu, C):
    """Return ln N(x; mu, C) for every row, by a determinant and a linear solve."""
    sign, logdet = np.linalg.slogdet(C)
    assert sign > 0
    out = np.empty(len(X))
    for i, x in enumerate(np.asarray(X, dtype=float)):
        out[i] = -0.5 * (len(mu) * log(2 * pi) + logdet + (x - mu) @ np.linalg.solve(C, x - mu))
    return out


def loglikelihood(X, mu, C, weights=None):
    """Return sum_i w_i ln N(x_i; mu, C)."""
    return float(ones_like_rows(X, weights) @ log_density_solve(X, mu, C))


def posterior(X, model):
    """Return mean (n, q) and covariance (q, q) of z given x, through M = W^T W + sigma2 I."""
    M_inv = np.linalg.inv(model.W.T @ model.W + model.sigma2 * np.eye(model.W.shape[1]))
    return (np.asarray(X) - model.mean) @ model.W @ M_inv, model.sigma2 * M_inv


def reconstruction(X, model):
    """Return E[W z + mu | x]."""
    return posterior(X, model)[0] @ model.W.T + model.mean


def signal_covariance(X, model):
    """Return Cov[W z | x] (d, d), the same for every x."""
    return model.W @ posterior(X, model)[1] @ model.W.T


def predictive_covariance(X, model):
    """Return Cov[x' | x] (d, d) of a new reading x' = W z + mu + fresh noise of the same z."""
    return signal_covariance(X, model) + model.sigma2 * np.eye(len(model.mean))


def em_step(X, W, sigma2, weights=None):
    """Return (W', sigma2') after an E step per point and the M step's sums (Bishop 12.54-57)."""
    X, w = np.asarray(X, dtype=float), ones_like_rows(X, weights)
    mu, (d, q) = mean(X, w), W.shape
    M_inv = np.linalg.inv(W.T @ W + sigma2 * np.eye(q))
    z = [M_inv @ W.T @ (x - mu) for x in X]
    zz = [sigma2 * M_inv + np.outer(m, m) for m in z]
    left, right = np.zeros((d, q)), np.zeros((q, q))
    for i, x in enumerate(X):
        left += w[i] * np.outer(x - mu, z[i])
        right += w[i] * zz[i]
    W_new = left @ np.linalg.inv(right)
    total = 0.0
    for i, x in enumerate(X):
        xc = x - mu
        total += w[i] * (xc @ xc - 2 * z[i] @ W_new.T @ xc + np.trace(zz[i] @ W_new.T @ W_new))
    return W_new, total / (w.sum() * d)


# --- choosing q -----------------------------------------------------------------------


def n_parameters(d, q, mean=True):
    """Return the number of free parameters of W W^T + sigma2 I (and of the mean), by formula.

    With q = d - 1 the covariance is already any covariance, so q = d adds nothing.
    """
    q = min(q, d - 1)
    return d * q + 1 - q * (q - 1) // 2 + (d if mean else 0)


def n_parameters_by_rank(d, q, seed=0):
    """Return the same for the covariance alone: the rank of the Jacobian of (W, sigma2) -> C."""
    rng = np.random.default_rng(seed)
    theta = np.append(rng.standard_normal(d * q), 1.3)

    def flat(t):
        W = t[:-1].reshape(d, q)
        return (W @ W.T + t[-1] * np.eye(d)).ravel()

    step = 1e-4  # C is quadratic in theta, so the central difference is exact up to rounding
    columns = []
    for j in range(len(theta)):
        e = np.zeros(len(theta))
        e[j] = step
        columns.append((flat(theta + e) - flat(theta - e)) / (2 * step))
    return int(np.linalg.matrix_rank(np.stack(columns, axis=1), tol=1e-6))


def profile_loglikelihood(ell, n, k):
    """Return the maximal log-likelihood of PPCA with k directions, from all d eigenvalues."""
    d = len(ell)
    v = np.mean(ell[k:])
    total = d * log(2 * pi) + d + (d - k) * log(v)
    for p in range(k):
        total += log(ell[p])
    return -n / 2 * total


def bic(ell, n, k):
    """Return -2 ln L + p ln n: smaller is better."""
    return -2 * profile_loglikelihood(ell, n, k) + n_parameters(len(ell), k) * log(n)


def minka_evidence(ell, n, k, tail="average"):
    """Return Minka's Laplace evidence for k directions (NIPS 2000, eq. 30), by explicit loops.

    |A_z| = prod_{i<=k} prod_{j>i} (1/hat_j - 1/hat_i) (ell_i - ell_j) n, where hat_j = ell_j for
    j <= k and the average v for j > k. With ``tail="average"`` ell_j is v too for j > k, so that
    only the leading eigenvalues and the trace enter; with ``tail="exact"`` it is the discarded
    eigenvalue, as printed.
    """
    d = len(ell)
    v = float(np.mean(ell[k:]))
    hat = [float(ell[j]) if j < k else v for j in range(d)]
    raw = hat if tail == "average" else [float(e) for e in ell]
    log_prior = -k * log(2)
    for i in range(1, k + 1):
        log_prior += lgamma((d - i + 1) / 2) - (d - i + 1) / 2 * log(pi)
    m = d * k - k * (k + 1) / 2
    log_A = 0.0
    for i in range(k):
        for j in range(i + 1, d):
            log_A += log((1 / hat[j] - 1 / hat[i]) * (raw[i] - raw[j]) * n)
    log_fit = -n / 2 * sum(log(hat[j]) for j in range(k)) - n * (d - k) / 2 * log(v)
    return log_prior + log_fit + (m + k) / 2 * log(2 * pi) - log_A / 2 - k / 2 * log(n)


def best_by_evidence(ell, n, ks, tail="average"):
    return max(ks, key=lambda k: minka_evidence(ell, n, k, tail))


def best_by_bic(ell, n, ks):
    return min(ks, key=lambda k: bic(ell, n, k))


# --- kernels --------------------------------------------------------------------------


def centred_kernel(K, weights=None):
    """Return H K H^T with H = I - 1 w^T / sum(w), written out."""
    n = len(K)
    w = np.ones(n) if weights is None else np.asarray(weights, dtype=float)
    H = np.eye(n) - np.outer(np.ones(n), w) / w.sum()
    return H @ K @ H.T


def weighted_kernel_spectrum(K, weights=None, center=True):
    """Return the eigenvalues of D^{1/2} Kc D^{1/2}, D = diag(w): those of the weighted scatter."""
    w = np.ones(len(K)) if weights is None else np.asarray(weights, dtype=float)
    Kc = centred_kernel(K, w) if center else K
    root = np.sqrt(w)
    return eigh_descending(root[:, None] * Kc * root[None, :])[0]
