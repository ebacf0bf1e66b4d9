"""data/table.py: one sum, whatever holds the rows."""

from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest

from dualpca.data import InMemoryTable, beside
from dualpca.data.table import Batches, SlicedTable


def rows(n=50, d=4):
    return np.random.default_rng(0).normal(size=(n, d))


def tables(X, folder):
    """The same rows in all the ways that this file knows."""
    path = folder / "rows.npy"
    np.save(path, X)
    cuts = [X[:7], X[7:8], X[8:]]
    return {
        "memory": InMemoryTable(X),
        "list": Batches(cuts),
        "iterator": Batches(lambda: iter(cuts)),
        "slices": SlicedTable(X, 9),
        "file": SlicedTable(np.load(path, mmap_mode="r"), 11),
    }


@pytest.mark.parametrize("kind", ["memory", "list", "iterator", "slices", "file"])
def test_sums_over_rows_do_not_depend_on_what_holds_them(kind, tmp_path):
    X = rows()
    table = tables(X, tmp_path)[kind]
    assert table.d == 4
    found = table.reduce(lambda block, weights=None: block.T @ block, np.add)
    np.testing.assert_allclose(found, X.T @ X, rtol=1e-12)
    assert sum(table.sizes().values()) == len(X)


@pytest.mark.parametrize("kind", ["list", "iterator", "slices"])
def test_weights_go_with_their_rows(kind, tmp_path):
    X, w = rows(), np.random.default_rng(1).uniform(size=50)
    table = tables(X, tmp_path)[kind].with_weights(w)
    found = table.reduce(lambda block, weights: weights @ block, np.add)
    np.testing.assert_allclose(found, w @ X, rtol=1e-12)


@pytest.mark.parametrize("kind", ["memory", "list", "iterator", "slices"])
def test_a_sample_is_of_its_rows_and_the_same_for_a_seed(kind, tmp_path):
    X = rows()
    first, again = (tables(X, tmp_path)[kind].sample(12, 3) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert first.shape == (12, 4)
    known = {tuple(row) for row in X}
    assert len({tuple(row) for row in first} & known) == 12


def test_two_tables_beside_each_other_need_not_be_cut_alike():
    X, Y = rows(), rows(50, 2)
    joined = beside(Batches([X[:20], X[20:]]), Batches([Y[:33], Y[33:]]))
    found = joined.reduce(lambda block, weights=None: block.sum(axis=0), np.add)
    np.testing.assert_allclose(found, np.hstack([X, Y]).sum(axis=0), rtol=1e-12)


def test_chunks_of_another_width_are_refused():
    table = Batches(lambda: iter([rows(5, 4), rows(5, 3)]))
    with pytest.raises(ValueError, match="4"):
        table.reduce(lambda block, weights=None: block.sum(), np.add)


@pytest.mark.parametrize("rows_each", [1, 7, 49, 50, 51])
def test_progress_is_shown_of_as_many_chunks_as_there_are(rows_each, monkeypatch):
    """Of a table that is read by columns, the only one whose chunks are counted."""
    shown = []

    @contextmanager
    def task(label, total):
        yield partial(shown.append, (label, total))

    monkeypatch.setattr("dualpca.data.table.task", task)
    table = SlicedTable(rows(), rows_each)
    table.label = "columns"
    table.reduce(lambda part: float(part.sum()), float.__add__)
    assert shown == [("columns", -(-50 // rows_each))] * len(shown) and len(shown) == shown[0][1]
