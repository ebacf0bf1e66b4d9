"""Mixtures of PPCA: p(x) = Σ_k π_k N(x; μ_k, W_kW_kᵀ + σ_k²I), by EM."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaln, digamma

from dualpca.arrays import Array, backend, task
from dualpca.data import (
    FOLDS,
    ChunkedTable,
    Host,
    block_weights,
    column_starts,
    has_missing,
    observed_weights,
)
from dualpca.errors import expected
from dualpca.gaussian import Latents
from dualpca.models.clusters import kmeans
from dualpca.models.driver import Keeper, Record, State, Watch
from dualpca.models.emissions import Emissions, EmissionSums, Observations, Prior, shares

# --- How much of the data each component of a mixture gets: maximum likelihood or broken sticks --

LEAST_WEIGHT = 1e-30
"""Smallest weight of a component: its logarithm must exist."""


class Shares(NamedTuple):
    """Weights of the components, as an E step needs them."""

    weights: Array  # (K,), sum 1
    log_weights: Array  # (K,), added to ln p(x | k)
    constant: float = 0.0  # added to Σ_n ln Σ_k exp(…): 0 for a likelihood


def proportions(mass: Array) -> Shares:
    """Return the weights of maximum likelihood, n_k/n."""
    xp = backend.namespace(mass)
    weights = mass / xp.sum(mass)
    return Shares(
        weights, xp.log(xp.where(weights > LEAST_WEIGHT, weights, 0 * weights + LEAST_WEIGHT))
    )


def broken_sticks(mass: Array, alpha: float, free: Sequence[int]) -> Shares:
    """Return the weights under a Dirichlet process, with a price for every parameter.

    Weights are v_k Π_{j<k}(1 − v_j) with v_k ~ Beta(1, α) and posterior Beta(1 + n_k, α + Σ_{j>k}
    n_j), largest component first, which is the best order (Blei & Jordan 2006; Kurihara, Welling &
    Teh 2007). The parameters of component k have a posterior by Laplace's approximation, which
    costs (p_k/2) ln(1 + n_k). That is convex in n_k, so its tangent bounds it from below: every
    row pays p_k/2(1 + n_k), which a component of few rows cannot afford, and it empties.

    Parameters
    ----------
    mass : array of shape (K,)
        n_k.
    alpha : float
        Concentration: small for few components.
    free : sequence of K ints
        p_k, the number of parameters of every component.

    Returns
    -------
    Shares
        With the rest of the bound as its constant: the bound never falls.

    Examples
    --------
    >>> import numpy as np
    >>> broken_sticks(np.array([90.0, 9.0, 1e-9]), 1.0, [10, 10, 10]).weights.round(2)
    array([0.91, 0.09, 0.  ])
    """
    n, p = np.asarray(backend.to_numpy(mass)), np.asarray(free, dtype=float)
    order = np.argsort(-n, kind="stable")
    after = np.sum(n) - np.cumsum(n[order])
    a, b = 1 + n[order], alpha + np.maximum(after, 0)
    total = digamma(a + b)
    rest = np.cumsum(digamma(b) - total)
    logs = np.empty_like(n)
    logs[order] = digamma(a) - total + np.concatenate([[0.0], rest[:-1]])
    divergence = betaln(1, alpha) - betaln(a, b) + n[order] * digamma(a)
    divergence += (b - alpha) * digamma(b) - (n[order] + b - alpha) * total
    toll = p / (2 * (1 + n))
    constant = -np.sum(divergence) - np.sum(p / 2 * np.log1p(n)) + np.sum(toll * n)
    mean = backend.asarray(n / np.sum(n), mass)
    return Shares(mean, backend.asarray(logs - toll, mass), float(constant))


# --- Mixtures of PPCA: p(x) = Σ_k π_k N(x; μ_k, W_kW_kᵀ + σ_k²I) ---------------------------------


@dataclass(frozen=True)
class Mixture:
    """Weights π_k and components; what a fitted mixture is.

    Examples
    --------
    >>> import numpy as np
    >>> one = Emissions(np.zeros((1, 2)), (np.ones((2, 1)),), np.ones(1))
    >>> Mixture(np.ones(1), one).log_density(np.zeros((1, 2))).round(4)
    array([-2.3872])
    """

    weights: Array  # (K,)
    emissions: Emissions

    def joint(self, X: Observations) -> Array:
        """Return ln π_k + ln p(x_i | k), (n, K)."""
        return self.emissions.log_density(X) + proportions(self.weights).log_weights

    def log_density(self, X: Observations) -> Array:
        """Return ln p(x_i), (n,)."""
        return log_sum_exp(self.joint(X))

    def responsibilities(self, X: Observations) -> Array:
        """Return p(k | x_i), (n, K)."""
        joint = self.joint(X)
        return backend.namespace(joint).exp(joint - log_sum_exp(joint)[:, None])

    def n_parameters(self) -> int:
        """Return the number of free parameters."""
        return sum(self.emissions.n_parameters()) + self.emissions.K - 1

    def latents(self, X: Array) -> list[Latents]:
        """Return the posterior of z under every component."""
        table = self.emissions.table(X)
        return [self.emissions.posterior(table, k) for k in range(self.emissions.K)]

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw n rows, in random order, and the components they come from."""
        pi = np.asarray(backend.to_numpy(self.weights), dtype=np.float64)
        labels = rng.choice(self.emissions.K, size=n, p=pi / np.sum(pi))
        return self.emissions.sample(labels, rng), labels


