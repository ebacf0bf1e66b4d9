"""Axes that outliers do not turn, beside R's PcaHubert: `python -m benchmarks.robust`.

    python -m benchmarks.robust [--replications N] [--python]

Rows are drawn from q directions plus noise. A share of them is replaced by gross outliers, each in
a direction of its own (scattered) or all at one place (clustered), and every method fits the same
table. Printed are the largest angle between the fitted axes and the true ones, its ratio to that
of PPCA fitted to the clean rows alone, and how many of the clean and of the replaced rows are
called outliers at 95 % (PcaHubert: score and orthogonal distances, each at 97.5 %). All but the
seconds are means over the replications; seconds are medians, one thread.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from sklearn.covariance import MinCovDet
from threadpoolctl import threadpool_limits

from benchmarks.environment import POOLS, cpu, installed
from dualpca import PPCA, RobustPPCA

LEVEL = 0.95
PEER = "rrcov PcaHubert"


class Rows(NamedTuple):
    """A table, the true axes, and which of its rows were replaced."""

    X: np.ndarray
    axes: np.ndarray  # (d, q)
    bad: np.ndarray


class Answer(NamedTuple):
    """The axes that were found, and the rows that were called outliers."""

    axes: np.ndarray | None  # None where the method cannot be used
    flagged: np.ndarray | None
    seconds: float


SIZES = {"500×10": (500, 10, 2), "200×20": (200, 20, 5), "100×200": (100, 200, 2)}
SPOILED = (
    ("clean", 0.0, "scattered"),
    ("5 % scattered", 0.05, "scattered"),
    ("20 % scattered", 0.2, "scattered"),
    ("5 % clustered", 0.05, "clustered"),
    ("20 % clustered", 0.2, "clustered"),
)


def drawn(n: int, d: int, q: int, share: float, kind: str, seed: int) -> Rows:
    """Return n rows of q directions, variances 20 to 10 above a noise of 1, some replaced.

    Scattered outliers are normal with 30 times the deviation of the noise; clustered ones lie at
    one point, 15√d deviations away, give or take the noise.
    """
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.normal(size=(d, q)))[0]
    scale = np.sqrt((10 + d / 3) * np.linspace(2, 1, q))
    X = rng.normal(size=(n, q)) * scale @ axes.T + rng.normal(size=(n, d))
    bad = rng.permutation(n)[: round(share * n)]
    if kind == "scattered":
        X[bad] = 30 * rng.normal(size=(len(bad), d))
    else:
        place = rng.normal(size=d)
        place *= 15 * math.sqrt(d) / np.linalg.norm(place)
        X[bad] = place + rng.normal(size=(len(bad), d))
    return Rows(X, axes, bad)


def angle(found: np.ndarray, axes: np.ndarray) -> float:
    """Return the largest principal angle between two spans, in degrees."""
    cosines = np.linalg.svd(np.linalg.qr(found)[0].T @ axes, compute_uv=False)
    return math.degrees(math.acos(min(1.0, float(cosines.min()))))


# --- who fits it ---------------------------------------------------------------------------------


def ours(model: Any) -> Callable[[np.ndarray, int], Answer]:
    def fit(X: np.ndarray, q: int) -> Answer:
        start = time.perf_counter()
        fitted = model(q).fit(X)
        seconds = time.perf_counter() - start
        return Answer(fitted.components_.T, fitted.outliers(X, LEVEL).flagged, seconds)

    return fit


def mcd(X: np.ndarray, q: int) -> Answer:
    """Fit the minimum covariance determinant, which needs more rows than columns."""
    if len(X) < 2 * X.shape[1]:
        return Answer(None, None, math.nan)
    start = time.perf_counter()
    found = MinCovDet(random_state=0).fit(X)
    axes = np.linalg.eigh(found.covariance_)[1][:, ::-1][:, :q]
    return Answer(axes, None, time.perf_counter() - start)


METHODS = {
    "dualpca PPCA": ours(PPCA),
    "dualpca RobustPPCA": ours(RobustPPCA),
    "dualpca RobustPPCA(trim=False)": ours(lambda q: RobustPPCA(q, trim=False)),
    "sklearn MinCovDet": mcd,
}

SCRIPT = r"""
suppressPackageStartupMessages(library(rrcov))
input <- file("stdin", "r")
while (length(q <- readLines(input, 1))) {
  X <- as.matrix(read.csv("table.csv", header = FALSE))
  q <- as.integer(q)
  start <- proc.time()[["elapsed"]]
  found <- tryCatch(PcaHubert(X, k = q, kmax = max(10, q)), error = function(e) NULL)
  seconds <- proc.time()[["elapsed"]] - start
  if (is.null(found)) cat("failed\n") else {
    write.table(getLoadings(found), "axes.csv", sep = ",", row.names = FALSE, col.names = FALSE)
    write.table(as.integer(found@flag), "kept.csv", row.names = FALSE, col.names = FALSE)
    cat(seconds, "\n")
  }
}
"""


def r_version() -> str | None:
    """Return the versions of R and rrcov, None where one of them is absent."""
    code = (
        'cat(R.version$major, ".", R.version$minor, "|", sep = "");'
        'cat(format(packageVersion("rrcov")))'
    )
    if shutil.which("Rscript") is None:
        return None
    said = subprocess.run(["Rscript", "-e", code], capture_output=True, text=True)
    if said.returncode:
        return None
    r, rrcov = said.stdout.split("|")
    return f"R {r}, rrcov {rrcov}"


class Hubert:
    """An R process that fits one table after another; they pass through files in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "fit.R").write_text(SCRIPT)
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(
            ["Rscript", "fit.R"], cwd=folder, stderr=subprocess.DEVNULL, **pipes
        )

    def fit(self, X: np.ndarray, q: int) -> Answer:
        np.savetxt(self.folder / "table.csv", X, delimiter=",")
        to_r, from_r = self.pipes()
        to_r.write(f"{q}\n")
        to_r.flush()
        said = from_r.readline().strip()
        if not said:
            raise RuntimeError("Rscript ended before it had fitted the table.")
        if said == "failed":
            return Answer(None, None, math.nan)
        axes = np.loadtxt(self.folder / "axes.csv", delimiter=",", ndmin=2)
        kept = np.loadtxt(self.folder / "kept.csv")
        return Answer(axes, kept == 0, float(said))

    def pipes(self) -> tuple[IO[str], IO[str]]:
        assert self.process.stdin is not None and self.process.stdout is not None
        return self.process.stdin, self.process.stdout


