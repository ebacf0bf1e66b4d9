"""New points: densities, chains, paths, and how good the points are (theory 12)."""

import pickle

import numpy as np
import pytest
from scipy import optimize, stats

from dualpca.errors import DegenerateError
from dualpca.generation.chains import effective_sample_size, langevin, r_hat
from dualpca.generation.densities import (
    Gaussian,
    KernelDensity,
    MixtureDensity,
    bandwidth,
    fit_gaussian,
    fit_kernel_density,
    leave_one_out,
    tempered,
)
from dualpca.generation.paths import along_density, straight, traversal
from dualpca.generation.quality import coverage, mmd_test, nearest
from dualpca.kernels import RBF
from tests.oracles import generation as oracles
from tests.tolerances import assert_close


def lower(q, rng):
    return np.tril(rng.standard_normal((q, q)), -1) * 0.3 + np.diag(rng.uniform(0.5, 2, q))


def make(name, q, seed=0):
    """Return a density and ln π of one point by the oracle."""
    rng = np.random.default_rng(seed)
    means, factors = rng.standard_normal((5, q)) * 2, [lower(q, rng) for _ in range(5)]
    if name == "gaussian":
        weights, means, factors = [1.0], means[:1], factors[:1]
        density = Gaussian(means[0], factors[0])
    elif name == "kde":
        weights, factors = np.full(5, 0.2), [factors[0]] * 5
        density = KernelDensity(means, factors[0])
    elif name == "classes":
        one, other = factors[:2]
        weights, factors = np.array([0.15, 0.15, 0.2, 0.2, 0.3]), [one, one, one, one, other]
        within = MixtureDensity(
            np.array([0.4, 0.6]), (Gaussian(means[3], one), Gaussian(means[4], other))
        )
        parts = (KernelDensity(means[:2], one), Gaussian(means[2], one), within)
        density = MixtureDensity(np.array([0.3, 0.2, 0.5]), parts)
    else:
        weights = rng.dirichlet(np.ones(5))
        parts = tuple(Gaussian(m, f) for m, f in zip(means, factors, strict=True))
        density = MixtureDensity(weights, parts)
    return density, lambda z: oracles.mixture_value(weights, means, factors, z)


EVERY = pytest.mark.parametrize("name", ["gaussian", "kde", "mixture", "classes"])
SIZES = pytest.mark.parametrize("q", [1, 2, 6])


def moved(density, asarray):
    """Return a density over arrays of another library."""
    if isinstance(density, Gaussian):
        return Gaussian(asarray(density.mean), asarray(density.factor))
    if isinstance(density, KernelDensity):
        return KernelDensity(asarray(density.centres), asarray(density.factor))
    return MixtureDensity(asarray(density.weights), tuple(moved(p, asarray) for p in density.parts))


# --- densities ------------------------------------------------------------------------


@EVERY
@SIZES
def test_density_and_gradient_are_the_oracles(name, q):
    density, value = make(name, q)
    Z = np.random.default_rng(1).standard_normal((7, q)) * 3
    assert_close(density.log_density(Z), [value(z) for z in Z], "density")
    slopes = [oracles.slope(value, z) for z in Z]
    np.testing.assert_allclose(density.gradient(Z), slopes, atol=1e-7)


@EVERY
def test_far_from_everything_the_density_is_finite(name):
    density, _ = make(name, 2)
    value, gradient = density.value_and_gradient(np.full((1, 2), 1e4))
    assert np.all(np.isfinite(value)) and np.all(np.isfinite(gradient))


@EVERY
def test_density_of_no_rows_is_empty(name):
    density, _ = make(name, 2)
    value, gradient = density.value_and_gradient(np.empty((0, 2)))
    assert value.shape == (0,) and gradient.shape == (0, 2)


@EVERY
def test_density_in_every_library(name, backend):
    density, _ = make(name, 3)
    there = moved(density, backend.asarray)
    Z = np.random.default_rng(1).standard_normal((7, 3))
    value, gradient = there.value_and_gradient(backend.asarray(Z))
    assert backend.owns(value)
    assert_close(backend.numpy(value), density.log_density(Z), "exact")
    assert_close(backend.numpy(gradient), density.gradient(Z), "eigenvalue")
    draws = [d.sample(9, np.random.default_rng(0)) for d in (there, density)]
    assert_close(backend.numpy(draws[0]), draws[1], "exact")


