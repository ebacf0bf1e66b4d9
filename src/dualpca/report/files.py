"""Writing a page whole or not at all."""

from __future__ import annotations

from pathlib import Path

from dualpca.atomic import replacing, target_of

check_target = target_of


def write_text(path: Path, text: str) -> int:
    """Write `text` to `path`, whole or not at all, and return its size in bytes.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_text(Path(folder, "page.html"), "<p>σ²</p>")
    11
    """
    data = text.encode()
    with replacing(path) as file:
        file.write(data)
    return len(data)
