"""Writing a file whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def check_target(path: Path) -> Path:
    """Return where a file will be written, or say why it cannot be.

    Links are followed, and only a regular file is ever replaced.

    Raises
    ------
    OSError
        If the folder does not exist, or something that is not a file has the name.
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder of {path} does not exist: create it first")
    if target.exists() and not target.is_file():
        raise FileExistsError(f"{path} is not a file: give another --output")
    return target


def write_text(path: Path, text: str) -> int:
    """Write `text` to `path` and return its size in bytes.

    The bytes go to a temporary name in the same folder, which then takes the place of `path` in
    one step: an interrupted write leaves neither half a file nor the temporary one.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_text(Path(folder, "page.html"), "<p>σ²</p>")
    11
    """
    target = check_target(path)
    data = text.encode()
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return len(data)
