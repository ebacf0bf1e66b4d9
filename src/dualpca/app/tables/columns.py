"""From the columns of a table to the rows of a model, and back.

Columns of numbers stay as they are, columns of categories become zeros and ones (`profiles`
decides which are which). A missing entry is NaN, and so is one of which only a bound is known, such
as <50. A model of columns of any kind is given categories as categories and bounds as bounds
instead (`mixed`). What a model file keeps of the preparation is the entry `table` of its metadata
(docs/guide/saving.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from dualpca.app.tables.text import MISSING, NEVER, TEXTUAL, TableError, without

# --- columns as numbers ------------------------------------------------------------------------

Values = np.ndarray[Any, Any]
Levels = Mapping[str, Sequence[str]]
"""The values of one-hot columns, by column."""

MANY = 50
"""Number of values above which --one-hot is not suggested."""
LONGEST, LONGEST_NAME = 40, 200
"""Characters of a cell, and of a column's name, that messages show."""
DATES = "dates or times"
"""What columns are said to hold that have dates as dates, or as text."""
DATE = re.compile(r"\d{1,4}([-./])\d{1,2}\1\d{1,4}([ T]\d{1,2}:\d{2}.*)?|\d{1,2}:\d{2}(:\d{2})?")


def select(frame: pl.DataFrame, include: Sequence[str], exclude: Sequence[str]) -> list[str]:
    """Return the columns that a pattern includes (all by default) and none excludes.

    Examples
    --------
    >>> frame = pl.DataFrame({"width": [1.0], "height": [2.0], "id": [3]})
    >>> select(frame, ["*"], ["id"]), select(frame, ["w*"], [])
    (['width', 'height'], ['width'])
    """
    for pattern in (*include, *exclude):
        if not any(fnmatchcase(name, pattern) for name in frame.columns):
            raise TableError(
                f"no column matches {pattern!r}; the columns are {_some(frame.columns)}."
            )
    wanted = [c for c in frame.columns if not include or any(fnmatchcase(c, p) for p in include)]
    kept = [c for c in wanted if not any(fnmatchcase(c, p) for p in exclude)]
    if not kept:
        raise TableError("no column is left: --columns and --exclude leave nothing.")
    return kept


def _some(names: Sequence[str]) -> str:
    return ", ".join(shown(name) for name in names[:10]) + (", …" if len(names) > 10 else "")


def shown(cell: Any) -> str:
    """Return a cell in quotes for a message, shortened if it is long.

    Examples
    --------
    >>> shown("Köln"), len(shown("x" * 1000))
    ("'Köln'", 43)
    """
    text = str(cell)
    return repr(text if len(text) <= LONGEST else text[:LONGEST] + "…")


def shown_name(name: str) -> str:
    """Return the name of a column in quotes for a message, shortened if it is very long."""
    return repr(name if len(name) <= LONGEST_NAME else name[:LONGEST_NAME] + "…")


def numbers(
    frame: pl.DataFrame,
    names: Sequence[str],
    one_hot: Sequence[str] = (),
    levels: Levels | None = None,
    dropped: Mapping[str, str] | None = None,
    missing: Sequence[str] = (),
) -> pl.DataFrame:
    """Return columns as float64, NaN where an entry is missing; true is 1 and false 0.

    Parameters
    ----------
    frame : polars.DataFrame
    names : sequence of str
    one_hot : sequence of str
        Columns of text or whole numbers that become one column of zeros and ones per value,
        called name=value.
    levels : mapping, optional
        The values; by default those of the column. Other values are refused if they are given.
    dropped : mapping, optional
        The value of a one-hot column that has no column of its own: all others are 0 there.
    missing : sequence of str
        Further codes of missing entries, text or numbers.

    Examples
    --------
    >>> frame = pl.DataFrame({"a": [1, None], "kind": ["x", "y"]})
    >>> numbers(frame, ["a", "kind"], ["kind"]).rows()
    [(1.0, 1.0, 0.0), (nan, 0.0, 1.0)]
    >>> numbers(frame, ["kind"], ["kind"], dropped={"kind": "x"}).columns
    ['kind=y']
    """
    _check_absent(frame, names)
    frame = without(frame.select(names), missing)
    left = dropped or {}
    known = levels_of(frame, names, one_hot) if levels is None else levels
    columns: list[pl.Series] = []
    refused: list[Refused] = []
    for name in names:
        if name in known:
            _check_levels(frame[name], known[name])
            kept = [level for level in known[name] if level != left.get(name)]
            columns += [_indicator(frame[name], level) for level in kept]
            continue
        found = number(frame[name])
        if isinstance(found, Refused):
            refused.append(found)
        else:
            columns.append(found)
    if refused:
        raise TableError(misfit(refused))
    return pl.DataFrame(columns)


