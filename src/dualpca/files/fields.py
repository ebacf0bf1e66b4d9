"""Models as JSON and arrays and back: a walk over fields, checked by their annotations.

What a file holds follows from the annotations of the model: every frozen dataclass and NamedTuple
that they mention may be there, and nothing else. `Annotated[Array, "d q"]` asks for an array of two
axes; a letter means the same size throughout a dataclass, a number itself, `*` any size. A word
before the letters says what the entries are:

    "d q"          floats; "" is a number, or an array of no axes
    "whole d"      integers
    "names d"      strings
    "labels c"     strings or numbers
    "points n d"   numbers, dense or a sparse matrix, or items of another kind

Sizes n, b, f, d, m, K, S and c (rows, features, dimensions of a space, components, states,
classes) are at least 1. What else a value must satisfy stands in a text after that; of numbers,
in their only one:

    Annotated[Array, "K", "> 0, sum 1"]         conditions, all of which hold
    Annotated[Array, "n d", "or nan"]           numbers are finite unless told otherwise
    Annotated[Array, "d d", "diagonal >= 0"]    of a scatter matrix
    Annotated[float, ">= 0, or inf"]
    Sequence[Annotated[float, "> 0"]]           of each of them
    Annotated[int, ">= 1, <= d"]                a letter stands for its size
    Annotated[tuple[Part, ...], "K"]            of length K
    Annotated[Emissions, "K m=d"]               its K is ours, its d is our m
    Annotated[Subspace, "d?"]                   its d is ours, if it has one
    Annotated[Array, "r", "some"]               not empty
    Literal["a", "b"]                           one of these words

Fields of a dataclass that are there together, or of which one must be there, are listed by its
class attributes `_together` (texts of names) and `_one_of` (names).

`Annotated[Protocol, A | B]` names the classes that may stand for a protocol in a file.

JSON is:

    null, true, 1, 1.5, "text", [...]        themselves
    {"float": "nan"}                         what JSON has no word for
    {"tuple": [...]}, {"dict": {...}}
    {"pairs": [[key, value], ...]}           a dictionary with numbers among its keys
    {"array": name}, {"array": name, "order": "F"}   stored by columns: their transpose is there
    {"floats": {"array": name}}              a long list or tuple of floats
    {"names": [...]}                         an array of strings, as objects
    {"names": [...], "width": 3}             the same, of dtype <U3
    {"csr": {...}}                           a sparse matrix
    {"type": name, "fields": {...}}          a dataclass or NamedTuple of this library
    {"estimator": name, "params": {...}, ...}   parameters, and what was learned
    {"function": "module:name"}              a function, by name; whoever reads the file supplies it

Arrays keep their order in memory: products then take the same path and give the same bits.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import operator
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import repeat
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np
from scipy import sparse

from dualpca.arrays import backend
from dualpca.data import Host
from dualpca.errors import ModelFileError, expected

MOST_NESTED_VALUES = 40
"""Depth of values inside values: kernels of kernels, methods of models of models."""

REPEATS = 16
"""Times that a file may use its arrays, on average, and a megabyte more."""

LONG_LIST = 64
"""Floats in a list that is kept as an array, so that headers stay short."""

CSR = ("data", "indices", "indptr")

# --- What annotations allow ----------------------------------------------------------------------


def name_of(cls: type) -> str:
    """Return the name of a class in files: its package within the library and its own name.

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


def _is_own(cls: type) -> bool:
    return cls.__module__.startswith("dualpca.")


@cache
def hints_of(cls: type) -> dict[str, Any]:
    """Return the annotations of the fields that a dataclass or NamedTuple is made from."""
    hints = get_type_hints(cls, include_extras=True)
    return {name: hints[name] for name in inspect.signature(cls).parameters}


def allowed(hint: Any) -> dict[str, type]:
    """Return every type that an annotation allows a file to hold, by its name there.

    Subclasses that this library defines, such as all kernels, are allowed with their base.
    """
    found: dict[str, type] = {}
    waiting, seen = [hint], set()
    while waiting:
        hint = waiting.pop()
        waiting += get_args(hint)
        if not isinstance(hint, type) or hint in seen or not _is_own(hint):
            continue
        seen.add(hint)
        waiting += hint.__subclasses__()
        if is_record(hint):
            found[name_of(hint)] = hint
            waiting += hints_of(hint).values()
    return found


# --- Values against annotations ------------------------------------------------------------------

