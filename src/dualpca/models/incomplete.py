"""PPCA and factor analysis from rows with missing values: accelerated, parameter-expanded EM.

`Fit` is the EM map of one table. Its E step, `dualpca.gaussian.stacked_latents`, is summed over
blocks of rows (`IncompleteTable`), which threads share. PPCA of a small table (`Fit.quick`) goes
through `dualpca.models.stacks`, which has another EM as well: where little is missing it completes
the rows, and takes a tenth of the steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualpca.arrays import Array, algebra, backend, cached_property
from dualpca.data import (
    SMALLEST_TRACE,
    Columns,
    Host,
    InMemoryTable,
    Moments,
    Table,
    block_weights,
    observed_weights,
)
from dualpca.errors import DegenerateError, EmptyColumnError, ScaleError
from dualpca.gaussian import (
    HEYWOOD,
    LEAST_NOISE,
    Factors,
    Incomplete,
    Sums,
    drawn_imputations,
    free_factors,
    free_parameters,
    has_vanished,
    imputed,
    m_step,
    moment_sums,
)
from dualpca.models.driver import (
    Keeper,
    Packing,
    Record,
    Step,
    Watch,
    descend,
    if_singular,
    maximize,
)
from dualpca.models.stacks import (
    MOST_ENTRIES,
    NO_POSTERIOR,
    QUICK_ENTRIES,
    Stack,
)

# --- The rows, as EM sees them: sums over a table ------------------------------------------------


class IncompleteTable:
    """A table with missing values; rows that observe nothing count nothing.

    Parameters
    ----------
    table : Table
    q : int
        Number of latents, for the size of the blocks within a chunk.
    columns : Columns, optional
        Of the table, where they are known; otherwise they are read in one pass.
    moments : Moments, optional
        Of complete rows that count too, but are not in the table.
    """

    def __init__(
        self, table: Table, q: int, columns: Columns | None = None, moments: Moments | None = None
    ) -> None:
        def prepare(rows: Array, weights: Array | None) -> Incomplete:
            return Incomplete(rows, observed_weights(rows, weights), q)

        self.columns = table.reduce(Columns.of, Columns.merge) if columns is None else columns
        self.rows, self.moments, self.n = table.prepared(prepare), moments, self.columns.weight
        if moments is not None:
            xp, n = backend.namespace(moments.mean), moments.n
            weight, variance = 0 * moments.mean + n, xp.linalg.diagonal(moments.scatter) / n
            self.columns = self.columns.merge(Columns(weight, moments.mean, variance, 0, 0, n))

    def weighing(self, weights: Array) -> IncompleteTable:
        """Return the same rows, which are in memory, under other weights; patterns are shared."""
        other = copy(self)
        other.rows = copy(self.rows)
        other.rows.ready = None if self.rows.ready is None else self.rows.ready.weighing(weights)
        return other

    def filled_product(self, mu: Array, V: Array) -> Array:
        """Return RᵀR V for the rows around μ, filled with it where nothing was observed."""
        return self.rows.reduce(lambda chunk: chunk.filled_product(mu, V), lambda a, b: a + b)

    def sums(self, factors: Factors, unsure: Array | None = None) -> Sums:
        """Take the E step; O(dq²) numbers are all that leaves a chunk."""
        sums = self.rows.reduce(lambda chunk: chunk.sums(factors, unsure), Sums.plus)
        return sums if self.moments is None else sums.plus(moment_sums(self.moments, factors))


SEED = 0
"""Of samples of rows, of folds, and of the start of EM in them."""


def some_of(table: Table, most: int) -> InMemoryTable:
    """Return the table if it has no more rows than `most`, otherwise a random sample of so many.

    A sample of a chunked table, which is in memory then, has no weights.
    """
    if not isinstance(table, InMemoryTable):
        return InMemoryTable(table.sample(most, SEED), names=table.names)
    kept = np.sort(np.random.default_rng(SEED).permutation(table.n)[:most])
    return table.taking(kept)


# --- Where EM starts -----------------------------------------------------------------------------


def start(
    data: Incomplete | IncompleteTable,
    q: int,
    mu: Array,
    variance: Array,
    rng: np.random.Generator,
    units: Array | None = None,
) -> Array:
    """Return loadings to start from: the span of the rows filled with the mean.

    With `units` (d,) that span is found among features measured in them.
    """
    xp, places = backend.namespace(mu), own_places(data, mu, units)
    V, ell = filled_axes(data, q, mu, rng, units, places)
    unit = float(xp.mean(variance if units is None else variance / units / units))
    spread = xp.sqrt(xp.maximum(ell, 0.05 * unit))
    # features with no loading at all would keep none: zero is a saddle of the likelihood
    W = V * spread + 0.1 * unit**0.5 * _drawn(rng, places, q, mu)
    return W if units is None else W * units[:, None]


def filled_axes(
    data: Incomplete | IncompleteTable,
    q: int,
    mu: Array,
    rng: np.random.Generator,
    units: Array | None = None,
    places: Host | None = None,
) -> tuple[Array, Array]:
    """Return axes (d, q) and variances (q,) of the rows filled with the mean, in `units`.

    A few subspace iterations. Missing entries count as the mean, which shrinks the variances but
    leads to the right span. `places` are those of `own_places`, where they are known.
    """
    d, scale = int(mu.shape[0]), 1.0 if units is None else units[:, None]
    places = own_places(data, mu, units) if places is None else places
    V = algebra.orthonormal(_drawn(rng, places, min(d, q + 4), mu))
    for _ in range(3):
        V, s, _ = algebra.svd(data.filled_product(mu, V / scale) / scale)
    # rounding decides the signs that a singular value decomposition gives
    return algebra.deterministic_signs(V[:, :q]), s[:q] / float(data.n)


def own_places(data: Incomplete | IncompleteTable, mu: Array, units: Array | None = None) -> Host:
    """Return the place of every feature in an order that is not that of the columns, (d,).

    They are sorted by their covariance with the sum of all: what is drawn for a feature is then the
    same wherever its column stands, and so is the maximum that EM climbs.
    """
    scale = 1.0 if units is None else units
    ones = backend.namespace(mu).ones_like(mu) / scale
    shared = backend.to_numpy(data.filled_product(mu, ones[:, None])[:, 0] / scale)
    return np.argsort(np.argsort(shared, kind="stable"), kind="stable")


def _drawn(rng: np.random.Generator, places: Host, k: int, like: Array) -> Array:
    """Return normal numbers for every feature, (d, k), handed out by their places."""
    return backend.take(backend.normal(rng, (places.size, k), like), places)


# --- Maximum likelihood: accelerated, parameter-expanded EM --------------------------------------

EM_FIRST = 30
"""Steps of EM before quasi-Newton, in factor analysis."""

FLATTEST = 1e-3
"""Least curvature of the log-likelihood per row that a slope is judged by: a hundredth is common.

