"""PCA of a CSR tensor of counts like those of single cells: `python -m benchmarks gpu:sparse`.

1,300,000 cells and 2,000 genes on a GPU; without one, small on the CPU. Beside it are
`torch.svd_lowrank` and subspace iterations with the mean left implicit. Errors are relative to
eigenvalues of the scatter in float64. Counts are made on the device, from a fixed seed.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.run import Row, Run

CELLS, GENES, COMPONENTS = 1_300_000, 2_000, 50
SMALL = (3_000, 200, 10)
"""Cells, genes and components without a GPU."""
TYPES, SHARE, BLOCK, DEPTH = 30, 0.15, 2**25, 0.4
"""Kinds of cells, the share of genes that differ in each, entries made at a time, and the standard
deviation of the logarithm of a cell's depth."""
RATE, SPREAD = -3.6, 1.2
"""Mean and standard deviation of the logarithm of a gene's rate: 5.7 % of entries are filled."""
PASSES = 8


def cells(n: int, d: int, device: str, seed: int = 0) -> Any:
    """Return log(1 + counts) as a float32 CSR tensor of shape (n, d)."""
    import torch

    rng = np.random.default_rng(seed)
    effect = rng.normal(size=(TYPES, d)) * (rng.random((TYPES, d)) < SHARE)
    rates = np.exp(rng.normal(RATE, SPREAD, d) + effect)
    rate = torch.asarray(rates, dtype=torch.float32, device=device)
    draw = torch.Generator(device=device).manual_seed(seed)
    counts, columns, values = [], [], []
    for start in range(0, n, BLOCK // d):
        m = min(BLOCK // d, n - start)
        kind = torch.randint(TYPES, (m,), device=device, generator=draw)
        depth = torch.exp(DEPTH * torch.randn(m, 1, device=device, generator=draw))
        block = torch.poisson(rate[kind] * depth, generator=draw)
        block *= block.sum() / m / block.sum(1, keepdim=True).clamp_min(1)
        filled = block > 0
        counts.append(filled.sum(1))
        columns.append(filled.nonzero()[:, 1].to(torch.int32))
        values.append(torch.log1p(block[filled]))
    ends = torch.zeros(n + 1, dtype=torch.int64, device=device)
    ends[1:] = torch.cumsum(torch.cat(counts), 0)
    parts = (ends.to(torch.int32), torch.cat(columns), torch.cat(values))
    return torch.sparse_csr_tensor(*parts, size=(n, d), check_invariants=False)


def dualpca(X: Any, q: int) -> Any:
    """Return the variances of the default fit."""
    from dualpca import PCA

    return PCA(q).fit(X).explained_variance_


def centred(X: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return products with the centred rows and with their transpose."""
    import torch

    n = X.shape[0]
    Xt = X.to_sparse_csc().t()  # stored by rows, too
    mean = (Xt @ torch.ones(n, 1, dtype=X.dtype, device=X.device)) / n
    return lambda V: X @ V - mean.T @ V, lambda U: Xt @ U - mean * U.sum(0)


def subspace_iteration(X: Any, q: int) -> Any:
    """Return the variances after eight passes over the rows with a block of q + 10 vectors."""
    import torch

    draw = torch.Generator(device=X.device).manual_seed(0)
    times, adjoint = centred(X)
    Q = torch.randn(X.shape[1], q + 10, device=X.device, dtype=X.dtype, generator=draw)
    for _ in range(PASSES):
        Q = torch.linalg.qr(adjoint(times(Q)))[0]
    return torch.linalg.svdvals(times(Q))[:q] ** 2 / (X.shape[0] - 1)


def svd_lowrank(X: Any, q: int) -> Any:
    """Return the squares of `torch.svd_lowrank` with its mean; six power iterations."""
    import torch

    mean = (X.to_sparse_csc().t() @ torch.ones(X.shape[0], 1, dtype=X.dtype, device=X.device)).T
    found = torch.svd_lowrank(X.to_sparse_coo(), q + 10, niter=6, M=mean / X.shape[0])
    return found[1][:q] ** 2 / (X.shape[0] - 1)


def reference(X: Any, q: int) -> Any:
    """Return the variances from the scatter in float64, of rows made dense a block at a time."""
    import torch

    n, d = X.shape
    ends, total, scatter = X.crow_indices(), 0.0, 0.0
    for start in range(0, n, BLOCK // d):
        cut = ends[start : min(n, start + BLOCK // d) + 1]
        kept = slice(int(cut[0]), int(cut[-1]))
        parts = (cut - cut[0], X.col_indices()[kept], X.values()[kept].double())
        C = torch.sparse_csr_tensor(*parts, size=(len(cut) - 1, d)).to_dense()
        total, scatter = total + C.sum(0), scatter + C.T @ C
    scatter -= torch.outer(total, total) / n
    return torch.linalg.eigvalsh(scatter)[-q:].flip(0) / (n - 1)


JOBS: dict[str, Callable[[Any, int], Any]] = {
    "dualpca, default": dualpca,
    f"subspace iteration, {PASSES} passes": subspace_iteration,
    "torch.svd_lowrank, niter=6": svd_lowrank,
}


def compared(n: int, d: int, q: int, repeats: int = 3) -> list[dict[str, Any]]:
    """Return, for every job, its median seconds of interleaved runs and its largest error."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    X = cells(n, d, device)
    exact = reference(X, q)
    spent: dict[str, list[float]] = {name: [] for name in JOBS}
    rows: dict[str, dict[str, Any]] = {}
    for repeat in range(repeats + 1):  # the first compiles
        for name, job in JOBS.items():
            try:
                found, seconds = timed(lambda job=job: job(X, q))
            except RuntimeError as reason:  # what a version of torch cannot do with sparse tensors
                rows[name] = {"name": name, "failed": str(reason).splitlines()[0]}
                continue
            if repeat:
                spent[name].append(seconds)
            error = float(((found.double() - exact) / exact).abs().max())
            rows[name] = {"name": name, "first": seconds, "error": error} | rows.get(name, {})
    for name, each in spent.items():
        if each:
            rows[name]["seconds"] = float(np.median(each))
    fill = X.values().numel() / (n * d)
    return [
        {"rows": n, "columns": d, "fill": fill, "device": device} | row for row in rows.values()
    ]


ACCURATE = 1e-4
"""Largest relative error of a variance with which a contestant counts, unless ours is larger."""


def sparse(run: Run) -> Iterator[Row]:
    """Time the default fit beside torch's; those that miss the accuracy are left out."""
    n, d, q = SMALL if run.quick else (CELLS, GENES, COMPONENTS)
    rows = {row["name"]: row for row in compared(n, d, q)}
    mine = rows.pop("dualpca, default")
    worst = max(ACCURATE, mine["error"])
    fair = {who: row["seconds"] for who, row in rows.items() if row.get("error", 1.0) <= worst}
    best = min(fair, key=fair.__getitem__, default=None)
    yield {
        "name": f"PCA, sparse, {n:,}×{d:,}, {mine['fill']:.1%} filled, {q} components",
        "seconds": mine["seconds"],
        "error": mine["error"],
        "peer": best,
        "theirs": None if best is None else fair[best],
        "ratio": None if best is None else mine["seconds"] / fair[best],
        "others": {who: [row.get("seconds"), row.get("error")] for who, row in rows.items()},
    }


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return a result and its seconds, with the GPU synchronised where there is one."""
    import torch

    wait = torch.cuda.synchronize if torch.cuda.is_available() else (lambda: None)
    wait()
    start = time.perf_counter()
    found = work()
    wait()
    return found, time.perf_counter() - start


def main() -> None:
    """Print one line for each contestant."""
    import torch

    sizes = (CELLS, GENES, COMPONENTS) if torch.cuda.is_available() else SMALL
    parser = argparse.ArgumentParser(description=__doc__)
    for name, size in zip(("--rows", "--columns", "--components"), sizes, strict=True):
        parser.add_argument(name, type=int, default=size)
    given = parser.parse_args()
    warnings.filterwarnings("ignore", message="Sparse", category=UserWarning)
    found = compared(given.rows, given.columns, given.components)
    first = found[0]
    print(f"{first['rows']:,}×{first['columns']:,}, {first['fill']:.1%} filled, {first['device']}")
    for row in found:
        if "failed" in row:
            print(f"{row['name']}: {row['failed']}")
        else:
            times = f"{row['seconds']:.3f} s (first {row['first']:.3f} s)"
            print(f"{row['name']}: {times}, error {row['error']:.1e}")


if __name__ == "__main__":
    main()
