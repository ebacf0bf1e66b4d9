"""Coverage: the page is what its renderer makes of stored results, and every row still runs."""

import json

import numpy as np
import pytest

from benchmarks import coverage
from benchmarks.coverage_rows import GROUPS, ROWS, Count, Row

STORED = json.loads(coverage.RESULTS.read_text())

SLOW = {"missing-", "pooled-", "loadings-report", "probabilities-", "forecasts-", "coordinates-k"}
"""Rows whose one replication takes a while."""


def row(replicate, nominal=0.9):
    return Row("scores-test", "scores", "`f`", "setting", nominal, replicate, 10)


def test_the_page_is_made_of_the_stored_results():
    assert coverage.render(STORED) == coverage.PAGE.read_text()
    assert list(STORED["rows"]) == list(ROWS)
    assert {r.group for r in ROWS.values()} == set(GROUPS)


def test_stored_results_are_of_a_whole_run():
    for key, found in STORED["rows"].items():
        assert found["replications"] == ROWS[key].replications
        assert 0 < found["measured"] <= 1 and found["count"] > 0


def test_a_row_without_results_is_refused():
    with pytest.raises(ValueError, match=r"no results of .*scores-PPCA-30-0"):
        coverage.render({"seed": 0, "rows": {}})


def test_measuring_counts_and_has_the_error_of_independent_replications():
    shares = np.random.default_rng(0).random(50)
    draws = iter(shares)
    found = coverage.measure(row(lambda rng: Count(10 * next(draws), 10)), 50)
    assert found.measured == pytest.approx(shares.mean()) and found.count == 500
    assert found.error == pytest.approx(shares.std(ddof=1) / np.sqrt(50))
    # probabilities: beside what the model said, on average; replications count by their size
    said = coverage.measure(row(lambda rng: Count(8, 10, 7.5), None), 3)
    assert (said.nominal, said.measured, said.error) == (0.75, 0.8, 0.0)


def test_the_seed_decides_and_a_budget_cuts():
    a, b, c = (
        coverage.measure(row(lambda rng: Count(rng.random(), 1)), 5, s).measured for s in (0, 0, 1)
    )
    assert a == b != c
    assert coverage.measure(row(lambda rng: Count(1, 1)), 5, budget=-1.0).replications == 1


def test_verdicts():
    def said(measured, error=0.001, nominal=0.9):
        result = coverage.Result(0.9, measured, error, 10, 100, 0.0)
        return coverage.verdict(row(None, nominal), result)

    assert said(0.89) == "" and said(0.8) == "**too narrow**" and said(0.95) == "cautious"
    assert said(0.8, error=0.05) == "" and said(0.8, nominal=None) == "**too sure**"


def one_replication(some):
    for one in some:
        found = coverage.replicate(one, 0, 0)
        assert 0 <= found.right <= found.of and np.isfinite(found.said)


def test_one_replication_of_every_quick_row():
    one_replication(r for r in ROWS.values() if not r.key.startswith(tuple(SLOW)))


@pytest.mark.slow
def test_one_replication_of_every_other_row():
    one_replication(r for r in ROWS.values() if r.key.startswith(tuple(SLOW)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "key",
    [
        "scores-PPCA-300-0",
        "coordinates-100-100-1-new-auto",
        "loadings-variational-400-12-0",
        "limits-PPCA-outliers-100-0",
        "missing-ppca-large",
        "tests-cca",
    ],
)
def test_some_rows_again(key):
    stored = STORED["rows"][key]
    again = coverage.measure(ROWS[key], 60, seed=1)
    error = np.hypot(stored["error"], max(again.error, stored["error"]))
    assert abs(again.measured - stored["measured"]) <= 5 * error
