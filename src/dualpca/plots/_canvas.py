"""What all figures share: size, colours, one plain axes."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
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
