"""Densities of DualPPCA: of features on the span and in full, given latents, of kernel values.

Each against normal densities of explicit features, or of dense covariances of kernel values.
"""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel

from dualpca import PPCA, DualPPCA
from dualpca.errors import DegenerateError, DualPCAError
from dualpca.models import dual as dual_module
from tests import oracles
from tests.oracles import dual as dual_oracles
from tests.tolerances import assert_close, assert_log_density

KERNELS = {
    "rbf": (dict(gamma=0.3), lambda X, Y: rbf_kernel(X, Y, 0.3)),
    "poly": (
        dict(kernel="poly", degree=3, gamma=0.5, noise_dim=25),
        lambda X, Y: polynomial_kernel(X, Y, 3, gamma=0.5, coef0=1),
    ),
    "wide": (dict(kernel="linear"), lambda X, Y: X @ Y.T),  # more columns than rows
}
N, M = 25, 6
EVERY = pytest.mark.parametrize(
    "name, center, q", [(name, c, q) for name in KERNELS for c in (True, False) for q in (1, 3)]
)


def rows(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)) * np.linspace(2, 0.5, d) + 0.4


def fitted(name, center, q, **options):
    settings, kernel = KERNELS[name]
    d = 40 if name == "wide" else 4
    X, new = rows(N, d), rows(M, d, seed=1)
    model = DualPPCA(q, center=center, **{**settings, **options}).fit(X)
    return model, X, new, kernel


def normal(mean, covariance, x):
    """Return ln N(x; mean, covariance), on the range of a singular covariance."""
    return multivariate_normal(mean, covariance, allow_singular=True).logpdf(x)


@EVERY
def test_on_the_span_it_is_the_normal_density_of_projected_features(name, center, q):
    model, X, new, kernel = fitted(name, center, q)
    both = np.concatenate([X, new])
    F = dual_oracles.features(kernel(both, both), N, center)
    Z = dual_oracles.on_span(F, N, N)
    primal = oracles.ppca(Z[:N], q, center=False)
    found = model.score_samples(both, density="span")
    assert_log_density(found, oracles.log_density_solve(Z, 0 * Z[0], primal.covariance), N)
    assert found[:N].sum() == pytest.approx(model.loglikelihood_, rel=1e-8)
    full = model.score_samples(both, density="full")
    assert_log_density(found[:N], full[:N], N)
    off = np.sum(F * F, axis=1) - np.sum(Z * Z, axis=1)
    assert_log_density(full, found - 0.5 * off / model.noise_variance_, N)
    assert off[N:].max() > 1e-3 * np.sum(F * F, axis=1).max()  # there is something to tell apart


@EVERY
def test_features_given_latents(name, center, q):
    model, X, new, kernel = fitted(name, center, q)
    both = np.concatenate([X, new])
    F = dual_oracles.features(kernel(both, both), N, center)
    Z = dual_oracles.on_span(F, N, N)
    h = rows(N + M, q, seed=2)
    W = F[:N].T @ model.coefficients_  # in the features of the oracle
    for density, G in (("full", F), ("span", F @ np.linalg.pinv(F[:N], 1e-6) @ F[:N])):
        found = model.score_samples(both, density=density, latents=h)
        gap = np.sum((G - h @ W.T) ** 2, axis=1)
        s2 = model.noise_variance_
        expected = -0.5 * (N * np.log(2 * np.pi * s2) + gap / s2)
        assert_log_density(found, expected, N)
    # one of them as a density of coordinates
    U = Z[:N].T @ model.coefficients_
    one = normal(U @ h[-1], model.noise_variance_ * np.eye(N), Z[-1])
    assert model.score_samples(both, density="span", latents=h)[-1] == pytest.approx(one, rel=1e-7)


@EVERY
def test_densities_of_kernel_values(name, center, q):
    model, X, new, kernel = fitted(name, center, q)
    K, raw = kernel(X, X), kernel(new, X)
    Kc, kc = dual_oracles.centre(K, center=center), dual_oracles.cross(raw, K, center)
    A, s2, h = model.coefficients_, model.noise_variance_, rows(M, q, seed=2)
    marginal = Kc @ A @ A.T @ Kc + s2 * Kc
    expected = normal(np.zeros(N), marginal, kc)
    r = np.linalg.matrix_rank(Kc, hermitian=True)
    assert_log_density(model.score_kernel(raw), expected, r)
    assert_log_density(model.score_kernel(kc, centered=True), expected, r)
    given = [normal(Kc @ A @ z, s2 * Kc, k) for z, k in zip(h, kc, strict=True)]
    assert_log_density(model.score_kernel(raw, latents=h), given, r)
    # the change of variables from features to kernel values
    lam = oracles.eigh_descending(Kc)[0][:r]
    change = 0.5 * np.log(lam).sum() - 0.5 * (N - r) * np.log(2 * np.pi * s2)
    assert_log_density(model.score_samples(new, density="span") - change, expected, r)


