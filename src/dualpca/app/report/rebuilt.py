"""Sections on what the model rebuilds and what it invents, beside real rows."""

from __future__ import annotations

from typing import Any

import numpy as np

import dualpca
from dualpca.app.report import figures
from dualpca.app.report.data import percent
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
from dualpca.app.report.places import same_as_nearest
from dualpca.app.report.subject import LeftOut, Subject, need, thinned

# --- rows rebuilt ------------------------------------------------------------------------------

REBUILT, REBUILT_SLOWLY = 5000, 300
"""Rows that are rebuilt: fewer if each needs a search for its pre-image."""
PICTURES = 10
COLUMNS = 30
KINDS = ("original", "rebuilt", "difference")
LONGEST = 24
"""Columns of one row that are drawn, those furthest from the average."""


def rebuilt(subject: Subject) -> Section:
    """Show how well rows are rebuilt."""
    need(subject, "reconstruct", "cannot rebuild rows from latents")
    at = subject.some(REBUILT_SLOWLY if _slow(subject) else REBUILT, salt=2)
    again = subject.asked("reconstruct", subject.X[at])
    return Section(
        "What the model keeps of each row",
        "Each row is summarised by a few numbers and rebuilt from them; what is lost is what the "
        "model considers noise.",
        "columns that are rebuilt badly: the model does not describe them. If they matter to you, "
        "keep more directions.",
        [*_examples(subject, at, again), *_shares(subject, at, again)],
    )


def _slow(subject: Subject) -> bool:
    return hasattr(subject.model, "kernel_") or getattr(subject.model, "kernel", None) is not None