def levels_of(
    frame: pl.DataFrame, names: Sequence[str], one_hot: Sequence[str]
) -> dict[str, list[str]]:
    """Return the values of columns, in order."""
    absent = sorted(set(one_hot) - set(names))
    if absent:
        raise TableError(f"--one-hot {absent[0]}: no such column; there are {_some(list(names))}.")
    return {name: texts(frame[name]).drop_nulls().unique().sort().to_list() for name in one_hot}


class Refused(NamedTuple):
    """Why a column cannot be used as it is."""

    name: str
    what: str
    example: str
    one_hot: bool  # one column per value would make sense
    stray: str | None = None  # one entry among numbers


def refusal(refused: Sequence[Refused]) -> str:
    """Return what is wrong with columns, and the options that help."""
    most = LONGEST_NAME
    short = (one.name if len(one.name) <= most else one.name[:most] + "*" for one in refused)
    exclude = " ".join(
        f"--exclude {quoted(name)}" for name, _ in zip(short, range(10), strict=False)
    )
    hot = [one.name for one in refused if one.one_hot and len(one.name) <= most]
    stray = [one.stray for one in refused if one.stray is not None and len(one.stray) <= LONGEST]
    advice = f", or use --one-hot {quoted(hot[0])} for one column per value" if hot else ""
    if stray:
        advice += (
            f". If {shown(stray[0])} means that a number is missing, say --na {quoted(stray[0])}"
        )
    if len(refused) == 1:
        name, what, example, *_ = refused[0]
        return (
            f"column {shown_name(name)} holds {what} (such as {example}), but models need numbers. "
            f"Leave it out with {exclude}{advice}."
        )
    each = ", ".join(
        f"{shown_name(one.name)} ({one.what}, such as {one.example})" for one in refused[:10]
    )
    more = f" and {len(refused) - 10} more" if len(refused) > 10 else ""
    return (
        f"columns {each}{more} do not hold numbers, but models need numbers. Leave them out with "
        f"--numbers-only, or with {exclude}{advice}."
    )


def misfit(refused: Sequence[Refused]) -> str:
    """Return what is wrong with columns of a fitted model, and what helps."""
    name, what, example, *_ = refused[0]
    more = f", and so do {len(refused) - 1} more" if refused[1:] else ""
    code = quoted(example.strip("'"))
    remedy = "" if what == DATES else f", or treat an entry as missing with --na {code}"
    return (
        f"column {shown_name(name)} of the model holds {what} in this table (such as {example}), "
        f"but the model needs numbers there{more}. Correct the table{remedy}."
    )


def quoted(name: str) -> str:
    r"""Return a name quoted for a shell; letters that cannot be seen are escaped.

    Examples
    --------
    >>> print(quoted("age"), quoted("body mass"), quoted("a\u200bb"))
    age 'body mass' $'a\U0000200bb'
    """
    if not name.isprintable():
        seen = (c if c.isprintable() and c not in "\\'" else f"\\U{ord(c):08x}" for c in name)
        return f"$'{''.join(seen)}'"
    return name if re.fullmatch(r"[\w.:=+,-]+", name) else "'" + name.replace("'", "'\\''") + "'"


