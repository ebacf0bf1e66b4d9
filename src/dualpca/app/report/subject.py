"""What a report is about: a fitted model and rows, with names and colours for the rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

import dualpca
from dualpca.app.report.figures import Floats, Ints, said
from dualpca.app.tables import columns
from dualpca.app.tables.columns import Preparation, coded, level_words
from dualpca.app.tables.times import NONE, TimeAxis, find_time, read_time
from dualpca.arrays import cached_property
from dualpca.errors import DualPCAError, expected
from dualpca.estimators.calibrating import quietly as quietly

ROWS = ("impute", "reconstruct", "sample_imputations")
"""Methods that return rows, which come back in the units of the table."""
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
            return "missing"
        return self.labels[int(value)] if self.labels else f"{value:.4g}"


@dataclass(frozen=True)
class Subject:
    """A model, rows for it, and what is known about them.

    Rows are kept in the units of the table. What the model is given, and what it returns, is
    converted here if its file says that the columns were standardised before the fit.
    """

    model: Any
    X: Floats  # (n, d), in the units of the table, NaN where an entry is missing
    names: tuple[str, ...]  # of the d columns
    ids: tuple[str, ...]  # of the n rows
    colour: Colour | None = None
    image: tuple[int, int] | None = None  # height and width, where a row is an image
    curve: bool = False  # the columns are points in order
    level: float = 0.95
    seed: int = 0
    units: str = "in the table's own units"
    aside: tuple[str, ...] = ()  # columns of the table that the model does not use, in words
    prepared: Preparation | None = None  # how the table became rows, if the model's file says so
    others: tuple[str, ...] = ()  # names of the columns that the model does not use
    command: str | None = None  # that fitted the model, if its file has it
    identified: bool = False  # rows have names of their own
    beside: Any = None  # supplementary columns, as `dualpca.supplementary` accepts them
    rows_beside: Any = None  # supplementary rows, as X has them, or as `table` for any kind
    ids_beside: tuple[str, ...] = ()  # of the m rows
    time: TimeAxis | None = None  # of the n rows, if the table tells it

    def titled(self, j: int) -> str:
        """Return the name of a column, with its unit if the table has one."""
        name = self.names[j]
        return name if self.prepared is None else self.prepared.titled(name)

    @property
    def n(self) -> int:
        """Rows."""
        return int(self.X.shape[0])

    @property
    def d(self) -> int:
        """Columns."""
        return int(self.X.shape[1])

    @cached_property
    def outliers(self) -> Any:
        """T² and SPE of every row with their limits, of models that have them."""
        return self.model.outliers(self.of(np.arange(self.n)), level=self.level)

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

    @cached_property
    def scale(self) -> Floats | None:
        """Divisors of the columns before the fit, (d,): of the file or the model; None without."""
        if self.prepared is not None and self.prepared.scales is not None:
            return np.asarray(self.prepared.scales, dtype=np.float64)
        own = getattr(self.model, "scale_", None)
        return None if own is None else np.asarray(own, dtype=np.float64)

    @property
    def own_scale(self) -> bool:
        """Whether the model itself standardises, and so returns rows in the table's units."""
        outside = self.prepared is not None and self.prepared.scales is not None
        return not outside and getattr(self.model, "scale_", None) is not None

    @cached_property
    def supplementary(self) -> dualpca.Supplementary | None:
        """What is shown beside the model; None without, or if the model places no rows."""
        if self.beside is None and self.rows_beside is None:
            return None
        if not hasattr(self.model, "transform") or hasattr(self.model, "n_mixtures"):
            return None
        rows = self.rows_beside
        rows = self.rows(rows) if isinstance(rows, np.ndarray) else rows
        active = self.of(np.arange(self.n))
        return dualpca.supplementary(self.model, active, self.beside, rows=rows)

    def scaled(self, values: Floats) -> Floats:
        """Return rows in the units of the fit: standardised if the model or its file says so."""
        if self.scale is None:
            return values
        shift = self.centre if self.own_scale else self._shift
        return np.asarray((values - shift) / self.scale)

    @cached_property
    def _shift(self) -> Any:
        return 0.0 if self.prepared is None or self.scale is None else self.prepared.means

    def rows(self, values: Floats) -> Any:
        """Return rows as the model expects them: in its units, and with names if it has names."""
        own = values if self.own_scale else self.scaled(values)
        return columns.named_rows(self.model, own)

    def undone(self, values: Floats) -> Floats:
        """Return rows of the model in the units of the table."""
        if self.scale is None or self.own_scale:
            return values
        return np.asarray(values * self.scale + self._shift)

    def asked(self, method: str, values: Floats, *more: Any, **options: Any) -> Any:
        """Call a method of the model on rows, and return arrays; rows in the table's units."""
        found = getattr(self.model, method)(self.rows(values), *more, **options)
        if not isinstance(found, tuple):
            return self.undone(np.asarray(found)) if method in ROWS else np.asarray(found)
        parts = tuple(np.asarray(part) for part in found)
        if method not in ROWS or self.scale is None or self.own_scale:
            return parts
        return self.undone(parts[0]), *(part * self.scale for part in parts[1:])

    def of(self, at: Ints) -> Any:
        """Return some of the rows as the model expects them."""
        return self.rows(self.X[at])

    def answer(self, method: str, at: Ints, **options: Any) -> Any:
        """Call a method of the model on some of the rows, and return arrays, not of rows."""
        found = getattr(self.model, method)(self.of(at), **options)
        if not isinstance(found, tuple):
            return np.asarray(found)
        return tuple(np.asarray(part) for part in found)

    def sampled(self, count: int) -> Floats:
        """Return rows that the model invents, in the units of the table."""
        found = self.model.sample(count, random_state=self.seed)
        rows = found[0] if isinstance(found, tuple) else found  # mixtures return the group too
        return self.undone(np.asarray(rows, dtype=np.float64))

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
        return replace(self, model=fresh, X=values)

    def some(self, most: int, salt: int = 0) -> Ints:
        """Return at most `most` positions of rows, drawn at random, in order."""
        if self.n <= most:
            return np.arange(self.n)
        rng = np.random.default_rng([self.seed, salt])
        return np.sort(rng.choice(self.n, most, replace=False))


