"""A table, and the model that is fitted to it or used on it: columns, units, sequences."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_ISREG
from typing import Any

import numpy as np
import polars as pl

import dualpca
from dualpca.app.cli._running import Choice, UsageError, note
from dualpca.app.tables import columns, profiles, reading, writing
from dualpca.app.tables.columns import Preparation, guessed, of_table
from dualpca.app.tables.reading import Reading, TableFile, codes_in
from dualpca.app.tables.text import MISSING, Codes, TableError, added
from dualpca.app.tables.times import NONE
from dualpca.data import replacing, target_of
from dualpca.errors import ModelFileError, expected

# --- tables to fit -----------------------------------------------------------------------------


def open_table(
    data: str,
    how: Reading,
    id_column: str | None = None,
    must: bool = True,
    known: Mapping[str, Any] | None = None,
) -> TableFile:
    """Return a table, and tell the user how it is read if that is unusual.

    The column of identifiers stays text; with `must` the table has to have it. `known` may have
    codes of missing entries (`missing`), and `levels` by column, as model files have them.
    """
    codes = _with_known(how, known or {})
    table = reading.opened(data, codes, () if id_column is None else (id_column,))
    how.codes.check(table.columns)
    if table.dialect is not None and how.separator is None and how.kind != "tsv":
        told = "" if data.endswith((".tsv", ".tab")) else table.dialect.described()
        if told:
            note(f"{data} is read with {told} (--separator and --decimal change it).")
    for words in table.notes:
        note(words)
    if must and id_column is not None and id_column not in table.columns:
        raise TableError(f"--id {id_column}: no such column; there are {table.columns[:10]}.")
    return table


def _with_known(how: Reading, known: Mapping[str, Any]) -> Reading:
    """Return how to read a table of which some codes and levels are known.

    A level such as None is not missing, unless the user says so.
    """
    kept = [
        f"{name}={level}"
        for name, levels in known.get("levels", {}).items()
        for level in levels
        if level in MISSING and not {level, f"{name}={level}"} & set(how.missing)
    ]
    missing = dict.fromkeys((*known.get("missing", ()), *how.missing))
    return how._replace(missing=tuple(missing), kept=tuple(dict.fromkeys((*how.kept, *kept))))


def tell_codes(table: TableFile, prep: Preparation) -> None:
    """Tell the user which codes of missing entries the columns of a model have.

    They are missing in columns of numbers, and values in others if the model has them as levels.
    """
    names = [name for name in prep.names if name in table.columns]
    missing = {name: dict(table.gone[name]) for name in names if name in table.gone}
    kept: dict[str, dict[str, int]] = {}
    for name, codes in codes_in(table, names).items():
        levels = prep.levels.get(name)
        if levels is not None:
            kept[name] = {code: n for code, n in codes.items() if code in levels}
            continue
        stay = Codes(kept=table.kept).kept_in(name, table.columns) & set(codes)
        if stay:
            code = sorted(stay)[0]
            raise TableError(f"--not-na {name}={code}: the column of the model holds numbers.")
        missing = added(missing, {name: codes})
    for words in profiles.code_notes(missing, kept, advice=False):
        note(words)


def prepared(
    table: TableFile,
    choice: Choice,
    id_column: str | None = None,
    sequence: str | None = None,
    standardize: bool = False,
    any_kind: bool | None = False,
    time: str | None = None,
) -> Preparation:
    """Return how the table becomes rows of a model, after one pass over it.

    `time` is the column that tells the time of rows, or 'none'; by default it is found. A model
    does not use it.

    `any_kind` is for a model of columns of any kind, whose categories stay categories; None is for
    such a model if the table has categories or bounds, and is in memory.
    """
    if id_column is None and table.image_shape is not None:
        id_column = reading.FILE
    named = None if time not in table.columns else time
    if time is not None and named is None and time.lower() != NONE:
        raise TableError(f"--time {time}: no such column; there are {table.columns[:10]}.")
    apart = [name for name in (id_column, sequence, named) if name is not None]
    heads = pl.DataFrame(schema=[name for name in table.columns if name not in apart])
    names = columns.select(heads, choice.include or [], choice.exclude or [])
    one_hot = choice.one_hot or []
    absent = [name for name in one_hot if name not in names]
    if absent:
        raise TableError(f"--one-hot {absent[0]}: no such column; there are {names[:10]}.")
    absent = [name for name in choice.asked() if name not in names]
    if absent:
        raise TableError(f"--kind {absent[0]}: no such column; there are {names[:10]}.")
    found, mixed = _chosen(table, names, choice, id_column, any_kind, time is not None)
    shape = table.image_shape if len(found.names) == len(table.columns) - len(apart) else None
    prep = Preparation(
        tuple(found.names),
        found.levels,
        image_shape=shape,
        identifier=found.identifier,
        dropped=found.dropped,
        missing=tuple(dict.fromkeys((*table.missing, *found.missing))),
        kinds={} if mixed else None,
        time=named or found.time,
        units={name: unit for name, unit in table.units.items() if name in found.names},
    )
    if not standardize:
        return prep
    return prep.standardized(table.frames("means and deviations, batch"))


def _chosen(
    table: TableFile,
    names: list[str],
    choice: Choice,
    id_column: str | None,
    any_kind: bool | None,
    timeless: bool,
) -> tuple[profiles.Choices, bool]:
    """Return which columns to use and how, and whether for a model of columns of any kind.

    The user is told what was decided.
    """
    one_hot = choice.one_hot or []
    codes, frames = Codes(table.missing, table.kept), table.frames("looking at columns, batch")
    seen = profiles.profile(frames, names, one_hot, codes, table.gone, choice.levels())
    asked = bool(choice.include) or table.image_shape is not None

    def choose(mixed: bool) -> profiles.Choices:
        return profiles.choose(
            seen,
            one_hot,
            numbers_only=choice.numbers_only,
            asked=asked,
            identifier=id_column,
            label=lambda row, identifier: _label(table, row, identifier),
            kinds=choice.asked() if mixed else None,
            timeless=timeless,
        )

    if any_kind is None and (one_hot or not table.whole):
        any_kind = False
    found = choose(any_kind is not False)
    if any_kind is None and not (found.levels or found.bounded or choice.kinds):
        any_kind, found = False, choose(False)
    for words in found.notes:
        note(words)
    return found, any_kind is not False


def _label(table: TableFile, row: int, id_column: str | None) -> str:
    """Return what a row is called: by its identifier, else by its number."""
    if id_column is not None:
        start = 0
        for frame in table.open():
            if row < start + frame.height:
                return f"row {columns.shown(frame[id_column][row - start])}"
            start += frame.height
    return f"row {row + 1}"


def lengths_of(table: TableFile, column: str | None, lengths: str | None) -> list[int] | None:
    """Return the rows of every sequence: as given, or by a column that names them."""
    if lengths is not None:
        try:
            return [int(part) for part in lengths.split(",")]
        except ValueError:
            raise UsageError(
                f"--lengths {lengths}: expected whole numbers separated by commas."
            ) from None
    if column is None:
        return None
    if column not in table.columns:
        raise TableError(f"--sequence-column {column}: no such column in the table.")
    names = pl.concat([frame[column] for frame in table.frames("sequences, batch")])
    runs = names.rle_id()
    if runs[-1] + 1 > names.n_unique():
        raise TableError(
            f"--sequence-column {column}: the rows of a sequence must be next to each other. Sort "
            "the table by it first."
        )
    return [int(count) for count in np.bincount(runs.to_numpy())]


def at_once(
    table: TableFile, sample_rows: int | None, seed: int, *, in_order: bool = False
) -> TableFile:
    """Return a table in memory, or a sample of its rows; refuse one that is too large.

    Rows that count in their order (`in_order`) are not to be drawn.
    """
    if sample_rows is not None and sample_rows < table.height:
        note(f"{sample_rows} of {table.height} rows are used, drawn at random (--sample-rows).")
        return table.sampled(sample_rows, seed)
    if not table.whole:
        fewer = "Use some of them with --sample-rows 10000, or raise"
        raise TableError(
            f"{table.path} has {table.height} rows, too many for memory. "
            f"{'Use fewer of them, or raise' if in_order else fewer} --memory-limit."
        )
    return table


# --- a model file and a table for it -----------------------------------------------------------


def load_model(path: str) -> tuple[Any, dict[str, Any]]:
    """Return a model and the metadata of its file."""
    try:
        model, metadata = dualpca.load(path, return_metadata=True)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}.") from error
    return model, metadata


def names_of(model: Any) -> list[str] | None:
    """Return the names of the columns that a model was fitted to, if they had names."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def features_of(model: Any) -> list[str]:
    """Return the names of a model's features; x0, x1, … by default."""
    return names_of(model) or [f"x{j}" for j in range(model.n_features_in_)]


