"""Finite feature maps and landmarks: against scikit-learn's, dense residuals, exact limits."""

from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare
from sklearn.kernel_approximation import Nystroem, RBFSampler

from dualpca import KernelPCA
from dualpca.kernels import RBF, Kernel, Laplacian, Linear, Matern, Polynomial
from dualpca.operators.features import (
    Fourier,
    Landmarks,
    kernel_gap,
    leverage,
    map_rows,
    pivoted_cholesky,
    uniform,
)
from tests.operators.kernel_cases import GAMMA, random, rbf, rows
from tests.oracles.kernel_pca import gaussian, kernel_pca, left_out
from tests.tolerances import assert_close


def rare(seed, n=500, few=5):
    """Return points of which a few make a distant cluster of their own."""
    X = np.random.default_rng(seed).standard_normal((n, 2))
    X[:few] = 30 + 0.5 * X[:few]  # far from all others
    return X


# --- feature maps --------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 10, 40])
def test_landmarks_are_scikit_learns(m):
    X = rows()
    theirs = Nystroem(kernel="rbf", gamma=GAMMA, n_components=m, random_state=0).fit(X)
    f = Landmarks.of(X[theirs.component_indices_], RBF(gamma=GAMMA))
    F, G = f(X), theirs.transform(X)
    assert_close(F @ F.T, G @ G.T, "vector")


def test_fourier_features_are_scikit_learns():
    X = rows()
    theirs = RBFSampler(gamma=GAMMA, n_components=50, random_state=0).fit(X)
    f = Fourier(RBF(gamma=GAMMA), theirs.random_weights_, theirs.random_offset_)
    assert_close(f(X), theirs.transform(X), "covariance")


@pytest.mark.parametrize(
    "kernel",
    [
        RBF(gamma=GAMMA),
        RBF(length_scale=[0.7, 1.5, 3.0]),
        Laplacian(gamma=0.5),
        Matern(nu=1.5, length_scale=2.0),
        Matern(nu=2.5, length_scale=[0.7, 1.5, 3.0]),
        Matern(nu=2.5),
    ],
    ids=str,
)
def test_fourier_error_falls_like_one_over_root_m(kernel):
    X = rows(40)
    K = kernel(X, X)
    error = []
    for m in (100, 400, 1600, 6400):
        maps = (Fourier.of(kernel, X, m, random(seed)) for seed in range(10))
        error.append(np.sqrt(np.mean([(f(X) @ f(X).T - K) ** 2 for f in maps])))
    ratios = np.divide(error[:-1], error[1:])
    assert np.all(np.abs(ratios - 2) < 0.35), ratios
    # each product of two features has variance (1 + k(2(x − y))/2 − k²)/m or so: at most 1.5/m
    assert error[-1] < np.sqrt(1.5 / 6400)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("n", [30, 5000])
def test_moments_in_blocks_are_the_dense_ones(n, center, weighted):
    X = rows(n)
    w = random().random(n) if weighted else np.ones(n)
    f = Landmarks.of(X[:7], RBF(gamma=GAMMA))
    mapped = map_rows(f, X, w if weighted else None, center=center)
    F = f(X)
    mean = w @ F / w.sum() if center else np.zeros(7)
    assert_close(mapped.moments.mean, mean, "covariance", scale=1.0)
    scatter = (w[:, None] * (F - mean)).T @ (F - mean)
    assert_close(mapped.moments.scatter, scatter, "covariance")
    assert mapped.total == pytest.approx(w.sum())
    assert mapped.held == pytest.approx(w @ np.sum(F**2, axis=1))


# --- pivoted Cholesky ----------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 5, 33, 79, 80, 200])
@pytest.mark.parametrize(
    "kernel", [RBF(gamma=GAMMA), Laplacian(gamma=1.0), Polynomial(degree=3, gamma=1.0)], ids=str
)
def test_residual_trace_is_the_dense_one(kernel, m):
    X = rows()
    found = pivoted_cholesky(X, kernel, m, 0.0, random())
    K = kernel(X, X)
    assert len(found.chosen) == len(set(found.chosen.tolist())) <= min(m, 80)
    dense = left_out(K, found.chosen) * np.trace(K)
    assert found.trace == pytest.approx(dense, abs=1e-10 * np.trace(K))


