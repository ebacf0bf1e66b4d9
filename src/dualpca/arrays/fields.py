"""Walks over the fields of frozen dataclasses: how a model moves between devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar

import numpy as np

from dualpca.arrays import backend
from dualpca.arrays.types import Array

T = TypeVar("T")


def moved(value: T, move: Callable[[Array], Any]) -> T:
    """Return a model, or anything made of models, tuples and arrays, with every array moved.

    What holds no array that moves is returned as it is.

    Examples
    --------
    >>> moved((np.ones(2), "text"), lambda a: a + 1)
    (array([2., 2.]), 'text')
    """
    done: dict[int, tuple[Array, Array]] = {}  # arrays that are shared stay shared

    def once(a: Array) -> Array:
        if id(a) not in done:
            done[id(a)] = (move(a), a)  # with the array itself, so that its id is not used again
        return done[id(a)][0]

    return _moved(value, once)  # type: ignore[no-any-return]


def _moved(value: Any, move: Callable[[Array], Any]) -> Any:
    if isinstance(value, np.ndarray) or backend.is_foreign(value):
        return move(value)
    if is_dataclass(value) and not isinstance(value, type):
        own = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        new = _moved_parts(own, move)
        return value if new is None else replace(value, **new)
    if isinstance(value, dict):
        return _moved_parts(value, move) or value
    if isinstance(value, tuple | list):
        new = _moved_parts(dict(enumerate(value)), move)
        if new is None:
            return value
        return (
            type(value)(*new.values()) if hasattr(value, "_fields") else type(value)(new.values())
        )
    return value


def _moved_parts(parts: dict[Any, Any], move: Callable[[Array], Any]) -> dict[Any, Any] | None:
    """Return parts with every array moved; None if none was."""
    new = {key: _moved(part, move) for key, part in parts.items()}
    return new if any(new[key] is not parts[key] for key in parts) else None


def to_host(value: T) -> T:
    """Return a model with every array of another library copied to NumPy's."""
    return moved(value, lambda a: backend.to_numpy(a) if backend.is_foreign(a) else a)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """Return the fields of a dataclass."""
    return tuple(field.name for field in fields(kind))


def arrays_of(value: Any) -> Iterator[Array]:
    """Yield the arrays of a model, in the order of its fields."""
    if isinstance(value, np.ndarray) or backend.is_foreign(value):
        yield value
    elif is_dataclass(value):
        kind: Any = type(value)
        for name in _names(kind):
            part = getattr(value, name)
            if isinstance(part, np.ndarray):
                yield part
            else:
                yield from arrays_of(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from arrays_of(part)
