"""Pre-images: distances from their definition, exact cases, formulas, denoising."""

import numpy as np
import pytest
import scipy.optimize
from sklearn.datasets import load_digits
from sklearn.decomposition import KernelPCA as SklearnKernelPCA

from dualpca import KernelPCA
from dualpca.kernels import RBF, Linear, Periodic, Scaled, inverse_distances
from dualpca.preimages import (
    PREIMAGES,
    Auto,
    Distance,
    FixedPoint,
    Gradient,
    Items,
    Learned,
    Smoother,
    Span,
)
from dualpca.preimages.base import Target
from dualpca.preimages.closed import _subset, trilaterate
from tests.oracles.preimage import (
    Cauchy,
    Exponential,
    Power,
    circle,
    coordinates,
    dense_distance,
    kernel_pca,
    linear_pca,
    radial_rms,
    rows,
    suited,
)
from tests.tolerances import assert_close

NAMES = sorted(PREIMAGES)
SAFE = [name for name in NAMES if PREIMAGES[name].safeguarded]
SINGLE = [name for name in NAMES if name != "auto"]
KERNELS = [
    RBF(gamma=0.3),
    Cauchy(),
    Exponential(),
    Power(),
    RBF(gamma=0.5) + Linear(),
    2.5 * RBF(gamma=0.3),
    RBF(gamma=0.3, on=[0, 2]),
]

# --- the span ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [*KERNELS, Linear()], ids=repr)
@pytest.mark.parametrize("centred", [True, False])
def test_distances_equal_their_definition(kernel, centred):
    X, Z = rows(), rows(25, seed=1)
    span = kernel_pca(X, kernel, 3, centred, np.linspace(1, 2, 40))
    Y = coordinates(span, rows(25, seed=2))
    expected = dense_distance(span, Z, Y)
    # distances are roots of differences: half of the digits near 0, all of them elsewhere
    assert_close(span.distance(Z, Y), expected, "vector")
    assert_close(span.distance(X[:25], Y) ** 2, span.gaps(Y)[np.arange(25), np.arange(25)], "em")
    gamma = Y @ span.coefficients.T + span.base
    assert_close(span.weights(Y), gamma, "exact", scale=10 * np.abs(gamma).max())
    assert_close(span.overlap(Z, Y), np.sum(kernel(Z, X) * gamma, axis=1), "covariance")
    assert_close(span.sqnorm(Y), np.sum((gamma @ kernel(X, X)) * gamma, axis=1), "covariance")


def test_no_squared_distance_is_negative():
    X = rows() + 1e3  # where rounding leaves distances of a point to itself on both sides of 0
    span = kernel_pca(X, Linear(), X.shape[1])
    gaps = span.gaps(span.latents)
    assert gaps.min() == 0 and np.diagonal(gaps).max() < 1e-6
    index, distance = Items(span.kernel(X, X), span.coefficients, span.base).nearest(span.latents)
    np.testing.assert_array_equal(index, np.arange(len(X)))
    assert distance.max() < 1e-3


def test_norm_follows_from_offset_and_tilt():
    span = kernel_pca(rows(), RBF(gamma=0.3), 4)
    Y = coordinates(span, rows(7, seed=3))
    short = span.offset + 2 * Y @ span.tilt + np.sum(Y * Y, axis=1)
    assert_close(span.sqnorm(Y), short, "covariance")
    assert_close(span.latents, coordinates(span, span.points), "covariance")
    assert_close(span.weights(Y).sum(axis=1), np.ones(7), "covariance")


def test_items_without_coordinates_get_weights_and_the_most_similar():
    X = rows()
    span = kernel_pca(X, RBF(gamma=0.3), 5)
    items = Items(span.kernel(X, X), span.coefficients, span.base)
    Y = coordinates(span, rows(30, seed=1))
    assert_close(items.weights(Y), span.weights(Y), "exact")
    index, distance = items.nearest(Y)
    every = np.column_stack([dense_distance(span, np.tile(x, (30, 1)), Y) for x in X])
    np.testing.assert_array_equal(index, every.argmin(axis=1))
    assert_close(distance, every.min(axis=1), "vector")
    assert items.nearest(Y[:0])[0].shape == (0,)


