"""Draws of the parameters of factor analysis, where first-order errors say too little.

With few rows the noise of a feature is often fitted as none (a Heywood case), and axes of nearly
equal signals turn by any angle: derivatives at the fit know neither. So parameters are drawn from
their posterior given n rows with the covariance of the fit, by Gibbs sampling. The rows enter by
that covariance alone: of latents z = βx + ε, ε ~ N(0, C), a step needs Σzzᵀ and Σxzᵀ, which have
closed laws (theory 20.5). O(dq²) per step and draw, whatever n.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualpca.arrays import Array, algebra, backend, outer, unpack
from dualpca.gaussian.estimated import worth_counting
from dualpca.gaussian.observed import Factors, StackedLatents, each, joined, stacked_latents
from dualpca.gaussian.reference import Reference
from dualpca.gaussian.wishart import wishart_roots

Floats = NDArray[np.float64]

DRAWS, STEPS = 48, 40
"""Chains, each of which gives one draw, and the steps that they take from the fit."""

PRIOR_ROWS = 3.0
"""Rows that the prior of a feature's noise is worth: enough to keep it from none."""

STARTING_SHARE = 0.1
"""Of the prior's noise, with which a chain may begin."""

LEAST_SIGNAL = 1e-3
"""Of the prior of loadings, in units of the noise: factors without any keep a scale."""

TOGETHER = 1 << 20
"""Numbers of the rows of all draws that are worked on at once."""


