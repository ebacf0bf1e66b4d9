"""The figure of a tree of maps."""

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="the app extra is not installed: no figures to test")

import matplotlib.pyplot as plt
from sklearn.datasets import load_iris

from dualpca import HierarchicalPPCA, plots
from dualpca.app.plots.trees import UNSEEN

X, Y = load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def model():
    return HierarchicalPPCA([2, 2]).fit(X)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_every_node_is_a_map_of_the_rows_that_belong_to_it(model):
    R, Z, panels = model.responsibilities(X), model.transform(X), plots.tree(model, X, Y).axes
    assert len(panels) == model.n_nodes_ == 7
    for i, panel in enumerate(panels):
        seen = R[:, i] > UNSEEN
        (points,) = panel.collections
        np.testing.assert_allclose(points.get_offsets(), Z[seen, 2 * i : 2 * i + 2])
        np.testing.assert_allclose(points.get_facecolors()[:, 3], 0.8 * R[seen, i])
        assert panel.get_title() == f"{i}: {model.nodes_[i].n_rows:.0f} rows"


def test_branches_join_parents_and_children_which_stand_below(model):
    figure = plots.tree(model, X)
    figure.canvas.draw()
    assert len(figure.artists) == 6
    box = [panel.get_position() for panel in figure.axes]
    for node in model.nodes_[1:]:
        assert box[node.index].y1 < box[node.parent].y0
    for node in model.nodes_:
        below = [box[i] for i in node.children]
        if below:
            middle = (min(b.x0 for b in below) + max(b.x1 for b in below)) / 2
            assert abs(middle - (box[node.index].x0 + box[node.index].x1) / 2) < 0.05


def test_a_part_of_the_tree(model):
    assert len(plots.tree(model, X, max_depth=1).axes) == 3
    assert len(plots.tree(model, X, node=1).axes) == 3
    assert len(plots.tree(model, X, node=1, max_depth=0).axes) == 1
    figure, axes = plt.subplots(1, 3)
    assert plots.tree(model, X, node=2, ax=axes) is figure
    with pytest.raises(ValueError, match="node must be from 0 to 6"):
        plots.tree(model, X, node=7)


def test_a_map_of_one_direction_is_a_histogram():
    model = HierarchicalPPCA(2, 1).fit(X)
    panels = plots.tree(model, X).axes
    for panel, node in zip(panels, model.nodes_, strict=True):
        heights = [bar.get_height() for bar in panel.patches]
        assert abs(sum(heights) - node.n_rows) < 1.0


def test_other_models_have_no_tree():
    from dualpca import PPCA

    with pytest.raises(TypeError, match="HierarchicalPPCA"):
        plots.tree(PPCA(2).fit(X), X)
