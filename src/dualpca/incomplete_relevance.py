"""Automatic relevance determination from incomplete rows (MATH 4 and 5)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualpca import _algebra, _array
from dualpca._typing import Array
from dualpca.checkpoints import Keeper, Watch
from dualpca.em import Record, maximize
from dualpca.incomplete_em import LEAST_NOISE, Fit
from dualpca.missing import Factors
from dualpca.missing_steps import filled_axes, m_step
from dualpca.relevance import penalty, refuse_no_noise

OFF = 1e-3
"""A direction is off once its squared length is below this share of σ²d/n: EM cannot return."""


class Relevant(NamedTuple):
    """What is left of the directions that a fit started from."""

    factors: Factors  # W with orthogonal columns, longest first
    record: Record  # of the penalised log-likelihood, since the last direction was switched off
    loglikelihood: float


class SwitchOff(Exception):
    """Carries the model on when some of its directions have become irrelevant."""

    def __init__(self, factors: Factors) -> None:
        super().__init__()
        self.factors = factors


class RelevanceFit(Fit):
    """EM with the prior w_i ~ N(0, α_i⁻¹I) and α_i = d/w_iᵀw_i, on the same θ as without it.

    Turning the columns of W so that they are orthogonal leaves the likelihood alone and, by
    Hadamard's inequality, makes Π w_iᵀw_i as small as it gets: every step ends with that.
    """

    steps = 0

    def lengths(self, factors: Factors) -> Array:
        """Return u_i = w_iᵀw_i, (q,)."""
        return _array.namespace(factors.W).sum(factors.W * factors.W, axis=0)

    def step(self, theta: Array) -> tuple[Array, float]:
        """Take one EM step; return it with the penalised log-likelihood of θ."""
        factors = self.unpack(theta)
        sums, u = self.expectations(factors), self.lengths(factors)
        self.steps += 1
        value = float(sums.loglikelihood) + penalty(_array.to_numpy(u), self.d)
        W, mu, left = m_step(sums, factors, factors.psi[0] * self.d / u)
        new = Factors(_orthogonal(W, factors.W), mu, self._noise(left, sums.n))
        self.refuse_irrelevant(new, float(sums.all_n))
        return self.pack(new), value

    def refuse_irrelevant(self, factors: Factors, n: float) -> None:
        """Raise with the directions that are left, if some have vanished beside the noise."""
        u = self.lengths(factors)
        kept = np.flatnonzero(_array.to_numpy(u > OFF * float(factors.psi[0]) * self.d / n))
        if kept.size < u.shape[0]:
            left = _array.take(factors.W, kept, axis=1)
            raise SwitchOff(Factors(left, factors.mu, factors.psi))

    def begin(self, rng: np.random.Generator, psi: Array | None = None) -> Array:
        """Return θ to start from: maximum likelihood of the rows filled with means, or noise ψ."""
        xp, q = _array.namespace(self.origin), self.q
        V, ell = filled_axes(self.data, q, self.origin, rng)
        share = float(self.data.n) / float(xp.max(self.seen))
        left = float(xp.sum(self.variance * self.seen) / xp.max(self.seen)) - float(
            xp.sum(ell) * share
        )
        sigma2 = left / (self.d - q) if self.noise is None else self.noise
        sigma2 = sigma2 if psi is None else float(xp.mean(psi))
        sigma2 = max(sigma2, 10 * LEAST_NOISE * self.unit)
        excess = ell * share - sigma2
        u = xp.where(excess > 0.01 * sigma2, excess, 0 * excess + 0.01 * sigma2)
        psi = xp.full_like(self.variance, sigma2)
        return self.pack(Factors(V * xp.sqrt(u), self.origin, psi))


def _orthogonal(W: Array, like: Array) -> Array:
    """Turn W so that its columns are orthogonal, longest first, with the signs of `like`."""
    xp = _array.namespace(W)
    U, s, _ = _algebra.svd(W)
    W = U * s
    agree = xp.sum(W * like, axis=0)
    return W * xp.where(agree < 0, -xp.ones_like(agree), xp.ones_like(agree))


def fit_incomplete_relevance(
    X: Array,
    weights: Array | None,
    q: int,
    rng: np.random.Generator,
    *,
    noise: float | None = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
    watch: Watch | None = None,
) -> Relevant:
    """Fit PPCA with re-estimated priors to rows with NaN, starting from q directions.

    EM is not extrapolated here: the objective grows without bound where a direction vanishes, so
    a leap could switch one off that EM would keep. Where nothing is missing the result is that of
    `dualpca.relevance.fit_relevance`. W has no columns left if nothing is relevant.

    Cost of a step: as in `dualpca.incomplete_em.fit_incomplete`.
    """
    fit = RelevanceFit(X, weights, q, noise, diagonal=False)
    keeper = None if watch is None else watch.over(fit.data.n, fit.origin, fit.variance)
    found = _climb(fit, fit.begin(rng), keeper, tol, max_iter)
    if keeper is not None and not (found and found[1].interrupted):
        keeper.done()
    if found is None:
        return _isotropic(fit)
    factors, record = found
    if noise is None and float(factors.psi[0]) <= 10 * LEAST_NOISE * fit.unit:
        refuse_no_noise(fit.q)
    value = float(fit.data.sums(factors).loglikelihood)
    record.add(value + penalty(_array.to_numpy(fit.lengths(factors)), fit.d))
    return Relevant(factors, record, value)


def _climb(
    fit: RelevanceFit, theta: Array, keeper: Keeper | None, tol: float, max_iter: int
) -> tuple[Factors, Record] | None:
    """Step until nothing is switched off any more; None if nothing is left."""
    done = 0
    if keeper is not None:
        keeper.also = lambda: {"q": fit.q, "steps": fit.steps, "done": done}
        if keeper.state is not None:
            fit.q, fit.steps, done = (int(keeper.state[1][k]) for k in ("q", "steps", "done"))
    while fit.q:
        most = max(max_iter - done, 1)
        try:
            theta, record = maximize(
                fit.step, theta, tol=tol, max_iter=most, accelerate=False, keeper=keeper
            )
        except SwitchOff as event:
            fit.q, done = int(event.factors.W.shape[1]), fit.steps
            theta = fit.pack(event.factors)
            if keeper is not None:
                keeper.state = None  # that was of more directions
        else:
            record.n_iter = fit.steps
            return fit.unpack(theta), record
    return None


def _isotropic(fit: RelevanceFit) -> Relevant:
    """Return the model without directions: each feature's mean, one noise."""
    xp = _array.namespace(fit.origin)
    sigma2 = float(xp.sum(fit.seen * fit.variance) / xp.sum(fit.seen))
    sigma2 = sigma2 if fit.noise is None else fit.noise
    none = _array.asarray(np.zeros((fit.d, 0)), fit.origin)
    found = Factors(none, fit.origin, xp.full_like(fit.variance, sigma2))
    quadratic = float(xp.sum(fit.seen * fit.variance)) / sigma2
    count = float(xp.sum(fit.seen))
    value = -0.5 * (count * float(np.log(2 * np.pi * sigma2)) + quadratic)
    return Relevant(found, Record([value], fit.steps, True), value)
