"""Phase I: bad episodes are found, ordinary rows stay; and what is learned afterwards."""

from dataclasses import replace

import numpy as np
import pytest

import dualpca
from dualpca.estimators.monitor import fit_of
from dualpca.models import phase_one
from dualpca.models.monitoring import State, advance
from dualpca.models.phase_one import (
    MonitorRequest,
    _unlearned,
    completed_moments,
    fit_phase_one,
    learn,
)

D = 8


def process(n, seed=0, phi=0.0):
    rng = np.random.default_rng(seed)
    W = np.random.default_rng(98).normal(size=(2, D))
    z, e = rng.normal(size=(n, 2)), rng.normal(size=(n, D))
    for A in (z, e):
        for t in range(1, n):
            A[t] = phi * A[t - 1] + np.sqrt(1 - phi**2) * A[t]
    return z @ W + 0.5 * e


def request(**changes):
    asked = {
        "arl": 50.0,
        "statistics": ("t2", "spe", "mewma", "residual"),
        "smoothing": 0.1,
        "lags": 0,
        "dynamics": "auto",
        "trim": True,
        "rules": (),
        "names": tuple(f"x{j}" for j in range(D)),
        "seed": 0,
    }
    return MonitorRequest(**asked | changes)


def fitted(X, model=None, **changes):
    kind = dualpca.PPCA(2) if model is None else model
    return fit_phase_one(X, lambda part: fit_of(kind.fit(part)), request(**changes))


def aside(found, n):
    rows = np.zeros(n, dtype=bool)
    for episode in found.model.set_aside:
        rows[episode.start : episode.end] = True
    return rows


@pytest.mark.parametrize("where", [slice(0, 20), slice(90, 130), slice(280, 300)])
def test_a_bad_episode_is_set_aside_and_named(where):
    X = process(300)
    X[where, 3] += 3.0
    found = fitted(X)
    rows, true = aside(found, 300), np.zeros(300, dtype=bool)
    true[where] = True
    assert rows[where].mean() > 0.7
    assert rows[~true].sum() <= 3
    longest = max(found.model.set_aside, key=lambda one: one.end - one.start)
    assert longest.sensors[0][0] == "x3"
    assert longest.statistics


def test_single_wild_rows_are_set_aside():
    X = process(300)
    X[[10, 150, 151, 290]] += 8.0 * np.random.default_rng(0).normal(size=(4, D))
    assert np.flatnonzero(aside(fitted(X), 300)).tolist() == [10, 150, 151, 290]


def test_a_small_shift_that_lasts_is_set_aside():
    X = process(600)
    X[300:380, 5] += 0.9  # 1.8 deviations of its noise: no row shows it
    rows = aside(fitted(X), 600)
    assert rows[300:380].mean() > 0.6
    assert rows[:280].sum() + rows[400:].sum() <= 2


def test_ordinary_rows_stay():
    lost = [aside(fitted(process(200, seed=seed)), 200).sum() for seed in range(8)]
    assert sum(count > 0 for count in lost) <= 1
    assert max(lost) <= 4


def test_ordinary_rows_that_are_alike_stay():
    lost = [aside(fitted(process(300, seed, phi=0.7)), 300).sum() for seed in range(3)]
    assert sum(count > 0 for count in lost) <= 1


def test_without_trim_every_row_is_kept():
    X = process(200)
    X[50:70, 3] += 5.0
    found = fitted(X, trim=False)
    assert found.model.set_aside == ()
    assert found.model.plan.baseline.reference.n == 200


def test_two_processes_are_not_taken_for_one():
    X = process(300)
    X[150:] += 10.0 * np.random.default_rng(3).normal(size=D)
    found = fitted(X, dualpca.RobustPPCA(2))
    assert found.refused > 100
    assert found.model.set_aside == ()


def test_statistics_that_measure_nothing_are_left_out():
    X = np.random.default_rng(0).normal(size=(100, D))
    assert fitted(X, dualpca.PPCA(0)).model.plan.statistics == ("spe", "residual")
    every = fitted(X, dualpca.PCA()).model
    assert every.plan.statistics == ("t2", "mewma", "residual")
    assert set(every.limits) == {"t2", "mewma", "residual"}


def test_with_lags_sensors_are_those_of_the_row():
    found = fitted(process(300, phi=0.5), lags=2)
    baseline = found.model.plan.baseline
    assert (len(baseline.center), baseline.d) == (3 * D, D)
    assert found.model.phase_one.contributions.shape == (300, D)


def test_dependence_enters_the_limits_and_innovations_do_without():
    X = process(600, phi=0.8)
    auto, none, ar = (fitted(X, dynamics=kind).model for kind in ("auto", "none", "ar"))
    assert auto.limits["mewma"] > 1.5 * none.limits["mewma"]
    assert ar.limits["mewma"] < 1.2 * none.limits["mewma"]
    np.testing.assert_allclose(ar.plan.innovations[0], 0.8, atol=0.12)
    assert fitted(process(600), dynamics="ar").model.plan.innovations[0].tolist() == [0, 0]


