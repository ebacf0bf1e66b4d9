"""The pieces of benchmarks that decide what is measured, and the page that is made of it."""

import importlib.util
import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import __main__ as command
from benchmarks import fits, imputation, mixed, one, page, results, robust, tables
from benchmarks.cases import cases
from benchmarks.environment import absent
from benchmarks.measure import Measurement
from benchmarks.mixed_data import cluster_table, copula_table
from benchmarks.results import Part
from benchmarks.run import OutOfTime, Run
from benchmarks.sections import SECTIONS

ROOT = Path(__file__).resolve().parents[1]


# --- the page ------------------------------------------------------------------------------------


def test_the_page_is_what_the_stored_results_say():
    written = (ROOT / page.PAGE).read_text("utf-8")
    assert page.render(results.load()) == written, "run: python -m benchmarks --page"


def test_the_prose_of_the_page_has_no_results_in_it():
    prose = re.sub(r"`[^`]*`|\{\{.*?\}\}", "", page.TEMPLATE.read_text("utf-8"))
    allowed = {"97.5"}  # a level
    assert set(re.findall(r"\d+\.\d+", prose)) <= allowed
    assert not re.search(r"\b(goal|target|missed|plan(ned)?)\b", prose)


def test_every_section_has_a_module_and_stands_on_the_page():
    template = page.TEMPLATE.read_text("utf-8")
    for section in SECTIONS.values():
        assert importlib.util.find_spec(f"benchmarks.{section.module or section.name}")
        assert f"## {section.title}\n\n{{{{ about {section.name} }}}}" in template
        assert set(section.needs) <= {"", *section.parts}
        assert set(results.load().get(section.name, {})) <= set(section.parts)
    assert {*SECTIONS["pca"].parts, *SECTIONS["kernels"].parts} == set(cases())


ABOUT = {"date": "2020-02-02", "commit": "abc", "machine": "M", "threads": 2, "python": "3"}


def stored(rows, **about):
    return Part(ABOUT | {"libraries": {"numpy": "2"}} | about, rows)


@pytest.fixture
def small():
    quiet = {"iris 150×4, 2, fit": 0.5, "wine, 2, fit": 2.0, "iris, transform, one row": 0.25}

    def rows(ratios, factor=1.0):
        about = {"group": "PCA", "peer": "scikit-learn"}
        return [about | {"name": name, "ratio": factor * r} for name, r in ratios.items()]

    return {"small": {"pca": stored(rows(quiet))}, "load": {"pca": stored(rows(quiet, 1.5))}}


def test_many_cells_become_one_line_and_those_behind_are_named(small):
    assert "| PCA | fit | 2 | 1.00 | 0.50 | 2.00 | 1 |" in tables.condensed(small)
    assert "| PCA | transform, one row | 1 | 0.25 | 0.25 | 0.25 | 0 |" in tables.condensed(small)
    assert "| PCA | 3 | 0.63 | 0.94 | 1.50 | 1.50 |" in tables.loaded(small)
    assert page.behind(small, "small").endswith("in 1 of 3 comparisons: PCA, wine, 2, fit (2.00).")
    told = page.summary(small)
    assert told.startswith("6 cells, 2 behind\n  small: PCA, wine, 2, fit: 2.00\n")
    assert "small PCA: 3 cells, geometric mean 0.63, 1 behind" in told


def test_runs_of_other_commits_and_what_was_left_out_can_be_seen(small):
    small["small"]["models"] = stored([], commit="def", left_out=["the rest of models"])
    about = page.about(small, "small")
    assert "- pca: 2020-02-02, commit abc · M, 2 threads" in about
    assert "- models: 2020-02-02, commit def" in about
    assert "left out: the rest of models" in about


