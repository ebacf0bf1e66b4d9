"""Figures of fitted models.

Every function draws into a new figure of pyplot's, which `plt.show()` shows and `plt.close()`
frees, or where `ax` says: in axes, in a figure, or in a part of one. It returns the Figure. Fonts,
colours and resolution are those of the style in use (`plt.style.use`), on light and dark ground.
"""

from dualpca.errors import install

try:
    from dualpca.app.plots._canvas import DPI, PALETTE
    from dualpca.app.plots.charts import contributions_over_time, control_chart
    from dualpca.app.plots.components import correlation_circle, loading_plot, quality_bars
    from dualpca.app.plots.imputed import (
        calibration,
        convergence,
        imputed_values,
        missing_map,
        overimpute,
    )
    from dualpca.app.plots.kernels import (
        eigenfunctions,
        image_grid,
        reconstructions,
        sampling_overview,
    )
    from dualpca.app.plots.loadings import biplot, hinton
    from dualpca.app.plots.rows import (
        contribution_plot,
        latent_scatter,
        outlier_map,
    )
    from dualpca.app.plots.selection import (
        scree,
        search_history,
        search_importance,
        selection_curve,
    )
    from dualpca.app.plots.trees import tree
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] != "matplotlib":
        raise
    message = f"dualpca.plots needs matplotlib: {install('app')}."
    raise ModuleNotFoundError(message, name=error.name) from error

__all__ = [
    "DPI",
    "PALETTE",
    "biplot",
    "calibration",
    "contribution_plot",
    "contributions_over_time",
    "control_chart",
    "convergence",
    "correlation_circle",
    "eigenfunctions",
    "hinton",
    "image_grid",
    "imputed_values",
    "latent_scatter",
    "loading_plot",
    "missing_map",
    "outlier_map",
    "overimpute",
    "quality_bars",
    "reconstructions",
    "sampling_overview",
    "scree",
    "search_history",
    "search_importance",
    "selection_curve",
    "tree",
]
