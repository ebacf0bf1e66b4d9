"""S1 section 3.3: probabilistic (kernel) PCA through time."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score

from dualpca import HiddenMarkovPCA, MixturePPCA, SequenceClassifier
from dualpca.app import datasets
from dualpca.app.datasets import Floats, Labels
from dualpca.app.experiments.base import Outcome, experiment
from dualpca.app.experiments.canvas import BLUE, INK, RED, Canvas
from dualpca.app.experiments.tools import stopped_early
from dualpca.app.plots._canvas import PALETTE

LENGTH = 100
"""Rows of one recording of motions."""


@experiment(
    source="S1 section 3.3",
    title="Through time: states that emit subspaces find motions that a mixture cannot",
    caption="First: 40 recordings joined, each row of colours the motion that a model without "
    "labels sees, below the truth. Second: share of unseen sequences whose class is found.",
)
def run(draw: Canvas) -> Outcome:
    """Segment a stream of motions without labels, and classify sequences with them."""
    X, y, names = _stream(draw)
    motions, states = _segmented(draw, X, y, names)
    figure, accuracy = _classified(draw)
    numbers = {f"rand_index_{key}": value for key, value in states.items()} | accuracy
    memory = numbers["rand_index_states"] - numbers["rand_index_mixture"]
    return Outcome(
        {"motions": motions, "classification": figure},
        numbers,
        "A hidden Markov model of subspaces does what the section promises: on unlabelled motions "
        f"its states agree with the truth by {memory:.2f} more of the Rand index than a mixture "
        "without memory, and one model a speaker names the speaker of a vowel.",
        "The section is a heading without text, so there is nothing to compare with. The kernel "
        f"does not help on real data (motions {numbers['rand_index_kernel_states']:.2f} against "
        f"{numbers['rand_index_states']:.2f}; vowels {numbers['vowels_kernel']:.3f} against "
        f"{numbers['vowels_linear']:.3f}); it does where classes share mean and covariance, as a "
        "ring and a disc do. Sizes and stickiness come from other recordings, by their labels.",
    )


def _stream(draw: Canvas) -> tuple[Floats, Labels, tuple[str, ...]]:
    """Return the test recordings of motions joined in random order, standardised."""
    data = datasets.basic_motions()
    order = draw.rng.permutation(np.flatnonzero(data.is_test))[: draw.pick(40, quick=4)]
    X = data.X.reshape(len(data.y), LENGTH, -1)[order].reshape(-1, data.X.shape[1])
    return (X - X.mean(axis=0)) / X.std(axis=0), np.repeat(data.y[order], LENGTH), data.classes


def _segmented(
    draw: Canvas, X: Floats, y: Labels, names: tuple[str, ...]
) -> tuple[Figure, dict[str, float]]:
    """Draw the stream and what each model sees in it; return Rand indices."""
    models = _models(draw)
    ratios = [2.2, *[0.5] * (1 + len(models))]
    figure, axes = draw.panels(len(ratios), 1, height=4.6, sharex=True, height_ratios=ratios)
    axes[0, 0].plot(X[:, 0], lw=0.35, color=INK)
    axes[0, 0].set(ylabel="acceleration", ylim=(-4, 4), xlim=(0, len(X)))
    _band(axes[1, 0], y, "truth")
    found = {}
    for ax, (key, (title, model)) in zip(axes[2:, 0], models.items(), strict=True):
        with stopped_early():
            labels = np.asarray(model.fit(X).predict(X))
        found[key] = float(adjusted_rand_score(y, labels))
        _band(ax, _renamed(labels, y), f"{title}\nRand index {found[key]:.2f}")
    axes[-1, 0].set_xlabel("row (10 a second)")
    for k, name in enumerate(names):
        axes[0, 0].plot([], [], "s", ms=8, color=PALETTE[k], label=name)
    draw.key(figure, axes[0, 0])
    return figure, found


def _models(draw: Canvas) -> dict[str, tuple[str, Any]]:
    """Return three models of four motions, with their titles."""
    options: dict[str, Any] = {"n_init": draw.pick(6, quick=1), "random_state": draw.seed}
    sticky: dict[str, Any] = {"n_mixtures": 2, "stickiness": 1e5, "tol": 1e-4, **options}
    sticky["max_iter"] = draw.pick(100, quick=10)
    return {
        "mixture": ("mixture of PPCA", MixturePPCA(4, 3, **options)),
        "states": ("states of PPCA", HiddenMarkovPCA(4, 3, **sticky)),
        "kernel_states": ("states, RBF kernel", HiddenMarkovPCA(4, 3, kernel="rbf", **sticky)),
    }


def _band(ax: Axes, labels: Labels, title: str) -> None:
    """Draw classes along time as a band of colours."""
    colours = ListedColormap(PALETTE[:4])
    ax.imshow(labels[None], aspect="auto", cmap=colours, vmin=-0.5, vmax=3.5, origin="lower")
    ax.set(yticks=[])
    ax.grid(False)
    ax.set_ylabel(title, rotation=0, ha="right", va="center", fontsize=9)


def _renamed(labels: Labels, y: Labels) -> Labels:
    """Return labels renamed so that they agree with y as much as they can."""
    counts = np.zeros((4, 4))
    np.add.at(counts, (labels, y), 1)
    return np.asarray(linear_sum_assignment(-counts)[1][labels], dtype=np.int64)


def _classified(draw: Canvas) -> tuple[Figure, dict[str, float]]:
    """Draw how many unseen sequences are classified rightly, with and without a kernel."""
    rng, vowels = draw.rng, _vowels(draw.pick(9, quick=2))
    rings = (*_rings(rng, 60), *_rings(rng, draw.pick(300, quick=40)))
    options: dict[str, Any] = {"random_state": draw.seed}
    found = {
        "vowels_linear": _accuracy(HiddenMarkovPCA(2, 4, **options), *vowels),
        "vowels_kernel": _accuracy(
            HiddenMarkovPCA(3, 4, kernel="rbf", gamma=0.03, n_directions=20, **options), *vowels
        ),
        "ring_or_disc_linear": _accuracy(HiddenMarkovPCA(1, 1, **options), *rings),
        "ring_or_disc_kernel": _accuracy(
            HiddenMarkovPCA(1, 2, kernel="rbf", n_directions=10, **options), *rings
        ),
    }
    figure, [[ax]] = draw.panels(height=2.5)
    places = [3.5, 2.6, 1.2, 0.3]
    ax.barh(places, list(found.values()), height=0.8, color=[BLUE, RED] * 2)
    for place, value in zip(places, found.values(), strict=True):
        ax.annotate(f"{value:.3f}", (value, place), (4, 0), textcoords="offset points", va="center")
    words = [key.replace("_", " ").replace("linear", "– linear") for key in found]
    ax.set_yticks(places, [word.replace("kernel", "– kernel") for word in words])
    ax.set(xlim=(0, 1.1), xlabel="share of unseen sequences named rightly")
    ax.grid(False, axis="y")
    return figure, found


def _vowels(speakers: int) -> tuple[list[Floats], Labels, list[Floats], Labels]:
    """Return utterances of the first speakers, for training and for the test."""
    data = datasets.japanese_vowels()
    cut = np.split(data.X, np.cumsum(data.lengths)[:-1])
    train, test = (np.flatnonzero((data.is_test == t) & (data.y < speakers)) for t in (0, 1))
    return [cut[i] for i in train], data.y[train], [cut[i] for i in test], data.y[test]


def _rings(rng: np.random.Generator, count: int, length: int = 20) -> tuple[list[Floats], Labels]:
    """Return walks around a ring, and points of a disc with the same mean and covariance."""
    y = np.arange(count) % 2
    turn = np.cumsum(rng.normal(0.5, 0.3, (count, length)), axis=1)
    turn += rng.uniform(0, 2 * np.pi, (count, 1))
    ring = np.stack([np.cos(turn), np.sin(turn)], axis=-1) + 0.15 * rng.normal(
        size=(count, length, 2)
    )
    disc = np.sqrt(0.5 + 0.15**2) * rng.normal(size=(count, length, 2))
    return list(np.where(y[:, None, None] == 0, ring, disc)), y


def _accuracy(model: Any, X: list[Floats], y: Labels, new: list[Floats], truth: Labels) -> float:
    return float(SequenceClassifier(model).fit(X, y).score(new, truth))
