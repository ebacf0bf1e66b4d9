"""Whatever is given for a parameter, an estimator fits or says in our words what it expected."""

import inspect
import traceback
import warnings

import numpy as np
import pytest

import dualpca as dp
from tests import drawn_setups
from tests.drawn_setups import ESTIMATORS, WRONG

NOT_NUMBERS = {
    *("verbose", "device", "checkpoint", "components_out", "random_state", "copy", "copy_X"),
    *("n_jobs", "memory_limit"),
}
MAY_BE_MANY = {"n_init", "lags"}
"""Any count is legal here, and takes its time."""
SMALL = {
    "MixturePPCA": {"n_mixtures": 2, "n_components": 1, "max_iter": 5},
    "HiddenMarkovPCA": {"n_states": 2, "n_components": 1, "max_iter": 5},
    "HierarchicalPPCA": {"children": 2, "n_components": 1, "max_iter": 5},
    "Monitor": {"arl": 20.0},
    "CopulaPPCA": {"n_components": 1, "max_iter": 5},
    "TwinKernelPCA": {"n_init": 1, "max_iter": 5},
}


def cases():
    """Yield (estimator, parameter, value); `make test` runs a few values of every parameter."""
    turn = 0
    for name in ESTIMATORS:
        for parameter in inspect.signature(getattr(dp, name)).parameters:
            if parameter in NOT_NUMBERS:
                continue
            for value in WRONG:
                turn += 1
                if parameter in MAY_BE_MANY and value == 10**6:
                    continue
                marks = [] if turn % 5 == 0 else [pytest.mark.slow]
                yield pytest.param(name, parameter, value, marks=marks)


@pytest.mark.parametrize(("name", "parameter", "value"), cases())
def test_a_wrong_value_is_refused_in_our_words_or_does_no_harm(name, parameter, value):
    X = drawn_setups.plain(np.random.default_rng(0), 30, 4, 1)
    methods = ESTIMATORS[name].get("method", [None]) if parameter != "method" else [None]
    for method in dict.fromkeys(methods):
        own = {} if method is None else {"method": method}
        model = getattr(dp, name)(**SMALL.get(name, {}) | own | {parameter: value})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                model.fit(X)
            except Exception as error:
                last = traceback.extract_tb(error.__traceback__)[-1].filename
                ours = "dualpca" in last or "sklearn/utils" in last
                assert ours, f"{type(error).__name__}: {error}"
                assert isinstance(error, ValueError | TypeError), repr(error)


def test_dir_works_where_there_are_several_numbers_of_components():
    X = drawn_setups.plain(np.random.default_rng(0), 30, 4, 1)
    assert "forecast" in dir(dp.HiddenMarkovPCA(2, [1, 2], tol=0.1).fit(X))
