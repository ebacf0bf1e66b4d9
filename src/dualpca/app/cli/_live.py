"""`dualpca monitor` and `dualpca watch`: what is ordinary, and rows judged as they come."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer

import dualpca
from dualpca.app.cli._fit import metadata_of, name_of, value_of
from dualpca.app.cli._running import (
    Choice,
    Components,
    Data,
    Decimal,
    Defuse,
    Encoding,
    Force,
    Identifier,
    Json,
    Seed,
    Separator,
    Source,
    UsageError,
    note,
    run,
)
from dualpca.app.cli._session import (
    at_once,
    check_picture,
    draw_picture,
    features_of,
    keep_inputs,
    keep_other_kinds,
    load_model,
    names_of,
    open_table,
    prepared,
)
from dualpca.app.live.following import FileTail, StreamTail
from dualpca.app.live.judging import Out, State, Watch, fingerprint, load_state
from dualpca.app.live.records import Layout, Records
from dualpca.app.live.words import sensor_words, title
from dualpca.app.tables.columns import Preparation, of_table
from dualpca.app.tables.times import NONE, TimeAxis, find_time
from dualpca.errors import ModelFileError

# --- monitor -----------------------------------------------------------------------------------

FAMILIES = {"robust": "RobustPPCA", "ppca": "PPCA", "factor": "FactorAnalysis"}
"""Models of a monitor by name."""

SHOWN = 10
"""Largest number of episodes in the text."""

Time = Annotated[
    str | None,
    typer.Option(
        "--time",
        help="Column of dates or times, which the model does not use; found by default. 'none': "
        "there is none.",
    ),
]


def monitor(
    data: Data,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", help="Model file to write; by default the table's name with .dpca."
        ),
    ] = None,
    *,
    time: Time = None,
    arl: Annotated[
        float,
        typer.Option("--arl", help="Mean number of ordinary rows between two false alarms."),
    ] = 370.0,
    name: Annotated[
        str, typer.Option("--model", "-m", help=f"One of {', '.join(FAMILIES)}.")
    ] = "robust",
    components: Components = None,
    statistics: Annotated[
        str | None,
        typer.Option(
            "--statistics",
            help="Which to judge by, separated by commas: t2, spe, mewma, residual, cusum, "
            "residual_cusum. By default the first four.",
        ),
    ] = None,
    lags: Annotated[
        int, typer.Option("--lags", min=0, help="Rows before each row that are part of it.")
    ] = 0,
    trim: Annotated[
        bool, typer.Option("--trim/--no-trim", help="Set bad episodes of the table aside.")
    ] = True,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other parameter of Monitor, as name=value."),
    ] = None,
    chart: Annotated[
        str | None,
        typer.Option("--chart", help="Picture to write: the control chart of the table."),
    ] = None,
    choice: Choice,
    id_column: Identifier = None,
    source: Source,
    seed: Seed = 0,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Learn from a table what is ordinary, and write a monitor for `dualpca watch`.

    The table holds rows of ordinary operation in the order of time. Bad episodes in it are found
    and set aside. Limits are such that ordinary rows raise a false alarm once in `--arl` rows.
    """
    target = output or f"{name_of(data)}.dpca"

    def work() -> dict[str, Any]:
        keep_inputs([target, chart], [data])
        keep_other_kinds(target, "model", force)
        if chart is not None:
            check_picture(chart, force)
        fresh = _monitor_of(name, components, arl, statistics, lags, trim, seed, setting or [])
        table = at_once(open_table(data, source.reading(), id_column), None, seed, in_order=True)
        frame = table.frame()
        axis = find_time(frame, time)
        beside = [] if axis is None else [axis.name]
        if axis is not None and time is None:
            note(
                f"column {axis.name!r} is the time of the rows, and not part of the model (--time)."
            )
        prep = prepared(table, _measured(choice, beside), id_column)
        rows = prep.rows(frame)
        fresh.fit(rows, time=_moments(axis))
        metadata = metadata_of(prep) | {"monitor": {"columns": table.columns}}
        if axis is not None:
            metadata["monitor"]["time"] = axis.name
        dualpca.save(fresh, target, metadata=metadata)
        found = {"output": target, **_facts(fresh, rows), "columns": prep.features}
        found |= {"time": None if axis is None else axis.name, "identifier": prep.identifier}
        if chart is not None:
            found["chart"] = draw_picture(chart, "control_chart", fresh)
        return found

    run("monitor", as_json, work, _monitor_words)


