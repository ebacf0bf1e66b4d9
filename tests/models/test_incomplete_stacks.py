"""EM of several small tables at once: the same densities, steps and maxima as one at a time."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

from dualpca import Imputer
from dualpca.data import EntryFolds, InMemoryTable
from dualpca.models import incomplete, selection
from dualpca.models.driver import maximize
from dualpca.models.incomplete import Fit, Stack
from dualpca.models.selection import hidden_score

ROUTES = {"latents": 0.0, "rows": np.inf}


def table(seed=0, n=60, d=7, q=2, missing=0.3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, q)) @ rng.normal(size=(q, d)) + 0.5 * rng.normal(size=(n, d)) + 3
    X[rng.random(X.shape) < missing] = np.nan
    return X


@pytest.fixture(params=ROUTES)
def route(request, monkeypatch):
    monkeypatch.setattr(incomplete, "FEWER_STEPS", ROUTES[request.param])
    return request.param


def plain(X, q, weights=None):
    """Return a fit that goes the way of large tables."""
    return Fit(InMemoryTable(X, weights), q, by_blocks=True)


@pytest.mark.parametrize("weighted", [False, True])
def test_both_ways_raise_the_same_likelihood_to_the_same_maximum(route, weighted):
    X = table()
    X[4] = np.nan  # observes nothing
    w = np.random.default_rng(1).integers(0, 3, size=len(X)) * 1.0 if weighted else None
    quick, slow = Fit(InMemoryTable(X, w), 2), plain(X, 2, w)
    theta = quick.begin(np.random.default_rng(0))
    assert quick.step(theta)[1] == pytest.approx(slow.step(theta)[1], rel=1e-12)
    found, record = maximize(quick.step, theta, tol=1e-9)
    wanted, other = maximize(slow.step, theta, tol=1e-9)
    assert np.all(np.diff(record.loglikelihoods) > -1e-9)
    assert record.loglikelihoods[-1] == pytest.approx(other.loglikelihoods[-1], rel=1e-11)
    C, D = (f.W @ f.W.T + np.diag(f.psi) for f in (quick.unpack(found), slow.unpack(wanted)))
    np.testing.assert_allclose(C, D, atol=1e-6 * np.max(D))


def test_fixed_noise_stays(route):
    fit = Fit(InMemoryTable(table()), 2, 0.4)
    theta, record = maximize(fit.step, fit.begin(np.random.default_rng(0)))
    assert np.all(fit.unpack(theta).psi == 0.4)
    slow = Fit(InMemoryTable(table()), 2, 0.4, by_blocks=True)
    assert slow.step(theta)[1] == pytest.approx(record.loglikelihoods[-1], rel=1e-9)


def test_tables_in_a_stack_do_not_see_each_other(route):
    tables = np.stack([table(seed) for seed in range(3)])
    together, alone = Stack(tables, 2), [Stack(X[None], 2) for X in tables]
    after, value = together.step(together.begin())
    each = [one.step(one.begin()) for one in alone]
    np.testing.assert_allclose(after, np.concatenate([theta for theta, _ in each]), atol=1e-10)
    assert value == pytest.approx(sum(v for _, v in each), rel=1e-12)


def test_completing_rows_needs_fewer_steps_where_noise_is_small(monkeypatch):
    X = table(n=150, d=6, q=5, missing=0.05)
    steps = []
    for fewer in ROUTES.values():
        monkeypatch.setattr(incomplete, "FEWER_STEPS", fewer)
        fit = Fit(InMemoryTable(X), 5)
        steps.append(maximize(fit.step, fit.begin(np.random.default_rng(0)))[1].n_iter)
    assert steps[1] < steps[0]


def test_hidden_entries_are_scored_as_one_fold_at_a_time(route):
    X, w = table(missing=0.1), np.random.default_rng(2).uniform(0.5, 2, size=60)
    rows = InMemoryTable(X, w)
    folds = EntryFolds(rows)
    stacked = selection._stacked_folds(rows, folds, [0, 1, 2, 3, 4], 60)
    stack = stacked.stack.with_components(2)
    theta = stack.step(stack.begin())[0]
    scores = stacked.scores(stack.guess(stack.expected(theta)))
    for k, part in enumerate(theta.reshape(5, -1)):
        shown = folds.hide(rows, k)
        fit = Fit(shown, 2)
        hidden = folds.hidden(X, 0, k)
        wanted = hidden_score(fit.unpack(part), X, hidden, fit.origin, w)
        np.testing.assert_allclose(scores[k], wanted, rtol=1e-9)


def test_a_path_of_few_steps_does_not_take_what_it_lacks_for_a_component():
    for n, d, q, missing in ((1500, 12, 4, 0.1), (1500, 5, 2, 0.3)):
        X = table(1, n, d, q, missing)
        curve = selection.cross_validated("cv", InMemoryTable(X), d - 1, missing=True)
        assert curve.chosen == q


def test_columns_of_different_units_get_as_many_components_as_they_need():
    truth = load_diabetes(scaled=False).data
    gone = np.random.default_rng(0).random(truth.shape) < 0.1
    X = np.where(gone, np.nan, truth)
    errors = []
    for q in (3, None):
        imputer = Imputer(q, standardize=False)
        off = (imputer.fit_transform(X) - truth) / truth.std(axis=0)
        errors.append(np.mean(off[gone] ** 2))
    assert imputer.model_.n_components_ == 9
    assert imputer.model_.selection_.candidates[-1] == 9
    assert errors[1] < 0.9 * errors[0]


def test_the_largest_number_is_tried_where_columns_are_of_different_units(monkeypatch):
    truth = load_diabetes(scaled=False).data
    X = np.where(np.random.default_rng(0).random(truth.shape) < 0.1, np.nan, truth)
    monkeypatch.setattr("dualpca.gaussian.selection.given_up", lambda scores: len(scores) >= 3)
    found = Imputer(standardize=False).fit(X).model_.selection_
    assert found.candidates.tolist() == [1, 2, 3, 9] and found.chosen == 9


@pytest.mark.parametrize("route", ["latents"], indirect=True)
def test_one_more_latent_starts_along_what_is_left(route):
    """Its length is in the units of the table, and no longer than residuals are."""
    X, found = table(q=3), []
    for unit in (1.0, 1000.0):
        stack = Fit(InMemoryTable(unit * X), 1).quick
        at = stack.expected(stack.begin())
        W, _, sigma2 = stack.with_components(2).unpack(stack.guess(at).next)
        off = at.found.latents.off[0]
        lam = np.linalg.eigvalsh(off @ off.T)[-1] / stack.counts.mean()
        np.testing.assert_allclose(W[0, :, :1], at.W[0], rtol=1e-12)
        wanted = max(lam - sigma2[0], 0.1 * sigma2[0])
        assert W[0, :, 1] @ W[0, :, 1] == pytest.approx(wanted, rel=1e-10)
        found.append(W / unit)
    np.testing.assert_allclose(np.abs(found[1]), np.abs(found[0]), rtol=1e-8)
