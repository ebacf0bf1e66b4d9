"""Montemurri and Mhedhbi: probabilistic PCA and its extensions, sections 3 to 5."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from scipy.optimize import linear_sum_assignment
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.metrics import adjusted_rand_score

from dualpca import (
    PPCA,
    HiddenMarkovPCA,
    Imputer,
    KernelSearch,
    MixturePPCA,
    ProbabilisticKernelPCA,
    SequenceClassifier,
)
from dualpca.app import datasets
from dualpca.app.datasets import Floats, Labelled, Labels
from dualpca.app.experiments.canvas import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    PALE,
    RED,
    Canvas,
    angle,
    distance,
    stopped_early,
)
from dualpca.app.experiments.running import Outcome, experiment, said
from dualpca.app.plots._canvas import PALETTE

# --- section 3.2: probabilistic kernel PCA by maximum likelihood and by EM ---------------------

STARTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "from linear PCA": ({"init": "pca", "accelerate": False}, RED, "-"),
    "from random coordinates": ({"init": "random", "accelerate": False}, BLUE, "--"),
    "accelerated": ({"init": "pca"}, GREEN, "-"),
}
"""How EM is run: options, colour, line."""
ROUNDING = 1e-10


@experiment(
    source="S1 section 3.2",
    title="Probabilistic kernel PCA: how EM climbs to the closed form",
    caption="How far the log-likelihood (per feature dimension) lies below its maximum after every "
    "step of EM, for two starts of plain EM and for the accelerated one. RBF kernels as in S3.",
    test="test_experiments.py::test_s1_em_climbs_to_the_closed_form",
)
def s1_kernel_em(draw: Canvas) -> Outcome:
    """Run EM three ways on iris and oil flow, and measure how far from the closed form it is."""
    oil = datasets.oil_flow()
    sets = {"iris": (datasets.iris().X, 1 / 2.0), "oil flow": (oil.X[:200], 1 / 0.2)}
    figure, [axes] = draw.panels(1, 2, height=3.5, sharey=True)
    numbers: dict[str, Any] = {}
    for ax, (name, (X, gamma)) in zip(axes, sets.items(), strict=True):
        numbers[name.split()[0]] = _compare(ax, X, gamma, draw)
        ax.set(title=f"{name}, n = {len(X)}", xlabel="step of EM")
    axes[0].set_ylabel("log-likelihood below the maximum")
    draw.key(figure, axes[0])
    ends = [way for found in numbers.values() for way in found["ways"].values()]
    worst, fall = (max(way[key] for way in ends) for key in ("distance", "largest_fall"))
    steps = [[way["steps"] for way in found["ways"].values()] for found in numbers.values()]
    return Outcome(
        {"climb": figure},
        numbers,
        said(
            fall < 1e-6,
            "EM never lets the likelihood fall",
            f"EM lets the likelihood fall by up to {fall:.0e}",
        )
        + said(worst < 1e-6, " and ends at the closed form", ", and is not yet at the closed form")
        + f" from every start (coordinates within {worst:.0e} of their size after a rotation), as "
        "sections 3.2.3 and 3.2.4 imply.",
        "The report has no figure of it, and its Algorithm 2 is no EM: it repeats the "
        "eigendecomposition at every step. Here EM is that of Zhang et al. (2004), which needs "
        f"only products with the kernel. Accelerated it takes {steps[0][2]} and {steps[1][2]} "
        f"steps, plain from linear PCA {steps[0][0]} and {steps[1][0]}.",
        "iris (150 flowers), oil flow (the first 200 readings)",
    )


def _compare(ax: Axes, X: Floats, gamma: float, draw: Canvas) -> dict[str, Any]:
    """Draw the climb of every way and return where each ends."""
    best = ProbabilisticKernelPCA(2, gamma=gamma).fit(X)
    top, B = float(best.loglikelihood_), np.asarray(best.coordinates_)
    found: dict[str, Any] = {"loglikelihood": top, "ways": {}}
    for name, (options, colour, line) in STARTS.items():
        steps = draw.pick(3000, quick=400)
        em = _em(X, gamma, steps, {**options, "random_state": draw.seed})
        gap = top - np.asarray(em.loglikelihoods_)
        reached = np.flatnonzero(gap < ROUNDING * abs(top))
        shown = gap[: reached[0] + 1] if len(reached) else gap
        place = np.arange(1, len(shown) + 1)
        ax.loglog(place, np.maximum(shown, ROUNDING * abs(top)), line, color=colour, label=name)
        found["ways"][name] = {
            "steps": len(shown),
            "angle_degrees": angle(em.coordinates_, B),
            "distance": distance(em.coordinates_, B),
            "largest_fall": float(max(0.0, -np.diff(em.loglikelihoods_).min())),
        }
    return found


def _em(X: Floats, gamma: float, steps: int, options: dict[str, Any]) -> Any:
    with stopped_early():
        model = ProbabilisticKernelPCA(2, gamma=gamma, method="em", tol=0.0, max_iter=steps)
        return model.set_params(**options).fit(X)


# --- section 3.3: probabilistic (kernel) PCA through time --------------------------------------

LENGTH = 100
"""Rows of one recording of motions."""


@experiment(
    source="S1 section 3.3",
    title="Through time: states that emit subspaces, on motions, vowels and rings",
    caption="First: 40 recordings joined, each row of colours the motion that a model without "
    "labels sees, below the truth. Second: share of unseen sequences whose class is found.",
    test="test_experiments.py::test_s1_states_remember_what_a_mixture_cannot",
)
def s1_through_time(draw: Canvas) -> Outcome:
    """Segment a stream of motions without labels, and classify sequences with them."""
    X, y, names = _stream(draw)
    motions, states = _segmented(draw, X, y, names)
    figure, accuracy = _classified(draw)
    numbers = {f"rand_index_{key}": value for key, value in states.items()} | accuracy
    return Outcome(
        {"motions": motions, "classification": figure},
        numbers,
        _memory(numbers),
        "The section is a heading without text, so there is nothing to compare with. "
        f"{_kernel_helps(numbers)} Sizes and stickiness come from other recordings, by their "
        "labels.",
        "basic motions (40 recordings), Japanese vowels (640 utterances), simulated rings",
    )


def _memory(numbers: dict[str, float]) -> str:
    """Say what memory adds, and how many speakers are named."""
    states, mixture = numbers["rand_index_states"], numbers["rand_index_mixture"]
    promise = said(
        states > mixture,
        "A hidden Markov model of subspaces does what the section promises: on unlabelled motions "
        f"its states agree with the truth by {states - mixture:.2f} more of the Rand index than a "
        "mixture without memory",
        f"On unlabelled motions states agree no better with the truth ({states:.2f} of the Rand "
        f"index) than a mixture without memory ({mixture:.2f})",
    )
    named = 100 * numbers["vowels_linear"]
    return f"{promise}, and one model per speaker names {named:.1f} % of speakers from a vowel."


def _kernel_helps(numbers: dict[str, float]) -> str:
    """Say what this run found with a kernel and without."""
    motions = [numbers[f"rand_index_{key}"] for key in ("kernel_states", "states")]
    vowels, rings = (
        [numbers[f"{name}_{key}"] for key in ("kernel", "linear")]
        for name in ("vowels", "ring_or_disc")
    )
    return (
        f"With a kernel and without, this run has a Rand index of {motions[0]:.2f} and "
        f"{motions[1]:.2f} on motions, {vowels[0]:.3f} and {vowels[1]:.3f} of the vowels right, "
        f"and {rings[0]:.2f} and {rings[1]:.2f} of rings and discs, which have the same mean and "
        "covariance."
    )


def _stream(draw: Canvas) -> tuple[Floats, Labels, tuple[str, ...]]:
    """Return the test recordings of motions joined in random order, standardised."""
    data = datasets.basic_motions()
    order = draw.rng.permutation(np.flatnonzero(data.is_test))[: draw.pick(40, quick=12)]
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
    axes[0, 0].set(ylabel="acceleration", xlim=(0, len(X)))
    _band(axes[1, 0], y, "truth")
    found = {}
    for ax, (key, (title, model)) in zip(axes[2:, 0], models.items(), strict=True):
        with stopped_early():
            labels = np.asarray(model.fit(X).predict(X))
        found[key] = float(adjusted_rand_score(y, labels))
        _band(ax, _renamed(labels, y), f"{title}\nRand index {found[key]:.2f}")
    axes[-1, 0].set_xlabel("row (10 per second)")
    for k, name in enumerate(names):
        axes[0, 0].plot([], [], "s", ms=8, color=PALETTE[k], label=name)
    draw.key(figure, axes[0, 0])
    return figure, found


def _models(draw: Canvas) -> dict[str, tuple[str, Any]]:
    """Return three models of four motions, with their titles."""
    options: dict[str, Any] = {"n_init": draw.pick(6, quick=1), "random_state": draw.seed}
    options["standardize"] = False
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
    options: dict[str, Any] = {"random_state": draw.seed, "standardize": False}
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


# --- section 4: a kernel found by Bayesian optimisation ----------------------------------------

ROWS, SIZE = 300, 5
"""Readings that are fitted, and coordinates."""
STYLES = {"tpe": (BLUE, "-", "Bayesian"), "random": (RED, (0, (3, 1.5)), "random")}


@experiment(
    source="S1 section 4",
    title="The kernel found by Bayesian optimisation, by random search, and by a rule of thumb",
    caption="Left: the best cross-validated accuracy so far, mean of all runs; thin lines are "
    "single runs. Right: every complete trial of Bayesian optimisation by its family of kernels. "
    f"{ROWS} readings of oil flow, {SIZE} coordinates, logistic regression on top.",
    test="test_experiments.py::test_s1_searching_beats_the_rule_of_thumb",
)
def s1_kernel_search(draw: Canvas) -> Outcome:
    """Search kernels whose coordinates tell flows apart; judge them on other readings."""
    oil = datasets.oil_flow()
    seeds = range(draw.seed, draw.seed + draw.pick(4, quick=1))
    found = {way: [_search(way, oil, seed, draw) for seed in seeds] for way in STYLES}
    numbers = _numbers(found, oil, seeds)
    figure, [[climb, families]] = draw.panels(1, 2, height=3.5, width_ratios=[1, 0.9])
    _draw_climb(climb, found, numbers["cross_validated_median_heuristic"])
    _draw_families(families, [t for search in found["tpe"] for t in search.trials_])
    draw.key(figure, climb)
    return Outcome(
        {"search": figure},
        numbers,
        _found(numbers),
        f"The section is one sentence, without data or results. {_budget(numbers)} Scores, not "
        "likelihoods, are compared: likelihoods under different kernels are densities in "
        "different spaces.",
        f"oil flow (1000 readings, {ROWS} of them fitted, the others new)",
    )


def _found(numbers: dict[str, Any]) -> str:
    """Say whether the kernel that was found is better than two without a search."""
    endings = ("", "_median_heuristic", "_linear_kernel")
    tpe, rbf, linear = (100 * numbers[f"accuracy_on_new_readings{e}"] for e in endings)
    idea = said(
        tpe > max(rbf, linear),
        "The idea of the section holds up",
        "The search does not pay here",
    )
    return (
        f"{idea}: {SIZE} coordinates under the kernel that was found name the flow of {tpe:.1f} % "
        f"of new readings, under an RBF kernel of median width {rbf:.1f} %, under a linear one "
        f"{linear:.1f} %."
    )


def _budget(numbers: dict[str, Any]) -> str:
    """Say how Bayesian optimisation and random search compare."""
    endings = ("", "_random_search")
    tpe, random = (100 * numbers[f"accuracy_on_new_readings{e}"] for e in endings)
    gap = said(abs(tpe - random) < 1, "differ little", "differ")
    return (
        f"Bayesian optimisation and random search {gap} after {numbers['trials']} trials "
        f"({tpe:.1f} and {random:.1f} % on new readings)."
    )


def _part(oil: Labelled, seed: int, *, new: bool = False) -> tuple[Any, Any]:
    """Return the readings that are fitted, or the others."""
    order = np.random.default_rng(seed).permutation(len(oil.X))
    rows = order[ROWS:] if new else order[:ROWS]
    return oil.X[rows], oil.y[rows]


def _search(way: str, oil: Labelled, seed: int, draw: Canvas) -> Any:
    """Return a search over all families, sums and products of two."""
    options: dict[str, Any] = {"n_components": SIZE, "objective": "score", "cv": 3, "sampler": way}
    search = KernelSearch(
        ProbabilisticKernelPCA(), n_trials=draw.pick(30, quick=6), random_state=seed, **options
    )
    return search.fit(*_part(oil, seed))


def _alone(kernel: str, oil: Labelled, seed: int) -> float:
    """Return the accuracy on new readings of one kernel as the median heuristic sets it."""
    options: dict[str, Any] = {"n_components": SIZE, "objective": "score", "cv": 3, "n_trials": 1}
    search = KernelSearch(
        ProbabilisticKernelPCA(), kernels=[kernel], compositions=(), random_state=seed, **options
    )
    return float(search.fit(*_part(oil, seed)).score(*_part(oil, seed, new=True)))


def _numbers(found: dict[str, list[Any]], oil: Labelled, seeds: range) -> dict[str, Any]:
    """Return how well what was found does on new readings, and two kernels beside it."""
    unseen = {
        way: [
            float(one.score(*_part(oil, seed, new=True)))
            for one, seed in zip(runs, seeds, strict=True)
        ]
        for way, runs in found.items()
    }
    best = {way: [one.best_score_ for one in runs] for way, runs in found.items()}
    alone = {k: [_alone(k, oil, seed) for seed in seeds] for k in ("rbf", "linear")}
    means = {
        "accuracy_on_new_readings": unseen["tpe"],
        "accuracy_on_new_readings_random_search": unseen["random"],
        "accuracy_on_new_readings_median_heuristic": alone["rbf"],
        "accuracy_on_new_readings_linear_kernel": alone["linear"],
        "cross_validated": best["tpe"],
        "cross_validated_random_search": best["random"],
        "cross_validated_median_heuristic": [one.trials_[0].score for one in found["tpe"]],
    }
    return {name: float(np.mean(values)) for name, values in means.items()} | {
        "trials": len(found["tpe"][0].trials_),
        "kernels_found": [str(one.best_trial_.kernel) for one in found["tpe"]],
        "unseen": unseen,
    }


def _draw_climb(ax: Axes, found: dict[str, list[Any]], first: float) -> None:
    """Draw the best so far of every run, and their mean."""
    for way, (colour, line, name) in STYLES.items():
        best = np.array([_best_so_far(search.trials_) for search in found[way]])
        place = np.arange(1, best.shape[1] + 1)
        ax.plot(place, best.T, "-", lw=0.6, alpha=0.35, color=colour)
        ax.plot(place, best.mean(axis=0), ls=line, lw=2.4, color=colour, label=name)
    ax.axhline(first, color=INK, lw=1.3, ls=(0, (1, 1.5)), label="RBF, median width")
    ax.set(xlabel="trial", ylabel="cross-validated accuracy", title="best so far")


def _best_so_far(trials: list[Any]) -> list[float]:
    scores = [t.score if t.state == "complete" else -np.inf for t in trials]
    return [float(best) for best in np.maximum.accumulate(scores)]


def _draw_families(ax: Axes, trials: list[Any]) -> None:
    """Draw every complete trial in the column of its family; joined kernels count for both."""
    scores: dict[str, list[float]] = {}
    for trial in trials:
        names = {str(v) for k, v in trial.params.items() if k in ("kernel", "kernel_2")}
        for name in names if trial.state == "complete" else ():
            scores.setdefault(name.replace("_", " "), []).append(trial.score)
    order = sorted(scores, key=lambda name: float(np.median(scores[name])))
    for place, name in enumerate(order):
        values = np.sort(scores[name])
        ax.plot(values, place + np.linspace(-0.25, 0.25, len(values)), "o", ms=3, mew=0, color=BLUE)
        ax.plot([np.median(values)] * 2, [place - 0.36, place + 0.36], "-", color=INK, lw=1.5)
    ax.set_yticks(range(len(order)), [name.replace(" q", "\nq") for name in order])
    ax.grid(False, axis="y")
    ax.margins(0.06)
    ax.set(title="by family; bars are medians", xlabel="cross-validated accuracy")


# --- section 5.1: closed form and EM, time and likelihood --------------------------------------

SWEEPS: dict[str, tuple[list[int], dict[str, int]]] = {
    "n": ([200, 1000, 5000, 20000], {"d": 50, "q": 5}),
    "d": ([10, 30, 100, 300, 800], {"n": 1000, "q": 5}),
    "q": ([1, 3, 10, 30, 60], {"n": 2000, "d": 100}),
}
"""What varies, with its values, and what stays."""
WORDS = {"n": "rows n", "d": "features d", "q": "components q"}
STEPS = 500
"""Of plain EM at most."""


@experiment(
    source="S1 section 5.1",
    title="PPCA by its closed form and by EM: the same likelihood, other costs",
    caption="Above: seconds to fit in one thread, the best of three, as rows, features and "
    "components grow; the rest stays as written. Below: how far EM ends below the maximum; 1e-13 "
    "is rounding. Plain EM is section 2.4's, PPCA(method='em', accelerate=False), of 500 steps at "
    "most; ours is accelerated.",
    timed=True,
    test="test_experiments.py::test_s1_closed_form_and_em_agree",
)
def s1_analytical_em(draw: Canvas) -> Outcome:
    """Fit both ways over n, d and q, and once on oil flow."""
    figure, axes = draw.panels(2, 3, height=5.2, sharex="col", sharey="row")
    sweeps: dict[str, Any] = {}
    for column, (name, (values, rest)) in zip(axes.T, SWEEPS.items(), strict=True):
        sizes = [rest | {name: value} for value in draw.pick(values, quick=values[:2])]
        sweeps[name] = _sweep(sizes, draw) | {name: [size[name] for size in sizes]}
        _draw(column, name, rest, sweeps[name])
    axes[0, 0].set_ylabel("seconds to fit")
    axes[1, 0].set_ylabel("below the maximum,\nnats per row")
    draw.key(figure, axes[0, 0])
    gaps = {way: max(max(s["gap"][way]) for s in sweeps.values()) for way in ("EM", "EM, plain")}
    faster, settings = _em_faster(sweeps)
    numbers = _oil() | {"largest_gap": gaps, "em_faster": [faster, settings], **sweeps}
    return Outcome(
        {"comparison": figure},
        numbers,
        said(gaps["EM"] < 1e-6, "Both tend to the same likelihood", "EM ends below the closed form")
        + f": our EM ends within {gaps['EM']:.0e} nats per row of the closed form everywhere, and "
        f"on oil flow they reach {numbers['loglikelihood']:.3f} and "
        f"{numbers['loglikelihood_em']:.3f}.",
        "The section has a heading and no text, so there is nothing to compare with. The hope that "
        f"EM saves time in high dimensions (section 2.4): EM was the faster in {faster} of "
        f"{settings} settings, plain EM in {_plain_faster(sweeps)}, and that stopped up to "
        f"{gaps['EM, plain']:.1g} nats per row short. σ² is updated with the new W: as printed, "
        "with the old one, the likelihood can fall.",
        "simulated, and oil flow (1000 readings)",
    )


def _data(n: int, d: int, q: int, seed: int) -> Floats:
    """Draw rows from PPCA with variances 4, 4/√2, 4/√3, … above a noise of 1."""
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(d, q)) * np.sqrt(4 / np.sqrt(np.arange(1, q + 1)))
    return np.asarray(rng.normal(size=(n, q)) @ W.T + rng.normal(size=(n, d)))


def _sweep(sizes: list[dict[str, int]], draw: Canvas) -> dict[str, Any]:
    """Return over sizes the seconds of all ways, and how far below the maximum EM ends."""
    seconds: dict[str, list[float]] = {way: [] for way in EM_WAYS}
    gap: dict[str, list[float]] = {way: [] for way in EM_WAYS}
    for size in sizes:
        X = _data(**size, seed=draw.seed)
        top = PPCA(size["q"]).fit(X).loglikelihood_
        for way, (fit, _, _) in EM_WAYS.items():
            reached, took = _timed(fit, X, size["q"], draw.pick(3, quick=1))
            seconds[way].append(took)
            gap[way].append((top - reached) / len(X))
    return {"seconds": seconds, "gap": gap}


def _timed(
    fit: Callable[[Floats, int], float], X: Floats, q: int, repeats: int
) -> tuple[float, float]:
    """Return the log-likelihood that a way reaches, and the least of the seconds it took."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        reached = fit(X, q)
        times.append(time.perf_counter() - start)
    return reached, min(times)


