"""Tables read from files: whole where memory has room, in batches of rows otherwise.

CSV and TSV, also compressed, Excel, Parquet, Arrow, NPY, NPZ, folders of images, and standard
input. Nothing is repaired silently: ragged rows, repeated names and wrong encodings are errors.
"""

from __future__ import annotations

import gzip
import io
import itertools
import math
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import polars as pl

from dualpca.app.tables.heads import Given
from dualpca.app.tables.opening import open_text
from dualpca.app.tables.sheets import read_sheet
from dualpca.app.tables.text import (
    CODES,
    TEXTUAL,
    Codes,
    Counts,
    Dialect,
    Scan,
    TableError,
    TextTable,
    added,
    emptied,
    first_line,
    tally,
    without,
)
from dualpca.app.tables.thousands import as_written
from dualpca.app.tables.thousands import notes as notes_on_thousands
from dualpca.arrays import memory, task
from dualpca.data import npy_file

TablePath = str | os.PathLike[str]
Opener = Callable[[], BinaryIO]

KINDS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".npy": "npy",
    ".npz": "npz",
}
"""Formats that are read and written, by the ending of a name."""
BOOKS = {".xlsx": "xlsx", ".xlsm": "xlsx", ".xlsb": "xlsx", ".xls": "xlsx", ".ods": "xlsx"}
"""Spreadsheets, which are only read."""
PACKED = (".gz", ".zst")
"""Compressed text, which is only read: table.csv.gz."""
TEXT = ("csv", "tsv")
IMAGES = "images"


def kind_of(path: TablePath, kind: str | None = None) -> str:
    """Return the format of a table: as given, or by the ending of its name; CSV for '-'."""
    if os.path.isdir(path):
        return IMAGES
    if kind is not None:
        if kind not in KINDS.values():
            raise TableError(
                f"{kind!r} is not a table format: use one of {sorted(set(KINDS.values()))}."
            )
        return kind
    if str(path) == "-":
        return "csv"
    ending = Path(path).suffix.lower()
    if ending not in KINDS:
        raise TableError(
            f"{path}: the ending {ending!r} does not tell the format. Use one of "
            f"{sorted(KINDS)}, or --format."
        )
    return KINDS[ending]


def kind_read(path: TablePath, kind: str | None = None) -> str:
    """Return the format of a table to be read: as `kind_of`, a spreadsheet, or compressed text.

    Examples
    --------
    >>> kind_read("t.csv.gz"), kind_read("t.xlsx::Sheet2")
    ('csv', 'xlsx')
    """
    name = Path(part_of(str(path))[0])
    if kind == "xlsx" or (kind is None and name.suffix.lower() in BOOKS):
        return "xlsx"
    if kind is None and name.suffix.lower() in PACKED:
        found = kind_of(name.with_suffix(""))
        if found not in TEXT:
            raise TableError(f"{path}: only text is read compressed, such as table.csv.gz.")
        return found
    if kind is None and not os.path.isdir(path) and str(path) != "-":
        known = sorted({*KINDS, *BOOKS, ".csv.gz", ".csv.zst"})
        if name.suffix.lower() not in KINDS:
            raise TableError(
                f"{path}: the ending {name.suffix!r} does not tell the format. Use one of "
                f"{', '.join(known)}, or --format."
            )
    return kind_of(name if str(path) != "-" else path, kind)


def part_of(path: str) -> tuple[str, str | None]:
    """Return the file and its part that a path names: a sheet, or an array.

    Examples
    --------
    >>> part_of("table.xlsx::Sheet 2"), part_of("t.npz::Z"), part_of("a::b.csv")
    (('table.xlsx', 'Sheet 2'), ('t.npz', 'Z'), ('a::b.csv', None))
    """
    file, colons, part = path.rpartition("::")
    if colons and Path(file).suffix.lower() in (*BOOKS, ".npz") and not os.path.exists(path):
        return file, part
    return path, None


