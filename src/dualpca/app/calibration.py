"""Are imputation intervals as wide as they should be? Hide known entries, and count."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from dualpca.errors import InterruptWarning, expected

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
BAND = 0.95
"""Probability of the band of what chance explains."""


@contextmanager
def quietly() -> Iterator[None]:
    """Suppress the warnings of refits, except that a fit was interrupted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", InterruptWarning)
        yield


class Calibration(NamedTuple):
    """How often intervals of a nominal level contained the hidden value."""

    levels: Floats  # (k,)
    coverage: Floats  # (k,), the share of hidden entries inside
    low: Floats  # (k,), binomial band around the level: what chance explains
    high: Floats  # (k,)
    n_hidden: int


class Overimputed(NamedTuple):
    """Measured entries as they are predicted without them, one element each."""

    row: NDArray[np.intp]
    column: NDArray[np.intp]
    truth: Floats
    guess: Floats
    low: Floats
    high: Floats


def hide(X: Floats, share: float, rng: np.random.Generator) -> Bools:
    """Choose entries to hide: a share of the observed ones, never all of a feature.

    Parameters
    ----------
    X : array of shape (n, d)
        NaN where nothing was observed.
    share : float
        Between 0 and 1.
    rng : Generator

    Returns
    -------
    array of bool, shape (n, d)
        True where an entry is to be hidden.
    """
    if not 0 < share < 1:
        raise ValueError(expected("share", "a number between 0 and 1, both excluded", share))
    seen = ~np.isnan(X)
    hidden = seen & (rng.random(X.shape) < share)
    for j in np.flatnonzero(~(seen & ~hidden).any(axis=0)):
        hidden[np.flatnonzero(seen[:, j])[:1], j] = False
    if not hidden.any():
        raise ValueError(expected("share", "large enough to hide an entry", share))
    return hidden


def deal(X: Floats, folds: int, rng: np.random.Generator) -> list[Bools]:
    """Deal the observed entries to folds, those of a row to as many folds as can be.

    Parameters
    ----------
    X : array of shape (n, d)
        NaN where nothing was observed.
    folds : int
        2 or more.
    rng : Generator

    Returns
    -------
    list of arrays of bool, shape (n, d)
        Entries to hide in turn: each at most once, never all of a feature.

    Examples
    --------
    >>> parts = deal(np.ones((30, 4)), 2, np.random.default_rng(0))
    >>> [set(part.sum(axis=1).tolist()) for part in parts]
    [{2}, {2}]
    """
    if not folds >= 2 or int(folds) != folds:
        raise ValueError(expected("folds", "a whole number of 2 or more", folds))
    seen = ~np.isnan(X)
    order = np.argsort(np.where(seen, rng.random(X.shape), np.inf), axis=1)
    place = np.argsort(order, axis=1) + rng.integers(folds, size=(len(X), 1))
    found = [seen & (place % folds == fold) for fold in range(int(folds))]
    for hidden in found:
        for j in np.flatnonzero(~(seen & ~hidden).any(axis=0)):
            hidden[np.flatnonzero(seen[:, j])[:1], j] = False
    return [hidden for hidden in found if hidden.any()]


def calibrate(
    impute: Callable[[Floats], tuple[Floats, Floats]],
    X: Floats,
    hidden: Bools,
    levels: Sequence[float] = LEVELS,
) -> Calibration:
    """Compare nominal and actual coverage of Gaussian intervals for hidden entries.

    An interval of level p is mean ± Φ⁻¹((1 + p)/2)·std. The band is binomial, as if entries were
    independent; those of one row are not quite, so that a correct model leaves the band a little
    more often than nominal.

    Parameters
    ----------
    impute : callable
        Function from a table with NaN to means and standard deviations, both (n, d).
    X : array of shape (n, d)
    hidden : array of bool, shape (n, d)
        Entries of X to hide, from `hide`.
    levels : sequence of float

    Returns
    -------
    Calibration

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> hidden = hide(X, 0.5, np.random.default_rng(1))
    >>> found = calibrate(lambda A: (np.zeros_like(A), np.ones_like(A)), X, hidden, [0.5, 0.9])
    >>> found.coverage.round(1)
    array([0.5, 0.9])
    """
    p = np.asarray(levels, dtype=np.float64)
    if p.ndim != 1 or not np.all((p > 0) & (p < 1)):
        raise ValueError(expected("levels", "numbers between 0 and 1, both excluded", levels))
    mean, std = impute(np.where(hidden, np.nan, X))
    distance = np.abs((X - mean)[hidden] / std[hidden])
    n = distance.size
    inside = distance[:, None] <= special.ndtri((1 + p) / 2)
    return Calibration(p, inside.mean(axis=0), *binomial_band(n, p), n)


def binomial_band(n: int, p: Floats) -> tuple[Floats, Floats]:
    """Return the shares of n entries between which chance alone keeps coverages of level p.

    Examples
    --------
    >>> low, high = binomial_band(100, np.array([0.9]))
    >>> low, high
    (array([0.84]), array([0.95]))
    """
    low, high = stats.binom.interval(BAND, n, p)
    return np.asarray(low) / n, np.asarray(high) / n
