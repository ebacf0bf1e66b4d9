"""Filling gaps in tables of numbers and categories, beside others: `python -m benchmarks mixed`.

A tenth of the known entries of a table is hidden at random, everybody fills the same gaps, and what
was hidden is compared with what was put there. For numbers: mean absolute error by that of the
column's median, averaged over the columns. For categories, ordered or not: the share of wrong
levels, averaged over the columns. Both are given with their standard error over the splits.

The tables come with R and its packages, two are simulated. mice runs in R; gcimpute is found if it
can be imported, for instance from a folder named in PYTHONPATH:

    pip install --no-deps --target FOLDER gcimpute statsmodels patsy

What others fill does not change with our code: they are run once for each table and split, and what
they got is kept in `mixed_peers.json`. `Imputer()` is the copula and regressions together.

Two parts measure time alone. `speed`: the same number of components beside gcimpute, and a million
rows. `time`: `Imputer()`, `CopulaPPCA()` and mice without options on every table of less than a
thousand rows, in turn. One thread each.
"""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer

from benchmarks.memory import extra_megabytes
from benchmarks.mixed_data import copula_table, load, without
from benchmarks.run import Row, Run
from benchmarks.sections import MORE, SEEN, UNSEEN

HIDDEN, DRAWS, TREES, ROUNDS = 0.1, 20, 100, 10
OURS, COPULA = "Imputer", "CopulaPPCA"
SPLITS, TURNS = 3, 1
SMALL = 1000
LIMIT = 120
"""Seconds of the processor for Amelia, whose EM need not end where columns nearly coincide."""
KEPT = Path(__file__).parent / "mixed_peers.json"


# --- one table, as numbers -----------------------------------------------------------------------


class Codes:
    """A table as numbers and back: codes for two or ordered levels, else one column a level."""

    def __init__(self, X: pd.DataFrame) -> None:
        self.X = X
        self.width = [1 if self.scalar(name) else len(self.levels(name)) for name in X]

    def is_number(self, name: str) -> bool:
        return self.X[name].dtype != "category"

    def levels(self, name: str) -> pd.Index:
        """Return the levels that occur."""
        return self.X[name].cat.remove_unused_categories().cat.categories

    def scalar(self, name: str) -> bool:
        return self.is_number(name) or self.X[name].dtype.ordered or len(self.levels(name)) < 3

    def codes(self, name: str) -> np.ndarray:
        """Return numbers as they are, or the number of each level; NaN where missing."""
        if self.is_number(name):
            return self.X[name].to_numpy(float)
        return self.levels(name).get_indexer(self.X[name]).astype(float) + np.where(
            self.X[name].isna(), np.nan, 0.0
        )

    def matrix(self) -> np.ndarray:
        columns = []
        for name in self.X:
            codes = self.codes(name)
            if self.scalar(name):
                columns.append(codes)
                continue
            ones = codes[:, None] == np.arange(len(self.levels(name)))
            columns.extend(np.where(np.isnan(codes)[:, None], np.nan, ones).T)
        return np.column_stack(columns)

    def table(self, A: np.ndarray) -> pd.DataFrame:
        """Return numbers as a table: the nearest level, or the one with the largest column."""
        at, filled = 0, {}
        for name, width in zip(self.X, self.width, strict=True):
            part, at = A[:, at : at + width], at + width
            filled[name] = self.column(name, part[:, 0] if self.scalar(name) else part.argmax(1))
        return pd.DataFrame(filled)

    def column(self, name: str, values: np.ndarray) -> Any:
        """Return filled-in codes as a column of the table, known entries as they were."""
        if self.is_number(name):
            return values
        levels = self.levels(name)
        nearest = np.clip(np.rint(np.nan_to_num(values)), 0, len(levels) - 1).astype(int)
        known = pd.Series(pd.Categorical(levels[nearest], dtype=self.X[name].dtype))
        return known.where(self.X[name].isna().to_numpy(), self.X[name].to_numpy())


# --- who fills it --------------------------------------------------------------------------------


class Filled(NamedTuple):
    X: pd.DataFrame
    q: int | None = None
    seconds: float | None = None  # where the method has measured itself


def middle(X: pd.DataFrame, seed: int) -> Filled:
    """Fill with the median or the most frequent level."""
    return Filled(
        pd.DataFrame(
            {
                name: x.fillna(x.mode()[0] if x.dtype == "category" else x.median())
                for name, x in X.items()
            }
        )
    )


