"""The picture of the README: missing values filled, noise removed, new digits."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from sklearn.datasets import load_digits, load_wine

from dualpca import PPCA, Generator, KernelPCA
from dualpca.app.datasets import Floats
from dualpca.app.experiments.canvas import BLUE, PALE, RED, Canvas
from dualpca.app.experiments.running import Outcome, experiment

SHOWN, LEVEL = 40, 1.645


@experiment(
    source="the README",
    title="What the library is for, in a picture",
    caption="Left: numbers removed from a table of wines and imputed, with 90 % intervals, against "
    "the true values. Middle: a noisy circle before and after kernel PCA. Right: digits "
    "sampled from a density over the latents of kernel PCA.",
    test="test_experiments.py::test_the_picture_of_the_readme_says_what_it_shows",
)
def readme_picture(draw: Canvas) -> Outcome:
    """Fill missing values with error bars, remove noise from a circle, sample new digits."""
    figure, [[table, circle, digits]] = draw.panels(1, 3, height=2.7)
    covered = _missing(table, draw.rng)
    noisy, clean = _circle(circle, draw.rng)
    nearest = _digits(digits, draw)
    numbers = {
        "share_of_90_percent_intervals_that_hold": covered,
        "distance_from_the_circle_before": noisy,
        "distance_from_the_circle_after": clean,
        "distance_of_new_digits_to_their_nearest": nearest,
    }
    return Outcome(
        {"picture": figure},
        numbers,
        f"Of the 90 % intervals {covered:.0%} contain the true value; points are {clean:.3f} from "
        f"the circle instead of {noisy:.3f}.",
        "No document has this picture.",
        "wine and digits of scikit-learn, a simulated circle",
    )


def _missing(ax: Axes, rng: np.random.Generator) -> float:
    """Draw imputed against true values; return the share of intervals that contain them."""
    X = load_wine().data
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    lost = rng.random(X.shape) < 0.2
    table = np.where(lost, np.nan, X)
    filled, std = PPCA(4).fit(table).impute(table, return_std=True)
    truth, guess, reach = X[lost], np.asarray(filled)[lost], LEVEL * np.asarray(std)[lost]
    some = rng.permutation(truth.size)[:SHOWN]
    ax.errorbar(
        truth[some], guess[some], reach[some], fmt="o", ms=3, color=BLUE, ecolor=PALE, elinewidth=1
    )
    ax.axline((0, 0), slope=1, color=RED, lw=1.2, zorder=0)
    ax.set(title="missing values, with error bars", xlabel="true value", ylabel="imputed")
    return float(np.mean(np.abs(truth - guess) < reach))


def _circle(ax: Axes, rng: np.random.Generator) -> tuple[float, float]:
    """Draw a circle before and after; return the distances of the points from it."""
    angle = rng.uniform(0, 2 * np.pi, 200)
    X = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.1 * rng.normal(size=(200, 2))
    clean = KernelPCA(6, kernel="rbf", gamma=1.0).fit(X).denoise(X)
    ax.plot(X[:, 0], X[:, 1], "o", ms=3, color=PALE, mew=0)
    ax.plot(clean[:, 0], clean[:, 1], "o", ms=3, color=BLUE, mew=0)
    ax.set(title="noise removed", aspect="equal", anchor="N")
    return _off(X), _off(np.asarray(clean))


def _off(X: Floats) -> float:
    return float(np.sqrt(np.mean((np.linalg.norm(X, axis=1) - 1) ** 2)))


def _digits(ax: Axes, draw: Canvas) -> float:
    """Draw sampled digits; return the mean distance to the nearest training digit."""
    found = load_digits()
    few, q = draw.pick((len(found.data), 30), quick=(300, 10))
    X, y = found.data[:few] / 16, found.target[:few]
    model = KernelPCA(q, kernel="rbf", gamma="median", preimage="learned").fit(X)
    maker = Generator(model, by_class=True, temperature=0.5, random_state=draw.seed).fit(X, y)
    new = maker.sample(20, random_state=draw.seed)
    draw.images(ax, new, 5, side=8)
    ax.set(title="generated digits", anchor="N")
    return float(np.mean(maker.nearest(new).distance))
