"""What `benchmarks.coverage` measures: one row per statement and setting.

A row draws a table from a model that is known, fits it, and counts how often the truth is where
the library says. Rows that need new data draw them from the same model.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from scipy.special import expit
from sklearn.linear_model import LinearRegression

from dualpca import (
    PPCA,
    BayesianPCA,
    CopulaPPCA,
    DualPPCA,
    FactorAnalysis,
    HiddenMarkovPCA,
    Imputer,
    MixturePPCA,
    ProbabilisticKernelPCA,
    RobustPPCA,
    SequenceClassifier,
    pool,
)
from dualpca.app import report
from dualpca.app.report import directions
from dualpca.errors import SelectionWarning

Floats = np.ndarray[Any, np.dtype[np.float64]]
Rng = np.random.Generator

Z90 = float(stats.norm.ppf(0.95))
SIGNAL = (8.0, 3.0)
"""Variances along the axes beyond that of the noise, which is 1."""
NEW = 200
"""New rows, per fit."""


class Count(NamedTuple):
    """How often one replication was right, of how many times; and how often it said it would be."""

    right: float
    of: float
    said: float = 0.0


@dataclass(frozen=True)
class Row:
    """One line of the page: a statement of the library in one setting."""

    key: str
    group: str
    what: str  # Markdown
    setting: str
    nominal: float | None  # None: as often as the model says, on average
    replicate: Callable[[Rng], Count]
    replications: int
    note: str = ""
    outside: str = ""  # why the row need not hold: its rows are of another model, say
    at_least: bool = False  # what is promised is nominal or more
    needs: tuple[str, ...] = ()  # packages


NAMED = re.compile(r"`(?:dualpca\.)?(\w+)(?:\([^`]*?\))?\.(\w+)")
"""The public name that a statement begins with."""


def name_of(row: Row) -> str | None:
    """Return what a row is about, such as PPCA.posterior; None where it is no method.

    Examples
    --------
    >>> count = Row("k", "g", '`Imputer(method="matching").sample_imputations`', "", 0.9, len, 1)
    >>> name_of(count)
    'Imputer.sample_imputations'
    """
    found = NAMED.match(row.what)
    return None if found is None else ".".join(found.groups())


def size_of(row: Row) -> int:
    """Return how many rows a model was fitted to, as the setting says: its first number.

    Examples
    --------
    >>> size_of(Row("k", "g", "", "T = 2,000, 5 columns", 0.9, len, 1))
    2000
    """
    return int(re.findall(r"\d+", row.setting.replace(",", ""))[0])


class Group(NamedTuple):
    """A table of the page."""

    title: str
    text: str
    by_setting: bool = False  # a line for every statement, and a column for every setting


GROUPS = {
    "latents": Group(
        "Latents, by model and setting",
        "90 % intervals (mean ± 1.645 standard deviations) of the latents of 200 new rows, on the "
        "axes of the truth.",
        True,
    ),
    "signals": Group(
        "Reconstructions, predictions and missing entries, by model and setting",
        "90 % intervals for 200 new rows: `reconstruct` of the signal without noise, "
        "`posterior_predictive` of a second measurement, `conditional` of two columns given the "
        "others, `predict` of the other view, `forecast` of the next row, `impute` of entries that "
        "are missing in the training table (in new rows, where that is complete). Then those of "
        "every loading.",
        True,
    ),
    "draws": Group(
        "Draws of missing entries, by model and setting",
        "The range of 19 draws of an entry that is missing in the training table, which holds "
        "another draw 18 times out of 20.",
        True,
    ),
    "completed": Group(
        "Estimates pooled from completed tables, by model and setting",
        "95 % intervals by `dualpca.pool` over 20 completed tables (10 of `CopulaPPCA`): of the "
        "mean of every column, or of the coefficients of a regression on two columns; p-values of "
        "a coefficient that is zero.",
        True,
    ),
    "bounds": Group(
        "Limits and p-values, by model and setting",
        "The share of 1,000 ordinary new rows that stays below a limit of 95 %, has a p-value "
        "above 0.05 or is not flagged; tests where there is nothing to find. `Monitor` is asked "
        "for one false alarm in 370 rows: 90 % of pieces of 39 rows have none.",
        True,
    ),
    "certain": Group(
        "Probabilities, by model and setting",
        "How often the most probable class, state or level is right, *of* the probability that the "
        "model gives it on average, over the cases where that is between 0.5 and 0.95.",
        True,
    ),
    "scores": Group(
        "Scores",
        "90 % intervals (mean ± 1.645 standard deviations) of the latents of 200 new rows, on the "
        "axes of the truth.",
    ),
    "coordinates": Group(
        "Coordinates of kernel models",
        "90 % intervals of the coordinates of points. For `ProbabilisticKernelPCA` ρ features of n "
        "points are drawn with white noise, as its model says. Rows of curves are measured with an "
        "error of known size in every column; intervals are for the latents of rows without it.",
    ),
    "missing": Group(
        "Missing entries",
        "90 % intervals of the entries that were hidden in the training table. From draws: the "
        "range of 19 draws, which is a 90 % interval.",
    ),
    "pooled": Group(
        "Estimates pooled from completed tables",
        "95 % intervals by `dualpca.pool` over 20 completed tables (10 of `CopulaPPCA`), for the "
        "mean of the column with missing values and its slope on another column; and for the "
        "coefficients of a regression with missing values in the outcome and in two regressors.",
    ),
    "loadings": Group(
        "Loadings",
        "90 % intervals of every loading, columns signed like the truth. Signals are the variances "
        "of the directions, in units of the noise.",
    ),
    "limits": Group(
        "Control limits and p-values",
        "The share of 1,000 ordinary new rows that stays below a limit of 95 %, or has a p-value "
        "above 0.05.",
    ),
    "probabilities": Group(
        "Probabilities",
        "How often the most probable class, state or level is right, beside the probability that "
        "the model gives it on average, over the cases where that is between 0.5 and 0.95.",
    ),
    "forecasts": Group(
        "Forecasts",
        "90 % intervals (mean ± 1.645 standard deviations) of rows to come.",
    ),
    "tests": Group(
        "Tests and rules",
        "Where there is nothing to find: the share that is not significant at 5 %, or in which a "
        "rule at 95 % finds no component.",
    ),
}

KNOWN = "takes the fitted parameters as known"
FEATURES = (
    "it counts the noise of features and what is not known of the axes, not errors of columns; "
    "take `latent_covariance`"
)
TOWARDS_ZERO = "slopes among few columns are pulled towards zero; isotropic noise holds"
FEW_GAPS = "of few rows with gaps bootstraps and first-order errors say too little"
GROUPS_LOST = "groups of 15 rows in 8 columns are often not found"
STATES_LOST = "the states of so short a sequence are often not found"
SHRUNK = "the prior shrinks loadings, the more the fewer the rows"
NOTES = {
    "signals-BayesianPCA-reconstruct-30-missing": FEW_GAPS,
    **{
        f"draws-{name}-sample_imputations-30-missing": FEW_GAPS
        for name in ("PPCA", "FactorAnalysis", "CopulaPPCA")
    },
    **{
        f'signals-BayesianPCA(method="variational")-{name}-30-missing': SHRUNK
        for name in ("loadings_std_", "sample_loadings")
    },
    "latents-KernelCCA-posterior-30": KNOWN,
    **{
        f"certain-{name}-predict_proba-30{gaps}": GROUPS_LOST
        for name in ("MixturePPCA", "HierarchicalPPCA")
        for gaps in ("", "-missing")
    },
    **{
        f"{name}-{n}{how}": STATES_LOST if n == 30 else KNOWN
        for name in (
            "certain-HiddenMarkovPCA-predict_proba",
            "certain-HiddenMarkovPCA-filter",
            "signals-HiddenMarkovPCA-forecast",
        )
        for n in (30, 300)
        for how in ("", "-missing", "-dask", "-stream")
    },
    **{
        f"bounds-Monitor-update-30{gaps}": "limits from 30 rows are rough"
        for gaps in ("", "-missing")
    },
    "coordinates-latents-all": "takes the coordinates of the points as known",
    "missing-draws-matching": "values of few rows are copied",
    "pooled-regression-CopulaPPCA(3)": TOWARDS_ZERO,
    "pooled-regression-CopulaPPCA()": TOWARDS_ZERO,
    "loadings-ard-100-12-0": SHRUNK,
    "probabilities-mixture": "one fit in ten ends at a lesser maximum",
    "probabilities-mixture-5": "five starts do not always leave a lesser maximum",
    "probabilities-sequences-40": KNOWN,
    "loadings-report-400": "standard errors are estimates too, from 30 resamples",
}
"""Why, and what to do about it."""

PLUGIN = "parameters are taken as known, as the call asks"
OUTSIDE = {
    **{f"coordinates-posterior-{name}": FEATURES for name in ("circle", "s-curve", "five")},
    "coordinates-100-100-1-new-fixed": PLUGIN,
    "coordinates-60-600-0.3-new-fixed": PLUGIN,
    "coordinates-60-600-0.3-fit-fixed": PLUGIN,
    "missing-ppca-fixed": PLUGIN,
    "missing-draws-fixed": PLUGIN,
    "pooled-mean-fixed": PLUGIN,
    "pooled-slope-fixed": PLUGIN,
}
"""Rows that are not held to nominal, and why."""

ROWS: dict[str, Row] = {}


def add(
    key: str, what: str, setting: str, nominal: float | None, reps: int, **more: Any
) -> Callable[[Callable[[Rng], Count]], Callable[[Rng], Count]]:
    """Register a function of a generator as a row; its key begins with the group."""

    def register(replicate: Callable[[Rng], Count]) -> Callable[[Rng], Count]:
        if key in ROWS:
            raise ValueError(f"two rows have the key {key}")
        about = what, setting, nominal, replicate, reps
        given = {"note": NOTES.get(key, ""), "outside": OUTSIDE.get(key, ""), **more}
        ROWS[key] = Row(key, key.split("-")[0], *about, **given)
        return replicate

    return register


# --- Tables from a model that is known -----------------------------------------------------------


def loadings(rng: Rng, d: int, signal: tuple[float, ...] = SIGNAL) -> Floats:
    """Return W (d, q) with orthogonal columns."""
    Q = np.linalg.qr(rng.standard_normal((d, len(signal))))[0]
    return Q * np.sqrt(signal)


def rows_of(rng: Rng, n: int, W: Floats, noise: Any = 1.0) -> tuple[Floats, Floats]:
    """Return rows of x = Wz + noise, and their latents."""
    z = rng.standard_normal((n, W.shape[1]))
    return z @ W.T + noise * rng.standard_normal((n, W.shape[0])), z


def hide(rng: Rng, X: Floats, share: float) -> tuple[Floats, Any]:
    """Return a copy with missing entries, at least one left in every row, and where they are."""
    hidden = rng.random(X.shape) < share
    hidden[np.arange(len(X)), rng.integers(0, X.shape[1], len(X))] = False
    return np.where(hidden, np.nan, X), hidden


def inside(truth: Any, mean: Any, std: Any, z: float = Z90) -> Count:
    """Count the intervals mean ± z std that hold the truth."""
    within = np.abs(np.asarray(truth) - np.asarray(mean)) <= z * np.asarray(std)
    return Count(float(within.sum()), within.size)


def std_of(covariance: Any) -> Floats:
    return np.sqrt(np.diagonal(np.asarray(covariance), axis1=-2, axis2=-1))


def signs(found: Any, truth: Any) -> Floats:
    """Return the sign of every column of the truth that fits the one found."""
    return np.where(np.sum(np.asarray(found) * truth, axis=0) < 0, -1.0, 1.0)


def turn(truth: Floats, found: Any) -> Floats:
    """Return the orthogonal matrix that turns the truth's columns onto those found."""
    U, _, Vt = np.linalg.svd(truth.T @ np.asarray(found))
    return np.asarray(U @ Vt)


