"""Fix the number of threads, and describe the machine."""

from __future__ import annotations

import os
import platform
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

POOLS = ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR", "NUMBA", "VECLIB_MAXIMUM")
LIBRARIES = ("dualpca", "numpy", "scipy", "scikit-learn")


def use_threads(threads: int) -> None:
    """Children inherit both: the variables bind BLAS and OpenMP, the affinity all the rest."""
    for pool in POOLS:
        os.environ[f"{pool}_THREADS" if "_" in pool else f"{pool}_NUM_THREADS"] = str(threads)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def describe(threads: int, repeats: int, quick: bool) -> dict[str, str]:
    facts = {
        "date": date.today().isoformat(),
        "CPU": f"{cpu()}, {threads} threads",
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "libraries": ", ".join(f"{name} {installed(name)}" for name in LIBRARIES),
        "method": f"median of {repeats} interleaved runs after a warm-up; q = 20; spectrum 1/i",
    }
    return facts | ({"quick": "reduced sizes, to which the goals do not apply"} if quick else {})


def cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or "unknown")


def installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(not installed)"
