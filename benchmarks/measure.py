"""Measure the contestants of a case in turns, each in its own warm process."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks import data
from benchmarks.cases import Case
from benchmarks.contestants import Contestant
from benchmarks.run import OutOfTime, Run
from benchmarks.worker import Worker

ROUNDS = 5


@dataclass
class Measurement:
    """What is known of one contestant; `note` says why when there are no times."""

    contestant: Contestant
    times: list[float] = field(default_factory=list)
    error: float | None = None
    megabytes: float | None = None
    note: str = ""

    @property
    def seconds(self) -> float | None:
        return median(self.times) if self.times else None


def measure(case: Case, run: Run) -> list[Measurement]:
    """First runs (memory, error, warm-up), then rounds in which everyone runs once."""
    place = data.stored(case.size, data.DEFAULT_FOLDER) if case.size else None
    measurements = [Measurement(contestant) for contestant in case.contestants]
    workers: dict[str, Worker] = {}
    limit = min(case.limit, max(run.left / 2, 5.0))
    try:
        for m in measurements:
            start(m, workers, (case.task, m.contestant, place, run.threads), limit)
        for _ in run.repeats(ROUNDS, fewest=2):
            one_round(measurements, workers, limit)
    except OutOfTime:
        # Without a time of everybody the fastest of them is not known.
        if not all(m.times or m.note for m in measurements):
            raise
        run.left_out.append(f"further rounds of {case.title}")
    finally:
        for worker in workers.values():
            worker.stop()
    return measurements


def start(m: Measurement, workers: dict[str, Worker], job: tuple[Any, ...], limit: float) -> None:
    """Start a worker and let it run once; one that fails or is too slow takes no further part."""
    try:
        worker = Worker(*job)
        found = worker.ask("first", timeout=limit)
    except TimeoutError:
        drop(m, f"> {limit:g} s")
    except (RuntimeError, EOFError) as error:
        drop(m, f"failed: {error}")
    else:
        m.error, m.megabytes = found["error"], found["megabytes"]
        workers[m.contestant.name] = worker


def one_round(measurements: list[Measurement], workers: dict[str, Worker], limit: float) -> None:
    for m in measurements:
        # Slow peers need fewer turns: they are far from the best.
        if m.contestant.name not in workers or sum(m.times) >= limit:
            continue
        try:
            m.times.append(workers[m.contestant.name].ask("time"))
        except (RuntimeError, EOFError) as error:
            del workers[m.contestant.name]
            drop(m, f"failed: {error}")


def drop(m: Measurement, note: str) -> None:
    """Leave a contestant out of the ranking, and say why."""
    m.times.clear()
    m.note = note
    say(f"  {m.contestant.name}: {note}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
