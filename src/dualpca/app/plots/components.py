"""What components have to do with columns and rows: correlations, cos², contributions, errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from matplotlib.patches import Circle
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike
from scipy import special

import dualpca
from dualpca.app.plots._canvas import (
    DASHED,
    Floats,
    Ink,
    Place,
    canvas,
    check_level,
    feature_names,
    floats_of,
    foremost,
    label_points,
    mark,
    need,
    row_names,
)
from dualpca.app.plots.loadings import axis_words, check_axes, draw_arrows, scaled_loadings
from dualpca.arrays import backend
from dualpca.errors import expected
from dualpca.estimators.calibrating import quietly, refittable
from dualpca.gaussian import Supplementary

# --- the correlation circle --------------------------------------------------------------------


def correlation_circle(
    model: Any,
    X: ArrayLike,
    *,
    axes: tuple[int, int] = (0, 1),
    n_features: int = 40,
    supplementary: Supplementary | None = None,
    ax: Place = None,
) -> Figure:
    """Draw the correlation of every column with two components, in the unit circle.

    The squared length of an arrow is the share of the column's variance in the plane (cos²). Only
    of columns that come near the circle does the plane say how they are correlated.

    Parameters
    ----------
    model : PCA, PPCA, FactorAnalysis or CopulaPPCA
        A fitted model of two components or more. Of CopulaPPCA the hidden scales of columns and
        levels are correlated with the latents, and X is not used.
    X : array or frame of shape (n, d)
        The table it was fitted to. Of a column with NaN the rows count that have it.
    axes : pair of int, default=(0, 1)
        Which components, counted from 0.
    n_features : int, default=40
        Number of arrows, the longest in the plane.
    supplementary : Supplementary, default=None
        From `dualpca.supplementary` for the same rows: numbers become dashed arrows.
    ax : Axes, Figure or SubFigure, default=None
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import PCA
    >>> X = load_iris(as_frame=True).data
    >>> figure = correlation_circle(PCA(2, standardize=True).fit(X), X)
    >>> [label.get_text() for label in figure.axes[0].texts][0]
    'sepal length (cm)'
    """
    what = "correlations of columns with components"
    need(model, "correlation_circle", what, "components_", "transform")
    plane = check_axes(model, axes)
    found = column_correlations(model, X)[:, plane]
    shown = foremost(np.linalg.norm(found, axis=1), n_features)
    tips, names = found[shown], [feature_names(model)[j] for j in shown]
    sheet = canvas(ax, height=5.6, width=5.6)
    ax, ink = sheet.ax, sheet.ink
    for radius, style in ((1.0, "-"), (0.5**0.5, ":")):
        ax.add_patch(Circle((0, 0), radius, fill=False, ec=ink.muted, lw=1.0, ls=style))
    ax.axhline(0, color=ink.grid, lw=1, zorder=1)
    ax.axvline(0, color=ink.grid, lw=1, zorder=1)
    draw_arrows(sheet, tips)
    if supplementary is not None:
        outside = np.nan_to_num(supplementary.numbers.correlation[:, plane])
        draw_arrows(sheet, outside, dashed=True)
        tips = np.concatenate([tips, outside])
        names += supplementary.numbers.names
    words = axis_words(model, axes)
    ax.set(xlabel=words[0], ylabel=words[1], aspect="equal")
    ax.set(xlim=(-ROOM, ROOM), ylim=(-ROOM, ROOM), xticks=TICKS, yticks=TICKS)
    shafts = (tips[:, None, :] * np.linspace(0.1, 0.95, 40)[:, None]).reshape(-1, 2)
    label_points(sheet, tips, names, tips, shafts)
    return sheet.figure


ROOM = 1.22
"""Half the side of the axes around the unit circle."""

TICKS = (-1.0, -0.5, 0.0, 0.5, 1.0)


def column_correlations(model: Any, X: Any) -> Floats:
    """Return correlations of columns with components, (d, q).

    With the scores, as FactoMineR's `var$cor`. Columns of any kind have hidden scales with a
    variance of 1, on which loadings are correlations with the latents; that of a level of a nominal
    column has noise of variance 1 beside its loadings w, and so the correlation w / √(‖w‖² + 1).
    """
    if hasattr(model, "loading_names_"):
        W = np.asarray(model.loadings_, dtype=np.float64)
        of_level: list[bool] = []
        for name, kind in model.column_kinds_.items():
            of_level += [True] * len(model.levels_[name]) if kind == "nominal" else [False]
        size = np.sqrt(1 + np.sum(W**2, axis=1, keepdims=True))
        return np.where(np.array(of_level)[:, None], W / size, W)
    rows = floats_of(X)
    found = dualpca.supplementary(model, X, rows).numbers.correlation
    return np.nan_to_num(found)  # of a constant column


# --- cos² and contributions --------------------------------------------------------------------

SHOWS = {"cos2": "cos²", "contribution": "contribution"}
"""What bars can show, and what it is called."""


def quality_bars(
    model: Any,
    X: ArrayLike,
    *,
    show: str = "cos2",
    of: str = "columns",
    axes: Sequence[int] = (0, 1),
    n_bars: int = 20,
    labels: Any = None,
    ax: Place = None,
) -> Figure:
    """Draw how well columns or rows are shown by components, or what they contribute to them.

    cos² is the share of a column's variance, or of a row's squared distance from the mean, along a
    component: near 1 in all, the plane shows it. A contribution is the share of a component's
    variance that a column or a row accounts for; over several components they are weighted by
    variance. Both are FactoMineR's.

    Parameters
    ----------
    model : PCA, PPCA, FactorAnalysis or CopulaPPCA
        A fitted model. The last two have no cos² and no contributions of rows that would add up.
    X : array or frame of shape (n, d)
        The table it was fitted to.
    show : {'cos2', 'contribution'}, default='cos2'
    of : {'columns', 'rows'}, default='columns'
    axes : sequence of int, default=(0, 1)
        Which components, counted from 0.
    n_bars : int, default=20
        Number of bars, the longest.
    labels : bool or sequence of n str, default=None
        Names of rows; by default the index of a pandas frame, or numbers.
    ax : Axes, Figure or SubFigure, default=None
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        A bar for each, with a part for each component. The dashed line is the contribution that all
        would have if they contributed alike.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import PCA
    >>> X = load_iris(as_frame=True).data
    >>> figure = quality_bars(PCA(2, standardize=True).fit(X), X, show="contribution")
    >>> figure.axes[0].get_yticklabels()[0].get_text()
    'sepal width (cm)'
    """
    for name, value, known in (("show", show, SHOWS), ("of", of, ("columns", "rows"))):
        if value not in known:
            raise ValueError(expected(name, f"one of {list(known)}", value))
    what = f"cos² and contributions of {of}"
    need(model, "quality_bars", what, "components_", "transform")
    chosen = check_axes(model, axes, count=None)
    parts = (_of_rows if of == "rows" else _of_columns)(model, X, show)[:, chosen]
    if show == "contribution":
        weight = _variances(model)[chosen]
        parts = parts * (weight / (weight.sum() or 1.0))
    names = feature_names(model)
    if of == "rows":
        names = row_names(True if labels is None else labels, X, len(parts)) or [""] * len(parts)
    order = np.argsort(-parts.sum(axis=1), kind="stable")[:n_bars]
    sheet = canvas(ax, height=1.4 + 0.26 * len(order))
    ax, ink = sheet.ax, sheet.ink
    start, marks = np.zeros(len(order)), []
    for k, own in enumerate(parts[order].T):
        colour = ink.palette[k % len(ink.palette)]
        ax.barh(range(len(order)), own, left=start, color=colour, height=0.72)
        start = start + own
        marks.append(mark(colour, "s"))
    words = [f"component {a + 1}" for a in chosen]
    if show == "contribution":
        ax.axvline(1 / len(parts), color=ink.text, lw=1.2, ls=DASHED)
        marks, words = [*marks, mark(ink.text, "--")], [*words, "all alike"]
    _named_bars(ax, [names[i] for i in order])
    ax.set_xlim(0, 1.0 if show == "cos2" else 1.06 * max(float(start.max(initial=0.0)), 1e-12))
    if show == "contribution":
        ax.xaxis.set_major_locator(MaxNLocator(6))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g} %"))
    ax.set_xlabel(f"{SHOWS[show]} of {of}")
    sheet.key(marks, words)
    return sheet.figure


def _named_bars(ax: Axes, names: Sequence[str]) -> None:
    """Name lines from above."""
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(False, axis="y")
    ax.tick_params(axis="y", length=0)


def _of_columns(model: Any, X: Any, show: str) -> Floats:
    """Return cos² or contributions of columns, (d, q)."""
    if show == "cos2":
        return column_correlations(model, X) ** 2
    on_scales = hasattr(model, "loading_names_")  # hidden ones, of columns and levels alike
    squares = (column_correlations(model, X) if on_scales else scaled_loadings(model)) ** 2
    return np.asarray(squares / np.maximum(squares.sum(axis=0), 1e-300))


def _of_rows(model: Any, X: Any, show: str) -> Floats:
    """Return cos² or contributions of rows, (n, q)."""
    placed = dualpca.supplementary(model, X, rows=X).rows
    if placed is None or placed.cos2 is None:
        kind = type(model).__name__
        raise TypeError(
            f"plots.quality_bars draws cos² and contributions of rows, which {kind} does not have, "
            "as its latents are no orthogonal axes of the table. It has those of columns: "
            "of='columns'."
        )
    if show == "cos2":
        return np.asarray(placed.cos2)
    squares = np.asarray(placed.coordinates) ** 2
    return np.asarray(squares / np.maximum(squares.sum(axis=0), 1e-300))


def _variances(model: Any) -> Floats:
    """Return how much weight components have: their variances, or sums of squared loadings."""
    if hasattr(model, "explained_variance_"):
        return np.asarray(model.explained_variance_, dtype=np.float64)
    return np.asarray((scaled_loadings(model) ** 2).sum(axis=0))


# --- loadings with errors ----------------------------------------------------------------------


def loading_plot(
    model: Any,
    X: ArrayLike | None = None,
    *,
    axes: Sequence[int] | None = None,
    n_features: int = 20,
    level: float = 0.95,
    n_draws: int = 50,
    random_state: int = 0,
    ax: Place = None,
) -> Figure:
    """Draw loadings as dots with intervals, a panel for each component.

    Parameters
    ----------
    model : PCA, PPCA, FactorAnalysis, BayesianPCA or CopulaPPCA
        A fitted model. Loadings are in the units of the fit, as in `hinton`.
    X : array or frame of shape (n, d), default=None
        The table it was fitted to, for intervals: the model is refitted with as many components to
        Bayesian bootstraps of its rows (Rubin 1981), matched by order and sign. Without it only
        BayesianPCA has intervals, of its posterior.
    axes : sequence of int, default=None
        Which components, counted from 0; the first three by default.
    n_features : int, default=20
        Number of features, those with the largest loadings, in the order of the table.
    level : float, default=0.95
        Probability of the intervals, which are normal.
    n_draws : int, default=50
        Number of refits.
    random_state : int, default=0
    ax : sequence of Axes, Figure or SubFigure, default=None
        Where to draw: an axes for each component, or a figure for all; by default a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        Intervals without 0 are blue. Wide ones everywhere mean that two components are about
        equally strong and can be told apart only poorly.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import PCA
    >>> X = load_iris(as_frame=True).data
    >>> figure = loading_plot(PCA(2, standardize=True).fit(X), X, n_draws=10)
    >>> [ax.get_title(loc="left") for ax in figure.axes]
    ['component 1', 'component 2']
    """
    need(model, "loading_plot", "loadings", "components_")
    check_level(level)
    q = int(model.components_.shape[0])
    chosen = check_axes(model, range(min(q, 3)) if axes is None else axes, count=None)
    W = scaled_loadings(model)
    error = loading_errors(model, X, n_draws, random_state) if X is not None else _own_error(model)
    shown = foremost(np.abs(W[:, chosen]).max(axis=1, initial=0.0), n_features)
    names = [feature_names(model)[j] for j in shown]

    def make(region: FigureBase) -> list[Axes]:
        return list(region.subplots(1, len(chosen), sharey=True, sharex=True, squeeze=False)[0])

    height, width = 1.3 + 0.26 * len(shown), 2.4 + 2.2 * len(chosen)
    sheet = canvas(ax, height, make, count=len(chosen), width=width)
    reach = float(special.ndtri((1 + level) / 2)) * error
    for one, p in zip(sheet.axes, chosen, strict=True):
        one.axvline(0, color=sheet.ink.muted, lw=1, zorder=1)
        _dots(one, sheet.ink, W[shown, p], reach[shown, p])
        _named_bars(one, names)
        one.set_title(f"component {p + 1}", loc="left", fontsize="medium", color=sheet.ink.text)
        one.xaxis.set_major_locator(MaxNLocator(4))
    if sheet.region is not None:
        sheet.region.supxlabel("loading", fontsize="medium", color=sheet.ink.text)
    if np.isfinite(reach).any():
        marks = [mark(sheet.ink.blue), mark(sheet.ink.muted)]
        sheet.key(marks, [f"{100 * level:g} % interval without 0", "with 0"])
    return sheet.figure


def _dots(ax: Axes, ink: Ink, middle: Floats, reach: Floats) -> None:
    """Draw loadings with their intervals, those that include 0 muted."""
    unsure = np.abs(middle) < np.nan_to_num(reach)
    for colour, mine in ((ink.blue, ~unsure), (ink.muted, unsure)):
        look: dict[str, Any] = {"fmt": "o", "ms": 5, "elinewidth": 1.4, "capsize": 2.5}
        bars = np.nan_to_num(reach[mine])
        ax.errorbar(middle[mine], np.flatnonzero(mine), xerr=bars, color=colour, zorder=3, **look)


def _own_error(model: Any) -> Floats:
    """Return posterior standard deviations of the loadings, in the units of the fit; else NaN."""
    W = scaled_loadings(model)
    found = getattr(model, "loadings_std_", None)
    if found is None:
        return np.full_like(W, np.nan)
    scale = getattr(model, "scale_", None)
    std = backend.to_numpy(found).astype(np.float64)
    return std if scale is None else std / backend.to_numpy(scale)[:, None]


def loading_errors(model: Any, X: Any, n_draws: int, seed: int) -> Floats:
    """Return standard errors of the loadings, (d, q), from refits to weighted rows.

    Rows are weighted and not drawn: then every level of a category is in every refit.
    """
    W, rng, found = scaled_loadings(model), np.random.default_rng(seed), []
    for _ in range(n_draws):
        weights = rng.exponential(size=len(X))
        with quietly():
            fresh = refittable(model).fit(X, sample_weight=weights * len(X) / weights.sum())
        again = scaled_loadings(fresh)
        found.append(again * np.where(np.sum(again * W, axis=0) < 0, -1.0, 1.0))
    return np.asarray(np.std(found, axis=0))
