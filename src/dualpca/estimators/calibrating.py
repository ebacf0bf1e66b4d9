"""Hidden entries as a model fills them that has not seen them: coverage of its intervals.

The method `calibration` of estimators that impute hides all entries in turn. Figures and reports
hide some, and ask the same functions.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from dualpca.arrays import Array, backend
from dualpca.data import require_in_memory
from dualpca.data.kinds import Entries, library_of, opened_table
from dualpca.errors import InterruptWarning, expected
from dualpca.estimators import _checks
from dualpca.estimators._types import Rows, Seed
from dualpca.gaussian.calibration import (
    TOLD,
    Bools,
    Calibration,
    Floats,
    Overimputed,
    StatedLevels,
    checked_levels,
    combined,
    deal,
    gaussian_entries,
)

if TYPE_CHECKING:
    from dualpca.estimators._shell import Estimator
    from dualpca.estimators.canonical import CCA
    from dualpca.estimators.copula import CopulaPPCA

LEVELLED = ("nominal", "binary", "ordinal")
"""Kinds of columns whose hidden entries are judged by probabilities."""


@contextmanager
def quietly() -> Iterator[None]:
    """Suppress the warnings of refits, except that a fit was interrupted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", InterruptWarning)
        yield


def calibrated(
    model: Estimator, X: Rows, levels: float | Sequence[float], folds: int, random_state: Seed
) -> Calibration:
    """Return how often intervals contain entries that were hidden, all in turn."""
    check_is_fitted(model)
    require_in_memory(X)
    p = checked_levels(np.atleast_1d(np.asarray(levels, dtype=np.float64)))
    known = known_numbers(model, X)
    masks = deal(known, folds, _checks.generator(random_state))
    if not masks:
        raise ValueError(expected("X", "a table with observed entries to hide", "none"))
    entries, categories = predicted(model, X, masks)
    named = getattr(model, "feature_names_in_", None)
    names = [f"x{j}" for j in range(known.shape[1])] if named is None else map(str, named)
    return Calibration(p, entries, categories, tuple(names), len(known), len(masks))


def calibrated_views(
    model: CCA,
    views: tuple[Floats, Floats],
    names: Sequence[str],
    levels: float | Sequence[float],
    folds: int,
    random_state: Seed,
) -> Calibration:
    """Return the same of two views, side by side, each entry filled from both."""
    p = checked_levels(np.atleast_1d(np.asarray(levels, dtype=np.float64)))
    known, dx, parts = np.hstack(views), views[0].shape[1], []
    for mask in deal(known, folds, _checks.generator(random_state)):
        partial = np.where(mask, np.nan, known)
        pair = partial[:, :dx], partial[:, dx:]
        with quietly():
            tables = refittable(model).fit(*pair).impute(*pair, return_std=True)
        mean, std = np.hstack(tables[:2]), np.hstack(tables[2:])
        parts.append(gaussian_entries(known, mean, std, mask))
    if not parts:
        raise ValueError(expected("X and y", "tables with observed entries to hide", "none"))
    return Calibration(p, combined(parts), None, tuple(names), len(known), len(parts))


# --- Tables ---------------------------------------------------------------------------------------


def filler(model: Estimator) -> Any:
    """Return the model whose intervals an estimator gives: that inside an imputer."""
    return model.model_ if hasattr(model, "model_") and hasattr(model, "indicator_") else model


def refittable(model: Estimator) -> Any:
    """Return an unfitted copy of the same model with as many components; columns keep kinds."""
    inner = filler(model)
    fixed: dict[str, Any] = {}
    q = getattr(inner, "n_components_", None)
    mixed = getattr(inner, "column_kinds_", None) is not None
    blended = mixed and inner._fitted.blend is not None  # which a number of components would drop
    if q is not None and not np.ndim(q) and not blended:
        fixed["n_components"] = int(q)
    if hasattr(inner, "n_mixtures_"):
        fixed["n_mixtures"] = int(inner.n_mixtures_)
    if mixed:
        fixed["column_kinds"] = kinds_of(inner)
    elif inner is not model and model.model == "auto":
        fixed["model"] = "ppca"
    return clone(model).set_params(**fixed)


def kinds_of(model: CopulaPPCA) -> list[Any]:
    """Return the kind of every column of a fitted copula, as `column_kinds` accepts them."""
    found: list[Any] = []
    for column in model._fitted.kinds.columns:
        if column.kind == "ordinal" and column.levels is not None:
            found.append(list(column.levels))
        else:
            found.append(column.limits or column.kind)
    return found


def mixed_entries(model: Estimator, X: Rows) -> Entries | None:
    """Return the entries of a table of columns of any kind in numbers; None for other models."""
    inner = filler(model)
    if getattr(inner, "column_kinds_", None) is None:
        return None
    entries: Entries = inner._read(X)[2]
    return entries