def _plain(X: Floats, q: int) -> float:
    """Run EM as in S1 section 2.4, with the new W in the update of σ²; nothing d×d is formed."""
    with stopped_early():
        model = PPCA(q, method="em", accelerate=False, max_iter=STEPS).fit(X)
    return float(model.loglikelihood_)


EM_WAYS: dict[str, tuple[Callable[[Floats, int], float], str, str]] = {
    "closed form": (lambda X, q: PPCA(q).fit(X).loglikelihood_, BLUE, "o-"),
    "EM": (lambda X, q: PPCA(q, method="em").fit(X).loglikelihood_, RED, "s-"),
    "EM, plain": (_plain, GREEN, "^--"),
}
"""How PPCA is fitted: a function, a colour, a mark."""


def _draw(axes: Any, name: str, rest: dict[str, int], found: dict[str, Any]) -> None:
    """Draw one column: seconds above, likelihood below."""
    above, below = axes
    for way, (_, colour, mark) in EM_WAYS.items():
        above.loglog(found[name], found["seconds"][way], mark, color=colour, label=way)
        if way != "closed form":
            below.loglog(found[name], np.maximum(found["gap"][way], 1e-13), mark, color=colour)
    below.set(xlabel=WORDS[name])
    words = [f"{value // 1000}k" if value >= 1000 else str(value) for value in found[name]]
    below.set_xticks(found[name], words)
    below.set_xticks([], minor=True)
    above.set_title(", ".join(f"{key} = {value}" for key, value in rest.items()))


