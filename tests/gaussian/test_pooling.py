"""Rubin's rules: the numbers of R's mice, limits, and input that is refused."""

import numpy as np
import pytest
from scipy import stats

import dualpca

# mice 3.15.0, pool.scalar(Q, U, n = dof + k, k = k): qbar, ubar, b, t, df, fmi
FIRST = (1.2, 1.5, 0.9, 1.1, 1.4), (0.10, 0.12, 0.09, 0.11, 0.10)
SECOND = (-3.1, -2.9, -3.4, -3.0), (0.02, 0.03, 0.025, 0.021)
THIRD = (10.2, 10.1), (4.0, 4.4)
MICE = [
    (*FIRST, 38, (1.22, 0.104, 0.057, 0.1724, 11.735220211443147, 0.478630158134256)),
    (*FIRST, None, (1.22, 0.104, 0.057, 0.1724, 25.411032454430433, 0.439217515420582)),
    (*SECOND, 24, (-3.1, 0.024, 0.14 / 3, 0.247 / 3, 3.108485785801578, 0.8039423628402274)),
    (*SECOND, None, (-3.1, 0.024, 0.14 / 3, 0.247 / 3, 5.976391836734694, 0.7734497184230276)),
    (*THIRD, 97, (10.15, 4.2, 0.005, 4.2075, 94.86195105202836, 0.02218305372781867)),
]


def numbers(found):
    return found.estimate, found.within, found.between, *found[1:2], *found[4:]


@pytest.mark.parametrize(("Q", "U", "dof", "expected"), MICE)
def test_the_numbers_are_those_of_mice(Q, U, dof, expected):
    np.testing.assert_allclose(numbers(dualpca.pool(Q, U, dof=dof)), expected, rtol=1e-12)


def test_vectors_are_pooled_quantity_by_quantity():
    Q, U = np.column_stack([FIRST[0], FIRST[0][::-1]]), np.column_stack([FIRST[1], FIRST[1]])
    found, one = dualpca.pool(Q, U, dof=38), dualpca.pool(*FIRST, dof=38)
    for both, single in zip(found, one, strict=True):
        np.testing.assert_allclose(both, [single, single], rtol=1e-13)
    np.testing.assert_allclose(found.interval(0.9)[0], [one.interval(0.9)[0]] * 2, rtol=1e-13)


def test_intervals_are_students():
    found = dualpca.pool(*FIRST, dof=38)
    low, high = found.interval(0.9)
    half = stats.t.ppf(0.95, 11.735220211443147) * 0.1724**0.5
    assert isinstance(low, float)
    np.testing.assert_allclose([low, high], [1.22 - half, 1.22 + half], rtol=1e-12)
    np.testing.assert_allclose(found.std, 0.1724**0.5, rtol=1e-12)


def test_tables_that_agree_leave_what_complete_rows_leave():
    found = dualpca.pool([2.0, 2.0, 2.0], [0.5, 0.5, 0.5])
    assert found.variance == 0.5 and found.dof == np.inf and found.missing_information == 0
    np.testing.assert_allclose(found.interval(), stats.norm.interval(0.95, 2, 0.5**0.5))
    few = dualpca.pool([2.0, 2.0, 2.0], [0.5, 0.5, 0.5], dof=29)
    np.testing.assert_allclose(few.dof, 30 / 32 * 29)


def test_many_degrees_of_freedom_are_as_none():
    a, b = dualpca.pool(*FIRST, dof=np.inf), dualpca.pool(*FIRST)
    np.testing.assert_allclose(numbers(a), numbers(b))


def test_variances_of_zero_are_all_missing_information():
    found = dualpca.pool([0.5, 0.7, 0.6], [0.0, 0.0, 0.0])
    assert found.dof == 2 and found.missing_information == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (([1.0], [1.0]), "m = 2 tables or more"),
        ((np.zeros((2, 2, 2)), np.zeros((2, 2, 2))), "of shape"),
        (([1.0, 2.0], [1.0, 1.0, 1.0]), "of the shape of estimates"),
        (([1.0, 2.0], [1.0, -1.0]), "not negative"),
        (([1.0, np.nan], [1.0, 1.0]), "finite"),
        ((["a", "b"], [1.0, 1.0]), "real numbers"),
    ],
)
def test_what_cannot_be_pooled_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        dualpca.pool(*given)


def test_dof_and_level_are_checked():
    with pytest.raises(ValueError, match="dof must be a positive number"):
        dualpca.pool([1.0, 2.0], [1.0, 1.0], dof=0)
    with pytest.raises(ValueError, match="level must be a number between 0 and 1"):
        dualpca.pool([1.0, 2.0], [1.0, 1.0]).interval(95)


def test_an_interval_without_degrees_of_freedom_has_no_practical_limits():
    low, high = dualpca.pool([0.5, 0.7], [0.0, 0.0], dof=5).interval()
    assert low < -1e9 and high > 1e9
