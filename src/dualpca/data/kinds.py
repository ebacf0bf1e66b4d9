"""Columns of any kind: what each holds, its entries as numbers, and a completed table as it came.

A table of numbers, grades, yes/no, categories, counts and censored values becomes two arrays of
shape (n, d), the lowest and the highest value that every entry may have: the same number twice
where it is known, NaN where it is missing, the number of its level where a column has levels.
`guess` says by which rules a column is read where nothing else is asked for.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Number, Real
from typing import Any, NamedTuple

import numpy as np

from dualpca.arrays import backend
from dualpca.data import frames
from dualpca.data.frames import Host
from dualpca.errors import EmptyColumnError, NonFiniteError, expected

KINDS_OF_COLUMNS = ("continuous", "ordinal", "nominal", "binary", "count", "censored")

SORTS = ("number", "boolean", "text", "category")
"""How columns come."""

FEW_VALUES = 10
"""Different whole numbers up to which a column is guessed to be grades, not counts."""

SOME_ENTRIES = 1000
"""Of a column, that are looked at first: more than two different values are soon found."""

IDENTIFIER_SHARE = 0.5
"""Of the entries of a text column that differ from all others, beyond which it identifies rows."""

MOST_LEVELS = 1000
"""Of a nominal column: every level has latent coordinates of its own."""

NUMBER_OR_BOUND = re.compile(
    r"\s*(<=|>=|≤|≥|<|>)?\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*"
)
"""A number in text, or a value known to be below or above one."""

Level = str | bool | int | float


@dataclass(frozen=True)
class Censored:
    """The kind of a column whose values beyond a limit are known only to be beyond it.

    Parameters
    ----------
    below : float, default=None
        Entries at or below this limit (a detection limit) are known only to be at most the limit,
        whatever number stands there.
    above : float, default=None
        Entries at or above this limit (a ceiling) are known only to be at least the limit.

    Notes
    -----
    Text such as '<50' or '>100' in a column of numbers needs no limits: each entry has its own.

    Examples
    --------
    >>> from dualpca import Censored
    >>> Censored(below=50)
    Censored(below=50, above=None)
    """

    below: float | None = None
    above: float | None = None

    def __post_init__(self) -> None:
        """Refuse limits that are no numbers, or in the wrong order."""
        ends: tuple[tuple[str, Any], ...] = (("below", self.below), ("above", self.above))
        for name, end in ends:
            if end is not None and (isinstance(end, bool) or not isinstance(end, Real)):
                raise ValueError(expected(f"{name} of Censored", "a number or None", end))
        if self.below is not None and self.above is not None and not self.below < self.above:
            raise ValueError(expected("Censored", "of below < above", self))


@dataclass(frozen=True)
class ColumnKind:
    """What one column holds, and how it came."""

    kind: str  # one of KINDS_OF_COLUMNS
    sort: str = "number"  # how it came: 'number', 'boolean', 'text' or 'category'
    levels: tuple[Level, ...] | None = None  # in order; None for numbers
    limits: Censored | None = None
    whole: bool = False  # its dtype is one of integers
    ordered: bool = False  # a category with an order
    decimals: int | None = None  # of all numbers in text, if they have the same number of them

    def __post_init__(self) -> None:
        """Refuse words that mean nothing, and levels that are missing."""
        if self.kind not in KINDS_OF_COLUMNS or self.sort not in SORTS:
            raise ValueError(expected("a kind of column", f"one of {list(KINDS_OF_COLUMNS)}", self))
        if self.levels is None and self.kind in ("nominal", "binary"):
            raise ValueError(expected("a column of levels", "with levels", self))

    @property
    def is_unordered(self) -> bool:
        """True for levels without an order."""
        return self.kind == "nominal"

    @property
    def in_words(self) -> bool:
        """True for levels in an order whose values are words, not numbers."""
        return self.kind == "ordinal" and self.sort in ("text", "category")


class Entries(NamedTuple):
    """The lowest and the highest value of every entry, (n, d) each: NaN where it is missing.

    Known entries have the same number twice; `high` is `low` where nothing is censored.
    """

    low: Host
    high: Host

    @property
    def missing(self) -> Host:
        """Where nothing is known, (n, d)."""
        return np.isnan(self.low)

    def rows(self, index: Any) -> Entries:
        """Return some of the rows."""
        low = self.low[index]
        return Entries(low, low if self.high is self.low else self.high[index])

    def hiding(self, columns: Sequence[int]) -> Entries:
        """Return the entries with some columns missing."""
        if not columns:
            return self
        low, high = self.low.copy(), self.high.copy()
        low[:, list(columns)] = high[:, list(columns)] = np.nan
        return Entries(low, high)


# --- One column as it comes ----------------------------------------------------------------------


NONE = np.empty(0, dtype=np.int64)


class Cells(NamedTuple):
    """One column of a table: numbers, or the numbers of levels."""

    sort: str
    numbers: Host | None  # (n,), NaN where missing
    codes: Host = NONE  # (n,) whole, −1 where missing; empty for numbers
    levels: Sequence[Any] = ()
    ordered: bool = False
    whole: bool = False

    @property
    def missing(self) -> Host:
        """Entries that are missing, (n,)."""
        return np.isnan(self.numbers) if self.numbers is not None else self.codes < 0

    @property
    def is_coded(self) -> bool:
        """True for levels and for True and False."""
        return self.numbers is None or self.sort == "boolean"

    @property
    def distinct(self) -> list[Any]:
        """Values that occur, in order."""
        if self.numbers is None:
            counts = np.bincount(self.codes[self.codes >= 0], minlength=len(self.levels))
            return [level for level, count in zip(self.levels, counts, strict=True) if count]
        found = np.unique(self.numbers[~np.isnan(self.numbers)])
        kind = bool if self.sort == "boolean" else int if self.whole else float
        return [kind(v) for v in found]

    def coded(self) -> tuple[Host, tuple[Any, ...]]:
        """Return the numbers of levels among those that occur, −1 where missing, and these."""
        known, codes = ~self.missing, np.full(len(self.missing), -1)
        values = self.codes if self.numbers is None else self.numbers
        codes[known] = np.unique(values[known], return_inverse=True)[1]
        return codes, tuple(self.distinct)


def library_of(X: Any) -> str:
    """Return 'pandas' or 'polars' for a frame of theirs, '' for anything else."""
    home = type(X).__module__.split(".")[0]
    return home if home in ("pandas", "polars") and frames.is_frame(X) else ""


def has_other_columns(X: Any) -> bool:
    """Return True for a frame of pandas or polars with columns that are no numbers."""
    return bool(library_of(X)) and not all(frames.is_number(dtype) for dtype in X.dtypes)


def opened_table(X: Any) -> Any:
    """Return X as a frame, or as an array (n, d) of numbers or of objects.

    Examples
    --------
    >>> opened_table([[1, "a"], [None, "b"]]).dtype
    dtype('O')
    """
    if library_of(X):
        return X
    if frames.is_arrow(X) or frames.is_frame(X):
        what = "a frame of pandas or polars, or an array"
        raise TypeError(expected("X", what, type(X), "Arrow tables have .to_pandas()."))
    if backend.is_foreign(X):
        remedy = "Give X.cpu().numpy()."
        raise TypeError(expected("X", "an array of NumPy or a frame", type(X), remedy))
    frames.refuse_masked(X)
    if backend.is_sparse(X):
        return X  # refused with all else that is no table of entries
    rows = np.asarray(X)
    if rows.dtype.kind in "US" and not isinstance(X, np.ndarray):
        rows = np.asarray(X, dtype=object)  # NumPy makes text of numbers beside text
    return rows


def cells_of(X: Any, j: int) -> Cells:
    """Return column j of a frame or an array."""
    return column_cells(column_of(X, j))


def column_cells(column: Any) -> Cells:
    """Return a series of pandas or polars, an array of one dimension, or a list.

    Examples
    --------
    >>> column_cells(["b", None, "a"]).codes.tolist()
    [1, -1, 0]
    """
    library = type(column).__module__.split(".")[0]
    if library not in ("pandas", "polars"):
        return _array_cells(column)
    if frames.is_date(column.dtype):
        raise frames.no_dates(str(column.dtype))
    return _pandas_cells(column) if library == "pandas" else _polars_cells(column)


def _number_cells(values: Any, kind: str) -> Cells:
    """Return a column of numbers, NaN where missing; `kind` is that of a dtype of NumPy."""
    sort = "boolean" if kind == "b" else "number"
    return Cells(sort, np.array(values, dtype=np.float64), whole=kind in "iu")


def _array_cells(column: Any) -> Cells:
    values = np.asarray(backend.to_numpy(column))
    if values.dtype.kind in "US" and not isinstance(column, np.ndarray):
        values = np.asarray(column, dtype=object)  # NumPy makes text of numbers beside text
    if values.dtype.kind in frames.NUMBERS:
        return _number_cells(values, values.dtype.kind)
    return _object_cells(values)


def _pandas_cells(column: Any) -> Cells:
    kind = getattr(column.dtype, "kind", "O")
    if str(column.dtype) == "category":
        levels = [_plain(level) for level in column.cat.categories]
        codes = column.cat.codes.to_numpy().astype(np.int64)
        return Cells("category", None, codes, levels, bool(column.cat.ordered))
    if kind in frames.NUMBERS:
        return _number_cells(column.to_numpy(dtype=np.float64, na_value=np.nan), kind)
    codes, found = column.factorize()
    if len(found) and all(isinstance(level, str) for level in found):  # text, the fast way
        order = sorted(range(len(found)), key=lambda k: str(found[k]))
        place = np.empty(len(found) + 1, dtype=np.int64)
        place[order], place[-1] = np.arange(len(found)), -1
        return Cells("text", None, place[codes], [str(found[k]) for k in order])
    return _object_cells(column.to_numpy(dtype=object, na_value=None))


def _polars_cells(column: Any) -> Cells:
    name, pl = str(column.dtype), sys.modules["polars"]
    if column.dtype.is_numeric() or name in ("Boolean", "Null"):
        kind = "b" if name == "Boolean" else "i" if column.dtype.is_integer() else "f"
        return _number_cells(column.cast(pl.Float64).to_numpy(), kind)
    if name.startswith("Enum"):
        levels = column.dtype.categories.to_list()
        codes = column.to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
        return Cells("category", None, np.array(codes), levels, ordered=True)
    if name.startswith("Categorical") or name in ("String", "Utf8"):
        text = column.cast(pl.String)
        levels = text.drop_nulls().unique().sort().to_list()
        codes = text.rank("dense").cast(pl.Int64).fill_null(0).to_numpy() - 1
        sort = "category" if name.startswith("Categorical") else "text"
        return Cells(sort, None, np.array(codes, dtype=np.int64), levels)
    return _object_cells(np.array(column.to_list(), dtype=object))


def _plain(value: Any) -> Any:
    """Return a scalar of NumPy as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(value != value)


