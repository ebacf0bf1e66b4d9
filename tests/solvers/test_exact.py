"""solvers/exact.py: QR, LAPACK, the mirror image, Krylov and Lanczos against NumPy's eigh."""

from types import SimpleNamespace

import numpy as np
import pytest

from dualpca.operators import SINGLE_EPS, Primal
from dualpca.solvers import solve
from dualpca.solvers.base import attainable
from dualpca.solvers.exact import Krylov, root_times

SHAPES = {"tall": (40, 6), "square": (12, 12), "wide": (8, 30)}


def operator(shape, small=1.0):
    rng = np.random.default_rng(0)
    n, d = SHAPES[shape]
    return Primal(rng.normal(size=(n, d)) * np.geomspace(1.0, small, d))


@pytest.mark.parametrize("solver", ["qr", "dense", "gram"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rank", [1, 3, "all"])
def test_pairs_are_those_of_eigh(solver, shape, rank):
    A = operator(shape)
    most = min(A.dim, SHAPES[shape][0] - 1)
    q = most if rank == "all" else rank
    found = solve(A, q, solver)
    values, vectors = np.linalg.eigh(A.dense())
    np.testing.assert_allclose(found.values, values[::-1][:q], rtol=1e-9)
    overlap = np.abs(np.sum(found.vectors * vectors[:, ::-1][:, :q], axis=0))
    np.testing.assert_allclose(overlap, 1.0, atol=1e-8)
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(q), atol=1e-10)
    assert found.trace == pytest.approx(np.trace(A.dense()), rel=1e-12)


@pytest.mark.parametrize("solver", ["qr", "dense", "gram"])
def test_signs_do_not_depend_on_the_solver(solver):
    A = operator("tall")
    np.testing.assert_allclose(solve(A, 3, solver).vectors, solve(A, 3, "qr").vectors, atol=1e-9)


def test_qr_keeps_the_digits_of_a_weak_direction():
    """Squaring the rows loses a variance of 1e-18 of the largest; the factor of QR keeps it."""
    A = operator("tall", small=1e-9)
    exact = np.linalg.svd(A.half(np.eye(A.dim)), compute_uv=False) ** 2
    np.testing.assert_allclose(solve(A, A.dim, "qr").values, exact, rtol=1e-6)


def scatter(n=300, d=120, decay=0.9):
    rng = np.random.default_rng(0)
    return Primal(rng.normal(size=(n, d)) * decay ** np.arange(d))


@pytest.mark.parametrize("rank", [1, 5, 40])
@pytest.mark.parametrize("decay", [0.8, 0.97, 1.0], ids=["fast", "slow", "flat"])
def test_krylov_pairs_are_those_of_eigh(rank, decay):
    A = scatter(decay=decay)
    found = solve(A, rank, "krylov")
    values = np.linalg.eigvalsh(A.dense())[::-1][:rank]
    np.testing.assert_allclose(found.values, values, rtol=1e-7)
    residual = A.dense() @ found.vectors - found.vectors * found.values
    assert np.linalg.norm(residual, axis=0).max() < 1e-4 * values[0]
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(rank), atol=1e-9)


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-8])
def test_a_tolerance_bounds_the_error_of_the_variances(tol):
    A = scatter(decay=0.97)
    found = Krylov(tol).solve(A, 10, np.random.default_rng(0))
    values = np.linalg.eigvalsh(A.dense())[::-1][:10]
    assert np.abs(found.values - values).max() <= tol * values[0]


def test_another_seed_gives_the_same_answer():
    A = scatter()
    first, second = (Krylov().solve(A, 5, np.random.default_rng(seed)) for seed in (0, 7))
    np.testing.assert_allclose(first.values, second.values, rtol=1e-8)
    np.testing.assert_allclose(first.vectors, second.vectors, atol=1e-5)


def test_fewer_directions_than_asked_for_are_what_there_is():
    rng = np.random.default_rng(1)
    A = Primal(rng.normal(size=(80, 3)) @ rng.normal(size=(3, 60)))
    found = solve(A, 6, "krylov")
    values = np.linalg.eigvalsh(A.dense())[::-1][:6]
    np.testing.assert_allclose(found.values, values, atol=1e-9 * values[0])


def test_the_root_of_an_operator_times_vectors():
    A, V = scatter(n=100, d=30), np.random.default_rng(2).normal(size=(30, 2))
    values, vectors = np.linalg.eigh(A.dense())
    expected = vectors @ (np.sqrt(np.maximum(values, 0))[:, None] * (vectors.T @ V))
    found = root_times(A, V)
    np.testing.assert_allclose(found[0], expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("length", [1.0, 0.1])
@pytest.mark.parametrize("gap", [0.9, 0.3, 0.03, 1e-3, 2e-5])
def test_what_rounded_products_do_to_a_pair_depends_on_how_near_the_next_one_is(gap, length):
    """Beside a perturbed matrix of order two: a correction of this length, off by its rounding."""
    rounding = 1e-6
    A = SimpleNamespace(rounding=rounding, given_eps=SINGLE_EPS)
    off = rounding * length
    values, vectors = np.linalg.eigh(np.array([[1 - gap, off], [off, 1.0]]))
    turned, shift = abs(vectors[0, 1]), values[1] - 1.0
    limit = attainable(A).angle
    for tol in (1e-9, 1e-5):
        one = np.ones(1)
        error, spoilt = Krylov(tol=tol)._blur(A, one, np.full((1, 1), length), 0 * one, 1 - gap)
        assert shift * (1 - 1e-3) <= error <= max(1.01 * shift, rounding * length**2) * 1.01
        assert spoilt == (turned > limit and error > tol)
    known = np.full(1, 0.5)  # an error that was there is no smaller for it
    assert Krylov()._blur(A, one, np.full((1, 1), length), known, 1 - gap)[0] == 0.5
