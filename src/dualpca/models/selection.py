"""How many components, from the rows themselves: predict what was held out, or permute columns.

`cross_validated` answers 'cv', 'cv-rows' and 'cv-entries'; `parallel_analysis` answers
'parallel'; where values are missing, `choose_bic` answers 'bic' and `rule_of_completed` the rules
that need no more than a spectrum, which are in `dualpca.gaussian`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from functools import reduce as fold_left
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from dualpca.arrays import Array, Tick, backend, quadratic, task
from dualpca.data import (
    FOLDS,
    SMALLEST_TRACE,
    UNLIKE,
    Columns,
    EntryFolds,
    Host,
    InMemoryTable,
    Moments,
    Table,
    block_weights,
    changed,
    fold_rows,
    join,
    numbered,
    observed_weights,
    row_folds,
    subset_columns,
)
from dualpca.errors import DegenerateError, expected
from dualpca.gaussian import LOG_2PI, Factors, free_parameters, observed, rules
from dualpca.gaussian import selection as choice
from dualpca.models import incomplete
from dualpca.models.driver import left_to_gain, maximize, try_candidates, warn_interrupted
from dualpca.operators import WIDEST, Primal, Scatter, by_columns, weighed
from dualpca.solvers import solve

Fold = tuple[Table, Columns | None, Callable[[Factors], choice.Score]]
"""Rows to fit, their columns if known, and how well a model predicts what the fold hides."""

FOLD_LIMITS: dict[str, Any] = {"tol": 1e-2, "max_iter": 100}
"""How far EM goes in a fold."""

PATH_LIMITS: dict[str, Any] = {"tol": 1e-2, "max_iter": 4}
LAST_LIMITS: dict[str, Any] = {"tol": 1e-2, "max_iter": 12}
"""The same where every q starts from the one before, and how much further those go that decide."""


def cross_validated(name: str, table: Table, most: int, *, missing: bool) -> choice.Selection:
    """Return the choice of q by held-out rows or by hidden entries.

    Parameters
    ----------
    name : {'cv', 'cv-rows', 'cv-entries'}
        'cv' is 'cv-rows' where rows are complete, and 'cv-entries' where values are missing.
    table : Table
        In memory or chunked: folds are the same.
    most : int
        Largest q.
    missing : bool
        Whether there is NaN.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 8)) + 0.3 * rng.normal(size=(300, 8))
    >>> curve = cross_validated("cv", InMemoryTable(X), 7, missing=False)
    >>> curve.chosen, curve.q2.round(2)[1:4]
    (2, array([0.64, 0.92, 0.92]))
    >>> X[rng.random(X.shape) < 0.2] = np.nan
    >>> cross_validated("cv", InMemoryTable(X), 7, missing=True).chosen
    2
    """
    if backend.is_sparse(table.like):
        raise ValueError(
            f"n_components={name!r} needs dense rows. "
            "Use a rule that reads the spectrum: 'evidence', 'bic', 'white-noise'."
        )
    if name == "cv-entries" or (name == "cv" and missing):
        return by_entries(table, most)
    return by_rows(table, most) if missing else by_complete_rows(table, most)


# --- Held-out rows, all complete: a fold is solved once, and every q scored from its spectrum ----


def by_complete_rows(table: Table, most: int) -> choice.Selection:
    """Choose among q = 0, 1, …, most by the likelihood of held-out rows, in five folds.

    Takes the smallest q that is as good as the best, as with missing values. O(ndq) in all. Chunks
    take three passes: sizes, the moments of every fold, and the scores of all folds and all q.
    Ctrl-C keeps the folds that are done.
    """
    folds = row_folds(table, incomplete.SEED)
    sizes = np.bincount(np.concatenate([*folds.values()]))

    def fit(group: Mapping[int, Primal | Scatter], tick: Tick) -> list[list[choice.Score]]:
        models = {}
        for k, operator in group.items():
            models[k] = _trained(operator, min(most, int(sizes.sum() - sizes[k]) - 1))
            tick()
        scores = table.reduce(_score_rows(folds, models, most), np.add)
        return [[choice.Score(*cell) for cell in fold] for fold in scores.tolist()]

    groups, label = _without_folds(table, folds, sizes.size), "cross-validation: fold"
    found, interrupted = try_candidates(groups, fit, label=label, total=sizes.size)
    if interrupted:
        warn_interrupted(f"{len(found)} of {sizes.size} folds")
    curve = [list(row) for row in zip(*chain.from_iterable(found), strict=True)]
    return choice.summary(curve, 0, choice.simplest(curve), "row")


def _without_folds(
    table: Table, folds: dict[int, Host], count: int
) -> Iterator[Mapping[int, Primal | Scatter]]:
    """Yield the operators of all rows but those of a fold: one by one in memory, else together."""
    if isinstance(table, InMemoryTable):
        for k in range(count):
            kept = table.taking(np.flatnonzero(folds[0] != k))
            yield {k: Primal(kept.rows, kept.weights)}
        return
    if table.d > WIDEST:
        what = f"a number for more than {WIDEST} features in chunks"
        remedy = "Every fold would gather (d, d) moments, and all their eigenvectors."
        raise ValueError(expected("n_components", what, "'cv'", remedy))

    @numbered
    def gather(rows: Host, number: int, weights: Host | None = None) -> list[Moments | None]:
        masks = [folds[number] == k for k in range(count)]
        return [
            weighed(rows[mine], None if weights is None else weights[mine]) if mine.any() else None
            for mine in masks
        ]

    def both(a: list[Moments | None], b: list[Moments | None]) -> list[Moments | None]:
        return [join(Moments.merge, one, two) for one, two in zip(a, b, strict=True)]

    found, operators = table.reduce(gather, both), {}
    for k in range(count):
        others = [one for i, one in enumerate(found) if i != k and one is not None]
        if not others:
            raise DegenerateError("one fold holds all rows of positive weight. Give n_components.")
        operators[k] = Scatter(fold_left(Moments.merge, others))
    yield operators


def _trained(operator: Primal | Scatter, most: int) -> choice.Trained:
    """Return the spectrum of the rows that were kept."""
    return choice.Trained.of(solve(operator, min(most, operator.dim)), operator.frame, operator.n)


def _score_rows(
    folds: dict[int, Host], models: dict[int, choice.Trained], most: int
) -> Callable[..., Host]:
    """Return how models without each fold predict its rows in a chunk, (folds, q, 4)."""

    @numbered
    def of(rows: Array, number: int, weights: Array | None = None) -> Host:
        table = np.zeros((len(models), most + 1, 4))
        for scores, (k, model) in zip(table, models.items(), strict=True):
            mine = np.flatnonzero(folds[number] == k)
            if mine.size:
                held = backend.to_numpy(backend.working(backend.take(rows, mine)))
                w = np.ones(mine.size) if weights is None else backend.to_numpy(weights)[mine]
                scores[:] = model.scores(held, model.frame.project(model.V, held), w, most)
        return table

    return of


# --- Held-out rows or hidden entries, with missing values: a fit of EM for each q and fold -------


def by_rows(table: Table, most: int) -> choice.Selection:
    """Choose among q = 1, 2, … by the likelihood of what held-out rows observed, in five folds.

    Takes the smallest q that is as good as the best.
    """
    incomplete.refuse_empty_columns(_columns(table).n)
    # rows that observe nothing weigh nothing
    table = changed(table, lambda rows, _, weights: (rows, observed_weights(rows, weights)))
    folds = row_folds(table, incomplete.SEED)
    count = 1 + max(int(fold.max()) for fold in folds.values())
    return best_of([_row_fold(table, folds, k) for k in range(count)], most, "row")


def _row_fold(table: Table, folds: dict[int, Host], k: int) -> Fold:
    """Return the fold that holds out some rows."""
    train, test = (fold_rows(table, folds, k, held=held) for held in (False, True))
    columns = _columns(train)
    seen = np.flatnonzero(backend.to_numpy(columns.n) > 0)  # what only held rows observe is unknown
    train, test = subset_columns(train, seen), subset_columns(test, seen)
    centre = backend.take(columns.mean, seen)

    def score(factors: Factors) -> choice.Score:
        def of(rows: Array, weights: Array | None = None) -> Host:
            return row_score(factors, rows, centre, weights)

        return choice.Score(*test.reduce(of, np.add).tolist())

    return train, None, score


def by_entries(table: Table, most: int) -> choice.Selection:
    """Choose among q = 1, 2, … by hidden entries: each is predicted from what its row still shows.

    Takes the smallest q that is as good as the best. It works for complete rows too.
    """
    columns = _columns(table)
    incomplete.refuse_empty_columns(columns.n)
    folds = EntryFolds(table, incomplete.SEED)

    @numbered
    def count(rows: Array, number: int, weights: Array | None = None) -> Host:
        xp, hides = backend.namespace(rows), (folds.hidden(rows, number, k) for k in range(FOLDS))
        return np.array([bool(xp.any(one)) for one in hides])

    kept = [int(k) for k in np.flatnonzero(table.reduce(count, np.logical_or))]
    if len(kept) < 2:
        raise DegenerateError(
            f"no column has the {2 * FOLDS} values needed to hide some of them. "
            "Give n_components as an int, or 'cv-rows'."
        )
    most = min(most, columns.rows - 1, table.d - 1)
    stacked = _stacked_folds(table, folds, kept, columns.rows)
    if stacked is not None and most >= 1:
        return _best_along(stacked, most)
    return best_of([_entry_fold(table, folds, k) for k in kept], most, "entry")


class _Stacked(NamedTuple):
    """Folds that hide entries, of a table small enough to fit all of them at once."""

    stack: incomplete.Stack
    entry: Host  # (h,), numbers of what is to be predicted among (K, d, n), fold by fold
    weight: Host  # (h,)
    truth: Host  # (h,), around the means of each fold

    @property
    def has_unlike_columns(self) -> bool:
        """True for a few columns of different units, and rows enough for all their covariances."""
        stack = self.stack
        variance = (stack.squares / stack.counts).min(axis=0)
        unlike = float(variance.max()) > UNLIKE * float(variance.min())
        return unlike and stack.d <= FULL_FEATURES and stack.n >= FULL_ROWS * stack.d

    def scores(self, guess: incomplete.Guess) -> list[choice.Score]:
        """Return how each fold's hidden entries are predicted."""
        stack, w, truth = self.stack, self.weight, self.truth
        off, variance = truth - guess.mean.ravel()[self.entry], guess.variance.ravel()[self.entry]
        density = -0.5 * (LOG_2PI + np.log(variance) + off * off / variance)
        fold = self.entry // (stack.d * stack.n)
        parts = (w * density, w * off * off, w * truth * truth, w)
        found = [np.bincount(fold, part, stack.K).tolist() for part in parts]
        return [choice.Score(*one) for one in zip(*found, strict=True)]


