"""Rows of small images."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from dualpca.app.plots._canvas import DPI, INK, MUTED, SMALL, TEXT, WIDTH, Floats


def image_grid(
    rows: Mapping[str, ArrayLike],
    shape: tuple[int, int],
    *,
    labels: Mapping[str, Sequence[object]] | None = None,
    signed: Collection[str] = (),
    limits: tuple[float, float] | None = None,
) -> Figure:
    """Draw rows of small images under one another, each row with its name.

    Parameters
    ----------
    rows : mapping of str to array-like of shape (k, h * w) or (k, h, w)
        Name of a row, and its images; all rows have k of them.
    shape : pair of int
        (h, w).
    labels : mapping of str to sequence of k objects, optional
        What to write under the images of a row.
    signed : collection of str
        Rows around zero, drawn from blue (negative) over white to red (positive); the largest
        magnitude of such a row has the full colour, and is written beside its name.
    limits : pair of float, optional
        Values drawn white and black in the other rows; by default their smallest and largest.

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
    figure = _sheet(images, shape, labels)
    for ax, (name, row) in zip(figure.axes, images.items(), strict=True):
        span, colours = (low, high), "gray_r"
        if name in signed:
            reach = float(np.abs(row).max()) or 1.0
            span, colours = (-reach, reach), "RdBu_r"
            ax.set_title(f"±{reach:.2g}", loc="right", fontsize=SMALL, color=MUTED)
        ax.imshow(_tile(row), vmin=span[0], vmax=span[1], cmap=colours, interpolation="nearest")
        ax.set_title(name, loc="left", fontsize=TEXT, color=INK)
        _label_tiles(ax, labels.get(name, ()), shape[1])
    return figure


def _stack(name: str, row: ArrayLike, shape: tuple[int, int]) -> Floats:
    """Return a row as images (k, h, w)."""
    images = np.asarray(row, dtype=np.float64)
    if images.size == 0 or images[0].size != shape[0] * shape[1]:
        raise ValueError(f"row {name!r} must hold images of {shape} pixels, got {images.shape}")
    return images.reshape(-1, *shape)


def _sheet(rows: Mapping[str, Floats], shape: tuple[int, int], labels: Collection[str]) -> Figure:
    """Return a figure with an axes for each row, and room for names and labels."""
    above, width = 0.3, WIDTH - 0.1  # inches
    one = width * shape[0] / (max(map(len, rows.values())) * (shape[1] + 1) - 1)
    below = [0.3 if name in labels else 0.08 for name in rows]
    tall = y = sum(below) + len(rows) * (above + one)
    figure = Figure(figsize=(WIDTH, tall), dpi=DPI, facecolor="white")
    figure.set_layout_engine("none")  # places are given below, whatever the style
    for under in below:
        y -= above + one
        figure.add_axes((0.05 / WIDTH, y / tall, width / WIDTH, one / tall))
        y -= under
    return figure


def _tile(images: Floats) -> Floats:
    """Return images side by side, a blank pixel between them."""
    padded = np.pad(images, ((0, 0), (0, 0), (0, 1)), constant_values=np.nan)
    return np.hstack(list(padded))[:, :-1]


def _label_tiles(ax: Axes, words: Sequence[object], width: int) -> None:
    """Write under each image its word, and take the frame away."""
    centres = (width - 1) / 2 + (width + 1) * np.arange(len(words))
    ax.set_xticks(centres, [str(word) for word in words], fontsize=SMALL, color=INK)
    ax.set_yticks([])
    ax.grid(False)  # a style may have switched it on
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
