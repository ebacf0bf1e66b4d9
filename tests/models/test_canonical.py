"""Canonical correlation: the generalised eigenproblem and dense Gaussians are the judges."""

import numpy as np
import pytest

from dualpca import CCA
from dualpca.gaussian import observed as conditioning
from dualpca.models.canonical import (
    DRAWS,
    CanonicalDraws,
    CanonicalFit,
    CanonicalRequest,
    bartlett,
    by_em,
    in_closed_form,
)
from dualpca.models.driver import maximize
from tests.models.canonical_cases import SINGULAR
from tests.oracles import canonical as oracle
from tests.oracles.canonical import DX, two_views, with_holes
from tests.tolerances import assert_close

FLOAT64 = ("float64", "float64")


@pytest.mark.parametrize("ridge", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("q", [1, 2, 4])
def test_em_without_holes_is_the_closed_form(q, weighted, ridge):
    X, Y = two_views()
    w = np.random.default_rng(1).uniform(0, 3, len(X)) if weighted else None
    given = (np.hstack([X, Y]), w, FLOAT64, DX, CanonicalRequest(q, ridge))
    closed, em = in_closed_form(*given).canonical, by_em(*given)
    assert em.history.converged
    em = em.canonical
    assert_close(em.covariance(), closed.covariance(), "em")
    assert_close(em.rho, closed.rho, "em")
    assert_close(em.x.directions, closed.x.directions, "em")
    assert_close(em.y.directions, closed.y.directions, "em")


def test_em_without_holes_starts_at_the_closed_form():
    X, Y = two_views()
    given, w = np.hstack([X, Y]) * 3.0, np.random.default_rng(1).uniform(0, 3, len(X))
    fit = CanonicalFit(given, DX, 2, w, CanonicalRequest())
    start = fit.model(fit.pack(fit.begin()))
    closed = in_closed_form(given, w, FLOAT64, DX, CanonicalRequest(2, 0.0)).canonical
    assert_close(start.covariance(), closed.covariance(), "covariance")


def test_em_from_a_far_start_reaches_the_closed_form_too():
    X, Y = two_views()
    fit = CanonicalFit(np.hstack([X, Y]), DX, 2, None, CanonicalRequest())
    start = np.random.default_rng(0).uniform(-0.2, 0.2, fit.pack(fit.begin()).size)
    theta, record = maximize(fit.step, start, tol=1e-10)
    assert record.n_iter <= 5  # nothing is missing, so one step is enough
    assert_close(fit.model(theta).covariance(), CCA(2).fit(X, Y).get_covariance(), "em")


@pytest.mark.slow
@pytest.mark.parametrize("q", [1, 2])
def test_em_stops_where_the_dense_likelihood_is_flat(q):
    X, Y = with_holes(*two_views(n=60, dx=3, dy=2), share=0.2, unpaired=0.2)
    fit = CanonicalFit(np.hstack([X, Y]), 3, q, None, CanonicalRequest())
    theta, _ = maximize(fit.step, fit.pack(fit.begin()), tol=1e-10)
    model = fit.model(theta)
    mean = np.concatenate([model.x.mu, model.y.mu])
    rng = np.random.default_rng(0)

    def value(move):
        """Return the log-likelihood after a move within the model: C = AAᵀ blocks, cross abᵀ."""
        parts = np.split(move, np.cumsum([5, 9, 4, 3 * q]))
        A, B = np.eye(3) + parts[1].reshape(3, 3), np.eye(2) + parts[2].reshape(2, 2)
        a = model.loadings(model.x) + parts[3].reshape(3, q)
        b = model.loadings(model.y) + parts[4].reshape(2, q)
        Cx, Cy = A @ model.x.covariance @ A.T, B @ model.y.covariance @ B.T
        C = np.vstack([np.hstack([Cx, a @ b.T]), np.hstack([b @ a.T, Cy])])
        return oracle.densities(mean + parts[0], C, np.hstack([X, Y])).sum()

    at = value(np.zeros(18 + 5 * q))
    for _ in range(20):
        move = rng.standard_normal(18 + 5 * q)
        slope = (value(1e-5 * move) - value(-1e-5 * move)) / 2e-5
        assert abs(slope) < 1e-4 * abs(at) / 100
        assert value(0.02 * move) < at


def test_half_of_the_rows_lack_a_view():
    X, Y = two_views(n=4000, seed=2)
    full = CCA(2).fit(X, Y)
    holes = with_holes(X, Y, share=0.0, unpaired=0.5)
    model = CCA(2).fit(*holes)
    assert model.converged_
    paired = ~(np.isnan(holes[0]).any(axis=1) | np.isnan(holes[1]).any(axis=1))
    only = CCA(2).fit(X[paired], Y[paired])
    np.testing.assert_allclose(model.correlations_, full.correlations_, atol=0.05)
    assert model.score(*holes) > only.score(*holes)  # unpaired rows tell of their own view
    batches = conditioning.groups(np.hstack(holes))
    assert sum(len(g.rows) for g in batches) == 3  # one inverse for each of three patterns
    assert np.unique(np.concatenate([g.rows.ravel() for g in batches])).size == 4000


def test_groups_hold_every_row_once_and_cut_long_patterns(monkeypatch):
    monkeypatch.setattr(conditioning.backend, "BLOCK_ROWS", 7)
    X, _ = with_holes(*two_views(n=100))
    X[:40, 0] = np.nan
    batches = conditioning.groups(X, np.arange(100.0))
    rows = np.concatenate([g.rows.ravel() for g in batches])
    np.testing.assert_array_equal(np.sort(rows), np.arange(100))
    for g in batches:
        assert g.rows.shape[1] <= 7
        for c, k in np.ndindex(g.rows.shape):
            x = X[g.rows[c, k]]
            np.testing.assert_array_equal(g.mask[c], ~np.isnan(x))
            np.testing.assert_array_equal(g.X[c, k], np.nan_to_num(x))
            assert g.w[c, k] == g.rows[c, k]


def test_one_step_is_the_loop_over_rows():
    X, Y = with_holes(*two_views(n=40), share=0.3, unpaired=0.3)
    w = np.random.default_rng(0).uniform(0, 2, 40)
    fit = CanonicalFit(np.hstack([X, Y]), DX, 2, w, CanonicalRequest())
    joint_now = fit.unpack(fit.pack(fit.begin()) + 0.05)  # means off the fixed point too
    C, Z = joint_now.covariance(), (np.hstack([X, Y]) - fit.origin) / fit.unit
    rows, left = [], 0.0
    for z, weight in zip(Z, w, strict=True):
        m, S = oracle.conditional(joint_now.mu, C, C, C, z)
        rows.append(m)
        left = left + weight * S
    rows = np.array(rows)
    shift = w @ rows / w.sum()
    expected = ((w[:, None] * rows).T @ rows + left) / w.sum() - np.outer(shift, shift)
    mu, S, value = fit._expect(joint_now)
    np.testing.assert_allclose(mu, joint_now.mu + shift, rtol=1e-10)
    np.testing.assert_allclose(S, expected, rtol=1e-9, atol=1e-12)
    dense = w @ oracle.densities(
        joint_now.mu * fit.unit + fit.origin, C * np.outer(fit.unit, fit.unit), np.hstack([X, Y])
    )
    assert value == pytest.approx(dense, rel=1e-10)


@SINGULAR
def test_p_values_are_none_where_there_is_no_test():
    X, Y = two_views()
    assert CCA(1, regularization=0.1).fit(X, Y).p_values_ is None
    assert CCA(1).fit(*with_holes(X, Y)).p_values_ is None
    assert CCA(1).fit(X[:4], Y[:4]).p_values_ is None
    assert bartlett(np.array([1.0]), 50, (1, 1))[0] == 0


# --- what other parameters the rows leave possible -----------------------------------------------


def few_pairs(n=40, seed=0):
    X, Y = (A[:n] for A in two_views(n=n + 5))
    return CCA(2).fit(X, Y), X, Y


def with_moments(rng, n, mean, C):
    """Return rows with exactly this mean and, with divisor n, this covariance."""
    Z = rng.normal(size=(n, len(mean)))
    Z -= Z.mean(axis=0)
    root = np.linalg.cholesky(Z.T @ Z / n)
    return mean + Z @ np.linalg.inv(root).T @ np.linalg.cholesky(C).T


def test_the_fit_to_a_sample_is_that_of_rows_with_its_moments():
    model, X, _ = few_pairs()
    fit, rng = model._model.canonical, np.random.default_rng(1)
    r, s = fit.x.F.shape[1], fit.y.F.shape[1]
    A = rng.normal(size=(60, r + s))
    moved, S = 0.1 * rng.normal(size=r + s), A.T @ A / 60
    H = np.block([[fit.x.F, np.zeros((len(fit.x.F), s))], [np.zeros((len(fit.y.F), r)), fit.y.F]])
    rows = with_moments(rng, 80, fit.mu + H @ moved, H @ S @ H.T)
    dx, found = X.shape[1], fit.sampled(moved, S)
    wanted = CCA(2).fit(rows[:, :dx], rows[:, dx:])._model.canonical
    assert_close(found.mu, wanted.mu, "vector", scale=10.0)
    assert_close(found.rho, wanted.rho, "vector", scale=10.0)
    for view, other in ((found.x, wanted.x), (found.y, wanted.y)):
        assert_close(view.covariance, other.covariance, "vector", scale=100.0)
        assert_close(view.H.T @ view.F, np.eye(view.F.shape[1]), "vector", scale=10.0)
        sign = np.sign(np.sum(view.directions * (other.covariance @ other.directions), axis=0))
        assert_close(view.directions, other.directions * sign, "vector", scale=1e4)


@pytest.mark.parametrize("given", ["x", "y", "both", "gaps"])
def test_latents_and_entries_are_off_as_the_fits_to_samples_are(given):
    model, X, Y = few_pairs()
    canonical = model._model.canonical
    draws = CanonicalDraws.of(canonical, 40.0)
    rng = np.random.default_rng(2)
    if given == "gaps":
        X, Y = (np.where(rng.random(A.shape) < 0.2, np.nan, A) for A in (X, Y))
    pair = {"x": (X, None), "y": (None, Y)}.get(given, (X, Y))
    mean, covariance = draws.latent(*pair)
    own, C = canonical.latent(*pair)
    assert len(draws.samples) == DRAWS and np.array_equal(mean, own)
    answers = [one.latent(*pair) for one in draws.samples]
    for i in range(0, len(mean), 7):
        off = sum(np.outer(m[i] - own[i], m[i] - own[i]) for m, _ in answers) / DRAWS
        short = np.diag(C[i]) / np.diag(sum(part[i] for _, part in answers) / DRAWS)
        by = np.sqrt(np.maximum(short, 1))
        np.testing.assert_allclose(covariance[i], C[i] * np.outer(by, by) + off, rtol=1e-10)
    if given == "gaps":
        full, std = draws.filled(X, Y)
        plain, known = canonical.filled(X, Y)
        samples = [one.filled(X, Y) for one in draws.samples]
        off = np.mean([(m - plain) ** 2 for m, _ in samples], axis=0)
        sure = np.mean([part**2 for _, part in samples], axis=0)
        hole = np.isnan(np.hstack([X, Y]))
        by = np.maximum(known[hole] ** 2 / sure[hole], 1)
        assert np.array_equal(full, plain) and not std[~hole].any()
        np.testing.assert_allclose(std[hole] ** 2, known[hole] ** 2 * by + off[hole], rtol=1e-10)


def test_errors_are_counted_of_few_rows_without_a_penalty():
    model, X, Y = few_pairs()
    auto, fixed = (model.posterior(X, parameters=p)[1] for p in ("auto", "fixed"))
    wider = np.diagonal(auto, axis1=1, axis2=2) > np.diagonal(fixed, axis1=1, axis2=2)
    assert wider.all()
    assert np.array_equal(auto, model.posterior(X, parameters="estimated")[1])
    X, Y = two_views(n=400)
    many = CCA(2).fit(X, Y)
    assert np.array_equal(many.posterior(X)[1], many.posterior(X, parameters="fixed")[1])
    ridge = CCA(2, regularization=0.1).fit(X[:40], Y[:40])
    assert np.array_equal(ridge.posterior(X)[1], ridge.posterior(X, parameters="fixed")[1])
    with pytest.raises(ValueError, match="parameters"):
        model.posterior(X, parameters="bootstrap")


def test_without_a_density_of_samples_parameters_count_as_known():
    model, X, _ = few_pairs()
    assert CanonicalDraws.of(model._model.canonical, X.shape[1] + 2.0) is None


def test_latents_of_few_pairs_hold():
    """90 % intervals of 30 pairs covered 70 % with parameters taken as known."""
    rng, inside = np.random.default_rng(3), []
    for _ in range(40):
        z = rng.normal(size=(90, 1))
        X, Y = (0.8 * z + 0.6 * rng.normal(size=(90, d)) * (np.arange(d) == 0) for d in (5, 4))
        X[:, 1:], Y[:, 1:] = rng.normal(size=(90, 4)), rng.normal(size=(90, 3))
        model = CCA(1).fit(X[:30], Y[:30])
        mean, covariance = model.posterior(X[30:])
        sign = np.sign(np.sum(mean * z[30:]))
        inside.append(np.abs(z[30:] * sign - mean)[:, 0] < 1.645 * np.sqrt(covariance[:, 0, 0]))
    assert 0.84 < np.mean(inside) < 0.95
