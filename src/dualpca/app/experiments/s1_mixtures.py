"""S1 section 5.2: mixtures of PPCA, on a curve and on oil flow."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from sklearn.metrics import adjusted_rand_score

from dualpca import MixturePPCA
from dualpca.app import datasets
from dualpca.app.datasets import Floats
from dualpca.app.experiments.base import Outcome, experiment
from dualpca.app.experiments.canvas import BLUE, INK, PALE, RED, Canvas
from dualpca.app.plots._canvas import PALETTE

PIECES = 8
SIZES = [1, 2, 3, 5, 8, 12, 18, 26]


@experiment(
    source="S1 section 5.2",
    title="Mixtures of PPCA: a curve in flat pieces, and oil flow by how many of them",
    caption=f"Left: {PIECES} lines with their noise (ellipses of two standard deviations) cover a "
    "spiral. Right: log-density of oil flow by the number of planes, on the readings fitted "
    "and on a thousand others.",
)
def run(draw: Canvas) -> Outcome:
    """Cover a spiral with lines; judge mixtures of planes on readings they have not seen."""
    figure, [[curve, sizes]] = draw.panels(1, 2, height=3.7)
    on_the_spiral = _cover(curve, draw)
    oil, new = datasets.oil_flow(), datasets.oil_flow("valid")
    fits = {k: _fit(k, oil.X, draw) for k in draw.pick(SIZES, quick=SIZES[:3])}
    training, unseen = ([float(m.score(X)) for m in fits.values()] for X in (oil.X, new.X))
    _draw_sizes(sizes, list(fits), training, unseen)
    best = list(fits)[int(np.argmax(unseen))]
    numbers = {
        "loglikelihood_three_planes": float(fits[3].loglikelihood_),
        "mixtures_best_on_new_readings": best,
        "rand_index_three_planes": float(adjusted_rand_score(oil.y, fits[3].predict(oil.X))),
        "purity_of_the_best": _purity(fits[best].predict(oil.X), oil.y),
        **on_the_spiral,
        "mixtures": list(fits),
        "training_nats_a_row": training,
        "unseen_nats_a_row": unseen,
    }
    return Outcome(
        {"mixtures": figure},
        numbers,
        "Local planes capture what one cannot: on new readings of oil flow the log-density rises "
        f"from {unseen[0]:.1f} to {max(unseen):.1f} nats with {best} planes, of which each holds "
        f"almost one flow only (purity {numbers['purity_of_the_best']:.3f}).",
        "The section has a heading and no text. Algorithm 1 is printed with an update of σ² that "
        "becomes negative; the corrected one is used, (tr S − Σℓ)/(d − q). Three planes do not "
        f"find the three flows (Rand index {numbers['rand_index_three_planes']:.2f}).",
    )


def _spiral(rng: np.random.Generator, n: int = 600) -> Floats:
    turn = rng.uniform(np.pi / 2, 3.6 * np.pi, n)
    place = np.column_stack([turn * np.cos(turn), turn * np.sin(turn)]) / 4
    return np.asarray(place + 0.07 * rng.normal(size=(n, 2)))


def _cover(ax: Axes, draw: Canvas) -> dict[str, float]:
    """Cover a spiral with lines; return their log-density of a point, and that of one line."""
    spiral = _spiral(draw.rng)
    lines = MixturePPCA(PIECES, 1, n_init=draw.pick(5, quick=1), random_state=draw.seed).fit(spiral)
    one = MixturePPCA(1, 1, random_state=draw.seed).fit(spiral)
    _draw_pieces(ax, lines, spiral)
    return {
        "spiral_nats_a_point": float(lines.score(spiral)),
        "spiral_nats_a_point_one_line": float(one.score(spiral)),
    }


def _fit(k: int, X: Floats, draw: Canvas) -> Any:
    return MixturePPCA(k, 2, n_init=draw.pick(2, quick=1), random_state=draw.seed).fit(X)


def _draw_pieces(ax: Axes, model: Any, X: Floats) -> None:
    """Draw the points in the colours of their pieces, and two standard deviations of each."""
    owner = np.asarray(model.predict(X))
    circle = np.linspace(0, 2 * np.pi, 80)
    for k, mean in enumerate(np.asarray(model.means_)):
        here, colour = X[owner == k], PALETTE[k % len(PALETTE)]
        ax.plot(here[:, 0], here[:, 1], "o", ms=2.5, mew=0, alpha=0.6, color=colour)
        root = np.linalg.cholesky(np.asarray(model.covariances_)[k])
        ring = mean[:, None] + 2 * root @ np.stack([np.cos(circle), np.sin(circle)])
        ax.plot(ring[0], ring[1], "-", lw=1.0, color=INK)
    ax.set(aspect="equal", adjustable="datalim", title=f"a spiral, {PIECES} pieces")


def _draw_sizes(ax: Axes, sizes: list[int], training: list[float], unseen: list[float]) -> None:
    ax.plot(sizes, training, "o-", color=PALE)
    ax.plot(sizes, unseen, "s-", color=BLUE)
    ax.annotate("fitted", (sizes[-2], training[-2]), (-4, 8), textcoords="offset points")
    place = (sizes[-2], unseen[-2])
    ax.annotate("new readings", place, (-4, -16), textcoords="offset points", color=BLUE)
    k = int(np.argmax(unseen))
    ax.plot(sizes[k], unseen[k], "o", ms=11, mfc="none", color=RED)
    ax.set(xlabel="number of planes", ylabel="log-density, nats a row", xticks=sizes)
    ax.set_title("oil flow, planes (q = 2)")


def _purity(labels: Any, y: Any) -> float:
    """Return the share of rows whose piece holds mostly their own class."""
    return float(sum(np.bincount(y[labels == k]).max() for k in np.unique(labels)) / len(y))
