"""The options that commands share, alone and in groups, each declared once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer

from dualpca.app.cli._running import UsageError
from dualpca.app.tables.reading import Reading
from dualpca.arrays import memory

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
