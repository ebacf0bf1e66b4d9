"""Kernel search against random search and the median heuristic: `python -m benchmarks.search`.

Written down before any result was looked at:

- Five real tasks, `TASKS`. Each seed draws `TRAIN` rows for the search (folds, trials, refit) and
  up to `TEST` others, which nobody sees until the end. Columns are standardised by the training
  rows, images divided by their largest value instead.
- Contestants: TPE (the default); random draws from the same space with the same first trial,
  folds and budget; the median heuristic, an RBF of gamma='median' whose number of components is
  chosen by the same folds and objective among all of `GRID` that the task allows.
- Budget 50 trials, 3 folds, `SEEDS` seeds. The median heuristic has at most 10 trials.
- Measure: score on the outer test rows, paired by seed. All are shares of 1 (accuracy, R², or the
  share of the variance that comes back), so tasks are averaged as they are. TPE must beat random
  search on average over the tasks, and the heuristic on four of them. Best inner scores, which is
  what a sampler can influence, are reported beside.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

from dualpca import KernelSearch
from dualpca.kernels import RBF

DATA = Path(os.environ.get("DUALPCA_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
TRAIN, TEST, TRIALS, FOLDS, SEEDS = 300, 1000, 50, 3, 10
GRID = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50)
OUT = Path(__file__).parent / "out" / "search.jsonl"


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


def heuristic(task: Task, seed: int, X: np.ndarray, y: np.ndarray) -> KernelSearch:
    """Return the median heuristic with the best number of components of the grid."""
    pair = task.n_components
    sizes = [pair] if isinstance(pair, int) else [q for q in GRID if pair[0] <= q <= pair[1]]
    noise = 0.0 if isinstance(pair, int) else 0.5
    fits = [
        KernelSearch(
            kernels=[RBF(gamma="median")],
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


def measured(name: str, who: str, seed: int) -> dict[str, Any]:
    task = TASKS[name]
    X, y, new, target = split(task, seed)
    started = time.perf_counter()
    if who == "median":
        fit = heuristic(task, seed, X, y)
    else:
        fit = searched(task, who, seed).fit(X, y)
    best = fit.best_trial_
    return {
        "task": name,
        "who": who,
        "seed": seed,
        "test": fit.score(new, target),
        "inner": fit.best_score_,
        "seconds": round(time.perf_counter() - started, 2),
        "states": [
            sum(t.state == s for t in fit.trials_) for s in ("complete", "pruned", "failed")
        ],
        "kernel": repr(best.kernel),
        "q": best.n_components,
    }


def summary(rows: list[dict[str, Any]]) -> str:
    """Return the table: means over seeds, and paired differences with their standard errors."""
    heads = "task | measure | TPE | random | median | TPE − random | TPE − median | inner T. − r."
    lines = [
        f"| {heads} |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    gains = []
    for name, task in TASKS.items():
        table = {
            (r["who"], key): np.array([r[key] for r in ordered])
            for who in ("tpe", "random", "median")
            for key in ("test", "inner")
            for ordered in [sorted(_of(rows, name, who), key=lambda r: r["seed"])]
            for r in ordered[:1]
        }
        means = [f"{table[who, 'test'].mean():.4f}" for who in ("tpe", "random", "median")]
        pairs = (("random", "test"), ("median", "test"), ("random", "inner"))
        gaps = [table["tpe", key] - table[who, key] for who, key in pairs]
        gains.append([gap.mean() for gap in gaps])
        shown = [f"{g.mean():+.4f} ± {g.std(ddof=1) / len(g) ** 0.5:.4f}" for g in gaps]
        lines.append(f"| {name} | {task.measure} | " + " | ".join(means + shown) + " |")
    mean = " | ".join(f"{g:+.4f}" for g in np.mean(gains, axis=0))
    return "\n".join([*lines, f"| average | | | | | {mean} |"])


def _of(rows: list[dict[str, Any]], name: str, who: str) -> list[dict[str, Any]]:
    return [r for r in rows if r["task"] == name and r["who"] == who]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--out", type=Path, default=OUT)
    chosen = parser.parse_args()
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    text = chosen.out.read_text() if chosen.out.exists() else ""
    rows = [json.loads(line) for line in text.splitlines()]
    done = {(r["task"], r["who"], r["seed"]) for r in rows}
    for seed in range(chosen.seeds):
        for name in TASKS:
            for who in ("tpe", "random", "median"):
                if (name, who, seed) not in done:
                    rows.append(measured(name, who, seed))
                    with chosen.out.open("a") as file:
                        file.write(json.dumps(rows[-1]) + "\n")
    print(summary(rows))


if __name__ == "__main__":
    main()
