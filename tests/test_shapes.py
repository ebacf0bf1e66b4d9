"""Estimators at shapes drawn anew at every run, and what draws them: `tools.shapes`."""

import os
import secrets
import time

import numpy as np
import pytest

from dualpca.data import moments
from tests import oracles
from tests.oracles import chain, missing
from tools.shapes import cases, switches, truth
from tools.shapes.__main__ import run, shrunk, told
from tools.shapes.judging import SUBJECTS, Check, judged

SECONDS = 0.6
"""Of the processor for each estimator: eleven for all, which two workers share."""

SWITCHES = switches.collected()


@pytest.mark.parametrize("name", SUBJECTS)
def test_any_shape_agrees_with_dense_references(name):
    seed = int(os.environ.get("DUALPCA_SHAPES_SEED", secrets.randbits(32)))
    drawn = run(seed, SECONDS, [name], cases.QUICK, SWITCHES, time.process_time)
    for case, failures in drawn:
        if failures:
            text = told(*shrunk(case, seconds=20.0))
            pytest.fail(f"DUALPCA_SHAPES_SEED={seed}\n{text}", pytrace=False)


# --- switches ---------------------------------------------------------------------------


def test_a_new_number_is_found_whatever_it_is_called():
    text = "NEW, OTHER = 2**10, 3.5\nTABLE = {'a': 77}\nSMALL = 1e-3\ndef f(n): return n > 4 * 123"
    values = {"NEW": 1024, "OTHER": 3.5, "TABLE": {"a": 77}, "SMALL": 1e-3}
    found = {(one.name, one.value) for one in switches.of_module(text, values, "room.new")}
    expected = {("room.new.NEW", 1024), ("room.new.OTHER", 3.5), ("room.new.TABLE", 77)}
    assert found == expected | {("room.new:4", 4), ("room.new:4", 123)}


def test_the_borders_that_are_known_are_among_the_switches():
    names = {one.name for one in SWITCHES}
    known = (
        "data.moments.AT_A_TIME data.moments.AT_ONCE data.moments.NARROW arrays.backend.BLOCK_ROWS"
    )
    assert set(known.split()) | {"solvers.exact.CERTAIN_ORDER", "data.table.TALL"} <= names


def test_shapes_lie_on_both_sides_of_a_switch():
    rng, c = np.random.default_rng(0), 2**16
    drawn = [switches.ROLES["entries"](c, rng) for _ in range(400)]
    sizes = np.array([n * d for n, d in drawn])
    for low, high in ((0, c), (c, 2 * c), (2 * c, 6 * c)):
        assert np.sum((low < sizes) & (sizes <= high)) > 20
    rows = np.array([switches.ROLES["rows"](1024, rng)[0] for _ in range(400)])
    assert {1023, 1024, 1025, 2047, 2048, 2049} <= set(rows.tolist())


# --- faults are found, and told in a line -------------------------------------------------


