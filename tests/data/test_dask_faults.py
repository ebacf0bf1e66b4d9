"""Faults of a cluster in every phase of a fit: the same model, or a clear error, and no hang."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from sklearn.base import clone

from dualpca import PPCA, KernelPCA

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

from benchmarks import parts as cases  # noqa: E402  needs Dask

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:distributed"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]

LONGEST = 120.0
"""Seconds after which a fit hangs; undisturbed it takes one or two."""


@contextlib.contextmanager
def cluster(**options):
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "20s"}),
        cases.cluster(2, **options) as local,
        distributed.Client(local) as client,
    ):
        yield client


@pytest.fixture
def workers():
    """Two workers for each test: one that was killed does not always come back in a minute."""
    with cluster() as client:
        yield client


def fitted(model, array):
    """Fit in a thread that may be left behind: a fit that hangs is a failure, not a wait."""
    done = []

    def work():
        try:
            done.append(clone(model).fit(array))
        except BaseException as error:
            done.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(LONGEST)
    assert done, f"the fit hangs: no result after {LONGEST:g} s"
    if isinstance(done[0], BaseException):
        raise done[0]
    return done[0]


def size_of(phase):
    return 200 if phase.d < 100 else 40


def undisturbed(phase):
    blocks = [cases.block_of(k, size_of(phase), phase.d, phase.holes) for k in range(8)]
    return clone(phase.model).fit(np.concatenate(blocks))


@pytest.mark.parametrize("name", ["moments", "early em", "late em", "mixture", "krylov"])
def test_a_worker_killed_in_any_phase_changes_nothing(workers, name):
    phase = cases.phases()[name]
    workers.wait_for_workers(2, timeout=60)
    array = cases.partitions(size_of(phase), phase.d, phase.holes, 0.02)
    with cases.Strike(workers, phase.at, 0.05) as strike:
        found = fitted(phase.model, array)
    assert strike.struck, f"the fit took {strike.passes} passes only"
    assert cases.difference(found, undisturbed(phase)) <= phase.tol


def test_late_is_late():
    """The pass that is struck late in EM comes after several steps, and before the last."""
    phase, passes = cases.phases()["late em"], []
    from dualpca.data.dask_table import DaskTable

    class Counted(DaskTable):
        def reduce(self, of, plus):
            passes.append(1)
            return super().reduce(of, plus)

    model = clone(phase.model).fit(Counted(cases.partitions(200, phase.d, phase.holes, 0.0)))
    assert phase.at - (len(passes) - model.n_iter_) >= 5 and phase.at < len(passes)


def test_a_worker_that_takes_too_much_memory_changes_nothing():
    phase = cases.phases()["early em"]
    with cluster(memory_limit="600MB") as client:
        client.wait_for_workers(2, timeout=60)
        array = cases.partitions(200, phase.d, phase.holes, 0.02, cases.trouble("memory"))
        found = fitted(phase.model, array)
    assert cases.difference(found, undisturbed(phase)) <= phase.tol


def test_a_slow_worker_changes_nothing(workers):
    phase = cases.phases()["early em"]
    workers.wait_for_workers(2, timeout=60)
    array = cases.partitions(200, phase.d, phase.holes, 0.0, lambda: time.sleep(0.2))
    assert cases.difference(fitted(phase.model, array), undisturbed(phase)) <= phase.tol


def test_a_partition_that_is_lost_on_the_way_is_a_clear_error(workers, tmp_path):
    """The store of a partition is there for the first passes of EM, and then is not."""
    stored = tmp_path / "block.npy"
    X = np.concatenate([cases.block_of(k, 200, 8, 0.2) for k in range(2)])
    np.save(stored, X[:200])
    path = str(stored)
    workers.wait_for_workers(2, timeout=60)
    blocks = [
        da.from_delayed(dask.delayed(np.load, pure=False)(path), (200, 8), dtype=float),
        da.from_array(X[200:], chunks=(200, 8)),
    ]

    def remove():
        time.sleep(0.5)
        stored.unlink()

    thread = threading.Thread(target=remove)
    thread.start()
    with pytest.raises(FileNotFoundError, match=r"block\.npy"):
        fitted(PPCA(2, tol=1e-14, max_iter=100_000), da.concatenate(blocks))
    thread.join()


def test_workers_that_all_go_away_are_an_error_not_a_wait():
    with (
        distributed.LocalCluster(1, threads_per_worker=1, dashboard_address=":0") as local,
        distributed.Client(local) as client,
        dask.config.set({"dualpca.no-workers-timeout": "2s"}),
    ):
        client.wait_for_workers(1, timeout=60)

        def leave():  # on a busy machine one request to leave may be lost
            end = time.monotonic() + LONGEST
            while client.scheduler_info()["workers"] and time.monotonic() < end:
                local.scale(0)
                time.sleep(1.0)

        gone = threading.Timer(1.0, leave)
        gone.start()
        slow = cases.partitions(200, 8, 0.2, 0.3)
        with pytest.raises(TimeoutError, match="no workers"):
            fitted(PPCA(2, tol=1e-14, max_iter=100_000), slow)
        gone.join()


# --- a worker that is cut off for a while ---------------------------------------------------------


class Pause(cases.Strike):
    """Stops one worker for some seconds, as a network does that loses its messages."""

    def __init__(self, client, at, seconds):
        super().__init__(client, at, 0.05)
        self.seconds = seconds

    def kill(self):
        time.sleep(self.after)
        os.kill(self.pids[0], signal.SIGSTOP)
        try:
            time.sleep(self.seconds)
        finally:
            os.kill(self.pids[0], signal.SIGCONT)


on_unix = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be stopped")


@on_unix
def test_a_worker_that_does_not_answer_for_20_seconds_changes_nothing(workers):
    phase = cases.phases()["early em"]
    workers.wait_for_workers(2, timeout=60)
    array = cases.partitions(200, phase.d, phase.holes, 0.02)
    begun = time.monotonic()
    with Pause(workers, phase.at, 20.0) as pause:
        found = fitted(phase.model, array)
    assert pause.struck and time.monotonic() - begun >= 20.0
    assert cases.difference(found, undisturbed(phase)) <= phase.tol


@pytest.mark.parametrize("name", ["moments", "early em"])
def test_what_a_worker_returns_twice_counts_once(workers, name):
    phase, returned = cases.phases()[name], []
    workers.wait_for_workers(2, timeout=60)
    handlers = workers.cluster.scheduler.stream_handlers
    once = handlers["task-finished"]

    def twice(**message):
        returned.append(message["key"])
        once(**message)
        once(**message)

    handlers["task-finished"] = twice
    array = cases.partitions(200, phase.d, phase.holes, 0.0)
    found = fitted(phase.model, array)
    assert len(returned) > 8
    assert cases.difference(found, undisturbed(phase)) <= phase.tol


# --- a scheduler that forgets --------------------------------------------------------------------


@contextlib.contextmanager
def processes():
    """A scheduler and two workers as processes of their own, as on a cluster of machines."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    started = []

    def start(what, *arguments):
        ask = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--no-dashboard", *arguments]
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        path = os.pathsep.join(filter(None, sys.path))  # workers read what is made here
        own = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=path)
        started.append(subprocess.Popen(ask, env=own, **silent))
        return started[-1]

    def scheduler():
        return start("scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-show")

    try:
        first = scheduler()
        for _ in range(2):
            start("worker", address, "--nthreads", "1", "--no-nanny")
        yield address, first, scheduler
    finally:
        for one in reversed(started):
            one.kill()
            one.wait()


