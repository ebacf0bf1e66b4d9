"""The search itself: draw trials, judge them fold by fold, prune poor ones, keep a record.

A trial is drawn from nothing but the seed, its number and the trials of earlier batches. So the
answer does not depend on how many processes judge a batch, and a search that was stopped resumes
as if it had not been. Trials are kept in memory, or in an Optuna storage as well.
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from math import inf, isfinite
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from dualpca.arrays import Tick
from dualpca.errors import InterruptWarning, SearchError, expected, install, warn
from dualpca.kernels import Kernel
from dualpca.models.driver import try_candidates
from dualpca.search.spaces import Candidate, Space, optuna

# --- What is known of a trial --------------------------------------------------------------------


@dataclass(frozen=True)
class TrialRecord:
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
    seconds : float, default=0.0
    reason : str, default=''
        Why it failed.

    Examples
    --------
    >>> from dualpca.kernels import Linear
    >>> from dualpca.search.trials import TrialRecord
    >>> TrialRecord(0, "complete", 0.5, (0.5,), {}, Linear(), 3).score
    0.5
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


def best_trial(records: Sequence[TrialRecord]) -> TrialRecord:
    """Return the complete trial of largest score; of equal ones the smallest, then the earliest.

    Examples
    --------
    >>> from dualpca.kernels import Linear
    >>> a = TrialRecord(0, "complete", 0.5, (0.5,), {}, Linear(), 3)
    >>> b = TrialRecord(1, "complete", 0.5, (0.5,), {}, Linear(), 2)
    >>> c = TrialRecord(2, "pruned", 0.9, (0.9,), {}, Linear(), 2)
    >>> best_trial([a, b, c]).number
    1
    """
    done = [r for r in records if r.state == "complete" and r.score is not None]
    if not done:
        reasons = [r.reason for r in records if r.reason]
        first = f" The first said: {reasons[0]}" if reasons else ""
        raise SearchError(f"none of {len(records)} trials could be judged.{first}")
    return min(done, key=lambda r: (-(r.score or 0.0), r.n_components, r.number))


# --- Where trials are kept: in memory, or in an SQLite file from which a search resumes -----

MARK = "dualpca_search"


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
            Of the study; default: made from `mark`.
        mark : str
            What was searched, in short; a study made for anything else is refused.
        """
        if storage is None:
            return cls()
        if isinstance(storage, os.PathLike) or (isinstance(storage, str) and "://" not in storage):
            storage = "sqlite:///" + os.fspath(storage)
        study = optuna().create_study(
            storage=storage,
            study_name=f"dualpca-{mark[:16]}" if name is None else name,
            direction="maximize",
            load_if_exists=True,
        )
        known = study.user_attrs.get(MARK)
        if known is None and not study.trials:
            study.set_user_attr(MARK, mark)
        elif known != mark:
            what = "the study of the same rows, space, objective and folds"
            remedy = "Give another study_name, or None for a separate study."
            raise ValueError(expected("study_name", what, study.study_name, remedy))
        return cls(study, list(study.get_trials(deepcopy=False)))

    def add(self, trial: Any) -> None:
        """Add a finished trial."""
        if self.kept is not None:
            self.kept.add_trial(trial)
        self.trials.append(trial)


def make_sampler(sampler: Any, seed: int) -> Any:
    """Return a sampler for one trial; an object of Optuna's is used as it is."""
    if not isinstance(sampler, str):
        return sampler
    samplers = optuna().samplers
    if sampler == "random":
        return samplers.RandomSampler(seed=seed)
    if sampler == "gp":
        if find_spec("torch") is None:
            message = f"sampler='gp' needs torch: {install('gpu')}."
            raise ModuleNotFoundError(message, name="torch")
        # it models what all trials share; the rest of a conditional space is drawn evenly
        return samplers.GPSampler(
            seed=seed, deterministic_objective=True, warn_independent_sampling=False
        )
    return samplers.TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True)


def new_study(pruner: Any) -> Any:
    """Return a study in memory, without trials; a pruner of Optuna's is used as it is."""
    if pruner is None:
        pruner = optuna().pruners.NopPruner()
    elif isinstance(pruner, str):
        pruner = optuna().pruners.MedianPruner(n_startup_trials=10)
    return optuna().create_study(direction="maximize", pruner=pruner)


# --- The loop ------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """The score of one candidate in one fold, or the reason why there is none."""

    score: float | None
    reason: str = ""
    seconds: float = 0.0


