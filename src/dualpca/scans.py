"""Sums and maxima over all paths of a chain, many steps at a time (MATH 10).

Sequences are cut into pieces that move together: T steps take about 3√T turns, since what a piece
does to any state it may be entered in is an S×S matrix, and those compose. All in logarithms.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import ceil, sqrt
from typing import Any

import numpy as np

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
        self.owner = np.repeat(np.arange(len(counts)), counts)
        self.rank = np.arange(len(self.owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        begin = (self.ends - self.lengths)[self.owner] + self.rank * self.L
        self.rows = begin[None, :] + np.arange(self.L)[:, None]
        self.valid = self.rows < self.ends[self.owner][None, :]
        self.rows = np.where(self.valid, self.rows, 0)

    @property
    def firsts(self) -> np.ndarray[Any, Any]:
        """First row of every sequence."""
        return self.ends - self.lengths

    @property
    def lasts(self) -> np.ndarray[Any, Any]:
        """Last row of every sequence."""
        return self.ends - 1

    @property
    def n_ranks(self) -> int:
        """Number of pieces of the longest sequence."""
        return int(self.rank.max()) + 1


class Run:
    """One pass over all sequences: forward, and backward if asked.

    Arrays have the states first and the pieces last, (S, C): sums over few states then run over
    long rows. Logarithms of 0 are meant: whoever runs this ignores division by zero.

    Parameters
    ----------
    log_start : array of shape (S,)
    A : array of shape (S, S)
    log_b : array of shape (T, S)
    lengths : array of shape (m,)
    best : bool
        The best path to every state instead of the sum over all paths.
    """

    def __init__(
        self, log_start: Vector, A: Vector, log_b: Vector, lengths: Any, *, best: bool = False
    ) -> None:
        self.log_start, self.A, self.log_a = log_start, A, log(A)
        self.times = best_times(self.log_a) if best else log_times(A)
        self.join, self.cut = maximum if best else log_sum, Pieces(lengths)
        B = np.where(self.cut.valid[:, :, None], log_b[self.cut.rows], 0.0)
        self.B = np.ascontiguousarray(B.transpose(0, 2, 1))  # (L, S, C)
        self.by_rank = [np.flatnonzero(self.cut.rank == k) for k in range(self.cut.n_ranks)]

    def together(self, parts: Vector) -> Vector:
        """Return (L, S, C) values in the order of the rows, (T, S)."""
        found = np.empty((int(self.cut.ends[-1]), parts.shape[1]))
        valid = self.cut.valid
        found[self.cut.rows[valid]] = parts.transpose(0, 2, 1)[valid]
        return found

    @cached_property
    def products(self) -> Vector:
        """What a piece does to the state it is entered in, (S to, S from, C): ln Π A diag b.

        A first piece is entered from nowhere: all its columns are alike.
        """
        B, valid = self.B, self.cut.valid
        P = self.log_a.T[:, :, None] + B[0][:, None, :]
        first = self.by_rank[0]
        P[:, :, first] = (self.log_start[:, None] + B[0][:, first])[:, None, :]
        for t in range(1, self.cut.L):
            moved = self.times(P) + B[t][:, None, :]
            P = moved if valid[t].all() else np.where(valid[t], moved, P)
        return np.asarray(P)

    @cached_property
    def alpha(self) -> Vector:
        """Logarithm of α, (L, S, C); not to be read where a piece has ended."""
        alpha, first = np.empty_like(self.B), self.by_rank[0]
        now = self.times(self._entries()) if self.cut.n_ranks > 1 else np.zeros_like(self.B[0])
        now[:, first] = self.log_start[:, None]
        alpha[0] = now = now + self.B[0]
        for t in range(1, self.cut.L):
            alpha[t] = now = self.times(now) + self.B[t]
        return alpha

    def _entries(self) -> Vector:
        """Return ln α one step before every piece, (S, C); zeros for first ones."""
        entries, ends = np.zeros_like(self.B[0]), self.products[:, 0, :].copy()
        for pieces in self.by_rank[1:]:
            entries[:, pieces] = before = ends[:, pieces - 1]
            ends[:, pieces] = self.join(self.products[:, :, pieces] + before[None, :, :], 1)
        return np.asarray(entries)

    @cached_property
    def beta(self) -> Vector:
        """Logarithm of β, (L, S, C); not to be read where a piece has ended."""
        times, exits, valid = log_times(self.A.T), self._exits(), self.cut.valid
        beta = np.empty_like(self.B)
        beta[-1] = now = exits
        for t in range(self.cut.L - 2, -1, -1):
            moved = times(self.B[t + 1] + now)
            beta[t] = now = moved if valid[t + 1].all() else np.where(valid[t + 1], moved, exits)
        return beta

    def _exits(self) -> Vector:
        """Return ln β at the last step of every piece, (S, C)."""
        exits = np.zeros(self.B.shape[1:])
        for pieces in self.by_rank[:0:-1]:
            after = self.products[:, :, pieces] + exits[:, None, pieces]
            exits[:, pieces - 1] = self.join(after, 0)
        return exits

    def loglikelihoods(self, alpha: Vector) -> Vector:
        """Return ln Σ_s α_T(s) of every sequence, (m,)."""
        return log_sum(alpha[self.cut.lasts], 1)


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
        top = np.maximum(flat.max(axis=0), LOWEST)
        spread = flat - top
        found = At @ np.exp(spread)
        np.log(found, out=found)
        found += top
        if not safe and spread.min() < -reach:
            far = np.flatnonzero(((spread < -reach) & (spread > -np.inf)).any(axis=0))
            found[:, far] = log_sum(log_a[:, :, None] + flat[:, None, far], 0)
        return np.asarray(found.reshape(v.shape))

    return times


def best_times(log_a: Vector) -> Times:
    """Return v ↦ max_i v_i + ln A_ij."""

    def times(v: Vector) -> Vector:
        flat = v.reshape(v.shape[0], -1)
        return np.asarray(np.max(log_a[:, :, None] + flat[:, None, :], axis=0).reshape(v.shape))

    return times


def log_sum(terms: Vector, axis: int) -> Vector:
    """Return ln Σ e^terms; −∞ where all are."""
    top = np.maximum(terms.max(axis=axis, keepdims=True), LOWEST)
    total = np.exp(terms - top).sum(axis=axis)
    return np.asarray(np.log(total) + top.reshape(total.shape))


def maximum(terms: Vector, axis: int) -> Vector:
    """Return the largest of the terms."""
    return np.asarray(np.max(terms, axis=axis))


def log(p: Vector) -> Vector:
    """Return ln p, −∞ for 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p))
