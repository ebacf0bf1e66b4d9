"""k-means and its seeds: weights are repetitions, and every draw has the chance it should have."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from scipy.stats import chisquare

from dualpca.models.clusters import Filled, centroids, kmeans, kmeans_runs, members, seeds

X = np.array([[0.0], [1.0], [1.5], [4.0], [9.0]])
WEIGHTS = np.array([1.0, 3.0, 0.0, 2.0, 0.5])


def chances(X, w):
    """Return the probability of every pair of seeds: k-means++, the better of two candidates."""
    D = (X - X.T) ** 2
    found = Counter()
    for i, first in enumerate(w / w.sum()):
        mass = w * D[i]
        for a, b in product(range(len(X)), repeat=2):
            left = [w @ np.minimum(D[i], D[j]) for j in (a, b)]
            chosen = b if left[1] < left[0] else a
            found[i, chosen] += first * mass[a] * mass[b] / mass.sum() ** 2
    return {pair: share for pair, share in found.items() if share > 0}


def drawn(kind, w, count):
    rows, rng = Filled.of(X, w), np.random.default_rng(0)
    if kind == "one by one":
        pairs = [np.asarray(seeds(rows, 2, 1, rng, w)) for _ in range(count)]
    else:
        pairs = seeds(rows, 2, count, rng, w).reshape(count, 2, 1)
    places = [np.argmin(np.abs(rows.R - pair.T), axis=0) for pair in pairs]
    return Counter(tuple(place.tolist()) for place in places)


@pytest.mark.parametrize("kind", ["one by one", "all at once"])
@pytest.mark.parametrize("weighted", [False, True])
def test_seeds_are_drawn_by_weight_and_distance(kind, weighted):
    w = WEIGHTS if weighted else np.ones(len(X))
    expected, draws = chances(X, w), 3000
    found = drawn(kind, w, draws)
    assert found.keys() <= expected.keys()  # none without weight, none twice
    shares = [expected[pair] * draws for pair in expected]
    assert chisquare([found[pair] for pair in expected], shares).pvalue > 1e-3


def test_chances_of_weights_are_those_of_repeated_rows():
    w = np.array([1.0, 3.0, 1.0, 2.0, 1.0])
    which = np.repeat(np.arange(5), w.astype(int))
    repeated = Counter()
    for (i, j), share in chances(X[which], np.ones(len(which))).items():
        repeated[which[i], which[j]] += share
    expected = chances(X, w)
    assert all(abs(repeated[pair] - expected[pair]) < 1e-12 for pair in expected)


@pytest.mark.parametrize("missing", [False, True])
def test_clusters_of_weighted_rows_are_those_of_repeated_ones(missing):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 3)) + np.eye(3)[rng.integers(3, size=60)]  # not far apart
    if missing:
        rows[rng.random(rows.shape) < 0.1] = np.nan
        rows = rows[~np.isnan(rows).all(axis=1)]
    w = rng.integers(0, 4, len(rows)).astype(float) ** 3
    which = np.repeat(np.arange(len(rows)), w.astype(int))
    labels = kmeans(rows, 3, np.random.default_rng(1), w)
    again = Filled.of(rows[which], None)
    given = Filled.of(rows, w)
    np.testing.assert_allclose(
        centroids(given, members(labels[None], 3, w)),
        centroids(again, members(labels[None, which], 3, np.ones(len(which)))),
        atol=1e-12,
    )
    # where it ended, every row of weight is nearest to its own mean
    D = given.distances(centroids(given, members(labels[None], 3, w)))
    assert np.array_equal(np.argmin(D, axis=0)[w > 0], labels[w > 0])
    for run in kmeans_runs(rows, 3, 3, np.random.default_rng(2), w):
        D = given.distances(centroids(given, members(run[None], 3, w)))
        assert np.array_equal(np.argmin(D, axis=0)[w > 0], run[w > 0])
