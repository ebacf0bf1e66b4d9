"""`dualpca score` and `inspect`: what a model says of rows, and of itself."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import polars as pl
import typer

from dualpca import persistence, tables
from dualpca.cli._fit import summary
from dualpca.cli._running import (
    Data,
    Encoding,
    Format,
    Identifier,
    Json,
    Level,
    Model,
    plain,
    refuse_mixture,
    run,
)
from dualpca.cli._use import _check, names_of, opened
from dualpca.tables import TableError

SHOWN = 10


def score(
    model: Model,
    data: Data,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Table to write: a line for every row.")
    ] = None,
    level: Level = 0.95,
    id_column: Identifier = None,
    kind: Format = None,
    encoding: Encoding = "utf-8",
    as_json: Json = False,
) -> None:
    """Judge rows: log-density, distances with their limits, and which rows are unusual."""
    refuse_mixture(as_json, output)

    def work() -> dict[str, Any]:
        _check(output)
        fitted, frame, X = opened(model, data, id_column, kind, encoding)
        table = pl.DataFrame(judged(fitted, X, level))
        rows = frame[id_column] if id_column else pl.Series("row", range(1, frame.height + 1))
        table.insert_column(0, rows)
        if output is not None:
            tables.write(table, output)
        return _summary(table, level) | {"output": output}

    run("score", as_json, work, _score_words)


def judged(model: Any, X: Any, level: float) -> dict[str, Any]:
    """Return the columns that say how unusual each row is, as far as the model can."""
    found: dict[str, Any] = {}
    if hasattr(model, "score_samples"):
        found["log_density"] = np.asarray(model.score_samples(X))
    if hasattr(model, "outliers"):
        limits = model.outliers(X, level=level)._asdict()
        found |= {k: np.asarray(v) for k, v in limits.items() if k != "flagged"}
        found["outlier"] = np.asarray(limits["flagged"])
    elif hasattr(model, "is_novel"):
        found["novelty"] = np.asarray(model.novelty(X))
        found["novelty_limit"] = np.full(len(found["novelty"]), model.novelty_threshold(level))
        found["outlier"] = np.asarray(model.is_novel(X, level))
    if not found:
        raise TableError(f"{type(model).__name__} has neither densities nor limits to judge by.")
    return found


def _summary(table: pl.DataFrame, level: float) -> dict[str, Any]:
    found: dict[str, Any] = {"rows": table.height, "level": level}
    if "log_density" in table.columns:
        found["mean_log_density"] = float(np.mean(table["log_density"].to_numpy()))
    if "outlier" in table.columns:
        odd = table.filter(pl.col("outlier"))
        found["n_outliers"] = odd.height
        found["outliers"] = odd.to_series(0).to_list()
    return found


def _score_words(found: dict[str, Any]) -> str:
    if found["output"] == "-":
        return ""
    lines = [f"{found['rows']} rows"]
    if "mean_log_density" in found:
        lines.append(f"mean log-density {found['mean_log_density']:.6g}")
    if "outliers" in found:
        some = ", ".join(str(row) for row in found["outliers"][:SHOWN])
        more = ", …" if found["n_outliers"] > SHOWN else ""
        which = f": {some}{more}" if some else ""
        lines.append(f"{found['n_outliers']} beyond the {found['level']:g} limits{which}")
    if found["output"] is not None:
        lines.append(f"Wrote {found['output']}.")
    return "\n".join(lines)


def inspect(model: Model, as_json: Json = False) -> None:
    """Say what is in a model file."""

    def work() -> dict[str, Any]:
        fitted, version, metadata = persistence.read(model)
        arrays = {k: list(np.shape(v)) for k, v in vars(fitted).items() if k.endswith("_")}
        arrays = {k: shape for k, shape in arrays.items() if shape}
        parameters = plain(fitted.get_params(deep=False))
        found = {"file": model, "version": version, **summary(fitted)}
        found |= {"columns": names_of(fitted), "parameters": parameters, "arrays": arrays}
        return found | {"metadata": metadata}

    run("inspect", as_json, work, _inspect_words)


def _inspect_words(found: dict[str, Any]) -> str:
    lines = [f"{found['file']}: {found['model']}, written by dualpca {found['version']}"]
    for name, value in found.items():
        if name not in APART:
            shown = f"{value:.6g}" if type(value) is float else value
            lines.append(f"  {name.replace('_', ' ')}: {shown}")
    columns = found["columns"]
    if columns:
        lines.append(f"  columns: {', '.join(columns[:SHOWN])}{', …' if columns[SHOWN:] else ''}")
    lines += ["parameters"] + [f"  {k} = {v!r}" for k, v in found["parameters"].items()]
    lines += ["arrays"] + [f"  {k} {tuple(shape)}" for k, shape in found["arrays"].items()]
    if found["metadata"]:
        lines += ["metadata", f"  {', '.join(found['metadata'])} (--json shows all)"]
    return "\n".join(lines)


APART = ("file", "model", "version", "columns", "parameters", "arrays", "metadata")

COMMANDS = {"score": score, "inspect": inspect}
