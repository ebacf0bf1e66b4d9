"""Rows judged as they come: alarms told, a log kept, and a state from which a killed watch goes on.

The log and the alarms reach the disk before the state that counts their bytes. A watch that starts
again cuts both files back to what the state counts and reads the input from the state's place: no
row is judged twice in them, and none is lost.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dualpca
from dualpca.app.live.following import FileTail, Place, StreamTail, Tell
from dualpca.app.live.records import Records, Rows
from dualpca.data import target_of
from dualpca.errors import ModelFileError

TITLES = {
    "t2": "T²",
    "spe": "SPE",
    "mewma": "MEWMA",
    "residual": "residual",
    "cusum": "CUSUM",
    "residual_cusum": "residual CUSUM",
}
"""Statistics in words."""
MOST_SENSORS = 5
"""Sensors that an alarm names."""
KEPT = 100
"""Alarms that the page lists, and a state holds."""
RECENT = 32
"""Times that are remembered: an episode is known to have ended some rows after its last one."""
JSON_LINES = (".jsonl", ".ndjson", ".json")
"""Endings of files of JSON lines."""


def title(statistic: str) -> str:
    """Return a statistic in words."""
    return TITLES.get(statistic, statistic)


def shares(contributions: Any, names: Sequence[str]) -> dict[str, float]:
    """Return the sensors with the largest contributions, and their shares of all.

    Examples
    --------
    >>> shares(np.array([1.0, -3.0, 0.0]), ["flow", "level", "heat"])
    {'level': 0.75, 'flow': 0.25}
    """
    sizes = np.abs(np.nan_to_num(np.asarray(contributions, dtype=float)))
    total = float(sizes.sum())
    order = np.argsort(-sizes, kind="stable")[:MOST_SENSORS]
    return {names[j]: float(sizes[j] / total) for j in order if sizes[j] >= 0.005 * total > 0}


def sensor_words(sensors: Mapping[str, float], most: int = 3) -> str:
    """Return sensors and their shares in words.

    Examples
    --------
    >>> sensor_words({"level": 0.753, "flow": 0.247})
    'level 75 %, flow 25 %'
    """
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in [*sensors.items()][:most])


class Alarm(NamedTuple):
    """An episode of alarm: rows are counted from 1, `last` is None while it lasts."""

    first: int
    began: str  # the time of its first row
    statistics: tuple[str, ...]
    sensors: dict[str, float]
    peak: float  # largest statistic, in units of its limit
    last: int | None = None
    ended: str = ""

    def words(self) -> str:
        """Return what was beyond its limit, by how much, and which sensors.

        Examples
        --------
        >>> Alarm(3, "", ("spe",), {"flow": 1.0}, 2.5).words()
        'SPE, up to 2.5 × the limit (flow 100 %)'
        """
        what = ", ".join(map(title, self.statistics)) or "a run rule"
        by = f", up to {self.peak:.2g} × the limit" if self.peak > 1 else ""
        which = sensor_words(self.sensors)
        return f"{what}{by}" + (f" ({which})" if which else "")


class Judged(NamedTuple):
    """Some rows and what the monitor says of them."""

    first: int  # number of the first row, counted from 1
    rows: Rows
    chart: Any
    times: list[str]  # as given, else when they came


# --- files that are cut back -------------------------------------------------------------------


class Kept(NamedTuple):
    """What a state knows of a file beside it."""

    path: str
    length: int


class Out:
    """A file to which lines are appended, and which is cut back to what a state counts.

    Parameters
    ----------
    path : str
    kept : Kept, optional
        What the state knows of a file.
    whole : bool
        Whether lines beyond that are written again; otherwise they stay.
    """

    def __init__(self, path: str, kept: Kept | None, whole: bool) -> None:
        self.path = path
        target = target_of(path)
        self.file = open(target, "ab")
        size = self.file.tell()
        length = kept.length if kept is not None and kept.path == str(target) else size
        self.more = 0  # lines that stay and that the state does not count
        with open(target, "rb") as before:
            before.seek(min(length, size))
            after = before.read() if length < size else b""
        if whole:
            cut = length
        else:
            cut = length + after.rfind(b"\n") + 1
            self.more = after.count(b"\n")
        if cut < size:
            self.file.truncate(cut)
        elif size and kept is None:
            self._end_line(target)
        self.empty = min(cut, size) == 0

    def _end_line(self, target: Path) -> None:
        with open(target, "rb") as before:
            before.seek(-1, os.SEEK_END)
            if before.read(1) != b"\n":
                self.file.write(b"\n")

    @property
    def is_json(self) -> bool:
        """Return True if the ending of the name asks for JSON lines."""
        return self.path.lower().endswith(JSON_LINES)

    def write(self, text: str) -> None:
        """Append text."""
        self.file.write(text.encode())

    def flush(self) -> None:
        """Let other programs see the lines."""
        self.file.flush()

    def kept(self) -> Kept:
        """Bring everything to the disk, and return how much it is."""
        self.file.flush()
        os.fsync(self.file.fileno())
        return Kept(os.path.realpath(self.path), os.fstat(self.file.fileno()).st_size)


# --- states ------------------------------------------------------------------------------------

STATE_FORMAT = 1
"""Another one is refused."""


@dataclass
class State:
    """What a watch needs to go on, beside the monitor."""

    model: str  # what the model file was recognised by
    source: str = ""
    place: Place = field(default_factory=Place)
    header: dict[str, Any] | None = None
    rows: int = 0
    recent: tuple[str, ...] = ()  # times of the last rows
    log: Kept | None = None
    alarms: Kept | None = None
    open: Alarm | None = None
    seen: int = 0  # alarms
    episodes: tuple[Alarm, ...] = ()

    def entry(self) -> dict[str, Any]:
        """Return the entry of the metadata of a file."""
        found = dict(vars(self)) | {"format": STATE_FORMAT}
        for name in ("place", "log", "alarms", "open"):
            found[name] = None if found[name] is None else _listed(found[name])
        found |= {"episodes": [_listed(one) for one in self.episodes], "recent": [*self.recent]}
        return {"watch": found}


def _listed(one: Any) -> list[Any]:
    return [list(part) if isinstance(part, tuple) else part for part in one]


def fingerprint(path: str) -> str:
    """Return what a model file is recognised by."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_state(path: str) -> tuple[Any, State]:
    """Return the monitor and the state in a file."""
    remedy = f"Remove {path}, or say --fresh, to begin anew."
    try:
        monitor, metadata = dualpca.load(path, return_metadata=True)
        found = dict(metadata["watch"])
        if found.pop("format") != STATE_FORMAT:
            raise ValueError("another version of dualpca wrote it")
        return monitor, _state_of(found)
    except (ValueError, KeyError, TypeError, OSError) as error:
        why = f": {error}" if isinstance(error, ModelFileError) else ""
        raise ModelFileError(f"{path} is not a state of `dualpca watch`{why} {remedy}") from None


