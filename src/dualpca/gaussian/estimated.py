"""What parameters that are estimates add to posteriors: n rows leave errors in W, μ and the axes.

Given the latents every feature is a regression on z̃ = (z, 1), so that (w_j, μ_j) has the covariance
ψ_j c_j P, P = (Σ z̃z̃ᵀ)⁻¹ over the training rows and c_j how much fewer of them observe the feature.
To first order a row's latents then are off by C s, with the score

    s = Σ_j [δw_j e_j − w_j z̃ᵀδw̃_j]/ψ_j,    Q = Cov(s),

and the axes themselves by as much as they turn and stretch (theory 20.1 and 20.2). O(dq²) per
row; of complete rows of a model with one noise O(dq).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dualpca.arrays import Array, backend, cached_property, outer, pack, quadratic, unpack
from dualpca.gaussian.observed import Block, Factors, Latents, each, joined
from dualpca.gaussian.reference import Reference, shrunk

WORTH_COUNTING = 0.005
"""Share of a signal's variance from which the errors of parameters are worth their cost."""

LEAST_FREEDOM = 4.0
"""Smallest number of degrees of freedom whose Student's t has a variance that says something."""


class Scored(NamedTuple):
    """Q of the rows of a block, and what it is made of."""

    Q: Array  # (b, q, q)
    level: Array  # (b,), z̃ᵀPz̃
    Pz: Array  # (b, q)
    e: Array  # (b, d), x − μ − Wz, 0 where nothing was observed