def _stacked_folds(table: Table, folds: EntryFolds, kept: list[int], n: int) -> _Stacked | None:
    """Return the folds as one stack, on the host; None for large tables."""
    if len(kept) * n * table.d > incomplete.MOST_ENTRIES:
        return None

    @numbered
    def gather(rows: Array, number: int, weights: Array | None = None) -> dict[int, Any]:
        hides = [backend.to_numpy(folds.hidden(rows, number, k)) for k in kept]
        w = None if weights is None else backend.to_numpy(weights)
        return {number: (backend.to_numpy(backend.working(rows)), np.stack(hides), w)}

    parts = [part for _, part in sorted(table.reduce(gather, lambda a, b: a | b).items())]
    rows, hidden = np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts], 1)
    w = None if parts[0][2] is None else np.concatenate([p[2] for p in parts])
    stack = incomplete.Stack(np.where(hidden, np.nan, rows), 1, w)
    if not stack.counts.min() > 0 or not stack.unit.min() > SMALLEST_TRACE:
        return None
    fold, column, row = np.nonzero(hidden.swapaxes(1, 2))
    entry = (fold * stack.d + column) * stack.n + row
    weight = np.ones(entry.size) if w is None else w[row]
    return _Stacked(stack, entry, weight, rows[row, column] - stack.origin[fold, column])


