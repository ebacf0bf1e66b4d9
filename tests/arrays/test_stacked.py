"""Many small matrices at once, along the last axis: what NumPy gives one by one."""

import numpy as np

from dualpca.arrays.stacked import inverse_factors, lower_squares


def test_side_by_side_inverses_are_those_of_numpy():
    rng = np.random.default_rng(0)
    G = rng.normal(size=(2, 5, 4, 6))
    A = np.einsum("anij,ankj->anik", G, G)
    J, logdet = inverse_factors(np.moveaxis(A, 1, 3).copy())
    np.testing.assert_allclose(logdet, np.linalg.slogdet(A)[1], atol=1e-12)
    for i, row in enumerate(lower_squares(J)):
        wanted = np.moveaxis(np.linalg.inv(A), 1, 3)[:, i, : i + 1]
        np.testing.assert_allclose(row, wanted, atol=1e-11)
