"""Groups of a mixture and states through time."""

from __future__ import annotations

from typing import Any

import numpy as np

import dualpca
from dualpca.app.report.figures import (
    BLUE,
    Floats,
    Ints,
    Plot,
    axis,
    line,
    numbers,
    plot,
    points,
    shown,
)
from dualpca.app.report.page import Section, Table
from dualpca.app.report.sections.data import counted, percent
from dualpca.app.report.sections.latent import DRAWN, LEVEL, colour_at, ring
from dualpca.app.report.subject import LeftOut, Subject, thinned

STEPS = 2000
"""Rows of a sequence that are drawn."""
TOLD = 3
"""Columns that are named as typical of a group."""


def section(subject: Subject) -> Section:
    """Say how large the groups are, and what is typical of each."""
    if not hasattr(subject.model, "predict_proba"):
        raise LeftOut(f"{subject.kind} has one group only.")
    word = word_of(subject)
    shares = subject.asked("predict_proba", subject.X)
    parts = [_table(subject, shares, word)]
    if word == "state":
        return Section(
            "States through time",
            "The model takes the rows, in their order, as a sequence that moves between states; "
            "the line shows the most probable state of each row.",
            "how long states last, and whether changes come where something happened.",
            [_path(subject), *parts],
        )
    return Section(
        "Groups",
        "The model sorts the rows into groups, each with its own average and its own directions.",
        "very small groups (a few odd rows) and groups that are not sure of their rows.",
        parts,
    )


def word_of(subject: Subject) -> str:
    """Return what the model's parts are called."""
    return "state" if isinstance(subject.model, dualpca.HiddenMarkovPCA) else "group"


def _table(subject: Subject, shares: Floats, word: str) -> Table:
    found = shares.argmax(axis=1)
    rows = []
    for k in range(shares.shape[1]):
        mine = found == k
        sure = percent(float(np.mean(shares[mine, k]))) if mine.any() else "–"
        typical = _typical(subject, mine)
        rows.append([f"{word} {k + 1}", f"{int(mine.sum()):,}", sure, typical])
    header = (word, "rows", "sure by", "what is typical")
    caption = f"Every {word}: its rows, how sure the model is of them on average, and their mark"
    return Table(header, rows, caption, words=True)


def _typical(subject: Subject, mine: Ints) -> str:
    """Name the columns in which some rows lie furthest from the average."""
    if not mine.any():
        return "no row is in it"
    seen = subject.X[mine]
    held = ~np.isnan(seen).all(axis=0)
    away = np.zeros(subject.d)
    away[held] = (np.nanmean(seen[:, held], axis=0) - subject.centre[held]) / subject.spread[held]
    order = np.argsort(-np.abs(away), kind="stable")[:TOLD]
    words = [f"{subject.names[j]} {'high' if away[j] > 0 else 'low'}" for j in order if away[j]]
    return ", ".join(words) or "nothing in particular"


def plane_of(subject: Subject) -> Plot:
    """Draw the rows in the plane in which they vary most, coloured by group, with its outline."""
    at = subject.some(DRAWN)
    plane = dualpca.PCA(min(2, subject.d)).fit(subject.filled)
    axes = np.asarray(plane.components_)
    if len(axes) < 2:
        raise LeftOut("the table has one column only.")
    Z = np.asarray(plane.transform(subject.filled[at]))
    found = subject.asked("predict", subject.X)[at]
    traces = []
    for k in np.unique(found):
        more: dict[str, Any] = {"text": [shown(subject.ids[i], 40) for i in at[found == k]]}
        more["hovertemplate"] = "row %{text}<extra>%{fullData.name}</extra>"
        x, y = Z[found == k].T
        name = f"{word_of(subject)} {k + 1}"
        traces.append(points(x, y, colour_at(int(k)), name=name, **more))
    outlines = _outlines(subject, axes, np.asarray(plane.mean_))
    ratios = enumerate(np.asarray(plane.explained_variance_ratio_).tolist())
    finding = _plane_words(subject, found, bool(outlines)) + thinned(len(at), subject.n)
    label = "Scatter plot of the rows in the plane in which they vary most, coloured by "
    label += f"{word_of(subject)}."
    across, up = (axis(f"direction {a + 1} ({percent(r)} of the variance)") for a, r in ratios)
    return plot(traces + outlines, across, up, label, finding, 520)


def _plane_words(subject: Subject, found: Ints, outlined: bool) -> str:
    """Say how many groups there are, how large the largest is, and what a ring means."""
    counts = np.bincount(found.astype(int))
    words = (
        f"{counted(int(np.count_nonzero(counts)), word_of(subject))}; the largest has "
        f"{percent(counts.max() / len(found))} of the rows drawn."
    )
    ring = f" A ring holds {100 * LEVEL:.0f} % of what the model expects of a group."
    return words + ring if outlined else words


def _outlines(subject: Subject, axes: Floats, mean: Floats) -> list[dict[str, object]]:
    """Return the outline of each group in the plane, where groups live in the columns."""
    model = subject.model
    if getattr(model, "kernel", None) is not None or not hasattr(model, "covariances_"):
        return []
    rings = [
        ring((np.asarray(centre) - mean) @ axes.T, axes @ np.asarray(C) @ axes.T, LEVEL)
        for centre, C in zip(model.means_, model.covariances_, strict=True)
    ]
    return [line(one[:, 0], one[:, 1], colour_at(k)) for k, one in enumerate(rings)]


def _path(subject: Subject) -> Plot:
    found = subject.asked("predict", subject.X).astype(int)
    drawn = found[:STEPS]
    steps = {
        "type": "scatter",
        "mode": "lines",
        "x": numbers(np.arange(1, len(drawn) + 1), 7),
        "y": numbers(drawn + 1),
        "line": {"color": BLUE, "width": 2, "shape": "hv"},
        "hovertemplate": "row %{x}: state %{y}<extra></extra>",
    }
    moves = int(np.sum(np.diff(found) != 0))
    lasting = len(found) / (moves + 1)
    common = int(np.bincount(found).argmax())
    finding = (
        f"The state changes {moves:,} times in {len(found):,} rows, so that one lasts "
        f"{lasting:.1f} rows on average; state {common + 1} is the most common "
        f"({percent(float(np.mean(found == common)))} of the rows)."
    )
    if len(drawn) < len(found):
        finding += f" The first {STEPS:,} rows are drawn."
    label = "Stepped line of the most probable state, row by row."
    y = axis("state", dtick=1)
    return plot([steps], axis("row"), y, label, finding, 320)
