"""EM of a mixture of PPCA: steps over a table, starts, and the sizes that are given or chosen."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from operator import add
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaln, digamma

from dualpca.arrays import Array, backend, log_sum_exp, note
from dualpca.data import (
    FOLDS,
    Host,
    InMemoryTable,
    Table,
    block_weights,
    observed_weights,
    refuse_nonfinite,
)
from dualpca.errors import CollapseWarning, expected, warn
from dualpca.gaussian import Incomplete, is_count
from dualpca.kernels import Kernel
from dualpca.models import driver
from dualpca.models.clusters import Labels, cuts, kmeans_runs
from dualpca.models.emissions import (
    Emissions,
    Observations,
    Prior,
    RowSums,
    Surveyed,
    WeightedRows,
    input_moments,
    ranks_of,
    require_two,
)
from dualpca.models.expanded import Expanded
from dualpca.models.kernel import KernelChoice
from dualpca.models.kernel_space import KernelSpace
from dualpca.models.mixture.choosing import MixtureSelection, choose, near_enough, penalised
from dualpca.models.mixture.model import Mixture, MixtureModel, Shares, model_of, proportions


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


# --- What is asked for ---------------------------------------------------------------------------

CRITERIA = ("bic", "cv")
"""Ways to choose a size by trying candidates."""

BOUND = "dirichlet"

STICKS = 10
"""Components that a Dirichlet process starts with, where no number is given."""

COLLAPSE_RULES = ("floor", "reseed", "drop")


@dataclass(frozen=True)
class MixtureRequest(driver.IterativeRequest):
    """What `fit_mixture` needs to know, checked."""

    n_mixtures: int | str = "bic"
    n_components: int | Sequence[int] | str | None = None  # None: the rule of n_mixtures, or 'bic'
    noise_floor: float = 1e-6  # as a share of `unit`
    tied_noise: bool = False
    on_collapse: str = "floor"
    max_mixtures: int | None = None  # None: as many as there are rows; `STICKS` to empty
    concentration: float = 1.0
    n_init: int = 1
    n_jobs: int | None = None
    kernel: Kernel | str | None = None
    kernel_params: Mapping[str, Any] | None = None
    n_directions: int = 50
    unit: float = 0.0  # average variance of the features of all rows, once known
    # estimated gain that is left when EM stops, in log-likelihood per row
    tol: float = field(default=1e-5, kw_only=True)
    max_iter: int = field(default=500, kw_only=True)

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
        words = (self.n_mixtures, self.directions)
        return next((w for w in words if isinstance(w, str) and w in CRITERIA), None)

    @property
    def directions(self) -> int | Sequence[int] | str:
        """q, one for every component, or the rule that chooses it."""
        K, q = self.n_mixtures, self.n_components
        if q is not None:
            return q
        return 1 if K == BOUND else K if isinstance(K, str) else CRITERIA[0]


# --- EM: steps over a table, and components that collapse on the way -----------------------------

DEAD = 1e-8
"""Share of all rows below which a component is dead."""

PRIOR_ROWS, PRIOR_VARIANCE = 2.0, 0.1
"""Of a component under a Dirichlet process: without a prior the smallest would be the likeliest."""

START_TRIES, START_STEPS, KMEANS_STEPS = 4, 10, 20
"""A start is the best of so many, each of so many steps of EM after so many of k-means.

k-means often puts two centres into one group and one into two; ten steps show it, and a hundred
would not mend it (Biernacki, Celeux & Govaert 2003).
"""

FEW_CUTS, CUT_AXES = 3, 3
"""Components up to which starts are also the rows cut across an axis, for each of the first axes.

