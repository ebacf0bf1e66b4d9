"""Models as JSON and arrays and back: a walk over fields, checked by their annotations.

What a file holds follows from the annotations of the model: every frozen dataclass and NamedTuple
that they mention may be there, and nothing else. `Annotated[Array, "d q"]` asks for an array of two
axes; a letter means the same size throughout a dataclass, a number itself, `*` any size. A word
before the letters says what the entries are:

    "d q"          floats
    "whole d"      integers
    "names d"      strings
    "labels c"     strings or numbers
    "points n d"   numbers, dense or a sparse matrix, or items of another kind

`Annotated[Protocol, A | B]` names the classes that may stand for a protocol in a file.

JSON is:

    null, true, 1, 1.5, "text", [...]        themselves
    {"float": "nan"}                         what JSON has no word for
    {"tuple": [...]}, {"dict": {...}}
    {"array": name}, {"array": name, "order": "F"}   stored by columns: their transpose is there
    {"floats": {"array": name}}              a long list or tuple of floats
    {"names": [...]}                         an array of strings, as objects
    {"names": [...], "width": 3}             the same, of dtype <U3
    {"csr": {...}}                           a sparse matrix
    {"type": name, "fields": {...}}          a dataclass or NamedTuple of this library

Arrays keep their order in memory: products then take the same path and give the same bits.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from scipy import sparse

from dualpca.arrays import backend
from dualpca.errors import ModelFileError, expected

DEEPEST = 40
"""Values inside values: kernels of kernels, methods of models of models."""

REPEATS = 16
"""Times that a file may use its arrays, on average, and a megabyte more."""

LONG = 64
"""Floats in a list that is kept as an array, so that headers stay short."""

CSR = ("data", "indices", "indptr")

# --- What annotations allow ----------------------------------------------------------------------


def name_of(cls: type) -> str:
    """Return the name of a class in files: its room and its own.

    Examples
    --------
    >>> from dualpca.kernels import RBF
    >>> name_of(RBF)
    'kernels.RBF'
    """
    return f"{cls.__module__.split('.')[1]}.{cls.__name__}"


def is_record(cls: Any) -> bool:
    """Return True for dataclasses and NamedTuples."""
    return isinstance(cls, type) and (dataclasses.is_dataclass(cls) or hasattr(cls, "_fields"))


@cache
def hints_of(cls: type) -> dict[str, Any]:
    """Return the annotations of a dataclass or NamedTuple by field."""
    hints = get_type_hints(cls, include_extras=True)
    return {name: hints[name] for name in field_names(cls)}


def field_names(cls: type) -> list[str]:
    """Return the fields that a class is made from, in their order."""
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls) if field.init]
    return list(cls._fields)  # type: ignore[attr-defined]


def optional_names(cls: type) -> set[str]:
    """Return the fields with a default: a file may lack them."""
    if not dataclasses.is_dataclass(cls):
        return set(cls._field_defaults)  # type: ignore[attr-defined]
    missing = dataclasses.MISSING
    return {
        f.name
        for f in dataclasses.fields(cls)
        if f.default is not missing or f.default_factory is not missing
    }


def allowed(hint: Any) -> dict[str, type]:
    """Return every type that an annotation allows a file to hold, by its name there."""
    found: dict[str, type] = {}
    _collect(hint, found)
    return found


def _collect(hint: Any, found: dict[str, type]) -> None:
    for cls in _classes(hint):
        for own in (cls, *_below(cls)):
            if is_record(own) and own.__module__.startswith("dualpca."):
                name = name_of(own)
                if name not in found:
                    found[name] = own
                    for part in hints_of(own).values():
                        _collect(part, found)


def _classes(hint: Any) -> Iterator[type]:
    """Yield the classes that an annotation mentions."""
    if isinstance(hint, type) and get_origin(hint) is None:
        yield hint
    for part in get_args(hint):
        yield from _classes(part)


def _below(cls: type) -> Iterator[type]:
    """Yield the subclasses that this library defines, such as all kernels."""
    if cls is object or not cls.__module__.startswith("dualpca."):
        return
    below: list[type] = cls.__subclasses__()
    for sub in below:
        yield sub
        yield from _below(sub)


# --- Whether a value is what its annotation asks for ---------------------------------------------

Sizes = dict[str, int]


def fits(value: Any, hint: Any, sizes: Sizes) -> bool:
    """Return True if a value is what an annotation asks for.

    Examples
    --------
    >>> fits(np.zeros((3, 2)), Annotated[Any, "d q"], {"d": 3}), fits(1.5, int | None, {})
    (True, False)
    """
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:  # an array, or the types that stand for a protocol
        words = args[1]
        return _is_array(value, words, sizes) if type(words) is str else fits(value, words, sizes)
    if origin in (Union, types.UnionType):
        return any(fits(value, one, sizes) for one in args)
    if hint is Any:
        return True
    if hint is None or hint is type(None):
        return value is None
    if hint is float:
        return type(value) in (float, int)
    if hint in (int, bool, str):
        return type(value) is hint
    if origin in (tuple, list, dict):
        return type(value) is origin and _items_fit(value, origin, args, sizes)
    return not isinstance(hint, type) or hint in type(value).__mro__


def _items_fit(value: Any, origin: Any, args: tuple[Any, ...], sizes: Sizes) -> bool:
    if origin is dict:
        return all(type(k) is str and fits(v, args[1], sizes) for k, v in value.items())
    if origin is list or args[1:] == (Ellipsis,):
        return all(fits(item, args[0], dict(sizes)) for item in value)
    same = len(value) == len(args)
    return same and all(fits(item, one, sizes) for item, one in zip(value, args, strict=True))


KINDS = {"": "f", "whole": "iu", "names": "OU", "labels": "OUfiub", "points": "fOU"}


def _is_array(value: Any, words: str, sizes: Sizes) -> bool:
    """Compare an array with its annotation; letters that are new get their meaning."""
    first, *rest = words.split() or [""]
    kind, letters = (first, rest) if first in KINDS else ("", words.split())
    stored = isinstance(value, np.ndarray) or (kind == "points" and backend.is_sparse(value))
    if not stored or value.dtype.kind not in KINDS[kind]:
        return False
    if kind == "points" and value.dtype.kind in "OU":  # items
        letters = letters[:1]
    if value.ndim != len(letters):
        return False
    found = dict(sizes)
    for letter, size in zip(letters, value.shape, strict=True):
        wanted = int(letter) if letter.isdigit() else found.setdefault(letter, int(size))
        if letter != "*" and size != wanted:
            return False
    sizes.update(found)
    return True


def sizes_of(record: Any) -> Sizes:
    """Return what the letters in the annotations of a dataclass stand for."""
    sizes: Sizes = {}
    cls: Any = type(record)
    for name, hint in hints_of(cls).items():
        fits(getattr(record, name), hint, sizes)
    return sizes


def checked(cls: type, found: Mapping[str, Any]) -> Any:
    """Return an object of a class, once its fields are as the annotations ask."""
    name, hints = cls.__name__, hints_of(cls)
    unknown_fields = sorted(set(found) - set(hints))
    missing = sorted(set(hints) - set(found) - optional_names(cls))
    if unknown_fields or missing:
        what = f"the fields {sorted(hints)} of {name}"
        raise ModelFileError(expected("fields in the file", what, sorted(found)))
    sizes: Sizes = {}
    for field, value in found.items():
        if not fits(value, hints[field], sizes):
            what = _told(hints[field])
            raise ModelFileError(expected(f"{field} of {name} in the file", what, _Words(value)))
    try:
        return cls(**found)
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelFileError(f"the file holds an impossible {name}: {str(error)[:300]}") from None


def _told(hint: Any) -> str:
    """Return an annotation in words."""
    if get_origin(hint) is Annotated and type(get_args(hint)[1]) is not str:
        return _told(get_args(hint)[1])
    if get_origin(hint) is Annotated:
        return f"an array ({', '.join(str(get_args(hint)[1]).split())})"
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_told(one) for one in get_args(hint))
    return getattr(hint, "__name__", str(hint)).replace("NoneType", "None")


class _Words:
    """What a value is, for an error: arrays by kind and shape, the rest shortened."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        if not isinstance(self.value, np.ndarray):
            return repr(self.value)[:80]
        kind = {"f": "floats", "i": "integers"}.get(self.value.dtype.kind, str(self.value.dtype))
        return f"{kind} {self.value.shape}"


