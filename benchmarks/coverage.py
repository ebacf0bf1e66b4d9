"""How often intervals and probabilities hold: ``python -m benchmarks.coverage --jobs 8``.

Every row of the page is a simulation from a model that is known (`coverage_rows`). A run draws a
new seed, unless ``--seed`` gives one; the same seed gives the same numbers, whatever ``--jobs`` is.

Results go to ``results/coverage.json`` row by row, and once all are there to ``docs/coverage.md``.
``--continue`` measures the rows that the file does not have, ``--merge`` takes those of other files
(from another machine), ``--only`` measures some rows again, and ``--render`` writes the page from
stored results alone. Rows that need a package that is not installed are named, and left for a
machine that has it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import secrets
import time
import traceback
import warnings
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import coverage_grid as coverage_grid  # its rows
from benchmarks.coverage_rows import GROUPS, ROWS, Count, Row

RESULTS = Path(__file__).parent / "results" / "coverage.json"
PAGE = Path(__file__).parents[1] / "docs" / "coverage.md"

QUICK = 3
"""Replications with ``--quick``."""

SHORT, WIDE = 0.02, 0.02
"""What is called too narrow or too wide: this far from nominal, and by three standard errors."""

WANTED, MOST = 0.006, 8
"""Rows with a larger standard error are replicated more often, up to so many times as often."""

PARTS = 8
"""Tasks that the replications of a row are dealt to."""


@dataclass(frozen=True)
class Result:
    """What was measured of one row."""

    nominal: float
    measured: float
    error: float  # Monte Carlo standard error of `measured`
    replications: int
    count: int  # intervals or probabilities judged
    seconds: float  # of processor time
    seed: int = 0


def replicate(row: Row, k: int, seed: int) -> Any:
    """Return the count of replication k: the same for every run with the seed."""
    rng = np.random.default_rng([seed, zlib.crc32(row.key.encode()), k])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return row.replicate(rng)


def measure(row: Row, replications: int, seed: int = 0) -> Result:
    """Replicate a row here, so many times."""
    return result(row, *counted(row, range(replications), seed), seed)


def counted(row: Row, some: Iterable[int], seed: int) -> tuple[list[Count], float]:
    """Return the counts of some replications, and the seconds of processor time they took."""
    start = time.process_time()
    return [replicate(row, k, seed) for k in some], time.process_time() - start


def result(row: Row, counts: list[Count], seconds: float, seed: int) -> Result:
    """Return what counts of replications say.

    The share of all that was right; its standard error is that of a ratio over independent
    replications, so that what is judged together (rows of one fit) counts as such.
    """
    right, of, said = np.array(counts, dtype=float).T
    nominal = row.nominal if row.nominal is not None else float(said.sum() / max(of.sum(), 1))
    measured = float(right.sum() / max(of.sum(), 1))
    if row.nominal is None:  # the error of the difference from what the model says
        right = right - said + nominal * of
    spread, n = float(np.sum((right - measured * of) ** 2)), len(counts)
    error = math.sqrt(spread * n / max(n - 1, 1)) / max(float(of.sum()), 1.0)
    return Result(nominal, measured, error, n, int(of.sum()), round(seconds, 2), seed)


# --- Many rows, in several processes --------------------------------------------------------------


def counted_there(key: str, some: range, seed: int) -> tuple[list[Count], float] | str:
    """Return the counts of some replications of a row, or why there are none."""
    with threadpool_limits(1):
        try:
            return counted(ROWS[key], some, seed)
        except Exception:
            return traceback.format_exc()


class Here:
    """An executor that does the work at once, where it is asked."""

    def submit(self, function: Any, *args: Any) -> Future[Any]:
        """Return the future of a call that has ended."""
        done: Future[Any] = Future()
        done.set_result(function(*args))
        return done


@dataclass
class Progress:
    """What is known of one row so far."""

    row: Row
    asked: int
    waiting: int = 0
    counts: dict[int, list[Count]] = field(default_factory=dict)
    seconds: float = 0.0
    enlarged: bool = False

    def tasks(self, start: int, stop: int) -> list[tuple[str, range]]:
        """Return tasks of about the same size, and count them as waiting."""
        step = max(1, -(-(stop - start) // PARTS))
        found = [range(k, min(k + step, stop)) for k in range(start, stop, step)]
        self.waiting += len(found)
        return [(self.row.key, some) for some in found]

    def result(self, seed: int) -> Result:
        """Return what the counts say, in the order of the replications."""
        counts = [one for start in sorted(self.counts) for one in self.counts[start]]
        return result(self.row, counts, self.seconds, seed)

    def more(self, found: Result) -> int:
        """Return how many replications a small enough standard error asks for, at most."""
        wanted = math.ceil(self.asked * min((found.error / WANTED) ** 2, MOST))
        return max(wanted, self.asked)


def measured(
    rows: list[Row],
    seed: int,
    *,
    jobs: int = 1,
    times: int | None = None,
    until: float = math.inf,
) -> Iterator[tuple[Row, Result | str]]:
    """Yield rows with their results as they are done, or with the traceback of what failed.

    `times` is the number of replications of every row; by default its own, and more where its
    standard error is large. After `until` (of `time.monotonic`) no task begins, and rows that are
    not done then are not yielded.
    """
    state = {row.key: Progress(row, times or row.replications) for row in rows}
    queue = deque(task for one in state.values() for task in one.tasks(0, one.asked))
    running: dict[Future[Any], tuple[str, range]] = {}
    pool = ProcessPoolExecutor(jobs, get_context("spawn")) if jobs > 1 else nullcontext(Here())
    with pool as executor:
        while queue or running:
            while queue and len(running) < 2 * jobs and time.monotonic() < until:
                key, some = queue.popleft()
                if key in state:
                    running[executor.submit(counted_there, key, some, seed)] = key, some
            if not running:
                return
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                key, some = running.pop(done)
                if key not in state:
                    continue
                one, found = state[key], done.result()
                if isinstance(found, str):
                    del state[key]
                    yield one.row, found
                    continue
                one.counts[some.start], one.waiting = found[0], one.waiting - 1
                one.seconds += found[1]
                if one.waiting:
                    continue
                so_far = one.result(seed)
                more = 0 if times or one.enlarged else one.more(so_far)
                if more > one.asked:
                    one.enlarged = True
                    queue.extendleft(reversed(one.tasks(one.asked, more)))
                else:
                    del state[key]
                    yield one.row, so_far


# --- The page ------------------------------------------------------------------------------------

HEAD = """# Coverage: do the intervals hold?