@dataclass(frozen=True)
class ParameterErrors:
    """Errors of the parameters of x = Wz + μ + ε that were fitted to n rows.

    Parameters
    ----------
    factors : Factors
        With noise that is unbiased: at its maximum the likelihood has it too small.
    P : array of shape (q + 1, q + 1)
        (Σ z̃z̃ᵀ)⁻¹ of the training rows.
    scarce : array of shape (d,), optional
        c_j, all rows by those that observe each feature; None where all do.
    rows : float
        Number of independent rows, for the axes.
    dof : float
        Of the noise of a feature: intervals are those of Student's t.
    variances : array of shape (q,), optional
        Along the axes, of a model with one noise for all features that was fitted to complete rows.
    """

    factors: Factors
    P: Array
    scarce: Array | None
    rows: float
    dof: float
    variances: Array | None = None

    @classmethod
    def of(
        cls,
        factors: Factors,
        reference: Reference,
        *,
        variances: Array | None = None,
    ) -> ParameterErrors:
        """Return the errors of factors that were fitted to the rows of a reference.

        `variances` are those along the axes, if there is one noise for all features.
        """
        d, q = map(int, factors.W.shape)
        n, along, off = reference.n, *reference.alike
        free = 1 + q - q * (q - 1) / (2 * d)
        dof = max(n * shrunk(off * off) - free, LEAST_FREEDOM)
        psi = factors.psi * ((dof + free) / dof)
        factors = replace(factors, psi=psi)
        told = mean_products(factors) if reference.told is None else reference.told
        share = np.array([shrunk(along * off)] * q + [shrunk(off)])
        P = backend.namespace(psi).linalg.inv(_lifted(told, n**-0.5)) / n
        P = P / backend.asarray(np.sqrt(np.outer(share, share)), psi)
        if reference.told is not None:
            variances = None
        return cls(factors, P, reference.scarce, reference.counted(0), dof, variances)

    def at_noise(self, psi: Array) -> ParameterErrors:
        """Return the same where the noise was given."""
        return replace(self, factors=replace(self.factors, psi=psi))

    @cached_property
    def complete(self) -> CompleteErrors | None:
        """What complete rows of a model with one noise need; None for other models."""
        return None if self.variances is None else CompleteErrors(self, self.variances)

    @property
    def matter(self) -> bool:
        """True if the errors add a share of an average entry's variance that shows."""
        return worth_counting(self.factors, self.rows)

    @property
    def inflation(self) -> float:
        """ν/(ν − 2), the variance of Student's t."""
        return self.dof / (self.dof - 2)

    @cached_property
    def _gauge(self) -> tuple[Array, Array, Array]:
        """What axes owe to chance: their directions, and `turns` along these."""
        W = self.factors.W
        g, U = backend.namespace(W).linalg.eigh(W.T @ (W / self.factors.psi[:, None]))
        return U, *turns(g, self.rows)

    def turned(self, z: Array) -> Array:
        """Return what latents (b, q) owe to errors of the axes: turns, stretches, the origin."""
        U, own, cross = self._gauge
        xp, y = backend.namespace(z), z @ U
        diagonal = (y * y) @ own.T + (0.5 * y * y + 1) / self.rows
        eye = backend.identity(int(y.shape[1]), y)
        return U @ (diagonal[:, :, None] * eye - outer(y) * cross) @ xp.matrix_transpose(U)

    def scored(self, block: Block, found: Latents) -> Scored:
        """Return Q of every row of a block, and what it is made of."""
        xp, (W, psi) = backend.namespace(block.R), (self.factors.W, self.factors.psi)
        q = int(W.shape[1])
        z = found.mean
        one = xp.concat([z, xp.ones_like(z[:, :1])], axis=1)
        Pz = one @ self.P
        level = xp.sum(one * Pz, axis=1)  # v_j = ψ_j c_j times this
        weights = block.mask / psi if self.scarce is None else block.mask * (self.scarce / psi)
        e = (block.R - z @ W.T) * block.mask
        B, h = unpack(weights @ pack(outer(W)), q), (weights * e) @ W
        size = xp.sum(weights * e * e, axis=1)
        mixed = h[:, :, None] * Pz[:, None, :q]
        Q = level[:, None, None] * B + size[:, None, None] * self.P[:q, :q]
        return Scored(Q - mixed - xp.matrix_transpose(mixed), level, Pz[:, :q], e)

    def _each(self, X: Array) -> Iterator[tuple[Block, Latents, Scored]]:
        for block, found in each(self.factors, X):
            yield block, found, self.scored(block, found)

    def latent_covariance(self, X: Array) -> Array:
        """Return the covariance of the latents of each row, (n, q, q)."""
        parts = []
        for _, found, scored in self._each(X):
            C = found.covariance
            parts.append([C + C @ scored.Q @ C + self.turned(found.mean)])
        return joined(parts)[0]

    def signal_variance(self, X: Array) -> Array:
        """Return the variance of Wz + μ, without noise, of each row, (n, d) (theory 20.3)."""
        parts = []
        for block, found, scored in self._each(X):
            parts.append([self._of_signal(block, found, scored)])
        return joined(parts)[0] * self.inflation

    def _of_signal(self, block: Block, found: Latents, scored: Scored) -> Array:
        W, psi, C = self.factors.W, self.factors.psi, found.covariance
        xp = backend.namespace(W)
        c = xp.ones_like(psi) if self.scarce is None else self.scarce
        spread = quadratic(C, W)
        a = (C @ scored.Pz[:, :, None])[:, :, 0] @ W.T  # a_iᵀ(Pz), a_i = C w_i
        level = scored.level[:, None]
        seen = 2 * block.mask * c * (scored.e * a - level * spread)
        variance = spread + quadratic(C @ scored.Q @ C, W) + level * (c * psi) + seen
        return xp.maximum(variance, spread)

    def predictive(self) -> Array:
        """Return the covariance of a new measurement of a typical complete row, (d, d).

        With C of the latents, E zzᵀ = I − C and E ezᵀ = WC over the rows of the model.
        """
        (W, psi), q = (self.factors.W, self.factors.psi), int(self.factors.W.shape[1])
        xp, eye = backend.namespace(W), backend.identity(q, W)
        c = xp.ones_like(psi) if self.scarce is None else self.scarce
        C, P = xp.linalg.inv(eye + W.T @ (W / psi[:, None])), self.P[:q, :q]
        B = W.T @ (W * (c / psi)[:, None])
        level = self.P[q, q] + xp.sum(P * (eye - C))
        size = xp.sum(c) - xp.sum(B * C)
        mixed = B @ C @ P
        Q = level * B + size * P - mixed - mixed.T
        seen = W @ (C @ P @ C - level * C) @ (W * c[:, None]).T
        own = backend.identity(int(W.shape[0]), W) * (psi * (1 + level * c))
        return (W @ (C + C @ Q @ C) @ W.T + seen + seen.T + own) * self.inflation

    def of_unseen(self, X: Array, features: Any) -> Array:
        """Return the covariance of k features given observed entries, noise included, (n, k, k).

        0 for those that were observed.
        """
        xp, parts = backend.namespace(X), []
        W, psi = (backend.take(A, features) for A in (self.factors.W, self.factors.psi))
        c = xp.ones_like(psi) if self.scarce is None else backend.take(self.scarce, features)
        same = backend.asarray(np.equal.outer(features, features), X)
        for block, found, scored in self._each(X):
            C, unknown = found.covariance, 1 - backend.take(block.mask, features, axis=1)
            own = psi + scored.level[:, None] * (c * psi)
            parts.append(
                [(W @ (C + C @ scored.Q @ C) @ W.T + own[:, :, None] * same) * outer(unknown)]
            )
        return joined(parts)[0] * self.inflation

    def unseen_variance(self, X: Array) -> Array:
        """Return the variances of `of_unseen` for all features, (n, d)."""
        (W, psi), parts = (self.factors.W, self.factors.psi), []
        c = backend.namespace(psi).ones_like(psi) if self.scarce is None else self.scarce
        for block, found, scored in self._each(X):
            C = found.covariance
            own = psi + scored.level[:, None] * (c * psi)
            parts.append([(quadratic(C + C @ scored.Q @ C, W) + own) * (1 - block.mask)])
        return joined(parts)[0] * self.inflation