def preparation_of(
    model: Any, metadata: dict[str, Any], table_columns: list[str], id_column: str | None
) -> Preparation:
    """Return how a table becomes rows of a model: as its file says, else by name or position."""
    table, names = metadata.get("table", {}), names_of(model)
    if "columns" in table:
        return of_table(table, features_of(model))
    others = tuple(name for name in table_columns if name != id_column)
    found = Preparation(others) if names is None else guessed(names, table_columns)
    units = of_table(table, features_of(model))
    return replace(units, names=found.names, levels=found.levels)


def units_of(metadata: Mapping[str, Any], table: TableFile | None = None) -> dict[str, str]:
    """Return the units of columns: those of a table, else those that a model file says.

    The user is told of columns that have others in the table than they had in the fit.
    """
    entry = metadata.get("units", {})
    if type(entry) is not dict or not all(type(unit) is str for unit in entry.values()):
        raise ModelFileError(expected("metadata's units", "a dictionary of text", entry))
    found = {} if table is None else table.units
    for name, unit in entry.items():
        if found.get(name, unit) != unit:
            note(
                f"column {name!r} is in {found[name]} in {table.path if table else ''}, and was in "
                f"{unit} in the fit. If the numbers differ too, convert them first."
            )
    return entry | dict(found)


@dataclass(frozen=True)
class Job:
    """A model, and the table that it is used on."""

    model: Any
    prep: Preparation
    table: TableFile
    id_column: str | None
    sequence: str | None
    absent: tuple[str, ...] = ()  # columns of the model that the table lacks
    defuse: bool = False  # formulas become text in what is written

    def rows(self, frame: pl.DataFrame) -> Any:
        """Return rows of the table as the model expects them."""
        found = self.prep.rows(frame, 0 if self.table.whole else None)
        self._check_finite(found, frame)
        return found.to_numpy() if names_of(self.model) is None else found

    def _check_finite(self, rows: pl.DataFrame, frame: pl.DataFrame) -> None:
        """Refuse infinite entries, with their column and row."""
        rows = rows.select(pl.col(pl.Float64))
        values = rows.to_numpy()
        if np.isinf(values).any():
            i, j = np.argwhere(np.isinf(values))[0].tolist()
            row = "one row" if not self.table.whole else f"row {i + 1}"
            if self.id_column is not None:
                row = f"row {columns.shown(frame[self.id_column][i])}"
            raise TableError(profiles.infinity(rows.columns[j], row))

    def framed(self, values: Any, names: list[str], frame: pl.DataFrame) -> pl.DataFrame:
        """Return a matrix as a table, with the row identifiers as first column."""
        found = pl.DataFrame(np.asarray(values), schema=names, orient="row")
        return self.identified(found, frame)

    def identified(self, found: pl.DataFrame, frame: pl.DataFrame) -> pl.DataFrame:
        """Return a table with the row identifiers as first column."""
        if self.id_column is None:
            return found
        return found.insert_column(0, frame[self.id_column])

    def lengths(self, lengths: str | None) -> list[int] | None:
        """Return the rows of every sequence; a hidden Markov model needs all rows at once."""
        if not self.table.whole:
            raise TableError(
                f"{type(self.model).__name__} needs whole sequences, and {self.table.path} does "
                "not fit into memory: raise --memory-limit."
            )
        return lengths_of(self.table, self.sequence, lengths)

    def write(
        self, output: str, step: Callable[[pl.DataFrame], pl.DataFrame], each: int = 1
    ) -> dict[str, Any]:
        """Write the result of every batch (`each` rows per row); all of it or nothing."""
        made: Iterator[pl.DataFrame] = (step(frame) for frame in self.table.frames())
        height = each * self.table.height
        done = writing.write(made, output, self.table.dialect, height, defuse=self.defuse)
        return {"output": output, "rows": done.rows, "columns": done.columns}