FULL_FEATURES, FULL_ROWS = 32, 5
"""The most features, and the fewest rows per feature, with which the largest q is tried as well."""


def _best_along(folds: _Stacked, most: int) -> choice.Selection:
    """Score q = 1, 2, … as `best_of` does, each started from the one before.

    A few steps of EM per q show where the best are; those, and the next smaller ones, then climb
    on to where steps no longer count, since what they lack might decide.

    Columns of different units have noise of different sizes, which only many components describe:
    more may be better after several that were worse. There the largest q is tried at the end.
    """
    scores: list[list[choice.Score]] = []
    reached: list[tuple[incomplete.Expected, float]] = []  # by each q, and what it has left to gain
    stack, theta = folds.stack, folds.stack.begin()

    def climb(
        stack: incomplete.Stack, theta: Host, limits: dict[str, Any], tick: Tick
    ) -> tuple[incomplete.Expected, float]:
        kept: list[incomplete.Expected] = []
        record = maximize(lambda at: stack.step(at, kept), theta, **limits)[1]
        record.raise_interrupted()
        tick(f"{stack.q} components")
        return kept[0], left_to_gain(record.loglikelihoods)

    def next_size(tick: Tick) -> None:
        nonlocal stack, theta
        stack = stack.with_components(len(scores) + 1)
        at, left = climb(stack, theta, PATH_LIMITS, tick)
        guess = stack.guess(at)
        scores.append(folds.scores(guess))
        reached.append((at, left))
        theta = guess.next

    def finish(k: int, tick: Tick) -> None:
        of_size, (at, _) = stack.with_components(k + 1), reached[k]
        reached[k] = at, 0.0
        with suppress(DegenerateError):
            at, _ = climb(of_size, of_size.pack(*at.theta), LAST_LIMITS, tick)
            scores[k] = folds.scores(of_size.guess(at))

    def largest(tick: Tick) -> None:
        full, theta = stack.leap(reached[-1][0], most)
        at, _ = climb(full, theta, FOLD_LIMITS, tick)
        last, nothing = folds.scores(full.guess(at)), choice.Score(-math.inf, *scores[0][0][1:])
        better = choice.best_candidate([*scores, last]) == len(scores)
        if better and full.q > len(scores) and full.leaves_noise(at):
            scores.extend([[nothing] * len(last)] * (full.q - 1 - len(scores)) + [last])

    def fits() -> Iterator[Callable[[Tick], None]]:
        while len(scores) < most and not (scores and choice.given_up(scores)):
            yield next_size
        while (k := _undecided(scores, [left for _, left in reached])) is not None:
            yield partial(finish, k)
        if len(scores) < most and folds.has_unlike_columns:
            yield largest

    label, run = "cross-validation: fit", lambda fit, tick: fit(tick)
    if try_candidates(fits(), run, label=label, total=most, ends=DegenerateError)[1]:
        warn_interrupted(f"q = 1 to {len(scores)}")
    tried = [k for k, row in enumerate(scores) if math.isfinite(row[0].loglikelihood)]
    best = tried[choice.simplest([scores[k] for k in tried])]
    return choice.summary(scores, 1, 1 + best, "entry")


