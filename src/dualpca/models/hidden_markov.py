"""Hidden Markov models whose states emit spiked Gaussians, or mixtures of them.

`HiddenMarkov` is the density of sequences, `HiddenMarkovModel` a fitted one with all that is known
of its states, in the input space or in a kernel space. `fit_hidden_markov` makes one of a table of
sequences by Baum–Welch: one sum over the table per step. `fit_sequence_classes` fits one per class.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, NamedTuple
from zlib import crc32

import numpy as np

from dualpca.arrays import Array, backend, note
from dualpca.data import (
    Columns,
    Host,
    InMemoryTable,
    Table,
    column_starts,
    has_missing,
    refuse_infinite,
)
from dualpca.errors import DegenerateError, expected
from dualpca.gaussian import Incomplete, is_count
from dualpca.kernels import Precomputed, make_kernel
from dualpca.models.chain import (
    Chain,
    Smoothed,
    Vector,
    filtered,
    log,
    log_prior,
    log_sum,
    smooth,
    update,
    viterbi,
)
from dualpca.models.clusters import kmeans
from dualpca.models.driver import History, Keeper, Record, State, Watch, iterate
from dualpca.models.emissions import Emissions, EmissionSums, Observations, Prior, WeightedRows
from dualpca.models.incomplete import check_unit, refuse_empty_columns
from dualpca.models.kernel_space import KernelSpace

Labels = np.ndarray[Any, np.dtype[np.int64]]

UNVISITED = 0.5
"""ExpectedCounts number of rows below which a state is said to explain none."""


# --- The density, and the fitted model -----------------------------------------------------------


@dataclass(frozen=True)
class HiddenMarkov:
    """p(X) = Σ_paths π(s₁) Π_t A(s_{t−1}, s_t) Π_t p(x_t | s_t), p(x | s) = Σ_m c_sm N(x; sm).

    Parameters
    ----------
    chain : Chain
        π and A, over S states; on the host.
    shares : array of shape (S, M)
        c, the weights of the components of every state; on the host.
    emissions : Emissions
        S·M Gaussians, those of one state one after another.
    """

    chain: Chain
    shares: Annotated[Vector, "S M"]
    emissions: Emissions

    def __post_init__(self) -> None:
        """Refuse parts that do not belong together."""
        K, parts = self.shares.size, (self.emissions.K, len(self.emissions.loadings))
        if self.shares.shape[0] != self.chain.n_states or parts != (K, K):
            what = f"of {self.chain.n_states} states with {self.emissions.K} components in all"
            raise ValueError(expected("shares", what, self.shares.shape))

    def joint(self, X: Observations) -> Vector:
        """Return ln c_sm + ln p(x_t | s, m), (T, S, M), on the host."""
        logs = backend.to_numpy(self.emissions.log_density(X))
        return np.asarray(logs.reshape(-1, *self.shares.shape) + log(self.shares))

    def log_emissions(self, X: Observations) -> Vector:
        """Return ln p(x_t | s), (T, S), on the host; 0 for rows with nothing observed."""
        return over_components(self.joint(X))

    def sample(self, steps: int, rng: np.random.Generator) -> tuple[Array, Labels]:
        """Draw a sequence, (steps, d), and its states, (steps,)."""
        path, M = self.chain.sample(steps, rng), self.shares.shape[1]
        draws = rng.random(steps)[:, None]
        part = (np.cumsum(self.shares, axis=1)[path][:, : M - 1] < draws).sum(axis=1)
        return self.emissions.sample(path * M + part, rng), path

    def state_moments(self) -> tuple[Array, Array]:
        """Return mean and variance of every feature in every state, both (S, d)."""
        xp, (S, M) = backend.namespace(self.emissions.means), self.shares.shape
        means = xp.reshape(self.emissions.means, (S, M, -1))
        own = [
            xp.sum(W * W, axis=1) + s2
            for W, s2 in zip(self.emissions.loadings, self.emissions.noises, strict=True)
        ]
        own = xp.reshape(xp.stack(own), (S, M, -1))
        c = backend.asarray(self.shares, means)[:, :, None]
        mean = xp.sum(c * means, axis=1)
        gap = means - mean[:, None, :]
        return mean, xp.sum(c * (own + gap * gap), axis=1)

    def log_prior(self, prior: Vector | None) -> float:
        """Return the log-density of chain and components under their priors, up to a constant."""
        return log_prior(self.chain, prior) + self.emissions.log_prior()

    def n_parameters(self) -> int:
        """Return the number of free parameters; transitions that are zero are none."""
        free = int((self.chain.start > 0).sum()) - 1
        free += int((self.chain.transitions > 0).sum()) - self.chain.n_states
        free += self.shares.size - self.chain.n_states
        return free + sum(self.emissions.n_parameters())


def over_components(joint: Vector) -> Vector:
    """Return ln p(x_t | s), (T, S), from the components of every state, (T, S, M)."""
    return joint[:, :, 0] if joint.shape[2] == 1 else log_sum(joint, 2)


@dataclass(frozen=True)
class HiddenMarkovModel:
    """A fitted hidden Markov model: the density of what states emit, and what is known of them.

    States emit rows or, with a kernel, their coordinates in kernel space. `state_means`,
    `state_variances` and `visits` have the dtype of the rows that were fitted; everything is
    computed in float64, the chain on the host.
    """

    state_means: Annotated[Array, "S d"]  # of every input feature
    state_variances: Annotated[Array, "S d"]
    visits: Annotated[Array, "S"]  # expected number of training rows in every state
    density: HiddenMarkov
    space: KernelSpace | None = None
    history: History | None = None

    def __post_init__(self) -> None:
        """Refuse states of other inputs, or of another space, than they emit."""
        S, d = self.state_means.shape
        size = (S, d if self.space is None else self.space.m)
        found = (self.density.chain.n_states, self.density.emissions.dim)
        if found != size:
            raise ValueError(expected("density", f"of {size} states and dimensions", found))

    def _published(self, values: Array) -> Array:
        """Return values in the library, device and dtype of the rows that were fitted."""
        like = self.state_means
        own = values if backend.is_foreign(values) else backend.asarray(values, like)
        return backend.cast_like(own, like)

    @property
    def start(self) -> Array:
        """π, (S,)."""
        return self._published(self.density.chain.start)

    @property
    def transitions(self) -> Array:
        """A, (S, S)."""
        return self._published(self.density.chain.transitions)

    @property
    def shares(self) -> Array:
        """c, (S, M)."""
        return self._published(self.density.shares)

    @property
    def means(self) -> Array:
        """μ, (S, M, d), where states emit: of inputs, or in kernel space."""
        means = self._published(self.density.emissions.means)
        return backend.namespace(means).reshape(means, (*self.density.shares.shape, -1))

    @property
    def loadings(self) -> list[list[Array]]:
        """W of every component of every state, (d, q) each."""
        S, M = self.density.shares.shape
        W = [self._published(one) for one in self.density.emissions.loadings]
        return [W[s * M : (s + 1) * M] for s in range(S)]

    @property
    def noises(self) -> Array:
        """σ², (S, M)."""
        noises = self._published(self.density.emissions.noises)
        return backend.namespace(noises).reshape(noises, self.density.shares.shape)

    @property
    def covariances(self) -> Array:
        """WWᵀ + σ²I, (S, M, d, d)."""
        e = self.density.emissions
        xp, eye = backend.namespace(e.means), backend.asarray(np.eye(e.dim), e.means)
        every = [W @ W.T + s2 * eye for W, s2 in zip(e.loadings, e.noises, strict=True)]
        shape = (*self.density.shares.shape, e.dim, e.dim)
        return self._published(xp.reshape(xp.stack(every), shape))

    def unvisited(self) -> list[int]:
        """Return the states that explain no rows."""
        return [int(s) for s in np.flatnonzero(backend.to_numpy(self.visits) < UNVISITED)]

    def collapsed(self) -> list[int]:
        """Return the states that explain rows, with a component whose noise is at the floor."""
        M, empty = self.density.shares.shape[1], self.unvisited()
        held = {k // M for k in self.density.emissions.at_floor()}
        return sorted(held.difference(empty))

    def log_emissions(self, rows: Array) -> Vector:
        """Return ln p(x_t | s), (T, S), on the host."""
        return self.density.log_emissions(emitted(self.space, rows))

    def loglikelihoods(self, rows: Array, lengths: Any) -> Vector:
        """Return ln p of every sequence, (m,)."""
        return filtered(self.density.chain, self.log_emissions(rows), lengths)[1]

    def filter(self, rows: Array, lengths: Any, before: Vector | None = None) -> Vector:
        """Return P(s_t | rows up to t), (T, S), going on from the states one step `before`."""
        return filtered(self.density.chain, self.log_emissions(rows), lengths, before)[0]

    def smooth(self, rows: Array, lengths: Any) -> Smoothed:
        """Return the posterior of the states given whole sequences."""
        return smooth(self.density.chain, self.log_emissions(rows), lengths)

    def decode(self, rows: Array, lengths: Any) -> tuple[Vector, Labels]:
        """Return the log-probability of every best path, (m,), and the paths, (T,)."""
        return viterbi(self.density.chain, self.log_emissions(rows), lengths)

    def forecast(self, rows: Array, steps: int, before: Vector | None) -> tuple[Array, Array]:
        """Return mean and variance of the next rows of one sequence, (steps, d) each."""
        now = self.filter(rows, [int(rows.shape[0])], before)[-1]
        ahead = backend.asarray(self.density.chain.after(now, steps), rows)
        means, variances = backend.working(self.state_means), backend.working(self.state_variances)
        xp, mean = backend.namespace(means), ahead @ means
        centre = xp.mean(means, axis=0)
        gap = means - centre
        second = ahead @ (variances + gap * gap) - (mean - centre) ** 2
        return mean, xp.where(second > 0, second, 0 * second)

    def sample(self, steps: int, rng: np.random.Generator) -> tuple[Array, Labels]:
        """Draw a sequence where states emit, (steps, d), and its states, (steps,)."""
        return self.density.sample(steps, rng)


def emitted(space: KernelSpace | None, rows: Array) -> Array:
    """Return what states emit: rows, or their places in kernel space (NaN where incomplete)."""
    refuse_infinite(rows)
    if space is None:
        return backend.working(rows)
    if not has_missing(rows):
        return space(rows)
    complete = _complete(rows)
    blank = backend.asarray(np.full((int(rows.shape[0]), space.m), np.nan), rows)
    if not complete.size:
        return blank
    return backend.replaced(blank, complete, space(backend.take(rows, complete)))


def _complete(rows: Array) -> Labels:
    """Return the numbers of the rows without NaN, on the host."""
    xp = backend.namespace(rows)
    return np.flatnonzero(~backend.to_numpy(xp.any(xp.isnan(rows), axis=1)))


# --- What is asked for, and the fit --------------------------------------------------------------

START_ROWS = 20_000
"""Rows of the leading chunks on which states are found to start from."""

LEAST_FLOOR = 1e-12
"""Smallest floor of the noise, as a share of the average variance."""


@dataclass(frozen=True)
class HiddenMarkovRequest:
    """What `fit_hidden_markov` needs to know, checked."""

    n_states: int = 2
    n_components: Any = 1  # q of all states, or a list with that of each
    n_mixtures: int = 1
    kernel: Any = None  # None for the input space
    gamma: Any = None
    kernel_params: Mapping[str, Any] | None = None
    n_directions: int = 20
    n_landmarks: int = 500
    topology: str = "ergodic"  # or 'left-to-right'
    stickiness: float = 0.0
    prior_rows: float = 0.0
    noise_floor: float = 1e-6
    tied_noise: bool = False
    tol: float = 1e-5
    max_iter: int = 200
    n_init: int = 1
    seed: Any = 0  # or a generator
    watch: Watch | None = None
    unit: float | None = None  # variance that floor and prior are shares of; None: of the rows

    @property
    def rng(self) -> np.random.Generator:
        """The generator of the kernel space, and of the starts."""
        return np.random.default_rng(self.seed)

    @property
    def forward(self) -> bool:
        """Whether states only stay or go on to the next."""
        return self.topology == "left-to-right"

    @property
    def pseudo_counts(self) -> Vector | None:
        """Of transitions, (S, S), under the prior."""
        return self.stickiness * np.eye(self.n_states) if self.stickiness > 0 else None

    @property
    def floor(self) -> float:
        """Smallest σ²."""
        return max(self.noise_floor, LEAST_FLOOR) * float(self.unit or 0.0)

    @property
    def seen_before(self) -> Prior | None:
        """Rows that every component has seen before any other."""
        return Prior(self.prior_rows, float(self.unit or 0.0)) if self.prior_rows > 0 else None

    def ranks(self, d: int) -> list[int]:
        """Return q of every component, below the d dimensions of what states emit."""
        asked, S = self.n_components, self.n_states
        each = [asked] * S if is_count(asked) else asked
        if not isinstance(each, list | tuple) or len(each) != S or not all(map(is_count, each)):
            raise ValueError(expected("n_components", f"a whole number, or a list of {S}", asked))
        if min(each) < 0 or max(each) >= d:
            what = f"from 0 to {d - 1}, fewer than the dimensions of what states emit"
            remedy = f"There are n_features = {d}, or n_directions with a kernel."
            remedy += " With one, n_components=0 is a plain Gaussian." if d == 1 else ""
            raise ValueError(expected("n_components", what, asked, remedy))
        return [int(q) for q in each for _ in range(self.n_mixtures)]


def fit_hidden_markov(
    table: Table, lengths: Any, request: HiddenMarkovRequest
) -> HiddenMarkovModel:
    """Fit by Baum–Welch from several starts; the one that ends most likely is kept.

    Parameters
    ----------
    table : Table
        Sequences, one after another. With a kernel, in memory.
    lengths : sequence of int or None
        Rows of every sequence, which may not cross chunks; None is one sequence per chunk.
    request : HiddenMarkovRequest
    """
    rows, columns, space = where_states_emit(table, request)
    if request.n_states * request.n_mixtures > columns.rows:
        what = f"no more in all than the {columns.rows} rows (n_samples)"
        sizes = (request.n_states, request.n_mixtures)
        raise ValueError(expected("n_states times n_mixtures", what, sizes))
    if request.unit is None:
        request = replace(request, unit=average(columns.variance))
    missing = bool((backend.to_numpy(columns.n) < columns.rows).any())
    sequences = Sequences(rows, lengths_by_chunk(rows, lengths), request.ranks(rows.d), missing)
    best, record = most_likely(sequences, request, sequences.keeper(request.watch, columns))
    if not np.isfinite(record.loglikelihoods[-1]):
        raise DegenerateError(
            "the likelihood is not finite: a state has no density. Raise noise_floor, or use "
            "fewer components."
        )
    return fitted_model(best, record, table, space)


def fitted_model(
    best: Reached, record: Record, table: Table, space: KernelSpace | None
) -> HiddenMarkovModel:
    """Return where Baum–Welch ended, with what is known of every state."""
    density, found, like = best.density, best.found, table.like
    moments = density.state_moments()
    if isinstance(table, InMemoryTable) and isinstance(found.sums, WeightedRows) and space:
        moments = input_moments(table.rows, found.sums.resp, found.mass.shape)
    known = (*moments, backend.asarray(found.mass.sum(axis=1), like))
    means, variances, visits = (backend.cast_like(values, like) for values in known)
    return HiddenMarkovModel(means, variances, visits, density, space, History.of(record))


def input_moments(rows: Array, resp: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Return mean and variance of every feature over the rows of every state, both (S, d)."""
    xp, states = backend.namespace(rows), backend.to_numpy(resp).reshape(-1, *shape).sum(axis=2)
    found = [column_starts(rows, backend.asarray(p, rows))[1:] for p in states.T]
    return xp.stack([mean for mean, _ in found]), xp.stack([variance for _, variance in found])


