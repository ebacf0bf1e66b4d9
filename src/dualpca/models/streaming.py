"""Incomplete rows in chunks, each seen once: online EM with averaged parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.data import (
    Columns,
    InMemoryTable,
    Moments,
    block_weights,
    column_starts,
    has_missing,
    observed_weights,
    refuse_infinite,
)
from dualpca.errors import DegenerateError, ScaleError
from dualpca.gaussian import LEAST_NOISE, LOG_2PI, Factors, Incomplete, Sums
from dualpca.models.driver import Record, maximize
from dualpca.models.incomplete import Fit, latent_frame, m_step, refuse_empty_columns

# --- Statistics of the E step that outlive the parameters they were taken at ---------------------


def recentred(sums: Sums, delta: Array) -> Sums:
    """Return sums over x − μ as sums over x − μ + δ; O(dq)."""
    return sums._replace(
        xz=sums.xz + delta[:, None] * sums.z,
        x=sums.x + delta * sums.n,
        xx=sums.xx + 2 * delta * sums.x + delta * delta * sums.n,
    )


def reexpressed(sums: Sums, nu: Array, root: Array) -> Sums:
    """Return sums over z as sums over z' with z = ν + Γ^{1/2}z'; O(dq³)."""
    inverse, moved = backend.namespace(root).linalg.inv(root), shifted(sums, nu)
    return moved._replace(
        zz=inverse @ moved.zz @ inverse.T,
        z=moved.z @ inverse.T,
        xz=moved.xz @ inverse.T,
        all_zz=inverse @ moved.all_zz @ inverse.T,
        all_z=inverse @ moved.all_z,
    )


def shifted(sums: Sums, nu: Array) -> Sums:
    """Return sums over z as sums over z − ν; O(dq²)."""
    zz, z = _moved(sums.zz, sums.z, sums.n, nu)
    all_zz, all_z = _moved(sums.all_zz[None, :, :], sums.all_z[None, :], sums.all_n[None, ...], nu)
    xz = sums.xz - sums.x[:, None] * nu
    return sums._replace(zz=zz, z=z, xz=xz, all_zz=all_zz[0, :, :], all_z=all_z[0, :])


def _moved(zz: Array, z: Array, n: Array, nu: Array) -> tuple[Array, Array]:
    """Return Σ(z − ν)(z − ν)ᵀ (k, q, q) and Σ(z − ν) (k, q) from those of z."""
    across = z[:, :, None] * nu
    squares = n[:, None, None] * (nu[:, None] * nu[None, :])
    rows = nu[:, None] * z[:, None, :]
    return zz - across - rows + squares, z - n[:, None] * nu


def moment_sums(moments: Moments, factors: Factors) -> Sums:
    """Return the sums of complete rows from their moments alone, O(d²q): exact at any parameters.

    With A = Σ w(x − μ)(x − μ)ᵀ and E[z] = B(x − μ), B = P⁻¹WᵀΨ⁻¹: Σ (x − μ)E[z]ᵀ = ABᵀ and
    Σ E[zzᵀ] = nP⁻¹ + BABᵀ.
    """
    xp, W, psi = backend.namespace(factors.W), factors.W, factors.psi
    d, q = int(W.shape[0]), int(W.shape[1])
    n, delta = moments.n, moments.mean - factors.mu
    A = moments.scatter + n * delta[:, None] * delta[None, :]
    P = backend.asarray(np.eye(q), W) + W.T @ (W / psi[:, None])
    covariance = xp.linalg.inv(P)
    B = covariance @ (W / psi[:, None]).T
    xz, z = A @ B.T, n * (B @ delta)
    zz, xx = n * covariance + B @ xz, xp.linalg.diagonal(A)
    ones = xp.ones_like(psi)
    distance = xp.sum(xx / psi) - xp.sum(xz * (W / psi[:, None]))
    logdet = xp.linalg.slogdet(P).logabsdet + xp.sum(xp.log(psi)) + d * LOG_2PI
    return Sums(
        zz=ones[:, None, None] * zz,
        z=ones[:, None] * z,
        n=n * ones,
        xz=xz,
        x=n * delta,
        xx=xx,
        all_zz=zz,
        all_z=z,
        all_n=xp.sum(n * ones) / d,
        loglikelihood=-0.5 * (n * logdet + distance),
    )


# --- Online EM, one step: old sums mixed with a chunk's, the M step, the average of its results --


def refuse_overflow(sums: Sums) -> None:
    """Raise where squares are beyond floating point."""
    xp = backend.namespace(sums.xx)
    if not bool(xp.all(xp.isfinite(sums.xx))):
        raise ScaleError(
            "X is too large: its variance overflows float64. Divide X by a constant first."
        )


def maximized(sums: Sums, factors: Factors, noise: float | None) -> Factors:
    """Take the M step; features without a value get loadings 0 and stay where they are."""
    xp, q = backend.namespace(sums.x), int(sums.z.shape[1])
    none = xp.astype(sums.n == 0, xp.float64)
    eye = backend.asarray(np.eye(q), sums.x)
    safe = sums._replace(zz=sums.zz + none[:, None, None] * eye, n=sums.n + none)
    W, mu, left = m_step(safe, factors)
    spread = sums.xx / safe.n - (sums.x / safe.n) ** 2
    least = LEAST_NOISE * float(xp.sum(spread) / xp.sum(1 - none))
    sigma2 = max(float(xp.sum(left) / xp.sum(sums.n)), least) if noise is None else noise
    return Factors(W, mu, xp.full_like(mu, sigma2))


def averaged(average: Factors, now: Factors, share: float, seen: Array) -> Factors:
    """Return the average moved towards the parameters of now, loadings turned to agree first.

    Features met just now have no past to average with.
    """
    xp = backend.namespace(now.W)
    U, _, Vt = algebra.svd(now.W.T @ average.W)
    W, mu = now.W @ (U @ Vt), now.mu
    return Factors(
        where_positive(seen[:, None], average.W + share * (W - average.W), W),
        where_positive(seen, average.mu + share * (mu - average.mu), mu),
        xp.exp((1 - share) * xp.log(average.psi) + share * xp.log(now.psi)),
    )


def mixed(
    old: Sums, data: Incomplete | None, factors: Factors, origin: Array, gamma: float
) -> Sums:
    """Return (1 − γ)s + γ s̄ with s̄ the E step over a chunk, a unit of weight."""
    if data is None:
        return old
    with np.errstate(over="ignore", invalid="ignore"):
        now = recentred(data.sums(factors), factors.mu - origin)
        return old.times(1 - gamma).plus(now.times(gamma / total_weight(data.weights)))


def where_positive(flags: Array, yes: Array, no: Array) -> Array:
    """Return `yes` where flags are above 0 and `no` elsewhere."""
    return backend.namespace(flags).where(flags > 0, yes, no)


def total_weight(weights: Array | None) -> float:
    """Return the sum of weights, 0 for no rows at all."""
    return 0.0 if weights is None else float(backend.namespace(weights).sum(weights))


# --- Incomplete rows in chunks, each seen once: online EM with averaged parameters ---------------
#
# Complete chunks enter through their moments, which stay exact at any parameters. Of incomplete
# ones only the statistics of the E step are kept, O(dq²); they fade as the parameters they were
# taken at grow old, s ← (1 − γ)s + γ s̄(chunk) with γ = (share of the chunk)^0.6 (Cappé &
# Moulines 2009,
# section 2.2), and the parameters are averaged along the way (Polyak & Juditsky 1992), which takes
# out the noise that a slowly falling γ leaves.

FORGET = 0.6
"""γ is the chunk's share of all incomplete rows to this power; above 1/2 it converges."""

