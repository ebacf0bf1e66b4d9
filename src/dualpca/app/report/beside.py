"""What is shown beside the model: supplementary columns and rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import dualpca
from dualpca.app.report.data import counted
from dualpca.app.report.figures import (
    GREEN,
    GREY,
    LINE,
    Floats,
    Ints,
    axis,
    labels,
    numbers,
    points,
    rule,
    said,
    shown,
    shown_all,
)
from dualpca.app.report.page import Part, Section, Table
from dualpca.app.report.subject import LeftOut, Subject

LEVELS, ARROWS = 12, 6
"""Levels and arrows in a figure, those that stand out most."""
LATENTS = 4
"""Latents in the tables."""
LISTED = 200
"""Rows of a table."""
FOLD = 25
"""Rows above which a table is folded."""
CLEAR_V = 1.96
"""v-test that one random group in twenty exceeds."""
WEAK = 0.2
"""Correlation below which a column hardly follows a latent."""
MARKS = ("diamond", "square", "triangle-up", "pentagon", "hexagon", "star")
OUTLINE, FILL = "#1f2430", "#ffffff"
PLATE = "rgba(127,127,127,0.25)"


def beside(subject: Subject) -> Section | None:
    """Show how columns that the model does not use go with its latents; None if there are none."""
    if subject.beside is None and subject.rows_beside is None:
        return None
    found = subject.supplementary
    if found is None:
        raise LeftOut(f"{subject.kind} has no single set of latents.")
    parts: list[Part] = []
    if found.numbers.names:
        parts.append(_numbers(found.numbers, not subject.complete))
    if found.levels.names:
        parts += [_levels(found.levels), _ratios(found.categories)]
    if found.rows is not None:
        parts.append(_rows(subject, found.rows))
    return Section(
        "Supplementary columns and rows",
        "Columns and rows of the table that took no part in the fit, and where they stand all the "
        "same. A number is compared with the latents by its correlation, a category by the average "
        "place of the rows of each level.",
        "correlations far from zero, and v-tests beyond ±2: of groups of rows drawn at random, "
        "only one in twenty lies that far from the middle. They give the latents a meaning from "
        "outside the model.",
        parts,
        [words for words in (_finding(found), _attenuation(subject, found)) if words],
    )


def _finding(found: dualpca.Supplementary) -> str:
    """Return what stands out, in words."""
    words = []
    r = found.numbers.correlation
    for j, name in enumerate(found.numbers.names[:LEVELS]):
        k = int(np.argmax(np.abs(np.nan_to_num(r[j]))))
        if abs(r[j, k]) >= WEAK:
            way = "rises" if r[j, k] > 0 else "falls"
            words.append(f"{name} {way} along latent {k + 1} (correlation {r[j, k]:.2f}).")
        else:
            words.append(f"{name} is hardly related to any latent.")
    v = np.nan_to_num(found.levels.v_test)
    if v.size:
        i, k = (int(one) for one in np.unravel_index(np.argmax(np.abs(v)), v.shape))
        if abs(v[i, k]) > CLEAR_V:
            side = "high" if v[i, k] > 0 else "low"
            words.append(
                f"{found.levels.names[i]} stands out most: its rows lie {side} on latent {k + 1} "
                f"(v-test {v[i, k]:.1f})."
            )
        else:
            words.append("No level lies further from the middle than a random group of rows would.")
    return " ".join(words)


def _attenuation(subject: Subject, found: dualpca.Supplementary) -> str:
    latent = found.numbers.latent_correlation
    if subject.complete or latent is None or not latent.size:
        return ""
    beyond = " By chance they can exceed 1." if np.any(np.abs(latent) > 1) else ""
    return (
        "Entries are missing, which draws the places of rows towards the middle, and correlations "
        "with them towards zero. Corrected correlations are those with the latents themselves."
        f"{beyond} v-tests need no correction."
    )


def _head(name: str, q: int) -> list[str]:
    return [f"{name} {k + 1}" for k in range(min(q, LATENTS))]


def _cells(values: Floats | None, i: int, digits: int = 2) -> list[str]:
    if values is None:
        return []
    return [f"{v:.{digits}f}" if np.isfinite(v) else "–" for v in values[i, :LATENTS]]


def _numbers(found: Any, corrected: bool) -> Table:
    q, latent = found.correlation.shape[1], found.latent_correlation if corrected else None
    header = ["column", "rows", *_head("correlation", q)]
    caption = "Supplementary numbers: their correlation with the places of the rows on each latent"
    if latent is not None:
        header += _head("corrected", q)
        caption += ", and corrected for missing entries"
    rows = [
        [name, f"{found.weight[i]:,.0f}", *_cells(found.correlation, i), *_cells(latent, i)]
        for i, name in enumerate(found.names[:LISTED])
    ]
    return Table(header, rows, caption + _cut(len(found.names)), folded=len(rows) > FOLD)


def _levels(found: Any) -> Table:
    order = _foremost(found.v_test, LISTED)
    q = found.v_test.shape[1]
    rows = [
        [
            found.names[i],
            f"{found.weight[i]:,.0f}",
            *_cells(found.coordinates, i),
            *_cells(found.v_test, i, 1),
        ]
        for i in order
    ]
    header = ["level", "rows", *_head("place", q), *_head("v-test", q)]
    caption = (
        "Supplementary categories: the average place of the rows of each level, and its v-test"
    )
    return Table(header, rows, caption + _cut(len(found.names)), folded=len(rows) > FOLD)


def _cut(count: int) -> str:
    return f" ({LISTED} of {count:,})" if count > LISTED else ""


def _ratios(found: Any) -> Table:
    rows = [
        [name, f"{found.weight[i]:,.0f}", *_cells(found.eta2, i)]
        for i, name in enumerate(found.names[:LISTED])
    ]
    header = ["column", "rows", *_head("η² of latent", found.eta2.shape[1])]
    return Table(header, rows, "Share of the variance of each latent that lies between the levels")


def _rows(subject: Subject, found: Any) -> Table:
    at = range(min(len(found.coordinates), LISTED))
    q = found.coordinates.shape[1]
    share = [] if found.cos2 is None else ["cos²"]
    rows = [
        [
            subject.ids_beside[i],
            *_cells(found.coordinates, i),
            *([] if found.cos2 is None else [f"{found.cos2[i].sum():.2f}"]),
        ]
        for i in at
    ]
    caption = "Supplementary rows: their places"
    if share:
        caption += ", and the share of their squared distance from the middle that the latents show"
    cut = _cut(len(found.coordinates))
    return Table(["row", *_head("latent", q), *share], rows, caption + cut, folded=len(rows) > FOLD)


# --- in the figures of other sections ------------------------------------------------------------


class Overlay(NamedTuple):
    """What is drawn over a figure, and what it is, in words."""

    traces: list[dict[str, Any]]
    annotations: list[dict[str, Any]]
    words: str


def _foremost(values: Floats, most: int) -> Ints:
    """Return the rows of the largest magnitudes, in order."""
    size = np.abs(np.nan_to_num(values)).max(axis=1, initial=0.0)
    return np.sort(np.argsort(-size, kind="stable")[:most])


def level_names(subject: Subject) -> tuple[str, ...]:
    """Return the names of levels: without the column if there is one column only."""
    found = subject.supplementary
    if found is None:
        return ()
    one = len(found.categories.names) == 1
    return tuple(str(level) for level in found.levels.levels) if one else found.levels.names


def over_rows(subject: Subject, Z: Floats, axes: tuple[int, int]) -> Overlay:
    """Return supplementary rows, and the average places of levels, for a figure of places."""
    found = subject.supplementary
    if found is None:
        return Overlay([], [], "")
    traces, marks, words = [], [], ""
    if found.rows is not None:
        at = found.rows.coordinates[:, list(axes)]
        more: dict[str, Any] = {
            "name": "supplementary row",
            "text": shown_all(subject.ids_beside, 40),
        }
        more["hovertemplate"] = "supplementary row %{text}<br>%{x:.3~g}, %{y:.3~g}<extra></extra>"
        more["marker"] = {"symbol": "x", "size": 7, "opacity": 0.9}
        traces.append(points(at[:, 0], at[:, 1], GREY, **more))
        words += f" Crosses are {counted(len(at), 'row')} that took no part in the fit."
    levels = found.levels
    if levels.names:
        names = level_names(subject)
        some = _foremost(levels.v_test[:, list(axes)], LEVELS)
        at = levels.coordinates[:, list(axes)]
        for k, column in enumerate(found.categories.names):
            mine = [i for i in some if levels.columns[i] == column]
            if not mine:
                continue
            more = {"name": shown(column), "text": [shown(names[i], 40) for i in mine]}
            more["hovertemplate"] = "%{text}<br>%{x:.3~g}, %{y:.3~g}<extra>average place</extra>"
            outline = {"color": OUTLINE, "width": 2}
            more["marker"] = {
                "symbol": MARKS[k % len(MARKS)],
                "size": 12,
                "opacity": 1,
                "line": outline,
            }
            traces.append(points(at[mine, 0], at[mine, 1], FILL, **more))
        clear = [
            i for i in some if np.abs(np.nan_to_num(levels.v_test[i, list(axes)])).max() > CLEAR_V
        ]
        span = np.ptp(Z[:, list(axes)], axis=0)
        marks = labels(at[clear], [names[i] for i in clear], span, ["right"] * len(clear))
        marks = _plates(marks)
        words += " White marks are the average places of the rows of each level"
        if len(some) < len(names):
            words += f" ({len(some)} of {len(names)}, those that stand out most)"
        words += "; named are those further from the middle than a random group of rows would be."
    return Overlay(traces, marks, words)


def _plates(marks: list[dict[str, Any]], shift: int = 9) -> list[dict[str, Any]]:
    """Return labels on a plate, readable over dots on a light page and on a dark one."""
    return [mark | {"bgcolor": PLATE, "xshift": shift, "borderpad": 1} for mark in marks]


def arrows(subject: Subject) -> tuple[Floats, tuple[str, ...]]:
    """Return the arrows of supplementary numbers in the biplot (p, q), and their names.

    The number per standard deviation is the arrow times the latents, as far as they predict it.
    """
    found = subject.supplementary
    if found is None or not found.numbers.names:
        return np.zeros((0, subject.q)), ()
    tips = found.numbers.latent_correlation
    if tips is None:
        Z = subject.asked("transform", subject.X)
        tips = found.numbers.correlation / np.maximum(Z.std(axis=0), np.finfo(float).tiny)
    tips = np.nan_to_num(tips)
    some = _foremost(tips[:, :2], ARROWS)
    return tips[some], tuple(found.numbers.names[i] for i in some)


def dashed(tips: Floats, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return dashed arrows from the middle to tips (k, 2); annotations cannot be dashed."""
    found = []
    for k, ((x, y), name) in enumerate(zip(tips.tolist(), names, strict=True)):
        found.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "x": numbers([0, x]),
                "y": numbers([0, y]),
                "line": {"color": GREEN, "width": 2, "dash": "dash"},
                "marker": {
                    "color": GREEN,
                    "symbol": ["circle", "arrow"],
                    "size": [0.1, 13],
                    "angleref": "previous",
                    "opacity": 1,
                    "line": {"width": 0},
                },
                "name": "not in the model",
                "legendgroup": "beside",
                "showlegend": k == 0,
                "text": ["", shown(name, 40)],
                "hovertemplate": "%{text}<extra>not in the model</extra>",
            }
        )
    return found


