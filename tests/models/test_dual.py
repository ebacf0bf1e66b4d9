"""DualPPCA against explicit features, its published numbers, its limits and its duals."""

import pickle
import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel

from dualpca import PPCA, BayesianPCA, DualPPCA, KernelPCA
from dualpca.errors import DegenerateError, DualPCAError
from dualpca.kernels import KERNELS as KINDS
from dualpca.kernels import RBF, Linear, Polynomial
from dualpca.kernels.expected import Uncertain, expected_gram
from dualpca.models import dual as kernel_values
from dualpca.models.driver import History
from dualpca.models.dual import to_dual
from dualpca.models.spiked import ppca_step
from tests import oracles
from tests.oracles import dual as dual_oracles
from tests.tolerances import assert_close, assert_log_density

GAMMA = 0.3
KERNELS = {
    "rbf": (dict(kernel="rbf", gamma=GAMMA), lambda X, Y: rbf_kernel(X, Y, GAMMA)),
    "linear": (dict(kernel="linear"), lambda X, Y: X @ Y.T),
    "poly": (
        dict(kernel="poly", degree=2, gamma=0.5),
        lambda X, Y: polynomial_kernel(X, Y, 2, gamma=0.5, coef0=1),
    ),
}
DIMENSIONS = {"rbf": (25, 25), "linear": (4, 4), "poly": (15, 14)}  # of φ, and of φ − φ̄; n is 25
CASES = [(name, center, q) for name in KERNELS for center in (True, False) for q in (1, 3)]
EVERY = pytest.mark.parametrize("name, center, q", CASES)


def rows(n=25, d=4, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)) * np.linspace(2, 0.5, d) + 0.4


def fitted(name, center, q, X=None, **options):
    settings, kernel = KERNELS[name]
    X = rows() if X is None else X
    model = DualPPCA(q, center=center, **settings, **options).fit(X)
    return model, X, kernel


def aligned(Z, reference):
    """Return Z with the signs of its columns chosen to match."""
    return Z * np.where(np.sum(Z * reference, axis=0) < 0, -1, 1)


# --- against explicit features ----------------------------------------------------------


# n - 1 is the dimension of the centred span; uncentred features of these kernels span n
@pytest.mark.parametrize(
    "name, center, q, extra",
    [
        (*case, extra)
        for case in CASES
        for extra in (0, -1, 7)
        if extra >= 0 or case[1] or case[0] == "linear"
    ],
)
def test_the_model_is_ppca_of_explicit_features(name, center, q, extra):
    n = len(rows())
    model, X, kernel = fitted(name, center, q, noise_dim=n + extra)
    dense = dual_oracles.dual(kernel(X, X), q, center, r=n + extra)
    assert model.noise_dim_ == n + extra
    assert model.noise_variance_ == pytest.approx(dense.primal.sigma2, rel=1e-8)
    assert_close(model.eigenvalues_, oracles.eigh_descending(dense.Kc)[0][:q], "eigenvalue")
    assert_close(model.explained_variance_ratio_, model.eigenvalues_ / np.trace(dense.Kc), "vector")
    total = oracles.loglikelihood(dense.F, dense.primal.mean, dense.primal.covariance)
    assert model.loglikelihood_ == pytest.approx(total, rel=1e-8)
    assert model.score(X) * n == pytest.approx(total, rel=1e-8)
    density = oracles.log_density_solve(dense.F, dense.primal.mean, dense.primal.covariance)
    assert_log_density(model.score_samples(X), density, model.noise_dim_)


@EVERY
def test_posterior_is_the_primal_one(name, center, q):
    model, X, kernel = fitted(name, center, q)
    assert model.noise_dim_ == DIMENSIONS[name][center]
    dense = dual_oracles.dual(kernel(X, X), q, center, r=DIMENSIONS[name][center])
    mean, cov = oracles.posterior(dense.F, dense.primal)
    found, found_cov = model.posterior(X, parameters="fixed")
    assert_close(aligned(found, mean), mean, "vector")
    assert_close(found_cov[0], cov, "vector")
    assert_close(model.transform(X), found, "exact")


@EVERY
def test_published_formulas_hold_for_new_points(name, center, q):
    model, X, kernel = fitted(name, center, q)
    new, n = rows(6, seed=1), len(X)
    K = kernel(X, X)
    kc, Kc = dual_oracles.cross(kernel(new, X), K, center), dual_oracles.centre(K, center=center)
    lam, A = model.eigenvalues_, model.coefficients_
    assert_close(A.T @ Kc @ A, np.diag(lam / n - model.noise_variance_), "vector")  # W^T W
    h = kc @ A * n / lam
    assert_close(model.transform(new), h, "vector")
    assert_close(model.reconstruct_kernel(new), h @ A.T @ Kc, "vector")
    assert_close(
        model.posterior(new, parameters="fixed")[1][0],
        np.diag(model.noise_variance_ * n / lam),
        "vector",
    )
    s = dual_oracles.squared_norms(kernel(new, X), np.diag(kernel(new, new)), K, center)
    y2 = np.sum((h * lam / n / np.sqrt(lam / n - model.noise_variance_)) ** 2, axis=1)
    assert_close(model.novelty(new), s - y2, "vector", scale=s.max())
    inside = np.sum((kc @ A) ** 2 / (lam / n) / (lam / n - model.noise_variance_), axis=1)
    r = DIMENSIONS[name][center]
    logdet = np.log(lam / n).sum() + (r - q) * np.log(model.noise_variance_)
    density = -0.5 * (r * np.log(2 * np.pi) + logdet + inside + (s - y2) / model.noise_variance_)
    assert_log_density(model.score_samples(new, density="full"), density, r)


