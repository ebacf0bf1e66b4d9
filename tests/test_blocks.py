"""The properties again, with two threads and blocks of a few rows, the last of them short.

Tables of tests are small: they would fit into one block, and one thread would do. Here every sum
over rows is one over many blocks, shared out to threads, so that a block that is lost, read twice
or added to the wrong sum is seen by the same tests.
"""

from contextlib import contextmanager

import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import threadpool_limits

from dualpca.arrays import algebra, backend, threads
from dualpca.data import moments
from dualpca.data.moments import Moments, column_moments, total_moments
from dualpca.data.table import SlicedTable
from dualpca.errors import NonFiniteError
from dualpca.operators import primal
from tests import test_duality, test_equivalence, test_invariance, test_likelihood, test_limits
from tests.models import test_spiked
from tests.zoo import ESTIMATORS, assert_same, fitted, rows, said

pytestmark = pytest.mark.filterwarnings("ignore::dualpca.errors.ScaleWarning")

ROWS = 7
"""Of a block."""

PROPERTIES = {
    test_duality: (
        "test_primal_and_dual_spectra_are_equal",
        "test_operators_are_their_dense_matrices",
        "test_rbf_dual_spectrum_is_that_of_the_centred_kernel",
        "test_primal_and_dual_agree_on_new_points",
    ),
    test_equivalence: (
        "test_solver_finds_the_leading_eigenvalues",
        "test_solvers_agree_in_both_precisions",
        "test_solvers_agree_on_kernels",
        "test_ppca_is_the_dense_model",
        "test_posterior_is_the_dense_posterior",
    ),
    test_invariance: (
        "test_integer_weights_are_repeated_rows_for_ppca",
        "test_integer_weights_are_repeated_rows_for_pca",
        "test_every_solver_honours_weights",
        "test_standardised_pca_does_not_see_units",
        "test_partial_fit_over_any_chunks_is_fit",
    ),
    test_likelihood: ("test_score_samples_is_the_dense_density",),
    test_spiked: (
        "test_em_step_is_the_loop_over_points",
        "test_weighted_em_step_is_the_weighted_loop",
        "test_em_step_in_the_dual_is_the_step_in_the_primal",
    ),
    test_limits: ("test_at_full_rank_the_data_come_back",),
}
for _module, _names in PROPERTIES.items():
    globals().update({name: getattr(_module, name) for name in _names})


SETTINGS = (
    (backend, "block_rows", lambda width, like=None: ROWS),
    (backend, "BLOCK_ROWS", ROWS),
    (backend, "BLOCK_BYTES", 8 * ROWS),
    (moments, "AT_ONCE", 0),
    (moments, "NARROW_AT_ONCE", 0),
    (primal, "WORTH_THREADS", 0.0),
)
USUAL = [(module, name, getattr(module, name)) for module, name, _ in SETTINGS]


@contextmanager
def settings(values, count):
    with pytest.MonkeyPatch.context() as patch, threadpool_limits(count):
        for place in values:
            patch.setattr(*place)
        yield


@pytest.fixture(autouse=True, scope="module")
def many_small_blocks():
    with settings(SETTINGS, 2):
        assert threads.available() == 2
        yield


@pytest.mark.parametrize("name", ESTIMATORS)
def test_blocks_and_threads_change_no_estimator(name):
    X = rows(missing=ESTIMATORS[name][1])
    w = np.random.default_rng(3).uniform(0.5, 2.0, len(X))
    model = fitted(name, X, w)
    found = {key: value.copy() for key, value in said(model, X).items()}
    with settings(USUAL, 1):
        expected = fitted(name, X, w)
        assert_same(model, expected, X)
        for key, value in said(expected, X).items():
            size = np.max(np.abs(value))
            np.testing.assert_allclose(found[key], value, rtol=0, atol=1e-6 * size, err_msg=key)


