"""Run one section in a process of its own: the threads are set before NumPy is imported."""

from __future__ import annotations

import json
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from benchmarks.environment import describe, use_threads
from benchmarks.results import Part, as_json, keep
from benchmarks.run import OutOfTime, Row, Run
from benchmarks.sections import SECTIONS, Section

Rows = Callable[[Run, str], Iterator[Row]]


def run_part(section: Section, part: str, run: Run, rows: Rows) -> tuple[Part, bool]:
    """Return what was found, all of it or what there was time for, and whether nothing failed."""
    found = Part({})
    begun, before, well = time.perf_counter(), len(run.left_out), True
    try:
        with run.in_time():
            for row in rows(run, part):
                found.rows.append(row)
                print(f"  {as_json(row)}", flush=True)
    except OutOfTime:
        run.left_out.append(f"the rest of {part}")
    except Exception:
        traceback.print_exc()
        well = False
    seconds = round(time.perf_counter() - begun, 1)
    found.about = {"command": f"python -m benchmarks {section.name}"}
    found.about |= describe(run.threads, section.peers) | {"seconds": seconds}
    if left_out := run.left_out[before:]:
        found.about["left_out"] = left_out
    return found, well


def main() -> int:
    ask = json.loads(sys.argv[1])
    section = SECTIONS[ask["section"]]
    use_threads(section.threads)
    warnings.simplefilter("ignore")
    run = Run(quick=ask["quick"], budget=ask["budget"] or float("inf"), threads=section.threads)
    module = import_module(f"benchmarks.{section.module or section.name}")
    failed = []
    for part in ask["parts"]:
        if not run.room(part):
            print(f"{section.name}:{part} is left out: no time for it.", flush=True)
            continue
        print(f"{section.name}:{part}", flush=True)
        rows = module.under_load if section.name == "load" else module.rows
        found, well = run_part(section, part, run, rows)
        failed += [] if well else [part]
        if found.rows and well:
            keep(Path(ask["out"]), section.name, {part: found})
        elif well:
            print(f"{section.name}:{part} is left out: nothing was measured in time.", flush=True)
    if failed:
        print(f"failed, and not stored: {', '.join(failed)}", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
