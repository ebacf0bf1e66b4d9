"""Missing entries: where they are, what is filled in, and how far that can be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure, FigureBase
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from dualpca.app.plots._canvas import (
    SMALL,
    Floats,
    Ink,
    Place,
    Sheet,
    canvas,
    check_level,
    is_missing,
    mark,
    mixed,
    need,
)
from dualpca.errors import expected
from dualpca.estimators.calibrating import hideable_numbers, predicted
from dualpca.gaussian.calibration import (
    LEVELS,
    Calibration,
    Overimputed,
    checked_levels,
    deal,
    hide,
)

Bools = NDArray[np.bool_]
Ints = NDArray[np.intp]

# --- where entries are missing -----------------------------------------------------------------


def missing_map(
    X: ArrayLike, *, n_features: int = 30, n_patterns: int = 25, ax: Place = None
) -> Figure:
    """Draw which entries are missing together: one line for every pattern, most rows first.

    Columns stand by their share of missing entries, the largest first. A pattern is a set of
    columns that a row misses; at its right stands how many rows have it.

    Parameters
    ----------
    X : array or frame of shape (n, d)
        NaN, None or null where an entry is missing.
    n_features : int, default=30
        Number of columns, those with the most missing entries; complete ones last.
    n_patterns : int, default=25
        Number of patterns, the most frequent ones. How many rows have others is written below.
    ax : Axes, Figure or SubFigure, default=None
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, np.nan, 3.0], [1.0, 2.0, 3.0], [np.nan, np.nan, 1.0], [1.0, 2.0, 2.0]])
    >>> figure = missing_map(X)
    >>> [label.get_text().split() for label in figure.axes[0].get_xticklabels()]
    [['x1', '50', '%'], ['x0', '25', '%'], ['x2', '0', '%']]
    """
    names, cells = _cells(X)
    missing = _absent(cells)
    if not missing.size:
        raise ValueError(expected("X", "a table with rows and columns", missing.shape))
    share = missing.mean(axis=0)
    columns = np.argsort(-share, kind="stable")[:n_features]
    patterns, counts = np.unique(missing, axis=0, return_counts=True)
    order = np.lexsort((patterns.sum(axis=1), -counts))[:n_patterns]
    k, c = len(order), len(columns)
    upright = sum(max(len(names[j]), 4) + 2 for j in columns) * LETTER > 6.0
    longest = max(len(names[j]) for j in columns) if upright else 0
    left = len(patterns) - k
    sheet = canvas(ax, height=1.3 + 0.24 * (k + bool(left)) + LETTER * longest)
    ax, ink = sheet.ax, sheet.ink
    seen = mixed(ink.face, ink.blue, 0.28)
    paint = ListedColormap([seen, ink.vermilion])
    edges = np.arange(c + 1) - 0.5, np.arange(k + 1) - 0.5
    look: dict[str, Any] = {"vmin": 0, "vmax": 1, "edgecolors": ink.face, "linewidth": 1.2}
    ax.pcolormesh(*edges, patterns[order][:, columns].astype(float), cmap=paint, **look)
    ax.set(xlim=(-0.5, c - 0.5), ylim=(k - 0.5, -0.5))
    ax.xaxis.tick_top()
    join = "  " if upright else "\n"
    words = [f"{names[j]}{join}{_percent(share[j])}" for j in columns]
    ax.set_xticks(range(c), words, rotation=90 if upright else 0, fontsize=SMALL)
    ax.yaxis.tick_right()
    ax.set_yticks(range(k), [_rows_words(counts[i], len(cells), i == order[0]) for i in order])
    ax.tick_params(length=0)
    ax.grid(False)
    ax.spines[:].set_visible(False)
    if left:
        gone = int(counts.sum() - counts[order].sum())
        ax.set_xlabel(f"{left} more patterns, of {gone} rows", loc="right", fontsize=SMALL)
    marks = [mark(ink.vermilion, "s"), mark(seen, "s")]
    total = f"missing ({_percent(missing.mean())} of all entries)"
    sheet.key(marks, [total, "known"], below=True, full=True)
    return sheet.figure


LETTER = 0.085
"""Inches of a letter."""


def _percent(share: float) -> str:
    """Return a share in words; no share that is not 0 reads so.

    Examples
    --------
    >>> _percent(0.0), _percent(0.001), _percent(0.236)
    ('0 %', '< 1 %', '24 %')
    """
    return "< 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def _rows_words(count: int, n: int, first: bool) -> str:
    return f"{count:,} {'rows ' if first else ''}({_percent(count / n)})"


# --- what is filled in -------------------------------------------------------------------------

KINDS = ("density", "strip", "scatter")
"""How filled values can be drawn beside measured ones."""

PANELS, ACROSS = 6, 3
"""Columns that are drawn, and how many side by side."""

MOST = 400
"""Measured values that are drawn in a strip."""

CURVE = 8
"""Filled values from which the density of every draw is drawn; of fewer, of all draws together."""


def imputed_values(
    model: Any,
    X: ArrayLike,
    *,
    kind: str = "density",
    columns: Sequence[Any] | None = None,
    n_draws: int = 5,
    random_state: int = 0,
    ax: Place = None,
) -> Figure:
    """Draw values that are filled in beside those that were measured.

    They may differ where entries are missing for a reason that other columns know: if tall people
    are weighed less often, the weights filled in are higher. Values that nobody can have, or a
    difference that nothing explains, say that the model does not fit.

    Parameters
    ----------
    model : PPCA, FactorAnalysis, BayesianPCA, RobustPPCA, CopulaPPCA or Imputer
        A fitted model that draws completed tables.
    X : array or frame of shape (n, d)
        The table it was fitted to, with missing entries.
    kind : {'density', 'strip', 'scatter'}, default='density'
        Densities of each column; every value, draw by draw; or two columns against each other,
        with the rows marked in which one of them or both were filled in, by one draw. Of
        categories the shares of levels are drawn.
    columns : sequence of str or int, default=None
        Names or positions; two for a scatter plot. By default those with the most missing entries,
        up to six.
    n_draws : int, default=5
        Number of completed tables.
    random_state : int, default=0
    ax : sequence of Axes, Figure or SubFigure, default=None
        Where to draw: an axes for each column, or a figure for all; by default a new figure.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import PPCA
    >>> X = load_iris().data
    >>> X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    >>> figure = imputed_values(PPCA(2).fit(X), X, columns=[0, 2])
    >>> [ax.get_title(loc="left") for ax in figure.axes]
    ['x0: 15 filled', 'x2: 11 filled']
    """
    if kind not in KINDS:
        raise ValueError(expected("kind", f"one of {list(KINDS)}", kind))
    draws_what = "completed tables"
    need(model, "imputed_values", draws_what, "sample_imputations", instead=NO_DRAWS)
    names, cells = _cells(X)
    missing = _absent(cells)
    if not missing.any():
        raise ValueError(expected("X", "a table with missing entries", "none missing"))
    numeric = _are_numbers(cells, missing)
    if kind == "scatter":
        pair = _pair(names, missing, numeric, columns)
        draw = _drawn_cells(model, X, 1, random_state)[0]
        return _scatter(ax, names, cells, draw, missing, pair)
    shown = _chosen(names, missing.sum(axis=0), columns, PANELS)
    if not missing[:, shown].any(axis=0).all():
        complete = [names[j] for j in shown if not missing[:, j].any()]
        raise ValueError(expected("columns", "columns with missing entries", complete))
    draws = _drawn_cells(model, X, n_draws, random_state)
    sheet = _panels(ax, len(shown))
    for one, j in zip(sheet.axes, shown, strict=True):
        gap, own = missing[:, j], [table[:, j] for table in draws]
        title = f"{names[j]}: {int(gap.sum()):,} filled"
        one.set_title(title, loc="left", fontsize=SMALL, color=sheet.ink.text)
        if not numeric[j]:
            _draw_levels(one, sheet.ink, cells[~gap, j], [table[gap] for table in own])
            continue
        known = cells[~gap, j].astype(np.float64)
        filled = [table[gap].astype(np.float64) for table in own]
        (_draw_strip if kind == "strip" else _draw_density)(one, sheet.ink, known, filled)
    sheet.key([mark(sheet.ink.blue), mark(sheet.ink.vermilion)], ["measured", "filled in"])
    return sheet.figure


NO_DRAWS = "PPCA, FactorAnalysis, BayesianPCA, RobustPPCA, CopulaPPCA and Imputer do."


def _cells(X: Any) -> tuple[list[str], NDArray[Any]]:
    """Return the names of columns, and all cells (n, d); numbers if all of them are."""
    if hasattr(X, "columns"):
        names = [str(name) for name in X.columns]
        columns = [np.asarray(X[name], dtype=object) for name in X.columns]
        cells = np.stack(columns, axis=1) if columns else np.empty((len(X), 0), dtype=object)
        return names, cells
    cells = np.asarray(X)
    if cells.ndim != 2:
        raise ValueError(expected("X", "a table of rows and columns", cells.shape))
    return [f"x{j}" for j in range(cells.shape[1])], cells


def _absent(cells: NDArray[Any]) -> Bools:
    """Return which cells are missing, (n, d)."""
    if cells.dtype.kind == "f":
        return np.asarray(np.isnan(cells))
    missing = [[is_missing(value) for value in row] for row in cells]
    return np.array(missing, dtype=bool).reshape(cells.shape)


def _are_numbers(cells: NDArray[Any], missing: Bools) -> list[bool]:
    """Return which columns have nothing but numbers."""
    if cells.dtype.kind != "O":
        return [True] * cells.shape[1]
    numbers = (int, float, np.integer, np.floating)
    kinds = [
        all(isinstance(v, numbers) and not isinstance(v, bool) for v in column[~gap])
        for column, gap in zip(cells.T, missing.T, strict=True)
    ]
    return [found and not gap.all() for found, gap in zip(kinds, missing.T, strict=True)]


def _chosen(names: list[str], sizes: Floats, columns: Any, most: int) -> list[int]:
    """Return positions of columns: as given, else those of the largest sizes above 0."""
    if columns is None:
        order = np.argsort(-sizes, kind="stable")[:most]
        return [int(j) for j in order if sizes[j] > 0]
    found = [names.index(str(one)) if str(one) in names else one for one in columns]
    good = [isinstance(j, int | np.integer) and 0 <= j < len(names) for j in found]
    if isinstance(columns, str) or not found or not all(good):
        raise ValueError(expected("columns", f"a list of some of {names[:10]}", columns))
    return [int(j) for j in found]


def _pair(names: list[str], missing: Bools, numeric: list[bool], columns: Any) -> tuple[int, int]:
    """Return the two columns of a scatter plot."""
    sizes = np.where(numeric, missing.sum(axis=0) + 1.0, 0.0)
    found = _chosen(names, sizes, columns, 2)
    if len(found) != 2 or not all(numeric[j] for j in found):
        words = [names[j] for j in found]
        raise ValueError(expected("columns", "two columns of numbers for a scatter plot", words))
    return found[0], found[1]


def _drawn_cells(model: Any, X: Any, n_draws: int, seed: int) -> list[NDArray[Any]]:
    """Return completed tables, (n, d) each."""
    tables = model.sample_imputations(X, n_draws, random_state=seed)
    return [_cells(table)[1] for table in tables]


def _panels(place: Place, count: int, side: float = 2.2) -> Sheet:
    """Return where to draw so many panels, up to three in a line."""
    across = min(count, ACROSS)
    lines = math.ceil(count / across)

    def make(region: FigureBase) -> list[Axes]:
        return [region.add_subplot(lines, across, k + 1) for k in range(count)]

    width = {1: 5.0, 2: 6.4}.get(across, 8.0)
    return canvas(place, 0.6 + (side if count > 1 else 3.2) * lines, make, count=count, width=width)


def _draw_density(ax: Axes, ink: Ink, known: Floats, filled: list[Floats]) -> None:
    """Draw the density of measured values, and of filled ones draw by draw."""
    ends = np.concatenate([known, *filled])
    room = 0.15 * float(np.ptp(ends)) or 1.0
    grid = np.linspace(ends.min() - room, ends.max() + room, 200)
    few = len(filled[0]) < CURVE
    for values in [np.concatenate(filled)] if few else filled:
        if np.ptp(values) > 0:
            ax.plot(grid, _density(values, grid), color=ink.vermilion, lw=1.0, alpha=0.8)
    rug: Any = {"transform": ax.get_xaxis_transform(), "color": ink.vermilion, "alpha": 0.6}
    ax.plot(np.concatenate(filled), np.full(ends.size - known.size, 0.02), "|", ms=7, **rug)
    if known.size > 1 and np.ptp(known) > 0:
        ax.plot(grid, _density(known, grid), color=ink.blue, lw=1.8)
    ax.set_ylim(0, None)
    ax.set_yticks([])
    ax.grid(False, axis="y")
    ax.spines["left"].set_visible(False)
    ax.xaxis.set_major_locator(MaxNLocator(5))


def _density(values: Floats, grid: Floats) -> Floats:
    return np.asarray(stats.gaussian_kde(values)(grid), dtype=np.float64)


def _draw_strip(ax: Axes, ink: Ink, known: Floats, filled: list[Floats]) -> None:
    """Draw every value: the measured ones first, then those of each draw."""
    rng = np.random.default_rng(0)
    if known.size > MOST:
        known = np.sort(known)[np.linspace(0, known.size - 1, MOST).round().astype(int)]
    for place, values in enumerate([known, *filled]):
        x = place + 0.3 * (2 * rng.random(len(values)) - 1)
        colour = ink.vermilion if place else ink.blue
        ax.scatter(x, values, s=9, color=colour, alpha=0.6, linewidths=0)
    ax.set_xticks(range(len(filled) + 1), ["–", *map(str, range(1, len(filled) + 1))])
    ax.tick_params(axis="x", length=0)
    ax.grid(False, axis="x")
    ax.set_xlabel("draw")


def _draw_levels(ax: Axes, ink: Ink, known: NDArray[Any], filled: list[NDArray[Any]]) -> None:
    """Draw the shares of levels: measured ones as bars, those of draws as dots."""
    every = np.concatenate([known, *filled])
    levels = sorted(set(every.tolist()), key=str)
    share = np.array([[np.mean(part == level) for level in levels] for part in (known, *filled)])
    ax.barh(range(len(levels)), share[0], height=0.6, color=ink.blue, alpha=0.75)
    for of_draw in share[1:]:
        ax.plot(of_draw, range(len(levels)), "o", ms=4.5, color=ink.vermilion, alpha=0.75)
    ax.set_yticks(range(len(levels)), [str(level) for level in levels])
    ax.set_ylim(len(levels) - 0.4, -0.6)
    ax.set_xlim(0, 1.08 * float(share.max()))
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")


def _scatter(
    place: Place,
    names: list[str],
    cells: NDArray[Any],
    draw: NDArray[Any],
    missing: Bools,
    pair: tuple[int, int],
) -> Figure:
    """Draw two columns, with filled cells marked."""
    sheet = canvas(place, height=4.6)
    ax, ink = sheet.ax, sheet.ink
    a, b = pair
    x, y = (draw[:, j].astype(np.float64) for j in pair)
    both = missing[:, a] & missing[:, b]
    parts = [
        (~missing[:, a] & ~missing[:, b], "o", "both measured", ink.blue, 0.5),
        (missing[:, a] & ~both, ">", f"{names[a]} filled in", ink.vermilion, 0.85),
        (missing[:, b] & ~both, "^", f"{names[b]} filled in", ink.vermilion, 0.85),
        (both, "D", "both", ink.vermilion, 0.85),
    ]
    marks, words = [], []
    for mine, shape, word, colour, alpha in parts:
        if mine.any():
            look: dict[str, Any] = {"marker": shape, "alpha": alpha, "linewidths": 0}
            ax.scatter(x[mine], y[mine], s=14 if shape == "o" else 26, color=colour, **look)
            marks.append(mark(colour, shape))
            words.append(word)
    ax.set(xlabel=names[a], ylabel=names[b])
    sheet.key(marks, words)
    return sheet.figure


# --- how far it can be trusted -----------------------------------------------------------------


DRAWN = 600
"""Entries of a column that are drawn."""


def overimpute(
    model: Any,
    X: ArrayLike,
    *,
    columns: Sequence[Any] | None = None,
    level: float = 0.9,
    folds: int = 5,
    refit: bool = True,
    random_state: int = 0,
    ax: Place = None,
) -> Figure:
    """Draw every measured entry against what the model predicts without it, with its interval.

    Intervals should cross the diagonal in the share that they promise. Where they are level, the
    other columns say nothing; where they miss at one end, the column is no straight line of them.

    Parameters
    ----------
    model : PPCA, FactorAnalysis, MixturePPCA or CopulaPPCA
        A fitted model.
    X : array or frame of shape (n, d)
        With or without missing entries. Columns of categories are not drawn.
    columns : sequence of str or int, default=None
        Names or positions; by default those with missing entries, or all if none has, up to six.
    level : float, default=0.9
        Probability of the intervals.
    folds : int, default=5
        The entries of every row are dealt to so many folds at random, and predicted fold by fold
        from the others.
    refit : bool, default=True
        Fit a copy of the model, with as many components, to the other folds; otherwise the model is
        used as it is, which has seen the entries.
    random_state : int, default=0
        Seed that deals the entries.
    ax : sequence of Axes, Figure or SubFigure, default=None
        Where to draw: an axes for each column, or a figure for all; by default a new figure.

    Returns
    -------
    matplotlib.figure.Figure

    References
    ----------
    Honaker, King & Blackwell (2011), Amelia II: a program for missing data, section 4.7.3
    (`overimpute`).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import PPCA
    >>> X = load_iris(as_frame=True).data
    >>> figure = overimpute(PPCA(2).fit(X), X)
    >>> len(figure.axes), figure.axes[0].get_xlabel()
    (4, 'measured')
    """
    _need_intervals(model, "overimpute")
    check_level(level)
    names, cells = _cells(X)
    numbers = hideable_numbers(model, cast(Any, X))
    usable: Bools = np.any(~np.isnan(numbers), axis=0)
    if columns is None:
        gaps = np.where(usable, _absent(cells).sum(axis=0), 0.0)
        size = gaps if gaps.any() else usable.astype(np.float64)
        shown = sorted(_chosen(names, size, None, PANELS))
    else:
        shown = _chosen(names, np.ones(len(names)), columns, PANELS)
    if not shown or not all(usable[j] for j in shown):
        what = "columns of numbers: categories have no intervals"
        raise ValueError(expected("columns", what, [names[j] for j in shown]))
    found = overimputed(model, X, level, folds=folds, refit=refit, random_state=random_state)
    sheet = _panels(ax, len(shown), side=2.5)
    for one, j in zip(sheet.axes, shown, strict=True):
        mine = found.column == j
        _draw_over(one, sheet.ink, Overimputed(*(part[mine] for part in found)), names[j])
    for k, one in enumerate(sheet.axes):
        one.set_ylabel("predicted" if k % ACROSS == 0 or sheet.region is None else "")
    marks = [mark(sheet.ink.blue), mark(sheet.ink.vermilion)]
    promised = f"{100 * level:g} % interval"
    sheet.key(marks, [f"inside its {promised}", "outside"])
    return sheet.figure


def overimputed(
    model: Any, X: Any, level: float, *, folds: int = 5, refit: bool = True, random_state: int = 0
) -> Overimputed:
    """Return every measured number as the rest of its row predicts it, with an interval."""
    parts = deal(hideable_numbers(model, X), folds, np.random.default_rng(random_state))
    return predicted(model, X, parts, level, refit=refit)[0]


def _draw_over(ax: Axes, ink: Ink, found: Overimputed, name: str) -> None:
    """Draw the entries of one column."""
    inside = (found.low <= found.truth) & (found.truth <= found.high)
    title = f"{name}: {_percent(float(inside.mean()))} inside"
    ax.set_title(title, loc="left", fontsize=SMALL, color=ink.text)
    few = np.arange(len(inside))
    if few.size > DRAWN:
        few = np.sort(np.random.default_rng(0).permutation(few)[:DRAWN])
    for colour, mine in ((ink.blue, few[inside[few]]), (ink.vermilion, few[~inside[few]])):
        x = found.truth[mine]
        ax.vlines(x, found.low[mine], found.high[mine], color=colour, lw=0.8, alpha=0.3)
        ax.scatter(x, found.guess[mine], s=9, color=colour, alpha=0.8, linewidths=0, zorder=3)
    ax.axline((float(found.truth[0]), float(found.truth[0])), slope=1, color=ink.text, lw=1)
    ax.set_xlabel("measured")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5))


def convergence(model: Any, *, ax: Place = None) -> Figure:
    """Draw the log-likelihood of a fit, step by step.

    It rises at every step of EM and levels off. One that still rises at the end was stopped too
    early: raise `max_iter`.

    Parameters
    ----------
    model : estimator
        A model that was fitted in steps.
    ax : Axes, Figure or SubFigure, default=None
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        Steps stand on a logarithmic axis where there are more than thirty.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import PPCA
    >>> X = load_iris().data
    >>> X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    >>> convergence(PPCA(2).fit(X)).axes[0].get_xlabel()
    'step'
    """
    need(model, "convergence", "log-likelihoods of a fit", "loglikelihoods_", instead=NO_STEPS)
    record = np.asarray(getattr(model, "loglikelihoods_", None) or [], dtype=np.float64)
    ended = bool(getattr(model, "converged_", True))
    what = "log-likelihood"
    if hasattr(model, "column_kinds_"):  # its steps climb the posterior; the last entry is none
        record, what = record[:-1], "log-likelihood with the prior"
    if record.size < 2:
        raise ValueError(
            f"plots.convergence draws the steps of a fit, and this {type(model).__name__} was "
            "fitted in closed form, without any: there is nothing to converge."
        )
    sheet = canvas(ax, height=3.4)
    ax, ink = sheet.ax, sheet.ink
    steps = np.arange(1, record.size + 1)
    ax.plot(steps, record, color=ink.blue, lw=1.4, marker="o" if record.size <= 60 else "", ms=3.5)
    ax.axhline(record[-1], color=ink.muted, lw=0.8, zorder=1)
    if record.size > 30:
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter("{x:g}")
    else:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    words = f"{'converged' if ended else 'stopped'} after {record.size} steps at {record[-1]:,.6g}"
    ax.set_title(words, loc="left", fontsize=SMALL, color=ink.text if ended else ink.vermilion)
    ax.set(xlabel="step", ylabel=what)
    return sheet.figure


NO_STEPS = "Models that are fitted in steps have them, such as PPCA of a table with missing values."


def calibration(
    model: Any,
    X: ArrayLike | None = None,
    *,
    share: float = 0.1,
    levels: Sequence[float] = LEVELS,
    refit: bool = True,
    random_state: int = 0,
    ax: Place = None,
) -> Figure:
    """Hide entries, impute them, and draw how often the intervals contained the true values.

    On the diagonal, intervals are as wide as they should be. Below it the model is overconfident,
    above it too cautious.

    Parameters
    ----------
    model : PPCA, FactorAnalysis, MixturePPCA or CopulaPPCA, or a Calibration
        A fitted model, whose entries are hidden once; or what its method `calibration` found, which
        hides every entry in turn. The latter is drawn as it is: no other argument but `ax` counts.
    X : array or frame of shape (n, d), default=None
        With or without NaN; only observed entries are hidden, and only numbers: categories have no
        intervals.
    share : float, default=0.1
        Share of the observed entries that is hidden at random.
    levels : sequence of float, default=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
        Nominal coverages.
    refit : bool, default=True
        Fit a copy of the model, with as many components, to the remaining entries, so that it has
        not seen the hidden ones. Without it the model is used as it is, which is a fair test only
        if it was fitted to other data than X.
    random_state : int, default=0
        Seed that chooses the hidden entries.
    ax : Axes, Figure or SubFigure, default=None
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import PPCA
    >>> X = load_iris().data
    >>> figure = calibration(PPCA(2).fit(X).calibration(X))
    >>> figure.axes[0].get_xlabel()
    'nominal coverage'
    """
    if isinstance(model, Calibration):
        return _drawn(model, ax)
    _need_intervals(model, "calibration")
    if X is None:
        raise ValueError(expected("X", "a table, unless model is a Calibration", X))
    p = checked_levels(levels)
    rows = cast(Any, X)
    numbers = hideable_numbers(model, rows)
    hidden = [hide(numbers, share, np.random.default_rng(random_state))]
    found = predicted(model, rows, hidden, refit=refit)[0]
    names = tuple(map(str, range(numbers.shape[1])))
    return _drawn(Calibration(p, found, None, names, len(numbers), 1), ax)


NO_INTERVALS = "PPCA, FactorAnalysis, MixturePPCA and CopulaPPCA fill entries with intervals."


def _need_intervals(model: Any, plot: str) -> None:
    """Refuse models that fill no entry of one table, in words."""
    what = "intervals of filled entries"
    need(model, plot, what, "impute", instead=NO_INTERVALS)
    if hasattr(model, "correlations_"):  # CCA fills one table from another
        need(model, plot, what, "fill", instead=NO_INTERVALS)


def _drawn(found: Calibration, place: Place) -> Figure:
    sheet = canvas(place, height=4.6)
    ax, ink = sheet.ax, sheet.ink
    ax.plot([0, 1], [0, 1], color=ink.muted, lw=1, zorder=2)
    band = ax.fill_between(found.levels, found.low, found.high, color=ink.grid, zorder=1)
    band.set_label("95 % of what chance explains")
    ax.plot(found.levels, found.coverage, "o-", ms=5, lw=1.2, color=ink.blue, zorder=3)
    ax.set(xlabel="nominal coverage", ylabel="share of hidden entries inside", aspect="equal")
    ax.set(xlim=(0, 1), ylim=(0, 1))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    ax.legend(loc="upper left", frameon=False, fontsize=SMALL, labelcolor=ink.text)
    ax.set_title(f"{found.n_hidden} hidden entries", loc="left", fontsize=SMALL, color=ink.text)
    return sheet.figure
