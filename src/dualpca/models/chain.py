"""Hidden Markov chains: filtering, smoothing, expected transitions and Viterbi's path.

Sums over paths solve a banded triangular system, scaled step by step (`Band`): a sixteenth of the
time of scans on 200 rows. Where that could underflow, scans over many steps at a time (`Scan`) stay
in logarithms, so that nothing is lost, however long a sequence is. A chain is small beside the rows
that it explains: it stays on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, sqrt
from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy.linalg import blas

from dualpca.arrays import backend, cached_property
from dualpca.errors import DegenerateError, expected

Vector = np.ndarray[Any, np.dtype[np.float64]]
Whole = np.ndarray[Any, np.dtype[np.int64]]
Lengths = Whole | Sequence[int]
"""Rows of every sequence, (m,)."""
Times = Callable[[Vector], Vector]
"""v ↦ the log-sum over states i of v_i + ln A_ij, on the first axis."""

NEVER = 1e-40
"""Transitions of smaller probability are set to zero: less than one in any data."""

FEW_TERMS = 5000
"""Terms TS² up to which the best path is found row by row: calls of NumPy cost more than sums.

`predict` on 200 rows of two states takes 0.20 ms so, 0.30 without a form of its own for two states
and 0.36 by what longer sequences need.
"""

LONG_STRETCH = 4.0
"""Longest stretch without a certain state, as a multiple of √T, that rows are not faster for.

