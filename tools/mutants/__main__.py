"""The commands: ``coverage``, ``run``, ``draw``."""

import argparse
import json
import os
import re
import secrets
import sys
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

from tools.mutants import drawing, nearest, running

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "mutants"
MAY_BE_SLOW = re.compile("slow|grid")
EQUIVALENT = Path(__file__).with_name("equivalent.txt")


def equivalent():
    """Return the keys of faults that change nothing, each listed with its reason."""
    lines = EQUIVALENT.read_text().splitlines()
    return {line.strip() for line in lines if line.strip() and not line.startswith("#")}


def draw(options):
    """Yield faults at random, with the same seed the same."""
    package = ROOT / "src" / "dualpca"
    installed = lambda name: find_spec(name) is not None  # noqa: E731
    for fault in drawing.drawn(package, options.seed, installed, equivalent()):
        if fault.path.startswith(tuple(options.only)):
            yield fault


def again(path):
    """Yield the faults that survived an earlier run, where the lines are still as they were."""
    files = {}
    for one in json.loads(Path(path).read_text())["faults"]:
        if one["end"] != "survived" or one["key"] in equivalent():
            continue
        if one["path"] not in files:
            files[one["path"]] = drawing.statements(ROOT / "src" / "dualpca", one["path"])
        near = (
            change
            for group in files[one["path"]]
            for change in group
            if change.kind == one["kind"] and abs(change.node.lineno - one["line"]) < 60
        )
        faults = (change.made() for change in near)
        fault = next((f for f in faults if f is not None and f.key == one["key"]), None)
        if fault is not None:
            yield fault


def measure(options):
    """Measure the test files that have no measurement, or have changed since."""
    folder = FOLDER / "coverage"
    folder.mkdir(parents=True, exist_ok=True)

    def tasks():
        files = [name for name in nearest.test_files(ROOT) if name.startswith(tuple(options.only))]
        for slow, name in [(s, n) for s in {False, options.slow} for n in files]:
            done, place = folder / f"{nearest.stem(name, slow)}.json", ROOT / name
            if slow and place.is_file() and not MAY_BE_SLOW.search(place.read_text()):
                continue
            if not done.exists() or (
                place.is_file() and done.stat().st_mtime < place.stat().st_mtime
            ):
                yield {
                    **{"stages": [[name]], "limits": [options.budget], "slow": slow},
                    **{"measure": name, "folder": str(folder)},
                }

    def finished(task, result):
        count = folder / f"{nearest.stem(task['measure'], task['slow'])}.json"
        told = json.loads(count.read_text()) if count.exists() else {"passed": {}, "skipped": []}
        tests, skipped = len(told["passed"]), len(told["skipped"])
        also = f", {skipped} skipped" if skipped else ""
        print(f"{result['seconds']:6.1f} s  {tests} tests{also}  {task['measure']}", flush=True)
        if not tests and not task["slow"]:
            print(result["log"])

    with running.Copies(ROOT, options.jobs) as copies:
        copies.each(tasks(), finished, time.monotonic() + options.budget)


def run(options):
    """Run the tests nearest to faults drawn at random and report the faults that none noticed."""
    until = time.monotonic() + options.budget
    coverage = nearest.Coverage(FOLDER / "coverage")
    if not coverage.times:
        sys.exit("no coverage was measured yet: run `python -m tools.mutants coverage` first")
    kept, wanted, redrawn = [], options.count, 0
    print(f"seed {options.seed}: {wanted} faults, {options.jobs} processes", flush=True)

    def tasks():
        faults = again(options.again) if options.again else draw(options)
        number = 0
        while number < wanted + redrawn:
            fault = next(faults, None)
            if fault is None:
                return
            number += 1
            tests, others, slow = coverage.rounds(fault, options.seconds, options.patience)
            near = coverage.stages(tests, fault.path.partition("/")[0])
            stages = [*near, others, slow if options.slow else []]
            yield {
                **{"path": fault.path, "line": fault.line, "kind": fault.kind, "diff": fault.diff},
                **{"key": fault.key, "source": fault.source, "number": 10**9 + number},
                **{"stages": stages, "limits": [coverage.limit(tests) for tests in stages]},
                **{"tests": sum(map(len, stages)), "stage_names": names(near)},
            }

    def finished(task, result):
        nonlocal redrawn
        if result["end"] == "survived" and not task["tests"] and coverage.own_skipped(task["path"]):
            result["end"] = "not tested"
        redrawn += result["end"] == "invalid"
        if noticed(result):
            result["by"] = task["stage_names"][result["stage"]]
        told = {k: task[k] for k in ("path", "line", "kind", "diff", "key", "tests")}
        kept.append(told | {k: v for k, v in result.items() if k != "log"})
        write(kept, options)  # whatever happens next, this is known
        place = f"{task['path']}:{task['line']}"
        print(f"{result['end']:10} {result['seconds']:6.1f} s {place} {task['kind']}", flush=True)

    with running.Copies(ROOT, options.jobs) as copies:
        copies.each(tasks(), finished, until)
    report(kept, options)


