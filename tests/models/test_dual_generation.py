"""Generation in the dual (De Plaen & Suykens 2023, section 4.4): B, kernel values, and back."""

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from dualpca import DualPPCA, KernelPCA
from dualpca.errors import DegenerateError, DualPCAError
from dualpca.models import dual as kernel_values
from dualpca.preimages import PREIMAGES, Learned, PlainSmoother, Smoother, Span
from dualpca.preimages import base as preimages
from tests import oracles
from tests.oracles import dual as dual_oracles
from tests.oracles.preimage import Cauchy, dense_distance
from tests.tolerances import assert_close

GAMMA = 0.3


def rows(n=25, d=4, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)) * np.linspace(2, 0.5, d) + 0.4


def model_of(center=True, q=3, X=None, **options):
    X = rows() if X is None else X
    return DualPPCA(q, gamma=GAMMA, center=center, **options).fit(X), X


CENTER = pytest.mark.parametrize("center", [True, False])


# --- the operator B ---------------------------------------------------------------------


@CENTER
@pytest.mark.parametrize("sigma2", [None, 0.001, 0.0])
def test_the_sampling_operator_is_the_published_matrix(center, sigma2):
    model, X = model_of(center, noise_variance=sigma2)
    B, noise = dual_oracles.sampling_matrix(rbf_kernel(X, X, GAMMA), 3, center, sigma2)
    assert model.noise_variance_ == pytest.approx(noise, rel=1e-9)
    operator = model.sampling_operator()
    assert operator.shape == (25, 25)
    assert_close(operator @ np.eye(25), B, "vector")
    assert_close(operator.T @ np.eye(25), B, "vector")
    xi = np.random.default_rng(1).standard_normal((6, 25))
    assert_close(model.sample_kernel(noise=xi), xi @ B, "vector")
    assert_close(operator @ xi[0], B @ xi[0], "vector")


def test_the_sampling_operator_gives_the_covariance_of_the_model():
    model, X = model_of()
    B = model.sampling_operator() @ np.eye(25)
    dense = dual_oracles.dual(rbf_kernel(X, X, GAMMA), 3)
    assert_close(B @ B.T, dense.marginal, "vector")


def test_by_lanczos_it_is_the_same_operator(monkeypatch):
    model = DualPPCA(3, gamma=2.0).fit(rows(120))
    xi = np.random.default_rng(1).standard_normal((3, 120))
    dense = model.sample_kernel(noise=xi), model.sampling_operator().T @ xi.T
    monkeypatch.setattr(kernel_values, "DENSE_ORDER", 0)
    monkeypatch.setattr(kernel_values, "DENSE_MOST", 0)
    assert_close(model.sample_kernel(noise=xi, tol=1e-9), dense[0], "residual")
    assert_close(model.sampling_operator(tol=1e-9).T @ xi.T, dense[1], "residual")


def test_with_weights_it_gives_the_covariance_of_repeated_points():
    X, w = rows(12), np.tile([1.0, 2.0, 3.0], 4)
    weighted = DualPPCA(2, gamma=GAMMA).fit(X, sample_weight=w)
    B = weighted.sampling_operator() @ np.eye(12)
    repeated = DualPPCA(2, gamma=GAMMA).fit(np.repeat(X, w.astype(int), axis=0))
    C = repeated.sampling_operator() @ np.eye(24)
    first = np.concatenate([[0], np.cumsum(w.astype(int))[:-1]])
    assert_close(B @ B.T, (C @ C.T)[np.ix_(first, first)], "residual")
    assert_close(weighted.sampling_operator().T @ np.eye(12), B.T, "vector")


