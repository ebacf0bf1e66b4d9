"""The law of latent coordinates: integrals on grids are the judge, and known limits."""

import numpy as np
import pytest
from scipy import special

from dualpca.arrays import backend
from dualpca.gaussian import Factors, all_latents
from dualpca.models.copula import (
    CopulaFactors,
    LatentRows,
)
from tests.models.copula.cases import INF, law, nothing, rows_of


class Grid:
    """Everything by sums over a grid of t (q = 1 or 2)."""

    def __init__(self, factors, rows):
        axis = np.linspace(-6, 6, 301 if factors.q == 1 else 61)
        t = np.stack([x.ravel() for x in np.meshgrid(*[axis] * factors.q)], axis=1)
        self.t, self.factors = t, factors
        s = factors.s
        prior = np.exp(-0.5 * (t**2).sum(axis=1))
        self.prior = prior / prior.sum()
        mean, sd = t @ factors.W[:s].T, np.sqrt(factors.psi[:s])
        self.levels = [self.level_probabilities(c) for c in range(len(factors.sizes))]
        self.likelihoods = np.ones((rows.n, s + len(factors.sizes), t.shape[0]))
        for i in range(rows.n):
            for j in range(s):
                a, b = rows.low[i, j], rows.high[i, j]
                if a == b:
                    e = (a - mean[:, j]) / sd[j]
                    f = np.exp(-0.5 * (e**2 - a**2)) / sd[j]
                elif a > -INF or b < INF:
                    f = special.ndtr((b - mean[:, j]) / sd[j])
                    f -= special.ndtr((a - mean[:, j]) / sd[j])
                    f /= special.ndtr(b) - special.ndtr(a)
                else:
                    continue
                self.likelihoods[i, j] = f
            for c in range(len(factors.sizes)):
                k = rows.levels[i, c]
                if k >= 0:
                    p = self.levels[c][:, k]
                    self.likelihoods[i, s + c] = p / (p @ self.prior)
        joint = self.likelihoods.prod(axis=1) * self.prior
        self.evidence = np.log(joint.sum(axis=1))
        self.weights = joint / joint.sum(axis=1, keepdims=True)
        self.mean = self.weights @ t
        self.covariance = np.einsum("ip,pa,pb->iab", self.weights, t, t)
        self.covariance -= self.mean[:, :, None] * self.mean[:, None, :]

    def level_probabilities(self, c):
        part = self.factors.parts[c]
        eta = self.t @ self.factors.loadings_of(c).T + self.factors.shifts[part]
        y = np.linspace(-10, 12, 89)
        x = y[None, :, None] - eta[:, None, :]
        below, density = special.ndtr(x), np.exp(-0.5 * x**2) / np.sqrt(2 * np.pi)
        found = []
        for k in range(eta.shape[1]):
            others = np.delete(below, k, axis=2).prod(axis=2)
            found.append((density[:, :, k] * others).sum(axis=1) * (y[1] - y[0]))
        return np.stack(found, axis=1)

    def without(self, j):
        """Return the weights of t given all but column j."""
        joint = np.delete(self.likelihoods, j, axis=1).prod(axis=1) * self.prior
        return joint / joint.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("q", [1, 2])
@pytest.mark.parametrize("sizes", [(), (3,), (2, 4)])
def test_posterior_and_evidence_are_those_of_a_grid(q, sizes):
    factors = law(q, 5, sizes)
    rows, _, _ = rows_of(factors, 40)
    exact = Grid(factors, rows)
    mean, covariance = factors.posterior(rows)
    sd = np.sqrt(np.diagonal(exact.covariance, axis1=1, axis2=2))
    print(
        np.abs((mean - exact.mean) / sd).max(),
        np.abs(covariance - exact.covariance).max(),
        np.abs(factors.log_evidence(rows) - exact.evidence).max(),
    )
    assert np.abs((mean - exact.mean) / sd).max() < 0.03
    assert np.abs(covariance - exact.covariance).max() < 0.02
    assert np.abs(factors.log_evidence(rows) - exact.evidence).max() < 0.02