def names(near):
    """Return what the rounds of tests of a fault are called."""
    return [*["nearest"] * len(near), "others", "slow"]


def noticed(one):
    """Return True for a fault that a test noticed."""
    return one["end"] in {"killed", "timeout"}


def counts(kept):
    """Return how many faults ended how, and of how many the tests can be judged."""
    ends = Counter(one["end"] for one in kept)
    judged = sum(ends.values()) - ends["invalid"] - ends["not tested"]
    return ends, judged, ends["killed"] + ends["timeout"]


def write(kept, options):
    """Write what is known so far as JSON: a file that is whole at any time."""
    _, judged, killed = counts(kept)
    told = {"seed": options.seed, "valid": judged, "killed": killed, "faults": kept}
    path = Path(options.out) / f"mutants-{options.seed}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    begun = path.with_suffix(".part")
    begun.write_text(json.dumps(told, indent=1, ensure_ascii=False))
    begun.replace(path)


def report(kept, options):
    """Print the faults that no test noticed, and the count."""
    ends, judged, killed = counts(kept)
    by = Counter(one["by"] for one in kept if noticed(one))
    for one in sorted(kept, key=lambda one: (one["end"], one["path"], one["line"])):
        if one["end"] in {"survived", "not tested"}:
            place = f"src/dualpca/{one['path']}:{one['line']}"
            print(f"\n{place}: {one['end']}, {one['kind']}, {one['tests']} tests\n{one['diff']}")
    share = 100 * killed / max(judged, 1)
    print(
        f"\nseed {options.seed}: {killed} of {judged} faults noticed ({share:.1f} %), of them "
        f"{by['slow']} by slow tests alone and {ends['timeout']} by time; "
        f"{ends['survived']} not; {ends['not tested']} not tested here; "
        f"{ends['invalid']} not importable"
    )
    missing = options.count - judged - ends["not tested"]
    if missing > 0 and not options.again:
        print(f"{missing} of {options.count} were not reached: give a larger --budget")


def show(options):
    """Print faults as they would be drawn."""
    print(f"seed {options.seed}")
    for _, fault in zip(range(options.count), draw(options), strict=False):
        print(f"src/dualpca/{fault.path}:{fault.line}: {fault.kind}\n{fault.diff}")


def main():
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("command", choices=["coverage", "run", "draw", "worker"])
    parser.add_argument(
        "--seed",
        default="",
        help="same seed, same faults; by default a fresh one, which is printed",
    )
    parser.add_argument("--count", type=int, default=240, help="number of faults")
    parser.add_argument(
        "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes side by side"
    )
    parser.add_argument("--budget", type=float, default=3600.0, help="seconds for everything")
    parser.add_argument("--seconds", type=float, default=40.0, help="nearest tests of one fault")
    parser.add_argument(
        "--patience", type=float, default=300.0, help="the other tests of a fault not noticed"
    )
    parser.add_argument("--slow", action="store_true", help="slow tests as well, after all others")
    parser.add_argument(
        "--only", nargs="*", default=[""], help="how paths begin: models, tests/data"
    )
    parser.add_argument(
        "--again", help="an earlier run's JSON: its survivors instead of new faults"
    )
    parser.add_argument("--out", default=str(FOLDER), help="folder for the JSON")
    options = parser.parse_args()
    options.seed = int(options.seed or secrets.randbelow(10**6))
    commands = {"coverage": measure, "run": run, "draw": show, "worker": lambda _: running.worker()}
    commands[options.command](options)


if __name__ == "__main__":
    main()
