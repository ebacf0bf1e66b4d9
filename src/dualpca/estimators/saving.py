"""Estimators to files and back: `save` and `load`, and `to_onnx`.

A model file holds parameters, what scikit-learn keeps of the inputs, and the fitted model by its
fields. Arrays are in safetensors layout, the rest is JSON; there is no pickle anywhere. A file can
only make objects of the types that the annotations of its model allow, with parameters that its
class has, and everything is checked before anything is made (`files.fields`). A file that one
version wrote can be read by the next: parameters and fields that are new there get their defaults,
and `MODEL_FORMAT` grows where that is not enough.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_type_hints

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

import dualpca
from dualpca.arrays import Array, backend, to_host
from dualpca.data import Host, replacing
from dualpca.errors import ModelFileError, expected
from dualpca.files import fields
from dualpca.files import metadata as beside
from dualpca.files.container import parse, read_container, write_container
from dualpca.kernels import ALIASES, KERNELS, make_kernel

if TYPE_CHECKING:
    from dualpca.estimators._shell import Estimator
    from dualpca.files.onnx_export import AffineProjection, KernelProjection

MODEL_FORMAT = 1
"""Of the text; files of a larger one come from a newer version."""

VERSION = re.compile(r"\d[\w.+!-]{0,40}", re.ASCII)
"""Shown to people, so it may be nothing else."""

PARTS = ("inputs", "model", "stream", "units")

INPUTS: dict[str, Any] = {
    "n_features_in_": int,
    "feature_names_in_": Annotated[Array, "names d"],
    "n_samples_seen_": Annotated[float, ">= 0"],
    "_sklearn_output_config": dict[str, str],
    "estimator_": Any,
    "model_": Any,
}
"""What an estimator keeps beside its model."""


def save(
    model: BaseEstimator,
    path: str | os.PathLike[str],
    *,
    metadata: dict[str, Any] | None = None,
    functions: bool = False,
) -> None:
    """Write a fitted model to one file, and beside it what else should be known of it.

    Parameters
    ----------
    model : estimator
        Of this library; or scikit-learn's `Pipeline` of `StandardScaler` and those.
    path : path
        '.dpca' is the usual ending.
    metadata : dict, default=None
        Text, finite numbers, true, false, None, lists and dictionaries of them, up to 8 MiB of
        JSON. `metadata["table"]` says how a table became rows and is checked: `columns`, `levels`,
        `means`, `scales`, `image_shape`, `identifier`. It belongs to the file: a model that is
        loaded and saved again has none unless it is given again.
    functions : bool, default=False
        Keep the import paths of functions that the model was given, such as a kernel's; `load`
        must then be given the functions themselves. Without it such a model is not saved.

    Returns
    -------
    None

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
    encoder = fields.Encoder(functions, _taken_apart)
    tree = encoder.encode(model, "")
    text = {"format": MODEL_FORMAT, "version": own_version(), "model": tree}
    if metadata is not None:
        beside.check(metadata, _n_features(model))
        text["metadata"] = encoder.encode(metadata, "metadata")
    write_container(path, encoder.arrays, json.dumps(text, separators=(",", ":"), allow_nan=False))


def own_version() -> str:
    """Return the version of this library."""
    return str(dualpca.__version__)


