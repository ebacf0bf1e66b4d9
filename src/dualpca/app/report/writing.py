"""From a model and rows to a page, and to a file."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from dualpca import __version__
from dualpca.app.report import (
    beside,
    data,
    directions,
    imputed,
    mixed,
    places,
    rebuilt,
    through_time,
    trust,
)
from dualpca.app.report.data import counted, percent
from dualpca.app.report.page import Page, Section, Table, render
from dualpca.app.report.subject import LeftOut, MixedSubject, Subject, subject_of
from dualpca.app.tables.columns import kind_words
from dualpca.data import replacing, target_of

# --- the last section: how the report was made -------------------------------------------------

PACKAGES = ("numpy", "scipy", "scikit-learn", "polars", "plotly")
LONGEST = 200
LISTED = 30
"""Columns that are named."""


def making(subject: Subject, seconds: float, made: Mapping[str, str]) -> Section:
    """List the model's parameters, versions, seed, time and what the caller adds."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES)
    rows = [
        *([name, value] for name, value in made.items()),
        *_fitted_by(subject),
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
            Table((), _preparation(subject), "From the table to rows of the model"),
            Table((), given, "Every parameter of the model", folded=True),
        ],
    )


def _fitted_by(subject: Subject) -> list[list[str]]:
    """Return the command that fitted the model: its file's, else one that does the same."""
    if subject.command:
        return [["fit command", subject.command]]
    if subject.prepared is None:
        return []
    found = reconstructed(subject)
    return (
        [["fit command", f"{found} (from the model's parameters: its file has no command)"]]
        if found
        else []
    )


def reconstructed(subject: Subject) -> str | None:
    """Return a command that fits a model like this one, by its parameters and preparation.

    None for models that the command line does not fit. TABLE and MODEL stand for the files.
    """
    from dualpca.app.cli._fit import MODELS

    name = {public: word for word, public in MODELS.items()}.get(subject.kind)
    prepared = subject.prepared
    if name is None or prepared is None:
        return None
    words = ["dualpca", "fit", "TABLE", "-o", "MODEL", "--model", name]
    given = subject.model.get_params(deep=False)
    plain = type(subject.model)().get_params(deep=False)
    changed = {k: v for k, v in given.items() if _differs(v, plain[k])}
    if "n_components" in plain and np.ndim(given["n_components"]) == 0 and subject.q:
        words += ["-q", str(subject.q)]
        changed.pop("n_components", None)
    seed = changed.pop("random_state", None)
    changed.pop("standardize", None)
    if isinstance(subject, MixedSubject):
        pairs = zip(subject.names, subject.kinds, subject.levels, strict=True)
        for column, kind, known in pairs:
            order = f":{','.join(known)}" if kind == "ordinal" and known else ""
            words += ["--kind", f"{column}={kind.split()[0]}{order}"]
    else:
        words += ["--no-standardize"] if subject.scale is None else ["--standardize"]
        for column in prepared.levels:
            words += ["--one-hot", column]
    for other in subject.others:
        words += [] if other == prepared.identifier else ["--exclude", other]
    words += ["--id", prepared.identifier] if prepared.identifier else []
    for key, value in changed.items():
        if isinstance(value, bool | int | float | str):
            words += ["--set", f"{key}={json.dumps(value) if isinstance(value, bool) else value}"]
    words += ["--seed", str(seed)] if isinstance(seed, int) and seed else []
    return shlex.join(words)


def _differs(value: Any, plain: Any) -> bool:
    try:
        return bool(value != plain)
    except ValueError:  # arrays
        return True


