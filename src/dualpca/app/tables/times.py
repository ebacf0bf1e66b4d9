"""Columns that tell when a row was measured: dates, times of day, or numbers that increase.

A table's time is an axis, not a measurement: models leave it out, pages draw rows over it. Columns
are looked at in batches (`Clock`), so that large tables follow the same rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from dualpca.app.tables.columns import DATE, LONGEST, Values, shown, texts
from dualpca.app.tables.text import MISSING, TEXTUAL, TableError

NONE = "none"
"""What a user says in place of a column where no column is time."""
KNOWN = 0.9
"""Smallest share of a time column that is there."""
FEWEST = 3
"""Fewest different moments."""
RISING = 0.5
"""Smallest share of steps in which numbers increase; in the others they stay."""
DAY = 86400.0
"""Seconds."""

_WORDS = (
    *("time", "times", "timestamp", "datetime", "date", "day", "days", "hour", "hours", "hrs?"),
    *("minutes?", "mins?", "seconds?", "secs?", "weeks?", "months?", "years?", "elapsed", "epoch"),
    *("clock", "zeit", "zeitstempel", "uhrzeit", "datum", "stunden?", "monat", "jahr"),
)
_UNITS = "s|sec|secs|seconds?|ms|min|mins|minutes?|h|hr|hrs|hours?|d|days?|weeks?|years?|utc|local"
_UNIT = rf"[\s_.-]+(?:{_UNITS})|[\s_.-]*[\[(](?:{_UNITS})[\])]"
NAMES = re.compile(
    rf"(?i:(?:.*[\s_.-])?(?:{'|'.join(_WORDS)})(?:{_UNIT})?|t(?:{_UNIT})?)|.*[a-z](?:Time|Date|Timestamp)"
)
"""Names of columns that tell the time."""
BIRTHS = re.compile(r"(?i:.*(birth|born|geburt|dob).*)")
"""Names of dates that tell no row's time."""
COUNTED = re.compile(r"(?i:.*(timestamp|epoch|unix).*)")
"""Names of columns that may count seconds or milliseconds since 1970."""
CLOCK = r"\d{1,2}:\d{2}(?P<seconds>:\d{2}(?:\.\d+)?)?(?P<noon>\s*[AaPp][Mm])?"
ON = r"(?:(?P<year>\d{4})(?P<a>[-./])\d{1,2}(?P=a)\d{1,2}|\d{1,2}(?P<b>[-./])\d{1,2}(?P=b)"
ON += r"(?P<end>\d{4}|\d{2}))"
MOMENT = re.compile(rf"(?:{ON})?(?:(?P<gap>[T ]|)(?P<clock>{CLOCK})(?P<zone>Z|[+-]\d\d:?\d\d)?)?")
"""Text that is a date, a time of day, or both."""


def is_time_name(name: str) -> bool:
    """Return True for names of columns that tell the time.

    Examples
    --------
    >>> names = ("Batch time", "time_min", "Date", "t (h)", "startTime", "timeout", "overtime pay")
    >>> [is_time_name(name) for name in names]
    [True, True, True, True, True, False, False]
    """
    return NAMES.fullmatch(name.strip()) is not None and BIRTHS.fullmatch(name) is None


# --- what is read ------------------------------------------------------------------------------