def _object_cells(values: Host) -> Cells:
    """Return a column of Python objects: numbers, text, True and False, None."""
    items = [_plain(value) for value in values.tolist()]
    missing = np.fromiter(map(_is_missing, items), dtype=bool, count=len(items))
    known = [item for item, gone in zip(items, missing, strict=True) if not gone]
    types = set(map(type, known))
    odd = [t for t in types if not issubclass(t, str | Number) or issubclass(t, complex)]
    if odd:
        what = "argument must be a string, a real number, True, False or None"
        raise TypeError(f"{what}, not {odd[0].__name__!r}")
    if any(issubclass(t, str) for t in types):
        return _text_cells(known, missing)
    numbers = np.full(len(items), np.nan)
    numbers[~missing] = [float(value) for value in known]
    whole = bool(types) and all(issubclass(t, int) for t in types)
    return _number_cells(numbers, "b" if types == {bool} else "i" if whole else "f")


def _text_cells(known: list[Any], missing: Host) -> Cells:
    """Return a column of text; numbers beside it are text too if all of it is numbers or bounds."""
    if not all(isinstance(value, str) for value in known):
        known = [value if isinstance(value, str) else repr(value) for value in known]
        strange = next((text for text in known if ends_of(text) is None), None)
        if strange is not None:
            raise TypeError(
                f"numbers stand beside text such as {strange!r}. Give one kind of values: text "
                "only, or numbers with None (or NaN) where they are missing."
            )
    levels = sorted(set(known))
    place = {level: k for k, level in enumerate(levels)}
    codes = np.full(len(missing), -1)
    codes[~missing] = [place[value] for value in known]
    return Cells("text", None, codes, levels)


