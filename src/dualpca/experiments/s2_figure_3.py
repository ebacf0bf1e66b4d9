"""S2 Fig. 3: multidimensional scaling of normal points in growing dimension."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import pdist, squareform

from dualpca import KernelPCA
from dualpca.datasets import Floats
from dualpca.experiments.base import Outcome, experiment
from dualpca.experiments.canvas import BLUE, GREEN, Canvas

DIMENSIONS, ROWS = (2, 10, 100, 1000), 200


@experiment(
    name="s2-figure-3",
    source="S2 Fig. 3",
    title="Scaled to the plane, points of many dimensions keep apart from each other",
)
def run(draw: Canvas) -> Outcome:
    """Map points by classical scaling and by least stress, and measure how even they lie."""
    rng, steps = draw.rng, draw.pick(500, quick=20)
    figure, axes = draw.panels(2, len(DIMENSIONS), height=4.1)
    spread, even = [], {"classical": [], "least stress": []}  # type: ignore[var-annotated]
    for column, n in enumerate(DIMENSIONS):
        X = rng.normal(size=(ROWS, n))
        spread.append(pdist(X).std() / pdist(X).mean())
        flat = KernelPCA(2, kernel="linear").fit_transform(X)
        maps = {"classical": flat, "least stress": least_stress(pdist(X), flat, steps)}
        for row, (name, Z) in enumerate(maps.items()):
            ax, nearest = axes[row, column], _nearest(Z)
            even[name].append(nearest.std() / nearest.mean())
            ax.plot(*Z.T, "o", ms=2.6, color=(BLUE, GREEN)[row], alpha=0.75, mew=0)
            ax.set(aspect="equal", adjustable="datalim", xticks=[], yticks=[])
        axes[0, column].set_title(f"{n} dimensions")
    axes[0, 0].set_ylabel("classical scaling")
    axes[1, 0].set_ylabel("least stress")
    numbers = {
        "dimensions": DIMENSIONS,
        "variation of distances": spread,
        "variation expected": [float(np.sqrt(1 / (2 * n))) for n in DIMENSIONS],
        "variation of nearest distances in the map": even,
    }
    return Outcome(
        {"figure": figure},
        numbers,
        "Distances vary less and less around their mean as dimensions grow, and under least stress "
        "the points come to lie evenly in a disc, as the document's do.",
        "The document cites Torgerson's classical scaling, but that is a linear projection and "
        "leaves a normal cloud: the even spread needs stress to be minimised. It does not say how "
        "many points it drew, nor in which dimensions.",
        "200 standard normal points of 2 to 1000 dimensions, mapped to the plane. Above: classical "
        "scaling, which is linear PCA. Below: distances in the map as near to the true ones as can "
        "be, by majorisation.",
    )


def least_stress(distance: Floats, start: Floats, steps: int) -> Floats:
    """Return Z that lowers Σ (d_ij − ‖z_i − z_j‖)², by Guttman's transform (SMACOF)."""
    D, Z = squareform(distance), start
    for _ in range(steps):
        now = squareform(pdist(Z))
        ratio = np.divide(D, now, out=np.zeros_like(D), where=now > 0)
        Z = (ratio.sum(axis=1)[:, None] * Z - ratio @ Z) / len(Z)
    return np.asarray(Z)


def _nearest(Z: Floats) -> Floats:
    D = squareform(pdist(Z))
    np.fill_diagonal(D, np.inf)
    return np.asarray(D.min(axis=1))
