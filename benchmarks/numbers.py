"""`Imputer()` beside scikit-learn's imputers and mice: `python -m benchmarks numbers`.

Twelve public tables of numbers, which were listed here before anything was run on them, and which
no test and no setting was made with. A share of the known entries is hidden, several times;
everybody fills the same gaps, without options. scikit-learn's imputers get columns in standard
deviations, as their guides advise. mice is run once for each table and split: what it filled is
scored and kept in `mice.json`.
"""

from __future__ import annotations

import io
import json
import math
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer

from benchmarks.run import Row, Run
from dualpca import Imputer

HIDDEN, SPLITS, DRAWS = 0.15, 5, 10
OURS = "dualpca Imputer()"
KEPT = Path(__file__).parent / "mice.json"

ELEMENTS = "Al As Ba Ca Co Cr Cu Fe K La Mg Mn Na Ni P Pb Sr V Zn".split()

FROM_R = {
    "sleep": "VIM::sleep",
    "chorizon": f"VIM::chorizonDL[, c({', '.join(map(repr, ELEMENTS))})]",
    "Boston": "MASS::Boston",
    "Cars93": "MASS::Cars93",
    "UScrime": "MASS::UScrime",
    "Glass": "{data(Glass, package = 'mlbench'); Glass}",
    "Vehicle": "{data(Vehicle, package = 'mlbench'); Vehicle}",
    "USairpollution": "HSAUR3::USairpollution",
    "windspeed": "mice::windspeed",
    "decathlon": "{data(decathlon, package = 'FactoMineR'); decathlon}",
    "state": "state.x77",
    "bfi": "psych::bfi[1:500, 1:25]",
}
"""Tables that come with R, or with one of its packages; columns of numbers of three values or more.

Mammals, soil on the Kola peninsula, housing, cars, crime, glass, silhouettes, air, wind,
sports, states and a questionnaire.
"""

EXPORT = """
X <- as.data.frame({})
kept <- sapply(X, function(x) is.numeric(x) && length(unique(na.omit(x))) > 2)
write.csv(X[, kept], row.names = FALSE, na = "nan", quote = FALSE)
"""

MICE = """
suppressPackageStartupMessages(library(mice))
X <- read.csv("table.csv")
start <- proc.time()[["elapsed"]]
found <- mice(X, m = {draws}, seed = {seed}, printFlag = FALSE)
cat(proc.time()[["elapsed"]] - start)
drawn <- sapply(complete(found, "all"), function(t) unlist(t))
write.table(drawn, "drawn.csv", sep = ",", row.names = FALSE, col.names = FALSE)
"""


def from_r(name: str) -> np.ndarray:
    """Return the numbers of a table that comes with R."""
    command = ["Rscript", "-e", EXPORT.format(FROM_R[name])]
    said = subprocess.run(command, capture_output=True, text=True)
    if said.returncode:
        raise RuntimeError(f"R cannot give the table {name}:\n{said.stderr}")
    return np.genfromtxt(io.StringIO(said.stdout), delimiter=",", skip_header=1)


def hidden_from(X: np.ndarray, seed: int) -> np.ndarray:
    """Return the table without a share of its entries; a row that would lose all keeps all."""
    gone = np.random.default_rng(seed).random(X.shape) < HIDDEN
    gone[np.all(gone | np.isnan(X), axis=1)] = False
    return np.where(gone, np.nan, X)


def errors(filled: np.ndarray, shown: np.ndarray, X: np.ndarray) -> tuple[float, float]:
    """Return the absolute error by that of medians, averaged over columns, and the squared one.

    The latter is the root of the mean square, in standard deviations of the columns.
    """
    asked, scale = np.isnan(shown) & ~np.isnan(X), np.nanstd(X, axis=0)
    off = filled - X
    plain = np.nanmedian(shown, axis=0) - X
    by_column = [
        np.abs(off[rows, j]).mean() / reference
        for j, rows in enumerate(asked.T)
        if rows.any() and (reference := np.abs(plain[rows, j]).mean()) > 0
    ]
    return float(np.mean(by_column)), float(np.sqrt(np.mean((off / scale)[asked] ** 2)))


# --- who fills it --------------------------------------------------------------------------------

Result = dict[str, Any]


def ours(X: np.ndarray, shown: np.ndarray, seed: int) -> Result:
    start = time.perf_counter()
    imputer = Imputer().fit(shown)
    filled = imputer.transform(shown)
    seconds, model = time.perf_counter() - start, imputer.model_
    about = {"model": type(model).__name__, "q": int(model.n_components_)}
    return scored(filled, shown, X) | about | {"seconds": seconds}


