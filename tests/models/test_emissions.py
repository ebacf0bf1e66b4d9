"""Several spiked Gaussians: densities and weighted steps, judged by dense covariances."""

from dataclasses import replace

import numpy as np
import pytest

from dualpca.errors import ScaleError
from dualpca.models.emissions import Emissions, Prior, weighted_part
from tests.models.emission_cases import covariances, groups, holes, shares
from tests.oracles import mixture as dense
from tests.oracles.missing import log_density_by_least_squares
from tests.tolerances import assert_close, assert_log_density, tolerance


def objective(model, X, rho):
    return float(np.sum(rho * np.asarray(model.log_density(X))))


# --- densities ------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("q", [1, [1, 2, 4], 5], ids=["q=1", "own q", "q=d"])
def test_log_density_equals_scipy(q, missing):
    X = groups()
    model = Emissions.start(X, 3, q, np.random.default_rng(0), floor=1e-6)
    X = holes(X, missing) if missing else X
    expected = dense.log_densities(X, np.asarray(model.means), covariances(model))
    assert_log_density(model.log_density(X), expected, 5)


@pytest.mark.parametrize("noise", [1e-2, 1e-6, 1e-10])
def test_log_density_keeps_its_digits_where_noise_is_small(noise):
    # rows on the span of the loadings: the exponent is a small difference of large norms
    rng = np.random.default_rng(0)
    W = rng.standard_normal((6, 2))
    z, off = rng.standard_normal((30, 2)), rng.standard_normal((30, 6))
    X = z @ W.T + 3 + np.sqrt(noise) * off
    model = Emissions(np.full((1, 6), 3.0), (W,), np.array([noise]))
    expected = log_density_by_least_squares(X, W, np.full(6, 3.0), noise)
    assert_log_density(model.log_density(X)[:, 0], expected, 6)


def test_log_density_far_from_the_origin():
    X = groups()
    model = Emissions.start(X, 3, 2, np.random.default_rng(0))
    moved = Emissions.start(X + 1e6, 3, 2, np.random.default_rng(0))
    assert_close(moved.log_density(X + 1e6), model.log_density(X), "offset")


def test_an_empty_row_has_density_one_under_every_component():
    X = holes(groups())
    X[4] = np.nan
    model = Emissions.start(X, 3, 2, np.random.default_rng(0), floor=1e-6)
    assert np.array_equal(np.asarray(model.log_density(X))[4], np.zeros(3))


# --- the weighted step ----------------------------------------------------------------


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("q", [1, 2, 4])
@pytest.mark.parametrize("size", [(120, 5), (12, 30)], ids=["tall", "wide"])
def test_update_equals_the_dense_weighted_spectrum(size, q, tied):
    X = groups(*size)
    rho = shares(len(X), 3)
    model = Emissions.start(X, 3, q, np.random.default_rng(0), tied=tied).update(X, rho)
    mu, C = dense.m_step(X, rho, q, tied)
    assert_close(model.means, mu, "vector")
    assert_close(covariances(model), C, "vector")


