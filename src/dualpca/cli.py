"""The command line: `dualpca demo` and `dualpca --version`."""

import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import dualpca

if TYPE_CHECKING:
    import typer

NEEDED = ("typer", "rich", "matplotlib")
"""What the `app` extra brings. Imported late, so that its absence can be explained."""


def main() -> None:
    """Run the command line."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        sys.exit(
            f"The dualpca command needs {' and '.join(missing)}, not installed here. "
            "Install the extra: pip install 'dualpca[app]'"
        )
    build()()


def build() -> "typer.Typer":
    """Return the application with its commands."""
    import typer

    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    output = typer.Option("--output", "-o", help="HTML file to write; an old one is replaced.")
    quiet = typer.Option("--quiet", "-q", help="Print nothing but errors.")

    @app.callback(invoke_without_command=True)
    def root(
        version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    ) -> None:
        """Principal component analysis as a probabilistic model."""
        if version:
            typer.echo(f"dualpca {dualpca.__version__}")
            raise typer.Exit

    @app.command("demo")
    def demonstrate(
        output: Annotated[Path, output] = Path("dualpca-demo.html"),
        seed: Annotated[int, typer.Option(min=0, help="Seed of all that is random.")] = 0,
        quiet: Annotated[bool, quiet] = False,
    ) -> None:
        """Compare models on handwritten digits and write an HTML report."""
        raise typer.Exit(_demo(output, seed, quiet))

    return app


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
        size = demo.run(output, seed, console, progress)
    except OSError as problem:
        errors.print(f"dualpca demo: {problem}", markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        errors.print("Interrupted; nothing was written.")
        return 130
    words = f"Wrote {output} ({size / 1e3:.0f} kB) in {time.perf_counter() - start:.1f} s. "
    console.print(words + "Open it in a browser.", markup=False, soft_wrap=True)
    return 0