AVERAGE = 3
"""Order of the average: the start of the stream counts (age)^3 less than its end."""

STEPS, COMPLETE_STEPS = 3, 30
"""Steps of EM per chunk; of complete ones none needs a row, so there can be more."""

FEWEST_ROWS = 100
"""Incomplete rows wait until there are so many, or ten per latent: fewer would be mostly noise."""


class Joint(Fit):
    """The EM map on incomplete rows and on the moments of complete ones."""

    def __init__(
        self, X: Array, weights: Array, q: int, noise: float | None, moments: Moments | None
    ) -> None:
        self.moments = moments
        super().__init__(InMemoryTable(X, weights), q, noise)

    def starts(self) -> tuple[Array, Array, Array]:
        """Return each feature's observed weight, mean and variance over both."""
        columns, more = self.data.columns, self.moments
        if more is None:
            return columns[:3]
        xp = backend.namespace(columns.n)
        variance = xp.linalg.diagonal(more.scatter) / more.n
        complete = Columns(xp.full_like(columns.n, more.n), more.mean, variance, 0, 0, more.n)
        return columns.merge(complete)[:3]

    def sums(self, factors: Factors) -> Sums:
        """Take the E step over both."""
        sums = self.data.sums(factors)
        return sums if self.moments is None else sums.plus(moment_sums(self.moments, factors))