@pytest.mark.parametrize("solver", ["nystrom", "fourier"])
def test_a_finite_map_has_noise_in_its_features(solver):
    model, _ = model_of(eigen_solver=solver, n_landmarks=10)
    B = model.sampling_operator()
    space, V = model._model.space, model._model.space.axes
    C = (V * model.explained_variance_) @ V.T
    C += model.noise_variance_ * (np.eye(len(V)) - V @ V.T)
    assert B.shape == (len(model.X_fit_), len(V))
    dense = B @ np.eye(len(V))
    assert_close(dense @ dense.T, space.features @ C @ space.features.T, "vector")
    assert_close(B.T @ np.eye(len(dense)), dense.T, "vector")


def test_given_noise_is_checked():
    model, _ = model_of()
    for bad in (np.ones((2, 24)), np.full((2, 25), np.nan), np.ones(25)):
        with pytest.raises(ValueError):
            model.sample_kernel(noise=bad)


# --- kernel values and features of given latents ----------------------------------------


@CENTER
def test_kernel_values_of_given_latents(center):
    model, X = model_of(center)
    h = np.random.default_rng(2).standard_normal((5, 3))
    K = rbf_kernel(X, X, GAMMA)
    Kc = dual_oracles.centre(K, center=center)
    expected = h @ model.coefficients_.T @ Kc
    assert_close(model.reconstruct_kernel(latents=h), expected, "vector")
    assert_close(
        model.reconstruct_kernel(latents=model.transform(X)), model.reconstruct_kernel(X), "vector"
    )
    weights = model.preimage_weights(h)
    assert_close(model.reconstruct_kernel(latents=h, centered=False), weights @ K, "vector")
    with pytest.raises(ValueError, match="one of the two"):
        model.reconstruct_kernel()
    with pytest.raises(ValueError, match="one of the two"):
        model.reconstruct_kernel(X, latents=h)


@CENTER
def test_drawn_features_have_the_law_of_the_model(center):
    model, X = model_of(center)
    K = rbf_kernel(X, X, GAMMA)
    Kc, base = dual_oracles.centre(K, center=center), np.full(25, 1 / 25 if center else 0.0)
    h = np.array([[1.0, -0.5, 2.0]])
    drawn = model.sample_features_given(np.repeat(h, 40_000, axis=0), random_state=0)
    values = (drawn - base) @ (K - (K @ base)[:, None])  # centred on both sides
    mean, C = (h @ model.coefficients_.T @ Kc)[0], model.noise_variance_ * Kc
    error = np.sqrt(np.diag(C) / 40_000)
    assert np.all(np.abs(values.mean(axis=0) - mean) < 5 * error)
    off = values - mean
    scale = np.sqrt((np.outer(np.diag(C), np.diag(C)) + C**2) / 40_000)
    assert np.all(np.abs(off.T @ off / 40_000 - C) < 5 * scale + 1e-12)
    # the whole squared length of the noise: sigma^2 for every direction of the span
    rank = 24 if center else 25
    length = np.sum((drawn @ Kc) * drawn, axis=1).mean() if not center else None
    if length is not None:
        signal = (h * model._latent_scale()) ** 2
        assert length == pytest.approx(signal.sum() + rank * model.noise_variance_, rel=0.02)
    marginal = model.sample_features(40_000, random_state=1)
    values = (marginal - base) @ (K - (K @ base)[:, None])
    C = dual_oracles.dual(K, 3, center).marginal
    scale = np.sqrt((np.outer(np.diag(C), np.diag(C)) + C**2) / 40_000)
    assert np.all(np.abs(values.T @ values / 40_000 - C) < 5 * scale + 1e-12)


def test_without_noise_drawn_features_are_the_latents():
    model, _ = model_of(noise_variance=0)
    h = np.random.default_rng(0).standard_normal((4, 3))
    assert_close(model.sample_features_given(h), model.preimage_weights(h), "exact")


def test_features_of_the_linear_kernel_are_rows():
    X = rows()
    model = DualPPCA(2, kernel="linear", noise_dim=4).fit(X)
    drawn = model.sample_features(50_000, random_state=0) @ X
    C = np.cov(X.T, bias=True)
    found = oracles.ppca(X, 2).covariance
    assert np.abs(np.cov(drawn.T) - found).max() < 0.03 * np.abs(C).max()


