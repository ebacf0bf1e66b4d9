"""Kernel search against random search and the median heuristic: `python -m benchmarks search`.

Written down before any result was looked at:

- Five real tasks, `TASKS`. Each seed draws `TRAIN` rows for the search (folds, trials, refit) and
  up to `TEST` others, which nobody sees until the end. Columns are standardised by the training
  rows, images divided by their largest value instead.
- Contestants: TPE (the default); random draws from the same space with the same first trial,
  folds and budget; the median heuristic, an RBF of gamma='median' whose number of components is
  chosen by the same folds and objective among all of `GRID` that the task allows.
- Budget 50 trials, 3 folds, `SEEDS` seeds. The median heuristic has at most 10 trials.
- Measure: score on the outer test rows, paired by seed. All are shares of 1 (accuracy, R², or the
  share of the variance that comes back), so tasks are averaged as they are. Best inner scores,
  which is what a sampler can influence, are reported beside.

Linear PCA, its number of components chosen in the same way as the heuristic's, was added later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

from benchmarks.environment import DATA
from benchmarks.run import Row, Run
from dualpca import KernelSearch
from dualpca.kernels import RBF, Linear

TRAIN, TEST, TRIALS, FOLDS, SEEDS = 300, 1000, 50, 3, 10
GRID = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50)


def oil() -> tuple[np.ndarray, np.ndarray]:
    with np.load(DATA / "oil_flow.npz") as file:
        return file["X"].astype(np.float64), file["y"]


def images() -> tuple[np.ndarray, np.ndarray]:
    with np.load(DATA / "mnist10k.npz") as file:
        return file["images"] / 255.0, file["labels"]


def digits() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    return X / 16.0, y


@dataclass(frozen=True)
class Task:
    load: Callable[[], tuple[np.ndarray, np.ndarray]]
    objective: str
    n_components: Any
    measure: str
    standardise: bool = True


TASKS = {
    "digits": Task(digits, "score", (1, 10), "accuracy", standardise=False),
    "oil flow": Task(oil, "score", (1, 5), "accuracy"),
    "diabetes": Task(lambda: load_diabetes(return_X_y=True), "score", (1, 50), "R²"),
    "breast cancer": Task(
        lambda: load_breast_cancer(return_X_y=True), "reconstruction", (1, 50), "denoising Q²"
    ),
    "MNIST": Task(images, "reconstruction", 10, "Q², 10 components", standardise=False),
}


def split(task: Task, seed: int) -> tuple[np.ndarray, ...]:
    """Return training rows and targets, then those of the outer test."""
    X, y = task.load()
    order = np.random.default_rng(seed).permutation(len(X))
    train, test = order[:TRAIN], order[TRAIN : TRAIN + TEST]
    if task.standardise:
        X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    return X[train], y[train], X[test], y[test]


def searched(task: Task, sampler: str, seed: int) -> KernelSearch:
    return KernelSearch(
        objective=task.objective,
        n_components=task.n_components,
        n_trials=TRIALS,
        cv=FOLDS,
        sampler=sampler,
        random_state=seed,
    )


def plain(kernel: Any, task: Task, seed: int, X: np.ndarray, y: np.ndarray) -> KernelSearch:
    """Return a fixed kernel with the best number of components of the grid."""
    pair = task.n_components
    sizes = [pair] if isinstance(pair, int) else [q for q in GRID if pair[0] <= q <= pair[1]]
    noise = 0.0 if isinstance(pair, int) else 0.5
    fits = [
        KernelSearch(
            kernels=[kernel],
            compositions=(),
            objective=task.objective,
            n_components=q,
            noise=noise,
            n_trials=1,
            cv=FOLDS,
            random_state=seed,
        ).fit(X, y)
        for q in sizes
    ]
    return max(fits, key=lambda fit: fit.best_score_)


WHO = ("tpe", "random", "median", "linear")


def measured(task: Task, who: str, seed: int) -> tuple[float, float]:
    """Return the scores on the test rows and of the best trial."""
    X, y, new, target = split(task, seed)
    if who in ("tpe", "random"):
        fit = searched(task, who, seed).fit(X, y)
    else:
        fit = plain(RBF(gamma="median") if who == "median" else Linear(), task, seed, X, y)
    return fit.score(new, target), fit.best_score_


def rows(run: Run, part: str) -> Iterator[Row]:
    """Yield one row: means over seeds, and paired differences with their standard errors."""
    task = TASKS[part]
    test: dict[str, list[float]] = {who: [] for who in WHO}
    inner: dict[str, list[float]] = {who: [] for who in WHO}
    for seed in run.repeats(1 if run.quick else SEEDS, fewest=2, reserve=0.2):
        for who in WHO:
            outer, best = measured(task, who, seed)
            test[who].append(outer)
            inner[who].append(best)
    gaps = {
        "gain_random": np.subtract(test["tpe"], test["random"]),
        "gain_median": np.subtract(test["tpe"], test["median"]),
        "gain_linear": np.subtract(test["tpe"], test["linear"]),
        "gain_inner": np.subtract(inner["tpe"], inner["random"]),
    }
    row: Row = {"name": part, "measure": task.measure, "seeds": len(test["tpe"])}
    row |= {who: float(np.mean(values)) for who, values in test.items()}
    row["optimism"] = float(np.mean(inner["tpe"]) - np.mean(test["tpe"]))
    for key, gap in gaps.items():
        error = gap.std(ddof=1) / len(gap) ** 0.5 if len(gap) > 1 else None
        row |= {key: float(gap.mean()), f"{key}_error": error}
    yield row
