"""Rubin's rules: the numbers of R's mice, limits, and input that is refused."""

import numpy as np
import pytest
from scipy import stats

import dualpca
from tests.gaussian.fitted_regressions import TERMS, results, stored, tables

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


# --- Tables of terms, and tests of several -------------------------------------------------------


def several(kind, method):
    found = stored("tests")
    return found[(found.model == kind) & (found.method == method)].iloc[0, 2:].to_numpy(dtype=float)


@pytest.mark.parametrize(
    ("kind", "method"),
    [(kind, "D1") for kind in TERMS] + [("linear", "D3"), ("logistic", "D3")],
)
def test_several_terms_are_tested_as_by_mice(kind, method):
    found = dualpca.pool(results(kind)).test(["age", "dose"], method)
    np.testing.assert_allclose(found, several(kind, method), rtol=1e-6)


def test_one_term_without_missing_values_is_the_test_of_complete_rows():
    once = results("linear")[0]
    pooled = dualpca.pool([once, once, once])
    t = once.params[1] / once.cov_params()[1, 1] ** 0.5
    wald, ratio = pooled.test("age"), pooled.test("age", "D3")
    assert wald.relative_increase == 0 and ratio.relative_increase == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(wald.statistic, t**2)
    # of 56 degrees of freedom, what (ν + 1)/(ν + 3) leaves
    np.testing.assert_allclose(wald.dof, 57 / 59 * 56)
    A, y, n = once.model.exog, tables()[0].y, 60
    small = np.delete(A, 1, axis=1)
    rss = [y @ y - y @ B @ np.linalg.solve(B.T @ B, B.T @ y) for B in (A, small)]
    np.testing.assert_allclose(ratio.statistic, n * np.log(rss[1] / rss[0]))
    np.testing.assert_allclose(ratio.p_value, stats.chi2.sf(ratio.statistic, 1), rtol=1e-4)


def test_a_wald_test_does_not_depend_on_units():
    fits = results("linear")
    before = dualpca.pool(fits).test(["age", "dose"])
    for fit in fits:
        scale, C = np.array([1.0, 1000.0, 0.01, 1.0]), fit.cov_params()
        fit.params, fit.cov_params = fit.params * scale, lambda C=C, s=scale: C * np.outer(s, s)
    np.testing.assert_allclose(dualpca.pool(fits).test(["age", "dose"]), before, rtol=1e-10)


def test_few_tables_have_degrees_of_freedom_too():
    fits = results("linear")[:2]
    for terms in (["age"], ["age", "dose"], ["age", "dose", "treated"]):
        for dof in (None, 5.0, 56.0):
            found = dualpca.pool(fits, dof=dof).test(terms)
            assert 0 < found.dof <= (np.inf if dof is None else dof) and 0 <= found.p_value <= 1
    with_many = dualpca.pool(results("linear"), dof=np.inf).test(["age", "dose"])
    near = dualpca.pool(results("linear"), dof=1e7).test(["age", "dose"])
    np.testing.assert_allclose(near.statistic, with_many.statistic)


def test_all_terms_of_a_cox_model_are_tested():
    found = dualpca.pool(results("cox")).test(TERMS["cox"], "D3")
    assert found.df == 3 and 0 < found.p_value < 0.05


def test_terms_and_methods_are_checked():
    pooled = dualpca.pool(results("cox"))
    with pytest.raises(ValueError, match=r"terms must be of \['age', 'dose', 'treated'\]"):
        pooled.test("size")
    with pytest.raises(ValueError, match="one or more names"):
        pooled.test([])
    with pytest.raises(ValueError, match="'D1' or 'D3'"):
        pooled.test("age", "D2")
    assert pooled.test(["age", "age"]).df == 1


def test_a_pooled_table_prints_itself_and_never_changes():
    pooled = dualpca.pool(results("linear"))
    assert repr(pooled).splitlines() == [
        "             estimate  std. error   2.5 %  97.5 %   dof       p  missing",
        "(Intercept)     1.171       0.219   0.698   1.644  13.1  <0.001     49 %",
        "age             0.234       0.342  -0.653   1.120   4.8   0.525     80 %",
        "dose           -0.313       0.234  -0.864   0.237   7.2   0.222     68 %",
        "treated         1.204       0.370   0.421   1.986  16.8   0.005     42 %",
        "5 tables, 56 degrees of freedom on complete rows",
    ]
    with pytest.raises(AttributeError):
        pooled.estimate = 0
    frame = pooled.to_frame(0.9)
    assert list(frame.index) == list(pooled.terms)
    np.testing.assert_array_equal(frame["high"], pooled.interval(0.9)[1])


def test_estimates_without_error_print():
    zero = [Result(np.zeros(1), np.zeros((1, 1)))] * 2
    assert "0.0000" in repr(dualpca.pool(zero))


class Result:
    def __init__(self, params, covariance):
        self.params, self.covariance = params, covariance

    def cov_params(self):
        return self.covariance
