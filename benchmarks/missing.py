"""PPCA of incomplete tables beside ppca-rs (Rust, parallel): `python -m benchmarks missing`.

Both see the same table in the same process, one after the other. ppca-rs runs plain EM until the
relative change of its log-likelihood is below 1e-6, or for `LIMIT` seconds.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from ppca_rs import Dataset
from ppca_rs.ppca_rs import PPCAModel
from sklearn.exceptions import ConvergenceWarning

from benchmarks.run import Row, Run
from dualpca import PPCA

Q, REPEATS, LIMIT, CHANGE, WITHIN = 10, 3, 90.0, 1e-6, 1e-6

FEW, MORE = 2, 12
"""Steps of two fits, whose difference says what one more step costs."""


class Shape(NamedTuple):
    n: int
    d: int
    missing: float
    slow: bool = False  # a spectrum 1/i
    alone: bool = False  # too large for the peer

    def __str__(self) -> str:
        slow = ", spectrum 1/i" if self.slow else ""
        return f"{self.n:,}×{self.d}, {self.missing:.0%} missing{slow}"


PARTS = {
    "5,000×100": Shape(5_000, 100, 0.2, slow=True),
    "2,000×500": Shape(2_000, 500, 0.1),
    "20,000×100": Shape(20_000, 100, 0.2),
    "1,000,000×100": Shape(1_000_000, 100, 0.2, alone=True),
}


class Outcome(NamedTuple):
    seconds: float
    steps: int
    step_seconds: float
    loglikelihood: float
    note: str


def table(shape: Shape) -> np.ndarray:
    """Return q strong directions in noise, or a spectrum 1/i, with entries removed at random."""
    rng, n, d = np.random.default_rng(0), shape.n, shape.d
    if shape.slow:
        axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
        X = rng.standard_normal((n, d)) / np.sqrt(np.arange(1, d + 1)) @ axes.T
    else:
        X = rng.standard_normal((n, Q)) @ rng.standard_normal((Q, d))
        X += 0.1 * rng.standard_normal((n, d))
    X += rng.standard_normal(d)
    X[rng.random(X.shape) < shape.missing] = np.nan
    return X


def ours(X: np.ndarray, repeats: int) -> Outcome:
    model, times = PPCA(Q, tol=1e-4), []
    for _ in range(repeats):
        start = time.perf_counter()
        model.fit(X)
        times.append(time.perf_counter() - start)
    trace, seconds = np.array(model.loglikelihoods_), float(np.median(times))
    step = a_step(X) if repeats > 1 else seconds / model.n_iter_
    reached = int(np.argmax(trace >= trace[-1] - WITHIN * abs(trace[-1]))) + 1
    note = f"within 1e-6 of the maximum after {reached} steps"
    return Outcome(seconds, model.n_iter_, step, model.loglikelihood_, note)


def a_step(X: np.ndarray) -> float:
    """Return the seconds of one more step: fits of few steps and of more, in turn."""
    times: dict[int, list[float]] = {FEW: [], MORE: []}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for _ in range(REPEATS):
            for steps, found in times.items():
                start = time.perf_counter()
                PPCA(Q, tol=0, max_iter=steps).fit(X)
                found.append(time.perf_counter() - start)
    few, more = (float(np.median(found)) for found in times.values())
    return (more - few) / (MORE - FEW)


def theirs(X: np.ndarray, limit: float) -> Outcome:
    start = time.perf_counter()
    data = Dataset(X)
    model = PPCAModel.init(Q, data)
    before, steps, done = -np.inf, 0, False
    while not done and time.perf_counter() - start < limit:
        model = model.iterate(data)
        value, steps = model.llk(data), steps + 1
        done = abs(value - before) < CHANGE * abs(value)
        before = value
    seconds = time.perf_counter() - start
    again = [time.perf_counter()]
    for _ in range(REPEATS):
        model.iterate(data)
        again.append(time.perf_counter())
    step = float(np.median(np.diff(again)))
    note = "converged by its change" if done else f"stopped after {limit:.0f} s"
    return Outcome(seconds, steps, step, model.llk(data), note)


def rows(run: Run, part: str) -> Iterator[Row]:
    shape = PARTS[part]
    if run.quick:
        shape = shape._replace(n=shape.n // 100 + 100)
    X = table(shape)
    mine = ours(X, 1 if shape.alone else REPEATS)
    row: Row = {"name": str(shape), "who": "dualpca", "ours": True, **mine._asdict()}
    if shape.alone:
        yield row
        return
    peer = theirs(X, min(LIMIT, run.left / 2))
    row["ratio"] = mine.step_seconds / peer.step_seconds
    yield row | {"whole_fit_ratio": mine.seconds / peer.seconds}
    yield {"name": str(shape), "who": "ppca-rs", "ours": False, **peer._asdict()}
