"""PPCA and factor analysis from rows with missing values: accelerated, parameter-expanded EM.

`Fit` is the EM map of one table. Its E step, `dualpca.gaussian.stacked_latents`, is summed over
blocks of rows (`IncompleteTable`), which threads share. PPCA of small tables goes through `Stack`:
several tables at once, in a few NumPy calls per step, and where little is missing by another EM,
which completes the rows and takes a tenth of the steps.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dualpca.arrays import (
    Array,
    algebra,
    backend,
    cached_property,
    inverse_factors,
    lower_pairs,
    lower_squares,
    triangle_rows,
)
from dualpca.data import (
    SMALLEST_TRACE,
    Columns,
    Host,
    InMemoryTable,
    Moments,
    Table,
    observed_weights,
)
from dualpca.errors import DegenerateError, EmptyColumnError, ScaleError
from dualpca.gaussian import (
    LOG_2PI,
    Expectations,
    Factors,
    Incomplete,
    StackedLatents,
    Sums,
    observed,
    rules,
)
from dualpca.models import driver

# --- The rows, as EM sees them: sums over a table ------------------------------------------------


Total = TypeVar("Total")


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
        self.table, self.q, self.moments = table, q, moments
        self.columns = table.reduce(Columns.of, Columns.merge) if columns is None else columns
        self.n = self.columns.weight
        self.ready: Incomplete | None = None
        if isinstance(table, InMemoryTable):
            weights = observed_weights(table.rows, table.weights)
            self.ready = Incomplete(table.rows, weights, q)
        if moments is not None:
            xp, n = backend.namespace(moments.mean), moments.n
            weight, variance = 0 * moments.mean + n, xp.linalg.diagonal(moments.scatter) / n
            self.columns = self.columns.merge(Columns(weight, moments.mean, variance, 0, 0, n))

    def with_weights(self, weights: Array) -> IncompleteTable:
        """Return the same rows, which are in memory, under other weights; patterns are shared."""
        other = copy(self)
        other.ready = None if self.ready is None else self.ready.with_weights(weights)
        vars(other).pop("pair_counts", None)
        return other

    def _summed(
        self, of: Callable[[Incomplete], Total], plus: Callable[[Total, Total], Total]
    ) -> Total:
        """Return a sum over the rows; those in memory are prepared once."""
        if self.ready is not None:
            return of(self.ready)
        q = self.q  # all that is sent to other machines

        def part(rows: Array, weights: Array | None = None) -> Total:
            return of(Incomplete(rows, observed_weights(rows, weights), q))

        return self.table.reduce(part, plus)

    def filled_product(self, mu: Array, V: Array) -> Array:
        """Return RᵀR V for the rows around μ, filled with it where nothing was observed."""
        return self._summed(lambda chunk: chunk.filled_product(mu, V), operator.add)

    def sums(self, factors: Factors, unsure: Array | None = None) -> Sums:
        """Take the E step; O(dq²) numbers are all that leaves a chunk."""
        return self.expectations(factors, unsure).sums

    def expectations(
        self, factors: Factors, unsure: Array | None = None, *, residuals: bool = False
    ) -> Expectations:
        """Take the E step, with products of residuals if they are wanted."""
        found = self._summed(
            lambda chunk: chunk.expectations(factors, unsure, residuals=residuals),
            Expectations.plus,
        )
        if self.moments is None:
            return found
        return found._replace(sums=found.sums.plus(observed.moment_sums(self.moments, factors)))

    @cached_property
    def pair_counts(self) -> Host:
        """The weight of the rows that observe both of two features, (d, d)."""
        return backend.to_numpy(self._summed(lambda chunk: chunk.pair_counts(), operator.add))


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


# --- Small tables, several at once ---------------------------------------------------------------
#
# On a small table the number of calls is what takes time, not the arithmetic. So tables of one
# shape (the folds of a cross-validation) are stacked, and their matrices factored side by side, the
# rows along the last axis. One θ holds the parameters of all, so that one driver climbs for all.
#
# Two EMs have the same maxima. One completes the latents, by the E step of all tables
# (`dualpca.gaussian.stacked_latents`); the other completes the rows, with a matrix of the size of
# what a row misses, and ends in closed form. The cheaper one is taken: PPCA(8) on 5,000×20 with 5 %
# missing takes 12 steps and 0.09 s by rows, 190 steps and 1.1 s by latents.

NO_POSTERIOR = (
    "a posterior cannot be computed in floating point: the noise is too small for the loadings. "
    "Use fewer components (the data may have a lower rank)."
)

LARGEST_NOISE = 50.0
"""Of ln σ²/unit."""

FEWER_STEPS = 0.4
"""Price of completing rows over that of completing latents up to which rows are completed.