@EVERY
def test_uncentred_reconstruction_compares_with_the_kernel_itself(name, center, q):
    model, X, kernel = fitted(name, center, q)
    new, K, n = rows(6, seed=1), kernel(X, X), len(X)
    base = np.full(n, 1 / n) if center else np.zeros(n)
    weights = base + model.transform(new) @ model.coefficients_.T  # of phi-bar + W h over points
    assert_close(model.reconstruct_kernel(new, centered=False), weights @ K, "vector")
    assert_close(model.preimage_weights(model.transform(new)), weights, "vector")


@EVERY
def test_posterior_from_kernel_values(name, center, q):
    model, X, kernel = fitted(name, center, q)
    new = rows(6, seed=1)
    expected = model.posterior(new, parameters="fixed")
    raw = kernel(new, X)
    kc = dual_oracles.cross(raw, kernel(X, X), center)
    for found in (
        model.posterior_kernel(raw, parameters="fixed"),
        model.posterior_kernel(kc, centered=True, parameters="fixed"),
    ):
        assert_close(found[0], expected[0], "vector")
        assert_close(found[1], expected[1], "exact")


# --- limits -----------------------------------------------------------------------------


@pytest.mark.parametrize("center", [True, False])
def test_without_noise_it_is_kernel_pca(center):
    X, new = rows(), rows(6, seed=1)
    classic = KernelPCA(4, kernel="rbf", gamma=GAMMA, center=center).fit(X)
    model = DualPPCA(4, gamma=GAMMA, center=center, noise_variance=1e-13).fit(X)
    ell = classic.eigenvalues_ / len(X)
    assert_close(model.transform(new) * np.sqrt(ell), classic.transform(new), "vector")
    assert_close(
        model.posterior(new, parameters="fixed")[1], np.zeros((6, 4, 4)), "vector", scale=1.0
    )
    projected = classic.transform(new) @ (classic.eigenvectors_ * np.sqrt(classic.eigenvalues_)).T
    assert_close(model.reconstruct_kernel(new), projected, "vector")
    y = classic.inverse_transform(classic.transform(new))
    assert_close(model.reconstruct(new), y, "residual")


@pytest.mark.parametrize("center, rank", [(True, 24), (False, 25)])
def test_as_many_components_as_the_rank_is_the_identity_on_the_span(center, rank):
    X = rows()
    model = DualPPCA(rank, gamma=3.0, center=center).fit(X)
    Kc = dual_oracles.centre(rbf_kernel(X, X, 3.0), center=center)
    assert model.noise_variance_ == 0 and np.isinf(model.loglikelihood_) == center
    assert_close(model.reconstruct_kernel(X), Kc, "vector")
    assert not np.any(model.posterior(X, parameters="fixed")[1])
    draws = model.sample_kernel(4, random_state=0)
    assert np.all(np.isfinite(draws))
    if center:
        with pytest.raises(DegenerateError, match="density"):
            model.score_samples(X)


@pytest.mark.parametrize("n, d", [(25, 4), (5, 8)])
@pytest.mark.parametrize("q", [1, 3])
def test_linear_kernel_with_noise_in_the_features_is_ppca(n, d, q):
    X, new = rows(n, d), rows(6, d, seed=1)
    model, primal = DualPPCA(q, kernel="linear", noise_dim=d).fit(X), PPCA(q).fit(X)
    by_default = DualPPCA(q, kernel="linear").fit(X)
    assert by_default.noise_dim_ == min(n, d)
    if d < n:
        assert by_default.loglikelihood_ == model.loglikelihood_
    assert model.noise_variance_ == pytest.approx(primal.noise_variance_, rel=1e-8)
    assert model.loglikelihood_ == pytest.approx(primal.loglikelihood_, rel=1e-8)
    assert_log_density(model.score_samples(new), primal.score_samples(new), d)
    mean, cov = primal.posterior(new, parameters="fixed")
    assert_close(aligned(model.transform(new), mean), mean, "vector")
    assert_close(model.posterior(new, parameters="fixed")[1], cov, "vector")
    assert_close(model.reconstruct(new), primal.reconstruct(new), "vector")
    # the distribution of kernel samples is that of Xc (x - mean) for samples x of the primal
    Xc = X - X.mean(axis=0)
    A, Kc = model.coefficients_, Xc @ Xc.T
    dual = Kc @ A @ A.T @ Kc + model.noise_variance_ * Kc
    assert_close(dual, Xc @ primal.get_covariance() @ Xc.T, "vector")
    draws = model.sample(5, random_state=3, noise=True)
    signs = aligned(model.transform(new), mean)[0] / model.transform(new)[0]
    if np.all(signs > 0):
        assert_close(draws, primal.sample(5, random_state=3), "vector")


