"""How many components, from the rows themselves: predict rows or entries that were held out.

`cross_validated` answers 'cv', 'cv-rows' and 'cv-entries'; `choose_bic` answers 'bic' where
values are missing. Rules that need no more than a spectrum are in `dualpca.gaussian`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import reduce as fold_left
from typing import Any

import numpy as np

from dualpca.arrays import Array, backend, quadratic, task
from dualpca.data import (
    FOLDS,
    Columns,
    EntryFolds,
    Host,
    InMemoryTable,
    Moments,
    Table,
    changed,
    fold_rows,
    join,
    numbered,
    observed_weights,
    row_folds,
    subset_columns,
)
from dualpca.errors import DegenerateError, expected
from dualpca.gaussian import (
    LOG_2PI,
    PATIENCE,
    Factors,
    Score,
    Selection,
    Trained,
    each,
    free_parameters,
    given_up,
    has_vanished,
    most_likely,
    simplest,
    summary,
    warn_interrupted,
)
from dualpca.models.incomplete import check_unit, fit_incomplete, refuse_empty_columns
from dualpca.operators import WIDEST, Primal, Scatter, weighed
from dualpca.solvers import solve

Fold = Callable[[int], Score]
"""q ↦ how a model of q components predicts what the fold hides."""

ROUGH: dict[str, Any] = {"tol": 1e-3, "max_iter": 300}
"""How far EM goes in a fold."""


def cross_validated(
    name: str, table: Table, most: int, *, missing: bool, seed: int = 0
) -> Selection:
    """Return the choice of q by held-out rows or by hidden entries.

    Parameters
    ----------
    name : {'cv', 'cv-rows', 'cv-entries'}
        'cv' is 'cv-rows' where rows are complete, and 'cv-entries' where values are missing.
    table : Table
        In memory or in chunks: folds are the same.
    most : int
        Largest q.
    missing : bool
        Whether there is NaN.
    seed : int
        Of the folds.

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
            "Use a rule that reads the spectrum: 'evidence', 'bic', 'parallel'."
        )
    if name == "cv-entries" or (name == "cv" and missing):
        return by_entries(table, most, seed)
    return by_rows(table, most, seed) if missing else by_complete_rows(table, most, seed)


# --- Held-out rows, all complete: a fold is solved once, and every q scored from its spectrum ----


def by_complete_rows(table: Table, most: int, seed: int = 0) -> Selection:
    """Choose among q = 0, 1, …, most by the likelihood of held-out rows, in five folds.

    O(ndq) in all. Chunks take three passes: sizes, the moments of every fold, and the scores of
    all folds and all q. An interruption by the keyboard keeps the folds that are done.
    """
    folds = row_folds(table, seed)
    sizes = np.bincount(np.concatenate([*folds.values()]))
    found: list[list[Score]] = []
    with task("cross-validation: fold", sizes.size) as tick:
        try:
            for group in _without_folds(table, folds, sizes.size):
                models = {}
                for k, operator in group.items():
                    models[k] = _trained(operator, min(most, int(sizes.sum() - sizes[k]) - 1))
                    tick()
                scores = table.reduce(_score_rows(folds, models, most), np.add)
                found += [[Score(*map(float, cell)) for cell in fold] for fold in scores]
        except KeyboardInterrupt:
            warn_interrupted(f"{len(found)} of {sizes.size} folds", bool(found))
    curve = [list(row) for row in zip(*found, strict=True)]
    return summary(curve, 0, most_likely(curve), "row")


def _without_folds(
    table: Table, folds: dict[int, Host], count: int
) -> Iterator[Mapping[int, Primal | Scatter]]:
    """Yield the operators of all rows but those of a fold: one by one in memory, else together."""
    if isinstance(table, InMemoryTable):
        for k in range(count):
            kept: Any = fold_rows(table, folds, k, held=False)
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
            raise DegenerateError("one fold holds all rows that weigh anything. Give n_components.")
        operators[k] = Scatter(fold_left(Moments.merge, others))
    yield operators


def _trained(operator: Primal | Scatter, most: int) -> Trained:
    """Return the spectrum of the rows that were kept."""
    return Trained.of(solve(operator, min(most, operator.dim)), operator.frame, operator.n)


