"""`dualpca demo`."""

import json
import shlex
import time
from pathlib import Path
from typing import Annotated

import typer

from dualpca.cli._running import INTERRUPTED, WRITING, Json


def demonstrate(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="HTML file to write; an old one is replaced.")
    ] = Path("dualpca-demo.html"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of all that is random.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    as_json: Json = False,
) -> None:
    """Compare models on handwritten digits; write an HTML report, its model and its data."""
    raise typer.Exit(_demo(output, seed, quiet or as_json, as_json))


def _demo(output: Path, seed: int, quiet: bool, as_json: bool = False) -> int:
    """Run the demonstration and return the exit status."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    from dualpca import demo

    start = time.perf_counter()
    console, errors = Console(quiet=quiet, highlight=False), Console(stderr=True, highlight=False)
    columns = (SpinnerColumn("line"), BarColumn(bar_width=24), TextColumn("{task.description}"))
    hidden = quiet or not errors.is_terminal
    progress = Progress(*columns, console=errors, transient=True, disable=hidden)
    try:
        files = demo.run(output, seed, console, progress)
    except OSError as problem:
        errors.print(f"dualpca demo: {problem}", markup=False, soft_wrap=True)
        if as_json:
            print(json.dumps({"error": str(problem), "status": WRITING}))
        return WRITING
    except KeyboardInterrupt:
        errors.print("Interrupted; nothing was written.")
        if as_json:
            print(json.dumps({"error": "interrupted; nothing was written.", "status": INTERRUPTED}))
        return INTERRUPTED
    seconds = time.perf_counter() - start
    if as_json:
        made = {"output": str(files.page), "bytes": files.size, "seconds": seconds}
        made |= {"model": str(files.model), "data": str(files.data)}
        print(json.dumps(made, indent=2))
    lines = [
        f"Wrote {files.page} ({files.size / 1e6:.1f} MB) in {seconds:.1f} s. Open it in a browser.",
        "To move through the model yourself:",
        f"    dualpca explore {shlex.quote(str(files.model))} {shlex.quote(str(files.data))}",
    ]
    for words in lines:
        console.print(words, markup=False, soft_wrap=True)
    return 0


COMMANDS = {"demo": demonstrate}
