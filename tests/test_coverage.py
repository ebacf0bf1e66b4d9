"""Coverage: the page is what its renderer makes of stored results, and every row still runs."""

import json
from dataclasses import replace

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
        assert found["replications"] >= ROWS[key].replications
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


def test_the_seed_decides():
    a, b, c = (
        coverage.measure(row(lambda rng: Count(rng.random(), 1)), 5, s).measured for s in (0, 0, 1)
    )
    assert a == b != c


def registered(monkeypatch, *rows):
    rows = {one.key: one for one in rows}
    monkeypatch.setattr(coverage, "ROWS", rows)
    return rows


def named(key, replicate, **more):
    return Row(key, "scores", "`f`", "setting", 0.9, replicate, 20, **more)


def coin(rng):
    return Count(float(rng.random() < 0.9), 1)


def failing(rng):
    raise ArithmeticError("no fit")


def test_rows_are_replicated_until_their_error_is_small(monkeypatch):
    rows = registered(monkeypatch, named("coin", coin), named("sure", lambda rng: Count(9, 10)))
    found = {one.key: result for one, result in coverage.measured(list(rows.values()), 5)}
    assert found["sure"].replications == 20
    assert 20 < found["coin"].replications <= 20 * coverage.MOST
    # the same numbers as replications one after another
    alone = coverage.measure(rows["coin"], found["coin"].replications, 5)
    assert (alone.measured, alone.error) == (found["coin"].measured, found["coin"].error)


def test_a_row_that_fails_is_told_and_a_deadline_begins_nothing(monkeypatch):
    rows = registered(monkeypatch, named("bad", failing), named("coin", coin))
    found = {one.key: result for one, result in coverage.measured(list(rows.values()), 0, times=4)}
    assert "ArithmeticError: no fit" in found["bad"] and found["coin"].replications == 4
    assert list(coverage.measured(list(rows.values()), 0, until=-1.0)) == []


@pytest.mark.slow
def test_processes_change_no_number(tmp_path):
    rows = [ROWS["scores-PPCA-30-0"], ROWS["tests-parallel"]]
    one, two = (
        {row.key: found.measured for row, found in coverage.measured(rows, 1, jobs=jobs, times=9)}
        for jobs in (1, 2)
    )
    assert one == two


def command(monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["coverage", *words])
    return coverage.main()


def test_partial_results_are_continued_and_merged(monkeypatch, tmp_path, capsys):
    absent = named("away", coin, needs=("nosuchpackage",))
    rows = registered(monkeypatch, named("first", coin), named("other", coin), absent)
    here, there, page = tmp_path / "here.json", tmp_path / "there.json", tmp_path / "page.md"
    files = ["--json", str(here), "--out", str(page)]
    assert command(monkeypatch, "--seed", "7", "--only", "first", *files) == 0
    assert command(monkeypatch, "--continue", *files) == 0
    words = capsys.readouterr().out
    assert "away" in words and "nosuchpackage not installed" in words and "1 of 3 rows" in words
    stored = json.loads(here.read_text())
    assert list(stored["rows"]) == ["first", "other"] and not page.exists()
    assert {found["seed"] for found in stored["rows"].values()} == {7}
    elsewhere = {"away": {**stored["rows"]["other"], "seed": 8}, "gone": {}}
    there.write_text(json.dumps({"seed": 8, "rows": elsewhere}))
    assert command(monkeypatch, "--merge", str(there), *files) == 0
    assert list(json.loads(here.read_text())["rows"]) == list(rows)
    assert "seeds 7, 8" in page.read_text() and "3 statements" in page.read_text()
    # a run without a seed draws one, and begins anew
    assert command(monkeypatch, "--minutes", "-1", "--json", str(here), "--out", str(page)) == 0
    assert json.loads(here.read_text())["rows"] == {}


def test_a_failed_row_fails_the_run(monkeypatch, tmp_path, capsys):
    registered(monkeypatch, named("bad", failing))
    assert command(monkeypatch, "--json", str(tmp_path / "a.json")) == 1
    assert "no fit" in capsys.readouterr().out


def test_verdicts():
    def said(measured, error=0.001, nominal=0.9, **more):
        result = coverage.Result(0.9, measured, error, 10, 100, 0.0)
        return coverage.verdict(replace(row(None, nominal), **more), result)

    assert said(0.89) == "" and said(0.8) == "**too narrow**" and said(0.95) == "**cautious**"
    assert said(0.8, error=0.05) == "" and said(0.8, nominal=None) == "**too sure**"
    assert said(0.95, at_least=True) == "" and said(0.8, at_least=True) == "**too narrow**"
    assert said(0.8, outside="heavy tails") == "*outside*: heavy tails; too narrow"
    assert said(0.89, outside="heavy tails") == "*outside*: heavy tails"


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
