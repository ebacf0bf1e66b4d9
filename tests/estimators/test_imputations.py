"""Analyses of completed tables: shifts of what was missing, columns that follow from others, and
columns that impute no others."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import dualpca

LINEAR = {
    "ppca": lambda: dualpca.PPCA(2),
    "standardized": lambda: dualpca.PPCA(2, standardize=True),
    "bayesian": lambda: dualpca.BayesianPCA(2, max_iter=2000),
    "robust": lambda: dualpca.RobustPPCA(2, max_iter=2000),
    "factor": lambda: dualpca.FactorAnalysis(2, max_iter=2000),
}
MODELS = LINEAR | {
    "copula": lambda: dualpca.CopulaPPCA(2),
    "imputer": lambda: dualpca.Imputer(2, model="ppca", max_iter=2000),
    "imputer-copula": lambda: dualpca.Imputer(2, model="copula"),
}
NAMES = ["a", "b", "c", "d", "e"]


W = np.array([[1.0, 0.2], [0.9, -0.5], [0.7, 0.6], [-0.3, 1.0], [0.5, 0.8]])


def table(n=120):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2)) @ W.T + 0.7 * rng.normal(size=(n, 5))
    X[rng.random(X.shape) < 0.15] = np.nan
    return X


def same(table):
    return table


@pytest.fixture(scope="module")
def fitted():
    return {name: make().fit(table()) for name, make in MODELS.items()}


@pytest.mark.parametrize("name", MODELS)
def test_the_function_sees_the_tables_that_are_drawn(fitted, name):
    X, model = table(), fitted[name]
    found = model.with_imputations(X, lambda t: t.sum(axis=0), 3, random_state=4)
    tables = model.sample_imputations(X, 3, random_state=4)
    assert len(found) == 3
    np.testing.assert_allclose(found, [t.sum(axis=0) for t in tables], rtol=1e-12)


@pytest.mark.parametrize("frames", [pd, pl])
@pytest.mark.parametrize("name", ["ppca", "copula", "imputer"])
def test_the_function_sees_frames_for_frames(frames, name):
    X = (
        frames.DataFrame(table(), schema=NAMES)
        if frames is pl
        else pd.DataFrame(table(), columns=NAMES)
    )
    found = MODELS[name]().fit(X).with_imputations(X, same, 2, random_state=0, delta={"b": 1.0})
    assert all(type(one) is type(X) and list(one.columns) == NAMES for one in found)
    assert not np.isnan(found[0].to_numpy()).any()


@pytest.mark.parametrize("name", MODELS)
def test_delta_moves_what_was_missing_and_nothing_else(fitted, name):
    X, model = table(), fitted[name]
    gaps = np.isnan(X)
    before = np.array(model.with_imputations(X, same, 2, random_state=0))
    after = np.array(model.with_imputations(X, same, 2, random_state=0, delta={1: -2.0}))
    np.testing.assert_array_equal(after[:, ~gaps], np.broadcast_to(X[~gaps], (2, (~gaps).sum())))
    np.testing.assert_allclose((after - before)[:, gaps[:, 1], 1], -2, rtol=1e-12)
    np.testing.assert_array_equal(np.delete(after, 1, axis=2), np.delete(before, 1, axis=2))
    each = model.with_imputations(X, same, 2, random_state=0, delta=[0, -2.0, 0, 0, 0])
    np.testing.assert_array_equal(each, after)


def mixed(n=60):
    rng = np.random.default_rng(1)
    t = rng.normal(size=n)
    found = pd.DataFrame({
        "height": 170 + 8 * (t + 0.5 * rng.normal(size=n)),
        "weight": 70 + 9 * (t + 0.5 * rng.normal(size=n)),
        "visits": rng.poisson(np.exp(1 + 0.3 * t)),
        "site": np.array(["x", "y"])[(t + rng.normal(size=n) > 0).astype(int)],
    })  # fmt: skip
    found["visits"] = found["visits"].astype("Int64")
    for k, column in enumerate(["height", "weight", "visits", "site"]):
        found.loc[rng.random(n) < 0.1 + 0.03 * k, column] = None
    found["bmi"] = found.weight / (found.height / 100) ** 2
    return found


def bmi(t):
    return t["weight"] / (t["height"] / 100) ** 2


def test_delta_of_a_frame_is_in_the_units_of_its_columns():
    X = mixed()
    model = dualpca.CopulaPPCA(1).fit(X)
    before, after = (
        model.with_imputations(X, same, 2, random_state=0, delta=delta)[0]
        for delta in (None, {"visits": 2, "weight": 0.5})
    )
    assert after.visits.dtype == X.visits.dtype
    np.testing.assert_array_equal(after.visits - before.visits, 2 * X.visits.isna())
    np.testing.assert_allclose(after.weight - before.weight, 0.5 * X.weight.isna(), atol=1e-12)
    pd.testing.assert_series_equal(after.site, before.site)
    with pytest.raises(ValueError, match="delta must be of columns of numbers"):
        model.with_imputations(X, same, 2, delta={"site": 1})


@pytest.mark.parametrize("frames", [pd, pl])
def test_passive_columns_follow_from_the_others_in_every_draw(frames):
    X = mixed() if frames is pd else pl.from_pandas(mixed())
    model = dualpca.CopulaPPCA(1).fit(X)
    asked = {"bmi": bmi, "large": lambda t: t["bmi"] > 25}
    found = model.with_imputations(
        X, same, 3, random_state=0, passive=asked, delta={"weight": 1.0}
    )  # fmt: skip
    for one in found:
        np.testing.assert_array_equal(one["bmi"], bmi(one))
        np.testing.assert_array_equal(one["large"], one["bmi"] > 25)
    assert X.shape == (60, 5)  # as it was given
    if frames is pl:
        expression = {"bmi": lambda t: pl.col("weight") / (pl.col("height") / 100) ** 2}
        one = model.with_imputations(X, same, 1, random_state=0, passive=expression)[0]
        np.testing.assert_allclose(one["bmi"], bmi(one))


@pytest.mark.parametrize("name", [name for name in MODELS if name != "imputer"])
def test_passive_columns_of_arrays_impute_no_others(fitted, name):
    X, model = table(), fitted[name]
    found = model.with_imputations(X, same, 2, random_state=0, passive={4: lambda t: t[:, 0] ** 2})
    alone = model.sample_imputations(X, 2, random_state=0, not_predictors=[4])
    for one, other in zip(found, alone, strict=True):
        np.testing.assert_array_equal(one[:, 4], one[:, 0] ** 2)
        np.testing.assert_array_equal(one[:, :4], other[:, :4])


@pytest.mark.parametrize("name", MODELS)
def test_columns_that_are_no_predictors_are_imputed_and_impute_no_others(fitted, name):
    X, model = table(), fitted[name]
    how = {"random_state": 0, "parameters": "fixed", "not_predictors": [0, 3]}
    found = np.array(model.sample_imputations(X, 2, **how))
    gaps = np.isnan(X)
    assert not np.isnan(found).any()
    np.testing.assert_array_equal(found[:, ~gaps], np.broadcast_to(X[~gaps], (2, (~gaps).sum())))
    # whatever these columns observe, the others are drawn alike
    other = X.copy()
    other[:, [0, 3]] = np.random.default_rng(5).permutation(X[:, [0, 3]]) * 0.9
    other[gaps] = np.nan
    other[np.isnan(other) & ~gaps] = 0.1
    again = np.array(model.sample_imputations(other, 2, **how))
    np.testing.assert_array_equal(np.delete(again, [0, 3], 2), np.delete(found, [0, 3], 2))
    plain = np.array(model.sample_imputations(X, 2, random_state=0, parameters="fixed"))
    assert not np.allclose(plain, found)


@pytest.mark.parametrize("name", ["ppca", "standardized", "factor", "imputer"])
def test_draws_without_a_predictor_are_of_the_conditional_given_the_rest(fitted, name):
    model = fitted[name]
    X = table()[:1] * 0 + 1.0
    X[0, [0, 1]], X[0, 3] = np.nan, 2.0
    X[0, [2, 4]] = 0.7, -0.4
    how = {"random_state": 0, "parameters": "fixed", "not_predictors": [3]}
    draws = np.asarray(model.sample_imputations(X, 8000, **how))[:, 0]
    density = model.model_ if name == "imputer" else model
    C, mean = density.get_covariance(), density.mean_
    u, o = [0, 1], [2, 4]
    slopes = np.linalg.solve(C[np.ix_(o, o)], C[np.ix_(o, u)])
    expected = mean[u] + (X[0, o] - mean[o]) @ slopes
    left = C[np.ix_(u, u)] - C[np.ix_(u, o)] @ slopes
    error = np.sqrt(np.diag(left) / 8000)
    assert np.all(np.abs(draws[:, u].mean(axis=0) - expected) < 4 * error)
    np.testing.assert_allclose(np.cov(draws[:, u].T), left, rtol=0.1, atol=0.1 * left.max())


def test_bootstrapped_parameters_know_all_columns(fitted):
    X, model = table(), fitted["ppca"]
    found = model.sample_imputations(X, 3, random_state=0, not_predictors=[0])
    assert not np.isnan(found).any() and np.ptp(found, axis=0)[np.isnan(X)].min() > 0


def test_regressions_on_completed_tables_are_pooled():
    X = table()
    model = dualpca.PPCA(2).fit(X)

    def regression(t):
        return LinearRegression().fit(t[:, :2], t[:, 4]), t[:, :2], t[:, 4]

    fits, features, target = zip(
        *model.with_imputations(X, regression, random_state=0), strict=True
    )
    pooled = dualpca.pool(fits, X=features, y=target)
    assert len(pooled.fits) == 20 and np.all(pooled.missing_information > 0)


def test_a_tensor_stays_a_tensor():
    torch = pytest.importorskip("torch", reason="the GPU's library is not installed")
    X = table()
    model = dualpca.PPCA(2).fit(X)
    how = {"random_state": 0, "delta": {1: -2.0}, "passive": {4: lambda t: t[:, 0] ** 2}}
    expected = model.with_imputations(X, same, 2, **how)
    found = model.with_imputations(torch.asarray(X), same, 2, **how)
    assert all(isinstance(one, torch.Tensor) for one in found)
    np.testing.assert_allclose(torch.stack(found).numpy(), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"delta": {"z": 1.0}}, r"delta must be of columns of X, 0 to 4"),
        ({"delta": {9: 1.0}}, "delta must be of columns of X"),
        ({"delta": {1: np.nan}}, "finite numbers"),
        ({"delta": {1: "a"}}, "finite numbers"),
        ({"delta": [1.0]}, "dict from columns to numbers, or 5 of them"),
        ({"delta": 3.0}, "dict from columns to numbers"),
        ({"passive": {4: 1.0}}, "a dict from columns to functions"),
        ({"passive": [same]}, "a dict from columns to functions"),
        ({"passive": {"z": same}}, "passive must be of columns of X"),
        ({"passive": {4: same}, "delta": {4: 1.0}}, "columns that are not passive"),
        ({"not_predictors": [True]}, "not_predictors must be of columns of X"),
        ({"not_predictors": "ab"}, r"a list of columns, such as \['ab'\]"),
        ({"n_draws": 0}, "n_draws must be"),
    ],
)
@pytest.mark.parametrize("name", ["ppca", "copula"])
def test_what_cannot_be_done_is_refused(fitted, name, asked, words):
    with pytest.raises(ValueError, match=words):
        fitted[name].with_imputations(table(), same, **asked)


def test_matching_has_no_columns_left_out():
    model = dualpca.Imputer(2, model="ppca", method="matching", max_iter=2000).fit(table())
    assert len(model.with_imputations(table(), same, 2, delta={0: 1.0})) == 2
    with pytest.raises(ValueError, match="None with method='matching'"):
        model.with_imputations(table(), same, 2, not_predictors=[0])


@pytest.mark.parametrize("options", [{}, {"delta": {0: 1.0}}, {"passive": {0: same}}])
def test_an_unfitted_model_says_so(options):
    with pytest.raises(NotFittedError):
        dualpca.PPCA(2).with_imputations(table(), same, **options)
