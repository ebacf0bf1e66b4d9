"""Tables of numbers and categories: some that come with R, and two that are simulated.

Kinds are said by the dtype, as pandas users say them: numbers, ordered categories, categories.
"""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr
from scipy.stats import norm, poisson
from scipy.stats import t as student

EXPORT = r"""
X <- as.data.frame({expression})
columns <- sapply(names(X), function(name) {{
  x <- X[[name]]
  levels <- paste0("\"", gsub("\"", "", levels(x)), "\"", collapse = ",")
  sprintf("{{\"name\": \"%s\", \"ordered\": %s, \"levels\": %s}}", name,
          tolower(is.ordered(x)), if (is.factor(x)) paste0("[", levels, "]") else "null")
}})
cat("[", paste(columns, collapse = ","), "]\n", sep = "")
write.csv(X, row.names = FALSE, na = "")
"""

# What R does not say by itself: which factors have an order, which numbers are levels.
FROM_R = {
    "titanic": "within(carData::TitanicSurvival, passengerClass <- factor(passengerClass, "
    "ordered = TRUE))",
    "survey": "within(MASS::survey, {"
    "Smoke <- factor(Smoke, c('Never', 'Occas', 'Regul', 'Heavy'), ordered = TRUE); "
    "Exer <- factor(Exer, c('None', 'Some', 'Freq'), ordered = TRUE)})",
    "birthwt": "within(MASS::birthwt, {low <- factor(low); race <- factor(race); "
    "smoke <- factor(smoke); ht <- factor(ht); ui <- factor(ui)})",
    "boys": "mice::boys",
    "chile": "within(carData::Chile, education <- factor(education, c('P', 'S', 'PS'), "
    "ordered = TRUE))",
    "beps": "{X <- carData::BEPS; for (name in c('economic.cond.national', "
    "'economic.cond.household', 'Blair', 'Hague', 'Kennedy', 'political.knowledge')) "
    "X[[name]] <- factor(X[[name]], ordered = TRUE); X}",
    "salaries": "within(carData::Salaries, rank <- factor(rank, c('AsstProf', 'AssocProf', "
    "'Prof'), ordered = TRUE))",
    "airquality": "within(datasets::airquality, Month <- factor(Month, ordered = TRUE))",
    "penguins": "palmerpenguins::penguins",
    "wages": "{data(CPS1985, package = 'AER'); CPS1985}",
    "pbc": "within(survival::pbc[-1], {edema <- factor(edema, ordered = TRUE); "
    "stage <- factor(stage, ordered = TRUE); status <- factor(status); trt <- factor(trt); "
    "ascites <- factor(ascites); hepato <- factor(hepato); spiders <- factor(spiders)})",
    "houses": "{data(HousePrices, package = 'AER'); HousePrices}",
    "scat": "within(modeldata::scat, {Age <- factor(Age, ordered = TRUE); "
    "Number <- as.integer(Number); ropey <- factor(ropey); segmented <- factor(segmented); "
    "flat <- factor(flat); scrape <- factor(scrape)})",
    "work": "carData::Mroz",
}


def from_r(name: str) -> pd.DataFrame:
    """Return a table that comes with R, or with one of its packages, with its levels."""
    code = EXPORT.format(expression=FROM_R[name])
    said = subprocess.run(["Rscript", "-e", code], capture_output=True, text=True)
    if said.returncode:
        raise RuntimeError(f"R cannot give the table {name}:\n{said.stderr}")
    header, _, rows = said.stdout.partition("\n")
    X = pd.read_csv(io.StringIO(rows), keep_default_na=False, na_values=[""])
    for column in json.loads(header):
        if column["levels"] is not None:
            text = X[column["name"]].map(text_of_level, na_action="ignore")
            dtype = pd.CategoricalDtype(column["levels"], ordered=column["ordered"])
            X[column["name"]] = pd.Series(pd.Categorical(text, dtype=dtype), index=X.index)
    return X


def text_of_level(value: object) -> str:
    """Return a level as R writes it: a column of numbers with gaps came as floats."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


# --- simulated -----------------------------------------------------------------------------------


class Simulated(NamedTuple):
    """A complete table and what it was made from."""

    X: pd.DataFrame
    z: np.ndarray  # (n, s): the latent coordinate of every column that is not nominal
    correlation: np.ndarray  # (s, s), the true one
    kinds: dict[str, str]
    utilities: dict[str, np.ndarray]  # (n, K) of each nominal column; the largest is its level


def long_tails(j: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a monotone function with long tails; j chooses which."""
    return (
        lambda z: np.exp(1.2 * z),
        lambda z: student.ppf(ndtr(z), df=2),
        lambda z: 50 - np.log(ndtr(-z)),
    )[j % 3]


