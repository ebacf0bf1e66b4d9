"""The loop of a kernel search and its record: draws, pruning, failures, resuming."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import optuna
import pytest

from dualpca.errors import InterruptWarning, SearchError
from dualpca.kernels import Kernel, Linear
from dualpca.search.spaces import Space
from dualpca.search.trials import Ledger, Outcome, Plan, TrialRecord, best_trial, importances, run
from tests.oracles import search as oracles
from tests.search.cases import table

pytest.importorskip("optuna", reason="the search extra is not installed")


# --- the loop -------------------------------------------------------------------------

X0 = table()


def small(**options):
    given = {"kernels": ["rbf", "matern"], "compositions": (), "components": (1, 8)} | options
    return Space.of(X0, given["kernels"], given["compositions"], given["components"])


def score(candidate, fold):
    """Return a smooth score with one maximum: near q = 3, kernel wide, and a fold's own level."""
    value = float(candidate.kernel(X0[:1], X0[1:2])[0, 0])
    return -abs(value - 0.8) - 0.1 * abs(np.log(candidate.n_components / 3)) + 0.01 * fold


class Judge:
    """Score jobs, and remember them."""

    def __init__(self, of=score):
        self.of, self.jobs = of, []

    def __call__(self, jobs):
        self.jobs += jobs
        return [Outcome(self.of(*job)) for job in jobs]


def same(one, other):
    assert [(t.params, t.scores, t.state) for t in one] == [
        (t.params, t.scores, t.state) for t in other
    ]


def test_trials_are_recorded_and_start_with_the_heuristic():
    space = small()
    trials = run(space, Judge(), Plan(20, 2), Ledger())
    assert [t.number for t in trials] == list(range(20))
    assert trials[0].params == space.first() == {"n_components": 3, "kernel": "rbf", "width": 1.0}
    for t in trials:
        kernel, q = space.replay(t.params)
        assert isinstance(kernel, Kernel)
        assert (t.kernel, t.n_components) == (kernel, q)
        assert t.scores == tuple(score((space.replay(t.params)), f) for f in range(len(t.scores)))
        assert t.score == np.mean(t.scores)


def test_draws_learn():
    gaps = []
    for seed in range(5):
        best = [
            max(
                t.score
                for t in run(small(), Judge(), Plan(40, 1, seed, sampler=s, pruner=None), Ledger())
            )
            for s in ("tpe", "random")
        ]
        gaps.append(best[0] - best[1])
    assert np.mean(gaps) > 0


def test_random_draws_differ_and_are_those_of_the_ranges():
    trials = run(small(), Judge(), Plan(60, 1, sampler="random", pruner=None), Ledger())[1:]
    widths = np.log10([t.params["width"] for t in trials])
    assert len(set(widths)) == 59
    assert -1 <= widths.min() < -0.7 and 0.7 < widths.max() <= 1
    assert {t.n_components for t in trials} == set(range(1, 9))


def test_hopeless_trials_are_dropped_after_a_fold():
    judge = Judge()
    trials = run(small(), judge, Plan(30, 3), Ledger())
    pruned = [t for t in trials if t.state == "pruned"]
    assert pruned and all(len(t.scores) < 3 for t in pruned)
    assert all(len(t.scores) == 3 for t in trials if t.state == "complete")
    assert len(judge.jobs) == sum(len(t.scores) for t in trials) < 90
    kept = run(small(), Judge(), Plan(30, 3, pruner=None), Ledger())
    assert {t.state for t in kept} == {"complete"}


def test_failures_are_recorded_and_never_win():
    def fragile(candidate, fold):
        if candidate.n_components == 2:
            return float("nan")
        if candidate.n_components == 4:
            return float("inf")
        return score(candidate, fold)

    trials = run(small(), Judge(fragile), Plan(40, 1), Ledger())
    failed = [t for t in trials if t.state == "failed"]
    assert {t.n_components for t in failed} == {2, 4}
    assert {t.reason for t in failed} == {"the score is nan", "the score is inf"}
    assert all(t.score is None for t in failed)
    assert best_trial(trials).n_components not in (2, 4)