def ends_of(text: str) -> tuple[float, float] | None:
    """Return the lowest and highest value that text stands for, None if it is no number.

    Examples
    --------
    >>> ends_of("12.5"), ends_of(">= 3"), ends_of("many")
    ((12.5, 12.5), (3.0, inf), None)
    >>> low, high = ends_of("<50")
    >>> low, high < 50, round(high, 9)
    (-inf, True, 50.0)
    """
    found = NUMBER_OR_BOUND.fullmatch(text)
    if found is None:
        return None
    mark, value = found[1], float(found[2])
    match mark:
        case None:
            return value, value
        case "<":
            return -math.inf, math.nextafter(value, -math.inf)
        case ">":
            return math.nextafter(value, math.inf), math.inf
        case "<=" | "≤":
            return -math.inf, value
        case _:
            return value, math.inf


def text_of(low: float, high: float, decimals: int | None = None) -> str:
    """Return the text of a number, or of a value below or above a limit.

    Examples
    --------
    >>> text_of(*ends_of("<50")), text_of(2.0, 2.0), text_of(*ends_of(">=0.1"))
    ('<50', '2', '>=0.1')
    >>> text_of(2.0, 2.0, decimals=1)
    '2.0'
    """
    if low == high:
        return f"{low:.15g}" if decimals is None else f"{low:.{decimals}f}"
    end, mark, way = (high, "<", math.inf) if math.isinf(low) else (low, ">", -math.inf)
    beyond = repr(math.nextafter(end, way)).removesuffix(".0")
    exact = repr(float(end)).removesuffix(".0")
    return f"{mark}{beyond}" if len(beyond) < len(exact) else f"{mark}={exact}"