Sizes = dict[str, int]


def fits(value: object, hint: Any, sizes: Sizes, ranges: bool = True) -> bool:
    """Return True if a value is what an annotation asks for.

    Parameters
    ----------
    value : object
    hint : annotation
    sizes : dict
        Letter to size; letters that are met for the first time are added.
    ranges : bool, default=True
        Compare numbers with the conditions of the annotation, not kinds and sizes only.

    Examples
    --------
    >>> fits(np.zeros((3, 2)), Annotated[Any, "d q"], {"d": 3}), fits(1.5, int | None, {})
    (True, False)
    >>> fits(-1.0, Annotated[float, ">= 0"], {}), fits(float("nan"), float, {})
    (False, False)
    """
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _fits_annotated(value, args, sizes, ranges)
    if origin in (Union, types.UnionType):
        return any(fits(value, one, sizes, ranges) for one in args)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in args)
    if origin is Sequence and isinstance(value, np.ndarray) and _is_of_numbers(args[0]):
        return _is_vector(value, args[0], sizes, ranges)
    if origin in (dict, list, tuple, Sequence):
        parts = _parts(value, origin, args)
        return parts is not None and all(fits(*part, sizes, ranges) for part in parts)
    if hint in (int, float):
        return _is_number(value, hint) and (not ranges or _is_ordinary(value))
    if hint in (bool, str, None):
        return value is None if hint is None else type(value) is hint
    return hint is Any or not isinstance(hint, type) or _is_of(value, hint)


def _is_of(value: object, kind: type) -> bool:
    """Return True for objects of a class, and for those that have what a protocol asks for."""
    if getattr(kind, "_is_protocol", False):
        return not getattr(kind, "_is_runtime_protocol", False) or isinstance(value, kind)
    return kind in type(value).__mro__


def _is_of_numbers(hint: Any) -> bool:
    """Return True for the annotation of a float, with conditions or without."""
    return hint is float or get_args(hint)[:1] == (float,)


def _is_vector(value: Host, hint: Any, sizes: Sizes, ranges: bool) -> bool:
    """Return True for an array of numbers, all at once: a forged file may hold millions."""
    numbers = value.ndim == 1 and value.dtype.kind in "fi"
    return numbers and (not ranges or within(value, "".join(get_args(hint)[1:]), sizes))


def _parts(value: Any, origin: object, args: tuple[Any, ...]) -> list[tuple[Any, Any]] | None:
    """Return what a container holds, with the annotation of each; None if it is another one."""
    if origin is Sequence:
        value = value.tolist() if isinstance(value, np.ndarray) and value.ndim else value
        return [(item, args[0]) for item in value] if type(value) in (list, tuple) else None
    if type(value) is not origin:
        return None
    if origin is dict:
        named = all(type(key) is str for key in value)
        return [(item, args[1]) for item in value.values()] if named else None
    hints = args if origin is tuple and args[1:] != (Ellipsis,) else args[:1] * len(value)
    return list(zip(value, hints, strict=True)) if len(hints) == len(value) else None


def _is_number(value: object, hint: Any) -> bool:
    return type(value) is int or (hint is float and type(value) is float)


def _is_ordinary(number: Any) -> bool:
    """Return what `within` does without conditions; a file may hold many single numbers."""
    return math.isfinite(number) if type(number) is float else abs(number) <= LARGEST_INTEGER


def _fits_annotated(value: object, args: tuple[Any, ...], sizes: Sizes, ranges: bool) -> bool:
    base, words, *more = args
    conditions = "".join(more)
    if type(words) is not str:  # the types that stand for a protocol
        return fits(value, words, sizes, ranges) and _shares(value, conditions, sizes)
    if get_origin(base) is tuple:
        if not isinstance(value, tuple) or not fits(value, base, sizes, ranges):
            return False
        same = _has_size(words, len(value), sizes)
        return same and (not ranges or within(len(value), conditions, sizes))
    if is_record(base) or get_origin(base) in (Union, types.UnionType):
        return fits(value, base, sizes, ranges) and _shares(value, words, sizes)
    if base in (int, float):
        same, conditions = _is_number(value, base), words
    else:
        same = _is_array(value, words, sizes)
    return same and (not ranges or within(value, conditions, sizes))


