"""Names that are imported, and tables that are filled, when somebody first asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TypeVar

# --- Modules as attributes of their package, imported when they are first asked for (PEP 562) ----


def submodule(package: str, name: str) -> ModuleType:
    """Return a module of a package; refuse any other name in Python's own words.

    Examples
    --------
    >>> submodule("json", "decoder").__name__
    'json.decoder'
    >>> submodule("json", "nothing")
    Traceback (most recent call last):
    ...
    AttributeError: module 'json' has no attribute 'nothing'
    """
    plain = name.isidentifier() and not name.startswith("__")
    if plain and find_spec(f"{package}.{name}"):
        return import_module(f"{package}.{name}")
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


# --- Tables that a low layer keeps and a high layer fills, when somebody first looks -------------
#
# `persistence` reads files of models and may not know the estimators; modules of the estimators say
# what such a file holds by being imported, which takes time that a program need not spend before it
# saves or loads. So the package, which knows both, leaves a function here that imports them, and
# tables call it before they are read.

V = TypeVar("V")

FILLERS: list[Callable[[], None]] = []
"""What `Registry` calls. An import does its work once, and other threads wait until it is done."""


class Registry(MutableMapping[str, V]):
    """A dictionary that has itself filled before it is read. Writing fills nothing.

    Parameters
    ----------
    entries : mapping
        What it holds from the beginning.
    fillers : list of callables
        Called before every look, so each must be quick when it has nothing left to do.

    Examples
    --------
    >>> squares = Registry({"one": 1}, [lambda: squares.update(two=4)])
    >>> squares["three"] = 9
    >>> squares["two"], list(squares), len(squares)
    (4, ['one', 'three', 'two'], 3)
    """

    def __init__(
        self, entries: Mapping[str, V] | None = None, fillers: list[Callable[[], None]] = FILLERS
    ) -> None:
        self._entries: dict[str, V] = dict(entries or {})
        self._fillers = fillers

    def _filled(self) -> dict[str, V]:
        for fill in self._fillers:
            fill()
        return self._entries

    def __getitem__(self, name: str) -> V:
        return self._filled()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._filled())

    def __len__(self) -> int:
        return len(self._filled())

    def __setitem__(self, name: str, value: V) -> None:
        self._entries[name] = value

    def __delitem__(self, name: str) -> None:
        del self._filled()[name]

    def __repr__(self) -> str:
        return f"Registry({self._filled()!r})"
