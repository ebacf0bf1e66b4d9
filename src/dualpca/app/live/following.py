"""Lines that are appended to a file, or come through a pipe, as they come.

A file is followed over restarts of the program: a `Place` says which bytes were read, and how to
recognise them. It may be truncated, written anew, or renamed while another begins under its name.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

from dualpca.app.tables.text import TableError

CHUNK = 1 << 16
"""Bytes that are read at once; more where a line is longer."""
LONGEST_LINE = 1 << 24
MARK = 256
"""Bytes before a place by which a file is recognised."""


class Piece(NamedTuple):
    """Some complete lines."""

    lines: list[bytes]  # without their ends
    first: int  # number of the first one, counted from 1
    fresh: bool = False  # it is the first line of another file, or of one that was written anew


class Place(NamedTuple):
    """How far a file was read: bytes and lines, and what it was recognised by."""

    offset: int = 0
    line: int = 0
    device: int = -1
    inode: int = -1
    mark: str = ""  # the last bytes before the offset, as hexadecimal digits


Tell = Callable[[str], None]


class FileTail:
    """Follows one file from a place on.

    Parameters
    ----------
    path : str
    tell : callable
        Is told in words what happened to the file.
    place : Place, optional
        Where an earlier program stopped.
    """

    def __init__(self, path: str, tell: Tell, place: Place | None = None) -> None:
        self.path, self.tell = path, tell
        self.ended = False  # a file may always go on
        self._offset = self._line = 0
        self._mark = b""
        self._fresh = False
        self._chunk = CHUNK
        self._file: FileIO | None = None
        try:
            self._open(Path(path))
        except OSError as error:
            raise TableError(f"{path} cannot be read: {error.strerror or error}.") from error
        if place is not None:
            self._resume(place)

    def _open(self, path: Path) -> None:
        if path.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        found = open(path, "rb", buffering=0)
        self.close()
        self._file = found

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _resume(self, place: Place) -> None:
        """Go on at a place of this file, or of one that has been renamed since."""
        self._offset, self._line = place.offset, place.line
        self._mark = bytes.fromhex(place.mark)
        if self._read(0) is not None:
            return
        if self._identity() != (place.device, place.inode) and self._find_renamed(place):
            self.tell(f"{self.path} was renamed since: what it still had is read first.")
            return
        self.tell(f"{self.path} is not the file that was read before: it is read from its start.")
        self._begin()

    def _find_renamed(self, place: Place) -> bool:
        """Open the file of a place under its new name in the same folder, if it is there."""
        for other in Path(self.path).absolute().parent.iterdir():
            try:
                info = other.stat()
                if (info.st_dev, info.st_ino) != (place.device, place.inode):
                    continue
                self._open(other)
            except OSError:
                continue
            if self._read(0) is not None:
                return True
        self._open(Path(self.path))
        return False

    def _begin(self) -> None:
        self._offset = self._line = 0
        self._mark, self._fresh = b"", True

    def _identity(self) -> tuple[int, int]:
        assert self._file is not None
        info = os.fstat(self._file.fileno())
        return info.st_dev, info.st_ino

    def place(self) -> Place:
        """Return how far lines were given out."""
        return Place(self._offset, self._line, *self._identity(), self._mark.hex())

    def read(self, wait: float = 0.0) -> Piece | None:
        """Return the next complete lines; None if there are none after so many seconds."""
        found = self._next()
        if found is None and wait:
            time.sleep(wait)
        return found

    def rest(self) -> int:
        """Return how many bytes of an unfinished line wait for their end."""
        return len(self._read(self._chunk) or b"")

    def _read(self, size: int) -> bytes | None:
        """Return the next bytes; None if those before them are not the ones that were read."""
        assert self._file is not None
        self._file.seek(self._offset - len(self._mark))
        found = self._file.read(len(self._mark) + size)
        if not found.startswith(self._mark):
            return None
        return found[len(self._mark) :]

    def _next(self) -> Piece | None:
        data = self._read(self._chunk)
        if data is None:
            self.tell(f"{self.path} was truncated or written anew: it is read from its start.")
            self._begin()
            data = self._read(self._chunk) or b""
        end = data.rfind(b"\n") + 1
        if end:
            self._chunk = CHUNK
            return self._given(data[:end])
        if len(data) < self._chunk:
            return self._replaced(data)
        self._chunk *= 2
        if self._chunk > LONGEST_LINE:
            raise TableError(f"{self.path} has no line ends: expected one row per line.")
        return self._next()

    def _replaced(self, data: bytes) -> Piece | None:
        """Go over to the file that has the name now, if it is another; return the last line."""
        before = self._file
        try:
            info = os.stat(self.path)
            if (info.st_dev, info.st_ino) == self._identity():
                return None
            self._open(Path(self.path))
        except OSError:  # between two files: wait for the next
            self._file = before
            return None
        if self._offset and self._read(0) is not None:  # the same rows, and more of them
            return None
        self.tell(f"{self.path} is another file now: it is read from its start.")
        last = Piece([data], self._line + 1) if data else None
        self._begin()
        return last

    def _given(self, data: bytes) -> Piece:
        """Give out complete lines, and count them."""
        found = Piece(data[:-1].split(b"\n"), self._line + 1, self._fresh)
        self._line += len(found.lines)
        self._offset += len(data)
        self._mark = (self._mark + data[-MARK:])[-MARK:]
        self._fresh = False
        return found


class StreamTail:
    """Reads what comes through a pipe; a thread of its own waits for it."""

    def __init__(self, stream: Any) -> None:
        self.ended = False
        self._line = 0
        self._rest = b""
        self._found: queue.Queue[bytes] = queue.Queue(maxsize=16)
        self._thread = threading.Thread(target=self._wait, args=(stream.fileno(),), daemon=True)
        self._thread.start()

    def _wait(self, descriptor: int) -> None:
        while True:
            try:
                data = os.read(descriptor, CHUNK)
            except OSError:
                data = b""
            self._found.put(data)
            if not data:
                return

    def close(self) -> None:
        """Leave the pipe as it is."""

    def place(self) -> Place:
        """Return how many lines were given out: a pipe cannot be read again."""
        return Place(line=self._line)

    def rest(self) -> int:
        """Return how many bytes of an unfinished line wait for their end."""
        return len(self._rest)

    def read(self, wait: float = 0.0) -> Piece | None:
        """Return the next complete lines; None if there are none after so many seconds."""
        try:
            data = self._found.get(timeout=wait) if wait else self._found.get_nowait()
        except queue.Empty:
            return None
        self.ended = not data
        whole = self._rest + data
        end = len(whole) if self.ended else whole.rfind(b"\n") + 1
        self._rest = whole[end:]
        if len(self._rest) > LONGEST_LINE:
            raise TableError("standard input has no line ends: expected one row per line.")
        if not end:
            return None
        lines = whole[:end].removesuffix(b"\n").split(b"\n")
        first = self._line + 1
        self._line += len(lines)
        return Piece(lines, first)
