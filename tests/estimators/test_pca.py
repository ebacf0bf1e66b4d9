"""PCA: options by name, sparse rows, inputs that are left alone."""

import numpy as np
import pytest
from scipy import sparse

from dualpca import PCA
from tests.bad_input_cases import BOTH, assert_same_fit, table
from tests.tolerances import assert_close

# twenty rows of noise hold nothing relevant, and BayesianPCA says so
pytestmark = pytest.mark.filterwarnings("ignore::dualpca.errors.SelectionWarning")


@pytest.mark.parametrize("option", [{"svd_solver": "nonsense"}, {"tol": -1.0}])
def test_nonsense_options_of_pca_are_named(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        PCA(n_components=2, **option).fit(table())


@BOTH
def test_sparse_is_right_or_refused(estimator):
    X = np.where(np.abs(table()) > 2, table(), 0.0)
    for kind in (sparse.csr_array, sparse.csc_array, sparse.csr_matrix):
        try:
            model = estimator(n_components=2).fit(kind(X))
        except TypeError as error:
            assert estimator is not PCA and "sparse" in str(error).lower()
        else:
            assert_same_fit(model, estimator(n_components=2).fit(X))
            assert_close(model.transform(kind(X)), model.transform(X), "vector")


@pytest.mark.parametrize(
    "solver",
    ["auto", "full", "covariance_eigh", "arpack", "randomized", "dense", "gram", "qr", "krylov"],
)
@pytest.mark.parametrize("size", [(20, 5), (5, 20)])
def test_no_pca_solver_changes_its_input(solver, size):
    X = table(*size)
    before = X.tobytes()
    PCA(n_components=2, svd_solver=solver, random_state=0).fit_transform(X)
    assert X.tobytes() == before


def test_read_only_data_can_be_fitted_without_a_copy():
    X = table()
    X.setflags(write=False)
    assert_same_fit(PCA(n_components=2, copy=False).fit(X), PCA(n_components=2).fit(table()))
