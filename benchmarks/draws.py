"""Draws of kernel values from the dual model at 50,000 points: `python -m benchmarks.draws`.

No peer does this: the paper calls the full eigendecomposition that it needs a limitation.
"""

from __future__ import annotations

import time

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.memory import extra_megabytes
from dualpca import DualPPCA

N, D, GAMMA, Q, DRAWS, THREADS = 50_000, 10, 0.1, 10, 16, 2


def main() -> None:
    X = np.random.default_rng(0).standard_normal((N, D))
    with threadpool_limits(THREADS):
        start = time.perf_counter()
        model = DualPPCA(Q, gamma=GAMMA, eigen_solver="krylov", tol=1e-4).fit(X)
        fitted = time.perf_counter() - start
        start = time.perf_counter()
        megabytes = extra_megabytes(lambda: model.sample_kernel(DRAWS, random_state=0))
        drawn = time.perf_counter() - start
    print(f"| {N:,}×{D}, RBF, q = {Q} | fit {fitted:.1f} s | {DRAWS} draws {drawn:.1f} s |", end="")
    print(f" {megabytes:.0f} MB beyond the model |")


if __name__ == "__main__":
    main()
