"""`dualpca demo`."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dualpca.app.cli._options import Json, Page, Seed
from dualpca.app.cli._running import INTERRUPTED, WRITING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from dualpca.app.demo import Files


def demonstrate(
    output: Page = Path("dualpca-demo.html"),
    seed: Seed = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    as_json: Json = False,
) -> None:
    """Compare models on handwritten digits; write an HTML report, its model and its data."""
    raise typer.Exit(_demo(output, seed, quiet or as_json, as_json))


def _demo(output: Path, seed: int, quiet: bool, as_json: bool = False) -> int:
    """Run the demonstration and return the exit status."""
    from rich.console import Console

    from dualpca.app import demo

    start = time.perf_counter()
    console, errors = Console(quiet=quiet, highlight=False), Console(stderr=True, highlight=False)
    try:
        files = demo.run(output, seed, console, _progress(errors, quiet))
    except OSError as problem:
        errors.print(f"dualpca demo: {problem}", markup=False, soft_wrap=True)
        return _failed(str(problem), WRITING, as_json)
    except KeyboardInterrupt:
        errors.print("Interrupted; nothing was written.")
        return _failed("interrupted; nothing was written.", INTERRUPTED, as_json)
    seconds = time.perf_counter() - start
    if as_json:
        made = {"output": str(files.page), "bytes": files.size, "seconds": seconds}
        made |= {"model": str(files.model), "data": str(files.data)}
        print(json.dumps(made, indent=2))
    for words in _lines(files, seconds):
        console.print(words, markup=False, soft_wrap=True)
    return 0


def _progress(errors: Console, quiet: bool) -> Progress:
    """Return a bar for a terminal; one that nobody sees where there is none."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn("line"), BarColumn(bar_width=24), TextColumn("{task.description}"))
    hidden = quiet or not errors.is_terminal
    return Progress(*columns, console=errors, transient=True, disable=hidden)


def _failed(why: str, status: int, as_json: bool) -> int:
    """Say in JSON, if that was asked for, what went wrong; return the exit status."""
    if as_json:
        print(json.dumps({"error": why, "status": status}))
    return status


def _lines(files: Files, seconds: float) -> list[str]:
    return [
        f"Wrote {files.page} ({files.size / 1e6:.1f} MB) in {seconds:.1f} s. Open it in a browser.",
        "To move through the model yourself:",
        f"    dualpca explore {shlex.quote(str(files.model))} {shlex.quote(str(files.data))}",
    ]


COMMANDS = {"demo": demonstrate}
