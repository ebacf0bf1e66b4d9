"""What a report is about: a fitted model and rows, with names and colours for the rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from dualpca.app.report.figures import Floats, Ints
from dualpca.app.tables import columns
from dualpca.errors import DualPCAError, InterruptWarning, expected

CLASSES = 10
"""Classes with a colour of their own; further values share the last."""


class LeftOut(Exception):
    """A section does not apply to this model or these rows; the message says why."""


class ReportError(DualPCAError, ValueError):
    """The report cannot be made from these arguments."""


@dataclass(frozen=True)
class Colour:
    """A column that the rows are coloured by: classes, or numbers."""

    name: str
    labels: tuple[str, ...]  # of the classes; none for numbers
    values: Floats  # (n,), positions in `labels`, or numbers; NaN where unknown

    def label(self, i: int) -> str:
        """Return the class or number of one row, as text."""
        value = self.values[i]
        if np.isnan(value):
            return "unknown"
        return self.labels[int(value)] if self.labels else f"{value:.4g}"


@dataclass(frozen=True)
class Subject:
    """A model, rows for it, and what is known about them."""

    model: Any
    X: Floats  # (n, d), NaN where an entry is missing
    names: tuple[str, ...]  # of the d columns
    ids: tuple[str, ...]  # of the n rows
    colour: Colour | None = None
    image: tuple[int, int] | None = None  # height and width, where a row is an image
    curve: bool = False  # the columns are points in order
    level: float = 0.95
    seed: int = 0
    units: str = "in the table's own units"
    aside: tuple[str, ...] = ()  # columns of the table that the model does not use, in words

    @property
    def n(self) -> int:
        """Rows."""
        return int(self.X.shape[0])

    @property
    def d(self) -> int:
        """Columns."""
        return int(self.X.shape[1])

    @property
    def kind(self) -> str:
        """Name of the model's class."""
        return type(self.model).__name__

    @cached_property
    def missing(self) -> Any:
        """Where entries are missing, (n, d)."""
        return np.isnan(self.X)

    @cached_property
    def complete(self) -> bool:
        """Nothing is missing."""
        return not self.missing.any()

    @property
    def q(self) -> int:
        """Number of components of a model that has one number of them."""
        found = getattr(self.model, "n_components_", None)
        if found is None:
            found = len(getattr(self.model, "components_", getattr(self.model, "coordinates_", [])))
        return int(found) if np.ndim(found) == 0 else int(np.max(found))

    @cached_property
    def centre(self) -> Floats:
        """Averages of the columns."""
        return np.asarray(np.nanmean(self.X, axis=0))

    @cached_property
    def spread(self) -> Floats:
        """Standard deviations of the columns, 1 where a column is constant."""
        found = np.asarray(np.nanstd(self.X, axis=0))
        return np.where(found > 0, found, 1.0)

    @cached_property
    def filled(self) -> Floats:
        """The rows with missing entries filled: by the model, or with column averages."""
        if self.complete:
            return self.X
        if hasattr(self.model, "impute"):
            return np.asarray(self.asked("impute", self.X))
        return np.where(self.missing, self.centre, self.X)

    def rows(self, values: Floats) -> Any:
        """Return rows as the model expects them: with names if it was fitted with names."""
        return columns.named_rows(self.model, values)

    def asked(self, method: str, values: Floats, *more: Any, **options: Any) -> Any:
        """Call a method of the model on rows, and return arrays."""
        found = getattr(self.model, method)(self.rows(values), *more, **options)
        if isinstance(found, tuple):
            return tuple(np.asarray(part) for part in found)
        return np.asarray(found)

    def refitted(self, values: Floats, **parameters: Any) -> Subject:
        """Return the same model with the same number of components, fitted to other rows."""
        from sklearn.base import clone

        fresh = clone(self.model)
        known = fresh.get_params(deep=False)
        q = getattr(self.model, "n_components_", None)
        if q is None or np.ndim(q) == 0:
            fresh.set_params(n_components=self.q)
        fresh.set_params(**{k: v for k, v in parameters.items() if k in known})
        with quietly():
            fresh.fit(self.rows(values))
        return Subject(fresh, values, self.names, self.ids, seed=self.seed)

    def some(self, most: int, salt: int = 0) -> Ints:
        """Return at most `most` positions of rows, drawn at random, in order."""
        if self.n <= most:
            return np.arange(self.n)
        rng = np.random.default_rng([self.seed, salt])
        return np.sort(rng.choice(self.n, most, replace=False))


