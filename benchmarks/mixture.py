"""Mixtures of PPCA against GaussianMixture and ppca-rs: `python -m benchmarks mixture`.

All see the same table in the same process, one after the other. Seconds a step are the slope
between a short and a longer run of each from random responsibilities, so starts do not count and
nobody converges on the way; held-out log-density is that of each one's own fit to the end
(ppca-rs: until `LIMIT` seconds have passed; it is left out where it is not installed).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec

import numpy as np
from sklearn.mixture import GaussianMixture

from benchmarks.run import Row, Run
from dualpca import MixturePPCA
from dualpca.data import InMemoryTable
from dualpca.models.emissions import Emissions, Surveyed
from dualpca.models.mixture import MixtureRequest, MixtureSteps

N, D, K, Q = 20_000, 64, 10, 8
SHORT, LONG, REPEATS, LIMIT, CHANGE = 2, 12, 3, 90.0, 1e-6
APART = {"apart": 1.0, "close": 0.1}


@dataclass(frozen=True)
class Outcome:
    step_seconds: float
    seconds: float
    steps: int
    held_out: float
    note: str


def table(n: int, apart: float) -> np.ndarray:
    """Return rows of K subspaces of Q directions in noise, `apart` standard deviations apart."""
    rng = np.random.default_rng(0)
    means, axes = apart * rng.standard_normal((K, D)), rng.standard_normal((K, D, Q))
    labels = rng.integers(K, size=n)
    X = 0.5 * rng.standard_normal((n, D)) + means[labels]
    for k in range(K):
        own = labels == k
        X[own] += rng.standard_normal((int(own.sum()), Q)) @ axes[k].T
    return X


def slope(fit: Callable[[int], int]) -> float:
    """Return seconds a step between a short and a longer run, the median of a few."""
    found = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        few = fit(SHORT)
        between = time.perf_counter()
        many = fit(LONG)
        found.append((time.perf_counter() - between - (between - start)) / (many - few))
    return float(np.median(found))


def our_steps(X: np.ndarray) -> Callable[[int], int]:
    """Return EM for a number of steps from random labels."""
    labels = np.random.default_rng(1).integers(K, size=len(X))
    request = MixtureRequest(K, Q, tol=0.0, unit=float(X.var()))

    def fit(steps: int) -> int:
        data, rng = Surveyed.of(InMemoryTable(X)), np.random.default_rng(0)
        em = MixtureSteps(data, request, Q, rng)
        start = Emissions.start(X, K, Q, rng, floor=request.floor, labels=labels)
        mass = np.bincount(labels, minlength=K).astype(float)
        return em.run(lambda: em.begin(start, mass), steps)[1].n_iter

    return fit


def their_steps(X: np.ndarray) -> Callable[[int], int]:
    """Return scikit-learn's EM for a number of steps from random responsibilities."""

    def fit(steps: int) -> int:
        options = {"init_params": "random", "tol": 0.0, "random_state": 0}
        return GaussianMixture(K, max_iter=steps, **options).fit(X).n_iter_

    return fit


def to_the_end(
    model: MixturePPCA | GaussianMixture, step: float, X: np.ndarray, new: np.ndarray
) -> Outcome:
    """Return how a whole fit does, with its own start and its own end."""
    start = time.perf_counter()
    model.fit(X)
    seconds = time.perf_counter() - start
    note = "converged" if model.converged_ else "stopped at max_iter"
    return Outcome(step, seconds, model.n_iter_, model.score(new), note)


def rust(X: np.ndarray, new: np.ndarray, limit: float) -> Outcome:
    from ppca_rs import Dataset
    from ppca_rs.ppca_rs import PPCAMix

    start = time.perf_counter()
    data, before, steps, done = Dataset(X), -np.inf, 0, False
    model, stamps = PPCAMix.init(K, Q, data), []
    while not done and time.perf_counter() - start < limit:
        began = time.perf_counter()
        model = model.iterate(data)
        stamps.append(time.perf_counter() - began)
        value, steps = model.llk(data), steps + 1
        done = abs(value - before) < CHANGE * abs(value)
        before = value
    note = "converged by its change" if done else f"stopped after {limit:.0f} s"
    held_out = model.llk(Dataset(new)) / len(new)
    return Outcome(float(np.median(stamps)), time.perf_counter() - start, steps, held_out, note)


def rows(run: Run, part: str) -> Iterator[Row]:
    n = 1_000 if run.quick else N
    X, new = np.split(table(n + n // 4, APART[part]), [n])
    peer = GaussianMixture(K, random_state=0)
    found = {
        "dualpca": to_the_end(MixturePPCA(K, Q, standardize=False), slope(our_steps(X)), X, new),
        "scikit-learn GaussianMixture(full)": to_the_end(peer, slope(their_steps(X)), X, new),
    }
    if find_spec("ppca_rs") is None:
        run.left_out.append("ppca-rs, which is not installed")
    else:
        found["ppca-rs"] = rust(X, new, min(LIMIT, run.left / 2))
    mine, *peers = found.values()
    ratios = {
        "ratio": mine.step_seconds / min(p.step_seconds for p in peers),
        "whole_fit_ratio": mine.seconds / min(p.seconds for p in peers),
    }
    for name, out in found.items():
        ours = name == "dualpca"
        about = {"name": f"{n:,}×{D}, means {APART[part]:g} apart", "who": name, "ours": ours}
        yield about | asdict(out) | (ratios if ours else {})
