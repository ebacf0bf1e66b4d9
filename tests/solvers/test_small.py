"""Small tables: the short ways through a fit give what the long ones give."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

from dualpca import PCA, PPCA, KernelPCA
from dualpca.arrays import backend, threads
from dualpca.data import Moments, moments, units
from dualpca.errors import SpectrumWarning
from dualpca.operators import Primal, primal
from dualpca.solvers import base, exact, solve
from dualpca.solvers.exact import top_pairs


def spread_table(n: int, d: int, smallest: float) -> np.ndarray:
    """Return rows whose singular values fall from 1 to `smallest`, exactly, with a mean."""
    rng = np.random.default_rng(0)
    ones = np.ones((n, 1))
    U = np.linalg.qr(np.hstack([ones, rng.normal(size=(n, d))]))[0][:, 1:]
    V = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return (U * np.geomspace(1, smallest, d)) @ V.T + 1


def test_ill_conditioned_tables_keep_their_small_singular_values():
    X = spread_table(60, 5, 1e-6)
    found = PCA().fit(X).singular_values_
    np.testing.assert_allclose(found, np.geomspace(1, 1e-6, 5), rtol=1e-8)


def test_well_conditioned_tables_are_not_factorised(monkeypatch):
    monkeypatch.setattr(base.SOLVERS["qr"], "solve", lambda *args: pytest.fail("QR was used"))
    X = spread_table(60, 5, 1e-2)
    np.testing.assert_allclose(PCA().fit(X).singular_values_, np.geomspace(1, 1e-2, 5), rtol=1e-10)


def test_columns_of_unlike_units_go_to_qr_before_any_eigenpair(monkeypatch):
    monkeypatch.setattr(base.SOLVERS["dense"], "solve", lambda *args: pytest.fail("squared"))
    X = load_wine().data
    expected = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)
    np.testing.assert_allclose(PCA().fit(X).singular_values_, expected, rtol=1e-10)


def few_of(values: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(values.size, values.size)))[0]
    A = (Q * values) @ Q.T
    A = (A + A.T) / 2
    return A.copy(), *top_pairs(A, rank)


def test_lanczos_on_a_stored_matrix_finds_what_lapack_finds():
    values = 1 / np.arange(1.0, 401)
    A, found, vectors = few_of(values, 6)
    np.testing.assert_allclose(found[::-1], values[:6], rtol=1e-12)
    np.testing.assert_allclose(A @ vectors, vectors * found, atol=1e-12)


@pytest.mark.parametrize("copies", [2, 5])
def test_equal_eigenvalues_are_all_found(copies):
    values = np.concatenate([np.full(copies, 3.0), 1 / np.arange(1.0, 301)])
    found = few_of(values, copies + 1)[1]
    np.testing.assert_allclose(found, [1.0] + copies * [3.0], rtol=1e-10)


def test_an_eigenvalue_that_lanczos_missed_is_noticed():
    values, vectors = 1 / np.arange(1.0, 301), np.eye(300)
    A, start = exact.MatrixProducts(np.diag(values)), np.random.default_rng(0).normal(size=300)
    for chosen, missed in (([2, 1, 0], False), ([3, 2, 0], True)):
        rest = exact._look(A, values[chosen], vectors[:, chosen], start)
        assert (rest.high > values[chosen[0]]) == missed


class Counted(exact.MatrixProducts):
    """A matrix that counts the products with it."""

    count = 0

    def matvec(self, v):
        self.count += 1
        return super().matvec(v)


@pytest.mark.parametrize("next_value, steps", [(0.9, 15), (0.99, 29), (0.999, 43)])
def test_a_look_is_as_long_as_the_next_value_is_close(next_value, steps):
    values = np.concatenate([[1.2, 1.0], next_value * np.linspace(1, 0, 298)])
    A, start = Counted(np.diag(values)), np.random.default_rng(0).normal(size=300)
    rest = exact._look(A, values[[1, 0]], np.eye(300)[:, [1, 0]], start)
    assert rest.high < 1 and A.count == steps


def test_small_negative_eigenvalues_of_a_given_matrix_are_noticed():
    values = 1 / np.arange(1.0, 801) ** 2
    values[-5:] = -1e-4  # too small for a few steps of Lanczos
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(800, 800)))[0]
    with pytest.warns(SpectrumWarning):
        KernelPCA(3, kernel="precomputed").fit((Q * values) @ Q.T)


@pytest.mark.parametrize("n", [50, 100_000])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_moments_of_small_tables_are_those_of_large_ones(n, dtype):
    X = (np.random.default_rng(0).normal(size=(n, 7)) + 100).astype(dtype)
    short = Moments.of(X)
    assert moments._small_moments(X) is not None
    _, mean, scatter = moments._any_moments(X, None, True, full=True)
    np.testing.assert_allclose(short.mean, mean, rtol=1e-14)
    np.testing.assert_allclose(short.scatter, scatter, rtol=1e-10, atol=1e-9)


def test_constant_columns_of_small_tables_have_no_variance_at_all():
    X = np.random.default_rng(0).normal(size=(30, 3))
    X[:, 1] = 0.1
    assert Moments.of(X).scatter[1, 1] == 0


def test_totals_of_wide_tables():
    X = np.random.default_rng(0).normal(size=(20, 300)) + 50
    operator = Primal(X)
    C = X - X.mean(axis=0)
    np.testing.assert_allclose(operator.trace, (C * C).sum(), rtol=1e-12)
    found = solve(operator, 3).values
    np.testing.assert_allclose(found, np.linalg.svd(C, compute_uv=False)[:3] ** 2, rtol=1e-10)


def test_complete_narrow_tables_are_not_read_for_missing_values(monkeypatch):
    monkeypatch.setattr(primal, "has_missing", lambda X: pytest.fail("read once more"))
    monkeypatch.setattr(units, "compared", lambda *args: pytest.fail("read once more"))
    PPCA(2).fit(np.random.default_rng(0).normal(size=(100, 5)))


def test_plain_arrays_are_checked_like_others():
    X = np.random.default_rng(0).normal(size=(40, 3))
    frame = pd.DataFrame(X, columns=list("abc"))
    model = PCA(2).fit(frame)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.transform(X)
    model.fit(X)
    assert not hasattr(model, "feature_names_in_")
    with pytest.raises(ValueError, match="X has 2 features, but PCA is expecting 3"):
        model.transform(X[:, :2])
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        PCA().fit(X[:1])


def test_projections_do_not_depend_on_how_they_are_computed():
    X = np.random.default_rng(0).normal(size=(9000, 60))
    for mean in (0.0, 3.0, 1e7):  # the last one is centred before the product
        model = PCA(4).fit(X + mean)
        expected = ((X + mean) - model.mean_) @ model.components_.T
        np.testing.assert_allclose(model.transform(X + mean), expected, rtol=0, atol=1e-12)


def test_little_work_takes_one_thread_and_gives_the_others_back(monkeypatch):
    before = threads.available()
    with threads.alone():
        assert threads.available() == 1
        with threads.outside(), threads.alone():
            assert threads.available() == 1
    assert threads.available() == before
    entered = []
    monkeypatch.setattr(threads, "alone", lambda: entered.append(1) or backend.nullcontext())
    for work in (1e3, 1e6, 1e9):
        with backend.one_thread(work, np.zeros(1)):
            pass
    assert len(entered) == 1