def _monitor_of(
    name: str,
    components: str | None,
    arl: float,
    statistics: str | None,
    lags: int,
    trim: bool,
    seed: int,
    settings: list[str],
) -> Any:
    """Return a monitor that is not fitted yet."""
    if name not in FAMILIES:
        raise UsageError(f"--model {name}: no such model; there are {', '.join(FAMILIES)}.")
    given: dict[str, Any] = {"arl": arl, "lags": lags, "trim": trim, "random_state": seed}
    if name != "robust" or components is not None:
        own = {} if components is None else {"n_components": value_of(components)}
        given["model"] = getattr(dualpca, FAMILIES[name])(standardize=True, **own)
    if statistics is not None:
        given["statistics"] = tuple(part.strip() for part in statistics.split(",") if part.strip())
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"--set {setting}: expected name=value, such as smoothing=0.2.")
        given[key] = value_of(value)
    known = dualpca.Monitor().get_params(deep=False)
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise UsageError(f"Monitor has no parameter {unknown[0]!r}; it has {', '.join(known)}.")
    return dualpca.Monitor(**given)


def _measured(choice: Choice, beside: list[str]) -> Choice:
    """Return the columns to use: numbers, without what stands beside the model."""
    if choice.one_hot or choice.kinds:
        option = "--one-hot" if choice.one_hot else "--kind"
        raise UsageError(f"{option}: a monitor judges numbers; categories are left out.")
    literal = ["".join(f"[{c}]" if c in "*?[" else c for c in name) for name in beside]
    exclude = [*(choice.exclude or []), *literal]
    return choice._replace(exclude=exclude or None, numbers_only=True)


def _moments(axis: TimeAxis | None) -> Any:
    """Return the times of rows as a chart draws them."""
    if axis is None:
        return None
    if axis.kind not in ("date", "datetime"):
        return axis.values
    return (np.nan_to_num(axis.values, nan=0.0) * 1e6).astype("datetime64[us]")


def _facts(fitted: Any, rows: pl.DataFrame) -> dict[str, Any]:
    """Return what a monitor has learnt."""
    aside = [_episode(one) for one in fitted.set_aside_]
    return {
        "rows": rows.height,
        "sensors": rows.width,
        "model": type(fitted.model_).__name__,
        "n_components": int(np.max(fitted.model_.n_components_)),
        "set_aside": aside,
        "limits": {name: float(limit) for name, limit in fitted.limits_.items()},
        "arl": float(fitted.arl),
        "missing": int(np.isnan(rows.to_numpy()).sum()),
    }


def _episode(one: Any) -> dict[str, Any]:
    """Return an episode of the table, with rows counted from 1."""
    return {
        "first": one.start + 1,
        "last": one.end,
        "statistics": list(one.statistics),
        "sensors": {str(name): round(float(share), 4) for name, share in one.sensors},
        "peak": float(one.peak),
        "time": None if one.time is None else [str(moment) for moment in one.time],
    }


def _monitor_words(found: dict[str, Any]) -> str:
    rows = f"{found['rows']} rows of {found['sensors']} sensors"
    n = found["missing"]
    gaps = f", {n} missing {'entry' if n == 1 else 'entries'}" if n else ""
    q = found["n_components"]
    lines = [
        f"Wrote {found['output']}: {rows}{gaps}; {found['model']}, {q} "
        f"component{'' if q == 1 else 's'}.",
        _aside_words(found["set_aside"]),
    ]
    lines += [f"  {_episode_words(one)}" for one in found["set_aside"][:SHOWN]]
    limits = ", ".join(f"{title(k)} {v:.4g}" for k, v in found["limits"].items())
    lines.append(f"Limits of a complete row: {limits}.")
    lines.append(f"One false alarm in {found['arl']:g} ordinary rows is expected.")
    if "chart" in found:
        lines.append(f"Wrote {found['chart']}.")
    lines.append(f"dualpca watch {found['output']} FILE judges new rows.")
    return "\n".join(lines)


def _aside_words(aside: list[dict[str, Any]]) -> str:
    if not aside:
        return "No episode of the table was set aside."
    rows = sum(one["last"] - one["first"] + 1 for one in aside if one["last"])
    count = "1 episode was" if len(aside) == 1 else f"{len(aside)} episodes were"
    more = f"; the first {SHOWN}:" if len(aside) > SHOWN else ":"
    return f"{count} set aside as not ordinary, {rows} rows (--no-trim keeps them){more}"


def _episode_words(one: dict[str, Any]) -> str:
    first, last = one["first"], one["last"]
    rows = f"row {first}" if first == last else f"rows {first} to {last}"
    when = ""
    if one["time"] is not None:
        start, end = [part.replace("T", " ").removesuffix(".000000") for part in one["time"]]
        when = f" ({start})" if start == end else f" ({start} to {end})"
    what = ", ".join(map(title, one["statistics"]))
    which = sensor_words(one["sensors"])
    return f"{rows}{when}: {what}, up to {one['peak']:.2g} × the limit" + (
        f"; {which}" if which else ""
    )


# --- watch -------------------------------------------------------------------------------------

