"""S4, 'PPCA versus PCA': orthogonal projections, and reconstructions shrunk to the mean."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from dualpca import PCA, PPCA
from dualpca.app.datasets import Floats
from dualpca.app.experiments.base import Outcome, experiment
from dualpca.app.experiments.canvas import BLUE, GREEN, INK, MUTED, RED, Canvas


@experiment(
    source="S4 PPCA versus PCA",
    title="PCA projects at right angles, PPCA shrinks towards the mean",
    caption="Points (circles), their reconstructions (crosses) from one component, and the mean "
    "(star). Right: the hollow marks are PCA's reconstructions, to see how far PPCA shrinks.",
)
def run(draw: Canvas) -> Outcome:
    """Reconstruct points of the plane from one component, by both models."""
    X = draw.rng.multivariate_normal([0.0, 0.0], [[1.7, 0.8], [0.8, 1.4]], size=25)
    pca, ppca = PCA(1).fit(X), PPCA(1).fit(X)
    u, mean = pca.components_[0], X.mean(axis=0)
    flat, shrunk = pca.reconstruct(X), ppca.reconstruct(X)
    figure, axes = draw.panels(1, 2, height=3.6, sharex=True, sharey=True)
    _panel(axes[0, 0], X, flat, mean, u, "PCA")
    _panel(axes[0, 1], X, shrunk, mean, u, "PPCA")
    axes[0, 0].set_ylabel("x₂")
    numbers = {
        "noise variance": ppca.noise_variance_,
        "factor expected": 1 - ppca.noise_variance_ / ppca.explained_variance_[0],
        "factor found": np.mean((shrunk - mean) @ u / ((flat - mean) @ u)),
        "angle of PCA's steps to the line": _angle(X - flat, u),
        "angle of PPCA's steps to the line": _angle(X - shrunk, u),
    }
    return Outcome(
        {"figure": figure},
        numbers,
        "As on the slide, reconstructions by PPCA lie on the same line but nearer to the mean: "
        "each by the factor 1 − σ²/λ₁, and no longer at right angles.",
        "The points of the slide (a demonstration of PMTK3) are not published: these are 25 draws "
        "from a Gaussian.",
    )


def _angle(steps: Floats, u: Floats) -> float:
    """Return the mean angle between steps and a line, in degrees."""
    cosine = np.abs(steps @ u) / np.linalg.norm(steps, axis=1)
    return float(np.degrees(np.arccos(cosine)).mean())


def _panel(ax: Axes, X: Floats, back: Floats, mean: Floats, u: Floats, title: str) -> None:
    reach = 1.1 * np.abs((X - mean) @ u).max()
    ax.plot(*(mean + np.outer([-reach, reach], u)).T, color=MUTED, lw=1.2)
    for x, z in zip(X, back, strict=True):
        ax.plot(*np.column_stack([x, z]), color=BLUE, lw=0.9, alpha=0.8)
    flat = mean + np.outer((X - mean) @ u, u)
    if not np.allclose(flat, back):
        ax.plot(*flat.T, "o", mfc="none", mec=MUTED, ms=5, mew=0.8)
    ax.plot(*X.T, "o", color=GREEN, ms=4.5, mew=0)
    ax.plot(*back.T, "x", color=INK, ms=5.5, mew=1.3)
    ax.plot(*mean, "*", color=RED, ms=14, mec="white")
    ax.set(aspect="equal", title=title, xlabel="x₁")
