"""The rows behind a variational posterior: their latents, and what other factors need of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.gaussian import LOG_2PI
from dualpca.missing import Factors, Incomplete, Sums
from dualpca.missing_parts import IncompleteParts
from dualpca.parts import Summable
from dualpca.representations import Primal, Scatter


@dataclass(frozen=True)
class Beliefs:
    """The posterior, but for q(Z), which follows from it."""

    W: Array  # (d, q), mean of the loadings
    S: Array  # (d, q, q), covariance of each row of W; (1, q, q) where all rows share it
    mu: Array  # (d,)
    v: Array  # (d,), variance of the mean
    rate: Array  # (q,), of q(α); its shape is a₀ + d/2
    tau_rate: float  # of q(τ); its shape is c₀ + (number of entries)/2

    @property
    def shared(self) -> int:
        """Number of rows of W behind each covariance."""
        return int(self.W.shape[0]) // int(self.S.shape[0])

    def second(self) -> Array:
        """Return Σ_j E[w_j w_jᵀ], (q, q)."""
        return self.W.T @ self.W + self.shared * _array.namespace(self.S).sum(self.S, axis=0)


class Complete:
    """Rows without NaN: one product with the scatter a step, O(ndq); nothing d×d."""

    def __init__(self, operator: Primal | Scatter) -> None:
        self.operator, self.like = operator, operator.like
        n, d = operator.n, operator.dim
        self.origin = operator.frame.mean
        self.seen = n * _array.namespace(self.origin).ones_like(self.origin)
        self.unit, self.covariances = operator.trace / n / d, 1

    def sums(self, at: Beliefs, tau: float) -> Sums:
        """Update q(Z); return what the other updates need, and the bound's share of the rows."""
        xp, n, d = _array.namespace(self.like), self.operator.n, self.operator.dim
        eye = _array.asarray(np.eye(at.W.shape[1]), self.like)
        P = eye + tau * at.second()
        C = xp.linalg.inv(P)
        root = math.sqrt(tau)  # loadings in units of the noise: WᵀAW is of fourth order
        A = tau * (self.operator @ (root * at.W))
        inner = root * (at.W.T @ A) @ C
        zz = n * C + C @ inner
        zz = (zz + zz.T) / 2
        trace = self.operator.trace
        value = n * d * (LOG_2PI - math.log(tau)) + n * float(xp.linalg.slogdet(P).logabsdet)
        value = -0.5 * (value + tau * trace - float(xp.linalg.trace(inner)))
        zero, total = 0 * self.origin, _array.asarray(np.array([trace]), self.like)
        no_z, count = 0 * zz[0, :], _array.asarray(n, self.like)
        bound = _array.asarray(value, self.like)
        parts = (zz[None, :, :], 0 * at.W, self.seen, A @ C / root, zero, total, zz, no_z, count)
        return Sums(*parts, bound)

    def loglikelihood(self, factors: Factors) -> float:
        """Return Σ ln p(x) of a density with isotropic noise, by Woodbury in q. O(ndq).

        Loadings count in units of σ, so that nothing overflows that need not.
        """
        xp, n, d = _array.namespace(self.like), self.operator.n, self.operator.dim
        sigma2 = float(factors.psi[0])
        B = factors.W / math.sqrt(sigma2)
        G = B.T @ B + _array.asarray(np.eye(B.shape[1]), B)
        inner = B.T @ ((self.operator @ B) / sigma2)
        fitted = self.operator.trace / sigma2 - float(xp.linalg.trace(xp.linalg.solve(G, inner)))
        logdet = d * math.log(sigma2) + float(xp.linalg.slogdet(G).logabsdet)
        return -0.5 * (n * d * LOG_2PI + n * logdet + fitted)


class Holes:
    """Rows with NaN: every feature and every row has a covariance of its own."""

    def __init__(
        self,
        X: Array | Summable,
        weights: Array | None,
        q: int,
        origin: Array,
        seen: Array,
        unit: float,
    ) -> None:
        in_parts = isinstance(X, Summable)
        self.data: Incomplete | IncompleteParts = (
            IncompleteParts(X, q) if in_parts else Incomplete(X, weights, q)
        )
        self.like = origin
        self.origin, self.seen, self.unit = origin, seen, unit
        self.covariances = int(origin.shape[0])

    def sums(self, at: Beliefs, tau: float) -> Sums:
        """Update q(Z); return what the other updates need, and the bound's share of the rows."""
        psi = _array.namespace(at.mu).full_like(at.mu, 1 / tau)
        return self.data.sums(Factors(at.W, at.mu, psi), at.S)