@dataclass(frozen=True)
class Running:
    """What a stream remembers of incomplete rows, and the parameters it has reached."""

    factors: Factors
    average: Factors
    origin: Annotated[Array, "d"]  # (d,), what the sums are centred on
    sums: Sums  # a unit of weight
    weight: float
    seen: Annotated[Array, "d"]  # (d,), 1 for the features observed so far
    n_iter: int
    converged: bool


@dataclass(frozen=True)
class Stream:
    """A stream of chunks with and without missing values. Adding a chunk returns a new one.

    Parameters
    ----------
    q : int
    noise : float or None
        Fixed noise variance σ².
    tol, max_iter
        Of the fit of the first incomplete rows, which is that of all rows so far.

    Notes
    -----
    Memory O(dq²) and fewer than max(100, 10(q + 1)) rows that wait; O(d²) for complete chunks. A
    feature may be missing from any number of chunks; until a row observes it there is no model.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> stream = Stream(q=1, noise=None)
    >>> for _ in range(20):
    ...     X = rng.normal(size=(200, 1)) @ [[1.0, 2.0, 3.0]] + 0.1 * rng.normal(size=(200, 3))
    ...     X[rng.random(X.shape) < 0.3] = np.nan
    ...     stream = stream.add(X, None, rng)
    >>> factors, _ = stream.model()
    >>> np.abs(factors.W[:, 0]).round(1), float(factors.psi[0]) ** 0.5
    (array([1., 2., 3.]), 0.1)
    """

    q: int
    noise: float | None
    tol: float = 1e-6
    max_iter: int = 1000
    moments: Moments | None = None
    rows: Annotated[Array, "b d"] | None = None  # (b, d), waiting
    weights: Annotated[Array, "b"] | None = None
    running: Running | None = None

    @property
    def n(self) -> float:
        """Weight of all rows that observed something."""
        waiting = total_weight(self.weights)
        kept = 0.0 if self.running is None else self.running.weight
        return waiting + kept + (0.0 if self.moments is None else self.moments.n)

    def add(self, X: Array, weights: Array | None, rng: np.random.Generator) -> Stream:
        """Return the stream with one more chunk."""
        refuse_infinite(X)
        X, w = informative(X, weights)
        if not X.shape[0]:
            return self
        if not has_missing(X):
            return self._complete(X, w)
        held = self if self.rows is None else replace(self, rows=None, weights=None)
        if self.rows is not None:
            xp = backend.namespace(X)
            X, w = xp.concat([self.rows, X], axis=0), xp.concat([self.weights, w], axis=0)
        waiting = replace(held, rows=X, weights=w)
        # a weight of 2 is two rows; small weights must not make rows wait forever
        enough = max(float(X.shape[0]), total_weight(w)) >= max(FEWEST_ROWS, 10 * (self.q + 1))
        return waiting.settle(rng) if enough else waiting

    def _complete(self, X: Array, w: Array) -> Stream:
        chunk = Moments.of(X, w)
        moments = chunk if self.moments is None else self.moments.merge(chunk)
        later = replace(self, moments=moments)
        if self.running is None:
            return later
        share = chunk.n / later.n
        return replace(later, running=self._update(self.running, moments, None, share))

    def settle(self, rng: np.random.Generator) -> Stream:
        """Return the stream with no rows waiting."""
        if self.rows is None or self.weights is None:
            return self
        later = replace(self, rows=None, weights=None)
        if self.running is None:
            return replace(later, running=self._begin(self.rows, self.weights, rng))
        data = Incomplete(self.rows, self.weights, self.q)
        share = total_weight(self.weights) / self.n
        return replace(later, running=self._update(self.running, self.moments, data, share))

    def _begin(self, X: Array, w: Array, rng: np.random.Generator) -> Running:
        """Fit the first incomplete rows, with all complete ones, as `fit` would."""
        xp = backend.namespace(X)
        ones = backend.asarray(np.ones(X.shape[1]), X)
        seen = ones if self.moments is not None else column_starts(X, w)[0]
        kept = np.flatnonzero(backend.to_numpy(seen) > 0)
        if kept.size <= self.q < X.shape[1]:
            raise DegenerateError(
                f"the first rows observe {kept.size} features, too few for {self.q} components. "
                "Begin with rows that observe more."
            )
        fit = Joint(backend.take(X, kept, axis=1), w, self.q, self.noise, self.moments)
        theta, record = maximize(fit.step, fit.begin(rng), tol=self.tol, max_iter=self.max_iter)
        factors = _spread_out(fit.unpack(theta), kept, int(X.shape[1]))
        sums, weight = Incomplete(X, w, self.q).sums(factors), float(xp.sum(w))
        flags = xp.where(seen > 0, ones, 0 * ones)
        state = (sums.times(1 / weight), weight, flags, record.n_iter, record.converged)
        return Running(factors, factors, factors.mu, *state)

    def _update(
        self, run: Running, moments: Moments | None, data: Incomplete | None, share: float
    ) -> Running:
        """Take a few EM steps on a chunk, or on moments that grew, beside what is remembered."""
        fresh = 0.0 if data is None else total_weight(data.weights)
        weight = run.weight + fresh
        gamma, steps = (fresh / weight) ** FORGET, COMPLETE_STEPS if data is None else STEPS
        origin, seen = _met(run, moments, data)
        factors = replace(run.factors, mu=where_positive(run.seen, run.factors.mu, origin))
        old = now = run.sums
        for _ in range(steps):
            now = mixed(old, data, factors, origin, gamma)
            total = now.times(weight)
            if moments is not None:
                total = total.plus(recentred(moment_sums(moments, factors), factors.mu - origin))
            refuse_overflow(total)
            nu, root = latent_frame(total)
            factors = maximized(total, replace(factors, mu=origin), self.noise)
            old, now = reexpressed(old, nu, root), reexpressed(now, nu, root)
        pace = (AVERAGE + 1) * share / (1 + AVERAGE * share)
        average = averaged(run.average, factors, pace, run.seen)
        return Running(factors, average, origin, now, weight, seen, run.n_iter + steps, False)

    def model(self) -> tuple[Factors, Record]:
        """Return the parameters reached; refuse features that no row has observed yet.

        The record has one log-likelihood: of complete rows exactly, of incomplete ones as far as
        they are remembered.
        """
        run = self.running
        if run is None:
            raise DegenerateError("no row has observed anything yet. Give rows that do.")
        refuse_empty_columns(run.seen)
        value = run.weight * float(run.sums.loglikelihood)
        if self.moments is not None:
            value += float(moment_sums(self.moments, run.average).loglikelihood)
        return run.average, Record([value], run.n_iter, run.converged)


