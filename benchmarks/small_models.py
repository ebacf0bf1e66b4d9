"""Mixtures, factor analysis and hidden chains on small tables: cells of `benchmarks.small`.

Every side fits with its own defaults: its starts, its tolerance, its largest number of steps. The
note of a fit holds the log-likelihood of held-out rows per row, ours and the peer's: time counts
only where ours is not below. hmmlearn is not a dependency; without it chains have no cells.
"""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from sklearn import decomposition
from sklearn.datasets import load_iris, load_wine
from sklearn.mixture import GaussianMixture

from benchmarks.small import Cell
from dualpca import FactorAnalysis, HiddenMarkovPCA, MixturePPCA

Rows = np.ndarray[Any, Any]

TEST_SHARE = 5
"""Every so many-th row is held out."""


def cells(quick: bool) -> list[Cell]:
    """Return all cells; the large ones only if there is time for them."""
    return [*mixtures(quick), *factors(quick), *chains(quick)]


def halves(X: Rows) -> tuple[Rows, Rows]:
    """Return rows to fit, and rows that are held out."""
    order = np.random.default_rng(7).permutation(len(X))
    held = order[: max(1, len(X) // TEST_SHARE)]
    return np.delete(X, held, axis=0), X[np.sort(held)]


def quietly(work: Callable[[], Any]) -> Any:
    """Return what some work gives; peers warn where they stop at their largest number of steps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return work()


def standing(ours: Any, peers: dict[str, Any], X: Rows, new: Rows) -> str:
    """Return the log-likelihood of held-out rows per row, everybody's."""
    every = {"ours": ours} | peers
    scores = {name: quietly(lambda m=m: m.fit(X)).score(new) for name, m in every.items()}
    return ", ".join(f"{name} {value:.3f}" for name, value in scores.items())


def asked(
    group: str, name: str, ours: Any, peers: dict[str, Any], X: Rows, methods: dict[str, str]
) -> Iterator[Cell]:
    """Yield cells of what fitted models answer; `methods` are ours and the peers'."""
    quietly(lambda: [model.fit(X) for model in (ours, *peers.values())])
    for own, theirs in methods.items():
        others = {key: partial(getattr(peer, theirs), X) for key, peer in peers.items()}
        yield Cell(group, f"{name}, {own}", partial(getattr(ours, own), X), others)


# --- Mixtures ------------------------------------------------------------------------------------


def subspaces(n: int, d: int, K: int, q: int, apart: float = 1.0) -> Rows:
    """Return rows of K subspaces of q directions in noise."""
    rng = np.random.default_rng(0)
    means, axes = apart * rng.standard_normal((K, d)), rng.standard_normal((K, d, q))
    labels = rng.integers(K, size=n)
    X = 0.5 * rng.standard_normal((n, d)) + means[labels]
    for k in range(K):
        own = labels == k
        X[own] += rng.standard_normal((int(own.sum()), q)) @ axes[k].T
    return X


def mixtures(quick: bool) -> Iterator[Cell]:
    """Yield MixturePPCA beside GaussianMixture(covariance_type='full')."""
    tables: list[tuple[str, Rows, int, int, bool]] = [
        ("iris K=3", load_iris().data, 3, 3, False),
        ("wine K=3", load_wine().data, 3, 2, True),  # columns in very different units
        ("1,000×10 K=3", subspaces(1000, 10, 3, 2), 3, 2, False),
        ("5,000×20 K=5", subspaces(5000, 20, 5, 3), 5, 3, False),
    ]
    if not quick:
        tables.append(("20,000×64 K=10", subspaces(20_000, 64, 10, 8), 10, 8, False))
    for name, X, K, q, standardize in tables:
        ours = MixturePPCA(K, q, standardize=standardize)
        peers = {"GaussianMixture(full)": GaussianMixture(K, random_state=0)}
        note = standing(ours, peers, *halves(X))
        theirs = {key: partial(quietly, partial(peer.fit, X)) for key, peer in peers.items()}
        yield Cell("mixture", f"{name}, fit", partial(quietly, partial(ours.fit, X)), theirs, note)
        methods = {name: name for name in ("predict", "score_samples", "predict_proba")}
        yield from asked("mixture", name, ours, peers, X, methods)


# --- Factor analysis -----------------------------------------------------------------------------


def common_factors(n: int, d: int, q: int) -> Rows:
    """Return rows of q factors with a noise of its own in every feature."""
    rng = np.random.default_rng(0)
    W, psi = rng.standard_normal((d, q)), rng.uniform(0.2, 2.0, d)
    return rng.standard_normal((n, q)) @ W.T + rng.standard_normal((n, d)) * np.sqrt(psi)


def factors(quick: bool) -> Iterator[Cell]:
    """Yield FactorAnalysis beside scikit-learn's, by both of its routes."""
    tables: list[tuple[str, Rows, int]] = [
        ("iris q=2", load_iris().data, 2),
        ("wine q=3", load_wine().data, 3),
        ("1,000×20 q=5", common_factors(1000, 20, 5), 5),
        ("5,000×100 q=10", common_factors(5000, 100, 10), 10),
    ]
    if not quick:
        tables.append(("20,000×200 q=10", common_factors(20_000, 200, 10), 10))
    for name, X, q in tables:
        ours = FactorAnalysis(q)
        peers = {
            how: decomposition.FactorAnalysis(q, svd_method=how) for how in ("randomized", "lapack")
        }
        note = standing(ours, peers, *halves(X))
        theirs = {key: partial(quietly, partial(peer.fit, X)) for key, peer in peers.items()}
        yield Cell("factor", f"{name}, fit", partial(quietly, partial(ours.fit, X)), theirs, note)
        methods = {name: name for name in ("transform", "score_samples")}
        yield from asked("factor", name, ours, peers, X, methods)


# --- Hidden chains -------------------------------------------------------------------------------


def sequence(T: int, d: int, S: int, seed: int = 0) -> Rows:
    """Return a sequence whose states last twenty steps or so, with covariances of their own."""
    rng = np.random.default_rng(seed)
    shape = np.random.default_rng(0)
    means = 1.5 * shape.standard_normal((S, d))
    roots = np.eye(d) + 0.5 * shape.standard_normal((S, d, d))
    jumps = np.where(rng.random(T) < 1 / 20, rng.integers(0, S, T), -1)
    jumps[0] = 0
    states = jumps[np.maximum.accumulate(np.where(jumps >= 0, np.arange(T), 0))]
    return means[states] + np.einsum("tij,tj->ti", roots[states], rng.standard_normal((T, d)))


def chains(quick: bool) -> Iterator[Cell]:
    """Yield HiddenMarkovPCA beside hmmlearn's GaussianHMM(covariance_type='full')."""
    if importlib.util.find_spec("hmmlearn") is None:
        return
    from hmmlearn.hmm import GaussianHMM

    logging.getLogger("hmmlearn").setLevel(logging.ERROR)
    sizes = [(200, 3, 2), (2000, 5, 3)] + ([] if quick else [(20_000, 10, 5)])
    for T, d, S in sizes:
        name, X, new = f"T={T:,} d={d} K={S}", sequence(T, d, S), sequence(T, d, S, seed=1)
        ours, peer = (
            HiddenMarkovPCA(S, d - 1, standardize=False),
            GaussianHMM(S, "full", random_state=0),
        )
        ready = (quietly(lambda m=m, X=X: m.fit(X)) for m in (ours, peer))
        own, theirs = (m.score(new) for m in ready)
        note = f"ours {own:.3f}, hmmlearn {theirs / T:.3f}"
        fit = {"hmmlearn": partial(quietly, partial(peer.fit, X))}
        yield Cell("chain", f"{name}, fit", partial(quietly, partial(ours.fit, X)), fit, note)
        methods = {"predict": "predict", "score": "score", "predict_proba": "predict_proba"}
        yield from asked("chain", name, ours, {"hmmlearn": peer}, X, methods)