def test_only_rows_of_ours_are_cells_and_each_of_their_ratios_is_one():
    rows = [
        {"name": "a", "who": "dualpca x", "ours": True, "ratio": 0.5, "whole_fit_ratio": 2.0},
        {"name": "a", "who": "peer", "ours": False, "ratio": 1.0},
        {"name": "b", "who": "dualpca", "ours": True, "ratio": None},
    ]
    found = results.cells("missing", {"p": stored(rows)})
    assert [(cell.name, cell.ratio) for cell in found] == [("a, x", 0.5), ("a, x, whole fit", 2.0)]


# --- running -------------------------------------------------------------------------------------


def test_a_part_replaces_itself_and_leaves_the_others(tmp_path):
    (tmp_path / "coverage.json").write_text("of another kind")
    results.keep(tmp_path, "gpu", {"a": stored([{"x": np.float64(1 / 3)}]), "b": stored([])})
    results.keep(tmp_path, "gpu", {"a": stored([{"x": float("nan"), "y": [1, 2.5]}])})
    found = results.load(tmp_path)["gpu"]
    assert found["a"].rows == [{"x": None, "y": [1, 2.5]}] and found["b"].rows == []
    assert results.take(tmp_path, tmp_path / "other") == ["gpu:a", "gpu:b"]
    assert results.load(tmp_path / "other")["gpu"]["a"] == found["a"]


def test_a_run_stops_at_its_budget_with_what_it_has():
    def rows(run, part):
        yield {"name": "first"}
        try:
            time.sleep(5)
        except Exception:  # what many a peer is wrapped in
            yield {"name": "second"}

    run = Run(budget=0.05)
    found, well = one.run_part(SECTIONS["draws"], "p", run, rows)
    assert well and found.rows == [{"name": "first"}]
    assert found.about["left_out"] == ["the rest of p"]
    assert not run.room("q") and run.left_out[-1] == "q"
    assert list(Run(budget=0.0).repeats(5, fewest=2)) == [0, 1] and len([*Run().repeats(5)]) == 5
    with pytest.raises(OutOfTime), Run(budget=0.0).in_time():
        time.sleep(5)


def test_parts_are_named_by_section_and_what_is_unknown_is_refused():
    asked = command.asked(["missing:2,000×500,5,000×100", "draws", "missing:20,000×100"])
    assert asked["missing"] == ["5,000×100", "2,000×500", "20,000×100"]
    assert asked["draws"] == ["50,000×10"]
    assert list(command.asked([])) == list(SECTIONS)
    for words in (["pcas"], ["missing:3,000×2"]):
        with pytest.raises(SystemExit, match="Expected"):
            command.asked(words)


def test_what_a_section_needs_and_is_absent_is_said(monkeypatch):
    monkeypatch.setitem(absent.__globals__["INSTALL"], "no_such_peer", "pip install it")
    assert absent(("no_such_peer",)) == "it needs no_such_peer (pip install it)"
    assert "DUALPCA_DATA" in absent(("no_such.npz",))
    assert absent(("numpy",)) == ""


def test_the_best_peer_is_the_fastest_that_is_accurate_enough():
    case = replace(cases(quick=True)["tall-500"], accuracy=1e-8)
    ours, _, *peers = case.contestants
    errors, seconds = (1e-9, 1e-9, 1e-3), (3.0, 2.0, 1.0)
    found = [
        Measurement(who, [s], error=e) for who, e, s in zip(peers, errors, seconds, strict=False)
    ]
    assert fits.best_peer(case, [Measurement(ours, [0.1], error=0.0), *found]) is found[1]


# --- what is measured ----------------------------------------------------------------------------


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    X[:, 0] = 1 + 2 * X[:, 1] - X[:, 2] + 0.5 * X[:, 0]
    return imputation.Table(X, list("yabc"), 0, [1, 2], 3, 1)


def test_entries_go_completely_at_random(table):
    holes = imputation.completely_at_random(table.X, 0.3, np.random.default_rng(1))
    assert abs(holes.mean() - 0.3) < 0.04
    assert abs(np.corrcoef(holes[:, 0], table.X[:, 3])[0, 1]) < 0.15


