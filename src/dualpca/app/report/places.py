"""Sections on where the rows lie: in latent space, in groups, in states through time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats
from scipy.spatial import KDTree

import dualpca
from dualpca.app.report import beside
from dualpca.app.report.data import counted, percent
from dualpca.app.report.figures import (
    BLUE,
    GREY,
    PALETTE,
    SCALE,
    SYMBOLS,
    VERMILION,
    Floats,
    Ints,
    Plot,
    axis,
    histogram,
    line,
    numbers,
    plot,
    points,
    said,
    shown,
)
from dualpca.app.report.page import Section, Table
from dualpca.app.report.subject import LeftOut, Subject, need, thinned

# --- latent space ------------------------------------------------------------------------------

DRAWN = 3000
"""Points in a scatter plot: enough to see the shape, few enough for a phone."""
ELLIPSES = 14
LEVEL = 0.9
"""Posterior probability inside an ellipse."""
CORNERS = 33


def places(subject: Subject) -> Section:
    """Show the rows in latent space."""
    if hasattr(subject.model, "nodes_"):
        return _of_tree(subject)
    if has_groups(subject):
        return _of_groups(subject)
    need(subject, "transform", "has no latent coordinates")
    at = subject.some(DRAWN)
    Z, covariance = placed(subject, at)
    draw = _plane if Z.shape[1] > 1 else _strip
    sure = covariance is not None
    ellipses = (
        f" Some have a ring: given what was measured, the true place of the row is inside with a "
        f"probability of {100 * LEVEL:.0f} %."
        if sure and Z.shape[1] > 1
        else ""
    )
    return Section(
        "Where the rows lie",
        f"Each dot is a row, placed by its latents: the {counted(subject.q, 'number')} with "
        "which the model summarises it." + ellipses,
        "groups, gaps and strays. Rows that lie together are alike"
        + ("; wide rings mean that the place is uncertain." if sure else "."),
        [draw(subject, at, Z, covariance), *_third(subject, at, Z, covariance)],
    )


def has_groups(subject: Subject) -> bool:
    """Return True if the model sorts rows into groups or states."""
    return hasattr(subject.model, "predict_proba") and not hasattr(subject.model, "column_kinds_")


def placed(subject: Subject, at: Ints) -> tuple[Floats, Floats | None]:
    """Return the latents of some rows, and their covariances if the model has a posterior."""
    if not hasattr(subject.model, "posterior"):
        return subject.answer("transform", at), None
    mean, covariance = subject.answer("posterior", at)
    return mean, np.broadcast_to(covariance, (len(mean), *covariance.shape[-2:]))


def coloured(subject: Subject, at: Ints, Z: Floats) -> list[dict[str, Any]]:
    """Return dots in the colours of the chosen column, with row names on hover."""
    colour = subject.colour
    names = [shown(subject.ids[i], 40) for i in at]
    hover = "row %{text}<br>%{x:.3~g}, %{y:.3~g}<extra>%{fullData.name}</extra>"
    if colour is None:
        plain = hover.replace("%{fullData.name}", "")
        return [points(Z[:, 0], Z[:, 1], BLUE, name="row", text=names, hovertemplate=plain)]
    values = colour.values[at]
    if not colour.labels:
        bar = {"title": {"text": shown(colour.name, 18)}, "thickness": 12, "len": 0.9}
        marker = {"color": numbers(values), "colorscale": SCALE, "colorbar": bar}
        more: dict[str, Any] = {"text": names, "hovertemplate": hover, "marker": marker}
        return [points(Z[:, 0], Z[:, 1], name=shown(colour.name), **more)]
    found = []
    for k, label in enumerate((*colour.labels, "missing")):
        mine = np.isnan(values) if k == len(colour.labels) else values == k
        if not mine.any():
            continue
        marker = {"symbol": SYMBOLS[k % len(SYMBOLS)]}
        text = [name for name, own in zip(names, mine, strict=True) if own]
        named = {"name": shown(label), "text": text, "hovertemplate": hover}
        found.append(points(Z[mine, 0], Z[mine, 1], colour_at(k), marker=marker, **named))
    return found


def colour_at(k: int) -> str:
    """Return the colour of class k."""
    return PALETTE[k % len(PALETTE)]


def _plane(
    subject: Subject, at: Ints, Z: Floats, covariance: Floats | None, axes: tuple[int, int] = (0, 1)
) -> Plot:
    """Draw the rows by two of their latents."""
    a, b = axes
    traces = coloured(subject, at, Z[:, [a, b]])
    finding = _colour_words(subject, at, Z, axes)
    if covariance is not None:
        part = covariance[:, [[a], [b]], [[a, b]]]
        traces += _rings(subject, at, Z[:, [a, b]], part)
        finding += _sure_words(subject, at, covariance, 0 if axes == (0, 1) else b)
    x, y = (axis(latent_name(subject, k)) for k in axes)
    label = f"Scatter plot of the rows by latents {a + 1} and {b + 1}."
    over = beside.over_rows(subject, Z, axes)
    words = finding + over.words + thinned(len(at), subject.n)
    height = 520 if axes == (0, 1) else 440
    more = {"annotations": over.annotations} if over.annotations else {}
    return plot(traces + over.traces, x, y, label, words.strip(), height, **more)


def _third(subject: Subject, at: Ints, Z: Floats, covariance: Floats | None) -> list[Plot]:
    """Draw the third latent too, if there is one."""
    return [_plane(subject, at, Z, covariance, (0, 2))] if Z.shape[1] > 2 else []


def latent_name(subject: Subject, a: int) -> str:
    """Return the title of an axis: the latent, and its share of the variance."""
    ratio = getattr(subject.model, "explained_variance_ratio_", None)
    share = "" if ratio is None else f" ({percent(float(ratio[a]))} of the variance)"
    return f"latent {a + 1}{share}"


def _rings(subject: Subject, at: Ints, Z: Floats, covariance: Floats) -> list[dict[str, Any]]:
    """Return rings around some rows, half of them with missing entries if there are any."""
    rng = np.random.default_rng([subject.seed, 7])
    order = rng.permutation(len(at))
    partial = subject.missing[at[order]].any(axis=1)
    few = np.concatenate([order[partial][: ELLIPSES // 2], order[~partial]])[:ELLIPSES]
    by_colour: dict[str, list[Floats]] = {}
    for i in few:
        by_colour.setdefault(_ring_colour(subject, int(at[i])), []).append(
            ring(Z[i, :2], covariance[i, :2, :2], LEVEL)
        )
    gap = np.full((1, 2), np.nan)
    found = []
    for colour, rings in by_colour.items():
        path = np.concatenate([part for one in rings for part in (one, gap)])
        found.append(line(path[:, 0], path[:, 1], colour, line={"width": 1.2}))
    return found


def _ring_colour(subject: Subject, i: int) -> str:
    colour = subject.colour
    if colour is None or not colour.labels:
        return VERMILION if colour is None else GREY
    value = colour.values[i]
    return colour_at(len(colour.labels) if np.isnan(value) else int(value))


def ring(centre: Floats, covariance: Floats, level: float) -> Floats:
    """Return the ellipse that contains `level` of a Gaussian in the plane, as a closed path.

    Examples
    --------
    >>> path = ring(np.zeros(2), np.eye(2), 1 - np.exp(-0.5))
    >>> np.linalg.norm(path, axis=1).round(6).tolist()[:2]
    [1.0, 1.0]
    """
    angle = np.linspace(0, 2 * math.pi, CORNERS)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    values, vectors = np.linalg.eigh(covariance)
    radius = np.sqrt(-2 * math.log1p(-level) * np.maximum(values, 0))
    return np.asarray(centre + (circle * radius) @ vectors.T)


def _strip(subject: Subject, at: Ints, Z: Floats, covariance: Floats | None) -> Plot:
    """Draw the only latent as a histogram."""
    z = Z[:, 0]
    found = histogram(z, "auto" if len(z) < 500 else 40)
    finding = (
        f"The one latent runs from {said(z.min())} to {said(z.max())}, half of the rows lie "
        f"between {said(np.quantile(z, 0.25))} and {said(np.quantile(z, 0.75))}."
    )
    if covariance is not None:
        finding += _sure_words(subject, at, covariance)
    over, words = beside.over_histogram(subject, float(np.max(found["y"])))
    finding += words + thinned(len(at), subject.n)
    name = latent_name(subject, 0)
    label = "Histogram of the only latent."
    return plot([found], axis(name), axis("rows"), label, finding, 380, bargap=0.04, **over)


def _sure_words(subject: Subject, at: Ints, covariance: Floats, a: int = 0) -> str:
    """Return how certain places along one latent are, for rows with and without missing entries."""
    deviation = np.sqrt(np.maximum(covariance[:, a, a], 0))
    partial = subject.missing[at].any(axis=1)
    words = " The place of a row"
    if partial.any() and not partial.all():
        whole, part = np.median(deviation[~partial]), np.median(deviation[partial])
        return (
            f"{words} along latent {a + 1} is known to ±{whole:.2g} (one standard deviation) where "
            f"it is complete, and to ±{part:.2g} where entries are missing."
        )
    return (
        f"{words} along latent {a + 1} is known to ±{np.median(deviation):.2g} (one standard "
        "deviation)."
    )


def _colour_words(subject: Subject, at: Ints, Z: Floats, axes: tuple[int, int]) -> str:
    """Return how the colours relate to the places, in words."""
    colour = subject.colour
    if colour is None:
        which = "their first two latents" if axes == (0, 1) else f"latents 1 and {axes[1] + 1}"
        return f"{len(at):,} rows by {which}."
    values = colour.values[at]
    known = ~np.isnan(values)
    if known.sum() < 3:
        return f"{colour.name} is almost always missing."
    if colour.labels:
        seen = "" if colour.name in subject.names else ", which the model has not seen"
        return _class_words(colour.name, seen, values[known], Z[known][:, list(axes)])
    r = [float(stats.spearmanr(values[known], Z[known, a])[0]) for a in axes]
    k = int(np.argmax(np.abs(r)))
    if not abs(r[k]) >= 0.2:
        return f"{colour.name} is hardly related to either latent."
    way = "rises" if r[k] > 0 else "falls"
    return f"{colour.name} {way} along latent {axes[k] + 1} (rank correlation {r[k]:.2f})."


def _class_words(name: str, seen: str, values: Floats, Z: Floats) -> str:
    """Return how well the plane separates classes: how often the nearest row has the same one."""
    same = same_as_nearest(Z, values)
    chance = float(np.sum(np.square(np.unique(values, return_counts=True)[1] / values.size)))
    return (
        f"Coloured by {name}{seen}: for {percent(same)} of the rows the nearest neighbour in this "
        f"plane has the same {name} (by chance {percent(chance)})."
    )


def same_as_nearest(points: Floats, kinds: Any) -> float:
    """Return the share of points whose nearest neighbour is of the same kind."""
    nearest = np.asarray(KDTree(points).query(points, k=2)[1])[:, 1]
    return float(np.mean(kinds[nearest] == kinds))


def _of_groups(subject: Subject) -> Section:
    """Show the rows of a mixture in the plane in which the table varies most."""
    return Section(
        "Where the rows lie",
        "Each dot is a row, placed along the two directions in which the whole table varies most, "
        "and coloured by the group or state that the model assigns to it.",
        "colours that overlap: there the model cannot tell them apart in this plane, though it may "
        "in others.",
        [plane_of(subject)],
    )


# --- trees of maps -----------------------------------------------------------------------------

MAPS = 12
"""Maps of a tree that are drawn, the largest first."""


def _of_tree(subject: Subject) -> Section:
    """Show the map of every node that has others inside it, coloured by those."""
    nodes = subject.model.nodes_
    inner = [node for node in nodes if node.children] or nodes[:1]
    inner = sorted(sorted(inner, key=lambda node: -node.n_rows)[:MAPS], key=lambda node: node.index)
    left = sum(1 for node in nodes if node.children) - len(inner)
    text = (
        "The model is a tree of maps. Map 0 has all rows; every cluster in it has a map of its "
        "own, with the rows that belong to it, and so on. A dot is a row, in the colour of the "
        "cluster that it belongs to most; the map of that cluster stands below if it has others "
        "inside."
    )
    text += f" The {MAPS} largest of {MAPS + left} maps are drawn." if left > 0 else ""
    look = "clusters that a map shows apart, and what was one on the map above."
    return Section("Where the rows lie", text, look, [_map(subject, node) for node in inner])


def _map(subject: Subject, node: Any) -> Plot:
    """Draw the rows that belong to one node, coloured by its children."""
    R = subject.asked("responsibilities", subject.X)
    mine = np.flatnonzero(R[:, node.index] > 0.5)
    at = mine[:: -(-len(mine) // DRAWN) or 1]
    Z = np.asarray(subject.asked("posterior", subject.X[at], node.index)[0])
    flat = np.zeros(len(at)) if Z.shape[1] < 2 else Z[:, 1]
    below = list(node.children) or [node.index]
    own, traces = np.argmax(R[at][:, below], axis=1), []
    for k, child in enumerate(below):
        some = own == k
        more: dict[str, Any] = {"text": [shown(subject.ids[i], 40) for i in at[some]]}
        more["hovertemplate"] = "row %{text}<extra>%{fullData.name}</extra>"
        more["marker"] = {"symbol": SYMBOLS[k % len(SYMBOLS)]}
        traces.append(points(Z[some, 0], flat[some], colour_at(k), name=f"{child}", **more))
    where = "all rows" if node.parent is None else f"inside map {node.parent}"
    finding = f"Map {node.index}, {where}: {counted(len(mine), 'row')}"
    sizes = [f"{child} with {int(n)}" for child, n in zip(below, np.bincount(own), strict=False)]
    finding += f"; its clusters are {', '.join(sizes)}." if node.children else "."
    across, up = axis("latent 1"), axis("latent 2" if Z.shape[1] > 1 else "")
    return plot(traces, across, up, f"Scatter plot of map {node.index}.", finding)


# --- groups and states -------------------------------------------------------------------------

STEPS = 2000
"""Rows of a sequence that are drawn."""
TOLD = 3
"""Columns that are named as typical of a group."""


def groups(subject: Subject) -> Section:
    """Show how large the groups are, and what is typical of each."""
    if not has_groups(subject):
        raise LeftOut(f"{subject.kind} has one group only.")
    word = word_of(subject)
    shares = subject.asked("predict_proba", subject.X)
    parts = [_table(subject, shares, word)]
    if word == "state":
        return Section(
            "States through time",
            "The model sees the rows, in their order, as a sequence that moves between states; "
            "the line shows the most probable state of each row.",
            "how long states last, and whether changes come where something happened.",
            [_path(subject), *parts],
        )
    return Section(
        "Groups",
        "The model sorts the rows into groups, each with its own average and its own directions.",
        "very small groups (a few odd rows), and groups whose rows are uncertain.",
        parts,
    )


def word_of(subject: Subject) -> str:
    """Return what the parts of the model are called."""
    if hasattr(subject.model, "leaves_"):
        return "leaf"
    return "state" if isinstance(subject.model, dualpca.HiddenMarkovPCA) else "group"


def _table(subject: Subject, shares: Floats, word: str) -> Table:
    found = shares.argmax(axis=1)
    rows = []
    for k in range(shares.shape[1]):
        mine = found == k
        sure = percent(float(np.mean(shares[mine, k]))) if mine.any() else "–"
        typical = _typical(subject, mine)
        number = subject.model.leaves_[k] if word == "leaf" else k + 1
        rows.append([f"{word} {number}", f"{int(mine.sum()):,}", sure, typical])
    header = (word, "rows", "certainty", "what is typical")
    caption = f"Every {word}: its rows, their average probability, and what is typical of them"
    return Table(header, rows, caption, words=True)


def _typical(subject: Subject, mine: Ints) -> str:
    """Return the columns in which some rows are furthest from the average."""
    if not mine.any():
        return "it has no rows"
    seen = subject.X[mine]
    held = ~np.isnan(seen).all(axis=0)
    away = np.zeros(subject.d)
    away[held] = (np.nanmean(seen[:, held], axis=0) - subject.centre[held]) / subject.spread[held]
    order = np.argsort(-np.abs(away), kind="stable")[:TOLD]
    words = [f"{subject.names[j]} {'high' if away[j] > 0 else 'low'}" for j in order if away[j]]
    return ", ".join(words) or "nothing in particular"


def plane_of(subject: Subject) -> Plot:
    """Draw the rows in the plane in which they vary most, coloured by group, with outlines."""
    at = subject.some(DRAWN)
    rows = subject.scaled(subject.filled)
    plane = dualpca.PCA(min(2, subject.d)).fit(rows)
    axes = np.asarray(plane.components_)
    if len(axes) < 2:
        raise LeftOut("the table has one column only.")
    Z = np.asarray(plane.transform(rows[at]))
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
    """Return how many groups there are, how large the largest is, and what a ring means."""
    counts = np.bincount(found.astype(int))
    words = (
        f"{counted(int(np.count_nonzero(counts)), word_of(subject))}; the largest has "
        f"{percent(counts.max() / len(found))} of the rows drawn."
    )
    ring = f" A ring contains {100 * LEVEL:.0f} % of a group, as the model sees it."
    return words + ring if outlined else words


def _outlines(subject: Subject, axes: Floats, mean: Floats) -> list[dict[str, object]]:
    """Return the outline of each group in the plane, where groups are defined on the columns."""
    model = subject.model
    if getattr(model, "kernel", None) is not None or not hasattr(model, "covariances_"):
        return []
    means, covariances = (np.asarray(part) for part in (model.means_, model.covariances_))
    if subject.own_scale and subject.scale is not None:  # in the table's units: back to the fit's
        means = subject.scaled(means)
        covariances = covariances / (subject.scale[:, None] * subject.scale)
    rings = [
        ring((centre - mean) @ axes.T, axes @ C @ axes.T, LEVEL)
        for centre, C in zip(means, covariances, strict=True)
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
        "text": [shown(name, 40) for name in subject.ids[:STEPS]],
        "hovertemplate": "row %{text}: state %{y}<extra></extra>",
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
