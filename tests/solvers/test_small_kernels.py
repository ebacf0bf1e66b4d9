"""Kernels of a few hundred points: Lanczos, thin factors, and what they must not miss."""

import numpy as np
import pytest

from dualpca import KernelPCA
from dualpca.errors import SpectrumWarning
from dualpca.kernels import RBF, Cosine, Linear, Precomputed, thin_factor
from dualpca.operators import Dual, Given, Gram, negative_mass_of
from dualpca.solvers import KernelOptions, solve_kernel
from dualpca.solvers.krylov import Krylov
from dualpca.solvers.lanczos import lanczos, lanczos_cost
from tests.tolerances import assert_close

RNG = np.random.default_rng(0)
X = RNG.standard_normal((400, 6))


def centred(K):
    return K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()


def dual_of(points, kernel, weights=None, center=True):
    return Dual(Gram(points, kernel, stored=True), None, weights, center=center)


@pytest.mark.parametrize("center", [True, False])
def test_one_vector_at_a_time_finds_what_eigh_finds(center):
    operator = dual_of(X, RBF(gamma=0.1), None if center else RNG.uniform(0.5, 2, 400), center)
    found = lanczos(operator, 5, 0.0, np.random.default_rng(0))
    values, vectors = np.linalg.eigh(operator.dense())
    assert_close(found.values, values[::-1][:5], "eigenvalue")
    assert_close(abs(found.vectors.T @ vectors[:, ::-1][:, :5]), np.eye(5), "vector")
    assert found.error < 1e-10 and operator.negative[0] == 0


@pytest.mark.parametrize("n", [300, 500])
def test_pairs_of_equal_eigenvalues_are_not_missed(n):
    angle = 2 * np.pi * np.arange(n) / n  # ARPACK alone misses some of a ring's pairs
    ring = np.column_stack([np.cos(angle), np.sin(angle)])
    for gamma in (0.1, 1.0, 10.0):
        exact = np.linalg.eigvalsh(centred(RBF(gamma=gamma)(ring, ring)))[::-1]
        for seed in range(3):
            for q in (2, 3, 6):
                model = KernelPCA(q, kernel="rbf", gamma=gamma, random_state=seed).fit(ring)
                assert_close(model.eigenvalues_, exact[:q], "eigenvalue")


def test_a_missed_pair_is_noticed():
    n = 500
    angle = 2 * np.pi * np.arange(n) / n
    operator = dual_of(np.column_stack([np.cos(angle), np.sin(angle)]), RBF(gamma=10.0))
    seen = [lanczos(operator, 2, 0.0, np.random.default_rng(seed)) for seed in range(8)]
    first = np.linalg.eigvalsh(operator.dense())[-1]
    assert all(found is None or abs(found.values[1] - first) < 1e-10 for found in seen)


def test_auto_weighs_the_three_ways():
    how = KernelOptions()
    tiny, middle = dual_of(X[:60], RBF()), dual_of(X, RBF())
    assert solve_kernel(tiny, 2, how)[1] == "dense"
    assert lanczos_cost(middle, 2) < Krylov.block_cost(middle, 2)
    assert np.isinf(lanczos_cost(dual_of(X[:60], RBF()), 20))  # the basis would fill the space
    assert np.isinf(lanczos_cost(Dual(Gram(X, RBF())), 2))  # a kernel that is not to be stored
    assert solve_kernel(dual_of(X, Linear()), 2, how)[1] == "qr"


@pytest.mark.parametrize("kernel", [Linear(), 3.0 * Linear(), Cosine(), Linear(on=[1, 4])])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_thin_factor_gives_the_kernel_and_its_eigenpairs(kernel, weighted):
    F = thin_factor(kernel, X)
    assert_close(F @ F.T, kernel(X, X), "covariance")
    operator = dual_of(X + 1.0, kernel, RNG.uniform(0, 2, 400) if weighted else None)
    found, name = solve_kernel(operator, F.shape[1], KernelOptions())
    exact, _ = solve_kernel(operator, F.shape[1], KernelOptions("dense"))
    assert name == "qr"
    assert_close(found.values, exact.values, "eigenvalue")
    assert_close(found.trace, exact.trace, "covariance")
    assert thin_factor(RBF(), X) is None


def test_all_components_of_a_linear_kernel_are_those_of_the_columns():
    model = KernelPCA(kernel="linear").fit(X)
    assert model.n_components_ == 6 and KernelPCA(8, kernel="linear").fit(X).n_components_ == 8
    assert_close(model.eigenvalues_, np.linalg.eigvalsh(np.cov(X.T) * 399)[::-1], "eigenvalue")


@pytest.mark.parametrize("kernel", ["rbf", "linear", "precomputed"])
def test_fit_transform_is_what_transform_gives(kernel):
    rows = RBF(gamma=0.1)(X, X) if kernel == "precomputed" else X
    model = KernelPCA(4, kernel=kernel)
    assert_close(model.fit_transform(rows), model.transform(rows), "vector")
    w = RNG.uniform(0.5, 2, 400)
    assert_close(model.fit_transform(rows, sample_weight=w), model.transform(rows), "vector")


@pytest.mark.parametrize("n", [60, 400, 800])
def test_negative_eigenvalues_of_a_given_matrix_are_left_out_as_exactly_as_ever(n):
    rng = np.random.default_rng(n)
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    values = np.concatenate([1 / np.arange(1, n - 9.0), -0.05 * np.ones(10)])
    K = (Q * values) @ Q.T
    K = (K + K.T) / 2
    before, exact = K.copy(), np.linalg.eigvalsh(centred(K))
    with pytest.warns(SpectrumWarning, match="negative eigenvalues sum to -0.4"):
        model = KernelPCA(3, kernel="precomputed").fit(K)
    share = exact[::-1][:3] / exact[exact > 0].sum()
    assert_close(model.explained_variance_ratio_, share, "covariance")
    assert np.array_equal(K, before)


def test_a_cholesky_factor_proves_that_nothing_is_negative():
    K = centred(RBF(gamma=0.1)(X, X))
    assert negative_mass_of(K)[0] == 0 and negative_mass_of(X @ X.T)[0] == 0
    negative, total = negative_mass_of(np.diag([1.0, 2.0, -1e-3]))
    assert_close([negative, total], [1e-3, 3.001], "eigenvalue")


def test_a_large_given_matrix_is_centred_without_a_copy():
    Y = np.random.default_rng(1).standard_normal((750, 4))
    K = RBF(gamma=0.2)(Y, Y)
    operator = Dual(Given(K, Precomputed()))
    matrix, centring = operator.matrix()
    assert matrix is K and centring
    found = lanczos(operator, 3, 0.0, np.random.default_rng(0))
    assert_close(found.values, np.linalg.eigvalsh(centred(K))[::-1][:3], "eigenvalue")