@pytest.mark.parametrize("n", [1, 6, 7, 8, 29, 70, 71])
def test_every_block_is_read_once_and_in_its_place(n):
    X = np.arange(2.0 * n).reshape(n, 2)
    assert [s.stop - s.start for s in backend.row_slices(X)] == [7] * (n // 7) + [n % 7] * (
        n % 7 > 0
    )
    of = lambda rows: X[rows] @ np.eye(2)  # noqa: E731
    assert np.array_equal(backend.stacked(of, backend.row_slices(X), X), X)

    def placed(rows, out=None):
        return np.multiply(X[rows], 1.0, out=out)

    assert np.array_equal(backend.stacked_rows(placed, 2, X), X)
    assert np.array_equal(
        backend.summed(lambda rows: X[rows].sum(axis=0), np.add, X), X.sum(axis=0)
    )
    runs = backend.spread(lambda run: [(s.start, s.stop) for s in run], backend.row_slices(X), X)
    assert [s for run in runs for s in run] == [(s.start, s.stop) for s in backend.row_slices(X)]
    assert len(runs) == (2 if n > 21 else 1)
    strict = pytest.importorskip("array_api_strict")
    Y = strict.asarray(X)
    doubled = backend.stacked_rows(lambda rows: 2 * Y[rows, :], 2, Y)
    assert np.array_equal(backend.to_numpy(doubled), 2 * X)
    total = backend.summed(lambda rows: strict.sum(Y[rows, :], axis=0), strict.add, Y)
    assert np.array_equal(backend.to_numpy(total), X.sum(axis=0))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, sparse.csc_array])
def test_moments_are_those_of_repeated_rows(kind, center, weighted):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(45, 4)) * (rng.random((45, 4)) < 0.6) + 2 * (rng.random((45, 4)) < 0.3)
    w = rng.integers(0, 4, 45).astype(float) if weighted else None
    R = X if w is None else np.repeat(X, w.astype(int), axis=0)
    mean = R.mean(axis=0) if center else np.zeros(4)
    scatter = (R - mean).T @ (R - mean)
    found = Moments.of(kind(X), w, center=center)
    assert found.n == len(R)
    np.testing.assert_allclose(found.mean, mean, atol=1e-13)
    np.testing.assert_allclose(found.scatter, scatter, atol=1e-11)
    n, middle, squares = column_moments(kind(X), w, center=center)
    np.testing.assert_allclose(squares, np.diagonal(scatter), atol=1e-11)
    n, middle, total = total_moments(kind(X), w, center=center)
    np.testing.assert_allclose(middle, mean, atol=1e-13)
    assert n == len(R) and total == pytest.approx(np.trace(scatter))
    V = rng.normal(size=(4, 2))
    operator = primal.Primal(kind(X), w, center=center)
    np.testing.assert_allclose(operator @ V, scatter @ V, atol=1e-11)
    assert operator.trace == pytest.approx(np.trace(scatter))
    unit = primal.Primal(kind(X), w, center=center, standardize=True)
    scale = np.sqrt(np.diagonal(scatter) / len(R))
    np.testing.assert_allclose(
        unit @ V, scatter @ (V / scale[:, None]) / scale[:, None], atol=1e-10
    )


def test_sparse_products_are_summed_in_double_precision():
    C = sparse.csr_array(np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32))
    D = C.toarray().astype(np.float64)
    np.testing.assert_allclose(algebra.gram(C), D.T @ D, rtol=1e-13)


@pytest.mark.parametrize("wide", [False, True])
def test_missing_values_of_chunks_are_found_however_wide(wide):
    X = np.random.default_rng(0).normal(size=(30, 3))
    X[17, 1] = np.nan
    found = primal.survey(SlicedTable(X, part_rows=8), wide=wide, nan=True)
    assert found.missing and found.moments is None and found.used == 30
    with pytest.raises(NonFiniteError, match="row 17, column 1"):
        primal.survey(SlicedTable(X, part_rows=8), wide=wide, nan=False)