@contextmanager
def quietly() -> Iterator[None]:
    """Suppress the warnings of refits, except that a fit was interrupted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", InterruptWarning)
        yield


def thinned(shown: int, n: int, what: str = "rows") -> str:
    """Return a sentence that not all rows are drawn, if so, with a leading space.

    Examples
    --------
    >>> thinned(10, 10), thinned(3000, 100000)
    ('', ' To keep the page light, 3,000 of the 100,000 rows were drawn at random.')
    """
    if shown >= n:
        return ""
    return f" To keep the page light, {shown:,} of the {n:,} {what} were drawn at random."


def need(subject: Subject, method: str, what: str) -> None:
    """Leave a section out if the model lacks a method."""
    if not hasattr(subject.model, method):
        raise LeftOut(f"{subject.kind} {what}.")


def colour_of(name: str, column: Any, n: int) -> Colour:
    """Return a column as colours: numbers if they are many, classes otherwise.

    Examples
    --------
    >>> colour_of("kind", ["b", "a", None], 3).labels
    ('a', 'b')
    >>> colour_of("size", [0.5, 1.5, 2.5], 3).labels
    ()
    """
    values = column if isinstance(column, pl.Series) else pl.Series(_plain(column), strict=False)
    if len(values) != n:
        raise ReportError(expected("color", f"a value for each of the {n} rows", len(values)))
    if values.dtype.is_float():
        values = values.fill_nan(None)
    if values.dtype.is_numeric() and (values.dtype.is_float() or values.n_unique() > CLASSES):
        if values.dtype.is_float() and _whole(values):
            values = values.cast(pl.Int64)
        else:
            return Colour(name, (), values.cast(pl.Float64).fill_null(float("nan")).to_numpy())
    return _classes(name, values)


def _plain(column: Any) -> list[Any]:
    found = column.tolist() if hasattr(column, "tolist") else list(column)
    return [value.item() if hasattr(value, "item") else value for value in found]


def _whole(values: pl.Series) -> bool:
    """Return True if floats are a few whole numbers, and so name classes."""
    seen = values.drop_nulls()
    return bool(len(seen) and (seen == seen.round()).all() and seen.n_unique() <= CLASSES)


def _classes(name: str, values: pl.Series) -> Colour:
    """Return classes in order; beyond ten, the rarest together."""
    known = values.drop_nulls().unique().sort().to_list()
    words = values.cast(pl.String).to_list()
    labels = [str(word) for word in pl.Series(known, dtype=values.dtype).cast(pl.String).to_list()]
    if len(labels) > CLASSES:
        counts = values.drop_nulls().cast(pl.String).value_counts(sort=True)
        common = set(counts.to_series(0).head(CLASSES - 1).to_list())
        kept = [label for label in labels if label in common]
        words = [w if w is None or w in common else "others" for w in words]
        labels = [*kept, "others"]
    place = {label: float(i) for i, label in enumerate(labels)}
    found = [float("nan") if word is None else place[word] for word in words]
    return Colour(name, tuple(labels), np.array(found, dtype=np.float64))


def identifiers(ids: Sequence[Any] | None, n: int) -> tuple[str, ...]:
    """Return the names of rows: as given, or 1, 2, …."""
    if ids is None:
        return tuple(str(i) for i in range(1, n + 1))
    if len(ids) != n:
        raise ReportError(expected("ids", f"a name for each of the {n} rows", len(ids)))
    return tuple(str(value) for value in ids)


# --- from what a user gives to a subject -------------------------------------------------------


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
    """Return what a report is about, checked."""
    model = _reportable(model)
    frame = _frame(X)
    values, names = _values(
        model, X, frame, [name for name in (color, ids) if isinstance(name, str)]
    )
    if values.shape[0] < 2:
        raise ReportError(expected("X", "at least two rows", values.shape[0]))
    if not 0 < level < 1:
        raise ReportError(expected("level", "a number between 0 and 1, both excluded", level))
    if image is not None and image[0] * image[1] != values.shape[1]:
        size = f"height × width = {values.shape[1]}, the number of columns"
        raise ReportError(expected("image", size, f"{image[0]}x{image[1]}"))
    n, colour = values.shape[0], None
    if color is not None:
        name = color if isinstance(color, str) else str(getattr(color, "name", None) or "color")
        colour = colour_of(name, _column(frame, color, "color"), n)
    rows = identifiers(None if ids is None else _column(frame, ids, "ids"), n)
    aside = _aside(frame, names)
    image = None if image is None else (int(image[0]), int(image[1]))
    return Subject(
        model, values, names, rows, colour, image, curve, level, seed, units=units, aside=aside
    )


def _reportable(model: Any) -> Any:
    """Return the model that a report is about, or raise an error that says why it cannot be."""
    inner = getattr(model, "model_", None) or getattr(model, "estimator_", None)
    if inner is not None and hasattr(inner, "n_features_in_"):
        model = inner  # of an imputer or a generator
    if hasattr(model, "y_mean_") or hasattr(model, "classes_"):
        raise ReportError(
            f"{type(model).__name__} needs more than one table: there is no report for it."
        )
    if not hasattr(model, "n_features_in_"):
        raise ReportError(expected("model", "a fitted model of one table", model))
    return model


def _frame(X: Any) -> pl.DataFrame | None:
    """Return rows as a polars frame if they are a frame."""
    if isinstance(X, pl.DataFrame) or not hasattr(X, "columns"):
        return X if isinstance(X, pl.DataFrame) else None
    return pl.DataFrame(
        {str(name): pl.Series(X[name].tolist(), strict=False) for name in X.columns}
    )


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
    """Return a column by its name, or the values that were given."""
    if not isinstance(column, str):
        return column
    if frame is None or column not in frame.columns:
        there = [] if frame is None else frame.columns[:10]
        raise ReportError(f"{what} {column!r}: no such column; there are {there}.")
    return frame[column]


def _aside(frame: pl.DataFrame | None, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns of a table that the model does not use, in words."""
    if frame is None:
        return ()
    stems = {name.partition("=")[0] for name in names} | set(names)
    found = []
    for name, kind in frame.schema.items():
        if name not in stems:
            what = "numbers" if kind.is_numeric() else "dates" if kind.is_temporal() else "text"
            found.append(f"{name} ({what}, {frame[name].n_unique():,} different values)")
    return tuple(found)
