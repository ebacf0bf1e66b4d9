"""Columns in unlike units: which are named, and which rows count."""

import numpy as np
import pytest

from dualpca import Censored
from dualpca.data import InMemoryTable
from dualpca.data.units import most_unequal


@pytest.mark.parametrize("missing", [False, True])
def test_rows_without_weight_say_nothing_of_units(missing):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    X[20:, 1] *= 1e4
    if missing:
        X[3, 0] = np.nan
    w = np.r_[np.ones(20), np.zeros(20)]
    assert most_unequal(InMemoryTable(X, w)) is None
    large, _, ratio = most_unequal(InMemoryTable(X))
    assert large == 1 and ratio > 1e6
    assert most_unequal(InMemoryTable(X, 1 - w))[0] == 1


@pytest.mark.parametrize("end", [True, "3", [1.0]])
@pytest.mark.parametrize("name", ["below", "above"])
def test_ends_of_a_censored_column_are_numbers(name, end):
    with pytest.raises(ValueError, match=f"{name} of Censored.*a number or None"):
        Censored(**{name: end})