@pytest.mark.parametrize("tol", [0.5, 0.1, 1e-2, 1e-4])
def test_pivots_stop_at_tol(tol):
    X = rows(300)
    found = pivoted_cholesky(X, RBF(gamma=GAMMA), 300, tol, random())
    assert found.trace <= tol * 300
    K = gaussian(X, X, GAMMA)
    assert left_out(K, found.chosen) <= tol * (1 + 1e-6)
    # no set of this size can do better than the eigenvectors, and a few blocks fewer do not do
    lam = np.linalg.eigvalsh(K)[::-1]
    least = np.searchsorted(np.cumsum(lam), (1 - tol) * lam.sum()) + 1
    assert least <= len(found.chosen) <= 3 * least + 32


def test_weights_enter_the_choice_of_pivots():
    X, w = rows(300), random().integers(0, 2, 300).astype(float)
    found = pivoted_cholesky(X, RBF(gamma=GAMMA), 300, 1e-3, random(), w)
    assert np.all(w[found.chosen] > 0)
    root, K = np.sqrt(w), gaussian(X, X, GAMMA)
    kept = np.flatnonzero(w)
    share = left_out(K[np.ix_(kept, kept)], np.searchsorted(kept, found.chosen))
    assert share <= 1e-3 * (1 + 1e-6)
    assert found.trace == pytest.approx(share * root @ root)
    rbf(2, "cholesky", tol=1e-3).fit(X, sample_weight=w)  # and no warning