# --- Scores --------------------------------------------------------------------------------------


def scores(make: Callable[[], Any], n: int, d: int, missing: float, rng: Rng) -> Count:
    W = loadings(rng, d)
    X, _ = rows_of(rng, n, W)
    new, z = rows_of(rng, NEW, W)
    if missing:
        (X, _), (new, _) = hide(rng, X, missing), hide(rng, new, missing)
    mean, covariance = make().fit(X).posterior(new)
    return inside(z * signs(mean, z), mean, std_of(covariance))


add("scores-PPCA-5000", "`PPCA.posterior`", "5,000 × 10, q = 2", 0.9, 200)(
    partial(scores, partial(PPCA, 2), 5000, 10, 0.0)
)


@add(
    "scores-variational",
    '`BayesianPCA(method="variational").posterior`',
    "200 × 10, q = 2",
    0.9,
    300,
)
def _(rng: Rng) -> Count:
    return scores(partial(BayesianPCA, 2, method="variational"), 200, 10, 0.0, rng)


@add("scores-dual", '`DualPPCA(kernel="linear").posterior`', "200 × 10, q = 2", 0.9, 200)
def _(rng: Rng) -> Count:
    return scores(partial(DualPPCA, 2, kernel="linear"), 200, 10, 0.0, rng)


