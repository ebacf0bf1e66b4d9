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


def kmeans_runs(
    X: Array,
    K: int,
    starts: int,
    rng: np.random.Generator,
    weights: Array | None = None,
    max_iter: int = 100,
) -> Labels:
    """Return the clusters of several runs of k-means, (starts, n), as `kmeans` finds them.

    Complete rows: all runs advance together, on the host, with one matrix product for distances and
    one for centres per iteration, until none of them changes.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(size=(20, 2)), rng.normal(size=(20, 2)) + 9])
    >>> np.sort([np.bincount(run) for run in kmeans_runs(X, 2, 3, rng)])
    array([[20, 20],
           [20, 20],
           [20, 20]])
    """
    host, w = backend.to_numpy(X), None if weights is None else backend.to_numpy(weights)
    rows = Filled.of(host, w)
    if rows.mask is not None:
        return np.stack([kmeans(X, K, rng, weights, max_iter) for _ in range(starts)])
    every, number = np.asarray(rows.R), np.arange(K)[:, None]
    ones = np.ones(len(every)) if w is None else w

    def labels_of(centres: Array) -> Labels:
        D = np.dot(-2.0 * centres, every.T)
        D += np.add.reduce(centres * centres, axis=1)[:, None]
        D = D.reshape(len(centres) // K, K, -1)
        labels, nearest = np.zeros((len(D), D.shape[2]), dtype=np.int64), D[:, 0].copy()
        for k in range(1, K):
            np.copyto(labels, k, where=D[:, k] < nearest)
            np.minimum(nearest, D[:, k], out=nearest)
        return labels

    found = labels_of(run_seeds(rows, K, starts, rng, ones))
    active, labels = np.arange(starts), found.copy()  # runs that still change
    for _ in range(max_iter):
        member = (labels[:, None, :] == number).astype(np.float64)
        if w is not None:
            member *= w
        member = member.reshape(len(labels) * K, -1)
        count = np.add.reduce(member, axis=1)
        if not (count > 0).all():
            break
        before, labels = labels, labels_of(np.dot(member, every) / count[:, None])
        found[active] = labels
        moving = (before != labels).any(axis=1)
        if not moving.any():
            return found
        active, labels = active[moving], labels[moving]
    for run, one in enumerate(found):  # an empty cluster gets the row farthest from its own
        if len(np.unique(one[ones > 0])) < K:
            found[run] = assigned(rows.distances(centroids(rows, one, K, ones)), ones)
    return found


def run_seeds(rows: Filled, K: int, starts: int, rng: np.random.Generator, w: Array) -> Array:
    """Return the seeds of several runs, (starts · K, d): `seeds` of all of them at once."""
    R, squares, trials, n = np.asarray(rows.R), np.asarray(rows.squares), 2 + int(np.log(K)), len(w)

    def drawn(mass: Array, count: int) -> Labels:
        """Draw `count` rows by the mass (starts, n) of each run."""
        edges = np.cumsum(mass, axis=1)
        at = rng.random((starts, count)) * edges[:, -1:]
        found = [np.searchsorted(e, a, side="right") for e, a in zip(edges, at, strict=True)]
        return np.asarray(np.minimum(np.stack(found), n - 1))

    def distances(places: Labels) -> Array:
        """Return squared distances of all rows to the rows (starts, m), (starts, m, n)."""
        flat = places.reshape(-1)
        D = np.dot(-2.0 * R[flat], R.T)
        D += squares
        D += squares[flat][:, None]
        return np.maximum(D, 0.0, out=D).reshape(*places.shape, n)

    each = np.arange(starts)
    chosen = [drawn(np.broadcast_to(w, (starts, n)), 1)[:, 0]]
    nearest = distances(chosen[0][:, None])[:, 0]
    while len(chosen) < K:
        mass = nearest * w
        empty = ~(np.add.reduce(mass, axis=1) > 0)  # fewer distinct rows than clusters
        if empty.any():
            mass[empty] = w
        tried = drawn(mass, trials)
        D = distances(tried)
        np.minimum(D, nearest[:, None], out=D)
        best = np.argmin(np.dot(D, w), axis=1)
        chosen.append(tried[each, best])
        nearest = D[each, best]
    return R[np.stack(chosen, axis=1).reshape(-1)]


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
