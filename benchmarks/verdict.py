"""From measurements to rows: who is the best peer, and was the goal met."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.cases import Case
from benchmarks.measure import Measurement


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    case: Case
    measurement: Measurement
    ratio: float | None
    best: bool

    @property
    def goal(self) -> str:
        return str(self.case.goal) if self.measurement.contestant.ours else ""

    @property
    def met(self) -> str:
        m = self.measurement
        if not m.contestant.ours:
            return "best peer" if self.best else ""
        missed = self.case.goal.missed(ratio=self.ratio, error=m.error, megabytes=m.megabytes)
        return f"no: {', '.join(missed)}" if missed or not m.times else "yes"


def rows(case: Case, measurements: list[Measurement]) -> list[Row]:
    best = best_peer(case, measurements)
    return [Row(case, m, ratio(m, best), m is best) for m in measurements]


def best_peer(case: Case, measurements: list[Measurement]) -> Measurement | None:
    """The fastest peer among those accurate enough."""
    peers = [m for m in measurements if m.times and not m.contestant.ours]
    if case.accuracy is not None:
        peers = [m for m in peers if m.error is not None and m.error <= case.accuracy]
    return min(peers, key=lambda m: m.seconds or 0.0, default=None)


def ratio(m: Measurement, best: Measurement | None) -> float | None:
    if m.seconds is None or best is None or not best.seconds:
        return None
    return m.seconds / best.seconds
