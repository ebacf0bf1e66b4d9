"""`dualpca transform`, `impute`, `denoise`, `sample` and `export`: a model put to use."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import polars as pl
import typer

import dualpca
from dualpca.app.cli._running import (
    Data,
    Decimal,
    Identifier,
    Json,
    Lengths,
    Model,
    Output,
    Seed,
    Separator,
    SequenceColumn,
    Source,
    UsageError,
    refuse_json_and_table,
    run,
)
from dualpca.app.cli._session import (
    Job,
    check_output,
    features_of,
    load_model,
    method_of,
    preparation_of,
    start,
)
from dualpca.app.tables import columns, reading, writing
from dualpca.app.tables.text import Dialect, TableError
from dualpca.arrays import task
from dualpca.data import target_of


def _words(found: dict[str, Any]) -> str:
    if found["output"] == "-":
        return ""
    return f"Wrote {found['output']}: {found['rows']} rows, {len(found['columns'])} columns."


def transform(
    model: Model,
    data: Data,
    output: Output,
    *,
    id_column: Identifier = None,
    sequence: SequenceColumn = None,
    lengths: Lengths = None,
    source: Source,
    as_json: Json = False,
) -> None:
    """Write the latent coordinates of rows; for a hidden Markov model, their states."""
    refuse_json_and_table(as_json, output)

    def work() -> dict[str, Any]:
        check_output(output)
        job = start(model, data, id_column, source.reading(), sequence, output)
        if hasattr(job.model, "decode") and not hasattr(job.model, "transform"):
            return job.write(output, lambda frame: _states(job, frame, lengths))
        names = [str(name) for name in job.model.get_feature_names_out()]

        def step(frame: pl.DataFrame) -> pl.DataFrame:
            latents = job.model.transform(job.rows(frame))
            return job.framed(latents, names, frame)

        return job.write(output, step)

    run("transform", as_json, work, _words)


def _states(job: Job, frame: pl.DataFrame, lengths: str | None) -> pl.DataFrame:
    """Return the most probable path of states, and the probability of each."""
    X, parts = job.rows(frame), job.lengths(lengths)
    path = pl.DataFrame({"state": np.asarray(job.model.predict(X, parts))})
    chances = np.asarray(job.model.predict_proba(X, parts))
    names = [f"state{k}" for k in range(chances.shape[1])]
    both = path.hstack(pl.DataFrame(chances, schema=names, orient="row"))
    return job.identified(both, frame)


def denoise(
    model: Model,
    data: Data,
    output: Output,
    *,
    id_column: Identifier = None,
    source: Source,
    as_json: Json = False,
) -> None:
    """Write rows without noise, as the model reconstructs them."""
    refuse_json_and_table(as_json, output)

    def work() -> dict[str, Any]:
        check_output(output)
        job = start(model, data, id_column, source.reading(), output=output)
        clean, names = method_of(job.model, "denoise", "reconstruct"), job.prep.features

        def step(frame: pl.DataFrame) -> pl.DataFrame:
            values = job.prep.undone(clean(job.rows(frame)))
            return job.framed(values, names, frame)

        return job.write(output, step)

    run("denoise", as_json, work, _words)


def impute(
    model: Model,
    data: Data,
    output: Output,
    *,
    std: Annotated[
        str | None, typer.Option("--std", help="Second table to write: standard deviations.")
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option("--draws", min=1, help="Write this many random imputations instead."),
    ] = None,
    id_column: Identifier = None,
    source: Source,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Fill missing entries with expected values, or with draws; other columns stay as they are."""
    refuse_json_and_table(as_json, output, std)

    def work() -> dict[str, Any]:
        if std is not None and draws is not None:
            raise UsageError(
                "--std and --draws exclude each other: draws have no standard deviation."
            )
        check_output(output, std)
        job = start(model, data, id_column, source.reading(), output=output)
        filling = _Filling(job, np.random.default_rng(seed), draws)
        if std is None:
            found = job.write(output, filling.step, draws or 1)
        else:
            found = filling.write_both(output, std)
        found |= {"filled": filling.missing}
        return found | ({"std": std} if std else {}) | ({"draws": draws} if draws else {})

    run("impute", as_json, work, _impute_words)


def _impute_words(found: dict[str, Any]) -> str:
    if found["output"] == "-":
        return ""
    return f"{_words(found)[:-1]}, {found['filled']} entries filled."


