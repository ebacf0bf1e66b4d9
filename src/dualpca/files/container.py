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
from io import BufferedReader
from typing import Any

import numpy as np

from dualpca.data import Host, reading, replacing
from dualpca.errors import ModelFileError

BEGINNING = b'{"__metadata__":{"sha256":"'
DIGITS = 64
CHECKSUM = slice(len(BEGINNING), len(BEGINNING) + DIGITS)
"""Where the checksum's digits are in the header."""

LONGEST_HEADER = 4 * 2**20
"""Bytes; JSON takes many times its length in memory."""

MOST_BRACKETS = 300_000
"""[ and { in JSON, each of which becomes an object of 60 bytes and more, twice."""

INTEGER_BITS = 128
"""Of integers, which are as long as the seeds of a random generator; NumPy's have 64."""

CHUNK = 2**20

CODES = "F64 F32 I64 I32 I16 I8 U64 U32 U16 U8"
DTYPES = {code: np.dtype(f"<{code[0].lower()}{int(code[1:]) // 8}") for code in CODES.split()}
DTYPES["BOOL"] = np.dtype(bool)
"""Name in the file to dtype, little-endian."""

FOREIGN = {
    b"\x80": "a pickle, which could run anything: dualpca never loads pickles",
    b"PK": "a zip archive",
    b"\x1f\x8b": "compressed with gzip",
    b"\x93NUMPY": "a NumPy array",
}


def write_container(path: str | os.PathLike[str], arrays: Mapping[str, Host], text: str) -> None:
    """Write arrays and a text to one file, whole or not at all.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_container(f"{folder}/a.dpca", {"x": np.arange(3.0)}, "three numbers")
    ...     read_container(f"{folder}/a.dpca")
    ({'x': array([0., 1., 2.])}, 'three numbers')
    """
    names = {dtype: name for name, dtype in DTYPES.items()}
    entries: dict[str, Any] = {"__metadata__": {"sha256": "0" * DIGITS, "dualpca": text}}
    stored, end = [], 0
    for name, array in arrays.items():
        dtype = array.dtype.newbyteorder("<")
        if dtype not in names:
            what = f"files hold {sorted(DTYPES)} only"
            raise ModelFileError(f"{name} has dtype {array.dtype}; {what}.")
        # an array of no axes would get one
        stored.append(np.ascontiguousarray(array, dtype=dtype).reshape(array.shape))
        begin, end = end, end + array.nbytes
        place = {"dtype": names[dtype], "shape": list(array.shape)}
        entries[name] = place | {"data_offsets": [begin, end]}
    header = json.dumps(entries, separators=(",", ":"), allow_nan=False).encode()
    header += b" " * (-len(header) % 8)
    if len(header) > LONGEST_HEADER:
        raise ModelFileError(
            f"parameters and names take {len(header)} bytes, more than the {LONGEST_HEADER} that "
            "a model file may have. Use fewer or shorter feature names, or less metadata."
        )
    length = len(header).to_bytes(8, "little")
    digest = hashlib.sha256(length + header)
    for array in stored:
        digest.update(array.data)
    signed = header[: CHECKSUM.start] + digest.hexdigest().encode() + header[CHECKSUM.stop :]
    with replacing(path) as file:
        file.write(length + signed)
        for array in stored:
            file.write(array.data)


def read_container(path: str | os.PathLike[str]) -> tuple[dict[str, Host], str]:
    """Return the arrays and the text of a file that is as `write_container` wrote it.

    Raises
    ------
    ModelFileError
        If it is anything else. Checked first: kind, lengths, checksum; then dtypes, shapes and
        places of all arrays. Only then are arrays made.
    """
    # without waiting for the other end of a pipe; pipes are refused next
    waiting = getattr(os, "O_NONBLOCK", 0)
    with (
        reading(path),
        open(path, "rb", opener=lambda name, flags: os.open(name, flags | waiting)) as file,
    ):
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise _refusal("it is not a regular file")
        header = _read_header(file, status.st_size)
        _check_digest(file, header)
        entries = parse(header)
        metadata = entries.pop("__metadata__", None) if isinstance(entries, dict) else None
        if not isinstance(metadata, dict) or set(metadata) != {"sha256", "dualpca"}:
            raise _refusal("its metadata are not those of dualpca")
        if not isinstance(metadata["dualpca"], str):
            raise _refusal("its metadata are not text")
        start = 8 + len(header)
        places = _places(entries, status.st_size - start)
        arrays = {name: _array_at(file, start, *place) for name, place in places.items()}
        return arrays, metadata["dualpca"]


