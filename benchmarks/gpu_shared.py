"""What several GPUs would gain, measured on one: `python -m benchmarks gpu:shared`.

A pass on P GPUs takes as long as the slowest of its P shares, and the copies: the block to every
GPU, and what a share adds back from it. Shares are timed one by one, copies through the memory of
the host, the slow way. `python -m benchmarks.gpu_shared` runs small on the CPU without a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.gpu import BLOCK, LATENT, NOISE, D, Q
from benchmarks.run import Row, Run

SHARES = (1, 2, 4, 8)
REPEATS = 3


def best(work: Callable[[], Any]) -> float:
    """Return the shortest time of some calls after a first one, which compiles."""
    import torch

    spent = []
    for _ in range(1 + REPEATS):
        start = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        spent.append(time.perf_counter() - start)
    return min(spent[1:])


def round_trip(V: Any) -> Any:
    """Copy a block to the host and back."""
    return V.cpu().to(V.device)


def points(n: int) -> Any:
    """Return float32 rows near a surface of 8 dimensions, on the GPU if there is one."""
    import torch

    draw = np.random.default_rng(0)
    Z = draw.standard_normal((n, LATENT)) * np.linspace(2.0, 0.6, LATENT)
    W = draw.standard_normal((LATENT, D)) / np.sqrt(LATENT)
    X = Z @ W + NOISE * draw.standard_normal((n, D))
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    return torch.asarray(X.astype(np.float32), device=device)


def shared(run: Run) -> Iterator[Row]:
    """Time a pass as 1, 2, 4 and 8 shares, then fits with one share and with two on one device."""
    import torch

    from dualpca import KernelPCA
    from dualpca.kernels import RBF
    from dualpca.operators.spread import Share

    small = run.quick or not torch.cuda.is_available()
    for n in (2_000,) if small else (100_000, 1_000_000):
        X = points(n)
        gamma = 1.0 / (D * float(X.var()))
        V = torch.asarray(np.random.default_rng(1).standard_normal((n, BLOCK)), device=X.device)
        for ask in ("times", "times_in_double"):
            whole = None
            for count in SHARES:
                if not run.room(f"{count} shares of {n:,} points", 30.0):
                    continue
                parts = [Share(X, k, count, kernel=RBF(gamma), single=True) for k in range(count)]
                seconds = [best(partial(part.piece, ask, V)) for part in parts]
                added = parts[0].piece(ask, V)[1]
                copies = best(partial(round_trip, V)) + best(added.cpu)
                slowest = max(seconds)
                whole = slowest if whole is None else whole
                on_several = slowest + (copies if count > 1 else 0.0)
                row = {"name": f"one pass, {ask}", "points": n, "shares": count}
                row |= {"seconds": slowest, "even": min(seconds) / slowest, "copies": copies}
                yield row | {"speedup": whole / on_several}
        for count in (1, 2):
            device = [str(X.device)] * count
            model = KernelPCA(Q, kernel="rbf", gamma=gamma, device=device, eigen_solver="krylov")
            seconds = best(partial(model.fit, X))
            yield {"name": "fit on one device", "points": n, "shares": count, "seconds": seconds}


if __name__ == "__main__":
    for line in shared(Run(quick=True)):
        print(line)