Where groups are longer than they are apart, k-means cuts across their length every time: of 400
rows in two such groups one fit in ten ended at a lesser maximum, and none does with these.
"""

START_SAMPLE, SAMPLE_PER_NUMBER = 1000, 4
"""Rows that starts are tried on: so many at least, and so many for every number in the means."""

ALIKE = 0.98
"""Share of rows, about, that starts have in common which are on the way to the same end."""

Sizes = tuple[int, int | Sequence[int]]
"""K, and q or one for every component."""


def row_weights(rows: Array, weights: Array | None) -> Array:
    """Return a weight for every row, 0 for those that observe nothing."""
    return block_weights(observed_weights(rows, weights), slice(None), rows)


@dataclass(frozen=True)
class EMState:
    """Where EM is: components, their weights, and what the E step found under them."""

    emissions: Emissions
    mass: Array  # (K,)
    shares: Shares
    sums: RowSums
    rng: Mapping[str, Any]  # state of the generator
    reseeded: int = 0
    dropped: int = 0
    rescued: bool = False  # by the last step: likelihoods before it do not compare


Chunk = tuple[Observations, Array]
"""Rows and their weights."""

Run = tuple[EMState, driver.Record]
"""Where a run of EM is, and how it came there."""


class MixtureSteps:
    """EM of a mixture on one table, as `iterate` wants it.

    Parameters
    ----------
    data : Surveyed
    request : MixtureRequest
    q : int
        Largest number of directions, for the size of blocks.
    rng : Generator
        For starts, and for components that are started again.

    Notes
    -----
    The likelihood (or bound) never falls; its record begins again where a component was dropped or
    started again. A step is one pass. On complete rows in memory it costs O(ndΣq_k) for densities
    and O(nd²) for weighted scatters where components are apart, K times that where they overlap.
    """

    def __init__(
        self, data: Surveyed, request: MixtureRequest, q: int, rng: np.random.Generator
    ) -> None:
        self.data, self.request, self.q, self.rng = data, request, q, rng
        self.n, ready = data.columns.weight, data.ready_for_steps(q)

        def prepare(rows: Array, weights: Array | None) -> Chunk:
            return ready(rows), row_weights(rows, weights)

        self.rows = data.table.prepared(prepare)

    @property
    def whole(self) -> Chunk:
        """The rows and their weights, where all of them are in memory."""
        if self.rows.ready is None:
            raise TypeError("expected rows in memory")
        return self.rows.ready

    def run(
        self,
        begin: Callable[[], Run],
        max_iter: int,
        keeper: driver.Keeper | None = None,
        stop: Callable[[driver.Record], bool] | None = None,
    ) -> Run:
        """Step until EM has converged or taken `max_iter` steps in all."""
        return driver.iterate(
            self.step,
            begin,
            max_iter=max_iter,
            stop=stop or self.converged,
            anew=lambda state: state.rescued,
            keeper=keeper,
            pack=self.pack,
            unpack=self.unpack,
        )

    def converged(self, record: driver.Record) -> bool:
        """Return True if little is left to gain."""
        return driver.left_to_gain(record.loglikelihoods) <= self.request.tol * self.n

    def begin(self, emissions: Emissions, mass: Array) -> Run:
        """Return EM at components that have these masses, and their likelihood on record."""
        state, value = self.expect(emissions, mass)
        return state, driver.Record([value])

    def expect(self, emissions: Emissions, mass: Array) -> tuple[EMState, float]:
        """Take the E step; return what it found and the likelihood."""
        alpha, in_memory = self.request.alpha, self.data.in_memory
        free = emissions.n_parameters
        shares = proportions(mass) if alpha is None else broken_sticks(mass, alpha, free())
        log_weights = shares.log_weights

        def expected_sums(chunk: Chunk) -> tuple[float, RowSums]:
            rows, w = chunk
            density, resp = log_sum_exp(emissions.log_density(rows) + log_weights)
            sums = emissions.sums(rows, resp * w[:, None], in_memory=in_memory)
            return float(w @ density), sums

        value, sums = self.rows.reduce(expected_sums, lambda a, b: (a[0] + b[0], a[1].plus(b[1])))
        value += shares.constant + emissions.log_prior()
        return EMState(emissions, mass, shares, sums, self.rng.bit_generator.state), value

    def step(self, state: EMState) -> tuple[EMState, float]:
        """Take one M step and one E step."""
        emissions, mass = state.sums.maximise(state.emissions), state.sums.mass
        reseeded, dropped, rule = state.reseeded, state.dropped, self.request.on_collapse
        bad = [] if rule == "floor" else self.collapsed(emissions, mass)
        rescued = 0 < len(bad) < emissions.K  # as long as something else is left
        if rescued and rule == "reseed" and reseeded < 2 * emissions.K:
            emissions, mass = self.reseed(state, emissions, mass, bad)
            reseeded += len(bad)
        elif rescued:
            keep = [k for k in range(emissions.K) if k not in bad]
            emissions, mass = emissions.take(keep), backend.take(mass, np.array(keep))
            dropped += len(bad)
        after, value = self.expect(emissions, mass)
        return replace(after, reseeded=reseeded, dropped=dropped, rescued=rescued), value

    def collapsed(self, emissions: Emissions, mass: Array) -> list[int]:
        """Return components whose noise is at the floor, or that no row belongs to."""
        dead = np.flatnonzero(backend.to_numpy(mass) < DEAD * self.n).tolist()
        # under a Dirichlet process components are meant to die
        return sorted({*(dead if self.request.alpha is None else ()), *emissions.at_floor()})

    def reseed(
        self, state: EMState, model: Emissions, mass: Array, bad: list[int]
    ) -> tuple[Emissions, Array]:
        """Start components again, round and wide, at rows that the others explained worst."""
        X, (rows, w) = self.data.whole.rows, self.whole
        joint = state.emissions.log_density(rows) + state.shares.log_weights
        xp, density = backend.namespace(X), backend.to_numpy(log_sum_exp(joint)[0])
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

    def pack(self, state: EMState) -> driver.State:
        """Return all that the next step depends on."""
        prior = state.emissions.prior
        numbers = {name: getattr(state, name) for name in ("rng", "reseeded", "dropped")}
        numbers["prior"] = None if prior is None else list(prior)
        return state.emissions.arrays() | {"mass": backend.to_numpy(state.mass)}, numbers

    def unpack(self, stored: driver.State) -> EMState:
        """Return the state that was packed."""
        (arrays, numbers), request, like = stored, self.request, self.data.table.like
        prior = None if numbers["prior"] is None else Prior(*numbers["prior"])
        options = (request.floor, request.tied_noise, prior)
        self.rng.bit_generator.state = numbers["rng"]
        emissions = Emissions.restored(arrays, like, *options)
        state, _ = self.expect(emissions, backend.asarray(arrays["mass"], like))
        return replace(state, reseeded=int(numbers["reseeded"]), dropped=int(numbers["dropped"]))

    def start(self, sizes: Sizes, near: Mixture | None = None) -> Run:
        """Return the best of a few short runs from k-means, to be carried on.

        Of many rows a sample is enough for it, and of a chunked table it must be. One more run
        begins with the clusters of `near`, a mixture of no more components.
        """
        data, most = self.data, max(START_SAMPLE, SAMPLE_PER_NUMBER * sizes[0] * self.data.table.d)
        if data.in_memory and data.columns.rows <= 2 * most:
            return self.best_short_run(sizes, near)
        sample = data.sample(most, self.rng)
        first = MixtureSteps(sample, self.request, self.q, self.rng)
        state, record = first.best_short_run(sizes, near)
        found, value = self.expect(state.emissions, state.mass * (self.n / first.n))
        if sample.columns.rows == data.columns.rows:  # chunks, but few: EM has begun already
            return replace(found, reseeded=state.reseeded, dropped=state.dropped), record
        return found, driver.Record([value], interrupted=record.interrupted)

    def best_short_run(self, sizes: Sizes, near: Mixture | None) -> Run:
        """Return the best of several runs on rows in memory, after a few steps of each."""
        request, clusters = self.request, self.clusters(sizes[0], near)
        plain = request.alpha is None and request.on_collapse == "floor" and not request.tied_noise
        together = plain and len(clusters) > 1 and isinstance(self.whole[0], Expanded)
        best = self.race if together else self.one_by_one
        return best(clusters, sizes, min(START_STEPS, request.max_iter))

    def one_by_one(self, clusters: Labels, sizes: Sizes, most: int) -> Run:
        """Return the best of several runs, each through the driver, a step of all after another.

        All take as many steps, as in a race: a run that has converged may still overtake another.
        """
        runs = [self.begin_at(labels, sizes) for labels in clusters]
        for steps in range(most + 1):
            shares = [s.sums.resp.T for s, _ in runs if isinstance(s.sums, WeightedRows)]
            kept = may_win([*map(merit, runs)], shares, halve=steps == START_STEPS // 2)
            runs = [runs[s] for s in kept]
            if len(runs) == 1 or steps == most:
                break
            for s, run in enumerate(runs):
                runs[s] = self.run(lambda run=run: run, steps + 1, stop=never)  # type: ignore[misc]
                if runs[s][1].interrupted:
                    best = max(runs, key=merit)
                    best[1].interrupted = True
                    return best
        runs[0][1].converged = self.converged(runs[0][1])
        return runs[0]

    def race(self, clusters: Labels, sizes: Sizes, most: int) -> Run:
        """Return the same with the components of all runs as one set of Gaussians.

        One product of matrices takes a step of all of them: a whole fit of 1,000 rows of 10
        features lasts half as long as by runs one after another (7.3 ms, not 14.4). Ctrl-C is
        raised: there is no run to keep yet.
        """
        (K, q), S, (rows, w) = sizes, len(clusters), self.whole
        ranks = ranks_of(K, q) * S
        emissions = Emissions.nowhere(self.data.whole.rows, ranks, self.request.floor, False)
        P, values = (clusters[:, None, :] == np.arange(K)[:, None]) * w, np.empty((0, S))
        for steps in range(most + 1):
            emissions = emissions.update(rows, P.reshape(S * K, -1).T)
            mass = np.add.reduce(P, axis=2)
            weights = [proportions(each).log_weights for each in mass]
            joint = emissions.log_density(rows).T.reshape(S, K, -1) + np.array(weights)[:, :, None]
            density, P = shared_out(joint)
            P *= w
            values = np.concatenate([values, [density @ w]])
            held = np.sum((emissions.noises <= emissions.floor * (1 + 1e-9)).reshape(S, K), axis=1)
            merits = [(-int(h), nine_digits(v)) for h, v in zip(held, values[-1], strict=True)]
            kept = may_win(merits, list(P), halve=steps == START_STEPS // 2)
            kept = kept[:1] if steps == most else kept
            if len(kept) < S:
                index = (np.array(kept)[:, None] * K + np.arange(K)).reshape(-1)
                emissions, mass = emissions.take(index.tolist()), mass[kept]
                P, values, S = P[kept], values[:, kept], len(kept)
            if S == 1:
                break
        history, drawn = values[:, 0].tolist(), self.rng.bit_generator.state
        sums = WeightedRows(rows, P[0].T)
        state = EMState(emissions, mass[0], proportions(mass[0]), sums, drawn)
        record = driver.Record(history, len(history) - 1)
        record.converged = self.converged(record)
        return state, record

    def clusters(self, K: int, near: Mixture | None) -> Labels:
        """Return clusters of the rows to begin with, (starts, n)."""
        X, weights = self.data.whole.rows, self.data.whole.weights
        tries = START_TRIES if K > 1 else 1
        if near is not None and self.data.missing:  # where steps are slow
            tries = -(-tries // 4)
        found = kmeans_runs(X, K, tries, self.rng, weights, KMEANS_STEPS)
        if 1 < K <= FEW_CUTS:
            found = np.concatenate([found, cuts(X, K, CUT_AXES, weights)])
        if near is None or K == 1:
            return found
        return np.concatenate([found, split_clusters(near, X, K)[None]])

    def begin_at(self, labels: Labels, sizes: Sizes) -> Run:
        """Return EM at clusters of the rows, (n,)."""
        (K, q), request, (rows, w) = sizes, self.request, self.whole
        X = self.data.whole.rows if isinstance(rows, Incomplete) else rows
        options = (request.floor, request.tied_noise)
        start = Emissions.start(X, K, q, self.rng, *options, labels=labels, sample_weight=w)
        if request.alpha is not None:
            start = replace(start, prior=Prior(PRIOR_ROWS, PRIOR_VARIANCE * self.data.unit))
        mass = np.bincount(labels, backend.to_numpy(w), minlength=K)
        return self.begin(start, backend.asarray(mass, w))


def never(record: driver.Record) -> bool:
    """Return False: short runs take all of their steps."""
    return False


def merit(run: Run | FittedMixture) -> tuple[int, float]:
    """Return what runs are compared by: few collapsed components, then the likelihood."""
    where, record, *_ = run
    return -len(where.emissions.at_floor()), nine_digits(record.loglikelihoods[-1])


def nine_digits(value: float) -> float:
    """Return a likelihood without its last digits: of equal ends the first wins everywhere."""
    return float(f"{value:.8e}")


def may_win(merits: list[tuple[int, float]], shares: list[Array], *, halve: bool) -> list[int]:
    """Return the runs that may still win, best first.

    Of those that share out the rows alike, by `shares` (K, n) of each, the best is enough; half of
    them is left after half of the steps.
    """
    order = sorted(range(len(merits)), key=merits.__getitem__, reverse=True)
    if len(order) == 1:
        return order
    alike, kept = same_clusters([backend.to_numpy(each) for each in shares]), list[int]()
    for s in order:
        if not alike[s, kept].any():
            kept.append(s)
    return kept[: (len(kept) + 1) // 2] if halve else kept


def same_clusters(shares: list[Host]) -> Host:
    """Return which of several runs share out the rows alike, (S, S), by shares (K, n) of each."""
    edges = np.cumsum([0, *(len(one) for one in shares[:-1])])
    every = np.concatenate(shares)
    common = np.dot(every, every.T)
    size = np.sqrt(np.add.reduceat(common.diagonal(), edges))
    best = np.maximum.reduceat(common, edges, axis=1)  # of every cluster, in every run
    shared = np.add.reduceat(best, edges, axis=0)
    return np.minimum(shared, shared.T) >= ALIKE * (size[:, None] * size)


def shared_out(joint: Host) -> tuple[Host, Host]:
    """Return ln p of every row under several mixtures, (S, n), and its shares in each, (S, K, n).

    From ln π_k + ln p(x_i | k), (S, K, n), which is overwritten.
    """
    top = np.maximum.reduce(joint, axis=1, keepdims=True)
    joint -= top
    P = np.exp(joint, out=joint)
    total = np.add.reduce(P, axis=1, keepdims=True)
    P /= total
    return (np.log(total, out=total) + top)[:, 0], P


def split_clusters(mixture: Mixture, X: Array, K: int) -> Array:
    """Return K clusters, (n,): those of a mixture of fewer components, the widest cut in two.

    A component is wide if many rows vary much in it; it is cut across its first direction.
    """
    e = mixture.emissions
    labels = np.argmax(backend.to_numpy(mixture.responsibilities(X)), axis=1)
    spread = np.array([float(np.sum(v)) for v in e.feature_moments()[1]])
    loss = np.bincount(labels, minlength=e.K) * spread
    for new in range(e.K, K):
        k = int(np.argmax(loss))
        own = np.flatnonzero(labels == k)
        z = backend.to_numpy(e.posterior(backend.take(X, own), k % e.K).mean)
        far = own[z[:, 0] > np.median(z[:, 0])] if z.shape[1] and own.size > 1 else own[:0]
        labels[far], loss[k] = new, 0.0
        loss = np.append(loss, 0.0)
    return labels


# --- Given sizes: several starts, of which the best is kept ---------------------------------------


class FittedMixture(NamedTuple):
    """A mixture, how EM came to it, and how many components were started again or dropped."""

    mixture: Mixture
    record: driver.Record
    reseeded: int
    dropped: int


def fit_sizes(
    data: Surveyed,
    request: MixtureRequest,
    sizes: Sizes,
    rng: np.random.Generator,
    keeper: driver.Keeper | None = None,
    near: Mixture | None = None,
) -> FittedMixture:
    """Fit K components of q directions from the best of a few k-means starts, and of `near`.

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
    steps = MixtureSteps(data, request, int(np.max(sizes[1])), rng)
    run = steps.run(partial(steps.start, sizes, near), request.max_iter, keeper)
    return found_at(*run, request)


