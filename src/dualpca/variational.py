"""Variational Bayesian PCA: q(Z) q(W) q(α) q(τ) q(μ), complete or with NaN (MATH 5).

x_nj = w_jᵀz_n + μ_j + ε with z_n ~ N(0, I), w_j ~ N(0, diag(α)⁻¹), ε ~ N(0, τ⁻¹),
μ_j ~ N(m_j, β⁻¹), α_k ~ Gamma(a₀, b₀), τ ~ Gamma(c₀, d₀) (Bishop 1999, "Variational principal
components"). Every update is the exact maximum of the bound by one factor; a step ends with a
change of latent basis (Luttinen & Ilin 2010), which is taken only where the bound does not fall.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import digamma, gammaln

from dualpca import _array
from dualpca._typing import Array
from dualpca.checkpoints import Keeper, State
from dualpca.em import ROUNDING, SLOWEST, Record
from dualpca.missing import Sums
from dualpca.progress import task
from dualpca.running import shifted
from dualpca.variational_rows import Beliefs, Complete, Holes

VAGUE = 1e-3
"""a₀, c₀, and d₀, 1/β in units of the average variance: hardly an opinion."""

SMALLEST = 1e-9
"""b₀ in units of the average variance: well below the σ²d/n that a switched-off column has."""

INNER, LONGEST = 3, 4.0**8
"""Times that q(W) and q(α) are updated in turn, and the longest leap of ln α tried after that."""


class Updates:
    """The coordinate updates and the bound, over either kind of rows."""

    def __init__(self, rows: Complete | Holes, noise: float | None = None) -> None:
        xp = _array.namespace(rows.like)
        self.rows, self.noise, self.d = rows, noise, int(rows.origin.shape[0])
        self.count = float(xp.sum(rows.seen))
        self.a, self.c = VAGUE + self.d / 2, VAGUE + self.count / 2
        self.b0, self.d0 = SMALLEST * rows.unit, VAGUE * rows.unit
        self.beta = VAGUE / rows.unit

    def tau(self, at: Beliefs) -> float:
        """Return E[τ], or the precision that was given."""
        return self.c / at.tau_rate if self.noise is None else 1 / self.noise

    def step(self, at: Beliefs) -> tuple[Beliefs, float]:
        """Update every factor once; return the result with the bound at `at` (best q(Z))."""
        tau = self.tau(at)
        sums = self.rows.sums(at, tau)
        value = self.bound(at, sums)
        new = self.update_mean(self.update_both(at, sums, tau), sums, tau, at.mu)
        new, sums = self.shift(new, sums, tau, at.mu)
        new = replace(new, tau_rate=self.d0 + 0.5 * self.misfit(new, sums, at.mu))
        return self.rotate(new, sums), value

    def update_loadings(self, at: Beliefs, sums: Sums, tau: float) -> Beliefs:
        """S_j = (diag E[α] + E[τ] Σ E[zzᵀ])⁻¹, w̄_j = S_j E[τ] Σ (x − μ̄) z̄."""
        xp = _array.namespace(at.W)
        eye = _array.asarray(np.eye(at.W.shape[1]), at.W)
        S = xp.linalg.inv(self.a / at.rate * eye + tau * sums.zz)
        S = (S + xp.permute_dims(S, (0, 2, 1))) / 2
        return replace(at, W=(S @ (tau * sums.xz)[:, :, None])[:, :, 0], S=S)

    def update_alpha(self, at: Beliefs) -> Beliefs:
        """Rate b₀ + ½ Σ_j E[w_jk²]."""
        xp = _array.namespace(at.W)
        return replace(at, rate=self.b0 + 0.5 * xp.linalg.diagonal(at.second()))

    def update_both(self, at: Beliefs, sums: Sums, tau: float) -> Beliefs:
        """Update q(W) and q(α) in turn; then leap along ln α while the bound rises.

        A column on its way out gains the same in 1/E[w²] at every update, far too little.
        """
        xp, old = _array.namespace(at.W), at.rate

        def once(at: Beliefs) -> Beliefs:
            return self.update_alpha(self.update_loadings(at, sums, tau))

        def value(at: Beliefs) -> float:
            return self.loading_term(at) - 0.5 * tau * self.misfit(at, sums, at.mu)

        for _ in range(INNER):
            old, at = at.rate, once(at)
        best, length, slope = value(at), 4.0, xp.log(at.rate / old)
        while length <= LONGEST:
            moved = once(replace(at, rate=at.rate * xp.exp(length * slope)))
            gained = value(moved)
            if not gained > best:
                break
            at, best, length = moved, gained, 4 * length
        return at

    def update_mean(self, at: Beliefs, sums: Sums, tau: float, around: Array) -> Beliefs:
        """Precision β + E[τ] n_j; `sums` were taken around another mean."""
        precision = self.beta + tau * sums.n
        xp = _array.namespace(at.W)
        pull = self.beta * (self.rows.origin - around)
        pull = pull + tau * (sums.x - xp.sum(at.W * sums.z, axis=1))
        return replace(at, mu=around + pull / precision, v=1 / precision)

    def misfit(self, at: Beliefs, sums: Sums, around: Array) -> float:
        """Return Σ E[(x − wᵀz − μ)²] over the observed entries."""
        xp, step = _array.namespace(at.W), at.mu - around
        mean = sums.n * (step * step + at.v) - 2 * step * sums.x
        cross = sums.xz - step[:, None] * sums.z
        if at.S.shape[0] == 1:
            second = xp.sum(at.second() * sums.zz[0, :, :])
        else:
            second = xp.sum((at.W[:, :, None] * at.W[:, None, :] + at.S) * sums.zz)
        return float(xp.sum(sums.xx) + xp.sum(mean) - 2 * xp.sum(at.W * cross) + second)

    def shift(self, at: Beliefs, sums: Sums, tau: float, around: Array) -> tuple[Beliefs, Sums]:
        """Move the latents' own mean ν into μ, where the bound does not fall."""
        if at.S.shape[0] == 1:  # complete rows: ν = 0
            return at, sums
        nu = sums.all_z / sums.all_n
        moved, back = replace(at, mu=at.mu + at.W @ nu), shifted(sums, nu)
        gain = 0.5 * tau * (self.misfit(at, sums, around) - self.misfit(moved, back, around))
        gain += self.mean_term(moved) - self.mean_term(at)
        gain += 0.5 * float(sums.all_n * (nu @ nu))
        return (moved, back) if gain >= 0 else (at, sums)

    def rotate(self, at: Beliefs, sums: Sums) -> Beliefs:
        """Whiten the latents and make Σ E[wwᵀ] diagonal, where the bound does not fall."""
        xp, n = _array.namespace(at.W), float(sums.all_n)
        try:
            L = xp.linalg.cholesky(sums.all_zz / n)
        except Exception as error:
            if not _array.is_linalg_error(error):
                raise
            return at
        _, Q = xp.linalg.eigh(L.T @ at.second() @ L)
        R = L @ xp.flip(Q, axis=1)
        moved = self.update_alpha(replace(at, W=at.W @ R, S=R.T @ at.S @ R))
        gain = self.loading_term(moved) - self.loading_term(at)
        gain += 0.5 * (float(xp.linalg.trace(sums.all_zz)) - n * R.shape[0])
        gain -= n * float(xp.sum(xp.log(xp.linalg.diagonal(L))))
        return moved if gain >= 0 else at

    # --- the bound -------------------------------------------------------------------------

    def bound(self, at: Beliefs, sums: Sums) -> float:
        """Return the lower bound on ln p(X), every term of it; `sums` hold the best q(Z)."""
        tau = self.tau(at)
        unsure = float(_array.namespace(at.v).sum(sums.n * at.v))
        value = float(sums.loglikelihood) - 0.5 * tau * unsure
        value += self.mean_term(at) + self.loading_term(at)
        if self.noise is None:
            logs = float(digamma(self.c)) - math.log(self.c)
            value += 0.5 * self.count * logs
            value -= _gamma_divergence(self.c, math.log(at.tau_rate), VAGUE, self.d0)
        return value

    def mean_term(self, at: Beliefs) -> float:
        """Return −KL(q(μ) ‖ p(μ))."""
        xp, off = _array.namespace(at.mu), at.mu - self.rows.origin
        terms = self.beta * (at.v + off * off) - 1 - xp.log(self.beta * at.v)
        return -0.5 * float(xp.sum(terms))

    def loading_term(self, at: Beliefs) -> float:
        """Return −E[KL(q(W) ‖ p(W | α))] − KL(q(α) ‖ p(α))."""
        xp, q = _array.namespace(at.W), int(at.W.shape[1])
        weighted = float(xp.sum(self.a / at.rate * xp.linalg.diagonal(at.second())))
        logdet = at.shared * float(xp.sum(xp.linalg.slogdet(at.S).logabsdet))
        log_rate = [math.log(float(b)) for b in _array.to_numpy(at.rate)]
        log_alpha = q * float(digamma(self.a)) - sum(log_rate)
        value = -0.5 * (weighted - self.d * q - logdet - self.d * log_alpha)
        return value - sum(_gamma_divergence(self.a, b, VAGUE, self.b0) for b in log_rate)