@pytest.mark.parametrize(
    "kernel",
    [3.0 * Linear(), Linear() + 2.0, Polynomial(1, 1.0, 0.5), Linear(on=[0, 1]) + Linear()],
)
def test_the_noise_has_the_dimension_of_the_features_where_that_is_below_n(kernel):
    for n, r in ((25, 4), (4, 4), (3, 3)):
        assert DualPPCA(1, kernel=kernel).fit(rows(n)).noise_dim_ == r
    if kernel(np.zeros((1, 4)), np.zeros((1, 4))) == 0.5:  # (x'y + 1/2): the constant is no feature
        model, primal = DualPPCA(2, kernel=kernel).fit(rows()), PPCA(2).fit(rows())
        assert model.noise_variance_ == pytest.approx(primal.noise_variance_, rel=1e-8)


def test_features_of_rows_with_missing_values_are_in_n_dimensions():
    X = rows()
    X[0, 1] = np.nan
    assert DualPPCA(2, kernel="linear").fit(X).noise_dim_ == 25


def test_noise_and_components_say_the_same():
    X = rows()
    by_q = DualPPCA(3, gamma=GAMMA).fit(X)
    sigma2 = (by_q.explained_variance_[-1] + by_q.noise_variance_) / 2
    ell = np.linalg.eigvalsh(oracles.centred_kernel(rbf_kernel(X, X, GAMMA)))[::-1] / len(X)
    given = DualPPCA(gamma=GAMMA, noise_variance=sigma2).fit(X)
    assert given.n_components_ == np.sum(ell > sigma2) and given.noise_variance_ == sigma2
    both = DualPPCA(2, gamma=GAMMA, noise_variance=sigma2).fit(X)
    dense = dual_oracles.dual(rbf_kernel(X, X, GAMMA), 2, sigma2=sigma2)
    total = oracles.loglikelihood(dense.F, dense.primal.mean, dense.primal.covariance)
    assert both.loglikelihood_ == pytest.approx(total, rel=1e-8)


@pytest.mark.parametrize("request_", [0.8, "evidence", "bic", "white-noise", "gavish-donoho", None])
def test_the_number_of_components_can_be_found(request_):
    model = DualPPCA(request_, gamma=0.05).fit(rows(60))
    assert 1 <= model.n_components_ < 60 and model.noise_variance_ > 0
    if request_ == 0.8:
        shares = np.cumsum(model.explained_variance_ratio_)
        assert shares[-1] > 0.8 >= shares[-2]


# --- relevance ----------------------------------------------------------------------------


def test_relevance_is_em_with_reestimated_alpha_on_the_features():
    """Dense EM on explicit features from the maximum-likelihood start, alpha = r / w^T w."""
    rng = np.random.default_rng(0)
    centres = 4 * rng.standard_normal((4, 20))
    X = np.concatenate([rng.standard_normal((20, 20)) + c for c in centres])
    model = DualPPCA("ard", gamma=0.01).fit(X)
    n = r = len(X)
    dense = dual_oracles.dual(rbf_kernel(X, X, 0.01), 12)
    W, sigma2, S = dense.primal.W, dense.primal.sigma2, dense.F.T @ dense.F / n
    for _ in range(3000):
        lengths = np.sum(W * W, axis=0)
        kept = lengths > 1e-8 * lengths.max()
        W, lengths = W[:, kept], lengths[kept]
        M_inv = np.linalg.inv(W.T @ W + sigma2 * np.eye(W.shape[1]))
        SW = S @ W
        second = sigma2 * M_inv + M_inv @ W.T @ SW @ M_inv
        W_new = SW @ M_inv @ np.linalg.inv(second + sigma2 / n * np.diag(r / lengths))
        cross = np.trace(W_new.T @ SW @ M_inv)
        sigma2 = (np.trace(S) - 2 * cross + np.trace(W_new.T @ W_new @ second)) / r
        W = W_new
    assert model.n_components_ == W.shape[1] == 3
    assert model.noise_variance_ == pytest.approx(sigma2, rel=1e-6)
    values = np.linalg.eigvalsh(W.T @ W)[::-1] + sigma2
    np.testing.assert_allclose(model.explained_variance_, values, rtol=1e-6)
    C = W @ W.T + sigma2 * np.eye(r)
    total = oracles.loglikelihood(dense.F, np.zeros(r), C)
    assert model.loglikelihood_ == pytest.approx(total, rel=1e-6)
    assert model.score(X) * n == pytest.approx(total, rel=1e-6)
    assert np.sum(model.relevance_ > 0) == 3
    assert_covariance(model.sample_kernel(50_000, random_state=0), dense.F @ C @ dense.F.T)
    assert not hasattr(DualPPCA(2, gamma=0.01).fit(X), "relevance_")


def test_relevance_finds_the_dimension_in_the_dual_as_in_the_primal():
    sd = np.concatenate([np.ones(3), np.full(7, 0.5)])
    for seed in range(5):
        X = np.random.default_rng(seed).standard_normal((300, 10)) * sd
        assert DualPPCA("ard", kernel="linear", noise_dim=10).fit(X).n_components_ == 3


