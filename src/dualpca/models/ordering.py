"""Levels that have an order, but not the one that matters to other columns (theory 15).

An ordinal column is a monotone function of one coordinate. Months have an order, but July is warmer
than both May and September: as a nominal column, with a coordinate for every level, it says so.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
from scipy import special

from dualpca.data import Host
from dualpca.gaussian.truncated import truncated_moments
from dualpca.models.copula import (
    CopulaFactors,
    CopulaRequest,
    Hidden,
    LatentRows,
    hidden_folds,
    hidden_scores,
)
from dualpca.models.margins import Margin

SUSPICION = 0.01
"""Level of the test by which a column is looked at further."""


def is_out_of_order(
    factors: CopulaFactors,
    rows: LatentRows,
    column: int,
    codes: Host,
    margin: Margin,
    request: CopulaRequest,
    weights: Host | None = None,
) -> bool:
    """Return True if a column of ordered levels is better told by its levels without their order.

    It is suspected where the latents of the rest of the row, averaged over the rows of each level,
    are not on a line as order alone puts them (a likelihood ratio, at `SUSPICION`). It is out of
    order if hidden entries, its own and those of others, are then predicted better without the
    order, by more than a standard error over the folds.

    Parameters
    ----------
    factors : CopulaFactors
        Fitted to the rows.
    rows : LatentRows
    column : int
        Number of the scalar coordinate.
    codes : array of shape (n,)
        Levels of the column; −1 where missing.
    margin : Margin
    request : CopulaRequest
    weights : array of shape (n,), optional

    Notes
    -----
    O(nDq²) for the suspicion, on the rows that a choice of q looks at; ten fits for a suspect.
    """
    if np.count_nonzero(margin.masses) < 3 or factors.q == 0:
        return False
    free, weights, folds = hidden_folds(_as_levels(rows, column, codes, margin), weights)
    if not _bends(factors, free, column, margin, weights):
        return False
    held = _as_intervals(free, margin)
    held_folds: list[Hidden] = [
        (np.column_stack([scalars, levels[:, -1]]), levels[:, :-1]) for scalars, levels in folds
    ]
    edges = pairwise(np.cumsum((0, *factors.sizes)))
    shares = tuple(np.asarray(factors.frequencies)[a:b] for a, b in edges)
    own = np.maximum(margin.masses, 1e-300)
    without = hidden_scores(free, (*shares, own), request, weights, folds)
    gain = [one.loglikelihood for one in without]
    ordered = hidden_scores(held, shares, request, weights, held_folds)
    gain = [a - one.loglikelihood for a, one in zip(gain, ordered, strict=True)]
    error = np.std(gain, ddof=1) / math.sqrt(len(gain)) if len(gain) > 1 else math.inf
    return bool(np.mean(gain) > error)


def _as_levels(rows: LatentRows, column: int, codes: Host, margin: Margin) -> LatentRows:
    """Return rows with a scalar coordinate as a nominal column, the last one."""
    return LatentRows(
        np.delete(rows.low, column, axis=1),
        np.delete(rows.high, column, axis=1),
        np.column_stack([rows.levels, codes]),
        (*rows.sizes, len(margin.masses)),
    )


def _as_intervals(rows: LatentRows, margin: Margin) -> LatentRows:
    """Return rows with their last nominal column as the last scalar coordinate."""
    codes, cuts = rows.levels[:, -1], margin.cuts
    known = codes >= 0
    return LatentRows(
        np.column_stack([rows.low, np.where(known, cuts[codes], -np.inf)]),
        np.column_stack([rows.high, np.where(known, cuts[codes + 1], np.inf)]),
        rows.levels[:, :-1],
        rows.sizes[:-1],
    )


def _bends(
    factors: CopulaFactors, rows: LatentRows, column: int, margin: Margin, weights: Host | None
) -> bool:
    """Return True if the latents of the levels are not on a line, but for chance.

    `rows` have the column as their last nominal one.
    """
    rest = replace(
        factors,
        W=np.delete(np.asarray(factors.W), column, axis=0),
        psi=np.delete(np.asarray(factors.psi), column),
    )
    codes = rows.levels[:, -1]
    others = LatentRows(rows.low, rows.high, rows.levels[:, :-1], rows.sizes[:-1])
    known = codes >= 0
    t = rest.posterior(others.take(known))[0]
    w = np.ones(known.sum()) if weights is None else np.asarray(weights)[known]
    some = np.flatnonzero(np.bincount(codes[known], w, len(margin.masses)))
    levels = (codes[known, None] == some).astype(np.float64)
    cuts = margin.cuts
    line = levels @ truncated_moments(cuts[some], cuts[some + 1]).mean
    straight = _log_spread(t, np.column_stack([np.ones_like(line), line]), w)
    gain = float(w.sum()) * (straight - _log_spread(t, levels, w))
    return bool(gain > special.chdtri(factors.q * (some.size - 2), SUSPICION))


def _log_spread(t: Host, by: Host, w: Host) -> float:
    """Return ln|S| of what a regression of t, (n, q), leaves."""
    root = np.sqrt(w)[:, None]
    left = root * (t - by @ np.linalg.lstsq(root * by, root * t)[0])
    S = left.T @ left / w.sum()
    return float(np.linalg.slogdet(S + 1e-9 * np.trace(S) * np.eye(len(S)))[1])
