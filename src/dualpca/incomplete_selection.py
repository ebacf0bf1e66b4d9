"""How many components, from incomplete rows: predict entries that were hidden (MATH 5)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.errors import DegenerateError
from dualpca.gaussian import LOG_2PI
from dualpca.incomplete_em import fit_incomplete
from dualpca.missing import Factors, each, quadratic

FOLDS, PATIENCE = 5, 3


def folds(X: Array, seed: int) -> list[Array]:
    """Return masks that hide every observed entry once, a fifth of them at a time.

    A column that is observed fewer than ten times is never hidden from.
    """
    # a stream of its own: whoever removed entries with the same seed did not draw these numbers
    xp, rng = _array.namespace(X), np.random.default_rng([seed, FOLDS, X.shape[1]])
    seen = ~np.isnan(_array.to_numpy(X))
    fold = np.where(
        seen & (seen.sum(axis=0) >= 2 * FOLDS), rng.integers(FOLDS, size=seen.shape), -1
    )
    return [xp.asarray(fold == k, device=_array.device_of(X)) for k in range(FOLDS)]


def predictive_score(factors: Factors, table: Array, hidden: Array, X: Array) -> float:
    """Return the sum of ln p(x | what its row still shows) over the hidden entries."""
    xp, total = _array.namespace(X), 0.0
    for block, found in each(factors, table):
        mean = found.mean @ factors.W.T + factors.mu
        variance = quadratic(found.covariance, factors.W) + factors.psi
        off = _array.row_block(X, block.rows) - mean
        density = -0.5 * (LOG_2PI + xp.log(variance) + off * off / variance)
        here = hidden[block.rows, :]
        total += float(xp.sum(xp.where(here, density, xp.zeros_like(density))))
    return total


def masked_scores(
    X: Array, weights: Array | None, most: int, seed: int = 0
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the predictive scores of q = 1, 2, … (rows) in every fold (columns).

    Three q in a row that are worse than the best end the search; so does a q that leaves no noise.
    """
    hidden = folds(X, seed)
    scores: list[list[float]] = []
    for q in range(1, most + 1):
        try:
            scores.append([_score(X, weights, q, where, seed) for where in hidden])
        except DegenerateError:
            break
        totals = np.sum(scores, axis=1)
        if len(totals) - 1 - int(np.argmax(totals)) >= PATIENCE:
            break
    return np.array(scores).reshape(-1, FOLDS)


def _score(X: Array, weights: Array | None, q: int, hidden: Array, seed: int) -> float:
    xp = _array.namespace(X)
    table = xp.where(hidden, xp.full_like(X, math.nan), X)
    rng = np.random.default_rng(seed)
    factors, _ = fit_incomplete(table, weights, q, rng, tol=1e-3, max_iter=300)
    return predictive_score(factors, table, hidden, X)


def choose_masked(X: Array, weights: Array | None, most: int, seed: int = 0) -> int:
    """Return the smallest q whose hidden entries are predicted as well as by the best q.

    As well: within one standard error of the difference over the folds (Breiman et al. 1984).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 8)) + 0.3 * rng.normal(size=(300, 8))
    >>> X[rng.random(X.shape) < 0.2] = np.nan
    >>> choose_masked(X, None, 7)
    2
    """
    scores = masked_scores(X, weights, most, seed)
    if not len(scores):
        raise DegenerateError("no number of components leaves noise: give noise_variance > 0.")
    loss = scores[int(np.argmax(scores.sum(axis=1)))] - scores
    error = loss.std(axis=1, ddof=1) / math.sqrt(FOLDS)
    return 1 + int(np.argmax(loss.mean(axis=1) <= error))
