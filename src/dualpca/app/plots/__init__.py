"""Figures of fitted models.

Every function returns a new matplotlib Figure and leaves pyplot's state alone.
"""

try:
    from dualpca.app.plots._canvas import DPI, PALETTE
    from dualpca.app.plots.coverage import calibration
    from dualpca.app.plots.images import image_grid
    from dualpca.app.plots.kernels import eigenfunctions, reconstructions, sampling_overview
    from dualpca.app.plots.latent import latent_scatter
    from dualpca.app.plots.loadings import biplot, hinton
    from dualpca.app.plots.outliers import contribution_plot, outlier_map
    from dualpca.app.plots.search import search_history, search_importance
    from dualpca.app.plots.selection import selection_curve
    from dualpca.app.plots.spectrum import scree
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] != "matplotlib":
        raise
    message = "dualpca.plots needs matplotlib: pip install 'dualpca[app]'"
    raise ModuleNotFoundError(message, name=error.name) from error

__all__ = [
    "DPI",
    "PALETTE",
    "biplot",
    "calibration",
    "contribution_plot",
    "eigenfunctions",
    "hinton",
    "image_grid",
    "latent_scatter",
    "outlier_map",
    "reconstructions",
    "sampling_overview",
    "scree",
    "search_history",
    "search_importance",
    "selection_curve",
]
