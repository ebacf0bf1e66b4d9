"""The command line: fit a model to a table, use it, look at it."""

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import dualpca

if TYPE_CHECKING:
    import typer

NEEDED = ("typer", "rich", "polars", "matplotlib", "fastapi", "uvicorn")
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

    from dualpca.cli import _demo, _explore, _fit, _look, _use

    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

    @app.callback(invoke_without_command=True)
    def root(
        version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    ) -> None:
        """Principal component analysis as a probabilistic model."""
        if version:
            typer.echo(f"dualpca {dualpca.__version__}")
            raise typer.Exit

    for module in (_fit, _use, _look, _demo, _explore):
        for name, command in module.COMMANDS.items():
            app.command(name)(command)
    return app
