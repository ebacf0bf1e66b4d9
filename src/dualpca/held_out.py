"""What a choice by cross-validation saw: the curve of every candidate q, and how sure it is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Vector = np.ndarray[Any, np.dtype[np.float64]]
FOLDS, PATIENCE = 5, 3


class Score(NamedTuple):
    """How one model predicted one fold."""

    loglikelihood: float  # Σ ln p
    press: float  # Σ (x − x̂)², each entry predicted from the others of its row
    squares: float  # Σ (x − mean)², the same for the mean alone
    size: float  # rows, or entries


@dataclass(frozen=True)
class Selection:
    """The curve behind a choice of q: means over the folds, each with its standard error.

    Q² = 1 − PRESS/SS: the share of the variance of unseen entries that is predicted from the other
    entries of their rows (Wold 1978); 0 for the mean alone, and falling again when q is too large.
    """

    candidates: np.ndarray[Any, np.dtype[np.intp]]  # (k,), q
    q2: Vector  # (k,)
    q2_error: Vector  # (k,)
    loglikelihood: Vector  # (k,), of an unseen row or of a hidden entry
    loglikelihood_error: Vector  # (k,)
    chosen: int
    unit: str  # 'row' or 'entry'


def summary(scores: list[list[Score]], first: int, chosen: int, unit: str) -> Selection:
    """Return the curve of q = first, first + 1, … (rows) from the scores of every fold (columns).

    Examples
    --------
    >>> good, bad = Score(-1.0, 1.0, 4.0, 1.0), Score(-2.0, 3.0, 4.0, 1.0)
    >>> curve = summary([[bad, bad], [good, bad]], 1, 2, "row")
    >>> curve.q2, curve.loglikelihood
    (array([0.25, 0.5 ]), array([-2. , -1.5]))
    """
    table = np.array(scores, dtype=np.float64)  # (k, folds, 4)
    value, press, squares, size = np.moveaxis(table, 2, 0)
    usable = np.all(np.isfinite(value), axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):  # constant rows have nothing to predict
        q2 = 1 - press[usable] / squares[usable]
    mean = value[usable] / size[usable]
    root = math.sqrt(table.shape[1] - 1) if table.shape[1] > 1 else 0.0
    errors = [x.std(axis=1) / root if root else np.full(len(x), math.nan) for x in (q2, mean)]
    candidates = np.flatnonzero(usable) + first
    return Selection(
        candidates, q2.mean(axis=1), errors[0], mean.mean(axis=1), errors[1], chosen, unit
    )


def most_likely(scores: list[list[Score]]) -> int:
    """Return the row of largest log-likelihood over all folds."""
    return int(np.argmax([sum(score.loglikelihood for score in row) for row in scores]))


def simplest(scores: list[list[Score]]) -> int:
    """Return the first row that is as good as the best.

    As good: within one standard error of the difference over the folds (Breiman et al. 1984).
    """
    table = np.array([[score.loglikelihood for score in row] for row in scores])
    loss = table[most_likely(scores)] - table
    error = loss.std(axis=1, ddof=1) / math.sqrt(table.shape[1])
    return int(np.argmax(loss.mean(axis=1) <= error))


def given_up(scores: list[list[Score]]) -> bool:
    """Tell whether the last candidates were all worse than an earlier one."""
    return len(scores) - 1 - most_likely(scores) >= PATIENCE
