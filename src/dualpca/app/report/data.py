"""Sections on the data itself: what it is, and what is missing."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from dualpca.app.report import figures
from dualpca.app.report.figures import (
    BLUE,
    CLEAR,
    VERMILION,
    Floats,
    Ints,
    Plot,
    axis,
    band,
    bars,
    line,
    log_axis,
    named_axis,
    numbers,
    plot,
    points,
    said,
)
from dualpca.app.report.figures import shown as short
from dualpca.app.report.page import Part, Section, Table, Tile, Tiles
from dualpca.app.report.subject import LeftOut, Subject

COLUMNS = 40
"""Columns listed in a table or a bar chart."""
FOLD = 12
"""Rows above which a table is folded."""
PATTERNS, FIRST = 30, 6
"""Patterns of missing entries that are listed, and how many of a long list are not folded."""
LONG = 20
"""Columns above which a table of columns is folded."""
EXAMPLES = 5
"""Rows that are named as examples of a pattern."""
TOGETHER = 5
"""Columns of a pattern that are named."""
TICKS = 8
BLOCKS = (200, 60)
"""Cells of the map of missing entries, down and across."""
UNEVEN = 10.0
"""Ratio of the largest to the smallest spread above which the page warns."""


def overview(subject: Subject) -> Section:
    """Show how many rows and columns there are, of which kind, and their ranges."""
    text = []
    if subject.aside:
        text.append(f"Columns that the model does not use: {', '.join(subject.aside)}.")
    figure = _average(subject) if subject.curve else _spreads(subject)
    parts: list[Part] = [figure, _columns(subject)]
    parts = [_images(subject)] if subject.image else parts
    return Section(
        "What the data is",
        f"The table the report is about: {subject.n:,} rows (cases) and {subject.d:,} columns "
        f"(measurements), {subject.units}.",
        "implausible ranges (a negative length, a 999 that means unknown), and columns that never "
        "change.",
        parts,
        text,
    )


def kind_of(column: Floats) -> str:
    """Return what kind of numbers a column holds.

    Examples
    --------
    >>> kind_of(np.array([0.0, 1.0, np.nan])), kind_of(np.array([0.5, 1, 2])), kind_of(np.ones(2))
    ('two values', 'numbers', 'constant')
    """
    seen = np.unique(column[~np.isnan(column)])
    if seen.size < 2:
        return "constant" if seen.size else "empty"
    if seen.size == 2:
        return "two values"
    return "whole numbers" if np.all(seen == np.round(seen)) else "numbers"


def _columns(subject: Subject) -> Table:
    rows = [_column(subject, j) for j in range(min(subject.d, COLUMNS))]
    cut = f" (the first {COLUMNS} of {subject.d:,})" if subject.d > COLUMNS else ""
    caption = f"Every column{cut}: its kind, missing entries and range"
    header = ("column", "kind", "missing", "minimum", "median", "maximum")
    return Table(header, rows, caption, folded=len(rows) > FOLD)


def _column(subject: Subject, j: int) -> list[str]:
    column = subject.X[:, j]
    seen = column[~np.isnan(column)]
    share = 1 - seen.size / subject.n
    missing = f"{subject.n - seen.size:,} ({percent(share)})" if share else "none"
    cuts = [f"{said(v, 4)}" for v in np.quantile(seen, [0, 0.5, 1])] if seen.size else ["–"] * 3
    return [subject.titled(j), kind_of(column), missing, *cuts]


def percent(share: float) -> str:
    """Return a share in percent; small ones are not rounded to zero.

    Examples
    --------
    >>> percent(0.123), percent(0.0004), percent(0.9999), percent(1.0)
    ('12 %', 'less than 0.1 %', 'more than 99.9 %', '100 %')
    """
    if 0 < share < 0.001:
        return "less than 0.1 %"
    if 0.999 < share < 1:
        return "more than 99.9 %"
    digits = 1 if share < 0.0995 or 0.9 < share < 1 else 0
    return f"{100 * share:.{digits}f}".removesuffix(".0") + " %"


def counted(count: int, what: str) -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def _spreads(subject: Subject) -> Plot:
    """Draw how much every column varies."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column without entries has no spread
        spread = np.nan_to_num(np.nanstd(subject.X, axis=0))
    order = np.argsort(-spread, kind="stable")[:COLUMNS]
    names = [subject.names[j] for j in order]
    places = np.arange(len(order))
    hover, text = "%{text}: %{x:.4~g}", [short(name, 60) for name in names]
    wide = spread[order[0]] > UNEVEN * max(spread[order[-1]], 1e-300)
    log = wide and spread[order[-1]] > 0
    across = log_axis("standard deviation", spread[order]) if log else axis("standard deviation")
    if log:  # a bar would have no beginning
        marker = {"marker": {"size": 9, "opacity": 1}, "hovertemplate": f"{hover}<extra></extra>"}
        drawn = points(spread[order], places, text=text, **marker)
    else:
        across_bars: dict[str, Any] = {"orientation": "h", "textposition": "none"}
        drawn = bars(spread[order], places, hover, text=text, **across_bars)
    return plot(
        [drawn],
        across,
        named_axis(names),
        "Chart of the standard deviation of each column, largest first.",
        _spread_words(subject, spread),
        90 + 22 * len(order),
    )


