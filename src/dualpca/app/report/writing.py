"""From a model and rows to a page, and to a file."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from dualpca.app.report.figures import Floats
from dualpca.app.report.page import Page, Section, render
from dualpca.app.report.sections import SECTIONS
from dualpca.app.report.sections.data import counted, percent
from dualpca.app.report.sections.making import section as making
from dualpca.app.report.sections.spectrum import explained
from dualpca.app.report.sections.unusual import judged
from dualpca.app.report.subject import LeftOut, ReportError, Subject, colour_of, identifiers
from dualpca.app.tables import columns
from dualpca.data import replacing, target_of
from dualpca.errors import expected

Step = Callable[[str], None]


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
) -> int:
    """Write a report on a fitted model and rows as one HTML file that needs nothing else.

    Parameters
    ----------
    model : estimator
        Any fitted model of one table; what it cannot do is left out, and the page says why.
    X : array or frame of shape (n, d)
        The rows, with NaN where the model takes it. A frame may have more columns than the model.
    path : path
        An old file is replaced, whole or not at all.
    color : str or array-like of shape (n,), optional
        What rows are coloured by: a column of a frame, or values.
    ids : str or array-like of shape (n,), optional
        What rows are called, likewise; otherwise 1, 2, ….
    image : pair of int, optional
        Height and width, where a row is an image.
    curve : bool
        The columns are points of a curve, in order.
    level : float
        Of the limits for unusual rows.
    random_state : int
        Seed of all that is random.
    title : str, optional

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
        model, X, color=color, ids=ids, image=image, curve=curve, level=level, seed=random_state
    )
    return write_text(Path(path), render(build(about, title=title)))


