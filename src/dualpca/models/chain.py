"""Hidden Markov chains: filtering, smoothing, expected transitions and Viterbi's path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import ceil, sqrt
from typing import Annotated, Any, NamedTuple

import numpy as np

from dualpca.arrays import backend
from dualpca.errors import DegenerateError, expected

# --- Sums and maxima over all paths of a chain, many steps at a time -----------------------------

Vector = np.ndarray[Any, np.dtype[np.float64]]
Times = Callable[[Vector], Vector]
"""v ↦ the log-sum (or the maximum) over states i of v_i + ln A_ij, on the first axis."""

UNCUT = 200
"""Sequences up to this length stay in one piece."""

LOWEST = -1e300
"""What stands for −∞ where it is subtracted."""

SAFE = 1e-100
"""Where no transition is less likely, a term too small for float64 is too small to matter."""

REACH = 700.0
"""Nats between two terms of a sum of exponentials that float64 can hold both."""


class Pieces:
    """Sequences cut into pieces of at most L steps; (L, C) arrays hold the steps of all C."""

    def __init__(self, lengths: Any) -> None:
        self.lengths = np.asarray(lengths, dtype=np.int64)
        longest = int(self.lengths.max())
        self.L = longest if longest <= UNCUT else ceil(sqrt(longest))
        counts = -(-self.lengths // self.L)
        self.ends = np.cumsum(self.lengths)
        owner = np.repeat(np.arange(len(counts)), counts)
        self.rank = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        steps = self.lengths[owner] - self.rank * self.L  # left when a piece begins
        self.valid = np.arange(self.L)[:, None] < steps[None, :]
        self.full = np.asarray(self.valid.all(axis=1))
        self.held = np.flatnonzero(self.valid.T)  # of all C·L places, those that hold a row
        # by rank, those of longer sequences first: what went before a run of pieces is a run too
        self.order = np.lexsort((-counts[owner], self.rank))
        self.runs = np.append(0, np.cumsum(np.bincount(self.rank)))

    def cut(self, values: Vector) -> Vector:
        """Return (S, T) values as pieces, (L, S, C), with 0 where a piece has ended."""
        S, C = values.shape[0], len(self.rank)
        padded = np.zeros((S, C * self.L))
        padded[:, self.held] = values
        return np.ascontiguousarray(padded.reshape(S, C, self.L).transpose(2, 0, 1))

    def join(self, parts: Vector) -> Vector:
        """Return (L, S, C) values in the order of the rows, (S, T)."""
        flat = parts.transpose(1, 2, 0).reshape(parts.shape[1], -1)
        return np.asarray(flat if self.held.size == flat.shape[1] else flat.take(self.held, axis=1))

    @property
    def firsts(self) -> np.ndarray[Any, Any]:
        """First row of every sequence."""
        return self.ends - self.lengths

    @property
    def lasts(self) -> np.ndarray[Any, Any]:
        """Last row of every sequence."""
        return self.ends - 1


class Run:
    """One pass over all sequences: forward, and backward if asked.

    Arrays have the states first and the pieces last, (S, C): sums over few states then run over
    long rows. Logarithms of 0 are meant: whoever runs this ignores division by zero.

    Parameters
    ----------
    log_start : array of shape (S,)
    A : array of shape (S, S)
    log_b : array of shape (S, T)
    lengths : array of shape (m,)
    best : bool
        The best path to every state instead of the sum over all paths.
    """

    def __init__(
        self, log_start: Vector, A: Vector, log_b: Vector, lengths: Any, *, best: bool = False
    ) -> None:
        self.log_start, self.A, self.log_a = log_start, A, log(A)
        self.times = best_times(self.log_a) if best else log_times(A)
        self.join, self.pieces = maximum if best else log_sum, Pieces(lengths)
        self.B = self.pieces.cut(log_b)  # (L, S, C)
        self.first = self.pieces.rank == 0

    @cached_property
    def products(self) -> Vector:
        """What a piece does to the state it is entered in, (S to, S from, C): ln Π A diag b.

        A first piece is entered from nowhere: all its columns are alike. Pieces stand in the
        order of `Pieces.order`.
        """
        B, pieces = self.B, self.pieces
        P = self.log_a.T[:, :, None] + B[0][:, None, :]
        P[:, :, self.first] = (self.log_start[:, None] + B[0][:, self.first])[:, None, :]
        for t in range(1, pieces.L):
            moved = self.times(P) + B[t][:, None, :]
            P = moved if pieces.full[t] else np.where(pieces.valid[t], moved, P)
        return np.ascontiguousarray(P[:, :, pieces.order])

    @cached_property
    def alpha(self) -> Vector:
        """Logarithm of α, (L, S, C); not to be read where a piece has ended."""
        alpha = np.empty_like(self.B)
        now = np.zeros_like(self.B[0]) if self.first.all() else self.times(self._entries())
        now[:, self.first] = self.log_start[:, None]
        alpha[0] = now = now + self.B[0]
        for t in range(1, self.pieces.L):
            alpha[t] = now = self.times(now) + self.B[t]
        return alpha

    def _entries(self) -> Vector:
        """Return ln α one step before every piece, (S, C); zeros for first ones."""
        order, runs = self.pieces.order, self.pieces.runs
        ends, entries = self.products[:, 0, :].copy(), np.zeros_like(self.B[0])
        for last, here, after in zip(runs, runs[1:], runs[2:], strict=False):
            before = ends[:, last : last + after - here]
            entries[:, order[here:after]] = before
            ends[:, here:after] = self.join(self.products[:, :, here:after] + before[None], 1)
        return np.asarray(entries)

    @cached_property
    def beta(self) -> Vector:
        """Logarithm of β, (L, S, C); not to be read where a piece has ended."""
        times, exits, pieces = log_times(self.A.T), self._exits(), self.pieces
        beta = np.empty_like(self.B)
        beta[-1] = now = exits
        for t in range(pieces.L - 2, -1, -1):
            moved = times(self.B[t + 1] + now)
            full = pieces.full[t + 1]
            beta[t] = now = moved if full else np.where(pieces.valid[t + 1], moved, exits)
        return beta

    def _exits(self) -> Vector:
        """Return ln β at the last step of every piece, (S, C)."""
        runs, ordered = self.pieces.runs, np.zeros(self.B.shape[1:])
        for k in range(len(runs) - 2, 0, -1):
            last, here, after = runs[k - 1 : k + 2]
            ahead = self.products[:, :, here:after] + ordered[:, None, here:after]
            ordered[:, last : last + after - here] = self.join(ahead, 0)
        exits = np.empty_like(ordered)
        exits[:, self.pieces.order] = ordered
        return exits

    def loglikelihoods(self, alpha: Vector) -> Vector:
        """Return ln Σ_s α_T(s) of every sequence, (m,), from ln α of all rows, (S, T)."""
        return log_sum(alpha[:, self.pieces.lasts], 0)


def log_times(A: Vector) -> Times:
    """Return v ↦ ln(Aᵀe^v), a product with A; term by term where that could underflow.

    Where every transition is possible, a term lost is nothing beside the others. Where some are
    not, a state may be reachable only from unlikely ones: columns whose terms lie too far apart
    for one scale are summed term by term.
    """
    log_a, At, least = log(A), np.ascontiguousarray(A.T), float(A[A > 0].min())
    safe, reach = bool(A.min() >= SAFE), REACH + float(np.log(least))

    def times(v: Vector) -> Vector:
        flat = v.reshape(v.shape[0], -1)
        top = np.maximum.reduce(flat, axis=0, initial=LOWEST)
        spread = flat - top
        if not safe and spread.min() < -reach:
            far = np.flatnonzero(((spread < -reach) & (spread > -np.inf)).any(axis=0))
            found = _product(At, spread, top)
            found[:, far] = log_sum(log_a[:, :, None] + flat[:, None, far], 0)
            return found.reshape(v.shape)
        return _product(At, spread, top).reshape(v.shape)

    return times


def _product(At: Vector, spread: Vector, top: Vector) -> Vector:
    """Return ln(Aᵀe^spread) + top; few calls, since there are many turns. Overwrites `spread`."""
    found: Vector = At @ np.exp(spread, out=spread)
    np.log(found, out=found)
    found += top
    return found


def best_times(log_a: Vector) -> Times:
    """Return v ↦ max_i v_i + ln A_ij."""

    def times(v: Vector) -> Vector:
        flat = v.reshape(v.shape[0], -1)
        return np.asarray(np.max(log_a[:, :, None] + flat[:, None, :], axis=0).reshape(v.shape))

    return times


def log_sum(terms: Vector, axis: int) -> Vector:
    """Return ln Σ e^terms; −∞ where all are."""
    top = np.maximum.reduce(terms, axis=axis, keepdims=True, initial=LOWEST)
    terms = terms - top
    total: Vector = np.add.reduce(np.exp(terms, out=terms), axis=axis)
    np.log(total, out=total)
    total += top.reshape(total.shape)
    return total


def maximum(terms: Vector, axis: int) -> Vector:
    """Return the largest of the terms."""
    return np.asarray(np.max(terms, axis=axis))


def log(p: Vector) -> Vector:
    """Return ln p, −∞ for 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p))


