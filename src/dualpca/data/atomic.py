"""Writing a file whole or not at all."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from stat import S_IMODE
from typing import Any, BinaryIO


def target_of(path: str | os.PathLike[str]) -> Path:
    """Return where a file will be written, or say why it cannot be.

    Links are followed, and only a regular file is ever replaced.

    Raises
    ------
    OSError
        If the folder does not exist, or something that is not a file has the name.
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder of {path} does not exist: create it first.")
    if target.is_symlink():  # what is left of a link that leads to itself
        raise FileExistsError(f"{path} is a link in a circle: give another name.")
    if target.exists() and not target.is_file():
        raise FileExistsError(f"{path} is not a file: give another name.")
    return target


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` once the block ends without an error.

    It is in the same folder and reaches the disk before it gets the name in one step: whatever
    interrupts the block, an old file stays as it was and nothing new is left. If several processes
    write at once, the last one wins. Permissions of an old file are kept.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "a.txt")) as file:
    ...         _ = file.write(b"all of it")
    ...     os.listdir(folder)
    ['a.txt']
    """
    target = target_of(path)
    part = target.with_name(f".dualpca-{token_hex(8)}.part")
    nameless = _nameless(target)
    try:
        descriptor = _created(part, target) if nameless is None else nameless
        with Part.opened(descriptor, target) as file:
            with suppress(OSError, AttributeError):  # no old file, or a system without modes
                os.fchmod(descriptor, S_IMODE(os.stat(target).st_mode))
            yield file
            file.flush()
            with _naming(target):
                os.fsync(descriptor)
                if nameless is not None:
                    _name(nameless, part)
        with _naming(target):
            os.replace(part, target)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    sync_folder(target)


def sync_folder(target: Path) -> None:
    """Have the name of a file on the disk too, where the system can do that.

    Examples
    --------
    >>> sync_folder(Path("a.txt"))
    """
    with suppress(OSError), _folder(target) as folder:
        os.fsync(folder)


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name the file where the system fails to read it, which it does not do by itself.

    Examples
    --------
    >>> with reading("a.txt"):
    ...     raise OSError(5, "Input/output error")
    Traceback (most recent call last):
        ...
    OSError: [Errno 5] cannot be read: Input/output error: 'a.txt'
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        why = f"cannot be read: {error.strerror}"
        raise OSError(error.errno, why, os.fspath(path)) from None


class Part(io.FileIO):
    """The temporary file; where it cannot be written, errors name the file that was asked for."""

    def __init__(self, descriptor: int, target: Path) -> None:
        self.target = target
        super().__init__(descriptor, "w+b")

    @classmethod
    def opened(cls, descriptor: int, target: Path) -> io.BufferedRandom:
        """Return the file behind a buffer; the descriptor is closed if there is no memory."""
        try:
            raw = cls(descriptor, target)
        except BaseException:
            os.close(descriptor)
            raise
        return io.BufferedRandom(raw)

    def write(self, data: Any) -> int:
        """Write as much as the system takes at once."""
        with _naming(self.target):
            return super().write(data)

    def truncate(self, size: int | None = None) -> int:
        """Make the file as long as this."""
        with _naming(self.target):
            return super().truncate(size)


@contextmanager
def _naming(target: Path) -> Iterator[None]:
    """Raise errors about a temporary file as errors about the file that was asked for."""
    try:
        yield
    except OSError as error:
        why = f"cannot write here: {error.strerror}"
        raise OSError(error.errno, why, str(target)) from None


def _name(nameless: int, part: Path) -> None:
    """Give a file its first name; asked with a folder, Python lets links be followed."""
    with _folder(part) as folder:
        source = f"/proc/self/fd/{nameless}"
        os.link(source, part.name, dst_dir_fd=folder, follow_symlinks=True)


@contextmanager
def _folder(target: Path) -> Iterator[int]:
    """Open the folder of a file."""
    descriptor = os.open(target.parent, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _nameless(target: Path) -> int | None:
    """Open a file without a name in the folder of another; None where that is not possible.

    It is gone with the process, even with one that is killed. Linux has them on most file systems.
    """
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir("/proc/self/fd"):
        return None
    with suppress(OSError):
        return os.open(target.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666)
    return None


def _created(part: Path, target: Path) -> int:
    """Create a file that was not there, not even as a link, and return its descriptor."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    with _naming(target):
        return os.open(part, flags, 0o666)
