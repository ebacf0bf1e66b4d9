"""The command line: fit a model to a table, use it, look at it."""

import json
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import dualpca
from dualpca.errors import install

if TYPE_CHECKING:
    import typer

NEEDED = ("typer", "rich", "polars", "matplotlib", "plotly", "fastapi", "uvicorn")
"""Packages of the `app` extra. Imported late, so that a missing one can be explained."""

MODULES = "fit use look compare pages".split()
"""Modules with the commands, in the order of the help."""


def main() -> None:
    """Run the command line."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        sys.exit(
            f"The dualpca command needs {' and '.join(missing)}, which is not installed. "
            f"To install the extra, {install('app')}."
        )
    try:
        build()()
    except KeyboardInterrupt:  # before a command has started
        sys.exit(130)
    except SystemExit as end:
        if end.code == 2 and "--json" in sys.argv:
            print(json.dumps({"error": "wrong usage: see standard error", "status": 2}))
        raise


def build() -> "typer.Typer":
    """Return the application with its commands."""
    import typer

    from dualpca.app.cli._running import spread

    app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

    @app.callback(invoke_without_command=True)
    def root(
        version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    ) -> None:
        """Principal component analysis as a probabilistic model."""
        if version:
            typer.echo(f"dualpca {dualpca.__version__}")
            raise typer.Exit

    for module in MODULES:
        for name, command in import_module(f"dualpca.app.cli._{module}").COMMANDS.items():
            app.command(name)(spread(command))
    return app
