"""The style of the experiments' figures, panels they share, and measures of agreement."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import orthogonal_procrustes, subspace_angles
from sklearn.exceptions import ConvergenceWarning

from dualpca.app.plots._canvas import BLUE, DPI, PALETTE, VERMILION, unmanaged

__all__ = [
    "BLUE",
    "GREEN",
    "INK",
    "MUTED",
    "PALE",
    "RED",
    "Canvas",
    "angle",
    "distance",
    "stopped_early",
    "style",
    "turned",
    "wave",
]

T = TypeVar("T")

INK, MUTED, GRID = "#1f2430", "#555c6b", "#e3e6ec"
RED, GREEN, PALE = VERMILION, "#117733", "#a3a9b8"
MARKERS = "os^Dv*PX<>"
WIDTH = 7.2
"""Inches: readable on a page and, turned, on a phone."""

STYLE: Any = {
    "figure.constrained_layout.use": True,
    "figure.dpi": DPI,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib: the same everywhere
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titlepad": 7,
    "axes.labelsize": 10,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=PALETTE),
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "svg.hashsalt": "dualpca",  # identifiers are otherwise random
    "svg.fonttype": "path",
    "image.cmap": "gray_r",
    "image.interpolation": "nearest",
}


@contextmanager
def style() -> Iterator[None]:
    """Draw and save in the shared style; restore the settings of matplotlib afterwards.

    Figures of `dualpca.plots` are not given to pyplot, which would keep every one of them.
    """
    with matplotlib.rc_context(), unmanaged():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


@dataclass(frozen=True)
class Canvas:
    """Where an experiment draws, with its seed.

    Attributes
    ----------
    seed : int
        Random seed.
    quick : bool
        Whether to run a small version, for tests.

    Examples
    --------
    >>> draw = Canvas(seed=1, quick=True)
    >>> draw.pick(2000, quick=20)
    20
    >>> figure, axes = draw.panels(2, 3)
    >>> axes.shape
    (2, 3)
    """

    seed: int = 0
    quick: bool = False

    @property
    def rng(self) -> np.random.Generator:
        """Return a new generator, always the same for the same seed."""
        return np.random.default_rng(self.seed)

    def pick(self, full: T, quick: T) -> T:
        """Return the setting for a full run, or for a quick one."""
        return quick if self.quick else full

    def panels(
        self, rows: int = 1, columns: int = 1, *, height: float | None = None, **options: Any
    ) -> tuple[Figure, NDArray[Any]]:
        """Return a figure `WIDTH` wide and its axes, (rows, columns).

        Parameters
        ----------
        rows, columns : int
        height : float, optional
            Height of the figure in inches; by default panels are square.
        **options
            For ``Figure.subplots``: sharex, sharey, width_ratios, …
        """
        tall = WIDTH / columns * rows if height is None else height
        with style():
            figure = Figure(figsize=(WIDTH, tall), dpi=DPI, layout="constrained")
            axes = figure.subplots(rows, columns, squeeze=False, **options)
        return figure, axes

    def scatter(
        self, ax: Axes, Z: ArrayLike, y: ArrayLike | None = None, names: Sequence[str] = ()
    ) -> None:
        """Draw points in a plane, each class in a colour and a shape of its own."""
        points = np.asarray(Z, dtype=np.float64)
        codes = np.zeros(len(points), dtype=int) if y is None else np.asarray(y)
        for k, code in enumerate(np.unique(codes)):
            here = points[codes == code]
            name = names[k] if k < len(names) else None
            ax.plot(here[:, 0], here[:, 1], MARKERS[k % 10], ms=4, color=PALETTE[k % 10], mew=0)
            ax.lines[-1].set(alpha=0.75, label=name)

    def images(
        self, ax: Axes, X: ArrayLike, columns: int, side: int = 28, high: float = 1.0
    ) -> None:
        """Draw images, (n, side²), in a grid, dark where values are high."""
        X = np.asarray(X, dtype=np.float64)
        lines = -(-len(X) // columns)
        tiles = np.zeros((lines * columns, side + 2, side + 2))
        tiles[: len(X), 1:-1, 1:-1] = X.reshape(-1, side, side)
        grid = tiles.reshape(lines, columns, side + 2, side + 2).swapaxes(1, 2)
        ax.imshow(grid.reshape(lines * (side + 2), -1), cmap="gray_r", vmin=0.0, vmax=high)
        self.bare(ax)

    def bare(self, ax: Axes) -> None:
        """Remove ticks, grid and frame from an axes."""
        ax.set(xticks=[], yticks=[])
        ax.grid(False)
        ax.spines[:].set_visible(False)

    def key(self, figure: Figure, ax: Axes, below: bool = False) -> None:
        """Draw one legend, above or below all panels, for the marks of one of them."""
        marks, words = ax.get_legend_handles_labels()
        figure.legend(
            marks,
            words,
            loc="outside lower center" if below else "outside upper center",
            ncols=min(len(words), 5),
        )


# --- measures and data that several experiments share ------------------------------------------


@contextmanager
def stopped_early() -> Iterator[None]:
    """Suppress the warning where iterations end as early as in a document."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def angle(A: ArrayLike, B: ArrayLike) -> float:
    """Return the largest angle between two column spaces, in degrees.

    Examples
    --------
    >>> angle([[1.0], [0.0]], [[1.0], [1.0]])
    45.0
    """
    return float(np.degrees(subspace_angles(np.asarray(A), np.asarray(B))[0]))


def turned(A: ArrayLike, B: ArrayLike) -> NDArray[np.float64]:
    """Return A rotated (and reflected) to be as close to B as possible."""
    start = np.asarray(A, dtype=np.float64)
    return np.asarray(start @ orthogonal_procrustes(start, np.asarray(B))[0])


def distance(A: ArrayLike, B: ArrayLike) -> float:
    """Return the distance of A, rotated, from B, as a share of the size of B.

    Examples
    --------
    >>> distance([[0.0], [2.0]], [[0.0], [-1.0]])
    1.0
    """
    return float(np.linalg.norm(turned(A, B) - np.asarray(B)) / np.linalg.norm(np.asarray(B)))


def wave(n: int = 20) -> NDArray[np.float64]:
    """Return n points (t, sin t) with t from −7 to 7, in place of unpublished ones."""
    t = np.linspace(-7, 7, n)
    return np.column_stack([t, np.sin(t)])