def _undecided(scores: list[list[choice.Score]], left: list[float]) -> int | None:
    """Return a row of scores that may still decide: the one chosen, or the one before it.

    `left` is what the fits of a row have to gain in likelihood. Hidden entries, fewer than shown
    ones, gain less: a row that is worse by more than that stays so.
    """
    k = choice.simplest(scores)
    if left[k] > 0:
        return k
    if k == 0 or not left[k - 1] > 0:
        return None
    best, before = (sum(score.loglikelihood for score in row) for row in (scores[k], scores[k - 1]))
    return k - 1 if best - before <= left[k - 1] else None


def _entry_fold(table: Table, folds: EntryFolds, k: int) -> Fold:
    """Return the fold that hides some entries from every row."""
    train = folds.hide(table, k)
    columns = _columns(train)

    def score(factors: Factors) -> choice.Score:
        @numbered
        def of(rows: Array, number: int, weights: Array | None = None) -> Host:
            hidden = folds.hidden(rows, number, k)
            return hidden_score(factors, rows, hidden, columns.mean, weights)

        return choice.Score(*table.reduce(of, np.add).tolist())

    return train, columns, score


def best_of(folds: list[Fold], most: int, unit: str) -> choice.Selection:
    """Score q = 1, 2, … until three in a row are worse than the best, or one leaves no noise."""
    if most < 1:
        raise DegenerateError("one feature, or one row, leaves no choice. Give n_components.")

    def fit(q: int, tick: Tick) -> list[choice.Score]:
        scores = []
        for train, columns, score in folds:
            if train.d <= q:
                what = f"a fold observes {train.d} features, too few for {q} components."
                raise DegenerateError(what)
            rng = np.random.default_rng(incomplete.SEED)
            fit = incomplete.Fit(train, q, columns=columns, by_blocks=True)
            factors, record = incomplete.fit_incomplete(fit, rng, **FOLD_LIMITS)
            record.raise_interrupted()
            scores.append(score(factors))
            tick(f"{q} components")
        return scores

    scores, interrupted = try_candidates(
        range(1, most + 1),
        fit,
        label="cross-validation: fit",
        total=most * len(folds),
        stop=choice.given_up,
        ends=DegenerateError,
    )
    if interrupted:
        warn_interrupted(f"q = 1 to {len(scores)}")
    return choice.summary(scores, 1, 1 + choice.simplest(scores), unit)


