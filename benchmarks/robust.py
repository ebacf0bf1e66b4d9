"""Axes that outliers do not turn, beside R's PcaHubert: `python -m benchmarks robust`.

Rows are drawn from q directions plus noise. A share of them is replaced by gross outliers, each in
a direction of its own (scattered) or all at one place (clustered), and every method fits the same
table. Measured are the largest angle between the fitted axes and the true ones, its ratio to that
of PPCA fitted to the clean rows alone, and how many of the clean and of the replaced rows are
called outliers at 95 % (PcaHubert: score and orthogonal distances, each at 97.5 %). All but the
seconds are means over the replications; seconds are medians, one thread.
"""

from __future__ import annotations

import math
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from sklearn.covariance import MinCovDet

from benchmarks.run import Row, Run
from dualpca import PPCA, RobustPPCA

LEVEL, REPLICATIONS = 0.95, 10
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
def r_process() -> Iterator[Hubert]:
    with tempfile.TemporaryDirectory() as folder:
        peer = Hubert(Path(folder))
        try:
            yield peer
        finally:
            peer.process.communicate()  # closes its input, at which it ends


# --- what is measured ----------------------------------------------------------------------------


def measured(table: Rows, q: int, peer: Hubert) -> Iterator[tuple[str, Row]]:
    """Yield what each method finds in one table."""
    good = np.setdiff1d(np.arange(len(table.X)), table.bad)
    clean = angle(PPCA(q).fit(table.X[good]).components_.T, table.axes)
    for name, fit in (METHODS | {PEER: peer.fit}).items():
        answer = fit(table.X, q)
        if answer.axes is None:
            continue
        row = {"angle": angle(answer.axes, table.axes), "clean": clean, "seconds": answer.seconds}
        if answer.flagged is not None:
            row["wrong"] = float(np.mean(answer.flagged[good]))
            row["right"] = float(np.mean(answer.flagged[table.bad])) if len(table.bad) else None
        yield name, row


def averaged(found: list[Row]) -> Row:
    def mean(key: str) -> float | None:
        known = [one[key] for one in found if one.get(key) is not None]
        return float(np.mean(known)) if known else None

    row = {key: mean(key) for key in ("angle", "wrong", "right")}
    row["by_clean"] = float(row["angle"] / mean("clean"))
    return row | {"seconds": float(np.median([one["seconds"] for one in found]))}


def rows(run: Run, part: str) -> Iterator[Row]:
    n, d, q = SIZES[part]
    with r_process() as peer:
        for title, share, kind in SPOILED:
            found: dict[str, list[Row]] = {}
            for seed in run.repeats(2 if run.quick else REPLICATIONS, fewest=2):
                for name, one in measured(drawn(n, d, q, share, kind, seed), q, peer):
                    found.setdefault(name, []).append(one)
            rows = {name: averaged(several) for name, several in found.items()}
            slow = rows.get(PEER, {}).get("seconds")
            for name, row in rows.items():
                ours = name.startswith("dualpca Robust")
                about = {"name": f"{part}, {title}", "who": name, "ours": ours}
                yield about | row | ({"ratio": row["seconds"] / slow} if ours and slow else {})
