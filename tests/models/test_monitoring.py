"""Rows through time, beside plain loops and dense Gaussians."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import dualpca
from dualpca.estimators.monitor import fit_of
from dualpca.models.baseline import baseline_of
from dualpca.models.monitoring import (
    QUIET,
    Episode,
    Innovations,
    Judged,
    Moment,
    State,
    advance,
    follow,
    noted,
    widened,
)
from tests.models.monitor_cases import D, Q, baseline, plan, process, with_gaps

# --- Statistics with a memory --------------------------------------------------------------------


def test_mewma_is_that_of_a_plain_loop():
    shown, rows = plan(), process(60, seed=7)
    chart = advance(shown, State.fresh(shown), rows)[0]
    y, lam, u = shown.baseline.measured(rows).scores, 0.1, np.zeros(Q)
    for t, one in enumerate(y, start=1):
        u = lam * one + (1 - lam) * u
        expected = (2 - lam) / (lam * (1 - (1 - lam) ** (2 * t))) * (u @ u)
        assert chart.statistics["mewma"][t - 1] == pytest.approx(expected)


def test_the_largest_average_of_residuals_is_that_of_a_plain_loop_with_gaps():
    shown, rows = plan(), with_gaps(process(60, seed=7))
    rows[20] = np.nan
    found = advance(shown, State.fresh(shown), rows)[0].statistics["residual"]
    r, lam = shown.baseline.measured(rows).residuals, 0.1
    u, variance = np.zeros(D), np.zeros(D)
    for t in range(60):
        z = []
        for i in range(D):
            if not np.isnan(r[t, i]):
                u[i] = lam * r[t, i] + (1 - lam) * u[i]
                variance[i] = lam**2 + (1 - lam) ** 2 * variance[i]
                z.append(abs(u[i]) / math.sqrt(variance[i]))
        if t == 20:
            assert math.isnan(found[t])
        else:
            assert found[t] == pytest.approx(max(z))


def test_without_a_memory_mewma_is_t2():
    shown, rows = plan(smoothing=1.0), with_gaps(process(40, seed=2))
    chart = advance(shown, State.fresh(shown), rows)[0]
    np.testing.assert_allclose(chart.statistics["mewma"], chart.statistics["t2"], rtol=1e-9)


def test_cusums_are_those_of_plain_loops():
    shown = plan(statistics=("cusum", "residual_cusum"))
    rows = process(50, seed=8) + 0.4
    chart = advance(shown, State.fresh(shown), rows)[0]
    found = shown.baseline.measured(rows)
    s, up, down = np.zeros(Q), np.zeros(D), np.zeros(D)
    for t in range(50):
        length = np.linalg.norm(s + found.scores[t])
        s = np.zeros(Q) if length <= 0.5 else (s + found.scores[t]) * (1 - 0.5 / length)
        up = np.maximum(up + found.residuals[t] - 0.5, 0)
        down = np.maximum(down - found.residuals[t] - 0.5, 0)
        assert chart.statistics["cusum"][t] == pytest.approx(np.linalg.norm(s), abs=1e-12)
        assert chart.statistics["residual_cusum"][t] == pytest.approx(max(up.max(), down.max()))


def test_a_row_that_determines_some_directions_moves_the_average_along_them_only():
    base = baseline()
    rows = np.full((1, D), np.nan)
    rows[0, 2] = 5.0
    shown = plan(base)
    state = advance(shown, State.fresh(shown), process(30))[1]
    after = advance(shown, state, rows)[1]
    [seen] = base.seen([(~np.isnan(rows[0])).tobytes()])
    moved = after.scores - state.scores
    assert np.linalg.matrix_rank(seen.known, tol=1e-9) == 1
    np.testing.assert_allclose(seen.known @ moved, moved, atol=1e-12)
    assert np.linalg.norm(moved) > 0


def test_the_average_of_scores_has_its_law_where_some_rows_determine_little():
    base = baseline(X=process(5000))
    shown, runs = plan(base), []
    for seed in range(300):
        rows = process(12, seed=seed + 100)
        rows[::2, 1:] = np.nan
        runs.append(advance(shown, State.fresh(shown), rows)[0].statistics["mewma"][-1])
    assert stats.kstest(runs, stats.chi2(Q).cdf).pvalue > 0.001


def test_innovations_of_a_first_order_process_are_independent():
    base = baseline(X=process(5000))
    rng, phi = np.random.default_rng(0), 0.8
    fresh = process(3000, seed=1) - np.arange(D)
    rows = np.empty_like(fresh)
    rows[0] = fresh[0]
    for t in range(1, 3000):
        rows[t] = phi * rows[t - 1] + math.sqrt(1 - phi**2) * fresh[t]
    rows += np.arange(D)
    rows[rng.random(3000) < 0.1] = np.nan
    shown = plan(
        base,
        smoothing=1.0,
        innovations=Innovations(np.full(Q, phi), np.full(D, phi), np.eye(Q), np.ones(D)),
    )
    found = follow(shown, State.fresh(shown), base.measured(rows)).values["mewma"]
    found = found[~np.isnan(found)]
    assert stats.kstest(found, stats.chi2(Q).cdf).pvalue > 0.001
    assert abs(np.corrcoef(found[1:], found[:-1])[0, 1]) < 0.06


# --- Cutting, order, units -----------------------------------------------------------------------


def assert_same_chart(one, parts):
    for name, values in one.statistics.items():
        joined = np.concatenate([part.statistics[name] for part in parts])
        assert np.array_equal(joined, values, equal_nan=True), name
        limits = np.concatenate([part.limits[name] for part in parts])
        assert np.array_equal(limits, one.limits[name])
    for name in ("alarms", "contributions"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        assert np.array_equal(joined, getattr(one, name))


RULES = [f"{name} {rule}" for name in ("t2", "spe") for rule in ("2 of 3", "4 in a row")]
PLANS = {
    "usual": {},
    "cusums": {"statistics": ("t2", "cusum", "residual_cusum")},
    "innovations": {
        "innovations": Innovations(
            np.full(Q, 0.5), np.full(D, 0.3), np.eye(Q) + 0.1, np.full(D, 1.1)
        )
    },
    "rules": {
        "rules": ((2, 3), (4, 4)),
        "limits": dict.fromkeys(("mewma", "residual", *RULES), 2.0),
    },
}


@pytest.mark.parametrize("changes", PLANS.values(), ids=PLANS)
def test_however_rows_are_cut_every_bit_is_the_same(changes):
    shown = plan(**changes)
    rows = with_gaps(process(90, seed=3), 0.1)
    rows[40:60, 2] += 3.0
    rows[30:33] = np.nan
    whole, state = advance(shown, State.fresh(shown), rows)
    for cuts in ([1, 2, 3, 50, 51], list(range(1, 90))):
        parts, now = [], State.fresh(shown)
        for part in np.split(rows, cuts):
            chart, now = advance(shown, now, part)
            parts.append(chart)
        assert_same_chart(whole, parts)
        assert [t.episode(shown) for t in now.traces] == [t.episode(shown) for t in state.traces]
    assert state.traces


@pytest.mark.parametrize("changes", PLANS.values(), ids=PLANS)
def test_a_chart_has_every_statistic_of_its_plan_and_rules_are_those_of_a_plain_loop(changes):
    shown = plan(**changes)
    rows = process(60, seed=3)
    rows[30] = np.nan
    rows[40:50, 2] += 3.0
    chart, _ = advance(shown, State.fresh(shown), rows)
    ruled = RULES if shown.rules else []
    assert set(chart.statistics) == set(chart.limits) == {*shown.statistics, *ruled}
    surprise = shown.surprise(shown.baseline.measured(rows))
    for name in ruled:
        k, m = (2, 3) if name.endswith("2 of 3") else (4, 4)
        of = surprise[:, 0 if name.startswith("t2") else 1]
        before = [of[max(t + 1 - m, 0) : t + 1] for t in range(60)]
        expected = [
            np.sort(x)[-k] if len(x) == m and not np.isnan(x).any() else np.nan for x in before
        ]
        assert np.array_equal(chart.statistics[name], expected, equal_nan=True)
        assert np.all(chart.limits[name] == shown.limits[name])
    over = [chart.statistics[name] > chart.limits[name] for name in chart.statistics]
    assert np.array_equal(chart.alarms, np.any(over, axis=0))
    assert not ruled or any(np.any(chart.statistics[name] > 2.0) for name in ruled)


def test_lags_cut_as_whole_rows_do():
    X = process(300)
    wide = widened(X, np.full((2, D), np.nan))[2:]
    base = baseline_of(*fit_of(dualpca.PPCA(Q).fit(wide)), wide, D)[0]
    shown, rows = plan(base, lags=2), process(30, seed=3)
    whole, _ = advance(shown, State.fresh(shown), rows)
    parts, now = [], State.fresh(shown)
    for part in np.split(rows, [1, 2, 10]):
        chart, now = advance(shown, now, part)
        parts.append(chart)
    assert_same_chart(whole, parts)
    assert whole.contributions.shape == (30, D)


def test_the_order_of_columns_means_nothing():
    order = np.array([3, 1, 5, 0, 2, 4])
    X, rows = process(400), with_gaps(process(40, seed=2))
    one, other = plan(baseline(X=X)), plan(baseline(X=X[:, order]))
    a = advance(one, State.fresh(one), rows)[0]
    b = advance(other, State.fresh(other), rows[:, order])[0]
    for name in a.statistics:
        np.testing.assert_allclose(a.statistics[name], b.statistics[name], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(a.contributions[:, order], b.contributions, rtol=1e-6, atol=1e-8)


def test_the_units_of_columns_mean_nothing_to_a_standardised_model():
    units = np.array([1.0, 10.0, 0.01, 3.0, 100.0, 1.0])
    X, rows = process(400), with_gaps(process(40, seed=2))
    one = plan(baseline(dualpca.PPCA(Q, standardize=True), X))
    other = plan(baseline(dualpca.PPCA(Q, standardize=True), X * units))
    a = advance(one, State.fresh(one), rows)[0]
    b = advance(other, State.fresh(other), rows * units)[0]
    for name in a.statistics:
        np.testing.assert_allclose(a.statistics[name], b.statistics[name], rtol=1e-6, atol=1e-8)


def test_a_sensor_that_never_reports_does_not_change_the_others():
    shown, rows = plan(), process(50, seed=6)
    rows[:, 3] = np.nan
    chart = advance(shown, State.fresh(shown), rows)[0]
    assert all(np.isfinite(values).all() for values in chart.statistics.values())
    assert np.all(chart.contributions[:, 3] == 0)


def test_rows_without_any_reading_are_not_judged():
    shown, rows = plan(), process(30, seed=6)
    with_empty = np.insert(rows, [10, 10, 20], np.nan, axis=0)
    one = advance(shown, State.fresh(shown), rows)[0]
    other = advance(shown, State.fresh(shown), with_empty)[0]
    empty = np.isnan(with_empty).all(axis=1)
    for name, values in other.statistics.items():
        assert np.isnan(values[empty]).all()
        assert np.array_equal(values[~empty], one.statistics[name])
    assert not other.alarms[empty].any()


# --- Episodes ------------------------------------------------------------------------------------


def traced(alarms, raised="spe"):
    """Return the episodes of rows in alarm (1), below (0) or not judged (None)."""
    shown = plan()
    n = len(alarms)
    rows = np.repeat(process(1, seed=1), n, axis=0)
    rows[[a is None for a in alarms]] = np.nan
    measures = shown.baseline.measured(rows)
    values = np.array([np.nan if a is None else 2.0 * a for a in alarms])
    found = Judged({raised: values}, {raised: np.ones(n)})
    traces = noted(shown, State.fresh(shown), measures, np.zeros((n, D)), found, None)
    return [(trace.start, trace.episode(shown).end) for trace in traces]


def test_an_episode_ends_after_five_rows_below_the_limits():
    assert traced([0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1]) == [(1, 7), (12, None)]
    assert traced([1] + [0] * (QUIET - 1)) == [(0, None)]
    assert traced([1] + [0] * QUIET) == [(0, 1)]
    assert traced([1, 0, 0, None, None, 0, 0, 1]) == [(0, None)]
    assert traced([0, 0]) == []


@pytest.mark.parametrize("sensor", range(D))
def test_a_sensor_that_is_off_is_named_first(sensor):
    shown, rows = plan(limits=dict.fromkeys(("mewma", "residual"), 15.0)), process(40, seed=11)
    rows[:, sensor] += 2.0
    [*_, episode] = advance(shown, State.fresh(shown), rows)[0].episodes
    assert episode.sensors[0][0] == "abcdef"[sensor]
    assert len(episode.sensors) <= 5
    assert sum(share for _, share in episode.sensors) <= 1 + 1e-9


def test_a_cause_that_moves_names_the_sensors_that_show_it():
    W = np.random.default_rng(99).normal(size=(Q, D))
    shown, rows = plan(baseline(X=process(5000))), process(60, seed=11) + 2 * W[0]
    episode = advance(shown, State.fresh(shown), rows)[0].episodes[0]
    largest = "abcdef"[int(np.argmax(np.abs(W[0])))]
    assert largest in [name for name, _ in episode.sensors[:2]]
    assert "mewma" in episode.statistics


def test_episodes_in_words():
    one = Episode(3, 4, ("t2",), (), 1.5)
    assert str(one) == "row 3: T²"
    assert str(replace(one, end=None, statistics=("mewma", "cusum"))) == "rows from 3: MEWMA, CUSUM"


@pytest.mark.parametrize("time", [3, 2.5, "noon", np.datetime64("2026-01-02T03:04"), np.int64(7)])
def test_times_are_kept_as_given(time):
    assert Moment.of(time).given == time


def test_times_of_episodes_are_those_of_their_rows():
    shown, rows = plan(), process(30, seed=6)
    rows[10:20, 1] += 9.0
    time = np.datetime64("2026-01-01") + np.arange(30)
    [episode] = advance(shown, State.fresh(shown), rows, time)[0].episodes
    assert episode.time[0] == time[10]