BOUND = re.compile(r"(<=|>=|<|>|≤|≥)\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")
"""A cell of which only a bound is known: <50, or ≥ 1e3."""


def texts(column: pl.Series) -> pl.Series:
    """Return the cells of a column as text without spaces around it, null where missing.

    Whole numbers have no decimal point, whatever their type. Text such as NA may be a value here;
    `number` is for columns in which it is missing.

    Examples
    --------
    >>> texts(pl.Series([1.0, 2.5, None])).to_list(), texts(pl.Series([" u", "NA", " "])).to_list()
    (['1', '2.5', None], ['u', 'NA', None])
    """
    if column.dtype in TEXTUAL:
        text = column.cast(pl.String).str.strip_chars()
        return text.set(text.is_in(NEVER), None)
    if column.dtype.is_float():
        column = column.fill_nan(None)
        whole = (column == column.round()) & (column.abs() < 2**53)
        text, digits = column.cast(pl.String), column.cast(pl.Int64, strict=False).cast(pl.String)
        return digits.zip_with(whole.fill_null(False), text)
    return column.cast(pl.String)


def number(column: pl.Series) -> pl.Series | Refused:
    """Return a column as float64, or why it does not hold numbers.

    Text does if every entry is a number, with or without spaces around it, or a bound (<50), which
    is missing.
    """
    kind = column.dtype
    if kind.is_numeric() or kind in (pl.Boolean, pl.Null):
        return column.cast(pl.Float64).fill_null(float("nan"))
    if kind.is_temporal():
        values = column.drop_nulls()
        return Refused(column.name, DATES, _example(values), False)
    if kind in TEXTUAL:
        text = texts(column)
        text = text.set(text.is_in(MISSING), None)
        cast = text.cast(pl.Float64, strict=False)
        odd = text.filter(cast.is_null() & text.is_not_null())
        odd = odd.filter(~is_bound(odd))
        if not len(odd):
            return cast.fill_null(float("nan"))
        return refused_text(column.name, str(odd[0]), column.n_unique())
    return Refused(column.name, str(kind).lower(), _example(column.drop_nulls()), False)


def is_bound(text: pl.Series) -> pl.Series:
    """Return where text is a bound, such as <50."""
    return text.str.contains(f"^(?:{BOUND.pattern})$")


def bounds(column: pl.Series) -> tuple[Values, Values]:
    """Return the least and the largest value that every entry may have, (n,) each.

    Both are the value itself where it is known, and −∞ and ∞ where nothing is.

    Examples
    --------
    >>> low, high = bounds(pl.Series(["2", "<50", "≥ 7", None]))
    >>> low.tolist(), high.tolist()
    ([2.0, -inf, 7.0, -inf], [2.0, 50.0, inf, inf])
    """
    found = number(column)
    if isinstance(found, Refused):
        raise TableError(refusal([found]))
    known = found.to_numpy()
    low, high = (np.where(np.isnan(known), end, known) for end in (-np.inf, np.inf))
    if column.dtype in TEXTUAL:
        text = texts(column)
        for i in is_bound(text).fill_null(False).arg_true():
            sign, value = BOUND.fullmatch(text[i]).groups()  # type: ignore[union-attr]
            (high if sign in ("<", "<=", "≤") else low)[i] = float(value)
    return low, high


NOTATION = re.compile(r"[+-]?[\d.,\s'’]*\d")
OTHER_DIGITS = re.compile(r"(?=.*(?![0-9])\d)[-+−<>=≤≥]*[\d.,．，٫٬\s'’]*\d")
"""A number of which some digits are not 0 to 9, such as ١٢ or １２."""
UNITS = re.compile(r"[$€£¥]\s*[+-]?\d[\d.,'’]*|[+-]?\d[\d.,'’]*(\s*[%‰$€£¥]|\s+[^\s\d]+)")