def _em_faster(sweeps: dict[str, Any], way: str = "EM") -> tuple[int, int]:
    """Return in how many settings EM took less time than the closed form, and of how many."""
    seconds = [s["seconds"] for s in sweeps.values()]
    closed, em = (np.concatenate([s[name] for s in seconds]) for name in ("closed form", way))
    return int(np.sum(em < closed)), len(em)


def _plain_faster(sweeps: dict[str, Any]) -> str:
    """Return in how many settings plain EM was faster than the closed form, in words."""
    count = _em_faster(sweeps, "EM, plain")[0]
    return str(count) if count else "none"


def _oil() -> dict[str, float]:
    """Return the numbers of oil flow with two components."""
    X = datasets.oil_flow().X
    closed = PPCA(2).fit(X)
    em = PPCA(2, method="em", tol=1e-10).fit(X)
    W, V = np.asarray(closed.loadings_), np.asarray(em.loadings_)
    return {
        "noise_variance": float(closed.noise_variance_),
        "noise_variance_em": float(em.noise_variance_),
        "loglikelihood": float(closed.loglikelihood_),
        "loglikelihood_em": float(em.loglikelihood_),
        "largest_difference_of_wwt": float(np.abs(W @ W.T - V @ V.T).max()),
    }


# --- section 5.2: mixtures of PPCA, on a curve and on oil flow ---------------------------------