def test_when_all_fail_the_reason_is_said():
    def judge(jobs):
        return [Outcome(None, "ValueError: no luck") for _ in jobs]

    trials = run(small(), judge, Plan(3, 2), Ledger())
    with pytest.raises(SearchError, match=r"none of 3 trials.*no luck"):
        best_trial(trials)


def test_of_equal_trials_the_smallest_wins():
    def record(number, state, value, q):
        return TrialRecord(number, state, value, (), {}, Linear(), q)

    trials = [record(0, "complete", 1.0, 5), record(1, "complete", 1.0, 2)]
    trials += [record(2, "complete", 1.0, 2), record(3, "pruned", 2.0, 1)]
    assert best_trial(trials).number == 1


def test_the_seed_decides():
    first, again = (run(small(), Judge(), Plan(15, 2, seed=3), Ledger()) for _ in range(2))
    same(first, again)
    other = run(small(), Judge(), Plan(15, 2, seed=4), Ledger())
    assert [t.params for t in other[1:]] != [t.params for t in first[1:]]


def test_a_batch_is_drawn_before_it_is_judged():
    judge = Judge()
    run(small(), judge, Plan(9, 1, batch_size=4), Ledger())
    assert len(judge.jobs) == 9
    sizes = []

    def counting(jobs):
        sizes.append(len(jobs))
        return Judge()(jobs)

    run(small(), counting, Plan(9, 1, batch_size=4), Ledger())
    assert sizes == [4, 4, 1]


def test_time_that_is_up_leaves_one_trial():
    assert len(run(small(), Judge(), Plan(30, 1, timeout=0.0), Ledger())) == 1


def test_an_interruption_keeps_what_is_done():
    def impatient(jobs, seen=[]):  # noqa: B006
        seen.append(1)
        if len(seen) > 6:
            raise KeyboardInterrupt
        return Judge()(jobs)

    with pytest.warns(InterruptWarning, match="6 of 20 trials"):
        assert len(run(small(), impatient, Plan(20, 1), Ledger())) == 6

    def at_once(jobs):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(small(), at_once, Plan(20, 1), Ledger())


def test_samplers_and_pruners_of_optuna_are_taken():
    plan = Plan(
        12,
        2,
        sampler=optuna.samplers.RandomSampler(seed=0),
        pruner=optuna.pruners.ThresholdPruner(lower=10.0),
    )
    trials = run(small(), Judge(), plan, Ledger())
    assert {t.state for t in trials} == {"pruned"}


def test_the_last_fold_is_never_cut_off():
    never = optuna.pruners.ThresholdPruner(lower=10.0)
    trials = run(small(), Judge(), Plan(4, 1, pruner=never), Ledger())
    assert {t.state for t in trials} == {"complete"}


def test_gaussian_processes_need_torch(monkeypatch):
    monkeypatch.setattr("dualpca.search.trials.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install '\.\[gpu\]'"):
        run(small(), Judge(), Plan(2, 1, sampler="gp"), Ledger())


def test_gaussian_processes():
    pytest.importorskip("torch", reason="torch is not installed: no Gaussian processes")
    trials = run(small(), Judge(), Plan(14, 1, sampler="gp"), Ledger())
    assert {t.state for t in trials} <= {"complete", "pruned"}
    same(trials, run(small(), Judge(), Plan(14, 1, sampler="gp"), Ledger()))


# --- going on after a stop ------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("done", [0, 6])
def test_a_stopped_search_goes_on_as_if_it_had_not_been(tmp_path, done, batch_size):
    plan = Plan(14, 2, seed=1, batch_size=batch_size)
    whole_ledger = Ledger()
    whole = run(small(), Judge(), plan, whole_ledger)
    path = tmp_path / "trials.db"
    ledger = Ledger.open(path, "s", "mark")
    for trial in whole_ledger.trials[:done]:
        ledger.add(trial)
    judge = Judge()
    same(run(small(), judge, plan, Ledger.open(path, "s", "mark")), whole)
    assert len(judge.jobs) == sum(len(t.scores) for t in whole[done:])
    assert len(Ledger.open(f"sqlite:///{path}", "s", "mark").trials) == 14


