"""Fused products of points: against the kernel's own matrix, in subspaces, and from led starts."""

import numpy as np
import pytest

import dualpca as dp
from dualpca.kernels import RBF
from dualpca.operators import Dual, fused
from dualpca.operators.dual import Fused
from dualpca.operators.fused import FusedPoints, can_fuse
from dualpca.operators.subspace import Subspace
from dualpca.solvers import exact

torch = pytest.importorskip("torch", reason="fused passes run on torch tensors")
pytest.importorskip("triton", reason="fused passes are Triton programs")

KERNEL = RBF(gamma=0.2)


@pytest.fixture(autouse=True)
def on_a_card(monkeypatch):
    monkeypatch.setattr(fused, "can_fuse", lambda X, kernel: True)


def rows(n, d=5, seed=0):
    return torch.asarray(np.random.default_rng(seed).normal(size=(n, d)), dtype=torch.float32)


def error(found, wanted):
    return float((found - wanted).norm() / wanted.norm())


def matrix(X, Y):
    return KERNEL(X.double(), Y.double())


def test_rows_on_the_host_are_not_fused():
    assert not can_fuse(rows(4), KERNEL)


@pytest.mark.parametrize("m", [1, 70])
def test_new_rows_against_points(m):
    X, Y = rows(150), rows(m, seed=1)
    V = rows(150, 3, seed=2).double()
    assert error(FusedPoints(X, KERNEL).against(Y, V), matrix(Y, X) @ V) < 2e-6


def test_some_of_the_points_are_measured_from_where_all_are():
    X = rows(160) + 1e3
    all_of_them = FusedPoints(X, KERNEL)
    some = FusedPoints(X[::4], KERNEL, like=all_of_them)
    assert some.origin is all_of_them.origin
    assert some.form is all_of_them.form


def subspace(X, points_fused):
    A = rows(X.shape[0], 2, seed=3).double()
    at = torch.zeros(X.shape[0], dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    return Subspace(X, KERNEL, A, at[0], at[1], 0.0, fused=points_fused)


def test_a_subspace_of_float32_points_is_multiplied_by_the_fused_program(monkeypatch):
    X, Y, asked, plain = rows(120), rows(40, seed=1), [], FusedPoints.against
    monkeypatch.setattr(FusedPoints, "against", lambda *a: asked.append(1) or plain(*a))
    wanted = matrix(Y, X) @ subspace(X, True).coefficients
    assert error(subspace(X, True).coordinates(Y), wanted) < 2e-6
    assert len(asked) == 1
    assert error(subspace(X, False).coordinates(Y), wanted) < 1e-12
    assert len(asked) == 1


def test_gradients_and_far_rows_take_the_other_way():
    X = rows(120)
    Y = rows(6, seed=1).double().requires_grad_(True)
    found = subspace(X, True).coordinates(Y)
    found.sum().backward()
    assert Y.grad is not None
    far = rows(6, seed=1).double() + 1e7
    assert float(subspace(X, True).coordinates(far).abs().max()) == 0.0


class Rounded(Fused):
    """What the GPU's products are, made from the whole matrix: quick without a GPU."""

    @property
    def K(self):
        return matrix(self.points, self.points)

    def times(self, V):
        return self.K.half().double() @ _eleven_bits(V)

    def times_in_double(self, V):
        rng = torch.Generator().manual_seed(0)
        Y = self.K @ V
        return Y * (1 + 1e-6 * torch.randn(Y.shape, dtype=torch.float64, generator=rng))

    def led(self, step, V):
        return matrix(self.points, self.points[::step]) @ _eleven_bits(V)

    def thinned(self, step):
        return Rounded(FusedPoints(self.points[::step], self.kernel, like=self.fused))


def _eleven_bits(V):
    size = 1024 * 2.0 ** -torch.floor(torch.log2(V.abs().amax(0)))
    return (V * size).half().double() / size


@pytest.mark.slow
@pytest.mark.parametrize(("tol", "allowed"), [(0.0, 5e-6), (1e-4, 1e-4)])
def test_a_start_from_every_eighth_point_leads_to_the_eigenvalues(tol, allowed, monkeypatch):
    monkeypatch.setattr(exact, "FEWEST_LED", 8)
    thin, plain = [], Rounded.thinned
    monkeypatch.setattr(Rounded, "thinned", lambda *a: thin.append(a[1]) or plain(*a))
    X = rows(2400, 12) * torch.linspace(2.0, 0.3, 12)
    A = Dual(Rounded(FusedPoints(X, KERNEL)))
    found = exact.Krylov(tol=tol)._by_blocks(A, 3, np.random.default_rng(0))
    K = matrix(X, X)
    K = K - K.mean(0) - K.mean(1, keepdim=True) + K.mean()
    wanted, vectors = torch.linalg.eigh(K)
    np.testing.assert_allclose(found.values, wanted[-3:].flip(0), rtol=allowed)
    alike = (found.vectors * vectors[:, -3:].flip(1)).sum(0).abs()
    assert float(alike.min()) > 1 - 1e-3
    assert exact.THINNED in thin


def test_kernel_pca_of_float32_rows_is_fused_without_an_option():
    X = rows(400, 8) * torch.linspace(3, 0.3, 8)
    fitted = dp.KernelPCA(3, kernel="rbf", gamma=0.05, eigen_solver="krylov").fit(X)
    wanted = dp.KernelPCA(3, kernel="rbf", gamma=0.05).fit(X.double().numpy())
    np.testing.assert_allclose(fitted.eigenvalues_.numpy(), wanted.eigenvalues_, rtol=1e-5)