def where_states_emit(
    table: Table, request: HiddenMarkovRequest
) -> tuple[Table, Columns, KernelSpace | None]:
    """Return the table of what states emit, what is known of its columns, and its kernel space."""
    if not isinstance(table, InMemoryTable):
        if request.kernel is not None:
            remedy = "Fit KernelPCA(eigen_solver='nystrom') first, then a chain of its transform."
            raise ValueError(expected("kernel", "None for chunked data", request.kernel, remedy))
        return table, surveyed(table), None
    columns = surveyed(table)
    space = None if request.kernel is None else fit_space(table.rows, request)
    rows = InMemoryTable(emitted(space, table.rows))
    return rows, columns if space is None else surveyed(rows), space


def surveyed(table: Table) -> Columns:
    """Return what is known of every feature; refuse empty columns and what does not vary."""
    if isinstance(table, InMemoryTable):
        refuse_infinite(table.rows)
        n = int(table.rows.shape[0])
        columns = Columns(*column_starts(table.rows, None), n, n, float(n))
    else:
        note(f"{table.route} on the CPU: Baum–Welch, a pass a step")
        columns = table.reduce(Columns.of, Columns.merge)
        if columns.rows < 2:
            raise ValueError(
                f"Found array with {columns.rows} sample(s) while a minimum of 2 is required for "
                "a fit."
            )
    refuse_empty_columns(columns.n)
    check_unit(average(columns.variance), table, columns.mean)
    return columns


