"""Folds of rows and of entries: the same in parts as in memory."""

import numpy as np

from dualpca.data.folds import EntryFolds, row_folds
from dualpca.data.table import InMemoryTable, SlicedTable
from tests.data.test_parts import table


def test_folds_are_those_of_the_table_in_memory():
    X = table(n=130, d=7, holes=0.2)
    X[9:, 2] = np.nan
    parts = SlicedTable(X, part_rows=33)
    drawn, whole = EntryFolds(parts, 3, at_once=50), EntryFolds(InMemoryTable(X), 3, at_once=50)
    fifths = np.random.default_rng([3, 5, 7]).integers(5, size=X.shape)
    for k in range(5):
        hidden = np.concatenate([drawn.hidden(p.rows, p.number, k) for p in parts.parts()])
        expected = (fifths == k) & ~np.isnan(X)
        expected[:, 2] = False  # observed fewer than ten times
        assert np.array_equal(hidden, expected)
        assert np.array_equal(whole.hidden(X, 0, k), expected)
    order = np.random.default_rng(3).permutation(130)
    fold = np.concatenate([*row_folds(parts, 3).values()])
    for k, held in enumerate(np.array_split(order, 5)):
        assert np.array_equal(np.flatnonzero(fold == k), np.sort(held))