def heavy(rng: Rng, n: int, W: Floats, nu: float = 5.0) -> tuple[Floats, Floats]:
    """Return rows whose latents and noise share a factor: Student's t of ν degrees of freedom."""
    X, z = rows_of(rng, n, W)
    scale = np.sqrt(nu / rng.chisquare(nu, n))[:, None]
    return X * scale, z * scale


def two_views(rng: Rng, n: int, mixing: tuple[Floats, Floats]) -> tuple[Floats, Floats, Floats]:
    """Return two views of 5 and 4 columns with canonical correlations 0.8 and 0.5, and latents."""
    rho, z = np.array([0.8, 0.5]), rng.standard_normal((n, 2))
    views = []
    for A in mixing:
        x = rng.standard_normal((n, len(A)))
        x[:, :2] = np.sqrt(rho) * z + np.sqrt(1 - rho) * x[:, :2]
        views.append(x @ A)
    return views[0], views[1], z


def mixing(rng: Rng) -> tuple[Floats, Floats]:
    return rng.standard_normal((5, 5)), rng.standard_normal((4, 4))


class Groups:
    """Two groups of rows, each with a direction of its own and a mean; how far apart they are."""

    def __init__(self, rng: Rng, apart: float = 3.5, d: int = 8) -> None:
        step = rng.standard_normal(d)
        self.rng, self.axes = rng, np.stack([loadings(rng, d, (6.0,))[:, 0] for _ in range(2)])
        self.means = np.stack([0 * step, apart * step / np.linalg.norm(step)])

    def draw(self, count: int) -> tuple[Floats, Any, Floats]:
        """Return rows, which group they are of, and their latents."""
        k, z = self.rng.integers(0, 2, count), self.rng.standard_normal((count, 1))
        noise = self.rng.standard_normal((count, self.means.shape[1]))
        return self.means[k] + z * self.axes[k] + noise, k, z


def matched(p: Any, truth: Any) -> Floats:
    """Return the probabilities of two groups in the order of the truth, whichever fits better."""
    p = np.asarray(p)
    agree = float(np.mean(p[np.arange(len(p)), truth]))
    return p if agree >= 0.5 else p[:, ::-1]


def mixed_table(rng: Rng, n: int) -> tuple[Floats, Floats]:
    """Return columns behind a Gaussian copula, and t: 4 continuous, 2 of five grades, 2 of two."""
    angle = np.random.default_rng(0).standard_normal((8, 2))
    W = 0.85 * angle / np.linalg.norm(angle, axis=1)[:, None]
    t = rng.standard_normal((n, 2))
    z = t @ W.T + np.sqrt(1 - 0.85**2) * rng.standard_normal((n, 8))
    X = z.copy()
    X[:, 0], X[:, 1] = np.exp(z[:, 0]), z[:, 1] ** 3
    X[:, 4:6] = np.digitize(z[:, 4:6], [-1.2, -0.4, 0.4, 1.2])
    X[:, 6:] = z[:, 6:] > 0.3
    return X, t


