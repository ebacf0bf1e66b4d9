"""S0 Fig. 2: sampling in the whole kernel space, and on the components only."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from dualpca import DualPPCA, KernelPCA
from dualpca.app.datasets import Floats
from dualpca.app.experiments.base import Outcome, experiment
from dualpca.app.experiments.canvas import BLUE, INK, RED, Canvas
from dualpca.app.experiments.tools import wave

KEPT = 3


@experiment(
    source="S0 Fig. 2",
    title="Dual PPCA samples the whole kernel space, kernel PCA only its components",
    caption="Left: sampled kernel values along the first component and along the first discarded "
    "direction, where kernel PCA has none. Right: their variance along every direction, beside "
    "the model's.",
)
def run(draw: Canvas) -> Outcome:
    """Sample centred kernel values of twenty points, on and off three components."""
    X = wave()
    model = DualPPCA(KEPT, gamma=1 / 8).fit(X)
    every = KernelPCA(len(X) - 1, kernel="rbf", gamma=1 / 8).fit(X)
    E, lam = np.asarray(every.eigenvectors_), np.asarray(every.eigenvalues_)
    along = np.asarray(model.sample_kernel(draw.pick(5000, quick=200), draw.seed)) @ E
    target = lam**2 / len(X)
    target[KEPT:] = model.noise_variance_ * lam[KEPT:]
    measured = along.var(axis=0)
    figure, [[plane, bars]] = draw.panels(1, 2, height=3.5)
    _draw_plane(plane, along[:500])
    _draw_variances(bars, measured, target)
    draw.key(figure, plane)
    numbers = {
        "directions_reached_by_dual_ppca": int(np.linalg.matrix_rank(along)),
        "directions_reached_by_kernel_pca": KEPT,
        "variance_off_components": float(measured[KEPT:].sum()),
        "variance_off_components_by_the_model": float(target[KEPT:].sum()),
        "largest_relative_error_of_a_variance": float(np.abs(measured / target - 1).max()),
        "noise_variance": float(model.noise_variance_),
    }
    return Outcome(
        {"samples": figure},
        numbers,
        "Samples of dual PPCA reach all 19 directions of the centred kernel space, those of kernel "
        "PCA only the 3 components; along every direction their variance is that of B (section "
        "4.4), λ²/n on the components and σ²λ off them.",
        "The published figure is a diagram without data. The formula printed for the covariance "
        "(Eq. 18) is not that of B; samples here follow B. The twenty points are ours, (t, sin t).",
    )


def _draw_plane(ax: Axes, along: Floats) -> None:
    """Draw samples along the first component and the first direction that was discarded."""
    ax.plot(along[:, 0], along[:, KEPT], "o", ms=3, mew=0, alpha=0.6, color=BLUE, label="dual PPCA")
    ax.plot(along[:, 0], 0 * along[:, 0], "s", ms=3, mew=0, alpha=0.6, color=RED)
    ax.lines[-1].set_label("kernel PCA")
    ax.set(xlabel="along component 1", ylabel=f"along direction {KEPT + 1}, discarded")


def _draw_variances(ax: Axes, measured: Floats, target: Floats) -> None:
    """Draw the variance of samples along every direction."""
    place = np.arange(1, len(target) + 1)
    ax.semilogy(place, target, "-", color=INK, lw=1.0)
    ax.semilogy(place, measured, "o", ms=4, color=BLUE)
    ax.semilogy(place[:KEPT], measured[:KEPT], "s", ms=7, mfc="none", color=RED)
    ax.annotate("line: the model", (place[8], target[8]), (6, 6), textcoords="offset points")
    ax.annotate("nothing from here on\nwith kernel PCA", (KEPT + 0.8, target[-1]), color=RED)
    ax.axvline(KEPT + 0.5, color=RED, lw=0.8, ls=(0, (5, 3)))
    ax.set(xlabel="direction of kernel space", ylabel="variance of samples")
    ax.set_xticks([1, 4, 7, 10, 13, 16, 19])