@pytest.mark.parametrize("sizes", [(3,), (2, 4)])
def test_entries_given_the_others_are_those_of_a_grid(sizes):
    factors = law(2, 5, sizes)
    rows, _, _ = rows_of(factors, 40)
    exact, found = Grid(factors, rows), factors.conditional(rows)
    for j in range(5):
        weights, s = exact.without(j), exact.t @ factors.W[j]
        mean = weights @ s
        variance = weights @ s**2 - mean**2 + factors.psi[j]
        off = np.abs(found.mean[:, j] - mean)
        known = rows.known()[0][:, j]
        assert off[~known].max() < 0.01
        assert off.max() < 0.1  # EP's cavities are a little less sure than EP itself
        assert np.median(off) < 0.01
        assert np.abs(found.variance[:, j] - variance)[~known].max() < 0.02
    for c in range(len(sizes)):
        p = exact.without(5 + c) @ exact.levels[c]
        assert np.abs(found.probabilities[c] - p).max() < 0.02
        np.testing.assert_allclose(found.probabilities[c].sum(axis=1), 1.0, rtol=1e-12)


# --- Limits that are known exactly ---------------------------------------------------------------


def test_known_values_are_the_gaussian_with_missing_values():
    factors = law(3, 7, ())
    rows, _, z = rows_of(factors, 50, known=range(7))
    X = np.where(rows.low == rows.high, z, np.nan)
    plain = all_latents(Factors(factors.W, np.zeros(7), factors.psi), X)
    mean, covariance = factors.posterior(rows)
    np.testing.assert_allclose(mean, plain.mean, atol=1e-12)
    np.testing.assert_allclose(covariance, plain.covariance, atol=1e-12)
    alone = np.nansum(-0.5 * (X**2 + np.log(2 * np.pi)), axis=1)
    np.testing.assert_allclose(factors.log_evidence(rows), plain.log_density - alone, atol=1e-10)


def test_a_row_that_knows_nothing_has_the_prior():
    factors = law(3, 4, (3,))
    rows = nothing(2, 4, (3,))
    mean, covariance = factors.posterior(rows)
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_allclose(covariance, np.tile(np.eye(3), (2, 1, 1)))
    found = factors.conditional(rows)
    np.testing.assert_allclose(found.variance, 1.0, rtol=1e-12)
    np.testing.assert_allclose(found.probabilities[0][0], factors.frequencies, atol=1e-6)


def test_two_levels_are_a_binary_column():
    factors = law(2, 4, (2,))
    rows, _, _ = rows_of(factors, 60)
    # ζ₁ − ζ₀ has noise 2; in units of its deviation it is a scalar coordinate
    w = factors.loadings_of(0)[1] - factors.loadings_of(0)[0]
    unit = np.sqrt(2 + w @ w)
    cut = (factors.shifts[0] - factors.shifts[1]) / unit
    level = rows.levels[:, 0]
    low = np.where(level == 1, cut, -INF)[:, None]
    high = np.where(level == 0, cut, INF)[:, None]
    W = np.concatenate([factors.W[:4], (w / unit)[None]])
    psi = np.append(factors.psi[:4], 2 / unit**2)
    binary = CopulaFactors(W, psi, np.zeros(0), np.zeros(0))
    other = LatentRows(
        np.concatenate([rows.low, low], axis=1),
        np.concatenate([rows.high, high], axis=1),
        np.zeros((60, 0), dtype=int),
    )
    for one, two in zip(factors.posterior(rows), binary.posterior(other), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)
    np.testing.assert_allclose(factors.log_evidence(rows), binary.log_evidence(other), atol=1e-5)
    law_of = binary.conditional(other)
    p = special.ndtr((law_of.mean[:, 4] - cut) / np.sqrt(law_of.variance[:, 4]))
    np.testing.assert_allclose(factors.conditional(rows).probabilities[0][:, 1], p, atol=1e-5)


