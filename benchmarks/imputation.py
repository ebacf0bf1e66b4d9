"""Imputation beside R's mice and Amelia, and scikit-learn's: `python -m benchmarks imputation`.

Entries of public tables are removed, every method fills the same holes, and what it says of them
is compared with what was there: error and 90 % intervals of entries, and 95 % intervals of the
coefficients of a regression, pooled over M completed tables. R is started once for each table and
mechanism and fills its tables in turn with ours. One thread.

Intervals of entries are those of M normal draws, x̄ ± t·s·√(1 + 1/M) with M - 1 degrees of freedom,
for everybody, and impute's own standard deviation for one row of ours. The reference of a
coefficient is its estimate from the complete table. That reference shares its rows with the pooled
estimate, so the pooled interval (`pooled`) must cover it more often than 95 %; by Rubin's theory it
is the interval of the missing part alone, Q̄ ± t·√((1 + 1/M)B), that should cover it in 95 %
(`missing part`).
"""

from __future__ import annotations

import math
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from scipy.special import expit
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.datasets import load_wine
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

import dualpca
from benchmarks.run import Row, Run
from dualpca import PPCA
from dualpca.errors import DegenerateError

M = 20
ENTRY_LEVEL, POOLED_LEVEL = 0.90, 0.95
DRAWN = ("fixed", "bootstrap")
OURS = "dualpca"


class Table(NamedTuple):
    """Rows, and the analyst's model: a response and its predictors, by column number."""

    X: np.ndarray
    names: list[str]
    response: int
    predictors: list[int]
    driver: int  # never removed where missingness depends on a column: on this one
    replications: int


class Filled(NamedTuple):
    """What a method says of the holes: completed tables (m, n, d), and a spread if it has one."""

    point: np.ndarray
    draws: np.ndarray  # single imputation: the point alone
    std: np.ndarray | None = None
    q: int | None = None


class Pooled(NamedTuple):
    """One analysis of several tables, by Rubin's rules."""

    estimate: float
    variance: float
    between: float
    dof: float

    def interval(self, level: float) -> tuple[float, float]:
        half = student.ppf((1 + level) / 2, self.dof) * math.sqrt(self.variance)
        return self.estimate - half, self.estimate + half


def rubin(estimates: np.ndarray, variances: np.ndarray, *, dof: float) -> Pooled:
    """Pool m analyses (Rubin 1987), with the degrees of freedom of Barnard and Rubin (1999)."""
    m, within = len(estimates), float(np.mean(variances))
    between = float(np.var(estimates, ddof=1)) if m > 1 else 0.0
    extra = (1 + 1 / m) * between
    share = extra / (within + extra)
    observed = (dof + 1) / (dof + 3) * dof * (1 - share)
    large = (m - 1) / share**2 if share > 0 else math.inf
    both = 1 / (1 / observed + 1 / large)
    return Pooled(float(np.mean(estimates)), within + extra, between, both)


def pool(estimates: np.ndarray, variances: np.ndarray, dof: float) -> Any:
    """Return what `dualpca.pool` says; one table alone is analysed as if it were complete."""
    ours = dualpca.pool if len(estimates) > 1 else rubin
    return ours(estimates, variances, dof=dof)


def regression(X: np.ndarray, table: Table) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the coefficients without the intercept, their variances and degrees of freedom."""
    A = np.column_stack([np.ones(len(X)), X[:, table.predictors]])
    y = X[:, table.response]
    inverse = np.linalg.inv(A.T @ A)
    beta = inverse @ (A.T @ y)
    dof = len(A) - A.shape[1]
    variances = np.diag(inverse) * (np.sum((y - A @ beta) ** 2) / dof)
    return beta[1:], variances[1:], dof


# --- what is removed -----------------------------------------------------------------------------


def completely_at_random(X: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return a mask of holes, each entry a hole with the same probability."""
    return rng.random(X.shape) < share


def depending_on(
    X: np.ndarray, driver: int, share: float, rng: np.random.Generator, slope: float = 2.0
) -> np.ndarray:
    """Return a mask of holes, more of them where column `driver` is high; itself it has none.

    logit P(hole) = a + slope·z with z the standardised driver, and `a` such that `share` of the
    entries of the other columns are holes on average.
    """
    z = slope * (X[:, driver] - X[:, driver].mean()) / X[:, driver].std()
    low, high = -50.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if expit(middle + z).mean() < share else (low, middle)
    holes = rng.random(X.shape) < expit(low + z)[:, None]
    holes[:, driver] = False
    return holes