def test_far_rows_are_likely_on_the_span_and_unlikely_in_full():
    X = rows(N, 4)
    model = DualPPCA(2, gamma=0.3).fit(X)
    assert model.score_samples(X + 50, density="span").mean() > model.score(X) > model.score(X + 50)


def test_weights_are_repetitions():
    X, new, w = rows(12, 3), rows(M, 3, seed=1), np.arange(1.0, 13.0)
    model = DualPPCA(2, gamma=0.3).fit(X, sample_weight=w)
    again = DualPPCA(2, gamma=0.3).fit(oracles.repeat(X, w.astype(int)))
    found = model.score_samples(new, density="span")
    assert_log_density(found, again.score_samples(new, density="span"), w.sum())
    W, s2 = model.coefficients_, model.noise_variance_
    F = dual_oracles.features(rbf_kernel(np.concatenate([X, new]), gamma=0.3), 12, False)
    F = F - w @ F[:12] / w.sum()
    kc, G = F[12:] @ F[:12].T, F[:12] @ F[:12].T
    assert_log_density(
        model.score_kernel(kc, centered=True), normal(0 * G[0], G @ W @ W.T @ G + s2 * G, kc), 11
    )


def test_linear_kernel_is_the_density_of_ppca():
    X, new = rows(30, 5), rows(M, 5, seed=1) + 3.0
    primal, model = PPCA(2).fit(X), DualPPCA(2, kernel="linear").fit(X)
    for density in ("span", "full"):
        found = model.score_samples(new, density=density)
        assert_log_density(found, primal.score_samples(new), 5)
    thin = DualPPCA(2, kernel="linear", noise_dim=5).fit(X[:4])  # of 5 columns, 4 rows span 3
    assert_log_density(
        thin.score_samples(new, density="span"), PPCA(2).fit(X[:4]).score_samples(new), 5
    )


def test_as_many_components_as_the_span_has_dimensions():
    X, new = rows(N, 4), rows(M, 4, seed=1)
    model = DualPPCA(N - 1, gamma=3.0, noise_dim=N - 1).fit(X)
    assert model.noise_variance_ == 0
    both = np.concatenate([X, new])
    Z = dual_oracles.on_span(dual_oracles.features(rbf_kernel(both, gamma=3.0), N), N, N - 1)
    expected = oracles.log_density_solve(Z, 0 * Z[0], Z[:N].T @ Z[:N] / N)
    assert_log_density(model.score_samples(both, density="span"), expected, N - 1)
    k = rbf_kernel(new, X, 3.0)
    lam = oracles.eigh_descending(oracles.centred_kernel(rbf_kernel(X, gamma=3.0)))[0][: N - 1]
    assert_log_density(model.score_kernel(k), expected[N:] - 0.5 * np.log(lam).sum(), N - 1)
    with pytest.raises(DegenerateError, match="no density"):
        model.score_kernel(k, latents=rows(M, N - 1))


@pytest.mark.parametrize("noise", [1e-4, 1e-7, 1e-10])
def test_without_noise_only_what_lies_on_the_components_is_likely(noise):
    X, new = rows(N, 4), rows(M, 4, seed=1)
    model = DualPPCA(2, gamma=0.3, noise_variance=noise).fit(X)
    # points of feature space on the components: their density grows as σ² falls, others' falls
    on = model.reconstruct_kernel(latents=rows(M, 2, seed=3))
    r, ell = N - 1, model.explained_variance_
    h2 = np.sum(rows(M, 2, seed=3) ** 2 * (1 - noise / ell), axis=1)
    lam = oracles.eigh_descending(oracles.centred_kernel(rbf_kernel(X, gamma=0.3)))[0][:r]
    constant = (
        r * np.log(2 * np.pi) + np.log(lam).sum() + np.log(ell).sum() + (r - 2) * np.log(noise)
    )
    assert_log_density(model.score_kernel(on, centered=True), -0.5 * (constant + h2), r)
    assert np.all(model.score_samples(new) * 1.9 * noise < 0.5 * -0.01)
    with pytest.raises(DegenerateError, match="no density"):
        DualPPCA(2, gamma=0.3, noise_variance=0).fit(X).score_samples(new)


