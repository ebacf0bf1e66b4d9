"""What files of models hold that consist of parts: mixtures, chains, generators, pipelines.

As in `_states`. Of scikit-learn's own only what stands before or around a model: a pipeline, the
standardisation, a frozen model.
"""

from __future__ import annotations

from typing import Any

from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from dualpca.estimators._states import COMMON, RECORD
from dualpca.estimators.generator import Generator
from dualpca.estimators.hidden_markov import HiddenMarkovPCA
from dualpca.estimators.mixture import MixturePPCA
from dualpca.estimators.sequence_classifier import SequenceClassifier
from dualpca.files.persistence import register
from dualpca.models.emissions import Emissions
from dualpca.models.kernel_space import KernelSpace

OUTPUT = {"_sklearn_output_config?": "output"}


def _in_its_space(emissions: Emissions, space: KernelSpace | None, d: int) -> bool:
    """Tell whether components live where they should: among d inputs, or in a kernel space."""
    return emissions.dim == (d if space is None else space.m)


def _check_mixture(found: dict[str, Any]) -> bool:
    """Compare ranks and dimensions."""
    if "weights_" not in found:  # a stream whose rows still wait
        return True
    ranks = [int(W.shape[1]) for W in found["loadings_"]]
    axes = [int(V.shape[0]) for V in found["components_"]]
    values = [int(v.shape[0]) for v in found["explained_variance_"]]
    space = found.get("_space")
    m = found["n_features_in_"] if space is None else space.m
    same = found["n_components_"] == ranks == axes == values
    return same and bool(found["means_"].shape[1] == m)


def _check_chain(found: dict[str, Any]) -> bool:
    """Compare the chain and its emissions with what is published of them."""
    model, d = found["_model"], found["n_features_in_"]
    S, M, m = found["means_"].shape
    sizes = model.chain.n_states == S and model.shares.shape == (S, M)
    together = sizes and model.emissions.means.shape == (S * M, m)
    return together and _in_its_space(model.emissions, found["kernel_space_"], d)


def _check_classes(found: dict[str, Any]) -> bool:
    """Compare the models of all classes with the space they live in."""
    space, d = found["kernel_space_"], found["n_features_in_"]
    models = [one._model.density.emissions for one in found["models_"]]
    return all(_in_its_space(one, space, d) for one in models)


def _check_density(found: dict[str, Any]) -> bool:
    """Compare the latents of the density, all its parts, with those of the model; and classes."""
    density, named = found["density_"], found.get("classes_")
    if any(part.factor.shape != found["_factor"].shape for part in _simple(density)):
        return False
    if named is None:
        return "_codes" not in found
    codes = found.get("_codes")
    parts = len(getattr(density, "parts", ())) == len(named)
    return parts and codes is not None and 0 <= codes.min() and codes.max() < len(named)


def _simple(density: Any) -> list[Any]:
    """Return the densities without parts that one consists of."""
    if not hasattr(density, "parts"):
        return [density]
    return [one for part in density.parts for one in _simple(part)]


register(
    MixturePPCA,
    {
        **COMMON,
        **RECORD,
        "weights_": "(K,)",
        "means_": "(K, m)",
        "noise_variance_": "(K,)",
        "components_": "list K of (*, m)",
        "explained_variance_": "list K of (*,)",
        "loadings_": "list K of (m, *)",
        "n_mixtures_": "int K",
        "n_components_": "list K of int",
        "lower_bound_": "float",
        "selection_?": "MixtureSelection",
        "n_samples_seen_?": "int",
        "_space?": "KernelSpace",
        "_stream?": "MixtureStream",
    },
    check=_check_mixture,
)
register(
    HiddenMarkovPCA,
    {
        **COMMON,
        **RECORD,
        "start_probabilities_": "(S,)",
        "transitions_": "(S, S)",
        "weights_": "(S, M)",
        "means_": "(S, M, m)",
        "loadings_": "list S of list M of (m, *)",
        "noise_variances_": "(S, M)",
        "state_means_": "(S, d)",
        "state_variances_": "(S, d)",
        "visits_": "(S,)",
        "kernel_space_": "KernelSpace | None",
        "_model": "HiddenMarkov",
    },
    check=_check_chain,
)
register(
    SequenceClassifier,
    {
        **COMMON,
        "classes_": "labels (c,)",
        "models_": "list c of HiddenMarkovPCA",
        "priors_": "(c,)",
        "kernel_space_": "KernelSpace | None",
        "_home": "(1, m)",
    },
    check=_check_classes,
)
register(
    Generator,
    {
        **COMMON,
        "estimator_": "estimator",
        "density_": "densities.Gaussian | densities.KernelDensity | densities.Mixture",
        "latents_": "(n, q)",
        "X_fit_": "(n, d)",
        "_mean": "(q,)",
        "_factor": "(q, q)",
        "classes_?": "labels (c,)",
        "_codes?": "whole (n,)",
    },
    check=_check_density,
)
register(
    StandardScaler,
    {
        **COMMON,
        "mean_": "(d,) | None",
        "var_": "(d,) | None",
        "scale_": "(d,) | None",
        "n_samples_seen_": "int | float | whole (d,) | (d,)",
    },
)
# a `memory` would be a folder of pickles
register(
    Pipeline,
    OUTPUT,
    params={"memory": "None", "steps": "list * of of text; estimator or text or None"},
)
register(FrozenEstimator, OUTPUT, params={"estimator": "estimator"})
