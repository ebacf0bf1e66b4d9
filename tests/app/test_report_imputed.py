"""The report on what is filled in: its numbers are those of the draws and of hidden entries."""

import numpy as np
import polars as pl
import pytest

pytest.importorskip("plotly", reason="the app extra is not installed: no report to test")

from sklearn.datasets import load_iris

import dualpca as dp
from dualpca import report
from dualpca.app.report import imputed, mixed, trust
from dualpca.app.report.page import Several
from dualpca.app.report.subject import LeftOut

RNG = np.random.default_rng(0)
X, Y = load_iris(return_X_y=True)
HOLES = np.where((RNG.random(X.shape) < 0.15) & [True, False, True, True], np.nan, X)
KIND = np.where(RNG.random(150) < 0.1, None, np.array(["setosa", "versicolor", "virginica"])[Y])
MIXED = pl.DataFrame(np.where(np.isnan(HOLES), np.nan, HOLES), schema=list("abcd")).with_columns(
    pl.all().fill_nan(None), pl.Series("kind", KIND.tolist(), dtype=pl.String)
)


def plots_of(section):
    found = []
    for part in section.parts:
        found += part.plots if isinstance(part, Several) else [part]
    return found


@pytest.mark.parametrize("standardize", [False, True])
def test_draws_are_in_the_units_of_the_table(standardize):
    about = report.subject_of(dp.PPCA(2, standardize=standardize).fit(HOLES), HOLES)
    tables = imputed.drawn_tables(about, np.arange(150))
    gap = np.isnan(HOLES)
    assert len(tables) == imputed.DRAWS
    for table in tables:
        np.testing.assert_allclose(table[~gap], HOLES[~gap])
    off = np.abs(np.mean(tables, axis=0) - X)[gap]
    assert np.median(off) < 0.4


def test_columns_with_gaps_are_shown_with_their_averages():
    about = report.subject_of(dp.PPCA(2).fit(HOLES), HOLES)
    section = imputed.filled_in(about)
    columns, pair, steps = plots_of(section)[:3], *plots_of(section)[3:]
    order = np.argsort(-np.isnan(HOLES).sum(axis=0), kind="stable")[:3]
    tables = imputed.drawn_tables(about, np.arange(150))
    for one, j in zip(columns, order, strict=True):
        gap = np.isnan(HOLES[:, j])
        made = np.mean([table[gap, j].mean() for table in tables])
        assert one.finding.startswith(f"x{j}: {gap.sum()} values filled in")
        assert (
            f"on average {imputed.said(made)}; measured {imputed.said(HOLES[~gap, j].mean())}"
            in (one.finding)
        )
        assert len(one.data) == imputed.DRAWS + 1
    counts = [len(trace["x"]) for trace in pair.data]
    a, b = (np.isnan(HOLES[:, j]) for j in order[:2])
    assert counts == [np.sum(~a & ~b), np.sum(a & ~b), np.sum(b & ~a), np.sum(a & b)]
    assert len(steps.data[0]["y"]) == len(about.model.loglikelihoods_)
    assert report.render(report.Page("t", [], [section]))


def test_levels_are_shown_by_their_shares():
    model = dp.CopulaPPCA(2).fit(MIXED)
    about = report.subject_of(model, MIXED)
    section = imputed.filled_in(about)
    one = next(plot for plot in plots_of(section) if plot.finding.startswith("kind:"))
    known = MIXED["kind"].drop_nulls().value_counts(normalize=True).sort("kind")["proportion"]
    np.testing.assert_allclose(one.data[0]["y"], known, atol=1e-3)
    assert all(np.isclose(sum(trace["y"]), 1, atol=1e-3) for trace in one.data[1:])


def test_hidden_entries_are_drawn_against_their_predictions():
    about = report.subject_of(dp.PPCA(2).fit(HOLES), HOLES)
    found = trust.measured(about)
    over = found.over
    assert np.array_equal(over.truth, HOLES[over.row, over.column])
    inside = (over.low <= over.truth) & (over.truth <= over.high)
    assert np.array_equal(np.bincount(over.column[inside], minlength=4), found.inside)
    plots = imputed.predicted(about, over, trust.TOLD)[0].plots
    assert len(plots) == 4
    for j, one in enumerate(plots):
        drawn = sum(len(trace["x"]) for trace in one.data[:-1])
        assert drawn == found.hidden[j]
        share = imputed.percent(found.inside[j] / found.hidden[j])
        assert f"{share} of {found.hidden[j]} hidden values" in one.finding


def test_hidden_entries_of_mixed_columns_have_ranges():
    model = dp.CopulaPPCA(2).fit(MIXED)
    about = report.subject_of(model, MIXED)
    found = mixed.hidden_entries(about)
    over = found.over()
    assert set(over.column) == {0, 1, 2, 3}
    inside = (over.low <= over.truth) & (over.truth <= over.high)
    assert np.array_equal(inside, found.inside[~np.isnan(found.inside)] == 1)


def test_the_section_is_left_out_where_it_does_not_apply():
    for model, rows, why in (
        (dp.PPCA(2), X, "nothing is missing"),
        (dp.MixturePPCA(2, 2, random_state=0), HOLES, "does not draw"),
    ):
        about = report.subject_of(model.fit(rows), rows)
        with pytest.raises(LeftOut, match=why):
            imputed.filled_in(about)
