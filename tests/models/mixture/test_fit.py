"""Fits of a mixture: the dense step, starts, races, Ctrl-C, sticks and prices."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import betaln

from dualpca import MixturePPCA
from dualpca.data import InMemoryTable
from dualpca.errors import CollapseWarning, InterruptWarning
from dualpca.models.clusters import kmeans_runs
from dualpca.models.emissions import Emissions, Surveyed
from dualpca.models.mixture import MixtureRequest, MixtureSteps, fit, fit_mixture
from dualpca.models.mixture.fit import START_STEPS, broken_sticks, found_at
from tests.models.emission_cases import covariances, groups
from tests.models.mixture.cases import assert_never_falls, with_outlier
from tests.oracles import mixture as dense
from tests.tolerances import assert_close, tolerance


def test_one_step_of_em_equals_the_dense_one():
    X = groups(apart=1.0)
    start = Emissions.start(X, 3, 2, np.random.default_rng(0))
    mass = np.array([50.0, 40.0, 30.0])
    request = MixtureRequest(3, 2, noise_floor=0.0)
    steps = MixtureSteps(Surveyed.of(InMemoryTable(X)), request, 2, np.random.default_rng(0))
    found = found_at(*steps.run(lambda: steps.begin(start, mass), max_iter=1), request)
    pi, mu, C = dense.em_step(X, mass / 120, np.asarray(start.means), covariances(start), 2)
    assert_close(found.mixture.weights, pi, "vector")
    assert_close(found.mixture.emissions.means, mu, "vector")
    assert_close(covariances(found.mixture.emissions), C, "vector")


def test_the_keyboard_loses_nothing(monkeypatch):
    step, taken = MixtureSteps.step, []

    def impatient(self, state):
        taken.append(1)
        if len(taken) == 5:
            raise KeyboardInterrupt
        return step(self, state)

    monkeypatch.setattr(MixtureSteps, "step", impatient)
    with pytest.warns(InterruptWarning):
        model = MixturePPCA(3, 2, tol=0.0).fit(groups(apart=1.0))
    assert len(taken) == 5 and model.n_iter_ == len(model.loglikelihoods_) - 1 >= 4
    assert np.isfinite(model.score(groups(apart=1.0)))


def test_the_keyboard_leaves_weights_and_components_that_belong_together(monkeypatch):
    expect = MixtureSteps.expect

    def impatient(self, emissions, mass):
        if emissions.K < 3:  # one was dropped
            raise KeyboardInterrupt
        return expect(self, emissions, mass)

    monkeypatch.setattr(MixtureSteps, "expect", impatient)
    monkeypatch.setattr(fit, "FEW_CUTS", 1)  # k-means gives the row a component of its own
    with pytest.warns(InterruptWarning), pytest.warns(CollapseWarning):
        model = MixturePPCA(3, 2, on_collapse="drop").fit(with_outlier())
    assert model.weights_.shape == (len(model.means_),)
    assert_close(model.score_samples(with_outlier()).sum(), model.loglikelihood_, "em")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_component_on_one_row_is_started_again():
    X = with_outlier()
    with pytest.warns(CollapseWarning, match="started again"):
        model = MixturePPCA(3, 2, on_collapse="reseed").fit(X)
    assert np.all(np.isfinite(model.score_samples(X)))
    values = model.loglikelihoods_
    assert np.all(np.diff(values) >= -tolerance("monotone") * np.abs(values[1:]))


def collapsing(mass=None, **story):
    """Return EM before a step that leaves the third component one row, and where it is."""
    X = with_outlier()
    data, rng = Surveyed.of(InMemoryTable(X)), np.random.default_rng(0)
    request = MixtureRequest(3, 2, on_collapse="reseed", unit=data.unit)
    steps, labels = MixtureSteps(data, request, 2, rng), np.arange(81) // 40
    start = Emissions.start(X, 3, 2, np.random.default_rng(0), floor=request.floor, labels=labels)
    state, _ = steps.expect(start, np.bincount(labels) * 1.0 if mass is None else np.array(mass))
    return steps, replace(state, **story)


def test_components_are_started_again_twice_as_often_as_there_are_and_then_dropped():
    for before, after in ((0, (1, 0, 3)), (3, (4, 0, 3)), (5, (6, 0, 3)), (6, (6, 1, 2))):
        steps, state = collapsing(reseeded=before)
        found, _ = steps.step(state)
        assert found.rescued
        assert (found.reseeded, found.dropped, found.emissions.K) == after


@pytest.mark.parametrize("mass", [(40.0, 40.0, 1.0), (80.9, 1e-9, 0.1), (1e-9, 80.9, 0.1)])
def test_components_are_started_again_at_different_rows_that_are_explained_worst(mass):
    """By the mixture: what a component with next to no share explains is not explained."""
    X, (steps, state) = with_outlier(), collapsing(mass)
    parts = state.mass / 81, state.emissions.means, covariances(state.emissions)
    worst = X[np.argsort(dense.score_samples(X, *parts))[:4]]
    for _ in range(20):
        fresh, mass = steps.reseed(state, state.emissions, state.mass, [0, 2])
        one, kept, other = fresh.means
        assert sum(np.array_equal(row, mean) for row in worst for mean in (one, other)) == 2
        assert not np.array_equal(one, other)
        assert np.array_equal(kept, state.emissions.means[1])
        assert_close(mass, [27.0, state.mass[1], 27.0], "exact")


def test_sticks_are_the_best_posterior_and_the_best_order():
    # the optimum of Σ n E ln π − KL over Beta posteriors is Σ ln B(a, b) − ln B(1, α)
    n, alpha = np.array([5.0, 40.0, 0.5, 12.0]), 1.7

    def value(order):
        m = n[order]
        after = m.sum() - np.cumsum(m)
        return np.sum(betaln(1 + m, alpha + after) - betaln(1, alpha))

    found = broken_sticks(n, alpha, [0, 0, 0, 0])
    assert_close(found.constant + n @ found.log_weights, value(np.argsort(-n)), "vector")
    rng = np.random.default_rng(0)
    assert all(value(rng.permutation(4)) <= value(np.argsort(-n)) + 1e-12 for _ in range(24))


def test_the_price_of_parameters_is_bounded_from_below_by_its_tangent():
    n, p = np.array([30.0, 3.0]), [10, 10]
    free, priced = broken_sticks(n, 1.0, [0, 0]), broken_sticks(n, 1.0, p)

    def price(mass):
        return -np.sum(5 * np.log1p(mass))

    def tangent(mass):
        return priced.constant - free.constant + mass @ (priced.log_weights - free.log_weights)

    assert_close(tangent(n), price(n), "vector")
    for mass in np.random.default_rng(0).uniform(0, 50, size=(50, 2)):
        assert tangent(mass) <= price(mass) + 1e-12


def test_em_from_given_labels_converges():
    X = groups(apart=1.0)
    data, rng = Surveyed.of(InMemoryTable(X)), np.random.default_rng(0)
    request = MixtureRequest(3, 2, noise_floor=1e-6, unit=1.0)
    steps = MixtureSteps(data, request, 2, rng)
    start = Emissions.start(X, 3, 2, rng, floor=1e-6, labels=np.arange(120) // 40)
    run = steps.run(lambda: steps.begin(start, np.full(3, 40.0)), max_iter=500)
    found = found_at(*run, request)
    assert_never_falls(found.record.loglikelihoods)


def test_the_best_of_the_starts_is_carried_on():
    X = groups(200, 4, 4, apart=1.5)
    data = Surveyed.of(InMemoryTable(X))
    request = MixtureRequest(4, 2, unit=data.unit)
    steps = MixtureSteps(data, request, 2, np.random.default_rng(0))
    clusters = kmeans_runs(X, 4, 4, np.random.default_rng(1))
    state, record = steps.race(clusters, (4, 2), START_STEPS)
    assert state.emissions.K == 4
    assert_never_falls(record.loglikelihoods)
    alone = [steps.race(one[None], (4, 2), START_STEPS) for one in clusters]
    assert all(len(run[1].loglikelihoods) == 1 for run in alone)  # one start has no race
    again, value = steps.expect(state.emissions, state.mass)
    assert_close(value, record.loglikelihoods[-1], "em")
    assert_close(again.sums.resp, state.sums.resp, "vector")


def test_a_race_ends_when_all_starts_have_found_the_same_clusters():
    X, rng = groups(150, 4, 3, apart=3.0), np.random.default_rng(0)
    data = Surveyed.of(InMemoryTable(X))
    steps = MixtureSteps(data, MixtureRequest(3, 2, unit=data.unit), 2, rng)
    truth = np.arange(150) // 50
    clusters = np.stack([np.where(rng.random(150) < share, 0, truth) for share in (0.3, 0.5)])
    state, record = steps.race(clusters, (3, 2), START_STEPS)
    assert 1 < len(record.loglikelihoods) < START_STEPS
    assert np.mean(np.argmax(state.sums.resp, axis=1) == truth) > 0.9


def crossed(rng, n=300):
    """Return two groups that are longer than they are apart, and which rows are of which."""
    axes = rng.normal(size=(2, 6))
    axes *= 3 / np.linalg.norm(axes, axis=1)[:, None]
    k = rng.integers(0, 2, n)
    step = rng.normal(size=6)
    means = np.outer([0, 1], 3.5 * step / np.linalg.norm(step))
    return means[k] + rng.normal(size=(n, 1)) * axes[k] + rng.normal(size=(n, 6)), k


def test_long_groups_are_nearly_always_found_as_well_as_from_the_truth(monkeypatch):
    rng, lesser = np.random.default_rng(1), {1: 0, 3: 0}
    for _ in range(25):
        X, k = crossed(rng)
        best = fit_mixture(InMemoryTable(X), MixtureRequest(2, 1), k).loglikelihood
        for cut in lesser:
            monkeypatch.setattr(fit, "FEW_CUTS", cut)
            lesser[cut] += MixturePPCA(2, 1, random_state=0).fit(X).loglikelihood_ < best - 0.1
    assert lesser[3] <= 1
    assert lesser[1] >= lesser[3] + 3