def test_features_of_landmarks_and_of_random_features():
    model, _ = model_of(eigen_solver="nystrom", n_landmarks=10)
    F = model._model.space.features + model._model.space.mean
    drawn = model.sample_features(20_000, random_state=0) @ F
    V = model._model.space.axes
    C = (V * model.explained_variance_) @ V.T
    C += model.noise_variance_ * (np.eye(len(V)) - V @ V.T)
    assert np.abs(np.cov(drawn.T) - C).max() < 0.03 * C.max()
    with pytest.raises(DualPCAError, match="Fourier"):
        model_of(eigen_solver="fourier", n_landmarks=10)[0].sample_features()


# --- from kernel values to inputs -------------------------------------------------------


@CENTER
@pytest.mark.parametrize("name", sorted(PREIMAGES))
def test_kernel_values_on_the_components_have_the_preimages_of_their_latents(name, center):
    model, _ = model_of(center)
    h = model.transform(rows(6, seed=3))
    expected = model.preimages(h, method=name)
    for centered in (True, False):
        k = model.reconstruct_kernel(latents=h, centered=centered)
        found = model.preimage_of_kernel(k, method=name, centered=centered)
        assert_close(found.points, expected.points, "residual", scale=30)
        assert_close(found.distance, expected.distance, "residual", scale=10)


@CENTER
@pytest.mark.parametrize("centered", [True, False])
def test_distance_is_that_from_the_element_with_these_values(center, centered):
    model, X = model_of(center)
    K = rbf_kernel(X, X, GAMMA)
    k = model.sample_kernel(5, random_state=0)
    base = np.full(25, 1 / 25) if center and centered else None
    if not centered:
        k = np.exp(-np.random.default_rng(0).uniform(0, 2, (5, 25)))
    found = model.preimage_of_kernel(k, centered=centered)
    for row, z, distance in zip(k, found.points, found.distance, strict=True):
        gamma = dual_oracles.element_of_values(row, K, base)
        span = Span(X, model.kernel_, gamma[:, None], np.zeros(25))
        expected = dense_distance(span, z[None], np.ones((1, 1)))[0]
        assert distance == pytest.approx(expected, rel=1e-6)
    others = [n for n in PREIMAGES if n not in ("auto", "plain-smoother")]
    for name in others:
        one = model.preimage_of_kernel(k, method=name, centered=centered)
        assert np.all(found.distance <= one.distance + 1e-9), name


@pytest.mark.parametrize("kernel", ["rbf", "linear", Cauchy()], ids=str)
def test_kernel_values_of_a_training_point_lead_back_to_it(kernel):
    X = rows(20)
    gamma = GAMMA if kernel == "rbf" else None
    model = DualPPCA(2, kernel=kernel, gamma=gamma).fit(X)
    k = model.kernel_(X, X)
    found = model.preimage_of_kernel(k)  # two components, but the values say it all
    assert_close(found.points, X, "residual", scale=30)
    assert np.all(found.distance < 1e-5)
    pca = KernelPCA(2, kernel=kernel, gamma=gamma).fit(X)
    assert_close(pca.preimage_of_kernel(k).points, X, "residual", scale=30)


@CENTER
@pytest.mark.parametrize("stabilizer", [0.0, 0.5, 20.0])
def test_the_plain_smoother_is_equation_19(center, stabilizer):
    model, X = model_of(center)
    K = rbf_kernel(X, X, GAMMA)
    kc = model.sample_kernel(40, random_state=0)
    for centered in (True, False):
        k = kc if centered or not center else kc + 0.3
        if center and centered:
            base = np.full(25, 1 / 25)
            k = np.array([K @ dual_oracles.element_of_values(row, K, base) for row in kc])
        expected = k @ X / (k.sum(axis=1) + stabilizer)[:, None]
        given = kc if centered else k
        way = PlainSmoother(stabilizer=stabilizer)
        found = model.preimage_of_kernel(given, method=way, centered=centered)
        total = np.abs(k.sum(axis=1) + stabilizer)
        lost = np.max(np.abs(k).sum(axis=1) / total)  # digits that a sum of both signs loses
        assert_close(found.points, expected, "residual", scale=lost * np.abs(expected).max())
    if not center and stabilizer == 0:
        assert np.any(k < 0) and np.any(np.abs(found.points) > np.abs(X).max())


