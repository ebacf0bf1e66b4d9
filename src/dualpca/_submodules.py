"""Modules as attributes of their package, imported when they are first asked for (PEP 562)."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


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
