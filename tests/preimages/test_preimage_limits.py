"""Pre-images where data are few, far, alike, of another kind or wrong."""

import pickle

import numpy as np
import pytest

from dualpca.arrays import backend as _array
from dualpca.kernels import RBF
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
from tests.oracles.preimage import (
    Counts,
    Overlap,
    coordinates,
    kernel_pca,
    rows,
    suited,
)
from tests.tolerances import assert_close

NAMES = sorted(PREIMAGES)
SAFE = [name for name in NAMES if PREIMAGES[name].safeguarded]

# --- degenerate inputs ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_one_distinct_point_is_its_own_preimage(name):
    for n in (1, 5):
        X = np.tile([1.0, -2.0], (n, 1))
        span = Span(X, RBF(gamma=1.0), np.zeros((n, 0)), np.full(n, 1 / n))
        found = PREIMAGES[name]().find(span, np.zeros((3, 0)))
        assert_close(found.points, np.tile(X[:1], (3, 1)), "vector")
        assert np.all(found.distance < 1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gamma", [1e-9, 1e-4, 1e4, 1e9])
def test_kernels_near_constant_or_identity_give_points_among_the_data(name, gamma):
    X = rows()
    span = kernel_pca(X, RBF(gamma=gamma), 2)
    far = np.vstack([rows(5, seed=1), 1e3 * rows(5, seed=1)])
    found = PREIMAGES[name]().find(span, coordinates(span, far))
    assert np.isfinite(found.points).all() and np.isfinite(found.distance).all()
    if gamma > 1:
        assert np.max(np.abs(found.points)) < 10


@pytest.mark.parametrize("name", NAMES)
def test_without_directions_it_is_the_mean_in_feature_space(name):
    span = kernel_pca(rows(), RBF(gamma=0.1), 0)
    found = PREIMAGES[name]().find(span, np.zeros((2, 0)))
    assert_close(found.points[0], found.points[1], "exact")
    assert np.linalg.norm(found.points[0] - span.centre) < span.spread


@pytest.mark.parametrize("name", SAFE)
def test_uncentred_rows_far_from_all_data_have_no_overlap_and_stay_finite(name):
    span = kernel_pca(rows(), RBF(gamma=1.0), 3, centred=False)
    far = np.full((2, 3), 1e6)
    found = PREIMAGES[name]().find(span, coordinates(span, far), far)
    assert np.isfinite(found.points).all()
    assert np.all(np.abs(found.distance - 1) < 1e-6) or name == "learned"


@pytest.mark.parametrize("name", NAMES)
def test_no_rows_give_no_preimages(name):
    span = kernel_pca(rows(), RBF(gamma=0.3), 3)
    found = PREIMAGES[name]().find(span, np.zeros((0, 3)))
    assert [p.shape for p in found] == [(0, 3), (0,), (0,)]


@pytest.mark.parametrize("name", NAMES)
def test_rows_do_not_depend_on_each_other(name, monkeypatch):
    span = kernel_pca(rows(), RBF(gamma=1.0), 5)
    noisy = rows(150, seed=1)
    Y = coordinates(span, noisy)
    method = PREIMAGES[name]().prepare(span)
    together = method.find(span, Y, noisy)
    monkeypatch.setattr(_array, "BLOCK_ROWS", 64)
    in_blocks = method.find(span, Y, noisy)
    alone = [method.find(span, Y[i : i + 1], noisy[i : i + 1]) for i in range(0, 150, 10)]
    # a row stops where its objective falls by rounding errors only, which differ
    assert_close(in_blocks.points, together.points, "em", scale=100)
    assert_close(np.vstack([a.points for a in alone]), together.points[::10], "em", scale=10)


@pytest.mark.parametrize("name", NAMES)
def test_inputs_are_left_alone_and_float32_is_worked_in_float64(name):
    X = rows().astype(np.float32)
    base = kernel_pca(X.astype(float), RBF(gamma=0.3), 3)
    C, b = base.coefficients.astype(np.float32), base.base.astype(np.float32)
    span = Span(X, base.kernel, C, b)
    Y = coordinates(base, rows(5, seed=1)).astype(np.float32)
    start = rows(5, seed=1).astype(np.float32)
    given = [X, C, b, Y, start]
    copies = [a.copy() for a in given]
    for a in given:
        a.flags.writeable = False
    found = PREIMAGES[name]().find(span, Y, start)
    again = PREIMAGES[name]().find(span, Y, start)
    assert found.points.dtype == np.float64
    assert all(np.array_equal(a, c) for a, c in zip(given, copies, strict=True))
    assert all(np.array_equal(a, c) for a, c in zip(found, again, strict=True))
    wide = PREIMAGES[name]().find(base, Y.astype(float), start.astype(float))
    assert_close(found.points, wide.points, "vector", np.float32)


@pytest.mark.grid(2)
@pytest.mark.parametrize("name", NAMES)
def test_every_array_library_gives_the_same(name, backend):
    span = kernel_pca(rows(), RBF(gamma=0.5), 4)
    noisy = rows(20, seed=1)
    Y = coordinates(span, noisy)
    expected = PREIMAGES[name]().find(span, Y, noisy)
    parts = (span.points, span.coefficients, span.base)
    X, C, b = (backend.asarray(a) for a in parts)
    there = Span(X, span.kernel, C, b)
    found = PREIMAGES[name]().find(there, backend.asarray(Y), backend.asarray(noisy))
    assert all(backend.owns(a) for a in found)
    assert_close(backend.numpy(found.points), expected.points, "residual", scale=10)
    assert_close(backend.numpy(found.distance), expected.distance, "vector")


def test_spans_and_prepared_methods_can_be_pickled():
    span = kernel_pca(rows(), RBF(gamma=0.5), 4)
    method = Auto().prepare(span)
    before = method.find(span, span.latents)
    span, method = pickle.loads(pickle.dumps((span, method)))
    after = method.find(span, span.latents)
    np.testing.assert_array_equal(before.points, after.points)


@pytest.mark.parametrize(
    ("name", "kernel"), suited([Counts(), RBF() + 2.0 * Counts(on=[1, 2])]), ids=repr
)
def test_kernels_of_counts_never_see_an_entry_below_zero(name, kernel):
    X = np.maximum(rows(), 0)
    span = kernel_pca(X, kernel, 4)
    Y = 3 * span.latents
    found = PREIMAGES[name]().find(span, Y, np.minimum(X, 0) - 1)
    assert np.min(found.points[:, 1:]) >= 0
    if name in ("gradient", "auto"):
        assert np.all(found.distance <= span.nearest(Y)[1] + 1e-9)


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fixed-point", "gradient", "distance"])
def test_kernels_that_do_not_suit_are_named(name):
    span = kernel_pca(np.abs(rows()), Overlap(), 3)
    with pytest.raises(ValueError, match=f"'{name}' must be .* got Overlap.*'auto'"):
        PREIMAGES[name]().find(span, span.latents)
    auto = Auto().find(span, span.latents)
    assert np.all(auto.distance <= Smoother().find(span, span.latents).distance)


@pytest.mark.parametrize(
    ("Y", "start", "message"),
    [
        (np.zeros((2, 3)), None, r"latent coordinates must be of shape \(m, 4\)"),
        (np.full((2, 4), np.nan), None, "latent coordinates must be finite"),
        (np.zeros((2, 4)), np.zeros((1, 3)), r"start must be of shape \(2, 3\)"),
        (np.zeros((2, 4)), np.full((2, 3), np.inf), "start must be finite"),
    ],
)
def test_bad_rows_are_refused(Y, start, message):
    span = kernel_pca(rows(), RBF(gamma=0.5), 4)
    with pytest.raises(ValueError, match=message):
        Auto().find(span, Y, start)


def test_bad_spans_and_parameters_are_refused():
    X, C, b = rows(), np.zeros((40, 2)), np.zeros(40)
    with pytest.raises(ValueError, match=r"base must be of shape \(40,\)"):
        Span(X, RBF(), C, b[:5])
    with pytest.raises(ValueError, match=r"coefficients must be of shape \(n, q\)"):
        Span(X, RBF(), b, b)
    with pytest.raises(ValueError, match=r"points must be of shape \(40, d\)"):
        Span(X[:5], RBF(), C, b)
    with pytest.raises(ValueError, match=r"Gram matrix must be of shape \(40, 40\)"):
        Items(X, C, b)
    with pytest.raises(ValueError, match=r"points must be of shape \(1, 3\)"):
        Span(X, RBF(), C, b).distance(X, np.zeros((1, 2)))
    for bad in (
        lambda: Smoother(neighbors=0),
        lambda: Distance(neighbors=0),
        lambda: Learned(alpha=0.0),
        lambda: Learned(limit=0),
        lambda: Gradient(max_iter=0),
        lambda: FixedPoint(tol=-1.0),
    ):
        with pytest.raises(ValueError, match="must be"):
            bad()