PIECES = 8
SIZES = [1, 2, 3, 5, 8, 12, 18, 26]
FITTED = 700
"""Readings of oil flow that are fitted; the other 300 are new."""


@experiment(
    source="S1 section 5.2",
    title="Mixtures of PPCA: a curve in flat pieces, and oil flow by how many of them",
    caption=f"Left: {PIECES} lines with their noise (ellipses of two standard deviations) cover a "
    "spiral. Right: log-density of oil flow by the number of planes, on 700 readings that are "
    "fitted and on 300 that are not.",
    test="test_experiments.py::test_s1_mixtures_reach_the_reference",
)
def s1_mixtures(draw: Canvas) -> Outcome:
    """Cover a spiral with lines; judge mixtures of planes on readings they have not seen."""
    figure, [[curve, sizes]] = draw.panels(1, 2, height=3.7)
    on_the_spiral = _cover(curve, draw)
    oil = datasets.oil_flow()
    order = draw.rng.permutation(len(oil.X))
    fitted, new = oil.X[order[:FITTED]], oil.X[order[FITTED:]]
    fits = {k: _fit(k, fitted, draw) for k in draw.pick(SIZES, quick=SIZES[:3])}
    training, unseen = ([float(m.score(X)) for m in fits.values()] for X in (fitted, new))
    _draw_sizes(sizes, list(fits), training, unseen)
    best = list(fits)[int(np.argmax(unseen))]
    three = _fit(3, oil.X, draw)
    numbers: dict[str, Any] = {
        "loglikelihood_three_planes": float(three.loglikelihood_),
        "mixtures_best_on_new_readings": best,
        "rand_index_three_planes": float(adjusted_rand_score(oil.y, three.predict(oil.X))),
        "purity_of_the_best": _purity(fits[best].predict(oil.X), oil.y),
        **on_the_spiral,
        "mixtures": list(fits),
        "training_nats_per_row": training,
        "unseen_nats_per_row": unseen,
    }
    return Outcome(
        {"mixtures": figure},
        numbers,
        _planes(numbers),
        "The section has a heading and no text. Algorithm 1 is printed with an update of σ² that "
        "becomes negative; the corrected one is used, (tr S − Σℓ)/(d − q). Three planes "
        + said(numbers["rand_index_three_planes"] < 0.5, "do not find", "find")
        + f" the three flows (Rand index {numbers['rand_index_three_planes']:.2f}).",
        "a simulated spiral, and oil flow (1000 readings)",
    )