Judge = Callable[[Sequence[tuple[Candidate, int]]], Sequence[Outcome]]
"""From candidates and folds to outcomes, possibly in parallel."""


@dataclass(frozen=True)
class Plan:
    """How to search.

    `sampler` is 'tpe', 'random', 'gp' or a sampler of Optuna's, `pruner` 'median', None or a
    pruner of Optuna's; a sampler that is an object keeps its own state, so such a search cannot be
    repeated after a stop.
    """

    n_trials: int
    n_folds: int
    seed: int = 0
    batch_size: int = 1
    timeout: float | None = None
    sampler: Any = "tpe"
    pruner: Any = "median"


@dataclass
class _Runner:
    """A trial that is being judged."""

    trial: Any
    candidate: Candidate
    scores: list[float] = field(default_factory=list)
    seconds: float = 0.0
    reason: str = ""
    pruned: bool = False

    def judged(self, outcome: Outcome, fold: int, *, last: bool) -> None:
        """Record the score of a fold, and decide whether to continue."""
        self.seconds += outcome.seconds
        score = outcome.score
        if score is None or not isfinite(score):
            self.reason = outcome.reason or f"the score is {score}"
            return
        self.scores.append(float(score))
        self.trial.report(float(np.mean(self.scores)), fold)
        self.pruned = not last and self.trial.should_prune()

    def close(self, study: Any) -> None:
        """Tell the study how the trial ended."""
        for name in RECORDED:
            self.trial.set_user_attr(name, getattr(self, name))
        states = optuna().trial.TrialState
        if self.reason:
            study.tell(self.trial, state=states.FAIL)
        elif self.pruned:
            study.tell(self.trial, state=states.PRUNED)
        else:
            study.tell(self.trial, float(np.mean(self.scores)))


RECORDED = ("scores", "seconds", "reason")
"""What a study keeps of a trial beside Optuna's own attributes."""


def run(space: Space, judge: Judge, plan: Plan, ledger: Ledger) -> list[TrialRecord]:
    """Search until the ledger holds `n_trials` trials, or time is up.

    An interruption by the keyboard keeps what is done.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> space = Space.of(X, ["rbf"], (), (1, 1))
    >>> def judge(jobs):  # the best width is 3
    ...     return [
    ...         Outcome(-(np.log(c.kernel.gamma * space.scales.distance**2 * 9) ** 2))
    ...         for c, _ in jobs
    ...     ]
    >>> trials = run(space, judge, Plan(25, 1), Ledger())
    >>> bool(max(t.score for t in trials) > -0.1)
    True
    """
    started, timeout = time.monotonic(), inf if plan.timeout is None else plan.timeout
    with quiet():
        study = new_study(plan.pruner)

        def batches() -> Iterator[range]:
            for start in range(0, plan.n_trials, plan.batch_size):
                numbers = range(start, min(start + plan.batch_size, plan.n_trials))
                late = time.monotonic() - started >= timeout
                if late and 0 < len(ledger.trials) < numbers.stop:
                    return  # the first trial is always made
                yield numbers

        def fit(numbers: range, tick: Tick) -> None:
            if len(ledger.trials) >= numbers.stop:
                study.add_trials(ledger.trials[numbers.start : numbers.stop])
            else:
                _batch(study, space, judge, plan, ledger, numbers)
            best = max(_scores(study.get_trials(deepcopy=False)), default=None)
            for _ in numbers:
                tick("" if best is None else f"best score {best:.4g}")

        label = "kernel search: trial"
        interrupted = try_candidates(batches(), fit, label=label, total=plan.n_trials)[1]
    if interrupted:
        if not _scores(ledger.trials):
            raise KeyboardInterrupt
        done = f"it rests on {len(ledger.trials)} of {plan.n_trials} trials."
        warn(f"the search was interrupted: {done}", InterruptWarning)
    return [record_of(t, space) for t in ledger.trials[: plan.n_trials]]


def _scores(trials: Sequence[Any]) -> list[float]:
    """Return the scores of the complete trials of Optuna's."""
    return [t.value for t in trials if t.state.name == "COMPLETE"]


def _batch(
    study: Any, space: Space, judge: Judge, plan: Plan, ledger: Ledger, numbers: range
) -> None:
    """Draw, judge and record one batch.

    The trials of a batch that was interrupted are not judged again if they are on record.
    """
    known = ledger.trials[numbers.start :]
    runners = [_drawn(study, space, plan, number) for number in numbers]
    fresh = runners[len(known) :]
    _judge_folds(fresh, judge, plan.n_folds)
    for runner, old in zip(runners, known, strict=False):  # as the record says that it went
        for fold, value in sorted(old.intermediate_values.items()):
            runner.trial.report(value, fold)
        found = {name: old.user_attrs[name] for name in RECORDED}
        replace(runner, **found, pruned=old.state.name == "PRUNED").close(study)
    for runner in fresh:
        runner.close(study)
        ledger.add(study.get_trials(deepcopy=False)[runner.trial.number])


