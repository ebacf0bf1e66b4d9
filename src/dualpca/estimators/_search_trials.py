"""One candidate of a kernel search in one fold: fit, look at what was held out, judge."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from dualpca.arrays import Array
from dualpca.search import Candidate, Outcome, agreement, normalised_likelihood, q2

Index = np.ndarray[Any, np.dtype[np.intp]]


@dataclass(frozen=True, eq=False)
class Task:
    """What all candidates have in common."""

    estimator: Any
    X: Array
    y: Any
    folds: list[tuple[Index, Index]]
    objective: str
    noise: float = 0.0
    seed: int = 0
    final: Any = None
    scorer: Any = None

    def model(self, candidate: Candidate) -> Any:
        """Return the estimator with the candidate's kernel and number of components."""
        return clone(self.estimator).set_params(
            kernel=candidate.kernel, n_components=candidate.n_components
        )


def judged(task: Task, candidate: Candidate, fold: int) -> Outcome:
    """Return the score in one fold; whatever goes wrong is a reason, never an end of the search."""
    started = time.perf_counter()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # fifty trials would say it fifty times
            score, reason = OBJECTIVES[task.objective](task, candidate, fold), ""
    except Exception as error:
        score, reason = None, f"{type(error).__name__}: {error}"
    return Outcome(score, reason, time.perf_counter() - started)


def spread_of(X: Array) -> float:
    """Return the root of the mean variance of the columns."""
    return float(np.sqrt(np.mean(np.var(X, axis=0))))


def corrupted(rows: Array, size: float, seed: int) -> Array:
    """Return rows with white noise of standard deviation `size`; the same draw for everyone."""
    if not size:
        return rows
    draws = np.random.default_rng(seed).standard_normal(rows.shape)
    return (rows + size * draws).astype(rows.dtype)


def rebuilt(model: Any, rows: Array) -> Array:
    """Return rows from their latents."""
    return np.asarray(model.inverse_transform(model.transform(rows)), dtype=np.float64)


def _reconstruction(task: Task, candidate: Candidate, fold: int) -> float:
    train, rows = (task.X[part] for part in task.folds[fold])
    noisy = corrupted(rows, task.noise * spread_of(train), task.seed + fold)
    model = task.model(candidate).fit(train)
    return q2(rows, rebuilt(model, noisy), train.mean(axis=0))


def _downstream(task: Task, candidate: Candidate, fold: int) -> float:
    train, held = task.folds[fold]
    chain = make_pipeline(task.model(candidate), clone(task.final))
    chain.fit(task.X[train], task.y[train])
    return float(task.scorer(chain, task.X[held], task.y[held]))


def _stability(task: Task, candidate: Candidate, fold: int) -> float:
    train, held = task.folds[fold]
    order = np.random.default_rng(task.seed + fold).permutation(train)
    latents = [
        np.asarray(task.model(candidate).fit(task.X[np.sort(half)]).transform(task.X[held]))
        for half in np.array_split(order, 2)
    ]
    return agreement(*latents)


def _likelihood(task: Task, candidate: Candidate, fold: int) -> float:
    return normalised_likelihood(task.X, candidate.kernel, candidate.n_components)


OBJECTIVES: dict[str, Callable[[Task, Candidate, int], float]] = {
    "reconstruction": _reconstruction,
    "score": _downstream,
    "stability": _stability,
    "likelihood": _likelihood,
}
