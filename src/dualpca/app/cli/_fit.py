"""`dualpca fit` and `dualpca select`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer

import dualpca
from dualpca.app.cli._running import (
    Choice,
    Data,
    Identifier,
    Json,
    Lengths,
    SampleRows,
    Seed,
    SequenceColumn,
    Source,
    Standardize,
    UsageError,
    note,
    run,
)
from dualpca.app.cli._session import at_once, lengths_of, open_table, prepared
from dualpca.app.tables.columns import Preparation
from dualpca.app.tables.reading import KeptRows, TableFile
from dualpca.app.tables.text import TableError
from dualpca.arrays import task
from dualpca.data import target_of

# --- models by name ----------------------------------------------------------------------------

MODELS = {
    "pca": "PCA",
    "ppca": "PPCA",
    "fa": "FactorAnalysis",
    "bpca": "BayesianPCA",
    "mixture": "MixturePPCA",
    "hmm": "HiddenMarkovPCA",
    "kpca": "KernelPCA",
    "dual": "DualPPCA",
    "pkpca": "ProbabilisticKernelPCA",
    "twin": "TwinKernelPCA",
}
"""Name on the command line to public name, so that the help imports none of them.

CCA and Imputer are not among them: one needs two tables, the other is `dualpca impute`.
"""

IN_MEMORY = ("dual", "pkpca", "twin")
"""Models that need all rows at once."""

DEFAULTS = {"mixture": {"n_mixtures": "bic"}}
"""Defaults that make more sense here: one component would not be a mixture."""


def make(name: str, options: dict[str, Any], settings: list[str], seed: int) -> Any:
    """Return a model that is not fitted yet, with the parameters that were given."""
    if name not in MODELS:
        raise UsageError(f"--model {name}: no such model; there are {', '.join(MODELS)}.")
    given = {k: value_of(v) for k, v in options.items() if v is not None}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"--set {setting}: expected name=value, such as max_iter=500.")
        given[key] = value_of(value)
    estimator = getattr(dualpca, MODELS[name])
    known = estimator().get_params(deep=False)
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise UsageError(f"{name} has no parameter {unknown[0]!r}; it has {', '.join(known)}.")
    if "random_state" in known:
        given.setdefault("random_state", seed)
    return estimator(**(DEFAULTS.get(name, {}) | given))


def value_of(word: Any) -> Any:
    """Return the value of a word on the command line: a number, true, null, or the word."""
    if not isinstance(word, str):
        return word
    try:
        return json.loads(word)
    except ValueError:
        return word


def summary(model: Any) -> dict[str, Any]:
    """Return the main numbers of a fitted model, as far as it has them."""
    found: dict[str, Any] = {"model": type(model).__name__}
    names = {"n_components": "n_components_", "rows": "n_samples_", "features": "n_features_in_"}
    names |= {"n_mixtures": "n_mixtures_", "n_states": "n_states"}
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
    """Return the numbers of a summary, rounded."""
    shown = {k: v for k, v in found.items() if isinstance(v, bool | int | float)}
    return {
        k.replace("_", " "): f"{v:.4g}" if type(v) is float else str(v) for k, v in shown.items()
    }


# --- dualpca fit -------------------------------------------------------------------------------

ModelName = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        help=f"One of {', '.join(MODELS)}.",
        autocompletion=lambda: list(MODELS),
    ),
]


def fit(
    data: Data,
    output: Annotated[str, typer.Option("--output", "-o", help="Model file to write.")],
    *,
    model: ModelName = "ppca",
    components: Annotated[
        str | None,
        typer.Option(
            "--components", "-q", help="A number, a share of the variance, or the name of a rule."
        ),
    ] = None,
    mixtures: Annotated[
        str | None,
        typer.Option(
            "--mixtures", "-k", help="Number of mixture components, or bic or cv (mixture only)."
        ),
    ] = None,
    states: Annotated[
        int | None, typer.Option("--states", min=1, help="Number of hidden states (hmm only).")
    ] = None,
    kernel: Annotated[str | None, typer.Option(help="Kernel (kernel models only).")] = None,
    gamma: Annotated[
        str | None, typer.Option(help="Kernel parameter: a number, or median.")
    ] = None,
    noise: Annotated[float | None, typer.Option(help="Noise variance, if it is known.")] = None,
    standardize: Standardize = False,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="Any other parameter, as name=value.")
    ] = None,
    choice: Choice,
    id_column: Identifier = None,
    sequence: SequenceColumn = None,
    lengths: Lengths = None,
    sample_rows: SampleRows = None,
    source: Source,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Fit a model to a table and write it to a file."""
    options = {"kernel": kernel, "gamma": gamma, "noise_variance": noise}
    options |= {"n_components": components, "n_mixtures": mixtures, "n_states": states}

    def work() -> dict[str, Any]:
        target_of(output)  # a missing folder is better noticed before a long fit
        if model != "hmm" and (sequence or lengths):
            raise UsageError("--sequence-column and --lengths are for --model hmm.")
        fresh = make(model, options, setting or [], seed)
        table = open_table(data, source.reading(), id_column)
        if sample_rows is not None and sample_rows < table.height:
            if model == "hmm":
                raise UsageError(
                    "--sample-rows would break up sequences: drop whole sequences from the table."
                )
            note(f"fitted to {sample_rows} of {table.height} rows, drawn at random.")
            table = table.sampled(sample_rows, seed)
        prep = prepared(table, choice, id_column, sequence, standardize)
        sequences = lengths_of(table, sequence, lengths) if model == "hmm" else None
        start = time.perf_counter()
        fit_table(fresh, model, table, prep, sequences)
        found = {"output": output, **summary(fresh), "columns": prep.features}
        found |= {"rows": table.height, "batches": table.n_batches, "standardized": standardize}
        found["seconds"] = time.perf_counter() - start
        dualpca.save(fresh, output, metadata=_metadata(prep, sequence))
        return found

    run("fit", as_json, work, _fit_words)


