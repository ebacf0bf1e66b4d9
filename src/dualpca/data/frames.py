"""One batch of rows as an array: frames, Arrow tables, arrays, whatever their columns hold."""

from __future__ import annotations

from datetime import date, time, timedelta
from typing import Any

import numpy as np

from dualpca.arrays import backend
from dualpca.errors import expected

Host = np.ndarray[Any, Any]

NUMBERS = "fiub"
"""Kinds of dtypes that are real numbers."""

FROM_BATCHES = "Batches(source, columns=[...])"
"""How columns are chosen of a table that comes in batches."""


def array_of(item: Any, columns: list[str] | None = None) -> Host:
    """Return a batch as an array: a frame's or an Arrow table's columns side by side.

    Parameters
    ----------
    item : array, frame of pandas or polars, Arrow table or record batch
    columns : list of str, optional
        The columns to use, in this order.

    Examples
    --------
    >>> array_of([[1, 2], [3, 4]])
    array([[1, 2],
           [3, 4]])
    """
    if is_frame(item) and columns is not None:
        check_columns(columns, list(item.schema.names if is_arrow(item) else item.columns))
    if is_arrow(item):
        names = columns or item.schema.names
        return np.stack([_arrow_numbers(item.column(name), name) for name in names], axis=1)
    if is_frame(item):
        return _frame_numbers(item if columns is None else item[columns])
    if columns is not None:
        got = f"{columns[:5]} and rows without names, {type(item).__name__}"
        raise ValueError(expected("columns", "None but for frames and Parquet files", got))
    refuse_masked(item)
    refuse_sparse(item)
    rows = np.asarray(item)
    if rows.ndim == 0:
        raise ValueError(expected("a part of X", "an array or a frame of rows", item))
    return rows


def is_dask(X: Any) -> bool:
    """Return True if X is a collection of Dask, which need not be installed.

    Examples
    --------
    >>> is_dask(np.zeros((2, 2)))
    False
    """
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr")


def is_arrow(item: Any) -> bool:
    """Return True if this is a table or a record batch of Arrow."""
    return hasattr(item, "column") and hasattr(item, "schema")


def is_frame(item: Any) -> bool:
    """Return True if this is a table with named columns: of pandas, polars or Arrow."""
    return is_arrow(item) or (hasattr(item, "to_numpy") and hasattr(item, "columns"))


def check_columns(columns: list[str], there: list[Any]) -> None:
    """Refuse columns that a table has not.

    Examples
    --------
    >>> check_columns(["a"], ["a", "b"])
    """
    lacking = [name for name in columns if name not in there]
    if lacking:
        raise ValueError(expected("columns", f"among {there[:20]}", lacking))


def names_of(item: Any, columns: list[str] | None = None) -> list[str] | None:
    """Return the names of a batch's columns, where they are text.

    Examples
    --------
    >>> names_of(np.zeros((2, 2))), names_of(np.zeros((2, 2)), ["a", "b"])
    (None, ['a', 'b'])
    """
    if columns is not None:
        return list(columns)
    if is_arrow(item):
        return [str(name) for name in item.schema.names]
    names = list(getattr(item, "columns", []))
    return names if names and all(isinstance(name, str) for name in names) else None


def check_table(name: str, shape: tuple[int, ...], dtype: Any) -> None:
    """Refuse what is not a 2-dimensional table of real numbers.

    Examples
    --------
    >>> check_table("X", (3, 2), np.dtype("float32"))
    """
    if len(shape) != 2:
        raise ValueError(expected(name, "a 2-dimensional table", tuple(shape)))
    if np.dtype(dtype).kind not in NUMBERS:
        raise ValueError(expected(f"the dtype of {name}", "a real number's", dtype))


def refuse_masked(rows: Any) -> None:
    """Refuse an array with masked entries: NumPy would use the values below the mask.

    Examples
    --------
    >>> refuse_masked(np.ma.array([1.0, 2.0]))
    """
    if isinstance(rows, np.ma.MaskedArray) and np.ma.is_masked(rows):
        remedy = "Say which numbers are missing with X.filled(numpy.nan), and use PPCA."
        raise ValueError(expected("X", "without masked entries", "a masked array", remedy))


def refuse_dates(X: Any, name: str = "X") -> None:
    """Refuse dates and durations: as numbers, a missing one would be −9.2e18.

    Examples
    --------
    >>> refuse_dates(np.zeros((2, 2)))
    """
    if is_frame(X) and not is_arrow(X):
        kinds = enumerate(zip(X.columns, X.dtypes, strict=False))
        bad = [
            f"column {column!r} ({dtype})"
            for j, (column, dtype) in kinds
            if is_date(dtype) or (dtype == np.dtype("O") and _holds_dates(X.iloc[:, j].to_numpy()))
        ]
    else:
        dtype = getattr(X, "dtype", None)
        dates = is_date(dtype) or (isinstance(X, np.ndarray) and _holds_dates(X))
        bad = [f"{name} ({dtype})"] if dates else []
    if bad:
        raise no_dates(_some(bad))


def _some(columns: list[str]) -> str:
    """Return up to five columns for a message."""
    return ", ".join(columns[:5]) + (f" and {len(columns) - 5} more" if columns[5:] else "")


