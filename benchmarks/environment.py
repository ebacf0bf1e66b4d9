"""Fix the number of threads, and describe the machine."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from datetime import date
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

POOLS = ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR", "NUMBA", "VECLIB_MAXIMUM")
LIBRARIES = ("numpy", "scipy", "scikit-learn")
DATA = Path(os.environ.get("DUALPCA_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
"""Where public data sets lie that no library brings along."""


def use_threads(threads: int) -> None:
    """Children inherit both: the variables bind BLAS and OpenMP, the affinity all the rest."""
    for pool in POOLS:
        os.environ[f"{pool}_THREADS" if "_" in pool else f"{pool}_NUM_THREADS"] = str(threads)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def describe(threads: int, peers: tuple[str, ...]) -> dict[str, Any]:
    """Return what a reader must know of a run besides its results."""
    versions = {name: installed(name) for name in LIBRARIES + peers if installed(name)}
    versions |= {name: r_version(name) for name in peers if name in R_PACKAGES and r_version(name)}
    return {
        "date": date.today().isoformat(),
        "commit": commit(),
        "machine": cpu(),
        "threads": threads,
        "python": platform.python_version(),
        "libraries": versions,
    } | ({"gpu": gpu()} if "torch" in peers and gpu() else {})


def commit() -> str:
    """Return the commit that is measured; DUALPCA_COMMIT names it where there is no git."""
    if "DUALPCA_COMMIT" in os.environ:
        return os.environ["DUALPCA_COMMIT"]
    ask = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=8", "HEAD"]
    try:
        return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or "unknown")


@cache
def gpu() -> str:
    """Return the name of the graphics card; an empty text where there is none."""
    if shutil.which("nvidia-smi") is None:
        return ""
    ask = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(ask, capture_output=True, text=True).stdout.strip().partition("\n")[0]


def installed(name: str) -> str:
    """Return the version of a Python package, an empty text without it."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


# --- what is absent ------------------------------------------------------------------------------

R_PACKAGES = (
    *("mice", "Amelia", "rrcov", "MASS", "carData", "VIM", "mlbench", "HSAUR3", "FactoMineR"),
    *("psych", "AER", "modeldata", "palmerpenguins", "survival"),
)
INSTALL = {
    "hmmlearn": "pip install hmmlearn",
    "ppca_rs": "pip install ppca-rs",
    "gcimpute": "pip install --no-deps --target FOLDER gcimpute statsmodels patsy; "
    "PYTHONPATH=FOLDER",
    "dask_ml": "pip install dask-ml",
    "optuna": "pip install optuna",
    "GPU": "an NVIDIA card and torch with CUDA",
}


@cache
def r_version(package: str) -> str:
    """Return the version of a package of R, an empty text without it."""
    if shutil.which("Rscript") is None:
        return ""
    code = f'cat(format(packageVersion("{package}")))'
    said = subprocess.run(["Rscript", "-e", code], capture_output=True, text=True)
    return said.stdout.strip() if said.returncode == 0 else ""


def absent(needs: tuple[str, ...]) -> str:
    """Return a sentence on what is not here of what a section needs; empty if all is."""
    for need in needs:
        if need in R_PACKAGES:
            if not r_version(need):
                return f"it needs R with {need} (Debian: apt install r-cran-{need.lower()})"
        elif need == "GPU":
            if not gpu():
                return f"it needs {INSTALL[need]}"
        elif need.endswith(".npz"):
            if not (DATA / need).exists():
                return f"it needs {need} in the folder that DUALPCA_DATA names"
        elif find_spec(need) is None:
            return f"it needs {need} ({INSTALL[need]})"
    return ""
