"""Hidden Markov models whose states emit spiked Gaussians, or mixtures of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dualpca.arrays import Array, backend, task
from dualpca.data import ChunkedTable, Host, has_missing
from dualpca.errors import expected
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
from dualpca.models.driver import Keeper, Record, State
from dualpca.models.emissions import Emissions, EmissionSums, Observations, Prior

# --- Which state every row has before a hidden Markov model is fitted: where Baum–Welch begins ---

Labels = np.ndarray[Any, np.dtype[np.int64]]

LONGEST = 100
"""Rows of the longest stretch."""


def row_clusters(X: Array, lengths: Any, S: int, rng: np.random.Generator) -> Labels:
    """Return clusters of single rows (k-means), (T,)."""
    return kmeans(X, S, rng)


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
        return row_clusters(X, lengths, S, rng)
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


def equal_parts(lengths: Any, S: int) -> Labels:
    """Return labels 0 … S − 1 that cut every sequence into equal parts, in order, (T,).

    Examples
    --------
    >>> equal_parts([4, 2], 2)
    array([0, 0, 1, 1, 0, 1])
    """
    return _parts(lengths, [np.arange(1, S) / S] * len(lengths))


def random_parts(lengths: Any, S: int, rng: np.random.Generator) -> Labels:
    """Return labels that cut every sequence into parts of random lengths, in order, (T,)."""
    return _parts(lengths, [np.sort(rng.random(S - 1)) for _ in lengths])


def _parts(lengths: Any, borders: Any) -> Labels:
    parts = [
        np.searchsorted(border, (np.arange(n) + 0.5) / n)
        for n, border in zip(lengths, borders, strict=True)
    ]
    return np.concatenate(parts).astype(np.int64)


# --- Hidden Markov models whose states emit spiked Gaussians, or mixtures of them ----------------

FIRST_COUNT = 1.0
"""Pseudo-count of every allowed transition at the start: none may be ruled out by the start."""


@dataclass(frozen=True)
class HiddenMarkov:
    """p(X) = Σ_paths π(s₁) Π_t A(s_{t−1}, s_t) Π_t p(x_t | s_t), p(x | s) = Σ_m c_sm N(x; sm).

    Parameters
    ----------
    chain : Chain
        π and A, over S states.
    shares : array of shape (S, M)
        c, the weights of the components of every state.
    emissions : Emissions
        S·M Gaussians, those of one state one after another.
    """

    chain: Chain
    shares: Vector  # (S, M)
    emissions: Emissions

    def joint(self, X: Observations) -> Vector:
        """Return ln c_sm + ln p(x_t | s, m), (T, S, M), on the host."""
        logs = backend.to_numpy(self.emissions.log_density(X))
        return np.asarray(logs.reshape(-1, *self.shares.shape) + log(self.shares))

    def log_emissions(self, X: Observations) -> Vector:
        """Return ln p(x_t | s), (T, S), on the host; 0 for rows with nothing observed."""
        joint = self.joint(X)
        return joint[:, :, 0] if self.shares.shape[1] == 1 else log_sum(joint, 2)

    def loglikelihoods(self, X: Observations, lengths: Any) -> Vector:
        """Return ln p of every sequence, (m,)."""
        return filtered(self.chain, self.log_emissions(X), lengths)[1]

    def filter(self, X: Observations, lengths: Any, before: Vector | None = None) -> Vector:
        """Return P(s_t | rows up to t), (T, S), going on from the states one step `before`."""
        return filtered(self.chain, self.log_emissions(X), lengths, before)[0]

    def smooth(self, X: Observations, lengths: Any) -> Smoothed:
        """Return the posterior of the states given whole sequences."""
        return smooth(self.chain, self.log_emissions(X), lengths)

    def decode(self, X: Observations, lengths: Any) -> tuple[Vector, Labels]:
        """Return the log-probability of every best path, (m,), and the paths, (T,)."""
        return viterbi(self.chain, self.log_emissions(X), lengths)

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

    def state(self, record: Record) -> State:
        """Return all that the next step of Baum–Welch depends on."""
        arrays = {f"W{k}": backend.to_numpy(W) for k, W in enumerate(self.emissions.loadings)}
        arrays |= {"start": self.chain.start, "transitions": self.chain.transitions}
        arrays |= {"shares": self.shares, "loglikelihoods": np.array(record.loglikelihoods)}
        for name in ("means", "noises"):
            arrays[name] = backend.to_numpy(getattr(self.emissions, name))
        return arrays, {"n_iter": record.n_iter}

    def n_parameters(self) -> int:
        """Return the number of free parameters; transitions that are zero are none."""
        free = int((self.chain.start > 0).sum()) - 1
        free += int((self.chain.transitions > 0).sum()) - self.chain.n_states
        free += self.shares.size - self.chain.n_states
        return free + sum(self.emissions.n_parameters())


class Plan(NamedTuple):
    """What to fit: sizes, shape of the chain, prior."""

    n_states: int
    n_mixtures: int
    q: int | Sequence[int]
    forward: bool = False  # left to right
    stickiness: float = 0.0
    floor: float = 0.0
    tied: bool = False
    rows: Prior | None = None  # that every component has seen before

    @property
    def prior(self) -> Vector | None:
        """Pseudo-counts of transitions."""
        return self.stickiness * np.eye(self.n_states) if self.stickiness > 0 else None

    @property
    def ranks(self) -> list[int]:
        """Q of every component; one number a state may be given."""
        S, M = self.n_states, self.n_mixtures
        each = [self.q] * S if isinstance(self.q, int) else [int(q) for q in self.q]
        return [q for q in each for _ in range(M)]


def restored(state: State, plan: Plan, like: Array) -> tuple[HiddenMarkov, Record]:
    """Return the model of a state, and how far it has come."""
    arrays, numbers = state
    means, noises = (backend.asarray(arrays[name], like) for name in ("means", "noises"))
    W = tuple(backend.asarray(arrays[f"W{k}"], like) for k in range(int(means.shape[0])))
    emissions = Emissions(means, W, noises, plan.floor, plan.tied, plan.rows)
    chain = Chain(arrays["start"], arrays["transitions"])
    record = Record([float(v) for v in arrays["loglikelihoods"]], int(numbers["n_iter"]))
    return HiddenMarkov(chain, arrays["shares"], emissions), record


def begin(
    X: Array, lengths: Any, plan: Plan, rng: np.random.Generator, *, turn: int = 0
) -> HiddenMarkov:
    """Return a model to start from; every `turn` has another.

    States are clusters of rows or, every other turn, of stretches of rows (k-means); from left to
    right they are parts of every sequence, equal ones in the first turn. The chain has the
    frequencies of those labels.
    """
    S, M = plan.n_states, plan.n_mixtures
    states = first_states(X, lengths, plan, rng, turn)
    chain = _counted(states, lengths, plan)
    labels = states * M
    for s in range(S if M > 1 else 0):
        rows = np.flatnonzero(states == s)
        if rows.size:
            labels[rows] += kmeans(backend.take(X, rows), M, rng)
    options: dict[str, Any] = {"floor": plan.floor, "tied": plan.tied, "labels": labels}
    emissions = Emissions.start(X, S * M, plan.ranks, rng, **options)
    emissions = replace(emissions, prior=plan.rows)
    sizes = np.maximum(np.bincount(labels, minlength=S * M).reshape(S, M), 1)
    return HiddenMarkov(chain, sizes / sizes.sum(axis=1, keepdims=True), emissions)


def first_states(X: Array, lengths: Any, plan: Plan, rng: np.random.Generator, turn: int) -> Labels:
    """Return the state of every row at the start of a turn, (T,)."""
    S = plan.n_states
    if plan.forward:
        return random_parts(lengths, S, rng) if turn else equal_parts(lengths, S)
    return (row_clusters, stretch_clusters)[turn % 2](X, lengths, S, rng)


def _counted(states: Labels, lengths: Any, plan: Plan) -> Chain:
    """Return the chain with the frequencies of labels; every allowed transition is possible."""
    S, ends = plan.n_states, np.cumsum(lengths)
    counts = np.zeros((S, S))
    inside = np.ones(len(states) - 1, dtype=bool)
    inside[ends[:-1] - 1] = False
    np.add.at(counts, (states[:-1][inside], states[1:][inside]), 1.0)
    allowed = np.eye(S) + np.eye(S, k=1) if plan.forward else np.ones((S, S))
    A = (counts + FIRST_COUNT) * (allowed > 0)
    first = np.bincount(states[ends - np.asarray(lengths)], minlength=S) + FIRST_COUNT
    start = np.eye(S)[0] if plan.forward else first / first.sum()
    return Chain(start, A / A.sum(axis=1, keepdims=True))


def step(
    model: HiddenMarkov, X: Observations, lengths: Any, prior: Vector | None = None
) -> tuple[HiddenMarkov, Smoothed]:
    """Take one step of Baum–Welch; return it with what the given model says of the states.

    E: forward–backward, then the posterior of the components within states. M: counts for the
    chain, MATH 2 with posteriors as weights for the emissions.
    """
    joint = model.joint(X)
    log_b = joint[:, :, 0] if joint.shape[2] == 1 else log_sum(joint, 2)
    found = smooth(model.chain, log_b, lengths)
    resp, shares = found.states, model.shares
    if joint.shape[2] > 1:
        within = found.states[:, :, None] * np.exp(joint - log_b[:, :, None])
        resp, shares = within.reshape(len(log_b), -1), mixed_shares(within.sum(axis=0), shares)
    emissions = model.emissions.update(X, backend.asarray(resp, model.emissions.means))
    return HiddenMarkov(update(found, model.chain, prior), shares, emissions), found


def mixed_shares(mass: Vector, old: Vector) -> Vector:
    """Return the shares of components within states; a state that is never visited keeps its."""
    total = mass.sum(axis=1, keepdims=True)
    return np.where(total > 0, mass / np.where(total > 0, total, 1.0), old)


def climb(
    model: HiddenMarkov,
    X: Array,
    lengths: Any,
    prior: Vector | None = None,
    tol: float = 1e-5,
    max_iter: int = 200,
    record: Record | None = None,
    keeper: Keeper | None = None,
) -> tuple[HiddenMarkov, Record, Smoothed]:
    """Iterate Baum–Welch until a step gains less than `tol` a row.

    Returns
    -------
    model : HiddenMarkov
    record : Record
        The log-likelihood, plus the log-density of the prior, at every step; never falls.
    found : Smoothed
        What the model returned says of the states.
    """
    table: Observations = model.emissions.table(X) if has_missing(X) else X
    record, n = Record() if record is None else record, int(X.shape[0])
    with task("Baum–Welch step", max_iter) as tick:
        try:
            while True:
                moved, found = step(model, table, lengths, prior)
                value = float(found.loglikelihoods.sum()) + model.log_prior(prior)
                gain = value - (record.loglikelihoods[-1] if record.n_iter else -np.inf)
                record.add(value)
                record.converged = gain <= tol * n
                tick(f"log-likelihood {value:.6g}")
                if record.converged or record.n_iter >= max_iter:
                    return model, record, found
                model, record.n_iter = moved, record.n_iter + 1
                if keeper is not None:
                    keeper.offer(partial(model.state, record))
        except KeyboardInterrupt:
            if not record.loglikelihoods:
                raise
            record.interrupted = True
            found = model.smooth(table, lengths)
            return model, record, found


def fit(
    X: Array,
    lengths: Any,
    plan: Plan,
    rng: np.random.Generator,
    *,
    tol: float = 1e-5,
    max_iter: int = 200,
    n_init: int = 1,
    keeper: Keeper | None = None,
) -> tuple[HiddenMarkov, Record, Smoothed]:
    """Fit by Baum–Welch from several starts; the one that ends most likely is kept.

    With a `keeper` there is one start, and a checkpoint of it.
    """
    if keeper is not None:
        record = None
        if keeper.state is None:
            model = begin(X, lengths, plan, rng)
        else:
            model, record = restored(keeper.state, plan, X)
        found = climb(model, X, lengths, plan.prior, tol, max_iter, record, keeper)
        if not found[1].interrupted:
            keeper.done()
        return found
    runs: list[tuple[HiddenMarkov, Record, Smoothed]] = []
    for turn in range(n_init):
        model = begin(X, lengths, plan, rng, turn=turn)
        runs.append(climb(model, X, lengths, plan.prior, tol, max_iter))
        if runs[-1][1].interrupted:
            break
    return max(runs, key=lambda run: run[1].loglikelihoods[-1])


# --- Hidden Markov models from tables in parts: Baum–Welch, a pass a step ------------------------

START_ROWS = 20_000
"""Rows of the leading parts on which states are found to start from."""

Lengths = dict[int, Any]
"""Number of a part to the lengths of its sequences."""


class Counted(NamedTuple):
    """What one pass finds: expected counts of the chain, sums of the emissions."""

    starts: Vector  # (S,)
    transitions: Vector  # (S, S)
    loglikelihood: float
    visits: Vector  # (S,)
    sums: EmissionSums

    def plus(self, other: Counted) -> Counted:
        """Join two disjoint sets of sequences."""
        return Counted(
            self.starts + other.starts,
            self.transitions + other.transitions,
            self.loglikelihood + other.loglikelihood,
            self.visits + other.visits,
            self.sums.plus(other.sums),
        )


class _Expect:
    """The E step over the sequences of one part."""

    numbered = True

    def __init__(self, model: HiddenMarkov, lengths: Lengths, holes: bool) -> None:
        self.model, self.lengths, self.holes = model, lengths, holes

    def __call__(self, rows: Host, number: int) -> Counted:
        model, rows = self.model, backend.working(rows)
        joint = model.joint(rows)
        log_b = joint[:, :, 0] if joint.shape[2] == 1 else log_sum(joint, 2)
        found = smooth(model.chain, log_b, self.lengths[number])
        resp = found.states
        if joint.shape[2] > 1:
            within = found.states[:, :, None] * np.exp(joint - log_b[:, :, None])
            resp = within.reshape(len(log_b), -1)
        visits = found.states.sum(axis=0)
        sums = EmissionSums.of(model.emissions, rows, resp, self.holes)
        value = float(found.loglikelihoods.sum())
        return Counted(found.starts, found.transitions, value, visits, sums)


def lengths_by_part(parts: ChunkedTable, lengths: Any) -> Lengths:
    """Return the lengths of the sequences of every part; None is one sequence a part.

    A sequence may not cross from one part into another.
    """
    sizes = parts.sizes()
    if lengths is None:
        return {number: np.array([size]) for number, size in sizes.items()}
    ends = np.cumsum(np.asarray(lengths, dtype=np.int64))
    found: Lengths = {}
    row = 0
    for number, size in sizes.items():
        inside = ends[(ends > row) & (ends <= row + size)]
        if not inside.size or inside[-1] != row + size:
            what = f"such that a sequence ends with part {number}, after row {row + size - 1}"
            remedy = "Sequences may not cross parts: cut the table between sequences."
            raise ValueError(expected("lengths", what, f"ends {inside[-3:].tolist()}", remedy))
        found[number] = np.diff(np.concatenate([[row], inside]))
        row += size
    if row != ends[-1]:
        raise ValueError(expected("lengths", f"numbers that sum to the {row} rows", int(ends[-1])))
    return found


def fit_chain_parts(
    parts: ChunkedTable,
    holes: bool,
    lengths: Lengths,
    plan: Plan,
    rng: np.random.Generator,
    *,
    tol: float,
    max_iter: int,
    n_init: int,
    keeper: Keeper | None = None,
) -> tuple[HiddenMarkov, Record, Counted]:
    """Fit by Baum–Welch from several starts; the one that ends most likely is kept.

    States to start from are found in the leading parts, the passes run over all of them. With a
    `keeper` there is one start, and a checkpoint of it.
    """
    if keeper is not None and keeper.state is not None:
        model, record = restored(keeper.state, plan, np.empty(0))
        return climb_table(model, parts, holes, lengths, plan.prior, tol, max_iter, record, keeper)
    first = parts.head(START_ROWS)
    rows = backend.working(np.concatenate([part.rows for part in first]))
    steps = np.concatenate([lengths[part.number] for part in first])
    runs = []
    for turn in range(n_init):
        model = begin(rows, steps, plan, rng, turn=turn)
        limits = (plan.prior, tol, max_iter)
        runs.append(climb_table(model, parts, holes, lengths, *limits, Record(), keeper))
        if runs[-1][1].interrupted:
            break
    return max(runs, key=lambda run: run[1].loglikelihoods[-1])


def climb_table(
    model: HiddenMarkov,
    parts: ChunkedTable,
    holes: bool,
    lengths: Lengths,
    prior: Vector | None,
    tol: float,
    max_iter: int,
    record: Record,
    keeper: Keeper | None,
) -> tuple[HiddenMarkov, Record, Counted]:
    """Iterate Baum–Welch until a step gains less than `tol` a row."""
    n = sum(int(np.sum(one)) for one in lengths.values())
    kept: tuple[HiddenMarkov, Counted] | None = None
    with task("Baum–Welch step", max_iter) as tick:
        try:
            while True:
                found = parts.reduce(_Expect(model, lengths, holes), Counted.plus)
                kept = (model, found)
                value = found.loglikelihood + model.log_prior(prior)
                gain = value - (record.loglikelihoods[-1] if record.n_iter else -np.inf)
                record.add(value)
                record.converged = gain <= tol * n
                tick(f"log-likelihood {value:.6g}")
                if record.converged or record.n_iter >= max_iter:
                    if keeper is not None:
                        keeper.done()
                    return model, record, found
                model, record.n_iter = maximised(model, found, prior), record.n_iter + 1
                if keeper is not None:
                    keeper.offer(partial(model.state, record))
        except KeyboardInterrupt:
            if kept is None:
                raise
            record.interrupted = True
            return kept[0], record, kept[1]


def maximised(model: HiddenMarkov, found: Counted, prior: Vector | None) -> HiddenMarkov:
    """Take the M step."""
    counts = Smoothed(found.visits[None, :], found.starts, found.transitions, np.zeros(0))
    weights = mixed_shares(found.sums.mass.reshape(model.shares.shape), model.shares)
    weights = weights if model.shares.shape[1] > 1 else model.shares
    emissions = found.sums.maximise(model.emissions)
    return HiddenMarkov(update(counts, model.chain, prior), weights, emissions)