def test_run_rules_have_limits_of_their_own():
    found = fitted(process(300), rules=((2, 3),)).model
    assert set(found.limits) == {"t2", "spe", "mewma", "residual", "t2 2 of 3", "spe 2 of 3"}
    p = 10 ** -found.limits["t2 2 of 3"]
    share = 10.0 / (100 + 2 * 10.0)
    assert share / 50 < 3 * p * p < 2.5 * share / 50  # of three rows two overlap with the last


# --- Learning on ---------------------------------------------------------------------------------


def test_rows_with_gaps_are_completed_with_their_covariance():
    model = fitted(process(300)).model
    baseline = model.plan.baseline
    X = baseline.inward(process(4, seed=9))
    X[1, [2, 5]] = np.nan
    filled, spread = completed_moments(baseline.factors, X)
    C = baseline.factors.W @ baseline.factors.W.T + np.diag(baseline.factors.psi)
    gone, there = [2, 5], [0, 1, 3, 4, 6, 7]
    K = C[np.ix_(gone, there)] @ np.linalg.inv(C[np.ix_(there, there)])
    np.testing.assert_allclose(filled[1, gone], K @ X[1, there])
    np.testing.assert_allclose(
        spread[1][np.ix_(gone, gone)], C[np.ix_(gone, gone)] - K @ C[np.ix_(there, gone)]
    )
    assert not spread[[0, 2, 3]].any()
    assert np.array_equal(filled[0], X[0])


@pytest.mark.parametrize("kind", [dualpca.PPCA(2), dualpca.FactorAnalysis(2)])
def test_what_is_learned_comes_near_a_fit_to_all_rows(kind):
    X = process(3000)
    first = fitted(X[:200], kind).model
    model, moved = learn(first, X[200:], 1.0)
    whole = kind.fit(X).get_covariance()
    np.testing.assert_allclose(model.plan.baseline.center, X.mean(axis=0), atol=0.12)
    factors = model.plan.baseline.factors
    C = factors.W @ factors.W.T + np.diag(factors.psi)
    before = first.plan.baseline.covariance
    assert np.abs(C - whole).max() < 0.5 * np.abs(before - whole).max() + 0.08
    assert moved is None
    assert model.limits["mewma"] == first.limits["mewma"]


@pytest.mark.parametrize("alike", [0.0, 0.5, 0.99])
def test_what_was_learned_weighs_as_many_rows_as_are_independent_and_two_at_least(alike):
    model = fitted(process(300)).model
    base = model.plan.baseline
    reference = replace(base.reference, alike=(alike, alike))
    model = replace(model, plan=replace(model.plan, baseline=replace(base, reference=reference)))
    learned, n = _unlearned(model), max(300 * (1 - alike) / (1 + alike), 2.0)
    assert learned.weight == learned.squares == pytest.approx(n, rel=0.05)
    np.testing.assert_allclose(learned.scatter / learned.weight, base.covariance)
    assert not learned.mean.any()


def test_cutting_what_is_learned_changes_nothing():
    X, first = process(400), fitted(process(300, seed=5)).model
    whole, _ = learn(first, X, 0.99)
    parts = first
    for part in np.split(X, [1, 50, 51, 200]):
        parts, _ = learn(parts, part, 0.99)
    np.testing.assert_allclose(
        parts.plan.baseline.center, whole.plan.baseline.center, rtol=0, atol=0.02
    )


def test_rows_in_alarm_are_not_learned():
    first, X = fitted(process(300)).model, process(60, seed=4)
    X[20:] += 30.0
    model, moved = learn(first, X, 0.9)
    assert moved is None
    assert model.learned.weight > 0.9**20 * 300 + 8.7  # of at most 20 rows
    assert np.abs(model.plan.baseline.center - first.plan.baseline.center).max() < 1.0


def test_a_slow_drift_is_not_learned_silently():
    first = fitted(process(500), arl=370.0).model
    X = process(6000, seed=7) + np.linspace(0, 1.5, 6000)[:, None] * (np.arange(D) == 3)
    model, found = first, None
    for part in np.split(X, 30):
        model, moved = learn(model, part, 0.99)
        found = found or moved
    off = np.abs(model.plan.baseline.center - first.plan.baseline.center)[3]
    assert off < 0.6
    state = State.fresh(model.plan)
    assert advance(model.plan, state, X[-200:])[0].alarms.mean() > 0.5 or found is not None


def test_a_centre_that_moves_is_held_and_named():
    first = fitted(process(500)).model
    baseline = first.plan.baseline
    unlearned = phase_one._unlearned(first)
    mean = np.zeros(D)
    mean[5] = 3.0
    held, moved = phase_one._held(
        baseline, first.plan, mean, unlearned.scatter / unlearned.weight, 1 / 500
    )
    assert moved.sensors == (5,)
    assert 0 < held[5] < 0.5
    assert phase_one._held(baseline, first.plan, held, baseline.covariance, 1 / 400)[1] is None
