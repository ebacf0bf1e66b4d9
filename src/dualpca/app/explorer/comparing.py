"""A row beside what the model expects, a selection beside the rest, and rows by their names."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from scipy import special, stats

from dualpca.app.explorer.lenses import Matrix, MixedLens
from dualpca.app.explorer.session import LEVELS, Session
from dualpca.app.tables import columns
from dualpca.app.tables.columns import Refused, plain
from dualpca.app.tables.text import TableError

# --- measured and expected ---------------------------------------------------------------------

MOST_EXPECTED = 200
"""Most columns of a row for which an expectation is computed: those that are rebuilt worst."""
LEVEL = 0.95
SPAN = 2 * float(special.ndtri((1 + LEVEL) / 2))
"""Width of an interval of that level in standard deviations."""


class Expected(NamedTuple):
    """What the rest of a row says of its entries, an element for each that was looked at."""

    at: Any  # (k,), positions of features
    values: Matrix  # (k,), in the units of the table; NaN where there is none
    std: Matrix  # (k,)
    unusual: Matrix  # (k,), distance in standard deviations; NaN for missing entries
    chance: Matrix  # (k,), of the level that is there; NaN for numbers


def expected_row(session: Session, row: int) -> dict[str, Any]:
    """Return the entries of a row beside what the model expects, the most unusual first.

    Each entry is hidden in turn and filled from the others, so that it does not vouch for itself.
    A model that cannot fill is asked for its reconstruction, which has seen the entry (`itself`).
    """
    itself = "impute" in session.lens.reasons
    if itself and "error" in session.lens.reasons:
        raise TableError(session.lens.reasons["error"])
    truth = session.units.out(session.rows([row]))[0]
    with session.lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(session.lens, MixedLens):
            found = _of_kinds(session.lens, row, truth)
        elif itself:
            found = _rebuilt(session, row, truth)
        else:
            found = _left_out(session, row, truth)
    order = np.argsort(-np.nan_to_num(found.unusual, nan=-1.0), kind="stable")
    at = found.at[order]
    return {
        "id": session.identifier(row),
        "features": at.tolist(),
        "measured": truth[at],
        "expected": found.values[order],
        "std": found.std[order],
        "unusual": found.unusual[order],
        "chance": found.chance[order],
        "itself": itself,
        "total": len(truth),
    }


def _left_out(session: Session, row: int, truth: Matrix) -> Expected:
    """Hide every entry in turn, and fill it from the others."""
    X = session.rows([row])
    at = _worst(session, X)
    rows = np.repeat(X, len(at), axis=0)
    rows[np.arange(len(at)), at] = np.nan
    filled, std = session.lens.impute(rows, fixed=True)
    each = np.arange(len(at))
    values = session.units.out(filled)[each, at]
    deviation = np.broadcast_to(std * session.units.scale, filled.shape)[each, at]
    gap = np.abs(truth[at] - values) / np.maximum(deviation, 1e-300)
    return Expected(at, values, deviation, gap, np.full(len(at), np.nan))


def _worst(session: Session, X: Matrix) -> Any:
    """Return the columns of a row to look at: all, or those that are rebuilt worst."""
    d = X.shape[1]
    if d <= MOST_EXPECTED or "error" in session.lens.reasons:
        return np.arange(min(d, MOST_EXPECTED))
    gap = np.abs(session.lens.reconstruct(X) - X)[0] / session.spread
    order = np.argsort(-np.nan_to_num(gap, nan=np.inf), kind="stable")
    return np.sort(order[:MOST_EXPECTED])


def _rebuilt(session: Session, row: int, truth: Matrix) -> Expected:
    """Compare with the reconstruction, in standard deviations of the columns."""
    X = session.rows([row])
    at = _worst(session, X)
    values = session.units.out(session.lens.reconstruct(X))[0][at]
    spread = (session.spread * session.units.scale)[at]
    none = np.full(len(at), np.nan)
    return Expected(at, values, none, np.abs(truth[at] - values) / spread, none)


def _of_kinds(lens: MixedLens, row: int, truth: Matrix) -> Expected:
    """Hide every entry of a row with columns of any kind in turn.

    A level is as unusual as the standard normal variable that is as rarely so far out.
    """
    if lens.table is None:
        raise TableError("no table was given: start with `dualpca explore MODEL TABLE`.")
    at = np.arange(min(len(truth), MOST_EXPECTED))
    table = pl.concat([lens.table[row : row + 1]] * len(at))
    hidden = [one.set(pl.Series(at == j), None) for j, one in enumerate(table.iter_columns())]
    tables = lens.model.impute(pl.DataFrame(hidden), return_interval=True, level=LEVEL)
    values, low, high = (lens.codes(plain(part))[at, at] for part in tables)
    std, chance = (high - low) / SPAN, np.full(len(at), np.nan)
    unusual = np.abs(truth[at] - values) / np.where(std > 0, std, np.nan)
    one = lens.table[row : row + 1]
    for j in at.tolist():
        if lens.levels[j]:
            std[j] = unusual[j] = np.nan
            if np.isfinite(truth[j]):
                chances = np.asarray(lens.model.predict_proba(one, lens.names[j]))[0]
                chance[j] = float(chances[int(truth[j])])
                unusual[j] = float(-special.ndtri(max(chance[j], 1e-12) / 2))
    return Expected(at, values, std, unusual, chance)


# --- a selection beside the rest ---------------------------------------------------------------

LISTED = 40
"""Columns of numbers, and levels, that are listed."""


def difference(session: Session, index: Sequence[int]) -> dict[str, Any]:
    """Return how selected rows differ from all others, column by column.

    Numbers by the difference of means in standard deviations within the two groups, with Welch's
    interval; levels by their shares, with Newcombe's (1998) interval. The intervals hold together
    at 95 %: each is at 1 − 0.05/k (Bonferroni).
    """
    mine = np.zeros(session.n, dtype=bool)
    mine[np.asarray(index, dtype=int)] = True
    if mine.all():
        raise TableError("all rows are selected: there is no rest to compare with.")
    numbers, words = _columns(session)
    count = len(numbers) + sum(len(known) for _, _, known in words)
    rate = (1 - LEVEL) / max(count, 1)
    gaps = [(name, *standardized_gap(x[mine], x[~mine], rate)) for name, x in numbers]
    gaps = [one for one in gaps if np.isfinite(one[1])]
    gaps.sort(key=lambda one: -abs(one[1]))
    shares = [
        (name, level, *share_gap(codes[mine] == k, codes[~mine] == k, rate))
        for name, codes, known in words
        for k, level in enumerate(known)
    ]
    shares.sort(key=lambda one: -abs(one[2] - one[3]))
    return {
        "selected": int(mine.sum()),
        "rest": int((~mine).sum()),
        "compared": count,
        "columns": [one[0] for one in gaps[:LISTED]],
        "gap": [one[1] for one in gaps[:LISTED]],
        "low": [one[2] for one in gaps[:LISTED]],
        "high": [one[3] for one in gaps[:LISTED]],
        "inside": [one[4] for one in gaps[:LISTED]],
        "outside": [one[5] for one in gaps[:LISTED]],
        "levels": [f"{name} = {level}" for name, level, *_ in shares[:LISTED]],
        "share": [one[2] for one in shares[:LISTED]],
        "share_rest": [one[3] for one in shares[:LISTED]],
        "share_low": [one[4] for one in shares[:LISTED]],
        "share_high": [one[5] for one in shares[:LISTED]],
    }


def _columns(session: Session) -> tuple[list[tuple[str, Matrix]], list[tuple[str, Matrix, Any]]]:
    """Return columns of numbers, and columns of levels with codes, of the table or the model."""
    if session.frame is None:
        X = session.units.out(session.rows(range(session.n)))
        return list(zip(session.features, X.T, strict=True)), []
    numbers: list[tuple[str, Matrix]] = []
    words: list[tuple[str, Matrix, Any]] = []
    time = None if session.time is None else session.time.name
    for column in session.frame.iter_columns():
        if column.name == time:
            continue
        found = column if column.dtype == pl.Boolean else columns.number(column)
        if not isinstance(found, Refused) and found.dtype != pl.Boolean:
            numbers.append((column.name, found.to_numpy()))
            continue
        text = columns.texts(column)
        known = text.drop_nulls().unique().sort().to_list()
        if 1 < len(known) <= LEVELS:
            codes = text.replace_strict(known, list(range(len(known))), default=None)
            words.append((column.name, codes.cast(pl.Float64).fill_null(np.nan).to_numpy(), known))
    return numbers, words


def standardized_gap(
    a: Matrix, b: Matrix, rate: float
) -> tuple[float, float | None, float | None, float, float]:
    """Return the difference of two means in standard deviations, its interval, and the means.

    The interval misses the true difference with probability `rate` (Welch, 1947). One row alone is
    compared by the spread of the others; without two others there is no interval.

    Examples
    --------
    >>> found = standardized_gap(np.array([2.0, 3.0, 4.0]), np.array([0.0, 1.0, 2.0]), 0.05)
    >>> [round(x, 2) for x in found]
    [2.0, -0.27, 4.27, 3.0, 1.0]
    """
    a, b = a[np.isfinite(a)], b[np.isfinite(b)]
    if not a.size or not b.size:
        return np.nan, None, None, np.nan, np.nan
    means = float(a.mean()), float(b.mean())
    free = a.size + b.size - 2
    squares = a.size * a.var() + b.size * b.var()
    spread = float(np.sqrt(squares / free)) if free > 0 else 0.0
    if spread <= 1e-12 * max(abs(means[0]), abs(means[1])):
        return (0.0 if means[0] == means[1] else np.nan), None, None, *means
    gap = (means[0] - means[1]) / spread
    small = [one for one in (a, b) if one.size < 2]
    if len(small) == 2 or free < 1:
        return gap, None, None, *means
    var = [one.var(ddof=1) if one.size > 1 else spread**2 for one in (a, b)]
    parts = np.array([var[0] / a.size, var[1] / b.size])
    ends = np.array([max(a.size - 1, 1), max(b.size - 1, 1)])
    degrees = free if small else float(parts.sum() ** 2 / np.sum(parts**2 / ends))
    reach = float(stats.t.isf(rate / 2, degrees) * np.sqrt(parts.sum())) / spread
    return gap, gap - reach, gap + reach, *means


def share_gap(a: Any, b: Any, rate: float) -> tuple[float, float, float, float]:
    """Return two shares and the interval of their difference (Newcombe, 1998, method 10).

    Examples
    --------
    >>> first, second = np.arange(70) < 56, np.arange(80) < 48
    >>> [round(x, 4) for x in share_gap(first, second, 0.05)]
    [0.8, 0.6, 0.0524, 0.3339]
    """
    z = float(-special.ndtri(rate / 2))
    p, ends = [], []
    for one in (a, b):
        n, share = len(one), float(np.mean(one))
        middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
        reach = z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
        p.append(share)
        ends.append((middle - reach, middle + reach))
    gap = p[0] - p[1]
    low = gap - np.hypot(p[0] - ends[0][0], ends[1][1] - p[1])
    high = gap + np.hypot(ends[0][1] - p[0], p[1] - ends[1][0])
    return p[0], p[1], float(low), float(high)


# --- rows by their names -----------------------------------------------------------------------

FOUND = 20
"""Rows that a search lists."""


def search(session: Session, words: str) -> dict[str, Any]:
    """Return rows by number, by name, or by a level that one of their columns has.

    What is the same comes first, then what begins so, then what contains it. Capitals make no
    difference.
    """
    wanted = words.strip().lower()
    hits: dict[int, str] = {}
    if session.n and wanted:
        number = wanted.removeprefix("row").strip().removeprefix("#")
        if number.isdecimal() and 1 <= int(number) <= session.n:
            hits[int(number) - 1] = f"row {int(number)}"
        names = None if session.ids is None else pl.Series("name", session.ids, dtype=pl.String)
        for where, text in (("", names), *_texts(session)):
            if text is not None and len(hits) < FOUND:
                _add(hits, where, text, wanted)
    rows = list(hits)[:FOUND]
    return {
        "rows": rows,
        "ids": [session.identifier(i) for i in rows],
        "where": [hits[i] for i in rows],
        "more": len(hits) > FOUND,
    }


def _texts(session: Session) -> list[tuple[str, pl.Series]]:
    """Return the columns of text of a table, and that of the time as it was written."""
    if session.frame is None:
        return []
    some = [one for one in session.frame.iter_columns() if one.dtype in (pl.String, pl.Categorical)]
    return [(one.name, one.cast(pl.String)) for one in some]


def _add(hits: dict[int, str], where: str, text: pl.Series, wanted: str) -> None:
    """Add rows whose text is, begins with or contains what is wanted."""
    low = text.str.strip_chars().str.to_lowercase()
    tests = (low == wanted, low.str.starts_with(wanted), low.str.contains(wanted, literal=True))
    for test in tests:
        for i in test.fill_null(False).arg_true().head(FOUND + 1).to_list():
            hits.setdefault(i, f"{where}: {text[i]}" if where else str(text[i]))
