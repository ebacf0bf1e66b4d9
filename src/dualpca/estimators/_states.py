"""What the file of each model holds beside its parameters (see `dualpca.files.encoding`).

A name with ? may be absent. Names that are not here are neither written nor read.
"""

from __future__ import annotations

from typing import Any

from dualpca.estimators.bayesian import BayesianPCA
from dualpca.estimators.canonical import CCA
from dualpca.estimators.dual import DualPPCA
from dualpca.estimators.factor import FactorAnalysis
from dualpca.estimators.imputer import Imputer
from dualpca.estimators.kernel import KernelPCA
from dualpca.estimators.pca import PCA
from dualpca.estimators.ppca import PPCA
from dualpca.estimators.probabilistic_kernel import ProbabilisticKernelPCA
from dualpca.estimators.twin import TwinKernelPCA
from dualpca.files.encoding import Stored
from dualpca.files.persistence import allow, register
from dualpca.models.kernel import Approximation, KernelStream, Novelty

COMMON = {
    "n_features_in_": "int d",
    "feature_names_in_?": "names (d,)",
    "_sklearn_output_config?": "output",
}

RECORD = {
    "loglikelihood_?": "float",
    "loglikelihoods_?": "floats",
    "n_iter_?": "int",
    "converged_?": "bool",
}

LINEAR = {
    **COMMON,
    "mean_": "(d,)",
    "components_": "(q, d)",
    "n_samples_": "int",
    "_reference?": "Reference",
}

SPIKED = {
    **LINEAR,
    "explained_variance_": "(q,)",
    "explained_variance_ratio_": "(q,)",
    "noise_variance_": "float",
    "n_components_": "int q",
}

STREAM = {
    "_stream?": "of Moments or streaming.Stream; int; (0, d)",
    "n_samples_seen_?": "int | float",
}

ON_KERNELS = {
    **COMMON,
    "kernel_": "Kernel",
    "X_fit_": "points (m, d)",
    "eigenvalues_": "(q,)",
    "explained_variance_": "(q,)",
    "explained_variance_ratio_": "(q,)",
    "n_components_": "int q",
    "n_samples_": "int",
}

SPACES = "Subspace | MappedSubspace | UncertainSubspace"
PREPARED = ("_span_", "_methods_")
"""Pre-images prepare these when they are first asked for."""


def _check_imputer(found: dict[str, Any]) -> bool:
    """Compare the features with those of the model, and the indicator's with both."""
    d, which = found["n_features_in_"], found["indicator_"]
    mean = getattr(found["model_"], "mean_", None)
    inside = which is None or bool(((which >= 0) & (which < d)).all())
    return inside and mean is not None and mean.shape == (d,)


allow(
    Approximation=Stored(Approximation, {"trace": "float", "residual": "float"}),
    Novelty=Stored(Novelty, {"residual": "(m,)", "weights": "(m,)"}),
    KernelStream=Stored(
        KernelStream,
        {
            "kernel": "Kernel",
            "waiting": "(m, d) | None",
            "weights": "(m,) | None",
            "map": "Landmarks | Fourier | None",
            "mapped": "Mapped | None",
            "first": "of (f, d); (f,) or None | None",
        },
    ),
)

register(
    PCA,
    {
        **SPIKED,
        **STREAM,
        "singular_values_": "(q,)",
        "scale_?": "(d,) | None",
        "var_?": "(d,)",
    },
)
register(PPCA, {**SPIKED, **STREAM, **RECORD, "selection_?": "Selection"})
register(
    BayesianPCA,
    {
        **SPIKED,
        **RECORD,
        "relevance_": "(p,)",
        "n_effective_": "int",
        "bound_?": "float",
        "bounds_?": "floats",
        "_loading_posterior": "LoadingPosterior",
    },
)
register(
    FactorAnalysis,
    {
        **LINEAR,
        **RECORD,
        "noise_variance_": "(d,)",
        "heywood_": "floats",
        "loglike_?": "floats",
    },
)
register(
    CCA,
    {
        **COMMON,
        **RECORD,
        **{
            f"{v}_{part}": shape.replace("d", {"x": "d", "y": "dy"}[v])
            for v in "xy"
            for part, shape in {
                "mean_": "(d,)",
                "weights_": "(d, q)",
                "loadings_": "(d, q)",
                "noise_covariance_": "(d, d)",
            }.items()
        },
        "correlations_": "(q,)",
        "p_values_": "(q,) | None",
        "n_components_": "int q",
        "n_samples_": "int",
        "_model": "Canonical",
        "_vector": "bool",
    },
)
register(
    Imputer,
    {**COMMON, "model_": "PPCA | BayesianPCA", "n_iter_": "int", "indicator_": "whole (k,) | None"},
    check=_check_imputer,
)
register(
    KernelPCA,
    {
        **ON_KERNELS,
        "gamma_": "float | int | None",
        "solver_": "text",
        "approximation_error_": "Approximation",
        "eigenvectors_?": "(n, q)",
        "X_transformed_fit_?": "(n, q)",
        "dual_coef_?": "(n, d)",
        "input_model_?": "PPCA",
        "_subspace": SPACES,
        "_residual?": "(n,) | None",
        "_novelty?": "Novelty | None",
        "_stream?": "KernelStream",
        "_like?": "(0, d)",
        "n_samples_seen_?": "int",
    },
    PREPARED,
)
register(
    DualPPCA,
    {
        **ON_KERNELS,
        **RECORD,
        "noise_variance_": "float",
        "noise_dim_": "int",
        "solver_": "text",
        "approximation_error_": "Approximation",
        "coefficients_?": "(a, q)",
        "relevance_?": "(p,)",
        "input_model_?": "PPCA",
        "_gaussian": "SpikedGaussian",
        "_space": "PointSpace | MapSpace",
        "_projector": SPACES,
        "_subspace": SPACES,
        "_n": "float",
    },
    PREPARED,
)
register(
    ProbabilisticKernelPCA,
    {
        **RECORD,
        **{k: v for k, v in ON_KERNELS.items() if k != "eigenvalues_"},
        "eigenvalues_?": "(q,)",
        "coordinates_": "(n, q)",
        "correction_": "Correction",
        "noise_variance_": "float | (n,)",
        "heywood_?": "floats",
        "_placement": "Placement",
        "_psi": "(n,)",
        "_subspace": "Subspace",
    },
)
register(
    TwinKernelPCA,
    {
        **COMMON,
        **RECORD,
        "kernel_": "Kernel",
        "latent_kernel_": "Kernel",
        "X_fit_": "points (m, d)",
        "coordinates_": "(n, q)",
        "gain_": "float",
        "noise_variance_": "float",
        "n_samples_": "int",
        "_means": "(n,)",
        "_grand_mean": "float",
        "_placement": "TwinPlacement",
    },
)