KINDS = ["continuous"] * 4 + ["ordinal"] * 2 + ["binary"] * 2


@add("scores-copula", "`CopulaPPCA.posterior`", "400 × 8 mixed columns, q = 2", 0.9, 60)
def _(rng: Rng) -> Count:
    model = CopulaPPCA(2, column_kinds=KINDS).fit(mixed_table(rng, 400)[0])
    new, t = mixed_table(rng, NEW)
    mean, covariance = model.posterior(new)
    return inside(t @ turn(t, mean), mean, std_of(covariance))


# --- Coordinates of kernel models ----------------------------------------------------------------


def places(rng: Rng, n: int, lengths: Floats) -> Floats:
    """Return n points around 0, whose axes are the principal ones and have these lengths."""
    B = rng.standard_normal((n, 2))
    return np.asarray(np.linalg.qr(B - B.mean(axis=0))[0] * np.sqrt(n) * lengths)


def map_made(F: Floats, W: Floats, coordinates: Any) -> Floats:
    """Return what the fitted map makes of places: those of the truth times this, (q, q)."""
    squares = np.sum(coordinates**2, axis=0)
    return np.asarray(W @ (F - F.mean(axis=0)).T @ coordinates / squares / len(F))


def placements(n: int, rho: int, signal: float, new: bool, parameters: str, rng: Rng) -> Count:
    lengths = signal * np.array([1.2, 0.8])
    B, b = places(rng, n, lengths), rng.standard_normal((50, 2)) * lengths
    F, W, model = features(n, rho, B, rng)
    f = b @ W + np.sqrt(n / rho) * rng.standard_normal((50, rho))
    found, fixed = model.coordinates_, parameters == "fixed"
    map_of = map_made(F, W, found) if fixed else np.diag(signs(found, B))
    mean, covariance = model.posterior(f if new else F, parameters=parameters)
    return inside((b if new else B) @ map_of, mean, std_of(covariance))


for n, rho, signal, new, parameters, reps in [
    (100, 100, 1.0, True, "auto", 400),
    (100, 100, 1.0, False, "auto", 400),
    (60, 600, 3.0, True, "auto", 400),
    (300, 30, 1.0, True, "auto", 300),
    (100, 100, 1.0, True, "fixed", 300),
    (60, 600, 0.3, True, "fixed", 300),
    (60, 600, 0.3, False, "fixed", 300),
]:
    option = "" if parameters == "auto" else ', parameters="fixed"'
    which = "outside" if new else "of"
    add(
        f"coordinates-{n}-{rho}-{signal:g}-{'new' if new else 'fit'}-{parameters}",
        f"`ProbabilisticKernelPCA.posterior(X{option})`, points {which} the fit",
        f"n = {n}, ρ = {rho}, q = 2, signal {signal:g} of the noise",
        0.9,
        reps,
    )(partial(placements, n, rho, signal, new, parameters))


def features(n: int, rho: int, B: Floats, rng: Rng) -> tuple[Floats, Floats, Any]:
    """Return features of points at B, the latents behind them, and the model of both."""
    W = rng.standard_normal((2, rho)) * np.sqrt(n / rho)
    F = B @ W + np.sqrt(n / rho) * rng.standard_normal((n, rho))
    return F, W, ProbabilisticKernelPCA(2, kernel="linear", feature_dim=rho).fit(F)


def feature_latents(on_map: bool, rng: Rng) -> Count:
    n = 100
    B = places(rng, n, np.array([1.2, 0.8]))
    F, W, model = features(n, 200, B, rng)
    found, own = model.latent_posterior(F), model.coordinates_
    map_of = map_made(F, W, own) if on_map else np.diag(signs(own, B))
    return inside((np.linalg.inv(map_of) @ W).T, np.asarray(found.mean).T, std_of(found.covariance))


for on_map in (True, False):
    add(
        f"coordinates-latents-{'map' if on_map else 'all'}",
        "`ProbabilisticKernelPCA.latent_posterior`, latents of the features"
        + (" on this map" if on_map else ""),
        "n = 100, ρ = 200, q = 2",
        0.9,
        300,
    )(partial(feature_latents, on_map))


def circle(t: Floats) -> Floats:
    return np.column_stack([np.cos(2 * np.pi * t[:, 0]), np.sin(2 * np.pi * t[:, 0])])


def s_curve(t: Floats) -> Floats:
    a = 3 * np.pi * (t[:, 0] - 0.5)
    return np.column_stack([np.sin(a), 2 * t[:, 1], np.sign(a) * (np.cos(a) - 1)])


def curve_in_five(t: Floats) -> Floats:
    u = t[:, 0]
    return np.column_stack([2 * u, np.sin(3 * u), np.cos(4 * u), u**2, np.sin(5 * u)])


CURVED = {
    "circle": (circle, "a circle in 2 columns"),
    "s-curve": (s_curve, "an S-curve in 3 columns"),
    "five": (curve_in_five, "a curve in 5 columns"),
}
ERROR = 0.1
"""Standard deviation of the error of every entry of a curved table, which is about 2 wide."""


def on_curve(curve: Callable[[Floats], Floats], of_errors: bool, rng: Rng) -> Count:
    clean = curve(rng.random((400 + NEW, 2)))
    X = clean + ERROR * rng.standard_normal(clean.shape)
    model = DualPPCA(2).fit(X[:400])
    mean, covariance = model.posterior(X[400:])
    if of_errors:
        covariance = model.latent_covariance(X[400:], ERROR)
    return inside(model.transform(clean[400:]), mean, std_of(covariance))