def rebuilt_shares(X: Floats, again: Floats) -> Floats:
    """Return the share of every column's variance that is rebuilt; NaN where it has none.

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
    """Draw how much of each column is rebuilt, worst first."""
    X = subject.X[at]
    share = rebuilt_shares(X, again)
    known = np.flatnonzero(~np.isnan(share))
    if subject.image or known.size == 0:
        return []
    if subject.curve:
        return [_along(subject, at, share, _whole(subject, X, again))]
    order = known[np.argsort(share[known], kind="stable")][:COLUMNS]
    names = [subject.names[j] for j in order]
    more: dict[str, Any] = {"orientation": "h", "textposition": "none"}
    more |= {"digits": 3, "text": shown_all(names, 60)}
    at_least = np.maximum(share[order], 0)
    drawn = bars(at_least, range(order.size), "%{text}: %{x:.1%} rebuilt", **more)
    worst, best = order[0], known[np.argmax(share[known])]
    finding = (
        f"{_whole(subject, X, again)} {subject.names[worst]} is rebuilt worst "
        f"({percent(max(share[worst], 0.0))} of its variance), {subject.names[best]} best "
        f"({percent(share[best])})."
    )
    if known.size > COLUMNS:
        finding += f" The {COLUMNS} worst columns are drawn."
    label = "Bar chart: the share of each column's variance that is rebuilt, worst first."
    x = axis("share that is rebuilt", range=[0, 1.02], tickformat=".0%")
    finding += thinned(len(at), subject.n)
    return [plot([drawn], x, named_axis(names), label, finding, 90 + 22 * order.size)]


def _along(subject: Subject, at: Ints, share: Floats, words: str) -> Plot:
    """Draw how much is rebuilt along a curve."""
    trace = line(np.arange(1, subject.d + 1), np.maximum(share, 0), BLUE, line={"width": 2})
    worst = int(np.nanargmin(share))
    words += f" Column {worst + 1} is rebuilt worst ({percent(max(share[worst], 0.0))})."
    label = "Line: the share of each column's variance that is rebuilt, along the curve."
    x = axis("column", range=[1, subject.d])
    y = axis("share that is rebuilt", range=[0, 1.02], tickformat=".0%")
    return plot([trace], x, y, label, words + thinned(len(at), subject.n), 320)


def _whole(subject: Subject, X: Floats, again: Floats) -> str:
    """Return how much is rebuilt, in the units of the fit, and how far off an entry is."""
    seen = ~np.isnan(X)
    scale = np.ones(subject.d) if subject.scale is None else subject.scale
    away, off = (X - subject.centre) / scale, (X - again) / scale
    error, spread = (float(np.sqrt(np.mean(np.square(part[seen])))) for part in (off, away))
    share = 1 - (error / spread) ** 2 if spread > 0 else 1.0
    words = (
        f"Overall {percent(max(share, 0.0))} of the variance is rebuilt; a rebuilt entry is off by "
    )
    if subject.image or subject.curve:
        return words + (
            f"{said(error)} (root mean square), while the entries themselves vary by "
            f"{said(spread)}."
        )
    own = float(np.sqrt(np.mean(np.square(((X - again) / subject.spread)[seen]))))
    return words + f"{said(own, 2)} standard deviations of its column (root mean square)."


def _examples(subject: Subject, at: Ints, again: Floats) -> list[Part]:
    if subject.image:
        return [_rebuilt_pictures(subject, at, again)]
    error = np.nanmean(((subject.X[at] - again) / subject.spread) ** 2, axis=1)
    order = np.argsort(np.nan_to_num(error), kind="stable")
    places = {"an ordinary row": order[len(order) // 2], "rebuilt worst": order[-1]}
    draw = _curve if subject.curve else _bars
    return [Several([draw(subject, int(at[i]), again[i], what) for what, i in places.items()])]


def _std(subject: Subject, i: int) -> Floats:
    """Return standard deviations of the rebuilt entries of one row; NaN if unknown."""
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
    for trace, row in zip(traces, (subject.X[i], again), strict=True):
        trace["text"] = [shown(subject.names[j], 60) for j in order]
        trace["customdata"] = numbers(row[order], 5)
        trace["hovertemplate"] = "%{text}: %{customdata}<extra>%{fullData.name}</extra>"
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
    gaps = int(np.isnan(subject.X[i]).sum())
    filled = f" {gaps} missing entries are filled." if gaps else ""
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


def _rebuilt_pictures(subject: Subject, at: Ints, again: Floats) -> Tiles:
    """Show images, their reconstructions, and the difference."""
    shape = subject.image or (1, subject.d)
    X = subject.X[at]
    few = spread_out(subject, at, PICTURES)
    low, high = float(np.nanmin(X)), float(np.nanmax(X))
    largest = float(np.nanmax(np.abs(again - X)[few])) or 1.0
    names = [_caption(subject, int(at[i])) for i in few]
    rows: list[list[Tile]] = [[], [], []]
    for i, name in zip(few, names, strict=True):
        shades = [figures.grey(X[i].reshape(shape), low, high)]
        shades.append(figures.grey(again[i].reshape(shape), low, high))
        shades.append(figures.signed((again[i] - X[i]).reshape(shape), largest))
        for row, pixels, what in zip(rows, shades, KINDS, strict=True):
            row.append(
                Tile(figures.encode(pixels), f"{what}, {name}", name if row is rows[0] else "")
            )
    finding = (
        f"{_whole(subject, X, again)} In the last row red is too dark and blue too light, the full "
        f"colour being {said(largest)}.{thinned(len(at), subject.n)}"
    )
    titles = ("original", f"rebuilt from {subject.q} numbers", "difference")
    return Tiles(list(zip(titles, rows, strict=True)), finding)


def _caption(subject: Subject, i: int) -> str:
    return subject.colour.label(i) if subject.colour else subject.ids[i]


def spread_out(subject: Subject, at: Ints, count: int) -> list[int]:
    """Return positions in `at`, taken from the classes in turn if rows have classes."""
    if subject.colour is None or not subject.colour.labels:
        return list(range(min(count, len(at))))
    values = subject.colour.values[at]
    turns = [list(np.flatnonzero(values == k)) for k in range(len(subject.colour.labels))]
    found: list[int] = []
    while len(found) < min(count, len(at)) and any(turns):
        found += [int(turn.pop(0)) for turn in turns if turn]
    return found[:count] or list(range(min(count, len(at))))


# --- rows invented -----------------------------------------------------------------------------

INVENTED, INVENTED_SLOWLY = 500, 100
"""Rows that are invented: fewer if each needs a search for its pre-image."""
CURVES = 25


def invented(subject: Subject) -> Section:
    """Show rows that the model invents, beside real ones."""
    need(subject, "sample", "cannot sample rows")
    real = subject.filled[subject.some(INVENTED, salt=4)]
    count = INVENTED_SLOWLY if getattr(subject.model, "kernel", None) is not None else len(real)
    made = subject.sampled(min(count, INVENTED))
    if not np.isfinite(made).all():
        raise LeftOut("the model's samples are not finite.")
    real = real[: len(made)] if len(made) < len(real) else real
    words = alike_words(made, real, subject)
    if subject.image:
        part: Part = _invented_pictures(subject, made, words)
    else:
        part = (_curves if subject.curve else _plane)(subject, made, real, words)
    return Section(
        "What the model considers typical",
        "Rows that the model has invented, beside real ones. A model that describes the data well "
        "invents rows that look real.",
        "what real rows have and invented ones lack (groups, bends, sharp limits), and impossible "
        "invented values, such as negative lengths.",
        [part],
        [_impossible(subject, made)],
    )


def alike(made: Floats, real: Floats) -> float:
    """Return how often a row's nearest neighbour is of its own kind: ½ if the kinds look alike.

    Both kinds must have the same number of rows. This is the statistic of Schilling's (1986)
    two-sample test.
    """
    both = np.concatenate([made, real])
    kind = np.arange(len(both)) < len(made)
    return same_as_nearest(both, kind)


def alike_words(made: Floats, real: Floats, subject: Subject) -> str:
    """Return in words how similar invented rows are to real ones."""
    m = min(len(made), len(real))
    scaled = [(rows[:m] - subject.centre) / subject.spread for rows in (made, real)]
    share = alike(*scaled)
    verdict = (
        "they can hardly be told apart"
        if share < 0.6
        else "they can partly be told apart"
        if share < 0.8
        else "they are easily told apart"
    )
    return (
        f"In {percent(share)} of the cases the row most like a given one is of the same kind, "
        f"invented or real ({m} of each; 50 % would be perfect): {verdict}."
    )


def _impossible(subject: Subject, made: Floats) -> str:
    """Return how many invented entries are outside the range of the real ones, in words."""
    low, high = np.nanmin(subject.X, axis=0), np.nanmax(subject.X, axis=0)
    out = (made < low) | (made > high)
    share = float(out.mean())
    if not share:
        return "All invented entries lie within the range of the real ones."
    worst = int(np.argmax(out.mean(axis=0)))
    return (
        f"{percent(share)} of the invented entries lie outside the range of the real ones, most "
        f"often in {subject.names[worst]}; the model knows averages and how columns vary "
        "together, not limits."
    )


def _plane(subject: Subject, made: Floats, real: Floats, words: str) -> Plot:
    """Draw both kinds in the plane in which the real rows vary most."""
    if subject.d == 1:
        raise LeftOut("the table has one column only.")
    made, real = subject.scaled(made), subject.scaled(real)
    plane = dualpca.PCA(2).fit(real)
    ring = {"symbol": "circle-open", "opacity": 0.9, "size": 7}
    traces = []
    for rows, name, colour, marker in (
        (real, "real", BLUE, {"opacity": 0.7}),
        (made, "invented", VERMILION, ring),
    ):
        Z = np.asarray(plane.transform(rows))
        dots = points(Z[:, 0], Z[:, 1], colour, name=name, marker=marker)
        traces.append(dots | {"hovertemplate": "%{fullData.name}<extra></extra>"})
    # no shares: these are directions of the rows, and those of the model have shares of their own
    x, y = axis("where real rows vary most"), axis("where they vary most across it")
    label = "Scatter plot of real and invented rows in the plane in which real rows vary most."
    return plot(traces, x, y, label, words + thinned(len(real), subject.n), 480)


def _curves(subject: Subject, made: Floats, real: Floats, words: str) -> Plot:
    at = np.arange(1, subject.d + 1)
    traces: list[dict[str, Any]] = []
    for rows, name, colour in ((real, "real", BLUE), (made, "invented", VERMILION)):
        for i, row in enumerate(rows[:CURVES]):
            more = {"name": name, "showlegend": i == 0, "opacity": 0.55, "line": {"width": 1.1}}
            traces.append(line(at, row, colour, legendgroup=name, **more))
    label = f"{CURVES} real and {CURVES} invented curves."
    x = axis("column", range=[1, subject.d])
    return plot(traces, x, axis("value"), label, words, 440)


def _invented_pictures(subject: Subject, made: Floats, words: str) -> Tiles:
    """Show invented images, the real ones nearest to them, and some real ones."""
    shape = subject.image or (1, subject.d)
    low, high = float(np.nanmin(subject.X)), float(np.nanmax(subject.X))
    real = subject.filled
    few = made[:PICTURES]
    nearest = _nearest(few, real)
    others = spread_out(subject, np.arange(subject.n), PICTURES)

    def tile(row: Floats, what: str) -> Tile:
        return Tile(figures.encode(figures.grey(row.reshape(shape), low, high)), what)

    rows = [
        ("invented", [tile(row, "an invented image") for row in few]),
        ("nearest real one", [tile(real[i], "the real image nearest to it") for i in nearest]),
        ("other real ones", [tile(real[i], "a real image") for i in others]),
    ]
    return Tiles(rows, words + " The middle row shows that they are not copies.")


def _nearest(few: Floats, real: Floats) -> Any:
    squares = (real**2).sum(axis=1)[None, :] - 2 * few @ real.T
    return squares.argmin(axis=1)
