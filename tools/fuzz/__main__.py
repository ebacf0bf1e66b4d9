"""``python -m tools.fuzz --seconds 60``: attack everything that reads files, print what fails."""

import argparse
import json
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

from tools.fuzz.hunting import KEPT, Failure, Hunt, Origin, worth_keeping
from tools.fuzz.targets import TARGETS

FOLDER = Path("build/fuzz")
LATE = 120.0
"""Seconds after which a process that should have ended hangs."""


def told(failure, path):
    """Return what failed, with the line that repeats it."""
    case = json.dumps([failure.target, *failure.origin])
    return "\n".join(
        [
            f"{failure.target}, from {failure.origin.name!r}: {failure.what}",
            f"  input: {path}",
            f"  python -m tools.fuzz --input {failure.target} {failure.origin.name!r} {path}",
            f"  made as {case}",
        ]
    )


def stored(failure, suffix, number):
    """Write the input of a failure; return its path."""
    path = FOLDER / f"{failure.target}-{number}{suffix}"
    path.write_bytes(failure.data)
    return path


def attacked(name, seed, seconds, keep):
    """Attack a target in this process; print failures, one for each place, and counts."""
    folder = FOLDER / "now" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    hunt, places = Hunt(name, TARGETS[name], folder, seed), set()
    for failure in hunt.run(seconds):
        if failure is not None and failure.place not in places:
            places.add(failure.place)
            print(told(failure, stored(failure, hunt.target.suffix, len(places))), flush=True)
    counts = ", ".join(f"{n} {how}" for how, n in sorted(hunt.counts.items()))
    print(
        f"{name:12} {hunt.counts.total():6} inputs reach {len(hunt.lines.seen)} lines: {counts}; "
        f"{len(places)} findings",
        flush=True,
    )
    if keep:
        found = json.loads(KEPT.read_text()) if KEPT.exists() else {}
        text = json.dumps(found | {name: worth_keeping(hunt)}, separators=(",", ":"))
        KEPT.write_text(text.replace("]],", "]],\n") + "\n")
    return len(places)


def apart(name, seed, seconds, keep):
    """Attack a target in a process of its own; return True if something failed."""
    command = [sys.executable, "-m", "tools.fuzz", "--only", name, "--inside"]
    command += ["--seed", str(seed), "--seconds", str(seconds), *(["--keep"] if keep else [])]
    try:
        status = subprocess.run(command, timeout=seconds + LATE).returncode
    except subprocess.TimeoutExpired:
        status = "a hang"
    if status in (0, 1):
        return status == 1
    now = FOLDER / "now" / name
    target, origin, seeds = json.loads((now / "origin").read_text())
    suffix = TARGETS[name].suffix
    data = (now / f"now{suffix}").read_bytes() if (now / f"now{suffix}").exists() else b""
    failure = Failure(target, Origin(origin, tuple(seeds)), f"the process ended: {status}", data)
    print(told(failure, stored(failure, suffix, 0)), flush=True)
    return True


def main():
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for all targets together")
    parser.add_argument("--seed", type=int, default=None, help="a fresh one unless given")
    parser.add_argument("--only", nargs="*", default=[*TARGETS], choices=[*TARGETS])
    parser.add_argument("--keep", action="store_true", help="write the best inputs to the corpus")
    parser.add_argument("--input", nargs=3, metavar=("TARGET", "NAME", "FILE"), help="try one file")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    if options.input:
        name, origin, path = options.input
        hunt = Hunt(name, TARGETS[name], FOLDER, 0)
        failure = hunt.tried(Origin(origin), Path(path).read_bytes())
        print(failure.what if failure else f"nothing: {', '.join(hunt.counts)}")
        sys.exit(failure is not None)
    seed = secrets.randbits(32) if options.seed is None else options.seed
    if options.inside:
        sys.exit(attacked(options.only[0], seed, options.seconds, options.keep) > 0)
    print(f"seed {seed}", flush=True)
    share = options.seconds / len(options.only)
    failed = [name for name in options.only if apart(name, seed, share, options.keep)]
    print(f"seed {seed}: " + (f"findings in {', '.join(failed)}" if failed else "no findings"))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
