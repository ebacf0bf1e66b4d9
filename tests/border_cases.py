"""What is checked at a border: fits of one estimator beside plain dense NumPy, for any shape.

A case takes n rows of d columns, q components and a generator. It draws the rows, fits, and
compares with sums, eigenvalues and densities that are written here for all rows at once, dense and
in float64. Nothing is shared with the package.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import eigsh
from scipy.special import gammaln

import dualpca
from tests.oracles.bayesian import ard_scalar_step

# --- Rows ----------------------------------------------------------------------------------------


def rows(n, d, q, rng, dtype=np.float64, offset=3.0):
    """Return rows of q directions that differ in length, noise, means and scales of columns."""
    k = max(1, min(q, d - 1, n - 1, 8))
    strength = 4.0 * 0.8 ** np.arange(k)
    W = np.linalg.qr(rng.normal(size=(d, k)))[0] * strength * np.sqrt(max(1.0, d / 20))
    X = rng.normal(size=(n, k)) @ W.T
    X += 0.5 * rng.normal(size=(n, d))
    X += offset * rng.normal(size=d)
    return X.astype(dtype)


def with_late_columns(X, first):
    """Return the rows with a column that does not vary in the first rows, and one that never does.

    What a block or a head finds of them is not what all rows hold.
    """
    X = X.copy()
    if X.shape[1] > 2 and X.shape[0] > first + 2:
        X[:first, 0] = 1.25
        X[:, 1] = 0.1
    return X


def punched(X, rng, share=0.1, patterns=12):
    """Return the rows with missing values in a few patterns; every row keeps half of its values."""
    n, d = X.shape
    masks = rng.random((patterns, d)) < share
    masks[0] = False
    masks[masks.sum(axis=1) > d // 2] = False
    X = X.copy()
    X[masks[rng.integers(patterns, size=n)]] = np.nan
    return X


# --- Oracles: dense, all rows at once ------------------------------------------------------------


class Dense:
    """Moments and all eigenpairs of weighted rows: divisor Σw."""

    def __init__(self, X, w=None, standardize=False):
        X = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
        self.w = np.ones(len(X)) if w is None else np.asarray(w, dtype=np.float64)
        self.n = self.w.sum()
        self.mean = X.mean(axis=0) if w is None else self.w @ X / self.n
        C = X - self.mean
        self.scale = np.ones(X.shape[1])
        if standardize:
            C[:, np.ptp(X, axis=0) == 0] = 0.0  # the mean of equal numbers has rounding errors
            found = np.sqrt(self.w @ (C * C) / self.n)
            self.scale = np.where(found > 0, found, 1.0)
        self.C = C / self.scale
        F = self.C if w is None else self.C * np.sqrt(self.w)[:, None]
        wide = F.shape[0] < F.shape[1]
        values, vectors = np.linalg.eigh(F @ F.T if wide else F.T @ F)
        self.values, vectors = np.maximum(values[::-1], 0), vectors[:, ::-1]
        self.trace = float(np.einsum("ij,ij->", F, F))
        self.axes = F.T @ vectors / np.sqrt(np.maximum(self.values, 1e-300)) if wide else vectors

    def spiked(self, q, divisor):
        """Return ℓ, V and σ² of the Gaussian with q spikes."""
        d = self.C.shape[1]
        values = self.values[:q] / divisor
        rest = max(self.trace / divisor - values.sum(), 0.0)
        return values, self.axes[:, :q], rest / (d - q) if q < d else 0.0


def log_gaussian(C, values, V, noise):
    """Return ln N of centred rows under V diag(ℓ) Vᵀ + σ² (I − VVᵀ)."""
    d = C.shape[1]
    Y = C @ V
    off = np.einsum("ij,ij->i", C, C) - np.einsum("ij,ij->i", Y, Y)
    logdet = np.log(values).sum() + (d - len(values)) * (np.log(noise) if noise > 0 else 0.0)
    exponent = (Y * Y / values).sum(axis=1) + (off / noise if noise > 0 else 0.0)
    return -0.5 * (d * np.log(2 * np.pi) + logdet + exponent)


def log_normal(X, mean, C):
    """Return ln N of rows, by a Cholesky factor of the dense covariance of what they observe.

    Rows with the same missing values share it.
    """
    out = np.zeros(len(X))
    patterns, which = np.unique(np.isnan(X), axis=0, return_inverse=True)
    for k, gone in enumerate(patterns):
        here, o = np.flatnonzero(which.ravel() == k), np.flatnonzero(~gone)
        L = np.linalg.cholesky(C[np.ix_(o, o)])
        Z = np.linalg.solve(L, (X[np.ix_(here, o)] - mean[o]).T)
        logdet = 2 * np.log(np.diag(L)).sum()
        out[here] = -0.5 * (o.size * np.log(2 * np.pi) + logdet + (Z * Z).sum(axis=0))
    return out


def log_student(X, mean, S, nu):
    """Return the same for a Student distribution with scatter S."""
    if np.isinf(nu):
        return log_normal(X, mean, S)
    d, L = X.shape[1], np.linalg.cholesky(S)
    Z = np.linalg.solve(L, (X - mean).T)
    constant = gammaln((nu + d) / 2) - gammaln(nu / 2) - 0.5 * d * np.log(nu * np.pi)
    reach = (Z * Z).sum(axis=0)
    return constant - np.log(np.diag(L)).sum() - 0.5 * (nu + d) * np.log1p(reach / nu)


def conditional_means(X, mean, C):
    """Return rows whose missing values are filled with their conditional means."""
    out = X.copy()
    patterns, which = np.unique(np.isnan(X), axis=0, return_inverse=True)
    for k, gone in enumerate(patterns):
        here = np.flatnonzero(which.ravel() == k)
        m, o = np.flatnonzero(gone), np.flatnonzero(~gone)
        if m.size:
            slope = np.linalg.solve(C[np.ix_(o, o)], C[np.ix_(o, m)])
            out[np.ix_(here, m)] = mean[m] + (X[np.ix_(here, o)] - mean[o]) @ slope
    return out


def em_gain(X, mean, W, psi):
    """Return the gain per row of ln p by one dense EM step for x = Wz + μ + ε, missing values too.

    psi is a number, or one per column. 0 where the parameters are a maximum.
    """
    n, d = X.shape
    q = W.shape[1]
    noise = np.full(d, psi) if np.ndim(psi) == 0 else psi
    before = log_normal(X, mean, W @ W.T + np.diag(noise)).mean()
    patterns, which = np.unique(np.isnan(X), axis=0, return_inverse=True)
    Z, ZZ = np.zeros((n, q + 1)), np.zeros((len(patterns), q + 1, q + 1))
    for k, gone in enumerate(patterns):
        here, o = np.flatnonzero(which.ravel() == k), np.flatnonzero(~gone)
        M = np.eye(q) + (W[o].T / noise[o]) @ W[o]
        z = np.linalg.solve(M, (W[o].T / noise[o]) @ (X[np.ix_(here, o)] - mean[o]).T).T
        Z[here] = np.column_stack([z, np.ones(here.size)])
        ZZ[k] = Z[here].T @ Z[here]
        ZZ[k, :q, :q] += here.size * np.linalg.inv(M)
    new, left, count = np.zeros((d, q + 1)), np.zeros(d), np.zeros(d)
    for j in range(d):
        seen = ~np.isnan(X[:, j])
        A = ZZ[~patterns[:, j]].sum(axis=0)
        b = X[seen, j] @ Z[seen]
        new[j] = np.linalg.solve(A, b)
        left[j] = (X[seen, j] ** 2).sum() - 2 * new[j] @ b + new[j] @ A @ new[j]
        count[j] = seen.sum()
    psi = left / count if np.ndim(psi) else np.full(d, left.sum() / count.sum())
    after = log_normal(X, new[:, q], new[:, :q] @ new[:, :q].T + np.diag(psi)).mean()
    return after - before


# --- Comparisons ---------------------------------------------------------------------------------


def close(found, expected, rtol, what, scale=None):
    """Raise unless two arrays agree, relative to the largest number expected."""
    found, expected = np.asarray(found, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    assert found.shape == expected.shape, f"{what}: shape {found.shape}, not {expected.shape}"
    unit = float(np.abs(expected).max(initial=0.0)) if scale is None else scale
    worst = float(np.abs(found - expected).max(initial=0.0))
    assert worst <= rtol * max(unit, 1e-300), f"{what}: off by {worst:.2g} of {unit:.2g}"


def same_axes(found, expected, values, tol, what):
    """Raise unless axes agree that are well apart from others."""
    for p, (v, u) in enumerate(zip(found, expected, strict=True)):
        others = np.delete(values[: len(expected) + 1], p)
        gap = np.abs(others - values[p]).min(initial=np.inf) / values[0]
        if gap > 1e-2:
            v = v / np.linalg.norm(v)
            angle = float(min(np.linalg.norm(v - u), np.linalg.norm(v + u)))
            assert angle <= tol / gap, f"{what}: axis {p} turned by {angle:.2g}"


@contextmanager
def quiet():
    """Let warnings of drawn tables pass: numbers are checked here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# --- PCA, PPCA -----------------------------------------------------------------------------------