@dataclass(frozen=True)
class ParameterDraws:
    """Densities that the training rows leave possible, beside the one that was fitted.

    Parameters
    ----------
    factors : Factors
        The fit, whose posterior means are those of the answers.
    W : array of shape (K, d, q)
        Loadings of the draws, along axes of their own in the order and with the signs of the fit.
    mu, psi : arrays of shape (K, d)
    rows : float
        Number of independent rows that were fitted.
    """

    factors: Factors
    W: Array
    mu: Array
    psi: Array
    rows: float

    @classmethod
    def of(cls, factors: Factors, reference: Reference) -> ParameterDraws:
        """Draw the parameters of factors that were fitted to the rows of a reference."""
        rng = np.random.default_rng(0)
        W, mu, psi = (backend.to_numpy(part) for part in (factors.W, factors.mu, factors.psi))
        # pairs of observed entries are what covariances are known from
        rows = reference.independent * reference.shares[3]
        scarce = np.ones(len(mu))
        if reference.scarce is not None:
            scarce = backend.to_numpy(reference.scarce)
        U = principal_axes(W, psi)
        U = U * algebra.signs(W @ U)  # whatever rotation was asked for
        V, noise = posterior_draws(W @ U, psi, rows, rng, scarce=scarce)
        V = along_own_axes(V, noise, W @ U)
        z, e = rng.standard_normal((len(V), V.shape[2], 1)), rng.standard_normal(noise.shape)
        means = mu + ((V @ z)[:, :, 0] + np.sqrt(noise * scarce) * e) / np.sqrt(rows)
        like = factors.mu
        loadings, means, noise = (backend.asarray(part, like) for part in (V @ U.T, means, noise))
        return cls(factors, loadings, means, noise, reference.counted(0))

    @property
    def matter(self) -> bool:
        """True if the errors add a share of an average entry's variance that shows."""
        return worth_counting(self.factors, self.rows)

    def latent_covariance(self, X: Array) -> Array:
        """Return the covariance of the latents of each row around those of the fit, (n, q, q)."""
        if not bool(backend.namespace(X).any(backend.namespace(X).isnan(X))):
            return self._of_complete(X)
        q, parts = int(self.W.shape[2]), []
        for _, at, found in self._each(X):
            parts.append([unpack(_average(found.covariance).T, q) + _spread(found.mean, at)])
        return joined(parts)[0]

    def _of_complete(self, X: Array) -> Array:
        """Return the same where rows are complete: all share a regression of each draw."""
        xp, (K, d, q), parts = backend.namespace(X), map(int, self.W.shape), []
        B = self.W / self.psi[:, :, None]
        C = xp.linalg.inv(xp.matrix_transpose(self.W) @ B + backend.identity(q, B))
        B = B @ C
        flat = xp.reshape(xp.permute_dims(B, (1, 0, 2)), (d, K * q))
        start = xp.reshape(xp.sum((self.mu - self.factors.mu)[:, :, None] * B, axis=1), (K * q,))
        for block, at in each(self.factors, X):
            off = xp.reshape(block.R @ flat - start, (-1, K, q)) - at.mean[:, None, :]
            parts.append([xp.matrix_transpose(off) @ off / K + _average(C)])
        return joined(parts)[0]

    def of_unseen(self, X: Array, features: Any) -> Array:
        """Return the covariance of k features given observed entries, noise included, (n, k, k).

        0 for those that were observed.
        """
        fit, parts = self.factors, []
        V, mu, psi = (backend.take(A, features, axis=1) for A in (self.W, self.mu, self.psi))
        W, origin = (backend.take(A, features) for A in (fit.W, fit.mu))
        same, q = backend.asarray(np.equal.outer(features, features), X), int(fit.W.shape[1])
        for mask, at, found in self._each(X):
            means = V @ found.mean + mu[:, :, None]  # (K, k, n)
            total = same * _average(psi) + _spread(means, at @ W.T + origin)
            for k in range(int(V.shape[0])):
                own, C = V[k, :, :], unpack(found.covariance[k, :, :].T, q)
                total = total + own @ C @ own.T / int(V.shape[0])
            parts.append([total * outer(1 - backend.take(mask, features, axis=1))])
        return joined(parts)[0]

    def _each(self, X: Array) -> Iterator[tuple[Array, Array, StackedLatents]]:
        """Yield for some rows what they observe, latents at the fit, and those of every draw."""
        xp, (K, d, _) = backend.namespace(X), map(int, self.W.shape)
        moved = (self.mu - self.factors.mu)[:, :, None]
        for block, at in each(self.factors, X):
            for rows in backend.slices(int(block.R.shape[0]), max(1, TOGETHER // (K * d))):
                mask = block.mask[rows, :]
                seen = mask.T[None, :, :] + xp.zeros_like(moved)
                R = (block.R[rows, :].T[None, :, :] - moved) * seen
                found = stacked_latents(self.W, self.psi, backend.contiguous(R), seen)
                yield mask, at.mean[rows, :], found


def _spread(drawn: Array, fitted: Array) -> Array:
    """Return second moments (n, k, k) of what draws say (K, k, n) around what the fit says."""
    xp = backend.namespace(drawn)
    off = xp.permute_dims(drawn, (2, 0, 1)) - fitted[:, None, :]
    return xp.matrix_transpose(off) @ off / int(drawn.shape[0])


def _average(A: Array) -> Array:
    """Return the mean over draws."""
    return backend.namespace(A).sum(A, axis=0) / int(A.shape[0])


def posterior_draws(
    W: Floats,
    psi: Floats,
    n: float,
    rng: np.random.Generator,
    *,
    scarce: Floats | None = None,
    draws: int = DRAWS,
    steps: int = STEPS,
) -> tuple[Floats, Floats]:
    """Draw loadings (K, d, q) and noises (K, d) from their posterior given n rows, by Gibbs steps.

    The rows are ones whose covariance is that of the fit, S = WWᵀ + Ψ = LLᵀ. A step draws Σxzᵀ and
    Σzzᵀ given the parameters, then the regressions of the features on z and their noises. A noise
    has an inverse gamma prior worth `PRIOR_ROWS` rows, around what no other feature explains
    (Martin & McDonald 1975; Jöreskog 1967). Loadings in units of the noise are N(0, Λ) with Λ drawn
    too, ν = d − q − 1: flat loadings would make every communality too large.

    Parameters
    ----------
    W, psi : arrays of shape (d, q) and (d,)
    n : float
    rng : Generator
    scarce : array of shape (d,), optional
        n by the number of rows that observe each feature.
    draws, steps : int

    Examples
    --------
    >>> W, psi = np.array([[1.0], [2.0], [1.0]]), np.array([1.0, 1e-4, 1.0])
    >>> _, drawn = posterior_draws(W, psi, 30, np.random.default_rng(0))
    >>> bool(np.all(drawn.mean(axis=0) > 0.1))  # a noise of none is not what 30 rows say
    True
    """
    (d, q), c = W.shape, np.ones(len(W)) if scarce is None else scarce
    N = max(n - 1.0, q + 1.0)
    prior, nu = least_noise(W, psi), max(d - q - 1.0, float(q))
    root, long = np.sqrt(N * psi)[:, None], np.sqrt(N) * W  # L is the two of them side by side
    squares, rest, eye = N * (np.sum(W * W, axis=1) + psi), N - d - q, np.eye(q)
    freedom = N / c + PRIOR_ROWS
    V = np.repeat(W[None], draws, axis=0)
    noise = np.repeat(np.maximum(psi, STARTING_SHARE * prior)[None], draws, axis=0)
    for _ in range(steps):
        B = V / noise[:, :, None]
        G = V.swapaxes(1, 2) @ B
        C = np.linalg.inv(G + eye)
        R, beta = np.linalg.cholesky((C + C.swapaxes(1, 2)) / 2), B @ C
        own = rng.standard_normal((draws, d + q, q)) @ R.swapaxes(1, 2)
        up, down = beta * root + own[:, :d], long.T @ beta + own[:, d:]  # Lᵀβᵀ + ERᵀ
        xz = root * up + long @ down
        zz = up.swapaxes(1, 2) @ up + down.swapaxes(1, 2) @ down
        if rest > 0:
            A = R @ wishart_roots(rng, draws, q, max(rest, q))
            zz = zz + A @ A.swapaxes(1, 2)
        T = np.linalg.inv(G + LEAST_SIGNAL * eye)
        A = np.linalg.cholesky(T) @ wishart_roots(rng, draws, q, nu)
        inverse = np.linalg.inv(zz + A @ A.swapaxes(1, 2))
        half = np.linalg.cholesky((inverse + inverse.swapaxes(1, 2)) / 2)
        V = xz @ inverse
        left = np.maximum(squares - np.sum(V * xz, axis=2), 0.0) / c
        noise = (left + PRIOR_ROWS * prior) / rng.chisquare(freedom, size=(draws, d))
        error = rng.standard_normal((draws, d, q)) @ half.swapaxes(1, 2)
        V = V + np.sqrt(noise * c)[:, :, None] * error
    return V, noise


def least_noise(W: Floats, psi: Floats) -> Floats:
    """Return the noise of every feature if factors explained what other features do, (d,).

    (1 − q/2d)/(C⁻¹)_jj, as Newton's method begins with (Jöreskog 1967).
    """
    d, q = W.shape
    B = W / psi[:, None]
    precision = 1 / psi - np.sum((B @ np.linalg.inv(np.eye(q) + W.T @ B)) * B, axis=1)
    found: Floats = (1 - q / (2 * d)) / precision
    return found


def along_own_axes(V: Floats, noise: Floats, W: Floats) -> Floats:
    """Rotate every draw to axes along which VᵀΨ⁻¹V is diagonal, largest first, signed as W."""
    V = V @ principal_axes(V, noise)
    agree = np.sum(V * (W / noise[:, :, None]), axis=1)
    found: Floats = V * np.where(agree < 0, -1.0, 1.0)[:, None, :]
    return found


def principal_axes(W: Floats, psi: Floats) -> Floats:
    """Return the eigenvectors of WᵀΨ⁻¹W, largest first, (…, q, q)."""
    found: Floats = np.linalg.eigh(W.swapaxes(-1, -2) @ (W / psi[..., None]))[1][..., ::-1]
    return found
