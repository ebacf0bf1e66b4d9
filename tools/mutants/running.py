"""Copies of the tree, a process in each that has the libraries ready, a fork for every fault."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

COPIED = (
    "src",
    "tests",
    "tools",
    "docs",
    "benchmarks",
    "examples",
    "conftest.py",
    "pyproject.toml",
    "README.md",
)
READY = (
    *("numpy", "scipy.linalg", "scipy.sparse", "scipy.stats", "scipy.optimize", "scipy.special"),
    *("sklearn.utils.estimator_checks", "sklearn.decomposition", "sklearn.mixture", "pytest"),
    *("hypothesis.strategies", "hypothesis.extra.numpy", "threadpoolctl", "array_api_compat.numpy"),
    *("array_api_strict", "pandas", "torch"),
)
"""Imported once before all forks; what is not installed is left out."""

INVALID, SKIPPED, NOTHING = 77, 78, 5
"""Exit statuses: the package cannot be imported; no test ran, all were skipped or none found."""

MEMORY = 8 * 2**30


def worker():
    """Serve: a line of JSON in, a line of JSON out, until the input ends."""
    for name in READY:
        if find_spec(name.partition(".")[0]):
            import_module(name)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(_done(json.loads(line))), flush=True)


def _done(task):
    """Do one task: a fault with the tests near to it, or the measuring of a test file."""
    begun, where = time.monotonic(), None
    killer, ended = "", []
    Path("log.txt").write_text("")
    if "source" in task:
        where = Path("src/dualpca") / task["path"]
        kept, times = where.read_bytes(), where.stat()
        where.write_bytes(task["source"].encode())
        os.utime(where, (task["number"], task["number"]))  # or an older one's bytecode would do
    try:
        for tests, limit in zip(task["stages"], task["limits"], strict=True):
            status, killer = _forked(task, tests, limit) if tests else (NOTHING, "")
            ended.append(status)
            if status not in (0, NOTHING, SKIPPED):
                break
    finally:
        if where is not None:
            where.write_bytes(kept)
            os.utime(where, ns=(times.st_atime_ns, times.st_mtime_ns))
    return {
        "end": _end(ended),
        "killer": killer,
        "stage": len(ended) - 1,
        "log": Path("log.txt").read_text(errors="replace")[-2000:],
        "seconds": round(time.monotonic() - begun, 2),
    }


def _end(statuses):
    """Return the name of how it ended, from the exit statuses of its stages."""
    if all(status in (NOTHING, SKIPPED) for status in statuses):
        return "not tested" if SKIPPED in statuses else "survived"  # no test runs the line
    names = {0: "survived", NOTHING: "survived", SKIPPED: "survived"}
    return (names | {INVALID: "invalid", None: "timeout"}).get(statuses[-1], "killed")


def _forked(task, tests, limit):
    """Return pytest's exit status in a fork, None if it took too long, and the test that failed."""
    report = Path("killer.txt")
    report.write_text("")
    child = os.fork()
    if child == 0:
        status = INVALID
        try:
            os.setsid()
            _end_with_parent()
            log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream in (1, 2):
                os.dup2(log, stream)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            status = _in_child(task, tests, report)
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.02)
    else:
        status = None
    try:  # whatever the tests started
        os.killpg(child, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    if status is None:
        os.waitpid(child, 0)
        return None, report.read_text()
    # ended by a signal (a fault in compiled code, too much memory): noticed
    return os.waitstatus_to_exitcode(status), report.read_text()


def _end_with_parent():
    """Ask Linux to end this process when its parent ends; elsewhere it ends by itself."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(1, signal.SIGKILL)


class _Chosen:
    """A pytest plugin that keeps the given tests, in their order, and notes the first to fail."""

    def __init__(self, tests, report):
        self.order = {test: k for k, test in enumerate(tests)}
        self.report, self.ran = report, 0

    def pytest_collection_modifyitems(self, items):
        items[:] = sorted(
            (i for i in items if i.nodeid in self.order), key=lambda i: self.order[i.nodeid]
        )

    def pytest_runtest_logreport(self, report):
        self.ran += not report.skipped and report.when == "call"
        if report.failed and not self.report.read_text():
            self.report.write_text(report.nodeid)

    def pytest_collectreport(self, report):
        if report.failed and not self.report.read_text():
            self.report.write_text(f"reading {report.nodeid}")


def _in_child(task, tests, report):
    import resource

    import pytest

    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    options = ["-q", "-p", "no:cacheprovider", "--basetemp=temporary"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what was made ready
    if "measure" in task:
        from tools.mutants.nearest import Recorder

        recorder = Recorder(Path(task["folder"]), task["measure"], task["slow"])
        which = ["-m", "slow" if task["slow"] else "not slow"]
        status = pytest.main([*options, *which, *tests], plugins=[recorder])
        recorder.done()
        return int(status)
    try:
        import_module("dualpca." + task["path"].removesuffix(".py").replace("/", "."))
        from dualpca import PCA  # noqa: F401
    except Exception:
        return INVALID
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    chosen = _Chosen(tests, report)
    status = int(pytest.main([*options, "-x", *files], plugins=[chosen]))
    return status if chosen.ran or status else SKIPPED


class Copies:
    """As many copies of the tree as there are jobs, each with a worker in it."""

    def __init__(self, root, jobs):
        self.root, self.jobs, self.over = root, jobs, False

    def __enter__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="mutants-"))
        self.workers = [self._made(k) for k in range(self.jobs)]
        return self

    def _made(self, k):
        """Copy the tree, without what an earlier worker left there, and start a worker in it."""
        place = self.folder / str(k)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        ignore = shutil.ignore_patterns("__pycache__", "out", "gallery", "generated", "_extra")
        for name in COPIED:
            here = self.root / name
            if here.is_dir():
                shutil.copytree(here, place / name, ignore=ignore)
            elif here.exists():
                shutil.copy2(here, place / name)
        return self._started(place)

    def _started(self, place):
        given = [Path(p).resolve() for p in os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        others = [str(p) for p in given if p not in (self.root, self.root / "src")]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(place / "src"), str(place), *others]),
            "DUALPCA_DATA": os.environ.get(
                "DUALPCA_DATA", str(self.root.parent / "shared" / "data")
            ),
            **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
            **{
                "CI": "1",
                "CUDA_VISIBLE_DEVICES": "",
                "TRITON_INTERPRET": "1",
                "COVERAGE_CORE": "ctrace",
            },
        }
        return subprocess.Popen(
            [sys.executable, "-m", "tools.mutants", "worker"],
            **{"cwd": place, "env": environment, "text": True},
            **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True},
        )

    def each(self, tasks, finished, until):
        """Give every worker one task after another from `tasks`, until a time or the tasks' end.

        `finished(task, result)` is called in this thread, for tasks that were not stopped.
        """
        results, tasks = SimpleQueue(), iter(tasks)
        queues = [SimpleQueue() for _ in range(self.jobs)]
        for k, queue in enumerate(queues):
            Thread(target=self._serve, args=(k, queue, results), daemon=True).start()
        busy = 0

        def feed(queue):
            nonlocal busy
            task = next(tasks, None) if time.monotonic() < until else None
            if task is not None:
                queue.put(task)
                busy += 1

        for queue in queues:
            feed(queue)
        while busy:
            try:
                queue, task, result = results.get(timeout=max(0.1, until - time.monotonic()))
            except Empty:
                return
            busy -= 1
            finished(task, result)
            feed(queue)

    def _serve(self, k, queue, results):
        """Hand tasks from a queue to a worker and its answers back; one that ended is replaced."""
        self.workers[k].stdout.readline()  # ready
        while True:
            task = queue.get()
            answer = self._answer(k, task)
            if answer is None:
                if self.over:
                    return
                _end_group(self.workers[k])
                self.workers[k] = self._made(k)
                self.workers[k].stdout.readline()
                answer = self._answer(k, task)
            lost = {
                "end": "not tested",
                "killer": "the worker ended twice",
                "stage": 0,
                "log": "",
                "seconds": 0,
            }
            results.put((queue, task, answer or lost))

    def _answer(self, k, task):
        """Return what a worker answers, None if it ended."""
        process = self.workers[k]
        try:
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
        except OSError:
            return None
        answer = process.stdout.readline()
        return json.loads(answer) if answer.endswith("\n") else None

    def __exit__(self, *_):
        self.over = True
        for process in self.workers:
            _end_group(process)
        shutil.rmtree(self.folder, ignore_errors=True)


def _end_group(process):
    """End a worker and what it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()
