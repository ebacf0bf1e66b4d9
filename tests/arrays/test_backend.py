"""Arrays of every dtype, asked the same questions."""

import numpy as np
import pytest

from dualpca.arrays import backend
from dualpca.data.moments import has_missing


@pytest.mark.parametrize("code", ["f2", "f4", "f8", "c8", "c16"])
def test_what_is_not_finite_is_found_in_every_dtype(code):
    X = np.ones((3, 2), dtype=code)
    assert backend.all_finite(X) and not has_missing(X)
    X[2, 0] = np.inf
    assert not backend.all_finite(X) and not has_missing(X)
    X[1, 1] = np.nan
    assert not backend.all_finite(X) and has_missing(X)
    assert not backend.sum_is_finite(X)


def test_whole_numbers_are_finite():
    for code in ("i8", "u1", "?"):
        X = np.ones((3, 2), dtype=code)
        assert backend.all_finite(X) and not has_missing(X)
