"""Kernel models in the plane of two inputs: components, reconstructions, samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from dualpca.app.plots._canvas import (
    BLUE,
    DPI,
    INK,
    MUTED,
    SMALL,
    VERMILION,
    WIDTH,
    Floats,
    blank,
    key,
    mark,
)

COLUMNS, PALE = 4, "#a3a9b8"
MARGIN = 0.15
"""Share of the range of the points by which a picture is larger."""


def eigenfunctions(
    model: Any, X: ArrayLike, n_panels: int = 8, *, resolution: int = 80, levels: int = 11
) -> Figure:
    """Draw the leading components of a kernel model as functions of two inputs (S4).

    Parameters
    ----------
    model : KernelPCA or DualPPCA
        Fitted on two columns.
    X : array-like of shape (n, 2)
        Points to draw over the contours.
    n_panels : int
        Most components to draw.
    resolution : int
        Points of the grid on either side.
    levels : int
        Lines of equal value.

    Returns
    -------
    matplotlib.figure.Figure
        One panel a component, its eigenvalue above; blue is negative, red is positive.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import KernelPCA
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> model = KernelPCA(3, kernel="rbf", gamma=1.0).fit(X)
    >>> figure = eigenfunctions(model, X, resolution=20)
    >>> [ax.get_title() for ax in figure.axes][:1] == [f"{model.eigenvalues_[0]:.2f}"]
    True
    """
    points = _plane(X)
    grid, extent = _grid(points, resolution)
    values = np.asarray(model.transform(grid), dtype=np.float64)
    shown = min(n_panels, values.shape[1])
    figure = _panels(shown)
    for p, ax in enumerate(figure.axes):
        Z = values[:, p].reshape(resolution, resolution)
        reach = float(np.abs(Z).max()) or 1.0
        image = ax.imshow(Z, extent=extent, cmap="RdBu_r", alpha=0.5, origin="lower", aspect="auto")
        image.set_clim(-reach, reach)
        ax.contour(Z, levels=levels, extent=extent, colors=MUTED, linewidths=0.5)
        ax.plot(points[:, 0], points[:, 1], "o", ms=1.5, color=INK)
        ax.set_title(f"{float(model.eigenvalues_[p]):.2f}", fontsize=SMALL, color=INK)
    return figure


def reconstructions(
    model: Any, X: ArrayLike, n_samples: int = 200, *, random_state: int = 0
) -> Figure:
    """Draw points, what kernel PCA and the dual model make of them, and samples (S0, Fig. 3).

    Parameters
    ----------
    model : DualPPCA
        Fitted on two columns; its `preimage` leads back to them.
    X : array-like of shape (n, 2)
        Points to reconstruct.
    n_samples : int
    random_state : int

    Returns
    -------
    matplotlib.figure.Figure
        Kernel PCA projects on the same components without shrinking to the mean.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import DualPPCA
    >>> t = np.linspace(-7, 7, 20)
    >>> X = np.column_stack([t, np.sin(t)])
    >>> model = DualPPCA(3, gamma=1 / 8, center=False, preimage="smoother").fit(X)
    >>> len(reconstructions(model, X, 20).axes[0].lines)
    4
    """
    points = _plane(X)
    figure, ax = blank(height=4.4)
    latents = np.asarray(model.transform(points))
    kept = 1 - float(model.noise_variance_) / np.asarray(model.explained_variance_)
    samples = np.asarray(model.sample(n_samples, random_state=random_state))
    drawn = {
        f"samples ({n_samples})": (samples, "o", PALE, 2.5),
        "points": (points, "o", INK, 5.0),
        "kernel PCA": (np.asarray(model.inverse_transform(latents / kept)), "s", VERMILION, 5.0),
        "dual PPCA": (np.asarray(model.inverse_transform(latents)), "^", BLUE, 5.0),
    }
    for places, shape, colour, size in drawn.values():
        ax.plot(places[:, 0], places[:, 1], shape, ms=size, color=colour, alpha=0.75, mew=0)
    share = 100 * float(np.sum(np.asarray(model.explained_variance_ratio_)))
    noise = float(model.noise_variance_)
    ax.set(xlabel=f"{len(kept)} components: {share:.1f} % of the variance, noise {noise:.3g}")
    key(figure, [mark(c, s) for _, s, c, _ in drawn.values()], list(drawn))
    return figure


def sampling_overview(model: Any, n_samples: int = 500, *, random_state: int = 0) -> Figure:
    """Draw kernel samples along a component and off the components (S0, Fig. 2).

    Parameters
    ----------
    model : DualPPCA
    n_samples : int
    random_state : int

    Returns
    -------
    matplotlib.figure.Figure
        Samples of kernel PCA, without noise, stay on the components; those of the dual model
        leave them, in the directions that were discarded.

    Examples
    --------
    >>> import numpy as np
    >>> from dualpca import DualPPCA
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> figure = sampling_overview(DualPPCA(2).fit(X), 50)
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['dual PPCA', 'kernel PCA']
    """
    kc = np.asarray(model.sample_kernel(n_samples, random_state), dtype=np.float64)
    first = _component(model)
    basis = np.linalg.qr(np.asarray(model.coefficients_, dtype=np.float64))[0]
    rest = kc - (kc @ basis) @ basis.T
    off = np.linalg.svd(rest, full_matrices=False)[2][0]
    figure, ax = blank(height=4.0)
    ax.plot(kc @ first, rest @ off, "o", ms=3, color=BLUE, alpha=0.5, mew=0)
    ax.plot(kc @ first, np.zeros(n_samples), "s", ms=3, color=VERMILION, alpha=0.5, mew=0)
    ax.set(xlabel="along the first component", ylabel="off the components, where most is left")
    key(figure, [mark(BLUE), mark(VERMILION, "s")], ["dual PPCA", "kernel PCA"])
    return figure


def _component(model: Any) -> Floats:
    """Return the first direction of kernel values, e₁."""
    A = np.asarray(model.coefficients_, dtype=np.float64)
    return np.asarray(A[:, 0] / np.linalg.norm(A[:, 0]))


def _plane(X: ArrayLike) -> Floats:
    points = np.asarray(X, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"X must have two columns, the axes of the picture, got {points.shape}")
    return points


def _grid(points: Floats, resolution: int) -> tuple[Floats, tuple[float, float, float, float]]:
    """Return a grid around the points, (resolution², 2), and the edges of the picture."""
    low, high = points.min(axis=0), points.max(axis=0)
    reach = np.where(high > low, high - low, 1.0)
    low, high = low - MARGIN * reach, high + MARGIN * reach
    x, y = (np.linspace(a, b, resolution) for a, b in zip(low, high, strict=True))
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    return grid, (float(low[0]), float(high[0]), float(low[1]), float(high[1]))


def _panels(count: int) -> Figure:
    """Return a figure of small frames without ticks, four a row."""
    columns = min(count, COLUMNS)
    lines = math.ceil(count / columns)
    size = (WIDTH * columns / COLUMNS, WIDTH / COLUMNS * lines * 1.15)
    figure = Figure(figsize=size, dpi=DPI, layout="constrained", facecolor="white")
    for p in range(count):
        _bare(figure.add_subplot(lines, columns, p + 1))
    return figure


def _bare(ax: Axes) -> None:
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_color(MUTED)