def _drawn(study: Any, space: Space, plan: Plan, number: int) -> _Runner:
    """Draw a trial from the seed, its number and the trials of earlier batches."""
    seed = int(np.random.SeedSequence([plan.seed, number]).generate_state(1)[0])
    study.sampler = make_sampler(plan.sampler, seed)
    if number == 0:
        study.enqueue_trial(space.first())
    trial = study.ask()
    return _Runner(trial, space.draw(trial))


def _judge_folds(runners: list[_Runner], judge: Judge, n_folds: int) -> None:
    """Judge trials fold by fold; those that failed or were pruned are left out of the next."""
    for fold in range(n_folds):
        alive = [r for r in runners if not r.reason and not r.pruned]
        outcomes = judge([(r.candidate, fold) for r in alive]) if alive else []
        for runner, outcome in zip(alive, outcomes, strict=True):
            runner.judged(outcome, fold, last=fold == n_folds - 1)


def record_of(trial: Any, space: Space) -> TrialRecord:
    """Return what is known of a finished trial of Optuna's."""
    scores, seconds, reason = (trial.user_attrs[name] for name in RECORDED)
    state = {"FAIL": "failed"}.get(trial.state.name, trial.state.name.lower())
    score = None if state == "failed" else float(np.mean(scores))
    known = (trial.number, state, score, tuple(scores), dict(trial.params))
    return TrialRecord(*known, *space.replay(trial.params), float(seconds), reason)


# --- How much of the scores each parameter explains ----------------------------------------------

BINS, LEAST_TRIALS = 4, 8
"""Numbers are cut into quarters of the trials; with fewer trials nothing is said."""


def importances(records: Sequence[TrialRecord]) -> dict[str, float]:
    """Return the share of the variance of the scores that each parameter explains alone.

    ω² = (SS_b − (g − 1) MS_w)/(SS + MS_w) of a one-way analysis of variance over the g choices (or
    quarters of a range), 0 where chance explains as much (Hays 1963). Only the trials that have a
    parameter count for it. Scores are replaced by their ranks, so that one very bad trial does not
    decide; trials that were pruned count with what they had reached. A search draws good regions
    more often: this says what mattered there, not over the whole space. (Optuna's default, fANOVA,
    leaves out parameters that only some trials have, such as the width of one family.)

    Examples
    --------
    >>> from dualpca.kernels import Linear
    >>> trials = [
    ...     TrialRecord(
    ...         i, "complete", i % 2 + 0.01 * (i % 3), (), {"a": i % 2, "b": i % 3}, Linear(), 1
    ...     )
    ...     for i in range(24)
    ... ]
    >>> found = importances(trials)
    >>> found["a"] > 0.7, found["b"] < 0.3
    (True, True)
    """
    judged, found = [r for r in records if r.score is not None], {}
    for name in dict.fromkeys(name for r in judged for name in r.params):
        mine = [r for r in judged if name in r.params]
        if len(mine) >= LEAST_TRIALS:
            ranks = rankdata([r.score for r in mine])
            found[name] = _explained(_groups([r.params[name] for r in mine]), ranks)
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def _groups(values: list[Any]) -> Any:
    """Return the group of every value: itself where there are few, its quarter of a range else."""
    distinct = sorted(set(values), key=str)
    numbers = all(isinstance(v, Real) and not isinstance(v, bool) for v in distinct)
    if not numbers or len(distinct) <= BINS:
        return np.array([distinct.index(v) for v in values])
    x = np.array(values, dtype=np.float64)
    return np.searchsorted(np.quantile(x, np.arange(1, BINS) / BINS), x, side="right")


def _explained(groups: Any, y: Any) -> float:
    """Return ω², at least 0."""
    total = float(np.sum((y - y.mean()) ** 2))
    parts = [y[groups == g] for g in np.unique(groups)]
    within = sum(float(np.sum((part - part.mean()) ** 2)) for part in parts)
    free = len(y) - len(parts)
    if len(parts) < 2 or free < 1 or total == 0:
        return 0.0
    noise = within / free
    return max(0.0, (total - within - (len(parts) - 1) * noise) / (total + noise))
