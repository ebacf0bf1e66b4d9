"""Dense, slow, obvious references for Bayesian PCA. Nothing here imports dualpca."""

import numpy as np
from scipy import stats
from scipy.special import digamma, gammaln


def ard_step(X, W, sigma2):
    """Return W and sigma2 after one plain EM step with alpha = d / w'w (theory 5), all dense."""
    Xc = X - X.mean(axis=0)
    (n, d), q = X.shape, W.shape[1]
    alive = np.flatnonzero(np.sum(W**2, axis=0) > 1e-12 * sigma2)
    V = W[:, alive]
    M = V.T @ V + sigma2 * np.eye(alive.size)
    z = Xc @ V @ np.linalg.inv(M)
    zz = n * sigma2 * np.linalg.inv(M) + z.T @ z
    A = np.diag(d / np.sum(V**2, axis=0))
    new = (Xc.T @ z) @ np.linalg.inv(zz + sigma2 * A)
    left = np.sum(Xc**2) - 2 * np.sum(z * (Xc @ new)) + np.trace(zz @ new.T @ new)
    out = np.zeros((d, q))
    out[:, alive] = new
    return out, left / (n * d)


def ard_scalar_step(ell, trace, d, n, u, sigma2):
    """Return u and sigma2 after the same step on the eigenvectors, where it is one of scalars.

    With c = sqrt(u) and m = u + sigma2: c' = (ell c/m) / (sigma2/m + u ell/m^2 + sigma2 alpha/n).
    `ell` are the q variances along the eigenvectors, `trace` the sum of all d.
    """
    m, alive = u + sigma2, u > 0
    second, cross = sigma2 / m + u * ell / m**2, ell * np.sqrt(u) / m
    prior = sigma2 * d / n / np.where(alive, u, 1.0)
    c = np.where(alive, cross / (second + prior), 0.0)
    return c * c, (trace - np.sum(c * (2 * cross - c * second))) / d


def ard_start(X, q):
    """Return W on the eigenvectors, and sigma2, of maximum likelihood."""
    d = X.shape[1]
    ell, V = np.linalg.eigh(np.cov(X.T, bias=True))
    ell, V = ell[::-1], V[:, ::-1]
    sigma2 = ell[q:].sum() / (d - q)
    return V[:, :q] * np.sqrt(ell[:q] - sigma2), sigma2


def ard(X, q, steps):
    """Return W and sigma2 after that many steps."""
    W, sigma2 = ard_start(X, q)
    for _ in range(steps):
        W, sigma2 = ard_step(X, W, sigma2)
    return W, sigma2


def penalised(X, W, sigma2):
    """Return sum ln p(x) - 1/2 sum alpha w'w + d/2 sum ln alpha at alpha = d / w'w."""
    d = X.shape[1]
    C = W @ W.T + sigma2 * np.eye(d)
    u = np.sum(W**2, axis=0)
    value = stats.multivariate_normal(X.mean(axis=0), C).logpdf(X).sum()
    return value + 0.5 * d * np.sum(np.log(d / u) - 1)


def latent_posterior(X, W, S, mu, tau):
    """Return means and covariances of q(z_n), the best given the other factors, row by row."""
    q, means, covariances = W.shape[1], [], []
    for x in X:
        o = np.flatnonzero(~np.isnan(x))
        P = np.eye(q) + tau * sum((np.outer(W[j], W[j]) + S[j] for j in o), np.zeros((q, q)))
        covariances.append(np.linalg.inv(P))
        means.append(np.linalg.solve(P, tau * W[o].T @ (x[o] - mu[o])))
    return np.array(means), np.array(covariances)


def gamma_divergence(a, b, a0, b0):
    """Return KL(Gamma(a, b) || Gamma(a0, b0)): E ln q - E ln p, from entropies."""
    cross = a0 * np.log(b0) - gammaln(a0) + (a0 - 1) * (digamma(a) - np.log(b)) - b0 * a / b
    return -stats.gamma(a, scale=1 / b).entropy() - cross