def check_pca(model, dense, q, single=False, divisor=None):
    """Compare a fitted PCA or PPCA with dense eigenpairs."""
    rtol, turn = (2e-5, 3e-5) if single else (1e-9, 1e-6)
    divisor = dense.n - 1 if divisor is None else divisor
    values, V, noise = dense.spiked(q, divisor)
    spread = np.sqrt(dense.trace / dense.n / dense.C.shape[1])
    close(model.mean_, dense.mean, rtol, "mean", np.abs(dense.mean).max() + spread)
    close(model.explained_variance_, values, rtol, "variances", values[0])
    if noise > 1e-6 * values[0]:
        close(model.noise_variance_, noise, 20 * rtol, "noise")
    every = dense.values / divisor
    same_axes(np.asarray(model.components_, dtype=np.float64), V.T, every, turn, "components")
    gram = np.asarray(model.components_, dtype=np.float64)
    close(gram @ gram.T, np.eye(q), 1e-5 if single else 1e-9, "orthonormal")


def pca(n, d, q, rng, **options):
    X = with_late_columns(rows(n, d, q, rng), int(rng.choice([3, 1024])))
    with quiet():
        check_pca(dualpca.PCA(q, **options).fit(X), Dense(X), q)


def pca_far(n, d, q, rng):
    X = rows(n, d, q, rng, offset=1e5)
    with quiet():
        model = dualpca.PCA(q).fit(X)
    dense = Dense(X)
    close(model.explained_variance_, dense.values[:q] / (n - 1), 1e-7, "variances")


