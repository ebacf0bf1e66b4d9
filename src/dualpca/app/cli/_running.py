"""What every command shares: options, errors as sentences and exit statuses, JSON, progress."""

from __future__ import annotations

import io
import json
import math
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer
from polars.exceptions import PolarsError

from dualpca.app.tables.profiles import KindAsked
from dualpca.app.tables.reading import Reading
from dualpca.app.tables.text import NO_SIGN, TableError
from dualpca.app.tables.thousands import NAMED, SIGNS
from dualpca.arrays import memory, showing
from dualpca.errors import InterruptWarning, ModelFileError

# --- running a command: errors, statuses, JSON, progress ---------------------------------------

REFUSED, USAGE, TABLE, MODEL, WRITING = 1, 2, 3, 4, 5
INTERRUPTED, PIPE = 130, 141
"""Exit statuses, explained in docs/guide/command-line.md."""


class UsageError(ValueError):
    """An option has an invalid value."""


class NoteWarning(UserWarning):
    """Something the program decided by itself, and tells the user."""


def note(words: str) -> None:
    """Tell the user what the program decided, before anything is written."""
    warnings.warn(words, NoteWarning, stacklevel=2)


def run(
    command: str,
    as_json: bool,
    work: Callable[[], Mapping[str, Any]],
    words: Any,
    streams: bool = False,
) -> None:
    """Do the work and print the result: as JSON, or as the text that `words` makes of it.

    Work that `streams` prints lines itself: there is no progress bar then, and the result is one
    line more.

    Exit statuses: 0 done, 1 refused by the model, 2 wrong usage, 3 the table, 4 the model file,
    5 nothing could be written, 130 interrupted, 141 the reader of the output has gone. A result
    of interrupted work has a true `interrupted`.
    """
    try:
        with _told_warnings(command), _progress(command, hidden=as_json or streams):
            found = work()
        indent = None if streams else 2
        text = json.dumps(plain(found), indent=indent, allow_nan=False) if as_json else words(found)
        if text:
            print(text if as_json else attributed(command, text), flush=True)
    except (KeyboardInterrupt, InterruptWarning):
        _fail(command, "interrupted; nothing was written.", as_json, INTERRUPTED)
    except BrokenPipeError:
        _discard_output()
        raise typer.Exit(PIPE) from None
    except (ValueError, TypeError, OSError, MemoryError, PolarsError, ArithmeticError) as error:
        _fail(command, attributed(command, _sentence(error)), as_json, status_of(error))
    else:
        if found.get("interrupted"):
            raise typer.Exit(INTERRUPTED)


def status_of(error: BaseException) -> int:
    """Return the exit status of an error."""
    kinds = {UsageError: USAGE, TableError: TABLE, ModelFileError: MODEL, OSError: WRITING}
    return next((code for kind, code in kinds.items() if isinstance(error, kind)), REFUSED)


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"nothing was written: {where}{error.strerror}."
    if isinstance(error, MemoryError):
        told = str(error).rstrip(".") or "memory ran out"
        return f"{told}. Here --memory-limit helps, or dualpca fit --sample-rows."
    return " ".join(str(error).split()) or type(error).__name__


def _fail(command: str, why: str, as_json: bool, status: int) -> None:
    print(f"dualpca {command}: {why}", file=sys.stderr)
    if as_json:
        try:
            print(json.dumps({"error": why, "status": status}), flush=True)
        except OSError:  # nobody can be told there: the status still can
            _discard_output()
    raise typer.Exit(status)