# --- exact cases ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAFE)
@pytest.mark.parametrize("kernel", [Linear(), Scaled(3.0, Linear())], ids=repr)
def test_linear_kernel_is_exact_with_its_mean(name, kernel):
    X, new = rows(d=5), rows(9, d=5, seed=1)
    span = kernel_pca(X, kernel, 2)
    found = PREIMAGES[name]().find(span, coordinates(span, new))
    assert_close(found.points, linear_pca(X, new, 2), "covariance")
    assert np.all(found.distance < 1e-6)
    assert np.all(found.iterations == 0)


@pytest.mark.parametrize("kernel", [RBF(gamma=1.0), Cauchy(), 2.5 * RBF(gamma=1.0)], ids=repr)
@pytest.mark.parametrize("name", ["fixed-point", "gradient", "distance", "auto"])
def test_with_all_directions_a_training_point_is_its_own_preimage(name, kernel):
    X = rows(25)
    span = kernel_pca(X, kernel, 24)
    found = PREIMAGES[name]().find(span, span.latents)
    assert_close(found.points, X, "residual", scale=10)
    assert np.all(found.distance < 1e-6)


def test_gradient_returns_training_points_of_a_polynomial():
    X = rows(18, d=2)
    span = kernel_pca(X, Power(), 9)  # cubics in the plane: nine directions beside the constant
    for method in (Gradient(), Distance(), Auto()):
        found = method.find(span, span.latents)
        assert np.max(np.abs(found.points - X)) < 1e-5


@pytest.mark.parametrize(("name", "kernel"), suited(KERNELS), ids=repr)
def test_returned_distance_is_that_of_the_returned_points(name, kernel):
    span = kernel_pca(rows(), kernel, 4)
    noisy = rows(12, seed=5)
    Y = coordinates(span, noisy)
    found = PREIMAGES[name]().find(span, Y, noisy)
    assert_close(found.distance, dense_distance(span, found.points, Y), "vector")


# --- each method ---------------------------------------------------------------------------------


def test_smoother_equals_its_formulas():
    X = rows()
    span = kernel_pca(X, RBF(gamma=0.3), 5)
    Y = coordinates(span, rows(6, seed=1))
    gaps = np.column_stack([dense_distance(span, np.tile(x, (6, 1)), Y) for x in X]) ** 2
    floor = np.sort(gaps, axis=1)[:, [7]]
    W = np.maximum(floor - gaps, 0)
    expected = W @ X / W.sum(axis=1, keepdims=True)
    assert_close(Smoother(neighbors=7).find(span, Y).points, expected, "vector")
    W = np.maximum(span.weights(Y) @ span.kernel(X, X), 0)
    expected = W @ X / W.sum(axis=1, keepdims=True)
    assert_close(Smoother(neighbors=None).find(span, Y).points, expected, "vector")


@pytest.mark.parametrize("kernel", [RBF(gamma=0.3), Cauchy(), 2.5 * RBF(gamma=0.3)], ids=repr)
def test_fixed_point_ends_where_the_gradient_vanishes(kernel):
    span = kernel_pca(rows(), kernel, 4)
    Y = coordinates(span, rows(20, seed=1))
    found = FixedPoint(max_iter=2000, tol=1e-10).find(span, Y)
    slope = Target.of(span, Y).gradient(found.points)
    assert np.max(np.abs(slope)) < 1e-6


