"""What is known of the trials of a search, where they are kept, and which parameters mattered."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from numbers import Real
from typing import Any

import numpy as np

from dualpca.errors import SearchError, expected
from dualpca.kernels import Kernel

# --- What is known of a trial --------------------------------------------------------------------


@dataclass(frozen=True)
class Record:
    """One trial of a search.

    Attributes
    ----------
    number : int
        From 0.
    state : {'complete', 'pruned', 'failed'}
    score : float or None
        Mean over the folds, larger is better; None where the trial failed.
    scores : tuple of float
        Of every fold that was judged.
    params : dict
        What was drawn.
    kernel : Kernel
    n_components : int
    seconds : float
    reason : str
        Why it failed.
    """

    number: int
    state: str
    score: float | None
    scores: tuple[float, ...]
    params: dict[str, Any]
    kernel: Kernel
    n_components: int
    seconds: float = 0.0
    reason: str = ""


def best_of(records: Sequence[Record]) -> Record:
    """Return the complete trial of largest score; of equal ones the smallest, then the earliest.

    Examples
    --------
    >>> from dualpca.kernels import Linear
    >>> a = Record(0, "complete", 0.5, (0.5,), {}, Linear(), 3)
    >>> b = Record(1, "complete", 0.5, (0.5,), {}, Linear(), 2)
    >>> c = Record(2, "pruned", 0.9, (0.9,), {}, Linear(), 2)
    >>> best_of([a, b, c]).number
    1
    """
    done = [r for r in records if r.state == "complete" and r.score is not None]
    if not done:
        reasons = [r.reason for r in records if r.reason]
        first = f" The first said: {reasons[0]}" if reasons else ""
        raise SearchError(f"none of {len(records)} trials could be judged.{first}")
    return min(done, key=lambda r: (-(r.score or 0.0), r.n_components, r.number))


# --- Where trials are kept: in memory, or in an SQLite file from which a stopped search goes on --

MARK = "dualpca_search"


def optuna() -> Any:
    """Import Optuna, or say which extra brings it."""
    try:
        import optuna as module
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "optuna":
            raise
        message = "KernelSearch needs Optuna: pip install 'dualpca[search]'"
        raise ModuleNotFoundError(message, name="optuna") from error
    return module


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Optuna from talking about every trial and about features it calls experimental."""
    module = optuna()
    before = module.logging.get_verbosity()
    module.logging.set_verbosity(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", module.exceptions.ExperimentalWarning)
            yield
    finally:
        module.logging.set_verbosity(before)


@dataclass
class Ledger:
    """The finished trials of a search, in order; only whole trials are ever written.

    A search that was killed loses the trials it was at, and nothing is left half done.

    Parameters
    ----------
    kept : optuna Study or None
        Where they are kept beside memory.
    """

    kept: Any = None
    trials: list[Any] = field(default_factory=list)

    @classmethod
    def open(cls, storage: Any, name: str | None, mark: str) -> Ledger:
        """Open a ledger, with the trials it already has.

        Parameters
        ----------
        storage : None, path, URL or optuna storage
            A path is that of an SQLite file, made where there is none.
        name : str, optional
            Of the study; made from `mark` unless given.
        mark : str
            What was searched, in short; a study made for anything else is refused.
        """
        if storage is None:
            return cls()
        study = optuna().create_study(
            storage=_url(storage),
            study_name=f"dualpca-{mark[:16]}" if name is None else name,
            direction="maximize",
            load_if_exists=True,
        )
        known = study.user_attrs.get(MARK)
        if known is None and not study.trials:
            study.set_user_attr(MARK, mark)
        elif known != mark:
            what = "the study of the same rows, space, objective and folds"
            remedy = "Give another study_name, or None for a name of its own."
            raise ValueError(expected("study_name", what, study.study_name, remedy))
        return cls(study, list(study.get_trials(deepcopy=False)))

    def add(self, trial: Any) -> None:
        """Add a finished trial."""
        if self.kept is not None:
            self.kept.add_trial(trial)
        self.trials.append(trial)


def _url(storage: Any) -> Any:
    """Return a path as the address of an SQLite file."""
    if isinstance(storage, os.PathLike) or (isinstance(storage, str) and "://" not in storage):
        return "sqlite:///" + os.fspath(storage)
    return storage


def make_sampler(sampler: Any, seed: int) -> Any:
    """Return a sampler for one trial; an object of Optuna's is taken as it is."""
    if not isinstance(sampler, str):
        return sampler
    samplers = optuna().samplers
    if sampler == "random":
        return samplers.RandomSampler(seed=seed)
    if sampler == "gp":
        if find_spec("torch") is None:
            message = "sampler='gp' needs torch: pip install 'dualpca[gpu]'"
            raise ModuleNotFoundError(message, name="torch")
        # it models what all trials share; the rest of a conditional space is drawn evenly
        return samplers.GPSampler(
            seed=seed, deterministic_objective=True, warn_independent_sampling=False
        )
    return samplers.TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True)


