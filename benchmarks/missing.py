"""PPCA of incomplete tables against ppca-rs (Rust, parallel): `python -m benchmarks.missing`.

Both see the same table in the same process, one after the other. ppca-rs runs plain EM until the
relative change of its log-likelihood is below 1e-6, or for `LIMIT` seconds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from ppca_rs import Dataset
from ppca_rs.ppca_rs import PPCAModel
from threadpoolctl import threadpool_limits

from dualpca import PPCA

Q, THREADS, REPEATS, LIMIT, CHANGE, WITHIN = 10, 2, 3, 90.0, 1e-6, 1e-6


@dataclass(frozen=True)
class Outcome:
    seconds: float
    steps: int
    step_seconds: float
    loglikelihood: float
    note: str


def table(n: int, d: int, missing: float, slow: bool = False) -> np.ndarray:
    """Return q strong directions in noise, or a spectrum 1/i, with entries removed at random."""
    rng = np.random.default_rng(0)
    if slow:
        axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
        X = rng.standard_normal((n, d)) / np.sqrt(np.arange(1, d + 1)) @ axes.T
    else:
        X = rng.standard_normal((n, Q)) @ rng.standard_normal((Q, d))
        X += 0.1 * rng.standard_normal((n, d))
    X += rng.standard_normal(d)
    X[rng.random(X.shape) < missing] = np.nan
    return X


def ours(X: np.ndarray) -> Outcome:
    model, times = PPCA(Q, tol=1e-4), []
    for _ in range(REPEATS):
        start = time.perf_counter()
        model.fit(X)
        times.append(time.perf_counter() - start)
    trace, seconds = np.array(model.loglikelihoods_), float(np.median(times))
    reached = int(np.argmax(trace >= trace[-1] - WITHIN * abs(trace[-1]))) + 1
    note = f"within 1e-6 of the maximum after {reached} steps"
    return Outcome(seconds, model.n_iter_, seconds / model.n_iter_, model.loglikelihood_, note)


def theirs(X: np.ndarray) -> Outcome:
    start = time.perf_counter()
    data = Dataset(X)
    model = PPCAModel.init(Q, data)
    before, steps, done = -np.inf, 0, False
    while not done and time.perf_counter() - start < LIMIT:
        model = model.iterate(data)
        value, steps = model.llk(data), steps + 1
        done = abs(value - before) < CHANGE * abs(value)
        before = value
    seconds = time.perf_counter() - start
    again = time.perf_counter()
    model.iterate(data)
    step = time.perf_counter() - again
    note = "converged by its change" if done else f"stopped after {LIMIT:g} s"
    return Outcome(seconds, steps, step, model.llk(data), note)


def row(title: str, who: str, out: Outcome, peer: Outcome) -> str:
    ratios = f"{out.seconds / peer.seconds:.3f} | {out.step_seconds / peer.step_seconds:.2f}"
    return (
        f"| {title} | {who} | {out.seconds:.3g} | {out.steps} | {out.step_seconds:.3g} | {ratios} "
        f"| {out.loglikelihood:.2f} | {out.note} |"
    )


def main() -> None:
    tables = {
        "20,000×100, 20 % missing": table(20_000, 100, 0.2),
        "2,000×500, 10 % missing": table(2_000, 500, 0.1),
        "5,000×100, 20 % missing, spectrum 1/i": table(5_000, 100, 0.2, slow=True),
    }
    print("| table | who | s | steps | s a step | ratio | ratio a step | log-likelihood | note |")
    print("|---|---|---|---|---|---|---|---|---|")
    for title, X in tables.items():
        with threadpool_limits(THREADS):
            mine, peer = ours(X), theirs(X)
        print(row(title, "dualpca", mine, peer), flush=True)
        print(row(title, "ppca-rs", peer, peer), flush=True)


if __name__ == "__main__":
    main()