def over_histogram(subject: Subject, tallest: float) -> tuple[dict[str, Any], str]:
    """Return lines at the average places of levels along the only latent, named, and words.

    Parameters
    ----------
    subject : Subject
    tallest : float
        Height of the histogram, above which the names are written.
    """
    found = subject.supplementary
    if found is None or not found.levels.names:
        return {}, ""
    names, z = level_names(subject), found.levels.coordinates[:, 0]
    some = _foremost(found.levels.v_test[:, :1], LEVELS // 2)
    some = some[np.argsort(z[some], kind="stable")]
    at = np.stack([z[some], np.zeros(len(some))], axis=1)
    marks = labels(at, [names[i] for i in some], np.ones(2), ["right"] * len(some))
    top = {"y": 1, "yref": "paper", "yanchor": "top"}
    marks = [mark | top | {"yshift": -int(LINE * k)} for k, mark in enumerate(marks)]
    room = tallest / (1 - min(0.6, LINE * (len(some) + 0.5) / 300))
    layout = {
        "annotations": _plates(marks, 2),
        "shapes": [rule(float(z[i]), "x", GREY, "dot") for i in some],
        "yaxis": axis("rows", range=[0, float(room)]),
    }
    parts = ", ".join(f"{names[i]} {said(float(z[i]), 2)}" for i in some)
    return layout, f" Average places of the levels (dotted lines): {parts}."
