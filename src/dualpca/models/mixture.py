"""Mixtures of PPCA: p(x) = Σ_k π_k N(x; μ_k, W_kW_kᵀ + σ_k²I), in the input space or a kernel's.

`MixtureModel` is the fitted model, and `fit_mixture` makes one of a table: EM from the best of a
few short starts (`fit_sizes`), each step one pass over the rows (`MixtureSteps`), with sizes given
or found by BIC, held-out rows or a Dirichlet process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from scipy.special import betaln, digamma

from dualpca.arrays import Array, algebra, backend, moved, note, quadratic, task
from dualpca.data import (
    FOLDS,
    Columns,
    InMemoryTable,
    Table,
    block_weights,
    column_starts,
    has_missing,
    observed_weights,
    refuse_infinite,
    refuse_nonfinite,
)
from dualpca.errors import CollapseWarning, expected, warn
from dualpca.gaussian import Incomplete, Latents, is_count
from dualpca.models.clusters import kmeans
from dualpca.models.driver import History, Keeper, Record, State, Watch, iterate
from dualpca.models.emissions import Emissions, EmissionSums, Observations, Prior, WeightedRows
from dualpca.models.incomplete import check_unit, refuse_empty_columns
from dualpca.models.kernel import KernelChoice
from dualpca.models.kernel_space import KernelSpace
from dualpca.models.spiked import variances_like
from dualpca.operators import used_rows

# --- How much of the data each component gets: maximum likelihood or broken sticks ---------------

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


# --- The density, and the fitted model -----------------------------------------------------------


@dataclass(frozen=True)
class Mixture:
    """Weights π_k and components: a density over rows, or over points of a kernel's space.

    Examples
    --------
    >>> import numpy as np
    >>> one = Emissions(np.zeros((1, 2)), (np.ones((2, 1)),), np.ones(1))
    >>> Mixture(np.ones(1), one).log_density(np.zeros((1, 2))).round(4)
    array([-2.3872])
    """

    weights: Annotated[Array, "K"]
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


class MixtureSelection(NamedTuple):
    """What was tried, what it was worth, and what was chosen."""

    criterion: str
    candidates: list[tuple[int, int]]  # (K, q)
    scores: list[float]  # −BIC/2, or held-out log-density per row; larger is better
    chosen: tuple[int, int]


@dataclass(frozen=True)
class MixtureModel:
    """A fitted mixture of PPCA, over the features or over the coordinates ψ(x) in a kernel's space.

    Arrays have the dtype of the rows that were fitted; everything is computed in float64. Methods
    accept rows of the input space, with NaN where there is no kernel.
    """

    mixture: Mixture
    components: tuple[Annotated[Array, "* m"], ...]  # principal axes, largest variance first
    variances: tuple[Annotated[Array, "*"], ...]  # along them
    loglikelihood: float  # of the training rows
    lower_bound: float  # per row, of what EM maximised
    history: History
    selection: MixtureSelection | None = None
    space: KernelSpace | None = None

    def __post_init__(self) -> None:
        """Refuse axes and variances that are not those of the components."""
        shapes = [tuple(W.shape) for W in self.mixture.emissions.loadings]
        axes = [(int(V.shape[1]), int(V.shape[0])) for V in self.components]
        ranks = [int(values.shape[0]) for values in self.variances]
        m = self.mixture.emissions.dim if self.space is None else self.space.m
        if shapes != axes or [q for _, q in shapes] != ranks or any(d != m for d, _ in shapes):
            raise ValueError("axes, variances and loadings of a mixture differ in size")

    @property
    def working(self) -> Mixture:
        """The mixture in float64."""
        return moved(self.mixture, backend.working)

    @property
    def n_mixtures(self) -> int:
        """K."""
        return self.mixture.emissions.K

    @property
    def n_components(self) -> tuple[int, ...]:
        """q_k."""
        return self.mixture.emissions.ranks

    @property
    def covariances(self) -> Array:
        """W_kW_kᵀ + σ_k²I, (K, m, m)."""
        emissions = self.working.emissions
        eye = backend.asarray(np.eye(emissions.dim), emissions.means)
        dense = [W @ W.T + emissions.noises[k] * eye for k, W in enumerate(emissions.loadings)]
        stacked = backend.namespace(emissions.means).stack(dense)
        return backend.cast_like(stacked, self.mixture.weights)

    def points(self, rows: Array) -> Array:
        """Return rows where the mixture lives: as they are, or ψ(x) in the space of the kernel."""
        return rows if self.space is None else self.space(rows)

    def joint(self, rows: Array) -> Array:
        """Return ln π_k + ln p(x | k), (n, K)."""
        return self.working.joint(self.points(rows))

    def responsibilities(self, rows: Array) -> Array:
        """Return p(k | x), (n, K)."""
        return self.working.responsibilities(self.points(rows))

    def log_density(self, rows: Array) -> Array:
        """Return ln p of what each row observed, (n,)."""
        return self.working.log_density(self.points(rows))

    def posterior(self, rows: Array, k: int) -> Latents:
        """Return the posterior of the latents under component k."""
        return self.working.emissions.posterior(self.points(rows), k)

    def coordinates(self, rows: Array) -> Array:
        """Return p(k | x) E[z | x, k] of all components side by side, (n, Σq_k)."""
        points, mixture = self.points(rows), self.working
        resp = mixture.responsibilities(points)
        found = [one.mean * resp[:, k : k + 1] for k, one in enumerate(mixture.latents(points))]
        return backend.namespace(resp).concat(found, axis=1)

    def signal(self, rows: Array, spread: bool = False) -> tuple[Array, Array | None]:
        """Return Σ_k p(k | x)(μ_k + W_k E[z | x, k]), (n, m), and the deviation of a measurement.

        That counts the spread within components and between them.
        """
        points, mixture = self.points(rows), self.working
        emissions, found = mixture.emissions, mixture.latents(points)
        resp = mixture.responsibilities(points)
        means = [
            one.mean @ W.T + emissions.means[k, :]
            for k, (one, W) in enumerate(zip(found, emissions.loadings, strict=True))
        ]
        mean = sum(resp[:, k : k + 1] * each for k, each in enumerate(means))
        if not spread:
            return mean, None
        variance = 0 * mean
        for k, one in enumerate(found):
            within = quadratic(one.covariance, emissions.loadings[k]) + emissions.noises[k]
            variance = variance + resp[:, k : k + 1] * (within + (means[k] - mean) ** 2)
        return mean, backend.namespace(rows).sqrt(variance)


def model_of(
    mixture: Mixture, like: Array, loglikelihood: float, lower_bound: float, **others: Any
) -> MixtureModel:
    """Return a mixture as a model, in the dtype of `like`, with the axes of its components."""
    emissions = mixture.emissions
    axes = [algebra.svd(W) for W in emissions.loadings]
    variances = [s * s + emissions.noises[k] for k, (_, s, _) in enumerate(axes)]
    cast = moved(mixture, lambda a: backend.cast_like(a, like))
    settled = {"noises": variances_like(emissions.noises, like), "floor": 0.0, "prior": None}
    return MixtureModel(
        replace(cast, emissions=replace(cast.emissions, **settled)),
        tuple(backend.cast_like(U.T, like) for U, _, _ in axes),
        tuple(backend.cast_like(v, like) for v in variances),
        loglikelihood,
        lower_bound,
        **others,
    )


# --- EM: steps over a table, and components that collapse on the way -----------------------------

COLLAPSE_RULES = ("floor", "reseed", "drop")

DEAD = 1e-8
"""Share of all rows below which a component is dead."""


class Surveyed(NamedTuple):
    """A table and what is known of it before EM."""

    table: Table
    columns: Columns  # number, mean and variance of what each feature observed
    missing: bool

    @classmethod
    def of(cls, table: Table) -> Surveyed:
        """Read a table once; infinity is refused."""
        if not isinstance(table, InMemoryTable):
            columns = table.reduce(Columns.of, Columns.merge)
            return cls(table, columns, bool((columns.n < columns.rows).any()))
        X = table.rows
        refuse_infinite(X)
        w = observed_weights(X, table.weights)
        total = float(X.shape[0] if w is None else backend.namespace(X).sum(w))
        columns = Columns(*column_starts(X, w), int(X.shape[0]), used_rows(X, w), total)
        return cls(InMemoryTable(X, w, table.names), columns, has_missing(X))

    @property
    def in_memory(self) -> bool:
        """True if all rows are there at once."""
        return isinstance(self.table, InMemoryTable)

    @property
    def unit(self) -> float:
        """Average variance of the features."""
        return float(backend.namespace(self.columns.mean).mean(self.columns.variance))


@dataclass(frozen=True)
class Recipe:
    """How a mixture of given sizes is fitted: what all starts and candidates share."""

    floor: float  # smallest noise variance
    tied: bool = False
    tol: float = 1e-6  # estimated gain that is left when EM stops, in log-likelihood per row
    max_iter: int = 500
    on_collapse: str = "floor"
    alpha: float | None = None  # concentration of a Dirichlet process; None for likelihood

    def shares(self, emissions: Emissions, mass: Array) -> Shares:
        """Return the weights of components of these masses."""
        if self.alpha is None:
            return proportions(mass)
        return broken_sticks(mass, self.alpha, emissions.n_parameters())


class Ready(NamedTuple):
    """A chunk of rows, with the patterns of its missing values found and its weights."""

    rows: Observations
    weights: Array  # (b,), 0 for rows that observe nothing


class Expected(NamedTuple):
    """One pass of the E step: the likelihood, and what the M step needs."""

    loglikelihood: float
    sums: Any  # EmissionSums of chunks, WeightedRows of rows in memory

    def plus(self, other: Expected) -> Expected:
        """Join two disjoint sets of rows."""
        return Expected(self.loglikelihood + other.loglikelihood, self.sums.plus(other.sums))


def expectation(
    ready: Ready, emissions: Emissions, log_weights: Array, in_memory: bool
) -> Expected:
    """Take the E step over one chunk."""
    rows, w = ready
    joint = emissions.log_density(rows) + log_weights
    density = log_sum_exp(joint)
    resp = backend.namespace(joint).exp(joint - density[:, None])
    value = float(w @ density)
    if in_memory:
        return Expected(value, WeightedRows(rows, resp, w))
    missing = isinstance(rows, Incomplete)
    return Expected(value, EmissionSums.of(emissions, rows, resp * w[:, None], missing))


@dataclass(frozen=True)
class EMState:
    """Where EM is: components, their weights, and what the E step found under them."""

    emissions: Emissions
    mass: Array  # (K,)
    shares: Shares
    sums: EmissionSums | WeightedRows
    reseeded: int = 0
    dropped: int = 0
    rescued: bool = False  # by the last step: likelihoods before it do not compare
    rng: Any = None  # state of the generator


class MixtureSteps:
    """EM of a mixture on one table, as `iterate` wants it.

    Parameters
    ----------
    data : Surveyed
    recipe : Recipe
    q : int
        Largest number of directions, for the size of blocks.
    rng : Generator
        For components that are sown again.

    Notes
    -----
    The likelihood (or bound) never falls; its record starts anew where a component was dropped or
    sown again. A step is one pass. On complete rows in memory it costs O(ndΣq_k) for densities, and
    weighted scatters, O(nd²) where components are apart and K times that where they all overlap.
    """

    def __init__(self, data: Surveyed, recipe: Recipe, q: int, rng: np.random.Generator) -> None:
        self.data, self.recipe, self.rng, self.n = data, recipe, rng, data.columns.weight
        missing = data.missing

        def prepare(rows: Array, weights: Array | None) -> Ready:
            w = block_weights(observed_weights(rows, weights), slice(None), rows)
            return Ready(Incomplete(rows, None, q) if missing else rows, w)

        self.rows = data.table.prepared(prepare)

    def run(
        self,
        begin: Callable[[], tuple[EMState, Record]],
        max_iter: int,
        keeper: Keeper | None = None,
    ) -> tuple[EMState, Record]:
        """Step until EM has converged or taken `max_iter` steps in all."""
        return iterate(
            self.step,
            begin,
            max_iter=max_iter,
            tol=self.recipe.tol * self.n,
            anew=lambda state: state.rescued,
            keeper=keeper,
            pack=self.pack,
            unpack=self.unpack,
        )

    def begin(self, emissions: Emissions, mass: Array) -> tuple[EMState, Record]:
        """Return EM at components that have these masses, and their likelihood on record."""
        state, value = self.expect(emissions, mass)
        return state, Record([value])

    def expect(self, emissions: Emissions, mass: Array, **story: Any) -> tuple[EMState, float]:
        """Take the E step; return what it found and the likelihood."""
        shares = self.recipe.shares(emissions, mass)
        rest = (emissions, shares.log_weights, self.data.in_memory)
        found = self.rows.reduce(lambda ready: expectation(ready, *rest), Expected.plus)
        value = found.loglikelihood + shares.constant + emissions.log_prior()
        story["rng"] = self.rng.bit_generator.state
        return EMState(emissions, mass, shares, found.sums, **story), value

    def step(self, state: EMState) -> tuple[EMState, float]:
        """Take one M step and one E step."""
        emissions, mass = state.sums.maximise(state.emissions), state.sums.mass
        story = {"reseeded": state.reseeded, "dropped": state.dropped}
        bad = [] if self.recipe.on_collapse == "floor" else self.collapsed(emissions, mass)
        if bad and len(bad) < emissions.K:  # as long as something else is left
            story["rescued"] = True
            if self.recipe.on_collapse == "reseed" and state.reseeded < 2 * emissions.K:
                emissions, mass = self.reseed(state, emissions, mass, bad)
                story["reseeded"] += len(bad)
            else:
                keep = [k for k in range(emissions.K) if k not in bad]
                emissions, mass = emissions.take(keep), backend.take(mass, np.array(keep))
                story["dropped"] += len(bad)
        return self.expect(emissions, mass, **story)

    def collapsed(self, emissions: Emissions, mass: Array) -> list[int]:
        """Return components whose noise is at the floor, or that no row belongs to."""
        dead = [int(k) for k in np.flatnonzero(backend.to_numpy(mass) < DEAD * self.n)]
        if self.recipe.alpha is not None:  # components are meant to die
            dead = []
        return sorted({*dead, *emissions.at_floor()})

    def reseed(
        self, state: EMState, model: Emissions, mass: Array, bad: list[int]
    ) -> tuple[Emissions, Array]:
        """Sow components again, round and wide, at rows that the others explained worst."""
        table: Any = self.data.table
        ready: Any = self.rows.ready
        X, w, xp = table.rows, ready.weights, backend.namespace(table.rows)
        joint = state.emissions.log_density(ready.rows) + state.shares.log_weights
        density = backend.to_numpy(log_sum_exp(joint))
        order = np.argsort(np.where(backend.to_numpy(w) > 0, density, np.inf))
        worst = order[: max(2 * len(bad), len(order) // 20)]
        mean, unit = self.data.columns.mean, self.data.unit
        means, loadings = [model.means[k, :] for k in range(model.K)], list(model.loadings)
        for k, i in zip(bad, self.rng.choice(worst, len(bad), replace=False), strict=True):
            row = backend.working(X[int(i), :])
            means[k] = xp.where(xp.isnan(row), mean, row)
            loadings[k] = 0.1 * unit**0.5 * backend.normal(self.rng, model.loadings[k].shape, mean)
        mask = backend.asarray(np.isin(np.arange(model.K), bad).astype(float), mass)
        noises = model.noises * (1 - mask) + unit * mask
        sown = replace(model, means=xp.stack(means), loadings=tuple(loadings), noises=noises)
        return sown, mass * (1 - mask) + mask * self.n / model.K

    def pack(self, state: EMState) -> State:
        """Return all that the next step depends on."""
        model, prior = state.emissions, state.emissions.prior
        arrays = {f"W{k}": W for k, W in enumerate(model.loadings)}
        arrays |= {"means": model.means, "noises": model.noises, "mass": state.mass}
        numbers: dict[str, Any] = {"K": model.K, "rng": state.rng}
        numbers |= {"reseeded": state.reseeded, "dropped": state.dropped}
        numbers |= {"prior": None if prior is None else list(prior)}
        return {name: backend.to_numpy(one) for name, one in arrays.items()}, numbers

    def unpack(self, stored: State) -> EMState:
        """Return the state that was packed."""
        numbers, recipe, like = stored[1], self.recipe, self.data.table.like
        arrays = {name: backend.asarray(one, like) for name, one in stored[0].items()}
        W = tuple(arrays[f"W{k}"] for k in range(int(numbers["K"])))
        prior = None if numbers["prior"] is None else Prior(*numbers["prior"])
        self.rng.bit_generator.state = numbers["rng"]
        parts = (arrays["means"], W, arrays["noises"])
        emissions = Emissions(*parts, recipe.floor, recipe.tied, prior)
        story = {name: int(numbers[name]) for name in ("reseeded", "dropped")}
        return self.expect(emissions, arrays["mass"], **story)[0]


# --- Given sizes: the best of a few short starts, carried on to the end --------------------------

PRIOR_ROWS, PRIOR_VARIANCE = 2.0, 0.1
"""Of a component under a Dirichlet process: without a prior the smallest would be the likeliest."""

TRIES, SHORT, LLOYD = 4, 10, 30
"""A start is the best of so many, each of so many steps of EM after so many of k-means.