def known_numbers(model: Estimator, X: Rows) -> Floats:
    """Return what can be hidden as numbers, (n, d): NaN for the rest, levels by their places."""
    entries = mixed_entries(model, X)
    if entries is not None:
        return np.where(entries.low == entries.high, entries.low, np.nan)
    return floats_of(filler(model)._given(X, "calibration"))


def hideable_numbers(model: Estimator, X: Rows) -> Floats:
    """Return the numbers that can be hidden, (n, d): NaN in columns of categories too."""
    numbers, inner = known_numbers(model, X), filler(model)
    if mixed_entries(model, X) is not None:
        numbers[:, levelled(inner)] = np.nan
    return numbers


def levelled(model: CopulaPPCA) -> Bools:
    """Return which columns of a fitted copula hold categories, (d,)."""
    return np.array([column.kind in LEVELLED for column in model._fitted.kinds.columns])


def floats_of(rows: Array) -> Floats:
    """Return rows of any library as numbers on the host, in float64."""
    return np.array(backend.to_numpy(rows), dtype=np.float64)


def without(X: Rows, hidden: Bools) -> Any:
    """Return a table without the hidden entries, of the same kind."""
    if backend.is_foreign(X):
        xp = backend.namespace(X)
        return xp.where(backend.constants(hidden, X) > 0, xp.full_like(X, np.nan), X)
    table = opened_table(X)
    library = library_of(table)
    if library == "pandas":
        return table.mask(hidden)
    if library == "polars":
        gone = zip(table.iter_columns(), hidden.T, strict=True)
        return table.with_columns([column.set(type(column)(at), None) for column, at in gone])
    return np.where(hidden, np.nan, table if table.dtype.kind == "O" else table.astype(float))


# --- Entries --------------------------------------------------------------------------------------


def predicted(
    model: Estimator, X: Rows, masks: Sequence[Bools], level: float = TOLD, *, refit: bool = True
) -> tuple[Overimputed, StatedLevels | None]:
    """Return hidden entries as a model fills them that was fitted to the others.

    Parameters
    ----------
    model : fitted estimator with `impute`, or an imputer
    X : table of n rows
    masks : sequence of arrays of bool, shape (n, d)
        Entries to hide in turn.
    level : float
        Of the intervals.
    refit : bool
        False for the model as it is, which may have seen the entries.

    Returns
    -------
    numbers : Overimputed
    categories : StatedLevels or None
        None for a model of numbers.
    """
    entries = mixed_entries(model, X)
    found, stated = [], []
    for mask in masks:
        partial = without(X, mask)
        with quietly():
            asked = filler(refittable(model).fit(partial) if refit else model)
            if entries is None:
                mean, std = (floats_of(part) for part in asked.impute(partial, return_std=True))
                truth = known_numbers(model, X)
                found.append(gaussian_entries(truth, mean, std, mask, level))
            else:
                whole = filler(model)
                kinds = levelled(whole)
                found.append(_numbers(asked, partial, entries, mask & ~kinds, level))
                stated.append(_levels(asked, partial, whole, entries, mask & kinds))
    return combined(found), combined(stated) if stated else None


def _numbers(
    model: CopulaPPCA, partial: Rows, truth: Entries, mask: Bools, level: float
) -> Overimputed:
    """Return hidden numbers as a copula fills them: by quantiles."""
    some = mask.any(axis=1)
    entries, values = model._read(partial)[2].rows(some), truth.low[some]
    tail, mine = (1 - level) / 2, mask[some]
    tables = model._fitted.quantiles(entries, (0.5, tail, 1 - tail))
    guess, low, high = (table.low[mine] for table in tables)
    distance = model._fitted.distances(entries, values)[mine]
    row, column = np.nonzero(mask)
    distance = np.nan_to_num(distance, nan=0.0, posinf=np.inf)  # constant columns: no law
    return Overimputed(row, column, truth.low[mask], guess, low, high, distance)


def _levels(
    model: CopulaPPCA, partial: Rows, whole: CopulaPPCA, truth: Entries, mask: Bools
) -> StatedLevels:
    """Return hidden levels beside the probability of the most probable one.

    `whole` is the model of the complete table, by whose levels `truth` is coded.
    """
    entries, parts = model._read(partial)[2], []
    for j in np.flatnonzero(mask.any(axis=0)).tolist():
        row = np.flatnonzero(mask[:, j])
        p = model._fitted.probabilities(entries.rows(row), j)
        levels, known = model._fitted.levels(j), whole._fitted.levels(j)
        best = p.argmax(axis=1)
        is_coded = whole._fitted.kinds.columns[j].levels is not None
        own = [known[int(code)] if is_coded else code for code in truth.low[row, j]]
        right = np.array([levels[k] == value for k, value in zip(best, own, strict=True)])
        parts.append(StatedLevels(row, np.full(row.size, j), p.max(axis=1), right))
    empty = np.empty(0, dtype=np.intp)
    nothing = StatedLevels(empty, empty, np.empty(0), np.empty(0, dtype=bool))
    found: StatedLevels = combined([nothing, *parts])
    return found