def test_gradient_of_the_objective_equals_finite_differences():
    for kernel in KERNELS:
        span = kernel_pca(rows(), kernel, 4)
        Z, Y = rows(5, seed=1), coordinates(span, rows(5, seed=2))
        target, h = Target.of(span, Y), 1e-6
        numeric = [(target.value(Z + h * e) - target.value(Z - h * e)) / (2 * h) for e in np.eye(3)]
        gradient = target.gradient(Z)
        assert_close(gradient, np.column_stack(numeric), "residual", scale=np.abs(gradient).max())


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_batched_lbfgs_reaches_the_minimum_of_scipy(kernel):
    span = kernel_pca(rows(), kernel, 4)
    noisy = rows(10, seed=4)
    Y = coordinates(span, noisy)
    found = Gradient(max_iter=1000, tol=1e-10).run(Target.of(span, Y), noisy)
    for i in range(10):
        one = Target.of(span, Y[i : i + 1])
        end = scipy.optimize.minimize(
            lambda z, one=one: one.value(z[None])[0],
            noisy[i],
            jac=lambda z, one=one: one.gradient(z[None])[0],
            method="BFGS",
            options={"gtol": 1e-9},
        )
        low = np.sqrt(max(end.fun + one.sqnorm[0], 0))
        assert found.distance[i] <= low + 1e-6


@pytest.mark.parametrize("method", [FixedPoint, Gradient])
def test_distance_never_rises_on_the_way(method):
    X = rows()
    span = kernel_pca(X, RBF(gamma=2.0), 8)
    far = rows(30, seed=1) * 2
    target = Target.of(span, coordinates(span, rows(30, seed=2)))
    trace = [target.distance(far)]
    trace += [method(max_iter=k, tol=0.0).run(target, far).distance for k in range(1, 25)]
    assert np.max(np.diff(trace, axis=0)) <= 1e-9
    assert np.mean(trace[-1]) < np.mean(trace[0])


@pytest.mark.parametrize("method", [FixedPoint(), Gradient()], ids=repr)
def test_steps_lead_away_from_a_negative_overlap_but_not_beyond_the_data(method):
    span = Span(np.array([[0.0], [1.0]]), RBF(), np.eye(2), np.zeros(2))
    target = Target.of(span, np.array([[-1.0, 0.0]]))  # P = −φ(0): the best z is anywhere far
    found = method.run(target, np.array([[0.5]]))
    assert found.distance[0] < np.sqrt(2) + 1e-6
    assert abs(found.points[0, 0]) < 100
    span = Span(np.array([[-1.0], [1.0]]), RBF(), np.eye(2), np.zeros(2))
    target = Target.of(span, np.array([[1.0, -1.0]]))  # γ of both signs: their sum is nearly 0
    found = method.run(target, np.array([[1e-13]]))
    low = scipy.optimize.minimize_scalar(lambda z: target.value(np.array([[z]]))[0])
    assert abs(found.points[0, 0] - low.x) < 1e-5


@pytest.mark.parametrize("method", [FixedPoint(), Gradient()], ids=repr)
def test_every_start_is_tried_and_the_best_end_kept(method):
    X = rows(60)
    span = kernel_pca(X, RBF(gamma=3.0), 20)
    noisy = rows(60, seed=1)
    Y = coordinates(span, noisy)
    target = Target.of(span, Y)
    starts = [Smoother().find(span, Y).points, X[span.nearest(Y)[0]], noisy]
    ends = np.array([method.run(target, Z).distance for Z in starts])
    assert_close(method.find(span, Y, noisy).distance, ends.min(axis=0), "vector")
    assert_close(method.find(span, Y).distance, ends[:2].min(axis=0), "vector")
    assert np.all(np.any(ends < ends.max(axis=0) - 1e-3, axis=1)), "no start is ever the better one"


def test_a_given_start_can_reach_what_the_others_miss():
    t = np.arange(8) * np.pi / 4
    ring = 0.9 * np.column_stack([np.cos(t), np.sin(t)])
    span = Span(np.vstack([[20.0, 0.0], ring]), RBF(), np.eye(9), np.zeros(9))
    Y = np.array([[0.9, *[0.3] * 8]])  # one point at 20, a hill of eight small ones around 0
    for method in (FixedPoint(), Gradient(), Auto()):
        blind, seeing = method.find(span, Y), method.find(span, Y, np.array([[0.1, 0.2]]))
        assert np.linalg.norm(seeing.points) < 1e-5
        assert seeing.distance[0] <= blind.distance[0]
    assert np.linalg.norm(Gradient().find(span, Y).points - [20, 0]) < 1e-5