def hidden_score(
    factors: Factors, rows: Array, hidden: Array, centre: Array, weights: Array | None = None
) -> Host:
    """Return how hidden entries are predicted from the others of their rows: a `Score`, (4,).

    Its `squares` are those of a guess by the mean alone, `centre`.
    """
    xp, total = backend.namespace(rows), np.zeros(4)
    shown = xp.where(hidden, xp.full_like(rows, math.nan), rows)
    for block, found in observed.each(factors, shown):
        mean = found.mean @ factors.W.T + factors.mu
        variance = quadratic(found.covariance, factors.W) + factors.psi
        truth, here = backend.row_block(rows, block.rows), hidden[block.rows, :]
        w = xp.astype(here, xp.float64) * block_weights(weights, block.rows, truth)[:, None]
        off, around = (xp.where(here, truth - guess, 0 * mean) for guess in (mean, centre))
        density = -0.5 * (LOG_2PI + xp.log(variance) + off * off / variance)
        parts = (density, off * off, around * around, xp.ones_like(density))
        total += [float(xp.sum(w * part)) for part in parts]
    return total


def row_score(factors: Factors, X: Array, centre: Array, weights: Array | None = None) -> Host:
    """Return how likely rows are, and how each observed entry is predicted from its row's others.

    A `Score`, (4,). x_j − E[x_j | others] = (C⁻¹r)_j / (C⁻¹)_jj over what the row observed, by
    Woodbury: C⁻¹r = Ψ⁻¹(r − Wz̄) and (C⁻¹)_jj = 1/ψ_j − w_jᵀ Cov[z] w_j / ψ_j².
    """
    xp, total = backend.namespace(X), np.zeros(4)
    for block, found in observed.each(factors, X):
        w = block_weights(weights, block.rows, block.R)[:, None]
        pull = (block.R - found.mean @ factors.W.T) / factors.psi
        hold = (1 - quadratic(found.covariance, factors.W) / factors.psi) / factors.psi
        around = block.R + (factors.mu - centre)
        press, squares = (block.mask * part * part for part in (pull / hold, around))
        parts = (found.log_density[:, None], press, squares, xp.ones_like(w))
        total += [float(xp.sum(w * part)) for part in parts]
    return total


def _columns(table: Table) -> Columns:
    return table.reduce(Columns.of, Columns.merge)


# --- Horn's parallel analysis: the same columns, permuted ----------------------------------------

MOST_PERMUTED = 2**22
"""Entries up to which columns are permuted; above, normal columns are simulated, or rows sampled.

With so many rows the two agree: a permuted column is as good as normal (Buja & Eyuboglu 1992).
"""

MOST_SAMPLED = 2**23
"""Entries of a sample of rows, where there are more of them."""

PAIRED_SIZE = 2000
"""Features up to which covariances of incomplete columns are taken pair by pair, (d, d)."""


def parallel_analysis(table: Table, *, missing: bool, moments: Moments | None = None) -> int:
    """Return the number of components by Horn's parallel analysis: columns permuted.

    Every column is permuted on its own, missing values staying where they are, which keeps the
    columns and destroys their correlations. An eigenvalue of the correlation matrix counts if it
    is larger than the 95th percentile of those of the same rank, up to the first that is not.
    Units do not matter.

    Complete rows that are weighted, sparse, chunked, or too many to permute are compared with
    simulated columns; where that would take too long as well, a sample of them is permuted.

    Parameters
    ----------
    table : Table
    missing : bool
        Whether there is NaN. Correlations are then those of pairwise deletion, of the table and of
        the permuted ones alike (as `psych::fa.parallel` has them); a pair of columns that no row
        observes together counts as uncorrelated. Chunks are represented by a sample of rows.
    moments : Moments, optional
        Of a chunked table, where they were gathered already.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> parallel_analysis(InMemoryTable(load_wine().data), missing=False)
    3
    """
    if not missing and table.by_columns is not None:
        found = by_columns(table, standardize=True)
        if found is not None:
            return choice.simulated_horn(found.operator)
    if not missing and not _can_permute(table):
        if choice.can_simulate(table.d if table.n is None else table.n, table.d):
            return choice.simulated_horn(_correlations(table, moments))
    F, w, mask = _standardized(*_some_rows(table))
    if min(F.shape) < 2:
        return 0
    return _Permutations(F, w, mask if missing else None).count()


