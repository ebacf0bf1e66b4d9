"""How much memory there is and is in use, in words; what to say when it runs out; memory maps."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

UNITS = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "KI": 2**10, "MI": 2**20, "GI": 2**30}
DEFAULT_FREE = 4_000_000_000
"""Bytes that count as free where the system does not say."""


def parsed(words: str) -> int:
    """Return a size in bytes: 500MB, 1.5 GiB, 2e9.

    Examples
    --------
    >>> parsed("500MB"), parsed("1.5 GiB"), parsed("4096")
    (500000000, 1610612736, 4096)
    """
    found = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([KMGT]?I?)B?\s*", words, re.IGNORECASE)
    with suppress(KeyError, ValueError):
        if found:
            return int(float(found[1]) * UNITS[found[2].upper()])
    raise ValueError(f"{words!r} is not a size: expected one such as 500MB or 2GiB.")


def shown(size: float) -> str:
    """Return a size in words.

    Examples
    --------
    >>> shown(2_500_000_000), shown(999)
    ('2.5 GB', '999 B')
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size:.0f} B"


def free() -> int:
    """Return the bytes that are free without swapping, as machine, container and limits allow."""
    return min([_free_of_host(), *_free_in_groups(), *_free_in_limits()])


def _free_of_host() -> int:
    """Return the bytes that are free on the machine, as far as the system knows."""
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable"))
        return int(line.split()[1]) * 1024
    with suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return DEFAULT_FREE


GROUPS, OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
"""Where Linux says what a container may use, and which groups this process is in."""


class _Version(NamedTuple):
    """Names of one version of control groups."""

    root: str  # folder of the memory groups below GROUPS
    limit: str
    used: str
    reclaimable: str  # line of memory.stat


VERSIONS = {
    "": _Version("", "memory.max", "memory.current", "inactive_file"),
    "memory": _Version(
        "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
    ),
}
"""By controller, as in /proc/self/cgroup: version 2 names none."""


def _free_in_groups() -> Iterator[int]:
    """Yield what each control group around this process leaves free, where it has a limit.

    Pages of files that the kernel can drop count as free.
    """
    lines: list[str] = []
    with suppress(OSError):
        lines = OWN_GROUPS.read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        names = VERSIONS.get("memory" if "memory" in controllers.split(",") else controllers)
        if names is None:
            continue
        root = GROUPS / names.root
        inside = root / path.strip("/")
        # a container may see its own group as the root, under a path of the host
        for group in {inside, *(p for p in inside.parents if p.is_relative_to(root)), root}:
            with suppress(OSError, ValueError):
                limit = int((group / names.limit).read_text())  # 'max' where there is none
                used = int((group / names.used).read_text())
                yield max(limit - used + _reclaimable(group, names.reclaimable), 0)


def _reclaimable(group: Path, name: str) -> int:
    with suppress(OSError):
        for line in (group / "memory.stat").read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0


def _free_in_limits() -> Iterator[int]:
    """Yield what limits of this process leave free (`ulimit -v`, `ulimit -d`), where it has any."""
    with suppress(ImportError, OSError, ValueError, IndexError):
        import resource

        pages = Path("/proc/self/statm").read_text().split()
        for kind, used in ((resource.RLIMIT_AS, pages[0]), (resource.RLIMIT_DATA, pages[5])):
            limit = resource.getrlimit(kind)[0]
            if limit != resource.RLIM_INFINITY:
                yield max(limit - int(used) * mmap.PAGESIZE, 0)


def resident() -> int:
    """Return the bytes that this process holds now (where unknown: at its height, or none)."""
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    with suppress(ImportError):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 0


IN_A_FIT = (
    "Fit fewer rows or columns, give them in float32, or give a table in chunks: Batches, or the "
    "path of a file."
)
IN_AN_ANSWER = "Ask about fewer rows at a time, or give a table in chunks: Batches, or a path."
AS_A_MATRIX = "Work with its parts instead, such as components_ and noise_variance_."
"""What helps where memory runs out."""


@contextmanager
def explained(remedy: str) -> Iterator[None]:
    """Say of memory that runs out how much was needed, how much is free, and what to do.

    Examples
    --------
    >>> with explained("Use fewer."):
    ...     np.empty((10**8, 10**8))
    Traceback (most recent call last):
        ...
    MemoryError: memory ran out: an array of 100000000 × 100000000 float64 needs 8e+07 GB more, ...
    """
    try:
        yield
    except MemoryError as error:
        shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)
        if shape is None or dtype is None:
            if str(error):  # somebody has said what was needed
                raise
            raise MemoryError(
                f"memory ran out, and {shown(free())} are free now. {remedy}"
            ) from error
        size = float(np.prod(shape, dtype=np.float64)) * np.dtype(dtype).itemsize
        raise MemoryError(
            f"memory ran out: an array of {' × '.join(map(str, shape))} {dtype} needs "
            f"{shown(size)} more, and {shown(free())} are free now. {remedy}"
        ) from error


# --- memory maps -------------------------------------------------------------------------------


def _map_under(X: Any) -> Any:
    """Return the memory map of a file that an array is, or is a part of; None for others."""
    whole = X
    while isinstance(whole, np.ndarray) and not isinstance(whole.base, mmap.mmap):
        whole = whole.base
    return whole if isinstance(whole, np.memmap) else None


def check_map(X: Any) -> None:
    """Refuse an array in a mapped file that has become shorter: to read it would end the process.

    Examples
    --------
    >>> check_map(np.zeros(3))
    """
    whole = _map_under(X)
    if whole is None:
        return
    pages: Any = whole.base
    there = None
    with suppress(ValueError, OSError):  # closed, or the map has no file
        there = pages.size()
    if there is not None and there < whole.offset + whole.nbytes:
        raise ValueError(
            f"{whole.filename} became shorter while it was mapped: it has {there} bytes, and the "
            f"array needs {whole.offset + whole.nbytes}. Write it again."
        )


LEAST_RELEASED = 2**27
"""Bytes of a memory map from which pages are released."""


def releasing(X: Any) -> Callable[[slice], None]:
    """Return a function that takes rows of a memory map, once read, out of this process' memory.

    They stay in the system's cache, and come back when they are read again: nothing is lost. That
    holds for maps that cannot be written; for all others, and small ones, nothing is done. Maps
    opened with mode 'c' hold changes that would be lost.
    """
    whole = _map_under(X)
    if whole is None or whole.mode != "r" or X.nbytes < LEAST_RELEASED:
        return lambda rows: None
    pages: Any = whole.base
    if not X.flags.c_contiguous or not hasattr(mmap, "MADV_DONTNEED"):
        return lambda rows: None
    first = X.ctypes.data - whole.ctypes.data + whole.offset % mmap.ALLOCATIONGRANULARITY
    row = X.strides[0]

    def release(rows: slice) -> None:
        begin, end = (
            (first + row * k) // mmap.PAGESIZE * mmap.PAGESIZE for k in (rows.start, rows.stop)
        )
        if end > begin:
            pages.madvise(mmap.MADV_DONTNEED, begin, end - begin)

    return release
