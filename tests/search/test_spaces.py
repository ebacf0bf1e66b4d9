"""What a kernel search may try: ranges around the median heuristic, whatever the units."""

import numpy as np
import pytest

from dualpca.kernels import RBF, Linear
from dualpca.search.spaces import Scales, Space, families
from tests.search.cases import table

pytest.importorskip("optuna", reason="the search extra is not installed")


FAMILIES = families()


def centred_size(K):
    return np.trace(K) / len(K) - K.mean()


def centre(name):
    return {p.name: p.centre for p in FAMILIES[name].parameters}


@pytest.mark.parametrize("name", FAMILIES)
def test_units_do_not_matter(name):
    X = np.abs(table(d=1 if name == "periodic" else 3))
    kernels = [Space.of(c * X, name, (), (1, 1)).replay(centre(name)).kernel for c in (1.0, 70.0)]
    K, L = (k(c * X, c * X) for k, c in zip(kernels, (1.0, 70.0), strict=True))
    np.testing.assert_allclose(K / centred_size(K), L / centred_size(L), atol=1e-10)


def test_centres_are_the_median_heuristic():
    X = table()
    for name, words in {"rbf": "gamma", "laplacian": "gamma", "matern": "length_scale"}.items():
        found = Space.of(X, name, (), (1, 1)).replay(centre(name)).kernel
        known = type(found)(**{words: "median"}).resolve(X)
        assert abs(getattr(found, words) / getattr(known, words) - 1) < 1e-12


@pytest.mark.parametrize("name", FAMILIES)
def test_ranges_lie_around_their_centres(name):
    for p in FAMILIES[name].parameters:
        if p.choices:
            assert p.centre in p.choices
        else:
            assert abs(np.log(p.low) + np.log(p.high) - 2 * np.log(p.centre)) < 1e-12


def test_parts_of_a_sum_weigh_the_same():
    X = table(n=40)
    space = Space.of(X, ["rbf", "polynomial"], ["sum"], (1, 1))
    drawn = {"composition": "sum", "kernel": "rbf", "width": 2.0, "weight": 3.0}
    drawn |= {"kernel_2": "polynomial", "degree_2": 3, "coef0_2": 0.5}
    kernel = space.replay(drawn).kernel
    left, right = centred_size(kernel.left(X, X)), centred_size(kernel.right(X, X))
    np.testing.assert_allclose([left, right], [1, 3])


def test_products_and_given_kernels():
    X = table()
    space = Space.of(X, ["linear", RBF(gamma="median")], ["product"], (2, 9))
    label = repr(RBF(gamma="median").resolve(X))
    drawn = {"composition": "product", "kernel": "linear", "kernel_2": label, "n_components": 4}
    kernel, q = space.replay(drawn)
    known = Linear() * RBF(gamma="median").resolve(X)
    np.testing.assert_allclose(kernel(X, X), known(X, X))
    assert q == 4
    assert space.first() == {"composition": "single", "kernel": "linear", "n_components": 4}


def test_scales_of_rows_without_any():
    assert all(np.isfinite(Scales.of(np.zeros((4, 2)))))
    assert Scales.of(table()).chi2 == 0


@pytest.mark.parametrize(
    ("kernels", "message"),
    [
        ([], "at least one"),
        ("rbff", "rbff"),
        ([3], "dualpca.kernels"),
        (["rbf", "rbf"], "different"),
        (["periodic"], "single column"),
        (["chi2"], "0 and above"),
    ],
)
def test_kernels_that_cannot_be_searched(kernels, message):
    with pytest.raises(ValueError, match=message):
        Space.of(table(), kernels, (), (1, 1))


@pytest.mark.parametrize("compositions", [("power",), ("sum", "sum"), "sum"])
def test_compositions_that_do_not_exist(compositions):
    with pytest.raises(ValueError, match="compositions"):
        Space.of(table(), "auto", compositions, (1, 1))
