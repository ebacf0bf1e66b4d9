"""Fitted regressions of other packages: pooled tables are those of mice on stored tables.

tests/gaussian/mice/pooled.R made the tables and mice's numbers. Packages that may not be installed
are stood for by objects that offer the same; with the packages themselves where they are there.
"""

import pickle
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression

from dualpca import pool
from dualpca.gaussian.fits import FittedRegression, highest, read_fits
from tests.gaussian.fitted_regressions import TERMS, fitter, results, stored, tables

KINDS = ["linear", "logistic", "cox"]
NUMBERS = ["estimate", "std", "dof", "p_value", "low", "high", "missing_information"]
FEATURES = ["age", "dose", "treated"]


def mice(kind):
    found = stored("terms")
    return found[found.model == kind].set_index("term")


def assert_as_mice(found, kind, rtol=1e-6):
    expected = mice(kind)
    assert found.complete_dof == expected.complete_dof.iloc[0]
    assert len(found.terms) == len(expected)
    frame = found.to_frame()[NUMBERS].to_numpy()
    np.testing.assert_allclose(frame, expected[NUMBERS].to_numpy(), rtol=rtol, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_pooled_results_are_those_of_mice(kind):
    found = pool(results(kind))
    assert list(found.terms) == TERMS[kind] == list(mice(kind).index)
    assert_as_mice(found, kind)


def test_pooled_fitters_are_those_of_mice():
    found = pool([fitter(table) for table in tables()])
    assert found.terms == ("age", "dose", "treated")
    assert_as_mice(found, "cox")


def of_sklearn(kind, names=FEATURES):
    if kind == "linear":
        return [LinearRegression().fit(t[names], t.y) for t in tables()], [t.y for t in tables()]
    model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000)
    return [model.__class__(**model.get_params()).fit(t[names], t.ill) for t in tables()], [
        t.ill for t in tables()
    ]


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_pooled_models_of_sklearn_are_those_of_mice(kind):
    fits, y = of_sklearn(kind)
    found = pool(fits, X=[t[FEATURES] for t in tables()], y=y)
    assert found.terms == ("intercept", *FEATURES)
    assert_as_mice(found, kind)
    again = pool(fits, X=np.array([t[FEATURES] for t in tables()]), y=np.array(y))
    np.testing.assert_allclose(again.variance, found.variance, rtol=1e-12)
    if kind == "logistic":  # the outcome was observed: one for all tables
        once = pool(fits, X=[t[FEATURES] for t in tables()], y=y[0])
        np.testing.assert_allclose(once.variance, found.variance, rtol=1e-12)


def test_a_pooled_table_is_pickled():
    fits, y = of_sklearn("linear")
    pooled = pool(fits, X=[t[FEATURES] for t in tables()], y=y)
    again = pickle.loads(pickle.dumps(pooled))
    assert repr(again) == repr(pooled) and again.test("age", "D3") == pooled.test("age", "D3")


def test_models_without_intercept_have_none():
    fits = [
        LinearRegression(fit_intercept=False).fit(t[FEATURES].to_numpy(), t.y) for t in tables()
    ]
    X, y = [t[FEATURES].to_numpy() for t in tables()], [t.y for t in tables()]
    found = pool(fits, X=X, y=y)
    assert found.terms == ("x0", "x1", "x2") and found.complete_dof == 57
    one = read_fits(fits, X, y)[0]
    A, left = X[0], y[0] - X[0] @ fits[0].coef_
    np.testing.assert_allclose(one.covariance, left @ left / 57 * np.linalg.inv(A.T @ A))


@pytest.mark.parametrize(
    ("fits", "words"),
    [
        (
            lambda X, y: [Lasso(0.2).fit(*one) for one in zip(X, y, strict=True)],
            "must have no penalty",
        ),
        (
            lambda X, y: [LinearRegression().fit(X[0], y[0])] * 5,
            "number 2 is .* standard errors off",
        ),
        (lambda X, y: [LinearRegression().fit(X[0][:, :2], y[0])] * 5, r"\(n, 2\) and \(n,\)"),
        (lambda X, y: [LinearRegression().fit(X[0], y[0])] * 4, "4 tables, one per fit"),
    ],
)
def test_models_of_sklearn_that_cannot_be_pooled(fits, words):
    X, y = [t[FEATURES].to_numpy() for t in tables()], [t.y.to_numpy() for t in tables()]
    with pytest.raises(ValueError, match=words):
        pool(fits(X, y), X=X, y=y)