# --- tables ------------------------------------------------------------------------------------


class Reading(NamedTuple):
    """How a table is to be read."""

    kind: str | None = None
    encoding: str = "utf-8"
    separator: str | None = None
    decimal: str | None = None
    limit: int | None = None  # bytes of memory
    missing: tuple[str, ...] = ()  # codes of missing entries, beside the usual
    header: int | None = None  # of text and spreadsheets: its line; 0: there is none; None: look
    sheet: str | None = None  # of a spreadsheet
    array: str | None = None  # of an NPZ file
    kept: tuple[str, ...] = ()  # codes that are values, though usual for missing entries
    skip: int | None = None  # lines above the header
    units: int | None = None  # line of units; 0: there is none; None: look
    cells: str | None = None  # range of a spreadsheet
    thousands: str | None = None  # what separates them, or none; None: look

    @property
    def codes(self) -> Codes:
        """Return the codes that are missing, and those that are not."""
        return Codes(self.missing, self.kept)

    @property
    def given(self) -> Given:
        """Return what is known of the first lines."""
        return Given(self.skip, self.header, self.units)


@dataclass(frozen=True)
class TableFile:
    """A table that can be read any number of times, whole or in batches."""

    path: str
    columns: list[str]
    height: int
    n_batches: int
    open: Callable[[], Iterator[pl.DataFrame]]
    dialect: Dialect | None = None  # of text
    text: tuple[TextTable, int] | None = None  # the file of text, and bytes of a batch (-1: all)
    image_shape: tuple[int, ...] | None = None
    missing: tuple[str, ...] = ()  # codes of missing entries, beside the usual
    kept: tuple[str, ...] = ()  # codes that are values, as given
    gone: Counts = field(default_factory=dict)  # codes that were read as missing, by column
    notes: tuple[str, ...] = ()  # what the user should know
    units: Mapping[str, str] = field(default_factory=dict)  # of columns that have one
    signs: Mapping[str, str] = field(default_factory=dict)  # what separates thousands, by column

    @property
    def whole(self) -> bool:
        """Return True if the table is in memory."""
        return self.n_batches == 1

    def frames(self, label: str = "batch") -> Iterator[pl.DataFrame]:
        """Yield the batches, and report progress."""
        if self.whole:
            yield from self.open()
            return
        with task(label, self.n_batches) as tick:
            for frame in self.open():
                yield frame
                tick()

    def frame(self) -> pl.DataFrame:
        """Return the table that is in memory."""
        return next(self.open())

    def sampled(self, n: int, seed: int) -> TableFile:
        """Return a table of `n` rows drawn without replacement, in their order."""
        if n >= self.height:
            return self
        chosen = np.sort(np.random.default_rng(seed).choice(self.height, n, replace=False))
        parts, start = [], 0
        for frame in self.frames("drawing rows, batch"):
            inside = chosen[(chosen >= start) & (chosen < start + frame.height)] - start
            parts.append(frame[inside.tolist()])
            start += frame.height
        drawn = pl.concat(parts)
        return replace(self, height=n, n_batches=1, open=lambda: iter([drawn]))

    def filtered(self, keep: Callable[[pl.DataFrame], pl.Series]) -> TableFile:
        """Return the rows for which a function of a batch is true.

        Examples
        --------
        >>> frame = pl.DataFrame({"a": range(6)})
        >>> table = TableFile("t", ["a"], 6, 3, lambda: frame.iter_slices(2))
        >>> odd = table.filtered(lambda frame: frame["a"] % 2 == 1)
        >>> odd.height, [batch["a"].to_list() for batch in odd.frames()]
        (3, [[1], [3], [5]])
        """

        def frames() -> Iterator[pl.DataFrame]:
            kept = (frame.filter(keep(frame)) for frame in self.open())
            return (frame for frame in kept if frame.height)

        return replace(self, height=sum(frame.height for frame in frames()), open=frames)

    def regrouped(self, ends: list[int]) -> TableFile:
        """Return the same rows in batches that end only after the given numbers of rows.

        A batch is as large as before, or larger where no end comes earlier.

        Examples
        --------
        >>> frame = pl.DataFrame({"a": range(6)})
        >>> table = TableFile("t", ["a"], 6, 3, lambda: frame.iter_slices(2))
        >>> [batch.height for batch in table.regrouped([3, 4, 6]).frames()]
        [3, 1, 2]
        """
        rows = math.ceil(self.height / self.n_batches)
        wanted = np.minimum(rows * np.arange(1, self.n_batches + 1), self.height)
        cuts = np.unique(np.asarray(ends)[np.searchsorted(ends, wanted)]).tolist()

        def frames() -> Iterator[pl.DataFrame]:
            waiting, done = pl.DataFrame(), 0
            rest = iter(cuts)
            end = next(rest)
            for frame in self.open():
                waiting = frame if waiting.is_empty() else pl.concat([waiting, frame])
                while done + waiting.height >= end:
                    yield waiting[: end - done]
                    waiting, done = waiting[end - done :], end
                    end = next(rest, self.height + 1)

        return replace(self, n_batches=len(cuts), open=frames)