def refused_text(name: str, first: str, n_values: int) -> Refused:
    """Return why a column of text is refused, by one of its entries that is not a number."""
    if DATE.fullmatch(first):
        return Refused(name, DATES, shown(first), False)
    if OTHER_DIGITS.fullmatch(first):
        what = "numbers in digits of another script: write them with 0 to 9"
        return Refused(name, what, shown(first), False)
    if NOTATION.fullmatch(first):
        what = "numbers in another notation (see --decimal and --thousands)"
        return Refused(name, what, shown(first), False)
    if UNITS.fullmatch(first):
        return Refused(name, "numbers with units", shown(first), n_values <= MANY)
    return Refused(name, "text", shown(first), n_values <= MANY)


def _example(values: pl.Series) -> str:
    return shown(values[0]) if len(values) else "nothing at all"


def _indicator(column: pl.Series, level: str) -> pl.Series:
    """Return 1 where a column has a value, 0 where it has another, NaN where it is missing."""
    same = (texts(column) == level).cast(pl.Float64)
    return same.fill_null(float("nan")).alias(f"{column.name}={level}")


def named_rows(model: Any, X: Any) -> Any:
    """Return rows as a frame with the names of a model's features, if it was fitted with names."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return X
    return pl.DataFrame(np.ascontiguousarray(X), schema=[str(n) for n in names], orient="row")


def matching(
    frame: pl.DataFrame, names: Sequence[str], dropped: Mapping[str, str] | None = None
) -> pl.DataFrame:
    """Return the columns that a model was fitted to, in its order, as float64.

    A name such as kind=x that is not itself a column is 1 where the column kind is x; `dropped`
    has the value of such a column that no name stands for.

    Examples
    --------
    >>> frame = pl.DataFrame({"kind": ["x", "y"], "a": [1, 2]})
    >>> matching(frame, ["a", "kind=x", "kind=y"]).rows()
    [(1.0, 1.0, 0.0), (2.0, 0.0, 1.0)]
    """
    taken, levels = origins(names, frame.columns)
    left = {name: level for name, level in (dropped or {}).items() if name in levels}
    for name, level in left.items():
        levels[name].append(level)
    return numbers(frame, taken, levels=levels, dropped=left).select(names)


def origins(names: Sequence[str], present: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the columns that features come from, and the levels of one-hot columns.

    A feature such as kind=x that is not itself a column is the level x of the column kind.

    Examples
    --------
    >>> origins(["a", "k=u", "k=v"], ["k", "a"])
    (['a', 'k'], {'k': ['u', 'v']})
    >>> origins(["k=u"], ["k", "k=u"])  # a column of that very name
    (['k=u'], {})
    """
    levels: dict[str, list[str]] = {}
    found: list[str] = []
    for name in names:
        stem, _, level = name.partition("=")
        if name not in present and level and stem in present:
            levels.setdefault(stem, []).append(level)
            name = stem
        if name not in found:
            found.append(name)
    return found, levels


def _check_absent(frame: pl.DataFrame, names: Sequence[str]) -> None:
    """Refuse a table that lacks columns."""
    absent = [name for name in names if name not in frame.columns]
    if absent:
        raise TableError(
            f"columns {_some(absent)} of the model are missing from the table, which has "
            f"{_some(frame.columns)}. Rename its columns, or fit a model to this table."
        )


def _check_levels(column: pl.Series, known: Sequence[str], label: Label | None = None) -> None:
    """Refuse values of a column of categories that were not there in the fit."""
    text = texts(column)
    new = sorted(set(text.drop_nulls()) - set(known))
    if new:
        where = ""
        if label is not None:
            first = int((text == new[0]).fill_null(False).arg_true()[0])
            where = f" (the first in {label(first)})"
        raise TableError(
            f"column {shown_name(column.name)} has values that the model has not seen: "
            f"{_some(new)}{where}; it knows {_some(known)}. Drop these rows, "
            "fit a model to rows that have them, or "
            f"treat them as missing with --na {quoted(','.join(new[:3]))}."
        )