def load(
    path: str | os.PathLike[str],
    return_metadata: bool = False,
    *,
    functions: Iterable[Callable[..., Any]] = (),
) -> Any:
    """Return the model that a file holds, ready to use.

    Loading runs no code: a file can only hold numbers, text and objects of known types. Arrays
    come back as NumPy's, whatever library the model was fitted with.

    Parameters
    ----------
    path : path
        Written by the `save` of a model.
    return_metadata : bool, default=False
        Also return the dictionary that `save` was given beside the model, {} if none was.
    functions : iterable of callables, default=()
        Functions that the model needs, if it was saved with functions=True. A file names them by
        their import paths; nothing is imported, and no other function is ever called.

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
    found = contents_of(path, functions)
    return (found.model, found.metadata) if return_metadata else found.model


class Contents(NamedTuple):
    """What a model file holds."""

    model: BaseEstimator
    version: str  # of the library that wrote it
    metadata: dict[str, Any]


def contents_of(
    path: str | os.PathLike[str], functions: Iterable[Callable[..., Any]] = ()
) -> Contents:
    """Return everything that a model file holds."""
    functions = list(functions)
    for one in functions:
        if not fields.function_name(one):
            what = "functions that are defined in modules"
            raise TypeError(expected("functions", what, one))
    arrays, text = read_container(path)
    found = parse(text)
    _check_contents(found)
    decoder = fields.Decoder(arrays, functions, partial(_made, found["version"]))
    model = decoder.decode(found["model"])
    metadata = decoder.decode(found["metadata"]) if "metadata" in found else {}
    if not _is_fitted(model):
        raise ModelFileError("the model in the file was never fitted: save it after fit.")
    if decoder.unused:
        raise ModelFileError(expected("arrays in the file", "all used", sorted(decoder.unused)[:9]))
    return Contents(model, found["version"], beside.check(metadata, _n_features(model)))


def _check_contents(found: Any) -> None:
    """Refuse a text that is not one of a model file of this version."""
    if not isinstance(found, dict) or set(found) - {"metadata"} != {"format", "version", "model"}:
        raise ModelFileError("the file has no model in it: expected one written by save(path).")
    number, version, tree = found["format"], found["version"], found["model"]
    if type(number) is not int or number != MODEL_FORMAT:
        what = f"{MODEL_FORMAT}, which this version reads"
        remedy = "Install the version of dualpca that wrote the file, or a newer one."
        raise ModelFileError(expected("the format of the file", what, number, remedy))
    if not isinstance(version, str) or not VERSION.fullmatch(version):
        raise ModelFileError(expected("the version in the file", "such as 0.1.0", version))
    if not isinstance(tree, dict) or "estimator" not in tree:
        raise ModelFileError(expected("the file", "a model", tree))


def _n_features(model: BaseEstimator) -> int | None:
    """Return the number of features a model accepts; of two views, unknown."""
    return None if hasattr(model, "y_mean_") else getattr(model, "n_features_in_", None)


def _is_fitted(value: Any) -> bool:
    """Return True if all estimators in a value are fitted; of pipelines, their steps."""
    if isinstance(value, list | tuple):
        return all(_is_fitted(part) for part in value)
    kind = kind_of(type(value).__name__)
    if kind is None:
        return True
    if "model" not in kind.hints:
        return _is_fitted([*value.get_params(deep=False).values()])
    return bool(set(kind.take_apart(value)) & {"model", "stream"})


# --- Estimators as JSON: parameters apart from what was fitted -----------------------------------


@cache
def parameter_types() -> dict[str, type]:
    """Return the types that parameters may have: kernels, pre-image methods, densities, kinds."""
    from dualpca.data.kinds import Censored
    from dualpca.files.checkpoints import Checkpoint
    from dualpca.generation import Gaussian, KernelDensity, MixtureDensity
    from dualpca.kernels import Kernel
    from dualpca.preimages import Method

    densities = Gaussian | KernelDensity | MixtureDensity
    return fields.allowed(Kernel | Method | Checkpoint | Censored | densities)


def _taken_apart(value: Any) -> fields.EstimatorParts | None:
    """Return the parts of an estimator, None for any other value."""
    name = type(value).__name__
    kind = kind_of(name)
    if kind is None or kind.cls is not type(value):
        return None
    try:
        check_parameters(value)
    except (ValueError, TypeError) as error:
        remedy = "Set what a fit accepts with set_params, then save."
        raise ModelFileError(f"{name} cannot be saved: {error} {remedy}") from None
    params = fields.not_default(kind.cls, value.get_params(deep=False))
    return fields.EstimatorParts(name, params, kind.take_apart(value))


def _made(version: str, decoder: fields.Decoder, tree: dict[str, Any], depth: int) -> BaseEstimator:
    """Return the estimator that a tree of a file describes, which this version wrote."""
    name = tree["estimator"]
    kind = kind_of(name) if isinstance(name, str) else None
    if kind is None or not {"params"} <= set(tree) <= {"estimator", "params", *PARTS}:
        what = "one of dualpca's estimators with parameters and fitted model"
        raise ModelFileError(expected("the model in the file", what, str(name)[:80]))
    params = decoder.items(parameter_types(), tree["params"], depth)
    unknown = sorted(set(params) - set(kind.cls._get_param_names()))
    if unknown:
        some = fields.escaped(", ".join(unknown), 80)
        raise ModelFileError(
            f"{name} of dualpca {own_version()} has no parameter {some}: the file says that "
            f"dualpca {version} wrote it. Install that version or a newer one."
        )
    estimator = _unfitted(kind, params)
    known = {
        name: cls for hint in kind.hints.values() for name, cls in fields.allowed(hint).items()
    }
    learned = {part: tree[part] for part in PARTS if part in tree}
    found = decoder.items(known, learned, depth)
    for part, one in found.items():
        if part not in kind.hints or not fields.fits(one, kind.hints[part], {}):
            raise ModelFileError(f"the {part} of {name} in the file is not one of its kind.")
    if found:
        kind.put_together(estimator, found)
    return estimator


def _unfitted(kind: Kind, params: dict[str, Any]) -> BaseEstimator:
    """Return an estimator of a kind with parameters that it can be fitted with."""
    name = kind.cls.__name__
    for param, hint in kind.params.items():
        if param in params and not fields.fits(params[param], hint, {}):
            what = f"{param} of {name} in the file"
            raise ModelFileError(expected(what, "of its kind", str(params[param])[:80]))
    try:
        estimator: BaseEstimator = kind.cls(**params)
    except TypeError:
        what = f"all parameters of {name}"
        raise ModelFileError(expected("the file", what, sorted(params))) from None
    try:
        check_parameters(estimator)
    except UNUSABLE as error:
        what = f"a parameter of {name} in the file cannot be used"
        raise ModelFileError(f"{what}: {fields.escaped(str(error), 300)}") from None
    _refuse_odd_kernel(estimator.get_params(deep=False))
    return estimator


def _refuse_odd_kernel(params: Mapping[str, Any]) -> None:
    """Refuse numbers beside the name of a kernel that a kernel in a file could not have."""
    name = params.get("kernel")
    if isinstance(name, str) and name in KERNELS | ALIASES:
        plain = {one: params.get(one) for one in ("gamma", "degree", "coef0")}
        kernel = make_kernel(name, **plain | (params.get("kernel_params") or {}))
        fields.refuse_misfits(type(kernel), vars(kernel))


UNUSABLE = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError)
"""Errors of objects that were made of numbers that do not go together."""


def check_parameters(estimator: BaseEstimator) -> None:
    """Refuse parameters that no fit would accept, in the words of a fit."""
    cls: type = type(estimator)
    params, hints = estimator.get_params(deep=False), _parameter_hints(cls)
    for name, hint in hints.items():
        value = params.get(name)
        if not _plausible(_plain(value), hint):
            raise ValueError(expected(name, fields.in_words(hint), value))
    if hasattr(estimator, "_check_parameters"):
        estimator._check_parameters()
    elif hasattr(estimator, "_parameter_constraints"):  # one of scikit-learn's
        estimator._validate_params()


@cache
def _parameter_hints(cls: Any) -> dict[str, Any]:
    """Return the annotations of an estimator's parameters."""
    hints = get_type_hints(cls.__init__)
    return {name: hints.get(name, Any) for name in cls._get_param_names()}


