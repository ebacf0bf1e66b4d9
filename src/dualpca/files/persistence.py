"""Models to files and back: safetensors for arrays, JSON for the rest, no pickle anywhere.

`save` writes what `register` was told of a model's class; `load` makes objects of listed types
only, checks every shape, and refuses what it does not know. A file that one version wrote can be
read by the next: parameters that are new there get their default, attributes that are new may be
absent, and `FORMAT` grows where that is not enough.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dualpca.errors import ModelFileError, expected
from dualpca.files import container
from dualpca.files import metadata as beside
from dualpca.files.encoding import Decoder, Encoder, Stored, check_all
from dualpca.files.lazy import Registry
from dualpca.files.stored_types import TYPES

FORMAT = 1
"""Of the text; files of a larger one come from a newer version."""


Check = Callable[[dict[str, Any]], bool]


VERSION = re.compile(r"\d[\w.+!-]{0,40}", re.ASCII)
"""Shown to people, so it may be nothing else."""


class State(NamedTuple):
    """What a model's file holds beside its parameters."""

    cls: Any
    attributes: Mapping[str, str]  # name to what `requirements` reads; a name with ? may be absent
    caches: tuple[str, ...]  # computed again when they are needed
    params: Mapping[str, str]  # what is asked of parameters before the model is made
    check: Check  # whether attributes go together


MODELS: Registry[State] = Registry()


def register(
    cls: Any,
    attributes: Mapping[str, str],
    caches: tuple[str, ...] = (),
    params: Mapping[str, str] | None = None,
    check: Check = lambda found: True,
) -> None:
    """Let models of a class be saved and loaded.

    Parameters
    ----------
    cls : type
        An estimator, with `_packed` and `_unpack` where its attributes are not all there is.
    attributes : mapping
        Fitted attributes, and what is asked of each.
    caches : tuple of str
        Attributes that are left out.
    params : mapping, optional
        What is asked of parameters, where that cannot wait for a fit.
    check : callable
        Tell whether attributes, each as it should be, go together.
    """
    MODELS[cls.__name__] = State(cls, attributes, caches, params or {}, check)


def allow(**types: Stored) -> None:
    """Let files hold these types, by these names."""
    TYPES.update(types)


def save(
    model: Any, path: str | os.PathLike[str], version: str, metadata: dict[str, Any] | None = None
) -> None:
    """Write a fitted model to one file, whole or not at all.

    Parameters
    ----------
    model : estimator
    path : path
    version : str
        Of the library.
    metadata : dict, optional
        What `dualpca.files.metadata` allows.
    """
    encoder = ModelEncoder(TYPES)
    tree = encoder.encode(model, "")
    text = {"format": FORMAT, "version": version, "model": tree}
    if metadata is not None:
        beside.check(metadata, _features(model))
        text["metadata"] = encoder.encode(metadata, "metadata")
    container.write(path, encoder.arrays, json.dumps(text, separators=(",", ":"), allow_nan=False))


def _features(model: Any) -> int | None:
    """Return the number of features a model takes; of two views, unknown."""
    return None if hasattr(model, "y_mean_") else getattr(model, "n_features_in_", None)


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


class Contents(NamedTuple):
    """What a model file holds."""

    model: Any
    version: str  # of the library that wrote it
    metadata: dict[str, Any]


def read(path: str | os.PathLike[str]) -> Contents:
    """Return all that a model file holds."""
    arrays, text = container.read(path)
    found = container.parse(text)
    if not isinstance(found, dict) or set(found) - {"metadata"} != {"format", "version", "model"}:
        raise ModelFileError("the file has no model in it: expected one written by save(path).")
    _check_format(found["format"], found["version"])
    tree = found["model"]
    if not isinstance(tree, dict) or "model" not in tree:
        raise ModelFileError(expected("the file", "a model", tree))
    decoder, plain = ModelDecoder(TYPES, arrays), Decoder({}, arrays)
    model = decoder.decode(tree)
    metadata = plain.decode(found["metadata"]) if "metadata" in found else {}
    unused = decoder.unused & plain.unused
    if not is_fitted(model):
        raise ModelFileError("the model in the file was never fitted: save it after fit.")
    if unused:
        raise ModelFileError(expected("arrays in the file", "all used", sorted(unused)))
    return Contents(model, found["version"], beside.check(metadata, _features(model)))


