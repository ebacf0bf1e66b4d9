"""What all figures share: size, colours, one plain axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DPI = 240
"""More than twice a screen's 100 dots per inch, so that figures are crisp."""
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
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(MUTED)
    ax.tick_params(labelsize=SMALL, colors=MUTED, labelcolor=INK)
    ax.grid(color=GRID, lw=0.8)
    ax.xaxis.label.set(fontsize=TEXT, color=INK)
    ax.yaxis.label.set(fontsize=TEXT, color=INK)
    return figure, ax


def mark(colour: str, shape: str = "o") -> Line2D:
    """Return a mark of a colour, for a key; '--' is a dashed line."""
    if shape == "--":
        return Line2D([], [], color=colour, lw=1.2, ls=DASHED)
    return Line2D([], [], ls="", marker=shape, ms=6, color=colour)


def key(figure: Figure, marks: Sequence[Line2D], words: Sequence[str], below: bool = False) -> None:
    """Say above (or below) the axes what marks mean."""
    columns = min(len(words), 5)
    legend = figure.legend(
        marks, words, loc="outside lower center" if below else "outside upper center", ncols=columns
    )
    legend.set_frame_on(False)
    for text in legend.get_texts():
        text.set(fontsize=SMALL, color=INK)