def pca_single(n, d, q, rng):
    X = rows(n, d, q, rng, np.float32)
    with quiet():
        check_pca(dualpca.PCA(q).fit(X), Dense(X), q, single=True)


def pca_weights(n, d, q, rng):
    X, w = rows(n, d, q, rng), rng.gamma(2.0, 1.0, n) + 0.5
    w[rng.integers(n)] = 0.0
    with quiet():
        check_pca(dualpca.PCA(q).fit(X, sample_weight=w), Dense(X, w), q)


def pca_standardized(n, d, q, rng):
    X = with_late_columns(rows(n, d, q, rng), 1024) * (1 + np.arange(d) % 5)
    with quiet():
        model = dualpca.PCA(q, standardize=True).fit(X)
    check_pca(model, Dense(X, standardize=True), q)


def pca_qr(n, d, q, rng):
    pca(n, d, q, rng, svd_solver="full")


def pca_dense(n, d, q, rng):
    pca(n, d, q, rng, svd_solver="covariance_eigh")


def pca_gram(n, d, q, rng):
    pca(n, d, q, rng, svd_solver="gram")


def pca_krylov(n, d, q, rng):
    pca(n, d, q, rng, svd_solver="krylov")


def pca_krylov_single(n, d, q, rng):
    X = rows(n, d, q, rng, np.float32)
    with quiet():
        check_pca(dualpca.PCA(q, svd_solver="krylov").fit(X), Dense(X), q, single=True)


def pca_order(n, d, q, rng):
    """Rows in column order, and every other row of a larger table: no block is contiguous."""
    X = rows(n, d, q, rng)
    twice = np.empty((2 * n, d))
    twice[::2] = X
    with quiet():
        check_pca(dualpca.PCA(q).fit(np.asfortranarray(X)), Dense(X), q)
        check_pca(dualpca.PCA(q).fit(twice[::2]), Dense(X), q)