@EVERY
def test_direct_draws_have_the_moments_of_the_density(name):
    density, _ = make(name, 1)
    grid = np.linspace(-25, 25, 20001)
    p = np.exp(density.log_density(grid[:, None]))
    mass = p * (grid[1] - grid[0])
    assert mass.sum() == pytest.approx(1, abs=1e-8)
    draws = density.sample(20000, np.random.default_rng(0))[:, 0]
    cdf = lambda x: np.interp(x, grid, np.cumsum(mass))  # noqa: E731
    assert stats.kstest(draws, cdf).pvalue > 1e-3


def test_density_survives_pickling():
    density, _ = make("kde", 2)
    density.log_density(np.zeros((1, 2)))
    again = pickle.loads(pickle.dumps(density))
    assert again.log_density(np.zeros((1, 2))) == density.log_density(np.zeros((1, 2)))


@EVERY
def test_tempered_density_has_the_same_centres_and_narrower_bumps(name):
    density, _ = make(name, 2)
    same, narrow = tempered(density, 1.0), tempered(density, 0.25)
    Z = np.random.default_rng(1).standard_normal((4, 2))
    assert_close(same.log_density(Z), density.log_density(Z), "exact")
    assert_close(narrow.factor, density.factor / 2, "covariance")
    wide, close = (np.cov(d.sample(100_000, np.random.default_rng(2)).T) for d in (density, narrow))
    within = density.factor @ density.factor.T  # the rest is between centres, which stay
    np.testing.assert_allclose(wide - close, 0.75 * within, atol=0.15)


def test_tempered_gaussian_is_a_power_of_it():
    density, _ = make("gaussian", 3)
    Z = np.random.default_rng(1).standard_normal((5, 3))
    hot = tempered(density, 2.5)
    power = density.log_density(Z) / 2.5
    assert np.ptp(hot.log_density(Z) - power) < 1e-10
    assert_close(hot.gradient(Z), density.gradient(Z) / 2.5, "vector")


@pytest.mark.parametrize("temperature", [0, -1.0, np.nan, np.inf])
def test_nonsense_temperature_is_a_clear_error(temperature):
    with pytest.raises(ValueError, match="temperature must be"):
        tempered(make("kde", 1)[0], temperature)


def test_density_of_another_kind_has_no_temperature():
    with pytest.raises(ValueError, match="density must be"):
        tempered(object(), 0.5)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_fitted_gaussian_has_the_moments_of_the_rows(offset):
    Z = np.random.default_rng(0).standard_normal((50, 3)) * [1, 2, 5] + offset
    g = fit_gaussian(Z)
    assert_close(g.mean, Z.mean(axis=0), "exact")
    assert_close(g.factor @ g.factor.T, np.cov(Z.T, bias=True), "offset")


def test_rows_without_variance_have_no_density():
    Z = np.random.default_rng(0).standard_normal((20, 1)) @ np.ones((1, 2))
    for fit in (fit_gaussian, fit_kernel_density):
        with pytest.raises(DegenerateError, match="1 of 2 directions"):
            fit(Z)
        with pytest.raises(DegenerateError, match="0 of 2 directions"):
            fit(np.ones((20, 2)))


def test_nonsense_densities_are_clear_errors():
    with pytest.raises(ValueError, match="factor must be of shape"):
        Gaussian(np.zeros(2), np.eye(3))
    with pytest.raises(ValueError, match="lower triangular"):
        KernelDensity(np.zeros((4, 2)), np.ones((2, 2)))
    part = Gaussian(np.zeros(1), np.eye(1))
    for weights in ([0.5], [0.5, 0.6], [1.5, -0.5]):
        with pytest.raises(ValueError, match="weights must be 2 positive numbers"):
            MixtureDensity(np.array(weights), (part, part))
    with pytest.raises(ValueError, match="a matrix of 1 columns"):
        part.log_density(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="bandwidth must be a positive"):
        fit_kernel_density(np.arange(5.0)[:, None], width=0.0)
    with pytest.raises(ValueError, match="two rows"):
        fit_kernel_density(np.zeros((1, 1)))