for name, (curve, words) in CURVED.items():
    for method in ("posterior", "latent_covariance"):
        add(
            f"coordinates-{method}-{name}",
            f"`DualPPCA(2).{method}`, RBF",
            f"400 rows, {words}, error {ERROR}",
            0.9,
            100,
        )(partial(on_curve, curve, method != "posterior"))


# --- Missing entries -----------------------------------------------------------------------------


def imputed(make: Callable[[], Any], n: int, d: int, share: float, options: Any, rng: Rng) -> Count:
    X, _ = rows_of(rng, n, loadings(rng, d))
    gaps, hidden = hide(rng, X, share)
    filled, std = make().fit(gaps).impute(gaps, return_std=True, **options)
    return inside(X[hidden], filled[hidden], std[hidden])


ENTRIES: list[tuple[str, str, Any, int, int, float, Any, int]] = [
    ("ppca-small", "`PPCA.impute`", partial(PPCA, 2), 60, 6, 0.4, {}, 150),
    (
        "ppca-fixed",
        '`PPCA.impute(parameters="fixed")`',
        partial(PPCA, 2),
        60,
        6,
        0.4,
        {"parameters": "fixed"},
        100,
    ),
    ("ppca-wide", "`PPCA.impute`", partial(PPCA, 2), 100, 40, 0.2, {}, 60),
    ("ppca-large", "`PPCA.impute`", partial(PPCA, 2), 2000, 10, 0.2, {}, 50),
    ("factor", "`FactorAnalysis.impute`", partial(FactorAnalysis, 2), 100, 8, 0.3, {}, 100),
    ("ard", "`BayesianPCA.impute`", BayesianPCA, 100, 8, 0.3, {}, 100),
    (
        "variational",
        '`BayesianPCA(method="variational").impute`',
        partial(BayesianPCA, method="variational"),
        100,
        8,
        0.3,
        {},
        100,
    ),
]
for key, what, made, n, d, share, options, reps in ENTRIES:
    add(f"missing-{key}", what, f"{n:,} × {d}, {100 * share:.0f} % missing", 0.9, reps)(
        partial(imputed, made, n, d, share, options)
    )


@add("missing-robust", "`RobustPPCA.impute`", "200 × 8, 30 % missing, Student's t (ν = 5)", 0.9, 60)
def _(rng: Rng) -> Count:
    X, _ = heavy(rng, 200, loadings(rng, 8))
    gaps, hidden = hide(rng, X, 0.3)
    filled, std = RobustPPCA(2).fit(gaps).impute(gaps, return_std=True)
    return inside(X[hidden], filled[hidden], std[hidden])


@add(
    "missing-mixture", "`MixturePPCA.impute`", "400 × 8, 2 components, q = 1, 20 % missing", 0.9, 60
)
def _(rng: Rng) -> Count:
    X = Groups(rng).draw(400)[0]
    gaps, hidden = hide(rng, X, 0.2)
    filled, std = MixturePPCA(2, 1, random_state=0).fit(gaps).impute(gaps, return_std=True)
    return inside(X[hidden], filled[hidden], std[hidden])


def copula_entries(columns: slice, rng: Rng) -> Count:
    X, _ = mixed_table(rng, 300)
    gaps, hidden = hide(rng, X, 0.2)
    model = CopulaPPCA(2, column_kinds=KINDS).fit(gaps)
    _, low, high = (np.asarray(a, dtype=float) for a in model.impute(gaps, return_interval=True))
    at = hidden[:, columns]
    within = (low <= X) & (X <= high)
    return Count(float(within[:, columns][at].sum()), int(at.sum()))


for key, where, words in [
    ("numbers", slice(0, 4), "continuous columns"),
    ("grades", slice(4, 6), "grades: whole, so at least 90 %"),
]:
    add(
        f"missing-copula-{key}",
        f"`CopulaPPCA.impute(return_interval=True)`, {words}",
        "300 × 8 mixed columns, q = 2, 20 % missing",
        0.9,
        60,
        at_least=key == "grades",
    )(partial(copula_entries, where))


def range_of_draws(make: Callable[[], Any], options: Any, rng: Rng) -> Count:
    X, _ = rows_of(rng, 60, loadings(rng, 6))
    gaps, hidden = hide(rng, X, 0.4)
    draws = make().fit(gaps).sample_imputations(gaps, 19, random_state=0, **options)
    low, high = (np.asarray(f(draws, axis=0))[hidden] for f in (np.min, np.max))
    within = (low <= X[hidden]) & (X[hidden] <= high)
    return Count(float(within.sum()), within.size)


for key, what, made, options in [
    ("bootstrap", "`PPCA.sample_imputations`", partial(PPCA, 2), {}),
    (
        "fixed",
        '`PPCA.sample_imputations(parameters="fixed")`',
        partial(PPCA, 2),
        {"parameters": "fixed"},
    ),
    (
        "matching",
        '`Imputer(method="matching").sample_imputations`',
        partial(Imputer, 2, method="matching"),
        {},
    ),
]:
    add(f"missing-draws-{key}", what, "60 × 6, q = 2, 40 % missing", 0.9, 150)(
        partial(range_of_draws, made, options)
    )

# --- Pooled estimates ----------------------------------------------------------------------------