def struck(model, array, strike):
    """Fit while `strike` happens after two seconds; the fit must end within 30 s of it."""
    at = []

    def later():
        at.append(time.monotonic())
        strike()

    thread = threading.Timer(2.0, later)
    thread.start()
    try:
        return fitted(model, array)
    finally:
        ended = time.monotonic()
        thread.join()
        assert at and ended - at[0] < 30.0


FORGOTTEN = "scheduler was restarted, or the connection to it was lost.*fit again"


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_scheduler_that_dies_is_a_clear_error(comes_back):
    """Whether another one takes its place at once or not: what it knew is lost."""
    endless = PPCA(2, tol=1e-14, max_iter=100_000)
    array = cases.partitions(200, 8, 0.2, 0.05)
    with processes() as (address, one, again):

        def strike():
            one.kill()
            one.wait()
            if comes_back:
                again()

        with distributed.Client(address, timeout="60s") as client:
            client.wait_for_workers(2, timeout=60)
            with pytest.raises(ConnectionError, match=FORGOTTEN):
                struck(endless, array, strike)


@pytest.mark.parametrize("model", [PPCA(2, tol=1e-14, max_iter=100_000), "exact kernel"], ids=str)
def test_a_scheduler_that_somebody_restarts_is_a_clear_error_and_a_new_fit_works(workers, model):
    workers.wait_for_workers(2, timeout=60)
    array = cases.partitions(200, 8, 0.0 if model == "exact kernel" else 0.2, 0.05)
    if model == "exact kernel":
        slow = cases.partitions(200, 8, 0.0, 1.5)  # all rows come to a worker meanwhile
        model, array = KernelPCA(2, kernel="rbf", eigen_solver="krylov"), slow

    def strike():
        with distributed.Client(workers.scheduler.address, set_as_default=False) as other:
            other.restart(timeout=60)

    with pytest.raises(ConnectionError, match=FORGOTTEN):
        struck(model, array, strike)
    phase = cases.phases()["moments"]
    array = cases.partitions(200, phase.d, phase.holes, 0.0)
    assert cases.difference(fitted(phase.model, array), undisturbed(phase)) <= phase.tol