def _state_of(found: dict[str, Any]) -> State:
    alarm: Callable[[Any], Alarm] = lambda one: Alarm(*one)._replace(statistics=tuple(one[2]))
    found["place"], found["recent"] = Place(*found["place"]), tuple(found["recent"])
    found["episodes"] = tuple(map(alarm, found["episodes"]))
    for name, kind in (("log", lambda one: Kept(*one)), ("alarms", lambda one: Kept(*one))):
        found[name] = None if found[name] is None else kind(found[name])
    found["open"] = None if found["open"] is None else alarm(found["open"])
    return State(**found)


# --- the watch ---------------------------------------------------------------------------------

Tail = FileTail | StreamTail

LOG_START = ("row", "time")


class Watch:
    """Judges rows, and writes what it finds.

    Parameters
    ----------
    monitor : Monitor
    records : Records
    tail : FileTail or StreamTail
    state : State
    path : str or None
        File of the state; None keeps none.
    say : callable
        Is given every alarm as a line.
    as_json : bool
        Whether these lines are JSON.
    log, alarms : Out, optional
    seconds, rows : float, int
        How often the state is written: after so much time, or so many rows.
    """

    def __init__(
        self,
        monitor: Any,
        records: Records,
        tail: Tail,
        state: State,
        path: str | None,
        say: Tell,
        *,
        as_json: bool = False,
        log: Out | None = None,
        alarms: Out | None = None,
        seconds: float = 2.0,
        rows: int = 20_000,
    ) -> None:
        self.monitor, self.records, self.tail, self.state = monitor, records, tail, state
        self.path, self.say, self.as_json = path, say, as_json
        self.log, self.alarms = log, alarms
        self.seconds, self.most = seconds, rows
        self.names = records.layout.prep.features
        self.statistics = list(monitor.statistics)
        self.listeners: list[Callable[[Judged], None]] = []
        self.episodes: deque[Alarm] = deque(state.episodes, KEPT)
        self._base = int(monitor.n_seen_)  # its number of the row that we count as the next
        self._shift = state.rows - self._base
        self._saved = time.monotonic()
        self._unsaved = 0
        if log is not None and log.empty and not log.is_json:
            log.write(_csv([*LOG_START, *self._log_names(), "alarm", "sensors"]))

    def _log_names(self) -> list[str]:
        return [name for one in self.statistics for name in (one, f"{one}_limit")]

    def step(self, wait: float) -> bool:
        """Judge what has come; return False if nothing has after so many seconds."""
        piece = self.tail.read(wait)
        if piece is not None:
            rows = self.records.rows(piece)
            if len(rows.values):
                self._judge(rows)
        if self._unsaved and self._is_due():
            self.save()
        return piece is not None

    def _is_due(self) -> bool:
        late = time.monotonic() - self._saved >= self.seconds
        return late or self._unsaved >= self.most

    def save(self) -> None:
        """Bring log and alarms to the disk, then the state that counts them."""
        state = self.state
        state.place, state.header = self.tail.place(), self.records.entry()
        state.log = None if self.log is None else self.log.kept()
        state.alarms = None if self.alarms is None else self.alarms.kept()
        state.episodes = tuple(self.episodes)
        if self.path is not None:
            dualpca.save(self.monitor, self.path, metadata=state.entry())
        self._saved, self._unsaved = time.monotonic(), 0

    def _judge(self, rows: Rows) -> None:
        chart = self.monitor.update(rows.values)
        times = rows.times
        if self.records.layout.time is None:
            times = [datetime.now().isoformat(" ", "seconds")] * len(times)
        found = Judged(self.state.rows + 1, rows, chart, times)
        self.state.rows += len(rows.values)
        self._unsaved += len(rows.values)
        if self.log is not None:
            self.log.write(self._logged(found))
            self.log.flush()
        self._tell_alarms(found)
        self.state.recent = (*self.state.recent, *times)[-RECENT:]
        for listener in self.listeners:
            listener(found)

    # --- alarms --------------------------------------------------------------------------------

    def _tell_alarms(self, found: Judged) -> None:
        """Tell of episodes that begin or end in these rows."""
        for episode in found.chart.episodes:
            first = episode.start + self._shift + 1
            began = self.state.open is not None and first <= self.state.open.first
            if not began and first < found.first:
                continue  # told before
            if not began:
                self._begin(found, episode, first)
            self._go_on(found, episode)

    def _begin(self, found: Judged, episode: Any, first: int) -> None:
        i = first - found.first
        there = _at(found.chart, i)
        by = {name: ratio(*pair) for name, pair in there.items()}
        which = max(by, key=by.__getitem__)
        if by[which] <= 1 and episode.statistics:  # a run rule
            which = str(episode.statistics[0])
        peak, (value, limit) = by.get(which, 0.0), there.get(which, (math.nan, math.nan))
        sensors = shares(found.chart.contributions[i], self.names)
        self.state.seen += 1
        self.state.open = Alarm(first, found.times[i], (which,), sensors, peak)
        event = {"event": "begin", "row": first, "time": found.times[i], "statistic": which}
        event |= {"value": _number(value), "limit": _number(limit)}
        what = f"{peak:.2g} × its limit" if peak > 1 else "by a run rule"
        label = found.rows.labels[i]
        words = f"row {first}{f' ({label})' if label else ''}: alarm begins: {title(which)} {what}"
        self._emit(event | {"sensors": _rounded(sensors)}, found.times[i], words, sensors)

    def _go_on(self, found: Judged, episode: Any) -> None:
        """Take what is known of an episode by now; tell if it has ended."""
        alarm = self.state.open
        assert alarm is not None
        sensors = {str(name): float(share) for name, share in episode.sensors}
        alarm = alarm._replace(statistics=tuple(episode.statistics) or alarm.statistics)
        alarm = alarm._replace(sensors=sensors or alarm.sensors, peak=float(episode.peak))
        self.state.open = alarm
        if episode.end is None:
            return
        last = episode.end + self._shift
        at = last - found.first
        ended = found.times[at] if at >= 0 else self.state.recent[at:][0]
        alarm = alarm._replace(last=last, ended=ended)
        self.episodes.append(alarm)
        self.state.open = None
        event = {"event": "end", "row": last, "time": ended, "first": alarm.first}
        event |= {"began": alarm.began, "rows": last - alarm.first + 1}
        event |= {"statistics": list(alarm.statistics), "peak": _number(alarm.peak)}
        words = f"row {last}: alarm ends after {last - alarm.first + 1} rows: "
        words += ", ".join(map(title, alarm.statistics))
        words += f", up to {alarm.peak:.2g} × the limit" if alarm.peak > 1 else ""
        self._emit(event | {"sensors": _rounded(alarm.sensors)}, ended, words, alarm.sensors)

    def _emit(
        self, event: dict[str, Any], when: str, words: str, sensors: Mapping[str, float]
    ) -> None:
        which = sensor_words(sensors)
        text = f"{when}  {words}{f' ({which})' if which else ''}".strip()
        line = json.dumps(event, ensure_ascii=False, allow_nan=False)
        self.say(line if self.as_json else text)
        if self.alarms is not None:
            self.alarms.write(f"{line if self.as_json or self.alarms.is_json else text}\n")
            self.alarms.flush()

    # --- the log -------------------------------------------------------------------------------

    def _logged(self, found: Judged) -> str:
        """Return one line per row."""
        chart = found.chart
        columns = [(chart.statistics[k].tolist(), chart.limits[k].tolist()) for k in self.statistics]
        make = self._object if self.log is not None and self.log.is_json else self._line
        alarms = chart.alarms.tolist()
        lines = []
        for i, when in enumerate(found.times):
            cells = [number for pair in columns for number in (pair[0][i], pair[1][i])]
            which = shares(chart.contributions[i], self.names) if alarms[i] else {}
            lines.append(make(found.first + i, when, cells, alarms[i], which))
        return "".join(lines)

    def _line(
        self, row: int, when: str, cells: list[float], alarm: bool, which: dict[str, float]
    ) -> str:
        numbers = ["" if math.isnan(x) else f"{x:.8g}" for x in cells]
        return _csv([row, when, *numbers, int(alarm), sensor_words(which, MOST_SENSORS)])

    def _object(
        self, row: int, when: str, cells: list[float], alarm: bool, which: dict[str, float]
    ) -> str:
        found: dict[str, Any] = {"row": row, "time": when}
        found |= dict(zip(self._log_names(), map(_number, cells), strict=True))
        found |= {"alarm": alarm, "sensors": _rounded(which)}
        return json.dumps(found, ensure_ascii=False, allow_nan=False) + "\n"


def _at(chart: Any, i: int) -> dict[str, tuple[float, float]]:
    """Return the value and the limit of every statistic in one row."""
    return {k: (float(v[i]), float(chart.limits[k][i])) for k, v in chart.statistics.items()}


def ratio(value: float, limit: float) -> float:
    """Return a statistic in units of its limit; 0 where it is not known.

    Examples
    --------
    >>> ratio(6.0, 2.0), ratio(math.nan, 2.0)
    (3.0, 0.0)
    """
    return value / limit if limit > 0 and not math.isnan(value) else 0.0


def _number(x: float) -> float | None:
    return float(f"{x:.8g}") if math.isfinite(x) else None


def _rounded(sensors: Mapping[str, float]) -> dict[str, float]:
    return {name: round(share, 4) for name, share in sensors.items()}


def _csv(cells: Sequence[Any]) -> str:
    """Return cells as a line of CSV."""
    texts = [str(cell) for cell in cells]
    if not any(sign in text for text in texts for sign in ',"\r\n'):
        return ",".join(texts) + "\n"
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(texts)
    return buffer.getvalue()
