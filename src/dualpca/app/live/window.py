"""The last rows that were judged, for the page: bounded, however long a watch runs."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from dualpca.app.live.judging import Alarm, Judged, Watch, csv_line
from dualpca.app.live.words import sensor_words, shares, title
from dualpca.app.tables.columns import named_rows

MOST_ROWS = 6000
"""Rows that the page can show."""
MOST_NUMBERS = 4_000_000
"""Numbers that are held; of very many sensors there are fewer rows."""
NOW_ROWS = 100
"""Rows whose deviations are summed up where there is no alarm."""
EXPECTED_ROWS = 240
"""Rows of which one sensor is shown beside what is expected of it."""

Values = np.ndarray[Any, Any]


class Window:
    """Holds the last rows of a watch.

    Parameters
    ----------
    watch : Watch
        It is listened to from now on.
    model, source : str
        What the model file and the input are called.
    """

    def __init__(self, watch: Watch, model: str, source: str) -> None:
        self.watch, self.model, self.source = watch, model, source
        self.names, self.statistics = watch.names, watch.statistics
        d = len(self.names)
        self.size = max(min(MOST_ROWS, MOST_NUMBERS // (2 * d)), 100)
        self.lock = threading.Lock()
        self.values, self.parts = (np.full((self.size, d), np.nan) for _ in range(2))
        shape = (self.size, len(self.statistics))
        self.levels, self.limits = np.full(shape, np.nan), np.full(shape, np.nan)
        self.alarms = np.zeros(self.size, dtype=bool)
        self.times = [""] * self.size
        self.rows = watch.state.rows  # judged so far
        self.first = self.rows  # judged before the first row that is held
        self.came = time.monotonic()
        self.open = watch.state.open
        self.past = list(watch.episodes)
        watch.listeners.append(self.take)

    def take(self, found: Judged) -> None:
        """Take rows that were just judged."""
        chart, n = found.chart, len(found.times)
        keep = slice(max(n - self.size, 0), n)
        at = np.arange(found.first - 1, found.first - 1 + n)[keep] % self.size
        with self.lock:
            self.values[at] = found.rows.values[keep]
            self.parts[at] = np.asarray(chart.contributions)[keep]
            for k, name in enumerate(self.statistics):
                self.levels[at, k] = chart.statistics[name][keep]
                self.limits[at, k] = chart.limits[name][keep]
            self.alarms[at] = chart.alarms[keep]
            for place, when in zip(at.tolist(), found.times[keep], strict=True):
                self.times[place] = when
            self.rows = found.first - 1 + n
            self.first = max(self.first, self.rows - self.size)
            self.came = time.monotonic()
            self.open, self.past = self.watch.state.open, list(self.watch.episodes)

    def _places(self, since: int) -> Values:
        """Return where the rows after so many lie."""
        return np.arange(max(since, self.first), self.rows) % self.size

    def answer(self, since: int) -> dict[str, Any]:
        """Return what the page has not seen: the rows after so many, and how things stand."""
        with self.lock:
            at = self._places(since)
            latest = np.abs(self.parts[self._places(self.rows - NOW_ROWS)])
            now = shares(np.nan_to_num(latest).sum(axis=0), self.names) if len(latest) else {}
            return {
                "rows": self.rows,
                "first": self.rows - len(at),
                "times": [self.times[k] for k in at],
                "values": _columns(self.levels[at]),
                "limits": _columns(self.limits[at]),
                "alarms": self.alarms[at].astype(int).tolist(),
                "silent": round(time.monotonic() - self.came, 1),
                "open": None if self.open is None else _alarm(self.open),
                "past": [_alarm(one) for one in reversed(self.past)],
                "now": now,
            }

    def described(self) -> dict[str, Any]:
        """Return what the page needs before it can draw."""
        return {
            "model": self.model,
            "source": self.source,
            "sensors": self.names,
            "statistics": [title(name) for name in self.statistics],
            "size": self.size,
        }

    def sensor(self, j: int) -> dict[str, Any]:
        """Return the last values of one sensor, and what the others let expect of it."""
        with self.lock:
            at = self._places(self.rows - EXPECTED_ROWS)
            rows, first = self.values[at].copy(), self.rows - len(at)
        with self.watch.lock:
            expected = expected_of(self.watch.monitor, rows, j)
        return {
            "name": self.names[j],
            "first": first,
            "measured": _numbers(rows[:, j]),
            "expected": _numbers(expected),
        }

    def table(self, count: int, end: int | None = None) -> str:
        """Return rows as CSV: statistics, limits, alarms, and what was measured.

        The last `count` that are held, or those up to row `end`.
        """
        defuse = self.watch.defuse
        both = [name for one in self.statistics for name in (one, f"{one}_limit")]
        head = ["row", "time", *both, "alarm", "sensors", *self.names]
        lines = [csv_line(head, defuse=defuse)]
        with self.lock:
            last = self.rows if end is None else min(end, self.rows)
            first = max(last - count, self.first)
            at = np.arange(first, last) % self.size
            for row, k in enumerate(at.tolist(), first + 1):
                pairs = np.stack([self.levels[k], self.limits[k]], axis=1).ravel()
                alarm = bool(self.alarms[k])
                which = sensor_words(shares(self.parts[k], self.names)) if alarm else ""
                numbers, measured = _cells(pairs), _cells(self.values[k])
                cells = [row, self.times[k], *numbers, int(alarm), which, *measured]
                lines.append(csv_line(cells, defuse=defuse))
        return "".join(lines)


def expected_of(monitor: Any, rows: Values, j: int) -> Values:
    """Return what the other sensors let expect of one, (n,), in the units of the rows.

    Contributions are squares of residuals that are linear in the sensor's value: two values tell
    where the residual is 0. Rows that are judged with those before them are moved one at a time.
    """
    if not len(rows):
        return np.empty(0)
    known = rows[~np.isnan(rows[:, j]), j]
    middle, step = (float(known.mean()), float(known.std()) or 1.0) if len(known) else (0.0, 1.0)
    here, there = rows.copy(), rows.copy()
    here[:, j] = np.where(np.isnan(rows[:, j]), middle, rows[:, j])
    there[:, j] = here[:, j]
    if monitor.lags:
        there[-1, j] += step
    else:
        there[:, j] += step
    first, second = (_residuals(monitor, X)[:, j] for X in (here, there))
    slope = (second - first) / step
    slope = np.full(len(rows), slope[-1]) if monitor.lags else slope
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(slope > 0, here[:, j] - first / slope, np.nan))


def _residuals(monitor: Any, rows: Values) -> Values:
    """Return leave-one-out residuals: the signed roots of contributions."""
    found = np.asarray(monitor.contributions(named_rows(monitor, rows)), dtype=float)
    return np.asarray(np.sign(found) * np.sqrt(np.abs(found)))


def _alarm(one: Alarm) -> dict[str, Any]:
    found = one._asdict() | {"statistics": [title(name) for name in one.statistics]}
    return found | {"peak": round(one.peak, 3), "words": sensor_words(one.sensors)}


def _cells(values: Values) -> list[str]:
    return ["" if np.isnan(x) else f"{x:.8g}" for x in values.tolist()]


def _numbers(values: Values) -> list[float | None]:
    """Return numbers for JSON, short, None where one is not finite."""
    return [float(f"{x:.6g}") if np.isfinite(x) else None for x in values.tolist()]


def _columns(values: Values) -> list[list[float | None]]:
    return [_numbers(column) for column in values.T]
