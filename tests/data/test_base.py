"""What every table does: sums over chunks are those of all rows, and a sample is of its rows."""

from operator import add

import numpy as np
import pytest

from dualpca.data.base import Chunk, apply, as_rows, join, numbered
from dualpca.data.table import SlicedTable
from dualpca.errors import NonFiniteError


def rows(n=23, d=3):
    return np.random.default_rng(0).normal(size=(n, d))


@pytest.mark.parametrize("part_rows", [1, 5, 23, 100])
def test_chunks_prepared_in_every_pass_give_the_sum_over_all_rows(part_rows):
    X = rows()
    table = SlicedTable(X, part_rows=part_rows)
    prepared = table.prepared(lambda part, weights: part**2)
    np.testing.assert_allclose(prepared.reduce(lambda Q: Q.sum(axis=0), add), (X**2).sum(axis=0))
    assert sum(table.sizes().values()) == 23
    assert list(table.sizes()) == list(range(-(-23 // part_rows)))


@pytest.mark.parametrize("part_rows", [4, 100])
def test_every_row_is_drawn_as_often_as_the_others(part_rows):
    X = np.arange(20.0)[:, None]
    table = SlicedTable(X, part_rows=part_rows)
    drawn = np.array([table.sample(5, seed)[:, 0] for seed in range(400)])
    assert np.all(np.diff(drawn, axis=1) > 0)  # in their order, none twice
    counts = np.bincount(drawn.astype(int).ravel(), minlength=20)
    assert np.all(np.abs(counts - 100) < 5 * np.sqrt(400 * 0.25 * 0.75))
    np.testing.assert_array_equal(table.sample(50, 0), X)


def test_a_statistic_gets_the_number_of_its_chunk_and_weights_if_there_are_any():
    @numbered
    def seen(part, number, weights=None):
        return number, None if weights is None else list(weights)

    X = rows(2)
    assert apply(seen, Chunk(X, 4, 8)) == (4, None)
    assert apply(seen, Chunk(X, 4, 8, np.array([1.0, 2.0]))) == (4, [1.0, 2.0])
    assert apply(seen, Chunk(X[:0], 4, 8)) is None


def test_an_error_names_the_row_of_the_table():
    def refuse(part):
        raise NonFiniteError(part, np.isinf(part)) from None

    X = rows(4)
    X[2, 1] = np.inf
    with pytest.raises(NonFiniteError, match="12"):
        apply(refuse, Chunk(X, 3, 10))


def test_what_is_of_no_rows_adds_nothing():
    assert join(add, None, None) is None
    assert join(add, 2, None) == join(add, None, 2) == 2
    assert join(add, 2, 3) == 5


@pytest.mark.parametrize("dtype", ["i4", "?", ">f8", "f2"])
def test_rows_are_numbers_of_this_machine(dtype):
    X = np.array([[1, 0], [0, 1]], dtype=dtype)
    found = as_rows(X, 2, 0)
    assert found.dtype == np.float64 and found.dtype.isnative
    np.testing.assert_array_equal(found, X)


def test_rows_that_are_right_are_not_copied_and_other_widths_are_refused():
    for dtype in (np.float32, np.float64):
        X = rows().astype(dtype)
        assert as_rows(X, 3, 0) is X
    with pytest.raises(ValueError, match=r"part 7.*4 columns"):
        as_rows(rows(), 4, 7)
