"""Which state every row has before a hidden Markov model is fitted: where Baum–Welch begins."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualpca import _array
from dualpca._typing import Array
from dualpca.clusters import kmeans

Labels = np.ndarray[Any, np.dtype[np.int64]]

LONGEST = 100
"""Rows of the longest stretch."""


def row_clusters(X: Array, lengths: Any, S: int, rng: np.random.Generator) -> Labels:
    """Return clusters of single rows (k-means), (T,)."""
    return kmeans(X, S, rng)


def stretch_clusters(X: Array, lengths: Any, S: int, rng: np.random.Generator) -> Labels:
    """Return clusters of stretches of rows, by mean and spread of every feature, (T,).

    States that last may overlap row by row and differ in how rows spread over a while, which
    k-means of rows cannot see. The length of stretches is drawn, so restarts try several.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2)) * np.repeat([[1.0], [5.0]], 200, axis=0)
    >>> labels = stretch_clusters(X, [400], 2, rng)
    >>> len(set(labels[20:180])), len(set(labels[220:380]))
    (1, 1)
    """
    most = max(2, min(LONGEST, int(np.sum(lengths)) // (5 * S)))
    length = int(np.exp(rng.uniform(np.log(2), np.log(most + 1))))
    stretch = stretches(lengths, length)
    count = int(stretch[-1]) + 1
    if count < S:
        return row_clusters(X, lengths, S, rng)
    features = _array.asarray(_mean_and_spread(_array.to_numpy(X), stretch, count), X)
    return np.asarray(kmeans(features, S, rng)[stretch])


def stretches(lengths: Any, length: int) -> Labels:
    """Return the number of the stretch of every row, (T,); none reaches over a border."""
    parts, offset = [], 0
    for n in lengths:
        count = max(1, int(n) // length)
        parts.append(offset + np.minimum(np.arange(n) // length, count - 1))
        offset += count
    return np.concatenate(parts)


def _mean_and_spread(X: Any, stretch: Labels, count: int) -> Any:
    """Return mean and standard deviation of what each stretch observed, (count, 2d)."""
    seen = ~np.isnan(X)
    centre = np.nanmean(X, axis=0)
    R = np.where(seen, X - centre, 0.0)
    n, total, squares = (np.zeros((count, X.shape[1])) for _ in range(3))
    for sums, values in ((n, seen), (total, R), (squares, R * R)):
        np.add.at(sums, stretch, values)
    n = np.maximum(n, 1)
    mean = total / n
    return np.hstack([mean, np.sqrt(np.maximum(squares / n - mean * mean, 0.0))])


def equal_parts(lengths: Any, S: int) -> Labels:
    """Return labels 0 … S − 1 that cut every sequence into equal parts, in order, (T,).

    Examples
    --------
    >>> equal_parts([4, 2], 2)
    array([0, 0, 1, 1, 0, 1])
    """
    return _parts(lengths, [np.arange(1, S) / S] * len(lengths))


def random_parts(lengths: Any, S: int, rng: np.random.Generator) -> Labels:
    """Return labels that cut every sequence into parts of random lengths, in order, (T,)."""
    return _parts(lengths, [np.sort(rng.random(S - 1)) for _ in lengths])


def _parts(lengths: Any, borders: Any) -> Labels:
    parts = [
        np.searchsorted(border, (np.arange(n) + 0.5) / n)
        for n, border in zip(lengths, borders, strict=True)
    ]
    return np.concatenate(parts).astype(np.int64)