def by_numbers(imputer: Callable[[], Any]) -> Callable[[pd.DataFrame, int], Filled]:
    """Fill by a method for numbers, in standard deviations."""

    def fill(X: pd.DataFrame, seed: int) -> Filled:
        codes = Codes(X)
        A = codes.matrix()
        centre, scale = np.nanmean(A, axis=0), np.nanstd(A, axis=0)
        scale[scale == 0] = 1
        filled = imputer().fit_transform((A - centre) / scale)
        return Filled(codes.table(centre + scale * filled))

    return fill


def ours(X: pd.DataFrame, seed: int) -> Filled:
    from dualpca import Imputer

    imputer = Imputer(random_state=seed).fit(X)
    return Filled(imputer.transform(X), imputer.model_.n_components_)


def copula(X: pd.DataFrame, seed: int) -> Filled:
    from dualpca import CopulaPPCA

    model = CopulaPPCA(random_state=seed).fit(X)
    return Filled(model.impute(X), model.n_components_)


def forests(X: pd.DataFrame, seed: int) -> Filled:
    """Fill by random forests as MissForest does (Stekhoven & Bühlmann 2012).

    Columns in turn, those with the fewest gaps first, until the change grows; then the table
    before is taken.
    """
    codes, now = Codes(X), middle(X, seed).X
    gaps = X.isna()
    order = [name for name in gaps.sum().sort_values(kind="stable").index if gaps[name].any()]
    before, last = now, math.inf
    for _ in range(ROUNDS):
        before, now = now, now.copy()
        for name in order:
            others = Codes(now.drop(columns=name)).matrix()
            hole, y = gaps[name].to_numpy(), codes.codes(name).copy()
            kind = RandomForestRegressor if codes.is_number(name) else RandomForestClassifier
            forest = kind(TREES, random_state=seed, max_features="sqrt")
            forest.fit(others[~hole], y[~hole])
            y[hole] = forest.predict(others[hole])
            now[name] = codes.column(name, y)
        change = difference(now, before, gaps)
        if change >= last:
            return Filled(before)
        last = change
    return Filled(now)


def difference(A: pd.DataFrame, B: pd.DataFrame, gaps: pd.DataFrame) -> float:
    """Return MissForest's change: of numbers relative to their squares, plus the levels' share."""
    top = bottom = wrong = levels = 0.0
    for name in A:
        hole = gaps[name].to_numpy()
        a, b = A[name][hole], B[name][hole]
        if A[name].dtype == "category":
            wrong, levels = wrong + float((a != b).sum()), levels + len(a)
        else:
            scale = float(A[name].std()) or 1.0
            top += float((((a - b) / scale) ** 2).sum())
            bottom += float(((a / scale) ** 2).sum())
    return top / max(bottom, 1e-300) + wrong / max(levels, 1.0)


def put_back_aliases() -> None:
    """Give NumPy the names that gcimpute still uses and NumPy 2 has dropped."""
    names = {"float": float, "int": int, "bool": bool, "object": object, "round_": np.round}
    names |= {"NaN": np.nan, "Inf": np.inf, "product": np.prod, "float_": np.float64}
    for name, meaning in names.items():
        if name not in vars(np):
            setattr(np, name, meaning)


def gcimpute_model(rank: int | None) -> Any:
    put_back_aliases()
    from gcimpute.gaussian_copula import GaussianCopula
    from gcimpute.low_rank_gaussian_copula import LowRankGaussianCopula

    return GaussianCopula() if rank is None else LowRankGaussianCopula(rank=rank)


def gcimpute_fill(X: pd.DataFrame, rank: int | None) -> pd.DataFrame:
    """Fill with gcimpute, kinds of columns by its own rule.

    It has no nominal columns: each level is a column of 0 and 1, but for the most frequent one,
    since the full correlation matrix would be singular with it. What decides is the latent
    coordinate beyond the threshold of its column; if none is, the most frequent level is taken.
    """
    codes = Codes(X)
    A = codes.matrix()
    share = np.nanmean(A, axis=0)
    model, used = gcimpute_model(rank), np.ones(A.shape[1], dtype=bool)
    starts = np.cumsum([0, *codes.width[:-1]])
    groups = [np.arange(a, a + k) for a, k in zip(starts, codes.width, strict=True) if k > 1]
    for group in groups:
        used[group[np.argmax(share[group])]] = False
    filled = np.zeros(A.shape)
    with contextlib.redirect_stdout(None):
        filled[:, used] = model.fit_transform(A[:, used])
    beyond = np.zeros(A.shape)
    beyond[:, used] = model._latent_Zimp
    for group in groups:
        beyond[:, group] -= np.where(used[group], ndtri(1 - share[group]), 0)
        filled[:, group] = beyond[:, group]
    return codes.table(filled)


