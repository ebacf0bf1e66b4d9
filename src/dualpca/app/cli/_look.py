"""`dualpca score`, `inspect` and `calibrate`: what a model says about rows, and about itself."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
import polars as pl
import typer

from dualpca.app.cli._fit import (
    FITTED_HERE,
    ModelOrTable,
    NameHere,
    TableOfModel,
    job_of,
    model_and_table,
    refuse_lonely,
    summary,
)
from dualpca.app.cli._running import (
    Choice,
    Components,
    Data,
    Defuse,
    Force,
    Identifier,
    Json,
    Lengths,
    Level,
    Model,
    SampleRows,
    Seed,
    SequenceColumn,
    Source,
    Standardize,
    plain,
    refuse_json_and_table,
    run,
)
from dualpca.app.cli._session import (
    Job,
    at_once,
    check_output,
    check_picture,
    draw_picture,
    keep_inputs,
    names_of,
    start,
    units_of,
)
from dualpca.app.tables.columns import Preparation, kind_words
from dualpca.errors import ModelFileError
from dualpca.files.fields import escaped, hints_of, is_record
from dualpca.gaussian.calibration import TOLD, Calibration

RELATIVE = "log_likelihood_ratio"
"""How much likelier a row is than if its columns were independent: of columns of any kind."""
SHOWN, KEPT = 10, 1000
"""Largest number of unusual rows in the text, and in JSON; and of names."""

LONGEST, LONGEST_NAME = 200, 60
"""Characters of a parameter, and of a name, that are shown."""

UNSOLVED = "a stream of partial_fit; its model is computed when it is first used"


def score(
    model: Model,
    data: Data,
    *,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Table to write, with one line per row.")
    ] = None,
    level: Level = 0.95,
    id_column: Identifier = None,
    sequence: SequenceColumn = None,
    lengths: Lengths = None,
    source: Source,
    defuse: Defuse = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Score rows: log-density, distances with their limits, and which rows are unusual.

    The table has the reason of every unusual row in words, and what each feature contributes to
    SPE, with the sign of its deviation. A monitor judges rows as they follow one another. For a
    hidden Markov model, the log-likelihood of every sequence.
    """
    refuse_json_and_table(as_json, output)

    def work() -> dict[str, Any]:
        keep_inputs([output], [model, data])
        check_output(output, force=force)
        job = start(model, data, id_column, source.reading(), sequence, output, defuse=defuse)
        scores = _Scores(job, level, lengths)
        if output is None:
            for frame in job.table.frames():
                scores.step(frame)
        else:
            job.write(output, scores.step)
        return scores.found() | {"output": output}

    run("score", as_json, work, _score_words)