def average(variance: Array) -> float:
    """Return the average variance of the features."""
    return float(backend.namespace(variance).mean(variance))


def fit_space(rows: Array, request: HiddenMarkovRequest) -> KernelSpace:
    """Return the kernel space of the complete rows; gamma of a named kernel is 1/d by default."""
    complete = _complete(rows)
    if complete.size < 2:
        remedy = "Without a kernel rows may be incomplete; or impute them first."
        raise ValueError(expected("X with a kernel", "complete in two rows at least", rows, remedy))
    rows = rows if complete.size == rows.shape[0] else backend.take(rows, complete)
    params = dict(request.kernel_params or {})
    if isinstance(request.kernel, str):
        gamma = request.gamma
        if gamma is None and "length_scale" not in params:
            gamma = 1.0 / int(rows.shape[1])
        params = {"gamma": gamma, **params}
    kernel = make_kernel(request.kernel, **params)
    if isinstance(kernel, Precomputed):
        what = "one of rows: a chain meets new rows, which a matrix does not know"
        raise ValueError(expected("kernel", what, request.kernel))
    m, most = request.n_directions, request.n_landmarks
    return KernelSpace.fit(rows, kernel.resolve(rows), m, request.rng, n_landmarks=most)


# --- Sequences in a table ------------------------------------------------------------------------