def _shares(value: object, words: str, sizes: Sizes) -> bool:
    """Compare the sizes of a part with those of the whole."""
    if not words or not is_record(type(value)):
        return True
    own = sizes_of(value)
    for word in words.split():
        ours, _, theirs = word.removesuffix("?").partition("=")
        size = own.get(theirs or ours)
        if size is None and word.endswith("?"):
            continue
        if size is None or not _has_size(ours, size, sizes):
            return False
    return True


ENTRY_KINDS = {"": "f", "whole": "iu", "names": "OU", "labels": "OUfiub", "points": "fOU"}
"""First word of an annotation to the kinds of NumPy's dtypes."""

NEVER_EMPTY = "nbfdmKSc"
"""Letters whose size is at least 1."""


def _is_array(value: Any, words: str, sizes: Sizes) -> bool:
    """Compare an array with its annotation; new letters are added to the sizes."""
    if not words and type(value) in (int, float):
        return True
    first, _, others = words.partition(" ")
    kind, letters = (first, others.split()) if first in ENTRY_KINDS else ("", words.split())
    stored = isinstance(value, np.ndarray) or (kind == "points" and backend.is_sparse(value))
    if not stored or value.dtype.kind not in ENTRY_KINDS[kind]:
        return False
    if kind == "points" and value.dtype.kind in "OU":  # items
        letters = letters[:1]
    found = dict(sizes)
    same = value.ndim == len(letters) and all(map(_has_size, letters, value.shape, repeat(found)))
    sizes.update(found if same else {})
    return same


def _has_size(letter: str, size: int, sizes: Sizes) -> bool:
    """Compare a size with what a letter stands for; a new letter is added."""
    if letter.isdigit():
        return size == int(letter)
    if letter == "*":
        return True
    return size == sizes.setdefault(letter, int(size)) and (size > 0 or letter not in NEVER_EMPTY)


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}

LARGEST_INTEGER = 2**63 - 1
"""Of integers in files that are not seeds: those that arrays can hold."""

SUM_ERROR = 1e-5
"""Of weights that sum to 1, in single precision."""


def within(value: Any, conditions: str, sizes: Sizes) -> bool:
    """Return True if numbers satisfy conditions such as '>= 0, or inf'; arrays of text always do.

    Examples
    --------
    >>> within(np.array([0.5, 0.5]), "> 0, sum 1", {}), within(4, "<= d", {"d": 3})
    (True, False)
    """
    if type(value) is int and abs(value) > LARGEST_INTEGER:
        return False
    asked = _split(conditions)
    numbers = value.data if backend.is_sparse(value) else np.asarray(value)
    if numbers.dtype.kind not in "fiu":
        return True
    if not numbers.size:
        return not {"sum 1", "some"} & set(asked)
    known = numbers[~np.isnan(numbers)] if "or nan" in asked else numbers
    return _may_be_there(numbers, asked) and all(_holds(known, one, sizes) for one in asked)


@cache
def _split(conditions: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in conditions.split(",") if one)


def _may_be_there(numbers: Host, asked: tuple[str, ...]) -> bool:
    """Return True if all numbers are finite, or else NaN or infinity that was asked for."""
    if numbers.dtype.kind != "f" or backend.all_finite(numbers):
        return True
    if "or nan" not in asked and np.isnan(numbers).any():
        return False
    return "or inf" in asked or not np.isinf(numbers).any()


def _holds(numbers: Host, condition: str, sizes: Sizes) -> bool:
    """Return True if one condition holds; one on a letter that is not known holds."""
    if condition == "some" or condition.startswith("or "):
        return True  # these allow numbers, or ask for any
    *diagonal, how, bound = condition.split()
    if how == "sum":  # along the last axis
        sums = np.sum(numbers, axis=-1, dtype=np.float64)
        return bool(np.all(np.abs(sums - float(bound)) <= SUM_ERROR))
    limit = sizes.get(bound) if bound.isalpha() else float(bound)
    if limit is None:
        return True
    return bool(np.all(COMPARISONS[how](np.diagonal(numbers) if diagonal else numbers, limit)))


def sizes_of(record: object) -> Sizes:
    """Return what the letters in the annotations of a dataclass stand for."""
    sizes: Sizes = {}
    cls: type = type(record)
    for name, hint in hints_of(cls).items():
        fits(getattr(record, name), hint, sizes, ranges=False)
    return sizes


