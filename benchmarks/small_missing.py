"""Missing values with default settings: `Imputer` against scikit-learn's IterativeImputer.

The note of a `fit_transform` is the error of removed entries, in standard deviations of their
columns: ours, then the peer's. A step of `PPCA` stands beside one of ppca-rs where that is
installed. `python -m benchmarks.small_missing --large` adds 2,000×500, minutes for the peer.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

from benchmarks.small import Cell
from dualpca import PPCA, Imputer

GROUP, STEPS = "missing", 10
LARGE = "--large" in sys.argv


def spiked(n: int, d: int, q: int) -> np.ndarray:
    """Return q directions in noise of variance 1, around a mean."""
    rng = np.random.default_rng(0)
    signal = rng.standard_normal((n, q)) @ rng.standard_normal((q, d))
    return signal + rng.standard_normal((n, d)) + rng.standard_normal(d)


def standardised(X: np.ndarray) -> np.ndarray:
    return (X - X.mean(axis=0)) / X.std(axis=0)


def at_random(X: np.ndarray, share: float) -> np.ndarray:
    """Return X without a share of its entries; a row that would lose all keeps all."""
    gone = np.random.default_rng(0).random(X.shape) < share
    gone[gone.all(axis=1)] = False
    return np.where(gone, np.nan, X)


def where_high(X: np.ndarray, share: float) -> np.ndarray:
    """Return X without entries of rows whose first feature, which stays, is above its median."""
    gone = np.random.default_rng(0).random(X.shape) < share
    gone &= (X[:, 0] > np.median(X[:, 0]))[:, None]
    gone[:, 0] = False
    return np.where(gone, np.nan, X)


def tables(quick: bool) -> dict[str, np.ndarray]:
    wine, cancer = load_wine().data, load_breast_cancer().data
    found = {"iris 150×4": load_iris().data, "wine 178×13": wine}
    if quick:
        return found
    found |= {"wine 178×13, standardised": standardised(wine), "cancer 569×30": cancer}
    found |= {"cancer 569×30, standardised": standardised(cancer)}
    sizes = ((1000, 10, 3), (1000, 50, 5), (5000, 20, 5)) + (((2000, 500, 10),) if LARGE else ())
    return found | {f"{n:,}×{d}": spiked(n, d, q) for n, d, q in sizes}


def error(imputer: Any, X: np.ndarray, truth: np.ndarray) -> float:
    """Return the root mean square error of what is filled in, in standard deviations."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # IterativeImputer stops after its ten rounds
        off = (imputer.fit_transform(X) - truth) / truth.std(axis=0)
    return float(np.sqrt(np.mean(off[np.isnan(X)] ** 2)))


class Fitted:
    """`transform` of an imputer that is fitted when it is first called."""

    def __init__(self, imputer: Any, X: np.ndarray) -> None:
        self.imputer, self.X, self.ready = imputer, X, False

    def __call__(self, rows: np.ndarray) -> object:
        if not self.ready:
            self.imputer.fit(self.X)
            self.ready = True
        return self.imputer.transform(rows)


def cells_of(name: str, X: np.ndarray, truth: np.ndarray, quick: bool) -> list[Cell]:
    ours, theirs = Fitted(Imputer(), X), Fitted(IterativeImputer(random_state=0), X)
    one = X[np.isnan(X).any(axis=1)][:1]
    note = ""
    if not quick:
        errors = (error(who.imputer, X, truth) for who in (ours, theirs))
        note = "error {:.3f}, {:.3f}".format(*errors)
    peer = "IterativeImputer"
    return [
        Cell(
            GROUP,
            f"Imputer().fit_transform {name}",
            lambda: Imputer().fit_transform(X),
            {peer: lambda: IterativeImputer(random_state=0).fit_transform(X)},
            note,
        ),
        Cell(GROUP, f"transform 1 row, {name}", lambda: ours(one), {peer: lambda: theirs(one)}),
        Cell(GROUP, f"transform all rows, {name}", lambda: ours(X), {peer: lambda: theirs(X)}),
    ]


def step_cell(X: np.ndarray, q: int, name: str) -> Cell | None:
    """Return `STEPS` steps of EM of both; None without ppca-rs."""
    try:
        from ppca_rs import Dataset
        from ppca_rs.ppca_rs import PPCAModel
    except ImportError:
        return None

    def ours() -> object:
        return PPCA(q, tol=1e-30, max_iter=STEPS).fit(X)

    def theirs() -> object:
        data = Dataset(X)
        model = PPCAModel.init(q, data)
        for _ in range(STEPS):
            model = model.iterate(data)
        return model

    title = f"PPCA({q}).fit, {STEPS} steps, {name}"
    return Cell("missing steps", title, ours, {"ppca-rs": theirs})


def cells(quick: bool) -> list[Cell]:
    found = []
    for name, truth in tables(quick).items():
        for share in (0.05,) if quick else (0.05, 0.3):
            found += cells_of(f"{name}, {share:.0%}", at_random(truth, share), truth, quick)
    if not quick:
        name, truth = "wine 178×13, standardised", standardised(load_wine().data)
        found += cells_of(f"{name}, where high", where_high(truth, 0.5), truth, quick)
    sizes = ((200, 20, 3),) if quick else ((1000, 20, 5), (2000, 500, 10))
    steps = [step_cell(at_random(spiked(*s), 0.1), s[2], f"{s[0]:,}×{s[1]}, 10%") for s in sizes]
    return found + [cell for cell in steps if cell is not None]


def main(of: Callable[[bool], list[Cell]] = cells) -> None:
    from benchmarks.small import measure, line, summary  # noqa: I001

    found = [measure(cell, 0.6) for cell in of("--quick" in sys.argv)]
    print("\n".join(map(line, found)), summary(found), sep="\n")


if __name__ == "__main__":
    main()
