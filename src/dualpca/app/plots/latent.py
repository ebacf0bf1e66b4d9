"""Rows in the plane of two latents."""

from __future__ import annotations

import math
from itertools import zip_longest
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from numpy.typing import ArrayLike, NDArray

from dualpca.app.plots._canvas import INK, PALETTE, Floats, blank


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
    figure, ax = blank(height=5.2)
    ax.scatter(Z[:, 0], Z[:, 1], c=colours, s=10, alpha=0.6, linewidths=0)
    for i in _spread(codes, n_ellipses if len(covariance) else 0):
        _ellipse(ax, Z[i], covariance[i], level, colours[i])
    for code, name in enumerate(names) if y is not None else ():
        _name(ax, np.median(Z[codes == code], axis=0), str(name), PALETTE[code % len(PALETTE)])
    shares = 100 * np.asarray(model.explained_variance_ratio_)
    words = [f"latent {a + 1} ({shares[a]:.1f} % of the variance)" for a in axes]
    ax.set(xlabel=words[0], ylabel=words[1], aspect="equal", adjustable="datalim")
    return figure


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
