"""What rows show by themselves, beside dense Gaussians."""

import math

import numpy as np
import pytest

import dualpca
from dualpca.gaussian import FactorJudge
from dualpca.models.monitoring import State, advance
from tests.models.monitor_cases import D, Q, baseline, plan, process, with_gaps

MODELS = {
    "PPCA": dualpca.PPCA(Q),
    "standardised": dualpca.PPCA(Q, standardize=True),
    "RobustPPCA": dualpca.RobustPPCA(Q),
    "FactorAnalysis": dualpca.FactorAnalysis(Q),
    "BayesianPCA": dualpca.BayesianPCA(3),
    "PCA": dualpca.PCA(Q),
    "PCA, standardised": dualpca.PCA(Q, standardize=True),
}


@pytest.mark.parametrize("name", MODELS)
def test_t2_and_spe_are_those_of_the_model(name):
    model, X = MODELS[name], process(400)
    base = baseline(model, X)
    new = process(30, seed=5)
    rows = new if name.startswith("PCA") else with_gaps(new)
    rows = rows[~np.isnan(rows).all(axis=1)]
    found = base.measured(rows)
    np.testing.assert_allclose(found.t2, model.hotelling_t2(rows), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.spe, model.spe(rows), rtol=1e-6, atol=1e-7)


def test_whitened_scores_are_white_whatever_is_missing():
    base = baseline(X=process(20_000))
    rows = process(20_000, seed=3)
    rows[:, [0, 4]] = np.nan
    y = base.measured(rows).scores
    np.testing.assert_allclose(np.cov(y.T, bias=True), np.eye(Q), atol=0.05)


def left_out(base, x, i):
    """Return the residual of entry i given the others that are there, by the full Gaussian."""
    there = np.flatnonzero(~np.isnan(x))
    rest = there[there != i]
    C = base.covariance
    z = base.inward(x[None])[0]
    weights = np.linalg.solve(C[np.ix_(rest, rest)], C[rest, i])
    deviation = math.sqrt(C[i, i] - C[i, rest] @ weights)
    return (z[i] - weights @ z[rest]) / deviation / base.spread[i]


@pytest.mark.parametrize("name", ["PPCA", "FactorAnalysis", "standardised"])
def test_residuals_are_those_of_a_sensor_given_the_others(name):
    base, rows = baseline(MODELS[name]), with_gaps(process(20, seed=4))
    found = base.measured(rows).residuals
    assert np.array_equal(np.isnan(found), np.isnan(rows))
    for x, r in zip(rows, found, strict=True):
        for i in np.flatnonzero(~np.isnan(x)):
            assert r[i] == pytest.approx(left_out(base, x, i))


def test_contributions_are_what_reconstruction_takes_away():
    base = baseline(MODELS["FactorAnalysis"])
    rows = with_gaps(process(10, seed=4), 0.15)
    shown = plan(base)
    found = advance(shown, State.fresh(shown), rows)[0].contributions
    C = base.covariance
    for x, shares in zip(rows, found, strict=True):
        there = np.flatnonzero(~np.isnan(x))
        z = base.inward(x[None])[0]
        P = np.linalg.inv(C[np.ix_(there, there)])
        index = z[there] @ P @ z[there]
        for k, i in enumerate(there):
            rest = np.delete(there, k)
            again = z.copy()
            again[i] = C[i, rest] @ np.linalg.solve(C[np.ix_(rest, rest)], z[rest])
            fallen = index - again[there] @ P @ again[there]
            assert abs(shares[i]) * base.spread[i] ** 2 == pytest.approx(fallen, abs=1e-9)
            assert np.sign(shares[i]) == np.sign(z[i] - again[i])
        assert np.all(shares[np.isnan(x)] == 0)


def test_the_noise_of_each_sensor_is_found_where_the_model_takes_it_to_be_the_same():
    rng = np.random.default_rng(0)
    own = np.array([0.2, 0.2, 1.0, 1.0, 0.5, 0.5])
    X = rng.normal(size=(3000, 2)) @ rng.normal(size=(2, 6)) * 2 + own * rng.normal(size=(3000, 6))
    base = baseline(dualpca.PPCA(2), X)
    np.testing.assert_allclose(np.sqrt(base.noise), own, rtol=0.5)
    r = base.measured(X).residuals
    np.testing.assert_allclose(r.std(axis=0), 1.0, rtol=0.02)


def test_a_model_of_all_components_judges_by_mahalanobis_distance():
    X = process(200)
    base = baseline(dualpca.PCA(), X)
    z = X - X.mean(axis=0)
    expected = np.einsum("ij,jk,ik->i", z, np.linalg.inv(np.cov(X.T)), z)
    found = base.measured(X)
    np.testing.assert_allclose(found.t2, expected, rtol=1e-6)
    assert np.all(found.spe == 0)


def test_rows_within_their_span_leave_no_noise_to_judge_by():
    X = process(50)[:, :2] @ np.ones((2, 6))
    with pytest.raises(dualpca.errors.DegenerateError, match="fewer components"):
        baseline(dualpca.PCA(4), X + np.arange(6))


def test_what_is_found_for_a_pattern_does_not_depend_on_the_others():
    base = baseline()
    masks = np.random.default_rng(0).random((40, D)) > 0.3
    judge = FactorJudge(base.factors, base.reference, base.unit)
    every = judge.maps(masks.astype(float))
    limits = plan(base).row_limits([mask.tobytes() for mask in masks])
    for i, mask in enumerate(masks):
        one = judge.maps(mask[None].astype(float))
        assert np.array_equal(one.scores[0], every.scores[i])
        assert np.array_equal(one.residuals[0], every.residuals[i])
        assert np.array_equal(plan(base).row_limits([mask.tobytes()])[0], limits[i])