def test_more_trials_may_be_asked_for_later(tmp_path):
    def trials(n):
        return run(small(), Judge(), Plan(n, 1), Ledger.open(tmp_path / "a.db", None, "m"))

    trials(5)
    assert len(trials(12)) == 12
    assert len(trials(3)) == 3
    same(trials(12), run(small(), Judge(), Plan(12, 1), Ledger()))


def test_the_study_of_something_else_is_refused(tmp_path):
    Ledger.open(tmp_path / "a.db", "mine", "one thing")
    with pytest.raises(ValueError, match="another study_name"):
        Ledger.open(tmp_path / "a.db", "mine", "another")
    foreign = f"sqlite:///{tmp_path / 'b.db'}"
    optuna.create_study(storage=foreign, study_name="x", direction="maximize").optimize(
        lambda trial: trial.suggest_float("a", 0, 1), n_trials=1
    )
    with pytest.raises(ValueError, match="another study_name"):
        Ledger.open(foreign, "x", "another")


KILLED = """
import sys, time
import numpy as np
from dualpca import KernelSearch
from tests.search.cases import table
search = KernelSearch(n_components=2, n_trials=int(sys.argv[2]), cv=2, storage=sys.argv[1],
                      kernels=["rbf", "linear"], batch_size=2)
from dualpca.estimators import kernel_search as module
judged = module.judged
def slow(*job):
    time.sleep(0.05)
    return judged(*job)
module.judged = slow
print("begun", flush=True)
search.fit(table(n=30))
"""


@pytest.mark.slow
def test_a_killed_search_resumes(tmp_path):
    from dualpca import KernelSearch

    path, root = tmp_path / "killed.db", os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    env = os.environ | {"PYTHONPATH": os.pathsep.join([root, *filter(None, sys.path)])}
    command = [sys.executable, "-c", KILLED, str(path), "400"]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, cwd=root)
    try:
        assert process.stdout.readline() == b"begun\n"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and _n_written(path) < 5:
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    before = _n_written(path)
    assert 5 <= before < 400
    n_trials = before + 4
    options = {"n_components": 2, "n_trials": n_trials, "cv": 2, "kernels": ["rbf", "linear"]}
    resumed = KernelSearch(storage=path, batch_size=2, **options).fit(table(n=30))
    assert len(resumed.trials_) == n_trials == _n_written(path)
    same(resumed.trials_, KernelSearch(batch_size=2, **options).fit(table(n=30)).trials_)


def _n_written(path):
    """Return how many trials are in the file."""
    import sqlite3

    if not path.exists():
        return 0
    try:
        with sqlite3.connect(path, timeout=5) as connection:
            query = "SELECT COUNT(*) FROM trials WHERE state != 'RUNNING'"
            return connection.execute(query).fetchone()[0]
    except sqlite3.OperationalError:  # the tables are not there yet
        return 0
    finally:
        connection.close()


# --- what mattered --------------------------------------------------------------------


def test_importances_are_shares_of_variance():
    rng = np.random.default_rng(0)
    kinds, widths = rng.choice(["a", "b", "c"], 60), rng.uniform(1, 10, 60)
    scores = np.where(kinds == "a", 1.0, 0.0) + 0.2 * rng.normal(size=60)
    trials = [
        TrialRecord(i, "complete", float(s), (), {"kernel": str(k), "width": float(w)}, Linear(), 1)
        for i, (k, w, s) in enumerate(zip(kinds, widths, scores, strict=True))
    ]
    found = importances(trials)
    ranks = np.argsort(np.argsort(scores))
    quarters = np.searchsorted(np.quantile(widths, [0.25, 0.5, 0.75]), widths, side="right")
    assert abs(found["kernel"] - oracles.omega_squared(list(kinds), ranks)) < 1e-10
    assert abs(found["width"] - oracles.omega_squared(list(quarters), ranks)) < 1e-10
    assert next(iter(found)) == "kernel"


def test_importances_of_too_little():
    trials = [TrialRecord(i, "complete", 1.0, (), {"a": i}, Linear(), 1) for i in range(10)]
    assert importances(trials[:7]) == {}
    assert importances(trials) == {"a": 0.0}
    failed = [TrialRecord(i, "failed", None, (), {"a": i}, Linear(), 1) for i in range(10)]
    assert importances(failed) == {}
