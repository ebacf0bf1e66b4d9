"""Mixtures for tests."""

from functools import cache

import numpy as np

from dualpca import MixturePPCA
from tests.models.emission_cases import groups, holes
from tests.tolerances import tolerance

TIGHT = {"tol": 1e-13, "max_iter": 5000}


@cache
def fitted(missing=0.0, tied=False):
    """Return rows and a mixture of three components, of one, two and three directions."""
    X = holes(groups(), missing) if missing else groups()
    X.setflags(write=False)
    return X, MixturePPCA(3, [1, 2, 3], tied_noise=tied, max_iter=1000).fit(X)


def assert_never_falls(values):
    values = np.array(values)
    assert len(values) > 3
    assert np.all(np.diff(values) >= -tolerance("monotone") * np.abs(values[1:]))


def with_outlier():
    """Return two wide groups and one row far away from both."""
    return np.concatenate([groups(80, 4, 2, apart=3.0), np.full((1, 4), 400.0)])