class KeptRows:
    """Frames of numbers that are slow to make: made in the first pass, then read from a file.

    Models that are fitted in steps read a table many times, and text is slow to parse. The
    temporary file has no name and 8 bytes per entry; without space for it every pass makes the
    frames again.

    Parameters
    ----------
    make : callable
        Returns a fresh iterator over frames with the same columns, all float64.

    Examples
    --------
    >>> frame = pl.DataFrame({"a": [0.0, 1.0, 2.0]})
    >>> kept = KeptRows(lambda: frame.iter_slices(2))
    >>> [[part.height for part in kept()] for _ in range(2)]
    [[2, 1], [2, 1]]
    """

    def __init__(self, make: Callable[[], Iterator[pl.DataFrame]]) -> None:
        self.make = make
        self.lock = threading.Lock()  # batches are read ahead in a thread
        self.file: Any = None
        self.columns: list[str] = []
        self.ends = [0]  # rows after each frame

    def __call__(self) -> Iterator[pl.DataFrame]:
        """Return an iterator over all frames."""
        return self._written() if self.file is None else self._read()

    def __del__(self) -> None:
        if self.file is not None:
            self.file.close()

    def _written(self) -> Iterator[pl.DataFrame]:
        file, ends, full = tempfile.TemporaryFile(), [0], False
        try:
            for frame in self.make():
                try:
                    file.write(b"" if full else np.ascontiguousarray(frame.to_numpy()).tobytes())
                except OSError:
                    full = True
                ends.append(ends[-1] + frame.height)
                self.columns = frame.columns
                yield frame
            with suppress(OSError):
                file.flush()
                if not full and self.file is None:
                    self.file, self.ends = file, ends
        finally:
            if self.file is not file:
                file.close()

    def _read(self) -> Iterator[pl.DataFrame]:
        width = 8 * len(self.columns)
        for start, end in itertools.pairwise(self.ends):
            with self.lock:
                self.file.seek(start * width)
                data = self.file.read((end - start) * width)
            rows = np.frombuffer(data).reshape(end - start, len(self.columns))
            yield pl.DataFrame(rows, schema=self.columns, orient="row")


def _in_memory(path: str, frame: pl.DataFrame, **more: Any) -> TableFile:
    if frame.width == 0 or frame.height == 0:
        raise TableError(
            f"{path} has {frame.height} rows and {frame.width} columns: at least one of each is "
            "needed."
        )
    return TableFile(path, frame.columns, frame.height, 1, lambda: iter([frame]), **more)


