"""KernelPCA beside scikit-learn's, from 50 to 3,000 points, all kernels that both have.

The peer is the better of `eigen_solver='dense'` and 'arpack'. Where all components are asked for
there is no 'arpack', and no sigmoid kernel: scikit-learn refuses its negative eigenvalues. From
2,000 points on 'dense' is left out where 'arpack' is many times faster.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.small import Cell

KERNELS = ("rbf", "poly", "linear", "cosine", "sigmoid", "precomputed")
SIZES = (50, 150, 300, 500, 1000, 2000, 3000)
COLUMNS, FACTORS, NEW_ROWS = 20, 10, 1000
COMPONENTS = (None, 2, 10)
LARGE = 2000
"""Points from which a full decomposition takes seconds."""


def points(n: int) -> Any:
    """Return rows around ten directions, with noise, of variance 1."""
    import numpy as np

    rng = np.random.default_rng(n)
    X = rng.standard_normal((n, FACTORS)) @ rng.standard_normal((FACTORS, COLUMNS))
    X += 0.3 * rng.standard_normal(X.shape)
    return X / X.std()


def cells(quick: bool) -> list[Cell]:
    """Return fit, fit_transform and transform of one row and of a thousand, at every size."""
    from dualpca.kernels import RBF

    found, similarity = [], RBF(gamma=1 / COLUMNS)
    for n in (50, 300) if quick else SIZES:
        X, new = points(n), points(NEW_ROWS + 1)
        for kernel in KERNELS:
            given = kernel == "precomputed"
            rows, others = (similarity(X, X), similarity(new, X)) if given else (X, new)
            for q in COMPONENTS:
                if not (q is None and kernel == "sigmoid"):
                    found += _fits(n, kernel, q, rows)
            found += _transforms(n, kernel, rows, others)
    return found


def _fits(n: int, kernel: str, q: int | None, X: Any) -> list[Cell]:
    from sklearn.decomposition import KernelPCA as Peer

    from dualpca import KernelPCA

    def call(make: Callable[[], Any], method: str) -> object:
        return getattr(make(), method)(X)

    ours = partial(KernelPCA, q, kernel=kernel)
    solvers = ["dense"] if q is None else ["arpack"] if n >= LARGE else ["dense", "arpack"]
    theirs = {s: partial(Peer, q, kernel=kernel, eigen_solver=s, random_state=0) for s in solvers}
    methods = ("fit",) if q is None and n >= LARGE else ("fit", "fit_transform")
    return [
        Cell(
            "KernelPCA",
            f"{method} {n} {kernel}, {'all' if q is None else q}",
            partial(call, ours, method),
            {name: partial(call, make, method) for name, make in theirs.items()},
        )
        for method in methods
    ]


def _transforms(n: int, kernel: str, X: Any, new: Any) -> list[Cell]:
    from sklearn.decomposition import KernelPCA as Peer

    from dualpca import KernelPCA

    options: dict[str, Any] = {"kernel": kernel}
    fitted: list[tuple[Any, Any]] = []

    def models() -> tuple[Any, Any]:
        if not fitted:  # when the cell is measured, not before
            peer = Peer(10, eigen_solver="arpack", random_state=0, **options).fit(X)
            fitted.append((KernelPCA(10, **options).fit(X), peer))
        return fitted[0]

    def call(which: int, rows: Any) -> object:
        return models()[which].transform(rows)

    return [
        Cell(
            "KernelPCA",
            f"transform {len(rows)} by {n} {kernel}",
            partial(call, 0, rows),
            {"scikit-learn": partial(call, 1, rows)},
        )
        for rows in (new[:1], new[:NEW_ROWS])
    ]