def _can_permute(table: Table) -> bool:
    """Return True for a few dense rows in memory that all weigh the same."""
    if not isinstance(table, InMemoryTable) or table.weights is not None:
        return False
    return table.rows.shape[0] * table.d <= MOST_PERMUTED and not backend.is_sparse(table.rows)


def parallel_values(table: Table, most: int) -> tuple[Host, Host]:
    """Return the largest eigenvalues of the correlations, and what each has to pass, (k,) each.

    What `parallel_analysis` compares where it permutes columns, and with the same permutations,
    but for all of up to `most` eigenvalues. Of more than `MOST_SAMPLED` entries a sample is used.

    Parameters
    ----------
    table : Table
    most : int

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> values, limits = parallel_values(InMemoryTable(load_wine().data), 5)
    >>> (values > limits).tolist()
    [True, True, True, False, False]
    """
    F, w, mask = _standardized(*_some_rows(table))
    both = _Permutations(F, w, None if mask.all() else mask)
    k = min(len(F) - 1, F.shape[1], most)
    draws = np.stack(list(both.independent(k)))
    limits = np.quantile(draws, choice.INDEPENDENT_QUANTILE, axis=0)
    return both.values(F, k) / w.sum(), limits / w.sum()


class _Permutations:
    """Standardised columns (n, d) beside permutations of each of them.

    With a `mask` of what was observed, what is missing stays where it is. Correlations are then
    those of pairs, up to `PAIRED_SIZE` features; beyond, what is missing counts as the mean.
    """

    def __init__(self, F: Host, w: Host, mask: Host | None) -> None:
        self.F, self.w, self.mask, self.pairs = F, w, mask, None
        if mask is not None and F.shape[1] <= PAIRED_SIZE:
            self.pairs = np.maximum((mask.T * w) @ mask, np.finfo(float).tiny) / w.sum()

    def values(self, rows: Host, k: int) -> Host:
        """Return the k largest eigenvalues of the correlations of such rows."""
        rows = rows * np.sqrt(self.w)[:, None]
        if self.pairs is None:
            return choice.largest_values(rows, k)
        return choice.largest_of(rows.T @ rows / self.pairs, k)

    def permuted(self, rng: np.random.Generator) -> Host:
        """Return the columns, each permuted on its own."""
        if self.mask is None:
            return rng.permuted(self.F, axis=0)
        other = np.zeros_like(self.F)
        for j, column in enumerate(self.mask.T):
            rows = np.flatnonzero(column)
            other[rows, j] = self.F[rng.permutation(rows), j]
        return other

    def independent(self, k: int) -> Iterator[Host]:
        """Yield the k largest eigenvalues of permuted columns."""
        rngs = choice.independent_streams(self.F.size, incomplete.SEED)
        with task("parallel analysis: permutation", len(rngs)) as tick:
            for rng in rngs:
                yield self.values(self.permuted(rng), k)
                tick()

    def count(self) -> int:
        """Return the number of eigenvalues that are larger than those of permuted columns."""
        squares = self.w @ (self.F * self.F)
        shares = 1.0 if self.pairs is None else 1 / self.pairs.diagonal()
        n, d = self.F.shape
        trace, most = float(np.sum(squares * shares)), min(n - 1, d) - 1
        return choice.horn(lambda k: self.values(self.F, k), self.independent, trace, most)


def _correlations(table: Table, moments: Moments | None) -> Primal | Scatter:
    """Return the operator of standardised columns."""
    if moments is None and isinstance(table, InMemoryTable):
        scaled = Primal(table.rows, table.weights, standardize=True)
        if table.d > int(table.rows.shape[0]):
            return scaled
        moments = scaled.moments
    found = table.reduce(weighed, Moments.merge) if moments is None else moments
    return Scatter(found, standardize=True)