# --- To JSON -------------------------------------------------------------------------------------


class Encoder:
    """Turn values into JSON; arrays are collected beside, each once however often it is met."""

    def __init__(self) -> None:
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
        if is_record(type(value)):
            return self._record(value, where)
        if isinstance(value, list | tuple | dict):
            return self._collection(value, where)
        return self._table(value, where)

    def _record(self, value: Any, where: str) -> Any:
        cls = type(value)
        if not cls.__module__.startswith("dualpca."):
            raise unsavable(value, where)
        prefix = f"{where}." if where else ""
        names = field_names(cls)
        found = {k: self.encode(getattr(value, k), f"{prefix}{k}") for k in names}
        return {"type": name_of(cls), "fields": found}

    def _collection(self, value: Any, where: str) -> Any:
        if type(value) is dict and all(type(k) is str for k in value):
            return {"dict": {k: self.encode(v, f"{where}.{k}") for k, v in value.items()}}
        if type(value) not in (list, tuple):
            raise unsavable(value, where)
        if len(value) > LONG and all(type(v) is float for v in value):
            found: Any = {"floats": self._array(np.asarray(value), where)}
        else:
            found = [self.encode(v, f"{where}.{i}") for i, v in enumerate(value)]
        return found if type(value) is list else {"tuple": found}

    def _table(self, value: Any, where: str) -> Any:
        if backend.is_sparse(value):
            return {"csr": self._sparse(value, where)}
        if not (isinstance(value, np.ndarray) or backend.is_foreign(value)):
            raise unsavable(value, where)
        if isinstance(value, np.ndarray) and value.dtype.kind in "OU":
            width = {"width": value.dtype.itemsize // 4} if value.dtype.kind == "U" else {}
            return {"names": _names(value, where), **width}
        return self._array(value, where)

    def _sparse(self, value: Any, where: str) -> Any:
        if value.format != "csr":
            raise unsavable(value, where)
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


def _names(value: Any, where: str) -> list[str]:
    if value.ndim != 1 or not all(isinstance(v, str) for v in value):
        raise unsavable(value, where)
    return [str(v) for v in value]


def unsavable(value: Any, where: str) -> ModelFileError:
    """Return the error that says what cannot be saved, and what to do."""
    remedy = "Files hold numbers, text, arrays and the library's own objects."
    if where.endswith("random_state"):
        remedy = "Set it to None or an integer: model.set_params(random_state=0)."
    elif (callable(value) and not hasattr(value, "diag")) or type(value).__name__ == "Function":
        remedy = "A function is code, and files hold none: use a kernel or metric with a name, or "
        remedy += "'precomputed'."
    elif "kernel" in where:
        remedy = "Use a kernel of dualpca.kernels (dualpca.kernels.translate knows scikit-learn's)."
    return ModelFileError(expected(where, "something that can be saved", value, remedy))


# --- From JSON -----------------------------------------------------------------------------------


class Decoder:
    """Turn JSON and arrays back into values; a type that is not known is refused.

    Parameters
    ----------
    known : mapping
        Name in the file to class.
    arrays : mapping
        Name to array.
    """

    def __init__(self, known: Mapping[str, type], arrays: Mapping[str, Any]) -> None:
        self.known, self.arrays = known, arrays
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
            "type": self._record,
            "array": lambda tree, depth: self._array(tree),
            "tuple": lambda tree, depth: self._tuple(tree["tuple"], depth),
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

    def _tuple(self, tree: Any, depth: int) -> tuple[Any, ...]:
        long = isinstance(tree, dict) and set(tree) == {"floats"}
        return tuple(self._floats(tree["floats"]) if long else self.decode(listed(tree), depth))

    def _record(self, tree: Any, depth: int) -> Any:
        name = tree["type"]
        cls = self.known.get(name) if isinstance(name, str) else None
        if cls is None:
            raise ModelFileError(expected("a type in the file", "one that is known", name))
        return checked(cls, self._items(tree.get("fields"), depth))

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