def normal_divergence(m, C, prior_mean, prior_precision):
    """Return KL(N(m, C) || N(prior)), the expectation of the prior taken at its own precision."""
    off = m - prior_mean
    k = len(m)
    inner = np.trace(prior_precision @ C) + off @ prior_precision @ off
    return 0.5 * (inner - k - np.linalg.slogdet(prior_precision @ C)[1])


def bound(X, W, S, mu, v, a, rate, c, tau_rate, priors, z=None, C=None):
    """Return the lower bound on ln p(X), entry by entry and factor by factor.

    `priors` is (a0, b0, c0, d0, beta, m); z, C are q(Z), by default the best.
    """
    a0, b0, c0, d0, beta, m = priors
    tau = c / tau_rate
    if z is None:
        z, C = latent_posterior(X, W, S, mu, tau)
    q, total = W.shape[1], 0.0
    for i, x in enumerate(X):
        zz = C[i] + np.outer(z[i], z[i])
        for j in np.flatnonzero(~np.isnan(x)):
            r = x[j] - mu[j]
            square = r**2 + v[j] - 2 * r * W[j] @ z[i]
            square += np.trace((np.outer(W[j], W[j]) + S[j]) @ zz)
            logs = digamma(c) - np.log(tau_rate) - np.log(2 * np.pi)
            total += 0.5 * (logs - tau * square)
        total -= normal_divergence(z[i], C[i], np.zeros(q), np.eye(q))
    alpha, log_alpha = a / rate, digamma(a) - np.log(rate)
    for j in range(len(W)):
        total -= normal_divergence(W[j], S[j], np.zeros(q), np.diag(alpha))
        total += 0.5 * np.sum(log_alpha - np.log(alpha))
        total -= normal_divergence(mu[j : j + 1], v[j : j + 1, None], m[j], np.array([[beta]]))
    total -= sum(gamma_divergence(a, b, a0, b0) for b in rate)
    return total - gamma_divergence(c, tau_rate, c0, d0)


def sampled_bound(X, W, S, mu, v, a, rate, c, tau_rate, priors, draws, seed=0):
    """Return mean and standard error of ln p(X, Z, W, alpha, tau, mu) - ln q over draws from q.

    Only SciPy's densities: no expectation is worked out by hand.
    """
    a0, b0, c0, d0, beta, m = priors
    z, C = latent_posterior(X, W, S, mu, c / tau_rate)
    rng, values = np.random.default_rng(seed), []
    latents = [stats.multivariate_normal(z[i], C[i], seed=rng) for i in range(len(X))]
    rows = [stats.multivariate_normal(W[j], S[j], seed=rng) for j in range(len(W))]
    middle, alphas = stats.norm(mu, np.sqrt(v)), stats.gamma(a, scale=1 / rate)
    taus, seen = stats.gamma(c, scale=1 / tau_rate), ~np.isnan(X)
    for _ in range(draws):
        Z = np.array([np.atleast_1d(f.rvs()) for f in latents])
        V = np.array([np.atleast_1d(f.rvs()) for f in rows])
        mean, alpha = middle.rvs(random_state=rng), alphas.rvs(random_state=rng)
        tau = taus.rvs(random_state=rng)
        density = stats.norm(Z @ V.T + mean, 1 / np.sqrt(tau)).logpdf(X)[seen].sum()
        density += stats.norm.logpdf(Z).sum() + stats.norm(0, 1 / np.sqrt(alpha)).logpdf(V).sum()
        density += stats.norm(m, 1 / np.sqrt(beta)).logpdf(mean).sum()
        density += stats.gamma(a0, scale=1 / b0).logpdf(alpha).sum()
        density += stats.gamma(c0, scale=1 / d0).logpdf(tau)
        density -= sum(f.logpdf(x) for f, x in zip(latents, Z, strict=True))
        density -= sum(f.logpdf(x) for f, x in zip(rows, V, strict=True))
        density -= middle.logpdf(mean).sum() + alphas.logpdf(alpha).sum() + taus.logpdf(tau)
        values.append(density)
    return np.mean(values), np.std(values) / np.sqrt(draws)
