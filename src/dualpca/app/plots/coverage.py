"""Nominal against actual coverage of the imputation intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import ArrayLike
from sklearn.base import clone

from dualpca.app.calibration import LEVELS, Calibration, Floats, calibrate, hide
from dualpca.app.plots._canvas import BLUE, GRID, INK, MUTED, SMALL, blank
from dualpca.errors import expected
from dualpca.estimators._base import as_frame


def calibration(
    model: Any,
    X: ArrayLike,
    *,
    share: float = 0.1,
    levels: Sequence[float] = LEVELS,
    refit: bool = True,
    random_state: int = 0,
) -> Figure:
    """Hide entries, impute them, and draw how often intervals held the truth.

    Points on the diagonal: intervals are as wide as they should be. Below it the model is too
    sure of itself, above it too cautious.

    Parameters
    ----------
    model : PPCA or FactorAnalysis
        A fitted model.
    X : array or frame of shape (n, d)
        With or without NaN; only observed entries are hidden.
    share : float
        Of the observed entries, to be hidden at random.
    levels : sequence of float
        Nominal coverages.
    refit : bool
        Fit a copy of the model (with as many components) to what is left: it has never seen what
        it is asked for. Otherwise the model is taken as it is, which is honest only where X is
        not what it was fitted to.
    random_state : int
        Which entries are hidden.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import PPCA
    >>> X = load_iris().data
    >>> figure = calibration(PPCA(2).fit(X), X)
    >>> figure.axes[0].get_xlabel()
    'nominal coverage'
    """
    if not hasattr(model, "impute"):
        what = "a model that imputes: PPCA or FactorAnalysis"
        raise TypeError(expected("model", what, model))
    table = np.array(X, dtype=np.float64)
    hidden = hide(table, share, np.random.default_rng(random_state))
    if refit:
        q = int(model.components_.shape[0])
        model = clone(model).set_params(n_components=q)
        model.fit(as_frame(np.where(hidden, np.nan, table), X))

    def impute(holed: Floats) -> tuple[Floats, Floats]:
        mean, std = model.impute(as_frame(holed, X), return_std=True)
        return np.asarray(mean), np.asarray(std)

    return _drawn(calibrate(impute, table, hidden, levels))


def _drawn(found: Calibration) -> Figure:
    figure, ax = blank(height=4.6)
    ax.plot([0, 1], [0, 1], color=MUTED, lw=1, zorder=2)
    band = ax.fill_between(found.levels, found.low, found.high, color=GRID, zorder=1)
    band.set_label("where chance alone would put 95 %")
    ax.plot(found.levels, found.coverage, "o-", ms=5, lw=1.2, color=BLUE, zorder=3)
    ax.set(xlabel="nominal coverage", ylabel="share of hidden entries inside", aspect="equal")
    ax.set(xlim=(0, 1), ylim=(0, 1))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    ax.legend(loc="upper left", frameon=False, fontsize=SMALL, labelcolor=INK)
    ax.set_title(f"{found.n_hidden} hidden entries", loc="left", fontsize=SMALL, color=INK)
    return figure
