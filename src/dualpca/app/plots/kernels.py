"""Kernel models in the plane of two inputs, and rows of small images."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from numpy.typing import ArrayLike

from dualpca.app.plots._canvas import (
    SMALL,
    WIDTH,
    Floats,
    Ink,
    Place,
    canvas,
    mark,
    mixed,
    nameless,
    need,
)

# --- kernel models in the plane of two inputs --------------------------------------------------

COLUMNS = 4
FUNCTIONS, DUAL = ("kernel_", "eigenvalues_", "transform"), ("coefficients_", "sample")
DRAWN = ("sample_kernel", "coefficients_")
"""What models need for a figure."""
KERNELS = "Kernel models have them: KernelPCA, DualPPCA, ProbabilisticKernelPCA."
MARGIN = 0.15
"""Margin around the points, as a share of their range."""


def eigenfunctions(
    model: Any,
    X: ArrayLike,
    n_panels: int = 8,
    *,
    resolution: int = 80,
    levels: int = 11,
    ax: Place = None,
) -> Figure:
    """Draw the leading components of a kernel model as functions of two inputs.

    Parameters
    ----------
    model : KernelPCA or DualPPCA
        Fitted on two columns.
    X : array-like of shape (n, 2)
        Points to draw over the contours.
    n_panels : int, default=8
        Largest number of components to draw.
    resolution : int, default=80
        Grid points along each axis.
    levels : int, default=11
        Number of contour lines.
    ax : sequence of Axes, Figure or SubFigure, default=None
        Where to draw: an axes for each panel, or a figure for all; by default a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        One panel per component, titled with its eigenvalue; blue is negative, red is positive.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import KernelPCA
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> model = KernelPCA(3, kernel="rbf", gamma=1.0).fit(X)
    >>> figure = eigenfunctions(model, X, resolution=20)
    >>> [ax.get_title() for ax in figure.axes][:1] == [f"{model.eigenvalues_[0]:.2f}"]
    True
    """
    need(model, "eigenfunctions", "components as functions", *FUNCTIONS, instead=KERNELS)
    points, model = _plane(X), nameless(model)
    grid, extent = _grid(points, resolution)
    values = np.asarray(model.transform(grid), dtype=np.float64)
    shown = min(n_panels, values.shape[1])
    columns = min(shown, COLUMNS)
    lines = math.ceil(shown / columns)

    def panels(region: FigureBase) -> list[Axes]:
        return [region.add_subplot(lines, columns, p + 1) for p in range(shown)]

    width = WIDTH * columns / COLUMNS
    sheet = canvas(ax, width / columns * lines * 1.15, panels, count=shown, width=width)
    for p, one in enumerate(sheet.axes):
        Z = values[:, p].reshape(resolution, resolution)
        _function(one, sheet.ink, Z, points, extent)
        one.contour(Z, levels=levels, extent=extent, colors=sheet.ink.muted, linewidths=0.5)
        title = f"{float(model.eigenvalues_[p]):.2f}"
        one.set_title(title, fontsize=SMALL, color=sheet.ink.text)
    return sheet.figure


def _function(
    ax: Axes, ink: Ink, Z: Floats, points: Floats, extent: tuple[float, float, float, float]
) -> None:
    """Draw values on a grid as colours, and the points over them, in a frame without ticks."""
    reach = float(np.abs(Z).max()) or 1.0
    image = ax.imshow(Z, extent=extent, cmap=ink.diverging(), origin="lower", aspect="auto")
    image.set(clim=(-reach, reach), alpha=0.6)
    ax.plot(points[:, 0], points[:, 1], "o", ms=1.5, color=ink.text)
    ax.set(xticks=[], yticks=[])
    ax.grid(False)
    ax.spines[:].set(visible=True, color=ink.muted)


def reconstructions(
    model: Any, X: ArrayLike, n_samples: int = 200, *, random_state: int = 0, ax: Place = None
) -> Figure:
    """Draw points, their reconstructions by kernel PCA and the dual model, and samples.

    As in De Plaen and Suykens (2023, figure 3).

    Parameters
    ----------
    model : DualPPCA
        Fitted on two columns; its `preimage` method maps back to them.
    X : array-like of shape (n, 2)
        Points to reconstruct.
    n_samples : int, default=200
    random_state : int, default=0
    ax : Axes, Figure or SubFigure, default=None
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        Kernel PCA projects on the same components without shrinking to the mean.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import DualPPCA
    >>> t = np.linspace(-7, 7, 20)
    >>> X = np.column_stack([t, np.sin(t)])
    >>> model = DualPPCA(3, gamma=1 / 8, center=False, preimage="smoother").fit(X)
    >>> len(reconstructions(model, X, 20).axes[0].lines)
    4
    """
    need(model, "reconstructions", "samples and pre-images", *DUAL, instead="DualPPCA has both.")
    points, model = _plane(X), nameless(model)
    latents = np.asarray(model.transform(points))
    kept = 1 - float(model.noise_variance_) / np.asarray(model.explained_variance_)
    samples = np.asarray(model.sample(n_samples, random_state=random_state))
    classic = np.asarray(model.inverse_transform(latents / kept))
    dual = np.asarray(model.inverse_transform(latents))
    sheet = canvas(ax, height=4.4)
    ax, ink = sheet.ax, sheet.ink
    drawn = {
        f"samples ({n_samples})": (samples, "o", mixed(ink.text, ink.face, 0.6), 2.5),
        "points": (points, "o", ink.text, 5.0),
        "kernel PCA": (classic, "s", ink.vermilion, 5.0),
        "dual PPCA": (dual, "^", ink.blue, 5.0),
    }
    for places, shape, colour, size in drawn.values():
        ax.plot(places[:, 0], places[:, 1], shape, ms=size, color=colour, alpha=0.75, mew=0)
    share = 100 * float(np.sum(np.asarray(model.explained_variance_ratio_)))
    noise = float(model.noise_variance_)
    ax.set(xlabel=f"{len(kept)} components: {share:.1f} % of the variance, noise {noise:.3g}")
    sheet.key([mark(c, s) for _, s, c, _ in drawn.values()], list(drawn))
    return sheet.figure


def sampling_overview(
    model: Any, n_samples: int = 500, *, random_state: int = 0, ax: Place = None
) -> Figure:
    """Draw sampled kernel values along a component and off the components.

    As in De Plaen and Suykens (2023, figure 2).

    Parameters
    ----------
    model : DualPPCA
    n_samples : int, default=500
    random_state : int, default=0
    ax : Axes, Figure or SubFigure, default=None
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        Samples of kernel PCA, which has no noise, stay on the components; those of the dual model
        also vary along the discarded directions.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import DualPPCA
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> figure = sampling_overview(DualPPCA(2).fit(X), 50)
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['dual PPCA', 'kernel PCA']
    """
    need(model, "sampling_overview", "sampled kernel values", *DRAWN, instead="DualPPCA has them.")
    kc = np.asarray(model.sample_kernel(n_samples, random_state), dtype=np.float64)
    A = np.asarray(model.coefficients_, dtype=np.float64)
    first, basis = A[:, 0] / np.linalg.norm(A[:, 0]), np.linalg.qr(A)[0]
    rest = kc - (kc @ basis) @ basis.T
    off = np.linalg.svd(rest, full_matrices=False)[2][0]
    sheet = canvas(ax, height=4.0)
    ax, ink = sheet.ax, sheet.ink
    ax.plot(kc @ first, rest @ off, "o", ms=3, color=ink.blue, alpha=0.5, mew=0)
    ax.plot(kc @ first, np.zeros(n_samples), "s", ms=3, color=ink.vermilion, alpha=0.5, mew=0)
    ax.set(xlabel="along the first component", ylabel="largest direction off the components")
    sheet.key([mark(ink.blue), mark(ink.vermilion, "s")], ["dual PPCA", "kernel PCA"])
    return sheet.figure


def _plane(X: ArrayLike) -> Floats:
    points = np.asarray(X, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"X must have two columns, the axes of the picture, got {points.shape}")
    return points


def _grid(points: Floats, resolution: int) -> tuple[Floats, tuple[float, float, float, float]]:
    """Return a grid around the points, (resolution², 2), and the edges of the picture."""
    low, high = points.min(axis=0), points.max(axis=0)
    reach = np.where(high > low, high - low, 1.0)
    low, high = low - MARGIN * reach, high + MARGIN * reach
    x, y = (np.linspace(a, b, resolution) for a, b in zip(low, high, strict=True))
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    return grid, (float(low[0]), float(high[0]), float(low[1]), float(high[1]))


# --- rows of small images ----------------------------------------------------------------------


def image_grid(
    rows: Mapping[str, ArrayLike],
    shape: tuple[int, int],
    *,
    labels: Mapping[str, Sequence[object]] | None = None,
    signed: Collection[str] = (),
    limits: tuple[float, float] | None = None,
    ax: Place = None,
) -> Figure:
    """Draw rows of small images below one another, each row with its name.

    Parameters
    ----------
    rows : mapping of str to array-like of shape (k, h * w) or (k, h, w)
        Name of a row, and its images; all rows have k of them.
    shape : pair of int
        (h, w).
    labels : mapping of str to sequence of k objects, default=None
        What to write under the images of a row.
    signed : collection of str, default=()
        Rows of positive and negative values, drawn from blue (negative) over the background to
        red (positive); the largest magnitude of such a row has the full colour and is written next
        to its name.
    limits : pair of float, default=None
        Values drawn white and black in the other rows; by default their smallest and largest.
    ax : sequence of Axes, Figure or SubFigure, default=None
        Where to draw: an axes for each row, or a figure for all; by default a new figure.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> digits = load_digits().data
    >>> figure = image_grid({"first": digits[:5], "next": digits[5:10]}, (8, 8))
    >>> [ax.get_title("left") for ax in figure.axes]
    ['first', 'next']
    """
    images = {name: _stack(name, row, shape) for name, row in rows.items()}
    plain = [row.ravel() for name, row in images.items() if name not in signed]
    pixels = np.concatenate(plain or [np.zeros(1)])
    low, high = limits or (float(pixels.min()), float(pixels.max()))
    labels = labels or {}
    heights = _Heights.of(images, shape, labels)
    sheet = canvas(ax, heights.all, heights.axes, count=len(images), layout="none")
    ink, dark_on_light = sheet.ink, colormaps["gray_r"]
    for one, (name, row) in zip(sheet.axes, images.items(), strict=True):
        span, colours = (low, high), dark_on_light
        if name in signed:
            reach = float(np.abs(row).max()) or 1.0
            span, colours = (-reach, reach), ink.diverging()
            one.set_title(f"±{reach:.2g}", loc="right", fontsize=SMALL, color=ink.muted)
        one.imshow(_tile(row), vmin=span[0], vmax=span[1], cmap=colours, interpolation="nearest")
        one.set_title(name, loc="left", fontsize=SMALL, color=ink.text)
        _label_tiles(one, ink, labels.get(name, ()), shape[1])
    return sheet.figure


def _stack(name: str, row: ArrayLike, shape: tuple[int, int]) -> Floats:
    """Return a row as images (k, h, w)."""
    images = np.asarray(row, dtype=np.float64)
    if images.size == 0 or images[0].size != shape[0] * shape[1]:
        raise ValueError(f"row {name!r} must hold images of {shape} pixels, got {images.shape}")
    return images.reshape(-1, *shape)


@dataclass(frozen=True)
class _Heights:
    """Where rows of images stand, in inches: names above them, labels below some."""

    one: float
    below: list[float]

    ABOVE, WIDE, EDGE = 0.3, WIDTH - 0.1, 0.05

    @classmethod
    def of(
        cls, rows: Mapping[str, Floats], shape: tuple[int, int], labels: Collection[str]
    ) -> _Heights:
        """Return the heights of rows of images."""
        one = cls.WIDE * shape[0] / (max(map(len, rows.values())) * (shape[1] + 1) - 1)
        return cls(one, [0.3 if name in labels else 0.08 for name in rows])

    @property
    def all(self) -> float:
        """Of the whole figure."""
        return sum(self.below) + len(self.below) * (self.ABOVE + self.one)

    def axes(self, region: FigureBase) -> list[Axes]:
        """Add an axes for each row, with space for names and labels."""
        y, found = self.all, []
        for under in self.below:
            y -= self.ABOVE + self.one
            place = (self.EDGE / WIDTH, y / self.all, self.WIDE / WIDTH, self.one / self.all)
            found.append(region.add_axes(place))
            y -= under
        return found


def _tile(images: Floats) -> Floats:
    """Return images side by side, with a blank pixel between them."""
    padded = np.pad(images, ((0, 0), (0, 0), (0, 1)), constant_values=np.nan)
    return np.hstack(list(padded))[:, :-1]


def _label_tiles(ax: Axes, ink: Ink, words: Sequence[object], width: int) -> None:
    """Write a label below each image, and remove the frame."""
    centres = (width - 1) / 2 + (width + 1) * np.arange(len(words))
    ax.set_xticks(centres, [str(word) for word in words], fontsize=SMALL, color=ink.text)
    ax.set_yticks([])
    ax.grid(False)  # a style may have switched it on
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
