"""Trees of maps: every node of a hierarchical mixture, with the rows that belong to it."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure, FigureBase
from matplotlib.gridspec import GridSpec
from matplotlib.patches import ConnectionPatch
from numpy.typing import ArrayLike, NDArray

from dualpca.app.plots._canvas import SMALL, Floats, Ink, Place, Sheet, canvas, classes, mark, need
from dualpca.errors import expected

UNSEEN = 0.02
"""Responsibility below which a row is not drawn on a map."""

PANEL = 1.7
"""Width and height of the map of a leaf, in inches."""

WIDEST = 2
"""Leaves over which a map stretches at most."""

BINS = 15
"""Bars of the histogram that stands for a map of one latent."""

MOST_MAPS = 60
"""Maps in one figure."""


def tree(
    model: Any,
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    node: int = 0,
    max_depth: int | None = None,
    ax: Place = None,
) -> Figure:
    """Draw the maps of a tree: every node with the rows that belong to it, children below it.

    A point is as dark as the row's responsibility in the node. A map shows the first two latents,
    and one of a single latent is a histogram.

    Parameters
    ----------
    model : HierarchicalPPCA
        Fitted.
    X : array-like of shape (n, d)
        Rows to place.
    y : array-like of shape (n,), default=None
        Classes, each with a colour; by default the leaf that a row belongs to most.
    node : int, default=0
        The node at the top; 0 is the root.
    max_depth : int, default=None
        Levels below `node`; all by default.
    ax : Figure, SubFigure or sequence of Axes, default=None
        Where to draw, one axes per map in the order of ``nodes_``; by default in a new figure.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import HierarchicalPPCA
    >>> X, y = load_iris(return_X_y=True)
    >>> figure = tree(HierarchicalPPCA([2, 2]).fit(X), X, y)
    >>> len(figure.axes)
    7
    """
    need(model, "tree", "nodes", "nodes_", "responsibilities", instead=NO_TREE)
    nodes = model.nodes_
    if not 0 <= node < len(nodes):
        raise ValueError(expected("node", f"from 0 to {len(nodes) - 1}", node))
    last = nodes[node].depth + (len(nodes) if max_depth is None else max_depth)
    shown = [node]
    for i in shown:
        shown += [j for j in nodes[i].children if nodes[j].depth <= last]
    if len(shown) > MOST_MAPS:
        what = f"one that leaves at most {MOST_MAPS} maps"
        raise ValueError(expected("max_depth", what, max_depth, f"The tree has {len(shown)}."))
    columns = _columns(nodes, shown, node)
    width, depth = max(stop for _, stop in columns.values()), nodes[shown[-1]].depth
    height = PANEL * (depth - nodes[node].depth + 1) + 0.3

    def make(region: FigureBase) -> list[Axes]:
        levels = depth - nodes[node].depth + 1
        grid = GridSpec(levels, width, region)  # type: ignore[arg-type]
        place = {i: grid[nodes[i].depth - nodes[node].depth, slice(*columns[i])] for i in shown}
        return [region.add_subplot(place[i]) for i in shown]

    across = max(PANEL * width / 2, 2.5)
    sheet = canvas(ax, height, make, count=len(shown), width=across)
    labels: Any = model.predict(X) if y is None else y
    names, codes, colours = classes(labels, len(labels), sheet.ink.palette, sheet.ink.muted)
    R, Z = np.asarray(model.responsibilities(X)), np.asarray(model.transform(X))
    edges = np.cumsum([0, *model.n_components_])
    inks = np.array([to_rgba(colours[code]) for code in codes])
    for i, panel in zip(shown, sheet.axes, strict=True):
        _map(panel, sheet.ink, Z[:, edges[i] : edges[i + 1]], R[:, i], inks)
        told = f"{i}: {nodes[i].n_rows:.0f} rows"
        title = panel.set_title(told, fontsize=SMALL, color=sheet.ink.text)
        behind = {"facecolor": sheet.figure.get_facecolor(), "edgecolor": "none", "pad": 1.0}
        title.set_bbox(behind)  # the branches of others pass behind it
        if any(j in shown for j in nodes[i].children):
            panel.set_xlabel(" ", fontsize=SMALL)  # room for the branches
    _branches(sheet, nodes, shown)
    if y is not None:
        sheet.key([mark(colour) for colour in colours], names, below=True)
    return sheet.figure


NO_TREE = "Fit HierarchicalPPCA for a tree of maps."


def _columns(nodes: Any, shown: list[int], top: int) -> dict[int, tuple[int, int]]:
    """Return first and last column of every map, two for each leaf that is shown."""
    spans: dict[int, tuple[int, int]] = {}

    def span(i: int, start: int) -> int:
        below, stop = [j for j in nodes[i].children if j in shown], start
        for j in below:
            stop = span(j, stop)
        stop = stop if below else start + 2
        spans[i] = start, stop
        return stop

    span(top, 0)
    half = {i: min(stop - start, 2 * WIDEST) // 2 for i, (start, stop) in spans.items()}
    middle = {i: sum(pair) // 2 for i, pair in spans.items()}
    return {i: (middle[i] - half[i], middle[i] + half[i]) for i in spans}


def _map(ax: Axes, ink: Ink, Z: Floats, share: Floats, inks: NDArray[np.float64]) -> None:
    """Draw the rows of one node, as dark as they belong to it."""
    seen = share > UNSEEN
    ax.set(xticks=[], yticks=[])
    for side in ax.spines.values():
        side.set(visible=True, color=ink.grid)
    if Z.shape[1] < 2:
        if seen.any():
            ax.hist(Z[seen, 0], bins=BINS, weights=share[seen], color=ink.muted)
        return
    own = inks[seen].copy()
    own[:, 3] = 0.8 * share[seen]
    ax.scatter(Z[seen, 0], Z[seen, 1], c=own, s=7, linewidths=0)
    ax.margins(0.08)


def _branches(sheet: Sheet, nodes: Any, shown: list[int]) -> None:
    """Draw a line from every map to those of its children."""
    panels = dict(zip(shown, sheet.axes, strict=True))
    for i in shown[1:]:
        above, below = panels[nodes[i].parent], panels[i]
        style: dict[str, Any] = {"coordsA": "axes fraction", "coordsB": "axes fraction"}
        style |= {"axesA": above, "axesB": below, "color": sheet.ink.muted, "lw": 0.8}
        line = ConnectionPatch((0.5, 0.0), (0.5, 1.14), **style)
        line.set_zorder(-1)
        line.set_in_layout(False)
        sheet.figure.add_artist(line)