def fit_clusters(data: Surveyed, request: MixtureRequest, clusters: Labels) -> FittedMixture:
    """Fit a mixture by EM from given clusters of rows in memory, (n,), and from no other start."""
    request = replace(request, unit=data.checked().unit)
    sizes: Sizes = (int(np.max(clusters)) + 1, request.directions)  # type: ignore[assignment]
    steps = MixtureSteps(data, request, int(np.max(sizes[1])), request.start)
    run = steps.run(lambda: steps.begin_at(clusters, sizes), request.max_iter)
    return found_at(*run, request)


def found_at(state: EMState, record: driver.Record, request: MixtureRequest) -> FittedMixture:
    """Return the mixture; one under a Dirichlet process without its empty components."""
    weights, emissions = state.shares.weights, state.emissions
    if request.alpha is not None:
        mass = np.asarray(backend.to_numpy(state.mass))
        keep = [int(k) for k in np.argsort(-mass, kind="stable") if mass[k] >= 1] or [0]
        weights, emissions = backend.take(weights, np.array(keep)), emissions.take(keep)
    weights = weights / backend.namespace(weights).sum(weights)
    mixture = Mixture(weights, emissions.signed())
    return FittedMixture(mixture, record, state.reseeded, state.dropped)


# --- From a table to a model ---------------------------------------------------------------------


