"""Fitted attributes: descriptors that read them from the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from inspect import ismethod
from typing import TYPE_CHECKING, Any

from dualpca.arrays import arrays_of, backend
from dualpca.data import Units

if TYPE_CHECKING:
    from dualpca.estimators._shell import Estimator


class attribute:
    """A fitted attribute: read from the model, absent before the fit or where it has none.

    Parameters
    ----------
    path : str
        Fields of the model, joined by points.
    outward : callable, optional
        Method of `Units` that brings the value to the units of X after `standardize=True`.
    inputs : bool
        The value is one of the inputs, also where the model is one of a kernel's space.
    optional : bool
        The value is None where the model has none.

    A method of the model, such as one that counts parameters, is called.
    """

    def __init__(
        self,
        path: str,
        outward: Callable[[Units, Any], Any] | None = None,
        *,
        inputs: bool = False,
        optional: bool = False,
    ) -> None:
        self.path, self.outward, self.inputs = path.split("."), outward, inputs
        self.optional = optional

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, estimator: Estimator | None, owner: type | None = None) -> Any:
        """Return the value; if there is none, raise Python's usual AttributeError."""
        if estimator is None:
            return self
        value = self._read(estimator._fitted)
        if value is None and self.optional:
            return None
        if value is None:
            name = type(estimator).__name__
            raise AttributeError(f"{name!r} object has no attribute {self.name!r}")
        if self.outward is not None and estimator._units is not None:
            units = estimator._units if self.inputs else estimator._model_units
            value = value if units is None else self._translated(units, value)
        return list(value) if type(value) is tuple else value

    def _read(self, value: Any) -> Any:
        """Follow the path from the model."""
        for name in self.path:
            value = None if value is None else getattr(value, name)
        return value() if ismethod(value) else value

    def _translated(self, units: Units, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(self._translated(units, part) for part in value)
        return self.outward(units, value)  # type: ignore[misc]

    def __set__(self, estimator: Estimator, value: Any) -> None:
        """Replace a field of the model, so that every method follows; refuse what it derives."""
        model, field = estimator._fitted, ".".join(self.path)
        what = f"{self.name} of {type(estimator).__name__}"
        if self.outward is not None and estimator._units is not None:
            raise AttributeError(f"{what} follows from standardised columns and cannot be set.")
        if field not in model.__dataclass_fields__:
            raise AttributeError(f"{what} follows from the model and cannot be set.")
        estimator._model = replace(model, **{field: value})
        estimator.__dict__.pop("_placed", None)


class unit_of_columns(attribute):
    """`scale_`, (d,): what every column was divided by; None without `standardize`."""

    def __init__(self) -> None:
        super().__init__("")

    def __get__(self, estimator: Estimator | None, owner: type | None = None) -> Any:
        """Return the scales in the dtype of the model."""
        if estimator is None:
            return self
        model, units = estimator._fitted, estimator._units
        return None if units is None else backend.cast_like(units.scale, next(arrays_of(model)))


class nested(attribute):
    """A fitted attribute that is a model of its own, shown as an estimator around it.

    Parameters
    ----------
    path : str
        Field of the model.
    shell : type
        Class of the estimator.
    """

    def __init__(self, path: str, shell: Callable[..., Any]) -> None:
        super().__init__(path)
        self.shell = shell

    def __get__(self, estimator: Estimator | None, owner: type | None = None) -> Any:
        """Return the estimator; if there is no model, raise Python's usual AttributeError."""
        model = super().__get__(estimator, owner)
        if estimator is None:
            return model
        found = self.shell(model.n_components)
        found._model, found.n_features_in_ = model, int(model.mean.shape[0])
        return found