def _discard_output() -> None:
    """Send what is left of standard output nowhere, so that the flush at exit cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _told_warnings(command: str) -> Iterator[None]:
    """Print warnings as sentences, once; one that a fit was interrupted ends the work at once."""
    told = set()

    def tell(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
        words = str(message).replace("standardize=True", "--standardize")
        words = words.replace("Use FactorAnalysis", "Use -m fa")
        words = attributed(command, re.sub(r"\bn_components=(\d+)", r"-q \1", words))
        if (category, words) not in told:
            told.add((category, words))
            kind = "note" if category is NoteWarning else "warning"
            print(f"{kind}: {words}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.simplefilter("error", InterruptWarning)
        warnings.showwarning = tell
        yield


@contextmanager
def _progress(command: str, hidden: bool) -> Iterator[None]:
    """Show progress and elapsed time on a terminal; elsewhere a line now and then."""
    if hidden:
        yield
        return
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        with showing(True, Lines(command)):
            yield
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(bar_width=24), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:
        with showing(True, Followed(bar, bar.add_task(command, total=None))):
            yield


COUNTS = re.compile(r"(\d+) of (\d+)")
BETWEEN_LINES = 10.0
"""Seconds before the first line on how far work has come, and between two of them."""


class Lines(io.StringIO):
    """A stream for reports of models where there is no terminal: what takes long tells so."""

    def __init__(self, command: str, between: float = BETWEEN_LINES) -> None:
        super().__init__()
        self.command, self.between = command, between
        self.start = self.last = time.monotonic()

    def write(self, text: str) -> int:
        """Print a report as a line of its own, if the last one is old enough."""
        now = time.monotonic()
        if COUNTS.search(text) and now - self.last >= self.between:
            self.last = now
            words = f"dualpca {self.command}: {text.strip()} ({now - self.start:.0f} s)"
            print(words, file=sys.stderr, flush=True)
        return len(text)


class Followed(io.StringIO):
    """A stream for reports of models: 'EM 3 of 100, …' moves a bar, with the text next to it."""

    def __init__(self, bar: Any, task: Any) -> None:
        super().__init__()
        self.bar, self.task = bar, task

    def write(self, text: str) -> int:
        """Show a report."""
        counts = COUNTS.search(text)
        if counts:
            done, total = (int(group) for group in counts.groups())
            self.bar.update(self.task, description=text.strip(), completed=done, total=total)
        return len(text)


def plain(value: Any) -> Any:
    """Return a value for JSON: arrays as lists, numbers that are not finite as text."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, bool | int | float | str | None) else repr(value)


def refuse_json_and_table(as_json: bool, *outputs: str | None) -> None:
    """Refuse to write both a table and JSON to standard output."""
    if as_json and "-" in outputs:
        raise typer.BadParameter("--json and a table cannot both go to standard output.")


# --- options in messages -----------------------------------------------------------------------

OPTION = re.compile(r"(?<![\w-])(?<!python )(--[a-z][a-z-]*|-[a-z])(?![\w-])")
"""An option in a text, but for those of ``python -m``."""


@cache
def options_of(command: str) -> frozenset[str]:
    """Return the options that a command has, such as --output and -o."""
    from typer.main import get_command

    from dualpca.app.cli import build

    parameters = vars(get_command(build([command])))["commands"][command].params
    return frozenset({"--help"}.union(*((*one.opts, *one.secondary_opts) for one in parameters)))


def attributed(command: str, words: str) -> str:
    """Return a message in which options that a command does not have are said to be another's.

    Readers, models and checks are shared by commands, and what helps one of them may be an option
    of `fit` alone. A message that names the other command itself stays as it is.

    Examples
    --------
    >>> attributed("score", "leave it out with --exclude name, or use --na x.")
    'leave it out with --exclude name, or use --na x. (--exclude is an option of dualpca fit.)'
    >>> attributed("fit", "leave it out with --exclude name.")
    'leave it out with --exclude name.'
    """
    from dualpca.app.cli import COMMANDS

    named = list(dict.fromkeys(OPTION.findall(words)))
    own = options_of(command) if named else frozenset()
    others: dict[str, list[str]] = {}
    for option in (one for one in named if one not in own):
        owners = [name for name in COMMANDS if option in options_of(name)]
        if owners and not any(f"dualpca {name}" in words for name in owners):
            others.setdefault(owners[0], []).append(option)
    for name, some in others.items():
        what = "is an option" if len(some) == 1 else "are options"
        words = f"{words} ({', '.join(some)} {what} of dualpca {name}.)"
    return words


