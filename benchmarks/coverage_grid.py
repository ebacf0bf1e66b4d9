"""The same questions to every model in the same settings: the tables by setting of the page.

A setting is a number of rows, with missing entries or heavy tails, in memory, on Dask or from a
stream. A question draws its tables, fits a model, asks one public method, and counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import dualpca
from benchmarks.coverage_rows import (
    ERROR,
    KINDS,
    NEW,
    Count,
    Floats,
    Groups,
    Rng,
    add,
    chain,
    circle,
    features,
    hide,
    inside,
    loadings,
    map_made,
    matched,
    mixed_table,
    mixing,
    most_probable,
    places,
    rows_of,
    signs,
    std_of,
    turn,
    two_views,
)
from dualpca import (
    CCA,
    PCA,
    PPCA,
    BatchUnfolder,
    BayesianPCA,
    CopulaPPCA,
    DualPPCA,
    FactorAnalysis,
    HiddenMarkovPCA,
    HierarchicalPPCA,
    Imputer,
    KernelCCA,
    KernelPCA,
    MixturePPCA,
    Monitor,
    RobustPPCA,
    SequenceClassifier,
    conformal,
    pool,
)

SHARE = 0.2
"""Share of missing entries."""
TAILS = "heavy tails are outside the model"
NU = 5.0
"""Degrees of freedom of heavy tails: all of a row shares one factor."""

# --- Settings ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """How many rows a model is fitted to, and what they are like."""

    n: int
    missing: bool = False
    heavy: bool = False
    source: str = "memory"  # "dask" or "stream"

    @property
    def words(self) -> str:
        more = {"dask": "Dask", "stream": "stream"}.get(self.source)
        parts = (self.missing and "missing", self.heavy and "heavy tails", more)
        return ", ".join([f"{self.n}", *(part for part in parts if part)])

    @property
    def key(self) -> str:
        return self.words.replace(", ", "-").replace(" ", "-").lower()

    def factor(self, rng: Rng, n: int) -> Any:
        """Return what rows are multiplied by: 1, or the factor of Student's t."""
        return np.sqrt(NU / rng.chisquare(NU, n))[:, None] if self.heavy else 1.0

    def given(self, X: Floats) -> Any:
        """Return a table as the model is given it."""
        if self.source == "dask":
            import dask.array

            return dask.array.from_array(X, chunks=(100, X.shape[1]))
        if self.source == "stream":
            return dualpca.Batches([X[k : k + 100] for k in range(0, len(X), 100)])
        return X


FEW, MANY = Setting(30), Setting(300)
FEW_GAPS, MANY_GAPS = Setting(30, missing=True), Setting(300, missing=True)
HEAVY, HEAVY_GAPS = Setting(300, heavy=True), Setting(300, missing=True, heavy=True)
DASK, STREAM = Setting(300, source="dask"), Setting(300, source="stream")
PLAIN = (FEW, MANY, FEW_GAPS, MANY_GAPS, HEAVY)
CHUNKED = (DASK, STREAM)

Ask = Callable[[Setting, Rng], Count]


def grid(
    group: str,
    what: str,
    settings: Sequence[Setting],
    ask: Ask,
    reps: int = 60,
    nominal: float | None = 0.9,
    **more: Any,
) -> None:
    """Register a question in some settings; fewer rows are asked more often."""
    for setting in settings:
        given = {"outside": TAILS if setting.heavy else ""} | more
        given["needs"] = ("dask",) if setting.source == "dask" else ()
        times = 3 * reps if setting.n < 100 else reps
        name = what.split("`")[1].replace(".", "-")
        add(f"{group}-{name}-{setting.key}", what, setting.words, nominal, times, **given)(
            partial(ask, setting)
        )


# --- Linear models -------------------------------------------------------------------------------


@dataclass
class Linear:
    """A table of ten columns with two causes, new rows like it, and what is true of them."""

    W: Floats
    noise: Floats
    X: Floats  # complete
    fitted: Floats  # as the model is given it
    hidden: Any
    new: Floats  # complete
    seen: Floats  # new rows as the model is asked about
    z: Floats  # of the new rows
    factor: Any  # of the new rows

    @property
    def signal(self) -> Floats:
        return self.z @ self.W.T

    def again(self, rng: Rng) -> Floats:
        """Return a second measurement of the new rows."""
        return np.asarray(
            self.signal + self.factor * self.noise * rng.standard_normal(self.new.shape)
        )


