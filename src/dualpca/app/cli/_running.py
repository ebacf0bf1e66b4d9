"""What every command shares: options, errors as sentences and exit statuses, JSON, progress."""

from __future__ import annotations

import io
import json
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer
from polars.exceptions import PolarsError

from dualpca.app.tables.reading import Reading
from dualpca.app.tables.text import TableError
from dualpca.arrays import memory, showing
from dualpca.errors import InterruptWarning, ModelFileError

# --- What every command shares: errors as words and exit statuses, JSON, progress ----------------

REFUSED, USAGE, TABLE, MODEL, WRITING = 1, 2, 3, 4, 5
INTERRUPTED, PIPE = 130, 141
"""Exit statuses, explained in docs/command-line.md."""


class UsageError(ValueError):
    """An option has a value that it cannot have."""


class NoteWarning(UserWarning):
    """Something the program did by itself, said aloud."""


def note(words: str) -> None:
    """Say what was done unasked; it is printed when the work ends."""
    warnings.warn(words, NoteWarning, stacklevel=2)


def run(command: str, as_json: bool, work: Callable[[], Mapping[str, Any]], words: Any) -> None:
    """Do the work and print what it found: as JSON, or in the words given for it.

    Exit statuses: 0 done, 1 refused by the model, 2 wrong usage, 3 the table, 4 the model file,
    5 nothing could be written, 130 interrupted, 141 nobody reads the output any more. Work that
    was interrupted and still found something says so by `interrupted`.
    """
    try:
        with _told_warnings(), _progress(command, hidden=as_json):
            found = work()
        text = json.dumps(plain(found), indent=2, allow_nan=False) if as_json else words(found)
        if text:
            print(text, flush=True)
    except (KeyboardInterrupt, InterruptWarning):
        _fail(command, "interrupted; nothing was written.", as_json, INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        raise typer.Exit(PIPE) from None
    except (ValueError, TypeError, OSError, MemoryError, PolarsError, ArithmeticError) as error:
        _fail(command, _sentence(error), as_json, status_of(error))
    else:
        if found.get("interrupted"):
            raise typer.Exit(INTERRUPTED)


def status_of(error: BaseException) -> int:
    """Return the exit status for an error."""
    kinds = {UsageError: USAGE, TableError: TABLE, ModelFileError: MODEL, OSError: WRITING}
    return next((code for kind, code in kinds.items() if isinstance(error, kind)), REFUSED)


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"nothing was written: {where}{error.strerror}."
    if isinstance(error, MemoryError):
        return "memory is exhausted: try --memory-limit, or --sample-rows in fit."
    return " ".join(str(error).split()) or type(error).__name__


def _fail(command: str, why: str, as_json: bool, status: int) -> None:
    print(f"dualpca {command}: {why}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": why, "status": status}))
    raise typer.Exit(status)


