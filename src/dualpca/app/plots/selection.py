"""How many components: variances against the noise, cross-validation, a search for kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter
from matplotlib.transforms import ScaledTranslation
from numpy.typing import ArrayLike

from dualpca import PCA
from dualpca.app.plots._canvas import (
    DASHED,
    SMALL,
    Floats,
    Ink,
    Place,
    Sheet,
    canvas,
    floats_of,
    mark,
    need,
)
from dualpca.data import InMemoryTable
from dualpca.models.selection import parallel_values

# --- variances ---------------------------------------------------------------------------------


def scree(
    model: Any, X: ArrayLike | None = None, *, parallel: bool = False, ax: Place = None
) -> Figure:
    """Draw the variance of every direction, and the noise variance (a scree plot).

    Parameters
    ----------
    model : PCA or PPCA
        A fitted model; also a kernel model or CopulaPPCA, without X.
    X : array-like of shape (n, d), default=None
        The data it was fitted to. With it the discarded directions are drawn too, at the cost of
        one more eigendecomposition. Missing values are drawn from the model, five times over, so
        that filled entries vary as measured ones would.
    parallel : bool, default=False
        Draw Horn's parallel analysis of X instead: eigenvalues of the correlation matrix beside
        the 95th percentiles of those of permuted columns, as ``n_components='parallel'`` compares
        them. Directions above the line are more than chance.
    ax : Axes, Figure or SubFigure, default=None
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        Variances on a logarithmic axis, the kept ones filled; the noise variance as a dashed line.
        With `parallel`, eigenvalues on a linear axis and what they have to pass.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import PPCA
    >>> X = load_iris().data
    >>> figure = scree(PPCA(n_components=2).fit(X), X)
    >>> figure.axes[0].get_yscale()
    'log'
    """
    need(model, "scree", "variances along components", "explained_variance_", instead=NO_VARIANCES)
    if parallel:
        return _parallel(model, X, ax)
    kept = np.asarray(model.explained_variance_, dtype=np.float64)
    rest = np.zeros(0) if X is None else _discarded(model, kept, X)
    q, shown = kept.size, kept.size + rest.size
    right = 1.02 * (max(shown, q + 1) + 0.5)
    sheet = canvas(ax, height=3.9)
    ax, ink = sheet.ax, sheet.ink
    _directions(ax, ink, np.concatenate([kept, rest]), q)
    ax.set(ylabel="variance", yscale="log", xlim=(0.5 - 0.02 * right, right))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    kernel = hasattr(model, "kernel_")
    count = f"{q} directions kept" if kernel else f"{q} of {_size(model)}\ndirections kept"
    _mark_rank(sheet, q, count, left=q > 0.7 * right)
    _mark_noise(sheet, model, left=q > 0.7 * right)
    return sheet.figure


def _directions(ax: Axes, ink: Ink, values: Floats, q: int) -> None:
    """Draw a dot for every direction, filled for the first q."""
    place = np.arange(1, values.size + 1)
    ax.plot(place[:q], values[:q], "o", ms=5, color=ink.blue, zorder=3)
    ax.plot(place[q:], values[q:], "o", ms=5, mfc=ink.face, color=ink.muted, zorder=3)
    ax.set_xlabel("direction, by falling variance")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


LEAST_SHOWN = 30
"""Directions that are drawn beside permuted columns, if there are as many."""


def _parallel(model: Any, X: ArrayLike | None, place: Place) -> Figure:
    """Draw eigenvalues of correlations beside those of permuted columns."""
    if X is None or not hasattr(model, "mean_"):
        kind = type(model).__name__
        raise TypeError(
            "plots.scree draws parallel analysis of a table of numbers: give the X that the model "
            f"was fitted to, and PCA, PPCA or a relative of theirs, got X={type(X).__name__} and "
            f"{kind}."
        )
    q = int(np.size(model.explained_variance_))
    rows = floats_of(X)
    values, limits = parallel_values(InMemoryTable(rows), max(LEAST_SHOWN, 3 * q))
    sheet = canvas(place, height=3.9)
    ax, ink = sheet.ax, sheet.ink
    _directions(ax, ink, values, q)
    ranks = np.arange(1, limits.size + 1)
    ax.plot(ranks, limits, color=ink.vermilion, lw=1.6, ls=DASHED, zorder=2)
    ax.set(ylabel="eigenvalue of the correlations", ylim=(0, 1.08 * float(values[0])))
    above = int(np.argmin(np.append(values > limits, False)))
    pass_it = "1 direction is" if above == 1 else f"{above} directions are"
    words = f"{pass_it} above permuted columns"
    ax.set_title(words, loc="left", fontsize=SMALL, color=ink.text)
    _mark_rank(sheet, q, f"{q} of {rows.shape[1]}\ndirections kept", left=q > 0.7 * limits.size)
    sheet.key([mark(ink.vermilion, "--")], ["95 % of permuted columns lie below"])
    return sheet.figure


NO_VARIANCES = "Models of one noise for all columns have them: PCA, PPCA, RobustPPCA, BayesianPCA."

FILLED = 5
"""Draws of missing entries behind the variances of discarded directions."""


def _size(model: Any) -> int:
    return len(getattr(model, "loading_names_", ())) or int(model.n_features_in_)


def _discarded(model: Any, kept: Floats, X: ArrayLike) -> Floats:
    """Return the variances of discarded directions that a logarithmic axis can show."""
    if not hasattr(model, "mean_"):
        raise TypeError(
            f"plots.scree draws discarded directions of a table of numbers; {type(model).__name__} "
            "describes it in other coordinates. Leave X out: plots.scree(model)."
        )
    tables: list[Any] = [X]
    if hasattr(model, "sample_imputations") and np.isnan(floats_of(X)).any():
        tables = list(model.sample_imputations(X, FILLED, 0, parameters="fixed"))
    standardize = getattr(model, "standardize", False)
    found = [PCA(standardize=standardize).fit(table).explained_variance_ for table in tables]
    full = np.mean(np.asarray(found, dtype=np.float64), axis=0)
    # Models differ in their divisor, n or n − 1: the first variance tells which.
    full = full * (kept[0] / full[0] if kept.size else 1.0)
    return np.asarray([value for value in full[kept.size :] if value > 1e-12 * full[0]])


def _mark_rank(sheet: Sheet, q: int, words: str, left: bool) -> None:
    """Draw a line after direction q, labelled with how many are kept."""
    ax, ink = sheet.ax, sheet.ink
    ax.axvline(q + 0.5, color=ink.text, lw=1)
    shift = ScaledTranslation(-0.06 if left else 0.06, -0.02, ax.figure.dpi_scale_trans)
    text = ax.text(q + 0.5, 1, words, fontsize=SMALL, color=ink.text)
    text.set(transform=ax.get_xaxis_transform() + shift, va="top", ha="right" if left else "left")


def _mark_noise(sheet: Sheet, model: Any, left: bool) -> None:
    """Draw the noise variance, if there is one, labelled with its value."""
    ax, colour = sheet.ax, sheet.ink.vermilion
    own = np.asarray(getattr(model, "noise_variance_", 0.0), dtype=np.float64)
    noise = float(own.mean())
    if noise <= 0:
        return
    ax.axhline(noise, color=colour, lw=1.6, ls=DASHED, zorder=2)
    above = ScaledTranslation(0, 0.05, ax.figure.dpi_scale_trans)
    words, x = f"{'mean ' if own.ndim else ''}noise variance {noise:.3g}", 0.02 if left else 1.0
    text = ax.text(x, noise, words, ha="left" if left else "right", fontsize=SMALL)
    text.set(transform=ax.get_yaxis_transform() + above, color=colour)


# --- cross-validation --------------------------------------------------------------------------


def selection_curve(model: Any, *, ax: Place = None) -> Figure:
    """Draw how well each number of components predicts what cross-validation held out.

    Parameters
    ----------
    model : PPCA
        Fitted with n_components='cv', 'cv-rows' or 'cv-entries'.
    ax : sequence of Axes, Figure or SubFigure, default=None
        Where to draw: two axes, or a figure for all; by default a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        Q² above and the held-out log-likelihood below, with one standard error on either side;
        the chosen number as a line.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import PPCA
    >>> figure = selection_curve(PPCA("cv").fit(load_iris().data))
    >>> figure.axes[0].get_ylabel(), len(figure.axes)
    ('Q²', 2)
    """
    curve = getattr(model, "selection_", None)
    if curve is None:
        raise ValueError(
            "the model must be fitted with n_components='cv', 'cv-rows' or 'cv-entries', got "
            f"n_components={getattr(model, 'n_components', None)!r}, which compares no candidates."
        )
    sheet = canvas(ax, height=4.6, make=lambda region: region.subplots(2, 1, sharex=True), count=2)
    (top, below), ink = sheet.axes, sheet.ink
    what = "held-out row" if curve.unit == "row" else "hidden entry"
    _points(top, curve.candidates, curve.q2, curve.q2_error, ink.blue)
    _points(below, curve.candidates, curve.loglikelihood, curve.loglikelihood_error, ink.vermilion)
    top.set_ylabel("Q²")
    below.set(xlabel="number of components", ylabel=f"log-likelihood\nof a {what}")
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    _mark_chosen(sheet, curve.chosen, curve.candidates)
    return sheet.figure


def _points(ax: Axes, q: Floats, mean: Floats, error: Floats, colour: str) -> None:
    """Draw means with one standard error on either side."""
    ax.plot(q, mean, color=colour, lw=1.2, alpha=0.6, zorder=2)
    bars = np.nan_to_num(error)  # a single fold has no error
    ax.errorbar(q, mean, bars, fmt="o", ms=5, color=colour, elinewidth=1.4, capsize=3, zorder=3)


def _mark_chosen(sheet: Sheet, chosen: int, candidates: Floats) -> None:
    """Draw a line at the chosen number, with a label."""
    for ax in sheet.axes:
        ax.axvline(chosen, color=sheet.ink.text, lw=1, zorder=1)
    left, ax = chosen > candidates.mean(), sheet.ax
    shift = ScaledTranslation(-0.06 if left else 0.06, 0.05, ax.figure.dpi_scale_trans)
    text = ax.text(chosen, 0, f"{chosen} chosen", fontsize=SMALL, color=sheet.ink.text)
    place = ax.get_xaxis_transform() + shift
    text.set(transform=place, va="bottom", ha="right" if left else "left")


# --- a search for kernels ----------------------------------------------------------------------

SEARCH = "KernelSearch has them."

SHOWN = 1.5
"""Interquartile ranges below the lower quartile to which scores are drawn to scale."""


def search_history(model: Any, *, ax: Place = None) -> Figure:
    """Draw the score of every trial, and the best so far.

    Parameters
    ----------
    model : KernelSearch
        Fitted.
    ax : Axes, Figure or SubFigure, default=None
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        Complete trials are filled, pruned ones (judged on some folds) hollow, failed ones crosses
        at the bottom. The line is the best score so far; the dashed line is the first trial, the
        heuristic. Scores far below the others are drawn at the lower edge, as triangles.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import KernelSearch
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> figure = search_history(KernelSearch(n_components=1, n_trials=5, cv=2).fit(X))
    >>> figure.axes[0].get_xlabel()
    'trial'
    """
    need(model, "search_history", "the trials of a search", "trials_", instead=SEARCH)
    trials = model.trials_
    sheet = canvas(ax, height=3.9)
    ax, ink = sheet.ax, sheet.ink
    floor = _floor([t.score for t in trials if t.score is not None])
    for state, fill, edge in (("complete", ink.blue, ink.blue), ("pruned", ink.face, ink.muted)):
        mine, look = [t for t in trials if t.state == state], {"mfc": fill, "mec": edge}
        _dots(ax, [t for t in mine if t.score >= floor], "o", look)
        _dots(ax, [t for t in mine if t.score < floor], "v", look, floor)
    failed = [t for t in trials if t.state == "failed"]
    style: dict[str, Any] = {"color": ink.vermilion, "transform": ax.get_xaxis_transform()}
    ax.plot([t.number for t in failed], [0.02] * len(failed), "x", **style)
    _best_line(sheet, trials)
    ax.set(xlabel="trial", ylabel=f"score ({model.objective})")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if trials[0].state == "complete":
        ax.axhline(trials[0].score, color=ink.vermilion, lw=1.2, ls=DASHED, zorder=1)
    _name_marks(sheet, trials)
    return sheet.figure


def _name_marks(sheet: Sheet, trials: list[Any]) -> None:
    """Draw a legend of the marks that occur."""
    ink = sheet.ink
    hollow = mark(ink.muted)
    hollow.set_markerfacecolor(ink.face)
    states = {"complete": mark(ink.blue), "pruned": hollow, "failed": mark(ink.vermilion, "x")}
    shown = {word: m for word, m in states.items() if any(t.state == word for t in trials)}
    if trials[0].state == "complete":
        shown["first trial"] = mark(ink.vermilion, "--")
    sheet.key(list(shown.values()), list(shown))


def _floor(scores: list[float]) -> float:
    """Return the score below which a trial would compress the scale for all others."""
    if not scores:
        return 0.0
    low, middle, high = np.quantile(scores, [0.25, 0.5, 0.75])
    reach = SHOWN * max(high - low, high - middle, 1e-12)
    return float(max(min(scores), low - reach))


def _dots(
    ax: Axes, trials: list[Any], shape: str, style: dict[str, Any], at: float | None = None
) -> None:
    """Draw trials, all at one height if it is given."""
    heights = [t.score if at is None else at for t in trials]
    ax.plot([t.number for t in trials], heights, shape, ms=5, ls="", zorder=3, **style)


def _best_line(sheet: Sheet, trials: list[Any]) -> None:
    """Draw the best complete score so far."""
    done = [(t.number, t.score) for t in trials if t.state == "complete"]
    if not done:
        return
    numbers, best = [n for n, _ in done], np.maximum.accumulate([s for _, s in done])
    last = trials[-1].number
    style: dict[str, Any] = {"where": "post", "color": sheet.ink.text, "lw": 1.4, "zorder": 2}
    sheet.ax.step([*numbers, last], [*best, best[-1]], **style)


def search_importance(model: Any, *, ax: Place = None) -> Figure:
    """Draw the share of the scores' variance that each parameter explains alone.

    Parameters
    ----------
    model : KernelSearch
        Fitted, with eight trials or more.
    ax : Axes, Figure or SubFigure, default=None
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        One bar per parameter; those of the second of two kernels end in '_2'.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import KernelSearch
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> search = KernelSearch(kernels=["rbf"], compositions=(), n_components=1, n_trials=9, cv=2)
    >>> figure = search_importance(search.fit(X))
    >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
    ['width']
    """
    need(model, "search_importance", "the trials of a search", "importances", instead=SEARCH)
    found = model.importances()
    if not found:
        raise ValueError(
            f"importances need eight judged trials of a searched parameter, got "
            f"{len(model.trials_)} trials. Raise n_trials, or search more than one kernel."
        )
    sheet = canvas(ax, height=1.1 + 0.32 * len(found))
    ax, ink = sheet.ax, sheet.ink
    names, shares = list(found), list(found.values())
    ax.barh(names, shares, color=ink.blue, height=0.62)
    ax.invert_yaxis()
    ax.grid(False, axis="y")
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(0, 1.12 * max(max(shares), 0.1))
    for row, share in enumerate(shares):
        ax.text(share, row, f" {share:.2f}", va="center", fontsize=SMALL, color=ink.text)
    ax.set_xlabel("share of the scores' variance (ω²)")
    return sheet.figure
