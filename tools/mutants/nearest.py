"""Which tests run a line: measured once by coverage.py, one context per test."""

import json
import sqlite3
import time
from collections import Counter, defaultdict
from pathlib import Path

LEFT_OUT = (
    "tests/app",
    "tests/docs",
    "tests/test_benchmarks.py",
    "tests/data/test_dask",
)
"""Tests of the application and of pages: long, and not where a formula is tested."""


def test_files(root):
    """Return what is measured: every test file, and the doctests of every room."""
    tests = [str(p.relative_to(root)) for p in sorted((root / "tests").rglob("test_*.py"))]
    rooms = [str(p.relative_to(root)) for p in sorted((root / "src" / "dualpca").iterdir())]
    kept = [t for t in tests if not t.startswith(LEFT_OUT)]
    # the longest first, by a guess
    kept.sort(key=lambda name: -(root / name).stat().st_size)
    return kept + [
        r for r in rooms if (root / r).is_dir() and Path(r).name not in {"app", "__pycache__"}
    ]


def stem(name):
    """Return the name under which a test file's measurements lie."""
    return name.replace("/", "+").removesuffix(".py")


class Recorder:
    """A pytest plugin: which lines every test runs, and how long it takes."""

    def __init__(self, folder, name):
        import coverage  # only measuring needs it

        self.data, self.times, self.failed = (
            folder / f"{stem(name)}.sqlite",
            defaultdict(float),
            set(),
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
            self.failed.add(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid):
        self.coverage.switch_context("")

    def done(self):
        """Write what was seen; the times say that the other file is whole."""
        self.coverage.stop()
        self.coverage.save()
        passed = {k: round(v, 4) for k, v in self.times.items() if k not in self.failed}
        self.data.with_suffix(".json").write_text(json.dumps(passed))


class Coverage:
    """Line to tests, from the measurements in a folder."""

    def __init__(self, folder):
        self.times, self.bits = {}, defaultdict(list)
        for times in sorted(folder.glob("*.json")):
            passed = json.loads(times.read_text())
            self.times |= passed
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

    def nearest(self, fault, seconds):
        """Return the tests for a fault, in the order in which they are worth trying.

        Of every test function first the case that takes least, the fastest first; then the second
        cases; as many as take `seconds` together.
        """
        tests = self.running(fault.path, fault.lines)
        if not tests and fault.function != (0, 0):  # a default, or what is done once and kept
            tests = self.running(fault.path, range(fault.function[0], fault.function[1] + 1))
        elif not tests:  # at import
            tests = {test for test, _ in self.bits[fault.path]}
        cases = defaultdict(list)
        for test in sorted(tests, key=lambda test: (self.times[test], test)):
            cases[test.partition("[")[0]].append(test)
        ranked = sorted(
            (rank, self.times[test], test)
            for group in cases.values()
            for rank, test in enumerate(group)
        )
        chosen, total = [], 0.0
        for _, cost, test in ranked:
            if chosen and total + cost > seconds:
                continue
            chosen.append(test)
            total += cost + 0.01
        return chosen, total

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
