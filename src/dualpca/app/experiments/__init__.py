"""The figures and tables of the source documents, reproduced.

`running` says what an experiment is and runs them; `canvas` has the style of the figures. A module
whose name begins with that of a document (`s3`) is found by itself; it registers functions with
`experiment`, and the name of a function is that of the experiment (`s3_figure_1`: s3-figure-1).
"""

import re
from importlib import import_module
from pkgutil import iter_modules

from dualpca.errors import install

try:
    from dualpca.app.experiments.canvas import Canvas
    from dualpca.app.experiments.running import (
        Experiment,
        Outcome,
        Record,
        UnknownExperimentError,
        experiment,
        ordered,
        reproduce,
        write_gallery,
    )
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] != "matplotlib":
        raise
    message = f"dualpca.app.experiments needs matplotlib: {install('app')}."
    raise ModuleNotFoundError(message, name=error.name) from error


def _modules() -> list[str]:
    names = (module.name for module in iter_modules(__path__))
    return [name for name in names if re.match(r"s\d+|readme", name)]


for _name in _modules():
    import_module(f"{__name__}.{_name}")

EXPERIMENTS = ordered()
"""Every experiment by name, in the order of the documents."""

__all__ = [
    "EXPERIMENTS",
    "Canvas",
    "Experiment",
    "Outcome",
    "Record",
    "UnknownExperimentError",
    "experiment",
    "reproduce",
    "write_gallery",
]
