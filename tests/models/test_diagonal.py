"""Kernel matrices do not tell k(x, x) of new items: it is given, or the same for all."""

from __future__ import annotations

import numpy as np
import pytest

from dualpca import DualPPCA, KernelPCA
from dualpca.kernels import Linear, Precomputed

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(30, 4)), RNG.normal(size=(5, 4))
KERNEL, OWN = Linear(), Linear().diag(NEW)


def both(kind):
    """Return a model of rows, and the same of their kernel matrix."""
    rows = kind(2, kernel=KERNEL).fit(X)
    return rows, kind(2, kernel="precomputed").fit(KERNEL(X, X)), KERNEL(NEW, X)


@pytest.mark.parametrize("kind", [KernelPCA, DualPPCA])
def test_novelty(kind):
    rows, matrix, K = both(kind)
    np.testing.assert_allclose(matrix.novelty(K, diagonal=OWN), rows.novelty(NEW), rtol=1e-9)


def test_is_novel():
    rows, matrix, K = both(KernelPCA)
    assert np.array_equal(matrix.is_novel(K, diagonal=OWN), rows.is_novel(NEW))


def test_score_samples():
    rows = DualPPCA(2, kernel=KERNEL, noise_dim=4).fit(X)
    matrix = DualPPCA(2, kernel="precomputed", noise_dim=4).fit(KERNEL(X, X))
    found = matrix.score_samples(KERNEL(NEW, X), diagonal=OWN)
    np.testing.assert_allclose(found, rows.score_samples(NEW), rtol=1e-9)


def test_without_it_the_error_says_what_to_give():
    _, matrix, K = both(KernelPCA)
    with pytest.raises(ValueError, match=r"diagonal=\.\.\."):
        matrix.novelty(K)


@pytest.mark.parametrize("bad", [OWN[:-1], OWN * np.nan, 1.0])
def test_nonsense_is_refused(bad):
    _, matrix, K = both(KernelPCA)
    with pytest.raises(ValueError, match="diagonal must be 5 finite numbers"):
        matrix.novelty(K, diagonal=bad)


def test_one_number_for_all_items():
    matrix = KernelPCA(2, kernel=Precomputed(diagonal=2.0)).fit(KERNEL(X, X))
    K = KERNEL(NEW, X)
    expected = matrix.novelty(K, diagonal=np.full(5, 2.0))
    np.testing.assert_allclose(matrix.novelty(K), expected, rtol=1e-12)
