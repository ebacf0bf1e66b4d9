"""Writing a file whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import get_ident
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
    if target.exists() and not target.is_file():
        raise FileExistsError(f"{path} is not a file: give another name.")
    return target


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file that takes the place of `path` once the block ends well.

    It lies in the same folder and reaches the disk before it takes the name in one step: whatever
    interrupts the block, an old file stays as it was and nothing new is left.

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
    part = target.with_name(f".{target.name}.{os.getpid()}-{get_ident()}.part")
    nameless = _nameless(target.parent)
    try:
        with open(part if nameless is None else nameless, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if nameless is not None:
                _name(nameless, part)
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _settle(target.parent)


def _nameless(folder: Path) -> int | None:
    """Open a file without a name, gone with the process even if that is killed; None if it cannot.

    Linux has such files, on most file systems. The permissions are those of any new file.
    """
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir("/proc/self/fd"):
        return None
    with suppress(OSError):
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o666)
    return None


def _name(descriptor: int, path: Path) -> None:
    """Give a file without a name one."""
    path.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:  # only with a folder's descriptor does Python ask for links to be followed
        os.link(f"/proc/self/fd/{descriptor}", path.name, dst_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)


def _settle(folder: Path) -> None:
    """Have the new name on the disk too, where folders can be synchronised."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