Lengths = np.ndarray[Any, np.dtype[np.int64]]


def check_lengths(lengths: Any, n: int) -> Lengths:
    """Return the lengths of sequences, (m,), which sum to the n rows; None is one sequence."""
    if lengths is None:
        return np.array([n], dtype=np.int64)
    found = np.asarray(backend.to_numpy(lengths))
    if found.ndim != 1 or found.size == 0 or found.dtype.kind not in "iu":
        raise ValueError(expected("lengths", "a list of whole numbers, one a sequence", lengths))
    found = found.astype(np.int64)
    if np.any(found < 1):
        i = int(np.flatnonzero(found < 1)[0])
        remedy = f"Sequence {i} has no rows: leave it out."
        raise ValueError(expected("lengths", "at least 1 each", int(found[i]), remedy))
    if found.sum() != n:
        what = f"numbers that sum to the {n} rows of X"
        remedy = f"They sum to {int(found.sum())}: some sequence is missing or counted twice."
        raise ValueError(expected("lengths", what, found.tolist(), remedy))
    return found


def lengths_by_chunk(table: Table, lengths: Any) -> dict[int, Lengths]:
    """Return the lengths of the sequences of every chunk, under its number.

    None is one sequence per chunk. A sequence may not cross from one chunk into another.
    """
    sizes = table.sizes()
    if lengths is None:
        return {number: np.array([size]) for number, size in sizes.items()}
    steps = check_lengths(lengths, sum(sizes.values()))
    ends, borders = np.cumsum(steps), np.cumsum(list(sizes.values()))
    crossed = np.flatnonzero(~np.isin(borders, ends))
    if crossed.size:
        number, end = list(sizes)[crossed[0]], int(borders[crossed[0]])
        what = f"such that a sequence ends with part {number}, after row {end - 1}"
        remedy = "Sequences may not cross parts: cut the table between sequences."
        got = f"ends {ends[ends < end][-3:].tolist()}"
        raise ValueError(expected("lengths", what, got, remedy))
    return dict(zip(sizes, np.split(steps, np.searchsorted(ends, borders)[:-1] + 1), strict=True))


