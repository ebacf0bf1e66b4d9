"""Which tests run a line: measured once by coverage.py, one context per test."""

import json
import sqlite3
import time
from collections import Counter, defaultdict
from pathlib import Path

LEFT_OUT = ("tests/app/test_explorer_browser.py", "tests/app/test_live_page.py")
"""What a browser does runs in other processes, where nothing is measured."""

SLOW = "+slow"
"""How the name of a measurement of slow tests ends."""

LAST = ("tests/app", "tests/docs", "tests/test_benchmarks.py", "tests/data/test_dask")
"""Tests of the application, of pages and of a cluster: long, and rarely where a formula is tested.

They are tried after all others, with the seconds that those leave.
"""


def test_files(root):
    """Return what is measured: every test file, and the doctests of every room."""
    tests = [str(p.relative_to(root)) for p in sorted((root / "tests").rglob("test_*.py"))]
    rooms = [str(p.relative_to(root)) for p in sorted((root / "src" / "dualpca").iterdir())]
    kept = [t for t in tests if not t.startswith(LEFT_OUT)]
    # the longest first, by a guess; a file once
    kept.sort(key=lambda name: -(root / name).stat().st_size)
    return kept + [
        r for r in rooms if (root / r).is_dir() and Path(r).name not in {"app", "__pycache__"}
    ]


def stem(name, slow=False):
    """Return the name under which a test file's measurements lie."""
    return name.replace("/", "+").removesuffix(".py") + SLOW * slow


class Recorder:
    """A pytest plugin: which lines every test runs, and how long it takes."""

    def __init__(self, folder, name, slow=False):
        import coverage  # only measuring needs it

        self.data, self.times, self.failed = (
            folder / f"{stem(name, slow)}.sqlite",
            defaultdict(float),
            {},
        )
        self.data.unlink(missing_ok=True)
        source = [str(Path.cwd() / "src" / "dualpca")]
        self.coverage = coverage.Coverage(str(self.data), source=source, config_file=False)
        self.coverage.start()

    def pytest_runtest_logstart(self, nodeid):
        self.begun = time.perf_counter()
        self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report):
        self.times[report.nodeid] += report.duration
        if report.outcome != "passed":
            self.failed[report.nodeid] = report.outcome

    def pytest_collectreport(self, report):
        if report.outcome == "skipped":
            self.failed[report.nodeid] = "skipped"

    def pytest_runtest_logfinish(self, nodeid):
        self.coverage.switch_context("")

    def done(self):
        """Write what was seen; the times say that the other file is whole."""
        self.coverage.stop()
        self.coverage.save()
        passed = {k: round(v, 4) for k, v in self.times.items() if k not in self.failed}
        skipped = [k for k, outcome in self.failed.items() if outcome == "skipped"]
        told = {"passed": passed, "skipped": skipped}
        self.data.with_suffix(".json").write_text(json.dumps(told))


class Coverage:
    """Line to tests, from the measurements in a folder."""

    def __init__(self, folder):
        self.times, self.bits, self.skipped, self.slow = {}, defaultdict(list), Counter(), set()
        for times in sorted(folder.glob("*.json")):
            told = json.loads(times.read_text())
            passed = told.get("passed", told)
            self.times |= passed
            self.slow |= set(passed) if times.stem.endswith(SLOW) else set()
            self.skipped[times.stem] = len(told.get("skipped", ()))
            if not passed:
                continue
            with sqlite3.connect(times.with_suffix(".sqlite")) as data:
                for path, test, bits in data.execute(
                    "select file.path, context.context, line_bits.numbits from line_bits "
                    "join file on file.id = line_bits.file_id "
                    "join context on context.id = line_bits.context_id"
                ):
                    if test in passed:
                        self.bits[path.partition("src/dualpca/")[2]].append((test, bits))

    def running(self, path, lines):
        """Return the tests that run one of these lines of a file."""
        return {
            test
            for test, bits in self.bits[path]
            if any(line // 8 < len(bits) and bits[line // 8] >> line % 8 & 1 for line in lines)
        }

    def ranked(self, fault):
        """Return the tests for a fault, in the order in which they are worth trying.

        Of every test function first the case that takes least, the fastest first; then the second
        cases; those in `LAST` after all others, and those marked slow after all.
        """
        tests = self.running(fault.path, fault.lines)
        if not tests and fault.function != (0, 0):  # a default, or what is done once and kept
            tests = self.running(fault.path, range(fault.function[0], fault.function[1] + 1))
        if not tests:  # at import, or where another interpreter runs the lines
            tests = {test for test, _ in self.bits[fault.path]}
        cases = defaultdict(list)
        for test in sorted(tests, key=lambda test: (self.times[test], test)):
            cases[test.partition("[")[0]].append(test)
        ranked = sorted(
            (test in self.slow, test.startswith(LAST), rank, self.times[test], test)
            for group in cases.values()
            for rank, test in enumerate(group)
        )
        return [test for *_, test in ranked]

    def rounds(self, fault, seconds, patience):
        """Return (nearest, the others, slow ones) of the tests for a fault.

        The nearest take `seconds` together, the others and the slow ones `patience` each: they
        are tried where the nearest have not noticed.
        """
        ranked = self.ranked(fault)
        fast = [test for test in ranked if test not in self.slow]
        nearest = self.within(fast, seconds)
        near = set(nearest)
        others = self.within([test for test in fast if test not in near], patience)
        return nearest, others, self.within([t for t in ranked if t in self.slow], patience)

    def within(self, tests, seconds):
        """Return the first tests, without those for which the time that is left is too short."""
        chosen, total = [], 0.0
        for test in tests:
            cost = self.times[test] + 0.01
            if total + cost <= seconds or not chosen:
                chosen.append(test)
                total += cost
        return chosen

    def limit(self, tests):
        """Return the seconds after which tests have taken too long."""
        return 30 + 4 * sum(self.times[test] for test in tests)

    def own_skipped(self, path):
        """Return how many tests in the test file of a module did not run where it was measured."""
        room, _, name = path.rpartition("/")
        own = stem(f"tests/{room}/test_{name.removeprefix('_')}")
        return sum(n for file, n in self.skipped.items() if file.startswith(own))

    def stages(self, tests, room):
        """Cut tests in two: those in the few files that hold most of them, then the others.

        Reading a test file takes longer than most tests.
        """

        def points(test):
            return 3 if f"/{room}/" in test else 1

        files = Counter()
        for test in tests[:60]:
            files[test.partition("::")[0]] += points(test)
        first = {name for name, _ in files.most_common(3)}
        now = [test for test in tests if test.partition("::")[0] in first]
        later = [test for test in tests if test.partition("::")[0] not in first]
        return [stage for stage in (now, later) if stage]
