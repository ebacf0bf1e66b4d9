"""The command line: fit a model to a table, use it, look at it."""

import json
import os
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import dualpca
from dualpca.errors import install

if TYPE_CHECKING:
    import typer

NEEDED = ("typer", "rich", "polars", "matplotlib", "plotly", "fastapi", "uvicorn")
"""Packages of the `app` extra. Imported late, so that a missing one can be explained."""

COMMANDS = {
    "fit": ("_fit", "Fit a model to a table and write it to a file."),
    "select": ("_fit", "Show how many components each selection rule would keep."),
    "transform": (
        "_use",
        "Write the latent coordinates of rows; for a hidden Markov model, their states.",
    ),
    "impute": (
        "_use",
        "Fill missing entries with expected values, or with draws; all other cells stay as "
        "they are.",
    ),
    "denoise": ("_use", "Write rows without noise, as the model reconstructs them."),
    "sample": (
        "_use",
        "Sample new rows from the model, with the component or state of each if it has those.",
    ),
    "export": ("_use", "Write `transform` as an ONNX graph, with the standardisation."),
    "score": (
        "_look",
        "Score rows: log-density, distances with their limits, and which rows are unusual.",
    ),
    "calibrate": (
        "_look",
        "Hide known entries of a table, and count how many lie within their intervals.",
    ),
    "inspect": ("_look", "Show what is in a model file."),
    "compare": (
        "_compare",
        "Fit every model to most rows, and compare how they describe the rest.",
    ),
    "monitor": (
        "_live",
        "Learn from a table what is ordinary, and write a monitor for `dualpca watch`.",
    ),
    "watch": ("_live", "Judge rows as they come, and tell of alarms; Ctrl-C stops."),
    "report": ("_pages", "Write a report on a model and a table as one HTML page with figures."),
    "explore": ("_pages", "Explore a model in the browser; Ctrl-C stops the server."),
    "reproduce": (
        "_pages",
        "Reproduce the figures of the source documents: PNG, SVG, numbers, and a gallery page.",
    ),
    "demo": (
        "_pages",
        "Compare models on handwritten digits; write an HTML report, its model and its data.",
    ),
}
"""Command to its module and what the help says of it, so that the help imports no command."""


def main() -> None:
    """Run the command line."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        sys.exit(
            f"The dualpca command needs {' and '.join(missing)}, which is not installed. "
            f"To install the extra, {install('app')}."
        )
    try:
        build(_asked(sys.argv[1:]))()
    except KeyboardInterrupt:  # before a command has started
        sys.exit(130)
    except SystemExit as end:
        if end.code == 2 and "--json" in sys.argv:
            print(json.dumps({"error": "wrong usage: see standard error", "status": 2}))
        raise


def _asked(words: list[str]) -> list[str]:
    """Return the commands that these words can run: one, none, or all to complete a line of shell.

    Examples
    --------
    >>> _asked(["score", "m.dpca", "t.csv"]), _asked(["--help"]), _asked(["nosuch"])
    (['score'], [], [])
    """
    if "_DUALPCA_COMPLETE" in os.environ:
        return list(COMMANDS)
    first = next((word for word in words if not word.startswith("-")), "")
    if first in COMMANDS and "--help" not in words:
        _import_scikit_learn()
    return [first] if first in COMMANDS else []


def build(names: list[str] | None = None) -> "typer.Typer":
    """Return the application; commands that are not named can only be listed in its help."""
    import typer

    app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

    @app.callback(invoke_without_command=True)
    def root(
        version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    ) -> None:
        """Principal component analysis as a probabilistic model."""
        if version:
            typer.echo(f"dualpca {dualpca.__version__}")
            raise typer.Exit

    for name, (module, words) in COMMANDS.items():
        if names is None or name in names:
            from dualpca.app.cli._running import spread

            command = import_module(f"dualpca.app.cli.{module}").COMMANDS[name]
            app.command(name)(spread(command))
        else:
            app.command(name, help=words)(lambda: None)
    return app


class _Later(ModuleType):
    """A module that is imported when something of it is first used."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


SELDOM = ("scipy.stats", "scipy.optimize", "scipy.integrate")
"""Packages that scikit-learn and our models import for functions that few commands call."""


def _import_scikit_learn() -> None:
    """Import scikit-learn without pandas, and with parts of SciPy only once they are used.

    Together they take longer than all the rest.
    """
    if "sklearn" in sys.modules:
        return
    for name in SELDOM:
        if name not in sys.modules and (spec := find_spec(name)):
            sys.modules[name] = _Later(name)
            sys.modules[name].__spec__ = spec
    if "pandas" in sys.modules:
        return
    sys.modules["pandas"] = None  # type: ignore[assignment]  # as if it were not installed
    try:
        import_module("sklearn.base")
    finally:
        del sys.modules["pandas"]
