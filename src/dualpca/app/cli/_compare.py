"""`dualpca compare`: models side by side on rows, and entries, that they have not seen."""

from __future__ import annotations

import io
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
import polars as pl
import typer

import dualpca
from dualpca.app.cli._fit import (
    ANY_KIND,
    MODELS,
    STANDARDIZED,
    check_kinds,
    chosen_family,
    kinds_asked,
    make,
    standardizes,
)
from dualpca.app.cli._running import (
    Choice,
    Data,
    Identifier,
    Json,
    NoteWarning,
    SampleRows,
    Seed,
    Source,
    Standardize,
    UsageError,
    note,
    run,
)
from dualpca.app.cli._session import at_once, open_table, prepared
from dualpca.app.tables.columns import (
    Preparation,
    Refused,
    coded,
    number,
    plain,
    refusal,
    texts,
)
from dualpca.app.tables.text import TableError
from dualpca.arrays import task
from dualpca.errors import InterruptWarning

# --- held-out rows and hidden entries ----------------------------------------------------------

Values = np.ndarray[Any, Any]

ENOUGH = 100
"""Hidden numbers, and hidden categories, from which models can be told apart."""


@dataclass(frozen=True)
class Split:
    """Rows to fit, rows held out, and the same with some entries hidden, perhaps several times."""

    train: Values  # (n, d)
    test: Values  # (m, d)
    hidden: Values  # (k, d), NaN also where an entry was hidden
    of: Values  # (k,), the held-out row that each of these is
    log_units: Values  # (m,), to be subtracted from log-densities: Σ log scale of observed entries
    at: tuple[Values, Values]  # numbers of the rows to fit, and of those held out
    units: tuple[Any, Any] = (0.0, 1.0)  # means and scales of the columns

    @property
    def center(self) -> Values:
        """Return the means of the rows to fit, (d,): the prediction without a model."""
        return np.asarray(np.nanmean(self.train, axis=0))

    @property
    def asked(self) -> tuple[Values, Values]:
        """Return the rows with hidden entries as they were, and where these are, (k, d) each."""
        true = self.test[self.of]
        return true, np.isnan(self.hidden) & ~np.isnan(true)

    def share(self, true: Values, guess: Any, where: Values) -> float:
        """Return Σ(x − x̂)² / Σ(x − mean)² over some entries: 0 is perfect, 1 no better than means.

        NaN where no entry varies.
        """
        wrong = np.sum((true - np.asarray(guess))[where] ** 2)
        total = np.sum((true - self.center)[where] ** 2)
        return float(wrong / total) if total > 0 else float("nan")