# --- Which kind ----------------------------------------------------------------------------------


def guess(cells: Cells) -> str | Censored:
    """Return the kind of a column that nothing was said of: by its dtype, then by its values.

    - booleans, and anything with two different values: binary;
    - categories with an order: ordinal; others, and text: nominal;
    - text of which every entry is a number or a bound such as '<50', with one bound or more:
      censored;
    - whole numbers (in any numeric dtype): ordinal where there are at most 10 different ones, count
      where none is negative, continuous otherwise;
    - other numbers: continuous.

    Examples
    --------
    >>> guess(cells_of(np.array([[1.5], [2.0], [3.0]]), 0))
    'continuous'
    >>> guess(cells_of(opened_table([["<5"], ["7"], ["8.5"]]), 0))
    'censored'
    """
    if cells.sort == "boolean":
        return "binary"
    if cells.numbers is None:
        return _guess_levels(cells)
    known = cells.numbers[~np.isnan(cells.numbers)]
    whole = bool(np.all(known == np.round(known)))
    if not whole and np.unique(known[:SOME_ENTRIES]).size > 2:
        return "continuous"
    count = np.unique(known).size
    if count == 2:
        return "binary"
    if not whole:
        return "continuous"
    return "ordinal" if count <= FEW_VALUES else "count" if known.min() >= 0 else "continuous"


def _guess_levels(cells: Cells) -> str:
    if cells.ordered:
        return "ordinal"
    values = cells.distinct
    bounds = _bounds_of(values)
    if None not in bounds and _are_censored(bounds):
        return "censored"
    return "binary" if len(values) == 2 else "nominal"


def _bounds_of(values: list[Any]) -> list[tuple[float, float] | None]:
    """Return the lowest and highest value of every text that is a number, None for the others."""
    return [ends_of(value) if isinstance(value, str) else None for value in values]


def _are_censored(bounds: list[tuple[float, float] | None]) -> bool:
    return any(both is not None and both[0] != both[1] for both in bounds)


def asked_kinds(given: Any, d: int, names: Sequence[Any] | None) -> list[Any]:
    """Return what was asked for each of d columns, None where nothing was.

    Parameters
    ----------
    given : None, a mapping from columns (names or numbers) to kinds, or d kinds
        A kind is a word, a `Censored`, or a list of all levels in order (ordinal).
    d : int
    names : sequence, optional

    Examples
    --------
    >>> asked_kinds({"b": "count"}, 2, ["a", "b"]), asked_kinds({0: ["low", "high"]}, 2, None)
    ([None, 'count'], [['low', 'high'], None])
    """
    if given is None:
        return [None] * d
    if isinstance(given, Mapping):
        found = _kinds_by_column(given, d, names)
    elif isinstance(given, Sequence | np.ndarray) and not isinstance(given, str):
        if len(given) != d:
            what = f"a dict, or one kind for each of the {d} columns"
            raise ValueError(expected("column_kinds", what, f"{len(given)} kinds"))
        found = list(given)
    else:
        what = "None, a dict from columns to kinds, or one kind per column"
        raise ValueError(expected("column_kinds", what, given))
    for kind in found:
        words = isinstance(kind, str) and kind in KINDS_OF_COLUMNS
        if not (kind is None or words or isinstance(kind, Censored | list | tuple)):
            what = f"one of {list(KINDS_OF_COLUMNS)}, Censored(...) or a list of levels in order"
            raise ValueError(expected("a kind in column_kinds", what, kind))
    return found


