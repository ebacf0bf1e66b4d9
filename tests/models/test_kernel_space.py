"""The empirical kernel map keeps inner products on its span, exactly or through landmarks."""

import numpy as np
import pytest

from dualpca import MixturePPCA
from dualpca.errors import DegenerateError, ScaleError
from dualpca.kernels import RBF, Linear, Polynomial
from dualpca.models import kernel_space
from dualpca.models.kernel_space import KernelSpace
from tests.tolerances import assert_close

KERNELS = [RBF(gamma=0.3), Polynomial(degree=2, gamma=1.0, coef0=1.0), Linear()]


def rows(n=40, d=3, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)) + 2.0


def centred(kernel, X, Y):
    """Inner products of features around the mean of those of X, the obvious way."""
    along = kernel(Y, X).mean(axis=1)
    return kernel(Y, Y) - along[:, None] - along[None, :] + kernel(X, X).mean()


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_all_directions_keep_every_inner_product(kernel):
    X = rows()
    Z = KernelSpace.fit(X, kernel, 40)(X)
    H = np.eye(40) - 1 / 40
    assert_close(Z @ Z.T, H @ kernel(X, X) @ H, "vector")


@pytest.mark.parametrize("kernel", KERNELS[1:], ids=repr)
def test_new_rows_in_a_finite_feature_space_too(kernel):
    """The features of these kernels have few dimensions, which forty rows span."""
    X, new = rows(), rows(7, seed=1)
    Z = KernelSpace.fit(X, kernel, 40)(new)
    assert_close(Z @ Z.T, centred(kernel, X, new), "vector")


def test_the_linear_kernel_gives_the_principal_components():
    X = rows()
    space = KernelSpace.fit(X, Linear(), 3)
    Xc = X - X.mean(axis=0)
    assert_close(space(X).T @ space(X) / 40, np.diag(space.variances), "vector")
    assert_close(np.sum(space.variances), np.sum(Xc**2) / 40, "vector")
    assert space.explained == pytest.approx(1.0)


def test_leading_directions_are_the_columns_of_more_of_them():
    X, kernel = rows(), RBF(gamma=0.3)
    few, many = KernelSpace.fit(X, kernel, 4), KernelSpace.fit(X, kernel, 20)
    assert few.m == 4 and many.m == 20 and few.explained < many.explained < 1
    assert_close(few(X), many(X)[:, :4], "vector")


def test_landmarks_that_are_all_distinct_rows_give_the_same_space():
    X, kernel = np.tile(rows(60), (2, 1)), RBF(gamma=2.0)
    exact = KernelSpace.fit(X, kernel, 10)
    through = KernelSpace.fit(X, kernel, 10, n_landmarks=60, exact=0)
    assert through.subspace.points.shape[0] == 60
    assert_close(through.variances, exact.variances, "vector")
    assert_close(through(X) @ through(X).T, exact(X) @ exact(X).T, "vector")
    assert through.explained == pytest.approx(exact.explained)


def test_a_linear_kernel_through_few_landmarks_is_exact():
    X = rows(200)
    exact = KernelSpace.fit(X, Linear(), 3)
    through = KernelSpace.fit(X, Linear(), 3, n_landmarks=5, exact=0)
    assert_close(through.variances, exact.variances, "vector")
    assert_close(np.abs(through(X)), np.abs(exact(X)), "vector")


def test_no_more_directions_than_there_are():
    assert KernelSpace.fit(rows(), Linear(), 30).m == 3


def test_equal_rows_and_too_large_ones_are_refused():
    with pytest.raises(DegenerateError, match="same point"):
        KernelSpace.fit(np.ones((5, 2)), RBF(gamma=1.0), 2)
    with np.errstate(over="ignore", invalid="ignore"), pytest.raises(ScaleError, match="overflow"):
        KernelSpace.fit(1e200 * rows(), Linear(), 2)


def test_every_library_gives_the_same_coordinates(backend):
    X, kernel = rows(), RBF(gamma=0.3)
    found = KernelSpace.fit(backend.asarray(X), kernel, 5)(backend.asarray(X))
    assert backend.owns(found)
    assert_close(backend.numpy(found), KernelSpace.fit(X, kernel, 5)(X), "vector")


@pytest.mark.parametrize("exact", [1000, 0])
def test_weights_are_repetitions(exact):
    X, w, kernel = rows(40), np.random.default_rng(1).integers(0, 4, 40), RBF(gamma=2.0)
    expected = KernelSpace.fit(np.repeat(X, w, axis=0), kernel, 5)
    found = KernelSpace.fit(X, kernel, 5, n_landmarks=39, weights=w.astype(float), exact=exact)
    assert_close(found.variances, expected.variances, "vector")
    assert_close(found(X) @ found(X).T, expected(X) @ expected(X).T, "vector")
    assert found.total == pytest.approx(expected.total)


def test_landmarks_are_rows_that_weigh_something(monkeypatch):
    """Rows of weight 0 are no landmarks, and heavy ones are first."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(60, 2)), rng.normal(size=(60, 2)) + 30])
    chosen, usual = [], kernel_space.mapped_operator

    def watched(table, sample, kernel, entry, how):
        chosen.append(entry.feature_map(sample, kernel, table.weights, how).points)
        return usual(table, sample, kernel, entry, how)

    monkeypatch.setattr(kernel_space, "mapped_operator", watched)
    for first in (0.0, 1e-6):
        weights = np.repeat([first, 1.0], 60)
        options = {"n_landmarks": 20, "weights": weights, "exact": 50}
        KernelSpace.fit(X, RBF(gamma=0.5), 5, np.random.default_rng(0), **options)
    for points in chosen:
        assert len(points) == 20 and np.all(points > 20)
    X = np.concatenate([X[:60], rng.normal(size=(1100, 2)) + 30])  # too many to be exact
    mixture = MixturePPCA(1, 1, kernel="rbf", kernel_params={"gamma": 0.5}, n_directions=3)
    mixture.fit(X, sample_weight=np.repeat([0.0, 1.0], [60, 1100]))
    assert len(chosen[-1]) > 100 and np.all(chosen[-1] > 20)
