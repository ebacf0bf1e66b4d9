"""Rows beside what is left of them after the model has summed them up."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualpca.app.report import png
from dualpca.app.report.figures import (
    BLUE,
    GREY,
    VERMILION,
    Floats,
    Ints,
    Plot,
    axis,
    band,
    bars,
    line,
    named_axis,
    numbers,
    plot,
    points,
    said,
    shown,
    shown_all,
)
from dualpca.app.report.page import Part, Section, Several, Tile, Tiles
from dualpca.app.report.sections.data import percent
from dualpca.app.report.subject import Subject, need, thinned

JUDGED = 5000
SLOW = 300
"""Rows that are rebuilt to judge by: fewer where each needs a search for its pre-image."""
PICTURES = 10
COLUMNS = 30
KINDS = ("original", "rebuilt", "difference")
LONGEST = 24
"""Columns of one row that are drawn: those furthest from the average."""


def section(subject: Subject) -> Section:
    """Show how well rows are rebuilt."""
    need(subject, "reconstruct", "cannot rebuild rows from its latents")
    at = subject.some(SLOW if _slow(subject) else JUDGED, salt=2)
    again = subject.asked("reconstruct", subject.X[at])
    return Section(
        "What the model keeps of each row",
        "Each row is summed up by a few numbers and rebuilt from them; what does not come back is "
        "what the model takes for noise.",
        "columns that come back badly: the model does not know them. If they matter to you, keep "
        "more directions.",
        [*_examples(subject, at, again), *_shares(subject, at, again)],
    )


def _slow(subject: Subject) -> bool:
    return hasattr(subject.model, "kernel_") or getattr(subject.model, "kernel", None) is not None


def rebuilt_shares(X: Floats, again: Floats) -> Floats:
    """Return the share of every column's variance that comes back; NaN where it has none.

    Examples
    --------
    >>> X = np.array([[0.0, 1.0], [2.0, 1.0], [4.0, np.nan]])
    >>> rebuilt_shares(X, np.array([[0.0, 1.0], [2.0, 1.0], [2.0, 5.0]]))
    array([0.5, nan])
    """
    seen = ~np.isnan(X)
    count = np.maximum(seen.sum(axis=0), 1)
    mean = np.where(seen, X, 0).sum(axis=0) / count
    total = np.where(seen, (X - mean) ** 2, 0).sum(axis=0)
    left = np.where(seen, (X - again) ** 2, 0).sum(axis=0)
    return np.where(total > 0, 1 - left / np.where(total > 0, total, 1.0), np.nan)


def _shares(subject: Subject, at: Ints, again: Floats) -> list[Part]:
    """Draw how much of each column comes back, worst first."""
    X = subject.X[at]
    share = rebuilt_shares(X, again)
    known = np.flatnonzero(~np.isnan(share))
    if subject.image or known.size == 0:
        return []
    if subject.curve:
        return [_along(subject, at, share, _whole(X, again))]
    order = known[np.argsort(share[known], kind="stable")][:COLUMNS]
    names = [subject.names[j] for j in order]
    more: dict[str, Any] = {"orientation": "h", "textposition": "none"}
    more |= {"digits": 3, "text": shown_all(names, 60)}
    at_least = np.maximum(share[order], 0)
    drawn = bars(at_least, range(order.size), "%{text}: %{x:.1%} comes back", **more)
    worst, best = order[0], known[np.argmax(share[known])]
    finding = (
        f"{_whole(X, again)} {subject.names[worst]} comes back worst "
        f"({percent(max(share[worst], 0.0))} of its variance), {subject.names[best]} best "
        f"({percent(share[best])})."
    )
    if known.size > COLUMNS:
        finding += f" The {COLUMNS} worst columns are drawn."
    label = "Bar chart: the share of each column's variance that comes back, worst first."
    x = axis("share that comes back", range=[0, 1.02], tickformat=".0%")
    finding += thinned(len(at), subject.n)
    return [plot([drawn], x, named_axis(names), label, finding, 90 + 22 * order.size)]


def _along(subject: Subject, at: Ints, share: Floats, words: str) -> Plot:
    """Draw how much comes back along a curve."""
    trace = line(np.arange(1, subject.d + 1), np.maximum(share, 0), BLUE, line={"width": 2})
    worst = int(np.nanargmin(share))
    words += f" Column {worst + 1} comes back worst ({percent(max(share[worst], 0.0))})."
    label = "Line: the share of each column's variance that comes back, along the curve."
    x = axis("column", range=[1, subject.d])
    y = axis("share that comes back", range=[0, 1.02], tickformat=".0%")
    return plot([trace], x, y, label, words + thinned(len(at), subject.n), 320)


def _whole(X: Floats, again: Floats) -> str:
    seen = ~np.isnan(X)
    error = np.sqrt(np.mean(np.square((X - again)[seen])))
    spread = np.sqrt(np.mean(np.square((X - np.nanmean(X, axis=0))[seen])))
    share = 1 - (error / spread) ** 2 if spread > 0 else 1.0
    return (
        f"All in all {percent(max(share, 0.0))} of the variance comes back; a rebuilt entry is off "
        f"by {said(error)} (root mean square), where the entries themselves vary by {said(spread)}."
    )


def _examples(subject: Subject, at: Ints, again: Floats) -> list[Part]:
    if subject.image:
        return [_pictures(subject, at, again)]
    error = np.nanmean(((subject.X[at] - again) / subject.spread) ** 2, axis=1)
    order = np.argsort(np.nan_to_num(error), kind="stable")
    places = {"an ordinary row": order[len(order) // 2], "rebuilt worst": order[-1]}
    draw = _curve if subject.curve else _bars
    return [Several([draw(subject, int(at[i]), again[i], what) for what, i in places.items()])]


def _std(subject: Subject, i: int) -> Floats:
    """Return how sure the rebuilt entries of one row are; NaN where the model does not say."""
    try:
        _, std = subject.asked("reconstruct", subject.X[[i]], return_std=True)
    except TypeError:
        return np.full(subject.d, np.nan)
    return np.asarray(std[0], dtype=np.float64)


def _bars(subject: Subject, i: int, again: Floats, what: str) -> Plot:
    """Draw one row column by column: measured and rebuilt, in standard deviations."""
    x, z = ((row - subject.centre) / subject.spread for row in (subject.X[i], again))
    e = _std(subject, i) / subject.spread
    far = np.nanmax(np.stack([np.abs(np.nan_to_num(x)), np.abs(z)]), axis=0)
    order = np.sort(np.argsort(-far, kind="stable")[:LONGEST])
    place = np.arange(order.size)
    bars = {"type": "data", "array": numbers(2 * e[order]), "thickness": 1.4, "width": 3}
    ring = {"symbol": "circle-open", "size": 11, "opacity": 1, "line": {"width": 2}}
    rebuilt = points(z[order], place, VERMILION, name="rebuilt", marker={"size": 7, "opacity": 1})
    traces = [points(x[order], place, BLUE, name="measured", marker=ring), rebuilt | _error(bars)]
    for trace in traces:
        trace["text"] = [shown(subject.names[j], 60) for j in order]
        trace["hovertemplate"] = "%{text}: %{x:.2f}<extra>%{fullData.name}</extra>"
    names = [subject.names[j] for j in order]
    title = f"Row {subject.ids[i]}, {what}"
    label = f"{title}: measured and rebuilt value of each column."
    across = axis("standard deviations")
    height = 130 + 26 * order.size
    return plot(
        traces, across, named_axis(names), label, _row_words(subject, i, again, title), height
    )


def _error(bars: dict[str, Any]) -> dict[str, Any]:
    """Return error bars, if there are any."""
    return {"error_x": bars} if any(v is not None for v in bars["array"]) else {}


def _row_words(subject: Subject, i: int, again: Floats, title: str) -> str:
    off = np.abs((subject.X[i] - again) / subject.spread)
    if np.isnan(off).all():
        return f"{title}: nothing was measured, so it is rebuilt as the average."
    worst = int(np.nanargmax(off))
    holes = int(np.isnan(subject.X[i]).sum())
    filled = f" {holes} missing entries are filled." if holes else ""
    return (
        f"{title}: {subject.names[worst]} is off most, {said(subject.X[i, worst], 4)} measured and "
        f"{said(again[worst], 4)} rebuilt.{filled}"
    )


def _curve(subject: Subject, i: int, again: Floats, what: str) -> Plot:
    """Draw one row along its columns: measured and rebuilt."""
    at, e = np.arange(1, subject.d + 1), _std(subject, i)
    traces: list[dict[str, Any]] = []
    if not np.isnan(e).all():
        traces += band(at, again - 2 * e, again + 2 * e, VERMILION)
    traces.append(line(at, subject.X[i], GREY, name="measured", showlegend=True))
    traces.append(line(at, again, VERMILION, name="rebuilt", showlegend=True, line={"width": 2}))
    title = f"Row {subject.ids[i]}, {what}"
    label = f"{title}: measured and rebuilt curve."
    x, y = axis("column", range=[1, subject.d]), axis("value")
    return plot(traces, x, y, label, _row_words(subject, i, again, title), 320)


def _pictures(subject: Subject, at: Ints, again: Floats) -> Tiles:
    """Show images, what the model makes of them, and the difference."""
    shape = subject.image or (1, subject.d)
    X = subject.X[at]
    few = spread_out(subject, at, PICTURES)
    low, high = float(np.nanmin(X)), float(np.nanmax(X))
    largest = float(np.nanmax(np.abs(again - X)[few])) or 1.0
    names = [_caption(subject, int(at[i])) for i in few]
    rows: list[list[Tile]] = [[], [], []]
    for i, name in zip(few, names, strict=True):
        shades = [png.grey(X[i].reshape(shape), low, high)]
        shades.append(png.grey(again[i].reshape(shape), low, high))
        shades.append(png.signed((again[i] - X[i]).reshape(shape), largest))
        for row, pixels, what in zip(rows, shades, KINDS, strict=True):
            row.append(Tile(png.encode(pixels), f"{what}, {name}", name if row is rows[0] else ""))
    finding = (
        f"{_whole(X, again)} In the last row red is too dark and blue too light, the full colour "
        f"being {said(largest)}.{thinned(len(at), subject.n)}"
    )
    titles = ("original", f"rebuilt from {subject.q} numbers", "difference")
    return Tiles(list(zip(titles, rows, strict=True)), finding)


def _caption(subject: Subject, i: int) -> str:
    return subject.colour.label(i) if subject.colour else subject.ids[i]


def spread_out(subject: Subject, at: Ints, count: int) -> list[int]:
    """Return positions in `at`: one of each class in turn where rows have classes."""
    if subject.colour is None or not subject.colour.labels:
        return list(range(min(count, len(at))))
    values = subject.colour.values[at]
    turns = [list(np.flatnonzero(values == k)) for k in range(len(subject.colour.labels))]
    found: list[int] = []
    while len(found) < min(count, len(at)) and any(turns):
        found += [int(turn.pop(0)) for turn in turns if turn]
    return found[:count] or list(range(min(count, len(at))))