@pytest.mark.parametrize("seed", range(5))
def test_low_rank_kernels_need_as_many_pivots_as_their_rank(seed):
    X = rows(200, 3, seed)
    assert len(pivoted_cholesky(X, Linear(), 100, 0.0, random(seed)).chosen) == 3
    square = Polynomial(degree=2, gamma=1.0, coef0=1.0)
    assert len(pivoted_cholesky(X, square, 100, 0.0, random(seed)).chosen) == 10
    twice = np.repeat(X[:15], 4, axis=0)
    found = pivoted_cholesky(twice, RBF(gamma=GAMMA), 60, 0.0, random(seed))
    assert sorted(found.chosen // 4) == list(range(15))


def chances(K, w, m):
    """Return the probability of every sequence of m pivots, each drawn by what is left of it."""
    found = {(): 1.0}
    for _ in range(m):
        longer = {}
        for index, share in found.items():
            at = list(index)
            L = K - K[:, at] @ np.linalg.solve(K[np.ix_(at, at)], K[at]) if at else K
            mass = w * np.diagonal(L)
            mass[at] = 0.0
            longer |= {(*index, j): share * p for j, p in enumerate(mass / mass.sum()) if p > 0}
        found = longer
    return found


@pytest.mark.parametrize("weighted", [False, True])
def test_pivots_are_drawn_by_what_the_earlier_ones_leave(weighted):
    X = np.array([[0.0], [0.3], [0.5], [2.0], [3.0]])  # of neighbours one is enough
    kernel = Linear() + RBF(gamma=1.0)  # and some points have more to explain than others
    w = np.array([1.0, 3.0, 1.0, 2.0, 0.5]) if weighted else np.ones(5)
    expected, rng, draws = chances(kernel(X, X), w, 3), random(), 3000
    found = Counter(
        tuple(pivoted_cholesky(X, kernel, 3, 0.0, rng, w if weighted else None).chosen.tolist())
        for _ in range(draws)
    )
    assert found.keys() <= expected.keys()
    shares = np.array([expected[k] for k in sorted(expected)])
    counts = np.array([found[k] for k in sorted(expected)])
    often = shares * draws > 5
    wanted = draws * np.array([*shares[often], shares[~often].sum()])
    assert chisquare([*counts[often], counts[~often].sum()], wanted).pvalue > 1e-3


def test_a_kernel_of_zeros_has_one_landmark():
    found = pivoted_cholesky(np.zeros((6, 2)), Linear(), 4, 0.0, random())
    assert len(found.chosen) == 1 and found.trace == 0


@pytest.mark.parametrize("gamma", [1e-6, 1e-3, 1e3])
@pytest.mark.parametrize("seed", range(3))
def test_pivots_of_extreme_kernels_are_finite(gamma, seed):
    X = rows(150, seed=seed)
    found = pivoted_cholesky(X, RBF(gamma=gamma), 150, 0.0, random(seed))
    assert np.isfinite(found.trace) and 1 <= len(found.chosen) <= 150
    model = KernelPCA(2, kernel="rbf", gamma=gamma, eigen_solver="cholesky").fit(X)
    expected = kernel_pca(gaussian(X, X, gamma)).lam[:2]
    np.testing.assert_allclose(model.eigenvalues_, expected, rtol=1e-6, atol=1e-11 * 150)


# --- choosing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 10, 80, 200])
def test_choices_are_different_points_in_order(m):
    X = rows()
    for index in (uniform(80, m, random()), leverage(X, RBF(gamma=GAMMA), m, random())):
        assert len(index) == min(m, 80)
        assert np.all(np.diff(index) > 0)


def test_leverage_finds_a_rare_cluster():
    found = {leverage: 0, uniform: 0}
    error = {leverage: [], uniform: []}
    for seed in range(30):
        X = rare(seed)
        K = gaussian(X, X, 0.5)
        for choose in found:
            drawn = (
                leverage(X, RBF(gamma=0.5), 30, random(seed))
                if choose is leverage
                else uniform(len(X), 30, random(seed))
            )
            found[choose] += bool((drawn < 5).any())
            error[choose].append(left_out(K, drawn))
    assert found[leverage] > found[uniform]
    assert np.mean(error[leverage]) < 0.8 * np.mean(error[uniform])


class Zero(Kernel):
    """A kernel without variance."""

    def _against(self, Y):
        return lambda X: np.zeros((len(X), len(Y)))

    def _diag(self, X):
        return np.zeros(len(X))


def test_leverage_of_a_kernel_of_zeros_is_uniform():
    assert len(leverage(rows(), Zero(), 5, random())) == 5


@pytest.mark.filterwarnings("ignore::dualpca.errors.SolverWarning")  # that few pivots leave some
@pytest.mark.parametrize("options", [
    {"landmarks": "uniform"}, {"landmarks": "leverage"}, {"landmarks": "kmeans"},
    {"solver": "cholesky"},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("m", [2, 10, 30])
def test_landmarks_never_hold_more_than_the_kernel(options, m):
    X = rows()
    model = rbf(n_landmarks=m, **options).fit(X)
    lam = kernel_pca(gaussian(X, X, GAMMA)).lam[: model.n_components_]
    assert np.all(model.eigenvalues_ <= lam * (1 + 1e-9))
    assert model.X_fit_.shape == (m, 3)
    f = Landmarks.of(model.X_fit_, RBF(gamma=GAMMA))
    share = 1 - np.sum(f(X) ** 2) / 80
    assert model.approximation_error_.trace == pytest.approx(share, abs=1e-12)
    assert model.explained_variance_ratio_.sum() <= 1 + 1e-12


def test_gap_is_the_norm_of_what_the_map_leaves_of_the_centred_kernel():
    X = rows(60)
    f = Landmarks.of(X[:7], RBF(gamma=GAMMA))
    H = np.eye(60) - 1 / 60
    left = H @ (gaussian(X, X, GAMMA) - f(X) @ f(X).T) @ H
    assert kernel_gap(f, X) == pytest.approx(np.linalg.norm(left, 2) / 60)
    assert kernel_gap(Landmarks.of(X, RBF(gamma=GAMMA)), X) < 1e-10