def fit_mixture(
    table: Table, request: MixtureRequest, clusters: Labels | None = None
) -> MixtureModel:
    """Fit a mixture of PPCA by EM (Tipping & Bishop 1999b), NaN or not, in a kernel's space or not.

    Chunked tables are read once per step. They have no kernels, which need all rows in memory;
    sizes are chosen on a sample of the rows. EM starts at `clusters` (n,), numbers on the host of
    rows in memory, where they are given, and nowhere else.
    """
    like, space, inputs, among = table.like, None, None, "features"
    if not isinstance(table, InMemoryTable):
        refuse_chunks(request)
        note(f"{table.route} on the CPU: EM of a mixture, one pass per step")
    elif request.kernel is not None:
        inputs, among = table.rows, "directions of feature space"
        space, table = open_space(table, request)
    data = Surveyed.of(table)
    require_two(data.columns.used)
    check_sizes(request, data.columns.used, table.d, among)
    if clusters is None:
        found, selection = best_mixture(data, request)
    else:
        found, selection = fit_clusters(data, request, clusters), None
    features = None
    if inputs is not None:
        rows, w = data.whole.rows, row_weights(data.whole.rows, data.whole.weights)[:, None]
        shares = backend.to_numpy(found.mixture.responsibilities(rows) * w)
        features = input_moments(inputs, shares)
    found = found._replace(mixture=found.mixture.numbered(features))
    warn_of_collapse(found)
    history, mixture = driver.History.of(found.record), found.mixture
    value = history.loglikelihood
    if request.alpha is not None:  # that was of the bound

        def density(rows: Array, weights: Array | None = None) -> float:
            return float(row_weights(rows, weights) @ mixture.log_density(rows))

        value = data.table.reduce(density, add)
    bound = history.loglikelihood / data.columns.weight
    others: dict[str, Any] = {"history": history, "selection": selection, "space": space}
    others["n_rows"] = float(data.columns.effective_rows)
    return model_of(mixture, like, value, bound, **others)