class TimeAxis(NamedTuple):
    """The time of every row, as an axis.

    `kind` is 'date', 'datetime' (values are seconds since 1970), 'clock' (seconds since midnight)
    or 'number' (as the table has them). NaN is an entry that is missing.
    """

    name: str
    kind: str
    values: Values  # (n,), float64

    def said(self, value: float) -> str:
        """Return a moment in words.

        Examples
        --------
        >>> axis = find_time(pl.DataFrame({"when": ["13.01.2024", "14.01.2024", "15.01.2024"]}))
        >>> axis.kind, axis.said(axis.values[2])
        ('date', '2024-01-15')
        """
        if np.isnan(value):
            return "at no known time"
        if self.kind == "number":
            return f"{value:.6g}"
        if self.kind == "clock":
            hours, seconds = divmod(round(value), 3600)
            return f"{hours:02d}:{seconds // 60:02d}:{seconds % 60:02d}"
        found = datetime.fromtimestamp(0, UTC) + timedelta(seconds=float(value))
        if self.kind == "date":
            return found.strftime("%Y-%m-%d")
        return found.strftime("%Y-%m-%d %H:%M:%S").removesuffix(":00")

    def order(self) -> Any:
        """Return the rows with a known time, in the order of time; of equals the first is first."""
        order = np.argsort(self.values, kind="stable")
        return order[: int(np.sum(~np.isnan(self.values)))]


class Reader(NamedTuple):
    """One way to read a column as times: the kind, and what makes numbers of its cells."""

    kind: str
    read: Callable[[pl.Series], pl.Series]


def readers(column: pl.Series, plain: bool) -> list[Reader]:
    """Return the ways in which a column may tell the time, by its type and first entry.

    `plain` numbers are times too. 02/01/2024 has two readings.
    """
    kind = column.dtype
    if kind == pl.Date:
        return [Reader("date", _seconds)]
    if kind == pl.Datetime:
        return [Reader("datetime", _seconds)]
    if kind == pl.Time:
        return [Reader("clock", lambda one: _divided(one.cast(pl.Int64), 1e9))]
    if kind == pl.Duration:
        return [Reader("number", lambda one: _divided(one.dt.total_microseconds(), 1e6))]
    if kind in TEXTUAL:
        there = _cells(column).drop_nulls()
        return _of_text(str(there[0]), plain) if len(there) else []
    return _of_numbers(column.name) if kind.is_numeric() and plain else []


def _cells(column: pl.Series) -> pl.Series:
    """Return text without codes of missing entries."""
    text = texts(column)
    return text.set(text.is_in(MISSING), None)


def _seconds(column: pl.Series) -> pl.Series:
    """Return dates as seconds since 1970, as a clock on the wall where they were written shows."""
    kind = column.dtype
    if isinstance(kind, pl.Datetime) and kind.time_zone is not None:
        column = column.dt.replace_time_zone(None, ambiguous="earliest")
    return _divided(column.cast(pl.Datetime("us")).cast(pl.Int64), 1e6)


def _divided(counts: pl.Series, unit: float) -> pl.Series:
    """Return counts in larger units, rounded correctly; polars multiplies by 1/unit instead."""
    values = counts.cast(pl.Float64).fill_null(float("nan")).to_numpy() / unit
    return pl.Series(counts.name, values).fill_nan(None)


def _of_numbers(name: str) -> list[Reader]:
    """Return how numbers tell the time: 20240113, seconds since 1970, or any numbers."""

    def days(column: pl.Series) -> pl.Series:
        whole = column.cast(pl.Float64).fill_nan(None)
        whole = whole.set((whole != whole.round()) | (whole < 17000101) | (whole > 22001231), None)
        return _seconds(whole.cast(pl.Int64).cast(pl.String).str.to_date("%Y%m%d", strict=False))

    def since(unit: float) -> Callable[[pl.Series], pl.Series]:
        def read(column: pl.Series) -> pl.Series:
            found = _divided(column, unit)
            return found.set((found < 1e8) | (found > 1e10), None)

        return read

    found = [Reader("date", days)]
    if COUNTED.fullmatch(name):
        found += [Reader("datetime", since(unit)) for unit in (1.0, 1e3, 1e6, 1e9)]
    return [*found, Reader("number", lambda one: one.cast(pl.Float64).fill_nan(None))]


