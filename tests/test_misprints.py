"""Misprints of the source documents (docs/theory/references.md): the printed formula is evaluated,
found wrong against a dense reference, and the one we implement found right."""

import numpy as np
import pytest

from dualpca import PPCA, DualPPCA, KernelPCA, MixturePPCA
from dualpca.kernels import RBF
from dualpca.models.spiked import ppca_step
from dualpca.operators.primal import Primal
from tests import oracles

q = 2


def different(a, b):
    """Tell whether two arrays differ by more than a hundredth of their size."""
    return np.max(np.abs(a - b)) > 0.01 * np.max(np.abs(b))


@pytest.fixture(scope="module")
def world():
    """A linear world, whose features are known: 12 points in 5 dimensions, with the dual of S0."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 5)) * [3.0, 2.0, 1.0, 0.7, 0.5] + 4.0
    n, Phi = len(X), X - X.mean(axis=0)
    lam, E = np.linalg.eigh(Phi @ Phi.T)
    lam, E = lam[::-1][:5], E[:, ::-1][:, :5]
    sigma2 = lam[q:].sum() / (n * (5 - q))
    A = E[:, :q] * np.sqrt(1 / n - sigma2 / lam[:q])
    W = Phi.T @ A
    C = W @ W.T + sigma2 * np.eye(5)
    return {"X": X, "n": n, "Phi": Phi, "lam": lam, "E": E, "s2": sigma2, "A": A, "W": W, "C": C}


# --- S0: De Plaen & Suykens -----------------------------------------------------------------


def test_the_mean_given_latents_adds_mu(world):
    model = PPCA(q).fit(world["X"])
    h = np.array([[0.5, -1.0]])
    right, printed = (h @ model.loadings_.T + sign * model.mean_ for sign in (1, -1))
    np.testing.assert_allclose(model.inverse_transform(h), right)
    assert different(printed, right)


def test_the_posterior_covariance_has_a_noise_variance(world):
    W, C, lam, n, s2 = (world[k] for k in ("W", "C", "lam", "n", "s2"))
    dense = np.eye(q) - W.T @ np.linalg.solve(C, W)  # Gaussian conditioning
    np.testing.assert_allclose(dense, s2 * n * np.diag(1 / lam[:q]), atol=1e-12)
    assert different(n * np.diag(1 / lam[:q]), dense)
    _, covariance = (
        DualPPCA(q, kernel="linear", noise_dim=5)
        .fit(world["X"])
        .posterior(world["X"], parameters="fixed")
    )
    np.testing.assert_allclose(covariance[0], dense, atol=1e-9)


def test_the_posterior_mean_multiplies_by_sigma(world):
    W, C, s2, phi = world["W"], world["C"], world["s2"], world["Phi"][0]
    M = W.T @ W + s2 * np.eye(q)
    dense = W.T @ np.linalg.solve(C, phi)
    np.testing.assert_allclose(np.linalg.solve(M, W.T @ phi), dense)
    assert different(M @ W.T @ phi, dense)
    lam, A, n, kc = world["lam"][:q], world["A"], world["n"], world["Phi"] @ phi
    np.testing.assert_allclose(n / lam * (A.T @ kc), dense)
    assert different(lam / n * (A.T @ kc), dense)


def test_the_covariance_of_kernel_values(world):
    Phi, A, s2, C = world["Phi"], world["A"], world["s2"], world["C"]
    K, dense = Phi @ Phi.T, Phi @ C @ Phi.T  # kc = Φc(φ − φ̄), linear in φ
    np.testing.assert_allclose(K @ A @ A.T @ K + s2 * K, dense, atol=1e-10)
    assert different(A @ A.T + s2 * np.linalg.pinv(K), dense)


def test_the_determinant_is_a_product(world):
    W, s2 = world["W"], world["s2"]
    squares = np.linalg.svd(W, compute_uv=False) ** 2
    dense = np.linalg.det(world["C"])
    assert s2 ** (5 - q) * np.prod(squares + s2) == pytest.approx(dense)
    assert s2**5 + np.prod(squares + s2) != pytest.approx(dense, rel=0.1)


def test_the_other_eigenvalues_are_the_noise(world):
    values = np.linalg.eigvalsh(world["C"])
    np.testing.assert_allclose(values[: 5 - q], world["s2"])
    assert world["s2"] > 0.01


def test_the_square_stands_inside_the_sum(world):
    rho, Phi, n = np.eye(5)[0], world["Phi"], world["n"]
    dense = n * rho @ np.cov(Phi.T, ddof=0) @ rho
    assert np.sum((Phi @ rho) ** 2) == pytest.approx(dense)
    assert np.sum(Phi @ rho) ** 2 < 1e-9 * dense  # centred: as printed it is always 0


def test_centring_loses_one_dimension(world):
    X, n = world["X"], world["n"]
    K = RBF(gamma=0.3)(X, X)
    H = np.eye(n) - 1 / n
    assert np.linalg.matrix_rank(K) == n and np.linalg.matrix_rank(H @ K @ H) == n - 1
    lam = np.linalg.eigvalsh(H @ K @ H)[::-1]
    model = DualPPCA(q, kernel="rbf", gamma=0.3, noise_dim=n - 1).fit(X)
    assert model.noise_variance_ == pytest.approx(lam[q:].sum() / (n * (n - 1 - q)))
    assert model.noise_variance_ == pytest.approx(np.mean(lam[q : n - 1]) / n)


def test_published_noise_is_that_of_uncentred_kernels(world):
    X, n = world["X"], world["n"]
    for center, same in ((False, True), (True, False)):
        model = DualPPCA(q, kernel="rbf", gamma=0.3, center=center).fit(X)
        explained = model.explained_variance_ratio_.sum()
        assert bool(np.isclose(model.noise_variance_, (1 - explained) / (n - q))) is same


# --- S1: PPCA and extensions ----------------------------------------------------------------


def em_step(S, W, s2, new):
    """Take S1's EM step, with the new W or, as printed, the old one in the noise."""
    M = W.T @ W + s2 * np.eye(W.shape[1])
    SW = S @ W
    W1 = SW @ np.linalg.inv(s2 * np.eye(W.shape[1]) + np.linalg.solve(M, W.T @ SW))
    return W1, np.trace(S - SW @ np.linalg.solve(M, (W1 if new else W).T)) / len(S)