def theirs(make: Callable[[], Any]) -> Callable[[np.ndarray, np.ndarray, int], Result]:
    def fill(X: np.ndarray, shown: np.ndarray, seed: int) -> Result:
        centre, scale = np.nanmean(shown, axis=0), np.nanstd(shown, axis=0)
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # IterativeImputer stops after its ten rounds
            filled = centre + scale * make().fit_transform((shown - centre) / scale)
        seconds = time.perf_counter() - start
        return scored(filled, shown, X) | {"seconds": seconds}

    return fill


def mice(X: np.ndarray, shown: np.ndarray, seed: int) -> Result:
    """Fill with the median of mice's draws, with their mean where squares are counted."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        header = ",".join(f"x{j}" for j in range(X.shape[1]))
        lines = [",".join("NA" if np.isnan(x) else repr(float(x)) for x in row) for row in shown]
        (here / "table.csv").write_text("\n".join([header, *lines]) + "\n")
        (here / "fill.R").write_text(MICE.format(draws=DRAWS, seed=seed + 1))
        said = subprocess.run(["Rscript", "fill.R"], cwd=folder, capture_output=True, text=True)
        if said.returncode:
            return {"failed": (said.stderr.strip().splitlines() or ["R failed"])[-1][:200]}
        drawn = np.genfromtxt(here / "drawn.csv", delimiter=",", missing_values="NA")
    draws = drawn.reshape(X.shape[1], len(X), DRAWS)
    if np.isnan(draws).any():
        return {"failed": "mice left gaps: it drops columns that follow from others"}
    found = scored(np.median(draws, axis=2).T, shown, X)
    found["squares"] = scored(draws.mean(axis=2).T, shown, X)["squares"]
    return found | {"seconds": float(said.stdout)}


def scored(filled: np.ndarray, shown: np.ndarray, X: np.ndarray) -> Result:
    numbers, squares = errors(filled, shown, X)
    return {"numbers": numbers, "squares": squares}


METHODS = {
    OURS: ours,
    "IterativeImputer": theirs(lambda: IterativeImputer(random_state=0)),
    "KNNImputer": theirs(KNNImputer),
    "mice": mice,
}


def measured(name: str, who: str, X: np.ndarray, seed: int) -> Result:
    """Hide, fill and compare, once; of mice what is kept, if it was run before."""
    shown = hidden_from(X, seed)
    if who != "mice":
        return METHODS[who](X, shown, seed)
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if (found := kept.get(name, {}).get(str(seed))) is None:
        found = kept.setdefault(name, {})[str(seed)] = mice(X, shown, seed)
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    return dict(found)


# --- what is told --------------------------------------------------------------------------------


def gap_to_best(results: dict[str, list[Result]], what: str) -> tuple[float, float, str]:
    """Return ours minus the best other, its standard error over splits, and who that is."""
    values = {
        who: np.array([one[what] for one in found])
        for who, found in results.items()
        if not any("failed" in one for one in found)
    }
    best = min((who for who in values if who != OURS), key=lambda who: values[who].mean())
    gap = values[OURS] - values[best]
    error = gap.std(ddof=1) / math.sqrt(gap.size) if gap.size > 1 else math.nan
    return float(gap.mean()), float(error), best


def told(name: str, results: dict[str, list[Result]]) -> Iterator[Row]:
    """Yield one row a method: means over splits."""
    for who, found in results.items():
        row: Row = {"name": name, "who": who, "ours": who == OURS, "splits": len(found)}
        row["failed"] = sum("failed" in one for one in found)
        if not row["failed"]:
            for what in ("numbers", "squares"):
                row[what] = float(np.mean([one[what] for one in found]))
            row["seconds"] = median(one["seconds"] for one in found)
        if who == OURS:
            row["q"] = sorted({one["q"] for one in found})
            row["model"] = " or ".join(sorted({one["model"] for one in found}))
            for what in ("numbers", "squares"):
                gap, error, best = gap_to_best(results, what)
                row[f"{what}_gap"], row[f"{what}_good"] = [gap, error, best], gap <= error
        yield row


def rows(run: Run, part: str) -> Iterator[Row]:
    X = from_r(part)
    splits = range(2 if run.quick else SPLITS)
    methods = [who for who in METHODS if who != "mice" or not run.quick]
    results = {who: [measured(part, who, X, seed) for seed in splits] for who in methods}
    yield from told(f"{part} {len(X)}×{X.shape[1]}", results)