def _score_rows(
    folds: dict[int, Host], models: dict[int, Trained], most: int
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


def by_rows(table: Table, most: int, seed: int = 0) -> Selection:
    """Choose among q = 1, 2, … by the likelihood of what held-out rows observed, in five folds.

    Takes the smallest q that is as good as the best.
    """
    refuse_empty_columns(_columns(table).n)
    # rows that observe nothing weigh nothing
    table = changed(table, lambda rows, _, weights: (rows, observed_weights(rows, weights)))
    folds = row_folds(table, seed)
    count = 1 + max(int(fold.max()) for fold in folds.values())
    return best_of([_row_fold(table, folds, k, seed) for k in range(count)], most, "row")


def _row_fold(table: Table, folds: dict[int, Host], k: int, seed: int) -> Fold:
    """Return the fold that holds out some rows."""
    train, test = (fold_rows(table, folds, k, held=held) for held in (False, True))
    columns = _columns(train)
    seen = np.flatnonzero(backend.to_numpy(columns.n) > 0)  # what only held rows observe is unknown
    train, test = subset_columns(train, seen), subset_columns(test, seen)
    centre = backend.take(columns.mean, seen)

    def fold(q: int) -> Score:
        if seen.size <= q:
            raise DegenerateError(f"a fold observes {seen.size} features, too few for {q}.")
        factors, _ = fit_incomplete(train, q, np.random.default_rng(seed), **ROUGH)

        def of(rows: Array, weights: Array | None = None) -> Host:
            return row_score(factors, rows, centre, weights)

        return Score(*test.reduce(of, np.add).tolist())

    return fold


def by_entries(table: Table, most: int, seed: int = 0) -> Selection:
    """Choose among q = 1, 2, … by hidden entries: each is predicted from what its row still shows.

    Takes the smallest q that is as good as the best. Complete rows may be chosen for likewise.
    """
    columns = _columns(table)
    refuse_empty_columns(columns.n)
    folds = EntryFolds(table, seed)

    @numbered
    def count(rows: Array, number: int, weights: Array | None = None) -> Host:
        xp, hides = backend.namespace(rows), (folds.hidden(rows, number, k) for k in range(FOLDS))
        return np.array([bool(xp.any(one)) for one in hides])

    kept = [int(k) for k in np.flatnonzero(table.reduce(count, np.logical_or))]
    if len(kept) < 2:
        raise DegenerateError(
            f"no column has the {2 * FOLDS} values that hiding some of them takes. "
            "Give n_components as an int, or 'cv-rows'."
        )
    most = min(most, columns.rows - 1, table.d - 1)
    return best_of([_entry_fold(table, folds, k, seed) for k in kept], most, "entry")


def _entry_fold(table: Table, folds: EntryFolds, k: int, seed: int) -> Fold:
    """Return the fold that hides some entries from every row."""
    train = folds.hide(table, k)
    columns = _columns(train)

    def fold(q: int) -> Score:
        rng = np.random.default_rng(seed)
        factors, _ = fit_incomplete(train, q, rng, columns=columns, **ROUGH)

        @numbered
        def of(rows: Array, number: int, weights: Array | None = None) -> Host:
            hidden = folds.hidden(rows, number, k)
            return hidden_score(factors, rows, hidden, columns.mean, weights)

        return Score(*table.reduce(of, np.add).tolist())

    return fold


def best_of(folds: list[Fold], most: int, unit: str) -> Selection:
    """Score q = 1, 2, … until three in a row are worse than the best, or one leaves no noise."""
    if most < 1:
        raise DegenerateError("one feature, or one row, leaves no choice. Give n_components.")
    scores: list[list[Score]] = []
    with task("cross-validation: fit", most * len(folds)) as tick:
        try:
            while len(scores) < most and not (scores and given_up(scores)):
                q, row = len(scores) + 1, []
                for fold in folds:
                    row.append(fold(q))
                    tick(f"{q} components")
                scores.append(row)
        except DegenerateError:
            if not scores:
                raise
        except KeyboardInterrupt:
            warn_interrupted(f"q = 1 to {len(scores)}", bool(scores))
    return summary(scores, 1, 1 + simplest(scores), unit)


def hidden_score(
    factors: Factors, rows: Array, hidden: Array, centre: Array, weights: Array | None = None
) -> Host:
    """Return how hidden entries are predicted from the others of their rows: a `Score`, (4,).

    Beside it stands a guess by the mean alone, `centre`.
    """
    xp, total = backend.namespace(rows), np.zeros(4)
    shown = xp.where(hidden, xp.full_like(rows, math.nan), rows)
    for block, found in each(factors, shown):
        mean = found.mean @ factors.W.T + factors.mu
        variance = quadratic(found.covariance, factors.W) + factors.psi
        truth, here = backend.row_block(rows, block.rows), hidden[block.rows, :]
        w = xp.astype(here, xp.float64) * _column(weights, block.rows, rows)
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
    for block, found in each(factors, X):
        w = _column(weights, block.rows, X)
        pull = (block.R - found.mean @ factors.W.T) / factors.psi
        hold = (1 - quadratic(found.covariance, factors.W) / factors.psi) / factors.psi
        around = block.R + (factors.mu - centre)
        press, squares = (
            float(xp.sum(w * block.mask * part * part)) for part in (pull / hold, around)
        )
        value = float(xp.sum(w[:, 0] * found.log_density))
        total += [value, press, squares, float(xp.sum(w * xp.ones_like(block.R[:, :1])))]
    return total


def _column(weights: Array | None, rows: slice, like: Array) -> Array:
    """Return the weights of some rows as a column; ones where there are none."""
    if weights is not None:
        return weights[rows][:, None]
    return backend.asarray(np.ones((rows.stop - rows.start, 1)), like)


def _columns(table: Table) -> Columns:
    return table.reduce(Columns.of, Columns.merge)


# --- The Bayesian information criterion, where values are missing --------------------------------


def choose_bic(table: Table, most: int, seed: int = 0) -> int:
    """Return the q of smallest Bayesian information criterion, from the observed-data likelihood.

    −2 ln L + k ln n with k free parameters and n rows that observed something; 0 if noise alone
    explains the rows.
    """
    columns = _columns(table)
    refuse_empty_columns(columns.n)
    n, mean, variance = (backend.to_numpy(part) for part in columns[:3])
    check_unit(float(variance.mean()), table, columns.mean)
    size = columns.weight
    sigma2 = float(n @ variance / n.sum())
    white = -0.5 * float(n.sum()) * (LOG_2PI + math.log(sigma2) + 1)
    criteria = [(free_parameters(0, mean.size) + mean.size) * math.log(size) - 2 * white]
    with task("BIC: fit", most) as tick:
        for q in range(1, most + 1):
            try:
                factors, record = fit_incomplete(
                    table, q, np.random.default_rng(seed), columns=columns
                )
            except DegenerateError:
                break
            if has_vanished(float(factors.psi[0]), float(variance.mean())):
                break  # a likelihood without bound
            free = free_parameters(q, mean.size) + mean.size
            criteria.append(free * math.log(size) - 2 * record.loglikelihoods[-1])
            tick(f"{q} components")
            if q - int(np.argmin(criteria)) >= PATIENCE:
                break
    return int(np.argmin(criteria))
