"""Completed tables: parameters of the bootstrap, donors, bounds."""

from dataclasses import replace

import numpy as np
import pytest

from dualpca import PPCA
from dualpca.estimators._linear import drawn_parameters
from dualpca.gaussian import Factors
from dualpca.models import completing
from dualpca.models.completing import Donors, bounds_of, kept_within, needs_refits
from tests.estimators.imputer_cases import table

pytestmark = pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")


def test_parameters_are_the_fitted_ones_of_the_bootstrap():
    X = table(50, 4, missing=0.25)
    model, counts = PPCA(1, tol=1e-9).fit(X), np.random.default_rng(3)
    from dualpca.models.completing import RefitRequest, refits

    request = RefitRequest(steps=2000)
    (found,) = refits(model._model.factors, X, None, 1, counts, request)
    drawn = np.random.default_rng(3).multinomial(50, np.full(50, 0.02)).astype(float)
    wanted = PPCA(1, tol=1e-9).fit(X, sample_weight=drawn)
    C = found.W @ found.W.T + np.diag(found.psi)
    np.testing.assert_allclose(C, wanted.get_covariance(), rtol=0.01, atol=0.01)
    np.testing.assert_allclose(found.mu, wanted.mean_, atol=0.01)


def test_a_given_noise_stays():
    from dualpca.models.completing import refits

    X, model = table(), PPCA(2, noise_variance=0.3)
    model.fit(X)
    found = list(
        refits(model._model.factors, X, None, 3, np.random.default_rng(0), model._refit_request())
    )
    assert all(np.allclose(one.psi, 0.3) for one in found)


def test_donors_are_the_five_closest():
    values = np.arange(100.0)[:, None]
    donors, rng = Donors(values, values), np.random.default_rng(0)
    drawn = {donors.matched(np.array([[50.2]]), np.array([[True]]), rng)[0, 0] for _ in range(200)}
    assert drawn == {48.0, 49.0, 50.0, 51.0, 52.0}
    two = donors.matched(np.full((2, 1), 50.2), np.array([[False], [True]]), rng)
    assert two[0, 0] == 0 and two[1, 0] in drawn  # what is not missing stays empty
    few = Donors(values[:3], values[:3])
    assert few.matched(np.array([[9.0]]), np.array([[True]]), rng)[0, 0] in (0.0, 1.0, 2.0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((1, 0), "low <= high"),
        ([(0, 1)] * 3, "2 such pairs"),
        ("positive", "one such pair per column"),
        ([(0, 1), (0, 1, 2)], "column 1"),
        ({"z": (0, 1)}, "for columns of X"),
        (("a", "b"), r"\(low, high\)"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(given, words):
    with pytest.raises(ValueError, match=words):
        bounds_of(given, 2)


def test_bounds_by_name():
    ends = bounds_of({"b": (0, None)}, 2, ["a", "b"])
    np.testing.assert_array_equal(ends, [[-np.inf, 0], [np.inf, np.inf]])
    np.testing.assert_array_equal(bounds_of({1: (0, None)}, 2), ends)


def test_draws_have_noise_that_estimation_did_not_absorb():
    """Of a table of independent columns the noise is all there is: n/(n − 1) … by p parameters."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(40, 4))
    X[rng.random(X.shape) < 0.3] = np.nan
    model = PPCA(1).fit(X)
    factors, N = model._model.factors, np.sum(~np.isnan(X))
    request = completing.RefitRequest()
    excess = completing.unabsorbed(factors, X, None, request)
    p = 4 + 4 + 1  # mean, loadings, noise
    assert excess == pytest.approx(N / (N - p))
    assert completing.unabsorbed(factors, X, 2 * np.ones(40), request) == pytest.approx(
        2 * N / (2 * N - p)
    )
    assert completing.unabsorbed(factors, X, None, replace(request, fixed_noise=True)) == 1.0
    drawn = drawn_parameters(model, X, 3, np.random.default_rng(0), "bootstrap", None)
    plain = completing.refits(factors, X, None, 3, np.random.default_rng(0), request)
    for one, other in zip(drawn, plain, strict=True):
        np.testing.assert_allclose(one.psi, excess * other.psi)
        np.testing.assert_array_equal(one.W, other.W)


@pytest.mark.parametrize("whole", [None, [], [0], [1, 3], [0, 1, 2, 3]], ids=str)
@pytest.mark.parametrize("bounded", [False, True])
def test_missing_entries_alone_are_kept_within_bounds_and_whole(whole, bounded, backend):
    rng = np.random.default_rng(0)
    filled, missing = 5 * rng.normal(size=(40, 4)), rng.random((40, 4)) < 0.4
    ends = (
        np.array([[-2.5, -np.inf, 0.2, -np.inf], [3.5, 1.7, np.inf, np.inf]]) if bounded else None
    )
    found = kept_within(
        backend.asarray(filled),
        backend.asarray(missing),
        None if ends is None else ends.copy(),
        None if whole is None else np.array(whole, dtype=int),
    )
    expected = filled.copy()
    for i, j in zip(*np.nonzero(missing), strict=True):
        low, high = (-np.inf, np.inf) if ends is None else ends[:, j]
        if j in (whole or []):
            expected[i, j], low, high = round(filled[i, j]), np.ceil(low), np.floor(high)
        expected[i, j] = min(max(expected[i, j], low), high)
    np.testing.assert_array_equal(backend.numpy(found), expected)


@pytest.mark.parametrize("diagonal", [False, True])
def test_refits_are_needed_where_gaps_are_many_and_rows_are_enough_but_not_plenty(diagonal):
    """As many entries as fifty free parameters ask for, and at least max(20, 2(q + 1)) rows."""
    d, q = 4, 1
    factors = Factors(np.ones((d, q)), np.zeros(d), np.ones(d))
    numbers = d + (d + d * q if diagonal else 1 + d * q)

    def asked(n, gap=True, empty_rows=0, empty_column=False):
        X = np.zeros((n + empty_rows, d))
        X[n:] = np.nan
        X[0, 0] = np.nan if gap else 0.0
        X[:, 1] = np.nan if empty_column else 0.0
        X[n:] = np.nan
        return needs_refits(factors, X, diagonal)

    assert asked(100) and asked(20) and asked(20, empty_rows=7)
    assert not asked(100, gap=False)
    assert not asked(100, empty_column=True)
    assert not asked(19) and not asked(19, empty_rows=7)
    n = next(n for n in range(20, 10**4) if d * n - 1 >= 50 * numbers)  # one entry is missing
    assert asked(n - 1) and not asked(n)
