"""`dualpca transform`, `impute`, `denoise`, `sample` and `export`: a model put to use."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer

import dualpca
from dualpca.app.cli._fit import (
    ModelOrTable,
    TableOfModel,
    fit_here,
    model_and_table,
    name_of,
    refuse_fitting,
    refuse_lonely,
)
from dualpca.app.cli._running import (
    Choice,
    Components,
    Data,
    Decimal,
    Force,
    Identifier,
    Json,
    Lengths,
    Model,
    Output,
    Seed,
    Separator,
    SequenceColumn,
    Source,
    Standardize,
    UsageError,
    note,
    refuse_json_and_table,
    run,
)
from dualpca.app.cli._session import (
    Job,
    check_output,
    features_of,
    keep_inputs,
    load_model,
    method_of,
    preparation_of,
    start,
)
from dualpca.app.tables import reading, writing
from dualpca.app.tables.text import Dialect, TableError
from dualpca.arrays import task
from dualpca.data import target_of
from dualpca.models.incomplete import least_rows


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
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write the latent coordinates of rows; for a hidden Markov model, their states."""
    refuse_json_and_table(as_json, output)

    def work() -> dict[str, Any]:
        check_output(output)
        keep_inputs([output], [model, data], force)
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
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write rows without noise, as the model reconstructs them."""
    refuse_json_and_table(as_json, output)

    def work() -> dict[str, Any]:
        check_output(output)
        keep_inputs([output], [model, data], force)
        job = start(model, data, id_column, source.reading(), output=output)
        clean, names = method_of(job.model, "denoise", "reconstruct"), job.prep.features

        def step(frame: pl.DataFrame) -> pl.DataFrame:
            values = job.prep.undone(clean(job.rows(frame)))
            return job.framed(values, names, frame)

        return job.write(output, step)

    run("denoise", as_json, work, _words)


def impute(
    first: ModelOrTable,
    data: TableOfModel = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="Table to write; - is standard output. By default the table's name with -filled.",
        ),
    ] = None,
    *,
    std: Annotated[
        str | None, typer.Option("--std", help="Second table to write: standard deviations.")
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option("--draws", min=1, help="Write this many random imputations instead."),
    ] = None,
    components: Components = None,
    standardize: Standardize = None,
    choice: Choice,
    id_column: Identifier = None,
    source: Source,
    seed: Seed = 0,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Fill missing entries with expected values, or with draws; all other cells stay as they are.

    With a table alone a model is fitted first, as `dualpca fit` does without options.
    """
    model, table = model_and_table(first, data)
    refuse_json_and_table(as_json, "-" if table == "-" and output is None else output, std)

    def work() -> dict[str, Any]:
        refuse_lonely(table)
        target = output or filled_name(table, source.kind)
        if std is not None and draws is not None:
            raise UsageError(
                "--std and --draws exclude each other: draws have no standard deviation."
            )
        check_output(target, std)
        keep_inputs([target, std], [model, table], force)
        if model is None:
            made = fit_here(table, source, choice, id_column, components, standardize, seed)
            job = Job(made.model, made.prep, made.table, made.prep.identifier, None)
        else:
            refuse_fitting(model, choice, components, standardize)
            job = start(model, table, id_column, source.reading(), output=target)
        filling = _Filling(job, np.random.default_rng(seed), draws)
        found = filling.write(target) if std is None else filling.write_both(target, std)
        found |= {"filled": filling.missing}
        return found | ({"std": std} if std else {}) | ({"draws": draws} if draws else {})

    run("impute", as_json, work, _impute_words)


def filled_name(data: str, kind: str | None) -> str:
    """Return where filled rows go by default: beside nothing else, in the same format.

    Examples
    --------
    >>> filled_name("data/sales.csv", None), filled_name("-", None)
    ('sales-filled.csv', '-')
    """
    if data == "-":
        return "-"
    ending = Path(data).suffix.lower()
    same = reading.KINDS.get(ending) == reading.kind_read(data, kind)
    return f"{name_of(data)}-filled{ending if same else '.csv'}"