def test_relevance_with_given_noise_and_without_structure():
    X = rows(40)
    ell = np.linalg.eigvalsh(oracles.centred_kernel(rbf_kernel(X, X, GAMMA)))[::-1] / 40
    model = DualPPCA("ard", gamma=GAMMA, noise_variance=0.01).fit(X)
    assert model.n_components_ == np.sum(ell > (1 + np.sqrt(2)) ** 2 * 0.01)
    with pytest.raises(DegenerateError, match="relevant"):
        DualPPCA("ard", gamma=50.0).fit(np.random.default_rng(0).standard_normal((30, 20)))
    with pytest.raises(ValueError, match="closed"):
        DualPPCA("ard", method="em").fit(X)


# --- EM ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, center, q", [("rbf", True, 2), ("rbf", False, 3), ("poly", True, 1)]
)
def test_em_is_monotone_and_reaches_the_closed_form(name, center, q):
    closed, X, _ = fitted(name, center, q)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        em, _, _ = fitted(name, center, q, method="em", tol=1e-10, max_iter=3000)
    assert np.all(np.diff(em.loglikelihoods_) >= -1e-11 * np.abs(em.loglikelihood_))
    assert em.loglikelihood_ == pytest.approx(closed.loglikelihood_, rel=1e-10)
    assert em.noise_variance_ == pytest.approx(closed.noise_variance_, rel=1e-7)
    assert_close(em.explained_variance_, closed.explained_variance_, "em")
    assert_close(em.transform(X), closed.transform(X), "residual")
    assert_close(em.reconstruct_kernel(X), closed.reconstruct_kernel(X), "residual")
    assert em.n_iter_ > 1 and em.solver_ == "em"


def test_em_with_given_noise_and_with_a_noise_dimension():
    X = rows()
    for options in (dict(noise_variance=0.02), dict(noise_dim=40)):
        closed = DualPPCA(2, gamma=GAMMA, **options).fit(X)
        em = DualPPCA(2, gamma=GAMMA, method="em", tol=1e-9, **options).fit(X)
        assert em.loglikelihood_ == pytest.approx(closed.loglikelihood_, rel=1e-9)


def test_the_tolerance_of_em_is_no_precision_of_the_kernel():
    em = DualPPCA(2, gamma=GAMMA, method="em", tol=1e-4).fit(rows())
    assert np.all(np.diff(em.loglikelihoods_) >= -1e-11 * np.abs(em.loglikelihood_))
    exact = em._model.space.operator(single=False)
    W = em._model.space.spectrum.vectors * em._model.gaussian.spread
    assert ppca_step(exact, W, em.noise_variance_, 25.0)[2] == pytest.approx(
        em.loglikelihood_, rel=1e-12
    )


def test_em_that_stops_early_says_so():
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        DualPPCA(2, gamma=GAMMA, method="em", max_iter=2).fit(rows())


# --- weights, solvers, kernels, libraries -----------------------------------------------


@pytest.mark.parametrize("method", ["closed", "em"])
def test_weights_are_repetitions(method):
    X, counts = rows(12), np.array([1, 2, 0, 3, 1, 1, 0, 2, 1, 4, 1, 1])
    options = dict(gamma=GAMMA, method=method, tol=1e-9 if method == "em" else 0.0)
    weighted = DualPPCA(2, **options).fit(X, sample_weight=counts)
    repeated = DualPPCA(2, **options).fit(oracles.repeat(X, counts))
    assert weighted.noise_dim_ == counts.sum()
    assert weighted.loglikelihood_ == pytest.approx(repeated.loglikelihood_, rel=1e-8)
    assert_close(weighted.transform(X), repeated.transform(X), "residual")
    once = np.unique(np.repeat(np.arange(12), counts), return_index=True)[1]
    kernels = repeated.reconstruct_kernel(X)[:, once]
    assert_close(weighted.reconstruct_kernel(X), kernels, "residual")


def test_weighted_kernel_samples_have_the_covariance_of_repeated_ones():
    X, counts = rows(10), np.array([1, 2, 0, 3, 1, 1, 5, 2, 1, 1])
    weighted = DualPPCA(2, gamma=GAMMA).fit(X, sample_weight=counts)
    repeated = oracles.repeat(X, counts)
    dense = dual_oracles.dual(rbf_kernel(repeated, repeated, GAMMA), 2)
    once = np.unique(np.repeat(np.arange(10), counts), return_index=True)[1]
    assert_covariance(weighted.sample_kernel(50_000, random_state=0), dense.marginal[once][:, once])


@pytest.mark.parametrize("solver", ["dense", "krylov"])
def test_exact_solvers_agree(solver):
    X = rows(120)
    auto = DualPPCA(3, gamma=0.1).fit(X)
    other = DualPPCA(3, gamma=0.1, eigen_solver=solver).fit(X)
    assert_close(other.eigenvalues_, auto.eigenvalues_, "eigenvalue")
    assert_close(other.transform(X), auto.transform(X), "vector")