def test_entries_go_where_the_driver_is_high_and_the_driver_stays(table):
    holes = imputation.depending_on(table.X, 3, 0.3, np.random.default_rng(1))
    assert not holes[:, 3].any()
    assert abs(holes[:, :3].mean() - 0.3) < 0.04
    high = table.X[:, 3] > np.median(table.X[:, 3])
    assert holes[high, :3].mean() > 3 * holes[~high, :3].mean()


def test_the_same_seed_removes_the_same_entries_and_no_row_loses_all(table):
    for mechanism in imputation.mechanisms(table).values():
        X = imputation.removed(table, mechanism, 5)
        np.testing.assert_array_equal(X, imputation.removed(table, mechanism, 5))
        assert np.isnan(X).any() and not np.isnan(X).all(axis=1).any()
        np.testing.assert_array_equal(X[~np.isnan(X)], table.X[~np.isnan(X)])


def test_pooling_is_rubins():
    pooled = imputation.rubin(np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.5, 2.0]), dof=20)
    # By hand: Ū = 1, B = 1, T = 1 + 4/3, γ = 4/7, ν = 2·49/16, ν_obs = 21/23·20·3/7.
    assert pooled.estimate == pytest.approx(2.0)
    assert pooled.between == pytest.approx(1.0)
    assert pooled.variance == pytest.approx(7 / 3)
    assert pooled.dof == pytest.approx(1 / (16 / 98 + 1 / (21 / 23 * 20 * 3 / 7)))
    low, high = pooled.interval(0.95)
    assert (low + high) / 2 == pytest.approx(2.0) and high - low > 2 * 1.96 * (7 / 3) ** 0.5


def test_one_table_is_analysed_as_if_complete(table):
    [first, second] = imputation.analysed(imputation.Filled(table.X, table.X[None]), table)
    beta, variances, _ = imputation.regression(table.X, table)
    assert [first.estimate, second.estimate] == pytest.approx(list(beta))
    assert [first.variance, second.variance] == pytest.approx(list(variances))
    assert beta == pytest.approx([2, -1], abs=0.1)


def test_who_fills_in_the_truth_has_no_error(table):
    X = imputation.removed(table, imputation.mechanisms(table)["30 % at random"], 0)
    exact = imputation.Filled(table.X, np.repeat(table.X[None], 3, axis=0))
    score = imputation.score(exact, X, table, 1.0)
    assert score.squares == 0 and score.covered == 1 and score.width < 1e-12
    assert score.errors == pytest.approx([0, 0], abs=1e-10)
    assert score.widths == pytest.approx([1, 1], rel=0.02)  # fewer degrees of freedom


def test_our_draws_keep_what_was_measured_and_come_back_in_the_units_of_the_table(table):
    scaled = table._replace(X=100 + 1000 * table.X[:60])
    X = imputation.removed(scaled, imputation.mechanisms(scaled)["10 % at random"], 0)
    names = []
    for name, filled, seconds in imputation.ours(X, 0):
        names.append(name)
        seen = ~np.isnan(X)
        np.testing.assert_allclose(
            filled.draws[:, seen], X[seen][None].repeat(len(filled.draws), 0)
        )
        assert np.sqrt(imputation.score(filled, X, scaled, seconds).squares) < 1.5
    assert len(names) == len(set(names)) >= 3


@pytest.mark.parametrize("kind", ["scattered", "clustered"])
def test_replaced_rows_are_outliers_and_the_others_are_not(kind):
    table = robust.drawn(200, 10, 2, 0.2, kind, 0)
    good = np.setdiff1d(np.arange(200), table.bad)
    assert len(table.bad) == 40
    clean = robust.METHODS["dualpca PPCA"](table.X[good], 2)
    found = robust.METHODS["dualpca RobustPPCA"](table.X, 2)
    assert robust.angle(found.axes, table.axes) < 1.5 * robust.angle(clean.axes, table.axes) < 10
    assert found.flagged[table.bad].all() and found.flagged[good].mean() < 0.1


