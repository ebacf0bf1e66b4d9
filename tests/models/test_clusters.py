"""k-means and its seeds: weights are repetitions, and every draw has the chance it should have."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from scipy.stats import chisquare
from sklearn.cluster import KMeans

from dualpca.models.clusters import Filled, centroids, cuts, kmeans, kmeans_runs, members, seeds
from tests.models.emission_cases import groups, holes

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


# --- k-means --------------------------------------------------------------------------


@pytest.mark.parametrize("missing, right", [(0.0, 40), (0.25, 35)])
def test_kmeans_finds_separate_groups_with_and_without_holes(missing, right):
    X = holes(groups(apart=20.0), missing) if missing else groups(apart=20.0)
    labels = kmeans(X, 3, np.random.default_rng(0)).reshape(3, 40)
    counts = [np.bincount(part, minlength=3) for part in labels]
    assert min(c.max() for c in counts) >= right
    assert {int(c.argmax()) for c in counts} == {0, 1, 2}


def test_kmeans_is_no_worse_than_scikit_learns():
    X = groups(300, 4, 3, apart=1.5)
    labels = kmeans(X, 6, np.random.default_rng(0))
    own = sum(np.sum((X[labels == k] - X[labels == k].mean(axis=0)) ** 2) for k in range(6))
    theirs = np.median([KMeans(6, n_init=1, random_state=s).fit(X).inertia_ for s in range(10)])
    assert own < 1.1 * theirs


@pytest.mark.parametrize("K", [1, 5, 6])
def test_no_cluster_is_empty_even_among_copies(K):
    X = np.repeat(groups(3, 2, 1), 2, axis=0)
    labels = kmeans(X, K, np.random.default_rng(0))
    assert set(labels.tolist()) == set(range(K))


def test_rows_of_no_weight_start_no_cluster():
    X, w = groups(), np.ones(120)
    X[:5], w[:5] = 1e3, 0.0
    labels = kmeans(X, 3, np.random.default_rng(0), w)
    centres = [X[(labels == k) & (w > 0)].mean(axis=0) for k in range(3)]
    assert np.max(np.abs(centres)) < 100


def test_runs_of_k_means_end_where_lloyd_s_iteration_stays():
    X, rng = groups(90, 3, 3, apart=2.0), np.random.default_rng(0)
    weights = rng.uniform(0.5, 2.0, 90)
    for labels in kmeans_runs(X, 4, 5, rng, weights):
        centres = [
            np.average(X[labels == k], axis=0, weights=weights[labels == k]) for k in range(4)
        ]
        distances = ((X[:, None, :] - np.stack(centres)) ** 2).sum(axis=2)
        assert np.array_equal(distances.argmin(axis=1), labels)
    copies = np.repeat(np.eye(3), 4, axis=0)
    for labels in kmeans_runs(copies, 4, 3, rng):  # fewer distinct rows than clusters
        assert np.all(np.bincount(labels, minlength=4) > 0)


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("K", [2, 3])
def test_cuts_are_across_the_principal_axes_in_parts_of_equal_weight(K, missing):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 5)) * [16.0, 8.0, 4.0, 2.0, 1.0] + 3
    w = rng.uniform(0.5, 2, 60)
    if missing:
        rows[rng.random(rows.shape) < missing] = np.nan
    found = cuts(rows, K, 3, w)
    R = Filled.of(rows, w).R
    _, V = np.linalg.eigh((R * w[:, None]).T @ R)
    assert found.shape == (3, 60) and found.max() == K - 1
    for p, labels in enumerate(found):
        y = R @ V[:, -1 - p]
        mass = np.bincount(labels, w)
        assert np.ptp(mass) < 2 * w.max()
        order = labels[np.argsort(y)]
        assert np.mean(np.abs(np.diff(order)) > 0) < 0.2  # runs along the axis, one way or other


@pytest.mark.parametrize("K", [2, 3])
def test_cuts_know_no_difference_between_a_weight_and_copies_nor_between_signs(K):
    rng = np.random.default_rng(1)
    rows, w = rng.normal(size=(20, 6)), rng.integers(0, 4, 20)
    own = np.repeat(np.arange(20), w)
    signs = np.array([1, -1, 1, 1, -1, -1])
    found = cuts(rows, K, 3, w.astype(float))[:, own]
    assert np.array_equal(found, cuts(rows[own], K, 3))
    assert np.array_equal(found, cuts(rows[own] * signs, K, 3))


def test_rows_without_variance_are_not_cut():
    assert cuts(np.ones((5, 2)), 2, 3).shape == (0, 5)
