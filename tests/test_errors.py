"""Warnings name the user's own line, not one of ours or of scikit-learn's."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

import dualpca as dp

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 4))
HOLES = np.where(rng.random(X.shape) < 0.2, np.nan, X)
INDEFINITE = rng.normal(size=(20, 20))
INDEFINITE = INDEFINITE + INDEFINITE.T

CASES = {
    "stream": lambda: dp.PCA(2).fit(X).partial_fit(X),
    "spectrum": lambda: dp.KernelPCA(2, kernel="precomputed").fit_transform(INDEFINITE),
    "convergence": lambda: dp.PPCA(2, max_iter=2, tol=1e-14).fit(HOLES),
    "rule": lambda: dp.PPCA("bic").fit(X),
    "pipeline": lambda: make_pipeline(dp.PPCA("bic")).fit(X),
    "rows": lambda: dp.CCA(2).fit(X[:5], X[:5, :3]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_warning_points_here(name):
    with pytest.warns(Warning) as caught:
        CASES[name]()
    assert [warning.filename for warning in caught] == [__file__] * len(caught)
