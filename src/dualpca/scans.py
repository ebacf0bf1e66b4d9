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
