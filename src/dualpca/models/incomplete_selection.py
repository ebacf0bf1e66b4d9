"""How many components, from rows with missing values or in chunks: predict what was hidden."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce as fold_left
from typing import Any

import numpy as np

from dualpca.arrays import Array, backend, quadratic, task
from dualpca.data import (
    FOLDS,
    Changed,
    Columns,
    EntryFolds,
    Host,
    InMemoryTable,
    Moments,
    Table,
    column_starts,
    join,
    observed_weights,
    row_folds,
)
from dualpca.errors import DegenerateError, expected
from dualpca.gaussian import (
    LOG_2PI,
    PATIENCE,
    Factors,
    Score,
    Selection,
    Trained,
    cross_validate,
    each,
    free_parameters,
    given_up,
    has_vanished,
    most_likely,
    simplest,
    summary,
    warn_interrupted,
)
from dualpca.models.incomplete import (
    check_unit,
    fit_incomplete,
    refuse_empty_columns,
)
from dualpca.operators import WIDEST, Scatter, weighed
from dualpca.solvers import solve

# --- How many components, from incomplete rows: predict entries or rows that were hidden ---------

Fold = Callable[[int], Score]
"""q ↦ how a model of q components predicts what the fold hides."""

ROUGH: dict[str, Any] = {"tol": 1e-3, "max_iter": 300}


def choose_entries(X: Array, weights: Array | None, most: int, seed: int = 0) -> Selection:
    """Choose among q = 1, 2, … by hidden entries: each is predicted from what its row still shows.

    Takes the smallest q that is as good as the best. Complete rows may be chosen for likewise.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 8)) + 0.3 * rng.normal(size=(300, 8))
    >>> X[rng.random(X.shape) < 0.2] = np.nan
    >>> choose_entries(X, None, 7).chosen
    2
    """
    refuse_empty_columns(column_starts(X, weights)[0])
    hidden = [where for where in folds(X, seed) if bool(backend.namespace(X).any(where))]
    refuse_few_values(len(hidden))
    return best_of([_entries(X, weights, where, seed) for where in hidden], most, "entry")


def refuse_few_values(n_folds: int) -> None:
    """Raise where fewer than two folds hide anything."""
    if n_folds < 2:
        raise DegenerateError(
            f"no column has the {2 * FOLDS} values that hiding some of them takes. "
            "Give n_components as an int, or 'cv-rows'."
        )


def choose_rows(X: Array, weights: Array | None, most: int, seed: int = 0) -> Selection:
    """Choose among q = 1, 2, … by the likelihood of what held-out rows observed, in five folds.

    Takes the smallest q that is as good as the best.
    """
    refuse_empty_columns(column_starts(X, weights)[0])
    order = np.random.default_rng(seed).permutation(int(X.shape[0]))
    cut = [np.sort(held) for held in np.array_split(order, min(FOLDS, order.size))]
    return best_of([_rows(X, weights, held, seed) for held in cut], most, "row")


def best_of(folds: list[Fold], most: int, unit: str) -> Selection:
    """Score q = 1, 2, … until three in a row are worse than the best, or one leaves no noise."""
    if most < 1:
        raise DegenerateError("one feature, or one row, leaves no choice. Give n_components.")
    scores: list[list[Score]] = []
    with task("cross-validation: fit", most * len(folds)) as tick:
        try:
            while len(scores) < most and not (scores and given_up(scores)):
                scores.append(_row(folds, len(scores) + 1, tick))
        except DegenerateError:
            if not scores:
                raise
        except KeyboardInterrupt:
            warn_interrupted(f"q = 1 to {len(scores)}", bool(scores))
    return summary(scores, 1, 1 + simplest(scores), unit)


def _row(folds: list[Fold], q: int, tick: Callable[[str], None]) -> list[Score]:
    row = []
    for fold in folds:
        row.append(fold(q))
        tick(f"{q} components")
    return row


def folds(X: Array, seed: int) -> list[Array]:
    """Return masks that hide every observed entry once, a fifth of them at a time.

    A column that is observed fewer than ten times is never hidden from.
    """
    # a stream of its own: whoever removed entries with the same seed did not draw these numbers
    xp, rng = backend.namespace(X), np.random.default_rng([seed, FOLDS, X.shape[1]])
    seen = ~np.isnan(backend.to_numpy(X))
    fold = np.where(
        seen & (seen.sum(axis=0) >= 2 * FOLDS), rng.integers(FOLDS, size=seen.shape), -1
    )
    return [xp.asarray(fold == k, device=backend.device_of(X)) for k in range(FOLDS)]


def _entries(X: Array, weights: Array | None, hidden: Array, seed: int) -> Fold:
    """Return the fold that hides some entries from every row."""
    xp = backend.namespace(X)
    table = xp.where(hidden, xp.full_like(X, math.nan), X)
    w = observed_weights(table, weights)

    def fold(q: int) -> Score:
        factors, _ = fit_incomplete(
            InMemoryTable(table, w), q, np.random.default_rng(seed), **ROUGH
        )
        return hidden_score(factors, table, hidden, X, weights)

    return fold


def hidden_score(
    factors: Factors, table: Array, hidden: Array, X: Array, weights: Array | None = None
) -> Score:
    """Return how hidden entries are predicted from what their rows still show."""
    centre = column_starts(table, weights)[1]
    return Score(*hidden_sums(factors, table, hidden, X, weights, centre).tolist())


def hidden_sums(
    factors: Factors,
    table: Array,
    hidden: Array,
    X: Array,
    weights: Array | None,
    centre: Array,
) -> np.ndarray[Any, Any]:
    """Return the four numbers of that score, sums over rows, beside a guess by the mean alone."""
    xp, total = backend.namespace(X), np.zeros(4)
    for block, found in each(factors, table):
        mean = found.mean @ factors.W.T + factors.mu
        variance = quadratic(found.covariance, factors.W) + factors.psi
        rows, here = backend.row_block(X, block.rows), hidden[block.rows, :]
        w = xp.astype(here, xp.float64) * _column(weights, block.rows, X)
        off, around = (xp.where(here, rows - guess, 0 * mean) for guess in (mean, centre))
        density = -0.5 * (LOG_2PI + xp.log(variance) + off * off / variance)
        parts = (density, off * off, around * around, xp.ones_like(density))
        total += [float(xp.sum(w * part)) for part in parts]
    return total


def _rows(X: Array, weights: Array | None, held: np.ndarray[Any, Any], seed: int) -> Fold:
    """Return the fold that holds out some rows."""
    kept = np.setdiff1d(np.arange(X.shape[0]), held)
    train, test = backend.take(X, kept), backend.take(X, held)
    w, v = (None if weights is None else backend.take(weights, part) for part in (kept, held))
    seen = np.flatnonzero(backend.to_numpy(column_starts(train, w)[0]) > 0)
    # what only held rows observe is unknown
    train, test = (backend.take(part, seen, axis=1) for part in (train, test))
    w = observed_weights(train, w)

    def fold(q: int) -> Score:
        if seen.size <= q:
            raise DegenerateError(f"a fold observes {seen.size} features, too few for {q}.")
        factors, _ = fit_incomplete(
            InMemoryTable(train, w), q, np.random.default_rng(seed), **ROUGH
        )
        return row_score(factors, test, column_starts(train, w)[1], v)

    return fold


def row_score(factors: Factors, X: Array, centre: Array, weights: Array | None = None) -> Score:
    """Return how likely rows are, and how each observed entry is predicted from its row's others.

    x_j − E[x_j | others] = (C⁻¹r)_j / (C⁻¹)_jj over what the row observed, by Woodbury:
    C⁻¹r = Ψ⁻¹(r − Wz̄) and (C⁻¹)_jj = 1/ψ_j − w_jᵀ Cov[z] w_j / ψ_j².
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
    return Score(*(float(part) for part in total))