A slope of tol would be a distance of tol only where the curvature is 1; in flatter directions the
number of threads would show in the scores.
"""


class Fit:
    """The EM map on vectors θ = (W, μ − μ₀, ln ψ), in units of standard deviations.

    Parameters
    ----------
    table : Table
    q : int
    noise : float, optional
        Fixed noise variance σ².
    diagonal : bool
        One ψ_j per feature (factor analysis) instead of a common σ² (PPCA). None is less than
        `HEYWOOD` of the feature's variance; of the average one, if it is constant.
    columns : Columns, optional
        Of the table, where they are known.
    moments : Moments, optional
        Of complete rows that count too.
    by_blocks : bool
        Take the way of large tables also where the table is small, so that rows in memory and the
        same rows in chunks have the same steps.
    """

    def __init__(
        self,
        table: Table,
        q: int,
        noise: float | None = None,
        *,
        diagonal: bool = False,
        columns: Columns | None = None,
        moments: Moments | None = None,
        by_blocks: bool = False,
    ) -> None:
        self.data = IncompleteTable(table, q, columns, moments)
        self.q, self.noise, self.diagonal, self.by_blocks = q, noise, diagonal, by_blocks
        self.seen, self.origin, self.variance = self.data.columns[:3]
        xp, self.d = backend.namespace(self.origin), int(self.origin.shape[0])
        refuse_empty_columns(self.seen)
        self.unit = float(xp.mean(self.variance))
        check_unit(self.unit, table, self.origin)
        # factor analysis does not depend on the features' units: nor do its path and its bounds
        own = xp.where(self.variance > 0, self.variance, 0 * self.variance + self.unit)
        self.root = xp.sqrt(own if diagonal else 0 * own + self.unit)
        square = own if diagonal else 0 * own[:1] + self.unit
        least = xp.full_like(square, HEYWOOD if diagonal else LEAST_NOISE)
        self.packing = Packing(self.d, self.root[:, None], square, least)

    def pack(self, factors: Factors) -> Array:
        """Return θ."""
        psi = factors.psi if self.diagonal else factors.psi[:1]
        return self.packing.pack(factors.W, psi, (factors.mu - self.origin) / self.root)

    def unpack(self, theta: Array) -> Factors:
        """Return the density of θ."""
        W, psi, offset = self.packing.unpack(theta, self.q)
        xp, mu = backend.namespace(theta), self.origin + offset * self.root
        psi = psi if self.noise is None else xp.full_like(psi, self.noise)
        return Factors(W, mu, psi if self.diagonal else xp.broadcast_to(psi, (self.d,)))

    @cached_property
    def quick(self) -> Stack | None:
        """The same map for a small table in memory, on the host; None for others."""
        ready = self.data.rows.ready
        if ready is None or self.data.moments is not None or self.by_blocks:
            return None
        if self.diagonal or self.noise == 0:
            return None
        n, d = ready.X.shape
        if n * d > QUICK_ENTRIES or n * self.q**2 > MOST_ENTRIES:
            return None
        X, origin = backend.to_numpy(backend.working(ready.X)), backend.to_numpy(self.origin)
        w = None if ready.weights is None else backend.to_numpy(ready.weights)
        return Stack(X[None], self.q, w, self.noise, origin[None], np.array([self.unit]))

    def step(self, theta: Array) -> tuple[Array, float]:
        """Take one EM step; return it with the log-likelihood of θ."""
        if self.quick is not None:
            after, value = self.quick.step(backend.to_numpy(theta))
            return backend.asarray(after, theta), value
        factors = self.unpack(theta)
        sums = self.expectations(factors)
        W, mu, left = m_step(sums, factors)
        return self.pack(Factors(W, mu, self._noise(left, sums.n))), self.value(sums, factors)

    def value(self, sums: Sums, factors: Factors) -> float:
        """Return what EM raises: the log-likelihood.

        Without noise it is infinite. −½ of the squares that are left, in units of the average
        variance, is its leading term as σ² → 0.
        """
        if self.noise != 0:
            return float(sums.loglikelihood)
        xp, W = backend.namespace(factors.W), factors.W
        Wzz = (sums.zz @ W[:, :, None])[:, :, 0]
        off = sums.xx - xp.sum(W * (2 * sums.xz - Wzz), axis=1)
        return -0.5 * max(float(xp.sum(off)), 0.0) / self.unit

    def expectations(self, factors: Factors) -> Sums:
        """Take the E step, or say why it cannot be taken."""
        with if_singular(NO_POSTERIOR):
            return self.data.sums(factors)

    def slope(self, theta: Array) -> tuple[float, Array]:
        """Return the log-likelihood of θ and its gradient, by Fisher's identity from the E step."""
        xp, factors = backend.namespace(theta), self.unpack(theta)
        sums = self.data.sums(factors)
        W, psi = factors.W, factors.psi
        Wzz = (sums.zz @ W[:, :, None])[:, :, 0]
        to_W = (sums.xz - Wzz) / psi[:, None]
        to_mu = (sums.x - xp.sum(W * sums.z, axis=1)) / psi
        off = sums.xx - xp.sum(W * (2 * sums.xz - Wzz), axis=1)
        to_logs = 0.5 * (off / psi - sums.n)
        parts = [xp.reshape(to_W * self.root[:, None], (-1,)), to_mu * self.root, to_logs]
        return float(sums.loglikelihood), xp.concat(parts)

    def polish(
        self, theta: Array, record: Record, tol: float, max_iter: int, keeper: Keeper
    ) -> Array:
        """Continue by quasi-Newton within the bounds of ψ: EM is slow near a Heywood case.

        Stops when no component of the gradient of the log-likelihood per row exceeds `tol` times
        `FLATTEST`. Where rounding ends it before, `tol` is enough.
        """
        n, low = self.data.n, np.log(backend.to_numpy(self.packing.floor))

        def objective(x: Host) -> tuple[float, Host]:
            value, slope = self.slope(backend.asarray(x, theta))
            return -value / n, -backend.to_numpy(slope) / n

        bounds: list[Any] = [(None, None)] * (self.d * (self.q + 1))
        bounds += [(b, self.packing.ceiling) for b in low]
        start, near = backend.to_numpy(theta), FLATTEST * tol
        found = descend(
            objective, start, bounds, record, lambda value: -n * value, near, max_iter, keeper
        )
        if not record.ended:
            slope, least = objective(found)[1], np.array([b[0] or -np.inf for b in bounds])
            held = (found <= least) & (slope > 0)
            record.converged = bool(np.all(held | (np.abs(slope) <= tol)))
        return backend.asarray(found, theta)

    def weighing(self, weights: Array) -> Fit:
        """Return the fit of the same rows, which are in memory, under other weights."""
        quick, other = self.quick, copy(self)
        other.data = self.data.weighing(weights)
        other.quick = None if quick is None else quick.weighing(backend.to_numpy(weights))
        return other

    def climb(self, factors: Factors, steps: int) -> Factors:
        """Return where a few accelerated steps of EM lead from a density close to the maximum."""
        return self.unpack(few_steps(self.step, self.pack(factors), steps))

    def _noise(self, left: Array, n: Array) -> Array:
        """Return the noise of sums of squares left over by n rows, one of each per feature."""
        xp = backend.namespace(left)
        if self.diagonal and self.noise is None:
            return left / n
        sigma2 = float(xp.sum(left) / xp.sum(n)) if self.noise is None else self.noise
        return xp.full_like(left, sigma2)

    def begin(self, rng: np.random.Generator, psi: Array | None = None) -> Array:
        """Return θ to start from: the span of the rows filled with means, and noise ψ."""
        xp, units = backend.namespace(self.origin), self.root if self.diagonal else None
        W = start(self.data, self.q, self.origin, self.variance, rng, units)
        left = xp.maximum(self.variance - xp.sum(W * W, axis=1), 0.05 * self.packing.square)
        psi = self._noise(left, xp.ones_like(left)) if psi is None else psi
        return self.pack(Factors(W, self.origin, psi))

    def begin_anywhere(self, rng: np.random.Generator) -> Array:
        """Return a random θ to start from."""
        units = self.root if self.diagonal else None
        drawn = _drawn(rng, own_places(self.data, self.origin, units), self.q, self.origin)
        W = 0.5 * self.root[:, None] * drawn
        square = 0 * self.root + self.packing.square
        return self.pack(Factors(W, self.origin, self._noise(square, 0 * square + 1)))

    def keeper(self, watch: Watch | None) -> Keeper:
        """Return what keeps the state of this fit."""
        return Keeper() if watch is None else watch.over(self.data.n, self.origin, self.variance)

    def merit(self, run: tuple[Factors, Record]) -> tuple[bool, float]:
        """Return what to compare runs by: a noise that did not vanish, then the likelihood."""
        smallest = float(backend.namespace(run[0].psi).min(run[0].psi / self.packing.square))
        return not has_vanished(smallest, 1.0), run[1].loglikelihoods[-1]


