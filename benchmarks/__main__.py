"""Run the benchmarks: ``python -m benchmarks --out docs/benchmarks.md``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks import table, verdict
from benchmarks.cases import Case, cases
from benchmarks.data import DEFAULT_FOLDER
from benchmarks.environment import describe, use_threads
from benchmarks.measure import Settings, measure


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="small data: does everything run?")
    add("--only", nargs="+", choices=list(cases()), metavar="NAME", help=", ".join(cases()))
    add("--repeats", type=positive, default=5, help="timed runs of each contestant (5)")
    add("--threads", type=positive, default=2, help="cores and threads (2)")
    add("--limit", type=float, default=60.0, help="seconds a contestant may take (60)")
    add("--out", type=Path, help="Markdown page whose marked part is replaced by the table")
    add("--json", type=Path, help="file for every single time")
    add("--data", type=Path, default=DEFAULT_FOLDER, help="folder that keeps the data (1.7 GB)")
    return parser.parse_args()


def positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def run(chosen: list[Case], settings: Settings) -> list[verdict.Row]:
    """Measure case after case, printing each table as soon as it is known."""
    rows = []
    for case in chosen:
        with threadpool_limits(settings.threads):  # of the parent, which makes the data
            found = verdict.rows(case, measure(case, settings))
        print(table.plain(found), end="\n\n", flush=True)
        rows += found
    return rows


def record(row: verdict.Row) -> dict[str, Any]:
    about = {"case": row.case.name, "title": row.case.title, "error_of": row.case.task.measure}
    return about | row.measurement.record() | {k: getattr(row, k) for k in ("ratio", "goal", "met")}


def main() -> int:
    args = arguments()
    if args.out:
        table.split(args.out)  # a page without markers should fail now, not after an hour
    use_threads(args.threads)
    every = cases(args.quick)
    facts = describe(args.threads, args.repeats, args.quick)
    print("\n".join(f"{name}: {fact}" for name, fact in facts.items()), end="\n\n", flush=True)
    settings = Settings(args.data, args.threads, args.repeats, args.limit)
    rows = run([every[name] for name in args.only or every], settings)
    if args.json:
        args.json.write_text(json.dumps({**facts, "rows": [record(r) for r in rows]}, indent=1))
    if args.out:
        about = "\n".join(f"- {name}: {fact}" for name, fact in facts.items())
        table.fill(args.out, f"{about}\n\n{table.markdown(rows)}")
    failed = any(row.measurement.contestant.ours and not row.measurement.times for row in rows)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