def _planes(numbers: dict[str, Any]) -> str:
    """Say how many planes are best on new readings, and how pure they are."""
    unseen, best = numbers["unseen_nats_per_row"], numbers["mixtures_best_on_new_readings"]
    purity = numbers["purity_of_the_best"]
    pure = said(purity > 0.9, "of which each holds almost one flow only", "of mixed flows")
    return said(
        best > 1,
        "Local planes capture what one cannot: on new readings of oil flow the log-density rises "
        f"from {unseen[0]:.1f} to {max(unseen):.1f} nats with {best} planes, {pure} (purity "
        f"{purity:.3f}).",
        f"One plane is the best on new readings of oil flow ({unseen[0]:.1f} nats).",
    )


def _spiral(rng: np.random.Generator, n: int = 600) -> Floats:
    turn = rng.uniform(np.pi / 2, 3.6 * np.pi, n)
    place = np.column_stack([turn * np.cos(turn), turn * np.sin(turn)]) / 4
    return np.asarray(place + 0.07 * rng.normal(size=(n, 2)))


def _cover(ax: Axes, draw: Canvas) -> dict[str, float]:
    """Cover a spiral with lines; return their log-density of a point, and that of one line."""
    spiral = _spiral(draw.rng)
    options: dict[str, Any] = {"random_state": draw.seed, "standardize": False}
    lines = MixturePPCA(PIECES, 1, n_init=draw.pick(5, quick=1), **options).fit(spiral)
    one = MixturePPCA(1, 1, **options).fit(spiral)
    _draw_pieces(ax, lines, spiral)
    return {
        "spiral_nats_per_point": float(lines.score(spiral)),
        "spiral_nats_per_point_one_line": float(one.score(spiral)),
    }


