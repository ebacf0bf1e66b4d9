"""What kernels declare that they can do: which do, that it is right, and that it composes."""

import ast
from pathlib import Path

import numpy as np
import pytest

import dualpca
from dualpca.errors import DualPCAError
from dualpca.kernels import (
    KERNELS,
    RBF,
    Constant,
    Cosine,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    Precomputed,
    Product,
    Scaled,
    accepts_nan,
    feature_dimension,
    feature_map,
    frequencies,
    fused_form,
    inverse_distances,
    nonnegative_columns,
)
from dualpca.kernels.base import expectation_terms
from dualpca.operators import Dual
from dualpca.solvers import solve
from tests.tolerances import assert_close

X = np.random.default_rng(0).standard_normal((9, 3))
Y = np.random.default_rng(1).standard_normal((7, 3))


def can(ask, refusal):
    """Return the names of the kernels for which a question is neither refused nor None."""
    found = set()
    for name, kernel in KERNELS.items():
        try:
            answer = ask(kernel())
        except refusal:
            continue
        found |= {name} if answer is not None else set()
    return found


def test_who_can_do_what():
    stationary = {"rbf", "matern", "rational_quadratic"}
    rng = np.random.default_rng(0)
    assert can(lambda k: feature_map(k, X), DualPCAError) == {"linear", "polynomial"}
    assert can(lambda k: frequencies(k, 3, 2, rng), ValueError) == {"rbf", "matern", "laplacian"}
    known = {"rbf", "linear", "polynomial", "constant"}
    assert can(lambda k: expectation_terms(k, 3), TypeError) == known
    assert {name for name in KERNELS if accepts_nan(name)} == known
    assert can(lambda k: fused_form(k, X), ()) == stationary | {"laplacian", "polynomial"}
    assert can(lambda k: inverse_distances(k, 3), ()) == stationary | {"polynomial"}
    assert can(lambda k: k._radial_slopes(), ()) == stationary | {"periodic"}
    assert can(lambda k: nonnegative_columns(k, 3) or None, ()) == {"chi2", "additive_chi2"}
    assert {name for name in KERNELS if KERNELS[name]._linear} == {"linear"}
    assert not Precomputed()._differentiable


def test_nan_is_accepted_where_an_expectation_may_be_known():
    assert accepts_nan("poly")
    assert accepts_nan(2.0 * RBF() + Linear())
    assert not accepts_nan(Matern())
    assert not accepts_nan("precomputed")
    assert not accepts_nan(lambda x, y: 1.0)


MAPPED = {
    "sum": Linear() + 0.5 * Polynomial(2, 0.3, 1.0),
    "columns": Scaled(2.0, Polynomial(3, coef0=0.0, on=[1]) + Linear(), on=[2, 0]),
}


@pytest.mark.parametrize("kernel", MAPPED.values(), ids=MAPPED)
def test_feature_maps_compose(kernel):
    assert_close(feature_map(kernel, X) @ feature_map(kernel, Y).T, kernel(X, Y), "vector")


@pytest.mark.parametrize(
    ("left", "right"), [(Linear(), Polynomial(2, 0.3, 1.0)), (Polynomial(3), Linear(on=[1]))]
)
def test_features_of_a_composed_kernel_are_those_of_its_parts(left, right):
    """Coordinates in the space of features, which values of the kernel alone do not tell."""
    parts = [feature_map(kernel, X) for kernel in (left, right)]
    assert np.array_equal(feature_map(left + right, X), np.hstack(parts))
    assert_close(feature_map(2.0 * left, X), np.sqrt(2.0) * parts[0], "vector")
    assert np.array_equal(
        feature_map(Scaled(1.0, left, on=[2, 0]), X), feature_map(left, X[:, [2, 0]])
    )


SPLIT = {
    "sum": 2.0 * RBF(length_scale=[1.0, 2.0, 0.5]) + Constant(0.3),
    "product": RBF(gamma=0.2, on=[1]) * Polynomial(2, 0.5, 1.0, on=[0, 2]),
    "columns": Product(RBF(gamma=0.1, on=[1]), Linear() + RBF(), on=[2, 0]),
}