# --- options that commands share, alone and in groups ------------------------------------------

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Format = Annotated[
    str | None,
    typer.Option("--format", help="Table format: csv, tsv, xlsx, parquet, arrow, npy or npz."),
]
Encoding = Annotated[str, typer.Option("--encoding", help="Encoding of CSV and TSV.")]
Separator = Annotated[
    str | None, typer.Option("--separator", help="Field separator of text; detected by default.")
]
Decimal = Annotated[
    str | None, typer.Option("--decimal", help="Decimal sign, . or , ; detected by default.")
]
Missing = Annotated[
    list[str] | None,
    typer.Option(
        "--na",
        help="Codes of missing entries beside the usual, such as -999 or -99,unknown; of one "
        "column as COLUMN=CODES.",
    ),
]
Kept = Annotated[
    list[str] | None,
    typer.Option(
        "--not-na",
        help="Codes that are values, such as NA or None; of one column as COLUMN=CODES.",
    ),
]
Thousands = Annotated[
    str | None,
    typer.Option(
        "--thousands",
        help="Thousands separator: comma, point, space or apostrophe; or none. Detected by "
        "default.",
    ),
]
Skip = Annotated[
    int | None,
    typer.Option(
        "--skip", min=0, help="Lines to skip above the header; titles are found by default."
    ),
]
Header = Annotated[
    int | None,
    typer.Option("--header", min=1, help="Line with the names of columns; found by default."),
]
NoHeader = Annotated[
    bool, typer.Option("--no-header", help="The first line is a row: columns have no names.")
]
UnitsLine = Annotated[
    int | None,
    typer.Option(
        "--units", min=0, help="Line with the units of columns, or 0 for none; found by default."
    ),
]
Sheet = Annotated[
    str | None,
    typer.Option(
        "--sheet", help="Sheet of a spreadsheet, as in table.xlsx::Sheet2; by default the first."
    ),
]
Cells = Annotated[
    str | None,
    typer.Option(
        "--range", help="Cells of a sheet to read, such as A5:F20; by default its largest table."
    ),
]
Array = Annotated[
    str | None,
    typer.Option("--array", help="Array of an NPZ file, as in table.npz::X; by default X."),
]
Limit = Annotated[
    str | None,
    typer.Option(
        "--memory-limit", help="Memory to use, such as 500MB; larger tables are read in batches."
    ),
]
Columns = Annotated[
    list[str] | None, typer.Option("--columns", "-c", help="Columns to use, by name or pattern.")
]
Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", "-x", help="Columns to leave out, by name or pattern."),
]
OneHot = Annotated[
    list[str] | None,
    typer.Option("--one-hot", help="Column to encode as zeros and ones, whatever it holds."),
]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        help="Kind of a column, as COLUMN=KIND: continuous, count, ordinal, nominal, binary or "
        "censored (copula only). An order may follow: grade=ordinal:low,middle,high; or limits: "
        "crp=censored:below=5.",
    ),
]
NumbersOnly = Annotated[
    bool, typer.Option("--numbers-only", help="Leave out columns that do not hold numbers.")
]
Standardize = Annotated[
    bool | None,
    typer.Option(
        "--standardize/--no-standardize",
        help="Scale every column to mean 0 and variance 1, or keep the units of the table. "
        "The default is to scale, but not images and NumPy's matrices.",
        show_default=False,
    ),
]
Components = Annotated[
    str | None,
    typer.Option(
        "--components",
        "-q",
        help="A number, a share of the variance, or the name of a rule. The default is parallel "
        "analysis (ppca, robust, fa), and cross-validation for impute and calibrate.",
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Let the output replace a file of another kind.")
]
ForceHere = Annotated[
    bool, typer.Option("--force", help="Let the output replace the table, or another kind of file.")
]
SampleRows = Annotated[
    int | None, typer.Option("--sample-rows", min=2, help="Use this many rows, drawn at random.")
]
Identifier = Annotated[
    str | None,
    typer.Option("--id", help="Column of row identifiers, which the model does not use."),
]
TimeColumn = Annotated[
    str | None,
    typer.Option(
        "--time",
        help="Column that tells the time of rows, which are drawn over it and which the model does "
        "not use; or none. By default dates, or increasing numbers called like time, are found.",
        show_default=False,
    ),
]
SequenceColumn = Annotated[
    str | None, typer.Option("--sequence-column", help="Column that names sequences (hmm only).")
]
Lengths = Annotated[
    str | None,
    typer.Option("--lengths", help="Rows of every sequence, separated by commas (hmm only)."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Random seed.")]
Level = Annotated[float, typer.Option("--level", help="Level of the limits, between 0 and 1.")]
Model = Annotated[str, typer.Argument(help="Model file written by `dualpca fit`.")]
Data = Annotated[str, typer.Argument(help="Table, or folder of images; - is standard input.")]
Output = Annotated[
    str, typer.Option("--output", "-o", help="Table to write; - is standard output.")
]
Defuse = Annotated[
    bool,
    typer.Option(
        "--defuse",
        help="In CSV, put an apostrophe before text that spreadsheets would run as a formula.",
    ),
]
Page = Annotated[
    Path, typer.Option("--output", "-o", help="HTML file to write; an existing one is replaced.")
]


class Source(NamedTuple):
    """How the table of a command is to be read."""

    kind: Format = None
    encoding: Encoding = "utf-8"
    separator: Separator = None
    decimal: Decimal = None
    limit: Limit = None
    missing: Missing = None
    kept: Kept = None
    thousands: Thousands = None
    skip: Skip = None
    header: Header = None
    no_header: NoHeader = False
    units: UnitsLine = None
    sheet: Sheet = None
    cells: Cells = None
    array: Array = None

    def reading(self) -> Reading:
        """Return the options for the reader; refuse a limit that is not a size."""
        try:
            most = None if self.limit is None else memory.parsed(self.limit)
        except ValueError as error:
            raise UsageError(f"--memory-limit: {error}") from None
        sign = {"\\t": "\t", "tab": "\t"}.get(self.separator or "", self.separator)
        missing, kept = _codes(self.missing or []), _codes(self.kept or [])
        found = Reading(self.kind, self.encoding, sign, self.decimal, most, missing)
        header = 0 if self.no_header else self.header
        found = found._replace(header=header, skip=self.skip, units=self.units, kept=kept)
        found = found._replace(sheet=self.sheet, cells=self.cells, array=self.array)
        return found._replace(thousands=self._thousands())

    def _thousands(self) -> str | None:
        """Return the sign that separates thousands; refuse options that exclude each other."""
        if self.no_header and self.header is not None:
            raise UsageError("--header and --no-header exclude each other: give one of them.")
        if self.skip is not None and self.header is not None:
            raise UsageError("--skip and --header both say where the header is: give one of them.")
        if self.thousands is None or self.thousands == NO_SIGN:
            return self.thousands
        sign = NAMED.get(self.thousands, self.thousands)
        if sign not in SIGNS:
            some = ", ".join([*NAMED, NO_SIGN])
            raise UsageError(f"--thousands {self.thousands}: expected one of {some}.")
        if sign == self.decimal:
            raise UsageError(f"--thousands and --decimal cannot both be {sign!r}.")
        return sign


def _codes(given: list[str]) -> tuple[str, ...]:
    """Return the codes of an option; a column's name holds for those after it.

    Examples
    --------
    >>> _codes(["-99, unknown"]), _codes(["age=-999,-99"])
    (('-99', 'unknown'), ('age=-999', 'age=-99'))
    """
    found = []
    for words in given:
        name = ""
        for code in (part.strip() for part in words.split(",")):
            if "=" in code[1:]:
                name = code[: code.index("=", 1) + 1]
            elif code:
                code = name + code
            found += [code] if code else []
    return tuple(dict.fromkeys(found))


class Choice(NamedTuple):
    """Which columns of a table to use, and how."""

    include: Columns = None
    exclude: Exclude = None
    one_hot: OneHot = None
    numbers_only: NumbersOnly = False
    kinds: Kinds = None

    def asked(self) -> dict[str, KindAsked]:
        """Return the kinds of columns that were given, checked."""
        found: dict[str, KindAsked] = {}
        for one in self.kinds or []:
            name, kind = _kind(one)
            if name in found:
                raise UsageError(f"--kind {one}: {name} has a kind already; give one for a column.")
            found[name] = kind
        return found

    def levels(self) -> dict[str, tuple[str, ...]]:
        """Return the levels of columns that were given."""
        return {name: one.levels for name, one in self.asked().items() if one.levels}


KINDS = ("continuous", "count", "ordinal", "nominal", "binary", "censored")
KIND = re.compile(rf"(.+)=({'|'.join(KINDS)})(?::(.*))?")
LIMITS = re.compile(r"(below|above)=(.+)")


def _kind(words: str) -> tuple[str, KindAsked]:
    """Return the column and its kind of COLUMN=KIND, with the order or limits after a colon.

    Examples
    --------
    >>> _kind("grade=ordinal:low,high")
    ('grade', KindAsked(kind='ordinal', levels=('low', 'high'), below=None, above=None))
    >>> _kind("crp=censored:below=5")[1].below
    5.0
    """
    match = KIND.fullmatch(words)
    if match is None:
        raise UsageError(f"--kind {words}: expected COLUMN=KIND, where KIND is {', '.join(KINDS)}.")
    name, kind, more = match.groups()
    if more is None:
        return name, KindAsked(kind)
    parts = tuple(part.strip() for part in more.split(","))
    if kind == "ordinal" and len(set(parts)) == len(parts) > 1 and all(parts):
        return name, KindAsked(kind, parts)
    ends = (LIMITS.fullmatch(part) for part in parts)
    limits = {end[1]: end[2] for end in ends if end is not None}
    if kind == "censored" and len(limits) == len(parts):
        try:
            return name, KindAsked(kind, (), *(_limit(limits, end) for end in ("below", "above")))
        except ValueError:
            pass
    raise UsageError(
        f"--kind {words}: after a colon come the levels of an ordinal column in order "
        "(ordinal:low,middle,high) or the limits of a censored one (censored:below=5,above=100)."
    )


def _limit(limits: Mapping[str, str], end: str) -> float | None:
    return float(limits[end]) if end in limits else None


class Beside(NamedTuple):
    """What a table has beside the model."""

    supplementary: Annotated[
        list[str] | None,
        typer.Option(
            "--supplementary",
            help="Columns that the model does not use and reports show, by name or pattern.",
        ),
    ] = None
    supplementary_rows: Annotated[
        list[str] | None,
        typer.Option(
            "--supplementary-rows",
            help="Rows that the model does not use and reports show, as COLUMN=VALUE.",
        ),
    ] = None


GROUPS: tuple[Any, ...] = (Source, Choice, Beside)
KEYWORD = Parameter.KEYWORD_ONLY  # so that one without a default may follow one that has it


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that accepts the options of its groups one by one, in place of the group.

    Typer reads options from a signature and has no groups.

    Examples
    --------
    >>> def read(data: Data, source: Source) -> None:
    ...     print(data, source.kind, source.encoding)
    >>> list(signature(spread(read)).parameters)
    ['data', 'kind', 'encoding', 'separator', ..., 'array']
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
    """Return the parameters of a group."""
    hints, defaults = get_type_hints(group, include_extras=True), group._field_defaults
    return [Parameter(k, KEYWORD, default=defaults[k], annotation=hints[k]) for k in group._fields]
