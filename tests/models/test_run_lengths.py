"""Run lengths: known laws, and charts that are known in closed form."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dualpca.gaussian import Law
from dualpca.models.run_lengths import (
    ALARM_SHARES,
    RunLengths,
    Runs,
    _rows,
    limits_of,
    ordinary_rows,
    simulated,
    with_rules,
)

NO_SPE = Law(np.ones(1), np.ones(1), np.full(1, np.inf))


def ordinary(q=2, d=5, n=1e9, alike=(0.0, 0.0), tails=math.inf, seed=0, rows=2000):
    """Return ordinary rows whose scores, residuals and SPE's residuals are independent."""
    rng = np.random.default_rng(seed)
    shown = np.linalg.qr(rng.normal(size=(rows, q + 2 * d)))[0] * math.sqrt(rows)
    return ordinary_rows(shown, q, d, n, alike, 1.0, 1.0, tails, NO_SPE)


def lengths(made, statistics, arl=100.0, smoothing=0.1, **options):
    rng = np.random.default_rng(1)
    return RunLengths(simulated(made, statistics, smoothing, arl, rng, **options))


def test_rows_by_themselves_alarm_as_often_as_their_law_says():
    found = lengths(ordinary(q=3), ("t2", "spe"))
    for name, dof in (("t2", 3), ("spe", 5)):
        limit = stats.chi2(dof).isf(1 / 100)
        assert found.of({name: np.array([limit])})[0] == pytest.approx(100, rel=0.06)
        assert found.limit(name, 100) == pytest.approx(limit, rel=0.02)
        assert found.tail(name, limit, 100) == pytest.approx(0.01, rel=0.06)


def test_an_average_of_known_mean_has_the_run_length_of_the_tables():
    # Lucas & Saccucci (1990), λ = 0.1, limit 2.814: 500 rows; here the first rows have their own
    # variance, so that runs are a little shorter
    found = lengths(ordinary(q=0, d=1), ("residual",), arl=500.0)
    assert found.of({"residual": np.array([2.814])})[0] == pytest.approx(490, rel=0.06)


def test_mewma_of_known_mean_has_the_run_length_of_the_tables():
    # Prabhu & Runger (1997): two variables, λ = 0.1, limit 8.64 for 200 rows
    found = lengths(ordinary(q=2), ("mewma",), arl=200.0)
    assert found.of({"mewma": np.array([8.64])})[0] == pytest.approx(195, rel=0.07)


def test_without_a_memory_the_largest_of_residuals_is_a_row_s():
    found = lengths(ordinary(q=0, d=4), ("residual",), smoothing=1.0)
    tail = 1 - (1 - 2 * stats.norm.sf(3.0)) ** 4
    assert found.of({"residual": np.array([3.0])})[0] == pytest.approx(1 / tail, rel=0.06)


def test_a_short_phase_one_needs_wider_limits():
    known, short = (lengths(ordinary(n=n), ("mewma",)).limit("mewma", 100) for n in (1e9, 100))
    assert short > 1.1 * known


def test_alike_rows_need_wider_limits():
    one, other = (ordinary(alike=alike) for alike in ((0.0, 0.0), (0.8, 0.8)))
    for name in ("mewma", "residual"):
        limits = [lengths(made, (name,)).limit(name, 100) for made in (one, other)]
        assert limits[1] > 1.3 * limits[0]
    limits = [
        lengths(made, ("mewma",), innovations=True).limit("mewma", 100) for made in (one, other)
    ]
    assert limits[1] == pytest.approx(limits[0], rel=0.05)


def test_heavy_tails_need_wider_limits():
    one, other = (lengths(ordinary(tails=nu), ("t2",)).limit("t2", 100) for nu in (math.inf, 5.0))
    assert other > 1.15 * one


@pytest.mark.parametrize("arl", [20.0, 200.0])
def test_all_statistics_together_have_the_wanted_run_length(arl):
    names = ("t2", "spe", "mewma", "residual", "cusum", "residual_cusum")
    found = lengths(ordinary(n=300), names, arl=arl)
    limits = limits_of(found, arl)
    alone = {name: np.array([found.limit(name, limits.lengths[name])]) for name in names}
    assert found.of(alone)[0] == pytest.approx(arl, rel=0.02)
    rates = {name: 1 / limits.lengths[name] for name in names}
    assert rates["mewma"] / rates["t2"] == pytest.approx(
        ALARM_SHARES["mewma"] / ALARM_SHARES["t2"], rel=1e-6
    )


