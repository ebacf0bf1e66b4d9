"""One file of arrays and a text: the safetensors layout, with a checksum of all of it.

    8 bytes   length of the header, little-endian
    header    JSON: `__metadata__` (strings), then dtype, shape and place of every array; spaces
    arrays    one after another, row by row, little-endian, without gaps

This is the published layout, so the safetensors library can open these files. Ours are stricter:
the header begins with `BEGINNING` and 64 hexadecimal digits, the SHA-256 of the whole file with
zeros in their place, and lists the arrays in the order in which they lie. Arrays take no more
memory than the file is long, whatever its header says, and nothing in it is ever run.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from dualpca.data import replacing
from dualpca.errors import ModelFileError

Host = np.ndarray[Any, Any]

BEGINNING = b'{"__metadata__":{"sha256":"'
DIGITS = 64
START = 8 + len(BEGINNING)
"""Where the checksum's digits are."""

LONGEST_HEADER = 4 * 2**20
"""Bytes; JSON takes many times its length in memory."""

MOST_BRACKETS = 300_000
"""[ and { in JSON, each of which becomes an object of 60 bytes and more, twice."""

CHUNK = 2**20

DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
    "BOOL": "|b1",
}
NAMES = {np.dtype(code): name for name, code in DTYPES.items()}

FOREIGN = {
    b"\x80": "a pickle, which could run anything: dualpca never loads pickles",
    b"PK": "a zip archive",
    b"\x1f\x8b": "compressed with gzip",
    b"\x93NUMPY": "a NumPy array",
}


def write(path: str | os.PathLike[str], arrays: Mapping[str, Host], text: str) -> None:
    """Write arrays and a text to one file, whole or not at all.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(f"{folder}/a.dpca", {"x": np.arange(3.0)}, "three numbers")
    ...     read(f"{folder}/a.dpca")
    ({'x': array([0., 1., 2.])}, 'three numbers')
    """
    stored = {name: _stored(name, array) for name, array in arrays.items()}
    header = _header(stored, text)
    digest = hashlib.sha256(header)
    for array in stored.values():
        digest.update(array.data)
    signed = header[:START] + digest.hexdigest().encode() + header[START + DIGITS :]
    with replacing(path) as file:
        file.write(signed)
        for array in stored.values():
            file.write(array.data)


def _stored(name: str, array: Host) -> Host:
    """Return an array as it lies in the file: little-endian, row by row, at least one axis."""
    little = array.dtype.newbyteorder("<")
    if little not in NAMES:
        raise ModelFileError(f"{name} has dtype {array.dtype}; files hold {sorted(DTYPES)} only.")
    return np.ascontiguousarray(array, dtype=little).reshape(array.shape)


def _header(stored: Mapping[str, Host], text: str) -> bytes:
    """Return length and header, with zeros for the checksum."""
    entries: dict[str, Any] = {"__metadata__": {"sha256": "0" * DIGITS, "dualpca": text}}
    end = 0
    for name, array in stored.items():
        begin, end = end, end + array.nbytes
        place = {"dtype": NAMES[array.dtype], "shape": list(array.shape)}
        entries[name] = place | {"data_offsets": [begin, end]}
    words = json.dumps(entries, separators=(",", ":"), allow_nan=False).encode()
    words += b" " * (-len(words) % 8)
    if len(words) > LONGEST_HEADER:
        raise ModelFileError(
            f"parameters and names take {len(words)} bytes, more than the {LONGEST_HEADER} that a "
            "model file may have. Use fewer or shorter feature names, or less metadata."
        )
    return len(words).to_bytes(8, "little") + words


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Host], str]:
    """Return the arrays and the text of a file that `write` made and nothing has changed since.

    Raises
    ------
    ModelFileError
        If it is anything else. Checked first: kind, lengths, checksum; then dtypes, shapes and
        places of all arrays. Only then are arrays made.
    """
    with open(path, "rb", opener=_without_waiting) as file:
        size = _size(file)
        header = _read_header(file, size)
        _check_digest(file, header)
        entries = _entries(header)
        text = entries.pop("__metadata__")["dualpca"]
        places = _places(entries, size - 8 - len(header))
        return {name: _array_at(file, len(header), *place) for name, place in places.items()}, text