def _preparation(subject: Subject) -> list[list[str]]:
    """Return how the columns of the table became those of the model."""
    prepared = subject.prepared
    names = subject.names if prepared is None else prepared.names
    rest = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    found = [["columns", f"{len(names):,}: {', '.join(names[:LISTED])}{rest}"]]
    for name, levels in () if prepared is None else prepared.levels.items():
        words = ", ".join(map(str, levels))
        zero = getattr(prepared, "dropped", {}).get(name)  # has no column: all others are 0
        found.append([f"levels of {name}", words if zero is None else f"{words} (0 is {zero})"])
    if isinstance(subject, MixedSubject):
        pairs = zip(subject.names, subject.kinds, strict=True)
        found.append(["kinds", kind_words(dict(pairs), LISTED)])
    if codes := getattr(prepared, "missing", ()):
        found.append(["codes of missing entries", ", ".join(map(str, codes))])
    if isinstance(subject, MixedSubject):
        units = "not needed: only the order of a column's values counts"
    elif subject.scale is None:
        units = "no: the model was fitted in the units of the table"
    else:
        by = "by the model itself" if subject.own_scale else "before the fit"
        units = (
            f"yes, {by}: each column minus its average, divided by its standard deviation; values "
            "on this page are in the units of the table"
        )
    found.append(["standardised", units])
    if subject.time is not None:
        found.append(["time of rows", subject.time.name])
    if prepared is not None and prepared.identifier:
        found.append(["names of rows", prepared.identifier])
    known = None if prepared is None else prepared.identifier
    both = zip(subject.others, subject.aside, strict=True)
    left = [words for name, words in both if name != known]
    found.append(["left out", "; ".join(left) or "no column"])
    return found


def _short(words: str) -> str:
    return words if len(words) <= LONGEST else words[: LONGEST - 1] + "…"


def _facts(subject: Subject) -> list[list[str]]:
    """Return the facts of the fit."""
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


# --- the page ----------------------------------------------------------------------------------

SECTIONS: dict[str, Callable[[Subject], Section | None]] = {
    "What the data is": data.overview,
    "What is missing": data.missing,
    "How many directions matter": directions.spectrum,
    "Where the rows lie": places.places,
    "Groups or states": places.groups,
    "What the directions are made of": directions.directions,
    "Rows and columns together": directions.biplot,
    "Supplementary columns and rows": beside.beside,
    "What the model keeps of each row": rebuilt.rebuilt,
    "What the model considers typical": rebuilt.invented,
    "Unusual rows": trust.unusual,
    "Rows over time": through_time.through_time,
    "Can its intervals be trusted?": trust.calibrated,
    "What is filled in": imputed.filled_in,
}
"""In the order of the page, by the name under which a section that does not apply is listed.

None is a section that was not asked for.
"""

Step = Callable[[str], None]


def sections_of(subject: Subject) -> Mapping[str, Callable[[Any], Section | None]]:
    """Return the sections of a report, by name and in order."""
    return mixed.SECTIONS if isinstance(subject, MixedSubject) else SECTIONS


def write(
    model: Any,
    X: Any,
    path: str | os.PathLike[str],
    *,
    color: Any = None,
    ids: Any = None,
    image: tuple[int, int] | None = None,
    curve: bool = False,
    level: float = 0.95,
    random_state: int = 0,
    title: str | None = None,
    supplementary: Any = None,
    supplementary_rows: Any = None,
    time: Any = None,
) -> int:
    """Write a report on a fitted model and rows as one self-contained HTML file.

    Parameters
    ----------
    model : estimator
        Any fitted model of one table. Sections that do not apply are left out; the page says why.
    X : array or frame of shape (n, d)
        The rows, with NaN if the model accepts it. A frame may have more columns than the model.
    path : path
        An existing file is replaced, completely or not at all.
    color : str or array-like of shape (n,), default=None
        Colours of the rows: a column of a frame, or values.
    ids : str or array-like of shape (n,), default=None
        Names of the rows, likewise; by default 1, 2, ….
    image : pair of int, default=None
        Height and width, where a row is an image.
    curve : bool, default=False
        The columns are points of a curve, in order.
    level : float, default=0.95
        Level of the limits for unusual rows.
    random_state : int, default=0
        Seed for everything random.
    title : str, default=None
    supplementary : frame, mapping, array, or list of str, default=None
        Columns that the model does not use, shown beside it, as in `dualpca.supplementary`; or
        names of columns of the frame X.
    supplementary_rows : array or frame of shape (m, d), default=None
        Rows that are placed and take no other part.
    time : str or array-like of shape (n,), default=None
        When the rows were measured: a column of a frame, or dates or numbers; rows are drawn over
        it. By default a column of dates, or of increasing numbers called like time, is found among
        those that the model does not use; 'none' finds none.

    Returns
    -------
    int
        Size of the file in bytes.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import PPCA, report
    >>> X, y = load_iris(return_X_y=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     size = report.write(PPCA(2).fit(X), X, Path(folder, "iris.html"), color=y)
    >>> size > 1_000_000
    True
    """
    target_of(Path(path))
    about = subject_of(
        model,
        X,
        color=color,
        ids=ids,
        image=image,
        curve=curve,
        level=level,
        seed=random_state,
        supplementary=supplementary,
        supplementary_rows=supplementary_rows,
        time=time,
    )
    return write_text(Path(path), render(build(about, title=title)))