def linear(setting: Setting, rng: Rng, unequal: bool, new: int = NEW) -> Linear:
    W = loadings(rng, 10)
    noise = rng.uniform(0.5, 1.5, 10) if unequal else np.ones(10)
    if unequal:  # the canonical axes, to which factors are rotated
        _, R = np.linalg.eigh(W.T @ (W / noise[:, None] ** 2))
        W = W @ R[:, ::-1]
    tables = []
    for count in (setting.n, new):
        rows, z = rows_of(rng, count, W, noise)
        factor = setting.factor(rng, count)
        tables.append((rows * factor, z * factor, factor))
    (X, _, _), (fresh, z, factor) = tables
    fitted, hidden = hide(rng, X, SHARE) if setting.missing else (X, np.zeros(X.shape, dtype=bool))
    seen = hide(rng, fresh, SHARE)[0] if setting.missing else fresh
    return Linear(W, noise, X, fitted, hidden, fresh, seen, z, factor)


def ask_posterior(model: Any, drawn: Linear, rng: Rng) -> Count:
    mean, covariance = model.posterior(drawn.seen)
    return inside(drawn.z * signs(mean, drawn.z), mean, std_of(covariance))


def ask_reconstruct(model: Any, drawn: Linear, rng: Rng) -> Count:
    return inside(drawn.signal, *model.reconstruct(drawn.seen, return_std=True))


def ask_predictive(model: Any, drawn: Linear, rng: Rng) -> Count:
    mean, covariance = model.posterior_predictive(drawn.new)
    return inside(drawn.again(rng), mean, std_of(covariance))


def ask_conditional(model: Any, drawn: Linear, rng: Rng) -> Count:
    gaps = drawn.seen.copy()
    gaps[:, :2] = np.nan
    mean, covariance = model.conditional(gaps, [0, 1])
    return inside(drawn.new[:, :2], mean, std_of(covariance))


def ask_impute(model: Any, drawn: Linear, rng: Rng) -> Count:
    """Ask for what is missing in the training table; of new rows, where that is complete."""
    gaps, hidden, truth = drawn.fitted, drawn.hidden, drawn.X
    if not hidden.any():
        (gaps, hidden), truth = hide(rng, drawn.new, SHARE), drawn.new
    filled, std = model.impute(gaps, return_std=True)
    return inside(truth[hidden], filled[hidden], std[hidden])


def ask_draws(model: Any, drawn: Linear, rng: Rng) -> Count:
    draws = model.sample_imputations(drawn.fitted, 19, random_state=0)
    truth = drawn.X[drawn.hidden]
    low, high = (np.asarray(f(draws, axis=0))[drawn.hidden] for f in (np.min, np.max))
    return Count(float(np.sum((low <= truth) & (truth <= high))), truth.size)


def mean_and_variance(table: Floats) -> tuple[Floats, Floats]:
    return table.mean(axis=0), table.var(axis=0, ddof=1) / len(table)


def ask_pooled(model: Any, drawn: Linear, rng: Rng) -> Count:
    """Ask for the means of all columns, pooled over completed tables; they are 0."""
    found = model.with_imputations(drawn.fitted, mean_and_variance, 20, random_state=0)
    low, high = pool(*zip(*found, strict=True), dof=len(drawn.X) - 1).interval(0.95)
    return Count(float(np.sum((low <= 0) & (0 <= high))), 10)


def ask_limit(which: str, model: Any, drawn: Linear, rng: Rng) -> Count:
    statistic = {"t2_limit": model.hotelling_t2, "spe_limit": model.spe}[which]
    below = np.asarray(statistic(drawn.new)) <= getattr(model, which)(0.95)
    return Count(float(below.sum()), below.size)


def ask_outliers(model: Any, drawn: Linear, rng: Rng) -> Count:
    flagged = np.asarray(model.outliers(drawn.seen, 0.95).flagged)
    return Count(float((~flagged).sum()), flagged.size)


def ask_pvalue(which: str, model: Any, drawn: Linear, rng: Rng) -> Count:
    above = np.asarray(getattr(model.outliers(drawn.seen), which)) > 0.05
    return Count(float(above.sum()), above.size)


def ask_linear(
    make: Any, ask: Callable[[Any, Linear, Rng], Count], new: int, setting: Setting, rng: Rng
) -> Count:
    unequal = getattr(make, "func", make) is FactorAnalysis
    drawn = linear(setting, rng, unequal, new)
    return ask(make().fit(setting.given(drawn.fitted)), drawn, rng)


