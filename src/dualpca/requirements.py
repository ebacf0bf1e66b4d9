"""What is asked of stored values, in words short enough for a table.

    "(n, q)"         floats of that shape; a letter means the same number throughout a table, *
                     any number
    "whole (k,)"     whole numbers of that shape; "names (d,)" strings; "labels (c,)" either
    "points (n, d)"  the same, or a sparse matrix of floats
    "int d"          a whole number from 0, which is what d means
    "float", "int", "bool", "text", "floats" (a list), "None", "estimator"
    "output"         what `set_output` keeps
    "Subspace"       an object of that type; "chains.Chain" tells modules apart; "Kernel" any kernel
    "of a; b or c"   a tuple of just these
    "list k of a"    a list of k such things, "tuple k of a" likewise
    "a | b"          one or the other; "" anything

`check_all` reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dualpca import _array
from dualpca.errors import ModelFileError, expected
from dualpca.kernels import Kernel

Sizes = dict[str, int]


def check_all(values: Mapping[str, Any], wanted: Mapping[str, str], owner: str) -> None:
    """Refuse values that are not as the table asks.

    Examples
    --------
    >>> table = {"W": "(d, q)", "mu": "(d,)"}
    >>> check_all({"W": np.zeros((3, 2)), "mu": np.zeros(3)}, table, "Factors")
    >>> check_all({"W": np.zeros((3, 2)), "mu": np.zeros(4)}, table, "Factors")
    Traceback (most recent call last):
    ...
    dualpca.errors.ModelFileError: mu of Factors in the file must be (d,), got floats (4,).
    """
    sizes: Sizes = {}
    for name, value in values.items():
        what = wanted[name]
        if what and not any(_is(word.strip(), value, sizes) for word in what.split("|")):
            where = f"{name} of {owner} in the file"
            raise ModelFileError(expected(where, what, _Words(value)))


class _Words:
    """What a value is, for an error: arrays by kind and shape."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        if not isinstance(self.value, np.ndarray):
            return repr(self.value)
        kind = {"f": "floats", "i": "whole"}.get(self.value.dtype.kind, str(self.value.dtype))
        return f"{kind} {self.value.shape}"


def _is(word: str, value: Any, sizes: Sizes) -> bool:
    """Tell whether a value is what one word asks for."""
    for beginning, kind in (("whole ", "i"), ("names ", "O"), ("(", "f")):
        if word.startswith(beginning):
            return _is_array(word.removeprefix(beginning), value, sizes, kind)
    if word.startswith("points "):
        good = _array.is_sparse(value) and value.dtype.kind == "f"
        shape = word.removeprefix("points ")
        return _has_shape(shape, value, sizes) if good else _is_array(shape, value, sizes, "f")
    if word.startswith("labels "):
        shape = word.removeprefix("labels ")
        return any(_is_array(shape, value, sizes, kind) for kind in "OUiubf")
    if word.startswith(("list ", "tuple ")):
        return _is_sequence(word, value, sizes)
    if word.startswith("int "):
        return PLAIN["int"](value) and sizes.setdefault(word.removeprefix("int "), value) == value
    if word.startswith("of "):
        return _is_tuple(word.removeprefix("of ").split(";"), value, sizes)
    test = PLAIN.get(word)
    return test(value) if test else _is_called(word, type(value))


def _is_called(word: str, cls: type) -> bool:
    """Compare a type with its name, or with that of its module and its name."""
    module = cls.__module__.rpartition(".")[2]
    return word in (cls.__name__, f"{module}.{cls.__name__}")


def _is_sequence(words: str, value: Any, sizes: Sizes) -> bool:
    """Tell whether this is a list or tuple of so many things, each as asked for."""
    kind, count, _, word = words.split(" ", 3)
    if type(value).__name__ != kind:
        return False
    same = count == "*" or sizes.setdefault(count, len(value)) == len(value)
    return same and all(_is(word, item, sizes) for item in value)


def _is_array(word: str, value: Any, sizes: Sizes, kind: str) -> bool:
    good = isinstance(value, np.ndarray) and value.dtype.kind == kind
    return good and _has_shape(word, value, sizes)


def _has_shape(word: str, value: Any, sizes: Sizes) -> bool:
    """Compare a shape with letters and numbers; letters that are new get their meaning."""
    letters = [letter for letter in word.strip("()").replace(" ", "").split(",") if letter]
    if len(value.shape) != len(letters):
        return False
    found = dict(sizes)
    for letter, size in zip(letters, value.shape, strict=True):
        wanted = int(letter) if letter.isdigit() else found.setdefault(letter, size)
        if letter != "*" and size != wanted:
            return False
    sizes.update(found)
    return True


def _is_tuple(parts: list[str], value: Any, sizes: Sizes) -> bool:
    if type(value) is not tuple or len(value) != len(parts):
        return False
    return all(
        any(_is(word.strip(), item, sizes) for word in part.split(" or "))
        for part, item in zip(parts, value, strict=True)
    )


def _is_output(value: Any) -> bool:
    return value in [{"transform": word} for word in ("default", "pandas", "polars")]


def _all_floats(value: Any) -> bool:
    return type(value) is list and all(type(v) in (float, int) for v in value)


PLAIN: dict[str, Callable[[Any], bool]] = {
    "float": lambda value: type(value) is float,
    "int": lambda value: type(value) is int and value >= 0,
    "bool": lambda value: type(value) is bool,
    "text": lambda value: type(value) is str,
    "floats": _all_floats,
    "output": _is_output,
    "None": lambda value: value is None,
    "Kernel": lambda value: isinstance(value, Kernel),
    "estimator": lambda value: hasattr(type(value), "get_params"),
}