def _average(subject: Subject) -> Plot:
    """Draw the average curve and where curves differ."""
    at, mean, spread = np.arange(1, subject.d + 1), subject.centre, subject.spread
    traces = band(at, mean - spread, mean + spread, BLUE)
    traces.append(line(at, mean, BLUE, line={"width": 2}))
    most = int(np.argmax(spread))
    finding = (
        f"The average curve, and one standard deviation either way: curves differ most at column "
        f"{most + 1} ({said(spread[most])}). The average runs from {said(mean.min())} to "
        f"{said(mean.max())}."
    )
    label = "Line of the average curve with a band of one standard deviation."
    return plot(traces, axis("column", range=[1, subject.d]), axis("value"), label, finding, 360)


def _spread_words(subject: Subject, spread: Floats) -> str:
    first, last = int(np.argmax(spread)), int(np.argmin(spread))
    cut = f" The {COLUMNS} that vary most are drawn." if subject.d > COLUMNS else ""
    still = int(np.sum(spread == 0))
    constant = f" {still} of {subject.d} columns never change." if still else ""
    if subject.d == 1:
        return f"{subject.names[0]} has a standard deviation of {said(spread[0])}.{constant}"
    words = (
        f"{subject.names[first]} varies most (standard deviation {said(spread[first])}), "
        f"{subject.names[last]} least ({said(spread[last])})."
    )
    if spread[last] > 0 and spread[first] > UNEVEN * spread[last]:
        words += f" That is {spread[first] / spread[last]:,.0f} times as much"
        words += (
            ": the model mostly follows those that vary most, because its columns were not "
            "standardised."
            if subject.scale is None
            else ", but the columns were standardised before the fit, so that each counts the same."
        )
    return words + constant + cut


def _images(subject: Subject) -> Tiles:
    """Show the average image and where images differ."""
    shape = subject.image or (1, subject.d)
    mean, spread = np.nanmean(subject.X, axis=0), np.nanstd(subject.X, axis=0)
    low, high = float(np.nanmin(subject.X)), float(np.nanmax(subject.X))
    first = [
        figures.encode(figures.grey(subject.X[i].reshape(shape), low, high))
        for i in subject.some(8)
    ]
    average = Tile(
        figures.encode(figures.grey(mean.reshape(shape), low, high)), "the average image"
    )
    most = float(spread.max()) or 1.0
    differ = Tile(
        figures.encode(figures.grey(spread.reshape(shape), 0.0, most)),
        "each pixel's standard deviation",
    )
    some = zip(subject.some(8), first, strict=True)
    few = [Tile(code, f"row {subject.ids[i]}") for i, code in some]
    finding = (
        f"{subject.n:,} images of {shape[0]} × {shape[1]} pixels, from {said(low)} (white) to "
        f"{said(high)} (black). In the average image the darkest pixel is {said(mean.max())}; "
        f"{int(np.sum(spread == 0))} pixels never change, and the one that changes most has a "
        f"standard deviation of {said(spread.max())}."
    )
    rows = [("some rows", few), ("average", [average]), ("where rows differ", [differ])]
    return Tiles(rows, finding)


