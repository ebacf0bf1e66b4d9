"""`dualpca fit` and `dualpca select`."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import polars as pl
import typer

import dualpca
from dualpca.app.cli._beside import Apart, apart_in, apart_of, uncoloured
from dualpca.app.cli._running import (
    Beside,
    Choice,
    Components,
    Data,
    Force,
    Identifier,
    Json,
    Lengths,
    NoteWarning,
    SampleRows,
    Seed,
    SequenceColumn,
    Source,
    Standardize,
    UsageError,
    note,
    run,
)
from dualpca.app.cli._session import (
    Job,
    at_once,
    keep_inputs,
    keep_other_kinds,
    lengths_of,
    open_table,
    prepared,
    start,
)
from dualpca.app.tables import reading
from dualpca.app.tables.columns import Preparation, kind_words
from dualpca.app.tables.reading import KeptRows, TableFile
from dualpca.app.tables.text import TableError
from dualpca.arrays import task
from dualpca.data import MOST_RANKED, InMemoryTable, skewed_columns
from dualpca.errors import DegenerateError

# --- models by name ----------------------------------------------------------------------------

MODELS = {
    "pca": "PCA",
    "ppca": "PPCA",
    "fa": "FactorAnalysis",
    "bpca": "BayesianPCA",
    "robust": "RobustPPCA",
    "mixture": "MixturePPCA",
    "tree": "HierarchicalPPCA",
    "hmm": "HiddenMarkovPCA",
    "kpca": "KernelPCA",
    "dual": "DualPPCA",
    "pkpca": "ProbabilisticKernelPCA",
    "twin": "TwinKernelPCA",
    "copula": "CopulaPPCA",
}
"""Name on the command line to public name, so that the help imports none of them.