def fit_incomplete(
    fit: Fit,
    rng: np.random.Generator,
    psi: Array | None = None,
    *,
    tol: float = 1e-4,
    max_iter: int = 1000,
    n_init: int = 1,
    watch: Watch | None = None,
) -> tuple[Factors, Record]:
    """Fit x = Wz + μ + ε to rows with missing values by the likelihood of the observed entries.

    With a ψ of its own for every feature, EM is followed by quasi-Newton on the same likelihood;
    `psi` is the noise to start from. Of `n_init` starts, the first from the span of the rows
    filled with means and the others random, the one that ends most likely is kept. With a
    `watch` there is one start, and a checkpoint of it.

    Cost of a step: O(|X| q²/2) for the products with the mask and O(q³) per pattern; memory one
    block of rows beyond X.
    """
    keeper = fit.keeper(watch)
    theta = fit.begin(rng, psi) if keeper.state is None else fit.origin
    best = _run(fit, theta, tol, max_iter, keeper)
    if not best[1].interrupted:
        keeper.done()
    for _ in range(n_init - 1):
        if best[1].interrupted:
            break
        try:
            other = _run(fit, fit.begin_anywhere(rng), tol, max_iter, Keeper())
        except DegenerateError:
            continue
        best = max(best, other, key=fit.merit)
    return best


