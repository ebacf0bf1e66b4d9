"""Rows: their places in latent space, which are unusual and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from inspect import signature
from itertools import zip_longest
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from dualpca.app.plots._canvas import (
    DASHED,
    SMALL,
    Classed,
    Floats,
    Ink,
    Place,
    Sheet,
    canvas,
    check_groups,
    classes,
    draw_groups,
    draw_supplementary,
    ellipse,
    equal,
    feature_names,
    foremost,
    label_points,
    label_rows,
    mark,
    nameless,
    need,
    row_names,
)
from dualpca.arrays import backend
from dualpca.errors import expected
from dualpca.gaussian import Supplementary

# --- latent space ------------------------------------------------------------------------------


def latent_scatter(
    model: Any,
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    axes: tuple[int, int] = (0, 1),
    level: float = 0.9,
    n_ellipses: int = 20,
    groups: str | None = None,
    labels: Any = None,
    supplementary: Supplementary | None = None,
    ax: Place = None,
) -> Figure:
    """Draw two latent coordinates of every point, and the uncertainty of some or of groups.

    Parameters
    ----------
    model : estimator
        A fitted model that places rows in latent space; only one with ``posterior`` has ellipses.
    X : array-like of shape (n, d)
        Points to place.
    y : array-like of shape (n,), default=None
        Classes, each with a colour (repeated from the eleventh on) and its name at its median; rows
        without one (None, NaN) are grey.
    axes : pair of int, default=(0, 1)
        Which latents, counted from 0.
    level : float, default=0.9
        Probability inside an ellipse.
    n_ellipses : int, default=20
        Number of points with an ellipse of their posterior, equally many of each class, drawn with
        a fixed seed; none beside `groups` or `labels`.
    groups : {'mean', 'rows', 'both'}, default=None
        Ellipses of the classes y in place of those of points, by quantiles of F: where a further
        row of the class lies with probability `level` ('rows'), where its mean lies ('mean').
        Classes of fewer than three rows have none.
    labels : bool or sequence of n str, default=None
        Names next to the points; True for the index of a pandas frame, or numbers of rows. Names
        give way to each other and cover no point; those without room are left out and counted. A
        row whose name is None has none.
    supplementary : Supplementary, default=None
        From `dualpca.supplementary`: levels become white diamonds at their barycentres, and rows
        crosses.
    ax : Axes, Figure or SubFigure, default=None
        Where to draw; by default in a new figure.

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
    need(model, "latent_scatter", "latent coordinates", "transform", instead=NO_LATENTS)
    if not (hasattr(model, "n_components_") or hasattr(model, "coordinates_")):
        need(model, "latent_scatter", "latent coordinates", "n_components_", instead=NO_LATENTS)
    Z, covariance = _latent_placed(model, X, axes)
    if y is not None:
        classes(y, len(Z))  # refused before anything is drawn
    check_groups(groups, y, level)
    rows = row_names(labels, X, len(Z))
    sheet = canvas(ax, height=5.2)
    ax, ink = sheet.ax, sheet.ink
    named = [""], np.zeros(len(Z), dtype=np.intp), [ink.palette[0]]
    names, codes, palette = named if y is None else classes(y, len(Z), ink.palette, ink.muted)
    colours = [palette[code] for code in codes]
    ax.scatter(Z[:, 0], Z[:, 1], c=colours, s=10, alpha=0.6, linewidths=0)
    of_points = len(covariance) and groups is None and rows is None
    for i in _spread(codes, n_ellipses if of_points else 0):
        _ellipse(sheet, Z[i], covariance[i], level, colours[i])
    if groups is not None:
        marks, words = draw_groups(sheet, Z, (names, codes, palette), groups, level)
        sheet.key([*map(mark, palette), *marks], [*names, *words])
    elif y is not None and rows is not None:  # a name of a class would hide those of rows
        sheet.key([*map(mark, palette)], names)
    elif y is not None:
        _name_classes(sheet, Z, (names, codes, palette))
    words = _latent_words(model, axes)
    ax.set(xlabel=words[0], ylabel=words[1])
    equal(ax)
    centres, around = np.zeros((0, 2)), []
    if supplementary is not None:
        centres, levels = draw_supplementary(sheet, supplementary, list(axes))
        around = label_points(sheet, centres, levels, centres, Z)
    label_rows(sheet, Z, rows, centres, around)
    return sheet.figure