@dataclass(frozen=True)
class MixedSubject(Subject):
    """Rows with columns of any kind: X has numbers, positions of levels, and bounds for numbers."""

    table: pl.DataFrame = field(default_factory=pl.DataFrame)  # as the model expects it
    kinds: tuple[str, ...] = ()  # of the d columns
    levels: tuple[tuple[str, ...], ...] = ()  # of text; none for numbers
    bounded: Any = None  # (n, d), where only a bound is known

    def of(self, at: Ints) -> Any:
        """Return some of the rows as the model expects them."""
        return self.table[np.asarray(at).tolist()]

    def told(self, value: float, j: int, bounded: bool = False) -> str:
        """Return an entry of a column in words: a level, or a number."""
        if np.isnan(value):
            return "missing"
        if self.levels[j]:
            return self.levels[j][int(value)]
        return str(said(value, 4)) if not bounded else f"a bound of {said(value, 4)}"

    def cell(self, i: int, j: int) -> str:
        """Return an entry of a row in words, bounds as they are written."""
        value = self.table[i, j]
        if value is None:
            return "missing"
        return str(value) if isinstance(value, str) else said(float(value), 4)

    def codes(self, table: pl.DataFrame) -> Floats:
        """Return a table of the model's columns as X has them."""
        return np.stack([coded(table[k], self.levels[j])[0] for j, k in enumerate(self.names)], 1)

    def partial(self, hidden: Any) -> pl.DataFrame:
        """Return the table with entries hidden, (n, d)."""
        columns_ = zip(self.table.iter_columns(), hidden.T, strict=True)
        return pl.DataFrame([one.set(pl.Series(where), None) for one, where in columns_])

    def fitted_to(self, table: pl.DataFrame) -> Any:
        """Return the same model with the same kinds and components, fitted to other rows."""
        from sklearn.base import clone

        fresh = clone(self.model)
        given = self.model.get_params(deep=False)["column_kinds"]
        kinds: dict[str, Any] = dict(zip(self.names, self.kinds, strict=True))
        kinds |= given if isinstance(given, Mapping) else {}
        words = {n: list(known) for n, known in zip(self.names, self.levels, strict=True) if known}
        kinds |= {name: known for name, known in words.items() if kinds[name] == "ordinal"}
        fresh.set_params(n_components=self.q, column_kinds=kinds, random_state=self.seed)
        with quietly():
            return fresh.fit(table)


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
    """Return values of Python; NaN is None, which it would not be among text."""
    found = column.tolist() if hasattr(column, "tolist") else list(column)
    found = [value.item() if hasattr(value, "item") else value for value in found]
    return [None if isinstance(value, float) and math.isnan(value) else value for value in found]


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
    prepared: Preparation | None = None,
    command: str | None = None,
    supplementary: Any = None,
    supplementary_rows: Any = None,
    time: Any = None,
) -> Subject:
    """Return what a report is about, checked.

    Parameters
    ----------
    model, X, color, ids, image, curve, level, seed, supplementary, supplementary_rows, time
        As in `write`.
    units : str, default="in the table's own units"
        Units of the table, in words.
    prepared : Preparation, default=None
        How the columns of X became rows of the model, from the model's file; X is the table as it
        is. Without it X has the rows that the model was fitted to.
    command : str, default=None
        The command that fitted the model, from its file.
    """
    model = _reportable(model)
    frame = _frame(X)
    apart = [name for name in (color, ids) if isinstance(name, str)]
    table, mixed = None, hasattr(model, "column_kinds_")
    if mixed:
        table, prepared = _mixed_table(model, frame, X, prepared)
        words = level_words(model)
        parts = [coded(one, words.get(one.name, ())) for one in table.iter_columns()]
        values, names = np.stack([one for one, _ in parts], axis=1), tuple(table.columns)
    else:
        values, names = _rows(model, X, frame, apart, prepared)
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
    others = _others(frame, names, () if prepared is None else prepared.names)
    more: dict[str, Any] = {}
    if table is not None:
        more = {"table": table, "kinds": tuple(model.column_kinds_.values())}
        more |= {"levels": tuple(words.get(name, ()) for name in names)}
        more |= {"bounded": np.stack([where for _, where in parts], axis=1)}
    return (MixedSubject if mixed else Subject)(
        model,
        values,
        names,
        rows,
        colour,
        None if image is None else (int(image[0]), int(image[1])),
        curve,
        level,
        seed,
        units=units,
        aside=_aside(frame, others),
        others=others,
        prepared=prepared,
        command=command,
        identified=ids is not None,
        beside=_beside(frame, supplementary),
        time=_time(frame, time, [one for one in others if one not in apart], n),
        **_rows_beside(model, supplementary_rows, ids, apart, prepared),
        **more,
    )


