"""The variance of every direction against the noise floor."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter
from matplotlib.transforms import ScaledTranslation
from numpy.typing import ArrayLike

from dualpca import PCA
from dualpca.app.plots._canvas import BLUE, INK, MUTED, SMALL, VERMILION, Floats, blank


def scree(model: Any, X: ArrayLike | None = None) -> Figure:
    """Draw the variance of every direction against the noise floor.

    Parameters
    ----------
    model : PCA or PPCA
        A fitted model.
    X : array-like of shape (n, d), optional
        The data it was fitted to; with it the discarded directions are drawn too, and cost one
        more eigendecomposition.

    Returns
    -------
    matplotlib.figure.Figure
        Variances on a logarithmic axis, the kept ones filled; the noise variance as a dashed line.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dualpca import PPCA
    >>> X = load_iris().data
    >>> figure = scree(PPCA(n_components=2).fit(X), X)
    >>> figure.axes[0].get_yscale()
    'log'
    """
    kept = np.asarray(model.explained_variance_, dtype=np.float64)
    rest = np.zeros(0) if X is None else _discarded(model, kept, X)
    q, shown = kept.size, kept.size + rest.size
    right = 1.02 * (max(shown, q + 1) + 0.5)
    figure, ax = blank(height=3.9)
    ax.plot(np.arange(1, q + 1), kept, "o", ms=5, color=BLUE, zorder=3)
    ax.plot(np.arange(q + 1, shown + 1), rest, "o", ms=5, mfc="white", color=MUTED, zorder=3)
    ax.set(xlabel="direction, by falling variance", ylabel="variance", yscale="log")
    ax.set_xlim(0.5 - 0.02 * right, right)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    _mark_rank(ax, q, len(model.mean_), left=q > 0.7 * right)
    _mark_noise(ax, float(model.noise_variance_), left=q > 0.7 * right)
    return figure


def _discarded(model: Any, kept: Floats, X: ArrayLike) -> Floats:
    """Return the variances after the kept ones that a logarithmic axis can show."""
    full = PCA(standardize=getattr(model, "standardize", False)).fit(X).explained_variance_
    # Models differ in their divisor, n or n − 1: the first variance tells which.
    full = np.asarray(full) * (kept[0] / full[0] if kept.size else 1.0)
    return np.asarray([value for value in full[kept.size :] if value > 1e-12 * full[0]])


def _mark_rank(ax: Axes, q: int, d: int, left: bool) -> None:
    """Draw a line after direction q, and write how many are kept."""
    ax.axvline(q + 0.5, color=INK, lw=1)
    shift = ScaledTranslation(-0.06 if left else 0.06, -0.02, ax.figure.dpi_scale_trans)
    text = ax.text(q + 0.5, 1, f"{q} of {d}\ndirections kept", fontsize=SMALL, color=INK)
    text.set(transform=ax.get_xaxis_transform() + shift, va="top", ha="right" if left else "left")


def _mark_noise(ax: Axes, noise: float, left: bool) -> None:
    """Draw the noise floor, if there is one, and its value where there is room."""
    if noise <= 0:
        return
    ax.axhline(noise, color=VERMILION, lw=1.6, ls=(0, (5, 3)), zorder=2)
    above = ScaledTranslation(0, 0.05, ax.figure.dpi_scale_trans)
    words, x = f"noise variance {noise:.3g}", 0.02 if left else 1.0
    text = ax.text(x, noise, words, ha="left" if left else "right", fontsize=SMALL)
    text.set(transform=ax.get_yaxis_transform() + above, color=VERMILION)
