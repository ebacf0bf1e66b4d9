"""How many components, from a table in parts: the folds that a table in memory has (MATH 5).

Rows and entries are assigned to folds by the same draws as in memory, so the choice is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce as fold_left
from typing import Any

import numpy as np

from dualpca import _array
from dualpca.cross_validation import Trained
from dualpca.errors import DegenerateError, expected
from dualpca.held_out import FOLDS, Score, Selection, most_likely, summary
from dualpca.incomplete_em import fit_incomplete, refuse_empty_columns
from dualpca.incomplete_selection import (
    ROUGH,
    Fold,
    best_of,
    hidden_sums,
    refuse_few_values,
    row_score,
)
from dualpca.missing import Factors
from dualpca.missing_parts import IncompleteParts
from dualpca.moments import Moments
from dualpca.parted import WIDEST, weighed
from dualpca.parts import Host, Statistic, Summable, counting, join
from dualpca.progress import task
from dualpca.representations import Scatter
from dualpca.solvers import solve

Change = Callable[[Host, int, Host], tuple[Host, Host]]
"""(rows, number of the part, weights) ↦ (rows, weights)."""

DRAWN = 2**20
"""Numbers drawn at once, to find where the draws of a part begin."""


def choose_in_parts(name: str, parts: Summable, most: int, *, holes: bool) -> Selection:
    """Return the choice by held-out rows or by hidden entries, as for a table in memory."""
    if name == "cv-entries" or (name == "cv" and holes):
        return choose_entries_parts(parts, most)
    return choose_rows_parts(parts, most) if holes else cross_validate_parts(parts, most)


def row_folds(parts: Summable, seed: int = 0) -> dict[int, Host]:
    """Return the fold of every row, a vector a part; one pass.

    About ten bytes a row are held here while folds are drawn, one after that.

    Examples
    --------
    >>> from dualpca.parts import Blocks
    >>> folds = row_folds(Blocks(np.zeros((10, 2)), part_rows=6))
    >>> [len(one) for one in folds.values()], np.bincount(np.concatenate([*folds.values()]))
    ([6, 4], array([2, 2, 2, 2, 2]))
    """
    sizes = parts.sizes()
    n = sum(sizes.values())
    order, fold = np.random.default_rng(seed).permutation(n), np.empty(n, dtype=np.int8)
    for k, held in enumerate(np.array_split(order, min(FOLDS, n))):
        fold[held] = k
    ends = np.cumsum(list(sizes.values()))[:-1]
    return dict(zip(sizes, np.split(fold, ends), strict=True))


# --- complete rows -------------------------------------------------------------------------------


def cross_validate_parts(parts: Summable, most: int, seed: int = 0) -> Selection:
    """Choose among q = 0, 1, …, most by the likelihood of held-out rows, in five folds.

    Three passes: sizes, the moments of every fold, and the scores of all folds and all q at once.

    Examples
    --------
    >>> from dualpca.parts import Blocks
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 8)) + 0.3 * rng.normal(size=(300, 8))
    >>> cross_validate_parts(Blocks(X, part_rows=70), 7).chosen
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
                held = _array.working(rows[mine])
                projection = model.frame.project(model.V, held)
                table[k] = model.scores(held, projection, w[mine], self.most)
        return table


# --- rows with NaN -------------------------------------------------------------------------------


class Changed(Summable):
    """A table in parts seen through a function: with some entries hidden, or some rows left out.

    Every row has a weight then: that of the row before it was changed.
    """

    def __init__(self, parts: Summable, change: Change, d: int | None = None) -> None:
        super().__init__(parts.d if d is None else d, parts.dtype)
        self.parts, self.change = parts, change

    def reduce(
        self, of: Callable[..., Any], plus: Callable[[Statistic, Statistic], Statistic]
    ) -> Statistic:
        """Return the sum of `of(rows, weights=weights)` over the parts that still have rows."""
        return self.parts.reduce(_Through(self.change, of), plus)


class _Through:
    """A statistic of changed rows."""

    numbered = True

    def __init__(self, change: Change, of: Callable[..., Any]) -> None:
        self.change, self.of = change, of

    def __call__(self, rows: Host, number: int, weights: Host | None = None) -> Any:
        w = counting(rows, np.ones(len(rows))) if weights is None else weights
        rows, w = self.change(rows, number, w)
        if len(rows) == 0:
            return None
        if getattr(self.of, "numbered", False):
            return self.of(rows, number, weights=w)
        return self.of(rows, weights=w)