def test_angles_are_between_spans():
    eye = np.eye(3)
    assert robust.angle(eye[:, :2], eye[:, [1, 0]]) == pytest.approx(0, abs=1e-5)
    assert robust.angle(eye[:, :1], (eye[:, :1] + eye[:, 1:2]) / 2**0.5) == pytest.approx(45)


# --- numbers and categories ----------------------------------------------------------------------


@pytest.fixture
def mixed_table():
    return copula_table(300, 0).X


def test_codes_of_a_mixed_table_lead_back_to_it(mixed_table):
    hidden = mixed.split(mixed_table, 0)
    codes = mixed.Codes(mixed_table)
    A = mixed.Codes(hidden).matrix()
    assert A.shape == (300, 12 + 4 + 3 + 5)
    assert np.isnan(A).any()
    back = codes.table(codes.matrix())
    for name in mixed_table:
        assert list(back[name]) == list(mixed_table[name])


def test_a_tenth_is_hidden_and_nothing_else_changes(mixed_table):
    hidden = mixed.split(mixed_table, 3)
    gaps = hidden.isna().to_numpy()
    assert abs(gaps.mean() - 0.1) < 0.02 and not gaps.all(axis=1).any()
    pd.testing.assert_frame_equal(hidden, mixed.split(mixed_table, 3))
    for name in mixed_table:
        seen = hidden[name].notna()
        assert list(hidden[name][seen]) == list(mixed_table[name][seen])


def test_the_truth_has_no_error_and_the_median_an_error_of_one(mixed_table):
    hidden = mixed.split(mixed_table, 0)
    assert mixed.score(mixed_table, hidden, mixed_table) == (0, 0)
    numbers, levels = mixed.score(mixed.middle(hidden, 0).X, hidden, mixed_table)
    assert numbers == pytest.approx(1) and 0.3 < levels < 0.8


@pytest.mark.parametrize("who", ["KNNImputer", "IterativeImputer"])
def test_methods_for_numbers_keep_what_is_known_and_beat_the_mode(mixed_table, who):
    hidden = mixed.split(mixed_table, 0)
    filled = mixed.METHODS[who](hidden, 0).X
    for name in hidden:
        seen = hidden[name].notna().to_numpy()
        if hidden[name].dtype == "category":
            assert list(filled[name][seen]) == list(hidden[name][seen])
            assert filled[name].notna().all()
        else:
            np.testing.assert_allclose(filled[name][seen], hidden[name][seen])
    middle = mixed.score(mixed.middle(hidden, 0).X, hidden, mixed_table)
    assert mixed.score(filled, hidden, mixed_table)[1] < middle[1]


def test_forests_find_groups_that_a_median_misses(monkeypatch):
    monkeypatch.setattr(mixed, "TREES", 10)
    monkeypatch.setattr(mixed, "ROUNDS", 2)
    X = cluster_table(200, 0)
    hidden = mixed.split(X, 0)
    filled = mixed.forests(hidden, 0).X
    assert all(np.less(mixed.score(filled, hidden, X), (0.9, 0.6)))


def test_whoever_is_within_one_standard_error_of_the_best_is_among_the_good():
    cells = {
        who: mixed.Cell(mean, error, np.zeros(5))
        for who, mean, error in (("a", 0.30, 0.02), ("b", 0.319, 0.001), ("c", 0.33, 0.05))
    }
    assert mixed.good(cells) == {"a", "b"}


def test_most_frequent_draws_are_counted_by_row():
    draws = np.array([[0.0, 2, 2, 1], [1, 1, 0, 0]])
    assert list(mixed.most_frequent(draws)) == [2, 0]