@contextmanager
def r_process(wanted: bool) -> Iterator[Hubert | None]:
    if not wanted:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        peer = Hubert(Path(folder))
        try:
            yield peer
        finally:
            peer.process.communicate()  # closes its input, at which it ends


# --- what is measured ----------------------------------------------------------------------------


def percent(values: list[float]) -> str:
    known = [v for v in values if not math.isnan(v)]
    return f"{100 * float(np.mean(known)):.1f}" if known else "-"


def measure(size: str, title: str, share: float, kind: str, n: int, peer: Hubert | None) -> None:
    rows, d, q = SIZES[size]
    found: dict[str, list[tuple[float, float, float, float, float]]] = {}
    for seed in range(n):
        table = drawn(rows, d, q, share, kind, seed)
        good = np.setdiff1d(np.arange(rows), table.bad)
        clean = angle(PPCA(q).fit(table.X[good]).components_.T, table.axes)
        methods = METHODS | ({PEER: peer.fit} if peer else {})
        for name, fit in methods.items():
            answer = fit(table.X, q)
            if answer.axes is None:
                continue
            wrong = right = math.nan
            if answer.flagged is not None:
                wrong = float(np.mean(answer.flagged[good]))
                right = float(np.mean(answer.flagged[table.bad])) if len(table.bad) else math.nan
            one = (angle(answer.axes, table.axes), clean, wrong, right, answer.seconds)
            found.setdefault(name, []).append(one)
    for name, measured in found.items():
        angles, clean_angles, wrong, right, seconds = map(list, zip(*measured, strict=True))
        ratio = float(np.mean(angles)) / float(np.mean(clean_angles))
        cells = [size, title, name, f"{np.mean(angles):.2f}", f"{ratio:.2f}", percent(wrong)]
        cells += [percent(right), f"{np.median(seconds):.2g}"]
        print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.robust")
    parser.add_argument("--replications", type=int, default=10, help="tables of each kind (10)")
    parser.add_argument("--python", action="store_true", help="leave out the rows of R")
    options = parser.parse_args()
    os.environ.update({f"{name}_NUM_THREADS": "1" for name in POOLS})  # for R
    r = r_version()
    if r is None and not options.python:
        print(
            "Rscript or its package rrcov was not found: the rows of PcaHubert are left out. "
            "On Debian: apt install r-cran-rrcov.",
            file=sys.stderr,
        )
    names = ("dualpca", "numpy", "scikit-learn")
    libraries = ", ".join(f"{name} {installed(name)}" for name in names)
    print(f"{cpu()}; {libraries}; {r or 'no R'}; {options.replications} tables of each kind\n")
    print(
        "| table | rows replaced | method | angle, ° | by the clean fit's "
        "| clean rows flagged, % | replaced rows flagged, % | s |"
    )
    print("|---|---|---|--:|--:|--:|--:|--:|")
    with (
        threadpool_limits(1),
        warnings.catch_warnings(),
        r_process(r is not None and not options.python) as peer,
    ):
        warnings.simplefilter("ignore")
        for size in SIZES:
            for title, share, kind in SPOILED:
                measure(size, title, share, kind, options.replications, peer)


if __name__ == "__main__":
    main()
