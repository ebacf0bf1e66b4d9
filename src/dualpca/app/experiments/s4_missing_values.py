"""S4, 'EM algorithms for PCA: missing values': oil flow, complete and with 30 % removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.spatial import procrustes

from dualpca import PPCA
from dualpca.app.datasets import Floats, Labels, oil_flow
from dualpca.app.experiments.base import Outcome, experiment
from dualpca.app.experiments.canvas import Canvas
from dualpca.app.experiments.tools import turned

ROWS, SHARE = 100, 0.3


@experiment(
    source="S4 missing values",
    title="Oil flow with 30 % of its values removed looks as it did",
    caption="Posterior means of the first 100 rows of oil flow on two latents. Right: the same "
    "rows after 30 % of their values were removed at random, by EM on what is left.",
)
def run(draw: Canvas) -> Outcome:
    """Fit PPCA to 100 rows, whole and with holes, and compare latents and filled values."""
    data = oil_flow()
    X, y = data.X[:ROWS], data.y[:ROWS]
    complete = PPCA(2).fit(X)
    Z = complete.transform(X)
    masks = [_mask(X, draw.seed + k) for k in range(draw.pick(10, quick=2))]
    tries = [_with_holes(X, Z, hole) for hole in masks]
    numbers = {
        "noise variance, complete": complete.noise_variance_,
        "log-likelihood, complete": complete.loglikelihood_,
        "1 - R2 of Procrustes, mean": np.mean([one["disparity"] for one in tries]),
        "1 - R2 of Procrustes, each": [one["disparity"] for one in tries],
        "fill RMSE, mean": np.mean([one["rmse"] for one in tries]),
        "fill RMSE by column means": np.mean([one["naive"] for one in tries]),
        "rows with a hole, first mask": int(masks[0].any(axis=1).sum()),
    }
    maps = {"Complete": Z, "30 % missing": turned(tries[0]["latents"], Z)}
    return Outcome(
        {"figure": _figure(draw, maps, y, data.classes)},
        numbers,
        "As on the slide, the picture survives: the three configurations lie where they lay, "
        f"and Procrustes leaves {numbers['1 - R2 of Procrustes, mean']:.2f} of the variance "
        "unexplained on average over ten masks.",
        "The slide's own mask is not published, and latents are known up to rotation and "
        "reflection: the right panel is turned onto the left one.",
    )


def _figure(draw: Canvas, maps: dict[str, Floats], y: Labels, names: Sequence[str]) -> Figure:
    """Draw latents side by side."""
    figure, axes = draw.panels(1, 2, height=4.3, sharex=True, sharey=True)
    for ax, (title, Z) in zip(axes[0], maps.items(), strict=True):
        draw.scatter(ax, Z, y, names)
        ax.set(title=title, xlabel="latent 1", aspect="equal")
    axes[0, 0].set_ylabel("latent 2")
    draw.key(figure, axes[0, 0])
    return figure


def _mask(X: Floats, seed: int) -> np.ndarray:
    """Return where values are removed; no row or column loses all."""
    rng = np.random.default_rng(seed)
    hole = rng.random(X.shape) < SHARE
    hole[np.arange(len(X)), rng.integers(X.shape[1], size=len(X))] = False
    return hole


def _with_holes(X: Floats, Z: Floats, hole: np.ndarray) -> dict[str, Any]:
    """Fit rows with holes: latents, their distance from Z, and errors of filled values."""
    holed = np.where(hole, np.nan, X)
    model = PPCA(2, max_iter=5000).fit(holed)
    latents = model.transform(holed)
    naive = np.broadcast_to(np.nanmean(holed, axis=0), X.shape)
    return {
        "latents": latents,
        "disparity": float(procrustes(Z, latents)[2]),
        "rmse": _rmse(model.impute(holed)[hole], X[hole]),
        "naive": _rmse(naive[hole], X[hole]),
    }


def _rmse(a: Floats, b: Floats) -> float:
    return float(np.sqrt(np.mean((a - b) ** 2)))
