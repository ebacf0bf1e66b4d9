"""From which sizes on a card is worth the way there: what `device='auto'` goes by."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.gpu import LATENT, D, Q, synchronised
from benchmarks.run import Row, Run

STEPS = 20
PAIRS = [(300, D), (1000, D), (3000, D), (10_000, D)]


def choice(run: Run) -> Iterator[Row]:
    """Time fits of host rows with and without `device='cuda'`: from which work on is it worth it?

    The way there and home is in the times; the host has the cores that its user is likely to have.
    """
    import dualpca as dp
    from dualpca.arrays.devices import Job

    def gaps(X: Any) -> Any:
        return np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X)

    def some(kind: Callable[..., Any], *args: Any) -> Callable[[], Any]:
        return lambda: kind(*args, max_iter=STEPS, tol=0.0)

    cases: list[tuple[str, Callable[[], Any], list[tuple[int, int]], Callable[[Any], Any]]] = [
        ("PCA", lambda: dp.PCA(Q), [(10**k, 50) for k in (4, 5, 6)], np.asarray),
        ("PCA", lambda: dp.PCA(Q), [(n, n) for n in (200, 500, 1000, 2000, 4000)], np.asarray),
        ("KernelPCA", lambda: dp.KernelPCA(Q, kernel="rbf"), PAIRS, np.asarray),
        ("DualPPCA", lambda: dp.DualPPCA(Q, kernel="rbf"), PAIRS, np.asarray),
        ("PPCA, 10 % missing", some(dp.PPCA, Q), [(n, 100) for n in (300, 3000, 30_000)], gaps),
        (
            "FactorAnalysis",
            some(dp.FactorAnalysis, 5),
            [(n, 50) for n in (10**4, 10**6)],
            np.asarray,
        ),
        ("MixturePPCA", some(dp.MixturePPCA, 5, 4), [(10**k, 32) for k in (3, 4, 5)], np.asarray),
    ]
    for name, make, sizes, prepare in cases:
        for n, d in sizes[:1] if run.quick else sizes:
            title = f"{name} {n:,}×{d}"
            if not run.room(title, 10.0):
                continue
            W = np.random.default_rng(0).standard_normal((LATENT, d))
            draw = np.random.default_rng(n)
            X = prepare(draw.standard_normal((n, LATENT)) @ W + draw.standard_normal((n, d)))
            with threadpool_limits(run.threads):
                host, card = (
                    fit_seconds(make().set_params(device=dev), X) for dev in (None, "cuda")
                )
            job = Job(n, d, pairs="Kernel" in name or "Dual" in name)
            yield {"name": title, "model": name, "work": job.work, "host": host, "card": card}


def fit_seconds(model: Any, X: Any) -> float:
    """Return the time of a fit, the best of three."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return min(synchronised(lambda: model.fit(X))[1] for _ in range(3))
