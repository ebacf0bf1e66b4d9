"""Data larger than memory, and Dask: `python -m benchmarks parts`, and by hand

    python -m benchmarks.parts faults   workers killed, out of memory and slow in the middle of fits
    python -m benchmarks.parts cost     t0 and B of the cost model of docs/guide/dask.md

Every timed fit from a file is a process of its own: its peak is that of a real program.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.run import Row, Run

BLOCK = 2**24


# --- larger than memory --------------------------------------------------------------------------


def write(path: Path, n: int, d: int) -> None:
    """Write n rows of d correlated float32 features, block by block, without holding them."""
    rng = np.random.default_rng(0)
    base = (rng.normal(size=(500_000, 5)) @ rng.normal(size=(5, d))).astype(np.float32)
    base += rng.normal(size=base.shape).astype(np.float32) + 3
    with open(path, "wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (n, d)}
        np.lib.format.write_array_header_2_0(file, header)
        for first in range(0, n, len(base)):
            rows = base[: min(len(base), n - first)] * np.float32(rng.uniform(0.9, 1.1))
            file.write(rows.data)
        file.flush()
        os.fsync(file.fileno())


def read(path: str) -> float:
    """Return the seconds that reading the whole file takes, with the reads that fits use."""
    room = memoryview(bytearray(BLOCK))
    begun = time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        while file.readinto(room):
            pass
    return time.perf_counter() - begun


def fit(path: str) -> float:
    from dualpca import PCA

    begun = time.perf_counter()
    PCA(5).fit(path)
    return time.perf_counter() - begun


def child(what: str, path: Path) -> dict[str, float]:
    """Run one measure in a process of its own; return its time and its peak in bytes."""
    code = [sys.executable, "-m", "benchmarks.parts", f"_{what}", "--path", str(path)]
    environment = dict(os.environ, OMP_NUM_THREADS="2", OPENBLAS_NUM_THREADS="2")
    return dict(
        json.loads(subprocess.run(code, env=environment, check=True, capture_output=True).stdout)
    )


def drop_caches() -> bool:
    """Empty the page cache, if this user may."""
    try:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        return False
    return True


def from_file(run: Run) -> Iterator[Row]:
    """Yield the times of reading a file and of a fit from it, in turns."""
    n, d = 1_000_000 if run.quick else 100_000_000, 20
    size = n * d * 4
    with tempfile.TemporaryDirectory() as place:
        free = os.statvfs(place)
        if free.f_bavail * free.f_frsize < 1.5 * size:
            run.left_out.append(f"a file of {size / 1e9:.0f} GB: no room on the disk of {place}")
            return
        path = Path(place, "x.npy")
        write(path, n, d)
        for state in ("in the page cache", "page cache dropped"):
            if state == "page cache dropped" and not drop_caches():
                run.left_out.append("a cold page cache: it cannot be dropped here")
                continue
            times: dict[str, list[float]] = {"read": [], "fit": []}
            peak = 0.0
            for _ in run.repeats(4, fewest=1):
                for what, found in times.items():
                    if state == "page cache dropped":
                        drop_caches()
                    one = child(what, path)
                    found.append(one["seconds"])
                    peak = max(peak, one["peak"] if what == "fit" else 0.0)
            about = {"name": f"{n:,}×{d} float32, {size / 1e9:.2g} GB", "state": state}
            yield about | times | {"peak": peak}


# --- Dask ----------------------------------------------------------------------------------------


def against_dask_ml(run: Run) -> Iterator[Row]:
    import dask.array as da
    from dask_ml.decomposition import PCA as Other
    from threadpoolctl import threadpool_limits

    from dualpca import PCA

    rng, n = np.random.default_rng(0), 10_000 if run.quick else 100_000
    X = rng.normal(size=(n, 30)) @ rng.normal(size=(30, 500)) + rng.normal(size=(n, 500))
    array = da.from_array(X, chunks=(n // 10, 500)).persist()
    times: dict[str, list[float]] = {"dualpca": [], "dask-ml tsqr": []}
    variances = {}
    with threadpool_limits(1):
        for _ in run.repeats(3):
            for who, model in zip(times, (PCA(20), Other(20, svd_solver="tsqr")), strict=True):
                begun = time.perf_counter()
                model.fit(array)
                times[who].append(time.perf_counter() - begun)
                variances[who] = np.asarray(model.explained_variance_)
    ours, theirs = variances.values()
    best = {who: min(found) for who, found in times.items()}
    for who, seconds in best.items():
        row = {"name": f"PCA of a Dask array, {n:,}×500", "who": who, "ours": who == "dualpca"}
        yield (
            row
            | {"seconds": seconds, "ratio": seconds / best["dask-ml tsqr"]}
            | {"difference": float(np.max(np.abs(ours - theirs) / theirs))}
        )


def cluster(workers: int, **options: Any) -> Any:
    from distributed import LocalCluster

    usual = {"threads_per_worker": 1, "dashboard_address": ":0", "processes": True}
    return LocalCluster(n_workers=workers, **(usual | options))


def rows_of(n: int, d: int, holes: float) -> Any:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)) @ rng.normal(size=(3, d)) + 0.5 * rng.normal(size=(n, d))
    X[rng.random(X.shape) < holes] = np.nan
    return X


class Strike:
    """Kills one worker while the fit takes its `at`-th pass over the rows, counted from 1.

    A fit that is done before is not struck: `struck` says so.
    """

    def __init__(self, client: Any, at: int, after: float) -> None:
        self.pids, self.at, self.after = list(client.run(os.getpid).values()), at, after
        self.passes, self.thread = 0, None

    def __enter__(self) -> Strike:
        from dualpca.data.dask_table import DaskTable

        self.plain = DaskTable.reduce
        plain, strike = self.plain, self

        def reduce(parts: Any, *args: Any) -> Any:
            strike.passes += 1
            if strike.passes == strike.at:
                strike.thread = threading.Thread(target=strike.kill)
                strike.thread.start()
            return plain(parts, *args)

        DaskTable.reduce = reduce  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        from dualpca.data.dask_table import DaskTable

        DaskTable.reduce = self.plain  # type: ignore[method-assign]
        if self.thread is not None:
            self.thread.join()

    def kill(self) -> None:
        time.sleep(self.after)
        os.kill(self.pids[0], signal.SIGKILL)

    @property
    def struck(self) -> bool:
        return self.thread is not None


class Phase(NamedTuple):
    """What is fitted while something goes wrong, and in which pass over the rows."""

    model: Any
    holes: float
    at: int
    tol: float
    d: int = 8


def phases() -> dict[str, Phase]:
    from dualpca import PCA, PPCA, MixturePPCA

    em = PPCA(2, tol=1e-6)
    return {
        "moments": Phase(PPCA(2), 0.0, 1, 1e-10),
        "early em": Phase(em, 0.2, 7, 1e-6),
        "late em": Phase(em, 0.2, 16, 1e-6),
        "mixture": Phase(
            MixturePPCA(2, 1, tol=1e-7, random_state=0, standardize=False), 0.0, 5, 1e-6
        ),
        "krylov": Phase(PCA(2, svd_solver="krylov"), 0.0, 3, 1e-6, 4100),
    }


def block_of(k: int, size: int, d: int, holes: float) -> Any:
    """Return rows of one partition, made where they are needed."""
    W = np.random.default_rng(0).normal(size=(3, d)) * [[3.0], [2.0], [1.0]]
    rng = np.random.default_rng([1, k])
    X = rng.normal(size=(size, 3)) @ W + 0.5 * rng.normal(size=(size, d))
    X[: size // 2] += 4.0  # two groups, for mixtures
    X[rng.random(X.shape) < holes] = np.nan
    return X


def partitions(size: int, d: int, holes: float, wait: float, first: Any = None) -> Any:
    """Return a Dask array of eight partitions, of which the first does `first` on its way."""
    import dask.array as da
    from dask.delayed import delayed

    def make(k: int) -> Any:
        time.sleep(wait)
        if k == 0 and first is not None:
            first()
        return block_of(k, size, d, holes)

    blocks = [
        da.from_delayed(delayed(make, pure=False)(k), (size, d), dtype=float) for k in range(8)
    ]
    return da.concatenate(blocks)


def trouble(kind: str) -> Any:
    """Return what the first partition does: nothing, take too much memory once, or be slow."""
    marker = tempfile.mktemp()

    def memory() -> None:
        if not os.path.exists(marker):
            Path(marker).touch()
            hog = [np.ones(2**22) for _ in range(2**6)]  # 2 GB, three times what is allowed
            time.sleep(30)  # the nanny ends it here
            del hog

    return {"killed": None, "memory": memory, "slow": lambda: time.sleep(0.5)}[kind]


def faults(runs: int, kinds: list[str], names: list[str]) -> None:
    """Fit through a fault again and again; count the fits that equal the one in memory."""
    from sklearn.base import clone

    for kind in kinds:
        for name, phase in phases().items():
            if name not in names or (kind != "killed" and name not in ("moments", "early em")):
                continue
            size = 200 if phase.d < 100 else 40
            X = np.concatenate([block_of(k, size, phase.d, phase.holes) for k in range(8)])
            wanted = clone(phase.model).fit(X)
            seconds: list[float] = []
            good = struck = done = 0
            while done < runs:
                for gap, hit in some_faults(kind, phase, wanted, runs - done, done, seconds):
                    good, done = good + bool(gap <= phase.tol), done + 1
                    struck += hit
                    print(f"  run {done}, {seconds[-1]:.1f} s, off by {gap:.1e}", flush=True)
            told = f"{kind} worker, {name}: {good} of {runs} the same, {struck} struck"
            print(f"{told}, longest {max(seconds):.1f} s", flush=True)


def some_faults(
    kind: str, phase: Phase, wanted: Any, runs: int, first: int, seconds: list[float]
) -> Iterator[tuple[float, bool]]:
    """Yield how far each fit is off and whether it was struck, as long as one cluster lasts.

    Between fits the cluster's nannies may fail to bring a worker back, which is no fit's doing:
    then another cluster is opened.
    """
    from distributed import Client
    from sklearn.base import clone

    limit = {"memory_limit": "600MB"} if kind == "memory" else {}
    size = 200 if phase.d < 100 else 40
    with cluster(2, **limit) as local, Client(local) as client:
        for run in range(first, first + runs):
            try:
                client.wait_for_workers(2, timeout=10)
            except TimeoutError:
                return
            faulthandler.dump_traceback_later(60)  # says where, should it hang
            array = partitions(size, phase.d, phase.holes, 0.02, trouble(kind))
            at = phase.at if kind == "killed" else -1
            begun = time.perf_counter()
            with Strike(client, at, 0.02 + 0.02 * (run % 6)) as strike:
                found = clone(phase.model).fit(array)
            seconds.append(time.perf_counter() - begun)
            faulthandler.cancel_dump_traceback_later()
            if strike.struck:
                time.sleep(0.5)  # the scheduler is to notice before the next run
            yield difference(found, wanted), strike.struck or kind != "killed"


def difference(a: Any, b: Any) -> float:
    """Return the largest difference of two fits, up to signs of axes and order of components."""
    if hasattr(a, "weights_"):
        ends = (sorted(np.asarray(m.means_)[:, 0]) for m in (a, b))
        return float(np.max(np.abs(np.subtract(*ends))))
    gap = float(np.max(np.abs(np.abs(a.components_) - np.abs(b.components_))))
    return max(gap, abs(a.noise_variance_ - b.noise_variance_) / b.noise_variance_)


def scaling(run: Run) -> Iterator[Row]:
    """Time moments and steps of EM with 1, 2 and 4 workers; report what Dask says was moved."""
    import dask.array as da
    from distributed import Client

    from dualpca import PCA, PPCA

    n, d, q, steps = 20_000 if run.quick else 200_000, 40, 5, 10
    for workers in (1, 2, 4):
        row: Row = {"name": f"{n:,}×{d}, 16 partitions", "workers": workers}
        with cluster(workers) as local, Client(local) as client:
            for key, model, holes in (
                ("pca", PCA(q), 0.0),
                ("ppca", PPCA(q, max_iter=steps, tol=0.0), 0.2),
            ):
                array = da.from_array(rows_of(n, d, holes), chunks=(n // 16, d)).persist()
                client.rebalance()
                before = moved(client)
                begun = time.perf_counter()
                model.fit(array)
                row[f"{key}_seconds"] = time.perf_counter() - begun
                row[f"{key}_moved"] = float((moved(client) - before)[1])
        yield row


def moved(client: Any) -> Any:
    """Return the bytes that workers received from one another: in pieces over 1 MB, and smaller."""

    def received(dask_worker: Any) -> list[float]:
        sizes = [one["total"] for one in dask_worker.transfer_incoming_log]
        return [float(sum(s for s in sizes if s > 1e6)), float(sum(s for s in sizes if s <= 1e6))]

    return np.sum(list(client.run(received).values()), axis=0)


def cost_model(repeats: int) -> None:
    """Measure t₀ (seconds a task) and B (bytes/s between two workers) of docs/guide/dask.md."""
    from distributed import Client

    with cluster(2) as local, Client(local) as client:
        time_of_tasks(repeats)
        for size in (2**17, 2**20, 2**23, 2**26):
            speed = speed_between_workers(client, size, 3 * repeats)
            print(f"B: {size / 1e6:8.2f} MB a piece, {speed / 1e6:7.0f} MB/s between two workers")


def time_of_tasks(repeats: int) -> None:
    """Print the seconds that one more partition of one row adds to a pass, over 8/7 of a task.

    Client and scheduler are this process: its own time does not depend on who else computes.
    """
    import dask.array as da

    from dualpca.data.dask_table import DaskTable

    best = {}
    for P in (100, 400, 1600):
        parts = DaskTable(da.ones((P, 2), chunks=(1, 2)).persist())
        parts.reduce(len, int.__add__)  # the first pass wakes everybody up
        times = []
        for _ in range(repeats):
            begun, worked = time.perf_counter(), time.process_time()
            parts.reduce(len, int.__add__)
            times.append((time.perf_counter() - begun, time.process_time() - worked))
        best[P] = np.min(times, axis=0)
        told = ", ".join(f"{wall:.3f} ({own:.3f})" for wall, own in times)
        print(f"pass over {P} partitions: {told} s (of them this process)")
    wall, own = 1e3 * (best[1600] - best[100]) / (1500 * 8 / 7)
    print(f"t0: {wall:.2f} ms a task, {own:.2f} ms of them client and scheduler", flush=True)


def speed_between_workers(client: Any, size: int, repeats: int) -> float:
    """Return the median speed at which one worker gets a fresh array from another."""
    a, b = client.scheduler_info()["workers"]

    def took(_: Any, dask_worker: Any = None) -> float:
        from distributed import get_worker

        one = get_worker().transfer_incoming_log[-1]
        return float(one["total"] / one["duration"])

    speeds = []
    for k in range(repeats):
        there = client.submit(make, size // 8, k, workers=[a], pure=False)
        speeds.append(client.submit(took, there, workers=[b], pure=False).result())
    return float(np.median(speeds))


def make(n: int, seed: int) -> Any:
    return np.random.default_rng(seed).normal(size=n)


def rows(run: Run, part: str) -> Iterator[Row]:
    yield from {"file": from_file, "scaling": scaling, "dask-ml": against_dask_ml}[part](run)


def main() -> None:
    import warnings

    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parts", description=__doc__)
    parser.add_argument("what", choices=["faults", "cost", "_read", "_fit"])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--kinds", nargs="+", default=["killed", "memory", "slow"])
    names = ["moments", "early em", "late em", "mixture", "krylov"]
    parser.add_argument("--phases", nargs="+", default=names, choices=names)
    parser.add_argument("--path", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.what == "faults":
        faults(args.runs, args.kinds, args.phases)
    elif args.what == "cost":
        cost_model(args.repeats)
    else:
        seconds = (read if args.what == "_read" else fit)(args.path)
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps({"seconds": seconds, "peak": peak}))


if __name__ == "__main__":
    main()
