"""PPCA of incomplete rows: what must not matter, what is refused, what comes back."""

import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import procrustes
from scipy.stats import chi2
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from dualpca import PPCA, FactorAnalysis, Imputer
from dualpca.arrays import backend as _array
from tests import oracles
from tests.models.incomplete_cases import (
    PATTERNS,
    RIDGES,
    TIGHT,
    covariance,
    draw,
    fitted,
    parameters,
    remove,
)
from tests.oracles import missing as dense
from tests.tolerances import assert_close, assert_log_density

SAME_MAXIMUM = 1e-6
"""How far two runs of EM to one maximum may end apart, relative to the largest entry."""

UNIQUE = pytest.mark.parametrize("name", [name for name in PATTERNS if name not in RIDGES])


def assert_same_model(a, b, tol=SAME_MAXIMUM):
    """Assert that two fits are the same Gaussian, however each went there."""
    C = covariance(b)
    np.testing.assert_allclose(covariance(a), C, rtol=0, atol=tol * np.max(np.abs(C)))
    np.testing.assert_allclose(a.mean_, b.mean_, rtol=0, atol=tol * np.sqrt(np.max(np.diag(C))))
    assert a.noise_variance_ == pytest.approx(b.noise_variance_, rel=10 * tol)
    assert a.loglikelihood_ == pytest.approx(b.loglikelihood_, rel=tol)


@given(data=st.data())
def test_any_mask_of_any_model_is_conditioned_right(data):
    d = data.draw(st.integers(2, 7))
    q = data.draw(st.integers(1, d - 1))
    complete = draw(50, d, q, seed=data.draw(st.integers(0, 99)))
    model = PPCA(q).fit(complete)
    flags = data.draw(st.lists(st.booleans(), min_size=4 * d, max_size=4 * d))
    X = np.where(np.reshape(flags, (4, d)), complete[:4], np.nan)
    mean, cov = dense.conditionals(X, model.mean_, covariance(model))
    assert_close(model.conditional(X)[0], mean, "vector")
    assert_close(
        model.conditional(X, parameters="fixed")[1], cov, "vector", scale=np.max(covariance(model))
    )
    expected = dense.log_density(X, model.mean_, covariance(model))
    assert_log_density(model.score_samples(X), expected, d)
    W, mu, sigma2 = parameters(model)
    z, C = dense.posterior(X, W, mu, np.full(d, sigma2))
    assert_close(model.posterior(X)[0], z, "vector", scale=1 + np.max(np.abs(z)))
    assert_close(model.posterior(X, parameters="fixed")[1], C, "vector")


@pytest.mark.parametrize("noise", [1e-2, 1e-4, 1e-6])
def test_little_noise_costs_few_digits(noise):
    complete = draw(50, 6, 2, noise=noise)
    model = PPCA(2).fit(complete)
    X = np.vstack([complete[:10], remove(complete, 0.3)])
    expected = dense.log_density_by_least_squares(X, *parameters(model))
    scale = np.max(np.abs(expected)) / noise  # an entry of size 1 has log10(1/noise) digits fewer
    assert_close(model.score_samples(X), expected, "eigenvalue", scale=scale)
    assert_close(model.score_samples(X)[:10], model.score_samples(X[:10]), "vector", scale=10.0)