What the library says about its own uncertainty, beside what simulations find: tables are drawn from
a known model and fitted, and the truth is compared with what the library says. *Nominal* is the
share that should hold and *measured* the share that did, ± its Monte Carlo standard error over the
replications (independent tables). The last column says where the two differ by more than
{short:.0f} points and by more than three standard errors: intervals are **too narrow** or
**cautious**, probabilities **too sure** or **cautious**. {flagged} Rows marked *outside* are not
held to that: their tables do not come from the model, or the call asks for less.

Where a table has a column for every setting, its head says how many rows the model was fitted to;
with *missing* 20 % of the entries are missing, in those rows and in new ones, and with *heavy
tails* rows are those of Student's t with 5 degrees of freedom, which only `RobustPPCA` is made for
(italics: *outside* the model). *Dask* and *stream* tables came in chunks of 100 rows. Linear models
have 10 columns and q = 2, the copula 8 of three kinds, mixtures two groups in 8 columns.

A model that does not fit your data has intervals that do not hold, whatever this page says.
The method `calibration` of every model that fills entries and the {{doc}}`report <guide/report>`
check those of missing entries on your own table ({{doc}}`guide/missing-values`), and
{{func}}`dualpca.conformal` makes intervals that hold for any law of the rows.

`python -m benchmarks.coverage` makes this page: {rows} statements{left}, {replications:,} fits,
about {minutes:.0f} minutes of one core, {seeds}.
"""


def flag(row: Row, found: Result) -> str:
    """Return what is wrong with a row, or nothing: too far from nominal, and not by chance."""
    off = found.measured - found.nominal
    if abs(off) <= 3 * found.error:
        return ""
    if off < -SHORT:
        return "too sure" if row.nominal is None else "too narrow"
    return "cautious" if off > WIDE and not row.at_least else ""


def verdict(row: Row, found: Result) -> str:
    """Return what the numbers say of a row, and why."""
    word = flag(row, found)
    if row.outside:
        words = f"*outside*: {row.outside}"
        return f"{words}; {word}" if word else words
    word = f"**{word}**" if word else ""
    return ": ".join(part for part in (word, row.note) if part)


def flagged_words(count: int, of: int) -> str:
    """Return how many rows are flagged.

    Examples
    --------
    >>> flagged_words(0, 90), flagged_words(1, 90)
    ('None of 90 rows does.', '1 of 90 rows does.')
    """
    return f"{count or 'None'} of {of} rows {'do' if count > 1 else 'does'}."


def one_by_one(rows: list[Row], results: dict[str, Result]) -> list[str]:
    """Return a table with a line for every row."""
    lines = [
        "| what | setting | nominal, % | measured, % | replications | |",
        "|---|---|--:|--:|--:|---|",
    ]
    for row in rows:
        found = results[row.key]
        measured = f"{100 * found.measured:.1f} ± {100 * found.error:.1f}"
        cells = (row.what, row.setting, f"{100 * found.nominal:.3g}", measured)
        lines.append(
            "| " + " | ".join((*cells, str(found.replications), verdict(row, found))) + " |"
        )
    return lines


def by_setting(rows: list[Row], results: dict[str, Result]) -> list[str]:
    """Return a table with a line for every statement and a column for every setting.

    What is flagged is bold, what is outside the model in italics; below stand what is flagged, and
    why.
    """
    settings = list(dict.fromkeys(row.setting for row in rows))
    lines = [
        "| " + " | ".join(["what", "nominal, %", *settings]) + " |",
        "|---|--:|" + "--:|" * len(settings),
    ]
    told: list[str] = []
    for what in dict.fromkeys(row.what for row in rows):
        mine = {row.setting: row for row in rows if row.what == what}
        nominal = next(iter(mine.values())).nominal
        cells = [what, "" if nominal is None else f"{100 * nominal:.3g}"]
        for setting in settings:
            row = mine.get(setting)
            cells.append("" if row is None else cell(row, results[row.key]))
            if row is not None and not row.outside and flag(row, results[row.key]):
                words = verdict(row, results[row.key])
                told.append(f"- {what}, {setting}: {words}")
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, "", *told] if told else lines


def cell(row: Row, found: Result) -> str:
    """Return what was measured in one setting, and of how much if nominal differs by setting."""
    text = f"{100 * found.measured:.1f} ± {100 * found.error:.1f}"
    if row.nominal is None:
        text += f" of {100 * found.nominal:.1f}"
    mark = "*" if row.outside else "**" if flag(row, found) else ""
    return f"{mark}{text}{mark}"


def render(stored: dict[str, Any]) -> str:
    """Return the page of stored results."""
    results = {key: Result(**found) for key, found in stored["rows"].items() if key in ROWS}
    rows = [row for row in ROWS.values() if row.key in results]
    used = [results[row.key] for row in rows]
    bound = [row for row in rows if not row.outside]
    flagged = sum(bool(flag(row, results[row.key])) for row in bound)
    seeds = sorted({found.seed for found in used})
    left = len(ROWS) - len(rows)
    parts = [
        HEAD.format(
            short=100 * SHORT,
            rows=len(rows),
            left=f" ({left} more are not measured yet)" if left else "",
            replications=sum(r.replications for r in used),
            minutes=max(sum(r.seconds for r in used) / 60, 1),
            flagged=flagged_words(flagged, len(bound)),
            seeds=f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}",
        )
    ]
    for name, group in GROUPS.items():
        mine = [row for row in rows if row.group == name]
        if not mine:
            continue
        parts.append(f"## {group.title}\n\n{group.text}\n")
        lines = by_setting(mine, results) if group.by_setting else one_by_one(mine, results)
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help=f"{QUICK} replications: does everything run?")
    add("--minutes", type=float, default=math.inf, help="begin nothing after so many minutes")
    add("--jobs", type=int, default=1, help="processes (0: one for every core)")
    add("--only", nargs="+", metavar="START", help="rows whose key starts with one of these")
    add("--match", metavar="PATTERN", help="rows whose key matches a regular expression")
    add("--seed", type=int, help="by default a new one, or that of the results that are continued")
    add("--continue", dest="more", action="store_true", help="only rows without results")
    add("--merge", nargs="+", type=Path, metavar="FILE", help="take the results of other files")
    add("--json", type=Path, default=RESULTS, help="where results are stored")
    add("--out", type=Path, default=PAGE, help="the page")
    add("--render", action="store_true", help="write the page from stored results")
    return parser.parse_args()


def read(path: Path) -> dict[str, Any]:
    """Return stored results of rows that still are there; none where there is no file."""
    stored = json.loads(path.read_text()) if path.exists() else {"seed": None, "rows": {}}
    stored["rows"] = {key: found for key, found in stored["rows"].items() if key in ROWS}
    return stored


def write(path: Path, stored: dict[str, Any]) -> None:
    """Store results, in the order of the page, so that the file is whole at any moment."""
    rows = {key: stored["rows"][key] for key in ROWS if key in stored["rows"]}
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps({**stored, "rows": rows}, indent=1) + "\n")
    os.replace(beside, path)


def chosen(args: argparse.Namespace, stored: dict[str, Any]) -> list[Row]:
    """Return the rows to measure, those that took longest first, and say what is left out."""
    rows = list(ROWS.values())
    if args.only:
        rows = [row for row in rows if row.key.startswith(tuple(args.only))]
    if args.match:
        rows = [row for row in rows if re.search(args.match, row.key)]
    if args.more:
        rows = [row for row in rows if row.key not in stored["rows"]]
    for row in rows:
        absent = [name for name in row.needs if find_spec(name) is None]
        if absent:
            print(f"{row.key:45} skipped: {' and '.join(absent)} not installed", flush=True)
    rows = [row for row in rows if all(find_spec(name) for name in row.needs)]
    took = {key: found["seconds"] for key, found in read(RESULTS)["rows"].items()}
    return sorted(rows, key=lambda row: -took.get(row.key, math.inf))


def run(args: argparse.Namespace, stored: dict[str, Any]) -> int:
    """Measure rows and store them one by one; return how many failed."""
    until, failed = time.monotonic() + 60 * args.minutes, 0
    times, jobs = QUICK if args.quick else None, args.jobs or os.cpu_count() or 1
    rows = chosen(args, stored)
    for row, found in measured(rows, stored["seed"], jobs=jobs, times=times, until=until):
        if isinstance(found, str):
            failed += 1
            print(f"{row.key:45} failed\n{found}", flush=True)
            continue
        text = f"{found.nominal:.3f} {found.measured:.3f} ± {found.error:.3f}"
        word = "" if row.outside else flag(row, found)
        print(f"{row.key:45} {text} {found.seconds:7.1f} s {word}".rstrip(), flush=True)
        if not args.quick:  # three replications say nothing: stored results stay
            stored["rows"][row.key] = asdict(found)
            write(args.json, stored)
    return failed


def main() -> int:
    args = arguments()
    stored, failed = read(args.json), 0
    for path in args.merge or ():
        stored["rows"] |= read(path)["rows"]
    if not args.render and not args.merge:
        again = args.more or args.only or args.match
        if args.seed is not None or stored["seed"] is None or not again:
            stored["seed"] = secrets.randbelow(10**6) if args.seed is None else args.seed
        if not again:
            stored["rows"] = {}
        print(f"seed {stored['seed']}", flush=True)
        failed = run(args, stored)
    if args.quick:
        return int(failed > 0)
    write(args.json, stored)
    left = [key for key in ROWS if key not in stored["rows"]]
    if left:
        print(f"{len(left)} of {len(ROWS)} rows have no results yet: --continue measures them")
    if args.render or not left:
        args.out.write_text(render(stored))
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
