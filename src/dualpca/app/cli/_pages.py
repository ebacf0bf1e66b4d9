"""`dualpca report`, `explore`, `reproduce` and `demo`: pages to look at in a browser."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import polars as pl
import typer

from dualpca.app.cli._beside import Apart, apart_in, apart_of
from dualpca.app.cli._fit import (
    ModelOrTable,
    NameHere,
    TableOfModel,
    fit_here,
    metadata_of,
    model_and_table,
    refuse_fitting,
)
from dualpca.app.cli._running import (
    INTERRUPTED,
    Beside,
    Choice,
    Components,
    Defuse,
    Force,
    Identifier,
    Json,
    Level,
    Page,
    Seed,
    Source,
    Standardize,
    TimeColumn,
    UsageError,
    note,
    run,
    status_of,
)
from dualpca.app.cli._session import (
    keep_inputs,
    keep_other_kinds,
    load_model,
    names_of,
    open_table,
    preparation_of,
    tell_codes,
    units_of,
)
from dualpca.app.tables import columns, reading
from dualpca.app.tables.text import TableError
from dualpca.app.tables.times import NONE, TimeAxis, find_time
from dualpca.arrays import progress
from dualpca.files.container import is_model_file

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from dualpca.app.demo import Files
    from dualpca.app.experiments.running import Record

# --- report ------------------------------------------------------------------------------------

Color = Annotated[
    str | None,
    typer.Option(
        "--color",
        help="Column to colour rows by. A model that is fitted here does not use it.",
    ),
]


def report(
    first: ModelOrTable,
    data: TableOfModel = None,
    output: Page = Path("report.html"),
    color: Color = None,
    image: Annotated[
        str | None,
        typer.Option("--image", help="Rows are images of this height x width, such as 8x8."),
    ] = None,
    curve: Annotated[
        bool, typer.Option("--curve", help="Rows are curves: columns are points, in order.")
    ] = False,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    time: TimeColumn = None,
    level: Level = 0.95,
    name: NameHere = None,
    components: Components = None,
    standardize: Standardize = None,
    *,
    choice: Choice,
    beside: Beside,
    id_column: Identifier = None,
    source: Source,
    seed: Seed = 0,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a report on a model and a table as one HTML page with figures.

    With a table alone a model is fitted first, as `dualpca fit` does without options.
    """
    model, table = model_and_table(first, data)
    asked = Asked(model, table, output, source, choice, color, image, curve, title, level)
    asked = asked._replace(components=components, standardize=standardize, name=name)
    asked = asked._replace(id_column=id_column, seed=seed, beside=beside, force=force)
    asked = asked._replace(time=time)

    def work() -> dict[str, Any]:
        start = perf_counter()
        return written(asked) | {"seconds": perf_counter() - start}

    def words(found: dict[str, Any]) -> str:
        return (
            f"Wrote {found['output']} ({found['bytes'] / 1e6:.1f} MB): {found['rows']:,} rows, "
            f"{len(found['sections'])} sections. Open it in a browser."
        )

    run("report", as_json, work, words)


class Asked(NamedTuple):
    """The options of the command."""

    model: str | None
    data: str
    output: Path
    source: Source = Source()
    choice: Choice = Choice()
    color: str | None = None
    image: str | None = None
    curve: bool = False
    title: str | None = None
    level: float = 0.95
    name: str | None = None
    components: str | None = None
    standardize: bool | None = None
    id_column: str | None = None
    seed: int = 0
    beside: Beside = Beside()
    force: bool = False
    time: str | None = None

    def command(self) -> str:
        """Return the command that makes the same page."""
        files = [name for name in (self.model, self.data) if name is not None]
        words = ["dualpca", "report", *files, "-o", str(self.output)]
        for part in (self, self.source, self.choice, self.beside):
            for name, plain in part._field_defaults.items():
                value = getattr(part, name)
                if value != plain and not isinstance(value, tuple):
                    words += _option(OPTIONS.get(name, name), value)
        return shlex.join(words)


OPTIONS = {"id_column": "id", "kind": "format", "limit": "memory-limit", "include": "columns"}
OPTIONS |= {"name": "model", "kinds": "kind", "missing": "na", "kept": "not-na"}
"""Options that are called otherwise here."""


def _option(name: str, value: Any) -> list[str]:
    """Return an option as words of a command."""
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [option if value else f"--no-{option[2:]}"]
    values = value if isinstance(value, list) else [value]
    return [word for one in values for word in (option, str(one))]


