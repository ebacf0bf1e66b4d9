"""What parameters, weights and seeds may be; `tests/test_bad_input.py` asks every estimator."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone

import dualpca as dp
from dualpca.errors import DegenerateError
from dualpca.estimators import _checks as checks

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("value", [0, 1, 2.5, np.float32(1), np.int64(3), INF])
def test_numbers_are_numbers_of_any_library(value):
    checks.check_number("tol", value, 0)


@pytest.mark.parametrize("value", [-1, -1e-300, NAN, True, "1", None, 1j])
def test_what_is_no_number_from_0_on_is_named(value):
    with pytest.raises(ValueError, match=r"tol.*a number of at least 0"):
        checks.check_number("tol", value, 0)


@pytest.mark.parametrize("value", [0, 1.0, 2.5, True, None])
def test_a_count_is_whole_and_at_least_1(value):
    with pytest.raises(ValueError, match="an integer of at least 1"):
        checks.check_number("max_iter", value, 1, integer=True)
    checks.check_number("max_iter", np.int32(1), 1, integer=True)


@pytest.mark.parametrize("value", [0, 1, -0.1, NAN, True, "0.5"])
def test_a_share_lies_strictly_between_0_and_1(value):
    with pytest.raises(ValueError, match="between 0 and 1"):
        checks.check_share("alpha", value)
    checks.check_share("alpha", np.float32(0.5))


def test_flags_and_choices():
    for value in (True, False, np.True_):
        checks.check_flag("copy", value)
    for value in (1, 0, None, "yes"):
        with pytest.raises(ValueError, match="True or False"):
            checks.check_flag("copy", value)
    checks.check_choice("noise", "ml", ("ml", "map"))
    with pytest.raises(ValueError, match="one of"):
        checks.check_choice("noise", "mle", ("ml", "map"))


def test_weights_are_a_vector_beside_the_rows():
    X = np.zeros((3, 2))
    assert checks.check_weights(None, X) is None
    np.testing.assert_array_equal(checks.check_weights(2, X), [2, 2, 2])
    np.testing.assert_array_equal(checks.check_weights([0, True, 2.5], X), [0, 1, 2.5])
    for wrong in ([1, 2], [[1, 2, 3]], [1, -1, 1], [1, NAN, 1], [1, INF, 1], ["a", "b", "c"]):
        with pytest.raises(ValueError, match="sample_weight"):
            checks.check_weights(wrong, X)


def test_a_mean_counts_weights_as_repetitions():
    values, w = np.array([1.0, 5.0, 2.0]), np.array([2, 0, 3])
    assert checks.weighted_mean(values, w) == pytest.approx(np.repeat(values, w).mean())
    assert checks.weighted_mean(values, None) == pytest.approx(values.mean())


def test_a_seed_is_taken_as_numpy_takes_it():
    draw = np.random.default_rng(3).random()
    for seed in (3, np.int64(3), np.random.default_rng(3)):
        assert checks.generator(seed).random() == draw
    old = np.random.RandomState(3)
    assert checks.generator(old).random() != checks.generator(old).random()  # its state advances
    assert checks.fixed_generator(None) == 0
    for wrong in (-1, "3", 3.5):
        with pytest.raises(ValueError, match="random_state"):
            checks.generator(wrong)


# --- columns that do not vary --------------------------------------------------------------------

CONSTANT = "has the same value in all rows: leave it out"


def unvaried(missing=False):
    pd = pytest.importorskip("pandas", reason="pandas is not installed: columns have no names")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2)) @ rng.normal(size=(2, 5)) + 0.3 * rng.normal(size=(40, 5))
    X[:, 2] = 7.0
    X[3, 0] = np.nan if missing else X[3, 0]
    return pd.DataFrame(X, columns=list("abcde"))


@pytest.mark.parametrize(
    "model",
    [dp.MixturePPCA(), dp.HiddenMarkovPCA(), dp.BayesianPCA()],
    ids=lambda model: type(model).__name__,
)
def test_warnings_of_degenerate_fits_name_constant_columns(model):
    X = unvaried(missing=True)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.fit(X)
        clone(model).fit(X.to_numpy())
    named = [str(one.message) for one in told if CONSTANT in str(one.message)]
    assert [("'c'" in one, "olumn 2" in one) for one in named] == [(True, False), (False, True)]


@pytest.mark.parametrize("rows", [lambda X: X, lambda X: dp.Batches([X[:20], X[20:]])])
def test_errors_of_degenerate_fits_name_constant_columns(rows):
    with pytest.raises(DegenerateError, match=f"Column 'c' {CONSTANT}"):
        dp.PPCA(4).fit(rows(unvaried()))
    with pytest.raises(DegenerateError, match=r"no density.*nothing varies"):
        dp.PPCA(1).fit(rows(np.ones((40, 3))))


def test_a_constant_column_of_cca_is_named():
    X = unvaried(missing=True)
    with pytest.raises(DegenerateError, match=f"Column 'c' {CONSTANT}"):
        dp.CCA(1).fit(X, unvaried()[["a", "b"]])
