"""How many components, from complete rows: the likelihood of rows held out (MATH 5)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca._warnings import warn
from dualpca.errors import InterruptWarning
from dualpca.gaussian import LOG_2PI
from dualpca.held_out import FOLDS, Score, Selection, Vector, most_likely, summary
from dualpca.progress import task
from dualpca.representations import Primal
from dualpca.rows import Frame, Projection
from dualpca.rules import left_over
from dualpca.selection import candidates
from dualpca.solvers import solve
from dualpca.spectrum import Spectrum

Index = np.ndarray[Any, np.dtype[np.intp]]


def cross_validate(X: Array, weights: Array | None, most: int, seed: int = 0) -> Selection:
    """Choose among q = 0, 1, …, most by the likelihood of held-out rows, in five folds.

    Each fold is solved once: every q is scored from the same projections, O(ndq) in all. An
    interruption by the keyboard keeps the folds that are done.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 8)) + 0.3 * rng.normal(size=(300, 8))
    >>> curve = cross_validate(X, None, 7)
    >>> curve.chosen, curve.q2.round(2)[1:4]
    (2, array([0.64, 0.92, 0.92]))
    """
    n = int(X.shape[0])
    order = np.random.default_rng(seed).permutation(n)
    cut = np.array_split(order, min(FOLDS, n))
    folds: list[list[Score]] = []
    with task("cross-validation: fold", len(cut)) as tick:
        try:
            for held in cut:
                kept = np.sort(np.setdiff1d(order, held))
                folds.append(_held_out(X, weights, kept, np.sort(held), most))
                tick()
        except KeyboardInterrupt:
            warn_interrupted(f"{len(folds)} of {len(cut)} folds", bool(folds))
    scores = [list(row) for row in zip(*folds, strict=True)]
    return summary(scores, 0, most_likely(scores), "row")


def warn_interrupted(done: str, enough: bool) -> None:
    """Say that a choice rests on what is done; pass the interruption on where nothing is."""
    if not enough:
        raise KeyboardInterrupt
    warn(
        f"the choice of n_components was interrupted: it rests on {done}.",
        InterruptWarning,
    )


def _held_out(X: Array, weights: Array | None, kept: Index, held: Index, most: int) -> list[Score]:
    """Return how the model of the kept rows predicts the held ones, for every q."""
    train = Primal(_array.take(X, kept), None if weights is None else _array.take(weights, kept))
    spectrum = solve(train, min(most, len(kept) - 1, train.dim))
    rows = _array.take(X, held)
    projection = train.project(spectrum, rows)
    w = np.ones(len(held)) if weights is None else _array.to_numpy(weights)[held]
    model = Trained.of(spectrum, train.frame, train.n)
    host = _array.to_numpy(_array.working(rows))
    return model.scores(host, Projection(*map(_array.to_numpy, projection)), w, most)


class Trained(NamedTuple):
    """The spectrum of the rows kept, on the host: every q is scored from it at once."""

    frame: Frame
    lam: Vector  # (m,)
    V: Vector  # (d, m)
    trace: float
    n: float

    @classmethod
    def of(cls, spectrum: Spectrum, frame: Frame, n: float) -> Trained:
        """Bring a spectrum to the host."""
        lam, V = _array.to_numpy(spectrum.values), _array.to_numpy(spectrum.vectors)
        return cls(Frame(_array.to_numpy(frame.mean)), lam, V, spectrum.trace, n)

    def scores(self, rows: Vector, projection: Projection, w: Vector, most: int) -> list[Score]:
        """Return how held rows are predicted, for q = 0, …, most; sums over rows."""
        (Y, residual), d, lam = projection, len(self.V), self.lam
        R = rows - self.frame.mean
        squares, size = float(w @ (R * R).sum(axis=1)), float(w.sum())
        scores = [Score(-math.inf, math.inf, squares, size)] * (most + 1)
        noises = dict(_noises(lam, self.trace, d, self.n))
        for q, off in _left_out(R, Y, self.V, lam / self.n, noises):
            ell, noise = lam[:q] / self.n, noises[q]
            inside = (Y[:, :q] ** 2 / ell).sum(axis=1)
            outside = (residual + (Y[:, q:] ** 2).sum(axis=1)) / noise
            logdet = np.log(ell).sum() + (d - q) * math.log(noise)
            value = -0.5 * float(w @ (d * LOG_2PI + logdet + inside + outside))
            scores[q] = Score(value, float(w @ (off * off).sum(axis=1)), squares, size)
        return scores


def _left_out(
    R: Vector, Y: Vector, V: Vector, ell: Vector, noises: dict[int, float]
) -> Iterator[tuple[int, Vector]]:
    """Yield q and the error of each entry when it is predicted from the others of its row.

    x_j − E[x_j | others] = (C⁻¹r)_j / (C⁻¹)_jj. Off the axes C⁻¹ is 1/σ², along them 1/ℓ: both
    parts grow by one direction a q, so all q cost as much as one.
    """
    off, inside = R.copy(), np.zeros_like(R)
    free, bound = np.ones(len(V)), np.zeros(len(V))
    for q in range(max(noises, default=-1) + 1):
        if q:
            y, v = Y[:, q - 1 : q], V[:, q - 1]
            off -= y * v
            inside += y * (v / ell[q - 1])
            free, bound = free - v * v, bound + v * v / ell[q - 1]
        if q in noises:
            yield q, (off / noises[q] + inside) / (free / noises[q] + bound)


def _noises(lam: Vector, trace: float, dim: int, n: float) -> Iterator[tuple[int, float]]:
    """Yield every q that leaves noise, with its variance of maximum likelihood."""
    for q in candidates(lam, trace, dim):
        rest = left_over(trace, float(lam[:q].sum()))
        if rest > 0:
            yield q, rest / (n * (dim - q))
