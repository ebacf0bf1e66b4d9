"""Rows: where they lie in latent space, and which are unusual because of which features."""

from __future__ import annotations

import math
from itertools import zip_longest
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from numpy.typing import ArrayLike, NDArray

from dualpca.app.plots._canvas import (
    BLUE,
    DASHED,
    INK,
    MUTED,
    PALETTE,
    SMALL,
    VERMILION,
    Floats,
    blank,
    feature_names,
    foremost,
    key,
    label_points,
    mark,
)
from dualpca.arrays import backend
from dualpca.errors import expected
from dualpca.gaussian import Outliers

# --- Rows in the plane of two latents ------------------------------------------------------------


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
    Z, covariance = _latent_placed(model, X, list(axes))
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


def _latent_placed(model: Any, X: ArrayLike, plane: list[int]) -> tuple[Floats, Floats]:
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


# --- Which rows are unusual, and because of which features ---------------------------------------

FAR = 12.0
"""Times its limit: beyond, a statistic is drawn on a logarithmic axis."""


NAMES = {"spe": "SPE", "t2": "T²"}
SIGNS = {
    "spe": ("more than the model expects", "less"),
    "t2": ("towards larger values", "smaller"),
}


def outlier_map(model: Any, X: ArrayLike, *, level: float = 0.95, n_labels: int = 8) -> Figure:
    """Draw T² against SPE, with both limits.

    To the right lie rows that are extreme along the components, above rows that the components do
    not describe. Rows with NaN have limits of their own: both statistics are drawn in proportion
    to those, so that every row stands to the lines as it should.

    Parameters
    ----------
    model : PCA, PPCA or FactorAnalysis
        A fitted model.
    X : array or frame of shape (n, d)
    level : float
        Of each limit.
    n_labels : int
        How many of the flagged rows have their number (in a pandas frame, their index) written.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from dualpca import PCA
    >>> X = load_wine().data
    >>> figure = outlier_map(PCA(3, standardize=True).fit(X), X)
    >>> figure.axes[0].get_xlabel()
    'T²'
    """
    found = Outliers(*(backend.to_numpy(part) for part in model.outliers(X, level)))
    limits = np.array([model.t2_limit(level), model.spe_limit(level)])
    places, ratios = _outlier_placed(found, limits)
    figure, ax = blank(height=4.6)
    colours = np.where(found.flagged, VERMILION, BLUE)
    ax.scatter(places[:, 0], places[:, 1], c=colours, s=12, alpha=0.65, linewidths=0, zorder=3)
    ax.set(xlabel="T²", ylabel="SPE")
    _scales(ax, places, limits)
    _mark_limits(figure, ax, limits, level)
    worst = foremost(np.where(found.flagged, ratios.max(axis=1), -1.0), n_labels)
    worst = worst[found.flagged[worst]]
    words = [str(label) for label in getattr(X, "index", range(len(places)))]
    away = np.broadcast_to([1.0, 1.0], (len(worst), 2))
    label_points(ax, places[worst], [words[i] for i in worst], away, places)
    return figure


def _outlier_placed(found: Outliers, limits: Floats) -> tuple[Floats, Floats]:
    """Return where rows are drawn (n, 2), and how many times its limit each statistic is."""
    values = np.stack([found.t2, found.spe], axis=1)
    own = np.stack([found.t2_limit, found.spe_limit], axis=1)
    usable = np.isfinite(own) & (own > 0)
    ratios = np.where(usable, values / np.where(usable, own, 1.0), values > 0)
    scale = np.where(np.isfinite(limits) & (limits > 0), limits, 1.0)
    return np.where(usable, ratios * scale, values), ratios