def test_a_density_integrates_to_one():
    """Over the span of three points, a plane; with noise in as many dimensions."""
    X = np.array([[0.0], [1.0], [2.5]])
    model = DualPPCA(1, gamma=0.5, noise_dim=2).fit(X)
    side = np.linspace(-6, 6, 301)
    lam, E = oracles.eigh_descending(oracles.centred_kernel(rbf_kernel(X, gamma=0.5)))
    y = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2) * np.sqrt(lam[:2] / 3)
    kc = y * np.sqrt(lam[:2]) @ E[:, :2].T
    area = np.prod(np.sqrt(lam[:2] / 3) * (side[1] - side[0]) * np.sqrt(lam[:2]))
    assert np.exp(model.score_kernel(kc, centered=True)).sum() * area == pytest.approx(1, rel=1e-4)


@pytest.mark.parametrize("solver", ["nystrom", "cholesky", "fourier"])
def test_a_feature_map_is_the_whole_space(solver):
    X, new = rows(60, 4), rows(M, 4, seed=1)
    model = DualPPCA(2, gamma=0.1, eigen_solver=solver, n_landmarks=20).fit(X)
    assert np.array_equal(model.score_samples(new, density="span"), model.score_samples(new))
    if solver == "fourier":
        with pytest.raises(ValueError, match="eigen_solver"):
            model.score_kernel(np.ones((1, 60)))
        return
    Z = model.X_fit_
    raw, mean = model.kernel_(new, Z), model.transform(new)
    assert_close(model.posterior_kernel(raw)[0], mean, "vector")
    lam, E = oracles.eigh_descending(model.kernel_(Z, Z))
    F, G, anchors = (model.kernel_(A, Z) @ E / np.sqrt(lam) for A in (X, new, Z))
    primal = oracles.ppca(F, 2)
    kc = (G - primal.mean) @ (anchors - primal.mean).T
    S = (anchors - primal.mean) @ primal.covariance @ (anchors - primal.mean).T
    for found in (model.score_kernel(raw), model.score_kernel(kc, centered=True)):
        assert_log_density(found, normal(0 * S[0], S, kc), 20)
    assert_close(model.posterior_kernel(kc, centered=True)[0], mean, "vector")


def test_axes_of_landmarks_have_one_sign_everywhere():
    X = rows(60, 4)
    for seed in range(4):
        model = DualPPCA(3, gamma=0.1, eigen_solver="nystrom", n_landmarks=20, random_state=seed)
        weights = model.fit(X).preimage_weights(model.transform(X))
        values = weights @ model.kernel_(model.X_fit_, model.X_fit_)
        assert_close(model.reconstruct_kernel(X, centered=False), values, "vector")


def test_precomputed_kernels_need_no_diagonal_on_the_span():
    X, new = rows(N, 4), rows(M, 4, seed=1)
    model = DualPPCA(2, gamma=0.3).fit(X)
    given = DualPPCA(2, kernel="precomputed").fit(rbf_kernel(X, gamma=0.3))
    k = rbf_kernel(new, X, 0.3)
    on_span = given.score_samples(k, density="span")
    assert_log_density(on_span, model.score_samples(new, density="span"), N)
    full = given.score_samples(k, np.ones(M), density="full")
    assert_log_density(full, model.score_samples(new, density="full"), N)


def test_rows_with_missing_values_span_their_expected_features():
    X, new = rows(N, 4), rows(M, 4, seed=1)
    X[::5, 1] = np.nan
    model = DualPPCA(2, gamma=0.05).fit(X)
    found, full = model.score_samples(new, density="span"), model.score_samples(new)
    assert np.all(found >= full - 1e-6) and np.any(found > full + 1e-3)


def test_many_points_are_spanned_by_pivots(monkeypatch):
    X, new = rows(300, 2), rows(M, 2, seed=1)
    exact = DualPPCA(3, gamma=0.05).fit(X)
    expected = exact.score_samples(new, density="span")
    monkeypatch.setattr(dual_module, "DENSE_MOST", 200)
    model = DualPPCA(3, gamma=0.05).fit(X)
    assert model._model.space.whole[1].shape[1] < 200
    assert np.allclose(model.score_samples(new, density="span"), expected, rtol=1e-4)
    rough = DualPPCA(3, gamma=50.0).fit(X)
    with pytest.raises(DualPCAError, match="density='full'"):
        rough.score_samples(new, density="span")
    assert np.all(np.isfinite(rough.score_samples(new)))


def test_what_is_refused():
    X = rows(N, 4)
    model = DualPPCA(2, gamma=0.3).fit(X)
    with pytest.raises(ValueError, match="density"):
        model.score_samples(X, density="half")
    with pytest.raises(ValueError, match="25 rows"):
        model.score_samples(X, latents=np.ones((3, 2)))
    with pytest.raises(ValueError, match="25"):
        model.score_kernel(np.ones((2, 24)))
    with pytest.raises(ValueError, match="3 rows"):
        model.score_kernel(np.ones((3, 25)), latents=np.ones((2, 2)))
    with pytest.raises(ValueError, match="centered"):
        model.score_kernel(np.ones((3, 25)), centered="no")
