"""Model files: parameters, what scikit-learn keeps of inputs, and the fitted model by its fields.

Arrays are kept in safetensors layout, the rest is JSON; there is no pickle anywhere. A file can
only make objects of the types that the annotations of its model allow, with parameters that its
class has, and what it says is checked before anything is made (`fields`). A file that one version
wrote can be read by the next: parameters and fields that are new there get their defaults, and
`FORMAT` grows where that is not enough. Files of format 1 held attributes in place of the model;
an estimator makes its model of them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from dualpca.errors import ModelFileError, expected
from dualpca.files import container
from dualpca.files import metadata as beside
from dualpca.files.fields import Decoder, Encoder, allowed, fits

FORMAT = 2
"""Of the text; files of a larger one come from a newer version."""

VERSION = re.compile(r"\d[\w.+!-]{0,40}", re.ASCII)
"""Shown to people, so it may be nothing else."""

PARTS = ("inputs", "model", "stream")


class Kind(NamedTuple):
    """A kind of estimator that files may hold: how it is taken apart and put together again."""

    cls: Any
    hints: Mapping[str, Any]  # annotations of its `PARTS`; empty if it is what its parameters are
    take_apart: Callable[[Any], dict[str, Any]]  # to `PARTS`; empty before a fit
    put_together: Callable[[Any, dict[str, Any]], None]
    from_format_1: Callable[[Any, dict[str, Any]], None]
    params: Mapping[str, Any] = {}  # annotations of parameters that cannot wait for a fit
    old_types: Mapping[str, type] = {}  # names of types in format 1


Find = Callable[[str], Kind | None]
"""Name of a class to its kind."""


class Contents(NamedTuple):
    """What a model file holds."""

    model: Any
    version: str  # of the library that wrote it
    metadata: dict[str, Any]


def save(
    model: Any,
    path: str | os.PathLike[str],
    find: Find,
    version: str,
    metadata: dict[str, Any] | None = None,
) -> None:
    """Write a fitted model to one file, whole or not at all.

    Parameters
    ----------
    model : estimator
    path : path
    find : callable
        Name of a class to its `Kind`.
    version : str
        Of the library.
    metadata : dict, optional
        What `metadata.check` allows.
    """
    encoder = EstimatorEncoder(find)
    text = {"format": FORMAT, "version": version, "model": encoder.encode(model, "")}
    if metadata is not None:
        beside.check(metadata, _features(model))
        text["metadata"] = encoder.encode(metadata, "metadata")
    container.write(path, encoder.arrays, json.dumps(text, separators=(",", ":"), allow_nan=False))


def _features(model: Any) -> int | None:
    """Return the number of features a model accepts; of two views, unknown."""
    return None if hasattr(model, "y_mean_") else getattr(model, "n_features_in_", None)


def read(path: str | os.PathLike[str], find: Find) -> Contents:
    """Return all that a model file holds."""
    arrays, text = container.read(path)
    found = container.parse(text)
    if not isinstance(found, dict) or set(found) - {"metadata"} != {"format", "version", "model"}:
        raise ModelFileError("the file has no model in it: expected one written by save(path).")
    _check_format(found["format"], found["version"])
    tree = found["model"]
    if not isinstance(tree, dict) or not {"model", "estimator"} & set(tree):
        raise ModelFileError(expected("the file", "a model", tree))
    decoder, plain = EstimatorDecoder(find, arrays), Decoder({}, arrays)
    model = decoder.decode(tree)
    metadata = plain.decode(found["metadata"]) if "metadata" in found else {}
    if not decoder.is_fitted(model):
        raise ModelFileError("the model in the file was never fitted: save it after fit.")
    unused = decoder.unused & plain.unused
    if unused:
        raise ModelFileError(expected("arrays in the file", "all used", sorted(unused)))
    return Contents(model, found["version"], beside.check(metadata, _features(model)))


def _check_format(number: Any, version: Any) -> None:
    if type(number) is not int or not 1 <= number <= FORMAT:
        what = f"1 to {FORMAT}, which this version reads"
        remedy = "Install the version of dualpca that wrote the file, or a newer one."
        raise ModelFileError(expected("the format of the file", what, number, remedy))
    if not isinstance(version, str) or not VERSION.fullmatch(version):
        raise ModelFileError(expected("the version in the file", "such as 0.1.0", version))


@cache
def parameter_types() -> dict[str, type]:
    """Return the types that parameters may have: kernels, pre-image methods, densities."""
    from dualpca.files.checkpoints import Checkpoint
    from dualpca.generation import Gaussian, KernelDensity, Mixture
    from dualpca.kernels import Kernel
    from dualpca.preimages import Method

    known = allowed(Kernel | Method | Checkpoint | Gaussian | KernelDensity | Mixture)
    old = {"Checkpoint": Checkpoint}  # names of format 1
    return known | old | {f"densities.{c.__name__}": c for c in (Gaussian, KernelDensity, Mixture)}


class EstimatorEncoder(Encoder):
    """Encode estimators too: parameters apart from what was fitted."""

    def __init__(self, find: Find) -> None:
        super().__init__()
        self.find = find

    def encode(self, value: Any, where: str) -> Any:
        """Return an estimator, or any other value, as JSON."""
        kind = self.find(type(value).__name__) if hasattr(type(value), "get_params") else None
        if kind is None or kind.cls is not type(value):
            return super().encode(value, where)
        prefix = f"{where}." if where else ""
        params = value.get_params(deep=False)
        tree: dict[str, Any] = {"estimator": type(value).__name__}
        tree["params"] = {k: self.encode(v, f"{prefix}{k}") for k, v in params.items()}
        fitted = kind.take_apart(value)
        return tree | {part: self.encode(v, f"{prefix}{part}") for part, v in fitted.items()}


class EstimatorDecoder(Decoder):
    """Decode estimators too."""

    def __init__(self, find: Find, arrays: Mapping[str, Any]) -> None:
        super().__init__({}, arrays)
        self.find = find

    def _handlers(self) -> dict[str, Callable[[Any, int], Any]]:
        own = {"estimator": self._estimator, "model": self._format_1}
        return {**own, **super()._handlers()}

    def _kind(self, tree: Any, name: Any, parts: set[str]) -> Kind:
        kind = self.find(name) if isinstance(name, str) else None
        if kind is None or not {"params"} <= set(tree) <= parts:
            what = "one of dualpca's estimators with parameters and fitted model"
            raise ModelFileError(expected("the model in the file", what, str(name)[:80]))
        return kind

    def _estimator(self, tree: Any, depth: int) -> Any:
        kind = self._kind(tree, tree["estimator"], {"estimator", "params", *PARTS})
        estimator = self._unfitted(kind, tree, depth)
        known = {name: cls for hint in kind.hints.values() for name, cls in allowed(hint).items()}
        found = self._with(known, {k: tree[k] for k in PARTS if k in tree}, depth)
        for part, value in found.items():
            if part not in kind.hints or not fits(value, kind.hints[part], {}):
                name = kind.cls.__name__
                raise ModelFileError(f"the {part} of {name} in the file is not one of its kind.")
        if found:
            kind.put_together(estimator, found)
        return estimator

    def _format_1(self, tree: Any, depth: int) -> Any:
        kind = self._kind(tree, tree["model"], {"model", "params", "state"})
        estimator = self._unfitted(kind, tree, depth)
        known = {**parameter_types(), **kind.old_types}
        state = self._with(known, tree.get("state"), depth)
        if set(state) - {"_sklearn_output_config"} or "model" not in kind.hints:
            try:
                kind.from_format_1(estimator, state)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
                what = f"attributes of {kind.cls.__name__} in the file do not go together"
                raise ModelFileError(f"{what} ({type(error).__name__}: {error}).") from None
        return estimator

    def _with(self, known: Mapping[str, type], tree: Any, depth: int) -> dict[str, Any]:
        """Decode a dictionary in which these types may be."""
        before, self.known = self.known, known
        try:
            return self._items(tree, depth)
        finally:
            self.known = before

    def _unfitted(self, kind: Kind, tree: Any, depth: int) -> Any:
        """Return an estimator with the parameters in the file."""
        params, name = self._with(parameter_types(), tree["params"], depth), kind.cls.__name__
        unknown = set(params) - set(kind.cls._get_param_names())
        if unknown:
            some = str(sorted(unknown))[:80]
            raise ModelFileError(f"{name} has no parameters {some}: the file is newer.")
        for param, hint in kind.params.items():
            if param in params and not fits(params[param], hint, {}):
                what = f"{param} of {name} in the file"
                raise ModelFileError(expected(what, "of its kind", str(params[param])[:80]))
        try:
            return kind.cls(**params)
        except TypeError:
            what = f"all parameters of {name}"
            raise ModelFileError(expected("the file", what, sorted(params))) from None

    def is_fitted(self, value: Any) -> bool:
        """Return True if all estimators in a value are fitted; of pipelines, their steps."""
        if isinstance(value, list | tuple):
            return all(self.is_fitted(part) for part in value)
        kind = self.find(type(value).__name__) if hasattr(type(value), "get_params") else None
        if kind is None:
            return True
        if "model" not in kind.hints:
            return self.is_fitted([*value.get_params(deep=False).values()])
        return bool(set(kind.take_apart(value)) & {"model", "stream"})