def _of_text(first: str, plain: bool) -> list[Reader]:
    """Return how text tells the time, by its first entry."""
    match = MOMENT.fullmatch(first)
    if match is None:
        if not plain or len(first) > LONGEST:
            return []
        return [Reader("number", lambda one: _cells(one).cast(pl.Float64, strict=False))]
    parts = match.groupdict()
    clock = ""
    if parts["clock"]:
        clock = "%I:%M" if parts["noon"] else "%H:%M"
        clock += "%S".join((":", "%.f")) if parts["seconds"] else ""
        clock += (" %p" if " " in parts["noon"] else "%p") if parts["noon"] else ""
    if not (parts["a"] or parts["b"]):
        return [Reader("clock", _clock(clock))]
    zone = {None: "", "Z": "Z"}.get(parts["zone"], "%z")
    ending = f"{parts['gap']}{clock}{zone}" if clock else ""
    sign = parts["a"] or parts["b"]
    if parts["year"]:
        days = [f"%Y{sign}%m{sign}%d"]
    else:
        year = "%Y" if len(parts["end"]) == 4 else "%y"
        days = [f"%d{sign}%m{sign}{year}", f"%m{sign}%d{sign}{year}"]
        days = days[::-1] if sign == "/" and parts["noon"] else days
    kind = "datetime" if clock else "date"
    return [Reader(kind, _dated(day + ending)) for day in days]


def _dated(form: str) -> Callable[[pl.Series], pl.Series]:
    def read(column: pl.Series) -> pl.Series:
        text = _cells(column)
        if "%M" not in form:
            return _seconds(text.str.to_date(form, strict=False))
        found = text.str.to_datetime(form, strict=False, time_unit="us")
        if found.dtype.time_zone is not None:  # type: ignore[attr-defined]
            found = found.dt.convert_time_zone("UTC")
        return _seconds(found)

    return read


def _clock(form: str) -> Callable[[pl.Series], pl.Series]:
    def read(column: pl.Series) -> pl.Series:
        found = _cells(column).str.to_time(form, strict=False)
        return _divided(found.cast(pl.Int64), 1e9)

    return read


# --- what is found -----------------------------------------------------------------------------


class Order:
    """How a reading of a column goes on: up, down, or both; and whether every entry has one."""

    def __init__(self, reader: Reader) -> None:
        self.reader, self.last = reader, np.nan
        self.up = self.down = 0
        self.low, self.high = np.inf, -np.inf

    def add(self, column: pl.Series, known: int) -> bool:
        """Read further entries, of which so many are known; return whether all could be read."""
        found = self.reader.read(column)
        values = found.drop_nulls().to_numpy()
        if len(values) < known or not np.isfinite(values).all():
            return False
        if len(values):
            steps = np.diff(values, prepend=self.last)
            self.up, self.down = (
                self.up + int((steps > 0).sum()),
                self.down + int((steps < 0).sum()),
            )
            self.last = values[-1]
            self.low, self.high = min(self.low, values.min()), max(self.high, values.max())
        return True


class Clock:
    """Finds out whether a column tells the time, batch by batch.

    Parameters
    ----------
    name : str
    named : bool, optional
        Whether numbers may be times; by default the column's name decides.
    """

    def __init__(self, name: str, named: bool | None = None) -> None:
        self.name = name
        self.named = is_time_name(name) if named is None else named
        self.ways: list[Order] | None = None  # None: no entry seen yet
        self.known = self.rows = 0

    def add(self, column: pl.Series) -> None:
        """Take some more entries."""
        self.rows += len(column)
        if self.ways == [] or not (self.named or _may_tell(column)):
            return
        known = _known(column)
        if not known:
            return
        if self.ways is None:
            self.ways = [Order(reader) for reader in readers(column, self.named)]
        self.known += known
        self.ways = [way for way in self.ways if way.add(column, known)]

    def found(self, asked: bool = False) -> Order | None:
        """Return the reading of the column as time; None if it does not tell the time.

        The user may have `asked` for the column: then order and gaps do not matter.
        """
        fit = [way for way in self.ways or () if asked or self._fits(way)]
        ordered = [way for way in fit if not (way.up and way.down)]
        return next(iter((*ordered, *fit)), None)

    def _fits(self, way: Order) -> bool:
        """Return True if a reading is likely to be the time of the rows."""
        steps, turns = max(self.known - 1, 1), bool(way.up and way.down)
        if way.up + way.down < FEWEST - 1 or self.known < KNOWN * self.rows:
            return False
        if way.reader.kind in ("number", "clock"):
            return not way.down and way.up >= RISING * steps
        return BIRTHS.fullmatch(self.name) is None and (self.named or not turns)


