"""Maximum likelihood from incomplete rows: accelerated, parameter-expanded EM (MATH 4)."""

from __future__ import annotations

import math

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.em import NO_NOISE, Record, maximize
from dualpca.errors import DegenerateError
from dualpca.missing import Factors, Incomplete, column_starts, m_step, observed_part, start
from dualpca.moments import refuse_nonfinite


class Fit:
    """The EM map on vectors θ = (W, μ − μ₀, ln ψ), in units of the average standard deviation.

    Parameters
    ----------
    X : array of shape (n, d)
    weights : array of shape (n,) or None
    q : int
    noise : float or None
        Fixed noise variance σ².
    diagonal : bool
        One ψ_j a feature (factor analysis) instead of a common σ² (PPCA).
    """

    def __init__(
        self, X: Array, weights: Array | None, q: int, noise: float | None, diagonal: bool
    ) -> None:
        self.data, self.q, self.noise, self.diagonal = Incomplete(X, weights, q), q, noise, diagonal
        self.seen, self.origin, self.variance = column_starts(X, weights)
        self.d = int(X.shape[1])
        refuse_empty_columns(self.seen)
        if not bool(_array.namespace(X).all(_array.namespace(X).isfinite(self.variance))):
            refuse_nonfinite(observed_part(X))
        self.unit = float(_array.namespace(X).mean(self.variance))
        if not self.unit > 0:
            raise DegenerateError(
                "every feature is constant where it is observed: there is nothing to model."
            )

    def pack(self, factors: Factors) -> Array:
        """Return θ."""
        xp, root = _array.namespace(factors.W), math.sqrt(self.unit)
        psi = factors.psi if self.diagonal else factors.psi[:1]
        psi = xp.where(psi > NO_NOISE * self.unit, psi, 0 * psi + NO_NOISE * self.unit)
        parts = (factors.W, factors.mu - self.origin)
        flat = [xp.reshape(part, (-1,)) / root for part in parts]
        return xp.concat([*flat, xp.log(psi / self.unit)])

    def unpack(self, theta: Array) -> Factors:
        """Return the density of θ."""
        xp, root, size = _array.namespace(theta), math.sqrt(self.unit), self.d * self.q
        W = xp.reshape(theta[:size], (self.d, self.q)) * root
        mu = self.origin + theta[size : size + self.d] * root
        logs = theta[size + self.d :]
        low, high = math.log(NO_NOISE), 50.0
        logs = xp.where(logs < low, 0 * logs + low, xp.where(logs > high, 0 * logs + high, logs))
        psi = xp.exp(logs) * self.unit
        return Factors(W, mu, psi if self.diagonal else xp.broadcast_to(psi, (self.d,)))

    def step(self, theta: Array) -> tuple[Array, float]:
        """Take one EM step; return it with the log-likelihood of θ."""
        factors = self.unpack(theta)
        sums = self.data.sums(factors)
        W, mu, left = m_step(sums, factors)
        return self.pack(Factors(W, mu, self._noise(left, sums.n))), float(sums.loglikelihood)

    def _noise(self, left: Array, n: Array) -> Array:
        xp = _array.namespace(left)
        if self.noise is not None:
            return xp.full_like(left, self.noise)
        return left / n if self.diagonal else xp.full_like(left, float(xp.sum(left) / xp.sum(n)))

    def begin(self, rng: np.random.Generator) -> Array:
        """Return θ to start from: the span of the rows filled with means."""
        xp = _array.namespace(self.origin)
        W = start(self.data, self.q, self.origin, self.variance, rng)
        left = self.variance - xp.sum(W * W, axis=1)
        floor = 0.05 * self.unit
        left = xp.where(left > floor, left, 0 * left + floor)
        psi = left if self.diagonal else xp.full_like(left, float(xp.mean(left)))
        psi = psi if self.noise is None else xp.full_like(left, self.noise)
        return self.pack(Factors(W, self.origin, psi))


def fit_incomplete(
    X: Array,
    weights: Array | None,
    q: int,
    rng: np.random.Generator,
    *,
    noise: float | None = None,
    diagonal: bool = False,
    tol: float = 1e-4,
    max_iter: int = 1000,
) -> tuple[Factors, Record]:
    """Fit x = Wz + μ + ε to rows with NaN by the exact likelihood of what was observed.

    Cost of a step: O(|X| q²/2) for the products with the mask and O(q³) a pattern; memory one
    block of rows beyond X.
    """
    fit = Fit(X, weights, q, noise, diagonal)
    theta, record = maximize(fit.step, fit.begin(rng), tol=tol, max_iter=max_iter)
    factors = fit.unpack(theta)
    record.add(float(fit.data.sums(factors).loglikelihood))
    return factors, record


def refuse_empty_columns(seen: Array) -> None:
    """Raise if a feature was never observed, naming it."""
    empty = np.flatnonzero(_array.to_numpy(seen) == 0)
    if empty.size:
        names = ", ".join(str(j) for j in empty[:10])
        raise DegenerateError(
            f"no value was observed in column {names}: nothing can be said of it. "
            "Drop the column, or give rows that observe it."
        )
