"""scikit-learn's tests of PCA, against ours. What cannot hold is listed with its reason."""

import pytest

import dualpca
from tests.estimators.drop_in import adopt, borrow

UNLIKE = {
    "test_sparse_pca_solver_error": "every solver of ours takes sparse rows",
    "test_pca_validation[arpack]": "block Krylov, behind 'arpack', can return every component",
    "test_pca_validation[randomized]": "block Krylov, behind 'randomized', takes 0 like the others",
    "test_pca_validation[auto]": "the same error names the solver asked for, 'auto', not 'full'",
    "test_n_components_none[arpack]": "block Krylov, behind 'arpack', can return every component",
    "test_n_components_mle_error": "the rule reads the spectrum, whatever solver it came from",
    "test_pca_score": "its last line wants whitening to change the density; ours does not",
    "test_pca_zero_noise_variance_edge_cases": (
        "as many components as rows, fewer rows than features: the Gaussian has no density, and "
        "score says so instead of returning the rounding errors of a singular inverse"
    ),
    "test_array_api_error_and_warnings_on_unsupported_params": (
        "every solver of ours takes arrays of any library"
    ),
    "test_pca_svd_solver_auto": "reads a private attribute; our 'auto' goes by cost",
}

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.grid(2)]

adopt(borrow("sklearn.decomposition.tests.test_pca", {"PCA": dualpca.PCA}), globals(), UNLIKE)