@pytest.mark.parametrize("noise", [1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("seed", range(4))
def test_little_noise_is_no_obstacle(noise, seed):
    truth = draw(60, 6, 2, noise=noise, seed=seed)
    X = remove(truth, 0.3, seed=seed + 1)
    model = PPCA(2).fit(X)
    assert model.converged_
    assert np.sqrt(model.noise_variance_) == pytest.approx(noise, rel=0.2)
    enough = np.count_nonzero(~np.isnan(X), axis=1) >= 4  # two latents need some redundancy
    hole = np.isnan(X) & enough[:, None]
    assert rmse(model.impute(X), truth, hole) < 10 * noise


def test_given_noise_stays_and_the_rest_is_a_maximum():
    X, q = PATTERNS["30 %"]()
    model = PPCA(q, noise_variance=0.4, **TIGHT).fit(X)
    assert float(model.noise_variance_) == 0.4
    W, mu, sigma2 = parameters(model)
    by_W, by_mu, _ = dense.gradient(X, W, mu, np.full(len(mu), sigma2))
    assert max(np.max(np.abs(by_W)), np.max(np.abs(by_mu))) / X.size < 1e-6
    assert model.loglikelihood_ < fitted("30 %")[2].loglikelihood_


def test_rows_with_holes_and_no_weight_leave_the_closed_form():
    X = draw(80, 6, 2)
    holes = remove(draw(20, 6, 2, seed=5), 0.4)
    w = np.r_[np.ones(80), np.zeros(20)]
    model = PPCA(2, **TIGHT).fit(np.vstack([X, holes]), sample_weight=w)
    assert_same_model(model, PPCA(2).fit(X))


def test_one_missing_value_changes_little():
    X = draw(200, 6, 2)
    closed = PPCA(2).fit(X)
    X[17, 3] = np.nan
    model = PPCA(2).fit(X)
    gap = np.max(np.abs(covariance(model) - covariance(closed)))
    assert 0 < gap < 0.03 * np.max(covariance(closed))
    assert 0 < abs(model.loglikelihood_ - closed.loglikelihood_) < 5


# --- what must not matter ---------------------------------------------------------------


def test_empty_rows_are_no_rows():
    X, q, model = fitted("empty rows")
    kept = X[~np.all(np.isnan(X), axis=1)]
    without = PPCA(q, **TIGHT).fit(kept)
    assert_same_model(model, without)
    assert model.n_samples_ == without.n_samples_ == len(kept)


@pytest.mark.parametrize("name", ["30 %", "monotone", "empty rows"])
def test_integer_weights_are_repeated_rows(name):
    X, q, _ = fitted(name)
    counts = np.random.default_rng(6).integers(1, 4, size=len(X))
    weighted = PPCA(q, **TIGHT).fit(X, sample_weight=counts)
    assert_same_model(weighted, PPCA(q, **TIGHT).fit(oracles.repeat(X, counts)))
    expected = dense.loglikelihood(X, weighted.mean_, covariance(weighted), counts)
    assert weighted.loglikelihood_ == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("name", ["30 %", "monotone"])
def test_rows_of_no_weight_are_no_rows(name):
    X, q, _ = fitted(name)
    w = (np.arange(len(X)) % 3 > 0).astype(float)
    model = PPCA(q, **TIGHT).fit(X, sample_weight=w)
    assert_same_model(model, PPCA(q, **TIGHT).fit(X[w > 0]))
    assert model.n_samples_ == np.count_nonzero(w)


def test_unit_of_the_weights_does_not_matter():
    X, q, model = fitted("30 %")
    w = np.full(len(X), 0.01)
    light = PPCA(q, **TIGHT).fit(X, sample_weight=w)
    np.testing.assert_allclose(
        covariance(light), covariance(model), atol=SAME_MAXIMUM * np.max(covariance(model))
    )
    assert light.loglikelihood_ == pytest.approx(0.01 * model.loglikelihood_, rel=1e-8)


@pytest.mark.parametrize("model", [PPCA(2), FactorAnalysis(2)], ids=repr)
def test_unit_of_the_weights_changes_no_step(model):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2)) @ rng.normal(size=(2, 8)) + 0.3 * rng.normal(size=(400, 8))
    X[rng.random(X.shape) < 0.3] = np.nan
    fits = [clone(model).fit(X, sample_weight=np.full(400, 2.0**k)) for k in (-20, 0, 20)]
    assert len({one.n_iter_ for one in fits}) == 1
    for one in fits:
        assert_close(one.get_covariance(), fits[1].get_covariance(), "vector")


@UNIQUE
def test_row_order_does_not_matter(name):
    X, q, model = fitted(name)
    order = np.random.default_rng(7).permutation(len(X))
    assert_same_model(PPCA(q, **TIGHT).fit(X[order]), model)


