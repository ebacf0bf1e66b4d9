"""Data larger than memory, and Dask: ``python -m benchmarks.parts {file,dask,faults,scaling}``.

``file``     PCA of 100,000,000×20 float32 from a .npy file beside the time of reading it
``dask``     PCA of a Dask array beside dask-ml's (run it with an interpreter that has dask-ml)
``faults``   workers killed, out of memory and slow in the middle of fits: 20 runs of each
``scaling``  1, 2 and 4 local workers, and the bytes that Dask says were moved

Every timed fit of ``file`` is a process of its own: its peak is that of a real program.
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
from typing import Any

import numpy as np

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


def larger_than_memory(n: int, d: int, folder: str | None, repeats: int) -> None:
    size = n * d * 4
    with tempfile.TemporaryDirectory(dir=folder) as place:
        free = os.statvfs(place)
        if free.f_bavail * free.f_frsize < 1.5 * size:
            raise SystemExit(f"{size / 1e9:.1f} GB do not fit on the disk of {place}.")
        path = Path(place, "x.npy")
        write(path, n, d)
        for cold in (True, False):
            times: dict[str, list[float]] = {"read": [], "fit": []}
            peak = 0.0
            for _ in range(repeats):
                for what, found in times.items():
                    if cold and not drop_caches():
                        print("page cache cannot be dropped: no cold times")
                        break
                    one = child(what, path)
                    found.append(one["seconds"])
                    peak = max(peak, one["peak"] if what == "fit" else 0.0)
            a, b = (min(times[k], default=np.nan) for k in ("read", "fit"))
            state = "cold" if cold else "warm"
            print(f"{n}x{d} float32, {state}: read {a:.2f} s, fit {b:.2f} s, {b / a:.2f} x")
            print(f"  peak {peak / 2**20:.0f} MiB; all {times}", flush=True)


# --- Dask ----------------------------------------------------------------------------------------


def against_dask_ml(repeats: int) -> None:
    import dask.array as da
    from dask_ml.decomposition import PCA as Other

    from dualpca import PCA

    rng = np.random.default_rng(0)
    X = rng.normal(size=(100_000, 30)) @ rng.normal(size=(30, 500)) + rng.normal(
        size=(100_000, 500)
    )
    array = da.from_array(X, chunks=(10_000, 500)).persist()
    times: dict[str, list[float]] = {"dualpca": [], "dask-ml": []}
    for _ in range(repeats):
        for name, model in (("dualpca", PCA(20)), ("dask-ml", Other(20, svd_solver="tsqr"))):
            begun = time.perf_counter()
            model.fit(array)
            times[name].append(time.perf_counter() - begun)
            if name == "dualpca":
                ours = np.asarray(model.explained_variance_)
            else:
                theirs = np.asarray(model.explained_variance_)
    a, b = min(times["dualpca"]), min(times["dask-ml"])
    gap = float(np.max(np.abs(ours - theirs) / theirs))
    print(f"100000x500, q = 20: dualpca {a:.2f} s, dask-ml tsqr {b:.2f} s, {a / b:.2f} x")
    print(f"  largest relative difference of variances {gap:.1e}; all {times}")


def cluster(workers: int, **options: Any) -> Any:
    from distributed import LocalCluster

    usual = {"threads_per_worker": 1, "dashboard_address": None, "processes": True}
    return LocalCluster(n_workers=workers, **(usual | options))


def rows(n: int, d: int, holes: float) -> Any:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)) @ rng.normal(size=(3, d)) + 0.5 * rng.normal(size=(n, d))
    X[rng.random(X.shape) < holes] = np.nan
    return X


def waiting(X: Any, chunk: int, seconds: float) -> Any:
    """Return a Dask array whose chunks take their time, so that there is a middle to strike in."""
    import dask.array as da

    def wait(block: Any) -> Any:
        time.sleep(seconds)
        return block

    return da.from_array(X, chunks=(chunk, -1)).map_blocks(wait, dtype=X.dtype)


def kill(pids: list[int], after: float) -> threading.Thread:
    def strike() -> None:
        time.sleep(after)
        os.kill(pids[0], signal.SIGKILL)

    thread = threading.Thread(target=strike)
    thread.start()
    return thread


def faulty(kind: str, X: Any, client: Any, run: int) -> Any:
    """Return the array of a run, with its fault on the way, and the thread that strikes."""
    import dask.array as da

    pids = list(client.run(os.getpid).values())
    marker = tempfile.mktemp()

    def once(block: Any, block_info: Any = None) -> Any:
        """Be too large for a worker, or slow, the first time the first block is read."""
        first = block_info is not None and block_info[None]["chunk-location"][0] == 0
        if first and kind == "memory" and not os.path.exists(marker):
            Path(marker).touch()
            hog = [np.ones(2**22) for _ in range(2**6)]  # 2 GB, three times what is allowed
            time.sleep(30)  # the nanny ends it here
            return hog[0][: len(block)]
        if first and kind == "slow":
            time.sleep(0.5)
        return block

    if kind == "killed":
        return waiting(X, len(X) // 8, 0.1), kill(pids, after=0.1 + 0.04 * (run % 6))
    array = da.from_array(X, chunks=(len(X) // 8, -1)).map_blocks(once, dtype=X.dtype)
    return array, None


def faults(runs: int, kinds: list[str]) -> None:
    """Fit through a fault again and again; count the fits that equal the one in memory."""
    from dualpca import PPCA

    for kind in kinds:
        for phase, holes in (("moments", 0.0), ("em", 0.2)):
            X = rows(1600, 8, holes)
            wanted = PPCA(2, tol=1e-4).fit(X)
            seconds: list[float] = []
            good = done = 0
            while done < runs:
                for gap in some_faults(kind, X, wanted, runs - done, done, seconds):
                    good, done = good + bool(gap <= (1e-6 if holes else 1e-10)), done + 1
                    print(f"  run {done}, {seconds[-1]:.1f} s, off by {gap:.1e}", flush=True)
            longest = max(seconds)
            print(f"{kind} worker, {phase}: {good} of {runs} the same, longest {longest:.1f} s")


def some_faults(
    kind: str, X: Any, wanted: Any, runs: int, first: int, seconds: list[float]
) -> Iterator[float]:
    """Yield how far each fit is off, as long as one cluster lasts.

    Between fits the cluster's nannies may fail to bring a worker back, which is no fit's doing:
    then another cluster is opened.
    """
    from distributed import Client

    from dualpca import PPCA

    limit = {"memory_limit": "600MB"} if kind == "memory" else {}
    with cluster(2, **limit) as local, Client(local) as client:
        for run in range(first, first + runs):
            try:
                client.wait_for_workers(2, timeout=10)
            except TimeoutError:
                return
            faulthandler.dump_traceback_later(60)  # says where, should it hang
            array, striker = faulty(kind, X, client, run)
            begun = time.perf_counter()
            found = PPCA(2, tol=1e-4).fit(array)
            seconds.append(time.perf_counter() - begun)
            faulthandler.cancel_dump_traceback_later()
            if striker is not None:
                striker.join()
                time.sleep(0.5)  # the scheduler is to notice before the next run
            gap = float(np.max(np.abs(found.components_ - wanted.components_)))
            yield max(gap, abs(found.noise_variance_ - wanted.noise_variance_))


def scaling(n: int, d: int) -> None:
    """Time moments and steps of EM with 1, 2 and 4 workers; report what Dask says was moved."""
    import dask.array as da
    from distributed import Client

    from dualpca import PCA, PPCA

    q, steps = 5, 10
    for workers in (1, 2, 4):
        with cluster(workers) as local, Client(local) as client:
            for name, model, holes in (
                ("PCA", PCA(q), 0.0),
                (f"PPCA, NaN, {steps} steps", PPCA(q, max_iter=steps, tol=0.0), 0.2),
            ):
                array = da.from_array(rows(n, d, holes), chunks=(n // 16, d)).persist()
                client.rebalance()
                before = moved(client)
                begun = time.perf_counter()
                model.fit(array)
                seconds = time.perf_counter() - begun
                after = moved(client)
                blocks, small = after - before
                print(
                    f"{workers} workers, {name}: {seconds:.2f} s, between workers "
                    f"{small / 1e6:.3f} MB of statistics, {blocks / 1e6:.1f} MB of rows",
                    flush=True,
                )


def moved(client: Any) -> Any:
    """Return the bytes that workers received from one another: in pieces over 1 MB, and smaller."""

    def received(dask_worker: Any) -> list[float]:
        sizes = [one["total"] for one in dask_worker.transfer_incoming_log]
        return [float(sum(s for s in sizes if s > 1e6)), float(sum(s for s in sizes if s <= 1e6))]

    return np.sum(list(client.run(received).values()), axis=0)


def main() -> None:
    import warnings

    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parts", description=__doc__)
    parser.add_argument("what", choices=["file", "dask", "faults", "scaling", "_read", "_fit"])
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--kinds", nargs="+", default=["killed", "memory", "slow"])
    parser.add_argument("--folder", help="where the file is made")
    parser.add_argument("--path", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.what in ("_read", "_fit"):
        seconds = (read if args.what == "_read" else fit)(args.path)
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps({"seconds": seconds, "peak": peak}))
    elif args.what == "file":
        larger_than_memory(args.rows, args.features, args.folder, args.repeats)
    elif args.what == "dask":
        against_dask_ml(args.repeats)
    elif args.what == "faults":
        faults(args.runs, args.kinds)
    else:
        scaling(200_000, 40)


if __name__ == "__main__":
    main()