def make_pruner(pruner: Any) -> Any:
    """Return a pruner; an object of Optuna's is taken as it is."""
    pruners = optuna().pruners
    if pruner is None:
        return pruners.NopPruner()
    if isinstance(pruner, str):
        return pruners.MedianPruner(n_startup_trials=10)
    return pruner


def new_study(pruner: Any) -> Any:
    """Return a study in memory, without trials."""
    return optuna().create_study(direction="maximize", pruner=make_pruner(pruner))


# --- How much of the scores each parameter explains ----------------------------------------------

BINS, LEAST = 4, 8
"""Numbers are cut into quarters of the trials; with fewer trials nothing is said."""


def importances(records: Sequence[Record]) -> dict[str, float]:
    """Return the share of the variance of the scores that each parameter explains alone.

    ω² = (SS_b − (g − 1) MS_w)/(SS + MS_w) of a one-way analysis of variance over the g choices (or
    quarters of a range), 0 where chance explains as much (Hays 1963). Only the trials that have a
    parameter count for it. Scores are replaced by their ranks, so that one dreadful trial does not
    decide; trials that were pruned count with what they had reached. A search draws good regions
    more often: this says what mattered there, not over the whole space.

    Examples
    --------
    >>> from dualpca.kernels import Linear
    >>> trials = [
    ...     Record(i, "complete", i % 2 + 0.01 * (i % 3), (), {"a": i % 2, "b": i % 3}, Linear(), 1)
    ...     for i in range(24)
    ... ]
    >>> found = importances(trials)
    >>> found["a"] > 0.7, found["b"] < 0.3
    (True, True)
    """
    judged = [r for r in records if r.score is not None]
    names = list(dict.fromkeys(name for r in judged for name in r.params))
    found = {}
    for name in names:
        mine = [r for r in judged if name in r.params]
        if len(mine) >= LEAST:
            scores = np.array([r.score for r in mine], dtype=np.float64)
            found[name] = _share(_groups([r.params[name] for r in mine]), _ranks(scores))
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def _ranks(values: Any) -> Any:
    """Return ranks, equal ones shared."""
    return (values[:, None] > values).sum(axis=1) + 0.5 * (values[:, None] == values).sum(axis=1)


def _groups(values: list[Any]) -> Any:
    """Return the group of every value: itself where there are few, its quarter of a range else."""
    distinct = sorted(set(values), key=str)
    numbers = all(isinstance(v, Real) and not isinstance(v, bool) for v in distinct)
    if not numbers or len(distinct) <= BINS:
        return np.array([distinct.index(v) for v in values])
    x = np.array(values, dtype=np.float64)
    return np.searchsorted(np.quantile(x, np.arange(1, BINS) / BINS), x, side="right")


def _share(groups: Any, y: Any) -> float:
    """Return ω², at least 0."""
    total = float(np.sum((y - y.mean()) ** 2))
    parts = [y[groups == g] for g in np.unique(groups)]
    within = sum(float(np.sum((part - part.mean()) ** 2)) for part in parts)
    free = len(y) - len(parts)
    if len(parts) < 2 or free < 1 or total == 0:
        return 0.0
    noise = within / free
    return max(0.0, (total - within - (len(parts) - 1) * noise) / (total + noise))
