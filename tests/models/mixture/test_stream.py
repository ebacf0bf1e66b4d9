"""Mixtures of a stream: expected moments are those of dense conditioning."""

import numpy as np
import pytest

from dualpca import MixturePPCA
from dualpca.models.emissions import Emissions
from dualpca.models.mixture import Mixture, MixtureSteps
from dualpca.models.mixture.stream import FORGET, expected_moments
from tests.models.emission_cases import groups, holes
from tests.models.mixture.cases import fitted
from tests.oracles import mixture as dense
from tests.tolerances import assert_close


def test_expected_moments_of_incomplete_rows_equal_dense_conditioning():
    X, model = fitted(0.25)
    parts = model.weights_, model.means_, model.covariances_
    rho = dense.responsibilities(X, *parts)
    emissions = Emissions(model.means_, tuple(model.loadings_), model.noise_variance_)
    moments, density = expected_moments(Mixture(model.weights_, emissions), X, np.ones(120))
    assert_close(density, dense.score_samples(X, *parts).sum(), "density")
    for k, found in enumerate(moments):
        mean, scatter = np.zeros(5), np.zeros((5, 5))
        filled, spread = dense.missing_oracles.conditionals(X, model.means_[k], parts[2][k])
        mean = rho[:, k] @ filled / rho[:, k].sum()
        for w, x, C in zip(rho[:, k], filled, spread, strict=True):
            scatter += w * (np.outer(x - mean, x - mean) + C)
        assert_close(found.n, rho[:, k].sum(), "vector")
        assert_close(found.mean, mean, "vector")
        assert_close(found.scatter, scatter, "vector")


def test_expected_moments_are_the_same_in_every_library(backend):
    rng, X, w = np.random.default_rng(0), holes(groups(30, 4, 2)), np.linspace(0.5, 2, 30)
    parts = [np.full(2, 0.5), rng.normal(size=(2, 4)), *rng.normal(size=(2, 4, 2)), np.ones(2)]
    found = []
    for home in (np.asarray, backend.asarray):
        shares, means, one, other, noises = map(home, parts)
        mixture = Mixture(shares, Emissions(means, (one, other), noises))
        found.append(expected_moments(mixture, home(X), home(w))[0])
    for here, there in zip(*found, strict=True):
        assert here.n == pytest.approx(there.n)
        assert_close(backend.numpy(there.mean), here.mean, "vector")
        assert_close(backend.numpy(there.scatter), here.scatter, "vector")


def test_a_component_that_no_row_belongs_to_has_no_moments():
    X, means = groups(30, 4, 1), np.repeat([[0.0], [1e4]], 4, axis=1)
    emissions = Emissions(means, (np.ones((4, 1)),) * 2, np.ones(2))
    (one, none), _ = expected_moments(Mixture(np.full(2, 0.5), emissions), X, np.ones(30))
    assert one.n == 30 and none.n == 0
    np.testing.assert_array_equal(none.mean, means[1])
    np.testing.assert_array_equal(none.scatter, np.zeros((4, 4)))


@pytest.mark.parametrize(("n", "far"), [(30, 0.0), (1, 0.0), (32, 0.25), (30, 1.0)])
def test_shares_of_a_stream_are_averages_that_add_up_to_one(n, far):
    """(1 − γ) of what is remembered and γ of a chunk; all is kept of what a chunk has no row of."""
    rng = np.random.default_rng(0)
    first = rng.normal(size=(120, 4)) + 1e4 * (np.arange(120) % 2)[:, None]
    stream = MixturePPCA(2, 1).partial_fit(first)
    np.testing.assert_allclose(stream.weights_, 0.5)
    chunk = rng.normal(size=(n, 4)) + 1e4 * (np.arange(n) < far * n)[:, None]
    stream.partial_fit(chunk)
    gamma = (n / (120 + n)) ** FORGET
    kept = [0.5 * (1 - gamma) + gamma * share if share else 0.5 for share in (1 - far, far)]
    expected = np.array(kept) / np.sum(kept)
    order = np.argsort(np.abs(stream.means_).max(axis=1))
    np.testing.assert_allclose(stream.weights_[order], expected, rtol=1e-9)
    means = [rows.mean(axis=0) for rows in (first[::2], first[1::2])]
    new = [chunk[int(far * n) :], chunk[: int(far * n)]]
    for k, mean, rows, share in zip(order, means, new, (1 - far, far), strict=True):
        if share:
            mean = (0.5 * (1 - gamma) * mean + gamma * share * rows.mean(axis=0)) / (
                0.5 * (1 - gamma) + gamma * share
            )
        np.testing.assert_allclose(stream.means_[k], mean, rtol=1e-6, atol=1e-6)


def test_a_stream_is_fitted_when_it_is_read(monkeypatch):
    X, taken, step = groups(90), [], MixtureSteps.step

    def counted(self, state):
        taken.append(1)
        return step(self, state)

    monkeypatch.setattr(MixtureSteps, "step", counted)
    stream = MixturePPCA(3, 2)
    for rows in np.array_split(X, 9):
        stream.partial_fit(rows)
    assert not taken and stream.n_samples_seen_ == 90
    values = stream.loglikelihoods_
    once = len(taken)
    assert once and stream.loglikelihoods_ == values and len(taken) == once