@pytest.mark.parametrize("solver", ["nystrom", "cholesky", "fourier"])
@pytest.mark.parametrize("center", [True, False])
def test_approximate_solvers_are_ppca_of_their_features(solver, center):
    X = rows(60)
    options = dict(gamma=0.1, center=center, n_landmarks=20, tol=0.5)
    model = DualPPCA(3, eigen_solver=solver, **options).fit(X)
    F = model._model.projector.map(X)
    dense = oracles.ppca(F, 3, center=center)
    assert model.noise_dim_ == F.shape[1]
    total = oracles.loglikelihood(F, dense.mean, dense.covariance)
    assert model.loglikelihood_ == pytest.approx(total, rel=1e-8)
    assert model.score(X) * 60 == pytest.approx(total, rel=1e-8)
    mean = oracles.posterior(F, dense)[0]
    assert_close(aligned(model.transform(X), mean), mean, "vector")
    anchors = model._model.projector.map(model.X_fit_) - dense.mean
    covariance = anchors @ dense.covariance @ anchors.T
    assert_covariance(model.sample_kernel(50_000, random_state=0), covariance)


def test_all_points_as_landmarks_are_the_exact_model():
    X = rows(15)
    exact = DualPPCA(2, gamma=2.0, center=False).fit(X)
    landmarks = DualPPCA(
        2, gamma=2.0, center=False, eigen_solver="nystrom", landmarks="uniform", n_landmarks=15
    ).fit(X)
    assert landmarks.loglikelihood_ == pytest.approx(exact.loglikelihood_, rel=1e-8)
    assert_close(landmarks.reconstruct_kernel(X), exact.reconstruct_kernel(X), "vector")


@pytest.mark.parametrize("name", sorted(KINDS))
@pytest.mark.filterwarnings("ignore::dualpca.errors.SpectrumWarning")  # of the sigmoid
def test_every_kernel_makes_a_model(name):
    X, kernel = np.abs(rows(20)), KINDS[name]()
    if name == "constant":
        with pytest.raises(DegenerateError, match="no variance"):
            DualPPCA(2, kernel=kernel).fit(X)
        return
    model = DualPPCA(2, kernel=kernel).fit(X)
    K = model.kernel_(X, X)
    if kernel.definite:
        dense = dual_oracles.dual(K, 2, r=model.noise_dim_)
        assert model.noise_variance_ == pytest.approx(dense.primal.sigma2, rel=1e-8)
        assert model.score(X) * 20 == pytest.approx(model.loglikelihood_, rel=1e-8)
    lam = np.linalg.eigvalsh(oracles.centred_kernel(K))
    assert model.explained_variance_ratio_.sum() == pytest.approx(
        lam[-2:].sum() / lam.clip(0).sum(), rel=1e-8
    )
    assert np.all(np.isfinite(model.sample_kernel(3, random_state=0)))


def test_kernel_matrix_gives_the_same_model():
    X, new = rows(), rows(6, seed=1)
    K, K_new = rbf_kernel(X, X, GAMMA), rbf_kernel(new, X, GAMMA)
    model = DualPPCA(3, gamma=GAMMA).fit(X)
    given = DualPPCA(3, kernel="precomputed").fit(K)
    assert given.loglikelihood_ == pytest.approx(model.loglikelihood_, rel=1e-10)
    assert_close(given.transform(K_new), model.transform(new), "vector")
    one, other = (m.sample_kernel(3, random_state=0) for m in (model, given))
    assert_close(other, one, "residual")
    with pytest.raises(NotFittedError, match="preimage_weights"):
        given.sample(2)


def test_every_library_gives_the_same(backend):
    X, new = rows(), rows(6, seed=1)
    model = DualPPCA(3, gamma=GAMMA).fit(X)
    ours = DualPPCA(3, gamma=GAMMA).fit(backend.asarray(X))
    points = backend.asarray(new)
    for name in ("transform", "score_samples", "reconstruct_kernel", "novelty"):
        found = getattr(ours, name)(points)
        assert backend.owns(found), name
        assert_close(backend.numpy(found), getattr(model, name)(new), "vector")
    draws = ours.sample_kernel(4, random_state=1)
    assert_close(backend.numpy(draws), model.sample_kernel(4, random_state=1), "residual")
    h = backend.asarray(np.ones((2, 3)))
    given = ours.sample_kernel_given(h, random_state=1)
    expected = model.sample_kernel_given(np.ones((2, 3)), random_state=1)
    assert_close(backend.numpy(given), expected, "residual")


def test_float32_stays_float32_and_is_near():
    X = rows()
    double, single = DualPPCA(2, gamma=GAMMA).fit(X), DualPPCA(2, gamma=GAMMA).fit(X.astype("f4"))
    for name in ("transform", "reconstruct_kernel"):
        found = getattr(single, name)(X.astype("f4"))
        assert found.dtype == np.float32
        assert_close(found, getattr(double, name)(X), "vector", np.float32)
    assert single.sample_kernel(2, random_state=0).dtype == np.float32


