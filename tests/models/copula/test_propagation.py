"""Expectation propagation: narrow intervals, single entries and far rows, in closed form."""

import numpy as np
import pytest
from scipy import special

from dualpca.models.copula import (
    LatentRows,
    propagation,
)
from tests.models.copula.cases import INF, law, rows_of


def test_a_row_that_knows_one_entry_has_the_evidence_of_its_column():
    factors = law(2, 2, (4,))
    low = np.array([[0.3, -INF], [-INF, -1.0], [-INF, -INF], [-INF, -INF]])
    high = np.array([[0.3, INF], [INF, 0.5], [INF, INF], [INF, INF]])
    rows = LatentRows(low, high, np.array([[-1], [-1], [2], [-1]]), (4,))
    np.testing.assert_allclose(factors.log_evidence(rows), 0.0, atol=1e-6)


def test_a_narrow_interval_is_a_known_value():
    factors = law(2, 5, ())
    rows, _, z = rows_of(factors, 30, known=range(5), missing=0.2)
    known = rows.low == rows.high
    narrow = LatentRows(
        np.where(known, z - 1e-7, -INF), np.where(known, z + 1e-7, INF), rows.levels
    )
    for one, two in zip(factors.posterior(rows), factors.posterior(narrow), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)
    np.testing.assert_allclose(factors.log_evidence(rows), factors.log_evidence(narrow), atol=1e-5)


def test_rows_far_from_the_law_have_posteriors():
    factors = law(1, 3, (3,), size=0.95)
    low = np.array([[9.0, -INF, -INF], [8.0, 7.9, -INF]])
    high = np.array([[9.0, -9.0, INF], [INF, 8.0, -8.0]])
    rows = LatentRows(low, high, np.array([[0], [1]]), (3,))
    assert np.isfinite(factors.posterior(rows)[0]).all()
    assert np.isfinite(factors.log_evidence(rows)).all()


def test_an_entry_known_to_be_large_is_drawn_as_a_truncated_normal():
    factors, n = law(1, 2, ()), 4000
    low = np.tile([0.5, -INF], (n, 1))
    rows = LatentRows(low, np.full((n, 2), INF), np.empty((n, 0), dtype=int), ())
    z = factors.draw(rows, np.random.default_rng(0))[0]
    mean = np.exp(-0.125) / np.sqrt(2 * np.pi) / special.ndtr(-0.5)
    variance = 1 + 0.5 * mean - mean**2
    assert z[:, 0].mean() == pytest.approx(mean, abs=4 * np.sqrt(variance / n))
    assert z[:, 0].var() == pytest.approx(variance, rel=0.15)
    pull = factors.correlation[0, 1]
    assert z[:, 1].mean() == pytest.approx(pull * mean, abs=4 / np.sqrt(n))


def test_one_level_is_certain():
    found = propagation.log_level_probabilities(np.full((1, 4), 3.0), np.ones((1, 1, 4)))
    np.testing.assert_array_equal(found, np.zeros((1, 4)))


def test_what_a_changed_site_moves_is_that_of_its_marginal():
    mean, variance = np.array([2.0, -1.0, 0.5]), np.array([0.5, 2.0, 1.0])
    tau, nu = 1e-6 * np.array([1.0, -2.0, 3.0]), 1e-6 * np.array([0.3, 2.0, 1.5])
    after = 1 / (1 / variance + tau)
    shift = np.abs(after * (mean / variance + nu) - mean) / np.sqrt(variance)
    expected = np.maximum(shift, np.abs(after / variance - 1))
    found = propagation._moved(tau.copy(), nu.copy(), mean, variance)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert shift[0] > tau[0] * variance[0]  # each of the two decides somewhere
    assert shift[2] < tau[2] * variance[2]


def test_levels_alone_do_not_depend_on_where_they_begin():
    near, factors = law(2, 0, (3, 5), seed=1), law(2, 0, (3, 5))
    alone = factors.level_laws
    factors = law(2, 0, (3, 5))
    for one, two in zip(factors.found_near(near.level_laws), alone, strict=True):
        for a, b in zip(one, two, strict=True):
            np.testing.assert_allclose(a, b, atol=2e-5)
        assert np.abs(one.tau).min() > 1e-3  # there was something to find
    assert factors.level_laws[0].log_mass is factors.found_near(None)[0].log_mass  # they are kept