NO_LATENTS = "Models with components place rows there: PPCA, FactorAnalysis, KernelPCA and others."


def _latent_placed(model: Any, X: ArrayLike, axes: tuple[int, int]) -> tuple[Floats, Floats]:
    """Return positions (n, 2) and covariances (n, 2, 2); no covariances without a posterior."""
    unsure = hasattr(model, "posterior")
    found = _on_map(model, X) if unsure else (model.transform(X), None)
    mean, plane = np.asarray(found[0]), list(axes)
    q = mean.shape[1]
    if not all(0 <= a < q for a in axes):
        raise ValueError(expected("axes", f"two of the model's {q} latents, counted from 0", axes))
    if not unsure:
        return mean[:, plane], np.zeros((0, 2, 2))
    return mean[:, plane], np.asarray(found[1])[:, plane][:, :, plane]


def _on_map(model: Any, X: ArrayLike) -> tuple[Any, Any]:
    """Return means and covariances given the axes: how sure the map is of them is not asked."""
    fixed = {"parameters": "fixed"} if "parameters" in signature(model.posterior).parameters else {}
    found: tuple[Any, Any] = model.posterior(X, **fixed)
    return found


def _latent_words(model: Any, axes: tuple[int, int]) -> list[str]:
    """Return what the axes are called, with shares of the variance where the model has them."""
    shares = getattr(model, "explained_variance_ratio_", None)
    if shares is None:
        return [f"latent {a + 1}" for a in axes]
    return [f"latent {a + 1} ({100 * float(shares[a]):.1f} % of the variance)" for a in axes]


def _spread(codes: NDArray[np.intp], count: int) -> list[int]:
    """Return `count` random positions, taken from the classes in turn."""
    order = np.random.default_rng(0).permutation(codes.size)
    turns = zip_longest(*(order[codes[order] == code] for code in np.unique(codes)))
    return [int(i) for turn in turns for i in turn if i is not None][:count]


def _ellipse(sheet: Sheet, centre: Floats, covariance: Floats, level: float, colour: str) -> None:
    """Draw the ellipse that holds `level` of a Gaussian in the plane."""
    radius = math.sqrt(-2 * math.log1p(-level))
    sheet.ax.add_patch(ellipse(centre, covariance, radius, fc=colour, alpha=0.28, lw=0))
    sheet.ax.plot(*centre, "o", ms=4, color=colour, mec=sheet.ink.text, mew=0.6)


def _name_classes(sheet: Sheet, Z: Floats, classed: Classed) -> None:
    """Write the names of classes at their medians."""
    names, codes, palette = classed
    for code, name in enumerate(names):
        if palette[code] != sheet.ink.muted:  # rows without a class are no group
            _name(sheet, np.median(Z[codes == code], axis=0), name, palette[code])


def _name(sheet: Sheet, at: Floats, name: str, colour: str) -> None:
    """Write the name of a class at its place, framed in its colour."""
    plate = {"boxstyle": "round,pad=0.3", "fc": sheet.ink.face, "ec": colour, "lw": 2.2}
    text = sheet.ax.text(at[0], at[1], name, ha="center", va="center", zorder=5, bbox=plate)
    text.set(fontsize=SMALL, weight="bold", color=sheet.ink.text)


# --- unusual rows ------------------------------------------------------------------------------

NO_LIMITS = (
    "KernelPCA tells unusual rows by model.is_novel(X), mixtures and chains by "
    "dualpca.conformal(model, X).p_values(X_new)."
)