# --- bandwidth ------------------------------------------------------------------------


@pytest.mark.parametrize("shrink", [True, False])
@SIZES
def test_leave_one_out_likelihood_is_the_oracles(shrink, q):
    U = np.random.default_rng(0).standard_normal((25, q))
    widths = np.array([0.2, 0.7, 2.0])
    expected = [oracles.leave_one_out(U, h, shrink) for h in widths]
    assert_close(leave_one_out(U, widths, shrink), expected, "density")


def test_leave_one_out_in_every_library(backend):
    U, widths = np.random.default_rng(0).standard_normal((25, 2)), np.array([0.2, 2.0])
    assert_close(leave_one_out(backend.asarray(U), widths), leave_one_out(U, widths), "density")


@pytest.mark.parametrize("shrink", [True, False])
@pytest.mark.parametrize("spread", [0.02, 0.05, 0.1, 0.2])
def test_bandwidth_is_where_the_likelihood_is_largest(shrink, spread):
    rng = np.random.default_rng(0)
    U = rng.standard_normal((150, 2)) * spread + rng.choice([-1, 1], (150, 2))
    tried = np.exp(np.linspace(np.log(0.003), np.log(8), 800))  # 1 % apart
    likelihood = leave_one_out(U, tried, shrink)
    assert bandwidth(U, shrink) == pytest.approx(tried[np.argmax(likelihood)], rel=0.03)


def test_left_out_rows_are_spread_over_the_table(monkeypatch):
    U = np.sort(np.random.default_rng(0).standard_normal((400, 1)), axis=0)
    full = bandwidth(U, shrink=False)
    monkeypatch.setattr("dualpca.generation.densities.LEFT_OUT", 100)
    assert bandwidth(U, shrink=False) == pytest.approx(full, rel=0.2)


def test_bandwidth_does_not_depend_on_scale_or_place():
    Z = np.random.default_rng(0).gamma(1.0, size=(200, 2))
    moved = fit_kernel_density(1e3 * Z + 1e5)
    assert_close(moved.factor, 1e3 * fit_kernel_density(Z).factor, "vector")


def test_shrunk_estimate_has_mean_and_covariance_of_the_rows():
    Z = np.random.default_rng(0).gamma(1.0, size=(200, 3))
    for width in (0.1, 0.5, 3.0):
        kde = fit_kernel_density(Z, width)
        S = np.cov(kde.centres.T, bias=True) + kde.factor @ kde.factor.T
        assert_close(S, np.cov(Z.T, bias=True), "covariance")
        assert_close(kde.centres.mean(axis=0), Z.mean(axis=0), "covariance")


def test_shrunk_estimate_goes_from_the_rows_to_the_gaussian():
    Z = np.random.default_rng(0).gamma(1.0, size=(50, 2))
    assert_close(fit_kernel_density(Z, 1e-9).centres, Z, "vector")
    new = Z[:5] + 0.3
    wide, gaussian = fit_kernel_density(Z, 1e5), fit_gaussian(Z)
    np.testing.assert_allclose(wide.log_density(new), gaussian.log_density(new), atol=1e-3)


def test_repeated_rows_are_a_clear_error_unless_the_bandwidth_is_given():
    Z = np.repeat(np.random.default_rng(0).standard_normal((30, 2)), 2, axis=0)
    with pytest.raises(DegenerateError, match="rows repeat each other"):
        fit_kernel_density(Z)
    assert np.isfinite(fit_kernel_density(Z, 0.3).log_density(Z)).all()


# --- chains ---------------------------------------------------------------------------


@pytest.mark.grid(2)
@EVERY
@pytest.mark.parametrize("adjusted", [True, False])
@pytest.mark.parametrize("q", [1, 3])
def test_chain_is_the_textbooks(name, adjusted, q):
    density, value = make(name, q)
    rng, F = np.random.default_rng(5), lower(q, np.random.default_rng(6))
    Z0 = rng.standard_normal((4, q))
    gradient = lambda z: density.gradient(z[None, :])[0]  # noqa: E731
    args = (Z0, 0.3, 40)
    expected = oracles.langevin(value, gradient, *args, np.random.default_rng(7), adjusted, F)
    chain = langevin(density, *args, np.random.default_rng(7), adjusted=adjusted, factor=F)
    assert_close(chain.draws, expected, "vector")
    if adjusted:
        steps = np.concatenate([Z0[None], chain.draws])
        taken = np.mean(np.any(np.diff(steps, axis=0) != 0, axis=2))
        assert 0 < taken < 1
        assert chain.acceptance == pytest.approx(taken, abs=0.15)


