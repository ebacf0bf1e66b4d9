"""What is filled in: drawn values beside measured ones; known entries beside predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from dualpca.app.report.data import counted, percent
from dualpca.app.report.figures import (
    BLUE,
    GREY,
    VERMILION,
    Floats,
    Ints,
    Plot,
    axis,
    bars,
    line,
    number,
    numbers,
    plot,
    points,
    said,
    shown,
    shown_all,
)
from dualpca.app.report.page import Part, Section, Several
from dualpca.app.report.subject import LeftOut, MixedSubject, Subject, need, quietly, thinned
from dualpca.app.tables.columns import plain
from dualpca.gaussian.calibration import Overimputed

DRAWS, ROWS, COLUMNS = 5, 2000, 6
"""Completed tables, rows that are completed, and columns that are drawn."""
DRAWN, LINES = 300, 100
"""Entries of a column in a figure, and places along a density."""
ENOUGH = 8
"""Filled entries from which every draw has a density of its own."""

# --- drawn values beside measured ones ---------------------------------------------------------


def filled_in(subject: Subject) -> Section:
    """Show values that were drawn for missing entries beside measured ones."""
    if subject.complete:
        raise LeftOut("nothing is missing, so nothing is filled in.")
    need(subject, "sample_imputations", "does not draw missing entries")
    if subject.image or subject.curve:
        raise LeftOut("columns are points of one image or curve.")
    at = subject.some(ROWS, salt=8)
    X, gaps = subject.X[at], subject.missing[at]
    order = np.argsort(-gaps.sum(axis=0), kind="stable")[:COLUMNS]
    columns = [int(j) for j in order if gaps[:, j].any() and not gaps[:, j].all()]
    if not columns:
        raise LeftOut("too few entries are missing, or whole columns.")
    tables = drawn_tables(subject, at)
    parts: list[Part] = [Several([_column(subject, X, gaps, tables, j) for j in columns])]
    pair = [j for j in columns if not _levels(subject, j)][:2]
    if len(pair) == 2:
        parts.append(_pair(subject, X, gaps, tables[0], pair))
    steps = _steps(subject)
    parts += [] if steps is None else [steps]
    return Section(
        "What is filled in",
        f"For every missing entry {DRAWS} values were drawn from what the model thinks possible. "
        "Each column shows how they are distributed (orange, one line for each draw) beside the "
        "values that were measured (blue).",
        "values that nobody can have, and differences that nothing explains. Filled values may "
        "differ from measured ones where other columns know why an entry is missing: if tall "
        "people are weighed less often, the weights filled in are higher.",
        parts,
        [] if len(at) == subject.n else [thinned(len(at), subject.n).strip()],
    )


def drawn_tables(subject: Subject, at: Ints) -> list[Floats]:
    """Return some rows completed, in the table's units, levels as their positions."""
    rows = subject.of(at)
    with quietly():
        try:
            found = subject.model.sample_imputations(rows, DRAWS, subject.seed)
        except ValueError:  # too few rows for refits
            more = {"parameters": "fixed"}
            found = subject.model.sample_imputations(rows, DRAWS, subject.seed, **more)
    if isinstance(subject, MixedSubject):
        return [subject.codes(plain(table)) for table in found]
    return [subject.undone(np.asarray(table, dtype=np.float64)) for table in found]


def _levels(subject: Subject, j: int) -> tuple[str, ...]:
    return subject.levels[j] if isinstance(subject, MixedSubject) else ()