# --- columns of any kind -----------------------------------------------------------------------


Label = Callable[[int], str]
"""Returns what a row is called in messages."""


def mixed(
    frame: pl.DataFrame,
    names: Sequence[str],
    levels: Levels,
    missing: Sequence[str] = (),
    label: Label | None = None,
) -> pl.DataFrame:
    """Return columns as a model of columns of any kind expects them, null where missing.

    Numbers are Float64, or Int64 if all are whole; categories are text, and so are numbers with
    bounds among them, such as 12.5, <50 and >100.

    Parameters
    ----------
    frame : polars.DataFrame
    names : sequence of str
    levels : mapping
        The levels of columns of categories, in order. Other values are refused.
    missing : sequence of str
        Further codes of missing entries.
    label : callable, optional
        What rows are called in messages.

    Examples
    --------
    >>> frame = pl.DataFrame({"a": [1.5, None], "k": ["x", None], "c": ["7", "≤ 5"]})
    >>> mixed(frame, ["a", "k", "c"], {"k": ["x", "y"]}).rows()
    [(1.5, 'x', '7'), (None, None, '≤5')]
    """
    _check_absent(frame, names)
    frame = without(frame.select(names), missing)
    found, refused = [], []
    for name in names:
        if name in levels:
            _check_levels(frame[name], levels[name], label)
            found.append(texts(frame[name]))
            continue
        values = number(frame[name])
        if isinstance(values, Refused):
            refused.append(values)
        elif frame[name].dtype in TEXTUAL and is_bound(texts(frame[name])).any():
            found.append(_bounded(frame[name]))
        else:
            found.append(_whole(values.fill_nan(None)))
    if refused:
        raise TableError(misfit(refused))
    return pl.DataFrame(found)


def kind_words(kinds: Mapping[str, str], most: int = 12) -> str:
    """Return the kinds of columns in words, kind by kind.

    Examples
    --------
    >>> kind_words({"age": "continuous", "ward": "nominal", "bmi": "continuous"})
    'continuous age, bmi; nominal ward'
    """
    found = []
    for kind in dict.fromkeys(kinds.values()):
        names = [name for name, one in kinds.items() if one == kind]
        more = f" and {len(names) - most} more" if len(names) > most else ""
        found.append(f"{kind} {', '.join(names[:most])}{more}")
    return "; ".join(found)


def plain(table: Any) -> pl.DataFrame:
    """Return a table that a model of columns of any kind made as numbers and text.

    Examples
    --------
    >>> plain(pl.DataFrame([pl.Series("k", ["x"], dtype=pl.Categorical)])).rows()
    [('x',)]
    """
    found = _of_pandas(table) if hasattr(table, "iloc") else pl.DataFrame(table)
    return found.with_columns(
        [one.cast(pl.String) for one in found.iter_columns() if one.dtype in TEXTUAL]
    )


def _of_pandas(table: Any) -> pl.DataFrame:
    """Return a frame of pandas; for text polars would need pyarrow, which no extra brings."""
    columns = []
    for name in table.columns:
        values = table[name].astype(object)
        values = values.where(table[name].notna(), None).tolist()
        columns.append(pl.Series(str(name), values, strict=False))
    return pl.DataFrame(columns)


def coded(column: pl.Series, levels: Sequence[str]) -> tuple[Values, Values]:
    """Return a column as numbers, with positions of levels or bounds, and where bounds are."""
    if levels:
        place = {level: float(i) for i, level in enumerate(levels)}
        words = texts(column).to_list()
        codes = [np.nan if word is None else place.get(word, np.nan) for word in words]
        return np.array(codes, dtype=np.float64), np.zeros(len(column), dtype=bool)
    if column.dtype != pl.String:
        found = column.cast(pl.Float64).fill_null(float("nan")).to_numpy()
        return found, np.zeros(len(column), dtype=bool)
    low, high = bounds(column)
    one = np.where(np.isfinite(low), low, high)
    return np.where(np.isfinite(one), one, np.nan), (low != high) & np.isfinite(one)


