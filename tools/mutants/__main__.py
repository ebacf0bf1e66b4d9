"""The commands: ``coverage``, ``run``, ``draw``."""

import argparse
import json
import sys
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

from tools.mutants import drawing, nearest, running

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "mutants"
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
        for name in nearest.test_files(ROOT):
            done, place = folder / f"{nearest.stem(name)}.json", ROOT / name
            if not name.startswith(tuple(options.only)):
                continue
            if not done.exists() or (
                place.is_file() and done.stat().st_mtime < place.stat().st_mtime
            ):
                yield {
                    "stages": [[name]],
                    "limit": options.budget,
                    "measure": name,
                    "folder": str(folder),
                }

    def finished(task, result):
        count = folder / f"{nearest.stem(task['measure'])}.json"
        tests = len(json.loads(count.read_text())) if count.exists() else 0
        print(f"{result['seconds']:6.1f} s  {tests} tests  {task['measure']}", flush=True)
        if not tests:
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

    def tasks():
        faults = again(options.again) if options.again else draw(options)
        number = 0
        while number < wanted + redrawn:
            fault = next(faults, None)
            if fault is None:
                return
            number += 1
            tests, seconds = coverage.nearest(fault, options.seconds)
            yield {
                **{"path": fault.path, "line": fault.line, "kind": fault.kind, "diff": fault.diff},
                **{"key": fault.key, "source": fault.source, "number": 10**9 + number},
                **{"stages": coverage.stages(tests, fault.path.partition("/")[0])},
                **{"limit": 30 + 4 * seconds, "tests": len(tests)},
            }

    def finished(task, result):
        nonlocal redrawn
        redrawn += result["end"] == "invalid"
        told = {k: task[k] for k in ("path", "line", "kind", "diff", "key", "tests")}
        kept.append(told | {k: v for k, v in result.items() if k != "log"})
        place = f"{task['path']}:{task['line']}"
        print(f"{result['end']:8} {result['seconds']:6.1f} s {place} {task['kind']}", flush=True)

    with running.Copies(ROOT, options.jobs) as copies:
        copies.each(tasks(), finished, until)
    report(kept, options)


def report(kept, options):
    """Print the faults that no test noticed, and write everything as JSON."""
    ends = Counter(one["end"] for one in kept)
    valid = sum(ends.values()) - ends["invalid"]
    killed = ends["killed"] + ends["timeout"]
    for one in sorted(kept, key=lambda one: (one["path"], one["line"])):
        if one["end"] == "survived":
            print(f"\nsrc/dualpca/{one['path']}:{one['line']}: {one['kind']}, {one['tests']} tests")
            print(one["diff"])
    share = 100 * killed / max(valid, 1)
    print(
        f"\nseed {options.seed}: {killed} of {valid} faults noticed ({share:.1f} %), of them "
        f"{ends['timeout']} by time; {ends['survived']} not; {ends['invalid']} not importable"
    )
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    told = {"seed": options.seed, "valid": valid, "killed": killed, "faults": kept}
    (out / f"mutants-{options.seed}.json").write_text(
        json.dumps(told, indent=1, ensure_ascii=False)
    )


def show(options):
    """Print faults as they would be drawn."""
    for _, fault in zip(range(options.count), draw(options), strict=False):
        print(f"src/dualpca/{fault.path}:{fault.line}: {fault.kind}\n{fault.diff}")


def main():
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("command", choices=["coverage", "run", "draw", "worker"])
    parser.add_argument("--seed", type=int, default=1, help="same seed, same faults")
    parser.add_argument("--count", type=int, default=240, help="number of faults")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--budget", type=float, default=3600.0, help="seconds for everything")
    parser.add_argument("--seconds", type=float, default=40.0, help="tests of one fault, at most")
    parser.add_argument(
        "--only", nargs="*", default=[""], help="how paths begin: models, tests/data"
    )
    parser.add_argument(
        "--again", help="an earlier run's JSON: its survivors instead of new faults"
    )
    parser.add_argument("--out", default=str(FOLDER), help="folder for the JSON")
    options = parser.parse_args()
    commands = {"coverage": measure, "run": run, "draw": show, "worker": lambda _: running.worker()}
    commands[options.command](options)


if __name__ == "__main__":
    main()