def test_the_plain_smoother_of_centred_values_needs_a_stabilizer():
    model, X = model_of()
    kc = model.sample_kernel(4, random_state=0)
    with pytest.raises(DegenerateError, match="stabilizer"):
        model.preimage_of_kernel(kc, method=PlainSmoother(centered=True), centered=True)
    way = PlainSmoother(stabilizer=2.0, centered=True)
    found = model.preimage_of_kernel(kc, method=way, centered=True)
    assert_close(found.points, kc @ X / 2.0, "vector")
    # linear in kc, and so Gaussian, as the paper says of its figure 3
    twice = model.preimage_of_kernel(2 * kc, method=way, centered=True)
    assert_close(twice.points, 2 * found.points, "vector")
    h = model.posterior_kernel(kc, centered=True)[0]
    on = model.reconstruct_kernel(latents=h)
    assert_close(model.preimages(h, method=way).points, on @ X / 2.0, "vector")


def test_many_points_need_no_solve(monkeypatch):
    model, X = model_of()
    kc = model.sample_kernel(4, random_state=0)
    plain = PlainSmoother(stabilizer=1.0, centered=True)
    ways = (plain, Smoother(), Learned())
    expected = [model.preimage_of_kernel(kc, method=way, centered=True).points for way in ways]
    monkeypatch.setattr(preimages, "MOST_SOLVED", 10)
    for way, points in zip(ways, expected, strict=True):
        found = model.preimage_of_kernel(kc, method=way, centered=True)
        assert_close(found.points, points, "vector")
        assert np.all(np.isnan(found.distance))
    with pytest.raises(ValueError, match="at most 10"):
        model.preimage_of_kernel(kc, method="gradient", centered=True)
    with pytest.raises(ValueError, match="centred kernel values over 25"):
        model.preimage_of_kernel(kc, method="plain-smoother", centered=True)
    k = np.abs(kc)
    found = model.preimage_of_kernel(k, method="plain-smoother")
    assert_close(found.points, k @ X / k.sum(axis=1, keepdims=True), "vector")


def test_kernel_values_are_checked():
    model, _ = model_of()
    with pytest.raises(ValueError, match=r"shape \(m, 25\)"):
        model.preimage_of_kernel(np.ones((2, 24)))
    with pytest.raises(ValueError, match="finite"):
        model.preimage_of_kernel(np.full((2, 25), np.nan))
    with pytest.raises(ValueError, match="stabilizer"):
        PlainSmoother(stabilizer=np.inf)


def test_every_library_finds_the_same(backend):
    X = rows()
    here, there = DualPPCA(3, gamma=GAMMA).fit(X), DualPPCA(3, gamma=GAMMA).fit(backend.asarray(X))
    xi = np.random.default_rng(0).standard_normal((3, 25))
    kc = here.sample_kernel(noise=xi)
    found = there.sample_kernel(noise=backend.asarray(xi))
    assert backend.owns(found)
    assert_close(backend.numpy(found), kc, "vector")
    assert_close(there.sampling_operator() @ xi.T, kc.T, "vector")
    one = here.preimage_of_kernel(kc, method="smoother", centered=True).points
    other = there.preimage_of_kernel(found, method="smoother", centered=True).points
    assert_close(backend.numpy(other), one, "residual")
    drawn = there.sample_features(2, random_state=0)
    assert_close(
        np.abs(backend.numpy(drawn) @ X),
        np.abs(here.sample_features(2, random_state=0) @ X),
        "residual",
        scale=1e3,
    )