def test_every_step_has_noise_of_its_own():
    # S2's Algorithm 3 draws ξ once: the path would then be a straight drift
    flat = Gaussian(np.zeros(2), 1e6 * np.eye(2))
    draws = langevin(
        flat, np.zeros((50, 2)), 0.5, 100, np.random.default_rng(0), adjusted=False
    ).draws
    moves = np.diff(draws, axis=0).reshape(99, -1)
    assert np.abs(np.corrcoef(moves[:-1].ravel(), moves[1:].ravel())[0, 1]) < 0.05
    assert draws[-1].var() == pytest.approx(2 * 0.5 * 100, rel=0.5)


@pytest.mark.parametrize("tau", [0.8, 0.4, 0.1])
def test_plain_chain_has_the_known_bias(tau):
    # z ← (1 − τ)z + √(2τ) ξ is an autoregression of variance 1/(1 − τ/2): it falls to 1 with τ
    rng, density = np.random.default_rng(0), Gaussian(np.zeros(1), np.eye(1))
    chain = langevin(density, np.zeros((2000, 1)), tau, 200, rng, adjusted=False)
    last = chain.draws[-1, :, 0]
    variance = 1 / (1 - tau / 2)
    assert abs(last.var() - variance) < 4 * variance * np.sqrt(2 / 2000)
    assert chain.acceptance == 1.0
    pooled = chain.draws[100:, :, 0]
    assert pooled.var() == pytest.approx(variance, rel=0.02)


@EVERY
def test_adjusted_chain_matches_moments_and_quantiles(name):
    density, _ = make(name, 1, seed=3)
    rng = np.random.default_rng(0)
    chain = langevin(
        density, density.sample(20, rng), 0.5, 3000, rng, warm_up=300, factor=density.factor
    )
    x, size = chain.draws[:, :, 0], chain.effective_sample_size()[0]
    exact = density.sample(200_000, rng)[:, 0]
    assert abs(x.mean() - exact.mean()) < 4 * exact.std() / np.sqrt(size)
    for level in (0.1, 0.25, 0.5, 0.75, 0.9):
        share = np.mean(x <= np.quantile(exact, level))
        assert abs(share - level) < 4 * np.sqrt(level * (1 - level) / size) + 0.005
    assert chain.r_hat()[0] < 1.1


def test_adjusted_chain_has_no_bias_where_the_plain_one_has():
    density, tau = Gaussian(np.zeros(1), np.eye(1)), 0.8
    starts = np.random.default_rng(1).standard_normal((2000, 1))
    plain, exact = (
        langevin(density, starts, tau, 100, np.random.default_rng(2), adjusted=a).draws[50:]
        for a in (False, True)
    )
    assert plain.var() > 1.5
    assert exact.var() == pytest.approx(1, abs=0.03)


def test_warm_up_tunes_the_step_to_the_best_acceptance():
    density, rng = Gaussian(np.zeros(5), np.eye(5)), np.random.default_rng(0)
    for start in (1e-3, 30.0):
        chain = langevin(density, density.sample(50, rng), start, 300, rng, warm_up=300)
        assert chain.acceptance == pytest.approx(0.574, abs=0.08)
    untouched = langevin(density, density.sample(5, rng), 0.1, 5, rng, warm_up=5, adjusted=False)
    assert untouched.step == 0.1


def test_thinned_chain_is_every_kth_step():
    density, Z0 = Gaussian(np.zeros(1), np.eye(1)), np.zeros((3, 1))
    full = langevin(density, Z0, 0.5, 12, np.random.default_rng(0))
    thin = langevin(density, Z0, 0.5, 12, np.random.default_rng(0), thin=4)
    np.testing.assert_array_equal(thin.draws, full.draws[3::4])
    assert thin.acceptance == full.acceptance