SPIKED = {"PPCA": PPCA, "BayesianPCA": BayesianPCA, "RobustPPCA": RobustPPCA}
LINEAR: dict[str, Any] = {**SPIKED, "FactorAnalysis": FactorAnalysis}
QUESTIONS: list[tuple[str, str, Any, tuple[Setting, ...]]] = [
    ("latents", "posterior", ask_posterior, PLAIN),
    ("signals", "reconstruct", ask_reconstruct, PLAIN),
    ("signals", "posterior_predictive", ask_predictive, (FEW, MANY, HEAVY)),
    ("signals", "conditional", ask_conditional, PLAIN),
    ("signals", "impute", ask_impute, PLAIN),
    ("draws", "sample_imputations", ask_draws, (FEW_GAPS, MANY_GAPS, HEAVY_GAPS)),
    ("bounds", "outliers", ask_outliers, PLAIN),
    ("bounds", "t2_limit", partial(ask_limit, "t2_limit"), (FEW, MANY, HEAVY)),
    ("bounds", "spe_limit", partial(ask_limit, "spe_limit"), (FEW, MANY, HEAVY)),
]
for group, method, question, settings in QUESTIONS:
    for name, made in LINEAR.items():
        if method in ("reconstruct", "posterior_predictive") and made is FactorAnalysis:
            continue  # has no standard deviation there
        model = partial(made, 2)
        chunked = () if made is RobustPPCA or group == "draws" else CHUNKED
        robust = {"outside": ""} if made is RobustPPCA and group in ("latents", "signals") else {}
        slow = made is RobustPPCA or group == "draws"
        grid(
            group,
            f"`{name}.{method}`",
            (*settings, *chunked),
            partial(ask_linear, model, question, 1000 if group == "bounds" else NEW),
            30 if slow else 60,
            0.95 if group == "bounds" else 0.9,
            **robust,
        )

for method, question in (
    ("outliers", ask_outliers),
    ("t2_limit", partial(ask_limit, "t2_limit")),
    ("spe_limit", partial(ask_limit, "spe_limit")),
):
    asked = partial(ask_linear, partial(PCA, 2), question, 1000)
    grid("bounds", f"`PCA.{method}`", (FEW, MANY, HEAVY, *CHUNKED), asked, 60, 0.95)

for which in ("t2_pvalue", "spe_pvalue"):
    asked = partial(ask_linear, partial(PPCA, 2), partial(ask_pvalue, which), 1000)
    grid("bounds", f"`Outliers.{which}` of `PPCA`", PLAIN, asked, 60, 0.95)

for name, made in {**LINEAR, "Imputer": Imputer}.items():
    asked = partial(ask_linear, partial(made, 2), ask_pooled, 1)
    gaps = (FEW_GAPS, MANY_GAPS, HEAVY_GAPS)
    grid("completed", f"`{name}.with_imputations`", gaps, asked, 40, 0.95)

grid(
    "draws",
    "`Imputer.sample_imputations`",
    (FEW_GAPS, MANY_GAPS, HEAVY_GAPS),
    partial(ask_linear, partial(Imputer, 2), ask_draws, 1),
    30,
)


def ask_calibrated(model: Any, drawn: Linear, rng: Rng) -> Count:
    """Ask for what is missing, by intervals that are as many times as wide as calibration says."""
    factor = model.calibration(drawn.fitted).at(0.9).factor[0]
    filled, std = model.impute(drawn.fitted, return_std=True)
    hidden = drawn.hidden
    return inside(drawn.X[hidden], filled[hidden], factor * std[hidden])


CALIBRATED = {name: partial(made, 2) for name, made in LINEAR.items()}
CALIBRATED["MixturePPCA"] = partial(MixturePPCA, 1, 2, random_state=0)
for name, model in CALIBRATED.items():
    grid(
        "signals",
        f"`{name}.calibration`, intervals × its factor",
        (FEW_GAPS, MANY_GAPS, HEAVY_GAPS),
        partial(ask_linear, model, ask_calibrated, 1),
        20,
        outside="",
    )


def ask_conformal(what: str, method: str, own: bool, setting: Setting, rng: Rng) -> Count:
    """Ask of new rows, or of the table itself, and of columns together."""
    drawn = linear(setting, rng, False)
    found = conformal(PPCA(2), drawn.fitted, method=method)
    if what == "p_values":
        ordinary = found.p_values(None if own else drawn.seen) > 0.05
        return Count(float(ordinary.sum()), ordinary.size)
    X, (gaps, hidden) = drawn.X, (drawn.fitted, drawn.hidden)
    if not own:
        X, gaps = drawn.new, drawn.seen
        gaps, hidden = hide(rng, X, SHARE) if gaps is X else (gaps, np.isnan(gaps))
    if what == "reconstruct":  # of what is measured
        gaps, hidden = drawn.seen, ~np.isnan(drawn.seen)
    _, low, high = getattr(found, what)(None if own else gaps)
    within = ((low <= X) & (X <= high))[hidden]
    return Count(float(within.sum()), within.size)