def fit_table(
    model: Any, name: str, table: TableFile, prep: Preparation, lengths: list[int] | None = None
) -> Any:
    """Fit a model to a table: in memory, or to batches of its rows, which gives the same model.

    Parameters
    ----------
    model : estimator
    name : str
        As on the command line.
    table : TableFile
    prep : Preparation
    lengths : list of int, optional
        Rows of every sequence, for a hidden Markov model.
    """
    extra = {} if lengths is None else {"lengths": lengths}
    if table.whole:
        return model.fit(prep.rows(table.frame()), **extra)
    if name in IN_MEMORY:
        raise TableError(
            f"{table.path} has {table.height} rows, too many for memory, and {name} needs all of "
            f"them at once. Fit one of {', '.join(m for m in MODELS if m not in IN_MEMORY)}, use "
            "some of the rows with --sample-rows 10000, or raise --memory-limit."
        )
    if name == "hmm" and lengths is None:
        raise TableError(
            f"{table.path} has {table.height} rows, too many for memory as one sequence. Cut it "
            "into sequences with --sequence-column or --lengths, or raise --memory-limit."
        )
    batches = table if lengths is None else table.regrouped(np.cumsum(lengths).tolist())

    def frames() -> Iterator[pl.DataFrame]:
        return map(prep.rows, batches.open())

    source = frames if table.dialect is None else KeptRows(frames)
    found = model.fit(dualpca.Batches(source), **extra)
    note(f"{table.path} was read in {batches.n_batches} batches.")
    return found


def _metadata(prep: Any, sequence: str | None) -> dict[str, Any]:
    found = {"table": prep.table()}
    return found if sequence is None else found | {"sequence_column": sequence}


def _fit_words(found: dict[str, Any]) -> str:
    left_out = ("batches", "standardized") if found["batches"] == 1 else ("standardized",)
    numbers = {k: v for k, v in found.items() if k not in left_out}
    shown = ", ".join(f"{k} {v}" for k, v in summary_words(numbers).items())
    units = ", columns standardized" if found["standardized"] else ""
    return f"Wrote {found['output']}: {found['model']}, {shown}{units}."


# --- dualpca select ----------------------------------------------------------------------------

COMPLETE = ("evidence", "bic", "parallel", "gavish-donoho", "cv-rows", "cv-entries", 0.95)
INCOMPLETE = ("bic", "cv-rows", "cv-entries")
"""Rules for tables without and with missing values."""


def select(
    data: Data,
    *,
    choice: Choice,
    standardize: Standardize = False,
    id_column: Identifier = None,
    sample_rows: SampleRows = None,
    source: Source,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Show how many components each selection rule would keep."""

    def work() -> dict[str, Any]:
        table = at_once(open_table(data, source.reading(), id_column), sample_rows, seed)
        X = prepared(table, choice, id_column, standardize=standardize).rows(table.frame())
        rules = INCOMPLETE if np.isnan(X.to_numpy()).any() else COMPLETE
        found = []
        with task("rule", len(rules)) as tick:
            for rule in rules:
                found.append(_rule(rule, X, seed))
                tick(str(rule))
        return {"rows": X.height, "features": X.width, "rules": found}

    run("select", as_json, work, _select_words)


def _select_words(found: dict[str, Any]) -> str:
    lines = [f"{'rule':<16}{'components':>11}{'explained':>11}{'noise':>12}"]
    for one in found["rules"]:
        if "error" in one:
            lines.append(f"{one['rule']:<16}{'-':>11}  {one['error']}")
        else:
            share = f"{100 * one['explained_variance_ratio']:.1f} %"
            noise = f"{one['noise_variance']:.4g}"
            lines.append(f"{one['rule']:<16}{one['n_components']:>11}{share:>11}{noise:>12}")
    return "\n".join(lines)


def _rule(rule: str | float, X: pl.DataFrame, seed: int) -> dict[str, Any]:
    """Return what one rule chooses, or why it cannot choose."""
    name = rule if isinstance(rule, str) else f"{100 * rule:.0f} % variance"
    try:
        found = summary(dualpca.PPCA(rule, random_state=seed).fit(X))
    except ValueError as error:
        return {"rule": name, "error": str(error)}
    wanted = ("n_components", "explained_variance_ratio", "noise_variance")
    return {"rule": name} | {k: found[k] for k in wanted}


COMMANDS = {"fit": fit, "select": select}
