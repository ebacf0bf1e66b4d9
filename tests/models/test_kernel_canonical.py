"""Kernel CCA: CCA with linear kernels, the regularised eigenproblem with others, missing views."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import linalg
from sklearn.datasets import load_linnerud
from sklearn.metrics.pairwise import rbf_kernel

from dualpca import CCA, KernelCCA, load
from dualpca.data import InMemoryTable
from dualpca.errors import CanonicalWarning, DegenerateError
from dualpca.kernels import RBF, Linear
from dualpca.models import kernel_canonical
from dualpca.models.kernel_canonical import fit_kernel_canonical
from tests import oracles
from tests.oracles.canonical import two_views
from tests.tolerances import assert_close


def aligned(Z, reference):
    return Z * np.where(np.sum(Z * reference, axis=0) < 0, -1, 1)


def curved(n, rng, shared=True):
    """Return a line and a parabola, without linear correlation, each beside a column of noise."""
    t = rng.uniform(-1, 1, (n, 1))
    s = t if shared else rng.uniform(-1, 1, (n, 1))
    return (
        np.hstack([t, rng.normal(size=(n, 1))]) + 0.05 * rng.normal(size=(n, 2)),
        np.hstack([s**2, rng.normal(size=(n, 1))]) + 0.05 * rng.normal(size=(n, 2)),
    )


# --- linear kernels: CCA ----------------------------------------------------------------


@pytest.mark.parametrize("views", [load_linnerud(return_X_y=True), two_views()[:2]])
def test_linear_kernels_give_cca(views):
    X, Y = views
    new = X[:7] + 0.3 * X.std(axis=0)
    cca, model = CCA(2).fit(X, Y), KernelCCA(2, kernel="linear", regularization=0).fit(X, Y)
    np.testing.assert_allclose(model.correlations_, cca.correlations_, rtol=0, atol=1e-8)
    u, v = cca.transform(new, Y[:7])
    for found, wanted in zip(model.transform(new, Y[:7]), (u, v), strict=True):
        np.testing.assert_allclose(aligned(found, wanted), wanted, rtol=0, atol=1e-8)
    for given in ((new, None), (None, Y[:7]), (new, Y[:7])):
        mean, covariance = model.posterior(*given)
        wanted, theirs = cca.posterior(*given, parameters="fixed")
        np.testing.assert_allclose(aligned(mean, wanted), wanted, rtol=0, atol=1e-8)
        np.testing.assert_allclose(covariance, theirs, rtol=0, atol=1e-8)


def test_linear_kernels_with_a_ridge_give_cca_of_columns_of_one_variance():
    X, Y = (A / A.std(axis=0) for A in two_views(dx=4, dy=4)[:2])
    cca = CCA(2, regularization=4 * 0.05).fit(X, Y)  # a share of each of four variances of 1
    model = KernelCCA(2, kernel=Linear(), regularization=0.05).fit(X, Y)
    np.testing.assert_allclose(model.correlations_, cca.correlations_, rtol=0, atol=1e-8)
    wanted = cca.transform(X)
    np.testing.assert_allclose(aligned(model.transform(X), wanted), wanted, rtol=0, atol=1e-8)


def test_missing_views_with_linear_kernels_give_cca():
    X, Y = two_views()[:2]
    X[:40], Y[200:] = np.nan, np.nan
    cca = CCA(2, tol=1e-12).fit(X, Y)
    model = KernelCCA(2, kernel="linear", regularization=0, tol=1e-12).fit(X, Y)
    np.testing.assert_allclose(model.correlations_, cca.correlations_, rtol=0, atol=1e-6)
    mean, covariance = model.posterior(X, Y)
    wanted, theirs = cca.posterior(X, Y, parameters="fixed")
    np.testing.assert_allclose(aligned(mean, wanted), wanted, atol=1e-5)
    np.testing.assert_allclose(covariance, theirs, atol=1e-5)
    assert model.loglikelihood_ == pytest.approx(cca.loglikelihood_, rel=1e-6)


# --- other kernels: the regularised generalised eigenproblem ----------------------------


@pytest.mark.parametrize("ridge", [1e-3, 0.1])
def test_the_regularised_eigenproblem_of_kernel_matrices(ridge):
    """max αᵀKLβ under αᵀ(K² + nκK)α = βᵀ(L² + nλL)β = n (Hardoon et al. 2004, with K for I)."""
    X, Y = curved(40, np.random.default_rng(0))
    new = curved(5, np.random.default_rng(1))[0]
    n, (gamma, delta) = 40, (0.7, 2.0)
    H = np.eye(n) - 1 / n
    K, L = H @ rbf_kernel(X, gamma=gamma) @ H, H @ rbf_kernel(Y, gamma=delta) @ H
    kappa, lam = (ridge * np.trace(G) / n for G in (K, L))
    zero = np.zeros((n, n))
    # in coordinates: K = EΛEᵀ, as the eigenproblem in α is singular along the constant
    (lk, Ek), (ll, El) = oracles.eigh_descending(K), oracles.eigh_descending(L)
    P, Q = (E[:, : n - 1] * np.sqrt(v[: n - 1]) for E, v in ((Ek, lk), (El, ll)))
    zero = np.zeros((n - 1, n - 1))
    A = np.block([[zero, P.T @ Q], [Q.T @ P, zero]]) / n
    eye = np.eye(n - 1)
    B = linalg.block_diag(P.T @ P / n + kappa * eye, Q.T @ Q / n + lam * eye)
    rho, W = linalg.eigh(A, B)
    w = W[: n - 1, ::-1][:, :2] * np.sqrt(2)
    model = KernelCCA(
        2, kernel=RBF(gamma=gamma), y_kernel=RBF(gamma=delta), regularization=ridge
    ).fit(X, Y)
    assert_close(model.correlations_, rho[::-1][:2], "vector")
    u = P @ w
    assert_close(aligned(model.transform(X), u), u, "vector")
    k = rbf_kernel(new, X, gamma)
    kc = k - k.mean(axis=1, keepdims=True) - rbf_kernel(X, gamma=gamma).mean(axis=0)
    kc = kc + rbf_kernel(X, gamma=gamma).mean()
    signs = np.where(np.sum(model.transform(X) * u, axis=0) < 0, -1, 1)
    wanted = signs * (kc @ (Ek[:, : n - 1] / np.sqrt(lk[: n - 1])) @ w)
    assert_close(model.transform(new), wanted, "vector", scale=1.0)
    mean, covariance = model.posterior(new)
    assert_close(mean, np.sqrt(rho[::-1][:2]) * wanted, "vector", scale=1.0)
    assert_close(covariance[0], np.diag(1 - rho[::-1][:2]), "vector")


def test_it_finds_what_is_curved_where_cca_finds_nothing():
    rng = np.random.default_rng(0)
    (X, Y), (new, other) = curved(300, rng), curved(1000, rng)
    linear, model = CCA(1).fit(X, Y), KernelCCA(1).fit(X, Y)
    found = [
        np.corrcoef(*(part[:, 0] for part in m.transform(new, other)))[0, 1]
        for m in (linear, model)
    ]
    assert abs(found[0]) < 0.2 and found[1] > 0.75
    assert abs(model.held_out_correlations_[0] - found[1]) < 0.1


def test_tables_without_anything_in_common_have_correlations_of_chance():
    """On rows left out; and a permutation of rows gives correlations that are as large."""
    n, held, fitted, permuted = 80, [], [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, Y = curved(n, rng, shared=False)
        model = KernelCCA(1).fit(X, Y)
        held.append(model.held_out_correlations_[0])
        fitted.append(model.correlations_[0])
        permuted.append(KernelCCA(1).fit(X, Y[rng.permutation(n)]).correlations_[0])
    assert abs(np.mean(held)) < 3 / np.sqrt(20 * n) + 1 / np.sqrt(n)
    assert np.sum(np.array(held) > 2.5 / np.sqrt(n)) <= 2
    assert np.median(fitted) < 0.2 and abs(np.median(fitted) - np.median(permuted)) < 0.05


def test_without_regularization_correlations_are_1():
    X, Y = curved(60, np.random.default_rng(0), shared=False)
    with pytest.warns(CanonicalWarning, match="regularization"):
        model = KernelCCA(1, regularization=0).fit(X, Y)
    assert model.correlations_[0] > 0.999 and abs(model.held_out_correlations_[0]) < 0.4


# --- missing views, weights, and what is refused ----------------------------------------


def test_a_missing_view_is_known_by_the_other():
    rng = np.random.default_rng(0)
    X, Y = curved(200, rng)
    gaps = Y.copy()
    gaps[:80] = np.nan
    model = KernelCCA(1, n_directions=30).fit(X, gaps)
    assert model.n_iter_ > 1 and model.converged_ and model.n_samples_ == 200
    whole = KernelCCA(1, n_directions=30, regularization=model.regularization_).fit(X, Y)
    (mean, covariance), (wanted, _) = model.posterior(X, gaps), whole.posterior(X)
    assert abs(np.corrcoef(mean[:80, 0], wanted[:80, 0])[0, 1]) > 0.95
    assert np.all(covariance[:80] > covariance[80:].max())  # less is known of them
    assert_close(model.posterior(X[:80], gaps[:80])[0], model.posterior(X[:80])[0], "vector")
    u, v = model.transform(X, gaps)
    assert not np.any(v[:80]) and np.all(np.isfinite(u))
    unknown = np.full((3, 2), np.nan)
    assert not np.any(model.transform(unknown)) and not np.any(model.posterior(unknown)[0])
    np.testing.assert_allclose(model.posterior(unknown, unknown)[1], np.ones((3, 1, 1)))


def test_whole_weights_are_repetitions():
    X, Y = curved(30, np.random.default_rng(0))
    w = np.random.default_rng(1).integers(0, 4, 30)
    kernels = dict(kernel=RBF(gamma=1.0), y_kernel=RBF(gamma=2.0), regularization=0.01)
    weighted = KernelCCA(2, **kernels).fit(X, Y, sample_weight=w)
    repeated = KernelCCA(2, **kernels).fit(oracles.repeat(X, w), oracles.repeat(Y, w))
    assert_close(weighted.correlations_, repeated.correlations_, "vector")
    wanted = repeated.transform(X)
    assert_close(aligned(weighted.transform(X), wanted), wanted, "vector")


def test_each_view_finds_its_width():
    X, Y = curved(50, np.random.default_rng(0))
    model = KernelCCA(1).fit(X, 1000 * Y)
    assert model.kernel_.gamma > 1e4 * model.y_kernel_.gamma
    assert KernelCCA(1, gamma=0.5).fit(X, Y).y_kernel_.gamma == 0.5
    assert KernelCCA(1, y_kernel="linear").fit(X, Y).y_kernel_ == Linear()
    assert KernelCCA().fit(X, Y[:, 0]).n_components_ == 2


def test_few_rows_have_no_folds():
    X, Y = curved(12, np.random.default_rng(0))
    model = KernelCCA(1).fit(X, Y)
    assert model.regularization_ == 0.1 and model.held_out_correlations_ is None


def test_what_is_refused():
    X, Y = curved(30, np.random.default_rng(0))
    gaps = X.copy()
    gaps[3, 1] = np.nan
    for bad in ((gaps, Y), (Y, gaps)):
        with pytest.raises(ValueError, match="row 3"):
            KernelCCA(1).fit(*bad)
    nothing = np.full_like(X, np.nan)
    with pytest.raises(DegenerateError, match="fewer than two rows of X"):
        KernelCCA(1).fit(nothing, Y)
    first, second = X.copy(), Y.copy()
    first[:15], second[15:] = np.nan, np.nan
    with pytest.raises(DegenerateError, match="observe both views"):
        KernelCCA(1).fit(first, second)
    for wrong in (dict(kernel="precomputed"), dict(regularization=-1), dict(n_directions=0)):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            KernelCCA(1, **wrong).fit(X, Y)
    with pytest.raises(ValueError, match="n_components"):
        KernelCCA(3, kernel="linear", regularization=0).fit(X, Y)
    with pytest.raises(ValueError, match="requires y"):
        KernelCCA(1).fit(X)
    model = KernelCCA(1).fit(X, Y)
    with pytest.raises(ValueError, match="at least one view"):
        model.posterior()
    with pytest.raises(ValueError, match="3 columns"):
        model.transform(X, np.ones((30, 3)))
    with pytest.raises(ValueError, match=r"infinite|infinity"):
        model.transform(np.full((2, 2), np.inf))


# --- correlations of rows left out, and messages --------------------------------------------------


def test_components_that_folds_do_not_have_are_nan():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(25, 3))
    with pytest.warns(CanonicalWarning):
        model = KernelCCA(20, regularization=0).fit(X, X + rng.normal(size=(25, 3)))
    # 20 rows vary in 19 directions
    np.testing.assert_array_equal(np.isnan(model.held_out_correlations_), np.arange(20) == 19)


def test_only_leading_directions_are_left_out(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    Y = X + 0.1 * rng.normal(size=(300, 3))
    model = KernelCCA(120, gamma=3.0, regularization=0.1).fit(X, Y)
    found = model.held_out_correlations_
    np.testing.assert_array_equal(np.isnan(found), np.arange(120) >= 100)
    assert found[0] > 0.3
    model.save(tmp_path / "model.dpca")
    again = load(tmp_path / "model.dpca").held_out_correlations_
    np.testing.assert_array_equal(again, found)


@pytest.mark.parametrize("ridge", [0, 0.1, None])
def test_a_view_that_is_constant_but_for_one_fold(ridge):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), np.zeros(40)
    y[7] = 1.0
    kernels = {"kernel": "linear", "y_kernel": "linear"}
    model = KernelCCA(1, **kernels, regularization=ridge).fit(X, y)
    assert 0 < model.correlations_[0] < 1
    assert not np.any(np.abs(model.held_out_correlations_) > 1)


@pytest.mark.parametrize("bad", [(), (0,), (2,), (3, 4), (0, 1, 2, 3)])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_of_a_fold_that_cannot_be_fitted_do_not_count(bad, weighted, monkeypatch):
    """Correlations without them, whatever was fitted before; fits are told which rows they see."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(2, 40, 2))
    Y += X
    w = rng.uniform(0.5, 2.0, 40) if weighted else None
    folds, calls = np.random.default_rng(0).permutation(40) % 5, []
    plain = SimpleNamespace(variates=lambda rows: rows)

    def in_closed_form(rows, weights, dtypes, dx, how):
        used = folds != len(calls)
        calls.append(1)
        np.testing.assert_array_equal(rows, np.hstack([X, Y])[used])
        assert weights is None if w is None else np.array_equal(weights, w[used])
        if len(calls) - 1 in bad:
            raise DegenerateError("constant")
        return SimpleNamespace(canonical=SimpleNamespace(rho=np.ones(2), x=plain, y=plain))

    monkeypatch.setattr(kernel_canonical, "in_closed_form", in_closed_form)
    request = SimpleNamespace(seed=0)
    found = kernel_canonical._held_out([X, Y], w, 2, 0.1, request)
    good = ~np.isin(folds, bad)
    weight = (np.ones(40) if w is None else w)[good]
    expected = [
        weight @ (a * b) / np.sqrt((weight @ (a * a)) * (weight @ (b * b)))
        for a, b in zip(X[good].T, Y[good].T, strict=True)
    ]
    assert len(calls) == 5
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_every_regularization_is_judged_on_the_same_folds():
    rng = np.random.default_rng(1)
    X, Y = curved(80, rng)
    for seed in range(3):
        model = KernelCCA(1, random_state=np.random.default_rng(seed)).fit(X, Y)
        drawn = int(np.random.default_rng(seed).integers(2**63 - 1))
        request = replace(KernelCCA(1)._request(), seed=drawn)
        same = fit_kernel_canonical(InMemoryTable(X), InMemoryTable(Y), request)
        assert model.regularization_ == same.ridge
        np.testing.assert_array_equal(model.held_out_correlations_, same.held_out)


def test_messages_speak_of_this_model():
    X = np.random.default_rng(0).normal(size=(30, 2))
    with pytest.raises(ValueError, match="KernelCCA requires y to be passed"):
        KernelCCA(1).fit(X)
    match = "from 1 to 2, the number of directions of the feature space of the smaller view"
    with pytest.raises(ValueError, match=match):
        KernelCCA(3, kernel="linear").fit(X, X)
