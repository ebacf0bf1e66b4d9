"""Formulas of the theory that no other test evaluates, beside what the library computes."""

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import load_iris, load_linnerud

from dualpca import CCA, PCA, PPCA, KernelPCA, Monitor, ProbabilisticKernelPCA
from dualpca.kernels import RBF
from dualpca.models.kernel_space import KernelSpace
from dualpca.operators.features import Fourier, Landmarks

X = load_iris().data
n, d = X.shape
H = np.eye(n) - 1 / n


@pytest.mark.parametrize("model, divisor", [(PPCA(2), n), (PCA(2), n - 1)])
def test_control_limits(model, divisor):  # theory 16.1 to 16.3
    q, level = 2, 0.95
    model.fit(X)
    ell = np.linalg.eigvalsh(np.cov(X.T))[::-1] * (n - 1) / divisor
    Y = (X - X.mean(axis=0)) @ model.components_.T
    np.testing.assert_allclose(model.hotelling_t2(X), (Y**2 / ell[:q]).sum(axis=1))
    spe = ((X - X.mean(axis=0)) ** 2).sum(axis=1) - (Y**2).sum(axis=1)
    np.testing.assert_allclose(model.spe(X), spe, atol=1e-12)
    # 16.2: in units of the sample, with divisor n − 1
    unit, nu = divisor / (n - 1), n - 1 - q
    kept, lam = ell[:q] * unit, ell[q:] * unit
    second = (lam**2).sum() / lam.sum() ** 2
    second = (second - 1 / nu) * nu**2 / ((nu - 1) * (nu + 2))  # unbiased
    apart = np.sqrt(2 * second - 1) * np.array([1, -1])
    sizes = lam.sum() * (1 + apart) / 2  # of two residual variances with these sums
    spread = sizes + (sizes + lam.sum()) / nu
    g = 1 / (1 + (sizes / nu / (kept[:, None] - spread)).sum(axis=1))
    t2 = np.mean(g**2) * divisor * q * (n + 1) / (n * (n - q)) * stats.f.ppf(level, q, n - q)
    assert float(model.t2_limit(level)) == pytest.approx(t2)
    # 16.3: two residual variances are their own two sizes; 150 rows know them almost
    mean = (1 + 1 / n) * (lam.sum() + (kept * (1 - g**2)).sum())
    assert model._judge_for().degrees().mean[0] == pytest.approx(mean)
    drawn = np.random.default_rng(0).chisquare(1, (200_000, 2)) @ (lam * mean / lam.sum())
    assert float(model.spe_limit(level)) == pytest.approx(np.quantile(drawn, level), rel=0.03)
    assert model.outliers(X).t2_limit[0] == pytest.approx(model.t2_limit(level**0.5))


def test_two_tables():  # theory 17.1 to 17.3
    A, B = load_linnerud(return_X_y=True)
    model = CCA(2).fit(A, B)
    S = np.cov(A.T, B.T, ddof=0)
    Sxx, Sxy, Syy = S[:3, :3], S[:3, 3:], S[3:, 3:]

    def root(matrix):
        values, vectors = np.linalg.eigh(matrix)
        return vectors / np.sqrt(values) @ vectors.T

    kappa = np.linalg.svd(root(Sxx) @ Sxy @ root(Syy))[1][:2]
    np.testing.assert_allclose(model.correlations_, kappa)
    U, V = model.x_weights_, model.y_weights_
    np.testing.assert_allclose(model.x_loadings_, Sxx @ U * np.sqrt(kappa))
    noise = Sxx - model.x_loadings_ @ model.x_loadings_.T
    np.testing.assert_allclose(model.x_noise_covariance_, noise)
    a, b = (A - A.mean(axis=0)) @ U, (B - B.mean(axis=0)) @ V
    mean, covariance = model.posterior(A, B, parameters="fixed")
    np.testing.assert_allclose(mean, np.sqrt(kappa) * (a + b) / (1 + kappa))
    np.testing.assert_allclose(np.diag(covariance[0]), (1 - kappa) / (1 + kappa))
    y, C = model.predict(A, return_cov=True, parameters="fixed")
    np.testing.assert_allclose(y, B.mean(axis=0) + (np.sqrt(kappa) * a) @ model.y_loadings_.T)
    expected = Syy - (model.y_loadings_ * kappa) @ model.y_loadings_.T
    np.testing.assert_allclose(C[0] if C.ndim == 3 else C, expected)