def _gamma_divergence(a: float, log_b: float, a0: float, b0: float) -> float:
    """Return KL(Gamma(a, b) ‖ Gamma(a₀, b₀)), shapes and rates."""
    logs = a0 * (log_b - math.log(b0)) + a * (b0 * math.exp(-log_b) - 1)
    return float((a - a0) * digamma(a) - gammaln(a) + gammaln(a0)) + logs


class Variational(NamedTuple):
    """A variational posterior and how it was found; the record is of the bound."""

    beliefs: Beliefs
    relevance: Array  # (q,), 1/E[α]
    kept: Array  # (q,), True where the mean of a column exceeds its uncertainty
    noise: float  # 1/E[τ]
    record: Record


def fit_variational(
    rows: Complete | Holes,
    W: Array,
    sigma2: float,
    *,
    noise: float | None = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
    keeper: Keeper | None = None,
) -> Variational:
    """Raise the bound from loadings W (d, q) and noise σ² until nothing is left to gain.

    Priors are vague, in the units of the data and centred on its mean, so that the fit moves with
    the data. `tol` is the estimated distance of the bound from its limit at which to stop, in
    nats a row. A column counts as kept where |w̄_k|² exceeds Σ_j var w_jk.

    Cost of a step: O(ndq) for complete rows; O(|X|q²/2) and O(q³) a pattern with NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca.representations import Primal
    >>> from dualpca.variational_rows import Complete
    >>> X = np.random.default_rng(0).normal(size=(200, 5)) * [3.0, 2.0, 1.0, 1.0, 1.0]
    >>> found = fit_variational(Complete(Primal(X, None)), np.eye(5)[:, :4], 1.0)
    >>> int(found.kept.sum()), bool(np.all(np.diff(found.record.loglikelihoods) > -1e-9))
    (2, True)
    """
    updates, q = Updates(rows, noise), int(W.shape[1])
    xp = _array.namespace(W)
    eye = _array.asarray(np.eye(q), W)
    S = xp.stack([sigma2 / float(xp.max(rows.seen)) * eye] * rows.covariances)
    v, rate = sigma2 / rows.seen, 0 * W[0, :] + rows.unit
    start = updates.update_alpha(Beliefs(W, S, rows.origin, v, rate, updates.c * sigma2))

    found, record = _climb(updates, start, tol, max_iter, keeper)
    if keeper is not None and not record.interrupted:
        keeper.done()
    own = found.shared * xp.sum(xp.linalg.diagonal(found.S), axis=0)
    kept = xp.sum(found.W * found.W, axis=0) > own
    return Variational(found, found.rate / updates.a, kept, 1 / updates.tau(found), record)