def written(asked: Asked) -> dict[str, Any]:
    """Make the page and write it; return the facts to print."""
    from dualpca.app import report as pages
    from dualpca.app.report.writing import sections_of

    keep_inputs([str(asked.output)], [asked.model, asked.data])
    keep_other_kinds(str(asked.output), "page", asked.force)
    subject = _subject(asked)
    made = {"command": asked.command(), "data": asked.data}
    made |= {} if asked.model is None else {"model file": asked.model}
    name = Path(asked.data).name if asked.data != "-" else "The table"
    title = asked.title or f"{name}, seen by {subject.kind}"
    with progress.task("section", len(sections_of(subject))) as tick:
        page = pages.build(subject, tick, title, made)
    size = pages.write_text(asked.output, pages.render(page))
    found = {"output": str(asked.output), "bytes": size, "rows": subject.n, "columns": subject.d}
    sections = {"sections": [one.title for one in page.sections]}
    return found | sections | {"left_out": dict(page.left_out)}


def _subject(asked: Asked) -> Any:
    """Read the model and the table, and return what the report is about."""
    from dualpca.app.report import subject_of

    fitted, metadata, frame = _opened(asked)
    table = metadata.get("table", {})
    ids = asked.id_column or _present(frame, table.get("identifier"))
    _check_named(frame, ("--id", ids), ("--color", asked.color))
    named = names_of(fitted) is not None
    shape = shape_of(asked.image, table)
    apart = _apart(asked, metadata, frame.columns)
    chosen = apart.chosen(frame)
    active, others = frame.filter(~chosen), frame.filter(chosen)
    prepared = preparation_of(fitted, metadata, frame.columns, ids) if named else None
    prepared = prepared and replace(prepared, units=units_of(metadata))
    found = subject_of(
        fitted,
        active,
        color=asked.color,
        ids=ids,
        image=shape,
        curve=asked.curve,
        level=asked.level,
        seed=asked.seed,
        prepared=prepared,
        command=metadata.get("command"),
        supplementary=apart.shown(active, tuple(table.get("missing", ()))),
        supplementary_rows=others if len(others) else None,
        time=_timed(asked, active, table) or NONE,
    )
    if ids is not None or not len(others):
        return found
    numbers = [tuple(str(i + 1) for i in part.arg_true()) for part in (~chosen, chosen)]
    return replace(found, ids=numbers[0], ids_beside=numbers[1])  # rows as the table counts them


def _check_named(frame: pl.DataFrame, *named: tuple[str, str | None]) -> None:
    """Refuse options that name columns which a table does not have."""
    for option, name in named:
        if name is not None and name not in frame.columns:
            raise TableError(f"{option} {name}: no such column; there are {frame.columns[:10]}.")


def _apart(asked: Asked, metadata: dict[str, Any], there: list[str]) -> Apart:
    """Return what the report shows beside the model: as asked, else as the model file says."""
    known = apart_in(metadata)
    found = apart_of(asked.beside, asked.choice, there)
    used = set(metadata.get("table", {}).get("columns", ()))
    taken = [name for name in found.columns if name in used]
    if taken:
        raise TableError(f"--supplementary {taken[0]}: the model uses this column.")
    rows = found.rows or tuple(pair for pair in known.rows if pair[0] in there)
    return Apart(found.columns or known.columns, found.categories or known.categories, rows)


def _opened(asked: Asked) -> tuple[Any, dict[str, Any], pl.DataFrame]:
    """Return the model with its metadata and the table; a model is fitted where none is given."""
    if asked.model is None:
        options = (asked.id_column, asked.components, asked.standardize, asked.seed)
        more: dict[str, Any] = {"beside": asked.beside, "time": asked.time, "color": asked.color}
        made = fit_here(asked.data, asked.source, asked.choice, *options, asked.name, **more)
        metadata = metadata_of(made.prep) | made.apart.entry()
        return made.model, metadata, pl.concat(made.table.open())
    refuse_fitting(asked.model, asked.choice, asked.components, asked.standardize, asked.name)
    fitted, metadata = load_model(asked.model)
    entry = metadata.get("table", {})
    ids = asked.id_column or entry.get("identifier")
    opened = open_table(asked.data, asked.source.reading(), ids, must=False, known=entry)
    metadata |= {"table": entry | {"missing": list(opened.missing)}}
    metadata |= {"units": units_of(metadata, opened)}
    prep = preparation_of(fitted, metadata, opened.columns, ids)
    tell_codes(opened, prep)
    if asked.color in prep.names:
        note(
            f"column {asked.color!r} colours the rows and is part of the model, so its groups lie "
            "apart whatever the other columns say. dualpca fit --exclude "
            f"{columns.quoted(asked.color)} leaves it out."
        )
    return fitted, metadata, pl.concat(opened.open())


def _timed(asked: Asked, frame: pl.DataFrame, table: dict[str, Any]) -> TimeAxis | None:
    """Return the time of rows: as asked, else as the fit found it, else among other columns."""
    known = asked.time or _present(frame, table.get("time"))
    used = {*table.get("columns", ()), asked.id_column, table.get("identifier")}
    return find_time(frame, known, [name for name in frame.columns if name not in used])