def mechanisms(table: Table) -> dict[str, Callable[[np.random.Generator], np.ndarray]]:
    X = table.X
    if np.isnan(X).any():  # measured entries are removed beside the real gaps
        return {"real gaps + 10 % at random": lambda rng: completely_at_random(X, 0.1, rng)}
    by = table.names[table.driver]
    return {
        "10 % at random": lambda rng: completely_at_random(X, 0.1, rng),
        "30 % at random": lambda rng: completely_at_random(X, 0.3, rng),
        f"30 %, more for high {by}": lambda rng: depending_on(X, table.driver, 0.3, rng),
    }


def removed(table: Table, mechanism: Callable[..., np.ndarray], seed: int) -> np.ndarray:
    """Return the table with entries removed; a row that would lose all keeps all."""
    holes = mechanism(np.random.default_rng(seed))
    holes[np.all(holes | np.isnan(table.X), axis=1)] = False
    return np.where(holes, np.nan, table.X)


# --- who fills it --------------------------------------------------------------------------------


def standardised(X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows in standard deviations, centre and scale, for those who work in one unit."""
    centre, scale = np.nanmean(X, axis=0), np.nanstd(X, axis=0)
    return (X - centre) / scale, centre, scale


def ours(X: np.ndarray, seed: int) -> Iterator[tuple[str, Filled | None, float]]:
    """Fit, impute and draw, in standard deviations.

    One fit serves all rows of ours with the default number of components, and counts in each.
    """
    Z, centre, scale = standardised(X)
    for title, q in (("cv", "cv"), ("d - 1", X.shape[1] - 1)):
        start = time.perf_counter()
        try:
            model = PPCA(q).fit(Z)
        except DegenerateError:  # no noise is left: counted as a failure, as R's are
            yield f"{OURS} {title}, {DRAWN[-1]} draws", None, math.nan
            continue
        fitted = time.perf_counter() - start
        point, std = model.impute(Z, return_std=True)
        imputed = time.perf_counter() - start
        point = centre + scale * point
        answer = Filled(point, point[None], scale * std, model.n_components_)
        if title == "cv":
            yield f"{OURS} {title}, impute", answer, imputed
        for how in DRAWN if title == "cv" else DRAWN[-1:]:
            start = time.perf_counter()
            name = f"{OURS} {title}, {how} draws"
            try:
                draws = model.sample_imputations(Z, M, random_state=seed, parameters=how)
            except np.linalg.LinAlgError:  # likewise
                yield name, None, math.nan
                continue
            drawn = time.perf_counter() - start
            yield name, answer._replace(draws=centre + scale * draws), fitted + drawn


def single(imputer: Any) -> Callable[[np.ndarray, int], Filled]:
    def fill(X: np.ndarray, seed: int) -> Filled:
        Z, centre, scale = standardised(X)
        point = centre + scale * imputer.fit_transform(Z)
        return Filled(point, point[None])

    return fill


SINGLE = {
    "column means": single(SimpleImputer()),
    "sklearn KNNImputer": single(KNNImputer()),
    "sklearn IterativeImputer": single(IterativeImputer(random_state=0)),
}

SCRIPT = r"""
suppressPackageStartupMessages({library(mice); library(Amelia)})
M <- %d
methods <- list(
  "mice pmm" = function(X) complete(mice(X, m = M, method = "pmm", printFlag = FALSE), "all"),
  "mice norm" = function(X) complete(mice(X, m = M, method = "norm", printFlag = FALSE), "all"),
  "Amelia" = function(X) amelia(X, m = M, p2s = 0)$imputations
)
input <- file("stdin", "r")
while (length(seed <- readLines(input, 1))) {
  X <- read.csv("table.csv")
  holes <- which(is.na(as.matrix(X)))
  for (name in names(methods)) {
    set.seed(as.integer(seed))
    start <- proc.time()[["elapsed"]]
    tables <- tryCatch(methods[[name]](X), error = function(e) NULL)
    seconds <- proc.time()[["elapsed"]] - start
    file <- paste0(gsub(" ", "-", name), ".csv")
    drawn <- tryCatch(sapply(tables, function(t) as.matrix(t)[holes]), error = function(e) NULL)
    if (is.matrix(drawn) && ncol(drawn) == M && !anyNA(drawn)) {
      write.table(drawn, file, sep = ",", row.names = FALSE, col.names = FALSE)
      cat(name, seconds, "\n", sep = "\t")
    } else cat(name, "failed", "\n", sep = "\t")
  }
  cat("done\n")
}
"""
PEERS = ("mice pmm", "mice norm", "Amelia")


def shipped_with_r(name: str) -> tuple[np.ndarray, list[str]]:
    """Return a table of R's `datasets` and the names of its columns."""
    code = f"write.csv({name}, row.names = FALSE, quote = FALSE)"
    said = subprocess.run(["Rscript", "-e", code], capture_output=True, text=True, check=True)
    header, *lines = said.stdout.splitlines()
    rows = [[math.nan if cell == "NA" else float(cell) for cell in s.split(",")] for s in lines]
    return np.array(rows), header.split(",")


class R:
    """An R process that fills one table after another; they pass through CSV files in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "fill.R").write_text(SCRIPT % M)
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(
            ["Rscript", "fill.R"], cwd=folder, stderr=subprocess.DEVNULL, **pipes
        )

    def fill(self, X: np.ndarray, seed: int) -> dict[str, tuple[Filled | None, float]]:
        """Return for each of its methods the completed tables and the seconds it took."""
        header = ",".join(f"x{j}" for j in range(X.shape[1]))
        lines = [",".join("NA" if np.isnan(x) else repr(float(x)) for x in row) for row in X]
        (self.folder / "table.csv").write_text("\n".join([header, *lines]) + "\n")
        to_r, from_r = self.pipes()
        to_r.write(f"{seed}\n")
        to_r.flush()
        found: dict[str, tuple[Filled | None, float]] = {}
        for line in iter(from_r.readline, "done\n"):
            if not line:
                raise RuntimeError("Rscript ended before it had filled the table.")
            name, seconds, *_ = line.split("\t")
            failed = seconds == "failed"
            found[name] = (None, math.nan) if failed else (self.drawn(name, X), float(seconds))
        return found

    def drawn(self, name: str, X: np.ndarray) -> Filled:
        path = self.folder / f"{name.replace(' ', '-')}.csv"
        values = np.loadtxt(path, delimiter=",", ndmin=2)
        draws = np.repeat(X.T[None], M, axis=0)
        draws[:, np.isnan(X.T)] = values.T  # R counts down the columns
        draws = draws.transpose(0, 2, 1)
        return Filled(draws.mean(axis=0), draws)

    def pipes(self) -> tuple[IO[str], IO[str]]:
        assert self.process.stdin is not None and self.process.stdout is not None
        return self.process.stdin, self.process.stdout


@contextmanager
def r_process() -> Iterator[R]:
    with tempfile.TemporaryDirectory() as folder:
        peer = R(Path(folder))
        try:
            yield peer
        finally:
            peer.process.communicate()  # closes its input, at which it ends


# --- what is measured ----------------------------------------------------------------------------


class Score(NamedTuple):
    """One method on one table; errors and widths in standard deviations of the columns."""

    squares: float
    outside: float
    covered: float
    width: float
    errors: np.ndarray  # of coefficients, in standard errors from the complete table
    pooled: np.ndarray  # does the pooled interval cover the reference?
    missing_part: np.ndarray
    widths: np.ndarray  # of the pooled interval, by that from the complete table
    seconds: float
    q: int | None


def band(filled: Filled) -> tuple[np.ndarray, np.ndarray] | None:
    """Return centre and half width of the intervals of all entries."""
    m = len(filled.draws)
    if m > 1:
        t = student.ppf((1 + ENTRY_LEVEL) / 2, m - 1) * math.sqrt(1 + 1 / m)
        return filled.draws.mean(axis=0), t * filled.draws.std(axis=0, ddof=1)
    if filled.std is None:
        return None
    return filled.point, norm.ppf((1 + ENTRY_LEVEL) / 2) * filled.std


def analysed(filled: Filled, table: Table) -> list[Any]:
    """Return the pooled analysis of each coefficient."""
    found = [regression(X, table) for X in filled.draws]
    estimates, variances = np.array([f[0] for f in found]), np.array([f[1] for f in found])
    dof = found[0][2]
    return [pool(estimates[:, k], variances[:, k], dof) for k in range(estimates.shape[1])]


def score(filled: Filled, X: np.ndarray, table: Table, seconds: float) -> Score:
    """Compare what was filled in with what was there."""
    truth = table.X
    asked = np.isnan(X) & ~np.isnan(truth)
    scale = np.broadcast_to(np.nanstd(truth, axis=0), truth.shape)[asked]
    squares = float(np.mean(((filled.point - truth)[asked] / scale) ** 2))
    low, high = np.nanmin(X, axis=0), np.nanmax(X, axis=0)
    beyond = ((filled.draws < low) | (filled.draws > high))[:, np.isnan(X)]
    covered = width = math.nan
    if (found := band(filled)) is not None:
        centre, half = (part[asked] for part in found)
        covered = float(np.mean(np.abs(truth[asked] - centre) <= half))
        width = float(np.mean(2 * half / scale))
    nothing = np.full(len(table.predictors), math.nan)
    errors, pooled, missing_part, widths = nothing, nothing, nothing, nothing
    if not np.isnan(truth).any():
        beta, variances, dof = regression(truth, table)
        se, m = np.sqrt(variances), len(filled.draws)
        answers = analysed(filled, table)
        errors = np.array([float(a.estimate) for a in answers] - beta) / se
        ends = np.array([a.interval(POOLED_LEVEL) for a in answers], dtype=float)
        pooled = ((ends[:, 0] <= beta) & (beta <= ends[:, 1])).astype(float)
        complete = 2 * student.ppf((1 + POOLED_LEVEL) / 2, dof) * se
        widths = (ends[:, 1] - ends[:, 0]) / complete
        if m > 1:
            between = np.array([float(a.between) for a in answers])
            half = student.ppf((1 + POOLED_LEVEL) / 2, m - 1) * np.sqrt((1 + 1 / m) * between)
            missing_part = (np.abs(errors * se) <= half).astype(float)
    outside = float(beyond.mean())
    about = (errors, pooled, missing_part, widths)
    return Score(squares, outside, covered, width, *about, seconds, filled.q)


def replication(X: np.ndarray, seed: int, peer: R) -> Iterator[tuple[str, Filled | None, float]]:
    """Yield every method's answer and its seconds, one after the other."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # IterativeImputer stops after its ten rounds
        for name, fill in SINGLE.items():
            start = time.perf_counter()
            filled = fill(X, seed)
            yield name, filled, time.perf_counter() - start
        yield from ours(X, seed)
    for name, (answer, seconds) in peer.fill(X, seed).items():
        yield name, answer, seconds


def averaged(scores: list[Score], mice: list[Score]) -> Row:
    """Return means over the replications, and the median ratio of seconds to those of mice."""

    def mean(what: str) -> float:
        return float(np.mean([getattr(s, what) for s in scores]))

    biases = np.mean([s.errors for s in scores], axis=0)
    found: Row = {"rmse": mean("squares") ** 0.5, "bias": float(biases[np.argmax(np.abs(biases))])}
    for key in ("outside", "covered", "width", "pooled", "missing_part", "widths"):
        found[key] = mean(key)
    found["seconds"] = float(np.median([s.seconds for s in scores]))
    if len(mice) == len(scores):
        pairs = zip(scores, mice, strict=True)
        found["by_mice"] = float(np.median([a.seconds / b.seconds for a, b in pairs]))
    q = sorted({s.q for s in scores if s.q is not None})
    return found | {"replications": len(scores)} | ({"q": [q[0], q[-1]]} if q else {})


def measured(run: Run, title: str, table: Table) -> Iterator[Row]:
    for how, mechanism in mechanisms(table).items():
        found: dict[str, list[Score]] = {}
        failed: dict[str, int] = {}
        with r_process() as peer:
            for seed in run.repeats(1 if run.quick else table.replications, fewest=2):
                X = removed(table, mechanism, seed)
                for name, filled, seconds in replication(X, seed, peer):
                    if filled is None:
                        failed[name] = failed.get(name, 0) + 1
                    else:
                        found.setdefault(name, []).append(score(filled, X, table, seconds))
        rows = {name: averaged(scores, found.get(PEERS[0], [])) for name, scores in found.items()}
        fastest = min((rows[peer]["seconds"] for peer in PEERS if peer in rows), default=math.nan)
        for name, row in rows.items():
            row = {"name": f"{title}, {how}", "who": name, "ours": name.startswith(OURS)} | row
            if name.startswith(OURS) and name.endswith("draws"):  # what the peers do, too
                row["ratio"] = row["seconds"] / fastest
            yield row | ({"failed": failed[name]} if name in failed else {})


def coefficients(title: str, table: Table) -> Iterator[Row]:
    """Yield the analyst's coefficients, pooled from the table with its own gaps."""
    names = [table.names[j] for j in table.predictors]
    complete = table.X[~np.isnan(table.X).any(axis=1)]
    with r_process() as peer:
        answers = [("complete rows only", Filled(complete, complete[None]), 0.0)]
        for who, filled, _ in answers + list(replication(table.X, 0, peer)):
            if filled is None:
                continue
            pooled = zip(names, analysed(filled, table), strict=True)
            found = {name: [float(p.estimate), math.sqrt(p.variance)] for name, p in pooled}
            response = table.names[table.response]
            yield {"name": title, "who": who, "response": response, "coefficients": found}


def table_of(part: str) -> Table:
    """Return a table and the analyst's model; two of them come with R."""
    if part == "airquality":
        return Table(*shipped_with_r(part), 0, [2, 3], 3, 6)  # Ozone by Wind and Temp
    if part == "swiss":
        return Table(*shipped_with_r(part), 0, [1, 3, 4], 5, 10)  # Fertility by Agriculture, …
    wine = load_wine()
    names = list(wine.feature_names)
    predictors = [names.index(name) for name in ("alcohol", "flavanoids", "color_intensity")]
    return Table(wine.data, names, names.index("proline"), predictors, 0, 4)


def rows(run: Run, part: str) -> Iterator[Row]:
    table = table_of(part)
    title = f"{part} {'×'.join(map(str, table.X.shape))}"
    yield from measured(run, title, table)
    if np.isnan(table.X).any():
        yield from coefficients(part, table)