class _Scores:
    """Scores rows batch by batch, and keeps totals."""

    def __init__(self, job: Job, level: float, lengths: str | None) -> None:
        self.job, self.level, self.lengths = job, level, lengths
        self.rows = self.seen = 0
        self.density: float | None = None
        self.n_odd: int | None = None
        self.odd: list[Any] = []
        self.n_empty = 0
        self.empty: list[Any] = []
        self.reasons: list[str] = []
        self.explains = False
        model = job.model
        explains = hasattr(model, "contributions") and not hasattr(model, "score_sequences")
        self.names = job.prep.features if explains and job.prep.kinds is None else []
        self.arl = float(model.arl) if hasattr(model, "episodes_") else 0.0

    def step(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the scores of the rows of a batch."""
        job, X = self.job, self.job.rows(frame)
        if hasattr(job.model, "score_sequences"):
            return self._sequences(frame, X)
        values, parts = self._judged(X) if self.arl else (scored(job.model, X, self.level), None)
        if self.names and parts is None and "outlier" in values:
            parts = Parts.of(job.model, X)
        reasons = explained(values, parts, self.names)
        if job.prep.kinds is not None:
            values = {RELATIVE if k == "log_density" else k: v for k, v in values.items()}
        elif "log_density" in values and not hasattr(job.model, "kernel_"):
            values["log_density"] = job.prep.undone_density(values["log_density"], X)
        values |= {"reason": reasons} if reasons is not None else {}
        values |= {} if parts is None else parts.columns(self.names)
        table = job.identified(pl.DataFrame(values), frame)
        if job.id_column is None:
            first = self.seen + 1
            table.insert_column(0, pl.Series("row", range(first, first + frame.height)))
        return self._count(table, frame.height)

    def _judged(self, X: Any) -> tuple[dict[str, Any], Parts]:
        """Return what a monitor says of the rows that come next, and the contributions."""
        chart = self.job.model.update(X)
        found: dict[str, Any] = {}
        for name, statistic in chart.statistics.items():
            found |= {name: statistic, f"{name}_limit": chart.limits[name]}
        found["outlier"] = chart.alarms
        found["empty"] = np.isnan(np.asarray(X, dtype=float)).all(axis=1)
        return found, Parts(chart.contributions, chart.contributions)

    def _sequences(self, frame: pl.DataFrame, X: Any) -> pl.DataFrame:
        parts = self.job.lengths(self.lengths) or [frame.height]
        likely = np.asarray(self.job.model.score_sequences(X, parts))
        if self.job.prep.scales is not None and not self.job.model.kernel_space_:
            units = self.job.prep.undone_density(np.zeros(frame.height), X)
            likely = likely + np.add.reduceat(units, np.cumsum([0, *parts[:-1]]))
        firsts = np.cumsum([0, *parts[:-1]]).tolist()
        column = self.job.sequence
        names = frame[column][firsts] if column else pl.Series(range(1, len(parts) + 1))
        found = {"sequence": names, "rows": parts, "log_density": likely}
        self.rows, self.seen, self.density = frame.height, len(parts), float(likely.sum())
        return pl.DataFrame(found)

    def _count(self, table: pl.DataFrame, height: int) -> pl.DataFrame:
        self.seen += height
        self.rows += height
        for name in {"log_density", RELATIVE} & set(table.columns):
            self.density = (self.density or 0.0) + float(table[name].to_numpy().sum())
        if "outlier" in table.columns:
            odd = table.filter(pl.col("outlier")).to_series(0)
            self.n_odd = (self.n_odd or 0) + len(odd)
            room = KEPT - len(self.odd)
            self.odd += odd.head(room).to_list()
            self.explains = "reason" in table.columns
            if self.explains:
                self.reasons += table.filter(pl.col("outlier"))["reason"].head(room).to_list()
        if "empty" in table.columns:
            empty = table.filter(pl.col("empty")).to_series(0)
            self.n_empty += len(empty)
            self.empty += empty.head(KEPT - len(self.empty)).to_list()
        return table

    def found(self) -> dict[str, Any]:
        """Return the totals of all rows."""
        result: dict[str, Any] = {"rows": self.rows, "level": self.level}
        if self.density is not None:
            name = "log_density" if self.job.prep.kinds is None else RELATIVE
            result[f"mean_{name}"] = self.density / self.rows
        if self.n_odd is not None:
            result |= {"n_outliers": self.n_odd, "outliers": self.odd}
            result |= {"reasons": self.reasons} if self.explains else {}
            if self.arl:
                result["arl"] = self.arl
            else:
                result["expected_outliers"] = (1 - self.level) * (self.rows - self.n_empty)
            result |= {"n_empty": self.n_empty, "empty": self.empty}
        return result


class Parts(NamedTuple):
    """What features contribute to SPE and to T², (n, d) each, with the sign of the deviation."""

    spe: Any
    t2: Any

    @classmethod
    def of(cls, model: Any, X: Any) -> Parts:
        """Return the contributions of rows."""
        found = (model.contributions(X, to=to, signed=True) for to in ("spe", "t2"))
        return cls(*(np.asarray(part, dtype=float) for part in found))

    def columns(self, names: list[str]) -> dict[str, Any]:
        """Return one column per feature: to SPE, or to T² where there is no residual."""
        values = self.spe if np.any(self.spe) else self.t2
        return {f"contribution of {name}": values[:, j] for j, name in enumerate(names)}


def explained(values: dict[str, Any], parts: Parts | None, names: list[str]) -> list[str] | None:
    """Return why rows are unusual, in words; nothing for those that are not.

    None where a model has no limits of T² and SPE.
    """
    from dualpca.app.live.words import reason, shares

    limits = [name for name in values if f"{name}_limit" in values and name != "novelty"]
    if not limits:
        return None
    found = [""] * len(values["outlier"])
    for i in np.flatnonzero(values["outlier"]).tolist():
        with np.errstate(divide="ignore", invalid="ignore"):  # nothing is off the components: 0/0
            by = {k: float(np.divide(values[k][i], values[f"{k}_limit"][i])) for k in limits}
        by = {k: x for k, x in by.items() if not np.isnan(x)}
        own = (
            None
            if parts is None
            else (parts.t2 if max(by, key=by.__getitem__) == "t2" else parts.spe)
        )
        found[i] = reason(by, {} if own is None else shares(own[i], names))
    return found


def scored(model: Any, X: Any, level: float) -> dict[str, Any]:
    """Return columns on how unusual each row is, as far as the model has them."""
    found: dict[str, Any] = {}
    if hasattr(model, "score_samples"):
        found["log_density"] = np.asarray(model.score_samples(X))
    if hasattr(model, "outliers"):
        judged = model.outliers(X, level=level)
        found |= {k: np.asarray(v) for k, v in judged._asdict().items() if k != "flagged"}
        found["outlier"], found["empty"] = np.asarray(judged.flagged), np.asarray(judged.empty)
    elif hasattr(model, "is_novel"):
        found["novelty"] = np.asarray(model.novelty(X))
        found["novelty_limit"] = np.full(len(found["novelty"]), model.novelty_threshold(level))
        found["outlier"] = np.asarray(model.is_novel(X, level))
    if not found:
        raise TypeError(
            f"{type(model).__name__} has neither densities nor limits to score rows by."
        )
    return found


def _score_words(found: dict[str, Any]) -> str:
    if found["output"] == "-":
        return ""
    lines = [f"{found['rows']} rows"]
    if "mean_log_density" in found:
        lines.append(f"mean log-density {found['mean_log_density']:.6g}")
    if f"mean_{RELATIVE}" in found:
        value = found[f"mean_{RELATIVE}"]
        lines.append(f"mean log-likelihood relative to independent columns {value:.6g}")
    if "outliers" in found:
        rows = found["rows"] - found["n_empty"]
        expected = (
            f"in alarm, and one false alarm in {found['arl']:g} ordinary rows is expected"
            if "arl" in found
            else f"beyond the {found['level']:g} limits, where {found['expected_outliers']:.3g} of "
            f"{rows} ordinary rows are expected"
        )
        which = _which(found["outliers"], found["n_outliers"])
        lines.append(f"{found['n_outliers']} {expected}{which}")
        if found["n_empty"]:
            which = _which(found["empty"], found["n_empty"])
            lines.append(f"{found['n_empty']} empty, and not judged{which}")
    if found["output"] is not None:
        lines.append(f"Wrote {found['output']}.")
    return "\n".join(lines)


def _which(rows: list[Any], count: int) -> str:
    """Return the first of some rows, as the end of a line."""
    some = ", ".join(str(row) for row in rows[:SHOWN])
    return f": {some}{', …' if count > SHOWN else ''}" if some else ""


def inspect(model: Model, as_json: Json = False) -> None:
    """Show what is in a model file."""

    def work() -> dict[str, Any]:
        from dualpca.estimators.saving import contents_of

        try:
            fitted, version, metadata = contents_of(model)
        except OSError as error:
            raise ModelFileError(f"{model} cannot be read: {error.strerror or error}.") from error
        parameters = plain(fitted.get_params(deep=False))
        found = {"file": model, "version": version, **_numbers(fitted)}
        found |= {"columns": names_of(fitted), "parameters": parameters}
        return found | {"arrays": _shapes_of(fitted), "metadata": metadata}

    run("inspect", as_json, work, _inspect_words)


def _numbers(model: Any) -> dict[str, Any]:
    """Return the main numbers of a model; of a stream whose model is still to be found, its rows.

    To read a file computes nothing.
    """
    if not _is_unsolved(model):
        return summary(model, shares=_has_shares(model))
    names = {"rows": "n_samples_seen_", "features": "n_features_in_"}
    found = {name: getattr(model, own) for name, own in names.items() if own in vars(model)}
    return {"model": type(model).__name__, "state": UNSOLVED, **found}


def _is_unsolved(model: Any) -> bool:
    """Return True for a stream of `partial_fit` whose model is still to be found."""
    return "_stream" in vars(model) and "_model" not in vars(model)


def _has_shares(model: Any) -> bool:
    """Return False if shares of the variance are still to be counted."""
    return getattr(vars(model).get("_model"), "ratios", ()) is not None


def _shapes_of(model: Any) -> dict[str, list[int]]:
    """Return the shapes of fitted attributes that are arrays; nothing is computed for it.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import PPCA
    >>> found = _shapes_of(PPCA(1).fit(np.eye(4)[:, :3]))
    >>> found["components_"], found["mean_"]
    ([1, 3], [3])
    """
    own: Any = type(model)
    found = {name: value for name, value in vars(model).items() if name[:1] != "_"}
    for name in dir(own):
        path = getattr(getattr(own, name, None), "path", None) if name.endswith("_") else None
        if path is not None and name[:1] != "_":
            found[name] = _stored_at(vars(model).get("_model"), path)
    shapes = {k: getattr(v, "shape", ()) for k, v in sorted(found.items()) if k.endswith("_")}
    return {name: [int(size) for size in shape] for name, shape in shapes.items() if shape}


def _stored_at(value: Any, path: list[str]) -> Any:
    """Return what lies under names of fields; None where one is none, and would be computed."""
    for name in path:
        cls: type = type(value)
        value = getattr(value, name) if is_record(cls) and name in hints_of(cls) else None
    return value


def _inspect_words(found: dict[str, Any]) -> str:
    lines = [f"{found['file']}: {found['model']}, written by dualpca {found['version']}"]
    for name, value in found.items():
        if name not in APART:
            shown = f"{value:.6g}" if type(value) is float else value
            lines.append(f"  {name.replace('_', ' ')}: {shown}")
    columns = found["columns"]
    if columns:
        units = Preparation((), units=units_of(found["metadata"]))
        lines.append(f"  columns: {_some([units.titled(name) for name in columns])}")
    table = found["metadata"].get("table", {})
    if "scales" in table:
        lines.append("  columns are standardized by the command line before they reach the model")
    if "kinds" in table:
        lines.append(f"  kinds: {kind_words({_name(k): v for k, v in table['kinds'].items()})}")
        levels = [*table.get("levels", {}).items()]
        lines += [f"  levels of {_name(k)}: {_some(v)}" for k, v in levels[:KEPT]]
    elif table.get("levels"):
        lines.append(f"  one-hot: {_some(list(table['levels']), KEPT)}")
    if "image_shape" in table:
        lines.append(f"  images of {' x '.join(map(str, table['image_shape']))}")
    if "identifier" in table:
        lines.append(f"  identifiers: {_name(table['identifier'])}")
    parameters = found["parameters"].items()
    lines += ["parameters"] + [f"  {k} = {escaped(repr(v), LONGEST)}" for k, v in parameters]
    lines += ["arrays"] + [f"  {k} {tuple(shape)}" for k, shape in found["arrays"].items()]
    if found["metadata"]:
        lines += ["metadata", f"  {_some(list(found['metadata']))} (--json shows all)"]
    return "\n".join(lines)


def _some(names: list[str], most: int = SHOWN) -> str:
    return ", ".join(map(_name, names[:most])) + (", …" if names[most:] else "")


def _name(name: str) -> str:
    return escaped(name, LONGEST_NAME)


APART = ("file", "model", "version", "columns", "parameters", "arrays", "metadata")

# --- dualpca calibrate ---------------------------------------------------------------------------


def calibrate(
    first: ModelOrTable,
    data: TableOfModel = None,
    *,
    folds: Annotated[
        int,
        typer.Option(
            "--folds", min=2, help="Known entries are dealt to so many folds; one fit each."
        ),
    ] = 10,
    chart: Annotated[
        str | None, typer.Option("--chart", help="Picture to write: PNG, SVG or PDF.")
    ] = None,
    name: NameHere = None,
    components: Components = None,
    standardize: Standardize = None,
    choice: Choice,
    id_column: Identifier = None,
    sample_rows: SampleRows = None,
    source: Source,
    seed: Seed = 0,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Hide known entries of a table, and count how many lie within their intervals.

    Each known entry is hidden once, and filled by a fit to the others. Standard deviations that
    `dualpca impute --std` writes are to be multiplied by the factor of a level.
    """
    model, table = model_and_table(first, data)
    printed: list[str] = []

    def work() -> dict[str, Any]:
        refuse_lonely(table)
        if chart is not None:
            keep_inputs([chart], [model, table])
            check_picture(chart, force)
        asked = (components, standardize, seed, name)
        job = job_of(model, table, source, choice, id_column, asked)
        rows = job.rows(at_once(job.table, sample_rows, seed).frame())
        if not hasattr(job.model, "calibration"):
            raise TypeError(
                f"{type(job.model).__name__} has no intervals for missing entries: "
                f"{', '.join(FITTED_HERE)} have (dualpca fit --model)."
            )
        counted = job.model.calibration(rows, folds=folds, random_state=seed)
        printed.append(str(counted))
        found = calibrated(counted, type(job.model).__name__)
        if chart is not None:
            found["chart"] = draw_picture(chart, "calibration", counted)
            printed.append(f"Wrote {chart}.")
        return found

    run("calibrate", as_json, work, lambda found: "\n".join(printed))


def calibrated(found: Calibration, model: str) -> dict[str, Any]:
    """Return what hidden entries say of the intervals of a model, for JSON."""
    levels, told = found.levels, found.at(TOLD)
    low, high = found.factor_interval
    values = (levels, found.coverage, found.error, found.factor, low, high)
    names = ("level", "coverage", "error", "factor", "factor_low", "factor_high")
    each = zip(found.names, told.hidden_by_column, told.coverage_by_column[:, 0], strict=True)
    result: dict[str, Any] = {
        "model": model,
        "rows": found.n_rows,
        "hidden": found.n_hidden,
        "folds": found.n_folds,
        "levels": [dict(zip(names, one, strict=True)) for one in zip(*values, strict=True)],
        "columns": [
            {"column": column, "hidden": int(count), "coverage": float(share)}
            for column, count, share in each
            if count
        ],
        "columns_level": TOLD,
    }
    if found.categories is not None and found.categories.stated.size:
        stated = found.categories
        result["categories"] = {
            "hidden": int(stated.stated.size),
            "stated": float(stated.stated.mean()),
            "right": float(stated.right.mean()),
        }
    return result


COMMANDS = {"calibrate": calibrate, "score": score, "inspect": inspect}