A step for rows has more besides; they need fewer steps only where little is missing, or noise is
large, and there they are far cheaper.
"""

OBSERVED_SHARE = 0.3
"""Share of the rows that must observe a column for rows to be completed."""

LEAST_SHARE = 1e-13
"""Of σ² in the largest variance, below which rows are not completed: too many digits cancel."""

MOST_ENTRIES, QUICK_ENTRIES, FEWEST_TURNED = 2**22, 2**18, 2**16
"""Of a stack, of a single table, of which threads share larger ones, and of one whose steps are
turned instead (`Fit.turns`): a step of a smaller table is too cheap for that."""

BATCH, SMALLEST_BATCH, BATCH_SHARE = 2**16, 64, 0.7
"""Numbers of a batch of matrices of what rows miss, its fewest rows, and how alike they are."""

WIDEST_ROWS = 128
"""Features up to which rows are completed, with matrices (d, d)."""


Number = TypeVar("Number", float, Host)


class Guess(NamedTuple):
    """What a density expects of missing entries, and where its residuals point."""

    mean: Host  # (K, d, n), around μ₀
    variance: Host  # (K, d, n), where something is missing
    next: Host  # (K, p'), parameters of one more latent to start from


class CompletedRows(NamedTuple):
    """Rows completed by their expectations, around μ."""

    loglikelihood: Host  # (K,)
    S: Host  # (K, d, d), covariance of the completed rows, with what is unsure
    shift: Host  # (K, d), their mean
    R: Host  # (K, d, n)
    covariance: Host  # lower triangles, by batches, in units of σ²


class CompletedLatents(NamedTuple):
    """The posterior of the latents, and the sums over it."""

    sums: Sums  # of K tables
    latents: StackedLatents

    @property
    def loglikelihood(self) -> Host:
        """Of each table, (K,)."""
        return np.asarray(self.sums.loglikelihood)


class Expected(NamedTuple):
    """An E step: the parameters at which it was taken, and what it completed."""

    W: Host  # (K, d, q)
    delta: Host  # (K, d), μ − μ₀
    sigma2: Host  # (K,)
    found: CompletedRows | CompletedLatents

    @property
    def loglikelihood(self) -> float:
        """Of all tables."""
        return float(self.found.loglikelihood.sum())

    @property
    def theta(self) -> tuple[Host, Host, Host]:
        """The parameters."""
        return self[:3]


def price(k: Number) -> Number:
    """Return nanoseconds that a matrix of order k takes to be factored and inverted, measured."""
    return k * k * (12 + 0.7 * k)


class Batch(NamedTuple):
    """Rows that miss about equally many entries, m at most."""

    m: int
    size: int
    entries: slice  # theirs, m times `size`, among those of all batches
    pairs: slice  # likewise of their lower triangles


class Gaps:
    """Where rows miss something: numbers of entries among (K, d, n), and of pairs among (K, d, d).

    The rows with most of them come first, in batches, so that little is padded.
    """

    def __init__(self, missing: Host) -> None:
        K, d, n = missing.shape
        count = missing.sum(axis=1)  # (K, n)
        order = np.argsort(-count, axis=None, kind="stable")
        self.row = order = order[: np.count_nonzero(count)]
        sizes = count.ravel()[order]
        tables, rows = order // n, order % n
        entries: list[Host] = []
        pairs: list[Host] = []
        self.batches: list[Batch] = []
        ends, begin = [0, 0], 0
        while begin < order.size:
            m = int(sizes[begin])
            like = int(np.searchsorted(-sizes, -BATCH_SHARE * m, side="right"))
            most = max(SMALLEST_BATCH, BATCH // (m * m))
            stop = min(max(like, begin + SMALLEST_BATCH), begin + most, order.size)
            here = slice(begin, stop)
            table, row = tables[here], rows[here]
            columns = np.argsort(~missing[table, :, row], axis=1, kind="stable")[:, :m].T
            there = np.arange(m)[:, None] < sizes[here]
            entries.append(np.where(there, (table * d + columns) * n + row, K * d * n).ravel())
            i, j = np.tril_indices(m)
            pair = np.where(there[i], (table * d + columns[i]) * d + columns[j], K * d * d)
            pair[(i == j)[:, None] & ~there[i]] = K * d * d + 1
            pairs.append(pair.ravel())
            cuts = [
                slice(end, end + part[-1].size)
                for end, part in zip(ends, (entries, pairs), strict=True)
            ]
            self.batches.append(Batch(m, stop - begin, *cuts))
            ends, begin = [cut.stop for cut in cuts], stop
        self.entry = np.concatenate([np.empty(0, dtype=np.int64), *entries])
        self.pair = np.concatenate([np.empty(0, dtype=np.int64), *pairs])
        self.K, self.d = K, d

    def solved(self, B: Host, pull: Host) -> tuple[Host, Host, Host]:
        """Return B_mm⁻¹ pull_m and the lower triangles of B_mm⁻¹, by batches, and ln |B_mm|."""
        A = np.append(B.ravel(), (0.0, 1.0))[self.pair]
        h, logdet = pull[self.entry], np.empty(self.row.size)
        begin = 0
        for m, size, entries, pairs in self.batches:
            triangle, part = A[pairs].reshape(1, -1, size), np.empty((1, m, m, size))
            for i, row in enumerate(triangle_rows(triangle, m)):
                part[:, i, : i + 1] = row
            J, logdet[begin : begin + size] = inverse_factors(part)
            y = np.einsum("ijn,jn->in", J[0], h[entries].reshape(m, size))
            h[entries] = np.einsum("jin,jn->in", J[0], y).ravel()
            for place, row in zip(triangle_rows(triangle, m), lower_squares(J), strict=True):
                place[:] = row
            begin += size
        return h, A, logdet

    def spread(self, A: Host, w: Host | None) -> Host:
        """Return the sum of matrices, given by lower triangles, each in its place, (K, d, d)."""
        if w is not None:
            A, begin = A.copy(), 0
            for _, size, _, pairs in self.batches:
                A[pairs] = (A[pairs].reshape(-1, size) * w[begin : begin + size]).ravel()
                begin += size
        K, d = self.K, self.d
        half = np.bincount(self.pair, A, K * d * d + 2).astype(np.float64)
        T: Host = half[:-2].reshape(K, d, d)
        T = T + T.swapaxes(1, 2)
        T[:, np.arange(d), np.arange(d)] /= 2
        return T

    def diagonals(self, A: Host) -> Host:
        """Return the diagonals of matrices given by their lower triangles, as `entry` has them."""
        found = np.empty(self.entry.size)
        for m, size, entries, pairs in self.batches:
            i = np.arange(m)
            found[entries] = A[pairs].reshape(-1, size)[i * (i + 3) // 2].ravel()
        return found


class Stack:
    """The EM map on θ of K tables at once: (W, μ − μ₀, ln σ²) of each, in standard deviations.

    Parameters
    ----------
    tables : array of shape (K, n, d)
        NaN where nothing was observed.
    q : int
    weights : array of shape (n,) or (K, n), optional
        0 for rows that observe nothing.
    noise : float, optional
        Fixed σ² > 0.
    origin, unit : arrays of shape (K, d) and (K,), optional
        Means and average variance, where they are known.
    """

    def __init__(
        self,
        tables: Host,
        q: int,
        weights: Host | None = None,
        noise: float | None = None,
        origin: Host | None = None,
        unit: Host | None = None,
    ) -> None:
        X = np.ascontiguousarray(np.swapaxes(tables, 1, 2), dtype=np.float64)
        seen = ~np.isnan(X)
        (self.K, self.d, self.n), self.q, self.noise = X.shape, q, noise
        self.mask, self.missing = seen.astype(np.float64), ~seen
        self._gaps: list[Gaps] = []
        empty = ~seen.any(axis=1)
        self.w: Host | None = None
        if weights is not None or empty.any():
            self.w = np.where(empty, 0.0, 1.0 if weights is None else weights)
        if origin is None:
            counted = seen if self.w is None else seen & (self.w > 0)[:, None, :]
            origin = self._sum(np.where(counted, X, 0.0)) / self.counts
        self.origin = origin
        counted = seen if self.w is None else seen & (self.w > 0)[:, None, :]
        self.R = np.where(counted, X - origin[:, :, None], 0.0)
        if unit is None:
            unit = (self._sum(self.R * self.R) / self.counts).mean(axis=1)
        self.unit, self.root = unit, np.sqrt(unit)

    def _sum(self, A: Host) -> Host:
        """Return the weighted sum over rows of (K, d, n)."""
        found: Host = A.sum(axis=2) if self.w is None else np.einsum("adn,an->ad", A, self.w)
        return found

    @cached_property
    def counts(self) -> Host:
        """The rows that observe each feature, (K, d)."""
        return self._sum(self.mask)

    @cached_property
    def total(self) -> Host:
        """The weight of all rows, (K,)."""
        return np.full(self.K, float(self.n)) if self.w is None else self.w.sum(axis=1)

    @cached_property
    def squares(self) -> Host:
        """Σ (x − μ₀)², (K, d)."""
        return self._sum(self.R * self.R)

    @property
    def gaps(self) -> Gaps:
        """Where something is missing; found once, also for copies."""
        if not self._gaps:
            self._gaps.append(Gaps(self.missing))
        return self._gaps[0]

    @cached_property
    def has_rare_columns(self) -> bool:
        """Whether some column is hardly observed: completing it climbs in tiny steps."""
        return bool((self.counts < OBSERVED_SHARE * self.total[:, None]).any())

    @cached_property
    def price_of_rows(self) -> float:
        """Nanoseconds per row of a step that completes rows."""
        of_rows = float(np.mean(price(self.missing.sum(axis=1))))
        return of_rows + 0.1 * float(self.d) ** 2

    def with_weights(self, weights: Host) -> Stack:
        """Return the same tables under other weights; what is missing is not looked for again."""
        other = copy(self)
        for name in ("counts", "total", "squares", "has_rare_columns"):
            vars(other).pop(name, None)
        other.w = np.where(~(self.mask > 0).any(axis=1), 0.0, weights)
        return other

    def with_components(self, q: int) -> Stack:
        """Return the same tables for another number of latents."""
        other = copy(self)
        other.q = q
        return other

    # --- θ ------------------------------------------------------------------------------------

    def pack(self, W: Host, delta: Host, sigma2: Host) -> Host:
        """Return θ, flat."""
        share = np.log(np.maximum(sigma2 / self.unit, rules.LEAST_NOISE))
        root = self.root[:, None]
        parts = [W.reshape(self.K, -1) / root, delta / root, share[:, None]]
        return np.concatenate(parts, axis=1).ravel()

    def unpack(self, theta: Host) -> tuple[Host, Host, Host]:
        """Return W (K, d, q), μ − μ₀ (K, d) and σ² (K,)."""
        theta, size = theta.reshape(self.K, -1), self.d * self.q
        W = (theta[:, :size] * self.root[:, None]).reshape(self.K, self.d, self.q)
        logs = np.clip(theta[:, -1], np.log(rules.LEAST_NOISE), LARGEST_NOISE)
        sigma2 = np.exp(logs) * self.unit
        if self.noise is not None:
            sigma2 = np.full_like(sigma2, self.noise)
        return W, theta[:, size:-1] * self.root[:, None], sigma2

    def begin(self) -> Host:
        """Return θ to start from: axes of the rows filled with their means."""
        R = self.R if self.w is None else self.R * np.sqrt(self.w)[:, None, :]
        S = R @ R.swapaxes(1, 2) / self.total[:, None, None]
        return self.pack(*self._closed(S, np.zeros((self.K, self.d)), None))

    # --- One step -----------------------------------------------------------------------------

    def completes_rows(self, sigma2: Host, W: Host) -> bool:
        """Return True if rows are completed, not latents."""
        if self.d > WIDEST_ROWS or self.q >= self.d or self.has_rare_columns:
            return False
        price_of_latents = float(price(self.q)) + 0.05 * self.d * self.q**2
        if self.price_of_rows > FEWER_STEPS * price_of_latents:
            return False
        return bool(np.all(sigma2 > LEAST_SHARE * np.einsum("adq,adq->a", W, W)))

    def step(self, theta: Host, kept: list[Expected] | None = None) -> tuple[Host, float]:
        """Take one EM step; return it with the log-likelihood of θ.

        The most likely E step so far is left in `kept`, where there is such a list.
        """
        with driver.if_singular(NO_POSTERIOR):
            found = self.expected(theta)
            value = found.loglikelihood
            if kept is not None and (not kept or value > kept[0].loglikelihood):
                kept[:] = [found]
            return self._improved(found), value

    def expected(self, theta: Host) -> Expected:
        """Take the E step at θ, in the cheaper of two ways."""
        W, delta, sigma2 = self.unpack(theta)
        of = self._rows if self.completes_rows(sigma2, W) else self._latents
        return Expected(W, delta, sigma2, of(W, delta, sigma2))

    def _improved(self, at: Expected) -> Host:
        """Take the M step; return θ."""
        if isinstance(at.found, CompletedRows):
            return self.pack(*self._closed(at.found.S, at.delta + at.found.shift, at.W))
        W, delta, left = observed.m_step(at.found.sums, Factors(at.W, at.delta, at.sigma2))
        return self.pack(W, delta, left.sum(axis=1) / self.counts.sum(axis=1))

    def _rows(self, W: Host, delta: Host, sigma2: Host) -> CompletedRows:
        """Complete the rows by what they are expected to have, given what was observed."""
        K, d, n, gaps = self.K, self.d, self.n, self.gaps
        # all axes: what is small in the inverse of the covariance must not be a difference
        V, s, _ = np.linalg.svd(W, full_matrices=True)
        ell = np.repeat(sigma2[:, None], d, axis=1)
        ell[:, : self.q] += s * s
        B = (V * (sigma2[:, None] / ell)[:, None, :]) @ V.swapaxes(1, 2)
        buffer = np.empty(K * d * n + 1)
        R = buffer[:-1].reshape(K, d, n)
        np.multiply(self.mask, delta[:, :, None], out=R)
        np.subtract(self.R, R, out=R)
        filled, covariance, logdet = gaps.solved(B, np.append((B @ R).ravel(), 0.0))
        buffer[gaps.entry] = -filled
        T = gaps.spread(covariance, None if self.w is None else self.w.ravel()[gaps.row])
        Y = V.swapaxes(1, 2) @ R
        distance = np.einsum("adn,ad->an", Y * Y, 1 / ell)
        volumes = np.zeros(K * n)
        volumes[gaps.row] = logdet
        logs = np.log(sigma2)[:, None]
        seen = self.mask.sum(axis=1)
        volume = np.log(ell).sum(axis=1)[:, None] + (seen - d) * logs + LOG_2PI * seen
        density = -0.5 * (volume + volumes.reshape(K, n) + distance)
        total = self.total
        if self.w is None:
            value, shift, S = density.sum(axis=1), R.sum(axis=2), R @ R.swapaxes(1, 2)
        else:
            value, wR = (self.w * density).sum(axis=1), R * self.w[:, None, :]
            shift, S = wR.sum(axis=2), wR @ R.swapaxes(1, 2)
        shift = shift / total[:, None]
        S = (S + sigma2[:, None, None] * T) / total[:, None, None]
        S -= shift[:, :, None] * shift[:, None, :]
        return CompletedRows(value, S, shift, R, covariance)

    def _closed(
        self, S: Host, delta: Host, W: Host | None, q: int | None = None
    ) -> tuple[Host, Host, Host]:
        """Return the maximum for covariances S, turned to be as close to W as it can."""
        q, d = self.q if q is None else q, self.d
        lam, V = np.linalg.eigh(S)
        lam, rest = lam[:, d - q :], lam[:, : d - q]
        sigma2 = np.maximum(rest.mean(axis=1), rules.LEAST_NOISE * self.unit)
        if self.noise is not None:
            sigma2 = np.full(self.K, self.noise)
        found = V[:, :, d - q :] * np.sqrt(np.maximum(lam - sigma2[:, None], 0.0))[:, None, :]
        if W is not None:
            left, _, right = np.linalg.svd(found.swapaxes(1, 2) @ W)
            found = found @ (left @ right)
        return found, delta, sigma2

    def _latents(self, W: Host, delta: Host, sigma2: Host) -> CompletedLatents:
        """Complete the latents: sums over their posterior given what was observed."""
        R = self.R - self.mask * delta[:, :, None]
        psi = np.repeat(sigma2[:, None], self.d, axis=1)
        found = observed.stacked_latents(W, psi, R, self.mask)
        return CompletedLatents(Sums.of(found, R, self.mask, self.w), found)

    def leap(self, at: Expected, most: int) -> tuple[Stack, Host]:
        """Return the stack for up to `most` latents that leave noise, and where to start from."""
        rows = at.found
        if not isinstance(rows, CompletedRows):
            rows = self._rows(at.W, at.delta, at.sigma2)
        lam = np.linalg.eigvalsh(rows.S) / self.unit[:, None]
        rest = (np.cumsum(lam, axis=1) / np.arange(1, self.d + 1)).min(axis=0)
        fewest = 1 + int(np.argmax(rest > 20 * rules.LEAST_NOISE))  # that are left for noise
        other = self.with_components(max(min(most, self.d - fewest), self.q))
        return other, other.pack(*other._closed(rows.S, at.delta + rows.shift, None))

    def leaves_noise(self, at: Expected) -> bool:
        """Return True if no σ² has vanished."""
        return not any(map(rules.has_vanished, at.sigma2, self.unit))

    # --- What was hidden, and one more latent -------------------------------------------------

    def guess(self, at: Expected) -> Guess:
        """Return expectations of missing entries, and where to start with one more latent."""
        W, delta, sigma2, found = at
        shape, more, last = (self.K, self.d, self.n), self.q + 1, self.q + 1 >= self.d
        if isinstance(found, CompletedRows):
            flat = np.zeros(math.prod(shape) + 1)
            flat[self.gaps.entry] = self.gaps.diagonals(found.covariance)
            variance = flat[:-1].reshape(shape) * sigma2[:, None, None]
            mean = found.R + delta[:, :, None]
            start = None if last else self._closed(found.S, delta + found.shift, None, more)
        else:
            i, j = lower_pairs(self.q)
            outer = W[:, :, i] * W[:, :, j] * np.where(i == j, 1.0, 2.0)
            variance = outer @ found.latents.covariance + sigma2[:, None, None]
            mean, off = W @ found.latents.mean + delta[:, :, None], found.latents.off
            start = None if last else (self._with_one_more(W, off, sigma2), delta, sigma2)
        after = self.pack(*at.theta) if start is None else self.with_components(more).pack(*start)
        return Guess(mean, variance, after)

    def _with_one_more(self, W: Host, off: Host, sigma2: Host) -> Host:
        """Return W and the direction in which residuals vary most, (K, d, q + 1)."""
        lam, V = np.linalg.eigh(off @ off.swapaxes(1, 2))
        most = lam[:, -1] / self.counts.mean(axis=1)
        size = np.sqrt(np.maximum(most - sigma2, 0.1 * sigma2))
        return np.concatenate([W, (V[:, :, -1] * size[:, None])[:, :, None]], axis=2)


# --- Maximum likelihood: accelerated, parameter-expanded EM --------------------------------------

WIDEST_TURN, ROWS_PER_TURN = 250, 4
"""Features up to which steps are turned to their end, and the fewest rows per feature."""

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
    accelerate : bool
        Extrapolate, expand and turn steps; otherwise they are those of plain EM.
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
        accelerate: bool = True,
    ) -> None:
        self.accelerate, self.data = accelerate, IncompleteTable(table, q, columns, moments)
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
        least = xp.full_like(square, rules.HEYWOOD if diagonal else rules.LEAST_NOISE)
        self.packing = driver.Packing(self.d, self.root[:, None], square, least)

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
        ready = self.data.ready
        if ready is None or self.data.moments is not None or self.by_blocks:
            return None
        if self.diagonal or self.noise == 0 or not self.accelerate:
            return None
        n, d = ready.X.shape
        most = FEWEST_TURNED if self.turns else QUICK_ENTRIES
        if n * d > most or n * self.q**2 > MOST_ENTRIES:
            return None
        X, origin = backend.to_numpy(backend.working(ready.X)), backend.to_numpy(self.origin)
        w = None if ready.weights is None else backend.to_numpy(ready.weights)
        return Stack(X[None], self.q, w, self.noise, origin[None], np.array([self.unit]))

    @cached_property
    def turns(self) -> bool:
        """Whether a step is cheap enough to be turned to its end, by products of residuals."""
        if self.diagonal or self.noise == 0 or self.data.moments is not None or self.q >= self.d:
            return False
        if not self.accelerate:
            return False
        return self.d <= min(WIDEST_TURN, self.data.n / ROWS_PER_TURN)

    def step(self, theta: Array) -> tuple[Array, float] | tuple[Array, float, Array]:
        """Take one EM step; return it with the log-likelihood of θ, and a bolder step."""
        if self.quick is not None:
            after, value = self.quick.step(backend.to_numpy(theta))
            return backend.asarray(after, theta), value
        factors = self.unpack(theta)
        sums, products = self.expectations(factors, residuals=self.turns)
        W, mu, left = observed.m_step(sums, factors, expand=self.accelerate)
        there = Factors(W, mu, self._noise(left, sums.n))
        image, value = self.pack(there), self.value(sums, factors)
        bold = self._turned(factors, there, products, float(sums.all_n)) if self.turns else None
        return (image, value) if bold is None else (image, value, self.pack(bold))

    def _turned(self, before: Factors, after: Factors, products: Array, n: float) -> Factors | None:
        """Return the density at the end of the turn of an EM step; None where there is none."""
        about = backend.to_numpy(products), self.data.pair_counts, n
        found = observed.turned_step(
            (backend.to_numpy(before.W), float(before.psi[0])),
            (backend.to_numpy(after.W), float(after.psi[0])),
            observed.residual_covariance(*about),
            self.noise,
        )
        if found is None:
            return None
        return Factors(backend.asarray(found[0], after.W), after.mu, 0 * after.psi + found[1])

    def value(self, sums: Sums, factors: Factors) -> float:
        """Return what EM raises: the log-likelihood.

        Without noise it is infinite. −½ of the squares that are left, in units of the average
        variance, is its leading term as σ² → 0.
        """
        if self.noise != 0:
            return float(sums.loglikelihood)
        off = float(backend.namespace(factors.W).sum(sums.off(factors.W)))
        return -0.5 * max(off, 0.0) / self.unit

    def expectations(self, factors: Factors, *, residuals: bool = False) -> Expectations:
        """Take the E step, or say why it cannot be taken."""
        with driver.if_singular(NO_POSTERIOR):
            return self.data.expectations(factors, residuals=residuals)

    def slope(self, theta: Array) -> tuple[float, Array]:
        """Return the log-likelihood of θ and its gradient, by Fisher's identity from the E step."""
        xp, factors = backend.namespace(theta), self.unpack(theta)
        sums = self.data.sums(factors)
        W, psi = factors.W, factors.psi
        Wzz = (sums.zz @ W[:, :, None])[:, :, 0]
        to_W = (sums.xz - Wzz) / psi[:, None]
        to_mu = (sums.x - xp.sum(W * sums.z, axis=1)) / psi
        to_logs = 0.5 * (sums.off(W) / psi - sums.n)
        parts = [xp.reshape(to_W * self.root[:, None], (-1,)), to_mu * self.root, to_logs]
        return float(sums.loglikelihood), xp.concat(parts)

    def polish(
        self, theta: Array, record: driver.Record, tol: float, max_iter: int, keeper: driver.Keeper
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
        found = driver.descend(
            objective, start, bounds, record, lambda value: -n * value, near, max_iter, keeper
        )
        if not record.ended:
            slope, least = objective(found)[1], np.array([b[0] or -np.inf for b in bounds])
            held = (found <= least) & (slope > 0)
            record.converged = bool(np.all(held | (np.abs(slope) <= tol)))
        return backend.asarray(found, theta)

    def with_weights(self, weights: Array) -> Fit:
        """Return the fit of the same rows, which are in memory, under other weights."""
        quick, other = self.quick, copy(self)
        other.data = self.data.with_weights(weights)
        other.quick = None if quick is None else quick.with_weights(backend.to_numpy(weights))
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

    def keeper(self, watch: driver.Watch | None) -> driver.Keeper:
        """Return what keeps the state of this fit."""
        if watch is None:
            return driver.Keeper()
        return watch.over(self.data.n, self.origin, self.variance)

    def merit(self, run: tuple[Factors, driver.Record]) -> tuple[bool, float]:
        """Return what to compare runs by: a noise that did not vanish, then the likelihood."""
        smallest = float(backend.namespace(run[0].psi).min(run[0].psi / self.packing.square))
        return not rules.has_vanished(smallest, 1.0), run[1].loglikelihoods[-1]


def fit_incomplete(
    fit: Fit,
    rng: np.random.Generator,
    psi: Array | None = None,
    *,
    tol: float = 1e-4,
    max_iter: int = 1000,
    n_init: int = 1,
    watch: driver.Watch | None = None,
    start: Array | None = None,
) -> tuple[Factors, driver.Record]:
    """Fit x = Wz + μ + ε to rows with missing values by the likelihood of the observed entries.

    With a ψ of its own for every feature, EM is followed by quasi-Newton on the same likelihood;
    `psi` is the noise to start from. Of `n_init` starts, the first θ = `start`, by default from the
    span of the rows filled with means, and the others random, the one that ends most likely is
    kept. With a `watch` there is one start, and a checkpoint of it.

    Cost of a step: O(|X| q²/2) for the products with the mask and O(q³) per pattern; memory one
    block of rows beyond X.
    """
    keeper = fit.keeper(watch)
    theta = start
    if theta is None:
        theta = fit.begin(rng, psi) if keeper.state is None else fit.origin
    best = _run(fit, theta, tol, max_iter, keeper)
    if not best[1].interrupted:
        keeper.done()
    for _ in range(n_init - 1):
        if best[1].interrupted:
            break
        try:
            other = _run(fit, fit.begin_anywhere(rng), tol, max_iter, driver.Keeper())
        except DegenerateError:
            continue
        best = max(best, other, key=fit.merit)
    return best


def _run(
    fit: Fit, theta: Array, tol: float, max_iter: int, keeper: driver.Keeper
) -> tuple[Factors, driver.Record]:
    """Climb from one start."""
    steps = min(max_iter, EM_FIRST) if fit.diagonal else max_iter
    near = FLATTEST * tol if steps < max_iter else tol  # EM alone, if there is no quasi-Newton
    if keeper.state is not None and "values" in keeper.state[0]:  # quasi-Newton had begun
        theta = backend.asarray(keeper.state[0]["theta"], theta)
        record = driver.Record.of(keeper.state)
    else:
        limits: dict[str, Any] = {"tol": near, "max_iter": steps, "accelerate": fit.accelerate}
        theta, record = driver.maximize(fit.step, theta, keeper=keeper, **limits)
    if steps < max_iter and not record.ended:
        theta = fit.polish(theta, record, tol, max_iter - steps, keeper)
    factors = fit.unpack(theta)
    record.add(fit.value(fit.data.sums(factors), factors))
    return factors, record


NEAR = 1e-3
"""Relative distance to the maximum at which a refit stops: far below the spread of refits."""


def few_steps(step: driver.Step, theta: Array, steps: int, *, accelerate: bool = True) -> Array:
    """Return θ after a few EM steps, fewer if it is at the maximum; Ctrl-C ends all refits."""
    found, record = driver.maximize(step, theta, tol=NEAR, max_iter=steps, accelerate=accelerate)
    record.raise_interrupted()
    return found


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
