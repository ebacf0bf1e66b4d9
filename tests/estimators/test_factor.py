"""FactorAnalysis: the dense likelihood is the judge."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal
from sklearn.datasets import load_wine

from dualpca import PPCA, FactorAnalysis
from dualpca.errors import DegenerateError, HeywoodWarning
from dualpca.models import factor as factors
from tests.models.factor_cases import table


def dense_densities(model, X):
    """Return the log-density of what each row observed, from the dense covariance."""
    C = model.get_covariance()
    seen = ~np.isnan(X)
    return np.array(
        [
            multivariate_normal(model.mean_[o], C[np.ix_(o, o)]).logpdf(x[o]) if o.any() else 0.0
            for x, o in zip(X, seen, strict=True)
        ]
    )


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")  # they have a density too
def test_density_is_the_dense_one(missing):
    X = table(missing=missing)
    model = FactorAnalysis(2).fit(X)
    expected = dense_densities(model, X)
    np.testing.assert_allclose(model.score_samples(X), expected, rtol=1e-10, atol=1e-10)
    assert model.loglikelihood_ == pytest.approx(expected.sum(), rel=1e-10)


@pytest.mark.grid
@pytest.mark.parametrize("missing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")  # the hardest to climb
def test_likelihood_never_falls(missing, seed):
    model = FactorAnalysis(2).fit(table(seed=seed, missing=missing))
    assert model.converged_
    assert np.diff(model.loglikelihoods_).min() >= -1e-9 * abs(model.loglikelihood_)


def test_no_optimiser_finds_a_higher_likelihood():
    X = table(n=150, d=5, q=1, seed=3)
    model = FactorAnalysis(1, tol=1e-8).fit(X)
    S = np.cov(X.T, bias=True)

    def minus(theta):
        C = np.outer(theta[:5], theta[:5]) + np.diag(np.exp(theta[5:]))
        return 75 * (np.linalg.slogdet(C)[1] + np.trace(np.linalg.solve(C, S)))

    start = np.concatenate([model.components_[0], np.log(model.noise_variance_)])
    rng = np.random.default_rng(0)
    starts = [start, *(start + rng.standard_normal(10) for _ in range(5))]
    best = min(minimize(minus, s, method="L-BFGS-B").fun for s in starts)
    assert minus(start) <= best + 1e-7 * abs(best)


def test_incomplete_route_reaches_the_same_model_on_complete_rows():
    X = table()
    holes = X.copy()
    holes[0, 0] = np.nan
    a, b = FactorAnalysis(2, tol=1e-7).fit(X), FactorAnalysis(2, tol=1e-7).fit(holes)
    np.testing.assert_allclose(a.get_covariance(), b.get_covariance(), atol=0.02)
    dropped = FactorAnalysis(2, tol=1e-7).fit(X[1:])
    assert b.score(X) >= dropped.score(X) - 0.01


@pytest.mark.parametrize("q", [0, 1, 2])
def test_em_for_many_features_reaches_the_same_maximum(monkeypatch, q):
    X = table(seed=1)
    profile = FactorAnalysis(q, tol=1e-7).fit(X)
    monkeypatch.setattr(factors, "DENSE_LIMIT", 0)
    em = FactorAnalysis(q, tol=1e-6).fit(X)
    assert em.loglikelihood_ == pytest.approx(profile.loglikelihood_, rel=1e-8)
    np.testing.assert_allclose(em.get_covariance(), profile.get_covariance(), atol=1e-3)
    assert np.diff(em.loglikelihoods_).min() >= -1e-9 * abs(em.loglikelihood_)


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")  # with holes it is one
def test_real_table_of_very_different_units_converges(missing):
    X = load_wine().data
    X[np.random.default_rng(0).random(X.shape) < missing] = np.nan
    model = FactorAnalysis(3).fit(X)  # no ConvergenceWarning
    assert model.n_iter_ < 400
    np.testing.assert_allclose(model.score_samples(X), dense_densities(model, X), rtol=1e-8)


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("largest", [1e3, 1e8])
def test_units_of_the_features_do_not_matter(missing, largest):
    # a bound on the noise, or a start, measured by the average variance drowns the small features
    X, units = table(missing=missing), np.geomspace(1 / largest, largest, 8)
    a, b = FactorAnalysis(2, tol=1e-7).fit(X), FactorAnalysis(2, tol=1e-7).fit(X * units)
    np.testing.assert_allclose(b.noise_variance_, a.noise_variance_ * units**2, rtol=1e-4)
    shift = (~np.isnan(X) * np.log(units)).sum(axis=1)
    assert b.loglikelihood_ + shift.sum() == pytest.approx(a.loglikelihood_, rel=1e-9)
    np.testing.assert_allclose(b.score_samples(X * units) + shift, a.score_samples(X), rtol=1e-4)


def test_units_of_the_features_do_not_change_the_path():
    # powers of two scale without rounding: a start in other units would show
    X, units = table(missing=0.2), 2.0 ** np.arange(-40, 40, 10)
    a, b = FactorAnalysis(2).fit(X), FactorAnalysis(2).fit(X * units)
    assert b.n_iter_ == a.n_iter_
    np.testing.assert_allclose(b.noise_variance_, a.noise_variance_ * units**2, rtol=1e-8)


@pytest.mark.parametrize("hole", [False, True])
@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e4])
def test_constant_feature_has_a_noise_in_the_units_of_the_others(hole, unit):
    # 1e-4 in whatever unit was larger than all other variances, or nothing beside them
    X = np.c_[table(), np.full(400, 3.0)]
    X[0, 0] = np.nan if hole else X[0, 0]
    model = FactorAnalysis(2).fit(X * unit)
    average = np.nanvar(X, axis=0).mean()
    assert model.noise_variance_[8] == pytest.approx(1e-4 * average * unit**2, rel=1e-6)
    np.testing.assert_allclose(model.components_[:, 8], 0, atol=1e-6 * unit)


@pytest.mark.parametrize("hole", [False, True])
def test_constant_rows_are_refused(hole):
    X = np.full((10, 4), 0.1)
    X[0, 0] = np.nan if hole else X[0, 0]
    with pytest.raises(DegenerateError, match="every feature is constant"):
        FactorAnalysis(1).fit(X)


def test_equal_noise_is_ppca():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 2)) @ rng.standard_normal((2, 6)) * 2
    X += 0.5 * rng.standard_normal(X.shape)
    factor, plain = FactorAnalysis(2).fit(X), PPCA(2).fit(X)
    np.testing.assert_allclose(factor.get_covariance(), plain.get_covariance(), atol=0.05)
    assert factor.loglikelihood_ >= plain.loglikelihood_  # the model with more freedom


@pytest.mark.parametrize("method", ["varimax", "quartimax"])
def test_rotation_changes_loadings_only(method):
    X = table(q=3)
    plain, rotated = FactorAnalysis(3).fit(X), FactorAnalysis(3, rotation=method).fit(X)
    np.testing.assert_allclose(plain.get_covariance(), rotated.get_covariance(), atol=1e-10)
    assert not np.allclose(plain.components_, rotated.components_)
    np.testing.assert_allclose(plain.score_samples(X), rotated.score_samples(X), atol=1e-8)


def test_canonical_loadings_are_orthogonal_in_the_metric_of_the_noise():
    model = FactorAnalysis(3).fit(table(q=3))
    G = model.components_ / model.noise_variance_ @ model.components_.T
    np.testing.assert_allclose(G, np.diag(np.diag(G)), atol=1e-9 * G.max())
    assert np.all(np.diff(np.diag(G)) <= 0)


@pytest.mark.parametrize("hole", [False, True])
def test_heywood_case_is_held_off_and_reported(hole):
    rng = np.random.default_rng(0)
    z = rng.standard_normal((100, 1))
    X = np.hstack([z, z @ [[1.0, 0.5, 0.7]] + rng.standard_normal((100, 3))])
    if hole:
        X[3, 2] = np.nan
    with pytest.warns(HeywoodWarning, match="0"):
        model = FactorAnalysis(1, max_iter=3000, tol=1e-3).fit(X)
    assert 0 in model.heywood_
    assert np.all(model.noise_variance_ > 0)
    assert np.isfinite(model.score(X))


def test_posterior_imputation_and_samples_have_the_models_moments():
    X = table(n=2000, missing=0.2)
    model = FactorAnalysis(2).fit(X)
    C = model.get_covariance()
    x = X[~np.isnan(X).any(axis=1)][0]
    given = x.copy()
    given[[1, 4]] = np.nan
    mean, covariance = model.conditional([given], features=[1, 4], parameters="fixed")
    o, m = [0, 2, 3, 5, 6, 7], [1, 4]
    gain = C[np.ix_(m, o)] @ np.linalg.inv(C[np.ix_(o, o)])
    np.testing.assert_allclose(mean[0], model.mean_[m] + gain @ (x[o] - model.mean_[o]), rtol=1e-9)
    left = C[np.ix_(m, m)] - gain @ C[np.ix_(o, m)]
    np.testing.assert_allclose(covariance[0], left, rtol=1e-8, atol=1e-10)
    draws = model.sample(100_000, random_state=0)
    np.testing.assert_allclose(np.cov(draws.T, bias=True), C, atol=0.1)


def test_precision_is_the_inverse():
    model = FactorAnalysis(2).fit(table())
    np.testing.assert_allclose(
        model.get_precision() @ model.get_covariance(), np.eye(8), atol=1e-10
    )


def test_integer_weights_are_repeated_rows():
    X = table(n=60)
    w = np.random.default_rng(0).integers(0, 4, 60)
    a = FactorAnalysis(2, tol=1e-8).fit(X, sample_weight=w)
    b = FactorAnalysis(2, tol=1e-8).fit(np.repeat(X, w, axis=0))
    assert a.loglikelihood_ == pytest.approx(b.loglikelihood_, rel=1e-8)
    np.testing.assert_allclose(a.get_covariance(), b.get_covariance(), atol=1e-4)


@pytest.mark.parametrize(
    ("name", "value"), [("rotation", "oblimin"), ("n_components", 9), ("n_components", 0.5)]
)
def test_nonsense_parameters_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        FactorAnalysis(**{name: value}).fit(table())


@pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")  # with 30 % missing
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_noise_to_start_from_changes_the_path_and_not_the_maximum(missing):
    X = table(missing=missing)
    psi = np.full(X.shape[1], 0.9) * np.nanvar(X, axis=0)
    plain = FactorAnalysis(2, tol=1e-6).fit(X)
    started = FactorAnalysis(2, tol=1e-6, noise_variance_init=psi).fit(X)
    assert started.loglikelihoods_[0] != plain.loglikelihoods_[0]
    assert started.loglikelihood_ == pytest.approx(plain.loglikelihood_, rel=1e-8)


def test_column_without_a_value_is_named_as_the_frame_names_it():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X = table(n=50, d=4, missing=0.2)
    X[:, 2] = np.nan
    with pytest.raises(ValueError, match="column 'wind'"):
        FactorAnalysis(1).fit(pandas.DataFrame(X, columns=["a", "b", "wind", "c"]))