def missing(subject: Subject) -> Section:
    """Show where entries are missing."""
    if subject.complete:
        count = subject.X.size
        raise LeftOut(f"nothing is missing: all {count:,} entries of the table are present.")
    return Section(
        "What is missing",
        "Which entries of the table are empty: rows from top to bottom, columns across, an orange "
        "mark where an entry is missing. Below, which columns are missing together, and in which "
        "rows.",
        "blocks and stripes. Entries missing at random do little harm; a column missing over long "
        "stretches of rows, or columns that are missing together, have a cause worth knowing.",
        [_missing_map(subject), *_patterns(subject), _missing_columns(subject)],
        [_missing_text(subject)],
        f"{percent(float(subject.missing.mean()))} of the entries are missing.",
    )


class Pattern(NamedTuple):
    """Columns that are missing together, and the rows that lack exactly these."""

    columns: Ints
    rows: Ints


def patterns(missing: Any) -> list[Pattern]:
    """Return which columns are missing together, the most frequent pattern first.

    Patterns with the same number of rows are in the order of their first rows.

    Examples
    --------
    >>> found = patterns(np.array([[0, 1], [0, 0], [0, 1]], dtype=bool))
    >>> [(one.columns.tolist(), one.rows.tolist()) for one in found]
    [([1], [0, 2]), ([], [1])]
    """
    packed = np.ascontiguousarray(np.packbits(missing, axis=1))
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, inverse, counts = np.unique(
        keys, return_index=True, return_inverse=True, return_counts=True
    )
    groups = np.split(np.argsort(inverse, kind="stable"), np.cumsum(counts)[:-1])
    order = np.lexsort((first, -counts))
    return [Pattern(np.flatnonzero(missing[first[k]]), groups[k]) for k in order]


def _patterns(subject: Subject) -> list[Table]:
    """List which columns are missing together, and in which rows; a long list is folded."""
    found = patterns(subject.missing)
    rows = []
    for one in found[:PATTERNS]:
        few = ", ".join(subject.ids[i] for i in one.rows[:EXAMPLES])
        more = ", …" if len(one.rows) > EXAMPLES else ""
        share = percent(len(one.rows) / subject.n)
        rows.append([_lacked(subject, one.columns), f"{len(one.rows):,}", share, few + more])
    caption = "Columns that are missing together, and the rows that lack exactly these"
    header = ("missing together", "rows", "share", "such as rows")
    if len(rows) <= FOLD:
        return [Table(header, rows, caption, words=True)]
    first = f"{caption}: the {FIRST} most frequent of {len(found):,} patterns"
    cut = f", up to the {PATTERNS}th" if len(found) > PATTERNS else ""
    return [
        Table(header, rows[:FIRST], first, words=True),
        Table(header, rows[FIRST:], f"The other patterns{cut}", words=True, folded=True),
    ]


def _lacked(subject: Subject, columns: Ints) -> str:
    """Return the columns of a pattern, in words."""
    if columns.size == 0:
        return "nothing"
    if columns.size == subject.d:
        return "every column"
    names = ", ".join(subject.names[j] for j in columns[:TOGETHER])
    rest = columns.size - TOGETHER
    return names + (f" and {rest} more" if rest > 0 else "")


def _missing_columns(subject: Subject) -> Table:
    """List how much of each column is missing, the most first."""
    counts = subject.missing.sum(axis=0)
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] > 0]
    rows = [
        [subject.names[j], f"{counts[j]:,}", percent(counts[j] / subject.n)]
        for j in order[:COLUMNS]
    ]
    cut = f" (the first {COLUMNS} of {order.size:,})" if order.size > COLUMNS else ""
    whole = subject.d - order.size
    rest = f"; {'one column is' if whole == 1 else f'{whole:,} columns are'} complete"
    caption = f"Share missing per column{cut}, the most first{rest if whole else ''}"
    header = ("column", "missing", "share")
    return Table(header, rows, caption, folded=len(rows) > LONG)


