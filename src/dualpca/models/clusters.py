"""k-means from a k-means++ start, on rows that may have NaN: where mixtures begin."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.data import column_starts

Labels = np.ndarray[Any, np.dtype[np.int64]]


class Filled(NamedTuple):
    """Rows around the mean with 0 where nothing was observed, and 1 where something was."""

    R: Array  # (n, d)
    mask: Array | None  # (n, d); None where nothing is missing
    share: Array  # (n,), d over the number of observed features, 0 for an empty row
    squares: Array  # (n,), Σ over observed features of R²

    @classmethod
    def of(cls, X: Array, weights: Array | None) -> Filled:
        """Return rows around the observed mean of every feature."""
        xp, centre = backend.namespace(X), column_starts(X, weights)[1]
        C = backend.working(X) - centre
        squares = xp.sum(C * C, axis=1)
        if not bool(xp.any(xp.isnan(squares))):
            return cls(C, None, xp.ones_like(squares), squares)
        mask = xp.astype(~xp.isnan(C), xp.float64)
        count = xp.sum(mask, axis=1)
        share = xp.where(count > 0, X.shape[1] / xp.where(count > 0, count, 1 + 0 * count), count)
        R = xp.where(mask > 0, C, xp.zeros_like(C))
        return cls(R, mask, share, xp.sum(R * R, axis=1))

    def distances(self, centres: Array) -> Array:
        """Return squared distances over observed features, scaled to all of them, (n, K)."""
        xp, squares = backend.namespace(self.R), centres * centres
        lengths = xp.sum(squares, axis=1) if self.mask is None else self.mask @ squares.T
        D = self.squares[:, None] - 2 * (self.R @ centres.T) + lengths
        return xp.where(D > 0, D, xp.zeros_like(D)) * self.share[:, None]


def kmeans(
    X: Array, K: int, rng: np.random.Generator, weights: Array | None = None, max_iter: int = 100
) -> Labels:
    """Return the cluster of every row, (n,), on the host; none of the K is empty.

    Lloyd's iteration from k-means++ (Arthur & Vassilvitskii 2007), the best of a few candidates
    at every step. Distances are taken over what a row observed. O(ndK) per iteration.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(size=(20, 2)), rng.normal(size=(20, 2)) + 9])
    >>> np.bincount(kmeans(X, 2, rng))
    array([20, 20])
    """
    rows = Filled.of(X, weights)
    w = np.ones(X.shape[0]) if weights is None else backend.to_numpy(weights)
    labels = assigned(rows.distances(seeds(rows, K, rng, w)), w)
    for _ in range(max_iter):
        before, labels = labels, assigned(rows.distances(centroids(rows, labels, K, w)), w)
        if np.array_equal(before, labels):
            break
    return labels


def seeds(rows: Filled, K: int, rng: np.random.Generator, w: Array) -> Array:
    """Return K rows far apart, (K, d): each drawn by its squared distance to those before it."""
    trials = 2 + int(np.log(K))
    chosen = [int(rng.choice(len(w), p=w / np.sum(w)))]
    nearest = backend.to_numpy(rows.distances(rows.R[chosen[0] : chosen[0] + 1, :]))[:, 0]
    while len(chosen) < K:
        mass = w * nearest
        odds = mass if np.sum(mass) > 0 else w  # fewer distinct rows than clusters
        tried = rng.choice(len(w), size=trials, p=odds / np.sum(odds))
        D = backend.to_numpy(rows.distances(backend.take(rows.R, tried)))
        D = np.minimum(D, nearest[:, None])
        best = int(np.argmin(w @ D))
        chosen.append(int(tried[best]))
        nearest = D[:, best]
    return backend.take(rows.R, np.array(chosen))


def centroids(rows: Filled, labels: Labels, K: int, w: Array) -> Array:
    """Return the mean of what each cluster observed, (K, d); 0, the mean of all, for nothing."""
    xp = backend.namespace(rows.R)
    member = backend.asarray(np.equal.outer(np.arange(K), labels) * w, rows.R)
    count = xp.sum(member, axis=1)[:, None]
    seen = count if rows.mask is None else member @ rows.mask
    return (member @ rows.R) / xp.where(seen > 0, seen, xp.ones_like(seen))


def assigned(D: Array, w: Array) -> Labels:
    """Return the nearest cluster of every row; an empty one gets the row farthest from its own."""
    D = backend.to_numpy(D)
    labels: Labels = np.argmin(D, axis=1).astype(np.int64)
    count = np.bincount(labels[w > 0], minlength=D.shape[1])
    for k in np.flatnonzero(count == 0):
        far = np.where((count[labels] > 1) & (w > 0), D[np.arange(len(D)), labels], -1.0)
        i = int(np.argmax(far))
        if far[i] >= 0:
            count[labels[i]] -= 1
            labels[i], count[k] = k, 1
    return labels