@pytest.mark.parametrize("kernel", SPLIT.values(), ids=SPLIT)
def test_terms_sum_to_the_kernel(kernel):
    total = 0.0
    for term in expectation_terms(kernel, 3):
        gaps = (X[:, None, :] - Y[None, :, :]) ** 2
        value = term.factor * np.exp(-gaps @ term.rates)
        for p in term.polys:
            value = value * ((X * p.weights) @ Y.T + p.constant) ** p.degree
        total = total + value
    assert_close(total, kernel(X, Y), "vector")


FINITE = {
    "linear": Linear(),
    "some columns": Linear(on=[2, 0]),
    "cosine": 0.5 * Cosine(),
    "homogeneous": Polynomial(3, 0.3, 0.0),
    "with a constant": Polynomial(2, 0.3, 1.0, on=[1, 2]),
    "line": Polynomial(1, 0.3, 2.0),
    "overlapping": Linear() + Linear(on=[0]) + 0.5 * Polynomial(2, 0.3, 1.0),
    "product": Linear(on=[0, 1]) * (Linear() + 1.0),
    "power": 2.0 * (Linear(on=[0, 2]) + 3.0) ** 3,
    "columns of columns": Scaled(2.0, Polynomial(3, coef0=0.0, on=[1]) + Linear(), on=[2, 0]),
}


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("kernel", FINITE.values(), ids=FINITE)
def test_the_dimension_of_the_features_is_the_rank_of_many_rows(kernel, center):
    rows = np.random.default_rng(0).standard_normal((60, 3))
    K = kernel(rows, rows)
    H = np.eye(60) - center / 60
    values = np.linalg.eigvalsh(H @ K @ H)
    rank = np.sum(values > 1e-10 * values[-1])
    assert feature_dimension(kernel, 3, center=center) == rank < 60


def test_infinite_and_very_many_features_have_no_known_dimension():
    many = Polynomial(3) + Linear()  # 176,851 features of 100 columns
    unknown = [RBF(), Linear() + RBF(), Linear() * RBF(), RBF() ** 2, Cosine() + Linear()]
    unknown += [many, many * Linear(), Polynomial(2, coef0=-1.0), Precomputed()]
    assert [feature_dimension(k, 100, center=True) for k in unknown] == [None] * len(unknown)


@pytest.mark.parametrize("kernel", [RBF(gamma=0.1) * Matern(), Laplacian() * RBF(gamma=0.2)])
def test_frequencies_of_a_product_are_sums(kernel):
    W = frequencies(kernel, 3, 200_000, np.random.default_rng(0))
    found = np.cos((X[:1] - Y) @ W).mean(axis=1)
    np.testing.assert_allclose(found, kernel(X[:1], Y)[0], atol=0.01)


def test_frequencies_over_some_columns_are_refused_in_a_product_too():
    with pytest.raises(ValueError, match="random Fourier features"):
        frequencies(RBF() * RBF(on=[0]), 3, 5, np.random.default_rng(0))


@pytest.mark.parametrize("kernel", [Linear(), 2.5 * Linear()])
def test_linear_kernels_have_an_exact_inverse(kernel):
    dual = Dual(X, kernel)
    span = dual.subspace(solve(dual, 3))
    rows = span.coordinates(Y) @ (span.coefficients.T @ X) + span.base @ X
    assert_close(rows, Y, "covariance")


def test_what_refuses_negative_entries_is_known_by_column():
    kernel = Scaled(2.0, Linear() + KERNELS["chi2"](on=[1]), on=[2, 0])
    assert nonnegative_columns(kernel, 3) == {0}


def test_nobody_else_asks_of_which_class_a_kernel_is():
    """Only what X is (rows, items, a matrix) is read off Kernel, Function and Precomputed."""
    home = Path(dualpca.__file__).parent
    classes = {kernel.__name__ for kernel in KERNELS.values()}
    classes |= {"Sum", "Product", "Scaled", "Stationary", "Affine", "Angular"}
    for path in sorted(home.rglob("*.py")):
        if path.parent == home / "kernels":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                named = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
                assert not named & classes, f"{path.name}, line {node.lineno}"