def checked(cls: type, found: Mapping[str, Any]) -> Any:
    """Return an object of a class, once its fields are as the annotations ask."""
    name, hints = cls.__name__, hints_of(cls)
    fields = inspect.signature(cls).parameters.values()
    required = {field.name for field in fields if field.default is field.empty}
    if not required <= set(found) <= set(hints):
        what = f"the fields {sorted(hints)} of {name}"
        raise ModelFileError(expected("fields in the file", what, sorted(found)))
    refuse_misfits(cls, found)
    there = {k for k, v in found.items() if v is not None and not (type(v) is tuple and not v)}
    _refuse_parts(cls, there)
    try:
        return cls(**found)
    except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
        words = escaped(str(error), 300)
        raise ModelFileError(f"the file holds an impossible {name}: {words}") from None


def refuse_misfits(cls: Any, found: Mapping[str, Any]) -> None:
    """Refuse fields of a class that are not as its annotations ask, in words."""
    hints, sizes = hints_of(cls), Sizes()
    for _ in range(2):  # once all letters are known, conditions on them are too
        for field, value in found.items():
            if not fits(value, hints[field], sizes):
                what = f"{field} of {cls.__name__} in the file must be {in_words(hints[field])}"
                raise ModelFileError(f"{what}, got {_shown(value)}.")


def _refuse_parts(cls: Any, there: set[str]) -> None:
    """Refuse fields without those that belong to them."""
    for group in getattr(cls, "_together", ()):
        names = set(group.split())
        if names & there and not names <= there:
            what = f"{group.replace(' ', ', ')} of {cls.__name__} in the file"
            raise ModelFileError(f"{what} must be there together, or not at all.")
    choice = getattr(cls, "_one_of", ())
    if choice and not there & set(choice):
        raise ModelFileError(f"{cls.__name__} in the file has none of {', '.join(choice)}.")


def _shown(value: object) -> str:
    """Return a value for an error: kind and shape of an array, and how it is out of range."""
    if not isinstance(value, np.ndarray):
        return escaped(repr(value), 80)
    kinds = {"f": "floats", "i": "integers"}
    shown = f"{kinds.get(value.dtype.kind, str(value.dtype))} {value.shape}"
    if value.dtype.kind not in "fi" or not value.size:
        return shown
    odd = "" if backend.all_finite(value) else ", not all finite"
    return f"{shown}{odd}" if odd else f"{shown} from {value.min():.3g} to {value.max():.3g}"


def escaped(text: str, most: int) -> str:
    r"""Return text for people: of limited length, characters that cannot be seen escaped.

    Those are control characters, those of no width, and those that turn the direction of writing.

    Examples
    --------
    >>> print(escaped("a" * 9, 5), escaped("red" + chr(27), 80))
    aaaa… red\x1b
    """
    return _printable(text if len(text) <= most else text[: most - 1] + "…")


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


WORD = re.compile(r"\S+")