def test_a_fitted_model_survives_pickling_and_cloning():
    X = rows()
    model = DualPPCA(2, gamma=GAMMA).fit(X)
    model.sample_kernel(2)
    again = pickle.loads(pickle.dumps(model))
    for name in ("transform", "score_samples", "reconstruct_kernel"):
        assert np.array_equal(getattr(again, name)(X), getattr(model, name)(X))
    a, b = again.sample_kernel(3, random_state=5), model.sample_kernel(3, random_state=5)
    assert np.array_equal(a, b)
    assert not hasattr(clone(model), "eigenvalues_")


# --- sampling ---------------------------------------------------------------------------


def assert_covariance(samples, C, mean=0.0, errors=5.0):
    """Assert mean and covariance entry by entry, within `errors` standard errors."""
    n, variance = len(samples), np.diag(C)
    assert np.all(np.abs(samples.mean(axis=0) - mean) <= errors * np.sqrt(variance / n) + 1e-12)
    centred = samples - mean
    gap = np.abs(centred.T @ centred / n - C)
    scale = np.sqrt((np.outer(variance, variance) + C**2) / n)
    assert np.all(gap <= errors * scale + 1e-12 * variance.max())


@pytest.mark.parametrize("center", [True, False])
def test_kernel_samples_have_the_covariance_of_the_model(center):
    model, X, kernel = fitted("rbf", center, 3)
    A, Kc = model.coefficients_, dual_oracles.centre(kernel(X, X), center=center)
    C = Kc @ A @ A.T @ Kc + model.noise_variance_ * Kc
    assert_close(C, dual_oracles.dual(kernel(X, X), 3, center).marginal, "vector")
    assert_covariance(model.sample_kernel(200_000, random_state=0), C)


def test_lanczos_draws_what_the_whole_spectrum_draws(monkeypatch):
    model = DualPPCA(3, gamma=0.5).fit(rows(200))
    h = np.ones((5, 3))
    dense = model.sample_kernel(5, random_state=0), model.sample_kernel_given(h, random_state=0)
    monkeypatch.setattr(kernel_values, "DENSE_ORDER", 0)
    lanczos = (
        model.sample_kernel(5, random_state=0, tol=1e-9),
        model.sample_kernel_given(h, random_state=0, tol=1e-9),
    )
    for one, other in zip(dense, lanczos, strict=True):
        assert_close(other, one, "residual")
    rough = model.sample_kernel(5, random_state=0, tol=1e-2)
    assert np.linalg.norm(rough - dense[0]) < 0.05 * np.linalg.norm(dense[0])


def test_latent_regions_cover_as_often_as_they_say():
    model, _, _ = fitted("rbf", True, 2)
    h = np.random.default_rng(0).standard_normal((20_000, 2))
    kc = model.sample_kernel_given(h, random_state=1)
    mean, cov = model.posterior_kernel(kc, centered=True, parameters="fixed")
    error = h - mean
    distance = np.einsum("ij,ijk,ik->i", error, np.linalg.inv(cov), error)
    covered = np.mean(distance <= -2 * np.log(0.1))  # chi-square of two degrees of freedom
    assert 0.88 <= covered <= 0.92
    assert abs(covered - 0.9) <= 5 * np.sqrt(0.09 / 20_000)


