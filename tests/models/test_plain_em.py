"""EM without acceleration is the textbook's, step by step: PPCA and probabilistic kernel PCA."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from dualpca import PPCA, Batches, ProbabilisticKernelPCA, load
from tests.models.incomplete_cases import draw, remove
from tests.oracles import missing

START = 1.5
"""Noise to start from."""


def log_likelihood(S, n, C):
    d = len(S)
    spread = d * np.log(2 * np.pi) + np.linalg.slogdet(C)[1]
    return -0.5 * n * (spread + np.trace(np.linalg.solve(C, S)))


def textbook(X, W, sigma2, steps, fixed=False):
    """Return W, σ² and all likelihoods after EM over rows (Tipping & Bishop 1999, section 3.2)."""
    Y, (d, q) = X - X.mean(axis=0), W.shape
    S = Y.T @ Y / len(Y)
    values = [log_likelihood(S, len(Y), W @ W.T + sigma2 * np.eye(d))]
    for _ in range(steps):
        M = np.linalg.inv(W.T @ W + sigma2 * np.eye(q))
        Z = Y @ W @ M
        second = [sigma2 * M + np.outer(z, z) for z in Z]
        W = Y.T @ Z @ np.linalg.inv(sum(second))
        left = [
            y @ y - 2 * z @ W.T @ y + np.trace(E @ W.T @ W)
            for y, z, E in zip(Y, Z, second, strict=True)
        ]
        sigma2 = sigma2 if fixed else np.mean(left) / d
        values.append(log_likelihood(S, len(Y), W @ W.T + sigma2 * np.eye(d)))
    return W, sigma2, np.array(values)


def plain(W, steps, **options):
    options = {"method": "em", "accelerate": False, "init": (W, START), "tol": 0.0} | options
    return PPCA(W.shape[1], max_iter=steps, **options)


@pytest.fixture
def rows():
    return draw(40, 6, 2)


@pytest.fixture
def start():
    return np.random.default_rng(5).normal(size=(6, 2))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 9])
def test_plain_steps_are_the_textbooks(rows, start, steps, fixed):
    W, sigma2, values = textbook(rows, start, START, steps, fixed)
    model = plain(start, steps, noise_variance=START if fixed else None).fit(rows)
    np.testing.assert_allclose(model.loadings_ @ model.loadings_.T, W @ W.T, rtol=1e-9)
    assert model.noise_variance_ == pytest.approx(sigma2, rel=1e-11)
    np.testing.assert_allclose(model.loglikelihoods_, values, rtol=1e-12)
    assert np.all(np.diff(values) > 0) and model.n_iter_ == steps


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_acceleration_takes_other_steps(rows, start):
    slow, fast = (plain(start, 3, accelerate=a).fit(rows) for a in (False, True))
    assert fast.loglikelihood_ > slow.loglikelihood_ + 1e-3


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("steps", [1, 4])
def test_plain_steps_with_missing_values_are_the_textbooks(rows, start, steps, chunked):
    X = remove(rows, 0.2)
    dense = missing.Model(np.nanmean(X, axis=0), start, START)
    values = [missing.loglikelihood(X, dense.mean, dense.covariance)]
    for _ in range(steps):
        dense = missing.em_step(X, dense)[0]
        values.append(missing.loglikelihood(X, dense.mean, dense.covariance))
    model = plain(start, steps).fit(Batches(lambda: iter([X[:15], X[15:]])) if chunked else X)
    WWT = model.loadings_ @ model.loadings_.T
    np.testing.assert_allclose(WWT, dense.W @ dense.W.T, rtol=1e-8)
    np.testing.assert_allclose(model.mean_, dense.mean, rtol=1e-9)
    np.testing.assert_allclose(model.loglikelihoods_, values, rtol=1e-10)


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_every_start_ends_at_the_maximum(rows, start, share):
    X = remove(rows, share)
    inits = ("auto", "random", (start, START), (start.tolist(), START))
    limits = {"tol": 1e-8, "max_iter": 5000}
    ends = [PPCA(2, method="em", init=init, **limits).fit(X).loglikelihood_ for init in inits]
    np.testing.assert_allclose(ends, ends[0], rtol=1e-8)
    slow = PPCA(2, method="em", accelerate=False, tol=1e-5, max_iter=20_000).fit(X)
    assert slow.loglikelihood_ == pytest.approx(ends[0], rel=1e-6)


def test_starts_are_those_of_standardised_columns(rows, start):
    units = np.array([1.0, 10.0, 0.1, 5.0, 1.0, 2.0])
    Z = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    with pytest.warns(ConvergenceWarning):
        theirs = plain(start, 2).fit(Z)
    with pytest.warns(ConvergenceWarning):
        ours = plain(start, 2, standardize=True).fit(rows * units)
    assert ours.noise_variance_ == pytest.approx(theirs.noise_variance_, rel=1e-10)


def test_a_start_is_not_modified(rows, start):
    before = start.copy()
    with pytest.warns(ConvergenceWarning):
        plain(start, 2).fit(rows)
    np.testing.assert_array_equal(start, before)


@pytest.mark.parametrize(
    ("init", "words"),
    [
        ("pca", r"'auto', 'random'"),
        (None, "a tuple: loadings of shape"),
        (np.ones((6, 2)), "a tuple: loadings of shape"),
        ([np.ones((6, 2)), 1.0], "a tuple: loadings of shape"),
        ((np.ones((6, 2)),), "a tuple: loadings of shape"),
        ((np.ones((6, 2)), 0.0), "a tuple: loadings of shape"),
        ((np.ones((6, 2)), np.inf), "a tuple: loadings of shape"),
        ((np.ones((6, 2)), "1"), "a tuple: loadings of shape"),
        ((np.ones((5, 2)), 1.0), r"finite loadings of shape \(6, 2\)"),
        ((np.full((6, 2), np.nan), 1.0), r"finite loadings of shape \(6, 2\)"),
        ((np.array([["a"] * 2] * 6), 1.0), r"finite loadings of shape \(6, 2\)"),
    ],
)
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_what_is_no_start_is_refused(rows, init, words, share):
    with pytest.raises(ValueError, match="init must be .*" + words):
        PPCA(2, method="em", init=init).fit(remove(rows, share))


@pytest.mark.parametrize("noise", [1.5, 2, np.float64(1.5)])
def test_a_start_comes_back_from_a_file(rows, start, noise, tmp_path):
    model = PPCA(2, method="em", init=(start, noise), accelerate=False, max_iter=5000).fit(rows)
    model.save(tmp_path / "model.dpca")
    again = load(tmp_path / "model.dpca")
    np.testing.assert_array_equal(again.init[0], start)
    assert again.init[1] == noise and again.accelerate is False


def test_accelerate_is_a_flag(rows):
    with pytest.raises(ValueError, match="accelerate must be True or False"):
        PPCA(2, method="em", accelerate="no").fit(rows)


# --- probabilistic kernel PCA ---------------------------------------------------------


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("steps", [1, 6])
def test_raw_coordinates_are_those_of_the_papers_em(rows, steps):
    """Dense: D = BᵀB + σ²I, B' = KcB(nσ²I + D⁻¹BᵀKcB)⁻¹, σ²' = tr(Kc − KcBD⁻¹B'ᵀ)/n²."""
    n, B = len(rows), np.random.default_rng(3).normal(size=(len(rows), 2))
    K = np.exp(-0.1 * np.sum((rows[:, None] - rows) ** 2, axis=2))
    H = np.eye(n) - 1 / n
    Kc = H @ K @ H
    options = {"gamma": 0.1, "method": "em", "accelerate": False, "tol": 0.0}
    model = ProbabilisticKernelPCA(2, init=B, max_iter=steps, **options).fit(rows)
    sigma2 = np.trace(Kc) / n**2  # all variance is noise
    for _ in range(steps):
        D = B.T @ B + sigma2 * np.eye(2)
        new = Kc @ B @ np.linalg.inv(n * sigma2 * np.eye(2) + np.linalg.solve(D, B.T @ Kc @ B))
        sigma2 = np.trace(Kc - Kc @ B @ np.linalg.solve(D, new.T)) / n**2
        B = new
    np.testing.assert_allclose(model.em_coordinates_, B, atol=1e-10)
    assert model.noise_variance_ == pytest.approx(sigma2, rel=1e-10)
    outer = model.coordinates_ @ model.coordinates_.T
    np.testing.assert_allclose(outer, B @ B.T, atol=1e-10)
    turned = model.coordinates_.T @ model.coordinates_
    assert abs(turned[0, 1]) < 1e-12 < abs((B.T @ B)[0, 1])


def test_only_em_has_raw_coordinates(rows):
    for options in ({}, {"noise": "diagonal"}):
        model = ProbabilisticKernelPCA(2, gamma=0.1, **options).fit(rows)
        assert not hasattr(model, "em_coordinates_")
