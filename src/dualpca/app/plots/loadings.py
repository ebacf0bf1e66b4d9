"""What the components are made of: a biplot, and a Hinton diagram of the loadings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from numpy.typing import ArrayLike

from dualpca.app.plots._canvas import (
    DASHED,
    Floats,
    Ink,
    Place,
    Sheet,
    canvas,
    check_groups,
    classes,
    draw_groups,
    draw_supplementary,
    equal,
    feature_names,
    foremost,
    label_points,
    label_rows,
    mark,
    mixed,
    need,
    row_names,
)
from dualpca.arrays import backend
from dualpca.errors import expected
from dualpca.gaussian import Supplementary

REACH = 0.85
"""Length of the longest arrow, relative to the distance of the furthest row."""


def biplot(
    model: Any,
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    axes: tuple[int, int] = (0, 1),
    n_features: int = 15,
    groups: str | None = None,
    level: float = 0.9,
    labels: Any = None,
    supplementary: Supplementary | None = None,
    ax: Place = None,
) -> Figure:
    """Draw rows in the plane of two components, with an arrow for every feature.

    The inner product of a row's score and a feature's arrow is the row's (centred) value of that
    feature, as far as the plane shows it, up to one factor for all arrows. Rows along an arrow
    are large in that feature, and features whose arrows point the same way vary together
    (Gabriel 1971).

    Parameters
    ----------
    model : PCA, PPCA or FactorAnalysis
        A fitted model of two components or more.
    X : array or frame of shape (n, d)
    y : array-like of shape (n,), default=None
        Classes, each with a colour (repeated from the eleventh on); rows without one (None, NaN)
        are grey.
    axes : pair of int, default=(0, 1)
        Which components, counted from 0.
    n_features : int, default=15
        Number of arrows, the longest in the plane.
    groups : {'mean', 'rows', 'both'}, default=None
        Ellipses of the classes y, as in `latent_scatter`.
    level : float, default=0.9
        Probability inside an ellipse.
    labels : bool or sequence of n str, default=None
        Names next to the rows, as in `latent_scatter`.
    supplementary : Supplementary, default=None
        From `dualpca.supplementary` for the same rows: numbers become dashed arrows, levels white
        diamonds at their barycentres, rows crosses. A dashed arrow compares with the others if the
        model standardises; otherwise it is as long as the longest for a correlation of 1.
    ax : Axes, Figure or SubFigure, default=None
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import PCA
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> figure = biplot(PCA(2).fit(X), X, y)
    >>> [label.get_text() for label in figure.axes[0].texts][0]
    'sepal length (cm)'
    """
    need(model, "biplot", "rows and columns on components", "components_", "transform")
    plane = check_axes(model, axes)
    Z = backend.to_numpy(model.transform(X))[:, plane]
    if y is not None:
        classes(y, len(Z))  # refused before anything is drawn
    check_groups(groups, y, level)
    rows = row_names(labels, X, len(Z))
    arrows = _directions(model)[:, plane]
    length = np.linalg.norm(arrows, axis=1)
    shown = foremost(length, n_features)
    sheet = canvas(ax, height=5.2)
    _scatter(sheet, Z, y, groups, level)
    reach = REACH * (np.abs(Z).max(initial=0.0) or 1.0)
    tips = arrows[shown] * (reach / (length.max(initial=0.0) or 1.0))
    draw_arrows(sheet, tips)
    places, names = tips, [feature_names(model)[j] for j in shown]
    if supplementary is not None:
        outside, size = _outside(supplementary, Z, plane)
        if getattr(model, "scale_", None) is None:  # the other arrows are in units of their own
            outside = outside / np.maximum(np.linalg.norm(outside, axis=1), 1e-300)[:, None] * size
            outside = outside * reach
        else:
            outside = outside * (reach / (length.max(initial=0.0) or 1.0))
        draw_arrows(sheet, outside, dashed=True)
        tips = np.concatenate([tips, outside])
        centres, levels = draw_supplementary(sheet, supplementary, plane)
        places = np.concatenate([tips, centres])
        names += [*supplementary.numbers.names, *levels]
    words = axis_words(model, axes)
    sheet.ax.set(xlabel=words[0], ylabel=words[1])
    equal(sheet.ax)
    sheet.ax.margins(0.15)
    # many points per shaft: a label on an arrow is worse than one on a few rows
    shafts = (tips[:, None, :] * np.linspace(0.1, 0.95, 60)[:, None]).reshape(-1, 2)
    clear = np.concatenate([Z, shafts])
    around = label_points(sheet, places, names, places, clear)
    label_rows(sheet, Z, rows, np.concatenate([shafts, places]), around)
    return sheet.figure


def _outside(found: Supplementary, Z: Floats, plane: list[int]) -> tuple[Floats, Floats]:
    """Return how fast supplementary numbers rise with the scores, per standard deviation, (p, 2).

    Also the lengths of their correlations in the plane, (p, 1).
    """
    r = np.nan_to_num(found.numbers.correlation[:, plane])
    slope = r / np.maximum(Z.std(axis=0), np.finfo(float).tiny)
    if found.numbers.latent_correlation is not None:
        slope = r = np.nan_to_num(found.numbers.latent_correlation[:, plane])
    return slope, np.linalg.norm(r, axis=1, keepdims=True)


def check_axes(model: Any, axes: Sequence[int], count: int | None = 2) -> list[int]:
    """Return which components are meant; two, or any number for a count of None."""
    q = int(model.components_.shape[0])
    if not all(0 <= a < q for a in axes) or len(axes) != (count or len(axes) or 1):
        many = "two" if count else "some"
        raise ValueError(
            expected("axes", f"{many} of the model's {q} components, counted from 0", axes)
        )
    return list(axes)


def _directions(model: Any) -> Floats:
    """Return the rows by which scores are multiplied to give the features, (d, q).

    Those of standardised columns if the model standardises: no unit makes an arrow long.
    """
    own = hasattr(model, "loadings_")
    W = backend.to_numpy(model.loadings_ if own else model.components_.T).astype(np.float64)
    scale = getattr(model, "scale_", None) if own else None
    if scale is not None:
        W = W / backend.to_numpy(scale)[:, None]
    if getattr(model, "whiten", False):
        W = W * np.sqrt(backend.to_numpy(model.explained_variance_))
    return np.asarray(W)


def axis_words(model: Any, axes: Sequence[int]) -> list[str]:
    """Return what components are called, with their shares of the variance if they have some."""
    shares = getattr(model, "explained_variance_ratio_", None)
    if shares is None:
        return [f"factor {a + 1}" for a in axes]
    share = 100 * backend.to_numpy(shares)
    return [f"component {a + 1} ({share[a]:.1f} % of the variance)" for a in axes]


def _scatter(
    sheet: Sheet, Z: Floats, y: ArrayLike | None, groups: str | None, level: float
) -> None:
    """Draw the rows and ellipses of their classes, with a legend."""
    ax, ink = sheet.ax, sheet.ink
    if y is None:
        ax.scatter(Z[:, 0], Z[:, 1], c=ink.blue, s=10, alpha=0.5, linewidths=0)
        return
    names, codes, colours = classes(y, len(Z), ink.palette, ink.muted)
    ax.scatter(Z[:, 0], Z[:, 1], c=[colours[c] for c in codes], s=10, alpha=0.6, linewidths=0)
    found = (names, codes, colours)
    marks, words = draw_groups(sheet, Z, found, groups, level) if groups else ([], [])
    sheet.key([*map(mark, colours), *marks], [*names, *words])


def draw_arrows(sheet: Sheet, tips: Floats, dashed: bool = False) -> None:
    """Draw arrows from the origin, and make room for them."""
    ax, colour = sheet.ax, sheet.ink.vermilion if dashed else sheet.ink.text
    for x, y in tips:
        start = (0.9 * x, 0.9 * y) if dashed else (0.0, 0.0)  # a dashed head would be ragged
        arrow = FancyArrowPatch(start, (x, y), arrowstyle="-|>", shrinkA=0, shrinkB=0)
        arrow.set(color=colour, zorder=4, mutation_scale=9, linewidth=1.1)
        ax.add_patch(arrow)
        if dashed:
            ax.plot([0, start[0]], [0, start[1]], color=colour, lw=1.1, ls=DASHED, zorder=4)
    if len(tips):
        ax.update_datalim(tips)


def hinton(model: Any, *, n_features: int = 40, ax: Place = None) -> Figure:
    """Draw the loadings W as squares: area for size, colour for sign.

    They are in the units of the fit: standard deviations of the columns if the model standardises
    (``standardize=True``, and CopulaPPCA always), so that no unit makes a square large.

    Parameters
    ----------
    model : PCA, PPCA, FactorAnalysis or CopulaPPCA
        A fitted model. PCA's loadings are V L^{1/2}, its axes times their standard deviations.
    n_features : int, default=40
        Number of features, those with the largest loadings, in the order of the table.
    ax : Axes, Figure or SubFigure, default=None
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import PPCA
    >>> figure = hinton(PPCA(2).fit(load_iris(as_frame=True).data))
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()][-1]
    'petal width (cm)'
    """
    need(model, "hinton", "loadings", "components_")
    W = scaled_loadings(model)
    shown = foremost(np.abs(W).max(axis=1, initial=0.0), n_features)
    W, (k, q) = W[shown], (len(shown), W.shape[1])
    largest = float(np.abs(W).max(initial=0.0)) or 1.0
    side = np.sqrt(np.abs(W) / largest) * 0.94
    cell = min(0.4, max(0.24, 3.2 / k))  # inches
    sheet = canvas(ax, height=1.0 + cell * k)
    for sign, colour in ((1, sheet.ink.blue), (-1, sheet.ink.vermilion)):
        i, p = np.nonzero(sign * W > 0)
        corners = zip(p - side[i, p] / 2, i - side[i, p] / 2, side[i, p], strict=True)
        squares = [Rectangle((x, y), s, s) for x, y, s in corners]
        sheet.ax.add_collection(PatchCollection(squares, fc=colour, ec="none"))
    _hinton_axes(sheet.ax, sheet.ink, [feature_names(model)[j] for j in shown], q)
    scaled = getattr(model, "scale_", None) is not None or hasattr(model, "loading_names_")
    unit = " standard deviations" if scaled else ""
    words = [f"positive (a full cell is ±{largest:.2g}{unit})", "negative"]
    sheet.key([mark(sheet.ink.blue, "s"), mark(sheet.ink.vermilion, "s")], words, full=True)
    return sheet.figure


def scaled_loadings(model: Any) -> Floats:
    """Return W, (d, q), in the units of the fit."""
    if hasattr(model, "loadings_") or not hasattr(model, "explained_variance_"):
        return _directions(model)
    axes = backend.to_numpy(model.components_.T).astype(np.float64)
    return np.asarray(axes * np.sqrt(backend.to_numpy(model.explained_variance_)))


def _hinton_axes(ax: Axes, ink: Ink, names: list[str], q: int) -> None:
    """Set up cells of equal sides, features downwards and components across."""
    step = max(1, -(-q // 20))
    ax.set_xticks(np.arange(0, q, step), [str(p + 1) for p in range(0, q, step)])
    ax.set_yticks(range(len(names)), names)
    ax.set(xlim=(-0.6, q - 0.4), ylim=(len(names) - 0.4, -0.6), aspect="equal", anchor="W")
    ax.set_xlabel("component")
    ax.tick_params(length=0)
    ax.grid(False)
    ax.spines[:].set_visible(False)
    ax.set_facecolor(mixed(ink.face, ink.text, 0.06))
