"""Tables that come in batches: Parquet, lists, iterators."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from dualpca.atomic import replacing
from dualpca.blocks import Blocks
from dualpca.errors import expected
from dualpca.frames import array_of, check_columns, is_dask, is_frame, names_of
from dualpca.parts import Host, LocalParts, Part, as_rows

BATCH_ROWS = 65_536

MANY_PASSES = (
    "Give something that can be read again: a callable that returns a fresh iterator, a list, a "
    "folder of Parquet files; or a fit that needs one pass only (PCA or closed-form PPCA of "
    "complete rows)."
)


class Batches(LocalParts):
    """A table too large for memory, read in batches; every estimator's `fit` takes it.

    Parameters
    ----------
    source : path, list, callable or iterable
        A .npy file; a Parquet file or a folder of them (with `pyarrow`); a Zarr array or another
        thing that can be sliced; a frame; a list of arrays, frames or paths; a callable that
        returns a fresh iterator over arrays or frames of rows; an iterable. A generator can be
        read once only: enough for PCA and closed-form PPCA of complete rows, refused by what
        reads the rows several times.
    columns : list of str, optional
        The columns of frames and Parquet files to take, in this order; all unless given.
    batch_rows : int, optional
        Rows read at once, where the source leaves a choice.

    Notes
    -----
    A few batches are in memory at a time: one that is worked on and one that is read ahead.
    Methods such as `transform` return Batches again, computed when they are read: iterate over
    them, give them to the `fit` of another model, or write them with `save`.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import PCA, Batches
    >>> rng = np.random.default_rng(0)
    >>> chunks = [rng.normal(size=(100, 3)) * [3.0, 2.0, 1.0] for _ in range(5)]
    >>> model = PCA(2).fit(Batches(chunks))
    >>> model.n_samples_, [Z.shape for Z in model.transform(Batches(chunks))][:2]
    (500, [(100, 2), (100, 2)])
    """

    route = "batches"

    def __init__(
        self, source: Any, columns: list[str] | None = None, batch_rows: int | None = None
    ) -> None:
        if batch_rows is not None and not _is_count(batch_rows):
            raise ValueError(expected("batch_rows", "a positive integer", batch_rows))
        if isinstance(columns, str):
            raise ValueError(expected("columns", "a list of names", columns))
        self.columns, self.batch_rows = None if columns is None else list(columns), batch_rows
        self.once = isinstance(source, Iterator)
        self._fresh = _reader(source, self.columns, batch_rows)
        self._started: Iterator[Any] | None = None
        self._known = self._spent = False

    def _open(self) -> Iterator[Any]:
        """Return all batches from the first, also where that one has been looked at."""
        started, self._started = self._started, None
        if started is not None:
            return started
        if self.once and self._spent:
            what = "readable more than once for this fit"
            got = "an iterator that has been read"
            raise ValueError(expected("the source of Batches", what, got, MANY_PASSES))
        self._spent = True
        return iter(self._fresh())

    def _look(self) -> None:
        """Read the first batch, for width, dtype and names; the first pass gets it back.

        So nothing is lost where a callable returns the same iterator again and again.
        """
        if self._known:
            return
        items = self._open()
        found = []
        for item in items:
            found.append(item)
            if len(array_of(item, self.columns)):
                break
        if not found:
            raise ValueError("Found array with 0 sample(s): the batches hold no rows.")
        rows = as_rows(array_of(found[-1], self.columns), None, len(found) - 1)
        self._known = True
        super().__init__(rows.shape[1], rows.dtype, None, names_of(found[-1], self.columns))
        self._started = chain(found, items)

    def __getattr__(self, name: str) -> Any:
        """Look at the first batch when its width, dtype or names are first asked for."""
        if name in ("d", "dtype", "n", "names") and "_fresh" in self.__dict__:
            self._look()
            return self.__dict__[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def parts(self) -> Iterator[Part]:
        """Read all batches."""
        self._look()
        first = 0
        for number, item in enumerate(self._open()):
            table = array_of(item, self.columns)
            if table.ndim == 2 and len(table) == 0:
                continue
            rows = as_rows(table, self.d, number)
            self._check(number, names_of(item, self.columns), rows.dtype)
            yield Part(rows.astype(self.dtype, copy=False), number, first)
            first += len(rows)

    def _check(self, number: int, names: list[str] | None, dtype: np.dtype[Any]) -> None:
        """Refuse a batch with columns in other places, or whose numbers would lose digits."""
        if names is not None and self.names is not None and names != self.names:
            what = f"{self.names[:10]}, as in the first part"
            remedy = "Order them alike, or name them: Batches(source, columns=[...])."
            raise ValueError(expected(f"the columns of part {number}", what, names[:10], remedy))
        _check_dtype(number, dtype, self.dtype)

    def __iter__(self) -> Iterator[Host]:
        """Yield the batches as arrays, of one dimension where they have one."""
        for item in self._open():
            yield array_of(item, self.columns)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all batches to one .npy file, whole or not at all.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Batches([np.zeros((2, 3)), np.ones((1, 3))]).save(f"{folder}/a.npy")
        ...     np.load(f"{folder}/a.npy").shape
        (3, 3)
        """
        with replacing(path) as file:
            shape: tuple[int, ...] | None = None
            n, dtype = 0, np.dtype(np.float64)
            for number, rows in enumerate(self):
                if shape is None:
                    shape, dtype = rows.shape[1:], rows.dtype
                    _header(file, (0, *shape), dtype)
                _check_saved(number, rows, shape, dtype)
                n += len(rows)
                file.write(np.ascontiguousarray(rows, dtype=dtype).data)
            if shape is None:
                raise ValueError("Found array with 0 sample(s): there is nothing to save.")
            file.seek(0)
            _header(file, (n, *shape), dtype)


