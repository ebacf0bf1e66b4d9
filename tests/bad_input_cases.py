"""Tables, and what a result may be, for tests of bad input."""

import numpy as np
import pytest

from dualpca import PCA, PPCA, BayesianPCA
from tests.tolerances import assert_close

BOTH = pytest.mark.parametrize("estimator", [PCA, PPCA, BayesianPCA])


ATTRIBUTES = (
    "mean_",
    "components_",
    "explained_variance_",
    "explained_variance_ratio_",
    "noise_variance_",
)


def table(n=20, d=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * np.linspace(3, 1, d) + np.arange(d)


def assert_same_fit(model, expected):
    for name in ATTRIBUTES:
        assert_close(getattr(model, name), getattr(expected, name), "vector")
