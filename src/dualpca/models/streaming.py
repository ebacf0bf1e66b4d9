"""Rows with missing values in chunks, each seen once: online EM with averaged parameters.

Complete chunks enter through their moments, which stay exact at any parameters. Of incomplete
ones only the statistics of the E step are kept, O(dq²); they fade as the parameters they were
taken at grow old, s ← (1 − γ)s + γ s̄(chunk) with γ = (share of the chunk)^0.6 (Cappé & Moulines
2009, section 2.2), and the parameters are averaged along the way (Polyak & Juditsky 1992), which
removes the noise that a slowly falling γ leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from dualpca.arrays import Array, algebra, backend
from dualpca.data import (
    Host,
    InMemoryTable,
    Moments,
    block_weights,
    column_starts,
    has_missing,
    observed_weights,
    refuse_infinite,
)
from dualpca.errors import DegenerateError
from dualpca.gaussian import Factors, Incomplete, Sums, observed, rules
from dualpca.models.driver import Record, maximize
from dualpca.models.incomplete import Fit, refuse_empty_columns, refuse_overflow

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
    squares = nu[:, None] * nu[None, :]
    across, all_across = sums.z[:, :, None] * nu, sums.all_z[:, None] * nu
    return sums._replace(
        zz=sums.zz - across - nu[:, None] * sums.z[:, None, :] + sums.n[:, None, None] * squares,
        z=sums.z - sums.n[:, None] * nu,
        xz=sums.xz - sums.x[:, None] * nu,
        all_zz=sums.all_zz - all_across - all_across.T + sums.all_n * squares,
        all_z=sums.all_z - sums.all_n * nu,
    )


# --- Online EM, one step: old sums mixed with a chunk's, the M step, the average of its results --


def maximized(sums: Sums, factors: Factors, noise: float | None) -> Factors:
    """Take the M step; features without a value get loadings 0 and stay where they are."""
    xp, eye = backend.namespace(sums.x), backend.identity(sums.z.shape[1], sums.x)
    none = xp.astype(sums.n == 0, xp.float64)
    safe = sums._replace(zz=sums.zz + none[:, None, None] * eye, n=sums.n + none)
    W, mu, left = observed.m_step(safe, factors)
    spread = sums.xx / safe.n - (sums.x / safe.n) ** 2
    least = rules.LEAST_NOISE * float(xp.sum(spread) / xp.sum(1 - none))
    sigma2 = max(float(xp.sum(left) / xp.sum(sums.n)), least) if noise is None else noise
    return Factors(W, mu, xp.full_like(mu, sigma2))


def averaged(average: Factors, now: Factors, share: float, seen: Array) -> Factors:
    """Return the average moved towards the parameters of now, loadings turned to agree first.

    Features observed for the first time have no past to average with.
    """
    xp = backend.namespace(now.W)
    U, _, Vt = algebra.svd(now.W.T @ average.W)
    W, mu = now.W @ (U @ Vt), now.mu
    return Factors(
        where_positive(seen[:, None], average.W + share * (W - average.W), W),
        where_positive(seen, average.mu + share * (mu - average.mu), mu),
        xp.exp((1 - share) * xp.log(average.psi) + share * xp.log(now.psi)),
    )


def where_positive(flags: Array, yes: Array, no: Array) -> Array:
    """Return `yes` where flags are above 0 and `no` elsewhere."""
    return backend.namespace(flags).where(flags > 0, yes, no)


def total_weight(weights: Array | None) -> float:
    """Return the sum of weights, 0 for no rows at all."""
    return 0.0 if weights is None else float(backend.namespace(weights).sum(weights))


def after_waiting(
    rows: Array | None, weights: Array | None, X: Array, w: Array
) -> tuple[Array, Array]:
    """Return the rows that wait and those of a chunk after them, with their weights."""
    if rows is None:
        return X, w
    xp = backend.namespace(X)
    return xp.concat([rows, X], axis=0), xp.concat([weights, w], axis=0)


# --- The stream ----------------------------------------------------------------------------------

FORGET = 0.6
"""γ is the chunk's share of all incomplete rows to this power; above 1/2 it converges."""

AVERAGE = 3
"""Order of the average: the start of the stream counts (age)^3 less than its end."""

STEPS, COMPLETE_STEPS = 3, 30
"""Steps of EM per chunk. Those on complete chunks read no rows, so there can be more."""

FEWEST_ROWS = 100
"""Incomplete rows wait until there are this many, or ten per latent: fewer are mostly noise."""