def _fit(k: int, X: Floats, draw: Canvas) -> Any:
    options: dict[str, Any] = {"random_state": draw.seed, "standardize": False}
    return MixturePPCA(k, 2, n_init=draw.pick(2, quick=1), **options).fit(X)


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
    ax.margins(0.06)


def _draw_sizes(ax: Axes, sizes: list[int], training: list[float], unseen: list[float]) -> None:
    ax.plot(sizes, training, "o-", color=PALE, label="fitted")
    ax.plot(sizes, unseen, "s-", color=BLUE, label="new")
    k = int(np.argmax(unseen))
    ax.plot(sizes[k], unseen[k], "o", ms=11, mfc="none", color=RED)
    ax.set(xlabel="number of planes", ylabel="log-density, nats per row", xscale="log")
    ax.set_xticks(sizes, list(map(str, sizes)))
    ax.set_xticks([], minor=True)
    ax.set_title("oil flow, planes (q = 2)")
    ax.legend(title="readings", loc="lower right", frameon=True, framealpha=1, edgecolor="none")


def _purity(labels: Any, y: Any) -> float:
    """Return the share of rows whose piece holds mostly their own class."""
    return float(sum(np.bincount(y[labels == k]).max() for k in np.unique(labels)) / len(y))


# --- section 5.3: a table with missing values and outliers, New York's air in 1973 -------------

