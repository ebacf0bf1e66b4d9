"""`dualpca fit` and `dualpca select`."""

from __future__ import annotations

import time
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer

import dualpca
from dualpca.app.cli._models import MODELS, make, summary, summary_words
from dualpca.app.cli._options import (
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
)
from dualpca.app.cli._running import UsageError, note, run
from dualpca.app.cli._training import at_once, fitted, lengths_of, open_table, prepared
from dualpca.arrays import task
from dualpca.data import target_of

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
        typer.Option("--components", "-q", help="A count, a share, or the name of a rule."),
    ] = None,
    mixtures: Annotated[
        str | None, typer.Option("--mixtures", "-k", help="Of a mixture: a count, bic or cv.")
    ] = None,
    states: Annotated[int | None, typer.Option("--states", min=1, help="Of hmm.")] = None,
    kernel: Annotated[str | None, typer.Option(help="Of kernel models.")] = None,
    gamma: Annotated[str | None, typer.Option(help="Of the kernel: a number, or median.")] = None,
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
        target_of(output)  # an hour's fit should not end with a folder that is not there
        if model != "hmm" and (sequence or lengths):
            raise UsageError("--sequence-column and --lengths are for --model hmm.")
        fresh = make(model, options, setting or [], seed)
        table = open_table(data, source.reading(), id_column)
        if sample_rows is not None and sample_rows < table.height:
            _refuse_sampled_sequences(model)
            note(f"fitted to {sample_rows} of {table.height} rows, drawn at random.")
            table = table.sampled(sample_rows, seed)
        prep = prepared(table, choice, id_column, sequence, standardize)
        extra = _sequences(model, table, sequence, lengths)
        start = time.perf_counter()
        fitted(fresh, model, table, prep, extra)
        found = {"output": output, **summary(fresh), "columns": prep.features}
        found |= {"rows": table.height, "batches": table.n_batches, "standardized": standardize}
        found["seconds"] = time.perf_counter() - start
        dualpca.save(fresh, output, metadata=_metadata(prep, sequence))
        return found

    run("fit", as_json, work, _fit_words)


def _refuse_sampled_sequences(model: str) -> None:
    if model == "hmm":
        raise UsageError("--sample-rows would tear sequences apart: leave rows out yourself.")


def _sequences(model: str, table: Any, sequence: str | None, lengths: str | None) -> Any:
    """Return the lengths of sequences, as `fit` takes them."""
    if model != "hmm" or (sequence is None and lengths is None) or not table.whole:
        return {}
    return {"lengths": lengths_of(table.frame(), sequence, lengths)}


def _metadata(prep: Any, sequence: str | None) -> dict[str, Any]:
    found = {"table": prep.table()}
    return found if sequence is None else found | {"sequence_column": sequence}


def _fit_words(found: dict[str, Any]) -> str:
    left_out = ("batches", "standardized") if found["batches"] == 1 else ("standardized",)
    numbers = {k: v for k, v in found.items() if k not in left_out}
    shown = ", ".join(f"{k} {v}" for k, v in summary_words(numbers).items())
    units = ", columns standardized" if found["standardized"] else ""
    return f"Wrote {found['output']}: {found['model']}, {shown}{units}."


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
    """Say how many components each rule would keep, side by side."""

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
