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
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dualpca
from dualpca.app.live.following import FileTail, Place, StreamTail, Tell
from dualpca.app.live.records import Records, Rows
from dualpca.app.live.words import MOST_SENSORS, reason, sensor_words, shares, title
from dualpca.app.tables.columns import named_rows
from dualpca.app.tables.writing import defused
from dualpca.data import sync_folder, target_of
from dualpca.errors import ModelFileError

KEPT = 100
"""Alarms that the page lists, and a state holds."""
RECENT = 32
"""Times that are remembered: an episode is known to have ended some rows after its last one."""
JSON_LINES = (".jsonl", ".ndjson", ".json")
"""Endings of files of JSON lines."""


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
        'SPE, up to 2.5 × the limit: flow 100 %'
        """
        what = ", ".join(map(title, self.statistics))
        which = sensor_words(self.sensors)
        return f"{what}, up to {self.peak:.3g} × the limit" + (f": {which}" if which else "")


class Judged(NamedTuple):
    """Some rows and what the monitor says of them."""

    first: int  # number of the first row, counted from 1
    rows: Rows
    chart: Any

    @property
    def times(self) -> list[str]:
        """The times of the rows: as given, else when they came."""
        return self.rows.times


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
        if not target.exists():  # a state must not count lines of a file that a power loss takes
            target.touch()
            sync_folder(target)
        self.file = open(target, "ab")
        try:
            self._cut_back(target, kept, whole)
        except BaseException:
            self.close()
            raise

    def _cut_back(self, target: Path, kept: Kept | None, whole: bool) -> None:
        """Leave what the state counts, and lines beyond that if they stay."""
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

    def close(self) -> None:
        """Close the file."""
        self.file.close()

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


def _alarm_of(one: Any) -> Alarm:
    return Alarm(*one)._replace(statistics=tuple(one[2]))


def _state_of(found: dict[str, Any]) -> State:
    found["place"], found["recent"] = Place(*found["place"]), tuple(found["recent"])
    found["episodes"] = tuple(map(_alarm_of, found["episodes"]))
    for name in ("log", "alarms"):
        found[name] = None if found[name] is None else Kept(*found[name])
    found["open"] = None if found["open"] is None else _alarm_of(found["open"])
    return State(**found)


# --- the watch ---------------------------------------------------------------------------------

Tail = FileTail | StreamTail

LOG_START = ("row", "time")
SECONDS, ROWS = 2.0, 20_000
"""How often a state is written."""


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
    defuse : bool
        Whether formulas become text for spreadsheets too, in CSV.
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
        seconds: float = SECONDS,
        rows: int = ROWS,
        defuse: bool = False,
    ) -> None:
        self.monitor, self.records, self.tail, self.state = monitor, records, tail, state
        self.path, self.say, self.as_json = path, say, as_json
        self.log, self.alarms, self.defuse = log, alarms, defuse
        self.seconds, self.most = seconds, rows
        self.names = records.layout.prep.features
        nothing = self._named(np.full((1, len(self.names)), np.nan))
        self.statistics = list(monitor.chart(nothing).statistics)  # with run rules
        self.lock = threading.Lock()  # of the monitor: the page asks it too
        self.listeners: list[Callable[[Judged], None]] = []
        self.episodes: deque[Alarm] = deque(state.episodes, KEPT)
        self._base = int(monitor.n_seen_)  # its number of the row that we count as the next
        self._shift = state.rows - self._base
        self._saved = time.monotonic()
        self._unsaved = 0

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

    def close(self) -> None:
        """Close the files."""
        with ExitStack() as stack:  # all of them, even if one cannot be written
            for one in (self.alarms, self.log, self.tail):
                if one is not None:
                    stack.callback(one.close)

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
        """Judge rows, and stop where an alarm begins to tell what is known then."""
        if self.records.time is None:
            now = datetime.now().isoformat(" ", "seconds")
            rows = rows._replace(times=[now] * len(rows.values))
        while len(rows.values):
            trial = copy(self.monitor)
            chart = trial.update(self._named(rows.values))
            n = self._before_news(chart, len(rows.values))
            if n < len(rows.values):
                trial = copy(self.monitor)
                chart = trial.update(self._named(rows.values[:n]))
            _forget(trial, KEPT)
            with self.lock:
                self.monitor = trial
            self._take(Judged(self.state.rows + 1, rows.cut(0, n), chart))
            rows = rows.cut(n, None)

    def _before_news(self, chart: Any, n: int) -> int:
        """Return the rows up to the first one at which an episode begins."""
        starts = [int(one.start) + 1 - int(chart.first) for one in chart.episodes]
        return min([n, *(k for k in starts if k > 0)])

    def _take(self, found: Judged) -> None:
        """Write and tell what was found in some rows."""
        n = len(found.times)
        self.state.rows += n
        self._unsaved += n
        if self.log is not None:
            if self.log.empty and not self.log.is_json:
                names = [*LOG_START, *self._log_names(), "alarm", "sensors"]
                self.log.write(csv_line(names, defuse=self.defuse))
            self.log.empty = False
            self.log.write(self._logged(found))
            self.log.flush()
        self._tell_alarms(found)
        self.state.recent = (*self.state.recent, *found.times[-RECENT:])[-RECENT:]
        for listener in self.listeners:
            listener(found)

    def _named(self, values: Any) -> Any:
        return named_rows(self.monitor, values)

    # --- alarms --------------------------------------------------------------------------------

    def _tell_alarms(self, found: Judged) -> None:
        """Tell of episodes that begin or end in these rows."""
        episodes = found.chart.episodes
        open_ = self.state.open
        if open_ is not None:
            start = open_.first - self._shift - 1
            if all(one.start != start for one in episodes):  # it had no alarm in these rows
                own = [one for one in self.monitor.episodes_ if one.start == start]
                episodes = (*own, *episodes)
        for episode in episodes:
            first = episode.start + self._shift + 1
            if self.state.open is None and first < found.first:
                continue  # from before this watch
            if self.state.open is None:
                self._begin(found, episode, first)
            self._go_on(found, episode)

    def _begin(self, found: Judged, episode: Any, first: int) -> None:
        i = first - found.first
        there = _at(found.chart, i)
        by = {name: ratio(*pair) for name, pair in there.items()}
        which = max(by, key=by.__getitem__)
        value, limit = there[which]
        sensors = _sensors(episode)
        self.state.seen += 1
        self.state.open = Alarm(first, found.times[i], (which,), sensors, by[which])
        event = {"event": "begin", "row": first, "time": found.times[i], "statistic": which}
        event |= {"value": _number(value), "limit": _number(limit), "sensors": _rounded(sensors)}
        label = found.rows.labels[i]
        name = f"row {first} ({label})" if label else f"row {first}"
        words = f"{name}: alarm begins: {reason(by, sensors)}"
        self._emit(event, found.times[i], words)

    def _go_on(self, found: Judged, episode: Any) -> None:
        """Take what is known of an episode by now; tell if it has ended."""
        alarm = self.state.open
        assert alarm is not None
        alarm = alarm._replace(
            statistics=tuple(episode.statistics),
            sensors=_sensors(episode),
            peak=float(episode.peak),
        )
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
        n = last - alarm.first + 1
        event |= {"began": alarm.began, "rows": n}
        event |= {"statistics": list(alarm.statistics), "peak": _number(alarm.peak)}
        words = f"row {last}: alarm ends after {n} row{'' if n == 1 else 's'}: {alarm.words()}"
        self._emit(event | {"sensors": _rounded(alarm.sensors)}, ended, words)

    def _emit(self, event: dict[str, Any], when: str, words: str) -> None:
        text = f"{when}  {words}".strip()
        line = json.dumps(event, ensure_ascii=False, allow_nan=False)
        self.say(line if self.as_json else text)
        if self.alarms is not None:
            self.alarms.write(f"{line if self.as_json or self.alarms.is_json else text}\n")
            self.alarms.flush()

    # --- the log -------------------------------------------------------------------------------

    def _logged(self, found: Judged) -> str:
        """Return one line per row."""
        chart = found.chart
        columns = [
            (chart.statistics[k].tolist(), chart.limits[k].tolist()) for k in self.statistics
        ]
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
        words = sensor_words(which, MOST_SENSORS)
        return csv_line([row, when, *numbers, int(alarm), words], defuse=self.defuse)

    def _object(
        self, row: int, when: str, cells: list[float], alarm: bool, which: dict[str, float]
    ) -> str:
        found: dict[str, Any] = {"row": row, "time": when}
        found |= dict(zip(self._log_names(), map(_number, cells), strict=True))
        found |= {"alarm": alarm, "sensors": _rounded(which)}
        return json.dumps(found, ensure_ascii=False, allow_nan=False) + "\n"


def _forget(monitor: Any, most: int) -> None:
    """Let a monitor remember its latest episodes only: a watch may run for years."""
    model = monitor._fitted
    traces = model.state.traces
    if len(traces) > most:
        monitor._model = replace(model, state=replace(model.state, traces=traces[-most:]))


def _sensors(episode: Any) -> dict[str, float]:
    return {str(name): float(share) for name, share in episode.sensors}


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


def csv_line(cells: Sequence[Any], *, defuse: bool) -> str:
    """Return cells as a line of CSV; with `defuse` formulas are text for spreadsheets too."""
    texts = [defused(str(cell)) if defuse else str(cell) for cell in cells]
    if not any(sign in text for text in texts for sign in ',"\r\n'):
        return ",".join(texts) + "\n"
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(texts)
    return buffer.getvalue()