@pytest.mark.slow
def test_sixteen_draws_of_many_kernel_values_need_no_matrix():
    X = np.random.default_rng(0).standard_normal((20_000, 10))  # 3.2 GB as a matrix
    options = {"eigen_solver": "krylov", "tol": 1e-3, "memory_limit": 1e8}
    model = DualPPCA(10, gamma=0.1, **options).fit(X)
    tracemalloc.start()
    draws = model.sample_kernel(16, random_state=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e8
    E, spectrum = model._model.space.spectrum.vectors, model._model.space.spectrum
    off = draws - (draws @ E) @ E.T
    variance = model.noise_variance_ * (spectrum.trace - spectrum.values.sum())
    assert np.sum(off**2) / 16 == pytest.approx(variance, rel=0.02)


def test_seeds_matter_and_repeat():
    model = DualPPCA(2, gamma=GAMMA).fit(rows())
    draws = [model.sample_kernel(3, random_state=s) for s in (0, 0, 1)]
    assert np.array_equal(draws[0], draws[1]) and not np.array_equal(draws[0], draws[2])
    assert model.sample_kernel().shape == (1, 25)


def test_samples_come_back_to_the_inputs():
    t = np.linspace(0, 2 * np.pi, 100, endpoint=False)
    X = np.column_stack([np.cos(t), np.sin(t)])
    X += 0.05 * np.random.default_rng(0).standard_normal(X.shape)
    model = DualPPCA(4, gamma=1.0, preimage="smoother").fit(X)
    points, distance = model.sample(50, random_state=0, return_distance=True)
    assert points.shape == (50, 2) and distance.shape == (50,)
    assert np.all(np.abs(points) < 1.3)
    again = model.inverse_transform(np.random.default_rng(0).standard_normal((50, 4)))
    assert_close(points, again, "exact")
    assert model.sample(2, random_state=0, noise=True).shape == (2, 2)


@pytest.mark.parametrize("noise", [False, True])
def test_samples_have_the_variance_of_the_signal_or_of_the_model(noise):
    model = DualPPCA(2, kernel=2.0 * Linear(), noise_dim=4).fit(rows())
    X = model.sample(20_000, random_state=0, noise=noise)  # exact: the map is 2^(1/2) x
    ell, sigma2 = model.explained_variance_, model.noise_variance_
    y = model.transform(X) * ell / np.sqrt(ell - sigma2)
    assert sigma2 > 0.1 * ell[-1]
    assert_covariance(y, np.diag(ell if noise else ell - sigma2))


def test_denoising_shrinks_to_the_mean():
    X = rows()
    model = DualPPCA(3, kernel="linear", noise_dim=4).fit(X)
    assert_close(model.denoise(X), PPCA(3).fit(X).reconstruct(X), "vector")


# --- rows with NaN ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rbf", "linear", "poly"])
def test_rows_with_nan_are_taken_by_expectation(name):
    X = rows(40)
    holes = X.copy()
    holes[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    holes[0] = X[0]
    model, _, _ = fitted(name, True, 2, X=holes)
    Z = model.transform(holes)
    assert np.all(np.isfinite(Z)) and np.isfinite(model.loglikelihood_)
    mean, cov = model.posterior(holes, parameters="fixed")
    complete = ~np.isnan(holes).any(axis=1)
    base = model.noise_variance_ / model.explained_variance_
    assert_close(
        np.diagonal(cov[complete], axis1=1, axis2=2), np.tile(base, (complete.sum(), 1)), "exact"
    )
    extra = np.diagonal(cov[~complete], axis1=1, axis2=2) - base
    assert np.all(extra > -1e-10) and np.any(extra > 1e-6)
    assert_close(mean, Z, "exact")
    assert np.isnan(holes).any(), "the rows were filled in"
    gram = expected_gram(
        model.kernel_, Uncertain(*model.input_model_.conditional(holes, parameters="fixed"))
    )
    given = DualPPCA(2, kernel="precomputed").fit(gram)
    assert model.loglikelihood_ == pytest.approx(given.loglikelihood_, rel=1e-8)
    assert_close(Z[complete], given.transform(gram)[complete], "vector", scale=np.abs(Z).max())
    whole, _, _ = fitted(name, True, 2, X=X)
    assert np.all(np.isfinite(whole.transform(holes)))
    with pytest.raises(ValueError, match="NaN"):
        model.score_samples(holes)
    with pytest.raises(DualPCAError, match="NaN"):
        model.to_primal()


def test_holes_that_the_other_columns_fill_cost_little():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 2)) @ rng.standard_normal((2, 6))
    X += 0.01 * rng.standard_normal(X.shape)
    holes = np.where(rng.random(X.shape) < 0.1, np.nan, X)
    with_holes, whole = (DualPPCA(2, gamma=0.05).fit(data) for data in (holes, X))
    expected = whole.transform(X)
    found = aligned(with_holes.transform(holes), expected)
    assert np.abs(found - expected).max() < 0.1 * np.abs(expected).max()
    assert with_holes.noise_variance_ == pytest.approx(whole.noise_variance_, rel=0.05)


def test_expected_posterior_covers_the_posterior_of_draws():
    X = rows(60)
    model = DualPPCA(2, gamma=0.1).fit(X)
    row = X[:1].copy()
    row[0, 1] = np.nan
    mean, cov = model.posterior(row, parameters="fixed")
    inputs = PPCA("evidence").fit(X)
    m, S = inputs.conditional(row, parameters="fixed")
    rng = np.random.default_rng(0)
    draws = rng.multivariate_normal(m[0], S[0], size=20_000, check_valid="ignore")
    Z = model.transform(draws)
    total = np.cov(Z.T, bias=True) + np.diag(model.noise_variance_ / model.explained_variance_)
    assert np.all(np.abs(Z.mean(axis=0) - mean[0]) < 5 * Z.std(axis=0) / np.sqrt(20_000))
    assert np.abs(total - cov[0]).max() < 0.05 * np.abs(total).max()


# --- conversions ------------------------------------------------------------------------

CLOSED = {
    "ppca": lambda: PPCA(2),
    "ppca, noise": lambda: PPCA(2, noise_variance=0.5),
    "bayesian, noise": lambda: BayesianPCA(2, noise_variance=0.5),
    "dual": lambda: DualPPCA(2, gamma=GAMMA),
    "dual, noise": lambda: DualPPCA(2, gamma=GAMMA, noise_variance=0.01),
    "dual, relevance, noise": lambda: DualPPCA("ard", gamma=GAMMA, noise_variance=0.01),
}


@pytest.mark.parametrize("name", CLOSED)
def test_what_is_found_in_closed_form_says_one_step(name):
    model = CLOSED[name]().fit(rows())
    assert model.n_iter_ == 1 and model.converged_ and len(model.loglikelihoods_) == 1


def test_a_model_without_a_history_becomes_one_of_one_step():
    found = to_dual(replace(PPCA(2).fit(rows())._model, history=None)).history
    assert (found.n_iter, found.converged, len(found.loglikelihoods)) == (1, True, 1)
    assert np.isnan(found.loglikelihood)


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_a_dual_model_keeps_how_the_primal_one_was_found(steps):
    history = History((-3.0, -2.0), steps, converged=False)
    found = to_dual(replace(PPCA(2).fit(rows())._model, history=history)).history
    assert (found.n_iter, found.loglikelihood) == (steps, -2.0)