def read(
    path: TablePath,
    kind: str | None = None,
    encoding: str = "utf-8",
    *,
    separator: str | None = None,
    decimal: str | None = None,
    verbatim: tuple[str, ...] = (),
) -> pl.DataFrame:
    """Return a whole table as a polars frame.

    Parameters
    ----------
    path : path
        '-' is standard input; a folder is one of images.
    kind : {'csv', 'tsv', 'xlsx', 'parquet', 'arrow', 'npy', 'npz'}, optional
        By default the ending of the name tells. NPY and NPZ hold matrices of numbers (of NPZ the
        only array, or `X`); their columns are called x0, x1, …. Pickles in them are refused.
        `table.xlsx::Sheet2` is a sheet of a spreadsheet; text may be compressed (`table.csv.gz`).
    encoding : str
        Of text.
    separator, decimal : str, optional
        Of text; by default detected in its first lines.
    verbatim : tuple of str
        Columns of text files that are not read as numbers: identifiers may begin with zeros.

    Raises
    ------
    TableError
        If the file is empty, broken or in another format.
    """
    how = Reading(kind_read(path, kind), encoding, separator, decimal)
    return _opened(str(path), how, verbatim, None).frame()


def opened(path: str, how: Reading | None = None, verbatim: tuple[str, ...] = ()) -> TableFile:
    """Return a table: in memory if there is room for it, to be read in batches otherwise.

    Parameters
    ----------
    path : str
        '-' is standard input; what does not fit into memory goes to a temporary file.
    how : Reading, optional
    verbatim : tuple of str
        Columns of text files that stay text.
    """
    how = how or Reading()
    return _opened(path, how, verbatim, room_for(how.limit))


def _opened(path: str, how: Reading, verbatim: tuple[str, ...], room: int | None) -> TableFile:
    kind = kind_read(path, how.kind)
    file, part = part_of(path)
    how = how._replace(kind=kind)
    if kind == "npz":
        how = how._replace(array=how.array or part)
    else:
        how = how._replace(sheet=how.sheet or part)
    if how.sheet is not None and kind != "xlsx":
        raise TableError(f"--sheet {how.sheet}: {path} is no spreadsheet, so it has no sheets.")
    if how.cells is not None and kind != "xlsx":
        raise TableError(f"--range {how.cells}: {path} is no spreadsheet, so it has no cells.")
    if how.array is not None and kind != "npz":
        raise TableError(f"--array {how.array}: {path} is no NPZ file, so it has no named arrays.")
    named = {"--skip": how.skip, "--header": how.header, "--units": how.units}
    for option, line in named.items():
        if line is not None and kind not in (*TEXT, "xlsx"):
            raise TableError(f"{option}: {path} is no text and no spreadsheet, so it has no lines.")
    source, size = bytes_of(file, kind, room)
    piece = None if room is None or COPIES[kind] * size <= room else piece_of(kind, room)
    if kind in TEXT:
        return _text(path, source, size, how, verbatim, piece)
    return _coded(_binary(path, source, how, piece), how.codes, verbatim)


def _binary(path: str, source: Opener, how: Reading, piece: int | None) -> TableFile:
    kind = how.kind or ""
    if kind == IMAGES:
        return _images(path, piece)
    if kind in SCANS:
        return _scanned(path, source, kind, piece)
    if kind == "xlsx":
        return _sheet(path, source, how)
    if piece is None or kind == "npz":
        return _loaded(path, source, how.array)
    return _mapped(path, piece)


def _coded(table: TableFile, codes: Codes, verbatim: tuple[str, ...]) -> TableFile:
    """Return a table in which cells with certain codes are missing."""
    missing = codes.missing_in(table.columns)
    if not missing:
        return replace(table, kept=codes.kept)
    gone: Counts = {}
    for frame in table.frames("looking for codes, batch"):
        gone = added(gone, emptied(frame, missing, verbatim)[1])

    def frames() -> Iterator[pl.DataFrame]:
        return (without(frame, missing, verbatim) for frame in table.open())

    return replace(table, open=frames, missing=missing, kept=codes.kept, gone=gone)