def write_text(path: Path, text: str) -> int:
    """Write `text` to `path`, whole or not at all, and return its size in bytes.

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


def subject_of(
    model: Any,
    X: Any,
    *,
    color: Any = None,
    ids: Any = None,
    image: tuple[int, int] | None = None,
    curve: bool = False,
    level: float = 0.95,
    seed: int = 0,
    units: str = Subject.units,
) -> Subject:
    """Return what a report is about, with everything checked."""
    model = _reportable(model)
    frame = _frame(X)
    values, names = _values(model, X, frame, [name for name in (color, ids) if _is_name(name)])
    if values.shape[0] < 2:
        raise ReportError(expected("X", "two rows at least", values.shape[0]))
    if not 0 < level < 1:
        raise ReportError(expected("level", "a number between 0 and 1, both excluded", level))
    if image is not None and image[0] * image[1] != values.shape[1]:
        size = f"height × width = {values.shape[1]}, the number of columns"
        raise ReportError(expected("image", size, f"{image[0]}x{image[1]}"))
    n, colour = values.shape[0], None
    if color is not None:
        name = color if _is_name(color) else str(getattr(color, "name", None) or "color")
        colour = colour_of(name, _column(frame, color, "color"), n)
    rows = identifiers(None if ids is None else _column(frame, ids, "ids"), n)
    aside = _aside(frame, names)
    image = None if image is None else (int(image[0]), int(image[1]))
    return Subject(
        model, values, names, rows, colour, image, curve, level, seed, units=units, aside=aside
    )


def _reportable(model: Any) -> Any:
    """Return the model that a report is about, or say why there can be none."""
    inner = getattr(model, "model_", None) or getattr(model, "estimator_", None)
    if inner is not None and hasattr(inner, "n_features_in_"):
        model = inner  # an imputer or a generator is a model with a purpose
    if hasattr(model, "y_mean_") or hasattr(model, "classes_"):
        raise ReportError(f"{type(model).__name__} needs more than one table: no report of it yet.")
    if not hasattr(model, "n_features_in_"):
        raise ReportError(expected("model", "a fitted model of one table", model))
    return model


def _is_name(value: Any) -> bool:
    return isinstance(value, str)


def _frame(X: Any) -> pl.DataFrame | None:
    """Return rows as a polars frame if they are a frame."""
    if isinstance(X, pl.DataFrame) or not hasattr(X, "columns"):
        return X if isinstance(X, pl.DataFrame) else None
    return pl.DataFrame({str(name): _series(X[name]) for name in X.columns})


def _series(column: Any) -> pl.Series:
    return pl.Series(column.tolist(), strict=False)


def _values(
    model: Any, X: Any, frame: pl.DataFrame | None, others: list[str]
) -> tuple[Floats, tuple[str, ...]]:
    """Return the rows as numbers, in the model's columns, and the columns' names."""
    known = getattr(model, "feature_names_in_", None)
    if frame is None:
        matrix = np.array(X, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[1] != model.n_features_in_:
            raise ReportError(expected("X", f"{model.n_features_in_} columns", matrix.shape))
        names = [f"x{j}" for j in range(matrix.shape[1])] if known is None else known
        return matrix, tuple(str(name) for name in names)
    if known is not None:
        found = columns.matching(frame, [str(name) for name in known])
    else:
        rest = frame.drop([name for name in others if name in frame.columns])
        rest = rest if rest.width == model.n_features_in_ else frame
        if rest.width != model.n_features_in_:
            raise ReportError(expected("X", f"{model.n_features_in_} columns", rest.width))
        found = columns.numbers(rest, rest.columns)
    return found.to_numpy().astype(np.float64), tuple(found.columns)


def _column(frame: pl.DataFrame | None, column: Any, what: str) -> Any:
    """Return a column that was named, or the values that were given."""
    if not _is_name(column):
        return column
    if frame is None or column not in frame.columns:
        there = [] if frame is None else frame.columns[:10]
        raise ReportError(f"{what} {column!r}: no such column; there are {there}.")
    return frame[column]


def _aside(frame: pl.DataFrame | None, names: tuple[str, ...]) -> tuple[str, ...]:
    """Say which columns of a table the model does not use."""
    if frame is None:
        return ()
    stems = {name.partition("=")[0] for name in names} | set(names)
    found = []
    for name, kind in frame.schema.items():
        if name not in stems:
            what = "numbers" if kind.is_numeric() else "dates" if kind.is_temporal() else "text"
            found.append(f"{name} ({what}, {frame[name].n_unique():,} different values)")
    return tuple(found)


def build(
    subject: Subject,
    step: Step = lambda name: None,
    title: str | None = None,
    made: Mapping[str, str] | None = None,
    first: list[Section] | None = None,
) -> Page:
    """Return the report; `step` hears of every section that is done."""
    start = time.perf_counter()
    sections, left_out = list(first or []), []
    for name, make in SECTIONS.items():
        try:
            sections.append(make(subject))
        except LeftOut as reason:
            left_out.append((name, str(reason)))
        except (ValueError, np.linalg.LinAlgError, MemoryError) as error:
            left_out.append((name, _failed(subject, error)))
        step(name)
    sections.append(making(subject, time.perf_counter() - start, made or {}))
    return Page(title or f"A report on {subject.kind}", lead(subject), sections, left_out)


def _failed(subject: Subject, error: BaseException) -> str:
    """Say why a section could not be made."""
    if not subject.complete and "NaN" in str(error):
        return f"{subject.kind} takes complete rows only, and entries are missing; ppca takes them."
    return f"it could not be made: {_sentence(error)}"


def _sentence(error: BaseException) -> str:
    return (
        re.split(r"(?<=[.:])\s", str(error).strip() or type(error).__name__)[0].rstrip(":.") + "."
    )


def lead(subject: Subject) -> list[str]:
    """Say what was found, in a few sentences."""
    words = f"{subject.n:,} rows of {subject.d:,} columns"
    if not subject.complete:
        words += f", {percent(float(subject.missing.mean()))} of the entries missing"
    share = explained(subject)
    if share is not None and subject.q:
        numbers = "One number" if subject.q == 1 else f"{subject.q} numbers"
        verb = "keeps" if subject.q == 1 else "keep"
        words += f". {numbers} per row {verb} {percent(share)} of their variance"
    return [words + "." + _odd(subject)]


def _odd(subject: Subject) -> str:
    """Say how many rows are unusual, where the model can tell."""
    if not hasattr(subject.model, "outliers"):
        return ""
    try:
        score = np.maximum(*judged(subject))
    except ValueError:
        return ""
    count, chance = int(np.sum(score > 1)), (1 - subject.level**2) * subject.n
    most = subject.ids[int(np.argmax(score))]
    return (
        f" {counted(count, 'row')} {'lies' if count == 1 else 'lie'} beyond the limits for "
        f"ordinary rows, where chance alone puts about {chance:,.0f}; furthest out is row {most}."
        if count
        else " No row lies beyond the limits for ordinary rows."
    )
