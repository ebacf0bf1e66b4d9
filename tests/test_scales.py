"""Units to the ends of the floating-point range, and rows that do not differ at all."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from dualpca import (
    PCA,
    PPCA,
    BayesianPCA,
    DualPPCA,
    FactorAnalysis,
    Imputer,
    KernelPCA,
    MixturePPCA,
    ProbabilisticKernelPCA,
    TwinKernelPCA,
)
from dualpca.errors import DegenerateError, ScaleError, ScaleWarning
from dualpca.kernels import ArcCosine, Cosine, Polynomial
from dualpca.preimages.iterative import LBFGSSteps

LIMITS = {"tol": 1e-8, "max_iter": 500}

ITERATIVE = {
    "em": lambda: PPCA(2, method="em", **LIMITS),
    "em, given noise": lambda: PPCA(2, method="em", **LIMITS),
    "variational": lambda: BayesianPCA(3, method="variational", **LIMITS),
    "ard": lambda: BayesianPCA(3, **LIMITS),
}


def table(n=60, d=5):
    """Draw rows with two strong directions."""
    rng = np.random.default_rng(0)
    signal = rng.standard_normal((n, 2)) @ rng.standard_normal((2, d))
    return 2 * signal + 0.3 * rng.standard_normal((n, d)) + 1.0


@pytest.mark.parametrize("name", sorted(ITERATIVE))
@pytest.mark.parametrize("scale", [1e-100, 1e100, 1e150])
def test_iterations_survive_any_unit(name, scale):
    # WᵀSW is of fourth order in the units: 1e±400 here, far outside of float64
    X = table()
    a, b = ITERATIVE[name](), ITERATIVE[name]()
    if "given" in name:
        a.set_params(noise_variance=0.1)
        b.set_params(noise_variance=0.1 * scale * scale)
    a.fit(X)
    b.fit(X * scale)
    np.testing.assert_allclose(b.components_, a.components_, atol=1e-5)
    np.testing.assert_allclose(b.explained_variance_ / scale**2, a.explained_variance_, rtol=1e-6)
    shifted = b.score_samples(X * scale) + X.shape[1] * np.log(scale)
    np.testing.assert_allclose(shifted, a.score_samples(X), rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-130, 1e-100, 1e100, 1e150])
def test_a_twin_places_points_in_any_unit(scale):
    X = table(20, 3)
    a, b = (TwinKernelPCA(1, max_iter=500, n_init=1).fit(X * s) for s in (1.0, scale))
    np.testing.assert_allclose(b.coordinates_, a.coordinates_, atol=1e-3)
    np.testing.assert_allclose(b.transform(X[:4] * scale), a.transform(X[:4]), atol=1e-3)


@pytest.mark.parametrize("value", [0.0, 0.1, 2.5])
@pytest.mark.parametrize("noise", [None, 0.1])
def test_em_says_that_rows_do_not_differ(value, noise):
    with pytest.raises(DegenerateError, match="no variance"):
        PPCA(1, method="em", noise_variance=noise).fit(np.full((10, 4), value))


def test_no_components_reconstruct_the_mean():
    X = table()
    model = PCA(0).fit(X)
    assert model.transform(X).shape == (60, 0)
    np.testing.assert_allclose(model.reconstruct(X), np.broadcast_to(X.mean(axis=0), X.shape))
    with pytest.raises(ValueError, match="columns"):
        PCA(2).fit(X).inverse_transform(np.zeros((3, 0)))


SINGLE = [PCA(2), PPCA(2), FactorAnalysis(1), BayesianPCA(2), MixturePPCA(2, 1, random_state=0)]


@pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")  # the units are the matter
@pytest.mark.parametrize("model", SINGLE, ids=lambda model: type(model).__name__)
def test_variances_that_float32_cannot_hold_are_refused(model):
    # they were rounded to a digit or to zero, and densities said to use fewer components
    X = table()
    a = model.fit(X).score_samples(X)
    small = (X * 1e-19).astype(np.float32)
    b = model.fit(small).score_samples(small)
    np.testing.assert_allclose(b + 5 * np.log(1e-19), a, rtol=1e-4)
    for scale in (1e-24, 1e-28):
        with pytest.raises(ScaleError, match="below the range of float32"):
            model.fit((X * scale).astype(np.float32))


def test_a_direction_of_rounding_errors_may_vanish_in_float32():
    X = (np.outer(np.arange(20.0), [1.0, 2.0, 3.0]) * 1e-18).astype(np.float32)
    assert PCA().fit(X).explained_variance_.dtype == np.float32


@pytest.mark.parametrize(
    "dtype, scales", [("float64", (1e-200, 1e200)), ("float32", (1e-30, 1e25))]
)
@pytest.mark.parametrize("kernel", [Cosine(), ArcCosine(order=0)])
def test_angles_do_not_depend_on_lengths(kernel, dtype, scales):
    # a norm that overflowed made every cosine 0, one that underflowed a row of zeros
    X = table(8, 3).astype(dtype)
    for scale in scales:
        np.testing.assert_allclose(kernel(X * scale, X), kernel(X, X), rtol=1e-5)
    np.testing.assert_array_equal(Cosine()(X[:2] * 0, X), 0)
    model, far = KernelPCA(1, kernel="cosine").fit(table()), table()[:3]
    np.testing.assert_allclose(model.transform(far * 1e200), model.transform(far), rtol=1e-10)


@pytest.mark.filterwarnings("ignore::dualpca.errors.HeywoodWarning")  # the units are the matter
@pytest.mark.parametrize("model", [PPCA(1), FactorAnalysis(1), Imputer(1)])
def test_rows_too_far_for_a_density_are_no_warning_of_numpy(model):
    # the posterior of a row at 1e160 is a number, its log-density is none
    far = np.full((2, 5), 1e160)
    far[0, 1] = np.nan
    model.fit(table())
    filled = model.transform(far) if isinstance(model, Imputer) else model.impute(far)
    assert np.all(np.isfinite(filled))
    if not isinstance(model, Imputer):
        with pytest.raises(ValueError, match=r"overflows|beyond float64"):
            model.score_samples(far)


def test_kernel_values_too_far_are_no_warning_of_numpy():
    far = np.full((2, 5), 1e160)
    near, beyond = (KernelPCA(1, kernel="rbf").fit(table()).transform(x) for x in (far / 1e9, far))
    np.testing.assert_array_equal(near, beyond)
    with pytest.raises(ValueError, match="overflows"):
        KernelPCA(1, kernel="poly").fit(table()).transform(far)


@pytest.mark.parametrize("factor", [1.0, 1e140])
def test_points_without_weight_have_no_say_in_signs(factor):
    X, w = table(40, 3), np.arange(40) % 3.0
    a, b = (KernelPCA(2, kernel="rbf").fit(X, sample_weight=v) for v in (w, factor * w))
    np.testing.assert_allclose(b.transform(X), a.transform(X), atol=1e-9)


@pytest.mark.parametrize(
    "kernel, scale",
    [(ArcCosine(order=1), 1e100), (Polynomial(degree=2, gamma=1.0, coef0=0.0), 1e60)],
)
def test_preimages_are_found_in_any_unit(kernel, scale):
    # squares of a gradient of J overflowed, and the search ended where it began
    X = table(30, 3)
    a, b = (KernelPCA(2, kernel=kernel).fit(X * s).reconstruct(X[:4] * s) for s in (1.0, scale))
    np.testing.assert_allclose(b / scale, a, atol=1e-5)


@pytest.mark.parametrize("unit", [1e-180, 1.0, 1e180])
def test_steps_of_descent_do_not_depend_on_the_unit_of_what_falls(unit):
    A, steps = np.diag([1.0, 3.0, 10.0]), LBFGSSteps(3)
    target = SimpleNamespace(gradient=lambda Z: unit * (Z @ A), span=SimpleNamespace(spread=1.0))
    plain = SimpleNamespace(gradient=lambda Z: Z @ A, span=SimpleNamespace(spread=1.0))
    expected, Z = LBFGSSteps(3), np.array([[1.0, -2.0, 0.5], [0.3, 0.2, 0.1]])
    for _ in range(4):
        D, slope = steps.direction(target, Z)
        np.testing.assert_allclose(D, expected.direction(plain, Z)[0], rtol=1e-10)
        np.testing.assert_allclose(slope, np.sum(target.gradient(Z) * D, axis=1), rtol=1e-12)
        Z = Z + 0.1 * D


FROM_ROWS = ("linear", "rbf", "poly", "sigmoid", "laplacian", "cosine", "matern")


@pytest.mark.parametrize("scale", [1e154, 1e155, 1e200, 1e300])
@pytest.mark.parametrize("model", [KernelPCA, DualPPCA, ProbabilisticKernelPCA])
@pytest.mark.parametrize("kernel", FROM_ROWS)
def test_kernels_of_rows_too_large_fit_or_say_so(kernel, model, scale):
    # distances that are infinite less themselves are NaN, and a width found from them is 0
    X = np.random.default_rng(0).normal(size=(30, 4)) * scale
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScaleWarning)  # laplacian: rows are equally far apart
        try:
            found = model(2, kernel=kernel).fit(X).transform(X)
        except ScaleError as error:
            assert kernel not in ("laplacian", "cosine") and "Divide it" in str(error)
        else:
            assert kernel in ("laplacian", "cosine") and np.all(np.isfinite(found))


def test_kernels_of_large_rows_with_a_width_of_theirs_are_those_of_small_ones():
    X = table(30, 3)
    for width in ({"gamma": 0.1}, {"gamma": "median"}):
        a = KernelPCA(2, kernel="rbf", **width).fit(X).transform(X)
        if width["gamma"] == 0.1:
            width = {"gamma": 0.1 / 1e240}
        b = KernelPCA(2, kernel="rbf", **width).fit(X * 1e120).transform(X * 1e120)
        np.testing.assert_allclose(b, a, atol=1e-9)
    with pytest.raises(ScaleError, match="Divide it"):
        KernelPCA(2, kernel="rbf", gamma="median").fit(X * 1e155)