for what, group in (("impute", "signals"), ("reconstruct", "signals"), ("p_values", "bounds")):
    for method in ("cv+", "split"):
        grid(
            group,
            f'`Conformal(method="{method}").{what}`',
            PLAIN if what == "p_values" else (*PLAIN, HEAVY_GAPS),
            partial(ask_conformal, what, method, False),
            60,
            0.95 if group == "bounds" else 0.9,
            outside="",
            at_least=True,
        )
for what, group in (("impute", "signals"), ("p_values", "bounds")):
    grid(
        group,
        f"`Conformal.{what}`, of the table itself",
        (FEW_GAPS, MANY_GAPS, HEAVY_GAPS),
        partial(ask_conformal, what, "cv+", True),
        60,
        0.95 if group == "bounds" else 0.9,
        outside="",
        at_least=True,
    )

# --- Loadings ------------------------------------------------------------------------------------


def ask_loadings(draws: bool, setting: Setting, rng: Rng) -> Count:
    drawn = linear(setting, rng, False, 1)
    model = BayesianPCA(2, method="variational").fit(drawn.fitted)
    if model.n_effective_ < 2:
        return Count(0.0, 0.0)  # a direction was not found: nothing is said about it
    W = drawn.W * signs(model.loadings_, drawn.W)
    if not draws:
        return inside(W, model.loadings_, model.loadings_std_)
    found = np.asarray(model.sample_loadings(19, random_state=0))
    within = (found.min(axis=0) <= W) & (W <= found.max(axis=0))
    return Count(float(within.sum()), within.size)


for name, draws in (("loadings_std_", False), ("sample_loadings", True)):
    of = '`BayesianPCA(method="variational")'
    grid("signals", f"{of}.{name}`", PLAIN, partial(ask_loadings, draws), 60)

# --- Two views -----------------------------------------------------------------------------------


def views(setting: Setting, rng: Rng, n: int, A: Any) -> tuple[Floats, Floats, Floats]:
    X, y, z = two_views(rng, n, A)
    factor = setting.factor(rng, n)
    return X * factor, y * factor, z * factor


def ask_views(make: Any, method: str, setting: Setting, rng: Rng) -> Count:
    A = mixing(rng)
    X, y, _ = views(setting, rng, setting.n, A)
    new, other, z = views(setting, rng, NEW, A)
    gaps = (hide(rng, X, SHARE), hide(rng, y, SHARE)) if setting.missing else None
    fitted = (X, y) if gaps is None else (gaps[0][0], gaps[1][0])
    model = make().fit(*(setting.given(one) for one in fitted))
    if method == "posterior":
        mean, covariance = model.posterior(hide(rng, new, SHARE)[0] if setting.missing else new)
        return inside(z * signs(mean, z), mean, std_of(covariance))
    if method == "predict":
        return inside(other, *model.predict(new, return_std=True))
    if method == "predict_view":
        return inside(new, *model.predict_view(y=other, return_std=True))
    if gaps is None:
        (X, y), gaps = (new, other), (hide(rng, new, SHARE), hide(rng, other, SHARE))
    (x_gaps, at), (y_gaps, there) = gaps
    fx, fy, sx, sy = model.impute(x_gaps, y_gaps, return_std=True)
    a, b = inside(X[at], fx[at], sx[at]), inside(y[there], fy[there], sy[there])
    return Count(a.right + b.right, a.of + b.of)


VIEWS = (FEW, MANY, MANY_GAPS, HEAVY, DASK)
"""With gaps 30 rows are too few: a canonical correlation of 1 is refused."""

for method in ("posterior", "predict", "predict_view", "impute"):
    group = "latents" if method == "posterior" else "signals"
    grid(group, f"`CCA.{method}`", VIEWS, partial(ask_views, partial(CCA, 2), method))
grid(
    "latents",
    "`KernelCCA.posterior`, linear",
    (FEW, MANY, HEAVY),
    partial(ask_views, partial(KernelCCA, 2, kernel="linear"), "posterior"),
    40,
)


def ask_canonical_tests(setting: Setting, rng: Rng) -> Count:
    X, y = rng.standard_normal((setting.n, 5)), rng.standard_normal((setting.n, 4))
    X, y = X * setting.factor(rng, setting.n), y * setting.factor(rng, setting.n)
    return Count(float(CCA(2).fit(X, y).p_values_[0] > 0.05), 1)


grid("bounds", "`CCA.p_values_`, the first", (FEW, MANY, HEAVY), ask_canonical_tests, 300, 0.95)

# --- Columns of any kind -------------------------------------------------------------------------