def log_sum_exp(A: Array) -> Array:
    """Return ln Σ_k exp(A_ik) without overflow, (n,)."""
    xp = backend.namespace(A)
    top = xp.max(A, axis=1)
    return top + xp.log(xp.sum(xp.exp(A - top[:, None]), axis=1))


def average_variance(X: Array, weights: Array | None) -> float:
    """Return the mean variance of the features, over what was observed."""
    return float(backend.namespace(X).mean(column_starts(X, weights)[2]))


# --- Mixtures of PPCA by EM: steps, and components that collapse on the way ----------------------

SLOWEST = 0.99
"""Largest rate of convergence that the estimate of what is left to gain believes in."""

DEAD = 1e-8
"""Share of all rows below which a component is dead."""


CollapseRules = ("floor", "reseed", "drop")


class Limits(NamedTuple):
    """When EM stops, and what it does with a component that collapses."""

    tol: float = 1e-6
    max_iter: int = 500
    on_collapse: str = "floor"
    alpha: float | None = None  # concentration of a Dirichlet process; None for likelihood


USUAL = Limits()


class Climbed(NamedTuple):
    """A mixture, how EM came to it, and which components had to be helped on the way."""

    mixture: Mixture
    record: Record
    reseeded: int
    dropped: int

    @property
    def merit(self) -> tuple[int, float]:
        """What to compare runs by."""
        return _merit(self.mixture.emissions, self.record)