@pytest.mark.parametrize("name", ["30 %", "blocks", "wide"])
def test_column_order_only_renames(name):
    X, q, model = fitted(name)
    order = np.random.default_rng(8).permutation(X.shape[1])
    renamed = PPCA(q, **TIGHT).fit(X[:, order])
    C = covariance(model)
    np.testing.assert_allclose(
        covariance(renamed), C[np.ix_(order, order)], atol=SAME_MAXIMUM * np.max(C)
    )
    np.testing.assert_allclose(renamed.impute(X[:, order]), model.impute(X)[:, order], atol=1e-5)


@pytest.mark.parametrize("offset", [1e3, 1e6])
def test_translation_moves_only_the_mean(offset):
    X, q, model = fitted("30 %")
    shift = offset * np.random.default_rng(9).standard_normal(X.shape[1])
    moved = PPCA(q, **TIGHT).fit(X + shift)
    C = covariance(model)
    np.testing.assert_allclose(covariance(moved), C, atol=1e-6 * np.max(C))
    np.testing.assert_allclose(moved.mean_ - shift, model.mean_, atol=1e-5)
    np.testing.assert_allclose(moved.impute(X + shift) - shift, model.impute(X), atol=1e-5)
    assert moved.loglikelihood_ == pytest.approx(model.loglikelihood_, rel=1e-6)


@pytest.mark.parametrize("scale", [2.0**-100, 2.0**-20, 2.0**20, 2.0**100])
def test_units_do_not_change_the_course_of_em(scale):
    X, q, model = fitted("30 %")
    scaled = PPCA(q, **TIGHT).fit(X * scale)
    assert scaled.n_iter_ == model.n_iter_
    assert_close(covariance(scaled) / scale**2, covariance(model), "vector")
    count = np.count_nonzero(~np.isnan(X))
    expected = model.loglikelihood_ - count * np.log(scale)
    assert scaled.loglikelihood_ == pytest.approx(expected, rel=1e-10)
    assert_close(scaled.impute(X * scale) / scale, model.impute(X), "vector")


def test_seed_of_the_start_does_not_matter():
    X, q, model = fitted("30 %")
    for seed in range(3):
        assert_same_model(PPCA(q, random_state=seed, **TIGHT).fit(X), model)


def test_same_seed_same_fit():
    X, q, _ = fitted("30 %")
    a, b = (PPCA(q, random_state=3).fit(X) for _ in range(2))
    assert np.array_equal(a.loadings_, b.loadings_) and a.loglikelihoods_ == b.loglikelihoods_


def test_size_of_the_blocks_does_not_matter(monkeypatch):
    X, q = remove(draw(300, 6, 2), 0.3), 2
    whole = PPCA(q, **TIGHT).fit(X)
    expected = [whole.impute(X), whole.score_samples(X), whole.conditional(X)[1]]
    monkeypatch.setattr(_array, "BLOCK_ROWS", 64)
    assert_same_model(PPCA(q, **TIGHT).fit(X), whole)
    got = [whole.impute(X), whole.score_samples(X), whole.conditional(X)[1]]
    for a, b in zip(got, expected, strict=True):
        assert_close(a, b, "covariance")


def test_default_settings_are_close_to_the_maximum():
    for name in ("10 %", "30 %", "60 %", "blocks", "monotone", "wide"):
        X, q, best = fitted(name)
        model = PPCA(q).fit(X)
        assert model.converged_ and model.n_iter_ < 1000
        assert best.loglikelihood_ - model.loglikelihood_ < 1e-6 * abs(best.loglikelihood_)
        assert_same_model(model, best, tol=1e-3)


def test_stopping_early_is_said():
    X, q, _ = fitted("30 %")
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model = PPCA(q, max_iter=3).fit(X)
    assert not model.converged_ and model.n_iter_ <= 3


def test_shares_of_variance_are_of_the_trace():
    model = PPCA(2).fit(remove(draw(60, 6, 2), 0.3))
    share = model.explained_variance_ / np.trace(model.get_covariance())
    assert_close(model.explained_variance_ratio_, share, "vector")


def test_a_later_fit_forgets_the_holes():
    X, complete = remove(draw(60, 6, 2), 0.3), draw(60, 6, 2)
    model = PPCA(2).fit(X).fit(complete)
    assert_same_model(model, PPCA(2).fit(complete), tol=1e-12)
    assert model.loglikelihoods_ == [model.loglikelihood_]