def ask_mixed(method: str, setting: Setting, rng: Rng) -> Count:
    X = mixed_table(rng, setting.n)[0]
    new, t = mixed_table(rng, NEW)
    fitted, hidden = hide(rng, X, SHARE)
    entries = method in ("impute", "sample_imputations", "predict_proba")
    seen = hide(rng, new, SHARE)[0] if setting.missing else new
    model = CopulaPPCA(2, column_kinds=KINDS).fit(fitted if entries or setting.missing else X)
    if method == "posterior":
        mean, covariance = model.posterior(seen)
        return inside(t @ turn(t, mean), mean, std_of(covariance))
    if method == "outliers":
        flagged = np.asarray(model.outliers(seen).flagged)
        return Count(float((~flagged).sum()), flagged.size)
    if method == "predict_proba":
        at, levels = hidden[:, 6], np.asarray(model.levels_[6], dtype=float)
        if not at.any():
            return Count(0.0, 0.0)
        p = np.asarray(model.predict_proba(fitted[at], 6))
        return most_probable(p, np.searchsorted(levels, X[at, 6]))
    at = hidden[:, :4]
    if method == "impute":
        found = model.impute(fitted, return_interval=True)
        low, high = (np.asarray(part, dtype=float)[:, :4][at] for part in found[1:])
    else:
        tables = model.sample_imputations(fitted, 19, random_state=0)
        draws = np.stack([np.asarray(one, dtype=float)[:, :4][at] for one in tables])
        low, high = draws.min(axis=0), draws.max(axis=0)
    truth = X[:, :4][at]
    return Count(float(np.sum((low <= truth) & (truth <= high))), truth.size)


def ask_mixed_pooled(setting: Setting, rng: Rng) -> Count:
    """Ask for the means of four columns, pooled over completed tables; they are 0."""
    X = rng.standard_normal((setting.n, 1)) + 0.6 * rng.standard_normal((setting.n, 4))
    gaps = hide(rng, X * setting.factor(rng, setting.n), SHARE)[0]
    model = CopulaPPCA(1, column_kinds=["continuous"] * 4).fit(gaps)
    found = model.with_imputations(gaps, mean_and_variance, 10, random_state=0)
    low, high = pool(*zip(*found, strict=True), dof=setting.n - 1).interval(0.95)
    return Count(float(np.sum((low <= 0) & (0 <= high))), 4)


ENTRIES = (FEW_GAPS, MANY_GAPS)
for group, method, settings, level in (
    ("latents", "posterior", (FEW, MANY, FEW_GAPS, MANY_GAPS), 0.9),
    ("signals", "impute", ENTRIES, 0.9),
    ("draws", "sample_imputations", ENTRIES, 0.9),
    ("bounds", "outliers", (FEW, MANY, FEW_GAPS, MANY_GAPS), 0.95),
    ("certain", "predict_proba", ENTRIES, None),
):
    text = f"`CopulaPPCA.{method}`"
    grid(group, text, settings, partial(ask_mixed, method), 50, level)
grid(
    "completed",
    "`CopulaPPCA.with_imputations`",
    (FEW_GAPS, MANY_GAPS, HEAVY_GAPS),
    ask_mixed_pooled,
    40,
    0.95,
)

# --- Mixtures and trees --------------------------------------------------------------------------


def ask_groups(make: Any, method: str, setting: Setting, rng: Rng) -> Count:
    groups = Groups(rng, apart=3.5 if method == "predict_proba" else 6.0)
    X = groups.draw(setting.n)[0]
    X = X * setting.factor(rng, setting.n)
    fitted, hidden = hide(rng, X, SHARE) if setting.missing else (X, None)
    new, true, z = groups.draw(1000 if method == "predict_proba" else NEW)
    factor = setting.factor(rng, len(new))
    new, z = new * factor, z * factor
    seen = hide(rng, new, SHARE)[0] if setting.missing else new
    model = make().fit(setting.given(fitted))
    if method == "impute":
        if hidden is None:
            (fitted, hidden), X = hide(rng, new, SHARE), new
        filled, std = model.impute(fitted, return_std=True)
        return inside(X[hidden], filled[hidden], std[hidden])
    said = np.asarray(model.predict_proba(seen))
    p = matched(said, true)
    if method == "predict_proba":
        return most_probable(p, true)
    swapped = p[0, 0] != said[0, 0]
    right = of = 0.0
    for one in range(2):
        mine, number = true == one, 1 - one if swapped else one
        place = model.leaves_[number] if hasattr(model, "leaves_") else number
        mean, covariance = model.posterior(seen[mine], place)
        found = inside(z[mine] * signs(mean, z[mine]), mean, std_of(covariance))
        right, of = right + found.right, of + found.of
    return Count(right, of)


MIXED_MODELS = {
    "MixturePPCA": partial(MixturePPCA, 2, 1, random_state=0),
    "HierarchicalPPCA": partial(HierarchicalPPCA, 2, 1, random_state=0),
}
for name, model in MIXED_MODELS.items():
    chunked = CHUNKED if name == "MixturePPCA" else ()
    for group, method in (
        ("latents", "posterior"),
        ("signals", "impute"),
        ("certain", "predict_proba"),
    ):
        if hasattr(model.func, method):
            asked = partial(ask_groups, model, method)
            level = None if group == "certain" else 0.9
            grid(group, f"`{name}.{method}`", (*PLAIN, *chunked), asked, 60, level)


