"""Where trials are kept: in memory, or in an SQLite file from which a stopped search goes on."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from dualpca.errors import expected

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
