"""Landmarks, pivoted Cholesky and random features as solvers: exact limits, errors that fall."""

import numpy as np
import pytest

from dualpca import KernelPCA
from dualpca.errors import SolverWarning
from dualpca.kernels import RBF
from tests.operators.kernel_cases import GAMMA, random, rbf, rows
from tests.oracles.kernel_pca import gaussian, kernel_pca
from tests.tolerances import assert_close


@pytest.mark.grid
@pytest.mark.filterwarnings("ignore::dualpca.errors.SolverWarning")  # few landmarks leave some out
@pytest.mark.filterwarnings("ignore::dualpca.errors.SpectrumWarning")  # the sigmoid is indefinite
@pytest.mark.filterwarnings("ignore:the kernel matrix is nearly:dualpca.errors.ScaleWarning")
@pytest.mark.parametrize("solver", ["dense", "krylov", "cholesky", "uniform", "leverage", "kmeans"])
@pytest.mark.parametrize("seed", range(20))
def test_no_table_breaks_a_solver(seed, solver):
    # tables of many scales, half of them with repeated or rounded rows, for kernels of all kinds
    rng = random(seed)
    X = rng.random((int(rng.integers(2, 80)), int(rng.integers(1, 5)))) * 10 ** rng.uniform(-4, 3)
    X = np.round(X) if seed % 4 == 0 else np.repeat(X, 1 + seed % 2, axis=0)
    name = {"eigen_solver": solver}
    if solver in ("uniform", "leverage", "kmeans"):
        name = {"eigen_solver": "nystrom", "landmarks": solver}
    for kernel in ("linear", "poly", "rbf", "laplacian", "matern", "sigmoid", "chi2", "cosine",
                   "rational_quadratic", "arc_cosine"):  # fmt: skip
        model = KernelPCA(2, kernel=kernel, n_landmarks=int(rng.integers(1, 90)), **name).fit(X)
        for outcome in (model.eigenvalues_, model.transform(X), model.novelty(X)):
            assert np.all(np.isfinite(outcome)), kernel
        assert kernel == "sigmoid" or model.explained_variance_ratio_.sum() < 1 + 1e-8


# --- through the estimator -----------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["nystrom", "cholesky"])
@pytest.mark.parametrize("landmarks", ["uniform", "leverage", "kmeans"])
@pytest.mark.parametrize("center", [True, False])
def test_all_points_as_landmarks_are_exact(solver, landmarks, center):
    X, new = rows(), rows(9, seed=1)
    model = rbf(4, solver, landmarks=landmarks, center=center).fit(X)
    oracle = kernel_pca(gaussian(X, X, GAMMA), center=center)
    k = gaussian(new, X, GAMMA)
    assert_close(model.eigenvalues_, oracle.lam[:4], "covariance")
    assert_close(model.explained_variance_ratio_, oracle.lam[:4] / oracle.trace, "covariance")
    assert_close(model.transform(new), oracle.transform(k, 4), "vector")  # signs too
    assert_close(model.novelty(new), oracle.novelty(k, np.ones(9), 4), "vector")
    assert model.approximation_error_.trace < 1e-9


def test_error_falls_with_more_landmarks():
    X = rows(300)
    for landmarks in ("uniform", "leverage", "kmeans"):
        errors = [
            rbf(2, n_landmarks=m, landmarks=landmarks).fit(X).approximation_error_.trace
            for m in (5, 20, 80)
        ]
        assert errors[0] > 2 * errors[1] > 4 * errors[2]


def test_cholesky_reaches_tol_or_says_so():
    X = rows(300)
    model = rbf(2, "cholesky", tol=1e-3).fit(X)
    assert model.approximation_error_.trace <= 1e-3
    with pytest.warns(SolverWarning, match="5 landmarks leave"):
        model = rbf(2, "cholesky", tol=1e-3, n_landmarks=5).fit(X)
    assert model.approximation_error_.trace > 1e-3


@pytest.mark.slow
def test_fourier_eigenvalues_approach_the_exact_ones():
    X = rows(200)
    lam = kernel_pca(gaussian(X, X, GAMMA)).lam[:3]
    model = rbf(3, "fourier", n_landmarks=4000).fit(X)
    np.testing.assert_allclose(model.eigenvalues_, lam, rtol=0.1)
    bound = model.approximation_error_.residual
    assert np.all(np.abs(model.eigenvalues_ - lam) <= bound * model.eigenvalues_[-1] * 1.5)
    assert model.novelty_threshold(0.9) > 0


@pytest.mark.parametrize("kernel", ["linear", "poly", RBF(gamma=1.0, on=[0])], ids=str)
def test_fourier_of_other_kernels_is_a_clear_error(kernel):
    with pytest.raises(ValueError, match=r"RBF.*nystrom"):
        KernelPCA(2, kernel=kernel, eigen_solver="fourier").fit(rows())