def codes_in(table: TableFile, names: list[str]) -> Counts:
    """Return how often which code of missing entries is among the text of columns."""
    found: dict[str, dict[str, int]] = {}
    for frame in table.open():
        text = [c for c in frame.select(names).iter_columns() if c.dtype in TEXTUAL]
        if not text:
            break
        cells = [c.cast(pl.String).str.strip_chars() for c in text]
        found = added(found, {c.name: tally(c.filter(c.is_in(CODES))) for c in cells})
    return found


# --- memory and bytes --------------------------------------------------------------------------

COPIES = {"csv": 12, "tsv": 12, "parquet": 10, "arrow": 10, "npy": 8, "npz": 8, IMAGES: 8}
COPIES |= {"xlsx": 20}
"""How many times the bytes of a table may be in memory while it is read and used."""
OVERHEAD = 40_000_000
"""Bytes that the program needs once it reads: threads, their buffers, modules loaded late."""
SHARE = 0.5
"""Of free memory, where no limit is given."""
SMALLEST, LARGEST = 1 << 14, 1 << 26
"""Bytes of a batch."""


def room_for(limit: int | None) -> int:
    """Return the bytes that tables may use: what the limit leaves beside the program itself."""
    if limit is None:
        return int(SHARE * memory.free())
    used = memory.resident() + OVERHEAD
    if limit <= used:
        raise TableError(
            f"--memory-limit {memory.shown(limit)} is less than the program itself uses, "
            f"{memory.shown(used)}: raise the limit."
        )
    return limit - used


