"""k-means from a k-means++ start, on rows that may have NaN: where mixtures begin."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dualpca.arrays import Array, backend
from dualpca.data import Host, column_starts
from dualpca.operators import Primal
from dualpca.solvers import solve

Labels = np.ndarray[Any, np.dtype[np.int64]]

SORTED_DIGITS = 9
"""Of distances that rows are put into an order by."""


def row_weights(X: Array, weights: Array | None) -> Host:
    """Return a weight for every row, on the host."""
    return np.ones(int(X.shape[0])) if weights is None else backend.to_numpy(weights)


class Filled(NamedTuple):
    """Rows around the mean with 0 where nothing was observed, and 1 where something was."""

    R: Host  # (n, d)
    mask: Host | None  # (n, d); None where nothing is missing
    share: Host  # (n,), d over the number of observed features, 0 for an empty row
    squares: Host  # (n,), Σ over observed features of R²

    @classmethod
    def of(cls, X: Array, weights: Array | None) -> Filled:
        """Return rows around the observed mean of every feature, on the host."""
        X, w = backend.working(backend.to_numpy(X)), row_weights(X, weights)
        C = X - np.dot(w, X) / np.add.reduce(w)
        squares = np.add.reduce(C * C, axis=1)
        if not np.isnan(squares).any():
            return cls(C, None, np.ones_like(squares), squares)
        C = X - column_starts(X, w)[1]
        mask = (~np.isnan(C)).astype(np.float64)
        count, R = np.sum(mask, axis=1), np.where(mask > 0, C, 0.0)
        share = np.where(count > 0, X.shape[1] / np.maximum(count, 1), 0.0)
        return cls(R, mask, share, np.sum(R * R, axis=1))

    @property
    def order(self) -> Labels:
        """The rows by their distance from the mean, (n,), whatever the order in which they came.

        Draws are made in it, so that the same rows start from the same clusters; a few digits of
        the distance are left out, which depend on the order of sums.
        """
        keys = [
            np.round(v / max(float(np.max(np.abs(v), initial=0.0)), 1e-300), SORTED_DIGITS)
            for v in (np.add.reduce(self.R, axis=1), self.squares)
        ]
        return np.lexsort(keys)

    def take(self, index: Labels) -> Filled:
        """Return some of the rows."""
        mask = None if self.mask is None else self.mask[index]
        return Filled(self.R[index], mask, self.share[index], self.squares[index])

    def nearness(self, centres: Host) -> Host:
        """Return squared distances to centres (C, d), (C, n), but for what is the same for all."""
        D, squares = np.dot(-2.0 * centres, self.R.T), centres * centres
        if self.mask is None:
            D += np.add.reduce(squares, axis=1)[:, None]
        else:
            D += np.dot(squares, self.mask.T)
        return np.asarray(D)

    def distances(self, centres: Host) -> Host:
        """Return squared distances over observed features, scaled to all of them, (C, n)."""
        D = self.nearness(centres)
        D += self.squares
        np.maximum(D, 0.0, out=D)
        return D if self.mask is None else D * self.share


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
    return np.asarray(kmeans_runs(X, K, 1, rng, weights, max_iter)[0])


def kmeans_runs(
    X: Array,
    K: int,
    starts: int,
    rng: np.random.Generator,
    weights: Array | None = None,
    max_iter: int = 100,
) -> Labels:
    """Return the clusters of several runs of k-means, (starts, n), on the host.

    All runs advance together, with one matrix product for distances and one for centres per
    iteration, until none of them changes.

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
    rows, w = Filled.of(X, weights), row_weights(X, weights)
    centres, labels = seeds(rows, K, starts, rng, w), np.full((starts, len(w)), -1)
    active, found = np.arange(starts), labels.copy()  # runs that still change
    for _ in range(1 + max_iter):
        before, labels = labels, nearest_centres(rows, centres, K)
        moving = (before != labels).any(axis=1)
        if not moving.any():
            break
        if not moving.all():
            active, labels = active[moving], labels[moving]
            centres = centres.reshape(-1, K, centres.shape[1])[moving].reshape(-1, centres.shape[1])
        member = members(labels, K, w)
        if not np.add.reduce(member, axis=1).all():
            fill_empty(rows, centres, labels, K, w)
            member = members(labels, K, w)
        found[active], centres = labels, centroids(rows, member)
    return found


SAME_PLACE = 1e-9
"""Share of the range of all rows along an axis, within which rows are at one place."""