def test_fit_transform_clone_and_pickle():
    X, q, model = fitted("30 %")
    assert_close(PPCA(q, **TIGHT).fit_transform(X), model.transform(X), "vector")
    assert_same_model(clone(model).fit(X), model, tol=1e-12)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).impute(X), model.impute(X))


# --- what comes in ----------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [PPCA, Imputer])
def test_column_without_a_value_is_named(estimator):
    X = remove(draw(30, 5, 1), 0.2)
    X[:, 3] = np.nan
    with pytest.raises(ValueError, match=r"column 3\b"):
        estimator(n_components=1).fit(X)


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("estimator", [PPCA, Imputer])
def test_column_without_a_value_is_named_as_the_frame_names_it(estimator, library):
    frames = pytest.importorskip(library, reason=f"{library} is not installed")
    X = remove(draw(30, 3, 1), 0.2)
    X[:, 1] = np.nan
    names = ("ozone", "wind", "temp")
    with pytest.raises(ValueError, match="column 'wind'"):
        estimator(1).fit(frames.DataFrame({name: X[:, j] for j, name in enumerate(names)}))


def test_column_seen_only_by_rows_of_no_weight_is_named():
    X = remove(draw(30, 5, 1), 0.2)
    X[1:, 2] = np.nan
    X[0, 2] = 1.0
    w = np.r_[0.0, np.ones(29)]
    with pytest.raises(ValueError, match=r"column 2\b"):
        PPCA(1).fit(X, sample_weight=w)


def test_table_without_any_value_is_an_error():
    with pytest.raises(ValueError, match="column 0"):
        PPCA(1).fit(np.full((9, 3), np.nan))


def test_columns_without_variation_are_an_error():
    X = remove(np.ones((9, 3)), 0.3)
    with pytest.raises(ValueError, match=r"constant|varia"):
        PPCA(1).fit(X)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_variance_beyond_floating_point_is_said(scale):
    with pytest.raises(ValueError, match=r"large|little|small"):
        PPCA(1).fit(remove(draw(30, 4, 1), 0.2) * scale)


def test_one_constant_column_is_no_obstacle():
    X = remove(draw(60, 5, 1), 0.2)
    X[:, 2] = np.where(np.isnan(X[:, 2]), np.nan, 7.0)
    model = PPCA(1).fit(X)
    assert_close(model.impute(X)[:, 2], np.full(60, 7.0), "residual", scale=1e3)


@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (5, 3)])
@pytest.mark.parametrize("estimator", [PPCA, Imputer])
def test_infinity_beside_nan_is_an_error_in_fit(estimator, place, value):
    X = remove(draw(30, 5, 1), 0.2)
    X[place] = value
    with pytest.raises(ValueError, match="inf"):
        estimator(n_components=1).fit(X)


def test_no_components_is_the_isotropic_gaussian_or_an_error():
    X = remove(draw(30, 5, 1), 0.2)
    try:
        model = PPCA(0).fit(X)
    except ValueError as error:
        assert "n_components" in str(error)
    else:
        assert model.n_components_ == 0 and model.components_.shape == (0, 5)


@pytest.mark.parametrize("q", [6, -1])
def test_impossible_counts_are_named(q):
    with pytest.raises(ValueError, match="n_components"):
        PPCA(q).fit(remove(draw(30, 5, 1), 0.2))