def _column(subject: Subject, X: Floats, gaps: Any, tables: list[Floats], j: int) -> Plot:
    """Draw one column: densities of numbers, shares of levels."""
    gap, name = gaps[:, j], subject.names[j]
    known, filled = X[~gap, j], [table[gap, j] for table in tables]
    label = f"{name}: values filled in beside measured ones."
    if levels := _levels(subject, j):
        return _shares(name, levels, known, filled, label)
    made = float(np.concatenate(filled).mean())
    words = f"{name}: {counted(int(gap.sum()), 'value')} filled in, on average {said(made)}; "
    words += f"measured {said(known.mean())}"
    far = (made - float(known.mean())) / float(subject.spread[j])
    way = "less" if far > 0 else "more"
    words += f", {abs(far):.1f} standard deviations {way}." if abs(far) >= 0.05 else "."
    ends = np.concatenate([known, *filled])
    room = 0.1 * float(np.ptp(ends)) or 1.0
    grid = np.linspace(ends.min() - room, ends.max() + room, LINES)
    each = filled if gap.sum() >= ENOUGH else [np.concatenate(filled)]
    traces = []
    for k, values in enumerate(each):
        more: dict[str, Any] = {"name": "filled in", "showlegend": k == 0, "line": {"width": 1.1}}
        traces += _density(values, grid, VERMILION, legendgroup="filled", **more)
    more = {"name": "measured", "showlegend": True, "line": {"width": 2.2}}
    traces += _density(known, grid, BLUE, **more)
    hidden = axis(showticklabels=False, showgrid=False, rangemode="tozero")
    return plot(traces, axis(shown(name)), hidden, label, words, 230)


def _density(values: Floats, grid: Floats, colour: str, **more: Any) -> list[dict[str, Any]]:
    """Return the density of values as a line, unless all are the same."""
    if values.size < 2 or np.ptp(values) == 0:
        return []
    return [line(grid, stats.gaussian_kde(values)(grid), colour, **more)]


def _shares(
    name: str, levels: Sequence[str], known: Floats, filled: list[Floats], label: str
) -> Plot:
    """Draw how often each level was measured, and drawn."""
    at = range(len(levels))
    share = [np.array([np.mean(part == k) for k in at]) for part in (known, *filled)]
    hover = "%{x}: %{y:.0%}"
    text = shown_all(levels, 14)
    traces = [bars([0] * len(levels), share[0], hover, name="measured") | {"x": text}]
    for k, own in enumerate(share[1:]):
        more: dict[str, Any] = {"name": "filled in", "showlegend": k == 0, "legendgroup": "filled"}
        traces.append(points([0] * len(levels), own, VERMILION, **more) | {"x": text})
        traces[-1]["hovertemplate"] = f"{hover}<extra></extra>"
    drawn = np.mean(share[1:], axis=0)
    most = int(np.argmax(np.abs(drawn - share[0])))
    words = f"{name}: {counted(len(filled[0]), 'value')} filled in; {levels[most]} in "
    words += f"{percent(float(drawn[most]))} of them, and in {percent(float(share[0][most]))} of "
    words += "the measured ones."
    x = axis(shown(name), type="category")
    return plot(traces, x, axis(tickformat=".0%"), label, words, 230, bargap=0.3)


def _pair(subject: Subject, X: Floats, gaps: Any, draw: Floats, pair: list[int]) -> Plot:
    """Draw two columns against each other, with the rows marked in which one was filled in."""
    a, b = pair
    names = [subject.names[j] for j in pair]
    both, either = gaps[:, a] & gaps[:, b], gaps[:, a] | gaps[:, b]
    parts = [
        (~either, "both measured", BLUE, "circle"),
        (gaps[:, a] & ~both, f"{shown(names[0], 20)} filled in", VERMILION, "triangle-right"),
        (gaps[:, b] & ~both, f"{shown(names[1], 20)} filled in", VERMILION, "triangle-up"),
        (both, "both filled in", VERMILION, "diamond"),
    ]
    traces = []
    for mine, word, colour, symbol in parts:
        if mine.any():
            marker = {"symbol": symbol, "size": 6 if colour == BLUE else 9}
            traces.append(points(draw[mine, a], draw[mine, b], colour, name=word, marker=marker))
    x, y = (axis(shown(name)) for name in names)
    label = f"Scatter plot of {names[0]} and {names[1]}; filled entries are marked."
    known, made = _correlation(X[~either][:, pair]), _correlation(draw[either][:, pair])
    words = f"{names[0]} and {names[1]}, with {counted(int(either.sum()), 'row')} completed by one "
    words += f"draw. Measured together they correlate by {known}, in the completed rows by {made}."
    return plot(traces, x, y, label, words, 420)