@pytest.mark.parametrize("narrow", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("far", [0.0, 1e3])
def test_update_keeps_the_digits_of_a_narrow_direction(narrow, far):
    """Second moments would lose those of a variance of 1e-12; the rows themselves hold them."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 4)) * [1.0, 0.7, 0.5, narrow]
    rho = shares(400, 2)
    rho[:200, 1] = 1e-12  # where the rows begin is far from where this component lies
    X[200:, :3] += far
    X = X @ np.linalg.qr(rng.standard_normal((4, 4)))[0]
    model = Emissions.start(X, 2, 4, rng).update(X, rho)
    for k in (0, 1):
        w = rho[:, k] / rho[:, k].sum()
        R = np.sqrt(w)[:, None] * (X - w @ X)
        s = np.linalg.svd(R, compute_uv=False)
        found = np.linalg.svd(model.loadings[k], compute_uv=False)
        assert_close(found / s, np.ones(4), "em", scale=1e-1)


def test_update_is_a_maximum():
    X, rng = groups(), np.random.default_rng(3)
    rho = shares(len(X), 3)
    best = Emissions.start(X, 3, 2, rng).update(X, rho)
    top = objective(best, X, rho)
    for _ in range(30):
        other = Emissions(
            best.means + 1e-3 * rng.standard_normal(best.means.shape),
            tuple(W + 1e-3 * rng.standard_normal(W.shape) for W in best.loadings),
            best.noises * np.exp(1e-3 * rng.standard_normal(3)),
        )
        assert objective(other, X, rho) < top


@pytest.mark.parametrize("floor", [0.3, 3.0])
@pytest.mark.parametrize("tied", [False, True])
def test_the_floor_is_a_constrained_maximum(floor, tied):
    X, rng = groups(), np.random.default_rng(3)
    rho = shares(len(X), 3)
    best = Emissions.start(X, 3, 2, rng, floor=floor, tied=tied).update(X, rho)
    assert np.all(best.noises >= floor)
    for _ in range(30):
        grown = best.noises * np.exp(1e-3 * abs(rng.standard_normal(1 if tied else 3)))
        loadings = tuple(W + 1e-4 * rng.standard_normal(W.shape) for W in best.loadings)
        other = Emissions(best.means, loadings, grown)
        assert objective(other, X, rho) < objective(best, X, rho)


def test_a_tied_noise_swallows_directions_below_it():
    # the third component is so narrow that none of its own variances reach the common noise
    X = groups()
    X[80:] = X[80:].mean(axis=0) + 1e-2 * (X[80:] - X[80:].mean(axis=0))
    rho = np.eye(3)[np.repeat(np.arange(3), 40)]
    model = Emissions.start(X, 3, 2, np.random.default_rng(0), tied=True).update(X, rho)
    assert np.ptp(model.noises) == 0
    assert np.all(model.loadings[2] == 0)
    grid = float(model.noises[0]) * np.array([0.9, 0.99, 1.01, 1.1])
    for sigma2 in grid:
        C = []
        for w in rho.T:
            _, ell, V = dense.spectrum(X, w)
            C.append((V[:, :2] * np.maximum(ell[:2] - sigma2, 0)) @ V[:, :2].T + sigma2 * np.eye(5))
        value = np.sum(rho * dense.log_densities(X, np.asarray(model.means), np.stack(C)))
        assert value < objective(model, X, rho)


@pytest.mark.parametrize("q", [1, 2, 5])
def test_a_prior_counts_as_rows(q):
    X, rho, prior = groups(), shares(120, 3), Prior(7.0, 1.3)
    start = replace(Emissions.start(X, 3, q, np.random.default_rng(0)), prior=prior)
    model = start.update(X, rho)
    for k, w in enumerate(rho.T):
        mu, ell, V = dense.spectrum(X, w)
        ell = (w.sum() * ell + 7 * 1.3) / (w.sum() + 7)
        sigma2 = ell[q:].mean() if q < 5 else 0.0
        C = (V[:, :q] * (ell[:q] - sigma2)) @ V[:, :q].T + sigma2 * np.eye(5)
        assert_close(model.means[k], mu, "vector")
        assert_close(covariances(model)[k], C, "vector")
    _, logdet = np.linalg.slogdet(covariances(model))
    trace = np.trace(np.linalg.inv(covariances(model)), axis1=1, axis2=2)
    constant = 3 * 5 * np.log(2 * np.pi)
    if q < 5:  # without noise there is no density
        assert_close(model.log_prior(), -3.5 * (constant + np.sum(logdet + 1.3 * trace)), "vector")


def test_a_component_without_rows_stays_as_it_is():
    X, rho = groups(), shares(120, 3)
    rho[:, 1] = 0
    for table in (X, holes(X)):
        model = Emissions.start(table, 3, 2, np.random.default_rng(0), floor=1e-6)
        after = model.update(table, rho)
        assert np.array_equal(after.means[1], model.means[1])
        assert np.array_equal(after.loadings[1], model.loadings[1])


def test_incomplete_update_equals_the_row_by_row_oracle():
    X = holes(groups(60))
    model = Emissions.start(X, 3, 2, np.random.default_rng(0), floor=1e-9)
    parts = zip(model.loadings, model.means, model.noises, strict=True)
    models, pi = [dense.model_of(*p) for p in parts], np.array([0.2, 0.3, 0.5])
    rho = dense.responsibilities(X, pi, np.asarray(model.means), covariances(model))
    _, expected = dense.incomplete_em_step(X, pi, models)
    after = model.update(X, rho)
    C = [m.W @ m.W.T + m.sigma2 * np.eye(5) for m in expected]
    assert_close(after.means, [m.mean for m in expected], "vector")
    assert_close(covariances(after), C, "vector")


@pytest.mark.parametrize("tied", [False, True])
def test_incomplete_update_never_lowers_the_objective(tied):
    X, rho = holes(groups(), 0.4), shares(120, 3)
    model = Emissions.start(X, 3, [1, 2, 3], np.random.default_rng(0), floor=1e-6, tied=tied)
    values = []
    for _ in range(25):
        values.append(objective(model, X, rho))
        model = model.update(X, rho)
    assert np.all(np.diff(values) >= -tolerance("monotone") * np.abs(values[-1]))
    assert values[-1] > values[0] + 1


def test_a_feature_that_a_component_never_observes_keeps_its_regression():
    X = holes(groups(), 0.1)
    X[:40, 2] = np.nan
    rho = np.eye(3)[np.repeat(np.arange(3), 40)]
    model = Emissions.start(X, 3, 2, np.random.default_rng(0), floor=1e-6)
    value = objective(model, X, rho)
    for _ in range(5):
        model = model.update(X, rho)
        assert objective(model, X, rho) >= value
        value = objective(model, X, rho)
    assert np.all(np.isfinite(covariances(model)))


def test_cut_rows_give_the_same_as_rows():
    X, rho = holes(groups()), shares(120, 3)
    model = Emissions.start(X, 3, 2, np.random.default_rng(0), floor=1e-6)
    table = model.table(X)
    assert np.array_equal(model.log_density(table), model.log_density(X))
    assert np.array_equal(model.update(table, rho).means, model.update(X, rho).means)


def test_samples_have_the_moments_of_their_component():
    model = Emissions.start(groups(), 3, 2, np.random.default_rng(0))
    X = model.sample(np.full(200_000, 1), np.random.default_rng(1))
    C = covariances(model)[1]
    assert np.max(np.abs(np.cov(X.T) - C)) < 0.03 * C.max()
    assert np.max(np.abs(X.mean(axis=0) - model.means[1])) < 0.03 * np.sqrt(C.max())


def test_parameters_are_counted():
    model = Emissions.start(groups(), 3, [1, 2, 4], np.random.default_rng(0))
    assert model.n_parameters() == [5 + 5 * q - q * (q - 1) // 2 + 1 for q in (1, 2, 4)]


def test_backends_agree(backend):
    X, rho = groups(), shares(120, 3)
    for table in (X, holes(X)):
        here = Emissions.start(X, 3, 2, np.random.default_rng(0), floor=1e-6)
        # carried over: a start on rows with NaN adds noise to axes whose signs are a library's own
        there = replace(
            here,
            means=backend.asarray(here.means),
            loadings=tuple(backend.asarray(W) for W in here.loadings),
            noises=backend.asarray(here.noises),
        ).update(backend.asarray(table), backend.asarray(rho))
        assert backend.owns(there.means)
        density = backend.numpy(there.log_density(backend.asarray(table)))
        assert_close(density, here.update(table, rho).log_density(table), "vector")


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_every_backend_can_start(backend, missing):
    X = holes(groups(), missing) if missing else groups()
    model = Emissions.start(backend.asarray(X), 3, 2, np.random.default_rng(0), floor=1e-6)
    assert backend.owns(model.means)
    assert np.all(np.isfinite(backend.numpy(model.log_density(backend.asarray(X)))))


@pytest.mark.parametrize("hole", [False, True])
def test_a_row_beyond_float64_is_named(hole):
    model = Emissions(np.zeros((2, 3)), (np.ones((3, 1)),) * 2, np.array([1.0, 1e-300]))
    X = np.zeros((5, 3))
    X[3], X[4] = 1e100, 1e160
    X[0, 0] = np.nan if hole else 0.0
    assert np.isfinite(model.log_density(X[:4]).max(axis=1)).all()
    with pytest.raises(ScaleError, match=r"row 4 .*far"):
        model.log_density(X)


# --- components of hardly any rows ----------------------------------------------------


@pytest.mark.parametrize("others", [0.0, 1e-25, 1e-19, 1e-17, 1e-14, 1e-9])
def test_a_component_of_one_row_is_that_row(others):
    X = groups()
    w = np.full(len(X), others)
    w[7] = 0.9
    part = weighted_part(X, w, 2)
    np.testing.assert_allclose(part.mu, X[7], atol=1e3 * others + 1e-12)
    np.testing.assert_allclose(part.axes.T @ part.axes, np.eye(2), atol=1e-9)
    spread = np.sum((X - X[7]) ** 2) * others / 0.9
    assert 0 <= part.left / part.n + np.sum(part.values) <= 2 * spread


def test_a_prior_spreads_a_component_of_one_row_in_every_direction():
    X, prior = groups(), Prior(2.0, 0.5)
    w = np.zeros((len(X), 1))
    w[7] = 1.0
    start = replace(Emissions.start(X, 1, 2, np.random.default_rng(0)), prior=prior)
    C = covariances(start.update(X, w))[0]
    np.testing.assert_allclose(C, np.eye(5) * prior.n * prior.variance / (1 + prior.n), atol=1e-12)
