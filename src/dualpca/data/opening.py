"""From what a user gives to a table: arrays, paths, memory maps, Zarr, Dask collections.

`chunked_table` is where a Dask array, a path or an array on disk becomes a table of many chunks.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from dualpca.arrays import backend, memory
from dualpca.data.frames import NUMBERS, is_dask, refuse_dates, refuse_masked
from dualpca.data.table import Batches, ChunkedTable, SlicedTable, mapped

SHARE_OF_MEMORY = 0.25
"""Memory maps larger than this share of the free memory are read in chunks."""


def is_stored(X: Any) -> bool:
    """Return True if X is an array outside of memory that can be sliced, such as one of Zarr."""
    if isinstance(X, np.ndarray) or backend.is_foreign(X) or backend.is_sparse(X):
        return False
    return all(hasattr(X, name) for name in ("shape", "dtype", "chunks", "__getitem__"))


def is_path(X: Any) -> bool:
    """Return True if X is a path, or text that can only be meant as one.

    Examples
    --------
    >>> is_path("x.npy"), is_path("a word")
    (True, False)
    """
    if isinstance(X, str):
        return os.path.exists(X) or os.sep in X or bool(os.path.splitext(X)[1])
    return isinstance(X, os.PathLike)


def is_elsewhere(X: Any) -> bool:
    """Return True if X is a chunked table: batches, Dask, a stored array, or a path."""
    return isinstance(X, ChunkedTable) or is_path(X) or is_dask(X) or is_stored(X)


def refuse_missing_path(X: Any) -> None:
    """Refuse a path that leads nowhere."""
    if is_path(X) and not os.path.exists(X):
        raise FileNotFoundError(
            f"there is no {os.fspath(X)!r}: X must be rows, or the path of a table. Check the path."
        )


def require_in_memory(X: Any, name: str = "X") -> None:
    """Refuse what is not in memory, masks, which NumPy would overlook, and dates.

    Examples
    --------
    >>> require_in_memory(np.zeros((2, 2)))
    """
    if type(X) is np.ndarray and X.dtype.kind in NUMBERS:
        return
    refuse_masked(X)
    refuse_missing_path(X)
    if type(X).__name__ == "LazyFrame":
        raise TypeError(f"{name} is a LazyFrame, a query that has not run: pass {name}.collect().")
    refuse_dates(X, name)
    if is_elsewhere(X):
        raise ValueError(
            f"{name} must be rows in memory here, got {type(X).__name__}. Load them, or, where "
            "rows do not depend on each other, go through the table part by part."
        )


def chunked_table(X: Any, *, fitting: bool = True) -> ChunkedTable | None:
    """Return X as a chunked table, or None for data that are fitted in memory.

    Chunked: `Batches`, Dask arrays and frames, paths of files, things on disk that can be sliced
    (Zarr, HDF5), and, for `fit`, memory maps that are large beside the free memory.
    """
    if type(X) is np.ndarray:
        return None
    if isinstance(X, ChunkedTable):
        return X
    if is_dask(X):
        from dualpca.data.dask_table import DaskTable

        return DaskTable.of(X)
    if isinstance(X, np.memmap):
        large = fitting and X.nbytes > SHARE_OF_MEMORY * memory.free()
        return SlicedTable(X) if large else None
    if is_path(X):
        refuse_missing_path(X)
        return SlicedTable(mapped(X)) if Path(X).suffix == ".npy" else Batches(X)
    if is_stored(X):
        return SlicedTable(X)
    return None