def test_penalised_and_multinomial_logistic_models_are_refused():
    X = [t[FEATURES].to_numpy() for t in tables()]
    fits = [LogisticRegression(C=0.05).fit(t[FEATURES].to_numpy(), t.ill) for t in tables()]
    with pytest.raises(ValueError, match="Penalised coefficients have"):
        pool(fits, X=X, y=tables()[0].ill)
    thirds = np.arange(60) % 3
    fits = [LogisticRegression(max_iter=1000).fit(one[:, :1], thirds) for one in X]
    with pytest.raises(ValueError, match="of shapes"):
        pool(fits, X=[one[:, :1] for one in X], y=thirds)


def test_models_of_sklearn_need_their_tables():
    with pytest.raises(ValueError, match=r"pool\(fits, X=tables, y=y\)"):
        pool(of_sklearn("linear")[0])
    with pytest.raises(ValueError, match="None for estimates and variances"):
        pool([1.0, 2.0], [1.0, 1.0], X=[], y=[])


def test_columns_that_depend_on_each_other_are_refused():
    X = [np.column_stack([t.age, 2 * t.age]) for t in tables()]
    fits = [LinearRegression().fit(one, t.y) for one, t in zip(X, tables(), strict=True)]
    with pytest.raises(ValueError, match="combination of the others"):
        pool(fits, X=X, y=[t.y for t in tables()])


def test_given_degrees_of_freedom_come_first():
    found = pool(results("linear"), dof=20)
    assert found.complete_dof == 20 and np.all(found.dof < 20)
    many = [SimpleNamespace(params=f.params, cov_params=f.cov_params) for f in results("linear")]
    assert pool(many).complete_dof is None and pool(many).terms == ("x0", "x1", "x2", "x3")
    np.testing.assert_allclose(pool(many).dof, pool(results("linear"), dof=np.inf).dof)


def test_terms_of_several_parameters_are_named_by_both():
    index = pd.MultiIndex.from_tuples([("lambda_", "age"), ("rho_", "Intercept")])
    one = SimpleNamespace(params_=pd.Series([1.0, 2.0], index=index), variance_matrix_=np.eye(2))
    assert pool([one, one]).terms == ("lambda_: age", "rho_: Intercept")


def changed(fit, **what):
    return SimpleNamespace(**vars(fit) | what)


@pytest.mark.parametrize(
    ("fits", "error", "words"),
    [
        (lambda: results("linear")[:1], ValueError, "m = 2 completed tables"),
        (lambda: 3.0, TypeError, "a list of fits"),
        (lambda: np.ones(3), TypeError, "second argument, their variances"),
        (lambda: [1.0, 2.0], TypeError, "results of statsmodels"),
        (lambda: [results("linear")[0], results("cox")[0]], ValueError, "of the same terms"),
        (
            lambda: [results("cox")[0], changed(results("cox")[0], params=np.full(3, np.nan))],
            ValueError,
            "NaN or infinity in fit 2",
        ),
        (
            lambda: [changed(results("cox")[0], params=np.ones((3, 2)))] * 2,
            ValueError,
            "one coefficient for every term",
        ),
    ],
)
def test_what_is_no_list_of_fits_is_refused(fits, error, words):
    with pytest.raises(error, match=words):
        pool(fits())


def test_terms_in_another_order_are_refused():
    one, two = results("cox")[:2]
    two.model.exog_names = ["dose", "age", "treated"]
    with pytest.raises(ValueError, match="in one order"):
        pool([one, two])


def test_log_likelihoods_of_other_parameters_are_not_taken():
    fits = [changed(fit, llf=fit.llf - 1) for fit in results("linear")]
    assert all(fit.loglikelihood is None for fit in read_fits(fits))
    with pytest.raises(ValueError, match="'D1' for these fits"):
        pool(fits).test("age", method="D3")


