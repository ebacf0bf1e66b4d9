"""One run of a section: how much time it has, and what it had no time for."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

Row = dict[str, Any]


class OutOfTime(BaseException):
    """The budget is spent; no `except Exception` on the way may hide it."""


class Run:
    """What was asked for: small data, a budget in seconds, threads."""

    def __init__(self, *, quick: bool = False, budget: float = inf, threads: int = 2) -> None:
        self.quick, self.budget, self.threads = quick, budget, threads
        self.begun = time.perf_counter()
        self.left_out: list[str] = []

    @property
    def left(self) -> float:
        return self.budget - (time.perf_counter() - self.begun)

    def room(self, what: str, seconds: float = 0.0) -> bool:
        """Say whether there is time for one more thing; what there is none for is left out."""
        if self.left > seconds:
            return True
        self.left_out.append(what)
        return False

    def repeats(self, most: int, fewest: int = 1, reserve: float = 0.5) -> Iterator[int]:
        """Count repetitions: `most` of them, fewer once only a share of the budget is left."""
        for k in range(most):
            if k >= fewest and self.left < reserve * self.budget < inf:
                return
            yield k

    @contextmanager
    def in_time(self) -> Iterator[None]:
        """Raise OutOfTime here when the budget is spent."""
        if self.budget == inf:
            yield
            return

        def stop(*_: object) -> None:
            raise OutOfTime

        before = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, max(self.left, 0.001))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
