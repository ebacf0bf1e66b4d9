"""``python -m tools.shapes --seconds 3600``: draw cases for a time, print the failures."""

import argparse
import secrets
import sys
import time
from collections import Counter

import numpy as np

from tools.shapes import cases, switches
from tools.shapes.judging import SUBJECTS, judged


def shrunk(case, seconds=60.0):
    """Return the simplest case found that still fails, and how."""
    subject, until = SUBJECTS[case.subject], time.monotonic() + seconds
    failures, simpler = judged(case, subject), True
    while simpler and time.monotonic() < until:
        simpler = False
        for smaller in cases.smaller(case, subject):
            found = judged(smaller, subject)
            if found:
                case, failures, simpler = smaller, found, True
                break
            if time.monotonic() > until:
                break
    return case, failures


def told(case, failures):
    """Return what failed, with the line that repeats it."""
    lines = [f"{case.subject}: {case.near}"] if case.near else [case.subject]
    lines += [f"  {one.what}: error {one.error:.3g}, allowed {one.allowed:.3g}" for one in failures]
    return "\n".join([*lines, f"  {case.line}"])


def run(seed, seconds, names, limits, found=None, clock=time.monotonic):
    """Draw and judge cases for a time; yield each with what failed."""
    found = switches.collected() if found is None else found
    rng, until = np.random.default_rng(seed), clock() + seconds
    while True:
        for name in names:
            case = cases.drawn(rng, name, SUBJECTS[name], found, limits)
            yield case, judged(case, SUBJECTS[name])
            if clock() > until:
                return


def main():
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.shapes", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=None, help="a fresh one unless given")
    parser.add_argument("--only", nargs="*", default=None, help="subjects, or how they begin")
    parser.add_argument("--quick", action="store_true", help="the small shapes of the tests")
    parser.add_argument("--case", help="a case as JSON: judged once")
    parser.add_argument("--switches", action="store_true", help="list the switches")
    options = parser.parse_args()
    if options.switches:
        for one in switches.collected():
            print(f"{one.value:15g} {one.name}")
        return
    if options.case:
        case = cases.Case.read(options.case)
        failures = judged(case, SUBJECTS[case.subject])
        print(told(case, failures) if failures else "agrees")
        sys.exit(bool(failures))
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    names = [n for n in SUBJECTS if options.only is None or n.startswith(tuple(options.only))]
    limits, found = cases.QUICK if options.quick else cases.LONG, switches.collected()
    count, failed, reached = Counter(), Counter(), set()
    for case, failures in run(seed, options.seconds, names, limits, found):
        count[case.subject] += 1
        if case.near:
            reached.add(case.near.partition(" as ")[0])
        if failures:
            failed[case.subject] += 1
            print(told(*shrunk(case)), flush=True)
    for name in names:
        print(f"{name:24} {count[name]:6} cases, {failed[name]} fail")
    total = len({one.name for one in found})
    print(
        f"seed {seed}: {count.total()} cases, {failed.total()} fail; "
        f"beside {len(reached)} of {total} switches"
    )
    sys.exit(failed.total() > 0)


if __name__ == "__main__":
    main()
