"""Hidden Markov models whose states emit spiked Gaussians, or mixtures of them.

`HiddenMarkov` is the density of sequences, `HiddenMarkovModel` a fitted one with all that is known
of its states, in the input space or in a kernel space. `fit_hidden_markov` fits one to a table of
sequences by Baum–Welch: one sum over the table per step. `fit_sequence_classes` fits one per class.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, NamedTuple
from zlib import crc32

import numpy as np
from scipy import optimize

from dualpca.arrays import Array, backend, cached_property, moved, note
from dualpca.data import (
    ChunkedTable,
    Host,
    InMemoryTable,
    Table,
    has_missing,
    in_memory,
    numbered,
    refuse_infinite,
)
from dualpca.errors import DegenerateError, SelectionWarning, expected, warn
from dualpca.gaussian import is_count
from dualpca.kernels import Kernel
from dualpca.models import driver
from dualpca.models.chain import Chain, Lengths, Smoothed, Vector, Whole, log, log_sum
from dualpca.models.clusters import Labels, kmeans
from dualpca.models.emissions import (
    START_ROWS,
    UNSEEN_SHARE,
    Emissions,
    Observations,
    Prior,
    RowSums,
    Surveyed,
    WeightedRows,
    input_moments,
    label_order,
    require_two,
)
from dualpca.models.kernel import KernelChoice, is_precomputed
from dualpca.models.kernel_space import KernelSpace
from dualpca.models.mixture import MixtureSelection, choose, near_enough, penalised

UNVISITED = 0.5
"""Expected number of rows below which a state is said to explain none."""


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
    shares: Annotated[Vector, "S M", ">= 0, sum 1"]
    emissions: Emissions

    def __post_init__(self) -> None:
        """Refuse a chain, shares and emissions of different sizes."""
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
        e, shape = self.emissions, (*self.shares.shape, -1)
        xp, pairs = backend.namespace(e.means), zip(e.loadings, e.noises, strict=True)
        means = xp.reshape(e.means, shape)
        own = xp.reshape(xp.stack([xp.sum(W * W, axis=1) + s2 for W, s2 in pairs]), shape)
        c = backend.asarray(self.shares, means)[:, :, None]
        mean = xp.sum(c * means, axis=1)
        gap = means - mean[:, None, :]
        return mean, xp.sum(c * (own + gap * gap), axis=1)

    def numbered(self, order: Labels) -> HiddenMarkov:
        """Return the density in another order, (S, M), with signs that no solver decides."""
        states = order[:, 0] // self.shares.shape[1]
        chain = Chain(self.chain.start[states], self.chain.transitions[np.ix_(states, states)])
        emissions = self.emissions.take(order.reshape(-1).tolist()).signed()
        return HiddenMarkov(chain, self.shares.reshape(-1)[order], emissions)

    def n_parameters(self) -> int:
        """Return the number of free parameters; transitions that are zero are none."""
        used = sum(int((p > 0).sum()) for p in (self.chain.start, self.chain.transitions))
        free = used + self.shares.size - 1 - 2 * self.chain.n_states
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
    state_variances: Annotated[Array, "S d", ">= 0"]
    visits: Annotated[Array, "S", ">= 0"]  # expected number of training rows in every state
    density: HiddenMarkov
    space: Annotated[KernelSpace, "d"] | None = None
    history: driver.History | None = None
    selection: MixtureSelection | None = None

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

    def _by_state(self, values: Array) -> Array:
        """Return values of the components, (SM, …), as (S, M, …)."""
        own, shape = self._published(values), (*self.density.shares.shape, *values.shape[1:])
        return backend.namespace(own).reshape(own, shape)

    @property
    def n_components(self) -> list[list[int]]:
        """Directions q of every component of every state."""
        (S, M), q = self.density.shares.shape, self.density.emissions.ranks
        return [list(q[s * M : (s + 1) * M]) for s in range(S)]

    @property
    def means(self) -> Array:
        """μ, (S, M, d), where states emit: of inputs, or in kernel space."""
        return self._by_state(self.density.emissions.means)

    @property
    def loadings(self) -> list[list[Array]]:
        """W of every component of every state, (d, q) each."""
        S, M = self.density.shares.shape
        W = [self._published(one) for one in self.density.emissions.loadings]
        return [W[s * M : (s + 1) * M] for s in range(S)]

    @property
    def noises(self) -> Array:
        """σ², (S, M)."""
        return self._by_state(self.density.emissions.noises)

    @property
    def covariances(self) -> Array:
        """WWᵀ + σ²I, (S, M, d, d)."""
        return self._by_state(self.density.emissions.covariances)

    def unvisited(self) -> list[int]:
        """Return the states that explain no rows."""
        return [int(s) for s in np.flatnonzero(backend.to_numpy(self.visits) < UNVISITED)]

    def collapsed(self) -> list[int]:
        """Return the states that explain rows, with a component whose noise is at the floor."""
        M = self.density.shares.shape[1]
        held = {k // M for k in self.density.emissions.at_floor()}
        return sorted(held.difference(self.unvisited()))

    def log_emissions(self, rows: Array) -> Vector:
        """Return ln p(x_t | s), (T, S), on the host."""
        return self.density.log_emissions(emitted(self.space, rows))

    def loglikelihoods(self, rows: Array, lengths: Lengths) -> Vector:
        """Return ln p of every sequence, (m,)."""
        return self.density.chain.filtered(self.log_emissions(rows), lengths)[1]

    def filter(self, rows: Array, lengths: Lengths, before: Vector | None = None) -> Vector:
        """Return P(s_t | rows up to t), (T, S), resumed from the states one step `before`."""
        return self.density.chain.filtered(self.log_emissions(rows), lengths, before)[0]

    def smooth(self, rows: Array, lengths: Lengths) -> Smoothed:
        """Return the posterior of the states given whole sequences."""
        return self.density.chain.smooth(self.log_emissions(rows), lengths)

    def decode(self, rows: Array, lengths: Lengths) -> tuple[Vector, Labels]:
        """Return the log-probability of every best path, (m,), and the paths, (T,)."""
        return self.density.chain.viterbi(self.log_emissions(rows), lengths)

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

MOST_STATES = 20
"""Most states that a rule tries: of rows that drift, the more rows there are, the more states."""

LEAST_FLOOR = 1e-12
"""Smallest floor of the noise, as a share of the average variance."""


@dataclass(frozen=True)
class HiddenMarkovRequest(driver.IterativeRequest):
    """What `fit_hidden_markov` needs to know, checked."""

    n_states: Any = "bic"
    n_components: Any = None  # q of all states, a list with that of each, or 'bic', which None is
    n_mixtures: int = 1
    kernel: Kernel | str | None = None  # None for the input space
    gamma: float | str | None = None
    kernel_params: Mapping[str, Any] | None = None
    n_directions: int = 20
    n_landmarks: int = 500
    topology: str = "ergodic"  # or 'left-to-right'
    stickiness: float = 0.0
    prior_rows: float = 0.0
    noise_floor: float = 1e-6
    tied_noise: bool = False
    n_init: int = 1
    unit: float | None = None  # variance that floor and prior are shares of; None: of the rows
    tol: float = field(default=1e-5, kw_only=True)
    max_iter: int = field(default=200, kw_only=True)

    @property
    def pseudo_counts(self) -> Vector | None:
        """Of transitions, (S, S), under the prior."""
        return self.stickiness * np.eye(self.n_states) if self.stickiness > 0 else None

    @property
    def floor(self) -> float:
        """Smallest σ²."""
        return max(self.noise_floor, LEAST_FLOOR) * float(self.unit or 0.0)

    @property
    def prior(self) -> Prior | None:
        """Rows that are counted in for every component."""
        return Prior(self.prior_rows, float(self.unit or 0.0)) if self.prior_rows > 0 else None

    @property
    def chooses(self) -> tuple[bool, bool]:
        """Whether the number of states, and of directions, is to be chosen."""
        q = self.n_components
        return isinstance(self.n_states, str), q is None or isinstance(q, str)

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

    def sized(self, states: int, directions: int) -> HiddenMarkovRequest:
        """Return the request with chosen sizes in place of those that are open."""
        kept = directions if self.chooses[1] else self.n_components
        return replace(self, n_states=states, n_components=kept)


def _finite(record: driver.Record) -> driver.History:
    """Return the record of a fit, of which something is left."""
    if np.isfinite(record.loglikelihoods[-1]):
        return driver.History.of(record)
    raise DegenerateError(
        "the likelihood is not finite: a state has no density. Raise noise_floor, or use "
        "fewer components."
    )


def fit_hidden_markov(
    table: Table, lengths: object, request: HiddenMarkovRequest
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
    data, space = where_states_emit(table, request)
    n, sizes, selection = data.columns.rows, (request.n_states, request.n_mixtures), None
    if (1 if request.chooses[0] else request.n_states) * request.n_mixtures > n:
        what = f"no more in all than the {n} rows (n_samples)"
        raise ValueError(expected("n_states times n_mixtures", what, sizes))
    request = request if request.unit is not None else replace(request, unit=data.unit)
    by_chunk = lengths_by_chunk(data.table, lengths)
    if any(request.chooses):
        selection = chosen_sizes(data, by_chunk, request)
        request = request.sized(*selection.chosen)
    steps = BaumWelch(data, by_chunk, request)
    (density, found), record = steps.most_likely()
    history = _finite(record)
    features, shares = density.emissions.feature_moments(), None
    if isinstance(found.sums, WeightedRows) and isinstance(table, InMemoryTable) and space:
        shares = backend.to_numpy(found.sums.resp)
        features = input_moments(table.rows, shares)
    ranks, mass = density.emissions.ranks, found.mass
    means, variances = map(backend.to_numpy, features)
    order = numbering(means, variances, mass, ranks, states=request.topology == "ergodic")
    density, mass = density.numbered(order), mass.reshape(-1)[order]
    moments = density.state_moments()
    if shares is not None and isinstance(table, InMemoryTable):
        moments = input_moments(table.rows, shares[:, order].sum(axis=2))
    known = (*moments, backend.asarray(mass.sum(axis=1), table.like))
    means, variances, visits = (backend.cast_like(values, table.like) for values in known)
    return HiddenMarkovModel(means, variances, visits, density, space, history, selection)


def chosen_sizes(
    data: Surveyed, lengths: dict[int, Whole], request: HiddenMarkovRequest
) -> MixtureSelection:
    """Choose the numbers of states and of directions by BIC; chunks by their first rows."""
    rows, d, M = float(data.columns.rows), data.table.d, request.n_mixtures
    if not data.in_memory:
        first, steps = BaumWelch(data, lengths, replace(request, n_states=1, n_components=0)).first
        known = Surveyed.of(InMemoryTable(first))
        data, lengths = known._replace(table=InMemoryTable(first)), {0: steps}
    n = float(data.columns.rows)
    few = replace(near_enough(request, d, n), watch=None)

    def score(S: int, q: int) -> float:
        asked = replace(few, n_states=S, n_components=q)
        (density, found), record = BaumWelch(data, lengths, asked).most_likely()
        record.raise_interrupted()
        held = {k // M for k in density.emissions.at_floor()}
        if S > 1 and any(found.mass.sum(axis=1)[s] >= UNVISITED for s in held):
            return -math.inf
        value = penalised(found.loglikelihood, density.n_parameters(), n, rows)
        return value if math.isfinite(value) else -math.inf

    states, directions = request.chooses
    most = max(1, min(int(n) // M, MOST_STATES))
    counts = range(1, most + 1) if states else (int(request.n_states),)
    q = request.n_components
    ranks = range(d) if directions else (int(q),) if is_count(q) else (q,)
    found = choose("bic", score, counts, ranks)
    if states and found.chosen[0] == MOST_STATES:
        warn(
            f"BIC still falls at {MOST_STATES} states, the most that are tried: rows seem to drift "
            "rather than to jump from state to state. Give n_states, for so many pieces.",
            SelectionWarning,
        )
    return found


def numbering(
    means: Host, variances: Host, mass: Vector, ranks: Sequence[int], *, states: bool
) -> Labels:
    """Return the order in which states, and the components of each, are numbered, (S, M).

    Parameters
    ----------
    means, variances : arrays of shape (SM, d)
        Of the input features, within every component.
    mass : array of shape (S, M)
        Expected number of rows.
    ranks : sequence of SM ints
    states : bool
        False leaves states as they are: those from left to right have an order in time.
    """
    S, M = mass.shape
    places = np.arange(S * M).reshape(S, M)
    each = zip(places, mass, strict=True)
    order = np.stack([k[label_order(means[k], variances[k], w, [0] * M)] for k, w in each])
    if not states:
        return order
    w = mass + UNSEEN_SHARE * mass.sum()  # a state without rows has means too
    w = (w / w.sum(axis=1, keepdims=True))[:, :, None]
    means, variances = means.reshape(S, M, -1), variances.reshape(S, M, -1)
    centre = np.sum(w * means, axis=1)
    spread = np.sum(w * (variances + (means - centre[:, None]) ** 2), axis=1)
    return order[label_order(centre, spread, mass.sum(axis=1), ranks[::M])]


def where_states_emit(
    table: Table, request: HiddenMarkovRequest
) -> tuple[Surveyed, KernelSpace | None]:
    """Return the table of what states emit, with what is known of it, and its kernel space."""
    if not isinstance(table, InMemoryTable):
        if request.kernel is not None:
            remedy = "Fit KernelPCA(eigen_solver='nystrom') first, then a chain of its transform."
            raise ValueError(expected("kernel", "None for chunked data", request.kernel, remedy))
        note(f"{table.route} on the CPU: Baum–Welch, one pass per step")
    data = Surveyed.of(table)
    require_two(data.columns.rows)
    data.checked()
    if not isinstance(table, InMemoryTable):
        return data, None
    space = None if request.kernel is None else fit_space(table.rows, request)
    rows = InMemoryTable(emitted(space, table.rows))
    data = data if space is None else Surveyed.of(rows).checked()
    return data._replace(table=rows), space  # without weights: a blank row is a step in time too


def fit_space(rows: Array, request: HiddenMarkovRequest) -> KernelSpace:
    """Return the kernel space of the complete rows; gamma of a named kernel is 1/d by default."""
    complete = _complete(rows)
    if complete.size < 2:
        remedy = "Without a kernel rows may be incomplete; or impute them first."
        raise ValueError(expected("X with a kernel", "complete in two rows at least", rows, remedy))
    rows = rows if complete.size == rows.shape[0] else backend.take(rows, complete)
    if is_precomputed(request.kernel):
        what = "a kernel of rows: a precomputed matrix has no values for new rows"
        raise ValueError(expected("kernel", what, request.kernel))
    choice = KernelChoice(request.kernel, request.gamma, params=request.kernel_params)
    m, most = request.n_directions, request.n_landmarks
    return KernelSpace.fit(rows, choice.resolved(rows), m, request.start, n_landmarks=most)


# --- Sequences in a table ------------------------------------------------------------------------


def check_lengths(lengths: object, n: int) -> Whole:
    """Return the lengths of sequences, (m,), which sum to the n rows; None is one sequence."""
    if lengths is None:
        return np.array([n], dtype=np.int64)
    found = np.asarray(backend.to_numpy(lengths))
    if found.ndim != 1 or found.size == 0 or found.dtype.kind not in "iu":
        raise ValueError(expected("lengths", "a list of whole numbers, one per sequence", lengths))
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


def lengths_by_chunk(table: Table, lengths: object) -> dict[int, Whole]:
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
        what = f"such that a sequence ends with chunk {number}, after row {end - 1}"
        remedy = "Sequences may not cross chunks: cut the table between sequences."
        got = f"ends {ends[ends < end][-3:].tolist()}"
        raise ValueError(expected("lengths", what, got, remedy))
    return dict(zip(sizes, np.split(steps, np.searchsorted(ends, borders)[:-1] + 1), strict=True))


def leading_rows(
    lengths: Mapping[int, Whole], most: int, *, whole: bool
) -> tuple[dict[int, slice], Whole]:
    """Return which rows of every chunk are the first `most`, and the lengths of their sequences.

    The last sequence is cut where the rows end. With `whole` it is left out, and of one that is
    longer than all rows together some at equal distances are taken, from its first to its last.

    Examples
    --------
    >>> leading_rows({0: np.array([2, 3]), 1: np.array([4, 5])}, 7, whole=False)
    ({0: slice(0, 5, 1), 1: slice(0, 2, 1)}, array([2, 3, 2]))
    >>> leading_rows({0: np.array([40, 3])}, 10, whole=True)
    ({0: slice(0, 40, 4)}, array([10]))
    """
    cuts, kept, left = dict[int, slice](), list[int](), most
    for number in sorted(lengths):
        rows, step = 0, 1
        for n in lengths[number].tolist():
            if n > left and whole and not kept:
                step = -(-n // left)
                rows, left = n, 0
                kept.append(-(-n // step))
            elif n > left and whole:
                left = 0
            elif left:
                kept.append(min(n, left))
                rows, left = rows + kept[-1], left - kept[-1]
        if rows:
            cuts[number] = slice(0, rows, step)
        if not left:
            break
    return cuts, np.array(kept, dtype=np.int64)


# --- Baum–Welch ----------------------------------------------------------------------------------


class ExpectedCounts(NamedTuple):
    """What an E step finds: expected counts of the chain, and what the emissions need."""

    starts: Vector  # (S,)
    transitions: Vector  # (S, S)
    loglikelihood: float
    mass: Vector  # (S, M), expected number of rows
    sums: RowSums

    def plus(self, other: ExpectedCounts) -> ExpectedCounts:
        """Join the sequences of two chunks; rows in memory are one, and never added."""
        added = {name: getattr(self, name) + getattr(other, name) for name in self._fields[:-1]}
        return ExpectedCounts(**added, sums=self.sums.plus(other.sums))


BaumWelchState = tuple[HiddenMarkov, ExpectedCounts]
"""Where Baum–Welch is: a density, and what its E step found."""


class BaumWelch:
    """Baum–Welch on a table of what states emit, as `iterate` wants it: a sum over it per step.

    Parameters
    ----------
    data : Surveyed
    lengths : dict of arrays
        Lengths of the sequences of every chunk, under its number.
    request : HiddenMarkovRequest

    Notes
    -----
    The record holds the log-likelihood, plus the log-density of the prior, at every step; it never
    falls.
    """

    def __init__(
        self, data: Surveyed, lengths: dict[int, Whole], request: HiddenMarkovRequest
    ) -> None:
        self.data, self.lengths, self.request = data, lengths, request
        self.ranks = request.ranks(data.table.d)
        self.prepare = data.ready_for_steps(max(self.ranks))
        self.ready: Observations | None = None
        if data.in_memory:  # once for all steps
            self.ready = self.prepare(backend.working(data.whole.rows))

    def expect(self, density: HiddenMarkov) -> tuple[BaumWelchState, float]:
        """Take the E step; return what it found, and the likelihood."""
        # not `self`: the function may be sent to other processes
        lengths, prepare, ready = self.lengths, self.prepare, self.ready

        @numbered
        def counts(rows: Array, number: int) -> ExpectedCounts:
            X = prepare(backend.working(rows)) if ready is None else ready
            joint, shape = density.joint(X), density.shares.shape
            log_b = over_components(joint)
            found = density.chain.smooth(log_b, lengths[number])
            resp: Vector = found.states
            if shape[1] > 1:
                within = found.states[:, :, None] * np.exp(joint - log_b[:, :, None])
                resp = within.reshape(len(log_b), -1)
            total, mass = float(found.loglikelihoods.sum()), resp.sum(axis=0).reshape(shape)
            sums = density.emissions.sums(X, resp, in_memory=ready is not None)
            return ExpectedCounts(found.starts, found.transitions, total, mass, sums)

        found = self.data.table.reduce(counts, ExpectedCounts.plus)
        prior = density.chain.log_prior(self.request.pseudo_counts) + density.emissions.log_prior()
        return (density, found), found.loglikelihood + prior

    def step(self, at: BaumWelchState) -> tuple[BaumWelchState, float]:
        """Take one step of Baum–Welch.

        M: counts for the chain, theory 2 with posteriors as weights for the emissions. E:
        forward–backward, then the posterior of the components within states.
        """
        old, found = at
        chain = old.chain.update(found.starts, found.transitions, self.request.pseudo_counts)
        total = found.mass.sum(axis=1, keepdims=True)
        # a state that is never visited keeps its shares
        shares = np.where(total > 0, found.mass / np.where(total > 0, total, 1.0), old.shares)
        return self.expect(HiddenMarkov(chain, shares, found.sums.maximise(old.emissions)))

    def most_likely(self) -> tuple[BaumWelchState, driver.Record]:
        """Return the end of several starts that is most likely; with a keeper there is one."""
        request, least = self.request, self.request.tol * self.data.columns.rows
        rng, keeper = request.start, self.keeper()

        def fit(turn: int) -> tuple[BaumWelchState, driver.Record]:
            return driver.iterate(
                self.step,
                partial(self.begin, rng, turn),
                max_iter=request.max_iter,
                stop=lambda run: run.loglikelihoods[-1] - run.loglikelihoods[-2] <= least,
                label="Baum–Welch step",
                keeper=keeper,
                pack=self.pack,
                unpack=self.unpack,
            )

        turns = range(request.n_init)
        return driver.best_of_starts(turns, fit, lambda run: run[1])

    @cached_property
    def first(self) -> tuple[Array, Whole]:
        """Rows to find a start in, and the lengths of their sequences."""
        table = self.data.table
        if not isinstance(table, ChunkedTable):
            return self.data.whole.rows, self.lengths[0]
        forward = self.request.topology == "left-to-right"
        cuts, lengths = leading_rows(self.lengths, START_ROWS, whole=forward)
        return backend.working(np.concatenate(table.picked(cuts))), lengths

    def begin(self, rng: np.random.Generator, turn: int) -> tuple[BaumWelchState, driver.Record]:
        """Return a start, with its likelihood on record."""
        at, value = self.expect(first_density(*self.first, self.ranks, self.request, rng, turn))
        return at, driver.Record([value])

    def keeper(self) -> driver.Keeper | None:
        """Return what keeps a fit: where sequences end belongs to its data."""
        steps = np.concatenate([self.lengths[number] for number in sorted(self.lengths)])
        told = f"{len(steps)} sequences ({crc32(steps.astype('<i8').tobytes()):08x})"
        return self.data.keeper(self.request.watch, lengths=told)

    def pack(self, at: BaumWelchState) -> driver.State:
        """Return the parameters as a checkpoint holds them."""
        chain, shares, emissions = at[0].chain, at[0].shares, at[0].emissions
        arrays = {"start": chain.start, "transitions": chain.transitions, "shares": shares}
        return emissions.arrays() | arrays, {}

    def unpack(self, state: driver.State) -> BaumWelchState:
        """Return where the parameters of a checkpoint are."""
        arrays, request = state[0], self.request
        options = (request.floor, request.tied_noise, request.prior)
        emissions = Emissions.restored(arrays, self.data.table.like, *options)
        chain = Chain(arrays["start"], arrays["transitions"])
        return self.expect(HiddenMarkov(chain, arrays["shares"], emissions))[0]


# --- Where Baum–Welch begins: a state for every row ----------------------------------------------

FIRST_COUNT = 1.0
"""Pseudo-count of every allowed transition at the start: none may be ruled out by the start."""

LONGEST_STRETCH = 100
"""Rows of the longest stretch."""


def stretch_clusters(X: Array, lengths: Lengths, S: int, rng: np.random.Generator) -> Labels:
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
    most = max(2, min(LONGEST_STRETCH, int(np.sum(lengths)) // (5 * S)))
    length = int(np.exp(rng.uniform(np.log(2), np.log(most + 1))))
    stretch = stretches(lengths, length)
    count = int(stretch[-1]) + 1
    if count < S:
        return kmeans(X, S, rng)
    features = backend.asarray(_mean_and_spread(backend.to_numpy(X), stretch), X)
    return np.asarray(kmeans(features, S, rng)[stretch])


def stretches(lengths: Lengths, length: int) -> Labels:
    """Return the number of the stretch of every row, (T,); none reaches over a border."""
    parts, offset = [], 0
    for n in lengths:
        count = max(1, int(n) // length)
        parts.append(offset + np.minimum(np.arange(n) // length, count - 1))
        offset += count
    return np.concatenate(parts)


def _mean_and_spread(X: Host, stretch: Labels) -> Host:
    """Return mean and standard deviation of what each stretch observed, (stretches, 2d)."""
    seen = ~np.isnan(X)
    centre = np.nanmean(X, axis=0)
    R = np.where(seen, X - centre, 0.0)
    starts = np.flatnonzero(np.diff(stretch, prepend=-1))
    n, total, squares = (np.add.reduceat(v, starts, axis=0) for v in (1.0 * seen, R, R * R))
    n = np.maximum(n, 1)
    mean = total / n
    return np.hstack([mean, np.sqrt(np.maximum(squares / n - mean * mean, 0.0))])


def cut_sequences(lengths: Lengths, borders: Sequence[Sequence[float] | Host]) -> Labels:
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
    turn: int,
) -> HiddenMarkov:
    """Return a density to start from; every `turn` has another.

    States are clusters of rows or, every other turn, of stretches of rows (k-means); from left to
    right they are parts of every sequence, equal ones in the first turn. The chain has the
    frequencies of those labels.
    """
    S, M, forward = request.n_states, request.n_mixtures, request.topology == "left-to-right"
    if forward:
        equal = np.arange(1, S) / S
        borders = [np.sort(rng.random(S - 1)) if turn else equal for _ in lengths]
        states = cut_sequences(lengths, borders)
    else:
        states = stretch_clusters(rows, lengths, S, rng) if turn % 2 else kmeans(rows, S, rng)
    chain = counted_chain(states, lengths, S, forward)
    labels = states * M
    for s in range(S if M > 1 else 0):
        own = np.flatnonzero(states == s)
        if own.size:
            labels[own] += kmeans(backend.take(rows, own), M, rng)
    options = (request.floor, request.tied_noise)
    emissions = Emissions.start(rows, S * M, ranks, rng, *options, labels=labels)
    emissions = replace(emissions, prior=request.prior)
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
    priors: Annotated[Vector, "c", ">= 0, sum 1"]
    classes: Annotated[Array, "labels c"]  # their labels
    space: KernelSpace | None = None
    certainty: Annotated[float, "> 0, <= 1"] = 1.0  # β, of likelihoods of sequences left out

    def __post_init__(self) -> None:
        """Refuse models of another number, or of another space, than the classes have."""
        widths = {int(model.state_means.shape[1]) for model in self.models}
        space = widths if self.space is None else {self.space.m}
        if len(self.models) != len(self.priors) or len(widths) != 1 or widths != space:
            what = f"{len(self.priors)}, all in one space"
            raise ValueError(expected("models", what, f"{len(self.models)} of widths {widths}"))

    def n_parameters(self) -> int:
        """Return the number of free parameters of all classes; the priors P(c) are not counted."""
        return sum(model.density.n_parameters() for model in self.models)

    def loglikelihoods(self, rows: Array, lengths: Lengths) -> Vector:
        """Return ln p(X | c) of every sequence under every class, (m, c), on the host."""
        Z = emitted(self.space, rows)
        return np.stack([model.loglikelihoods(Z, lengths) for model in self.models], axis=1)

    def log_posterior(self, rows: Array, lengths: Lengths, *, fixed: bool = False) -> Vector:
        """Return ln P(c | X) of every sequence, (m, c): of P(c) p(X | c)^β, with β = 1 if `fixed`.

        Parameters that fit the training sequences make new ones look surer than they are; β is as
        sure as sequences show that were left out of the fit.
        """
        found = self.loglikelihoods(rows, lengths)
        return log_shares(found, log(self.priors), 1.0 if fixed else self.certainty)


def log_shares(loglikelihoods: Vector, log_priors: Vector, certainty: float) -> Vector:
    """Return ln P(c | X) of P(c) p(X | c)^β, (m, c)."""
    joint = certainty * loglikelihoods + log_priors
    return np.asarray(joint - log_sum(joint, 1)[:, None])


def fit_sequence_classes(
    table: Table,
    lengths: Lengths,
    labels: Host,
    priors: str | Sequence[float] | Host,
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
    table = in_memory(table, "Load them: the rows of one class are picked from all.")
    classes, which = np.unique(labels, return_inverse=True)
    prior = check_priors(priors, np.bincount(which))
    S = 1 if request.chooses[0] else request.n_states
    of_rows, needed = np.repeat(which, lengths), max(2, S * request.n_mixtures)
    for name, n in zip(classes.tolist(), np.bincount(of_rows).tolist(), strict=True):
        if n < needed:
            what = f"at least {needed}, as many as n_states times n_mixtures"
            remedy = "Use fewer states, or leave the class out."
            raise ValueError(expected(f"the rows of class {name!r}", what, n, remedy))
    data, space = where_states_emit(table, request)
    models, Z, unit = [], data.table, data.unit
    for c, name in enumerate(classes.tolist()):
        rows = backend.take(Z.rows, np.flatnonzero(of_rows == c))  # type: ignore[attr-defined]
        if space is not None and not _complete(rows).size:
            what = "complete in one at least, with a kernel"
            raise ValueError(expected(f"the rows of class {name!r}", what, "NaN in every row"))
        # every class starts from the same seed, whatever the ones before have drawn
        alike = replace(request, kernel=None, unit=unit, rng=deepcopy(request.rng))
        models.append(fit_hidden_markov(InMemoryTable(rows), lengths[which == c], alike))
    found = SequenceClassesModel(tuple(models), prior, classes, space)
    if len(which) > SEQUENCES_PER_PARAMETER * found.n_parameters() or len(classes) < 2:
        return found
    every: Array = Z.rows  # type: ignore[attr-defined]
    alike = replace(request, unit=unit)
    certainty = certainty_of_left_out(found, every, np.asarray(lengths), which, alike)
    return replace(found, certainty=certainty)


SEQUENCES_PER_PARAMETER = 3
"""Sequences beyond which those left out would show no difference."""

SEQUENCE_FOLDS, LEFT_OUT_STEPS = 5, 10
"""Parts of the sequences of a class that are left out in turn, and the steps that a fit to the
others takes from the fit to all."""

LEAST_CERTAINTY = 0.02


def certainty_of_left_out(
    model: SequenceClassesModel,
    rows: Array,
    lengths: Host,
    which: Host,
    request: HiddenMarkovRequest,
) -> float:
    """Return the β in (0, 1] under which sequences left out have their classes most probably.

    Every sequence is judged by a model of its class that was fitted without it, and by those of
    the others. 1 where a class has one sequence, and nothing can be left out.

    Parameters
    ----------
    model : SequenceClassesModel
        Fitted to all sequences.
    rows : array of shape (T, m)
        In the space in which states emit.
    lengths, which : arrays of shape (m,)
        Rows and class of every sequence.
    request : HiddenMarkovRequest
    """
    if np.bincount(which).min() < 2:
        return 1.0
    plain = replace(model, space=None)
    found, of_rows = plain.loglikelihoods(rows, lengths), np.repeat(np.arange(len(which)), lengths)
    for c, one in enumerate(model.models):
        own = np.flatnonzero(which == c)
        for held in np.array_split(own, min(SEQUENCE_FOLDS, len(own))):
            kept = np.setdiff1d(own, held)
            some, others = (
                backend.take(rows, np.flatnonzero(np.isin(of_rows, part))) for part in (kept, held)
            )
            density = refitted(one.density, some, lengths[kept], request)
            if density is None:
                return 1.0
            emitted_by = density.log_emissions(backend.working(others))
            found[held, c] = density.chain.filtered(emitted_by, lengths[held])[1]
    priors, each = log(model.priors), np.arange(len(which))

    def loss(certainty: float) -> float:
        return -float(np.sum(log_shares(found, priors, certainty)[each, which]))

    best = optimize.minimize_scalar(loss, bounds=(LEAST_CERTAINTY, 1.0), method="bounded")
    return float(best.x) if best.fun < loss(1.0) else 1.0


def refitted(
    density: HiddenMarkov, rows: Array, lengths: Host, request: HiddenMarkovRequest
) -> HiddenMarkov | None:
    """Return a density after a few steps of Baum–Welch on some sequences; None if interrupted."""
    emissions = moved(density.emissions, backend.working)
    emissions = replace(
        emissions, floor=request.floor, tied=request.tied_noise, prior=request.prior
    )
    start = replace(density, emissions=emissions)
    S, M = start.shares.shape
    sizes: dict[str, Any] = {"n_states": S, "n_components": list(emissions.ranks[::M])}
    sized = replace(request, **sizes, kernel=None, watch=None)
    table = InMemoryTable(rows)
    data = Surveyed.of(table)._replace(table=table)  # without weights: blank rows are steps, too
    steps = BaumWelch(data, {0: lengths}, sized)
    least = request.tol * float(rows.shape[0])

    def begin() -> tuple[BaumWelchState, driver.Record]:
        at, value = steps.expect(start)
        return at, driver.Record([value])

    at, record = driver.iterate(
        steps.step,
        begin,
        max_iter=LEFT_OUT_STEPS,
        stop=lambda run: run.loglikelihoods[-1] - run.loglikelihoods[-2] <= least,
    )
    return None if record.interrupted else at[0]


def check_priors(priors: str | Sequence[float] | Host, counts: Host) -> Vector:
    """Return P(c), (c,), for classes of so many sequences."""
    if isinstance(priors, str) and priors in ("frequencies", "equal"):
        weights = counts if priors == "frequencies" else np.ones(len(counts))
        return np.asarray(weights / weights.sum())
    p = np.asarray(priors, dtype=np.float64) if np.shape(priors) == counts.shape else None
    if p is None or not np.all(p >= 0) or abs(p.sum() - 1) > 1e-6:
        what = f"'frequencies', 'equal' or {len(counts)} probabilities that sum to 1"
        raise ValueError(expected("priors", what, priors))
    return p
