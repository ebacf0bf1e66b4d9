"""`dualpca demo`."""

import shlex
import time
from pathlib import Path
from typing import Annotated

import typer


def demonstrate(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="HTML file to write; an old one is replaced.")
    ] = Path("dualpca-demo.html"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of all that is random.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Compare models on handwritten digits; write an HTML report, its model and its data."""
    raise typer.Exit(_demo(output, seed, quiet))


def _demo(output: Path, seed: int, quiet: bool) -> int:
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
        return 1
    except KeyboardInterrupt:
        errors.print("Interrupted; nothing was written.")
        return 130
    seconds = time.perf_counter() - start
    lines = [
        f"Wrote {files.page} ({files.size / 1e6:.1f} MB) in {seconds:.1f} s. Open it in a browser.",
        "To move through the model yourself:",
        f"    dualpca explore {shlex.quote(str(files.model))} {shlex.quote(str(files.data))}",
    ]
    for words in lines:
        console.print(words, markup=False, soft_wrap=True)
    return 0


COMMANDS = {"demo": demonstrate}
