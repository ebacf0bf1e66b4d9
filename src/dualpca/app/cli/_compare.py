"""`dualpca compare`: every model on one table."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import numpy as np
import typer

import dualpca
from dualpca.app.cli._models import MODELS, make
from dualpca.app.cli._options import (
    Choice,
    Data,
    Identifier,
    Json,
    SampleRows,
    Seed,
    Source,
    Standardize,
)
from dualpca.app.cli._running import UsageError, note, run
from dualpca.app.cli._training import at_once, open_table, prepared
from dualpca.app.comparison import Split, judge, split
from dualpca.arrays import task
from dualpca.errors import InterruptWarning

KERNELS = ("kpca", "dual", "pkpca", "twin")
COMPARED = [name for name in MODELS if name != "hmm"]
"""Rows of a table have no order, and a hidden Markov model is about nothing else."""
COLUMNS = ("log_likelihood", "reconstruction_error", "imputation_error", "seconds")


def compare(
    data: Data,
    *,
    models: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", help=f"Of {', '.join(COMPARED)}; all unless given."),
    ] = None,
    components: Annotated[
        int | None, typer.Option("--components", "-q", min=1, help="Chosen by BIC unless given.")
    ] = None,
    held_out: Annotated[
        float, typer.Option("--hold-out", min=0.01, max=0.9, help="Share of the rows.")
    ] = 0.2,
    hidden: Annotated[
        float, typer.Option("--hide", min=0.001, max=0.9, help="Share of their entries to guess.")
    ] = 0.1,
    kernel_rows: Annotated[
        int, typer.Option("--kernel-rows", min=2, help="Most rows that kernel models are given.")
    ] = 1000,
    standardize: Standardize = False,
    choice: Choice,
    id_column: Identifier = None,
    sample_rows: SampleRows = None,
    source: Source,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Fit every model to most rows, and compare what they say of the rest."""

    def work() -> dict[str, Any]:
        chosen = _chosen(models)
        table = at_once(open_table(data, source.reading(), id_column), sample_rows, seed)
        X = prepared(table, choice, id_column).rows(table.frame()).to_numpy()
        if X.shape[0] < 5:
            raise ValueError(f"{data} has {X.shape[0]} rows: some are held out, 5 are needed.")
        parts = split(X, standardize, held_out, hidden, seed)
        q = components or _by_bic(parts, seed)
        found: dict[str, Any] = {"rows_fitted": len(parts.train), "rows_held_out": len(parts.test)}
        found |= {"features": X.shape[1], "n_components": q, "standardized": standardize}
        return found | _judged(chosen, parts, q, seed, kernel_rows)

    run("compare", as_json, work, _words)


def _chosen(models: list[str] | None) -> list[str]:
    unknown = [name for name in models or [] if name not in COMPARED]
    if unknown:
        raise UsageError(f"--model {unknown[0]}: compare has {', '.join(COMPARED)}.")
    return models or COMPARED


def _by_bic(parts: Split, seed: int) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", InterruptWarning)
        count = max(int(dualpca.PPCA("bic", random_state=seed).fit(parts.train).n_components_), 1)
    note(f"{count} components, by BIC of probabilistic PCA (--components changes it).")
    return count


def _judged(names: list[str], parts: Split, q: int, seed: int, kernel_rows: int) -> dict[str, Any]:
    """Return what the models are worth; an interrupt ends it with those that are done."""
    everywhere = ~np.isnan(parts.test)
    hidden = np.isnan(parts.hidden) & everywhere
    means: dict[str, Any] = {"model": "means", "log_likelihood": None, "seconds": 0.0, "notes": []}
    means["reconstruction_error"] = parts.share(parts.center, everywhere)
    means["imputation_error"] = parts.share(parts.center, hidden)
    found: list[dict[str, Any]] = [means]
    with task("model", len(names)) as tick:
        for name in names:
            try:
                found.append({"model": name} | _one(name, parts, q, seed, kernel_rows))
            except (KeyboardInterrupt, InterruptWarning):
                return {"models": found, "interrupted": True}
            tick(name)
    return {"models": found, "interrupted": False}


def _one(name: str, parts: Split, q: int, seed: int, kernel_rows: int) -> dict[str, Any]:
    """Return what one model is worth, or why it failed; its warnings are its own."""
    settings: dict[str, Any] = {} if name == "bpca" else {"n_components": q}
    settings |= {"max_mixtures": 4} if name == "mixture" else {}
    notes = []
    if name in KERNELS:
        settings |= {"kernel": "rbf", "gamma": "median"}
        if len(parts.train) > kernel_rows:
            rng = np.random.default_rng(seed)
            some = np.sort(rng.choice(len(parts.train), kernel_rows, replace=False))
            parts = Split(parts.train[some], parts.test, parts.hidden, parts.log_units)
            notes = [f"fitted to {kernel_rows} rows (--kernel-rows)"]
    with _caught() as told:
        try:
            fresh = make(name, settings, [], seed)
            found = judge(lambda: fresh, parts, density=name not in KERNELS)
        except (ValueError, TypeError, ArithmeticError, MemoryError) as error:
            found = dict.fromkeys(COLUMNS) | {"error": str(error), "notes": []}
    found["notes"] = notes + found["notes"] + [str(one.message) for one in told]
    return found


@contextmanager
def _caught() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        warnings.simplefilter("error", InterruptWarning)
        yield told


def _words(found: dict[str, Any]) -> str:
    """Return a table, the best of every column marked, and what there is to know about it."""
    from rich.console import Console
    from rich.table import Table

    table = Table("model", box=None, pad_edge=False)
    for heading in ("log-likelihood", "reconstruction", "imputation", "seconds"):
        table.add_column(heading, justify="right")
    best = _best(found["models"])
    for one in found["models"]:
        cells = [_cell(one, column, best) for column in COLUMNS]
        table.add_row(one["model"], *cells)
    out = io.StringIO()
    Console(file=out, width=100).print(table)
    return "\n".join([out.getvalue().rstrip("\n"), "", *_remarks(found)])


def _best(models: list[dict[str, Any]]) -> dict[str, float]:
    found = {}
    for column, choose in (("log_likelihood", max), (COLUMNS[1], min), (COLUMNS[2], min)):
        values = [m[column] for m in models if m[column] is not None and np.isfinite(m[column])]
        if values:
            found[column] = choose(values)
    return found


def _cell(one: dict[str, Any], column: str, best: dict[str, float]) -> str:
    value = one[column]
    if value is None:
        return "failed" if "error" in one and column == COLUMNS[0] else "-"
    shown = f"{value:.2f}" if column == "seconds" else f"{value:.4g}"
    return f"{shown} *" if best.get(column) == value else shown


def _remarks(found: dict[str, Any]) -> list[str]:
    lines = [
        f"{found['rows_fitted']} rows fitted, {found['rows_held_out']} held out; * is the best.",
        "log-likelihood: mean of a held-out row, in the table's units; kernel models have none "
        "that compares.",
        "reconstruction, imputation: squared error of held-out rows and hidden entries, as a share "
        "of that of column means; less is better.",
    ]
    lines += [f"{m['model']} failed: {m['error']}" for m in found["models"] if "error" in m]
    if found["interrupted"]:
        lines.append("Interrupted: these models were done.")
    return lines


COMMANDS = {"compare": compare}
