"""HierarchicalPPCA: files, units, draws and seeds."""

from dataclasses import replace

import numpy as np
import pytest

import dualpca
from dualpca import HierarchicalPPCA
from tests.models.test_hierarchy import planted
from tests.tolerances import assert_close


@pytest.fixture(scope="module")
def overlapping():
    """Return rows whose clusters overlap, and a tree of two levels, [2, 2]."""
    X = planted(0, 4, 40)[0] / [9.0, 3.0, 3.0, 3.0]
    return X, None, HierarchicalPPCA([2, 2], 1).fit(X)


def test_a_file_gives_the_tree_back(tmp_path, overlapping):
    X, _, model = overlapping
    model.save(tmp_path / "tree.dpca")
    again = dualpca.load(tmp_path / "tree.dpca")
    assert again.children_ == model.children_ == [[[], []], [[], []]]
    assert np.array_equal(again.transform(X), model.transform(X))
    assert np.array_equal(again.score_samples(X), model.score_samples(X))


def test_a_tree_that_hangs_together_wrongly_is_refused(overlapping):
    model = overlapping[2]._model
    for parents in ([-1, 0, 1], [-1, 0, 0, 2], [-1, 3, 1, 2], [0, 0, 1, 2]):
        with pytest.raises(ValueError, match="make no tree"):
            replace(model, parents=np.array(parents))


def test_standardized_maps_are_in_the_units_of_the_rows():
    X, _ = planted(5, 4, 30)
    scale = np.array([1.0, 50.0, 0.1, 7.0])
    model = HierarchicalPPCA([2, 2], standardize=True).fit(X * scale)
    plain = HierarchicalPPCA([2, 2], standardize=True).fit(X)
    for a, b in zip(model.nodes_, plain.nodes_, strict=True):
        assert_close(a.mean, b.mean * scale, "vector", scale=100.0)
        assert_close(a.loadings, b.loadings * scale[:, None], "vector", scale=100.0)
    jacobian = len(X) * np.log(scale).sum()
    assert_close(model.loglikelihood_, plain.loglikelihood_ - jacobian, "em")
    assert_close(model.score(X * scale) * len(X), model.loglikelihood_, "em")


def test_draws_come_from_the_leaves(overlapping):
    _, _, model = overlapping
    X, leaves = model.sample(4000, random_state=0)
    share = [np.mean(leaves == i) for i in model.leaves_]
    assert_close(share, [model.nodes_[i].weight for i in model.leaves_], "vector", scale=3e6)
    node = model.nodes_[model.leaves_[0]]
    own = X[leaves == node.index]
    assert np.abs(own.mean(axis=0) - node.mean).max() < 0.2


def test_the_same_seed_gives_the_same_tree():
    X, _ = planted(6, 5, 30)
    a, b = (HierarchicalPPCA(random_state=7).fit(X) for _ in range(2))
    assert np.array_equal(a.transform(X), b.transform(X))
