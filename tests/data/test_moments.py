"""Moments of small tables, whatever their number of rows leaves for the last block."""

import numpy as np
import pytest

from dualpca import PCA, PPCA
from dualpca.data import Moments
from dualpca.data.moments import AT_A_TIME, _moments_at_once
from dualpca.errors import ScaleError
from tests.tolerances import assert_close


def one_block(d: int) -> int:
    """Return the number of rows of a block."""
    return max(AT_A_TIME // d, 4 * d)


@pytest.mark.parametrize("d", [1, 2, 13, 64, 100, 200])
def test_a_short_last_block_counts_as_any_other(d):
    rng, rows = np.random.default_rng(d), one_block(d)
    for n in [rows - 1, rows, rows + 1, rows + 2, rows + d - 1, rows + d, 2 * rows - 1, 2 * rows]:
        X = rng.normal(size=(n, d)) + 3.0
        centred = X - X.mean(axis=0)
        scatter = centred.T @ centred
        found = Moments.of(X)
        np.testing.assert_allclose(found.mean, X.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(found.scatter, scatter, atol=1e-11 * n, err_msg=str(n))


def test_the_first_variance_of_656_rows_of_100_columns():
    X = np.random.default_rng(0).normal(size=(656, 100)) + 7.0
    found = PCA(n_components=5).fit(X).explained_variance_
    expected = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)[:5] ** 2 / 655
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("n", [50, 700, 1024, 1025, 1797, 5000])
def test_constant_columns_of_a_small_table_have_no_variance_at_all(n):
    X = np.random.default_rng(n).normal(size=(n, 64)) + 2.0
    X[:, [0, 7, 63]] = 0.0, 0.1, 1e9 / 3
    found = _moments_at_once(X)
    assert found is not None
    _, mean, scatter = found
    assert mean[[0, 7, 63]].tolist() == [0.0, 0.1, 1e9 / 3]
    assert not scatter[[0, 7, 63]].any()
    assert not scatter[:, [0, 7, 63]].any()
    centred = X - X.mean(axis=0)
    centred[:, [0, 7, 63]] = 0.0
    np.testing.assert_allclose(scatter, centred.T @ centred, atol=1e-11 * n)


def test_a_column_that_differs_in_its_last_digits_is_left_to_the_careful_way():
    X = np.random.default_rng(0).normal(size=(100, 3))
    X[:, 1] = 1.0
    X[5, 1] += 2e-15
    assert _moments_at_once(X) is None
    assert Moments.of(X).scatter[1, 1] > 0


def test_chunks_too_far_apart_are_refused_and_leave_the_stream_as_it_was():
    rows = np.random.default_rng(0).normal(size=(30, 3))
    with pytest.raises(ScaleError, match="chunks of X lie too far apart"):
        Moments.of(rows).merge(Moments.of(rows + 1e200))
    for model in (PCA(1), PPCA(1)):
        model.partial_fit(rows)
        with pytest.raises(ScaleError, match="Divide X by a constant"):
            model.partial_fit(rows + 1e200)
        assert_close(model.transform(rows), type(model)(1).fit(rows).transform(rows), "vector")


def test_rows_that_differ_have_no_variance_where_one_of_them_has_a_weight():
    X = np.array([[1.0, 2.0], [4.0, 9.0], [3.0, 3.0]])
    found = Moments.of(X, np.array([0.0, 2.0, 0.0]))
    assert found.n == 2.0
    np.testing.assert_allclose(found.mean, X[1], rtol=1e-14)
    np.testing.assert_allclose(found.scatter, 0, atol=1e-12)
    with pytest.raises(ScaleError, match="varies too little"):
        Moments.of(1e-170 * X, np.array([1.0, 2.0, 1.0]))
