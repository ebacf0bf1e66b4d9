"""The registry of kernel solvers: what every entry offers; a new one reaches all models."""

from typing import ClassVar

import numpy as np
import pytest

from dualpca import DualPPCA, KernelPCA
from dualpca.data import InMemoryTable
from dualpca.errors import SolverWarning
from dualpca.kernels import RBF, Linear, Precomputed
from dualpca.operators import Dual, Landmarks, MappedScatter
from dualpca.solvers import (
    KERNEL_SOLVERS,
    SOLVERS,
    FeatureSolver,
    KernelOptions,
    affordable_operator,
    dual_operator,
    gram_of,
    mapped_operator,
    solve_kernel,
)
from tests.tolerances import assert_close

X = np.random.default_rng(0).normal(size=(80, 3))
KERNEL = RBF(gamma=0.1)
APPROXIMATE = sorted(name for name, entry in KERNEL_SOLVERS.items() if entry.approximate)


def test_approximate_solvers_are_for_kernels_only():
    assert list(SOLVERS) == ["qr", "dense", "gram", "krylov"]
    assert APPROXIMATE == ["cholesky", "fourier", "nystrom"]
    assert KERNEL_SOLVERS["arpack"] is KERNEL_SOLVERS["randomized"] is KERNEL_SOLVERS["krylov"]


@pytest.mark.parametrize("name", KERNEL_SOLVERS)
def test_every_entry_finds_the_leading_eigenvalues(name):
    how = KernelOptions(name, n_landmarks=2000 if name == "fourier" else 80, seed=1)
    exact, _ = solve_kernel(dual_operator(X, KERNEL, None, how), 3, KernelOptions("dense"))
    if how.features is None:
        operator: Dual | MappedScatter = dual_operator(X, KERNEL, None, how)
    else:
        operator = mapped_operator(InMemoryTable(X), X, KERNEL, how.features, how)
    found, _ = solve_kernel(operator, 3, how)
    if name == "fourier":
        np.testing.assert_allclose(found.values, exact.values, rtol=0.1)
    else:
        assert_close(found.values, exact.values, "eigenvalue")


def test_auto_approximates_only_where_it_is_allowed_to():
    table = InMemoryTable(X)
    small = KernelOptions(tol=0.1, memory_limit=0.0)
    operator, name = affordable_operator(table, KERNEL, small)
    assert name == "cholesky" and operator.left_out <= 0.1
    for how in (
        KernelOptions(tol=0.1),  # the kernel can be stored
        KernelOptions(tol=1e-3, memory_limit=0.0),
        KernelOptions(tol=0.1, memory_limit=0.0, n_landmarks=1),  # leaves too much out
    ):
        assert affordable_operator(table, KERNEL, how) is None
    assert affordable_operator(InMemoryTable(X @ X.T), Precomputed(), small) is None


def test_a_new_entry_is_offered_by_every_kernel_model():
    try:

        class First(FeatureSolver):
            """The first rows as landmarks."""

            name: ClassVar[str] = "toy_first"

            @staticmethod
            def feature_map(X, kernel, w, how):
                return Landmarks.of(X[: how.n_landmarks], kernel)

        for model in (KernelPCA, DualPPCA):
            found = model(2, kernel=KERNEL, eigen_solver="toy_first", n_landmarks=20).fit(X)
            np.testing.assert_array_equal(found.X_fit_, X[:20])
            assert found.solver_ == "toy_first"
        assert "toy_first" not in SOLVERS
    finally:
        del KERNEL_SOLVERS["toy_first"]


def test_kernels_are_stored_in_the_precision_that_is_asked_for():
    def stored(double=False, kernel=KERNEL, **options):
        return gram_of(X, kernel, KernelOptions(**options), double=double).single

    assert stored(dtype="float32") and not stored(dtype="float64") and not stored()
    assert not stored(dtype="float32", double=True)
    assert stored(tol=1e-3) and not stored(tol=1e-3, double=True)  # loose enough for float32
    assert not stored(tol=1e-3, kernel=Linear())  # centring would take its digits


def test_float32_rows_are_fitted_as_exactly_as_they_are():
    rows = np.random.default_rng(1).normal(size=(3300, 3)).astype(np.float32)
    setting = dict(kernel="rbf", gamma=0.2, random_state=0)
    found = KernelPCA(4, **setting).fit(rows)
    exact = KernelPCA(4, **setting, dtype="float64").fit(rows)
    double = KernelPCA(4, **setting).fit(rows.astype(np.float64))
    np.testing.assert_allclose(found.eigenvalues_, double.eigenvalues_, rtol=1e-6)
    np.testing.assert_allclose(exact.eigenvalues_, double.eigenvalues_, rtol=1e-6)
    across = np.abs(found.eigenvectors_.T @ double.eigenvectors_)
    np.testing.assert_allclose(across, np.eye(4), atol=1e-4)
    assert found.eigenvalues_.dtype == np.float32


def test_float32_rows_follow_their_precision_only_where_that_is_enough():
    rows = np.random.default_rng(1).normal(size=(3300, 3)).astype(np.float32)

    def single(X=rows, kernel=KERNEL, **options):
        return KernelOptions(**{"as_rows": True, **options}).single(X, kernel)

    assert single()
    assert not single(dtype="float64") and not single(tol=1e-9)  # asked for more
    assert not single(rows.astype(np.float64)) and not single(rows[:3200])
    assert not single(kernel=Linear()) and not single(as_rows=False)
    # the last eigenvalues are far smaller than what float32 can tell beside a diagonal of ones
    wide = dict(kernel="rbf", gamma=1e-4, random_state=0, eigen_solver="krylov")
    found, double = (KernelPCA(6, **wide).fit(X) for X in (rows, rows.astype(np.float64)))
    np.testing.assert_allclose(found.eigenvalues_, double.eigenvalues_, rtol=1e-5)
    with pytest.warns(SolverWarning, match="Do not pass dtype='float32'"):
        KernelPCA(6, **wide, dtype="float32").fit(rows)


def test_pivots_follow_the_weights():
    heavy = np.where(np.arange(80) < 5, 1e6, 1.0)
    how = KernelOptions("cholesky", n_landmarks=5, tol=1e-12, seed=0)
    found = KERNEL_SOLVERS["cholesky"].feature_map(X, KERNEL, heavy, how).points
    chosen = {int(np.flatnonzero((X == point).all(axis=1))[0]) for point in found}
    assert len(chosen & set(range(5))) >= 4
    rows = KERNEL_SOLVERS["cholesky"].feature_map(X, KERNEL, None, how).points
    alone = {int(np.flatnonzero((X == point).all(axis=1))[0]) for point in rows}
    assert len(alone & set(range(5))) <= 3


def test_kernel_pca_approximates_where_it_is_allowed_to():
    options = {"kernel": KERNEL, "tol": 0.1}
    assert KernelPCA(2, **options, memory_limit=0).fit(X).solver_ == "cholesky"
    assert KernelPCA(2, **options).fit(X).approximation_error_.trace == 0
