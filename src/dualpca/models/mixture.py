"""Mixtures of PPCA: p(x) = Σ_k π_k N(x; μ_k, W_kW_kᵀ + σ_k²I), in the input space or a kernel's.

`MixtureModel` is the fitted model, and `fit_mixture` fits one to a table: EM from the best of a
few short starts (`fit_sizes`), each step one pass over the rows (`MixtureSteps`), with sizes given
or found by BIC, held-out rows or a Dirichlet process. `MixtureStream` sees every chunk once.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import add
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from scipy.special import betaln, digamma

from dualpca.arrays import (
    Array,
    algebra,
    backend,
    cached_property,
    log_sum_exp,
    moved,
    note,
    quadratic,
    task,
)
from dualpca.data import (
    FOLDS,
    Host,
    InMemoryTable,
    Moments,
    Table,
    block_weights,
    has_missing,
    observed_weights,
    refuse_infinite,
    refuse_nonfinite,
)
from dualpca.errors import CollapseWarning, expected, warn
from dualpca.gaussian import Factors, Incomplete, Latents, is_count, latents
from dualpca.models.clusters import kmeans_runs
from dualpca.models.driver import History, Keeper, Record, State, Watch, iterate, left_to_gain
from dualpca.models.emissions import (
    START_ROWS,
    Emissions,
    Observations,
    Prior,
    Surveyed,
    WeightedRows,
    input_moments_on_host,
    label_order,
    ready_for_steps,
)
from dualpca.models.expanded import Expanded
from dualpca.models.kernel import KernelChoice
from dualpca.models.kernel_space import KernelSpace
from dualpca.models.spiked import variances_like
from dualpca.models.streaming import FORGET

# --- How much of the data each component gets: maximum likelihood or broken sticks ---------------

LEAST_WEIGHT = 1e-30
"""Smallest weight of a component: its logarithm must exist."""


class Shares(NamedTuple):
    """Weights of the components, as an E step needs them."""

    weights: Array  # (K,), sum 1
    log_weights: Array  # (K,), added to ln p(x | k)
    constant: float = 0.0  # added to Σ_n ln Σ_k exp(…): 0 for a likelihood


def proportions(mass: Array, count: int = 1) -> Shares:
    """Return the weights of maximum likelihood, n_k/n, in each of `count` mixtures."""
    xp = backend.namespace(mass)
    if count == 1:
        weights = mass / xp.sum(mass)
    else:
        each = xp.reshape(mass, (count, -1))
        weights = xp.reshape(each / xp.sum(each, axis=1)[:, None], (-1,))
    least = 0 * weights + LEAST_WEIGHT
    return Shares(weights, xp.log(xp.where(weights > least, weights, least)))


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

    weights: Annotated[Array, "K", ">= 0, sum 1"]
    emissions: Annotated[Emissions, "K d"]

    def joint(self, X: Observations) -> Array:
        """Return ln π_k + ln p(x_i | k), (n, K)."""
        return self.emissions.log_density(X) + proportions(self.weights).log_weights

    def log_density(self, X: Observations) -> Array:
        """Return ln p(x_i), (n,)."""
        return log_sum_exp(self.joint(X))[0]

    def responsibilities(self, X: Observations) -> Array:
        """Return p(k | x_i), (n, K)."""
        return log_sum_exp(self.joint(X))[1]

    def numbered(self, features: tuple[Host, Host] | None = None) -> Mixture:
        """Return the mixture with numbers and signs that do not depend on how it was found.

        `features`, in a kernel's space: mean and variance of the inputs under every component.
        """
        e, weights = self.emissions, self.weights
        found = e.feature_moments() if features is None else features
        order = label_order(*found, backend.to_numpy(weights), e.ranks)
        return Mixture(backend.take(weights, order), e.take(order.tolist()).signed())

    def n_parameters(self) -> int:
        """Return the number of free parameters."""
        return sum(self.emissions.n_parameters()) + self.emissions.K - 1

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw n rows, in random order, and the components they come from."""
        pi = np.asarray(backend.to_numpy(self.weights), dtype=np.float64)
        labels = rng.choice(self.emissions.K, size=n, p=pi / np.sum(pi))
        return self.emissions.sample(labels, rng), labels


class MixtureSelection(NamedTuple):
    """The choice of the numbers of components and of latent dimensions of a mixture.

    Parameters
    ----------
    criterion : str
        Name of the criterion.
    candidates : list of (int, int)
        Numbers of mixture components and of latent dimensions that were tried.
    scores : list of float
        −BIC/2 or held-out log-density per row; larger is better.
    chosen : (int, int)
        The candidate that was chosen.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import MixturePPCA
    >>> model = MixturePPCA("bic", 1, max_mixtures=2, tol=1e-2, random_state=0)
    >>> model.fit(load_iris().data).selection_.chosen
    (2, 1)
    """

    criterion: str
    candidates: list[tuple[int, int]]  # (K, q)
    scores: list[
        Annotated[float, "or nan, or inf"]
    ]  # −BIC/2, or held-out log-density per row; larger is better
    chosen: tuple[int, int]