def test_limits_beyond_what_was_simulated_go_on():
    found = lengths(ordinary(), ("t2", "spe"), arl=100.0)
    for name, dof in (("t2", 2), ("spe", 5)):
        assert found.limit(name, 20_000) == pytest.approx(stats.chi2(dof).isf(1 / 20_000), rel=0.12)
        assert found.tail(name, found.limit(name, 20_000), 20_000) == pytest.approx(5e-5, rel=0.5)


def test_run_rules_are_statistics_of_the_last_rows():
    path = np.array([[1.0, 3.0, 2.0, 5.0, 4.0]], dtype=np.float32)
    found = with_rules(Runs({"t2": path, "mewma": path}), [(2, 3), (2, 2)]).paths
    assert list(found) == ["t2", "mewma", "t2 2 of 3", "t2 2 in a row"]
    assert found["t2 2 of 3"].tolist() == [[0, 0, 2, 3, 4]]
    assert found["t2 2 in a row"].tolist() == [[0, 1, 2, 2, 4]]


def test_many_residuals_are_drawn_by_their_largest_directions():
    rng = np.random.default_rng(0)
    d, q = 100, 3
    W = rng.normal(size=(2, d))
    r = rng.normal(size=(3000, 2)) @ W + rng.normal(size=(3000, d))
    shown = np.concatenate([rng.normal(size=(3000, q)), r, r], axis=1)
    law = Law(np.full(1, 90.0), np.full(1, 90.0), np.full(1, np.inf))
    made = ordinary_rows(shown, q, d, 1e9, (0.0, 0.0), 1.0, 1.0, math.inf, law)
    assert made.own is not None and made.root.shape[1] == q + d
    total = np.sum(made.root**2, axis=0) + made.own**2
    np.testing.assert_allclose(total, np.mean(shown[:, : q + d] ** 2, axis=0), rtol=1e-4)
    found = lengths(made, ("spe",), rows=40_000)
    assert found.limit("spe", 100) == pytest.approx(stats.chi2(90).isf(0.01), rel=0.03)


def test_the_same_seed_gives_the_same_limits():
    made = replace(ordinary(), n=200.0)
    one, other = (lengths(made, ("mewma",), arl=30.0).limit("mewma", 30) for _ in range(2))
    assert one == other


@pytest.mark.parametrize("phi", [0.0, 0.3, 0.6])
def test_rows_of_simulated_runs_have_the_moments_of_their_process(phi):
    """AR(1) beside a mean known from n rows; innovations beside a φ known from n rows, too.

    With the mean off by v = (1 + φ)/(1 − φ)/n, rows have lag-1 moments φ + v. Innovations are off
    by an error of φ, of variance (1 − φ²)/n, times the row before.
    """
    n, length = 40.0, 12
    made = ordinary(q=0, d=4, n=n, alike=(phi, phi))
    rng, runs = np.random.default_rng(0), 40_000

    def check(products, scale, expected):
        """Compare moments of every run, in units of others, with standard errors over runs."""
        off = products - expected * scale
        assert abs(off.mean()) < 4.5 * off.std() / math.sqrt(runs), (products.mean(), expected)

    seen = next(_rows(made, runs, length, rng, False))[1]
    v = (1 + phi) / (1 - phi) / n
    squares = np.mean(seen**2, axis=(1, 2))
    check(np.mean(seen[:, 1:] * seen[:, :-1], axis=(1, 2)), squares, (phi + v) / (1 + v))
    check(np.mean(seen[:, 2:] * seen[:, :-2], axis=(1, 2)), squares, (phi**2 + v) / (1 + v))

    fresh, also = next(_rows(made, runs, length, rng, True))
    check(
        np.mean(also[:, 1:] * also[:, :-1], axis=(1, 2)),
        np.mean(also**2, axis=(1, 2)),
        (phi + v) / (1 + v),
    )
    first = np.mean(fresh[:, 0] ** 2, axis=1)
    late = phi > 0 and 1 - phi ** (2 * np.arange(length))
    after = 1 + 1 / n + np.mean(late) / n
    check(np.mean(fresh**2, axis=(1, 2)), first, after / (1 + 1 / n))
    before = 1 / n + phi * np.mean(late) / n
    check(np.mean(fresh[:, 1:] * fresh[:, :-1], axis=(1, 2)), first, before / (1 + 1 / n))