Input = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="CSV or JSON lines that grow; - is standard input, such as a pipe."
    ),
]
EVERY = 0.1
"""Seconds between two looks at a file."""


def watch(
    model: Annotated[str, typer.Argument(help="Model file written by `dualpca monitor`.")],
    data: Input,
    *,
    page: Annotated[bool, typer.Option("--page", help="Show a live page in the browser.")] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Judge what is there and end, as for cron.")
    ] = False,
    log: Annotated[
        str | None,
        typer.Option(
            "--log", help="File to append to: a line per row; .jsonl for JSON lines, else CSV."
        ),
    ] = None,
    alarms: Annotated[
        str | None,
        typer.Option("--alarms", help="File to append alarms to; .jsonl for JSON lines."),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            help="File that keeps how far rows were judged, for the next start; by default beside "
            "the model, named after it and the input. 'none' keeps none.",
        ),
    ] = None,
    anew: Annotated[
        bool, typer.Option("--fresh", help="Begin anew, and forget the state that is kept.")
    ] = False,
    skip: Annotated[
        bool,
        typer.Option("--from-now", help="At the first start, skip the rows that are there."),
    ] = False,
    time: Time = None,
    id_column: Identifier = None,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = "utf-8",
    defuse: Defuse = False,
    host: Annotated[str, typer.Option(help="Address of the page.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 is any free one.")] = 0,
    token: Annotated[
        str | None, typer.Option("--token", help="Token of the link, for tests; random by default.")
    ] = None,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = True,
    as_json: Json = False,
) -> None:
    """Judge rows as they come, and tell of alarms; Ctrl-C stops.

    Columns are known by their names. Alarms are lines on standard output, when they begin and when
    they end. A watch that was stopped or killed goes on where it was.
    """
    kept = None if state == "none" else state or state_name(model, data)

    def work() -> dict[str, Any]:
        if once and page:
            raise UsageError("--once ends at once, so there is no --page to look at.")
        keep_inputs([log, alarms, kept], [model, data])
        given = [name for name in (log, alarms, kept) if name is not None]
        if len({os.path.realpath(name) for name in given}) < len(given):
            raise UsageError("--log, --alarms and --state need files of their own.")
        reading = {"time": time, "id": id_column, "separator": separator}
        reading |= {"decimal": decimal, "encoding": encoding}
        with ExitStack() as stack:
            if kept is not None:
                stack.enter_context(_alone(kept))
            how = (log, alarms, reading, anew, skip, as_json)
            one = open_watch(model, data, kept, *how, defuse=defuse)
            stack.callback(one.close)
            stop = stack.enter_context(_stoppable())
            if page:
                stack.enter_context(_shown(one, model, data, host, port, token, show, as_json))
            return _watched(one, once, data, stop)

    run("watch", as_json, work, lambda found: "", streams=True)


def state_name(model: str, data: str) -> str:
    """Return the name of the state of a model and an input.

    Examples
    --------
    >>> state_name("plant.dpca", "data/live.csv"), state_name("plant.dpca", "-")
    ('plant.live.state', 'plant.input.state')
    """
    stem = model.removesuffix(".dpca")
    return f"{stem}.{'input' if data == '-' else name_of(data)}.state"


@contextmanager
def _alone(state: str) -> Iterator[None]:
    """Refuse a second watch with the same state while the block runs."""
    try:
        import fcntl
    except ImportError:  # not on this system
        yield
        return
    digest = hashlib.sha256(os.path.realpath(state).encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir(), f"dualpca-{os.getuid()}-{digest}.lock")
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(
                f"{state} is in use by another `dualpca watch`: stop it, or give another --state."
            ) from None
        yield


def _say(words: str) -> None:
    """Tell of the input and of what was decided."""
    print(f"note: {words}", file=sys.stderr, flush=True)


def _tell(line: str) -> None:
    print(line, flush=True)


def open_watch(
    model: str,
    data: str,
    kept: str | None,
    log: str | None,
    alarms: str | None,
    reading: dict[str, Any],
    anew: bool,
    skip: bool,
    as_json: bool,
    *,
    defuse: bool = False,
) -> Watch:
    """Return a watch that goes on where the last one stopped, if there was one."""
    fitted, metadata = load_model(model)
    if not isinstance(fitted, dualpca.Monitor):
        raise ModelFileError(
            f"{model} holds {type(fitted).__name__}: expected a Monitor. Make one of rows of "
            "ordinary operation with `dualpca monitor`."
        )
    layout = _layout(fitted, metadata, reading)
    source = data if data == "-" else os.path.realpath(data)
    mark, state = fingerprint(model), None
    if kept is not None and not anew and os.path.exists(kept):
        again, state = load_state(kept)
        fitted, state = _resumed(fitted, again, state, mark, model, source)
    first = state is None
    state = state or State(mark, source)
    same, state.source = data != "-" and state.source == source, source
    records = Records(layout, "standard input" if data == "-" else data, _say, state.header)
    with ExitStack() as stack:
        if data == "-":
            tail: FileTail | StreamTail = StreamTail(sys.stdin)
        else:
            tail = FileTail(data, _say, None if first or not same else state.place)
        stack.callback(tail.close)
        if first and skip:
            _skip(tail, records)
        outs: list[Out | None] = []
        for path, was in ((log, state.log), (alarms, state.alarms)):
            out = None if path is None else Out(path, was, same)
            outs.append(out)
            if out is not None:
                stack.callback(out.close)
        if data == "-" and outs[0] is not None:
            state.rows += outs[0].more
        parts = (fitted, records, tail, state, kept, _tell)
        found = Watch(*parts, as_json=as_json, log=outs[0], alarms=outs[1], defuse=defuse)
        stack.pop_all()
    return found