def _plain(value: object) -> object:
    """Return a parameter with Python's numbers in place of NumPy's."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return value.item() if isinstance(value, np.generic) else value


def _plausible(value: Any, hint: Any) -> bool:
    """Return True if a parameter is of a kind that its annotation names; 0 and 1 are flags too."""
    if hint is float or float in get_args(hint):
        hint = hint | int  # also of any size
    if isinstance(value, bool) or (type(value) is int and value in (0, 1)):
        return any(fields.fits(one, hint, {}, ranges=False) for one in (bool(value), int(value)))
    return fields.fits(value, hint, {}, ranges=False)


# --- Kinds of estimators -------------------------------------------------------------------------


class Kind(NamedTuple):
    """A kind of estimator that files may hold: how it is taken apart and put together again."""

    cls: Any
    hints: Mapping[str, Any]  # annotations of its `PARTS`
    take_apart: Callable[[Any], dict[str, Any]]  # to `PARTS`; empty before a fit
    put_together: Callable[[Any, dict[str, Any]], None]
    params: Mapping[str, Any] = {}  # annotations of parameters that cannot wait for a fit


KINDS: dict[str, Any] = {}
"""Estimators beside the public ones that files may hold, by name."""


def kind_of(name: str) -> Kind | None:
    """Return how an estimator of this name is taken apart for a file, None if it is not one."""
    cls = KINDS.get(name) or _public(name)
    own = cls is not None and cls._can_be_saved
    return _own_kind(cls) if own else _around().get(name)


@cache
def _public(name: str) -> Any:
    home: str = dualpca._HOMES.get(name, "")
    found = getattr(dualpca, name) if home.startswith("estimators.") else None
    return found if hasattr(found, "_goes_together") else None


@cache
def _own_kind(cls: Any) -> Kind:
    hints = get_type_hints(cls, include_extras=True)
    parts = {"inputs": dict[str, Any], "model": hints["_model"]}
    if "_stream" in hints:
        parts["stream"] = hints["_stream"]
    if "standardize" in cls._get_param_names() or hasattr(cls, "standardize"):
        parts["units"] = hints["_units"]
    return Kind(cls, parts, _parts_of, _put_together)


def _set_inputs(estimator: BaseEstimator, inputs: dict[str, Any]) -> None:
    sizes = {"d": inputs.get("n_features_in_", 0)}
    for name, value in inputs.items():
        if name not in INPUTS or not fields.fits(value, INPUTS[name], sizes):
            what = f"{name} of {type(estimator).__name__} in the file"
            raise ModelFileError(expected(what, "what the estimator keeps", str(value)[:80]))
    estimator.__dict__.update(inputs)


def _parts_of(estimator: Estimator) -> dict[str, Any]:
    """Return inputs, model, stream and units of an estimator; nothing before a fit."""
    own = estimator.__getstate__()
    found = {part: own[f"_{part}"] for part in ("model", "stream") if f"_{part}" in own}
    if not found:
        return {}
    if "_units" in own:
        found["units"] = own["_units"]
    return {"inputs": {name: own[name] for name in INPUTS if name in own}, **found}


def _put_together(estimator: Estimator, found: dict[str, Any]) -> None:
    """Give an estimator its inputs, model, stream and units."""
    inputs = found.pop("inputs", {})
    _set_inputs(estimator, inputs)
    if not {"model", "stream"} & set(found):
        raise ModelFileError("the model in the file was never fitted: save it after fit.")
    if "n_features_in_" not in inputs:
        raise ModelFileError(expected("inputs in the file", "n_features_in_", sorted(inputs)))
    if "stream" in found and "n_samples_seen_" not in inputs:
        raise ModelFileError("a stream in the file must have n_samples_seen_, which is not there.")
    estimator.__dict__.update({f"_{part}": value for part, value in found.items()})
    name, most = type(estimator).__name__, estimator._most_components()
    try:
        together = estimator._goes_together()
    except UNUSABLE as error:
        words = fields.escaped(str(error), 300)
        raise ModelFileError(f"the model of {name} in the file cannot be used: {words}") from None
    if not together:
        raise ModelFileError(f"the model of {name} in the file does not fit its inputs.")
    _check_counts(getattr(estimator, "n_components", None), most, name)


def _check_counts(wanted: Any, most: int | None, name: str) -> None:
    """Refuse more components than a model has features."""
    counts = [wanted] if isinstance(wanted, int) else wanted  # of a mixture, for each component
    several = isinstance(counts, list | tuple | np.ndarray)
    if most is not None and several and any(count > most for count in counts):
        what = f"at most {most}, its number of features"
        raise ModelFileError(expected(f"n_components of {name} in the file", what, wanted))


# --- scikit-learn's, around ours -----------------------------------------------------------------


@dataclass(frozen=True)
class Standardisation:
    """What scikit-learn's StandardScaler learns."""

    mean: Annotated[Array, "d"] | None
    var: Annotated[Array, "d", ">= 0"] | None
    scale: Annotated[Array, "d", "> 0"] | None
    n_samples_seen: (
        Annotated[float, ">= 0"]
        | Annotated[Array, "whole d", ">= 0"]
        | Annotated[Array, "d", ">= 0"]
    )