def slope_of(tables: Floats) -> tuple[Floats, Floats, int]:
    """Return the slope of the first column on the second, its variance, and degrees of freedom."""
    n = tables.shape[1]
    x, y = (tables[:, :, j] - tables[:, :, j].mean(axis=1)[:, None] for j in (1, 0))
    xx = np.sum(x * x, axis=1)
    slope = np.sum(x * y, axis=1) / xx
    left = np.sum((y - slope[:, None] * x) ** 2, axis=1)
    return slope, left / (n - 2) / xx, n - 2


def pooled(what: str, options: Any, rng: Rng) -> Count:
    n, W = 40, rng.standard_normal((5, 2))
    X, _ = rows_of(rng, n, W, 0.5**0.5)
    X[rng.random(n) < 0.6, 0] = np.nan
    model = PPCA(2, max_iter=5000).fit(X)
    tables = np.asarray(model.sample_imputations(X, 20, random_state=0, **options))
    first, truth = tables[:, :, 0], 0.0
    found = first.mean(axis=1), first.var(axis=1, ddof=1) / n, n - 1
    if what == "slope":
        truth = float(W[0] @ W[1] / (W[1] @ W[1] + 0.5))
        found = slope_of(tables)
    low, high = pool(found[0], found[1], dof=found[2]).interval(0.95)
    return Count(float(low <= truth <= high), 1)


for what in ("mean", "slope"):
    for parameters in ("bootstrap", "fixed"):
        option = "" if parameters == "bootstrap" else '(parameters="fixed")'
        add(
            f"pooled-{what}-{parameters}",
            f"`PPCA.sample_imputations{option}`, the {what}",
            "40 × 5, q = 2, 60 % missing in one column",
            0.95,
            500,
        )(partial(pooled, what, {"parameters": parameters}))


@add(
    "pooled-copula",
    "`CopulaPPCA.sample_imputations`, the mean",
    "60 × 4, q = 1, 50 % missing in one column",
    0.95,
    150,
)
def _(rng: Rng) -> Count:
    X = rng.standard_normal((60, 1)) + 0.6 * rng.standard_normal((60, 4))
    X[rng.random(60) < 0.5, 0] = np.nan
    model = CopulaPPCA(1, column_kinds=["continuous"] * 4).fit(X)
    first = np.asarray(model.sample_imputations(X, 10, random_state=0))[:, :, 0]
    low, high = pool(first.mean(axis=1), first.var(axis=1, ddof=1) / 60, dof=59).interval(0.95)
    return Count(float(low <= 0 <= high), 1)


def regression(make: Any, rng: Rng) -> Count:
    """Count the coefficients of a regression that pooled intervals hold, intercept included."""
    n, truth = 100, np.array([1.0, 0.8, -0.5])
    X = np.empty((n, 4))
    X[:, :3] = rng.standard_normal((n, 3))
    X[:, 1] += 0.6 * X[:, 0]
    X[:, 2] += 0.4 * X[:, 1]
    X[:, 3] = truth[0] + X[:, :2] @ truth[1:] + rng.standard_normal(n)
    # at random: more often where a column that is always observed is large
    shares = np.column_stack([expit(X[:, 2] - 0.6), np.full(n, 0.2), np.full(n, 0.15)])
    hidden = rng.random((n, 3)) < shares
    X[:, [0, 1, 3]] = np.where(hidden, np.nan, X[:, [0, 1, 3]])

    def fitted(table: Floats) -> tuple[Any, Floats, Floats]:
        features, target = table[:, :2], table[:, 3]
        return LinearRegression().fit(features, target), features, target

    found = make().fit(X).with_imputations(X, fitted, 20, random_state=0)
    fits, features, targets = zip(*found, strict=True)
    low, high = pool(fits, X=features, y=targets).interval(0.95)
    return Count(float(np.sum((low <= truth) & (truth <= high))), 3)


for name, make, count in (
    ("PPCA(3)", lambda: PPCA(3, max_iter=5000), 300),
    ("CopulaPPCA(3)", lambda: CopulaPPCA(3), 150),
    ('CopulaPPCA(3, noise="isotropic")', lambda: CopulaPPCA(3, noise="isotropic"), 150),
    ("CopulaPPCA()", CopulaPPCA, 150),
):
    add(
        f"pooled-regression-{name}",
        f"`{name}.with_imputations`, a regression",
        "100 × 4, 37, 20 and 15 % missing in three columns, at random",
        0.95,
        count,
    )(partial(regression, make))


# --- Loadings ------------------------------------------------------------------------------------


def loading_intervals(method: str, n: int, d: int, signal: Any, share: float, rng: Rng) -> Count:
    W = loadings(rng, d, signal)
    X, _ = rows_of(rng, n, W)
    if share:
        X, _ = hide(rng, X, share)
    model = BayesianPCA(len(signal), method=method).fit(X)
    if model.n_effective_ < len(signal):
        return Count(0.0, 0.0)  # a direction was not found: nothing is said about it
    found = model.loadings_
    return inside(W * signs(found, W), found, model.loadings_std_)


for method in ("ard", "variational"):
    for n, d, signal, share, reps in [
        (400, 12, (12.0, 5.0), 0.0, 300),
        (400, 6, (100.0, 30.0), 0.0, 400),
        (400, 12, (12.0, 5.0), 0.3, 60),
        (100, 12, (12.0, 5.0), 0.0, 400),
        (200, 40, (8.0, 4.0, 2.0), 0.0, 300),
    ]:
        lengths = ", ".join(f"{u:g}" for u in signal)
        add(
            f"loadings-{method}-{n}-{d}-{share:g}",
            f'`BayesianPCA(method="{method}").loadings_std_`',
            f"{n} × {d}, signals {lengths}" + (f", {100 * share:.0f} % missing" if share else ""),
            0.9,
            reps,
        )(partial(loading_intervals, method, n, d, signal, share))


