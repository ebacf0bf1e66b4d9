"""Rotations and uncertainty of loadings: maxima, polar factors, columns that turn freely."""

import numpy as np
import pytest
from scipy.linalg import polar

from dualpca import BayesianPCA
from dualpca.gaussian.loadings import laplace, rotate
from dualpca.gaussian.observed import Factors
from tests.models.bayesian_cases import draw


def test_varimax_is_a_maximum_over_rotations():
    W = np.random.default_rng(0).standard_normal((10, 2))

    def criterion(A):
        return np.sum(np.var(A**2, axis=0))

    best = criterion(rotate(W, "varimax"))
    for angle in np.linspace(0, np.pi / 2, 91):
        R = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        assert criterion(W @ R) <= best + 1e-9


@pytest.mark.parametrize("method, share", [("varimax", 1.0), ("quartimax", 0.0)])
def test_a_step_of_a_rotation_is_the_polar_factor_of_the_gradient(method, share):
    W = np.random.default_rng(0).standard_normal((10, 3))
    first = W @ polar(W.T @ (W**3 - share * W * (W**2).mean(axis=0)))[0]
    np.testing.assert_allclose(rotate(W, method, max_iter=1), first, atol=1e-12)
    second = W @ polar(W.T @ (first**3 - share * first * (first**2).mean(axis=0)))[0]
    np.testing.assert_allclose(rotate(W, method, max_iter=2), second, atol=1e-12)


def test_equal_columns_turn_freely_but_stay_finite():
    V = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 2)))[0]
    model = BayesianPCA(2).fit(draw(200, 6, (9.0, 9.0)))
    gaussian = model._model.gaussian
    equal = type(gaussian)(np.array([9.0, 9.0]), 1.0, 6)
    factors = Factors(V * equal.spread, np.zeros(6), np.ones(6))
    assert np.all(np.isfinite(laplace(factors, equal, 200.0).std()))
