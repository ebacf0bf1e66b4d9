"""The dimension of probabilistic kernel PCA by rules: feature dimensions are the observations."""

import numpy as np
import pytest
from scipy.linalg import helmert
from scipy.stats import multivariate_normal
from sklearn.datasets import load_iris, make_moons

from dualpca import PPCA, MixturePPCA, ProbabilisticKernelPCA
from dualpca.errors import SelectionWarning
from dualpca.models.probabilistic_kernel import inferred
from dualpca.operators import Spectrum
from tests.tolerances import assert_close

RULES = ["ard", "bic", "evidence"]


def features(seed, n=25, rho=600, q=3, noise=0.3):
    """Return features of n points, (n, ρ), whose columns are Bw + u1 + ε of q latents."""
    rng = np.random.default_rng(seed)
    B = np.linalg.qr(rng.normal(size=(n, q)))[0] * np.array([3.0, 2.5, 2.0])[:q]
    F = B @ rng.normal(size=(q, rho)) + rng.normal(size=rho) + noise * rng.normal(size=(n, rho))
    return F


def scatter(F):
    """Return features off the direction 1, (n − 1, ρ): what the centred kernel is made of."""
    return helmert(len(F)) @ F


def spectrum(F):
    G = scatter(F)
    lam, U = np.linalg.eigh(G @ G.T)
    return Spectrum(lam[::-1], U[:, ::-1], float(lam.sum()), len(F))


def dense_bic(F):
    """Return −2 ln L + p ln ρ of every q, where a feature dimension is a draw from N(0, C)."""
    G, found = scatter(F), []
    d, rho = G.shape
    ell, U = np.linalg.eigh(G @ G.T / rho)
    for q in range(1, d - 1):
        noise = ell[: d - q].mean()
        C = U[:, d - q :] @ np.diag(ell[d - q :] - noise) @ U[:, d - q :].T + noise * np.eye(d)
        value = multivariate_normal(np.zeros(d), C, allow_singular=False).logpdf(G.T).sum()
        found.append(-2 * value + (d * q - q * (q - 1) / 2 + 1) * np.log(rho))
    return np.array(found)


def dense_ard(F, steps=20000):
    """Return the number of columns of B left by EM with α_p = (n − 1)/b_pᵀb_p (Bishop 1999)."""
    G = scatter(F)
    d, rho = G.shape
    S = G @ G.T / rho
    ell, U = np.linalg.eigh(S)
    ell, U = ell[::-1], U[:, ::-1]
    q = d - 1
    noise = ell[q:].mean()
    B = U[:, :q] * np.sqrt(ell[:q] - noise)
    for _ in range(steps):
        alpha = d / np.maximum((B**2).sum(axis=0), 1e-300)
        kept = alpha < 1e12
        B, alpha = B[:, kept], alpha[kept]
        D = B.T @ B + noise * np.eye(B.shape[1])
        inverse = np.linalg.inv(D)
        # per observation: E[w gᵀ] = D⁻¹BᵀS and E[wwᵀ] = σ²D⁻¹ + D⁻¹BᵀSBD⁻¹
        first = S @ B @ inverse
        second = noise * inverse + inverse @ B.T @ S @ B @ inverse
        after = first @ np.linalg.inv(second + noise * np.diag(alpha) / rho)
        noise = np.trace(S - 2 * first @ after.T + after @ second @ after.T) / d
        B = after
    return B.shape[1]


@pytest.mark.parametrize("rho", [30, 200])
def test_bic_is_that_of_the_dense_likelihood_of_feature_dimensions(rho):
    F = features(0, n=12, rho=rho, noise=1.0)
    assert inferred("bic", spectrum(F), rho) == 1 + int(np.argmin(dense_bic(F)))


@pytest.mark.parametrize("noise", [0.3, 1.2])
def test_ard_leaves_the_columns_that_em_leaves(noise):
    F = features(1, n=10, rho=40, noise=noise)
    assert inferred("ard", spectrum(F), 40) == dense_ard(F)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("rho", [100, 600])
def test_a_known_dimension_is_found(rule, rho):
    found = [
        ProbabilisticKernelPCA(rule, kernel="linear").fit(features(s, rho=rho)).n_components_
        for s in range(10)
    ]
    assert sum(q == 3 for q in found) >= 9