FAR = 12.0
"""Multiple of its limit from which a statistic is drawn on a logarithmic axis."""


NAMES = {"spe": "SPE", "t2": "T²"}
SIGNS = {
    "spe": ("more than the model expects", "less"),
    "t2": ("towards larger values", "smaller"),
}


def outlier_map(
    model: Any, X: ArrayLike, *, level: float = 0.95, n_labels: int = 8, ax: Place = None
) -> Figure:
    """Draw T² against SPE, with both control limits.

    Rows to the right are extreme along the components; rows at the top are not described by
    them. Rows with NaN have limits of their own: both statistics are drawn relative to those, so
    that the lines are right for every row.

    Parameters
    ----------
    model : PCA, PPCA, FactorAnalysis or CopulaPPCA
        A fitted model.
    X : array or frame of shape (n, d)
    level : float, default=0.95
        Of both limits together, as in `outliers`.
    n_labels : int, default=8
        Number of flagged rows that are labelled, by number or by their index in a pandas frame.
    ax : Axes, Figure or SubFigure, default=None
        Where to draw; by default in a new figure.

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
    need(model, "outlier_map", "T² and SPE with their limits", "outliers", instead=NO_LIMITS)
    found = model.outliers(X, level)
    found = type(found)(*map(backend.to_numpy, found))
    limits = _outlier_limits(model, found, level)
    places, ratios = _outlier_placed(found, limits)
    sheet = canvas(ax, height=4.6)
    ax, ink = sheet.ax, sheet.ink
    colours = np.where(found.flagged, ink.vermilion, ink.blue)
    ax.scatter(places[:, 0], places[:, 1], c=colours, s=12, alpha=0.65, linewidths=0, zorder=3)
    ax.set(xlabel="T²", ylabel="SPE")
    _scales(ax, places, limits)
    _mark_limits(sheet, limits, level)
    worst = foremost(np.where(found.flagged, ratios.max(axis=1), -1.0), n_labels)
    worst = worst[found.flagged[worst]]
    words = [str(label) for label in getattr(X, "index", range(len(places)))]
    away = np.broadcast_to([1.0, 1.0], (len(worst), 2))
    label_points(sheet, places[worst], [words[i] for i in worst], away, places)
    return sheet.figure


def _outlier_limits(model: Any, found: Any, level: float) -> Floats:
    """Return both limits of complete rows as `outliers` takes them, (2,)."""
    if hasattr(model, "mean_"):
        found = nameless(model).outliers(model.mean_[None, :], level)
    # columns of any kind have no mean row: the largest are those of the most complete rows
    both = (found.t2_limit, found.spe_limit)
    return np.array([np.max(backend.to_numpy(limit)) for limit in both], dtype=np.float64)


def _outlier_placed(found: Any, limits: Floats) -> tuple[Floats, Floats]:
    """Return where rows are drawn (n, 2), and each statistic as a multiple of its limit."""
    values = np.stack([found.t2, found.spe], axis=1)
    own = np.stack([found.t2_limit, found.spe_limit], axis=1)
    usable = np.isfinite(own) & (own > 0)
    ratios = np.where(usable, values / np.where(usable, own, 1.0), values > 0)
    scale = np.where(np.isfinite(limits) & (limits > 0), limits, 1.0)
    return np.where(usable, ratios * scale, values), ratios


def _scales(ax: Axes, places: Floats, limits: Floats) -> None:
    """Choose logarithmic axes where some row is far out, and make room for the limits."""
    for axis, values, limit in zip("xy", places.T, limits, strict=True):
        top = max(values.max(initial=0.0), limit if np.isfinite(limit) else 0.0) or 1.0
        positive = values[values > 0]
        if np.isfinite(limit) and limit > 0 and values.max(initial=0.0) > FAR * limit:
            low = max(positive.min(), 1e-3 * limit)
            ax.set(**{f"{axis}scale": "log", f"{axis}lim": (0.7 * low, 1.8 * top)})
        else:
            ax.set(**{f"{axis}lim": (-0.02 * top, 1.12 * top)})


def _mark_limits(sheet: Sheet, limits: Floats, level: float) -> None:
    """Draw the limits that exist, with a legend for lines and colours."""
    ax, ink = sheet.ax, sheet.ink
    if np.isfinite(limits[0]):
        ax.axvline(limits[0], color=ink.muted, lw=1.2, ls=DASHED, zorder=2)
    if np.isfinite(limits[1]):
        ax.axhline(limits[1], color=ink.muted, lw=1.2, ls=DASHED, zorder=2)
    words = [f"limits, {100 * level:g} %", "above one of them"]
    sheet.key([mark(ink.muted, "--"), mark(ink.vermilion)], words)


def contribution_plot(
    model: Any,
    x: ArrayLike,
    *,
    to: str = "spe",
    level: float = 0.95,
    n_features: int = 15,
    ax: Place = None,
) -> Figure:
    """Draw what each feature contributes to one row's SPE or T².

    Parameters
    ----------
    model : PCA, PPCA or FactorAnalysis
        A fitted model.
    x : array of shape (d,) or (1, d), or a frame of one row
    to : {'spe', 't2'}, default='spe'
    level : float, default=0.95
        Level of the limit that is written next to the statistic.
    n_features : int, default=15
        Number of features, those with the largest contributions first. Features that the row does
        not have are listed below them, as missing.
    ax : Axes, Figure or SubFigure, default=None
        Where to draw; by default in a new figure.

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
    need(model, "contribution_plot", "contributions of features", "contributions")
    row = _one_row(x)
    parts = backend.to_numpy(model.contributions(row, to=to, signed=True))[0]
    seen = ~np.isnan(backend.to_numpy(row)[0].astype(np.float64))
    observed, absent = np.flatnonzero(seen), np.flatnonzero(~seen)
    shown = observed[np.argsort(-np.abs(parts[observed]), kind="stable")][:n_features]
    names = feature_names(model)
    words = [*(names[j] for j in shown), *_absent([names[j] for j in absent])]
    title = f"{NAMES[to]} {_verdict(model.outliers(row, level), to)} ({100 * level:g} %)"
    sheet = canvas(ax, height=max(2.2, 1.3 + 0.26 * len(words)))
    ax, ink = sheet.ax, sheet.ink
    draw_bars(ax, ink, parts[shown], words)
    for label in ax.get_yticklabels()[len(shown) :]:
        label.set(color=ink.muted, style="italic")
    ax.set_xlabel(f"contribution to {NAMES[to]}")
    ax.set_title(title, loc="left", fontsize=SMALL, color=ink.text)
    sheet.key([mark(ink.vermilion, "s"), mark(ink.blue, "s")], SIGNS[to], below=True)
    return sheet.figure


def draw_bars(ax: Axes, ink: Ink, parts: Floats, words: Sequence[str]) -> None:
    """Draw contributions downwards, in the colour of their sign; more words have no bar."""
    colours = np.where(parts < 0, ink.blue, ink.vermilion)
    ax.barh(range(len(parts)), np.abs(parts), color=colours, height=0.72)
    ax.set_yticks(range(len(words)), words)
    ax.set_ylim(len(words) - 0.4, -0.6)
    ax.grid(False, axis="y")
    ax.tick_params(axis="y", length=0)


MOST_ABSENT = 5
"""Missing features that are listed by name."""


def _absent(names: list[str]) -> list[str]:
    """Return labels of features that a row does not have."""
    more = len(names) - MOST_ABSENT
    found = [f"{name} (missing)" for name in names[:MOST_ABSENT]]
    return found + ([f"{more} more missing"] if more > 0 else [])


def _verdict(found: Any, to: str) -> str:
    """Return a statistic, its p-value and its limit in words."""
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
