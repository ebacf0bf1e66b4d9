"""What every command shares: options, errors as words and exit statuses, JSON, progress."""

from __future__ import annotations

import io
import json
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from polars.exceptions import PolarsError

from dualpca.errors import InterruptWarning
from dualpca.progress import showing

INTERRUPTED = 130

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Format = Annotated[
    str | None, typer.Option("--format", help="csv, tsv, parquet, arrow, npy or npz.")
]
Encoding = Annotated[str, typer.Option("--encoding", help="Of CSV and TSV.")]
Identifier = Annotated[
    str | None, typer.Option("--id", help="Column of row identifiers: kept, not modelled.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of all that is random.")]
Level = Annotated[float, typer.Option("--level", help="Of the limits, between 0 and 1.")]
Model = Annotated[str, typer.Argument(help="A file that `dualpca fit` wrote.")]
Data = Annotated[str, typer.Argument(help="A table; - is standard input.")]
Output = Annotated[
    str, typer.Option("--output", "-o", help="Table to write; - is standard output.")
]


def run(command: str, as_json: bool, work: Callable[[], Mapping[str, Any]], words: Any) -> None:
    """Do the work and print what it found: as JSON, or in the words given for it.

    Exit statuses: 0 done, 1 refused or failed, 2 wrong usage (typer's), 130 interrupted.
    """
    try:
        with _progress(command, hidden=as_json), _told_warnings():
            found = work()
    except (KeyboardInterrupt, InterruptWarning):
        _fail(command, "interrupted; nothing was written.", as_json, INTERRUPTED)
    except (ValueError, TypeError, OSError, MemoryError, PolarsError) as error:
        _fail(command, str(error) or type(error).__name__, as_json, 1)
    else:
        text = json.dumps(plain(found), indent=2) if as_json else words(found)
        if text:
            print(text)


def _fail(command: str, why: str, as_json: bool, status: int) -> None:
    print(f"dualpca {command}: {why}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": why}))
    raise typer.Exit(status)


@contextmanager
def _told_warnings() -> Iterator[None]:
    """Print warnings as sentences; one that says a fit was interrupted ends the work at once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("error", InterruptWarning)
        yield
    for message in dict.fromkeys(str(one.message) for one in caught):
        print(f"warning: {message}", file=sys.stderr)


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
