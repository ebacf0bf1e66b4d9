"""scikit-learn's tests of FactorAnalysis, against ours."""

import pytest

import dualpca
from tests.estimators.drop_in import adopt, borrow

UNLIKE: dict[str, str] = {}

pytestmark = pytest.mark.filterwarnings("default")

adopt(
    borrow(
        "sklearn.decomposition.tests.test_factor_analysis",
        {"FactorAnalysis": dualpca.FactorAnalysis},
    ),
    globals(),
    UNLIKE,
)
