"""Rows with the products of their features: the steps of the rows themselves."""

from dataclasses import replace

import numpy as np
import pytest

from dualpca.models.emissions import Emissions, Prior
from dualpca.models.expanded import MOST_FEATURES, Expanded
from tests.models.emission_cases import covariances, groups, shares
from tests.tolerances import assert_close, assert_log_density


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("q", [0, 1, [1, 2, 4], 5], ids=["q=0", "q=1", "own q", "q=d"])
def test_products_of_features_give_the_steps_of_the_rows(q, tied):
    X, rho = groups(), shares(120, 3)
    ranks = [q] * 3 if isinstance(q, int) else q
    start = Emissions.nowhere(X, ranks, floor=1e-6, tied=tied)
    for prior in (None, Prior(3.0, 0.5)):
        plain = replace(start, prior=prior).update(X, rho)
        quick = replace(start, prior=prior).update(Expanded(X), rho)
        assert_close(quick.means, plain.means, "vector")
        assert_close(covariances(quick), covariances(plain), "vector")
        assert_log_density(quick.log_density(Expanded(X)), plain.log_density(X), 5)


def test_few_features_of_many_rows_have_products():
    X = groups()
    assert Expanded.suits(X) and Expanded.suits(X[:, :1]) and Expanded.suits(X[:6])
    assert not (Expanded.suits(X[:, :0]) or Expanded.suits(X[:5]))
    assert not Expanded.suits(np.zeros((100, MOST_FEATURES + 1)))


def test_products_of_features_leave_to_the_rows_what_would_lose_digits():
    X = groups() * np.array([1.0, 1.0, 1.0, 1.0, 1e-4])
    rho, table = shares(120, 3), Expanded(X)
    start = Emissions.nowhere(X, [4] * 3, 0.0, tied=False)
    plain, quick = start.update(X, rho), start.update(table, rho)
    assert_close(quick.noises, plain.noises, "vector")
    assert table.log_density(quick.means, quick.loadings, quick.noises) is None
    assert_log_density(quick.log_density(table), plain.log_density(X), 5)