CCA and Imputer are not among them: one needs two tables, the other is `dualpca impute`.
"""

IN_MEMORY = ("robust", "tree", "dual", "pkpca", "twin", "copula")
"""Models that need all rows at once."""


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
    if "random_state" in known and seed:  # without --seed the model is that of Python's defaults
        given.setdefault("random_state", seed)
    return estimator(**given)


def value_of(word: Any) -> Any:
    """Return the value of a word on the command line: a number, true, null, or the word."""
    if not isinstance(word, str):
        return word
    try:
        return json.loads(word)
    except ValueError:
        return word


def summary(model: Any, *, shares: bool = True) -> dict[str, Any]:
    """Return the main numbers of a fitted model, as far as it has them."""
    found: dict[str, Any] = {"model": type(model).__name__}
    names = {"n_components": "n_components_", "rows": "n_samples_", "features": "n_features_in_"}
    names |= {"n_mixtures": "n_mixtures_", "n_states": "n_states_"}
    names |= {"log_likelihood": "loglikelihood_", "iterations": "n_iter_"}
    names |= {"converged": "converged_"}
    for name, attribute in names.items():
        if hasattr(model, attribute):
            found[name] = getattr(model, attribute)
    ratio = getattr(model, "explained_variance_ratio_", None) if shares else None
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


# --- columns of any kind -----------------------------------------------------------------------

ANY_KIND = "copula"
"""The model that accepts columns of any kind."""


class Family(NamedTuple):
    """The model of a table that nobody named one for."""

    name: str  # as on the command line
    prep: Preparation
    why: str = ""  # not PPCA


def family_of(
    table: TableFile,
    choice: Choice,
    id_column: str | None,
    *,
    in_units: bool = False,
    time: str | None = None,
) -> Family:
    """Choose the model of a table: `fit`, `impute`, `report`, `explore` and `compare` ask here.

    The copula for categories and bounds, and for numbers of which some column is visibly skewed;
    probabilistic PCA for all other numbers, for images, for tables that do not fit into memory, and
    where units count (`in_units`).
    """
    prep = prepared(table, choice, id_column, any_kind=False if in_units else None, time=time)
    if prep.kinds is not None:
        return Family(ANY_KIND, prep, "the table has categories or bounds")
    if in_units or choice.one_hot or not table.whole or table.image_shape is not None:
        return Family("ppca", prep)
    X = prep.rows(table.frame()).to_numpy()
    found = skewed_columns(InMemoryTable(X)).columns
    if not found.size or X.shape[1] > MOST_RANKED:
        return Family("ppca", prep)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoteWarning)  # they were told above
        mixed = prepared(table, choice, id_column, any_kind=True, time=time)
    names = [repr(prep.features[j]) for j in found]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    verb = "is" if len(names) == 1 else "are"
    return Family(ANY_KIND, mixed, f"{', '.join(names[:3])}{more} {verb} skewed")


OTHER_FAMILY = "-m ppca fits probabilistic PCA instead"


def chosen_family(
    name: str | None,
    table: TableFile,
    choice: Choice,
    id_column: str | None,
    *,
    in_units: bool = False,
    sequence: str | None = None,
    time: str | None = None,
) -> Family:
    """Return the model that was named, else that of `family_of`, and how it reads the table."""
    if name is None:
        return family_of(table, choice, id_column, in_units=in_units, time=time)
    prep = prepared(table, choice, id_column, sequence, any_kind=name == ANY_KIND, time=time)
    return Family(name, prep)


def kinds_asked(choice: Choice, prep: Preparation) -> dict[str, Any] | None:
    """Return the kinds of columns that were given, as the estimator expects them."""
    found: dict[str, Any] = {}
    for name, one in choice.asked().items():
        if (one.below, one.above) != (None, None):
            found[name] = dualpca.Censored(below=one.below, above=one.above)
        elif one.kind == "ordinal" and name in prep.levels:
            found[name] = list(prep.levels[name])
        elif name in prep.names:
            found[name] = one.kind
    return found or None


def check_kinds(name: str, choice: Choice, standardize: bool | None) -> None:
    """Refuse options that a model does not have: kinds, or zeros and ones and units."""
    if name != ANY_KIND:
        if choice.kinds:
            raise UsageError(
                f"--kind is for the model {ANY_KIND} (dualpca fit --model {ANY_KIND}), which "
                f"accepts columns of any kind; {name} needs numbers (--one-hot makes them of "
                "categories)."
            )
        return
    if choice.one_hot:
        raise UsageError(
            f"--one-hot {choice.one_hot[0]}: {ANY_KIND} keeps categories as they are. Say --kind "
            f"{choice.one_hot[0]}=nominal instead."
        )
    if standardize is not None:
        raise UsageError(
            f"--{'' if standardize else 'no-'}standardize: {ANY_KIND} has no units to scale, since "
            "only the order of a column's values counts. Leave out the option."
        )


def mention_kinds(prep: Preparation, choice: Choice) -> None:
    """Tell that there is a model of categories, where they became zeros and ones by default."""
    if prep.levels and not choice.one_hot:
        note(f"-m {ANY_KIND} keeps categories as they are.")


def with_kinds(prep: Preparation, model: Any) -> Preparation:
    """Return a preparation that knows the kinds of columns that a fitted model used."""
    if prep.kinds is None:
        return prep
    return replace(prep, kinds={str(k): kind for k, kind in model.column_kinds_.items()})


# --- what was decided, in words ----------------------------------------------------------------

RULES = {
    "cv-rows": "cross-validation (the likelihood of held-out rows)",
    "cv-entries": "cross-validation (the prediction of hidden entries)",
    "cv-kinds": "cross-validation (the probability of hidden entries)",
    "evidence": "Minka's evidence",
    "bic": "BIC",
    "parallel": "parallel analysis",
    "white-noise": "a test against white noise",
    "gavish-donoho": "the threshold of Gavish and Donoho",
    "relevance": "the model itself (automatic relevance determination)",
}
"""What the rules that choose the number of components are."""


def rule_of(model: Any) -> str | None:
    """Return the rule that chose a fitted model's number of components; None if it was given."""
    asked = model.get_params(deep=False).get("n_components", 0)
    if hasattr(model, "column_kinds_"):
        return "cv-kinds" if asked in ("cv", None) else None
    if asked in ("cv", None) and hasattr(getattr(model, "selection_", None), "unit"):
        return "cv-rows" if model.selection_.unit == "row" else "cv-entries"
    counts = (dualpca.PPCA, dualpca.RobustPPCA, dualpca.FactorAnalysis)
    if isinstance(model, counts) and asked is None:
        given = getattr(model, "noise_variance", None) is not None
        return None if given or model.n_features_in_ < 2 else "parallel"
    if isinstance(model, dualpca.BayesianPCA) and asked is None:
        return "relevance"
    return asked if isinstance(asked, str) else None