def _present(frame: pl.DataFrame, name: Any) -> str | None:
    return name if isinstance(name, str) and name in frame.columns else None


def shape_of(image: str | None, table: dict[str, Any]) -> tuple[int, int] | None:
    """Return height and width of images: as given, or from the model file."""
    if image is None:
        known = table.get("image_shape")
        return (int(known[0]), int(known[1])) if known and len(known) == 2 else None
    size = reading.parse_shape(image)
    if len(size) != 2:
        raise TableError(f"--image {image}: expected height and width, such as 8x8.")
    return size[0], size[1]


# --- explore -----------------------------------------------------------------------------------


def explore(
    first: ModelOrTable,
    data: TableOfModel = None,
    image: Annotated[
        str | None,
        typer.Option("--image", help="Rows are images of this height x width, such as 8x8."),
    ] = None,
    curve: Annotated[
        bool, typer.Option("--curve", help="Rows are curves: columns are points, in order.")
    ] = False,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 is any free one.")] = 0,
    token: Annotated[
        str | None, typer.Option("--token", help="Token of the link, for tests; random by default.")
    ] = None,
    time: TimeColumn = None,
    color: Color = None,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = True,
    name: NameHere = None,
    components: Components = None,
    standardize: Standardize = None,
    *,
    choice: Choice,
    id_column: Identifier = None,
    source: Source,
    seed: Seed = 0,
    defuse: Defuse = False,
    as_json: Json = False,
) -> None:
    """Explore a model in the browser; Ctrl-C stops the server.

    With a table alone a model is fitted first, as `dualpca fit` does without options. With a model
    alone there are no rows to show, but for those that kernel models keep.
    """
    held: list[Any] = []
    lonely = data is None and is_model_file(first)
    model, table = (first, None) if lonely else model_and_table(first, data)

    def work() -> dict[str, Any]:
        from dualpca.app.explorer.app import open_door, prepare
        from dualpca.app.explorer.session import open_session

        frame, when = None, None
        if table is None:
            refuse_fitting(first, choice, components, standardize, name)
            for option, column in (("--time", time), ("--color", color)):
                if column is not None:
                    raise UsageError(f"{option} {column}: name a table too, after the model file.")
            fitted, metadata = load_model(first)
        else:
            asked = Asked(model, table, Path(), source, choice, id_column=id_column, name=name)
            asked = asked._replace(components=components, standardize=standardize, seed=seed)
            asked = asked._replace(time=time, color=color)
            fitted, metadata, frame = _opened(asked)
            _check_named(frame, ("--color", color))
            when = _timed(asked, frame, metadata.get("table", {}))
        session = open_session(
            fitted,
            frame,
            metadata,
            image=image,
            curve=curve,
            id_column=id_column,
            source=table or "no table",
            time=when,
            color=color,
            defuse=defuse,
        )
        door = open_door(host, port, token)
        held.extend((prepare(session, door, show), door))
        if not door.is_private:
            warn_of_host(host)
        return {"url": door.link, "port": door.port, "model": fitted, "rows": session.n}

    try:
        run("explore", as_json, work, _explore_words)
        from dualpca.app.explorer.app import serve

        sys.stdout.flush()
        serve(*held)
    except KeyboardInterrupt:  # after the link was printed, before the server runs
        pass
    if not as_json:
        print("Stopped.")


def warn_of_host(host: str) -> None:
    """Warn that a page can be reached from elsewhere."""
    print(
        f"warning: --host {host} lets other machines reach this port. Whoever has the "
        "link can see the data, and the connection is not encrypted.",
        file=sys.stderr,
    )


def _explore_words(found: dict[str, Any]) -> str:
    what = f"Exploring {found['model']} with {found['rows']} rows."
    return f"{what} Ctrl-C stops the server.\n{found['url']}"


# --- reproduce ---------------------------------------------------------------------------------