def test_chain_in_every_library(backend):
    density, _ = make("kde", 2)
    there, Z0 = moved(density, backend.asarray), np.zeros((3, 2))
    chains = [
        langevin(d, z, 0.3, 20, np.random.default_rng(0), warm_up=10)
        for d, z in ((density, Z0), (there, backend.asarray(Z0)))
    ]
    assert backend.owns(chains[1].draws)
    assert_close(backend.numpy(chains[1].draws), chains[0].draws, "vector")
    assert_close(chains[1].effective_sample_size(), chains[0].effective_sample_size(), "vector")


def test_nonsense_chains_are_clear_errors():
    density, rng, Z0 = Gaussian(np.zeros(1), np.eye(1)), np.random.default_rng(0), np.zeros((2, 1))
    for step in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="step must be"):
            langevin(density, Z0, step, 10, rng)
    with pytest.raises(ValueError, match="thin must be"):
        langevin(density, Z0, 0.1, 10, rng, thin=11)
    with pytest.raises(ValueError, match="warm_up must be"):
        langevin(density, Z0, 0.1, 10, rng, warm_up=-1)
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="stay finite"):
        langevin(density, Z0 + 1, 1e3, 400, rng, adjusted=False)


def test_adjusted_chain_survives_too_long_a_step():
    density, rng = Gaussian(np.zeros(2), np.eye(2)), np.random.default_rng(0)
    with np.errstate(all="ignore"):
        chain = langevin(density, np.ones((3, 2)), 1e200, 10, rng)
    assert chain.acceptance == 0
    np.testing.assert_array_equal(chain.draws, np.ones((10, 3, 2)))


# --- effective sample size and R̂ -------------------------------------------------------


def autoregression(rho, n, m, seed=0):
    rng = np.random.default_rng(seed)
    x = np.empty((n, m))
    x[0] = rng.standard_normal(m)
    for t in range(1, n):
        x[t] = rho * x[t - 1] + np.sqrt(1 - rho**2) * rng.standard_normal(m)
    return x


@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.5, 0.9])
def test_effective_sample_size_of_an_autoregression(rho):
    x = autoregression(rho, 5000, 8)
    assert effective_sample_size(x) == pytest.approx(x.size * (1 - rho) / (1 + rho), rel=0.15)


def test_effective_sample_size_predicts_the_error_of_the_mean():
    runs = [autoregression(0.8, 400, 4, seed) for seed in range(200)]
    predicted = np.mean([x.var() / effective_sample_size(x) for x in runs])
    assert np.var([x.mean() for x in runs]) == pytest.approx(predicted, rel=0.35)


def test_autocovariances_r_hat_and_effective_size_are_the_oracles():
    from dualpca.generation.chains import _autocovariance

    x = autoregression(0.7, 31, 3)
    expected = [[oracles.autocovariance(x[:, j], lag) for j in range(3)] for lag in range(31)]
    assert_close(_autocovariance(x), expected, "covariance")
    halves = [x[:15, j] for j in range(3)] + [x[16:, j] for j in range(3)]
    assert r_hat(x) == pytest.approx(oracles.r_hat(halves), rel=1e-12)
    expected = oracles.effective_sample_size(halves)
    assert effective_sample_size(x) == pytest.approx(expected, rel=1e-10)


def test_chains_that_disagree_or_drift_show_it():
    x, apart = autoregression(0.0, 1000, 4), np.array([0, 0, 0, 3])
    assert r_hat(x) < 1.01
    assert r_hat(x + apart) > 1.5
    assert r_hat(x + np.linspace(0, 5, 1000)[:, None]) > 1.4
    assert effective_sample_size(x + apart) < 20


def test_measures_of_many_coordinates_and_of_one_that_never_moved():
    x = np.stack([autoregression(0.5, 500, 2), np.ones((500, 2))], axis=2)
    for measure in (effective_sample_size, r_hat):
        found = measure(x)
        assert found.shape == (2,) and np.isnan(found[1])
        assert found[0] == measure(x[:, :, 0])
    with pytest.raises(ValueError, match="4 draws"):
        r_hat(np.zeros((3, 2)))


# --- paths ----------------------------------------------------------------------------