def choice_words(rule: str, q: int, advice: bool = True, model: str = "") -> str:
    """Return how the number of components of a model was chosen, and how to choose another.

    Examples
    --------
    >>> choice_words("bic", 1, advice=False)
    '1 component, chosen by BIC'
    """
    count = f"{q} component{'' if q == 1 else 's'}"
    words = f"{count}, chosen by {RULES.get(rule, rule)}"
    if not advice or rule == "relevance":
        return words
    if rule == "cv-kinds" or model == MODELS["fa"]:  # which have no other rules
        return f"{words}. -q NUMBER chooses otherwise"
    return f"{words}. -q NUMBER or -q RULE chooses otherwise; dualpca select compares the rules"


STANDARDIZED = "columns standardised (--no-standardize to keep their units)"


def standardizes(asked: bool | None, data: str, kind: str | None) -> bool:
    """Return whether to standardise: as asked, else any table but images and matrices.

    The columns of a table are quantities with units of their own; pixels, and most matrices
    without names, are all of one kind.
    """
    if asked is not None:
        return asked
    return reading.kind_read(data, kind) not in (reading.IMAGES, "npy", "npz")


def in_own_units(
    model: Any, prep: Preparation, table: TableFile, scaled: bool = True
) -> Preparation:
    """Standardise inside the model if it can, so that it speaks the units of the table.

    Otherwise before the rows reach it: return the preparation that does so. Nothing is done unless
    `scaled`, whatever the model would do by itself.
    """
    if "standardize" in model.get_params(deep=False):
        model.set_params(standardize=scaled)
        return prep
    if not scaled:
        return prep
    return prep.standardized(table.frames("means and deviations, batch"))


# --- dualpca fit -------------------------------------------------------------------------------

ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help=f"One of {', '.join(MODELS)}. By default copula where there are categories or skewed "
        "columns, else ppca.",
        autocompletion=lambda: list(MODELS),
        show_default=False,
    ),
]