def _run(
    fit: Fit, theta: Array, tol: float, max_iter: int, keeper: Keeper
) -> tuple[Factors, Record]:
    """Climb from one start."""
    steps = min(max_iter, EM_FIRST) if fit.diagonal else max_iter
    near = FLATTEST * tol if steps < max_iter else tol  # EM alone, if there is no quasi-Newton
    if keeper.state is not None and "values" in keeper.state[0]:  # quasi-Newton had begun
        theta = backend.asarray(keeper.state[0]["theta"], theta)
        record = Record.of(keeper.state)
    else:
        theta, record = maximize(fit.step, theta, tol=near, max_iter=steps, keeper=keeper)
    if steps < max_iter and not record.ended:
        theta = fit.polish(theta, record, tol, max_iter - steps, keeper)
    factors = fit.unpack(theta)
    record.add(fit.value(fit.data.sums(factors), factors))
    return factors, record


# --- Other parameters that the rows allow: refits to bootstraps of them --------------------------

NEAR = 1e-3
"""Relative distance to the maximum at which a refit stops: far below the spread of refits."""

REFIT_STEPS = 20
"""Largest number of EM steps of a refit; after 5 of them nine tenths of the variance is there."""

REDRAWS = 100
"""Times that a bootstrap without enough rows of some feature is drawn again."""


