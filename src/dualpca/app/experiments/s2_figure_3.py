"""S2 Fig. 3: multidimensional scaling of normal points in growing dimension."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from scipy.spatial.distance import pdist, squareform

from dualpca import KernelPCA
from dualpca.app.datasets import Floats
from dualpca.app.experiments.base import Outcome, experiment
from dualpca.app.experiments.canvas import BLUE, GREEN, Canvas

DIMENSIONS, ROWS = (2, 10, 100, 1000), 200


@experiment(
    source="S2 Fig. 3",
    title="Scaled to the plane, points of many dimensions keep apart from each other",
    caption="200 standard normal points of 2 to 1000 dimensions, mapped to the plane. Above: "
    "classical scaling, which is linear PCA. Below: distances in the map as near to the true ones "
    "as can be, by majorisation.",
)
def run(draw: Canvas) -> Outcome:
    """Map points by classical scaling and by least stress, and measure how even they lie."""
    rng, steps = draw.rng, draw.pick(500, quick=20)
    points = [rng.normal(size=(ROWS, n)) for n in DIMENSIONS]
    flat = [KernelPCA(2, kernel="linear").fit_transform(X) for X in points]
    even = [least_stress(pdist(X), Z, steps) for X, Z in zip(points, flat, strict=True)]
    maps = {"classical": flat, "least stress": even}
    nearest = {name: [_variation(_nearest(Z)) for Z in found] for name, found in maps.items()}
    numbers = {
        "dimensions": DIMENSIONS,
        "variation of distances": [_variation(pdist(X)) for X in points],
        "variation expected": [float(np.sqrt(1 / (2 * n))) for n in DIMENSIONS],
        "variation of nearest distances in the map": nearest,
    }
    return Outcome(
        {"figure": _figure(draw, maps)},
        numbers,
        "Distances vary less and less around their mean as dimensions grow, and under least stress "
        "the points come to lie evenly in a disc, as the document's do.",
        "The document cites Torgerson's classical scaling, but that is a linear projection and "
        "leaves a normal cloud: the even spread needs stress to be minimised. It does not say how "
        "many points it drew, nor in which dimensions.",
    )


def _figure(draw: Canvas, maps: dict[str, list[Floats]]) -> Figure:
    """Draw the maps of each way in a row, by the dimension of the points."""
    figure, axes = draw.panels(2, len(DIMENSIONS), height=4.1)
    for row, found, colour in zip(axes, maps.values(), (BLUE, GREEN), strict=True):
        for ax, Z in zip(row, found, strict=True):
            ax.plot(*Z.T, "o", ms=2.6, color=colour, alpha=0.75, mew=0)
            ax.set(aspect="equal", adjustable="datalim", xticks=[], yticks=[])
    for ax, n in zip(axes[0], DIMENSIONS, strict=True):
        ax.set_title(f"{n} dimensions")
    axes[0, 0].set_ylabel("classical scaling")
    axes[1, 0].set_ylabel("least stress")
    return figure


def least_stress(distance: Floats, start: Floats, steps: int) -> Floats:
    """Return Z that lowers Σ (d_ij − ‖z_i − z_j‖)², by Guttman's transform (SMACOF)."""
    D, Z = squareform(distance), start
    for _ in range(steps):
        now = squareform(pdist(Z))
        ratio = np.divide(D, now, out=np.zeros_like(D), where=now > 0)
        Z = (ratio.sum(axis=1)[:, None] * Z - ratio @ Z) / len(Z)
    return np.asarray(Z)


def _variation(values: Floats) -> float:
    return float(values.std() / values.mean())


def _nearest(Z: Floats) -> Floats:
    D = squareform(pdist(Z))
    np.fill_diagonal(D, np.inf)
    return np.asarray(D.min(axis=1))