@dataclass(frozen=True)
class MixtureModel:
    """A fitted mixture of PPCA, over the features or over the coordinates ψ(x) in a kernel's space.

    Arrays have the dtype of the rows that were fitted; everything is computed in float64. Methods
    accept rows of the input space, with NaN where there is no kernel.
    """

    mixture: Annotated[Mixture, "K m=d"]
    components: tuple[Annotated[Array, "* m"], ...]  # principal axes, largest variance first
    variances: tuple[Annotated[Array, "*", ">= 0"], ...]  # along them
    loglikelihood: Annotated[float, "or nan, or inf"]  # of the training rows
    lower_bound: Annotated[float, "or nan, or inf"]  # per row, of what EM maximised
    history: History
    selection: MixtureSelection | None = None
    space: Annotated[KernelSpace, "m d"] | None = None

    def __post_init__(self) -> None:
        """Refuse axes and variances that are not those of the components."""
        shapes = [tuple(W.shape) for W in self.mixture.emissions.loadings]
        axes = [(int(V.shape[1]), int(V.shape[0])) for V in self.components]
        ranks = [int(values.shape[0]) for values in self.variances]
        m = self.mixture.emissions.dim if self.space is None else self.space.m
        if shapes != axes or [q for _, q in shapes] != ranks or any(d != m for d, _ in shapes):
            raise ValueError("axes, variances and loadings of a mixture differ in size")

    @cached_property
    def working(self) -> Mixture:
        """The mixture in float64."""
        return moved(self.mixture, backend.working)

    @property
    def covariances(self) -> Array:
        """W_kW_kᵀ + σ_k²I, (K, m, m)."""
        return backend.cast_like(self.working.emissions.covariances, self.mixture.weights)

    def points(self, rows: Array) -> Array:
        """Return what the mixture is a density of: the rows, or ψ(x) in the space of the kernel."""
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

    def _latents(self, rows: Array) -> tuple[Array, list[Latents]]:
        """Return p(k | x), (n, K), and the posterior of z under every component."""
        points, mixture = self.points(rows), self.working
        table = mixture.emissions.table(points)
        found = [mixture.emissions.posterior(table, k) for k in range(mixture.emissions.K)]
        return mixture.responsibilities(points), found

    def coordinates(self, rows: Array) -> Array:
        """Return p(k | x) E[z | x, k] of all components side by side, (n, Σq_k)."""
        resp, found = self._latents(rows)
        weighted = [one.mean * resp[:, k : k + 1] for k, one in enumerate(found)]
        return backend.namespace(resp).concat(weighted, axis=1)

    def signal(self, rows: Array, spread: bool = False) -> tuple[Array, Array | None]:
        """Return Σ_k p(k | x)(μ_k + W_k E[z | x, k]), (n, m), and the deviation of a measurement.

        That counts the spread within components and between them.
        """
        (resp, found), e = self._latents(rows), self.working.emissions
        means = [one.mean @ e.loadings[k].T + e.means[k, :] for k, one in enumerate(found)]
        mean = sum(resp[:, k : k + 1] * each for k, each in enumerate(means))
        if not spread:
            return mean, None
        variance = 0 * mean
        for k, one in enumerate(found):
            within = quadratic(one.covariance, e.loadings[k]) + e.noises[k]
            variance = variance + resp[:, k : k + 1] * (within + (means[k] - mean) ** 2)
        return mean, backend.namespace(rows).sqrt(variance)


def model_of(
    mixture: Mixture, like: Array, loglikelihood: float, lower_bound: float, **others: Any
) -> MixtureModel:
    """Return a mixture as a model, in the dtype of `like`, with the axes of its components."""
    e, cast = mixture.emissions, partial(backend.cast_like, X=like)
    axes = [algebra.svd(W) for W in e.loadings]
    components = tuple(cast(U.T) for U, _, _ in axes)
    variances = tuple(cast(s * s + e.noises[k]) for k, (_, s, _) in enumerate(axes))
    settled = {"noises": variances_like(e.noises, like), "floor": 0.0, "prior": None}
    kept = moved(mixture, cast)
    kept = replace(kept, emissions=replace(kept.emissions, **settled))
    return MixtureModel(kept, components, variances, loglikelihood, lower_bound, **others)


# --- What is asked for ---------------------------------------------------------------------------

CRITERIA = ("bic", "cv")
"""Ways to choose a size by trying candidates."""

BOUND = "dirichlet"

COLLAPSE_RULES = ("floor", "reseed", "drop")

SAME_SEED = partial(np.random.default_rng, 0)


@dataclass(frozen=True)
class MixtureRequest:
    """What `fit_mixture` needs to know, checked."""

    n_mixtures: int | str
    n_components: int | Sequence[int] | str
    noise_floor: float = 1e-6  # as a share of `unit`
    tied_noise: bool = False
    on_collapse: str = "floor"
    tol: float = 1e-5  # estimated gain that is left when EM stops, in log-likelihood per row
    max_iter: int = 500
    max_mixtures: int = 10
    concentration: float = 1.0
    n_init: int = 1
    n_jobs: int | None = None
    generator: Callable[[], np.random.Generator] = SAME_SEED
    watch: Watch | None = None
    kernel: Any = None
    kernel_params: Mapping[str, Any] | None = None
    n_directions: int = 50
    unit: float = 0.0  # average variance of the features of all rows, once known

    @property
    def floor(self) -> float:
        """Smallest noise variance."""
        return float(self.noise_floor * self.unit)

    @property
    def alpha(self) -> float | None:
        """Concentration of a Dirichlet process; None for likelihood."""
        return self.concentration if self.n_mixtures == BOUND else None

    @property
    def criterion(self) -> str | None:
        """By what sizes are chosen; None if they are given."""
        words = (self.n_mixtures, self.n_components)
        return next((w for w in words if isinstance(w, str) and w in CRITERIA), None)


# --- EM: steps over a table, and components that collapse on the way -----------------------------

DEAD = 1e-8
"""Share of all rows below which a component is dead."""


def row_weights(rows: Array, weights: Array | None) -> Array:
    """Return a weight for every row, 0 for those that observe nothing."""
    return block_weights(observed_weights(rows, weights), slice(None), rows)


