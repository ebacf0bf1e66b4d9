"""How many components of how many directions: BIC or the likelihood of held-out rows (MATH 6)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.mixture_em import Climbed
from dualpca.mixture_fit import Recipe
from dualpca.progress import task

FOLDS = 5
PATIENCE = 2
"""Sizes in a row that may be worse than the best before larger ones are left alone."""

Fit = Callable[[int, int], float]
"""K, q ↦ how good the mixture is; larger is better."""


class MixtureSelection(NamedTuple):
    """What was tried, what it was worth, and what was chosen."""

    criterion: str
    candidates: list[tuple[int, int]]  # (K, q)
    scores: list[float]  # −BIC/2, or held-out log-density a row; larger is better
    chosen: tuple[int, int]


def bic(climbed: Climbed, loglikelihood: float, n: float) -> float:
    """Return −2 ln L + p ln n; lower is better."""
    return -2 * loglikelihood + climbed.mixture.n_parameters() * math.log(n)


def by_bic(X: Array, weights: Array | None, fit: Callable[[int, int], Climbed]) -> Fit:
    """Return −BIC/2 as a function of K and q (Schwarz 1978)."""
    n = float(X.shape[0] if weights is None else _array.namespace(X).sum(weights))

    def score(K: int, q: int) -> float:
        found = fit(K, q)
        return -0.5 * bic(found, found.record.loglikelihoods[-1], n)

    return score


def by_held_out(X: Array, weights: Array | None, recipe: Recipe, n_init: int, seed: int) -> Fit:
    """Return the log-density a row of held-out rows, in five folds, as a function of K and q."""
    n = int(X.shape[0])
    order = np.random.default_rng(seed).permutation(n)
    cut = np.array_split(order, min(FOLDS, n))
    w = np.ones(n) if weights is None else np.asarray(_array.to_numpy(weights))

    def score(K: int, q: int) -> float:
        total = 0.0
        for held in cut:
            kept = np.setdiff1d(order, held)
            if kept.size < K:
                return -math.inf
            rows, own = _array.take(X, kept), _array.asarray(w[kept], X)
            rng = np.random.default_rng([seed, K, q])
            best = max(
                (recipe.fit(rows, own, K, q, rng) for _ in range(n_init)), key=lambda f: f.merit
            )
            density = best.mixture.log_density(_array.take(X, held))
            total += float(w[held] @ _array.to_numpy(density))
        return total / float(np.sum(w))

    return score


def choose(
    criterion: str, score: Fit, mixtures: Iterable[int], components: Sequence[int]
) -> MixtureSelection:
    """Score K = 1, 2, … and for each q = 1, 2, …, until two in a row are worse than the best.

    Examples
    --------
    >>> found = choose("bic", lambda K, q: -abs(K - 3) - abs(q - 2), range(1, 9), range(1, 9))
    >>> found.chosen, len(found.candidates)
    ((3, 2), 20)
    """
    sizes, tried, scores = list(mixtures), list[tuple[int, int]](), list[float]()
    best_of: list[float] = []
    with task("candidate", len(sizes) * len(components)) as tick:
        for K in sizes:
            row: list[float] = []
            for q in components:
                row.append(score(K, q))
                tick(f"K = {K}, q = {q}")
                tried.append((K, q))
                if _given_up(row):
                    break
            scores.extend(row)
            best_of.append(max(row))
            if _given_up(best_of):
                break
    chosen = tried[int(np.argmax(scores))]
    return MixtureSelection(criterion, tried, scores, chosen)


def _given_up(scores: list[float]) -> bool:
    """Tell whether the last few are all worse than the best."""
    return len(scores) - 1 - int(np.argmax(scores)) >= PATIENCE