def test_landmarks_and_random_features():  # theory 18.1 and 18.2
    kernel, Z = RBF(gamma=0.3), X[::15]
    f = Landmarks.of(Z, kernel)(X)
    k = kernel(X, Z)
    np.testing.assert_allclose(f @ f.T, k @ np.linalg.solve(kernel(Z, Z), k.T), atol=1e-7)
    left = kernel(X, X) - f @ f.T
    assert np.linalg.eigvalsh(left).min() > -1e-8
    random = Fourier.of(kernel, X, 20_000, np.random.default_rng(0))
    assert random.frequencies.var() == pytest.approx(2 * 0.3, rel=0.02)
    assert abs(random(X) @ random(X).T - kernel(X, X)).max() < 0.05


def test_kernel_coordinates_and_the_constant():  # theory 7.1, 9.1 and 10.2
    kernel, q = RBF(gamma=0.3), 2
    Kc = H @ kernel(X, X) @ H
    lam, E = np.linalg.eigh(Kc)
    lam, E = lam[::-1][:q], E[:, ::-1][:, :q]
    y = KernelPCA(q, kernel=kernel).fit_transform(X)
    np.testing.assert_allclose(abs(y), abs(E * np.sqrt(lam)), atol=1e-8)
    space = KernelSpace.fit(X, kernel, q)(X)
    np.testing.assert_allclose(abs(space), abs(Kc @ E / np.sqrt(lam)), atol=1e-8)

    sigma2 = (np.trace(Kc) - lam.sum()) / n / (n - q)
    B = E * np.sqrt(lam / n - sigma2)
    C = B @ B.T + sigma2 * np.eye(n)
    value = -0.5 * (np.linalg.slogdet(C)[1] + np.trace(np.linalg.solve(C, Kc)) / n)
    model = ProbabilisticKernelPCA(q, kernel=kernel).fit(X)
    assert model.noise_variance_ == pytest.approx(sigma2)
    np.testing.assert_allclose(abs(model.coordinates_), abs(B), atol=1e-8)
    assert model.loglikelihood_ == pytest.approx(value)
    known = ProbabilisticKernelPCA(q, kernel=kernel, feature_dim=40).fit(X)
    assert known.loglikelihood_ == pytest.approx(value - n / 2 * np.log(2 * np.pi * n / 40))
    place = np.sqrt(lam / n - sigma2) / lam * (Kc @ E)
    np.testing.assert_allclose(abs(model.transform(X)), abs(place), atol=1e-8)


def test_monitoring_through_time():  # theory 19.1 and 19.2
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(150, 2)) @ rng.normal(size=(2, 4)) + 0.5 * rng.normal(size=(150, 4))
    options = {"arl": 20, "statistics": ("mewma",), "trim": False, "smoothing": 0.2}
    monitor = Monitor(PPCA(1), **options).fit(rows)
    baseline = monitor._model.plan.baseline
    x = (rows[0] - baseline.center) / baseline.scale
    observed = np.array([0, 1, 3])
    C = baseline.covariance[np.ix_(observed, observed)]

    def distance(x):
        return x @ np.linalg.solve(C, x)

    found = monitor.contributions(np.where(np.isin(np.arange(4), observed), rows[:1], np.nan))[0]
    assert found[2] == 0
    for k, i in enumerate(observed):
        others = np.delete(np.arange(3), k)
        expected = x[observed].copy()
        expected[k] = C[k, others] @ np.linalg.solve(C[np.ix_(others, others)], expected[others])
        fall = distance(x[observed]) - distance(expected)
        assert abs(found[i]) == pytest.approx(fall / baseline.spread[i] ** 2)
        assert np.sign(found[i]) == np.sign(x[i] - expected[k])

    # the average along one axis: T² of a row is the square of its whitened score
    axis, ell = monitor.model_.components_[0], monitor.model_.explained_variance_[0]
    h = (rows - monitor.model_.mean_) @ axis / np.sqrt(ell)
    beta, average, t = 0.2, 0.0, np.arange(1, 151)
    averages = []
    for one in h:
        average = beta * one + (1 - beta) * average
        averages.append(average)
    mewma = (2 - beta) / (beta * (1 - (1 - beta) ** (2 * t))) * np.square(averages)
    np.testing.assert_allclose(monitor.chart(rows).statistics["mewma"], mewma)