def test_straight_paths_and_traversals_are_evenly_spaced():
    a, b = np.array([1.0, 2.0]), np.array([4.0, -4.0])
    path = straight(a, b, 4)
    np.testing.assert_allclose(path, [[1, 2], [2, 0], [3, -2], [4, -4]], atol=1e-12)
    np.testing.assert_allclose(traversal(a, b, 3, 0.5), [a - b / 2, a, a + b / 2])
    with pytest.raises(ValueError, match="n must be 2"):
        straight(a, b, 1)
    with pytest.raises(ValueError, match="reach"):
        traversal(a, b, 3, 0.0)


@pytest.fixture
def arc():
    t = np.linspace(0, np.pi, 60)
    return KernelDensity(np.column_stack([np.cos(t), np.sin(t)]), 0.1 * np.eye(2))


def test_path_along_density_stays_where_the_density_is_high(arc):
    a, b = arc.centres[0], arc.centres[-1]
    flat = straight(a, b, 15)
    path = along_density(arc, a, b, 15, factor=np.eye(2))
    np.testing.assert_array_equal(path[[0, -1]], flat[[0, -1]])
    assert arc.log_density(path).min() > arc.log_density(flat).min() + 5
    assert arc.log_density(path).mean() > arc.log_density(flat).mean()


def test_path_of_no_weight_is_straight_and_weight_raises_density(arc):
    a, b = arc.centres[0], arc.centres[-1]
    none = along_density(arc, a, b, 9, weight=0.0, factor=np.eye(2))
    np.testing.assert_allclose(none, straight(a, b, 9), atol=1e-8)
    means = [
        arc.log_density(along_density(arc, a, b, 9, weight=w, factor=np.eye(2))).mean()
        for w in (0.0, 0.3, 1.0, 5.0)
    ]
    assert np.all(np.diff(means) > 0)
    np.testing.assert_array_equal(along_density(arc, a, b, 2, factor=np.eye(2)), [a, b])
    with pytest.raises(ValueError, match="weight"):
        along_density(arc, a, b, 9, weight=-1.0, factor=np.eye(2))


@pytest.mark.parametrize("weight", [0.3, 1.0, 5.0])
def test_path_has_the_least_energy(arc, weight):
    F = np.array([[0.8, 0.0], [0.3, 1.2]])
    a, b = arc.centres[5], arc.centres[40]
    value = lambda z: arc.log_density(z[None, :])[0]  # noqa: E731
    whole = lambda flat: np.concatenate([[a], flat.reshape(-1, 2), [b]])  # noqa: E731
    cost = lambda flat: oracles.energy(value, whole(flat), F, weight)  # noqa: E731
    path = along_density(arc, a, b, 6, weight=weight, factor=F)
    dense = optimize.minimize(cost, straight(a, b, 6)[1:-1].ravel(), tol=1e-8)
    assert cost(path[1:-1].ravel()) == pytest.approx(dense.fun, rel=1e-6)
    assert np.abs(oracles.slope(cost, path[1:-1].ravel())).max() < 1e-2


def test_path_does_not_depend_on_the_units_of_the_latents(arc):
    scale = np.array([100.0, 0.01])
    wide = KernelDensity(arc.centres * scale, np.diag(0.1 * scale))
    path = along_density(arc, arc.centres[0], arc.centres[-1], 9, factor=np.eye(2))
    again = along_density(wide, wide.centres[0], wide.centres[-1], 9, factor=np.diag(scale))
    np.testing.assert_allclose(again / scale, path, atol=1e-3)


def test_path_in_every_library(arc, backend):
    there = moved(arc, backend.asarray)
    ends = backend.asarray(arc.centres[0]), backend.asarray(arc.centres[-1])
    path = along_density(there, *ends, 7, factor=backend.asarray(np.eye(2)))
    expected = along_density(arc, arc.centres[0], arc.centres[-1], 7, factor=np.eye(2))
    assert backend.owns(path)
    np.testing.assert_allclose(backend.numpy(path), expected, atol=1e-4)


# --- quality --------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_nearest_point_is_the_nearest(offset):
    rng = np.random.default_rng(0)
    X, known = rng.standard_normal((30, 4)) + offset, rng.standard_normal((200, 4)) + offset
    D = np.linalg.norm(X[:, None] - known[None], axis=2)
    found = nearest(X, known)
    np.testing.assert_array_equal(found.index, D.argmin(axis=1))
    assert_close(found.distance, D.min(axis=1), "offset")
    assert nearest(known, known).distance.max() == 0