Where stretches are short, `predict` on 20,000 rows of five states takes a quarter of the time. A
way of its own for long ones (38 ms by rows for as many states that overlap) could halve that once.
"""


# --- The chain: filtering, smoothing, the best path, and the M step ------------------------------


class Smoothed(NamedTuple):
    """What rows tell about the states: P(s_t | all rows) and sums that the M step needs."""

    states: Vector  # (T, S)
    starts: Vector  # (S,), expected number of sequences that start in a state
    transitions: Vector  # (S, S), expected number of transitions
    loglikelihoods: Vector  # (m,), of every sequence


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

    @cached_property
    def margins(self) -> tuple[Vector, Vector, Vector]:
        """What makes a row's state certain: rows inside of sequences, first ones, last ones."""
        return _margins(self), _margins(self, first=True), _margins(self, last=True)

    def after(self, states: Vector, steps: int) -> Vector:
        """Return the distributions 1, …, `steps` steps after `states` (S,), (steps, S)."""
        found = np.empty((steps, self.n_states))
        for t in range(steps):
            states = found[t] = states @ self.transitions
        return found

    def sample(self, steps: int, rng: np.random.Generator) -> Whole:
        """Draw a path, (steps,)."""
        cumulated = np.cumsum(self.transitions, axis=1)
        cumulated[:, -1] = 1.0
        draws = rng.random(steps)
        path = [int(rng.choice(self.n_states, p=self.start / self.start.sum()))]
        for draw in draws[1:]:
            path.append(int(np.searchsorted(cumulated[path[-1]], draw, side="right")))
        return np.array(path, dtype=np.int64)

    @np.errstate(divide="ignore")
    def filtered(
        self, log_b: Vector, lengths: Lengths, before: Vector | None = None
    ) -> tuple[Vector, Vector]:
        """Return P(s_t | rows up to t), (T, S), and the log-likelihood of every sequence, (m,).

        Parameters
        ----------
        log_b : array of shape (T, S)
            ln p(x_t | s), sequences one after another.
        lengths : array of shape (m,)
        before : array of shape (S,), optional
            The filtered states one step earlier, from which the sequences resume.
        """
        A = self.transitions
        chain = self if before is None else Chain(before @ A, A)
        band = Band.of(chain, log_b, lengths)
        states = None if band is None else band.forward()
        if band is not None and states is not None:
            return states / np.add.reduce(states, axis=1)[:, None], band.loglikelihoods
        top = _tops(log_b)
        scan = Scan(chain, log_b - top[:, None], lengths)
        alpha = scan.forward()
        values = log_sum(alpha[:, scan.lasts], 0) + np.add.reduceat(top, scan.firsts)
        return _normalised(alpha).T, values

    @np.errstate(divide="ignore")
    def smooth(self, log_b: Vector, lengths: Lengths) -> Smoothed:
        """Return the posterior of states and transitions given whole sequences (forward–backward).

        α_t(j) = b_t(j) Σ_i α_{t−1}(i) A_ij and β_t(i) = Σ_j A_ij b_{t+1}(j) β_{t+1}(j), by their
        logarithms (theory 10.1; Rabiner 1989, Eqs. 20, 25, 27, 37). O(TS²) for whole sequences,
        O(TS³) where they are cut; memory O(TS).

        Parameters
        ----------
        log_b : array of shape (T, S)
            ln p(x_t | s), sequences one after another.
        lengths : array of shape (m,)

        Examples
        --------
        >>> import numpy as np
        >>> chain = Chain(np.array([0.5, 0.5]), np.array([[0.9, 0.1], [0.1, 0.9]]))
        >>> log_b = np.log([[0.9, 0.1], [0.4, 0.6], [0.9, 0.1]])
        >>> chain.smooth(log_b, [3]).states.round(3)
        array([[0.955, 0.045],
               [0.933, 0.067],
               [0.955, 0.045]])
        """
        band = Band.of(self, log_b, lengths)
        found = None if band is None else band.smooth()
        if found is not None:
            return found
        top = _tops(log_b)
        log_b = log_b - top[:, None]
        scan = Scan(self, log_b, lengths)
        alpha, beta = scan.forward(), scan.backward()
        loglikelihoods = log_sum(alpha[:, scan.lasts], 0) + np.add.reduceat(top, scan.firsts)
        refuse_impossible(loglikelihoods)
        states = _normalised(alpha + beta)
        counts = _expected_transitions(self, log_b.T, alpha, beta, scan.firsts)
        return Smoothed(states.T, states[:, scan.firsts].sum(axis=1), counts, loglikelihoods)

    @np.errstate(divide="ignore")
    def viterbi(
        self,
        log_b: Vector,
        lengths: Lengths,
        few_terms: int = FEW_TERMS,
        long_stretch: float = LONG_STRETCH,
    ) -> tuple[Vector, Whole]:
        """Return the log-probability of the best path of every sequence, (m,), and the paths, (T,).

        δ_t(j) = b_t(j) max_i δ_{t−1}(i) A_ij (Viterbi 1967): between rows that tell their state
        whatever the others are, all stretches together; where those are long, row by row.

        Examples
        --------
        >>> import numpy as np
        >>> chain = Chain(np.array([0.5, 0.5]), np.array([[0.9, 0.1], [0.1, 0.9]]))
        >>> chain.viterbi(np.log([[0.9, 0.1], [0.4, 0.6], [0.9, 0.1]]), [3])[1]
        array([0, 0, 0])
        """
        ends = np.cumsum(np.asarray(lengths, dtype=np.int64))
        firsts, lasts = np.append(0, ends[:-1]), ends - 1
        few = log_b.size * self.n_states <= few_terms
        path = None if few else _path_between_pins(self, log_b, firsts, lasts, long_stretch)
        path = _path_by_row(self, log_b, firsts) if path is None else path
        top = _tops(log_b)  # as in sums over paths: none is worth more than all of them
        worth = log_b[np.arange(len(log_b)), path] - top
        moves = np.empty_like(worth)
        moves[1:] = self.log_transitions[path[:-1], path[1:]]
        moves[firsts] = self.log_start[path[firsts]]
        logs = np.add.reduceat(top, firsts) + np.add.reduceat(worth + moves, firsts)
        refuse_impossible(logs)
        return logs, path

    def update(self, starts: Vector, transitions: Vector, prior: Vector | None = None) -> Chain:
        """Return the chain of largest expected log-probability: counts (and the prior's) as shares.

        Zeros stay zeros. A state that is never left keeps its row: nothing speaks against it.

        Parameters
        ----------
        starts : array of shape (S,)
            Expected number of sequences that start in a state.
        transitions : array of shape (S, S)
            Expected number of transitions.
        prior : array of shape (S, S), optional
            Pseudo-counts of a Dirichlet prior on transitions, as in a sticky chain.
        """
        rows = np.where(self.transitions > 0, transitions + (0.0 if prior is None else prior), 0.0)
        total = rows.sum(axis=1, keepdims=True)
        left = total > np.finfo(float).tiny
        A = np.where(left, rows / np.where(total > 0, total, 1), self.transitions)
        A = np.where(A < NEVER, 0.0, A)
        first = np.where(self.start > 0, starts, 0.0)
        return Chain(first / first.sum(), A / A.sum(axis=1, keepdims=True))

    def log_prior(self, prior: Vector | None) -> float:
        """Return Σ prior · ln A, up to a constant: what a Dirichlet prior adds."""
        if prior is None:
            return 0.0
        with np.errstate(invalid="ignore"):
            return float(np.sum(np.where(prior > 0, prior * self.log_transitions, 0.0)))