def test_distance_equals_the_formula_of_kwok_and_tsang():
    X, gamma = rows(), 0.3
    span = kernel_pca(X, RBF(gamma=gamma), 3)
    Y = coordinates(span, rows(6, seed=1))
    found = Distance(neighbors=7).find(span, Y).points
    for y, z in zip(Y, found, strict=True):
        gap = dense_distance(span, X, np.tile(y, (40, 1))) ** 2
        near = np.argsort(gap)[:7]
        d2 = -np.log(1 - gap[near] / 2) / gamma
        N = X[near] - X[near].mean(axis=0)
        half = 0.5 * (np.sum(N * N, axis=1) - d2)
        expected = X[near].mean(axis=0) + np.linalg.lstsq(N, half - half.mean())[0]
        assert_close(z, expected, "vector")


def test_power_kernels_without_gamma_take_one_over_the_columns():
    one = np.ones((1, 1))
    kernels = (Power(gamma=None), Power(gamma=0.5))
    new, old = (inverse_distances(k, 2)(one, 2 * one, 9 * one, one) for k in kernels)
    assert_close(new, old, "exact")


def test_distances_are_inverted():
    rng = np.random.default_rng(0)
    U = rng.uniform(0, 5, (4, 3))
    for kernel in (RBF(), Cauchy()):
        assert_close(kernel._inverse_profile(kernel.profile(U.copy())), U, "vector")
    assert Cauchy()._inverse_profile(np.array([1.0, 2.0])).tolist() == [0.0, 0.0]
    assert np.isfinite(RBF()._inverse_profile(np.array([0.0, -1.0]))).all()
    X, z = rng.standard_normal((1, 6, 3)), rng.standard_normal((1, 1, 3))
    D2 = np.sum((X - z) ** 2, axis=2)
    for kernel in (RBF(gamma=0.2), Cauchy(), Power(gamma=1 / 3), 2.0 * Power(degree=5)):
        k, o = kernel.diag(X[0])[None], kernel(z[0], X[0])
        p = kernel.diag(z[0])[:, None] + 0 * o
        assert_close(inverse_distances(kernel, 3)(k, o, p, np.sum(X * X, axis=2)), D2, "vector")
    assert inverse_distances(Power(degree=2), 3) is None


def test_points_are_placed_by_their_distances():
    rng = np.random.default_rng(0)
    N, z = rng.standard_normal((5, 8, 3)), rng.standard_normal((5, 3))
    D2 = np.sum((N - z[:, None, :]) ** 2, axis=2)
    assert_close(trilaterate(N, D2), z, "covariance")
    few = N[:, :2, :]  # on a line: the foot of the perpendicular
    found = trilaterate(few, D2[:, :2])
    line = few[:, 1] - few[:, 0]
    t = np.sum((z - few[:, 0]) * line, axis=1) / np.sum(line * line, axis=1)
    assert_close(found, few[:, 0] + t[:, None] * line, "covariance")
    same = np.repeat(N[:, :1], 4, axis=1)
    assert_close(trilaterate(same, D2[:, :4]), N[:, 0], "exact")


def test_learned_map_equals_ridge_regression_and_scikit_learn():
    X, new = rows(60), rows(8, seed=1)
    kernel = RBF(gamma=0.3)
    span = kernel_pca(X, kernel, 4)
    Y = coordinates(span, new)
    found = Learned(alpha=0.7, kernel=kernel).find(span, Y)
    K = kernel(span.latents, span.latents)
    dual = np.linalg.solve(K + 0.7 * np.eye(60), X - X.mean(axis=0))
    assert_close(found.points, X.mean(axis=0) + kernel(Y, span.latents) @ dual, "vector")
    # scikit-learn regresses X itself: on centred data, where nothing is lost, it is the same
    peer = SklearnKernelPCA(
        4, kernel="rbf", gamma=0.3, alpha=0.7, fit_inverse_transform=True, eigen_solver="dense"
    ).fit(X - X.mean(axis=0))
    theirs = peer.inverse_transform(peer.transform(new - X.mean(axis=0)))
    assert_close(found.points, X.mean(axis=0) + theirs, "vector")


