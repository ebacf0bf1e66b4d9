"""Kernel PCA of millions of points, and questions to a fitted model of a million.

Residuals are measured on rows of the kernel that are drawn at random and evaluated in float64 with
nothing of the library's: an eigenvalue lies within ‖Kv − λv‖ of λ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.gpu import D, Q, rows_of, synchronised
from benchmarks.gpu_linear import REPEATS
from benchmarks.run import Row, Run

SIZES: list[tuple[int, bool, dict[str, Any]]] = [
    (3_000_000, False, {"tol": 1e-4}),
    (3_000_000, True, {"tol": 1e-4}),
    (3_000_000, False, {}),
    (10_000_000, False, {"tol": 1e-3}),
    (10_000_000, True, {"tol": 1e-3}),
    (3_000_000, True, {}),
]
"""Points, whether rows are normal rather than near a surface, and settings."""
SAMPLED, ASKED, COLUMNS = 2048, 10_000, 65_536
"""Rows of the kernel that are looked at, rows that a model is asked about, and tiles' columns."""


def large(run: Run) -> Iterator[Row]:
    """Time one fit of each table, and estimate the residuals of its eigenpairs."""
    import torch

    from dualpca import KernelPCA

    sizes = [(20_000, True, {}), (20_000, False, {"tol": 1e-3})] if run.quick else SIZES
    for n, spherical, options in sizes:
        kind = "normal rows" if spherical else "near a surface"
        said = "".join(f", {name}={value:g}" for name, value in options.items())
        name = f"kernel PCA, {n:,}×{D}, {kind}{said}"
        if not run.room(name):
            continue
        X = rows_of(n, spherical=spherical)
        gamma = 1.0 / (D * float(X.var()))
        model = KernelPCA(Q, kernel="rbf", gamma=gamma, copy_X=False, **options)
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        _, seconds = synchronised(lambda m=model, X=X: m.fit(X))
        peak = (torch.cuda.max_memory_allocated() - held) / 2**30
        residual = sampled_residual(X, gamma, model.eigenvalues_, model.eigenvectors_)
        yield {"name": name, "seconds": seconds, "residual": residual, "gigabytes": peak}
        del model, X
        torch.cuda.empty_cache()


def sampled_residual(X: Any, gamma: float, values: Any, vectors: Any) -> float:
    """Return the largest ‖Kv − λv‖/λ of some eigenpairs, from rows of K drawn at random."""
    import torch

    n = X.shape[0]
    rows = np.random.default_rng(5).choice(n, min(SAMPLED, n), replace=False)
    some = torch.as_tensor(np.sort(rows), device=X.device)
    A, V, values = X[some].double(), vectors.double(), values.double()
    product = torch.zeros(len(A), V.shape[1], dtype=torch.float64, device=X.device)
    for j in range(0, n, COLUMNS):
        C = X[j : j + COLUMNS].double()
        squares = (A * A).sum(1)[:, None] + (C * C).sum(1) - 2 * A @ C.T
        product += torch.exp(-gamma * squares) @ V[j : j + COLUMNS]
    left = product - values * V[some]
    left -= left.mean(0)  # what centring takes from every row of K V
    return float(((left**2).mean(0) * n).sqrt().div(values).max())


def asked(run: Run) -> Iterator[Row]:
    """Time questions about new rows to a model of a million points; errors are of float64."""
    from dualpca import KernelPCA

    n, m = (20_000, 500) if run.quick else (1_000_000, ASKED)
    X = rows_of(n + m, spherical=False)
    X, new = X[:n], X[n:]
    gamma = 1.0 / (D * float(X.var()))
    model = KernelPCA(Q, kernel="rbf", gamma=gamma, copy_X=False).fit(X)
    for method in ("transform", "novelty"):
        ask = getattr(model, method)
        ask(new)
        spent = [synchronised(lambda ask=ask: ask(new))[1] for _ in range(REPEATS)]
        about = {
            "name": f"{method} of {m:,} rows, {n:,} points",
            "seconds": float(np.median(spent)),
        }
        if method == "transform":
            few = new[: min(m, SAMPLED)]
            wanted = model.transform(few.double())
            about["error"] = float((ask(few).double() - wanted).norm() / wanted.norm())
        yield about
