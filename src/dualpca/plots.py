"""Figures of fitted models: the spectrum, the latent plane, and rows of images.

Every function returns a new matplotlib Figure and leaves pyplot's state alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dualpca import PCA

try:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Ellipse
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter
    from matplotlib.transforms import ScaledTranslation
except ModuleNotFoundError as error:
    message = "dualpca.plots needs matplotlib: pip install 'dualpca[app]'"
    raise ModuleNotFoundError(message, name=error.name) from error

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


def scree(model: Any, X: ArrayLike | None = None) -> Figure:
    """Draw the variance of every direction against the noise floor.

    Parameters
    ----------
    model : PCA or PPCA
        A fitted model.
    X : array-like of shape (n, d), optional
        The data it was fitted to; with it the discarded directions are drawn too, and cost one
        more eigendecomposition.

    Returns
    -------
    matplotlib.figure.Figure
        Variances on a logarithmic axis, the kept ones filled; the noise variance as a dashed line.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import PPCA
    >>> X = load_iris().data
    >>> figure = scree(PPCA(n_components=2).fit(X), X)
    >>> figure.axes[0].get_yscale()
    'log'
    """
    kept = np.asarray(model.explained_variance_, dtype=np.float64)
    rest = np.zeros(0) if X is None else _discarded(model, kept, X)
    q, shown = kept.size, kept.size + rest.size
    right = 1.02 * (max(shown, q + 1) + 0.5)
    figure, ax = _canvas(height=3.9)
    ax.plot(np.arange(1, q + 1), kept, "o", ms=5, color=BLUE, zorder=3)
    ax.plot(np.arange(q + 1, shown + 1), rest, "o", ms=5, mfc="white", color=MUTED, zorder=3)
    ax.set(xlabel="direction, by falling variance", ylabel="variance", yscale="log")
    ax.set_xlim(0.5 - 0.02 * right, right)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    _mark_rank(ax, q, len(model.mean_), left=q > 0.7 * right)
    _mark_noise(ax, float(model.noise_variance_), left=q > 0.7 * right)
    return figure


def latent_scatter(
    model: Any,
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    axes: tuple[int, int] = (0, 1),
    level: float = 0.9,
    n_ellipses: int = 20,
) -> Figure:
    """Draw two latent coordinates of every point, and how sure the model is of some of them.

    Parameters
    ----------
    model : PCA or PPCA
        A fitted model; only one with ``posterior`` has ellipses.
    X : array-like of shape (n, d)
        Points to place.
    y : array-like of shape (n,), optional
        Classes: each has a colour (from the eleventh on they repeat) and its name at its median.
    axes : pair of int
        Which latents, counted from 0.
    level : float
        Posterior probability inside an ellipse.
    n_ellipses : int
        How many points have one: equally many of each class, drawn with a fixed seed.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import PPCA
    >>> X, y = load_iris(return_X_y=True)
    >>> figure = latent_scatter(PPCA(n_components=2).fit(X), X, y, n_ellipses=9)
    >>> len(figure.axes[0].patches)
    9
    """
    q = int(model.n_components_)
    if not all(0 <= a < q for a in axes):
        raise ValueError(f"axes must be two of the model's {q} latents, counted from 0, got {axes}")
    Z, covariance = _placed(model, X, list(axes))
    names, codes = np.unique(np.zeros(len(Z)) if y is None else y, return_inverse=True)
    colours = [PALETTE[code % len(PALETTE)] for code in codes]
    figure, ax = _canvas(height=5.2)
    ax.scatter(Z[:, 0], Z[:, 1], c=colours, s=10, alpha=0.6, linewidths=0)
    for i in _spread(codes, n_ellipses if len(covariance) else 0):
        _ellipse(ax, Z[i], covariance[i], level, colours[i])
    for code, name in enumerate(names) if y is not None else ():
        _name(ax, np.median(Z[codes == code], axis=0), str(name), PALETTE[code % len(PALETTE)])
    shares = 100 * np.asarray(model.explained_variance_ratio_)
    words = [f"latent {a + 1} ({shares[a]:.1f} % of the variance)" for a in axes]
    ax.set(xlabel=words[0], ylabel=words[1], aspect="equal", adjustable="datalim")
    return figure


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


def _canvas(height: float) -> tuple[Figure, Axes]:
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


def _discarded(model: Any, kept: Floats, X: ArrayLike) -> Floats:
    """Return the variances after the kept ones that a logarithmic axis can show."""
    full = PCA(standardize=getattr(model, "standardize", False)).fit(X).explained_variance_
    # Models differ in their divisor, n or n − 1: the first variance tells which.
    full = np.asarray(full) * (kept[0] / full[0] if kept.size else 1.0)
    return np.asarray([value for value in full[kept.size :] if value > 1e-12 * full[0]])


def _mark_rank(ax: Axes, q: int, d: int, left: bool) -> None:
    """Draw a line after direction q, and write how many are kept."""
    ax.axvline(q + 0.5, color=INK, lw=1)
    shift = ScaledTranslation(-0.06 if left else 0.06, -0.02, ax.figure.dpi_scale_trans)
    text = ax.text(q + 0.5, 1, f"{q} of {d}\ndirections kept", fontsize=SMALL, color=INK)
    text.set(transform=ax.get_xaxis_transform() + shift, va="top", ha="right" if left else "left")


def _mark_noise(ax: Axes, noise: float, left: bool) -> None:
    """Draw the noise floor, if there is one, and its value where there is room."""
    if noise <= 0:
        return
    ax.axhline(noise, color=VERMILION, lw=1.6, ls=(0, (5, 3)), zorder=2)
    above = ScaledTranslation(0, 0.05, ax.figure.dpi_scale_trans)
    words, x = f"noise variance {noise:.3g}", 0.02 if left else 1.0
    text = ax.text(x, noise, words, ha="left" if left else "right", fontsize=SMALL)
    text.set(transform=ax.get_yaxis_transform() + above, color=VERMILION)


def _placed(model: Any, X: ArrayLike, plane: list[int]) -> tuple[Floats, Floats]:
    """Return the positions (n, 2) and their covariances (n, 2, 2), none where there is no prior."""
    if not hasattr(model, "posterior"):
        return np.asarray(model.transform(X))[:, plane], np.zeros((0, 2, 2))
    mean, covariance = model.posterior(X)
    return np.asarray(mean)[:, plane], np.asarray(covariance)[:, plane][:, :, plane]


def _spread(codes: NDArray[np.intp], count: int) -> list[int]:
    """Return `count` random positions, taken from the classes in turn."""
    order = np.random.default_rng(0).permutation(codes.size)
    turns = zip_longest(*(order[codes[order] == code] for code in np.unique(codes)))
    return [int(i) for turn in turns for i in turn if i is not None][:count]


def _ellipse(ax: Axes, centre: Floats, covariance: Floats, level: float, colour: str) -> None:
    """Draw the ellipse that holds `level` of a Gaussian in the plane."""
    values, vectors = np.linalg.eigh(covariance)
    width, height = 2 * np.sqrt(-2 * math.log1p(-level) * np.maximum(values, 0))
    angle = math.degrees(math.atan2(vectors[1, 0], vectors[0, 0]))
    place = (float(centre[0]), float(centre[1]))
    ax.add_patch(Ellipse(place, width, height, angle=angle, fc=colour, alpha=0.28, lw=0))
    ax.plot(*place, "o", ms=4, color=colour, mec=INK, mew=0.6)


def _name(ax: Axes, at: Floats, name: str, colour: str) -> None:
    """Write a class's name where it lies, on a plate of its colour."""
    plate = {"boxstyle": "circle,pad=0.22", "fc": "white", "ec": colour, "lw": 2.2}
    text = ax.text(at[0], at[1], name, ha="center", va="center", zorder=5, bbox=plate)
    text.set(fontsize=12, weight="bold", color=INK)


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
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
