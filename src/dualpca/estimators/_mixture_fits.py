"""How `MixturePPCA` is fitted: sizes, starts side by side, streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils.parallel import Parallel, delayed

from dualpca.arrays import Array, backend
from dualpca.data import ChunkedTable, Columns, column_starts, refuse_infinite
from dualpca.errors import CollapseWarning, expected, warn
from dualpca.estimators._base import (
    check_checkpoint,
    check_choice,
    check_flag,
    check_number,
    generator,
    watch_of,
)
from dualpca.estimators._components import is_count
from dualpca.kernels import make_kernel
from dualpca.models.incomplete import check_unit, refuse_empty_columns
from dualpca.models.mixture import (
    Climbed,
    CollapseRules,
    Limits,
    Recipe,
    by_bic,
    by_held_out,
    choose,
    fit_mixture_parts,
)
from dualpca.models.mixture_stream import MixtureStream

WORDS = ("bic", "cv")
"""Ways to choose a size by trying candidates."""

MOST_COMPONENTS = 10
"""Largest number of directions that is tried."""

BOUND = "dirichlet"


def check_parameters(model: Any) -> None:
    """Check the constructor's parameters, all at once, before any work."""
    words = (*WORDS, BOUND)
    if not (is_count(model.n_mixtures) and model.n_mixtures >= 1) and (
        not isinstance(model.n_mixtures, str) or model.n_mixtures not in words
    ):
        what = f"a positive integer or one of {list(words)}"
        raise ValueError(expected("n_mixtures", what, model.n_mixtures))
    _check_components(model.n_components, model.n_mixtures)
    check_choice("on_collapse", model.on_collapse, CollapseRules)
    check_flag("tied_noise", model.tied_noise)
    check_number("noise_floor", model.noise_floor, 0)
    check_number("tol", model.tol, 0)
    check_checkpoint(model)
    for name in ("max_iter", "n_init", "max_mixtures", "n_directions"):
        check_number(name, getattr(model, name), 1, integer=True)
    check_number("concentration", model.concentration, 0)
    if not (model.noise_floor > 0 and model.concentration > 0):
        raise ValueError("noise_floor and concentration must be positive, got 0.")
    if not isinstance(model.kernel_params, Mapping | None):
        raise ValueError(expected("kernel_params", "a dictionary or None", model.kernel_params))


def _check_components(asked: Any, mixtures: Any) -> None:
    """Refuse a number of directions that no data could satisfy."""
    what = f"a positive integer, one for each of n_mixtures, or one of {list(WORDS)}"
    if isinstance(asked, str):
        if asked not in WORDS:
            raise ValueError(expected("n_components", what, asked))
        if isinstance(mixtures, str) and mixtures != asked:
            raise ValueError(
                expected("n_components", f"an int or {mixtures!r}, as n_mixtures", asked)
            )
        return
    every = list(asked) if isinstance(asked, Sequence | np.ndarray) else [asked]
    if not every or not all(is_count(q) and q >= 1 for q in every):
        raise ValueError(expected("n_components", what, asked))
    if isinstance(asked, Sequence | np.ndarray) and len(every) != mixtures:
        remedy = "Give one int for all components, or n_mixtures as an int."
        raise ValueError(expected("n_components", f"of length {mixtures}", asked, remedy))


def check_sizes(model: Any, count: int, d: int) -> None:
    """Refuse sizes that `count` rows of d features cannot satisfy."""
    if is_count(model.n_mixtures) and model.n_mixtures > count:
        remedy = "A component needs a row to sit on: give fewer, or more rows."
        what = f"at most the number of rows, {count}"
        raise ValueError(expected("n_mixtures", what, model.n_mixtures, remedy))
    if not isinstance(model.n_components, str):
        most = int(np.max(model.n_components))
        if most > d:
            space = "features" if model.kernel is None else "directions of feature space"
            what = f"at most {d}, the number of {space}"
            raise ValueError(expected("n_components", what, most))


def recipe_of(model: Any, X: Array, weights: Array | None) -> Recipe:
    """Return how to fit these rows, once it is sure that there is something to fit."""
    refuse_infinite(X)
    return recipe_from(model, X, *column_starts(X, weights))


def recipe_from(
    model: Any, X: Array | ChunkedTable, seen: Array, mean: Array, variance: Array
) -> Recipe:
    """Return how to fit rows whose features have these numbers, means and variances."""
    refuse_empty_columns(seen)
    unit = float(backend.namespace(mean).mean(variance))
    check_unit(unit, X, mean)
    alpha = float(model.concentration) if model.n_mixtures == BOUND else None
    limits = Limits(float(model.tol), int(model.max_iter), model.on_collapse, alpha)
    return Recipe(float(model.noise_floor) * unit, bool(model.tied_noise), limits)


def fit_rows(model: Any, X: Array, weights: Array | None) -> Climbed:
    """Fit checked rows: sizes first, then all starts, of which the best is kept."""
    recipe = recipe_of(model, X, weights)
    K, q = _sizes(model, recipe, X, weights)
    return best_start(model, recipe, X, weights, K, q)


