"""Progress of long work: a bar on a terminal, plain lines elsewhere, nothing by default.

`showing` turns reports on; long work opens `task` and calls what it yields after every piece. The
two need not know each other, and of nested tasks only the outermost reports.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TextIO

BAR_WIDTH = 24
BETWEEN_BARS, BETWEEN_LINES = 0.1, 2.0
"""Seconds between two reports."""

Tick = Callable[..., None]


@dataclass
class Reporter:
    """Where reports go, and when the last one went."""

    stream: TextIO
    bar: bool
    busy: bool = False
    last: float = -1e9
    width: int = 0
    between_bars: float = BETWEEN_BARS

    def say(self, label: str, done: int, total: int, note: str) -> None:
        """Write one report over the last bar, or as a line of its own."""
        words = f"{label} {done} of {total}" + (f", {note}" if note else "")
        if self.bar:
            filled = round(BAR_WIDTH * done / total)
            words = f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {words}"
            self.stream.write("\r" + words.ljust(self.width))
            self.width = len(words)
        else:
            self.stream.write(words + "\n")
        self.stream.flush()
        self.last = time.monotonic()

    def due(self) -> bool:
        """Return True if the last report is old enough for another."""
        return time.monotonic() - self.last >= (self.between_bars if self.bar else BETWEEN_LINES)


_reporter: ContextVar[Reporter | None] = ContextVar("dualpca_progress", default=None)


@contextmanager
def showing(
    verbose: bool | int, stream: TextIO | None = None, between: float = BETWEEN_BARS
) -> Iterator[None]:
    """Let tasks report while this is open, on `stream` (standard error); silent unless `verbose`.

    Bars are drawn anew after `between` seconds.

    Examples
    --------
    >>> import sys
    >>> with showing(True, sys.stdout), task("counting", 3) as tick:
    ...     for k in range(3):
    ...         tick(f"now at {k}")
    counting 1 of 3, now at 0
    counting 3 of 3, now at 2
    """
    out = sys.stderr if stream is None else stream
    token = _reporter.set(
        Reporter(out, out.isatty(), between_bars=between) if verbose else _reporter.get()
    )
    try:
        yield
    finally:
        _reporter.reset(token)


@contextmanager
def task(label: str, total: int) -> Iterator[Tick]:
    """Open a task of at most `total` pieces; yields what to call, with a note, after each."""
    reporter = _reporter.get()
    if reporter is None or reporter.busy:
        yield lambda text="": None
        return
    done, note = 0, ""

    def tick(text: str = "") -> None:
        nonlocal done, note
        done, note = done + 1, text
        if reporter.due():
            reporter.say(label, done, total, note)

    reporter.busy, reporter.last = True, -1e9
    try:
        yield tick
    finally:
        reporter.say(label, done, total, note)
        if reporter.bar:
            reporter.stream.write("\n")
        reporter.busy, reporter.width = False, 0


def shows_progress() -> bool:
    """Return True if progress is shown: for reports that cost a pass over the data."""
    return _reporter.get() is not None


def note(text: str) -> None:
    """Write one line, if progress is shown."""
    reporter = _reporter.get()
    if reporter is not None:
        reporter.stream.write(text + "\n")
        reporter.stream.flush()