def resampled(n: int, rng: Rng) -> Count:
    W = loadings(rng, 12, (12.0, 5.0))
    X, _ = rows_of(rng, n, W)
    found = directions.loadings(report.subject_of(PPCA(2).fit(X), X))
    return inside(W * signs(found.W, W), found.W, found.error, 2.0)


for n in (100, 400):
    add(
        f"loadings-report-{n}",
        "loadings of `PPCA` in the {doc}`report <guide/report>`, two standard errors",
        f"{n} × 12, signals 12, 5",
        0.9545,
        150,
    )(partial(resampled, n))

# --- Control limits and p-values -----------------------------------------------------------------


UNEQUAL = np.sqrt(np.linspace(0.2, 1.8, 10))
"""Deviations of noise that differs between columns, of average variance 1."""


def limits_with_unequal_noise(make: Callable[[], Any], n: int, share: float, rng: Rng) -> Count:
    W = loadings(rng, 10)
    X, new = rows_of(rng, n, W, UNEQUAL)[0], rows_of(rng, 2000, W, UNEQUAL)[0]
    if share:
        X, new = hide(rng, X, share)[0], hide(rng, new, share)[0]
    flagged = np.asarray(make().fit(X).outliers(new, 0.99).flagged)
    return Count(float((~flagged).sum()), flagged.size)


for made, n, share, reps in (
    (PPCA, 100, 0.0, 300),
    (PPCA, 500, 0.1, 60),
    (BayesianPCA, 100, 0.0, 300),
    (BayesianPCA, 500, 0.1, 60),
    (FactorAnalysis, 100, 0.0, 300),
    (FactorAnalysis, 500, 0.1, 60),
    (RobustPPCA, 100, 0.0, 100),
    (RobustPPCA, 500, 0.1, 20),
):
    add(
        f"limits-{made.__name__}-unequal-{n}-{share:g}",
        f"`{made.__name__}.outliers(level=0.99)`",
        f"{n} × 10, q = 2, unequal noise" + (f", {100 * share:.0f} % missing" if share else ""),
        0.99,
        reps,
    )(partial(limits_with_unequal_noise, partial(made, 2), n, share))


CAUSES = (20.0, 8.0, 4.0, 2.0)
"""Variances of four causes of 16 sensors, strong and weak, in units of the average noise."""
OF_SENSORS = np.sqrt(np.linspace(0.2, 1.8, 16))
PROCESS_MODELS = (PPCA, RobustPPCA, FactorAnalysis)
PROCESS_LEVELS = (0.95, 0.99, 0.999)