def _may_tell(column: pl.Series) -> bool:
    """Return True for dates, and for text whose first entry looks like one."""
    if column.dtype.is_temporal():
        return True
    if column.dtype not in TEXTUAL:
        return False
    first = column.drop_nulls().head(1).cast(pl.String).str.strip_chars()
    if len(first) and first[0] in MISSING:
        first = _cells(column).drop_nulls().head(1)
    return bool(len(first) and DATE.match(first[0]))


def _known(column: pl.Series) -> int:
    if column.dtype in TEXTUAL:
        return int(_cells(column).count())
    if column.dtype.is_float():
        column = column.fill_nan(None)
    return int(column.count())


def chosen_time(clocks: Mapping[str, Clock]) -> str | None:
    """Return the column that is the time of a table's rows, if there is one.

    Dates before times of day and numbers; what is in order first, then what is called like time.
    """
    found = []
    for place, (name, clock) in enumerate(clocks.items()):
        way = clock.found()
        if way is not None:
            dated = way.reader.kind in ("date", "datetime")
            fine = way.reader.kind == "datetime"
            turns = bool(way.up and way.down)
            found.append((not dated, turns, not clock.named, not fine, place, name))
    return min(found)[-1] if found else None


def read_time(column: pl.Series) -> TimeAxis | None:
    """Return a column as an axis of time; None if its entries are neither dates nor numbers.

    Examples
    --------
    >>> read_time(pl.Series("h", [0.5, 1.0, 2.0])).values.tolist(), read_time(pl.Series(["a"]))
    ([0.5, 1.0, 2.0], None)
    """
    clock = Clock(column.name, named=True)
    clock.add(column)
    way = clock.found(asked=True)
    if way is None:
        return None
    values = way.reader.read(column).fill_null(float("nan")).to_numpy()
    return TimeAxis(column.name, way.reader.kind, np.asarray(values, dtype=np.float64))


def find_time(
    frame: pl.DataFrame, asked: str | None = None, names: Sequence[str] | None = None
) -> TimeAxis | None:
    """Return the time of a table's rows.

    Parameters
    ----------
    frame : polars.DataFrame
    asked : str, optional
        The column that the user named, or 'none'. By default it is found: dates, or numbers that
        increase under a name such as time, hour or minute.
    names : sequence of str, optional
        The columns in which to look; by default all.

    Raises
    ------
    TableError
        If the column that was asked for is not there, or holds no times.

    Examples
    --------
    >>> frame = pl.DataFrame({"hour": [0, 1, 2, 4], "flow": [7.0, 6.5, 6.7, 7.1]})
    >>> find_time(frame).name, find_time(frame, "none"), find_time(frame.select("flow"))
    ('hour', None, None)
    """
    if asked is not None and asked in frame.columns:
        found = read_time(frame[asked])
        if found is None:
            cells = frame[asked].drop_nulls()
            some = f" such as {shown(cells[0])}" if len(cells) else ""
            raise TableError(
                f"--time {asked}: the column holds entries{some}, which are neither dates nor "
                "numbers. Name another column, or say --time none."
            )
        return found
    if asked is not None:
        if asked.lower() != NONE:
            raise TableError(f"--time {asked}: no such column; there are {frame.columns[:10]}.")
        return None
    clocks = {name: Clock(name) for name in (frame.columns if names is None else names)}
    for name, clock in clocks.items():
        clock.add(frame[name])
    best = chosen_time(clocks)
    return None if best is None else read_time(frame[best])
