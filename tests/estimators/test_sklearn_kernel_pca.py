"""scikit-learn's tests of KernelPCA, against ours. What cannot hold is listed with its reason."""

import pytest

import dualpca
from tests.estimators.drop_in import adopt, borrow

UNLIKE = {
    "test_precomputed_kernel_not_psd": (
        "an indefinite kernel is a warning that says how much is negative, not an error"
    ),
    "test_kernel_pca_raise_not_fitted_error": "pre-images need no fit_inverse_transform",
}

pytestmark = pytest.mark.filterwarnings("default")

adopt(
    borrow("sklearn.decomposition.tests.test_kernel_pca", {"KernelPCA": dualpca.KernelPCA}),
    globals(),
    UNLIKE,
)
