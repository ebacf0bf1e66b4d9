"""BayesianPCA: dimensions found, intervals that cover, every kind of input."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from dualpca import PPCA, BayesianPCA, Imputer
from dualpca.errors import DegenerateError, SelectionWarning
from tests.models.bayesian_cases import draw, remove
from tests.tolerances import assert_close

METHODS = pytest.mark.parametrize("method", ["ard", "variational"])


def test_three_dimensions_in_twenty_of_twenty():
    """S4: 300 x 10, sd 1 in 3 directions and .5 in 7, start q = 9."""
    for seed in range(20):
        X = np.random.default_rng(seed).normal(size=(300, 10)) * np.repeat([1.0, 0.5], [3, 7])
        assert BayesianPCA(9).fit(X).n_effective_ == 3


def test_no_noise_left_is_an_error_with_a_remedy():
    X = draw(50, 3, (4.0,)) @ np.random.default_rng(0).standard_normal((3, 6))
    for method in ("ard", "variational"):
        with pytest.raises(DegenerateError, match="fewer components"):
            BayesianPCA(4, method=method).fit(X)
        assert BayesianPCA(method=method).fit(X).noise_variance_ > 0


def test_no_noise_left_in_incomplete_rows_is_an_error_too():
    X = remove(draw(50, 2, (4.0,)) @ np.random.default_rng(0).standard_normal((2, 6)), 0.1)
    with pytest.raises(DegenerateError, match="fewer components"):
        BayesianPCA(2, method="ard").fit(X)


def test_one_feature_has_no_noise_to_compare_with():
    for X in (draw(20, 1), remove(draw(20, 1), 0.2)):
        with pytest.raises(ValueError, match="n_features=1"):
            BayesianPCA(1).fit(X)
        for method in ("ard", "variational"):
            with pytest.warns(SelectionWarning, match="no direction is relevant"):
                model = BayesianPCA(method=method).fit(X)  # nothing was asked for: all is noise
            assert model.noise_variance_ == pytest.approx(np.nanvar(X))


@METHODS
@pytest.mark.parametrize("share", [0.2, 0.6])
def test_dimension_is_found_with_holes(method, share):
    X = draw(300, 8, (9.0, 6.0), 0.5)
    model = BayesianPCA(method=method).fit(remove(X, share))
    assert model.n_effective_ == 2 and model.converged_
    assert model.components_.shape == (2, 8)
    assert np.linalg.norm(model.components_ @ PPCA(2).fit(X).components_.T) > 1.35
    assert model.noise_variance_ == pytest.approx(0.5, rel=0.25)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.6])
def test_published_bounds_never_fall(share):
    model = BayesianPCA(method="variational").fit(remove(draw(100, 6, (9.0, 4.0)), share))
    assert np.all(np.diff(model.bounds_) >= -1e-9 * np.abs(model.bounds_[:-1]))
    assert model.bound_ == model.bounds_[-1]
    assert model.bound_ < model.loglikelihood_


def test_units_and_origin_of_the_data_change_nothing_else():
    X = draw(100, 5, (9.0, 4.0))
    for method in ("ard", "variational"):
        a, b = BayesianPCA(method=method).fit(X), BayesianPCA(method=method).fit(1e3 * X + 7.0)
        assert a.n_effective_ == b.n_effective_
        np.testing.assert_allclose(b.loadings_, 1e3 * a.loadings_, rtol=1e-4, atol=1e-4)
        assert b.noise_variance_ == pytest.approx(1e6 * a.noise_variance_, rel=1e-5)


# --- error bars -------------------------------------------------------------------------


def coverage(method, share, n=400, d=12, u=(12.0, 5.0), repeats=40):
    """Return the share of true loadings within 90 % intervals, columns signed like the truth."""
    rng = np.random.default_rng(5)
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0][:, :2]
    truth = Q * np.sqrt(u)
    hits = []
    for seed in range(repeats):
        rng = np.random.default_rng(100 + seed)
        X = rng.standard_normal((n, 2)) @ truth.T + rng.standard_normal((n, d))
        if share:
            X = remove(X, share, seed)
        model = BayesianPCA(2, method=method, tol=1e-5).fit(X)
        assert model.n_effective_ == 2
        sign = np.sign(np.sum(model.loadings_ * truth, axis=0))
        draws = model.sample_loadings(400, random_state=seed) * sign
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        hits.append((low < truth) & (truth < high))
    return float(np.mean(hits))


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_ninety_percent_intervals_of_relevance_cover(share):
    assert 0.85 <= coverage("ard", share) <= 0.95


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_ninety_percent_intervals_of_a_variational_fit_cover(share):
    # 0.77 and less by the factorised q(W), which holds the latents apart
    assert 0.87 <= coverage("variational", share, repeats=25) <= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_intervals_cover_where_lengths_and_angles_are_what_is_unsure(share):
    for method in ("ard", "variational"):
        assert 0.85 <= coverage(method, share, d=6, u=(100.0, 30.0), repeats=80) <= 0.95


@METHODS
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_draws_have_the_published_mean_and_spread(method, share):
    X = remove(draw(400, 6, (16.0, 5.0)), share)
    model = BayesianPCA(4, method=method).fit(X)
    draws = model.sample_loadings(20_000, random_state=0)
    std = model.loadings_std_
    assert draws.shape == (20_000, 6, 2) and std.shape == (6, 2)
    np.testing.assert_allclose(draws.mean(axis=0), model.loadings_, atol=0.02)
    np.testing.assert_allclose(draws.std(axis=0), std, rtol=0.1)


# --- the estimator ----------------------------------------------------------------------


@METHODS
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_weights_are_repetitions(method, share):
    X = remove(draw(60, 5, (12.0, 6.0)), share)
    w = np.random.default_rng(0).integers(0, 4, 60)
    model = BayesianPCA(3, method=method, tol=1e-9).fit(X, sample_weight=w)
    again = BayesianPCA(3, method=method, tol=1e-9).fit(np.repeat(X, w, axis=0))
    assert model.n_effective_ == again.n_effective_
    np.testing.assert_allclose(model.get_covariance(), again.get_covariance(), rtol=0, atol=1e-4)
    assert model.loglikelihood_ == pytest.approx(again.loglikelihood_, rel=1e-5)
    np.testing.assert_allclose(model.loadings_std_, again.loadings_std_, rtol=1e-3)


@METHODS
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_pure_noise_keeps_one_idle_axis_and_works(method, share):
    X = remove(draw(300, 6), share)
    with pytest.warns(SelectionWarning, match="no direction"):
        model = BayesianPCA(method=method).fit(X)
    assert model.n_effective_ == 0 and model.components_.shape == (1, 6)
    assert np.all(model.transform(X) == 0) and np.all(model.loadings_ == 0)
    assert np.all(np.isfinite(model.score_samples(X))) and np.all(np.isfinite(model.impute(X)))
    assert np.all(np.isfinite(model.loadings_std_))
    assert np.all(model.sample_loadings(3, random_state=0) == 0)
    assert "0 of 5" in model.summary()
    assert model.score_samples(X).sum() == pytest.approx(model.loglikelihood_, rel=1e-6)


@METHODS
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_every_method_works(method, share):
    X = remove(draw(80, 6, (16.0, 6.0)), share)
    if share:
        X[3] = np.nan
    before = X.tobytes()
    model = BayesianPCA(method=method).fit(X)
    q = model.n_components_
    assert q == model.n_effective_ == 2 and model.relevance_.shape == (5,)
    assert model.transform(X).shape == (80, q) and model.posterior(X)[1].shape == (80, q, q)
    for out in (model.reconstruct(X), model.impute(X), model.inverse_transform(np.zeros((1, q)))):
        assert np.all(np.isfinite(out))
    assert model.sample(5, random_state=0).shape == (5, 6)
    assert model.sample_imputations(X, 2, random_state=0).shape == (2, 80, 6)
    assert model.conditional(X[:2])[1].shape == (2, 6, 6)
    assert model.score_samples(X).sum() == pytest.approx(model.loglikelihood_, rel=1e-8)
    assert len(model.get_feature_names_out()) == q and "kept" in model.summary()
    assert X.tobytes() == before
    assert clone(model).fit(X).noise_variance_ == model.noise_variance_


def test_variances_are_those_of_the_loadings():
    model = BayesianPCA().fit(draw(100, 6, (16.0, 6.0)))
    u = np.sum(model.loadings_**2, axis=0)
    assert_close(model.explained_variance_, u + model.noise_variance_, "eigenvalue")
    assert_close(model.relevance_[: len(u)], u / 6, "eigenvalue")


def test_shares_of_variance_are_of_the_variance_of_the_rows():
    X = draw(100, 6, (16.0, 6.0))
    w = np.random.default_rng(0).uniform(0, 2, 100)
    for weights in (None, w):
        model = BayesianPCA().fit(X, sample_weight=weights)
        total = np.cov(X.T, aweights=weights, ddof=0).trace()
        shares = model.explained_variance_ / total
        assert_close(model.explained_variance_ratio_, shares, "eigenvalue")


@pytest.mark.parametrize("size", [(30, 80), (50, 100), (40, 40)])
@METHODS
def test_more_features_than_rows(method, size):
    model = BayesianPCA(method=method).fit(draw(*size, (120.0, 80.0)))
    assert model.n_effective_ == 2
    assert model.noise_variance_ == pytest.approx(1.0, rel=0.2)


@pytest.mark.grid
@METHODS
@pytest.mark.parametrize("size, share", [((30, 80), 0.2), ((60, 20), 0.6), ((40, 12), 0.5)])
def test_few_rows_with_holes(method, size, share):
    X = remove(draw(*size, (1.3 * size[1], 0.8 * size[1])), share)
    model = BayesianPCA(method=method).fit(X)
    assert model.n_effective_ == 2 and model.converged_
    assert model.noise_variance_ == pytest.approx(1.0, rel=0.25)


@METHODS
def test_constant_column_stays_constant(method):
    X = draw(100, 6, (16.0, 6.0))
    X[:, 2] = 4.0
    model = BayesianPCA(method=method).fit(X)
    assert model.mean_[2] == pytest.approx(4.0)
    np.testing.assert_allclose(model.components_[:, 2], 0.0, atol=1e-6)


@METHODS
def test_given_noise_is_kept(method):
    X = draw(200, 6, (16.0, 6.0))
    for table in (X, remove(X, 0.2)):
        model = BayesianPCA(method=method, noise_variance=1.5).fit(table)
        assert model.noise_variance_ == pytest.approx(1.5, rel=1e-12) and model.n_effective_ == 2


@METHODS
def test_every_library_agrees(method, backend):
    for X in (draw(60, 5, (16.0, 6.0)), remove(draw(60, 5, (16.0, 6.0)), 0.2)):
        there = BayesianPCA(3, method=method).fit(backend.asarray(X))
        here = BayesianPCA(3, method=method).fit(X)
        assert backend.owns(there.components_) and backend.owns(there.loadings_std_)
        assert there.n_effective_ == here.n_effective_
        # rounding decides how far the variational fit leaps, and so where it stops
        tol = {"rtol": 0, "atol": 1e-8 if method == "ard" else 1e-5}
        drawn = there.sample_loadings(3, random_state=0), here.sample_loadings(3, random_state=0)
        for a, b in ((there.loadings_, here.loadings_), (there.loadings_std_, here.loadings_std_)):
            np.testing.assert_allclose(backend.numpy(a), b, **tol)
        np.testing.assert_allclose(backend.numpy(drawn[0]), drawn[1], **tol)


@METHODS
def test_single_precision_in_and_out(method):
    X = draw(60, 5, (16.0, 6.0))
    for table in (X, remove(X, 0.2)):
        model = BayesianPCA(3, method=method).fit(table.astype(np.float32))
        double = BayesianPCA(3, method=method).fit(table)
        for name in ("components_", "relevance_", "loadings_", "loadings_std_"):
            assert getattr(model, name).dtype == np.float32
        assert_close(np.abs(model.loadings_), np.abs(double.loadings_), "vector", np.float32)


@METHODS
def test_stream_is_the_fit(method):
    X = draw(90, 5, (16.0, 6.0))
    streamed = BayesianPCA(method=method)
    for part in (X[:40], X[40:41], X[41:]):
        streamed.partial_fit(part)
    whole = BayesianPCA(method=method).fit(X)
    assert streamed.n_effective_ == whole.n_effective_
    assert_close(streamed.loadings_, whole.loadings_, "vector")
    assert_close(streamed.loadings_std_, whole.loadings_std_, "vector")


@pytest.mark.parametrize(
    "options",
    [
        {"n_components": 0},
        {"n_components": 5},
        {"n_components": -1},
        {"n_components": 2.5},
        {"n_components": "cv"},
        {"method": "em"},
        {"tol": -1.0},
        {"max_iter": 0},
        {"noise_variance": 0.0},
        {"solver": "magic"},
    ],
)
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_nonsense_parameters_are_named(options, share):
    with pytest.raises(ValueError, match=next(iter(options))):
        BayesianPCA(**options).fit(remove(draw(30, 5, (9.0,)), share))


def test_before_fit_is_not_fitted():
    for ask in ("summary", "sample_loadings"):
        with pytest.raises(NotFittedError):
            getattr(BayesianPCA(), ask)()


def test_identical_rows_are_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DegenerateError, match="constant"):
            BayesianPCA().fit(np.ones((10, 4)))


@METHODS
@pytest.mark.parametrize("scale", [1e100, 1e-100])
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_extreme_scales_scale_the_loadings(method, scale, share):
    X = remove(draw(80, 5, (16.0, 6.0)), share)
    a, b = BayesianPCA(method=method).fit(X), BayesianPCA(method=method).fit(X * scale)
    assert a.n_effective_ == b.n_effective_ == 2
    np.testing.assert_allclose(b.loadings_ / scale, a.loadings_, atol=1e-3)
    np.testing.assert_allclose(b.loadings_std_ / scale, a.loadings_std_, rtol=1e-2)
    assert np.isfinite(b.bound_)


def test_imputer_can_choose_its_own_dimension():
    truth = draw(300, 8, (16.0, 6.0), 0.1)
    X = remove(truth, 0.2)
    imputer = Imputer(None, model="bayesian").fit(X)
    assert isinstance(imputer.model_, BayesianPCA) and imputer.model_.n_effective_ == 2
    filled, hidden = imputer.transform(X), np.isnan(X)
    assert np.sqrt(np.mean((filled - truth)[hidden] ** 2)) < 0.6
    with pytest.raises(ValueError, match="model"):
        Imputer(2, model="magic").fit(X)


@METHODS
def test_shares_of_the_variance_are_those_of_the_rows(method):
    X = draw(80, 5, (12.0, 6.0))
    model = BayesianPCA(3, method=method).fit(X)
    total = model.explained_variance_.sum() / model.explained_variance_ratio_.sum()
    assert total * 79 / 80 == pytest.approx(X.var(axis=0).sum(), rel=0.02)


@pytest.mark.filterwarnings("ignore::dualpca.errors.SelectionWarning")
def test_the_likelihood_of_incomplete_rows_is_that_of_their_scores():
    for strong in ((), (9.0,)):  # without and with a relevant direction
        X = remove(draw(80, 4, strong), 0.2)
        model = BayesianPCA().fit(X)
        assert model.loglikelihood_ == pytest.approx(model.score_samples(X).sum(), rel=1e-6)


def test_steps_with_holes_are_counted():
    X = remove(draw(80, 4, (9.0,)), 0.2)
    with pytest.warns(ConvergenceWarning):
        model = BayesianPCA(max_iter=2).fit(X)
    assert model.n_iter_ == 2 and not model.converged_
