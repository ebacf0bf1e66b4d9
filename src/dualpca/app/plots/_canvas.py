"""What all figures share: size, colours, one plain axes, and labels that do not overlap."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text
from numpy.typing import NDArray

from dualpca.errors import expected
from dualpca.gaussian import Supplementary

Floats = NDArray[np.float64]

DPI = 240
"""More than twice a screen's 100 dots per inch, for crisp figures."""
WIDTH = 6.0
INK, MUTED, GRID = "#1f2430", "#555c6b", "#e3e6ec"
BLUE, VERMILION = "#0072b2", "#c04a00"
# Tol's (2021) muted scheme and black: apart for any colour vision (CIELAB distance 15 or more).
_TOL = "332288 cc6677 117733 88ccee 882255 999933 44aa99 aa4499 ddcc77 000000"
PALETTE = tuple("#" + code for code in _TOL.split())
TEXT, SMALL = 11, 10
DASHED = (0, (5, 3))


def blank(height: float) -> tuple[Figure, Axes]:
    """Return a figure with one plain axes."""
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained", facecolor="white")
    ax = figure.add_subplot(axisbelow=True)
    dress(ax)
    return figure, ax


def dress(ax: Axes) -> None:
    """Give an axes the style of all figures."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(MUTED)
    ax.tick_params(labelsize=SMALL, colors=MUTED, labelcolor=INK)
    ax.grid(color=GRID, lw=0.8)
    ax.xaxis.label.set(fontsize=TEXT, color=INK)
    ax.yaxis.label.set(fontsize=TEXT, color=INK)


def mark(colour: str, shape: str = "o") -> Line2D:
    """Return a marker for a legend; '--' is a dashed line."""
    if shape == "--":
        return Line2D([], [], color=colour, lw=1.2, ls=DASHED)
    return Line2D([], [], ls="", marker=shape, ms=6, color=colour)


def key(figure: Figure, marks: Sequence[Line2D], words: Sequence[str], below: bool = False) -> None:
    """Draw a legend above (or below) the axes."""
    columns = min(len(words), 5)
    legend = figure.legend(
        marks, words, loc="outside lower center" if below else "outside upper center", ncols=columns
    )
    legend.set_frame_on(False)
    for text in legend.get_texts():
        text.set(fontsize=SMALL, color=INK)


MOST_LEVELS = 15
"""Barycentres in a figure."""


def draw_supplementary(
    ax: Axes, found: Supplementary, plane: list[int]
) -> tuple[Floats, list[str]]:
    """Draw supplementary rows and the barycentres of levels, those that stand out most.

    Return places (g, 2) and names of the latter.
    """
    if found.rows is not None:
        x, y = found.rows.coordinates[:, plane].T
        ax.scatter(x, y, c=MUTED, s=22, marker="x", linewidths=1.1, zorder=3)
    size = np.abs(np.nan_to_num(found.levels.v_test[:, plane])).max(axis=1)
    shown = foremost(size, MOST_LEVELS)
    centres: Floats = found.levels.coordinates[shown][:, plane]
    x, y = centres.T
    ax.scatter(x, y, c="white", s=46, marker="D", edgecolors=INK, linewidths=1.4, zorder=4.5)
    return centres, [found.levels.names[i] for i in shown]


# --- names and labels --------------------------------------------------------------------------

GAP, DOT = 2.0, 3.0
"""Space between labels and around points, in points on the page."""

ANGLES, DISTANCES = 24, (0.0, 5.0, 10.0, 16.0, 24.0, 34.0, 46.0)
"""Places that are tried for a label: directions, and distances in points on the page."""

NEAR = 9.0
"""Distance from which a thin line connects a label with its point."""

OUTSIDE, ON_LABEL, ON_POINT, ON_CLEAR, PER_POINT, TURNED = 1e4, 1e3, 50.0, 0.3, 0.2, 2.0
"""Costs of a place: outside the frame, on a label, a labelled or other point, far, opposite."""


def feature_names(model: Any) -> list[str]:
    """Return the names of the features of a model; x0, x1, … by default.

    A model of columns of any kind has a loading per level: those have names of their own.
    """
    if hasattr(model, "loading_names_"):
        return [str(name) for name in model.loading_names_]
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return [f"x{j}" for j in range(int(model.n_features_in_))]
    return [str(name) for name in names]


def nameless(model: Any) -> Any:
    """Return a model that accepts arrays where it was fitted to a frame."""
    found = copy(model)
    vars(found).pop("feature_names_in_", None)
    return found


def need(model: Any, plot: str, what: str, *attributes: str, instead: str = "") -> None:
    """Refuse a model that has not what a figure draws, in words.

    Parameters
    ----------
    model : estimator
    plot : str
        The function that was called.
    what : str
        What it draws, for the message.
    *attributes : str
        Attributes and methods that the model must have.
    instead : str, optional
        What to do with a model that has it not.
    """
    kind = type(model).__name__
    if hasattr(model, "n_mixtures_") and PER_GROUP & set(attributes):
        raise TypeError(
            f"plots.{plot} draws {what}, and {kind} has those of every group apart, not one of "
            "all rows. Draw a model of the rows of one group: X[model.predict(X) == 0]."
        )
    if _has(model, attributes):
        return
    around = [name for name in ("model_", "estimator_") if hasattr(model, name)]
    inside = [name for name in around if _has(getattr(model, name), attributes)]
    advice = f"Draw what it fitted: plots.{plot}(model.{inside[0]}, …)." if inside else instead
    raise TypeError(f"plots.{plot} draws {what}, which {kind} does not have. {advice or INSTEAD}")


def _has(model: Any, attributes: Sequence[str]) -> bool:
    return all(hasattr(model, name) for name in attributes)


PER_GROUP = {"components_", "explained_variance_", "transform", "outliers", "contributions"}
"""What a mixture has of every group, if at all."""

INSTEAD = "PCA, PPCA, RobustPPCA, BayesianPCA and FactorAnalysis do."

NO_CLASS = "missing"
"""Name of the rows without a class."""


def classes(y: Any, n: int) -> tuple[list[str], NDArray[np.intp], list[str]]:
    """Return names, the code of every row (n,), and colours of classes; rows without one are grey.

    Examples
    --------
    >>> names, codes, _ = classes(["b", None, "a", float("nan")], 4)
    >>> names, codes.tolist()
    (['a', 'b', 'missing'], [1, 2, 0, 2])
    """
    values = y.to_list() if hasattr(y, "to_list") else np.asarray(y, dtype=object).ravel().tolist()
    if len(values) != n:
        raise ValueError(expected("y", f"a class for each of the {n} rows", len(values)))
    known = [value for value in values if not _no_class(value)]
    try:
        order = sorted(set(known))
    except TypeError:  # numbers beside text
        order = sorted(set(known), key=str)
    place = {value: code for code, value in enumerate(order)}
    codes = np.array([place.get(v, len(order)) if not _no_class(v) else len(order) for v in values])
    names, colours = [str(v) for v in order], [PALETTE[k % len(PALETTE)] for k in range(len(order))]
    if len(known) < len(values):
        names, colours = [*names, NO_CLASS], [*colours, MUTED]
    return names, codes.astype(np.intp), colours


def _no_class(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def foremost(sizes: Floats, count: int) -> NDArray[np.intp]:
    """Return the positions of the `count` largest, in increasing order."""
    return np.sort(np.argsort(-sizes, kind="stable")[:count])


def label_points(
    ax: Axes, points: Floats, words: Sequence[str], away: Floats, clear: Floats
) -> list[Annotation]:
    """Write labels next to points, without overlaps as far as possible.

    Parameters
    ----------
    ax : Axes
        With its final limits: places are found in points on the page.
    points : array of shape (k, 2)
        In data coordinates.
    words : sequence of k str
    away : array of shape (k, 2)
        Preferred direction of each label, of any length.
    clear : array of shape (m, 2)
        Other points that labels should not cover if possible.
    """
    plate = {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.7}
    thread = {"arrowstyle": "-", "color": MUTED, "lw": 0.6, "shrinkA": 0, "shrinkB": 1}
    style = {"ha": "center", "va": "center", "fontsize": SMALL, "color": INK, "zorder": 5}
    labels = [
        ax.annotate(word, (x, y), (0, 0), textcoords="offset points", bbox=plate, arrowprops=thread)
        for (x, y), word in zip(points.tolist(), words, strict=True)
    ]
    for label in labels:
        label.set(**style)
    if labels:
        _arrange(ax, labels, points, away, clear)
    return labels


def _arrange(
    ax: Axes, labels: list[Annotation], points: Floats, away: Floats, clear: Floats
) -> None:
    """Place the labels where each costs least, one after the other."""
    figure = ax.get_figure(root=True)
    if figure is None:
        return
    figure.draw_without_rendering()  # places the axes
    unit = 72 / figure.dpi
    half = unit / 2 * np.array([_size(label) for label in labels]) + GAP / 2
    origin, dots = (unit * ax.transData.transform(part) for part in (points, clear))
    frame = unit * ax.get_window_extent().get_points()
    places = find_places(origin, half, away, frame, dots)
    for label, shift, size in zip(labels, places - origin, half, strict=True):
        label.set_position((float(shift[0]), float(shift[1])))
        gap = np.linalg.norm(np.maximum(np.abs(shift) - size, 0.0))
        if label.arrow_patch is not None:
            label.arrow_patch.set_visible(bool(gap > NEAR))


def _size(label: Annotation) -> tuple[float, float]:
    box = Text.get_window_extent(label)  # without the connecting line
    return box.width, box.height


def find_places(origin: Floats, half: Floats, away: Floats, frame: Floats, clear: Floats) -> Floats:
    """Return centres of boxes next to their points, the cheapest place for each in turn.

    Parameters
    ----------
    origin, half : arrays of shape (k, 2)
        The points, and half the widths and heights of their boxes.
    away : array of shape (k, 2)
        Preferred directions.
    frame : array of shape (2, 2)
        Lower left and upper right corner.
    clear : array of shape (m, 2)

    Returns
    -------
    array of shape (k, 2)

    Examples
    --------
    >>> frame, point = np.array([[0.0, 0.0], [99.0, 99.0]]), np.array([[50.0, 50.0]])
    >>> find_places(point, np.ones((1, 2)), np.array([[1.0, 0.0]]), frame, np.zeros((0, 2)))
    array([[54., 50.]])
    """
    turn = 2 * np.pi * np.arange(ANGLES) / ANGLES
    circle = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    places = np.zeros_like(origin)
    done = np.zeros(len(origin), dtype=bool)
    for i in np.argsort(-half[:, 0], kind="stable"):  # longest first: it has few places
        reach = half[i] + DOT + np.array(DISTANCES)[:, None, None]
        tried = (origin[i] + circle * reach).reshape(-1, 2)
        outside = (tried - half[i] < frame[0]) | (tried + half[i] > frame[1])
        straight = circle @ (away[i] / max(float(np.linalg.norm(away[i])), 1e-300))
        cost = TURNED * np.tile((1 - straight) / 2, len(DISTANCES))
        cost += PER_POINT * np.repeat(DISTANCES, ANGLES) + OUTSIDE * outside.any(axis=1)
        cost += ON_LABEL * _covered(tried, places[done], half[i] + half[done])
        cost += ON_POINT * _covered(tried, origin, half[i] + DOT)
        cost += ON_CLEAR * _covered(tried, clear, half[i])
        places[i], done[i] = tried[int(np.argmin(cost))], True
    return places


def _covered(centres: Floats, others: Floats, reach: Floats) -> Floats:
    """Return how many of `others` lie within `reach` of each centre, sideways and upwards."""
    near = np.abs(centres[:, None, :] - others) < reach
    return np.asarray(near.all(axis=2).sum(axis=1), dtype=np.float64)