def _correlation(pair: Floats) -> str:
    if len(pair) < 3 or not np.all(np.ptp(pair, axis=0) > 0):
        return "an unknown amount (too few rows)"
    return f"{float(np.asarray(np.corrcoef(pair.T))[0, 1]):.2f}"


def _steps(subject: Subject) -> Plot | None:
    """Draw the log-likelihood of the fit; None without steps."""
    record = np.asarray(getattr(subject.model, "loglikelihoods_", None) or [], dtype=np.float64)
    what = "log-likelihood"
    if isinstance(subject, MixedSubject):  # its steps climb the posterior; the last entry is none
        record, what = record[:-1], "log-likelihood with the prior"
    if record.size < 2:
        return None
    ended = getattr(subject.model, "converged_", True)
    words = f"The fit {'converged' if ended else 'was stopped'} after {record.size:,} steps. "
    words += "The line should be level at its end."
    trace = line(np.arange(1, record.size + 1), record, BLUE, line={"width": 2})
    trace["y"] = numbers(record, 8)
    label = "Line of the log-likelihood of the fit, step by step."
    x = axis("step", dtick=1) if record.size <= 20 else axis("step")
    return plot([trace], x, axis(what), label, words, 260)


# --- entries predicted without themselves ------------------------------------------------------


def predicted(subject: Subject, found: Overimputed, level: float) -> list[Part]:
    """Draw known entries against what was predicted for them while they were hidden."""
    if subject.image or subject.curve or not found.column.size:
        return []
    gaps = subject.missing.sum(axis=0)
    count = np.bincount(found.column, minlength=subject.d)
    order = np.argsort(-np.where(count > 1, gaps + 1.0, 0.0), kind="stable")[:COLUMNS]
    columns = [int(j) for j in np.sort(order) if count[j] > 1]
    each = [_predictions(subject, found, j, level) for j in columns]
    return [Several(each)] if each else []


def _predictions(subject: Subject, found: Overimputed, j: int, level: float) -> Plot:
    """Draw the hidden entries of one column with their intervals."""
    mine = np.flatnonzero(found.column == j)
    inside = (found.low <= found.truth) & (found.truth <= found.high)
    share = float(inside[mine].mean())
    drawn = mine[:: -(-len(mine) // DRAWN)]
    traces = []
    for word, colour, some in (
        ("inside", BLUE, drawn[inside[drawn]]),
        ("outside", VERMILION, drawn[~inside[drawn]]),
    ):
        if not some.size:
            continue
        truth, guess = found.truth[some], found.guess[some]
        error = {
            "type": "data",
            "array": numbers(found.high[some] - guess, 3),
            "arrayminus": numbers(guess - found.low[some], 3),
            "thickness": 0.7,
            "width": 0,
        }
        hover = "measured %{x:.4~g}, predicted %{y:.4~g}<extra></extra>"
        more: dict[str, Any] = {"name": word, "error_y": error, "hovertemplate": hover}
        traces.append(points(truth, guess, colour, marker={"size": 5}, **more))
    ends = np.array([found.truth[mine].min(), found.truth[mine].max()])
    traces.append(line(ends, ends, GREY))
    name = subject.names[j]
    words = f"{name}: {percent(share)} of {counted(len(mine), 'hidden value')} inside their "
    words += f"{percent(level)} intervals; the line is where prediction and value are the same."
    label = f"{name}: hidden values and their predictions, with intervals."
    y = axis("predicted", range=_span(found, drawn))
    return plot(traces, axis(f"{shown(name, 20)}, measured"), y, label, words, 280)


def _span(found: Overimputed, mine: Ints) -> list[float | int | None]:
    """Return the range of predictions and most of their intervals."""
    low = min(float(np.quantile(found.low[mine], 0.02)), float(found.guess[mine].min()))
    high = max(float(np.quantile(found.high[mine], 0.98)), float(found.guess[mine].max()))
    room = 0.05 * (high - low) or 1.0
    return [number(low - room), number(high + room)]