def test_ppca_to_dual_and_back():
    X, new = rows(), rows(6, seed=1)
    primal = PPCA(2).fit(X)
    for dual in (primal.to_dual(X), primal.to_dual()):
        assert dual.loglikelihood_ == primal.loglikelihood_
        assert_log_density(dual.score_samples(new), primal.score_samples(new), 4)
        assert_close(dual.transform(new), primal.transform(new), "vector")
        assert_close(
            dual.posterior(new, parameters="fixed")[1],
            primal.posterior(new, parameters="fixed")[1],
            "vector",
        )
        assert_close(dual.reconstruct(new), primal.reconstruct(new), "vector")
        back = dual.to_primal()
        assert back.n_iter_ == dual.n_iter_ == primal.n_iter_ >= 1
        assert_close(back.get_covariance(), primal.get_covariance(), "covariance")
        assert_close(back.mean_, primal.mean_, "vector")
        assert back.loglikelihood_ == pytest.approx(primal.loglikelihood_, rel=1e-8)
        assert np.array_equal(back.sample(3, random_state=0), primal.sample(3, random_state=0))
    Xc = X - X.mean(axis=0)
    draws = primal.to_dual(X).sample_kernel(100_000, random_state=0)
    assert_covariance(draws, Xc @ primal.get_covariance() @ Xc.T)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize(
    "kernel, r",
    [
        (Linear(), 4),
        (Polynomial(degree=2, gamma=0.5), 15),
        (Polynomial(degree=3, gamma=0.2, coef0=0.0), 20),
        (0.5 * Polynomial(degree=2, gamma=0.5, coef0=2.0) + Linear(), 19),
        (Polynomial(degree=2, gamma=1.0, on=[0, 2]), 6),
    ],
)
def test_dual_to_primal_where_the_features_are_finite(kernel, r, center):
    X, new = rows(30), rows(6, seed=1)
    dual = DualPPCA(2, kernel=kernel, noise_dim=r, center=center).fit(X)
    primal = dual.to_primal()
    assert_close(primal.transform(new), dual.transform(new), "vector")
    assert_log_density(primal.score_samples(new), dual.score_samples(new), r)
    last = primal if kernel == Linear() else primal[-1]
    assert last.components_.shape == (2, r)
    assert last.loglikelihood_ == pytest.approx(dual.loglikelihood_, rel=1e-8)


def test_an_infinite_feature_space_has_no_primal():
    with pytest.raises(DualPCAError, match="Linear, Polynomial"):
        DualPPCA(2, kernel=RBF(gamma=1.0)).fit(rows()).to_primal()


def test_what_landmarks_leave_out_is_told():
    X = np.random.default_rng(0).normal(size=(60, 3))
    exact = DualPPCA(2, gamma=GAMMA).fit(X).approximation_error_
    some = DualPPCA(2, gamma=GAMMA, eigen_solver="nystrom", n_landmarks=20).fit(X)
    assert exact.trace == 0 and exact.residual < 1e-10
    assert 0 < some.approximation_error_.trace < 1 and some.approximation_error_.residual == 0


# --- Axes and variances are estimates ------------------------------------------------------------


@pytest.mark.parametrize("n", [30, 200])
def test_a_linear_kernel_is_as_unsure_as_ppca_of_a_row_at_the_average_distance(n):
    rng = np.random.default_rng(0)
    W = np.linalg.qr(rng.normal(size=(8, 2)))[0] * [3.0, 2.0]
    X = rng.normal(size=(n, 2)) @ W.T + rng.normal(size=(n, 8))
    dual, primal = DualPPCA(2, kernel="linear").fit(X), PPCA(2).fit(X)
    away = X.copy()
    model = primal._model
    off = X - model.mean
    along = off @ model.components.T @ model.components
    off = off - along
    size = np.sqrt(6 * model.noise / np.sum(off * off, axis=1))[:, None]
    away = model.mean + along + size * off  # as far off the axes as rows are on average
    found, wanted = (m.posterior(away, parameters="estimated")[1] for m in (dual, primal))
    assert_close(np.abs(found), np.abs(wanted), "em")
    assert np.all(found[:, 0, 0] > dual.posterior(away, parameters="fixed")[1][:, 0, 0])
    kernel = dual.posterior_kernel(away @ X.T, parameters="estimated")[1]
    assert_close(kernel, found, "em")


def test_points_with_gaps_are_less_sure_by_both():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 2)) @ rng.normal(size=(2, 5)) * 2 + rng.normal(size=(60, 5))
    model = DualPPCA(2).fit(X)
    gaps = np.where(np.arange(5) == 1, np.nan, X)[:4]
    unsure, sure = (model.posterior(gaps, parameters=p)[1] for p in ("auto", "fixed"))
    more = np.diagonal(unsure - sure, axis1=1, axis2=2)
    assert np.all(more > 0)
    with pytest.raises(ValueError, match="parameters must be one of"):
        model.posterior(X, parameters="none")
    assert not np.any(DualPPCA(2, noise_variance=0).fit(X).posterior(X, parameters="estimated")[1])