def splits(
    X: Values,
    standardize: bool,
    held_out: float,
    hidden: float,
    seed: int,
    columns: Sequence[int] | None = None,
    categories: Sequence[int] = (),
) -> list[Split]:
    """Hold out a share of the rows, and hide a share of their entries; every row keeps one.

    Where that hides fewer than `ENOUGH` numbers or categories, other entries of the same rows are
    hidden in further copies of them, and where these are too few, other rows are held out in
    further splits: every entry of the table is hidden at most once.

    Parameters
    ----------
    X : array of shape (n, d)
        NaN where missing.
    standardize : bool
        Scale columns to mean 0 and variance 1 over the rows to fit.
    held_out, hidden : float
        Shares, between 0 and 1.
    seed : int
    columns : sequence of int, optional
        Which column of the table a feature comes from; features of one are hidden together.
    categories : sequence of int
        Which columns of the table are categories.

    Examples
    --------
    >>> X = np.arange(40.0).reshape(10, 4)
    >>> parts = splits(X, False, 0.2, 0.5, 0)
    >>> len(parts), parts[0].train.shape, parts[0].test.shape, parts[0].hidden.shape
    (5, (8, 4), (2, 4), (4, 4))
    >>> sum(int(np.isnan(one.hidden).sum()) for one in parts)
    40
    """
    rng = np.random.default_rng(seed)
    n = X.shape[0]
    m = min(max(round(held_out * n), 1), n - 2)
    order = rng.permutation(n)
    own = np.arange(X.shape[1]) if columns is None else np.asarray(columns)
    nominal = np.isin(own, categories)
    wanted = ENOUGH * np.array([not nominal.all(), nominal.any()])
    found, count = [], np.zeros(2)
    for fold in range(n // m):
        out = order[fold * m : (fold + 1) * m]
        at = np.sort(np.setdiff1d(order, out)), np.sort(out)
        one = _split(X, standardize, at)
        masks = []
        for gone in _hidden(one.test, hidden, own, rng):
            masks.append(gone)
            first = np.unique(own, return_index=True)[1]
            each = gone[:, first].sum(axis=0)
            count += each[~nominal[first]].sum(), each[nominal[first]].sum()
            if (count >= wanted).all():
                break
        of = np.tile(np.arange(m), len(masks))
        covered = np.where(np.concatenate(masks), np.nan, one.test[of])
        found.append(replace(one, hidden=covered, of=of))
        if (count >= wanted).all():
            break
    return found


def _split(X: Values, standardize: bool, at: tuple[Values, Values]) -> Split:
    """Return rows to fit and rows held out, of which nothing is hidden yet."""
    train, test = X[at[0]], X[at[1]]
    log_units, units = np.zeros(len(test)), (np.zeros(X.shape[1]), np.ones(X.shape[1]))
    if standardize:
        means, scales = np.nanmean(train, axis=0), np.nanstd(train, axis=0)
        scales = np.where(scales <= 1e-14 * np.abs(means), 1.0, scales)
        log_units, units = ~np.isnan(test) @ np.log(scales), (means, scales)
        test, train = (test - means) / scales, (train - means) / scales
    return Split(train, test, test, np.arange(len(test)), log_units, at, units)


def _hidden(test: Values, share: float, own: Values, rng: np.random.Generator) -> Iterator[Values]:
    """Yield where to hide entries of rows, (m, d), a share of them each time, all in the end.

    The features of a column, of the same number in `own`, are missing together. A row keeps one of
    its columns each time.
    """
    first = np.unique(own, return_index=True)[1]
    observed = rng.permutation(np.argwhere(~np.isnan(test[:, first])))
    size = max(round(share * len(observed)), 1)
    for start in range(0, len(observed), size):
        gone = np.zeros(test.shape, dtype=bool)
        left = (~np.isnan(test[:, first])).sum(axis=1)
        for i, j in observed[start : start + size]:
            if left[i] > 1:
                gone[i, own == own[first[j]]] = True
                left[i] -= 1
        yield gone


def judge(
    make: Callable[[], Any], parts: Split, density: bool, cells: Cells | None = None
) -> dict[str, Any]:
    """Fit a model and return its scores; those it cannot have are None, and `notes` say why.

    Parameters
    ----------
    make : callable
        Function that returns a model that is not fitted.
    parts : Split
    density : bool
        True if its log-density is one of rows in the units of the table, and so comparable.
    cells : Cells, optional
        Of a table with categories.

    Returns
    -------
    dict
        seconds (of the fit), log_likelihood (per held-out row), reconstruction_error and
        imputation_error (see `Split.share`), those of `Cells.judged`, notes.
    """
    start = time.perf_counter()
    model = make().fit(parts.train)
    found: dict[str, Any] = {"seconds": time.perf_counter() - start}
    notes: list[str] = []

    def attempt(name: str, value: Callable[[], float]) -> None:
        try:
            found[name] = value()
        except (ValueError, TypeError, ArithmeticError) as error:
            found[name] = None
            notes.append(f"{name}: {error}")

    attempt("log_likelihood", lambda: _likelihood(model, parts, density))
    attempt("reconstruction_error", lambda: _reconstruction(model, parts))
    attempt("imputation_error", lambda: _imputation(model, parts))
    if cells is not None:
        found |= {"number_error": None, "category_error": None}
        if hasattr(model, "impute"):
            means, scales = parts.units
            values = np.asarray(model.impute(parts.hidden)) * scales + means
            found |= cells.judged(cells.numbers.framed(values))
    components = getattr(model, "n_components_", None)
    return found | {"n_components": components, "notes": notes}


def _likelihood(model: Any, parts: Split, density: bool) -> float:
    if not hasattr(model, "score_samples"):
        raise TypeError("the model has no density.")
    if not density:
        raise TypeError("its density is in feature space and cannot be compared with others.")
    return float(np.mean(np.asarray(model.score_samples(parts.test)) - parts.log_units))


def _reconstruction(model: Any, parts: Split) -> float:
    for name in ("denoise", "reconstruct"):
        if hasattr(model, name):
            again = getattr(model, name)(parts.test)
            return parts.share(parts.test, again, ~np.isnan(parts.test))
    raise TypeError("the model cannot reconstruct rows.")


def _imputation(model: Any, parts: Split) -> float:
    if not hasattr(model, "impute"):
        raise TypeError("the model cannot fill entries.")
    true, where = parts.asked
    return parts.share(true, model.impute(parts.hidden), where)


# --- tables with categories --------------------------------------------------------------------


@dataclass(frozen=True)
class Cells:
    """The same rows as cells of a table with categories, and which of them are hidden.

    Numbers are judged by their absolute errors, each column in units of its mean deviation from
    the median; categories by how often they are wrong.
    """

    numbers: Preparation  # for models of numbers: zeros and ones
    mixed: Preparation  # for a model of columns of any kind
    train: pl.DataFrame  # rows to fit, as the table has them
    test: pl.DataFrame  # rows held out, each as often as entries of it are hidden
    hidden: dict[str, Values]  # (k,) by column

    @property
    def partial(self) -> pl.DataFrame:
        """Return the rows held out for a model of columns of any kind, without hidden cells.

        Levels that no row to fit has are missing, too.
        """
        rows, fitted, found = self.mixed.rows(self.test), self.mixed.rows(self.train), []
        for column in rows.iter_columns():
            gone = pl.Series(self.hidden.get(column.name, np.zeros(rows.height, dtype=bool)))
            if column.name in self.mixed.levels:
                gone = gone | ~column.is_in(fitted[column.name].unique().implode())
            found.append(column.set(gone.fill_null(False), None))
        return pl.DataFrame(found)

    @property
    def counts(self) -> tuple[int, int]:
        """Return how many numbers and categories are hidden."""
        each = [
            (int(where.sum()), name in self.numbers.levels) for name, where in self.hidden.items()
        ]
        return sum(n for n, level in each if not level), sum(n for n, level in each if level)

    def judged(self, filled: pl.DataFrame | None) -> dict[str, float | None]:
        """Return the errors of filled cells: of numbers (1: no better than medians), of categories.

        Without filled cells, those of medians and of the most frequent categories. None where no
        cell of the kind was hidden.
        """
        wrong, plain, missed = 0.0, 0.0, []
        for name, where in self.hidden.items():
            at, guess = pl.Series(where), None if filled is None else filled[name]
            if name in self.numbers.levels:
                truth = texts(self.test[name]).filter(at)
                most = texts(self.train[name]).drop_nulls().mode().sort()[:1]
                missed += (truth != (most.first() if guess is None else guess.filter(at))).to_list()
                continue
            known, true = _numbers(self.train[name]), _numbers(self.test[name])[where]
            known = known[~np.isnan(known)]
            if not known.size or np.ptp(known) == 0:
                continue
            middle = np.median(known)
            unit = np.mean(np.abs(known - middle))
            made = middle if guess is None else coded(guess, ())[0][where]  # a bound for <50
            wrong += float(np.sum(np.abs(true - made)) / unit)
            plain += float(np.sum(np.abs(true - middle)) / unit)
        return {
            "number_error": wrong / plain if plain else None,
            "category_error": float(np.mean(missed)) if missed else None,
        }


def _numbers(column: pl.Series) -> Values:
    """Return a column of numbers; bounds are NaN."""
    found = number(column)
    if isinstance(found, Refused):
        raise TableError(refusal([found]))
    return found.to_numpy()


def cells_of(frame: pl.DataFrame, numbers: Preparation, mixed: Preparation, parts: Split) -> Cells:
    """Return the cells of a split."""
    hidden = parts.asked[1]
    first = np.unique(columns_of(numbers), return_index=True)[1]
    where = {name: hidden[:, j] for name, j in zip(numbers.names, first, strict=True)}
    where = {name: rows for name, rows in where.items() if rows.any()}
    fitted, out = parts.at
    return Cells(numbers, mixed, frame[fitted.tolist()], frame[out[parts.of].tolist()], where)


def columns_of(prep: Preparation) -> list[int]:
    """Return which column of the table every feature comes from.

    Examples
    --------
    >>> columns_of(Preparation(("a", "k"), {"k": ("u", "v", "w")}, dropped={"k": "u"}))
    [0, 1, 1]
    """
    found: list[int] = []
    for j, name in enumerate(prep.names):
        found += [j] * (len(prep.levels.get(name, [name])) - (name in prep.dropped))
    return found


# --- the command -------------------------------------------------------------------------------

KERNELS = ("kpca", "dual", "pkpca", "twin")
COMPARED = [name for name in MODELS if name != "hmm"]
"""Not hmm: rows of a table have no order, which is what a hidden Markov model describes."""
COLUMNS = {
    "log_likelihood": "log-likelihood",
    "reconstruction_error": "reconstruction",
    "imputation_error": "imputation",
    "number_error": "numbers",
    "category_error": "categories",
    "seconds": "seconds",
}
"""What is judged, and the headings."""


def compare(
    data: Data,
    *,
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help=f"One of {', '.join(COMPARED)}; all by default, copula where there are categories "
            "or skewed columns.",
        ),
    ] = None,
    components: Annotated[
        int | None,
        typer.Option(
            "--components",
            "-q",
            min=1,
            help="Number of components; chosen by parallel analysis by default.",
        ),
    ] = None,
    held_out: Annotated[
        float, typer.Option("--hold-out", min=0.01, max=0.9, help="Share of the rows to hold out.")
    ] = 0.2,
    hidden: Annotated[
        float,
        typer.Option(
            "--hide", min=0.001, max=0.9, help="Share of their entries to hide and predict."
        ),
    ] = 0.1,
    kernel_rows: Annotated[
        int, typer.Option("--kernel-rows", min=2, help="Largest number of rows for kernel models.")
    ] = 1000,
    standardize: Standardize = None,
    choice: Choice,
    id_column: Identifier = None,
    sample_rows: SampleRows = None,
    source: Source,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Fit every model to most rows, and compare how they describe the rest."""

    def work() -> dict[str, Any]:
        chosen = _chosen(models)
        if choice.kinds and ANY_KIND not in chosen:
            check_kinds(chosen[0], choice, None)
        known = {"levels": choice.levels()}
        table = open_table(data, source.reading(), id_column, known=known)
        table = at_once(table, sample_rows, seed)
        frame = table.frame()
        prep = prepared(table, choice, id_column)
        X = prep.rows(frame).to_numpy()
        if X.shape[0] < 5:
            raise ValueError(f"{data} has {X.shape[0]} rows, but compare needs at least 5.")
        scaled = standardizes(standardize, data, source.kind)
        own, nominal = columns_of(prep), [j for j, k in enumerate(prep.names) if k in prep.levels]
        parts = splits(X, scaled, held_out, hidden, seed, own, nominal)
        cells, kinds = None, None
        mixed, asks = None, ANY_KIND in (models or []) or (models and prep.levels)
        if asks or not models:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NoteWarning)  # they were told above
                family = chosen_family(ANY_KIND if asks else None, table, choice, id_column)
            mixed = family.prep if family.name == ANY_KIND else None
        if mixed is not None:
            cells = [cells_of(frame, prep, mixed, one) for one in parts]
            kinds = kinds_asked(choice, mixed)
        elif models is None:
            chosen = [name for name in chosen if name != ANY_KIND]
        q = components or _by_parallel(parts[0], seed)
        found: dict[str, Any] = {"splits": len(parts), "rows_fitted": len(parts[0].train)}
        found |= {"rows_held_out": len(parts[0].test), **_hidden_counts(parts, own, nominal)}
        found |= {"features": X.shape[1], "n_components": q, "standardized": scaled}
        found["categories"] = cells is not None
        task_ = Task(parts, cells, q, components, seed, kernel_rows, kinds)
        return found | _judged(chosen, task_)

    run("compare", as_json, work, _words)


def _chosen(models: list[str] | None) -> list[str]:
    unknown = [name for name in models or [] if name not in COMPARED]
    if unknown:
        raise UsageError(f"--model {unknown[0]}: compare accepts {', '.join(COMPARED)}.")
    return models or COMPARED


def _by_parallel(parts: Split, seed: int) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", InterruptWarning)
        count = max(
            int(dualpca.PPCA("parallel", random_state=seed).fit(parts.train).n_components_), 1
        )
    noun = "component" if count == 1 else "components"
    note(f"{count} {noun}, by parallel analysis (--components changes it).")
    return count


def _hidden_counts(parts: list[Split], own: list[int], nominal: list[int]) -> dict[str, int]:
    """Return how many numbers and categories are hidden in all splits."""
    first = np.unique(own, return_index=True)[1]
    each = sum(one.asked[1][:, first].sum(axis=0) for one in parts)
    where = np.isin(np.arange(len(first)), nominal)
    return {
        "hidden_numbers": int(np.sum(each[~where])),
        "hidden_categories": int(np.sum(each[where])),
    }


class Task(NamedTuple):
    """What every model is to do."""

    parts: list[Split]
    cells: list[Cells] | None  # of a table with categories, for every split
    q: int
    components: int | None  # as given
    seed: int
    kernel_rows: int
    kinds: dict[str, Any] | None  # of columns, as given


def _judged(names: list[str], task_: Task) -> dict[str, Any]:
    """Return the scores of the models; after an interrupt, of those that are done."""
    parts, cells = task_.parts, task_.cells
    each: list[dict[str, Any]] = []
    for k, one in enumerate(parts):
        true, where = one.asked
        plain: dict[str, Any] = {"log_likelihood": None, "seconds": 0.0, "notes": []}
        plain["reconstruction_error"] = one.share(one.test, one.center, ~np.isnan(one.test))
        plain["imputation_error"] = one.share(true, one.center, where)
        each.append(plain | ({} if cells is None else cells[k].judged(None)))
    found = [{"model": "means" if cells is None else "baseline"} | _mean(each, task_)]
    left_out: dict[str, str] = {}
    interrupted = False
    with task("model", len(names)) as tick:
        for name in names:
            try:
                one_ = {"model": name} | _one(name, task_)
            except (KeyboardInterrupt, InterruptWarning):
                interrupted = True
                break
            why = _useless(one_)
            if why:
                left_out[name] = why
            else:
                found.append(one_)
            tick(name)
    return {"models": found, "left_out": left_out, "interrupted": interrupted}


def _mean(each: list[dict[str, Any]], task_: Task) -> dict[str, Any]:
    """Return the mean scores of all splits, weighted by what was judged in each."""
    every = [len(one.test) for one in task_.parts]
    weights = {"imputation_error": [int(one.asked[1].sum()) for one in task_.parts]}
    if task_.cells is not None:
        weights["number_error"] = [one.counts[0] for one in task_.cells]
        weights["category_error"] = [one.counts[1] for one in task_.cells]
    found = dict(each[0])
    for name in set(COLUMNS) & set(found):
        pairs = [(one[name], w) for one, w in zip(each, weights.get(name, every), strict=True)]
        pairs = [(value, w) for value, w in pairs if value is not None and w]
        total = sum(w for _, w in pairs)
        found[name] = sum(value * w for value, w in pairs) / total if pairs else None
    notes = dict.fromkeys(words for one in each for words in one["notes"])
    return found | {"notes": list(notes)}


NO_GAPS = "needs rows without missing values"
NO_SCORES = "has no density of rows, and neither rebuilds nor fills them"


def _useless(one: dict[str, Any]) -> str:
    """Return why a model is left out: it failed, or has nothing to be judged by; else nothing."""
    if "error" in one:
        return str(one["error"])
    if any(one.get(name) is not None for name in COLUMNS if name != "seconds"):
        return ""
    return NO_GAPS if any("contains NaN" in words for words in one["notes"]) else NO_SCORES


def _one(name: str, task_: Task) -> dict[str, Any]:
    """Return the scores of one model with its warnings, or why it failed."""
    settings: dict[str, Any] = {} if name == "bpca" else {"n_components": task_.q}
    settings |= {"max_mixtures": 4} if name == "mixture" else {}
    settings |= {"kernel": "rbf", "gamma": "median"} if name in KERNELS else {}
    fresh = make(name, settings, [], task_.seed)
    gaps = any(np.isnan(one.train).any() for one in task_.parts)
    if gaps and name != ANY_KIND and not fresh.__sklearn_tags__().input_tags.allow_nan:
        return dict.fromkeys(COLUMNS) | {"error": NO_GAPS, "notes": []}
    with _caught() as told:
        try:
            found = _mean(
                [_of_split(name, settings, k, task_) for k in range(len(task_.parts))], task_
            )
        except (ValueError, TypeError, ArithmeticError, MemoryError) as error:
            why = " ".join(str(error).split())
            found = dict.fromkeys(COLUMNS) | {"error": why, "notes": []}
    found["notes"] += dict.fromkeys(str(one.message) for one in told)
    return found


def _of_split(name: str, settings: dict[str, Any], k: int, task_: Task) -> dict[str, Any]:
    """Return the scores of one model on one split."""
    parts, cells = task_.parts[k], None if task_.cells is None else task_.cells[k]
    if name == ANY_KIND:
        return _of_any_kind(cells, task_)
    notes = []
    if name in KERNELS and len(parts.train) > task_.kernel_rows:
        rng = np.random.default_rng(task_.seed)
        some = np.sort(rng.choice(len(parts.train), task_.kernel_rows, replace=False))
        parts = replace(parts, train=parts.train[some])
        notes = [f"fitted to {task_.kernel_rows} rows (--kernel-rows)"]
    fresh = make(name, settings, [], task_.seed)
    found = judge(lambda: fresh, parts, name not in KERNELS, cells)
    return found | {"notes": notes + found["notes"]}


def _of_any_kind(cells: Cells | None, task_: Task) -> dict[str, Any]:
    """Return the scores of the model of columns of any kind, on the same hidden cells."""
    if cells is None:  # not reached: the model is left out without cells
        raise TypeError("the table has no categories.")
    model = make(ANY_KIND, {"n_components": task_.components}, [], task_.seed)
    model.set_params(column_kinds=task_.kinds)
    start = time.perf_counter()
    model.fit(cells.mixed.rows(cells.train))
    found: dict[str, Any] = dict.fromkeys(COLUMNS) | {"seconds": time.perf_counter() - start}
    found |= cells.judged(plain(model.impute(cells.partial)))
    notes = [
        "log_likelihood: it is relative to independent columns and cannot be compared.",
        "reconstruction_error: the model does not reconstruct rows.",
    ]
    return found | {"n_components": int(model.n_components_), "notes": notes}


@contextmanager
def _caught() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        warnings.simplefilter("error", InterruptWarning)
        yield told


def _words(found: dict[str, Any]) -> str:
    """Return a table with the best of every column marked, and remarks on it."""
    from rich.console import Console
    from rich.table import Table

    table = Table("model", box=None, pad_edge=False)
    left = ("imputation_error",) if found["categories"] else ("number_error", "category_error")
    shown = [column for column in COLUMNS if column not in left]
    for column in shown:
        table.add_column(COLUMNS[column], justify="right")
    best = _best(found["models"])
    for one in found["models"]:
        cells = [_cell(one, column, best) for column in shown]
        table.add_row(one["model"], *cells)
    out = io.StringIO()
    Console(file=out, width=100).print(table)
    return "\n".join([out.getvalue().rstrip("\n"), "", *_remarks(found)])


def _best(models: list[dict[str, Any]]) -> dict[str, float]:
    found = {}
    for column in COLUMNS:
        if column == "seconds":
            continue
        choose = max if column == "log_likelihood" else min
        values = [m[column] for m in models if m.get(column) is not None]
        values = [value for value in values if np.isfinite(value)]
        if values:
            found[column] = choose(values)
    return found


def _cell(one: dict[str, Any], column: str, best: dict[str, float]) -> str:
    value = one.get(column)
    if value is None:
        return "-"
    shown = f"{value:.2f}" if column == "seconds" else f"{value:.4g}"
    return f"{shown} *" if best.get(column) == value else shown


def _remarks(found: dict[str, Any]) -> list[str]:
    filled, entries = ("", "") if found["categories"] else (", imputation", " and hidden entries")
    lines = [
        f"{found['rows_fitted']} rows fitted, {found['rows_held_out']} held out"
        f"{_times(found['splits'])}; {_hidden_words(found)}; * is the best.",
        "log-likelihood: mean per held-out row, in the units of the table; that of kernel models "
        "cannot be compared.",
        f"reconstruction{filled}: squared error on held-out rows{entries}, relative to column "
        "means; lower is better.",
    ]
    if found["categories"]:
        lines += [
            "numbers: absolute error on hidden numbers, relative to column medians; categories: "
            "share of hidden categories that are filled wrong. Lower is better.",
            "baseline: means for reconstruction, medians for numbers, the most frequent value for "
            "categories.",
        ]
    if found["standardized"]:
        lines.append(f"{STANDARDIZED[0].upper()}{STANDARDIZED[1:]}.")
    for why in dict.fromkeys(found["left_out"].values()):
        names = [name for name, one in found["left_out"].items() if one == why]
        lines.append(f"Left out: {', '.join(names)} ({why.rstrip('.')}).")
    if found["interrupted"]:
        lines.append("Interrupted: only these models were fitted.")
    return lines


def _times(n: int) -> str:
    """Return how often rows were held out, if it was more than once."""
    return "" if n == 1 else f", in turn {n} times"


def _hidden_words(found: dict[str, Any]) -> str:
    """Return how many entries were hidden, and by how much shares of them are uncertain."""
    count, several = found["hidden_numbers"], found["hidden_categories"]
    if not found["categories"]:
        return f"{count + several} entries hidden"
    if not several:
        return f"{count} numbers hidden"
    error = f"; a share of wrong ones is uncertain by about {0.5 / several**0.5:.2f}"
    return f"{count} numbers and {several} categories hidden{error if several < ENOUGH else ''}"


COMMANDS = {"compare": compare}