def start(
    path: str,
    data: str,
    id_column: str | None,
    how: Reading,
    sequence: str | None = None,
    output: str | None = None,
    *,
    defuse: bool = False,
) -> Job:
    """Open a model file and a table; by default the identifiers are those of the fit.

    They are left out where the table does not have them, or the output cannot hold them: NumPy's
    files hold numbers only.
    """
    model, metadata = load_model(path)
    entry = metadata.get("table", {})
    known = entry.get("identifier")
    if output is not None and reading.kind_of(output) in ("npy", "npz"):
        known = None
    table = open_table(data, how, id_column or known, id_column is not None, entry)
    if id_column is None and known in table.columns:
        id_column = known
    prep = preparation_of(model, metadata, table.columns, id_column)
    prep = replace(prep, missing=table.missing, units=units_of(metadata, table))
    table, absent = without_some(table, prep, model)
    tell_codes(table, prep)
    if sequence is None and metadata.get("sequence_column") in table.columns:
        sequence = metadata["sequence_column"]
    return Job(model, prep, table, id_column, sequence, absent, defuse)


def without_some(
    table: TableFile, prep: Preparation, model: Any
) -> tuple[TableFile, tuple[str, ...]]:
    """Return a table with the columns of the model that it lacks, all missing, and their names.

    A table without a single one of them is not one for this model, and others need a model that
    accepts missing values: both are refused when the rows are read.
    """
    absent = tuple(name for name in prep.names if name not in table.columns)
    if not absent or len(absent) == len(prep.names):
        return table, ()
    if not model.__sklearn_tags__().input_tags.allow_nan:
        return table, ()
    names = ", ".join(map(repr, absent[:10])) + (", …" if absent[10:] else "")
    note(f"not in {table.path}, and taken as missing in every row: {names}.")
    empty = [pl.lit(None).alias(name) for name in absent]

    def frames() -> Iterator[pl.DataFrame]:
        return (frame.with_columns(empty) for frame in table.open())

    return replace(table, open=frames), absent


