"""Distances as kernels: Euclidean ones come back, others are made so by the least constant."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from dualpca.errors import NonFiniteError
from dualpca.models.probabilistic_kernel import (
    Correction,
    cailliez_constant,
    check_distances,
    check_new_distances,
    lingoes_constant,
)

KINDS = pytest.mark.parametrize("kind", ["lingoes", "cailliez"])


def points(n=12, d=3, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def smallest_eigenvalue(K):
    H = np.eye(len(K)) - 1 / len(K)
    return np.linalg.eigvalsh(H @ K @ H)[0]


def city(n=12, seed=0):
    X = points(n, 4, seed)
    return cdist(X, X, "cityblock") ** 1.5  # far from Euclidean


def test_euclidean_distances_have_the_linear_kernel():
    X = points()
    K = Correction().kernel(cdist(X, X))
    H = np.eye(12) - 1 / 12
    np.testing.assert_allclose(H @ K @ H, (H @ X) @ (H @ X).T, atol=1e-13)


@KINDS
def test_euclidean_distances_need_no_constant(kind):
    D = cdist(points(), points())
    assert Correction.of(D, kind).constant == 0
    np.testing.assert_array_equal(Correction.of(D, kind).kernel(D, training=True), -0.5 * D * D)


@KINDS
@pytest.mark.parametrize("seed", range(3))
def test_corrected_distances_are_euclidean_and_barely(kind, seed):
    D = city(seed=seed)
    found = Correction.of(D, kind)
    size = np.abs(D).max() ** 2
    assert smallest_eigenvalue(-0.5 * D * D) < -1e-3 * size
    assert smallest_eigenvalue(found.kernel(D, training=True)) > -1e-10 * size
    less = Correction(kind, 0.99 * found.constant)
    assert smallest_eigenvalue(less.kernel(D, training=True)) < -1e-6 * size


@KINDS
def test_correction_is_what_its_name_says(kind):
    D = city()
    found = Correction.of(D, kind)
    c, off = found.constant, ~np.eye(12, dtype=bool)
    wanted = np.sqrt(D**2 + 2 * c) if kind == "lingoes" else D + c
    np.testing.assert_allclose(
        found.kernel(D, training=True)[off], -0.5 * wanted[off] ** 2, rtol=1e-13
    )
    assert not np.diag(found.kernel(D, training=True)).any()


def test_lingoes_raises_every_eigenvalue_by_the_constant():
    D = city()
    H = np.eye(12) - 1 / 12
    before = H @ (-0.5 * D * D) @ H
    after = H @ Correction.of(D, "lingoes").kernel(D, training=True) @ H
    np.testing.assert_allclose(after, before + lingoes_constant(D) * H, atol=1e-10)


def test_cailliez_of_a_broken_triangle_is_what_is_missing():
    D = np.array([[0.0, 1.0, 5.0], [1.0, 0.0, 1.0], [5.0, 1.0, 0.0]])
    assert cailliez_constant(D) == pytest.approx(3.0)  # 1 + c + 1 + c = 5 + c


@KINDS
def test_training_rows_are_corrected_as_at_fit(kind):
    D = city()
    found = Correction.of(D, kind)
    np.testing.assert_array_equal(found.kernel(D), found.kernel(D, training=True))
    np.testing.assert_array_equal(found.kernel(D[3:5]), found.kernel(D, training=True)[3:5])


@KINDS
def test_an_item_that_is_one_of_two_twins_is_half_of_each(kind):
    D = city()
    D[1], D[:, 1] = D[0], D[:, 0]
    D[1, 1] = D[0, 1] = D[1, 0] = 0.0
    found = Correction.of(D, kind)
    K = found.kernel(D, training=True)
    np.testing.assert_allclose(found.kernel(D[:1])[0], (K[0] + K[1]) / 2, rtol=1e-13)


@KINDS
def test_every_library_agrees(backend, kind):
    D = city()
    found = Correction.of(backend.asarray(D), kind)
    assert found.constant == pytest.approx(Correction.of(D, kind).constant, rel=1e-12)
    K = backend.numpy(found.kernel(backend.asarray(D)))
    np.testing.assert_allclose(K, found.kernel(D), rtol=1e-12)


def test_an_unknown_correction_is_refused():
    with pytest.raises(ValueError, match=r"correction.*lingoes"):
        Correction.of(city(), "square root")


def broken(i, j, value):
    D = cdist(points(), points())
    D[i, j] = value
    return D


@pytest.mark.parametrize(
    "D, message",
    [
        (np.ones((3, 4)), "square"),
        (broken(1, 2, 9.0), r"symmetric.*\[1, 2\]"),
        (broken(2, 2, 1.0), "diagonal.*kernel='precomputed'"),
        (broken(0, 1, -1.0), "from 0, got -1"),
        (broken(0, 1, np.nan), "NaN"),
        (broken(0, 1, np.inf), "finite"),
    ],
)
def test_what_are_no_distances_is_refused(D, message):
    with pytest.raises((ValueError, NonFiniteError), match=message):
        check_distances(D)


def test_no_new_items_are_no_error():
    check_new_distances(np.empty((0, 4)))