def _column(weights: Array | None, rows: slice, like: Array) -> Array:
    """Return the weights of some rows as a column; ones where there are none."""
    if weights is not None:
        return weights[rows][:, None]
    return backend.asarray(np.ones((rows.stop - rows.start, 1)), like)


def choose_bic(table: Table, most: int, seed: int = 0) -> int:
    """Return the q of smallest Bayesian information criterion, from the observed-data likelihood.

    −2 ln L + k ln n with k free parameters and n rows that observed something; 0 if noise alone
    explains the rows.
    """
    columns = table.reduce(Columns.of, Columns.merge)
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
            if has_vanished(float(factors.psi[0]), variance.mean()):
                break  # a likelihood without bound
            free = free_parameters(q, mean.size) + mean.size
            criteria.append(free * math.log(size) - 2 * record.loglikelihoods[-1])
            tick(f"{q} components")
            if q - int(np.argmin(criteria)) >= PATIENCE:
                break
    return int(np.argmin(criteria))


# --- How many components, from a table in parts: the folds that a table in memory has ------------
#
# One pass serves all folds and all q where rows are complete; with NaN each q and fold is a fit.


def choose_in_parts(name: str, parts: Table, most: int, *, holes: bool) -> Selection:
    """Return the choice by held-out rows or by hidden entries, as for a table in memory."""
    if name == "cv-entries" or (name == "cv" and holes):
        return choose_entries_parts(parts, most)
    return choose_rows_parts(parts, most) if holes else cross_validate_parts(parts, most)