def flags_of(make: Callable[[], Any], X: Floats, new: Floats, level: float) -> Count:
    """Count the new rows that a fit with the default number of components does not flag."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SelectionWarning)
        flagged = np.asarray(make().fit(X).outliers(new, level).flagged)
    return Count(float((~flagged).sum()), flagged.size)


def limits_of_sensors(
    make: Callable[[], Any], level: float, n: int, share: float, rng: Rng
) -> Count:
    W = loadings(rng, 16, CAUSES)
    X, new = rows_of(rng, n, W, OF_SENSORS)[0], rows_of(rng, 3000, W, OF_SENSORS)[0]
    return flags_of(make, hide(rng, X, share)[0], hide(rng, new, share)[0], level)


def limits_of_batches(make: Callable[[], Any], level: float, n: int, half: bool, rng: Rng) -> Count:
    """Judge unfolded batches, 8 variables × 40 points, whole or after half of the points."""
    s = np.linspace(0, 1, 40)
    shapes = np.stack([np.ones(40), 0.8 * s, 0.6 * np.sin(3 * s), np.maximum(s - 0.5, 0)])
    W = (shapes[:, :, None] * rng.standard_normal((4, 1, 8))).reshape(4, 320).T
    noise = np.outer(0.7 + 0.6 * s, np.sqrt(np.linspace(0.2, 1.8, 8))).ravel()
    X, new = rows_of(rng, n, W, noise)[0], rows_of(rng, 1000, W, noise)[0]
    if half:
        new[:, 160:] = np.nan
    return flags_of(make, X, new, level)


for made in PROCESS_MODELS:
    reps = 20 if made is RobustPPCA else 40
    for level in PROCESS_LEVELS:
        called = f"`{made.__name__}.outliers(level={level:g})`"
        for n in (100, 500):
            add(
                f"limits-sensors-{made.__name__}-{level:g}-{n}",
                called,
                f"{n} × 16, q by default, unequal noise, 10 % missing",
                level,
                reps,
            )(partial(limits_of_sensors, made, level, n, 0.1))
        for half in (False, True):
            add(
                f"limits-batches-{made.__name__}-{level:g}-{half:d}",
                called,
                "60 unfolded batches × 320, q by default, unequal noise"
                + (", half of each new one known" if half else ""),
                level,
                reps,
            )(partial(limits_of_batches, made, level, 60, half))


@add("limits-copula", "`CopulaPPCA.outliers`", "400 × 8 mixed columns, q = 2", 0.95, 50)
def _(rng: Rng) -> Count:
    model = CopulaPPCA(2, column_kinds=KINDS).fit(mixed_table(rng, 400)[0])
    flagged = np.asarray(model.outliers(mixed_table(rng, 400)[0]).flagged)
    return Count(float((~flagged).sum()), flagged.size)


# --- Probabilities -------------------------------------------------------------------------------


def most_probable(p: Any, truth: Any) -> Count:
    """Count how often the most probable of several is the truth, where that is not certain."""
    p = np.asarray(p)
    best, top = p.argmax(axis=1), p.max(axis=1)
    some = (top >= 0.5) & (top <= 0.95)
    return Count(float(np.sum(best[some] == truth[some])), int(some.sum()), float(top[some].sum()))


def groups_found(n_init: int, rng: Rng) -> Count:
    groups = Groups(rng)
    model = MixturePPCA(2, 1, n_init=n_init, random_state=0).fit(groups.draw(400)[0])
    new, k, _ = groups.draw(1000)
    return most_probable(matched(model.predict_proba(new), k), k)


for n_init in (1, 5):
    add(
        "probabilities-mixture" + ("" if n_init == 1 else f"-{n_init}"),
        "`MixturePPCA.predict_proba`" + ("" if n_init == 1 else f", `n_init={n_init}`"),
        "400 × 8, 2 components that overlap, q = 1",
        None,
        150,
    )(partial(groups_found, n_init))


STAY = 0.9


def chain(rng: Rng, T: int, W: Floats, step: Floats) -> tuple[Floats, Any]:
    """Return a sequence of two states, W and the means ± step, and the states."""
    s = np.zeros(T, dtype=int)
    for t in range(1, T):
        s[t] = s[t - 1] if rng.random() < STAY else 1 - s[t - 1]
    return rows_of(rng, T, W)[0] + (2 * s - 1)[:, None] * step, s


def chain_model(rng: Rng, T: int, size: float = 1.2) -> tuple[Any, Floats, Floats]:
    W, step = loadings(rng, 5, (3.0,)), rng.standard_normal(5)
    step = size * step / np.linalg.norm(step)
    model = HiddenMarkovPCA(2, 1, random_state=0).fit(chain(rng, T, W, step)[0])
    return model, W, step


@add(
    "probabilities-chain",
    "`HiddenMarkovPCA.predict_proba`",
    "T = 800, 5 columns, 2 states, q = 1",
    None,
    80,
)
def _(rng: Rng) -> Count:
    model, W, step = chain_model(rng, 800)
    new, s = chain(rng, 1000, W, step)
    return most_probable(matched(model.predict_proba(new), s), s)


def classified(n: int, rng: Rng) -> Count:
    """Return counts for sequences of two classes that differ in how they turn."""
    W, step = loadings(rng, 4, (3.0,)), 0.5 * np.ones(4)

    def some(count: int) -> tuple[list[Floats], Any]:
        y = rng.integers(0, 2, count)
        return [chain(rng, 12, W, step * (1 + c))[0] for c in y], y

    X, y = some(n)
    new, truth = some(300)
    model = SequenceClassifier(HiddenMarkovPCA(2, 1, random_state=0)).fit(X, y)
    return most_probable(model.predict_proba(new), truth)


for n in (40, 200):
    add(
        f"probabilities-sequences-{n}",
        "`SequenceClassifier.predict_proba`",
        f"{n} sequences of 12 rows, 4 columns, 2 classes",
        None,
        60,
    )(partial(classified, n))


def level_probabilities(column: int, n: int, rng: Rng) -> Count:
    X, _ = mixed_table(rng, n)
    gaps, hidden = hide(rng, X, 0.2)
    model = CopulaPPCA(2, column_kinds=KINDS).fit(gaps)
    at = hidden[:, column]
    levels = np.asarray(model.levels_[column], dtype=float)
    p = np.asarray(model.predict_proba(gaps[at], column))
    return most_probable(p, np.searchsorted(levels, X[at, column]))


for column, words in ((4, "grades"), (6, "two levels")):
    add(
        f"probabilities-copula-{column}",
        f"`CopulaPPCA.predict_proba`, {words}",
        "400 × 8 mixed columns, q = 2, 20 % missing",
        None,
        60,
    )(partial(level_probabilities, column, 400))

# --- Forecasts -----------------------------------------------------------------------------------


def forecast(ahead: int, rng: Rng) -> Count:
    model, W, step = chain_model(rng, 400)
    right = of = 0.0
    for _ in range(40):
        new, _ = chain(rng, 30 + ahead, W, step)
        mean, std = model.forecast(new[:30], ahead, return_std=True)
        found = inside(new[-1], mean[-1], std[-1])
        right, of = right + found.right, of + found.of
    return Count(right, of)


for ahead in (1, 5):
    steps = "one step" if ahead == 1 else f"{ahead} steps"
    add(
        f"forecasts-{ahead}",
        f"`HiddenMarkovPCA.forecast(return_std=True)`, {steps} ahead",
        "T = 400, 5 columns, 2 states, q = 1",
        0.9,
        80,
    )(partial(forecast, ahead))

# --- Tests and rules -----------------------------------------------------------------------------


def nothing_found(rule: str, rng: Rng) -> Count:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        PPCA(rule).fit(rng.standard_normal((100, 8)))
    return Count(float(any(issubclass(w.category, SelectionWarning) for w in said)), 1)


for rule in ("parallel", "white-noise"):
    add(f"tests-{rule}", f'`n_components="{rule}"`', "100 × 8, noise alone", 0.95, 500)(
        partial(nothing_found, rule)
    )