@pytest.mark.parametrize("size", [0.9, 0.99, 0.9999])
def test_little_noise_is_stable(size):
    factors = law(2, 8, (3,), size=size)
    rows, _, _ = rows_of(factors, 200, known=(0, 1))
    exact = Grid(factors, rows) if size == 0.9 else None
    mean, covariance = factors.posterior(rows)
    assert np.isfinite(mean).all()
    assert (np.linalg.eigvalsh(covariance) > 0).all()
    assert np.isfinite(factors.log_evidence(rows)).all()
    if exact is not None:
        sd = np.sqrt(np.diagonal(exact.covariance, axis1=1, axis2=2))
        assert np.abs((mean - exact.mean) / sd).max() < 0.15


# --- Draws ---------------------------------------------------------------------------------------


def test_draws_have_the_law_of_the_grid():
    factors = law(1, 4, (3,))
    rows, _, _ = rows_of(factors, 4, missing=0.4, seed=3)
    exact, times = Grid(factors, rows), 4000
    z, levels = factors.draw(rows.take(np.repeat(np.arange(4), times)), np.random.default_rng(0))
    z, levels = z.reshape(4, times, 4), levels.reshape(4, times)
    for i in range(4):
        for j in range(4):
            if not rows.known()[0][i, j]:
                s = exact.t @ factors.W[j]
                mean = exact.weights[i] @ s
                variance = exact.weights[i] @ s**2 - mean**2 + factors.psi[j]
                assert z[i, :, j].mean() == pytest.approx(mean, abs=4 * (variance / times) ** 0.5)
                assert z[i, :, j].var() == pytest.approx(variance, rel=0.1)
        if rows.levels[i, 0] < 0:
            p = exact.weights[i] @ exact.levels[0]
            np.testing.assert_allclose(np.bincount(levels[i]) / times, p, atol=0.03)


def test_draws_keep_what_is_known():
    factors = law(2, 5, (3, 4))
    rows, _, _ = rows_of(factors, 300)
    z, levels = factors.draw(rows, np.random.default_rng(0))
    assert ((z >= rows.low) & (z <= rows.high)).all()
    seen = rows.levels >= 0
    np.testing.assert_array_equal(levels[seen], rows.levels[seen])
    assert (levels >= 0).all()
    again = factors.draw(rows, np.random.default_rng(0))
    np.testing.assert_array_equal(z, again[0])


def test_samples_have_the_correlations_and_frequencies():
    factors = law(2, 5, (3, 4))
    z, levels = factors.sample(40000, np.random.default_rng(0))
    np.testing.assert_allclose(np.corrcoef(z.T), factors.correlation, atol=0.03)
    for c, part in enumerate(factors.parts):
        np.testing.assert_allclose(
            np.bincount(levels[:, c]) / 40000, factors.frequencies[part], atol=0.012
        )


def test_rows_do_not_depend_on_their_blocks(monkeypatch):
    factors = law(2, 5, (3,))
    rows, _, _ = rows_of(factors, 200)
    whole = factors.posterior(rows)[0], factors.log_evidence(rows)
    monkeypatch.setattr(backend, "BLOCK_ROWS", 64)
    cut = factors.posterior(rows)[0], factors.log_evidence(rows)
    for one, two in zip(whole, cut, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)


def test_levels_that_are_asked_for_are_those_of_their_rows(monkeypatch):
    factors = law(2, 3, (3, 4))
    rows, _, _ = rows_of(factors, 60, missing=0.4)
    asked = (rows.levels < 0) & (np.random.default_rng(1).random((60, 2)) < 0.5)
    full = factors.conditional(rows)
    monkeypatch.setattr(backend, "BLOCK_BYTES", 4096)  # several blocks
    some = factors.conditional(rows, asked)
    np.testing.assert_allclose(some.mean, full.mean, atol=1e-4)
    for c in range(2):
        assert 0 < asked[:, c].sum() == len(some.probabilities[c])
        expected = full.probabilities[c][asked[:, c]]
        np.testing.assert_allclose(some.probabilities[c], expected, atol=1e-4)
