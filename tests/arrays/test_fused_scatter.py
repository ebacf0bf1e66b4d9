"""Second moments in one pass of the GPU, which Triton's interpreter runs where there is none."""

import numpy as np
import pytest

from dualpca.arrays import algebra, backend
from dualpca.data import Moments, moments

torch = pytest.importorskip("torch", reason="fused sums run on torch tensors")
pytest.importorskip("triton", reason="fused sums are Triton programs")

from dualpca.arrays.fused_scatter import second_moments  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def rows(n, d, offset=0.0, seed=0):
    found = np.random.default_rng(seed).normal(size=(n, d)) * np.geomspace(1, 30, d) + offset
    return torch.asarray(found.astype(np.float32), device=DEVICE)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("n", "d", "slices"),
    [(1, 1, 1), (300, 5, 1), (2048, 64, 1), (2049, 65, 1), (4500, 130, 1), (4500, 5, 3)],
)
def test_sums_are_those_of_float64(n, d, slices, weighted, monkeypatch):
    if slices > 1:
        monkeypatch.setattr("dualpca.arrays.fused_scatter.SLICE_ENTRIES", 1)
    X = rows(n, d, offset=100.0)
    weights = torch.linspace(0.0, 2.0, n, dtype=torch.float64, device=DEVICE) if weighted else None
    shift = X[:64].double().mean(0).float().double()
    total, scatter = second_moments(X, shift, weights, X[:64].double())
    C = X.double() - shift
    w = torch.ones(n, dtype=torch.float64, device=DEVICE) if weights is None else weights
    exact = (C * w[:, None]).T @ C
    size = exact.diagonal().sqrt()
    torch.testing.assert_close(total, w @ C, rtol=1e-7, atol=1e-6 * n**0.5 * float(C.abs().max()))
    assert float(((scatter - exact) / torch.outer(size, size).clamp_min(1e-30)).abs().max()) < 3e-6
    assert torch.equal(scatter, scatter.T)


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_a_column_that_float16_cannot_hold_is_left_to_others():
    """The rows looked at first are no guide to one that is 1e9 times as large."""
    X = rows(600, 4)
    X[500, 2] = 1e9
    shift = torch.zeros(4, dtype=torch.float64, device=DEVICE)
    assert second_moments(X, shift, None, X[:64].double()) is None


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e5])
def test_moments_of_rows_on_a_gpu(offset, monkeypatch):
    """As if the tensors were on a GPU: covariances to 1e-5 with a mean 1,000 deviations away."""
    monkeypatch.setattr(backend, "on_cuda", backend.is_foreign)
    monkeypatch.setattr(algebra, "can_fuse_scatter", lambda X: True)
    monkeypatch.setattr(moments, "GPU_AT_ONCE", 0)
    X = rows(3000, 20, offset)
    exact = np.cov(X.double().cpu().numpy().T, bias=True)
    found = Moments.of(X, None, single=True)
    np.testing.assert_allclose(
        backend.to_numpy(found.mean), X.double().mean(0).cpu(), rtol=1e-7, atol=1e-4
    )
    size = np.sqrt(np.diag(exact))
    error = np.abs(backend.to_numpy(found.scatter) / len(X) - exact) / np.outer(size, size)
    assert error.max() < 1e-5