def refuse_chunks(request: MixtureRequest) -> None:
    """Refuse what needs all rows in memory."""
    if request.kernel is not None:
        remedy = "Fit KernelPCA(eigen_solver='nystrom') first, then a mixture of its transform."
        raise ValueError(expected("kernel", "None for chunked data", request.kernel, remedy))
    if request.on_collapse == "reseed":
        remedy = "A restarted component looks for the rows explained worst."
        what = "'floor' or 'drop' for chunked data"
        raise ValueError(expected("on_collapse", what, "reseed", remedy))


def open_space(table: InMemoryTable, request: MixtureRequest) -> tuple[KernelSpace, InMemoryTable]:
    """Find the common kernel space of the rows, and return it with the rows in it.

    The width of a named kernel is that of `KernelPCA`: gamma is 1/d by default.
    """
    X, m, w = table.rows, int(request.n_directions), table.weights
    refuse_nonfinite(X)
    kernel = KernelChoice(request.kernel, params=request.kernel_params).resolved(X)
    space = KernelSpace.fit(X, kernel, m, request.start, n_landmarks=max(500, m), weights=w)
    return space, InMemoryTable(space(X), w)


def check_sizes(request: MixtureRequest, count: int, d: int, among: str) -> None:
    """Refuse sizes that `count` rows of d features cannot satisfy."""
    K, q = request.n_mixtures, request.directions
    if is_count(K) and int(K) > count:
        remedy = "Every component needs a row: ask for fewer components, or give more rows."
        raise ValueError(expected("n_mixtures", f"at most the number of rows, {count}", K, remedy))
    if not isinstance(q, str) and int(np.max(q)) > d:
        what = f"at most {d}, the number of {among}"
        raise ValueError(expected("n_components", what, int(np.max(q))))


