"""S4, 'Bayesian PCA: Hinton diagrams': maximum likelihood beside automatic relevance."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle

from dualpca import PPCA, BayesianPCA
from dualpca.app.datasets import Floats
from dualpca.app.experiments.base import Outcome, experiment
from dualpca.app.experiments.canvas import Canvas

ROWS, DEVIATIONS, STARTED = 300, np.repeat([1.0, 0.5], [3, 7]), 9
GROUND = "#8d94a3"


@experiment(
    source="S4 Hinton diagrams",
    title="Bayesian PCA switches off the six directions it does not need",
    caption="Loadings W of ten features (rows) on nine directions (columns): the area of a square "
    "is the size of a loading, white is positive and black is negative.",
)
def run(draw: Canvas) -> Outcome:
    """Fit nine directions to data that have three, by maximum likelihood and with a prior."""
    count = draw.pick(20, quick=3)
    found = [BayesianPCA(STARTED).fit(_points(draw.seed + k)).n_effective_ for k in range(count)]
    X = _points(draw.seed)
    ml, bayes = PPCA(STARTED).fit(X), BayesianPCA(STARTED).fit(X)
    W = np.zeros((len(DEVIATIONS), STARTED))
    W[:, : bayes.n_effective_] = bayes.loadings_
    figure, axes = draw.panels(1, 2, height=4.5)
    _hinton(axes[0, 0], ml.loadings_, "Maximum likelihood")
    _hinton(axes[0, 1], W, "Bayesian PCA")
    lengths = np.linalg.norm(ml.loadings_, axis=0)
    numbers = {
        "dimensions found, each draw": found,
        "draws with three dimensions": int(np.sum(np.array(found) == 3)),
        "draws": count,
        "lengths of columns, maximum likelihood": lengths,
        "lengths of columns, Bayesian": np.linalg.norm(W, axis=0),
        "relevance 1/alpha": bayes.relevance_,
    }
    return Outcome(
        {"figure": figure},
        numbers,
        "As on the slide, maximum likelihood fills all nine columns, and the prior empties six: "
        f"three dimensions in {numbers['draws with three dimensions']} of {count} draws.",
        "The slide's 300 points are not published: these are draws of the same kind (standard "
        "deviation 1 in three directions, 0.5 in seven). The three directions are the first three "
        "features here, so the blocks of large squares are where they must be.",
    )


def _points(seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    return np.asarray(rng.normal(size=(ROWS, len(DEVIATIONS))) * DEVIATIONS)


def _hinton(ax: Axes, W: Floats, title: str) -> None:
    """Draw a matrix as squares on grey, the area for the magnitude and the colour for the sign."""
    d, q = W.shape
    side = 0.95 * np.sqrt(np.abs(W) / np.abs(W).max())
    for sign, colour in ((1, "white"), (-1, "black")):
        at = np.argwhere(sign * W > 0)
        squares = [
            Rectangle((j - side[i, j] / 2, i - side[i, j] / 2), side[i, j], side[i, j])
            for i, j in at
        ]
        ax.add_collection(PatchCollection(squares, fc=colour, ec="none"))
    ax.set(xlim=(-0.6, q - 0.4), ylim=(d - 0.4, -0.6), aspect="equal", title=title)
    ax.set(xticks=range(q), xticklabels=range(1, q + 1), xlabel="direction")
    ax.set(yticks=range(d), yticklabels=range(1, d + 1), ylabel="feature", facecolor=GROUND)
    ax.grid(False)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