# --- Chains: filtering, smoothing, expected transitions and Viterbi's path -----------------------
#
# Everything stays in logarithms, so nothing underflows, however long a sequence is; the scans above
# make that fast. A chain is small beside the rows that it explains: it lives on the host.

NEVER = 1e-40
"""Transitions of smaller probability are set to zero: less than one in any data."""

FAINT = 1e-200
"""A sum of terms of which some are 1 is exact down to here, whatever underflows."""

BLOCK = 2**20
"""Entries of (steps, S, S) arrays held at once."""


@dataclass(frozen=True)
class Chain:
    """A Markov chain over S states: s₁ ~ π, P(s_t = j | s_{t−1} = i) = A_ij.

    Parameters
    ----------
    start : array of shape (S,)
        π.
    transitions : array of shape (S, S)
        A, whose rows sum to 1. Equal rows are independent draws: a mixture.

    Examples
    --------
    >>> import numpy as np
    >>> chain = Chain(np.array([0.5, 0.5]), np.array([[0.9, 0.1], [0.2, 0.8]]))
    >>> chain.after(np.array([1.0, 0.0]), 2).round(4)
    array([[0.9 , 0.1 ], [0.83, 0.17]])
    """

    start: Annotated[Vector, "S"]
    transitions: Annotated[Vector, "S S"]

    def __post_init__(self) -> None:
        """Refuse what is no distribution."""
        S = self.start.shape[0]
        if self.start.shape != (S,) or self.transitions.shape != (S, S):
            got = (self.start.shape, self.transitions.shape)
            raise ValueError(expected("chain", "of shapes (S,) and (S, S)", got))
        for name, rows in (("start", self.start[None]), ("transitions", self.transitions)):
            if not (np.all(rows >= 0) and np.allclose(rows.sum(axis=1), 1, atol=1e-6)):
                raise ValueError(expected(name, "probabilities that sum to 1", rows))

    @property
    def n_states(self) -> int:
        """S."""
        return int(self.start.shape[0])

    @cached_property
    def log_start(self) -> Vector:
        """Logarithm of π, −∞ where a chain cannot start."""
        return log(self.start)

    @cached_property
    def log_transitions(self) -> Vector:
        """Logarithm of A, −∞ where there is no way."""
        return log(self.transitions)

    def after(self, states: Vector, steps: int) -> Vector:
        """Return the distributions 1, …, `steps` steps after `states` (S,), (steps, S)."""
        found = np.empty((steps, self.n_states))
        for t in range(steps):
            states = found[t] = states @ self.transitions
        return found

    def sample(self, steps: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
        """Draw a path, (steps,)."""
        cumulated = np.cumsum(self.transitions, axis=1)
        cumulated[:, -1] = 1.0
        draws, path = rng.random(steps), np.empty(steps, dtype=np.int64)
        state = int(rng.choice(self.n_states, p=self.start / self.start.sum()))
        for t in range(steps):
            if t:
                state = int(np.searchsorted(cumulated[state], draws[t], side="right"))
            path[t] = state
        return path


class Smoothed(NamedTuple):
    """What rows tell about the states: P(s_t | all rows) and sums that the M step needs."""

    states: Vector  # (T, S)
    starts: Vector  # (S,), expected number of sequences that start in a state
    transitions: Vector  # (S, S), expected number of transitions
    loglikelihoods: Vector  # (m,), of every sequence


@np.errstate(divide="ignore")
def filtered(
    chain: Chain, log_b: Vector, lengths: Any, before: Vector | None = None
) -> tuple[Vector, Vector]:
    """Return P(s_t | rows up to t), (T, S), and the log-likelihood of every sequence, (m,).

    Parameters
    ----------
    chain : Chain
    log_b : array of shape (T, S)
        ln p(x_t | s), sequences one after another.
    lengths : array of shape (m,)
    before : array of shape (S,), optional
        The filtered states one step earlier: the sequences go on from there.
    """
    if before is not None:
        chain = Chain(before @ chain.transitions, chain.transitions)
    run = Run(chain.log_start, chain.transitions, log_b.T, lengths)
    alpha = run.pieces.join(run.alpha)
    return _normalised(alpha).T, run.loglikelihoods(alpha)


@np.errstate(divide="ignore")
def smooth(chain: Chain, log_b: Vector, lengths: Any) -> Smoothed:
    """Return the posterior of states and transitions given whole sequences (forward–backward).

    α_t(j) = b_t(j) Σ_i α_{t−1}(i) A_ij and β_t(i) = Σ_j A_ij b_{t+1}(j) β_{t+1}(j), in logarithms
    (theory 10.1; Rabiner 1989, Eqs. 20, 25, 27, 37). O(TS²) for whole sequences, O(TS³) where
    they are cut; memory O(TS).

    Parameters
    ----------
    chain : Chain
    log_b : array of shape (T, S)
        ln p(x_t | s), sequences one after another.
    lengths : array of shape (m,)

    Examples
    --------
    >>> import numpy as np
    >>> chain = Chain(np.array([0.5, 0.5]), np.array([[0.9, 0.1], [0.1, 0.9]]))
    >>> log_b = np.log([[0.9, 0.1], [0.4, 0.6], [0.9, 0.1]])
    >>> smooth(chain, log_b, [3]).states.round(3)
    array([[0.955, 0.045],
           [0.933, 0.067],
           [0.955, 0.045]])
    """
    run = Run(chain.log_start, chain.transitions, log_b.T, lengths)
    alpha, beta = run.pieces.join(run.alpha), run.pieces.join(run.beta)
    loglikelihoods = run.loglikelihoods(alpha)
    refuse_impossible(loglikelihoods)
    states = _normalised(alpha + beta)
    first = run.pieces.firsts
    counts = _expected_transitions(chain, log_b.T, alpha, beta, first)
    return Smoothed(states.T, states[:, first].sum(axis=1), counts, loglikelihoods)


@np.errstate(divide="ignore")
def viterbi(chain: Chain, log_b: Vector, lengths: Any) -> tuple[Vector, np.ndarray[Any, Any]]:
    """Return the log-probability of the best path of every sequence, (m,), and the paths, (T,).

    δ_t(j) = b_t(j) max_i δ_{t−1}(i) A_ij (Viterbi 1967), by the same scan with maxima for sums.

    Examples
    --------
    >>> import numpy as np
    >>> chain = Chain(np.array([0.5, 0.5]), np.array([[0.9, 0.1], [0.1, 0.9]]))
    >>> viterbi(chain, np.log([[0.9, 0.1], [0.4, 0.6], [0.9, 0.1]]), [3])[1]
    array([0, 0, 0])
    """
    run = Run(chain.log_start, chain.transitions, log_b.T, lengths, best=True)
    delta = np.ascontiguousarray(run.pieces.join(run.alpha).T)
    lasts = run.pieces.lasts
    logs = delta[lasts].max(axis=1)
    refuse_impossible(logs)
    return logs, _backtrack(chain.log_transitions, delta, run.pieces.firsts, lasts)


def _scaled(logs: Vector) -> Vector:
    """Return e^logs, each column divided by its largest."""
    top = logs.max(axis=0)
    return np.asarray(np.exp(logs - np.where(np.isfinite(top), top, 0.0)))


def _normalised(logs: Vector) -> Vector:
    """Return probabilities in proportion to e^logs, a column each."""
    found = _scaled(logs)
    total = found.sum(axis=0)
    found /= np.where(total > 0, total, 1.0)
    return found


def _expected_transitions(
    chain: Chain, log_b: Vector, alpha: Vector, beta: Vector, firsts: np.ndarray[Any, Any]
) -> Vector:
    """Return Σ_t P(s_t = i, s_{t+1} = j | rows) ∝ Σ_t α_t(i) A_ij b_{t+1}(j) β_{t+1}(j), (S, S).

    As one product of matrices, both factors scaled to 1 at every step; steps at which past and
    future point to states without a way between, so that the scale is lost, are taken by logs.
    All arguments are (S, T): few states, many steps, so sums over states run along the steps.
    """
    before, ahead = alpha[:, :-1], (log_b + beta)[:, 1:]
    U, V = _scaled(before), _scaled(ahead)
    norm = ((chain.transitions.T @ U) * V).sum(axis=0)
    norm[firsts[firsts > 0] - 1] = np.inf  # no step from one sequence to the next
    lost = norm < FAINT
    V /= np.where(lost, np.inf, norm)
    counts = chain.transitions * (U @ V.T)
    far, S = np.flatnonzero(lost), chain.n_states
    for some in backend.slices(far.size, max(1, BLOCK // (S * S))):
        t = far[some]
        logs = before[:, None, t] + chain.log_transitions[:, :, None] + ahead[None, :, t]
        counts += _normalised(logs.reshape(S * S, -1)).sum(axis=1).reshape(S, S)
    return counts


def _backtrack(
    log_a: Vector, delta: Vector, firsts: np.ndarray[Any, Any], lasts: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Return the best path, (T,), from what the best path to every state is worth."""
    T, S = delta.shape
    came = np.empty((T, S), dtype=np.int64)
    for rows in backend.slices(T, max(1, BLOCK // (S * S))):
        came[rows] = np.argmax(delta[rows][:, :, None] + log_a, axis=1)
    pointers, path = came.tolist(), np.argmax(delta, axis=1).tolist()
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        for t in range(last, first, -1):
            path[t - 1] = pointers[t - 1][path[t]]
    return np.asarray(path, dtype=np.int64)


def refuse_impossible(logs: Vector) -> None:
    """Raise if some sequence has no path."""
    bad = np.flatnonzero(~np.isfinite(logs))
    if bad.size:
        raise DegenerateError(
            f"sequence {int(bad[0])} has probability zero under the chain: no path leads through "
            "it. Allow the transitions that it needs (topology='ergodic')."
        )


def update(chain: Chain, starts: Vector, transitions: Vector, prior: Vector | None = None) -> Chain:
    """Return the chain of largest expected log-probability: counts (and the prior's) as shares.

    Parameters
    ----------
    chain : Chain
        Zeros stay zeros. A state that is never left keeps its row: nothing speaks against it.
    starts : array of shape (S,)
        Expected number of sequences that start in a state.
    transitions : array of shape (S, S)
        Expected number of transitions.
    prior : array of shape (S, S), optional
        Pseudo-counts of a Dirichlet prior on transitions, as in a sticky chain.
    """
    rows = np.where(chain.transitions > 0, transitions + (0.0 if prior is None else prior), 0.0)
    total = rows.sum(axis=1, keepdims=True)
    left = total > np.finfo(float).tiny
    A = np.where(left, rows / np.where(total > 0, total, 1), chain.transitions)
    A = np.where(A < NEVER, 0.0, A)
    first = np.where(chain.start > 0, starts, 0.0)
    return Chain(first / first.sum(), A / A.sum(axis=1, keepdims=True))


def log_prior(chain: Chain, prior: Vector | None) -> float:
    """Return Σ prior · ln A, up to a constant: what a Dirichlet prior adds to the likelihood."""
    if prior is None:
        return 0.0
    with np.errstate(invalid="ignore"):
        return float(np.sum(np.where(prior > 0, prior * chain.log_transitions, 0.0)))