def fit(
    data: Data,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", help="Model file to write; by default the table's name with .dpca."
        ),
    ] = None,
    *,
    name: ModelName = None,
    components: Components = None,
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
    standardize: Standardize = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="Any other parameter, as name=value.")
    ] = None,
    choice: Choice,
    beside: Beside,
    id_column: Identifier = None,
    sequence: SequenceColumn = None,
    lengths: Lengths = None,
    sample_rows: SampleRows = None,
    source: Source,
    seed: Seed = 0,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Fit a model to a table and write it to a file.

    Without options: probabilistic PCA of standardised columns, with the number of components chosen
    by parallel analysis, or the copula model where there are categories or skewed columns; missing
    values or not.
    """
    target = output or f"{name_of(data)}.dpca"
    options = {"kernel": kernel, "gamma": gamma, "noise_variance": noise}
    options |= {"n_components": components, "n_mixtures": mixtures, "n_states": states}

    def work() -> dict[str, Any]:
        keep_inputs([target], [data])
        keep_other_kinds(target, "model", force)
        if name != "hmm" and (sequence or lengths):
            raise UsageError("--sequence-column and --lengths are for --model hmm.")
        own = _asks_for_ppca(options, setting)
        if name is not None or own:
            check_kinds(name or "ppca", choice, standardize)
            make(name or "ppca", options, setting or [], seed)  # what is wrong is told at once
        known = {"levels": choice.levels()}
        table = open_table(data, source.reading(), id_column, known=known)
        apart = apart_of(beside, choice, table.columns)
        table = apart.fitted(table)
        if sample_rows is not None and sample_rows < table.height:
            if name == "hmm":
                raise UsageError(
                    "--sample-rows would break up sequences: drop whole sequences from the table."
                )
            note(f"fitted to {sample_rows} of {table.height} rows, drawn at random.")
            table = table.sampled(sample_rows, seed)
        asked = apart.choice(choice)
        given = name or ("ppca" if own else None)
        how: dict[str, Any] = {"in_units": standardize is not None, "sequence": sequence}
        model, prep, why = chosen_family(given, table, asked, id_column, **how)
        check_kinds(model, choice, standardize)
        fresh = make(model, options, setting or [], seed)
        if why:
            note(f"{type(fresh).__name__} is fitted, because {why}. {OTHER_FAMILY}.")
        if model == "ppca":
            mention_kinds(prep, choice)
        sequences = lengths_of(table, sequence, lengths) if model == "hmm" else None
        start = time.perf_counter()
        scaled = model != ANY_KIND and standardizes(standardize, data, source.kind)
        prep = in_own_units(fresh, prep, table, scaled)
        if prep.kinds is not None:
            fresh.set_params(column_kinds=kinds_asked(asked, prep))
        rule = fit_chosen(fresh, model, table, prep, sequences)
        prep = with_kinds(prep, fresh)
        found = {"output": target, **summary(fresh), "columns": prep.features}
        found |= {"rows": table.height, "batches": table.n_batches, "standardized": scaled}
        found["seconds"] = time.perf_counter() - start
        found |= {} if rule is None else {"rule": rule}
        found |= {} if prep.kinds is None else {"kinds": dict(prep.kinds)}
        found |= apart.entry()
        dualpca.save(fresh, target, metadata=metadata_of(prep, sequence) | apart.entry())
        return found

    run("fit", as_json, work, lambda found: _fit_words(found, components is None))


def _asks_for_ppca(options: dict[str, Any], settings: list[str] | None) -> bool:
    """Return True for options that mean something to a model of numbers only."""
    own = [name for name, value in options.items() if value is not None and name != "n_components"]
    wanted = value_of(options["n_components"])
    rule = wanted is not None and wanted != "cv" and type(wanted) is not int
    return bool(own or settings or rule)


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


def fit_chosen(
    model: Any, name: str, table: TableFile, prep: Preparation, lengths: list[int] | None = None
) -> str | None:
    """Fit a model to a table, and return the rule that chose its number of components.

    A rule may choose so many that they explain everything, which the model refuses: then it is
    fitted with fewer, and the user is told why.
    """
    asked = model.get_params(deep=False).get("n_components")
    while True:
        try:
            fit_table(model, name, table, prep, lengths)
            return rule_of(model)
        except ValueError as error:
            if table.whole and not isinstance(error, TableError):
                _refuse_constant(table, prep)
            if name == ANY_KIND and asked is None and "n_components" in str(error):
                _with_one(model)
                asked = 1
                continue
            if asked != "cv":
                raise
            _with_fewer(model, error, table, prep)


def _with_one(model: Any) -> None:
    """Set one component where there are too few values to choose by hiding some."""
    model.set_params(n_components=1)
    note("too few values for cross-validation, so 1 component is used (-q changes it).")


def _with_fewer(model: Any, error: ValueError, table: TableFile, prep: Preparation) -> None:
    """Set a smaller number of components than the one that failed, or raise the error again."""
    count = re.search(r"noise of (\d+) components", str(error))
    if isinstance(error, DegenerateError) and count is not None and int(count[1]) > 1:
        fewer = int(count[1]) - 1
        constant = re.search(r"(Columns? .*) the same value in all rows", str(error))
        why = (
            f"some columns follow from others{_repeated(table, prep)}. Consider to --exclude them."
        )
        if constant:
            why = f"{constant[0][0].lower()}{constant[0][1:]}. Consider to --exclude them."
        note(
            f"{fewer} component{'' if fewer == 1 else 's'} instead of {count[1]}, which would "
            f"explain everything: {why}"
        )
    elif "n_components" in str(error) and model.n_components == "cv" and len(prep.features) > 1:
        fewer = 1
        note(
            f"too few values for cross-validation, so 1 component is used (-q changes it): {error}"
        )
    elif isinstance(error, DegenerateError) and model.n_components == "cv":
        model.set_params(n_components=None)  # which holds the noise where the rows leave none
        return
    else:
        raise error
    model.set_params(n_components=fewer)


def _refuse_constant(table: TableFile, prep: Preparation) -> None:
    """Refuse a table in which no column varies."""
    X = prep.rows(table.frame())
    if all(column.drop_nulls().drop_nans().n_unique() < 2 for column in X.iter_columns()):
        raise TableError(f"no column of {table.path} has two different values: nothing to model.")


def _repeated(table: TableFile, prep: Preparation) -> str:
    """Return which columns are the same, in words, if they are few enough to compare."""
    X = prep.rows(table.frame()) if table.whole else pl.DataFrame()
    if not 2 <= X.width <= MOST_COMPARED:
        return ""
    found = []
    for i, j in itertools.combinations(range(X.width), 2):
        a, b = (X[:, k].to_numpy() for k in (i, j))
        both = ~np.isnan(a) & ~np.isnan(b)
        a, b = (one[both] - one[both].mean() for one in (a, b)) if both.sum() > 2 else (a * 0, b)
        if abs(a @ b) > (1 - 1e-10) * np.sqrt((a @ a) * (b @ b)) > 0:
            found.append(f"{X.columns[i]!r} and {X.columns[j]!r}")
    return f" ({', '.join(found[:5])} are the same but for their units)" if found else ""


MOST_COMPARED = 100
"""Largest number of columns that are compared in pairs."""


def metadata_of(prep: Preparation, sequence: str | None = None) -> dict[str, Any]:
    """Return what a model file says beside the model: the table, and the command."""
    found = {"table": prep.table(), "command": shlex.join(["dualpca", *sys.argv[1:]])}
    found |= {"units": dict(prep.units)} if prep.units else {}
    return found if sequence is None else found | {"sequence_column": sequence}


def _fit_words(found: dict[str, Any], advice: bool) -> str:
    left_out = ("batches", "standardized") if found["batches"] == 1 else ("standardized",)
    numbers = {k: v for k, v in found.items() if k not in left_out}
    shown = ", ".join(f"{k} {v}" for k, v in summary_words(numbers).items())
    lines = [f"Wrote {found['output']}: {found['model']}, {shown}."]
    if "rule" in found:
        how = choice_words(found["rule"], found["n_components"], advice, found["model"])
        lines.append(f"{how}.")
    if found["standardized"]:
        lines.append(f"{STANDARDIZED[0].upper()}{STANDARDIZED[1:]}.")
    if "kinds" in found:
        lines.append(f"Kinds of the columns: {kind_words(found['kinds'])}. {KIND_ADVICE}.")
    if "supplementary" in found:
        lines.append(f"Not in the model, shown in reports: {apart_in(found).words()}.")
    return "\n".join(lines)


KIND_ADVICE = "--kind COLUMN=KIND chooses otherwise"


def name_of(data: str) -> str:
    """Return the name of a table without folder and endings, for files that are made of it.

    Examples
    --------
    >>> name_of("data/sales.csv"), name_of("sales.csv.gz"), name_of("-")
    ('sales', 'sales', 'table')
    """
    return Path(data).name.split(".")[0] or "table" if data != "-" else "table"


# --- a model fitted on the way, for commands that are given a table alone -----------------------

ModelOrTable = Annotated[
    str,
    typer.Argument(
        metavar="MODEL_OR_TABLE",
        help="Model file written by `dualpca fit`; or a table, to which a model is fitted first.",
    ),
]
TableOfModel = Annotated[
    str | None,
    typer.Argument(metavar="TABLE", help="Table for the model file.", show_default=False),
]


def model_and_table(first: str, second: str | None) -> tuple[str | None, str]:
    """Return the model file, if there is one, and the table."""
    return (None, first) if second is None else (first, second)


def refuse_fitting(
    model: str,
    choice: Choice,
    components: str | None,
    standardize: bool | None,
    name: str | None = None,
) -> None:
    """Refuse options of a fit where a fitted model is given."""
    given: dict[str, Any] = {"--components": components, "--columns": choice.include}
    given |= {"--model": name, "--kind": choice.kinds}
    given |= {"--exclude": choice.exclude}
    given |= {"--one-hot": choice.one_hot, "--numbers-only": choice.numbers_only or None}
    given |= {"--standardize": standardize}
    for option, value in given.items():
        if value is not None:
            raise UsageError(
                f"{option} says how to fit a model, but {model} is fitted: leave out the option, "
                "or the model file."
            )


def refuse_lonely(data: str) -> None:
    """Refuse a model file in the place of a table."""
    if data.endswith(".dpca"):
        raise UsageError(f"{data} is a model file: give the table as well, after it.")


class Made(NamedTuple):
    """A model that was fitted on the way."""

    model: Any
    prep: Preparation
    table: TableFile
    apart: Apart = Apart()


FITTED_HERE = ("ppca", "copula", "fa", "bpca", "mixture")
"""Models that `impute` and `report` fit to a table alone."""

NameHere = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help=f"With a table alone: the model to fit, one of {', '.join(FITTED_HERE)}.",
        show_default=False,
    ),
]


def fit_here(
    data: str,
    source: Source,
    choice: Choice,
    id_column: str | None,
    components: str | None,
    standardize: bool | None,
    seed: int,
    name: str | None = "ppca",
    beside: Beside | None = None,
    rule: str | None = None,
    time: str | None = None,
    color: str | None = None,
    *,
    filling: bool = False,
) -> Made:
    """Fit a model to a table, and tell the user which one that is.

    `color` is the column that rows are coloured by, which the model does not use.
    `time` is the column that tells the time of rows, or 'none'; by default it is found. Without a
    name the model is that of `family_of`. `rule` chooses the number of components of
    probabilistic PCA where none is given; by default the estimator's own does. With `filling`
    regressions help the copula to fill, as in `Imputer`, if it is not asked for by name.
    """
    refuse_lonely(data)
    if name not in (None, *FITTED_HERE):
        raise UsageError(f"--model {name}: with a table alone one of {', '.join(FITTED_HERE)}.")
    if name is not None:
        check_kinds(name, choice, standardize)
    known = {"levels": choice.levels()}
    table = open_table(data, source.reading(), id_column, known=known)
    apart = apart_of(beside or Beside(), choice, table.columns)
    asked, fitted = apart.choice(choice), apart.fitted(table)
    if color is not None and color not in (id_column, time):
        asked = uncoloured(asked, color, table.columns)
    units = standardize is not None
    family = chosen_family(name, fitted, asked, id_column, in_units=units, time=time)
    chosen, prep = family.name, family.prep
    check_kinds(chosen, choice, standardize)
    count = components if components or chosen != "ppca" else rule
    model = make(chosen, {"n_components": count}, [], seed)
    if prep.kinds is not None:
        model.set_params(column_kinds=kinds_asked(asked, prep))
        if filling and name is None:
            kinds = model.column_kinds or {}
            model = dualpca.Imputer(model.n_components, random_state=seed, column_kinds=kinds)
    scaled = prep.kinds is None and standardizes(standardize, data, source.kind)
    prep = in_own_units(model, prep, fitted, scaled)
    rule = fit_chosen(model, chosen, fitted, prep)
    if isinstance(model, dualpca.Imputer):
        model = model.model_
        rule = rule_of(model)
    prep = with_kinds(prep, model)
    q = int(np.max(model.n_components_))
    count = (
        choice_words(rule, q, components is None, type(model).__name__)
        if rule
        else f"{q} component{'' if q == 1 else 's'}"
    )
    why, other = (f", because {family.why}", f". {OTHER_FAMILY}") if family.why else ("", "")
    note(
        f"no model file was given, so {type(model).__name__} was fitted to {data}{why}: "
        f"{count}{other}."
    )
    if prep.kinds is not None:
        note(f"kinds of the columns: {kind_words(prep.kinds)}. {KIND_ADVICE}.")
    if scaled:
        note(f"{STANDARDIZED}.")
    return Made(model, prep, table, apart)


def job_of(
    model: str | None,
    data: str,
    source: Source,
    choice: Choice,
    id_column: str | None,
    asked: tuple[str | None, bool | None, int, str | None],
    *,
    only: str | None = None,
    output: str | None = None,
    defuse: bool = False,
) -> Job:
    """Return a model and the table that it fills: from its file, or fitted to the table here.

    `asked` are components, whether to standardise, the seed and the name of the model to fit;
    `only` is its name where none is given.
    """
    components, standardize, seed, name = asked
    if model is not None:
        refuse_fitting(model, choice, components, standardize, name)
        return start(model, data, id_column, source.reading(), output=output, defuse=defuse)
    given = (components, standardize, seed, name or only)
    made = fit_here(data, source, choice, id_column, *given, rule="cv", filling=True)
    return Job(made.model, made.prep, made.table, made.prep.identifier, None, defuse=defuse)


# --- dualpca select ----------------------------------------------------------------------------

COMPLETE = (
    "evidence",
    "bic",
    "parallel",
    "white-noise",
    "gavish-donoho",
    "cv-rows",
    "cv-entries",
    0.95,
)
INCOMPLETE = ("bic", "parallel", "cv-rows", "cv-entries")
"""Rules for tables without and with missing values."""


def select(
    data: Data,
    *,
    choice: Choice,
    standardize: Standardize = None,
    id_column: Identifier = None,
    sample_rows: SampleRows = None,
    source: Source,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Show how many components each selection rule would keep."""

    def work() -> dict[str, Any]:
        check_kinds("select", choice, standardize)
        table = at_once(open_table(data, source.reading(), id_column), sample_rows, seed)
        prep = prepared(table, choice, id_column)
        scaled = standardizes(standardize, data, source.kind)
        prep = prep.standardized(table.frames()) if scaled else prep
        X = prep.rows(table.frame())
        missing = bool(np.isnan(X.to_numpy()).any())
        rules = INCOMPLETE if missing else COMPLETE
        found = []
        with task("rule", len(rules)) as tick:
            for rule in rules:
                found.append(_rule(rule, X, seed))
                tick(str(rule))
        if all("error" in one for one in found):
            raise ValueError(found[0]["error"])
        size = {"rows": X.height, "features": X.width, "standardized": scaled}
        return size | {"rules": found, "default": "parallel"}

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
    lines += ["", f"dualpca fit uses {found['default']} unless -q says otherwise."]
    if found["standardized"]:
        lines.append(f"{STANDARDIZED[0].upper()}{STANDARDIZED[1:]}.")
    return "\n".join(lines)


def _rule(rule: str | float, X: pl.DataFrame, seed: int) -> dict[str, Any]:
    """Return what one rule chooses, or why it cannot choose."""
    name = rule if isinstance(rule, str) else f"{100 * rule:.0f} % variance"
    try:
        found = summary(dualpca.PPCA(rule, random_state=seed or None).fit(X))
    except ValueError as error:
        return {"rule": name, "error": str(error)}
    wanted = ("n_components", "explained_variance_ratio", "noise_variance")
    return {"rule": name} | {k: found[k] for k in wanted}


COMMANDS = {"fit": fit, "select": select}
