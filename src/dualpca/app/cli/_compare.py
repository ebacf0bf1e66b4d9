"""`dualpca compare`: models side by side on rows, and entries, that they have not seen."""

from __future__ import annotations

import io
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer

import dualpca
from dualpca.app.cli._fit import MODELS, STANDARDIZED, make, standardizes
from dualpca.app.cli._running import (
    Choice,
    Data,
    Identifier,
    Json,
    SampleRows,
    Seed,
    Source,
    Standardize,
    UsageError,
    note,
    run,
)
from dualpca.app.cli._session import at_once, open_table, prepared
from dualpca.arrays import task
from dualpca.errors import InterruptWarning

# --- held-out rows and hidden entries ----------------------------------------------------------

Values = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Split:
    """Rows to fit, rows held out, and the same with some entries hidden."""

    train: Values  # (n, d)
    test: Values  # (m, d)
    hidden: Values  # (m, d), NaN also where an entry was hidden
    log_units: Values  # (m,), to be subtracted from log-densities: Σ log scale of observed entries

    @property
    def center(self) -> Values:
        """Return the means of the rows to fit, (d,): the prediction without a model."""
        return np.asarray(np.nanmean(self.train, axis=0))

    def share(self, guess: Any, where: Values) -> float:
        """Return Σ(x − x̂)² / Σ(x − mean)² over some entries: 0 is perfect, 1 no better than means.

        NaN where no entry varies.
        """
        wrong = np.sum((self.test - np.asarray(guess))[where] ** 2)
        total = np.sum((self.test - self.center)[where] ** 2)
        return float(wrong / total) if total > 0 else float("nan")


def split(X: Values, standardize: bool, held_out: float, hidden: float, seed: int) -> Split:
    """Hold out a share of the rows, and hide a share of their entries; every row keeps one.

    Parameters
    ----------
    X : array of shape (n, d)
        NaN where missing.
    standardize : bool
        Scale columns to mean 0 and variance 1 over the rows to fit.
    held_out, hidden : float
        Shares, between 0 and 1.
    seed : int

    Examples
    --------
    >>> X = np.arange(40.0).reshape(10, 4)
    >>> parts = split(X, False, 0.2, 0.5, 0)
    >>> parts.train.shape, parts.test.shape, int(np.isnan(parts.hidden).sum())
    ((8, 4), (2, 4), 4)
    """
    rng = np.random.default_rng(seed)
    n = X.shape[0]
    m = min(max(round(held_out * n), 1), n - 2)
    order = rng.permutation(n)
    test, train = X[np.sort(order[:m])], X[np.sort(order[m:])]
    units = np.zeros(m)
    if standardize:
        means, scales = np.nanmean(train, axis=0), np.nanstd(train, axis=0)
        scales = np.where(scales <= 1e-14 * np.abs(means), 1.0, scales)
        units = ~np.isnan(test) @ np.log(scales)
        test, train = (test - means) / scales, (train - means) / scales
    covered = test.copy()
    observed = np.argwhere(~np.isnan(test))
    for i, j in rng.permutation(observed)[: max(round(hidden * len(observed)), 1)]:
        if np.count_nonzero(~np.isnan(covered[i])) > 1:
            covered[i, j] = np.nan
    return Split(train, test, covered, units)


def judge(make: Callable[[], Any], parts: Split, density: bool) -> dict[str, Any]:
    """Fit a model and return its scores; those it cannot have are None, and `notes` say why.

    Parameters
    ----------
    make : callable
        Function that returns a model that is not fitted.
    parts : Split
    density : bool
        True if its log-density is one of rows in the units of the table, and so comparable.

    Returns
    -------
    dict
        seconds (of the fit), log_likelihood (per held-out row), reconstruction_error and
        imputation_error (see `Split.share`), notes.
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
            return parts.share(getattr(model, name)(parts.test), ~np.isnan(parts.test))
    raise TypeError("the model cannot reconstruct rows.")


def _imputation(model: Any, parts: Split) -> float:
    if not hasattr(model, "impute"):
        raise TypeError("the model cannot fill entries.")
    where = np.isnan(parts.hidden) & ~np.isnan(parts.test)
    return parts.share(model.impute(parts.hidden), where)


# --- the command -------------------------------------------------------------------------------

KERNELS = ("kpca", "dual", "pkpca", "twin")
COMPARED = [name for name in MODELS if name != "hmm"]
"""Not hmm: rows of a table have no order, which is what a hidden Markov model describes."""
COLUMNS = ("log_likelihood", "reconstruction_error", "imputation_error", "seconds")


def compare(
    data: Data,
    *,
    models: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", help=f"One of {', '.join(COMPARED)}; all by default."),
    ] = None,
    components: Annotated[
        int | None,
        typer.Option(
            "--components", "-q", min=1, help="Number of components; chosen by BIC by default."
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
        table = at_once(open_table(data, source.reading(), id_column), sample_rows, seed)
        X = prepared(table, choice, id_column).rows(table.frame()).to_numpy()
        if X.shape[0] < 5:
            raise ValueError(f"{data} has {X.shape[0]} rows, but compare needs at least 5.")
        scaled = standardizes(standardize, data, source.kind)
        parts = split(X, scaled, held_out, hidden, seed)
        q = components or _by_bic(parts, seed)
        found: dict[str, Any] = {"rows_fitted": len(parts.train), "rows_held_out": len(parts.test)}
        found |= {"features": X.shape[1], "n_components": q, "standardized": scaled}
        return found | _judged(chosen, parts, q, seed, kernel_rows)

    run("compare", as_json, work, _words)


def _chosen(models: list[str] | None) -> list[str]:
    unknown = [name for name in models or [] if name not in COMPARED]
    if unknown:
        raise UsageError(f"--model {unknown[0]}: compare accepts {', '.join(COMPARED)}.")
    return models or COMPARED


def _by_bic(parts: Split, seed: int) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", InterruptWarning)
        count = max(int(dualpca.PPCA("bic", random_state=seed).fit(parts.train).n_components_), 1)
    note(f"{count} components, by BIC of probabilistic PCA (--components changes it).")
    return count


def _judged(names: list[str], parts: Split, q: int, seed: int, kernel_rows: int) -> dict[str, Any]:
    """Return the scores of the models; after an interrupt, of those that are done."""
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
    """Return the scores of one model with its warnings, or why it failed."""
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
    """Return a table with the best of every column marked, and remarks on it."""
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
        "log-likelihood: mean per held-out row, in the units of the table; that of kernel models "
        "cannot be compared.",
        "reconstruction, imputation: squared error on held-out rows and hidden entries, relative "
        "to column means; lower is better.",
    ]
    if found["standardized"]:
        lines.append(f"{STANDARDIZED[0].upper()}{STANDARDIZED[1:]}.")
    lines += [f"{m['model']} failed: {m['error']}" for m in found["models"] if "error" in m]
    if found["interrupted"]:
        lines.append("Interrupted: only these models were fitted.")
    return lines


COMMANDS = {"compare": compare}
