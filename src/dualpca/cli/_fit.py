"""`dualpca fit` and `dualpca select`."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer

import dualpca
from dualpca import columns, tables
from dualpca.atomic import target_of
from dualpca.cli._running import Data, Encoding, Format, Identifier, Json, Seed, run
from dualpca.tables import TableError

MODELS: dict[str, Any] = {
    "pca": dualpca.PCA,
    "ppca": dualpca.PPCA,
    "fa": dualpca.FactorAnalysis,
    "bpca": dualpca.BayesianPCA,
    "kpca": dualpca.KernelPCA,
    "dual": dualpca.DualPPCA,
    "pkpca": dualpca.ProbabilisticKernelPCA,
    "twin": dualpca.TwinKernelPCA,
}
"""CCA and Imputer are missing: one needs two tables, the other is `dualpca impute`."""

Columns = Annotated[
    list[str] | None, typer.Option("--columns", "-c", help="Columns to take, by name or pattern.")
]
Exclude = Annotated[
    list[str] | None, typer.Option("--exclude", "-x", help="Columns to leave out, likewise.")
]
OneHot = Annotated[
    list[str] | None, typer.Option("--one-hot", help="Column to turn into zeros and ones.")
]


def training(
    data: str,
    include: list[str] | None,
    exclude: list[str] | None,
    one_hot: list[str] | None,
    id_column: str | None,
    kind: str | None,
    encoding: str,
) -> pl.DataFrame:
    """Return the columns of a table that a model is to be fitted to."""
    frame = tables.read(data, kind, encoding)
    if id_column is not None:
        if id_column not in frame.columns:
            raise TableError(f"--id {id_column}: no such column; there are {frame.columns[:10]}.")
        frame = frame.drop(id_column)
    chosen = columns.select(frame, include or [], exclude or [])
    return columns.numbers(frame, chosen, one_hot or [])


def fit(
    data: Data,
    output: Annotated[str, typer.Option("--output", "-o", help="Model file to write.")],
    model: Annotated[
        str, typer.Option("--model", "-m", help=f"One of {', '.join(MODELS)}.")
    ] = "ppca",
    components: Annotated[
        str | None,
        typer.Option("--components", "-q", help="A count, a share, or the name of a rule."),
    ] = None,
    kernel: Annotated[str | None, typer.Option(help="Of kernel models.")] = None,
    gamma: Annotated[str | None, typer.Option(help="Of the kernel: a number, or median.")] = None,
    noise: Annotated[float | None, typer.Option(help="Noise variance, if it is known.")] = None,
    standardize: Annotated[
        bool, typer.Option("--standardize", help="Divide by standard deviations (pca).")
    ] = False,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="Any other parameter, as name=value.")
    ] = None,
    include: Columns = None,
    exclude: Exclude = None,
    one_hot: OneHot = None,
    id_column: Identifier = None,
    kind: Format = None,
    encoding: Encoding = "utf-8",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Fit a model to a table and write it to a file."""

    def work() -> dict[str, Any]:
        target_of(output)  # an hour's fit should not end with a folder that is not there
        options = {"kernel": kernel, "gamma": gamma, "noise_variance": noise}
        options |= {"n_components": components, "standardize": standardize or None}
        fresh = make(model, options, setting or [], seed)
        X = training(data, include, exclude, one_hot, id_column, kind, encoding)
        start = time.perf_counter()
        fresh.fit(X)
        seconds = time.perf_counter() - start
        fresh.save(output)
        return {"output": output, "seconds": seconds, **summary(fresh), "columns": X.columns}

    def words(found: dict[str, Any]) -> str:
        shown = ", ".join(f"{k} {v}" for k, v in summary_words(found).items())
        return f"Wrote {found['output']}: {found['model']}, {shown}."

    run("fit", as_json, work, words)