class EntryFolds:
    """Which entries every fold hides: drawn where they are needed, from the stream of all rows.

    Parameters
    ----------
    parts : Summable
    seed : int
    """

    def __init__(self, parts: Summable, seed: int = 0) -> None:
        sizes, seen = parts.reduce(_count_seen, _add_counts)
        self.d, self.often, self.begin = parts.d, seen >= 2 * FOLDS, {}
        rng = np.random.default_rng([seed, FOLDS, parts.d])
        for number, size in sorted(sizes.items()):
            self.begin[number] = rng.bit_generator.state
            for cut in _array.slices(size, max(1, DRAWN // parts.d)):
                rng.integers(FOLDS, size=(cut.stop - cut.start, parts.d))

    def __call__(self, rows: Host, number: int) -> Host:
        """Return the fold that hides each entry of a part, −1 for none."""
        rng = np.random.default_rng()
        rng.bit_generator.state = self.begin[number]
        drawn = rng.integers(FOLDS, size=rows.shape)
        return np.where(~np.isnan(rows) & self.often, drawn, -1)


class _CountSeen:
    """Size of a part, and how many of its rows observe every feature."""

    numbered = True

    def __call__(
        self, rows: Host, number: int, weights: Host | None = None
    ) -> tuple[dict[int, int], Host]:
        return {number: len(rows)}, (~np.isnan(rows)).sum(axis=0)


_count_seen = _CountSeen()


def _add_counts(a: tuple[dict[int, int], Host], b: tuple[dict[int, int], Host]) -> Any:
    return a[0] | b[0], a[1] + b[1]


def choose_entries_parts(parts: Summable, most: int, seed: int = 0) -> Selection:
    """Choose among q = 1, 2, … by hidden entries; a fit of EM for each q and fold."""
    survey = IncompleteParts(parts, 1).survey
    refuse_empty_columns(survey.n)
    folds = EntryFolds(parts, seed)
    hidden = parts.reduce(_Hidden(folds), np.add)
    kept = [int(k) for k in np.flatnonzero(hidden)]
    refuse_few_values(len(kept))
    most = min(most, survey.rows - 1, parts.d - 1)
    return best_of([_entries(parts, folds, k, seed) for k in kept], most, "entry")


class _Hidden:
    """How many entries every fold hides in a part."""

    numbered = True

    def __init__(self, folds: EntryFolds) -> None:
        self.folds = folds

    def __call__(self, rows: Host, number: int, weights: Host | None = None) -> Host:
        return np.bincount(self.folds(rows, number).ravel() + 1, minlength=FOLDS + 1)[1:]


def _entries(parts: Summable, folds: EntryFolds, k: int, seed: int) -> Fold:
    """Return the fold that hides some entries from every row."""

    def hide(rows: Host, number: int, weights: Host) -> tuple[Host, Host]:
        rows = _array.working(rows)
        return np.where(folds(rows, number) == k, np.nan, rows), weights

    table = Changed(parts, hide)
    centre = IncompleteParts(table, 1).survey.mean

    def fold(q: int) -> Score:
        factors, _ = fit_incomplete(table, None, q, np.random.default_rng(seed), **ROUGH)
        return Score(*parts.reduce(_ScoreHidden(factors, folds, k, centre), np.add).tolist())

    return fold


class _ScoreHidden:
    """How hidden entries of a part are predicted from what their rows still show."""

    numbered = True

    def __init__(self, factors: Factors, folds: EntryFolds, k: int, centre: Host) -> None:
        self.factors, self.folds, self.k, self.centre = factors, folds, k, centre

    def __call__(self, rows: Host, number: int, weights: Host | None = None) -> Host:
        rows = _array.working(rows)
        hidden = self.folds(rows, number) == self.k
        table = np.where(hidden, np.nan, rows)
        return hidden_sums(self.factors, table, hidden, rows, weights, self.centre)


def choose_rows_parts(parts: Summable, most: int, seed: int = 0) -> Selection:
    """Choose among q = 1, 2, … by the likelihood of what held-out rows observed, in five folds."""
    refuse_empty_columns(IncompleteParts(parts, 1).survey.n)
    folds = row_folds(parts, seed)
    K = int(max(fold.max() for fold in folds.values())) + 1
    return best_of([_rows(parts, folds, k, seed) for k in range(K)], most, "row")


def _rows(parts: Summable, folds: dict[int, Host], k: int, seed: int) -> Fold:
    """Return the fold that holds out some rows."""

    def keep(rows: Host, number: int, weights: Host) -> tuple[Host, Host]:
        mine = folds[number] != k
        return rows[mine], weights[mine]

    survey = IncompleteParts(Changed(parts, keep), 1).survey
    seen = np.flatnonzero(survey.n > 0)  # what only held rows observe is unknown
    centre = survey.mean[seen]

    def narrow(rows: Host, number: int, weights: Host) -> tuple[Host, Host]:
        rows, weights = keep(rows, number, weights)
        return rows[:, seen], weights

    def held(rows: Host, number: int, weights: Host) -> tuple[Host, Host]:
        mine = folds[number] == k
        return _array.working(rows[mine][:, seen]), weights[mine]

    train, test = (Changed(parts, change, seen.size) for change in (narrow, held))

    def fold(q: int) -> Score:
        if seen.size <= q:
            raise DegenerateError(f"a fold observes {seen.size} features, too few for {q}.")
        factors, _ = fit_incomplete(train, None, q, np.random.default_rng(seed), **ROUGH)

        def of(rows: Host, weights: Host) -> Host:
            return np.array(row_score(factors, rows, centre, weights))

        return Score(*test.reduce(of, np.add).tolist())

    return fold