def _sampled(table: Table) -> InMemoryTable:
    """Return all rows, or a sample where there are too many."""
    return incomplete.some_of(table, max(MOST_SAMPLED // table.d, 100))


def _some_rows(table: Table) -> tuple[Host, Host | None]:
    """Return all rows and their weights, on the host; a sample where there are too many."""
    few = _sampled(table)
    weights = None if few.weights is None else backend.to_numpy(few.weights)
    rows = few.rows.toarray() if backend.is_sparse(few.rows) else few.rows
    return backend.to_numpy(backend.working(rows)), weights


def _standardized(rows: Host, weights: Host | None) -> tuple[Host, Host, Host]:
    """Return the columns that vary, standardised; weights of the rows; what is there.

    0 stands for what is missing.
    """
    rows = np.asarray(rows, dtype=np.float64)
    w = np.ones(len(rows)) if weights is None else np.asarray(weights, dtype=np.float64)
    mask = ~np.isnan(rows)
    used = (w > 0) & mask.any(axis=1)
    rows, w, mask = np.where(mask, rows, 0.0)[used], w[used], mask[used].astype(np.float64)
    size = np.maximum(w @ mask, np.finfo(float).tiny)
    F = mask * (rows - w @ rows / size)
    spread = np.sqrt(w @ (F * F) / size)
    rounding = 8 * np.finfo(float).eps * np.abs(rows).max(axis=0, initial=0.0)
    varies = spread > rounding
    F, mask, spread = F[:, varies], mask[:, varies], spread[varies]
    return F / spread, w, mask


# --- Rules that read a spectrum, where values are missing ----------------------------------------


def rule_of_completed(name: str, table: Table) -> int:
    """Return the number of components by a rule that reads a spectrum, where values are missing.

    Missing values are drawn from a PPCA of as many components as parallel analysis finds; the rule
    reads the spectrum of the completed rows, which count as many as `Columns.effective_rows`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 8)) + 0.3 * rng.normal(size=(300, 8))
    >>> X[rng.random(X.shape) < 0.2] = np.nan
    >>> [rule_of_completed(name, InMemoryTable(X)) for name in ("evidence", "white-noise")]
    [2, 2]
    """
    some = _sampled(table)
    q = min(max(parallel_analysis(some, missing=True), 1), table.d - 1)
    fit, rng = incomplete.Fit(some, q), np.random.default_rng(incomplete.SEED)
    factors, record = incomplete.fit_incomplete(fit, rng, **FOLD_LIMITS)
    record.raise_interrupted()
    rows = observed.drawn_imputations(factors, backend.working(some.rows), 1, rng)[0, ...]
    operator, n = Primal(rows, some.weights), _columns(table).effective_rows
    spectrum = solve(operator, min(operator.dim, int(rows.shape[0])))
    share = n / operator.n
    return choice.apply_rule(name, spectrum.values * share, spectrum.trace * share, spectrum.dim, n)


# --- The Bayesian information criterion, where values are missing --------------------------------


def choose_bic(table: Table, most: int) -> int:
    """Return the q of smallest Bayesian information criterion, from the observed-data likelihood.

    −2 ln L + k ln n with k free parameters and n rows that observed something; 0 if noise alone
    explains the rows.
    """
    columns = _columns(table)
    incomplete.refuse_empty_columns(columns.n)
    n, variance = backend.to_numpy(columns.n), backend.to_numpy(columns.variance)
    unit, entries, d = float(variance.mean()), float(n.sum()), table.d
    incomplete.check_unit(unit, table, columns.mean)
    white = -0.5 * entries * (LOG_2PI + math.log(float(n @ variance) / entries) + 1)

    def criterion(q: int, loglikelihood: float) -> float:
        return (free_parameters(q, d) + d) * math.log(columns.weight) - 2 * loglikelihood

    def fit(q: int, tick: Tick) -> float:
        rng = np.random.default_rng(incomplete.SEED)
        try:
            found = incomplete.Fit(table, q, columns=columns)
            factors, record = incomplete.fit_incomplete(found, rng)
        except DegenerateError:
            return math.inf
        record.raise_interrupted()
        tick(f"{q} components")
        if rules.has_vanished(float(factors.psi[0]), unit):
            return math.inf  # a likelihood without bound
        return criterion(q, record.loglikelihoods[-1])

    def stop(criteria: list[float]) -> bool:
        best = int(np.argmin([criterion(0, white), *criteria]))
        return math.isinf(criteria[-1]) or len(criteria) - best >= choice.WORSE_IN_A_ROW

    sizes = range(1, most + 1)
    criteria, interrupted = try_candidates(sizes, fit, label="BIC: fit", total=most, stop=stop)
    if interrupted:
        warn_interrupted(f"q = 0 to {len(criteria)}")
    return int(np.argmin([criterion(0, white), *criteria]))
