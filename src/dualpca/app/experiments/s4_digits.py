"""S4, 'Applications of PCA: digit images': the mean, eigenvectors, spectrum, reconstructions."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from dualpca import PCA
from dualpca.app.datasets import Floats, mnist
from dualpca.app.experiments.base import Outcome, experiment
from dualpca.app.experiments.canvas import BLUE, GREEN, Canvas
from dualpca.app.plots.images import image_grid

DIGIT, SIZE, KEPT = 3, (28, 28), (1, 10, 50, 250)


@experiment(
    source="S4 digit images",
    title="Threes: their mean, their eigenvectors, and how few of them a three needs",
    caption="First the mean and the first four eigenvectors with their eigenvalues (red adds ink, "
    "blue takes it away); then the spectrum and the error J that M components leave; last a "
    "three and its reconstructions.",
)
def run(draw: Canvas) -> Outcome:
    """Fit PCA to the threes of MNIST."""
    data = mnist()
    X = data.X[data.y == DIGIT] / 255
    n, d = X.shape
    model = PCA().fit(X)
    ell = model.explained_variance_ * (n - 1) / n
    share = np.cumsum(ell) / ell.sum()
    numbers = {
        "images": n,
        "pixels": d,
        "eigenvalues": ell[:4],
        "share of the variance": {str(m): share[m - 1] for m in KEPT},
        "components for 90 %": int(np.searchsorted(share, 0.9)) + 1,
        "directions with variance": int(np.sum(ell > 1e-10 * ell[0])),
    }
    figures = {"eigenvectors": _eigenvectors(draw, model, ell)}
    figures |= {"spectrum": _spectrum(draw, ell, share), "reconstructions": _reconstructions(X)}
    return Outcome(
        figures,
        numbers,
        "The mean is a blurred three, and each eigenvector, positive here and negative there, "
        "slants, widens or thickens it; the spectrum falls fast, and with 250 of 784 components "
        "the image is nearly the original.",
        "The text of the slides announces this example without its numbers, and does not say which "
        f"images it used: these are the {n} threes of our 10,000 images of MNIST, pixels from 0 "
        "to 1.",
    )


def _eigenvectors(draw: Canvas, model: PCA, ell: Floats) -> Figure:
    figure, axes = draw.panels(1, 5, height=1.9)
    draw.images(axes[0, 0], model.mean_[None], 1, high=float(model.mean_.max()))
    axes[0, 0].set_title("mean")
    reach = float(np.abs(model.components_[:4]).max())
    for ax, v, value in zip(axes[0, 1:], model.components_, ell, strict=False):
        ax.imshow(v.reshape(SIZE), cmap="RdBu_r", vmin=-reach, vmax=reach)
        ax.set_title(f"λ = {value:.2f}")
        draw.bare(ax)
    return figure


def _spectrum(draw: Canvas, ell: Floats, share: Floats) -> Figure:
    figure, axes = draw.panels(1, 2, height=2.9)
    count = np.arange(1, len(ell) + 1)
    axes[0, 0].plot(count, ell, color=BLUE)
    axes[0, 0].set(xlabel="component i", ylabel="eigenvalue λᵢ", title="Spectrum")
    error = ell.sum() * (1 - share)
    axes[0, 1].plot(count, error, color=GREEN)
    marks = [m - 1 for m in KEPT]
    axes[0, 1].plot(count[marks], error[marks], "o", color=GREEN)
    for m in KEPT:
        axes[0, 1].annotate(
            f"M = {m}", (m, error[m - 1]), xytext=(7, 2), textcoords="offset points", fontsize=9
        )
    axes[0, 1].set(xlabel="components M", ylabel="squared error J", title="What M leave out")
    for ax in axes[0]:
        ax.set(xlim=(-10, 620), ylim=(0, None))
    return figure


def _reconstructions(X: Floats) -> Figure:
    title, words = "a three and what M components make of it", [f"M = {m}" for m in KEPT]
    back = [PCA(m).fit(X).reconstruct(X[:1])[0] for m in KEPT]
    labels, rows = {title: ["original", *words]}, {title: np.array([X[0], *back])}
    return image_grid(rows, SIZE, labels=labels, limits=(0.0, 1.0))
