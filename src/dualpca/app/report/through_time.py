"""The section on rows over time: scores, T² and SPE, and stretches of unusual rows."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dualpca.app.report import trust
from dualpca.app.report.data import counted, percent
from dualpca.app.report.figures import (
    BLUE,
    GREY,
    VERMILION,
    Floats,
    Ints,
    Plot,
    axis,
    line,
    log_axis,
    numbers,
    plot,
    points,
    rule,
    said,
    shown,
)
from dualpca.app.report.page import Part, Section, Table
from dualpca.app.report.subject import LeftOut, Subject, thinned
from dualpca.app.tables.times import TimeAxis

SCORES = 3
"""Directions whose scores are drawn."""
DRAWN = 3000
"""Rows that are drawn."""
LISTED = 20
"""Stretches that are listed."""
CHANCE = 0.05
"""Share of tables of independent, ordinary rows in which a stretch would be listed."""
NAMED = 3
"""Columns that are named for a stretch."""
REASONED = 200
"""Rows of a stretch that are asked for their columns."""


class Stretch(NamedTuple):
    """Rows in a row beyond a limit, in the order of time."""

    rows: Ints
    most: float  # in multiples of the limit


def through_time(subject: Subject) -> Section | None:
    """Show rows over time, if the table tells their time."""
    time = subject.time
    if time is None:
        return None
    order = time.order()
    if order.size < 2:
        raise LeftOut(f"column {time.name} tells the time of fewer than two rows.")
    parts: list[Part] = []
    verdict, text = "", []
    if hasattr(subject.model, "outliers"):
        found = trust.judged(subject)
        score = np.maximum(*found)
        parts += [
            _distance(subject, order, part, name, score > 1)
            for name, part in zip(("T²", "SPE"), found, strict=True)
        ]
        least = shortest(order.size, 1 - subject.level)
        some = stretches(score[order], least)
        listed = [Stretch(order[one.rows], one.most) for one in some]
        parts.append(_table(subject, listed, found, least))
        verdict = _verdict(subject, listed)
    if hasattr(subject.model, "transform") and not hasattr(subject.model, "n_mixtures"):
        parts = [*_scores(subject, order), *parts]
    if not parts:
        raise LeftOut(f"{subject.kind} has neither scores nor distances to draw.")
    lost = subject.n - order.size
    if lost:
        text.append(f"{counted(lost, 'row')} without a time in {time.name} cannot be drawn.")
    first, last = (time.said(float(time.values[i])) for i in (order[0], order[-1]))
    return Section(
        "Rows over time",
        f"The rows in the order of column {time.name}, from {first} to {last}: where each lies "
        "along the first directions, and how far it is from ordinary rows, in multiples of its "
        "limits (dashed). The model does not use the time.",
        "steps, drifts and stretches of rows beyond a limit: something changed there. Single rows "
        f"beyond a limit are expected, about {percent(1 - subject.level)} of them.",
        parts,
        text,
        verdict,
    )


def shortest(n: int, rate: float) -> int:
    """Return how many rows in a row beyond a limit are more than chance.

    Of n independent, ordinary rows, each flagged with probability p, a run of at least L begins
    n (1 − p) p^L times on average; L is the smallest for which that is below `CHANCE`.

    Examples
    --------
    >>> shortest(500, 0.05), shortest(20_000, 0.05), shortest(500, 0.01)
    (4, 5, 2)
    """
    return max(2, math.ceil(math.log(CHANCE / (n * (1 - rate))) / math.log(rate)))


def stretches(score: Floats, least: int) -> list[Stretch]:
    """Return the runs of at least so many scores beyond 1, the longest first.

    Examples
    --------
    >>> found = stretches(np.array([0, 2, 3, 0, 2, 2, 2.5]), 2)
    >>> [(one.rows.tolist(), one.most) for one in found]
    [([4, 5, 6], 2.5), ([1, 2], 3.0)]
    """
    beyond = np.concatenate([[False], score > 1, [False]])
    starts, ends = (np.flatnonzero(beyond[1:] * 1 - beyond[:-1] == sign) for sign in (1, -1))
    found = [
        Stretch(np.arange(a, b), float(score[a:b].max()))
        for a, b in zip(starts, ends, strict=True)
        if b - a >= least
    ]
    return sorted(found, key=lambda one: (-len(one.rows), one.rows[0]))


# --- figures -----------------------------------------------------------------------------------


def places(time: TimeAxis, at: Ints) -> list[Any]:
    """Return the times of rows as plotly draws them: as text, where they are dates."""
    values = time.values[at]
    if time.kind == "number":
        return list(numbers(values, 9))
    moments = np.round(values * 1000).astype("datetime64[ms]")
    return [str(one).replace("T", " ").removesuffix(".000") for one in moments]


def across(time: TimeAxis) -> dict[str, Any]:
    """Return the axis of time."""
    if time.kind == "number":
        return axis(shown(time.name))
    clock = {"tickformat": "%H:%M"} if time.kind == "clock" else {}
    return axis(shown(time.name), type="date", **clock)


def _drawn(subject: Subject, order: Ints, kept: Ints) -> Ints:
    """Return the rows that are drawn, in the order of time; those to be kept are among them."""
    if order.size <= DRAWN:
        return order
    few = order[np.linspace(0, order.size - 1, DRAWN).astype(int)]
    chosen = np.isin(order, np.union1d(few, kept))
    return order[chosen]


def _scores(subject: Subject, order: Ints) -> list[Plot]:
    """Draw the scores of the first directions over time, a figure each."""
    at = _drawn(subject, order, np.zeros(0, dtype=np.intp))
    Z = subject.answer("transform", at)
    time = subject.time
    assert time is not None
    x, found = places(time, at), []
    for k in range(min(SCORES, Z.shape[1])):
        dots = points(np.zeros(0), Z[:, k], BLUE, marker={"size": 4})
        hover = "row %{text}: %{y:.3~g}<extra></extra>"
        dots |= {"x": x, "text": [shown(subject.ids[i], 40) for i in at], "hovertemplate": hover}
        path = line(np.zeros(0), Z[:, k], GREY, line={"width": 0.8}, opacity=0.55) | {"x": x}
        label = f"Line of the scores along direction {k + 1} over time."
        words = _drift(Z[:, k], k) + thinned(len(at), order.size)
        up, traces = axis(f"direction {k + 1}"), [path, dots | {"showlegend": False}]
        found.append(plot(traces, across(time), up, label, words, 240))
    return found


def _drift(z: Floats, k: int) -> str:
    """Return in words how scores change: between the first and last fifth, and row by row."""
    part = max(2, len(z) // 5)
    first, last, spread = z[:part].mean(), z[-part:].mean(), z.std() or 1.0
    moved = (last - first) / spread
    alike = float(np.corrcoef(z[1:], z[:-1])[0, 1]) if z.std() and len(z) > 3 else 0.0
    words = f"Direction {k + 1}: the average of the last fifth is {abs(moved):.1f} standard "
    words += f"deviations {'above' if moved > 0 else 'below'} that of the first fifth"
    return f"{words}; neighbouring rows are correlated by {alike:.2f}.".replace("-", "−")


def _distance(subject: Subject, order: Ints, part: Floats, name: str, flagged: Any) -> Plot:
    """Draw one distance over time, with its limit."""
    time = subject.time
    assert time is not None
    at = _drawn(subject, order, np.flatnonzero(flagged))
    values = np.maximum(part[at], trust.LEAST)
    x, out = np.array(places(time, at), dtype=object), values > 1
    data = []
    kinds = (
        ("ordinary", BLUE, ~out, "circle", 4),
        ("beyond the limit", VERMILION, out, "diamond", 7),
    )
    for word, colour, mine, symbol, size in kinds:
        if not mine.any():
            continue
        dots = points(np.zeros(0), values[mine], colour, marker={"size": size, "symbol": symbol})
        text = [shown(subject.ids[i], 40) for i in at[mine]]
        hover = f"row %{{text}}: {name} %{{y:.2~f}} times its limit<extra></extra>"
        data.append(
            dots | {"x": x[mine].tolist(), "text": text, "hovertemplate": hover, "name": word}
        )
    count = int(np.sum(part[order] > 1))
    worst = order[int(np.argmax(part[order]))]
    finding = f"{name}: {counted(count, 'row')} beyond its limit"
    if count:
        when = time.said(float(time.values[worst]))
        finding += f", furthest at {when} ({said(float(part[worst]))} times the limit)"
    finding += "." + thinned(len(at), order.size)
    label = f"{name} of every row over time, with its limit as a dashed line."
    up = log_axis(f"{name} / limit", values)
    return plot(data, across(time), up, label, finding, 300, shapes=[rule(1, "y")])


# --- stretches ---------------------------------------------------------------------------------


def _table(subject: Subject, listed: list[Stretch], found: trust.Judged, least: int) -> Table:
    time = subject.time
    assert time is not None
    rows = []
    for one in listed[:LISTED]:
        ends = [time.said(float(time.values[i])) for i in (one.rows[0], one.rows[-1])]
        why = trust.named_columns(subject, found, one.rows[:REASONED])
        few = ", ".join(f"{name} ({percent(share)})" for name, share in why[:NAMED])
        rows.append([ends[0], ends[1], f"{len(one.rows):,}", f"{one.most:.1f}", few or "–"])
    more = f", the {LISTED} longest of {len(listed):,}" if len(listed) > LISTED else ""
    caption = (
        f"Stretches of at least {least} rows in a row beyond a limit{more}: the largest distance "
        "in multiples of its limit, and the columns behind it with their shares of it. Among "
        f"ordinary rows that do not depend on each other, {percent(CHANCE)} of tables have one"
    )
    none = ["none", "", "", "", "no such stretch"]
    header = ("from", "to", "rows", "furthest", "because of")
    return Table(header, rows or [none], caption, words=True)


def _verdict(subject: Subject, listed: list[Stretch]) -> str:
    """Return when unusual rows follow each other, in a sentence."""
    time = subject.time
    if not listed or time is None:
        return ""
    first = listed[0].rows
    a, b = (time.said(float(time.values[i])) for i in (first[0], first[-1]))
    many = "a stretch" if len(listed) == 1 else f"{len(listed)} stretches"
    longest = "" if len(listed) == 1 else "the longest "
    verb = "is" if len(listed) == 1 else "are"
    return f"Over time {many} of unusual rows {verb} more than chance: {longest}from {a} to {b}."
