"""Default against default on tables of every size: `python -m benchmarks small`, or by hand

    python -m benchmarks.small --only PCA --cell iris --cpu

A cell is one call of ours beside the same call of its peers, with default settings on both sides.
All run in one process, one after the other, again and again; the ratio is the median time of ours
over that of the fastest peer. The cells are in `small_*.py`. `--load 2` (section `load`) keeps two
other processes busy on the same cores meanwhile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import geometric_mean, median
from typing import NamedTuple

from benchmarks.environment import use_threads
from benchmarks.results import BEHIND
from benchmarks.run import Row, Run

MODULES = ("small_pca", "small_kernels", "small_models", "small_missing")
FEWEST, MOST = 5, 2000
"""Rounds of a cell."""

SECONDS = 0.6
"""Total time of a cell's rounds at least, unless there are `MOST` of them."""

LOAD = 2
"""Busy processes of the section `load`."""

Call = Callable[[], object]


class Cell(NamedTuple):
    """One thing that ours and its peers do."""

    group: str
    name: str
    ours: Call
    peers: dict[str, Call]
    note: str = ""


class Found(NamedTuple):
    """Median seconds of a cell."""

    group: str
    name: str
    seconds: float
    peer: str  # the fastest
    peer_seconds: float
    rounds: int
    note: str

    @property
    def ratio(self) -> float:
        return self.seconds / self.peer_seconds


def every_cell(quick: bool) -> list[Cell]:
    """Return the cells of all modules that are there."""
    present = [name for name in MODULES if find_spec(f"benchmarks.{name}")]
    return [cell for name in present for cell in import_module(f"benchmarks.{name}").cells(quick)]


Clock = Callable[[], float]


def timed(call: Call, clock: Clock) -> float:
    start = clock()
    call()
    return clock() - start


def measure(
    cell: Cell, seconds: float, clock: Clock = time.perf_counter, fewest: int = FEWEST
) -> Found:
    """Run all contestants in turns, after one turn to warm up."""
    calls = {"": cell.ours, **cell.peers}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    start, rounds = time.perf_counter(), 0
    while rounds < fewest or (rounds < MOST and time.perf_counter() - start < seconds):
        for name, call in calls.items():
            times[name].append(timed(call, clock))
        rounds += 1
    medians = {name: median(found) for name, found in times.items()}
    best = min(cell.peers, key=lambda name: medians[name])
    return Found(cell.group, cell.name, medians[""], best, medians[best], rounds, cell.note)


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep other processes busy meanwhile."""
    spin = [sys.executable, "-c", "while True: sum(range(10000))"]
    running = [subprocess.Popen(spin) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def line(found: Found) -> str:
    behind = "  behind" if found.ratio > BEHIND else ""
    return (
        f"{found.group:<16}{found.name:<44}{1e3 * found.seconds:>11.3f}"
        f"{1e3 * found.peer_seconds:>11.3f}{found.ratio:>8.2f}  {found.peer}{behind}"
        f"{'  ' + found.note if found.note else ''}"
    )


def summary(cells: list[Found]) -> str:
    """Return how many cells there are, how many are behind, which, and means by group."""
    behind = [found for found in cells if found.ratio > BEHIND]
    lines = [f"{len(cells)} cells, {len(behind)} behind"]
    lines += [f"  {found.group}, {found.name}: {found.ratio:.2f}" for found in behind]
    for group in dict.fromkeys(found.group for found in cells):
        ratios = [found.ratio for found in cells if found.group == group]
        mean, most = geometric_mean(ratios), max(ratios)
        lines.append(f"{group}: geometric mean {mean:.2f}, largest {most:.2f}, {len(ratios)} cells")
    return "\n".join(lines)


def rows(run: Run, part: str, processes: int = 0) -> Iterator[Row]:
    """Yield the cells of one module; a tight budget means fewer rounds before fewer cells."""
    cells = import_module(f"benchmarks.small_{part}").cells(run.quick)
    chosen = list(cells)
    with busy(processes):
        for k, cell in enumerate(chosen):
            if not run.room(f"{cell.group}, {cell.name}"):
                continue
            share = run.left / (len(chosen) - k)
            fewest = FEWEST if share > 2 * SECONDS else 2
            found = measure(cell, 0.05 if run.quick else min(SECONDS, share / 2), fewest=fewest)
            yield found._asdict() | {"ratio": found.ratio}
    for name, package in NEEDED.items():
        if part == name and find_spec(package) is None:
            run.left_out.append(f"cells beside {package}, which is not installed")


NEEDED = {"models": "hmmlearn", "missing": "ppca_rs"}


def under_load(run: Run, part: str) -> Iterator[Row]:
    """Yield the same with two busy processes on the same cores."""
    for row in rows(run, part, LOAD):
        yield {key: value for key, value in row.items() if key not in ("note", "rounds")}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="few cells, few rounds: does everything run?")
    add("--only", nargs="+", metavar="GROUP", help="groups of this name")
    add("--cell", metavar="TEXT", help="cells whose name contains this")
    add("--load", type=int, default=0, help="other processes that are busy meanwhile (0)")
    add("--threads", type=int, default=2, help="cores and threads (2)")
    add("--seconds", type=float, default=SECONDS, help=f"of each cell at least ({SECONDS:g})")
    add("--cpu", action="store_true", help="measure CPU time of all threads, on a busy machine")
    add("--json", type=Path, help="file for all results")
    return parser.parse_args()


def wanted(cell: Cell, only: list[str] | None, part: str | None) -> bool:
    group = cell.group.lower()
    chosen = not only or group in map(str.lower, only)
    return chosen and (part is None or part in cell.name)


def main() -> None:
    args = arguments()
    use_threads(args.threads)  # before NumPy is imported
    chosen = [cell for cell in every_cell(args.quick) if wanted(cell, args.only, args.cell)]
    seconds = 0.05 if args.quick else args.seconds
    clock = time.process_time if args.cpu else time.perf_counter
    print(f"{'group':<16}{'cell':<44}{'ours, ms':>11}{'peer, ms':>11}{'ratio':>8}  peer")
    found = []
    with busy(args.load), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for cell in chosen:
            found.append(measure(cell, seconds, clock))
            print(line(found[-1]), flush=True)
    print(f"\n{summary(found)}")
    if args.json:
        about = {"load": args.load, "threads": args.threads}
        rows = [about | one._asdict() | {"ratio": one.ratio} for one in found]
        args.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    # under its own name, so that a Cell is the same class in every module
    from benchmarks import small

    small.main()
