"""S2 Fig. 2: the variance of the relative deviation of squared distances is 2/n (theorem 1)."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from dualpca.app.datasets import Floats
from dualpca.app.experiments.base import Outcome, experiment
from dualpca.app.experiments.canvas import BLUE, RED, Canvas

LARGEST = 200
SHOWN = np.array([1, 2, 5, 10, 20, 50, 100, 200])
"""Dimensions whose numbers are written down."""


@experiment(
    source="S2 Fig. 2",
    title="Theorem 1: squared distances deviate from their mean with variance 2/n",
    caption="Variance of (‖x − q‖² − 2n)/2n over pairs of standard normal points in n dimensions.",
)
def run(draw: Canvas) -> Outcome:
    """Compare the sample variance of the deviation with 2/n, for n from 1 to 200."""
    pairs, n = draw.pick(20_000, quick=2_000), np.arange(1, LARGEST + 1)
    rng = draw.rng
    gap = rng.normal(size=(pairs, LARGEST)) - rng.normal(size=(pairs, LARGEST))
    Y = np.cumsum(gap**2, axis=1) / (2 * n) - 1  # the first n coordinates of every pair
    found, theory = Y.var(axis=0, ddof=1), 2 / n
    error = theory * np.sqrt((2 + 12 / n) / pairs)  # kurtosis of χ²(n): 3 + 12/n
    off = (found - theory) / error
    figure, [[ax]] = draw.panels(1, 1, height=3.6)
    _draw(ax, n, found, pairs)
    numbers = {
        "pairs": pairs,
        "n": SHOWN,
        "variance": found[SHOWN - 1],
        "theorem": theory[SHOWN - 1],
        "largest deviation in standard errors": np.abs(off).max(),
        "root mean square of deviations in standard errors": np.sqrt(np.mean(off**2)),
    }
    return Outcome(
        {"figure": figure},
        numbers,
        "Sample variances follow 2/n at all 200 dimensions, within "
        f"{np.abs(off).max():.1f} standard errors.",
        "The document does not say how many pairs it drew, and its axes are linear: on logarithmic "
        "ones the law is a straight line. One set of pairs serves all n by its first n "
        "coordinates, so neighbouring points go together.",
    )


def _draw(ax: Axes, n: np.ndarray, found: Floats, pairs: int) -> None:
    ax.loglog(n, 2 / n, color=RED, lw=3, alpha=0.6)
    ax.loglog(n, found, ".", color=BLUE, ms=4)
    ax.text(2.6, 1.05, "2/n, the theorem", color=RED)
    ax.text(1.2, 0.12, f"variance of {pairs:,} pairs", color=BLUE)
    ax.set(xlabel="dimensions n", ylabel="variance of the deviation")
