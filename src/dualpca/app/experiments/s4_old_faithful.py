"""S4, 'Old Faithful data set': raw, standardised and whitened."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from dualpca import PCA
from dualpca.app.datasets import Floats, faithful
from dualpca.app.experiments.base import Outcome, experiment
from dualpca.app.experiments.canvas import BLUE, RED, Canvas


@experiment(
    source="S4 Old Faithful",
    title="Old Faithful raw, standardised and whitened",
    caption="272 eruptions of the geyser, and principal axes of ±√λ. Left: in minutes, on two "
    "scales, so that the right angle between the axes does not look like one. Middle: in "
    "standard deviations. Right: after y = L^(−1/2)Uᵀ(x − x̄), of the data in minutes.",
)
def run(draw: Canvas) -> Outcome:
    """Fit PCA to minutes, to standard units, and take the correlation away."""
    X = faithful().X
    n = len(X)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    raw, scaled = PCA().fit(X), PCA(standardize=True).fit(X)
    white = PCA(whiten=True).fit(X).transform(X) * np.sqrt(n / (n - 1))  # divisor n, as the slides
    figure, [[left, *others]] = draw.panels(1, 3, height=2.9)
    ell, ell_scaled = (model.explained_variance_ * (n - 1) / n for model in (raw, scaled))
    _panel(left, X, raw.mean_, raw.components_, ell)
    left.set(title="Raw", xlabel="eruption (min)", ylabel="wait for the next (min)")
    _panel(others[0], Z, np.zeros(2), scaled.components_, ell_scaled)
    others[0].set(title="Standardised", xlabel="eruption (sd)", ylabel="wait (sd)")
    _panel(others[1], white, np.zeros(2), np.eye(2), np.ones(2))
    others[1].set(title="Whitened", xlabel="component 1", ylabel="component 2")
    for ax in others:
        ax.set(xlim=(-2.6, 2.6), ylim=(-2.6, 2.6))
    numbers = {
        "eigenvalues raw": ell,
        "eigenvalues standardised": ell_scaled,
        "correlation": np.mean(Z[:, 0] * Z[:, 1]),
        "covariance whitened": np.cov(white.T, bias=True),
    }
    return Outcome(
        {"figure": figure},
        numbers,
        "The first axis of the raw data is the waiting time, whose numbers are larger; of the "
        "standardised data it is the diagonal, as it must be with two variables; whitened data "
        "have covariance I.",
        "The slides print no numbers for this figure. Signs of components are arbitrary, so the "
        "whitened panel may be a mirror image of the slide's.",
    )


def _panel(ax: Axes, X: Floats, centre: Floats, axes: Floats, ell: Floats) -> None:
    """Draw points and their principal axes, ±√λ long."""
    ax.plot(*X.T, "o", color=BLUE, ms=2.8, alpha=0.55, mew=0)
    for v, length in zip(axes, np.sqrt(ell), strict=True):
        ends = centre + np.outer([-length, length], v)
        ax.plot(*ends.T, color=RED, lw=2.2, solid_capstyle="butt")
    ax.set_box_aspect(1)
