"""Sequences as they come in: rows with lengths, lists of tables, or one block of equal lengths."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.errors import expected


def check_lengths(lengths: Any, n: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the lengths of sequences, (m,), which sum to the n rows; None is one sequence."""
    if lengths is None:
        return np.array([n], dtype=np.int64)
    found = np.asarray(backend.to_numpy(lengths))
    if found.ndim != 1 or found.size == 0 or found.dtype.kind not in "iu":
        raise ValueError(expected("lengths", "a list of whole numbers, one a sequence", lengths))
    found = found.astype(np.int64)
    if np.any(found < 1):
        i = int(np.flatnonzero(found < 1)[0])
        remedy = f"Sequence {i} has no rows: leave it out."
        raise ValueError(expected("lengths", "at least 1 each", int(found[i]), remedy))
    if found.sum() != n:
        what = f"numbers that sum to the {n} rows of X"
        remedy = f"They sum to {int(found.sum())}: some sequence is missing or counted twice."
        raise ValueError(expected("lengths", what, found.tolist(), remedy))
    return found


def refuse_misplaced(y: Any, n: int) -> None:
    """Refuse a second argument that is neither None nor a label a row: lengths go by name."""
    if y is None or not hasattr(y, "__len__") or len(y) == n:
        return
    remedy = "The lengths of sequences are given by name: fit(X, lengths=[...])."
    raise ValueError(expected("y", f"None, or one entry for each of {n} rows", y, remedy))


def joined(X: Any, lengths: Any) -> tuple[Any, Any]:
    """Return sequences as rows, one after another, and their lengths.

    A list of tables, or one array (m, T, d), holds a sequence an entry. Anything else stays as it
    is: rows, with `lengths` or without.
    """
    shape = getattr(X, "shape", None)
    if lengths is not None:
        return X, lengths
    if shape is not None and len(shape) == 3:
        steps = [int(shape[1])] * int(shape[0])
        return backend.namespace(X).reshape(X, (-1, shape[2])), steps
    if isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1:
        X = list(X)
    if isinstance(X, list | tuple) and X and _is_table(X[0]):
        tables = [x if hasattr(x, "shape") else np.asarray(x) for x in X]
        return _one_below_the_other(tables), [int(x.shape[0]) for x in tables]
    return X, lengths


def _one_below_the_other(tables: list[Array]) -> Array:
    """Return all tables as one, or say which does not fit."""
    width = tables[0].shape[-1]
    for i, table in enumerate(tables):
        if table.ndim != 2 or table.shape[1] != width or table.shape[0] < 1:
            what = f"a table of at least one row and {width} columns, as the first"
            raise ValueError(expected(f"sequence {i}", what, tuple(table.shape)))
    return backend.namespace(tables[0]).concat(tables, axis=0)


def _is_table(x: Any) -> bool:
    """Tell whether an entry of a list is a sequence of rows rather than a row."""
    if hasattr(x, "shape"):
        return len(x.shape) == 2
    return isinstance(x, list | tuple) and len(x) > 0 and isinstance(x[0], list | tuple)
