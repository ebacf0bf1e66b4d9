"""Dense references in NumPy, from the mathematics: nothing here imports dualpca.

Divisor n (the sum of the weights). Symbols: X (n, d), mean (d,), ell (d,) descending, V (d, d),
W (d, q), psi the noise variances (d,), C = W Wᵀ + diag psi.
"""

import numpy as np

LOG_2PI = np.log(2 * np.pi)


# --- Rows without gaps -----------------------------------------------------------------


def centred(X, w=None):
    """Return Σw, the mean and X − mean: the mean is corrected once, so offsets cost nothing."""
    X = np.asarray(X, dtype=np.float64)
    w = np.ones(len(X)) if w is None else np.asarray(w, dtype=np.float64)
    origin = X[np.argmax(w > 0)]
    C = X - origin
    step = w @ C / w.sum()
    C -= step
    again = w @ C / w.sum()
    return w.sum(), origin + (step + again), C - again


def spectrum(C, w=None):
    """Return all variances, largest first, and directions, from the smaller of the two products."""
    w = np.ones(len(C)) if w is None else np.asarray(w, dtype=np.float64)
    n, d = C.shape
    R = C * np.sqrt(w / w.sum())[:, None]
    if d <= n:
        ell, V = np.linalg.eigh(R.T @ R)
        return np.maximum(ell[::-1], 0), V[:, ::-1]
    ell, U = np.linalg.eigh(R @ R.T)
    ell, U = np.maximum(ell[::-1], 0), U[:, ::-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        V = R.T @ U / np.sqrt(ell)
    return ell, V


def spiked_log_density(C, V, ell, sigma2):
    """Return ln N(c; 0, V (L − σ²) Vᵀ + σ² I) of centred rows, from q directions (d, q)."""
    d, q = V.shape
    Y = C @ V
    rest = C - Y @ V.T
    far = np.einsum("ij,ij->i", rest, rest) / sigma2 if q < d else 0.0
    logs = np.log(ell).sum() + (d - q) * np.log(sigma2)
    return -0.5 * (d * LOG_2PI + logs + (Y * Y / ell).sum(axis=1) + far)


# --- Rows with gaps: sub-blocks of the covariance, row by row ----------------------------


def log_densities(X, mean, C):
    """Return ln N(x_o; mean_o, C_oo) of every row; 0 where nothing is observed."""
    out = np.zeros(len(X))
    for o, rows in by_pattern(X):
        if o.size:
            L = np.linalg.cholesky(C[np.ix_(o, o)])
            Z = np.linalg.solve(L, (X[np.ix_(rows, o)] - mean[o]).T)
            logdet = 2 * np.log(np.diagonal(L)).sum()
            out[rows] = -0.5 * (o.size * LOG_2PI + logdet + (Z * Z).sum(axis=0))
    return out


def squared_distances(X, mean, C):
    """Return (x_o − mean_o)ᵀ C_oo⁻¹ (x_o − mean_o), ln|C_oo| and the number observed, per row."""
    far, logdet, count = np.zeros(len(X)), np.zeros(len(X)), np.zeros(len(X))
    for o, rows in by_pattern(X):
        if o.size:
            L = np.linalg.cholesky(C[np.ix_(o, o)])
            Z = np.linalg.solve(L, (X[np.ix_(rows, o)] - mean[o]).T)
            far[rows], count[rows] = (Z * Z).sum(axis=0), o.size
            logdet[rows] = 2 * np.log(np.diagonal(L)).sum()
    return far, logdet, count


def filled(X, mean, C):
    """Return the rows with E[x_m | x_o] in their gaps."""
    out = np.array(X, dtype=np.float64)
    for o, rows in by_pattern(X):
        m = np.setdiff1d(np.arange(len(mean)), o)
        if not m.size:
            continue
        gain = (
            np.linalg.solve(C[np.ix_(o, o)], C[np.ix_(o, m)]) if o.size else np.zeros((0, m.size))
        )
        out[np.ix_(rows, m)] = mean[m] + (X[np.ix_(rows, o)] - mean[o]) @ gain
    return out


def by_pattern(X):
    """Yield (columns observed, rows) of every pattern of gaps."""
    patterns = {}
    for i, seen in enumerate(~np.isnan(X)):
        patterns.setdefault(seen.tobytes(), (np.flatnonzero(seen), []))[1].append(i)
    for o, rows in patterns.values():
        yield o, np.array(rows)


def em_step(X, w, mean, W, psi, *, equal):
    """Return (mean, W, psi) after one EM step over rows with gaps; `equal`: one noise variance."""
    (n, d), q = X.shape, W.shape[1]
    w = np.ones(n) if w is None else w
    A, B, total = np.zeros((d, q + 1, q + 1)), np.zeros((d, q + 1)), []
    for x, weight in zip(X, w, strict=True):
        o = np.flatnonzero(~np.isnan(x))
        if not o.size:
            continue
        G = W[o] / psi[o][:, None]
        S = np.linalg.inv(np.eye(q) + W[o].T @ G)
        z = np.append(S @ G.T @ (x[o] - mean[o]), 1.0)
        zz = np.outer(z, z)
        zz[:q, :q] += S
        A[o] += weight * zz
        B[o] += weight * x[o][:, None] * z
        total.append((o, x[o], z, S, weight))
    new = np.stack([np.linalg.solve(A[j], B[j]) for j in range(d)])
    W, mean = new[:, :q], new[:, q]
    rest, seen = np.zeros(d), np.zeros(d)
    for o, x, z, S, weight in total:
        gap = x - new[o] @ z
        rest[o] += weight * (gap * gap + np.einsum("jq,qr,jr->j", W[o], S, W[o]))
        seen[o] += weight
    psi = np.full(d, rest.sum() / seen.sum()) if equal else rest / seen
    return mean, W, psi


def loglikelihood(X, w, mean, W, psi):
    """Return Σ w ln N(x_o; mean_o, C_oo)."""
    w = np.ones(len(X)) if w is None else w
    return float(w @ log_densities(X, mean, W @ W.T + np.diag(psi)))


# --- Mixtures and chains ----------------------------------------------------------------


def log_sum(A, axis):
    top = A.max(axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.squeeze(top, axis) + np.log(np.exp(A - top).sum(axis=axis))


def mixture(X, shares, means, covariances):
    """Return the log-density and the responsibilities of rows with or without gaps."""
    parts = [log_densities(X, m, C) for m, C in zip(means, covariances, strict=True)]
    joint = np.stack(parts, axis=1) + np.log(shares)
    total = log_sum(joint, 1)
    return total, np.exp(joint - total[:, None])


def mixture_step(X, w, shares, means, covariances, q, least=0.0):
    """Return shares, means and covariances after an EM step of a mixture of PPCA, complete rows."""
    w = np.ones(len(X)) if w is None else w
    R = mixture(X, shares, means, covariances)[1] * w[:, None]
    out = []
    for k in range(len(shares)):
        _, mean, C = centred(X, R[:, k])
        ell, V = spectrum(C, R[:, k])
        full = np.zeros(X.shape[1])
        full[: len(ell)] = ell[: len(full)]
        sigma2 = max(full[q:].mean(), least)
        top = np.maximum(full[:q], sigma2) - sigma2
        out.append(
            (
                R[:, k].sum() / w.sum(),
                mean,
                (V[:, :q] * top) @ V[:, :q].T + sigma2 * np.eye(len(mean)),
            )
        )
    return tuple(np.stack(part) for part in zip(*out, strict=True))


def forward(log_b, start, transitions):
    """Return the log-likelihood of one sequence, log_b (t, s), by the forward pass."""
    with np.errstate(divide="ignore"):
        a, A = np.log(start) + log_b[0], np.log(transitions)
    for row in log_b[1:]:
        a = log_sum(a[:, None] + A, 0) + row
    return float(log_sum(a, 0))


# --- Kernels ----------------------------------------------------------------------------


def distances(X, Y):
    """Return squared distances, one column after the other: no digits are lost."""
    D = np.zeros((len(X), len(Y)))
    for j in range(X.shape[1]):
        D += np.square(X[:, j, None] - Y[None, :, j])
    return D


KERNELS = {
    "linear": lambda X, Y, g: X @ Y.T,
    "rbf": lambda X, Y, g: np.exp(-g * distances(X, Y)),
    "poly": lambda X, Y, g: (g * (X @ Y.T) + 1.0) ** 3,
    "cosine": lambda X, Y, g: (
        (X @ Y.T) / np.outer(np.sqrt((X * X).sum(axis=1)), np.sqrt((Y * Y).sum(axis=1)))
    ),
    "laplacian": lambda X, Y, g: np.exp(
        -g * sum(np.abs(X[:, j, None] - Y[None, :, j]) for j in range(X.shape[1]))
    ),
}
"""k(x, y) with gamma g, degree 3 and coef0 1."""


def centred_kernel(K, w=None):
    """Return H K Hᵀ with H = I − 1 wᵀ/Σw."""
    w = np.ones(len(K)) if w is None else w
    left = K - (w @ K) / w.sum()
    return left - ((left @ w) / w.sum())[:, None]


def kernel_spectrum(Kc, w=None):
    """Return all eigenvalues, largest first, and vectors of √D Kc √D."""
    root = np.ones(len(Kc)) if w is None else np.sqrt(w)
    A = root[:, None] * Kc * root
    lam, E = np.linalg.eigh((A + A.T) / 2)
    return lam[::-1], E[:, ::-1]


# --- Two views --------------------------------------------------------------------------


def canonical_correlations(X, Y, w=None):
    """Return all canonical correlations: singular values of the product of both views' bases."""
    w = np.ones(len(X)) if w is None else w
    root = np.sqrt(w / w.sum())[:, None]
    bases = [np.linalg.qr(centred(Z, w)[2] * root)[0] for Z in (X, Y)]
    return np.linalg.svd(bases[0].T @ bases[1], compute_uv=False)