# --- complete rows -------------------------------------------------------------------------------


def cross_validate_parts(parts: Table, most: int, seed: int = 0) -> Selection:
    """Choose among q = 0, 1, …, most by the likelihood of held-out rows, in five folds.

    Three passes: sizes, the moments of every fold, and the scores of all folds and all q at once.

    Examples
    --------
    >>> from dualpca.data.table import SlicedTable
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 8)) + 0.3 * rng.normal(size=(300, 8))
    >>> cross_validate_parts(SlicedTable(X, part_rows=70), 7).chosen
    2
    """
    if parts.d > WIDEST:
        what = f"a number for more than {WIDEST} features in parts"
        remedy = "Every fold would gather (d, d) moments, and all their eigenvectors."
        raise ValueError(expected("n_components", what, "'cv'", remedy))
    folds = row_folds(parts, seed)
    every = np.concatenate([*folds.values()])
    sizes = np.bincount(every, minlength=min(FOLDS, every.size))
    gathered = parts.reduce(_Gather(folds, sizes.size), _both)
    with task("cross-validation: fold", sizes.size) as tick:
        models = []
        for k in range(sizes.size):
            models.append(_trained(gathered, k, most, every.size - int(sizes[k])))
            tick()
        table = parts.reduce(_ScoreRows(folds, models, most), np.add)
    scores = [[Score(*map(float, cell)) for cell in row] for row in np.swapaxes(table, 0, 1)]
    return summary(scores, 0, most_likely(scores), "row")


class _Gather:
    """The moments of every fold of a part."""

    numbered = True

    def __init__(self, folds: dict[int, Host], K: int) -> None:
        self.folds, self.K = folds, K

    def __call__(
        self, rows: Host, number: int, weights: Host | None = None
    ) -> tuple[Moments | None, ...]:
        fold = self.folds[number]
        found = []
        for k in range(self.K):
            mine = fold == k
            w = None if weights is None else weights[mine]
            found.append(weighed(rows[mine], w) if mine.any() else None)
        return tuple(found)


def _both(
    a: tuple[Moments | None, ...], b: tuple[Moments | None, ...]
) -> tuple[Moments | None, ...]:
    return tuple(join(Moments.merge, one, two) for one, two in zip(a, b, strict=True))


def _trained(folds: tuple[Moments | None, ...], k: int, most: int, kept: int) -> Trained:
    """Return the model of all folds but one, of `kept` rows."""
    others = [one for i, one in enumerate(folds) if i != k and one is not None]
    if not others:
        raise DegenerateError("one fold holds all rows that weigh anything. Give n_components.")
    operator = Scatter(fold_left(Moments.merge, others))
    spectrum = solve(operator, min(most, kept - 1, operator.dim))
    return Trained.of(spectrum, operator.frame, operator.n)


class _ScoreRows:
    """How the models without each fold predict its rows in a part, (folds, q, 4)."""

    numbered = True

    def __init__(self, folds: dict[int, Host], models: list[Trained], most: int) -> None:
        self.folds, self.models, self.most = folds, models, most

    def __call__(self, rows: Host, number: int, weights: Host | None = None) -> Host:
        fold, w = self.folds[number], np.ones(len(rows)) if weights is None else weights
        table = np.zeros((len(self.models), self.most + 1, 4))
        for k, model in enumerate(self.models):
            mine = fold == k
            if mine.any():
                held = backend.working(rows[mine])
                projection = model.frame.project(model.V, held)
                table[k] = model.scores(held, projection, w[mine], self.most)
        return table


# --- rows with NaN -------------------------------------------------------------------------------


def choose_entries_parts(parts: Table, most: int, seed: int = 0) -> Selection:
    """Choose among q = 1, 2, … by hidden entries; a fit of EM for each q and fold."""
    columns = parts.reduce(Columns.of, Columns.merge)
    refuse_empty_columns(columns.n)
    folds = EntryFolds(parts, seed)
    hidden = parts.reduce(_Hidden(folds), np.add)
    kept = [int(k) for k in np.flatnonzero(hidden)]
    refuse_few_values(len(kept))
    most = min(most, columns.rows - 1, parts.d - 1)
    return best_of([_entries_of_table(parts, folds, k, seed) for k in kept], most, "entry")


