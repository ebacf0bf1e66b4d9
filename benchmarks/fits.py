"""PCA and kernel PCA beside scikit-learn, each contestant in a process of its own.

First runs give memory, error and a warm-up; then everyone runs once a round. The best peer is the
fastest of those that are accurate enough.
"""

from __future__ import annotations

from collections.abc import Iterator

from threadpoolctl import threadpool_limits

from benchmarks.cases import Case, cases
from benchmarks.measure import Measurement, measure
from benchmarks.run import Row, Run


def rows(run: Run, part: str) -> Iterator[Row]:
    case = cases(run.quick)[part]
    with threadpool_limits(run.threads):  # of this process, which makes the data
        measurements = measure(case, run)
    best = best_peer(case, measurements)
    for m in measurements:
        yield {
            "name": case.title,
            "who": m.contestant.name,
            "ours": m.contestant.ours,
            "best": m is best,
            "seconds": m.seconds,
            "ratio": m.seconds / best.seconds if m.seconds and best and best.seconds else None,
            "error": m.error,
            "error_of": case.task.measure,
            "megabytes": m.megabytes,
            "note": m.note.partition(":")[0],
            "rounds": len(m.times),
        }


def best_peer(case: Case, measurements: list[Measurement]) -> Measurement | None:
    """The fastest peer among those accurate enough."""
    peers = [m for m in measurements if m.times and not m.contestant.ours]
    if case.accuracy is not None:
        peers = [m for m in peers if m.error is not None and m.error <= case.accuracy]
    return min(peers, key=lambda m: m.seconds or 0.0, default=None)