def _take_scaler_apart(scaler: BaseEstimator) -> dict[str, Any]:
    """Return inputs and model of a StandardScaler; nothing before a fit."""
    own, names = vars(scaler), [f"{name}_" for name in Standardisation.__dataclass_fields__]
    if "n_samples_seen_" not in own:
        return {}
    inputs = {name: own[name] for name in INPUTS if name in own and name not in names}
    return {"inputs": inputs, "model": Standardisation(*(own[name] for name in names))}


def _put_scaler_together(scaler: BaseEstimator, found: dict[str, Any]) -> None:
    if set(found) != {"inputs", "model"}:
        raise ModelFileError(expected("a scaler in the file", "inputs and model", sorted(found)))
    inputs, model = found["inputs"], found["model"]
    _set_inputs(scaler, inputs)
    needed = (scaler.with_mean, model.mean), (scaler.with_std, model.scale)
    features = inputs.get("n_features_in_")
    same = fields.sizes_of(model).get("d", features) == features
    if not same or any(asked and part is None for asked, part in needed):
        raise ModelFileError("the scaler in the file has not the mean and scale of its features.")
    vars(scaler).update({f"{name}_": value for name, value in vars(found["model"]).items()})


def _output_of(estimator: BaseEstimator) -> dict[str, Any]:
    name = "_sklearn_output_config"
    return {"inputs": {name: vars(estimator)[name]}} if name in vars(estimator) else {}


