"""Fused kernel passes equal the kernel as a matrix; without a card Triton interprets them."""

import numpy as np
import pytest

import dualpca as dp
from dualpca.kernels import (
    RBF,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
    fused_form,
)
from dualpca.operators import dual, fused
from dualpca.operators.dual import Fused, Gram, make_gram
from dualpca.operators.fused import FusedPoints

torch = pytest.importorskip("torch", reason="fused passes run on torch tensors")
pytest.importorskip("triton", reason="fused passes are Triton programs")

from dualpca.kernels import fused_product as product  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BITS_11, SINGLE = 3e-3, 2e-6

KERNELS = {
    "rbf": RBF(gamma=0.3),
    "rbf columns": RBF(length_scale=(0.7, 1.0, 1.5, 2.0, 0.9)),
    "matern 1/2": Matern(nu=0.5, length_scale=1.5),
    "matern 3/2": Matern(nu=1.5, length_scale=1.5),
    "matern 5/2": Matern(nu=2.5, length_scale=1.5),
    "rational": RationalQuadratic(alpha=1.3),
    "laplacian": Laplacian(gamma=0.4),
    "polynomial 2": Polynomial(degree=2, gamma=0.5, coef0=1.0),
    "polynomial 3": Polynomial(degree=3),
}


def points(n, d, seed=0, shift=0.0):
    rows = np.random.default_rng(seed).normal(size=(n, d)) + shift
    return torch.asarray(rows, dtype=torch.float64, device=DEVICE)


def block(n, b, seed=1):
    rows = np.random.default_rng(seed).normal(size=(n, b))
    return torch.asarray(rows, dtype=torch.float64, device=DEVICE)


def error(found, wanted):
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("name", KERNELS)
def test_products_equal_the_matrix(name):
    X, V, kernel = points(300, 5), block(300, 7), KERNELS[name]
    gram, wanted = Fused(FusedPoints(X, kernel)), kernel(X, X) @ V
    assert error(gram.times(V), wanted) < BITS_11
    assert error(gram.times_in_double(V), wanted) < SINGLE


@pytest.mark.parametrize("n", [2, 127, 128, 129, 300])
@pytest.mark.parametrize("d", [1, 16, 17, 64, 100])
def test_any_number_of_points_and_columns(n, d):
    X, V, kernel = points(n, d), block(n, 3), RBF(gamma=0.5 / d)
    assert error(Fused(FusedPoints(X, kernel)).times_in_double(V), kernel(X, X) @ V) < SINGLE


@pytest.mark.parametrize("b", [1, 16, 17, 64, 65, 130])
def test_any_width_of_the_block(b):
    X, V, kernel = points(130, 4), block(130, b), RBF(gamma=0.2)
    found = Fused(FusedPoints(X, kernel)).times_in_double(V)
    assert found.shape == (130, b)
    assert error(found, kernel(X, X) @ V) < SINGLE


def test_columns_of_any_size_in_one_block():
    """16 bits have little range: every column is brought into it by a power of two."""
    X, kernel = points(130, 4), RBF(gamma=0.2)
    size = torch.asarray([1e-30, 1e-3, 1.0, 1e8, 0.0], dtype=torch.float64, device=DEVICE)
    V = block(130, 5) * size
    for times in (
        Fused(FusedPoints(X, kernel)).times,
        Fused(FusedPoints(X, kernel)).times_in_double,
    ):
        found, wanted = times(V), kernel(X, X) @ V
        for c in range(4):
            assert error(found[:, c], wanted[:, c]) < BITS_11
        assert float(found[:, 4].abs().max()) == 0.0


def test_points_far_from_the_origin_lose_no_digits():
    X, V, kernel = points(200, 3, shift=1e4), block(200, 2), RBF(gamma=0.5)
    assert error(Fused(FusedPoints(X, kernel)).times_in_double(V), kernel(X, X) @ V) < SINGLE


@pytest.mark.parametrize("kernel", [RBF(gamma=0.5), Laplacian(gamma=0.5), Matern()])
def test_points_too_far_apart_for_float32_are_not_fused(kernel, monkeypatch):
    for module in (dual, fused):
        monkeypatch.setattr(module, "can_fuse", lambda X, kernel: True)
    near, far = points(150, 3), torch.cat([points(150, 3), 1e6 + points(150, 3)])
    assert type(make_gram(near, kernel, single=True)) is Fused
    gram = make_gram(far, kernel, single=True)
    assert type(gram) is Gram
    assert not gram.single


@pytest.mark.parametrize("nu", [0.5, 1.5])
def test_equal_points_have_the_value_one(nu):
    """The square root at zero would make an error of 1e-3 out of rounding."""
    X = points(1, 6).repeat(150, 1) * 5
    X[75:] += 4.0
    V = torch.ones((150, 1), dtype=torch.float64, device=DEVICE)
    kernel = Matern(nu=nu, length_scale=1.0)
    assert error(Fused(FusedPoints(X, kernel)).times_in_double(V), kernel(X, X) @ V) < 1e-5