def _scales(ax: Axes, places: Floats, limits: Floats) -> None:
    """Choose logarithmic axes where some row lies far out, and room for the limits."""
    for axis, values, limit in zip("xy", places.T, limits, strict=True):
        top = max(values.max(initial=0.0), limit if np.isfinite(limit) else 0.0) or 1.0
        positive = values[values > 0]
        if np.isfinite(limit) and limit > 0 and values.max(initial=0.0) > FAR * limit:
            low = max(positive.min(), 1e-3 * limit)
            ax.set(**{f"{axis}scale": "log", f"{axis}lim": (0.7 * low, 1.8 * top)})
        else:
            ax.set(**{f"{axis}lim": (-0.02 * top, 1.12 * top)})


def _mark_limits(figure: Figure, ax: Axes, limits: Floats, level: float) -> None:
    """Draw the limits that are there, and say what the lines and colours mean."""
    if np.isfinite(limits[0]):
        ax.axvline(limits[0], color=MUTED, lw=1.2, ls=DASHED, zorder=2)
    if np.isfinite(limits[1]):
        ax.axhline(limits[1], color=MUTED, lw=1.2, ls=DASHED, zorder=2)
    words = [f"limits, {100 * level:g} %", "above one of them"]
    key(figure, [mark(MUTED, "--"), mark(VERMILION)], words)


def contribution_plot(
    model: Any, x: ArrayLike, *, to: str = "spe", level: float = 0.95, n_features: int = 15
) -> Figure:
    """Draw what each feature contributes to one row's SPE or T².

    Parameters
    ----------
    model : PCA, PPCA or FactorAnalysis
        A fitted model.
    x : array of shape (d,) or (1, d), or a frame of one row
    to : {'spe', 't2'}
    level : float
        Of the limit that is written beside the statistic.
    n_features : int
        How many features: the largest contributions, largest first.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import PPCA
    >>> X = load_iris(as_frame=True).data
    >>> figure = contribution_plot(PPCA(2).fit(X), X.iloc[[41]])
    >>> figure.axes[0].get_yticklabels()[0].get_text()
    'sepal width (cm)'
    """
    row = _one_row(x)
    parts = backend.to_numpy(model.contributions(row, to=to, signed=True))[0]
    observed = np.flatnonzero(~np.isnan(backend.to_numpy(row)[0].astype(np.float64)))
    shown = observed[np.argsort(-np.abs(parts[observed]), kind="stable")][:n_features]
    figure, ax = blank(height=max(2.2, 1.3 + 0.26 * len(shown)))
    colours = np.where(parts[shown] < 0, VERMILION, BLUE)
    ax.barh(range(len(shown)), np.abs(parts[shown]), color=colours, height=0.72)
    ax.set_yticks(range(len(shown)), [feature_names(model)[j] for j in shown])
    ax.set(xlabel=f"contribution to {NAMES[to]}", ylim=(len(shown) - 0.4, -0.6))
    ax.grid(False, axis="y")
    title = f"{NAMES[to]} {_verdict(model.outliers(row, level), to)} ({100 * level:g} %)"
    ax.set_title(title, loc="left", fontsize=SMALL, color=INK)
    key(figure, [mark(BLUE, "s"), mark(VERMILION, "s")], SIGNS[to], below=True)
    return figure


def _verdict(found: Outliers, to: str) -> str:
    """Say how large a statistic is beside its limit."""
    parts = (getattr(found, to + tail) for tail in ("", "_pvalue", "_limit"))
    statistic, p, limit = (float(backend.to_numpy(part)[0]) for part in parts)
    small = f"= {p:.2g}" if p >= 1e-4 else "< 0.0001"
    return f"{statistic:.3g}, p {small}, limit {limit:.3g}"


def _one_row(x: Any) -> Any:
    """Return x as a table of one row; a frame stays one."""
    if hasattr(x, "columns"):
        row = x
    elif backend.is_foreign(x):
        row = x if x.ndim == 2 else x[None, :]
    else:
        row = np.atleast_2d(np.asarray(x))
    if row.shape[0] != 1:
        raise ValueError(expected("x", "one row", tuple(row.shape)))
    return row
