"""The pieces of benchmarks that decide what is measured."""

import numpy as np
import pytest

from benchmarks import imputation


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