def ask_left_out(make: Any, setting: Setting, rng: Rng) -> Count:
    """Ask for p-values of new rows of two groups, none seen by the fits that judge it."""
    groups = Groups(rng)
    X, new = (groups.draw(k)[0] * setting.factor(rng, k) for k in (setting.n, 1000))
    ordinary = conformal(make(), X).p_values(new) > 0.05
    return Count(float(ordinary.sum()), ordinary.size)


JUDGES = {
    "MixturePPCA": MIXED_MODELS["MixturePPCA"],
    "DualPPCA": partial(DualPPCA, 3, kernel="rbf", gamma=0.03),
}
for name, model in JUDGES.items():
    of, asked = f"`Conformal({name}).p_values`", partial(ask_left_out, model)
    settings = (FEW, MANY, HEAVY)
    grid("bounds", of, settings, asked, 30, 0.95, outside="", at_least=True)

# --- Through time --------------------------------------------------------------------------------


def ask_chain(method: str, setting: Setting, rng: Rng) -> Count:
    W, step = loadings(rng, 5, (3.0,)), rng.standard_normal(5)
    step = 1.2 * step / np.linalg.norm(step)

    def some(T: int) -> tuple[Floats, Any]:
        X, s = chain(rng, T, W, step)
        X = X * setting.factor(rng, T)
        return (hide(rng, X, SHARE)[0] if setting.missing else X), s

    given = setting.given(some(setting.n)[0])
    model = HiddenMarkovPCA(2, 1, random_state=0).fit(given)
    if method != "forecast":
        new, s = some(1000)
        return most_probable(matched(getattr(model, method)(new), s), s)
    right = of = 0.0
    for _ in range(40):
        new = chain(rng, 31, W, step)[0] * setting.factor(rng, 31)
        mean, std = model.forecast(new[:30], 1, return_std=True)
        found = inside(new[-1], mean[-1], std[-1])
        right, of = right + found.right, of + found.of
    return Count(right, of)


for group, method in (("certain", "predict_proba"), ("certain", "filter"), ("signals", "forecast")):
    level = None if group == "certain" else 0.9
    of = f"`HiddenMarkovPCA.{method}`"
    grid(group, of, (*PLAIN, DASK, STREAM), partial(ask_chain, method), 60, level)


def ask_sequences(setting: Setting, rng: Rng) -> Count:
    W, step = loadings(rng, 4, (3.0,)), 0.5 * np.ones(4)

    def some(count: int) -> tuple[list[Floats], Any]:
        y = rng.integers(0, 2, count)
        rows = [chain(rng, 12, W, step * (1 + c))[0] * setting.factor(rng, 12) for c in y]
        return [hide(rng, one, SHARE)[0] if setting.missing else one for one in rows], y

    X, y = some(setting.n)
    new, truth = some(300)
    model = SequenceClassifier(HiddenMarkovPCA(2, 1, random_state=0)).fit(X, y)
    return most_probable(model.predict_proba(new), truth)


def ask_left_out_sequences(setting: Setting, rng: Rng) -> Count:
    """Ask for p-values of new sequences of 12 rows."""
    W, step = loadings(rng, 4, (3.0,)), 0.5 * np.ones(4)

    def some(count: int) -> list[Floats]:
        return [chain(rng, 12, W, step)[0] * setting.factor(rng, 12) for _ in range(count)]

    found = conformal(HiddenMarkovPCA(2, 1, random_state=0), some(setting.n), folds=5)
    ordinary = found.p_values(some(300)) > 0.05
    return Count(float(ordinary.sum()), ordinary.size)


grid(
    "bounds",
    "`Conformal(HiddenMarkovPCA).p_values`, whole sequences",
    (FEW, MANY, HEAVY),
    ask_left_out_sequences,
    20,
    0.95,
    outside="",
    at_least=True,
)
grid("certain", "`SequenceClassifier.predict_proba`", PLAIN, ask_sequences, 30, None)


def ask_alarms(setting: Setting, rng: Rng) -> Count:
    """Ask whether 39 rows pass without an alarm: 9 times in 10, at one in 370 rows."""
    W = loadings(rng, 6)
    X = rows_of(rng, setting.n, W)[0] * setting.factor(rng, setting.n)
    monitor = Monitor(PPCA(2)).fit(hide(rng, X, SHARE)[0] if setting.missing else X)
    right = 0
    for _ in range(20):
        monitor.reset()
        new = rows_of(rng, 39, W)[0] * setting.factor(rng, 39)
        found = monitor.update(hide(rng, new, SHARE)[0] if setting.missing else new)
        right += not np.any(found.alarms)
    return Count(float(right), 20)


