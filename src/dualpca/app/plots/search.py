"""Figures of a kernel search: how it went, and what mattered."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dualpca.app.plots._canvas import BLUE, DASHED, INK, MUTED, SMALL, VERMILION, blank, key, mark

SHOWN = 1.5
"""How far below the lower quartile a score is still drawn in place, in interquartile ranges."""


def search_history(model: Any) -> Figure:
    """Draw the score of every trial, and the best so far.

    Parameters
    ----------
    model : KernelSearch
        Fitted.

    Returns
    -------
    matplotlib.figure.Figure
        Complete trials filled, pruned ones (judged on some folds) hollow, failed ones as crosses
        below; the best so far as a line, the first trial, the heuristic, dashed. Scores far below
        the others are drawn at the lower edge, as triangles.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import KernelSearch
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> figure = search_history(KernelSearch(n_components=1, n_trials=5, cv=2).fit(X))
    >>> figure.axes[0].get_xlabel()
    'trial'
    """
    trials = model.trials_
    figure, ax = blank(height=3.9)
    floor = _floor([t.score for t in trials if t.score is not None])
    for state, fill in (("complete", BLUE), ("pruned", "white")):
        mine = [t for t in trials if t.state == state]
        _dots(ax, [t for t in mine if t.score >= floor], "o", fill)
        _dots(ax, [t for t in mine if t.score < floor], "v", fill, floor)
    failed = [t for t in trials if t.state == "failed"]
    place = ax.get_xaxis_transform()
    ax.plot([t.number for t in failed], [0.02] * len(failed), "x", color=VERMILION, transform=place)
    _best_line(ax, trials)
    ax.set(xlabel="trial", ylabel=f"score ({model.objective})")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if trials[0].state == "complete":
        ax.axhline(trials[0].score, color=VERMILION, lw=1.2, ls=DASHED, zorder=1)
    _name_marks(figure, trials)
    return figure


def _name_marks(figure: Figure, trials: list[Any]) -> None:
    """Say what the marks mean that there are."""
    hollow = mark(MUTED)
    hollow.set_markerfacecolor("white")
    states = {"complete": mark(BLUE), "pruned": hollow, "failed": mark(VERMILION, "x")}
    shown = {word: m for word, m in states.items() if any(t.state == word for t in trials)}
    if trials[0].state == "complete":
        shown["first trial"] = mark(VERMILION, "--")
    key(figure, list(shown.values()), list(shown))


def _floor(scores: list[float]) -> float:
    """Return the score below which a trial would squeeze all others."""
    if not scores:
        return 0.0
    low, middle, high = np.quantile(scores, [0.25, 0.5, 0.75])
    reach = SHOWN * max(high - low, high - middle, 1e-12)
    return float(max(min(scores), low - reach))


def _dots(ax: Axes, trials: list[Any], shape: str, fill: str, at: float | None = None) -> None:
    """Draw trials; at one height where it is given."""
    heights = [t.score if at is None else at for t in trials]
    edge = BLUE if fill == BLUE else MUTED
    numbers = [t.number for t in trials]
    ax.plot(numbers, heights, shape, ms=5, mfc=fill, mec=edge, ls="", zorder=3)


def _best_line(ax: Axes, trials: list[Any]) -> None:
    """Draw the best complete score so far."""
    done = [(t.number, t.score) for t in trials if t.state == "complete"]
    if not done:
        return
    numbers, best = [n for n, _ in done], np.maximum.accumulate([s for _, s in done])
    last = trials[-1].number
    ax.step([*numbers, last], [*best, best[-1]], where="post", color=INK, lw=1.4, zorder=2)


def search_importance(model: Any) -> Figure:
    """Draw the share of the scores' variance that each parameter explains alone.

    Parameters
    ----------
    model : KernelSearch
        Fitted, with eight trials or more.

    Returns
    -------
    matplotlib.figure.Figure
        A bar a parameter; those of the second of two kernels end in '_2'.

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
    found = model.importances()
    if not found:
        raise ValueError(
            f"importances need eight judged trials of a searched parameter, got "
            f"{len(model.trials_)} trials. Raise n_trials, or search more than one kernel."
        )
    figure, ax = blank(height=1.1 + 0.32 * len(found))
    names, shares = list(found), list(found.values())
    ax.barh(names, shares, color=BLUE, height=0.62)
    ax.invert_yaxis()
    ax.grid(False, axis="y")
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(0, 1.12 * max(max(shares), 0.1))
    for row, share in enumerate(shares):
        ax.text(share, row, f" {share:.2f}", va="center", fontsize=SMALL, color=INK)
    ax.set_xlabel("share of the scores' variance (ω²)")
    return figure
