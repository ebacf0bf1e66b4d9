"""The models of the command line: by name, with parameters from options, and what they say."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

import dualpca
from dualpca.app.cli._running import UsageError

MODELS = {
    "pca": "PCA",
    "ppca": "PPCA",
    "fa": "FactorAnalysis",
    "bpca": "BayesianPCA",
    "mixture": "MixturePPCA",
    "hmm": "HiddenMarkovPCA",
    "kpca": "KernelPCA",
    "dual": "DualPPCA",
    "pkpca": "ProbabilisticKernelPCA",
    "twin": "TwinKernelPCA",
}
"""Word to public name, so that help imports none of them.

CCA and Imputer are missing: one needs two tables, the other is `dualpca impute`.
"""

OWN = {"mixture": {"n_mixtures": "bic"}}
"""Defaults that make more sense here: one component would be no mixture."""


def make(name: str, options: dict[str, Any], settings: list[str], seed: int) -> Any:
    """Return a model that is not fitted yet, with the parameters that were given."""
    if name not in MODELS:
        raise UsageError(f"--model {name}: no such model; there are {', '.join(MODELS)}.")
    given = {k: value_of(v) for k, v in options.items() if v is not None}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"--set {setting}: expected name=value, such as max_iter=500.")
        given[key] = value_of(value)
    known = class_of(name)().get_params(deep=False)
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise UsageError(f"{name} has no parameter {unknown[0]!r}; it has {', '.join(known)}.")
    if "random_state" in known:
        given.setdefault("random_state", seed)
    return class_of(name)(**(OWN.get(name, {}) | given))


def class_of(name: str) -> Any:
    """Return the class of a model."""
    return getattr(dualpca, MODELS[name])


def streams() -> list[str]:
    """Return the models that can be fitted to a table larger than memory."""
    return [name for name in MODELS if hasattr(class_of(name), "partial_fit")]


def value_of(word: Any) -> Any:
    """Return what a word on the command line means: a number, true, null, or itself."""
    if not isinstance(word, str):
        return word
    try:
        return json.loads(word)
    except ValueError:
        return word


def summary(model: Any) -> dict[str, Any]:
    """Return what a fitted model says of itself, as far as it has it."""
    found: dict[str, Any] = {"model": type(model).__name__}
    names = {"n_components": "n_components_", "rows": "n_samples_", "features": "n_features_in_"}
    names |= {"n_mixtures": "n_mixtures_", "n_states": "n_states"}
    names |= {"log_likelihood": "loglikelihood_", "iterations": "n_iter_"}
    names |= {"converged": "converged_"}
    for name, attribute in names.items():
        if hasattr(model, attribute):
            found[name] = getattr(model, attribute)
    ratio = getattr(model, "explained_variance_ratio_", None)
    if ratio is not None:
        found["explained_variance_ratio"] = float(np.sum(ratio))
    noise = getattr(model, "noise_variance_", None)
    if noise is not None:
        found["noise_variance"] = float(np.mean(noise))
    return found


def summary_words(found: dict[str, Any]) -> dict[str, str]:
    """Return the numbers of a summary, short."""
    shown = {k: v for k, v in found.items() if isinstance(v, bool | int | float)}
    return {
        k.replace("_", " "): f"{v:.4g}" if type(v) is float else str(v) for k, v in shown.items()
    }
