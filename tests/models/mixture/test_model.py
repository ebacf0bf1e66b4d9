"""A mixture of spiked Gaussians, judged by dense covariances."""

import numpy as np
import pytest

from tests.models.mixture.cases import fitted
from tests.oracles import mixture as dense
from tests.tolerances import assert_close, assert_log_density


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("missing", [0.0, 0.25])
def test_responsibilities_and_densities_equal_the_dense_oracle(missing, tied):
    X, model = fitted(missing, tied)
    parts = model.weights_, model.means_, model.covariances_
    found = model.predict_proba(X, parameters="fixed")
    assert_close(found, dense.responsibilities(X, *parts), "vector")
    assert_log_density(model.score_samples(X), dense.score_samples(X, *parts), 5)
    assert np.array_equal(model.predict(X), dense.responsibilities(X, *parts).argmax(axis=1))
    assert_close(model.score_samples(X).sum(), model.loglikelihood_, "em")
    assert_close(model.lower_bound_ * len(X), model.loglikelihood_, "exact")


def test_imputation_equals_the_dense_oracle():
    X, model = fitted(0.25)
    mean, std = dense.impute(X, model.weights_, model.means_, model.covariances_)
    filled, spread = model.impute(X, return_std=True, parameters="fixed")
    seen = ~np.isnan(X)
    assert np.array_equal(filled[seen], X[seen])
    assert np.all(spread[seen] == 0)
    assert_close(filled, mean, "vector")
    assert_close(spread, std, "vector")


def test_latents_stand_side_by_side_weighted_by_responsibility():
    X, model = fitted(0.25)
    Z, rho = model.transform(X), model.predict_proba(X, parameters="fixed")
    assert Z.shape == (120, 6)
    edges = [(0, 1), (1, 3), (3, 6)]
    for k, (a, b) in enumerate(edges):
        mean, covariance = model.posterior(X, k)
        assert covariance.shape == (120, b - a, b - a)
        assert_close(Z[:, a:b], rho[:, k : k + 1] * mean, "exact", scale=10.0)
    names = model.get_feature_names_out()
    assert list(names) == [f"mixtureppca{i}" for i in range(6)]


def test_samples_come_from_the_mixture():
    _, model = fitted()
    X, y = model.sample(100_000, random_state=0)
    share = np.bincount(y, minlength=3) / len(y)
    assert np.max(np.abs(share - model.weights_)) < 0.01
    for k in range(3):
        scale = model.covariances_[k].max()
        assert np.max(np.abs(np.cov(X[y == k].T) - model.covariances_[k])) < 0.05 * scale
    assert np.array_equal(model.sample(5, random_state=3)[0], model.sample(5, random_state=3)[0])


@pytest.mark.parametrize("component", [-1, 3, 1.5, "first"])
def test_a_component_that_is_not_there_is_an_error(component):
    X, model = fitted()
    with pytest.raises(ValueError, match="component"):
        model.posterior(X, component)