def _check_format(number: Any, version: Any) -> None:
    if type(number) is not int or number != FORMAT:
        what = f"{FORMAT}, the one this version reads"
        remedy = "Install the version of dualpca that wrote the file, or a newer one."
        raise ModelFileError(expected("the format of the file", what, number, remedy))
    if not isinstance(version, str) or not VERSION.fullmatch(version):
        raise ModelFileError(expected("the version in the file", "such as 0.1.0", version))


class ModelEncoder(Encoder):
    """Encode models too, the parameters apart from what was fitted."""

    def encode(self, value: Any, where: str) -> Any:
        """Return a model, or any other value, as JSON."""
        return self._model(value, where) if known(value) else super().encode(value, where)

    def _model(self, value: Any, where: str) -> Any:
        state = MODELS[type(value).__name__]
        prefix, params = f"{where}." if where else "", value.get_params(deep=False)
        words = {k: self.encode(v, f"{prefix}{k}") for k, v in params.items()}
        left_out = {*params, *state.caches}
        every = value._packed() if hasattr(type(value), "_packed") else vars(value)
        kept = {k: v for k, v in every.items() if k not in left_out}
        _check_names(kept, state, "the model")
        # public names first: arrays that several attributes share are called by those
        order = sorted(kept, key=lambda name: name.startswith("_"))
        found = {k: self.encode(kept[k], f"{prefix}{k}") for k in order}
        return {"model": type(value).__name__, "params": words, "state": found}


def known(value: Any) -> bool:
    """Tell whether this is a model that files may hold."""
    state = MODELS.get(type(value).__name__)
    return state is not None and state.cls is type(value)


class ModelDecoder(Decoder):
    """Decode models too."""

    def _handlers(self) -> dict[str, Callable[[Any, int], Any]]:
        return {"model": self._model, **super()._handlers()}

    def _model(self, tree: Any, depth: int) -> Any:
        name = tree["model"]
        state = MODELS.get(name) if isinstance(name, str) else None
        if state is None or set(tree) != {"model", "params", "state"}:
            raise ModelFileError(expected("the model in the file", f"one of {list(MODELS)}", name))
        params, found = (self._items(tree[part], depth) for part in ("params", "state"))
        unknown = set(params) - set(state.cls._get_param_names())
        if unknown:
            some = str(sorted(unknown))[:80]
            raise ModelFileError(f"{name} has no parameters {some}: the file is newer.")
        check_all({k: v for k, v in params.items() if k in state.params}, state.params, name)
        _check_names(found, state, "the file")
        check_all(found, _wanted(state), name)
        if not (_is_blank(found) or (is_fitted([*found.values()]) and state.check(found))):
            raise ModelFileError(f"attributes of {name} in the file do not go together.")
        return _made(state, params, found)


def _made(state: State, params: dict[str, Any], found: dict[str, Any]) -> Any:
    """Return a model; those of scikit-learn's that are known keep all in their attributes."""
    try:
        model = state.cls(**params)
    except TypeError:
        what = f"all parameters of {state.cls.__name__}"
        raise ModelFileError(expected("the file", what, sorted(params))) from None
    if hasattr(state.cls, "_unpack") and not _is_blank(found):
        model._unpack(found)
    else:
        vars(model).update(found)
    return model


def _wanted(state: State) -> dict[str, str]:
    return {name.rstrip("?"): what for name, what in state.attributes.items()}


def _is_blank(found: Mapping[str, Any]) -> bool:
    """Tell whether a model has not been fitted: as a parameter it need not be."""
    return set(found) <= {"_sklearn_output_config"}


def is_fitted(value: Any) -> bool:
    """Tell whether all models in a value are fitted; pipelines are what their steps are."""
    if isinstance(value, list | tuple):
        return all(is_fitted(part) for part in value)
    if not known(value):
        return True
    state, params = MODELS[type(value).__name__], value.get_params(deep=False)
    if all(name.endswith("?") for name in state.attributes):
        return is_fitted([*params.values()])
    return not _is_blank({k: v for k, v in vars(value).items() if k not in params})


def _check_names(found: Mapping[str, Any], state: State, owner: str) -> None:
    """Refuse attributes that are unknown, and a fit that misses some; streams fill theirs later."""
    name = state.cls.__name__
    unknown = sorted(set(found) - set(_wanted(state)))
    if unknown:
        remedy = "Remove them, or set them again after loading."
        what = f"without attributes that {name} does not have"
        raise ModelFileError(expected(owner, what, unknown, remedy))
    needed = {k for k in state.attributes if not k.endswith("?")}
    missing = sorted(needed - set(found))
    if missing and "_stream" not in found and not _is_blank(found):
        raise ModelFileError(expected(owner, f"a fitted {name}, with {missing}", sorted(found)))