def worth_counting(factors: Factors, rows: float) -> bool:
    """Return True if errors of parameters that so many rows left are worth their cost."""
    d, q = map(int, factors.W.shape)
    return (1 + q) * d > WORTH_COUNTING * rows * q if q else False


def turns(g: Array, rows: float) -> tuple[Array, Array]:
    """Return how far axes turn by chance, (q, q): variances, and covariances (theory 20.4).

    With signals g in units of the noise axes p and r turn by an angle, so that the latent along p
    gets a share of that along r of variance (g_r² + g_p + g_r)/(n (g_p − g_r)²), and it along r
    one of p with the opposite sign. A turn takes at most half of a square.
    """
    both, eye = g[:, None] + g[None, :], backend.identity(int(g.shape[0]), g)
    apart = (g[:, None] - g[None, :]) ** 2 * rows
    own, cross = (A * (1 - eye) for A in (g[None, :] ** 2 + both, g[:, None] * g[None, :] + both))
    most = 2 * backend.namespace(g).maximum(own, own.T)
    own, most = own / (apart + 2 * own + eye), apart + most + eye
    return own, cross / most


@dataclass(frozen=True)
class CompleteErrors:
    """The same for complete rows of a model with one noise, fitted to complete rows: O(dq) a row.

    All variances are linear in f = (z², ‖x − μ‖²), but for products of two latents.
    """

    errors: ParameterErrors
    variances: Array  # ℓ of the fit, whose posterior means z are

    @cached_property
    def _parts(self) -> tuple[Array, ...]:
        """1, C, P, g and what makes of z those with unbiased noise, along the axes, (q,)."""
        factors, P = self.errors.factors, self.errors.P
        xp, noise = backend.namespace(P), factors.psi[0]
        size = xp.sum(factors.W * factors.W, axis=0)
        ratio = self.variances / (size + noise)
        return size / noise, noise / (size + noise), xp.linalg.diagonal(P)[:-1], ratio, noise

    @cached_property
    def _linear(self) -> tuple[Array, Array]:
        """Level and size of a row, z̃ᵀPz̃ and Σe²/ψ, as (q + 1,) times f; the level is more by P₀."""
        xp = backend.namespace(self.errors.P)
        g, _, P, ratio, noise = self._parts
        real = g > 0
        safe = xp.where(real, g, xp.ones_like(g))
        along = ratio * ratio / safe - self.variances**2 / (safe * noise * noise)
        none = xp.zeros_like(g[:1]) if g.shape[0] else xp.zeros_like(noise)[None]
        level = xp.concat([P * ratio * ratio, none])
        size = xp.concat([xp.where(real, along, xp.zeros_like(g)), none + 1 / noise])
        return level, size

    def features(self, z: Array, R: Array) -> Array:
        """Return f of rows R around μ, (b, q + 1)."""
        xp = backend.namespace(R)
        return xp.concat([z * z, xp.sum(R * R, axis=1)[:, None]], axis=1)

    @cached_property
    def _latents(self) -> tuple[Array, Array, Array]:
        """What makes covariances of latents: of f (q + 1, q²), of nothing (q²), of zzᵀ (q, q)."""
        g, C, P, ratio, _ = self._parts
        q, rows = int(g.shape[0]), self.errors.rows
        level, size = self._linear
        own, cross = turns(g, rows)
        eye = backend.identity(q, g)
        along = (own + 0.5 * eye / rows - 2 * eye * C * C * P) * ratio**2  # (q, q), of z²
        xp = backend.namespace(g)
        along = xp.concat([along.T, xp.zeros_like(along[:1, :])], axis=0)  # (q + 1, q)
        along = along + level[:, None] * (C - C * C) + size[:, None] * (C * C * P)
        never = C + self.errors.P[q, q] * (C - C * C) + 1 / rows
        pair = C[:, None] * C[None, :] * (P[:, None] + P[None, :]) + cross
        pair = pair * ratio[:, None] * ratio[None, :] * (1 - eye)
        spread = along[:, :, None] * eye
        return xp.reshape(spread, (q + 1, q * q)), xp.reshape(never * eye, (q * q,)), pair

    def latent_covariance(self, z: Array, R: Array) -> Array:
        """Return the covariance of the latents of rows R around μ with posterior means z."""
        of_f, constant, pair = self._latents
        found = self.features(z, R) @ of_f + constant
        return backend.namespace(R).reshape(found, (z.shape[0], *pair.shape)) - pair * outer(z)

    @cached_property
    def _signal(self) -> tuple[Array, Array, Array, Array, Array]:
        """What makes variances of the signal: of f (q + 1, d), of nothing (d,), and two of z."""
        g, C, P, ratio, noise = self._parts
        W, (level, size), factor = self.errors.factors.W, self._linear, self.errors.inflation
        squares = W * W
        spread = squares @ C
        rise, off = noise + squares @ (C - C * C) - 2 * spread, squares @ (C * C * P)
        q = int(g.shape[0])
        of_f = level[:, None] * rise + size[:, None] * off
        constant = spread + self.errors.P[q, q] * rise
        return (
            factor * of_f,
            factor * constant,
            2 * factor * (W * (C * P * ratio)).T,
            (W * ((1 + C) * ratio)).T,
            factor * spread,
        )

    def signal_variance(self, z: Array, R: Array) -> Array:
        """Return the variance of the signal of rows R around μ with posterior means z, (b, d)."""
        of_f, constant, first, second, least = self._signal
        found = self.features(z, R) @ of_f + constant + (z @ first) * (R - z @ second)
        return backend.namespace(R).maximum(found, least)


def mean_products(factors: Factors) -> Array:
    """Return the mean of z̃z̃ᵀ over complete rows, z̃ = (z, 1) with posterior means: I − C."""
    W, q = factors.W, int(factors.W.shape[1])
    C = np.zeros((q + 1, q + 1))
    G = backend.to_numpy(W.T @ (W / factors.psi[:, None]))
    C[:q, :q] = np.linalg.inv(np.eye(q) + G)
    return backend.asarray(np.eye(q + 1) - C, W)


def _lifted(A: Array, least: float) -> Array:
    """Return A with eigenvalues that are not below a bound: weaker axes are not known at all."""
    xp = backend.namespace(A)
    values, vectors = xp.linalg.eigh(A)
    return (vectors * xp.maximum(values, 0 * values + least)) @ vectors.T