def is_model_file(path: str | os.PathLike[str]) -> bool:
    """Return True if a file is meant to be a model: by its ending, or as it begins.

    Examples
    --------
    >>> is_model_file("wine.dpca"), is_model_file("wine.csv")
    (True, False)
    """
    if os.fspath(path).endswith(".dpca"):
        return True
    try:
        with open(path, "rb") as file:
            return file.read(8 + len(BEGINNING))[8:] == BEGINNING
    except OSError:
        return False


def _read_header(file: BufferedReader, size: int) -> bytes:
    """Return the header; its length is checked before it is read."""
    first = file.read(8)
    kinds = (f"it is {what}" for beginning, what in FOREIGN.items() if first.startswith(beginning))
    foreign, length = next(kinds, ""), int.from_bytes(first, "little")
    if len(first) < 8 or not CHECKSUM.stop <= length <= min(LONGEST_HEADER, size - 8):
        text = "it is text, such as a table" if first.isascii() and size >= 8 else ""
        raise _refusal(foreign or text or f"it has {size} bytes and a header of {length}")
    header = file.read(length)
    if len(header) < length or not header.startswith(BEGINNING):
        raise _refusal(foreign or "its header does not begin as one of dualpca's")
    return header


def _check_digest(file: BufferedReader, header: bytes) -> None:
    """Refuse a file that is not as it was written."""
    blank = header[: CHECKSUM.start] + b"0" * DIGITS + header[CHECKSUM.stop :]
    digest = hashlib.sha256(len(header).to_bytes(8, "little") + blank)
    while chunk := file.read(CHUNK):
        digest.update(chunk)
    if digest.hexdigest().encode() != header[CHECKSUM]:
        raise _refusal("its checksum is wrong: it was damaged or cut short")


def parse(text: str | bytes) -> Any:
    """Return what JSON says, strictly: no repeated names or NaN, bounded depth and digits."""
    try:
        text = text if isinstance(text, str) else text.decode()
        if text.count("[") + text.count("{") > MOST_BRACKETS:
            raise ValueError("too many lists")
        return json.loads(
            text,
            object_pairs_hook=_once,
            parse_constant=_finite,
            parse_float=_finite,
            parse_int=_short,
        )
    except (ValueError, RecursionError) as error:
        raise _refusal(f"its JSON cannot be read ({type(error).__name__})") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice")
    return found


def _short(word: str) -> int:
    if len(word) > INTEGER_BITS or abs(int(word)) >> INTEGER_BITS:
        raise ValueError("an integer is too large")
    return int(word)


def _finite(word: str) -> float:
    if not math.isfinite(float(word)):
        raise ValueError("a number is not finite")
    return float(word)


Place = tuple[np.dtype[Any], tuple[int, ...], int, int]


def _places(entries: Mapping[str, Any], size: int) -> dict[str, Place]:
    """Return dtype, shape, beginning and end of every array; together they fill the file."""
    places, reached = {}, 0
    for name, entry in entries.items():
        places[name] = _place(repr(name[:80]), entry)
        begin, end = places[name][2:]
        if begin != reached:
            raise _refusal(f"array {name[:80]!r} does not follow the one before it")
        reached = end
    if reached != size:
        raise _refusal(f"its arrays take {reached} bytes of {size}")
    return places


def _place(name: str, entry: Any) -> Place:
    """Return what the header says of one array, if it is possible."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise _refusal(f"array {name} is not described by dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise _refusal(f"array {name} has dtype {str(dtype)[:20]!r}, not {sorted(DTYPES)}")
    if not (_counts(shape) and len(shape) <= 8 and _counts(offsets) and len(offsets) == 2):
        raise _refusal(f"array {name} has an impossible shape or place")
    kind, (begin, end) = DTYPES[dtype], offsets
    if end - begin != kind.itemsize * math.prod(shape) or max(shape, default=0) > 2**48:
        raise _refusal(f"array {name} of shape {str(tuple(shape))[:80]} does not fit its place")
    return kind, tuple(shape), begin, end


def _counts(values: Any) -> bool:
    """Return True if this is a list of whole numbers from 0."""
    return isinstance(values, list) and all(type(v) is int and v >= 0 for v in values)


def _array_at(
    file: BufferedReader,
    start: int,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    begin: int,
    end: int,
) -> Host:
    """Read one array into memory of its own."""
    array = np.empty(shape, dtype=dtype)
    file.seek(start + begin)
    if file.readinto(array.reshape(-1).view(np.uint8).data) < end - begin:
        raise _refusal("it became shorter while it was read")
    return array.astype(dtype.newbyteorder("="), copy=False)


def _refusal(why: str) -> ModelFileError:
    error = ModelFileError(
        f"this is not a valid dualpca model file: {why}. Expected a file written by a model's "
        "save(path); save the model again, or fetch the file again."
    )
    error.why = why
    return error
