"""`dualpca transform`, `impute`, `denoise` and `sample`: from a model and a table to a table."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import polars as pl
import typer

import dualpca
from dualpca import columns, tables
from dualpca.atomic import target_of
from dualpca.cli._running import (
    Data,
    Encoding,
    Format,
    Identifier,
    Json,
    Model,
    Output,
    Seed,
    refuse_mixture,
    run,
)
from dualpca.tables import TableError


def names_of(model: Any) -> list[str] | None:
    """Return the names of the columns that a model was fitted on, if it had them."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def rows_for(model: Any, frame: pl.DataFrame, id_column: str | None) -> Any:
    """Return the rows of a table as the model takes them."""
    names = names_of(model)
    if names is not None:
        return columns.matching(frame, names)
    rest = frame if id_column is None else frame.drop(id_column)
    return columns.numbers(rest, rest.columns).to_numpy()


def opened(path: str, data: str, id_column: str | None, kind: str | None, encoding: str) -> Any:
    """Return a model, a table, and the rows of the table for the model."""
    model = dualpca.load(path)
    frame = tables.read(data, kind, encoding)
    if id_column is not None and id_column not in frame.columns:
        raise TableError(f"--id {id_column}: no such column; there are {frame.columns[:10]}.")
    return model, frame, rows_for(model, frame, id_column)


def framed(
    values: Any, names: list[str], frame: pl.DataFrame, id_column: str | None
) -> pl.DataFrame:
    """Return a matrix as a table, with the row identifiers in front."""
    found = pl.DataFrame(np.asarray(values), schema=names, orient="row")
    return found if id_column is None else found.insert_column(0, frame[id_column])


def method_of(model: Any, *names: str) -> Any:
    """Return the first of these methods that a model has."""
    for name in names:
        if hasattr(model, name):
            return getattr(model, name)
    raise TableError(f"{type(model).__name__} cannot {names[0]}: fit another --model.")


def _written(frame: pl.DataFrame, output: str) -> dict[str, Any]:
    tables.write(frame, output)
    return {"output": output, "rows": frame.height, "columns": frame.columns}


def _check(output: str | None) -> None:
    """Refuse an output that cannot be written, before any work."""
    if output is not None and output != "-":
        tables.kind_of(output)
        target_of(output)


def _words(found: dict[str, Any]) -> str:
    if found["output"] == "-":
        return ""
    return f"Wrote {found['output']}: {found['rows']} rows, {len(found['columns'])} columns."


def transform(
    model: Model,
    data: Data,
    output: Output,
    id_column: Identifier = None,
    kind: Format = None,
    encoding: Encoding = "utf-8",
    as_json: Json = False,
) -> None:
    """Write the latent coordinates of rows."""
    refuse_mixture(as_json, output)

    def work() -> dict[str, Any]:
        _check(output)
        fitted, frame, X = opened(model, data, id_column, kind, encoding)
        names = [str(name) for name in fitted.get_feature_names_out()]
        return _written(framed(fitted.transform(X), names, frame, id_column), output)

    run("transform", as_json, work, _words)


def denoise(
    model: Model,
    data: Data,
    output: Output,
    id_column: Identifier = None,
    kind: Format = None,
    encoding: Encoding = "utf-8",
    as_json: Json = False,
) -> None:
    """Write rows as the model sees them, without noise."""
    refuse_mixture(as_json, output)

    def work() -> dict[str, Any]:
        _check(output)
        fitted, frame, X = opened(model, data, id_column, kind, encoding)
        clean = method_of(fitted, "denoise", "reconstruct")(X)
        return _written(framed(clean, _features(fitted), frame, id_column), output)

    run("denoise", as_json, work, _words)


def _features(model: Any) -> list[str]:
    return names_of(model) or [f"x{j}" for j in range(model.n_features_in_)]


def impute(
    model: Model,
    data: Data,
    output: Output,
    std: Annotated[
        str | None, typer.Option("--std", help="Table of standard deviations to write too.")
    ] = None,
    draws: Annotated[
        int | None, typer.Option("--draws", min=1, help="Write this many draws instead.")
    ] = None,
    id_column: Identifier = None,
    kind: Format = None,
    encoding: Encoding = "utf-8",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Fill missing entries with expectations, or with draws; other columns stay as they are."""
    refuse_mixture(as_json, output, std)
    if std is not None and draws is not None:
        raise typer.BadParameter("--std and --draws exclude each other: draws have no deviation.")

    def work() -> dict[str, Any]:
        _check(output)
        _check(std)
        fitted, frame, X = opened(model, data, id_column, kind, encoding)
        missing = int(np.isnan(np.asarray(X)).sum())
        if draws is not None:
            found = method_of(fitted, "sample_imputations")(X, draws, random_state=seed)
            each = enumerate(np.asarray(found), start=1)
            parts = [_drawn(frame, fitted, part, i, id_column) for i, part in each]
            return _written(pl.concat(parts), output) | {"filled": missing, "draws": draws}
        filled, spread = method_of(fitted, "impute")(X, return_std=True)
        result = {"filled": missing}
        if std is not None:
            tables.write(framed(spread, _features(fitted), frame, id_column), std)
            result |= {"std": std}  # type: ignore[dict-item]
        return _written(_replaced(frame, fitted, filled, id_column), output) | result

    run("impute", as_json, work, _words)


def _replaced(frame: pl.DataFrame, model: Any, filled: Any, id_column: str | None) -> pl.DataFrame:
    """Return the table with the columns of the model filled, and all others as they are."""
    values, names = np.asarray(filled), names_of(model)
    if names is None or not set(names) <= set(frame.columns):  # some are made of others
        return framed(values, _features(model), frame, id_column)
    return frame.with_columns([pl.Series(n, values[:, j]) for j, n in enumerate(names)])


def _drawn(
    frame: pl.DataFrame, model: Any, values: Any, number: int, id_column: str | None
) -> pl.DataFrame:
    numbers = pl.Series("draw", [number] * len(frame))
    return _replaced(frame, model, values, id_column).insert_column(0, numbers)


def sample(
    model: Model,
    output: Output,
    n_samples: Annotated[int, typer.Option("--rows", "-n", min=1, help="How many.")] = 100,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Draw new rows from the model."""
    refuse_mixture(as_json, output)

    def work() -> dict[str, Any]:
        _check(output)
        fitted = dualpca.load(model)
        rows = method_of(fitted, "sample")(n_samples, random_state=seed)
        if isinstance(rows, tuple):
            raise TableError(f"{type(fitted).__name__} draws two tables: use it from Python.")
        return _written(framed(rows, _features(fitted), pl.DataFrame(), None), output)

    run("sample", as_json, work, _words)


COMMANDS = {"transform": transform, "impute": impute, "denoise": denoise, "sample": sample}