HIDDEN = 0.15
LEVEL = 0.99
WRONG = 6
"""Days whose temperature is entered in °C by mistake."""


@experiment(
    source="S1 section 5.3",
    title="A real table: missing days filled in with error bars, wrong entries found",
    caption="(a) Ozone of every day, measured (grey) or filled in (blue, with one standard "
    f"deviation). (b) Error of imputers on {100 * HIDDEN:.0f} % of the entries, hidden from them, "
    "over many draws. (c) After six temperatures were entered in °C: how far each day is from the "
    f"model (SPE and T², in proportion to their {100 * LEVEL:.0f} % limits).",
    test="test_experiments.py::test_s1_a_table_is_filled_in_and_its_errors_found",
)
def s1_real_world(draw: Canvas) -> Outcome:
    """Fill in what was not measured, test it on entries that we hide, and look for outliers."""
    X = datasets.airquality().X[:, :4]
    X = np.column_stack([np.log(X[:, 0]), X[:, 1:]])  # ozone is positive and skewed
    figure, axes = draw.panels(3, 1, height=8.2, height_ratios=[1, 0.75, 1])
    Z = _standardised(X)
    _draw_season(axes[0, 0], PPCA(2).fit(Z), Z, X)
    errors, coverage = _hidden(Z, draw)
    _draw_errors(axes[1, 0], errors)
    caught, alarms, rest = _draw_outliers(axes[2, 0], X, draw)
    rmse = {name: float(np.mean(values)) for name, values in errors.items()}
    numbers = {
        "missing_entries": int(np.isnan(X).sum()),
        "rmse": rmse,
        "rmse_standard_error": {k: float(np.std(v) / len(v) ** 0.5) for k, v in errors.items()},
        "coverage_of_90_percent_intervals": coverage,
        "wrong_entries_found": caught,
        "wrong_entries": WRONG,
        "other_days_flagged": alarms,
        "other_days": rest,
    }
    return Outcome(
        {"table": figure},
        numbers,
        "PPCA fits a table with missing values as it is. It predicts hidden entries "
        + said(rmse["PPCA"] < rmse["column means"], "better", "no better")
        + f" than the means ({rmse['PPCA']:.2f} against {rmse['column means']:.2f} standard "
        f"deviations), its 90 % intervals contain {100 * coverage:.0f} % of them, and it finds "
        f"{caught} of {WRONG} temperatures entered in °C.",
        "The section has a heading and no text; table and task are our choice. "
        f"{_ranked(rmse)} {alarms} of {rest} other days are flagged as well.",
        "airquality (New York, 1973: 153 days)",
    )


def _standardised(X: Floats) -> Floats:
    return np.asarray((X - np.nanmean(X, axis=0)) / np.nanstd(X, axis=0))


def _ranked(rmse: dict[str, float]) -> str:
    """Say whether another imputer was better."""
    best = min(rmse, key=lambda name: rmse[name])
    if best in ("PPCA", "Bayesian PCA"):
        return "No other imputer was better here, but differences between the models are small."
    return f"With four columns PPCA is not the best imputer: {best} has {rmse[best]:.2f}."