def write_text(path: Path, text: str) -> int:
    """Write `text` to `path`, completely or not at all, and return its size in bytes.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_text(Path(folder, "page.html"), "<p>σ²</p>")
    11
    """
    data = text.encode()
    with replacing(path) as file:
        file.write(data)
    return len(data)


def build(
    subject: Subject,
    step: Step = lambda name: None,
    title: str | None = None,
    made: Mapping[str, str] | None = None,
    first: list[Section] | None = None,
) -> Page:
    """Return the report; `step` is called with the name of every finished section."""
    start = time.perf_counter()
    sections, left_out = list(first or []), []
    for name, make in sections_of(subject).items():
        try:
            section = make(subject)
            sections += [] if section is None else [section]
        except LeftOut as reason:
            left_out.append((name, str(reason)))
        except (ValueError, np.linalg.LinAlgError, MemoryError) as error:
            left_out.append((name, _failed(subject, error)))
        step(name)
    sections.append(making(subject, time.perf_counter() - start, made or {}))
    return Page(title or f"A report on {subject.kind}", lead(subject, sections), sections, left_out)


def _failed(subject: Subject, error: BaseException) -> str:
    """Return why a section could not be made."""
    if not subject.complete and "NaN" in str(error):
        return f"{subject.kind} needs complete rows, and entries are missing; ppca accepts them."
    return f"it could not be made: {_sentence(error)}"


def _sentence(error: BaseException) -> str:
    return (
        re.split(r"(?<=[.:])\s", str(error).strip() or type(error).__name__)[0].rstrip(":.") + "."
    )


def lead(subject: Subject, sections: Sequence[Section] = ()) -> list[str]:
    """Return the verdict: what was fitted, and what the sections say of it in a sentence each."""
    words = f"{subject.kind} "
    if subject.q:
        words += f"with {counted(subject.q, 'component')} "
    words += f"was fitted to {_fitted_rows(subject)}{counted(subject.d, 'column')}"
    share = directions.explained(subject)
    if share is not None and subject.q:
        words += f" and keeps {percent(share)} of their variance"
    said = {one.title: one.verdict for one in sections if one.verdict}
    gaps = [said.pop(one) for one in list(said) if one in ABOUT_GAPS]
    if subject.complete:
        gaps = ["Nothing is missing."]
    return [" ".join([f"{words}.", *said.values()]), " ".join(gaps)]


ABOUT_GAPS = ("What is missing", "Can its intervals be trusted?", "How well entries are filled")
"""Sections whose verdicts come last."""


def _fitted_rows(subject: Subject) -> str:
    """Return how many rows the model was fitted to, if that is known, and how many it meets."""
    fitted = getattr(subject.model, "n_samples_", None)
    if fitted is None or int(fitted) == subject.n:
        return f"{counted(subject.n, 'row')} of "
    return f"{counted(int(fitted), 'row')}, and is shown {subject.n:,} rows, of "