def no_dates(what: str) -> TypeError:
    """Return the error for dates and durations where numbers are needed."""
    return TypeError(
        f"{what}: dates and durations are not read as numbers by themselves. Turn them into "
        "numbers, for instance days since the first, or leave the column out."
    )


def is_date(dtype: Any) -> bool:
    """Return True if a dtype of NumPy, pandas or polars is one of dates, times or durations.

    Examples
    --------
    >>> is_date(np.dtype("M8[s]")), is_date(np.dtype("float64")), is_date(None)
    (True, False, False)
    """
    if hasattr(dtype, "is_temporal"):  # polars
        return bool(dtype.is_temporal())
    return getattr(dtype, "kind", "") in ("m", "M") or str(dtype).startswith("period[")


def _holds_dates(values: Any) -> bool:
    """Return True for an array of objects with a date or a duration among them."""
    return values.dtype == object and any(
        isinstance(value, date | time | timedelta | np.datetime64 | np.timedelta64)
        for value in values.ravel().tolist()
    )


def refuse_sparse(rows: Any) -> None:
    """Refuse sparse rows, of which NumPy would make one object.

    Examples
    --------
    >>> refuse_sparse(np.zeros((2, 2)))
    """
    if backend.is_sparse(rows):
        remedy = "Give part.toarray(), or all rows at once: PCA accepts a sparse matrix in memory."
        raise ValueError(expected("a part of X", "dense", type(rows).__name__, remedy))


def _arrow_numbers(column: Any, name: str) -> Host:
    """Return an Arrow column as numbers, NaN for null."""
    values = np.asarray(column.to_numpy(zero_copy_only=False))
    if values.dtype == object and str(column.type) == "bool":  # booleans with missing values
        return np.array([np.nan if v is None else float(v) for v in values])
    if values.dtype.kind not in NUMBERS:
        raise no_numbers([f"{name!r} ({column.type})"], FROM_BATCHES)
    return values


def _frame_numbers(frame: Any) -> Host:
    """Return a frame's columns as numbers, NaN for missing values, in the dtype they share."""
    refuse_other_columns(frame, FROM_BATCHES)
    table = np.asarray(frame.to_numpy())
    if table.dtype.kind in NUMBERS:
        return table
    # booleans beside numbers, or dtypes of pandas' own: there is no dtype of NumPy for both
    return np.asarray(frame.to_numpy(dtype=np.float64, na_value=np.nan))


def refuse_other_columns(frame: Any, choose: str = "X[columns]") -> None:
    """Refuse a frame, also one of Dask, with columns that are no numbers."""
    kinds = zip(frame.columns, frame.dtypes, strict=True)
    bad = [f"{name!r} ({dtype})" for name, dtype in kinds if not is_number(dtype)]
    if bad:
        raise no_numbers(bad, choose)


def is_number(dtype: Any) -> bool:
    """Return True if a column of pandas or polars holds numbers or booleans.

    Examples
    --------
    >>> is_number(np.dtype("int8")), is_number(np.dtype("O")), is_number(np.dtype("M8[s]"))
    (True, False, False)
    """
    if hasattr(dtype, "is_numeric"):  # polars
        return bool(dtype.is_numeric()) or str(dtype) == "Boolean"
    return str(getattr(dtype, "kind", "O")) in NUMBERS


def no_numbers(columns: list[str], choose: str = "X[columns]") -> ValueError:
    """Return the error for columns of text where numbers are needed, with what to do."""
    return ValueError(
        f"every column must be numeric, got {_some(columns)}. Choose the numeric ones ({choose}); "
        "or use CopulaPPCA or Imputer(model='copula'), which accept categories; or turn categories "
        "into columns of 0 and 1 (OneHotEncoder). A text that means a missing value has to be NaN."
    )


def refuse_text(X: Any, name: str = "X") -> None:
    """Refuse a table with text that is no number; name its columns and say what to do.

    For tables that could not be made numbers: every entry of a column that may be text is read.

    Examples
    --------
    >>> refuse_text([[1.0, "2.5"], [3.0, None]])
    >>> refuse_text([[1.0, "A1"]])
    Traceback (most recent call last):
    ValueError: every column must be numeric, got column 1 of X (text such as 'A1'). Choose ...
    """
    if backend.is_foreign(X) or backend.is_sparse(X):
        return
    if is_arrow(X):
        names, columns = X.schema.names, [column.to_pylist() for column in X.columns]
    else:
        try:
            table = np.asarray(X.to_numpy() if is_frame(X) else X, dtype=object)
        except ValueError:  # rows of unequal length
            return
        if table.ndim != 2:
            return
        names, columns = list(getattr(X, "columns", [])), table.T.tolist()
    bad = []
    for j, values in enumerate(columns):
        if texts := _texts(values):
            column = repr(names[j]) if names else f"column {j} of {name}"
            bad.append(f"{column} (text such as {', '.join(map(repr, texts))})")
    if bad:
        raise no_numbers(bad)


def _texts(values: list[Any]) -> list[str]:
    """Return up to three different texts of a column that are no numbers."""
    found: dict[str, None] = {}
    for value in values:
        if isinstance(value, str | bytes) and len(found) < 3:
            try:
                float(value)
            except ValueError:
                found[value if isinstance(value, str) else repr(value)] = None
    return list(found)
