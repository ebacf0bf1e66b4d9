"""S2 Fig. 9: generated digits beside the nearest training digits."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from dualpca import Generator
from dualpca.app.datasets import Floats
from dualpca.app.experiments.base import Outcome, experiment
from dualpca.app.experiments.canvas import Canvas
from dualpca.app.experiments.digit_models import (
    MANY,
    SHARP,
    Digits,
    by_digit,
    digits,
    document,
    encoder,
)
from dualpca.app.plots.images import image_grid

COOL = 0.7
"""Temperature of the digits that are shown."""


@experiment(
    source="S2 Fig. 9",
    title="New digits, and the nearest training digit of each",
    caption="Rows of three: generated digits; the nearest of 5000 training digits by Frobenius "
    "norm; the difference, red where the generated one has more ink and blue where it has less. "
    "First two of each digit with the library's settings, then twenty with the document's.",
)
def run(draw: Canvas) -> Outcome:
    """Generate digits as the document does and class by class, and judge both."""
    data = digits(draw, *draw.pick((5000, 1000, 4000), quick=(600, 200, 400)))
    models = _models(data, draw)
    published, _, cooler = models.values()
    figures = {
        "by-digit": _sheet(cooler, _one_of_each(cooler, draw)),
        "as-published": _sheet(published, published.sample(20, draw.seed)),
    }
    numbers = _numbers(models, data, draw)
    p = {name: numbers[name]["p_value"] for name in models}
    real, old, new, cool = (_percent(one["classifier is sure"]) for one in numbers.values())
    return Outcome(
        figures,
        numbers,
        "As in the document, samples are new: the nearest training digit of each differs visibly, "
        "and none is a copy.",
        f"With the document's settings (second picture) a classifier is sure of {old} of the "
        f"samples, and of {real} of real digits it has not seen either, and a two-sample test "
        f"tells the two apart (p = {p['document']:.3f}). The first picture differs in four ways: "
        "60 latents in place of 15; for each digit a density of its own, a mixture of four "
        f"subspaces; a sharper decoder; together these are sure digits in {new} (p = "
        f"{p['by digit']:.3f}); and temperature {COOL} ({cool}), which gives up variety for "
        "likeness, as recall and the test tell. No sample was chosen: these are the first that "
        "were drawn.",
    )


def _models(data: Digits, draw: Canvas) -> dict[str, Generator]:
    """Fit the document's model, and the library's at two temperatures."""
    kernel = FrozenEstimator(encoder(MANY, SHARP).fit(data.X))
    parts = draw.pick(4, quick=1)
    return {
        "document": document(n_steps=draw.pick(100, quick=10)).fit(data.X),
        "by digit": by_digit(kernel, parts).fit(data.X, data.y),
        "by digit, cooler": by_digit(kernel, parts, COOL).fit(data.X, data.y),
    }


def _numbers(models: dict[str, Generator], data: Digits, draw: Canvas) -> dict[str, Any]:
    """Return what judges say of held-out digits and of each model's, and how alike both are."""
    judges = _judges(data, draw)
    numbers: dict[str, Any] = {"held-out digits": _recognised(judges, data.held)}
    for name, model in models.items():
        new = model.sample(len(data.held), draw.seed)
        nearest = {"nearest training digit, smallest distance": model.nearest(new).distance.min()}
        alike = model.quality(data.held, random_state=draw.seed)._asdict()
        numbers[name] = _recognised(judges, new) | alike | nearest
    return numbers


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _judges(data: Digits, draw: Canvas) -> tuple[Any, Any]:
    """Return two classifiers of digits that were used for nothing else."""
    neighbours = KNeighborsClassifier(10)
    features = Nystroem(gamma=0.02, n_components=draw.pick(1000, quick=100), random_state=0)
    smooth = make_pipeline(features, LogisticRegression(C=100, max_iter=500))
    return (
        neighbours.fit(data.others, data.other_labels),
        smooth.fit(data.others, data.other_labels),
    )


def _recognised(judges: tuple[Any, Any], X: Floats) -> dict[str, float]:
    """Return shares of images of which the judges are sure."""
    neighbours, smooth = judges
    return {
        "ten neighbours agree": float(np.mean(neighbours.predict_proba(X).max(axis=1) >= 0.8)),
        "classifier is sure": float(np.mean(smooth.predict_proba(X).max(axis=1) >= 0.9)),
    }


def _one_of_each(model: Generator, draw: Canvas) -> Floats:
    """Return two samples of each digit, in order."""
    rng = np.random.default_rng([draw.seed, 9])
    drawn = [model.sample(2, rng, label=name) for name in model.classes_]
    return np.concatenate([[pair[k] for pair in drawn] for k in range(2)])


def _sheet(model: Generator, new: Floats) -> Figure:
    """Draw twenty samples, the nearest training digit of each, and the difference."""
    shown = np.clip(new, 0, 1)
    known = model.X_fit_[model.nearest(new).index]
    rows = {}
    for start, word in ((0, ""), (10, " (more)")):
        part = slice(start, start + 10)
        rows[f"generated{word}"] = shown[part]
        rows[f"nearest training digit{word}"] = known[part]
        rows[f"difference{word}"] = shown[part] - known[part]
    signed = [name for name in rows if name.startswith("difference")]
    return image_grid(rows, (28, 28), signed=signed, limits=(0.0, 1.0))