def _kinds_by_column(given: Mapping[Any, Any], d: int, names: Sequence[Any] | None) -> list[Any]:
    found: list[Any] = [None] * d
    known = {} if names is None else {name: j for j, name in enumerate(names)}
    for column, kind in given.items():
        j = known.get(column, column)
        if isinstance(j, bool) or not isinstance(j, int | np.integer) or not 0 <= j < d:
            what = f"for columns of X, {list(known)[:10] if known else f'0 to {d - 1}'}"
            raise ValueError(expected("column_kinds", what, column))
        found[int(j)] = kind
    return found


def kind_of_column(cells: Cells, asked: Any, name: str) -> ColumnKind:
    """Return what a column holds: as asked for, or as guessed.

    Parameters
    ----------
    cells : Cells
    asked : None, str, Censored or list of levels
    name : str
        Of the column, for messages.
    """
    kind = guess(cells) if asked is None else asked
    came: dict[str, Any] = {"sort": cells.sort, "whole": cells.whole, "ordered": cells.ordered}
    if isinstance(kind, list | tuple):
        _check_levels(cells, list(kind), name)
        return ColumnKind("ordinal", levels=tuple(kind), **came)
    if kind in ("nominal", "binary") or (kind == "ordinal" and cells.numbers is None):
        levels = _levels_of(cells, kind, name, asked is not None)
        kind = "binary" if kind == "nominal" and len(levels) == 2 else kind
        return ColumnKind(kind, levels=levels, **came)
    limits = kind if isinstance(kind, Censored) else None
    kind = "censored" if isinstance(kind, Censored) else str(kind)
    if cells.numbers is None:
        _check_texts(cells, kind, name)
        return ColumnKind(kind, limits=limits, decimals=_decimals(cells.levels), **came)
    _check_numbers(cells.numbers, kind, limits, name)
    return ColumnKind(kind, limits=limits, **came)


def _check_levels(cells: Cells, given: list[Any], name: str) -> None:
    """Refuse levels that are not all of a column's, each once."""
    lacking = [value for value in cells.distinct if value not in given]
    if lacking or len(set(given)) < len(given):
        what = f"all levels of column {name}, each once"
        raise ValueError(expected("a list in column_kinds", what, given, f"{lacking[:5]} lack."))


def _decimals(values: Sequence[Any]) -> int | None:
    """Return the number of decimals of numbers in text, if all have as many.

    Examples
    --------
    >>> _decimals(["1.50", "<2", "30.25"]), _decimals(["1.5", "2"]), _decimals([1.5])
    (2, None, None)
    """
    plain = [value for value in values if isinstance(value, str) and value[:1] not in "<>≤≥"]
    counts = {len(value.partition(".")[2]) for value in plain if "e" not in value.lower()}
    return counts.pop() if len(counts) == 1 else None


def _levels_of(cells: Cells, kind: str, name: str, is_asked: bool) -> tuple[Any, ...]:
    """Return the levels of a column that has some, in order."""
    n, values = int((~cells.missing).sum()), cells.distinct
    if kind == "ordinal" and not cells.ordered:
        raise ValueError(
            f"column {name} is to be ordinal, but text has no order. Give its levels in order in "
            f"column_kinds, for instance {{{name}: {values[:3]}}}, or make it an ordered category."
        )
    if kind == "binary" and len(values) > 2:
        some = f"{len(values)} different values, {values[:3]} and more"
        raise ValueError(expected(f"column {name}", "of two values, as it is to be binary", some))
    guessed = kind == "nominal" and not is_asked and cells.numbers is None
    if guessed and len(values) > max(FEW_VALUES, IDENTIFIER_SHARE * n):
        raise ValueError(
            f"column {name} has {len(values)} different values in {n} entries, such as "
            f"{values[0]!r}: it looks like an identifier or free text, which tells nothing of "
            f"other columns. Leave it out, or give column_kinds={{{name}: 'nominal'}}."
        )
    if len(values) > MOST_LEVELS:
        remedy = "Merge rare levels, or leave the column out."
        what = f"a column of at most {MOST_LEVELS} levels"
        raise ValueError(expected(f"column {name}", what, f"{len(values)} levels", remedy))
    if cells.sort == "boolean":
        return False, True
    return tuple(cells.levels if kind == "ordinal" else values)