def few_steps(step: Step, theta: Array, steps: int, *, accelerate: bool = True) -> Array:
    """Return θ after a few EM steps, fewer if it is at the maximum; Ctrl-C ends all refits."""
    found, record = maximize(step, theta, tol=NEAR, max_iter=steps, accelerate=accelerate)
    record.raise_interrupted()
    return found


@dataclass(frozen=True)
class RefitRequest:
    """How `refits` finds other parameters."""

    kind: Callable[..., Fit] = Fit
    diagonal: bool = False  # one noise per feature
    fixed_noise: bool = False  # the noise was given, and stays
    steps: int = REFIT_STEPS


STD_REFITS = 20
"""Refits behind the standard deviations of imputed entries."""

ENOUGH_ENTRIES = 50
"""Observed entries per free parameter from which fixed parameters lose less than a hundredth."""


def least_rows(q: int) -> int:
    """Return the smallest number of rows whose bootstrap says something of q latents."""
    return max(20, 2 * (q + 1))


def free_numbers(factors: Factors, diagonal: bool) -> int:
    """Return the number of free parameters: loadings up to rotation, mean, noise."""
    d, q = map(int, factors.W.shape)
    return d + (free_factors(q, d) if diagonal else free_parameters(q, d))


def needs_refits(factors: Factors, rows: Array, diagonal: bool) -> bool:
    """Return True if the uncertainty of the parameters shows in what the rows miss."""
    seen = backend.to_numpy(~backend.namespace(rows).isnan(rows))
    if seen.all() or not seen.any(axis=0).all():
        return False
    enough = int(seen.any(axis=1).sum()) >= least_rows(int(factors.W.shape[1]))
    return enough and int(seen.sum()) < ENOUGH_ENTRIES * free_numbers(factors, diagonal)


def refits(
    factors: Factors,
    rows: Array,
    weights: Array | None,
    n_draws: int,
    rng: np.random.Generator,
    request: RefitRequest | None = None,
) -> Iterator[Factors]:
    """Yield densities refitted to bootstraps of the rows, EM started at `factors` (theory 4).

    Rows are drawn with replacement, in proportion to their weights: as many as the weights sum to,
    so that a weight of 2 is a row that is there twice. Rows that observe nothing are not drawn.

    Cost: up to `request.steps` EM steps per draw; patterns of missing values are found once.
    """
    request = request or RefitRequest()
    if factors.W.shape[1] == 0:
        factors = Factors(0 * factors.mu[:, None], factors.mu, factors.psi)
    noise = float(factors.psi[0]) if request.fixed_noise else None
    q, table = int(factors.W.shape[1]), InMemoryTable(rows, weights)
    fit = request.kind(table, q, noise, diagonal=request.diagonal)
    w = block_weights(observed_weights(rows, weights), slice(None), rows)
    draw = _Bootstrap(backend.to_numpy(w), ~np.isnan(backend.to_numpy(rows)), q)
    for _ in range(n_draws):
        weights = backend.asarray(draw(rng), fit.origin)
        yield fit.weighing(weights).climb(factors, request.steps)


