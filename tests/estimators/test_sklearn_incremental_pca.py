"""scikit-learn's tests of IncrementalPCA, against our exact `partial_fit`."""

import pytest
from sklearn.utils import gen_batches

import dualpca
from tests.estimators.drop_in import adopt, borrow


class IncrementalPCA(dualpca.PCA):
    """Our PCA behind IncrementalPCA's constructor: `fit` streams batches through `partial_fit`."""

    def __init__(self, n_components=None, *, whiten=False, copy=True, batch_size=None):
        super().__init__(n_components, whiten=whiten, copy=copy)
        self.batch_size = batch_size

    def fit(self, X, y=None):
        self._forget()
        for batch in gen_batches(X.shape[0], self.batch_size or 5 * X.shape[1]):
            self.partial_fit(X[batch])
        return self


UNLIKE = {
    "test_incremental_pca_sparse": "all but the last line holds: our partial_fit takes sparse rows",
    "test_incremental_pca_validation": (
        "more components than columns is refused in other words; more components than the first "
        "batch has rows is no error, since the moments keep everything"
    ),
    "test_incremental_pca_set_params": (
        "n_components may change between calls, since the moments keep everything"
    ),
}

pytestmark = pytest.mark.filterwarnings("default")

replacements = {"PCA": dualpca.PCA, "IncrementalPCA": IncrementalPCA}
adopt(borrow("sklearn.decomposition.tests.test_incremental_pca", replacements), globals(), UNLIKE)
