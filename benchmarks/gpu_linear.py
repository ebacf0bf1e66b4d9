"""PCA of tensors beside what a user of torch writes in a few lines, defaults against defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.gpu import synchronised
from benchmarks.run import Row, Run

SHAPES = [
    (10_000, 50, 10),
    (100_000, 50, 20),
    (1_000_000, 50, 20),
    (100_000, 200, 20),
    (1_000_000, 200, 20),
    (1_000_000, 500, 20),
    (100_000, 2_000, 20),
    (20_000, 4_000, 20),
    (2_000, 20_000, 20),
    (1_000, 100_000, 20),
]
"""Rows, columns and components."""
ACCURATE = {"float32": 1e-5, "float64": 1e-9}
"""Largest relative error of a variance with which a contestant counts."""
SPIKES, REPEATS, OFFSET = 30, 7, 3.0


def table(n: int, d: int, dtype: Any, offset: float = OFFSET) -> Any:
    """Return rows on the GPU: 30 directions of falling variance, noise, and means off zero."""
    import torch

    where = "cuda" if torch.cuda.is_available() else "cpu"
    draw = torch.Generator(device=where).manual_seed(0)

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, device=where, dtype=dtype, generator=draw)

    scale = torch.linspace(3.0, 0.5, SPIKES, device=where, dtype=dtype)
    return (normal(n, SPIKES) * scale) @ normal(SPIKES, d) + normal(n, d) + offset


def ours(X: Any, q: int) -> Any:
    from dualpca import PCA

    return PCA(q).fit(X).explained_variance_


def covariance(X: Any, q: int) -> Any:
    """Return the variances by a centred covariance matrix and `eigh`; axes come with them."""
    import torch

    C = X - X.mean(0)
    values, vectors = torch.linalg.eigh(C.T @ C / (len(X) - 1))
    vectors[:, -q:].flip(1)
    return values[-q:].flip(0)


def gram(X: Any, q: int) -> Any:
    """Return the same by the inner products of centred rows."""
    import torch

    C = X - X.mean(0)
    values, vectors = torch.linalg.eigh(C @ C.T / (len(X) - 1))
    axes = C.T @ vectors[:, -q:].flip(1)
    axes / axes.norm(dim=0)
    return values[-q:].flip(0)


def pca_lowrank(X: Any, q: int) -> Any:
    import torch

    return torch.pca_lowrank(X, q)[1] ** 2 / (len(X) - 1)


def svd_lowrank(X: Any, q: int) -> Any:
    """Return the same with more power iterations than `pca_lowrank` has by default."""
    import torch

    return torch.svd_lowrank(X - X.mean(0), q, niter=6)[1] ** 2 / (len(X) - 1)


def reference(X: Any, q: int) -> Any:
    """Return the variances in float64, from the smaller of the two products."""
    import torch

    C = X.double() - X.double().mean(0)
    A = C.T @ C if len(X) >= X.shape[1] else C @ C.T
    return torch.linalg.eigvalsh(A / (len(X) - 1))[-q:].flip(0)


def linear(run: Run) -> Iterator[Row]:
    """Time PCA beside torch one-liners; those that miss the accuracy are left out."""
    import torch

    for name, wanted in ACCURATE.items():
        for n, d, q in SHAPES:
            n, d = (max(64, n // 1000), max(32, d // 100)) if run.quick else (n, d)
            X = table(n, d, getattr(torch, name))
            exact = reference(X, q)
            peers: dict[str, Callable[[Any, int], Any]] = {
                "covariance and eigh" if n >= d else "Gram matrix and eigh": (
                    covariance if n >= d else gram
                ),
                "torch.pca_lowrank": pca_lowrank,
                "torch.svd_lowrank, niter=6": svd_lowrank,
            }
            spent, errors = timed({"dualpca": ours} | peers, X, q, exact)
            worst = max(wanted, errors["dualpca"])
            fair = {key: spent[key] for key in peers if errors[key] <= worst}
            best = min(fair, key=fair.__getitem__, default=None)
            yield {
                "name": f"PCA, {n:,}×{d:,}, {q} components, {name}",
                "seconds": spent["dualpca"],
                "error": errors["dualpca"],
                "peer": best,
                "theirs": None if best is None else fair[best],
                "ratio": None if best is None else spent["dualpca"] / fair[best],
                "others": {key: [spent[key], errors[key]] for key in peers},
            }


def timed(
    jobs: dict[str, Callable[[Any, int], Any]], X: Any, q: int, exact: Any
) -> tuple[dict[str, float], dict[str, float]]:
    """Return medians of interleaved runs, and the largest relative error of a variance."""
    spent: dict[str, list[float]] = {name: [] for name in jobs}
    errors = {}
    for repeat in range(REPEATS + 2):
        for name, job in jobs.items():
            found, seconds = synchronised(lambda job=job: job(X, q))
            errors[name] = float(((found.double() - exact) / exact).abs().max())
            if repeat >= 2:
                spent[name].append(seconds)
    return {name: float(np.median(each)) for name, each in spent.items()}, errors
