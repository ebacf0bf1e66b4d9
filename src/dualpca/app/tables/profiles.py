"""What the columns of a table hold: numbers, categories, identifiers; and what to make of each.

One pass over the table, whole or in batches, with the same outcome: every rule is about all rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from dualpca.app.tables.columns import (
    DATE,
    DATES,
    NOTATION,
    OTHER_DIGITS,
    UNITS,
    Refused,
    is_bound,
    number,
    quoted,
    refusal,
    refused_text,
    shown,
    shown_name,
    texts,
)
from dualpca.app.tables.text import CODES, TEXTUAL, USUAL, Codes, Counts, TableError, tally
from dualpca.app.tables.times import Clock, chosen_time

# --- what is counted ---------------------------------------------------------------------------

MOST_LEVELS = 20
"""Levels of a column of text that becomes zeros and ones without being asked for."""
MOST_COUNTED = 1000
"""Different texts of a column that are counted, unless it is to be one-hot."""
MOST_UNIQUE = 10**7
"""Rows up to which entries are checked to be different."""
FAR = tuple(sign * float(digit * n) for digit in "98" for n in range(2, 7) for sign in (1, -1))
"""Numbers that often stand for a missing entry, such as -99, 999 and 8888."""
IDENTIFIER = re.compile(
    r"(?i:(.*[\s_.-])?"
    r"(u?u?id|guid|nr|no|num|number|index|idx|key|barcode|row|rows|row[\s_.-]?names?|record|case"
    r"|sample|specimen|patient|subject|participant|respondent|customer|client|kunde|unnamed: \d+)"
    r"([\s_.-]?(id|nr|no|num|number|code|key))?)|.*[a-z](ID|Id|Nr|No)"
)
"""Names of columns that identify rows, where their entries are different whole numbers."""


class Distinct:
    """Finds out whether all entries of a column are different."""

    def __init__(self) -> None:
        self.parts: list[pl.Series] | None = []
        self.n = 0

    def add(self, column: pl.Series) -> None:
        """Take some more entries, none of them missing."""
        if self.parts is None:
            return
        hashes = column.hash()
        self.n += len(column)
        self.parts.append(hashes)
        if self.n > MOST_UNIQUE or hashes.n_unique() < len(column):
            self.parts = None

    def all(self) -> bool:
        """Return True if all are different; False beyond so many rows that it would cost much."""
        if not self.parts or not self.n:
            return False
        return len(self.parts) == 1 or pl.concat(self.parts).n_unique() == self.n


class Ends(NamedTuple):
    """The smallest and largest entry of a column, and how many there are."""

    low: Any
    high: Any
    known: int


@dataclass
class Figures:
    """What a column of numbers holds."""

    low: float = math.inf  # of entries that are not one of the codes
    high: float = -math.inf
    codes: dict[float, int] = field(default_factory=dict)
    run: float | None = None  # the first entry, while the others follow in steps of one
    whole: bool = True
    known: int = 0
    infinite: int | None = None  # the first row with an infinite entry
    dates: bool = True  # whole numbers such as 20200113, apart from codes
    lost: str | None = None  # a whole number that float64 cannot hold
    distinct: Distinct = field(default_factory=Distinct)

    def add(
        self,
        values: pl.Series,
        row: int,
        named: bool,
        ends: Ends | None = None,
        cells: pl.Series | None = None,
    ) -> None:
        """Take the entries (float64, no NaN) of rows from a certain one on.

        `named` tells that the column is called like one of identifiers; `cells` are the entries as
        the table has them.
        """
        ends = ends or Ends(values.min(), values.max(), values.count())
        self._follow(values, ends, row)
        if ends.low is None or ends.high is None:
            return
        if math.isinf(ends.low) or math.isinf(ends.high):
            at = int(values.is_infinite().fill_null(False).arg_true()[0])
            self.infinite = row + at if self.infinite is None else self.infinite
        if named and self.whole:
            kept = values.drop_nulls()
            self.whole = bool((kept == kept.round()).all())
            self.distinct.add(kept if cells is None else cells.drop_nulls())
        self.known += ends.known
        low, high = ends.low, ends.high
        if self.lost is None and cells is not None and max(-low, high) >= 2**53:
            self.lost = _lost(cells.filter((values.abs() >= 2**53).fill_null(False)))
        if low in FAR or high in FAR:
            low, high = self._coded(values.drop_nulls())
        self.dates = self.dates and (low > high or _are_dates(values, low, high))
        self.low, self.high = min(self.low, low), max(self.high, high)

    def _coded(self, values: pl.Series) -> tuple[float, float]:
        """Count codes; return the range of all other entries."""
        odd = values.is_in(FAR)
        for code, count in values.filter(odd).value_counts().iter_rows():
            self.codes[code] = self.codes.get(code, 0) + count
        rest = values.filter(~odd)
        return (math.inf, -math.inf) if rest.is_empty() else (rest.min(), rest.max())  # type: ignore[return-value]

    def _follow(self, values: pl.Series, ends: Ends, row: int) -> None:
        """Notice whether entries are 0, 1, 2, … or 1, 2, 3, …."""
        if row == 0:
            self.run = float(values[0]) if values[0] in (0, 1) else None
        if self.run is None:
            return
        start, n = self.run + row, len(values)
        if ends != (start, start + n - 1, n) or not np.array_equal(
            values.to_numpy(), np.arange(start, start + n)
        ):
            self.run = None

    @property
    def single(self) -> float | None:
        """Return the value of a column that has one only; None otherwise."""
        values = {*self.codes, *((self.low, self.high) if self.low <= self.high else ())}
        return values.pop() if len(values) == 1 and self.known > 1 else None

    @property
    def dated(self) -> bool:
        """Return True if all entries are dates, and there are several of them."""
        return self.dates and self.known > 2 and self.low < self.high

    def suspects(self) -> list[float]:
        """Return codes that repeat and lie far outside of all other entries."""
        if self.low > self.high:
            return []
        reach = self.high - self.low
        far = (c for c in self.codes if c < self.low - reach or c > self.high + reach)
        return sorted(c for c in far if self.codes[c] > 1)


FIRST_DATE, LAST_DATE = 17000101, 22001231
"""Between which whole numbers may be dates."""


def _are_dates(values: pl.Series, low: float, high: float) -> bool:
    """Return True if numbers from `low` to `high` are dates, such as 20200113, apart from codes.

    Examples
    --------
    >>> [_are_dates(pl.Series([20200113.0, v]), v, 20200113) for v in (20191231, 20191331)]
    [True, False]
    """
    if not FIRST_DATE <= low <= high <= LAST_DATE:
        return False
    some = values.filter(~values.is_in(FAR)).drop_nulls().unique()
    if not (some == some.round()).all():
        return False
    days = some.cast(pl.Int64).cast(pl.String).str.to_date("%Y%m%d", strict=False)
    return days.null_count() == 0


def _lost(cells: pl.Series) -> str | None:
    """Return a whole number, as text or not, that float64 cannot hold."""
    if not (cells.dtype.is_integer() or cells.dtype in TEXTUAL):
        return None
    whole = (re.fullmatch(r"\s*[+-]?\d+\s*", str(cell)) for cell in cells)
    return next((one[0] for one in whole if one and int(float(one[0])) != int(one[0])), None)


@dataclass
class Words:
    """What a column of text holds."""

    counts: dict[str, int] | None = field(default_factory=dict)  # None: too many
    closed: bool = False  # all levels are known
    codes: dict[str, int] = field(default_factory=dict)  # of missing entries, among numbers
    numbers: int = 0
    bounds: int = 0
    words: int = 0  # neither numbers nor bounds
    first: str | None = None  # of the words
    row: int = 0  # of the first
    distinct: Distinct = field(default_factory=Distinct)
    figures: Figures = field(default_factory=Figures)

    def add(
        self, column: pl.Series, row: int, named: bool, count: bool, kept: Collection[str] = ()
    ) -> None:
        """Take the entries of rows from a certain one on; `count` all levels, however many.

        `kept` are codes that are values here, though they usually mean that an entry is missing.
        """
        text = texts(column)
        code = text.is_in([one for one in CODES if one not in kept])
        for word, n in tally(text.filter(code)).items():
            self.codes[word] = self.codes.get(word, 0) + n
        text = text.set(code, None)
        values = text.cast(pl.Float64, strict=False).fill_nan(None)
        self.figures.add(values, row, named, cells=text)
        self.distinct.add(text.drop_nulls())
        self.numbers += len(values) - values.null_count()
        where = (values.is_null() & text.is_not_null()).arg_true()
        odd = text[where]
        bound = is_bound(odd)
        self.bounds += int(bound.sum())
        words = odd.filter(~bound)
        self.words += len(words)
        if len(words) and self.first is None:
            self.first, self.row = str(words[0]), row + int(where.filter(~bound)[0])
        if self.counts is None:
            return
        found = text.drop_nulls().value_counts()
        if found.height <= MOST_COUNTED or count:
            for level, n in found.iter_rows():
                self.counts[level] = self.counts.get(level, 0) + n
        if max(found.height, len(self.counts)) > MOST_COUNTED and not count:
            self.counts = None

    @property
    def known(self) -> int:
        """Return how many entries are not missing."""
        return self.numbers + self.bounds + self.words

    @property
    def numeric(self) -> bool:
        """Return True if the entries are numbers, but for some bounds."""
        return not self.words and self.numbers > 0

    @property
    def coded(self) -> bool:
        """Return True if codes such as NA are missing here, False if they are values.

        They are missing among numbers, bounds, true and false, among levels that the user has
        listed, and where there is nothing else.
        """
        if not self.known:
            return len(self.codes) < 2
        logical = {word.lower() for word in self.counts or ()} <= {"true", "false"}
        return self.closed or not self.words or (logical and not self.numbers)

    @property
    def levels(self) -> dict[str, int] | None:
        """Return how often which value occurs; None if there are too many."""
        return self.counts if self.counts is None or self.coded else self.counts | self.codes


class Profile(NamedTuple):
    """What a table holds."""

    rows: int
    columns: dict[str, Figures | Words | Refused]
    gone: Counts  # codes that were read as missing, by column
    clocks: Mapping[str, Clock] = {}  # which columns may tell the time of rows


def profile(
    frames: Iterable[pl.DataFrame],
    names: Sequence[str],
    one_hot: Sequence[str] = (),
    codes: Codes = USUAL,
    gone: Counts | None = None,
    closed: Collection[str] = (),
) -> Profile:
    """Return what columns hold, after one pass over a table.

    Parameters
    ----------
    frames : iterable of polars.DataFrame
    names : sequence of str
    one_hot : sequence of str
    codes : Codes
        As given by the user.
    gone : mapping, optional
        Codes that the reader has read as missing, by column.
    closed : collection of str
        Columns whose levels the user has listed.

    Examples
    --------
    >>> frame = pl.DataFrame({"a": [1.5, 2.5, None], "k": ["u", "v", "u"]})
    >>> found = profile([frame], ["a", "k"]).columns
    >>> found["a"].high, found["k"].counts["u"]
    (2.5, 2)
    """
    found: dict[str, Figures | Words | Refused] = {}
    kept = {name: codes.kept_in(name, names) for name in names}
    clocks = {name: Clock(name) for name in names}
    row = 0
    for frame in frames:
        for name in names if not found else ():
            found[name] = _fresh(frame[name], name in one_hot, name in closed)
        figures = [name for name in names if isinstance(found[name], Figures)]
        values = frame.select(pl.col(figures).cast(pl.Float64).fill_nan(None))
        ends = map(Ends, *(part.row(0) for part in (values.min(), values.max(), values.count())))
        for name, end in zip(figures, ends, strict=True) if figures else ():
            one = found[name]
            if isinstance(one, Figures):
                one.add(values[name], row, _is_name(name), end, frame[name])
        for name, one in found.items():
            if isinstance(one, Words):
                one.add(frame[name], row, _is_name(name), name in one_hot, kept[name])
        for name, clock in clocks.items():
            clock.add(frame[name])
        row += frame.height
    return Profile(row, found, gone or {}, clocks)


def _is_name(name: str) -> bool:
    """Return True for names of identifiers.

    Examples
    --------
    >>> [_is_name(name) for name in ("ID", "patient_id", "Sample Nr", "PatientNo", "age", "casino")]
    [True, True, True, True, False, False]
    """
    return IDENTIFIER.fullmatch(name) is not None


def _fresh(column: pl.Series, one_hot: bool, closed: bool) -> Figures | Words | Refused:
    kind = column.dtype
    if one_hot or kind in TEXTUAL or kind == pl.Boolean:
        return Words(closed=closed)
    if kind.is_numeric() or kind == pl.Null:
        return Figures()
    found = number(column)
    assert isinstance(found, Refused)
    return found


# --- what to make of each column ---------------------------------------------------------------

YES = ("yes", "true", "y", "t", "ja")
"""Levels that are 1, whatever their place in the alphabet."""
LEVELLED = ("ordinal", "nominal", "binary")
"""Kinds of columns of which text may be the levels."""


class KindAsked(NamedTuple):
    """The kind of a column that the user gave."""

    kind: str
    levels: tuple[str, ...] = ()  # of an ordinal column, in order
    below: float | None = None  # of a censored column
    above: float | None = None


Label = Callable[[int, str | None], str]


class Choices(NamedTuple):
    """The columns to use, and how; and what the user should know of it."""

    names: list[str]
    levels: dict[str, list[str]]
    dropped: dict[str, str]
    identifier: str | None
    notes: list[str]
    bounded: list[str]  # columns of numbers with bounds among them
    missing: list[str]  # codes of missing entries in columns of categories, as COLUMN=CODE
    time: str | None = None  # the column that tells the time of rows


def choose(
    found: Profile,
    one_hot: Sequence[str] = (),
    *,
    numbers_only: bool = False,
    asked: bool = False,
    identifier: str | None = None,
    label: Label = lambda row, identifier: f"row {row + 1}",
    kinds: Mapping[str, KindAsked] | None = None,
    timeless: bool = False,
) -> Choices:
    """Return which columns to use, and which of them become zeros and ones.

    - The column that tells the time of rows (`times.chosen_time`) is left out, unless the columns
      were `asked` for.
    - Identifiers are left out unless the columns were `asked` for: text that never repeats,
      different whole numbers under a name such as id, numbers that count the rows.
    - Text with two levels becomes one column of zeros and ones, with up to 20 levels one column
      per level but the most frequent, which follows from the others.
    - Columns without entries, text that is always the same, and dates are left out.

    Parameters
    ----------
    found : Profile
    one_hot : sequence of str
        Columns that become zeros and ones, however many levels they have.
    numbers_only : bool
        Leave out what is not numbers, in place of all of this.
    asked : bool
    identifier : str, optional
        The column that identifies rows, if it is known.
    label : callable
        Returns what a row is called in messages, given the column that identifies rows.
    kinds : mapping, optional
        For a model of columns of any kind: the kinds that were given, by column. Then columns of
        text keep their levels, and bounds are used.
    timeless : bool
        No column tells the time: the user said so, or named it and left it out.

    Raises
    ------
    TableError
        If a column is neither numbers nor categories, or has an infinite entry.
    """
    made = Choices([], {}, {}, None, [], [], [])
    refused: list[Refused] = []
    left: dict[str, list[str]] = {"empty": [], "same": [], "text": [], "dates": [], "days": []}
    bounds: list[str] = []
    given = kinds or {}
    verdicts = {
        name: _verdict(name, one, found.rows, name in one_hot, numbers_only, asked)
        if name not in given
        else _given_verdict(name, one, given[name])
        for name, one in found.columns.items()
    }
    time = None if asked or timeless else _time(found, {*given, *one_hot, identifier})
    verdicts |= {} if time is None else {time: "time"}
    ids = [name for name, verdict in verdicts.items() if verdict == "id"]
    complete = [name for name in ids if _known(found.columns[name]) == found.rows]
    rows = identifier or (complete[0] if complete else None)
    for name, one in found.columns.items():
        verdict = verdicts[name]
        if isinstance(verdict, Refused) and verdict.what == DATES and not (asked or name in given):
            left["days"].append(name)
        elif isinstance(verdict, Refused):
            stray = isinstance(one, Words) and verdict.stray is not None
            where = f" in {label(one.row, rows)}" if isinstance(one, Words) and stray else ""
            refused.append(verdict._replace(example=verdict.example + where))
        elif verdict in ("id", "time"):
            continue
        elif verdict in left:
            left[verdict].append(name)
        else:
            made.names.append(name)
            if isinstance(one, Words) and verdict == "levels":
                made.levels[name], made.dropped[name] = _levels(one.levels or {})
                made.missing.extend(f"{name}={code}" for code in one.codes if one.coded)
                if name in given and given[name].levels:
                    made.levels[name] = _ordered(name, made.levels[name], given[name].levels)
            elif isinstance(one, Words) and one.bounds:
                bounds.append(f"{one.bounds} in {shown_name(name)}")
                made.bounded.append(name)
    made.notes.extend(_left_notes(found, ids, [rows] if rows in ids else [], left))
    made.notes.extend(_time_notes(time))
    if kinds is None:
        made.notes.extend(_level_notes(made, one_hot))
    else:
        made.dropped.clear()
    if bounds:
        used = "are treated as missing" if kinds is None else "are used as bounds"
        made.notes.append(
            f"entries of which only a bound is known, such as <50, {used}: {_listed(bounds)}."
        )
    if refused:
        raise TableError(refusal(refused))
    if not made.names:
        why = "" if ids else ": none of them holds numbers"
        raise TableError(f"no column is left{why}. " + " ".join(made.notes))
    made.notes.extend(_code_notes(found, made.names))
    made.notes.extend(_constant_notes(found, [k for k in made.names if k not in made.levels]))
    made.notes.extend(_lost_notes(found, made.names))
    for name in made.names:
        made.notes.extend(_suspicions(name, found.columns[name]))
        _check_finite(name, found.columns[name], lambda row: label(row, rows))
    return made._replace(identifier=rows, time=time)


def _time(found: Profile, others: Collection[str | None]) -> str | None:
    """Return the column that tells the time of rows, not one of those that serve otherwise."""
    return chosen_time({k: clock for k, clock in found.clocks.items() if k not in others})


def _known(one: Figures | Words | Refused) -> int:
    return 0 if isinstance(one, Refused) else one.known


def _verdict(
    name: str,
    one: Figures | Words | Refused,
    rows: int,
    one_hot: bool,
    numbers_only: bool,
    asked: bool,
) -> Refused | str:
    """Return what to make of a column: numbers, levels, id, empty, same, text or dates.

    Or why it cannot be used.
    """
    if isinstance(one, Refused):
        return "text" if numbers_only else one
    if one_hot:
        return "levels" if one.known else "empty"
    if _is_empty(one) and not (isinstance(one, Figures) and one.infinite is not None):
        return "empty"
    figures = one if isinstance(one, Figures) else one.figures
    if isinstance(one, Figures) or one.numeric:
        named = _is_name(name) and figures.whole and figures.distinct.all()
        counting = figures.run is not None and figures.known == rows
        if not asked and rows > 2 and (named or counting):
            return "id"
        return "dates" if not asked and figures.dated else "numbers"
    return _text_verdict(name, one, numbers_only, asked)


def _is_empty(one: Figures | Words) -> bool:
    """Return True if a column has no entries, or nothing but one code."""
    return one.known == 0 and (isinstance(one, Figures) or one.coded)


def _given_verdict(name: str, one: Figures | Words | Refused, given: KindAsked) -> Refused | str:
    """Return what to make of a column whose kind was given: numbers, levels or empty."""
    if isinstance(one, Refused):
        return one
    if _is_empty(one):
        return "empty"
    said = f"--kind {quoted(name)}={given.kind}: the column"
    if isinstance(one, Words) and one.numeric and one.bounds and given.kind != "censored":
        raise TableError(f"{said} has bounds such as <50 in {one.bounds} cells, so it is censored.")
    if isinstance(one, Figures) or one.numeric:
        if given.kind == "censored" and given[2:] == (None, None) and not _bounds(one):
            raise TableError(
                f"{said} has no bounds such as <50. Give the limit: censored:below=50."
            )
        return "numbers"
    first, levels = shown(one.first or "<"), one.levels
    if given.kind not in LEVELLED:
        stray = f", or {first} is treated as missing with --na" if one.numbers else ""
        what = f"{said} holds text, such as {first}. It may be nominal or ordinal{stray}."
        raise TableError(what)
    if levels is None:
        raise TableError(
            f"{said} has more than {MOST_COUNTED} values. Leave it out with --exclude."
        )
    if given.kind == "binary" and len(levels) > 2:
        some = _listed([shown(level) for level in sorted(levels)])
        raise TableError(f"{said} has {len(levels)} values: {some}. It may be nominal.")
    if given.kind == "ordinal" and not given.levels and len(levels) > 1:
        known = quoted(",".join(sorted(levels)))
        raise TableError(
            f"{said} holds text, which has no order by itself. Give its values from the lowest to "
            f"the highest, such as --kind {quoted(name)}=ordinal:{known}."
        )
    return "levels" if len(levels) > 1 else "same"


def _bounds(one: Figures | Words) -> int:
    return one.bounds if isinstance(one, Words) else 0


def _ordered(name: str, seen: Sequence[str], given: Sequence[str]) -> list[str]:
    """Return the levels of an ordinal column in the order given, which must have all of them."""
    absent = [level for level in seen if level not in given]
    if absent:
        raise TableError(
            f"--kind {quoted(name)}=ordinal:{quoted(','.join(given))} lacks {shown(absent[0])}, "
            f"which the column has: give all of {_listed([shown(one) for one in seen])} in order."
        )
    return [level for level in given if level in seen]


def _text_verdict(name: str, one: Words, numbers_only: bool, asked: bool) -> Refused | str:
    n_levels = MOST_COUNTED + 1 if one.levels is None else len(one.levels)
    first = one.first or next(iter(one.codes), "<")
    if numbers_only:
        logical = {level.lower() for level in one.counts or ()} == {"true", "false"}
        return "levels" if logical else "text"
    if one.numbers >= max(one.words, 1) and one.words:
        others = "1 other entry" if one.words == 1 else f"{one.words} other entries"
        what = f"{one.numbers} numbers and {others}"
        if OTHER_DIGITS.fullmatch(first):
            what += " in digits of another script: write all with 0 to 9"
            return Refused(name, what, shown(first), False)
        if UNITS.fullmatch(first):
            return Refused(name, f"{what} with units: write all in one", shown(first), False)
        return Refused(name, what, shown(first), n_levels <= MOST_LEVELS, first)
    if n_levels == 1:
        return "same"
    measured = any(form.fullmatch(first) for form in (NOTATION, UNITS, OTHER_DIGITS))
    if n_levels > 2 and measured and not DATE.fullmatch(first):
        return refused_text(name, first, n_levels)
    if n_levels > 2 and one.distinct.all() and not asked:
        return "id"
    if n_levels <= MOST_LEVELS and not DATE.fullmatch(first):
        return "levels"
    return refused_text(name, first, n_levels)


def _levels(counts: dict[str, int]) -> tuple[list[str], str]:
    """Return the levels in order, and the one without a column.

    Examples
    --------
    >>> _levels({"no": 1, "yes": 5}), _levels({"b": 2, "c": 2, "a": 1})
    ((['no', 'yes'], 'no'), (['a', 'b', 'c'], 'b'))
    """
    levels = sorted(counts)
    if len(levels) == 2:
        yes = [level for level in levels if level.lower() in YES]
        return levels, levels[1] if yes == levels[:1] else levels[0]
    return levels, max(levels, key=counts.__getitem__)  # the first of equals


def _check_finite(name: str, one: Figures | Words | Refused, label: Callable[[int], str]) -> None:
    figures = one.figures if isinstance(one, Words) else one
    if isinstance(figures, Figures) and figures.infinite is not None:
        raise TableError(infinity(name, label(figures.infinite)))


def infinity(name: str, row: str) -> str:
    """Return what to do about an infinite entry."""
    return (
        f"column {shown_name(name)} has an infinite value in {row}, but models need finite "
        "numbers. Correct it, or treat it as missing with --na inf,-inf."
    )


# --- notes -------------------------------------------------------------------------------------


def _listed(items: Sequence[str], most: int = 10) -> str:
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more


def _left_notes(
    found: Profile, ids: list[str], identifier: list[str], left: dict[str, list[str]]
) -> list[str]:
    notes = []
    for name in identifier:
        notes.append(
            f"column {shown_name(name)} identifies rows ({_why(found.columns[name])}) and is not "
            f"part of the model (--columns chooses columns)."
        )
    others = [
        f"{shown_name(name)} ({_why(found.columns[name])})"
        for name in ids
        if name not in identifier
    ]
    if others:
        notes.append(f"left out because they look like identifiers: {_listed(others)}.")
    words = {
        "empty": "left out because they have no entries",
        "same": "left out because all of their entries are the same",
        "text": "left out because they do not hold numbers",
        "days": "left out because they hold dates or times",
        "dates": "left out because their whole numbers are dates, such as 20200113 "
        "(--columns chooses columns)",
    }
    for reason, names in left.items():
        told = [shown_name(name) + _only_text(found.columns[name], reason) for name in names]
        if names:
            notes.append(f"{words[reason]}: {_listed(told)}.")
    return notes


def _only_text(one: Figures | Words | Refused, reason: str) -> str:
    """Return the text of a column that has one only, in brackets."""
    level = next(iter(one.levels or ()), None) if isinstance(one, Words) else None
    return "" if reason != "same" or level is None else f" ({shown(level)})"


def _constant_notes(found: Profile, names: Sequence[str]) -> list[str]:
    """Return a note on columns of numbers that are the same in every row, if there are any."""
    same = []
    for name in names:
        one = found.columns[name]
        figures = one.figures if isinstance(one, Words) else one
        bounded = isinstance(one, Words) and one.bounds
        value = figures.single if isinstance(figures, Figures) and not bounded else None
        if value is not None:
            same.append(f"{shown_name(name)} ({value:.12g})")
    if not same or len(same) == len(names):  # where no column varies, the fit says so
        return []
    they = "it stays" if len(same) == 1 else "they stay"
    told = f"{they} in the model, where constants say nothing (--exclude leaves columns out)"
    return [f"the same number in every row: {_listed(same)}; {told}."]


def _why(one: Figures | Words | Refused) -> str:
    figures = one.figures if isinstance(one, Words) else one
    if isinstance(one, Words) and not one.numeric:
        return f"text that never repeats, such as {shown(one.first)}"
    if isinstance(figures, Figures) and figures.run is not None:
        return "it counts the rows"
    return "whole numbers that never repeat"


def _time_notes(time: str | None) -> list[str]:
    told = "tells the time of rows and is not part of the model (--columns chooses columns)."
    return [] if time is None else [f"column {time!r} {told}"]


def _level_notes(made: Choices, one_hot: Sequence[str]) -> list[str]:
    own = {name: known for name, known in made.levels.items() if name not in one_hot}
    two = {name: known for name, known in own.items() if len(known) == 2}
    more = {name: known for name, known in own.items() if len(known) > 2}
    notes = []
    if two:
        kept = {
            name: next(k for k in known if k != made.dropped[name]) for name, known in two.items()
        }
        each = [
            f"{shown_name(name)} (1 is {shown(kept[name])}, 0 {shown(made.dropped[name])})"
            for name in two
        ]
        notes.append(f"text of two values becomes 0 and 1: {_listed(each)}.")
    if more:
        each = [
            f"{shown_name(name)} ({len(known)} values; all 0 is the most frequent, "
            f"{shown(made.dropped[name])})"
            for name, known in more.items()
        ]
        notes.append(f"text becomes a column of 0 and 1 per value: {_listed(each)}.")
    return notes


def _alike(name: str, counts: dict[str, int]) -> list[str]:
    """Return a note on levels that differ in case or spaces only, if there are any.

    Examples
    --------
    >>> _alike("smoker", {"yes": 40, "Yes": 2, "no": 50})
    ["column 'smoker' has 'Yes' and 'yes' as different values: correct them if they mean the same."]
    """
    groups: dict[str, list[str]] = {}
    for level in sorted(counts) if len(counts) <= MOST_LEVELS else ():
        groups.setdefault(" ".join(level.casefold().split()), []).append(level)
    return [
        f"column {shown_name(name)} has {' and '.join(map(shown, same))} as different values: "
        "correct them if they mean the same."
        for same in groups.values()
        if len(same) > 1
    ]


NOTHING = (
    *("unknown", "unbekannt", "missing", "fehlt", "not known", "not recorded", "not available"),
    *("not done", "refused", "no answer", "no data", "k.a.", "keine angabe", "inconnu"),
)
"""Categories that often mean that the entry is missing."""


def _suspicions(name: str, one: Figures | Words | Refused) -> list[str]:
    if not isinstance(one, Words) or one.numeric:
        return []
    return _alike(name, one.counts or {})


def _code_notes(found: Profile, names: Sequence[str]) -> list[str]:
    """Return a note per code of missing entries: where it was read as missing, where it was kept.

    And one per number that lies far outside of the others, as if it were a code.
    """
    missing: dict[str, dict[str, int]] = {name: dict(found.gone.get(name, {})) for name in names}
    kept: dict[str, dict[str, int]] = {}
    far: dict[float, list[str]] = {}
    for name in names:
        one = found.columns[name]
        if isinstance(one, Words):
            (missing if one.coded else kept).setdefault(name, {}).update(one.codes)
            if not one.numeric:
                words = {k: n for k, n in (one.counts or {}).items() if k.lower() in NOTHING}
                kept.setdefault(name, {}).update(words)
        figures = one.figures if isinstance(one, Words) else one
        if isinstance(figures, Refused):
            continue
        for code in figures.suspects():
            among = f"{figures.low:g} to {figures.high:g}"
            far.setdefault(code, []).append(
                f"{figures.codes[code]} in {shown_name(name)} ({among})"
            )
    return code_notes(missing, kept) + [
        f"{code:g} is far from the other values: {_listed(each, MOST_NAMED)}. If it means missing, "
        f"say --na={code:g}."
        for code, each in sorted(far.items())
    ]


def _lost_notes(found: Profile, names: Sequence[str]) -> list[str]:
    """Return a note on whole numbers that models cannot tell apart, if there are any."""
    lost = []
    for name in names:
        one = found.columns[name]
        figures = one.figures if isinstance(one, Words) else one
        if isinstance(figures, Figures) and figures.lost is not None:
            lost.append(f"{shown_name(name)} ({figures.lost})")
    what = "whole numbers beyond 2^53 lose their last digits in a model"
    remedy = "Leave out with --exclude what are names, not amounts"
    return [f"{what}: {_listed(lost)}. {remedy}."] if lost else []


MOST_NAMED = 100
"""Columns that a note on a code names."""


def code_notes(missing: Counts, kept: Counts, advice: bool = True) -> list[str]:
    """Return a note per code, with every column that has it: where it is missing, where a value.

    Parameters
    ----------
    missing, kept : mapping
        How often which code occurs, by column.
    advice : bool
        Whether to say what makes a value missing.

    Examples
    --------
    >>> code_notes({"age": {"NA": 3}, "bmi": {"NA": 1}}, {"sport": {"None": 24}})[0]
    "'NA' is read as missing: 3 in 'age', 1 in 'bmi'."
    >>> code_notes({}, {"sport": {"None": 24}}, advice=False)
    ["'None' is kept as a value: 24 in 'sport'."]
    """
    notes = []
    for code in dict.fromkeys(
        code for part in (missing, kept) for n in part.values() for code in n
    ):
        gone, stay = (
            {name: codes[code] for name, codes in part.items() if code in codes}
            for part in (missing, kept)
        )
        words = [f"read as missing: {_places(gone)}"] if gone else []
        words += [f"kept as a value{' of text' if gone else ''}: {_places(stay)}"] if stay else []
        told = f"{shown(code)} is {'; it is '.join(words)}."
        if stay and advice:
            there = " there too" if gone else ""
            one = next(iter(stay))
            told += f" If it means missing{there}, say {na_option(code)}"
            told += (
                f" ({na_option(f'{one}={code}')} for one column)." if stay.keys() - {one} else "."
            )
        notes.append(told)
    return notes


def _places(counts: Mapping[str, int]) -> str:
    return _listed([f"{n} in {shown_name(name)}" for name, n in counts.items()], MOST_NAMED)


def na_option(code: str) -> str:
    """Return the option that makes a code missing.

    Examples
    --------
    >>> na_option("NA"), na_option("-"), na_option("?")
    ('--na NA', '--na=-', "--na '?'")
    """
    return f"--na{'=' if code.startswith('-') else ' '}{quoted(code)}"
