"""operators/subspace.py: coordinates and distances, against features written out."""

import numpy as np
import pytest

from dualpca.kernels import RBF, Linear
from dualpca.operators.subspace import Subspace


def rows(n=20, d=5, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def span(kernel, X, q=3):
    """The leading directions of a centred kernel, by eigh, and the mean of the features."""
    n = len(X)
    K, H = kernel(X, X), np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(H @ K @ H)
    A = H @ vectors[:, : -q - 1 : -1] / np.sqrt(values[: -q - 1 : -1])
    b = np.full(n, 1 / n)
    return Subspace(X, kernel, A, b, A.T @ K @ b, float(b @ K @ b))


@pytest.mark.parametrize("m", [0, 1, 31, 40, 600])  # folded from 32 on; blocks of 256
def test_coordinates_and_distances_of_a_linear_kernel_are_those_of_the_rows(m):
    X, new = rows(), rows(m, seed=1)
    S = span(Linear(), X)
    V, centred = X.T @ S.coefficients, new - X.mean(axis=0)
    np.testing.assert_allclose(V.T @ V, np.eye(3), atol=1e-10)
    found = S.project(new)
    np.testing.assert_allclose(found.coordinates, centred @ V, atol=1e-10)
    np.testing.assert_allclose(S.coordinates(new), centred @ V, atol=1e-10)
    off = (centred**2).sum(axis=1) - ((centred @ V) ** 2).sum(axis=1)
    np.testing.assert_allclose(found.residual, off, atol=1e-10)


@pytest.mark.parametrize("m", [1, 256, 257, 600])
def test_products_with_kernel_values_do_not_depend_on_blocks(m):
    X, new, V = rows(), rows(m, seed=1), rows(20, 2, seed=2)
    found = span(RBF(0.2), X).kernel_times(new, V)
    np.testing.assert_allclose(found, RBF(0.2)(new, X) @ V, atol=1e-12)


def test_the_slope_of_a_coordinate_is_that_of_differences():
    X, new, h = rows(), rows(4, seed=1), 1e-6
    S = span(RBF(0.2), X)
    slope = [(S.coordinates(new + h * e) - S.coordinates(new - h * e)) / (2 * h) for e in np.eye(5)]
    np.testing.assert_allclose(S.jacobian(new), np.stack(slope, axis=2), atol=1e-8)


def test_training_points_of_a_full_span_lie_on_it():
    X = rows(8, 3)
    assert np.all(span(RBF(0.5), X, q=7).project(X).residual < 1e-10)