def informative(X: Array, weights: Array | None) -> tuple[Array, Array]:
    """Return a copy of the rows that count and observe something, with their weights."""
    w = observed_weights(X, block_weights(weights, slice(None), X))
    kept = np.flatnonzero(backend.to_numpy(w) > 0)
    return backend.take(X, kept), backend.take(w, kept)


def _met(run: Running, moments: Moments | None, data: Incomplete | None) -> tuple[Array, Array]:
    """Return origins, also of the features met for the first time, and which have been met."""
    xp = backend.namespace(run.origin)
    if bool(xp.all(run.seen > 0)):
        return run.origin, run.seen
    n, mean = run.seen, run.origin
    if data is not None:
        n, mean, _ = column_starts(data.X, data.weights)
    elif moments is not None:
        n, mean = xp.ones_like(n), moments.mean
    return where_positive(run.seen, run.origin, mean), where_positive(
        n, xp.ones_like(run.seen), run.seen
    )


def _spread_out(factors: Factors, kept: np.ndarray[Any, Any], d: int) -> Factors:
    """Return factors of some features as factors of all d, with loadings and mean 0 elsewhere."""
    W, mu = np.zeros((d, factors.W.shape[1])), np.zeros(d)
    W[kept], mu[kept] = backend.to_numpy(factors.W), backend.to_numpy(factors.mu)
    psi = np.full(d, float(factors.psi[0]))
    return Factors(*(backend.asarray(part, factors.W) for part in (W, mu, psi)))
