"""The figure of a choice of the number of components."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from dualpca.app.plots._canvas import (
    BLUE,
    DPI,
    GRID,
    INK,
    MUTED,
    SMALL,
    TEXT,
    VERMILION,
    WIDTH,
    Floats,
)


def selection_curve(model: Any) -> Figure:
    """Draw how well each number of components predicted what cross-validation held out.

    Parameters
    ----------
    model : PPCA
        Fitted with n_components='cv', 'cv-rows' or 'cv-entries'.

    Returns
    -------
    matplotlib.figure.Figure
        Q² above and the held-out log-likelihood below, with one standard error either side; the
        number chosen as a line.

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
            f"n_components={model.n_components!r}: it compared no candidates."
        )
    figure = Figure(figsize=(WIDTH, 4.6), dpi=DPI, layout="constrained", facecolor="white")
    top, below = figure.subplots(2, 1, sharex=True, subplot_kw={"axisbelow": True})
    what = "held-out row" if curve.unit == "row" else "hidden entry"
    _dress(top)
    _dress(below)
    _points(top, curve.candidates, curve.q2, curve.q2_error, BLUE)
    _points(below, curve.candidates, curve.loglikelihood, curve.loglikelihood_error, VERMILION)
    top.set_ylabel("Q²")
    below.set(xlabel="number of components", ylabel=f"log-likelihood\nof a {what}")
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    _mark_chosen((top, below), curve.chosen, curve.candidates)
    return figure


def _dress(ax: Axes) -> None:
    """Give an axes the looks of every figure here."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(MUTED)
    ax.tick_params(labelsize=SMALL, colors=MUTED, labelcolor=INK)
    ax.grid(color=GRID, lw=0.8)
    ax.xaxis.label.set(fontsize=TEXT, color=INK)
    ax.yaxis.label.set(fontsize=TEXT, color=INK)


def _points(ax: Axes, q: Floats, mean: Floats, error: Floats, colour: str) -> None:
    """Draw means with one standard error either side."""
    ax.plot(q, mean, color=colour, lw=1.2, alpha=0.6, zorder=2)
    bars = np.nan_to_num(error)  # a single fold has no error
    ax.errorbar(q, mean, bars, fmt="o", ms=5, color=colour, elinewidth=1.4, capsize=3, zorder=3)


def _mark_chosen(both: tuple[Axes, Axes], chosen: int, candidates: Floats) -> None:
    """Draw a line at the number chosen, and say so above."""
    for ax in both:
        ax.axvline(chosen, color=INK, lw=1, zorder=1)
    left = chosen > candidates.mean()
    shift = ScaledTranslation(-0.06 if left else 0.06, 0.05, both[0].figure.dpi_scale_trans)
    text = both[0].text(chosen, 0, f"{chosen} chosen", fontsize=SMALL, color=INK)
    place = both[0].get_xaxis_transform() + shift
    text.set(transform=place, va="bottom", ha="right" if left else "left")