class Climb:
    """Where EM is: components, weights, and the responsibilities they give.

    Parameters
    ----------
    X : array of shape (n, d)
        NaN where nothing was observed.
    weights : array of shape (n,), optional
    start : Emissions
    mass : array of shape (K,)
        Weight of the rows that each component starts with.
    limits : Limits
        `tol` is the estimated gain that is left, in log-likelihood a row.
    rng : Generator
        For components that are sown again.

    Notes
    -----
    The likelihood (or bound) on record never falls; it starts anew where a component was dropped
    or sown again. Cost of a step on complete rows: O(ndΣq_k) for densities, and weighted scatters,
    O(nd²) where components are apart and K times that where they all overlap.
    """

    def __init__(
        self,
        X: Array,
        weights: Array | None,
        start: Emissions,
        mass: Array,
        limits: Limits,
        rng: np.random.Generator,
    ) -> None:
        self.X, self.limits, self.rng, self.record = X, limits, rng, Record()
        self.table: Observations = start.table(X) if has_missing(X) else X
        self.w = block_weights(weights, slice(None), X)
        self.n = float(backend.namespace(X).sum(self.w))
        self.emissions, self.mass = start, mass
        self.reseeded = self.dropped = 0
        self.shares = self.share()
        self.expect()

    def run(self, max_iter: int, keeper: Keeper | None = None) -> None:
        """Step on until EM has converged or taken `max_iter` steps in all.

        An interruption by the keyboard ends it where the last whole step left it.
        """
        with task("EM step", max_iter) as tick:
            whole = self._now()
            try:
                while self.record.n_iter < max_iter and not self.record.ended:
                    self.step()
                    whole = self._now()
                    tick(f"log-likelihood {self.record.loglikelihoods[-1]:.6g}")
                    if keeper is not None:
                        keeper.offer(self.state)
            except KeyboardInterrupt:
                vars(self).update(whole)
                self.record.interrupted = True
        if keeper is not None and self.record.interrupted:
            keeper.offer(self.state, now=True)
        elif keeper is not None:
            keeper.done()

    def _now(self) -> dict[str, Any]:
        """Return all that a step changes; what it changes in place is copied."""
        return vars(self) | {"record": self.record.copy()}

    def state(self) -> State:
        """Return all that the next step depends on."""
        model = self.emissions
        arrays = {f"W{k}": backend.to_numpy(W) for k, W in enumerate(model.loadings)}
        arrays |= {"means": backend.to_numpy(model.means), "noises": backend.to_numpy(model.noises)}
        arrays |= {"mass": backend.to_numpy(self.mass)}
        arrays |= {"loglikelihoods": np.array(self.record.loglikelihoods)}
        numbers: dict[str, Any] = {"n_iter": self.record.n_iter, "K": model.K}
        numbers |= {"reseeded": self.reseeded, "dropped": self.dropped}
        numbers |= {"converged": self.record.converged}
        numbers |= {"rng": self.rng.bit_generator.state}
        numbers |= {"prior": None if model.prior is None else list(model.prior)}
        return arrays, numbers

    def restore(self, arrays: dict[str, Any], numbers: dict[str, Any]) -> None:
        """Set what a state says of the way that led to it."""
        self.record.loglikelihoods[:] = [float(v) for v in arrays["loglikelihoods"]]
        self.record.n_iter = int(numbers["n_iter"])
        self.record.converged = bool(numbers["converged"])
        self.reseeded, self.dropped = int(numbers["reseeded"]), int(numbers["dropped"])
        self.rng.bit_generator.state = numbers["rng"]

    @property
    def merit(self) -> tuple[int, float]:
        """What to compare runs by."""
        return _merit(self.emissions, self.record)

    def share(self) -> Shares:
        """Return the weights that the present masses give."""
        if self.limits.alpha is None:
            return proportions(self.mass)
        return broken_sticks(self.mass, self.limits.alpha, self.emissions.n_parameters())

    def expect(self) -> None:
        """Take the E step and note the likelihood."""
        xp = backend.namespace(self.X)
        joint = self.emissions.log_density(self.table) + self.shares.log_weights
        self.density = log_sum_exp(joint)
        self.resp = xp.exp(joint - self.density[:, None])
        rest = self.shares.constant + self.emissions.log_prior()
        self.record.add(float(self.w @ self.density) + rest)

    def step(self) -> None:
        """Take one M step and one E step."""
        self.record.n_iter += 1
        self.maximise()
        if self.limits.on_collapse != "floor":
            self.rescue()
        self.shares = self.share()
        self.expect()
        self.record.converged = _left(self.record.loglikelihoods) <= self.limits.tol * self.n

    def maximise(self) -> None:
        """Take the M step."""
        self.emissions = self.emissions.update(self.table, self.resp, self.w)
        self.mass = self.w @ self.resp

    def rescue(self) -> None:
        """Drop or sow again what collapsed, as long as something else is left."""
        bad = self.collapsed()
        if not bad or len(bad) == self.emissions.K:
            return
        self.record.loglikelihoods.clear()
        if self.limits.on_collapse == "reseed" and self.reseeded < 2 * self.emissions.K:
            self.reseed(bad)
            return
        keep = [k for k in range(self.emissions.K) if k not in bad]
        self.emissions, self.mass = (
            self.emissions.take(keep),
            backend.take(self.mass, np.array(keep)),
        )
        self.dropped += len(bad)

    def collapsed(self) -> list[int]:
        """Return components whose noise is at the floor, or that no row belongs to."""
        mass = np.asarray(backend.to_numpy(self.mass))
        dead = [int(k) for k in np.flatnonzero(mass < DEAD * self.n)]
        if self.limits.alpha is not None:  # components are meant to die
            dead = []
        return sorted({*dead, *self.emissions.at_floor()})

    def reseed(self, bad: list[int]) -> None:
        """Sow components again, round and wide, at rows that the others explain worst."""
        xp, model = backend.namespace(self.X), self.emissions
        order = np.argsort(
            np.where(backend.to_numpy(self.w) > 0, backend.to_numpy(self.density), np.inf)
        )
        worst = order[: max(2 * len(bad), len(order) // 20)]
        mean = column_starts(self.X, self.w)[1]
        unit = average_variance(self.X, self.w)
        means, loadings = [model.means[k, :] for k in range(model.K)], list(model.loadings)
        for k, i in zip(bad, self.rng.choice(worst, len(bad), replace=False), strict=True):
            row = backend.working(self.X[int(i), :])
            means[k] = xp.where(xp.isnan(row), mean, row)
            loadings[k] = 0.1 * unit**0.5 * backend.normal(self.rng, model.loadings[k].shape, mean)
        fresh = np.isin(np.arange(model.K), bad)
        mask = backend.asarray(fresh.astype(float), self.mass)
        noises = model.noises * (1 - mask) + unit * mask
        self.emissions = replace(
            model, means=xp.stack(means), loadings=tuple(loadings), noises=noises
        )
        self.mass = self.mass * (1 - mask) + mask * self.n / model.K
        self.reseeded += len(bad)

    def outcome(self) -> Climbed:
        """Return the mixture; one under a Dirichlet process without its empty components."""
        weights, emissions = self.shares.weights, self.emissions
        if self.limits.alpha is not None:
            mass = np.asarray(backend.to_numpy(self.mass))
            keep = [int(k) for k in np.argsort(-mass, kind="stable") if mass[k] >= 1] or [0]
            weights, emissions = backend.take(weights, np.array(keep)), emissions.take(keep)
        weights = weights / backend.namespace(weights).sum(weights)
        return Climbed(Mixture(weights, emissions), self.record, self.reseeded, self.dropped)


def _merit(emissions: Emissions, record: Record) -> tuple[int, float]:
    """Return what to compare runs by: few collapsed components, then the likelihood."""
    return -len(emissions.at_floor()), record.loglikelihoods[-1]


def _left(values: list[float]) -> float:
    """Estimate how much likelihood is left to gain, as of a geometric sequence of gains."""
    if len(values) < 2:
        return np.inf
    gain = max(values[-1] - values[-2], 0.0)
    if gain <= 1e-13 * abs(values[-1]):
        return 0.0
    if len(values) < 3:
        return np.inf
    before = max(values[-2] - values[-3], 0.0)
    rate = min(gain / before, SLOWEST) if before > 0 else SLOWEST
    return gain / (1 - rate)


# --- Mixtures of PPCA from rows alone: where EM starts, and the best of a few starts -------------

PRIOR_ROWS, PRIOR_VARIANCE = 2.0, 0.1
"""Of a component under a Dirichlet process: without a prior the smallest would be the likeliest."""


TRIES, SHORT, LLOYD = 4, 10, 30
"""A start is the best of so many, each of so many steps of EM after so many of k-means.

k-means often puts two centres into one group and one into two; ten steps show it, and a hundred
would not mend it (Biernacki, Celeux & Govaert 2003).
"""


@dataclass(frozen=True)
class Recipe:
    """How a mixture is fitted, apart from its size: what all starts and candidates share."""

    floor: float  # smallest noise variance
    tied: bool = False
    limits: Limits = USUAL

    def fit(
        self,
        X: Array,
        weights: Array | None,
        K: int,
        q: int | Sequence[int],
        rng: np.random.Generator,
        labels: Array | None = None,
        watch: Watch | None = None,
    ) -> Climbed:
        """Fit K components of q directions, from labels or the best of a few k-means starts.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = np.concatenate([rng.normal(size=(90, 3)), rng.normal(size=(10, 3)) + 9])
        >>> found = Recipe(floor=1e-6).fit(X, None, 2, 1, rng)
        >>> sorted(found.mixture.weights.round(2).tolist())
        [0.1, 0.9]
        """
        keeper = None
        if watch is not None:
            _, mean, variance = column_starts(X, weights)
            keeper = watch.over(int(X.shape[0]), mean, variance)
        if keeper is not None and keeper.state is not None:
            emissions, mass = self.restored(keeper.state, X)
            best = Climb(X, weights, emissions, mass, self.limits, rng)
            best.restore(*keeper.state)
        elif labels is not None:
            best = self._begin(X, weights, K, q, rng, labels)
        else:
            best = self.begin(X, weights, K, q, rng)
        # a start that was broken off is not where this fit would have gone: nothing to go on from
        best.run(self.limits.max_iter, None if best.record.interrupted else keeper)
        return best.outcome()

    def restored(self, state: State, like: Array) -> tuple[Emissions, Array]:
        """Return the components of a state, and their masses."""
        arrays, numbers = state
        prior = None if numbers["prior"] is None else Prior(*numbers["prior"])
        W = tuple(backend.asarray(arrays[f"W{k}"], like) for k in range(int(numbers["K"])))
        means, noises, mass = (
            backend.asarray(arrays[name], like) for name in ("means", "noises", "mass")
        )
        return Emissions(means, W, noises, self.floor, self.tied, prior), mass

    def begin(
        self,
        X: Array,
        weights: Array | None,
        K: int,
        q: int | Sequence[int],
        rng: np.random.Generator,
    ) -> Climb:
        """Return the best of a few short runs, to be carried on."""
        climbs: list[Climb] = []
        for _ in range(TRIES if K > 1 else 1):
            climb = self._begin(X, weights, K, q, rng, kmeans(X, K, rng, weights, LLOYD))
            climb.run(min(SHORT, self.limits.max_iter))
            climbs = [max([*climbs, climb], key=lambda one: one.merit)]
            if climb.record.interrupted:
                climbs[0].record.interrupted = True
                break
        return climbs[0]

    def _begin(
        self,
        X: Array,
        weights: Array | None,
        K: int,
        q: int | Sequence[int],
        rng: np.random.Generator,
        labels: Array,
    ) -> Climb:
        """Return EM at the components of clusters."""
        start = Emissions.start(
            X, K, q, rng, floor=self.floor, tied=self.tied, labels=labels, sample_weight=weights
        )
        if self.limits.alpha is not None:
            spread = PRIOR_VARIANCE * average_variance(X, weights)
            start = replace(start, prior=Prior(PRIOR_ROWS, spread))
        w = None if weights is None else backend.to_numpy(weights)
        mass = backend.asarray(np.bincount(labels, w, minlength=K), X)
        return Climb(X, weights, start, mass, self.limits, rng)


# --- Mixtures of PPCA from tables in parts: a step of EM is one pass -----------------------------

START_ROWS = 20_000
"""Rows of the sample on which EM starts."""


class Expected(NamedTuple):
    """One pass of the E step: the likelihood, and what the M step needs."""

    loglikelihood: float
    sums: EmissionSums

    def plus(self, other: Expected) -> Expected:
        """Join two disjoint sets of rows."""
        return Expected(self.loglikelihood + other.loglikelihood, self.sums.plus(other.sums))


class PartsClimb(Climb):
    """EM over a table in parts, from where a climb over a sample of its rows has come."""

    def __init__(
        self,
        parts: ChunkedTable,
        holes: bool,
        n: float,
        start: tuple[Emissions, Array],
        limits: Limits,
        rng: np.random.Generator,
    ) -> None:
        if limits.on_collapse == "reseed":
            remedy = "Sowing again looks for the rows explained worst."
            what = "'floor' or 'drop' for data in parts"
            raise ValueError(expected("on_collapse", what, "reseed", remedy))
        self.parts, self.holes, self.n, self.limits = parts, holes, n, limits
        (self.emissions, self.mass), self.rng = start, rng
        self.reseeded = self.dropped = 0
        self.record = Record()
        self.shares = self.share()
        self.expect()

    def expect(self) -> None:
        """Take the E step in one pass, and note the likelihood."""
        emissions, log_weights, holes = self.emissions, self.shares.log_weights, self.holes

        def of(rows: Host) -> Expected:
            return expectation(emissions, log_weights, rows, holes)

        found = self.parts.reduce(of, Expected.plus)
        self.sums = found.sums
        rest = self.shares.constant + self.emissions.log_prior()
        self.record.add(found.loglikelihood + rest)

    def maximise(self) -> None:
        """Take the M step."""
        self.emissions, self.mass = self.sums.maximise(self.emissions), self.sums.mass


def expectation(emissions: Emissions, log_weights: Array, rows: Host, holes: bool) -> Expected:
    """Take the E step over one part."""
    joint = emissions.log_density(rows) + log_weights
    density = log_sum_exp(joint)
    resp = np.exp(joint - density[:, None])
    if holes:
        resp = shares(resp, rows)
        density = np.where(np.isnan(rows).all(axis=1), 0.0, density)
    return Expected(float(density.sum()), EmissionSums.of(emissions, rows, resp, holes))


def fit_mixture_parts(
    parts: ChunkedTable,
    holes: bool,
    used: int,
    recipe: Recipe,
    K: int,
    q: int | list[int],
    rng: np.random.Generator,
    keeper: Keeper | None = None,
) -> Climbed:
    """Fit K components of q directions: EM begins on a sample of rows and ends on all of them.

    With fewer rows than the sample has room for, it is the fit in memory.
    """
    n, limits = float(used), recipe.limits
    if keeper is not None and keeper.state is not None:
        begun = recipe.restored(keeper.state, np.empty(0))
        climb = PartsClimb(parts, holes, n, begun, limits, rng)
        climb.restore(*keeper.state)
    else:
        sample = parts.sample(START_ROWS, seed=0)
        start = recipe.begin(sample, observed_weights(sample, None), K, q, rng)
        mass = start.mass * (n / start.n)
        climb = PartsClimb(parts, holes, n, (start.emissions, mass), limits, rng)
        if len(sample) < START_ROWS:  # these were all rows: EM has begun already
            climb.restore(*start.state())
        climb.record.interrupted = start.record.interrupted
    # a start that was broken off is not where this fit would have gone: nothing to go on from
    climb.run(limits.max_iter, None if climb.record.interrupted else keeper)
    return climb.outcome()


# --- How many components of how many directions: BIC or the likelihood of held-out rows ----------

PATIENCE = 2
"""Sizes in a row that may be worse than the best before larger ones are left alone."""

Fit = Callable[[int, int], float]
"""K, q ↦ how good the mixture is; larger is better."""


class MixtureSelection(NamedTuple):
    """What was tried, what it was worth, and what was chosen."""

    criterion: str
    candidates: list[tuple[int, int]]  # (K, q)
    scores: list[float]  # −BIC/2, or held-out log-density a row; larger is better
    chosen: tuple[int, int]


def bic(climbed: Climbed, loglikelihood: float, n: float) -> float:
    """Return −2 ln L + p ln n; lower is better."""
    return -2 * loglikelihood + climbed.mixture.n_parameters() * math.log(n)


def by_bic(X: Array, weights: Array | None, fit: Callable[[int, int], Climbed]) -> Fit:
    """Return −BIC/2 as a function of K and q (Schwarz 1978)."""
    n = float(X.shape[0] if weights is None else backend.namespace(X).sum(weights))

    def score(K: int, q: int) -> float:
        found = fit(K, q)
        return -0.5 * bic(found, found.record.loglikelihoods[-1], n)

    return score


def by_held_out(X: Array, weights: Array | None, recipe: Recipe, n_init: int, seed: int) -> Fit:
    """Return the log-density a row of held-out rows, in five folds, as a function of K and q."""
    n = int(X.shape[0])
    order = np.random.default_rng(seed).permutation(n)
    cut = np.array_split(order, min(FOLDS, n))
    w = np.ones(n) if weights is None else np.asarray(backend.to_numpy(weights))

    def score(K: int, q: int) -> float:
        total = 0.0
        for held in cut:
            kept = np.setdiff1d(order, held)
            if kept.size < K:
                return -math.inf
            rows, own = backend.take(X, kept), backend.asarray(w[kept], X)
            rng = np.random.default_rng([seed, K, q])
            best = max(
                (recipe.fit(rows, own, K, q, rng) for _ in range(n_init)), key=lambda f: f.merit
            )
            density = best.mixture.log_density(backend.take(X, held))
            total += float(w[held] @ backend.to_numpy(density))
        return total / float(np.sum(w))

    return score


def choose(
    criterion: str, score: Fit, mixtures: Iterable[int], components: Sequence[int]
) -> MixtureSelection:
    """Score K = 1, 2, … and for each q = 1, 2, …, until two in a row are worse than the best.

    Examples
    --------
    >>> found = choose("bic", lambda K, q: -abs(K - 3) - abs(q - 2), range(1, 9), range(1, 9))
    >>> found.chosen, len(found.candidates)
    ((3, 2), 20)
    """
    sizes, tried, scores = list(mixtures), list[tuple[int, int]](), list[float]()
    best_of: list[float] = []
    with task("candidate", len(sizes) * len(components)) as tick:
        for K in sizes:
            row: list[float] = []
            for q in components:
                row.append(score(K, q))
                tick(f"K = {K}, q = {q}")
                tried.append((K, q))
                if _given_up(row):
                    break
            scores.extend(row)
            best_of.append(max(row))
            if _given_up(best_of):
                break
    chosen = tried[int(np.argmax(scores))]
    return MixtureSelection(criterion, tried, scores, chosen)


def _given_up(scores: list[float]) -> bool:
    """Tell whether the last few are all worse than the best."""
    return len(scores) - 1 - int(np.argmax(scores)) >= PATIENCE