def _rows(
    model: Any,
    X: Any,
    frame: pl.DataFrame | None,
    apart: list[str],
    prepared: Preparation | None,
) -> tuple[Floats, tuple[str, ...]]:
    """Return rows as numbers, in the model's columns, and the columns' names."""
    if prepared is None or frame is None:
        return _values(model, X, frame, apart)
    plain = replace(prepared, means=None, scales=None).rows(frame)
    return plain.to_numpy().astype(np.float64), tuple(plain.columns)


def _time(frame: pl.DataFrame | None, time: Any, others: list[str], n: int) -> TimeAxis | None:
    """Return the time of rows: as given, else found among columns that the model does not use."""
    if isinstance(time, TimeAxis):
        return time
    if frame is not None and (time is None or isinstance(time, str)):
        return find_time(frame, time, others)
    if time is None or (isinstance(time, str) and time == NONE):
        return None
    time = _column(frame, time, "time")
    column = time if isinstance(time, pl.Series) else pl.Series("time", _plain(time), strict=False)
    found = read_time(column.alias(column.name or "time"))
    if found is None or len(column) != n:
        what = f"a date or a number for each of the {n} rows"
        raise ReportError(expected("time", what, len(column) if found else column[0]))
    return found


def _beside(frame: pl.DataFrame | None, supplementary: Any) -> Any:
    """Return supplementary columns: those of the frame, if they are given by name."""
    names = [supplementary] if isinstance(supplementary, str) else supplementary
    if isinstance(names, list | tuple) and names and all(isinstance(one, str) for one in names):
        return {name: _column(frame, name, "supplementary") for name in names}
    empty = isinstance(supplementary, pl.DataFrame) and not supplementary.width
    return None if empty else supplementary


def _rows_beside(
    model: Any, rows: Any, ids: Any, apart: list[str], prepared: Preparation | None
) -> dict[str, Any]:
    """Return supplementary rows as numbers, and their names if they are in a column."""
    if rows is None:
        return {}
    frame = _frame(rows)
    if hasattr(model, "column_kinds_"):
        values: Any = _mixed_table(model, frame, rows, prepared)[0]
    else:
        values = _rows(model, rows, frame, apart, prepared)[0]
    named = isinstance(ids, str) and frame is not None and ids in frame.columns
    found = identifiers(_column(frame, ids, "ids") if named else None, len(values))
    return {"rows_beside": values, "ids_beside": found}


def _mixed_table(
    model: Any, frame: pl.DataFrame | None, X: Any, prepared: Preparation | None
) -> tuple[pl.DataFrame, Preparation]:
    """Return rows for a model of columns of any kind, and how they were prepared."""
    names = [str(name) for name in getattr(model, "feature_names_in_", ())]
    if frame is None:
        matrix = np.asarray(X)
        names = names or [f"x{j}" for j in range(model.n_features_in_)]
        if matrix.ndim != 2 or matrix.shape[1] != model.n_features_in_:
            raise ReportError(expected("X", f"{model.n_features_in_} columns", matrix.shape))
        frame = pl.DataFrame(
            {name: pl.Series(_plain(matrix[:, j]), strict=False) for j, name in enumerate(names)}
        )
    if prepared is None:
        kinds = dict(zip(names, model.column_kinds_.values(), strict=True))
        prepared = Preparation(tuple(names), level_words(model), kinds=kinds)
    return prepared.rows(frame, 0), prepared


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
    return pl.DataFrame({str(name): pl.Series(_plain(X[name]), strict=False) for name in X.columns})


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


def _others(
    frame: pl.DataFrame | None, names: tuple[str, ...], used: Sequence[str]
) -> tuple[str, ...]:
    """Return the columns of a table that the model does not use."""
    if frame is None:
        return ()
    stems = {name.partition("=")[0] for name in names} | set(names) | set(used)
    return tuple(name for name in frame.columns if name not in stems)


def _aside(frame: pl.DataFrame | None, others: Sequence[str]) -> tuple[str, ...]:
    """Return columns that the model does not use, in words."""
    if frame is None:
        return ()
    found = []
    for name in others:
        kind = frame[name].dtype
        what = "numbers" if kind.is_numeric() else "dates" if kind.is_temporal() else "text"
        n = frame[name].drop_nulls().n_unique()
        values = f"{n:,} different values" if n > 1 else "always the same" if n else "no entries"
        found.append(f"{name} ({what}, {values})")
    return tuple(found)