@dataclass(frozen=True)
class Running:
    """The statistics that a stream keeps of incomplete rows, and the parameters it has reached."""

    factors: Annotated[Factors, "d q"]
    average: Annotated[Factors, "d q"]
    origin: Annotated[Array, "d"]  # (d,), what the sums are centred on
    sums: Annotated[Sums, "d q"]  # a unit of weight
    weight: Annotated[float, ">= 0"]
    seen: Annotated[Array, "d", ">= 0, <= 1"]  # (d,), 1 for the features observed so far
    n_iter: Annotated[int, ">= 0"]
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

    _together: ClassVar = ("rows weights",)  # in files

    q: Annotated[int, ">= 0, <= d, == q"]
    noise: Annotated[float, ">= 0"] | None
    tol: Annotated[float, ">= 0"] = 1e-6
    max_iter: Annotated[int, ">= 1"] = 1000
    moments: Annotated[Moments, "d=p"] | None = None
    rows: Annotated[Array, "b d", "or nan"] | None = None  # (b, d), waiting
    weights: Annotated[Array, "b", ">= 0"] | None = None
    running: Annotated[Running, "d q"] | None = None

    @property
    def n(self) -> float:
        """Weight of all rows that observed something."""
        waiting = total_weight(self.weights)
        kept = 0.0 if self.running is None else self.running.weight
        return waiting + kept + (0.0 if self.moments is None else self.moments.n)

    def add(self, X: Array, weights: Array | None, rng: np.random.Generator) -> Stream:
        """Return the stream with one more chunk."""
        refuse_infinite(X)
        w = observed_weights(X, block_weights(weights, slice(None), X))
        kept = np.flatnonzero(backend.to_numpy(w) > 0)
        if not kept.size:
            return self
        X, w = backend.take(X, kept), backend.take(w, kept)  # copies: rows may wait
        if not has_missing(X):
            chunk = Moments.of(X, w)
            moments = chunk if self.moments is None else self.moments.merge(chunk)
            later = replace(self, moments=moments)
            return later._updated(None, chunk.n / later.n)
        X, w = after_waiting(self.rows, self.weights, X, w)
        waiting = replace(self, rows=X, weights=w)
        # a weight of 2 is two rows; small weights must not make rows wait forever
        enough = max(float(X.shape[0]), total_weight(w)) >= max(FEWEST_ROWS, 10 * (self.q + 1))
        return waiting.settle(rng) if enough else waiting

    def settle(self, rng: np.random.Generator) -> Stream:
        """Return the stream with no rows waiting."""
        if self.rows is None or self.weights is None:
            return self
        later = replace(self, rows=None, weights=None)
        if self.running is None:
            return replace(later, running=self._begin(self.rows, self.weights, rng))
        data = Incomplete(self.rows, self.weights, self.q)
        return later._updated(data, total_weight(self.weights) / self.n)

    def _begin(self, X: Array, w: Array, rng: np.random.Generator) -> Running:
        """Fit the first incomplete rows, with all complete ones, as `fit` would."""
        seen = np.ones(X.shape[1])
        if self.moments is None:
            seen = (backend.to_numpy(column_starts(X, w)[0]) > 0).astype(float)
        kept = np.flatnonzero(seen)
        if kept.size <= self.q < X.shape[1]:
            raise DegenerateError(
                f"the first rows observe {kept.size} features, too few for {self.q} components. "
                "Begin with rows that observe more."
            )
        table = InMemoryTable(backend.take(X, kept, axis=1), w)
        fit = Fit(table, self.q, self.noise, moments=self.moments)
        theta, record = maximize(fit.step, fit.begin(rng), tol=self.tol, max_iter=self.max_iter)
        factors = _spread_out(fit.unpack(theta), kept, int(X.shape[1]))
        weight = total_weight(w)
        sums, flags = Incomplete(X, w, self.q).sums(factors), backend.asarray(seen, factors.mu)
        state = (sums.times(1 / weight), weight, flags, record.n_iter, record.converged)
        return Running(factors, factors, factors.mu, *state)

    def _updated(self, data: Incomplete | None, share: float) -> Stream:
        """Return the stream after a few EM steps on a chunk, or on moments that grew."""
        run, moments = self.running, self.moments
        if run is None:
            return self
        fresh = 0.0 if data is None else total_weight(data.weights)
        weight = run.weight + fresh
        gamma, steps = (fresh / weight) ** FORGET, COMPLETE_STEPS if data is None else STEPS
        origin, seen = _observed_so_far(run, moments, data)
        factors = replace(run.factors, mu=where_positive(run.seen, run.factors.mu, origin))
        old = now = run.sums
        for _ in range(steps):
            now = old
            if data is not None:
                with np.errstate(over="ignore", invalid="ignore"):
                    chunk = recentred(data.sums(factors), factors.mu - origin)
                    now = old.times(1 - gamma).plus(chunk.times(gamma / fresh))
            total = now.times(weight)
            if moments is not None:
                exact = observed.moment_sums(moments, factors)
                total = total.plus(recentred(exact, factors.mu - origin))
            refuse_overflow(float(backend.namespace(total.xx).max(total.xx)))
            nu, root = observed.latent_frame(total)
            factors = maximized(total, replace(factors, mu=origin), self.noise)
            old, now = reexpressed(old, nu, root), reexpressed(now, nu, root)
        pace = (AVERAGE + 1) * share / (1 + AVERAGE * share)
        average, n_iter = averaged(run.average, factors, pace, run.seen), run.n_iter + steps
        state = Running(factors, average, origin, now, weight, seen, n_iter, False)
        return replace(self, running=state)

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
            value += float(observed.moment_sums(self.moments, run.average).loglikelihood)
        return run.average, Record([value], run.n_iter, run.converged)


def _observed_so_far(
    run: Running, moments: Moments | None, data: Incomplete | None
) -> tuple[Array, Array]:
    """Return origins, with those of newly observed features, and 1 for features observed so far."""
    xp = backend.namespace(run.origin)
    if bool(xp.all(run.seen > 0)):
        return run.origin, run.seen
    n, mean = run.seen, run.origin
    if data is not None:
        n, mean, _ = column_starts(data.X, data.weights)
    elif moments is not None:
        n, mean = xp.ones_like(n), moments.mean
    seen = where_positive(n, xp.ones_like(run.seen), run.seen)
    return where_positive(run.seen, run.origin, mean), seen


def _spread_out(factors: Factors, kept: Host, d: int) -> Factors:
    """Return factors of some features as factors of all d, with loadings and mean 0 elsewhere."""
    W, mu = np.zeros((d, factors.W.shape[1])), np.zeros(d)
    W[kept], mu[kept] = backend.to_numpy(factors.W), backend.to_numpy(factors.mu)
    psi = np.full(d, float(factors.psi[0]))
    return Factors(*(backend.asarray(part, factors.W) for part in (W, mu, psi)))