def make(name: str, options: dict[str, Any], settings: list[str], seed: int) -> Any:
    """Return a model that is not fitted yet, with the parameters that were given."""
    if name not in MODELS:
        raise TableError(f"--model {name}: no such model; there are {', '.join(MODELS)}.")
    given = {k: value_of(v) for k, v in options.items() if v is not None}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise TableError(f"--set {setting}: expected name=value, such as max_iter=500.")
        given[key] = value_of(value)
    known = MODELS[name]().get_params(deep=False)
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise TableError(f"{name} has no parameter {unknown[0]!r}; it has {', '.join(known)}.")
    if "random_state" in known:
        given.setdefault("random_state", seed)
    return MODELS[name](**given)


def value_of(word: Any) -> Any:
    """Return what a word on the command line means: a number, true, null, or itself."""
    if not isinstance(word, str):
        return word
    try:
        return json.loads(word)
    except ValueError:
        return word


def summary(model: Any) -> dict[str, Any]:
    """Return what a fitted model says of itself, as far as it has it."""
    found: dict[str, Any] = {"model": type(model).__name__}
    names = {"n_components": "n_components_", "rows": "n_samples_", "features": "n_features_in_"}
    names |= {"log_likelihood": "loglikelihood_", "iterations": "n_iter_"}
    names |= {"converged": "converged_"}
    for name, attribute in names.items():
        if hasattr(model, attribute):
            found[name] = getattr(model, attribute)
    ratio = getattr(model, "explained_variance_ratio_", None)
    if ratio is not None:
        found["explained_variance_ratio"] = float(np.sum(ratio))
    noise = getattr(model, "noise_variance_", None)
    if noise is not None:
        found["noise_variance"] = float(np.mean(noise))
    return found


def summary_words(found: dict[str, Any]) -> dict[str, str]:
    """Return the numbers of a summary, short."""
    shown = {k: v for k, v in found.items() if isinstance(v, bool | int | float)}
    return {
        k.replace("_", " "): f"{v:.4g}" if type(v) is float else str(v) for k, v in shown.items()
    }


def select(
    data: Data,
    include: Columns = None,
    exclude: Exclude = None,
    one_hot: OneHot = None,
    id_column: Identifier = None,
    kind: Format = None,
    encoding: Encoding = "utf-8",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Say how many components each rule would keep, side by side."""

    def work() -> dict[str, Any]:
        X = training(data, include, exclude, one_hot, id_column, kind, encoding)
        complete = not np.isnan(X.to_numpy()).any()
        rules = COMPLETE if complete else INCOMPLETE
        return {"rows": X.height, "features": X.width, "rules": [_rule(r, X, seed) for r in rules]}

    def words(found: dict[str, Any]) -> str:
        lines = [f"{'rule':<16}{'components':>11}{'explained':>11}{'noise':>12}"]
        for one in found["rules"]:
            if "error" in one:
                lines.append(f"{one['rule']:<16}{'-':>11}  {one['error']}")
            else:
                share = f"{100 * one['explained_variance_ratio']:.1f} %"
                noise = f"{one['noise_variance']:.4g}"
                lines.append(f"{one['rule']:<16}{one['n_components']:>11}{share:>11}{noise:>12}")
        return "\n".join(lines)

    run("select", as_json, work, words)


COMPLETE = ("evidence", "bic", "parallel", "gavish-donoho", "cv-rows", "cv-entries", 0.95)
INCOMPLETE = ("bic", "cv-rows", "cv-entries")


def _rule(rule: str | float, X: pl.DataFrame, seed: int) -> dict[str, Any]:
    """Return what one rule chooses, or why it cannot."""
    name = rule if isinstance(rule, str) else f"{100 * rule:.0f} % variance"
    try:
        found = summary(dualpca.PPCA(rule, random_state=seed).fit(X))
    except ValueError as error:
        return {"rule": name, "error": str(error)}
    wanted = ("n_components", "explained_variance_ratio", "noise_variance")
    return {"rule": name} | {k: found[k] for k in wanted}


COMMANDS = {"fit": fit, "select": select}