def best_mixture(
    data: Surveyed, request: MixtureRequest
) -> tuple[FittedMixture, MixtureSelection | None]:
    """Fit a table: sizes first, then all starts, of which the best is kept."""
    request = replace(request, unit=data.checked().unit)
    K, q, criterion = request.n_mixtures, request.directions, request.criterion
    if K == BOUND:
        K = min(request.max_mixtures or STICKS, data.columns.used)
    if criterion is None:
        return best_start(data, (int(K), q), request), None  # type: ignore[arg-type]
    few = SEARCH_ROWS_WITH_NAN if data.missing else SEARCH_ROWS
    some, near = data.sample(few, request.start), dict[tuple[int, int], Mixture]()
    most = min(request.max_mixtures or data.columns.used, some.columns.used)
    mixtures = range(1, most + 1) if isinstance(K, str) else [int(K)]
    components = range(1, max(2, data.table.d)) if isinstance(q, str) else ranks_of(1, q)
    score = by_bic(some, request, float(data.columns.weight), near)
    if criterion == "cv":
        score = partial(by_held_out, some, request)
    selection = choose(criterion, score, mixtures, components)
    return best_start(data, selection.chosen, request, near.get(selection.chosen)), selection


def best_start(
    data: Surveyed, sizes: Sizes, request: MixtureRequest, near: Mixture | None = None
) -> FittedMixture:
    """Run EM from `n_init` starts; keep the best."""
    seeds = request.start.integers(2**63 - 1, size=int(request.n_init)).tolist()
    keeper = data.keeper(request.watch) if len(seeds) == 1 else None

    def run(seed: int) -> FittedMixture:
        return fit_sizes(data, request, sizes, np.random.default_rng(seed), keeper, near)

    workers = n_workers(request.n_jobs)
    if len(seeds) > 1 and workers > 1 and data.in_memory:
        with ThreadPoolExecutor(min(workers, len(seeds))) as pool:
            return max(pool.map(run, seeds), key=merit)
    return driver.best_of_starts(seeds, run, lambda found: found.record, merit)