def _draw_season(ax: Axes, model: Any, Z: Floats, X: Floats) -> None:
    """Draw measured and imputed ozone, in parts per billion, through the season."""
    filled, std = (np.asarray(part)[:, 0] for part in model.impute(Z, return_std=True))
    scale, centre = np.nanstd(X[:, 0]), np.nanmean(X[:, 0])
    low, mid, high = (np.exp(centre + scale * (filled + k * std)) for k in (-1, 0, 1))
    missing, day = np.isnan(X[:, 0]), np.arange(len(X))
    ax.plot(day[~missing], np.exp(X[~missing, 0]), "o", ms=3.5, color=PALE, label="measured")
    bars = np.stack([mid - low, high - mid])[:, missing]
    ax.errorbar(
        day[missing], mid[missing], bars, fmt="s", ms=4, lw=1.0, color=BLUE, label="filled in"
    )
    months = ("May", "June", "July", "August", "September")
    ax.set_xticks([0, 31, 61, 92, 123], months, ha="left")
    ax.set(yscale="log", ylabel="ozone, ppb", title="(a) what was not measured")
    ax.set_yticks([3, 10, 30, 100], ["3", "10", "30", "100"])
    ax.minorticks_off()
    ax.legend(loc="lower right", bbox_to_anchor=(1, 1.01), ncols=2, borderaxespad=0)


def _hidden(Z: Floats, draw: Canvas) -> tuple[dict[str, list[float]], float]:
    """Return errors of imputers on hidden entries, and the coverage of PPCA's intervals."""
    imputers: dict[str, Any] = {
        "column means": SimpleImputer(),
        "5 nearest days": KNNImputer(n_neighbors=5),
        "chained regressions": IterativeImputer(random_state=0, max_iter=50, tol=1e-2),
        "PPCA": Imputer(n_components=2),
        "Bayesian PCA": Imputer(model="bayesian"),
    }
    errors: dict[str, list[float]] = {name: [] for name in imputers}
    rng, inside = draw.rng, []
    for _ in range(draw.pick(20, quick=2)):
        mask = (rng.random(Z.shape) < HIDDEN) & ~np.isnan(Z)
        mask[mask.all(axis=1)] = False
        table = np.where(mask, np.nan, Z)
        for name, imputer in imputers.items():
            gap = np.asarray(imputer.fit_transform(table))[mask] - Z[mask]
            errors[name].append(float(np.sqrt(np.mean(gap**2))))
        filled, std = PPCA(2).fit(table).impute(table, return_std=True)
        inside.append(np.abs(np.asarray(filled)[mask] - Z[mask]) < 1.6449 * np.asarray(std)[mask])
    return errors, float(np.mean(np.concatenate(inside)))


def _draw_errors(ax: Axes, errors: dict[str, list[float]]) -> None:
    """Draw every draw's error, and the mean of each imputer."""
    for place, values in enumerate(reversed(errors.values())):
        ax.plot(values, np.full(len(values), place), "|", ms=9, color=PALE)
        ax.plot(np.mean(values), place, "D", ms=6, color=BLUE)
        word = f"{np.mean(values):.2f}"
        ax.annotate(word, (float(np.mean(values)), place), (0, 7), textcoords="offset points")
    ax.set_yticks(range(len(errors)), list(reversed(errors)))
    ax.set(ylim=(-0.5, len(errors) - 0.2), title="(b) entries that we hid")
    ax.set_xlabel("root mean square error, standard deviations of the column")
    ax.grid(False, axis="y")


def _draw_outliers(ax: Axes, X: Floats, draw: Canvas) -> tuple[int, int, int]:
    """Enter a few temperatures in °C; return how many are found, false alarms, and of how many."""
    table = X.copy()
    wrong = draw.rng.choice(len(X), WRONG, replace=False)
    table[wrong, 3] = (table[wrong, 3] - 32) / 1.8
    Z = _standardised(table)
    found = PPCA(2).fit(Z).outliers(Z, level=LEVEL**2)  # each limit at LEVEL
    t2 = np.asarray(found.t2 / found.t2_limit)
    limit = np.asarray(found.spe_limit)  # 0 where so much is missing that components explain all
    spe = np.divide(np.asarray(found.spe), limit, out=np.zeros_like(limit), where=limit > 0)
    is_wrong = np.isin(np.arange(len(X)), wrong)
    ax.plot(t2[~is_wrong], spe[~is_wrong], "o", ms=4, mew=0, alpha=0.6, color=INK, label="days")
    ax.plot(t2[wrong], spe[wrong], "X", ms=8, color=RED, label="temperature in °C")
    ax.axvline(1, color=MUTED, lw=1, ls=(0, (5, 3)))
    ax.axhline(1, color=MUTED, lw=1, ls=(0, (5, 3)))
    ax.set(xlabel="T² / its limit", ylabel="SPE / its limit", title="(c) wrong entries")
    ax.margins(0.06)
    ax.legend(loc="lower right", bbox_to_anchor=(1, 1.01), ncols=2, borderaxespad=0)
    flagged = np.asarray(found.flagged)
    return int(flagged[wrong].sum()), int(flagged[~is_wrong].sum()), int((~is_wrong).sum())