def level_words(model: Any) -> dict[str, tuple[str, ...]]:
    """Return the levels of a model's columns that are text, by column."""
    return {
        str(name): tuple(str(level) for level in levels)
        for name, levels in model.levels_.items()
        if any(isinstance(level, str) for level in levels)
    }


def _bounded(column: pl.Series) -> pl.Series:
    """Return numbers and bounds as text, without spaces."""
    text = texts(column)
    return text.set(text.is_in(MISSING), None).str.replace(f"^{BOUND.pattern}$", "${1}${2}")


def _whole(values: pl.Series) -> pl.Series:
    """Return numbers as integers if they all are."""
    known = values.drop_nulls()
    whole = bool((known.is_finite() & (known == known.round()) & (known.abs() < 2**53)).all())
    return values.cast(pl.Int64) if whole and len(known) else values


# --- preparations: the columns and units of one model ------------------------------------------


class Bounds(NamedTuple):
    """The range in which every entry is known to lie; both ends are the value if it is known."""

    lower: Values  # (n, d), −inf where there is none
    upper: Values  # (n, d), inf where there is none


@dataclass(frozen=True)
class Preparation:
    """The columns of a table that a model uses, and their units.

    A row of the model is (feature − mean) / scale; features are the columns, those with levels
    replaced by one column of zeros and ones per level, but for one level that was left out because
    it follows from the others.

    Examples
    --------
    >>> frame = pl.DataFrame({"kind": ["u", "v"], "a": [1.0, 3.0]})
    >>> prepared = Preparation(("a", "kind"), {"kind": ("u", "v")}).standardized([frame])
    >>> prepared.rows(frame).rows()
    [(-1.0, 1.0, -1.0), (1.0, -1.0, 1.0)]
    >>> prepared.undone(np.zeros((1, 3))).tolist()
    [[2.0, 0.5, 0.5]]
    >>> Preparation(("a", "kind"), {"kind": ("u", "v")}, dropped={"kind": "u"}).features
    ['a', 'kind=v']
    """

    names: tuple[str, ...]
    levels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    means: Values | None = None  # (d,)
    scales: Values | None = None  # (d,)
    image_shape: tuple[int, ...] | None = None
    identifier: str | None = None
    dropped: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()  # codes of missing entries, beside the usual
    kinds: Mapping[str, str] | None = None  # of a model of columns of any kind: their kinds
    time: str | None = None  # the column that tells the time of rows
    units: Mapping[str, str] = field(default_factory=dict)  # of columns, as the table has them

    def titled(self, name: str) -> str:
        """Return the name of a column with its unit, for readers.

        Examples
        --------
        >>> prepared = Preparation(("temp", "ratio"), units={"temp": "°C"})
        >>> prepared.titled("temp"), prepared.titled("ratio")
        ('temp [°C]', 'ratio')
        """
        unit = self.units.get(name)
        return name if unit is None else f"{name} [{unit}]"

    @property
    def features(self) -> list[str]:
        """Return the names of the model's features."""
        if self.kinds is not None:
            return list(self.names)
        found: list[str] = []
        for name in self.names:
            kept = self._kept(name)
            found += [name] if kept is None else [f"{name}={level}" for level in kept]
        return found

    def _kept(self, name: str) -> list[str] | None:
        """Return the levels of a column that are features; None for a column of numbers."""
        known = self.levels.get(name)
        return None if known is None else [k for k in known if k != self.dropped.get(name)]

    def rows(self, frame: pl.DataFrame, first: int | None = None) -> pl.DataFrame:
        """Return a table's rows as the model expects them: float64, NaN where missing.

        For a model of columns of any kind, as `mixed` returns them; `first` is the number of the
        first row, if it is known, for messages.
        """
        if self.kinds is not None:
            return mixed(frame, self.names, self.levels, self.missing, self._label(frame, first))
        found = numbers(frame, self.names, (), self.levels, self.dropped, self.missing)
        if self.means is None or self.scales is None:
            return found
        values = (found.to_numpy() - self.means) / self.scales
        return pl.DataFrame(values, schema=self.features, orient="row")

    def _label(self, frame: pl.DataFrame, first: int | None) -> Label | None:
        """Return how rows of a table are called: by their identifiers, else by their numbers."""
        if self.identifier is not None and self.identifier in frame.columns:
            names = frame[self.identifier]
            return lambda row: f"row {shown(names[row])}"
        return None if first is None else lambda row: f"row {first + row + 1}"

    def categories(self, values: Any) -> pl.DataFrame:
        """Return the level of every row in every column that has levels, as text.

        It is the level with the largest value; that of the level without a feature is 1 minus the
        sum of the others. Of equals the first wins, and a row with NaN has none.

        Parameters
        ----------
        values : array of shape (n, d)
            Features in the units of the table, as `undone` returns them.

        Examples
        --------
        >>> prep = Preparation(("a", "k"), {"k": ("u", "v", "w")}, dropped={"k": "v"})
        >>> prep.categories([[7.0, 0.2, 0.3], [7.0, 0.1, 0.8]]).rows()
        [('v',), ('w',)]
        """
        X, at, found = np.asarray(values, dtype=float), 0, []
        for name in self.names:
            kept = self._kept(name)
            count = 1 if kept is None else len(kept)
            part, at = X[:, at : at + count], at + count
            if kept is None:
                continue
            known, rest = list(self.levels[name]), 1 - part.sum(axis=1)
            amounts = np.stack(
                [part[:, kept.index(k)] if k in kept else rest for k in known], axis=1
            )
            best = [known[k] for k in np.where(np.isnan(amounts), -np.inf, amounts).argmax(axis=1)]
            lost = np.isnan(amounts).any(axis=1)
            found.append(pl.Series(name, best, dtype=pl.String).set(pl.Series(lost), None))
        return pl.DataFrame(found)

    def framed(self, values: Any) -> pl.DataFrame:
        """Return features (n, d), in the units of the table, as columns of the table.

        Categories are text, as `categories` returns them.

        Examples
        --------
        >>> prep = Preparation(("k", "a"), {"k": ("u", "v")}, dropped={"k": "u"})
        >>> prep.framed([[0.2, 7.0]]).rows()
        [(7.0, 'u')]
        """
        at = {name: j for j, name in enumerate(self.features) if name in self.names}
        if not at:
            return self.categories(values)
        found = pl.DataFrame(
            {name: np.asarray(values, dtype=float)[:, j] for name, j in at.items()}
        )
        return found.hstack(self.categories(values)) if self.levels else found

    def bounds(self, frame: pl.DataFrame) -> Bounds:
        """Return what is known of every entry of the model's rows: the value, or a range.

        Models do not use the ranges of censored entries (<50) yet: for `rows` they are missing.

        Examples
        --------
        >>> found = Preparation(("a",)).bounds(pl.DataFrame({"a": ["1.5", "<50", None]}))
        >>> found.lower.T.tolist(), found.upper.T.tolist()
        ([[1.5, -inf, -inf]], [[1.5, 50.0, inf]])
        """
        rows = replace(self, means=None, scales=None).rows(frame).to_numpy()
        lower = np.where(np.isnan(rows), -np.inf, rows)
        upper = np.where(np.isnan(rows), np.inf, rows)
        frame = without(frame.select(self.names), self.missing)
        for j, name in enumerate(self.features):
            if name in self.names and name not in self.levels and frame[name].dtype in TEXTUAL:
                lower[:, j], upper[:, j] = bounds(frame[name])
        if self.means is not None and self.scales is not None:
            lower, upper = ((part - self.means) / self.scales for part in (lower, upper))
        return Bounds(lower, upper)

    def undone(self, values: Any) -> Values:
        """Return rows of the model (n, d) in the units of the table."""
        found = np.asarray(values)
        if self.means is None or self.scales is None:
            return found
        return found * self.scales + self.means

    def undone_spread(self, spread: Any) -> Values:
        """Return standard deviations (n, d) in the units of the table."""
        return np.asarray(spread) * (1.0 if self.scales is None else self.scales)

    def undone_density(self, log_density: Any, rows: Any) -> Values:
        """Return log-densities of the model's rows in the units of the table: minus Σ log scale.

        The sum is over observed entries.
        """
        found = np.asarray(log_density)
        if self.scales is None:
            return found
        return np.asarray(found - ~np.isnan(np.asarray(rows)) @ np.log(self.scales))

    def standardized(self, frames: Iterable[pl.DataFrame]) -> Preparation:
        """Return this with the means and standard deviations of tables; constants have scale 1.

        Batches are merged pairwise (Chan, Golub and LeVeque, 1979): one pass is exact.
        """
        plain = replace(self, means=None, scales=None)
        n, mean, squares = np.zeros(1), np.zeros(1), np.zeros(1)
        for frame in frames:
            X = plain.rows(frame).to_numpy()
            seen = ~np.isnan(X)
            count = seen.sum(axis=0)
            new = np.where(seen, X, 0).sum(axis=0) / np.maximum(count, 1)
            delta, total = new - mean, n + count
            share = count / np.maximum(total, 1)
            squares = squares + (np.where(seen, X - new, 0) ** 2).sum(axis=0)
            squares = squares + delta**2 * n * share
            n, mean = total, mean + delta * share
        scale = np.sqrt(squares / np.maximum(n, 1))
        constant = scale <= 1e-14 * np.abs(mean)
        return replace(self, means=mean, scales=np.where(constant, 1.0, scale))

    def table(self) -> dict[str, Any]:
        """Return the preparation as a model file keeps it."""
        found: dict[str, Any] = {"columns": list(self.names)}
        if self.levels:
            found["levels"] = {name: list(known) for name, known in self.levels.items()}
        if self.dropped:
            found["dropped"] = dict(self.dropped)
        if self.missing:
            found["missing"] = list(self.missing)
        if self.kinds is not None:
            found["kinds"] = dict(self.kinds)
        if self.means is not None and self.scales is not None:
            found |= {"means": self.means.tolist(), "scales": self.scales.tolist()}
        if self.image_shape is not None:
            found["image_shape"] = list(self.image_shape)
        if self.identifier is not None:
            found["identifier"] = self.identifier
        if self.time is not None:
            found["time"] = self.time
        return found


def of_table(table: Mapping[str, Any], names: Sequence[str]) -> Preparation:
    """Return the preparation that a model file describes.

    Parameters
    ----------
    table : mapping
        Checked by `dualpca.files.metadata`.
    names : sequence of str
        Names of the model's features; the columns if the file names none.
    """
    d = len(names)
    means, scales = table.get("means"), table.get("scales")
    scaled = means is not None or scales is not None
    shape = table.get("image_shape")
    return Preparation(
        tuple(table.get("columns", names)),
        table.get("levels", {}),
        np.array(means if means is not None else np.zeros(d), dtype=float) if scaled else None,
        np.array(scales if scales is not None else np.ones(d), dtype=float) if scaled else None,
        None if shape is None else tuple(shape),
        table.get("identifier"),
        table.get("dropped", {}),
        tuple(table.get("missing", ())),
        table.get("kinds"),
        table.get("time"),
    )


def guessed(names: Sequence[str], table_columns: Sequence[str]) -> Preparation:
    """Return a preparation by the names of features, where the model file has none."""
    found, levels = origins(names, table_columns)
    return Preparation(tuple(found), levels)
