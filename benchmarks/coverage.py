"""How often intervals and probabilities hold: ``python -m benchmarks.coverage``.

Every row of the page is a simulation from a model that is known (`coverage_rows`). The same seed
gives the same numbers. Results go to ``results/coverage.json``, and from there to
``docs/coverage.md``; ``--render`` writes the page from stored results alone.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.coverage_rows import GROUPS, ROWS, Row

RESULTS = Path(__file__).parent / "results" / "coverage.json"
PAGE = Path(__file__).parents[1] / "docs" / "coverage.md"

QUICK = 3
"""Replications with ``--quick``."""

SHORT, WIDE = 0.02, 0.02
"""What is called too narrow or too wide: this far from nominal, and by three standard errors."""


@dataclass(frozen=True)
class Result:
    """What was measured of one row."""

    nominal: float
    measured: float
    error: float  # Monte Carlo standard error of `measured`
    replications: int
    count: int  # intervals or probabilities judged
    seconds: float  # of processor time


def replicate(row: Row, k: int, seed: int) -> Any:
    """Return the count of replication k: the same for every run with the seed."""
    rng = np.random.default_rng([seed, zlib.crc32(row.key.encode()), k])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return row.replicate(rng)


def measure(row: Row, replications: int, seed: int = 0, budget: float = math.inf) -> Result:
    """Replicate a row, or as often as the budget (seconds of processor time) allows.

    The share of all that was right; its standard error is that of a ratio over independent
    replications, so that what is judged together (rows of one fit) counts as such.
    """
    start, counts = time.process_time(), []
    for k in range(replications):
        counts.append(replicate(row, k, seed))
        if time.process_time() - start > budget:
            break
    right, of, said = np.array(counts, dtype=float).T
    nominal = row.nominal if row.nominal is not None else float(said.sum() / max(of.sum(), 1))
    measured = float(right.sum() / max(of.sum(), 1))
    if row.nominal is None:  # the error of the difference from what the model says
        right = right - said + nominal * of
    spread, n = float(np.sum((right - measured * of) ** 2)), len(counts)
    error = math.sqrt(spread * n / max(n - 1, 1)) / max(float(of.sum()), 1.0)
    seconds = time.process_time() - start
    return Result(nominal, measured, error, n, int(of.sum()), round(seconds, 2))


# --- The page ------------------------------------------------------------------------------------

HEAD = """# Coverage: do the intervals hold?

What the library says about its own uncertainty, checked by simulation: tables are drawn from a
known model and fitted, and the truth is compared with what the library says. *Nominal* is the share
that should hold and *measured* the share that did, ± its Monte Carlo standard error over the
replications (independent tables). The last column says where the two differ by more than
{short:.0f} points and by more than three standard errors: intervals are **too narrow** or cautious,
probabilities **too sure** or cautious.

A model that does not fit your data has intervals that do not hold, whatever this page says.
{{func}}`plots.calibration <dualpca.plots.calibration>` and the {{doc}}`report <guide/report>` check
those of missing entries on your own table.

`python -m benchmarks.coverage` makes this page: {rows} statements, {replications:,} fits, about
{minutes:.0f} minutes on one core, seed {seed}.
"""


def verdict(row: Row, found: Result) -> str:
    """Return what the numbers say of a row, and why."""
    off = found.measured - found.nominal
    clear = abs(off) > 3 * found.error
    word = ""
    if clear and off < -SHORT:
        word = "**too sure**" if row.nominal is None else "**too narrow**"
    elif clear and off > WIDE:
        word = "cautious"
    return ": ".join(part for part in (word, row.note) if part)


def render(stored: dict[str, Any]) -> str:
    """Return the page of stored results."""
    results = {key: Result(**values) for key, values in stored["rows"].items()}
    missing = [key for key in ROWS if key not in results]
    if missing:
        raise ValueError(f"no results of {missing}: run python -m benchmarks.coverage")
    used = [results[key] for key in ROWS]
    parts = [
        HEAD.format(
            short=100 * SHORT,
            rows=len(ROWS),
            replications=sum(r.replications for r in used),
            minutes=max(sum(r.seconds for r in used) / 60, 1),
            seed=stored["seed"],
        )
    ]
    for name, group in GROUPS.items():
        parts.append(f"## {group.title}\n\n{group.text}\n")
        lines = [
            "| what | setting | nominal, % | measured, % | replications | |",
            "|---|---|--:|--:|--:|---|",
        ]
        for row in ROWS.values():
            if row.group == name:
                found = results[row.key]
                measured = f"{100 * found.measured:.1f} ± {100 * found.error:.1f}"
                cells = (row.what, row.setting, f"{100 * found.nominal:.3g}", measured)
                lines.append(
                    "| " + " | ".join((*cells, str(found.replications), verdict(row, found))) + " |"
                )
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help=f"{QUICK} replications: does everything run?")
    add("--budget", type=float, default=math.inf, help="seconds of processor time, for all rows")
    add("--only", nargs="+", metavar="START", help="rows whose key starts with one of these")
    add("--seed", type=int, default=0)
    add("--json", type=Path, default=RESULTS, help="where results are stored")
    add("--out", type=Path, default=PAGE, help="the page")
    add("--render", action="store_true", help="write the page from stored results")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    stored: dict[str, Any] = {"seed": args.seed, "rows": {}}
    if args.json.exists():
        before = json.loads(args.json.read_text())
        if before["seed"] == args.seed or args.render:
            stored = before
    chosen = [r for r in ROWS.values() if not args.only or r.key.startswith(tuple(args.only))]
    with threadpool_limits(1):
        for row in chosen if not args.render else ():
            times = QUICK if args.quick else row.replications
            found = measure(row, times, args.seed, args.budget / len(chosen))
            text = f"{found.nominal:.3f} {found.measured:.3f} ± {found.error:.3f}"
            print(f"{row.key:45} {text} {found.seconds:7.1f} s", flush=True)
            if not args.quick:  # three replications say nothing: stored results stay
                stored["rows"][row.key] = asdict(found)
                write(args.json, stored)
    if not args.quick and all(key in stored["rows"] for key in ROWS):
        args.out.write_text(render(stored))
    return 0


def write(path: Path, stored: dict[str, Any]) -> None:
    """Store results after every row, in the order of the page."""
    rows = {key: stored["rows"][key] for key in ROWS if key in stored["rows"]}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**stored, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
