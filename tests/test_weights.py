"""Integer weights are repeated rows, 0 an absent one: for every estimator, and for sparse rows."""

import numpy as np
import pytest
from scipy import sparse

from dualpca import PCA, KernelPCA
from tests.zoo import ESTIMATORS, assert_same, fitted, rows


@pytest.mark.parametrize("name", ESTIMATORS)
def test_integer_weights_are_repeated_rows(name):
    X = rows(missing=ESTIMATORS[name][1])
    w = np.random.default_rng(3).integers(0, 4, len(X))
    again = fitted(name, np.repeat(X, w, axis=0))
    assert_same(fitted(name, X, w.astype(float)), again, X, 1e-5)


SPARSE = {
    "PCA": PCA(2),
    "PCA, krylov": PCA(2, svd_solver="krylov"),
    "KernelPCA": KernelPCA(2, kernel="rbf", gamma=0.05),
    "KernelPCA, linear": KernelPCA(2),
    "KernelPCA, pivots": KernelPCA(2, kernel="rbf", gamma=0.05, eigen_solver="cholesky", tol=1e-12),
}


@pytest.mark.parametrize("name", SPARSE)
def test_integer_weights_of_sparse_rows_are_repeated_rows(name):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 6)) * [4, 3, 2, 1, 1, 1] * (rng.random((40, 6)) < 0.5)
    w = rng.integers(0, 4, 40)
    model = SPARSE[name].fit(sparse.csr_array(X), sample_weight=w.astype(float))
    found = model.transform(X[:9])
    expected = SPARSE[name].fit(np.repeat(X, w, axis=0)).transform(X[:9])
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-7 * np.abs(expected).max())
