"""S2 Fig. 8: Langevin sampling in the latent space of kernel PCA."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from dualpca.app.datasets import Floats
from dualpca.app.experiments.base import Outcome, experiment
from dualpca.app.experiments.canvas import BLUE, INK, Canvas
from dualpca.app.experiments.digit_models import digits, document

ORANGE = "#e07b00"


@experiment(
    source="S2 Fig. 8",
    title="Langevin draws new latents where the digits' latents are",
    caption="Two of 15 latents of 1500 digits (blue) and of 300 new points (orange). Right: the "
    "part in the frame.",
)
def run(draw: Canvas) -> Outcome:
    """Draw latents by Langevin, adjusted and not, and compare their moments."""
    data = digits(draw, draw.pick(1500, quick=300))
    steps = draw.pick(60, quick=10)
    models = {s: document(s, steps).fit(data.X) for s in ("langevin", "mala")}
    latents = models["langevin"].latents_
    count = draw.pick(600, quick=200)
    drawn = {s: model.sample_latents(count, draw.seed) for s, model in models.items()}
    ratios = {s: Z.var(axis=0) / latents.var(axis=0) for s, Z in drawn.items()}
    chain = models["mala"].chains(8, draw.seed)
    numbers = {
        "latent variance ratio, mean": {s: ratio.mean() for s, ratio in ratios.items()},
        "latent variance ratio, each": ratios,
        "acceptance of adjusted chains": chain.acceptance,
        "largest R-hat of eight chains": chain.r_hat().max(),
        "nearest training latent, median": _nearest(drawn["langevin"], latents),
        "nearest other training latent, median": _nearest(latents, latents),
    }
    return Outcome(
        {"figure": _figure(draw, latents, drawn["langevin"][: draw.pick(300, quick=60)])},
        numbers,
        "As in the document, samples (orange) lie among the projections of the data and on none of "
        "them; their variances are those of the projections.",
        "The document does not say how long its chains were nor how it chose its bandwidth: here "
        f"{steps} steps, each with fresh noise (its Algorithm 3 draws ξ once), from training "
        "latents, and leave-one-out likelihood. In 15 dimensions a chain hardly leaves the bump in "
        f"which it starts (R̂ = {numbers['largest R-hat of eight chains']:.1f}): it is the starts "
        "that spread the samples.",
    )


def _figure(draw: Canvas, latents: Floats, new: Floats) -> Figure:
    """Draw all latents, and again a crowded part of them."""
    figure, [[whole, detail]] = draw.panels(1, 2, height=3.9)
    _scatter(whole, latents, new, 3.0)
    _scatter(detail, latents, new, 5.5)
    middle, size = _crowded(latents[:, :2]), 0.22 * np.ptp(latents[:, :2], axis=0)
    whole.add_patch(Rectangle(tuple(middle - size / 2), *size, fill=False, ec=INK, lw=1.3))
    x, y = np.column_stack([middle - size / 2, middle + size / 2])
    detail.set(xlim=tuple(x), ylim=tuple(y), title="The detail")
    whole.set(title="Latent space", ylabel="component 2")
    draw.key(figure, whole)
    return figure


def _scatter(ax: Axes, latents: Floats, new: Floats, size: float) -> None:
    ax.plot(*latents[:, :2].T, "o", ms=size, color=BLUE, alpha=0.45, mew=0, label="digits")
    ax.plot(*new[:, :2].T, "o", ms=size, color=ORANGE, mew=0, label="samples")
    ax.set(xlabel="component 1")


def _crowded(Z: Floats) -> Floats:
    """Return a place with many points about it."""
    spread = Z.std(axis=0)
    counts = [np.sum(np.all(np.abs(Z - z) < 0.4 * spread, axis=1)) for z in Z]
    return np.asarray(Z[int(np.argmax(counts))])


def _nearest(A: Floats, B: Floats) -> float:
    """Return the median distance from A to the nearest of B that is not the point itself."""
    D = np.sqrt(np.maximum(np.sum((A[:, None] - B) ** 2, axis=2), 0))
    D[D == 0] = np.inf
    return float(np.median(D.min(axis=1)))