grid("bounds", "`Monitor.update`, no alarm in 39 rows", PLAIN, ask_alarms, 20, 0.9)


def ask_batches(setting: Setting, rng: Rng) -> Count:
    """Ask about batches of 3 variables at 20 points, half-way."""
    s = np.linspace(0, 1, 20)
    shapes = np.stack([np.ones(20), s, np.sin(3 * s)])

    def some(count: int) -> Floats:
        causes = rng.standard_normal((count, 3, 3))
        rows = np.einsum("nvc,ct->ntv", causes, shapes) + rng.standard_normal((count, 20, 3))
        return np.asarray(rows * np.asarray(setting.factor(rng, count)).reshape(-1, 1, 1))

    X = some(setting.n)
    unfolder = BatchUnfolder(n_points=20).fit(X)
    model = PPCA(2).fit(unfolder.transform(X))
    passed = [not unfolder.outliers_so_far(model, one[:10], 0.95).flagged[-1] for one in some(60)]
    return Count(float(sum(passed)), 60)


grid(
    "bounds", "`BatchUnfolder.outliers_so_far`, half-way", (FEW, MANY, HEAVY), ask_batches, 40, 0.95
)

# --- Kernels -------------------------------------------------------------------------------------


def ask_novel(threshold: bool, setting: Setting, rng: Rng) -> Count:
    W = loadings(rng, 5)
    X, new = (rows_of(rng, k, W)[0] * setting.factor(rng, k) for k in (setting.n, 1000))
    model = KernelPCA(5, kernel="rbf", gamma=0.03).fit(setting.given(X))
    if threshold:
        ordinary = np.asarray(model.novelty(new)) <= model.novelty_threshold(0.95)
    else:
        ordinary = ~np.asarray(model.is_novel(new, 0.95))
    return Count(float(ordinary.sum()), ordinary.size)


for name, threshold in (("is_novel", False), ("novelty_threshold", True)):
    asked = partial(ask_novel, threshold)
    grid("bounds", f"`KernelPCA.{name}`", (FEW, MANY, HEAVY, DASK), asked, 60, 0.95)


def ask_transform_std(setting: Setting, rng: Rng) -> Count:
    W = loadings(rng, 6)
    X, new = (rows_of(rng, k, W)[0] * setting.factor(rng, k) for k in (setting.n, NEW))
    model = KernelPCA(2, kernel="rbf", gamma=0.03).fit(X)
    gaps, hidden = hide(rng, new, SHARE)
    some = hidden.any(axis=1)
    truth = model.transform(new[some])
    return inside(truth, model.transform(gaps[some]), model.transform_std(gaps[some]))


grid("latents", "`KernelPCA.transform_std`", (FEW, MANY, HEAVY), ask_transform_std, 30)


def ask_dual(kernel: bool, setting: Setting, rng: Rng) -> Count:
    W = loadings(rng, 10)
    X = rows_of(rng, setting.n, W)[0] * setting.factor(rng, setting.n)
    new, z = rows_of(rng, NEW, W)
    factor = setting.factor(rng, NEW)
    model = DualPPCA(2, kernel="linear").fit(setting.given(X))
    if kernel:
        mean, covariance = model.posterior_kernel((new * factor) @ X.T)
    else:
        mean, covariance = model.posterior(new * factor)
    z = z * factor
    return inside(z * signs(mean, z), mean, std_of(covariance))


for name, kernel in (("posterior", False), ("posterior_kernel", True)):
    asked = partial(ask_dual, kernel)
    grid("latents", f"`DualPPCA.{name}`, linear", (FEW, MANY, HEAVY, DASK), asked, 60)


def ask_input_noise(make: Any, setting: Setting, rng: Rng) -> Count:
    clean = circle(rng.random((setting.n + NEW, 2)))
    X = clean + ERROR * rng.standard_normal(clean.shape) * setting.factor(rng, len(clean))
    model = make().fit(X[: setting.n])
    new = X[setting.n :]
    covariance = model.latent_covariance(new, ERROR)
    return inside(model.transform(clean[setting.n :]), model.transform(new), std_of(covariance))


for name, made in {"DualPPCA": DualPPCA, "KernelPCA": KernelPCA}.items():
    asked = partial(ask_input_noise, partial(made, 2, kernel="rbf", gamma=0.5))
    grid("latents", f"`{name}.latent_covariance`, a circle", (FEW, MANY, HEAVY), asked, 40)