def fit_parts(model: Any, parts: ChunkedTable, columns: Columns, holes: bool) -> Climbed:
    """Fit a table in parts; of all starts, one after another, the best is kept."""
    if not is_count(model.n_mixtures) or isinstance(model.n_components, str):
        what = "ints (or n_mixtures='dirichlet') for data in parts: a choice would need all rows"
        got = (model.n_mixtures, model.n_components)
        if model.n_mixtures != BOUND or isinstance(model.n_components, str):
            raise ValueError(expected("n_mixtures and n_components", what, got))
    recipe = recipe_from(model, parts, columns.n, columns.mean, columns.variance)
    K = int(model.max_mixtures if model.n_mixtures == BOUND else model.n_mixtures)
    asked: Any = model.n_components
    q = int(asked) if isinstance(asked, Integral) else [int(one) for one in asked]
    rng = generator(0 if model.random_state is None else model.random_state)
    seeds = rng.integers(2**63 - 1, size=int(model.n_init))
    watch = watch_of(model)
    keeper = None if watch is None else watch.over(columns.rows, columns.mean, columns.variance)
    sizes = (columns.used, recipe, K, q)
    found = [
        fit_mixture_parts(parts, holes, *sizes, np.random.default_rng(int(s)), keeper)
        for s in seeds
    ]
    return max(found, key=lambda one: one.merit)


def best_start(
    model: Any, recipe: Recipe, X: Array, weights: Array | None, K: int, q: int | list[int]
) -> Climbed:
    """Climb from `n_init` starts side by side; keep the one of fewest collapses, then likeliest."""
    rng = generator(0 if model.random_state is None else model.random_state)
    seeds = rng.integers(2**63 - 1, size=int(model.n_init))
    work = (
        delayed(recipe.fit)(X, weights, K, q, np.random.default_rng(int(seed))) for seed in seeds
    )
    if len(seeds) == 1:
        rng = np.random.default_rng(int(seeds[0]))
        return recipe.fit(X, weights, K, q, rng, watch=watch_of(model))
    found: list[Climbed] = Parallel(n_jobs=model.n_jobs, prefer="threads")(work)
    return max(found, key=lambda one: one.merit)


def _sizes(
    model: Any, recipe: Recipe, X: Array, weights: Array | None
) -> tuple[int, int | list[int]]:
    """Return K and q: as given, or the best of those tried; the curve becomes `selection_`."""
    n, d, words = int(X.shape[0]), int(X.shape[1]), (model.n_mixtures, model.n_components)
    criterion = next((w for w in words if isinstance(w, str) and w in WORDS), None)
    K = min(int(model.max_mixtures), n) if isinstance(words[0], str) else int(words[0])
    q: Any = words[1]
    if not isinstance(q, str | Integral):
        q = [int(one) for one in q]
    if criterion is None:
        return K, q
    if criterion == "bic":
        score = by_bic(X, weights, lambda K, q: best_start(model, recipe, X, weights, K, q))
    else:
        score = by_held_out(X, weights, recipe, int(model.n_init), 0)
    mixtures = range(1, K + 1) if words[0] == criterion else [K]
    most = max(1, min(d - 1, MOST_COMPONENTS))
    components = list(range(1, most + 1)) if q == criterion else [int(q)]
    found = choose(criterion, score, mixtures, components)
    model.selection_ = found
    return found.chosen


def kernel_of(model: Any, X: Array) -> Any:
    """Return the kernel that the parameters mean, with numbers found from X in place of words."""
    return make_kernel(model.kernel, **dict(model.kernel_params or {})).resolve(X)


def grown(model: Any, stream: MixtureStream | None, X: Array, w: Array | None) -> MixtureStream:
    """Return a stream with one more chunk."""
    if not is_count(model.n_mixtures) or isinstance(model.n_components, str):
        what = "ints where partial_fit is used: rows are not kept for a choice"
        got = (model.n_mixtures, model.n_components)
        raise ValueError(expected("n_mixtures and n_components", what, got))
    old = MixtureStream(int(model.n_mixtures)) if stream is None else stream
    if old.K != model.n_mixtures:
        remedy = "Give all chunks to a new model."
        what = f"{old.K}, as when the stream began"
        raise ValueError(expected("n_mixtures", what, model.n_mixtures, remedy))
    return old.add(X, w, lambda rows, weights: fit_rows(model, rows, weights))


def warn_of_collapse(model: Any, found: Climbed) -> None:
    """Say which components are held at the floor, and how many were sown again or dropped."""
    held = found.mixture.emissions.at_floor()
    story = []
    if found.reseeded:
        story.append(f"{found.reseeded} times a component was sown again")
    if found.dropped:
        story.append(f"{found.dropped} components were dropped")
    if held:
        story.append(f"the noise of components {held[:10]} is held at noise_floor")
    if story:
        warn(
            f"components collapsed on too few rows: {', '.join(story)}. Use fewer mixtures or "
            "components, tied_noise=True, a larger noise_floor, or more starts (n_init).",
            CollapseWarning,
        )