def test_single_precision_points_are_compared_in_double():
    rng = np.random.default_rng(0)
    A, B = (rng.standard_normal((30, 4)).astype(np.float32) for _ in range(2))
    D = np.linalg.norm(A.astype(float)[:, None] - B.astype(float)[None], axis=2)
    np.testing.assert_allclose(nearest(A, B).distance, D.min(axis=1), rtol=1e-12)


def test_precision_and_recall_are_the_oracles():
    rng = np.random.default_rng(0)
    real, samples = rng.standard_normal((40, 2)), rng.standard_normal((30, 2)) * 0.5 + 1
    for k in (1, 3):
        found = coverage(real, samples, k)
        assert found.precision == oracles.share_reached(samples, real, k)
        assert found.recall == oracles.share_reached(real, samples, k)


def test_precision_and_recall_tell_their_failures_apart():
    rng = np.random.default_rng(0)
    real = np.concatenate([rng.standard_normal((200, 2)), rng.standard_normal((200, 2)) + 20])
    one_mode = coverage(real, rng.standard_normal((200, 2)))
    assert one_mode.precision > 0.9 and one_mode.recall < 0.6
    too_wide = coverage(real, rng.standard_normal((200, 2)) * 40)
    assert too_wide.precision < 0.2
    assert coverage(real, real + 1000) == (0.0, 0.0)


def test_discrepancy_is_the_oracles():
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((8, 3)), rng.standard_normal((11, 3)) + 0.5
    found = mmd_test(A, B, rng, kernel=RBF(gamma=0.3))
    assert found.mmd == pytest.approx(oracles.mmd(A, B, 0.3), rel=1e-10)


def test_p_value_counts_every_permutation():
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((5, 2)), rng.standard_normal((4, 2))
    rows, kernel, found = np.concatenate([A, B]), RBF(gamma=0.3), set()
    for seed, count in [(seed, 1) for seed in range(8)] + [(0, 20)]:
        draws, reached = np.random.default_rng(seed), 0
        for _ in range(count):
            first = draws.permutation(9)[:5]
            again = oracles.mmd(rows[first], np.delete(rows, first, axis=0), 0.3)
            reached += again >= oracles.mmd(A, B, 0.3)
        p = mmd_test(A, B, np.random.default_rng(seed), count, kernel).p_value
        assert p == (1 + reached) / (1 + count)
        found.add(p)
    assert {0.5, 1.0} < found


def test_two_sample_test_has_its_level_and_power():
    rng = np.random.default_rng(0)
    draw = lambda shift: rng.standard_normal((30, 2)) + shift  # noqa: E731
    same = [mmd_test(draw(0), draw(0), rng, 99).p_value for _ in range(200)]
    assert np.mean(np.array(same) <= 0.1) == pytest.approx(0.1, abs=0.065)
    assert np.min(same) >= 0.01
    assert mmd_test(draw(0), draw(1), rng, 99).p_value == 0.01


def test_quality_in_every_library(backend):
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((20, 3)), rng.standard_normal((25, 3))
    there = backend.asarray(A), backend.asarray(B)
    np.testing.assert_array_equal(backend.numpy(nearest(*there).index), nearest(A, B).index)
    assert coverage(*there) == coverage(A, B)
    tests = [mmd_test(*pair, np.random.default_rng(1)) for pair in (there, (A, B))]
    assert tests[0].mmd == pytest.approx(tests[1].mmd, abs=1e-12)
    assert tests[0].p_value == pytest.approx(tests[1].p_value, abs=0.011)


def test_tables_that_cannot_be_compared_are_clear_errors():
    A, B, rng = np.zeros((5, 2)), np.zeros((5, 3)), np.random.default_rng(0)
    for compare in (nearest, coverage, lambda a, b: mmd_test(a, b, rng)):
        with pytest.raises(ValueError, match="3 columns"):
            compare(A, B) if compare is not coverage else compare(B, A)
    with pytest.raises(ValueError, match="4 rows or more"):
        coverage(A[:3], A)
    with pytest.raises(ValueError, match="n_permutations"):
        mmd_test(A, A, rng, 0)
