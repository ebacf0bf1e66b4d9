"""How trials of a kernel search are judged: dense formulas, principal angles, chance."""

import numpy as np
import pytest

from dualpca.errors import DegenerateError
from dualpca.kernels import RBF, Linear, Matern
from dualpca.search.judging import agreement, normalised_likelihood, q2
from tests.oracles import search as oracles
from tests.search.cases import table

pytest.importorskip("optuna", reason="the search extra is not installed")


def test_share_that_came_back():
    X, back = table(), table(seed=1)
    mean = X.mean(axis=0) + 0.1
    np.testing.assert_allclose(q2(X, back, mean), oracles.share_that_came_back(X, back, mean))
    assert q2(X, X, mean) == 1
    assert q2(X, np.broadcast_to(mean, X.shape), mean) == 0
    with pytest.raises(DegenerateError, match="training mean"):
        q2(np.ones((3, 2)), np.zeros((3, 2)), np.ones(2))


@pytest.mark.parametrize("q", [1, 2, 5])
def test_agreement_is_that_of_principal_angles(q):
    rng = np.random.default_rng(0)
    Y, Z = rng.normal(size=(30, q)), rng.normal(size=(30, q)) + 5
    assert abs(agreement(Y, Z) - oracles.agreement(Y, Z)) < 1e-10
    close = Y + 0.3 * Z
    assert abs(agreement(Y, close) - oracles.agreement(Y, close)) < 1e-10


def test_agreement_sees_spaces_only_and_is_bounded():
    rng = np.random.default_rng(1)
    Y, Z = rng.normal(size=(30, 3)), rng.normal(size=(30, 3))
    turn = rng.normal(size=(3, 3)) * [1e-6, 1.0, 1e6]
    assert abs(agreement(Y, Z) - agreement(Y, Z @ turn + 7)) < 1e-8
    assert abs(agreement(Y, Y @ turn) - 1) < 1e-8
    opposite = np.linalg.svd(np.column_stack([np.ones(30), Y]))[0][:, 4:7]
    assert abs(agreement(Y, opposite) + (3 / 29) / (1 - 3 / 29)) < 1e-10  # −c/(1 − c)


def test_agreement_of_chance_is_0():
    rng = np.random.default_rng(2)
    found = [agreement(*rng.normal(size=(2, 25, 4))) for _ in range(400)]
    assert abs(np.mean(found)) < 4 * np.std(found) / 20


def test_latents_without_variance_do_not_agree():
    Y = table(d=2)
    assert agreement(Y, np.column_stack([Y[:, 0], np.ones(40)])) < 0.6
    assert agreement(np.ones((40, 2)), np.ones((40, 2))) < 0
    with pytest.raises(ValueError, match="held-out rows"):
        agreement(Y[:3], Y[:3])


@pytest.mark.parametrize("q", [1, 3, 28])
@pytest.mark.parametrize("kernel", [RBF(gamma=0.3), 5.0 * Matern(), Linear() + RBF()])
def test_likelihood_is_the_dense_one(kernel, q):
    X = table(n=30)
    found = normalised_likelihood(X, kernel, q)
    assert abs(found - oracles.likelihood(kernel(X, X), q)) < 1e-8 * abs(found)


def test_likelihood_without_noise_is_refused():
    with pytest.raises(DegenerateError, match="no bound"):
        normalised_likelihood(table(), Linear(), 3)
    with pytest.raises(DegenerateError, match="no variance"):
        normalised_likelihood(np.ones((9, 2)), RBF(), 1)
    with pytest.raises(ValueError, match="below the number of rows"):
        normalised_likelihood(table(), RBF(), 40)