def _check_texts(cells: Cells, kind: str, name: str) -> None:
    """Refuse text that cannot be read as numbers of a kind."""
    values = cells.distinct
    bounds = _bounds_of(values)
    if None in bounds:
        what = f"numbers, as it is to be {kind}"
        raise ValueError(expected(f"column {name}", what, values[bounds.index(None)]))
    if kind != "censored" and _are_censored(bounds):
        remedy = f"Give column_kinds={{{name}: 'censored'}}."
        raise ValueError(
            expected(f"column {name}", f"plain numbers to be {kind}", "bounds", remedy)
        )


def _check_numbers(numbers: Host, kind: str, limits: Censored | None, name: str) -> None:
    """Refuse numbers that are not of a kind."""
    if kind == "censored" and (limits is None or limits == Censored()):
        remedy = f"Give column_kinds={{{name}: Censored(below=50)}}, or text such as '<50'."
        raise ValueError(expected(f"column {name}", "with a limit to be censored", "none", remedy))
    if kind == "count":
        known = numbers[~np.isnan(numbers)]
        bad = known[(known < 0) | (known != np.round(known))]
        if bad.size:
            what = "of whole numbers, none negative, to be counts"
            raise ValueError(expected(f"column {name}", what, float(bad[0])))


# --- A whole table -------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableKinds:
    """What every column of a table holds, and whether the table was a frame.

    Examples
    --------
    >>> X = opened_table([["red", 1.5], ["blue", None], ["green", 2.5]])
    >>> kinds, entries = TableKinds.read(X)
    >>> [column.kind for column in kinds.columns]
    ['nominal', 'binary']
    >>> entries.low
    array([[ 2.,  0.],
           [ 0., nan],
           [ 1.,  1.]])
    >>> entries.low[1, 1] = 1.0
    >>> kinds.completed(X, entries)[1]
    array(['blue', 2.5], dtype=object)
    """

    columns: tuple[ColumnKind, ...]
    library: str = ""  # 'pandas', 'polars', or '' for arrays

    @classmethod
    def read(cls, X: Any, asked: Any = None) -> tuple[TableKinds, Entries]:
        """Return the kinds of an opened table and its entries in numbers; one pass.

        Kinds are those asked for, and guesses for the other columns. A column without values is
        an `EmptyColumnError`.
        """
        d, names = int(X.shape[1]), table_names(X)
        wanted, labels = asked_kinds(asked, d, names), labels_of(X)
        found, empty, columns = [], [], []
        for j in range(d):
            cells = _named_cells(X, j, labels[j])
            if cells.missing.all():
                empty.append(j)
                continue
            found.append(kind_of_column(cells, wanted[j], labels[j]))
            columns.append(_ends(found[-1], cells, labels[j], X))
        if empty:
            raise EmptyColumnError(empty, names)
        return cls(tuple(found), library_of(X)), _joined(columns)

    def entries(self, X: Any) -> Entries:
        """Return an opened table in numbers; levels that the fit has not seen are refused."""
        pairs = enumerate(zip(self.columns, labels_of(X), strict=True))
        return _joined(
            [_ends(kind, _named_cells(X, j, name), name, X) for j, (kind, name) in pairs]
        )

    def completed(self, X: Any, values: Entries) -> Any:
        """Return an opened table with its missing entries filled, as it came.

        Parameters
        ----------
        X : frame or array (n, d)
        values : Entries
            In numbers; NaN leaves an entry missing.
        """
        result = X.copy() if library_of(X) == "pandas" else X
        if not library_of(X):
            result = np.array(X) if X.dtype.kind in "fiubO" else np.array(X, dtype=object)
        columns = []
        for j, column in enumerate(self.columns):
            cells = cells_of(X, j)
            where = cells.missing & ~np.isnan(values.low[:, j])
            if not where.any():
                continue
            ends = values.low[where, j], values.high[where, j]
            as_here = (
                column.levels is None and not cells.missing.all()
            )  # text only where bounds are
            own = replace(column, sort=cells.sort) if as_here else column
            new = decoded(own, *ends)
            if library_of(X) == "pandas":
                result.isetitem(j, _pandas_filled(X.iloc[:, j], where, new))
            elif library_of(X) == "polars":
                columns.append(_polars_filled(X.to_series(j), where, new))
            else:
                result[where, j] = new
        return result.with_columns(columns) if columns else result

    def built(self, values: Entries, names: Sequence[Any] | None) -> Any:
        """Return a new table of values in numbers, as the table of the fit came."""
        pairs = zip(self.columns, values.low.T, values.high.T, strict=True)
        columns = [_typed(column, decoded(column, *ends)) for column, *ends in pairs]
        if not self.library:
            if all(column.sort == "number" for column in self.columns):
                return np.stack([c.astype(np.float64) for c in columns], axis=1)
            return np.stack([c.astype(object) for c in columns], axis=1)
        frames: Any = sys.modules.get(self.library) or __import__(self.library)
        heads = [f"column_{j}" for j in range(len(columns))] if names is None else list(names)
        made = [_frame_column(frames, *pair) for pair in zip(self.columns, columns, strict=True)]
        return frames.DataFrame(dict(zip(heads, made, strict=True)))


