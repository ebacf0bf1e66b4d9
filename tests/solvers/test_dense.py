"""solvers/exact.py: QR, LAPACK and the mirror image, against NumPy's eigh; tall, wide, weak."""

import numpy as np
import pytest

from dualpca.operators import Primal
from dualpca.solvers import solve

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