def test_learned_map_of_many_points_is_spanned_by_some():
    X = circle(0, 400)
    span = kernel_pca(X, RBF(gamma=1.0), 6)
    full, some = Learned().find(span, span.latents), Learned(limit=100).find(span, span.latents)
    assert np.sqrt(np.mean((full.points - some.points) ** 2)) < 0.01
    kernel = RBF(gamma=20.0)
    Y = rows(30, d=2)
    A = _subset(kernel, Y, Y, X[:30], 0.5)
    assert_close(A, np.linalg.solve(kernel(Y, Y) + 0.5 * np.eye(30), X[:30]), "residual")
    assert Learned(limit=100).prepare(span).centres.shape == (100, 6)


# --- denoising -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_circle_is_denoised():
    """REFERENCE 'S2 denoising', as a mean over twenty draws: one draw alone varies by a third."""
    draws = [circle(seed) for seed in range(20)]
    noise = np.mean([radial_rms(X) for X in draws])
    linear = np.mean([radial_rms(linear_pca(X, X, 1)) for X in draws])
    assert abs(noise - 0.0986) < 0.004
    assert abs(linear - 0.441) < 0.01
    rms = {name: [] for name in NAMES}
    for X in draws:
        span = kernel_pca(X, RBF(gamma=1.0), 6)
        for name in NAMES:
            rms[name].append(radial_rms(PREIMAGES[name]().find(span, span.latents, X).points))
    for name in ("fixed-point", "gradient", "auto"):
        assert np.mean(rms[name]) < 0.03, name
        assert np.max(rms[name]) < 0.04, name
    assert all(np.max(rms[name]) < 0.06 for name in SAFE)


@pytest.mark.parametrize("sigma", [0.25, 0.5])
def test_noisy_digits_are_denoised_better_than_by_linear_pca(sigma):
    rng = np.random.default_rng(0)
    X = load_digits().data / 16
    X = X[rng.permutation(len(X))]
    train, clean = X[:1000], X[1000:1100]
    noisy = clean + sigma * rng.standard_normal(clean.shape)
    span = kernel_pca(train, RBF(gamma="median").resolve(train), 32)
    Y = coordinates(span, noisy)
    linear = np.mean((linear_pca(train, noisy, 32) - clean) ** 2)
    for name in SAFE:
        found = PREIMAGES[name]().find(span, Y, noisy)
        error = np.mean((found.points - clean) ** 2)
        assert error < 0.8 * linear, (name, error, linear)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_auto_is_as_close_as_the_best_method(kernel):
    span = kernel_pca(rows(), kernel, 4)
    noisy = rows(50, seed=3) * 1.5
    Y = coordinates(span, noisy)
    auto = Auto().find(span, Y, noisy).distance
    for name in SINGLE:
        method = PREIMAGES[name]()
        if method.suits(kernel):
            assert np.all(auto <= 1.01 * method.find(span, Y, noisy).distance + 1e-9), name


def test_auto_refines_what_its_parts_found():
    span = kernel_pca(rows(), RBF(gamma=0.3), 4)
    Y = coordinates(span, rows(10, seed=1))
    found = Auto(parts=(Smoother(),)).find(span, Y)
    assert np.all(found.distance < Smoother().find(span, Y).distance)


def test_many_rows_at_once_are_no_tall_matrix():
    X = np.random.default_rng(0).standard_normal((400, 2))
    model = KernelPCA(3, kernel="rbf", preimage="distance").fit(X)
    Z = model.transform(X)
    one = np.concatenate([model.preimages(Z[i : i + 1]).points for i in range(3)])
    assert_close(model.preimages(Z).points[:3], one, "vector")


def test_what_repeats_has_no_inverse():
    assert not Distance().suits(Periodic(periodicity=3.0))
    assert not Distance().suits(2.0 * Periodic(periodicity=3.0))
