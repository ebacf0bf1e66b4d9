"""What an experiment is: a name, a figure of a document, and a function that makes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from dualpca.app.experiments.canvas import Canvas
from dualpca.errors import DualPCAError

Numbers = dict[str, Any]
"""Floats, lists and dictionaries of them: what JSON can hold."""


class UnknownExperimentError(DualPCAError, ValueError):
    """No experiment has the name."""


@dataclass(frozen=True)
class Outcome:
    """What an experiment found.

    Attributes
    ----------
    figures : dict of Figure
        A single one is written under the experiment's name, several under ``name-key``.
    numbers : dict
        What the figures rest on: floats, lists and dictionaries of them.
    agrees, differs : str
        A sentence on what agrees with the document, and one on what does not or cannot.
    """

    figures: dict[str, Figure]
    numbers: Numbers
    agrees: str
    differs: str


@dataclass(frozen=True)
class Experiment:
    """A registered experiment.

    Attributes
    ----------
    name : str
        As on the command line: 's3-figure-1'.
    source : str
        The document and its figure or section: 'S3 Fig. 1'.
    title : str
        One line.
    run : function
        From a Canvas to an Outcome.
    caption : str
        What the figures show and how to read them.
    timed : bool
        Whether figures show seconds, which no seed can repeat.
    """

    name: str
    source: str
    title: str
    run: Callable[[Canvas], Outcome] = field(repr=False)
    caption: str = ""
    timed: bool = False


REGISTRY: dict[str, Experiment] = {}
"""Every experiment by name."""


def experiment(
    *, source: str, title: str, caption: str = "", timed: bool = False, name: str = ""
) -> Callable[[Callable[[Canvas], Outcome]], Callable[[Canvas], Outcome]]:
    """Register the decorated function as an experiment, called as its module is unless named.

    Examples
    --------
    >>> from dualpca.app.experiments import EXPERIMENTS
    >>> EXPERIMENTS["s3-figure-1"].source
    'S3 Fig. 1'
    """

    def register(run: Callable[[Canvas], Outcome]) -> Callable[[Canvas], Outcome]:
        key = name or run.__module__.rpartition(".")[2].replace("_", "-")
        if key in REGISTRY and REGISTRY[key].run.__module__ != run.__module__:
            raise ValueError(f"two experiments are called {key!r}: rename one of them.")
        REGISTRY[key] = Experiment(key, source, title, run, caption, timed)
        return run

    return register


def ordered() -> dict[str, Experiment]:
    """Return all experiments by name, in the order of the documents: figure 10 after figure 9."""

    def place(one: Experiment) -> list[tuple[str, int]]:
        pairs = re.findall(r"(\D*)(\d*)", f"{one.source} {one.name}")
        return [(word, int(number or 0)) for word, number in pairs]

    return {one.name: one for one in sorted(REGISTRY.values(), key=place)}


def chosen(names: list[str]) -> Iterator[Experiment]:
    """Return the experiments of these names, each once; all of them where none is named.

    Raises
    ------
    UnknownExperimentError
        If a name is not registered: it says which are.
    """
    unknown = [name for name in names if name not in REGISTRY]
    if unknown:
        raise UnknownExperimentError(
            f"no experiment is called {', '.join(map(repr, unknown))}. "
            f"There are {', '.join(ordered())}."
        )
    return (REGISTRY[name] for name in dict.fromkeys(names or ordered()))


def plain(value: Any) -> Any:
    """Return numbers as JSON has them: arrays as lists, NumPy's scalars as Python's, no NaN.

    Examples
    --------
    >>> plain({"noise": np.float64(0.5), "values": np.arange(2), "none": np.nan})
    {'noise': 0.5, 'values': [0, 1], 'none': None}
    """
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    if not isinstance(value, bool | int | float | str | None):
        raise TypeError(f"an experiment's numbers must be numbers or text, got {value!r}.")
    return value