def _layout(fitted: Any, metadata: dict[str, Any], reading: dict[str, Any]) -> Layout:
    """Return how rows of a monitor stand in lines."""
    names, entry = features_of(fitted), metadata.get("monitor", {})
    prep: Preparation = of_table(metadata.get("table", {}), names)
    time = reading["time"] or entry.get("time")
    ids = reading["id"] or prep.identifier
    every = entry.get("columns", ()) if names_of(fitted) is not None else ()
    given = (reading["separator"], reading["decimal"], reading["encoding"])
    return Layout(prep, "" if time == NONE else time, ids, tuple(every), *given)


def _resumed(
    fitted: Any, again: Any, state: State, mark: str, model: str, source: str
) -> tuple[Any, State]:
    """Return the monitor and the state to go on with."""
    if state.source != source:
        _say(f"the state is of {state.source}: {source} is read from its start.")
        state.header = None
    if state.model == mark:
        _say(f"resumed after row {state.rows}.")
        return again, state
    _say(f"{model} has changed: rows after {state.rows} are judged by the new model.")
    state.model, state.open = mark, None
    return fitted, state


def _skip(tail: FileTail | StreamTail, records: Records) -> None:
    """Pass over the lines that are there, but for the header."""
    first = tail.read()
    if first is None:
        return
    records.rows(first._replace(lines=first.lines[:1]))
    while tail.read() is not None:
        pass


@contextmanager
def _shown(
    one: Watch,
    model: str,
    data: str,
    host: str,
    port: int,
    token: str | None,
    show: bool,
    as_json: bool,
) -> Iterator[None]:
    """Serve the live page while the block runs, and say where."""
    from dualpca.app.cli._pages import warn_of_host
    from dualpca.app.explorer.app import open_door
    from dualpca.app.live.server import serving
    from dualpca.app.live.window import Window

    door = open_door(host, port, token)
    if not door.is_private:
        warn_of_host(host)
    names = (Path(model).name, "standard input" if data == "-" else Path(data).name)
    with serving(Window(one, *names), door, show):
        if as_json:
            _tell(json.dumps({"event": "page", "url": door.link, "port": door.port}))
        else:
            print(f"The page is at {door.link}", file=sys.stderr, flush=True)
        yield


@contextmanager
def _stoppable() -> Iterator[list[bool]]:
    """Let Ctrl-C and a request to end be noticed between two steps, never within one."""
    stop: list[bool] = []
    numbers = [signal.SIGINT, signal.SIGTERM]
    before = [signal.signal(number, lambda *_: stop.append(True)) for number in numbers]
    try:
        yield stop
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _watched(one: Watch, once: bool, data: str, stop: list[bool]) -> dict[str, Any]:
    """Judge rows until the input ends or somebody stops it; return how many there were."""
    before, seen = one.state.rows, one.state.seen
    one.save()  # before the first row, so that what is killed then is known not to count
    while not stop:
        found = one.step(0.0 if once and data != "-" else EVERY)
        if one.tail.ended or (once and not found and data != "-"):
            break
    one.save()  # not after an error: then the state before it holds
    if once and data != "-" and one.tail.rest():
        _say(f"the last line of {data} has no end yet: it waits for the next time.")
    count, n_alarms = one.state.rows - before, one.state.seen - seen
    bad = f", {one.records.bad} lines skipped" if one.records.bad else ""
    rows = "1 row" if count == 1 else f"{count} rows"
    told = "1 alarm" if n_alarms == 1 else f"{n_alarms} alarms"
    now = "" if one.state.open is None else ", in alarm now"
    print(f"Judged {rows}: {told}{now}{bad}.", file=sys.stderr, flush=True)
    event = {"event": "stopped", "rows": count, "alarms": n_alarms, "skipped": one.records.bad}
    return event | {"row": one.state.rows, "in_alarm": one.state.open is not None}


COMMANDS = {"monitor": monitor, "watch": watch}