def method_of(model: Any, *names: str) -> Any:
    """Return the first of these methods that a model has."""
    for name in names:
        if hasattr(model, name):
            return getattr(model, name)
    raise TypeError(f"{type(model).__name__} cannot {names[0]}: dualpca fit --model fits another.")


def check_output(*outputs: str | None, force: bool = False) -> None:
    """Refuse tables that cannot be written, or would replace something else, before any work."""
    for output in outputs:
        if output is not None and output != "-":
            kind = reading.kind_of(output)
            if kind == reading.IMAGES:
                raise UsageError(f"{output} is a folder: give the name of a file.")
            keep_other_kinds(output, "text" if kind in reading.TEXT else kind, force)
    named = [output for output in outputs if output not in (None, "-")]
    if len({_identity(output) for output in named if output is not None}) < len(named):
        raise UsageError("two tables cannot be written to the same file: give different names.")


def keep_inputs(
    outputs: Sequence[str | None], inputs: Sequence[str | None], replaceable: str | None = None
) -> None:
    """Refuse to write over a file that the same command reads, under whatever name.

    Standard input and output may be such files.

    Parameters
    ----------
    outputs, inputs : sequence of str or None
    replaceable : str, optional
        An input that ``--force`` may give up: `impute` fills a table in place.
    """
    read = {_identity(path, stream=0): path for path in inputs if path is not None}
    for output in outputs:
        at = None if output is None else _identity(output, stream=1)
        if at is None or at not in read:
            continue
        forced = read[at] == replaceable
        what = "the file that standard output goes to" if output == "-" else output
        raise UsageError(
            f"{what} is read by this command, and the output would replace it. Give the output "
            f"another name{', or --force to replace it' if forced else ''}."
        )