def _climb(
    updates: Updates, at: Beliefs, tol: float, max_iter: int, keeper: Keeper | None
) -> tuple[Beliefs, Record]:
    """Step until the bound has twice been estimated to lie within `tol` a row of its limit.

    The gains of a linear sequence shrink by a factor; what is left is the last gain over one minus
    that. (Parameters are no measure: columns that are off may turn among themselves for ever.)
    """
    record, gain, close, moved = Record(), math.inf, 0, at
    if keeper is not None and keeper.state is not None:
        moved, record, gain, close = _restored(keeper.state, at)
        at = moved
    enough = tol * updates.count / updates.d
    with task("variational step", max_iter) as tick:
        while not record.ended and record.n_iter < max_iter:
            try:
                after, value = updates.step(moved)
            except KeyboardInterrupt:
                if not record.n_iter:
                    raise
                record.interrupted = True
                break
            before = record.loglikelihoods[-1] if record.loglikelihoods else -math.inf
            at, moved, gain, last = moved, after, value - before, gain
            record.n_iter += 1
            record.add(value)
            tick(f"bound {value:.6g}")
            shrink = min(gain / last, SLOWEST) if 0 < last < math.inf else 0.0
            close = close + 1 if gain / (1 - shrink) <= enough + ROUNDING * abs(value) else 0
            record.converged = close == 2
            if keeper is not None and not record.converged and record.n_iter < max_iter:
                keeper.offer(partial(_state, moved, record, gain, close))
    return at, record


def _state(at: Beliefs, record: Record, gain: float, close: int) -> State:
    """Return all that the next step depends on."""
    arrays = {name: _array.to_numpy(getattr(at, name)) for name in ("W", "S", "mu", "v", "rate")}
    arrays["bounds"] = np.array(record.loglikelihoods)
    numbers = {"tau_rate": float(at.tau_rate), "n_iter": record.n_iter}
    return arrays, numbers | {"gain": float(gain), "close": close}


def _restored(state: State, like: Beliefs) -> tuple[Beliefs, Record, float, int]:
    """Return beliefs, record, last gain and count of a state."""
    arrays, numbers = state
    names = ("W", "S", "mu", "v", "rate")
    W, S, mu, v, rate = (_array.asarray(arrays[name], like.W) for name in names)
    record = Record([float(v) for v in arrays["bounds"]], int(numbers["n_iter"]))
    at = Beliefs(W, S, mu, v, rate, float(numbers["tau_rate"]))
    return at, record, float(numbers["gain"]), int(numbers["close"])
