"""Each kernel beside scikit-learn's, its closed forms and limits, and what it refuses."""

import pickle
import tracemalloc
from functools import partial

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import pdist
from sklearn.gaussian_process import kernels as gp
from sklearn.metrics import pairwise

from dualpca.kernels import (
    KERNELS,
    RBF,
    AdditiveChi2,
    ArcCosine,
    Chi2,
    Constant,
    Cosine,
    FromSklearn,
    Function,
    Laplacian,
    Linear,
    Matern,
    Periodic,
    Polynomial,
    Precomputed,
    Product,
    RationalQuadratic,
    Scaled,
    Sigmoid,
    Sum,
    make_kernel,
    translate,
)
from dualpca.kernels.choose import central_differences

EQUAL = 1e-12
"""How close a kernel must be to scikit-learn's, for values of order 1."""


def rows(n=9, d=4, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


X, Y = rows(), rows(6, seed=1)


def assert_same(actual, desired):
    np.testing.assert_allclose(actual, desired, rtol=EQUAL, atol=EQUAL)


# --- equal to scikit-learn's ----------------------------------------------------------

PAIRWISE = {
    "linear": (Linear(), pairwise.linear_kernel),
    "polynomial": (Polynomial(), pairwise.polynomial_kernel),
    "polynomial 2": (
        Polynomial(2, 0.3, 0.5),
        partial(pairwise.polynomial_kernel, degree=2, gamma=0.3, coef0=0.5),
    ),
    "sigmoid": (Sigmoid(), pairwise.sigmoid_kernel),
    "sigmoid 2": (Sigmoid(0.2, -1.0), partial(pairwise.sigmoid_kernel, gamma=0.2, coef0=-1.0)),
    "rbf": (RBF(gamma=0.7), partial(pairwise.rbf_kernel, gamma=0.7)),
    "rbf auto": (RBF(gamma="auto").resolve(X), pairwise.rbf_kernel),
    "laplacian": (Laplacian(), pairwise.laplacian_kernel),
    "laplacian 2": (Laplacian(0.7), partial(pairwise.laplacian_kernel, gamma=0.7)),
    "cosine": (Cosine(), pairwise.cosine_similarity),
}


@pytest.mark.parametrize("name", PAIRWISE)
def test_kernel_equals_scikit_learns_pairwise_function(name):
    ours, theirs = PAIRWISE[name]
    with_zeros = np.vstack([X, np.zeros(4)])
    assert_same(ours(with_zeros, Y), theirs(with_zeros, Y))
    assert_same(ours(X, X), theirs(X, X))


@pytest.mark.parametrize("gamma", [1.0, 0.3])
def test_chi2_kernels_equal_scikit_learns_with_zeros(gamma):
    A, B = np.maximum(X, 0), np.maximum(Y, 0)
    assert (A == 0).any()
    assert_same(Chi2(gamma)(A, B), pairwise.chi2_kernel(A, B, gamma=gamma))
    assert_same(AdditiveChi2()(A, B), pairwise.additive_chi2_kernel(A, B))


WIDTHS = [0.5, 1.0, 2.0, 3.0]
PROCESSES = {
    "rbf": gp.RBF(0.7),
    "rbf widths": gp.RBF(WIDTHS),
    "rbf one width": gp.RBF([0.7]),
    "matern 1/2": gp.Matern(0.7, nu=0.5),
    "matern 3/2": gp.Matern(WIDTHS, nu=1.5),
    "matern 5/2": gp.Matern(0.7, nu=2.5),
    "matern ∞": gp.Matern(0.7, nu=np.inf),
    "rational quadratic": gp.RationalQuadratic(0.7, alpha=0.4),
    "periodic": gp.ExpSineSquared(0.7, periodicity=1.7),
    "dot product": gp.DotProduct(0.6),
    "constant": gp.ConstantKernel(2.0),
    "scaled": 2.0 * gp.RBF(0.7),
    "scaled right": gp.RBF(0.7) * 2.0,
    "sum": gp.DotProduct() + 0.5 * gp.Matern(nu=0.5) + gp.ConstantKernel(0.1),
    "product": gp.RBF(0.7) * gp.DotProduct(0.2),
    "power": (gp.DotProduct() + gp.RBF()) ** 3,
    "noise": gp.RBF(0.7) + gp.WhiteKernel(0.3),
}
WRAPPED = {
    "matern 1": gp.Matern(nu=1.0),
    "nothing": gp.RBF() + gp.ConstantKernel(0.0),
    "root": gp.RBF(0.7) ** 0.5,
    "pairwise": gp.PairwiseKernel(metric="laplacian", gamma=0.5),
    "scaled noise": gp.RBF(0.7) + 2.0 * gp.WhiteKernel(0.3),
    "sum": gp.RBF(0.7) + gp.Matern(nu=1.0),
    "product": gp.RBF(0.7) * gp.Matern(nu=1.0),
}


@pytest.mark.parametrize("name", PROCESSES)
def test_gaussian_process_kernel_is_translated(name):
    kernel = translate(PROCESSES[name])
    assert "FromSklearn" not in repr(kernel)
    assert_same(kernel(X, Y), PROCESSES[name](X, Y))
    assert_same(kernel.diag(X), np.diag(PROCESSES[name](X, X)))
    wrapped = FromSklearn(PROCESSES[name])
    np.testing.assert_allclose(
        kernel.gradient(X[0], Y), wrapped.gradient(X[0], Y), rtol=1e-7, atol=1e-8
    )


@pytest.mark.parametrize("name", WRAPPED)
def test_gaussian_process_kernel_without_translation_is_wrapped(name):
    kernel = translate(WRAPPED[name])
    assert kernel == FromSklearn(WRAPPED[name])
    assert_same(kernel(X, Y), WRAPPED[name](X, Y))
    assert_same(kernel.diag(X), np.diag(WRAPPED[name](X, X)))


def test_a_class_made_from_scikit_learns_is_not_taken_for_it():
    class Halved(gp.RBF):
        def __call__(self, X, Y=None, eval_gradient=False):
            return super().__call__(X, Y) / 2

    Halved.__name__ = "RBF"
    assert isinstance(translate(Halved()), FromSklearn)


def test_white_noise_is_left_out_of_values_and_diagonal():
    noise = FromSklearn(gp.WhiteKernel(0.3))
    assert not noise(X, X).any()
    assert not noise.diag(X).any()


# --- closed forms and limits ----------------------------------------------------------


@pytest.mark.parametrize("order", [0, 1, 2])
def test_arc_cosine_is_the_mean_over_random_units(order):
    """Cho & Saul, eq. 1: 2 E[step(wᵀx) step(wᵀy) (wᵀx)ᵖ (wᵀy)ᵖ] with w standard normal."""
    W = np.random.default_rng(2).standard_normal((200_000, 4))
    a, b = W @ X[0], W @ Y[0]
    draws = 2 * (a > 0) * (b > 0) * (a * b) ** order
    error = draws.std() / np.sqrt(draws.size)
    value = ArcCosine(order)(X[:1], Y[:1])[0, 0]
    assert abs(value - draws.mean()) < 4 * error


@pytest.mark.parametrize(("order", "own"), [(0, 1.0), (1, 1.0), (2, 3.0)])
def test_arc_cosine_of_a_row_with_itself(order, own):
    wide = rows(5, 2000)
    norms = np.sum(wide**2, axis=1)
    assert_same(np.diag(ArcCosine(order)(wide, wide)), own * norms**order)
    assert_same(ArcCosine(order).diag(wide), own * norms**order)
    opposite = ArcCosine(order)(wide, -wide)
    np.testing.assert_allclose(np.diag(opposite) / norms**order, 0, atol=EQUAL)


@pytest.mark.parametrize(("order", "value"), [(0, 0.5), (1, 0.0), (2, 0.0)])
def test_arc_cosine_of_nothing(order, value):
    zero, kernel = np.zeros((1, 4)), ArcCosine(order)
    assert_same(kernel(zero, Y), np.full((1, 6), value))
    assert_same(kernel.diag(zero), kernel(zero, zero)[0])
    assert np.isfinite(kernel.gradient(zero[0], Y)).all()


def test_ramps_at_zero_have_the_gradient_of_both_sides():
    h = 1e-6 * np.eye(4)
    kernel = ArcCosine(1)
    central = (kernel(h, Y) - kernel(-h, Y)).T / 2e-6
    np.testing.assert_allclose(kernel.gradient(np.zeros(4), Y), central, atol=1e-9)


@pytest.mark.parametrize("d", [1, 30, 2000])
def test_rough_kernels_know_equal_rows_far_away(d):
    far = rows(50, d) + 1e3
    for kernel in (Matern(nu=0.5), ArcCosine(0), Laplacian()):
        np.testing.assert_array_equal(np.diag(kernel(far, far)), 1.0)


SMOOTH = [RBF(), Matern(1.5), Matern(2.5), RationalQuadratic(0.4), Periodic(1.3, 0.8)]


@pytest.mark.parametrize("kernel", SMOOTH)
def test_slope_of_a_profile_is_its_derivative_down_to_zero(kernel):
    """Pre-images use the slope by itself, also where a point meets a training point."""
    u = np.array([0.5, 2.0])
    central = (kernel._profile(-(u + 1e-5)) - kernel._profile(-(u - 1e-5))) / 2e-5
    np.testing.assert_allclose(kernel._slope(-u), central, rtol=1e-7)
    near, at = kernel._slope(np.array([-1e-10])), kernel._slope(np.array([-0.0]))
    np.testing.assert_allclose(at, near, rtol=1e-4)


def test_rational_quadratic_becomes_the_rbf():
    found = RationalQuadratic(alpha=1e8, length_scale=0.7)(X, Y)
    np.testing.assert_allclose(found, RBF(length_scale=0.7)(X, Y), atol=1e-7)


def test_periodic_repeats_and_is_indefinite_in_several_columns():
    t = np.linspace(0, 5, 40)[:, None]
    hours = Periodic(periodicity=1.3, on=[0])
    assert hours.definite
    assert_same(hours(t, t + 1.3 * 4), hours(t, t))
    assert np.linalg.eigvalsh(hours(t, t)).min() > -1e-12
    several = Periodic(periodicity=1.3)
    assert not several.definite
    A = rows(60, 3)
    assert np.linalg.eigvalsh(several(A, A)).min() < -1e-3


def test_additive_chi2_is_definite_once_centred():
    A = np.abs(rows(20))
    K = AdditiveChi2()(A, A)
    H = np.eye(20) - 1 / 20
    assert np.linalg.eigvalsh(K).min() < -1
    assert np.linalg.eigvalsh(H @ K @ H).min() > -1e-12


def test_indefinite_kernels_say_so():
    K = Sigmoid(gamma=1.0, coef0=-1.0)(X, X)
    assert np.linalg.eigvalsh(K).min() < -0.1
    assert not Sigmoid().definite
    assert not (Sigmoid() + RBF()).definite
    assert Polynomial().definite
    assert not Polynomial(coef0=-1.0).definite


def test_time_and_categories_get_kernels_of_their_own():
    table = np.column_stack([np.linspace(0, 48, 9), np.arange(9) % 3, X[:, 0]])
    kernel = (
        Periodic(24.0, on=[0]) * Function(lambda a, b: float(a[0] == b[0]), on=[1])
    ) + 0.5 * RBF(gamma="median", on=[2])
    found = kernel.resolve(table)(table, table)
    t, g = table[:, :1], table[:, 1]
    gamma = 1 / np.median(pdist(table[:, 2:], "sqeuclidean"))
    slow = Periodic(24.0)(t, t) * (g[:, None] == g) + 0.5 * RBF(gamma)(table[:, 2:], table[:, 2:])
    assert_same(found, slow)


# --- parameters from the rows ---------------------------------------------------------


def test_words_become_numbers():
    A, V = np.abs(X), np.var(X)
    chi2 = [-AdditiveChi2()(A, A)[i, j] for i in range(9) for j in range(i)]
    found = {
        Polynomial(gamma="scale"): 1 / (4 * V),
        Sigmoid(gamma="auto"): 1 / 4,
        Laplacian(gamma="scale"): 1 / (4 * V),
        Laplacian(gamma="median"): 1 / np.median(pdist(X, "cityblock")),
        RBF(gamma="median"): 1 / np.median(pdist(X, "sqeuclidean")),
    }
    for kernel, value in found.items():
        assert kernel.resolve(X).gamma == pytest.approx(value, rel=1e-12)
    assert Chi2("median").resolve(A).gamma == pytest.approx(1 / np.median(chi2), rel=1e-12)
    length = np.sqrt(np.median(pdist(X, "sqeuclidean")))
    for kernel in (Matern, RationalQuadratic, RBF):
        found = kernel(length_scale="median").resolve(X).length_scale
        assert found == pytest.approx(length, rel=1e-12)


@pytest.mark.parametrize("kernel", [Laplacian("median"), Chi2("median"), RBF("median")])
@pytest.mark.parametrize("A", [np.ones((1, 3)), np.ones((5, 3)), np.zeros((5, 3))])
def test_words_of_rows_that_do_not_differ_are_one(kernel, A):
    assert kernel.resolve(A).gamma == 1.0


@pytest.mark.parametrize("kernel", [RBF("median"), Chi2("median"), Laplacian("scale")])
def test_words_have_no_values_before_they_are_resolved(kernel):
    with pytest.raises(ValueError, match="resolve"):
        kernel(np.abs(X), np.abs(Y))


# --- anything: functions, matrices ----------------------------------------------------


def common_pairs(a, b, weight=1.0):
    """Count the pairs of neighbouring letters that two words share."""

    def pairs(word):
        return [word[i : i + 2] for i in range(len(word) - 1)]

    return weight * sum(pairs(a).count(p) * pairs(b).count(p) for p in set(pairs(a)))


WORDS = ["banana", "ananas", "bandana", "pan"]


@pytest.mark.parametrize("items", [list, tuple, partial(np.array, dtype=object), np.array])
def test_function_of_strings(items):
    words = items(WORDS)
    kernel = Function(common_pairs)
    K = kernel(words, words)
    slow = [[common_pairs(a, b) for b in WORDS] for a in WORDS]
    np.testing.assert_array_equal(K, slow)
    np.testing.assert_array_equal(kernel.diag(words), np.diag(slow))
    np.testing.assert_array_equal(kernel(items(WORDS[:1]), words), slow[:1])
    assert np.linalg.eigvalsh(K).min() > -1e-12


def test_function_of_graphs():
    graphs = [{(0, 1), (1, 2)}, {(0, 1)}, set()]
    np.testing.assert_array_equal(Function(lambda a, b: a == b)(graphs, graphs), np.eye(3))
    np.testing.assert_array_equal(
        Function(lambda a, b: len(a & b))(graphs, graphs), [[2, 1, 0], [1, 1, 0], [0, 0, 0]]
    )


def test_function_is_called_once_for_each_pair():
    calls = []

    def counted(a, b):
        calls.append((a, b))
        return 1.0

    Function(counted)(WORDS, WORDS)
    assert len(calls) == 10
    Function(counted)(WORDS, list(WORDS))
    assert len(calls) == 10 + 16
    Function(counted, vectorized=False, on=[0])(X, X)  # 9 rows
    assert len(calls) == 10 + 16 + 45


def test_function_takes_keyword_arguments_and_can_be_stored():
    kernel = Function(common_pairs, {"weight": 2.0})
    assert kernel(WORDS[:1], WORDS[1:2])[0, 0] == 2 * common_pairs(*WORDS[:2])
    assert kernel == make_kernel(common_pairs, weight=2.0)
    assert pickle.loads(pickle.dumps(kernel)) == kernel
    assert hash(kernel) == hash(Function(common_pairs, {"weight": 2.0}))


def test_function_of_no_items():
    assert Function(common_pairs)([], WORDS).shape == (0, 4)
    assert Function(common_pairs)([], []).shape == (0, 0)


def test_strings_have_no_gradient():
    with pytest.raises(TypeError, match="rows of real numbers"):
        Function(common_pairs).pull(WORDS, WORDS, np.ones((4, 4)))
    with pytest.raises(TypeError, match="rows of real numbers"):
        Function(common_pairs).diag_gradient(WORDS)


@pytest.mark.parametrize("value", ["1", None, np.nan, np.ones(2)])
def test_function_must_return_a_number(value):
    with pytest.raises(ValueError, match="finite number"):
        Function(lambda a, b: value)(WORDS, WORDS)


def test_nonsense_items_are_refused():
    with pytest.raises(TypeError, match="callable"):
        Function("rbf")
    with pytest.raises(TypeError, match="one item per row"):
        Function(common_pairs)("word", WORDS)
    with pytest.raises(ValueError, match="Leave `on` out"):
        Function(common_pairs, on=[0])(WORDS, WORDS)
    with pytest.raises(ValueError, match="array of rows"):
        Function(common_pairs)(np.ones((2, 2, 2)), WORDS)


def test_precomputed_values_are_given_back_fresh():
    K = RBF()(X, X)
    given = K.copy()
    found = Precomputed()(K, K)
    assert_same(found, K)
    found[:] = 0
    np.testing.assert_array_equal(K, given)
    assert_same(Precomputed()(RBF()(Y, X), K), RBF()(Y, X))
    assert_same(Precomputed().diag(K), np.ones(9))


def test_precomputed_diagonal_of_new_items_must_be_told():
    new = RBF()(rows(9, seed=5), X)  # square, but not the training matrix
    for rectangle in (new, new[:4]):
        with pytest.raises(ValueError, match="diagonal="):
            Precomputed().diag(rectangle)
    np.testing.assert_array_equal(Precomputed(diagonal=1.0).diag(new[:4]), np.ones(4))


def test_precomputed_refuses_what_it_cannot_know():
    K = RBF()(X, X)
    with pytest.raises(ValueError, match="9 training items"):
        Precomputed()(K[:, :5], K)
    with pytest.raises(TypeError, match="gradient"):
        Precomputed().gradient(K[0], K)
    with pytest.raises(ValueError, match="training items"):
        Precomputed(on=[0])
    with pytest.raises(ValueError, match="diagonal"):
        Precomputed(diagonal=-1.0)


# --- by name --------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_every_kernel_has_its_name(name):
    assert make_kernel(name, gamma=None, degree=3, coef0=1.0) == KERNELS[name]()


@pytest.mark.parametrize("name", [*pairwise.kernel_metrics(), "precomputed"])
def test_scikit_learns_names_mean_the_same(name):
    A, B = np.abs(X), np.abs(Y)
    kernel = make_kernel(name, gamma=0.3, degree=2, coef0=0.5)
    if name == "precomputed":
        assert kernel == Precomputed()
        return
    theirs = pairwise.pairwise_kernels(
        A, B, metric=name, filter_params=True, gamma=0.3, degree=2, coef0=0.5
    )
    assert_same(kernel(A, B), theirs)


def test_objects_are_taken_as_they_are():
    kernel = RBF(gamma=2.0)
    assert make_kernel(kernel) is kernel
    assert make_kernel(2.0 * gp.RBF(0.5)) == Scaled(2.0, RBF(length_scale=0.5))
    assert make_kernel("matern", nu=0.5, length_scale="median", on=[1]).on == (1,)


@pytest.mark.parametrize(
    ("kernel", "params", "words"),
    [
        ("gauss", {}, "one of .*'poly'.*'precomputed'.*'rbf'"),
        ("rbf", {"nu": 1.5}, r"among .*length_scale.* got \['nu'\]"),
        (RBF(), {"gamma": 1.0}, "Set them on the kernel"),
        (gp.RBF(), {"gamma": 1.0}, "Set them on the kernel"),
        (3, {}, "function of two items"),
        (RBF, {}, "function of two items"),
        (None, {}, "function of two items"),
    ],
)
def test_nonsense_kernels_are_refused(kernel, params, words):
    with pytest.raises(ValueError, match=words):
        make_kernel(kernel, **params)


def test_what_is_no_gaussian_process_kernel_is_not_translated():
    with pytest.raises(TypeError, match="Gaussian-process"):
        translate(RBF())
    with pytest.raises(TypeError, match="Gaussian-process"):
        FromSklearn(common_pairs)
    with pytest.raises(ValueError, match="side by side"):
        translate(gp.CompoundKernel([gp.RBF(), gp.RBF(2.0)]))


# --- nonsense -------------------------------------------------------------------------

NONSENSE = {
    "gamma 0": (partial(Polynomial, gamma=0.0), "positive"),
    "gamma word": (partial(Polynomial, gamma="median"), "one of"),
    "gamma nan": (partial(Laplacian, gamma=np.nan), "positive"),
    "gamma infinite": (partial(Sigmoid, gamma=np.inf), "positive"),
    "gamma list": (partial(Laplacian, gamma=[1.0]), "positive"),
    "gamma bool": (partial(RBF, gamma=True), "positive"),
    "gamma none": (partial(Chi2, gamma=None), "positive"),
    "gamma negative": (partial(Chi2, gamma=-1.0), "positive"),
    "degree 0": (partial(Polynomial, degree=0), "whole number"),
    "degree 2.5": (partial(Polynomial, degree=2.5), "whole number"),
    "degree word": (partial(Polynomial, degree="3"), "whole number"),
    "coef0": (partial(Polynomial, coef0=np.nan), "finite"),
    "order": (partial(ArcCosine, order=3), "0, 1 or 2"),
    "nu": (partial(Matern, nu=1.0), "0.5, 1.5 or 2.5"),
    "alpha": (partial(RationalQuadratic, alpha=0.0), "positive"),
    "widths": (partial(RBF, length_scale=[1.0, 0.0]), "positive"),
    "no widths": (partial(RBF, length_scale=[]), "every column"),
    "word widths": (partial(Matern, length_scale=["median"]), "one for every column"),
    "square widths": (partial(Matern, length_scale=np.ones((2, 2))), "one for every column"),
    "both": (partial(RBF, gamma=1.0, length_scale=[1.0, 2.0]), "not both"),
    "period": (partial(Periodic, periodicity=0.0), "positive"),
    "constant": (partial(Constant, value=0.0), "positive"),
    "on twice": (partial(Cosine, on=[0, 0]), "different column"),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_parameters_are_refused(name):
    make, words = NONSENSE[name]
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("kernel", [Chi2(), AdditiveChi2()])
def test_negative_entries_have_no_histogram(kernel):
    A = np.abs(X)
    for pair in ((X, A), (A, X)):
        with pytest.raises(ValueError, match="non-negative"):
            kernel(*pair)
    with pytest.raises(ValueError, match="non-negative"):
        kernel.diag(X)
    with pytest.raises(ValueError, match="non-negative"):
        kernel.gradient(X[0], A)


@pytest.mark.parametrize("kernel", [Laplacian(), Chi2(), AdditiveChi2()])
def test_no_third_axis_is_formed(kernel):
    n, d = 200, 300
    A, C = np.abs(rows(n, d)), np.ones((n, n))
    tracemalloc.start()
    kernel(A, A), kernel.pull(A, A, C)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * 8 * n * n + 4 * 8 * n * d  # beside 8·n²·d


def test_widths_must_fit_the_columns():
    with pytest.raises(ValueError, match="each of the 4 columns"):
        RBF(length_scale=[1.0, 2.0])(X, Y)
    with pytest.raises(ValueError, match="one number"):
        _ = RBF(length_scale=[1.0, 2.0]).rate


def test_columns_out_of_range_are_refused():
    for kernel in (Sum(RBF(), Linear(), on=[9]), Product(RBF(on=[4]), Linear())):
        with pytest.raises(ValueError, match="columns below 4"):
            kernel(X, Y)


def test_a_sparse_row_is_at_no_distance_from_itself():
    X = sparse.random_array((200, 50), density=0.2, rng=np.random.default_rng(0)) * 30
    kernel = Matern(nu=0.5)  # e^(−t) has a slope at 0, so t = √rounding would show
    K = kernel(X.tocsr(), X.tocsr())
    assert np.array_equal(np.diag(K), kernel.diag(X.tocsr()))
    np.testing.assert_allclose(K, kernel(X.toarray(), X.toarray()), rtol=0, atol=1e-9)
    near = 1 - np.diag(kernel(X.tocsr(), (X * (1 + 1e-6)).tocsr()))  # no rounding, so not 0
    np.testing.assert_allclose(near, 1e-6 * np.linalg.norm(X.toarray(), axis=1), rtol=0.01)


@pytest.mark.parametrize("alpha", [1e6, 1e12, 1e18])
def test_many_widths_become_one(alpha):
    X = np.random.default_rng(0).normal(size=(20, 3))
    mixed, one = RationalQuadratic(alpha=alpha), RBF(length_scale=1.0)
    np.testing.assert_allclose(mixed(X, X), one(X, X), atol=1e-14 + 3 / alpha)
    np.testing.assert_allclose(
        mixed.gradient(X[0], X), one.gradient(X[0], X), atol=1e-13 + 10 / alpha
    )


@pytest.mark.parametrize("z", [-1e6, -3.0, 0.2, 1e6])
def test_differences_step_in_proportion_to_the_point(z):
    found = central_differences(lambda Z: Z[:, 0] ** 2 + Z[:, 1], np.array([[z, -z]]))
    np.testing.assert_allclose(found, [[2 * z, 1.0]], rtol=1e-9, atol=1e-9 * max(1, abs(z)))