def _without_waiting(path: str, flags: int) -> int:
    """Open without waiting for the other end of a pipe; pipes are refused afterwards."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _size(file: BinaryIO) -> int:
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise _refusal("it is not a regular file")
    return status.st_size


def _read_header(file: BinaryIO, size: int) -> bytes:
    """Return the header; its length is checked before it is read."""
    first = file.read(8)
    length = int.from_bytes(first, "little")
    if len(first) < 8 or not len(BEGINNING) + DIGITS <= length <= min(LONGEST_HEADER, size - 8):
        raise _refusal(_foreign(first) or f"it has {size} bytes and a header of {length}")
    header = file.read(length)
    if len(header) < length or not header.startswith(BEGINNING):
        raise _refusal(_foreign(first) or "its header does not begin as one of dualpca's")
    return header


def _foreign(first: bytes) -> str:
    """Say what else a file is, where its first bytes tell."""
    kinds = (f"it is {what}" for beginning, what in FOREIGN.items() if first.startswith(beginning))
    return next(kinds, "")


def _check_digest(file: BinaryIO, header: bytes) -> None:
    """Refuse a file that is not as it was written."""
    place = slice(len(BEGINNING), len(BEGINNING) + DIGITS)
    said = header[place]
    blank = header[: place.start] + b"0" * DIGITS + header[place.stop :]
    digest = hashlib.sha256(len(header).to_bytes(8, "little") + blank)
    while chunk := file.read(CHUNK):
        digest.update(chunk)
    if digest.hexdigest().encode() != said:
        raise _refusal("its checksum is wrong: it was damaged or cut short")


def parse(text: str | bytes) -> Any:
    """Return what JSON says, strictly: no repeated names, no NaN, UTF-8, no endless depth."""
    try:
        text = text if isinstance(text, str) else text.decode()
        if text.count("[") + text.count("{") > MOST_BRACKETS:
            raise ValueError("too many lists")
        return json.loads(
            text, object_pairs_hook=_once, parse_constant=_no_constant, parse_float=_finite
        )
    except (ValueError, RecursionError) as error:
        raise _refusal(f"its JSON cannot be read ({type(error).__name__})") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice")
    return found


def _finite(word: str) -> float:
    if not math.isfinite(float(word)):
        raise ValueError("a number is too large")
    return float(word)


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _entries(header: bytes) -> dict[str, Any]:
    entries = parse(header)
    metadata = entries.get("__metadata__") if isinstance(entries, dict) else None
    if not isinstance(metadata, dict) or set(metadata) != {"sha256", "dualpca"}:
        raise _refusal("its metadata are not those of dualpca")
    if not isinstance(metadata["dualpca"], str):
        raise _refusal("its metadata are not text")
    return dict(entries)


Place = tuple[np.dtype[Any], tuple[int, ...], int, int]


def _places(entries: Mapping[str, Any], size: int) -> dict[str, Place]:
    """Return dtype, shape, beginning and end of every array; together they fill the file."""
    places = {name: _place(name, entry) for name, entry in entries.items()}
    reached = 0
    for name, (_, _, begin, end) in places.items():
        if begin != reached:
            raise _refusal(f"array {name[:80]!r} does not follow the one before it")
        reached = end
    if reached != size:
        raise _refusal(f"its arrays take {reached} bytes of {size}")
    return places


def _place(name: str, entry: Any) -> Place:
    """Return what the header says of one array, if it is possible."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise _refusal(f"array {name[:80]!r} is not described by dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise _refusal(f"array {name[:80]!r} has dtype {str(dtype)[:20]!r}, not {sorted(DTYPES)}")
    if not (_counts(shape) and len(shape) <= 8 and _counts(offsets) and len(offsets) == 2):
        raise _refusal(f"array {name[:80]!r} has an impossible shape or place")
    kind, (begin, end) = np.dtype(DTYPES[dtype]), offsets
    if end - begin != kind.itemsize * math.prod(shape) or max(shape, default=0) > 2**48:
        raise _refusal(
            f"array {name[:80]!r} of shape {str(tuple(shape))[:80]} does not fit its place"
        )
    return kind, tuple(shape), begin, end


def _counts(values: Any) -> bool:
    """Return True if this is a list of whole numbers from 0."""
    return isinstance(values, list) and all(type(v) is int and v >= 0 for v in values)


def _array_at(
    file: BinaryIO, length: int, dtype: np.dtype[Any], shape: tuple[int, ...], begin: int, end: int
) -> Host:
    """Read one array into memory of its own."""
    array = np.empty(shape, dtype=dtype)
    file.seek(8 + length + begin)
    flat = array.reshape(-1).view(np.uint8).data
    done = 0
    while done < end - begin:
        step = file.readinto(flat[done:])  # type: ignore[attr-defined]
        if not step:
            raise _refusal("it became shorter while it was read")
        done += step
    return array.astype(dtype.newbyteorder("="), copy=False)


def _refusal(why: str) -> ModelFileError:
    error = ModelFileError(
        f"this is no model file that can be trusted: {why}. Expected a file written by a model's "
        "save(path); save the model again, or fetch the file anew."
    )
    error.why = why
    return error