FOLDER = Path("dualpca-figures")


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of figures (see --list); all by default.")
    ] = None,
    folder: Annotated[
        Path, typer.Option("--output", "-o", help="Folder to write to; created if needed.")
    ] = FOLDER,
    listing: Annotated[bool, typer.Option("--list", help="List the figures.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller settings, for a quick look.")
    ] = False,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            help="Folder with mnist10k.npz, or 'openml' to download MNIST; without it, figures of "
            "MNIST are made of scikit-learn's 8 × 8 digits.",
        ),
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Reproduce the figures of the source documents: PNG, SVG, numbers, and a gallery page."""
    if listing:
        run("reproduce", as_json, _listed, _listing_words)
        return
    found: dict[str, Any] = {}

    def work() -> dict[str, Any]:
        found.update(_made(names or [], folder, seed, quick, data, quiet=as_json))
        return found

    run("reproduce", as_json, work, _reproduce_words)
    if found["interrupted"] or found["problems"]:
        raise typer.Exit(INTERRUPTED if found["interrupted"] else 1)


def _listed() -> dict[str, Any]:
    from dualpca.app.experiments import EXPERIMENTS

    return {
        "experiments": [
            {"name": one.name, "source": one.source, "title": one.title}
            for one in EXPERIMENTS.values()
        ]
    }


def _listing_words(found: dict[str, Any]) -> str:
    rows = found["experiments"]
    wide, source = (max(len(row[key]) for row in rows) for key in ("name", "source"))
    return "\n".join(
        f"{row['name']:{wide}}  {row['source']:{source}}  {row['title']}" for row in rows
    )


def _made(
    names: list[str], folder: Path, seed: int, quick: bool, data: str | None, quiet: bool
) -> dict[str, Any]:
    """Run the experiments; an interruption keeps what is finished."""
    from dualpca.app import experiments
    from dualpca.app.experiments.running import PAGE

    done: list[Record] = []

    def tell(record: Record) -> None:
        done.append(record)
        if not quiet:
            print(_line(record), flush=True)

    interrupted = False
    try:
        experiments.reproduce(names, folder, seed=seed, quick=quick, data=data, progress=tell)
    except KeyboardInterrupt:
        interrupted = True
    return {
        "page": str(folder / PAGE),
        "asked": len(dict.fromkeys(names or experiments.EXPERIMENTS)),
        "made": [record._asdict() for record in done if not record.problem],
        "problems": {record.name: record.problem for record in done if record.problem},
        "seconds": round(sum(record.seconds for record in done), 1),
        "interrupted": interrupted,
    }


def _line(record: Record) -> str:
    words = f"not made: {record.problem}" if record.problem else f"{record.seconds:.1f} s"
    return f"{record.name}  {words}"


def _reproduce_words(found: dict[str, Any]) -> str:
    count = f"{len(found['made'])} of {found['asked']}"
    start = "Interrupted: " if found["interrupted"] else ""
    return f"{start}{count} made in {found['seconds']:.1f} s. Open {found['page']} in a browser."


# --- demo --------------------------------------------------------------------------------------


def demonstrate(
    output: Page = Path("dualpca-demo.html"),
    seed: Seed = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Compare models on handwritten digits; write an HTML report, its model and its data."""
    raise typer.Exit(_demo(output, seed, quiet or as_json, as_json, force))


def _demo(output: Path, seed: int, quiet: bool, as_json: bool = False, force: bool = False) -> int:
    """Run the demonstration and return the exit status."""
    from rich.console import Console

    from dualpca.app import demo

    start = perf_counter()
    console, errors = Console(quiet=quiet, highlight=False), Console(stderr=True, highlight=False)
    try:
        keep_other_kinds(str(output), "page", force)
        files = demo.run(output, seed, console, _progress(errors, quiet))
    except (OSError, UsageError) as problem:
        errors.print(f"dualpca demo: {problem}", markup=False, soft_wrap=True)
        return _failed(str(problem), status_of(problem), as_json)
    except KeyboardInterrupt:
        errors.print("Interrupted; nothing was written.")
        return _failed("interrupted; nothing was written.", INTERRUPTED, as_json)
    seconds = perf_counter() - start
    if as_json:
        made = {"output": str(files.page), "bytes": files.size, "seconds": seconds}
        made |= {"model": str(files.model), "data": str(files.data)}
        print(json.dumps(made, indent=2))
    for words in _lines(files, seconds):
        console.print(words, markup=False, soft_wrap=True)
    return 0


def _progress(errors: Console, quiet: bool) -> Progress:
    """Return a progress bar, hidden if there is no terminal."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn("line"), BarColumn(bar_width=24), TextColumn("{task.description}"))
    hidden = quiet or not errors.is_terminal
    return Progress(*columns, console=errors, transient=True, disable=hidden)


def _failed(why: str, status: int, as_json: bool) -> int:
    """Print the error as JSON, if asked for; return the exit status."""
    if as_json:
        print(json.dumps({"error": why, "status": status}))
    return status


def _lines(files: Files, seconds: float) -> list[str]:
    return [
        f"Wrote {files.page} ({files.size / 1e6:.1f} MB) in {seconds:.1f} s. Open it in a browser.",
        "To explore the model yourself:",
        f"    dualpca explore {shlex.quote(str(files.model))} {shlex.quote(str(files.data))}",
    ]


COMMANDS = {"report": report, "explore": explore, "reproduce": reproduce, "demo": demonstrate}