def sparse_table(n, d, q, rng, dtype, fill):
    """Return sparse rows with about so many entries."""
    X = rows(n, d, q, rng, dtype, offset=0.5)
    return sp.csr_array(X * (rng.random((n, d)) < fill))


def pca_sparse(n, d, q, rng, dtype=np.float64):
    X = sparse_table(n, d, q, rng, dtype, rng.choice([0.1, 0.5]))
    kind = rng.choice(["csr", "csc", "krylov", "weights"])
    w = rng.gamma(2.0, 1.0, n) + 0.5 if kind == "weights" else None
    solver = "krylov" if kind == "krylov" else "auto"
    with quiet():
        model = dualpca.PCA(q, svd_solver=solver)
        model.fit(X.tocsc() if kind == "csc" else X, sample_weight=w)
    check_pca(model, Dense(X, w), q, single=dtype == np.float32)


def pca_sparse_single(n, d, q, rng):
    pca_sparse(n, d, q, rng, np.float32)


def pca_stream(n, d, q, rng):
    X = with_late_columns(rows(n, d, q, rng), 1024)
    model, at = dualpca.PCA(q), 0
    block = max(65536 // d, 4 * d)
    while at < n:
        size = int(rng.choice([d + 1, block - 1, block, block + 1, block + d, n]))
        size = n - at if n - at - size < max(q + 1, 3) else size
        with quiet():
            model.partial_fit(X[at : at + size])
        at += size
    check_pca(model, Dense(X), q)


def ppca(n, d, q, rng, dtype=np.float64):
    d = max(d, 2)
    X = rows(n, d, q, rng, dtype)
    q = min(q, d - 1, n - 2)
    with quiet():
        model = dualpca.PPCA(q).fit(X)
    dense = Dense(X)
    values, V, noise = dense.spiked(q, dense.n)
    single = dtype == np.float32
    check_pca(model, dense, q, single, dense.n)
    if noise > 1e-3 * values[0] / d:
        expected = log_gaussian(dense.C, values, V, noise)
        tol = 1e-3 if single else 1e-7
        close(model.score_samples(X), expected, tol, "densities")


def ppca_single(n, d, q, rng):
    ppca(n, d, q, rng, np.float32)


def on_rows(n, d, q, rng):
    """Methods on n rows: what is computed by blocks of rows after a small fit."""
    train = rows(max(3 * q, 40), d, q, rng)
    X = rows(n, d, q, rng)
    q = min(q, d - 1)
    with quiet():
        model = dualpca.PPCA(q).fit(train)
        Y = dualpca.PCA(q).fit(train)
        found = Y.transform(X)
        again = Y.reconstruct(X)
        latents, density = model.transform(X), model.score_samples(X)
    V, mean = np.asarray(Y.components_).T, Y.mean_
    close(found, (X - mean) @ V, 1e-10, "coordinates")
    close(again, mean + (X - mean) @ V @ V.T, 1e-10, "reconstruction")
    values, noise = np.asarray(model.explained_variance_), float(model.noise_variance_)
    V, C = np.asarray(model.components_).T, X - model.mean_
    expected = C @ V * np.sqrt(values - noise) / values
    close(np.abs(latents), np.abs(expected), 1e-8, "latents")
    close(density, log_gaussian(C, values, V, noise), 1e-7, "densities")


# --- Missing values ------------------------------------------------------------------------------


def converged_enough(gain, what):
    """Raise if a dense EM step from the fitted parameters gains more than the stop allows."""
    assert -1e-6 <= gain <= 2e-4, f"{what}: an EM step gains {gain:.2g} nats a row"


def climbed(model, total):
    """Raise unless the last steps of a fit found the likelihood that dense densities sum to."""
    close(model.loglikelihoods_[-1], total, 1e-8, "likelihood of the last step")
    if model.converged_:
        close(min(model.loglikelihoods_[-2:]), total, 1e-6, "likelihood of the step before")


def ppca_missing(n, d, q, rng):
    X = punched(rows(n, d, q, rng), rng, float(rng.choice([0.1, 0.35])))
    q = min(q, d - 1)
    with quiet():
        model = dualpca.PPCA(q).fit(X)
        found = model.score_samples(X)
    W, noise = np.asarray(model.loadings_), float(model.noise_variance_)
    C = W @ W.T + noise * np.eye(d)
    expected = log_normal(X, model.mean_, C)
    close(found, expected, 1e-8, "densities")
    climbed(model, expected.sum())
    if model.converged_:
        converged_enough(em_gain(X, model.mean_, W, noise), "PPCA")
    with quiet():
        filled = model.impute(X)
    close(filled, conditional_means(X, model.mean_, C), 1e-7, "filled values")


def limits(n, d, q, rng):
    """Control limits of n rows that miss different values: every row's are its own."""
    with quiet():
        model = dualpca.PPCA(q).fit(rows(4 * d, d, q, rng))
        X = punched(rows(n, d, q, rng), rng, patterns=n)
        whole = model.outliers(X)
        cut = int(rng.integers(1, n))
        parts = [model.outliers(X[:cut]), model.outliers(X[cut:])]
    for name in ("t2", "spe", "t2_pvalue", "spe_pvalue"):
        of_parts = np.concatenate([np.asarray(getattr(part, name)) for part in parts])
        close(np.asarray(getattr(whole, name)), of_parts, 1e-9, name)


def imputer(n, d, q, rng):
    X = punched(rows(n, d, q, rng), rng)
    q = min(q, d - 1)
    with quiet():
        filled = dualpca.Imputer(q).fit_transform(X)
        model = dualpca.PPCA(q).fit(X)
        by_model = model.impute(X)
    known = ~np.isnan(X)
    close(filled[known], X[known], 0.0, "values that were known")
    unit = np.nanstd(X)
    close(filled, by_model, 2e-2, "filled values", unit)


def factor(n, d, q, rng):
    X = rows(n, d, q, rng) * (0.5 + (np.arange(d) % 4))
    q = min(q, max(1, d // 3))
    with quiet():
        model = dualpca.FactorAnalysis(q).fit(X)
        found = model.score_samples(X)
    W, psi = np.asarray(model.loadings_), np.asarray(model.noise_variance_)
    close(model.mean_, X.mean(axis=0), 1e-9, "mean", np.abs(X).max())
    close(found, log_normal(X, model.mean_, W @ W.T + np.diag(psi)), 1e-7, "densities")
    if n > d and model.converged_ and psi.min() > 1e-6 * psi.max():
        converged_enough(em_gain(X, model.mean_, W, psi), "FactorAnalysis")


def factor_missing(n, d, q, rng):
    X = punched(rows(n, d, q, rng), rng)
    q = min(q, max(1, d // 3))
    with quiet():
        model = dualpca.FactorAnalysis(q).fit(X)
        found = model.score_samples(X)
    W, psi = np.asarray(model.loadings_), np.asarray(model.noise_variance_)
    expected = log_normal(X, model.mean_, W @ W.T + np.diag(psi))
    close(found, expected, 1e-7, "densities")
    climbed(model, expected.sum())
    if model.converged_ and psi.min() > 1e-3 * psi.max():
        converged_enough(em_gain(X, model.mean_, W, psi), "FactorAnalysis")


def bayesian(n, d, q, rng):
    d = max(d, 2)  # of one column there is nothing to tell apart
    X = rows(n, d, q, rng)
    with quiet():
        model = dualpca.BayesianPCA(min(q, d - 1)).fit(X)
        found = model.score_samples(X)
    dense = Dense(X)
    close(model.mean_, dense.mean, 1e-9, "mean", np.abs(X).max())
    W, noise = np.asarray(model.loadings_), float(model.noise_variance_)
    close(found, log_normal(X, model.mean_, W @ W.T + noise * np.eye(d)), 1e-7, "densities")
    # its axes are those of PCA, and its EM step leaves the lengths u of its loadings alone
    u = np.sort((W * W).sum(axis=0))[::-1]
    u = np.where(u > 1e-6 * u.max(initial=1e-300), u, 0.0)
    ell = dense.values[: len(u)] / n
    next_u, next_noise = ard_scalar_step(ell, dense.trace / n, d, n, u, noise)
    close(next_u, u, 1e-3, "lengths of loadings")
    close(next_noise, noise, 1e-3, "noise")


def mixture(n, d, q, rng):
    d = max(d, 2)  # of one column there is nothing to tell apart
    centre = 12.0 * rng.normal(size=(1, d)) / np.sqrt(d)
    X = rows(n, d, min(q, 2), rng, offset=0.0)
    X[::2] += centre * 4
    q = min(q, 2, d - 1)
    with quiet():
        model = dualpca.MixturePPCA(2, q, random_state=0, standardize=False).fit(X)
        found, shares = model.score_samples(X), model.predict_proba(X, parameters="fixed")
    pi, mu, C = np.asarray(model.weights_), np.asarray(model.means_), np.asarray(model.covariances_)
    logs = np.column_stack([log_normal(X, m, c) for m, c in zip(mu, C, strict=True)]) + np.log(pi)
    top = logs.max(axis=1)
    expected = top + np.log(np.exp(logs - top[:, None]).sum(axis=1))
    close(found, expected, 1e-7, "densities")
    rho = np.exp(logs - expected[:, None])
    close(shares, rho, 1e-6, "shares")
    if model.converged_ and rho.sum(axis=0).min() > 2 * d:
        # every component is the weighted PPCA of its rows
        for k in range(2):
            dense = Dense(X, rho[:, k])
            close(mu[k], dense.mean, 2e-2, "means", np.sqrt(dense.values[0] / dense.n))
            expected = dense.spiked(q, dense.n)[2]
            close(np.asarray(model.noise_variance_)[k], expected, 5e-2, "noise")


def robust(n, d, q, rng):
    d = max(d, 2)  # of one column there is nothing to tell apart
    X = rows(n, d, q, rng)
    X[:: max(n // 5, 2)] += 30.0
    q = min(q, d - 1, 3)
    with quiet():
        model = dualpca.RobustPPCA(q).fit(X)
        found = model.score_samples(X)
    W, noise = np.asarray(model.loadings_), float(model.noise_variance_)
    S, nu = W @ W.T + noise * np.eye(d), float(model.degrees_of_freedom_)
    close(found, log_student(X, np.asarray(model.mean_), S, nu), 1e-6, "densities")
    used = np.asarray(model.row_weights_)
    assert used.shape == (n,)
    if np.isinf(nu):
        dense = Dense(X, used)
        spread = np.sqrt(dense.trace / dense.n / d)
        close(model.mean_, dense.mean, 1e-2, "mean", spread)
        close(noise, dense.spiked(q, dense.n)[2], 5e-2, "noise")


# --- Kernels, chains -----------------------------------------------------------------------------


def kernel(n, d, q, rng, dtype=np.float64, kind="rbf", given=False, solver="auto"):
    X = rows(n, d, min(q, 4), rng, dtype, offset=0.0) / np.sqrt(d)
    new = rows(37, d, min(q, 4), rng, dtype, offset=0.0) / np.sqrt(d)
    A, B = X.astype(np.float64), new.astype(np.float64)

    def values(P, Q):
        if kind == "linear":
            return P @ Q.T
        near = ((P * P).sum(axis=1)[:, None] + (Q * Q).sum(axis=1) - 2 * P @ Q.T).clip(0)
        return np.exp(-0.3 * near)

    K = values(A, A)
    means, grand = K.mean(axis=0), K.mean()
    Kc = K - means - means[:, None] + grand
    if n <= 1600:
        lam, U = np.linalg.eigh((Kc + Kc.T) / 2)
    else:  # dense all the same, but not all eigenpairs
        lam, U = eigsh((Kc + Kc.T) / 2, q + 1, which="LA", v0=np.ones(n) + A[:, 0])
    lam, U = lam[::-1][: q + 1], U[:, ::-1][:, :q]
    options = {} if kind == "linear" else {"gamma": 0.3}
    with quiet():
        if given:
            model = dualpca.KernelPCA(q, kernel="precomputed", eigen_solver=solver).fit(K)
            found = model.transform(values(B, A))
        else:
            model = dualpca.KernelPCA(q, kernel=kind, eigen_solver=solver, **options).fit(X)
            found = model.transform(new)
    rtol = 2e-5 if dtype == np.float32 else 1e-8
    held = min(int((lam > 1e-6 * lam[0]).sum()), q)
    close(np.asarray(model.eigenvalues_)[:held], lam[:held], rtol, "eigenvalues")
    across = values(B, A)
    centred = across - across.mean(axis=1)[:, None] - means + grand
    expected = centred @ U[:, :held] / np.sqrt(lam[:held])
    for p in range(held):
        gap = np.abs(np.delete(lam, p) - lam[p]).min() / lam[0]
        if gap > 1e-2:
            a, b = np.asarray(found)[:, p].astype(np.float64), expected[:, p]
            worst = min(np.abs(a - b).max(), np.abs(a + b).max())
            assert worst <= 100 * rtol / gap * np.abs(b).max(), (
                f"coordinate {p}: off by {worst:.2g}"
            )


def kernel_single(n, d, q, rng):
    kernel(n, d, q, rng, np.float32)


def kernel_linear(n, d, q, rng):
    kernel(n, d, min(q, d, n - 1), rng, kind="linear")


def kernel_given(n, d, q, rng):
    kernel(n, d, q, rng, given=True)


def kernel_krylov(n, d, q, rng):
    kernel(n, d, q, rng, solver="krylov")


def kernel_rows(n, d, q, rng):
    """Coordinates of n new points after a small fit."""
    X, new = rows(60, d, 3, rng, offset=0.0), rows(n, d, 3, rng, offset=0.0)
    with quiet():
        model = dualpca.KernelPCA(q, kernel="rbf", gamma=0.1 / d).fit(X)
        found = model.transform(new)
        singly = np.vstack([model.transform(new[i : i + 1]) for i in (0, n // 2, n - 1)])
    near = ((new[:, None, :] - X[None, :, :]) ** 2).sum(axis=2) if n * d < 2**20 else None
    if near is not None:
        K = np.exp(-0.1 / d * ((X[:, None, :] - X[None, :, :]) ** 2).sum(axis=2))
        Kc = K - K.mean(axis=0) - K.mean(axis=0)[:, None] + K.mean()
        lam, U = np.linalg.eigh(Kc)
        lam, U = lam[::-1][:q], U[:, ::-1][:, :q]
        across = np.exp(-0.1 / d * near)
        centred = across - across.mean(axis=1)[:, None] - K.mean(axis=0) + K.mean()
        expected = centred @ U / np.sqrt(lam)
        close(np.abs(found), np.abs(expected), 1e-6, "coordinates")
    close(found[[0, n // 2, n - 1]], singly, 1e-9, "rows by themselves")


def chain(n, d, q, rng):
    """A chain of n steps: its density and its posterior beside the plain forward pass in logs."""
    q = min(q, d - 1, 2)
    state = np.cumsum(rng.random(n) < 0.1) % 2
    X = rows(n, d, q, rng, offset=0.0) + 6.0 * state[:, None]
    with quiet():
        model = dualpca.HiddenMarkovPCA(2, q, max_iter=3, random_state=0, standardize=False)
        model.fit(X)
        total, shares = model.score(X), model.predict_proba(X)
    C, mu = np.asarray(model.covariances_)[:, 0], np.asarray(model.means_)[:, 0]
    logs = np.column_stack([log_normal(X, m, c) for m, c in zip(mu, C, strict=True)])
    A = np.log(np.maximum(np.asarray(model.transitions_), 1e-300))
    start = np.log(np.maximum(np.asarray(model.start_probabilities_), 1e-300))
    forward, backward = np.empty_like(logs), np.zeros_like(logs)
    forward[0] = start + logs[0]
    for t in range(1, n):
        forward[t] = np.logaddexp.reduce(forward[t - 1][:, None] + A, axis=0) + logs[t]
    for t in range(n - 2, -1, -1):
        backward[t] = np.logaddexp.reduce(A + logs[t + 1] + backward[t + 1], axis=1)
    evidence = np.logaddexp.reduce(forward[-1])
    close(shares, np.exp(forward + backward - evidence), 1e-7, "states")
    close(total, evidence / n, 1e-9, "density of a chain")
