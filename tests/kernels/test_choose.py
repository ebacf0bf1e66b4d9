"""Widths found from the rows, and warnings of widths that do not suit them."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import pdist
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine, make_circles
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

import dualpca
from dualpca import DualPPCA, KernelPCA, ProbabilisticKernelPCA, TwinKernelPCA
from dualpca.errors import ScaleWarning
from dualpca.kernels import RBF, Chi2, Laplacian, Linear, Matern, RationalQuadratic, with_width
from dualpca.kernels.base import widest_spread
from tests.oracles import repeat

FOUND = [DualPPCA(2), ProbabilisticKernelPCA(2), TwinKernelPCA(1, kernel="rbf", max_iter=10)]


def rows(n=80, d=4, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def spread(D, rate):
    return np.var(np.exp(-rate * D))


# --- the rule ------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 3, 30])
def test_no_other_width_spreads_the_values_more(d):
    D = pdist(rows(d=d), "sqeuclidean")
    rate = widest_spread(D, np.ones(D.size), lambda u: np.exp(-u))
    best = max(spread(D, r) for r in np.geomspace(1e-4, 1e4, 4000) / np.median(D))
    assert spread(D, rate) > 0.99 * best


def test_where_distances_are_alike_it_is_the_median_rule():
    X = rows(d=5000)
    assert with_width(RBF(), X).gamma == pytest.approx(1 / np.median(pdist(X) ** 2), rel=1e-3)


@pytest.mark.parametrize(
    "kernel", [RBF(), Matern(), Matern(2.5), RationalQuadratic(), Laplacian(), Chi2()], ids=str
)
def test_widths_follow_the_units(kernel):
    X = np.abs(rows())
    K = with_width(kernel, X)(X, X)
    assert 0.2 < np.median(K[np.triu_indices(80, 1)]) < 0.7
    for unit in (1e-6, 1e8):
        np.testing.assert_allclose(with_width(kernel, unit * X)(unit * X, unit * X), K, rtol=1e-7)


@pytest.mark.parametrize("kernel", [RBF(), Matern(), RationalQuadratic()], ids=str)
def test_columns_of_unlike_units_have_widths_of_their_own(kernel):
    X = rows()
    standard = (X - X.mean(axis=0)) / X.std(axis=0)
    found = with_width(kernel, X * [1, 50, 1e-3, 1])
    plain = with_width(kernel, standard)
    K = found(X * [1, 50, 1e-3, 1], X * [1, 50, 1e-3, 1])
    np.testing.assert_allclose(K, plain(standard, standard), rtol=1e-9)


def test_weights_are_counts():
    X, w = rows(30), np.random.default_rng(1).integers(0, 4, 30)
    assert with_width(RBF(), X, w) == with_width(RBF(), repeat(X, w))


def test_kernels_without_a_width_stay_as_they_are():
    assert with_width(Linear(), rows()) == Linear()
    assert with_width(RBF(), np.ones((5, 2))) == RBF(gamma=1.0)
    X = sparse.random_array((50, 20), density=0.2, rng=np.random.default_rng(0), format="csr")
    assert with_width(RBF(), X).gamma == pytest.approx(with_width(RBF(), X.toarray()).gamma)


# --- models --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("model", FOUND, ids=lambda m: type(m).__name__)
def test_models_say_which_width_they_found(model):
    X = rows(40)
    model.fit(X)
    assert model.kernel_ == with_width(RBF(), X) and model.gamma_ == model.kernel_.gamma
    given = model.set_params(gamma="auto").fit(X)
    assert given.gamma_ == 0.25
    model.set_params(gamma=None)


@pytest.mark.parametrize("kernel, found", [
    ("rbf", True), ("matern", True), ("rational_quadratic", True), ("laplacian", True),
    ("poly", False), ("linear", False), (RBF(), False), (RBF(gamma=0.3), False),
], ids=str)  # fmt: skip
def test_only_named_kernels_without_a_width_get_one(kernel, found):
    X = 100 * rows(40)
    fitted = DualPPCA(1, kernel=kernel)
    here = fitted._kernel_choice.resolved(X)
    there = KernelPCA(1, kernel=kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScaleWarning)
        assert (here != there._kernel_choice.resolved(X)) == found
    given = DualPPCA(1, kernel="rbf", kernel_params={"length_scale": 2.0})
    assert given.fit(X).kernel_ == RBF(length_scale=2.0)


def test_files_keep_the_width(tmp_path):
    X = rows() * [1, 50, 1e-3, 1]
    model = DualPPCA(2).fit(X)
    model.save(tmp_path / "m.dpca")
    again = dualpca.load(tmp_path / "m.dpca")
    assert again.kernel_ == model.kernel_ and len(again.kernel_.length_scale) == 4
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    assert np.isfinite(model.denoise(X)).all() and np.isfinite(model.sample(3)).all()


def accuracy(model, classifier, X, y):
    Z = model.fit(X[::2]).transform(X)
    return classifier.fit(Z[::2], y[::2]).score(Z[1::2], y[1::2])


@pytest.mark.parametrize("model", [DualPPCA(10), ProbabilisticKernelPCA(10)], ids=str)
def test_defaults_tell_rows_apart(model):
    nearest, n = KNeighborsClassifier(1), 800
    digits, cancer, wine = (
        f(return_X_y=True) for f in (load_digits, load_breast_cancer, load_wine)
    )
    assert accuracy(model, nearest, digits[0][:n], digits[1][:n]) > 0.9  # 1/d: 0.2
    assert accuracy(model, nearest, *cancer) > 0.9  # 1/d: 0.63
    assert accuracy(model, nearest, *wine) > 0.88  # 1/d: 0.4, one width for all columns: 0.7


def test_two_circles_come_apart_in_two_components():
    X, y = make_circles(400, factor=0.3, noise=0.05, random_state=0)
    assert accuracy(DualPPCA(2), LogisticRegression(), X, y) > 0.99  # median width: 0.52


# --- scikit-learn's default ----------------------------------------------------------------------

ALONE, ALIKE = "nearly the identity", "nearly constant"


def warned(X, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        KernelPCA(2, **{"kernel": "rbf", **options}).fit(X)
    return [str(w.message) for w in caught if w.category is ScaleWarning]


@pytest.mark.parametrize("load, what", [
    (load_digits, ALONE), (load_breast_cancer, ALONE), (load_wine, ALONE), (load_diabetes, ALIKE)
])  # fmt: skip
def test_a_kernel_matrix_that_says_nothing_is_warned_of_once(load, what):
    X = load().data
    [message] = warned(X)
    assert what in message and "gamma='median'" in message
    assert not warned(X, gamma="median") and not warned(X, gamma=1 / X.shape[1])
    assert not warned((X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9))


@pytest.mark.parametrize("shape", [(10, 2), (60, 20), (91, 13), (300, 200), (40, 1000)], ids=str)
def test_ordinary_rows_are_not_warned_of(shape):
    for seed in range(3):
        assert not warned(rows(*shape, seed=seed))


def test_streams_are_warned_of_once():
    X = 100 * rows(400)
    model = KernelPCA(2, kernel="rbf", n_landmarks=20)
    with pytest.warns(ScaleWarning, match=ALONE):
        model.partial_fit(X[:200])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ScaleWarning)
        model.partial_fit(X[200:])