def _blocks(missing: Any) -> tuple[Floats, Ints, Ints]:
    """Return the share that is missing in each block, and where blocks begin and end."""
    down, across = (min(size, most) for size, most in zip(missing.shape, BLOCKS, strict=True))
    rows = np.linspace(0, missing.shape[0], down + 1).astype(int)
    columns = np.linspace(0, missing.shape[1], across + 1).astype(int)
    sums = np.add.reduceat(missing.astype(np.float64), rows[:-1], axis=0)
    sums = np.add.reduceat(sums, columns[:-1], axis=1)
    return sums / (np.diff(rows)[:, None] * np.diff(columns)[None, :]), rows, columns


def _missing_map(subject: Subject) -> Plot:
    """Draw where entries are missing."""
    share, rows, columns = _blocks(subject.missing)
    down, across = share.shape
    cells = {
        "type": "heatmap",
        "z": [numbers(one, 2) for one in share],
        "x": list(range(across)),
        "y": numbers(rows[:-1] + 1, 7),
        "zmin": 0,
        "zmax": 1,
        "colorscale": [[0, CLEAR], [0.001, "rgba(210,90,15,0.25)"], [1, VERMILION]],
        "showscale": False,
        "text": [[short(subject.ids[i], 40)] * across for i in rows[:-1]],
        "hovertemplate": "from row %{text}: %{z:.0%} missing<extra></extra>",
    }
    named = list(range(0, across, max(1, across // 20)))
    ticks = {"tickvals": named, "ticktext": [short(subject.names[columns[c]], 14) for c in named]}
    finding = _missing_words(subject)
    if down < subject.n or across < subject.d:
        finding += (
            f" A cell represents up to {counted(np.diff(rows).max(), 'row')} and "
            f"{counted(np.diff(columns).max(), 'column')}; the darker its colour, the more is "
            "missing."
        )
    label = "Map of the table with a mark at every missing entry."
    across_axis = axis(tickangle=-45 if across > 4 else 0, showgrid=False) | ticks
    down_axis = axis("row", autorange="reversed")
    if subject.identified:
        at = np.unique(np.linspace(0, subject.n - 1, min(subject.n, TICKS)).astype(int))
        named_rows = [short(subject.ids[i], 14) for i in at]
        down_axis |= {"tickvals": numbers(at + 1, 7), "ticktext": named_rows}
    return plot([cells], across_axis, down_axis, label, finding, 440)


def _missing_words(subject: Subject) -> str:
    missing = subject.missing
    by_column, whole = missing.mean(axis=0), int(np.sum(~missing.any(axis=1)))
    worst = np.argsort(-by_column, kind="stable")[:3]
    names = ", ".join(
        f"{subject.names[j]} ({percent(by_column[j])})" for j in worst if by_column[j]
    )
    return (
        f"{int(missing.sum()):,} of {missing.size:,} entries ({percent(missing.mean())}) are "
        f"missing, most in {names}. {whole:,} of {subject.n:,} rows are complete."
    )


def _missing_text(subject: Subject) -> str:
    empty = int(np.sum(subject.missing.all(axis=1)))
    together = _together(subject)
    words = "Models that accept missing values use every observed entry; no row is dropped."
    if empty:
        words += f" {empty:,} rows have no entry at all: for them the model knows only the average."
    return words + together


def _together(subject: Subject) -> str:
    """Return which two columns tend to be missing in the same rows, in words."""
    some = np.flatnonzero(subject.missing.any(axis=0) & ~subject.missing.all(axis=0))[:COLUMNS]
    if some.size < 2:
        return ""
    r = np.corrcoef(subject.missing[:, some].astype(np.float64), rowvar=False)
    np.fill_diagonal(r, 0)
    i, j = np.unravel_index(int(np.argmax(r)), r.shape)
    if r[i, j] < 0.3:
        return " No two columns tend to be missing in the same rows."
    a, b = subject.names[some[i]], subject.names[some[j]]
    return f" {a} and {b} tend to be missing in the same rows (correlation {r[i, j]:.2f})."
