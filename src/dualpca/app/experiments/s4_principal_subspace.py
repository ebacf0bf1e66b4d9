"""S4, 'PCA with 1D principal subspace': most variance kept is least error made."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from dualpca import PCA
from dualpca.app.datasets import Floats
from dualpca.app.experiments.base import Outcome, experiment
from dualpca.app.experiments.canvas import BLUE, GREEN, MUTED, RED, Canvas

MAGENTA = "#aa4499"


@experiment(
    source="S4 1D principal subspace",
    title="The direction of most variance is the direction of least error",
    caption="Left: points (red), their orthogonal projections (green) on the principal subspace "
    "(magenta), and the errors (blue). Right: the variance of projections and their mean "
    "squared error for every direction; they add up to the total.",
)
def run(draw: Canvas) -> Outcome:
    """Project correlated points on every direction of the plane, and on the first axis."""
    X = draw.rng.multivariate_normal([2.0, 1.0], [[3.0, 1.6], [1.6, 1.4]], size=40)
    model = PCA(1).fit(X)
    u, Xc = model.components_[0], X - model.mean_
    angles = np.linspace(0, np.pi, 361)
    kept = np.mean((Xc @ np.array([np.cos(angles), np.sin(angles)])) ** 2, axis=0)
    figure, axes = draw.panels(1, 2, height=3.7)
    _draw_points(axes[0, 0], X, model.reconstruct(X), model.mean_, u)
    best = float(np.degrees(np.arctan2(u[1], u[0])) % 180)
    _draw_directions(axes[0, 1], np.degrees(angles), kept, best)
    numbers = {
        "variance along u1": np.mean((Xc @ u) ** 2),
        "error J": np.mean(np.sum((X - model.reconstruct(X)) ** 2, axis=1)),
        "eigenvalues of S": np.linalg.eigvalsh(np.cov(X.T, bias=True))[::-1],
        "largest variance over all directions": kept.max(),
    }
    return Outcome(
        {"figure": figure},
        numbers,
        "The variance along u₁ is λ₁ and the error J is λ₂, as the slides derive. The two curves "
        "mirror each other, so both formulations choose the same line.",
        "The points of the slide are not published: these are 40 draws from a Gaussian.",
    )


def _draw_points(ax: Axes, X: Floats, back: Floats, mean: Floats, u: Floats) -> None:
    """Draw points, the line, and every point's way to it."""
    reach = 1.15 * np.abs((X - mean) @ u).max()
    line = mean + np.outer([-reach, reach], u)
    for x, z in zip(X, back, strict=True):
        ax.plot(*np.column_stack([x, z]), color=BLUE, lw=0.9, zorder=1)
    ax.plot(*line.T, color=MAGENTA, lw=2.2, zorder=2)
    ax.plot(*X.T, "o", color=RED, ms=4.5, mew=0, zorder=3)
    ax.plot(*back.T, "o", color=GREEN, ms=4, mew=0, zorder=3)
    ax.annotate(
        "u₁", line[1], color=MAGENTA, xytext=(-4, 6), textcoords="offset points", ha="right"
    )
    ax.set(aspect="equal", adjustable="datalim", xlabel="x₁", ylabel="x₂", title="Projection")


def _draw_directions(ax: Axes, degrees: Floats, kept: Floats, best: float) -> None:
    """Draw variance and error over the direction of the line."""
    total = float(kept.max() + kept.min())  # of two directions at right angles
    for values, colour, word in ((kept, GREEN, "variance"), (total - kept, BLUE, "error")):
        ax.plot(degrees, values, color=colour)
        top = int(np.argmax(values))
        ax.text(degrees[top] + 24, 0.93 * values[top], word, color=colour)
    ax.axvline(best, color=MAGENTA, lw=1.2, ls="--")
    ax.text(best + 3, 0.04 * total, "u₁", color=MAGENTA)
    ax.axhline(total, color=MUTED, lw=0.8)
    ax.text(178, 1.01 * total, "total", color=MUTED, fontsize=9, ha="right", va="bottom")
    ax.set(xlabel="direction of the line (degrees)", xticks=range(0, 181, 45), title="All lines")
    ax.set_ylim(0, 1.12 * total)