@pytest.mark.parametrize("mode", product.LAUNCH)
def test_every_mode_and_setting(mode):
    X, V = points(200, 70), block(200, 4)
    kernel = RBF(gamma=0.01)
    form, wanted = fused_form(kernel, X), kernel(X, X) @ V
    for setting in product.LAUNCH[mode]:
        part = product.prepare(X, form, mode, X.mean(0))
        kept, product.LAUNCH[mode] = product.LAUNCH[mode], [setting]
        try:
            found = product.multiply(form, part, part, V)
        finally:
            product.LAUNCH[mode] = kept
        assert error(found, wanted) < (SINGLE if mode.endswith("x3") else BITS_11)


@pytest.mark.parametrize("kernel", [RBF(gamma=0.3), Laplacian(gamma=0.4), Polynomial(degree=2)])
def test_sums_may_be_taken_over_in_double_after_every_tile(kernel, monkeypatch):
    X, V = points(300, 5), block(300, 7)
    wanted = kernel(X, X) @ V
    for mode in product.INNER:
        monkeypatch.setitem(product.INNER, mode, 1)
    assert error(Fused(FusedPoints(X, kernel)).times(V), wanted) < BITS_11
    assert error(Fused(FusedPoints(X, kernel)).times_in_double(V), wanted) < SINGLE


def test_coarse_distances_are_those_of_rounded_points():
    """So the matrix is a kernel matrix still, of points that moved a little: no noise in it."""
    X = points(256, 3)
    form = fused_form(RBF(gamma=0.5), X)
    for mode in ("half", "tf32"):
        part = product.prepare(X, form, mode, X.mean(0))
        moved = part.high[:256, :3].to(torch.float64)
        assert 0 < float((moved - (X - X.mean(0)) * form.factor).abs().max()) < 2e-3
        norms = 0.5 * (moved * moved).sum(1)
        assert float((part.half_norms[:256] - norms).abs().max()) < 1e-6 * float(norms.max())


def test_led_takes_every_step_th_point():
    X, V, kernel = points(200, 4), block(50, 3), RBF(gamma=0.2)
    assert error(Fused(FusedPoints(X, kernel)).led(4, V), kernel(X, X[::4]) @ V) < BITS_11


def test_only_known_kernels_on_all_columns_have_a_form():
    X = np.zeros((2, 3))
    assert fused_form(Linear(), X) is None
    assert fused_form(RBF(on=(0, 1)), X) is None
    assert fused_form(RBF() + RBF(), X) is None
    assert fused_form(Polynomial(degree=9), X) is None
    with pytest.raises(TypeError, match="no fused pass"):
        FusedPoints(points(3, 3), Linear())


def test_what_is_not_on_a_card_is_not_fused():
    assert type(make_gram(np.zeros((4, 2)), RBF(), single=True)) is Gram
    assert type(make_gram(torch.zeros((4, 2)), RBF(), single=True)) is Gram


def test_kernel_pca_through_fused_passes(monkeypatch):
    monkeypatch.setattr(fused, "can_fuse", lambda X, kernel: True)
    X = points(300, 8) * torch.linspace(3, 0.3, 8, dtype=torch.float64, device=DEVICE)
    fitted = dp.KernelPCA(4, kernel="rbf", gamma=0.05, tol=1e-5, eigen_solver="krylov").fit(X)
    exact = dp.KernelPCA(4, kernel="rbf", gamma=0.05).fit(X.cpu().numpy())
    values = fitted.eigenvalues_.cpu().numpy()
    np.testing.assert_allclose(values, exact.eigenvalues_, rtol=1e-5)
    found = fitted.transform(X).cpu().numpy()
    np.testing.assert_allclose(found, exact.transform(X.cpu().numpy()), atol=2e-2)


def test_what_11_bits_leave_is_taken_up_by_one_accurate_product(monkeypatch):
    """Products of 11 bits leave residuals of 1e-4; eigenvalues to 1e-9 need smaller ones."""
    monkeypatch.setattr(fused, "can_fuse", lambda X, kernel: True)
    X, sharp, plain = points(400, 12), [], Fused.times_in_double
    monkeypatch.setattr(Fused, "times_in_double", lambda *a: sharp.append(1) or plain(*a))
    setting = dict(kernel="rbf", gamma=0.02, eigen_solver="krylov", dtype="float32")
    exact = dp.KernelPCA(3, kernel="rbf", gamma=0.02).fit(X.cpu().numpy())
    for tol in (1e-4, 1e-9):
        found = dp.KernelPCA(3, tol=tol, **setting).fit(X).eigenvalues_.cpu().numpy()
        np.testing.assert_allclose(found, exact.eigenvalues_, rtol=max(tol, 3e-6))
    assert 2 <= len(sharp) <= 6