class ExpectedCounts(NamedTuple):
    """What an E step finds: expected counts of the chain, and what the emissions need."""

    starts: Vector  # (S,)
    transitions: Vector  # (S, S)
    loglikelihood: float
    mass: Vector  # (S, M), expected number of rows
    sums: WeightedRows | EmissionSums

    def plus(self, other: ExpectedCounts) -> ExpectedCounts:
        """Join the sequences of two chunks; rows in memory are one, and never added."""
        return ExpectedCounts(
            self.starts + other.starts,
            self.transitions + other.transitions,
            self.loglikelihood + other.loglikelihood,
            self.mass + other.mass,
            self.sums.plus(other.sums),  # type: ignore[union-attr, arg-type]
        )


@dataclass(frozen=True)
class Expect:
    """The E step over the sequences of one chunk: forward–backward, then the components.

    A class, because it is sent to other processes. Rows in memory were made ready before.
    """

    numbered = True
    density: HiddenMarkov
    lengths: dict[int, Lengths]
    missing: bool
    ready: Observations | None

    def __call__(self, rows: Host, number: int) -> ExpectedCounts:
        """Return the sums of one chunk."""
        density, shape = self.density, self.density.shares.shape
        X: Any = backend.working(rows) if self.ready is None else self.ready
        joint = density.joint(X)
        log_b = over_components(joint)
        found = smooth(density.chain, log_b, self.lengths[number])
        resp = found.states
        if shape[1] > 1:
            within = found.states[:, :, None] * np.exp(joint - log_b[:, :, None])
            resp = within.reshape(len(log_b), -1)
        total, mass = float(found.loglikelihoods.sum()), resp.sum(axis=0).reshape(shape)
        sums: WeightedRows | EmissionSums
        if self.ready is None:
            sums = EmissionSums.of(density.emissions, X, resp, self.missing)
        else:
            sums = WeightedRows(X, backend.asarray(resp, density.emissions.means), None)
        return ExpectedCounts(found.starts, found.transitions, total, mass, sums)