@contextmanager
def _told_warnings() -> Iterator[None]:
    """Print warnings as sentences; one that says a fit was interrupted ends the work at once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("error", InterruptWarning)
        try:
            yield
        finally:
            for one in dict.fromkeys((one.category, str(one.message)) for one in caught):
                kind = "note" if one[0] is NoteWarning else "warning"
                print(f"{kind}: {one[1]}", file=sys.stderr)


@contextmanager
def _progress(command: str, hidden: bool) -> Iterator[None]:
    """Show on a terminal that the work goes on, for how long, and how far it has come."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if hidden or not console.is_terminal:
        yield
        return
    columns = (BarColumn(bar_width=24), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:
        with showing(True, Followed(bar, bar.add_task(command, total=None))):
            yield


class Followed(io.StringIO):
    """Where models report to: 'EM 3 of 100, …' moves a bar, and the words stand beside it."""

    def __init__(self, bar: Any, task: Any) -> None:
        super().__init__()
        self.bar, self.task = bar, task

    def write(self, text: str) -> int:
        """Show a report."""
        counts = re.search(r"(\d+) of (\d+)", text)
        if counts:
            done, total = (int(group) for group in counts.groups())
            self.bar.update(self.task, description=text.strip(), completed=done, total=total)
        return len(text)


def plain(value: Any) -> Any:
    """Return a value as JSON has it: arrays as lists, what is not finite as words."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, bool | int | float | str | None) else repr(value)


def refuse_mixture(as_json: bool, *outputs: str | None) -> None:
    """Refuse a table and JSON on the same standard output."""
    if as_json and "-" in outputs:
        raise typer.BadParameter("--json and a table cannot both go to standard output.")


# --- The options that commands share, alone and in groups, each declared once --------------------

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Format = Annotated[
    str | None, typer.Option("--format", help="csv, tsv, parquet, arrow, npy or npz.")
]
Encoding = Annotated[str, typer.Option("--encoding", help="Of CSV and TSV.")]
Separator = Annotated[
    str | None, typer.Option("--separator", help="Between fields of text; seen unless given.")
]
Decimal = Annotated[
    str | None, typer.Option("--decimal", help="Sign in numbers: . or , ; seen unless given.")
]
Limit = Annotated[
    str | None,
    typer.Option("--memory-limit", help="Such as 500MB; larger tables are read in batches."),
]
Columns = Annotated[
    list[str] | None, typer.Option("--columns", "-c", help="Columns to take, by name or pattern.")
]
Exclude = Annotated[
    list[str] | None, typer.Option("--exclude", "-x", help="Columns to leave out, likewise.")
]
OneHot = Annotated[
    list[str] | None, typer.Option("--one-hot", help="Column to turn into zeros and ones.")
]
NumbersOnly = Annotated[
    bool, typer.Option("--numbers-only", help="Leave out every column that is not of numbers.")
]
Standardize = Annotated[
    bool, typer.Option("--standardize", help="Give every column mean 0 and variance 1 first.")
]
SampleRows = Annotated[
    int | None, typer.Option("--sample-rows", min=2, help="Use so many rows, drawn at random.")
]
Identifier = Annotated[
    str | None, typer.Option("--id", help="Column of row identifiers: kept, not modelled.")
]
SequenceColumn = Annotated[
    str | None, typer.Option("--sequence-column", help="Of hmm: column that names sequences.")
]
Lengths = Annotated[
    str | None, typer.Option("--lengths", help="Of hmm: rows of every sequence, with commas.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of all that is random.")]
Level = Annotated[float, typer.Option("--level", help="Of the limits, between 0 and 1.")]
Model = Annotated[str, typer.Argument(help="A file that `dualpca fit` wrote.")]
Data = Annotated[str, typer.Argument(help="A table, or a folder of images; - is standard input.")]
Output = Annotated[
    str, typer.Option("--output", "-o", help="Table to write; - is standard output.")
]
Page = Annotated[
    Path, typer.Option("--output", "-o", help="HTML file to write; an old one is replaced.")
]


class Source(NamedTuple):
    """How the table is written that a command reads."""

    kind: Format = None
    encoding: Encoding = "utf-8"
    separator: Separator = None
    decimal: Decimal = None
    limit: Limit = None

    def reading(self) -> Reading:
        """Return the same as the reader takes it; refuse a limit that is no size."""
        try:
            most = None if self.limit is None else memory.parsed(self.limit)
        except ValueError as error:
            raise UsageError(f"--memory-limit: {error}") from None
        sign = {"\\t": "\t", "tab": "\t"}.get(self.separator or "", self.separator)
        return Reading(self.kind, self.encoding, sign, self.decimal, most)


class Choice(NamedTuple):
    """Which columns of a table to take, and how."""

    include: Columns = None
    exclude: Exclude = None
    one_hot: OneHot = None
    numbers_only: NumbersOnly = False


GROUPS: tuple[Any, ...] = (Source, Choice)
KEYWORD = Parameter.KEYWORD_ONLY  # so that one without a default may follow one that has it


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that takes each option of its groups by itself, where the group stands.

    Typer reads options from a signature and knows no groups.

    Examples
    --------
    >>> def read(data: Data, source: Source) -> None:
    ...     print(data, source.kind, source.encoding)
    >>> list(signature(spread(read)).parameters)
    ['data', 'kind', 'encoding', 'separator', 'decimal', 'limit']
    >>> spread(read)(data="rows", kind="csv")
    rows csv utf-8
    """
    own = signature(command, eval_str=True)
    groups = {k: p.annotation for k, p in own.parameters.items() if p.annotation in GROUPS}
    options: list[Parameter] = []
    for name, parameter in own.parameters.items():
        options += _members(groups[name]) if name in groups else [parameter.replace(kind=KEYWORD)]

    @wraps(command)
    def spread_out(**given: Any) -> None:
        for name, group in groups.items():
            members = [field for field in group._fields if field in given]
            given[name] = group(**{field: given.pop(field) for field in members})
        command(**given)

    vars(spread_out)["__signature__"] = own.replace(parameters=options)
    spread_out.__annotations__ = {one.name: one.annotation for one in options}
    return spread_out


def _members(group: Any) -> list[Parameter]:
    """Return the parameters that stand for a group."""
    hints, defaults = get_type_hints(group, include_extras=True), group._field_defaults
    return [Parameter(k, KEYWORD, default=defaults[k], annotation=hints[k]) for k in group._fields]
