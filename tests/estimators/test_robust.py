"""RobustPPCA: what PPCA does, with rows that outliers have no say in."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dualpca
from dualpca import PPCA, RobustPPCA
from dualpca.errors import DegenerateError, ScaleWarning
from dualpca.gaussian.control_limits import Degrees, each_level
from tests.models.test_robust import angle, ordinary, spoiled, t_rows


@pytest.fixture(scope="module")
def rows():
    X, _ = ordinary(300, 6, 2, 0)
    return spoiled(X, 0.1, "scattered", 0)


@pytest.fixture(scope="module")
def model(rows):
    return RobustPPCA(2).fit(rows[0])


def test_attributes(model, rows):
    _, bad = rows
    assert model.components_.shape == (2, 6)
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(2), atol=1e-10)
    assert model.row_weights_.shape == (300,)
    assert np.all(model.row_weights_[bad] == 0)
    assert np.all(np.delete(model.row_weights_, bad) > 0)
    assert model.degrees_of_freedom_ > 20
    assert model.n_components_ == 2 and model.converged_
    W, sigma2 = model.loadings_, model.noise_variance_
    nu = model.degrees_of_freedom_
    grown = 1.0 if math.isinf(nu) else nu / (nu - 2)
    C = grown * (W @ W.T + sigma2 * np.eye(6))
    np.testing.assert_allclose(model.get_covariance(), C, rtol=1e-8)
    np.testing.assert_allclose(model.get_precision() @ C, np.eye(6), atol=1e-8)


def test_inputs_are_not_modified(rows):
    X = rows[0].copy()
    X[3, 2] = np.nan
    before = X.copy()
    RobustPPCA(1, standardize=True).fit(X).impute(X)
    np.testing.assert_array_equal(X, before)


def test_the_same_seed_gives_the_same_answer(rows):
    a, b = (RobustPPCA(2, random_state=3).fit(rows[0]) for _ in range(2))
    np.testing.assert_array_equal(a.components_, b.components_)
    np.testing.assert_array_equal(a.row_weights_, b.row_weights_)


def test_another_seed_gives_the_same_fit(rows):
    a, b = (RobustPPCA(2, random_state=k, tol=1e-9).fit(rows[0]) for k in (1, 2))
    np.testing.assert_allclose(a.components_, b.components_, atol=1e-6)


def test_transform_is_the_posterior_mean():
    X = t_rows(200, 5, 2, dof=4.0)
    model = RobustPPCA(2, degrees_of_freedom=4).fit(X)
    mean, covariance = model.posterior(X, parameters="fixed")
    np.testing.assert_allclose(model.transform(X), mean)
    W, sigma2 = model.loadings_, model.noise_variance_
    M = W.T @ W + sigma2 * np.eye(2)
    np.testing.assert_allclose(mean, (X - model.mean_) @ W @ np.linalg.inv(M), atol=1e-8)
    C = W @ W.T + sigma2 * np.eye(5)
    delta = np.einsum("ij,ij->i", (X - model.mean_) @ np.linalg.inv(C), X - model.mean_)
    stretch = (4 + delta) / (4 + 5 - 2)
    expected = stretch[:, None, None] * sigma2 * np.linalg.inv(M)
    np.testing.assert_allclose(covariance, expected, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(model.weigh(X), 9 / (4 + delta))
    kept = model.row_weights_ > 0
    np.testing.assert_allclose(model.row_weights_[kept], model.weigh(X)[kept])


def test_reconstruction_and_prediction_have_the_spread_of_the_t():
    X = t_rows(200, 4, 1, dof=4.0)
    model = RobustPPCA(1, degrees_of_freedom=4).fit(X)
    signal, std = model.reconstruct(X, return_std=True, parameters="fixed")
    mean, covariance = model.posterior(X, parameters="fixed")
    np.testing.assert_allclose(signal, mean @ model.loadings_.T + model.mean_)
    own = np.einsum("dq,nqp,dp->nd", model.loadings_, covariance, model.loadings_)
    np.testing.assert_allclose(std**2, own, rtol=1e-7)
    _, predicted = model.posterior_predictive(X[:3], parameters="fixed")
    assert predicted.shape == (3, 4, 4)
    np.testing.assert_allclose(model.inverse_transform(mean), signal)


def test_score_samples_is_the_density_of_the_t():
    X = t_rows(200, 4, 1, dof=4.0)
    model = RobustPPCA(1, standardize=True).fit(X * [1.0, 10.0, 0.1, 1.0])
    nu = model.degrees_of_freedom_
    C = model.get_covariance() * (nu - 2) / nu
    law = stats.multivariate_t(model.mean_, C, nu)
    new = X[:20] * [1.0, 10.0, 0.1, 1.0]
    np.testing.assert_allclose(model.score_samples(new), law.logpdf(new), rtol=1e-8)
    kept = model.row_weights_ > 0
    total = model.score_samples(X * [1.0, 10.0, 0.1, 1.0])[kept].sum()
    assert model.loglikelihood_ == pytest.approx(total, rel=1e-9)


def test_samples_are_draws_of_the_t():
    X = t_rows(500, 4, 1, dof=6.0)
    model = RobustPPCA(1, degrees_of_freedom=6).fit(X)
    drawn = model.sample(40000, random_state=0)
    np.testing.assert_allclose(np.cov(drawn.T), model.get_covariance(), rtol=0.15, atol=0.15)
    C = model.get_covariance() * 4 / 6
    off = drawn - model.mean_
    delta = np.einsum("ij,ij->i", off @ np.linalg.inv(C), off)
    assert stats.kstest(delta / 4, stats.f(4, 6).cdf).pvalue > 0.01


# --- missing values ------------------------------------------------------------------------------


def test_imputation_has_the_conditional_t():
    X = t_rows(400, 4, 1, dof=4.0)
    model = RobustPPCA(1, degrees_of_freedom=4).fit(X)
    holes = X[:50].copy()
    holes[:, 2] = np.nan
    filled, std = model.impute(holes, return_std=True, parameters="fixed")
    mean, covariance = model.conditional(holes, features=[2], parameters="fixed")
    np.testing.assert_allclose(filled[:, 2], mean[:, 0])
    np.testing.assert_allclose(std[:, 2] ** 2, covariance[:, 0, 0], rtol=1e-8)
    C = model.get_covariance() / 2
    o = [0, 1, 3]
    r = holes[:, o] - model.mean_[o]
    gain = np.linalg.solve(C[np.ix_(o, o)], C[o, 2])
    delta = np.einsum("ij,ij->i", r @ np.linalg.inv(C[np.ix_(o, o)]), r)
    np.testing.assert_allclose(filled[:, 2], model.mean_[2] + r @ gain, rtol=1e-6, atol=1e-8)
    variance = (4 + delta) / (4 + 3 - 2) * (C[2, 2] - C[2, o] @ gain)
    np.testing.assert_allclose(std[:, 2] ** 2, variance, rtol=1e-6)
    draws = model.sample_imputations(holes, 4000, random_state=0, parameters="fixed")[:, :, 2]
    np.testing.assert_allclose(draws.mean(axis=0), filled[:, 2], atol=0.25 * std[:, 2].max())
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=0.35)
    u = (draws - filled[:, 2]) / std[:, 2] * math.sqrt(7 / 5)  # a t with 7 degrees of freedom
    assert stats.kstest(u[:, 0], stats.t(7).cdf).pvalue > 0.001


def test_a_row_with_nothing_observed_is_the_prior():
    X = t_rows(300, 4, 1, dof=5.0)
    model = RobustPPCA(1, degrees_of_freedom=5).fit(X)
    filled, std = model.impute(np.full((1, 4), np.nan), return_std=True, parameters="fixed")
    np.testing.assert_allclose(filled[0], model.mean_)
    np.testing.assert_allclose(std[0] ** 2, np.diag(model.get_covariance()), rtol=1e-8)
    mean, covariance = model.posterior(np.full((1, 4), np.nan), parameters="fixed")
    assert mean[0, 0] == 0 and covariance[0, 0, 0] == pytest.approx(5 / 3)


def test_without_a_variance_there_is_an_error_that_says_so():
    X = t_rows(300, 4, 1, dof=2.0)
    model = RobustPPCA(1, degrees_of_freedom=1.5).fit(X)
    assert np.isfinite(model.score_samples(X)).all()
    with pytest.raises(DegenerateError, match="no variance"):
        model.get_covariance()
    with pytest.raises(DegenerateError, match="degrees_of_freedom"):
        model.impute(np.full((1, 4), np.nan), return_std=True, parameters="fixed")


def test_bootstraps_leave_out_what_was_set_aside():
    X, _ = ordinary(120, 6, 2, 0)
    Y, bad = spoiled(X, 0.2, "clustered", 0)
    Y[np.random.default_rng(0).random(Y.shape) < 0.15] = np.nan
    model = RobustPPCA(2).fit(Y)
    std = model.impute(Y, return_std=True)[1]
    fixed = model.impute(Y, return_std=True, parameters="fixed")[1]
    good = np.setdiff1d(np.arange(120), bad)
    there = np.isnan(Y[good])
    assert np.all(std[good][there] > 0)
    assert np.median(std[good][there] / fixed[good][there]) < 1.3
    tables = model.sample_imputations(Y, 5, random_state=0)
    assert tables.shape == (5, 120, 6)
    spread = np.abs(tables[:, good][:, there] - X[good][there])
    assert np.median(spread) < 3


def test_frames_come_back_as_frames(rows):
    frame = pd.DataFrame(rows[0], columns=list("abcdef"))
    frame.loc[3, "b"] = np.nan
    model = RobustPPCA(2).fit(frame)
    assert list(model.impute(frame).columns) == list("abcdef")
    assert list(model.get_feature_names_out()) == ["robustppca0", "robustppca1"]


# --- outliers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["scattered", "clustered"])
def test_limits_hold_under_contamination(kind):
    ours, theirs = [], []
    for seed in range(5):
        X, _ = ordinary(2300, 8, 2, seed)
        Y, bad = spoiled(X[:300], 0.2, kind, seed)
        model = RobustPPCA(2).fit(Y)
        assert model.outliers(Y[bad]).flagged.all()
        ours.append(model.outliers(X[300:]).flagged.mean())
        theirs.append(PPCA(2).fit(Y).outliers(Y[bad]).flagged.mean())
    assert np.mean(ours) == pytest.approx(0.05, abs=0.015)
    assert np.mean(theirs) < 0.95


@pytest.mark.parametrize("dof", [3.0, 8.0])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_limits_hold_for_heavy_tails(dof, missing):
    X = t_rows(5000, 8, 2, dof=dof, missing=missing)
    model = RobustPPCA(2).fit(X[:1000])
    assert model.outliers(X[1000:]).flagged.mean() == pytest.approx(0.05, abs=0.015)
    assert (model.hotelling_t2(X[1000:]) > 0).all()
    if not missing:
        for statistic, limit in (
            (model.hotelling_t2(X[1000:]), model.t2_limit(0.9)),
            (model.spe(X[1000:]), model.spe_limit(0.9)),
        ):
            assert np.mean(statistic > limit) == pytest.approx(0.1, abs=0.02)


def test_both_limits_together_hold_at_the_level():
    rng = np.random.default_rng(0)
    u = rng.gamma(1.5, size=400000) / 1.5
    t2, spe = rng.chisquare(2, u.size) / u, rng.chisquare(5, u.size) / u
    degrees = Degrees(*np.array([2.0, 1.0, 5.0, 5.0, 1 / 5, 1 / 25])[:, None])
    p = each_level(0.9, degrees, 3.0)[0]
    inside = (t2 <= 2 * stats.f.ppf(p, 2, 3)) & (spe <= 5 * stats.f.ppf(p, 5, 3))
    assert inside.mean() == pytest.approx(0.9, abs=0.003)


# --- parameters ----------------------------------------------------------------------------------


def test_infinite_degrees_of_freedom_are_ppca():
    X, _ = ordinary(200, 5, 2, 0)
    ours = RobustPPCA(2, degrees_of_freedom=math.inf).fit(X)
    theirs = PPCA(2).fit(X)
    np.testing.assert_allclose(ours.get_covariance(), theirs.get_covariance(), rtol=1e-8)
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), rtol=1e-8)
    np.testing.assert_allclose(ours.outliers(X).t2_limit, theirs.outliers(X).t2_limit)


@pytest.mark.parametrize("value", [0, -1.0, "3", True, math.nan])
def test_degrees_of_freedom_are_checked(value):
    with pytest.raises(ValueError, match="degrees_of_freedom"):
        RobustPPCA(1, degrees_of_freedom=value).fit(np.eye(5))


def test_standard_deviations_are_not_those_of_outliers():
    X, _ = ordinary(300, 5, 2, 0)
    Y, bad = spoiled(X, 0.1, "scattered", 0)
    units = np.array([1.0, 1000.0, 0.01, 1.0, 5.0])
    a = RobustPPCA(2, standardize=True).fit(X * units)
    b = RobustPPCA(2, standardize=True).fit(Y * units)
    np.testing.assert_allclose(b.scale_, a.scale_, rtol=0.2)
    assert angle(b.components_.T, a.components_.T) < 10
    np.testing.assert_allclose(a.scale_, (X * units).std(axis=0), rtol=0.05)
    assert b.outliers(Y[bad] * units).flagged.all()


def test_columns_in_unequal_units_are_noticed_and_outliers_are_not():
    X, _ = ordinary(100, 4, 1, 0)
    with pytest.warns(ScaleWarning, match="standardize"):
        RobustPPCA(1).fit(X * [1.0, 1.0, 1.0, 1e4])
    X[:3, 2] = 1e7
    RobustPPCA(1).fit(X)  # a warning would be an error


def test_chunked_tables_are_refused_by_fit_and_accepted_afterwards(rows, model):
    from dualpca import Batches

    with pytest.raises(ValueError, match="sample"):
        RobustPPCA(2).fit(Batches([rows[0]]))
    parts = list(model.transform(Batches([rows[0][:100], rows[0][100:]])))
    np.testing.assert_allclose(np.concatenate(parts), model.transform(rows[0]))


def test_few_rows_and_one_column():
    assert RobustPPCA(1).fit(np.arange(4.0)[:, None]).n_components_ == 1
    X = np.random.default_rng(0).normal(size=(6, 3))
    assert np.all(RobustPPCA(1).fit(X).row_weights_ > 0)


def test_the_default_chooses_the_number_of_components(rows):
    model = RobustPPCA().fit(rows[0])
    assert model.n_components_ == 2
    assert RobustPPCA("cv").fit(rows[0]).selection_.chosen == 2


@pytest.mark.parametrize("dof", [None, math.inf])
def test_files(tmp_path, rows, dof):
    model = RobustPPCA(2, degrees_of_freedom=dof, standardize=True).fit(rows[0])
    model.save(tmp_path / "model.dpca")
    back = dualpca.load(tmp_path / "model.dpca")
    np.testing.assert_array_equal(back.transform(rows[0]), model.transform(rows[0]))
    np.testing.assert_array_equal(back.row_weights_, model.row_weights_)
    assert back.degrees_of_freedom_ == model.degrees_of_freedom_
    np.testing.assert_array_equal(back.score_samples(rows[0]), model.score_samples(rows[0]))


def test_torch_gives_the_same(rows):
    torch = pytest.importorskip("torch")
    X = rows[0].copy()
    for holes in (False, True):
        if holes:
            X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
        a, b = RobustPPCA(2).fit(X), RobustPPCA(2).fit(torch.asarray(X))
        np.testing.assert_allclose(b.components_.numpy(), a.components_, atol=1e-6)
        np.testing.assert_allclose(b.row_weights_.numpy(), a.row_weights_, atol=1e-6)
        np.testing.assert_allclose(b.score_samples(torch.asarray(X)).numpy(), a.score_samples(X))


def test_float32(rows):
    X = rows[0].astype(np.float32)
    model = RobustPPCA(2).fit(X)
    assert model.components_.dtype == np.float32
    assert model.transform(X).dtype == np.float32
    np.testing.assert_allclose(
        np.abs(model.components_), np.abs(RobustPPCA(2).fit(rows[0]).components_), atol=1e-4
    )
