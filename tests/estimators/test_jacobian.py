"""Derivatives of `transform`: against central differences, and in their limits."""

from __future__ import annotations

import numpy as np
import pytest

from dualpca import PCA, PPCA, BayesianPCA, DualPPCA, FactorAnalysis, KernelPCA
from dualpca.errors import DualPCAError
from dualpca.kernels import RBF, Function, Linear, Matern, Polynomial

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2)) @ RNG.normal(size=(2, 4)) + 0.3 * RNG.normal(size=(40, 4))
NEW = RNG.normal(size=(3, 4))
LINEAR = [
    PCA(2),
    PCA(2, whiten=True),
    PCA(2, standardize=True),
    PPCA(2),
    PPCA(2, standardize=True),
    FactorAnalysis(2),
    BayesianPCA(2),
]
KERNELS = [RBF(gamma=0.1), Linear(), Matern(nu=1.5), Polynomial(degree=3), RBF(on=[0, 2]) + 1.0]
KERNEL = [kind(2, kernel=k) for k in KERNELS for kind in (KernelPCA, DualPPCA)]
KERNEL += [
    KernelPCA(2, kernel=RBF(gamma=0.1), eigen_solver="nystrom", n_landmarks=15),
    KernelPCA(2, kernel=Function(np.dot)),
]


def differences(model, rows, h=1e-5):
    columns = []
    for j in range(rows.shape[1]):
        step = np.zeros(rows.shape[1])
        step[j] = h
        columns.append((model.transform(rows + step) - model.transform(rows - step)) / (2 * h))
    return np.stack(columns, axis=2)


@pytest.mark.parametrize("model", LINEAR + KERNEL)
def test_against_central_differences(model):
    model.fit(X)
    found = model.jacobian(NEW)
    assert found.shape == (3, 2, 4)
    np.testing.assert_allclose(found, differences(model, NEW), atol=2e-8)


@pytest.mark.parametrize("model", [PPCA(2), FactorAnalysis(2), PPCA(2, standardize=True)], ids=repr)
def test_missing_entries(model):
    model.fit(X)
    rows = NEW.copy()
    rows[0, 1], rows[2] = np.nan, np.nan
    found = model.jacobian(rows)
    for row, J in zip(rows[:2], found[:2], strict=True):
        for j in np.flatnonzero(~np.isnan(row)):
            ends = np.stack([row, row])
            ends[:, j] += [1e-5, -1e-5]
            y = model.transform(ends)
            np.testing.assert_allclose(J[:, j], (y[0] - y[1]) / 2e-5, atol=2e-8)
    assert not found[0, :, 1].any()
    assert not found[2].any()


def test_pca_far_from_the_origin_keeps_its_digits():
    far = X + 1e8
    model = PCA(2).fit(far)
    np.testing.assert_allclose(model.jacobian(far[:1])[0], model.components_, atol=1e-13)


def test_dtype_and_rows_are_kept():
    rows = NEW.astype(np.float32)
    before = rows.copy()
    assert PCA(2).fit(X.astype(np.float32)).jacobian(rows).dtype == np.float32
    assert np.array_equal(rows, before)


def test_random_features_and_kernel_matrices_have_none():
    model = KernelPCA(2, kernel="rbf", eigen_solver="fourier", n_landmarks=20).fit(X)
    with pytest.raises((DualPCAError, ValueError, AttributeError), match="random Fourier features"):
        model.jacobian(NEW)
    with pytest.raises((ValueError, AttributeError), match="kernel matrix"):
        KernelPCA(2, kernel="precomputed").fit(X @ X.T).jacobian(NEW @ X.T)


S = np.array([[0.3, 0.1, 0, 0], [0.1, 0.2, 0, 0], [0, 0, 0.1, -0.1], [0, 0, -0.1, 0.1]])


@pytest.mark.parametrize("model", [KernelPCA(2, kernel=RBF(gamma=0.1)), DualPPCA(2, gamma=0.1)])
@pytest.mark.parametrize("noise", [0.1, [0.1, 0.0, 2.0, 0.3], S])
def test_errors_of_entries_reach_the_latents(model, noise):
    model.fit(X)
    covariance = np.asarray(noise) if np.ndim(noise) == 2 else np.diag(np.ones(4) * noise) ** 2
    J = model.jacobian(NEW)
    expected = np.stack([j @ covariance @ j.T for j in J])
    np.testing.assert_allclose(model.latent_covariance(NEW, noise), expected, atol=1e-14)
    # small errors, drawn
    drawn = NEW[:1] + 1e-3 * np.random.default_rng(0).multivariate_normal(
        np.zeros(4), covariance, size=20_000
    )
    found = np.cov(model.transform(drawn).T)
    np.testing.assert_allclose(found * 1e6, expected[0], atol=0.03 * np.abs(expected[0]).max())


def test_errors_of_entries_that_cannot_be_are_refused():
    model = KernelPCA(2, kernel="rbf", gamma=0.1).fit(X)
    for noise in (-1.0, [1.0, 2.0], np.ones((3, 4)), np.nan, -S, S + np.tri(4)):
        with pytest.raises(ValueError, match="noise"):
            model.latent_covariance(NEW, noise)
    assert not model.latent_covariance(NEW, 0.0).any()