# --- Sums over all paths of a chain, as a banded triangular system -------------------------------

PIECE = 128
"""Steps after which sums over paths are scaled to 1 again."""

LARGEST_DRIFT = 1e200
"""Scale that sums over paths may reach between, or its inverse."""

MOST_BAND = 2**23
"""Entries of a band."""


class Band:
    """α_t(j) = b_t(j) Σ_i α_{t−1}(i) A_ij of all sequences as one system Lα = e, and Lᵀβ = e.

    Every step is divided by c_t, the density of a row given the one before under rough posteriors:
    so α stays near 1 over many steps. All terms are positive: nothing cancels. What has left the
    range of float64 is found afterwards, and methods return None for it.

    Parameters
    ----------
    chain : Chain
    log_b : array of shape (T, S)
    firsts : array of shape (m,)
        First row of every sequence.
    piece : int
        Rows that have one scale.
    """

    def __init__(self, chain: Chain, log_b: Vector, firsts: Whole, piece: int = PIECE) -> None:
        T, S = log_b.shape
        self.piece = piece
        self.chain, self.firsts, self.lasts = chain, firsts, np.append(firsts[1:], T) - 1
        A, top = chain.transitions, np.maximum.reduce(log_b, axis=1)
        b = np.exp(log_b - top[:, None])
        c = np.add.reduce(b, axis=1)
        rough = b[:-1] / c[:-1, None]
        c[1:] = np.add.reduce(np.dot(rough, A) * b[1:], axis=1)
        c[firsts] = np.dot(b[firsts], chain.start)
        b /= c[:, None]
        self.b, self.top, self.logs = b, top, np.log(c)
        links = np.zeros((T, S, 2 * S))
        for i in range(S):
            np.multiply(b[1:], -A[i], out=links[:-1, i, S - i : 2 * S - i])
        if len(firsts) > 1:
            links[firsts[1:] - 1] = 0.0
        self.band = links.reshape(T * S, 2 * S).T  # column by column, as BLAS wants it

    @classmethod
    def of(cls, chain: Chain, log_b: Vector, lengths: Lengths, piece: int = PIECE) -> Band | None:
        """Return the system of sequences; None where it would be large, or not finite."""
        T, S = log_b.shape
        if 2 * T * S * S > MOST_BAND:
            return None
        ends = np.cumsum(np.asarray(lengths, dtype=np.int64))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            band = cls(chain, log_b, np.append(0, ends[:-1]), piece)
        held = np.isfinite(band.logs).all() and np.isfinite(band.top).all()
        return band if held else None

    def _held(self, x: Vector) -> bool:
        """Return True if nothing that matters has left the range of float64.

        Where every transition is possible, a term lost is nothing beside the others; where some are
        not, a state may be reachable only from unlikely ones, and nothing may be lost.
        """
        total = np.add.reduce(x, axis=1)
        if not (total.min() > 1 / LARGEST_DRIFT and total.max() < LARGEST_DRIFT):
            return False
        safe = float(self.chain.transitions.min()) >= SAFE_TRANSITION
        return safe or bool(x.min() > 1 / LARGEST_DRIFT)

    def forward(self) -> Vector | None:
        """Return α, (T, S), in pieces whose scales differ; None where it is lost."""
        T, S = self.b.shape
        alpha, A, edge = np.zeros((T, S)), self.chain.transitions, 2 * S - 1
        alpha[self.firsts] = self.chain.start * self.b[self.firsts]
        flat, self.scales = alpha.reshape(-1), np.zeros(T)
        for at in range(0, T, self.piece):
            end = min(at + self.piece, T)
            if at and not alpha[at].any():  # its sequence began in an earlier piece
                before = alpha[at - 1]
                size = np.add.reduce(before)
                if not 1 / LARGEST_DRIFT < size < LARGEST_DRIFT:
                    return None
                self.scales[at] = np.log(size)
                alpha[at] = np.dot(before / size, A) * self.b[at]
            some = slice(at * S, end * S)
            flat[some] = blas.dtbsv(edge, self.band[:, some], flat[some], lower=1, diag=1)
        if not self._held(alpha):
            return None
        steps = np.add.reduceat(self.logs + self.scales, self.firsts)
        steps += np.log(np.add.reduce(alpha[self.lasts], axis=1))
        self.loglikelihoods = np.add.reduceat(self.top, self.firsts) + steps
        return alpha

    def backward(self) -> Vector | None:
        """Return β, (T, S), in pieces whose scales differ; None where it is lost."""
        T, S = self.b.shape
        beta, A, edge = np.zeros((T, S)), self.chain.transitions, 2 * S - 1
        beta[self.lasts] = 1.0
        flat = beta.reshape(-1)
        for at in range((T - 1) // self.piece * self.piece, -1, -self.piece):
            end = min(at + self.piece, T)
            if end < T and not beta[end - 1].any():
                after = beta[end]
                size = np.add.reduce(after)
                if not 1 / LARGEST_DRIFT < size < LARGEST_DRIFT:
                    return None
                beta[end - 1] = np.dot(A, self.b[end] * after / size)
            some = slice(at * S, end * S)
            flat[some] = blas.dtbsv(edge, self.band[:, some], flat[some], lower=1, trans=1, diag=1)
        return beta if self._held(beta) else None

    def smooth(self) -> Smoothed | None:
        """Return what the sequences tell about the states; None where something is lost."""
        alpha = self.forward()
        beta = None if alpha is None else self.backward()
        if alpha is None or beta is None:
            return None
        states, A, firsts = alpha * beta, self.chain.transitions, self.firsts
        total = np.add.reduce(states, axis=1)
        if not total.min() > 1 / LARGEST_DRIFT:
            return None
        states /= total[:, None]
        ahead = self.b[1:] * beta[1:]
        norm = np.add.reduce(np.dot(alpha[:-1], A) * ahead, axis=1)
        norm[firsts[1:] - 1] = np.inf  # no step from one sequence to the next
        if not norm.min(initial=1.0) > 1 / LARGEST_DRIFT:
            return None
        counts = A * np.dot(alpha[:-1].T, ahead / norm[:, None])
        return Smoothed(states, np.add.reduce(states[firsts], axis=0), counts, self.loglikelihoods)


# --- Sums over all paths of a chain, many steps at a time ---------------------------------------

UNCUT = 200
"""Sequences up to this length stay in one piece."""

LOWEST = -1e300
"""What stands for −∞ where it is subtracted."""

SAFE_TRANSITION = 1e-100
"""Where no transition is less likely, a term too small for float64 is too small to matter."""

FLOAT_RANGE = 700.0
"""Nats between two terms of a sum of exponentials that float64 can hold both."""


class Scan:
    """One pass over all sequences: forward, and backward if asked.

    Sequences are cut into C pieces of at most L steps, and all pieces advance together. Arrays have
    the states first and the pieces last, (S, C): sums over few states then run over long rows.
    Logarithms of 0 are intended: callers ignore the warnings of division by zero.

    Parameters
    ----------
    chain : Chain
    log_b : array of shape (T, S)
    lengths : array of shape (m,)
    """

    def __init__(self, chain: Chain, log_b: Vector, lengths: Lengths) -> None:
        lengths = np.asarray(lengths, dtype=np.int64)
        ends, longest = np.cumsum(lengths), int(lengths.max())
        self.firsts, self.lasts = ends - lengths, ends - 1  # rows of every sequence
        self.L = L = longest if longest <= UNCUT else ceil(sqrt(longest))
        counts = -(-lengths // L)
        owner = np.repeat(np.arange(len(counts)), counts)
        rank = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        steps = lengths[owner] - rank * L  # left when a piece begins
        self.valid = np.arange(L)[:, None] < steps[None, :]
        self.full = np.asarray(self.valid.all(axis=1))
        self.held = np.flatnonzero(self.valid.T)  # of all C·L places, those that hold a row
        # by rank, pieces of longer sequences first: so those that precede a block of pieces of one
        # rank are a block too
        self.order = np.lexsort((-counts[owner], rank))
        self.runs = np.append(0, np.cumsum(np.bincount(rank)))
        self.first = rank == 0
        padded = np.zeros((chain.n_states, len(rank) * L))  # 0 where a piece has ended
        padded[:, self.held] = log_b.T
        pieces = padded.reshape(chain.n_states, len(rank), L).transpose(2, 0, 1)
        self.chain, self.B = chain, np.ascontiguousarray(pieces)  # (L, S, C)
        self.times = log_times(chain.transitions)

    def _joined(self, pieces: Vector) -> Vector:
        """Return (L, S, C) values in the order of the rows, (S, T)."""
        flat = pieces.transpose(1, 2, 0).reshape(pieces.shape[1], -1)
        return np.asarray(flat if self.held.size == flat.shape[1] else flat.take(self.held, axis=1))

    @cached_property
    def products(self) -> Vector:
        """What a piece does to the state it is entered in, (S to, S from, C): ln Π A diag b.

        A first piece is entered from nowhere: all its columns are alike. Pieces stand in the
        order of `order`.
        """
        B, first = self.B, self.first
        P = self.chain.log_transitions.T[:, :, None] + B[0][:, None, :]
        P[:, :, first] = (self.chain.log_start[:, None] + B[0][:, first])[:, None, :]
        for t in range(1, self.L):
            moved = self.times(P) + B[t][:, None, :]
            P = moved if self.full[t] else np.where(self.valid[t], moved, P)
        return np.ascontiguousarray(P[:, :, self.order])

    def forward(self) -> Vector:
        """Return ln α, (S, T)."""
        alpha = np.empty_like(self.B)  # not to be read where a piece has ended
        now = np.zeros_like(self.B[0]) if self.first.all() else self.times(self._entries())
        now[:, self.first] = self.chain.log_start[:, None]
        alpha[0] = now = now + self.B[0]
        for t in range(1, self.L):
            alpha[t] = now = self.times(now) + self.B[t]
        return self._joined(alpha)

    def _entries(self) -> Vector:
        """Return ln α one step before every piece, (S, C); zeros for first ones."""
        runs, ends, entries = self.runs, self.products[:, 0, :].copy(), np.zeros_like(self.B[0])
        for last, here, after in zip(runs, runs[1:], runs[2:], strict=False):
            before = ends[:, last : last + after - here]
            entries[:, self.order[here:after]] = before
            ends[:, here:after] = log_sum(self.products[:, :, here:after] + before[None], 1)
        return np.asarray(entries)

    def backward(self) -> Vector:
        """Return ln β, (S, T)."""
        times, exits = log_times(self.chain.transitions.T), self._exits()
        beta = np.empty_like(self.B)  # not to be read where a piece has ended
        beta[-1] = now = exits
        for t in range(self.L - 2, -1, -1):
            moved = times(self.B[t + 1] + now)
            beta[t] = now = moved if self.full[t + 1] else np.where(self.valid[t + 1], moved, exits)
        return self._joined(beta)

    def _exits(self) -> Vector:
        """Return ln β at the last step of every piece, (S, C)."""
        runs, ordered = self.runs, np.zeros(self.B.shape[1:])
        for k in range(len(runs) - 2, 0, -1):
            last, here, after = runs[k - 1 : k + 2]
            ahead = self.products[:, :, here:after] + ordered[:, None, here:after]
            ordered[:, last : last + after - here] = log_sum(ahead, 0)
        exits = np.empty_like(ordered)
        exits[:, self.order] = ordered
        return exits


def log_times(A: Vector) -> Times:
    """Return v ↦ ln(Aᵀe^v), a product with A; term by term where that could underflow.

    Where every transition is possible, a term lost is nothing beside the others. Where some are
    not, a state may be reachable only from unlikely ones: columns whose terms lie too far apart
    for one scale are summed term by term.
    """
    log_a, At, least = log(A), np.ascontiguousarray(A.T), float(A[A > 0].min())
    safe, reach = bool(A.min() >= SAFE_TRANSITION), FLOAT_RANGE + float(np.log(least))

    def times(v: Vector) -> Vector:  # few calls, since there are many turns
        flat, far = v.reshape(v.shape[0], -1), None
        top = np.maximum.reduce(flat, axis=0, initial=LOWEST)
        spread = flat - top
        if not safe and spread.min() < -reach:
            far = np.flatnonzero(((spread < -reach) & (spread > -np.inf)).any(axis=0))
        found: Vector = At @ np.exp(spread, out=spread)
        np.log(found, out=found)
        found += top
        if far is not None:
            found[:, far] = log_sum(log_a[:, :, None] + flat[:, None, far], 0)
        return found.reshape(v.shape)

    return times


def log_sum(terms: Vector, axis: int) -> Vector:
    """Return ln Σ e^terms; −∞ where all are."""
    top = np.maximum.reduce(terms, axis=axis, keepdims=True, initial=LOWEST)
    terms = terms - top
    total: Vector = np.add.reduce(np.exp(terms, out=terms), axis=axis)
    np.log(total, out=total)
    total += top.reshape(total.shape)
    return total


def log(p: Vector) -> Vector:
    """Return ln p, −∞ for 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p))


# --- What the scans are made into ----------------------------------------------------------------

LOST_SCALE = 1e-200
"""A sum of terms of which some are 1 is exact down to here, whatever underflows."""

BLOCK_ENTRIES = 2**20
"""Entries of (steps, S, S) arrays held at once."""


def _tops(log_b: Vector) -> Vector:
    """Return the largest of every row, (T,): sums of small numbers keep more digits beside it."""
    top: Vector = np.maximum.reduce(log_b, axis=1)
    return np.where(np.isfinite(top), top, 0.0)


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
    chain: Chain, log_b: Vector, alpha: Vector, beta: Vector, firsts: Whole
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
    lost = norm < LOST_SCALE
    V /= np.where(lost, np.inf, norm)
    counts = chain.transitions * (U @ V.T)
    far, S = np.flatnonzero(lost), chain.n_states
    for some in backend.slices(far.size, max(1, BLOCK_ENTRIES // (S * S))):
        t = far[some]
        logs = before[:, None, t] + chain.log_transitions[:, :, None] + ahead[None, :, t]
        counts += _normalised(logs.reshape(S * S, -1)).sum(axis=1).reshape(S, S)
    return counts


# --- The best path, between rows that tell their state -------------------------------------------


def _path_by_row(chain: Chain, log_b: Vector, firsts: Whole) -> Whole:
    """Return the best path, (T,), for few rows and few states."""
    A, start, rows = chain.log_transitions.tolist(), chain.log_start.tolist(), log_b.tolist()
    best, path = _best_of_two if len(start) == 2 else _best_of_few, list[int]()
    for first, end in pairwise([*firsts.tolist(), len(rows)]):
        path += best(start, A, rows[first:end])
    return np.array(path, dtype=np.int64)


def _best_of_few(start: list[float], A: list[list[float]], rows: list[list[float]]) -> list[int]:
    """Return the best path of one sequence."""
    columns, states = [*map(list, zip(*A, strict=True))], range(1, len(start))
    now, came = [p + b for p, b in zip(start, rows[0], strict=True)], []
    for row in rows[1:]:
        after, pointers = [], []
        for column, b in zip(columns, row, strict=True):
            best, which = now[0] + column[0], 0
            for i in states:
                value = now[i] + column[i]
                if value > best:
                    best, which = value, i
            after.append(best + b)
            pointers.append(which)
        now = after
        came.append(pointers)
    path = [now.index(max(now))]
    for pointers in reversed(came):
        path.append(pointers[path[-1]])
    return path[::-1]


def _best_of_two(start: list[float], A: list[list[float]], rows: list[list[float]]) -> list[int]:
    """Return the best path of one sequence through two states: the same, without inner loops."""
    (stay, leave), (enter, remain) = A
    x, y, came = start[0] + rows[0][0], start[1] + rows[0][1], []
    for u, v in rows[1:]:
        a, b, c, d = x + stay, y + enter, x + leave, y + remain
        came.append((b > a, d > c))
        x, y = (b if b > a else a) + u, (d if d > c else c) + v
    path = [int(y > x)]
    for pointers in reversed(came):
        path.append(pointers[path[-1]])
    return path[::-1]


def _margins(chain: Chain, *, first: bool = False, last: bool = False) -> Vector:
    """Return how much likelier a row must be in state j than in k to be in j in any case, (S, S).

    R_jk = max_p ln(A_pk/A_pj) + max_n ln(A_kn/A_jn): the most that states before and after can
    have against j. The first row of a sequence has the start before it, the last has nothing after.
    """
    A = chain.log_transitions
    before = chain.log_start[None] if first else A
    with np.errstate(invalid="ignore"):
        into = before[:, None, :] - before[:, :, None]  # (p, j, k)
        out = A[None, :, :] - A[:, None, :]  # (j, k, n)
    into = np.where(np.isnan(into), -np.inf, into).max(axis=0)
    out = np.where(np.isnan(out), -np.inf, out).max(axis=2)
    with np.errstate(invalid="ignore"):
        found = into if last else into + out
    found = np.where(np.isnan(found), np.inf, found)
    np.fill_diagonal(found, -np.inf)
    return np.asarray(found)


def _certain(log_b: Vector, margins: Vector) -> Whole:
    """Return the state that every row is in whatever the others are, (T,); −1 where none is."""
    T, S = log_b.shape
    B, found = np.ascontiguousarray(log_b.T), np.full(T, -1, dtype=np.int64)
    for j in range(S):
        sure = np.ones(T, dtype=bool)
        for k in range(S):
            if k != j:
                sure &= B[j] - B[k] > margins[j, k]
        found[sure] = j
    return found


def _path_between_pins(
    chain: Chain, log_b: Vector, firsts: Whole, lasts: Whole, long_stretch: float = LONG_STRETCH
) -> Whole | None:
    """Return the best path, (T,): rows that are certain, and all stretches between them at once.

    None if some stretch is so long that one row after another is faster.
    """
    (T, S), A = log_b.shape, chain.log_transitions
    with np.errstate(invalid="ignore"):
        inside, first, last = chain.margins
        path = _certain(log_b, inside)
        path[firsts] = _certain(log_b[firsts], first)
        path[lasts] = _certain(log_b[lasts], last)
        path[firsts[firsts == lasts]] = -1  # one row has both ends
    open_ = path < 0
    begins = open_.copy()
    begins[1:] &= ~open_[:-1]
    begins[firsts] = open_[firsts]
    stops = open_.copy()
    stops[:-1] &= ~open_[1:]
    stops[lasts] = open_[lasts]
    begin, stop = np.flatnonzero(begins), np.flatnonzero(stops)
    if not begin.size:
        return path
    length = stop - begin + 1
    longest = int(length.max())
    if longest > long_stretch * sqrt(T):
        return None
    order = np.argsort(-length, kind="stable")  # long ones first: those under way are a run
    begin, stop, length = begin[order], stop[order], length[order]
    going = np.searchsorted(-length, -np.arange(1, longest + 1), side="right")
    edge = np.zeros(T, dtype=bool)
    edge[firsts] = True
    head = edge[begin]
    now = np.where(head[:, None], chain.log_start, A[path[np.maximum(begin - 1, 0)]])
    now = now + log_b[begin]
    came = np.empty((longest, len(begin), S), dtype=np.int64)
    towards, each = np.ascontiguousarray(A.T), np.arange(len(begin))
    final = now.copy()
    for t in range(1, longest):
        n = int(going[t])
        terms = now[:n, None, :] + towards  # (n, to, from)
        terms.argmax(axis=2, out=came[t, :n])
        now = np.maximum.reduce(terms, axis=2)
        now += log_b[begin[:n] + t]
        final[:n] = now
    edge[firsts] = False
    edge[lasts] = True
    tail = edge[stop]
    final = final + np.where(tail[:, None], 0.0, towards[path[np.minimum(stop + 1, T - 1)]])
    state = final.argmax(axis=1)
    path[stop] = state
    for t in range(longest - 1, 0, -1):
        n = int(going[t])
        # a stretch is entered at its own last step
        state[:n] = came[t, each[:n], state[:n]]
        path[begin[:n] + t - 1] = state[:n]
    return path


def refuse_impossible(logs: Vector) -> None:
    """Raise if some sequence has no path."""
    bad = np.flatnonzero(~np.isfinite(logs))
    if bad.size:
        raise DegenerateError(
            f"sequence {int(bad[0])} has probability zero under the chain: no path leads through "
            "it. Allow the transitions that it needs (topology='ergodic')."
        )