k-means often puts two centres into one group and one into two; ten steps show it, and a hundred
would not mend it (Biernacki, Celeux & Govaert 2003).
"""

START_ROWS = 20_000
"""Rows of the sample on which EM of a chunked table starts."""

Sizes = tuple[int, int | list[int]]
"""K, and q or one for every component."""


class Found(NamedTuple):
    """A mixture, how EM came to it, and which components had to be helped on the way."""

    mixture: Mixture
    record: Record
    reseeded: int
    dropped: int

    @property
    def merit(self) -> tuple[int, float]:
        """What to compare runs by."""
        return merit(self.mixture.emissions, self.record)


def merit(emissions: Emissions, record: Record) -> tuple[int, float]:
    """Return what to compare runs by: few collapsed components, then the likelihood."""
    return -len(emissions.at_floor()), record.loglikelihoods[-1]


def fit_sizes(
    data: Surveyed,
    recipe: Recipe,
    sizes: Sizes,
    rng: np.random.Generator,
    labels: Array | None = None,
    keeper: Keeper | None = None,
) -> Found:
    """Fit K components of q directions, from labels or the best of a few k-means starts.

    EM of a chunked table starts on a sample of its rows and ends on all of them; if there are fewer
    rows than the sample has room for, it is the fit in memory.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(size=(90, 3)), rng.normal(size=(10, 3)) + 9])
    >>> found = fit_sizes(Surveyed.of(InMemoryTable(X)), Recipe(floor=1e-6), (2, 1), rng)
    >>> sorted(found.mixture.weights.round(2).tolist())
    [0.1, 0.9]
    """
    steps = MixtureSteps(data, recipe, int(np.max(sizes[1])), rng)

    def begin() -> tuple[EMState, Record]:
        if data.in_memory:
            return start_from(steps, sizes, labels)
        table: Any = data.table
        sample = table.sample(START_ROWS, seed=0)
        first = MixtureSteps(Surveyed.of(InMemoryTable(sample)), recipe, int(np.max(sizes[1])), rng)
        state, record = start_from(first, sizes, labels)
        mass = state.mass * (steps.n / first.n)
        found, value = steps.expect(state.emissions, mass)
        if len(sample) < START_ROWS:  # these were all rows: EM has begun already
            return replace(found, reseeded=state.reseeded, dropped=state.dropped), record
        return found, Record([value], interrupted=record.interrupted)

    return found_at(*steps.run(begin, recipe.max_iter, keeper), recipe)


def start_from(
    steps: MixtureSteps, sizes: Sizes, labels: Array | None = None
) -> tuple[EMState, Record]:
    """Return EM at the components of labels, or the best of a few short runs to be carried on."""
    (K, q), recipe, rng = sizes, steps.recipe, steps.rng
    table: Any = steps.data.table
    X, weights = table.rows, table.weights

    def at(labels: Array) -> tuple[EMState, Record]:
        options: dict[str, Any] = {"floor": recipe.floor, "tied": recipe.tied, "labels": labels}
        start = Emissions.start(X, K, q, rng, sample_weight=weights, **options)
        if recipe.alpha is not None:
            start = replace(start, prior=Prior(PRIOR_ROWS, PRIOR_VARIANCE * steps.data.unit))
        w = None if weights is None else backend.to_numpy(weights)
        return steps.begin(start, backend.asarray(np.bincount(labels, w, minlength=K), X))

    if labels is not None:
        return at(labels)
    runs: list[tuple[EMState, Record]] = []
    for _ in range(TRIES if K > 1 else 1):
        clusters = kmeans(X, K, rng, weights, LLOYD)
        run = steps.run(partial(at, clusters), min(SHORT, recipe.max_iter))
        runs = [max([*runs, run], key=lambda one: merit(one[0].emissions, one[1]))]
        if run[1].interrupted:
            runs[0][1].interrupted = True
            break
    return runs[0]


def found_at(state: EMState, record: Record, recipe: Recipe) -> Found:
    """Return the mixture; one under a Dirichlet process without its empty components."""
    weights, emissions = state.shares.weights, state.emissions
    if recipe.alpha is not None:
        mass = np.asarray(backend.to_numpy(state.mass))
        keep = [int(k) for k in np.argsort(-mass, kind="stable") if mass[k] >= 1] or [0]
        weights, emissions = backend.take(weights, np.array(keep)), emissions.take(keep)
    weights = weights / backend.namespace(weights).sum(weights)
    return Found(Mixture(weights, emissions), record, state.reseeded, state.dropped)


# --- From a table to a model ---------------------------------------------------------------------

CRITERIA = ("bic", "cv")
"""Ways to choose a size by trying candidates."""

BOUND = "dirichlet"

MOST_COMPONENTS = 10
"""Largest number of directions that is tried."""


def _fixed() -> np.random.Generator:
    return np.random.default_rng(0)


@dataclass(frozen=True)
class MixtureRequest:
    """What `fit_mixture` needs to know, checked."""

    n_mixtures: int | str
    n_components: int | tuple[int, ...] | str
    noise_floor: float = 1e-6  # as a share of the average variance
    tied: bool = False
    on_collapse: str = "floor"
    tol: float = 1e-6
    max_iter: int = 500
    max_mixtures: int = 10
    concentration: float = 1.0
    n_init: int = 1
    n_jobs: int | None = None
    generator: Callable[[], np.random.Generator] = _fixed  # of starts, and of landmarks
    watch: Watch | None = None
    kernel: Any = None
    kernel_params: Mapping[str, Any] | None = None
    n_directions: int = 50

    @property
    def criterion(self) -> str | None:
        """By what sizes are chosen; None if they are given."""
        words = (self.n_mixtures, self.n_components)
        return next((w for w in words if isinstance(w, str) and w in CRITERIA), None)

    @property
    def sizes(self) -> tuple[int, Any]:
        """K, or the largest that is tried; and q as given, one or several or a criterion."""
        K = self.max_mixtures if isinstance(self.n_mixtures, str) else self.n_mixtures
        q = self.n_components
        return int(K), list(q) if isinstance(q, tuple) else q


def fit_mixture(table: Table, request: MixtureRequest) -> MixtureModel:
    """Fit a mixture of PPCA by EM (Tipping & Bishop 1999b), NaN or not, in a kernel's space or not.

    Chunked tables are read once per step. They have neither kernels nor sizes to be chosen, which
    need all rows in memory.
    """
    like, space = table.like, None
    if not isinstance(table, InMemoryTable):
        refuse_chunks(request)
        note(f"{table.route} on the CPU: EM of a mixture, a pass a step")
    if request.kernel is not None:
        space, table = open_space(table, request)
    data = Surveyed.of(table)
    count = data.columns.used
    if count < 2:
        raise ValueError(
            f"Found array with {count} sample(s) while a minimum of 2 is required for a fit."
        )
    among = "features" if space is None else "directions of feature space"
    check_sizes(request, count, table.d, among)
    found, selection = best_mixture(data, request)
    warn_of_collapse(found)
    history, n = History.of(found.record), data.columns.weight
    value = history.loglikelihood
    if request.n_mixtures == BOUND:  # that was of the bound
        value = total_density(data, found.mixture)
    bound = history.loglikelihood / n
    others: dict[str, Any] = {"history": history, "selection": selection, "space": space}
    return model_of(found.mixture, like, value, bound, **others)


def refuse_chunks(request: MixtureRequest) -> None:
    """Refuse what needs all rows in memory."""
    if request.kernel is not None:
        remedy = "Fit KernelPCA(eigen_solver='nystrom') first, then a mixture of its transform."
        raise ValueError(expected("kernel", "None for chunked data", request.kernel, remedy))
    if request.criterion is not None:
        what = "ints (or n_mixtures='dirichlet') for chunked data: a choice would need all rows"
        got = (request.n_mixtures, request.n_components)
        raise ValueError(expected("n_mixtures and n_components", what, got))
    if request.on_collapse == "reseed":
        remedy = "Sowing again looks for the rows explained worst."
        what = "'floor' or 'drop' for chunked data"
        raise ValueError(expected("on_collapse", what, "reseed", remedy))


def open_space(table: Any, request: MixtureRequest) -> tuple[KernelSpace, InMemoryTable]:
    """Find the common kernel space of the rows, and return it with the rows in it.

    The width of a named kernel is that of `KernelPCA`: gamma is 1/d by default.
    """
    X, m = table.rows, int(request.n_directions)
    refuse_nonfinite(X)
    weights = observed_weights(X, table.weights)
    kernel = KernelChoice(request.kernel, params=request.kernel_params).resolved(X)
    options: dict[str, Any] = {"n_landmarks": max(500, m), "weights": weights}
    space = KernelSpace.fit(X, kernel, m, request.generator(), **options)
    return space, InMemoryTable(space(X), weights)


def check_sizes(request: MixtureRequest, count: int, d: int, among: str = "features") -> None:
    """Refuse sizes that `count` rows of d features cannot satisfy."""
    K, q = request.n_mixtures, request.n_components
    if is_count(K) and int(K) > count:
        remedy = "A component needs a row to sit on: give fewer, or more rows."
        raise ValueError(expected("n_mixtures", f"at most the number of rows, {count}", K, remedy))
    if not isinstance(q, str) and int(np.max(q)) > d:
        what = f"at most {d}, the number of {among}"
        raise ValueError(expected("n_components", what, int(np.max(q))))


def best_mixture(data: Surveyed, request: MixtureRequest) -> tuple[Found, MixtureSelection | None]:
    """Fit a table: sizes first, then all starts, of which the best is kept."""
    columns = data.columns
    refuse_empty_columns(columns.n)
    table = data.table
    check_unit(data.unit, table.rows if isinstance(table, InMemoryTable) else table, columns.mean)
    recipe = Recipe(
        request.noise_floor * data.unit,
        request.tied,
        request.tol,
        request.max_iter,
        request.on_collapse,
        request.concentration if request.n_mixtures == BOUND else None,
    )
    (K, q), selection = request.sizes, None
    K = min(K, columns.rows) if isinstance(request.n_mixtures, str) else K
    if request.criterion is not None:
        selection = _chosen(data, recipe, request, K, q)
        K, q = selection.chosen
    return best_start(data, recipe, (K, q), request, request.watch), selection


def best_start(
    data: Surveyed,
    recipe: Recipe,
    sizes: Sizes,
    request: MixtureRequest,
    watch: Watch | None = None,
) -> Found:
    """Run EM from `n_init` starts; keep the one of fewest collapses, then the likeliest."""
    seeds = request.generator().integers(2**63 - 1, size=int(request.n_init))
    columns, keeper = data.columns, None
    if watch is not None and len(seeds) == 1:
        keeper = watch.over(columns.rows, columns.mean, columns.variance)

    def run(seed: int) -> Found:
        return fit_sizes(data, recipe, sizes, np.random.default_rng(seed), keeper=keeper)

    if len(seeds) == 1 or not data.in_memory:
        found = [run(int(seed)) for seed in seeds]
    else:
        work = (delayed(run)(int(seed)) for seed in seeds)
        found = Parallel(n_jobs=request.n_jobs, prefer="threads")(work)
    return max(found, key=lambda one: one.merit)


def total_density(data: Surveyed, mixture: Mixture) -> float:
    """Return the log-likelihood of all rows."""

    def of(rows: Array, weights: Array | None = None) -> float:
        w = block_weights(observed_weights(rows, weights), slice(None), rows)
        return float(w @ mixture.log_density(rows))

    return float(data.table.reduce(of, lambda a, b: a + b))


def warn_of_collapse(found: Found) -> None:
    """Say which components are held at the floor, and how many were sown again or dropped."""
    held = found.mixture.emissions.at_floor()
    story = []
    if found.reseeded:
        story.append(f"{found.reseeded} times a component was sown again")
    if found.dropped:
        story.append(f"{found.dropped} components were dropped")
    if held:
        story.append(f"the noise of components {held[:10]} is held at noise_floor")
    if story:
        warn(
            f"components collapsed on too few rows: {', '.join(story)}. Use fewer mixtures or "
            "components, tied_noise=True, a larger noise_floor, or more starts (n_init).",
            CollapseWarning,
        )


# --- How many components of how many directions: BIC or the likelihood of held-out rows ----------

PATIENCE = 2
"""Sizes in a row that may be worse than the best before larger ones are left alone."""

Fit = Callable[[int, int], float]
"""K, q ↦ how good the mixture is; larger is better."""


def _chosen(
    data: Surveyed, recipe: Recipe, request: MixtureRequest, K: int, q: Any
) -> MixtureSelection:
    """Return the best of the sizes that are to be tried."""
    criterion = str(request.criterion)
    score = (by_bic if criterion == "bic" else by_held_out)(data, recipe, request)
    mixtures = range(1, K + 1) if request.n_mixtures == criterion else [K]
    most = max(1, min(data.table.d - 1, MOST_COMPONENTS))
    components = list(range(1, most + 1)) if q == criterion else [int(q)]
    return choose(criterion, score, mixtures, components)


def by_bic(data: Surveyed, recipe: Recipe, request: MixtureRequest) -> Fit:
    """Return −BIC/2 as a function of K and q (Schwarz 1978)."""
    price = 0.5 * math.log(data.columns.weight)

    def score(K: int, q: int) -> float:
        found = best_start(data, recipe, (K, q), request)
        return found.record.loglikelihoods[-1] - price * found.mixture.n_parameters()

    return score


def by_held_out(data: Surveyed, recipe: Recipe, request: MixtureRequest, seed: int = 0) -> Fit:
    """Return the log-density per row of held-out rows, in five folds, as a function of K and q."""
    table: Any = data.table
    X, n = table.rows, int(table.rows.shape[0])
    order = np.random.default_rng(seed).permutation(n)
    cut = np.array_split(order, min(FOLDS, n))
    w = np.ones(n) if table.weights is None else np.asarray(backend.to_numpy(table.weights))

    def score(K: int, q: int) -> float:
        total = 0.0
        for held in cut:
            kept = np.setdiff1d(order, held)
            if kept.size < K:
                return -math.inf
            rows = InMemoryTable(backend.take(X, kept), backend.asarray(w[kept], X))
            fold, rng = Surveyed.of(rows), np.random.default_rng([seed, K, q])
            runs = [fit_sizes(fold, recipe, (K, q), rng) for _ in range(request.n_init)]
            best = max(runs, key=lambda found: found.merit)
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
    """Return True if the last few are all worse than the best."""
    return len(scores) - 1 - int(np.argmax(scores)) >= PATIENCE