class _Hidden:
    """How many entries every fold hides in a part."""

    numbered = True

    def __init__(self, folds: EntryFolds) -> None:
        self.folds = folds

    def __call__(self, rows: Host, number: int, weights: Host | None = None) -> Host:
        return np.bincount(self.folds(rows, number).ravel() + 1, minlength=FOLDS + 1)[1:]


def _entries_of_table(parts: Table, folds: EntryFolds, k: int, seed: int) -> Fold:
    """Return the fold that hides some entries from every row."""

    def hide(rows: Host, number: int, weights: Host) -> tuple[Host, Host]:
        rows = backend.working(rows)
        return np.where(folds(rows, number) == k, np.nan, rows), weights

    table = Changed(parts, hide)
    centre = table.reduce(Columns.of, Columns.merge).mean

    def fold(q: int) -> Score:
        factors, _ = fit_incomplete(table, q, np.random.default_rng(seed), **ROUGH)
        return Score(*parts.reduce(_ScoreHidden(factors, folds, k, centre), np.add).tolist())

    return fold


class _ScoreHidden:
    """How hidden entries of a part are predicted from what their rows still show."""

    numbered = True

    def __init__(self, factors: Factors, folds: EntryFolds, k: int, centre: Host) -> None:
        self.factors, self.folds, self.k, self.centre = factors, folds, k, centre

    def __call__(self, rows: Host, number: int, weights: Host | None = None) -> Host:
        rows = backend.working(rows)
        hidden = self.folds(rows, number) == self.k
        table = np.where(hidden, np.nan, rows)
        return hidden_sums(self.factors, table, hidden, rows, weights, self.centre)


def choose_rows_parts(parts: Table, most: int, seed: int = 0) -> Selection:
    """Choose among q = 1, 2, … by the likelihood of what held-out rows observed, in five folds."""
    refuse_empty_columns(parts.reduce(Columns.of, Columns.merge).n)
    folds = row_folds(parts, seed)
    K = int(max(fold.max() for fold in folds.values())) + 1
    return best_of([_rows_of_table(parts, folds, k, seed) for k in range(K)], most, "row")


def _rows_of_table(parts: Table, folds: dict[int, Host], k: int, seed: int) -> Fold:
    """Return the fold that holds out some rows."""

    def keep(rows: Host, number: int, weights: Host) -> tuple[Host, Host]:
        mine = folds[number] != k
        return rows[mine], weights[mine]

    columns = Changed(parts, keep).reduce(Columns.of, Columns.merge)
    seen = np.flatnonzero(columns.n > 0)  # what only held rows observe is unknown
    centre = columns.mean[seen]

    def narrow(rows: Host, number: int, weights: Host) -> tuple[Host, Host]:
        rows, weights = keep(rows, number, weights)
        return rows[:, seen], weights

    def held(rows: Host, number: int, weights: Host) -> tuple[Host, Host]:
        mine = folds[number] == k
        return backend.working(rows[mine][:, seen]), weights[mine]

    train, test = (Changed(parts, change, seen.size) for change in (narrow, held))

    def fold(q: int) -> Score:
        if seen.size <= q:
            raise DegenerateError(f"a fold observes {seen.size} features, too few for {q}.")
        factors, _ = fit_incomplete(train, q, np.random.default_rng(seed), **ROUGH)

        def of(rows: Host, weights: Host) -> Host:
            return np.array(row_score(factors, rows, centre, weights))

        return Score(*test.reduce(of, np.add).tolist())

    return fold


def cross_validated(name: str, table: Table, most: int, *, missing: bool) -> Selection:
    """Return the choice of q by held-out rows or by hidden entries.

    'cv' is the former where rows are complete, and the latter where values are missing.
    """
    if not isinstance(table, InMemoryTable):
        return choose_in_parts(name, table, most, holes=missing)
    if backend.is_sparse(table.rows):
        raise ValueError(
            f"n_components={name!r} needs dense rows. "
            "Use a rule that reads the spectrum: 'evidence', 'bic', 'parallel'."
        )
    X, weights = table.rows, table.weights
    weights = observed_weights(X, weights) if missing else weights
    if name == "cv-entries" or (name == "cv" and missing):
        return choose_entries(X, weights, min(most, int(X.shape[0]) - 1, int(X.shape[1]) - 1))
    return choose_rows(X, weights, most) if missing else cross_validate(X, weights, most)
