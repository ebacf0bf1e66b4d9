"""S2 Fig. 10: from one digit to another through the latent space."""

from __future__ import annotations

import numpy as np

from dualpca import Generator
from dualpca.app.datasets import Floats
from dualpca.app.experiments.base import Outcome, experiment
from dualpca.app.experiments.canvas import Canvas
from dualpca.app.experiments.digit_models import digits, document

PAIRS, STEPS = ((0, 5), (1, 7), (3, 8)), 24


@experiment(
    source="S2 Fig. 10",
    title="One digit turns into another along a line through the latents",
    caption="Read line by line: upper left and lower right are decoded training digits, in between "
    f"{STEPS - 2} points at equal distances on the straight line between their latents.",
)
def run(draw: Canvas) -> Outcome:
    """Interpolate between training digits, straight and where the density is high."""
    data = digits(draw, draw.pick(1500, quick=300))
    model = document().fit(data.X)
    figure, axes = draw.panels(1, len(PAIRS), height=2.15)
    numbers = {}
    for ax, (a, b) in zip(axes[0], PAIRS, strict=True):
        start, end = (_typical(data.X[data.y == digit]) for digit in (a, b))
        path = model.interpolate(start, end, STEPS)
        draw.images(ax, np.clip(path, 0, 1), 6)
        ax.set_title(f"from {a} to {b}")
        numbers[f"{a} to {b}"] = _smoothness(model, path, start, end)
    return Outcome(
        {"figure": figure},
        numbers,
        "As in the document, moving steadily through the latents changes the image steadily: no "
        "step is more than a small part of the way, and both ends are the digits that were "
        "encoded.",
        "The document does not say which digits nor how many latents it used here: these are the "
        "training digits nearest to the means of their kinds, with 15 latents. Half-way images of "
        "unlike digits are neither, for nothing lies there: `interpolate(path='density')` goes "
        "where more does.",
    )


def _typical(X: Floats) -> Floats:
    """Return the image that is nearest to the mean."""
    return np.asarray(X[int(np.argmin(np.sum((X - X.mean(axis=0)) ** 2, axis=1)))])


def _smoothness(model: Generator, path: Floats, start: Floats, end: Floats) -> dict[str, float]:
    """Return how long the longest step is, beside the way from end to end, and the detour."""
    steps = np.linalg.norm(np.diff(path, axis=0), axis=1)
    way = float(np.linalg.norm(path[-1] - path[0]))
    around = model.interpolate(start, end, STEPS, path="density")
    Z = [model.estimator_.transform(rows) for rows in (path, around)]
    heights = [float(model.density_.log_density(rows).mean()) for rows in Z]
    return {
        "longest step over the whole way": float(steps.max()) / way,
        "mean log-density, straight": heights[0],
        "mean log-density, along the density": heights[1],
    }
