"""S2 Fig. 1: the nearest neighbour loses its meaning as dimensions grow."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from dualpca.app.datasets import Floats
from dualpca.app.experiments.base import Outcome, experiment
from dualpca.app.experiments.canvas import BLUE, INK, MUTED, RED, Canvas

DIMENSIONS, ROWS = (2, 20, 500), 200


@experiment(
    source="S2 Fig. 1",
    title="In many dimensions the nearest neighbour is hardly nearer than the furthest",
    caption="A query (cross) in the middle and 200 points at their true distances from it, in "
    "units of the furthest; directions are drawn at random. The circles pass through the nearest "
    "(red) and the furthest point (grey).",
)
def run(draw: Canvas) -> Outcome:
    """Draw a query and its distances to normal points in few and in many dimensions."""
    figure, axes = draw.panels(1, 3, height=2.9)
    rng = draw.rng
    for ax, n in zip(axes[0], DIMENSIONS, strict=True):
        _draw(ax, _distances(rng, n), rng)
        ax.set_title(f"{n} dimensions")
    tried = (1, 2, 5, 10, 20, 50, 100, 200, 500)
    queries = draw.pick(200, quick=20)
    ratios = [_ratio(rng, n, queries) for n in tried]
    numbers = {"dimensions": tried, "nearest over furthest, median": ratios}
    return Outcome(
        {"figure": figure},
        numbers,
        "The message of the figure holds: the gap between nearest and furthest closes; their ratio "
        f"grows from {ratios[1]:.2f} in 2 dimensions to {ratios[-1]:.2f} in 500.",
        "The document takes its drawing from Beyer et al. (1999), who give no data: these are 200 "
        "normal points and a normal query, and only distances are to scale, not angles.",
    )


def _distances(rng: np.random.Generator, n: int) -> Floats:
    """Return the distances of normal points from a normal query."""
    return np.asarray(np.linalg.norm(rng.normal(size=(ROWS, n)) - rng.normal(size=n), axis=1))


def _ratio(rng: np.random.Generator, n: int, queries: int) -> float:
    found = [_distances(rng, n) for _ in range(queries)]
    return float(np.median([d.min() / d.max() for d in found]))


def _draw(ax: Axes, distance: Floats, rng: np.random.Generator) -> None:
    """Draw distances around the query."""
    t = rng.uniform(0, 2 * np.pi, len(distance))
    r = distance / distance.max()
    circle = np.linspace(0, 2 * np.pi, 200)
    k = int(np.argmin(r))
    for radius, colour in ((1.0, MUTED), (r[k], RED)):
        ax.plot(radius * np.cos(circle), radius * np.sin(circle), color=colour, lw=1.2)
    ax.plot(r * np.cos(t), r * np.sin(t), "o", ms=2.8, color=BLUE, alpha=0.6, mew=0)
    ax.plot(r[k] * np.cos(t[k]), r[k] * np.sin(t[k]), "o", ms=5, color=RED, mew=0)
    ax.plot(0, 0, "+", ms=9, mew=1.8, color=INK, zorder=1)
    ax.set(aspect="equal", xticks=[], yticks=[], xlabel=f"nearest at {r[k]:.2f} of the furthest")
    ax.grid(False)
    ax.spines[:].set_visible(False)