@pytest.mark.parametrize("rule", RULES)
def test_a_given_number_of_features_is_what_a_rule_counts(rule):
    F = features(3, rho=600)
    K = F @ F.T
    told = ProbabilisticKernelPCA(rule, kernel="precomputed", feature_dim=600).fit(K)
    linear = ProbabilisticKernelPCA(rule, kernel="linear").fit(F)
    assert told.n_components_ == linear.n_components_ == 3


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("given", [{"method": "em"}, {"noise": "diagonal"}], ids=str)
def test_every_way_to_fit_has_the_dimension_that_was_found(rule, given):
    F = features(4)
    closed = ProbabilisticKernelPCA(rule, kernel="linear").fit(F)
    other = ProbabilisticKernelPCA(rule, kernel="linear", **given).fit(F)
    assert other.n_components_ == closed.n_components_ == 3


@pytest.mark.parametrize("rule", RULES)
def test_the_fit_is_the_maximum_with_that_number(rule):
    F = features(5)
    named, counted = (ProbabilisticKernelPCA(q, kernel="linear").fit(F) for q in (rule, 3))
    assert_close(named.coordinates_, counted.coordinates_, "vector")
    assert_close(named.loglikelihood_, counted.loglikelihood_, "em")


@pytest.mark.parametrize("rule", RULES)
def test_kernels_of_unknown_dimension_count_the_span_of_the_points(rule):
    X = make_moons(60, noise=0.05, random_state=0)[0]
    model, told = (
        ProbabilisticKernelPCA(rule, kernel="rbf", gamma=2.0, feature_dim=rho).fit(X)
        for rho in (None, 60)
    )
    assert 1 <= model.n_components_ == told.n_components_ < 59


def test_the_roles_are_those_of_ppca_turned_round():
    F = features(6, n=20, rho=400)
    turned = F - F.mean(axis=0)  # u
    rows = helmert(20) @ turned  # a row per direction of the points, a column per feature
    other = PPCA("bic", standardize=False).fit(rows.T - rows.T.mean(axis=0))
    assert ProbabilisticKernelPCA("bic", kernel="linear").fit(F).n_components_ == 3
    assert other.n_components_ == 3


def test_noise_keeps_one_and_says_so():
    F = np.random.default_rng(0).normal(size=(20, 2000))
    with pytest.warns(SelectionWarning, match="finds no component"):
        assert ProbabilisticKernelPCA("bic", kernel="linear").fit(F).n_components_ == 1


def test_other_words_are_refused():
    with pytest.raises(ValueError, match="n_components must be an integer from 1 to 148"):
        ProbabilisticKernelPCA("aic").fit(load_iris().data)


# --- mixtures over feature dimensions (theory 6.2) --------------------------------------------


def two_groups(seed=0):
    """Return features of 40 points of which half know one grouping of the points, half another."""
    rng = np.random.default_rng(seed)
    one, other = rng.choice([-1.0, 1.0], size=(2, 40))
    F = np.concatenate([np.outer(s, rng.normal(size=60)) for s in (one, other)], axis=1)
    return F + 0.2 * rng.normal(size=F.shape), np.repeat([0, 1], 60), (one, other)


def test_one_group_of_feature_dimensions_is_probabilistic_kernel_pca():
    F = features(7, n=12, rho=40)
    F = np.concatenate([F, -F], axis=1)  # m = 0
    one = MixturePPCA(1, 2, standardize=False).fit((F - F.mean(axis=0)).T)
    kernel = ProbabilisticKernelPCA(2, kernel="linear").fit(F)
    assert_close(one.covariances_[0], 12 / 80 * kernel.get_covariance(), "vector")


def test_groups_of_feature_dimensions_have_maps_of_their_own():
    F, truth, (one, other) = two_groups()
    G = (F - F.mean(axis=0)).T
    model = MixturePPCA(2, 1, standardize=False, tol=1e-12, max_iter=5000).fit(G)
    found = model.predict(G)
    assert max(np.mean(found == truth), np.mean(found != truth)) > 0.9
    maps = [np.abs(np.corrcoef(W[:, 0], s)[0, 1]) for W in model.loadings_ for s in (one, other)]
    assert sorted(maps)[2] > 0.99 > sorted(maps)[1]
    # dense: Σ_k π_k N(g_j; m_k, B_kB_kᵀ + σ_k²I) and the responsibilities that it gives
    parts = zip(model.weights_, model.means_, model.loadings_, model.noise_variance_, strict=True)
    logs = np.stack(
        [
            np.log(pi) + multivariate_normal(m, B @ B.T + s2 * np.eye(40)).logpdf(G)
            for pi, m, B, s2 in parts
        ],
        axis=1,
    )
    total = np.logaddexp.reduce(logs, axis=1)
    assert_close(model.loglikelihood_, total.sum(), "em")
    found = model.predict_proba(G, parameters="fixed")
    assert_close(found, np.exp(logs - total[:, None]), "em")
