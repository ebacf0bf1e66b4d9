"""`n_parameters_`: one name for the number of free parameters, and the BIC uses the same."""

import numpy as np
import pytest

from dualpca import (
    CCA,
    PCA,
    PPCA,
    BayesianPCA,
    CopulaPPCA,
    DualPPCA,
    FactorAnalysis,
    HiddenMarkovPCA,
    MixturePPCA,
    ProbabilisticKernelPCA,
    RobustPPCA,
    SequenceClassifier,
    TwinKernelPCA,
)
from dualpca.kernels import RBF, Linear
from dualpca.models.twin import Twin, redundant_directions
from tests import oracles

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 2)) @ RNG.standard_normal((2, 5)) + 0.5 * RNG.standard_normal((40, 5))


def rank_of(covariance, theta):
    """Return the rank of the derivatives of a covariance: its number of free parameters."""
    J = []
    for i in range(len(theta)):
        step = np.zeros(len(theta))
        step[i] = 1e-6
        J.append((covariance(theta + step) - covariance(theta - step)).ravel() / 2e-6)
    s = np.linalg.svd(np.array(J), compute_uv=False)
    return int((s > 1e-6 * s[0]).sum())


@pytest.mark.parametrize("q", [1, 2, 4, 5])
def test_spiked_models_count_what_s4_derives(q):
    d = X.shape[1]
    count = oracles.n_parameters_by_rank(d, q) + d
    assert PPCA(q).fit(X).n_parameters_ == count == oracles.n_parameters(d, q)
    assert PCA(q).fit(X).n_parameters_ == count
    given = PPCA(q, noise_variance=1e-6).fit(X).n_parameters_
    assert given == count - (1 if q < d else 0)
    assert PPCA(q, noise_variance=0).fit(X).n_parameters_ == given


def test_bayesian_pca_counts_what_it_keeps():
    model = BayesianPCA().fit(X)
    assert model.n_parameters_ == oracles.n_parameters(5, model.n_components_)


@pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")
def test_factor_analysis_counts_a_noise_per_feature():
    def covariance(theta):
        W = theta[:10].reshape(5, 2)
        return W @ W.T + np.diag(theta[10:])

    theta = np.random.default_rng(1).uniform(0.5, 1.5, 15)
    found = FactorAnalysis(2).fit(X).n_parameters_
    # two factors of five features: a covariance of 15 entries has 14 of them
    assert found == rank_of(covariance, theta) + 5 == 19


def test_two_views_count_the_rank_of_their_covariance():
    dx, dy, q = 3, 2, 1

    def covariance(theta):
        A, B = theta[:9].reshape(3, 3), theta[9:13].reshape(2, 2)
        C = np.outer(theta[13:16], theta[16:18])
        return np.block([[A @ A.T, C], [C.T, B @ B.T]])

    count = rank_of(covariance, np.random.default_rng(1).uniform(0.5, 1.5, 18))
    assert CCA(q).fit(X[:, :dx], X[:, dx:]).n_parameters_ == count + dx + dy


def test_dual_models_count_in_their_noise_dimension():
    for r in (40, 39):
        model = DualPPCA(3, gamma=0.2, noise_dim=r).fit(X)
        assert model.n_parameters_ == 3 * r - 3 + 1 + r
    assert DualPPCA(3, gamma=0.2, center=False).fit(X).n_parameters_ == 3 * 40 - 3 + 1
    assert DualPPCA(3, gamma=0.2, noise_variance=0).fit(X).n_parameters_ == 3 * 40 - 3 + 40
    linear = DualPPCA(2, kernel="linear", noise_dim=5).fit(X)
    assert linear.n_parameters_ == PPCA(2).fit(X).n_parameters_


def test_probabilistic_kernel_pca_counts_its_covariance():
    assert ProbabilisticKernelPCA(2, gamma=0.2).fit(X).n_parameters_ == 2 * 40 - 1 + 1
    given = ProbabilisticKernelPCA(2, gamma=0.2, noise_variance=1e-3).fit(X)
    assert given.n_parameters_ == 2 * 40 - 1
    model = ProbabilisticKernelPCA(1, gamma=0.2, noise="diagonal").fit(X)
    assert model.n_parameters_ == 40 + 40


@pytest.mark.parametrize("kernel", [RBF(length_scale=1.0), Linear(), RBF(gamma=0.5) + Linear()])
@pytest.mark.parametrize("q", [1, 2, 3])
def test_twins_count_coordinates_up_to_what_leaves_the_kernel(kernel, q):
    n = 9
    Z = np.random.default_rng(2).standard_normal((n, q))

    def covariance(theta):
        twin = Twin(theta[:-2].reshape(n, q), kernel, np.exp(theta[-2]), np.exp(theta[-1]))
        return twin.covariance()

    free = rank_of(covariance, np.concatenate([Z.ravel(), [0.1, -0.5]]))
    assert n * q + 2 - redundant_directions(Twin(Z, kernel, 1.1, 0.6)) == free


def test_fitted_twins_say_it():
    model = TwinKernelPCA(2, n_init=1).fit(X[:20])
    assert model.n_parameters_ == 2 * 20 + 2 - 2 - 1  # two shifts and a rotation


def test_bic_uses_the_same_number():
    model = MixturePPCA(2, 1, random_state=0).fit(X)
    total = model.score_samples(X).sum()
    assert model.bic(X) == pytest.approx(-2 * total + np.log(40) * model.n_parameters_)
    assert model.n_parameters_ == 2 * oracles.n_parameters(5, 1) + 1
    chain = HiddenMarkovPCA(2, 1, random_state=0).fit(X)
    assert chain.aic(X) == pytest.approx(-2 * 40 * chain.score(X) + 2 * chain.n_parameters_)
    ell = oracles.eigh_descending(oracles.covariance(X))[0]
    for q in (1, 2, 3):
        one = PPCA(q).fit(X)
        found = -2 * one.loglikelihood_ + np.log(40) * one.n_parameters_
        assert found == pytest.approx(oracles.bic(ell, 40, q))


def test_classes_add_up():
    y = np.repeat([0, 1], 4)
    model = SequenceClassifier(HiddenMarkovPCA(1, 1)).fit(X, y, lengths=[5] * 8)
    assert model.n_parameters_ == sum(one.n_parameters_ for one in model.models_)


def test_robust_counts_the_degrees_of_freedom_unless_they_are_given():
    X = np.random.default_rng(0).normal(size=(60, 4))
    plain = PPCA(1).fit(X).n_parameters_
    assert RobustPPCA(1).fit(X).n_parameters_ == plain + 1
    assert RobustPPCA(1, degrees_of_freedom=5.0).fit(X).n_parameters_ == plain


@pytest.mark.parametrize(("noise", "count"), [("diagonal", 4 * 2 - 1), ("isotropic", 4 + 1 - 1)])
def test_copula_counts_loadings_less_rotations(noise, count):
    """With noise common to all columns a row of W has a length that is given, and one is free."""
    X = np.random.default_rng(0).normal(size=(80, 4)).cumsum(axis=1)
    assert CopulaPPCA(2, noise=noise).fit(X).n_parameters_ == count


def test_copula_counts_differences_between_levels():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(80, 2)), rng.integers(3, size=80)])
    model = CopulaPPCA(1, column_kinds=[None, None, "nominal"]).fit(X)
    assert model.n_parameters_ == 2 + (3 - 1)