class Runs(NamedTuple):
    """Likelihoods of several starts that run side by side, at every step so far."""

    values: Array  # (steps, S)

    @property
    def starts(self) -> int:
        """S."""
        return int(self.values.shape[1])

    def ahead(self, collapsed: Array, alike: Array) -> Array:
        """Return the starts that stay in the race, (m,), in order.

        Of those that are `alike` (S, S) the best is enough; half of all is left after half of the
        steps. The best have fewest collapsed components, then the largest likelihood.
        """
        kept: list[int] = []
        last = [-nine_digits(value) for value in self.values[-1].tolist()]
        for s in np.lexsort((last, collapsed)).tolist():
            if not alike[s, kept].any():
                kept.append(s)
        halfway = len(self.values) == 1 + START_STEPS // 2
        return np.sort(kept[: (len(kept) + 1) // 2] if halfway else kept)


@dataclass(frozen=True)
class EMState:
    """Where EM is: components, their weights, and what the E step found under them."""

    emissions: Emissions
    mass: Array  # (K,)
    shares: Shares
    sums: Any  # EmissionSums of chunks, WeightedRows of rows in memory
    reseeded: int = 0
    dropped: int = 0
    rescued: bool = False  # by the last step: likelihoods before it do not compare
    rng: Any = None  # state of the generator
    runs: Runs | None = None  # several starts side by side, their components one after another


class MixtureSteps:
    """EM of a mixture on one table, as `iterate` wants it.

    Parameters
    ----------
    data : Surveyed
    request : MixtureRequest
    q : int
        Largest number of directions, for the size of blocks.
    rng : Generator
        For components that are started again.

    Notes
    -----
    The likelihood (or bound) never falls; its record begins again where a component was dropped or
    started again. A step is one pass. On complete rows in memory it costs O(ndΣq_k) for densities
    and O(nd²) for weighted scatters where components are apart, K times that where they overlap.
    """

    def __init__(
        self, data: Surveyed, request: MixtureRequest, q: int, rng: np.random.Generator
    ) -> None:
        self.data, self.request, self.rng, self.n = data, request, rng, data.columns.weight
        missing = data.missing

        in_memory = data.in_memory

        def prepare(rows: Array, weights: Array | None) -> tuple[Observations, Array]:
            w = row_weights(rows, weights)
            if in_memory:
                return ready_for_steps(rows, missing, q), w
            return Incomplete(rows, None, q) if missing else rows, w

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
            tol=self.request.tol * self.n,
            anew=lambda state: state.rescued,
            keeper=keeper,
            pack=self.pack,
            unpack=self.unpack,
        )

    def begin(self, emissions: Emissions, mass: Array) -> tuple[EMState, Record]:
        """Return EM at components that have these masses, and their likelihood on record."""
        state, value = self.expect(emissions, mass)
        return state, Record([value])

    def expect(
        self, emissions: Emissions, mass: Array, *, runs: Runs | None = None, **story: Any
    ) -> tuple[EMState, float]:
        """Take the E step; return what it found and the likelihood (the best of several starts)."""
        alpha, in_memory, count = (
            self.request.alpha,
            self.data.in_memory,
            runs.starts if runs else 1,
        )
        if alpha is None:
            shares = proportions(mass, count)
        else:
            shares = broken_sticks(mass, alpha, emissions.n_parameters())
        log_weights = shares.log_weights

        def of(chunk: tuple[Observations, Array]) -> tuple[Any, Any]:
            rows, w = chunk
            joint = emissions.log_density(rows) + log_weights
            one = count == 1 and not isinstance(rows, Expanded)
            density, resp = log_sum_exp(joint) if one else side_by_side(joint, count)
            sums = emissions.sums(rows, resp * w[:, None], in_memory=in_memory)
            total = w @ density
            return (float(total if one else total[0]) if runs is None else total), sums

        value, sums = self.rows.reduce(of, lambda a, b: (a[0] + b[0], a[1].plus(b[1])))
        story["rng"] = self.rng.bit_generator.state
        if runs is not None:
            runs = Runs(np.concatenate([runs.values, value[None]]))
        total = value if runs is None else float(np.max(value))
        total += shares.constant + emissions.log_prior()
        return EMState(emissions, mass, shares, sums, runs=runs, **story), total

    def step(self, state: EMState) -> tuple[EMState, float]:
        """Take one M step and one E step."""
        emissions, mass = state.sums.maximise(state.emissions), state.sums.mass
        story: dict[str, Any] = {"reseeded": state.reseeded, "dropped": state.dropped}
        rule = self.request.on_collapse
        bad = [] if rule == "floor" else self.collapsed(emissions, mass)
        if bad and len(bad) < emissions.K:  # as long as something else is left
            story["rescued"] = True
            if rule == "reseed" and state.reseeded < 2 * emissions.K:
                emissions, mass = self.reseed(state, emissions, mass, bad)
                story["reseeded"] += len(bad)
            else:
                keep = [k for k in range(emissions.K) if k not in bad]
                emissions, mass = emissions.take(keep), backend.take(mass, np.array(keep))
                story["dropped"] += len(bad)
        return self.expect(emissions, mass, runs=state.runs, **story)

    def collapsed(self, emissions: Emissions, mass: Array) -> list[int]:
        """Return components whose noise is at the floor, or that no row belongs to."""
        dead = np.flatnonzero(backend.to_numpy(mass) < DEAD * self.n).tolist()
        # under a Dirichlet process components are meant to die
        return sorted({*(dead if self.request.alpha is None else ()), *emissions.at_floor()})

    def reseed(
        self, state: EMState, model: Emissions, mass: Array, bad: list[int]
    ) -> tuple[Emissions, Array]:
        """Start components again, round and wide, at rows that the others explained worst."""
        table: Any = self.data.table
        ready: Any = self.rows.ready
        (rows, w), X, xp = ready, table.rows, backend.namespace(table.rows)
        joint = state.emissions.log_density(rows) + state.shares.log_weights
        density = backend.to_numpy(log_sum_exp(joint)[0])
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
        fresh = replace(model, means=xp.stack(means), loadings=tuple(loadings), noises=noises)
        return fresh, mass * (1 - mask) + mask * self.n / model.K

    def pack(self, state: EMState) -> State:
        """Return all that the next step depends on."""
        prior = state.emissions.prior
        numbers = {name: getattr(state, name) for name in ("rng", "reseeded", "dropped")}
        numbers["prior"] = None if prior is None else list(prior)
        return state.emissions.arrays() | {"mass": backend.to_numpy(state.mass)}, numbers

    def unpack(self, stored: State) -> EMState:
        """Return the state that was packed."""
        (arrays, numbers), request, like = stored, self.request, self.data.table.like
        prior = None if numbers["prior"] is None else Prior(*numbers["prior"])
        options = (request.floor, request.tied_noise, prior)
        self.rng.bit_generator.state = numbers["rng"]
        story: dict[str, Any] = {name: int(numbers[name]) for name in ("reseeded", "dropped")}
        emissions = Emissions.restored(arrays, like, *options)
        return self.expect(emissions, backend.asarray(arrays["mass"], like), **story)[0]

    def start(self, sizes: Sizes) -> tuple[EMState, Record]:
        """Return the best of a few short runs from k-means, to be carried on; rows in memory."""
        (K, q), request, rng = sizes, self.request, self.rng
        table: Any = self.data.table
        ready: Any = self.rows.ready
        X, weights = table.rows, table.weights
        tries = START_TRIES if K > 1 else 1
        clusters = kmeans_runs(X, K, tries, rng, weights, KMEANS_STEPS)
        plain = request.alpha is None and request.on_collapse == "floor" and not request.tied_noise
        if plain and tries > 1 and isinstance(ready[0], Expanded):
            return self.race(clusters, sizes)

        def at(labels: Array) -> tuple[EMState, Record]:
            options: dict[str, Any] = {"floor": request.floor, "tied": request.tied_noise}
            start = Emissions.start(X, K, q, rng, sample_weight=weights, labels=labels, **options)
            if request.alpha is not None:
                start = replace(start, prior=Prior(PRIOR_ROWS, PRIOR_VARIANCE * self.data.unit))
            w = None if weights is None else backend.to_numpy(weights)
            return self.begin(start, backend.asarray(np.bincount(labels, w, minlength=K), X))

        begins: list[Callable[[], tuple[EMState, Record]]] = [partial(at, run) for run in clusters]
        for steps in (START_STEPS // 2, START_STEPS):  # half of them is left for the second half
            runs: list[tuple[EMState, Record]] = []
            for begin in begins:
                runs.append(self.run(begin, min(steps, request.max_iter)))
                if runs[-1][1].interrupted:
                    break
            interrupted = runs[-1][1].interrupted
            runs.sort(key=lambda one: merit(one[0].emissions, one[1]), reverse=True)
            if interrupted or len(runs) == 1:
                break
            begins = [partial(resumed, run) for run in runs[: (len(runs) + 1) // 2]]
        runs[0][1].interrupted = interrupted
        return runs[0]

    def race(self, clusters: Array, sizes: Sizes) -> tuple[EMState, Record]:
        """Run EM from several clusterings (S, n) side by side; return the best, to be carried on.

        All components of all starts are one set of Gaussians, whose shares are taken start by
        start. Starts that fall behind are left, and the race ends when one is left.
        """
        (K, q), request, S = sizes, self.request, len(clusters)
        ready: Any = self.rows.ready
        rows, w = ready
        ranks = ([q] * K if isinstance(q, int) else [int(one) for one in q]) * S
        resp = (clusters[:, None, :] == np.arange(K)[:, None]).reshape(S * K, -1) * w

        blank, runs = (
            Emissions.nowhere(rows.rows, ranks, floor=request.floor),
            Runs(np.empty((0, S))),
        )
        start = self.expect(blank.update(rows, resp.T), np.sum(resp, axis=1), runs=runs)[0]
        start, alone = self.ahead(start), False

        def step(state: EMState) -> tuple[EMState, float]:
            nonlocal alone
            state, value = self.step(state)
            state = self.ahead(state)
            alone = starts_of(state).starts == 1
            return state, value

        most = min(START_STEPS, request.max_iter) if starts_of(start).starts > 1 else 0
        state, record = iterate(
            step, lambda: (start, Record([0.0])), max_iter=most, stop=lambda record: alone
        )
        runs = starts_of(state)
        collapsed = held_at_floor(state.emissions, runs.starts).tolist()
        last = [nine_digits(value) for value in runs.values[-1].tolist()]
        best = max(range(runs.starts), key=lambda s: (-collapsed[s], last[s]))
        values = runs.values[:, best].tolist()
        end = left_to_gain(values) <= request.tol * self.n
        found = Record(values, len(values) - 1, converged=end, interrupted=record.interrupted)
        return replace(only(state, np.array([best])), runs=None), found

    @staticmethod
    def ahead(state: EMState) -> EMState:
        """Return several starts without those that cannot win any more."""
        runs = starts_of(state)
        if runs.starts == 1:
            return state
        alike = same_clusters(state.sums.resp, runs.starts)
        winning = runs.ahead(held_at_floor(state.emissions, runs.starts), alike)
        return state if winning.size == runs.starts else only(state, winning)


def resumed(run: tuple[EMState, Record]) -> tuple[EMState, Record]:
    """Return where a run is, to be carried on."""
    return run


def starts_of(state: EMState) -> Runs:
    """Return the starts that run side by side."""
    if state.runs is None:
        raise TypeError("one start runs alone")
    return state.runs


def held_at_floor(emissions: Emissions, count: int) -> Array:
    """Return the number of components at the floor in each of several starts, (S,)."""
    return np.sum((emissions.noises <= emissions.floor * (1 + 1e-9)).reshape(count, -1), axis=1)


def same_clusters(resp: Array, count: int) -> Array:
    """Return which of several starts share out the rows alike, (S, S), by shares (n, S · K)."""
    common = np.dot(resp.T, resp)
    size = np.sqrt(np.add.reduce(common.diagonal().reshape(count, -1), axis=1))
    K = len(common) // count
    best = common.reshape(count * K, count, K).max(axis=2)  # of every cluster, in every start
    shared = np.add.reduce(best.reshape(count, K, count), axis=1)
    return np.minimum(shared, shared.T) >= ALIKE * (size[:, None] * size)


def only(state: EMState, which: Array) -> EMState:
    """Return some of several starts."""
    runs = starts_of(state)
    K = state.emissions.K // runs.starts
    index = (which[:, None] * K + np.arange(K)).reshape(-1)
    shares = Shares(state.shares.weights[index], state.shares.log_weights[index])
    return replace(
        state,
        emissions=state.emissions.take(index.tolist()),
        mass=state.mass[index],
        shares=shares,
        sums=WeightedRows(state.sums.rows, state.sums.resp[:, index]),
        runs=Runs(runs.values[:, which]),
    )


def side_by_side(joint: Array, count: int) -> tuple[Array, Array]:
    """Return ln p of every row under several mixtures, (n, S), and shares in each, (n, S · K)."""
    n = joint.shape[0]
    P = joint.T.reshape(count, -1, n)
    top = np.maximum.reduce(P, axis=1, keepdims=True)
    P = P - top
    np.exp(P, out=P)
    total = np.add.reduce(P, axis=1, keepdims=True)
    P /= total
    np.log(total, out=total)
    total += top
    return total.reshape(count, n).T, P.reshape(-1, n).T


# --- Given sizes: the best of a few short starts, carried on to the end --------------------------

PRIOR_ROWS, PRIOR_VARIANCE = 2.0, 0.1
"""Of a component under a Dirichlet process: without a prior the smallest would be the likeliest."""

START_TRIES, START_STEPS, KMEANS_STEPS = 4, 10, 20
"""A start is the best of so many, each of so many steps of EM after so many of k-means.

k-means often puts two centres into one group and one into two; ten steps show it, and a hundred
would not mend it (Biernacki, Celeux & Govaert 2003).
"""

START_SAMPLE, SAMPLE_PER_NUMBER = 1000, 4
"""Rows that starts are tried on: so many at least, and so many for every number in the means."""

ALIKE = 0.98
"""Share of rows, about, that starts have in common which are on the way to the same end."""

Sizes = tuple[int, int | Sequence[int]]
"""K, and q or one for every component."""


class Found(NamedTuple):
    """A mixture, how EM came to it, and how many components were started again or dropped."""

    mixture: Mixture
    record: Record
    reseeded: int
    dropped: int


def merit(emissions: Emissions, record: Record) -> tuple[int, float]:
    """Return what to compare runs by: few collapsed components, then the likelihood."""
    return -len(emissions.at_floor()), nine_digits(record.loglikelihoods[-1])


def nine_digits(value: float) -> float:
    """Return a likelihood without its last digits: of equal ends the first wins everywhere."""
    return float(f"{value:.8e}")


def best_of(runs: Iterable[Found]) -> Found:
    """Return the run of fewest collapses, then the likeliest."""
    return max(runs, key=lambda one: merit(one.mixture.emissions, one.record))


def fit_sizes(
    data: Surveyed,
    request: MixtureRequest,
    sizes: Sizes,
    rng: np.random.Generator,
    keeper: Keeper | None = None,
) -> Found:
    """Fit K components of q directions from the best of a few k-means starts.

    EM of a chunked table starts on a sample of its rows and ends on all of them; if there are fewer
    rows than the sample has room for, it is the fit in memory.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(size=(90, 3)), rng.normal(size=(10, 3)) + 9])
    >>> found = fit_sizes(Surveyed.of(InMemoryTable(X)), MixtureRequest(2, 1), (2, 1), rng)
    >>> sorted(found.mixture.weights.round(2).tolist())
    [0.1, 0.9]
    """
    q = int(np.max(sizes[1]))
    steps = MixtureSteps(data, request, q, rng)

    def begin() -> tuple[EMState, Record]:
        table: Any = data.table
        most = max(START_SAMPLE, SAMPLE_PER_NUMBER * sizes[0] * table.d)
        if data.in_memory and data.columns.rows <= 2 * most:
            return steps.start(sizes)
        if data.in_memory:
            sample = some_rows(table, most, rng)
        else:
            sample = InMemoryTable(table.sample(START_ROWS, seed=0))
        first = MixtureSteps(Surveyed.of(sample), request, q, rng)
        state, record = first.start(sizes)
        found, value = steps.expect(state.emissions, state.mass * (steps.n / first.n))
        if not data.in_memory and len(sample.rows) < START_ROWS:  # all rows: EM has begun already
            return replace(found, reseeded=state.reseeded, dropped=state.dropped), record
        return found, Record([value], interrupted=record.interrupted)

    return found_at(*steps.run(begin, request.max_iter, keeper), request)


def some_rows(table: InMemoryTable, count: int, rng: np.random.Generator) -> InMemoryTable:
    """Return `count` rows that weigh something, drawn without replacement, in their order."""
    X, w = table.rows, table.weights
    heavy = np.arange(len(X)) if w is None else np.flatnonzero(backend.to_numpy(w) > 0)
    if heavy.size <= count:
        return table
    index = np.sort(rng.choice(heavy, count, replace=False))
    return InMemoryTable(backend.take(X, index), None if w is None else backend.take(w, index))


def found_at(state: EMState, record: Record, request: MixtureRequest) -> Found:
    """Return the mixture; one under a Dirichlet process without its empty components."""
    weights, emissions = state.shares.weights, state.emissions
    if request.alpha is not None:
        mass = np.asarray(backend.to_numpy(state.mass))
        keep = [int(k) for k in np.argsort(-mass, kind="stable") if mass[k] >= 1] or [0]
        weights, emissions = backend.take(weights, np.array(keep)), emissions.take(keep)
    weights = weights / backend.namespace(weights).sum(weights)
    return Found(Mixture(weights, emissions.signed()), record, state.reseeded, state.dropped)


# --- From a table to a model ---------------------------------------------------------------------


def fit_mixture(table: Table, request: MixtureRequest) -> MixtureModel:
    """Fit a mixture of PPCA by EM (Tipping & Bishop 1999b), NaN or not, in a kernel's space or not.

    Chunked tables are read once per step. They have neither kernels nor sizes to be chosen, which
    need all rows in memory.
    """
    like, space, among = table.like, None, "features"
    if not isinstance(table, InMemoryTable):
        refuse_chunks(request)
        note(f"{table.route} on the CPU: EM of a mixture, one pass per step")
    if request.kernel is not None:
        inputs: Any = getattr(table, "rows", None)
        (space, table), among = open_space(table, request), "directions of feature space"
    data = Surveyed.of(table)
    data.require_two(data.columns.used)
    check_sizes(request, data.columns.used, table.d, among)
    found, selection = best_mixture(data, request)
    features = None
    if space is not None and isinstance(table, InMemoryTable):
        shares = backend.to_numpy(found.mixture.responsibilities(table.rows))
        features = input_moments_on_host(inputs, shares)
    found = found._replace(mixture=found.mixture.numbered(features))
    warn_of_collapse(found)
    history, mixture = History.of(found.record), found.mixture
    value = history.loglikelihood
    if request.alpha is not None:  # that was of the bound

        def density(rows: Array, weights: Array | None = None) -> float:
            return float(row_weights(rows, weights) @ mixture.log_density(rows))

        value = data.table.reduce(density, add)
    bound = history.loglikelihood / data.columns.weight
    others: dict[str, Any] = {"history": history, "selection": selection, "space": space}
    return model_of(mixture, like, value, bound, **others)


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
        remedy = "A restarted component looks for the rows explained worst."
        what = "'floor' or 'drop' for chunked data"
        raise ValueError(expected("on_collapse", what, "reseed", remedy))


def open_space(table: Any, request: MixtureRequest) -> tuple[KernelSpace, InMemoryTable]:
    """Find the common kernel space of the rows, and return it with the rows in it.

    The width of a named kernel is that of `KernelPCA`: gamma is 1/d by default.
    """
    X, m, w = table.rows, int(request.n_directions), table.weights
    refuse_nonfinite(X)
    kernel = KernelChoice(request.kernel, params=request.kernel_params).resolved(X)
    rng, most = request.generator(), max(500, m)
    space = KernelSpace.fit(X, kernel, m, rng, n_landmarks=most, weights=w)
    return space, InMemoryTable(space(X), w)


def check_sizes(request: MixtureRequest, count: int, d: int, among: str) -> None:
    """Refuse sizes that `count` rows of d features cannot satisfy."""
    K, q = request.n_mixtures, request.n_components
    if is_count(K) and int(K) > count:
        remedy = "Every component needs a row: ask for fewer components, or give more rows."
        raise ValueError(expected("n_mixtures", f"at most the number of rows, {count}", K, remedy))
    if not isinstance(q, str) and int(np.max(q)) > d:
        what = f"at most {d}, the number of {among}"
        raise ValueError(expected("n_components", what, int(np.max(q))))


def best_mixture(data: Surveyed, request: MixtureRequest) -> tuple[Found, MixtureSelection | None]:
    """Fit a table: sizes first, then all starts, of which the best is kept."""
    request = replace(request, unit=data.checked().unit)
    given, q, criterion = request.n_mixtures, request.n_components, request.criterion
    K = min(request.max_mixtures, data.columns.rows) if isinstance(given, str) else given
    sizes: Any = (int(K), int(q) if is_count(q) else q)  # type: ignore[arg-type]
    selection = None
    if criterion is not None:
        score = partial(by_bic if criterion == "bic" else by_held_out, data, request)
        most = max(1, min(data.table.d - 1, MOST_DIRECTIONS_TRIED))
        mixtures = range(1, sizes[0] + 1) if given == criterion else sizes[:1]
        components = range(1, most + 1) if q == criterion else sizes[1:]
        selection = choose(criterion, score, mixtures, components)
        sizes = selection.chosen
    return best_start(data, sizes, request, request.watch), selection


def best_start(
    data: Surveyed, sizes: Sizes, request: MixtureRequest, watch: Watch | None = None
) -> Found:
    """Run EM from `n_init` starts; keep the best."""
    seeds = request.generator().integers(2**63 - 1, size=int(request.n_init)).tolist()
    columns, keeper = data.columns, None
    if watch is not None and len(seeds) == 1:
        keeper = watch.over(columns.rows, columns.mean, columns.variance)

    def run(seed: int) -> Found:
        return fit_sizes(data, request, sizes, np.random.default_rng(seed), keeper)

    if len(seeds) == 1 or not data.in_memory:
        return best_of(map(run, seeds))
    work = (delayed(run)(seed) for seed in seeds)
    return best_of(Parallel(n_jobs=request.n_jobs, prefer="threads")(work))


def warn_of_collapse(found: Found) -> None:
    """Say which components are held at the floor, and how many were started again or dropped."""
    held = found.mixture.emissions.at_floor()
    story = {
        f"{found.reseeded} times a component was started again": found.reseeded,
        f"{found.dropped} components were dropped": found.dropped,
        f"the noise of components {held[:10]} is held at noise_floor": held,
    }
    if any(story.values()):
        warn(
            f"components collapsed on too few rows: {', '.join(k for k, v in story.items() if v)}. "
            "Use fewer mixtures or components, tied_noise=True, a larger noise_floor, or more "
            "starts (n_init).",
            CollapseWarning,
        )


# --- How many components of how many directions: BIC or the likelihood of held-out rows ----------

MOST_DIRECTIONS_TRIED = 10
"""Largest q that 'bic' and 'cv' try."""

MOST_WORSE_SIZES = 2
"""Sizes in a row that may be worse than the best before larger ones are left alone."""


def by_bic(data: Surveyed, request: MixtureRequest, K: int, q: int) -> float:
    """Return −BIC/2 (Schwarz 1978)."""
    found, price = best_start(data, (K, q), request), 0.5 * math.log(data.columns.weight)
    return found.record.loglikelihoods[-1] - price * found.mixture.n_parameters()


def by_held_out(data: Surveyed, request: MixtureRequest, K: int, q: int) -> float:
    """Return the log-density per row of held-out rows, in five folds."""
    table: Any = data.table
    X, n, total = table.rows, int(table.rows.shape[0]), 0.0
    order = np.random.default_rng(0).permutation(n)
    w = np.ones(n) if table.weights is None else np.asarray(backend.to_numpy(table.weights))
    for held in np.array_split(order, min(FOLDS, n)):
        kept = np.setdiff1d(order, held)
        if kept.size < K:
            return -math.inf
        rows = InMemoryTable(backend.take(X, kept), backend.asarray(w[kept], X))
        fold, rng = Surveyed.of(rows), np.random.default_rng([0, K, q])
        best = best_of(fit_sizes(fold, request, (K, q), rng) for _ in range(request.n_init))
        density = best.mixture.log_density(backend.take(X, held))
        total += float(w[held] @ backend.to_numpy(density))
    return total / float(np.sum(w))


def choose(
    criterion: str,
    score: Callable[[int, int], float],
    mixtures: Sequence[int],
    components: Sequence[int],
) -> MixtureSelection:
    """Score K = 1, 2, … and for each q = 1, 2, …, until two in a row are worse than the best.

    Examples
    --------
    >>> found = choose("bic", lambda K, q: -abs(K - 3) - abs(q - 2), range(1, 9), range(1, 9))
    >>> found.chosen, len(found.candidates)
    ((3, 2), 20)
    """

    def given_up(values: list[float]) -> bool:
        return len(values) - 1 - int(np.argmax(values)) >= MOST_WORSE_SIZES

    scores: dict[tuple[int, int], float] = {}
    best_per_K: list[float] = []
    with task("candidate", len(mixtures) * len(components)) as tick:
        for K in mixtures:
            row: list[float] = []
            for q in components:
                scores[K, q] = score(K, q)
                row.append(scores[K, q])
                tick(f"K = {K}, q = {q}")
                if given_up(row):
                    break
            best_per_K.append(max(row))
            if given_up(best_per_K):
                break
    chosen = max(scores, key=scores.__getitem__)
    return MixtureSelection(criterion, list(scores), list(scores.values()), chosen)


# --- A mixture from chunks, each seen once: stepwise EM (Cappé & Moulines 2009) ------------------
#
# Of the rows only expected moments are kept, one weighted mean and scatter per component. They fade
# as the parameters they were taken at grow old, s ← (1 − γ)s + γ s̄(chunk), where γ is the chunk's
# share of all rows to the power `FORGET`, and the components are the closed form of what is kept
# (theory 2). A missing value enters through its conditional mean and covariance, so chunks with and
# without NaN are treated alike.

FIRST_ROWS, FIRST_ROWS_PER_COMPONENT = 100, 20
"""Rows wait until there are so many: the start is a fit of those, and all depends on it."""


@dataclass(frozen=True)
class MixtureStream:
    """What a stream remembers. Adding a chunk returns a new one.

    Parameters
    ----------
    K : int
        Number of components, for how many rows wait.

    Notes
    -----
    Memory O(Kd²) and fewer than max(100, 20K) rows that wait.

    Examples
    --------
    >>> import numpy as np
    >>> rng, request, stream = np.random.default_rng(0), MixtureRequest(2, 1), MixtureStream(2)
    >>> for _ in range(20):
    ...     X = rng.normal(size=(100, 3)) + 4 * rng.choice([-1, 1], size=(100, 1))
    ...     stream = stream.add(X, None, request)
    >>> np.abs(stream.kept.emissions.means.round(0)[:, 0])
    array([4., 4.])
    """

    _together: ClassVar = ("rows weights", "kept moments")  # in files
    _one_of: ClassVar = ("rows", "kept")

    K: Annotated[int, ">= 1, == K"]
    rows: Annotated[Array, "b d", "or nan"] | None = None  # waiting
    weights: Annotated[Array, "b", ">= 0"] | None = None
    kept: Annotated[Mixture, "K d"] | None = None
    moments: tuple[Annotated[Moments, "d=p"], ...] = ()  # a unit of weight in all
    n: Annotated[float, ">= 0"] = 0.0  # weight of all rows, waiting ones included
    density: float = 0.0  # running average of ln p per row, as the rows came
    like: Annotated[Array, "0 d"] | None = None  # no rows, of the last chunk's kind

    def add(self, X: Array, weights: Array | None, request: MixtureRequest) -> MixtureStream:
        """Return the stream with one more chunk; the rows that it starts from are fitted."""
        refuse_infinite(X)
        xp, w, like = backend.namespace(X), row_weights(X, weights), X[:0, :]
        X = backend.working(X)
        if self.kept is not None:
            return replace(self, like=like)._absorb(self.kept, X, w)
        if self.rows is not None:
            X, w = xp.concat([self.rows, X], axis=0), xp.concat([self.weights, w], axis=0)
        waiting = replace(self, rows=X, weights=w, n=float(xp.sum(w)), like=like)
        enough = int(X.shape[0]) >= max(FIRST_ROWS, FIRST_ROWS_PER_COMPONENT * self.K)
        return waiting.settle(request) if enough else waiting

    def settle(self, request: MixtureRequest) -> MixtureStream:
        """Return the stream after the fit of the rows that wait, if any do."""
        if self.rows is None or self.weights is None:
            return self
        data = Surveyed.of(InMemoryTable(self.rows, self.weights))
        kept = best_mixture(data, request)[0].mixture
        found, density = expected_moments(kept, self.rows, self.weights)
        moments, density = tuple(_times(m, 1 / self.n) for m in found), density / self.n
        return replace(self, rows=None, weights=None, kept=kept, moments=moments, density=density)

    @property
    def enough(self) -> bool:
        """True if there are rows for a mixture, even if they still wait."""
        return self.rows is None or int(self.rows.shape[0]) >= max(2, self.K)

    def _absorb(self, old: Mixture, X: Array, w: Array) -> MixtureStream:
        """Take one step of EM on what is remembered and on a chunk."""
        mass = float(backend.namespace(w).sum(w))
        if mass == 0:
            return self
        n = self.n + mass
        gamma = (mass / n) ** FORGET
        chunk, density = expected_moments(old, X, w)
        moments = tuple(
            _times(kept, 1 - gamma).merge(_times(new, gamma / mass)) if new.n > 0 else kept
            for kept, new in zip(self.moments, chunk, strict=True)
        )
        weights = backend.asarray(np.array([m.n for m in moments]), old.weights)
        weights = weights / backend.namespace(weights).sum(weights)
        mixture = Mixture(weights, old.emissions.of_moments(moments))
        running = self.density + gamma * (density / mass - self.density)
        return replace(self, kept=mixture, moments=moments, n=n, density=running)


def grown(
    stream: MixtureStream | None, table: InMemoryTable, request: MixtureRequest
) -> MixtureStream:
    """Return a stream with one more chunk."""
    K = request.n_mixtures
    if isinstance(K, str) or isinstance(request.n_components, str):
        what = "ints where partial_fit is used: rows are not kept for a choice"
        got = (K, request.n_components)
        raise ValueError(expected("n_mixtures and n_components", what, got))
    check_sizes(request, sys.maxsize, table.d, "features")
    old = MixtureStream(int(K)) if stream is None else stream
    if old.K != K:
        what, remedy = f"{old.K}, as when the stream began", "Give all chunks to a new model."
        raise ValueError(expected("n_mixtures", what, K, remedy))
    return old.add(table.rows, table.weights, request)


def model_of_stream(stream: MixtureStream, request: MixtureRequest) -> MixtureModel:
    """Return the model of a stream; waiting rows are included, and the stream is as before."""
    settled = stream.settle(request)
    if settled.kept is None:
        raise ValueError("the stream has no rows yet: give it some.")
    like = settled.kept.weights if stream.like is None else stream.like
    value = settled.density * stream.n
    history = History((value,), 1, converged=False, endless=True)
    return model_of(settled.kept.numbered(), like, value, settled.density, history=history)


def _times(m: Moments, factor: float) -> Moments:
    return Moments(m.n * factor, m.mean, m.scatter * factor)


def expected_moments(model: Mixture, X: Array, w: Array) -> tuple[list[Moments], float]:
    """Return the moments of every component's share of the rows, and Σ w ln p.

    A row with NaN counts as its distribution given what it observed: conditional means for missing
    values, and their conditional covariance added to the scatter. O(nd²) per component, and q times
    that for rows with NaN.
    """
    emissions, rows = model.emissions, model.emissions.table(X) if has_missing(X) else X
    density, resp = log_sum_exp(model.joint(rows))
    every = [(emissions.factors(k), resp[:, k] * w) for k in range(emissions.K)]
    return [_component_moments(rows, *each) for each in every], float(w @ density)


def _component_moments(rows: Observations, factors: Factors, w: Array) -> Moments:
    xp, mu = backend.namespace(w), factors.mu
    n = float(xp.sum(w))
    if not n > 0:
        return Moments(0.0, mu, 0 * mu[:, None] * mu[None, :])
    R, extra = _filled(rows, factors, w) if isinstance(rows, Incomplete) else (rows - mu, 0.0)
    shift = w @ R / n
    scatter = algebra.gram(R * xp.sqrt(w)[:, None]) - n * shift[:, None] * shift[None, :]
    return Moments(n, mu + shift, scatter + extra)


def _filled(table: Incomplete, factors: Factors, w: Array) -> tuple[Array, Array]:
    """Return rows around μ with expectations for missing values, and their summed covariances."""
    xp, W, rows, d = backend.namespace(w), factors.W, [], int(factors.mu.shape[0])
    extra = backend.asarray(np.zeros((d, d)), w)
    for block in table.blocks(factors.mu):
        found, own, missing = latents(factors, block), w[block.rows], 1 - block.mask
        rows.append(block.R + missing * (found.mean @ W.T))
        F = missing[:, :, None] * (W @ algebra.covariance_root(found.covariance))
        F = xp.permute_dims(F * xp.sqrt(own)[:, None, None], (0, 2, 1))
        extra = extra + algebra.gram(xp.reshape(F, (-1, d)))
        extra = extra + backend.asarray(np.eye(d), w) * (own @ missing) * factors.psi[0]
    return xp.concat(rows, axis=0), extra