def gcimpute_full(X: pd.DataFrame, seed: int) -> Filled:
    return Filled(gcimpute_fill(X, None))


IN_R = r"""
X <- read.csv("table.csv")
ordered <- scan("ordered.txt", "", quiet = TRUE)
nominal <- scan("nominal.txt", "", quiet = TRUE)
start <- proc.time()
%s
took <- proc.time() - start
cat(took[["elapsed"]], took[["user.self"]] + took[["sys.self"]])
number <- function(x) if (is.factor(x)) as.numeric(as.character(x)) else x
drawn <- sapply(tables, function(t) unlist(lapply(t, number)))
write.table(drawn, "drawn.csv", sep = ",", row.names = FALSE, col.names = FALSE)
"""
MICE = """
suppressPackageStartupMessages(library(mice))
for (name in ordered) X[[name]] <- factor(X[[name]], ordered = TRUE)
for (name in nominal) X[[name]] <- factor(X[[name]])
tables <- complete(mice(X, %s, printFlag = FALSE), "all")
"""
AMELIA = """
suppressPackageStartupMessages(library(Amelia))
set.seed(%d)
given <- function(names) if (length(names)) names else NULL
found <- amelia(X, m = %d, p2s = 0, ords = given(ordered), noms = given(nominal))
tables <- found$imputations
if (is.null(tables) || anyNA(tables)) stop(found$message)
"""


def mice_draws(X: pd.DataFrame, options: str) -> tuple[np.ndarray, float, float]:
    return draws_in_r(X, MICE % options)


def draws_in_r(
    X: pd.DataFrame, script: str, limit: int | None = None
) -> tuple[np.ndarray, float, float]:
    """Return draws of the codes, (d, n, m), and the seconds: elapsed, and of the CPU."""
    codes = Codes(X)
    names = {name: f"x{j}" for j, name in enumerate(X)}
    kinds: dict[str, list[str]] = {"ordered": [], "nominal": []}
    for name in X:
        if not codes.is_number(name):
            kinds["ordered" if X[name].dtype.ordered else "nominal"].append(names[name])
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        table = pd.DataFrame({names[name]: codes.codes(name) for name in X})
        table.to_csv(here / "table.csv", index=False, na_rep="NA")
        for kind, who in kinds.items():
            (here / f"{kind}.txt").write_text(" ".join(who) + "\n")
        (here / "fill.R").write_text(IN_R % script)
        command = ["prlimit", f"--cpu={limit}"] if limit else []
        said = subprocess.run(
            [*command, "Rscript", "fill.R"], cwd=folder, capture_output=True, text=True
        )
        if said.returncode:
            why = said.stderr.strip().splitlines() or [f"no result within {limit} s of the CPU"]
            raise RuntimeError(why[-1])
        drawn = np.genfromtxt(here / "drawn.csv", delimiter=",", missing_values="NA")
    seconds, of_cpu = map(float, said.stdout.split())
    return drawn.reshape(X.shape[1], len(X), -1), seconds, of_cpu


def mice(options: str) -> Callable[[pd.DataFrame, int], Filled]:
    return by_draws(lambda seed: MICE % f"m = {DRAWS}, seed = {seed + 1}{options}")


def by_draws(
    script: Callable[[int], str], limit: int | None = None
) -> Callable[[pd.DataFrame, int], Filled]:
    """Fill with the median or the most frequent level of draws that a script of R makes."""

    def fill(X: pd.DataFrame, seed: int) -> Filled:
        codes, filled = Codes(X), {}
        draws, seconds, _ = draws_in_r(X, script(seed), limit)
        for name, values in zip(X, draws, strict=True):
            pooled = np.median(values, axis=1) if codes.is_number(name) else most_frequent(values)
            filled[name] = codes.column(name, pooled)
        return Filled(pd.DataFrame(filled), None, seconds)

    return fill


def most_frequent(draws: np.ndarray) -> np.ndarray:
    """Return the most frequent code of each row, the first of those that tie."""
    counts = (draws[:, :, None] == np.arange(np.nanmax(draws) + 1)).sum(axis=1)
    return counts.argmax(axis=1).astype(float)


METHODS: dict[str, Callable[[pd.DataFrame, int], Filled]] = {
    OURS: ours,
    COPULA: copula,
    "gcimpute": gcimpute_full,
    "mice": mice(""),
    "mice pmm": mice(', method = "pmm"'),
    "Amelia": by_draws(lambda seed: AMELIA % (seed + 1, DRAWS), LIMIT),
    "IterativeImputer": by_numbers(lambda: IterativeImputer(random_state=0)),
    "KNNImputer": by_numbers(KNNImputer),
    "random forests": forests,
    "median, mode": middle,
}