def _set_output(estimator: BaseEstimator, found: dict[str, Any]) -> None:
    inputs = found["inputs"]
    if set(inputs) - {"_sklearn_output_config"}:
        raise ModelFileError(expected("the file", "no attributes of a pipeline", sorted(inputs)))
    _set_inputs(estimator, inputs)


@cache
def _around() -> dict[str, Kind]:
    """Return what may stand before or around a model: a pipeline, a scaler, a frozen model."""
    from sklearn.frozen import FrozenEstimator
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    inputs = {"inputs": dict[str, Any]}
    steps = {"memory": None, "steps": list[tuple[str, Any]]}  # a memory is a folder of pickles
    scaled = inputs | {"model": Standardisation}
    return {
        "StandardScaler": Kind(StandardScaler, scaled, _take_scaler_apart, _put_scaler_together),
        "Pipeline": Kind(Pipeline, inputs, _output_of, _set_output, steps),
        "FrozenEstimator": Kind(FrozenEstimator, inputs, _output_of, _set_output),
    }


# --- ONNX ----------------------------------------------------------------------------------------

LINEAR = ("PCA", "PPCA", "FactorAnalysis", "BayesianPCA", "RobustPPCA", "CCA")
ON_KERNELS = ("KernelPCA", "DualPPCA", "ProbabilisticKernelPCA")
SUPPORTED = (
    f"{', '.join(LINEAR)}, or {', '.join(ON_KERNELS)} with an RBF or linear kernel "
    "(or sums, products and multiples of such) on complete rows, alone or as the last step of a "
    "pipeline after StandardScaler"
)

UNIT_ROWS = 1024
"""Of the identity matrix, whose images are P, at once."""


def to_onnx(
    model: BaseEstimator,
    path: str | os.PathLike[str] | None = None,
    *,
    dtype: str = "float64",
    metadata: dict[str, Any] | None = None,
) -> bytes:
    """Return a model's `transform` as an ONNX file; the same model gives the same bytes.

    The graph maps X (rows, d) to Y (rows, q), for any number of rows, all without missing values.

    Parameters
    ----------
    model : estimator
        Fitted: PCA, PPCA, FactorAnalysis, BayesianPCA, RobustPPCA, CCA (variates of the first
        view); KernelPCA, DualPPCA or ProbabilisticKernelPCA with an RBF or linear kernel, or sums,
        products and multiples of such; a pipeline of StandardScaler and one of them.
    path : path, default=None
        File to write, whole or not at all.
    dtype : {'float64', 'float32'}, default='float64'
        Of X and Y.
    metadata : dict, default=None
        As `dualpca.load` returns it; means and scales of its `table` are applied first.

    Returns
    -------
    bytes

    Notes
    -----
    Needs the extra `onnx`. Operators of ONNX's opset 17. A kernel model takes
    8·m·n bytes for m rows and n training points (or landmarks): run many rows in batches.

    Examples
    --------
    >>> import onnxruntime
    >>> import dualpca
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris().data
    >>> model = dualpca.PPCA(2).fit(X)
    >>> session = onnxruntime.InferenceSession(dualpca.to_onnx(model))
    >>> [Y] = session.run(None, {"X": X[:5]})
    >>> bool(abs(Y - model.transform(X[:5])).max() < 1e-12)
    True
    """
    from dualpca.files.onnx_export import TYPES, transform_graph

    if dtype not in TYPES:
        raise ValueError(expected("dtype", f"one of {list(TYPES)}", dtype))
    *before, last = steps = _checked_steps(model)
    d = int(steps[0].n_features_in_)
    table = beside.check(metadata or {}, d).get("table", {})
    scalings = [(table.get("means"), table.get("scales")), *_scalings(before, last)]
    projection = (_affine if _known_name(last) in LINEAR else _expansion)(last)
    props = {"model": type(last).__name__}
    if hasattr(steps[0], "feature_names_in_"):
        props["columns"] = json.dumps([str(name) for name in steps[0].feature_names_in_])
    data = transform_graph(d, dtype, scalings, projection, props)
    if data is None:
        raise ValueError(expected("model", SUPPORTED, last))
    if path is not None:
        with replacing(path) as file:
            file.write(data)
    return data


