"""Figures of kernel models: what is drawn is what the model says."""

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="the app extra is not installed: no figures to test")

from matplotlib.patches import Ellipse

from dualpca import DualPPCA, KernelPCA, plots
from dualpca.preimages import Smoother


def clusters():
    """S4's three clusters."""
    rng = np.random.default_rng(0)
    return np.concatenate(
        [rng.normal(c, 0.1, size=(30, 2)) for c in ((-0.5, -0.2), (0.0, 0.6), (0.5, 0.0))]
    )


@pytest.mark.parametrize("estimator", [KernelPCA, DualPPCA])
def test_eight_eigenfunctions(estimator):
    X = clusters()
    model = estimator(8, kernel="rbf", gamma=10.0).fit(X)
    figure = plots.eigenfunctions(model, X, resolution=25)
    assert len(figure.axes) == 8
    assert [ax.get_title() for ax in figure.axes] == [f"{v:.2f}" for v in model.eigenvalues_]
    image = figure.axes[2].images[0]
    x0, x1, y0, y1 = image.get_extent()
    grid = np.stack(np.meshgrid(np.linspace(x0, x1, 25), np.linspace(y0, y1, 25)), -1)
    drawn = np.asarray(image.get_array())
    np.testing.assert_allclose(drawn.ravel(), model.transform(grid.reshape(-1, 2))[:, 2])
    assert image.origin == "lower"  # the second row of the grid is above the first
    figure.draw_without_rendering()


def test_fewer_components_are_fewer_panels():
    X = clusters()
    model = KernelPCA(3, kernel="rbf", gamma=10.0).fit(X)
    assert len(plots.eigenfunctions(model, X, resolution=9).axes) == 3
    with pytest.raises(ValueError, match="two columns"):
        plots.eigenfunctions(model, np.ones((5, 3)))


def test_reconstructions_as_in_figure_3():
    t = np.linspace(-7, 7, 20)
    X = np.column_stack([t, np.sin(t)])
    way_back = Smoother(neighbors=None)
    model = DualPPCA(3, gamma=1 / 8, center=False, preimage=way_back).fit(X)
    figure = plots.reconstructions(model, X, 30)
    samples, points, classic, dual = (line.get_xydata() for line in figure.axes[0].lines)
    assert len(samples) == 30
    np.testing.assert_array_equal(points, X)
    np.testing.assert_allclose(dual, model.reconstruct(X))
    kernel_pca = KernelPCA(3, kernel="rbf", gamma=1 / 8, center=False, preimage=way_back).fit(X)
    np.testing.assert_allclose(classic, kernel_pca.reconstruct(X), atol=1e-8)
    assert "70.8 %" in figure.axes[0].get_xlabel() and "0.0172" in figure.axes[0].get_xlabel()
    figure.draw_without_rendering()


def test_sampling_overview_as_in_figure_2():
    X = clusters()
    model = DualPPCA(2, gamma=10.0).fit(X)
    dual, classic = (
        line.get_xydata() for line in plots.sampling_overview(model, 400).axes[0].lines
    )
    assert not np.any(classic[:, 1]) and np.all(dual[:, 1] != 0)
    np.testing.assert_array_equal(classic[:, 0], dual[:, 0])
    lam = model.eigenvalues_[0]
    assert np.var(dual[:, 0]) == pytest.approx(lam**2 / len(X), rel=0.3)


def test_posterior_ellipses_of_the_dual_model():
    X = clusters()
    model = DualPPCA(2, gamma=10.0).fit(X)
    labels = np.repeat([0, 1, 2], 30)
    ax = plots.latent_scatter(model, X, labels, n_ellipses=6, level=0.9).axes[0]
    ellipses = [patch for patch in ax.patches if isinstance(patch, Ellipse)]
    assert len(ellipses) == 6
    spread = np.sqrt(model.noise_variance_ / model.explained_variance_)
    axes = 2 * np.sqrt(-2 * np.log(0.1)) * spread
    np.testing.assert_allclose(sorted([ellipses[0].width, ellipses[0].height]), sorted(axes))