def _impute_words(found: dict[str, Any]) -> str:
    if found["output"] == "-":
        return ""
    count = found["filled"]
    told = f"{count} entr{'y' if count == 1 else 'ies'} filled" if count else "nothing was missing"
    return f"{_words(found)[:-1]}, {told}."


class _Filling:
    """Fills missing entries batch by batch, and counts them."""

    def __init__(self, job: Job, rng: np.random.Generator, draws: int | None) -> None:
        self.job, self.rng, self.draws, self.missing = job, rng, draws, 0
        method_of(job.model, "impute" if draws is None else "sample_imputations")

    def write(self, output: str) -> dict[str, Any]:
        """Write filled rows: text into text as it came, cell by cell; other tables as tables."""
        table, kind = self.job.table, reading.kind_of(output)
        if table.text is None or table.dialect is None or kind not in reading.TEXT:
            return self.job.write(output, self.step, self.draws or 1)
        text, size = table.text
        separator = "\t" if kind == "tsv" else table.dialect.separator
        first = None if self.draws is None else "draw"
        digits = self._digits(writing.Rewritten(io.BytesIO(), text, size, separator))
        with writing.target(output) as file:
            copy = writing.Rewritten(file, text, size, separator)
            copy.header(first)
            for records, frame in zip(copy.batches(), table.frames(), strict=True):
                X = self.job.rows(frame)
                for number, filled in enumerate(self._filled(X, frame), start=1):
                    changes = self._changes(X, filled, frame, digits)
                    copy.write(records, changes, None if first is None else str(number))
        rows = table.height * (self.draws or 1)
        return {"output": output, "rows": rows, "columns": [*filter(None, [first]), *text.names]}

    def _filled(self, X: Any, frame: pl.DataFrame) -> list[Any]:
        """Return filled rows in the units of the table: once, or as often as there are draws."""
        model, prep = self.job.model, self.job.prep
        missing = int(np.isnan(np.asarray(X)).sum())
        self.missing += missing
        if not missing:
            return [prep.undone(X)] * (self.draws or 1)
        if self.draws is None:
            found = [np.asarray(model.impute(X))]
        else:
            how = {"random_state": self.rng, "parameters": self._parameters()}
            found = [*np.asarray(model.sample_imputations(X, self.draws, **how))]
        bounds = prep.bounds(frame)  # of censored entries, such as <50
        found = [np.clip(one, bounds.lower, bounds.upper) for one in found]
        return [prep.undone(one) for one in found]

    def _parameters(self) -> str:
        """Return 'bootstrap' for a table that it can be drawn from, 'fixed' with a note if not."""
        table, least = self.job.table, least_rows(int(np.max(self.job.model.n_components_)))
        if table.whole and table.height >= least:
            return "bootstrap"
        why = f"has fewer than {least} rows" if table.whole else "is read in batches"
        note(
            f"{table.path} {why}: all draws share the fitted parameters, so intervals pooled from "
            "them are somewhat too narrow."
        )
        return "fixed"

    def _changes(
        self, X: Any, filled: Any, frame: pl.DataFrame, digits: dict[str, int]
    ) -> writing.Changes:
        """Return the cells of a batch that were missing, as text."""
        prep, places = self.job.prep, {name: j for j, name in enumerate(frame.columns)}
        dialect = self.job.table.dialect or Dialect()
        missing = np.isnan(np.asarray(X))
        found: dict[int, tuple[Any, list[str]]] = {}
        for j, name in enumerate(prep.features):
            if name in digits and missing[:, j].any():
                values = filled[missing[:, j], j]
                words = [writing.number_text(v, digits[name], dialect.decimal) for v in values]
                found[places[name]] = (missing[:, j], words)
        for name, levels in self._categories(filled).items():
            where = self._unknown(name, missing)
            found[places[name]] = (where, [str(levels[int(i)]) for i in np.flatnonzero(where)])
        return found

    def _unknown(self, name: str, missing: Any) -> Any:
        """Return in which rows the category is missing, (n,), of which features are missing."""
        prep = self.job.prep
        own = [j for j, one in enumerate(prep.features) if one.startswith(f"{name}=")]
        return missing[:, own].any(axis=1)

    def _categories(self, filled: Any) -> dict[str, pl.Series]:
        """Return the category of every row, in columns of categories."""
        if not self.job.prep.levels:
            return {}
        found = self.job.prep.categories(filled)
        return {column.name: column for column in found.iter_columns()}

    def _digits(self, copy: writing.Rewritten) -> dict[str, int]:
        """Return the significant digits to write in each column of numbers: two more than it has.

        The first rows tell.
        """
        prep, text = self.job.prep, copy.text
        names = [name for name in prep.features if name in text.names and name not in prep.levels]
        cells: list[list[str]] = []
        for records in copy.batches():
            some = (writing.body_of(one) for one in records[: writing.LOOKED_AT - len(cells)])
            cells += [writing.fields_of(one, text.dialect.separator) for one in some]
            if len(cells) >= writing.LOOKED_AT:
                break
        found = {}
        for name in names:
            at = text.names.index(name)
            most = writing.digits_in(row[at] for row in cells if at < len(row))
            found[name] = most + 2 if most else 6
        return found

    def step(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return a batch with entries filled: with expected values, or several times with draws."""
        X = self.job.rows(frame)
        parts = [self._replaced(frame, one) for one in self._filled(X, frame)]
        if self.draws is not None:
            for number, part in enumerate(parts, start=1):
                part.insert_column(0, pl.Series("draw", [number] * frame.height))
        return pl.concat(parts)

    def write_both(self, output: str, std: str) -> dict[str, Any]:
        """Write standard deviations and filled rows; both files appear, or neither."""
        table = self.job.table
        with writing.target(std) as file:
            made = (self.spread(frame) for frame in table.frames("deviations, batch"))
            writing.into(file, made, reading.kind_of(std), table.dialect, table.height)
            return self.write(output)

    def spread(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the standard deviations of a batch, zero where an entry was observed."""
        job = self.job
        deviations = job.model.impute(job.rows(frame), return_std=True)[1]
        values = job.prep.undone_spread(deviations)
        return job.framed(values, job.prep.features, frame)

    def _replaced(self, frame: pl.DataFrame, values: Any) -> pl.DataFrame:
        """Return the table with the columns of the model filled, and all others unchanged."""
        prep = self.job.prep
        known = replace(prep, means=None, scales=None).rows(frame).to_numpy()
        values = np.where(np.isnan(known), values, known)  # not rounded by the units
        found = []
        for j, name in enumerate(prep.features):
            whole = self.job.table.whole and not np.isnan(known[:, j]).any()
            if name in frame.columns and name not in prep.levels and not whole:
                found.append(pl.Series(name, values[:, j]))
        for name, levels in self._categories(values).items():
            where = pl.Series(self._unknown(name, np.isnan(known)))
            if not self.job.table.whole or where.any():
                text = frame[name].cast(pl.String)
                found.append(levels.zip_with(where, text).alias(name))
        return frame.with_columns(found)


def sample(
    model: Model,
    output: Output,
    n_samples: Annotated[int, typer.Option("--rows", "-n", min=1, help="Number of rows.")] = 100,
    separator: Separator = None,
    decimal: Decimal = None,
    seed: Seed = 0,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Sample new rows from the model, with the component or state of each if it has those."""
    refuse_json_and_table(as_json, output)

    def work() -> dict[str, Any]:
        check_output(output)
        keep_inputs([output], [model], force)
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
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write `transform` as an ONNX graph, with the standardisation."""

    def work() -> dict[str, Any]:
        target_of(output)
        keep_inputs([output], [model], force)
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