def _joined(columns: list[tuple[Host, Host]]) -> Entries:
    """Return the entries of a table from those of its columns; one array if nothing is censored."""
    low = np.stack([low for low, _ in columns], axis=1)
    if all(high is low for low, high in columns):
        return Entries(low, low)
    return Entries(low, np.stack([high for _, high in columns], axis=1))


def _named_cells(X: Any, j: int, label: str) -> Cells:
    """Return column j of an opened table; errors name it."""
    try:
        return cells_of(X, j)
    except TypeError as error:
        raise TypeError(f"column {label}: {error}") from None


def _ends(column: ColumnKind, cells: Cells, label: str, X: Any) -> tuple[Host, Host]:
    """Return the lowest and highest values of a column's entries."""
    if column.levels is not None:
        codes = _coded(column, cells, label, X)
        return codes, codes
    if cells.numbers is None:
        ends = _parsed(cells, label, X)
        low, high = ends[:, 0][cells.codes], ends[:, 1][cells.codes]
        high = low if np.array_equal(low, high, equal_nan=True) else high
    else:
        low = high = cells.numbers
        _refuse_infinite(low, label, X)
    if column.limits is not None:
        below, above = column.limits.below, column.limits.above
        low, high = low.copy(), high.copy()
        if below is not None:
            under = high <= below
            low[under], high[under] = -np.inf, below
        if above is not None:
            over = low >= above
            low[over], high[over] = above, np.inf
    return low, high


def table_names(X: Any) -> list[Any] | None:
    """Return the names of a frame's columns; None for an array."""
    return list(X.columns) if library_of(X) else None


def labels_of(X: Any) -> list[str]:
    """Return how messages call the columns of an opened table: quoted names, or numbers."""
    names = table_names(X)
    return [repr(name) for name in (range(X.shape[1]) if names is None else names)]


def row_label(X: Any, i: int) -> str:
    """Return how messages call a row: the index of a pandas frame, or its number."""
    return f"{X.index[i]!r}" if library_of(X) == "pandas" else str(i)


def _coded(column: ColumnKind, cells: Cells, label: str, X: Any) -> Host:
    """Return the numbers of levels, (n,), NaN where missing."""
    levels = column.levels or ()
    number: dict[Any, float] = {level: float(k) for k, level in enumerate(levels)}
    if cells.numbers is None:
        codes, values = cells.codes, cells.levels
    else:
        distinct, codes = np.unique(cells.numbers, return_inverse=True)
        values, codes = distinct.tolist(), np.where(np.isnan(cells.numbers), -1, codes)
    table = np.array([*(number.get(value, -1.0) for value in values), np.nan])
    found = table[codes]
    unseen = np.flatnonzero(found < 0)
    if unseen.size:
        level = values[codes[unseen[0]]]
        shown = ", ".join(map(repr, levels[:8])) + (", …" if len(levels) > 8 else "")
        raise ValueError(
            f"column {label} has the level {level!r} in row {row_label(X, int(unseen[0]))}, which "
            f"was not seen in fit: {shown}. Leave the entry missing, or fit to rows that have it."
        )
    return found


def _parsed(cells: Cells, label: str, X: Any) -> Host:
    """Return lowest and highest values of every level, with NaN for what is missing at the end."""
    found = [ends_of(level) if isinstance(level, str) else (level, level) for level in cells.levels]
    if None in found:
        k = found.index(None)
        rows = np.flatnonzero(cells.codes == k)
        if rows.size:
            where = f"column {label}, row {row_label(X, int(rows[0]))},"
            raise ValueError(expected(where, "a number, as in fit", cells.levels[k]))
    return np.array([*(ends or (np.nan, np.nan) for ends in found), (np.nan, np.nan)])


