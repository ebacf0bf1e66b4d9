"""Draws of kernel values from the dual model at 50,000 points: `python -m benchmarks draws`.

No peer does this: the paper calls the full eigendecomposition that it needs a limitation.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from benchmarks.memory import extra_megabytes
from benchmarks.run import Row, Run
from dualpca import DualPPCA

N, D, GAMMA, Q, DRAWS = 50_000, 10, 0.1, 10, 16


def rows(run: Run, part: str) -> Iterator[Row]:
    n = 1_000 if run.quick else N
    X = np.random.default_rng(0).standard_normal((n, D))
    start = time.perf_counter()
    model = DualPPCA(Q, gamma=GAMMA, eigen_solver="krylov", tol=1e-4).fit(X)
    fitted = time.perf_counter() - start
    start = time.perf_counter()
    megabytes = extra_megabytes(lambda: model.sample_kernel(DRAWS, random_state=0))
    drawn = time.perf_counter() - start
    about = {"name": f"{n:,}×{D}, RBF, q = {Q}", "draws": DRAWS}
    yield about | {"fit_seconds": fitted, "seconds": drawn, "megabytes": megabytes}
