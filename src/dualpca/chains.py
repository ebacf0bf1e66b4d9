"""Hidden Markov chains: filtering, smoothing, expected transitions and Viterbi's path (MATH 10).

Everything stays in logarithms, so nothing underflows, however long a sequence is (`scans.py` says
how that is fast). A chain is small beside the rows that it explains: it lives on the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dualpca import _array
from dualpca.errors import DegenerateError, expected
from dualpca.scans import Run, Vector, log

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

    start: Vector  # (S,)
    transitions: Vector  # (S, S)

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
    (MATH 10.1; Rabiner 1989, Eqs. 20, 25, 27, 37). O(TS²) for whole sequences, O(TS³) where
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
    for some in _array.slices(far.size, max(1, BLOCK // (S * S))):
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
    for rows in _array.slices(T, max(1, BLOCK // (S * S))):
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


def update(counts: Smoothed, chain: Chain, prior: Vector | None = None) -> Chain:
    """Return the chain of largest expected log-probability: counts (and the prior's) as shares.

    A Dirichlet prior with pseudo-counts (S, S) on transitions, as in a sticky chain. Zeros stay
    zeros. A state that is never left keeps its row: nothing speaks against it.
    """
    allowed = chain.transitions > 0
    pseudo = counts.transitions if prior is None else counts.transitions + prior
    rows = np.where(allowed, pseudo, 0.0)
    total = rows.sum(axis=1, keepdims=True)
    A = np.where(
        total > np.finfo(float).tiny, rows / np.where(total > 0, total, 1), chain.transitions
    )
    A = np.where(A < NEVER, 0.0, A)
    first = np.where(chain.start > 0, counts.starts, 0.0)
    return Chain(first / first.sum(), A / A.sum(axis=1, keepdims=True))


def log_prior(chain: Chain, prior: Vector | None) -> float:
    """Return Σ prior · ln A, up to a constant: what a Dirichlet prior adds to the likelihood."""
    if prior is None:
        return 0.0
    with np.errstate(invalid="ignore"):
        return float(np.sum(np.where(prior > 0, prior * chain.log_transitions, 0.0)))
