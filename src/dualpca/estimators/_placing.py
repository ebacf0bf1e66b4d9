"""`device=`: work on a graphics card with arrays that live on the host, and come home to it.

A model with a device has a twin there: the same estimator, fitted to tensors. Every public method
sends its rows to the twin and brings the results home; `fit` brings home the fitted attributes too.
So no other file need know of devices, and a model that was pickled, saved or cloned is an ordinary
model of the host.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import wraps
from inspect import Signature, getattr_static, signature
from types import FunctionType
from typing import Any

import numpy as np
from sklearn.utils.validation import _check_feature_names, check_array

from dualpca.arrays import (
    Choice,
    Job,
    backend,
    check_device,
    chosen,
    is_several,
    note,
    returned,
    rows_of,
    sent,
    showing,
)
from dualpca.data import refuse_masked
from dualpca.errors import BackendError
from dualpca.estimators._base import as_frame, named_columns, parts_of

FITS = ("fit", "partial_fit", "fit_transform", "fit_predict")
AT_HOME = ("save", "to_dual", "to_primal", "summary")
"""Methods that need no rows, and make something else of the fitted model."""
ROWS = ("X", "K")
LATENT = ("inverse_transform", "preimages", "preimage_weights")
"""Methods whose rows have no names to check."""
FRAMED = ("impute",)
"""Methods that make frames of frames."""


class OnDevice:
    """An estimator with a parameter `device`."""

    device: str | None = None
    _second_rows: tuple[str, ...] = ()  # names of further arguments that are rows

    def __init_subclass__(cls, **options: Any) -> None:
        """Let every public method ask where to work, below scikit-learn's making of frames."""
        for name in dir(cls):
            method = getattr_static(cls, name)
            if name.startswith("_") or name in AT_HOME or not isinstance(method, FunctionType):
                continue
            if method.__module__.startswith("dualpca.") and not hasattr(method, "placed_method"):
                setattr(cls, name, placed(method))
        super().__init_subclass__(**options)

    @property
    def _device(self) -> str | None:
        """The device that was asked for."""
        return self.device

    def _without_device(self) -> Any:
        """Return a copy that works where its rows are, and gives plain arrays."""
        twin = copy(self)
        self._share(twin)
        for name in ("_twin", "_sklearn_output_config"):
            vars(twin).pop(name, None)
        return twin

    def _share(self, twin: Any) -> None:
        """Give the twin the parameters as they are now, but for the device."""
        vars(twin).update(self.get_params(deep=False), device=None)  # type: ignore[attr-defined]

    def __copy__(self) -> Any:
        """Return a shallow copy that shares the twin."""
        other = type(self).__new__(type(self))
        vars(other).update(vars(self))
        return other

    def __getstate__(self) -> Any:
        """Leave the twin behind: other processes may have no card."""
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_twin"}


def placed(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that works where the model's `device` says."""
    form = signature(method)
    names = list(form.parameters)[1:]

    @wraps(method)
    def somewhere(self: Any, *args: Any, **options: Any) -> Any:
        fits = method.__name__ in FITS
        # of a call that does not fit Python says what is wrong
        if self._device is None or not _fits(form, self, args, options):
            with showing(fits and getattr(self, "verbose", False)):
                return method(self, *args, **options)
        given = {**dict(zip(names, args, strict=False)), **options}
        if fits:
            with showing(getattr(self, "verbose", False)):
                return _fitted(self, method, given)
        twin = vars(self).get("_twin")
        if twin is None or not _movable(given.get("X"), fitting=False):
            return method(self, **given)  # of the host, or parts, which come here one by one
        self._share(twin)
        if method.__name__ not in LATENT:
            _check_feature_names(self, given.get("X"), reset=False)
        return _home(self, method, given, method(twin, **_sent(self, given, twin._card)))

    somewhere.placed_method = True  # type: ignore[attr-defined]
    return somewhere


def _fits(form: Signature, model: Any, args: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Tell whether a method can be called so."""
    try:
        form.bind(model, *args, **options)
    except TypeError:
        return False
    return True


def _fitted(model: Any, method: Callable[..., Any], given: dict[str, Any]) -> Any:
    """Fit the twin, and bring what it found home."""
    check_device(model._device)
    found = _choice(model, given.get("X"))
    where = "the CPU" if found.device is None else str(found.device)
    note(f"{type(model).__name__} on {where}: {found.reason}")
    if found.device is None:
        vars(model).pop("_twin", None)
        return method(model, **given)
    old = vars(model).get("_twin") if method.__name__ == "partial_fit" else None
    twin = model._without_device() if old is None else old
    model._share(twin)
    twin._card = found.device
    with named_columns(model):
        _check_feature_names(model, given["X"], reset=old is None)
        result = method(twin, **_sent(model, given, found.device))
    _adopt(model, twin)
    return model if result is twin else _home(model, method, given, result)


def _choice(model: Any, X: Any) -> Choice:
    """Return where to fit these rows."""
    device = model._device
    if not _movable(X):
        if device.startswith("cuda"):
            what = f"device={device!r} takes dense rows in memory, got {type(X).__name__}"
            raise BackendError(f"{what}. Give those, or device=None (or 'auto') for this table.")
        return Choice(None, f"{type(X).__name__} is worked on where it is")
    pairs = getattr(model, "kernel", None) is not None
    steps = not pairs and hasattr(model, "max_iter")
    return chosen(device, Job(*rows_of(X), pairs, steps))


def _movable(X: Any, *, fitting: bool = True) -> bool:
    """Tell whether X is a dense table in memory, or nothing."""
    return not backend.is_sparse(X) and (X is None or parts_of(X, fitting=fitting) is None)


def _sent(model: Any, given: dict[str, Any], device: Any) -> dict[str, Any]:
    """Return the arguments with their rows on the device."""
    rows = {*ROWS, *model._second_rows}
    return {
        name: _rows_sent(value, device) if name in rows and value is not None else value
        for name, value in given.items()
    }


def _rows_sent(X: Any, device: Any) -> Any:
    if is_several(X):
        return [_rows_sent(part, device) for part in X]
    refuse_masked(X)
    if not backend.is_foreign(X):
        kinds = [np.float64, np.float32]
        X = check_array(X, dtype=kinds, ensure_all_finite=False, allow_nd=True, ensure_2d=False)
    return sent(X, device)


def _adopt(model: Any, twin: Any) -> None:
    """Give the model the fitted attributes of its twin, and none of an earlier fit."""
    kept = {*model.get_params(deep=False), "_sklearn_output_config", "feature_names_in_"}
    for name in set(vars(model)) - kept:
        del vars(model)[name]
    found = {name: value for name, value in vars(twin).items() if name not in {*kept, "_card"}}
    vars(model).update(returned(found))
    model._twin = twin


def _home(model: Any, method: Callable[..., Any], given: dict[str, Any], result: Any) -> Any:
    """Return a result where its rows came from: as arrays, tensors or frames."""
    X = given.get("X")
    result = returned(result, X if backend.is_foreign(X) else None)
    if method.__name__ not in FRAMED:
        return result
    rows = [given[name] for name in (*ROWS, *model._second_rows) if given.get(name) is not None]
    if not isinstance(result, tuple):
        return as_frame(result, X)
    return tuple(as_frame(part, rows[k % len(rows)]) for k, part in enumerate(result))