def _checked_steps(model: BaseEstimator) -> list[BaseEstimator]:
    """Return the steps of a pipeline that ONNX can express, all fitted."""
    *before, last = steps = list(_steps(model))
    good = _known_name(last) in (*LINEAR, *ON_KERNELS)
    if not good or any(_known_name(step) != "StandardScaler" for step in before):
        raise ValueError(expected("model", SUPPORTED, last if not good else before[0]))
    for step in steps:
        check_is_fitted(step)
    return steps


def _scalings(before: list[BaseEstimator], last: BaseEstimator) -> Iterator[tuple[Any, Any]]:
    """Yield what rows are subtracted and divided by, from the first step to the last."""
    for step in before:
        yield step.mean_ if step.with_mean else None, step.scale_
    units = getattr(last, "_units", None)
    if units is not None:
        yield backend.to_numpy(units.mean), backend.to_numpy(units.scale)


def _known_name(estimator: BaseEstimator) -> str:
    """Return the name of a class of this library or of scikit-learn, '' for any other."""
    cls = type(estimator)
    return cls.__name__ if cls.__module__.split(".")[0] in ("dualpca", "sklearn") else ""


def _steps(model: BaseEstimator) -> Iterator[BaseEstimator]:
    """Yield the steps of a pipeline without those that do nothing, or the model alone."""
    if _known_name(model) == "FrozenEstimator":
        yield from _steps(model.estimator)
        return
    steps = model.steps if _known_name(model) == "Pipeline" else []
    parts = [part for _, part in steps if part is not None and not isinstance(part, str)]
    for part in parts:
        yield from _steps(part)
    if not parts:
        yield model


def _affine(estimator: Estimator) -> AffineProjection:
    """Return (x − μ)P; P is the image of the identity matrix once the mean is moved to 0."""
    from dualpca.files.onnx_export import AffineProjection

    probe, model = copy(estimator), to_host(estimator._fitted)
    for name in ("feature_names_in_", "_sklearn_output_config", "_stream", "_placed", "_units"):
        probe.__dict__.pop(name, None)
    if _known_name(estimator) == "CCA":
        mean, x = model.x_mean, replace(model.canonical.x, mu=0 * model.canonical.x.mu)
        probe._model = replace(model, canonical=replace(model.canonical, x=x))
    else:
        mean = model.mean
        probe._model = replace(model, mean=0 * mean)
    d = mean.shape[0]
    starts = range(0, d, UNIT_ROWS)
    blocks = [probe.transform(np.eye(min(UNIT_ROWS, d - i), d, i)) for i in starts]
    return AffineProjection(np.asarray(mean, dtype=float), np.concatenate(blocks).astype(float))


def _expansion(estimator: Estimator) -> AffineProjection | KernelProjection:
    """Return k(x, ·)A − t; (x − Xᵀb)XᵀA for the linear kernel over points X, which needs no X."""
    from dualpca.files.onnx_export import AffineProjection, KernelProjection
    from dualpca.kernels import Linear
    from dualpca.operators import Landmarks, MappedSubspace, Subspace

    def host(values: Any) -> Host:
        return np.asarray(values.toarray() if backend.is_sparse(values) else values, dtype=float)

    model, dual = to_host(estimator._fitted), _known_name(estimator) == "DualPPCA"
    space = model.projector if dual else model.subspace
    if isinstance(space, MappedSubspace) and isinstance(space.map, Landmarks):
        points, kernel = space.map.points, space.map.kernel
        A = host(space.map.whitening) @ host(space.axes)
        tilt = host(space.mean) @ host(space.axes)
    elif isinstance(space, Subspace):
        points, kernel = space.points, space.kernel
        A, tilt = host(space.coefficients), host(space.tilt)
    else:
        raise ValueError(expected("model", SUPPORTED, estimator))
    if points.ndim != 2 or getattr(estimator, "metric", None) is not None:
        raise ValueError(expected("model", SUPPORTED, estimator))
    scale = host(model.gaussian.posterior_mean(model.gaussian.values * 0 + 1)) if dual else 1.0
    X = host(points)
    if kernel == Linear() and isinstance(space, Subspace):
        return AffineProjection(X.T @ host(space.base), X.T @ A * scale)
    return KernelProjection(X, kernel, A * scale, tilt * scale)