@pytest.mark.parametrize("method", ["impute", "transform", "score_samples", "conditional"])
def test_model_without_noise_fills_or_refuses(method):
    X = draw(40, 5, 2, noise=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = PPCA(5).fit(draw(40, 5, 2))  # as many components as features: no noise is left
        except ValueError as error:
            assert "noise" in str(error) or "density" in str(error)
            return
    X[0, 0] = np.nan
    try:
        outcome = getattr(model, method)(X)
    except ValueError as error:
        assert "noise" in str(error) or "density" in str(error)
    else:
        parts = outcome if isinstance(outcome, tuple) else (outcome,)
        assert all(np.all(np.isfinite(part)) for part in parts)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_input_is_never_changed(order, dtype):
    X = np.array(remove(draw(40, 5, 1), 0.3), dtype=dtype, order=order)
    w = np.random.default_rng(0).uniform(0.5, 2, 40)
    X[3] = np.nan
    before = X.tobytes(), w.tobytes()
    model = PPCA(1).fit(X, sample_weight=w)
    for name in ("transform", "posterior", "score_samples", "reconstruct", "impute", "conditional"):
        getattr(model, name)(X)
    model.impute(X, return_std=True)
    model.sample_imputations(X, 2, random_state=0)
    Imputer(n_components=1, add_indicator=True).fit_transform(X)
    assert (X.tobytes(), w.tobytes()) == before


def test_read_only_strided_and_listed_input_gives_the_same():
    X = remove(draw(40, 5, 1), 0.3)
    expected = PPCA(1).fit(X)
    locked, strided = X.copy(), np.repeat(X, 2, axis=1)[:, ::2]
    locked.setflags(write=False)
    for other in (locked, strided, X.tolist(), X.astype(object), np.asfortranarray(X)):
        model = PPCA(1).fit(other)
        assert_same_model(model, expected, tol=1e-8)
        assert_close(model.impute(other), expected.impute(X), "vector")
    with_none = [[None if np.isnan(v) else v for v in row] for row in X.tolist()]
    assert_same_model(PPCA(1).fit(np.array(with_none, dtype=object)), expected, tol=1e-8)


def test_float32_keeps_float32():
    X = remove(draw(60, 6, 2), 0.3)
    single, model = X.astype(np.float32), PPCA(2).fit(X.astype(np.float32))
    expected = PPCA(2).fit(X)
    assert_close(covariance(model), covariance(expected), "em", np.float32)
    for name in ("transform", "reconstruct", "impute"):
        outcome = getattr(model, name)(single)
        assert outcome.dtype == np.float32, name
        assert_close(outcome, getattr(expected, name)(X), "em", np.float32)
    for name in ("posterior", "conditional"):
        assert all(part.dtype == np.float32 for part in getattr(model, name)(single))
    assert all(part.dtype == np.float32 for part in model.impute(single, return_std=True))
    assert model.sample_imputations(single, 2).dtype == np.float32
    seen = ~np.isnan(single)
    assert np.array_equal(model.impute(single)[seen], single[seen])


def test_every_library_gives_what_numpy_gives(backend):
    X, q, _ = fitted("30 %")
    w = np.random.default_rng(0).uniform(0.5, 2, len(X))
    rows, expected = backend.asarray(X), PPCA(q, **TIGHT).fit(X, sample_weight=w)
    model = PPCA(q, **TIGHT).fit(rows, sample_weight=backend.asarray(w))
    assert backend.owns(model.components_)
    assert model.loglikelihood_ == pytest.approx(expected.loglikelihood_, rel=1e-9)
    calls = [
        lambda m, X: m.mean_,
        lambda m, X: m.get_covariance(),
        lambda m, X: m.transform(X),
        lambda m, X: m.posterior(X)[1],
        lambda m, X: m.score_samples(X),
        lambda m, X: m.reconstruct(X, return_std=True)[1],
        lambda m, X: m.impute(X),
        lambda m, X: m.impute(X, return_std=True)[1],
        lambda m, X: m.conditional(X)[1],
        lambda m, X: m.conditional(X, features=[4, 1])[0],
        lambda m, X: m.sample_imputations(X, 2, random_state=5),
    ]
    for call in calls:
        got, wanted = call(model, rows), call(expected, X)
        assert backend.owns(got)
        got = backend.numpy(got)
        np.testing.assert_allclose(got, wanted, atol=1e-6 * np.max(np.abs(wanted)))
    filled = backend.numpy(model.impute(rows))
    assert np.array_equal(filled[~np.isnan(X)], X[~np.isnan(X)])


def test_pandas_frame_comes_back_as_one():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X = remove(draw(40, 4, 1), 0.3)
    frame = pandas.DataFrame(X, columns=list("abcd"), index=pandas.RangeIndex(100, 140))
    before = frame.copy()
    model, expected = PPCA(1).fit(frame), PPCA(1).fit(X)
    filled, std = model.impute(frame, return_std=True)
    for got in (filled, std, model.impute(frame)):
        assert isinstance(got, pandas.DataFrame)
        assert list(got.columns) == list("abcd") and got.index.equals(frame.index)
    assert_close(filled.to_numpy(), expected.impute(X), "vector")
    assert_close(std.to_numpy(), expected.impute(X, return_std=True)[1], "vector")
    pandas.testing.assert_frame_equal(frame, before)
    nullable = frame.astype("Float64")
    assert nullable.isna().to_numpy().sum() == np.isnan(X).sum()
    assert_close(model.impute(nullable).to_numpy(dtype=float), expected.impute(X), "vector")


def test_polars_nulls_are_missing_values():
    polars = pytest.importorskip("polars", reason="polars is not installed")
    X = remove(draw(40, 4, 1), 0.3)
    columns = {name: [None if np.isnan(v) else v for v in X[:, j]] for j, name in enumerate("abcd")}
    frame = polars.DataFrame(columns)
    assert sum(frame.null_count().row(0)) == np.isnan(X).sum()
    model, expected = PPCA(1).fit(frame), PPCA(1).fit(X)
    filled, std = model.impute(frame, return_std=True)
    for got in (filled, std):
        assert isinstance(got, polars.DataFrame) and got.columns == list("abcd")
        assert sum(got.null_count().row(0)) == 0
    assert_close(filled.to_numpy(), expected.impute(X), "vector")
    assert_close(std.to_numpy(), expected.impute(X, return_std=True)[1], "vector")
    assert_close(model.transform(frame), expected.transform(X), "vector")


def test_rows_of_missing_entries_are_jointly_calibrated():
    # squared distance of the removed entries of a row from `conditional`: chi-squared, jointly
    truth = draw(400, 8, 2, seed=11)
    X = remove(truth, 0.4, seed=12)
    mean, cov = PPCA(2).fit(X).conditional(X)
    levels = []
    for i, x in enumerate(X):
        m = np.flatnonzero(np.isnan(x))
        if m.size:
            r = (truth - mean)[i, m]
            levels.append(chi2(m.size).cdf(r @ np.linalg.solve(cov[i][np.ix_(m, m)], r)))
    assert np.mean(levels) == pytest.approx(0.5, abs=0.05)
    assert np.mean(np.asarray(levels) < 0.9) == pytest.approx(0.9, abs=0.04)


# --- published numbers and other libraries ----------------------------------------------


@pytest.fixture(scope="module")
def oil(shared_data):
    with np.load(shared_data("oil_flow.npz")) as data:
        return data["X"].astype(np.float64)[:100]


def test_oil_flow_with_thirty_per_cent_removed(oil):
    complete = PPCA(2).fit(oil)
    assert complete.noise_variance_ == pytest.approx(0.090930, rel=1e-5)
    assert complete.loglikelihood_ == pytest.approx(-488.8220, rel=1e-5)
    disparities, errors, naive = [], [], []
    for seed in range(10):
        X = remove(oil, 0.3, seed=seed)
        hole, model = np.isnan(X), PPCA(2).fit(X)
        disparities.append(procrustes(complete.transform(oil), model.transform(X))[2])
        errors.append(rmse(model.impute(X), oil, hole))
        naive.append(rmse(np.broadcast_to(np.nanmean(X, axis=0), X.shape), oil, hole))
    assert np.mean(disparities) < 0.2
    assert np.mean(errors) == pytest.approx(0.389, abs=0.03)
    assert np.mean(naive) == pytest.approx(0.483, abs=0.03)
    assert np.all(np.asarray(errors) < naive)


def rmse(filled, truth, where):
    return float(np.sqrt(np.mean((filled - truth)[where] ** 2)))


# --- Imputer ----------------------------------------------------------------------------


def test_imputer_is_the_models_impute():
    X, q, _ = fitted("30 %")
    imputer = Imputer(n_components=q).fit(X)
    model = PPCA(q).fit(X)
    assert_same_model(imputer.model_, model, tol=1e-12)
    assert np.array_equal(imputer.transform(X), model.impute(X))
    new = remove(draw(9, 6, 2, seed=4), 0.5)
    assert np.array_equal(imputer.transform(new), model.impute(new))
    assert np.array_equal(clone(imputer).fit_transform(X), imputer.transform(X))


def test_imputer_takes_weights():
    X, q, _ = fitted("30 %")
    counts = np.arange(len(X)) % 2 + 1
    a = Imputer(q, tol=1e-9).fit(X, sample_weight=counts).transform(X)
    b = Imputer(q, tol=1e-9).fit(oracles.repeat(X, counts)).transform(X)
    np.testing.assert_allclose(a, b, atol=1e-5)


def test_imputer_serves_a_regression_in_a_pipeline():
    truth = draw(200, 6, 2, seed=21)
    y = truth @ np.array([1.0, -1.0, 0.5, 0.0, 2.0, 0.3])
    X = remove(truth, 0.3, seed=22)
    pipe = make_pipeline(Imputer(n_components=2), LinearRegression())
    ours = cross_val_score(pipe, X, y).mean()
    naive = cross_val_score(make_pipeline(SimpleImputer(), LinearRegression()), X, y).mean()
    assert ours > naive
    search = GridSearchCV(pipe, {"imputer__n_components": [1, 2]}, cv=3).fit(X, y)
    assert search.best_params_ == {"imputer__n_components": 2}
    assert np.all(np.isfinite(search.predict(X[:5])))


def test_imputer_indicators_and_names_are_scikit_learns():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X = remove(draw(40, 4, 1), 0.3)
    X[:, 1] = draw(40, 4, 1)[:, 1]  # complete in fit: no indicator
    frame = pandas.DataFrame(X, columns=list("abcd"))
    ours = Imputer(n_components=1, add_indicator=True).fit(frame)
    theirs = SimpleImputer(add_indicator=True).fit(frame)
    assert list(ours.get_feature_names_out()) == list(theirs.get_feature_names_out())
    assert ours.get_feature_names_out()[-1] == "missingindicator_d"
    out, plain = np.asarray(ours.transform(frame)), Imputer(n_components=1).fit_transform(X)
    assert out.shape == (40, 7)
    assert_close(out[:, :4], plain, "exact")
    assert np.array_equal(out[:, 4:], np.asarray(theirs.transform(frame))[:, 4:])
    new = np.full((1, 4), np.nan)
    assert np.asarray(Imputer(1, add_indicator=True).fit(X).transform(new)).shape == (1, 7)
    assert list(Imputer(1, add_indicator=True).fit(X).get_feature_names_out()) == list(
        SimpleImputer(add_indicator=True).fit(X).get_feature_names_out()
    )


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("add_indicator", [False, True])
def test_imputer_can_give_frames(library, add_indicator):
    frames = pytest.importorskip(library, reason=f"{library} is not installed")
    X = remove(draw(40, 4, 1), 0.3)
    frame = frames.DataFrame({name: X[:, j] for j, name in enumerate("abcd")})
    imputer = Imputer(n_components=1, add_indicator=add_indicator).set_output(transform=library)
    out = imputer.fit_transform(frame)
    assert isinstance(out, frames.DataFrame)
    assert list(out.columns) == list(imputer.get_feature_names_out())
    assert len(out.columns) == (8 if add_indicator else 4)


@pytest.mark.parametrize("add_indicator", [False, True])
def test_imputer_keeps_float32(add_indicator):
    X = remove(draw(40, 4, 1), 0.3).astype(np.float32)
    assert Imputer(1, add_indicator=add_indicator).fit_transform(X).dtype == np.float32


def test_imputer_gives_a_frame_for_a_frame_with_indicators_as_without():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(
        remove(draw(40, 4, 1), 0.3), columns=list("abcd"), index=range(100, 140)
    )
    plain = Imputer(1).fit_transform(frame)
    more = Imputer(1, add_indicator=True).fit_transform(frame)
    assert type(plain) is type(more)


@pytest.mark.parametrize("names", [list("ab"), list("wxyz")])
def test_imputer_refuses_other_names(names):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    imputer = Imputer(1).fit(pandas.DataFrame(remove(draw(40, 4, 1), 0.3), columns=list("abcd")))
    with pytest.raises(ValueError, match="input_features"):
        imputer.get_feature_names_out(names)


@pytest.mark.parametrize("flag", ["yes", 1, None])
def test_imputer_names_a_nonsense_flag(flag):
    with pytest.raises(ValueError, match="add_indicator"):
        Imputer(1, add_indicator=flag).fit(remove(draw(40, 4, 1), 0.3))


@parametrize_with_checks([Imputer(n_components=1), Imputer(n_components=1, add_indicator=True)])
def test_contract_of_imputer(estimator, check):
    check(estimator)


# --- a peer ---------------------------------------------------------------------------


def test_peer_gives_the_same_likelihood_to_the_same_parameters():
    ppca_rs = pytest.importorskip("ppca_rs", reason="ppca-rs, a peer in Rust, is not installed")
    X = remove(draw(200, 6, 2, noise=0.3), 0.3)
    model = PPCA(2).fit(X)
    peer = ppca_rs.PPCAModel(
        transform=np.asarray(model.loadings_),
        isotropic_noise=float(np.sqrt(model.noise_variance_)),
        mean=np.asarray(model.mean_)[:, None],
    )
    assert peer.llk(ppca_rs.Dataset(X)) == pytest.approx(model.loglikelihood_, rel=1e-10)


# --- choosing the dimension -----------------------------------------------------------


@pytest.mark.slow
@pytest.mark.grid
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("q", [1, 3])
def test_hidden_entries_find_the_planted_dimension(q, seed):
    X = remove(draw(300, 8, q, noise=0.3, seed=seed), 0.3, seed=seed)
    assert PPCA("cv").fit(X).n_components_ == q


def test_rules_that_read_a_spectrum_work_with_holes_but_a_share_is_refused():
    X = remove(draw(50, 5, 2, noise=0.3), 0.3)
    for rule in ("white-noise", "evidence", "gavish-donoho", "mle"):
        assert 1 <= PPCA(rule).fit(X).n_components_ <= 3
    with pytest.raises(ValueError, match=r"n_components must be an int or one of \['mle', 'bic'"):
        PPCA(0.9).fit(X)


# --- several starts -------------------------------------------------------------------


def two_maxima():
    """Return a small table whose likelihood has a second, lower maximum near the usual start."""
    rng = np.random.default_rng(21)
    X = rng.standard_normal((20, 2)) @ rng.standard_normal((2, 5))
    X += 0.5 * rng.standard_normal(X.shape)
    return np.where(rng.random(X.shape) < 0.4, np.nan, X)


def test_more_starts_find_a_higher_maximum():
    X = two_maxima()
    one, five = (PPCA(2, n_init=k).fit(X) for k in (1, 5))
    assert five.loglikelihood_ > one.loglikelihood_ + 1
    W, mu, sigma2 = parameters(five)
    by_W, by_mu, _ = dense.gradient(X, W, mu, np.full(5, sigma2))
    assert max(np.max(np.abs(by_W)), np.max(np.abs(by_mu))) < 1e-2
    again = PPCA(2, n_init=5).fit(X)
    assert np.array_equal(again.components_, five.components_)
    assert Imputer(2, n_init=5).fit(X).model_.loglikelihood_ == five.loglikelihood_


def test_more_starts_change_nothing_where_one_is_enough():
    X, q, model = fitted("30 %")
    assert_same_model(PPCA(q, n_init=3, **TIGHT).fit(X), model)


@pytest.mark.parametrize("n_init", [0, -1, 1.5, "many", True])
def test_nonsense_n_init_is_named(n_init):
    with pytest.raises(ValueError, match="n_init"):
        PPCA(1, n_init=n_init).fit(draw(20, 4, 1))


@pytest.mark.parametrize("noise", [0.0, 1e-8, 1e-6])
def test_noise_that_vanishes_is_said(noise):
    X = remove(draw(60, 6, 2, noise=noise), 0.3)
    with pytest.raises(ValueError, match="indistinguishable from no noise"):
        PPCA(2).fit(X)