def _check_saved(number: int, rows: Host, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse what does not go into one array with the batches before."""
    if rows.shape[1:] != shape:
        what = f"rows of shape {shape}, as the first part"
        raise ValueError(expected(f"part {number}", what, rows.shape[1:]))
    _check_dtype(number, rows.dtype, dtype)


def _check_dtype(number: int, dtype: np.dtype[Any], first: np.dtype[Any]) -> None:
    """Refuse numbers that would lose digits in the dtype of the first part."""
    if not np.can_cast(dtype, first):
        what, remedy = f"{first}, as of the first part", "Convert all parts to one dtype."
        raise ValueError(expected(f"the dtype of part {number}", what, str(dtype), remedy))


def _header(file: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Write the header of a .npy file; NumPy leaves room for the number of rows to grow."""
    entries = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_2_0(file, entries)


def _reader(
    source: Any, columns: list[str] | None, batch_rows: int | None
) -> Callable[[], Iterable[Any]]:
    """Return what opens the source from its beginning."""
    if isinstance(source, str | os.PathLike):
        return lambda: _opened(Path(source), columns, batch_rows)
    if is_dask(source):
        what, remedy = "no table of Dask", "Give that to fit as it is."
        raise ValueError(expected("the source of Batches", what, type(source).__name__, remedy))
    if is_frame(source):
        return lambda: (source,)
    if callable(source):
        return source  # type: ignore[no-any-return]
    if isinstance(source, list | tuple):
        return lambda: chain.from_iterable(_each(item, columns, batch_rows) for item in source)
    if hasattr(source, "shape") and hasattr(source, "dtype"):
        blocks = Blocks(source, batch_rows)
        return lambda: (part.rows for part in blocks.parts())
    if isinstance(source, Iterator):
        return lambda: source
    if isinstance(source, Iterable):
        return lambda: source
    what = "a path, a list, a callable that returns an iterator, or an iterable of arrays"
    raise ValueError(expected("the source of Batches", what, source))


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and value is not True and bool(value >= 1)


def _each(item: Any, columns: list[str] | None, batch_rows: int | None) -> Iterable[Any]:
    if isinstance(item, str | os.PathLike):
        return _opened(Path(item), columns, batch_rows)
    return (item,)


def _opened(path: Path, columns: list[str] | None, batch_rows: int | None) -> Iterator[Any]:
    """Yield the batches of a file or folder."""
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}: check the path.")
    if path.suffix == ".npy":
        yield from (part.rows for part in Blocks(mapped(path), batch_rows).parts())
        return
    try:
        import pyarrow.dataset as datasets
    except ImportError as error:
        raise ImportError(f"reading {path} needs pyarrow: pip install pyarrow.") from error
    table = _dataset(datasets.dataset, path)
    if columns is not None:
        check_columns(columns, table.schema.names)
    _check_files(table, columns)
    rows = batch_rows or BATCH_ROWS
    options: dict[str, Any] = {"batch_readahead": 1, "fragment_readahead": 1}
    yield from table.to_batches(columns=columns, batch_size=rows, **options)


def _dataset(opened: Callable[..., Any], path: Path) -> Any:
    """Open Parquet with Arrow, or say what else can be read."""
    try:
        return opened(path, format="parquet")
    except (ValueError, OSError) as error:
        remedy = (
            "Open a Zarr array with zarr.open_array(path), read CSV with Batches(callable) or with "
            "the command dualpca."
        )
        what = "a .npy file, a Parquet file or a folder of Parquet files"
        raise ValueError(expected(str(path), what, str(error), remedy)) from error


def _check_files(table: Any, columns: list[str] | None) -> None:
    """Refuse files without the columns of the first: Arrow would fill or drop them silently."""
    wanted = set(columns or table.schema.names)
    for file in table.get_fragments():
        names = set(file.physical_schema.names)
        if not (wanted <= names if columns else wanted == names):
            odd = ", ".join(sorted(map(str, wanted - names or names - wanted)))
            what = f"it {'lacks' if wanted - names else 'alone has'} {odd}"
            remedy = "Give all files the same columns, or choose some with Batches(..., columns=)."
            raise ValueError(f"{file.path} differs from the other files: {what}. {remedy}")


def mapped(path: str | os.PathLike[str]) -> Host:
    """Map a .npy file into memory, unread."""
    try:
        return np.load(path, mmap_mode="r")  # type: ignore[no-any-return]
    except (ValueError, EOFError) as error:
        what = "a .npy file of numbers, whole"
        raise ValueError(expected(os.fspath(path), what, str(error), "Write it again.")) from error