def cuts(X: Array, K: int, axes: int, weights: Array | None = None) -> Labels:
    """Return clusters of equal weight, cut across each of the first principal axes, (axes, n).

    On the host; as many as there are features, if they are fewer. Rows at one place stay together,
    so that a row of weight 2 is two rows.

    Examples
    --------
    >>> import numpy as np
    >>> cuts(np.array([[0.0, 1.0], [9.0, 0.0], [1.0, 0.0], [2.0, 1.0]]), 2, 1).tolist()
    [[0, 1, 0, 1]]
    """
    R, w = Filled.of(X, weights).R, row_weights(X, weights)
    if not R.any():
        return np.empty((0, len(w)), dtype=np.int64)
    Y = R @ solve(Primal(R, w, center=False), min(axes, *R.shape)).vectors
    Y *= np.where(w @ Y**3 < 0, -1.0, 1.0)  # which end is first is the rows' own matter
    found = np.empty((Y.shape[1], len(w)), dtype=np.int64)
    for one, y in zip(found, Y.T, strict=True):
        order = np.argsort(y, kind="stable")
        gaps = np.diff(y[order], prepend=y[order[0]])
        place = np.cumsum(gaps > SAME_PLACE * np.ptp(y))
        mass = np.bincount(place, w[order])
        before = (np.cumsum(mass) - mass / 2)[place]
        one[order] = np.minimum(K * before / np.add.reduce(w), K - 1)
    return found


def seeds(rows: Filled, K: int, starts: int, rng: np.random.Generator, w: Host) -> Host:
    """Return rows far apart for every run, (starts · K, d).

    Each is drawn by its squared distance to those before it.
    """
    order, trials, each = rows.order, 2 + int(np.log(K)), np.arange(starts)
    w, rows = w[order], rows.take(order)

    def drawn(mass: Host, count: int) -> Labels:
        """Draw `count` rows by the mass (starts, n) of each run."""
        edges = np.cumsum(mass, axis=1)
        at = rng.random((starts, count)) * edges[:, -1:]
        found = [np.searchsorted(e, a, side="right") for e, a in zip(edges, at, strict=True)]
        return np.asarray(np.minimum(np.stack(found), len(w) - 1))

    def distances(places: Labels) -> Host:
        """Return squared distances of all rows to the rows (starts, m), (starts, m, n)."""
        return rows.distances(rows.R[places.reshape(-1)]).reshape(*places.shape, -1)

    chosen = [drawn(np.broadcast_to(w, (starts, len(w))), 1)[:, 0]]
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
    return np.asarray(rows.R[np.stack(chosen, axis=1).reshape(-1)])


def members(labels: Labels, K: int, w: Host) -> Host:
    """Return the weight of every row in every cluster of each run, (starts · K, n)."""
    member = (labels[:, None, :] == np.arange(K)[:, None]) * w
    return np.asarray(member.reshape(len(labels) * K, -1))


def centroids(rows: Filled, member: Host) -> Host:
    """Return the mean of what each cluster observed, (starts · K, d); that of all for nothing."""
    if rows.mask is None:
        count = np.add.reduce(member, axis=1)[:, None]
    else:
        count = np.dot(member, rows.mask)
    return np.asarray(np.dot(member, rows.R) / np.where(count > 0, count, 1.0))


def nearest_centres(rows: Filled, centres: Host, K: int) -> Labels:
    """Return the nearest centre of every row, (starts, n)."""
    D = rows.nearness(centres).reshape(len(centres) // K, K, -1)
    labels, nearest = np.zeros((len(D), D.shape[2]), dtype=np.int64), D[:, 0].copy()
    for k in range(1, K):
        np.copyto(labels, k, where=D[:, k] < nearest)
        np.minimum(nearest, D[:, k], out=nearest)
    return labels


def fill_empty(rows: Filled, centres: Host, labels: Labels, K: int, w: Host) -> None:
    """Give clusters without a row of any weight the rows that are farthest from their own."""
    for run, one in enumerate(labels):
        gaps = rows.distances(centres[run * K : (run + 1) * K])[one, np.arange(len(one))]
        count = np.bincount(one[w > 0], minlength=K)
        for k in np.flatnonzero(count == 0):
            far = np.where((count[one] > 1) & (w > 0), gaps, -1.0)
            i = int(np.argmax(far))
            if far[i] >= 0:
                count[one[i]] -= 1
                one[i], count[k] = k, 1
