"""Rows that the model invents, beside real ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial import KDTree

import dualpca
from dualpca.app.report import png
from dualpca.app.report.figures import BLUE, VERMILION, Floats, Plot, axis, line, plot, points
from dualpca.app.report.page import Part, Section, Tile, Tiles
from dualpca.app.report.sections.data import percent
from dualpca.app.report.sections.rebuilt import spread_out
from dualpca.app.report.subject import LeftOut, Subject, need, thinned

ROWS = 500
"""Of each kind that are compared."""
SLOW = 100
"""Likewise, where each invented row needs a search for its pre-image."""
PICTURES = 10
CURVES = 25


def section(subject: Subject) -> Section:
    """Show what the model takes for typical."""
    need(subject, "sample", "cannot invent rows")
    real = subject.filled[subject.some(ROWS, salt=4)]
    count = SLOW if getattr(subject.model, "kernel", None) is not None else len(real)
    made = _sampled(subject, min(count, ROWS))
    if not np.isfinite(made).all():
        raise LeftOut("the model's samples are not finite.")
    real = real[: len(made)] if len(made) < len(real) else real
    words = alike_words(made, real, subject)
    if subject.image:
        part: Part = _pictures(subject, made, words)
    else:
        part = (_curves if subject.curve else _plane)(subject, made, real, words)
    return Section(
        "What the model takes for typical",
        "Rows that the model has invented, beside real ones. A model that has understood the data "
        "invents rows that look like it.",
        "what real rows have and invented ones have not (groups, bends, sharp limits), and "
        "invented values that cannot be, such as negative lengths.",
        [part],
        [_impossible(subject, made)],
    )


def _sampled(subject: Subject, count: int) -> Floats:
    found = subject.model.sample(count, random_state=subject.seed)
    rows = found[0] if isinstance(found, tuple) else found  # mixtures say the group too
    return np.asarray(rows, dtype=np.float64)


def alike(made: Floats, real: Floats) -> float:
    """Return how often a row's nearest neighbour is of its own kind: ½ if the kinds look alike.

    Both kinds must have as many rows. The share of nearest neighbours of the same kind is the
    statistic of Schilling's (1986) two-sample test.
    """
    both = np.concatenate([made, real])
    kind = np.arange(len(both)) < len(made)
    nearest = np.asarray(KDTree(both).query(both, k=2)[1])[:, 1]
    return float(np.mean(kind == kind[nearest]))


def alike_words(made: Floats, real: Floats, subject: Subject) -> str:
    """Say in words how well invented rows pass for real ones."""
    m = min(len(made), len(real))
    scaled = [(rows[:m] - subject.centre) / subject.spread for rows in (made, real)]
    share = alike(*scaled)
    verdict = (
        "they can hardly be told apart"
        if share < 0.6
        else "they can be told apart in part"
        if share < 0.8
        else "they are easily told apart"
    )
    return (
        f"In {percent(share)} of the cases the row most like a given one is of the same kind, "
        f"invented or real ({m} of each; 50 % would be perfect): {verdict}."
    )


def _impossible(subject: Subject, made: Floats) -> str:
    """Say how many invented entries lie outside the range of the real ones."""
    low, high = np.nanmin(subject.X, axis=0), np.nanmax(subject.X, axis=0)
    out = (made < low) | (made > high)
    share = float(out.mean())
    if not share:
        return "All invented entries lie within the range of the real ones."
    worst = int(np.argmax(out.mean(axis=0)))
    return (
        f"{percent(share)} of the invented entries lie outside the range of the real ones, most "
        f"often in {subject.names[worst]}; the model knows averages and how columns move together, "
        "not limits."
    )


def _plane(subject: Subject, made: Floats, real: Floats, words: str) -> Plot:
    """Draw both kinds in the plane in which the real rows vary most."""
    if subject.d == 1:
        raise LeftOut("the table has one column only.")
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
    ratio = np.asarray(plane.explained_variance_ratio_)
    x, y = (axis(f"direction {a + 1} ({percent(float(ratio[a]))} of the variance)") for a in (0, 1))
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


def _pictures(subject: Subject, made: Floats, words: str) -> Tiles:
    """Show invented images, the real ones nearest to them, and some real ones."""
    shape = subject.image or (1, subject.d)
    low, high = float(np.nanmin(subject.X)), float(np.nanmax(subject.X))
    real = subject.filled
    few = made[:PICTURES]
    nearest = _nearest(few, real)
    others = spread_out(subject, np.arange(subject.n), PICTURES)

    def tile(row: Floats, what: str) -> Tile:
        return Tile(png.encode(png.grey(row.reshape(shape), low, high)), what)

    rows = [
        ("invented", [tile(row, "an invented image") for row in few]),
        ("nearest real one", [tile(real[i], "the real image nearest to it") for i in nearest]),
        ("other real ones", [tile(real[i], "a real image") for i in others]),
    ]
    return Tiles(rows, words + " The middle row shows that they are no copies.")


def _nearest(few: Floats, real: Floats) -> Any:
    squares = (real**2).sum(axis=1)[None, :] - 2 * few @ real.T
    return squares.argmin(axis=1)