def copula_table(
    n: int, seed: int, *, each: int = 3, q: int = 3, nominal: bool = True, gaussian: bool = False
) -> Simulated:
    """Draw rows from the copula model: `each` columns of five kinds (four without nominal ones).

    z = Wt + ε with unit variance; W is the same for every seed. A nominal column has a utility for
    each of its 3, 4 or 5 levels, with noise of variance 1. `gaussian` leaves z as it is.
    """
    truth, rng = np.random.default_rng(18), np.random.default_rng(seed)
    s = 4 * each
    communality = truth.uniform(0.4, 0.8, s)
    W = truth.standard_normal((s, q))
    W *= np.sqrt(communality / np.sum(W**2, axis=1))[:, None]
    t = rng.standard_normal((n, q))
    z = t @ W.T + np.sqrt(1 - communality) * rng.standard_normal((n, s))
    correlation = W @ W.T
    np.fill_diagonal(correlation, 1.0)
    columns: dict[str, object] = {}
    kinds: dict[str, str] = {}
    for j in range(s):
        kind = ("continuous", "ordinal", "binary", "count")[j % 4]
        k = j // 4
        name = f"{kind}{k + 1}"
        if kind == "continuous" or gaussian:
            columns[name] = z[:, j] if gaussian else long_tails(k)(z[:, j])
        elif kind == "ordinal":
            cuts = norm.ppf(np.cumsum(((0.1, 0.3, 0.3, 0.2), (0.4, 0.3), (0.2, 0.2, 0.2))[k % 3]))
            codes, labels = np.searchsorted(cuts, z[:, j]), list("abcde"[: len(cuts) + 1])
            columns[name] = pd.Categorical.from_codes(codes, labels, ordered=True)
        elif kind == "binary":
            high = z[:, j] > norm.ppf((0.5, 0.7, 0.85)[k % 3])
            columns[name] = pd.Categorical.from_codes(high.astype(int), ["no", "yes"])
        else:
            columns[name] = poisson.ppf(ndtr(z[:, j]), mu=(2.0, 6.0, 0.8)[k % 3]).astype(int)
        kinds[name] = kind
    utilities = {}
    for k in range(each if nominal else 0):
        name, K = f"nominal{k + 1}", (4, 3, 5)[k % 3]
        shifts, V = truth.normal(scale=0.5, size=K), truth.standard_normal((K, q))
        utilities[name] = shifts + t @ V.T + rng.standard_normal((n, K))
        labels = [f"{'xyzuv'[k % 5]}{i}" for i in range(K)]
        columns[name] = pd.Categorical.from_codes(np.argmax(utilities[name], axis=1), labels)
        kinds[name] = "nominal"
    return Simulated(pd.DataFrame(columns), z, correlation, kinds, utilities)


def cluster_table(n: int, seed: int) -> pd.DataFrame:
    """Draw rows from four groups, which no single Gaussian copula describes."""
    rng = np.random.default_rng(seed)
    group = rng.choice(4, size=n, p=(0.4, 0.3, 0.2, 0.1))
    centres = np.random.default_rng(4).normal(scale=1.5, size=(4, 6))
    numbers = centres[group] + rng.standard_normal((n, 6))
    columns: dict[str, object] = {f"number{j + 1}": numbers[:, j] for j in range(6)}
    columns["number1"] = np.exp(numbers[:, 0])
    chances = np.random.default_rng(5).dirichlet(0.5 * np.ones(4), size=(3, 4))
    for j in range(3):
        codes = (rng.random(n)[:, None] > np.cumsum(chances[j, group], axis=1)[:, :3]).sum(axis=1)
        columns[f"level{j + 1}"] = pd.Categorical.from_codes(codes, list("pqrs"), ordered=j == 0)
    return pd.DataFrame(columns)


SIMULATED: dict[str, Callable[[], pd.DataFrame]] = {
    "copula": lambda: copula_table(1000, 0).X,
    "clusters": lambda: cluster_table(1000, 0),
}


def load(name: str) -> pd.DataFrame:
    """Return a table of R's or a simulated one."""
    return SIMULATED[name]() if name in SIMULATED else from_r(name)


def without(X: pd.DataFrame, holes: np.ndarray) -> pd.DataFrame:
    """Return a copy of the table with entries removed; integers become floats."""
    return pd.DataFrame(
        {
            name: X[name].mask(holes[:, j])
            if X[name].dtype == "category"
            else X[name].astype(float).mask(holes[:, j])
            for j, name in enumerate(X.columns)
        }
    )