def visible(value: Any) -> Any:
    r"""Return text for pages as `escaped` does, but with all spaces, and at any length.

    Also all text in lists and dictionaries; other values stay as they are.

    Examples
    --------
    >>> print(visible("a" + chr(0x202E) + "b c"), visible({"x": [chr(0x200B), 1.5]}))
    a\u202eb c {'x': ['\\u200b', 1.5]}
    """
    if isinstance(value, str):
        if value.isprintable():
            return value
        return WORD.sub(lambda found: _printable(found[0]), value)
    if isinstance(value, dict):
        return {visible(key): visible(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [visible(one) for one in value]
    return value


def in_words(hint: Any) -> str:
    """Return an annotation in words."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated_in_words(*args)
    if origin in (Union, types.UnionType):
        return " or ".join(in_words(one) for one in args)
    if hint in (int, float):
        return {int: "an integer", float: "a finite number"}[hint]
    if origin is Literal:
        return f"one of {list(args)}"
    return getattr(hint, "__name__", str(hint)).replace("NoneType", "None")


def _annotated_in_words(base: Any, words: Any, *more: str) -> str:
    if type(words) is not str:
        return in_words(words)
    if base in (int, float):
        return f"{'an integer' if base is int else 'a number'} {words}"
    if is_record(base) or get_origin(base):
        return f"{in_words(base)} of the sizes of the rest"
    conditions = f" {more[0]}" if more else ""
    finite = "" if "or " in conditions else "finite "
    return f"an array ({', '.join(words.split())}) of {finite}numbers{conditions}"


# --- To JSON -------------------------------------------------------------------------------------


class EstimatorParts(NamedTuple):
    """An estimator taken apart: the name of its class, its parameters, and what it has learned."""

    name: str
    params: Mapping[str, Any]
    learned: Mapping[str, Any]


class Encoder:
    """Turn values into JSON; arrays are collected beside, each once however often it is met.

    Parameters
    ----------
    functions : bool
        Keep the names of functions; without it they cannot be saved.
    taken_apart : callable
        Returns the parts of an estimator, None for any other value.
    """

    def __init__(
        self, functions: bool, taken_apart: Callable[[object], EstimatorParts | None]
    ) -> None:
        self.arrays: dict[str, Host] = {}
        self.functions, self.taken_apart = functions, taken_apart
        self._seen: dict[int, tuple[Any, dict[str, str]]] = {}

    def encode(self, value: Any, where: str) -> Any:
        """Return a value as JSON; `where` names it in errors and names its arrays."""
        value = value.item() if isinstance(value, np.generic) else value
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return value if np.isfinite(value) else {"float": repr(value)}
        cls: type = type(value)
        if cls is dict:
            return self._dict(value, where)
        if cls is list:
            return self._list(value, where)
        return {"tuple": self._list(value, where)} if cls is tuple else self._other(value, where)

    def _items(self, items: Mapping[Any, Any], prefix: str) -> dict[Any, Any]:
        return {k: self.encode(v, f"{prefix}{k}") for k, v in items.items()}

    def _dict(self, value: dict[Any, Any], where: str) -> Any:
        kinds = set(map(type, value))
        if not kinds <= {str, int}:
            raise unsavable(value, where)
        found = self._items(value, f"{where}.")
        return (
            {"pairs": [list(pair) for pair in found.items()]} if int in kinds else {"dict": found}
        )

    def _list(self, value: Sequence[Any], where: str) -> Any:
        if len(value) > LONG_LIST and all(type(v) is float for v in value):
            return {"floats": self._array(np.asarray(value), where)}
        return [self.encode(v, f"{where}.{i}") for i, v in enumerate(value)]

    def _other(self, value: Any, where: str) -> Any:
        """Return an estimator, an object of ours, an array or a function as JSON."""
        prefix, whole = f"{where}." if where else "", self.taken_apart(value)
        if whole is not None:
            params, learned = self._items(whole.params, prefix), self._items(whole.learned, prefix)
            return {"estimator": whole.name, "params": params, **learned}
        cls: type = type(value)
        if is_record(cls) and _is_own(cls):
            kept = not_default(cls, {k: getattr(value, k) for k in hints_of(cls)})
            refuse_misfits(cls, {k: v for k, v in map(_as_number, kept.items()) if v is not None})
            return {"type": name_of(cls), "fields": self._items(kept, prefix)}
        if isinstance(value, np.ndarray) and value.dtype.kind in "OU":
            return _names_of(value, where)
        if isinstance(value, np.ndarray) or backend.is_foreign(value):
            return self._array(value, where)
        if self.functions and function_name(value):
            return {"function": function_name(value)}
        if not backend.is_sparse(value) or value.format != "csr":
            raise unsavable(value, where)
        parts = {k: self._array(getattr(value, k), f"{where}.{k}") for k in CSR}
        kind = "matrix" if isinstance(value, sparse.spmatrix) else "array"
        return {"csr": {"shape": list(value.shape), "kind": kind, **parts}}

    def _array(self, value: Any, where: str) -> dict[str, str]:
        """Return the name under which an array is kept; an array met again shares it."""
        if id(value) not in self._seen:
            host = np.asarray(backend.to_numpy(value))
            by_columns = host.flags.f_contiguous and not host.flags.c_contiguous
            self.arrays[where] = host.T if by_columns else host
            found = {"array": where} | ({"order": "F"} if by_columns else {})
            self._seen[id(value)] = (value, found)  # held, so that its id is not used again
        return self._seen[id(value)][1]


def _as_number(item: tuple[str, Any]) -> tuple[str, int | float | None]:
    """Return a field with its value as one of Python's numbers; None if it is none."""
    name, value = item
    value = value.item() if isinstance(value, np.generic) else value
    return name, value if type(value) in (int, float) else None


def _names_of(value: Host, where: str) -> dict[str, Any]:
    if value.ndim != 1 or not all(isinstance(v, str) for v in value):
        raise unsavable(value, where)
    width = {"width": value.dtype.itemsize // 4} if value.dtype.kind == "U" else {}
    return {"names": [str(v) for v in value], **width}


def not_default(cls: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that differ from the defaults of a class: files hold no others.

    So a file can be read by a version that has no such field or parameter yet.

    Examples
    --------
    >>> from dualpca import PPCA
    >>> not_default(PPCA, PPCA(2).get_params())
    {'n_components': 2}
    """
    defaults = {k: one.default for k, one in inspect.signature(cls).parameters.items()}

    def differs(name: str, value: Any) -> bool:
        default = defaults.get(name, inspect.Parameter.empty)
        plain = value is None or type(value) in (bool, int, float, str)
        plain = plain or (type(value) is tuple and not value)
        return not (plain and type(value) is type(default) and value == default)

    return {name: value for name, value in values.items() if differs(name, value)}


def function_name(value: Any) -> str:
    """Return 'module:name' of a function that can be imported by it; empty for anything else.

    Examples
    --------
    >>> function_name(np.dot), function_name(lambda x: x)
    ('numpy:dot', '')
    """
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    plain = callable(value) and not isinstance(value, type) and "<" not in name
    return f"{module}:{name}" if plain and module and name else ""


def unsavable(value: Any, where: str) -> ModelFileError:
    """Return the error that names what cannot be saved, and what to do."""
    remedy = "Files hold numbers, text, arrays and the library's own objects."
    if where.endswith("random_state"):
        remedy = "Set it to None or an integer: model.set_params(random_state=0)."
    elif (callable(value) and not hasattr(value, "diag")) or type(value).__name__ == "Function":
        remedy = "A function is code, and files hold none: use a kernel or metric with a name, "
        remedy += "'precomputed', or save(..., functions=True), which keeps the name of a function "
        remedy += "that is defined in a module."
    elif "kernel" in where:
        remedy = "Use a kernel of dualpca.kernels (dualpca.kernels.translate knows scikit-learn's)."
    return ModelFileError(expected(where, "something that can be saved", value, remedy))


# --- From JSON -----------------------------------------------------------------------------------


class Decoder:
    """Turn JSON and arrays back into values; a type that is not known is refused.

    Parameters
    ----------
    arrays : mapping
        Name to array.
    functions : sequence of callables
        Those that values may consist of.
    made : callable
        Returns the estimator that a tree describes, given this, the tree and its depth.
    """

    def __init__(
        self,
        arrays: Mapping[str, Host],
        functions: Iterable[Callable[..., Any]],
        made: Callable[[Decoder, dict[str, Any], int], object],
    ) -> None:
        self.made = made
        self.known: Mapping[str, type] = {}
        self.arrays = arrays
        self.functions = {function_name(one): one for one in functions}
        self._made: dict[str, Any] = {}
        self._left = REPEATS * sum(array.nbytes for array in arrays.values()) + 2**20

    @property
    def unused(self) -> set[str]:
        """Arrays that no value so far consists of."""
        return set(self.arrays) - set(self._made)

    def decode(self, tree: Any, depth: int = 0) -> Any:
        """Return the value that the tree describes."""
        if depth > MOST_NESTED_VALUES:
            what = f"the file nests values more than {MOST_NESTED_VALUES} deep"
            raise ModelFileError(f"{what}: refused.")
        if isinstance(tree, list):
            return [self.decode(part, depth + 1) for part in tree]
        return self._object(tree, depth + 1) if isinstance(tree, dict) else tree

    def items(self, known: Mapping[str, type], tree: Any, depth: int) -> dict[str, Any]:
        """Decode a dictionary in which these types may be."""
        before, self.known = self.known, known
        try:
            return self._dict(tree, depth)
        finally:
            self.known = before

    def _object(self, tree: dict[str, Any], depth: int) -> Any:
        if "estimator" in tree:
            return self.made(self, tree, depth)
        if "type" in tree:
            return self._record(tree, depth)
        if "array" in tree:
            return self._array(tree)
        if "names" in tree:
            return self._names(tree["names"], tree.get("width"))
        makers: dict[str, Callable[[Any, int], Any]] = {
            "tuple": self._tuple,
            "dict": self._dict,
            "pairs": self._pairs,
            "float": self._float,
            "floats": self._floats,
            "csr": self._sparse,
            "function": self._function,
        }
        for key, make in makers.items():
            if key in tree:
                return make(tree[key], depth)
        raise ModelFileError(expected("a value in the file", "of a known kind", sorted(tree)))

    def _record(self, tree: dict[str, Any], depth: int) -> Any:
        name = tree["type"]
        cls = self.known.get(name) if isinstance(name, str) else None
        if cls is None:
            raise ModelFileError(expected("a type in the file", "one that is known", name))
        return checked(cls, self._dict(tree.get("fields"), depth))

    def _dict(self, tree: Any, depth: int) -> dict[str, Any]:
        if not isinstance(tree, dict):
            raise ModelFileError(expected("a dictionary in the file", "a JSON object", tree))
        return {k: self.decode(v, depth) for k, v in tree.items()}

    def _tuple(self, tree: Any, depth: int) -> tuple[Any, ...]:
        if isinstance(tree, dict) and set(tree) == {"floats"}:
            return tuple(self._floats(tree["floats"]))
        return tuple(self.decode(_listed(tree), depth))

    def _pairs(self, tree: Any, depth: int) -> dict[str | int, Any]:
        pairs = [_listed(pair) for pair in _listed(tree)]
        if not all(len(pair) == 2 and type(pair[0]) in (str, int) for pair in pairs):
            raise ModelFileError(expected("pairs in the file", "of a key and a value", tree))
        return {key: self.decode(value, depth) for key, value in pairs}

    def _float(self, word: object, depth: int) -> float:
        if word not in ("nan", "inf", "-inf"):
            raise ModelFileError(expected("a float in the file", "'nan', 'inf' or '-inf'", word))
        return float(str(word))

    def _function(self, name: object, depth: int) -> Any:
        if not isinstance(name, str) or name not in self.functions:
            what = f"the model needs the function {str(name)[:80]!r}, and files hold no code"
            raise ModelFileError(f"{what}: import it and give load(..., functions=[it]).")
        return self.functions[name]

    def _array(self, tree: Any) -> Any:
        key, order = tree.get("array"), tree.get("order")
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

    def _floats(self, tree: Any, depth: int = 0) -> list[float]:
        found = self._array(tree) if isinstance(tree, dict) and "array" in tree else None
        if found is None or found.ndim != 1 or found.dtype != np.float64:
            raise ModelFileError(expected("floats in the file", "an array of float64", tree))
        return list(found.tolist())

    def _names(self, tree: object, width: object) -> Host:
        """Return an array of strings: of objects, as feature names are kept, or of a dtype <U."""
        names = _listed(tree)
        if not all(isinstance(name, str) for name in names):
            raise ModelFileError(expected("names in the file", "strings", tree))
        if width is None:
            return np.asarray(names, dtype=object)
        if type(width) is not int or width < max(map(len, names), default=0):
            raise ModelFileError(expected("the width of names", "that of the longest", width))
        self._spend(4 * width * max(1, len(names)))
        return np.asarray(names, dtype=f"<U{width}")

    def _sparse(self, tree: Any, depth: int) -> Any:
        if not isinstance(tree, dict) or set(tree) != {"shape", "kind", *CSR}:
            raise ModelFileError(expected("a sparse matrix", "data, indices and indptr", tree))
        make: Any = sparse.csr_matrix if tree["kind"] == "matrix" else sparse.csr_array
        parts = tuple(self._array(tree[k]) if isinstance(tree[k], dict) else None for k in CSR)
        try:
            return _checked_sparse(make, parts, tuple(_listed(tree["shape"])))
        except (ValueError, TypeError, IndexError, OverflowError) as error:
            raise ModelFileError(f"the file holds an impossible sparse matrix: {error}") from None


def _checked_sparse(make: Any, parts: tuple[Any, ...], shape: tuple[Any, ...]) -> Any:
    """Return a sparse matrix whose rows are where they should be."""
    ends = parts[2]  # SciPy does not look at the rest where the last end is not positive
    rising = ends is not None and ends.ndim == 1 and ends.size and ends.dtype.kind == "i"
    if not rising or ends[0] != 0 or np.any(np.diff(ends) < 0):
        raise ValueError("rows end too early.")
    found = make(parts, shape=shape)
    if not len(found.data) == len(found.indices) == ends[-1]:
        raise ValueError("indices and data differ in number")
    found.check_format(full_check=True)
    return found


def _listed(tree: object) -> list[Any]:
    """Return a JSON list."""
    if not isinstance(tree, list):
        raise ModelFileError(expected("a sequence in the file", "a JSON list", tree))
    return tree