class _Filling:
    """Fills missing entries batch by batch, and counts them."""

    def __init__(self, job: Job, rng: np.random.Generator, draws: int | None) -> None:
        self.job, self.rng, self.draws, self.missing = job, rng, draws, 0

    def step(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return a batch with entries filled: with expected values, or several times with draws."""
        model, X = self.job.model, self.job.rows(frame)
        self.missing += int(np.isnan(np.asarray(X)).sum())
        if self.draws is None:
            return self._replaced(frame, method_of(model, "impute")(X))
        found = method_of(model, "sample_imputations")(X, self.draws, random_state=self.rng)
        parts = [self._replaced(frame, part) for part in np.asarray(found)]
        for number, part in enumerate(parts, start=1):
            part.insert_column(0, pl.Series("draw", [number] * frame.height))
        return pl.concat(parts)

    def write_both(self, output: str, std: str) -> dict[str, Any]:
        """Write standard deviations and filled rows; both files appear, or neither."""
        method_of(self.job.model, "impute")
        table = self.job.table
        with writing.target(std) as file:
            made = (self.spread(frame) for frame in table.frames("deviations, batch"))
            writing.into(file, made, reading.kind_of(std), table.dialect, table.height)
            return self.job.write(output, self.step)

    def spread(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the standard deviations of a batch, zero where an entry was observed."""
        job = self.job
        deviations = job.model.impute(job.rows(frame), return_std=True)[1]
        values = job.prep.undone_spread(deviations)
        return job.framed(values, job.prep.features, frame)

    def _replaced(self, frame: pl.DataFrame, filled: Any) -> pl.DataFrame:
        """Return the table with the columns of the model filled, and all others unchanged."""
        prep = self.job.prep
        values = prep.undone(filled)
        if prep.levels:  # features that are not columns of the table
            return self.job.framed(values, prep.features, frame)
        known = columns.numbers(frame, prep.names).to_numpy()
        values = np.where(
            np.isnan(known), values, known
        )  # known values are not rounded by the units
        return frame.with_columns([pl.Series(n, values[:, j]) for j, n in enumerate(prep.names)])


def sample(
    model: Model,
    output: Output,
    n_samples: Annotated[int, typer.Option("--rows", "-n", min=1, help="Number of rows.")] = 100,
    separator: Separator = None,
    decimal: Decimal = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Sample new rows from the model, with the component or state of each if it has those."""
    refuse_json_and_table(as_json, output)

    def work() -> dict[str, Any]:
        check_output(output)
        how = Source(separator=separator, decimal=decimal).reading()
        fitted, metadata = load_model(model)
        names = features_of(fitted)
        prep = preparation_of(fitted, metadata, names, None)
        with task("drawing", 1) as tick:
            rows = method_of(fitted, "sample")(n_samples, random_state=seed)
            tick()
        frame = _drawn(fitted, rows, names, prep)
        dialect = Dialect(how.separator or ",", how.decimal or ".")
        done = writing.write(frame, output, dialect)
        return {"output": output, "rows": done.rows, "columns": done.columns}

    run("sample", as_json, work, _words)


def _drawn(model: Any, rows: Any, names: list[str], prep: Any) -> pl.DataFrame:
    """Return samples as a table in its units, with the label of each row first."""
    label = None
    if isinstance(rows, tuple):
        rows, label = rows
        if np.ndim(label) != 1:
            what = type(model).__name__
            raise TypeError(f"{what} samples two tables: use it from Python.")
    found = pl.DataFrame(prep.undone(rows), schema=names, orient="row")
    if label is None:
        return found
    name = "state" if hasattr(model, "transitions_") else "component"
    return found.insert_column(0, pl.Series(name, np.asarray(label)))


# --- export ------------------------------------------------------------------------------------


def export(
    model: Model,
    output: Annotated[str, typer.Option("--output", "-o", help="ONNX file to write.")],
    dtype: Annotated[
        str, typer.Option("--dtype", help="Type of rows and coordinates: float64 or float32.")
    ] = "float64",
    as_json: Json = False,
) -> None:
    """Write `transform` as an ONNX graph, with the standardisation."""

    def work() -> dict[str, Any]:
        target_of(output)
        fitted, metadata = dualpca.load(model, return_metadata=True)
        try:
            data = dualpca.to_onnx(fitted, output, dtype=dtype, metadata=metadata)
        except ImportError as error:
            raise TableError(str(error)) from None
        size = {"bytes": len(data), "features": int(fitted.n_features_in_), "dtype": dtype}
        return {"output": output, "model": type(fitted).__name__, **size}

    def words(found: dict[str, Any]) -> str:
        rows = f"X ({found['dtype']}, {found['features']} columns)"
        return f"Wrote {found['output']}: {found['model']} from {rows} to Y."

    run("export", as_json, work, words)


COMMANDS = {
    "transform": transform,
    "impute": impute,
    "denoise": denoise,
    "sample": sample,
    "export": export,
}