# --- what is measured ----------------------------------------------------------------------------


def split(X: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return the table with a tenth of its known entries hidden; no row or column loses all."""
    known = X.notna().to_numpy()
    holes = known & (np.random.default_rng(seed).random(X.shape) < HIDDEN)
    holes[~(known & ~holes).any(axis=1)] = False
    return without(X, holes)


def score(filled: pd.DataFrame, hidden: pd.DataFrame, X: pd.DataFrame) -> tuple[float, float]:
    """Return the scaled absolute error of numbers and the share of wrong levels."""
    numbers, levels = [], []
    for name in X:
        asked = (hidden[name].isna() & X[name].notna()).to_numpy()
        truth, said = X[name][asked], filled[name].set_axis(X.index)[asked]
        if X[name].dtype == "category":
            levels.append(np.mean(truth.astype(str).to_numpy() != said.astype(str).to_numpy()))
            continue
        reference = np.abs(truth - hidden[name].median()).mean()
        if reference > 0:
            numbers.append(np.abs(truth - said.astype(float)).mean() / reference)
    return tuple(float(np.mean(x)) if x else math.nan for x in (numbers, levels))


Result = dict[str, Any]


def measure(name: str, who: str, X: pd.DataFrame, seed: int) -> Result:
    """Hide, fill and compare, once; of others what is kept, if they were run before."""
    if who in (OURS, COPULA):
        return measured(name, who, X, seed)
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else []
    about = (name, who, seed)
    for found in kept:
        if (found["table"], found["who"], found["split"]) == about:
            return dict(found)
    kept.append(measured(name, who, X, seed))
    lines = ",\n".join(json.dumps(found) for found in kept)
    KEPT.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    return dict(kept[-1])


def measured(name: str, who: str, X: pd.DataFrame, seed: int) -> Result:
    """Hide, fill and compare, once."""
    hidden = split(X, seed)
    start = time.perf_counter()
    result: Result = {"table": name, "who": who, "split": seed}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            filled = METHODS[who](hidden, seed)
    except Exception as error:  # a peer's failure is a result
        if who in (OURS, COPULA):
            raise
        return result | {"failed": f"{type(error).__name__}: {error}"[:200]}
    seconds = time.perf_counter() - start if filled.seconds is None else filled.seconds
    numbers, levels = score(filled.X, hidden, X)
    return result | {"numbers": numbers, "levels": levels, "seconds": seconds, "q": filled.q}


class Cell(NamedTuple):
    mean: float
    error: float
    values: np.ndarray


def cells(results: list[Result], table: str, what: str) -> dict[str, Cell]:
    """Return mean and standard error over the splits that all have been run on."""
    mine = {
        who: {r["split"]: r for r in results if (r["table"], r["who"]) == (table, who)}
        for who in METHODS
    }
    common = set.intersection(*[set(found) for found in mine.values() if found] or [set()])
    cells = {}
    for who, found in mine.items():
        values = np.array([found[s].get(what, math.nan) for s in sorted(common & found.keys())])
        if len(values) and not np.isnan(values).any():
            spread = np.std(values, ddof=1) if len(values) > 1 else 0.0
            cells[who] = Cell(values.mean(), spread / math.sqrt(len(values)), values)
    return cells


def good(found: dict[str, Cell]) -> set[str]:
    """Return who is best, or within one standard error of the best."""
    if not found:
        return set()
    best = min(found.values(), key=lambda cell: cell.mean)
    return {who for who, cell in found.items() if cell.mean <= best.mean + best.error}


def against_others(results: list[Result], table: str) -> Row:
    """Return how far `Imputer` is from the best other library, differences paired by split."""
    row: Row = {"best": []}
    for what in ("numbers", "levels"):
        found = cells(results, table, what)
        found.pop(COPULA, None)
        others = {who: cell for who, cell in found.items() if who != OURS}
        if OURS not in found or not others:
            continue
        best = min(others, key=lambda who: others[who].mean)
        gap = found[OURS].values - others[best].values
        error = np.std(gap, ddof=1) / math.sqrt(len(gap)) if len(gap) > 1 else math.nan
        row[f"{what}_gap"] = [float(gap.mean()), float(error), best]
        row["best"] += [what] if OURS in good(found) else []
    return row


def summed_up(results: list[Result], table: str, title: str) -> Iterator[Row]:
    """Yield one row a method: means over splits and their standard errors."""
    for who in METHODS:
        mine = [r for r in results if (r["table"], r["who"]) == (table, who)]
        row: Row = {"name": title, "who": who, "ours": who in (OURS, COPULA), "splits": len(mine)}
        for what in ("numbers", "levels"):
            if (cell := cells(results, table, what).get(who)) is not None:
                row |= {what: float(cell.mean), f"{what}_error": float(cell.error)}
                row[f"{what}_good"] = who in good(cells(results, table, what))
        seconds = [r["seconds"] for r in mine if "seconds" in r]
        row["seconds"] = median(seconds) if seconds else None
        row["failed"] = sum("failed" in r for r in mine)
        if who in (OURS, COPULA):
            row["q"] = sorted({r["q"] for r in mine})
        if who == OURS:
            row |= against_others(results, table)
        if mine:
            yield row


# --- speed ---------------------------------------------------------------------------------------


def speed_table(n: int, each: int, nominal: bool) -> pd.DataFrame:
    X = copula_table(n, 0, each=each, nominal=nominal).X
    holes = np.random.default_rng(1).random(X.shape) < 0.2
    return without(X, holes)


def ours_in(X: pd.DataFrame, q: int, **options: Any) -> float:
    from dualpca import CopulaPPCA

    start = time.perf_counter()
    CopulaPPCA(q, random_state=0, **options).fit(X).impute(X)
    return time.perf_counter() - start


def gcimpute_in(X: pd.DataFrame, q: int) -> tuple[float, int]:
    A = Codes(X).matrix()
    model = gcimpute_model(q)
    start = time.perf_counter()
    with contextlib.redirect_stdout(None), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit_transform(A)
    return time.perf_counter() - start, len(model.corrupdate)


def speed(run: Run) -> Iterator[Row]:
    """Yield seconds to fit and fill, the same number of components for all."""
    for n, columns, q in ((2_000, 15, 3), (10_000, 50, 5)):
        if run.quick and n > 2_000:
            continue
        X = speed_table(n // 10 if run.quick else n, -(-columns // 4), nominal=False)
        X = X.iloc[:, :columns]
        name = f"{n:,}×{columns}, 20 % missing, q = {q}"
        peer, steps = gcimpute_in(X, q)
        yield {"name": name, "who": f"gcimpute low rank, {steps} steps", "ours": False} | {
            "seconds": peer
        }
        for noise in ("isotropic", "diagonal"):
            mine = median(ours_in(X, q, noise=noise) for _ in range(3))
            about = {"name": name, "who": f"{COPULA}, {noise} noise", "ours": True}
            yield about | {"seconds": mine, "ratio": mine / peer}
    name = "1,000,000×20, 20 % missing, q = 3"
    if run.quick or not run.room(name, 180.0):
        return
    X = speed_table(1_000_000, 4, nominal=True)
    times: list[float] = []
    more = extra_megabytes(lambda: times.append(ours_in(X, 3)))
    yield {"name": name, "who": COPULA, "ours": True, "seconds": times[0], "megabytes": more}


def seconds_of(who: str, X: pd.DataFrame, turn: int) -> float:
    """Return seconds of the CPU to fit and fill."""
    start = time.process_time()
    METHODS[who](X, turn)
    return time.process_time() - start


def beside_mice(run: Run) -> Iterator[Row]:
    """Yield seconds of the CPU to fit and fill without options, in turn with mice's."""
    for name in (*SEEN, *UNSEEN, *MORE):
        X = load(name)
        if len(X) >= SMALL or not run.room(name):
            continue
        hidden, turns = split(X, 0), []
        for turn in range(TURNS):
            peer = mice_draws(hidden, f"seed = {turn}")[2]
            turns.append((*(seconds_of(who, hidden, turn) for who in (COPULA, OURS)), peer))
        row: Row = {"name": f"{name} {len(X):,}×{X.shape[1]}"}
        for who, one in zip(("seconds", "imputer", "mice"), zip(*turns, strict=True), strict=True):
            row[who] = median(one)
        row["by_mice"] = median(one / peer for one, _, peer in turns)
        yield row | {"imputer_by_mice": median(one / peer for _, one, peer in turns)}


def rows(run: Run, part: str) -> Iterator[Row]:
    alone = {"speed": speed, "time": beside_mice}
    if part in alone:
        yield from alone[part](run)
        return
    X, results = load(part), []
    splits, methods = (1, ("median, mode", OURS)) if run.quick else (SPLITS, METHODS)
    for seed in run.repeats(splits, fewest=2):
        results += [measure(part, who, X, seed) for who in methods]
    yield from summed_up(results, part, f"{part} {len(X):,}×{X.shape[1]}")
