"""Values as JSON and arrays, and what is asked of stored values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from dualpca.arrays import backend
from dualpca.errors import ModelFileError, expected
from dualpca.kernels import Function, Kernel

# --- What is asked of stored values, in words short enough for a table ---------------------------

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
        good = backend.is_sparse(value) and value.dtype.kind == "f"
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


# --- Values as JSON and arrays: plain data, kernels, and the types on an explicit list, no others
#
#     null, true, 1, 1.5, "text", [...]        themselves
#     {"float": "nan"}                         what JSON has no word for
#     {"tuple": [...]}, {"dict": {...}}
#     {"array": name}, {"array": name, "order": "F"}   stored by columns: their transpose is there
#     {"floats": {"array": name}}              a long list of floats
#     {"names": [...]}                         an array of strings, as objects
#     {"names": [...], "width": 3}             the same, of dtype <U3
#     {"csr": {...}}                           a sparse matrix
#     {"type": name, "fields": {...}}          one of `Encoder.types`
#
# Arrays keep their order in memory: products then take the same path and give the same bits.

DEEPEST = 40
"""Values inside values: kernels of kernels, methods of models of models."""


REPEATS = 16
"""Times that a file may use its arrays, on average, and a megabyte more."""


LONG = 64
"""Floats in a list that is kept as an array, so that headers stay short."""


class Stored(NamedTuple):
    """A type that files may hold: how it is made, and what is asked of its fields."""

    make: Callable[..., Any]
    fields: Mapping[str, str]  # name to what `requirements.check` reads; "" for anything


def any_fields(cls: Any) -> Stored:
    """Return a dataclass as a type whose own constructor checks its fields."""
    return Stored(cls, {field.name: "" for field in fields(cls)})


class Encoder:
    """Turn values into JSON; arrays are collected beside, each once however often it is met."""

    def __init__(self, types: Mapping[str, Stored]) -> None:
        self.names = {stored.make: name for name, stored in types.items()}
        self.types = types
        self.arrays: dict[str, Any] = {}
        self._seen: dict[int, tuple[Any, dict[str, str]]] = {}

    def encode(self, value: Any, where: str) -> Any:
        """Return a value as JSON; `where` names it in errors and names its arrays."""
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, np.generic):
            return self.encode(value.item(), where)
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return value if np.isfinite(value) else {"float": repr(value)}
        if type(value) in self.names:
            return self._fields(value, where)
        if isinstance(value, list | tuple | dict):
            return self._collection(value, where)
        return self._table(value, where)

    def _fields(self, value: Any, where: str) -> Any:
        name = self.names[type(value)]
        wanted = self.types[name].fields
        found = {k: self.encode(getattr(value, k), f"{where}.{k}") for k in wanted}
        return {"type": name, "fields": found}

    def _collection(self, value: Any, where: str) -> Any:
        if type(value) is dict and all(type(k) is str for k in value):
            return {"dict": {k: self.encode(v, f"{where}.{k}") for k, v in value.items()}}
        if type(value) not in (list, tuple):
            raise unknown(value, where)
        if type(value) is list and len(value) > LONG and all(type(v) is float for v in value):
            return {"floats": self._array(np.asarray(value), where)}
        found = [self.encode(v, f"{where}.{i}") for i, v in enumerate(value)]
        return found if type(value) is list else {"tuple": found}

    def _table(self, value: Any, where: str) -> Any:
        if backend.is_sparse(value):
            return {"csr": self._sparse(value, where)}
        if not (isinstance(value, np.ndarray) or backend.is_foreign(value)):
            raise unknown(value, where)
        if isinstance(value, np.ndarray) and value.dtype.kind in "OU":
            width = {"width": value.dtype.itemsize // 4} if value.dtype.kind == "U" else {}
            return {"names": _names(value, where), **width}
        return self._array(value, where)

    def _sparse(self, value: Any, where: str) -> Any:
        if value.format != "csr":
            raise unknown(value, where)
        parts = {k: self._array(getattr(value, k), f"{where}.{k}") for k in CSR}
        kind = "matrix" if isinstance(value, sparse.spmatrix) else "array"
        return {"shape": list(value.shape), "kind": kind, **parts}

    def _array(self, value: Any, where: str) -> Any:
        """Return the name under which an array is kept; views that are alike share it."""
        if id(value) in self._seen:
            return self._seen[id(value)][1]
        host = np.asarray(backend.to_numpy(value))
        by_columns = host.flags.f_contiguous and not host.flags.c_contiguous
        self.arrays[where] = host.T if by_columns else host
        found = {"array": where} | ({"order": "F"} if by_columns else {})
        self._seen[id(value)] = (value, found)  # held, so that its id is not used again
        return found


CSR = ("data", "indices", "indptr")


def _names(value: Any, where: str) -> list[str]:
    if value.ndim != 1 or not all(isinstance(v, str) for v in value):
        raise unknown(value, where)
    return [str(v) for v in value]


def unknown(value: Any, where: str) -> ModelFileError:
    """Say what cannot be saved, and what to do."""
    remedy = "Files hold numbers, text, arrays and the library's own objects."
    if where.endswith("random_state"):
        remedy = "Set it to None or a whole number: model.set_params(random_state=0)."
    elif isinstance(value, Function) or (callable(value) and not hasattr(value, "diag")):
        remedy = "A function is code, and files hold none: use a kernel or metric with a name, or "
        remedy += "'precomputed'."
    elif "kernel" in where:
        remedy = "Use a kernel of dualpca.kernels (dualpca.kernels.translate knows scikit-learn's)."
    return ModelFileError(expected(where, "something that can be saved", value, remedy))


class Decoder:
    """Turn JSON and arrays back into values; what is not on the list is refused."""

    def __init__(self, types: Mapping[str, Stored], arrays: Mapping[str, Any]) -> None:
        self.types, self.arrays = types, arrays
        self._made: dict[str, Any] = {}
        self._left = REPEATS * sum(array.nbytes for array in arrays.values()) + 2**20

    @property
    def unused(self) -> set[str]:
        """Arrays that no value so far consists of."""
        return set(self.arrays) - set(self._made)

    def decode(self, tree: Any, depth: int = 0) -> Any:
        """Return the value that the tree describes."""
        if depth > DEEPEST:
            raise ModelFileError(f"the file nests values more than {DEEPEST} deep: refused.")
        if isinstance(tree, list):
            return [self.decode(part, depth + 1) for part in tree]
        if not isinstance(tree, dict):
            return tree
        for kind, handler in self._handlers().items():
            if kind in tree:
                return handler(tree, depth + 1)
        raise ModelFileError(expected("a value in the file", "of a known kind", sorted(tree)))

    def _handlers(self) -> dict[str, Callable[[Any, int], Any]]:
        return {
            "type": self._object,
            "array": lambda tree, depth: self._array(tree),
            "tuple": lambda tree, depth: tuple(self.decode(listed(tree["tuple"]), depth)),
            "dict": lambda tree, depth: self._items(tree["dict"], depth),
            "float": lambda tree, depth: _number(tree["float"]),
            "floats": lambda tree, depth: self._floats(tree["floats"]),
            "names": lambda tree, depth: self._names(tree["names"], tree.get("width")),
            "csr": lambda tree, depth: self._sparse(tree["csr"]),
        }

    def _items(self, tree: Any, depth: int) -> dict[str, Any]:
        if not isinstance(tree, dict):
            raise ModelFileError(expected("a dictionary in the file", "a JSON object", tree))
        return {k: self.decode(v, depth) for k, v in tree.items()}

    def _object(self, tree: Any, depth: int) -> Any:
        name = tree["type"]
        stored = self.types.get(name) if isinstance(name, str) else None
        if stored is None:
            raise ModelFileError(expected("a type in the file", "one that is known", name))
        found = self._items(tree.get("fields"), depth)
        if set(found) != set(stored.fields):
            what = f"the fields {sorted(stored.fields)} of {name}"
            raise ModelFileError(expected("fields in the file", what, sorted(found)))
        check_all(found, stored.fields, name)
        try:
            return stored.make(**found)
        except (ValueError, TypeError) as error:
            why = str(error)[:300]
            raise ModelFileError(f"the file holds an impossible {name}: {why}") from None

    def _array(self, tree: Any) -> Any:
        key, order = tree["array"], tree.get("order")
        if not isinstance(key, str) or key not in self.arrays or order not in (None, "F"):
            raise ModelFileError(expected("an array's name", "that of an array in the file", key))
        if key not in self._made:
            self._made[key] = self.arrays[key].T if order else self.arrays[key]
        self._spend(self.arrays[key].nbytes)
        return self._made[key]

    def _spend(self, size: int) -> None:
        """Refuse a short file that would become large: objects copy what they are made of."""
        self._left -= size
        if self._left < 0:
            raise ModelFileError("the file uses the same arrays again and again: refused.")

    def _floats(self, tree: Any) -> list[float]:
        found = self._array(tree) if isinstance(tree, dict) and "array" in tree else None
        if found is None or found.ndim != 1 or found.dtype != np.float64:
            raise ModelFileError(expected("floats in the file", "an array of float64", tree))
        return list(found.tolist())

    def _names(self, tree: Any, width: Any) -> Any:
        """Return an array of strings: of objects, as feature names are kept, or of a dtype <U."""
        if not all(isinstance(name, str) for name in listed(tree)):
            raise ModelFileError(expected("names in the file", "strings", tree))
        if width is None:
            return np.asarray(tree, dtype=object)
        if type(width) is not int or width < max(map(len, tree), default=0):
            raise ModelFileError(expected("the width of names", "that of the longest", width))
        self._spend(4 * width * max(1, len(tree)))
        return np.asarray(tree, dtype=f"<U{width}")

    def _sparse(self, tree: Any) -> Any:
        if not isinstance(tree, dict) or set(tree) != {"shape", "kind", *CSR}:
            raise ModelFileError(expected("a sparse matrix", "data, indices and indptr", tree))
        make: Any = sparse.csr_matrix if tree["kind"] == "matrix" else sparse.csr_array
        parts = tuple(self._array(tree[k]) if isinstance(tree[k], dict) else None for k in CSR)
        try:
            found = make(parts, shape=tuple(listed(tree["shape"])))
            found.check_format(full_check=True)
        except (ValueError, TypeError, IndexError, OverflowError) as error:
            raise ModelFileError(f"the file holds an impossible sparse matrix: {error}") from None
        return found


def listed(tree: Any) -> list[Any]:
    """Return a JSON list."""
    if not isinstance(tree, list):
        raise ModelFileError(expected("a sequence in the file", "a JSON list", tree))
    return tree


def _number(word: Any) -> float:
    if word not in ("nan", "inf", "-inf"):
        raise ModelFileError(expected("a float in the file", "'nan', 'inf' or '-inf'", word))
    return float(word)
