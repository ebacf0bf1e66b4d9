"""Results are differentiable in the rows: torch's gradients against finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from dualpca import PCA, PPCA, BayesianPCA, DualPPCA, FactorAnalysis, KernelPCA, MixturePPCA
from dualpca.kernels import RBF, Linear, Matern, Polynomial

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2)) @ RNG.normal(size=(2, 4)) + 0.3 * RNG.normal(size=(40, 4))
NEW = RNG.normal(size=(3, 4))


def differentiable(of, rows):
    given = torch.tensor(rows, requires_grad=True)
    return torch.autograd.gradcheck(of, (given,), eps=1e-6, atol=1e-6, rtol=1e-4)


LINEAR = [PCA(2), PPCA(2), PPCA(2, standardize=True), FactorAnalysis(2), BayesianPCA(2)]
KERNEL = [
    KernelPCA(2, kernel=RBF(gamma=0.1)),
    KernelPCA(2, kernel=Linear() + 1.0),
    KernelPCA(2, kernel=Polynomial(degree=2) * RBF(gamma=0.1)),
    KernelPCA(2, kernel=Matern(nu=2.5), eigen_solver="nystrom", n_landmarks=20),
    KernelPCA(2, kernel=RBF(gamma=0.1), eigen_solver="fourier", n_landmarks=30),
    DualPPCA(2, kernel=RBF(gamma=0.1)),
]


@pytest.fixture(scope="module")
def fitted():
    kept = {}

    def fit(model):
        key = repr(model)
        if key not in kept:
            kept[key] = model.fit(torch.tensor(X))
        return kept[key]

    return fit


@pytest.mark.parametrize("model", LINEAR + KERNEL, ids=repr)
def test_transform(model, fitted):
    assert differentiable(fitted(model).transform, NEW)


@pytest.mark.parametrize(
    "model", [*LINEAR, MixturePPCA(2, 1, random_state=0), KERNEL[-1]], ids=repr
)
def test_score_samples(model, fitted):
    assert differentiable(fitted(model).score_samples, NEW)


@pytest.mark.parametrize(
    "model", [PPCA(2), FactorAnalysis(2), BayesianPCA(2), KERNEL[-1]], ids=repr
)
def test_posterior_mean(model, fitted):
    assert differentiable(lambda rows: fitted(model).posterior(rows)[0], NEW)


@pytest.mark.parametrize("model", LINEAR, ids=repr)
def test_inverse_transform(model, fitted):
    assert differentiable(fitted(model).inverse_transform, NEW[:, :2])


@pytest.mark.parametrize("model", [KERNEL[0], KERNEL[-1]], ids=repr)
def test_inverse_transform_by_preimages(model, fitted):
    given = torch.tensor(0.3 * NEW[:, :2], requires_grad=True)
    found = fitted(model).inverse_transform
    assert torch.autograd.gradcheck(found, (given,), eps=1e-5, atol=1e-3, rtol=1e-2)


@pytest.mark.parametrize("model", [PPCA(2), FactorAnalysis(2)], ids=repr)
def test_missing_entries_have_no_gradient(model, fitted):
    rows = torch.tensor(NEW)
    rows[0, 1] = torch.nan
    rows.requires_grad_(True)
    fitted(model).score_samples(rows).sum().backward()
    assert rows.grad[0, 1] == 0
    assert torch.isfinite(rows.grad).all()


@pytest.mark.parametrize("model", [PCA(2), KernelPCA(2, kernel="rbf")], ids=repr)
def test_fit_keeps_no_history(model):
    rows = torch.tensor(X, requires_grad=True)
    model.fit(rows)
    assert not model.transform(torch.tensor(NEW)).requires_grad
    assert rows.grad is None


def test_no_gradient_where_none_is_asked_for(fitted):
    with torch.no_grad():
        found = fitted(PCA(2)).transform(torch.tensor(NEW, requires_grad=True))
    assert not found.requires_grad


# --- torch's generators --------------------------------------------------------------------------


def test_generator_of_torch_is_a_random_state(fitted):
    model = fitted(PPCA(2))
    one, other = (torch.Generator().manual_seed(3) for _ in range(2))
    first, again = model.sample(4, random_state=one), model.sample(4, random_state=other)
    assert torch.equal(first, again)
    assert not torch.equal(first, model.sample(4, random_state=one))  # its state has advanced


def test_generator_of_torch_in_a_fit():
    rows = X.copy()
    rows[::7, 1] = np.nan
    fits = [PPCA(2, random_state=torch.Generator().manual_seed(1)).fit(rows) for _ in range(2)]
    assert np.array_equal(fits[0].loadings_, fits[1].loadings_)
