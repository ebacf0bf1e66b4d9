"""Published and prototype numbers (design notes, table of reference values)."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from dualpca import PCA, PPCA, DualPPCA
from dualpca.operators.primal import Primal
from dualpca.solvers import solve
from dualpca.solvers.base import SOLVERS
from tests import oracles

OIL_NOISE, OIL_LOGLIKELIHOOD = 0.0885690, -4732.617


@pytest.fixture(scope="module")
def faithful(shared_data):
    return np.loadtxt(shared_data("faithful.csv"), delimiter=",", skiprows=1)


@pytest.fixture(scope="module")
def oil(shared_data):
    with np.load(shared_data("oil_flow.npz")) as data:
        return data["X"].astype(np.float64)


@pytest.mark.parametrize("solver", sorted(SOLVERS))
@pytest.mark.parametrize(
    "standardize, expected", [(False, [185.1984, 0.24332]), (True, [1.90081, 0.09919])]
)
def test_old_faithful_eigenvalues(faithful, standardize, expected, solver):
    rep = Primal(faithful, standardize=standardize)
    values = np.asarray(solve(rep, 2, solver=solver, random_state=0).values) / rep.n
    np.testing.assert_allclose(values, expected, atol=1e-4)


@pytest.mark.parametrize(
    "standardize, expected", [(False, [185.1984, 0.24332]), (True, [1.90081, 0.09919])]
)
def test_old_faithful_through_pca(faithful, standardize, expected):
    n = len(faithful)
    model = PCA(standardize=standardize).fit(faithful)
    np.testing.assert_allclose(model.explained_variance_ * (n - 1) / n, expected, atol=1e-4)
    assert model.explained_variance_ratio_.sum() == pytest.approx(1.0)


def test_oil_flow_closed_form(oil):
    model = PPCA(n_components=2).fit(oil)
    assert float(model.noise_variance_) == pytest.approx(OIL_NOISE, rel=1e-5)
    assert model.loglikelihood_ == pytest.approx(OIL_LOGLIKELIHOOD, rel=1e-5)
    dense = oracles.ppca(oil, 2)
    np.testing.assert_allclose(model.get_covariance(), dense.covariance, atol=1e-12)


def test_oil_flow_em_is_the_closed_form(oil):
    closed = PPCA(n_components=2).fit(oil)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        em = PPCA(n_components=2, method="em", tol=0.0, max_iter=2000, random_state=0).fit(oil)
    W, W_em = np.asarray(closed.loadings_), np.asarray(em.loadings_)
    np.testing.assert_allclose(W_em @ W_em.T, W @ W.T, atol=1e-8)
    assert float(em.noise_variance_) == pytest.approx(OIL_NOISE, rel=1e-5)
    assert em.loglikelihood_ == pytest.approx(OIL_LOGLIKELIHOOD, rel=1e-5)
    assert np.all(np.diff(em.loglikelihoods_) >= -1e-9)


def test_oil_flow_first_hundred_rows(oil):
    model = PPCA(n_components=2).fit(oil[:100])
    assert float(model.noise_variance_) == pytest.approx(0.090930, rel=1e-5)
    assert model.loglikelihood_ == pytest.approx(-488.8220, rel=1e-5)


# --- S0: De Plaen & Suykens, dual PPCA ------------------------------------------------


@pytest.fixture(scope="module")
def wave():
    t = np.linspace(-7, 7, 20)
    return np.column_stack([t, np.sin(t)])


@pytest.mark.parametrize(
    "center, explained, noise", [(False, 0.707875, 0.017184), (True, 0.753663, 0.010482)]
)
@pytest.mark.parametrize("method", ["closed", "em"])
def test_dual_ppca_on_the_surrogate_of_figure_3(wave, center, explained, noise, method):
    options = {"gamma": 1 / 8, "center": center, "method": method}
    model = DualPPCA(3, tol=1e-10 if method == "em" else 0.0, **options).fit(wave)
    assert model.explained_variance_ratio_.sum() == pytest.approx(explained, abs=1e-6)
    assert model.noise_variance_ == pytest.approx(noise, abs=1e-6)


@pytest.mark.parametrize("seed", [0, 1])
def test_dual_ppca_on_mnist_as_in_figure_4(shared_data, seed):
    with np.load(shared_data("mnist10k.npz")) as data:
        names = list(data)
        images, labels = data[names[0]], data[names[1]]
    images, labels = np.asarray(images, dtype=float), np.asarray(labels)
    rng = np.random.default_rng(seed)
    ones, zeros = (
        rng.choice(np.flatnonzero(labels == digit), count, replace=False)
        for digit, count in ((1, 300), (0, 200))
    )
    X = images.reshape(len(images), -1)[np.concatenate([ones, zeros])] / 255
    model = DualPPCA(2, gamma=1 / 32, center=False).fit(X)
    assert model.explained_variance_ratio_.sum() == pytest.approx(0.277, abs=0.007)
    assert model.noise_variance_ == pytest.approx(0.00145, abs=0.00002)
