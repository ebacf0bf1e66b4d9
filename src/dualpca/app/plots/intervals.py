"""Are imputation intervals as wide as they should be? Hide known entries and count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats
from sklearn.base import clone

from dualpca.app.plots._canvas import BLUE, GRID, INK, MUTED, SMALL, blank
from dualpca.errors import expected
from dualpca.estimators._incomplete import as_frame

# --- Are imputation intervals as wide as they should be? Hide entries that are known, and count --

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
BAND = 0.95
"""Probability of the band that chance explains."""


class Calibration(NamedTuple):
    """How often intervals of nominal level held the hidden value."""

    levels: Floats  # (k,)
    coverage: Floats  # (k,), the share of hidden entries inside
    low: Floats  # (k,), of the binomial band around the level: what chance explains
    high: Floats  # (k,)
    n_hidden: int


def hide(X: Floats, share: float, rng: np.random.Generator) -> Bools:
    """Choose entries to hide: a share of the observed ones, never all of a feature.

    Parameters
    ----------
    X : array of shape (n, d)
        NaN where nothing was observed.
    share : float
        Between 0 and 1.
    rng : Generator

    Returns
    -------
    array of bool, shape (n, d)
        True where an entry is to be hidden.
    """
    if not 0 < share < 1:
        raise ValueError(expected("share", "a number between 0 and 1, both excluded", share))
    seen = ~np.isnan(X)
    hidden = seen & (rng.random(X.shape) < share)
    for j in np.flatnonzero(~(seen & ~hidden).any(axis=0)):
        hidden[np.flatnonzero(seen[:, j])[:1], j] = False
    if not hidden.any():
        raise ValueError(expected("share", "large enough to hide an entry", share))
    return hidden


def calibrate(
    impute: Callable[[Floats], tuple[Floats, Floats]],
    X: Floats,
    hidden: Bools,
    levels: Sequence[float] = LEVELS,
) -> Calibration:
    """Compare nominal and actual coverage of Gaussian intervals for hidden entries.

    An interval of level p is mean ± Φ⁻¹((1 + p)/2)·std. The band is binomial, as if entries were
    independent: those of one row are not quite, so a model that is right leaves it a little more
    often than it should.

    Parameters
    ----------
    impute : callable
        Takes a table with NaN, returns means and standard deviations, both (n, d).
    X : array of shape (n, d)
    hidden : array of bool, shape (n, d)
        Entries of X to hide, from `hide`.
    levels : sequence of float

    Returns
    -------
    Calibration

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> hidden = hide(X, 0.5, np.random.default_rng(1))
    >>> found = calibrate(lambda A: (np.zeros_like(A), np.ones_like(A)), X, hidden, [0.5, 0.9])
    >>> found.coverage.round(1)
    array([0.5, 0.9])
    """
    p = np.asarray(levels, dtype=np.float64)
    if p.ndim != 1 or not np.all((p > 0) & (p < 1)):
        raise ValueError(expected("levels", "numbers between 0 and 1, both excluded", levels))
    mean, std = impute(np.where(hidden, np.nan, X))
    distance = np.abs((X - mean)[hidden] / std[hidden])
    n = distance.size
    inside = distance[:, None] <= special.ndtri((1 + p) / 2)
    low, high = stats.binom.interval(BAND, n, p)
    return Calibration(p, inside.mean(axis=0), np.asarray(low) / n, np.asarray(high) / n, n)


# --- Nominal against actual coverage of the imputation intervals ---------------------------------


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
