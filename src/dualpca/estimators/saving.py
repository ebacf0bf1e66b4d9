"""`save` and `load`: estimators to files and back, with the few of scikit-learn's around them."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_type_hints

from sklearn.utils.validation import check_is_fitted

from dualpca.arrays import Array
from dualpca.errors import ModelFileError, expected
from dualpca.files import persistence
from dualpca.files.fields import allowed, fits
from dualpca.files.persistence import Contents, Kind

INPUTS: dict[str, Any] = {
    "n_features_in_": int,
    "feature_names_in_": Annotated[Array, "names d"],
    "n_samples_seen_": int | float,
    "_sklearn_output_config": dict[str, str],
    "estimator_": Any,
}
"""What an estimator keeps beside its model."""


def save(
    model: Any, path: str | os.PathLike[str], *, metadata: dict[str, Any] | None = None
) -> None:
    """Write a fitted model to one file, and beside it what else should be known of it.

    Parameters
    ----------
    model : estimator
        Of this library; or scikit-learn's `Pipeline` of `StandardScaler` and those.
    path : path
        '.dpca' is the usual ending.
    metadata : dict, optional
        Text, finite numbers, true, false, None, lists and dictionaries of them, up to 8 MiB of
        JSON. `metadata["table"]` says how a table became rows and is checked: `columns`, `levels`,
        `means`, `scales`, `image_shape`, `identifier`. It belongs to the file: a model that is
        loaded and saved again has none unless it is given again.

    Examples
    --------
    >>> import tempfile
    >>> import dualpca
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris().data
    >>> means, scales = X.mean(axis=0), X.std(axis=0)
    >>> model = dualpca.PPCA(2).fit((X - means) / scales)
    >>> table = {"means": means.tolist(), "scales": scales.tolist()}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dualpca.save(model, f"{folder}/iris.dpca", metadata={"table": table})
    ...     again, found = dualpca.load(f"{folder}/iris.dpca", return_metadata=True)
    >>> found == {"table": table}
    True
    """
    if not hasattr(type(model), "get_params"):
        raise TypeError(expected("model", "an estimator of dualpca, or a pipeline of them", model))
    check_is_fitted(model)
    version = str(sys.modules["dualpca"].__version__)
    persistence.save(model, path, kind_of, version, metadata)


def load(path: str | os.PathLike[str], return_metadata: bool = False) -> Any:
    """Return the model that a file holds, ready to use.

    Loading runs no code: a file can only hold numbers, text and objects of known types. Arrays
    come back as NumPy's, whatever library the model was fitted with.

    Parameters
    ----------
    path : path
        Written by the `save` of a model.
    return_metadata : bool
        Also return the dictionary that `save` was given beside the model, {} if none was.

    Returns
    -------
    estimator, or a pair of it and a dictionary

    Raises
    ------
    ModelFileError
        If the file is damaged, comes from a newer version, or is something else.

    Examples
    --------
    >>> import tempfile
    >>> import dualpca
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris().data
    >>> model = dualpca.PPCA(2).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/iris.dpca")
    ...     again = dualpca.load(f"{folder}/iris.dpca")
    >>> again, again.score(X) == model.score(X)
    (PPCA(n_components=2), True)
    """
    found = read(path)
    return (found.model, found.metadata) if return_metadata else found.model


def read(path: str | os.PathLike[str]) -> Contents:
    """Return all that a model file holds."""
    return persistence.read(path, kind_of)


# --- Kinds of estimators -------------------------------------------------------------------------


def kind_of(name: str) -> Kind | None:
    """Return how an estimator of this name is taken apart for a file, None if it is not one."""
    return _around().get(name) or _own_kind(name)


KINDS: dict[str, Any] = {}
"""Estimators beside the public ones that files may hold, by name."""


@cache
def _public(name: str) -> Any:
    package = sys.modules["dualpca"]
    home: str = package._HOMES.get(name, "")
    found = getattr(package, name) if home.startswith("estimators.") else None
    return found if hasattr(found, "_goes_together") else None


def _own_kind(name: str) -> Kind | None:
    cls = KINDS.get(name) or _public(name)
    return None if cls is None or not cls._can_be_saved else _kind(cls)


@cache
def _kind(cls: Any) -> Kind:
    hints = get_type_hints(cls, include_extras=True)
    parts = {"inputs": dict[str, Any], "model": hints["_model"]}
    if "_stream" in hints:
        parts["stream"] = hints["_stream"]
    known = {k: v for hint in parts.values() for k, v in allowed(hint).items()}
    old = known | {c.__name__: c for c in known.values()} | dict(cls._types_of_format_1())
    return Kind(cls, parts, _taken_apart, _put_together, _of_format_1, {}, old)


def _taken_apart(estimator: Any) -> dict[str, Any]:
    """Return inputs, model and stream of an estimator; nothing before a fit."""
    own = estimator.__getstate__()
    found = {part: own[f"_{part}"] for part in ("model", "stream") if f"_{part}" in own}
    inputs = {name: own[name] for name in INPUTS if name in own}
    return {"inputs": inputs, **found} if found else {}


def _put_together(estimator: Any, found: dict[str, Any]) -> None:
    """Give an estimator its inputs, model and stream."""
    inputs, sizes = found.get("inputs", {}), {"d": found.get("inputs", {}).get("n_features_in_", 0)}
    for name, value in inputs.items():
        if name not in INPUTS or not fits(value, INPUTS[name], sizes):
            what = f"{name} of {type(estimator).__name__} in the file"
            raise ModelFileError(expected(what, "what the estimator keeps", str(value)[:80]))
    if "n_features_in_" not in inputs:
        raise ModelFileError(expected("inputs in the file", "n_features_in_", sorted(inputs)))
    estimator.__dict__.update(inputs)
    estimator.__dict__.update({f"_{part}": found[part] for part in found if part != "inputs"})
    if not estimator._goes_together():
        name = type(estimator).__name__
        raise ModelFileError(f"the model of {name} in the file does not fit its inputs.")


def _of_format_1(estimator: Any, state: dict[str, Any]) -> None:
    """Give an estimator the attributes that a file of format 1 holds."""
    estimator._unpack(state)
    model = estimator.__dict__.get("_model")
    cls: Any = type(estimator)
    hint = _kind(cls).hints["model"]
    if model is not None and not fits(model, hint, {}):
        raise ValueError("a model of another kind")
    if not estimator._goes_together():
        raise ValueError("sizes differ")


# --- scikit-learn's, around ours -----------------------------------------------------------------


@dataclass(frozen=True)
class Standardisation:
    """What scikit-learn's StandardScaler learns."""

    mean: Annotated[Array, "d"] | None
    var: Annotated[Array, "d"] | None
    scale: Annotated[Array, "d"] | None
    n_samples_seen: int | float | Annotated[Array, "d"]