@dataclass(frozen=True)
class Sequences:
    """A table of what states emit, as Baum–Welch reads it: one sum over the chunks per step."""

    table: Table
    lengths: dict[int, Lengths]  # of the sequences of every chunk
    ranks: list[int]  # q of every component
    missing: bool  # whether some value is missing in the table

    @cached_property
    def ready(self) -> Observations | None:
        """Rows in memory, patterns of NaN found once for all steps; None for chunks."""
        if not isinstance(self.table, InMemoryTable):
            return None
        rows = self.table.rows
        return Incomplete(rows, None, max(self.ranks)) if self.missing else rows

    @property
    def n(self) -> int:
        """Number of rows."""
        return sum(int(steps.sum()) for steps in self.lengths.values())

    def expect(self, density: HiddenMarkov) -> ExpectedCounts:
        """Take the E step."""
        step = Expect(density, self.lengths, self.missing, self.ready)
        return self.table.reduce(step, ExpectedCounts.plus)

    @cached_property
    def first(self) -> tuple[Array, Lengths]:
        """Rows to find a start in, and the lengths of their sequences."""
        table: Any = self.table
        if isinstance(table, InMemoryTable):
            return table.rows, self.lengths[0]
        head = table.head(START_ROWS)
        rows = backend.working(np.concatenate([chunk.rows for chunk in head]))
        return rows, np.concatenate([self.lengths[chunk.number] for chunk in head])

    def keeper(self, watch: Watch | None, columns: Columns) -> Keeper | None:
        """Return what keeps a fit: where sequences end belongs to its data."""
        if watch is None:
            return None
        steps = np.concatenate([self.lengths[number] for number in sorted(self.lengths)])
        told = f"{len(steps)} sequences ({crc32(steps.astype('<i8').tobytes()):08x})"
        return watch.over(columns.rows, columns.mean, columns.variance, lengths=told)


# --- Baum–Welch ----------------------------------------------------------------------------------


class Reached(NamedTuple):
    """Where Baum–Welch is: a density, and what its E step found."""

    density: HiddenMarkov
    found: ExpectedCounts


def most_likely(
    sequences: Sequences, request: HiddenMarkovRequest, keeper: Keeper | None
) -> tuple[Reached, Record]:
    """Return the end of several starts that is most likely; with a keeper there is one start."""
    runs, rng = list[tuple[Reached, Record]](), request.rng
    for turn in range(request.n_init):
        runs.append(baum_welch(sequences, request, rng, turn, keeper))
        if runs[-1][1].interrupted:
            break
    return max(runs, key=lambda run: run[1].loglikelihoods[-1])


def baum_welch(
    sequences: Sequences,
    request: HiddenMarkovRequest,
    rng: np.random.Generator,
    turn: int = 0,
    keeper: Keeper | None = None,
) -> tuple[Reached, Record]:
    """Iterate Baum–Welch from one start until a step gains less than `tol` per row.

    The record holds the log-likelihood, plus the log-density of the prior, at every step; it never
    falls.
    """
    prior, least = request.pseudo_counts, request.tol * sequences.n

    def begin() -> tuple[Reached, Record]:
        density = first_density(*sequences.first, sequences.ranks, request, rng, turn)
        found = sequences.expect(density)
        return Reached(density, found), Record([found.loglikelihood + density.log_prior(prior)])

    def unpack(state: State) -> Reached:
        density = restored(state, request, sequences.table.like)
        return Reached(density, sequences.expect(density))

    return iterate(
        lambda at: step(at, sequences, prior),
        begin,
        max_iter=request.max_iter,
        stop=lambda record: record.loglikelihoods[-1] - record.loglikelihoods[-2] <= least,
        label="Baum–Welch step",
        keeper=keeper,
        pack=packed,
        unpack=unpack,
    )


def step(at: Reached, sequences: Sequences, prior: Vector | None = None) -> tuple[Reached, float]:
    """Take one step of Baum–Welch; return it with its log-likelihood and that of the prior.

    M: counts for the chain, theory 2 with posteriors as weights for the emissions. E:
    forward–backward, then the posterior of the components within states.
    """
    old, found = at.density, at.found
    chain = update(old.chain, found.starts, found.transitions, prior)
    shares = mixed_shares(found.mass, old.shares)
    density = HiddenMarkov(chain, shares, found.sums.maximise(old.emissions))
    found = sequences.expect(density)
    return Reached(density, found), found.loglikelihood + density.log_prior(prior)


def mixed_shares(mass: Vector, old: Vector) -> Vector:
    """Return the shares of components within states; a state that is never visited keeps its."""
    total = mass.sum(axis=1, keepdims=True)
    return np.where(total > 0, mass / np.where(total > 0, total, 1.0), old)


def packed(at: Reached) -> State:
    """Return the parameters as a checkpoint holds them."""
    density, e = at.density, at.density.emissions
    arrays = {f"W{k}": backend.to_numpy(W) for k, W in enumerate(e.loadings)}
    arrays |= {"means": backend.to_numpy(e.means), "noises": backend.to_numpy(e.noises)}
    arrays |= {"start": density.chain.start, "transitions": density.chain.transitions}
    return arrays | {"shares": density.shares}, {}


def restored(state: State, request: HiddenMarkovRequest, like: Array) -> HiddenMarkov:
    """Return the parameters of a checkpoint."""
    arrays, _ = state
    means, noises = (backend.asarray(arrays[name], like) for name in ("means", "noises"))
    W = tuple(backend.asarray(arrays[f"W{k}"], like) for k in range(int(means.shape[0])))
    options = (request.floor, request.tied_noise, request.seen_before)
    chain = Chain(arrays["start"], arrays["transitions"])
    return HiddenMarkov(chain, arrays["shares"], Emissions(means, W, noises, *options))


