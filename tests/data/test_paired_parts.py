"""Canonical correlation of two tables in parts: the fit of the rows in memory."""

import numpy as np
import pytest

import dualpca as dp
from dualpca import Batches
from dualpca.data.moments import Moments, condensed
from dualpca.data.table import SlicedTable

dask_array = pytest.importorskip("dask.array")

rng = np.random.default_rng(0)
Z = rng.normal(size=(500, 2))
X = Z @ rng.normal(size=(2, 5)) * [1, 10, 1e-4, 1, 1e3] + rng.normal(size=(500, 5)) + 7.0
Y = Z @ rng.normal(size=(2, 3)) + 0.3 * rng.normal(size=(500, 3))
NAMES = ("correlations_", "x_weights_", "y_weights_", "x_loadings_", "y_noise_covariance_")

CUTS = {
    "batches": lambda A, rows: Batches([A[i : i + rows] for i in range(0, len(A), rows)]),
    "blocks": lambda A, rows: SlicedTable(A, part_rows=rows),
    "dask": lambda A, rows: dask_array.from_array(A, chunks=(rows, -1)),
}


def same(found, wanted):
    for name in NAMES:
        a, b = getattr(found, name), getattr(wanted, name)
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9 * np.abs(b).max(), err_msg=name)
    np.testing.assert_allclose(found.loglikelihood_, wanted.loglikelihood_, rtol=1e-10)
    np.testing.assert_allclose(found.p_values_, wanted.p_values_, rtol=1e-6, atol=1e-300)
    assert found.n_samples_ == wanted.n_samples_ == 500


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("rows", [(100, 100), (70, 110)])
def test_two_tables_in_parts(cut, rows):
    a, b = (CUTS[cut](A, size) for A, size in zip((X, Y), rows, strict=True))
    found, wanted = dp.CCA(2).fit(a, b), dp.CCA(2).fit(X, Y)
    same(found, wanted)
    u = found.transform(CUTS[cut](X, 90))
    u = u.compute() if cut == "dask" else np.vstack(list(u))
    np.testing.assert_allclose(u, wanted.transform(X), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("cut", CUTS)
def test_the_second_in_memory(cut):
    same(dp.CCA(2).fit(CUTS[cut](X, 90), Y), dp.CCA(2).fit(X, Y))
    one = dp.CCA(1).fit(CUTS[cut](X, 90), Y[:, 0])
    same(one, dp.CCA(1).fit(X, Y[:, 0]))
    assert one.predict(X).shape == (500,)


def test_rows_that_can_be_read_once():
    halves = (Batches(part for part in (A[:200], A[200:])) for A in (X, Y))
    same(dp.CCA(2).fit(*halves), dp.CCA(2).fit(X, Y))


def test_a_regularized_fit_and_one_of_low_rank():
    found = dp.CCA(2, regularization=0.1).fit(CUTS["blocks"](X, 90), CUTS["blocks"](Y, 90))
    wanted = dp.CCA(2, regularization=0.1).fit(X, Y)
    np.testing.assert_allclose(found.correlations_, wanted.correlations_, rtol=1e-9)
    np.testing.assert_allclose(found.loglikelihood_, wanted.loglikelihood_, rtol=1e-10)
    double = np.hstack([X, X[:, :1] + X[:, 1:2]])
    with pytest.warns(dp.errors.CanonicalWarning, match="5 of 6 directions"):
        low = dp.CCA(2).fit(CUTS["blocks"](double, 90), Y)
    np.testing.assert_allclose(low.correlations_, dp.CCA(2).fit(X, Y).correlations_, rtol=1e-8)


def test_condensed_rows_have_the_moments():
    given = Moments.of(X, rng.random(500))
    rows, weights = condensed(given)
    found = Moments.of(rows, weights)
    assert rows.shape == (10, 5)
    unit = np.sqrt(np.diag(given.scatter))
    np.testing.assert_allclose(
        found.scatter / unit / unit[:, None], given.scatter / unit / unit[:, None], atol=1e-13
    )
    np.testing.assert_allclose(found.mean, given.mean, rtol=1e-13)
    np.testing.assert_allclose(found.n, given.n, rtol=1e-14)


BAD = {
    "fewer rows": (
        lambda: dp.CCA(2).fit(SlicedTable(X, 90), SlicedTable(Y[:400], 90)),
        "as many rows as X",
    ),
    "more rows": (lambda: dp.CCA(2).fit(SlicedTable(X[:400], 90), Y), "as many rows as X"),
    "dask rows": (lambda: dp.CCA(2).fit(CUTS["dask"](X, 90), CUTS["dask"](Y[:9], 9)), "500 rows"),
    "dask memory": (lambda: dp.CCA(2).fit(CUTS["dask"](X, 90), Y[:9]), "as many rows as X"),
    "mixed": (
        lambda: dp.CCA(2).fit(SlicedTable(X, 90), CUTS["dask"](Y, 90)),
        "read by this process",
    ),
    "no second": (lambda: dp.CCA(2).fit(SlicedTable(X, 90)), "requires y"),
    "nan": (
        lambda: dp.CCA(2).fit(SlicedTable(X, 90), np.where(Y > 2, np.nan, Y)),
        "complete for chunked data",
    ),
    "weights": (lambda: dp.CCA(2).fit(SlicedTable(X, 90), Y, np.ones(500)), "sample_weight"),
    "count": (lambda: dp.CCA(4).fit(SlicedTable(X, 90), Y), "from 1 to 3"),
    "both": (lambda: dp.CCA(2).fit(X, Y).transform(SlicedTable(X, 90), Y), "without further"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be(name):
    work, words = BAD[name]
    with pytest.raises(ValueError, match=words):
        work()
