"""The search itself: draw trials, judge them fold by fold, drop the hopeless, keep a record.

A trial is drawn from nothing but the seed, its number and the trials of earlier batches. So the
answer does not depend on how many processes judge a batch, and a search that was stopped goes on
as if it had not been.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from dualpca.arrays import task
from dualpca.errors import InterruptWarning, warn
from dualpca.search.spaces import Candidate, Space
from dualpca.search.trials import Ledger, Record, make_sampler, new_study, optuna, quiet


class Outcome(NamedTuple):
    """What came of one candidate in one fold: a score, or the reason why there is none."""

    score: float | None
    reason: str = ""
    seconds: float = 0.0


Judge = Callable[[Sequence[tuple[Candidate, int]]], Sequence[Outcome]]
"""From candidates and folds to outcomes, side by side if it likes."""


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
    """A trial on its way."""

    trial: Any
    candidate: Candidate
    scores: list[float] = field(default_factory=list)
    seconds: float = 0.0
    reason: str = ""
    pruned: bool = False

    @property
    def alive(self) -> bool:
        return not self.reason and not self.pruned


def run(space: Space, judge: Judge, plan: Plan, ledger: Ledger) -> list[Record]:
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
    started = time.monotonic()
    with quiet(), task("kernel search: trial", plan.n_trials) as tick:
        study = new_study(plan.pruner)
        try:
            for start in range(0, plan.n_trials, plan.batch_size):
                size = min(plan.batch_size, plan.n_trials - start)
                if len(ledger.trials) >= start + size:
                    study.add_trials(ledger.trials[start : start + size])
                elif plan.timeout is not None and _late(started, plan.timeout, ledger):
                    break
                else:
                    _batch(study, space, judge, plan, ledger, range(start, start + size))
                for _ in range(size):
                    tick(_note(study))
        except KeyboardInterrupt:
            _warn_interrupted(ledger, plan.n_trials)
    return [record_of(t, space) for t in ledger.trials[: plan.n_trials]]


def _late(started: float, timeout: float, ledger: Ledger) -> bool:
    """Tell whether time is up; the first trial is always made."""
    return bool(ledger.trials) and time.monotonic() - started >= timeout


def _batch(
    study: Any, space: Space, judge: Judge, plan: Plan, ledger: Ledger, numbers: range
) -> None:
    """Draw, judge and record one batch.

    Of a batch that was stopped half-way the trials that are on record are not judged again.
    """
    known = ledger.trials[numbers.start :]
    runners = [_drawn(study, space, plan, number) for number in numbers]
    fresh = runners[len(known) :]
    for fold in range(plan.n_folds):
        alive = [r for r in fresh if r.alive]
        outcomes = judge([(r.candidate, fold) for r in alive]) if alive else []
        for runner, outcome in zip(alive, outcomes, strict=True):
            _note_outcome(runner, outcome, fold, last=fold == plan.n_folds - 1)
    for runner, old in zip(runners, known, strict=False):
        _repeat(study, runner, old)
    for runner in fresh:
        _tell(study, runner)
        ledger.add(study.get_trials(deepcopy=False)[runner.trial.number])


def _drawn(study: Any, space: Space, plan: Plan, number: int) -> _Runner:
    """Draw a trial; the first is the heuristic."""
    seed = int(np.random.SeedSequence([plan.seed, number]).generate_state(1)[0])
    study.sampler = make_sampler(plan.sampler, seed)
    if number == 0:
        study.enqueue_trial(space.first())
    trial = study.ask()
    return _Runner(trial, space.draw(trial))


def _note_outcome(runner: _Runner, outcome: Outcome, fold: int, *, last: bool) -> None:
    """Take down the score of a fold, and ask whether to go on."""
    runner.seconds += outcome.seconds
    score = outcome.score
    if score is None or not isfinite(score):
        runner.reason = outcome.reason or f"the score is {score}"
        return
    runner.scores.append(float(score))
    runner.trial.report(float(np.mean(runner.scores)), fold)
    runner.pruned = not last and runner.trial.should_prune()


def _tell(study: Any, runner: _Runner) -> None:
    """Close a trial."""
    states = optuna().trial.TrialState
    attributes = {"scores": runner.scores, "seconds": runner.seconds, "reason": runner.reason}
    for name, value in attributes.items():
        runner.trial.set_user_attr(name, value)
    if runner.reason:
        study.tell(runner.trial, state=states.FAIL)
    elif runner.pruned:
        study.tell(runner.trial, state=states.PRUNED)
    else:
        study.tell(runner.trial, float(np.mean(runner.scores)))


def _repeat(study: Any, runner: _Runner, old: Any) -> None:
    """Close a trial as the record says that it went."""
    for fold, value in sorted(old.intermediate_values.items()):
        runner.trial.report(value, fold)
    runner.scores = list(old.user_attrs["scores"])
    runner.seconds, runner.reason = old.user_attrs["seconds"], old.user_attrs["reason"]
    runner.pruned = old.state.name == "PRUNED"
    _tell(study, runner)


def _note(study: Any) -> str:
    """Return the best score so far, in words."""
    scores = [t.value for t in study.get_trials(deepcopy=False) if t.state.name == "COMPLETE"]
    return f"best score {max(scores):.4g}" if scores else ""


def _warn_interrupted(ledger: Ledger, n_trials: int) -> None:
    if not any(t.state.name == "COMPLETE" for t in ledger.trials):
        raise KeyboardInterrupt
    warn(
        f"the search was interrupted: it rests on {len(ledger.trials)} of {n_trials} trials.",
        InterruptWarning,
    )


STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}


def record_of(trial: Any, space: Space) -> Record:
    """Return what is known of a finished trial of Optuna's."""
    kernel, q = space.replay(trial.params)
    scores = tuple(trial.user_attrs["scores"])
    state = STATES[trial.state.name]
    return Record(
        trial.number,
        state,
        None if state == "failed" else float(np.mean(scores)),
        scores,
        dict(trial.params),
        kernel,
        q,
        float(trial.user_attrs["seconds"]),
        trial.user_attrs["reason"],
    )
