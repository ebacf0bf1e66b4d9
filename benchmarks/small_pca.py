"""PCA and PPCA against scikit-learn's PCA, on tables from one row to 50,000×50.

scikit-learn's PCA is a probabilistic one too: its `score_samples` is the density of PPCA.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.datasets import load_iris, load_wine
from sklearn.decomposition import PCA as TheirPCA

from benchmarks.small import Cell
from dualpca import PCA, PPCA

SIZES = ((100, 1000), (1000, 20), (1000, 200), (5000, 50), (500, 1000), (50_000, 50))
COUNTS = {"iris 150×4": (None, 2), "wine 178×13": (None, 2, 5)}


def table(n: int, d: int) -> np.ndarray:
    """Return rows whose standard deviations along their axes fall as 1/√i, plus a mean."""
    rng = np.random.default_rng(0)
    axes, _ = np.linalg.qr(rng.standard_normal((d, d)))
    spread = 1 / np.sqrt(np.arange(1.0, d + 1))
    return rng.standard_normal((n, d)) * spread @ axes + rng.standard_normal(d)


def tables(quick: bool) -> dict[str, np.ndarray]:
    found = {"iris 150×4": load_iris().data, "wine 178×13": load_wine().data}
    sizes = SIZES[:2] if quick else SIZES
    return found | {f"{n:,}×{d:,}": table(n, d) for n, d in sizes}


class Later:
    """A method of a model that is fitted when it is first called."""

    def __init__(self, model: Any, X: np.ndarray, method: str) -> None:
        self.model, self.X, self.method, self.fitted = model, X, method, False

    def __call__(self, rows: np.ndarray) -> object:
        if not self.fitted:
            self.model.fit(self.X)
            self.fitted = True
        return getattr(self.model, self.method)(rows)


def whole_fit(kind: Callable[[int | None], Any], q: int | None, X: np.ndarray, method: str) -> Any:
    return getattr(kind(q), method)(X)


def cells(quick: bool) -> list[Cell]:
    found = []
    for name, X in tables(quick).items():
        for q in COUNTS.get(name, (None, 2, 5, 10)):
            found += cells_of(PCA, name, X, q)
            if q is not None:  # the default of PPCA is a number found by cross-validation
                found += cells_of(PPCA, name, X, q)
    return sorted(found, key=lambda cell: cell.group)


def cells_of(kind: type, name: str, X: np.ndarray, q: int | None) -> list[Cell]:
    """Return all methods on one table with one number of components."""
    found, group, what = [], kind.__name__, f"{name}, {'all' if q is None else q}"
    for method in ("fit", "fit_transform"):
        ours, theirs = (partial(whole_fit, one, q, X, method) for one in (kind, TheirPCA))
        found.append(Cell(group, f"{what}, {method}", ours, {"scikit-learn": theirs}))
    for method in ("transform", "score_samples"):
        if method == "score_samples" and q is None and X.shape[0] <= X.shape[1]:
            continue  # the covariance is singular: there is no density
        mine, their = Later(kind(q), X, method), Later(TheirPCA(q), X, method)
        for rows, words in ((X, ""), (X[:1], ", one row")):
            peers = {"scikit-learn": partial(their, rows)}
            found.append(Cell(group, f"{what}, {method}{words}", partial(mine, rows), peers))
    return found