def ask_placed(latents: bool, setting: Setting, rng: Rng) -> Count:
    """Ask where points lie on the map, or the latents of their features on it."""
    n, rho, lengths = setting.n, 200, np.array([1.2, 0.8])
    B, b = places(rng, n, lengths), rng.standard_normal((50, 2)) * lengths
    F, W, model = features(n, rho, B, rng)
    own = model.coordinates_
    if latents:
        found, map_of = model.latent_posterior(F), map_made(F, W, own)
        truth = (np.linalg.inv(map_of) @ W).T
        return inside(truth, np.asarray(found.mean).T, std_of(found.covariance))
    f = b @ W + np.sqrt(n / rho) * rng.standard_normal((50, rho))
    mean, covariance = model.posterior(f)
    return inside(b @ np.diag(signs(own, B)), mean, std_of(covariance))


for name, latents, words in (
    ("posterior", False, ""),
    ("latent_posterior", True, ", on the fitted map"),
):
    of = f"`ProbabilisticKernelPCA.{name}`{words}"
    grid("latents", of, (FEW, MANY), partial(ask_placed, latents), 60)

# --- Pooled regressions, tests of generated and supplementary rows -------------------------------


def ask_pooled_fit(what: str, setting: Setting, rng: Rng) -> Count:
    """Ask for a regression with one regressor of no effect; 20 % of both regressors are missing."""
    from sklearn.linear_model import LinearRegression

    n, truth = setting.n, np.array([1.0, 0.8, 0.0])
    X = np.empty((n, 3))
    X[:, 0] = rng.standard_normal(n)
    X[:, 1] = 0.6 * X[:, 0] + 0.8 * rng.standard_normal(n)
    X[:, 2] = truth[0] + X[:, :2] @ truth[1:] + 0.8 * rng.standard_normal(n)
    X[:, :2] = np.where(rng.random((n, 2)) < SHARE, np.nan, X[:, :2])

    def fitted(table: Floats) -> tuple[Any, Floats, Floats]:
        return LinearRegression().fit(table[:, :2], table[:, 2]), table[:, :2], table[:, 2]

    found = PPCA(2, max_iter=5000).fit(X).with_imputations(X, fitted, 20, random_state=0)
    fits, regressors, outcomes = zip(*found, strict=True)
    pooled = pool(fits, X=regressors, y=outcomes)
    if what == "interval":
        low, high = pooled.interval(0.95)
        return Count(float(np.sum((low <= truth) & (truth <= high))), 3)
    if what == "p_value":
        return Count(float(np.asarray(pooled.p_value)[2] > 0.05), 1)
    return Count(float(pooled.test(["x1"]).p_value > 0.05), 1)


for what, of in (
    ("interval", "`PooledModel.interval`"),
    ("p_value", "`PooledModel.p_value`, of no effect"),
    ("test", "`JointTest.p_value`, of no effect"),
):
    grid("completed", of, (FEW_GAPS, MANY_GAPS), partial(ask_pooled_fit, what), 40, 0.95)


def ask_pooled_means(setting: Setting, rng: Rng) -> Count:
    drawn = linear(setting, rng, False, 1)
    tables = PPCA(2).fit(drawn.fitted).sample_imputations(drawn.fitted, 20, random_state=0)
    found = [mean_and_variance(np.asarray(table)) for table in tables]
    low, high = pool(*zip(*found, strict=True), dof=setting.n - 1).interval(0.95)
    return Count(float(np.sum((low <= 0) & (0 <= high))), 10)


grid("completed", "`Pooled.interval`", (FEW_GAPS, MANY_GAPS), ask_pooled_means, 40, 0.95)


def ask_v_tests(setting: Setting, rng: Rng) -> Count:
    X = rows_of(rng, setting.n, loadings(rng, 6))[0] * setting.factor(rng, setting.n)
    given = np.array(["a", "b", "c"], dtype=object)[rng.integers(0, 3, setting.n)]
    v = np.asarray(dualpca.supplementary(PPCA(2).fit(X), X, {"level": given}).levels.v_test)
    return Count(float(np.sum(np.abs(v) < 1.96)), v.size)


grid(
    "bounds",
    "`SupplementaryLevels.v_test`, random levels",
    (FEW, MANY, HEAVY),
    ask_v_tests,
    150,
    0.95,
    outside="",
)


def ask_quality(setting: Setting, rng: Rng) -> Count:
    from dualpca.generation import sample_quality

    parts = [rng.standard_normal((setting.n, 3)) * setting.factor(rng, setting.n) for _ in range(3)]
    return Count(float(sample_quality(*parts, rng).p_value > 0.05), 1)


grid(
    "bounds",
    "`Quality.p_value`, of rows like the real ones",
    (FEW, MANY, HEAVY),
    ask_quality,
    100,
    0.95,
    outside="",
)
