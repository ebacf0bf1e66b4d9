"""How the report was made."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import numpy as np

from dualpca import __version__
from dualpca.app.report.page import Section, Table
from dualpca.app.report.subject import Subject

PACKAGES = ("numpy", "scipy", "scikit-learn", "polars", "plotly")
LONGEST = 200


def section(subject: Subject, seconds: float, made: Mapping[str, str]) -> Section:
    """List the model's parameters, versions, seed, time and whatever the caller knows."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES)
    rows = [
        *([name, value] for name, value in made.items()),
        ["model", _short(repr(subject.model))],
        *_facts(subject),
        ["seed", str(subject.seed)],
        ["versions", f"dualpca {__version__}, Python {platform.python_version()}, {versions}"],
        ["made", f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, in {seconds:.1f} s"],
    ]
    parameters = subject.model.get_params(deep=False)
    given = [[name, _short(repr(value))] for name, value in parameters.items()]
    return Section(
        "How it was made",
        "What is needed to make the same report again.",
        "",
        [
            Table((), rows, "Model, versions, seed and time"),
            Table((), given, "Every parameter of the model", folded=True),
        ],
    )


def _short(words: str) -> str:
    return words if len(words) <= LONGEST else words[: LONGEST - 1] + "…"


def _facts(subject: Subject) -> list[list[str]]:
    """Return what the fit says of itself."""
    model: Any = subject.model
    found = []
    fitted = getattr(model, "n_samples_", None)
    if fitted is not None:
        found.append(["fitted to", f"{int(fitted):,} rows"])
    if getattr(model, "loglikelihood_", None) is not None:
        found.append(["log-likelihood", f"{float(model.loglikelihood_):.6g}"])
    if getattr(model, "n_iter_", None) is not None and np.ndim(model.n_iter_) == 0:
        ended = "" if getattr(model, "converged_", True) else ", not converged"
        found.append(["steps of the fit", f"{int(model.n_iter_)}{ended}"])
    return found