def falls(new):
    """Return the largest loss of log-likelihood a row over steps from random starts."""
    S, worst = np.diag([100.0, 2.0, 0.1, 0.1, 0.1]), 0.0
    for seed in range(20):
        W, s2 = np.random.default_rng(seed).normal(size=(5, q)) * 10, 1.0
        before = -np.inf
        for _ in range(10):
            C = W @ W.T + s2 * np.eye(5)
            value = -0.5 * (np.linalg.slogdet(C)[1] + np.trace(np.linalg.solve(C, S)))
            worst, before = max(worst, before - value), value
            W, s2 = em_step(S, W, s2, new)
            if s2 <= 0:  # no density at all
                return np.inf
    return worst


def test_the_noise_is_updated_with_the_new_loadings(world):
    assert falls(new=True) < 1e-10
    assert falls(new=False) > 0.01
    X = world["X"]
    W, s2 = np.random.default_rng(0).normal(size=(5, q)), 1.0
    W1, s21, _ = ppca_step(Primal(X), W, s2, len(X))
    ours = em_step(np.cov(X.T, ddof=0), W, s2, new=True)
    np.testing.assert_allclose(W1, ours[0])
    assert s21 == pytest.approx(ours[1])


def test_the_noise_of_a_mixture_is_what_is_left(world):
    X = world["X"] * 3  # in larger units W grows, and so does what is subtracted
    S = np.cov(X.T, ddof=0)
    dense = oracles.ppca(X, q)
    W = 3 * world["W"]
    assert (np.trace(S) - np.trace(W.T @ S @ W)) / 5 < 0
    values = np.linalg.eigvalsh(S)[::-1]
    right = (np.trace(S) - values[:q].sum()) / (5 - q)
    assert right == pytest.approx(9 * world["s2"])
    np.testing.assert_allclose(W @ W.T + right * np.eye(5), dense.covariance, atol=1e-9)
    model = MixturePPCA(1, q, random_state=0).fit(X)
    assert model.noise_variance_[0] == pytest.approx(right)


# --- S2: a survey of kernel PCA -------------------------------------------------------------


def test_projections_need_the_root_of_the_eigenvalues(world):
    Phi, lam, E = world["Phi"], world["lam"][:q], world["E"][:, :q]
    V = Phi.T @ E / np.sqrt(lam)
    K = Phi @ Phi.T
    np.testing.assert_allclose(V.T @ V, np.eye(q), atol=1e-12)
    np.testing.assert_allclose(K @ E / np.sqrt(lam), Phi @ V, atol=1e-10)
    assert different(K @ E, Phi @ V)
    ours = KernelPCA(q, kernel="linear").fit_transform(world["X"])
    np.testing.assert_allclose(np.abs(ours), np.abs(Phi @ V), atol=1e-8)


def test_the_last_centring_term_is_the_mean_of_all(world):
    X, Phi, n = world["X"], world["Phi"], world["n"]
    new = X[:3] + 1.0
    k, K = new @ X.T, X @ X.T
    dense = (new - X.mean(axis=0)) @ Phi.T
    rest = k - K.mean(axis=0) - k.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(rest + K.mean(), dense, atol=1e-9)
    assert different(rest + K.sum(axis=0) / n**2, dense)


def test_explained_variance_is_a_share_of_eigenvalues(world):
    lam, X = world["lam"], world["X"]
    share = lam[:q].sum() / np.var(X, axis=0).sum() / len(X)
    model = KernelPCA(q, kernel="linear").fit(X)
    assert model.explained_variance_ratio_.sum() == pytest.approx(share)
    assert (lam[:q] ** 2).sum() / (lam**2).sum() > share + 0.05


# --- S4: lecture notes ----------------------------------------------------------------------


def test_the_gaussian_kernel_has_a_squared_distance():
    x, y, scale = np.array([[0.0, 0.0]]), np.array([[1.0, 2.0]]), 1.5
    apart = np.linalg.norm(x - y)
    value = RBF(length_scale=scale)(x, y)[0, 0]
    assert value == pytest.approx(np.exp(-(apart**2) / (2 * scale**2)))
    assert value != pytest.approx(np.exp(-apart / (2 * scale**2)), rel=0.1)


def test_the_discarded_sum_ends_at_the_dimension():
    X = np.random.default_rng(1).normal(size=(6, 9))  # N < D: S has D eigenvalues, some of them 0
    values = np.linalg.eigvalsh(np.cov(X.T, ddof=0))[::-1]
    model = PPCA(q).fit(X)
    assert model.noise_variance_ == pytest.approx(values[q:].sum() / (9 - q))
    assert model.noise_variance_ != pytest.approx(values[q:6].sum() / (6 - q), rel=0.1)


def test_coefficients_are_normalised_without_the_number_of_points(world):
    Phi, lam, E, n = world["Phi"], world["lam"], world["E"], world["n"]
    a = E[:, 0] / np.sqrt(lam[0])
    assert np.linalg.norm(Phi.T @ a) == pytest.approx(1.0)
    assert a @ (Phi @ Phi.T) @ a == pytest.approx(1.0)
    assert a @ (Phi @ Phi.T) @ a / n == pytest.approx(1 / n)
