"""EM with missing values on ten spectra: plain steps, and those of the library.

`python -m benchmarks.em_spectra` prints a line for each: steps and seconds until the log-likelihood
is within 1e-9, relatively, of where the run ends, and how much higher that is than where plain EM
ends; then steps and seconds of `PPCA` by default, and how much higher its log-likelihood is.
Of one large table on a GPU: `--rows 1000000 --features 100 --only "flat, 10 %" --device cuda`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import dualpca as dp
from dualpca.data import InMemoryTable
from dualpca.models import driver
from dualpca.models.incomplete import Fit

RELATIVE = 1e-9
"""Difference of log-likelihoods that counts as none."""

Host = np.ndarray[Any, Any]
Clock = Callable[[], float]


def spectra(d: int) -> dict[str, tuple[Host, float]]:
    """Return variances along d axes, and the share of entries that is missing, of ten tables."""
    j, q = np.arange(d), 10
    steep = np.where(j < q, 100 * 0.6**j, 0.1)
    ties = np.where(j < q, 4.0, 1.0)
    flat = 1 + 0.3 * np.exp(-j / d)
    return {
        "steep, 10 %": (steep, 0.1),
        "steep, 50 %": (steep, 0.5),
        "power law 1/j, 30 %": (1.0 / (1 + j), 0.3),
        "power law j^-0.3, 10 %": ((1.0 + j) ** -0.3, 0.1),
        "geometric 0.93^j, 50 %": (0.93**j, 0.5),
        "ties within, 30 %": (np.where(j < q // 2, 10.0, ties), 0.3),
        "ties across, 10 %": (np.where(j < 2 * q, 4.0, 1.0), 0.1),
        "flat, 5 %": (flat, 0.05),
        "flat, 10 %": (flat, 0.1),
        "white, 50 %": (np.ones(d), 0.5),
    }


def table(variances: Host, missing: float, n: int, seed: int = 0) -> Host:
    """Return Gaussian rows along random axes, with entries missing at random."""
    rng, d = np.random.default_rng(seed), variances.size
    axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
    X = rng.standard_normal((n, d)) * np.sqrt(variances) @ axes.T
    X[rng.random((n, d)) < missing] = np.nan
    return X


class Climbed(NamedTuple):
    """How a run went."""

    steps: int
    seconds: float
    loglikelihood: float
    converged: bool

    def line(self, best: float) -> str:
        """Return it as text, with how much higher than `best` it ends."""
        gain = (self.loglikelihood - best) / abs(best)
        return f"{' ' if self.converged else '>'}{self.steps:6} {self.seconds:8.2f} {gain:+8.0e}"


def climbed(fit: Fit, clock: Clock, *, plain: bool, max_iter: int) -> Climbed:
    """Climb from the default start, and count until the log-likelihood is that of the end."""
    values, times = [], []

    def step(theta: Any) -> Any:
        after = fit.step(theta)
        values.append(after[1])
        times.append(clock())
        return after[:2] if plain else after

    theta, start = fit.begin(np.random.default_rng(0)), clock()
    limits: dict[str, Any] = {"tol": 1e-6, "max_iter": max_iter, "accelerate": not plain}
    _, record = driver.maximize(step, theta, **limits)
    best = max(values)
    reached = next(k for k, v in enumerate(values) if v >= best - RELATIVE * abs(best))
    return Climbed(reached + 1, times[reached] - start, best, record.converged)


def by_default(X: Any, q: int, clock: Clock) -> Climbed:
    """Fit `PPCA`, start and end included."""
    start = clock()
    model = dp.PPCA(q).fit(X)
    value = float(model.loglikelihoods_[-1])  # waits for the device
    return Climbed(model.n_iter_, clock() - start, value, model.converged_)


def compare(n: int, d: int, q: int, most: int, only: list[str], device: str | None) -> None:
    """Print a line for every spectrum; a run that did not converge has a `>`."""
    clock: Clock = time.process_time if device is None else time.perf_counter
    print(f"{n:,}×{d}, {q} components: steps, seconds, relative gain of plain EM, here, by default")
    for name, (variances, missing) in spectra(d).items():
        if only and name not in only:
            continue
        X: Any = table(variances, missing, n)
        if device is not None:
            import torch

            X = torch.as_tensor(X, dtype=torch.float32, device=device)
            by_default(X[: n // 10, :], q, clock)  # compiles, and wakes the device
        rows = InMemoryTable(X)
        plain, ours = (
            climbed(Fit(rows, q, by_blocks=True), clock, plain=kind, max_iter=most)
            for kind in (True, False)
        )
        runs = [plain, ours, by_default(X, q, clock)]
        parts = "   ".join(run.line(plain.loglikelihood) for run in runs)
        print(f"{name:24} {parts}", flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.em_spectra", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--features", type=int, default=40)
    parser.add_argument("--components", type=int, default=10)
    parser.add_argument("--most", type=int, default=3000, help="steps, at most")
    parser.add_argument("--only", nargs="*", default=[], help="names of spectra")
    parser.add_argument("--device", help="float32 tensors there, rather than float64 arrays")
    asked = parser.parse_args()
    sizes = (asked.rows, asked.features, asked.components, asked.most)
    compare(*sizes, asked.only, asked.device)


if __name__ == "__main__":
    main()