# --- Where Baum–Welch begins: a state for every row ----------------------------------------------

FIRST_COUNT = 1.0
"""Pseudo-count of every allowed transition at the start: none may be ruled out by the start."""

LONGEST = 100
"""Rows of the longest stretch."""


def stretch_clusters(X: Array, lengths: Any, S: int, rng: np.random.Generator) -> Labels:
    """Return clusters of stretches of rows, by mean and spread of every feature, (T,).

    States that last may overlap row by row and differ in how rows spread over a while, which
    k-means of rows cannot see. The length of stretches is drawn, so restarts try several.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2)) * np.repeat([[1.0], [5.0]], 200, axis=0)
    >>> labels = stretch_clusters(X, [400], 2, rng)
    >>> len(set(labels[20:180])), len(set(labels[220:380]))
    (1, 1)
    """
    most = max(2, min(LONGEST, int(np.sum(lengths)) // (5 * S)))
    length = int(np.exp(rng.uniform(np.log(2), np.log(most + 1))))
    stretch = stretches(lengths, length)
    count = int(stretch[-1]) + 1
    if count < S:
        return kmeans(X, S, rng)
    features = backend.asarray(_mean_and_spread(backend.to_numpy(X), stretch, count), X)
    return np.asarray(kmeans(features, S, rng)[stretch])


def stretches(lengths: Any, length: int) -> Labels:
    """Return the number of the stretch of every row, (T,); none reaches over a border."""
    parts, offset = [], 0
    for n in lengths:
        count = max(1, int(n) // length)
        parts.append(offset + np.minimum(np.arange(n) // length, count - 1))
        offset += count
    return np.concatenate(parts)


def _mean_and_spread(X: Any, stretch: Labels, count: int) -> Any:
    """Return mean and standard deviation of what each stretch observed, (count, 2d)."""
    seen = ~np.isnan(X)
    centre = np.nanmean(X, axis=0)
    R = np.where(seen, X - centre, 0.0)
    n, total, squares = (np.zeros((count, X.shape[1])) for _ in range(3))
    for sums, values in ((n, seen), (total, R), (squares, R * R)):
        np.add.at(sums, stretch, values)
    n = np.maximum(n, 1)
    mean = total / n
    return np.hstack([mean, np.sqrt(np.maximum(squares / n - mean * mean, 0.0))])


def cut_sequences(lengths: Any, borders: Any) -> Labels:
    """Return labels that cut every sequence at shares of its length, in order, (T,).

    Examples
    --------
    >>> cut_sequences([4, 2], [[0.5], [0.5]])
    array([0, 0, 1, 1, 0, 1])
    """
    parts = [
        np.searchsorted(border, (np.arange(n) + 0.5) / n)
        for n, border in zip(lengths, borders, strict=True)
    ]
    return np.concatenate(parts).astype(np.int64)


def first_density(
    rows: Array,
    lengths: Lengths,
    ranks: list[int],
    request: HiddenMarkovRequest,
    rng: np.random.Generator,
    turn: int = 0,
) -> HiddenMarkov:
    """Return a density to start from; every `turn` has another.

    States are clusters of rows or, every other turn, of stretches of rows (k-means); from left to
    right they are parts of every sequence, equal ones in the first turn. The chain has the
    frequencies of those labels.
    """
    S, M = request.n_states, request.n_mixtures
    if request.forward:
        equal = np.arange(1, S) / S
        borders = [np.sort(rng.random(S - 1)) if turn else equal for _ in lengths]
        states = cut_sequences(lengths, borders)
    else:
        states = stretch_clusters(rows, lengths, S, rng) if turn % 2 else kmeans(rows, S, rng)
    chain = counted_chain(states, lengths, S, request.forward)
    labels = states * M
    for s in range(S if M > 1 else 0):
        own = np.flatnonzero(states == s)
        if own.size:
            labels[own] += kmeans(backend.take(rows, own), M, rng)
    options: dict[str, Any] = {"floor": request.floor, "tied": request.tied_noise}
    emissions = Emissions.start(rows, S * M, ranks, rng, labels=labels, **options)
    emissions = replace(emissions, prior=request.seen_before)
    sizes = np.maximum(np.bincount(labels, minlength=S * M).reshape(S, M), 1)
    return HiddenMarkov(chain, sizes / sizes.sum(axis=1, keepdims=True), emissions)


def counted_chain(states: Labels, lengths: Lengths, S: int, forward: bool) -> Chain:
    """Return the chain with the frequencies of labels; every allowed transition is possible."""
    ends = np.cumsum(lengths)
    counts = np.zeros((S, S))
    inside = np.ones(len(states) - 1, dtype=bool)
    inside[ends[:-1] - 1] = False
    np.add.at(counts, (states[:-1][inside], states[1:][inside]), 1.0)
    allowed = np.eye(S) + np.eye(S, k=1) if forward else np.ones((S, S))
    A = (counts + FIRST_COUNT) * (allowed > 0)
    first = np.bincount(states[ends - np.asarray(lengths)], minlength=S) + FIRST_COUNT
    start = np.eye(S)[0] if forward else first / first.sum()
    return Chain(start, A / A.sum(axis=1, keepdims=True))


# --- One model per class of sequences ------------------------------------------------------------


@dataclass(frozen=True)
class SequenceClassesModel:
    """P(c | X) ∝ P(c) p(X | c): a hidden Markov model for every class, in one space for all."""

    models: tuple[HiddenMarkovModel, ...]  # of the rows, or of their places in the kernel space
    priors: Annotated[Vector, "c"]
    classes: Annotated[Array, "labels c"]  # their labels
    space: KernelSpace | None = None

    def __post_init__(self) -> None:
        """Refuse models of another number, or of another space, than the classes have."""
        widths = {int(model.state_means.shape[1]) for model in self.models}
        space = widths if self.space is None else {self.space.m}
        if len(self.models) != len(self.priors) or len(widths) != 1 or widths != space:
            what = f"{len(self.priors)}, all in one space"
            raise ValueError(expected("models", what, f"{len(self.models)} of widths {widths}"))

    def loglikelihoods(self, rows: Array, lengths: Any) -> Vector:
        """Return ln p(X | c) of every sequence under every class, (m, c), on the host."""
        Z = emitted(self.space, rows)
        return np.stack([model.loglikelihoods(Z, lengths) for model in self.models], axis=1)

    def log_posterior(self, rows: Array, lengths: Any) -> Vector:
        """Return ln P(c | X) of every sequence, (m, c)."""
        joint = self.loglikelihoods(rows, lengths) + log(self.priors)
        return np.asarray(joint - log_sum(joint, 1)[:, None])


def fit_sequence_classes(
    table: Table,
    lengths: Lengths,
    labels: Host,
    priors: Any,
    request: HiddenMarkovRequest,
) -> SequenceClassesModel:
    """Fit one hidden Markov model to the sequences of each class.

    With a kernel all classes share one kernel space, found from all rows; floor and prior are
    shares of the variance of all rows too: densities can only be compared in one space.

    Parameters
    ----------
    table : Table
        In memory.
    lengths : array of shape (m,)
    labels : array of shape (m,)
        The class of every sequence.
    priors : 'frequencies', 'equal' or array of shape (c,)
    request : HiddenMarkovRequest
    """
    if not isinstance(table, InMemoryTable):
        remedy = "Load them: the rows of one class are picked from all."
        raise ValueError(expected("X", "rows in memory", table.route, remedy))
    classes, which = np.unique(labels, return_inverse=True)
    prior = check_priors(priors, np.bincount(which))
    of_rows, needed = np.repeat(which, lengths), max(2, request.n_states * request.n_mixtures)
    for name, n in zip(classes.tolist(), np.bincount(of_rows).tolist(), strict=True):
        if n < needed:
            what = f"at least {needed}, as many as n_states times n_mixtures"
            remedy = "Use fewer states, or leave the class out."
            raise ValueError(expected(f"the rows of class {name!r}", what, n, remedy))
    Z: Any
    Z, columns, space = where_states_emit(table, request)
    models, unit = [], average(columns.variance)
    for c, name in enumerate(classes.tolist()):
        rows = backend.take(Z.rows, np.flatnonzero(of_rows == c))
        if space is not None and not _complete(rows).size:
            what = "complete in one at least, with a kernel"
            raise ValueError(expected(f"the rows of class {name!r}", what, "NaN in every row"))
        # every class starts from the same seed, whatever the ones before have drawn
        alike = replace(request, kernel=None, unit=unit, seed=deepcopy(request.seed))
        models.append(fit_hidden_markov(InMemoryTable(rows), lengths[which == c], alike))
    return SequenceClassesModel(tuple(models), prior, classes, space)


def check_priors(priors: Any, counts: Host) -> Vector:
    """Return P(c), (c,), for classes of so many sequences."""
    if isinstance(priors, str) and priors in ("frequencies", "equal"):
        weights = counts if priors == "frequencies" else np.ones(len(counts))
        return np.asarray(weights / weights.sum())
    what = f"'frequencies', 'equal' or {len(counts)} probabilities that sum to 1"
    if isinstance(priors, str) or np.shape(priors) != counts.shape:
        raise ValueError(expected("priors", what, priors))
    p = np.asarray(priors, dtype=np.float64)
    if not np.all(p >= 0) or abs(p.sum() - 1) > 1e-6:
        raise ValueError(expected("priors", what, priors))
    return p