def test_the_highest_likelihood_where_some_coefficients_are_given():
    rng = np.random.default_rng(0)
    P = (lambda A: A @ A.T + np.eye(4))(rng.normal(size=(4, 4)))
    centre = rng.normal(size=4)

    def loglike(b):
        return -(b - centre) @ P @ (b - centre) / 2

    fit = FittedRegression(tuple("abcd"), centre, np.linalg.inv(P), None, loglike)
    start = np.array([0.0, 9.0, 1.0, 9.0])
    found = highest(fit, start, [1, 3])
    # given two, the other two of a Gaussian are at their conditional mean
    given = start[[0, 2]] - centre[[0, 2]]
    slopes = np.linalg.solve(P[np.ix_([1, 3], [1, 3])], P[np.ix_([1, 3], [0, 2])])
    np.testing.assert_allclose(found[[1, 3]], centre[[1, 3]] - slopes @ given, atol=1e-6)
    np.testing.assert_array_equal(found[[0, 2]], start[[0, 2]])
    np.testing.assert_array_equal(highest(fit, start, []), start)


def test_none_of_the_packages_is_imported():
    code = "import sys, dualpca; dualpca.pool; print({'statsmodels', 'lifelines'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# --- The packages themselves ---------------------------------------------------------------------

NOT_INSTALLED = "is not installed: its results are stood for above"


def of_statsmodels(kind):
    api = pytest.importorskip("statsmodels.formula.api", reason=f"statsmodels {NOT_INSTALLED}")
    import statsmodels.api as sm

    formula = "{} ~ age + dose + treated".format
    if kind == "linear":
        return [api.ols(formula("y"), t).fit() for t in tables()]
    if kind == "logistic":
        binomial = sm.families.Binomial()
        return [api.glm(formula("ill"), t, family=binomial).fit(tol=1e-12) for t in tables()]
    return [api.phreg(formula("time"), t, status="event").fit() for t in tables()]


@pytest.mark.parametrize("kind", KINDS)
def test_results_of_statsmodels_are_pooled_as_by_mice(kind):
    found = pool(of_statsmodels(kind))
    assert_as_mice(found, kind)
    assert found.terms == (("Intercept",) if kind != "cox" else ()) + tuple(FEATURES)
    assert repr(pickle.loads(pickle.dumps(found))) == repr(found)
    mine, theirs = pool(results(kind)).test(FEATURES[:2], "D3"), found.test(FEATURES[:2], "D3")
    np.testing.assert_allclose(theirs, mine, rtol=1e-5)


def test_a_factor_of_a_formula_is_tested_by_its_name():
    api = pytest.importorskip("statsmodels.formula.api", reason=f"statsmodels {NOT_INSTALLED}")
    third = [t.assign(site=np.array(["a", "b", "c"])[np.arange(60) % 3]) for t in tables()]
    found = pool([api.ols("y ~ age * C(site)", t).fit() for t in third])
    assert found.test("C(site)") == found.test(["C(site)[T.b]", "C(site)[T.c]"])
    logit = pool([api.logit("ill ~ age + dose + treated", t).fit(disp=0) for t in tables()])
    assert_as_mice(logit, "logistic")


def test_results_without_a_log_likelihood_are_pooled_without_d3():
    class Robust(SimpleNamespace):
        @property
        def llf(self):
            raise NotImplementedError

    plain = [{k: v for k, v in vars(fit).items() if k != "llf"} for fit in results("linear")]
    found = pool([Robust(**parts) for parts in plain])
    assert found.estimate == pytest.approx(pool(results("linear")).estimate)
    with pytest.raises(ValueError, match="'D1' for these fits"):
        found.test("age", method="D3")


def test_robust_regressions_and_scaled_models_of_statsmodels_have_no_d3():
    api = pytest.importorskip("statsmodels.formula.api", reason=f"statsmodels {NOT_INSTALLED}")
    for kind in (api.rlm, api.glm):
        found = pool([kind("y ~ age + dose", t).fit() for t in tables()])
        assert found.test("age").p_value < 1
        with pytest.raises(ValueError, match="fit it by OLS"):
            found.test("age", method="D3")


# what lifelines calls in pandas is theirs to mend
@pytest.mark.filterwarnings("ignore:Starting with pandas version 4.0")
def test_fitters_of_lifelines_are_pooled_as_by_mice():
    lifelines = pytest.importorskip("lifelines", reason=f"lifelines {NOT_INSTALLED}")
    columns = [*FEATURES, "time", "event"]
    fits = [lifelines.CoxPHFitter().fit(t[columns], "time", "event") for t in tables()]
    assert_as_mice(pool(fits), "cox", rtol=1e-5)  # its own tolerance of convergence
    with pytest.raises(ValueError, match="'D1' for these fits"):
        pool(fits).test("age", method="D3")