def n_workers(n_jobs: int | None) -> int:
    """Return the number of threads; −1 is one per processor, −2 one less, as in scikit-learn."""
    if n_jobs == 0:
        raise ValueError(expected("n_jobs", "None or an integer other than 0", n_jobs))
    jobs = 1 if n_jobs is None else int(n_jobs)
    return jobs if jobs > 0 else max(1, (os.cpu_count() or 1) + 1 + jobs)


def warn_of_collapse(found: FittedMixture) -> None:
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
            degenerate=True,
        )


# --- How many components of how many directions: BIC or the likelihood of held-out rows ----------


SEARCH_ROWS, SEARCH_ROWS_WITH_NAN = 5000, 500
"""Rows on which sizes are chosen: a step costs ten times as much where values are missing."""


def by_bic(
    data: Surveyed, request: MixtureRequest, rows: float, found: dict[tuple[int, int], Mixture]
) -> Callable[[int, int], float]:
    """Return −BIC/2 of mixtures of a table of so many rows, of which `data` is a sample.

    It is −∞ where a component collapses: one that is held at the floor of the noise has a
    likelihood as large as the floor is low, which says nothing of the rows. Every fit is added to
    `found` and also starts from the largest mixture in it, so that the curve is that of the number
    of components and not of the luck of the starts.
    """
    n = float(data.columns.weight)
    request = near_enough(replace(request, watch=None), data.table.d, n)

    def score(K: int, q: int) -> float:
        before = [size for size in found if size[0] <= K]
        nearest = max(before, key=lambda size: (size[0], -abs(size[1] - q)), default=(0, 0))
        best = best_start(data, (K, q), request, found.get(nearest))
        best.record.raise_interrupted()
        found[K, q] = best.mixture
        if K > 1 and (best.mixture.emissions.at_floor() or best.dropped):
            return -math.inf
        return penalised(best.record.loglikelihoods[-1], best.mixture.n_parameters(), n, rows)

    return score


def by_held_out(data: Surveyed, request: MixtureRequest, K: int, q: int) -> float:
    """Return the log-density per row of held-out rows, in five folds."""
    table = data.whole
    X, n, total = table.rows, len(table.rows), 0.0
    order = np.random.default_rng(0).permutation(n)
    w = np.ones(n) if table.weights is None else np.asarray(backend.to_numpy(table.weights))
    for held in np.array_split(order, min(FOLDS, n)):
        kept = np.setdiff1d(order, held)
        if kept.size < K:
            return -math.inf
        rows = InMemoryTable(backend.take(X, kept), backend.asarray(w[kept], X))
        fold, rng = Surveyed.of(rows), np.random.default_rng([0, K, q])
        runs = [fit_sizes(fold, request, (K, q), rng) for _ in range(request.n_init)]
        best = max(runs, key=merit)
        density = best.mixture.log_density(backend.take(X, held))
        total += float(w[held] @ backend.to_numpy(density))
    return total / float(np.sum(w))
