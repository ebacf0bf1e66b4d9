"""Two choices by how hidden entries are predicted: how many latents, and levels without order.

An ordinal column is a monotone function of one coordinate. Months have an order, but July is warmer
than both May and September: as a nominal column, with a coordinate for every level, it says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy import special

from dualpca.arrays import Tick
from dualpca.data import FOLDS, Host
from dualpca.errors import DegenerateError
from dualpca.gaussian import Score, Selection, best_candidate, simplest, summary
from dualpca.gaussian.truncated import log_probability, truncated_moments
from dualpca.models.copula.fitting import CopulaRequest, fit_copula
from dualpca.models.copula.law import CopulaFactors
from dualpca.models.copula.propagation import LOOSEST_EP, LatentRows
from dualpca.models.driver import try_candidates, warn_interrupted

# --- How many latents: hidden entries are predicted ----------------------------------------------

SELECTION_ROWS = 2000
"""Rows that a choice of q looks at, of more."""

SELECTION_TOLERANCE, SELECTION_STEPS = 1e-2, 30
"""How far the fits of a choice go: the scores of smaller steps are the same."""

NO_BETTER = 2
"""Candidates that gain nothing on smaller ones, but for chance, before larger ones are left out."""

CANDIDATES = (1, 2, 3, 4, 6, 8, 11, 15, 20)
"""Numbers of latents that are tried: beyond four, one more or less predicts the same."""

SELECTION_SEED = 0
"""Of the folds."""


class ChosenLatents(NamedTuple):
    """A number of latents, and how it was found."""

    selection: Selection
    scores: list[Score]
    laws: list[CopulaFactors]


def choose_latents(
    rows: LatentRows,
    frequencies: tuple[Host, ...],
    request: CopulaRequest,
    weights: Host | None = None,
    first: int = 1,
    most: int = CANDIDATES[-1],
    *,
    filling: bool = False,
) -> ChosenLatents:
    """Choose q from first to most by hidden entries, predicted from what their rows still show.

    Known entries are dealt to five folds; the score is ln of the probability (of the density of z
    where its value is known) that the others give to a hidden entry, relative to its column alone.
    The smallest q that is as good as the best is taken, within one standard error; with `filling`
    the best one. The choice ends after two candidates that gain less than that on smaller ones. The
    fit of a fold begins where that with fewer latents has ended. Up to `SELECTION_ROWS` rows are
    looked at.

    Returns
    -------
    selection : Selection
        `q2` is the share of the squares of hidden coordinates (of indicators of levels) that is
        predicted.
    scores : list of Score
        Of every fold with the number that is chosen.
    laws : list of CopulaFactors
        Fitted without the entries of every fold, with that number.
    """
    rows, weights, folds, _ = hidden_folds(rows, weights)
    if len(folds) < 2:
        raise DegenerateError(
            f"no column has the {2 * FOLDS} values needed to hide some of them. "
            "Give n_components as an int."
        )
    D = int(rows.low.shape[1]) + sum(K - 1 for K in rows.sizes)
    most = max(1, min(most, D - 1, rows.n - 1))
    tried = [q for q in CANDIDATES if first <= q < most - q // 5] + [most]

    begin: dict[int, CopulaFactors] = {}
    laws: list[list[CopulaFactors]] = []

    def scores_of(q: int, tick: Tick) -> list[Score]:
        asked, found = replace(request, n_components=q), []
        for score in hidden_scores(rows, frequencies, asked, weights, folds, begin):
            found.append(score)
            tick(f"{q} components")
        laws.append(list(begin.values()))
        return found

    scores, interrupted = try_candidates(
        tried,
        scores_of,
        label="cross-validation: fit",
        total=len(tried) * len(folds),
        stop=_is_enough,
    )
    if interrupted:
        warn_interrupted(f"q = {tried[0]} to {tried[len(scores) - 1]}")
    chosen = best_candidate(scores) if filling else simplest(scores)
    found = summary(scores, 0, tried[chosen], "entry")
    found = replace(found, candidates=np.array(tried)[found.candidates])
    return ChosenLatents(found, scores[chosen], laws[chosen])


Hidden = tuple[Host, Host]
"""Masks of the entries that one fold hides: (n, s) and (n, c)."""


class Held(NamedTuple):
    """The rows that a choice looks at, and what each fold hides of them."""

    rows: LatentRows
    weights: Host | None
    folds: list[Hidden]
    kept: Host  # numbers of the rows among all


def hidden_folds(rows: LatentRows, weights: Host | None) -> Held:
    """Return the rows that a choice looks at, their weights, and what each fold hides of them."""
    rng, kept = np.random.default_rng(SELECTION_SEED), np.arange(rows.n)
    if rows.n > SELECTION_ROWS:
        kept = np.sort(rng.choice(rows.n, SELECTION_ROWS, replace=False))
        rows, weights = rows.take(kept), None if weights is None else weights[kept]
    dealt = []  # the fold of every entry, −1 in columns that are rarely known
    for known in rows.known():
        often = known.sum(axis=0) >= 2 * FOLDS
        dealt.append(np.where(known & often, rng.integers(FOLDS, size=known.shape), -1))
    folds = [(dealt[0] == k, dealt[1] == k) for k in range(FOLDS)]
    folds = [pair for pair in folds if pair[0].any() or pair[1].any()]
    return Held(rows, weights, folds, kept)


def hidden_scores(
    rows: LatentRows,
    frequencies: tuple[Host, ...],
    request: CopulaRequest,
    weights: Host | None,
    folds: list[Hidden],
    begin: dict[int, CopulaFactors] | None = None,
) -> Iterator[Score]:
    """Yield for every fold how a fit without its entries predicts them.

    `begin` has where the fit of a fold starts, if not at the span of its rows; what is found there
    takes its place, for more latents.
    """
    w = np.ones(rows.n) if weights is None else np.asarray(weights, dtype=np.float64)
    asked = replace(request, watch=None, tol=SELECTION_TOLERANCE, max_iter=SELECTION_STEPS)
    begin = {} if begin is None else begin
    for k, hidden in enumerate(folds):
        shown = rows.hiding(*hidden)
        factors = fit_copula(shown, frequencies, replace(asked, begin=begin.get(k)), weights)
        if factors.history is not None and factors.history.interrupted:
            raise KeyboardInterrupt
        begin[k] = factors
        yield _hidden_score(factors, rows, shown, hidden, w)


def _is_enough(scores: list[list[Score]]) -> bool:
    """Return True if the last candidates gain nothing on smaller ones, but for chance."""
    if len(scores) <= NO_BETTER:
        return False
    before, last = scores[:-NO_BETTER], scores[-NO_BETTER:]
    pairs = zip(last[best_candidate(last)], before[best_candidate(before)], strict=True)
    gain = [a.loglikelihood - b.loglikelihood for a, b in pairs]
    return bool(np.mean(gain) <= np.std(gain, ddof=1) / math.sqrt(len(gain)))


def _hidden_score(
    factors: CopulaFactors,
    rows: LatentRows,
    shown: LatentRows,
    hidden: Hidden,
    w: Host,
) -> Score:
    """Return how hidden entries are predicted."""
    law, (i, j) = factors.conditional(shown, hidden[1], LOOSEST_EP), np.nonzero(hidden[0])
    low, high, mean, variance = (A[i, j] for A in (rows.low, rows.high, law.mean, law.variance))
    value, centre, inside = np.zeros(low.size), low.copy(), low < high
    deviation = np.sqrt(variance)
    a, b = low[inside], high[inside]
    m, sd = mean[inside], deviation[inside]
    alone = truncated_moments(a, b)
    centre[inside] = alone.mean
    value[inside] = log_probability((a - m) / sd, (b - m) / sd) - alone.log_mass
    z, m, v = low[~inside], mean[~inside], variance[~inside]
    value[~inside] = -0.5 * (np.log(v) + (z - m) ** 2 / v - z * z)
    weight = w[i]
    total = [weight @ value, weight @ (centre - mean) ** 2, weight @ centre**2, weight.sum()]
    for c, part in enumerate(factors.parts):
        (here,) = np.nonzero(hidden[1][:, c])
        f, p, k = factors.frequencies[part], law.probabilities[c], rows.levels[here, c]
        truth, own = np.eye(f.size)[k], w[here]
        floor = np.finfo(np.float64).tiny
        chance = np.maximum(p[np.arange(k.size), k], floor) / np.maximum(f[k], floor)
        total[0] += own @ np.log(chance)
        total[1] += own @ ((truth - p) ** 2).sum(axis=1)
        total[2] += own @ ((truth - f) ** 2).sum(axis=1)
        total[3] += own.sum()
    return Score(*map(float, total))


# --- Levels that have an order, but not the one that matters to other columns ---------------------

SUSPICION = 0.01
"""Level of the test by which a column is looked at further."""

FIRST_FOLDS = 2
"""Folds after which a suspect that has gained nothing in them together is let go."""


def is_out_of_order(
    factors: CopulaFactors,
    rows: LatentRows,
    column: int,
    cuts: Host,
    ordered: list[Score],
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
    cuts : array of shape (K + 1,)
        Ends of the levels' intervals of the coordinate, from −∞ to ∞.
    ordered : list of Score
        How hidden entries are predicted by order, from `choose_latents`.
    request : CopulaRequest
    weights : array of shape (n,), optional

    Notes
    -----
    O(nDq²) for the suspicion, on the rows that a choice of q looks at; five fits for a suspect.
    """
    shares = np.diff(special.ndtr(cuts))
    if np.count_nonzero(shares) < 3 or factors.q == 0:
        return False
    held, weights, folds, _ = hidden_folds(rows, weights)
    free = _as_levels(held, column, cuts)
    if not _bends(factors, free, column, cuts, weights):
        return False
    own = [
        (np.delete(scalars, column, axis=1), np.column_stack([levels, scalars[:, column]]))
        for scalars, levels in folds
    ]
    others = tuple(np.asarray(factors.frequencies)[part] for part in factors.parts)
    both, gain = (*others, np.maximum(shares, 1e-300)), []
    for a, b in zip(hidden_scores(free, both, request, weights, own), ordered, strict=True):
        gain.append(a.loglikelihood - b.loglikelihood)
        if len(gain) == FIRST_FOLDS and sum(gain) <= 0:
            return False
    error = np.std(gain, ddof=1) / math.sqrt(len(gain)) if len(gain) > 1 else math.inf
    return bool(np.mean(gain) > error)


def _as_levels(rows: LatentRows, column: int, cuts: Host) -> LatentRows:
    """Return rows with a scalar coordinate as a nominal column, the last one."""
    known, levels = rows.known()[0][:, column], np.searchsorted(cuts[1:], rows.high[:, column])
    return LatentRows(
        np.delete(rows.low, column, axis=1),
        np.delete(rows.high, column, axis=1),
        np.column_stack([rows.levels, np.where(known, levels, -1)]),
        (*rows.sizes, cuts.size - 1),
    )


def _bends(
    factors: CopulaFactors, rows: LatentRows, column: int, cuts: Host, weights: Host | None
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
    some = np.flatnonzero(np.bincount(codes[known], w, cuts.size - 1))
    levels = (codes[known, None] == some).astype(np.float64)
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