def _refuse_infinite(values: Host, label: str, X: Any) -> None:
    bad = np.flatnonzero(np.isinf(values))
    if bad.size:
        raise NonFiniteError(
            f"Input X contains infinity, first in row {row_label(X, int(bad[0]))}, column {label}. "
            "Every entry must be a finite number or missing (NaN); a value beyond a limit is "
            "Censored."
        )


# --- From numbers back to entries ----------------------------------------------------------------


def decoded(column: ColumnKind, low: Host, high: Host) -> Host:
    """Return entries of a column, (n,), from numbers: levels, numbers, or text such as '<50'.

    Where a value is known only to lie beyond a limit, a column of numbers has the limit. NaN is
    None among levels and text.
    """
    gone = np.isnan(low)
    if column.levels is not None:
        levels = np.empty(len(column.levels) + 1, dtype=object)
        levels[:-1], levels[-1] = column.levels, None
        found: Host = levels[np.where(gone, -1, low).astype(np.int64)]
        numeric = column.sort in ("number", "boolean") and not gone.any()
        return found.astype(np.float64 if column.sort == "number" else bool) if numeric else found
    if column.sort in ("text", "category"):
        pairs = zip(low.tolist(), high.tolist(), gone, strict=True)
        texts = [None if no else text_of(a, b, column.decimals) for a, b, no in pairs]
        return np.array(texts, dtype=object)
    return np.where(np.isinf(high), low, high)


def _pandas_filled(column: Any, where: Host, new: Host) -> Any:
    """Return a series with entries filled, of the same dtype."""
    dtype, result = column.dtype, column.copy()
    if isinstance(dtype, np.dtype) and dtype.kind != "O":
        new = new.astype(dtype)
    result.iloc[np.flatnonzero(where)] = new if new.dtype != object else list(new)
    return result


def _polars_filled(column: Any, where: Host, new: Host) -> Any:
    """Return a series with entries filled, of the same dtype."""
    pl, dtype = sys.modules["polars"], column.dtype
    text = str(dtype).startswith(("Categorical", "Enum"))
    old = column.cast(pl.String) if text else column
    full = np.full(len(where), None, dtype=object)
    full[where] = new
    values = full.tolist()
    if dtype.is_integer():
        values = [None if value is None else int(value) for value in values]
    other = pl.Series(column.name, values, dtype=pl.String if text else dtype)
    found = old.zip_with(pl.Series(~where), other)
    return found.cast(dtype) if text else found


def column_of(table: Any, j: int) -> Any:
    """Return a column of a frame or an array."""
    library = library_of(table)
    if library == "polars":
        return table.to_series(j)
    return table.iloc[:, j] if library == "pandas" else table[:, j]


def shifted(column: Any, shift: Host) -> Any:
    """Return a column with host numbers added."""
    if type(column).__module__.startswith("polars"):
        return column + sys.modules["polars"].Series(shift)
    return column + (backend.constants(shift, column) if backend.is_foreign(column) else shift)


def replaced(table: Any, at: Any, values: Any) -> Any:
    """Return a table with other values in a column, by number, or by the name of a new one."""
    library = library_of(table)
    if library == "polars":
        pl = sys.modules["polars"]
        name = table.columns[at] if isinstance(at, int) else at
        series = values if isinstance(values, pl.Series | pl.Expr) else pl.Series(values)
        return table.with_columns(series.alias(name))
    if library == "pandas":
        found = table.copy()
        if isinstance(at, int):
            found.isetitem(at, values)
        else:
            found[at] = values
        return found
    if backend.is_foreign(table):
        xp, d = backend.namespace(table), int(table.shape[1])
        return xp.where(backend.constants(np.arange(d) == at, table) > 0, values[:, None], table)
    rows = np.array(table)
    rows[:, at] = values
    return rows


def _typed(column: ColumnKind, values: Host) -> Host:
    """Return entries of a column in the dtype that suits them."""
    if column.whole and values.dtype.kind == "f":
        return values.astype(np.int64)
    if column.sort == "boolean":
        return values.astype(bool)
    return values


def _frame_column(frames: Any, column: ColumnKind, values: Host) -> Any:
    """Return entries as a column of pandas or polars, whichever `frames` is."""
    levels = column.levels if column.sort == "category" else None
    if frames.__name__ == "pandas":
        kind = None if levels is None else frames.CategoricalDtype(list(levels), column.ordered)
        return frames.Series(values, dtype=kind)
    if levels is None:
        return frames.Series(values.tolist())
    kind = frames.Enum(map(str, levels)) if column.ordered else frames.Categorical
    return frames.Series(values.tolist(), dtype=kind)