def _scaler_apart(scaler: Any) -> dict[str, Any]:
    own = vars(scaler)
    if "n_samples_seen_" not in own:
        return {}
    model = Standardisation(*(own[k] for k in ("mean_", "var_", "scale_", "n_samples_seen_")))
    inputs = {k: own[k] for k in INPUTS if k in own and k != "n_samples_seen_"}
    return {"inputs": inputs, "model": model}


def _scaler_together(scaler: Any, found: dict[str, Any]) -> None:
    sizes = {"d": found["inputs"].get("n_features_in_", 0)}
    if not all(k in INPUTS and fits(v, INPUTS[k], sizes) for k, v in found["inputs"].items()):
        raise ModelFileError("the inputs of StandardScaler in the file are not of their kind.")
    vars(scaler).update(found["inputs"])
    vars(scaler).update({f"{name}_": value for name, value in vars(found["model"]).items()})


def _old_scaler(scaler: Any, state: dict[str, Any]) -> None:
    names = ("mean_", "var_", "scale_", "n_samples_seen_")
    vars(scaler).update({k: state[k] for k in (*names, "n_features_in_")})
    vars(scaler).update({k: v for k, v in state.items() if k in INPUTS})


def _output_apart(estimator: Any) -> dict[str, Any]:
    name = "_sklearn_output_config"
    return {"inputs": {name: vars(estimator)[name]}} if name in vars(estimator) else {}


def _output_together(estimator: Any, found: dict[str, Any]) -> None:
    _old_output(estimator, found["inputs"])


def _old_output(estimator: Any, state: dict[str, Any]) -> None:
    name = "_sklearn_output_config"
    if set(state) - {name} or not fits(state.get(name, {}), INPUTS[name], {}):
        raise ModelFileError(expected("the file", "no attributes of a pipeline", sorted(state)))
    vars(estimator).update(state)


@cache
def _around() -> dict[str, Kind]:
    """Return what may stand before or around a model: a pipeline, a scaler, a frozen model."""
    from sklearn.frozen import FrozenEstimator
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    inputs = {"inputs": dict[str, Any]}
    steps = {"memory": None, "steps": list[tuple[str, Any]]}  # a memory is a folder of pickles
    scaler = (_scaler_apart, _scaler_together, _old_scaler)
    return {
        "StandardScaler": Kind(StandardScaler, inputs | {"model": Standardisation}, *scaler),
        "Pipeline": Kind(Pipeline, inputs, _output_apart, _output_together, _old_output, steps),
        "FrozenEstimator": Kind(
            FrozenEstimator, inputs, _output_apart, _output_together, _old_output
        ),
    }