def losing_the_second_block(X, original=moments._moments_at_once):
    """The moments of a table of between one and two blocks, which miss the second."""
    n, d = X.shape
    rows = max(moments.AT_A_TIME // d, 4 * d)
    return original(X[:rows] if rows < n < 2 * rows else X)


def test_moments_that_lose_a_block_are_noticed(monkeypatch):
    monkeypatch.setattr(moments, "_moments_at_once", losing_the_second_block)
    drawn = run(1, 30.0, ["PCA", "PPCA"], cases.QUICK, SWITCHES, time.process_time)
    seen, case = next((k, case) for k, (case, failures) in enumerate(drawn) if failures)
    assert seen < 200
    small, why = shrunk(case, seconds=15.0)
    assert why and small.n * small.d <= case.n * case.d
    assert small.weights == "none" and small.container == "c" and small.d <= case.d
    again = cases.Case.read(small.line.partition("'")[2].removesuffix("'"))
    assert judged(again, SUBJECTS[again.subject])
    monkeypatch.undo()
    assert not judged(again, SUBJECTS[again.subject])


def test_an_error_that_is_nan_fails():
    assert Check("", np.nan, 1.0).fails and Check("", 2.0, 1.0).fails
    assert not Check("", 1.0, 1.0).fails


@pytest.mark.parametrize("container", [*cases.IN_MEMORY, *cases.SPARSE, *cases.FRAMES, "list"])
def test_containers_hold_the_same_numbers(container):
    case = cases.Case("PCA", 20, 3, 1, container=container)
    X = cases.table(case)
    given = cases.given(case, X, "")
    found = given.toarray() if hasattr(given, "toarray") else np.asarray(given)
    if container == "arrow":
        found = np.stack([given[name].to_numpy() for name in given.column_names], axis=1)
    np.testing.assert_array_equal(found, X)


@pytest.mark.parametrize("kind", cases.MISSING)
def test_gaps_leave_every_column_half_of_its_entries(kind):
    X = cases.table(cases.Case("PPCA, gaps", 50, 4, 1, missing=kind))
    share = np.isnan(X).mean(axis=0)
    assert 0 < share.max() <= 0.5


# --- the references are those of the oracles ----------------------------------------------


def gaps(n=40, d=4, q=2):
    rng = np.random.default_rng(0)
    W, psi, mean = rng.normal(size=(d, q)), rng.uniform(0.2, 1, d), rng.normal(size=d)
    X = rng.normal(size=(n, d))
    X[rng.random(X.shape) < 0.2] = np.nan
    X[3] = np.nan
    return X, mean, W, psi


def test_dense_densities_and_expectations_are_those_of_the_oracles():
    X, mean, W, psi = gaps()
    C = W @ W.T + np.diag(psi)
    np.testing.assert_allclose(truth.log_densities(X, mean, C), missing.log_density(X, mean, C))
    found = truth.filled(X, mean, C)
    for x, row in zip(X, found, strict=True):
        np.testing.assert_allclose(row, missing.conditional(x, mean, C)[0], atol=1e-12)


def test_dense_steps_raise_the_likelihood():
    X, mean, W, psi = gaps()
    w = np.random.default_rng(1).uniform(0.5, 2, len(X))
    for equal in (False, True):
        psi = np.full(4, psi.mean()) if equal else psi
        now, values = (mean, W, psi), []
        for _ in range(30):
            values.append(truth.loglikelihood(X, w, *now))
            now = truth.em_step(X, w, *now, equal=equal)
        assert np.all(np.diff(values) > 0) and np.diff(values)[-1] < np.diff(values)[0]


def test_a_dense_step_with_complete_rows_is_that_of_the_oracle():
    X = np.random.default_rng(0).normal(size=(30, 4))
    W, sigma2 = np.random.default_rng(1).normal(size=(4, 2)), 0.3
    # the mean of complete rows does not move where it is that of the rows and z has mean 0
    new_W, new_sigma2 = oracles.em_step(X, W, sigma2)
    mean, found, psi = truth.em_step(X, None, X.mean(axis=0), W, np.full(4, sigma2), equal=True)
    np.testing.assert_allclose(mean, X.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(found, new_W, rtol=1e-10)
    np.testing.assert_allclose(psi, new_sigma2, rtol=1e-10)


def test_a_dense_mixture_step_stays_where_one_component_is_the_closed_form():
    X = np.random.default_rng(0).normal(size=(30, 4)) * [3, 2, 1, 1]
    model = oracles.ppca(X, 2)
    start = (np.ones(1), model.mean[None] + 1, model.covariance[None] + np.eye(4))
    shares, means, C = truth.mixture_step(X, None, *start, 2)
    assert shares == pytest.approx(1)
    np.testing.assert_allclose(means[0], model.mean)
    np.testing.assert_allclose(C[0], model.covariance)


def test_the_forward_pass_is_the_sum_over_all_paths():
    rng = np.random.default_rng(0)
    log_b, start, A = (
        rng.normal(size=(5, 2)),
        np.array([0.3, 0.7]),
        np.array([[0.9, 0.1], [0.4, 0.6]]),
    )
    expected = chain.enumerate_paths(start, A, log_b).loglikelihood
    assert truth.forward(log_b, start, A) == pytest.approx(expected)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_dense_moments_lose_nothing_to_an_offset(offset):
    X = np.round(np.random.default_rng(0).normal(size=(50, 3)) * 2**20) / 2**20
    w = np.random.default_rng(1).integers(0, 3, 50).astype(float)
    total, mean, C = truth.centred(X + offset, w)
    assert total == w.sum()
    np.testing.assert_allclose(mean - offset, oracles.mean(X, w), atol=1e-9)
    np.testing.assert_allclose((w[:, None] * C).T @ C / total, oracles.covariance(X, w), atol=1e-12)
    ell, V = truth.spectrum(C, w)
    expected = oracles.log_density(
        C, np.zeros(3), (V[:, :1] * (ell[0] - 0.5)) @ V[:, :1].T + 0.5 * np.eye(3)
    )
    np.testing.assert_allclose(truth.spiked_log_density(C, V[:, :1], ell[:1], 0.5), expected)
