"""`dualpca transform`, `impute`, `denoise`, `sample` and `export`: a model put to use."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import polars as pl
import typer
from scipy.special import ndtri

import dualpca
from dualpca.app.cli._fit import (
    ModelOrTable,
    NameHere,
    TableOfModel,
    job_of,
    model_and_table,
    name_of,
    refuse_lonely,
)
from dualpca.app.cli._running import (
    Choice,
    Components,
    Data,
    Decimal,
    Defuse,
    Force,
    ForceHere,
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
    keep_other_kinds,
    load_model,
    method_of,
    preparation_of,
    start,
)
from dualpca.app.tables import columns, reading, writing
from dualpca.app.tables.profiles import LEVELLED
from dualpca.app.tables.text import TEXTUAL, Dialect, TableError
from dualpca.app.tables.thousands import grouped
from dualpca.arrays import task
from dualpca.models.completing import least_rows

Mask = np.ndarray[Any, Any]
Step = Callable[[pl.DataFrame, int], pl.DataFrame]
"""Makes a table of a batch and the number of rows before it."""


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
    defuse: Defuse = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write the latent coordinates of rows; for a hidden Markov model, their states."""
    refuse_json_and_table(as_json, output)

    def work() -> dict[str, Any]:
        keep_inputs([output], [model, data])
        check_output(output, force=force)
        job = start(model, data, id_column, source.reading(), sequence, output, defuse=defuse)
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
    defuse: Defuse = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write rows without noise, as the model reconstructs them."""
    refuse_json_and_table(as_json, output)

    def work() -> dict[str, Any]:
        keep_inputs([output], [model, data])
        check_output(output, force=force)
        job = start(model, data, id_column, source.reading(), output=output, defuse=defuse)
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
    intervals: Annotated[
        str | None,
        typer.Option("--intervals", help="Another table to write: a range for every filled cell."),
    ] = None,
    level: Annotated[
        float, typer.Option("--level", help="Level of these ranges, between 0 and 1.")
    ] = 0.9,
    probabilities: Annotated[
        str | None,
        typer.Option(
            "--probabilities",
            help="Another table to write: the probability of every level for every filled "
            "category (copula only).",
        ),
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option("--draws", min=1, help="Write this many random imputations instead."),
    ] = None,
    name: NameHere = None,
    components: Components = None,
    standardize: Standardize = None,
    choice: Choice,
    id_column: Identifier = None,
    source: Source,
    seed: Seed = 0,
    defuse: Defuse = False,
    force: ForceHere = False,
    as_json: Json = False,
) -> None:
    """Fill missing entries with expected values, or with draws; all other cells stay as they are.

    With a table alone a model is fitted first: probabilistic PCA of a table of numbers, the copula
    model of a table with categories or bounds, or with skewed columns, helped by regressions on the
    other columns.
    """
    model, table = model_and_table(first, data)
    extra = (std, intervals, probabilities)
    refuse_json_and_table(as_json, "-" if table == "-" and output is None else output, *extra)

    def work() -> dict[str, Any]:
        refuse_lonely(table)
        target = output or filled_name(table, source.kind)
        _check_extra(std, intervals, probabilities, draws, level)
        keep_inputs([target], [model] if force else [model, table], replaceable=table)
        keep_inputs(extra, [model, table])
        check_output(target, *extra, force=force)
        only = "ppca" if std else "copula" if probabilities else None  # can say that
        asked = (components, standardize, seed, name)
        job = job_of(
            *(model, table, source, choice, id_column, asked),
            only=only,
            output=target,
            defuse=defuse,
        )
        _check_able(job, std, probabilities)
        filling = _Filling(job, np.random.default_rng(seed), draws)
        filling.count_digits()
        steps = {std: filling.spread, probabilities: filling.chances}
        steps |= {intervals: lambda frame, done: filling.ranges(frame, done, level)}
        others = {path: step for path, step in steps.items() if path is not None}
        found = filling.write_all(target, others)
        found |= {"filled": filling.missing}
        more = {"std": std, "intervals": intervals, "probabilities": probabilities, "draws": draws}
        return found | {key: value for key, value in more.items() if value is not None}

    run("impute", as_json, work, _impute_words)


def _check_extra(
    std: str | None,
    intervals: str | None,
    probabilities: str | None,
    draws: int | None,
    level: float,
) -> None:
    """Refuse options that exclude each other."""
    given = {"--std": std, "--intervals": intervals, "--probabilities": probabilities}
    for option, value in given.items():
        if value is not None and draws is not None:
            what = {"--std": "standard deviation"}.get(option, option[2:])
            raise UsageError(f"{option} and --draws exclude each other: draws have no {what}.")
    if not 0 < level < 1:
        raise UsageError(f"--level {level:g}: expected a number between 0 and 1.")


def _check_able(job: Job, std: str | None, probabilities: str | None) -> None:
    """Refuse what a model cannot say of the cells that it fills."""
    what = type(job.model).__name__
    if std is not None and job.prep.kinds is not None:
        raise UsageError(
            f"--std: {what} has no standard deviations, because its columns may be categories. Use "
            "--intervals for ranges, and --probabilities for categories."
        )
    if probabilities is not None and job.prep.kinds is None:
        raise UsageError(
            f"--probabilities: {what} has no probabilities of levels. Fit --model copula."
        )


def filled_name(data: str, kind: str | None) -> str:
    """Return where filled rows go by default: beside nothing else, in the same format.

    Examples
    --------
    >>> filled_name("data/sales.csv", None), filled_name("-", None)
    ('sales-filled.csv', '-')
    """
    if data == "-":
        return "-"
    ending = Path(reading.part_of(data)[0]).suffix.lower()
    same = reading.KINDS.get(ending) == reading.kind_read(data, kind)
    return f"{name_of(data)}-filled{ending if same else '.csv'}"


def _impute_words(found: dict[str, Any]) -> str:
    if found["output"] == "-":
        return ""
    count = found["filled"]
    told = f"{count} entr{'y' if count == 1 else 'ies'} filled" if count else "nothing was missing"
    return f"{_words(found)[:-1]}, {told}."


class _Filled(NamedTuple):
    """The columns of a model in a batch: where cells were missing, and what they were filled with.

    For models of numbers a cell of which a bound is known, such as <50, counts as missing.
    """

    missing: dict[str, Mask]
    tables: list[pl.DataFrame]  # one, or as many as there are draws


class _Filling:
    """Fills missing entries batch by batch, and counts them."""

    def __init__(self, job: Job, rng: np.random.Generator, draws: int | None) -> None:
        self.job, self.rng, self.draws, self.missing = job, rng, draws, 0
        self.digits: dict[str, int] = {}
        method_of(job.model, "impute" if draws is None else "sample_imputations")

    # --- what is filled ------------------------------------------------------------------------

    def filled(self, frame: pl.DataFrame) -> _Filled:
        """Return the columns of the model with missing entries filled, and count these."""
        found = self._mixed(frame) if self.job.prep.kinds is not None else self._numbers(frame)
        self.missing += sum(int(where.sum()) for where in found.missing.values())
        return found

    def _mixed(self, frame: pl.DataFrame) -> _Filled:
        """Return what a model of columns of any kind fills."""
        rows, model = self.job.rows(frame), self.job.model
        missing = self._unknown(rows)
        if not any(where.any() for where in missing.values()):
            return _Filled(missing, [rows] * (self.draws or 1))
        if self.draws is None:
            tables = [model.impute(rows)]
        else:
            how = {"random_state": self.rng, "parameters": self._parameters()}
            tables = list(model.sample_imputations(rows, self.draws, **how))
        return _Filled(missing, [columns.plain(one) for one in tables])

    def _numbers(self, frame: pl.DataFrame) -> _Filled:
        """Return what a model of numbers fills, in the units of the table."""
        X, model, prep = self.job.rows(frame), self.job.model, self.job.prep
        missing = self._where(np.isnan(np.asarray(X)))
        if not any(where.any() for where in missing.values()):
            return _Filled(missing, [prep.framed(prep.undone(X))] * (self.draws or 1))
        if self.draws is None:
            found = [np.asarray(model.impute(X))]
        else:
            how = {"random_state": self.rng, "parameters": self._parameters()}
            found = [*np.asarray(model.sample_imputations(X, self.draws, **how))]
        bounds = prep.bounds(frame)  # of censored entries, such as <50
        found = [np.clip(one, bounds.lower, bounds.upper) for one in found]
        return _Filled(missing, [prep.framed(prep.undone(one)) for one in found])

    def _where(self, missing: Mask) -> dict[str, Mask]:
        """Return in which rows the columns of the table are missing, of which features are."""
        prep = self.job.prep
        found = {name: missing[:, j] for j, name in enumerate(prep.features) if name in prep.names}
        for name in prep.levels:
            own = [j for j, one in enumerate(prep.features) if one.startswith(f"{name}=")]
            found[name] = np.asarray(missing[:, own].any(axis=1))
        return {name: where for name, where in found.items() if name not in self.job.absent}

    def _unknown(self, rows: pl.DataFrame) -> dict[str, Mask]:
        """Return in which rows the columns of the table are missing, of columns of any kind."""
        return unknown(rows.drop(self.job.absent))

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

    # --- what is written -----------------------------------------------------------------------

    def write(self, output: str) -> dict[str, Any]:
        """Write filled rows: text into text as it came, cell by cell; other tables as tables."""
        table, kind = self.job.table, reading.kind_of(output)
        if table.text is None or table.dialect is None or kind not in reading.TEXT:
            as_text = kind in reading.TEXT
            return self.job.write(output, lambda one: self.step(one, as_text), self.draws or 1)
        text, size = table.text
        separator = "\t" if kind == "tsv" else table.dialect.separator
        first = None if self.draws is None else "draw"
        self.count_digits()
        with writing.target(output) as file:
            copy = writing.Rewritten(file, text, size, separator, defuse=self.job.defuse)
            copy.header(first)
            for records, frame in zip(copy.batches(), table.frames(), strict=True):
                found = self.filled(frame)
                for number, filled in enumerate(found.tables, start=1):
                    changes = self._changes(found.missing, filled, frame)
                    copy.write(records, changes, None if first is None else str(number))
        rows = table.height * (self.draws or 1)
        return {"output": output, "rows": rows, "columns": [*filter(None, [first]), *text.names]}

    def write_all(self, output: str, others: Mapping[str, Step]) -> dict[str, Any]:
        """Write filled rows, and other tables made of the same rows; all of them appear, or none.

        Parameters
        ----------
        output : str
        others : mapping
            By the name of its file, what makes a further table of a batch and the number of rows
            before it.
        """
        table = self.job.table
        with ExitStack() as stack:
            for path, step in others.items():
                file = stack.enter_context(writing.target(path))
                made = self._stepped(step, path)
                kind, defuse = reading.kind_of(path), self.job.defuse
                writing.into(file, made, kind, table.dialect, table.height, defuse=defuse)
            return self.write(output)

    def _stepped(self, step: Step, path: str) -> Iterator[pl.DataFrame]:
        done = 0
        for frame in self.job.table.frames(f"{path}, batch"):
            yield step(frame, done)
            done += frame.height

    def _changes(
        self, missing: dict[str, Mask], filled: pl.DataFrame, frame: pl.DataFrame
    ) -> writing.Changes:
        """Return the cells of a batch that were missing, as text."""
        places = {name: j for j, name in enumerate(frame.columns)}
        found: dict[int, tuple[Any, list[str]]] = {}
        for name, where in missing.items():
            if where.any():
                found[places[name]] = (where, self.words(filled[name].filter(pl.Series(where))))
        return found

    def words(self, values: pl.Series) -> list[str]:
        """Return filled values as the cells of a text file; nothing is an empty cell."""
        decimal = (self.job.table.dialect or Dialect()).decimal
        sign = self.job.table.signs.get(values.name)
        if values.dtype == pl.String:
            found = ["" if value is None else str(value) for value in values]
            number = values.name not in self.job.prep.levels  # with bounds, such as <2.5
            found = [word.replace(".", decimal) for word in found] if number else found
            return found if sign is None else [grouped(word, sign, decimal) for word in found]
        digits = self.digits.get(values.name, 6)
        found = [
            "" if v is None else writing.number_text(float(v), digits, decimal) for v in values
        ]
        return found if sign is None else [grouped(word, sign, decimal) for word in found]

    def count_digits(self) -> None:
        """Find the significant digits to write in each column of numbers: two more than it has.

        The first rows of a text file tell; other columns have six.
        """
        prep = self.job.prep
        names = [name for name in prep.names if name not in prep.levels]
        if self.job.table.text is None:
            return
        text, size = self.job.table.text
        copy = writing.Rewritten(io.BytesIO(), text, size, text.dialect.separator)
        cells: list[list[str]] = []
        for records in copy.batches():
            some = (writing.body_of(one) for one in records[: writing.LOOKED_AT - len(cells)])
            cells += [writing.fields_of(one, text.dialect.separator) for one in some]
            if len(cells) >= writing.LOOKED_AT:
                break
        for name in (name for name in names if name in text.names):
            at = text.names.index(name)
            most = writing.digits_in(row[at] for row in cells if at < len(row))
            self.digits[name] = most + 2 if most else 6

    def step(self, frame: pl.DataFrame, as_text: bool = False) -> pl.DataFrame:
        """Return a batch with entries filled: with expected values, or several times with draws."""
        found = self.filled(frame)
        frame = frame.drop(self.job.absent)
        parts = [self._replaced(frame, one, found.missing, as_text) for one in found.tables]
        if self.draws is not None:
            for number, part in enumerate(parts, start=1):
                part.insert_column(0, pl.Series("draw", [number] * frame.height))
        return pl.concat(parts)

    def _replaced(
        self, frame: pl.DataFrame, filled: pl.DataFrame, missing: dict[str, Mask], as_text: bool
    ) -> pl.DataFrame:
        """Return the table with the columns of the model filled, and all others unchanged.

        A column of whole numbers stays one if what is filled is whole; in text (`as_text`) its
        measured cells stay whole in any case.
        """
        prep, changed = self.job.prep, []
        for name, where in missing.items():
            if self.job.table.whole and not where.any():
                continue
            new, old, at = filled[name], frame[name], pl.Series(where)
            if name in prep.levels:
                own = new == "true" if old.dtype == pl.Boolean else new.cast(old.dtype)
                changed.append(own.zip_with(at, old).alias(name))
            elif new.dtype == pl.String:  # numbers with bounds among them
                changed.append(new.zip_with(at, old.cast(pl.String)))
            elif as_text and (old.dtype.is_integer() or old.dtype in TEXTUAL):
                text = pl.Series(self.words(new), dtype=pl.String)
                changed.append(text.zip_with(at, old.cast(pl.String)).alias(name))
            else:
                changed.append(self._numbers_of(new, old, at))
        return frame.with_columns(changed)

    def _numbers_of(self, new: pl.Series, old: pl.Series, where: pl.Series) -> pl.Series:
        """Return a column of numbers with some of them new, whole if all are and were."""
        known = columns.number(old)
        if isinstance(known, columns.Refused):  # not reached: the model was given its numbers
            raise TableError(columns.refusal([known]))
        found = new.cast(pl.Float64).zip_with(where, known).alias(old.name)
        whole = self.job.table.whole and old.dtype.is_integer() and (found == found.round()).all()
        return found.cast(old.dtype, strict=False).zip_with(where, old) if whole else found

    # --- how sure it is ------------------------------------------------------------------------

    def spread(self, frame: pl.DataFrame, done: int) -> pl.DataFrame:
        """Return the standard deviations of a batch, zero where an entry was observed."""
        job = self.job
        deviations = job.model.impute(job.rows(frame), return_std=True)[1]
        values = job.prep.undone_spread(deviations)
        return job.framed(values, job.prep.features, frame)

    def ranges(self, frame: pl.DataFrame, done: int, level: float) -> pl.DataFrame:
        """Return a line per filled cell: its row and column, value, and the ends of its range."""
        found, low, high = self._ends(frame, level)
        lines: dict[str, list[str]] = {
            name: [] for name in ("row", "column", "value", "low", "high")
        }
        for name, where in found.missing.items():
            at = pl.Series(where)
            lines["row"] += self._rows(frame, done, where)
            lines["column"] += [name] * int(where.sum())
            for key, table in (("value", found.tables[0]), ("low", low), ("high", high)):
                some = name in table.columns
                lines[key] += (
                    self.words(table[name].filter(at)) if some else [""] * int(where.sum())
                )
        made = pl.DataFrame(lines, schema=dict.fromkeys(lines, pl.String))
        return made.with_columns(pl.col("low", "high").replace("", None))

    def _ends(
        self, frame: pl.DataFrame, level: float
    ) -> tuple[_Filled, pl.DataFrame, pl.DataFrame]:
        """Return filled cells with the ends of their ranges; nominal columns have none."""
        job, rows = self.job, self.job.rows(frame)
        if job.prep.kinds is not None:
            tables = job.model.impute(rows, return_interval=True, level=level)
            value, low, high = (columns.plain(one) for one in tables)
            return _Filled(self._unknown(rows), [value]), low, high
        mean, std = (np.asarray(one) for one in job.model.impute(rows, return_std=True))
        reach = float(ndtri((1 + level) / 2)) * std
        bounds = job.prep.bounds(frame)
        tables = [
            job.prep.framed(job.prep.undone(np.clip(one, bounds.lower, bounds.upper)))
            for one in (mean, mean - reach, mean + reach)
        ]
        missing = self._where(np.isnan(np.asarray(rows)))
        low, high = (one.drop(list(job.prep.levels)) for one in tables[1:])
        return _Filled(missing, tables[:1]), low, high

    def chances(self, frame: pl.DataFrame, done: int) -> pl.DataFrame:
        """Return a line per filled cell and level: row, column, level, and its probability."""
        job, rows = self.job, self.job.rows(frame)
        kinds = job.prep.kinds or {}
        lines: dict[str, list[Any]] = {name: [] for name in ("row", "column", "level")}
        lines["probability"] = []
        for name, where in self._unknown(rows).items():
            levels = job.model.levels_.get(name)
            if kinds[name] not in LEVELLED or levels is None or not where.any():
                continue
            some = rows.filter(pl.Series(where))
            chance = np.asarray(job.model.predict_proba(some, name))
            named = [str(one) for one in columns.texts(pl.Series(list(levels)))]
            for row, line in zip(self._rows(frame, done, where), chance, strict=True):
                lines["row"] += [row] * len(named)
                lines["column"] += [name] * len(named)
                lines["level"] += named
                lines["probability"] += line.tolist()
        schema = dict.fromkeys(lines, pl.String) | {"probability": pl.Float64}
        return pl.DataFrame(lines, schema=schema)

    def _rows(self, frame: pl.DataFrame, done: int, where: Mask) -> list[str]:
        """Return what some rows are called: by their identifiers, else by their numbers."""
        at = np.flatnonzero(where)
        if self.job.id_column is None:
            return [str(done + int(i) + 1) for i in at]
        return [str(name) for name in frame[self.job.id_column][at.tolist()]]


def unknown(rows: pl.DataFrame) -> dict[str, Mask]:
    """Return which entries of columns of any kind are missing.

    Examples
    --------
    >>> found = unknown(pl.DataFrame({"a": [1, None], "c": ["<5", "7"]}))
    >>> {name: where.tolist() for name, where in found.items()}
    {'a': [False, True], 'c': [False, False]}
    """
    return {column.name: column.is_null().to_numpy() for column in rows.iter_columns()}


def sample(
    model: Model,
    output: Output,
    n_samples: Annotated[int, typer.Option("--rows", "-n", min=1, help="Number of rows.")] = 100,
    separator: Separator = None,
    decimal: Decimal = None,
    seed: Seed = 0,
    defuse: Defuse = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Sample new rows from the model, with the component or state of each if it has those."""
    refuse_json_and_table(as_json, output)

    def work() -> dict[str, Any]:
        keep_inputs([output], [model])
        check_output(output, force=force)
        how = Source(separator=separator, decimal=decimal).reading()
        fitted, metadata = load_model(model)
        names = features_of(fitted)
        prep = preparation_of(fitted, metadata, names, None)
        with task("drawing", 1) as tick:
            rows = method_of(fitted, "sample")(n_samples, random_state=seed)
            tick()
        frame = _drawn(fitted, rows, names, prep)
        dialect = Dialect(how.separator or ",", how.decimal or ".")
        done = writing.write(frame, output, dialect, defuse=defuse)
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
    if prep.kinds is not None:
        return columns.plain(rows)
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
        keep_inputs([output], [model])
        keep_other_kinds(output, "onnx", force)
        fitted, metadata = load_model(model)
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
