"""Writing a file whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from stat import S_IMODE
from typing import BinaryIO


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
        with open(_created(part, target) if nameless is None else nameless, "w+b") as file:
            with suppress(OSError, AttributeError):  # no old file, or a system without modes
                os.fchmod(file.fileno(), S_IMODE(os.stat(target).st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
            if nameless is not None:
                with _folder(target) as folder:  # with it, Python asks for links to be followed
                    source = f"/proc/self/fd/{nameless}"
                    os.link(source, part.name, dst_dir_fd=folder, follow_symlinks=True)
        os.replace(part, target)
    except BaseException as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(error, OSError) and str(error.filename).endswith(part.name):
            raise _named(error, target) from None
        raise
    with suppress(OSError), _folder(target) as folder:  # have the new name on the disk too
        os.fsync(folder)


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
    try:
        return os.open(part, flags, 0o666)
    except OSError as error:
        raise _named(error, target) from None


def _named(error: OSError, target: Path) -> OSError:
    """Return an error about a temporary file as one about the file that was asked for."""
    return OSError(error.errno, f"cannot write here: {error.strerror}", str(target))