def sampled_imputations(
    densities: Iterator[Factors], rows: Array, rng: np.random.Generator
) -> Array:
    """Draw a completed table under each density, (n_draws, n, d)."""
    tables = [drawn_imputations(factors, rows, 1, rng) for factors in densities]
    return backend.namespace(rows).concat(tables, axis=0)


LARGEST_SHARE = 0.5
"""Most that the parameters are taken to have absorbed of the noise."""


def imputed_unsurely(
    factors: Factors,
    rows: Array,
    rng: np.random.Generator,
    request: RefitRequest,
    weights: Array | None = None,
) -> tuple[Array, Array]:
    """Return expectations at `factors` and deviations that count the parameters as estimated.

    The variance is that of the expectation over refits, plus the conditional variance times
    N/(N − p), for N observed entries and p parameters: noise at its maximum likelihood is too small
    by that much.
    """
    xp, (filled, spread) = backend.namespace(rows), imputed(factors, rows, True)
    assert spread is not None
    mean = square = 0 * filled
    for k, other in enumerate(refits(factors, rows, weights, STD_REFITS, rng, request), 1):
        off = imputed(other, rows)[0] - filled - mean  # around the maximum: no digits are lost
        mean = mean + off / k
        square = square + (1 - 1 / k) * off * off
    between = square / (STD_REFITS - 1)
    counts = xp.sum(xp.astype(~xp.isnan(rows), xp.float64), axis=1)
    N = float(xp.sum(counts if weights is None else counts * weights))
    share = min(free_numbers(factors, request.diagonal) / N, LARGEST_SHARE)
    variance = spread * spread / (1 - share) + between
    return filled, xp.where(xp.isnan(rows), xp.sqrt(variance), xp.zeros_like(variance))


class _Bootstrap:
    """Draws of rows with replacement, as the number of times that each row is drawn.

    A draw in which some feature is observed by too few different rows is drawn again.
    """

    def __init__(self, weights: Host, seen: Host, q: int) -> None:
        self.p, self.total = weights / weights.sum(), float(weights.sum())
        self.seen = (seen & (weights > 0)[:, None]).astype(np.float64)
        self.least = np.minimum(np.ceil(self.seen.sum(axis=0) / 2), q + 2)

    def __call__(self, rng: np.random.Generator) -> Host:
        """Return one draw, (n,)."""
        count = max(round(self.total), 1)
        for _ in range(REDRAWS):
            drawn = rng.multinomial(count, self.p)
            if np.all((drawn > 0) @ self.seen >= self.least):
                break
        return drawn * (self.total / count)


def check_unit(unit: float, X: Array | Table, origin: Array) -> None:
    """Raise where the average variance is no usable number, saying why."""
    refuse_overflow(unit)
    if unit < SMALLEST_TRACE:
        if _largest_offset(X, origin) > 0:
            raise ScaleError(
                "X varies too little: its variance underflows float64. Multiply X by a constant."
            )
        raise DegenerateError(
            "every feature is constant where it is observed: there is nothing to model."
        )


def refuse_overflow(variance: float) -> None:
    """Raise if a variance is beyond floating point."""
    if not math.isfinite(variance):
        raise ScaleError(
            "X is too large: its variance overflows float64. Divide X by a constant first."
        )


def _largest_offset(X: Array | Table, origin: Array) -> float:
    """Return the largest |x − origin| of the observed entries."""
    if isinstance(X, Table):
        return X.reduce(lambda rows, weights=None: _largest_offset(rows, origin), max)
    xp = backend.namespace(X)
    off = xp.where(xp.isnan(X), xp.zeros_like(X), X - backend.cast_like(origin, X))
    return float(xp.max(xp.abs(off)))


def refuse_empty_columns(seen: Array) -> None:
    """Raise if a feature was never observed, naming it."""
    empty = np.flatnonzero(backend.to_numpy(seen) == 0)
    if empty.size:
        raise EmptyColumnError([int(j) for j in empty])