def _identity(path: str, stream: int = -1) -> tuple[int, int] | str | None:
    """Return what two names of one file have in common, links and ``./`` included.

    '-' is the file that a stream is connected to (0: standard input, 1: output), if it is one.
    """
    path = reading.part_of(path)[0]  # of a file with several tables
    try:
        found = os.fstat(stream) if path == "-" else os.stat(path)
    except OSError:
        return None if path == "-" else os.path.realpath(path)
    if path == "-" and not S_ISREG(found.st_mode):
        return None
    return found.st_dev, found.st_ino


HELD = {
    "text": "text",
    "parquet": "a Parquet table",
    "arrow": "an Arrow table",
    "npy": "a NumPy array",
    "npz": "a ZIP archive",
    "model": "a model",
    "onnx": "an ONNX graph",
    "page": "an HTML page",
    "other": "something else",
}
"""What files hold, in words."""


PICTURES = (".png", ".svg", ".pdf")


def check_picture(path: str, force: bool, option: str = "--chart") -> None:
    """Refuse a picture that cannot be written, before any work."""
    ending = Path(path).suffix.lower()
    if ending not in PICTURES:
        raise UsageError(f"{option} {path}: expected one of {', '.join(PICTURES)}.")
    keep_other_kinds(path, "text" if ending == ".svg" else "other", force)


def draw_picture(path: str, plot: str, *arguments: Any) -> str:
    """Write a figure of `plots`, and return the name of the file."""
    from dualpca.app import plots

    figure = getattr(plots, plot)(*arguments)
    with replacing(path) as file:
        figure.savefig(file, format=Path(path).suffix[1:].lower())
    return path


def keep_other_kinds(output: str, kind: str, force: bool = False) -> None:
    """Refuse to replace a file of another kind than the one that is written, without ``--force``.

    Parameters
    ----------
    output : str
    kind : {'text', 'parquet', 'arrow', 'npy', 'npz', 'model', 'onnx', 'page'}
    force : bool
    """
    target = target_of(output)  # a missing folder is better noticed before a long fit
    found = kind if force or not target.exists() else held_by(target)
    if found not in (kind, None):
        raise UsageError(
            f"{output} exists and holds {HELD[found]}, but {HELD[kind]} would be written. Give "
            "another name with --output, or --force to replace it."
        )


def held_by(path: str | os.PathLike[str]) -> str | None:
    """Return what a file holds, by its first bytes; None for an empty file."""
    try:
        with open(path, "rb") as file:
            head = file.read(1024)
    except OSError:  # what may not be read is not known
        return "other"
    starts = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\x93NUMPY": "npy", b"PK\x03\x04": "npz"}
    for start, kind in starts.items():
        if head.startswith(start):
            return kind
    if b'{"__metadata__"' in head[:32]:  # the layout of safetensors
        return "model"
    if b"dualpca" in head[:16]:  # the producer of a graph
        return "onnx"
    words = head.lstrip(b"\xef\xbb\xbf \r\n\t").lower()
    if words.startswith((b"<!doctype html", b"<html")):
        return "page"
    wide = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    return ("text" if wide or b"\0" not in head else "other") if head else None