def piece_of(kind: str, room: int) -> int:
    """Return the bytes of a batch."""
    return min(max(room // (4 * COPIES[kind]), SMALLEST), LARGEST)


def bytes_of(path: str, kind: str, room: int | None) -> tuple[Opener, int]:
    """Return how to open a table's bytes any number of times, and how many there are, unpacked."""
    if path == "-":
        return _spooled(sys.stdin.buffer, kind, None if room is None else room // COPIES[kind])
    try:
        if kind == IMAGES:
            folder = images_in(path)
            return io.BytesIO, 8 * math.prod(folder.shape) * len(folder.files)
        size = os.path.getsize(path)
        if size == 0:
            raise TableError(f"{path} is empty: expected a table with at least one row.")
        if kind == "parquet" and room is not None:  # compressed: what counts is what comes out
            size = max(size, 8 * _cells(path))
        with open(path, "rb"):  # it may be read
            pass
        if kind in TEXT and path.lower().endswith(PACKED):
            unpacked = _unpacked(path)
            return unpacked, _counted(unpacked, path)
        return lambda: open(path, "rb"), size
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or error}.") from error


def _unpacked(path: str) -> Opener:
    """Return how to open a compressed file."""
    if path.lower().endswith(".gz"):
        return lambda: gzip.open(path, "rb")  # type: ignore[return-value]
    if find_spec("zstandard") is not None:
        return lambda: import_module("zstandard").open(path, "rb")
    if find_spec("pyarrow") is not None:
        stream = import_module("pyarrow").input_stream
        return lambda: io.BufferedReader(stream(path, compression="zstd"))
    raise TableError(f"{path} needs the package zstandard: pip install zstandard, or unpack it.")


def _counted(unpacked: Opener, path: str) -> int:
    """Return how many bytes come out of a compressed file."""
    size = 0
    try:
        with unpacked() as file:
            while data := file.read(1 << 20):
                size += len(data)
    except Exception as error:  # every library raises its own
        raise TableError(f"{path} cannot be unpacked: {first_line(error)}.") from error
    if size == 0:
        raise TableError(f"{path} is empty: expected a table with at least one row.")
    return size


def _cells(path: str) -> int:
    try:
        lazy = pl.scan_parquet(path, glob=False)
        return int(lazy.select(pl.len()).collect().item()) * len(lazy.collect_schema())
    except BROKEN:  # the reader says why
        return 0


def _spooled(stream: BinaryIO, kind: str, most: int | None) -> tuple[Opener, int]:
    """Return a stream's bytes: in memory up to a size, in a temporary file beyond."""
    data = stream.read() if most is None else stream.read(most + 1)
    if not data:
        raise TableError("- is empty: expected a table with at least one row.")
    if most is None or len(data) <= most:
        return lambda: io.BytesIO(data), len(data)
    if kind not in TEXT:
        what = f"more than {memory.shown(most)} of {kind} on standard input"
        raise TableError(f"{what} cannot be read in batches: write it to a file first.")
    # it has no name, so it is gone with the process, however that ends
    file = tempfile.TemporaryFile()
    file.write(data)
    shutil.copyfileobj(stream, file)
    return _Spool(file), file.tell()


class _Spool:
    """Opens a temporary file any number of times; closes it when it can no longer be used."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def __call__(self) -> BinaryIO:
        return io.BufferedReader(_Again(self.file))

    def __del__(self) -> None:
        self.file.close()


class _Again(io.RawIOBase):
    """An open file from its beginning; closing this leaves the file open for the next time."""

    def __init__(self, file: Any) -> None:
        self.file = file
        file.seek(0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return int(self.file.readinto(buffer))


# --- formats -----------------------------------------------------------------------------------

BROKEN = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""What polars raises for files that are not valid; the second is no `Exception`."""

SCANS: dict[str, tuple[Callable[..., pl.LazyFrame], str]] = {
    "parquet": (pl.scan_parquet, "Parquet"),
    "arrow": (pl.scan_ipc, "Arrow"),
}


def _text(
    path: str,
    source: Opener,
    size: int,
    how: Reading,
    verbatim: tuple[str, ...],
    piece: int | None,
) -> TableFile:
    kind = how.kind or "csv"
    written = (kind, how.encoding, how.separator, how.decimal)
    text = open_text(path, source, *written, verbatim, how.given, how.codes, how.thousands)
    more: dict[str, Any] = {"dialect": text.dialect, "kept": how.kept, "units": text.units}
    more["text"] = (text, -1 if piece is None else piece)

    def found(scan: Scan) -> dict[str, Any]:
        told = notes_on_thousands(path, scan.signs, scan.first) if how.thousands is None else ()
        signs = {name: as_written(scan.first[name], one) for name, one in scan.signs.items()}
        seen = {"missing": scan.missing, "gone": scan.gone, "signs": signs}
        return more | seen | {"notes": (*text.notes, *told)}

    if piece is None:
        frame, scan = text.whole()
        return _in_memory(path, frame, **found(scan))
    with task("reading, batch", math.ceil(size / piece)) as tick:
        scan = text.scanned(piece, tick)
    if scan.height == 0:
        raise TableError(f"{path} has a header but no rows: at least one is needed.")

    def frames() -> Iterator[pl.DataFrame]:
        for part in text.checked(piece):
            yield text.parsed(part, scan)

    return TableFile(path, text.names, scan.height, scan.n_pieces, frames, **found(scan))


def _scanned(path: str, source: Opener, kind: str, piece: int | None) -> TableFile:
    """Return the rows of a Parquet or Arrow file, whole or slice by slice."""
    scan, name = SCANS[kind]
    with _valid(path, name):
        if piece is None:
            with source() as file:
                return _in_memory(path, scan(io.BytesIO(file.read())).collect())
        lazy = scan(path, glob=False)
        names = lazy.collect_schema().names()
        n = int(lazy.select(pl.len()).collect().item())
    rows = max(piece // (8 * max(len(names), 1)), 1)

    def frames() -> Iterator[pl.DataFrame]:
        for k in range(0, n, rows):
            with _valid(path, name):
                part = lazy.slice(k, rows).collect()
            yield part

    return TableFile(path, names, n, math.ceil(n / rows), frames)


@contextmanager
def _valid(path: str, name: str) -> Iterator[None]:
    """Say that a file is not valid where polars finds that it is not."""
    try:
        yield
    except (*BROKEN, OSError) as error:
        raise TableError(f"{path} is not a valid {name} file: {first_line(error)}.") from error


def _sheet(path: str, source: Opener, how: Reading) -> TableFile:
    """Return a table of a spreadsheet."""
    with source() as file:
        found = read_sheet(path, file, how.sheet, how.cells, how.given, how.codes, how.thousands)
    return _in_memory(path, found.frame, notes=found.notes, units=found.units)


def _loaded(path: str, source: Opener, array: str | None = None) -> TableFile:
    """Return the matrix of an NPY or NPZ file."""
    told: tuple[str, ...] = ()
    try:
        with source() as file:
            found = np.load(io.BytesIO(file.read()), allow_pickle=False)
        if isinstance(found, np.ndarray):
            matrix = found
        else:
            name, told = _only(found, path, array)
            matrix = found[name]
    except TableError:
        raise
    except Exception as error:  # zipfile and NumPy raise many kinds
        raise TableError(f"{path} is not a valid NumPy file: {first_line(error)}.") from error
    names = _check_matrix(matrix, path)
    frame = pl.DataFrame(np.ascontiguousarray(matrix), schema=names, orient="row")
    return _in_memory(path, frame, notes=told)


def _only(archive: Any, path: str, array: str | None) -> tuple[str, tuple[str, ...]]:
    """Return the array to read: the named one, X, or the only matrix; and a note on the others."""
    names = list(archive.files)
    if array is not None and array not in names:
        some = ", ".join(names)
        raise TableError(f"--array {array}: no such array in {path}; there are {some}.")
    if array is not None or names == names[:1]:
        return array or names[0], ()
    shapes = {name: _shape_of(archive, name) for name in names}
    matrices = [name for name, shape in shapes.items() if len(shape or ()) == 2]
    found = "X" if "X" in names else matrices[0] if len(matrices) == 1 else None
    if found is None:
        sizes = {name: " by ".join(map(str, shapes[name] or ())) for name in matrices}
        some = ", ".join(f"{name} ({size})" for name, size in sizes.items()) or "none"
        raise TableError(
            f"{path} holds {len(names)} arrays, and none is called X. Choose a matrix with "
            f"--array: {some}."
        )
    others = ", ".join(repr(name) for name in names if name != found)
    return found, (f"array {found!r} of {path} is read; --array reads another: {others}.",)


def _shape_of(archive: Any, name: str) -> tuple[int, ...] | None:
    """Return the shape of an array of numbers; None for other arrays, which are not read."""
    with archive.zip.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        old = version == (1, 0)
        read = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
        shape, _, kind = read(file)
    return tuple(shape) if kind.kind in "fiub" else None


def _check_matrix(matrix: np.ndarray[Any, Any], path: str) -> list[str]:
    """Refuse an array that is not a matrix of numbers; return the names of its columns."""
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiub":
        raise TableError(
            f"{path} holds {matrix.dtype} of shape {matrix.shape}: expected a matrix of numbers."
        )
    return [f"x{j}" for j in range(matrix.shape[1])]


def _mapped(path: str, piece: int) -> TableFile:
    """Return the rows of an NPY file, read batch by batch.

    Not through a map: pages that were read would count as memory in use, and a file that becomes
    shorter meanwhile would end the process.
    """
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # of the parser of headers too
        raise TableError(f"{path} is not a valid NumPy file: {first_line(error)}.") from error
    names, n, file = _check_matrix(matrix, path), len(matrix), npy_file(matrix)
    assert file is not None
    rows = max(piece // max(8 * len(names), 1), 1)

    def frames() -> Iterator[pl.DataFrame]:
        for k in range(0, n, rows):
            try:
                part = file.read(slice(k, min(k + rows, n)), None)
            except ValueError as error:
                raise TableError(str(error)) from error
            yield pl.DataFrame(part, schema=names, orient="row")

    del matrix
    return TableFile(path, names, n, math.ceil(n / rows), frames)


# --- images: one row per image, one column per pixel -------------------------------------------

ENDINGS = (".png", ".jpg", ".jpeg")
FILE = "file"
"""Column of the file names."""
GREY = ("1", "L", "LA", "I", "I;16", "F")


class Images(NamedTuple):
    """The images of a folder, in the order of their names, all of one size."""

    files: list[Path]
    shape: tuple[int, ...]  # rows, columns and, for colour images, 3

    @property
    def names(self) -> list[str]:
        """Return the columns: the file, then pixels row by row."""
        return [FILE, *(f"x{j}" for j in range(math.prod(self.shape)))]

    def frames(self, rows: int) -> Iterator[pl.DataFrame]:
        """Yield tables of at most so many images."""
        for k in range(0, len(self.files), rows):
            some = self.files[k : k + rows]
            pixels = np.stack([_pixels(path, self.shape) for path in some])
            frame = pl.DataFrame(pixels.reshape(len(some), -1), schema=self.names[1:], orient="row")
            yield frame.insert_column(0, pl.Series(FILE, [path.name for path in some]))


def parse_shape(words: str) -> tuple[int, ...]:
    """Return the shape of images: height and width, and for colours a third number.

    Examples
    --------
    >>> parse_shape("8x8"), parse_shape("32 × 32 × 3")
    ((8, 8), (32, 32, 3))
    """
    numbers = re.split(r"\s*[x×,]\s*", words.strip().lower())
    if len(numbers) not in (2, 3) or not all(re.fullmatch("[0-9]+", one) for one in numbers):
        raise TableError(f"--image {words}: expected height x width, such as 8x8 or 32x32x3.")
    return tuple(int(one) for one in numbers)


def images_in(folder: TablePath) -> Images:
    """Return the images in a folder; the first one tells the size and whether there are colours."""
    files = sorted(path for path in Path(folder).iterdir() if path.suffix.lower() in ENDINGS)
    if not files:
        raise TableError(f"{folder} is a folder without images: expected {', '.join(ENDINGS)}.")
    return Images(files, _pixels(files[0]).shape)


def _pixels(path: Path, shape: tuple[int, ...] | None = None) -> np.ndarray[Any, Any]:
    """Return an image as numbers, grey (h, w) or RGB (h, w, 3)."""
    from PIL import Image

    try:
        with Image.open(path, formats=("PNG", "JPEG")) as image:
            kept = image.mode in ("L", "I", "I;16", "F")
            mode = "L" if image.mode in GREY else "RGB"
            pixels = np.asarray(image if kept else image.convert(mode), dtype=np.float64)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise TableError(f"{path} is not an image that can be read: {error}.") from error
    if shape is not None and pixels.shape != shape:
        raise TableError(
            f"{path} is {_size(pixels.shape)}, the first image of the folder {_size(shape)}: "
            "all must have the same size and colours. Resize them first."
        )
    return pixels


def _size(shape: tuple[int, ...]) -> str:
    colours = "in colour" if len(shape) == 3 else "grey"
    return f"{shape[1]} by {shape[0]} pixels, {colours}"


def _images(path: str, piece: int | None) -> TableFile:
    folder = images_in(path)
    count = len(folder.files)
    rows = count if piece is None else max(piece // (8 * math.prod(folder.shape)), 1)
    if rows >= count:
        return _in_memory(path, next(folder.frames(count)), image_shape=folder.shape)
    size = (folder.names, count, math.ceil(count / rows), lambda: folder.frames(rows))
    return TableFile(path, *size, image_shape=folder.shape)
